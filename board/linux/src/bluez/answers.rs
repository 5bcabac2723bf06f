//! What is answered when BlueZ calls: reads, writes, notifications, pairing.

use std::rc::Rc;

use super::{
    objects::{ADVERTISEMENT, CHARACTERISTIC},
    offering::{Inner, Out},
};
use crate::dbus::{Message, Value};
use board::bluetooth::{Secretive, VALUE_BYTES_MAX, Visit, WriteRefused};

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

/// Does what was called. Calls without an arm are of no use to us, and refused.
pub(super) fn call(inner: &Inner, message: &Rc<Message>) -> Answer {
    let path = &*message.path;
    match (&*message.interface, &*message.member) {
        ("org.freedesktop.DBus.ObjectManager", "GetManagedObjects") if path == inner.places.table() => {
            inner.send(Out::Table(Rc::clone(message)));
            Answer::Later
        }
        ("org.freedesktop.DBus.Properties", "GetAll") => match inner.places.advertisement_at(path) {
            Some(at) if message.first().and_then(Value::text) == Some(ADVERTISEMENT) => {
                inner.send(Out::Advertisement(Rc::clone(message), at));
                Answer::Later
            }
            _ => Answer::Error("InvalidArguments"),
        },
        (CHARACTERISTIC, "ReadValue") => read(inner, path, message.first()),
        (CHARACTERISTIC, "WriteValue") => match message.first() {
            Some(Value::Bytes(value)) => write(inner, message, value, message.nth(1)),
            _ => Answer::Error("InvalidArguments"),
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

/// Where in the value a phone begins.
fn offset(options: Option<&Value>) -> usize {
    match options.and_then(|options| options.get("offset")).map(Value::bare) {
        Some(Value::U16(offset)) => usize::from(*offset),
        _ => 0,
    }
}

fn read(inner: &Inner, path: &str, options: Option<&Value>) -> Answer {
    let Some(uuid) = inner.uuid_at(path) else { return Answer::Error("Failed") };
    match inner.value(uuid).get(offset(options)..) {
        Some(rest) => Answer::Bytes(rest.to_vec()),
        None => Answer::Error("InvalidOffset"),
    }
}

/// BlueZ puts long writes together; one that begins in the middle of a value means nothing here.
fn write(inner: &Inner, message: &Rc<Message>, value: &[u8], options: Option<&Value>) -> Answer {
    if offset(options) > 0 {
        return Answer::Error("InvalidOffset");
    }
    if value.len() > VALUE_BYTES_MAX {
        return Answer::Error("InvalidValueLength");
    }
    let Some(characteristic) = inner.uuid_at(&message.path) else { return Answer::Error("Failed") };
    let device = options.and_then(|options| options.get("device")).and_then(Value::text);
    let phone = device.map(address).unwrap_or_default();
    inner.phone_is_here(&phone);
    let reply = Reply { outbox: inner.outbox(), message: Some(Rc::clone(message)) };
    let answer = Box::new(move |answer: Result<(), WriteRefused>| {
        reply.with(match answer {
            Ok(()) => Answer::Done,
            Err(WriteRefused::Invalid) => Answer::Error("Failed"),
            Err(WriteRefused::TooLong) => Answer::Error("InvalidValueLength"),
            Err(WriteRefused::NotAuthorized) => Answer::Error("NotAuthorized"),
            Err(WriteRefused::Busy) => Answer::Error("InProgress"),
        });
    });
    inner.tell(Visit::Write { characteristic, phone, value: Secretive::new(value.to_vec()), answer });
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
fn agent(inner: &Inner, message: &Rc<Message>, member: &str) -> Answer {
    let device = || message.first().and_then(Value::text).map(address);
    let (phone, passkey) = match member {
        "RequestConfirmation" => match (device(), message.nth(1).and_then(Value::unsigned)) {
            (Some(phone), Some(passkey)) => (phone, Some(passkey)),
            _ => return Answer::Error("Rejected"),
        },
        "RequestAuthorization" => match device() {
            Some(phone) => (phone, None),
            None => return Answer::Error("Rejected"),
        },
        // A display that nobody sees; the other side's number is compared by nobody either.
        "DisplayPasskey" | "DisplayPinCode" | "Cancel" | "Release" => return Answer::Done,
        _ => return Answer::Error("Rejected"),
    };
    let reply = Reply { outbox: inner.outbox(), message: Some(Rc::clone(message)) };
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
    message: Option<Rc<Message>>,
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
