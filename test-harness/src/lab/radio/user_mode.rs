//! Machines whose kernel is a program of this one: nothing is emulated, and a board boots in seconds.
//!
//! `lab/radio/host/gate.py` starts the kernel and is all that stands between the board and this machine: its ports, its
//! serial lines, its way out. The board writes into a file beside the image that vanishes with it.

use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader, Write as _},
    os::unix::{net::UnixStream, process::CommandExt as _},
    path::Path,
    process::{Command, Stdio},
};

use super::{
    channel::note,
    machine::{Kind, Machine, SETUP_LIMIT, Size},
};
use crate::real::{Trouble, eventually};

/// What the kernel is given, in megabytes, so that as much is left as a small board has. It takes the rest for itself.
const SMALL: u32 = 125;

/// Boots a board and has it set itself up.
pub(super) fn start(image: &Path, kernel: &Path, folder: &Path, size: Size) -> Result<Machine, Trouble> {
    let trouble = |error| Trouble::of(folder.display(), error);
    fs::create_dir_all(folder).map_err(trouble)?;
    let log = File::create(folder.join("gate.log")).map_err(trouble)?;
    let again = log.try_clone().map_err(trouble)?;
    let memory = match size {
        Size::Megabytes(memory) => memory,
        Size::Small => SMALL,
    };
    let mut command = Command::new("python3");
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("lab/radio/host/gate.py"));
    command.args([folder, kernel, &image.join("disk")]).arg(memory.to_string());
    command.stdin(Stdio::null()).stdout(log).stderr(again).process_group(0);
    let mut child = command.spawn().map_err(|error| Trouble::of("python3", error))?;
    fs::write(folder.join("pid"), child.id().to_string()).map_err(trouble)?;
    eventually("the sockets of the board", || {
        let ended = !matches!(child.try_wait(), Ok(None));
        (ended || folder.join("control").exists()).then_some(())
    })?;
    if !matches!(child.try_wait(), Ok(None)) {
        return Err(Trouble(format!("no board was started:\n{}", note(folder, "gate.log").unwrap_or_default())));
    }
    let machine = Machine::of(Kind::UserMode, folder);
    let mut said = Vec::new();
    let done = machine.channel().and_then(|mut channel| channel.execute("lab-setup", SETUP_LIMIT, &mut said));
    if matches!(done, Ok(0)) {
        return Ok(machine);
    }
    let logs = ["gate.log", "console.log"].map(|name| note(folder, name).unwrap_or_default()).join("\n");
    let _ = machine.stop();
    Err(Trouble(format!("the board could not be set up: {done:?}\n{}\n{logs}", String::from_utf8_lossy(&said))))
}

/// Kills the kernel, and has it boot from the same disk.
pub(super) fn cut_power(folder: &Path) -> Result<(), Trouble> {
    match &*ask(folder, "power-cut")? {
        "done" => Ok(()),
        said => Err(Trouble(format!("the power was not cut: {said}"))),
    }
}

/// Opens a port of this machine's loopback that leads to a port of the house.
pub(super) fn forward(folder: &Path, port: u16) -> Result<u16, Trouble> {
    let said = ask(folder, &format!("forward {port}"))?;
    said.parse().map_err(|_| Trouble(format!("no port was opened: {said}")))
}

/// A line to the gate, and its answer.
fn ask(folder: &Path, line: &str) -> Result<String, Trouble> {
    let trouble = |error| Trouble::of("the board's gate", error);
    let mut stream = UnixStream::connect(folder.join("control")).map_err(trouble)?;
    stream.write_all(format!("{line}\n").as_bytes()).map_err(trouble)?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).map_err(trouble)?;
    Ok(answer.trim().to_owned())
}
