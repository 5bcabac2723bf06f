//! One connection: requests one after the other, each within its limits.

use std::{
    io::{self, IoSlice, Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpStream},
    rc::Rc,
    time::Duration,
};

use board::{
    Clock,
    doorway::{IDLE_MAX, READING_TAKES_MAX, REQUEST_TAKES_MAX, Request, Response},
};
use smol::{
    Async,
    channel::{Sender, bounded},
    future::FutureExt as _,
};

use super::{
    Asked, Silent,
    message::{self, Heard, Reader, Refusal},
};

/// What is read at once, on the stack.
const READ_BYTES: usize = 2 * 1024;
/// How long a visitor may take to close its side after the last answer.
const LEAVING_TAKES_MAX: Duration = Duration::from_secs(2);
/// What a visitor may still say after the last answer; it is not read by anybody.
const LEFT_BYTES_MAX: usize = 64 * 1024;

pub(super) struct Session {
    pub(super) stream: Async<TcpStream>,
    pub(super) visitor: SocketAddr,
    pub(super) clock: Rc<dyn Clock>,
    pub(super) knocks: Sender<Asked>,
    pub(super) silent: Silent,
}

/// Why no request came.
enum Trouble {
    Gone,
    Refused(Refusal),
}

impl From<io::Error> for Trouble {
    fn from(_: io::Error) -> Self {
        Trouble::Gone
    }
}

impl From<Refusal> for Trouble {
    fn from(refusal: Refusal) -> Self {
        Trouble::Refused(refusal)
    }
}

impl Session {
    /// Serves until either side has enough.
    pub(super) async fn serve(self) {
        let _ = self.stream.get_ref().set_nodelay(true);
        let mut reader = Reader::default();
        loop {
            if reader.is_silent() {
                self.silent.set(Some(self.clock.now()));
                let first = self.within(IDLE_MAX, self.hear(&mut reader)).await;
                self.silent.set(None);
                if !matches!(first, Some(Ok(()))) {
                    return;
                }
            }
            // In a place of its own: a connection on which nothing is said does not keep room for what a request takes.
            if !Box::pin(self.exchange(&mut reader)).await {
                return;
            }
        }
    }

    /// One request and its answer; whether another may follow.
    async fn exchange(&self, reader: &mut Reader) -> bool {
        let (request, keep) = match self.within(REQUEST_TAKES_MAX, self.request(reader)).await {
            Some(Ok(request)) => request,
            Some(Err(Trouble::Gone)) => return false,
            Some(Err(Trouble::Refused(refusal))) => return self.refuse(refusal).await,
            None => return self.refuse(Refusal(408, "the request took too long")).await,
        };
        let without_body = request.method == "HEAD";
        let (reply, answered) = bounded(1);
        let (_telling, told) = bounded(1);
        if self.knocks.send(Asked { request, reply, told }).await.is_err() {
            return false;
        }
        let Ok(response) = answered.recv().await else { return false };
        let closes = |(name, value): &(&str, std::borrow::Cow<'_, str>)| {
            name.eq_ignore_ascii_case("connection") && value.eq_ignore_ascii_case("close")
        };
        let keep = keep && !response.headers.iter().any(closes);
        let given = self.within(READING_TAKES_MAX, self.give(&response, keep, without_body)).await;
        let given = matches!(given, Some(Ok(())));
        if given && !keep {
            self.leave().await;
        }
        given && keep
    }

    /// Reads more; at least one byte.
    async fn hear(&self, reader: &mut Reader) -> Result<(), Trouble> {
        let read = self.stream.read_with(|stream| read(stream, reader)).await?;
        if read == 0 { Err(Trouble::Gone) } else { Ok(()) }
    }

    /// One whole request, and whether another may follow.
    async fn request(&self, reader: &mut Reader) -> Result<(Request, bool), Trouble> {
        loop {
            if let Some(Heard { method, target, headers, body, keep }) = reader.request()? {
                return Ok((Request { method, target, headers, body, visitor: self.visitor }, keep));
            }
            if reader.waits() {
                self.write(b"HTTP/1.1 100 Continue\r\n\r\n", &[]).await?;
            }
            self.hear(reader).await?;
        }
    }

    async fn give(&self, response: &Response, keep: bool, without_body: bool) -> io::Result<()> {
        let head = message::answer_head(response, keep);
        let body = if without_body || response.status == 204 { &[] } else { &*response.body };
        self.write(&head, body).await
    }

    /// Says so, and nothing may follow.
    async fn refuse(&self, refusal: Refusal) -> bool {
        let response = message::refused(refusal);
        if matches!(self.within(READING_TAKES_MAX, self.give(&response, false, false)).await, Some(Ok(()))) {
            self.leave().await;
        }
        false
    }

    async fn write(&self, head: &[u8], body: &[u8]) -> io::Result<()> {
        let mut written = 0;
        while written < head.len() + body.len() {
            let more = self.stream.write_with(|mut stream| {
                let head_left = head.get(written..).unwrap_or_default();
                let body_left = body.get(written.saturating_sub(head.len())..).unwrap_or_default();
                stream.write_vectored(&[IoSlice::new(head_left), IoSlice::new(body_left)])
            });
            match more.await? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                more => written += more,
            }
        }
        Ok(())
    }

    /// Closes in a way that lets the visitor read everything: with something unread, the system would reset.
    async fn leave(&self) {
        let _ = self.stream.get_ref().shutdown(Shutdown::Write);
        let rest = async {
            let mut left = 0;
            while left < LEFT_BYTES_MAX {
                match self.stream.read_with(|mut stream| stream.read(&mut [0; READ_BYTES])).await {
                    Ok(0) | Err(_) => return Ok(()),
                    Ok(more) => left += more,
                }
            }
            Ok::<(), ()>(())
        };
        self.within(LEAVING_TAKES_MAX, rest).await;
    }

    /// What `work` gives, or nothing when it takes longer than `limit`.
    async fn within<T, E>(&self, limit: Duration, work: impl Future<Output = Result<T, E>>) -> Option<Result<T, E>> {
        let late = async {
            self.clock.sleep_until(self.clock.now() + limit).await;
            None
        };
        async { Some(work.await) }.or(late).await
    }
}

/// What is there now, through the stack: a connection on which nothing is said has no buffer.
fn read(mut stream: &TcpStream, reader: &mut Reader) -> io::Result<usize> {
    let mut bytes = [0; READ_BYTES];
    let read = stream.read(&mut bytes)?;
    reader.hear(bytes.get(..read).unwrap_or_default());
    Ok(read)
}
