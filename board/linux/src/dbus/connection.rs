//! One connection to the bus: calls with a limit of time, readers of signals and calls, answers.
//!
//! What comes is read at once, always, and put where it belongs; nobody who reads slowly holds it up. What is sent goes
//! through one queue, so that a caller who gives up leaves no half of a message behind.

use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    rc::Rc,
    task::{Poll, Waker},
    time::Duration,
};

use board::Clock;
use smol::{LocalExecutor, Task, channel::Sender, future::FutureExt as _};

use super::{
    Error, Value, address,
    message::{Kind, Message, Rule},
    queue::{Next, Queue},
    stream,
};

/// The bus itself.
pub(crate) const DAEMON: &str = "org.freedesktop.DBus";
const DAEMON_PATH: &str = "/org/freedesktop/DBus";
/// Messages on their way out; a bus that takes none makes callers wait.
const OUTGOING: usize = 64;

/// A connection; clones are the same one. It ends when the bus ends it, or with its tasks.
#[derive(Clone)]
pub struct Connection {
    shared: Rc<Shared>,
}

struct Shared {
    clock: Rc<dyn Clock>,
    call_max: Duration,
    serial: Cell<u32>,
    calls: RefCell<Vec<Call>>,
    readers: RefCell<Vec<Reader>>,
    outgoing: Sender<Vec<u8>>,
    closed: Cell<bool>,
}

/// A call that waits for its answer.
struct Call {
    serial: u32,
    caller: Option<Waker>,
    answer: Option<Result<Message, Error>>,
}

struct Reader {
    rule: Rule,
    queue: Rc<Queue>,
}

/// What keeps a connection going; it ends when they are dropped.
pub(crate) type Tasks = [Task<()>; 2];

impl Connection {
    /// Connects and says hello. `call_max` is how long answers are waited for.
    pub(crate) async fn open(
        executor: &Rc<LocalExecutor<'static>>,
        clock: Rc<dyn Clock>,
        address: &str,
        call_max: Duration,
    ) -> Result<(Connection, Tasks), Error> {
        let stream = Rc::new(address::connect(address).await?);
        let (outgoing, sent) = smol::channel::bounded(OUTGOING);
        let shared = Rc::new(Shared {
            clock,
            call_max,
            serial: Cell::default(),
            calls: RefCell::default(),
            readers: RefCell::default(),
            outgoing,
            closed: Cell::default(),
        });
        let (reads, writes) = (Rc::clone(&shared), Rc::clone(&shared));
        let stream_out = Rc::clone(&stream);
        let tasks = [
            executor.spawn(async move {
                let Err(error) = stream::receive(&stream, |message, body| reads.take(message, body)).await;
                log::debug!("the message bus: {error}");
                reads.close();
            }),
            executor.spawn(async move {
                if let Err(error) = stream::send(&stream_out, &sent).await {
                    log::debug!("the message bus: {error}");
                }
                writes.close();
            }),
        ];
        let connection = Connection { shared };
        connection.call(DAEMON, DAEMON_PATH, DAEMON, "Hello", Vec::new()).await?;
        Ok((connection, tasks))
    }

