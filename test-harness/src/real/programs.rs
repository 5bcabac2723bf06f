//! Where the built programs are: beside the program that asks, or one folder up when that is a test.

use std::path::PathBuf;

use super::Trouble;

/// The built program of this name.
pub fn find(name: &str) -> Result<PathBuf, Trouble> {
    let this = std::env::current_exe().map_err(|error| Trouble::of("where this program is", error))?;
    let beside = this.ancestors().skip(1).take(2).map(|folder| folder.join(name)).find(|path| path.is_file());
    beside.ok_or_else(|| Trouble(format!("{name} is not built yet: run `make programs` first")))
}
