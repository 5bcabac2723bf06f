//! Waits for settings, news, the program's report and finished work; carries out what the machine decides.
//!
//! Whatever takes long runs in the background: one question to the fleet server, and one of download, judgement and
//! move, at a time. Small records are written in the turn itself, so that "stored before acted" is an order of statements.

use std::{cell::Cell, rc::Rc, time::Duration};

use api::{
    device_config::{Advanced, VersionControl},
    pb::platform::fleet::v1::{Product, UpdateRetry, UpdateStatus},
};
use board::{
    Clock,
    fetch::Fetch,
    files::{Access, Files},
};
use smol::{LocalExecutor, future::FutureExt as _};

use super::{
    berth::Berth,
    bring::{Bringing, Gain, Judging, place},
    check::{self, Ask, Found},
    events::{Effect, Effects, Event, Sight},
    machine::{Machine, Policy},
    progress::product,
    shelf::{discard, discard_others, has_partial, load},
    slots::{Installed, Layout, Pointer, Slot},
    target::Target,
    wish::Wish,
};
use crate::{
    cloud::{FetchedConfig, Reach, Retries},
    kit::{
        background::{Background, Results},
        latest::{Latest, Watch},
        mailbox::Mailbox,
        step::{self, assert_moved, next_event},
        supervise::Lifeline,
        trace::Trace,
    },
    rank::Actor,
    server::{self, Command},
    successor,
};

/// A download to which nothing was added for this long gives way to the other product's.
const PATIENCE: Duration = Duration::from_secs(3600);

/// What this actor hears.
pub struct Inbox {
    /// Section `version_control`.
    pub versions: Watch<Rc<VersionControl>>,
    /// Section `advanced_settings`.
    pub advanced: Watch<Rc<Advanced>>,
    /// How the fleet server can be reached.
    pub reach: Watch<Reach>,
    /// The configuration as fetched, which hints at new versions.
    pub fetched: Watch<Rc<FetchedConfig>>,
    /// What operators want to be tried again.
    pub retries: Watch<Retries>,
    /// The program that is updated.
    pub keeper: Keeper,
    /// Stops this actor.
    pub lifeline: Lifeline,
}

/// Who keeps the program that is updated.
pub enum Keeper {
    /// The `server` actor.
    Server(Watch<server::Report>),
    /// The `successor` actor.
    Agent(Watch<successor::Report>),
}

impl Keeper {
    async fn changed(&mut self) -> Sight {
        match self {
            Keeper::Server(report) => Sight::from(&report.changed().await),
            Keeper::Agent(report) => Sight::from(&report.changed().await),
        }
    }
}

/// What this actor can do.
pub struct Ports {
    /// Time.
    pub clock: Rc<dyn Clock>,
    /// The disk.
    pub files: Rc<dyn Files>,
    /// Documents and downloads.
    pub fetch: Rc<dyn Fetch>,
    /// For what takes longer than a turn.
    pub executor: Rc<LocalExecutor<'static>>,
    /// "linux/amd64"
    pub platform: String,
    /// First contact over plain http is allowed.
    pub dev_mode: bool,
    /// Address of the fleet server as the credentials file has it now, `http://host:port`.
    pub address: Rc<dyn Fn() -> Option<String>>,
    /// The program's keeper.
    pub keeper: Mailbox<Command>,
    /// Room for one unfinished download, of either product.
    pub room: Berth,
    /// One check at a time, of either product.
    pub checks: Berth,
    /// Where the walk is.
    pub status: Latest<UpdateStatus>,
    /// How much of a download has arrived; from the background to the actor itself.
    pub percent: Latest<u32>,
    /// What was done, for people.
    pub trace: Trace,
}

