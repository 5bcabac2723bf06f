//! Network: decides which profiles the device has, which network is tried next, and when a device that stays offline
//! is rebooted.
//!
//! Owns the decision. The network manager, questions to the internet and files live in `actor.rs`.
//!
//! Slow things are done one at a time, in this order: what a person has given, the profiles, the radio's settings, a
//! look at the air that somebody waits for, and the round of networks that is tried while the device is away from what
//! it counts as a connection. A round ends as soon as one network is good; the next one comes later each time while
//! nothing changes. Online, nothing is scanned and nobody is asked.

mod giving;
mod keeping;
mod lost;
mod proof;
mod reboot;
mod round;
mod watch;
mod words;
mod work;

use std::{rc::Rc, time::Duration};

use api::device_config::{Network, NetworkSettings};
use board::{
    Mono,
    network::{Links, Manager, Medium, Profile, Radio, Seen, Subnet},
};

pub(super) use self::giving::TOGETHER_MAX;
pub use self::work::{Done, Tuning, Work};
use self::{
    giving::Giving,
    keeping::{LIST_FIRST, LIST_MAX, SYNC_FIRST, SYNC_MAX},
    lost::Lost,
    proof::Proofs,
    reboot::REBOOT_REFUSED,
    round::{GRACE, ROUND_FIRST, ROUND_MAX, Round, RoundStage},
    watch::Watch,
    work::WORK_MAX,
};
use super::{
    Command, Connectivity, Given, Joining,
    choose::Attempts,
    online::{Facts, Online, counts},
    profiles::Step,
    record::Record,
};
use crate::{cloud::Reach, kit::backoff::Backoff};

/// A network manager that starts or is restarted is there again before this.
const ABSENT_PATIENCE: Duration = Duration::from_secs(30);

/// A network manager that went in the middle of something is not asked again at once: that it went may not be heard yet.
const PAUSE: Duration = Duration::from_secs(1);

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

