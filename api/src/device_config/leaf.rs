//! From one raw value to one checked value, by the form that the table gives it.
//!
//! Owns every bound and every sentence of what is allowed. A fault never holds a value that may be secret.

use super::{
    complaint::Fault,
    fields::{Field, Form, Shape},
    limits::{DNS_SERVERS_MAX, ENV_BYTES_MAX, ENV_ENTRIES_MAX, RELEASE_KEYS_MAX},
    maintenance::{DAY_NAMES, Days, MinuteOfDay, WINDOWS_MAX, Window, Zone},
    networks::{Address, is_passphrase, is_psk},
    node::{Kind, Node},
    versions::{URL_BYTES_MAX, VersionSetting, is_web_url},
};
use crate::Secret;
use std::{net::Ipv4Addr, rc::Rc};

/// A checked value of one field.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Checked {
    Flag(bool),
    Integer(i64),
    Text(Box<str>),
    Hidden(Secret),
    Version(VersionSetting),
    Address(Address),
    Ip(Option<Ipv4Addr>),
    Ips(Box<[Ipv4Addr]>),
    /// Ordered by name, so that equal sets are equal.
    Environment(Vec<(Box<str>, Secret)>),
    Windows(Rc<[Window]>),
    Keys(Box<[Box<str>]>),
}

/// What a form allows, as the end of "allowed is …".
pub(super) fn allowed(form: Form) -> String {
    match form {
        Form::Flag => "true or false".into(),
        Form::Integer { min, max, special: None } => format!("an integer from {min} to {max}"),
        Form::Integer { min, max, special: Some((value, meaning)) } => {
            format!("an integer from {min} to {max}, or {value} ({meaning})")
        }
        Form::Text { shape: Shape::Country, .. } => "two capital letters, or empty".into(),
        Form::Text { min: 0, max, shape: Shape::WebUrl } => {
            format!("an http or https URL of at most {max} bytes, or empty")
        }
        Form::Text { max, shape: Shape::NamedUrl, .. } => {
            format!("an https URL of at most {max} bytes whose host is a name and no address, or empty")
        }
        Form::Text { max, shape: Shape::WebUrl, .. } => format!("an http or https URL of at most {max} bytes"),
        Form::Text { max, shape: Shape::Interface, .. } => {
            format!("an interface name of at most {max} bytes without blanks and slashes, or empty")
        }
        Form::Text { min: 0, max, shape: Shape::Line } => format!("one line of at most {max} bytes"),
        Form::Text { min, max, shape: Shape::Line } => format!("one line of {min} to {max} bytes"),
        Form::Choice(choices) => {
            let quoted: Vec<_> = choices.iter().map(|choice| format!("\"{choice}\"")).collect();
            quoted.join(", ")
        }
        Form::Version => "\"stable\", \"dev\", a semantic version, or an http, https or file URL".into(),
        Form::Passphrase => "8 to 63 printable ASCII characters".into(),
        Form::Psk => "8 to 63 printable ASCII characters, 64 hexadecimal digits, or empty".into(),
        Form::Hidden { min, max } => format!("one line of {min} to {max} bytes"),
        Form::Address => "\"auto\" or an IPv4 address with prefix length such as 192.168.1.5/24".into(),
        Form::Ip => "an IPv4 address, or empty".into(),
        Form::Ips => format!("a list of at most {DNS_SERVERS_MAX} IPv4 addresses"),
        Form::Environment => {
            format!("an object of at most {ENV_ENTRIES_MAX} texts and {ENV_BYTES_MAX} bytes")
        }
        Form::Windows => format!("a list of at most {WINDOWS_MAX} windows"),
        Form::Keys => format!("a list of at most {RELEASE_KEYS_MAX} keys of 64 hexadecimal digits"),
    }
}

