//! Blocking gRPC-Web client over HTTP/1.1: what the agent and the command line speak to a fleet server with.
//!
//! Owns connections, time limits, tokens, trust and repetition; the messages are `pb`, the operations their constants.
//! No runtime and no HTTP/2, so that it costs an agent little: one kept connection, buffers of 8 KiB, one message at a
//! time. A call blocks its thread; [`Client::cancel`] from another thread ends every call at once.
//! Never writes a key, a token or a message to the log.

mod address;
mod download;
mod error;
mod exchange;
mod grpc_web;
mod proxy;
mod session;
mod stream;

use std::{
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use prost::Message;
use ureq::{
    Agent, AsSendBody, SendBody,
    config::Config,
    unversioned::transport::{ConnectProxyConnector, Connector, TcpConnector},
};

use web::Names;
pub use web::{Now, ProxyError, Tls, Trust};

pub use self::{
    address::{Address, AddressError},
    download::Download,
    error::{CallError, Cause, Code, Status},
    proxy::ProxyChoice,
    session::Credentials,
    stream::Stream,
};
use self::{
    exchange::{Answer, Exchange, Limits},
    grpc_web::framed,
    session::{REPEATS_MAX, Session, pause},
    stream::Outgoing,
};
use crate::{
    Secret, brand,
    method::{ClientStream, ServerStream, Unary},
    pb::proto::rpc::v1::auth_service,
};

/// Time for a call whose caller named none.
const DEADLINE: Duration = Duration::from_secs(30);
/// A device's configuration is at most 1 MiB; a page of logs or a list of machines stays below this too.
const MESSAGE_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Each of the two buffers of a connection: one TLS record in parts; the HTTP client's own default is 128 KiB.
const BUFFER_BYTES: usize = 8 * 1024;
/// Headers of an answer, status details among them.
const HEADER_BYTES_MAX: usize = 16 * 1024;
/// Connections kept open between calls: there is one server, and calls follow each other.
const IDLE_CONNECTIONS_MAX: usize = 1;
/// How long a connection is kept for the next call: longer than the usual poll, shorter than a router's memory.
const IDLE_CONNECTION_AGE: Duration = Duration::from_secs(55);

/// A fleet server as one caller sees it. Cheap to clone; clones share connection and token.
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
}

struct Shared {
    server: Address,
    session: Session,
    config: Config,
    tls: Tls,
    names: Names,
    message_bytes_max: u64,
    line: Mutex<Line>,
    /// Wakes calls that wait before a repetition.
    cancelled: Condvar,
}

/// The connections in use; replaced as a whole by a cancellation.
struct Line {
    agent: Option<Agent>,
    /// Rises with every cancellation, so that a call can tell that it was meant.
    generation: u64,
}

/// How one call is to be made.
#[derive(Clone, Copy, Debug)]
pub struct CallOptions {
    /// Time for the whole call, repetitions included. None: as long as it takes.
    pub deadline: Option<Duration>,
    /// Time without a single byte after which a stream is given up.
    pub idle: Option<Duration>,
    /// Whether the server may be asked twice without harm. Only then a broken connection leads to repetitions.
    pub idempotent: bool,
}

impl Default for CallOptions {
    fn default() -> Self {
        Self { deadline: Some(DEADLINE), idle: None, idempotent: false }
    }
}

impl CallOptions {
    /// For questions, and for changes that say the same when said twice.
    pub fn idempotent() -> Self {
        Self { idempotent: true, ..Self::default() }
    }

    /// For a stream that is to last.
    pub fn lasting() -> Self {
        Self { deadline: None, ..Self::default() }
    }

    /// The same with another deadline.
    pub fn within(self, deadline: Duration) -> Self {
        Self { deadline: Some(deadline), ..self }
    }

    /// The same, given up after this long without a byte.
    pub fn idle_at_most(self, idle: Duration) -> Self {
        Self { idle: Some(idle), ..self }
    }
}

/// Everything a client is made of; see [`Client::builder`].
pub struct Builder {
    server: Address,
    credentials: Option<Credentials>,
    tls: Tls,
    proxy: ProxyChoice,
    program: String,
    message_bytes_max: u64,
}

impl Builder {
    /// Who is calling. Without, only the open operations can be called.
    pub fn credentials(mut self, credentials: Credentials) -> Self {
        self.credentials = Some(credentials);
        self
    }

