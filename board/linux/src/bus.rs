//! The system's message bus (D-Bus): one connection, made when it is first wanted, and made again when it is lost.
//!
//! Owns the connection and the knowledge of who is there. Starts no thread: everything runs on the agent's one executor.
//! Without a bus, and with a bus on which nothing happens, nothing wakes up.
//!
//! ```no_run
//! # use std::rc::Rc;
//! # async fn session(there: &board_linux::bus::There) {}
//! # async fn example(bus: Rc<board_linux::bus::Bus>) {
//! // A service that comes late, goes, or is restarted:
//! loop {
//!     let there = bus.appeared("org.bluez").await;
//!     // Everything made in a session belongs to it: when the service goes, begin anew.
//!     smol::future::or(session(&there), there.gone()).await;
//! }
//! # }
//! ```
//!
//! Rules for users:
//! - Call by [`There`], so that a call never reaches the service's successor.
//! - Signals, and calls to our own objects, come by `There::listen`. Who reads slowly loses the oldest and is told so; the
//!   connection is never held up, so that a reader may call and wait for the answer.
//! - Calls that are not answered fail after [`CALL_MAX`].
//! - Objects that are served are gone with the connection: serve them anew in each session.

use std::{env, os::fd::OwnedFd, path::Path, rc::Rc, time::Duration};

use board::Clock;
use rustix::fs::inotify;
use smol::{
    Async, LocalExecutor, Task,
    channel::{Receiver, Sender},
    future::FutureExt as _,
    lock::Mutex,
};

use crate::dbus::{self, Connection, DAEMON, Error, Inbox, Message, Rule, Said, Tasks, Value};

/// Where the bus is, when the environment does not say otherwise.
const SOCKET: &str = "/run/dbus/system_bus_socket";
/// How long an answer is waited for; as long as other clients wait by default.
pub const CALL_MAX: Duration = Duration::from_secs(25);
/// A bus that accepts and does not speak.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// Before the first try after a failure.
const BACK_OFF_MIN: Duration = Duration::from_secs(1);
/// Longest time between tries. Where the socket's folder can be watched, a bus that comes is noticed at once.
const BACK_OFF_MAX: Duration = Duration::from_secs(600);

/// The bus could not be used.
#[derive(Debug, thiserror::Error)]
pub enum BusError {
    /// No connection.
    #[error("no message bus: {0}")]
    Connect(#[source] Error),
    /// Nobody there speaks.
    #[error("no message bus: it accepts and does not speak")]
    Mute,
}

/// The way to the bus.
pub struct Bus {
    executor: Rc<LocalExecutor<'static>>,
    clock: Rc<dyn Clock>,
    address: String,
    live: Mutex<Option<Live>>,
}

struct Live {
    connection: Connection,
    /// Keep it going.
    _tasks: Tasks,
}

impl Bus {
    /// The system's bus: where `DBUS_SYSTEM_BUS_ADDRESS` says, or in its usual place. Costs nothing until it is used.
    #[must_use]
    pub fn new(executor: &Rc<LocalExecutor<'static>>, clock: Rc<dyn Clock>) -> Rc<Bus> {
        let address = env::var("DBUS_SYSTEM_BUS_ADDRESS").unwrap_or_else(|_| format!("unix:path={SOCKET}"));
        Bus::at(executor, clock, address)
    }

    /// A bus at this address.
    #[must_use]
    pub fn at(executor: &Rc<LocalExecutor<'static>>, clock: Rc<dyn Clock>, address: String) -> Rc<Bus> {
        Rc::new(Bus { executor: Rc::clone(executor), clock, address, live: Mutex::new(None) })
    }

    /// The connection, made now if need be. Tries once.
    pub async fn connection(&self) -> Result<Connection, BusError> {
        let mut live = self.live.lock().await;
        if let Some(live) = live.as_ref().filter(|live| !live.connection.is_closed()) {
            return Ok(live.connection.clone());
        }
        *live = None;
        let clock = Rc::clone(&self.clock);
        let connecting = async { Connection::open(&self.executor, clock, &self.address, CALL_MAX).await };
        let (connection, tasks) = async { connecting.await.map_err(BusError::Connect) }
            .or(async {
                self.clock.sleep_until(self.clock.now() + CONNECT_MAX).await;
                Err(BusError::Mute)
            })
            .await?;
        *live = Some(Live { connection: connection.clone(), _tasks: tasks });
        Ok(connection)
    }

