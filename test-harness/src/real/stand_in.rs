//! Executables of the stand-in machine server, each with a version and a behaviour of its own.
//!
//! One program is built; versions differ in a few lines appended to it, which an ELF loader does not look at and the
//! program itself reads. So a test has any number of real, distinct, signable executables without a compiler.

use std::{
    fs,
    io::{self, Write},
    path::Path,
};

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
    build_padded(version, knobs, 0, executable)
}

/// The same, larger by `padding` bytes that no compression makes smaller: for downloads of a size worth measuring.
pub fn build_padded(version: &str, knobs: &[(&str, &str)], padding: u64, executable: &Path) -> Result<(), Trouble> {
    build_from(&programs::find(PROGRAM)?, version, knobs, padding, executable)
}

/// The same, made of another stand-in than the one built beside this program.
pub fn build_from(
    program: &Path,
    version: &str,
    knobs: &[(&str, &str)],
    padding: u64,
    executable: &Path,
) -> Result<(), Trouble> {
    let mut bytes = fs::read(program).map_err(|error| Trouble::of(program.display(), error))?;
    let lines: String =
        [("version", version)].iter().chain(knobs).map(|(name, value)| format!("{name}={value}\n")).collect();
    let trouble = |error| Trouble::of(executable.display(), error);
    noise(padding, &mut bytes).map_err(trouble)?;
    write!(bytes, "{lines}{:08x}{TRAILER_END}", lines.len()).map_err(trouble)?;
    test_executables::write(executable, &bytes).map_err(trouble)
}

/// The same bytes each time, without a pattern (xorshift64).
fn noise(bytes: u64, to: &mut impl Write) -> io::Result<()> {
    let mut state: u64 = 88_172_645_463_325_252;
    for word in 0..bytes.div_ceil(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let left = usize::try_from(bytes - word * 8).unwrap_or(8).min(8);
        to.write_all(&state.to_le_bytes()[..left])?;
    }
    Ok(())
}
