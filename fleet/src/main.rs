//! Parse, build, serve, drain.

use std::{
    env,
    error::Error,
    fs,
    io::{self, IsTerminal, Write},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::ExitCode,
    time::Duration,
};

use api::Secret;
use clap::Parser;
use serde_json::json;
use tokio::{
    runtime::Builder,
    signal::unix::{SignalKind, signal},
    sync::watch,
};

use fleet::{
    args::{self, Arguments, Audit, Command, Init, LogFormat, Place, Serve, User},
    artifacts::s3::Bucket,
    audit_export::{self, ExportError, Range},
    authn::KEY_FILE,
    backup, database,
    edge::{ServeError, throttle},
    history, init,
    logs::retention::Limits,
    mail,
    people::{self, OtherKeys},
    releases, sign_in,
    store::{Durability, OpenError},
    turns,
    wiring::{self, Options, StartError},
};

/// Threads that answer calls: what a small server has; more only spread the same work.
const WORKERS_MAX: usize = 8;
/// Threads for lists, pages and files; the default of 512 would be 512 stacks in a bad moment.
const BLOCKING_MAX: usize = 16;

/// See `args.rs`, which prints them.
mod exit {
    pub(super) const FAILED: u8 = 1;
    pub(super) const USAGE: u8 = 2;
    pub(super) const PORT: u8 = 3;
    pub(super) const FOLDER: u8 = 4;
    pub(super) const NEWER: u8 = 5;
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = match arguments.command {
        Command::Serve(options) => serve(options),
        Command::Init(options) => initialise(options),
        Command::User(command) => user(command),
        Command::Audit(options) => audit(options),
        Command::Backup(options) => take_backup(options),
        Command::Restore(options) => restore(&options),
        Command::Release(command) => {
            releases::command::run(command, &mut io::stdout()).map_err(|why| Failure::new(exit::FAILED, &why))
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure { code, sentence }) => {
            eprintln!("platform-fleet: {sentence}");
            ExitCode::from(code)
        }
    }
}

struct Failure {
    code: u8,
    sentence: String,
}

impl Failure {
    fn new(code: u8, why: &dyn Error) -> Self {
        let mut sentence = why.to_string();
        let mut source = why.source();
        while let Some(deeper) = source {
            sentence = format!("{sentence}: {deeper}");
            source = deeper.source();
        }
        Self { code, sentence }
    }

    fn usage(sentence: &str) -> Self {
        Self { code: exit::USAGE, sentence: sentence.to_owned() }
    }
}

impl From<StartError> for Failure {
    fn from(why: StartError) -> Self {
        let code = match &why {
            StartError::Port(ServeError::InUse { .. } | ServeError::Listen { .. }) => exit::PORT,
            StartError::Database(OpenError::Newer { .. }) => exit::NEWER,
            StartError::Folder { .. }
            | StartError::Foreign { .. }
            | StartError::Database(_)
            | StartError::Key(_)
            | StartError::OtherKey { .. }
            | StartError::MissingKey { .. }
            | StartError::NoServer { .. }
            | StartError::Lost(_) => exit::FOLDER,
            _ => exit::FAILED,
        };
        Self::new(code, &why)
    }
}

