//! `deprovision`: this device forgets whose it is, as before it is given to somebody else.
//!
//! Owns what is forgotten: the identity, every network that the agent made, the configuration in force, and the log lines
//! that wait. Programs stay, and what is believed of releases: the next owner has the same hardware. What was begun is
//! finished after a power cut: a mark is stored before the first thing is forgotten.

use std::{
    fs,
    io::{self, BufRead as _, Write as _},
    path::{Path, PathBuf},
    process::ExitCode,
    rc::Rc,
    thread,
    time::{Duration, Instant},
};

use actors::console::{ASK_DEPROVISION, HEARD};
use api::brand;
use board::{
    files::{Access, FileError, Files as _},
    network::{Manager, Networks},
};
use board_portable::PortableFiles;
use smol::LocalExecutor;

use crate::{
    lock, platform,
    status::{self, StatusError},
};

/// The agent stops its machine server before it forgets; that may take two minutes.
const PATIENCE: Duration = Duration::from_secs(200);
/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Content of the mark.
const BEGUN: &[u8] = b"1\n";
/// Longest mark that is read.
const MARK_BYTES_MAX: usize = 16;
/// How long a network manager that is just being started is waited for.
const MANAGER_TAKES_MAX: Duration = Duration::from_secs(10);

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Root folder of the agent.
    pub root: PathBuf,
    /// Credentials file.
    pub credentials: PathBuf,
    /// Nobody needs to be asked.
    pub yes: bool,
}

/// Asks whoever is there, then lets the running agent forget, or does it here when none runs.
#[must_use]
pub fn run(options: &Options) -> ExitCode {
    let failed = |why: &str| {
        eprintln!("{}: {why}", brand::AGENT);
        ExitCode::from(status::NOT_RUNNING)
    };
    if !options.yes && !is_meant() {
        return failed("nothing was changed");
    }
    match status::question(&options.root, ASK_DEPROVISION) {
        Ok(answer) if answer == HEARD.as_bytes() => wait(options),
        Ok(answer) => failed(&status::strange(&options.root, &answer).to_string()),
        Err(StatusError::NotRunning { .. }) => match here(options) {
            Ok(()) => done(),
            Err(why) => failed(&why),
        },
        Err(error) => {
            eprintln!("{}: {error}", brand::AGENT);
            ExitCode::from(error.exit())
        }
    }
}

fn is_meant() -> bool {
    let mut out = io::stdout();
    let question = "This device forgets whose it is: its credentials, the networks it was given, its settings and the log \
                    lines that wait.\nIt can be reached again only by whoever sets it up. Type yes to go on: ";
    let asked = out.write_all(question.as_bytes()).and_then(|()| out.flush());
    let mut line = String::new();
    asked.is_ok() && io::stdin().lock().read_line(&mut line).is_ok() && line.trim() == "yes"
}

fn done() -> ExitCode {
    println!("this device belongs to nobody now");
    ExitCode::SUCCESS
}

/// The agent has heard it: it stops its machine server, forgets, and ends.
fn wait(options: &Options) -> ExitCode {
    let begin = Instant::now();
    while is_begun(&options.root) || options.credentials.exists() {
        if begin.elapsed() > PATIENCE {
            eprintln!("{}: the agent has heard it and is not done yet: its log says why", brand::AGENT);
            return ExitCode::from(status::NOT_RUNNING);
        }
        thread::sleep(LOOK_EVERY);
    }
    done()
}

/// No agent runs.
fn here(options: &Options) -> Result<(), String> {
    let Options { root, credentials, .. } = options;
    let _lock = if root.is_dir() { Some(lock::take(root).map_err(|error| error.to_string())?) } else { None };
    if root.is_dir() {
        begin(root).map_err(|error| format!("{error}: {}", error.source))?;
    }
    let executor = Rc::new(LocalExecutor::new());
    let networks = platform::networks(&executor);
    let outcome = smol::future::block_on(executor.run(finish(root, credentials, networks)));
    outcome.map_err(|trouble| trouble.join("; "))
}

fn mark(root: &Path) -> PathBuf {
    root.join("state").join("deprovisioning")
}

/// From now on the device forgets, whatever happens to the power.
pub fn begin(root: &Path) -> Result<(), FileError> {
    PortableFiles.write(&mark(root), BEGUN, Access::Private)
}

/// Whether it was begun and not finished. What cannot be read is no mark: a worn disk must not make a device forget.
#[must_use]
pub fn is_begun(root: &Path) -> bool {
    match PortableFiles.read(&mark(root), MARK_BYTES_MAX) {
        Ok(content) => content.is_some_and(|content| content == BEGUN),
        Err(error) => {
            log::error!("{error}: {}; nothing is forgotten because of it", error.source);
            false
        }
    }
}

