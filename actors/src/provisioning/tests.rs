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
}

const BOTH: Able = Able { hotspot: true, both: true, bluetooth: true };
const ONE: Able = Able { hotspot: true, both: false, bluetooth: true };

impl Device {
    fn new(able: Able, has_identity: bool) -> Device {
        let mut device = Device { machine: Machine::new(7) };
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
        let door = |keeper: &Keeper, letter: char| if keeper.is_open() { letter } else { '-' };
        let doors = [door(&self.machine.hotspot, 'H'), door(&self.machine.bluetooth, 'B')];
        format!("{} {}{}{said}", self.machine.state.name(), doors[0], doors[1])
    }

    /// Lets time pass until this second, waking the machine when it wants to be woken.
    fn until(&mut self, second: u64) -> String {
        let mut said = String::new();
        while let Some(due) = self.machine.deadline().filter(|due| *due <= at(second)) {
            let now = due.since(at(0)).as_secs();
            write!(said, "{now}: {}; ", self.hears(now, Event::DeadlinePassed)).expect("text");
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
fn a_radio_that_can_do_both_keeps_the_hotspot_while_it_tries() {
    let mut device = Device::new(BOTH, true);
    device.hears(0, offline(0));
    device.until(120);
    assert_eq!(device.visit(130, Visit::Came), "Inviting HB busy");
    assert!(device.machine.stays());
    assert_eq!(device.visit(140, Visit::Network(given("home"))), "Joining HB join1:home");
    assert_eq!(device.visit(141, Visit::Network(given("other"))), "a network is being tried: wait for the result");
    assert_eq!(device.hears(145, outcome(1, Outcome::Failed("wrong password for home".into()))), "Inviting HB");
    assert_eq!(device.result(), "wrong password for home");
    assert_eq!(device.visit(160, Visit::Network(given("home"))), "Joining HB join2:home");
    assert_eq!(device.hears(161, outcome(1, Outcome::Joined(link()))), "Joining HB", "the end of another attempt");
    assert_eq!(device.hears(165, outcome(2, Outcome::Joined(link()))), "Showing HB");
    assert_eq!(device.result(), "joined 192.168.1.20");
    device.hears(166, online(166));
    assert_eq!(device.visit(168, Visit::SawResult), "Showing HB");
    assert_eq!(device.until(178), "178: Resting -- idle; ", "closed ten seconds after it was seen");
}

#[test]
fn another_radio_tells_goes_and_comes_back() {
    let mut device = Device::new(ONE, true);
    device.hears(0, offline(0));
    device.until(120);
    assert!(!device.machine.stays());
    assert_eq!(device.visit(140, Visit::Network(given("home"))), "Parting HB busy");
    assert_eq!(device.result(), "trying");
    assert_eq!(device.until(143), "143: Joining -B join1:home; ", "the page has arrived, the hotspot has gone");
    assert_eq!(
        device.hears(150, outcome(1, Outcome::Failed("no network named home is in range".into()))),
        "Inviting HB"
    );
    assert_eq!(device.result(), "no network named home is in range");
    // Neither looking nor time takes the reason away.
    device.visit(160, Visit::Came);
    assert_eq!(device.result(), "no network named home is in range");
    assert_eq!(device.until(1200).split(';').next(), Some("460: Inviting HB idle"), "whoever came is gone");
    assert_eq!(device.result(), "no network named home is in range", "the next invitation still says so");
    device.visit(1210, Visit::SawResult);
    device.hears(1220, online(1220));
    device.until(3000);
    device.hears(5000, offline(5000));
    device.until(5120);
    assert_eq!(device.result(), "nothing", "seen, and another day");
}

#[test]
fn a_hotspot_that_does_not_go_holds_nobody_up() {
    let mut device = Device::new(ONE, true);
    device.hears(0, offline(0));
    device.until(120);
    device.visit(140, Visit::Network(given("home")));
    let effects = device.machine.step(at(143), Event::DeadlinePassed);
    assert_eq!(effects[..], [Effect::CloseHotspot], "the network manager is asked, and does not answer");
    assert_eq!(device.machine.state.name(), "Clearing");
    let effects = device.machine.step(at(163), Event::DeadlinePassed);
    assert_eq!(effects[..], [Effect::Join(1, given("home"))]);
    let effects = device.machine.step(at(343), Event::DeadlinePassed);
    assert_eq!(device.result(), "home did not answer in time");
    assert_eq!(effects[..], [], "closing has not ended yet");
    let effects = device.machine.step(at(344), Event::HotspotClosed(Err("timed out".into())));
    assert_eq!(effects[..], []);
    let due = device.machine.deadline().expect("it is tried again");
    assert!(due > at(344) && due <= at(350), "{due:?}");
    assert_eq!(device.machine.step(due, Event::DeadlinePassed)[..], [Effect::CloseHotspot], "what is left goes first");
    assert_eq!(device.machine.step(due, Event::HotspotClosed(Ok(())))[..], [Effect::OpenHotspot]);
}

#[test]
fn a_network_without_internet_is_no_success_where_that_counts() {
    let mut device = Device::new(BOTH, true);
    device.hears(0, Event::Rules(Rules { internet_counts: true, ..rules() }));
    device.hears(0, local(0));
    device.until(120);
    device.visit(130, Visit::Network(given("cafe")));
    assert_eq!(device.hears(140, outcome(1, Outcome::Joined(link()))), "Joining HB");
    device.hears(141, local(141));
    assert_eq!(device.until(185), "185: Inviting HB; ");
    assert_eq!(device.result(), "cafe was joined, and there is no internet behind it");
    device.visit(200, Visit::Network(given("home")));
    device.hears(210, outcome(2, Outcome::Joined(link())));
    assert_eq!(device.hears(215, online(215)), "Showing HB");
}

#[test]
fn nobody_is_interrupted_and_nobody_is_waited_for_who_has_gone() {
    let mut device = Device::new(BOTH, true);
    device.hears(0, offline(0));
    device.until(120);
    assert_eq!(device.visit(700, Visit::Touched), "Inviting HB busy");
    assert_eq!(device.until(999), "");
    assert_eq!(device.visit(999, Visit::Rescan), "Inviting HB rescan");
    assert_eq!(device.until(1299), "1299: Retrying -B idle try1; ", "five minutes after the last touch");
    // Online while somebody types: the doors stay until that person is gone.
    device.hears(1360, round(1));
    device.visit(1400, Visit::Touched);
    assert_eq!(device.hears(1410, online(1410)), "Inviting HB");
    assert_eq!(device.until(1700), "1700: Resting -- idle; ");
}

#[test]
fn looking_at_the_result_is_no_activity() {
    let mut device = Device::new(BOTH, true);
    device.hears(0, offline(0));
    device.until(120);
    device.visit(719, Visit::SawResult);
    assert_eq!(device.until(720), "720: Retrying -B try1; ");
}

#[test]
fn whoever_is_done_may_say_so() {
    let mut device = Device::new(BOTH, true);
    device.hears(0, offline(0));
    device.until(120);
    device.visit(130, Visit::Came);
    assert_eq!(device.visit(140, Visit::Leave), "Retrying -B idle try1");
    assert_eq!(device.hears(141, online(141)), "Resting --");
}

#[test]
fn a_device_that_has_an_identity_keeps_it() {
    let visit = Visit::Identity(identity());
    let doors = [Door::Portal, Door::App, Door::Bluetooth, Door::Improv];
    let opened = |rules: Rules, has_identity, forced| {
        let mut device = Device::new(BOTH, has_identity);
        device.hears(0, Event::Rules(rules));
        device.hears(0, offline(0));
        device.until(130);
        if forced {
            device.hears(130, Event::Forced);
        }
        device
    };
    let table = [
        ("it has none", rules(), false, false, Ok(()), IdentityDoor::Wanted),
        ("it has one", rules(), true, false, Err(Refused::IdentityStays), IdentityDoor::Shut),
        ("it has one, somebody is there", rules(), true, true, Ok(()), IdentityDoor::Open),
        (
            "it has one, the manufacturer allows it",
            Rules { identity_may_change: true, ..rules() },
            true,
            false,
            Ok(()),
            IdentityDoor::Open,
        ),
    ];
    for (case, rules, has_identity, forced, expected, shown) in table {
        let device = opened(rules, has_identity, forced);
        assert_eq!(device.machine.identity_door(), shown, "{case}");
        for door in doors {
            let expected = if door == Door::Improv { Err(Refused::NotHere) } else { expected };
            assert_eq!(device.machine.permits(door, &visit), expected, "{case} at {door:?}");
            assert_eq!(device.machine.permits(door, &Visit::Network(given("n"))), Ok(()), "{case}: networks always");
        }
    }
    // One act at the device is one change.
    let mut device = opened(rules(), true, true);
    device.hears(131, online(131));
    assert_eq!(device.visit(132, visit.clone()), "Showing HB poke");
    assert_eq!(device.machine.permits(Door::Portal, &visit), Err(Refused::IdentityStays));
    let mut device = opened(rules(), true, true);
    device.visit(131, visit.clone());
    assert_eq!(device.machine.permits(Door::Portal, &visit), Err(Refused::IdentityStays), "offline too");
    // And it ends with the time that it was for.
    let mut device = opened(rules(), true, true);
    device.until(130 + 600);
    assert_eq!(device.machine.permits(Door::Bluetooth, &visit), Err(Refused::IdentityStays));
}

#[test]
fn no_door_that_is_closed_lets_anybody_in() {
    let mut device = Device::new(BOTH, true);
    device.hears(0, online(0));
    for visit in [Visit::Came, Visit::Touched, Visit::Rescan, Visit::Network(given("n")), Visit::Identity(identity())] {
        for door in [Door::Portal, Door::App, Door::Bluetooth, Door::Improv] {
            assert_eq!(device.machine.permits(door, &visit), Err(Refused::Closed), "{door:?}");
        }
    }
}

#[test]
fn an_identity_is_stored_before_anything_else_happens() {
    let mut device = Device::new(BOTH, false);
    device.hears(0, offline(0));
    let effects = device.machine.step(at(10), Event::Visit(Door::Portal, Visit::Identity(identity())));
    assert_eq!(effects[..], [Effect::Busy(true), Effect::Store(identity())]);
    assert!(!device.machine.has_identity);
    assert_eq!(device.machine.step(at(10), Event::Stored(Err("the disk is full".into())))[..], []);
    assert!(!device.machine.has_identity, "what is not stored is not so");
    device.visit(20, Visit::Identity(identity()));
    assert!(device.machine.has_identity);
    // It still needs a network; the doors stay for that.
    assert_eq!(device.visit(30, Visit::Network(given("home"))), "Joining HB join1:home");
    assert_eq!(device.hears(40, outcome(1, Outcome::Joined(link()))), "Showing HB");
}

#[test]
fn a_network_first_and_then_who_it_is() {
    let mut device = Device::new(ONE, false);
    device.hears(0, offline(0));
    device.visit(10, Visit::Network(given("home")));
    device.until(13);
    assert_eq!(
        device.hears(20, outcome(1, Outcome::Joined(link()))),
        "Inviting HB",
        "the hotspot returns: without an identity a network is of no use"
    );
    device.hears(21, offline(21));
    assert_eq!(device.visit(60, Visit::Identity(identity())), "Showing HB poke");
    assert_eq!(device.until(120), "120: Retrying -B idle try1; ");
    assert_eq!(device.hears(130, online(130)), "Resting --");
}

#[test]
fn somebody_at_the_device_opens_the_doors_by_hand() {
    let mut device = Device::new(BOTH, true);
    device.hears(0, online(0));
    assert_eq!(device.hears(10, Event::Forced), "Inviting HB busy", "although it is online");
    assert_eq!(device.until(609), "");
    assert_eq!(device.until(610), "610: Resting -- idle; ");
    device.hears(700, Event::Forced);
    device.visit(1200, Visit::Touched);
    assert_eq!(device.until(1500), "1500: Resting -- idle; ", "nor is somebody interrupted then");
    device.hears(2000, Event::Forced);
    assert_eq!(device.hears(2300, Event::Forced), "Inviting HB", "once more is longer");
    assert_eq!(device.until(2900), "2900: Resting -- idle; ");
    // A visitor who goes idle before the time is over changes nothing, and no deadline is left behind.
    device.hears(3000, Event::Forced);
    device.visit(3060, Visit::Touched);
    assert_eq!(device.until(3600), "3600: Resting -- idle; ");
    // Nor does one who was idle long before.
    device.hears(4000, offline(4000));
    device.until(4120);
    device.visit(4121, Visit::Touched);
    device.until(4730);
    device.hears(4731, Event::Forced);
    assert!(device.machine.deadline().is_none_or(|due| due > at(4731)), "{:?}", device.machine.deadline());
}

#[test]
fn a_success_of_long_ago_is_no_news() {
    let mut device = Device::new(ONE, true);
    device.hears(0, offline(0));
    device.until(120);
    device.visit(130, Visit::Network(given("home")));
    device.until(133);
    device.hears(140, outcome(1, Outcome::Joined(link())));
    device.hears(141, online(141));
    device.until(300);
    assert_eq!(device.machine.state, State::Resting);
    // The phone was somewhere else when the hotspot went: nobody has seen it.
    device.hears(9000, offline(9000));
    device.until(9120);
    assert!(matches!(device.machine.state, State::Inviting { .. }));
    assert_eq!(device.machine.attempt(), None, "a phone that asks is not told that all is well");
}

#[test]
fn time_that_passes_moves_every_state() {
    // Nothing is ever awaited for ever: whatever nobody answers, the doors open again within twenty minutes.
    let states = [
        State::Resting,
        State::Inviting { since: at(0) },
        State::Parting { given: given("n"), until: at(3) },
        State::Clearing { given: given("n"), until: at(20) },
        State::Joining { since: at(0), stays: true, linked: None },
        State::Joining { since: at(0), stays: false, linked: Some(at(0)) },
        State::Showing { until: at(60), hotspot: true },
        State::Retrying { since: at(0), begun: false, ended: false },
        State::Retrying { since: at(0), begun: true, ended: false },
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
