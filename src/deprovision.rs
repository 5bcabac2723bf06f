//! `deprovision`: this device forgets whose it is, as before it is given to somebody else.
//!
//! Owns what is forgotten: the identity, every network that the agent made, the configuration in force, and the log lines
//! that wait. Programs stay, and what is believed of releases: the next owner has the same hardware. What was begun is
//! finished after a power cut: a mark is stored before the first thing is forgotten.

use std::{
    io::{self, BufRead as _, Write as _},
    path::{Path, PathBuf},
    process::ExitCode,
    rc::Rc,
    thread,
    time::{Duration, Instant},
};

use actors::{
    console::{ASK_DEPROVISION, HEARD},
    network::profiles::{is_given, successor},
};
use api::brand;
use board::{
    files::{Access, FileError, Files},
    network::{Manager, Networks, Profile},
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
/// The same once the identity is gone.
const REST: &[u8] = b"2\n";
/// Longest mark that is read.
const MARK_BYTES_MAX: usize = 16;
/// How long a network manager that is just being started is waited for.
pub const MANAGER_TAKES_MAX: Duration = Duration::from_secs(10);
/// Said where it did not come.
const LEFT: &str = "this device belongs to nobody, and networks that it was given stay with their passwords: no network \
                    manager answers. They go when one does, unless somebody owns the device by then";

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
    let mut left_since = None;
    loop {
        let stage = stage(&PortableFiles, &options.root);
        match (stage, options.credentials.exists()) {
            (Stage::Nothing, false) => return done(),
            (Stage::Left, false) if left_since.get_or_insert(Instant::now()).elapsed() > 2 * MANAGER_TAKES_MAX => {
                eprintln!("{}: {LEFT}", brand::AGENT);
                return ExitCode::from(status::NOT_RUNNING);
            }
            _ if begin.elapsed() > PATIENCE => {
                eprintln!("{}: the agent has heard it and is not done yet: its log says why", brand::AGENT);
                return ExitCode::from(status::NOT_RUNNING);
            }
            _ => thread::sleep(LOOK_EVERY),
        }
    }
}

/// No agent runs.
fn here(options: &Options) -> Result<(), String> {
    let Options { root, credentials, .. } = options;
    let _lock = if root.is_dir() { Some(lock::take(root).map_err(|error| error.to_string())?) } else { None };
    if root.is_dir() {
        begin(&PortableFiles, root).map_err(|error| format!("{error}: {}", error.source))?;
    }
    let executor = Rc::new(LocalExecutor::new());
    let networks = platform::networks(&executor);
    let late = async {
        smol::Timer::after(MANAGER_TAKES_MAX).await;
    };
    let forgetting = finish(&PortableFiles, root, credentials, networks, late);
    smol::future::block_on(executor.run(forgetting)).map_err(|trouble| trouble.join("; "))
}

fn mark(root: &Path) -> PathBuf {
    root.join("state").join("deprovisioning")
}

/// From now on the device forgets, whatever happens to the power.
pub fn begin(files: &dyn Files, root: &Path) -> Result<(), FileError> {
    files.write(&mark(root), BEGUN, Access::Private)
}

/// How far forgetting has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Nothing is to be forgotten.
    Nothing,
    /// It was begun: whoever the device belongs to is to be forgotten.
    Begun,
    /// It belongs to nobody, and something of whom it belonged to is still there.
    Left,
}

/// What was begun and not finished. What cannot be read is no mark: a worn disk must not make a device forget.
#[must_use]
pub fn stage(files: &dyn Files, root: &Path) -> Stage {
    match files.read(&mark(root), MARK_BYTES_MAX).map(Option::unwrap_or_default) {
        Ok(content) if content == BEGUN => Stage::Begun,
        Ok(content) if content == REST => Stage::Left,
        Ok(_) => Stage::Nothing,
        Err(error) => {
            log::error!("{error}: {}; nothing is forgotten because of it", error.source);
            Stage::Nothing
        }
    }
}

