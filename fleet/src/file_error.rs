//! What the disk refused, with the file in question: the same sentence wherever a command works with files.

use std::{
    io,
    path::{Path, PathBuf},
};

/// The disk said no. For the person who started the command.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what} {path}")]
pub struct FileError {
    /// What was to be done.
    pub what: &'static str,
    /// With which file.
    pub path: PathBuf,
    /// Why not.
    #[source]
    pub source: io::Error,
}

impl FileError {
    /// A file that is not there (any more) could not be read.
    pub(crate) fn is_gone(&self) -> bool {
        self.what == "read" && self.source.kind() == io::ErrorKind::NotFound
    }
}

/// The error of whoever wanted to do that with the file.
pub(crate) fn failed<E: From<FileError>>(what: &'static str, path: &Path) -> impl Fn(io::Error) -> E {
    move |source| FileError { what, path: path.to_owned(), source }.into()
}
