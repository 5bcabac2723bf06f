//! Network: decides which profiles the device has, which network is tried next, and when a device that stays offline
//! is rebooted.
//!
//! Owns the decision. The network manager, questions to the internet and files live in `actor.rs`.
//!
//! Slow things are done one at a time, in this order: what a person has given, the profiles, the radio's settings, a
//! look at the air that somebody waits for, and the round of networks that is tried while the device is away from what
//! it counts as a connection. A round ends as soon as one network is good; the next one comes later each time while
//! nothing changes. Online, nothing is scanned and nobody is asked.

use std::{rc::Rc, time::Duration};

use api::device_config::{Network, NetworkSettings};
use board::{
    Mono,
    network::{JoinError, Link, Links, Manager, Medium, NetworkError, Profile, Radio, Seen, Subnet},
};

use super::{
    Air, Command, Connectivity, Given, Joining, Outcome, Report, SEEN_MAX,
    choose::{Attempts, Choice},
    online::{Facts, Online, counts},
    profiles::{self, Step},
    record::Record,
};
use crate::{cloud::Reach, kit::backoff::Backoff};

/// The network manager connects by itself after a start and a loss; it is given this long before anything is tried.
const GRACE: Duration = Duration::from_secs(15);
/// Between two rounds at first.
const ROUND_FIRST: Duration = Duration::from_secs(15);
/// Between two rounds while nothing changes. The network manager looks for what it knows meanwhile, too.
const ROUND_MAX: Duration = Duration::from_secs(10 * 60);
/// A network that was joined and has no internet is left after this.
const VERIFY: Duration = Duration::from_secs(30);
/// One slow thing of the network manager takes at most this; its own limits are below it.
const WORK_MAX: Duration = Duration::from_secs(3 * 60);
/// First wait after the network manager refused a profile: it will not like it better soon.
const SYNC_FIRST: Duration = Duration::from_secs(5 * 60);
/// Longest wait then.
const SYNC_MAX: Duration = Duration::from_secs(6 * 60 * 60);
/// Being offline is stored once it has lasted this long: a link that flaps must not wear out the disk.
const RECORD_AFTER: Duration = Duration::from_secs(60);
/// After the system has refused to reboot.
const REBOOT_REFUSED: Duration = Duration::from_secs(10 * 60);
/// Refused profiles that are named.
const REFUSED_MAX: usize = 8;

/// What does not change while the agent runs.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// Length of a minute.
    pub minute: Duration,
    /// Differs per device.
    pub seed: u64,
}

/// What the configuration says.
#[derive(Clone, Debug, PartialEq)]
pub struct Wants {
    /// Section `network_configuration`.
    pub network: Rc<NetworkSettings>,
    /// Section `additional_networks`.
    pub networks: Rc<[Network]>,
    /// `disable_network_configuration`: nothing of the network is touched, listed or scanned.
    pub disabled: bool,
    /// The cloud's configuration is among it. Before that, what is missing may only be unheard, and nothing is removed.
    pub heard: bool,
}

/// What happens to this machine.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The configuration.
    Wants(Wants),
    /// How things are.
    Links(Links),
    /// The fleet server.
    Reach(Reach),
    /// Somebody asks for something.
    Command(Command),
    /// The work under way has ended.
    Done(Done),
    /// Our own question was answered; `None` when there is nobody to ask.
    Answered(Option<bool>),
    /// The system does not reboot.
    NotRebooted(Rc<str>),
    /// Time has come.
    DeadlinePassed,
}

/// Slow things of the network manager; one at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// List our profiles.
    List,
    /// Change them.
    Apply(Vec<Step>),
    /// Connect by one of them.
    Join(String),
    /// Connect by one of somebody else's.
    JoinKnown,
    /// Listen to the air, on this interface if one is named.
    Scan(Option<String>),
    /// Set the radio.
    Tune(Tuning),
}

/// How the radio is set; `None` is the system's own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tuning {
    /// Power save.
    pub power_save: Option<bool>,
    /// Two letters.
    pub country: Option<Box<str>>,
}

/// How it ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Done {
    /// [`Work::List`]
    Listed(Result<Vec<Profile>, NetworkError>),
    /// [`Work::Apply`]: each step and how it went; those that were not begun are missing.
    Applied(Vec<(Step, Result<(), NetworkError>)>),
    /// [`Work::Join`]
    Joined(String, Result<Link, JoinError>),
    /// [`Work::JoinKnown`]
    JoinedKnown(Result<bool, JoinError>),
    /// [`Work::Scan`]
    Scanned(Result<Vec<Seen>, NetworkError>),
    /// [`Work::Tune`]
    Tuned(Tuning, Result<(), NetworkError>),
}