/// Runs the actor until it is stopped.
pub async fn run(policy: Policy, inbox: Inbox, ports: Ports) {
    let record = load(&policy, &ports).await;
    let (questions, answers) = slot(&ports.executor);
    let (work, done) = slot(&ports.executor);
    let percent = ports.percent.watch();
    let product = product(&policy.layout);
    let (is_agent, dev_mode) = (policy.kind.is_agent(), ports.dev_mode);
    let mut ears = Ears { inbox, product, dev_mode, settings: (None, None), hint: None, percent, answers, done };
    if has_partial(&policy.layout, &ports) {
        // What has arrived already is not given up for a download that has not begun.
        ports.room.try_take(product);
    }
    let machine = Machine::new(policy.clone(), record, ports.clock.now());
    let (layout, ports) = (policy.layout, Rc::new(ports));
    let gain = Gain::default();
    gain.begins(ports.clock.now());
    let mut desk = Desk { layout, product, is_agent, ports, machine, questions, work, gain };
    let effects = desk.machine.resume();
    desk.perform(effects).await;
    desk.publish();
    loop {
        ears.inbox.lifeline.turn_ends();
        let deadline = desk.machine.deadline();
        let Some(event) = next_event(&mut ears, &*desk.ports.clock, deadline).await else { break };
        ears.inbox.lifeline.turn_begins();
        let by_time = event == Event::DeadlinePassed;
        desk.take(event).await;
        if by_time {
            assert_moved(Actor::Update.name(), deadline, desk.machine.deadline(), desk.ports.clock.now());
        }
    }
    desk.work.cancel();
    desk.questions.cancel();
}

/// The inbox, and what the background brings.
struct Ears {
    inbox: Inbox,
    product: Product,
    dev_mode: bool,
    /// The sections, once both are known.
    settings: (Option<Rc<VersionControl>>, Option<Rc<Advanced>>),
    /// The hint heard last: version and digest.
    hint: Option<(String, Vec<u8>)>,
    percent: Watch<u32>,
    answers: Finished<Result<Found, String>>,
    done: Finished<Event>,
}

impl step::Inbox for Ears {
    type Event = Event;

    async fn next(&mut self) -> Option<Event> {
        enum Heard {
            Versions(Rc<VersionControl>),
            Advanced(Rc<Advanced>),
            Fetched(Rc<FetchedConfig>),
            Event(Event),
            Stop,
        }
        loop {
            let Ears { inbox, product, percent, answers, done, .. } = self;
            let Inbox { versions, advanced, reach, fetched, retries, keeper, lifeline } = inbox;
            let stopped = async {
                lifeline.stopped().await;
                Heard::Stop
            };
            let settings = async { Heard::Versions(versions.changed().await) }
                .or(async { Heard::Advanced(advanced.changed().await) })
                .or(async { Heard::Fetched(fetched.changed().await) });
            let events = async { Event::Reach(reach.changed().await) }
                .or(async { Event::Retry(edition(&retries.changed().await, *product)) })
                .or(async { Event::Server(keeper.changed().await) })
                .or(async { Event::Checked(answers.next().await) })
                .or(async { done.next().await })
                .or(async { Event::Arrived(percent.changed().await) });
            match stopped.or(settings).or(async { Heard::Event(events.await) }).await {
                Heard::Stop => return None,
                Heard::Event(event) => return Some(event),
                Heard::Versions(versions) => self.settings.0 = Some(versions),
                Heard::Advanced(advanced) => self.settings.1 = Some(advanced),
                Heard::Fetched(fetched) => {
                    if self.is_news(&fetched) {
                        return Some(Event::Hint);
                    }
                    continue;
                }
            }
            if let (Some(versions), Some(advanced)) = &self.settings {
                let wish = match self.product {
                    Product::Agent => Wish::of_agent(versions, advanced, self.dev_mode),
                    _ => Wish::of_server(versions, advanced),
                };
                return Some(Event::Wish(Rc::new(wish)));
            }
        }
    }

    fn deadline_passed(&self) -> Event {
        Event::DeadlinePassed
    }
}

