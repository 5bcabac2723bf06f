//! The agent of production, on a simulated board: the same wiring, the same actors, the same order at the end.
//!
//! Only what `main` does around the wiring is repeated here: ready, watchdog, stopping, and where log records go.

use std::{cell::RefCell, rc::Rc, sync::Once};

use actors::{
    kit::{lossy, mailbox},
    logs::line::{Level, Line, TEXT_BYTES_MAX},
};
use api::brand;
use board_sim::{Random, SimClock};
use platform_agent::wiring::{self, Identity, Options, Parts};
use smol::future::FutureExt as _;

use super::{
    Seed, World, factory,
    life::{Agent, Needs, Started},
    minutes,
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

    fn with(seed: Seed, wait: Option<bool>) -> World {
        World::with_agent(seed, agent(wait))
    }
}

fn options(wait: Option<bool>) -> Options {
    Options {
        root: brand::ROOT_FOLDER.into(),
        credentials: brand::CREDENTIALS_FILE.into(),
        defaults: brand::DEFAULTS_FILE.into(),
        debug: false,
        wait,
        dev_mode: false,
        minute: minutes(1),
        launched: None,
        safe: false,
        version: env!("CARGO_PKG_VERSION").to_owned(),
    }
}

fn agent(wait: Option<bool>) -> Agent {
    Rc::new(move |needs: Needs| {
        let Needs { board, cloud, executor, trace, seed, clock } = needs;
        let (log_writer, log_lines) = wiring::log_ring();
        listen(log_writer.clone(), clock);
        let (random, known) = (Random::new(seed), Rc::clone(&cloud));
        let parts = Parts {
            board: board.clone(),
            cloud,
            log_lines,
            log_writer,
            identity: Rc::new(move || {
                known.part_id().map(|_| Identity { address: factory::SERVER.to_owned(), api_key: None })
            }),
            random: Rc::new(move || random.any()),
            set_debug: Rc::new(|_| ()),
            trace,
            options: options(wait),
        };
        let agent = wiring::build(parts, &executor);
        board.service.ready("running");
        let (stop, asked) = mailbox::outside(1);
        let run = Box::pin(async move {
            let unasked = async { Some(agent.supervisor.unasked_end().await) };
            let fed = async {
                agent.supervisor.feed_watchdog(&*board.service).await;
                None
            };
            let stopped = async {
                asked.next().await;
                None
            };
            if let Some(actor) = unasked.or(fed).or(stopped).await {
                return format!("{actor} ended although nobody asked it to");
            }
            board.service.stopping();
            agent.stop().await;
            "as asked".to_owned()
        });
        Started { run, stop: Box::new(move || stop.try_send(()).unwrap_or_default()) }
    })
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
