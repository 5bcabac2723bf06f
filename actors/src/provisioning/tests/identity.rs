//! Who may say who the device is, and when.

use super::*;

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
    assert_eq!(device.until(1500), "1300: Inviting HB; 1500: Resting -- idle; ", "nor is somebody interrupted then");
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
fn who_opens_the_doors_by_hand_while_a_network_is_joined_gets_them_after_it() {
    let joined = |attempt| outcome(attempt, Outcome::Joined(link()));
    // While the page goes out, while the radio is let go of, while it joins.
    for second in [11, 13, 15] {
        let mut device = Device::new(ONE, true);
        device.hears(0, online(0));
        device.hears(1, Event::Forced);
        assert_eq!(device.visit(10, Visit::Network(given("home"))), "Parting HB");
        device.until(second);
        device.hears(second, Event::Forced);
        device.until(15);
        assert_eq!(device.hears(20, joined(1)), "Inviting HB", "asked for at {second}");
        assert_eq!(device.result(), "joined 192.168.1.20");
        let closes = format!("{}: Resting -- idle; ", second + 600);
        assert_eq!(device.until(2000), closes, "one wish is one opening, counted from when it was made");
    }
    // Nobody asked again: as ever.
    let mut device = Device::new(ONE, true);
    device.hears(0, online(0));
    device.hears(1, Event::Forced);
    device.visit(10, Visit::Network(given("home")));
    device.until(15);
    assert_eq!(device.hears(20, joined(1)), "Showing -B");
    // One that fails opens them anyway, and the wish is spent.
    let mut device = Device::new(ONE, true);
    device.hears(0, online(0));
    device.hears(1, Event::Forced);
    device.visit(10, Visit::Network(given("home")));
    device.until(15);
    device.hears(16, Event::Forced);
    assert_eq!(device.hears(20, outcome(1, Outcome::Failed("wrong password for home".into()))), "Inviting HB");
    device.visit(30, Visit::Network(given("home")));
    device.until(35);
    assert_eq!(device.hears(40, joined(2)), "Showing -B");
    // While they part because somebody has left.
    let mut device = Device::new(ONE, true);
    device.hears(0, online(0));
    device.hears(1, Event::Forced);
    device.visit(10, Visit::Leave);
    device.hears(11, Event::Forced);
    assert_eq!(device.until(13), "13: Inviting HB; ");
}

#[test]
fn what_somebody_at_the_device_permits_ends_whoever_is_here() {
    let visit = Visit::Identity(identity());
    for event in [online(0), offline(0)] {
        let mut device = Device::new(BOTH, true);
        device.hears(0, event);
        device.hears(10, Event::Forced);
        for second in (20..610).step_by(60) {
            device.until(second);
            device.visit(second, Visit::Touched);
            assert_eq!(device.machine.permits(Door::Portal, &visit), Ok(()), "{second}");
        }
        device.until(611);
        assert!(matches!(device.machine.state, State::Inviting { .. }), "the doors stay open for who is here");
        assert_eq!(device.machine.permits(Door::Portal, &visit), Err(Refused::IdentityStays));
    }
}
