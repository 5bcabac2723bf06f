//! The fleet server for the `cloud` actor: rounds of calls, made by one thread that lives as long as there is one.
//!
//! Owns that thread, its queue, the time limit of each call, and the identity, which is read again whenever the
//! credentials file changes. Decides nothing about when to call. The agent's own thread never blocks: it leaves
//! the calls of one wake-up in the queue and is woken once, by the last answer; dropping the wait takes them out of the
//! queue or cuts them off. The thread does not linger: to start one costs less than to let one wait.
//! Connection and token are kept between calls, so that a check costs one exchange on an open connection.

use std::{
    cell::RefCell,
    collections::VecDeque,
    fs,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, SystemTime},
};

use actors::{
    cloud::port::{Cloud, CloudError, Replies, Requests},
    kit::reply,
};
use api::{
    client::{CallError, CallOptions, Client, Code, ProxyChoice, Tls},
    method::Unary,
    pb::platform::{
        app::{
            agent::v1::{DeviceAgentConfigRequest, DeviceAgentConfigResponse, agent_device_service},
            v1::{NeedsRestartRequest, NeedsRestartResponse, robot_service},
        },
        fleet::v1::{ReportRequest, ReportResponse, UploadLogsRequest, UploadLogsResponse, device_service},
    },
};
use async_trait::async_trait;
use prost::Message;

use crate::identity::{self, Identity};

/// Rounds of calls that may wait: the cloud actor makes one at a time, a few more are in passing.
const QUEUE_MAX: usize = 8;
/// A TLS handshake and the deepest message that is decoded, with room. Only touched pages are ever memory.
const STACK_BYTES: usize = 512 * 1024;
/// Time for a small call, tries included.
const CALL_LIMIT: Duration = Duration::from_secs(15);
/// Time for a batch of log lines over a slow network.
const UPLOAD_LIMIT: Duration = Duration::from_secs(30);

/// What the uplink needs to know.
#[derive(Clone)]
pub struct Settings {
    /// The credentials file.
    pub credentials: PathBuf,
    /// Whether a secret may travel over plain http to another machine.
    pub plain_http: bool,
    /// Whose certificates are believed, and at what time they are judged.
    pub tls: Tls,
    /// Which proxy is taken.
    pub proxy: ProxyChoice,
    /// Name and version of this program, for the server's log.
    pub program: String,
}

/// The fleet server, over the network.
pub struct Uplink {
    settings: Settings,
    line: RefCell<Option<Line>>,
    bridge: Bridge,
}

/// A client and the state of the file that it was made from.
struct Line {
    file: FileState,
    part_id: String,
    client: Client,
}

/// What tells that a file is not the one it was.
#[derive(Clone, Copy, PartialEq, Eq)]
struct FileState {
    modified: Option<SystemTime>,
    len: u64,
    number: u64,
}

impl Uplink {
    /// Nothing is read, started or connected yet.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Uplink { settings, line: RefCell::default(), bridge: Bridge::default() }
    }

    /// Who this device is, read anew: for whoever needs more than the part id.
    pub fn identity(&self) -> Result<Identity, identity::IdentityError> {
        identity::read(&self.settings.credentials, self.settings.plain_http)
    }

    /// The client of the present identity. A file that was replaced is noticed here; token and connection of the old
    /// identity go with its client.
    fn client(&self) -> Result<(Client, String), CloudError> {
        let state = file_state(&self.settings.credentials);
        let mut line = self.line.borrow_mut();
        if let (Some(line), Some(state)) = (&*line, state)
            && line.file == state
        {
            return Ok((line.client.clone(), line.part_id.clone()));
        }
        *line = None;
        let no_identity = |reason: String| CloudError::NoIdentity { reason };
        let identity = self.identity().map_err(|error| no_identity(error.to_string()))?;
        let Settings { tls, proxy, program, .. } = self.settings.clone();
        let builder =
            Client::builder(identity.server).credentials(identity.credentials).tls(tls).proxy(proxy).program(program);
        let client = builder.build().map_err(|error| CloudError::Unreachable { reason: error.to_string() })?;
        if let Some(file) = state {
            *line = Some(Line { file, part_id: identity.part_id.clone(), client: client.clone() });
        }
        Ok((client, identity.part_id))
    }

    /// One call, as a round of its own.
    async fn single<T>(
        &self,
        requests: Requests,
        reply: impl FnOnce(Replies) -> Option<Result<T, CloudError>>,
    ) -> Result<T, CloudError> {
        let nothing = || Err(CloudError::Unreachable { reason: "the call was not made".into() });
        reply(self.round(requests).await).unwrap_or_else(nothing)
    }
}

