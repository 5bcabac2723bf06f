//! Parse, build, run, drain. Exit codes are in `--help` and in docs/runbook.md.

// Input from outside must never end the process. A broken invariant may, with its reason (docs/adr/0005).
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::string_slice, clippy::unreachable))]
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unwrap_used))]

mod note;

use std::{
    env,
    hash::{BuildHasher as _, RandomState},
    io::{self, Write as _},
    path::Path,
    process::ExitCode,
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use actors::{
    kit::{lossy, trace::Trace},
    server::launch::ApiKey,
};
use api::{
    brand,
    client::{Credentials, ProxyChoice, Tls, Trust},
};
use board::{Clock, files::Files, network::Networks};
use board_portable::{PortableFetch, PortableFiles};
use platform_agent::{
    args::{self, Options, Request},
    deprovision, end_server,
    hand_over::{Launched, VARIABLES},
    identity,
    install::{self, InstallError},
    keys,
    launcher::{self, Mark, disk::SystemDisk},
    lock::{self, LockError},
    logger, platform, provision, safe, status, trusted_time,
    uplink::{Settings, Uplink},
    wiring::{self, Identity, Parts},
};
use smol::{LocalExecutor, future::FutureExt as _};

/// What the note says that this is.
const PROGRAM: &str = brand::AGENT;
/// The agent could not start or had to end.
const FAILED: u8 = 1;
/// The command line was not understood.
const USAGE: u8 = 2;
/// Another agent has this root folder: try again later (EX_TEMPFAIL of sysexits).
const HELD: u8 = 75;
/// Needs root, or `--dev-mode` (EX_NOPERM of sysexits).
const NEEDS_ROOT: u8 = 77;

/// Most threads that wait for slow files and downloads at a time: a download, its digest, a question or two. The pool's
/// own limit is 500.
const POOL_THREADS_MAX: &str = "8";

fn main() -> ExitCode {
    let launched = own_environment();
    let request = args::parse(env::args_os().skip(1), |name| env::var_os(name), platform::ordinary_user());
    if !matches!(request, Ok(Request::Run(_))) {
        // The launcher's limit is one for agents.
        let _ = platform::set_deadline(Duration::ZERO);
    }
    let options = match request {
        Ok(Request::Run(options)) => options.absolute(),
        Ok(Request::Status(options)) => return status::run(&options),
        Ok(Request::Provision(options)) => return provision::run(&options),
        Ok(Request::Hotspot(options)) => return provision::show_hotspot(&options),
        Ok(Request::Deprovision(options)) => return deprovision::run(&options),
        Ok(Request::Install(wish)) => {
            return done(smol::block_on(install::install(
                &wish,
                note::version(),
                platform::ordinary_user(),
                &mut io::stdout(),
            )));
        }
        Ok(Request::Uninstall(wish)) => {
            return done(install::uninstall(&wish, platform::ordinary_user(), &mut io::stdout()));
        }
        Ok(Request::Help) => return said(&args::help()),
        Ok(Request::Version) => return said(&format!("{} {}\n", brand::AGENT, note::version())),
        Err(error) => {
            eprintln!("{}: {error}", brand::AGENT);
            return ExitCode::from(USAGE);
        }
    };
    if platform::ordinary_user() && !options.dev_mode {
        eprintln!(
            "{}: a service needs root. Run it with sudo, or with --dev-mode to try it as an ordinary user.",
            brand::AGENT
        );
        return ExitCode::from(NEEDS_ROOT);
    }
    let (writer, reader) = wiring::log_ring();
    logger::start(writer.clone(), options.debug);
    let _lock = match lock::take_soon(&options.root) {
        Ok(lock) => lock,
        Err(error) => {
            log::error!("{error}");
            return ExitCode::from(if matches!(error, LockError::Held { .. }) { HELD } else { FAILED });
        }
    };
    end_server::forget_stopping(&options.root);
    log::info!("{} {} starts in {}", brand::AGENT, note::version(), options.root.display());
    if let Some(note) = launched.as_ref().and_then(|launched| launched.note.as_ref()) {
        log::warn!("{}: {note}", brand::LAUNCHER);
    }
    if let Some(refused) = launched.as_ref().and_then(|launched| launched.refused.as_ref()) {
        log::error!("this agent was to make way for another version and could not: {refused}");
    }
    if options.safe {
        safe::set_aside(&options.root);
    }
    let executor = Rc::new(LocalExecutor::new());
    // Not the reactor's own `block_on`: with this one the main thread sleeps while the reactor's thread waits, which costs
    // fewer wake-ups per event.
    smol::future::block_on(executor.run(run(options, launched, writer, reader, &executor)))
}

fn done(result: Result<(), InstallError>) -> ExitCode {
    let Err(error) = result else { return ExitCode::SUCCESS };
    eprintln!("{}: {error}", brand::AGENT);
    ExitCode::from(match error {
        InstallError::NeedsRoot => NEEDS_ROOT,
        InstallError::Lock(LockError::Held { .. }) => HELD,
        _ => FAILED,
    })
}

/// Hears what the launcher says and keeps it from whatever is started here. Tells the pool its limit in the only way it
/// can be told; the machine server is not given that variable.
#[expect(
    unsafe_code,
    reason = "variables of one's own can only be changed while there is one thread, and this is the first statement"
)]
fn own_environment() -> Option<Launched> {
    let launched = Launched::from_environment(|name| env::var_os(name));
    for name in VARIABLES {
        // SAFETY: no other thread has been started that could read the environment.
        unsafe { env::remove_var(name) };
    }
    // SAFETY: as above.
    unsafe { env::set_var("BLOCKING_MAX_THREADS", POOL_THREADS_MAX) };
    launched
}

