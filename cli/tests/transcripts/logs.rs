//! Log lines of a part, and the log of who did what.

use super::*;

#[test]
fn reading_logs() {
    let desk = Desk::new();
    desk.fleet.state().logs = vec![
        log(1, "info", "one"),
        log(2, "error", "two\nlines\u{1b}[2J"),
        log(3, "info", "three"),
        log(4, "warn", "four"),
        log(5, "info", "five"),
    ];
    desk.shows(
        "part logs",
        "2023-11-14T22:13:21.500Z  INFO   rover.server  one\n\
         2023-11-14T22:13:22.500Z  ERROR  rover.server  two\n    lines\\u{1b}[2J\n\
         2023-11-14T22:13:23.500Z  INFO   rover.server  three\n\
         2023-11-14T22:13:24.500Z  WARN   rover.server  four\n\
         2023-11-14T22:13:25.500Z  INFO   rover.server  five\n",
    );
    desk.shows("part logs -n 1 --part rover", "2023-11-14T22:13:25.500Z  INFO   rover.server  five\n");
    desk.shows("part logs --level warn,ERROR -n 1", "2023-11-14T22:13:24.500Z  WARN   rover.server  four\n");
    let done = desk.run("part logs --level Warn,␠ERROR, -n 1");
    assert_eq!((done.exit, done.out.lines().count()), (0, 1), "{}", done.err);
    let done = desk.run("part logs --level bogus");
    assert_eq!((done.exit, done.out.as_str()), (0, ""), "{}", done.err);
    let usual =
        "The usual levels are trace, debug, info, warn, warning, error, dpanic, panic, fatal, and not \"bogus\".\n";
    assert!(done.err.contains("No such lines") && done.err.contains(usual), "{}", done.err);
    let done = desk.run("part logs --level error,notice");
    assert_eq!((done.exit, done.out.lines().count(), done.err.as_str()), (0, 2, ""), "an error of two lines");
    desk.shows("part logs rover --filter thr", "2023-11-14T22:13:23.500Z  INFO   rover.server  three\n");
    let lines = desk.run("part logs -n 3 -o json").out;
    let messages: Vec<_> =
        lines.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["message"].clone()).collect();
    assert_eq!(messages, ["three", "four", "five"]);
}

/// The stream breaks, the server comes back, lines were logged meanwhile: each is shown once and in order.
#[test]
fn following_logs_over_a_break() {
    let desk = Desk::new();
    {
        let mut state = desk.fleet.state();
        state.logs = vec![log(1, "info", "before")];
        let first = Tail {
            lines: vec![log(2, "info", "live"), log(3, "debug", "noise")],
            missed: vec![log(4, "error", "missed")],
            end: End::Break,
        };
        let second = Tail { lines: vec![log(5, "info", "again")], missed: vec![], end: End::Status(14) };
        state.tails = [first, second].into();
    }
    let done = desk.run("part logs --follow --level info,error");
    let messages: Vec<_> = done.out.lines().map(|line| line.rsplit("  ").next().unwrap()).collect();
    assert_eq!(messages, ["before", "live", "missed", "again"]);
    assert_eq!(done.exit, 1);
    let told: Vec<_> = done.err.lines().collect();
    assert!(told[0].contains("the log broke off") && told[0].ends_with("(trying again)"), "{told:?}");
    assert_eq!(told[1], "(connected again)");
    assert!(told[2].contains("UNAVAILABLE") && told[2].ends_with("(trying again)"), "{told:?}");
    assert!(told[3].contains("the part is gone (NOT_FOUND)"), "a part that is gone ends it: {told:?}");
}

#[test]
fn the_audit_log_is_read_page_by_page() {
    let desk = Desk::new();
    let event = |seconds, operation: &str| wire::AuditEvent {
        when: time(seconds),
        actor: format!("api-key:{KEY_ID}"),
        from_address: "127.0.0.1".into(),
        operation: operation.into(),
        resource_type: "robot".into(),
        resource_id: ROVER.into(),
        detail: String::new(),
    };
    desk.fleet.state().audit = (0..5).rev().map(|number| event(number, &format!("Change{number}"))).collect();
    let done = desk.run("audit list -n 3");
    let operations: Vec<_> = done.out.lines().skip(1).map(|line| line.split("  ").nth(3).unwrap()).collect();
    assert_eq!(operations, ["Change4", "Change3", "Change2"]);
    desk.fails("audit list -n 0", 2, "invalid value '0'");
    let done = desk.run("audit export --since 2023-11-14T22:13:21Z --until 2023-11-14T22:13:24Z");
    let lines = done.out.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let operations: Vec<_> = lines.map(|line| line["operation"].as_str().unwrap().to_owned()).collect();
    assert_eq!(operations, ["Change3", "Change2", "Change1"]);
    assert_eq!(desk.run("audit export").out.lines().count(), 5);
    desk.fails("audit export --since yesterday", 2, "invalid value 'yesterday'");
}
