//! Decides when the device invites a person, what a visitor may do, and what becomes of it.
//!
//! Owns the decision and the wishes for the two radios; each radio's tries are its [`Keeper`]'s. Never closes the doors
//! while somebody is using them, and never forgets how an attempt ended before a person has seen it.

use std::{rc::Rc, time::Duration};

use board::Mono;

use super::{
    asking::Asking,
    keeper::{Keeper, Move, Stand},
    moves::{CLEARING_TAKES_MAX, INTERNET_TAKES_MAX, JOINING_TAKES_MAX, RETRYING_MAX, RETRYING_MIN},
    rules::{Able, Rules},
    visit::{Door, Identity, Visit},
    welcome::{Attempt, IdentityDoor},
};
use crate::network::{Connectivity, Given, Joining};

/// What the machine hears.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The configuration in force.
    Rules(Rules),
    /// What the device has.
    Able(Able),
    /// How it is connected.
    Connectivity(Connectivity),
    /// How the last attempt stands.
    Joining(Joining),
    /// Whether the device knows who it is.
    Identity(bool),
    /// Somebody at the device wants the doors open: the file, or `provision --now`.
    Forced,
    /// Somebody did something at a door; what he may not do has been refused before.
    Visit(Door, Visit),
    /// The identity is on stable storage, or why not.
    Stored(Result<(), Rc<str>>),
    /// The hotspot is open with its page, or why not.
    HotspotOpened(Result<(), Rc<str>>),
    /// The hotspot has gone, or why not.
    HotspotClosed(Result<(), Rc<str>>),
    /// The hotspot has gone by itself, or is no longer as it should be.
    HotspotLost(Rc<str>),
    /// Bluetooth is offered, or why not.
    BluetoothOpened(Result<(), Rc<str>>),
    /// The offer was taken back.
    BluetoothClosed,
    /// The offer has ended by itself.
    BluetoothLost(Rc<str>),
    /// A phone that was let in is being asked for its connection.
    Asking,
    /// The phones that share their connection were looked for; whether one was near and was asked, whatever it said.
    Asked(bool),
    /// A phone that shared its connection before has connected by itself.
    PhoneCame,
    /// The deadline has passed.
    DeadlinePassed,
}

/// What the machine wants done.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Answered by [`Event::HotspotOpened`].
    OpenHotspot,
    /// Answered by [`Event::HotspotClosed`].
    CloseHotspot,
    /// Answered by [`Event::BluetoothOpened`].
    OfferBluetooth,
    /// Answered by [`Event::BluetoothClosed`].
    WithdrawBluetooth,
    /// Ask the phones that share their connection for it; answered by [`Event::Asked`].
    AskPhones,
    /// Join this, as this attempt.
    Join(u64, Given),
    /// Try everything that is known, as this round.
    TryKnown(u64),
    /// Listen to the air.
    Rescan,
    /// Somebody is being helped, or nobody any more.
    Busy(bool),
    /// Put it on stable storage; answered by [`Event::Stored`].
    Store(Identity),
    /// The fleet server may be called at once.
    Poke,
}

/// No step asks for more than this: one for what happened, one for each door, one for who is helped, one for the cloud, one for
/// the phones.
pub type Effects = heapless::Vec<Effect, 7>;

/// What the doors are doing.
#[derive(Clone, Debug, PartialEq)]
pub enum State {
    /// Nobody is invited.
    Resting,
    /// The doors are open.
    Inviting {
        /// Since when.
        since: Mono,
    },
    /// The hotspot has to go: the visitor is told first.
    Parting {
        /// What was given, if that is why; else the visitor is done.
        given: Option<Given>,
        /// The page has arrived by then.
        until: Mono,
    },
    /// The hotspot is going.
    Clearing {
        /// What is joined then.
        given: Given,
        /// It is joined then in any case.
        until: Mono,
    },
    /// The network that was given is being joined.
    Joining {
        /// Since when.
        since: Mono,
        /// The hotspot stays meanwhile.
        stays: bool,
        /// When the link had an address: the internet is waited for.
        linked: Option<Mono>,
    },
    /// It went well, and somebody may want to see that.
    Showing {
        /// The doors close then.
        until: Mono,
        /// The hotspot is there meanwhile.
        hotspot: bool,
    },
    /// The hotspot is closed and everything that is known is tried.
    Retrying {
        /// Since when.
        since: Mono,
        /// The radio is free and the round has begun.
        begun: bool,
        /// The round has ended.
        ended: bool,
        /// Visitors have had the radio for long enough: nobody gets it before the round has had its time.
        held: bool,
    },
}