/// Forgets everything, the identity first; says what could not be forgotten. No actor may run any more, or yet.
pub async fn finish(root: &Path, credentials: &Path, networks: Option<Rc<dyn Networks>>) -> Result<(), Vec<String>> {
    let mut trouble = Vec::new();
    for path in files(root, credentials) {
        if let Err(error) = PortableFiles.remove(&path) {
            trouble.push(format!("{error}: {}", error.source));
        }
    }
    if let Some(networks) = networks
        && let Err(why) = forget_networks(&*networks).await
    {
        trouble.push(why);
    }
    // Whatever is left, it is not tried again: by then the device may belong to somebody else.
    if let Err(error) = PortableFiles.remove(&mark(root)) {
        trouble.push(format!("{error}: {}", error.source));
    }
    if trouble.is_empty() { Ok(()) } else { Err(trouble) }
}

/// What is removed, in this order.
fn files(root: &Path, credentials: &Path) -> Vec<PathBuf> {
    /// In the folder `state`: names that begin like this.
    const STATE: [&str; 3] = ["config.cache", "restarts.counter", "network.record"];
    let below = |folder: PathBuf, ours: &dyn Fn(&str) -> bool| -> Vec<PathBuf> {
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        let mut found: Vec<_> = entries
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()))
            .filter(|entry| ours(&entry.file_name().to_string_lossy()))
            .map(|entry| entry.path())
            .collect();
        found.sort();
        found
    };
    let mut found = vec![credentials.to_owned()];
    found.extend(below(root.join("state"), &|name| STATE.iter().any(|ours| name.starts_with(ours))));
    found.extend(below(root.join("spool"), &|_| true));
    found
}

async fn forget_networks(networks: &dyn Networks) -> Result<(), String> {
    let ready = async {
        while networks.links().manager != Manager::Ready {
            networks.changed().await;
        }
        true
    };
    let late = async {
        smol::Timer::after(MANAGER_TAKES_MAX).await;
        false
    };
    if !smol::future::or(ready, late).await {
        return Err("the networks that it was given stay: no network manager answers".to_owned());
    }
    let left = |error| format!("a network that it was given stays: {error}");
    for profile in networks.profiles().await.map_err(left)? {
        networks.remove(&profile.key).await.map_err(left)?;
    }
    networks.close_hotspot().await.map_err(left)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device() -> (tempfile::TempDir, PathBuf, PathBuf) {
        let folder = tempfile::tempdir().expect("a folder");
        let (root, credentials) = (folder.path().join("root"), folder.path().join("platform.json"));
        for path in [
            "state/config.cache",
            "state/config.cache.set-aside",
            "state/restarts.counter",
            "state/network.record",
            "state/platform-agent.record",
            "state/agent.life",
            "spool/1.log",
            "trust/numbers",
            "versions/platform-agent/a/platform-agent",
        ] {
            let path = root.join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, "planted").expect("written");
        }
        fs::write(&credentials, "planted secret").expect("written");
        (folder, root, credentials)
    }

    fn left(root: &Path) -> Vec<String> {
        let mut found = Vec::new();
        for folder in ["state", "spool", "trust", "versions/platform-agent/a"] {
            for entry in fs::read_dir(root.join(folder)).expect("a folder").flatten() {
                found.push(entry.file_name().to_string_lossy().into_owned());
            }
        }
        found.sort();
        found
    }

    #[test]
    fn what_belongs_to_the_owner_goes_and_what_belongs_to_the_hardware_stays() {
        let (_folder, root, credentials) = device();
        begin(&root).expect("stored");
        assert!(is_begun(&root));
        smol::block_on(finish(&root, &credentials, None)).expect("nothing is in the way");
        assert!(!credentials.exists() && !is_begun(&root));
        assert_eq!(left(&root), ["agent.life", "numbers", "platform-agent", "platform-agent.record"]);
        smol::block_on(finish(&root, &credentials, None)).expect("twice is once");
    }

    #[test]
    fn a_mark_that_cannot_be_read_is_none() {
        let (_folder, root, _credentials) = device();
        fs::create_dir(mark(&root)).expect("made");
        assert!(!is_begun(&root), "a folder");
        fs::remove_dir(mark(&root)).expect("removed");
        for content in [&b""[..], b"1", &[0; 4096]] {
            fs::write(mark(&root), content).expect("written");
            assert!(!is_begun(&root), "{} bytes", content.len());
        }
    }

    #[test]
    fn what_was_begun_is_known_after_a_power_cut() {
        let (_folder, root, credentials) = device();
        assert!(!is_begun(&root));
        begin(&root).expect("stored");
        fs::remove_file(&credentials).expect("the power goes here");
        assert!(is_begun(&root));
        smol::block_on(finish(&root, &credentials, None)).expect("finished");
        assert!(!left(&root).contains(&"config.cache".to_owned()));
    }
}
