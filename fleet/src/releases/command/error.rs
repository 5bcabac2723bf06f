//! Why a release command was not done.

use std::{
    io,
    path::{Path, PathBuf},
};

use api::releases::{
    DocumentError,
    sign::{KeyFileError, SignError},
};

use crate::{
    file_error::{self, FileError},
    releases::folder::FolderError,
};

/// Why a release command was not done.
#[derive(Debug, thiserror::Error)]
pub enum ReleaseError {
    /// See [`FileError`].
    #[error(transparent)]
    File(#[from] FileError),
    /// A key file.
    #[error("{path} cannot be used to sign")]
    Key {
        /// The file.
        path: PathBuf,
        /// Why it is none.
        source: KeyFileError,
    },
    /// A document.
    #[error("{path} is refused")]
    Document {
        /// The file.
        path: PathBuf,
        /// Why it is refused.
        source: DocumentError,
    },
    /// The folder.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// A document while it is put into the folder.
    #[error("{path} was not added")]
    Add {
        /// The file.
        path: PathBuf,
        /// Why it is refused.
        source: FolderError,
    },
    /// Signing.
    #[error(transparent)]
    Sign(#[from] SignError),
    /// An option.
    #[error("{option}: {why}")]
    Option {
        /// Which one.
        option: &'static str,
        /// What is allowed.
        why: String,
    },
    /// A packed artifact with another executable in it than the release says.
    #[error("{path}: what {file} unpacks to is not what was signed")]
    OtherInside {
        /// The release.
        path: PathBuf,
        /// The packed file.
        file: PathBuf,
    },
    /// Artifacts that no given file is.
    #[error("{path}: no --artifact is the {platform} one (sha256 {sha256})")]
    NotVerified {
        /// The release.
        path: PathBuf,
        /// The platform.
        platform: String,
        /// What was signed.
        sha256: String,
    },
}

pub(super) fn option(option: &'static str, why: impl Into<String>) -> ReleaseError {
    ReleaseError::Option { option, why: why.into() }
}

pub(super) fn failed(what: &'static str, path: &Path) -> impl Fn(io::Error) -> ReleaseError {
    file_error::failed(what, path)
}
