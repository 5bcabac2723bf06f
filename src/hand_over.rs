//! Becoming the next agent: this process turns into the launcher, which chooses the version and becomes that.
//!
//! Owns how an agent learns that a launcher started it, and the way back. Process number, open descriptors and
//! environment stay; the machine server keeps its parent and its pipes. A launcher that cannot be executed by then costs
//! a restart of this very program in this very process, nothing else.

use std::{
    ffi::{OsStr, OsString},
    io,
    path::PathBuf,
    process::Command,
};

use actors::update::slots::Slot;
use api::brand;

use crate::{
    launcher::{Disk as _, SAFE, disk::SystemDisk},
    platform,
};

/// What the launcher said when it started this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launched {
    /// The launcher itself.
    pub launcher: PathBuf,
    /// The slot that this process was started from.
    pub slot: Slot,
    /// What it has to tell people, when it did not start what it was to start, or not as usual.
    pub note: Option<String>,
    /// Why the hand-over that this process had begun came to nothing.
    pub refused: Option<String>,
}

/// What is said to this process and is no business of what it starts.
pub const VARIABLES: [&str; 4] = [brand::ENV_LAUNCHER, brand::ENV_SLOT, brand::ENV_LAUNCH_NOTE, brand::ENV_HAND_OVER];
/// This very program, also when its file was removed or replaced.
const ITSELF: &str = "/proc/self/exe";

impl Launched {
    /// From the environment; nothing when no launcher started this process, or what it says makes no sense.
    pub fn from_environment(environment: impl Fn(&str) -> Option<OsString>) -> Option<Launched> {
        let launcher = PathBuf::from(environment(brand::ENV_LAUNCHER)?);
        let slot = Slot::named(environment(brand::ENV_SLOT)?.to_str()?)?;
        let text = |name| environment(name).map(|text| text.to_string_lossy().into_owned());
        let [note, refused] =
            [brand::ENV_LAUNCH_NOTE, brand::ENV_HAND_OVER].map(|name| text(name).filter(|text| !text.is_empty()));
        launcher.is_absolute().then_some(Launched { launcher, slot, note, refused })
    }

    /// Whether a hand-over can be begun: asked before anything is stopped for it.
    pub fn is_possible(&self) -> Result<(), String> {
        let why = |why| format!("{} cannot be started, {why}: install it again", self.launcher.display());
        SystemDisk.is_program(&self.launcher).map_err(why)
    }

    /// Turns this process into the launcher, with the arguments it was started with (without the program's name) and
    /// `environment` on top of its own. Comes back only if that fails.
    pub fn hand_over(
        &self,
        arguments: impl IntoIterator<Item = OsString>,
        environment: impl IntoIterator<Item = (String, String)>,
    ) -> io::Error {
        let mut command = bare(&self.launcher);
        command.args(usual(arguments)).envs(environment);
        platform::become_program(command)
    }

    /// Turns this process into what it was before it could not be handed over, for the reason `refused`. Comes back
    /// only if that fails.
    pub fn start_anew(
        &self,
        arguments: impl IntoIterator<Item = OsString>,
        environment: impl IntoIterator<Item = (String, String)>,
        refused: &str,
    ) -> io::Error {
        let mut command = bare(ITSELF);
        command.args(arguments).envs(environment);
        command.env(brand::ENV_LAUNCHER, &self.launcher).env(brand::ENV_SLOT, self.slot.name());
        command.env(brand::ENV_HAND_OVER, refused);
        platform::become_program(command)
    }
}

fn bare(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    for name in VARIABLES {
        command.env_remove(name);
    }
    command
}

/// The arguments without the launcher's own addition: the next version is to start as usual.
fn usual(arguments: impl IntoIterator<Item = OsString>) -> impl Iterator<Item = OsString> {
    let mut arguments = arguments.into_iter().peekable();
    let _ = arguments.next_if(|first| first == SAFE);
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_launcher_says_is_read() {
        let said = |variables: &'static [(&str, &str)]| {
            Launched::from_environment(move |name| {
                variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into())
            })
        };
        let names = ["LAUNCHER", "SLOT", "LAUNCH_NOTE", "HAND_OVER"].map(|name| format!("PLATFORM_AGENT_{name}"));
        assert_eq!(names, VARIABLES);
        let full = said(&[
            ("PLATFORM_AGENT_LAUNCHER", "/opt/platform/bin/platform-launcher"),
            ("PLATFORM_AGENT_SLOT", "b"),
            ("PLATFORM_AGENT_LAUNCH_NOTE", "back to slot b"),
        ]);
        let launcher = PathBuf::from("/opt/platform/bin/platform-launcher");
        let expected = Launched { launcher, slot: Slot::B, note: Some("back to slot b".into()), refused: None };
        assert_eq!(full, Some(expected));
        let stayed = said(&[
            ("PLATFORM_AGENT_LAUNCHER", "/l"),
            ("PLATFORM_AGENT_SLOT", "a"),
            ("PLATFORM_AGENT_LAUNCH_NOTE", ""),
            ("PLATFORM_AGENT_HAND_OVER", "no launcher"),
        ]);
        assert_eq!(stayed.and_then(|stayed| stayed.refused).as_deref(), Some("no launcher"));
        assert_eq!(said(&[]), None);
        assert_eq!(said(&[("PLATFORM_AGENT_SLOT", "b")]), None);
        assert_eq!(said(&[("PLATFORM_AGENT_LAUNCHER", "/l"), ("PLATFORM_AGENT_SLOT", "c")]), None);
        assert_eq!(said(&[("PLATFORM_AGENT_LAUNCHER", "l"), ("PLATFORM_AGENT_SLOT", "a")]), None);
        let bare = said(&[
            ("PLATFORM_AGENT_LAUNCHER", "/l"),
            ("PLATFORM_AGENT_SLOT", "a"),
            ("PLATFORM_AGENT_LAUNCH_NOTE", ""),
        ]);
        assert_eq!(bare.map(|launched| launched.note), Some(None));
    }

    #[test]
    fn a_launcher_that_is_not_there_is_said_before_and_after() {
        let launched = Launched { launcher: "/nowhere/launcher".into(), slot: Slot::A, note: None, refused: None };
        let why = launched.is_possible().expect_err("nothing is there");
        assert_eq!(why, "/nowhere/launcher cannot be started, it is missing: install it again");
        let error = launched.hand_over([], []);
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn the_launchers_addition_is_taken_away() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        assert_eq!(usual(words("--safe --root /r")).collect::<Vec<_>>(), words("--root /r"));
        assert_eq!(usual(words("--root --safe")).collect::<Vec<_>>(), words("--root --safe"));
    }
}
