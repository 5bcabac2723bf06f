//! Questions through a Unix socket in the run folder, which only the agent's user can open.
//!
//! The socket is made in a folder that is closed to others, given its mode, and only then renamed to its name: there is
//! no moment at which somebody else could connect, and one left behind by an agent that was killed is replaced. One that
//! somebody removes, or puts something else in the place of, is made again: the kernel tells of it (inotify). Waits on
//! the reactor: no thread, no wake-up while nobody asks.

use std::{
    cell::RefCell,
    fs::{self, File, Permissions},
    io,
    os::{
        fd::{AsRawFd as _, OwnedFd},
        unix::{
            ffi::OsStrExt as _,
            fs::{MetadataExt as _, PermissionsExt as _},
            net::{UnixListener, UnixStream},
        },
    },
    path::{Path, PathBuf},
    rc::Rc,
    time::Duration,
};

use async_trait::async_trait;
use board::{
    Clock,
    console::{ANSWER_BYTES_MAX, ASKING_TAKES_MAX, Console, QUESTION_BYTES_MAX, Question, READING_TAKES_MAX},
};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use smol::{Async, future::FutureExt as _};

/// Name in the run folder.
const NAME: &str = "console.sock";
/// Under which it is made.
const NEW: &str = ".console.sock.new~";
/// Read of what happened in the folder: some of the kernel's records, with their names.
const CHANGES_BYTES: usize = 512;
/// Bytes of a path that fit into a socket's address, the terminating zero included.
const ADDRESS_BYTES_MAX: usize = 108;
/// Pause after the socket could not be made or listened on: a disk that is full has room again one day.
const RETRY: Duration = Duration::from_secs(60);
/// Whether the socket is still at its place is looked at this often where the kernel does not tell: it has so many
/// watches and no more.
const LOOK_EVERY: Duration = Duration::from_secs(55);

/// The socket of one run folder.
pub struct LinuxConsole {
    folder: PathBuf,
    clock: Rc<dyn Clock>,
    listener: RefCell<Option<Rc<Listener>>>,
}

/// A socket that is listened on, and which one it is: device and inode of its name.
struct Listener {
    socket: Async<UnixListener>,
    file: (u64, u64),
    changes: Option<Async<OwnedFd>>,
}

impl Listener {
    /// Somebody may have done something to the socket's name.
    async fn suspicion(&self, clock: &dyn Clock) {
        let told = match &self.changes {
            // What happened does not matter, only that nothing of it is told twice.
            Some(changes) => changes.read_with(|changes| Ok(rustix::io::read(changes, &mut [0; CHANGES_BYTES])?)).await,
            None => Err(io::ErrorKind::Unsupported.into()),
        };
        if told.is_err() {
            clock.sleep_until(clock.now() + LOOK_EVERY).await;
        }
    }
}

impl LinuxConsole {
    /// Makes the socket. One that cannot be made is a warning and tried again later: an agent that nobody can ask still
    /// does its work.
    #[must_use]
    pub fn new(run_folder: &Path, clock: Rc<dyn Clock>) -> Self {
        let console = LinuxConsole { folder: run_folder.to_owned(), clock, listener: RefCell::default() };
        console.open();
        console
    }

    fn open(&self) -> Option<Rc<Listener>> {
        if let Some(listener) = &*self.listener.borrow() {
            return Some(Rc::clone(listener));
        }
        match listen(&self.folder) {
            Ok(listener) => Some(Rc::clone(self.listener.borrow_mut().insert(Rc::new(listener)))),
            Err(error) => {
                let path = self.folder.join(NAME);
                log::warn!("{} cannot be made, so that nobody can ask for the status here: {error}", path.display());
                None
            }
        }
    }

    /// The next conversation.
    async fn accept(&self) -> UnixAsker {
        loop {
            let Some(listener) = self.open() else {
                self.clock.sleep_until(self.clock.now() + RETRY).await;
                continue;
            };
            let asked = async { Some(listener.socket.accept().await) };
            let look = async {
                listener.suspicion(&*self.clock).await;
                None
            };
            match asked.or(look).await {
                Some(Ok((stream, _))) => return UnixAsker { stream },
                Some(Err(error)) => {
                    log::warn!("nobody can ask for the status here: {error}");
                    self.listener.take();
                    self.clock.sleep_until(self.clock.now() + RETRY).await;
                }
                None => self.look(listener.file),
            }
        }
    }

