//! Two pipes in the run folder, through which a machine server speaks to whichever agent runs.
//!
//! Both ends are opened for reading and writing: the server's writes then never fail for want of a reader, and what it
//! said while no agent ran is read by the next one. A write waits once [`PIPE_BYTES`] are unread. What keeps the words
//! of a server that died while no agent ran is in `passing`.
//!
//! A machine server goes on with the pipes that it was started with. When somebody cleans the run folder up, the agent
//! goes on with them too, and so does the next one; the next machine server gets others, with the names. Where none can
//! be made, pipes without names do: no state of the disk keeps a machine server from running.

use std::{
    cell::{Cell, RefCell},
    ffi::OsString,
    fs::{self, File, OpenOptions},
    io,
    os::{
        fd::{AsRawFd as _, OwnedFd},
        unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _},
    },
    path::{Path, PathBuf},
    rc::Rc,
};

use board::process::{PassedOn, Stream};
use rustix::{
    fs::{Mode, OFlags, mkfifoat},
    pipe::{PipeFlags, pipe_with},
};
use smol::{Async, future::FutureExt as _};

use super::{
    passing::{self, Inherited, identity},
    theirs::Theirs,
};
use crate::service::Notify;

/// Longest piece that is handed on, in bytes.
const PIECE_BYTES_MAX: usize = 8 * 1024;
/// What a pipe keeps while nobody reads: some seconds of a chatty server, and what the kernel allows everybody. It is
/// the kernel's memory, used only as far as it is filled.
const PIPE_BYTES: usize = 1024 * 1024;
/// Names in the run folder, and in the store of a service manager.
pub(super) const NAMED: [(Stream, &str); 2] = [(Stream::Out, "server.stdout"), (Stream::Err, "server.stderr")];
/// Ending of what was in the way. One generation is kept, for whoever wants to know why.
const IN_THE_WAY: &str = ".in-the-way";

/// The agent's end of one pipe.
pub(super) type End = Async<OwnedFd>;

/// The agent's ends.
#[derive(Clone)]
struct Ends {
    out: Rc<End>,
    err: Rc<End>,
}

/// The pipes of one run folder.
pub(super) struct Pipes {
    folder: PathBuf,
    ends: RefCell<Ends>,
    /// No machine server writes there any more; what is in them is still to be read.
    left: RefCell<Vec<(Stream, Rc<End>)>>,
    /// Who is asked first, so that one loud stream does not silence the other.
    err_first: Cell<bool>,
    manager: Rc<Notify>,
}

