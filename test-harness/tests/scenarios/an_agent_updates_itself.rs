//! The agent becomes its next version in place: the machine server feels nothing, and no line of it is lost.

use std::time::Duration;

use api::pb::platform::fleet::v1::{Product, UpdateStatus, update_status::Phase};
use board::files::Access;
use board_sim::process::Script;
use serde_json::json;
use test_harness::world::{Hands, Seed, World, cloud::POLL, hours, launch::Conduct, minutes, seconds};

use crate::{assert_serves, starts};

pub(crate) fn own_update(hands: &Hands) -> UpdateStatus {
    let updates = hands.cloud.status().updates;
    updates.into_iter().find(|update| update.product() == Product::Agent).expect("it is reported")
}

/// Agent 1.0.0 runs under its launcher, with a machine server that talks all the time.
#[track_caller]
pub(crate) fn settled(seed: u64) -> World {
    let mut world = World::launched(Seed(seed));
    world.board.processes.script("1.0.0", Script { chatter: Some(seconds(10)), ..Script::default() });
    world.start();
    assert_serves(&mut world, "1.0.0", minutes(2));
    world.run_for(minutes(10));
    world
}

#[track_caller]
pub(crate) fn assert_committed(world: &mut World, version: &str, within: Duration) {
    let done = world.run_until(within, |hands| {
        let update = own_update(hands);
        update.phase() == Phase::Committed && update.running_version == version
    });
    assert!(done, "{version} is not kept: {:?}\n{}", own_update(world), world.chronicle.tail(60));
    assert_eq!(world.agents.version().as_deref(), Some(version));
}

#[test]
fn the_machine_server_keeps_its_process_and_every_line() {
    let mut world = settled(1);
    let process = world.board.processes.running()[0].id;
    let before = world.cloud.calls().last().expect("it polls").0;
    world.factory.release_agent("2.0.0");
    world.factory.agent_channel("stable", "2.0.0");
    assert!(world.run_until(hours(2), |hands| hands.agents.version().as_deref() == Some("2.0.0")));
    assert_committed(&mut world, "2.0.0", minutes(15));
    world.run_for(minutes(5));
    assert_eq!(world.board.processes.running()[0].id, process, "one process all the time");
    assert_eq!((starts(&world), world.agents.switches_to("2.0.0")), (1, 1));
    // The invariants have looked at each line: in order, each once, none missing.
    assert_eq!(world.chronicle.count("world", "agent hands over"), 1);
    let calls: Vec<_> = world.cloud.calls().into_iter().map(|(at, _)| at).filter(|at| *at >= before).collect();
    let longest = calls.iter().zip(calls.iter().skip(1)).map(|(one, next)| *next - *one).max().unwrap_or_default();
    assert!(longest <= 2 * POLL + seconds(1), "at most one poll late, not {longest:?}");
    assert_eq!(world.cloud.status().agent_version, "2.0.0");
    let lines = world.cloud.lines().iter().filter(|kept| kept.entry.message.starts_with("line ")).count();
    let talks = world.board.clock.elapsed().as_secs() as usize;
    assert!(lines + 10 > talks / 10, "{lines} lines in {talks} s");
}

#[test]
fn it_waits_for_its_window_and_for_nothing_else() {
    let mut world = settled(2);
    // Worlds begin on a Monday at noon; the machine server's word does not matter for what it does not feel.
    world.board.processes.permit(board_sim::process::Permission::Refused);
    world.board.files.put("/etc/localtime", crate::maintenance_windows::utc(), Access::Readable);
    let windows = json!([{"days": ["tue"], "from": "02:00", "to": "04:00", "tz": "local"}]);
    world.cloud.set_section("advanced_settings", &json!({"maintenance": {"windows": windows}}));
    world.factory.release_agent("2.0.0");
    world.cloud.set_section("version_control", &json!({"agent": "2.0.0"}));
    world.run_for(hours(2));
    assert_eq!((own_update(&world).phase(), world.agents.starts().len()), (Phase::Waiting, 1));
    let at = world.board.clock.wall_clock().as_millis();
    let left = (24 + 2) * 3_600_000 - at.rem_euclid(86_400_000);
    world.run_for(Duration::from_millis(u64::try_from(left).unwrap()) - minutes(5));
    assert_eq!(world.agents.starts().len(), 1, "not a minute too early");
    assert!(world.run_until(minutes(10), |hands| hands.agents.version().as_deref() == Some("2.0.0")));
    assert_committed(&mut world, "2.0.0", minutes(15));
    assert_eq!(starts(&world), 1);
}

