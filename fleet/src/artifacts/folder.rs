//! Artifacts as files: `sha256/DIGEST`, and `incoming/ID` while they are uploaded.
//!
//! Whoever writes to a file in `incoming` holds its lock, which ends with the process: what can be locked by another was
//! left behind and is removed, also where several servers share the folder.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Seek, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use tokio::{
    io::{AsyncRead, ReadBuf},
    task::spawn_blocking,
};
use tokio_stream::Stream;

use super::{ArtifactError, Artifacts, Doing, Opened, Unfinished};
use crate::ids;

/// One buffer per download under way: large enough to keep a fast link busy.
const CHUNK_BYTES: usize = 64 << 10;
/// Tries to find a name that nobody cleans away at this very moment.
const NAMES_MAX: usize = 10;

/// A folder of artifacts.
#[derive(Debug, Clone)]
pub struct Folder {
    finished: PathBuf,
    incoming: PathBuf,
}

impl Folder {
    /// Below a server's data folder; made when something is added.
    pub fn of_data(data: &Path) -> Self {
        let folder = data.join("artifacts");
        Self { finished: folder.join("sha256"), incoming: folder.join("incoming") }
    }

    fn unfinished(&self) -> io::Result<Upload> {
        for folder in [&self.finished, &self.incoming] {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        for _ in 0..NAMES_MAX {
            let path = self.incoming.join(ids::new_id());
            let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
            let place = Some(Place(path));
            // Between these two lines somebody who cleans may have taken it for left behind.
            if file.try_lock().is_ok() && file.metadata()?.nlink() > 0 {
                return Ok(Upload { file: Some(file), place, finished: self.finished.clone() });
            }
        }
        Err(io::Error::other("no name for an upload could be had"))
    }

    fn remove_what_was_left(&self) -> io::Result<()> {
        let entries = match fs::read_dir(&self.incoming) {
            Err(none) if none.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        for entry in entries {
            let path = entry?.path();
            // One that has gone meanwhile was finished or given up by its owner.
            let Ok(file) = OpenOptions::new().write(true).open(&path) else { continue };
            if file.try_lock().is_ok() {
                match fs::remove_file(&path) {
                    Err(gone) if gone.kind() == io::ErrorKind::NotFound => {}
                    done => done?,
                }
            }
        }
        Ok(())
    }
}

impl Artifacts for Folder {
    fn begin(&self) -> Doing<'_, Box<dyn Unfinished>> {
        let folder = self.clone();
        Box::pin(async move { Ok(Box::new(blocking(move || folder.unfinished()).await?) as Box<dyn Unfinished>) })
    }

    fn open<'a>(&'a self, digest: &'a str, from: u64, bytes: u64) -> Doing<'a, Opened> {
        let path = self.finished.join(digest);
        Box::pin(async move {
            let (file, form) = blocking(move || {
                let mut file = File::open(path)?;
                let form = form(&file.metadata()?);
                if from > 0 {
                    file.seek(io::SeekFrom::Start(from))?;
                }
                Ok((file, form))
            })
            .await?;
            let file = tokio::fs::File::from_std(file);
            Ok(Opened { pieces: Box::pin(Download { file, left: bytes, buffer: Vec::new() }), form })
        })
    }

    fn remove<'a>(&'a self, digest: &'a str) -> Doing<'a, ()> {
        let path = self.finished.join(digest);
        Box::pin(blocking(move || match fs::remove_file(path) {
            Err(gone) if gone.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done,
        }))
    }

    fn clean(&self) -> Doing<'_, ()> {
        let folder = self.clone();
        Box::pin(blocking(move || folder.remove_what_was_left()))
    }
}

/// Which file it is, and when it was written or touched: the last of these times is nobody's to choose.
fn form(file: &fs::Metadata) -> String {
    let (written, touched) = ((file.mtime(), file.mtime_nsec()), (file.ctime(), file.ctime_nsec()));
    format!("{} {} {} {written:?} {touched:?}", file.dev(), file.ino(), file.size())
}

/// A file without a name of its own yet.
struct Upload {
    /// Lent to the thread that writes; not there after a write that failed.
    file: Option<File>,
    place: Option<Place>,
    finished: PathBuf,
}

/// Removed when dropped.
struct Place(PathBuf);

impl Drop for Place {
    fn drop(&mut self) {
        // What cannot be removed now is removed by the next one who cleans.
        let _ = fs::remove_file(&self.0);
    }
}

impl Unfinished for Upload {
    fn add(&mut self, bytes: Bytes) -> Doing<'_, ()> {
        Box::pin(async move {
            let mut file = self.file.take().ok_or_else(broken)?;
            self.file = Some(
                blocking(move || {
                    file.write_all(&bytes)?;
                    Ok(file)
                })
                .await?,
            );
            Ok(())
        })
    }

    fn keep(self: Box<Self>, digest: &str) -> Doing<'_, ()> {
        let Self { file, place, finished } = *self;
        let target = finished.join(digest);
        Box::pin(blocking(move || {
            // Kept, and with it the lock, until it has its name: without, another server's cleaning takes it for left behind.
            let file = file.ok_or_else(broken)?;
            file.sync_all()?;
            let place = place.ok_or_else(broken)?;
            // Over one that is there already: its bytes are the same, or damaged.
            fs::rename(&place.0, target)?;
            std::mem::forget(place);
            drop(file);
            File::open(&finished)?.sync_all()
        }))
    }
}

