//! The agent of production, on a simulated board: the same wiring, the same actors, the same order at the end.
//!
//! Only what `main` does around the wiring is repeated here: ready, watchdog, stopping, and where log records go.

use std::{cell::RefCell, path::Path, rc::Rc, sync::Once};

use actors::{
    cloud::port::Cloud,
    kit::{lossy, mailbox},
    logs::line::{Level, Line, TEXT_BYTES_MAX},
};
use api::brand;
use board::{Board, files::Files};
use board_sim::{Random, SimClock};
use platform_agent::{
    deprovision, identity,
    launcher::{self, Disk as _, LIVED, Mark, disk::OnBoard},
    safe,
    wiring::{self, Identity, Options, Parts},
};
use smol::future::FutureExt as _;

use super::{
    Seed, World, factory,
    launch::{self, Conduct, Deaf, Start, WATCHDOG},
    life::{Agent, CRASHES, HANDS_OVER, Needs, Started},
    minutes, near,
};

thread_local! {
    /// The agent that lives on this thread hears its own log records.
    static EAR: RefCell<Option<(lossy::Writer, SimClock)>> = const { RefCell::new(None) };
}

impl World {
    /// A world for the agent of production. The device is online, has credentials and the factory's key, and nothing is
    /// installed; version 1.0.0 is stable, 1.2.0-dev is dev.
    #[must_use]
    pub fn new(seed: Seed) -> World {
        World::with(seed, None)
    }

    /// The same, started with `--wait` (or told not to wait).
    #[must_use]
    pub fn waiting(seed: Seed, wait: bool) -> World {
        World::with(seed, Some(wait))
    }

    /// The same with a launcher, and version 1.0.0 of the agent.
    #[must_use]
    pub fn launched(seed: Seed) -> World {
        World::with(seed, None).with_launcher("1.0.0")
    }

    fn with(seed: Seed, wait: Option<bool>) -> World {
        World::with_agent(seed, agent(wait))
    }
}

fn options(wait: Option<bool>, start: Option<&Start>) -> Options {
    Options {
        root: brand::ROOT_FOLDER.into(),
        credentials: brand::CREDENTIALS_FILE.into(),
        defaults: brand::DEFAULTS_FILE.into(),
        debug: false,
        wait,
        dev_mode: false,
        minute: minutes(1),
        launched: start.map(|start| start.launched.clone()),
        safe: start.is_some_and(|start| start.safe),
        version: start.map_or_else(|| env!("CARGO_PKG_VERSION").to_owned(), |start| start.version.clone()),
    }
}

