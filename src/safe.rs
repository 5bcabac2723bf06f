//! `--safe`: an agent that does not live with what it has stored begins without it.
//!
//! Owns which files are set aside. Identity stays, because without it nobody can help; so do what is believed of
//! releases, because to forget it would let old ones in, the machine server's record, so that the running one is adopted
//! and no second one started, the installed versions, and the log lines that wait.
//!
//! The update records stay, too: a device that forgets them forgets which machine server it has, which version is on
//! trial and which ones failed. One that cannot be read is set aside by every start, and the slots are believed. What
//! `--safe` gives up of them is a walk that has not reached its switch ([`actors::update::Policy::safe`]).

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::launcher::{self, disk::SystemDisk};

/// Ending of what was set aside. One generation is kept, for whoever wants to know why.
const ASIDE: &str = ".set-aside";
/// Of what a start with `--safe` has stored that did not live either: the first one has what led to it.
const ASIDE_AGAIN: &str = ".set-aside-again";

/// Sets the stored state aside, and says so in the log.
pub fn set_aside(root: &Path) {
    log::warn!("--safe: begins with the defaults and what the fleet server says");
    for done in files_set_aside(root, launcher::is_safe_again(&SystemDisk, root)) {
        match done {
            Ok(done) => log::warn!("{done}"),
            Err(failed) => log::error!("{failed}"),
        }
    }
}

/// Each file that is set aside, and its name from then on; the second one if a safe start before this has the first.
#[must_use]
pub fn files(root: &Path) -> [[PathBuf; 3]; 2] {
    ["config.cache", "restarts.counter"].map(|name| {
        let path = root.join("state").join(name);
        let named = |ending: &str| PathBuf::from(format!("{}{ending}", path.display()));
        [path.clone(), named(ASIDE), named(ASIDE_AGAIN)]
    })
}

/// What that did, or why it could not: one sentence for each file that is there.
fn files_set_aside(root: &Path, again: bool) -> Vec<Result<String, String>> {
    let set_aside = |[path, first, later]: [PathBuf; 3]| {
        let aside = if again && fs::symlink_metadata(&first).is_ok() { later } else { first };
        one(&path, &aside)
    };
    files(root).into_iter().filter_map(set_aside).collect()
}

fn one(path: &Path, aside: &Path) -> Option<Result<String, String>> {
    fs::symlink_metadata(path).ok()?;
    let renamed = remove(aside).and_then(|()| fs::rename(path, aside));
    Some(match renamed {
        Ok(()) => Ok(format!("{} is set aside", path.display())),
        Err(error) => Err(format!("{} could not be set aside: {error}", path.display())),
    })
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_is_set_aside_and_what_must_stay_stays() {
        let root = tempfile::tempdir().expect("a folder");
        let at = |name: &str| root.path().join(name);
        let gone = ["config.cache", "restarts.counter"];
        let stays = [
            "machine-server.process",
            "platform-agent.pointer",
            "platform-agent.record",
            "platform-agent.starts",
            "platform-server.pointer",
            "platform-server.record",
            "config.cache.corrupt",
        ];
        fs::create_dir_all(at("state")).expect("made");
        fs::create_dir_all(at("trust")).expect("made");
        fs::write(at("trust/numbers"), "kept").expect("written");
        for round in ["first", "second"] {
            for name in gone.into_iter().chain(stays) {
                fs::write(at("state").join(name), round).expect("written");
            }
            let said = files_set_aside(root.path(), false);
            assert!(said.len() == 2 && said.iter().all(Result::is_ok), "{said:?}");
            for name in gone {
                assert!(!at("state").join(name).exists(), "{name}");
                assert_eq!(fs::read_to_string(at("state").join(format!("{name}.set-aside"))).expect(name), round);
            }
            assert!(stays.iter().all(|name| at("state").join(name).is_file()));
        }
        assert!(at("trust/numbers").is_file());
        assert_eq!(files_set_aside(root.path(), false), [], "nothing is left");
        // A folder where a file should be, on top of one that was set aside before.
        fs::create_dir_all(at("state/config.cache/inside")).expect("made");
        assert_eq!(files_set_aside(root.path(), false).len(), 1);
        assert!(at("state/config.cache.set-aside/inside").is_dir());
    }

    #[test]
    fn the_first_evidence_is_kept() {
        let root = tempfile::tempdir().expect("a folder");
        let at = |name: &str| root.path().join("state").join(name);
        fs::create_dir_all(at("")).expect("made");
        fs::write(at("config.cache"), "what led to it").expect("written");
        for again in [false, true, true] {
            assert!(files_set_aside(root.path(), again).iter().all(Result::is_ok));
            assert_eq!(fs::read_to_string(at("config.cache.set-aside")).expect("kept"), "what led to it");
            fs::write(at("config.cache"), format!("after {again}")).expect("written");
        }
        assert_eq!(fs::read_to_string(at("config.cache.set-aside-again")).expect("kept"), "after true");
        // Another time, when an agent has lived in between.
        files_set_aside(root.path(), false);
        assert_eq!(fs::read_to_string(at("config.cache.set-aside")).expect("kept"), "after true");
    }
}
