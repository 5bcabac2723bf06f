//! Networks that a device was given: which it joins, when it tries again, and what it leaves alone.

use std::time::Duration;

use api::brand;
use board::files::Access;
use board::network::Manager;
use board_sim::{
    Random,
    radio::{AccessPoint, Beyond, Cable, any_cable, ssid},
};
use serde_json::{Value, json};
use test_harness::world::{Hands, Seed, World, hours, minutes, seconds};

use crate::assert_serves;

const PSK: &str = "correct horse";
const PLUGGED: Cable = Cable { plugged: true, dhcp: true, beyond: Beyond::Internet };
const UNPLUGGED: Cable = Cable { plugged: false, dhcp: true, beyond: Beyond::Internet };

/// A device with one radio and a cable, whose network manager connects cables by itself and WiFi only when asked: what
/// the agent does is then its own doing.
fn with_radio(seed: u64) -> World {
    let world = World::new(Seed(seed));
    let networks = &world.board.networks;
    networks.install();
    networks.plug_radio("wlan0", false);
    networks.cable("eth0", PLUGGED);
    networks.by_admin(any_cable());
    // What the doors do to the rhythm is told in `provisioning`.
    let defaults = json!({
        "advanced_settings": {"release_keys": [world.factory.public_key()]},
        "network_configuration": {"disable_wifi_provisioning": true, "disable_bt_provisioning": true}
    });
    world.board.files.put(brand::DEFAULTS_FILE, defaults.to_string(), Access::Readable);
    world
}

fn wifi(name: &str, priority: i16) -> Value {
    json!({"type": "wifi", "ssid": name, "psk": PSK, "priority": priority})
}

/// The device has fetched this, over its cable.
fn given(seed: u64, networks: &Value, network: &Value) -> World {
    let mut world = with_radio(seed);
    world.cloud.set_section("additional_networks", networks);
    world.cloud.set_section("network_configuration", network);
    let count = networks.as_object().map_or(0, serde_json::Map::len);
    world.start();
    assert_serves(&mut world, "1.0.0", minutes(2));
    let stored = world.run_until(minutes(1), |hands| hands.board.networks.ours().len() == count);
    assert!(stored, "{:?}\n{}", world.board.networks.ours(), world.chronicle.tail(40));
    world.board.networks.set_by_itself(false);
    world
}

fn unplug(hands: &Hands) {
    hands.board.networks.cable("eth0", UNPLUGGED);
}

#[track_caller]
fn assert_joins(world: &mut World, name: &str, within: Duration) {
    let joined = world.run_until(within, |hands| hands.board.networks.joined().as_deref() == Some(name));
    assert!(joined, "{name} is not joined\n{}", world.chronicle.tail(60));
}

/// Names of what the agent asked to join, in order.
fn asked(world: &World) -> Vec<String> {
    let chronicle = world.chronicle.render();
    chronicle.lines().filter_map(|line| Some(line.split_once("joins ")?.1.trim().to_owned())).collect()
}

#[test]
fn the_highest_priority_in_the_air_is_joined_and_then_the_next() {
    let networks = json!({
        "attic": wifi("attic", -5), "garage": wifi("garage", 900), "hall": wifi("hall", 10), "house": wifi("house", 20)
    });
    let mut world = given(1, &networks, &json!({}));
    for name in ["attic", "hall", "house"] {
        world.board.networks.place(AccessPoint::new(name, PSK));
    }
    unplug(&world);
    assert_joins(&mut world, "house", minutes(1));
    world.board.networks.silence("house");
    assert_joins(&mut world, "hall", minutes(1));
    world.board.networks.silence("hall");
    assert_joins(&mut world, "attic", minutes(1));
    assert_eq!(asked(&world), ["house", "hall", "attic"], "the absent ones were not waited for");
    let scans = world.board.networks.counts().scans;
    world.run_for(hours(24));
    assert_eq!(world.board.networks.counts().scans, scans, "online, nothing is scanned");
    assert_eq!(world.board.networks.admins(), [any_cable()]);
}

