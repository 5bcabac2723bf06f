//! The shell of the network actor: waits for news of the network, and does what the machine wants.

use std::{path::PathBuf, rc::Rc, time::Duration};

use api::device_config::{Advanced, Network, NetworkSettings};
use board::{
    Clock,
    fetch::{Fetch, FetchError, Reply},
    files::Files,
    network::{Links, NetworkError, Networks},
    power::Power,
};
use smol::{LocalExecutor, future::FutureExt as _};

use super::{
    Air, Command, Connectivity, Joining, Report,
    machine::{Done, Effect, Event, Machine, Policy, Tuning, Wants, Work},
    profiles::{self, Step},
    record,
};
use crate::{
    cloud::Reach,
    config::ConfigStatus,
    kit::{
        background::{Background, Results},
        latest::{Latest, Watch},
        mailbox::Mail,
        step::{self, assert_moved},
        supervise::Lifeline,
        trace::Trace,
    },
    rank::Actor,
    server::record::boot,
};

/// A question to the internet is given up after this.
const ASK_LIMIT: Duration = Duration::from_secs(15);
/// Longest answer that is read; longer ones are pages of somebody else.
const ANSWER_BYTES_MAX: usize = 1024;
/// What the fleet server answers, and what servers for such checks do.
const GOOD_WORDS: [&[u8]; 2] = [b"ok", b"NetworkManager is online"];

/// What this actor hears.
pub struct Inbox {
    /// Section `advanced_settings`.
    pub advanced: Watch<Rc<Advanced>>,
    /// Section `network_configuration`.
    pub network: Watch<Rc<NetworkSettings>>,
    /// Section `additional_networks`.
    pub networks: Watch<Rc<[Network]>>,
    /// Whether the cloud's configuration is among it.
    pub config: Watch<ConfigStatus>,
    /// The fleet server.
    pub reach: Watch<Reach>,
    /// From the doors.
    pub commands: Mail<Command>,
    /// Stops this actor.
    pub lifeline: Lifeline,
}

/// What this actor can do.
pub struct Ports {
    /// Time.
    pub clock: Rc<dyn Clock>,
    /// The record.
    pub files: Rc<dyn Files>,
    /// Questions to the internet.
    pub fetch: Rc<dyn Fetch>,
    /// The network manager, where there is one at all.
    pub networks: Option<Rc<dyn Networks>>,
    /// The machine's power, where the agent may switch it.
    pub power: Option<Rc<dyn Power>>,
    /// For what takes longer than a turn.
    pub executor: Rc<LocalExecutor<'static>>,
    /// Where the record is kept.
    pub record: PathBuf,
    /// [`board::host::Facts::boot_id`].
    pub boot_id: String,
    /// Address of the fleet server, once there is an identity.
    pub address: Rc<dyn Fn() -> Option<String>>,
    /// How the device is connected.
    pub connectivity: Latest<Connectivity>,
    /// The last attempt.
    pub joining: Latest<Joining>,
    /// What there is in the air.
    pub air: Latest<Air>,
    /// For people.
    pub report: Latest<Report>,
    /// Rises when others should see for themselves what can be reached now.
    pub stir: Latest<u64>,
    /// What was done, for people.
    pub trace: Trace,
}

/// Runs the actor until it is stopped.
pub async fn run(policy: Policy, inbox: Inbox, ports: Ports) {
    let now = ports.clock.now();
    let stored = record::load(&*ports.files, &ports.record);
    let mut machine = Machine::new(policy, stored, boot(&ports.boot_id), now);
    let (work, done) = Background::new(&ports.executor);
    let (question, answers) = Background::new(&ports.executor);
    let (reboot, refusals) = Background::new(&ports.executor);
    let mut ears = Ears { inbox, networks: None, links: Links::default(), done, answers, refusals };
    let desk = Desk { ports, work, question, reboot };
    desk.publish(&machine, Connectivity::Unknown);
    loop {
        ears.inbox.lifeline.turn_ends();
        let deadline = machine.deadline();
        let Some(event) = step::next_event(&mut ears, &*desk.ports.clock, deadline).await else { break };
        let by_time = event == Event::DeadlinePassed;
        if let Event::Wants(wants) = &event {
            // One that is to be left alone is not even looked at.
            ears.networks = desk.ports.networks.clone().filter(|_| !wants.disabled);
        }
        desk.carry_out(&mut machine, event);
        if by_time {
            assert_moved(Actor::Network.name(), deadline, machine.deadline(), desk.ports.clock.now());
        }
    }
    desk.work.cancel();
}

/// The inbox, the network manager's news, and the ends of slow things.
struct Ears {
    inbox: Inbox,
    networks: Option<Rc<dyn Networks>>,
    /// What was told last.
    links: Links,
    done: Results<Done>,
    answers: Results<Option<bool>>,
    refusals: Results<Rc<str>>,
}

