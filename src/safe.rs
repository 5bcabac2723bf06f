//! `--safe`: an agent that does not live with what it has stored begins without it.
//!
//! Owns which files are set aside. Identity stays, because without it nobody can help; so do what is believed of
//! releases, because to forget it would let old ones in, the machine server's record, so that the running one is adopted
//! and no second one started, the installed versions, and the log lines that wait.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use actors::update::slots::Layout;
use api::brand;

/// Ending of what was set aside. One generation is kept, for whoever wants to know why.
const ASIDE: &str = ".set-aside";

/// Sets the stored state aside, and says so in the log.
pub fn set_aside(root: &Path) {
    log::warn!("--safe: begins with the defaults and what the fleet server says");
    for done in files_set_aside(root) {
        match done {
            Ok(done) => log::warn!("{done}"),
            Err(failed) => log::error!("{failed}"),
        }
    }
}

/// What that did, or why it could not: one sentence for each file that is there.
fn files_set_aside(root: &Path) -> Vec<Result<String, String>> {
    let state = root.join("state");
    let records = [brand::AGENT, brand::MACHINE_SERVER].map(|product| Layout::new(root, product).record());
    let files = [state.join("config.cache"), state.join("restarts.counter")].into_iter().chain(records);
    files.filter_map(|path| one(&path)).collect()
}

fn one(path: &Path) -> Option<Result<String, String>> {
    let aside = PathBuf::from(format!("{}{ASIDE}", path.display()));
    fs::symlink_metadata(path).ok()?;
    let renamed = remove(&aside).and_then(|()| fs::rename(path, &aside));
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
            let said = files_set_aside(root.path());
            assert!(said.len() == 4 && said.iter().all(Result::is_ok), "{said:?}");
            for name in gone {
                assert!(!at("state").join(name).exists(), "{name}");
                assert_eq!(fs::read_to_string(at("state").join(format!("{name}.set-aside"))).expect(name), round);
            }
            assert!(stays.iter().all(|name| at("state").join(name).is_file()));
        }
        assert!(at("trust/numbers").is_file());
        assert_eq!(files_set_aside(root.path()), [], "nothing is left");
        // A folder where a file should be, on top of one that was set aside before.
        fs::create_dir_all(at("state/config.cache/inside")).expect("made");
        assert_eq!(files_set_aside(root.path()).len(), 1);
        assert!(at("state/config.cache.set-aside/inside").is_dir());
    }
}