    /// Whether it has ended.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.shared.closed.get()
    }

    /// Calls a method and waits for its answer.
    ///
    /// # Errors
    /// What was answered instead; [`Error::TimedOut`] and [`Error::Closed`] where nothing was.
    pub async fn call(
        &self,
        destination: &str,
        path: &str,
        interface: &str,
        method: &str,
        body: Vec<Value>,
    ) -> Result<Message, Error> {
        let mut message = Message::new(Kind::Call, destination);
        message.path = path.to_owned();
        message.interface = interface.to_owned();
        message.member = method.to_owned();
        message.body = body;
        let serial = self.number(&mut message);
        let bytes = message.bytes(false)?;
        self.shared.calls.borrow_mut().push(Call { serial, caller: None, answer: None });
        // Whoever gives up is forgotten.
        let _waits = Waits { shared: &self.shared, serial };
        let answered = async {
            self.put(bytes).await?;
            poll_fn(|context| self.shared.answer(serial, context.waker())).await
        };
        let late = async {
            self.shared.clock.sleep_until(self.shared.clock.now() + self.shared.call_max).await;
            Err(Error::TimedOut)
        };
        // Boxed, so that each of the many places that call holds a pointer.
        let answer = Box::pin(answered.or(late)).await?;
        if answer.kind != Kind::Error {
            return Ok(answer);
        }
        let words = answer.first().and_then(Value::text).unwrap_or(&answer.error).to_owned();
        Err(Error::Named { name: answer.error, words })
    }

    /// Answers a call. Nothing is sent to who waits for nothing.
    ///
    /// # Errors
    /// Where the connection has ended.
    pub async fn reply(&self, to: &Message, body: Vec<Value>) -> Result<(), Error> {
        let mut message = Message::new(Kind::Answer, &to.sender);
        message.body = body;
        self.answer(to, message).await
    }

    /// Answers a call with an error.
    ///
    /// # Errors
    /// Where the connection has ended.
    pub async fn reply_error(&self, to: &Message, name: &str, words: &str) -> Result<(), Error> {
        self.answer(to, failure(to, name, words)).await
    }

    async fn answer(&self, to: &Message, mut message: Message) -> Result<(), Error> {
        if to.no_reply {
            return Ok(());
        }
        message.reply_to = to.serial;
        self.number(&mut message);
        self.put(message.bytes(false)?).await
    }

    /// Tells somebody that something has happened.
    ///
    /// # Errors
    /// Where the connection has ended.
    pub async fn signal(
        &self,
        destination: &str,
        path: &str,
        interface: &str,
        member: &str,
        body: Vec<Value>,
    ) -> Result<(), Error> {
        let mut message = Message::new(Kind::Signal, destination);
        message.path = path.to_owned();
        message.interface = interface.to_owned();
        message.member = member.to_owned();
        message.body = body;
        self.number(&mut message);
        self.put(message.bytes(false)?).await
    }

    /// Messages that match, from now on.
    pub(crate) async fn listen(&self, rule: Rule) -> Result<Inbox, Error> {
        let queue = Rc::new(Queue::default());
        let text = rule.text();
        let is_signal = !rule.calls;
        self.shared.readers.borrow_mut().push(Reader { rule, queue: Rc::clone(&queue) });
        let mut inbox = Inbox { connection: self.clone(), queue, rule: None };
        if self.is_closed() {
            return Err(Error::Closed);
        }
        if is_signal {
            inbox.rule = Some(text.clone());
            let asked = self.call(DAEMON, DAEMON_PATH, DAEMON, "AddMatch", vec![Value::Text(text)]).await;
            if let Err(Error::Named { .. }) = asked {
                inbox.rule = None;
            }
            asked?;
        }
        Ok(inbox)
    }

    fn number(&self, message: &mut Message) -> u32 {
        self.shared.number(message)
    }

    async fn put(&self, bytes: Vec<u8>) -> Result<(), Error> {
        self.shared.outgoing.send(bytes).await.map_err(|_| Error::Closed)
    }
}

/// Forgets a call when its caller has gone.
struct Waits<'a> {
    shared: &'a Shared,
    serial: u32,
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.shared.calls.borrow_mut().retain(|call| call.serial != self.serial);
    }
}

/// An answer that is an error.
fn failure(to: &Message, name: &str, words: &str) -> Message {
    let mut message = Message::new(Kind::Error, &to.sender);
    message.error = name.to_owned();
    message.body = vec![Value::from(words)];
    message
}

/// Messages for one reader, in order; at most [`super::QUEUE`] wait.
pub struct Inbox {
    connection: Connection,
    queue: Rc<Queue>,
    /// What the bus was asked for.
    rule: Option<String>,
}

/// What an [`Inbox`] tells.
#[derive(Debug)]
pub enum Said {
    /// A message.
    Message(Rc<Message>),
    /// The oldest were thrown away, because their reader was slow: ask how things are.
    Lost,
}