#[test]
fn the_loss_of_the_best_network_costs_half_a_minute_at_most() {
    let mut world = given(21, &json!({"cafe": wifi("cafe", 10), "home": wifi("home", 1)}), &json!({}));
    for name in ["cafe", "home"] {
        world.board.networks.place(AccessPoint::new(name, PSK));
    }
    unplug(&world);
    assert_joins(&mut world, "cafe", minutes(1));
    world.run_for(minutes(5));
    // Radios remember for minutes what they heard; and the network manager connects by itself, in its own time.
    world.board.networks.set_remembers(minutes(3));
    world.board.networks.silence("cafe");
    assert_joins(&mut world, "home", seconds(30));
    assert_eq!(asked(&world), ["cafe", "home"], "what is gone was not waited for");
    world.board.networks.place(AccessPoint::new("cafe", PSK));
    world.board.networks.silence("home");
    assert_joins(&mut world, "cafe", seconds(30));
    world.board.networks.set_by_itself_takes(seconds(30));
    world.board.networks.set_by_itself(true);
    world.board.networks.place(AccessPoint::new("home", PSK));
    world.board.networks.silence("cafe");
    assert_joins(&mut world, "home", seconds(40));
    world.run_for(minutes(10));
    assert_eq!(asked(&world), ["cafe", "home", "cafe"], "it did that by itself");
}

#[test]
fn one_that_hides_its_name_is_asked_for_and_one_that_fails_is_tried_again() {
    let mut world = given(2, &json!({"cellar": wifi("cellar", 0), "other": wifi("other", 5)}), &json!({}));
    world.board.networks.place(AccessPoint::new("other", "another password"));
    world.board.networks.place(AccessPoint { hidden: true, ..AccessPoint::new("cellar", PSK) });
    unplug(&world);
    assert_joins(&mut world, "cellar", minutes(2));
    assert_eq!(asked(&world), ["other", "cellar"], "what is in the air comes first");
    world.board.networks.silence("cellar");
    world.run_for(hours(3));
    let tries = asked(&world).iter().filter(|name| *name == "other").count();
    assert!((2..10).contains(&tries), "a wrong password is tried again, and seldom: {tries}");
    // Somebody sets the access point to the password that the device has.
    world.board.networks.change("other", |point| point.password = Some(PSK.into()));
    assert_joins(&mut world, "other", minutes(75));
}

#[test]
fn a_lost_network_is_found_again_after_hours() {
    let mut world = given(3, &json!({"house": wifi("house", 0)}), &json!({}));
    world.board.networks.place(AccessPoint::new("house", PSK));
    unplug(&world);
    assert_joins(&mut world, "house", minutes(1));
    for away in [minutes(1), minutes(30), hours(20)] {
        world.board.networks.silence("house");
        world.run_for(away);
        world.board.networks.place(AccessPoint::new("house", PSK));
        assert_joins(&mut world, "house", minutes(11));
    }
    assert!(world.run_until(minutes(2), |hands| hands.board.web.is_online()));
}

#[test]
fn without_internet_the_next_is_tried_only_where_that_counts_as_offline() {
    let networks = json!({"first": wifi("first", 10), "second": wifi("second", 5), "hotel": wifi("hotel", 7)});
    for (flag, joined) in [(false, "first"), (true, "second")] {
        let flag = json!({"turn_on_hotspot_if_wifi_has_no_internet": flag});
        let mut world = given(4, &networks, &flag);
        world.board.networks.place(AccessPoint { beyond: Beyond::Nothing, ..AccessPoint::new("first", PSK) });
        world.board.networks.place(AccessPoint { beyond: Beyond::Portal, ..AccessPoint::new("hotel", PSK) });
        world.board.networks.place(AccessPoint::new("second", PSK));
        unplug(&world);
        world.run_for(minutes(10));
        assert_eq!(world.board.networks.joined().as_deref(), Some(joined), "{}", world.chronicle.tail(40));
    }
}

