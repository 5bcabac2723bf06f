//! Store, keys, clock, port → one running server. The same for `main` and for tests.

use std::{
    fs, io,
    net::SocketAddr,
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use api::Secret;
use tokio::{
    sync::{Semaphore, watch},
    task::JoinHandle,
};

use crate::{
    artifacts::{
        self, Artifacts,
        s3::{Bucket, BucketError, PROBED_WITHIN, S3},
        sweep,
    },
    authn::{Authn, KEY_FILE, KeyFileError},
    authz::Authz,
    clock::Clock,
    context::Context,
    edge::{self, Certificate, Edge, ServeError, TlsError, metrics::Metrics, proxy::Network, throttle},
    history, ids,
    limits::{CONNECTIONS_MAX, STRANGER_FOR, UPLOAD_IDLE_MAX, UPLOADS_MAX, Waits},
    logs::{self, Logs},
    mail::{self, Mail, MailSetupError},
    memory::{self, Memory},
    presence, releases,
    services::configuration::{CHECK_EVERY, Configurations},
    sign_in::{self, SignIn},
    skew,
    store::{Address, DbError, Durability, OpenError, STATE_FILE, Store, duties, identities},
    upgrade,
};

/// What to run.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where; port 0 takes any free one.
    pub listen: SocketAddr,
    /// Databases, keys, artifacts.
    pub folder: PathBuf,
    /// A PostgreSQL database in place of files in the folder.
    pub database: Option<Address>,
    /// A bucket in place of the folder's artifacts.
    pub bucket: Option<Bucket>,
    /// Certificate chain and key in PEM.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// How devices reach this server, if that is not `listen`.
    pub address: Option<String>,
    /// What an acknowledged write survives.
    pub durability: Durability,
    /// How often devices ask.
    pub check_every: Duration,
    /// How much of the logs is kept.
    pub log_limits: logs::retention::Limits,
    /// How much of the history is kept.
    pub history_limits: history::Limits,
    /// Whether callers may create organizations.
    pub organizations_are_open: bool,
    /// An upload of which hardly anything has come for this long is given up.
    pub upload_idle: Duration,
    /// The key file counts from now on, whatever key the database was used with before.
    pub new_key: bool,
    /// How long callers are waited for, and wait.
    pub waits: Waits,
    /// How much each caller gets.
    pub limits: throttle::Limits,
    /// Connections at the same time.
    pub connections_max: usize,
    /// How long a connection without a good token that does nothing is left alone while connections are many.
    pub stranger_for: Duration,
    /// Proxies in front that are believed when they say where a call comes from.
    pub trusted_proxies: Vec<Network>,
    /// TCP balancers in front, which begin each connection with a header that says whose it is.
    pub balancers: Vec<Network>,
    /// How invitations are sent; without, their links are printed by the administrator.
    pub mail: Option<mail::Settings>,
    /// Where people sign in; without, they have keys only.
    pub sign_in: Option<sign_in::Settings>,
    /// Whoever shows this may read `/metrics`, and nobody else.
    pub metrics_token: Option<Secret>,
    /// The time; tests push it.
    pub clock: Clock,
}

impl Default for Options {
    /// A free port of this machine, plain text, files in the folder that programs are started in.
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            folder: PathBuf::from("fleet-data"),
            database: None,
            bucket: None,
            tls: None,
            address: None,
            durability: Durability::default(),
            check_every: CHECK_EVERY,
            log_limits: logs::retention::Limits::default(),
            history_limits: history::Limits::default(),
            organizations_are_open: true,
            new_key: false,
            upload_idle: UPLOAD_IDLE_MAX,
            waits: Waits::default(),
            limits: throttle::Limits::default(),
            connections_max: CONNECTIONS_MAX,
            stranger_for: STRANGER_FOR,
            trusted_proxies: Vec::new(),
            balancers: Vec::new(),
            mail: None,
            sign_in: None,
            metrics_token: None,
            clock: Clock::default(),
        }
    }
}

