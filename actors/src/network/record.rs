//! What must be known after a restart or a reboot, so that the device is not rebooted too early or again and again, and does
//! not forget a network that worked for one that was made up.
//!
//! Time counts from the later of boot and last online, and never from zero: what is not known is counted from now.

use std::path::Path;

use board::{
    Mono,
    files::{Access, FileError, Files},
};

use super::profiles::GIVEN_MAX;
use crate::server::launch::Fnv;

/// Largest record, in bytes: four numbers with their names, sixteen networks, and a checksum.
const RECORD_BYTES_MAX: usize = 512;
const HEAD: &str = "network 1 ";

/// What is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Fingerprint of the boot that the moments belong to.
    pub boot: u64,
    /// Offline since then; `None` is online, or not known to be offline.
    pub offline_since: Option<Mono>,
    /// When the system was last asked to reboot.
    pub asked_at: Option<Mono>,
    /// Reboots that were asked for, ever.
    pub reboots: u64,
    /// Networks given by people, and cables, that have worked.
    pub worked: Worked,
}

/// Cables with settings of their own; a device has fewer.
const CABLES_MAX: usize = 8;
const WORKED_MAX: usize = GIVEN_MAX + CABLES_MAX;

/// Which of the networks that people gave, and of the cables that were configured, have worked: fingerprints of their keys,
/// 0 for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Worked([u32; WORKED_MAX]);

impl Worked {
    /// Whether it has.
    #[must_use]
    pub fn has(&self, key: &str) -> bool {
        self.0.contains(&fingerprint(key))
    }

    /// It works. `there` are the keys that still exist: one that does not makes room. Says whether that is news.
    pub fn add(&mut self, key: &str, there: &[&str]) -> bool {
        let there: Vec<u32> = there.iter().map(|key| fingerprint(key)).collect();
        let news = !self.has(key);
        if news && let Some(place) = self.0.iter_mut().find(|place| !there.contains(place)) {
            *place = fingerprint(key);
            return true;
        }
        false
    }
}

/// Two networks that are taken for one cost no more than that the wrong one is forgotten first.
fn fingerprint(key: &str) -> u32 {
    let mut hash = Fnv::new();
    hash.add(key.as_bytes());
    let value = hash.value();
    u32::try_from((value >> 32) ^ (value & u64::from(u32::MAX))).unwrap_or(1).max(1)
}

impl Record {
    /// What an agent goes on with that starts `now` in this boot.
    #[must_use]
    pub fn resume(stored: Option<Record>, boot: u64, now: Mono) -> Record {
        let Some(stored) = stored else { return Record { boot, offline_since: Some(now), ..Record::default() } };
        if stored.boot != boot {
            // It booted since: that is later than whenever it was online last.
            return Record { boot, offline_since: Some(Mono::BOOT), asked_at: None, ..stored };
        }
        // A moment that has not come yet belongs to another boot of a system that cannot tell them apart.
        let past = |at: Option<Mono>| at.filter(|&at| at <= now);
        Record { offline_since: past(stored.offline_since).or(Some(now)), asked_at: past(stored.asked_at), ..stored }
    }

    fn encode(&self) -> Vec<u8> {
        let at = |at: Option<Mono>| at.map_or_else(|| "-".to_owned(), |at| at.as_nanos().to_string());
        let Record { boot, offline_since, asked_at, reboots, worked } = self;
        let worked: String = worked.0.iter().filter(|one| **one != 0).map(|one| format!(" {one:08x}")).collect();
        let body = format!(
            "boot {boot}\noffline_since {}\nasked_at {}\nreboots {reboots}\nworked{worked}\n",
            at(*offline_since),
            at(*asked_at)
        );
        let mut hash = Fnv::new();
        hash.add(body.as_bytes());
        format!("{HEAD}{:016x}\n{body}", hash.value()).into_bytes()
    }

    fn decode(bytes: &[u8]) -> Option<Record> {
        let (head, body) = std::str::from_utf8(bytes).ok()?.split_once('\n')?;
        let mut hash = Fnv::new();
        hash.add(body.as_bytes());
        (head == format!("{HEAD}{:016x}", hash.value())).then_some(())?;
        let text = |name: &str| body.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        let number = |name: &str| text(name)?.parse::<u64>().ok();
        let mut worked = Worked::default();
        // Records of agents that did not know yet have no such line.
        let line = body.lines().find_map(|line| line.strip_prefix("worked")).unwrap_or_default();
        for (place, one) in worked.0.iter_mut().zip(line.split_ascii_whitespace()) {
            *place = u32::from_str_radix(one, 16).ok()?;
        }
        Some(Record {
            worked,
            boot: number("boot")?,
            offline_since: number("offline_since").map(Mono::from_nanos),
            asked_at: number("asked_at").map(Mono::from_nanos),
            reboots: number("reboots")?,
        })
    }
}

