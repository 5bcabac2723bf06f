//! THE file: every limit, every channel, every actor of the agent, read from top to bottom.
//!
//! Channels are made here and nowhere else. Each has a capacity with a reason, and what a full one means shows in its
//! kind: `Mailbox` waits (commands, down the ranks only), `Latest` keeps the newest (states), the ring drops the oldest
//! and counts it (log lines). The simulated world builds its agents with this very function.

use std::{cell::Cell, path::PathBuf, rc::Rc, time::Duration};

use actors::{
    cloud::{self, port::Cloud, sources::Sources},
    config, console,
    kit::{
        latest::Latest,
        lossy,
        mailbox::{self, Mailbox},
        supervise::Supervisor,
        trace::Trace,
    },
    life::{Diary, End},
    logs,
    maintenance::SystemWindows,
    network,
    provisioning::{self, near::MakeKeys},
    rank::Actor,
    server::{
        self,
        launch::{ApiKey, Places, Presented},
    },
    successor,
    update::{self, actor::Keeper, berth::Berth, slots::Layout},
};
use api::{
    Secret, brand,
    device_config::{Advanced, CommandLine, NetworkSettings},
    pb::platform::fleet::v1::{AgentStatus, Product, UpdateStatus},
};
use board::{Board, files::Access, host::Facts, service::Service};
use smol::{LocalExecutor, future::FutureExt as _};

use crate::hand_over::Launched;

// ── Limits ────────────────────────────────────────────────────────────────────────────────────────────────────────

/// Two minutes of a chatty machine server, as bytes in one ring; older lines are dropped and counted. What the ring
/// passes on is on the disk within a second.
const LOG_RING_BYTES: usize = 64 * 1024;
/// One answer to an opening, one switch, and room for the next of each.
const SERVER_MAIL: usize = 4;
/// One answer to an opening, one switch, and room for the next of each.
const SUCCESSOR_MAIL: usize = 4;
/// What a visitor does at a door makes two commands at most: who is there, and what was given; and the doors' own two.
const NETWORK_MAIL: usize = 8;
/// A hand-over is tried once at a time.
const REFUSED_MAIL: usize = 1;
/// Reasons to call the fleet server at once say the same twice.
const POKE_MAIL: usize = 1;
/// SIGHUP twice means what it means once.
const RELOAD_MAIL: usize = 1;
/// What may lie in queues at most, in bytes: measured boards have this to spare.
const MAIL_BYTES_MAX: usize = 128 * 1024;
const COMMANDS: usize = SERVER_MAIL + SUCCESSOR_MAIL;
const COMMAND_BYTES: usize = COMMANDS * size_of::<server::Command>() + NETWORK_MAIL * size_of::<network::Command>();
const _: () = assert!(COMMAND_BYTES + LOG_RING_BYTES <= MAIL_BYTES_MAX);

/// How long each actor may take to end. The machine server is given its own stop limit within this.
const STOP_LIMIT: Duration = Duration::from_secs(150);

// ── What an agent is made of ──────────────────────────────────────────────────────────────────────────────────────

/// Everything that differs between a device, a sandbox and a simulation.
pub struct Parts {
    /// The device.
    pub board: Board,
    /// The fleet server.
    pub cloud: Rc<dyn Cloud>,
    /// Where the agent's own log records come out; their writing end is the process's logger.
    pub log_lines: lossy::Reader,
    /// For output of the machine server: another writing end of the same ring.
    pub log_writer: lossy::Writer,
    /// Address of the fleet server and API key, as the credentials file has them now.
    pub identity: Rc<dyn Fn() -> Option<Identity>>,
    /// Whether others on this machine can read the credentials, in a sentence.
    pub exposure: Rc<dyn Fn() -> Option<String>>,
    /// Whether this content of a credentials file would be accepted, or why not.
    pub check_identity: provisioning::actor::Check,
    /// Makes the keys of Bluetooth, where no wait disturbs.
    pub make_keys: MakeKeys,
    /// Chance: seeds of back-offs, names of spools. From a seed in a simulation.
    pub random: Rc<dyn Fn() -> u64>,
    /// Shows or hides debug records.
    pub set_debug: Rc<dyn Fn(bool)>,
    /// What was done, for people.
    pub trace: Trace,
    /// Paths and options.
    pub options: Options,
}