impl State {
    /// For logs and traces.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            State::Resting => "Resting",
            State::Inviting { .. } => "Inviting",
            State::Parting { .. } => "Parting",
            State::Clearing { .. } => "Clearing",
            State::Joining { .. } => "Joining",
            State::Showing { .. } => "Showing",
            State::Retrying { .. } => "Retrying",
        }
    }
}

/// Why a visitor may not do something. The message is for that visitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The doors are closed.
    #[error("this device is not being set up at the moment")]
    Closed,
    /// It has an identity and keeps it.
    #[error("this device belongs to somebody already; only its network can be changed here")]
    IdentityStays,
    /// This door takes no identity.
    #[error("an identity cannot be given here")]
    NotHere,
    /// Another network is being tried.
    #[error("a network is being tried: wait for the result")]
    Busy,
    /// The fleet server of this identity cannot be used.
    #[error("the address of the fleet server in these credentials cannot be used: it has to be https://NAME")]
    Address,
}

/// The decisions about the doors.
#[derive(Clone, Debug)]
pub struct Machine {
    pub(super) rules: Rules,
    pub(super) able: Able,
    pub(super) state: State,
    pub(super) connectivity: Connectivity,
    pub(super) has_identity: bool,
    /// Somebody at the device has opened the doors, until then.
    pub(super) forced: Option<Mono>,
    /// Somebody did so while the doors were on their way to a network: they open again after that.
    pub(super) wished: bool,
    /// When a person did something last.
    pub(super) touched: Option<Mono>,
    /// Since when the radio has been for visitors, whatever they did with it.
    pub(super) held_since: Option<Mono>,
    /// When a visitor had the air listened to last.
    pub(super) listened: Option<Mono>,
    pub(super) attempt: Option<Attempt>,
    /// A person has seen how it ended.
    pub(super) seen: bool,
    pub(super) attempts: u64,
    pub(super) rounds: u64,
    pub(super) hotspot: Keeper,
    pub(super) bluetooth: Keeper,
    asking: Asking,
    busy: bool,
}

impl Machine {
    /// Knows nothing yet; the doors are closed, or were left open by an agent that was killed. `seed` differs per device.
    #[must_use]
    pub const fn new(seed: u64) -> Machine {
        Machine {
            rules: Rules {
                network: false,
                wifi: false,
                bluetooth: false,
                offline_before: Duration::ZERO,
                retry: Duration::ZERO,
                user_idle: Duration::ZERO,
                internet_counts: false,
                identity_may_change: false,
            },
            able: Able { hotspot: false, both: false, bluetooth: false },
            state: State::Resting,
            connectivity: Connectivity::Unknown,
            has_identity: true,
            forced: None,
            wished: false,
            touched: None,
            held_since: None,
            listened: None,
            attempt: None,
            seen: false,
            attempts: 0,
            rounds: 0,
            hotspot: Keeper::new(Stand::Unknown, seed),
            bluetooth: Keeper::new(Stand::Closed, seed ^ 0x5bd1),
            asking: Asking::new(seed ^ 0xa5c3),
            busy: false,
        }
    }

    /// Whether this may be done at this door now. Asked before [`Machine::step`] hears of it.
    pub fn permits(&self, door: Door, visit: &Visit) -> Result<(), Refused> {
        let trying = matches!(self.state, State::Parting { .. } | State::Clearing { .. } | State::Joining { .. });
        let known_first = matches!(self.state, State::Retrying { held: true, .. });
        match visit {
            _ if !self.is_open() && door != Door::Console => Err(Refused::Closed),
            Visit::Identity(_) if door == Door::Improv => Err(Refused::NotHere),
            Visit::Identity(_) if self.identity_door() == IdentityDoor::Shut => Err(Refused::IdentityStays),
            Visit::Network(_) | Visit::Identity(_) | Visit::Leave if trying => Err(Refused::Busy),
            Visit::Network(_) if known_first => Err(Refused::Busy),
            Visit::Came
            | Visit::Touched
            | Visit::Rescan
            | Visit::Network(_)
            | Visit::Identity(_)
            | Visit::SawResult
            | Visit::Leave => Ok(()),
        }
    }

    /// Whether a visitor may say who the device is.
    #[must_use]
    pub fn identity_door(&self) -> IdentityDoor {
        match self.has_identity {
            false => IdentityDoor::Wanted,
            true if self.rules.identity_may_change || self.forced.is_some() => IdentityDoor::Open,
            true => IdentityDoor::Shut,
        }
    }

