//! A file on its way to the server: in small messages, with its digest made on the way, and a bar for who watches.

use std::{
    fs::File,
    io::{self, IsTerminal, Read, Write},
    path::Path,
    time::{Duration, Instant},
};

use api::{
    digest::Sum,
    pb::platform::app::v1::{self as app, upload_module_file_request::ModuleFile},
};

/// One message: few enough that the bar moves, large enough that framing costs nothing.
const CHUNK_BYTES: usize = 64 * 1024;
/// Of the bar, in signs.
const BAR_WIDTH: usize = 30;
/// Between two drawings of the bar.
const DRAWN_EVERY: Duration = Duration::from_millis(100);

/// The messages of an upload; each is read when it is asked for.
pub(super) struct Upload {
    info: Option<app::ModuleFileInfo>,
    file: File,
    sum: Sum,
    bar: Option<Bar>,
    /// Bytes so far.
    pub(super) sent: u64,
}

impl Upload {
    /// Opens the file; the bar is drawn on standard error if a person looks at it.
    pub(super) fn open(path: &Path, info: app::ModuleFileInfo) -> io::Result<Self> {
        let file = File::open(path)?;
        let total = file.metadata()?.len();
        let bar = Bar::of(total);
        Ok(Self { info: Some(info), file, sum: Sum::default(), bar, sent: 0 })
    }

    /// SHA-256 of what was sent.
    pub(super) fn digest(&self) -> String {
        self.sum.hex()
    }

    fn chunk(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut chunk = Vec::with_capacity(CHUNK_BYTES);
        // As much as fits: a pipe gives little at a time.
        Read::by_ref(&mut self.file).take(CHUNK_BYTES as u64).read_to_end(&mut chunk)?;
        self.sum.add(&chunk);
        self.sent += chunk.len() as u64;
        if let Some(bar) = &mut self.bar {
            bar.draw(self.sent, chunk.is_empty());
        }
        Ok(Some(chunk).filter(|chunk| !chunk.is_empty()))
    }
}

impl Iterator for Upload {
    type Item = io::Result<app::UploadModuleFileRequest>;

    fn next(&mut self) -> Option<Self::Item> {
        let message = |part| app::UploadModuleFileRequest { module_file: Some(part) };
        if let Some(info) = self.info.take() {
            return Some(Ok(message(ModuleFile::ModuleFileInfo(info))));
        }
        let chunk = self.chunk().transpose()?;
        Some(chunk.map(|chunk| message(ModuleFile::File(chunk.into()))))
    }
}

/// A line on standard error that shows how far a file is.
pub(super) struct Bar {
    total: u64,
    since: Instant,
    drawn: Option<Instant>,
}

impl Bar {
    /// Of so many bytes; nothing if no person looks at it.
    pub(super) fn of(total: u64) -> Option<Self> {
        io::stderr().is_terminal().then(|| Self::new(total))
    }

    fn new(total: u64) -> Self {
        Self { total, since: Instant::now(), drawn: None }
    }

    pub(super) fn draw(&mut self, sent: u64, last: bool) {
        if !last && self.drawn.is_some_and(|drawn| drawn.elapsed() < DRAWN_EVERY) {
            return;
        }
        self.drawn = Some(Instant::now());
        let line = line(sent, self.total, self.since.elapsed());
        // Nobody sees it: that is no reason not to upload.
        let _ = write!(io::stderr(), "\r{line}");
    }
}

impl Drop for Bar {
    /// What is said next, perhaps that it failed, stands on a line of its own.
    fn drop(&mut self) {
        if self.drawn.is_some() {
            let _ = writeln!(io::stderr());
        }
    }
}

fn line(sent: u64, total: u64, after: Duration) -> String {
    let share = if total == 0 { 1.0 } else { (sent as f64 / total as f64).min(1.0) };
    let filled = (share * BAR_WIDTH as f64) as usize;
    let speed = sent as f64 / after.as_secs_f64().max(0.001);
    format!(
        "[{}{}] {:3.0} %  {:.1} of {:.1} MB  {:.1} MB/s ",
        "#".repeat(filled),
        "-".repeat(BAR_WIDTH.saturating_sub(filled)),
        share * 100.0,
        sent as f64 / 1e6,
        total as f64 / 1e6,
        speed / 1e6
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar() {
        let second = Duration::from_secs(1);
        assert_eq!(line(0, 300_000_000, second), format!("[{}]   0 %  0.0 of 300.0 MB  0.0 MB/s ", "-".repeat(30)));
        let half = format!("[{}{}]  50 %  150.0 of 300.0 MB  75.0 MB/s ", "#".repeat(15), "-".repeat(15));
        assert_eq!(line(150_000_000, 300_000_000, 2 * second), half);
        let grown = line(400_000_000, 300_000_000, second);
        assert!(grown.starts_with(&format!("[{}] 100 %", "#".repeat(30))), "a file that grew meanwhile: {grown}");
    }

    #[test]
    fn a_file_in_messages() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("module.tar.gz");
        std::fs::write(&path, vec![7; CHUNK_BYTES + 1]).unwrap();
        let info = app::ModuleFileInfo { version: "1.0.0".into(), ..Default::default() };
        let mut upload = Upload::open(&path, info.clone()).unwrap();
        let parts: Vec<ModuleFile> = upload.by_ref().map(|message| message.unwrap().module_file.unwrap()).collect();
        let lengths: Vec<usize> = parts
            .iter()
            .map(|part| match part {
                ModuleFile::ModuleFileInfo(told) => {
                    assert_eq!(*told, info);
                    0
                }
                ModuleFile::File(bytes) => bytes.len(),
            })
            .collect();
        assert_eq!((lengths, upload.sent), (vec![0, CHUNK_BYTES, 1], CHUNK_BYTES as u64 + 1));
        let whole = api::digest::sha256(&vec![7; CHUNK_BYTES + 1]);
        assert_eq!(upload.digest(), whole.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
    }
}