/// The part of the credentials file that actors ask for.
pub struct Identity {
    /// `https://fleet.example.com`
    pub address: String,
    /// The API key, when the device has one instead of a secret.
    pub api_key: Option<ApiKey>,
    /// Tells this identity from another one; never 0.
    pub fingerprint: u64,
}

/// Where things are, and what was said at the start.
#[derive(Clone, Debug)]
pub struct Options {
    /// Versions, state and queued logs.
    pub root: PathBuf,
    /// Credentials file; also the machine server's configuration file.
    pub credentials: PathBuf,
    /// Manufacturer's defaults file.
    pub defaults: PathBuf,
    /// Debug records, whatever the configuration says.
    pub debug: bool,
    /// Whether to check for updates before the first start; `None` leaves it to the configuration.
    pub wait: Option<bool>,
    /// First contact over plain http is allowed.
    pub dev_mode: bool,
    /// Length of a minute.
    pub minute: Duration,
    /// The agent's own version.
    pub version: String,
    /// How the launcher has started this agent; without one nothing chooses among versions of it.
    pub launched: Option<Launched>,
    /// Started without its stored state.
    pub safe: bool,
}

/// A running agent.
pub struct Agent {
    /// Its actors.
    pub supervisor: Supervisor,
    /// Read the defaults file again.
    pub reload: Mailbox<config::Reload>,
    /// Call the fleet server at once.
    pub poke: Mailbox<()>,
    /// What the machine server is doing.
    pub server: Latest<server::Report>,
    /// How the fleet server can be reached.
    pub reach: Latest<cloud::Reach>,
    /// Where the walk of the machine server's version is.
    pub update: Latest<UpdateStatus>,
    /// Where the walk of the agent's own version is.
    pub own_update: Latest<UpdateStatus>,
    /// How the configuration is.
    pub config: Latest<config::ConfigStatus>,
    /// How the device is connected.
    pub connectivity: Latest<network::Connectivity>,
    /// To the keeper of the network.
    pub to_network: Mailbox<network::Command>,
    /// Set before [`Agent::stop`]: the machine server stays, for the agent that comes.
    pub hand_over: Rc<Cell<bool>>,
    /// How often it has started, and why.
    diary: Diary,
    service: Rc<dyn Service>,
    leave: Latest<successor::Leave>,
    left: Cell<successor::Leave>,
    deprovision: Latest<u64>,
    refused: Mailbox<String>,
}

impl Agent {
    /// Resolves when this process is to make way for the version that the pointer file names. The record and the
    /// pointer are on stable storage by then. Cancel-safe.
    pub async fn hand_over_wanted(&self) {
        let mut leave = self.leave.watch();
        loop {
            let wanted = leave.changed().await;
            if self.left.replace(wanted) != wanted {
                return;
            }
        }
    }

    /// Resolves when somebody at the device wants it to forget whose it is. Cancel-safe.
    pub async fn deprovision_wanted(&self) {
        self.deprovision.watch().changed().await;
    }

    /// The hand-over cannot be carried out, and the actors have not been stopped: everything goes on, and it is tried
    /// again in ten minutes. `reason` is reported: what failed, and what to do about it.
    pub fn hand_over_failed(&self, reason: &str) {
        // A full queue holds the same news already.
        let _ = self.refused.try_send(reason.to_owned());
    }

    /// Stops the actors in their order; the machine server ends before its keeper does. That may take minutes, and the
    /// service manager hears meanwhile that they pass.
    pub async fn stop(&self) {
        let stopped = self.supervisor.stop(STOP_LIMIT);
        stopped.or(self.supervisor.feed_watchdog(&*self.service)).await;
        self.diary.note(if self.hand_over.get() { End::HandedOver } else { End::Stopped });
    }
}