fn serve(serve: Serve) -> Result<(), Failure> {
    let place = options_of(serve.place)?;
    if !serve.listen.ip().is_loopback() && serve.tls_cert.is_none() && !serve.insecure {
        return Err(Failure::usage(&format!(
            "{} can be reached by others, and without TLS they can read every key: \
             give --tls-cert and --tls-key, or --insecure if a proxy in front does TLS",
            serve.listen
        )));
    }
    let mail = mail::Settings::read(&serve.mail, serve.address.as_deref());
    let mail = mail.map_err(|why| Failure::usage(&Failure::new(exit::USAGE, &why).sentence))?;
    let sign_in = sign_in::Settings::read(&serve.sign_in, serve.address.as_deref());
    let sign_in = sign_in.map_err(|why| Failure::usage(&Failure::new(exit::USAGE, &why).sentence))?;
    let metrics_token = serve.metrics_token_file.as_deref().map(metrics_token).transpose()?;
    log(serve.log_format);
    many_descriptors();
    let connections_max = usize::try_from(serve.max_connections).unwrap_or(usize::MAX);
    let options = Options {
        listen: serve.listen,
        tls: serve.tls_cert.zip(serve.tls_key),
        address: serve.address,
        check_every: Duration::from_secs(serve.check_seconds),
        log_limits: Limits::new(serve.log_days, serve.log_megabytes_per_part, serve.log_megabytes),
        history_limits: history::Limits::new(serve.audit_days, serve.history_days),
        organizations_are_open: !serve.no_new_organizations,
        new_key: serve.new_key,
        limits: throttle::Limits {
            calls_per_key: serve.calls_per_key,
            streams_per_key: serve.streams_per_key,
            connections_per_key: serve.connections_per_key.unwrap_or_else(|| throttle::share_of(connections_max)),
            open_calls_per_address: serve.open_calls_per_address,
            failures_per_address: serve.sign_in_failures_per_address,
        },
        connections_max,
        trusted_proxies: serve.trusted_proxy,
        balancers: serve.proxy_protocol,
        mail,
        sign_in,
        metrics_token,
        durability: if serve.durable { Durability::PowerCut } else { Durability::ProcessDeath },
        ..place
    };
    runtime()?.block_on(async {
        // Before anything is started: a signal that comes while starting is not lost.
        let signals = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()), signal(SignalKind::hangup()));
        let (Ok(mut terminate), Ok(mut interrupt), Ok(mut hangup)) = signals else {
            return Err(Failure { code: exit::FAILED, sentence: "cannot listen for signals".to_owned() });
        };
        let server = wiring::start(options).await?;
        let line = match serve.json {
            true => json!({"url": server.url, "address": server.address.to_string()}).to_string(),
            false => format!("serving {}", server.url),
        };
        // Nobody reads: that is no reason not to serve.
        let _ = writeln!(io::stdout(), "{line}").and_then(|()| io::stdout().flush());
        loop {
            tokio::select! {
                _ = terminate.recv() => break,
                _ = interrupt.recv() => break,
                _ = hangup.recv() => server.reload(),
            }
        }
        server.stop().await;
        Ok(())
    })
}

fn metrics_token(path: &Path) -> Result<Secret, Failure> {
    let cannot = |why: io::Error| Failure::usage(&format!("cannot read the token in {}: {why}", path.display()));
    let mode = fs::metadata(path).map_err(cannot)?.permissions().mode();
    let text = fs::read_to_string(path).map_err(cannot)?;
    let token = Secret::from(text.lines().next().unwrap_or_default().trim());
    match (mode & 0o077, token.len()) {
        (0, 16..) => Ok(token),
        (0, _) => Err(Failure::usage(&format!("{}: a token has 16 characters at least", path.display()))),
        _ => Err(Failure::usage(&format!("others can read {}: chmod 600 it", path.display()))),
    }
}

/// What is told, from the environment (RUST_LOG); how, from the command line. In colours for people only, who may forbid
/// it (NO_COLOR).
fn log(format: LogFormat) {
    let told = tracing_subscriber::EnvFilter::try_from_default_env();
    let told = told.unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    let plain = env::var_os("NO_COLOR").is_some_and(|said| !said.is_empty()) || !io::stderr().is_terminal();
    let log = tracing_subscriber::fmt().with_env_filter(told).with_ansi(!plain).with_writer(io::stderr);
    match format {
        LogFormat::Text => log.init(),
        LogFormat::Json => log.json().flatten_event(true).init(),
    }
}

/// Each connection is a descriptor, and services are started with few of them unless they ask.
fn many_descriptors() {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let wanted = rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(problem) = rustix::process::setrlimit(rustix::process::Resource::Nofile, wanted) {
        tracing::warn!(%problem, "could not ask for more descriptors: fewer connections are possible");
    }
}

fn initialise(options: Init) -> Result<(), Failure> {
    let place = options_of(options.place)?;
    runtime()?.block_on(async {
        let (_stop, draining) = watch::channel(false);
        let context = wiring::context(&place, None, draining).await?;
        let created = init::organization(&context, &options.org, &options.email).await;
        let created = created.map_err(|why| Failure::new(exit::FAILED, &why))?;
        let text = match options.json {
            true => {
                let (organization, id, key) = (created.organization_id, created.key_id, created.key);
                json!({"organization_id": organization, "key_id": id, "key": key}).to_string()
            }
            false => format!(
                "organization  {}\nkey id        {}\nkey           {}\n\nThe key is shown this once: keep it.",
                created.organization_id, created.key_id, created.key
            ),
        };
        writeln!(io::stdout(), "{text}").map_err(|why| Failure::new(exit::FAILED, &why))
    })
}

