//! Messages: their header, and which of them a reader wants.

use super::{BODY_MAX, Error, FIELDS_MAX, Value, read::Reader, write::Writer};

/// Bytes before the header's fields, with the length of those.
pub(super) const HEAD: usize = 16;
const VERSION: u8 = 1;
const NO_REPLY: u8 = 0x1;

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Somebody wants something.
    Call,
    /// The answer to a call.
    Answer,
    /// The other answer to a call.
    Error,
    /// Something has happened.
    Signal,
    /// A kind that this version of the protocol does not know; to be ignored.
    Unknown,
}

/// A message. Fields that are not there are empty.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// What it is.
    pub kind: Kind,
    /// Its number among those of its sender.
    pub serial: u32,
    /// The number of the call that it answers.
    pub reply_to: u32,
    /// Who sent it, by unique name; the bus vouches for it.
    pub sender: String,
    /// To whom.
    pub destination: String,
    /// The object.
    pub path: String,
    /// Whose method or signal.
    pub interface: String,
    /// Method or signal.
    pub member: String,
    /// The name of an error.
    pub error: String,
    /// What it says.
    pub body: Vec<Value>,
    /// Whether its sender waits for no answer.
    pub(super) no_reply: bool,
    pub(super) signature: String,
    big: bool,
}

impl Message {
    pub(super) fn new(kind: Kind, destination: &str) -> Message {
        Message {
            kind,
            serial: 0,
            reply_to: 0,
            sender: String::new(),
            destination: destination.to_owned(),
            path: String::new(),
            interface: String::new(),
            member: String::new(),
            error: String::new(),
            body: Vec::new(),
            no_reply: false,
            signature: String::new(),
            big: false,
        }
    }

    /// The first value of the body.
    #[must_use]
    pub fn first(&self) -> Option<&Value> {
        self.body.first()
    }

    /// The value of the body at this place.
    #[must_use]
    pub fn nth(&self, at: usize) -> Option<&Value> {
        self.body.get(at)
    }

    /// The first value, where it is a map.
    ///
    /// # Errors
    /// Where it is something else.
    pub fn map(&self) -> Result<&Value, Error> {
        self.first().filter(|value| value.entries().is_some()).ok_or(Error::Nonsense("no map where one belongs"))
    }

    /// The first value, where it is the path of an object.
    ///
    /// # Errors
    /// Where it is something else.
    pub fn object(&self) -> Result<&str, Error> {
        match self.first() {
            Some(Value::Path(path)) => Ok(path),
            _ => Err(Error::Nonsense("no object where one belongs")),
        }
    }

    /// Reads the body that belongs to the header.
    pub(super) fn read_body(&mut self, body: &[u8]) -> Result<(), Error> {
        self.body = Reader::new(body, self.big).values(&self.signature)?;
        Ok(())
    }

    /// As it is sent. `big` is the other order of bytes, which ours never have.
    ///
    /// # Errors
    /// Where it is not what it has to be, or too long.
    pub fn bytes(&self, big: bool) -> Result<Vec<u8>, Error> {
        let nonsense = Error::Nonsense("a message that cannot be sent");
        if !self.body.iter().all(Value::is_sound) {
            return Err(nonsense);
        }
        let mut body = Writer { big, ..Writer::default() };
        let mut signature = String::new();
        for value in &self.body {
            value.signature(&mut signature);
            body.value(value);
        }
        let fields = [
            (1, Value::Path(self.path.clone())),
            (2, Value::Text(self.interface.clone())),
            (3, Value::Text(self.member.clone())),
            (4, Value::Text(self.error.clone())),
            (6, Value::Text(self.destination.clone())),
            (7, Value::Text(self.sender.clone())),
            (8, Value::Signature(signature)),
        ];
        let is_there = |value: &Value| match value {
            Value::Text(text) | Value::Path(text) | Value::Signature(text) => !text.is_empty(),
            _ => true,
        };
        let fields: Vec<_> = fields.into_iter().filter(|(_, value)| is_there(value)).collect();
        if !fields.iter().all(|(_, value)| value.is_sound()) || body.bytes.len() > BODY_MAX {
            return Err(nonsense);
        }
        let mut writer = Writer { big, ..Writer::default() };
        writer.u8(if big { b'B' } else { b'l' });
        writer.u8(match self.kind {
            Kind::Call => 1,
            Kind::Answer => 2,
            Kind::Error => 3,
            Kind::Signal => 4,
            Kind::Unknown => return Err(nonsense),
        });
        writer.u8(if self.no_reply { NO_REPLY } else { 0 });
        writer.u8(VERSION);
        writer.u32(u32::try_from(body.bytes.len()).unwrap_or(u32::MAX));
        writer.u32(self.serial);
        writer.list(8, |writer| {
            let mut field = |code: u8, value: Value| {
                writer.align(8);
                writer.u8(code);
                writer.value(&Value::Variant(Box::new(value)));
            };
            fields.into_iter().for_each(|(code, value)| field(code, value));
            if self.reply_to != 0 {
                field(5, Value::U32(self.reply_to));
            }
        });
        writer.align(8);
        writer.bytes.extend(body.bytes);
        Ok(writer.bytes)
    }
}

/// How long a message is, by its first bytes.
pub(super) struct Sizes {
    /// The header with its padding.
    pub header: usize,
    pub body: usize,
}