#[test]
fn it_need_not_reach_whom_nobody_could_reach_before() {
    let mut world = settled(3);
    world.board.files.put("/media/agent", world.factory.agent_image("2.0.0"), Access::Readable);
    world.cloud.set_section("version_control", &json!({"agent": "file:///media/agent"}));
    world.board.files.put("/etc/localtime", crate::maintenance_windows::utc(), Access::Readable);
    let windows = json!([{"days": ["mon", "tue"], "from": "23:00", "to": "23:30", "tz": "local"}]);
    world.cloud.set_section("advanced_settings", &json!({"maintenance": {"windows": windows}}));
    world.run_for(minutes(10));
    assert_eq!(own_update(&world).phase(), Phase::Waiting, "{:?}", own_update(&world));
    world.board.web.set_online(false);
    assert!(world.run_until(hours(30), |hands| hands.agents.version().as_deref() == Some("2.0.0")));
    world.run_for(hours(2));
    world.board.web.set_online(true);
    world.run_for(minutes(30));
    let update = own_update(&world);
    assert_eq!((update.phase(), world.agents.version().as_deref()), (Phase::Committed, Some("2.0.0")), "{update:?}");
    assert_eq!(world.agents.switches_to("1.0.0"), 0);
}

#[test]
fn bytes_that_nobody_signed_come_from_a_local_file_only() {
    let mut world = settled(4);
    for pin in ["http://10.0.0.9/agent", "https://10.0.0.9/agent"] {
        world.board.web.serve(pin, board_sim::fetch::Resource::of(world.factory.agent_image("2.0.0")));
        world.cloud.set_section("version_control", &json!({"agent": pin}));
        world.run_for(minutes(20));
        let update = own_update(&world);
        assert!(update.last_error.contains("from a local file only"), "{update:?}");
        assert!(world.board.web.asked().iter().all(|asked| asked.url != pin));
    }
    assert_eq!(world.agents.starts().len(), 1);
}

#[test]
fn without_its_launcher_it_stays_and_says_so() {
    let mut world = settled(5);
    let launcher = test_harness::world::launch::launcher();
    let program = world.board.files.content(&launcher).expect("installed");
    world.board.files.lose(&launcher);
    world.factory.release_agent("2.0.0");
    world.cloud.set_section("version_control", &json!({"agent": "2.0.0"}));
    world.run_for(minutes(30));
    let update = own_update(&world);
    assert!(update.last_error.contains("could not be handed over"), "{update:?}");
    assert_eq!((world.agents.starts().len(), update.bad_versions.len()), (1, 0));
    world.board.files.put(&launcher, program, Access::Executable);
    assert_committed(&mut world, "2.0.0", minutes(30));
    assert_eq!((own_update(&world).last_error.as_str(), starts(&world)), ("", 1));
}

#[test]
fn both_products_at_once_and_neither_waits_for_the_other_s_probation() {
    let mut world = settled(6);
    world.factory.release_agent("2.0.0");
    world.board.web.set_bandwidth(20_000);
    world.cloud.set_section("version_control", &json!({"agent": "2.0.0", "platform-server": "1.1.0"}));
    // One unfinished download at a time: looked at in each second of both.
    for _ in 0..120 {
        world.run_for(seconds(1));
        let partials =
            world.board.files.paths().iter().filter(|path| path.to_string_lossy().ends_with(".partial")).count();
        assert!(partials <= 1, "there is room for one");
    }
    world.cloud.mark_for_restart();
    assert_serves(&mut world, "1.1.0", minutes(5));
    assert_committed(&mut world, "2.0.0", minutes(15));
    world.run_for(minutes(10));
    let server = world.cloud.status().updates.into_iter().find(|update| update.product() == Product::MachineServer);
    assert_eq!(server.map(|server| server.phase()), Some(Phase::Committed));
    assert_eq!(starts(&world), 2);
}