/// What this machine wants done.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Drop the work under way.
    Cancel,
    /// Do this; answered by [`Event::Done`].
    Work(Work),
    /// Ask whether there is internet, this address if one is configured; answered by [`Event::Answered`].
    Ask(Option<Box<str>>),
    /// Store this, then go on.
    Store(Record),
    /// Reboot the machine.
    Reboot,
    /// Tell people.
    Note(String),
}

/// No step asks for more than this: two notes, and one of each other kind.
pub type Effects = heapless::Vec<Effect, 8>;

/// What a person gave and what became of it.
#[derive(Clone, Debug)]
struct Giving {
    attempt: u64,
    given: Given,
    key: String,
    /// The profile of the same network that was there before.
    before: Option<Profile>,
    stage: GivingStage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GivingStage {
    Store,
    Join,
    TakeBack,
}

/// One go at every network.
#[derive(Clone, Debug)]
struct Round {
    /// Somebody asked for it, and waits for its end.
    number: Option<u64>,
    began: Mono,
    stage: RoundStage,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum RoundStage {
    Look,
    /// These are left, in this order.
    Try(Vec<String>),
    /// Joined by this one; is there internet?
    Verify {
        key: Option<String>,
        until: Mono,
        left: Vec<String>,
    },
    /// Everything was tried; others may connect meanwhile.
    Rest,
}

/// The decision maker.
#[derive(Clone, Debug)]
pub struct Machine {
    policy: Policy,
    wants: Option<Wants>,
    links: Links,
    reach: Reach,
    online: Online,
    /// The work under way and when it is given up.
    work: Option<(Work, Mono)>,
    /// Our profiles as the network manager has them; `None` before it was asked.
    present: Option<Vec<Profile>>,
    /// They have to be listed and compared, not before `sync_at`.
    stale: bool,
    sync_at: Mono,
    sync_wait: Backoff,
    steps: Vec<Step>,
    /// Changed while in use, or meant for one cable: connected anew.
    rejoin: Vec<String>,
    refused: Vec<String>,
    tuned: Option<Tuning>,
    tune_at: Mono,
    untuned: Option<String>,
    seen: Rc<[Seen]>,
    rescan: bool,
    attempts: Attempts,
    giving: Option<Giving>,
    /// What was given while something that does not work was taken back.
    next_giving: Option<(u64, Given)>,
    round: Option<Round>,
    round_at: Mono,
    round_wait: Backoff,
    in_range: Vec<String>,
    was_away: bool,
    hotspot: bool,
    busy: bool,
    joining: Joining,
    record: Record,
    stored: Record,
    reboot_hold: Mono,
    unrebooted: Option<Rc<str>>,
    stir: u64,
}

impl Machine {
    /// Goes on with what was stored. `boot` is a fingerprint of this boot.
    #[must_use]
    pub fn new(policy: Policy, stored: Option<Record>, boot: u64, now: Mono) -> Self {
        let record = Record::resume(stored, boot, now);
        let seed = policy.seed;
        Machine {
            policy,
            wants: None,
            links: Links::default(),
            reach: Reach::Unknown,
            online: Online::new(record.offline_since.unwrap_or(now), seed),
            work: None,
            present: None,
            stale: true,
            sync_at: Mono::BOOT,
            sync_wait: Backoff::new(SYNC_FIRST, SYNC_MAX, seed),
            steps: Vec::new(),
            rejoin: Vec::new(),
            refused: Vec::new(),
            tuned: None,
            tune_at: Mono::BOOT,
            untuned: None,
            seen: Rc::default(),
            rescan: false,
            attempts: Attempts::new(seed),
            giving: None,
            next_giving: None,
            round: None,
            round_at: Mono::BOOT,
            round_wait: Backoff::new(ROUND_FIRST, ROUND_MAX, seed),
            in_range: Vec::new(),
            was_away: false,
            hotspot: false,
            busy: false,
            joining: Joining::default(),
            record: Record { offline_since: None, ..record },
            stored: stored.unwrap_or_default(),
            reboot_hold: Mono::BOOT,
            unrebooted: None,
            stir: 0,
        }
    }

