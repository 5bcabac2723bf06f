//! Artifacts in a bucket that speaks S3: `PREFIX/sha256/DIGEST`, and `PREFIX/incoming/ID` while they are uploaded.
//!
//! The name of an artifact is known at its end only: what is large is uploaded in parts under an id, and copied to its
//! name by the store itself. What fits into one part is put under its name at once. An object appears whole or not at
//! all. Each part is signed with its digest, so that the store refuses what was damaged on its way.
//!
//! An upload whose server was killed leaves a note beside its id; whoever cleans finds it a day later, and gives up the
//! parts. (A rule of the bucket that ends unfinished uploads does the same; both may be there.)

mod place;
mod wire;

use std::{io, sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use object_store::{
    Error as StoreError, GetOptions, GetRange, MultipartId, ObjectStore, ObjectStoreExt, PutPayload,
    aws::AmazonS3,
    multipart::{MultipartStore, PartId},
    path::Path as Key,
};
use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};
use tokio_stream::StreamExt;

pub use place::{Bucket, BucketError};

use super::{ArtifactError, Artifacts, Doing, Opened, Pieces, Unfinished};
use crate::{clock::Clock, ids};

/// One part. The least that S3 takes, and the same for all but the last, because some stores want that; the largest
/// upload is 410 of them.
const PART_BYTES: usize = 5 << 20;
/// Uploads that may hold a part in memory at the same time; others wait for their turn before they are read.
const IN_MEMORY_MAX: usize = 16;
/// A download of which nothing has come for this long has failed.
const PIECE_WITHIN: Duration = Duration::from_secs(30);
/// What lies in `incoming` for longer was left behind: the longest upload takes hours.
const ABANDONED_AFTER: Duration = Duration::from_secs(24 * 60 * 60);
/// How long the start waits for the bucket's first answer.
pub const PROBED_WITHIN: Duration = Duration::from_secs(5);
/// Ends the name of the note beside an upload in parts. The note holds what the store calls it.
const NOTE: &str = ".upload";

/// A bucket, or what lies below a prefix in one. Cheap to clone.
#[derive(Clone)]
pub struct S3 {
    store: Arc<AmazonS3>,
    prefix: Key,
    room: Arc<Semaphore>,
    abandoned_after: Duration,
}

impl S3 {
    /// Reads nothing yet: a bucket that cannot be reached is found out by the first use.
    pub fn of(bucket: &Bucket) -> Result<Self, BucketError> {
        let store = Arc::new(bucket.store(wire::Connector::new(bucket.authorities())?)?);
        let room = Arc::new(Semaphore::new(IN_MEMORY_MAX));
        Ok(Self { store, prefix: bucket.prefix.clone(), room, abandoned_after: ABANDONED_AFTER })
    }

    /// Asks the bucket something, so that a wrong key, name or region is said at the start. One that does not answer may
    /// later, and is waited for `within`.
    pub async fn probe(&self, bucket: &Bucket, within: Duration) -> Result<(), BucketError> {
        let mut listed = self.store.list(Some(&self.incoming()));
        match timeout(within, listed.next()).await {
            Ok(None | Some(Ok(_))) => Ok(()),
            Ok(Some(Err(problem))) => match bucket.complaint(&problem) {
                Some(complaint) => Err(complaint),
                None => {
                    tracing::warn!(%problem, "the bucket cannot be used at the moment: files of the registry neither");
                    Ok(())
                }
            },
            Err(_) => {
                tracing::warn!(
                    "the bucket does not answer: files of the registry cannot be read or written until it does"
                );
                Ok(())
            }
        }
    }

    /// With another idea of what was left behind; for tests.
    pub fn with_abandoned_after(self, abandoned_after: Duration) -> Self {
        Self { abandoned_after, ..self }
    }

    fn finished(&self, digest: &str) -> Key {
        self.prefix.clone().join("sha256").join(digest)
    }

    fn incoming(&self) -> Key {
        self.prefix.clone().join("incoming")
    }

    async fn remove_what_was_left(&self) -> Result<(), ArtifactError> {
        let oldest = Clock::default().now() - i64::try_from(self.abandoned_after.as_millis()).unwrap_or(i64::MAX);
        let mut found = self.store.list(Some(&self.incoming()));
        while let Some(object) = found.next().await {
            let object = object?;
            if object.last_modified.timestamp_millis() > oldest {
                continue;
            }
            if let Some(of) = object.location.as_ref().strip_suffix(NOTE) {
                let id = self.store.get(&object.location).await?.bytes().await?;
                let id = String::from_utf8_lossy(&id).into_owned();
                self.give_up(&Key::from(of), &id).await?;
            }
            self.store.delete(&object.location).await?;
        }
        Ok(())
    }

    async fn give_up(&self, key: &Key, id: &MultipartId) -> Result<(), ArtifactError> {
        match self.store.abort_multipart(key, id).await {
            // Finished or given up before.
            Ok(()) | Err(StoreError::NotFound { .. }) => Ok(()),
            Err(other) => Err(other.into()),
        }
    }
}

impl From<StoreError> for ArtifactError {
    fn from(cause: StoreError) -> Self {
        match cause {
            StoreError::NotFound { .. } => Self::Missing,
            other => Self::Failed(other.into()),
        }
    }
}