/// Reads a value that is not null. [`Form::Environment`] is read by `environment`, entry by entry.
pub(super) fn read<'a>(field: &Field, node: Node<'a>) -> Result<Checked, Fault<'a>> {
    let refused = || {
        let show = field.may_be_shown();
        Fault { inside: String::new(), place: node.place(), found: found(node, show), allowed: allowed(field.form) }
    };
    let text = || node.as_text().ok_or_else(refused);
    match field.form {
        Form::Flag => node.as_bool().map(Checked::Flag).ok_or_else(refused),
        Form::Integer { min, max, special } => {
            let number = node.as_integer().ok_or_else(refused)?;
            let fits = (min..=max).contains(&number) || special.is_some_and(|(value, _)| value == number);
            if fits { Ok(Checked::Integer(number)) } else { Err(refused()) }
        }
        Form::Text { min, max, shape } => {
            let text = text()?;
            let fits = (min..=max).contains(&text.len()) && has_shape(&text, shape);
            if fits { Ok(Checked::Text(text.as_ref().into())) } else { Err(refused()) }
        }
        Form::Choice(choices) => {
            let text = text()?;
            let chosen = choices.iter().find(|choice| **choice == text).ok_or_else(refused)?;
            Ok(Checked::Text((*chosen).into()))
        }
        Form::Version => VersionSetting::parse(&text()?).map(Checked::Version).ok_or_else(refused),
        Form::Passphrase => hidden(&text()?, is_passphrase).ok_or_else(refused),
        Form::Psk => hidden(&text()?, |text| text.is_empty() || is_psk(text)).ok_or_else(refused),
        Form::Hidden { min, max } => {
            let fits = |text: &str| (min..=max).contains(&text.len()) && has_shape(text, Shape::Line);
            hidden(&text()?, fits).ok_or_else(refused)
        }
        Form::Address => Address::parse(&text()?).map(Checked::Address).ok_or_else(refused),
        Form::Ip => match &*text()? {
            "" => Ok(Checked::Ip(None)),
            text => text.parse().map(|ip| Checked::Ip(Some(ip))).map_err(|_| refused()),
        },
        Form::Ips => list(node, DNS_SERVERS_MAX, refused, |item| {
            item.as_text().and_then(|text| text.parse().ok()).ok_or_else(|| fault(item, "an IPv4 address"))
        })
        .map(|ips| Checked::Ips(ips.into())),
        Form::Keys => list(node, RELEASE_KEYS_MAX, refused, key).map(|keys| Checked::Keys(keys.into())),
        Form::Windows => list(node, WINDOWS_MAX, refused, window).map(|windows| Checked::Windows(windows.into())),
        Form::Environment => Err(refused()),
    }
}

/// One variable for the machine server. What may not be in a process's environment is refused here, not at the start.
pub(super) fn variable<'a>(name: &str, node: Node<'a>) -> Result<Secret, Fault<'a>> {
    let refused = |found: String, allowed: &str| Fault {
        inside: String::new(),
        place: node.place(),
        found,
        allowed: allowed.into(),
    };
    if name.is_empty() || name.contains(['=', '\0']) {
        return Err(refused("a name that no variable can have".into(), "a name without '=' and NUL, not empty"));
    }
    let text = node.as_text().ok_or_else(|| refused(found(node, false), "text"))?;
    if text.contains('\0') {
        return Err(refused("text with a NUL".into(), "text without NUL"));
    }
    Ok(Secret::new(text.as_ref()))
}

fn hidden(text: &str, fits: impl Fn(&str) -> bool) -> Option<Checked> {
    fits(text).then(|| Checked::Hidden(Secret::new(text)))
}

fn has_shape(text: &str, shape: Shape) -> bool {
    match shape {
        Shape::Line => !text.contains(char::is_control),
        Shape::Interface => {
            let reserved = |character: char| character.is_whitespace() || character.is_control() || character == '/';
            !text.contains(reserved) && text != "." && text != ".."
        }
        Shape::Country => text.is_empty() || (text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_uppercase())),
        Shape::WebUrl => text.is_empty() || is_web_url(text),
        Shape::NamedUrl => text.is_empty() || is_web_url(text) && has_name(text),
    }
}

/// Whether an https URL names its host, so that there can be a certificate for it that strangers trust.
fn has_name(url: &str) -> bool {
    let Some(rest) = url.strip_prefix("https://") else { return false };
    let host = rest.split(['/', '?', ':']).next().unwrap_or_default();
    let last = host.rsplit('.').next().unwrap_or_default();
    let named = host.contains('.') && last.bytes().any(|byte| byte.is_ascii_alphabetic());
    // It is written into another program's file.
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:/?&=%+".contains(&byte);
    named && !host.starts_with('.') && url.bytes().all(plain)
}

