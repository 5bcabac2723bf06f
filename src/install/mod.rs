//! `--install` and `--uninstall`: the agent as a service of this machine, or inside an image of one.
//!
//! Owns what is placed where, in which order, and the words about it. Everything is done in an order that leaves a
//! machine with something to start at every moment, and doing it again changes nothing. Never touches the identity of
//! the machine unless it is told to, and no file that it did not place.

mod launcher;
mod place;
mod plan;
mod remove;
mod service;
pub mod unit;

use std::{
    fs,
    io::{self, Write},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use actors::update::{
    record::{Outcome, RECORD_BYTES_MAX, Record, State},
    slots::{Installed, Layout, Pointer, Slot},
};
use api::brand;
use board::files::{Access, FileError, Files as _};
use board_portable::PortableFiles;
use semver::Version;

use crate::{
    lock::{self, LockError},
    platform,
};
use plan::Plan;
pub use remove::{Uninstall, uninstall};

/// Where systemd looks for units of this machine.
const UNITS: &str = "/etc/systemd/system";
/// What starts at boot.
const WANTED_BY: &str = "multi-user.target.wants";
/// Where people and scripts find the agent.
const COMMANDS: &str = "/usr/local/bin";

/// What to install.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Install {
    /// Root folder of the agent on the machine.
    pub root: PathBuf,
    /// Credentials file.
    pub credentials: PathBuf,
    /// Manufacturer's defaults file.
    pub defaults: PathBuf,
    /// Install into the image below this folder instead of into the machine that runs.
    pub into: Option<PathBuf>,
    /// The launcher's executable; beside this one unless given.
    pub launcher: Option<PathBuf>,
    /// Also over a newer version.
    pub force: bool,
}

