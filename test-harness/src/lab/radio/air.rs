//! The air around a board: a process of the machine outside (`host/air.py`) that is the radio of the board's Bluetooth
//! controllers and of the phones.

use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use super::machine::Machine;
use crate::real::Trouble;

/// Starts it with these options of the script's, unless it is there, and returns when phones can come. It ends with the machine.
pub fn open(image: &Path, machine: &Machine, options: &[&str]) -> Result<(), Trouble> {
    let folder = machine.folder();
    if folder.join("air.pid").exists() {
        return Ok(());
    }
    let trouble = |error| Trouble::of(folder.display(), error);
    let log = File::create(folder.join("air.log")).map_err(trouble)?;
    let mut command = python(image, machine, Path::new("air.py"));
    command.args(options).process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
    let mut child = command.spawn().map_err(|error| Trouble::of("python3", error))?;
    fs::write(folder.join("air.pid"), child.id().to_string()).map_err(trouble)?;
    let mut line = String::new();
    if let Some(out) = child.stdout.take() {
        BufReader::new(out).read_line(&mut line).map_err(trouble)?;
    }
    if line.trim() == "open" {
        return Ok(());
    }
    let said = fs::read_to_string(folder.join("air.log")).unwrap_or_default();
    Err(Trouble(format!("the air did not open:\n{said}")))
}

/// A script of the lab, or another one, with the Bluetooth library and the module `phone`. Its first argument is the
/// board's folder.
#[must_use]
pub fn python(image: &Path, machine: &Machine, script: &Path) -> Command {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("lab/radio/host");
    let own = scripts.join(script);
    let script: PathBuf = if own.exists() { own } else { script.to_owned() };
    let path = format!("{}:{}", image.join("python").display(), scripts.display());
    let mut command = Command::new("python3");
    command.arg(script).arg(machine.folder()).env("PYTHONPATH", path).env("PYTHONDONTWRITEBYTECODE", "1");
    command
}