#[test]
fn what_is_removed_from_the_configuration_is_removed_and_nothing_else() {
    let mut world = given(5, &json!({"house": wifi("house", 0), "shed": wifi("shed", 1)}), &json!({}));
    let keys = |hands: &Hands| hands.board.networks.ours().into_iter().map(|profile| profile.key).collect::<Vec<_>>();
    assert_eq!(keys(&world), ["net:house", "net:shed"]);
    let puts = world.board.networks.counts().puts;
    world.cloud.set_section("additional_networks", &json!({"house": wifi("house", 0)}));
    assert!(world.run_until(minutes(1), |hands| keys(hands) == ["net:house"]));
    assert_eq!(world.board.networks.counts().puts, puts, "the other one was not written again");
    world.cloud.set_section("additional_networks", &json!({"house": wifi("house", 30)}));
    assert!(world.run_until(minutes(1), |hands| hands.board.networks.ours()[0].priority == 30));
    assert_eq!(world.board.networks.admins(), [any_cable()]);
    // Its own memory of the configuration is gone, and the cloud is silent: what it has is not thrown away.
    world.board.web.set_online(false);
    world.stop_agent();
    let cache = world.board.files.paths().into_iter().find(|path| path.ends_with("config.cache")).expect("stored");
    world.board.files.corrupt(&cache, 20);
    world.start();
    world.run_for(hours(2));
    assert_eq!(keys(&world), ["net:house"]);
}

#[test]
fn a_radio_that_is_plugged_in_late_is_used() {
    let mut world = given(6, &json!({"house": wifi("house", 0)}), &json!({}));
    world.board.networks.unplug_radio("wlan0");
    let before = world.board.networks.counts();
    world.board.networks.place(AccessPoint::new("house", PSK));
    unplug(&world);
    world.run_for(hours(5));
    assert_eq!(world.board.networks.counts(), before, "there was nothing to ask, and nothing to listen with");
    world.board.networks.plug_radio("wlan1", false);
    assert_joins(&mut world, "house", minutes(1));
}

#[test]
fn a_manager_that_comes_late_or_is_restarted_is_picked_up() {
    let mut world = with_radio(7);
    world.board.networks.set_manager(Manager::Absent);
    world.cloud.set_section("additional_networks", &json!({"house": wifi("house", 0)}));
    // The kernel has configured the cable.
    world.board.web.set_online(true);
    world.start();
    assert_serves(&mut world, "1.0.0", minutes(2));
    world.run_for(hours(1));
    assert_eq!(world.board.networks.counts().calls, 0);
    let sentence = "no network manager runs on this device";
    let said = world.cloud.status().network.expect("told").trouble;
    assert!(said.iter().any(|trouble| trouble.contains(sentence)), "{said:?}");
    world.board.networks.set_manager(Manager::Ready);
    assert!(world.run_until(minutes(1), |hands| hands.board.networks.ours().len() == 1));
    assert!(
        world.run_until(minutes(1), |hands| hands.cloud.status().network.is_some_and(|said| said.trouble.is_empty()))
    );
    // Somebody edits our profile while it is away.
    world.board.networks.edit("net:house", |profile| profile.priority = 7);
    world.board.networks.restart_manager(seconds(30));
    assert!(world.run_until(minutes(1), |hands| hands.board.networks.ours()[0].priority == 0));
    // In the middle of joining.
    world.board.networks.set_by_itself(false);
    world.board.networks.place(AccessPoint::new("house", PSK));
    unplug(&world);
    assert!(world.run_until(minutes(1), |hands| hands.board.networks.counts().joins == 1));
    world.board.networks.restart_manager(seconds(5));
    assert_joins(&mut world, "house", minutes(2));
}

#[test]
fn a_cable_with_settings_of_its_own() {
    let static_cable = json!({"type": "wired", "interface": "eth0", "ipv4_address": "10.1.2.3/24",
        "ipv4_gateway": "10.1.2.1", "ipv4_dns": ["10.1.2.1"], "ipv4_route_metric": 50});
    let mut world = given(8, &json!({"line": static_cable}), &json!({}));
    let there = |hands: &Hands| hands.board.networks.links().first().and_then(|link| link.address);
    assert!(world.run_until(minutes(1), |hands| there(hands) == Some(([10, 1, 2, 3].into(), 24))));
    let profile = world.board.networks.ours().remove(0);
    assert_eq!((profile.route_metric, profile.dns.len(), profile.gateway), (50, 1, Some([10, 1, 2, 1].into())));
    assert!(
        world.run_until(minutes(1), |hands| hands.cloud.status().network.is_some_and(|said| said.links.len() == 1))
    );
}

