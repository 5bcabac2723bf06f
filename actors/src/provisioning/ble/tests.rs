//! Phones of every kind: those that know the way, those that guess, and those that send nonsense.

use std::{rc::Rc, sync::OnceLock, time::Duration};

use api::Secret;
use board::{
    Mono,
    bluetooth::{Uuid, VALUE_BYTES_MAX, WriteRefused},
    network::{Security, Seen, Ssid},
};

use rsa_key::{Key, TEXT_MAX};

use super::{
    channel::phone::{Phone, sealed_by},
    characteristics::{CLASSIC, Group, IMPROV, Role, TABLE},
    session::{Keys, Session, Settings},
    vectors::*,
};
use crate::provisioning::{
    visit::{Door, Identity, Proof, Visit},
    welcome::{Attempt, IdentityDoor, Result as Outcome, Welcome},
};

const PASSWORD: &str = "platform:hotspot";
const NOW: Mono = Mono::from_nanos(1_000_000_000_000);

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

fn key() -> &'static Key {
    static KEY: OnceLock<Key> = OnceLock::new();
    KEY.get_or_init(|| Key::from_primes(&unhex(FIRST).try_into().unwrap(), &unhex(SECOND).try_into().unwrap()).unwrap())
}

/// Without optimization it takes half a second to stretch a password: once is enough.
fn keys() -> Keys {
    static KEYS: OnceLock<Keys> = OnceLock::new();
    KEYS.get_or_init(|| Keys::with(key().clone(), &Secret::from(PASSWORD), &mut chance(1)).unwrap()).clone()
}

/// The same each time: a test that fails fails again.
fn chance(seed: u64) -> impl FnMut(&mut [u8]) -> bool {
    let mut state = seed;
    move |bytes| {
        for byte in bytes {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *byte = (state >> 56) as u8;
        }
        true
    }
}

fn settings() -> Settings {
    Settings {
        name: "platform-setup-board-7".into(),
        password: Secret::from(PASSWORD),
        trust_all: false,
        improv: true,
        improv_needs_presence: false,
        url: Rc::from("https://fleet.example.com"),
    }
}

fn seen(name: &[u8], signal: u8, security: Security) -> Seen {
    Seen { ssid: Ssid::new(name).unwrap(), signal, security, frequency_mhz: 2412, heard: None }
}

fn welcome() -> Welcome {
    Welcome {
        manufacturer: "acme".into(),
        model: "model 1".into(),
        fragment_id: Some("fragment-1".into()),
        hostname: "board-7".into(),
        agent_version: "1.2.3".into(),
        networks: [seen(b"home", 90, Security::Wpa2), seen("café".as_bytes(), 40, Security::Open)].into(),
        ..Welcome::default()
    }
}

fn session(change: impl FnOnce(&mut Settings, &mut Welcome)) -> Session {
    let (mut settings, mut welcome) = (settings(), welcome());
    change(&mut settings, &mut welcome);
    Session::new(&settings, keys(), &welcome)
}

fn uuid(name: &str) -> Uuid {
    TABLE.iter().find(|row| row.name == name).unwrap().uuid
}

/// What a phone reads.
struct Read(Vec<(Uuid, Vec<u8>)>);

impl Read {
    fn all(session: &mut Session) -> Read {
        session.forget_given();
        Read(session.changes().values)
    }

    fn get(&self, name: &str) -> &[u8] {
        &self.0.iter().find(|(found, _)| *found == uuid(name)).unwrap().1
    }
}

/// A write as existing apps do it. Another seed is another sealing of the same.
fn write(session: &mut Session, name: &str, value: &str, seed: u8) -> Result<Vec<Visit>, WriteRefused> {
    let sealed = key().seal(format!("{PASSWORD}:{value}").as_bytes(), &[seed; 32]);
    raw(session, name, &sealed)
}

fn raw(session: &mut Session, name: &str, bytes: &[u8]) -> Result<Vec<Visit>, WriteRefused> {
    session.write(NOW, "phone", uuid(name), bytes).map(|visits| visits.visits.into_iter().collect())
}

fn home() -> Visit {
    Visit::Network(crate::provisioning::visit::network(b"home", "correct horse", false).unwrap())
}

fn identity(proof: Proof) -> Visit {
    Visit::Identity(Identity { app_address: "https://fleet.example.com:443".into(), part_id: "part-1".into(), proof })
}