impl Sizes {
    pub(super) fn of(head: &[u8; HEAD]) -> Result<Sizes, Error> {
        let [order, kind, _, version, ..] = *head;
        let big = match order {
            b'l' => false,
            b'B' => true,
            _ => return Err(Error::Nonsense("neither order of bytes")),
        };
        if version != VERSION || kind == 0 {
            return Err(Error::Nonsense("another protocol"));
        }
        let mut reader = Reader::new(head.get(4..).unwrap_or_default(), big);
        let (body, _serial, fields) = (reader.u32()?, reader.u32()?, reader.u32()?);
        let (body, fields) = (size(body), size(fields));
        if fields > FIELDS_MAX || body.saturating_add(fields) > MESSAGE_MAX {
            return Err(Error::Nonsense("a message that is too long"));
        }
        Ok(Sizes { header: (HEAD + fields).next_multiple_of(8), body })
    }
}

/// Longest message of the protocol, in bytes. Longer than [`BODY_MAX`] is passed over, longer than this is no message.
const MESSAGE_MAX: usize = 128 << 20;

fn size(length: u32) -> usize {
    usize::try_from(length).unwrap_or(usize::MAX)
}

/// Reads a header, of exactly the size that it says. Fields that are not known are passed over, as they have to be.
pub(super) fn header(bytes: &[u8]) -> Result<Message, Error> {
    let [order, kind, flags, ..] = bytes else { return Err(Error::Nonsense("a message is cut off")) };
    let mut message = Message::new(
        match kind {
            1 => Kind::Call,
            2 => Kind::Answer,
            3 => Kind::Error,
            4 => Kind::Signal,
            _ => Kind::Unknown,
        },
        "",
    );
    message.big = *order == b'B';
    message.no_reply = flags & NO_REPLY != 0;
    // Everything but the padding at the end is the structure (yyyyuua(yv)).
    let end = bytes.len();
    let mut reader = Reader::new(bytes, message.big);
    for _ in 0..4 {
        reader.u8()?;
    }
    let _body = reader.u32()?;
    message.serial = reader.u32()?;
    let fields_end = HEAD + size(reader.u32()?);
    if message.serial == 0 || fields_end.next_multiple_of(8) != end {
        return Err(Error::Nonsense("a header of another length than it says"));
    }
    let fields = bytes.get(..fields_end).unwrap_or_default();
    let mut reader = reader.within(fields);
    while !reader.is_at_end() {
        reader.align(8)?;
        let (code, value) = (reader.u8()?, reader.variant()?);
        let place = match (code, &value) {
            (1, Value::Path(_)) => &mut message.path,
            (2, Value::Text(_)) => &mut message.interface,
            (3, Value::Text(_)) => &mut message.member,
            (4, Value::Text(_)) => &mut message.error,
            (6, Value::Text(_)) => &mut message.destination,
            (7, Value::Text(_)) => &mut message.sender,
            (8, Value::Signature(_)) => &mut message.signature,
            (5, Value::U32(number)) => {
                message.reply_to = *number;
                continue;
            }
            (1..=8, _) => return Err(Error::Nonsense("a field of another type")),
            _ => continue,
        };
        if let Value::Path(text) | Value::Text(text) | Value::Signature(text) = value {
            *place = text;
        }
    }
    let lacks = match message.kind {
        Kind::Call => message.path.is_empty() || message.member.is_empty(),
        Kind::Signal => message.path.is_empty() || message.member.is_empty() || message.interface.is_empty(),
        Kind::Answer => message.reply_to == 0,
        Kind::Error => message.reply_to == 0 || message.error.is_empty(),
        Kind::Unknown => false,
    };
    if lacks { Err(Error::Nonsense("a message without what belongs to it")) } else { Ok(message) }
}

/// Which messages a reader wants. Empty fields want anything.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rule {
    /// Calls to our own objects, rather than signals.
    pub calls: bool,
    pub sender: String,
    pub path: String,
    /// This object and all below it.
    pub below: String,
    pub interface: &'static str,
    pub member: &'static str,
    /// The first value, a text.
    pub first: &'static str,
}

impl Rule {
    /// By the header alone. [`Rule::first`] needs the body.
    pub(super) fn wants(&self, message: &Message) -> bool {
        let is = |wanted: &str, is: &str| wanted.is_empty() || wanted == is;
        let below = |path: &str| {
            let rest = path.strip_prefix(&*self.below);
            self.below == "/"
                || rest.is_some_and(|rest| rest.is_empty() || self.below.is_empty() || rest.starts_with('/'))
        };
        message.kind == if self.calls { Kind::Call } else { Kind::Signal }
            && is(&self.sender, &message.sender)
            && is(&self.path, &message.path)
            && below(&message.path)
            && is(self.interface, &message.interface)
            && is(self.member, &message.member)
    }

    pub(super) fn wants_body(&self, message: &Message) -> bool {
        self.first.is_empty() || matches!(message.first(), Some(Value::Text(text)) if text == self.first)
    }

    /// For the bus. Nothing in it can hold an apostrophe: names and paths have none.
    pub(super) fn text(&self) -> String {
        let mut text = "type='signal'".to_owned();
        let fields = [
            ("sender", &*self.sender),
            ("path", &self.path),
            ("path_namespace", &self.below),
            ("interface", self.interface),
            ("member", self.member),
            ("arg0", self.first),
        ];
        for (name, value) in fields.into_iter().filter(|(_, value)| !value.is_empty()) {
            text.extend([",", name, "='", value, "'"]);
        }
        text
    }
}