    /// The only place where anything changes.
    pub fn step(&mut self, now: Mono, event: Event) -> Effects {
        let mut effects = Effects::new();
        match event {
            Event::Rules(rules) => self.rules = rules,
            Event::Able(able) => self.equip(able),
            Event::Connectivity(connectivity) => self.connectivity = connectivity,
            Event::Identity(has) => self.has_identity = has,
            Event::Joining(joining) => self.heard(now, joining),
            Event::Forced => self.force(now),
            Event::Visit(_, visit) => self.visited(now, visit, &mut effects),
            Event::Stored(outcome) => self.stored(now, outcome.is_ok(), &mut effects),
            Event::HotspotOpened(outcome) => self.hotspot.opened(now, outcome),
            Event::HotspotClosed(outcome) => self.hotspot.closed(now, outcome),
            Event::HotspotLost(why) => self.hotspot.lost(now, why),
            Event::BluetoothOpened(outcome) => self.bluetooth.opened(now, outcome),
            Event::BluetoothClosed => self.bluetooth.closed(now, Ok(())),
            Event::BluetoothLost(why) => self.bluetooth.lost(now, why),
            Event::Asking => self.asking.begun(),
            Event::Asked(near) => self.asking.asked(now, near),
            Event::PhoneCame => self.asking.came(now),
            Event::DeadlinePassed => {}
        }
        // A step may make the next one due: an invitation that ends where nothing is in the way of the radio.
        while self.moves(now, &mut effects) {}
        self.held_since = match self.state {
            State::Resting | State::Retrying { .. } => None,
            _ => self.held_since.or(Some(now)),
        };
        self.keep_doors(now, &mut effects);
        let busy = self.is_busy(now);
        if self.asking.turn(now, self.wants_phones(), busy) {
            tell(&mut effects, Effect::AskPhones);
        }
        if std::mem::replace(&mut self.busy, busy) != busy {
            // First: what is tried next is tried by somebody who knows whom it disturbs.
            let fits = effects.insert(0, Effect::Busy(busy)).is_ok();
            debug_assert!(fits, "no step asks for more than its list holds");
        }
        effects
    }

    /// The moment at which time alone would change something.
    #[must_use]
    pub fn deadline(&self) -> Option<Mono> {
        let idle = self.busy.then(|| self.idle_at()).flatten();
        let state = match &self.state {
            State::Resting => self.invite_at(),
            State::Inviting { since } => Some(self.invitation_ends(*since)),
            State::Parting { until, .. } | State::Clearing { until, .. } | State::Showing { until, .. } => Some(*until),
            State::Joining { linked: Some(linked), .. } => Some(*linked + INTERNET_TAKES_MAX),
            State::Joining { since, .. } => Some(*since + JOINING_TAKES_MAX),
            State::Retrying { since, begun: false, .. } => Some(*since + CLEARING_TAKES_MAX),
            State::Retrying { since, ended: true, .. } => Some(*since + RETRYING_MIN),
            State::Retrying { since, .. } => Some(*since + RETRYING_MAX),
        };
        let hotspot = self.hotspot.deadline(self.wants_hotspot(), self.able.hotspot);
        let bluetooth = self.bluetooth.deadline(self.wants_bluetooth(), self.able.bluetooth);
        let idle = idle.filter(|_| matches!(self.state, State::Inviting { .. }) && self.forced.is_none());
        let asking = self.asking.deadline(self.busy);
        [state, hotspot, bluetooth, idle, self.forced, asking].into_iter().flatten().min()
    }