    /// The only place where the state changes.
    pub fn step(&mut self, now: Mono, event: Event) -> Effects {
        let mut effects = Effects::new();
        match event {
            Event::Wants(wants) => self.configure(wants, &mut effects),
            Event::Links(links) => self.links_changed(now, links),
            Event::Reach(reach) => self.reach = reach,
            Event::Command(command) => self.command(now, command, &mut effects),
            Event::Done(done) => {
                self.work = None;
                self.done(now, done, &mut effects);
            }
            Event::Answered(answer) => self.online.answered(now, answer),
            Event::NotRebooted(why) => {
                self.reboot_hold = now + REBOOT_REFUSED;
                self.unrebooted = Some(why);
            }
            Event::DeadlinePassed => {}
        }
        self.look(now, &mut effects);
        self.move_round(now, &mut effects);
        self.keep_record(now, &mut effects);
        if self.work.is_none()
            && let Some(work) = self.next_work(now)
        {
            self.work = Some((work.clone(), now + WORK_MAX));
            tell(&mut effects, Effect::Work(work));
        }
        effects
    }

    /// The moment at which time alone would change something.
    #[must_use]
    pub fn deadline(&self) -> Option<Mono> {
        let work = self.work.as_ref().map(|(_, until)| *until);
        let round = self.round.as_ref().and_then(|round| {
            let end = round.number.map(|_| self.round_end(round));
            match &round.stage {
                RoundStage::Look | RoundStage::Try(_) => end,
                RoundStage::Verify { until, .. } => Some(end.map_or(*until, |end| end.min(*until))),
                RoundStage::Rest => Some(self.rest_end(round)),
            }
        });
        let next_round = self.may_begin_round().then_some(self.round_at);
        let can_work = self.can_work() && self.work.is_none();
        let sync = (can_work && self.stale && self.giving.is_none()).then_some(self.sync_at);
        let tune = (can_work && self.is_untuned()).then_some(self.tune_at);
        let parts = [work, round, next_round, sync, tune, self.online.deadline(), self.reboot_at(), self.record_at()];
        parts.into_iter().flatten().min()
    }

    /// How the device is connected.
    #[must_use]
    pub fn connectivity(&self) -> Connectivity {
        self.online.word()
    }

    /// The last attempt that was asked for.
    #[must_use]
    pub fn joining(&self) -> &Joining {
        &self.joining
    }

    /// What a person can choose from.
    #[must_use]
    pub fn air(&self) -> Air {
        let subnets: Vec<Subnet> = self.links.links.iter().filter_map(|link| link.address).collect();
        let radio = if self.is_disabled() { None } else { self.radio().cloned() };
        Air { seen: Rc::clone(&self.seen), radio, trouble: self.obstacle(), subnets: subnets.into() }
    }

    /// Rises with each reason for others to see for themselves whether something can be reached now.
    #[must_use]
    pub fn stir(&self) -> u64 {
        self.stir
    }

    /// What people want to know.
    #[must_use]
    pub fn report(&self) -> Report {
        let unsaved = self.untuned.as_ref().map(|why| format!("the radio could not be set: {why}"));
        let unrebooted = self.unrebooted.as_ref().map(|why| (**why).to_owned());
        let refused = self.refused.iter().take(REFUSED_MAX).cloned();
        // A device that needs no network manager is well without one.
        let needed = self.wants.as_ref().is_some_and(|wants| !wants.networks.is_empty());
        let trouble = self.obstacle().filter(|_| needed || self.links.manager != Manager::Absent);
        let trouble = trouble.map(|why| (*why).to_owned());
        Report {
            connectivity: self.connectivity(),
            links: self.links.links.iter().filter(|link| counts(link)).cloned().collect(),
            trouble: trouble.into_iter().chain(refused).chain(unsaved).chain(unrebooted).collect(),
            reboots: self.record.reboots,
        }
    }

    /// Why nothing can be done about the network, in words.
    fn obstacle(&self) -> Option<Rc<str>> {
        if self.wants.is_none() || self.is_disabled() {
            return None;
        }
        match &self.links.manager {
            Manager::Ready => self.missing_radio(),
            Manager::Unusable(why) => Some(why.as_str().into()),
            Manager::Absent => Some("no network manager runs on this device: install and start it".into()),
        }
    }

    fn missing_radio(&self) -> Option<Rc<str>> {
        let name = self.wants.as_ref()?.network.hotspot_interface.as_ref()?;
        let there = self.links.radios.iter().any(|radio| radio.interface == **name);
        (!there).then(|| format!("there is no WiFi device named {name}, which is configured").into())
    }

    fn is_disabled(&self) -> bool {
        self.wants.as_ref().is_none_or(|wants| wants.disabled)
    }

    fn local_is_away(&self) -> bool {
        self.wants.as_ref().is_some_and(|wants| wants.network.turn_on_hotspot_if_wifi_has_no_internet)
    }

