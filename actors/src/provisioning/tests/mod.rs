//! The doors as a specification: who is invited when, who may do what, what becomes of it.

use std::{fmt::Write as _, time::Duration};

use api::Secret;
use board::{
    Mono,
    network::{Link, Ssid},
};

use super::{
    keeper::{Keeper, Move, Stand},
    machine::{Effect, Event, Machine, Refused, State},
    rules::{Able, Rules},
    visit::{Door, Identity, Proof, Visit},
    welcome::{self, IdentityDoor},
};
use crate::network::{Connectivity, Given, Joining, Outcome};

mod asking;
mod identity;
mod visitors;

const MINUTE: Duration = Duration::from_secs(60);

fn at(seconds: u64) -> Mono {
    // The agent has been there for an hour before anything happens: nothing may count from zero time.
    Mono::BOOT + Duration::from_secs(3600 + seconds)
}

fn rules() -> Rules {
    Rules {
        network: true,
        wifi: true,
        bluetooth: true,
        offline_before: 2 * MINUTE,
        retry: 10 * MINUTE,
        user_idle: 5 * MINUTE,
        internet_counts: false,
        identity_may_change: false,
    }
}

fn given(ssid: &str) -> Given {
    Given { ssid: Ssid::new(ssid.as_bytes()).expect("a name"), psk: Some(Secret::from("planted-psk")), hidden: false }
}

fn identity() -> Identity {
    Identity {
        app_address: "https://fleet.example.com".into(),
        part_id: "p".into(),
        proof: Proof::Secret("planted-secret".into()),
    }
}

fn link() -> Link {
    Link {
        interface: "wlan0".into(),
        ssid: None,
        key: None,
        address: Some(("192.168.1.20".parse().expect("an address"), 24)),
        default_route: true,
    }
}

/// A device with everything, whose doors obey at once.
struct Device {
    machine: Machine,
    /// When phones were asked for their connection, and whether one is near.
    asked: Vec<u64>,
    near: bool,
}

const BOTH: Able = Able { hotspot: true, both: true, bluetooth: true };
const ONE: Able = Able { hotspot: true, both: false, bluetooth: true };

impl Device {
    fn new(able: Able, has_identity: bool) -> Device {
        let mut device = Device { machine: Machine::new(7), asked: Vec::new(), near: false };
        for event in [Event::Identity(has_identity), Event::Rules(rules()), Event::Able(able)] {
            device.hears(0, event);
        }
        device
    }

    /// The state afterwards and what was wanted, doors left out: they do it.
    fn hears(&mut self, second: u64, event: Event) -> String {
        let mut said = String::new();
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            let before = self.machine.deadline();
            let by_time = event == Event::DeadlinePassed;
            let effects = self.machine.step(at(second), event);
            if by_time {
                crate::kit::step::assert_moved("provisioning", before, self.machine.deadline(), at(second));
            }
            for effect in effects {
                match effect {
                    Effect::OpenHotspot => events.push(Event::HotspotOpened(Ok(()))),
                    Effect::CloseHotspot => events.push(Event::HotspotClosed(Ok(()))),
                    Effect::OfferBluetooth => events.push(Event::BluetoothOpened(Ok(()))),
                    Effect::WithdrawBluetooth => events.push(Event::BluetoothClosed),
                    Effect::AskPhones => {
                        self.asked.push(second);
                        events.push(Event::Asked(self.near));
                    }
                    Effect::Store(_) => events.push(Event::Stored(Ok(()))),
                    Effect::Join(attempt, given) => write!(said, " join{attempt}:{}", given.ssid).expect("text"),
                    Effect::TryKnown(round) => write!(said, " try{round}").expect("text"),
                    Effect::Rescan => said += " rescan",
                    Effect::Busy(true) => said += " busy",
                    Effect::Busy(false) => said += " idle",
                    Effect::Poke => said += " poke",
                }
            }
        }
        self.shows() + &said
    }

    /// State and doors.
    fn shows(&self) -> String {
        let door = |keeper: &Keeper, letter: char| if keeper.is_open() { letter } else { '-' };
        let doors = [door(&self.machine.hotspot, 'H'), door(&self.machine.bluetooth, 'B')];
        format!("{} {}{}", self.machine.state.name(), doors[0], doors[1])
    }

    /// Lets time pass until this second, waking the machine when it wants to be woken. Asking phones is kept, and not said.
    fn until(&mut self, second: u64) -> String {
        let mut said = String::new();
        while let Some(due) = self.machine.deadline().filter(|due| *due <= at(second)) {
            let now = due.since(at(0)).as_secs_f64().ceil() as u64;
            let (asked, before) = (self.asked.len(), self.shows());
            let heard = self.hears(now, Event::DeadlinePassed);
            // Where that was all.
            if self.asked.len() == asked || heard != before {
                write!(said, "{now}: {heard}; ").expect("text");
            }
        }
        said
    }

    fn visit(&mut self, second: u64, visit: Visit) -> String {
        match self.machine.permits(Door::Portal, &visit) {
            Ok(()) => self.hears(second, Event::Visit(Door::Portal, visit)),
            Err(why) => format!("{why}"),
        }
    }

    fn result(&self) -> String {
        match self.machine.attempt().map(|attempt| &attempt.result) {
            None => "nothing".into(),
            Some(welcome::Result::Trying) => "trying".into(),
            Some(welcome::Result::Joined { address, .. }) => format!("joined {}", address.as_deref().unwrap_or("?")),
            Some(welcome::Result::Failed(why)) => why.to_string(),
        }
    }
}

