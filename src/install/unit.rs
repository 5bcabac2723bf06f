//! The text of the service unit, and what an installed one says about where things are.

use std::path::{Path, PathBuf};

use api::brand;

/// With `@WORDS@` to be filled in.
const TEMPLATE: &str = include_str!("../../packaging/linux/platform-agent.service");
/// Begins the line that starts the agent.
const START: &str = "ExecStart=";

/// File name of the unit.
#[must_use]
pub fn name() -> String {
    format!("{}.service", brand::AGENT)
}

/// A path that cannot stand in a unit.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} cannot be used: a path in a unit must be absolute and consist of letters, digits and / . _ - only", .0.display())]
pub struct UnfitPath(PathBuf);

/// The unit for an agent with these places; paths that differ from the built-in ones become options.
pub fn text(root: &Path, credentials: &Path, defaults: &Path) -> Result<String, UnfitPath> {
    let mut options = String::new();
    for (option, path, built_in) in [
        ("--root", root, brand::ROOT_FOLDER),
        ("--config", credentials, brand::CREDENTIALS_FILE),
        ("--defaults", defaults, brand::DEFAULTS_FILE),
    ] {
        let path = fit(path)?;
        if path != built_in {
            options.push_str(&format!(" {option} {path}"));
        }
    }
    let text = TEMPLATE
        .replace("@ROOT@", fit(root)?)
        .replace("@AGENT@", brand::AGENT)
        .replace("@LAUNCHER@", brand::LAUNCHER)
        .replace("@BRAND@", brand::NAME)
        .replace("@ENV@", brand::ENV_PREFIX)
        .replace("@OPTIONS@", &options)
        .replace("@WORDS@", "blanks");
    Ok(text)
}

/// The root folder that an installed unit names.
#[must_use]
pub fn root_in(unit: &str) -> Option<PathBuf> {
    let start = unit.lines().find_map(|line| line.strip_prefix(START))?;
    let launcher = Path::new(start.split(' ').next()?);
    let bin = launcher.parent()?;
    (launcher.file_name()? == brand::LAUNCHER && bin.file_name()? == "bin").then_some(bin.parent()?.to_owned())
}

/// systemd gives meaning to blanks, quotes, percent and dollar signs: paths with such signs are refused.
fn fit(path: &Path) -> Result<&str, UnfitPath> {
    let plain = |text: &&str| {
        text.starts_with('/') && text.chars().all(|sign| sign.is_ascii_alphanumeric() || "/._-".contains(sign))
    };
    path.to_str().filter(plain).ok_or_else(|| UnfitPath(path.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn built_in() -> String {
        let path = Path::new;
        text(path(brand::ROOT_FOLDER), path(brand::CREDENTIALS_FILE), path(brand::DEFAULTS_FILE)).expect("fit paths")
    }

    #[test]
    fn the_unit_is_that_of_the_semantics() {
        let unit = built_in();
        for line in [
            "ExecStart=/opt/platform/bin/platform-launcher",
            "ExecStartPre=-/opt/platform/bin/platform-launcher.previous restore",
            "ExecStopPost=/opt/platform/bin/platform-launcher end-server --root /opt/platform",
            "Restart=always",
            "RestartSec=1",
            "StartLimitIntervalSec=0",
            "Type=notify",
            "WatchdogSec=60",
            "KillMode=process",
            "Delegate=yes",
            "Environment=MACHINE_SERVER_LIMITS=1",
            "FileDescriptorStoreMax=16",
            "WantedBy=multi-user.target",
        ] {
            assert!(unit.lines().any(|found| found == line), "{line}\n{unit}");
        }
        assert!(!unit.contains("RestartPrevent"), "nothing is the last start\n{unit}");
        assert!(!unit.contains('@'), "every blank is filled in\n{unit}");
    }

    #[test]
    fn other_places_become_options() {
        let unit = text(Path::new("/data/p"), Path::new("/etc/platform.json"), Path::new("/data/d.json")).expect("fit");
        let line = "ExecStart=/data/p/bin/platform-launcher --root /data/p --defaults /data/d.json";
        assert!(unit.lines().any(|found| found == line), "{unit}");
        assert_eq!(root_in(&unit), Some("/data/p".into()));
        assert_eq!(root_in(&built_in()), Some("/opt/platform".into()));
        assert_eq!(root_in("ExecStart=/usr/bin/other\n"), None, "not ours");
    }

    #[test]
    fn paths_that_mean_more_to_systemd_are_refused() {
        for path in ["/my data", "/a%i", "/$HOME", "relative", "/a\nExecStart=/x", "/\"", "/ä"] {
            let refused = text(Path::new(path), Path::new("/c"), Path::new("/d"));
            assert_eq!(refused, Err(UnfitPath(path.into())), "{path}");
        }
    }
}
