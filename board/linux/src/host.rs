//! Names and facts of this machine.

use std::{fs, time::Duration};

use board::host::{Facts, Host};

/// Longest name that is passed on, in bytes; names come from files that anybody may have edited.
const NAME_BYTES_MAX: usize = 128;

/// Where Linux names the hardware: the device tree's board, the firmware's board, the firmware's own number; and where
/// it names this installation.
const SERIALS: [&str; 4] = [
    "/proc/device-tree/serial-number",
    "/sys/class/dmi/id/product_serial",
    "/sys/class/dmi/id/product_uuid",
    "/etc/machine-id",
];
/// What firmware says that nobody has given a number, in lower case.
const NO_SERIALS: [&str; 9] = [
    "none",
    "n/a",
    "not specified",
    "not applicable",
    "default string",
    "system serial number",
    "to be filled by o.e.m.",
    "03000200-0400-0500-0006-000700080009",
    "uninitialized",
];

/// What was read at start.
pub struct LinuxHost {
    facts: Facts,
}

impl LinuxHost {
    /// Reads the facts; what cannot be read stays empty.
    #[must_use]
    pub fn read() -> Self {
        let release = ["/etc/os-release", "/usr/lib/os-release"].iter().find_map(|path| fs::read_to_string(path).ok());
        LinuxHost {
            facts: Facts {
                platform: format!("linux/{}", architecture(std::env::consts::ARCH)),
                distro: release.as_deref().map(distro).unwrap_or_default(),
                hostname: bounded(&rustix::system::uname().nodename().to_string_lossy()),
                boot_id: boot().0,
                serial: serial(|path| fs::read_to_string(path).ok()),
            },
        }
    }
}

impl Host for LinuxHost {
    fn facts(&self) -> &Facts {
        &self.facts
    }
}

/// The id of this boot, empty when the system has none, and the time since it began.
#[must_use]
pub fn boot() -> (String, Duration) {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let since = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    (bounded(id.trim()), Duration::from_secs(u64::try_from(since.tv_sec).unwrap_or_default()))
}

/// The first number that is one.
fn serial(read: impl Fn(&str) -> Option<String>) -> String {
    let number = |path: &&str| {
        let text = bounded(&read(path)?);
        let text = text.trim().to_owned();
        let known = NO_SERIALS.contains(&text.to_ascii_lowercase().as_str());
        let blank = text.chars().all(|sign| matches!(sign, '0' | 'f' | 'F' | '-' | '.' | ' '));
        (!known && !blank).then_some(text)
    };
    SERIALS.iter().find_map(number).unwrap_or_default()
}

/// The registry's word for a processor family.
fn architecture(ours: &str) -> &str {
    match ours {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "x86" => "386",
        other => other,
    }
}

/// The name a distribution gives itself.
fn distro(release: &str) -> String {
    let value = |key: &str| {
        let line = release.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='))?;
        let bare = line.trim().trim_matches(['"', '\'']);
        (!bare.is_empty()).then(|| bounded(bare))
    };
    value("PRETTY_NAME").or_else(|| value("NAME")).unwrap_or_default()
}

fn bounded(text: &str) -> String {
    text.chars()
        .filter(|character| !character.is_control())
        .scan(0, |bytes, character| {
            *bytes += character.len_utf8();
            (*bytes <= NAME_BYTES_MAX).then_some(character)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distribution_is_named_as_it_names_itself() {
        let table = [
            ("NAME=\"Debian\"\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n", "Debian GNU/Linux 12 (bookworm)"),
            ("NAME=Alpine\nID=alpine\n", "Alpine"),
            ("PRETTY_NAME=''\nNAME='Own'\n", "Own"),
            ("nothing here", ""),
        ];
        for (release, name) in table {
            assert_eq!(distro(release), name, "{release}");
        }
        assert_eq!(distro(&format!("NAME={}", "x".repeat(4000))).len(), NAME_BYTES_MAX);
    }

    #[test]
    fn a_number_that_every_board_has_is_none() {
        let [tree, serial_number, uuid, machine] = SERIALS;
        let table: [(&[(&str, &str)], &str); 6] = [
            (&[(tree, "100000001a2b3c4d\0"), (machine, "m")], "100000001a2b3c4d"),
            (
                &[(serial_number, "To Be Filled By O.E.M.\n"), (uuid, "4c4c4544-0042\n"), (machine, "m\n")],
                "4c4c4544-0042",
            ),
            (&[(serial_number, "\n"), (uuid, "03000200-0400-0500-0006-000700080009\n"), (machine, "m\n")], "m"),
            (&[(tree, "0000000000000000\0"), (serial_number, "FFFF-FFFF"), (machine, "9b1d\n")], "9b1d"),
            (&[(serial_number, " PF-3 \n")], "PF-3"),
            (&[], ""),
        ];
        for (files, expected) in table {
            let read = |path: &str| files.iter().find(|(name, _)| *name == path).map(|(_, text)| (*text).to_owned());
            assert_eq!(serial(read), expected, "{files:?}");
        }
    }

    #[test]
    fn this_machine_has_names() {
        let host = LinuxHost::read();
        assert!(host.facts().platform.starts_with("linux/"));
        assert!(!host.facts().boot_id.is_empty());
        assert!(!host.facts().hostname.is_empty());
    }
}