#[test]
fn a_device_that_stays_offline_is_rebooted_after_that_time_and_not_in_a_loop() {
    let mut world = given(9, &json!({"house": wifi("house", 0)}), &json!({"device_reboot_after_offline_minutes": 60}));
    world.run_for(hours(3));
    assert_eq!(world.board.power.reboots().len(), 0, "it was online");
    unplug(&world);
    let began = world.board.clock.elapsed();
    world.run_for(minutes(30));
    world.kill_agent();
    world.run_for(minutes(29));
    assert_eq!(world.board.power.reboots().len(), 0);
    assert!(
        world.run_until(minutes(2), |hands| hands.board.power.reboots().len() == 1),
        "{}",
        world.chronicle.tail(20)
    );
    let after = world.board.power.reboots()[0] - began;
    assert!(after >= minutes(60) && after < minutes(61), "also where the agent was killed meanwhile: {after:?}");
    world.run_for(hours(24));
    let reboots = world.board.power.reboots();
    let apart: Vec<_> = reboots.windows(2).map(|pair| pair[1] - pair[0]).collect();
    // Going down and coming up takes no time here, and the clock shows a little already when it begins.
    assert!(apart.iter().all(|&apart| apart + board_sim::clock::UPTIME_AT_START >= minutes(60)), "{apart:?}");
    assert!(reboots.len() >= 20, "each time it stays offline: {}", reboots.len());
    world.board.networks.cable("eth0", PLUGGED);
    world.board.networks.set_by_itself(true);
    world.run_for(hours(24));
    assert_eq!(world.board.power.reboots().len(), reboots.len(), "online again");
}

#[test]
fn a_reboot_that_the_system_refuses_is_told_and_tried_again() {
    let mut world = given(10, &json!({}), &json!({"device_reboot_after_offline_minutes": 60}));
    world.board.power.refuse(Some("a package is being installed"));
    unplug(&world);
    world.run_for(hours(2));
    world.board.power.refuse(None);
    assert!(world.run_until(hours(2), |hands| hands.board.power.reboots().len() == 1));
}

#[test]
fn disabled_nothing_is_touched_listed_or_scanned() {
    let mut world = with_radio(11);
    world.cloud.set_section("advanced_settings", &json!({"disable_network_configuration": true}));
    let defaults = json!({
        "advanced_settings": {"release_keys": [world.factory.public_key()], "disable_network_configuration": true},
        "network_configuration": {"device_reboot_after_offline_minutes": 60, "wifi_power_save": false}
    });
    let path = api::brand::DEFAULTS_FILE;
    world.board.files.put(path, defaults.to_string(), board::files::Access::Readable);
    world.cloud.set_section("additional_networks", &json!({"house": wifi("house", 0)}));
    world.start();
    assert_serves(&mut world, "1.0.0", minutes(2));
    world.board.networks.place(AccessPoint::new("house", PSK));
    unplug(&world);
    world.run_for(hours(10));
    assert_eq!(world.board.networks.counts().calls, 0);
    assert_eq!(world.board.power.reboots().len(), 0);
    // And used once it is allowed again, given back when it is not.
    world.board.networks.cable("eth0", PLUGGED);
    world.cloud.set_section("advanced_settings", &json!({"disable_network_configuration": false}));
    assert!(world.run_until(minutes(12), |hands| hands.board.networks.ours().len() == 1));
    assert_eq!(world.board.networks.power_save(), Some(false));
}

#[test]
fn the_radio_is_set_as_configured_and_given_back() {
    let wanted = json!({"wifi_power_save": true, "wifi_country": "DE"});
    let mut world = given(12, &json!({}), &wanted);
    let networks = |hands: &Hands| (hands.board.networks.power_save(), hands.board.networks.country());
    assert!(world.run_until(minutes(1), |hands| networks(hands) == (Some(true), Some("DE".into()))));
    world.cloud.set_section("network_configuration", &json!({}));
    assert!(world.run_until(minutes(1), |hands| networks(hands) == (None, None)));
}

