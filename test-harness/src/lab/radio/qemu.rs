//! Machines under qemu, and the state that all of them start from.
//!
//! Booting takes half a minute, so it is done once: the state of a board that is up is saved beside the image, and each
//! board is that one, gone on from there, with changes to the disk of its own that vanish with it.

use std::{
    fs::{self, File},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::json;

use super::{
    channel::{PORTS, note},
    machine::{Kind, Machine, SETUP_LIMIT},
    qmp::Qmp,
};
use crate::real::{Trouble, eventually};

/// The kernel's words. No mitigations and no audit: every instruction is emulated.
const KERNEL: &str =
    "root=/dev/vda rw quiet panic=-1 mitigations=off random.trust_cpu=on audit=0 net.ifnames=0 console=";

/// What differs between machines of different processors.
struct Processor {
    program: &'static str,
    machine: &'static str,
    model: &'static str,
    console: &'static str,
}

/// The ordinary one.
const X86_64: Processor = Processor { program: "qemu-system-x86_64", machine: "q35", model: "max", console: "ttyS0" };
/// That of most small boards.
const ARM64: Processor = Processor {
    program: "qemu-system-aarch64",
    machine: "virt,gic-version=3",
    model: "cortex-a53",
    console: "ttyAMA0",
};

/// The one that the image is for.
fn processor(image: &Path) -> &'static Processor {
    if image.join("arm64").exists() { &ARM64 } else { &X86_64 }
}

/// Goes on from the saved state, which is made first if there is none. The board's clock still stands at that time.
pub(super) fn start(image: &Path, folder: &Path, memory: u32) -> Result<Machine, Trouble> {
    let state = state(image, memory)?;
    let incoming = format!("exec:cat '{}'", state.join("memory").display());
    let machine = launch(image, &state.join("disk"), folder, memory, Some(&incoming))?;
    let mut qmp = open(folder)?;
    eventually("the restored state", || {
        let status = qmp.call("query-status", json!({})).ok()?;
        (status["status"] != "inmigrate").then_some(())
    })?;
    qmp.call("cont", json!({}))?;
    Ok(machine)
}

/// Resets the board.
pub(super) fn cut_power(folder: &Path) -> Result<(), Trouble> {
    open(folder)?.call("system_reset", json!({})).map(drop)
}

/// Plugs the cable of `eth0` in or out.
pub(super) fn plug_cable(folder: &Path, plugged: bool) -> Result<(), Trouble> {
    open(folder)?.call("set_link", json!({"name": "own-nic", "up": plugged})).map(drop)
}

/// Takes memory away from the board, down to so many megabytes of all that it has (`MemTotal`). For good: it is not given
/// back when the board is out of memory.
pub(super) fn squeeze(machine: &Machine, megabytes: u32) -> Result<(), Trouble> {
    let kibibytes = u64::from(megabytes) * 1024;
    let before = machine.total_memory()?;
    let mut qmp = open(machine.folder())?;
    let whole = qmp.call("query-balloon", json!({}))?["actual"].as_u64().unwrap_or_default();
    let wanted = whole.saturating_sub(before * 1024) + kibibytes * 1024;
    qmp.call("balloon", json!({"value": wanted}))?;
    eventually("a board with less memory", || machine.total_memory().ok().filter(|now| *now <= kibibytes)).map(drop)
}

/// Opens a port of this machine's loopback that leads to a port of the house.
pub(super) fn forward(folder: &Path, port: u16) -> Result<u16, Trouble> {
    let mut qmp = open(folder)?;
    let mut monitor = |line: &str| -> Result<String, Trouble> {
        let said = qmp.call("human-monitor-command", json!({"command-line": line}))?;
        Ok(said.as_str().unwrap_or_default().to_owned())
    };
    // Port 0 is any that is free; which one it was is only told in a table.
    monitor(&format!("hostfwd_add way tcp:127.0.0.1:0-:{port}"))?;
    let table = monitor("info usernet")?;
    let row = table.lines().rev().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let at = words.iter().position(|word| word.starts_with("TCP[HOST_FORWARD"))?;
        (words.get(at + 5)?.parse() == Ok(port)).then(|| words.get(at + 3)?.parse().ok()).flatten()
    });
    row.ok_or_else(|| Trouble(format!("no forwarded port in qemu's table:\n{table}")))
}

/// Has qemu end; false when it has to be killed.
pub(super) fn quit(folder: &Path) -> bool {
    open(folder).and_then(|mut qmp| qmp.call("quit", json!({}))).is_ok()
}

fn open(folder: &Path) -> Result<Qmp, Trouble> {
    Qmp::open(&folder.join("qmp"))
}

/// Starts qemu in the background and waits for its sockets.
fn launch(image: &Path, disk: &Path, folder: &Path, memory: u32, incoming: Option<&str>) -> Result<Machine, Trouble> {
    let trouble = |error| Trouble::of(folder.display(), error);
    fs::create_dir_all(folder).map_err(trouble)?;
    let log = File::create(folder.join("qemu.log")).map_err(trouble)?;
    let again = log.try_clone().map_err(trouble)?;
    let program = processor(image).program;
    let mut command = Command::new(program);
    command.args(hardware(processor(image), image, disk, folder, memory, incoming.is_some()));
    if let Some(incoming) = incoming {
        command.args(["-incoming", incoming]);
    }
    command.stdin(Stdio::null()).stdout(log).stderr(again).process_group(0);
    let mut child = command.spawn().map_err(|error| Trouble::of(program, error))?;
    fs::write(folder.join("pid"), child.id().to_string()).map_err(trouble)?;
    let machine = Machine::of(Kind::Qemu, folder);
    eventually("the sockets of qemu", || {
        let ended = !matches!(child.try_wait(), Ok(None));
        (ended || Qmp::open(&folder.join("qmp")).is_ok()).then_some(())
    })?;
    if let Ok(None) = child.try_wait() {
        return Ok(machine);
    }
    Err(Trouble(format!("qemu ended at once:\n{}", note(folder, "qemu.log").unwrap_or_default())))
}

