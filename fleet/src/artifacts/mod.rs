//! Where the bytes of uploads lie: named by their SHA-256, never changed, there as a whole or not at all.
//!
//! Owns bytes and nothing else: who may see them, and which of them somebody still needs, is in the database
//! (`store/artifacts.rs` says in which order the two change). What is being uploaded has no name yet; if its upload ends
//! in any other way than by [`Unfinished::keep`], nothing of it stays.

mod folder;
pub mod s3;
pub mod sweep;
pub mod trust;

use std::{error::Error, io, pin::Pin};

use bytes::Bytes;
use tokio_stream::Stream;

pub use folder::Folder;

use crate::refusal::Refusal;

/// Work under way.
pub type Doing<'a, T> = Pin<Box<dyn Future<Output = Result<T, ArtifactError>> + Send + 'a>>;

/// The bytes of an artifact, piece by piece.
pub type Pieces = Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send>>;

/// An artifact that is being read.
pub struct Opened {
    /// What was asked for.
    pub pieces: Pieces,
    /// Another one whenever something was written there, as far as the store can tell.
    pub form: String,
}

/// A place for artifacts.
pub trait Artifacts: Send + Sync {
    /// A new one, empty and without a name.
    fn begin(&self) -> Doing<'_, Box<dyn Unfinished>>;

    /// `bytes` of one, from the byte `from`; what is asked for lies within it. The stream fails if there are fewer.
    fn open<'a>(&'a self, digest: &'a str, from: u64, bytes: u64) -> Doing<'a, Opened>;

    /// Whether one is there or not, afterwards it is not.
    fn remove<'a>(&'a self, digest: &'a str) -> Doing<'a, ()>;

    /// Removes what uploads left behind whose process was killed.
    fn clean(&self) -> Doing<'_, ()>;
}

/// An artifact that is being uploaded. Dropped, it is gone.
pub trait Unfinished: Send {
    /// The next bytes.
    fn add(&mut self, bytes: Bytes) -> Doing<'_, ()>;

    /// That was all: from now on it lies under its digest, also after a power cut.
    fn keep(self: Box<Self>, digest: &str) -> Doing<'_, ()>;
}

/// Why the store did not do it.
#[derive(Debug, thiserror::Error)]
pub enum ArtifactError {
    /// No space for more.
    #[error("the artifact store is full")]
    Full,
    /// There is none with that digest.
    #[error("the artifact is not in the store")]
    Missing,
    /// The disk or the network said no.
    #[error("the artifact store failed")]
    Failed(#[source] Box<dyn Error + Send + Sync>),
}

impl From<io::Error> for ArtifactError {
    fn from(cause: io::Error) -> Self {
        match cause.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => Self::Full,
            io::ErrorKind::NotFound => Self::Missing,
            _ => Self::Failed(cause.into()),
        }
    }
}

impl From<ArtifactError> for Refusal {
    fn from(cause: ArtifactError) -> Self {
        match cause {
            ArtifactError::Full => {
                tracing::error!("the artifact store is full: nothing can be uploaded until there is space");
                Self::again("the server has no space left for files: nothing was kept, try again when there is space")
            }
            ArtifactError::Missing | ArtifactError::Failed(_) => {
                let source = cause.source().map(ToString::to_string);
                tracing::error!(%cause, source, "the artifact store failed");
                Self::again("the server cannot reach its file store: nothing was kept, try again")
            }
        }
    }
}