    /// Gives a socket up that cannot be found any more.
    fn look(&self, file: (u64, u64)) {
        let path = self.folder.join(NAME);
        if identity(&path).is_ok_and(|there| there == file) {
            return;
        }
        log::warn!("{} was removed or replaced; it is made again", path.display());
        self.listener.take();
    }

    /// What `work` gives, or nothing when it takes longer than `limit`.
    async fn within<T>(clock: &dyn Clock, limit: Duration, work: impl Future<Output = io::Result<T>>) -> Option<T> {
        let work = async { work.await.ok() };
        let late = async {
            clock.sleep_until(clock.now() + limit).await;
            None
        };
        work.or(late).await
    }
}

#[async_trait(?Send)]
impl Console for LinuxConsole {
    async fn next(&self) -> Box<dyn Question> {
        loop {
            let asker = self.accept().await;
            let words = Self::within(&*self.clock, ASKING_TAKES_MAX, asker.question()).await;
            if let Some(words) = words.filter(|words| !words.is_empty()) {
                return Box::new(UnixQuestion { words, asker, clock: Rc::clone(&self.clock) });
            }
        }
    }
}

struct UnixAsker {
    stream: Async<UnixStream>,
}

impl UnixAsker {
    /// One line, or what there is of it.
    async fn question(&self) -> io::Result<String> {
        let mut bytes = [0; QUESTION_BYTES_MAX];
        let mut length = 0;
        while let Some(free) = bytes.get_mut(length..).filter(|free| !free.is_empty()) {
            let read = self.stream.read_with(|mut stream| io::Read::read(&mut stream, free)).await?;
            let new = bytes.get(length..length + read).unwrap_or_default();
            if let Some(end) = new.iter().position(|&byte| byte == b'\n') {
                length += end;
                break;
            }
            length += read;
            if read == 0 {
                break;
            }
        }
        let said = bytes.get(..length).unwrap_or_default();
        Ok(String::from_utf8_lossy(said).trim_end_matches('\r').to_owned())
    }

    async fn tell(&self, mut rest: &[u8]) -> io::Result<()> {
        while !rest.is_empty() {
            let written = self.stream.write_with(|mut stream| io::Write::write(&mut stream, rest)).await?;
            rest = rest.get(written..).unwrap_or_default();
        }
        Ok(())
    }
}

struct UnixQuestion {
    words: String,
    asker: UnixAsker,
    clock: Rc<dyn Clock>,
}

#[async_trait(?Send)]
impl Question for UnixQuestion {
    fn words(&self) -> &str {
        &self.words
    }

    async fn answer(self: Box<Self>, answer: &[u8]) {
        if answer.len() <= ANSWER_BYTES_MAX {
            LinuxConsole::within(&*self.clock, READING_TAKES_MAX, self.asker.tell(answer)).await;
        }
    }
}

/// Device and inode, of the name itself.
fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let there = fs::symlink_metadata(path)?;
    Ok((there.dev(), there.ino()))
}

fn listen(folder: &Path) -> io::Result<Listener> {
    let closed = Permissions::from_mode(0o700);
    if fs::metadata(folder)?.permissions().mode() & 0o777 != closed.mode() {
        fs::set_permissions(folder, closed)?;
    }
    let (name, new) = (folder.join(NAME), folder.join(NEW));
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = at_address(folder, NEW, |address| UnixListener::bind(address))?;
    fs::set_permissions(&new, Permissions::from_mode(0o600))?;
    fs::rename(&new, &name)?;
    // Last, so that it tells of nothing that was done here.
    let changes = changes(folder).inspect_err(|error| log::debug!("{} cannot be watched: {error}", folder.display()));
    Ok(Listener { socket: Async::new(listener)?, file: identity(&name)?, changes: changes.ok() })
}

/// Readable after something in the folder was removed, renamed or replaced.
fn changes(folder: &Path) -> io::Result<Async<OwnedFd>> {
    let changes = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
    inotify::add_watch(&changes, folder, WatchFlags::DELETE | WatchFlags::MOVED_FROM | WatchFlags::MOVED_TO)?;
    Async::new_nonblocking(changes)
}

/// Connects to the console of the agent whose run folder this is. Blocking; each read and write ends after `limit`.
pub fn ask(run_folder: &Path, limit: Duration) -> io::Result<UnixStream> {
    let stream = at_address(run_folder, NAME, |address| UnixStream::connect(address))?;
    stream.set_read_timeout(Some(limit))?;
    stream.set_write_timeout(Some(limit))?;
    Ok(stream)
}

