//! Bytes there and back, and bytes that nobody means well by.

use super::{read::Reader, write::Writer, *};

/// Chance by a seed (SplitMix64).
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    fn number(&mut self) -> u64 {
        self.below(u64::MAX)
    }
}

fn text(chance: &mut Chance) -> String {
    let letters = ['a', 'ß', '🏠', ' ', '\'', '\n'];
    (0..chance.below(9)).map(|_| letters[chance.below(6) as usize]).collect()
}

/// A type, and a value of it.
fn kind(chance: &mut Chance, depth: u64) -> String {
    let basic = ["y", "b", "n", "q", "i", "u", "x", "t", "d", "s", "o", "g", "h"];
    match chance.below(if depth > 4 { 13 } else { 18 }) {
        at @ 0..13 => basic[at as usize].to_owned(),
        13 => "v".to_owned(),
        14 => format!("a{}", kind(chance, depth + 1)),
        15 => format!("a{{{}{}}}", basic[chance.below(13) as usize], kind(chance, depth + 1)),
        16 => "ay".to_owned(),
        _ => format!("({}{})", kind(chance, depth + 1), kind(chance, depth + 1)),
    }
}

fn of_kind(chance: &mut Chance, kind: &str, depth: u64) -> Value {
    let number = chance.number();
    match kind {
        "y" => Value::U8(number as u8),
        "b" => Value::Bool(number.is_multiple_of(2)),
        "n" => Value::I16(number as i16),
        "q" => Value::U16(number as u16),
        "i" => Value::I32(number as i32),
        "u" => Value::U32(number as u32),
        "x" => Value::I64(number as i64),
        "t" => Value::U64(number),
        "d" => Value::F64(number as f64 / 7.0),
        "s" => Value::Text(text(chance)),
        "o" => Value::Path(["/", "/a", "/org/x_1/2"][chance.below(3) as usize].to_owned()),
        "g" => Value::Signature(["", "a{sv}", "(ii)as"][chance.below(3) as usize].to_owned()),
        "h" => Value::Descriptor(number as u32),
        "v" => {
            let kind = self::kind(chance, depth + 1);
            Value::Variant(Box::new(of_kind(chance, &kind, depth + 1)))
        }
        "ay" => Value::Bytes((0..chance.below(20)).map(|at| at as u8).collect()),
        _ if kind.starts_with("a{") => {
            let of = &kind[2..kind.len() - 1];
            let (key, value) = of.split_at(1);
            let entry = |_| (of_kind(chance, key, depth + 1), of_kind(chance, value, depth + 1));
            Value::Map(of.into(), (0..depth % 4).map(entry).collect())
        }
        _ if kind.starts_with('a') => {
            let of = &kind[1..];
            Value::List(of.into(), (0..chance.below(4)).map(|_| of_kind(chance, of, depth + 1)).collect())
        }
        _ => {
            let mut rest = &kind[1..kind.len() - 1];
            let mut fields = Vec::new();
            while let Some((one, behind)) = names::first(rest) {
                fields.push(of_kind(chance, one, depth + 1));
                rest = behind;
            }
            Value::Structure(fields)
        }
    }
}

fn call(body: Vec<Value>) -> Message {
    let mut message = Message::new(Kind::Call, "org.example");
    message.serial = 7;
    message.path = "/a".to_owned();
    message.interface = "org.example.Things".to_owned();
    message.member = "Do".to_owned();
    message.body = body;
    message
}

#[test]
fn whatever_is_written_is_read_back_in_either_order() {
    let mut chance = Chance(1);
    for round in 0..3000 {
        let kinds: Vec<String> = (0..chance.below(4)).map(|_| kind(&mut chance, 1)).collect();
        let body: Vec<Value> = kinds.iter().map(|kind| of_kind(&mut chance, kind, 1)).collect();
        let sent = call(body);
        for big in [false, true] {
            let bytes = sent.bytes(big).unwrap_or_else(|error| panic!("{round} {kinds:?}: {error}"));
            let read = parse(&bytes).unwrap_or_else(|error| panic!("{round} {kinds:?}: {error}"));
            assert_eq!((read.serial, &*read.path, &*read.member), (7, "/a", "Do"));
            assert!(read.body == sent.body, "{round} {kinds:?}");
        }
    }
}

