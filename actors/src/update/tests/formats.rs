//! What is stored reads back, damage is seen, and only genuine documents in the right order are followed.

use api::releases::{Channel, ChannelEntry, Expires, RoleKeys, Root, sign, sign::SigningKey};
use board::files::Digest;
use semver::Version;

use super::*;
use crate::update::{
    note::Note,
    record::{BAD_MAX, RECORD_BYTES_MAX},
    slots::Pointer,
    target::Packed,
    trust::{Anchor, Seen, Today, TrustError, fresh},
    verify::{Refusal, check, check_note, executable_kind},
};

#[test]
fn a_record_reads_back_in_every_state() {
    let pin = Target {
        version: "file:///opt/\"my\" server".into(),
        source: Source::File("/opt/\"my\" server".into()),
        promise: None,
    };
    let pinned = Installed { version: pin.version.clone(), pin: pin.pin(), ..installed("pin") };
    let states = [
        State::Idle(Outcome::None),
        State::Idle(Outcome::Committed),
        State::Idle(Outcome::RolledBack),
        State::Downloading(target("1.1.0")),
        State::Downloading(pin.clone()),
        State::Verifying(target("1.2.0-dev+5")),
        State::Downloading(packed("1.3.0")),
        State::Placing(pin, pinned.clone()),
        State::Staged,
        State::Waiting,
        State::Switching,
        State::Probation { restarts: 7 },
    ];
    for state in states {
        for slots in [
            Slots::default(),
            slots(Some(Slot::B), None, Some("1.0.0")),
            Slots { active: Some(Slot::A), a: Some(pinned.clone()), b: Some(installed("1.0.0")) },
        ] {
            let mut record = Record { wanted: "grüße\n".into(), slots, state: state.clone(), ..Record::default() };
            record.remember_bad(&installed("0.9.0"));
            let bytes = record.encode();
            assert_eq!(Record::decode(&bytes), Ok(record), "{}", String::from_utf8_lossy(&bytes));
        }
    }
}

#[test]
fn the_record_is_written_like_this() {
    let record = record(State::Downloading(target("1.1.0")), slots(Some(Slot::A), Some("1.0.0"), None));
    let text = String::from_utf8(record.encode()).unwrap();
    let (header, body) = text.split_once('\n').unwrap();
    assert!(header.starts_with("update-record 1 ") && header.len() == 16 + 64, "{header}");
    let (old, new) = ("ed".repeat(32), "ee".repeat(32));
    assert_eq!(
        body,
        format!(
            "{{\"active\":\"a\",\"bad\":[],\"slot-a\":{{\"length\":100,\"sha256\":\"{old}\",\
             \"version\":\"1.0.0\"}},\"state\":\"downloading\",\"target\":{{\"length\":100,\"sha256\":\"{new}\",\
             \"url\":\"http://fleet/1.1.0\",\"version\":\"1.1.0\"}},\"wanted\":\"stable\"}}\n"
        )
    );
}

#[test]
fn a_damaged_record_is_seen_as_such() {
    let bytes = record(State::Probation { restarts: 1 }, slots(Some(Slot::A), Some("1.0.0"), Some("1.1.0"))).encode();
    for cut in 0..bytes.len() {
        assert!(Record::decode(&bytes[..cut]).is_err(), "cut after {cut} bytes");
    }
    for at in 0..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1;
        assert!(Record::decode(&flipped).is_err(), "bit flipped in byte {at}");
    }
    let later = [b"update-record 2 ", &bytes[16..]].concat();
    assert!(Record::decode(&later).unwrap_err().to_string().contains("another format"));
    // The largest that can be: pins at their longest, every character escaped.
    let long = |mark: &str| format!("http://{mark}/{}", "\"".repeat(2048 - 9));
    let pin = |mark: &str| Installed { version: long(mark), pin: Some([7; 32]), ..installed(mark) };
    let target = Target { version: long("t"), source: Source::Web(long("t")), promise: None };
    let slots = Slots { active: Some(Slot::A), a: Some(pin("a")), b: Some(pin("b")) };
    let mut full = Record { wanted: long("t"), slots, state: State::Downloading(target), ..Record::default() };
    for mark in ["1", "2", "3", "4"] {
        full.remember_bad(&pin(mark));
    }
    let bytes = full.encode();
    assert!(bytes.len() < RECORD_BYTES_MAX && Record::decode(&bytes) == Ok(full));
}