    fn away(&self) -> Option<Mono> {
        self.online.away(self.local_is_away())
    }

    /// The device that WiFi is kept to.
    fn radio(&self) -> Option<&Radio> {
        let name = self.wants.as_ref().and_then(|wants| wants.network.hotspot_interface.as_deref());
        self.links.radios.iter().find(|radio| name.is_none_or(|name| radio.interface == name))
    }

    /// Devices that can join something now.
    fn free_radios(&self) -> Vec<Radio> {
        let taken = self.radio().filter(|radio| self.hotspot && !radio.both).map(|radio| radio.interface.clone());
        let free = |radio: &&Radio| taken.as_ref() != Some(&radio.interface);
        self.links.radios.iter().filter(free).cloned().collect()
    }

    fn can_work(&self) -> bool {
        !self.is_disabled() && self.links.manager == Manager::Ready
    }

    fn configure(&mut self, wants: Wants, effects: &mut Effects) {
        let before = self.wants.replace(wants);
        let of_profiles = |wants: &Wants| (Rc::clone(&wants.networks), wants.disabled, wants.heard);
        if before.as_ref().map(of_profiles) != self.wants.as_ref().map(of_profiles) {
            self.stale = true;
            self.sync_at = Mono::BOOT;
            self.sync_wait.reset();
            self.round_wait.reset();
        }
        if !self.is_tuned_as_wanted() {
            self.tune_at = Mono::BOOT;
        }
        if self.is_disabled() {
            if self.work.take().is_some() {
                tell(effects, Effect::Cancel);
            }
            (self.rescan, self.seen, self.present, self.tuned) = (false, Rc::default(), None, None);
            (self.steps, self.rejoin) = (Vec::new(), Vec::new());
            self.fail_giving("network configuration is disabled");
        }
    }

    fn links_changed(&mut self, now: Mono, links: Links) {
        let routes = |links: &Links| -> Vec<(String, Option<Subnet>, bool)> {
            let used = links.links.iter().filter(|link| counts(link));
            used.map(|link| (link.interface.clone(), link.address, link.default_route)).collect()
        };
        let was_ready = self.links.manager == Manager::Ready;
        let moved = routes(&self.links) != routes(&links);
        let more_radios =
            links.radios.iter().any(|radio| radio.blocked.is_none() && !self.links.radios.contains(radio));
        self.links = links;
        if moved {
            self.stir += 1;
            self.online.stirred(now);
        }
        let is_ready = self.links.manager == Manager::Ready;
        if is_ready && !was_ready {
            // What it knew may be otherwise now: it was restarted, or somebody has edited its files.
            (self.stale, self.sync_at, self.tuned, self.tune_at) = (true, Mono::BOOT, None, Mono::BOOT);
        }
        if is_ready && (!was_ready || more_radios) {
            self.round_wait.reset();
            self.round_at = self.round_at.min(now + GRACE);
            self.rescan |= more_radios && !matches!(self.connectivity(), Connectivity::Online { .. });
        }
        if !is_ready {
            self.rescan = false;
        }
    }

    fn command(&mut self, now: Mono, command: Command, effects: &mut Effects) {
        match command {
            Command::Join { attempt, given } => self.give(attempt, given, effects),
            Command::TryKnown { round } => {
                self.drop_round_work(effects);
                self.round = Some(Round { number: Some(round), began: now, stage: RoundStage::Look });
            }
            Command::Rescan => self.rescan = self.can_work() && !self.links.radios.is_empty(),
            Command::Hotspot(up) => {
                self.hotspot = up;
                if up {
                    self.end_round(now, effects);
                }
            }
            Command::Busy(busy) => {
                self.busy = busy;
                if busy {
                    self.end_round(now, effects);
                }
            }
        }
    }

    fn give(&mut self, attempt: u64, given: Given, effects: &mut Effects) {
        self.joining = Joining { attempt, outcome: Outcome::Trying, ..self.joining.clone() };
        if !self.can_work() {
            let why = self.obstacle().unwrap_or_else(|| "this device is not to manage networks".into());
            self.joining.outcome = Outcome::Failed(why);
            return;
        }
        if self.giving.as_ref().is_some_and(|giving| giving.stage == GivingStage::TakeBack) {
            self.next_giving = Some((attempt, given));
            return;
        }
        // Whatever goes on is dropped: somebody waits. What it has done to the profiles is found by comparing.
        if self.work.take().is_some() {
            tell(effects, Effect::Cancel);
            self.stale = true;
        }
        let profile = profiles::of_given(&given, None);
        let key = profile.key;
        self.giving = Some(Giving { attempt, given, key, before: None, stage: GivingStage::Store });
        self.present = None;
    }