    /// Resolves when somebody on the bus has this name; waits for the bus too.
    pub async fn appeared(self: &Rc<Self>, name: &'static str) -> There {
        let mut pause = BACK_OFF_MIN;
        let mut told = false;
        loop {
            match self.wait_for(name, &mut pause).await {
                Ok(there) => return there,
                Err(trouble) if !told => log::info!("{name} is not there yet: {trouble}"),
                Err(trouble) => log::debug!("{name} is not there yet: {trouble}"),
            }
            told = true;
            let until = self.clock.now() + pause;
            self.clock.sleep_until(until).or(socket_moved(&self.address)).await;
            // One bus that comes makes several files: not a try for each.
            pause = if self.clock.now() < until {
                self.clock.sleep_until(self.clock.now() + BACK_OFF_MIN / 10).await;
                BACK_OFF_MIN
            } else {
                (pause * 2).min(BACK_OFF_MAX)
            };
        }
    }

    /// Resolves with an error when the connection is lost.
    async fn wait_for(self: &Rc<Self>, name: &'static str, pause: &mut Duration) -> Result<There, String> {
        let connection = self.connection().await.map_err(|error| error.to_string())?;
        let said = |error: Error| error.to_string();
        // Watched before asked, so that nothing is missed in between.
        let mut changes = owner_changes(&connection, name).await.map_err(said)?;
        let mut owner = owner_of(&connection, name).await;
        *pause = BACK_OFF_MIN;
        loop {
            if let Some(owner) = owner.take() {
                let (alive, gone) = smol::channel::bounded(1);
                let watch = self.executor.spawn(watch(changes, owner.clone(), alive));
                return Ok(There { connection, owner, gone, _watch: Rc::new(watch) });
            }
            owner = match changes.next().await {
                Some(Said::Message(message)) => new_owner(&message),
                Some(Said::Lost) => owner_of(&connection, name).await,
                None => return Err(Error::Closed.to_string()),
            };
        }
    }
}

/// A service that is there, until it is not.
#[derive(Clone)]
pub struct There {
    connection: Connection,
    owner: String,
    gone: Receiver<()>,
    _watch: Rc<Task<()>>,
}

impl There {
    /// The connection by which it can be reached.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// The name of this very process on the bus; its successor has another one.
    #[must_use]
    pub fn owner(&self) -> &str {
        &self.owner
    }

    /// Messages of the bus that match `rule`, from now on.
    pub(crate) async fn listen(&self, rule: Rule) -> Result<Inbox, Error> {
        self.connection.listen(rule).await
    }

    /// Calls a method of this very process.
    pub(crate) async fn call(
        &self,
        path: &str,
        interface: &str,
        method: &str,
        body: Vec<Value>,
    ) -> Result<Message, Error> {
        self.connection.call(&self.owner, path, interface, method, body).await
    }

    /// Resolves when this process has lost the name or the connection is lost. Cancel-safe; any number may wait.
    pub async fn gone(&self) {
        // Nothing is ever sent: the watching task ends, and with it the sending end.
        let _ = self.gone.recv().await;
    }
}

async fn watch(mut changes: Inbox, owner: String, _alive: Sender<()>) {
    while let Some(said) = changes.next().await {
        match said {
            Said::Message(message) if new_owner(&message).as_deref() == Some(&*owner) => {}
            // Nothing is lost of so few; if it were, whoever uses the service finds out by beginning anew.
            Said::Message(_) | Said::Lost => return,
        }
    }
}

/// Who has the name after this change.
fn new_owner(change: &Message) -> Option<String> {
    change.nth(2)?.text().filter(|owner| !owner.is_empty()).map(str::to_owned)
}

async fn owner_changes(connection: &Connection, name: &'static str) -> Result<Inbox, Error> {
    let rule = Rule {
        sender: DAEMON.to_owned(),
        interface: DAEMON,
        member: "NameOwnerChanged",
        first: name,
        ..Rule::default()
    };
    connection.listen(rule).await
}

async fn owner_of(connection: &Connection, name: &str) -> Option<String> {
    let asked = connection.call(DAEMON, "/org/freedesktop/DBus", DAEMON, "GetNameOwner", vec![Value::from(name)]);
    asked.await.ok()?.first()?.text().map(str::to_owned)
}

/// Resolves when something is made in the folder of the bus's socket, or in the nearest folder above that is there.
/// Never when that cannot be watched.
async fn socket_moved(address: &str) {
    let folder = dbus::socket_file(address).and_then(|file| {
        let folder = file.parent()?;
        folder.ancestors().find(|folder| folder.is_dir()).filter(|folder| folder.parent().is_some()).map(Path::to_owned)
    });
    let watched = folder.and_then(|folder| watch_folder(&folder).ok());
    if let Some(watched) = watched {
        let _ = watched.readable().await;
    } else {
        std::future::pending().await
    }
}

fn watch_folder(folder: &Path) -> std::io::Result<Async<OwnedFd>> {
    let watcher = inotify::init(inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC)?;
    inotify::add_watch(&watcher, folder, inotify::WatchFlags::CREATE | inotify::WatchFlags::MOVED_TO)?;
    Async::new_nonblocking(watcher)
}