/// A list of at most `limit` values, each read by `item`; one bad value refuses the list, because order has a meaning.
fn list<'a, T>(
    node: Node<'a>,
    limit: usize,
    refused: impl Fn() -> Fault<'a>,
    item: impl Fn(Node<'a>) -> Result<T, Fault<'a>>,
) -> Result<Vec<T>, Fault<'a>> {
    if node.kind() != Kind::List {
        return Err(refused());
    }
    let count = node.items().count();
    if count > limit {
        return Err(Fault { found: format!("a list of {count}"), ..refused() });
    }
    let place = |(index, value): (usize, Node<'a>)| {
        item(value).map_err(|fault| Fault { inside: format!("[{index}]{}", fault.inside), ..fault })
    };
    node.items().enumerate().map(place).collect()
}

fn key(node: Node<'_>) -> Result<Box<str>, Fault<'_>> {
    let hex = node.as_text().filter(|text| text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit()));
    hex.map(|text| text.to_ascii_lowercase().into()).ok_or_else(|| fault(node, "64 hexadecimal digits"))
}

fn window(node: Node<'_>) -> Result<Window, Fault<'_>> {
    if node.kind() != Kind::Object {
        return Err(fault(node, "an object with days, from, to, tz"));
    }
    let known = |name: &str| matches!(name, "days" | "from" | "to" | "tz");
    if let Some((name, value)) = node.entries().find(|(name, _)| !known(name)) {
        let fault = fault(value, "days, from, to, tz");
        return Err(Fault { found: "a name nobody knows".into(), ..fault }.within(&name));
    }
    let given = |name: &str| node.get(name).filter(|value| !value.is_null());
    let time = |name: &'static str| {
        let allowed = "a time such as 02:30, at most 24:00";
        let value = given(name).ok_or_else(|| missing(node, allowed).within(name))?;
        let time = value.as_text().and_then(|text| MinuteOfDay::parse(&text));
        time.ok_or_else(|| fault(value, allowed).within(name))
    };
    let (from, to) = (time("from")?, time("to")?);
    if from == to {
        let found = format!("{to}, the same as from");
        let allowed = "a time other than from; a whole day is 00:00 to 24:00";
        return Err(Fault { found, ..fault(node, allowed) }.within("to"));
    }
    let days = given("days").map_or(Ok(Days::ALL), days).map_err(|fault| fault.within("days"))?;
    let zone = given("tz").map_or(Ok(Zone::Local), |value| {
        let zone = value.as_text().and_then(|text| Zone::parse(&text));
        zone.ok_or_else(|| fault(value, "\"local\" or a name of the zone database such as Europe/Berlin"))
    });
    Ok(Window { days, from, to, zone: zone.map_err(|fault| fault.within("tz"))? })
}

fn days(node: Node<'_>) -> Result<Days, Fault<'_>> {
    let allowed = || format!("a list of {}", DAY_NAMES.join(", "));
    let read = node.items().try_fold(Days::NONE, |days, item| {
        item.as_text().and_then(|name| days.with(&name)).ok_or_else(|| fault(item, &allowed()))
    })?;
    if read.is_empty() { Err(fault(node, &allowed())) } else { Ok(read) }
}

fn fault<'a>(node: Node<'a>, allowed: &str) -> Fault<'a> {
    Fault { inside: String::new(), place: node.place(), found: found(node, true), allowed: allowed.into() }
}

fn missing<'a>(node: Node<'a>, allowed: &str) -> Fault<'a> {
    Fault { found: "nothing".into(), ..fault(node, allowed) }
}

/// A URL may carry a password before its '@' and a token behind its '?'.
fn may_hold_secret(text: &str) -> bool {
    text.contains('@') || (text.contains("://") && text.contains(['?', '#']))
}

/// What a person would say is there. Of a text that may be secret only its length is said.
pub(super) fn found(node: Node<'_>, may_be_shown: bool) -> String {
    if let Some(text) = node.as_text() {
        return match text.len() {
            0 => "empty text".into(),
            bytes if !may_be_shown || bytes > URL_BYTES_MAX || may_hold_secret(&text) => {
                format!("text of {bytes} bytes")
            }
            _ => format!("\"{text}\""),
        };
    }
    if let (Some(number), true) = (node.number(), may_be_shown) {
        return number;
    }
    if let (Some(flag), true) = (node.as_bool(), may_be_shown) {
        return flag.to_string();
    }
    node.kind().to_string()
}
