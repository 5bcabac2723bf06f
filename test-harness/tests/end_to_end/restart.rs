//! Restarts that an operator asks for, and what is waited for before the first start.

use serde_json::json;

use crate::world::{UpdatePhase, World, eventually, server, update};

#[test]
fn a_mark_restarts_once_and_is_cleared() {
    let world = World::running(&[("1.0.0", &[])]);
    let pid = world.server_pid();
    world.mark_for_restart();
    assert!(world.part_status().restart_marked_at.is_some());
    let second = world.until_other_than(pid);
    eventually("the mark to be cleared", || world.part_status().restart_marked_at.is_none().then_some(())).unwrap();
    world.until_checked();
    assert_eq!(world.server_pid(), second, "once");
    let status = world.until("the restart to be told", |status| server(status).operator_restarts == 1);
    assert_eq!(server(&status).crashes, 0);
    assert_eq!(world.starts().len(), 2);
}

#[test]
fn a_mark_restarts_exactly_once_although_the_agent_is_killed_in_between() {
    // After fifteen minutes an operator's restart happens whatever the machine server says: not within this test.
    let mut world = World::running_at(4.0, &[("1.0.0", &[])]);
    // It waits for permission when the agent dies: the next agent knows.
    let pid = world.server_pid();
    world.behave("refuse-restart", "true");
    world.mark_for_restart();
    world.until("a restart that waits", |status| server(status).restart_pending.contains("operator"));
    world.kill_agent();
    world.start_agent();
    world.until("a restart that still waits", |status| server(status).restart_pending.contains("operator"));
    assert_eq!(world.server_pid(), pid);
    world.behave("refuse-restart", "false");
    let mut pid = world.until_other_than(pid);
    eventually("the mark to be cleared", || world.part_status().restart_marked_at.is_none().then_some(())).unwrap();

    // And at any moment: right away, a little later, in the middle of the restart.
    for (round, pause) in (2..).zip([0, 300, 700, 1100]) {
        world.mark_for_restart();
        std::thread::sleep(std::time::Duration::from_millis(pause));
        world.kill_agent();
        world.start_agent();
        pid = world.until_other_than(pid);
        eventually("the mark to be cleared", || world.part_status().restart_marked_at.is_none().then_some(())).unwrap();
        world.until_checked();
        assert_eq!(world.server_pid(), pid, "round {round}: once");
        assert_eq!(world.starts().len(), round + 1, "round {round}: {:?}", world.starts());
    }
}

#[test]
fn a_server_that_asks_itself_is_left_to_it() {
    let world = World::running(&[("1.0.0", &[("handles-needs-restart", "true")])]);
    let pid = world.server_pid();
    world.until_checked();
    world.mark_for_restart();
    world.until_checked();
    assert_eq!(world.server_pid(), pid);
    assert!(world.part_status().restart_marked_at.is_some(), "it is the server's to clear");
}

#[test]
fn what_is_waited_for_before_the_first_start() {
    // A network is waited for a minute: on a busy machine the first round of calls takes longer than a second.
    let mut world = World::running_at(4.0, &[("1.0.0", &[])]);
    let configured = |wait: bool| json!({"advanced_settings": {"wait_for_update_check": wait, "probation_minutes": 1}});
    let (wait, fast) = ("PLATFORM_AGENT_WAIT_FOR_UPDATE", "PLATFORM_AGENT_FAST_START");
    type Row<'a> = (&'a str, bool, &'a [&'a str], &'a [(&'a str, &'a str)], bool);
    let table: [Row<'_>; 7] = [
        ("nobody says anything", false, &[], &[], false),
        ("the configuration", true, &[], &[], true),
        ("the variable over the configuration", true, &[], &[(wait, "0")], false),
        ("the variable", false, &[], &[(wait, "1")], true),
        ("fast start over the variable", false, &[], &[(wait, "1"), (fast, "1")], false),
        ("the option over fast start", false, &["--wait"], &[(fast, "1")], true),
        ("fast start over the configuration", true, &[], &[(fast, "1")], false),
    ];
    let mut old = "1.0.0".to_owned();
    for (number, (case, in_configuration, arguments, environment, waits)) in (1..).zip(table) {
        world.configure(&configured(in_configuration));
        world.until_checked();
        world.stop_agent();
        let new = format!("1.{number}.0");
        world.release(&new, &[]);
        world.channel("stable", &new);
        world.options.arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
        world.options.environment = environment.iter().map(|&(name, value)| (name.into(), value.into())).collect();
        let before = world.starts().len();
        world.start_agent();
        world.until_ready();
        let first = eventually("the first start", || world.starts().get(before).cloned()).unwrap();
        assert_eq!(&first.0, if waits { &new } else { &old }, "{case}");
        let phase = if waits { UpdatePhase::Committed } else { UpdatePhase::Staged };
        world.until("the update to settle", |status| {
            update(status).target_version == new && update(status).phase() == phase
                || update(status).running_version == new
        });
        if waits {
            world.until("the new version to be kept", |status| update(status).phase() == UpdatePhase::Committed);
            old = new;
        }
    }
}

#[test]
fn nobody_waits_for_a_network_for_ever() {
    let mut world = World::running(&[("1.0.0", &[])]);
    world.stop_agent();
    world.stop_fleet();
    world.options.arguments = vec!["--wait".into()];
    world.start_agent();
    assert_eq!(world.read("/version"), "1.0.0", "what is installed is started after a minute");
}