fn broken() -> io::Error {
    io::Error::other("a write to this upload failed before")
}

/// On a thread that may wait for the disk.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, ArtifactError> {
    let done = spawn_blocking(work).await.map_err(|failed| ArtifactError::Failed(failed.into()))?;
    Ok(done?)
}

/// A piece of a file.
struct Download {
    file: tokio::fs::File,
    left: u64,
    buffer: Vec<u8>,
}

impl Stream for Download {
    type Item = io::Result<Bytes>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        if this.left == 0 {
            return Poll::Ready(None);
        }
        let wanted = usize::try_from(this.left).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES);
        this.buffer.resize(wanted, 0);
        let mut read = ReadBuf::new(&mut this.buffer);
        ready!(Pin::new(&mut this.file).poll_read(cx, &mut read))?;
        let bytes = Bytes::copy_from_slice(read.filled());
        if bytes.is_empty() {
            let cause = io::Error::new(io::ErrorKind::UnexpectedEof, "the artifact is shorter than it was");
            return Poll::Ready(Some(Err(cause)));
        }
        this.left = this.left.saturating_sub(bytes.len() as u64);
        Poll::Ready(Some(Ok(bytes)))
    }
}

#[cfg(test)]
mod tests {
    use tokio_stream::StreamExt;

    use super::*;

    /// Whoever waits so long waits for ever.
    const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);

    fn names(folder: &Path) -> Vec<String> {
        let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    async fn read(folder: &Folder, digest: &str, from: u64, bytes: u64) -> io::Result<Vec<u8>> {
        let mut pieces = folder.open(digest, from, bytes).await.unwrap().pieces;
        let mut all = Vec::new();
        while let Some(piece) = pieces.next().await {
            all.extend(piece?);
        }
        Ok(all)
    }

    #[tokio::test]
    async fn an_artifact_is_there_as_a_whole_or_not_at_all() {
        let data = tempfile::tempdir().unwrap();
        let folder = Folder::of_data(data.path());
        folder.clean().await.unwrap();
        let mut given_up = folder.begin().await.unwrap();
        given_up.add(Bytes::from_static(b"half")).await.unwrap();
        let mut kept = folder.begin().await.unwrap();
        kept.add(Bytes::from_static(b"all ")).await.unwrap();
        kept.add(Bytes::from_static(b"of it")).await.unwrap();
        // Somebody cleans meanwhile: both have an owner.
        folder.clean().await.unwrap();
        assert_eq!((names(&folder.incoming).len(), names(&folder.finished).len()), (2, 0));
        drop(given_up);
        kept.keep("abc").await.unwrap();
        assert_eq!((names(&folder.incoming), names(&folder.finished)), (vec![], vec!["abc".to_owned()]));
        assert_eq!(read(&folder, "abc", 0, 9).await.unwrap(), b"all of it");
        assert_eq!(read(&folder, "abc", 4, 2).await.unwrap(), b"of");
        // The form tells of whoever writes there, also where they hide when.
        let form = async || folder.open("abc", 4, 2).await.unwrap().form;
        let before = form().await;
        assert_eq!(form().await, before, "reading changes nothing");
        let path = folder.finished.join("abc");
        let time = fs::metadata(&path).unwrap().modified().unwrap();
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        // The clock of a file system may stand still for some milliseconds: whoever writes within them is not told apart.
        let told = async {
            while form().await == before {
                tokio::task::yield_now().await;
                file.set_modified(time).unwrap();
            }
        };
        tokio::time::timeout(PATIENCE, told).await.expect("the form tells of it");
        let short = read(&folder, "abc", 4, 100).await.unwrap_err();
        assert_eq!(short.kind(), io::ErrorKind::UnexpectedEof, "never taken for all of it");
        for _ in 0..2 {
            folder.remove("abc").await.unwrap();
        }
        assert!(matches!(folder.open("abc", 0, 9).await.map(drop), Err(ArtifactError::Missing)));
    }

    #[tokio::test]
    async fn what_a_killed_server_left_is_removed() {
        let data = tempfile::tempdir().unwrap();
        let folder = Folder::of_data(data.path());
        let upload = folder.begin().await.unwrap();
        fs::write(folder.incoming.join("left"), "half of something").unwrap();
        folder.clean().await.unwrap();
        assert_eq!(names(&folder.incoming).len(), 1, "only the one that has an owner");
        upload.keep("abc").await.unwrap();
    }

    #[test]
    fn a_full_disk_is_told_apart() {
        for kind in [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded] {
            assert!(matches!(ArtifactError::from(io::Error::from(kind)), ArtifactError::Full));
        }
        assert!(matches!(ArtifactError::from(io::Error::other("x")), ArtifactError::Failed(_)));
    }
}
