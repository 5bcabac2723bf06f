//! A small HTTP listener for people near the device, on the reactor: no thread, and no wake-up while nobody talks.
//!
//! One task accepts and one serves each connection. A connection on which nothing is said costs its task and a place in
//! the reactor, no buffer. When all places are taken, the one that has been silent for longest makes room: browsers open
//! connections in advance and hold them. The same holds for the places of one visitor, who never gets all of them. Only
//! when all are busy is a newcomer turned away.

mod message;
mod session;

#[cfg(test)]
mod tests;

use std::{
    cell::Cell,
    io::{self, Read as _, Write as _},
    net::{IpAddr, SocketAddr, SocketAddrV4, TcpListener, TcpStream},
    rc::Rc,
    time::Duration,
};

use async_trait::async_trait;
use board::{
    Clock, Mono,
    doorway::{Doorway, DoorwayError, EACH_MAX, Knock, Open, Request, Response, VISITORS_MAX},
};
use smol::{
    Async, LocalExecutor, Task,
    channel::{Receiver, Sender, bounded},
};

pub use self::message::{Heard, Reader, Refusal};

/// Pause after the system had nothing left for one more connection.
const EXHAUSTED: Duration = Duration::from_secs(1);

/// Makes listeners whose connections are served on one executor.
pub struct PortableDoorway {
    executor: Rc<LocalExecutor<'static>>,
    clock: Rc<dyn Clock>,
}

impl PortableDoorway {
    /// Opens nothing yet.
    #[must_use]
    pub fn new(executor: &Rc<LocalExecutor<'static>>, clock: Rc<dyn Clock>) -> Self {
        PortableDoorway { executor: Rc::clone(executor), clock }
    }
}

#[async_trait(?Send)]
impl Doorway for PortableDoorway {
    async fn open(&self, address: SocketAddrV4) -> Result<Rc<dyn Open>, DoorwayError> {
        let failed = |source| DoorwayError { address, source };
        let listener = TcpListener::bind(address).map_err(failed)?;
        let address = match listener.local_addr().map_err(failed)? {
            SocketAddr::V4(bound) => bound,
            SocketAddr::V6(_) => address,
        };
        let listener = Async::new(listener).map_err(failed)?;
        // Each connection has one request at a time, so that nobody ever waits for room here.
        let (sender, knocks) = bounded(VISITORS_MAX);
        let room = Room { executor: Rc::clone(&self.executor), clock: Rc::clone(&self.clock), knocks: sender };
        let accepting = self.executor.spawn(room.accept(listener));
        Ok(Rc::new(Opened { address, knocks, _accepting: accepting }))
    }
}

struct Opened {
    address: SocketAddrV4,
    knocks: Receiver<Asked>,
    /// Owns every connection, too.
    _accepting: Task<()>,
}

#[async_trait(?Send)]
impl Open for Opened {
    fn address(&self) -> SocketAddrV4 {
        self.address
    }

    async fn next(&self) -> Box<dyn Knock> {
        match self.knocks.recv().await {
            Ok(asked) => Box::new(asked),
            // The accepting task never ends by itself.
            Err(_) => std::future::pending().await,
        }
    }
}

/// A request and the way back.
struct Asked {
    request: Request,
    reply: Sender<Response>,
    /// Closed when the visitor has the answer or is gone.
    told: Receiver<()>,
}

#[async_trait(?Send)]
impl Knock for Asked {
    fn request(&self) -> &Request {
        &self.request
    }

    async fn answer(self: Box<Self>, response: Response) {
        if self.reply.send(response).await.is_ok() {
            let _ = self.told.recv().await;
        }
    }
}

/// Since when a connection has been silent; `None` while it is served.
type Silent = Rc<Cell<Option<Mono>>>;

/// One connection.
struct Inside {
    whose: IpAddr,
    task: Task<()>,
    silent: Silent,
}

struct Room {
    executor: Rc<LocalExecutor<'static>>,
    clock: Rc<dyn Clock>,
    knocks: Sender<Asked>,
}

impl Room {
    async fn accept(self, listener: Async<TcpListener>) {
        let mut inside: Vec<Inside> = Vec::with_capacity(VISITORS_MAX);
        loop {
            let (stream, visitor) = match listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(error) => {
                    log::warn!("nobody can be let in at the moment: {error}");
                    self.clock.sleep_until(self.clock.now() + EXHAUSTED).await;
                    continue;
                }
            };
            inside.retain(|one| !one.task.is_finished());
            let whose = visitor.ip();
            let his = |one: &Inside| one.whose == whose;
            let too_many = inside.iter().filter(|one| his(one)).count() >= EACH_MAX;
            if too_many || inside.len() >= VISITORS_MAX {
                let these = inside.iter().enumerate().filter(|(_, one)| !too_many || his(one));
                let silent = these.filter_map(|(at, one)| Some((one.silent.get()?, at)));
                let Some((_, longest)) = silent.min() else {
                    turn_away(&stream);
                    continue;
                };
                // Dropping the task closes its connection.
                drop(inside.swap_remove(longest));
            }
            let silent: Silent = Rc::new(Cell::new(Some(self.clock.now())));
            let session = session::Session {
                stream,
                visitor,
                clock: Rc::clone(&self.clock),
                knocks: self.knocks.clone(),
                silent: Rc::clone(&silent),
            };
            inside.push(Inside { whose, task: self.executor.spawn(session.serve()), silent });
        }
    }
}

/// Says that there is no room, without ever waiting for who is told. What was said already is read, because closing with
/// something unread would take the answer back.
fn turn_away(stream: &Async<TcpStream>) {
    let mut stream: &TcpStream = stream.get_ref();
    let _ = stream.read(&mut [0; 2048]);
    let full = message::refused(Refusal(503, "too many visitors at once: try again in a moment"));
    let answer = [message::answer_head(&full, false), full.body.into_owned()].concat();
    let _ = stream.write(&answer);
    let _ = stream.shutdown(std::net::Shutdown::Write);
}
