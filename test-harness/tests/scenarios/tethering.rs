//! A phone that shared its connection, and goes and comes back: nobody has to pair it anew.

use board_sim::radio::{Beyond, Cable, any_cable};
use test_harness::world::{Seed, World, hours, minutes, seconds};

const PHONE: &str = "AA:BB:CC:DD:EE:01";
const LINK: Cable = Cable { plugged: true, dhcp: true, beyond: Beyond::Internet };

/// A device with Bluetooth and nothing else, which let a phone in on some other day.
fn device(seed: u64) -> World {
    let mut world = World::new(Seed(seed));
    world.board.networks.install();
    // The phone's link, once it is there, is one like any other.
    world.board.networks.by_admin(any_cable());
    world.board.bluetooth.fit();
    world.board.bluetooth.knows(PHONE, false);
    world.board.bluetooth.tethers(PHONE, Ok(()));
    world.start();
    world
}

/// The phone's link, which the simulated one is not: another cable.
fn link(world: &World, up: bool) {
    world.board.networks.cable("bnep0", Cable { plugged: up, ..LINK });
}

fn asked(world: &World) -> u32 {
    world.board.bluetooth.asked().1
}

#[test]
fn a_phone_that_is_back_is_asked_again_by_itself() {
    let mut world = device(71);
    world.run_for(hours(1));
    let (looked, none) = world.board.bluetooth.asked();
    assert!((5..=9).contains(&looked), "{looked} looks in an hour");
    assert_eq!(none, 0, "it is not near");
    assert!(world.board.bluetooth.found().is_some(), "somebody is invited all the while");

    world.board.bluetooth.knows(PHONE, true);
    let found = world.run_until(minutes(16), |hands| hands.board.bluetooth.asked().1 == 1);
    assert!(found, "{}", world.chronicle.tail(40));
    link(&world, true);
    let reported = world.run_until(minutes(3), |hands| hands.cloud.report().is_some());
    assert!(reported, "{}", world.chronicle.tail(40));
    let (looked, _) = world.board.bluetooth.asked();
    world.run_for(hours(3));
    assert_eq!(world.board.bluetooth.asked().0, looked, "online, nobody is looked for");
    assert!(world.board.bluetooth.found().is_none(), "nor invited");
}

#[test]
fn a_phone_that_connects_by_itself_is_asked_at_once() {
    let mut world = device(72);
    world.run_for(hours(2));
    assert_eq!(asked(&world), 0);
    world.board.bluetooth.phone(PHONE).come_back();
    world.run_for(seconds(1));
    assert_eq!(asked(&world), 1, "{}", world.chronicle.tail(20));
    link(&world, true);
    let closed = world.run_until(minutes(10), |hands| hands.board.bluetooth.found().is_none());
    assert!(closed, "{}", world.chronicle.tail(40));
}
