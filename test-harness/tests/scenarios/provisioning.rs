//! People near a device that has no network: what they see, what they give, and what becomes of it.

use std::time::Duration;

use api::brand;
use board::network::Manager;
use board_sim::{
    console::Manner,
    radio::{AccessPoint, Beyond, Cable, any_cable},
};
use expect_test::expect;
use serde_json::json;
use test_harness::world::{
    Hands, Seed, World, cloud, factory, hours, minutes,
    person::{Asking, Phone},
    seconds,
};

pub(crate) const PSK: &str = "correct horse";
pub(crate) const OTHER: &str =
    r#"{"cloud": {"app_address": "https://thief.example.com", "id": "stolen", "secret": "planted-thief"}}"#;

pub(crate) fn credentials() -> String {
    json!({"cloud": {"app_address": factory::SERVER, "id": cloud::PART_ID, "secret": cloud::SECRET}}).to_string()
}

/// A device with one radio and no network at all; a home network is in the air.
pub(crate) fn device(seed: u64, both: bool, has_identity: bool) -> World {
    let mut world = World::new(Seed(seed));
    world.board.networks.install();
    world.board.networks.plug_radio("wlan0", both);
    world.board.networks.place(AccessPoint::new("home", PSK));
    world.board.networks.by_admin(any_cable());
    if !has_identity {
        world.board.files.take_away(brand::CREDENTIALS_FILE);
    }
    world.start();
    world
}

#[track_caller]
pub(crate) fn assert_hotspot(world: &mut World, within: Duration) {
    let open = world.run_until(within, |hands| hands.board.doorway.address().is_some());
    assert!(open, "no hotspot\n{}", world.chronicle.tail(40));
}

#[track_caller]
pub(crate) fn phone(world: &World) -> Phone {
    world.phone(20, &world.label()).expect("the label is right")
}

pub(crate) fn online(hands: &Hands) -> bool {
    hands.board.networks.joined().is_some() && hands.cloud.report().is_some()
}

fn doors(world: &World) -> String {
    let lines = world.chronicle.render();
    lines.lines().filter(|line| line.contains("  provisioning ")).map(|line| format!("{line}\n")).collect()
}

#[test]
fn bridges_of_containers_do_not_keep_the_hotspot_shut() {
    let mut world = device(18, false, false);
    // k3s takes what the hotspot usually has; a tunnel has an address that is said to be everywhere.
    for bridge in [([10, 42, 0, 1], 24), ([10, 42, 1, 0], 24), ([172, 17, 0, 1], 16), ([100, 64, 0, 9], 0)] {
        world.board.networks.bridge((bridge.0.into(), bridge.1));
    }
    assert_hotspot(&mut world, minutes(1));
    let open = world.board.networks.hotspot().expect("open");
    assert_eq!(open.address, ([10, 42, 2, 1].into(), 24), "{}", doors(&world));
    // One that comes while it is open is no reason to throw a person out.
    world.board.networks.bridge(([10, 42, 2, 1].into(), 24));
    world.run_for(minutes(1));
    assert_eq!(world.board.networks.hotspot(), Some(open));
}