#[async_trait(?Send)]
impl Cloud for Uplink {
    fn part_id(&self) -> Option<String> {
        self.client().ok().map(|(_, part_id)| part_id)
    }

    fn is_renewed(&self) -> bool {
        let now = file_state(&self.settings.credentials);
        self.line.borrow().as_ref().is_some_and(|line| now.is_some_and(|now| line.file != now))
    }

    async fn device_config(&self, request: DeviceAgentConfigRequest) -> Result<DeviceAgentConfigResponse, CloudError> {
        self.single(Requests { config: Some(request), ..Requests::default() }, |replies| replies.config).await
    }

    async fn needs_restart(&self, request: NeedsRestartRequest) -> Result<NeedsRestartResponse, CloudError> {
        self.single(Requests { restart: Some(request), ..Requests::default() }, |replies| replies.restart).await
    }

    async fn report(&self, request: ReportRequest) -> Result<ReportResponse, CloudError> {
        self.single(Requests { report: Some(request), ..Requests::default() }, |replies| replies.report).await
    }

    async fn upload_logs(&self, request: UploadLogsRequest) -> Result<UploadLogsResponse, CloudError> {
        self.single(Requests { upload: Some(request), ..Requests::default() }, |replies| replies.upload).await
    }

    async fn round(&self, requests: Requests) -> Replies {
        let failed = failing(&requests);
        let client = match self.client() {
            Ok((client, _)) => client,
            Err(error) => return failed(error),
        };
        let (reply, answered) = reply::reply();
        let given_up = Arc::new(AtomicBool::new(false));
        let work = {
            let (client, given_up) = (client.clone(), Arc::clone(&given_up));
            move || {
                reply.give(ask(&client, requests, &given_up));
            }
        };
        let mut ticket = match self.bridge.submit(client, given_up, Box::new(work)) {
            Ok(ticket) => ticket,
            Err(error) => return failed(error),
        };
        let replies = answered.get().await;
        ticket.over = true;
        let ended = || failed(CloudError::Unreachable { reason: "the calling thread ended early".into() });
        replies.unwrap_or_else(ended)
    }
}

/// The calls of a round, on the thread that may wait for them.
fn ask(client: &Client, requests: Requests, given_up: &AtomicBool) -> Replies {
    let mut replies = Replies::default();
    let goes_on = |over: bool| !over && !given_up.load(Ordering::SeqCst);
    let small = CallOptions::idempotent().within(CALL_LIMIT);
    if let Some(request) = requests.config {
        let reply = call(client, agent_device_service::DEVICE_AGENT_CONFIG, &request, small);
        let over = reply.as_ref().is_err_and(CloudError::ends_the_round);
        replies.config = Some(reply);
        if !goes_on(over) {
            return replies;
        }
    }
    if let Some(request) = requests.report {
        let reply = call(client, device_service::REPORT, &request, small);
        let over = reply.as_ref().is_err_and(CloudError::ends_the_round);
        replies.report = Some(reply);
        if !goes_on(over) {
            return replies;
        }
    }
    if let Some(request) = requests.restart {
        // Never repeated here: after a "yes" the next question clears the mark.
        let once = CallOptions { idempotent: false, ..small };
        let reply = call(client, robot_service::NEEDS_RESTART, &request, once);
        let over = reply.as_ref().is_err_and(CloudError::ends_the_round);
        replies.restart = Some(reply);
        if !goes_on(over) {
            return replies;
        }
    }
    if let Some(request) = requests.upload {
        // A batch that arrives twice is known by its number.
        replies.upload = Some(call(client, device_service::UPLOAD_LOGS, &request, small.within(UPLOAD_LIMIT)));
    }
    replies
}

fn call<Request: Message, Response: Message + Default>(
    client: &Client,
    method: Unary<Request, Response>,
    request: &Request,
    options: CallOptions,
) -> Result<Response, CloudError> {
    client.unary(method, request, options).map_err(meaning)
}

/// The replies to a round whose first call failed before it was made.
fn failing(requests: &Requests) -> fn(CloudError) -> Replies {
    match requests {
        Requests { config: Some(_), .. } => |error| Replies { config: Some(Err(error)), ..Replies::default() },
        Requests { report: Some(_), .. } => |error| Replies { report: Some(Err(error)), ..Replies::default() },
        Requests { restart: Some(_), .. } => |error| Replies { restart: Some(Err(error)), ..Replies::default() },
        Requests { upload: Some(_), .. } => |error| Replies { upload: Some(Err(error)), ..Replies::default() },
        Requests { config: None, restart: None, report: None, upload: None } => |_| Replies::default(),
    }
}

