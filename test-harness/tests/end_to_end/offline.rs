//! A fleet server that is not there: the machine goes on, and what it says arrives later, each line once and in order.

use std::{collections::BTreeMap, thread, time::Duration};

use api::{
    client::CallOptions,
    pb::platform::{
        app::v1::{TailRobotPartLogsRequest, app_service},
        common::v1::LogEntry,
    },
};
use serde_json::json;

use crate::world::{World, eventually, server, until_gone};

/// The numbers of the stand-in's chatter in this order, apart by process: it counts from one after each start, and says
/// at its start who it is.
fn chatter(lines: &[LogEntry]) -> Vec<Vec<u64>> {
    let mut runs: Vec<Vec<u64>> = Vec::new();
    for line in lines {
        if line.message.contains("runs as process") && line.logger_name == "stand_in" {
            runs.push(Vec::new());
        }
        if let (Some(run), Some(number)) = (runs.last_mut(), line.message.strip_prefix("line ")) {
            run.push(number.parse().expect("a number"));
        }
    }
    runs
}

/// Each run counts from one, in order and without a repetition; gives how far each came. A kill of the agent costs the
/// lines that it had read and not yet written, at most a second's: so many gaps there may be, and no more.
#[track_caller]
fn whole(lines: &[LogEntry], kills_of_the_agent: usize) -> Vec<u64> {
    let runs = chatter(lines);
    let mut gaps = Vec::new();
    for run in &runs {
        assert_eq!(run.first(), Some(&1), "the first line is there");
        for pair in run.windows(2) {
            assert!(pair[1] > pair[0], "{} after {}: repeated or out of order", pair[1], pair[0]);
            if pair[1] > pair[0] + 1 {
                gaps.push((pair[0], pair[1]));
            }
        }
    }
    assert!(gaps.len() <= kills_of_the_agent, "lines are lost: {gaps:?}");
    runs.iter().filter_map(|run| run.last().copied()).collect()
}

/// Waits until the newest line of the chatter is beyond this number.
fn beyond(world: &World, number: u64) {
    let last = || chatter(&world.lines("")).last().and_then(|run| run.last().copied());
    eventually(&format!("line {number}"), || last().filter(|&last| last > number)).unwrap_or_else(|trouble| {
        panic!("{trouble}; the last line is {:?}\n{}", last(), world.agent_said());
    });
}

/// Lets the machine server say this many lines more, as it counts them itself.
fn say_more(count: u64) {
    thread::sleep(Duration::from_millis(count * CHATTER_MILLIS));
}

const CHATTER_MILLIS: u64 = 20;
const CHATTER: (&str, &[(&str, &str)]) = ("1.0.0", &[("chatter-ms", "20")]);

#[test]
fn the_machine_runs_on_from_what_is_cached() {
    let mut world = World::running(&[("1.0.0", &[])]);
    world.configure(&json!({"advanced_settings": {"platform_server_env": {"GREETING": "cached"}}}));
    eventually("the variable", || world.page("/env/GREETING").filter(|(status, _)| *status == 200)).unwrap();
    world.until_checked();
    let pid = world.server_pid();
    world.stop_fleet();
    world.until_said("the fleet server cannot be reached");
    assert_eq!(world.server_pid(), pid);

    // A crash of the agent: adopted.
    world.kill_agent();
    world.start_agent();
    eventually("the adoption", || world.agent_said().contains("is adopted").then_some(())).unwrap();
    assert_eq!(world.server_pid(), pid);

    // A service restart: started again, as it was configured.
    world.stop_agent();
    until_gone(pid);
    world.start_agent();
    assert_eq!(world.read("/env/GREETING"), "cached");
    let pid = world.server_pid();

    // And the server comes back: nothing happens to the machine, and news arrive.
    world.start_fleet();
    world.until_checked();
    assert_eq!(world.server_pid(), pid);
    world.configure(&json!({"advanced_settings": {"platform_server_env": {"GREETING": "fresh"}}}));
    world.until_other_than(pid);
    assert_eq!(world.read("/env/GREETING"), "fresh");
}

#[test]
fn lines_wait_and_arrive_once_and_in_order() {
    let mut world = World::running(&[CHATTER]);
    beyond(&world, 5);
    world.stop_fleet();
    say_more(100);
    // The queue is on the disk: it survives a restart of the agent, and with it the end of the machine server.
    world.stop_agent();
    world.start_agent();
    say_more(50);
    world.start_fleet();
    eventually("lines of the second process", || (chatter(&world.lines("")).len() == 2).then_some(())).unwrap();
    beyond(&world, 60);
    let lines = world.lines_by("", 37);
    let runs = whole(&lines, 0);
    assert_eq!(runs.len(), 2, "{runs:?}: the stopped one was followed by another");
    assert_eq!(server(&world.status()).crashes, 0);
}

#[test]
fn lines_survive_kills_at_any_moment() {
    let mut world = World::running(&[CHATTER]);
    let (rounds, agent_kills) = (6_u64, 3);
    for round in 0..rounds {
        beyond(&world, round * 10);
        // No pattern, and the same ones each time.
        let pause = Duration::from_millis(round * 7919 % 613);
        thread::sleep(pause);
        if round % 2 == 0 {
            world.kill_fleet();
            thread::sleep(pause / 2);
            world.start_fleet();
        } else {
            world.kill_agent();
            thread::sleep(pause / 2);
            world.start_agent();
        }
    }
    let last = *chatter(&world.lines("")).last().unwrap().last().unwrap();
    beyond(&world, last + 20);
    let runs = whole(&world.lines_by("", 100), agent_kills);
    assert_eq!(runs.len(), 1, "{runs:?}");
}

#[test]
fn whoever_follows_the_log_sees_each_line_once() {
    let world = World::running(&[CHATTER]);
    let request = TailRobotPartLogsRequest { id: world.device.part_id.clone(), ..Default::default() };
    let stream = world.client.server_stream(app_service::TAIL_ROBOT_PART_LOGS, &request, CallOptions::lasting());
    let mut stream = stream.expect("a stream");
    let mut seen = BTreeMap::new();
    let mut numbers = Vec::new();
    while numbers.len() < 100 {
        let message = stream.next().expect("it goes on").expect("a message");
        for line in message.logs {
            if let Some(number) = line.message.strip_prefix("line ") {
                numbers.push(number.parse::<u64>().unwrap());
            }
            *seen.entry(line.message).or_insert(0) += 1;
        }
    }
    let first = numbers[0];
    assert_eq!(numbers, (first..first + numbers.len() as u64).collect::<Vec<_>>());
    assert!(seen.iter().all(|(text, count)| *count == 1 || !text.starts_with("line ")), "{seen:?}");
}