    fn fail_giving(&mut self, why: &str) {
        let (waiting, giving) = (self.next_giving.take(), self.giving.take());
        if waiting.is_some() || giving.is_some_and(|giving| giving.stage != GivingStage::TakeBack) {
            self.joining.outcome = Outcome::Failed(why.into());
        }
    }

    fn done(&mut self, now: Mono, done: Done, effects: &mut Effects) {
        match done {
            Done::Listed(Ok(present)) => self.listed(now, present),
            Done::Listed(Err(error)) => self.sync_failed(now, error.to_string()),
            Done::Applied(results) => self.applied(now, results, effects),
            Done::Joined(key, result) => self.joined(now, &key, result, effects),
            Done::JoinedKnown(result) => self.joined_known(now, &result),
            Done::Scanned(Ok(mut seen)) => {
                seen.truncate(SEEN_MAX);
                self.rescan = false;
                self.scanned(now, seen);
            }
            // What was heard last is still the best that is known.
            Done::Scanned(Err(_)) => {
                self.rescan = false;
                self.scanned(now, self.seen.to_vec());
            }
            Done::Tuned(tuning, result) => {
                self.untuned = result.as_ref().err().map(ToString::to_string);
                match result {
                    Ok(()) => self.tuned = Some(tuning),
                    Err(_) => self.tune_at = now + SYNC_FIRST,
                }
            }
        }
    }

    fn listed(&mut self, now: Mono, present: Vec<Profile>) {
        let Some(wants) = &self.wants else { return };
        self.steps = profiles::compare(&profiles::wanted(&wants.networks), &present, wants.heard);
        let interface = wants.network.hotspot_interface.clone();
        if let Some(giving) = self.giving.as_mut().filter(|giving| giving.stage == GivingStage::Store) {
            let profile = profiles::of_given(&giving.given, interface.as_deref());
            giving.before = present.iter().find(|present| present.key == profile.key).cloned();
            // The configuration's own can wait; a person does.
            self.steps = profiles::give(profile, &present);
            self.stale = true;
        } else if self.steps.is_empty() {
            self.synced(now, Vec::new());
        }
        self.attempts.keep(&present);
        self.present = Some(present);
    }

    fn applied(&mut self, now: Mono, results: Vec<(Step, Result<(), NetworkError>)>, effects: &mut Effects) {
        let mut refused = Vec::new();
        let key = self.giving.as_ref().map(|giving| giving.key.clone());
        let mut given = false;
        for (step, result) in results {
            let about = step.key().to_owned();
            match result {
                Ok(()) => {
                    given |= key.as_ref() == Some(&about);
                    self.attempts.forget(&about);
                    if self.giving.is_none() && self.takes_effect_at_once(&step) {
                        self.rejoin.push(about);
                    }
                    self.present.as_mut().into_iter().for_each(|present| step.clone().done_to(present));
                }
                Err(error) => refused.push(format!("network {about:?}: {error}")),
            }
        }
        match self.giving.as_mut().map(|giving| (giving.stage, giving)) {
            Some((GivingStage::Store, giving)) if given => giving.stage = GivingStage::Join,
            Some((GivingStage::Store, _)) => {
                let why = refused.pop().unwrap_or_else(|| "the network could not be stored".to_owned());
                self.fail_giving(&why);
            }
            Some((GivingStage::TakeBack, _)) => {
                self.giving = None;
                if let Some((attempt, given)) = self.next_giving.take() {
                    self.give(attempt, given, effects);
                }
            }
            Some((GivingStage::Join, _)) | None => {
                self.synced(now, refused);
            }
        }
    }

    /// What was changed under a link is not what the link is, and a cable's own settings are meant for it as it lies
    /// there. A WiFi network that is better than the present one is no reason to leave that.
    fn takes_effect_at_once(&self, step: &Step) -> bool {
        let Step::Put(profile) = step else { return false };
        let in_use = self.links.links.iter().any(|link| link.key.as_ref() == Some(&profile.key));
        in_use || (profile.medium == Medium::Wired && profile.interface.is_some())
    }

    fn synced(&mut self, now: Mono, refused: Vec<String>) {
        self.stale = !refused.is_empty();
        if self.stale {
            self.sync_at = now + self.sync_wait.next_delay();
        } else {
            self.sync_wait.reset();
        }
        self.refused = refused;
    }

