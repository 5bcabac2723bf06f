//! The shell of the cloud actor: waits for news, makes the calls that the machine wants, and tells the others.

use std::{
    future::poll_fn,
    path::PathBuf,
    pin::pin,
    rc::Rc,
    task::{Context, Poll},
};

use api::pb::platform::fleet::v1::{DeviceStatus, ProvisioningStatus, UpdateStatus};
use board::{Board, files::Access};
use serde::Deserialize;
use smol::{LocalExecutor, future::FutureExt as _};

use super::{
    Acknowledged, Contact, FetchedConfig, Reach, RestartsWanted, Retries,
    calls::{self, Answers, Plan, Questions, Report},
    machine::{BatchKey, Effect, Event, Machine},
    port::Cloud,
    sources::Sources,
    status::{self, Told},
};
use crate::{
    config::ConfigStatus,
    kit::{
        background::{Background, Results},
        latest::{Latest, Watch},
        mailbox::Mail,
        step::{self, assert_moved},
        supervise::Lifeline,
        trace::Trace,
    },
    logs::Offered,
    network,
    rank::Actor,
    server,
};

/// Longest record of the restart counter: a name and a number.
const COUNTER_BYTES_MAX: usize = 128;

/// What this actor hears.
pub struct Inbox {
    /// Reasons to call at once: the network is back, an identity was given.
    pub pokes: Mail<()>,
    /// How the configuration is.
    pub config: Watch<ConfigStatus>,
    /// The machine server.
    pub server: Watch<server::Report>,
    /// The updates, one per product.
    pub updates: Vec<Watch<UpdateStatus>>,
    /// The log batch to deliver.
    pub offered: Watch<Option<Offered>>,
    /// How the network is.
    pub network: Watch<network::Report>,
    /// The doors.
    pub doors: Watch<ProvisioningStatus>,
    /// The network is otherwise than before, which is a reason to call at once.
    pub stir: Watch<u64>,
    /// Stops this actor.
    pub lifeline: Lifeline,
}

/// What this actor can do.
pub struct Ports {
    /// Clock, files and names of the device.
    pub board: Board,
    /// The fleet server.
    pub cloud: Rc<dyn Cloud>,
    /// Where calls run while the actor listens.
    pub executor: Rc<LocalExecutor<'static>>,
    /// Who the device is, as the credentials file says now; 0 where it is nobody.
    pub identity: Rc<dyn Fn() -> u64>,
    /// The same, for who has to know when it is another one.
    pub whose: Latest<u64>,
    /// Where the counter of wanted restarts is kept.
    pub counter_file: PathBuf,
    /// What reports are made of.
    pub sources: Rc<Sources>,
    /// The configuration, when it changed.
    pub fetched: Latest<Rc<FetchedConfig>>,
    /// How the server can be reached.
    pub reach: Latest<Reach>,
    /// The same for people, with what the last failure said.
    pub contact: Latest<Contact>,
    /// Restarts wanted by operators.
    pub restarts: Latest<RestartsWanted>,
    /// What operators want to be tried again.
    pub retries: Latest<Retries>,
    /// Which log batches the server keeps.
    pub acknowledged: Latest<Acknowledged>,
    /// What was done, for people. Not each call: a line per call would be one more to deliver.
    pub trace: Trace,
}

/// Runs the actor until it is stopped.
pub async fn run(mut machine: Machine, inbox: Inbox, ports: Ports) {
    let (background, results) = Background::new(&ports.executor);
    let offered = inbox.offered.clone();
    let mut desk = Desk { ports, background, offered, told: Told::default(), asked: None };
    let mut ears = Ears { inbox, results };
    let wanted = desk.load_counter();
    desk.ports.restarts.publish(wanted);
    desk.ports.reach.publish(machine.reach());
    desk.carry_out(&mut machine, Event::Started(wanted));
    loop {
        ears.inbox.lifeline.turn_ends();
        let deadline = machine.deadline();
        let Some(event) = step::next_event(&mut ears, &*desk.ports.board.clock, deadline).await else { break };
        let by_time = event == Event::DeadlinePassed;
        desk.carry_out(&mut machine, event);
        if by_time {
            assert_moved(Actor::Cloud.name(), deadline, machine.deadline(), desk.ports.board.clock.now());
        }
    }
    desk.background.cancel();
}

/// The inbox and the ends of calls.
struct Ears {
    inbox: Inbox,
    results: Results<Answers>,
}

impl step::Inbox for Ears {
    type Event = Event;

    async fn next(&mut self) -> Option<Event> {
        let Ears { inbox: Inbox { pokes, config, server, updates, offered, network, doors, stir, lifeline }, results } =
            self;
        let stop = async {
            lifeline.stopped().await;
            None
        };
        let answered = async { Some(Event::Answered(Box::new(results.next().await))) };
        let batch = async { Some(Event::Offered(offered.changed().await.as_ref().map(key))) };
        let machine_server = async {
            let server::Report { operator_restarts, handles_needs_restart, .. } = server.changed().await;
            Some(Event::MachineServer { operator_restarts, handles_needs_restart })
        };
        let changed = async {
            async { drop(config.changed().await) }
                .or(async { drop(network.changed().await) })
                .or(async { drop(doors.changed().await) })
                .await;
            Some(Event::StatusChanged)
        };
        let updated =
            async { Some(Event::Updates { in_trouble: any(updates).await.iter().any(status::is_in_trouble) }) };
        let stirred = async {
            stir.changed().await;
        };
        let poked = async {
            pokes.next().or(stirred).await;
            Some(Event::Poked)
        };
        let event = stop.or(answered).or(poked).or(machine_server).or(changed).or(updated).or(batch).await;
        lifeline.turn_begins();
        event
    }

