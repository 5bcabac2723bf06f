//! What is secret is in no chronicle, no report, no log line, and in no file that others may read.

use board::{files::Access, process::Exit};
use board_sim::{Reached, radio::AccessPoint};
use serde_json::json;
use test_harness::world::{Seed, World, hours, minutes, seconds};

use crate::{assert_serves, serving, variable};

const PLANTED: &str = "planted-7f3a";

fn assert_hidden(world: &World) {
    assert!(!world.chronicle.render().contains(PLANTED), "in the chronicle");
    let (_, status) = world.cloud.report().expect("it has reported");
    assert!(!format!("{status:?}").contains(PLANTED), "in the report: {status:?}");
    let said = world.cloud.lines();
    let told = said.iter().find(|kept| format!("{:?}", kept.entry).contains(PLANTED));
    assert!(told.is_none(), "in a log line: {told:?}");
    for path in world.board.files.paths() {
        let content = world.board.files.content(&path).unwrap_or_default();
        let holds = content.windows(PLANTED.len()).any(|window| window == PLANTED.as_bytes());
        assert!(!holds || world.board.files.access(&path) == Some(Access::Private), "{} is for all", path.display());
    }
}

#[test]
fn of_the_environment_and_of_networks() {
    let mut world = serving(1);
    world.cloud.set_section("advanced_settings", &json!({"platform_server_env": {"TOKEN": PLANTED}}));
    let networks = json!({"home": {"type": "wifi", "ssid": "home", "psk": PLANTED, "priority": 5000}});
    world.cloud.set_section("additional_networks", &networks);
    world.cloud.set_section("network_configuration", &json!({"hotspot_password": PLANTED}));
    assert!(world.run_until(minutes(2), |hands| variable(hands, "TOKEN").as_deref() == Some(PLANTED)));
    world.crash_server(Exit::Code(1));
    world.run_for(minutes(30));
    world.cut_power();
    world.run_for(minutes(30));
    assert_eq!(variable(&world, "TOKEN").as_deref(), Some(PLANTED), "it reaches whom it is for");
    assert_hidden(&world);
}

#[test]
fn of_networks_that_are_stored_refused_and_joined() {
    let mut world = World::new(Seed(4));
    let networks = &world.board.networks;
    networks.install();
    networks.plug_radio("wlan0", false);
    networks.place(AccessPoint::new("refuses", "another password"));
    networks.place(AccessPoint::new("home", PLANTED));
    let given = json!({
        "home": {"type": "wifi", "ssid": "home", "psk": PLANTED},
        "refuses": {"type": "wifi", "ssid": "refuses", "psk": PLANTED, "priority": 10}
    });
    // From the manufacturer: it has to be online once before it can be told.
    let defaults = json!({
        "advanced_settings": {"release_keys": [world.factory.public_key()]}, "additional_networks": given
    });
    world.board.files.put(api::brand::DEFAULTS_FILE, defaults.to_string(), Access::Private);
    world.board.networks.set_by_itself(false);
    world.start();
    assert_serves(&mut world, "1.0.0", minutes(5));
    assert_eq!(world.board.networks.joined().as_deref(), Some("home"));
    world.board.networks.refuse_profiles(Some("no room"));
    let changed = json!({"home": {"type": "wifi", "ssid": "home", "psk": PLANTED, "priority": 3}});
    world.cloud.set_section("additional_networks", &changed);
    world.run_for(minutes(30));
    let told = world.cloud.status().network.expect("told");
    assert!(told.trouble.iter().any(|why| why.contains("no room")), "{told:?}");
    assert!(world.board.networks.counts().joins >= 2);
    assert_hidden(&world);
}

#[test]
fn also_where_it_is_of_the_wrong_kind() {
    let mut world = serving(2);
    world.cloud.set_section(
        "advanced_settings",
        &json!({"platform_server_env": {"TOKEN": [PLANTED]}, "disk_reserve_megabytes": 10.5}),
    );
    world.cloud.set_section("additional_networks", &json!({"home": {"type": PLANTED, "psk": {"is": PLANTED}}}));
    world.run_for(minutes(5));
    assert!(world.cloud.status().complaints.len() >= 2);
    let complaints = world.cloud.status().complaints;
    let of_secrets =
        complaints.iter().filter(|complaint| complaint.path.contains("psk") || complaint.path.contains("env"));
    assert!(of_secrets.clone().count() >= 1, "{complaints:?}");
    assert!(of_secrets.clone().all(|complaint| !complaint.found.contains(PLANTED)), "{complaints:?}");
}

#[test]
fn the_parts_own_secret_and_a_pin_with_a_password() {
    let mut world = serving(3);
    let pin = format!("https://user:{PLANTED}@mirror.test/server?token={PLANTED}");
    world.cloud.set_section("version_control", &json!({"platform-server": pin}));
    world.run_for(hours(2));
    world.board.files.interrupt_at_write(1, board_sim::Interruption::PowerCut, Reached::Part);
    world.cloud.mark_for_restart();
    world.run_for(hours(1) + seconds(1));
    assert_hidden(&world);
}