/// A socket's address is short. The one of a folder far down goes by way of the open folder.
fn at_address<T>(folder: &Path, name: &str, act: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
    let path = folder.join(name);
    if path.as_os_str().as_bytes().len() < ADDRESS_BYTES_MAX {
        return act(&path);
    }
    let open = File::open(folder)?;
    act(&PathBuf::from(format!("/proc/self/fd/{}", open.as_raw_fd())).join(name))
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;
    use crate::clock::LinuxClock;
    use smol::LocalExecutor;

    fn console(folder: &Path) -> (Rc<LocalExecutor<'static>>, LinuxConsole) {
        let executor = Rc::new(LocalExecutor::new());
        let clock = Rc::new(LinuxClock::new(&executor).expect("a clock"));
        let console = LinuxConsole::new(folder, clock);
        (executor, console)
    }

    #[test]
    fn the_socket_is_private_replaces_an_old_one_and_may_lie_deep() {
        let folder = tempfile::tempdir().expect("a folder");
        let deep = folder.path().join("d".repeat(100)).join("run");
        for run in [folder.path().join("run"), deep] {
            fs::create_dir_all(&run).expect("made");
            fs::set_permissions(&run, Permissions::from_mode(0o755)).expect("set");
            // Left by somebody who was killed: a socket at the name, and one on the way to it.
            for left in [NAME, NEW] {
                drop(at_address(&run, left, |address| UnixListener::bind(address)).expect("bound"));
            }
            assert_eq!(ask(&run, RETRY).map(drop).map_err(|error| error.kind()), Err(io::ErrorKind::ConnectionRefused));
            let (executor, console) = console(&run);
            assert_eq!(fs::metadata(run.join(NAME)).expect("there").mode() & 0o777, 0o600);
            assert_eq!(fs::metadata(&run).expect("there").mode() & 0o777, 0o700);
            assert!(!run.join(NEW).exists());
            let asker = std::thread::spawn(move || {
                let mut stream = ask(&run, RETRY).expect("connected");
                stream.write_all(b"who\r\nis there").expect("asked");
                let mut answer = String::new();
                stream.read_to_string(&mut answer).expect("answered");
                answer
            });
            smol::block_on(executor.run(async {
                let question = console.next().await;
                assert_eq!(question.words(), "who");
                question.answer(b"me").await;
            }));
            assert_eq!(asker.join().expect("ended"), "me");
        }
    }

    #[test]
    fn a_socket_that_was_removed_or_replaced_is_made_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let (executor, console) = console(folder.path());
        let path = folder.path().join(NAME);
        let ours = || console.open().expect("it can be made").file;
        let look = || console.look(ours());
        let first = ours();
        look();
        assert_eq!(ours(), first, "nothing happened to it");
        fs::remove_file(&path).expect("removed");
        look();
        assert_eq!(ours(), identity(&path).expect("there"));
        // Somebody else's in its place.
        fs::remove_file(&path).expect("removed");
        drop(UnixListener::bind(&path).expect("bound"));
        look();
        assert_eq!(ours(), identity(&path).expect("there"));
        // And by itself, while it waits for somebody to ask. (The number of the file may be the one of before.)
        fs::remove_file(&path).expect("removed");
        let made_again = async {
            while identity(&path).is_err() {
                smol::future::yield_now().await;
            }
        };
        let waits = async {
            console.next().await;
        };
        smol::block_on(executor.run(waits.or(made_again)));
        assert_eq!(ours(), identity(&path).expect("there"));
        let asker = std::thread::spawn({
            let folder = folder.path().to_owned();
            move || ask(&folder, RETRY).and_then(|mut stream| stream.write_all(b"who\n")).expect("asked")
        });
        smol::block_on(executor.run(async { assert_eq!(console.next().await.words(), "who") }));
        asker.join().expect("ended");
    }

    #[test]
    fn who_does_not_read_is_let_go() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let executor = Rc::new(LocalExecutor::new());
        let clock = LinuxClock::new(&executor).expect("a clock");
        let asker = UnixAsker { stream: Async::new(ours).expect("registered") };
        // More than the kernel holds for anybody.
        let endless = vec![b'.'; 64 << 20];
        let limit = Duration::from_millis(20);
        let given = LinuxConsole::within(&clock, limit, asker.tell(&endless));
        assert_eq!(smol::block_on(executor.run(given)), None);
        drop(theirs);
    }

    #[test]
    fn a_folder_that_is_not_there_is_a_warning() {
        let folder = tempfile::tempdir().expect("a folder");
        let (_executor, console) = console(&folder.path().join("missing"));
        assert!(console.listener.borrow().is_none());
    }
}