/// The wish for another try that concerns this product; 0 is none.
fn edition(retries: &[UpdateRetry], product: Product) -> u64 {
    retries.iter().filter(|retry| retry.product() == product).map(|retry| retry.edition).max().unwrap_or_default()
}

impl Ears {
    /// Whether the fleet server means another version than the last time. What it means is only a hint.
    fn is_news(&mut self, fetched: &FetchedConfig) -> bool {
        let hint = match self.product {
            Product::Agent => fetched.response.agent_update_info.as_ref(),
            _ => fetched.response.platform_server_update_info.as_ref(),
        };
        let hint = hint.map(|hint| (hint.version.clone(), hint.sha256.clone()));
        let news = hint.is_some() && hint != self.hint;
        self.hint = hint;
        news
    }
}

/// A background slot whose results name the operation they belong to: one that was given up in the very moment of its
/// end must not be taken for its successor.
struct Running<T: 'static> {
    slot: Background<(u64, T)>,
    number: Rc<Cell<u64>>,
}

/// Where results arrive.
struct Finished<T> {
    results: Results<(u64, T)>,
    number: Rc<Cell<u64>>,
}

fn slot<T: 'static>(executor: &Rc<LocalExecutor<'static>>) -> (Running<T>, Finished<T>) {
    let ((slot, results), number) = (Background::new(executor), Rc::new(Cell::new(0)));
    (Running { slot, number: Rc::clone(&number) }, Finished { results, number })
}

impl<T: 'static> Running<T> {
    fn start(&self, operation: impl Future<Output = T> + 'static) {
        let number = self.number.get() + 1;
        self.number.set(number);
        self.slot.start(async move { (number, operation.await) });
    }

    fn cancel(&self) {
        self.number.set(self.number.get() + 1);
        self.slot.cancel();
    }
}

impl<T> Finished<T> {
    /// The result of the operation that runs. Cancel-safe.
    async fn next(&mut self) -> T {
        loop {
            let (number, result) = self.results.next().await;
            if number == self.number.get() {
                return result;
            }
        }
    }
}

struct Desk {
    layout: Layout,
    product: Product,
    is_agent: bool,
    ports: Rc<Ports>,
    machine: Machine,
    questions: Running<Result<Found, String>>,
    work: Running<Event>,
    gain: Gain,
}

impl Desk {
    /// Feeds the machine one event, and what its storing brought.
    async fn take(&mut self, event: Event) {
        let before = self.machine.state().name();
        let now = self.ports.clock.now();
        let failed = matches!(event, Event::Downloaded(Err(_)) | Event::Verified(Err(_)) | Event::Placed(Err(_)));
        let effects = self.machine.step(now, event);
        let starts_anew = effects.iter().any(|effect| matches!(effect, Effect::Discard));
        let is_stuck = failed && now.since(self.gain.at.get()) >= PATIENCE;
        if starts_anew || is_stuck || !self.machine.wants_room() {
            self.ports.room.leave(self.product);
        }
        self.perform(effects).await;
        let after = self.machine.state().name();
        if before != after {
            let status = self.machine.progress();
            let product = self.layout.product();
            let version = match status.target_version.as_str() {
                "" => status.wanted.as_str(),
                version => version,
            };
            let reason = if status.last_error.is_empty() { "" } else { ": " };
            let now = self.ports.clock.now();
            self.ports.trace.note(
                now,
                Actor::Update,
                format_args!("{product} {before} → {after}   {version}{reason}{}", status.last_error),
            );
        }
        self.publish();
    }

    fn publish(&self) {
        let status = self.machine.progress();
        let error = status.last_error.clone();
        let old = self.ports.status.get().map(|status| status.last_error).unwrap_or_default();
        if self.ports.status.publish_if_changed(status) && error != old && !error.is_empty() {
            log::warn!("{}: {error}", self.layout.product());
        }
    }