/// What dbus-daemon 1.14.10 answered to a Hello.
#[test]
fn a_message_of_the_real_bus_is_read() {
    let bytes = b"l\x02\x01\x01\x09\0\0\0\x01\0\0\0\x3d\0\0\0\
        \x06\x01s\0\x04\0\0\0:1.0\0\0\0\0\x05\x01u\0\x01\0\0\0\x08\x01g\0\x01s\0\0\
        \x07\x01s\0\x14\0\0\0org.freedesktop.DBus\0\0\0\0\x04\0\0\0:1.0\0";
    let message = parse(bytes).expect("a message");
    assert_eq!((message.kind, message.reply_to, &*message.sender), (Kind::Answer, 1, "org.freedesktop.DBus"));
    assert_eq!(message.first().and_then(Value::text), Some(":1.0"));
    let read = parse(&message.bytes(false).expect("it can be sent")).expect("and read");
    assert!(read == message);
}

#[test]
fn what_is_none_is_refused() {
    let value = |kind: &str, bytes: &[u8]| Reader::new(bytes, false).values(kind);
    let good: [(&str, &[u8]); 6] = [
        ("y", &[1]),
        ("b", &[1, 0, 0, 0]),
        ("yu", &[1, 0, 0, 0, 2, 0, 0, 0]),
        ("s", b"\x02\0\0\0hi\0"),
        ("ax", &[0, 0, 0, 0, 0, 0, 0, 0]),
        ("v", &[1, b'y', 0, 5]),
    ];
    for (kind, bytes) in good {
        assert!(value(kind, bytes).is_ok(), "{kind}");
        for cut in 0..bytes.len() {
            assert!(value(kind, &bytes[..cut]).is_err(), "{kind} with {cut} bytes");
        }
        assert!(value(kind, &[bytes, &[0]].concat()).is_err(), "{kind} and something behind it");
    }
    let bad: [(&str, &str, &[u8]); 19] = [
        ("neither yes nor no", "b", &[2, 0, 0, 0]),
        ("padding", "yu", &[1, 0, 1, 0, 2, 0, 0, 0]),
        ("not UTF-8", "s", b"\x02\0\0\0\xff\xfe\0"),
        ("no end", "s", b"\x02\0\0\0hiX"),
        ("an end in the middle", "s", b"\x02\0\0\0h\0\0"),
        ("longer than there is", "s", b"\xff\xff\xff\xffhi\0"),
        ("no path", "o", b"\x02\0\0\0hi\0"),
        ("a path with an end", "o", b"\x03\0\0\0/a/\0"),
        ("an empty word", "o", b"\x04\0\0\0//aa\0"),
        ("no type", "g", b"\x01z\0"),
        ("half a type", "g", b"\x01a\0"),
        ("an empty structure", "g", b"\x02()\0"),
        ("a map by itself", "g", b"\x04{sv}\0"),
        ("a map with a key that is none", "g", b"\x05a{vs}\0"),
        ("a variant of two", "v", b"\x02yy\0\x01\x01"),
        ("a variant of nothing", "v", b"\0\0"),
        ("a list that ends inside a value", "au", &[6, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0]),
        ("a list longer than there is", "ay", &[9, 0, 0, 0, 1]),
        ("a list of the longest length", "ay", &[0xff, 0xff, 0xff, 0x7f]),
    ];
    for (case, kind, bytes) in bad {
        assert!(value(kind, bytes).is_err(), "{case}");
    }
}

#[test]
fn nesting_has_an_end() {
    let nested = |depth: usize| {
        let mut value = Value::from(1_u8);
        for _ in 0..depth {
            value = Value::Variant(Box::new(value));
        }
        let mut writer = Writer::default();
        writer.value(&value);
        Reader::new(&writer.bytes, false).values("v").is_ok()
    };
    assert!(nested(64));
    assert!(!nested(65));
    assert!(!nested(5000));
    assert!(names::is_signature(&format!("{}y", "a".repeat(32))));
    assert!(!names::is_signature(&format!("{}y", "a".repeat(33))));
    assert!(names::is_signature(&format!("{}y{}", "(".repeat(32), ")".repeat(32))));
    assert!(!names::is_signature(&format!("{}y{}", "(".repeat(33), ")".repeat(33))));
    assert!(!names::is_signature(&"y".repeat(256)));
}

