//! Lines of agent and machine server, as they are read back.

use api::pb::platform::common::v1::LogEntry;
use prost_types::value::Kind;
use serde_json::json;
use test_harness::real::http;

use crate::world::{World, eventually};

/// File and line of the statement that spoke.
fn caller(line: &LogEntry) -> Option<(String, f64)> {
    let fields = &line.caller.as_ref()?.fields;
    let of = |names: [&str; 2]| names.into_iter().find_map(|name| fields.get(name)?.kind.clone());
    match (of(["File", "file"])?, of(["Line", "line"])?) {
        (Kind::StringValue(file), Kind::NumberValue(line)) => Some((file, line)),
        _ => None,
    }
}

fn line(world: &World, words: &str) -> LogEntry {
    let found = eventually(words, || world.lines(words).pop());
    found.unwrap_or_else(|trouble| panic!("{trouble}\n{}", world.agent_said()))
}

#[test]
fn each_line_has_level_time_logger_and_caller() {
    let world = World::running(&[("1.0.0", &[])]);
    for (word, level) in [("DEBUG", "debug"), ("INFO", "info"), ("WARN", "warn"), ("ERROR", "error")] {
        let text = format!("said-{level}");
        http::post(&format!("{}/say/{word}/{text}", world.status_url)).unwrap();
        let line = line(&world, &text);
        assert_eq!((line.level.to_lowercase().as_str(), line.logger_name.as_str()), (level, "stand_in.said"));
        assert_eq!(line.message, text);
        let (file, number) = caller(&line).expect("a caller");
        assert!(file.ends_with("machine_server.rs") && number > 1.0, "{file}:{number}");
        let age = line.time.expect("a time").seconds - world.part_status().reported_at.expect("a time").seconds;
        assert!(age.abs() < 3_600, "{age} s from its report");
        assert!(!line.host.is_empty());
    }

    let own = line(&world, "platform-server 1.0.0 runs as process");
    assert!(own.logger_name.starts_with("platform-agent."), "{}", own.logger_name);
    assert_eq!(own.level.to_lowercase(), "info");
    assert!(caller(&own).is_some_and(|(file, line)| file.ends_with(".rs") && line > 1.0), "{own:?}");
}

#[test]
fn long_lines_are_split_and_floods_are_counted() {
    let world = World::running(&[("1.0.0", &[])]);
    world.behave("long-line-bytes", "5000");
    let pieces = eventually("all of a long line", || {
        let pieces = world.lines("0123456789");
        (pieces.iter().map(|piece| piece.message.len()).sum::<usize>() >= 5_000).then_some(pieces)
    });
    let pieces = pieces.unwrap();
    assert_eq!(pieces.iter().map(|piece| piece.message.as_str()).collect::<String>(), "0123456789".repeat(500));
    assert!(pieces.iter().all(|piece| piece.message.len() <= 1024 && piece.logger_name == "stand_in.long"));

    let count = 20_000;
    world.behave("flood-lines", &count.to_string());
    line(&world, &format!("flood {count}"));
    let numbers: Vec<u64> =
        world.lines("flood ").iter().filter_map(|line| line.message.strip_prefix("flood ")?.parse().ok()).collect();
    assert!(numbers.is_sorted_by(|a, b| a < b), "in order, none twice");
    let lost = count - numbers.len() as u64;
    let told: u64 = world
        .lines("lines")
        .iter()
        .filter(|line| line.message.contains("lost") || line.message.contains("dropped"))
        .flat_map(|line| line.message.split(' ').find_map(|word| word.parse::<u64>().ok()))
        .sum();
    assert_eq!(told, lost, "what was lost is counted: {:?}", world.lines("lines"));
}

#[test]
fn debug_lines_come_when_they_are_asked_for() {
    let world = World::running(&[("1.0.0", &[])]);
    let debug = || {
        world
            .lines("")
            .iter()
            .filter(|line| line.logger_name.starts_with("platform-agent") && line.level.to_lowercase() == "debug")
            .count()
    };
    assert_eq!(debug(), 0);
    world.configure(&json!({"advanced_settings": {"debug": true}}));
    world.until_checked();
    world.configure(&json!({"advanced_settings": {"debug": true, "platform_server_env": {"A": "1"}}}));
    eventually("a debug line of the agent", || (debug() > 0).then_some(())).unwrap();
}