/// No step asks for more than this: three notes, two questions (the later one counts), and one of each other kind.
pub type Effects = heapless::Vec<Effect, 10>;

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
    proofs: Proofs,
    watch: Watch,
    /// Since when there is no network manager that could be used; said once it has lasted.
    unmanaged: Option<Mono>,
    is_missing: bool,
    /// Nothing is asked of it until then.
    pause: Option<Mono>,
    lost: Lost,
    /// The radio that is the hotspot's, while it is.
    hotspot_radio: Option<String>,
    /// What is still to be taken back of what was given and does not work.
    undo: Vec<Step>,
    list_wait: Backoff,
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
    /// Something of it that is not stored yet does not wait.
    unstored: bool,
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
            proofs: Proofs::default(),
            watch: Watch::new(seed),
            unmanaged: Some(now),
            is_missing: false,
            pause: None,
            lost: Lost::default(),
            hotspot_radio: None,
            undo: Vec::new(),
            list_wait: Backoff::new(LIST_FIRST, LIST_MAX, seed),
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
            unstored: false,
            reboot_hold: Mono::BOOT,
            unrebooted: None,
            stir: 0,
        }
    }

    /// The only place where the state changes.
    pub fn step(&mut self, now: Mono, event: Event) -> Effects {
        let mut effects = Effects::new();
        match event {
            Event::Wants(wants) => self.configure(now, wants, &mut effects),
            Event::Links(links) => self.links_changed(now, links),
            Event::Reach(reach) => {
                let before = std::mem::replace(&mut self.reach, reach);
                if reach == Reach::Reached && before != Reach::Reached {
                    self.change_reaches();
                }
            }
            Event::Command(command) => self.command(now, command, &mut effects),
            Event::Done(done) => {
                self.work = None;
                self.done(now, done, &mut effects);
            }
            Event::Answered(answer) => {
                self.online.answered(now, answer);
                self.change_answered(now, answer);
            }
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
                RoundStage::Look => end,
                RoundStage::Try(_) => end.into_iter().chain(self.others_at()).min(),
                RoundStage::Verify { until, .. } => Some(end.map_or(*until, |end| end.min(*until))),
                RoundStage::Rest => Some(self.rest_end(round)),
            }
        });
        let next_round = self.may_begin_round().then_some(self.round_at);
        let can_work = self.can_work() && self.work.is_none();
        let sync = (can_work && self.stale && self.giving.is_none()).then_some(self.sync_at);
        let tune = (can_work && self.is_untuned()).then_some(self.tune_at);
        let giving = self.giving.as_ref().map(Giving::deadline);
        let slow = [work, giving, round, next_round, sync, tune, self.proof_at(), self.watch_at()];
        let missing = self.unmanaged.filter(|_| !self.is_missing).map(|since| since + ABSENT_PATIENCE);
        let quiet = [missing, self.pause, self.online.deadline(), self.reboot_at(), self.record_at()];
        slow.into_iter().chain(quiet).flatten().min()
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
        let of = |name: &str| self.links.radios.iter().find(|radio| radio.interface == name);
        if let Some(taken) = self.hotspot_radio.as_deref().and_then(of) {
            return Some(taken);
        }
        let fits = self.links.radios.iter().filter(|radio| name.is_none_or(|name| radio.interface == name));
        fits.min_by_key(|radio| (radio.blocked.is_some(), !radio.access_point))
    }

    /// Devices that can join something now.
    fn free_radios(&self) -> Vec<Radio> {
        let taken = self.radio().filter(|radio| self.hotspot && !radio.both).map(|radio| radio.interface.clone());
        let free = |radio: &&Radio| taken.as_ref() != Some(&radio.interface);
        self.links.radios.iter().filter(free).cloned().collect()
    }

    fn can_work(&self) -> bool {
        !self.is_disabled() && self.links.manager == Manager::Ready && self.pause.is_none()
    }

    fn configure(&mut self, now: Mono, wants: Wants, effects: &mut Effects) {
        if self.is_disabled() {
            self.unmanaged = self.unmanaged.map(|_| now);
        }
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
            (self.steps, self.rejoin, self.proofs) = (Vec::new(), Vec::new(), Proofs::default());
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
        let before = std::mem::replace(&mut self.links, links);
        self.others_came(now, &before);
        self.look_for_losses(now, &before);
        if moved {
            self.stir += 1;
            self.online.stirred(now);
        }
        self.remember_what_works();
        self.watch_links();
        let is_ready = self.links.manager == Manager::Ready;
        let absent = self.links.manager == Manager::Absent;
        self.unmanaged = if absent { self.unmanaged.or(Some(now)) } else { None };
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
            Command::Join { attempt, given } => self.give(now, attempt, given, effects),
            Command::TryKnown { round } => {
                self.drop_round_work(effects);
                self.round = Some(Round::new(Some(round), now));
            }
            Command::Rescan => self.rescan = self.can_work() && !self.links.radios.is_empty(),
            Command::Hotspot(up) => {
                self.hotspot_radio = self.radio().filter(|_| up).map(|radio| radio.interface.clone());
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

    /// Where to ask whether there is internet, if it is configured.
    fn question(&self) -> Option<Box<str>> {
        self.wants.as_ref()?.network.connectivity_check_url.clone()
    }

    fn present_of(&self, key: &str) -> Option<&Profile> {
        self.present.as_ref()?.iter().find(|profile| profile.key == key)
    }

    fn is_seen(&self, profile: &Profile) -> bool {
        match &profile.medium {
            Medium::Wifi { ssid, .. } => self.seen.iter().any(|seen| seen.ssid == *ssid && self.is_near(seen)),
            Medium::Wired => true,
        }
    }

    /// Looks at what is so now, and begins and ends what follows from it.
    fn look(&mut self, now: Mono, effects: &mut Effects) {
        if self.work.as_ref().is_some_and(|(_, until)| *until <= now) {
            tell(effects, Effect::Cancel);
            self.given_up(now, effects);
        }
        self.pause = self.pause.filter(|until| now < *until);
        self.lost.forget(now);
        self.limit_giving(now, effects);
        let before = self.connectivity();
        let disabled = self.wants.as_ref().is_some_and(|wants| wants.disabled);
        let doubted = self.doubted();
        self.online.look(now, Facts { links: &self.links, reach: self.reach, disabled, doubted: &doubted });
        self.remember_what_works();
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
        if self.online.ask(now) {
            tell(effects, Effect::Ask(self.question()));
        }
        self.look_at_changes(now, effects);
        self.watch_online(now);
        self.is_missing = self.unmanaged.is_some_and(|since| since + ABSENT_PATIENCE <= now);
        if !self.may_give() && self.work.is_none() {
            self.fail_giving("the network manager went away");
        }
        if self.may_begin_round() && self.round_at <= now {
            self.round = Some(Round::new(None, now));
        }
    }
}

/// More effects than there is room for are a bug that costs the last of them, and not the agent.
fn tell(effects: &mut Effects, effect: Effect) {
    debug_assert!(!effects.is_full(), "one effect too many: {effect:?}");
    let _ = effects.push(effect);
}