    /// Whose certificates are believed, and at what time they are judged; the system's authorities and clock unless said
    /// otherwise. Given to several clients, the authorities are read once.
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = tls;
        self
    }

    /// Whether a proxy is taken; as the environment says unless said otherwise.
    pub fn proxy(mut self, proxy: ProxyChoice) -> Self {
        self.proxy = proxy;
        self
    }

    /// Name and version of the program, for the server's log: `platform-agent/1.2.3`.
    pub fn program(mut self, program: impl Into<String>) -> Self {
        self.program = program.into();
        self
    }

    /// The largest message that is accepted.
    pub fn message_bytes_max(mut self, bytes: u64) -> Self {
        self.message_bytes_max = bytes;
        self
    }

    /// The client. Nothing is connected yet.
    pub fn build(self) -> Result<Client, ProxyError> {
        let proxy = self.proxy.resolve(&self.server)?;
        let config = Agent::config_builder()
            .proxy(proxy)
            .http_status_as_error(false)
            // A redirected call is an answer of somebody else, never a way to go.
            .max_redirects(0)
            .max_redirects_will_error(false)
            .user_agent(self.program)
            .accept_encoding("identity")
            .input_buffer_size(BUFFER_BYTES)
            .output_buffer_size(BUFFER_BYTES)
            .max_response_header_size(HEADER_BYTES_MAX)
            .max_idle_connections(IDLE_CONNECTIONS_MAX)
            .max_idle_connections_per_host(IDLE_CONNECTIONS_MAX)
            .max_idle_age(IDLE_CONNECTION_AGE)
            .build();
        Ok(Client {
            shared: Arc::new(Shared {
                server: self.server,
                session: Session::new(self.credentials),
                config,
                tls: self.tls,
                names: Names::default(),
                message_bytes_max: self.message_bytes_max,
                line: Mutex::new(Line { agent: None, generation: 0 }),
                cancelled: Condvar::new(),
            }),
        })
    }
}

impl Client {
    /// A client for this server, to be refined and built.
    pub fn builder(server: Address) -> Builder {
        Builder {
            server,
            credentials: None,
            tls: Tls::new(Trust::System, None),
            proxy: ProxyChoice::Environment,
            program: format!("{}-api/{}", brand::NAME, env!("CARGO_PKG_VERSION")),
            message_bytes_max: MESSAGE_BYTES_MAX,
        }
    }

    /// The server this client speaks to.
    pub fn server(&self) -> &Address {
        &self.shared.server
    }

    /// One question, one answer.
    pub fn unary<Request, Response>(
        &self,
        method: Unary<Request, Response>,
        request: &Request,
        options: CallOptions,
    ) -> Result<Response, CallError>
    where
        Request: Message,
        Response: Message + Default,
    {
        let frame = framed(request).map_err(CallError::Input)?;
        let call = self.begin(options);
        call.persist(|token| call.open(method.path, token, frame.as_slice())?.only())
    }

    /// One question, and answers as they come. Opening may be repeated; a stream that broke is the caller's to reopen.
    pub fn server_stream<Request, Response>(
        &self,
        method: ServerStream<Request, Response>,
        request: &Request,
        options: CallOptions,
    ) -> Result<Stream<Response>, CallError>
    where
        Request: Message,
        Response: Message + Default,
    {
        let frame = framed(request).map_err(CallError::Input)?;
        let call = self.begin(options);
        let answer = call.persist(|token| call.open(method.path, token, frame.as_slice())?.refusal())?;
        Ok(Stream::new(answer, call))
    }

    /// Many messages, one answer. Tried once: what was read from `messages` is gone. An error among them ends the call
    /// without an end of the stream, so that the server does not take half for the whole.
    pub fn client_stream<Request, Response>(
        &self,
        method: ClientStream<Request, Response>,
        messages: impl IntoIterator<Item = io::Result<Request>>,
        options: CallOptions,
    ) -> Result<Response, CallError>
    where
        Request: Message,
        Response: Message + Default,
    {
        let call = self.begin(options);
        let token = call.token()?;
        let mut outgoing = Outgoing::new(messages.into_iter());
        let answer = call.open(method.path, token.as_ref(), SendBody::from_reader(&mut outgoing));
        answer.and_then(Answer::only).map_err(|error| call.unless_cancelled(error))
    }

    /// Exchanges the credentials for a token now instead of at the first call: to find out whether they are accepted.
    pub fn authenticate(&self, options: CallOptions) -> Result<(), CallError> {
        let call = self.begin(options);
        call.persist(|_| Ok(()))
    }

    /// Ends every call that is running, with [`CallError::Cancelled`]. Later calls are made on new connections.
    /// A name look-up or a connection being made ends by its own time limit, ten seconds at most.
    pub fn cancel(&self) {
        let agent = {
            let mut line = self.line();
            line.generation = line.generation.wrapping_add(1);
            line.agent.take()
        };
        self.shared.cancelled.notify_all();
        if let Some(agent) = agent {
            agent.shutdown();
        }
    }