fn agent(wait: Option<bool>) -> Agent {
    Rc::new(move |needs: Needs| {
        let Needs { board, cloud, executor, trace, seed, clock, start } = needs;
        let conduct = start.as_ref().map(|start| start.conduct).unwrap_or_default();
        if let Some(started) = stillborn(conduct, &board) {
            return started;
        }
        let cloud: Rc<dyn Cloud> = if conduct == Conduct::NeverReachesCloud { Rc::new(Deaf(cloud)) } else { cloud };
        if start.as_ref().is_some_and(|start| start.safe) {
            set_aside(&*board.files);
        }
        let (log_writer, log_lines) = wiring::log_ring();
        listen(log_writer.clone(), clock);
        let (random, known) = (Rc::new(Random::new(seed)), Rc::clone(&cloud));
        let disk = Rc::clone(&board.files);
        let parts = Parts {
            board: board.clone(),
            cloud,
            log_lines,
            log_writer,
            exposure: Rc::new(|| None),
            identity: Rc::new(move || {
                known.part_id()?;
                let content = disk.read(Path::new(brand::CREDENTIALS_FILE), board::files::RECORD_BYTES_MAX).ok()??;
                let identity = identity::parse(Path::new(brand::CREDENTIALS_FILE), &content, true).ok()?;
                let fingerprint = identity.fingerprint();
                Some(Identity { address: factory::SERVER.to_owned(), api_key: None, fingerprint })
            }),
            check_identity: Rc::new(|content| {
                let read = identity::parse(Path::new(brand::CREDENTIALS_FILE), content, true);
                read.map(drop).map_err(|error| error.to_string())
            }),
            make_keys: Rc::new(|password| Box::pin(std::future::ready(near::keys(&password)))),
            random: Rc::new(move || random.any()),
            set_debug: Rc::new(|_| ()),
            trace,
            options: options(wait, start.as_ref()),
        };
        let [root, credentials] = [brand::ROOT_FOLDER, brand::CREDENTIALS_FILE].map(std::path::PathBuf::from);
        let begin = {
            let (board, executor) = (board.clone(), Rc::clone(&executor));
            move || {
                let agent = wiring::build(parts, &executor);
                board.service.ready("running");
                agent
            }
        };
        let forgets = deprovision::stage(&*board.files, &root) != deprovision::Stage::Nothing;
        let (begun, later) = if forgets { (None, Some(begin)) } else { (Some(begin()), None) };
        let (stop, asked) = mailbox::outside(1);
        // Held for as long as this life is: what is passed on is passed on by the end of it.
        let pipes = Rc::new(RefCell::new(None));
        let passed_on = Rc::clone(&pipes);
        let run = Box::pin(async move {
            let forget = || async {
                let late = board.clock.sleep_until(board.clock.now() + deprovision::MANAGER_TAKES_MAX);
                let networks = board.networks.clone();
                let forgotten = deprovision::finish(&*board.files, &root, &credentials, networks, late).await;
                forgotten.err().iter().flatten().for_each(|why| log::error!("{why}"));
            };
            if forgets {
                forget().await;
                let (files, networks) = (Rc::clone(&board.files), board.networks.clone());
                let (root, credentials) = (root.clone(), credentials.clone());
                let rest = async move { deprovision::finish_late(&*files, &root, &credentials, networks).await };
                executor.spawn(rest).detach();
            }
            let agent = begun.or_else(|| later.map(|begin| begin())).expect("either of them");
            let mark = |mark| {
                let Some(start) = &start else { return };
                let root = Path::new(brand::ROOT_FOLDER);
                if let Err(error) = launcher::mark(&OnBoard(&*board.files), root, start.launched.slot, mark) {
                    log::error!("{error}");
                }
            };
            let clock = &board.clock;
            let dies = async {
                match conduct {
                    Conduct::DiesAfter(time) => clock.sleep_until(clock.now() + time).await,
                    _ => smol::future::pending().await,
                }
                End::Crash
            };
            let unasked = async { End::Unasked(agent.supervisor.unasked_end().await) };
            let fed = async {
                agent.supervisor.feed_watchdog(&*board.service).await;
                smol::future::pending().await
            };
            let lived = async {
                clock.sleep_until(clock.now() + LIVED).await;
                mark(Mark::Lived);
                smol::future::pending().await
            };
            let stopped = async {
                asked.next().await;
                End::Asked
            };
            let makes_way = async {
                loop {
                    agent.hand_over_wanted().await;
                    match OnBoard(&*board.files).is_program(&launch::launcher()) {
                        Ok(()) => return End::HandOver,
                        Err(why) => agent.hand_over_failed(&why),
                    }
                }
            };
            let deprovisioned = async {
                agent.deprovision_wanted().await;
                End::Deprovisioned
            };
            let end = dies.or(unasked).or(fed).or(lived).or(stopped).or(makes_way).or(deprovisioned).await;
            match end {
                End::Crash => return format!("{CRASHES} after a while"),
                End::Unasked(actor) => return format!("{actor} ended although nobody asked it to"),
                End::Asked => board.service.stopping(),
                End::HandOver => agent.hand_over.set(true),
                End::Deprovisioned => {
                    if let Err(error) = deprovision::begin(&*board.files, &root) {
                        log::error!("{error}");
                    }
                }
            }
            agent.stop().await;
            if matches!(end, End::Deprovisioned) {
                forget().await;
                mark(Mark::Stopped);
                return format!("{CRASHES} with nothing left of whom it belonged to");
            }
            mark(Mark::Stopped);
            if matches!(end, End::Asked) {
                return "as asked".to_owned();
            }
            passed_on.replace(Some(board.processes.pass_on()));
            HANDS_OVER.to_owned()
        });
        let stop = move || {
            let _held = &pipes;
            stop.try_send(()).unwrap_or_default();
        };
        Started { run, stop: Box::new(stop) }
    })
}

/// How a life ends.
enum End {
    Asked,
    HandOver,
    Crash,
    Deprovisioned,
    Unasked(&'static str),
}

/// A version that never gets as far as its actors.
fn stillborn(conduct: Conduct, board: &Board) -> Option<Started> {
    let clock = Rc::clone(&board.clock);
    let run: std::pin::Pin<Box<dyn Future<Output = String>>> = match conduct {
        Conduct::DiesAtOnce => Box::pin(async { format!("{CRASHES} at once") }),
        Conduct::Hangs => Box::pin(async move {
            clock.sleep_until(clock.now() + WATCHDOG).await;
            format!("{CRASHES}: ended by the watchdog")
        }),
        Conduct::Lives | Conduct::CannotStart | Conduct::DiesAfter(_) | Conduct::NeverReachesCloud => return None,
    };
    Some(Started { run, stop: Box::new(|| ()) })
}

/// What `--safe` does before anything is read.
fn set_aside(files: &dyn Files) {
    for [path, aside, _] in safe::files(Path::new(brand::ROOT_FOLDER)) {
        // One that is not there cannot be renamed.
        let _ = files.rename(&path, &aside);
    }
}

/// From now on, log records of this thread are lines of this agent.
fn listen(writer: lossy::Writer, clock: SimClock) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // A test that has its own logger keeps it, and its agents are silent.
        if log::set_logger(&Ear).is_ok() {
            log::set_max_level(log::LevelFilter::Info);
        }
    });
    EAR.replace(Some((writer, clock)));
}

struct Ear;

impl log::Log for Ear {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        let text = record.args().to_string();
        let end = (0..=TEXT_BYTES_MAX.min(text.len())).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
        // A record made while the thread's storage goes away has nowhere to go.
        let _ = EAR.try_with(|ear| {
            let Ok(ear) = ear.try_borrow() else { return };
            let Some((writer, clock)) = &*ear else { return };
            let line = Line {
                at: clock.wall_clock(),
                level: match record.level() {
                    log::Level::Error => Level::Error,
                    log::Level::Warn => Level::Warn,
                    log::Level::Info => Level::Info,
                    log::Level::Debug | log::Level::Trace => Level::Debug,
                },
                logger: format!("{}.{}", brand::AGENT, record.target()),
                file: record.file().unwrap_or_default().to_owned(),
                line: record.line().unwrap_or_default(),
                text: text.get(..end).unwrap_or_default().to_owned(),
            };
            writer.push(&line.encode());
        });
    }

    fn flush(&self) {}
}
