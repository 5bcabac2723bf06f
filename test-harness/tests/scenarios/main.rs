//! Promises to the user, one file each, kept by the agent of production in a simulated world.
//!
//! A scenario reads as what happens and what somebody sees of it: the machine server that runs, the report on the fleet
//! server, the log lines that arrived. `UPDATE_EXPECT=1` writes expected chronicles anew.

mod a_bad_field_costs_one_field;
mod a_change_fans_out;
mod a_full_disk;
mod a_hung_server;
mod a_lost_record;
mod a_restart_asked_for;
mod a_weekend_offline;
mod agents_that_fail;
mod an_agent_updates_itself;
mod boards_that_sleep;
mod changed_networks;
mod clocks_that_jump;
mod crash_loops;
mod damaged_trust;
mod disks_that_refuse;
mod environment_waits_for_permission;
mod given_away;
mod maintenance_windows;
mod managers_that_interrupt;
mod networks;
mod nonsense_from_the_cloud;
mod nothing_delays_a_restart;
mod one_download_at_a_time;
mod power_cuts;
mod provisioning;
mod records_that_are_lost;
mod refused_bytes;
mod safe_starts;
mod secrets_stay_secret;
mod shutting_down;
mod starts_that_never_end;
mod tethering;
mod updates;
mod updates_that_fail;
mod visitors;
mod waiting_for_updates;

use std::time::Duration;

use board_sim::process::Script;
use test_harness::world::{Hands, Seed, World, minutes};

/// A world in which the agent has just been started for the first time.
fn started(seed: u64) -> World {
    started_with(seed, "1.0.0", Script::default())
}

/// The same, where this version behaves as `script` says.
fn started_with(seed: u64, version: &str, script: Script) -> World {
    let mut world = World::new(Seed(seed));
    world.board.processes.script(version, script);
    world.start();
    world
}

/// A world in which version 1.0.0 serves.
#[track_caller]
fn serving(seed: u64) -> World {
    let mut world = started(seed);
    assert_serves(&mut world, "1.0.0", minutes(2));
    world
}

#[track_caller]
fn assert_serves(world: &mut World, version: &str, within: Duration) {
    let serves = world.run_until(within, |hands| hands.board.processes.serving().as_deref() == Some(version));
    assert!(serves, "{version} does not serve\n{}", world.chronicle.tail(60));
}

/// The value that the running machine server sees.
fn variable(hands: &Hands, name: &str) -> Option<String> {
    let running = hands.board.processes.running();
    let environment = &running.first()?.launch.environment;
    environment.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value.clone())
}

/// How often a machine server was started so far.
fn starts(hands: &Hands) -> usize {
    hands.board.processes.starts().0
}
