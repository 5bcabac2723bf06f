//! What `/proc/PID/stat` says about a process: its group, its start, whether it still runs.

use std::{fs, path::Path};

/// The fields that matter here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stat {
    /// Ended, and only remembered for whoever started it.
    pub(super) zombie: bool,
    pub(super) parent: u32,
    pub(super) group: u32,
    pub(super) session: u32,
    pub(super) start_ticks: u64,
}

/// `None` when there is no such process.
pub(super) fn of(pid: u32) -> Option<Stat> {
    read(&Path::new("/proc").join(pid.to_string()).join("stat"))
}

fn read(path: &Path) -> Option<Stat> {
    parse(&String::from_utf8_lossy(&fs::read(path).ok()?))
}

/// Every process that is in `group`, with its start, zombies left out.
pub(super) fn in_group(group: u32) -> Vec<(u32, Stat)> {
    all().filter(|(_, stat)| stat.group == group).collect()
}

/// Every process, zombies left out.
pub(super) fn all() -> impl Iterator<Item = (u32, Stat)> {
    everything().filter(|(_, stat)| !stat.zombie)
}

/// This process, its parent, the parent of that, and so on.
pub(super) fn line_of(pid: u32) -> Vec<u32> {
    let mut line = vec![pid];
    // A number may be given anew while this looks, so that the line could become a circle.
    while let Some(stat) = line.last().and_then(|last| of(*last))
        && stat.parent != 0
        && !line.contains(&stat.parent)
    {
        line.push(stat.parent);
    }
    line
}

/// Processes of this one that have ended, and that nobody has asked about.
pub(super) fn ended_children() -> impl Iterator<Item = (u32, Stat)> {
    let own = std::process::id();
    everything().filter(move |(_, stat)| stat.zombie && stat.parent == own)
}

fn everything() -> impl Iterator<Item = (u32, Stat)> {
    let processes = fs::read_dir("/proc").into_iter().flatten();
    processes.filter_map(|entry| {
        let entry = entry.ok()?;
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        Some((pid, read(&entry.path().join("stat"))?))
    })
}

/// The program's name stands in parentheses and may contain anything, parentheses and line ends too: what follows the
/// last one counts.
fn parse(line: &str) -> Option<Stat> {
    let (_, fields) = line.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    let group = fields.next()?.parse().ok()?;
    let session = fields.next()?.parse().ok()?;
    let start_ticks = fields.nth(15)?.parse().ok()?;
    Some(Stat { zombie: matches!(state, "Z" | "X"), parent, group, session, start_ticks })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_contain_anything() {
        let tail = "S 1 77 70 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 123456 1000 200";
        for name in ["server", "a b", "x) S 9 9 9 (", "(((", "two\nlines"] {
            let stat = parse(&format!("42 ({name}) {tail}"));
            assert_eq!(
                stat,
                Some(Stat { zombie: false, parent: 1, group: 77, session: 70, start_ticks: 123_456 }),
                "{name}"
            );
        }
        assert_eq!(parse("42 (server) Z 1 77"), None, "cut short");
    }

    #[test]
    fn this_process_is_found_in_its_group() {
        let own = std::process::id();
        let stat = of(own).expect("we live");
        assert!(!stat.zombie);
        assert!(in_group(stat.group).contains(&(own, stat)));
        assert_eq!(of(u32::MAX), None);
        assert!(line_of(own).starts_with(&[own, stat.parent]), "{:?}", line_of(own));
    }
}