    fn sync_failed(&mut self, now: Mono, why: String) {
        self.fail_giving(&why);
        self.synced(now, vec![why]);
    }

    fn joined(&mut self, now: Mono, key: &str, result: Result<Link, JoinError>, effects: &mut Effects) {
        let (shown, seen) = self
            .present_of(key)
            .map_or_else(|| (key.to_owned(), false), |profile| (profiles::shown(profile), self.is_seen(profile)));
        match &result {
            Ok(link) => {
                self.attempts.forget(key);
                self.online.stirred(now);
                tell(effects, Effect::Note(format!("joined {shown} at {}", link.interface)));
            }
            Err(error) => {
                let refused = matches!(error, JoinError::WrongPassword(_) | JoinError::Unsuitable { .. });
                let why = error.to_string();
                if self.attempts.failed(now, key, seen, refused, &why) {
                    tell(effects, Effect::Note(format!("not joined: {why}")));
                }
            }
        }
        if let Some(giving) = self.giving.as_mut().filter(|giving| giving.key == key) {
            self.joining.attempt = giving.attempt;
            match result {
                Ok(link) => {
                    self.joining.outcome = Outcome::Joined(link);
                    self.giving = None;
                }
                Err(error) => {
                    self.joining.outcome = Outcome::Failed(error.to_string().into());
                    let useless = matches!(error, JoinError::WrongPassword(_) | JoinError::Unsuitable { .. });
                    if useless || giving.before.is_some() {
                        // What worked before, or nothing: a network that refuses us must not stand before the others,
                        // and a password that was not proven right not in the place of one that was.
                        self.steps = vec![profiles::take_back(key, giving.before.as_ref())];
                        giving.stage = GivingStage::TakeBack;
                    } else {
                        self.giving = None;
                    }
                }
            }
            return;
        }
        let Some(Round { stage: RoundStage::Try(left), .. }) = &mut self.round else { return };
        if result.is_ok() {
            let (left, until) = (std::mem::take(left), now + VERIFY);
            self.set_stage(RoundStage::Verify { key: Some(key.to_owned()), until, left });
        }
    }

    fn joined_known(&mut self, now: Mono, result: &Result<bool, JoinError>) {
        let stage = match result {
            Ok(true) => RoundStage::Verify { key: None, until: now + VERIFY, left: Vec::new() },
            Ok(false) | Err(_) => RoundStage::Rest,
        };
        self.set_stage(stage);
    }

    fn set_stage(&mut self, stage: RoundStage) {
        if let Some(round) = &mut self.round {
            round.stage = stage;
        }
    }

    fn scanned(&mut self, now: Mono, seen: Vec<Seen>) {
        self.seen = seen.into();
        if self.round.as_ref().is_some_and(|round| round.stage == RoundStage::Look) {
            self.line_up(now);
        }
    }

    /// Who is tried in this round, in which order.
    fn line_up(&mut self, now: Mono) {
        let profiles = self.present.as_deref().unwrap_or_default();
        let in_range: Vec<String> =
            profiles.iter().filter(|profile| self.is_seen(profile)).map(|profile| profile.key.clone()).collect();
        let all = self.round.as_ref().is_some_and(|round| round.number.is_some());
        let choice = Choice { profiles, seen: &self.seen, links: &self.links.links, radios: &self.free_radios() };
        let candidates = self.attempts.candidates(now, choice, all);
        if in_range != self.in_range {
            self.in_range = in_range;
            self.round_wait.reset();
        }
        self.set_stage(RoundStage::Try(candidates));
    }

    fn present_of(&self, key: &str) -> Option<&Profile> {
        self.present.as_ref()?.iter().find(|profile| profile.key == key)
    }

    fn is_seen(&self, profile: &Profile) -> bool {
        match &profile.medium {
            Medium::Wifi { ssid, .. } => self.seen.iter().any(|seen| seen.ssid == *ssid),
            Medium::Wired => true,
        }
    }

    /// Looks at what is so now, and begins and ends what follows from it.
    fn look(&mut self, now: Mono, effects: &mut Effects) {
        if self.work.as_ref().is_some_and(|(_, until)| *until <= now) {
            tell(effects, Effect::Cancel);
            self.given_up(now, effects);
        }
        let before = self.connectivity();
        let disabled = self.wants.as_ref().is_some_and(|wants| wants.disabled);
        self.online.look(now, Facts { links: &self.links, reach: self.reach, disabled });
        let after = self.connectivity();
        let online = |word| matches!(word, Connectivity::Online { .. });
        if online(after) && !online(before) && self.reach != Reach::Reached {
            // Nobody but the fleet server can say whether it is reached, too.
            self.stir += 1;
        }
        let is_away = self.away().is_some();
        if is_away && !self.was_away {
            self.round_wait.reset();
            self.round_at = now + GRACE;
        }
        self.was_away = is_away;
        if !self.can_work() && self.work.is_none() {
            self.fail_giving("the network manager went away");
        }
        if self.online.ask(now) {
            let url = self.wants.as_ref().and_then(|wants| wants.network.connectivity_check_url.clone());
            tell(effects, Effect::Ask(url));
        }
        if self.may_begin_round() && self.round_at <= now {
            self.round = Some(Round { number: None, began: now, stage: RoundStage::Look });
        }
    }

