//! Versions of the agent, and an agent that is installed as on a device: with a launcher and two slots.
//!
//! One agent is built; versions differ in the note inside it, where it reads its own version from. So a test has any
//! number of real, distinct agents that can be signed, installed and broken.

use std::{fs, path::Path, process::Command};

use actors::update::{
    note::{FIELD_BYTES, OWNER},
    slots::{Layout, Slot},
};
use api::brand;

use super::{Trouble, agent::AgentOptions, programs};

/// Where the address of the first instruction is in the header of a 64-bit ELF file.
const ENTRY: usize = 24;
/// Where the table of what is to be loaded is said, how many rows it has, and how long each is.
const TABLE: usize = 32;
const ROWS: usize = 56;
const ROW_BYTES: usize = 56;
/// The kind of a row that is loaded.
const LOADED: usize = 1;

/// Writes an agent of this version.
pub fn build(version: &str, executable: &Path) -> Result<(), Trouble> {
    build_from(&programs::find(brand::AGENT)?, version, executable)
}

/// The same, made of another agent than the one built beside this program.
pub fn build_from(program: &Path, version: &str, executable: &Path) -> Result<(), Trouble> {
    write(&named(program, version, executable)?, executable)
}

/// Writes an agent of this version that is in order in every way that can be checked, and dies as soon as it starts: its
/// first instruction is none.
pub fn build_broken(version: &str, executable: &Path) -> Result<(), Trouble> {
    let mut bytes = named(&programs::find(brand::AGENT)?, version, executable)?;
    bytes.get_mut(ENTRY..ENTRY + 8).ok_or_else(no_elf)?.fill(0);
    write(&bytes, executable)
}

/// Writes an agent of this version that is in order in every way that can be checked, and hangs as soon as it starts:
/// its first instruction is a jump to itself.
pub fn build_hung(version: &str, executable: &Path) -> Result<(), Trouble> {
    let mut bytes = named(&programs::find(brand::AGENT)?, version, executable)?;
    let place = first_instruction(&bytes).ok_or_else(no_elf)?;
    let jump: &[u8] = match std::env::consts::ARCH {
        "x86_64" => &[0xEB, 0xFE],
        "aarch64" => &[0, 0, 0, 0x14],
        other => return Err(Trouble(format!("nobody has said how {other} jumps"))),
    };
    bytes.get_mut(place..place + jump.len()).ok_or_else(no_elf)?.copy_from_slice(jump);
    write(&bytes, executable)
}

fn no_elf() -> Trouble {
    Trouble("the agent is no 64-bit ELF file".to_owned())
}

/// Where in the file it begins to run: in the loaded segment that its entry lies in.
fn first_instruction(bytes: &[u8]) -> Option<usize> {
    let number = |at: usize, length: usize| {
        let mut number = [0; 8];
        number.get_mut(..length)?.copy_from_slice(bytes.get(at..at + length)?);
        usize::try_from(u64::from_le_bytes(number)).ok()
    };
    let (entry, table) = (number(ENTRY, 8)?, number(TABLE, 8)?);
    (0..number(ROWS, 2)?).find_map(|index| {
        let row = table + index * ROW_BYTES;
        let (kind, offset) = (number(row, 4)?, number(row + 8, 8)?);
        let (address, length) = (number(row + 16, 8)?, number(row + 32, 8)?);
        (kind == LOADED && (address..address + length).contains(&entry)).then(|| offset + (entry - address))
    })
}

/// What `program` is made of with another version in its note.
fn named(program: &Path, version: &str, executable: &Path) -> Result<Vec<u8>, Trouble> {
    // What debuggers need is nine tenths of it. A system without this tool has a large agent.
    let stripped = Command::new("strip").arg("-o").arg(executable).arg(program).status();
    let from = if stripped.is_ok_and(|status| status.success()) { executable } else { program };
    let mut bytes = fs::read(from).map_err(|error| Trouble::of(from.display(), error))?;
    let mut name = [0; FIELD_BYTES];
    name.iter_mut().zip(brand::AGENT.bytes()).for_each(|(place, byte)| *place = byte);
    let before = [&OWNER[..], &name].concat();
    let notes = bytes.windows(before.len()).enumerate().filter(|(_, window)| *window == before);
    let notes: Vec<usize> = notes.map(|(at, _)| at + before.len()).collect();
    let [at] = notes[..] else {
        return Err(Trouble(format!("{} has {} notes, and one is needed", program.display(), notes.len())));
    };
    let field = bytes.get_mut(at..at + FIELD_BYTES).filter(|field| field.len() > version.len());
    let field = field.ok_or_else(|| Trouble(format!("{version} does not fit into the note")))?;
    field.fill(0);
    field.iter_mut().zip(version.bytes()).for_each(|(place, byte)| *place = byte);
    Ok(bytes)
}

fn write(bytes: &[u8], executable: &Path) -> Result<(), Trouble> {
    test_executables::write(executable, bytes).map_err(|error| Trouble::of(executable.display(), error))
}

/// Puts a launcher and this agent into the root folder of `options`, which from then on start the launcher.
pub fn install(agent: &Path, options: &mut AgentOptions) -> Result<(), Trouble> {
    install_with(&programs::find(brand::LAUNCHER)?, agent, options)
}

/// The same with another launcher than the one built beside this program.
pub fn install_with(launcher: &Path, agent: &Path, options: &mut AgentOptions) -> Result<(), Trouble> {
    let root = options.root();
    let installed = root.join("bin").join(brand::LAUNCHER);
    let slot = Layout::new(&root, brand::AGENT).executable(Slot::A);
    for (from, to) in [(launcher, &installed), (agent, &slot)] {
        let folder = to.parent().unwrap_or(&root);
        fs::create_dir_all(folder).map_err(|error| Trouble::of(folder.display(), error))?;
        test_executables::copy(from, to).map_err(|error| Trouble::of(to.display(), error))?;
    }
    options.program = Some(installed);
    Ok(())
}
