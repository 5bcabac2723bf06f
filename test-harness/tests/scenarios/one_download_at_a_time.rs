//! There is room for one unfinished download, and neither product can keep the other from it for ever.

use api::brand;
use board::files::Access;
use board_sim::fetch::Spoiled;
use serde_json::json;
use test_harness::world::{cloud::Mood, factory::IMAGE_BYTES, hours, minutes};

use crate::an_agent_updates_itself::settled;

const STUCK: u64 = IMAGE_BYTES as u64 * 2 / 3;

/// The machine server's next version never arrives well; the agent's, which came later, does.
fn the_agent_arrives_beside(seed: u64, how: Spoiled) {
    let mut world = settled(seed);
    world.factory.tamper("1.1.0", |resource| resource.spoiled(how.clone()));
    world.factory.channel("stable", "1.1.0");
    world.run_for(hours(3));
    world.factory.release_agent("2.0.0");
    world.factory.agent_channel("stable", "2.0.0");
    let arrived = world.run_until(hours(12), |hands| hands.agents.version().as_deref() == Some("2.0.0"));
    assert!(arrived, "{how:?}\n{}", world.chronicle.tail(30));
    // And the other one is not given up.
    world.factory.tamper("1.1.0", |resource| board_sim::fetch::Resource { spoiled: None, ..resource });
    world.run_for(hours(8));
    world.restart_agent();
    world.run_for(minutes(2));
    assert_eq!(world.board.processes.serving().as_deref(), Some("1.1.0"));
}

#[test]
fn wrong_bytes_do_not_hold_the_room() {
    the_agent_arrives_beside(1, Spoiled::FlippedBit(100_000));
    the_agent_arrives_beside(2, Spoiled::CaptivePage);
}

#[test]
fn a_download_that_gains_nothing_does_not_hold_the_room() {
    the_agent_arrives_beside(3, Spoiled::EndsAfter(STUCK));
    the_agent_arrives_beside(4, Spoiled::StallsAfter(STUCK));
}

#[test]
fn a_download_that_waits_for_a_network_does_not_hold_up_a_stick() {
    let mut world = settled(5);
    world.factory.tamper("1.1.0", |resource| resource.spoiled(Spoiled::StallsAfter(STUCK)));
    world.cloud.set_section("version_control", &json!({"platform-server": "1.1.0"}));
    world.run_for(minutes(20));
    world.board.web.set_online(false);
    world.cloud.set_mood(Mood::Error(14));
    world.run_for(minutes(5));
    let image = world.factory.agent_image("2.0.0");
    world.board.files.put("/media/stick/agent", image, Access::Executable);
    let defaults = json!({
        "advanced_settings": {"release_keys": [world.factory.public_key()]},
        "version_control": {"agent": "file:///media/stick/agent"},
    });
    world.board.files.put(brand::DEFAULTS_FILE, defaults.to_string(), Access::Readable);
    world.restart_agent();
    let installed = world.run_until(hours(2), |hands| hands.agents.version().as_deref() == Some("2.0.0"));
    assert!(installed, "{}", world.chronicle.tail(30));
}

#[test]
fn who_waits_says_so() {
    let mut world = settled(6);
    world.factory.tamper("1.1.0", |resource| resource.spoiled(Spoiled::StallsAfter(STUCK)));
    world.cloud.set_section("version_control", &json!({"platform-server": "1.1.0"}));
    world.run_for(minutes(10));
    world.factory.release_agent("2.0.0");
    world.cloud.set_section("version_control", &json!({"platform-server": "1.1.0", "agent": "2.0.0"}));
    let said = world.run_until(hours(2), |hands| {
        let status = hands.cloud.report().map(|(_, status)| status.updates).unwrap_or_default();
        status.iter().any(|update| update.last_error.contains("the other download"))
    });
    assert!(said, "{}", world.chronicle.tail(30));
    let arrived = world.run_until(hours(3), |hands| hands.agents.version().as_deref() == Some("2.0.0"));
    assert!(arrived, "{}", world.chronicle.tail(30));
}