#[test]
fn names_in_the_air() {
    // As every table of them must be: derived from one namespace by version 5 of RFC 9562.
    let namespace = 0x74a9_42f4_0f45_43f4_88ca_f870_21ae_36ea_u128.to_be_bytes();
    let derived = |name: &str| {
        let sum =
            ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, &[&namespace, name.as_bytes()].concat());
        let mut bytes: [u8; 16] = sum.as_ref()[..16].try_into().unwrap();
        bytes[6] = bytes[6] & 0x0f | 0x50;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        Uuid(u128::from_be_bytes(bytes))
    };
    for row in &TABLE {
        match row.group {
            Group::Classic => assert_eq!(row.uuid, derived(row.name)),
            Group::Channel => assert_eq!(row.uuid, derived(&format!("sealed-1/{}", row.name))),
            Group::Improv => assert_eq!(row.uuid.0 & !0xf, IMPROV.0),
        }
    }
    assert_eq!(Group::Channel.uuid(), derived("sealed-1"));
    assert_eq!(CLASSIC.to_string(), "51d984c2-43bd-5228-a3ac-a3eca992e8b3");
    assert_eq!(TABLE.iter().filter(|row| row.group == Group::Classic).count(), 16);
    let mut names: Vec<Uuid> = TABLE.iter().map(|row| row.uuid).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), TABLE.len());
}

#[test]
fn another_implementation_seals_and_this_one_opens() {
    let key = key();
    assert_eq!(key.public_der(), unhex(PUBLIC_DER));
    for (text, sealed) in SEALED {
        let mut sealed = unhex(sealed);
        assert_eq!(key.open(&sealed), Some(unhex(text)));
        sealed[200] ^= 1;
        assert_eq!(key.open(&sealed), None, "one bit");
    }
    for (what, sealed) in STRANGE {
        assert_eq!(key.open(&unhex(sealed)), None, "{what}");
    }
    for strange in [vec![], vec![0; 255], vec![0; 256], vec![1; 257], vec![0xff; 256]] {
        assert_eq!(key.open(&strange), None);
    }
    let one = [vec![0; 255], vec![1]].concat();
    assert_eq!(key.open(&one), None);
}

#[test]
fn padding_that_is_almost_right() {
    // What a padding oracle would be asked: every byte but one as it should be.
    let key = key();
    let good = key.seal(b"text", &[7; 32]);
    assert_eq!(key.open(&good).as_deref(), Some(&b"text"[..]));
    for length in [0, 1, 31, 32, 33, TEXT_MAX - 1, TEXT_MAX] {
        let text = vec![0; length];
        assert_eq!(key.open(&key.seal(&text, &[9; 32])), Some(text), "zeros are text behind the one");
    }
}

#[test]
fn a_new_key_opens_what_was_sealed_with_it() {
    let first = Key::make(&mut chance(2)).unwrap();
    let second = Key::make(&mut chance(3)).unwrap();
    let der = first.public_der();
    assert_eq!(der.len(), 294);
    assert!(der[33] >= 0x80, "2048 bits, not fewer");
    assert_ne!(der, second.public_der());
    let sealed = first.seal(b"text", &[1; 32]);
    assert_eq!(first.open(&sealed).as_deref(), Some(&b"text"[..]));
    assert_eq!(second.open(&sealed), None);
    assert!(Key::make(&mut |_| false).is_none(), "no chance, no key");
    assert!(
        Key::make(&mut |bytes| {
            bytes.fill(0xff);
            true
        })
        .is_none_or(|key| key.open(&key.seal(b"a", &[1; 32])).is_some())
    );
}

