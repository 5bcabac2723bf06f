//! `--uninstall`: takes away what an installation placed and what the agent wrote into its root folder, and nothing else.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use api::brand;

use super::{COMMANDS, InstallError, UNITS, WANTED_BY, failed, place, placed, say, service::Service, unit};
use crate::{end_server, lock};

/// What the agent has in its root folder (docs/on-disk.md). Other names there are other people's.
const OURS: [&str; 7] = ["bin", "versions", "state", "download", "trust", "spool", "run"];

/// What to remove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uninstall {
    /// Root folder; the one that the installed unit names unless given.
    pub root: Option<PathBuf>,
    /// Credentials file, removed only by `purge`.
    pub credentials: PathBuf,
    /// From the image below this folder instead of from the machine that runs.
    pub into: Option<PathBuf>,
    /// The identity of the machine too.
    pub purge: bool,
}

/// Removes it, and says what was removed. What is not there is no error: it may be run again.
pub fn uninstall(options: &Uninstall, ordinary_user: bool, out: &mut dyn Write) -> Result<(), InstallError> {
    let image = options.into.as_deref();
    if ordinary_user && image.is_none() {
        return Err(InstallError::NeedsRoot);
    }
    let units = placed(image, Path::new(UNITS));
    let unit_file = units.join(unit::name());
    let installed = fs::read_to_string(&unit_file).ok().as_deref().and_then(unit::root_in);
    let on_machine = options.root.clone().or(installed).unwrap_or_else(|| brand::ROOT_FOLDER.into());
    let root = placed(image, &on_machine);

    let service = Service::here(image.is_some());
    if service.is_active() {
        service.stop()?;
        say(out, &format!("stopped  {} and its machine server", unit::name()));
    }
    if root.is_dir() {
        // Nothing is taken from under an agent that runs without a service.
        drop(lock::take(&root)?);
    }
    if image.is_none()
        && root.is_dir()
        // A service that failed, or that was killed, may have left it.
        && let Some(sentence) = end_server::run_from_outside(&root, service == Service::Systemd)?
    {
        say(out, &format!("ended    {sentence}"));
    }
    let _lock = if root.is_dir() { Some(lock::take(&root)?) } else { None };
    let _ = fs::remove_file(root.join("agent.lock"));
    if place::unlink(&units.join(WANTED_BY).join(unit::name()), &Path::new("..").join(unit::name()))? {
        removed(out, &units.join(WANTED_BY).join(unit::name()));
    }
    remove_file(&unit_file, out)?;
    service.reload()?;
    let link = placed(image, &Path::new(COMMANDS).join(brand::AGENT));
    if place::unlink(&link, &on_machine.join("bin").join(brand::LAUNCHER))? {
        removed(out, &link);
    }
    for name in OURS {
        let path = root.join(name);
        match fs::symlink_metadata(&path) {
            Ok(found) if found.is_dir() => {
                fs::remove_dir_all(&path).map_err(failed("remove", &path))?;
                removed(out, &path);
            }
            Ok(_) => remove_file(&path, out)?,
            Err(_) => {}
        }
    }
    if root.is_dir() {
        match fs::remove_dir(&root) {
            Ok(()) => removed(out, &root),
            Err(_) => say(out, &format!("kept     {}, which holds other files or is a mount point", root.display())),
        }
    }
    let credentials = placed(image, &options.credentials);
    if options.purge {
        remove_file(&credentials, out)?;
    } else if credentials.exists() {
        say(out, &format!("kept     {}, the identity of this machine (--purge removes it)", credentials.display()));
    }
    Ok(())
}

fn remove_file(path: &Path, out: &mut dyn Write) -> Result<(), InstallError> {
    match fs::remove_file(path) {
        Ok(()) => {
            removed(out, path);
            Ok(())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed("remove", path)(error)),
    }
}

fn removed(out: &mut dyn Write, path: &Path) {
    say(out, &format!("removed  {}", path.display()));
}