fn user(command: User) -> Result<(), Failure> {
    let output = match &command {
        User::Add { output, .. } | User::Key { output, .. } | User::Invite { output, .. } => output.clone(),
    };
    let place = options_of(output.place.clone())?;
    wiring::a_server_is_there(&place)?;
    let text = runtime()?.block_on(async {
        let (_stop, draining) = watch::channel(false);
        let context = wiring::context(&place, None, draining).await?;
        let issued = match command {
            User::Add { email, org, role, .. } => {
                people::add(&context, &email, org.as_deref().map(|org| (org, role.into()))).await
            }
            User::Key { email, only, .. } => {
                let others = if only { OtherKeys::End } else { OtherKeys::Stay };
                people::key(&context, &email, others).await
            }
            User::Invite { org, email, role, address, .. } => {
                let path = people::invite(&context, &org, &email, role.into()).await;
                let path = path.map_err(|why| Failure::new(exit::FAILED, &why))?;
                let link = format!("{address}{path}");
                return Ok(if output.json { json!({"link": link}).to_string() } else { link });
            }
        };
        let issued = issued.map_err(|why| Failure::new(exit::FAILED, &why))?;
        Ok::<_, Failure>(match output.json {
            true => json!({"user_id": issued.user_id, "key_id": issued.key_id, "key": issued.key}).to_string(),
            false => format!(
                "user    {}\nkey id  {}\nkey     {}\n\nThe key is shown this once: keep it.",
                issued.user_id, issued.key_id, issued.key
            ),
        })
    })?;
    writeln!(io::stdout(), "{text}").map_err(|why| Failure::new(exit::FAILED, &why))
}

fn audit(options: Audit) -> Result<(), Failure> {
    let place = options_of(options.place)?;
    wiring::a_server_is_there(&place)?;
    let range = Range { organization: options.org, since: options.since, until: options.until };
    runtime()?.block_on(async {
        let (_stop, draining) = watch::channel(false);
        let context = wiring::context(&place, None, draining).await?;
        let mut out = io::BufWriter::new(io::stdout());
        match audit_export::export(&context.store, &range, &mut out).await {
            // Who reads has enough.
            Err(ExportError::Output(closed)) if closed.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            other => other.map_err(|why| Failure::new(exit::FAILED, &why)),
        }
    })
}

fn take_backup(options: args::Backup) -> Result<(), Failure> {
    let place = options_of(options.place)?;
    let wanted = backup::Wanted {
        data: &place.folder,
        databases: place.database.is_none(),
        artifacts: place.bucket.is_none(),
        key: !options.without_key,
    };
    let note = backup::take(&wanted, &options.to).map_err(|why| Failure::new(exit::FAILED, &why))?;
    for digest in &note.damaged {
        eprintln!("platform-fleet: the file {digest} of the registry is damaged; it was copied as it is");
    }
    let text = match options.json {
        // The digests are in the folder.
        true => serde_json::to_string(&backup::Note { files: None, ..note }).unwrap_or_default(),
        false => {
            let databases = if note.databases { "databases, " } else { "no databases (take them with pg_dump), " };
            let key = if note.key { "the server's key" } else { "no key" };
            let (folder, bytes) = (options.to.display(), note.bytes);
            let artifacts = match wanted.artifacts {
                true => format!("{} files of the registry", note.artifacts),
                false => "no files of the registry (they lie in the bucket)".to_owned(),
            };
            format!("{folder}: {databases}{key}, {artifacts}; {bytes} bytes")
        }
    };
    writeln!(io::stdout(), "{text}").map_err(|why| Failure::new(exit::FAILED, &why))
}

fn restore(options: &args::Restore) -> Result<(), Failure> {
    let note = backup::restore(&options.from, &options.data, !options.without_key)
        .map_err(|why| Failure::new(exit::FAILED, &why))?;
    let data = options.data.display();
    let mut text = format!("{data} is restored: start the server with --data {data}");
    if !note.databases {
        text.push_str("\nThe databases are not in this backup: restore them with psql or pg_restore first");
    }
    if !note.key {
        let key = options.data.join(KEY_FILE);
        text.push_str(&format!(
            "\nThe server's key was not restored: put it at {} (mode 0600) first, or start once with --new-key if it is lost",
            key.display()
        ));
    }
    writeln!(io::stdout(), "{text}").map_err(|why| Failure::new(exit::FAILED, &why))
}

/// What every command needs to know of the store.
fn options_of(place: Place) -> Result<Options, Failure> {
    let database = database::named(&place).map_err(|why| Failure::usage(&why.to_string()))?;
    let bucket = Bucket::named(place.artifacts.as_deref(), place.artifacts_credentials.as_deref());
    let bucket = bucket.map_err(|why| Failure::new(exit::USAGE, &why))?;
    Ok(Options { folder: place.data, database, bucket, ..Options::default() })
}

fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    Builder::new_multi_thread()
        .worker_threads(cores.min(WORKERS_MAX))
        .max_blocking_threads(BLOCKING_MAX)
        .on_thread_start(turns::started)
        .on_thread_park(turns::parks)
        .enable_all()
        .build()
        .map_err(|why| Failure::new(exit::FAILED, &why))
}