impl Inbox {
    /// `None` once the connection is lost. Cancel-safe.
    pub async fn next(&mut self) -> Option<Said> {
        match self.queue.next().await {
            Next::Message(message) => Some(Said::Message(message)),
            Next::Lost => Some(Said::Lost),
            Next::Closed => None,
        }
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        let shared = &self.connection.shared;
        shared.readers.borrow_mut().retain(|reader| !Rc::ptr_eq(&reader.queue, &self.queue));
        let Some(rule) = self.rule.take() else { return };
        let mut message = Message::new(Kind::Call, DAEMON);
        message.path = DAEMON_PATH.to_owned();
        message.interface = DAEMON.to_owned();
        message.member = "RemoveMatch".to_owned();
        message.body = vec![Value::Text(rule)];
        message.no_reply = true;
        shared.try_send(message);
    }
}

impl Shared {
    fn number(&self, message: &mut Message) -> u32 {
        message.serial = self.serial.get().checked_add(1).unwrap_or(1);
        self.serial.set(message.serial);
        message.serial
    }

    /// Where there is no room for it, it is not sent: nothing that matters goes this way.
    fn try_send(&self, mut message: Message) {
        self.number(&mut message);
        if let Ok(bytes) = message.bytes(false) {
            let _ = self.outgoing.try_send(bytes);
        }
    }

    fn answer(&self, serial: u32, caller: &Waker) -> Poll<Result<Message, Error>> {
        let mut calls = self.calls.borrow_mut();
        let Some(call) = calls.iter_mut().find(|call| call.serial == serial) else {
            return Poll::Ready(Err(Error::Closed));
        };
        match call.answer.take() {
            Some(answer) => Poll::Ready(answer),
            None if self.closed.get() => Poll::Ready(Err(Error::Closed)),
            None => {
                call.caller = Some(caller.clone());
                Poll::Pending
            }
        }
    }

    fn close(&self) {
        self.closed.set(true);
        self.outgoing.close();
        self.calls.borrow_mut().iter_mut().filter_map(|call| call.caller.take()).for_each(Waker::wake);
        self.readers.borrow().iter().for_each(|reader| reader.queue.close());
    }

    /// Puts a message where it belongs. A body that cannot be read is the sender's loss and nobody else's.
    fn take(&self, mut message: Message, body: Result<&[u8], Error>) {
        match message.kind {
            Kind::Answer | Kind::Error => {
                let mut calls = self.calls.borrow_mut();
                let Some(call) = calls.iter_mut().find(|call| call.serial == message.reply_to) else { return };
                let read = body.and_then(|body| message.read_body(body));
                call.answer.get_or_insert(read.map(|()| message));
                call.caller.take().into_iter().for_each(Waker::wake);
            }
            Kind::Signal => {
                let readers = self.readers.borrow();
                if !readers.iter().any(|reader| reader.rule.wants(&message)) {
                    return;
                }
                let read = body.and_then(|body| message.read_body(body)).is_ok();
                let message = Rc::new(message);
                for reader in readers.iter().filter(|reader| reader.rule.wants(&message)) {
                    if !read {
                        reader.queue.lose();
                    } else if reader.rule.wants_body(&message) {
                        reader.queue.put(Rc::clone(&message));
                    }
                }
            }
            Kind::Call => {
                if let Err(error) = body.and_then(|body| message.read_body(body)) {
                    return self.refuse(&message, "InvalidArgs", &error.to_string());
                }
                if message.interface == "org.freedesktop.DBus.Peer" && message.member == "Ping" {
                    let mut pong = Message::new(Kind::Answer, &message.sender);
                    pong.reply_to = message.serial;
                    return self.try_send(pong);
                }
                let readers = self.readers.borrow();
                let Some(reader) = readers.iter().find(|reader| reader.rule.wants(&message)) else {
                    return self.refuse(&message, "UnknownObject", "there is nothing here for you");
                };
                if let Some(lost) = reader.queue.put(Rc::new(message)) {
                    self.refuse(&lost, "LimitsExceeded", "too much at once");
                }
            }
            Kind::Unknown => {}
        }
    }

    fn refuse(&self, call: &Message, name: &str, words: &str) {
        if !call.no_reply {
            let mut message = failure(call, &format!("org.freedesktop.DBus.Error.{name}"), words);
            message.reply_to = call.serial;
            self.try_send(message);
        }
    }
}
