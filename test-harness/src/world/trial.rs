//! One device through a bad day, and whether it is well afterwards.
//!
//! Owns what "well" means at the end: the machine server that is wanted serves with the environment that is wanted, the
//! fleet server knows it, and every line has arrived. On the way only the invariants have to hold.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

use board_sim::process::Script;
use serde_json::json;

use super::{Seed, World, faults, hours, minutes, seconds};

/// How long a bad day is.
const DAY: Duration = hours(6);
/// Misfortunes in one day.
const FAULTS: u64 = 40;
/// Time for everything to become well again: longer than the longest back-off, six hours.
const RECOVERY: Duration = hours(8);

/// Runs the world of this seed, made by `make`. `Err` has what broke and the chronicle up to there.
pub fn run(seed: Seed, make: impl FnOnce(Seed) -> World) -> Result<(), String> {
    let mut world = make(seed);
    let hands = world.hands.clone();
    let lived = catch_unwind(AssertUnwindSafe(|| {
        bad_day(&mut world);
        assert_well(&mut world);
    }));
    if lived.is_ok() {
        return Ok(());
    }
    // The tasks of a world that broke are in no state to be let go.
    std::mem::forget(world);
    Err(hands.chronicle.render())
}

fn bad_day(world: &mut World) {
    let random = world.board.random.branch();
    for version in ["1.0.0", "1.1.0", "1.2.0-dev"] {
        let script = Script {
            ready_after: Some(Duration::from_millis(random.below(60_000))),
            chatter: Some(seconds(5 + random.below(60))),
            ignores_sigterm: random.chance(20),
            children: usize::try_from(random.below(3)).unwrap_or(0),
            stop_takes: Duration::from_millis(random.below(20_000)),
            ..Script::default()
        };
        world.board.processes.script(version, script);
    }
    world.start();
    faults::plan(world, &random, FAULTS, DAY);
    while world.board.clock.elapsed() < DAY {
        world.run_for(minutes(30 + random.below(60)));
        match random.below(6) {
            0 => world.restart_agent(),
            1 => world.kill_agent(),
            2 => world.cut_power(),
            _ => {}
        }
    }
    world.run_for(faults::FAULT_MAX);
}

fn assert_well(world: &mut World) {
    faults::heal(world);
    let wanted = "1.3.0";
    world.factory.release(wanted);
    world.cloud.set_section("advanced_settings", &json!({"platform_server_env": {"LAST": "word"}}));
    world.cloud.set_section("version_control", &json!({"platform-server": wanted}));
    world.run_for(RECOVERY);
    world.restart_agent();
    // Two openings: the first may be answered before a download that a fault had put off for hours.
    world.run_for(RECOVERY);
    world.restart_agent();
    world.run_for(minutes(30));
    let serving = world.board.processes.serving();
    assert_eq!(serving.as_deref(), Some(wanted), "what is wanted does not serve in the end");
    let running = world.board.processes.running();
    let last = running.first().and_then(|start| start.launch.environment.iter().rev().find(|(key, _)| key == "LAST"));
    assert!(last.is_some(), "the last change of the configuration got lost");
    let (at, status) = world.cloud.report().expect("it has reported");
    assert!(world.board.clock.elapsed() - at < minutes(11), "it no longer reports");
    let version = status.server.map(|server| server.version).unwrap_or_default();
    assert_eq!(version, wanted, "the fleet server was told something else");
    assert!(!world.cloud.is_marked(), "somebody still waits for a restart");
    assert_eq!(status.logs.map_or(0, |logs| logs.queued_bytes / 100_000), 0, "lines are not delivered");
}
