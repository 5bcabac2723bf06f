//! `--safe`: an agent that does not live with what it has stored begins without it.
//!
//! Owns which files are set aside. Identity stays, because without it nobody can help; so do what is believed of
//! releases, because to forget it would let old ones in, the machine server's record, so that the running one is adopted
//! and no second one started, the installed versions, which of them have failed here, and the log lines that wait.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use actors::update::{
    record::{RECORD_BYTES_MAX, Record},
    slots::Layout,
};
use api::brand;
use board::files::{Access, Files as _};
use board_portable::PortableFiles;

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

/// What that did, or why it could not: one sentence for each file that is there.
fn files_set_aside(root: &Path, again: bool) -> Vec<Result<String, String>> {
    let state = root.join("state");
    let files = [state.join("config.cache"), state.join("restarts.counter")];
    let mut said: Vec<_> =
        files.iter().filter_map(|path| one(path, again).map(|done| done.map(|(said, _)| said))).collect();
    for product in [brand::AGENT, brand::MACHINE_SERVER] {
        let record = Layout::new(root, product).record();
        match one(&record, again) {
            Some(Ok((sentence, aside))) => {
                said.push(Ok(sentence));
                said.extend(keep_lessons(&record, &aside));
            }
            Some(Err(failed)) => said.push(Err(failed)),
            None => {}
        }
    }
    said
}

/// What was done, and where the file is now; `None` when there is none.
fn one(path: &Path, again: bool) -> Option<Result<(String, PathBuf), String>> {
    let named = |ending: &str| PathBuf::from(format!("{}{ending}", path.display()));
    let first = named(ASIDE);
    fs::symlink_metadata(path).ok()?;
    let aside = if again && fs::symlink_metadata(&first).is_ok() { named(ASIDE_AGAIN) } else { first };
    let renamed = remove(&aside).and_then(|()| fs::rename(path, &aside));
    Some(match renamed {
        Ok(()) => Ok((format!("{} is set aside", path.display()), aside)),
        Err(error) => Err(format!("{} could not be set aside: {error}", path.display())),
    })
}

/// A version that failed here would fail here again: that is not forgotten with the rest of its record.
fn keep_lessons(record: &Path, aside: &Path) -> Option<Result<String, String>> {
    let bytes = PortableFiles.read(aside, RECORD_BYTES_MAX).ok()??;
    let lessons = Record::decode(&bytes).ok()?.lessons()?;
    let bad: Vec<&str> = lessons.bad.iter().map(|bad| bad.version.as_str()).collect();
    let bad = if bad.is_empty() { "none".to_owned() } else { bad.join(", ") };
    Some(match PortableFiles.write(record, &lessons.encode(), Access::Private) {
        Ok(()) => Ok(format!("kept of it: versions that failed here: {bad}")),
        Err(error) => Err(format!("versions that failed here, {bad}, are forgotten: {error}: {}", error.source)),
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
    use actors::update::slots::{Installed, Slot, Slots};

    use super::*;

    #[test]
    fn state_is_set_aside_and_what_must_stay_stays() {
        let root = tempfile::tempdir().expect("a folder");
        let at = |name: &str| root.path().join(name);
        let gone = ["config.cache", "restarts.counter", "platform-agent.record", "platform-server.record"];
        let stays =
            ["machine-server.process", "platform-agent.pointer", "platform-agent.starts", "config.cache.corrupt"];
        fs::create_dir_all(at("state")).expect("made");
        fs::create_dir_all(at("trust")).expect("made");
        fs::write(at("trust/numbers"), "kept").expect("written");
        for round in ["first", "second"] {
            for name in gone.into_iter().chain(stays) {
                fs::write(at("state").join(name), round).expect("written");
            }
            let said = files_set_aside(root.path(), false);
            assert!(said.len() == 4 && said.iter().all(Result::is_ok), "{said:?}");
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
    fn versions_that_failed_are_not_forgotten_and_the_first_evidence_is_kept() {
        let root = tempfile::tempdir().expect("a folder");
        let at = |name: &str| root.path().join("state").join(name);
        fs::create_dir_all(at("")).expect("made");
        let content =
            |version: &str, byte| Installed { version: version.into(), sha256: [byte; 32], length: 7, pin: None };
        let mut record =
            Record { wanted: "stable".into(), retried: 3, reason: "it crashed".into(), ..Record::default() };
        record.remember_bad(&content("2.0.0", 2));
        record.slots.set(Slot::A, Some(content("1.0.0", 1)));
        record.slots.active = Some(Slot::A);
        let lessons = Record { slots: Slots::default(), ..record.clone() };
        for product in ["platform-agent", "platform-server"] {
            fs::write(at(&format!("{product}.record")), record.encode()).expect("written");
        }
        fs::write(at("config.cache"), "what led to it").expect("written");
        for again in [false, true, true] {
            let said = files_set_aside(root.path(), again);
            assert!(said.iter().all(Result::is_ok), "{said:?}");
            assert!(said.iter().flatten().any(|said| said.contains("2.0.0")), "{said:?}");
            for product in ["platform-agent", "platform-server"] {
                let read =
                    |ending: &str| Record::decode(&fs::read(at(&format!("{product}.record{ending}"))).expect("there"));
                assert_eq!(read(""), Ok(lessons.clone()), "{again}");
                assert_eq!(read(".set-aside"), Ok(record.clone()), "{again}");
            }
            assert_eq!(fs::read_to_string(at("config.cache.set-aside")).expect("kept"), "what led to it");
            fs::write(at("config.cache"), format!("after {again}")).expect("written");
        }
        assert_eq!(fs::read_to_string(at("config.cache.set-aside-again")).expect("kept"), "after true");
        // Another time, when an agent has lived in between.
        files_set_aside(root.path(), false);
        assert_eq!(fs::read_to_string(at("config.cache.set-aside")).expect("kept"), "after true");
    }
}