    fn deadline_passed(&self) -> Event {
        Event::DeadlinePassed
    }
}

/// All of several values, when one of them changed.
async fn any<T: Clone>(watches: &mut [Watch<T>]) -> Vec<T> {
    poll_fn(|context: &mut Context<'_>| {
        // Every one of them is polled, so that each knows whom to wake.
        let changed = watches.iter_mut().filter_map(|watch| match pin!(watch.changed()).poll(context) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        });
        if changed.count() > 0 { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    watches.iter().filter_map(Watch::get).collect()
}

fn key(offered: &Offered) -> BatchKey {
    BatchKey { spool_id: Rc::clone(&offered.spool_id), number: offered.number }
}

struct Desk {
    ports: Ports,
    background: Background<Answers>,
    offered: Watch<Option<Offered>>,
    told: Told,
    /// The report that is under way.
    asked: Option<DeviceStatus>,
}

/// The stored counter.
#[derive(Deserialize)]
struct Counter {
    restarts_wanted: u64,
}

impl Desk {
    /// Feeds the machine one event and does what it wants.
    fn carry_out(&mut self, machine: &mut Machine, event: Event) {
        if let Event::Answered(answers) = &event
            && let (Some(Ok(_)), Some(status)) = (&answers.reported, self.asked.take())
        {
            self.told.remember(&status);
        }
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            for effect in machine.step(self.ports.board.clock.now(), event) {
                if effect == Effect::Look && self.ports.cloud.is_renewed() {
                    events.push(Event::Poked);
                }
                self.perform(effect);
            }
        }
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Call(plan) => {
                // The file is read by whoever speaks for the device; here only when it may say something new.
                if self.ports.whose.get().unwrap_or_default() == 0 || self.ports.cloud.is_renewed() {
                    self.ports.whose.publish_if_changed((self.ports.identity)());
                }
                let questions = self.questions(plan);
                self.background.start(calls::carry_out(Rc::clone(&self.ports.cloud), questions));
            }
            Effect::Tell(reach, why) => {
                match &why {
                    Some(error) => log::warn!("{error}"),
                    None => log::info!("the fleet server is reached"),
                }
                self.note(format_args!("{reach:?}"));
                let why = why.map(|error| error.to_string().into());
                self.ports.contact.publish(Contact { reach, since: Some(self.ports.board.clock.wall()), why });
                self.ports.reach.publish(reach);
            }
            Effect::Configure(fetched) => {
                let [a, b, c, d, ..] = fetched.revision;
                self.note(format_args!("configuration {a:02x}{b:02x}{c:02x}{d:02x} fetched"));
                self.ports.fetched.publish(Rc::new(fetched));
            }
            Effect::Restart(wanted) => self.restart(wanted),
            Effect::Retry(retries) => self.ports.retries.publish(retries),
            Effect::Acknowledge(acknowledged) => self.ports.acknowledged.publish(acknowledged),
            Effect::Complain(what, error) => log::warn!("{what}: {error}"),
            Effect::Look => {}
        }
    }

    fn questions(&mut self, plan: Plan) -> Questions {
        let facts = self.ports.board.host.facts().clone();
        let parts = (plan.config || plan.report != Report::No).then(|| self.ports.sources.parts());
        let config = parts.as_ref().filter(|_| plan.config).map(|parts| status::config_request(&facts, parts));
        let report = parts
            .filter(|_| plan.report != Report::No)
            .map(|parts| status::compose(&facts, parts))
            .filter(|status| plan.report == Report::Always || self.told.is_news(status));
        self.asked.clone_from(&report);
        let upload = if plan.upload { self.offered.get().flatten() } else { None };
        Questions { config, report, unheard: plan.unheard, restart: plan.restart, upload }
    }

    /// A counter that cannot be read starts again from what the machine server has done, which is never behind.
    fn load_counter(&self) -> RestartsWanted {
        let path = &self.ports.counter_file;
        let stored = self.ports.board.files.read(path, COUNTER_BYTES_MAX).unwrap_or_else(|error| {
            log::warn!("{error}: {}", error.source);
            None
        });
        let counter = stored.and_then(|text| {
            let counter = serde_json_core::from_slice::<Counter>(&text).map(|(counter, _)| counter);
            counter.inspect_err(|_| log::warn!("{} is damaged and not used", path.display())).ok()
        });
        RestartsWanted(counter.map_or(0, |counter| counter.restarts_wanted))
    }

    fn restart(&self, wanted: RestartsWanted) {
        let RestartsWanted(restarts) = wanted;
        let text = format!("{{\"restarts_wanted\":{restarts}}}\n");
        if let Err(error) = self.ports.board.files.write(&self.ports.counter_file, text.as_bytes(), Access::Private) {
            log::warn!("a wanted restart could not be stored: {error}: {}", error.source);
        }
        self.note(format_args!("restart {restarts} wanted"));
        self.ports.restarts.publish(wanted);
    }

    fn note(&self, text: std::fmt::Arguments<'_>) {
        self.ports.trace.note(self.ports.board.clock.now(), Actor::Cloud, text);
    }
}
