//! Names and facts of this machine.

use std::{fs, time::Duration};

use board::host::{Facts, Host};

/// Longest name that is passed on, in bytes; names come from files that anybody may have edited.
const NAME_BYTES_MAX: usize = 128;

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
    fn this_machine_has_names() {
        let host = LinuxHost::read();
        assert!(host.facts().platform.starts_with("linux/"));
        assert!(!host.facts().boot_id.is_empty());
        assert!(!host.facts().hostname.is_empty());
    }
}
