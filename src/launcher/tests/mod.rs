//! Every rung, every poison, and random histories.

mod histories;
mod poison;
mod rows;

use std::{cell::RefCell, collections::BTreeMap};

use super::*;

/// A disk whose files a test can damage and whose writes it can refuse.
#[derive(Default)]
struct Memory {
    files: RefCell<BTreeMap<PathBuf, Vec<u8>>>,
    refuses: RefCell<Vec<&'static str>>,
    writes: RefCell<usize>,
}

impl Memory {
    fn put(&self, path: PathBuf, content: impl Into<Vec<u8>>) {
        self.files.borrow_mut().insert(path, content.into());
    }

    fn refuses(&self, path: &Path) -> bool {
        self.refuses.borrow().iter().any(|part| path.to_string_lossy().contains(part))
    }
}

impl Disk for Memory {
    fn read(&self, path: &Path, limit: usize) -> io::Result<Option<Vec<u8>>> {
        let content = self.files.borrow().get(path).cloned();
        match content {
            Some(content) if content == b"folder" => Err(io::Error::other("it is no file")),
            Some(content) if content.len() > limit => Err(io::ErrorKind::FileTooLarge.into()),
            content => Ok(content),
        }
    }

    fn write(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        if self.refuses(path) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        *self.writes.borrow_mut() += 1;
        self.put(path.to_owned(), content);
        Ok(())
    }

    fn is_program(&self, path: &Path) -> Result<(), String> {
        self.files.borrow().get(path).map(drop).ok_or_else(|| "it is missing".to_owned())
    }
}

const ROOT: &str = "/opt/platform";

fn files() -> Layout {
    layout(Path::new(ROOT))
}

fn boot(id: &str, uptime_seconds: u64) -> Boot {
    Boot { id: id.into(), uptime_seconds }
}

/// A disk with versions in these slots and a pointer.
fn disk(slots: &[Slot], pointer: Option<Pointer>) -> Memory {
    let disk = Memory::default();
    for slot in slots {
        disk.put(files().executable(*slot), "program");
    }
    if let Some(pointer) = pointer {
        disk.put(files().pointer(), pointer.text());
        // As the agent leaves it that points at the other slot and hands over.
        if pointer.trial {
            let before = Starts::fresh(Pointer::kept(pointer.slot.other())).marked(Mark::Stopped);
            disk.put(files().starts(), before.encode());
        }
    }
    disk
}

/// Starts once: "a", "b safe", with what is waited before.
fn start(disk: &Memory, boot: &Boot) -> (String, Choice) {
    let run = Run::new(disk, Path::new(ROOT), boot.clone());
    let choice = run.choose().expect("something can be started");
    let _ = run.count(&choice);
    (format!("{}{}", choice.slot.name(), if choice.safe { " safe" } else { "" }), choice)
}

fn starts(disk: &Memory, count: usize) -> Vec<String> {
    (0..count).map(|_| start(disk, &boot("one", 5)).0).collect()
}

fn pointer(disk: &Memory) -> String {
    String::from_utf8_lossy(&content(disk, &files().pointer())).into_owned()
}

const BOTH: [Slot; 2] = Slot::ALL;

fn content(disk: &Memory, path: &Path) -> Vec<u8> {
    disk.files.borrow().get(path).cloned().unwrap_or_default()
}

fn starts_file(disk: &Memory) -> Vec<u8> {
    content(disk, &files().starts())
}

fn plant(disk: &Memory, path: PathBuf, poison: Option<Vec<u8>>) {
    match poison {
        Some(bytes) => disk.put(path, bytes),
        None => drop(disk.files.borrow_mut().remove(&path)),
    }
}