/// To standard output, where somebody may have stopped reading.
fn said(text: &str) -> ExitCode {
    match io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::from(FAILED),
    }
}

/// Tells the launcher how this start went on. Without one nobody counts.
fn mark(root: &Path, launched: Option<&Launched>, mark: Mark) {
    let Some(launched) = launched else { return };
    if let Err(error) = launcher::mark(&SystemDisk, root, launched.slot, mark) {
        log::error!("{} cannot be told that this start went well: {error}", brand::LAUNCHER);
    }
}

async fn run(
    options: Options,
    launched: Option<Launched>,
    log_writer: lossy::Writer,
    log_lines: lossy::Reader,
    executor: &Rc<LocalExecutor<'static>>,
) -> ExitCode {
    let program = format!("{}/{}", brand::AGENT, note::version());
    let time = trusted_time::clock(&PortableFiles, &options.root, platform::clock_is_synchronised);
    let tls = Tls::new(Trust::System, Some(Arc::new(time)));
    let fetch = PortableFetch::new(program.clone(), tls.clone());
    let board = match platform::connect(executor, &options.root.join("run"), fetch, options.dev_mode) {
        Ok(board) => board,
        Err(error) => {
            let causes = std::iter::successors(std::error::Error::source(&error), |cause| cause.source());
            let why: String = causes.map(|cause| format!(": {cause}")).collect();
            log::error!("{error}{why}");
            return ExitCode::from(FAILED);
        }
    };
    let mut signals = match platform::signals() {
        Ok(signals) => signals,
        Err(error) => {
            log::error!("could not listen to signals: {error}");
            return ExitCode::from(FAILED);
        }
    };
    let (service, clock, processes) = (Rc::clone(&board.service), Rc::clone(&board.clock), Rc::clone(&board.processes));
    let uplink = Rc::new(Uplink::new(Settings {
        credentials: options.credentials.clone(),
        plain_http: options.dev_mode,
        tls,
        proxy: ProxyChoice::Environment,
        program,
    }));
    let who = {
        let uplink = Rc::clone(&uplink);
        move || {
            let identity = uplink.identity().ok()?;
            let fingerprint = identity.fingerprint();
            let api_key = match identity.credentials {
                Credentials::ApiKey { id, key } => Some(ApiKey { id, key }),
                _ => None,
            };
            Some(Identity { address: identity.server.base().to_owned(), api_key, fingerprint })
        }
    };
    let exposure = {
        let credentials = options.credentials.clone();
        move || identity::exposure(&credentials)
    };
    let (credentials, plain_http) = (options.credentials.clone(), options.dev_mode);
    let (networks, files) = (board.networks.clone(), Rc::clone(&board.files));
    if deprovision::stage(&*files, &options.root) != deprovision::Stage::Nothing {
        forget(&options, &*files, networks.clone(), &*board.clock).await;
        let (root, credentials) = (options.root.clone(), options.credentials.clone());
        let (files, networks) = (Rc::clone(&files), networks.clone());
        let rest = async move { deprovision::finish_late(&*files, &root, &credentials, networks).await };
        executor.spawn(rest).detach();
    }
    let agent = wiring::build(
        Parts {
            board,
            cloud: uplink,
            log_lines,
            log_writer,
            exposure: Rc::new(exposure),
            identity: Rc::new(who),
            check_identity: Rc::new(move |content| {
                let read = identity::parse(&credentials, content, plain_http);
                read.map(drop).map_err(|error| error.to_string())
            }),
            make_keys: Rc::new(|password| Box::pin(keys::make(password))),
            random: Rc::new(random),
            set_debug: Rc::new(logger::set_debug),
            trace: Trace::default(),
            options: wiring::Options {
                root: options.root.clone(),
                credentials: options.credentials.clone(),
                defaults: options.defaults.clone(),
                debug: options.debug,
                wait: options.wait,
                dev_mode: options.dev_mode,
                minute: options.minute,
                version: note::version().to_owned(),
                launched: launched.clone(),
                safe: options.safe,
            },
        },
        executor,
    );
    service.ready("running");
    // From here on the watchdog's is the only limit.
    if let Err(error) = platform::set_deadline(Duration::ZERO) {
        log::error!("the launcher's limit for a start cannot be taken away: {error}");
    }

    let ended = async {
        loop {
            match signals.next().await {
                platform::Asked::Stop => return End::Asked,
                platform::Asked::Reload => {
                    // Full queues hold the same wish already.
                    let _ = agent.reload.try_send(actors::config::Reload);
                    let _ = agent.poke.try_send(());
                }
            }
        }
    }
    .or(async { End::Unasked(agent.supervisor.unasked_end().await.to_string()) })
    .or(async {
        loop {
            agent.hand_over_wanted().await;
            // Asked while everything still runs: what cannot be carried out must not stop anything.
            match launched.clone().ok_or_else(|| "no launcher started this agent".to_owned()) {
                Ok(launched) => match launched.is_possible() {
                    Ok(()) => return End::HandOver(launched),
                    Err(why) => agent.hand_over_failed(&why),
                },
                Err(why) => agent.hand_over_failed(&why),
            }
        }
    })
    .or(async {
        agent.deprovision_wanted().await;
        End::Deprovisioned
    })
    .or(async {
        // A minute of settings, so that a test need not wait for it.
        clock.sleep_until(clock.now() + options.minute).await;
        mark(&options.root, launched.as_ref(), Mark::Lived);
        smol::future::pending().await
    })
    .or(async {
        agent.supervisor.feed_watchdog(&*service).await;
        End::Asked
    })
    .await;
    let begin = clock.now();
    match ended {
        End::Unasked(actor) => {
            // A bug. The machine server lives on and the next agent adopts it.
            log::error!("{actor} ended although nobody asked it to; the agent ends and expects to be started again");
            ExitCode::from(FAILED)
        }
        End::Asked => {
            service.stopping();
            if let Err(error) = end_server::say_stopping(&options.root) {
                log::warn!("if this agent is killed now, the machine server stays: {error}: {}", error.source);
            }
            log::info!("asked to stop");
            agent.stop().await;
            mark(&options.root, launched.as_ref(), Mark::Stopped);
            let took: Duration = clock.now().since(begin);
            log::info!("stopped after {} ms", took.as_millis());
            ExitCode::SUCCESS
        }
        End::Deprovisioned => {
            log::warn!("somebody at the device wants it to forget whose it is");
            // Stored before anything is forgotten: the next agent finishes what this one cannot.
            if let Err(error) = deprovision::begin(&*files, &options.root) {
                log::error!("{error}: {}", error.source);
            }
            if let Err(error) = end_server::say_stopping(&options.root) {
                log::warn!("if this agent is killed now, the machine server stays: {error}: {}", error.source);
            }
            agent.stop().await;
            forget(&options, &*files, networks, &*clock).await;
            mark(&options.root, launched.as_ref(), Mark::Stopped);
            // Whoever started it does so again, and it invites people.
            ExitCode::SUCCESS
        }
        End::HandOver(launcher) => {
            log::info!("makes way for the version that is to run; the machine server stays");
            agent.hand_over.set(true);
            agent.stop().await;
            mark(&options.root, launched.as_ref(), Mark::Stopped);
            let passed_on = processes.pass_on();
            let environment = || passed_on.environment().to_vec();
            // A reload in between is nobody's: the next one reads everything at its start.
            platform::ignore_reload();
            service.alive();
            let error = launcher.hand_over(env::args_os().skip(1), environment());
            let refused = format!("{} could not be executed, {error}: install it again", launcher.launcher.display());
            log::error!("{refused}");
            let error = launcher.start_anew(env::args_os().skip(1), environment(), &refused);
            // The service manager starts the launcher again; the machine server lives on and is adopted.
            log::error!("this program could not be executed again: {error}");
            ExitCode::from(FAILED)
        }
    }
}

/// Finishes what was begun: this device forgets whose it is.
async fn forget(options: &Options, files: &dyn Files, networks: Option<Rc<dyn Networks>>, clock: &dyn Clock) {
    let late = clock.sleep_until(clock.now() + deprovision::MANAGER_TAKES_MAX);
    match deprovision::finish(files, &options.root, &options.credentials, networks, late).await {
        Ok(()) => log::warn!("this device belongs to nobody now"),
        Err(trouble) => trouble.iter().for_each(|why| log::error!("{why}")),
    }
}

/// Why the agent ends.
enum End {
    /// Somebody asked for it.
    Asked,
    /// Another version of it is to run.
    HandOver(Launched),
    /// Somebody at the device wants it to forget whose it is.
    Deprovisioned,
    /// An actor ended by itself.
    Unasked(String),
}

/// Chance from the standard library's only source of it: each fresh hasher has its own random key.
fn random() -> u64 {
    RandomState::new().hash_one(0)
}