    /// Whether a visitor may come in by any door.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.rules.any() && (self.state != State::Resting || self.wants_bluetooth())
    }

    /// Whether the hotspot is to be there.
    #[must_use]
    pub fn wants_hotspot(&self) -> bool {
        let state = match self.state {
            State::Inviting { .. } | State::Parting { .. } => true,
            State::Joining { stays, .. } => stays,
            State::Showing { hotspot, .. } => hotspot,
            State::Resting | State::Clearing { .. } | State::Retrying { .. } => false,
        };
        state && self.rules.hotspot()
    }

    /// Whether Bluetooth is to be offered: with the other doors, and for as long as the device has no identity.
    #[must_use]
    pub fn wants_bluetooth(&self) -> bool {
        self.rules.radio() && (self.state != State::Resting || !self.has_identity)
    }

    /// Whether phones are asked for their connection from time to time.
    fn wants_phones(&self) -> bool {
        let known = self.connectivity != Connectivity::Unknown;
        self.rules.radio() && self.able.bluetooth && known && !self.is_connected()
    }

    /// The hotspot stays while a network is tried.
    #[must_use]
    pub fn stays(&self) -> bool {
        self.able.both || !self.hotspot.is_open()
    }

    /// What the configuration says.
    #[must_use]
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// What the device has.
    #[must_use]
    pub fn able(&self) -> Able {
        self.able
    }

    /// What the doors are doing.
    #[must_use]
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The hotspot.
    #[must_use]
    pub fn hotspot(&self) -> &Keeper {
        &self.hotspot
    }

    /// Bluetooth.
    #[must_use]
    pub fn bluetooth(&self) -> &Keeper {
        &self.bluetooth
    }

    /// Whether the device knows who it is.
    #[must_use]
    pub fn has_identity(&self) -> bool {
        self.has_identity
    }

    /// Whether somebody at the device has asked for the doors.
    #[must_use]
    pub fn is_forced(&self) -> bool {
        self.forced.is_some()
    }

    /// Whether the internet is reached.
    #[must_use]
    pub fn is_online(&self) -> bool {
        matches!(self.connectivity, Connectivity::Online { .. })
    }

    /// What was tried last, and how it stands.
    #[must_use]
    pub fn attempt(&self) -> Option<&Attempt> {
        self.attempt.as_ref()
    }

    /// Connected as well as this device needs to be.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        match self.connectivity {
            Connectivity::Online { .. } => true,
            Connectivity::Local { .. } => !self.rules.internet_counts,
            Connectivity::Unknown | Connectivity::Offline { .. } => false,
        }
    }

    /// When the doors open, as things are.
    pub(super) fn invite_at(&self) -> Option<Mono> {
        let since = match self.connectivity {
            Connectivity::Offline { since } => since,
            Connectivity::Local { since } if self.rules.internet_counts => since,
            Connectivity::Local { .. } | Connectivity::Online { .. } | Connectivity::Unknown => return None,
        };
        let patience = if self.has_identity { self.rules.offline_before } else { Duration::ZERO };
        self.rules.any().then(|| since + patience)
    }

    /// When an invitation is over: not while somebody uses it, unless that has been for too long, and not before who asked
    /// for it has had his time.
    pub(super) fn invitation_ends(&self, since: Mono) -> Mono {
        let asked = self.forced.unwrap_or(Mono::BOOT);
        let used = self.idle_at().unwrap_or(Mono::BOOT);
        let ends = if self.is_connected() { Mono::BOOT } else { since + self.rules.retry };
        let held = self.held_since.unwrap_or(since) + self.rules.held_max();
        ends.max(asked).max(used).min(held)
    }

    /// When who did something last counts as gone.
    pub(super) fn idle_at(&self) -> Option<Mono> {
        self.touched.map(|at| at + self.rules.user_idle)
    }

    pub(super) fn is_used(&self, now: Mono) -> bool {
        self.idle_at().is_some_and(|at| at > now)
    }

    /// Nobody may reboot the device or take the radio away.
    pub(super) fn is_busy(&self, now: Mono) -> bool {
        match self.state {
            State::Parting { .. } | State::Clearing { .. } | State::Joining { .. } | State::Showing { .. } => true,
            State::Inviting { .. } => self.is_used(now) || self.forced.is_some(),
            State::Resting | State::Retrying { .. } => false,
        }
    }

    fn equip(&mut self, able: Able) {
        if able.hotspot && !self.able.hotspot {
            self.hotspot.came();
        }
        if able.bluetooth && !self.able.bluetooth {
            self.bluetooth.came();
        }
        self.able = able;
    }

    fn keep_doors(&mut self, now: Mono, effects: &mut Effects) {
        let wants = self.wants_hotspot();
        match self.hotspot.turn(now, wants, self.able.hotspot) {
            Some(Move::Open) => tell(effects, Effect::OpenHotspot),
            Some(Move::Close) => tell(effects, Effect::CloseHotspot),
            None => {}
        }
        let wants = self.wants_bluetooth();
        match self.bluetooth.turn(now, wants, self.able.bluetooth) {
            Some(Move::Open) => tell(effects, Effect::OfferBluetooth),
            Some(Move::Close) => tell(effects, Effect::WithdrawBluetooth),
            None => {}
        }
    }
}

pub(super) fn tell(effects: &mut Effects, effect: Effect) {
    let fits = effects.push(effect).is_ok();
    debug_assert!(fits, "no step asks for more than its list holds");
}
