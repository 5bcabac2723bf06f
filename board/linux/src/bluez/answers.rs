//! What is answered when BlueZ calls: reads, writes, notifications, pairing.

use std::collections::HashMap;

use board::bluetooth::{Secretive, VALUE_BYTES_MAX, Visit, WriteRefused};
use zbus::{
    Message,
    zvariant::{ObjectPath, Value},
};

use super::{
    objects::{ADVERTISEMENT, CHARACTERISTIC},
    offering::{Inner, Out},
};

/// How a call ends that is not answered at once.
pub(super) enum Answer {
    /// An empty answer.
    Done,
    /// Bytes.
    Bytes(Vec<u8>),
    /// One of BlueZ's errors, by its short name.
    Error(&'static str),
    /// Somebody else answers.
    Later,
}

/// Phones that are let in and did not finish pairing; who comes by with ever new addresses pushes out the oldest.
const ACCEPTED_MAX: usize = 8;

/// A call's first argument as options.
type Options<'a> = HashMap<&'a str, Value<'a>>;

/// Does what was called. Calls without an arm are of no use to us, and refused.
pub(super) fn call(inner: &Inner, message: &Message) -> Answer {
    let header = message.header();
    let (Some(path), Some(member)) = (header.path(), header.member()) else { return Answer::Error("Failed") };
    let (path, interface) = (path.as_str(), header.interface().map_or("", |interface| interface.as_str()));
    let body = message.body();
    match (interface, member.as_str()) {
        ("org.freedesktop.DBus.ObjectManager", "GetManagedObjects") if path == inner.places.table() => {
            inner.send(Out::Table(message.clone()));
            Answer::Later
        }
        ("org.freedesktop.DBus.Properties", "GetAll") => match inner.places.advertisement_at(path) {
            Some(at) if body.deserialize::<&str>().is_ok_and(|of| of == ADVERTISEMENT) => {
                inner.send(Out::Advertisement(message.clone(), at));
                Answer::Later
            }
            _ => Answer::Error("InvalidArguments"),
        },
        (CHARACTERISTIC, "ReadValue") => read(inner, path, body.deserialize().unwrap_or_default()),
        (CHARACTERISTIC, "WriteValue") => match body.deserialize::<(Vec<u8>, Options<'_>)>() {
            Ok((value, options)) => write(inner, message, path, value, &options),
            Err(_) => Answer::Error("InvalidArguments"),
        },
        (CHARACTERISTIC, "StartNotify") => notify(inner, path, true),
        (CHARACTERISTIC, "StopNotify") => notify(inner, path, false),
        (ADVERTISEMENT, "Release") => {
            inner.end_refused("it takes the advertisement back");
            Answer::Done
        }
        ("org.bluez.Agent1", member) => agent(inner, message, member),
        _ => Answer::Error("NotSupported"),
    }
}

fn read(inner: &Inner, path: &str, options: Options<'_>) -> Answer {
    let offset = match options.get("offset") {
        Some(Value::U16(offset)) => usize::from(*offset),
        _ => 0,
    };
    let Some(uuid) = inner.uuid_at(path) else { return Answer::Error("Failed") };
    match inner.value(uuid).get(offset..) {
        Some(rest) => Answer::Bytes(rest.to_vec()),
        None => Answer::Error("InvalidOffset"),
    }
}

/// BlueZ puts long writes together; one that begins in the middle of a value means nothing here.
fn write(inner: &Inner, message: &Message, path: &str, value: Vec<u8>, options: &Options<'_>) -> Answer {
    if !matches!(options.get("offset"), None | Some(Value::U16(0))) {
        return Answer::Error("InvalidOffset");
    }
    if value.len() > VALUE_BYTES_MAX {
        return Answer::Error("InvalidValueLength");
    }
    let Some(characteristic) = inner.uuid_at(path) else { return Answer::Error("Failed") };
    let phone = match options.get("device") {
        Some(Value::ObjectPath(path)) => address(path.as_str()),
        _ => String::new(),
    };
    inner.phone_is_here(&phone);
    let reply = Reply { outbox: inner.outbox(), message: Some(message.clone()) };
    let answer = Box::new(move |answer: Result<(), WriteRefused>| {
        reply.with(match answer {
            Ok(()) => Answer::Done,
            Err(WriteRefused::Invalid) => Answer::Error("Failed"),
            Err(WriteRefused::TooLong) => Answer::Error("InvalidValueLength"),
            Err(WriteRefused::NotAuthorized) => Answer::Error("NotAuthorized"),
            Err(WriteRefused::Busy) => Answer::Error("InProgress"),
        });
    });
    inner.tell(Visit::Write { characteristic, phone, value: Secretive::new(value), answer });
    Answer::Later
}

fn notify(inner: &Inner, path: &str, on: bool) -> Answer {
    match inner.uuid_at(path) {
        Some(uuid) => {
            inner.set_notifying(uuid, on);
            Answer::Done
        }
        None => Answer::Error("Failed"),
    }
}

/// Somebody pairs. Nothing can be typed here: only what is answered by yes or no is possible.
fn agent(inner: &Inner, message: &Message, member: &str) -> Answer {
    let body = message.body();
    let (phone, passkey) = match member {
        "RequestConfirmation" => match body.deserialize::<(ObjectPath<'_>, u32)>() {
            Ok((phone, passkey)) => (address(phone.as_str()), Some(passkey)),
            Err(_) => return Answer::Error("Rejected"),
        },
        "RequestAuthorization" => match body.deserialize::<ObjectPath<'_>>() {
            Ok(phone) => (address(phone.as_str()), None),
            Err(_) => return Answer::Error("Rejected"),
        },
        // A display that nobody sees; the other side's number is compared by nobody either.
        "DisplayPasskey" | "DisplayPinCode" | "Cancel" | "Release" => return Answer::Done,
        _ => return Answer::Error("Rejected"),
    };
    let reply = Reply { outbox: inner.outbox(), message: Some(message.clone()) };
    let accepted = inner.accepted();
    let whose = phone.clone();
    let answer = Box::new(move |yes| {
        if yes {
            let mut accepted = accepted.borrow_mut();
            if accepted.len() >= ACCEPTED_MAX {
                accepted.remove(0);
            }
            accepted.push(whose);
        }
        reply.with(if yes { Answer::Done } else { Answer::Error("Rejected") });
    });
    inner.tell(Visit::Pairing { phone, passkey, answer });
    Answer::Later
}

/// Answers a call once; when it is dropped without, the phone is told that it failed, and need not wait half a minute.
struct Reply {
    outbox: smol::channel::Sender<Out>,
    message: Option<Message>,
}

impl Reply {
    fn with(mut self, answer: Answer) {
        self.put(answer);
    }

    fn put(&mut self, answer: Answer) {
        if let Some(message) = self.message.take() {
            let _ = self.outbox.try_send(Out::Answer(message, answer));
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        self.put(Answer::Error("Failed"));
    }
}

/// `AA:BB:CC:DD:EE:FF` of `/org/bluez/hci0/dev_AA_BB_CC_DD_EE_FF`.
pub(super) fn address(path: &str) -> String {
    path.rsplit('/').next().and_then(|last| last.strip_prefix("dev_")).unwrap_or_default().replace('_', ":")
}
