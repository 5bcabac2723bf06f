//! Executables of the stand-in machine server, each with a version and a behaviour of its own.
//!
//! One program is built; versions differ in a few lines appended to it, which an ELF loader does not look at and the
//! program itself reads. So a test has any number of real, distinct, signable executables without a compiler.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use super::{Trouble, programs};

/// What such an executable ends with; before it stand eight hexadecimal digits, the length of the lines before them.
pub const TRAILER_END: &str = include_str!("stand_in.trailer");

/// Name of the built program.
pub const PROGRAM: &str = "stand-in-server";

/// Writes a stand-in of this version to `executable`.
pub fn build(version: &str, executable: &Path) -> Result<(), Trouble> {
    build_with(version, &[], executable)
}

/// The same, with knobs turned: `("crash-after-ms", "100")`. `stand-in-server --help` lists them.
pub fn build_with(version: &str, knobs: &[(&str, &str)], executable: &Path) -> Result<(), Trouble> {
    let program = programs::find(PROGRAM)?;
    let mut bytes = fs::read(&program).map_err(|error| Trouble::of(program.display(), error))?;
    let lines: String =
        [("version", version)].iter().chain(knobs).map(|(name, value)| format!("{name}={value}\n")).collect();
    bytes.extend(lines.as_bytes());
    bytes.extend(format!("{:08x}{TRAILER_END}", lines.len()).as_bytes());
    let trouble = |error| Trouble::of(executable.display(), error);
    // Never into a file that may be running.
    let new = executable.with_extension("new");
    fs::write(&new, bytes).map_err(trouble)?;
    fs::set_permissions(&new, fs::Permissions::from_mode(0o755)).map_err(trouble)?;
    fs::rename(&new, executable).map_err(trouble)
}