impl Pipes {
    /// Opens them by their paths. What an earlier agent held open is let go afterwards, unless it was other pipes.
    pub(super) fn open(folder: &Path, mut inherited: Inherited, manager: Rc<Notify>) -> io::Result<Pipes> {
        let mut ends = Ends::named(folder).or_else(|error| {
            log::error!(
                "{} cannot be used: {error}. What the machine server says goes through pipes without a name, and is \
                 lost when this agent dies together with it",
                folder.display()
            );
            Ends::nameless()
        })?;
        let stored = inherited.stored();
        for (stream, end) in [(Stream::Out, &mut ends.out), (Stream::Err, &mut ends.err)] {
            if let Some(other) = inherited.other_than(stream, end.get_ref()).and_then(|other| Async::new(other).ok()) {
                log::warn!("the output pipes of the last agent were removed from {}", folder.display());
                *end = Rc::new(other);
            }
        }
        if !ends.are(&stored) {
            ends.keep_in(&manager);
        }
        if !inherited.is_empty() {
            log::debug!("the output pipes were held open until now");
        }
        drop(inherited);
        let (ends, left) = (RefCell::new(ends), RefCell::default());
        Ok(Pipes { folder: folder.to_owned(), ends, left, err_first: Cell::new(false), manager })
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Device and inode number of the pipe for standard output.
    pub(super) fn identity(&self) -> Option<(u64, u64)> {
        identity(self.ends.borrow().out.get_ref())
    }

    /// The ends for a new process. Somebody may have cleaned the folder up: the pipes are then made again, because the
    /// next agent looks for them there. If they cannot be, those that are open do.
    pub(super) fn for_child(&self) -> io::Result<(File, File)> {
        let ends = self.ends.borrow().clone();
        if !ends.are_named_in(&self.folder) {
            match Ends::named(&self.folder) {
                Ok(named) => self.replace(named),
                Err(error) => log::error!("{} cannot be used: {error}", self.folder.display()),
            }
        }
        let ends = self.ends.borrow();
        Ok((again(ends.out.get_ref(), OFlags::empty())?, again(ends.err.get_ref(), OFlags::empty())?))
    }

    /// Goes on with the pipes that a process writes into.
    pub(super) fn hear(&self, pid: u32) {
        let mut ends = self.ends.borrow().clone();
        let mut others = false;
        for (stream, end) in [(Stream::Out, &mut ends.out), (Stream::Err, &mut ends.err)] {
            let theirs = Theirs::of(pid, stream);
            let Some(theirs) = theirs.filter(|theirs| Some(theirs.identity) != identity(end.get_ref())) else {
                continue;
            };
            others = true;
            match theirs.open() {
                Ok(other) => *end = Rc::new(other),
                Err(error) => log::error!("the machine server will wait for somebody to read what it says: {error}"),
            }
        }
        if others {
            log::warn!("process {pid} writes into pipes that were removed from {}", self.folder.display());
            self.replace(ends);
        }
    }

    fn replace(&self, ends: Ends) {
        ends.keep_in(&self.manager);
        let before = self.ends.replace(ends);
        *self.left.borrow_mut() = vec![(Stream::Out, before.out), (Stream::Err, before.err)];
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
        if let Some(piece) = self.rest() {
            return piece;
        }
        let ends = self.ends.borrow().clone();
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

    /// A piece of what was left in pipes that are not used any more, which are let go when they are empty.
    fn rest(&self) -> Option<(Stream, Vec<u8>)> {
        let mut left = self.left.borrow_mut();
        while let Some((stream, end)) = left.first() {
            match read(end.get_ref()) {
                Ok(piece) => return Some((*stream, piece)),
                Err(_) => drop(left.remove(0)),
            }
        }
        None
    }
}

/// Device and inode number of the pipe for standard output in a run folder.
pub(super) fn named_in(folder: &Path) -> Option<(u64, u64)> {
    let [(_, out), _] = NAMED;
    named(&folder.join(out))
}

fn named(path: &Path) -> Option<(u64, u64)> {
    let pipe = fs::symlink_metadata(path).ok()?;
    Some((pipe.dev(), pipe.ino()))
}

impl Ends {
    fn named(folder: &Path) -> io::Result<Ends> {
        make_folder(folder)?;
        let [out, err] = NAMED.map(|(_, name)| end(&folder.join(name)));
        Ok(Ends { out: Rc::new(out?), err: Rc::new(err?) })
    }

    fn nameless() -> io::Result<Ends> {
        let end = || -> io::Result<End> {
            let (_reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
            patient(again(&writer, OFlags::NONBLOCK)?)
        };
        Ok(Ends { out: Rc::new(end()?), err: Rc::new(end()?) })
    }

    /// Gives them to a service manager, in place of what it had.
    fn keep_in(&self, manager: &Notify) {
        for ((_, name), end) in NAMED.into_iter().zip([&self.out, &self.err]) {
            manager.keep(name, end.get_ref());
        }
    }

    /// Whether they are of these pipes, all of them.
    fn are(&self, pipes: &[(u64, u64)]) -> bool {
        let own = [&self.out, &self.err].map(|end| identity(end.get_ref()));
        pipes.len() == own.len() && own.iter().all(|own| own.is_some_and(|own| pipes.contains(&own)))
    }

    /// Whether the names still mean the pipes that are open.
    fn are_named_in(&self, folder: &Path) -> bool {
        let ends = NAMED.into_iter().zip([&self.out, &self.err]);
        let mut ends = ends.map(|((_, name), end)| (named(&folder.join(name)), identity(end.get_ref())));
        ends.all(|(named, open)| named.is_some() && named == open)
    }
}

/// Makes the folder, also where something else is in its place.
fn make_folder(folder: &Path) -> io::Result<()> {
    if !folder.is_dir() && fs::symlink_metadata(folder).is_ok() {
        move_aside(folder)?;
    }
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

fn move_aside(path: &Path) -> io::Result<()> {
    let mut aside = OsString::from(path);
    aside.push(IN_THE_WAY);
    let aside = PathBuf::from(aside);
    match fs::symlink_metadata(&aside) {
        Ok(before) if before.is_dir() => fs::remove_dir_all(&aside)?,
        Ok(_) | Err(_) => {}
    }
    fs::rename(path, &aside)?;
    log::warn!("{} was in the way and is now {}", path.display(), aside.display());
    Ok(())
}

/// Makes the pipe unless it is there, and opens the agent's end.
fn end(path: &Path) -> io::Result<End> {
    match fs::symlink_metadata(path) {
        Ok(there) if there.file_type().is_fifo() => {}
        Ok(there) => {
            if there.is_dir() { move_aside(path) } else { fs::remove_file(path) }?;
            make(path)?;
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => make(path)?,
        Err(error) => return Err(error),
    }
    patient(open(path, OFlags::NONBLOCK | OFlags::NOFOLLOW)?)
}

fn make(path: &Path) -> io::Result<()> {
    Ok(mkfifoat(rustix::fs::CWD, path, Mode::RUSR | Mode::WUSR)?)
}

/// An agent's end of a pipe that the kernel shows at this path.
pub(super) fn open_end(path: &Path) -> io::Result<End> {
    patient(open(path, OFlags::NONBLOCK)?)
}

/// An end that waits for its reader as long as it may.
fn patient(file: File) -> io::Result<End> {
    // Less is only less patience with an agent that is away.
    if let Err(error) = rustix::pipe::fcntl_setpipe_size(&file, PIPE_BYTES) {
        log::debug!("a pipe keeps its size: {error}");
    }
    Async::new_nonblocking(OwnedFd::from(file))
}

/// Opens the same pipe once more, whether it has a name or not.
fn again(end: &OwnedFd, flags: OFlags) -> io::Result<File> {
    open(Path::new(&format!("/proc/self/fd/{}", end.as_raw_fd())), flags)
}

/// Each opening has a mode of its own: the agent's reads do not wait, the machine server's writes do.
fn open(path: &Path, flags: OFlags) -> io::Result<File> {
    let flags = i32::try_from(flags.bits()).unwrap_or(0);
    let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)?;
    if file.metadata()?.file_type().is_fifo() { Ok(file) } else { Err(io::ErrorKind::InvalidInput.into()) }
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