impl Artifacts for S3 {
    fn begin(&self) -> Doing<'_, Box<dyn Unfinished>> {
        Box::pin(async move {
            let room =
                self.room.clone().acquire_owned().await.map_err(|closed| ArtifactError::Failed(closed.into()))?;
            let key = self.incoming().join(ids::new_id());
            let parts = Parts { s3: self.clone(), key, id: None, done: Vec::new(), _room: room };
            Ok(Box::new(Upload { parts, rest: BytesMut::new() }) as Box<dyn Unfinished>)
        })
    }

    fn open<'a>(&'a self, digest: &'a str, from: u64, bytes: u64) -> Doing<'a, Opened> {
        Box::pin(async move {
            let range = (bytes > 0).then(|| GetRange::Bounded(from..from.saturating_add(bytes)));
            // Of nothing too it is told whether it is there.
            let options = GetOptions { head: range.is_none(), range, ..GetOptions::default() };
            let found = self.store.get_opts(&self.finished(digest), options).await?;
            let about = &found.meta;
            let form = format!("{:?} {} {}", about.e_tag, about.last_modified.timestamp_millis(), about.size);
            if bytes == 0 {
                return Ok(Opened { pieces: Box::pin(tokio_stream::empty()), form });
            }
            let pieces = Box::pin(found.into_stream().timeout(PIECE_WITHIN));
            let pieces = pieces.map(|piece| match piece {
                Ok(piece) => piece.map_err(io::Error::other),
                Err(late) => Err(io::Error::new(io::ErrorKind::TimedOut, late)),
            });
            Ok(Opened { pieces: Box::pin(pieces) as Pieces, form })
        })
    }

    fn remove<'a>(&'a self, digest: &'a str) -> Doing<'a, ()> {
        Box::pin(async move {
            match self.store.delete(&self.finished(digest)).await {
                Ok(()) | Err(StoreError::NotFound { .. }) => Ok(()),
                Err(other) => Err(other.into()),
            }
        })
    }

    fn clean(&self) -> Doing<'_, ()> {
        Box::pin(self.remove_what_was_left())
    }
}

/// An upload that has no name yet.
struct Upload {
    parts: Parts,
    /// Less than a part.
    rest: BytesMut,
}

/// The parts that lie in the store. Given up when dropped.
struct Parts {
    s3: S3,
    key: Key,
    /// What the store calls the upload; none before the first part.
    id: Option<MultipartId>,
    done: Vec<PartId>,
    _room: OwnedSemaphorePermit,
}

impl Parts {
    fn note(&self) -> Key {
        Key::from(format!("{}{NOTE}", self.key))
    }

    async fn put(&mut self, part: Bytes) -> Result<(), ArtifactError> {
        let store = self.s3.store.clone();
        let id = match &self.id {
            Some(id) => id.clone(),
            None => {
                let id = store.create_multipart(&self.key).await?;
                self.id = Some(id.clone());
                // Before the first byte: from now on somebody finds it when this process dies.
                store.put(&self.note(), PutPayload::from(id.clone())).await?;
                id
            }
        };
        let part = store.put_part(&self.key, &id, self.done.len(), part.into()).await?;
        self.done.push(part);
        Ok(())
    }

    async fn finish(mut self, digest: &str) -> Result<(), ArtifactError> {
        let (store, key) = (self.s3.store.clone(), self.key.clone());
        let id = self.id.clone().unwrap_or_default();
        store.complete_multipart(&key, &id, std::mem::take(&mut self.done)).await?;
        let copied = store.copy(&key, &self.s3.finished(digest)).await;
        // In any case: it has its name, or never gets it. The note last, so that what cannot be deleted now is found.
        if store.delete(&key).await.is_ok() && store.delete(&self.note()).await.is_ok() {
            self.id = None;
        }
        Ok(copied?)
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        if let (Some(id), Ok(runtime)) = (self.id.take(), Handle::try_current()) {
            let (s3, key, note) = (self.s3.clone(), self.key.clone(), self.note());
            // What cannot be removed now is removed by the next one who cleans, a day later.
            runtime.spawn(async move {
                if s3.give_up(&key, &id).await.is_ok() {
                    let _ = s3.store.delete(&note).await;
                }
            });
        }
    }
}

impl Unfinished for Upload {
    fn add(&mut self, bytes: Bytes) -> Doing<'_, ()> {
        Box::pin(async move {
            self.rest.extend_from_slice(&bytes);
            while self.rest.len() >= PART_BYTES {
                let part = self.rest.split_to(PART_BYTES).freeze();
                self.parts.put(part).await?;
            }
            Ok(())
        })
    }

    fn keep(self: Box<Self>, digest: &str) -> Doing<'_, ()> {
        let Self { mut parts, rest } = *self;
        let digest = digest.to_owned();
        Box::pin(async move {
            if parts.id.is_none() {
                parts.s3.store.put(&parts.s3.finished(&digest), rest.freeze().into()).await?;
                return Ok(());
            }
            if !rest.is_empty() {
                parts.put(rest.freeze()).await?;
            }
            parts.finish(&digest).await
        })
    }
}

#[cfg(test)]
mod tests;