/// Why it was not done. Each sentence says what to do.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// Not root.
    #[error("to install a service needs root: run it with sudo, or with --into DIR to make an image")]
    NeedsRoot,
    /// No launcher to be found.
    #[error(
        "{} is not there: the launcher is a program of its own and starts the agent. Put it beside this one, or name it with --launcher FILE",
        .0.display()
    )]
    NoLauncher(PathBuf),
    /// The installed version is newer.
    #[error("version {installed} is installed, and this is {this}: add --force to go back to it")]
    Newer {
        /// The version in the active slot.
        installed: String,
        /// The version of this executable.
        this: String,
    },
    /// An agent that is no service has the root folder.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// What is given as launcher is none, or none for this machine.
    #[error("{} cannot be the launcher, {why}: give the one of this version for this machine", path.display())]
    NotLauncher {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The slots are not as they were when the copy was begun.
    #[error("another version was installed meanwhile, by the agent itself or by somebody else: try again")]
    Changed,
    /// The kernel lacks what the agent needs.
    #[error("{0}")]
    Kernel(String),
    /// A path that no unit can name.
    #[error(transparent)]
    Path(#[from] unit::UnfitPath),
    /// The disk said no.
    #[error("{0}: {source}", source = .0.source)]
    File(#[from] FileError),
    /// The disk said no to something else.
    #[error("could not {what} {}: {source}", path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// With what.
        path: PathBuf,
        /// What the system answered.
        source: io::Error,
    },
    /// The copy is not the original: a disk that loses what it is given.
    #[error("{} is not what was written to it: the disk may be broken", .0.display())]
    Torn(PathBuf),
    /// The service manager said no.
    #[error("{command} failed: {said}")]
    Service {
        /// What was run.
        command: String,
        /// What it said.
        said: String,
    },
}

/// An error of the system about a path.
fn failed<'a>(what: &'static str, path: &'a Path) -> impl Fn(io::Error) -> InstallError + use<'a> {
    move |source| InstallError::Io { what, path: path.to_owned(), source }
}

/// Where a path of the machine is now: the same, or inside the image.
fn placed(into: Option<&Path>, path: &Path) -> PathBuf {
    match into {
        Some(image) => image.join(path.strip_prefix("/").unwrap_or(path)),
        None => path.to_owned(),
    }
}

/// Installs this executable, which is of that version, and says what it did. Asks systemd only where systemd runs and no image is made.
pub async fn install(
    options: &Install,
    version: &str,
    ordinary_user: bool,
    out: &mut dyn Write,
) -> Result<(), InstallError> {
    let image = options.into.as_deref();
    if ordinary_user && image.is_none() {
        return Err(InstallError::NeedsRoot);
    }
    if image.is_none()
        && let Some(why) = platform::kernel_trouble()
    {
        return Err(InstallError::Kernel(why));
    }
    let unit_text = unit::text(&options.root, &options.credentials, &options.defaults)?;
    let root = placed(image, &options.root);
    let layout = Layout::new(&root, brand::AGENT);
    let this = std::env::current_exe().map_err(failed("find", Path::new("/proc/self/exe")))?;
    let launcher = root.join("bin").join(brand::LAUNCHER);
    let launcher_from = find_launcher(options, &this, &launcher)?;

    // Decided before anything is touched.
    let content = {
        let digest = PortableFiles.digest(&this).await?;
        Installed { version: version.to_owned(), sha256: digest.sha256, length: digest.len, pin: None }
    };
    let record = present(&layout).await?;
    let plan = plan::plan(&record, &content);
    if let Plan::Older { installed } = &plan
        && !options.force
    {
        return Err(InstallError::Newer { installed: installed.clone(), this: version.to_owned() });
    }

    let service = service::Service::here(image.is_some());
    let slot = plan.slot(&record);
    make_folders(&root, out)?;
    // Everything that needs room, or may turn out to be unfit, while the service still runs.
    let program = match slot {
        Some(slot) => Some(place::program(&this, &layout.executable(slot), Some(&content)).await?),
        None => None,
    };
    let launchers = Launchers::prepare(launcher_from.as_deref(), &launcher, image.is_none()).await?;
    let stopped = slot.is_some() && service.is_active();
    let put = async {
        if stopped {
            say(out, &format!("stopped    {}, to put another version in place", unit::name()));
            service.stop()?;
        }
        match (slot, program) {
            (Some(slot), Some(program)) => {
                let _lock = lock::take_soon(&root)?;
                // The agent may have updated itself while this was copied.
                let record = present(&layout).await?;
                if plan::plan(&record, &content) != plan || plan.slot(&record) != Some(slot) {
                    return Err(InstallError::Changed);
                }
                program.put()?;
                settle(&layout, record, slot, content)?;
                say(out, &format!("copied     {}", layout.executable(slot).display()));
                // Its file names a process that is no agent.
                let _ = fs::remove_file(root.join("agent.lock"));
            }
            // An agent may be running: nothing of its state is touched.
            _ => say(out, &format!("kept       version {} in its slot", content.version)),
        }
        launchers.put(&launcher, out)?;
        put_names(options, &unit_text, out)
    };
    let put = put.await;
    if put.is_err() && stopped {
        // Better the version that was there than none.
        say(out, &format!("started    {} again, as it was not done", unit::name()));
        service.start()?;
    }
    let new_unit = put?;
    service.settle(slot.is_some(), new_unit, out)?;
    make_secret(&placed(image, &options.credentials), options, out)
}

/// The launcher that is to be put into its place, and the one that is kept for the day when it is broken.
struct Launchers {
    new: Option<place::Ready>,
    previous: Option<place::Ready>,
}

impl Launchers {
    /// Copies beside their places what has to be copied, and looks at it. `tries` says that it can be run here.
    async fn prepare(from: Option<&Path>, installed: &Path, tries: bool) -> Result<Launchers, InstallError> {
        let previous = launcher::previous(installed);
        let keep = async |from: &Path| place::program(from, &previous, None).await.map(Some);
        let check =
            |file: &Path| launcher::look(file).and_then(|()| if tries { launcher::try_it(file) } else { Ok(()) });
        let works = installed.is_file() && check(installed).is_ok();
        let from = from.unwrap_or(installed);
        launcher::look(from)?;
        if works && place::same(from, installed).await {
            let missing = !previous.is_file();
            return Ok(Launchers { new: None, previous: if missing { keep(installed).await? } else { None } });
        }
        let new = place::program(from, installed, None).await?;
        if tries {
            launcher::try_it(new.path())?;
        }
        // What did not work is not kept over one that may.
        let previous = match works {
            true => keep(installed).await?,
            false if previous.is_file() => None,
            false => keep(from).await?,
        };
        Ok(Launchers { new: Some(new), previous })
    }

    /// The one before first: at no moment is there none that works.
    fn put(self, installed: &Path, out: &mut dyn Write) -> Result<(), InstallError> {
        if let Some(previous) = self.previous {
            previous.put()?;
        }
        if let Some(new) = self.new {
            new.put()?;
            say(out, &format!("copied     {}", installed.display()));
        }
        Ok(())
    }
}

/// The command, the unit, and what starts it at boot; says whether the unit is another one than before.
fn put_names(options: &Install, unit_text: &str, out: &mut dyn Write) -> Result<bool, InstallError> {
    let image = options.into.as_deref();
    let link = placed(image, &Path::new(COMMANDS).join(brand::AGENT));
    match place::link(&link, &options.root.join("bin").join(brand::LAUNCHER)) {
        Ok(true) => say(out, &format!("linked     {}", link.display())),
        Ok(false) => {}
        // On some images this folder is read-only; the service does without.
        Err(error) => say(out, &format!("not linked {}: {error}", link.display())),
    }
    let units = placed(image, Path::new(UNITS));
    let unit_file = units.join(unit::name());
    let new_unit = place::text(&unit_file, unit_text)?;
    if new_unit {
        say(out, &format!("written    {}", unit_file.display()));
    }
    if place::link(&units.join(WANTED_BY).join(unit::name()), &Path::new("..").join(unit::name()))
        .map_err(failed("make the link", &units))?
    {
        say(out, "enabled    it starts at boot");
    }
    Ok(new_unit)
}

/// The identity is for nobody else's eyes.
fn make_secret(credentials: &Path, options: &Install, out: &mut dyn Write) -> Result<(), InstallError> {
    let Ok(found) = fs::metadata(credentials) else {
        let place = options.credentials.display();
        say(out, &format!("next       put this machine's credentials at {place}; the agent waits for them"));
        return Ok(());
    };
    if found.permissions().mode() & 0o077 != 0 {
        PortableFiles.set_access(credentials, Access::Private)?;
        say(out, &format!("closed     {}, which others could read", credentials.display()));
    }
    Ok(())
}

/// To standard output; nobody may read it any more, which is no reason to stop half-way.
fn say(out: &mut dyn Write, line: &str) {
    let _ = writeln!(out, "{line}");
}

/// The launcher to be copied; `None` when the installed one is the only one there is.
fn find_launcher(options: &Install, this: &Path, installed: &Path) -> Result<Option<PathBuf>, InstallError> {
    let beside = this.with_file_name(brand::LAUNCHER);
    match &options.launcher {
        Some(named) if named.is_file() => Ok(Some(named.clone())),
        Some(named) => Err(InstallError::NoLauncher(named.clone())),
        None if beside.is_file() => Ok(Some(beside)),
        None if installed.is_file() => Ok(None),
        None => Err(InstallError::NoLauncher(beside)),
    }
}

/// What the slots hold now.
async fn present(layout: &Layout) -> Result<Record, InstallError> {
    let mut record = stored(layout)?;
    record.slots.reconcile(lengths(layout)?);
    forget_what_is_not_there(layout, &mut record).await;
    Ok(record)
}

/// What is stored about the slots. What cannot be read counts for nothing, as for the agent.
fn stored(layout: &Layout) -> Result<Record, InstallError> {
    let bytes = PortableFiles.read(&layout.record(), RECORD_BYTES_MAX).unwrap_or_default();
    Ok(bytes.and_then(|bytes| Record::decode(&bytes).ok()).unwrap_or_default())
}

fn lengths(layout: &Layout) -> Result<[Option<u64>; 2], InstallError> {
    let length = |slot| fs::metadata(layout.executable(slot)).ok().filter(fs::Metadata::is_file).map(|file| file.len());
    Ok(Slot::ALL.map(length))
}

/// A slot whose bytes are not those of the record holds nothing that may be kept.
async fn forget_what_is_not_there(layout: &Layout, record: &mut Record) {
    for slot in Slot::ALL {
        let Some(content) = record.slots.content(slot) else { continue };
        let digest = PortableFiles.digest(&layout.executable(slot)).await;
        if digest.map_or(true, |digest| digest.sha256 != content.sha256) {
            record.slots.set(slot, None);
        }
    }
    if record.slots.active().is_none() {
        record.slots.active = Slot::ALL.into_iter().find(|slot| record.slots.content(*slot).is_some());
    }
}

fn make_folders(root: &Path, out: &mut dyn Write) -> Result<(), InstallError> {
    let folders = [
        (root.to_owned(), Access::Readable),
        (root.join("bin"), Access::Readable),
        (root.join("versions"), Access::Readable),
        (root.join("versions").join(brand::AGENT), Access::Readable),
        (root.join("state"), Access::Private),
    ];
    for (folder, access) in folders {
        if !folder.is_dir() {
            PortableFiles.make_folder(&folder, access)?;
            say(out, &format!("made       {}", folder.display()));
        } else if access == Access::Private {
            // Somebody else may have made it.
            fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).map_err(failed("close", &folder))?;
        }
    }
    for slot in Slot::ALL {
        PortableFiles.make_folder(&root.join("versions").join(brand::AGENT).join(slot.name()), Access::Readable)?;
    }
    Ok(())
}

/// From now on this slot is started. The record first: it is the truth, and the pointer follows it.
fn settle(layout: &Layout, mut record: Record, slot: Slot, content: Installed) -> Result<(), InstallError> {
    record.bad.retain(|bad| bad.sha256 != content.sha256);
    record.slots.set(slot, Some(content));
    record.slots.active = Some(slot);
    // What was under way is overtaken by somebody's own hands.
    record.state = State::Idle(Outcome::None);
    PortableFiles.write(&layout.record(), &record.encode(), Access::Private)?;
    PortableFiles.write(&layout.pointer(), Pointer::kept(slot).text().as_bytes(), Access::Readable)?;
    // Starts that were counted were another version's.
    PortableFiles.remove(&layout.starts())?;
    Ok(())
}

/// Whether `installed` is a later version than `this`; what is no version is not compared.
fn is_newer(installed: &str, this: &str) -> bool {
    matches!((Version::parse(installed), Version::parse(this)), (Ok(installed), Ok(this)) if installed > this)
}