#[test]
fn profiles_that_the_manager_refuses_are_told_and_tried_again() {
    let mut world = with_radio(13);
    world.board.networks.refuse_profiles(Some("the disk is full"));
    world.cloud.set_section("additional_networks", &json!({"house": wifi("house", 0)}));
    world.start();
    assert_serves(&mut world, "1.0.0", minutes(2));
    world.run_for(minutes(2));
    let said = world.cloud.status().network.expect("told").trouble;
    assert_eq!(said, ["network \"net:house\": the network manager refused: the disk is full"]);
    assert!(world.board.networks.counts().puts < 4, "{:?}", world.board.networks.counts());
    world.board.networks.refuse_profiles(None);
    assert!(world.run_until(minutes(11), |hands| hands.board.networks.ours().len() == 1));
}

#[test]
fn a_month_offline_costs_little() {
    let mut world = given(14, &json!({"house": wifi("house", 0), "shed": wifi("shed", 1)}), &json!({}));
    world.board.networks.place(AccessPoint::new("somebody else's", "another password"));
    unplug(&world);
    let (before, wakes) = (world.board.networks.counts(), world.board.clock.wakes());
    let month = hours(24 * 30);
    world.run_for(month);
    let wakes = world.board.clock.wakes() - wakes;
    let after = world.board.networks.counts();
    let (scans, joins, calls) = (after.scans - before.scans, after.joins - before.joins, after.calls - before.calls);
    println!(
        "a month offline: {scans} scans, {joins} tries, {calls} calls, {wakes} moments at which anybody of the whole agent \
         (or of what it calls) was woken; a scan every 15 s would be 172800"
    );
    assert!((4_000..7_000).contains(&scans), "{scans}");
    assert!(joins < 12_000, "{joins}");
    world.board.networks.place(AccessPoint::new("shed", PSK));
    assert_joins(&mut world, "shed", minutes(11));
    let name = world.board.networks.links().remove(0).ssid;
    assert_eq!(name, Some(ssid("shed")));
}

/// One thing that happens to the network.
fn mishap(world: &mut World, random: &Random) {
    let networks = world.board.networks.clone();
    let name = *random.pick(&["house", "shed", "barn"]);
    let beyond = *random.pick(&[Beyond::Internet, Beyond::Internet, Beyond::Nothing, Beyond::Portal]);
    let dhcp = random.chance(80);
    match random.below(12) {
        0..=2 => networks.place(AccessPoint { beyond, dhcp, ..AccessPoint::new(name, PSK) }),
        3 | 4 => networks.silence(name),
        5 => networks.place(AccessPoint::new(name, "another password")),
        6 => networks.cable("eth0", Cable { plugged: random.chance(50), dhcp, beyond }),
        7 => networks.unplug_radio("wlan0"),
        8 => networks.plug_radio("wlan0", random.chance(50)),
        9 => networks.restart_manager(seconds(1 + random.below(100))),
        10 => networks.refuse_profiles(Some("no room").filter(|_| random.chance(50))),
        _ if random.chance(50) => world.cut_power(),
        _ => world.kill_agent(),
    }
}

#[test]
fn whatever_happens_the_device_comes_back_with_what_it_was_given_and_nothing_else() {
    for seed in 0..12 {
        let networks = json!({"house": wifi("house", 3), "shed": wifi("shed", 2), "barn": wifi("barn", 1)});
        let flag = json!({"turn_on_hotspot_if_wifi_has_no_internet": seed % 2 == 0});
        let mut world = given(seed, &networks, &flag);
        let random = Random::new(seed);
        let by_itself = random.chance(50);
        world.board.networks.set_by_itself(by_itself);
        for _ in 0..60 {
            mishap(&mut world, &random);
            world.run_for(seconds(1 + random.below(400)));
            assert_eq!(world.board.networks.admins(), [any_cable()], "seed {seed}");
        }
        let air = world.board.networks.clone();
        air.refuse_profiles(None);
        air.set_manager(Manager::Ready);
        air.plug_radio("wlan0", false);
        unplug(&world);
        for name in ["shed", "barn"] {
            air.silence(name);
        }
        air.place(AccessPoint::new("house", PSK));
        // What was refused is tried again after six hours at the latest, and joined within one.
        let back = |hands: &Hands| {
            let ours = hands.board.networks.ours().len() == 3;
            ours && hands.board.networks.joined().as_deref() == Some("house") && hands.board.web.is_online()
        };
        assert!(world.run_until(hours(8), back), "seed {seed}\n{}", world.chronicle.tail(60));
    }
}