impl step::Inbox for Ears {
    type Event = Event;

    async fn next(&mut self) -> Option<Event> {
        let Ears { inbox, networks, links, done, answers, refusals } = self;
        let Inbox { advanced, network, networks: given, config, reach, commands, lifeline } = inbox;
        let stop = async {
            lifeline.stopped().await;
            None
        };
        let wants = wants(advanced, network, given, config);
        let news = async { Some(Event::Links(news(networks.as_deref(), links).await)) };
        let reached = async { Some(Event::Reach(reach.changed().await)) };
        let commanded = async { Some(Event::Command(commands.next().await)) };
        let ended = async { Some(Event::Done(done.next().await)) };
        let answered = async { Some(Event::Answered(answers.next().await)) };
        let refused = async { Some(Event::NotRebooted(refusals.next().await)) };
        let event = stop.or(wants).or(news).or(reached).or(ended).or(answered).or(refused).or(commanded).await;
        lifeline.turn_begins();
        event
    }

    fn deadline_passed(&self) -> Event {
        Event::DeadlinePassed
    }
}

/// What the configuration says, when a part of it changed and all parts are known.
async fn wants(
    advanced: &mut Watch<Rc<Advanced>>,
    network: &mut Watch<Rc<NetworkSettings>>,
    networks: &mut Watch<Rc<[Network]>>,
    config: &mut Watch<ConfigStatus>,
) -> Option<Event> {
    loop {
        let changed = async { drop(advanced.changed().await) }
            .or(async { drop(network.changed().await) })
            .or(async { drop(networks.changed().await) })
            .or(async { drop(config.changed().await) });
        changed.await;
        let (Some(advanced), Some(network), Some(networks)) = (advanced.get(), network.get(), networks.get()) else {
            continue;
        };
        let heard = config.get().is_some_and(|config| config.applied_revision.is_some());
        let disabled = advanced.disable_network_configuration;
        return Some(Event::Wants(Wants { network, networks, disabled, heard }));
    }
}

/// How things are, once that differs from what was told last.
async fn news(networks: Option<&dyn Networks>, told: &mut Links) -> Links {
    loop {
        let Some(networks) = networks else {
            if *told != Links::default() {
                *told = Links::default();
                return told.clone();
            }
            return std::future::pending().await;
        };
        let links = networks.links();
        if links != *told {
            told.clone_from(&links);
            return links;
        }
        networks.changed().await;
    }
}

struct Desk {
    ports: Ports,
    work: Background<Done>,
    question: Background<Option<bool>>,
    reboot: Background<Rc<str>>,
}

impl Desk {
    /// Feeds the machine one event, does what it wants, and tells how it is now.
    fn carry_out(&self, machine: &mut Machine, event: Event) {
        let before = machine.connectivity();
        for effect in machine.step(self.ports.clock.now(), event) {
            self.perform(effect);
        }
        self.publish(machine, before);
    }

    fn perform(&self, effect: Effect) {
        let Ports { networks, power, .. } = &self.ports;
        match (effect, networks, power) {
            (Effect::Cancel, ..) => self.work.cancel(),
            (Effect::Work(work), Some(networks), _) => {
                if let Work::Join(key) = &work {
                    let (key, before) = profiles::successor(key).map_or((&**key, ""), |key| (key, " as it was before"));
                    let name = key.split_once(':').map_or(key, |(_, name)| name);
                    self.note(format_args!("joins {name}{before}"));
                }
                self.work.start(carry_out(Rc::clone(networks), work));
            }
            // Nobody says that there is a manager then.
            (Effect::Work(_), None, _) => {}
            (Effect::Ask(url), ..) => {
                let (fetch, address) = (Rc::clone(&self.ports.fetch), (self.ports.address)());
                self.question.start(async move { ask(&*fetch, url.as_deref(), address.as_deref()).await });
            }
            (Effect::Store(record), ..) => {
                if let Err(error) = record::store(&*self.ports.files, &self.ports.record, &record) {
                    log::warn!("since when the device is offline could not be stored: {error}: {}", error.source);
                }
            }
            (Effect::Reboot, _, Some(power)) => {
                let power = Rc::clone(power);
                self.reboot.start(async move {
                    match power.reboot().await {
                        Ok(()) => std::future::pending().await,
                        Err(error) => error.to_string().into(),
                    }
                });
            }
            (Effect::Reboot, _, None) => {
                self.reboot.start(async { "this agent cannot reboot this machine".into() });
            }
            (Effect::Note(text), ..) => {
                log::info!("{text}");
                self.note(format_args!("{text}"));
            }
        }
    }