    /// The work under way did not end in time.
    fn given_up(&mut self, now: Mono, effects: &mut Effects) {
        let Some((work, _)) = self.work.take() else { return };
        let late = || NetworkError::Absent("it did not answer in time".to_owned());
        match work {
            Work::List => self.done(now, Done::Listed(Err(late())), effects),
            Work::Apply(_) => self.sync_failed(now, late().to_string()),
            Work::Join(key) => {
                let name = self.present_of(&key).map_or_else(|| key.clone(), profiles::shown);
                self.done(now, Done::Joined(key, Err(JoinError::TimedOut(name))), effects);
            }
            Work::JoinKnown => self.done(now, Done::JoinedKnown(Ok(false)), effects),
            Work::Scan(_) => self.done(now, Done::Scanned(Err(late())), effects),
            Work::Tune(tuning) => self.done(now, Done::Tuned(tuning, Err(late())), effects),
        }
    }

    fn may_begin_round(&self) -> bool {
        let profiles = self.present.as_ref().is_some_and(|present| !present.is_empty());
        let free = !self.hotspot || self.free_radios().len() == self.links.radios.len() || self.has_wired();
        self.round.is_none()
            && self.can_work()
            && self.away().is_some()
            && profiles
            && free
            && !self.busy
            && self.giving.is_none()
    }

    fn has_wired(&self) -> bool {
        self.present.as_ref().is_some_and(|present| present.iter().any(|profile| profile.medium == Medium::Wired))
    }

    /// No round that somebody waits for is over before this, unless it was good: others connect meanwhile.
    fn rest_end(&self, round: &Round) -> Mono {
        round.began + if round.number.is_some() { self.policy.minute } else { Duration::ZERO }
    }

    /// A round that somebody waits for is over then in any case.
    fn round_end(&self, round: &Round) -> Mono {
        round.began + 5 * self.policy.minute
    }

    /// Takes the round on as far as it goes without waiting.
    fn move_round(&mut self, now: Mono, effects: &mut Effects) {
        let Some(round) = &self.round else { return };
        let known = !matches!(self.connectivity(), Connectivity::Unknown);
        let good = known && self.away().is_none();
        let late = round.number.is_some() && self.round_end(round) <= now;
        if good || late || !self.can_work() {
            return self.end_round(now, effects);
        }
        match &round.stage {
            RoundStage::Verify { key, until, left } if *until <= now => {
                let (key, left) = (key.clone(), left.clone());
                if let Some(key) = key {
                    self.attempts.failed(now, &key, true, false, "no internet there");
                    tell(effects, Effect::Note("no internet there".to_owned()));
                }
                self.set_stage(RoundStage::Try(left));
            }
            RoundStage::Rest if self.rest_end(round) <= now => self.end_round(now, effects),
            RoundStage::Look | RoundStage::Try(_) | RoundStage::Verify { .. } | RoundStage::Rest => {}
        }
        if self.work.is_some() {
            return;
        }
        if self.round.as_ref().is_some_and(|round| round.stage == RoundStage::Look) && !self.can_hear() {
            self.line_up(now);
        }
        let Some(round) = &self.round else { return };
        if round.stage == RoundStage::Try(Vec::new()) && round.number.is_none() {
            self.end_round(now, effects);
        }
    }

    /// Listening to the air would tell something about a network of ours.
    fn can_hear(&self) -> bool {
        let wireless = |profile: &Profile| matches!(profile.medium, Medium::Wifi { .. });
        let ours = self.present.as_ref().is_none_or(|present| present.iter().any(wireless));
        ours && self.free_radios().iter().any(|radio| radio.blocked.is_none())
    }

    fn end_round(&mut self, now: Mono, effects: &mut Effects) {
        self.drop_round_work(effects);
        let Some(round) = self.round.take() else { return };
        if let Some(number) = round.number {
            self.joining.round_ended = number;
        }
        self.round_at = now + self.round_wait.next_delay();
    }