// ── Wiring ────────────────────────────────────────────────────────────────────────────────────────────────────────

/// The ring of log lines, made before everything else: the first thing that is said is in it.
#[must_use]
pub fn log_ring() -> (lossy::Writer, lossy::Reader) {
    lossy::lossy(LOG_RING_BYTES)
}

/// Makes the channels and starts the actors, by rank.
#[must_use]
pub fn build(parts: Parts, executor: &Rc<LocalExecutor<'static>>) -> Agent {
    let Parts {
        board,
        cloud,
        log_lines,
        log_writer,
        identity,
        exposure,
        check_identity,
        make_keys,
        random,
        set_debug,
        trace,
        options,
    } = parts;
    let Options { root, credentials, defaults, debug, wait, dev_mode, minute, launched, safe, version } = options;
    let state = root.join("state");
    let supervisor = Supervisor::new(executor, &board.clock);
    let version_shown = Rc::from(version.as_str());
    if let Err(error) = board.files.make_folder(&state, Access::Private) {
        // The actors say again what they could not store; an agent with a full disk still runs its machine server.
        log::error!("{error}: {}", error.source);
    }
    let diary = Diary::begin(Rc::clone(&board.files), state.join("agent.life"), &board.host.facts().boot_id);

    // States: the newest value is what counts.
    let sections = config::Sections::default();
    let fetched = Latest::new();
    let reach = Latest::new();
    let contact = Latest::new();
    let restarts = Latest::new();
    let whose = Latest::new();
    let retries = Latest::new();
    let acknowledged = Latest::new();
    let report = Latest::new();
    let progress = Latest::new();
    let own_progress = Latest::new();
    let own_report = Latest::new();
    let leave = Latest::new();
    // One at a time, of either product.
    let (room, checks) = (Berth::new(Latest::new()), Berth::new(Latest::new()));
    let offered = Latest::new();
    let spool = Latest::new();
    let connectivity = Latest::new();
    let joining = Latest::new();
    let air = Latest::new();
    let network_report = Latest::new();
    let stir = Latest::new();
    let doors = Latest::new();
    // Wishes of whoever is at the device, counted.
    let (invite, deprovision) = (Latest::new(), Latest::new());

    // Commands: down the ranks.
    let (to_server, server_mail) = mailbox::mailbox(Actor::Update, Actor::Server, SERVER_MAIL);
    let (to_successor, successor_mail) = mailbox::mailbox(Actor::Update, Actor::Successor, SUCCESSOR_MAIL);
    let (to_network, network_mail) = mailbox::mailbox(Actor::Provisioning, Actor::Network, NETWORK_MAIL);
    let (refused, refused_mail) = mailbox::outside(REFUSED_MAIL);
    let (reload, reload_mail) = mailbox::outside(RELOAD_MAIL);
    let (poke, poke_mail) = mailbox::outside(POKE_MAIL);

    let slot = launched.as_ref().map(|launched| launched.slot.name().to_owned()).unwrap_or_default();
    let launch_note = launched.as_ref().and_then(|launched| launched.note.clone()).unwrap_or_default();
    // What a status is made of, for the fleet server and for whoever asks at the device.
    let sources = Rc::new(Sources {
        board: board.clone(),
        root: root.clone(),
        agent_version: version.clone(),
        started: board.clock.now(),
        agent: AgentStatus { slot, launch_note, safe_mode: safe, ..diary.life().status() },
        exposure,
        config: sections.status.watch(),
        server: report.watch(),
        updates: vec![progress.watch(), own_progress.watch()],
        spool: spool.watch(),
        network: network_report.watch(),
        provisioning: doors.watch(),
    });

    supervisor.start(Actor::Config, "config", |lifeline| {
        let cloud = Rc::clone(&cloud);
        let command_line = CommandLine { debug: debug.then_some(true), wait_for_update_check: wait };
        config::actor::run(
            config::machine::Machine::new(command_line),
            config::actor::Inbox { fetched: fetched.watch(), reload: reload_mail, lifeline },
            config::actor::Ports {
                clock: Rc::clone(&board.clock),
                files: Rc::clone(&board.files),
                defaults,
                cache: state.join("config.cache"),
                part_id: Rc::new(move || cloud.part_id()),
                sections: sections.clone(),
                trace: trace.clone(),
            },
        )
    });

    // The two products. The agent first: where both begin to download together, it has the room for that.
    let updates = |keeper, lifeline| update::actor::Inbox {
        versions: sections.versions.watch(),
        advanced: sections.advanced.watch(),
        reach: reach.watch(),
        fetched: fetched.watch(),
        retries: retries.watch(),
        keeper,
        lifeline,
    };
    let updating = |keeper, status| {
        let address = Rc::clone(&identity);
        update::actor::Ports {
            clock: Rc::clone(&board.clock),
            files: Rc::clone(&board.files),
            fetch: Rc::clone(&board.fetch),
            executor: Rc::clone(executor),
            platform: board.host.facts().platform.clone(),
            dev_mode,
            address: Rc::new(move || address().map(|identity| identity.address)),
            keeper,
            room: room.clone(),
            checks: checks.clone(),
            status,
            percent: Latest::new(),
            trace: trace.clone(),
        }
    };
    let own = Layout::new(&root, brand::AGENT);
    let refused_before = launched.as_ref().and_then(|launched| launched.refused.clone());
    let own_program = launched
        .as_ref()
        .map(|launched| server::Program { version: version.clone(), path: own.executable(launched.slot) });
    match launched {
        Some(launched) => supervisor.start(Actor::Update, "update of the agent", |lifeline| {
            let launched =
                update::Launched { slot: launched.slot, note: launched.note, refused: launched.refused, version };
            let kind = update::Kind::Agent(launched);
            update::actor::run(
                update::Policy { layout: own, kind, minute, wait: Some(false), seed: random(), safe },
                updates(Keeper::Agent(own_report.watch()), lifeline),
                updating(to_successor, own_progress.clone()),
            )
        }),
        None => own_progress.publish(unmanaged(version)),
    }
    supervisor.start(Actor::Update, "update of the machine server", |lifeline| {
        let layout = Layout::new(&root, brand::MACHINE_SERVER);
        update::actor::run(
            update::Policy { layout, kind: update::Kind::MachineServer, minute, wait, seed: random(), safe },
            updates(Keeper::Server(report.watch()), lifeline),
            updating(to_server, progress.clone()),
        )
    });

    let windows = Rc::new(SystemWindows::new(Rc::clone(&board.files)));
    if let Some(program) = own_program {
        let all_alive = supervisor.all_alive();
        supervisor.start(Actor::Successor, "successor", |lifeline| {
            let machine = successor::machine::Machine::new(program, minute);
            successor::actor::run(
                match refused_before {
                    Some(reason) => machine.after_refusal(board.clock.now(), reason),
                    None => machine,
                },
                successor::actor::Inbox {
                    commands: successor_mail,
                    settings: sections.advanced.watch(),
                    update: own_progress.watch(),
                    refused: refused_mail,
                    lifeline,
                },
                successor::actor::Ports {
                    clock: Rc::clone(&board.clock),
                    windows: windows.clone(),
                    all_alive: Rc::new(all_alive),
                    report: own_report,
                    leave: leave.clone(),
                    trace: trace.clone(),
                },
            )
        });
    }

    let has_doors = board.networks.is_some() || board.bluetooth.is_some();
    let facts = board.host.facts();
    if has_doors {
        let known = Rc::clone(&identity);
        let (files, file) = (Rc::clone(&board.files), credentials.clone());
        supervisor.start(Actor::Provisioning, "provisioning", |lifeline| {
            provisioning::actor::run(
                provisioning::actor::Inbox {
                    advanced: sections.advanced.watch(),
                    network: sections.network.watch(),
                    connectivity: connectivity.watch(),
                    joining: joining.watch(),
                    air: air.watch(),
                    reach: reach.watch(),
                    config: sections.status.watch(),
                    wishes: invite.watch(),
                    lifeline,
                },
                provisioning::actor::Ports {
                    clock: Rc::clone(&board.clock),
                    files: Rc::clone(&board.files),
                    networks: board.networks.clone(),
                    doorway: board.doorway.clone(),
                    bluetooth: board.bluetooth.clone(),
                    make_keys,
                    executor: Rc::clone(executor),
                    to_network: to_network.clone(),
                    poke: poke.clone(),
                    credentials: credentials.clone(),
                    force_file: root.join("etc").join("force_provisioning_mode"),
                    check: check_identity,
                    // A file that is there and cannot be understood is somebody's all the same.
                    has_identity: Rc::new(move || {
                        known().is_some()
                            || !files
                                .read(&file, 0)
                                .is_ok_and(|content| content.is_none_or(|content| content.is_empty()))
                    }),
                    hostname: facts.hostname.as_str().into(),
                    serial: facts.serial.as_str().into(),
                    agent_version: version_shown,
                    minute,
                    random: Rc::clone(&random),
                    status: doors.clone(),
                    trace: trace.clone(),
                },
            )
        });
    }

    supervisor.start(Actor::Cloud, "cloud", |lifeline| {
        let (cloud, presented) = (Rc::clone(&cloud), Rc::clone(&identity));
        cloud::actor::run(
            cloud::machine::Machine::new(random()),
            cloud::actor::Inbox {
                pokes: poke_mail,
                config: sections.status.watch(),
                server: report.watch(),
                updates: vec![progress.watch(), own_progress.watch()],
                offered: offered.watch(),
                network: network_report.watch(),
                doors: doors.watch(),
                stir: stir.watch(),
                lifeline,
            },
            cloud::actor::Ports {
                board: board.clone(),
                cloud,
                executor: Rc::clone(executor),
                identity: Rc::new(move || presented().map_or(0, |identity| identity.fingerprint)),
                whose: whose.clone(),
                counter_file: state.join("restarts.counter"),
                sources: Rc::clone(&sources),
                contact: contact.clone(),
                fetched: fetched.clone(),
                reach: reach.clone(),
                restarts: restarts.clone(),
                retries: retries.clone(),
                acknowledged: acknowledged.clone(),
                trace: trace.clone(),
            },
        )
    });

    let hand_over = Rc::new(Cell::new(false));
    supervisor.start(Actor::Server, "server", |lifeline| {
        let presented = Rc::clone(&identity);
        server::actor::run(
            server::machine::Policy::new(minute, random()),
            server::actor::Inbox {
                settings: sections.advanced.watch(),
                commands: server_mail,
                restarts: restarts.watch(),
                identity: whose.watch(),
                lifeline,
            },
            server::actor::Ports {
                clock: Rc::clone(&board.clock),
                processes: Rc::clone(&board.processes),
                fetch: Rc::clone(&board.fetch),
                files: Rc::clone(&board.files),
                executor: Rc::clone(executor),
                places: Places { credentials, folder: root.clone(), record: state.join("machine-server.process") },
                identity: Rc::new(move || {
                    let Identity { api_key, fingerprint, .. } = presented()?;
                    Some(Presented { api_key, fingerprint })
                }),
                boot_id: board.host.facts().boot_id.clone(),
                windows,
                lines: log_writer,
                report: report.clone(),
                hand_over: Rc::clone(&hand_over),
                trace: trace.clone(),
            },
        )
    });

    supervisor.start(Actor::Network, "network", |lifeline| {
        let address = Rc::clone(&identity);
        network::actor::run(
            network::machine::Policy { minute, seed: random() },
            network::actor::Inbox {
                advanced: sections.advanced.watch(),
                network: sections.network.watch(),
                networks: sections.networks.watch(),
                config: sections.status.watch(),
                reach: reach.watch(),
                commands: network_mail,
                lifeline,
            },
            network::actor::Ports {
                clock: Rc::clone(&board.clock),
                files: Rc::clone(&board.files),
                fetch: Rc::clone(&board.fetch),
                networks: board.networks.clone(),
                power: board.power.clone(),
                executor: Rc::clone(executor),
                record: state.join("network.record"),
                boot_id: board.host.facts().boot_id.clone(),
                address: Rc::new(move || address().map(|identity| identity.address)),
                connectivity: connectivity.clone(),
                joining,
                air,
                report: network_report,
                stir,
                trace: trace.clone(),
            },
        )
    });

    supervisor.start(Actor::Logs, "logs", |lifeline| {
        let chance = Rc::clone(&random);
        logs::actor::run(
            logs::machine::Machine::new(random()),
            logs::actor::Inbox {
                lines: log_lines,
                reach: reach.watch(),
                acknowledged: acknowledged.watch(),
                clock: Rc::clone(&board.clock),
                lifeline,
            },
            logs::actor::Ports {
                clock: Rc::clone(&board.clock),
                files: Rc::clone(&board.files),
                folder: root.join("spool"),
                limits: logs::spool::Limits::default(),
                fresh_id: Rc::new(move || (u128::from(chance()) << 64 | u128::from(chance())).to_le_bytes()),
                host: board.host.facts().hostname.as_str().into(),
                offered,
                status: spool,
                trace,
            },
        )
    });

    supervisor.start(Actor::Console, "console", |lifeline| {
        let who = move || (identity().map(|identity| identity.address), cloud.part_id());
        let ports = console::actor::Ports {
            console: Rc::clone(&board.console),
            sources,
            contact: contact.watch(),
            identity: Rc::new(who),
            hotspot: hotspot_of(sections.network.clone(), board.host.facts()),
            provision: has_doors.then_some(invite),
            deprovision: deprovision.clone(),
        };
        console::actor::run(ports, lifeline)
    });

    executor.spawn(heed_debug(sections.advanced.clone(), debug, set_debug)).detach();
    Agent {
        supervisor,
        reload,
        poke,
        server: report,
        reach,
        update: progress,
        own_update: own_progress,
        config: sections.status,
        connectivity,
        to_network,
        hand_over,
        diary,
        service: Rc::clone(&board.service),
        leave,
        left: Cell::default(),
        deprovision,
        refused,
    }
}

