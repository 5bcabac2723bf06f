//! With a maintenance window, what would disturb waits for it; what is broken does not.

use board::{files::Access, process::Exit};
use board_sim::process::Permission;
use serde_json::{Value, json};
use test_harness::world::{World, hours, minutes};

use crate::{assert_serves, serving, starts, variable};

/// A time zone file that says: no offset, no rules.
pub(crate) fn utc() -> Vec<u8> {
    let counts = [0_u32, 0, 0, 0, 1, 4];
    let header =
        [b"TZif2".to_vec(), vec![0; 15], counts.iter().flat_map(|count| count.to_be_bytes()).collect()].concat();
    let data = [&[0_u8, 0, 0, 0, 0, 0][..], b"UTC\0"].concat();
    [header.clone(), data.clone(), header, data, b"\nUTC0\n".to_vec()].concat()
}

fn window(use_server_word: bool) -> Value {
    let days = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
    let window = json!({"days": days, "from": "02:00", "to": "04:30", "tz": "local"});
    json!({"windows": [window], "use_server_word": use_server_word})
}

/// 1.0.0 serves since Monday 08:00, and the window is from two to half past four at night.
fn nightly(seed: u64, use_server_word: bool) -> World {
    let mut world = serving(seed);
    world.board.files.put("/etc/localtime", utc(), Access::Readable);
    world.cloud.set_section("advanced_settings", &json!({"maintenance": window(use_server_word)}));
    world.run_for(minutes(5));
    world
}

#[test]
fn a_new_version_starts_in_the_window_without_a_restart_of_the_agent() {
    let mut world = nightly(1, true);
    world.cloud.set_section("version_control", &json!({"platform-server": "1.1.0"}));
    world.run_for(hours(17));
    assert_eq!((starts(&world), world.board.processes.serving().as_deref()), (1, Some("1.0.0")), "it is not two yet");
    assert_serves(&mut world, "1.1.0", hours(2));
    assert_eq!(starts(&world), 2);
}

#[test]
fn a_changed_environment_waits_for_it_too() {
    let mut world = nightly(2, true);
    let settings = json!({"maintenance": window(true), "platform_server_env": {"GREETING": "hello"}});
    world.cloud.set_section("advanced_settings", &settings);
    world.run_for(hours(17));
    assert_eq!(starts(&world), 1);
    let pending = world.cloud.status().server.map(|server| server.restart_pending).unwrap_or_default();
    assert!(pending.contains("window"), "{pending}");
    assert!(world.run_until(hours(2), |hands| variable(hands, "GREETING").is_some()));
}

#[test]
fn the_machine_server_may_refuse_inside_the_window_unless_its_word_does_not_count() {
    for (counts, starts_expected) in [(true, 1), (false, 2)] {
        let mut world = nightly(3, counts);
        world.board.processes.permit(Permission::Refused);
        let settings = json!({"maintenance": window(counts), "platform_server_env": {"GREETING": "hello"}});
        world.cloud.set_section("advanced_settings", &settings);
        world.run_for(hours(24));
        assert_eq!(starts(&world), starts_expected, "its word counts: {counts}");
    }
}

#[test]
fn a_crash_and_an_operator_do_not_wait() {
    let mut world = nightly(4, true);
    world.crash_server(Exit::Signal(11));
    world.run_for(minutes(1));
    assert_eq!(starts(&world), 2);
    world.cloud.mark_for_restart();
    world.run_for(minutes(1));
    assert_eq!(starts(&world), 3);
}

#[test]
fn a_window_in_an_unknown_zone_stays_shut() {
    let mut world = serving(5);
    let window = json!({"days": ["mon", "tue"], "from": "00:00", "to": "23:59", "tz": "Atlantis/Capital"});
    world.cloud.set_section("advanced_settings", &json!({"maintenance": {"windows": [window]}}));
    world.cloud.set_section("version_control", &json!({"platform-server": "1.1.0"}));
    world.run_for(hours(24));
    assert_eq!(world.board.processes.serving().as_deref(), Some("1.0.0"), "opening at a guessed hour is worse");
}