    async fn perform(&mut self, effects: Effects) {
        for effect in effects {
            match effect {
                Effect::Store(record) => {
                    let stored = self.ports.files.write(&self.layout.record(), &record.encode(), Access::Private);
                    if let Err(error) = stored {
                        let reason = format!("{error}: {}", error.source);
                        log::error!("{}: {reason}", self.layout.product());
                        let effects = self.machine.step(self.ports.clock.now(), Event::NotStored(reason));
                        // What answers a failed store stores nothing itself, so this ends.
                        return Box::pin(self.perform(effects)).await;
                    }
                }
                Effect::Point(pointer) => {
                    let Err(reason) = self.point(pointer) else { continue };
                    log::error!("{}: {reason}", self.layout.product());
                    if self.is_agent {
                        let effects = self.machine.step(self.ports.clock.now(), Event::NotPointed(reason));
                        // What answers that neither points nor tells, so this ends.
                        return Box::pin(self.perform(effects)).await;
                    }
                }
                Effect::Cancel => self.work.cancel(),
                Effect::Discard => {
                    discard(&self.layout, &self.ports);
                    self.gain.most.set(0);
                }
                Effect::Check(wish) => self.check(wish),
                Effect::Download(target, wish) => self.download(*target, &wish),
                Effect::Verify(target, wish) => self.verify(*target, &wish),
                Effect::Place(slot, installed) => self.place(slot, *installed),
                Effect::Tell(command) => self.ports.keeper.send(command).await,
            }
        }
    }

    /// The record is the truth; the machine server's pointer that cannot be written is put right by the next start.
    fn point(&self, pointer: Pointer) -> Result<(), String> {
        let (path, text) = (self.layout.pointer(), pointer.text());
        let there = self.ports.files.read(&path, text.len()).ok().flatten();
        if there.as_deref() == Some(text.as_bytes()) {
            return Ok(());
        }
        let written = self.ports.files.write(&path, text.as_bytes(), Access::Readable);
        written.map_err(|error| format!("{error}: {}", error.source))
    }

    fn check(&self, wish: Rc<Wish>) {
        let ports = &self.ports;
        let ask = Ask {
            clock: Rc::clone(&ports.clock),
            fetch: Rc::clone(&ports.fetch),
            files: Rc::clone(&ports.files),
            folder: self.layout.trust(),
            address: (ports.address)(),
            product: self.layout.product(),
            platform: ports.platform.clone(),
            dev_mode: ports.dev_mode,
        };
        let checks = ports.checks.clone();
        self.questions.start(async move {
            let _held = checks.hold().await;
            check::check(&ask, &wish).await.map_err(|error| error.to_string())
        });
    }

    fn download(&mut self, target: Target, wish: &Wish) {
        let bringing = Bringing {
            ports: Rc::clone(&self.ports),
            partial: self.layout.partial(),
            validator: self.layout.validator(),
            percent: self.ports.percent.clone(),
            gain: self.gain.clone(),
            rate: wish.rate,
            reserve: wish.reserve,
        };
        let (product, layout, gain) = (self.product, self.layout.clone(), self.gain.clone());
        if !self.ports.room.try_take(product) {
            self.machine.waits_for_room();
        }
        self.work.start(async move {
            if bringing.ports.room.take(product).await || gain.most.get() == 0 {
                gain.begins(bringing.ports.clock.now());
            }
            discard_others(&layout, &bringing.ports);
            Event::Downloaded(bringing.bring(&target).await)
        });
    }

    fn verify(&self, target: Target, wish: &Wish) {
        let judging = Judging { ports: Rc::clone(&self.ports), layout: self.layout.clone(), reserve: wish.reserve };
        self.work.start(async move { Event::Verified(judging.judge(target).await) });
    }

    fn place(&self, slot: Slot, installed: Installed) {
        let (ports, partial, layout) = (Rc::clone(&self.ports), self.layout.partial(), self.layout.clone());
        self.work.start(async move { Event::Placed(place(&ports, &partial, &layout, slot, &installed).await) });
    }
}