/// Name and password of the hotspot, for who may ask at the device.
fn hotspot_of(settings: Latest<Rc<NetworkSettings>>, facts: &Facts) -> Rc<dyn Fn() -> Option<(String, Secret)>> {
    let (hostname, serial) = (facts.hostname.clone(), facts.serial.clone());
    Rc::new(move || {
        let settings = settings.get()?;
        let name = provisioning::hotspot::ssid(&settings.hotspot_prefix, &hostname)?;
        Some((name.to_string(), provisioning::hotspot::password(&settings, &serial)))
    })
}

/// The agent's own update where nobody manages it.
fn unmanaged(version: String) -> UpdateStatus {
    UpdateStatus {
        product: Product::Agent.into(),
        running_version: version.clone(),
        installed_version: version,
        last_error: format!(
            "{0} was started without its launcher and does not update itself: install it with {0} --install",
            brand::AGENT
        ),
        ..UpdateStatus::default()
    }
}

/// The `debug` setting, which belongs to no actor: it is the process's own.
async fn heed_debug(advanced: Latest<Rc<Advanced>>, always: bool, set_debug: Rc<dyn Fn(bool)>) {
    let mut advanced = advanced.watch();
    loop {
        // Waited for first: behind the `||` it would never be reached, and the loop never rest.
        let debug = advanced.changed().await.debug;
        set_debug(always || debug);
    }
}
