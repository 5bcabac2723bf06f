//! One device through some bad days, and whether it is well afterwards.
//!
//! Owns what "well" means at the end: the machine server that is wanted serves with the environment that is wanted, the
//! fleet server knows it, and every line has arrived. On the way only the invariants have to hold.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

use api::pb::platform::fleet::v1::update_status::Phase;
use board::process::Exit;
use board_sim::{Random, process::Script};
use serde_json::json;

use super::{Seed, World, faults, hours, launch::Conduct, minutes, seconds};

/// How long the bad time is.
const BAD_TIME: Duration = hours(72);
/// Misfortunes in that time: a calm device, a usual one, and one that never has a quiet hour.
const FAULTS: [u64; 3] = [12, 60, 400];
/// How often the fleet server wants to be asked.
const POLL: Duration = seconds(60);
/// Time for everything to become well again: longer than the longest back-off, six hours.
const RECOVERY: Duration = hours(8);

/// What a device has lived through.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lived {
    /// How long.
    pub time: Duration,
    /// How often one of its actors went from one state to another.
    pub transitions: u64,
    /// How often its agent was started.
    pub lives: u64,
    /// How often the launcher started another version of it than the time before.
    pub switches: u64,
    /// How often a machine server was started.
    pub starts: u64,
}

/// Runs the world of this seed, made by `make`. `Err` has what broke and the chronicle up to there.
pub fn run(seed: Seed, make: impl FnOnce(Seed) -> World) -> Result<Lived, String> {
    let mut world = make(seed);
    let hands = world.hands.clone();
    let lived = catch_unwind(AssertUnwindSafe(|| {
        bad_days(&mut world);
        assert_well(&mut world);
    }));
    if lived.is_err() {
        // The tasks of a world that broke are in no state to be let go.
        std::mem::forget(world);
        return Err(hands.chronicle.render());
    }
    Ok(Lived {
        time: hands.board.clock.elapsed(),
        transitions: hands.chronicle.transitions(),
        lives: u64::from(world.lives()),
        switches: switches(&world),
        starts: hands.board.processes.starts().0 as u64,
    })
}

fn switches(world: &World) -> u64 {
    let starts = world.agents.starts();
    starts.iter().zip(starts.iter().skip(1)).filter(|(before, after)| before.version != after.version).count() as u64
}

/// A machine server of some kind; one in four does not work.
fn any_script(random: &Random) -> Script {
    let healthy = Script {
        ready_after: Some(Duration::from_millis(random.below(60_000))),
        chatter: Some(seconds(5 + random.below(60))),
        ignores_sigterm: random.chance(20),
        children: usize::try_from(random.below(3)).unwrap_or(0),
        stop_takes: Duration::from_millis(random.below(20_000)),
        ..Script::default()
    };
    match random.below(12) {
        0 => Script { ready_after: None, ..healthy },
        1 => Script { ends: Some((seconds(random.below(400)), Exit::Signal(11))), ..healthy },
        2 => Script { hangs_after: Some(seconds(random.below(400))), ..healthy },
        _ => healthy,
    }
}

/// An agent of some kind; one in three does not live.
fn any_conduct(random: &Random) -> Conduct {
    match random.below(15) {
        0 => Conduct::CannotStart,
        1 => Conduct::DiesAtOnce,
        2 => Conduct::DiesAfter(seconds(random.below(1200))),
        3 => Conduct::NeverReachesCloud,
        4 => Conduct::Hangs,
        _ => Conduct::Lives,
    }
}

fn bad_days(world: &mut World) {
    let random = world.board.random.branch();
    for version in faults::VERSIONS {
        world.board.processes.script(version, any_script(&random));
    }
    for version in faults::AGENTS.into_iter().skip(1) {
        world.factory.release_agent(version);
        world.agents.script(version, any_conduct(&random));
    }
    world.cloud.set_poll(POLL);
    world.start();
    faults::plan(world, &random, *random.pick(&FAULTS), BAD_TIME);
    while world.board.clock.elapsed() < BAD_TIME {
        world.run_for(minutes(30 + random.below(120)));
        match random.below(8) {
            0 => world.restart_agent(),
            1 => world.kill_agent(),
            2 => world.cut_power(),
            3 => world.suspend(minutes(random.below(300))),
            _ => {}
        }
    }
    world.run_for(faults::FAULT_MAX);
}

fn assert_well(world: &mut World) {
    faults::heal(world);
    let (wanted, agent) = ("1.3.0", "2.2.0");
    world.factory.release(wanted);
    world.factory.release_agent(agent);
    world.cloud.set_section("advanced_settings", &json!({"platform_server_env": {"LAST": "word"}}));
    world.cloud.set_section("version_control", &json!({"platform-server": wanted, "agent": agent}));
    world.run_for(RECOVERY);
    world.restart_agent();
    // Two openings: the first may be answered before a download that a fault had put off for hours.
    world.run_for(RECOVERY);
    world.restart_agent();
    world.run_for(minutes(30));
    let serving = world.board.processes.serving();
    assert_eq!(serving.as_deref(), Some(wanted), "what is wanted does not serve in the end");
    assert_eq!(world.agents.version().as_deref(), Some(agent), "the agent that is wanted does not run in the end");
    let running = world.board.processes.running();
    let last = running.first().and_then(|start| start.launch.environment.iter().rev().find(|(key, _)| key == "LAST"));
    assert!(last.is_some(), "the last change of the configuration got lost");
    let (at, status) = world.cloud.report().expect("it has reported");
    assert!(world.board.clock.elapsed() - at < minutes(11), "it no longer reports");
    let version = status.server.map(|server| server.version).unwrap_or_default();
    assert_eq!(version, wanted, "the fleet server was told something else");
    assert_eq!(status.agent_version, agent, "the fleet server was told of another agent");
    let walks = status.updates.iter().map(|update| (update.phase(), update.running_version.as_str()));
    assert!(
        walks.clone().all(|(phase, _)| phase == Phase::Committed),
        "a walk has not ended: {walks:?}",
        walks = walks.collect::<Vec<_>>()
    );
    assert!(!world.cloud.is_marked(), "somebody still waits for a restart");
    assert_eq!(status.logs.map_or(0, |logs| logs.queued_bytes / 100_000), 0, "lines are not delivered");
}
