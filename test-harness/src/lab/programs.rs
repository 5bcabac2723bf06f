//! Agents of several versions from the one that is built.
//!
//! An agent's version stands in its note (docs/adr: a note in the executable), which is data: other bytes there make
//! another version, signable and distinct, without a compiler.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use actors::update::note::{FIELD_BYTES, OWNER};

use crate::real::{Trouble, programs};

/// Name of the agent's program.
pub const AGENT: &str = "platform-agent";
/// Name of the launcher's program.
pub const LAUNCHER: &str = "platform-launcher";

/// Writes an agent of this version.
pub fn agent(version: &str, to: &Path) -> Result<(), Trouble> {
    write(&patched(version)?, to)
}

/// Writes an agent of this version that is in order in every way that can be checked, and dies as soon as it starts:
/// its first instruction is none.
pub fn broken_agent(version: &str, to: &Path) -> Result<(), Trouble> {
    let mut bytes = patched(version)?;
    // e_entry of a 64-bit ELF header.
    let entry = bytes.get_mut(24..32).ok_or_else(|| Trouble("the agent is no ELF file".to_owned()))?;
    entry.fill(0);
    write(&bytes, to)
}

/// Writes an agent of this version that is in order in every way that can be checked, and hangs as soon as it starts: its
/// first instruction is a jump to itself.
pub fn hung_agent(version: &str, to: &Path) -> Result<(), Trouble> {
    let mut bytes = patched(version)?;
    let no_elf = || Trouble("the agent is no 64-bit ELF file".to_owned());
    let number = |bytes: &[u8], at: usize| -> Option<usize> {
        let bytes = bytes.get(at..at + 8)?.try_into().ok()?;
        usize::try_from(u64::from_le_bytes(bytes)).ok()
    };
    let short =
        |bytes: &[u8], at: usize| Some(usize::from(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?)));
    // e_entry, and the loaded segment that it lies in.
    let entry = number(&bytes, 24).ok_or_else(no_elf)?;
    let (table, count) = (number(&bytes, 32).ok_or_else(no_elf)?, short(&bytes, 56).ok_or_else(no_elf)?);
    let place = (0..count).find_map(|index| {
        let header = table + index * 56;
        let kind = short(&bytes, header)?;
        let (offset, address, length) =
            (number(&bytes, header + 8)?, number(&bytes, header + 16)?, number(&bytes, header + 32)?);
        (kind == 1 && (address..address + length).contains(&entry)).then(|| offset + (entry - address))
    });
    let place = place.ok_or_else(no_elf)?;
    let jump: &[u8] = match std::env::consts::ARCH {
        "x86_64" => &[0xEB, 0xFE],
        "aarch64" => &[0, 0, 0, 0x14],
        other => return Err(Trouble(format!("nobody has said how {other} jumps"))),
    };
    bytes.get_mut(place..place + jump.len()).ok_or_else(no_elf)?.copy_from_slice(jump);
    write(&bytes, to)
}

fn patched(version: &str) -> Result<Vec<u8>, Trouble> {
    let built = programs::find(AGENT)?;
    let mut bytes = fs::read(&built).map_err(|error| Trouble::of(built.display(), error))?;
    let mut program = [0; FIELD_BYTES];
    program[..AGENT.len()].copy_from_slice(AGENT.as_bytes());
    let before: Vec<u8> = [&OWNER[..], &program].concat();
    let found: Vec<usize> =
        bytes.windows(before.len()).enumerate().filter(|(_, window)| *window == before).map(|(at, _)| at).collect();
    let [at] = found[..] else {
        return Err(Trouble(format!("{} has {} notes, and one is needed", built.display(), found.len())));
    };
    let field = at + before.len();
    bytes[field..field + FIELD_BYTES].fill(0);
    bytes[field..field + version.len()].copy_from_slice(version.as_bytes());
    Ok(bytes)
}

fn write(bytes: &[u8], to: &Path) -> Result<(), Trouble> {
    let written = fs::write(to, bytes).and_then(|()| fs::set_permissions(to, fs::Permissions::from_mode(0o755)));
    written.map_err(|error| Trouble::of(to.display(), error))
}
