//! Versions of the agent, and an agent that is installed as on a device: with a launcher and two slots.
//!
//! One agent is built; versions differ in the note inside it, where it reads its own version from. So a test has any
//! number of real, distinct agents that can be signed, installed and broken.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, process::Command};

use actors::update::{
    note::{FIELD_BYTES, OWNER},
    slots::{Layout, Slot},
};
use api::brand;

use super::{Trouble, agent::AgentOptions, programs};

/// Where the address of the first instruction is in the header of a 64-bit ELF file.
const ENTRY: std::ops::Range<usize> = 24..32;

/// Writes an agent of this version.
pub fn build(version: &str, executable: &Path) -> Result<(), Trouble> {
    write(&programs::find(brand::AGENT)?, version, executable, |_| ())
}

/// The same, made of another agent than the one built beside this program.
pub fn build_from(program: &Path, version: &str, executable: &Path) -> Result<(), Trouble> {
    write(program, version, executable, |_| ())
}

/// Writes an agent of this version that dies at its first instruction.
pub fn build_broken(version: &str, executable: &Path) -> Result<(), Trouble> {
    write(&programs::find(brand::AGENT)?, version, executable, |bytes| {
        if let Some(entry) = bytes.get_mut(ENTRY) {
            entry.fill(0);
        }
    })
}

fn write(program: &Path, version: &str, executable: &Path, change: impl FnOnce(&mut [u8])) -> Result<(), Trouble> {
    let trouble = |error: std::io::Error| Trouble::of(executable.display(), error);
    // What debuggers need is nine tenths of it. A system without this tool has a large agent.
    let stripped = Command::new("strip").arg("-o").arg(executable).arg(program).status();
    if !stripped.is_ok_and(|status| status.success()) {
        fs::copy(program, executable).map_err(trouble)?;
    }
    let mut bytes = fs::read(executable).map_err(trouble)?;
    let at = bytes.windows(OWNER.len()).position(|window| *window == OWNER);
    let at = at.ok_or_else(|| Trouble(format!("{} has no note", program.display())))? + OWNER.len() + FIELD_BYTES;
    let field = bytes.get_mut(at..at + FIELD_BYTES).filter(|field| field.len() > version.len());
    let field = field.ok_or_else(|| Trouble(format!("{version} does not fit into the note")))?;
    field.fill(0);
    field.iter_mut().zip(version.bytes()).for_each(|(place, byte)| *place = byte);
    change(&mut bytes);
    fs::write(executable, bytes).map_err(trouble)?;
    fs::set_permissions(executable, fs::Permissions::from_mode(0o755)).map_err(trouble)
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