#[test]
fn a_new_device_is_set_up_by_a_person_who_mistypes_once() {
    let mut world = device(1, false, false);
    assert_hotspot(&mut world, minutes(1));
    let phone = phone(&world);
    assert_eq!(world.probe(phone).expect("answered").status, 302, "the sheet opens by itself");
    let page = world.open_page(phone).expect("a page");
    assert!(page.says("bench-robot"), "{}", page.text);
    let page = world.give_identity(phone, &credentials()).expect("a page");
    assert_eq!(page.status, 200, "{}", page.text);
    let stored = world.board.files.content(brand::CREDENTIALS_FILE).expect("stored");
    assert!(String::from_utf8(stored).expect("text").contains(cloud::SECRET));
    assert_eq!(world.board.files.access(brand::CREDENTIALS_FILE), Some(board::files::Access::Private));

    world.give_network(phone, "home", "wrong horse").expect("a page that says what comes");
    let gone = world.run_until(seconds(20), |hands| hands.board.networks.hotspot().is_none());
    assert!(gone, "this radio cannot do both");
    assert_hotspot(&mut world, minutes(2));
    // Whatever the phone asks by itself, the reason stays for its owner.
    for _ in 0..20 {
        world.probe(phone).expect("answered");
    }
    let page = world.open_page(phone).expect("a page");
    assert!(page.says("wrong password for home"), "{}", page.text);
    // Listening again finds the device's own hotspot too, which nobody can choose.
    world.fill_in(phone, "/rescan", &[]).expect("a page");
    world.run_for(seconds(20));
    let page = world.open_page(phone).expect("a page");
    let choice = |name: &str| format!("x{}", name.bytes().map(|byte| format!("{byte:02x}")).collect::<String>());
    assert!(page.says(&choice("home")) && !page.says(&choice("platform-setup-bench-robot")), "{}", page.text);
    world.give_network(phone, "home", PSK).expect("a page");
    let up = world.run_until(minutes(2), online);
    assert!(up, "{}", world.chronicle.tail(60));
    world.run_for(minutes(2));
    assert!(world.board.networks.hotspot().is_none(), "the doors are closed");
    assert_eq!(world.cloud.status().provisioning.expect("told").last_result, "joined");
    expect![[r#"
        00:00  provisioning Resting → Inviting
        00:02  provisioning hotspot platform-setup-bench-robot up at 10.42.0.1 on channel 1
        00:06  provisioning is now part part-0
        00:08  provisioning Inviting → Parting
        00:11  provisioning Parting → Clearing
        00:11  provisioning Clearing → Joining
        00:11  provisioning join home as attempt 1
        00:19  provisioning Joining → Inviting
        00:19  provisioning home: wrong password for home
        00:21  provisioning hotspot platform-setup-bench-robot up at 10.42.0.1 on channel 1
        01:07  provisioning Inviting → Parting
        01:10  provisioning Parting → Clearing
        01:10  provisioning Clearing → Joining
        01:10  provisioning join home as attempt 2
        01:14  provisioning Joining → Showing
        01:14  provisioning home: joined
        02:14  provisioning Showing → Resting
    "#]]
    .assert_eq(&doors(&world));
}

#[test]
fn a_radio_that_can_do_both_shows_the_result_at_once() {
    let mut world = device(2, true, true);
    assert_hotspot(&mut world, minutes(3));
    let phone = phone(&world);
    world.give_network(phone, "home", "wrong horse").expect("a page");
    for _ in 0..15 {
        world.run_for(seconds(1));
        assert!(world.board.networks.hotspot().is_some(), "the hotspot stays while it is tried");
    }
    let page = world.open_page(phone).expect("a page");
    assert!(page.says("wrong password for home"), "{}", page.text);
    world.give_network(phone, "home", PSK).expect("a page");
    let up = world.run_until(seconds(30), |hands| hands.board.networks.joined().is_some());
    assert!(up, "{}", world.chronicle.tail(60));
    assert!(world.board.networks.hotspot().is_some(), "a person looks");
    let page = world.open_page(phone).expect("a page");
    assert!(page.says("home") && !page.says("wrong password"), "{}", page.text);
    let closed = world.run_until(seconds(30), |hands| hands.board.networks.hotspot().is_none());
    assert!(closed, "seen, and closed");
    assert!(world.run_until(minutes(1), online), "{}", world.chronicle.tail(60));
    expect![[r#"
        02:00  provisioning Resting → Inviting
        02:02  provisioning hotspot platform-setup-bench-robot up at 10.42.0.1 on channel 1
        02:03  provisioning Inviting → Joining
        02:03  provisioning join home as attempt 1
        02:11  provisioning Joining → Inviting
        02:11  provisioning home: wrong password for home
        02:21  provisioning Inviting → Joining
        02:21  provisioning join home as attempt 2
        02:25  provisioning Joining → Showing
        02:25  provisioning home: joined
        02:36  provisioning Showing → Resting
    "#]]
    .assert_eq(&doors(&world));
}

#[test]
fn a_weekend_without_a_network_costs_nothing_but_invitations() {
    let mut world = device(3, false, true);
    world.run_for(hours(60));
    let invitations = world.chronicle.count("provisioning", "→ Inviting");
    // Ten minutes open, one to five closed.
    assert!((240..340).contains(&invitations), "{invitations} in 60 hours");
    world.board.networks.cable("eth0", Cable { plugged: true, dhcp: true, beyond: Beyond::Internet });
    let up = world.run_until(minutes(6), |hands| hands.cloud.report().is_some());
    assert!(up, "{}", world.chronicle.tail(40));
    world.run_for(seconds(30));
    assert!(world.board.networks.hotspot().is_none());
    assert!(!world.cloud.status().provisioning.expect("told").open);
}

#[test]
fn nobody_takes_a_device_over_that_belongs_to_somebody() {
    let mut world = device(4, true, true);
    let before = world.board.files.content(brand::CREDENTIALS_FILE);
    world.board.web.set_online(false);
    assert_hotspot(&mut world, minutes(3));
    let thief = phone(&world);
    let page = world.give_identity(thief, OTHER).expect("a page");
    assert!(page.status >= 400 && page.says("belongs to somebody"), "{} {}", page.status, page.text);
    // Together with a network, which he may give, and without the page's own form.
    let both = [("network", "other"), ("name", "evil"), ("password", "evil-password"), ("credentials", OTHER)];
    let page = world.fill_in(thief, "/join", &both).expect("a page");
    assert!(page.status >= 400, "{}", page.text);
    let body = format!("credentials={OTHER}");
    let forged = Asking { method: "POST", path: "/join", body, ..Asking::default() };
    assert_eq!(world.ask(thief, forged).expect("a page").status, 403);
    world.run_for(minutes(30));
    assert_eq!(world.board.files.content(brand::CREDENTIALS_FILE), before);
    // The network may always be changed.
    world.board.web.set_online(true);
    assert_hotspot(&mut world, minutes(12));
    world.give_network(thief, "home", PSK).expect("a page");
    assert!(world.run_until(minutes(3), online), "{}", world.chronicle.tail(60));
    assert_eq!(world.board.files.content(brand::CREDENTIALS_FILE), before);
}

#[test]
fn whoever_stands_at_the_device_may_give_it_away() {
    let mut world = device(5, true, true);
    world.board.networks.cable("eth0", Cable { plugged: true, dhcp: true, beyond: Beyond::Internet });
    assert!(world.run_until(minutes(2), |hands| hands.cloud.report().is_some()));
    assert!(world.board.networks.hotspot().is_none());
    // A button, a boot partition, a script.
    world.board.files.put("/opt/platform/etc/force_provisioning_mode", "", board::files::Access::Readable);
    assert_hotspot(&mut world, minutes(1));
    assert_eq!(world.board.files.content("/opt/platform/etc/force_provisioning_mode"), None, "it counts once");
    let phone = phone(&world);
    let page = world.give_identity(phone, OTHER).expect("a page");
    assert_eq!(page.status, 200, "{}", page.text);
    let stored = world.board.files.content(brand::CREDENTIALS_FILE).expect("stored");
    assert!(String::from_utf8_lossy(&stored).contains("thief.example.com"));
    // One act is one change.
    let page = world.give_identity(phone, &credentials()).expect("a page");
    assert!(page.status >= 400, "{}", page.text);
    world.run_for(minutes(12));
    assert!(world.board.networks.hotspot().is_none());
    // By hand, at the console.
    let asked = world.board.console.ask(Manner::polite("provision 1"));
    assert_hotspot(&mut world, minutes(1));
    assert_eq!(asked.outcome(), board_sim::console::Outcome::Answered(b"ok\n".to_vec()));
    assert!(world.cloud.status().provisioning.expect("told").forced || world.board.networks.hotspot().is_some());
    world.run_for(minutes(12));
    assert!(world.board.networks.hotspot().is_none());
}

#[test]
fn whoever_walks_away_is_not_waited_for() {
    let mut world = device(6, false, true);
    assert_hotspot(&mut world, minutes(3));
    let begin = world.board.clock.elapsed();
    let phone = phone(&world);
    world.run_for(minutes(8));
    world.open_page(phone).expect("a page");
    let gone = world.run_until(minutes(30), |hands| hands.board.networks.hotspot().is_none());
    let after = world.board.clock.elapsed() - begin;
    assert!(gone && after > minutes(12) && after < minutes(15), "five minutes after the last thing done: {after:?}");
}

#[test]
fn the_questions_of_a_phone_hold_no_door_open() {
    let mut world = device(7, false, true);
    assert_hotspot(&mut world, minutes(3));
    let begin = world.board.clock.elapsed();
    let phone = phone(&world);
    while world.board.networks.hotspot().is_some() {
        world.probe(phone);
        assert!(world.board.clock.elapsed() - begin < minutes(11), "a probe is no person");
        world.run_for(seconds(5));
    }
}

#[test]
fn a_result_that_nobody_has_seen_waits_for_a_day() {
    let mut world = device(8, false, true);
    assert_hotspot(&mut world, minutes(3));
    let visitor = phone(&world);
    world.give_network(visitor, "attic", "some password").expect("a page");
    world.run_for(hours(24));
    assert_hotspot(&mut world, minutes(6));
    let visitor = phone(&world);
    let page = world.open_page(visitor).expect("a page");
    assert!(page.says("no network named attic is in range"), "{}", page.text);
}

#[test]
fn a_port_that_is_taken_and_a_manager_that_restarts_are_waited_out() {
    let mut world = device(9, false, true);
    world.board.doorway.take_port(true);
    world.run_for(minutes(5));
    let told = world.board.console.ask(Manner::polite("status 1"));
    world.run_for(seconds(2));
    assert!(matches!(told.outcome(), board_sim::console::Outcome::Answered(_)));
    assert!(world.board.doorway.address().is_none());
    world.board.doorway.take_port(false);
    assert_hotspot(&mut world, minutes(3));
    world.board.networks.restart_manager(seconds(20));
    world.run_for(seconds(40));
    assert_hotspot(&mut world, minutes(1));
    world.board.networks.set_manager(Manager::Absent);
    world.run_for(hours(3));
    world.board.networks.set_manager(Manager::Ready);
    assert_hotspot(&mut world, minutes(7));
    // A radio that is pulled out and comes back.
    world.board.networks.unplug_radio("wlan0");
    world.run_for(minutes(20));
    assert!(world.board.doorway.address().is_none());
    world.board.networks.plug_radio("wlan0", false);
    assert_hotspot(&mut world, minutes(7));
}

#[test]
fn an_agent_that_is_killed_leaves_no_hotspot_behind() {
    let mut world = device(10, false, true);
    assert_hotspot(&mut world, minutes(3));
    world.kill_agent();
    let closed = world.run_until(minutes(1), |hands| hands.board.networks.hotspot().is_none());
    assert!(closed, "what is left is closed before anything else");
    assert_hotspot(&mut world, minutes(5));
    world.stop_agent();
    assert!(world.board.networks.hotspot().is_none(), "one that ends closes its doors");
}

#[test]
fn switched_off_is_switched_off() {
    let mut world = World::new(Seed(11));
    world.board.networks.install();
    world.board.networks.plug_radio("wlan0", true);
    let off = json!({"advanced_settings": {"disable_network_configuration": true}});
    world.board.files.put(brand::DEFAULTS_FILE, off.to_string(), board::files::Access::Readable);
    world.start();
    world.run_for(hours(6));
    assert_eq!(world.board.networks.counts().calls, 0, "not a single call");
    world.board.console.ask(Manner::polite("provision 1"));
    world.run_for(minutes(2));
    assert!(world.board.networks.hotspot().is_none());
}

#[test]
fn no_secret_is_ever_said() {
    let mut world = device(12, true, false);
    assert_hotspot(&mut world, minutes(1));
    let visitor = phone(&world);
    world.give_network(visitor, "home", "planted-psk-1").expect("a page");
    world.run_for(seconds(20));
    world.give_identity(visitor, &credentials().replace(cloud::SECRET, "planted-secret")).expect("a page");
    world.give_network(visitor, "home", PSK).expect("a page");
    world.run_for(minutes(3));
    world.board.files.put(brand::CREDENTIALS_FILE, credentials(), board::files::Access::Private);
    assert!(world.run_until(minutes(11), |hands| hands.cloud.report().is_some()), "{}", world.chronicle.tail(40));
    world.run_for(minutes(1));
    let said: Vec<_> = world.cloud.lines().into_iter().map(|kept| kept.entry.message).collect();
    let said = format!("{}\n{}\n{:?}", world.chronicle.render(), said.join("\n"), world.cloud.status());
    for secret in ["planted", PSK, cloud::SECRET, brand::HOTSPOT_PASSWORD] {
        assert!(!said.contains(secret), "{secret} was said");
    }
}

#[test]
pub(crate) fn credentials_that_are_put_right_are_noticed_within_seconds() {
    let mut world = World::new(Seed(13));
    let wrong = credentials().replace(cloud::SECRET, "revoked");
    world.board.files.put(brand::CREDENTIALS_FILE, wrong, board::files::Access::Private);
    world.start();
    world.run_for(hours(2));
    assert!(world.cloud.report().is_none());
    world.board.files.put(brand::CREDENTIALS_FILE, credentials(), board::files::Access::Private);
    let up = world.run_until(seconds(15), |hands| hands.cloud.report().is_some());
    assert!(up, "a wait of up to ten minutes ends with the reason for it\n{}", world.chronicle.tail(20));
}
