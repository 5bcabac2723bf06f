//! Networks that are changed from far away, or by a person's mistake, and a device that goes down in the middle of it.
//!
//! No device is ever without a way back: one of its networks works, or somebody is invited.

use std::time::Duration;

use api::brand;
use board::files::Access;
use board_sim::{
    Random,
    radio::{AccessPoint, Beyond, Cable},
};
use serde_json::{Value, json};
use test_harness::world::{Hands, Seed, World, cloud, factory, hours, minutes, seconds};

use crate::assert_serves;

const PSK: &str = "correct horse";
const WRONG: &str = "wrong horse";
const PLUGGED: Cable = Cable { plugged: true, dhcp: true, beyond: Beyond::Internet };

fn wifi(psk: &str) -> Value {
    json!({"type": "wifi", "ssid": "house", "psk": psk})
}

fn line(gateway: &str) -> Value {
    json!({"type": "wired", "interface": "eth0", "ipv4_address": "10.1.2.3/24", "ipv4_gateway": gateway,
        "ipv4_dns": ["10.1.2.1"]})
}

/// A device that is online by this network and nothing else. The network manager connects by itself what it can.
fn online_by(seed: u64, network: &Value) -> World {
    let mut world = World::new(Seed(seed));
    let networks = &world.board.networks;
    networks.install();
    networks.plug_radio("wlan0", false);
    networks.cable("eth0", PLUGGED);
    networks.set_gateway("eth0", [10, 1, 2, 1].into());
    networks.place(AccessPoint::new("house", PSK));
    let defaults = json!({
        "advanced_settings": {"release_keys": [world.factory.public_key()]}, "additional_networks": {"net": network}
    });
    world.board.files.put(brand::DEFAULTS_FILE, defaults.to_string(), Access::Readable);
    if network["type"] == "wifi" {
        networks.cable("eth0", Cable { plugged: false, ..PLUGGED });
    }
    world.cloud.set_section("additional_networks", &json!({"net": network}));
    world.start();
    assert_serves(&mut world, "1.0.0", minutes(3));
    world.run_for(minutes(1));
    world
}

fn is_online(hands: &Hands) -> bool {
    hands.board.web.is_online() && hands.cloud.report().is_some()
}

fn keys(hands: &Hands) -> Vec<String> {
    hands.board.networks.ours().into_iter().map(|profile| profile.key).collect()
}

fn complains(hands: &Hands) -> bool {
    let said = hands.cloud.status().network.map(|network| network.trouble).unwrap_or_default();
    said.iter().any(|trouble| trouble.contains("was not taken as changed"))
}

#[track_caller]
fn assert_soon(world: &mut World, what: &str, within: Duration, is_so: impl Fn(&Hands) -> bool) {
    let there = world.run_until(within, is_so);
    assert!(there, "{what}\n{:?}\n{}", keys(world), world.chronicle.tail(60));
}

#[test]
fn a_mistake_in_the_cloud_is_survived_also_by_a_device_that_goes_down_in_the_middle() {
    for (right, wrong) in [(wifi(PSK), wifi(WRONG)), (line("10.1.2.1"), line("10.1.2.9"))] {
        for moment in [2, 9, 30, 95] {
            let mut world = online_by(moment, &right);
            world.cloud.set_section("additional_networks", &json!({"net": wrong}));
            let there = |hands: &Hands| keys(hands).len() == 2;
            assert_soon(&mut world, "what worked is kept first", minutes(2), there);
            world.run_for(seconds(moment));
            if moment % 2 == 0 {
                world.kill_agent();
            } else {
                world.cut_power();
            }
            world.run_for(minutes(4));
            assert_soon(&mut world, "online again", minutes(2), |hands| is_online(hands) && complains(hands));
            assert_eq!(keys(&world), ["net:net", "old:net:net"], "{moment}");
            world.run_for(minutes(30));
            assert!(is_online(&world) && complains(&world), "{moment}: it stays there");
            // Somebody corrects it.
            world.cloud.set_section("additional_networks", &json!({"net": right}));
            let well = |hands: &Hands| is_online(hands) && keys(hands) == ["net:net"] && !complains(hands);
            assert_soon(&mut world, "corrected", minutes(20), well);
        }
    }
}