/// Why the server could not be started. For the person who started it.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The folder cannot be made or used.
    #[error("cannot use the data folder {path}: it must be a folder of the user who runs the server")]
    Folder {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Somebody else's folder: closing it to others and filling it with ours would do harm.
    #[error("{path} holds files and none of this server's: name a new or an empty folder")]
    Foreign {
        /// Which.
        path: PathBuf,
    },
    /// See [`OpenError`].
    #[error(transparent)]
    Database(#[from] OpenError),
    /// Another server's key sealed the secrets in the database.
    #[error(
        "the database belongs to a server with another key than {path}: copy server.key from its data folder or from its \
         backup, or name another database; if that key is lost, start once with --new-key"
    )]
    OtherKey {
        /// Our key file.
        path: PathBuf,
    },
    /// The database was used with a key, and there is none: a new one would open nothing in it.
    #[error(
        "{path} is not there, and the database was used with one: copy it from the data folder of another server of this \
         database or from its backup (mode 0600); if it is lost, start once with --new-key"
    )]
    MissingKey {
        /// Where it belongs.
        path: PathBuf,
    },
    /// The folder has no server that a command could work on.
    #[error("there is no server in {path}: name its data folder with --data (`init` or `serve` make a new one)")]
    NoServer {
        /// Which.
        path: PathBuf,
    },
    /// The database was lost while starting.
    #[error("cannot read the database")]
    Lost(#[source] DbError),
    /// See [`KeyFileError`].
    #[error(transparent)]
    Key(#[from] KeyFileError),
    /// See [`BucketError`].
    #[error(transparent)]
    Bucket(#[from] BucketError),
    /// See [`MailSetupError`].
    #[error(transparent)]
    Mail(#[from] MailSetupError),
    /// See [`TlsError`].
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// See [`ServeError`].
    #[error(transparent)]
    Port(#[from] ServeError),
}

/// A server that runs.
pub struct Running {
    /// The real address, also when port 0 was asked for.
    pub address: SocketAddr,
    /// "http://127.0.0.1:8080": how it is reached, as far as it knows.
    pub url: String,
    /// For tests and for commands that run inside the server.
    pub context: Arc<Context>,
    stop: watch::Sender<bool>,
    reload: watch::Sender<u64>,
    port: JoinHandle<()>,
    clock_work: JoinHandle<()>,
    news: JoinHandle<()>,
    measuring: JoinHandle<()>,
    feeding: JoinHandle<()>,
    pruning: JoinHandle<()>,
    sweeping: JoinHandle<()>,
    forgetting: JoinHandle<()>,
    mailing: JoinHandle<()>,
}

impl Running {
    /// Reads the certificate again, as if its files had changed.
    pub fn reload(&self) {
        self.reload.send_modify(|times| *times += 1);
    }

    /// Stops taking connections, lets running calls finish, writes down what is only in memory.
    pub async fn stop(self) {
        let _ = self.stop.send(true);
        let _ = self.port.await;
        let _ = self.clock_work.await;
        let _ = self.news.await;
        let _ = self.measuring.await;
        let _ = self.feeding.await;
        let _ = self.pruning.await;
        let _ = self.sweeping.await;
        let _ = self.forgetting.await;
        let _ = self.mailing.await;
        // Those that called while the others were let go.
        write_down(&self.context).await;
    }
}

/// What a folder of this server holds, at least one of them.
const OURS: [&str; 3] = [STATE_FILE, KEY_FILE, "releases"];

/// Makes the data folder if it is not there, for its owner only.
pub fn data_folder(path: &Path) -> Result<(), StartError> {
    let folder = |source| StartError::Folder { path: path.into(), source };
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(folder)?;
    let mode = fs::metadata(path).map_err(folder)?.permissions().mode();
    if mode & 0o077 != 0 {
        let is_empty = fs::read_dir(path).map_err(folder)?.next().is_none();
        if !is_empty && !OURS.iter().any(|name| path.join(name).exists()) {
            return Err(StartError::Foreign { path: path.into() });
        }
        fs::set_permissions(path, fs::Permissions::from_mode(mode & 0o700)).map_err(folder)?;
    }
    Ok(())
}

/// For local commands that make no server: one in a mistyped folder would be a new and empty one.
pub fn a_server_is_there(options: &Options) -> Result<(), StartError> {
    match options.database.is_some() || options.folder.join(STATE_FILE).exists() {
        true => Ok(()),
        false => Err(StartError::NoServer { path: options.folder.clone() }),
    }
}

/// Opens databases and keys and builds what operations use, without a port: for local commands.
pub async fn context(
    options: &Options,
    address: Option<String>,
    draining: watch::Receiver<bool>,
) -> Result<Context, StartError> {
    data_folder(&options.folder)?;
    let store = Store::open(&options.folder, options.database.as_ref(), options.durability)?;
    let artifacts: Arc<dyn Artifacts> = match &options.bucket {
        Some(bucket) => Arc::new(S3::of(bucket)?),
        None => Arc::new(artifacts::Folder::of_data(&options.folder)),
    };
    let clock = options.clock.clone();
    let memory = Memory::of(&store);
    let ear = Arc::downgrade(&memory);
    store.heard_by(move |told| {
        if let Some(memory) = ear.upgrade() {
            memory.hear(told);
        }
    });
    let key = options.folder.join(KEY_FILE);
    // In this order: what a program that starts beside this one has noted has its name by then.
    let noted = store.read(duties::key).await.map_err(StartError::Lost)?.is_some();
    if noted && !options.new_key && !key.exists() {
        return Err(StartError::MissingKey { path: key });
    }
    let authn = Authn::open(store.clone(), memory.clone(), &options.folder, clock.clone())?;
    let (digest, replace) = (authn.sealer.digest().to_owned(), options.new_key);
    if !store.write::<_, DbError>(move |tx| duties::fits_key(tx, &digest, replace)).await.map_err(StartError::Lost)? {
        return Err(StartError::OtherKey { path: key });
    }
    Ok(Context {
        authn: Arc::new(authn),
        authz: Authz::new(store.clone(), memory.ancestry.clone()),
        presence: memory.presence.clone(),
        changes: memory.changes.clone(),
        logs: Logs::new(store.logs.clone(), memory.hub.clone(), options.log_limits),
        memory,
        configurations: Configurations::default(),
        check_every: options.check_every,
        organizations_are_open: options.organizations_are_open,
        releases: releases::Watched::new(releases::Folder::of_data(&options.folder)),
        uploads: Semaphore::new(UPLOADS_MAX),
        upload_idle: options.upload_idle,
        artifacts,
        trust: Arc::default(),
        clock,
        sweeping: tokio::sync::Mutex::default(),
        server: ids::new_id(),
        metrics: Metrics::default(),
        waits: options.waits,
        throttle: Arc::new(throttle::Throttle::new(options.limits)),
        trusted_proxies: options.trusted_proxies.clone(),
        folder: options.folder.clone(),
        metrics_token: options.metrics_token.clone(),
        address,
        mail: options.mail.clone().map(Mail::new).transpose()?,
        sign_in: options.sign_in.clone().map(SignIn::new),
        draining,
        store,
    })
}

/// Starts everything; the port answers when this returns.
pub async fn start(options: Options) -> Result<Running, StartError> {
    let tls = options.tls.as_ref().map(|(certificate, key)| Certificate::read(certificate, key)).transpose()?;
    let scheme = if tls.is_some() { "https" } else { "http" };
    // The port first: a second server on the same folder usually has the same port, and must not touch the files.
    let (most, stranger_for, balancers) = (options.connections_max, options.stranger_for, options.balancers.clone());
    let port = Edge::bind(options.listen, tls, most, stranger_for, balancers).await?;
    let address = port.listener.local_addr().unwrap_or(options.listen);
    let here = format!("{scheme}://{address}");
    let known = options.address.clone().or_else(|| (!address.ip().is_unspecified()).then(|| here.clone()));
    if known.is_none() {
        tracing::warn!("listening on every address: give --address URL, or no credentials can be made for devices");
    }
    let url = known.clone().unwrap_or(here);
    let (stop, stopped) = watch::channel(false);
    let context = Arc::new(context(&options, known, stopped.clone()).await?);
    if let Some(bucket) = &options.bucket {
        S3::of(bucket)?.probe(bucket, PROBED_WITHIN).await?;
    }
    let issuer = options.sign_in.as_ref().map(|settings| settings.issuer.clone());
    let settled = context.store.write::<_, DbError>(move |tx| identities::sign_in_at(tx, issuer.as_deref()));
    settled.await.map_err(StartError::Lost)?;
    // Without it, what somebody uses could be deleted.
    upgrade::finish(&context).await.map_err(StartError::Lost)?;
    context.memory.skew.measure(&context.store, &context.clock).await.map_err(StartError::Lost)?;
    // Before the first call: what is remembered from now on is told of every later change.
    context.memory.catch_up(&context.store).await.map_err(StartError::Lost)?;
    let news = tokio::spawn(memory::keep_current(context.clone(), stopped.clone()));
    let measuring = tokio::spawn(skew::keep_measured(context.clone(), stopped.clone()));
    let feeding = tokio::spawn(logs::feed::keep_fed(context.clone(), stopped.clone()));
    let clock_work = tokio::spawn(write_presence(context.clone(), stopped.clone()));
    let pruning = tokio::spawn(logs::retention::keep_pruned(context.clone(), stopped.clone()));
    let sweeping = tokio::spawn(sweep::keep_swept(context.clone(), stopped.clone()));
    let forgetting = tokio::spawn(history::keep_short(context.clone(), options.history_limits, stopped.clone()));
    let mailing = tokio::spawn(mail::keep_sent(context.clone(), stopped.clone()));
    let (reload, reloaded) = watch::channel(0);
    let port = tokio::spawn(edge::serve(port, context.clone(), reloaded, stopped));
    Ok(Running {
        address,
        url,
        context,
        stop,
        reload,
        port,
        clock_work,
        news,
        measuring,
        feeding,
        pruning,
        sweeping,
        forgetting,
        mailing,
    })
}

/// Once a second, and once more when the server is told to stop.
async fn write_presence(context: Arc<Context>, mut stopped: watch::Receiver<bool>) {
    loop {
        let last = tokio::time::timeout(presence::WRITTEN_EVERY, stopped.wait_for(|stop| *stop)).await.is_ok();
        write_down(&context).await;
        if last {
            return;
        }
    }
}

async fn write_down(context: &Context) {
    if let Err(problem) = context.presence.write_down(&context.store, context.clock.now()).await {
        tracing::warn!(%problem, "could not write down when devices last spoke");
    }
}
