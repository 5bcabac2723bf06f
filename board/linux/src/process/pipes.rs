//! Two named pipes in the run folder, through which a machine server speaks to whichever agent runs.
//!
//! Both ends are opened for reading and writing: the server's writes then never fail for want of a reader, and what it
//! said while no agent ran is read by the next one. A write waits once [`PIPE_BYTES`] are unread. What keeps the words
//! of a server that died while no agent ran is in `passing`.

use std::{
    cell::{Cell, RefCell},
    fs::{self, File, OpenOptions},
    io,
    os::{
        fd::OwnedFd,
        unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _},
    },
    path::{Path, PathBuf},
    rc::Rc,
};

use board::process::{PassedOn, Stream};
use rustix::fs::{Mode, OFlags, mkfifoat};
use smol::{Async, future::FutureExt as _};

use super::passing::{self, Inherited, identity};
use crate::service::Notify;

/// Longest piece that is handed on, in bytes.
const PIECE_BYTES_MAX: usize = 8 * 1024;
/// What a pipe keeps while nobody reads: some seconds of a chatty server, and what the kernel allows everybody. It is
/// the kernel's memory, used only as far as it is filled.
const PIPE_BYTES: usize = 1024 * 1024;
/// Names in the run folder, and in the store of a service manager.
pub(super) const NAMES: [&str; 2] = ["server.stdout", "server.stderr"];

/// The agent's ends.
struct Ends {
    out: Async<OwnedFd>,
    err: Async<OwnedFd>,
}

/// The pipes of one run folder.
pub(super) struct Pipes {
    folder: PathBuf,
    ends: RefCell<Rc<Ends>>,
    /// Who is asked first, so that one loud stream does not silence the other.
    err_first: Cell<bool>,
    manager: Rc<Notify>,
}

impl Pipes {
    /// Opens them by their paths; what an earlier agent held open is let go afterwards.
    pub(super) fn open(folder: &Path, inherited: Inherited, manager: Rc<Notify>) -> io::Result<Pipes> {
        let ends = Ends::open(folder)?;
        let pipes: Vec<_> = [&ends.out, &ends.err].into_iter().filter_map(|end| identity(end.get_ref())).collect();
        if !inherited.are_stored(&pipes) {
            ends.keep_in(&manager);
        }
        if !inherited.is_empty() {
            log::debug!("the output pipes were held open until now");
        }
        drop(inherited);
        Ok(Pipes { folder: folder.to_owned(), ends: RefCell::new(Rc::new(ends)), err_first: Cell::new(false), manager })
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Device and inode number of the pipe for standard output.
    pub(super) fn identity(&self) -> Option<(u64, u64)> {
        named_in(&self.folder)
    }

    /// The ends for a new process. Somebody may have cleaned the folder up: the pipes are then made again, because the
    /// next agent looks for them there.
    pub(super) fn for_child(&self) -> io::Result<(File, File)> {
        let [out, err] = NAMES.map(|name| self.folder.join(name));
        let ends = Rc::clone(&self.ends.borrow());
        if !(is_same(&out, ends.out.get_ref()) && is_same(&err, ends.err.get_ref())) {
            let ends = Ends::open(&self.folder)?;
            ends.keep_in(&self.manager);
            *self.ends.borrow_mut() = Rc::new(ends);
        }
        Ok((open_end(&out, OFlags::empty())?, open_end(&err, OFlags::empty())?))
    }

    /// See [`board::process::Processes::pass_on`].
    pub(super) fn pass_on(&self) -> PassedOn {
        let ends = self.ends.borrow();
        let copies = [&ends.out, &ends.err].map(|end| end.get_ref().try_clone());
        match copies {
            [Ok(out), Ok(err)] => passing::pass_on([out, err]),
            [Err(error), _] | [_, Err(error)] => {
                log::warn!("last words of the machine server may be lost in the hand-over: {error}");
                PassedOn::new(Vec::new(), || {})
            }
        }
    }

    /// The next piece. Cancel-safe: nothing is read before the future that hands it on is about to return.
    pub(super) async fn next(&self) -> (Stream, Vec<u8>) {
        let ends = Rc::clone(&self.ends.borrow());
        // Looks at the first wake-up: the reactor reports what came before its question a second time.
        let out = async { (Stream::Out, ends.out.read_with(read).await) };
        let err = async { (Stream::Err, ends.err.read_with(read).await) };
        let (stream, piece) = if self.err_first.get() { err.or(out).await } else { out.or(err).await };
        self.err_first.set(stream == Stream::Out);
        match piece {
            Ok(piece) => (stream, piece),
            Err(error) => {
                log::error!("the output of the machine server cannot be read: {error}");
                std::future::pending().await
            }
        }
    }
}

/// Device and inode number of the pipe for standard output in a run folder.
pub(super) fn named_in(folder: &Path) -> Option<(u64, u64)> {
    let pipe = fs::symlink_metadata(folder.join(NAMES[0])).ok()?;
    Some((pipe.dev(), pipe.ino()))
}

impl Ends {
    fn open(folder: &Path) -> io::Result<Ends> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let [out, err] = NAMES.map(|name| end(&folder.join(name)));
        Ok(Ends { out: out?, err: err? })
    }

    /// Gives them to a service manager, in place of what it had.
    fn keep_in(&self, manager: &Notify) {
        for (name, end) in NAMES.into_iter().zip([&self.out, &self.err]) {
            manager.keep(name, end.get_ref());
        }
    }
}

/// Makes the pipe unless it is there, and opens the agent's end.
fn end(path: &Path) -> io::Result<Async<OwnedFd>> {
    match fs::symlink_metadata(path) {
        Ok(there) if there.file_type().is_fifo() => {}
        Ok(_) => {
            fs::remove_file(path)?;
            make(path)?;
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => make(path)?,
        Err(error) => return Err(error),
    }
    let file = open_end(path, OFlags::NONBLOCK)?;
    // Less is only less patience with an agent that is away.
    if let Err(error) = rustix::pipe::fcntl_setpipe_size(&file, PIPE_BYTES) {
        log::debug!("{} keeps its size: {error}", path.display());
    }
    Async::new_nonblocking(OwnedFd::from(file))
}

fn make(path: &Path) -> io::Result<()> {
    Ok(mkfifoat(rustix::fs::CWD, path, Mode::RUSR | Mode::WUSR)?)
}

/// Each opening has a mode of its own: the agent's reads do not wait, the machine server's writes do.
fn open_end(path: &Path, flags: OFlags) -> io::Result<File> {
    let flags = flags | OFlags::NOFOLLOW;
    let flags = i32::try_from(flags.bits()).unwrap_or(0);
    let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)?;
    if file.metadata()?.file_type().is_fifo() { Ok(file) } else { Err(io::ErrorKind::InvalidInput.into()) }
}

/// Whether `path` still names the pipe that is open.
fn is_same(path: &Path, open: &OwnedFd) -> bool {
    fs::symlink_metadata(path).is_ok_and(|named| identity(open) == Some((named.dev(), named.ino())))
}

/// What is there now, if anything.
fn read(end: &OwnedFd) -> io::Result<Vec<u8>> {
    let mut piece = [0; PIECE_BYTES_MAX];
    match rustix::io::retry_on_intr(|| rustix::io::read(end, &mut piece))? {
        // Cannot be, while this end is open for writing too.
        0 => Err(io::ErrorKind::WouldBlock.into()),
        length => Ok(piece.get(..length).unwrap_or_default().to_vec()),
    }
}