fn offline(since: u64) -> Event {
    Event::Connectivity(Connectivity::Offline { since: at(since) })
}

fn online(since: u64) -> Event {
    Event::Connectivity(Connectivity::Online { since: at(since) })
}

fn local(since: u64) -> Event {
    Event::Connectivity(Connectivity::Local { since: at(since) })
}

fn outcome(attempt: u64, outcome: Outcome) -> Event {
    Event::Joining(Joining { attempt, outcome, round_ended: 0 })
}

fn round(round_ended: u64) -> Event {
    Event::Joining(Joining { attempt: 0, outcome: Outcome::Trying, round_ended })
}

#[test]
fn a_device_without_a_network_invites_retries_and_invites_again() {
    let mut device = Device::new(BOTH, true);
    assert_eq!(device.hears(0, offline(0)), "Resting --");
    assert_eq!(device.until(119), "");
    assert_eq!(device.until(120), "120: Inviting HB; ");
    assert_eq!(device.until(719), "");
    assert_eq!(device.until(720), "720: Retrying -B try1; ");
    assert_eq!(device.hears(725, round(0)), "Retrying -B", "another round's end");
    assert_eq!(device.hears(730, round(1)), "Retrying -B", "a minute at least");
    assert_eq!(device.until(780), "780: Inviting HB; ");
    // A round that never ends holds nobody up for longer than five minutes.
    assert_eq!(device.until(1680), "1380: Retrying -B try2; 1680: Inviting HB; ");
    assert_eq!(device.hears(1700, online(1700)), "Resting --");
    assert_eq!(device.machine.deadline(), None);
}

#[test]
fn what_counts_as_offline() {
    let with = |internet_counts, event| {
        let mut device = Device::new(BOTH, true);
        device.hears(0, Event::Rules(Rules { internet_counts, ..rules() }));
        device.hears(0, event);
        device.until(3600).split(';').next().unwrap_or_default().to_owned()
    };
    let table = [
        ("no link", false, offline(0), "120: Inviting HB"),
        ("no link, flag", true, offline(0), "120: Inviting HB"),
        ("no internet", false, local(0), ""),
        ("no internet, flag", true, local(0), "120: Inviting HB"),
        ("online", true, online(0), ""),
        ("nobody has looked", true, Event::Connectivity(Connectivity::Unknown), ""),
    ];
    for (case, flag, event, expected) in table {
        assert_eq!(with(flag, event), expected, "{case}");
    }
}

#[test]
fn a_device_without_identity_invites_at_once() {
    let mut device = Device::new(BOTH, false);
    assert_eq!(device.hears(0, Event::Connectivity(Connectivity::Unknown)), "Resting -B", "Bluetooth at once");
    assert_eq!(device.hears(1, offline(1)), "Inviting HB");
    assert_eq!(device.hears(2, online(2)), "Resting -B", "it has a network: Bluetooth only");
    assert_eq!(device.visit(3, Visit::Identity(identity())), "Showing -B busy poke");
    assert_eq!(device.until(63), "63: Resting -- idle; ");
}