#[test]
fn few_versions_are_remembered_as_bad() {
    let mut record = Record::default();
    for version in ["1", "2", "3", "2", "4", "5"] {
        record.remember_bad(&installed(version));
    }
    let versions: Vec<_> = record.bad.iter().map(|bad| &*bad.version).collect();
    assert_eq!((versions.len(), versions), (BAD_MAX, vec!["3", "2", "4", "5"]));
    assert!(record.is_bad(&target("5")) && !record.is_bad(&target("1")));
}

#[test]
fn pointers() {
    for slot in Slot::ALL {
        for pointer in [Pointer::kept(slot), Pointer::trial(slot)] {
            assert_eq!(Pointer::read(pointer.text().as_bytes()), Some(pointer));
            assert!(pointer.text().len() <= Pointer::BYTES_MAX);
        }
    }
    assert_eq!(Pointer::kept(Slot::A).text(), "slot-pointer 1 a\n");
    assert_eq!(Pointer::trial(Slot::B).text(), "slot-pointer 1 b trial\n");
    let garbage = ["", "a", "slot-pointer 1 a", "slot-pointer 1 c\n", "slot-pointer 2 a\n", "slot-pointer 1 a\nb\n"];
    let trials = [
        "slot-pointer 1 trial\n",
        "slot-pointer 1 a trial trial\n",
        "slot-pointer 1 b tri",
        "slot-pointer 1 b  trial\n",
    ];
    for garbage in garbage.into_iter().chain(trials) {
        assert_eq!(Pointer::read(garbage.as_bytes()), None, "{garbage:?}");
    }
}

#[test]
fn books_follow_what_is_there() {
    let table = [
        ("as written", Some(Slot::A), [Some(100), Some(100)], slots(Some(Slot::A), Some("1"), Some("2"))),
        ("the spare is gone", Some(Slot::A), [Some(100), None], slots(Some(Slot::A), Some("1"), None)),
        ("the active one is gone", Some(Slot::A), [None, Some(100)], slots(Some(Slot::B), None, Some("2"))),
        ("the active one is cut", Some(Slot::B), [Some(100), Some(99)], slots(Some(Slot::A), Some("1"), None)),
        ("no pointer", None, [Some(100), None], slots(Some(Slot::A), Some("1"), None)),
        ("nothing is there", Some(Slot::B), [None, None], slots(None, None, None)),
    ];
    for (case, active, lengths, expected) in table {
        let mut books = slots(active, Some("1"), Some("2"));
        books.reconcile(lengths);
        let active = expected.active();
        assert_eq!(books.active(), active, "{case}");
        assert_eq!((&books.a, &books.b), (&expected.a, &expected.b), "{case}");
    }
}

fn packed(version: &str) -> Target {
    let packed = Some(Packed { sha256: [9; 32], length: 33 });
    let promise = target(version).promise.map(|promise| Promise { packed, ..promise });
    Target { promise, ..target(version) }
}

/// The beginning of an ELF file.
fn elf(class: u8, order: u8, kind: u16, machine: u16) -> Vec<u8> {
    let number = |number: u16| if order == 2 { number.to_be_bytes() } else { number.to_le_bytes() };
    let mut head = vec![0x7F, b'E', b'L', b'F', class, order, 1];
    head.resize(16, 0);
    head.extend(number(kind));
    head.extend(number(machine));
    head.resize(64, 0);
    head
}

fn pe(machine: u16) -> Vec<u8> {
    let mut head = b"MZ".to_vec();
    head.resize(0x3C, 0);
    head.extend(0x80_u32.to_le_bytes());
    head.resize(0x80, 0);
    head.extend(b"PE\0\0");
    head.extend(machine.to_le_bytes());
    head
}