/// Forgets what is to be forgotten, the identity first; says what could not be. No actor may run any more, or yet. `late`
/// resolves when a network manager that is being started has been waited for long enough.
///
/// What is left is tried again by [`finish_late`] and by the next start, for as long as the device belongs to nobody:
/// whatever there is when somebody has given it an identity may be his.
pub async fn finish(
    files: &dyn Files,
    root: &Path,
    credentials: &Path,
    networks: Option<Rc<dyn Networks>>,
    late: impl Future<Output = ()>,
) -> Result<(), Vec<String>> {
    let said = |error: FileError| format!("{error}: {}", error.source);
    let mut trouble = Vec::new();
    match stage(files, root) {
        Stage::Left if is_somebodys(files, credentials) => {
            return files.remove(&mark(root)).map_err(|error| vec![said(error)]);
        }
        Stage::Left => {}
        Stage::Begun | Stage::Nothing => {
            if let Err(error) = files.remove(credentials) {
                // It stays whose it is, as a whole, and is not tried again when it may be somebody else's.
                trouble.push(said(error));
                trouble.extend(files.remove(&mark(root)).err().map(said));
                return Err(trouble);
            }
            trouble.extend(files.write(&mark(root), REST, Access::Private).err().map(said));
        }
    }
    forget_files(files, root, &mut trouble);
    if let Some(networks) = networks {
        let there = async {
            ready(&*networks).await;
            true
        };
        let is_there = smol::future::or(there, async {
            late.await;
            false
        });
        match is_there.await {
            true => forget_networks(&*networks, |_| true, &mut trouble).await,
            false => trouble.push(LEFT.to_owned()),
        }
        if let Err(error) = networks.close_hotspot().await
            && networks.links().manager == Manager::Ready
        {
            trouble.push(format!("the hotspot stays: {error}"));
        }
    }
    if trouble.is_empty() {
        trouble.extend(files.remove(&mark(root)).err().map(said));
    }
    if trouble.is_empty() { Ok(()) } else { Err(trouble) }
}

/// The same for what [`finish`] has left, while the agent runs: when the network manager answers at last, the networks
/// that the last owner's people had given go. Those that the configuration named go as any that it no longer names.
pub async fn finish_late(files: &dyn Files, root: &Path, credentials: &Path, networks: Option<Rc<dyn Networks>>) {
    let Some(networks) = networks.filter(|_| stage(files, root) == Stage::Left) else { return };
    ready(&*networks).await;
    if is_somebodys(files, credentials) || stage(files, root) != Stage::Left {
        return;
    }
    let mut trouble = Vec::new();
    // What was there before a change that is not proven is theirs, too.
    let theirs = |profile: &Profile| is_given(profile) || successor(&profile.key).is_some();
    forget_networks(&*networks, theirs, &mut trouble).await;
    forget_files(files, root, &mut trouble);
    if trouble.is_empty() {
        trouble.extend(files.remove(&mark(root)).err().map(|error| format!("{error}: {}", error.source)));
    }
    match trouble.is_empty() {
        true => log::warn!("nothing of whom this device belonged to is left"),
        false => trouble.iter().for_each(|why| log::error!("{why}; it is tried again at the next start")),
    }
}

/// Whether there are credentials; what cannot be looked at is somebody's.
fn is_somebodys(files: &dyn Files, credentials: &Path) -> bool {
    // More than nothing is too long for this look, which is an error too.
    !files.read(credentials, 0).is_ok_and(|content| content.unwrap_or_default().is_empty())
}

fn forget_files(files: &dyn Files, root: &Path, trouble: &mut Vec<String>) {
    /// In the folder `state`: names that begin like this.
    const STATE: [&str; 3] = ["config.cache", "restarts.counter", "network.record"];
    let folders = [(root.join("state"), &STATE[..]), (root.join("spool"), &[""])];
    for (folder, ours) in folders {
        let entries = files.list(&folder).unwrap_or_else(|error| {
            trouble.push(format!("{error}: {}", error.source));
            Vec::new()
        });
        for entry in entries.iter().filter(|entry| ours.iter().any(|ours| entry.name.starts_with(ours))) {
            if let Err(error) = files.remove(&folder.join(&entry.name)) {
                trouble.push(format!("{error}: {}", error.source));
            }
        }
    }
}

