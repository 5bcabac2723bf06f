//! Networks that come, go and are configured wrongly in the middle of something else, and people who wait meanwhile.

use api::brand;
use board::files::Access;
use board_sim::{console::Manner, radio::AccessPoint, radio::Beyond, radio::Cable};
use serde_json::json;
use test_harness::world::{
    Seed, World, minutes,
    near::{improv, uuid},
    seconds,
};

use crate::provisioning::{PSK, assert_hotspot, credentials, device, online, phone};

#[test]
fn a_manager_that_is_restarted_while_it_joins_costs_nobody_a_visit() {
    for (seed, after) in [(60, 5), (61, 30), (62, 1500), (63, 3500)] {
        let mut world = device(seed, false, false);
        assert_hotspot(&mut world, minutes(1));
        let owner = phone(&world);
        world.give_identity(owner, &credentials()).expect("a page");
        world.give_network(owner, "home", PSK).expect("a page");
        let begun = world.run_until(minutes(1), |hands| hands.board.networks.hotspot().is_none());
        assert!(begun, "{}", world.chronicle.tail(20));
        let hotspots = world.board.networks.counts().hotspots;
        world.run_for(std::time::Duration::from_millis(after));
        world.board.networks.restart_manager(seconds(9));
        assert!(world.run_until(minutes(2), online), "{after} ms: {}", world.chronicle.tail(40));
        world.run_for(minutes(2));
        assert_eq!(world.board.networks.counts().hotspots, hotspots, "{after} ms: nobody is asked again");
        assert_eq!(world.cloud.status().provisioning.expect("told").last_result, "joined", "{after} ms");
        assert!(!world.chronicle.render().contains("not joined"), "{}", world.chronicle.tail(40));
    }
}

#[test]
fn a_cable_that_is_configured_wrongly_keeps_nobody_out() {
    let mut world = device(64, false, true);
    assert_hotspot(&mut world, minutes(3));
    let owner = phone(&world);
    world.give_network(owner, "home", PSK).expect("a page");
    assert!(world.run_until(minutes(3), online), "{}", world.chronicle.tail(40));
    // The cable that it is meant for is not there yet, so nothing is found out about it.
    world.board.networks.set_gateway("eth0", [10, 1, 2, 1].into());
    world.board.networks.cable("eth0", Cable::default());
    let line = json!({"type": "wired", "interface": "eth0", "ipv4_address": "10.1.2.3/24", "ipv4_gateway": "10.1.2.9"});
    world.cloud.set_section("additional_networks", &json!({ "line": line }));
    let stored = |count: usize| move |hands: &test_harness::world::Hands| hands.board.networks.ours().len() == count;
    assert!(world.run_until(minutes(20), stored(2)), "{}", world.chronicle.tail(40));
    // The house gets another access point, and the cable.
    world.board.networks.silence("home");
    world.board.networks.place(AccessPoint::new("attic", PSK));
    world.board.networks.cable("eth0", Cable { plugged: true, dhcp: false, beyond: Beyond::Internet });
    assert_hotspot(&mut world, minutes(6));
    let by = |hands: &test_harness::world::Hands| hands.board.networks.links().into_iter().find_map(|link| link.key);
    assert_eq!(by(&world).as_deref(), Some("net:line"), "it is up, and leads nowhere");
    let next = phone(&world);
    world.give_network(next, "attic", PSK).expect("a page");
    let joined = world.run_until(minutes(2), |hands| hands.board.networks.joined().as_deref() == Some("attic"));
    assert!(joined, "{}", world.chronicle.tail(40));
}

#[test]
fn improv_takes_a_network_once_somebody_is_at_the_device() {
    let mut world = World::new(Seed(65));
    world.board.networks.install();
    world.board.networks.plug_radio("wlan0", true);
    world.board.networks.place(AccessPoint::new("home", PSK));
    world.board.bluetooth.fit();
    let defaults = json!({
        "advanced_settings": {"release_keys": [world.factory.public_key()]},
        "network_configuration": {"improv": true, "improv_needs_presence": true}
    });
    world.board.files.put(brand::DEFAULTS_FILE, defaults.to_string(), Access::Readable);
    world.start();
    let state = |world: &World| world.near("somebody").and_then(|phone| phone.read(uuid("state")));
    let opened = world.run_until(minutes(5), |hands| hands.board.bluetooth.found().is_some());
    assert!(opened, "{}", world.chronicle.tail(40));
    assert_eq!(state(&world), Some(vec![1]), "it waits for a person");
    let phone = world.near("app").expect("offered");
    let command = improv(1, &["home", PSK]);
    assert_eq!(world.write(&phone, "command", &command), Some(Ok(())));
    world.run_for(seconds(2));
    assert_eq!(phone.read(uuid("error")), Some(vec![4]), "not authorized");
    world.run_for(minutes(1));
    assert_eq!(world.board.networks.joined(), None);
    // For a minute, and not longer.
    world.board.console.ask(Manner::polite("provision 1"));
    world.run_for(seconds(2));
    assert_eq!(phone.read(uuid("state")), Some(vec![2]));
    world.run_for(minutes(1));
    assert_eq!(phone.read(uuid("state")), Some(vec![1]));
    world.board.console.ask(Manner::polite("provision 1"));
    world.run_for(seconds(30));
    assert_eq!(world.write(&phone, "command", &command), Some(Ok(())));
    assert!(world.run_until(minutes(1), online), "{}", world.chronicle.tail(40));
    // Shut doors that somebody opens at the device are open to who did that.
    let shut = world.run_until(minutes(15), |hands| hands.board.bluetooth.found().is_none());
    assert!(shut, "{}", world.chronicle.tail(40));
    world.board.console.ask(Manner::polite("provision 1"));
    let opened = world.run_until(minutes(1), |hands| hands.board.bluetooth.found().is_some());
    assert!(opened, "{}", world.chronicle.tail(40));
    world.run_for(seconds(2));
    assert_eq!(state(&world), Some(vec![2]));
}
