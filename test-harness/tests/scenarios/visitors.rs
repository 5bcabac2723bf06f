//! Visitors who mean no good, or who never go.

use board_sim::radio::AccessPoint;
use test_harness::world::{Seed, doors, hours, minutes, seconds};

use crate::provisioning::{PSK, assert_hotspot, device, online, phone};

#[test]
fn whoever_stays_for_ever_keeps_no_device_offline() {
    let mut world = device(21, false, true);
    assert_hotspot(&mut world, minutes(3));
    let owner = phone(&world);
    world.give_network(owner, "home", PSK).expect("a page");
    assert!(world.run_until(minutes(3), online), "{}", world.chronicle.tail(40));
    // Its router is switched off, and somebody with the hotspot's password opens the page again and again.
    world.run_for(minutes(2));
    world.board.networks.silence("home");
    assert_hotspot(&mut world, minutes(5));
    world.board.networks.place(AccessPoint::new("home", PSK));
    let began = world.board.clock.elapsed();
    while !online(&world.hands) || world.board.networks.joined().is_none() {
        let visitor = world.phone(66, &world.label());
        if let Some(visitor) = visitor {
            world.fill_in(visitor, "/touched", &[]);
            world.give_network(visitor, "nowhere", "some password");
        }
        world.run_for(minutes(1));
        let waited = world.board.clock.elapsed() - began;
        assert!(waited < minutes(75), "its own network is back, and it does not look\n{}", world.chronicle.tail(60));
    }
    assert_eq!(world.board.networks.joined().as_deref(), Some("home"));
    assert!(world.board.clock.elapsed() - began > minutes(20), "and a visitor is not turned out at once");
    let closed = world.run_until(hours(2), |hands| hands.board.networks.hotspot().is_none());
    assert!(closed);
    world.run_for(seconds(1));
}

#[test]
fn whoever_is_done_hears_that_the_hotspot_goes() {
    let mut world = device(22, false, true);
    assert_hotspot(&mut world, minutes(3));
    let owner = phone(&world);
    let page = world.fill_in(owner, "/leave", &[]).expect("an answer");
    assert_eq!(page.status, 200);
    assert!(world.run_until(minutes(1), |hands| hands.board.networks.hotspot().is_none()));
}

/// What the swarm does with one device in four: radios that come and go, people of every kind, buttons, power cuts.
#[test]
fn whoever_comes_a_device_gets_online_in_the_end() {
    for seed in 0..2 {
        if let Err(story) = doors::run(Seed(seed)) {
            panic!("seed {seed}\n{story}");
        }
    }
}