#[test]
fn in_the_middle_of_whatever_the_machine_server_is_going_through() {
    let slow = Script {
        ready_after: Some(seconds(40)),
        stop_takes: seconds(20),
        chatter: Some(seconds(1)),
        ..Script::default()
    };
    // The new agent comes this long after the machine server's restart was asked for.
    for after in [0, 2, 5, 10, 15, 21, 24, 30, 45, 60, 70] {
        let mut world = settled(7);
        world.board.processes.script("1.0.0", slow.clone());
        world.board.processes.script("1.1.0", slow.clone());
        world.factory.release_agent("2.0.0");
        world.cloud.set_section("version_control", &json!({"platform-server": "1.1.0"}));
        world.run_for(minutes(2));
        world.cloud.mark_for_restart();
        world.run_for(seconds(after));
        world.cloud.set_section("version_control", &json!({"agent": "2.0.0", "platform-server": "1.1.0"}));
        assert!(world.run_until(minutes(10), |hands| hands.agents.version().as_deref() == Some("2.0.0")), "{after}");
        assert_serves(&mut world, "1.1.0", minutes(5));
        assert_committed(&mut world, "2.0.0", minutes(15));
        world.run_for(minutes(20));
        let ends: Vec<_> = world.cloud.status().updates.iter().map(|update| update.phase()).collect();
        assert_eq!(ends, [Phase::Committed, Phase::Committed], "after {after} s\n{}", world.chronicle.tail(60));
        assert!(!world.cloud.is_marked());
    }
}

#[test]
fn a_killed_agent_finds_its_machine_server_again() {
    let mut world = settled(8);
    let process = world.board.processes.running()[0].id;
    for _ in 0..5 {
        world.kill_agent();
        world.run_for(seconds(90));
        assert_eq!(world.board.processes.running()[0].id, process);
    }
    assert_eq!((starts(&world), world.board.processes.most_at_once()), (1, 1));
    assert!(world.agents.starts().iter().all(|start| !start.safe), "each of them lived");
}

#[test]
fn its_story() {
    let mut world = settled(9);
    world.factory.release_agent("2.0.0");
    world.factory.release_agent("3.0.0");
    world.agents.script("3.0.0", Conduct::DiesAtOnce);
    world.cloud.set_section("version_control", &json!({"agent": "2.0.0"}));
    world.run_for(minutes(12));
    world.cloud.set_section("version_control", &json!({"agent": "3.0.0"}));
    world.run_for(minutes(2));
    let mine = |line: &&str| line.contains("platform-agent ") || line.contains("world") || line.contains("successor");
    let story: Vec<_> = world.chronicle.render().lines().filter(mine).map(str::to_owned).collect();
    expect_test::expect![[r#"
        00:00  world   agent 1.0.0 starts
        10:06  update  platform-agent idle → downloading   2.0.0
        10:06  update  platform-agent downloading → verifying   2.0.0
        10:06  update  platform-agent verifying → placing   2.0.0
        10:06  update  platform-agent placing → waiting   2.0.0
        10:06  update  platform-agent waiting → switching   2.0.0
        10:06  successor makes way for another version
        10:06  world   agent hands over
        10:06  world   agent 2.0.0 starts
        10:06  update  platform-agent switching → probation   2.0.0
        20:06  update  platform-agent probation → idle   2.0.0
        22:06  update  platform-agent idle → downloading   3.0.0
        22:06  update  platform-agent downloading → verifying   3.0.0
        22:06  update  platform-agent verifying → placing   3.0.0
        22:06  update  platform-agent placing → waiting   3.0.0
        22:06  update  platform-agent waiting → switching   3.0.0
        22:06  successor makes way for another version
        22:06  world   agent hands over
        22:06  world   agent 3.0.0 starts
        22:06  world   agent crashes at once
        22:07  world   agent 3.0.0 starts
        22:07  world   agent crashes at once
        22:10  world   agent 3.0.0 starts
        22:10  world   agent crashes at once
        22:10  world   agent 2.0.0 starts: slot a was started 3 times in a row and did not live for 60 s: back to slot b"#]]
    .assert_eq(&story.join("\n"));
}