/// What a failed call means for the device.
fn meaning(error: CallError) -> CloudError {
    let reason = error.to_string();
    match error {
        CallError::CredentialsRefused { status, .. } => CloudError::CredentialsRefused { reason: status.to_string() },
        CallError::Refused(status) => match status.code {
            Code::Unauthenticated => CloudError::CredentialsRefused { reason },
            // Said by a server that is going down, or by a proxy in front of one that is.
            Code::Unavailable | Code::DeadlineExceeded => CloudError::Unreachable { reason },
            code => CloudError::Refused { code: code as i32, reason },
        },
        CallError::TooLarge { .. } | CallError::Input(_) => CloudError::Refused { code: error.code() as i32, reason },
        CallError::Unreachable { .. }
        | CallError::Untrusted { .. }
        | CallError::NoTrust(_)
        | CallError::NotAFleetServer { .. }
        | CallError::Deadline { .. }
        | CallError::Cancelled
        | CallError::Damaged { .. } => CloudError::Unreachable { reason },
    }
}

fn file_state(path: &std::path::Path) -> Option<FileState> {
    let metadata = fs::metadata(path).ok()?;
    #[cfg(unix)]
    let number = std::os::unix::fs::MetadataExt::ino(&metadata);
    #[cfg(not(unix))]
    let number = 0;
    Some(FileState { modified: metadata.modified().ok(), len: metadata.len(), number })
}

/// The thread that waits for the network so that the agent need not.
#[derive(Default)]
struct Bridge {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// A thread is there and will look into the queue again.
    served: bool,
    /// The job in the thread's hands.
    running: Option<u64>,
    last: u64,
}

struct Job {
    number: u64,
    work: Box<dyn FnOnce() + Send>,
}

/// A round that was left in the queue. Dropping it takes the round back, or cuts it off.
struct Ticket {
    shared: Arc<Shared>,
    number: u64,
    client: Client,
    given_up: Arc<AtomicBool>,
    /// The answer is there: nothing is left to take back, and the connection is the next call's.
    over: bool,
}

impl Bridge {
    fn submit(
        &self,
        client: Client,
        given_up: Arc<AtomicBool>,
        work: Box<dyn FnOnce() + Send>,
    ) -> Result<Ticket, CloudError> {
        let mut queue = self.shared.queue();
        if queue.jobs.len() >= QUEUE_MAX {
            return Err(CloudError::Unreachable { reason: format!("{QUEUE_MAX} calls are waiting already") });
        }
        if !queue.served {
            let shared = Arc::clone(&self.shared);
            let thread = thread::Builder::new().name("uplink".into()).stack_size(STACK_BYTES);
            thread.spawn(move || serve(&shared)).map_err(|error| CloudError::Unreachable {
                reason: format!("no thread could be started for the call: {error}"),
            })?;
            queue.served = true;
        }
        queue.last += 1;
        let number = queue.last;
        queue.jobs.push_back(Job { number, work });
        Ok(Ticket { shared: Arc::clone(&self.shared), number, client, given_up, over: false })
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        // Whoever panicked left a whole queue behind: the lock guards single statements.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next job; `None` when there is none and the thread shall end.
    fn next(&self) -> Option<Job> {
        let mut queue = self.queue();
        let job = queue.jobs.pop_front();
        queue.running = job.as_ref().map(|job| job.number);
        // Decided under the lock: whoever leaves a job after this starts another thread.
        queue.served = job.is_some();
        job
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        self.given_up.store(true, Ordering::SeqCst);
        let mut queue = self.shared.queue();
        queue.jobs.retain(|job| job.number != self.number);
        if queue.running == Some(self.number) {
            // Under the lock, so that it cannot hit the next call.
            self.client.cancel();
        }
    }
}

fn serve(shared: &Shared) {
    /// A call that panicked ends the thread; the next one starts another.
    struct Bye<'a>(&'a Shared);
    impl Drop for Bye<'_> {
        fn drop(&mut self) {
            if thread::panicking() {
                let mut queue = self.0.queue();
                (queue.served, queue.running) = (false, None);
                // What waited behind it is answered with an error by being dropped.
                queue.jobs.clear();
            }
        }
    }
    let _bye = Bye(shared);
    while let Some(Job { work, .. }) = shared.next() {
        work();
    }
}

#[cfg(test)]
mod tests;