/// Reads the record; `None` when there is none, or a damaged one.
#[must_use]
pub fn load(files: &dyn Files, path: &Path) -> Option<Record> {
    let bytes = files.read(path, RECORD_BYTES_MAX).unwrap_or_else(|error| {
        log::warn!("{error}: {}", error.source);
        None
    })?;
    let record = Record::decode(&bytes);
    if record.is_none() {
        log::warn!("{} is damaged and not used", path.display());
    }
    record
}

/// Writes the record.
pub fn store(files: &dyn Files, path: &Path, record: &Record) -> Result<(), FileError> {
    files.write(path, &record.encode(), Access::Private)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> Record {
        Record {
            boot: 7,
            offline_since: Some(Mono::from_nanos(5)),
            asked_at: Some(Mono::from_nanos(u64::MAX)),
            reboots: u64::MAX,
            worked: Worked([u32::MAX; WORKED_MAX]),
        }
    }

    #[test]
    fn records_read_back_and_any_damage_is_noticed() {
        for record in [full(), Record::default()] {
            assert!(record.encode().len() <= RECORD_BYTES_MAX);
            assert_eq!(Record::decode(&record.encode()), Some(record));
        }
        let bytes = full().encode();
        for index in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[index] ^= 1;
            assert_eq!(Record::decode(&damaged), None, "byte {index}");
            assert_eq!(Record::decode(&bytes[..index]), None, "cut at {index}");
        }
    }

    #[test]
    fn a_record_of_an_agent_that_did_not_know_which_networks_worked() {
        let body = "boot 7\noffline_since -\nasked_at 5\nreboots 2\n";
        let mut hash = Fnv::new();
        hash.add(body.as_bytes());
        let old = format!("{HEAD}{:016x}\n{body}", hash.value());
        let read = Record::decode(old.as_bytes()).expect("read");
        assert_eq!((read.boot, read.reboots, read.worked), (7, 2, Worked::default()));
    }

    #[test]
    fn networks_that_worked_are_bounded_by_those_that_exist() {
        let mut worked = Worked::default();
        let keys: Vec<String> = (0..3 * GIVEN_MAX).map(|number| format!("given:{number}")).collect();
        for (index, key) in keys.iter().enumerate() {
            let there: Vec<&str> =
                keys[index.saturating_sub(GIVEN_MAX - 1)..index].iter().map(String::as_str).collect();
            assert!(worked.add(key, &there) && !worked.add(key, &there), "{key} is news once");
            assert!(there.iter().all(|key| worked.has(key)), "{key} has pushed out one that exists");
        }
    }

    #[test]
    fn time_counts_from_the_later_of_boot_and_last_online() {
        let at = |seconds: u64| Mono::from_nanos(seconds * 1_000_000_000);
        let since =
            |offline| Record { boot: 1, offline_since: offline, asked_at: None, reboots: 3, ..Record::default() };
        let table = [
            // case                               stored                                  boot  since
            ("nothing is known", None, 1, at(100)),
            ("offline when the agent ended", Some(since(Some(at(40)))), 1, at(40)),
            ("online when the agent ended", Some(since(None)), 1, at(100)),
            ("it booted since, offline before", Some(since(Some(at(40)))), 2, Mono::BOOT),
            ("it booted since, online before", Some(since(None)), 2, Mono::BOOT),
            ("a moment that has not come", Some(since(Some(at(101)))), 1, at(100)),
        ];
        for (case, stored, boot, expected) in table {
            let resumed = Record::resume(stored, boot, at(100));
            assert_eq!((resumed.offline_since, resumed.boot), (Some(expected), boot), "{case}");
            assert_eq!(resumed.reboots, stored.map_or(0, |stored| stored.reboots), "{case}");
        }
        let asked = |boot, asked| Record::resume(Some(Record { boot, asked_at: asked, ..Record::default() }), 1, at(9));
        assert_eq!(asked(1, Some(at(8))).asked_at, Some(at(8)), "in this boot: it did not help, or not yet");
        assert_eq!(asked(2, Some(at(8))).asked_at, None, "it has rebooted");
        assert_eq!(asked(1, Some(at(10))).asked_at, None, "in a boot of a system that cannot tell them apart");
    }
}