    fn drop_round_work(&mut self, effects: &mut Effects) {
        let of_round = |work: &Work| matches!(work, Work::Join(_) | Work::JoinKnown | Work::Scan(_));
        if self.round.is_some() && self.giving.is_none() && self.work.as_ref().is_some_and(|(work, _)| of_round(work)) {
            self.work = None;
            tell(effects, Effect::Cancel);
        }
    }

    /// What is done next, if anything is to be done.
    fn next_work(&mut self, now: Mono) -> Option<Work> {
        if !self.can_work() {
            return None;
        }
        if let Some(giving) = &self.giving {
            return Some(match giving.stage {
                GivingStage::Store if self.present.is_none() => Work::List,
                GivingStage::Store | GivingStage::TakeBack => Work::Apply(std::mem::take(&mut self.steps)),
                GivingStage::Join => Work::Join(giving.key.clone()),
            });
        }
        if !self.steps.is_empty() {
            return Some(Work::Apply(std::mem::take(&mut self.steps)));
        }
        if self.stale && self.sync_at <= now {
            return Some(Work::List);
        }
        if self.is_untuned() && self.tune_at <= now {
            return Some(Work::Tune(self.tuning()));
        }
        while let Some(key) = self.rejoin.pop() {
            if self.present_of(&key).is_some() {
                return Some(Work::Join(key));
            }
        }
        if self.rescan {
            return Some(Work::Scan(self.radio().map(|radio| radio.interface.clone())));
        }
        let scan = Work::Scan(self.radio().map(|radio| radio.interface.clone()));
        let there = |key: &String| self.present.iter().flatten().any(|profile| profile.key == *key);
        match &mut self.round.as_mut()?.stage {
            RoundStage::Look => Some(scan),
            // The configuration may have changed since they were lined up.
            RoundStage::Try(left) => match left.iter().position(there) {
                Some(next) => left.drain(..=next).next_back().map(Work::Join),
                None => {
                    left.clear();
                    Some(Work::JoinKnown)
                }
            },
            RoundStage::Verify { .. } | RoundStage::Rest => None,
        }
    }

    fn tuning(&self) -> Tuning {
        let network = self.wants.as_ref().map(|wants| &wants.network);
        Tuning {
            power_save: network.and_then(|network| network.wifi_power_save),
            country: network.and_then(|network| network.wifi_country.clone()),
        }
    }

    fn is_tuned_as_wanted(&self) -> bool {
        self.tuned.as_ref() == Some(&self.tuning())
    }

    fn is_untuned(&self) -> bool {
        self.can_work() && !self.is_tuned_as_wanted()
    }

    /// When the device reboots because it has been away for too long.
    fn reboot_at(&self) -> Option<Mono> {
        if self.is_disabled() || self.busy || self.giving.is_some() {
            return None;
        }
        let after = self.wants.as_ref()?.network.device_reboot_after_offline?.times(self.policy.minute);
        let since = self.away()?.max(self.record.asked_at.unwrap_or(Mono::BOOT));
        Some((since + after).max(self.reboot_hold))
    }

    /// When what is stored no longer is what is so.
    fn record_at(&self) -> Option<Mono> {
        let rebooting = self.wants.as_ref()?.network.device_reboot_after_offline.is_some() && !self.is_disabled();
        let known = self.connectivity() != Connectivity::Unknown;
        if !rebooting || !known || self.stored == (Record { offline_since: self.away(), ..self.record }) {
            return None;
        }
        Some(self.away().map_or(Mono::BOOT, |since| since + RECORD_AFTER))
    }

    fn keep_record(&mut self, now: Mono, effects: &mut Effects) {
        if self.reboot_at().is_some_and(|at| at <= now) {
            self.record = Record { asked_at: Some(now), reboots: self.record.reboots + 1, ..self.record };
            self.unrebooted = None;
            self.remember(effects);
            tell(effects, Effect::Note("offline for too long: rebooting".to_owned()));
            tell(effects, Effect::Reboot);
        } else if self.record_at().is_some_and(|at| at <= now) {
            self.remember(effects);
        }
    }

    fn remember(&mut self, effects: &mut Effects) {
        self.record.offline_since = self.away();
        self.stored = self.record;
        tell(effects, Effect::Store(self.record));
    }
}

/// More effects than there is room for are a bug that costs the last of them, and not the agent.
fn tell(effects: &mut Effects, effect: Effect) {
    debug_assert!(!effects.is_full(), "one effect too many: {effect:?}");
    let _ = effects.push(effect);
}