#[test]
fn an_existing_app_gives_network_and_identity() {
    type Writes<'a> = &'a [(&'a str, &'a str)];
    let table: [(&str, Writes<'_>, Vec<Visit>); 8] = [
        ("nothing was written", &[], vec![]),
        ("a network", &[("ssid", "home"), ("psk", "correct horse")], vec![home()]),
        ("in another order", &[("psk", "correct horse"), ("ssid", "home")], vec![home()]),
        ("written twice: the last", &[("ssid", "work"), ("psk", "correct horse"), ("ssid", "home")], vec![home()]),
        (
            "everything, as the reference client does it",
            &[
                ("id", "part-1"),
                ("secret", "s3cret"),
                ("api_key", ""),
                ("app_address", "https://fleet.example.com:443"),
                ("ssid", "home"),
                ("psk", "correct horse"),
            ],
            vec![identity(Proof::Secret(Secret::from("s3cret"))), home()],
        ),
        (
            "an API key",
            &[
                ("id", "part-1"),
                ("api_key", r#"{"id": "key-1", "key": "k3y"}"#),
                ("app_address", "https://fleet.example.com:443"),
            ],
            vec![identity(Proof::ApiKey { id: "key-1".into(), key: Secret::from("k3y") })],
        ),
        ("an address alone", &[("app_address", "https://x"), ("ssid", "home"), ("psk", "correct horse")], vec![home()]),
        ("forgotten again", &[("ssid", "home"), ("ssid", ""), ("id", "part-1"), ("id", "")], vec![]),
    ];
    for (case, writes, mut expected) in table {
        let mut session = session(|_, _| {});
        for (at, (name, value)) in writes.iter().enumerate() {
            assert_eq!(write(&mut session, name, value, at as u8), Ok(vec![Visit::Touched]), "{case}: {name}");
        }
        if !expected.contains(&home()) {
            expected.push(Visit::Leave);
        }
        assert_eq!(write(&mut session, "exit_provisioning", "1", 99), Ok(expected), "{case}");
        assert_eq!(write(&mut session, "exit_provisioning", "1", 100), Ok(vec![Visit::Leave]), "{case}: taken once");
    }
}

#[test]
fn what_is_written_wrongly_changes_nothing() {
    let wrong_password = key().seal(b"platform-hotspot:evil", &[1; 32]);
    let no_value = key().seal(PASSWORD.as_bytes(), &[1; 32]);
    let prefix = key().seal(b"platform:hotspo", &[1; 32]);
    let longer = key().seal(format!("{PASSWORD}x:evil").as_bytes(), &[1; 32]);
    let mut flipped = key().seal(format!("{PASSWORD}:evil").as_bytes(), &[1; 32]);
    flipped[100] ^= 4;
    let clear = format!("{PASSWORD}:evil").into_bytes();
    let table: [(&str, &[u8]); 10] = [
        ("nothing", b""),
        ("clear text", b"evil"),
        ("clear text with the password", &clear),
        ("256 zeros", &[0; 256]),
        ("512 bytes", &[0x41; 512]),
        ("another password", &wrong_password),
        ("password without a value", &no_value),
        ("part of the password", &prefix),
        ("more than the password", &longer),
        ("one bit", &flipped),
    ];
    for name in TABLE.iter().filter(|row| row.group == Group::Classic && matches!(row.role, Role::Takes(_))) {
        for (case, bytes) in table {
            let mut session = session(|_, _| {});
            write(&mut session, "ssid", "home", 1).unwrap();
            write(&mut session, "psk", "correct horse", 2).unwrap();
            let mut before = Read::all(&mut session).0;
            assert_eq!(raw(&mut session, name.name, bytes), Err(WriteRefused::Invalid), "{case} to {}", name.name);
            let sentence = b"a value could not be opened: is the password of this device's hotspot right?";
            before.iter_mut().find(|(found, _)| *found == uuid("errors")).unwrap().1 = sentence.to_vec();
            assert_eq!(Read::all(&mut session).0, before, "{case}: the same sentence, and nothing else");
            assert!(!session.pairing(NOW), "{case}");
            assert_eq!(write(&mut session, "exit_provisioning", "1", 3), Ok(vec![home()]), "{case}");
        }
    }
    let mut session = session(|_, _| {});
    assert_eq!(raw(&mut session, "ssid", &[0; VALUE_BYTES_MAX + 1]), Err(WriteRefused::TooLong));
    assert_eq!(raw(&mut session, "status", b"1"), Err(WriteRefused::Invalid), "not to be written");
    assert_eq!(session.write(NOW, "phone", CLASSIC, b"1"), Err(WriteRefused::Invalid), "not a characteristic");
}

#[test]
fn a_sealed_value_is_good_once() {
    let mut session = session(|_, _| {});
    let ssid = key().seal(format!("{PASSWORD}:home").as_bytes(), &[1; 32]);
    let other = key().seal(format!("{PASSWORD}:work").as_bytes(), &[2; 32]);
    let exit = key().seal(format!("{PASSWORD}:1").as_bytes(), &[3; 32]);
    assert_eq!(raw(&mut session, "ssid", &ssid), Ok(vec![Visit::Touched]));
    assert_eq!(raw(&mut session, "ssid", &ssid), Ok(vec![]), "said again by who did not hear the answer");
    assert_eq!(raw(&mut session, "psk", &ssid), Err(WriteRefused::Invalid), "moved to another characteristic");
    assert_eq!(raw(&mut session, "ssid", &other), Ok(vec![Visit::Touched]));
    assert_eq!(raw(&mut session, "ssid", &ssid), Err(WriteRefused::Invalid), "replayed over a newer one");
    assert_eq!(write(&mut session, "psk", "correct horse", 5), Ok(vec![Visit::Touched]));
    assert_eq!(raw(&mut session, "exit_provisioning", &exit).map(|visits| visits.len()), Ok(1));
    assert_eq!(raw(&mut session, "exit_provisioning", &exit), Ok(vec![]), "the same exit, not another");
    assert_eq!(raw(&mut session, "ssid", &other), Ok(vec![]));
    assert_eq!(write(&mut session, "exit_provisioning", "1", 9), Ok(vec![Visit::Leave]), "nothing came back by it");
}

#[test]
fn guesses_are_few() {
    let mut session = session(|_, _| {});
    let mut looked_at = 0;
    for guess in 0..200u8 {
        let sealed = key().seal(&[b"guess:", &[guess][..]].concat(), &[guess; 32]);
        match raw(&mut session, "ssid", &sealed) {
            Err(WriteRefused::Invalid) => looked_at += 1,
            Err(WriteRefused::Busy) => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(looked_at, 16);
    let later = NOW + Duration::from_secs(2);
    let sealed = key().seal(format!("{PASSWORD}:home").as_bytes(), &[1; 32]);
    assert!(session.write(later, "phone", uuid("ssid"), &sealed).is_ok());
}

#[test]
fn a_device_with_an_identity_keeps_it() {
    for (identity_door, allowed) in
        [(IdentityDoor::Wanted, true), (IdentityDoor::Open, true), (IdentityDoor::Shut, false)]
    {
        let mut session = session(|_, welcome| {
            welcome.has_identity = identity_door != IdentityDoor::Wanted;
            welcome.identity = identity_door;
        });
        let expected = if allowed { Ok(vec![Visit::Touched]) } else { Err(WriteRefused::NotAuthorized) };
        for (at, (name, value)) in
            [("id", "part-1"), ("secret", "s3cret"), ("api_key", r#"{"id":"a","key":"b"}"#)].into_iter().enumerate()
        {
            assert_eq!(write(&mut session, name, value, at as u8), expected, "{name} {identity_door:?}");
        }
        write(&mut session, "app_address", "https://evil.example.com", 10).unwrap();
        write(&mut session, "ssid", "home", 11).unwrap();
        write(&mut session, "psk", "correct horse", 12).unwrap();
        let visits = write(&mut session, "exit_provisioning", "1", 13).unwrap();
        assert_eq!(visits.iter().any(|visit| matches!(visit, Visit::Identity(_))), allowed, "{identity_door:?}");
        assert!(visits.contains(&home()), "{identity_door:?}");

        let (half, mut phone) = Phone::begin(PASSWORD, Read::all(&mut session).get("hello"));
        raw(&mut session, "begin", &half).unwrap();
        let message = phone.message(&[(4, b"https://x"), (5, b"part-1"), (6, b"s3cret")]);
        assert_eq!(raw(&mut session, "message", &message).is_ok(), allowed);
        let answer = phone.hear(Read::all(&mut session).get("answer")).unwrap();
        assert_eq!((answer.0, answer.1), (if allowed { 0 } else { 2 }, 1));
    }
}

#[test]
fn a_wrong_value_is_told_in_words() {
    let table = [
        ("psk", "short", "a WiFi password has 8 to 63 characters"),
        ("psk", "pässwort123", "a WiFi password has letters, digits and signs of the English keyboard only"),
        ("ssid", &"x".repeat(33), "a network's name has at most 32 bytes"),
        ("app_address", "ftp://x", "that is no server address as the fleet server gives it"),
        ("api_key", "k3y", "that is no API key as the fleet server gives it"),
        ("api_key", r#"{"id":"a"}"#, "that is no API key as the fleet server gives it"),
        ("id", "pärt", "that is no part id as the fleet server gives it"),
    ];
    let mut session = session(|_, welcome| welcome.complaints = [Rc::from("fragment_id is missing")].into());
    for (at, (name, value, sentence)) in table.into_iter().enumerate() {
        assert_eq!(write(&mut session, name, value, at as u8), Err(WriteRefused::Invalid), "{value}");
        let errors = Read::all(&mut session).get("errors").to_vec();
        assert_eq!(String::from_utf8(errors).unwrap(), format!("{sentence}\0fragment_id is missing"));
    }
    write(&mut session, "id", "part-1", 50).unwrap();
    assert_eq!(write(&mut session, "exit_provisioning", "1", 51), Err(WriteRefused::Invalid));
    assert!(Read::all(&mut session).get("errors").starts_with(b"an identity needs the server's address"));
    write(&mut session, "id", "", 52).unwrap();
    assert_eq!(Read::all(&mut session).get("errors"), b"fragment_id is missing");
}

#[test]
fn what_phones_read() {
    let mut session = session(|_, welcome| {
        welcome.has_identity = true;
        welcome.identity = IdentityDoor::Shut;
        welcome.attempt = Some(Attempt {
            number: 1,
            ssid: Ssid::new(b"home").unwrap(),
            result: Outcome::Failed("wrong password for home".into()),
        });
    });
    let read = Read::all(&mut session);
    assert_eq!(read.get("pub_key"), unhex(PUBLIC_DER));
    assert_eq!(read.get("status"), [1]);
    assert_eq!(
        read.get("networks"),
        "\u{5a}home\0\u{28}café\0"
            .bytes()
            .enumerate()
            .map(|(at, byte)| byte | u8::from(at == 0) << 7)
            .collect::<Vec<u8>>()
    );
    assert_eq!(read.get("errors"), b"wrong password for home");
    assert_eq!(read.get("manufacturer"), b"acme");
    assert_eq!(read.get("model"), b"model 1");
    assert_eq!(read.get("fragment_id"), b"fragment-1");
    assert_eq!(read.get("agent_version"), b"1.2.3");
    assert_eq!(session.changes(), super::session::Changes::default(), "told once");

    let many =
        |length: usize| (0..48).map(|at| seen(format!("{at:0length$}").as_bytes(), 50, Security::Wpa2)).collect();
    for length in [1, 2, 8, 31, 32] {
        let networks = Welcome { networks: many(length), online: true, model: "ä".repeat(300).into(), ..welcome() };
        session.welcome(NOW, &networks);
        let changed = session.changes();
        for (uuid, value) in &changed.values {
            assert!(value.len() <= VALUE_BYTES_MAX, "{uuid}");
        }
        let list = Read(changed.values);
        assert_eq!(list.get("networks").last(), Some(&0), "whole entries");
    }
    assert_eq!(Read::all(&mut session).get("model").len(), 512);
    let strange =
        Welcome { networks: [seen(b"a\0b", 9, Security::Open), seen(&[0xff], 200, Security::Wep)].into(), ..welcome() };
    session.welcome(NOW, &strange);
    assert_eq!(Read::all(&mut session).get("networks"), [0x80 | 100, 0xff, 0]);
}

#[test]
fn pairing_is_unlocked_for_two_minutes() {
    let mut session = session(|_, _| {});
    assert!(!session.pairing(NOW));
    write(&mut session, "unlock_pairing", "true", 1).unwrap();
    assert!(session.pairing(NOW + Duration::from_secs(119)));
    assert!(!session.pairing(NOW + Duration::from_secs(120)));
    write(&mut session, "unlock_pairing", "1", 2).unwrap();
    write(&mut session, "unlock_pairing", "0", 3).unwrap();
    assert!(!session.pairing(NOW));
    assert_eq!(write(&mut session, "unlock_pairing", "maybe", 4), Err(WriteRefused::Invalid));
    let mut open = self::session(|settings, _| settings.trust_all = true);
    assert!(open.pairing(NOW));
}

#[test]
fn another_implementation_of_the_conversation() {
    let (stretched, up, down) = sealed_by(
        "correct horse",
        unhex(SALT).try_into().unwrap(),
        &unhex(SHARED),
        &unhex(DEVICE),
        &unhex(PHONE),
        &unhex(TEXT),
    );
    assert_eq!(stretched, unhex(STRETCHED));
    assert_eq!(up, unhex(TO_DEVICE));
    assert_eq!(down, unhex(TO_PHONE));
}

#[test]
fn a_conversation() {
    let mut session = session(|_, _| {});
    let hello = Read::all(&mut session).get("hello").to_vec();
    assert_eq!((hello.len(), hello[0]), (49, 1));
    let (half, mut phone) = Phone::begin(PASSWORD, &hello);
    assert_eq!(half.len(), 49);
    assert_eq!(raw(&mut session, "begin", &half), Ok(vec![Visit::Touched]));
    assert_ne!(Read::all(&mut session).get("hello"), hello, "each half is used once");
    assert_eq!(phone.hear(Read::all(&mut session).get("answer")), Some((0, 0, String::new())));
    assert_eq!(raw(&mut session, "begin", &half), Err(WriteRefused::Invalid), "replayed");

    let first = phone.message(&[(1, b"home"), (2, b"correct horse")]);
    let second = phone.message(&[(10, b"")]);
    let third = phone.message(&[
        (1, b"home"),
        (2, b"correct horse"),
        (3, b"\x01"),
        (4, b"https://fleet.example.com:443"),
        (5, b"part-1"),
        (7, b"key-1"),
        (8, b"k3y"),
        (9, b""),
        (11, b"1"),
    ]);
    assert_eq!(raw(&mut session, "message", &first), Ok(vec![home()]));
    assert_eq!(raw(&mut session, "message", &first), Err(WriteRefused::Invalid), "replayed");
    assert_eq!(raw(&mut session, "message", &second), Ok(vec![Visit::Rescan]));
    assert_eq!(session.write(NOW, "other", uuid("message"), &third), Err(WriteRefused::Invalid), "another phone");
    let hidden = Visit::Network(crate::provisioning::visit::network(b"home", "correct horse", true).unwrap());
    let expected = vec![identity(Proof::ApiKey { id: "key-1".into(), key: Secret::from("k3y") }), hidden];
    assert_eq!(raw(&mut session, "message", &third), Ok(expected));
    assert!(session.pairing(NOW));
    assert_eq!(phone.hear(Read::all(&mut session).get("answer")), Some((0, 3, String::new())));

    let wrong = phone.message(&[(1, b"home"), (2, b"short")]);
    assert_eq!(raw(&mut session, "message", &wrong), Err(WriteRefused::Invalid));
    let heard = phone.hear(Read::all(&mut session).get("answer"));
    assert_eq!(heard, Some((1, 4, "a WiFi password has 8 to 63 characters".into())));
    session.left("phone");
    let late = phone.message(&[(10, b"")]);
    assert_eq!(raw(&mut session, "message", &late), Err(WriteRefused::Invalid), "it has gone");
}

#[test]
fn nobody_holds_a_conversation_without_the_password() {
    let mut session = session(|_, _| {});
    let hello = Read::all(&mut session).get("hello").to_vec();
    let (half, _) = Phone::begin("platform:hotspoT", &hello);
    let answer = Read::all(&mut session).get("answer").to_vec();
    assert_eq!(raw(&mut session, "begin", &half), Err(WriteRefused::Invalid));
    assert_eq!(Read::all(&mut session).get("answer"), answer, "nothing to take home and guess with");
    // A public key of small order makes a secret that everybody knows.
    for point in [[0; 32], {
        let mut one = [0; 32];
        one[0] = 1;
        one
    }] {
        let half = [&[1][..], &point, &[0; 16]].concat();
        assert_eq!(raw(&mut session, "begin", &half), Err(WriteRefused::Invalid));
    }
    for strange in [vec![], vec![1], vec![1; 49], vec![2; 49], vec![1; 512]] {
        assert!(raw(&mut session, "begin", &strange).is_err());
        assert!(raw(&mut session, "message", &strange).is_err());
    }
}

#[test]
fn improv_gives_a_network() {
    let mut session = session(|_, _| {});
    let read = Read::all(&mut session);
    assert_eq!((read.get("state"), read.get("error"), read.get("capabilities")), (&[2][..], &[0][..], &[6][..]));
    raw(&mut session, "command", &unhex(IMPROV_INFO)).unwrap();
    assert_eq!(Read::all(&mut session).get("result"), unhex(IMPROV_INFO_RESULT));
    assert_eq!(raw(&mut session, "command", &unhex(IMPROV_SCAN)), Ok(vec![Visit::Rescan]));
    assert_eq!(Read::all(&mut session).get("result"), unhex(IMPROV_SCAN_RESULT));
    for (command, told) in
        [(IMPROV_SCAN, "result"), (IMPROV_SCAN, "result"), (IMPROV_HOSTNAME, "error"), (IMPROV_HOSTNAME, "error")]
    {
        session.changes();
        raw(&mut session, "command", &unhex(command)).unwrap();
        let changed = session.changes().values;
        assert!(changed.iter().any(|(changed, _)| *changed == uuid(told)), "the second is told like the first");
    }
    assert_eq!(raw(&mut session, "command", &unhex(IMPROV_IDENTIFY)), Ok(vec![]));
    let open = Visit::Network(crate::provisioning::visit::network("café".as_bytes(), "", false).unwrap());
    assert_eq!(raw(&mut self::session(|_, _| {}), "command", &unhex(IMPROV_OPEN)), Ok(vec![open]));
    raw(&mut session, "command", &unhex(IMPROV_HOSTNAME)).unwrap();
    assert_eq!(Read::all(&mut session).get("error"), [2]);

    // In pieces of twenty bytes, as phones with the smallest packets send it.
    let packet = unhex(IMPROV_WIFI);
    let (head, tail) = packet.split_at(20);
    assert_eq!(raw(&mut session, "command", head), Ok(vec![]));
    let visits = session.write(NOW, "phone", uuid("command"), tail).unwrap();
    assert_eq!((visits.door, &visits.visits[..]), (Door::Improv, &[home()][..]));
    let read = Read::all(&mut session);
    assert_eq!((read.get("state"), read.get("error")), (&[3][..], &[0][..]));
    assert_eq!(session.offer().advertisement.found[1].data.as_ref().unwrap().1, [3, 6, 0, 0, 0, 0]);
    assert_eq!(raw(&mut session, "command", &unhex(IMPROV_WIFI)), Err(WriteRefused::Busy));

    let attempt = |number, result| Welcome {
        attempt: Some(Attempt { number, ssid: Ssid::new(b"home").unwrap(), result }),
        ..welcome()
    };
    session.welcome(NOW, &attempt(1, Outcome::Trying));
    session.welcome(NOW, &attempt(1, Outcome::Failed("wrong password for home".into())));
    let read = Read::all(&mut session);
    assert_eq!((read.get("state"), read.get("error")), (&[2][..], &[3][..]));
    raw(&mut session, "command", &unhex(IMPROV_WIFI)).unwrap();
    session.welcome(NOW, &attempt(1, Outcome::Failed("wrong password for home".into())));
    assert_eq!(Read::all(&mut session).get("state"), [3], "that was the attempt before");
    session.welcome(NOW, &attempt(2, Outcome::Joined { address: None, online: true }));
    let read = Read::all(&mut session);
    assert_eq!((read.get("state"), read.get("error")), (&[4][..], &[0][..]));
    assert_eq!(read.get("result"), unhex(IMPROV_WIFI_RESULT));
}

#[test]
fn improv_answers_who_asks_before_anything_was_heard_once_something_is() {
    const NOTHING: [u8; 3] = [4, 0, 4];
    let listening = || {
        let mut session = session(|_, _| {});
        session.welcome(NOW, &Welcome { networks: Rc::new([]), ..welcome() });
        assert_eq!(raw(&mut session, "command", &unhex(IMPROV_SCAN)), Ok(vec![Visit::Rescan]));
        assert_eq!(Read::all(&mut session).get("result"), [], "the radio listens");
        session
    };
    let told = |session: &mut Session| session.changes().values.iter().any(|(changed, _)| *changed == uuid("result"));
    let until = NOW + Duration::from_secs(8);
    let mut session = listening();
    assert_eq!(session.deadline(), Some(until));
    session.welcome(NOW, &welcome());
    assert_eq!(Read::all(&mut session).get("result"), unhex(IMPROV_SCAN_RESULT));
    session.tick(until);
    assert!(!told(&mut session), "once");
    // Nothing is there to be heard.
    let mut session = listening();
    session.tick(until);
    assert_eq!(Read::all(&mut session).get("result"), NOTHING);
    session.welcome(until, &welcome());
    assert!(!told(&mut session) && session.deadline().is_none(), "it has its answer");
}

#[test]
fn improv_without_an_address_names_none() {
    let mut session = session(|settings, _| settings.url = "".into());
    raw(&mut session, "command", &unhex(IMPROV_WIFI)).unwrap();
    let joined = Outcome::Joined { address: None, online: true };
    let attempt = Some(Attempt { number: 1, ssid: Ssid::new(b"home").unwrap(), result: joined });
    session.welcome(NOW, &Welcome { attempt, ..welcome() });
    // Command, no data, sum: `py-improv-ble-client` reads it as no address, and an empty string as an address to open.
    assert_eq!(Read::all(&mut session).get("result"), [1, 0, 1]);
    assert_eq!(Read::all(&mut session).get("state"), [4]);
}

#[test]
fn improv_hears_that_its_network_is_not_tried() {
    let mut session = session(|_, _| {});
    raw(&mut session, "command", &unhex(IMPROV_WIFI)).unwrap();
    session.refused(Door::Bluetooth);
    assert_eq!(Read::all(&mut session).get("state"), [3], "that was another door's");
    session.refused(Door::Improv);
    let read = Read::all(&mut session);
    assert_eq!((read.get("state"), read.get("error")), (&[2][..], &[3][..]));
    assert_eq!(raw(&mut session, "command", &unhex(IMPROV_WIFI)), Ok(vec![home()]), "and may try again");
}

#[test]
fn improv_packets_that_are_none() {
    let mut long = vec![1, 255];
    long.resize(257, 0x41);
    let table: [(&str, Vec<u8>, u8); 9] = [
        ("nothing", vec![], 1),
        ("a wrong sum", vec![2, 0, 9], 1),
        ("too long", vec![2, 0, 2, 2], 1),
        ("a scan with data", vec![4, 1, 7, 12], 1),
        ("a name longer than the packet", vec![1, 2, 9, 9, 21], 1),
        ("no password", vec![1, 1, 0, 2], 1),
        ("something after the password", vec![1, 3, 0, 0, 0, 4], 1),
        ("no name", vec![1, 2, 0, 0, 3], 3),
        ("a name of 254 bytes", [long, vec![0]].concat(), 1),
    ];
    for (case, packet, error) in table {
        let mut session = session(|_, _| {});
        assert_eq!(raw(&mut session, "command", &packet), Ok(vec![]), "{case}");
        assert_eq!(Read::all(&mut session).get("error"), [error], "{case}");
        assert_eq!(Read::all(&mut session).get("state"), [2], "{case}");
        assert_eq!(raw(&mut session, "command", &unhex(IMPROV_WIFI)), Ok(vec![home()]), "{case}: the next one is good");
    }
}

#[test]
fn improv_waits_for_a_person() {
    let mut session = session(|settings, _| settings.improv_needs_presence = true);
    let state = |session: &mut Session| Read::all(session).get("state")[0];
    assert_eq!(state(&mut session), 1);
    assert_eq!(raw(&mut session, "command", &unhex(IMPROV_WIFI)), Ok(vec![]), "the standard tells errors by a value");
    assert_eq!(Read::all(&mut session).get("error"), [4]);
    assert_eq!(raw(&mut session, "command", &unhex(IMPROV_SCAN)), Ok(vec![]), "asking is free, and is no visit");
    session.present(NOW);
    assert_eq!(state(&mut session), 2);
    assert_eq!(session.deadline(), Some(NOW + Duration::from_secs(60)));
    session.tick(NOW + Duration::from_secs(59));
    assert_eq!(state(&mut session), 2);
    session.tick(NOW + Duration::from_secs(60));
    assert_eq!((state(&mut session), session.deadline()), (1, None));
    session.present(NOW);
    assert_eq!(raw(&mut session, "command", &unhex(IMPROV_WIFI)), Ok(vec![home()]));
    let at = NOW + Duration::from_secs(30);
    let failed = Outcome::Failed("wrong password for home".into());
    let attempt = Some(Attempt { number: 1, ssid: Ssid::new(b"home").unwrap(), result: failed });
    session.welcome(at, &Welcome { attempt, ..welcome() });
    assert_eq!(session.deadline(), Some(at + Duration::from_secs(60)), "a minute for the next try");
}

#[test]
fn improv_only_where_it_is_wanted() {
    let mut session = session(|settings, _| settings.improv = false);
    assert_eq!(session.offer().services.len(), 2);
    assert_eq!(session.offer().advertisement.found.len(), 1);
    assert!(Read::all(&mut session).0.iter().all(|(uuid, _)| uuid.0 & !0xf != IMPROV.0));
    assert_eq!(raw(&mut session, "command", &unhex(IMPROV_WIFI)), Err(WriteRefused::Invalid));
}

/// Values as nobody writes them: nothing panics, nothing but Improv without a password leads anywhere, nothing grows.
#[test]
fn random_writes() {
    let mut random = chance(11);
    let mut byte = move || {
        let mut one = [0];
        random(&mut one);
        usize::from(one[0])
    };
    let good = [unhex(SEALED[0].1), unhex(IMPROV_WIFI), unhex(IMPROV_SCAN)];
    let mut session = session(|_, _| {});
    let mut now = NOW;
    for round in 0..20_000 {
        let mut bytes: Vec<u8> = match byte() % 4 {
            0 => good[byte() % 3].clone(),
            1 => vec![byte() as u8; byte() * 2 + byte() % 3],
            2 => (0..byte()).map(|_| byte() as u8).collect(),
            _ => Read::all(&mut session).get("hello").to_vec(),
        };
        for _ in 0..byte() % 4 {
            let length = bytes.len().max(1);
            if let Some(changed) = bytes.get_mut(byte() % length) {
                *changed ^= 1 << (byte() % 8);
            }
        }
        if byte() % 8 == 0 {
            bytes.truncate(byte());
        }
        now = now + Duration::from_millis(byte() as u64 * 8);
        let row = &TABLE[byte() % TABLE.len()];
        let phone = ["a", "b", "c", "d", "e", "f"][byte() % 6];
        if let Ok(visits) = session.write(now, phone, row.uuid, &bytes) {
            assert_eq!(visits.door, Door::Improv, "{round}: {} took {bytes:02x?}", row.name);
        }
        if byte() % 16 == 0 {
            session.left(phone);
        }
        session.tick(now);
        session.changes();
    }
}