async fn ready(networks: &dyn Networks) {
    while networks.links().manager != Manager::Ready {
        networks.changed().await;
    }
}

/// One that cannot be removed keeps none of the others.
async fn forget_networks(networks: &dyn Networks, which: impl Fn(&Profile) -> bool, trouble: &mut Vec<String>) {
    let profiles = match networks.profiles().await {
        Ok(profiles) => profiles,
        Err(error) => return trouble.push(format!("the networks that it was given stay: {error}")),
    };
    for profile in profiles.iter().filter(|profile| which(profile)) {
        if let Err(error) = networks.remove(&profile.key).await {
            trouble.push(format!("a network that it was given stays: {error}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

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

    fn forget(root: &Path, credentials: &Path) -> Result<(), Vec<String>> {
        smol::block_on(finish(&PortableFiles, root, credentials, None, std::future::pending()))
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
        begin(&PortableFiles, &root).expect("stored");
        assert!((stage(&PortableFiles, &root) == Stage::Begun));
        forget(&root, &credentials).expect("nothing is in the way");
        assert!(!credentials.exists() && !(stage(&PortableFiles, &root) == Stage::Begun));
        assert_eq!(left(&root), ["agent.life", "numbers", "platform-agent", "platform-agent.record"]);
        forget(&root, &credentials).expect("twice is once");
    }

    #[test]
    fn a_mark_that_cannot_be_read_is_none() {
        let (_folder, root, _credentials) = device();
        fs::create_dir(mark(&root)).expect("made");
        assert!(!(stage(&PortableFiles, &root) == Stage::Begun), "a folder");
        fs::remove_dir(mark(&root)).expect("removed");
        for content in [&b""[..], b"1", &[0; 4096]] {
            fs::write(mark(&root), content).expect("written");
            assert!(!(stage(&PortableFiles, &root) == Stage::Begun), "{} bytes", content.len());
        }
    }

    #[test]
    fn what_was_begun_is_known_after_a_power_cut() {
        let (_folder, root, credentials) = device();
        assert!(!(stage(&PortableFiles, &root) == Stage::Begun));
        begin(&PortableFiles, &root).expect("stored");
        fs::remove_file(&credentials).expect("the power goes here");
        assert!((stage(&PortableFiles, &root) == Stage::Begun));
        forget(&root, &credentials).expect("finished");
        assert!(!left(&root).contains(&"config.cache".to_owned()));
    }

    #[test]
    fn what_is_left_goes_only_while_it_is_nobody_s() {
        let (_folder, root, credentials) = device();
        fs::write(mark(&root), REST).expect("written");
        assert_eq!(stage(&PortableFiles, &root), Stage::Left);
        // Somebody has given it an identity since: what there is may be his.
        forget(&root, &credentials).expect("nothing to do");
        assert!(credentials.exists() && root.join("state/config.cache").exists());
        assert_eq!(stage(&PortableFiles, &root), Stage::Nothing);
        fs::write(mark(&root), REST).expect("written");
        fs::remove_file(&credentials).expect("removed");
        forget(&root, &credentials).expect("the rest goes");
        assert!(!root.join("state/config.cache").exists());
        assert_eq!(stage(&PortableFiles, &root), Stage::Nothing);
    }

    #[test]
    fn whose_identity_cannot_be_removed_is_not_half_forgotten() {
        let (_folder, root, credentials) = device();
        fs::remove_file(&credentials).expect("removed");
        fs::create_dir_all(credentials.join("inside")).expect("a folder in its place cannot be removed as a file");
        begin(&PortableFiles, &root).expect("stored");
        let said = forget(&root, &credentials).expect_err("it cannot be removed");
        assert!(said[0].contains("platform.json"), "{said:?}");
        assert!(root.join("state/config.cache").exists() && root.join("spool/1.log").exists());
        assert_eq!(stage(&PortableFiles, &root), Stage::Nothing, "by the next start it may be somebody else's");
    }
}
