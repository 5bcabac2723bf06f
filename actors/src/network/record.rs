//! What must be known after a restart or a reboot, so that the device is not rebooted too early or again and again.
//!
//! Time counts from the later of boot and last online, and never from zero: what is not known is counted from now.

use std::path::Path;

use board::{
    Mono,
    files::{Access, FileError, Files},
};

use crate::server::launch::Fnv;

/// Largest record, in bytes: four numbers with their names, and a checksum.
const RECORD_BYTES_MAX: usize = 256;
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
}

impl Record {
    /// What an agent goes on with that starts `now` in this boot.
    #[must_use]
    pub fn resume(stored: Option<Record>, boot: u64, now: Mono) -> Record {
        let Some(stored) = stored else { return Record { boot, offline_since: Some(now), ..Record::default() } };
        if stored.boot != boot {
            // It booted since: that is later than whenever it was online last.
            return Record { boot, offline_since: Some(Mono::BOOT), asked_at: None, reboots: stored.reboots };
        }
        // A moment that has not come yet belongs to another boot of a system that cannot tell them apart.
        let past = |at: Option<Mono>| at.filter(|&at| at <= now);
        Record { offline_since: past(stored.offline_since).or(Some(now)), asked_at: past(stored.asked_at), ..stored }
    }

    fn encode(&self) -> Vec<u8> {
        let at = |at: Option<Mono>| at.map_or_else(|| "-".to_owned(), |at| at.as_nanos().to_string());
        let Record { boot, offline_since, asked_at, reboots } = self;
        let body = format!(
            "boot {boot}\noffline_since {}\nasked_at {}\nreboots {reboots}\n",
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
        Some(Record {
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
    fn time_counts_from_the_later_of_boot_and_last_online() {
        let at = |seconds: u64| Mono::from_nanos(seconds * 1_000_000_000);
        let since = |offline| Record { boot: 1, offline_since: offline, asked_at: None, reboots: 3 };
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