#[test]
fn every_combination_of_switches() {
    for bits in 0..8_u8 {
        let (network, wifi, bluetooth) = (bits & 4 == 0, bits & 2 == 0, bits & 1 == 0);
        let mut device = Device::new(BOTH, true);
        device.hears(0, Event::Rules(Rules { network, wifi, bluetooth, ..rules() }));
        device.hears(0, offline(0));
        let said = device.until(120);
        let expected = match (network && wifi, network && bluetooth) {
            (true, true) => "120: Inviting HB; ",
            (true, false) => "120: Inviting H-; ",
            (false, true) => "120: Inviting -B; ",
            (false, false) => "",
        };
        assert_eq!(said, expected, "network {network}, wifi {wifi}, bluetooth {bluetooth}");
        let open = network && (wifi || bluetooth);
        let came = device.machine.permits(Door::Portal, &Visit::Came);
        assert_eq!(came, if open { Ok(()) } else { Err(Refused::Closed) });
        // Switched off while it is open: everything closes at once, also for a device without identity.
        device.hears(200, Event::Identity(false));
        assert_eq!(device.hears(201, Event::Rules(Rules { network: false, ..rules() })), "Resting --");
        assert_eq!(device.hears(202, Event::Forced), "Resting --", "nor by force");
    }
}

#[test]
fn the_door_that_cannot_open_delays_no_other() {
    let without = |able| {
        let mut device = Device::new(able, true);
        device.hears(0, offline(0));
        device.until(120)
    };
    assert_eq!(without(Able { hotspot: false, both: false, bluetooth: true }), "120: Inviting -B; ", "a wired device");
    assert_eq!(without(Able { hotspot: true, both: false, bluetooth: false }), "120: Inviting H-; ");
    let mut device = Device::new(Able::default(), true);
    device.hears(0, offline(0));
    assert_eq!(device.until(120), "120: Inviting --; ");
    assert_eq!(device.hears(130, Event::Able(BOTH)), "Inviting HB", "a radio that comes late");
}

#[test]
fn time_that_passes_moves_every_state() {
    // Nothing is ever awaited for ever: whatever nobody answers, the doors open again within twenty minutes.
    let states = [
        State::Resting,
        State::Inviting { since: at(0) },
        State::Parting { given: Some(given("n")), until: at(3) },
        State::Clearing { given: given("n"), until: at(20) },
        State::Joining { since: at(0), stays: true, linked: None },
        State::Joining { since: at(0), stays: false, linked: Some(at(0)) },
        State::Showing { until: at(60), hotspot: true },
        State::Retrying { since: at(0), begun: false, ended: false, held: true },
        State::Retrying { since: at(0), begun: true, ended: false, held: false },
    ];
    for state in states {
        let mut device = Device::new(ONE, true);
        device.hears(0, offline(0));
        device.machine.state = state.clone();
        let said = device.until(1200);
        assert!(said.contains(": Inviting HB") || said.contains("Retrying"), "{state:?}: {said}");
    }
}

#[test]
fn a_door_is_tried_for_ever_and_not_too_often() {
    let mut keeper = Keeper::new(Stand::Closed, 3);
    let (mut now, mut tries) = (at(0), 0);
    while now < at(24 * 3600) {
        match keeper.turn(now, true, true) {
            Some(Move::Open) => {
                tries += 1;
                keeper.opened(now, Err("the daemon refused".into()));
            }
            Some(Move::Close) => keeper.closed(now, Ok(())),
            None => now = keeper.deadline(true, true).expect("there is always another try"),
        }
    }
    assert!((700..1600).contains(&tries), "{tries} in a day");
    assert_eq!(keeper.trouble().map(|why| &**why), Some("the daemon refused"));
    // It works: the next failure is tried again soon.
    while keeper.stand() != Stand::Opening {
        match keeper.turn(now, true, true) {
            Some(Move::Close) => keeper.closed(now, Ok(())),
            Some(Move::Open) => {}
            None => now = keeper.deadline(true, true).expect("another try"),
        }
    }
    keeper.opened(now, Ok(()));
    assert!(keeper.is_open() && keeper.trouble().is_none());
    keeper.lost(now, "the adapter has gone".into());
    assert!(keeper.deadline(true, true).is_some_and(|due| due <= now + Duration::from_secs(5)));
    assert_eq!(keeper.deadline(true, false), None, "there is nothing to try without an adapter");
    keeper.came();
    assert_eq!(keeper.turn(now, true, true), Some(Move::Close), "it is back");
}

#[test]
fn what_an_agent_that_was_killed_left_open_is_closed() {
    let mut machine = Machine::new(1);
    machine.step(at(0), Event::Rules(rules()));
    assert_eq!(machine.step(at(0), Event::Able(ONE))[..], [Effect::CloseHotspot]);
    assert_eq!(machine.step(at(1), Event::HotspotClosed(Ok(())))[..], []);
    assert_eq!(machine.deadline(), None);
}