#[test]
fn what_grows_has_a_bound() {
    // A byte each, and a value in memory each.
    let many = |count: usize| {
        let mut writer = Writer::default();
        writer.value(&Value::List("b".into(), vec![Value::Bool(true); count]));
        Reader::new(&writer.bytes, false).values("ab").is_ok()
    };
    assert!(many(VALUES_MAX - 1));
    assert!(!many(VALUES_MAX));
    let long = call(vec![Value::Bytes(vec![0; BODY_MAX - 4])]).bytes(false).expect("the longest");
    assert!(parse(&long).is_ok());
    assert!(call(vec![Value::Bytes(vec![0; BODY_MAX - 3])]).bytes(false).is_err(), "none longer is sent");
}

#[test]
fn what_cannot_be_sent_is_not() {
    let table = [
        Value::from("a\0b"),
        Value::path("nowhere"),
        Value::Signature("a".to_owned()),
        Value::Structure(vec![]),
        Value::List("s".into(), vec![Value::from(1_u8)]),
        Value::List("si".into(), vec![]),
        Value::List("y".into(), vec![]),
        Value::Map("sv".into(), vec![(Value::from("a"), Value::from(1_u8))]),
        Value::Map("vs".into(), vec![]),
        Value::Variant(Box::new(Value::path("nowhere"))),
    ];
    for value in table {
        assert!(call(vec![value.clone()]).bytes(false).is_err(), "{value:?}");
    }
    let mut nowhere = call(vec![]);
    nowhere.path = "nowhere".to_owned();
    assert!(nowhere.bytes(false).is_err());
}

/// Every single byte of a message that matters, set to everything; cut everywhere; and nonsense from its first byte on.
#[test]
fn hostile_bytes_end_nothing() {
    let body = vec![
        Value::dict([("a", Value::from(vec![1_u8, 2])), ("b", Value::texts(["x", "y"]))]),
        Value::Structure(vec![Value::path("/a"), Value::F64(0.5)]),
    ];
    for big in [false, true] {
        let bytes = call(body.clone()).bytes(big).expect("it can be sent");
        for at in 0..bytes.len() {
            assert!(parse(&bytes[..at]).is_err(), "cut at {at}");
            let mut spoilt = bytes.clone();
            for byte in 0..=255 {
                spoilt[at] = byte;
                let _ = parse(&spoilt);
            }
        }
    }
    let mut chance = Chance(3);
    for _ in 0..20_000 {
        let mut bytes: Vec<u8> = (0..16 + chance.below(64)).map(|_| chance.number() as u8).collect();
        bytes[..4].copy_from_slice(b"l\x01\x00\x01");
        bytes[4..8].copy_from_slice(&(chance.below(32) as u32).to_le_bytes());
        bytes[12..16].copy_from_slice(&(chance.below(48) as u32).to_le_bytes());
        let _ = parse(&bytes);
    }
}

#[test]
fn who_wants_what() {
    let mut signal = call(vec![Value::from("first")]);
    signal.kind = Kind::Signal;
    signal.sender = ":1.2".to_owned();
    let any = Rule::default;
    let table = [
        ("anything", any(), true),
        ("its sender", Rule { sender: ":1.2".to_owned(), ..any() }, true),
        ("another", Rule { sender: ":1.20".to_owned(), ..any() }, false),
        ("its object", Rule { path: "/a".to_owned(), ..any() }, true),
        ("all objects", Rule { below: "/".to_owned(), ..any() }, true),
        ("below itself", Rule { below: "/a".to_owned(), ..any() }, true),
        ("below one that only begins like it", Rule { below: "/".to_owned() + "aa", ..any() }, false),
        ("calls", Rule { calls: true, ..any() }, false),
        ("its first word", Rule { first: "first", ..any() }, true),
        ("another first word", Rule { first: "second", ..any() }, false),
    ];
    for (case, rule, wanted) in table {
        assert_eq!(rule.wants(&signal) && rule.wants_body(&signal), wanted, "{case}");
    }
    signal.path = "/ab".to_owned();
    assert!(!Rule { below: "/a".to_owned(), ..any() }.wants(&signal));
    let rule = Rule { sender: ":1.2".to_owned(), path: "/a".to_owned(), first: "x", ..any() };
    assert_eq!(rule.text(), "type='signal',sender=':1.2',path='/a',arg0='x'");
}

#[test]
fn nothing_of_a_message_is_shown_that_may_be_a_password() {
    let message = call(vec![Value::from("planted-secret-42"), Value::from(b"planted-secret-42".to_vec())]);
    let shown = format!("{message:?} {:?}", message.body);
    assert!(!shown.contains("planted") && shown.contains("[s, ay]"), "{shown}");
}