#[test]
fn kinds_of_executables() {
    type Row = (&'static str, Vec<u8>, &'static str, Result<(), &'static str>);
    let table: [Row; 20] = [
        ("amd64", elf(2, 1, 2, 62), "linux/amd64", Ok(())),
        ("position independent", elf(2, 1, 3, 62), "linux/amd64", Ok(())),
        ("arm64", elf(2, 1, 3, 183), "linux/arm64", Ok(())),
        ("arm with variant", elf(1, 1, 2, 40), "linux/arm/v7", Ok(())),
        ("big endian", elf(1, 2, 2, 8), "linux/mips", Ok(())),
        ("windows", pe(0x8664), "windows/amd64", Ok(())),
        ("windows on arm", pe(0xAA64), "windows/arm64", Ok(())),
        ("another processor", elf(2, 1, 2, 183), "linux/amd64", Err("for linux/arm64 and this machine is linux/amd64")),
        ("32 bits of the same family", elf(1, 1, 2, 3), "linux/amd64", Err("for linux/386")),
        ("wrong byte order", elf(1, 1, 2, 8), "linux/mips", Err("for linux/mipsle")),
        ("an unknown processor", elf(2, 1, 2, 999), "linux/amd64", Err("linux (machine 999)")),
        ("another windows", pe(0x014C), "windows/amd64", Err("for windows/386")),
        ("windows program on linux", pe(0x8664), "linux/amd64", Err("but a Windows program")),
        ("linux program on windows", elf(2, 1, 2, 62), "windows/amd64", Err("no PE executable but an ELF file")),
        ("an object file", elf(2, 1, 1, 62), "linux/amd64", Err("no ELF executable")),
        ("a core dump", elf(2, 1, 4, 62), "linux/amd64", Err("no ELF executable")),
        ("a login page", b"\n <!DOCTYPE html>".to_vec(), "linux/amd64", Err("but a web page: check that the address")),
        ("a script", b"#!/bin/sh\n".to_vec(), "linux/amd64", Err("but a script")),
        ("nothing", Vec::new(), "linux/amd64", Err("but an empty file")),
        ("a platform of tomorrow", elf(2, 1, 2, 62), "linux/amd128", Err("does not know executables of linux/amd128")),
    ];
    for (case, head, platform, expected) in table {
        match (executable_kind(&head, platform), expected) {
            (Ok(()), Ok(())) => {}
            (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{case}: {error}"),
            (got, _) => panic!("{case}: {got:?}"),
        }
    }
    for cut in 0..20 {
        assert!(executable_kind(&elf(2, 1, 2, 62)[..cut], "linux/amd64").is_err(), "cut after {cut}");
        assert!(executable_kind(&pe(0x8664)[..cut * 6], "windows/amd64").is_err(), "cut after {}", cut * 6);
    }
    let mut far = pe(0x8664);
    far[0x3C..0x40].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(executable_kind(&far, "windows/amd64").is_err(), "a header far behind the end");
}

#[test]
fn bytes_are_what_was_signed() {
    let (target, head) = (target("1.0.0"), elf(2, 1, 2, 62));
    let good = Digest { sha256: installed("1.0.0").sha256, len: 100 };
    let judge = |digest: Digest, head: &[u8]| check(&target, &digest, head, "linux/amd64");
    assert_eq!(judge(good, &head), Ok(()));
    assert_eq!(judge(Digest { len: 99, ..good }, &head), Err(Refusal::Length { found: 99, wanted: 100 }));
    assert_eq!(judge(Digest { sha256: [0; 32], ..good }, &head), Err(Refusal::Digest));
    assert!(matches!(judge(good, b"#!/bin/sh"), Err(Refusal::NotExecutable { .. })), "signed by mistake");
    let pin = Target { promise: None, ..target };
    assert_eq!(check(&pin, &Digest { sha256: [0; 32], len: 5 }, &head, "linux/amd64"), Ok(()), "the owner's word");
}

#[test]
fn only_an_agent_of_this_vendor_takes_the_agents_place() {
    let release = target("1.2.3");
    let pin = Target { promise: None, ..target("file:///tmp/agent") };
    let note = |program: &str, version: &str| Some(Note { program: program.into(), version: version.into() });
    let table = [
        ("as released", &release, note("platform-agent", "1.2.3"), Ok(())),
        ("a pin of any version", &pin, note("platform-agent", "7.0.0-mine"), Ok(())),
        ("no note", &release, None, Err("it is no platform-agent (no note in it says so)")),
        ("a pin without a note", &pin, None, Err("it is no platform-agent (no note in it says so)")),
        (
            "another vendor's",
            &release,
            note("acme-agent", "1.2.3"),
            Err("it says it is acme-agent and not platform-agent"),
        ),
        ("another program of ours", &pin, note("platform-server", "1.2.3"), Err("it says it is platform-server")),
        ("nameless", &release, note("", "1.2.3"), Err("it says it is  and not platform-agent")),
        ("another version", &release, note("platform-agent", "1.2.4"), Err("version 1.2.4 and was released as 1.2.3")),
        ("words that are none", &release, note("\u{1b}[2J", "1.2.3"), Err("it says it is ?[2J and not")),
    ];
    for (case, target, note, expected) in table {
        match (check_note(target, note.as_ref(), "platform-agent"), expected) {
            (Ok(()), Ok(())) => {}
            (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{case}: {error}"),
            (got, _) => panic!("{case}: {got:?}"),
        }
    }
}

fn channel(name: &str, version: u64, number: u64) -> Channel {
    let entry = ChannelEntry { product: "platform-server".into(), version: Version::new(1, number, 0), number };
    Channel { name: name.into(), version, expires: Expires::from_unix_seconds(100), products: vec![entry] }
}

/// Before the channels of these tests expire.
const EARLY: Today = Today { seconds: 99, synchronised: true };

#[test]
fn no_channel_is_forgotten_for_others() {
    let mut seen = Seen::default();
    seen.follow(&channel("stable", 8, 4), EARLY).expect("any channel may be new");
    let name = |number: u64| format!("{number:0>64}");
    let mut refused = 0;
    for number in 0..100 {
        match seen.follow(&channel(&name(number), 1, 1), EARLY) {
            Ok(()) => assert_eq!(refused, 0),
            Err(error) => {
                assert!(error.to_string().contains("remembers 16 channels"), "{error}");
                refused += 1;
            }
        }
    }
    assert_eq!(refused, 85);
    let seen = Seen::decode(&seen.encode()).expect("it reads back");
    assert!(seen.clone().follow(&channel("stable", 7, 4), EARLY).is_err(), "old news");
    // By a clock that nobody vouches for nothing has expired; by another one everything has.
    let doubtful = Today { seconds: 1000, synchronised: false };
    assert!(seen.clone().follow(&channel("new", 1, 1), doubtful).is_err());
    let mut late = seen;
    assert_eq!(late.follow(&channel("new", 1, 1), Today { seconds: 1000, synchronised: true }), Ok(()));
}

#[test]
fn channels_never_lead_backwards() {
    let mut seen = Seen::default();
    // channel, document number, release number, followed?
    let table = [
        ("first contact", "stable", 7, 3, Ok(())),
        ("nothing new", "stable", 7, 3, Ok(())),
        ("a new document", "stable", 8, 4, Ok(())),
        ("an old document", "stable", 7, 3, Err("document 7, and document 8 has been seen")),
        ("one number, two contents", "stable", 8, 3, Err("names release 3 of platform-server without a new")),
        ("another channel has its own numbers", "dev", 1, 9, Ok(())),
        ("and does not move this one", "stable", 8, 4, Ok(())),
        ("a recall", "stable", 9, 2, Ok(())),
        ("what was recalled, in the old document", "stable", 8, 4, Err("document 8, and document 9 has been seen")),
    ];
    for (case, name, version, number, expected) in table {
        match (seen.follow(&channel(name, version, number), EARLY), expected) {
            (Ok(()), Ok(())) => {}
            (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{case}: {error}"),
            (got, _) => panic!("{case}: {got:?}"),
        }
        seen = Seen::decode(&seen.encode()).expect("it reads back");
    }
    let mut damaged = seen.encode();
    damaged[100] ^= 1;
    assert!(Seen::decode(&damaged).is_err());
}

fn root(seeds: [u8; 3], version: u64) -> Root {
    let keys = |seed: u8| RoleKeys::new(1, [SigningKey::from_seed(&[seed; 32]).unwrap().public()]);
    let [root, release, channel] = seeds.map(keys);
    Root { version, expires: Expires::from_unix_seconds(100), root, release, channel }
}

#[test]
fn numbers_start_anew_with_another_channel_key() {
    let mut seen = Seen::default();
    seen.follow(&channel("stable", u64::MAX, 1), EARLY).expect("signed by a stolen key");
    seen.rotate(&root([1, 2, 3], 1), &root([1, 4, 3], 2));
    assert!(seen.follow(&channel("stable", 8, 1), EARLY).is_err(), "the release key is another matter");
    seen.rotate(&root([1, 4, 3], 2), &root([1, 4, 5], 3));
    assert_eq!(seen.follow(&channel("stable", 8, 1), EARLY), Ok(()));
}

#[test]
fn where_belief_begins() {
    let key = |seed: u8| SigningKey::from_seed(&[seed; 32]).unwrap();
    let document = sign::root(&root([1, 2, 3], 1), &[&key(1)]).unwrap();
    let given = RoleKeys::most_of([key(1).public()]);
    let strange = RoleKeys::most_of([key(9).public()]);
    let many = RoleKeys::most_of([1, 7, 8].map(|seed| key(seed).public()));
    let one_of_many = RoleKeys { threshold: 1, ..many.clone() };
    let none = RoleKeys::most_of([]);
    // given keys, address, dev mode, is the root believed?
    type Row<'a> = (&'a str, Option<&'a RoleKeys>, &'a str, bool, Result<(), &'a str>);
    let table: [Row<'_>; 9] = [
        ("a factory key, over anything", Some(&given), "http://10.0.0.1", false, Ok(())),
        ("another factory key", Some(&strange), "https://fleet", false, Err("0 of the 1 release keys")),
        ("factory keys that cannot be read", Some(&none), "https://fleet", true, Err("0 of the 0 release keys")),
        // The root says that one signature is enough: that is not for it to say.
        (
            "one of three factory keys",
            Some(&many),
            "https://fleet",
            true,
            Err("1 of the 3 release keys in the manufacturer's defaults, and 2 must sign"),
        ),
        ("where one is enough", Some(&one_of_many), "https://fleet", false, Ok(())),
        ("first contact over TLS", None, "https://fleet", false, Ok(())),
        ("first contact over plain http", None, "http://10.0.0.1", false, Err("not learnt over plain http")),
        ("the same, even on this machine", None, "http://127.0.0.1", false, Err("not learnt over plain http")),
        ("the same, for developers", None, "http://127.0.0.1", true, Ok(())),
    ];
    for (case, given, address, dev_mode, expected) in table {
        let result = Anchor::new(given, address, dev_mode)
            .and_then(|anchor| anchor.first_root(document.as_bytes()).map_err(TrustError::from));
        match (result, expected) {
            (Ok(_), Ok(())) => {}
            (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{case}: {error}"),
            (got, _) => panic!("{case}: {got:?}"),
        }
    }
    let describe = |given: Option<&RoleKeys>, address| Anchor::new(given, address, true).unwrap().describe();
    assert_ne!(describe(None, "http://a"), describe(None, "http://b"), "another server is another first contact");
    assert_eq!(describe(Some(&given), "http://a"), describe(Some(&given), "http://b"));
    assert_ne!(
        describe(Some(&many), "http://a"),
        describe(Some(&one_of_many), "http://a"),
        "stricter keys find it anew"
    );
}

#[test]
fn expiry_is_judged_by_the_best_clock_there_is() {
    let end = Expires::from_unix_seconds(1000);
    let clock = |seconds, synchronised| Today { seconds, synchronised };
    let table = [
        ("fresh", clock(999, true), Ok(false)),
        ("expired", clock(1000, true), Err("the channel stable expired at 1970-01-01T00:16:40Z: sign a new one")),
        ("a board in 1970", clock(0, false), Ok(false)),
        ("a board in the far future", clock(i64::MAX, false), Ok(true)),
    ];
    for (case, today, expected) in table {
        match (fresh("channel stable", end, today), expected) {
            (Ok(doubtful), Ok(expected)) => assert_eq!(doubtful, expected, "{case}"),
            (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{case}: {error}"),
            (got, _) => panic!("{case}: {got:?}"),
        }
    }
    let mut seen = Seen::default();
    seen.time = 2000;
    assert_eq!(seen.today(clock(5, false)), clock(2000, false), "it has been later");
    assert_eq!(seen.today(clock(5, true)), clock(5, true), "a certain clock is believed");
}

#[test]
fn who_may_name_an_address() {
    use api::device_config::{Advanced, Settings, Trust, VersionControl};

    let pin = |text: &str| VersionSetting::parse(text).expect("a setting");
    // unsigned pins allowed, dev mode, of the agent?, address, taken?
    let table = [
        (true, false, false, "https://host/x", None),
        (true, false, false, "file:///x", None),
        (false, true, false, "file:///x", Some("allow_unsigned_pins")),
        (true, false, true, "file:///x", None),
        (true, false, true, "https://host/x", Some("the agent itself is taken from a local file only")),
        (true, true, true, "https://host/x", None),
        (false, true, true, "file:///x", Some("allow_unsigned_pins")),
    ];
    for (allowed, dev_mode, agent, address, refused) in table {
        let defaults = Settings::default().advanced;
        let trust = Trust { allow_unsigned_pins: allowed, ..defaults.trust.clone() };
        let advanced = Advanced { trust, ..(*defaults).clone() };
        let versions = VersionControl { agent: pin(address), server: pin(address) };
        let wish = match agent {
            true => Wish::of_agent(&versions, &advanced, dev_mode),
            false => Wish::of_server(&versions, &advanced),
        };
        let target = Target::of_pin(&wish.setting).expect("a pin");
        let said = crate::update::kind::refusal(&wish, &target);
        let case = format!("{allowed} {dev_mode} {agent} {address}: {said:?}");
        match refused {
            None => assert_eq!(said, None, "{case}"),
            Some(part) => assert!(said.is_some_and(|said| said.contains(part)), "{case}"),
        }
    }
}
