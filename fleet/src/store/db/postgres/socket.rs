//! One connection's socket, driven by the thread that asks.
//!
//! The driver is written for an event loop. Its work is done here by the very thread that waits for the answer: a
//! statement costs one write and one read, and no other thread has to be woken, which would double the time of a point
//! read. It also works inside and outside any runtime.

use std::{
    io::{self, Read, Write},
    net::{TcpStream, ToSocketAddrs},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::UnixStream,
    },
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::AcqRel, Ordering::Acquire, Ordering::Release},
    },
    task::{Context, Poll, Wake, Waker},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::sockopt,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::config::Host;

/// For a host that does not answer; a listening server answers in a round trip.
const CONNECT_WITHIN: Duration = Duration::from_secs(3);
/// Unanswered bytes or keep-alives on a dead line are noticed within about this.
const DEAD_AFTER: Duration = Duration::from_secs(10);

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// What the socket could not do at once.
#[derive(Default)]
struct Interest {
    read: AtomicBool,
    write: AtomicBool,
}

/// Shared by the driver, which reads and writes, and the [`Line`], which waits.
#[derive(Clone)]
pub(super) struct Socket {
    stream: Arc<Stream>,
    interest: Arc<Interest>,
}

/// The driver's half of a connection: ends when the connection does.
pub(super) type Wire = Pin<Box<dyn Future<Output = Result<(), tokio_postgres::Error>> + Send>>;

/// Waits for a connection's answers.
pub(super) struct Line {
    socket: Socket,
    woken: Arc<Woken>,
    waker: Waker,
    pub(super) wire: Option<Wire>,
}

/// The connection cannot be used any more.
#[derive(Debug)]
pub(super) enum Gone {
    /// It was closed, with what the other side or the system said.
    Ended(Option<tokio_postgres::Error>),
    /// No answer in time.
    Late,
    /// The system refused to wait.
    System(io::Error),
}

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Release);
    }
}

impl Socket {
    pub(super) fn connect(host: &Host, port: u16) -> io::Result<Self> {
        let stream = match host {
            Host::Unix(folder) => {
                let stream = UnixStream::connect(folder.join(format!(".s.PGSQL.{port}")))?;
                stream.set_nonblocking(true)?;
                Stream::Unix(stream)
            }
            Host::Tcp(name) => Stream::Tcp(connect_tcp(name, port)?),
        };
        Ok(Self { stream: Arc::new(stream), interest: Arc::default() })
    }

    fn fd(&self) -> BorrowedFd<'_> {
        match &*self.stream {
            Stream::Tcp(stream) => stream.as_fd(),
            Stream::Unix(stream) => stream.as_fd(),
        }
    }
}

fn connect_tcp(name: &str, port: u16) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in (name, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT_WITHIN) {
            Ok(stream) => {
                stream.set_nonblocking(true)?;
                stream.set_nodelay(true)?;
                sockopt::set_socket_keepalive(&stream, true)?;
                sockopt::set_tcp_keepidle(&stream, DEAD_AFTER / 2)?;
                sockopt::set_tcp_keepintvl(&stream, DEAD_AFTER / 5)?;
                sockopt::set_tcp_keepcnt(&stream, 3)?;
                sockopt::set_tcp_user_timeout(&stream, u32::try_from(DEAD_AFTER.as_millis()).unwrap_or(u32::MAX))?;
                return Ok(stream);
            }
            Err(why) => last = why,
        }
    }
    Err(last)
}

impl Line {
    pub(super) fn new(socket: Socket) -> Self {
        let woken = Arc::<Woken>::default();
        Self { socket, waker: Waker::from(woken.clone()), woken, wire: None }
    }

    /// Runs `future` to its end, doing the driver's work meanwhile.
    pub(super) fn run<F: Future>(&mut self, within: Duration, future: F) -> Result<F::Output, Gone> {
        let deadline = Instant::now() + within;
        let waker = self.waker.clone();
        let mut context = Context::from_waker(&waker);
        let mut future = pin!(future);
        loop {
            // Without a wire the future itself uses the socket (while connecting), so this comes before its turn.
            self.forget();
            if let Poll::Ready(done) = future.as_mut().poll(&mut context) {
                return Ok(done);
            }
            if self.wire.is_some() {
                self.forget();
                let ended = self.turn(&mut context);
                let woken = self.woken.0.swap(false, AcqRel);
                if (woken || ended.is_some())
                    && let Poll::Ready(done) = future.as_mut().poll(&mut context)
                {
                    return Ok(done);
                }
                if let Some(why) = ended {
                    return Err(Gone::Ended(why));
                }
            }
            if !self.woken.0.swap(false, AcqRel) {
                self.wait(deadline)?;
            }
        }
    }

    /// Hands over a request whose answer nobody needs; it is sent with the next one, or by [`Self::flush`].
    pub(super) fn start<F: Future>(&mut self, future: F) {
        let _ = pin!(future).poll(&mut Context::from_waker(&self.waker));
    }

    /// Sends what was handed over and reads what has arrived, without waiting.
    pub(super) fn flush(&mut self) -> Result<(), Gone> {
        let waker = self.waker.clone();
        match self.turn(&mut Context::from_waker(&waker)) {
            None => Ok(()),
            Some(why) => Err(Gone::Ended(why)),
        }
    }

    /// `Some` when the connection ended.
    fn turn(&mut self, context: &mut Context<'_>) -> Option<Option<tokio_postgres::Error>> {
        let Some(wire) = &mut self.wire else { return Some(None) };
        match wire.as_mut().poll(context) {
            Poll::Pending => None,
            Poll::Ready(outcome) => {
                self.wire = None;
                Some(outcome.err())
            }
        }
    }

    fn forget(&self) {
        self.woken.0.store(false, Release);
        self.socket.interest.read.store(false, Release);
        self.socket.interest.write.store(false, Release);
    }

    fn wait(&self, deadline: Instant) -> Result<(), Gone> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Gone::Late);
        }
        let mut wanted = PollFlags::empty();
        wanted.set(PollFlags::IN, self.socket.interest.read.load(Acquire));
        wanted.set(PollFlags::OUT, self.socket.interest.write.load(Acquire));
        let seconds = i64::try_from(left.as_secs()).unwrap_or(i64::MAX);
        let timeout = Timespec { tv_sec: seconds, tv_nsec: left.subsec_nanos().into() };
        match poll(&mut [PollFd::from_borrowed_fd(self.socket.fd(), wanted)], Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(why) => Err(Gone::System(why.into())),
        }
    }
}

/// The result of one attempt; what would block is remembered as an interest.
fn attempt<T>(interest: &AtomicBool, mut work: impl FnMut() -> io::Result<T>) -> Poll<io::Result<T>> {
    loop {
        match work() {
            Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
            Err(why) if why.kind() == io::ErrorKind::WouldBlock => {
                interest.store(true, Release);
                return Poll::Pending;
            }
            outcome => return Poll::Ready(outcome),
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let space = buffer.initialize_unfilled();
        let read = attempt(&self.interest.read, || match &*self.stream {
            Stream::Tcp(stream) => { stream }.read(space),
            Stream::Unix(stream) => { stream }.read(space),
        });
        read.map_ok(|count| buffer.advance(count))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        attempt(&self.interest.write, || match &*self.stream {
            Stream::Tcp(stream) => { stream }.write(bytes),
            Stream::Unix(stream) => { stream }.write(bytes),
        })
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let both = std::net::Shutdown::Both;
        Poll::Ready(match &*self.stream {
            Stream::Tcp(stream) => stream.shutdown(both),
            Stream::Unix(stream) => stream.shutdown(both),
        })
    }
}