    fn begin(&self, options: CallOptions) -> Call {
        let limits = Limits { since: Instant::now(), deadline: options.deadline, idle: options.idle };
        Call { client: self.clone(), generation: self.line().generation, limits, idempotent: options.idempotent }
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.shared.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One call from its beginning to its end, with all its tries.
struct Call {
    client: Client,
    generation: u64,
    limits: Limits,
    idempotent: bool,
}

impl Call {
    /// Makes tries until one succeeds or nothing speaks for another.
    fn persist<T>(&self, attempt: impl Fn(Option<&Secret>) -> Result<T, CallError>) -> Result<T, CallError> {
        let session = &self.client.shared.session;
        let (mut renewed, mut repeats) = (false, 0);
        loop {
            let old = session.token();
            let error = match self.token().and_then(|token| attempt(token.as_ref())) {
                Ok(value) => return Ok(value),
                Err(error) => self.unless_cancelled(error),
            };
            let refused = matches!(&error, CallError::Refused(status) if status.code == Code::Unauthenticated);
            match old {
                // The server forgot a token that it once gave, for example with a rotated key: worth one exchange.
                Some(old) if refused && !renewed && session.forget(&old) => renewed = true,
                _ if self.idempotent && error.is_passing() && repeats < REPEATS_MAX => {
                    self.wait(pause(repeats), error)?;
                    repeats += 1;
                }
                _ => return Err(error),
            }
        }
    }

    /// The token to show, exchanged for the credentials if need be.
    fn token(&self) -> Result<Option<Secret>, CallError> {
        let session = &self.client.shared.session;
        if let Some(token) = session.token() {
            return Ok(Some(token));
        }
        let Some(request) = session.credentials.as_ref().and_then(Credentials::request) else { return Ok(None) };
        let frame = framed(&request).map_err(CallError::Input)?;
        let answer = self.open(auth_service::AUTHENTICATE.path, None, frame.as_slice()).and_then(Answer::only);
        match answer.map_err(|error| self.unless_cancelled(error)) {
            Ok(response) => {
                let response: crate::pb::proto::rpc::v1::AuthenticateResponse = response;
                let token = Secret::from(response.access_token);
                session.keep(token.clone());
                Ok(Some(token))
            }
            Err(CallError::Refused(status)) if credentials_are_wrong(status.code) => {
                Err(CallError::CredentialsRefused { server: self.client.shared.server.clone(), status })
            }
            Err(error) => Err(error),
        }
    }

    fn open(&self, path: &str, token: Option<&Secret>, body: impl AsSendBody) -> Result<Answer, CallError> {
        let agent = self.agent()?;
        let shared = &self.client.shared;
        let exchange = Exchange {
            agent: &agent,
            server: &shared.server,
            path,
            token,
            limits: self.limits,
            message_bytes_max: shared.message_bytes_max,
        };
        let answer = exchange.open(body);
        if matches!(answer, Err(CallError::Unreachable { .. })) {
            shared.names.forget();
        }
        answer
    }

    /// The connections of this client, made when first needed.
    fn agent(&self) -> Result<Agent, CallError> {
        let mut line = self.client.line();
        if line.generation != self.generation {
            return Err(CallError::Cancelled);
        }
        let shared = &self.client.shared;
        let agent = line.agent.get_or_insert_with(|| {
            let connector =
                ().chain(ConnectProxyConnector::default()).chain(TcpConnector::default()).chain(shared.tls.clone());
            Agent::with_parts(shared.config.clone(), connector, shared.names.clone())
        });
        Ok(agent.clone())
    }

    /// Sleeps before a repetition; gives the error that led here when the deadline leaves no room for one.
    fn wait(&self, pause: Duration, error: CallError) -> Result<(), CallError> {
        if self.limits.left(&self.client.shared.server)?.is_some_and(|left| left <= pause) {
            return Err(error);
        }
        let line = self.client.line();
        let waited =
            self.client.shared.cancelled.wait_timeout_while(line, pause, |line| line.generation == self.generation);
        let (line, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if line.generation == self.generation { Ok(()) } else { Err(CallError::Cancelled) }
    }

    /// Whatever a cancelled call died of, it was cancelled.
    fn unless_cancelled(&self, error: CallError) -> CallError {
        if self.client.line().generation == self.generation { error } else { CallError::Cancelled }
    }
}

/// The codes by which a server says that it does not know these credentials.
fn credentials_are_wrong(code: Code) -> bool {
    matches!(code, Code::Unauthenticated | Code::PermissionDenied | Code::NotFound | Code::InvalidArgument)
}