    fn publish(&self, machine: &Machine, before: Connectivity) {
        let Ports { connectivity, joining, air, report, stir, .. } = &self.ports;
        connectivity.publish_if_changed(machine.connectivity());
        joining.publish_if_changed(machine.joining().clone());
        air.publish_if_changed(machine.air());
        let now = machine.report();
        let news: Vec<String> = report
            .get()
            .map(|old| now.trouble.iter().filter(|why| !old.trouble.contains(why)).cloned().collect())
            .unwrap_or_default();
        news.iter().for_each(|why| log::warn!("{why}"));
        report.publish_if_changed(now);
        if machine.stir() > 0 {
            stir.publish_if_changed(machine.stir());
        }
        let after = machine.connectivity();
        if word(before) != word(after) {
            self.note(format_args!("{} → {}", word(before), word(after)));
        }
    }

    fn note(&self, text: std::fmt::Arguments<'_>) {
        self.ports.trace.note(self.ports.clock.now(), Actor::Network, text);
    }
}

const fn word(connectivity: Connectivity) -> &'static str {
    match connectivity {
        Connectivity::Unknown => "Unknown",
        Connectivity::Online { .. } => "Online",
        Connectivity::Local { .. } => "Local",
        Connectivity::Offline { .. } => "Offline",
    }
}

/// One slow thing of the network manager.
async fn carry_out(networks: Rc<dyn Networks>, work: Work) -> Done {
    match work {
        Work::List => Done::Listed(networks.profiles().await),
        Work::Apply(steps) => {
            let mut results = Vec::with_capacity(steps.len());
            for step in steps {
                let result = match &step {
                    Step::Put(profile) => networks.put(profile).await,
                    Step::Remove(key) => networks.remove(key).await,
                };
                let gone = matches!(result, Err(NetworkError::Absent(_)));
                results.push((step, result));
                if gone {
                    break;
                }
            }
            Done::Applied(results)
        }
        Work::Join(key) => {
            let result = networks.join(&key).await;
            Done::Joined(key, result)
        }
        Work::JoinKnown(interface) => Done::JoinedKnown(networks.join_known(interface.as_deref()).await),
        Work::Scan(interface) => Done::Scanned(networks.scan(interface.as_deref(), true).await),
        Work::Tune(tuning) => {
            let Tuning { power_save, country } = &tuning;
            let result = match networks.set_power_save(*power_save).await {
                Ok(_) => networks.set_country(country.as_deref()).await,
                Err(error) => Err(error),
            };
            Done::Tuned(tuning, result)
        }
    }
}

/// Whether the configured address answers, or else the fleet server; `None` when there is nobody to ask.
async fn ask(fetch: &dyn Fetch, url: Option<&str>, address: Option<&str>) -> Option<bool> {
    let url = match (url, address) {
        (Some(url), _) => url.to_owned(),
        (None, address) => format!("{}/healthz", address?.trim_end_matches('/')),
    };
    Some(vouches(&url, &fetch.get(&url, false, ASK_LIMIT, ANSWER_BYTES_MAX).await))
}

/// A login page answers anything in plain http, and nothing in https without a warning that no agent would pass over.
fn vouches(url: &str, answer: &Result<Reply, FetchError>) -> bool {
    let private = url.starts_with("https://");
    match answer {
        Ok(_) | Err(FetchError::TooLong { .. }) if private => true,
        Ok(Reply { status: 204, body }) => body.is_empty(),
        Ok(Reply { status: 200, body }) => GOOD_WORDS.iter().any(|word| body.starts_with(word)),
        Ok(_) | Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn login_pages_are_no_internet() {
        let reply = |status, body: &str| Ok(Reply { status, body: body.into() });
        let too_long = || Err(FetchError::TooLong { url: String::new(), limit: 1 });
        let gone = || Err(FetchError::Unreachable { url: String::new(), reason: String::new() });
        let table = [
            ("http://check.test/", reply(204, ""), true),
            ("http://check.test/", reply(200, "NetworkManager is online\n"), true),
            ("http://fleet.test/healthz", reply(200, "ok\n"), true),
            ("http://fleet.test/healthz", reply(200, "<html>Welcome! Please pay</html>"), false),
            ("http://fleet.test/healthz", reply(204, "<html>"), false),
            ("http://fleet.test/healthz", reply(302, ""), false),
            ("http://fleet.test/healthz", too_long(), false),
            ("http://fleet.test/healthz", gone(), false),
            ("https://fleet.test/healthz", reply(404, "no"), true),
            ("https://fleet.test/healthz", too_long(), true),
            ("https://fleet.test/healthz", gone(), false),
        ];
        for (url, answer, online) in table {
            assert_eq!(vouches(url, &answer), online, "{url} {answer:?}");
        }
    }
}