/// What the machine is made of. A saved state fits the very same only.
fn hardware(
    processor: &Processor,
    image: &Path,
    disk: &Path,
    folder: &Path,
    memory: u32,
    throw_away: bool,
) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut add = |name: &str, value: String| words.extend([name.to_owned(), value]);
    add("-accel", "tcg,thread=multi,tb-size=256".to_owned());
    add("-machine", processor.machine.to_owned());
    add("-cpu", processor.model.to_owned());
    add("-smp", "2".to_owned());
    add("-m", memory.to_string());
    add("-kernel", image.join("vmlinuz").display().to_string());
    add("-initrd", image.join("initramfs").display().to_string());
    add("-append", format!("{KERNEL}{}", processor.console));
    // Flushing is for power cuts of this machine; those of the board are resets.
    let throw_away = if throw_away { "on" } else { "off" };
    add("-drive", format!("file={},format=raw,if=virtio,cache=unsafe,snapshot={throw_away}", disk.display()));
    add("-serial", format!("file:{}", folder.join("console.log").display()));
    add("-qmp", format!("unix:{},server=on,wait=off", folder.join("qmp").display()));
    add("-device", "virtio-rng-pci".to_owned());
    add("-device", "virtio-balloon-pci".to_owned());
    add("-device", "virtio-serial-pci".to_owned());
    for port in 0..PORTS {
        let name = format!("lab.{port}");
        add("-chardev", format!("socket,id={name},path={},server=on,wait=off", folder.join(&name).display()));
        add("-device", format!("virtserialport,chardev={name},name={name}"));
    }
    // The serial lines of two Bluetooth controllers.
    for port in 0..2 {
        let name = format!("bluetooth.{port}");
        add("-chardev", format!("socket,id={name},path={},server=on,wait=off", folder.join(&name).display()));
        add("-device", format!("pci-serial,chardev={name}"));
    }
    // The way out of the house, and a cable between the board and the office.
    add("-netdev", "user,id=way".to_owned());
    add("-device", "virtio-net-pci,netdev=way,mac=52:54:00:00:00:01,romfile=".to_owned());
    for (name, mac) in [("own", "52:54:00:00:00:02"), ("office", "52:54:00:00:00:03")] {
        add("-netdev", format!("hubport,hubid=1,id={name}"));
        add("-device", format!("virtio-net-pci,id={name}-nic,netdev={name},mac={mac},romfile="));
    }
    for word in ["-nodefaults", "-no-user-config"] {
        words.push(word.to_owned());
    }
    words.extend(["-display".to_owned(), "none".to_owned()]);
    words
}

/// The folder of the saved state for this much memory; made when it is not there.
fn state(image: &Path, memory: u32) -> Result<PathBuf, Trouble> {
    let trouble = |error| Trouble::of(image.display(), error);
    let processor = processor(image);
    let version = Command::new(processor.program).arg("--version").output();
    let version = version.map_err(|error| Trouble::of(processor.program, error))?.stdout;
    let here = Path::new("");
    let words = hardware(processor, here, here, here, memory, true).join(" ") + &String::from_utf8_lossy(&version);
    // FNV-1a: any change of the machine makes another state.
    let key = words
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let folder = image.join(format!("state-{memory}-{key:016x}"));
    let lock = File::options().create(true).append(true).open(image.join("state.lock")).map_err(trouble)?;
    lock.lock().map_err(trouble)?;
    if folder.join(".complete").exists() {
        return Ok(folder);
    }
    eprintln!("booting a board with {memory} MB once, to save its state; this takes about a minute");
    let begin = Instant::now();
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).map_err(trouble)?;
    let copied = Command::new("cp").arg("--sparse=always").arg(image.join("disk")).arg(folder.join("disk")).status();
    if !copied.map_err(trouble)?.success() {
        return Err(Trouble("could not copy the board's disk".to_owned()));
    }
    let machine = launch(image, &folder.join("disk"), &folder.join("run"), memory, None)?;
    plug_cable(machine.folder(), false)?;
    let mut said = Vec::new();
    let done = machine.channel().and_then(|mut channel| {
        channel.execute("lab-setup && sync && echo 3 >/proc/sys/vm/drop_caches", SETUP_LIMIT, &mut said)
    });
    if !matches!(done, Ok(0)) {
        let console = note(&folder.join("run"), "console.log").unwrap_or_default();
        let said = String::from_utf8_lossy(&said).into_owned();
        let _ = machine.stop();
        return Err(Trouble(format!("the board could not be set up: {done:?}\n{said}\n{console}")));
    }
    // The saved board has nobody at its ports, and has heard so.
    machine.leave_ports();
    std::thread::sleep(Duration::from_secs(2));
    let mut qmp = open(machine.folder())?;
    qmp.call("stop", json!({}))?;
    qmp.call("migrate", json!({"uri": format!("exec:cat >'{}'", folder.join("memory").display())}))?;
    let saved = eventually("the saved state", || {
        let status = qmp.call("query-migrate", json!({})).ok()?;
        ["completed", "failed"].into_iter().find(|end| status["status"] == *end)
    })?;
    drop(qmp);
    machine.stop()?;
    if saved != "completed" {
        return Err(Trouble("qemu could not save the board's state".to_owned()));
    }
    File::create(folder.join(".complete")).map_err(trouble)?;
    eprintln!("saved after {:.0} s", begin.elapsed().as_secs_f64());
    Ok(folder)
}