#[test]
fn the_power_goes_while_a_person_tries_another_password() {
    for moment in [0, 4, 8, 12] {
        let mut world = online_by(moment, &json!({"type": "wired"}));
        let networks = world.board.networks.clone();
        networks.cable("eth0", Cable { plugged: false, ..PLUGGED });
        let opened = |hands: &Hands| hands.board.doorway.address().is_some();
        assert_soon(&mut world, "hotspot", minutes(5), opened);
        let phone = world.phone(20, &world.label()).expect("the label is right");
        world.give_network(phone, "house", PSK).expect("a page");
        assert_soon(&mut world, "online", minutes(3), |hands| {
            hands.board.networks.joined().is_some() && is_online(hands)
        });
        // The router is off for a while, and somebody thinks that it is the password.
        networks.silence("house");
        assert_soon(&mut world, "hotspot again", minutes(5), opened);
        networks.place(AccessPoint::new("house", PSK));
        let phone = world.phone(21, &world.label()).expect("the label is right");
        world.give_network(phone, "house", WRONG).expect("a page");
        let put = |hands: &Hands| keys(hands).len() > 2;
        assert_soon(&mut world, "kept first", minutes(1), put);
        world.run_for(Duration::from_millis(700 * moment));
        world.cut_power();
        assert_soon(&mut world, "online again", minutes(15), |hands| {
            hands.board.networks.joined().is_some() && is_online(hands)
        });
    }
}

#[test]
fn however_calls_fail_there_is_a_way_back() {
    for seed in 0..3 {
        let mut world = online_by(seed, &wifi(PSK));
        let random = Random::new(seed);
        let networks = world.board.networks.clone();
        for _ in 0..40 {
            let psk = if random.chance(50) { PSK } else { WRONG };
            match random.below(8) {
                0 => world.cloud.set_section("additional_networks", &json!({"net": wifi(psk)})),
                1 => {
                    world.cloud.set_section("additional_networks", &json!({"net": wifi(psk), "line": line("10.1.2.9")}))
                }
                2 => networks.cable("eth0", Cable { plugged: random.chance(50), ..PLUGGED }),
                3 => networks.keep_secrets(random.chance(30)),
                4 => networks.fail_calls(random.below(4)),
                5 => networks.restart_manager(seconds(random.below(60))),
                6 => world.cut_power(),
                _ => world.kill_agent(),
            }
            world.run_for(seconds(random.below(300)));
        }
        networks.fail_calls(0);
        networks.keep_secrets(false);
        networks.cable("eth0", Cable { plugged: false, ..PLUGGED });
        world.cloud.set_section("additional_networks", &json!({"net": wifi(PSK)}));
        let well = |hands: &Hands| is_online(hands) && keys(hands).iter().all(|key| !key.starts_with("old:"));
        let back = |hands: &Hands| well(hands) || hands.board.doorway.address().is_some();
        assert_soon(&mut world, &format!("seed {seed}"), hours(2), back);
        if !well(&world) {
            // What it was given for a network that it was not connected by was wrong: a person is invited.
            let phone = world.phone(20, &world.label()).expect("the label is right");
            world.give_network(phone, "house", PSK).expect("a page");
        }
        let corrected = |hands: &Hands| well(hands) && keys(hands).contains(&"net:net".to_owned()) && !complains(hands);
        assert_soon(&mut world, &format!("seed {seed}"), hours(8), corrected);
    }
}

/// What a person needs to set it up is there whatever the network manager does.
#[test]
fn a_device_whose_network_manager_fails_half_of_the_time_is_set_up_all_the_same() {
    let mut world = World::new(Seed(5));
    let networks = world.board.networks.clone();
    networks.install();
    networks.plug_radio("wlan0", false);
    networks.place(AccessPoint::new("house", PSK));
    networks.fail_calls(3);
    world.board.files.take_away(brand::CREDENTIALS_FILE);
    world.start();
    let identity = json!({"cloud": {"app_address": factory::SERVER, "id": cloud::PART_ID, "secret": cloud::SECRET}});
    for number in 20..60 {
        let open = world.run_until(hours(1), |hands| hands.board.doorway.address().is_some());
        assert!(open, "no hotspot\n{}", world.chronicle.tail(40));
        if let Some(phone) = world.phone(number, &world.label()) {
            let _ = world.give_identity(phone, &identity.to_string());
            let _ = world.give_network(phone, "house", PSK);
        }
        if world.run_until(minutes(6), is_online) {
            return;
        }
    }
    panic!("{}", world.chronicle.tail(60));
}
