//! Machine servers and addresses behave as their scripts say.

use std::{io, rc::Rc, time::Duration};

use board::{
    Board,
    fetch::{Download, FetchError, Progress, Validator},
    files::Access,
    process::{Exit, Process, SpawnError, Stream},
};
use board_sim::{
    Driver, SimBoard,
    fetch::{Resource, Spoiled},
    image,
    process::{Permission, Script, launch_of},
};

const SERVER: &str = "/root/slots/a";

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// A device with a machine server of version 1 that behaves as `script` says.
fn device(script: Script) -> (SimBoard, Board, Driver) {
    let sim = SimBoard::new(1);
    sim.files.put(SERVER, image::program("1", board_sim::PLATFORM, 3000), Access::Executable);
    sim.processes.script("1", script);
    let (board, driver) = (sim.switch_on(), Driver::new(&sim));
    (sim, board, driver)
}

fn start(board: &Board) -> Rc<dyn Process> {
    board.processes.spawn(&launch_of(SERVER)).expect("it is there and whole")
}

#[test]
fn only_a_whole_executable_of_this_machine_starts() {
    let (sim, board, _) = device(Script::default());
    let refusal = |path: &str| match board.processes.spawn(&launch_of(path)) {
        Err(SpawnError::NotRunnable { reason, .. }) => reason.kind(),
        other => panic!("{:?}", other.err()),
    };
    assert_eq!(refusal("/root/slots/missing"), io::ErrorKind::NotFound);
    sim.files.put("/root/slots/data", image::program("1", board_sim::PLATFORM, 3000), Access::Private);
    assert_eq!(refusal("/root/slots/data"), io::ErrorKind::PermissionDenied);
    sim.files.put("/root/slots/page", "<html>", Access::Executable);
    sim.files.put("/root/slots/arm", image::program("1", "linux/arm64", 3000), Access::Executable);
    for path in ["/root/slots/page", "/root/slots/arm"] {
        let Err(SpawnError::NotRunnable { reason, .. }) = board.processes.spawn(&launch_of(path)) else {
            panic!("{path} started")
        };
        assert_eq!(reason.raw_os_error(), Some(8), "{path}");
    }
    assert!(sim.processes.started().is_empty());
}

#[test]
fn a_broken_program_starts_and_dies() {
    let (sim, board, driver) = device(Script::default());
    sim.files.corrupt(SERVER, 2000);
    let process = start(&board);
    assert_eq!(driver.block_on(async move { process.exited().await }), Exit::Signal(11));
}

#[test]
fn it_says_that_it_serves_and_ends_when_asked() {
    let (sim, board, driver) = device(Script::default());
    let process = start(&board);
    let reader = board.clone();
    let said = driver.block_on(async move { reader.processes.output().await });
    assert_eq!(said, (Stream::Out, b"serving http://127.0.0.1:8080\n".to_vec()));
    assert_eq!(sim.clock.elapsed(), secs(2));
    process.terminate();
    assert_eq!(driver.block_on(async move { process.exited().await }), Exit::Code(0));
    assert_eq!(sim.clock.elapsed(), Duration::from_millis(2300));
}

#[test]
fn one_that_ignores_signals_has_to_be_killed_and_takes_its_children_along() {
    let (sim, board, driver) = device(Script { ignores_sigterm: true, children: 2, ..Script::default() });
    let process = start(&board);
    process.terminate();
    driver.run_for(secs(60), || ());
    assert_eq!(sim.processes.running().len(), 1);
    process.kill();
    assert_eq!(sim.processes.running().len() + sim.processes.orphans(), 0);
}

#[test]
fn children_outlive_a_crash_until_they_are_ended() {
    let (sim, board, driver) =
        device(Script { ends: Some((secs(5), Exit::Code(3))), children: 2, ..Script::default() });
    let process = start(&board);
    let id = process.id();
    assert_eq!(driver.block_on(async move { process.exited().await }), Exit::Code(3));
    assert_eq!(sim.processes.orphans(), 2);
    assert_eq!(driver.block_on(async move { board.processes.end_orphans(id, secs(10)).await }), 2);
    assert_eq!(sim.processes.orphans(), 0);
}

#[test]
fn it_outlives_a_killed_agent_and_not_the_power() {
    let (sim, board, driver) = device(Script { chatter: Some(secs(1)), ..Script::default() });
    let process = start(&board);
    let id = process.id();
    sim.end_life();
    driver.run_for(secs(30), || ());
    let next = sim.switch_on();
    let adopted = next.processes.adopt(id).expect("it still runs");
    let unread = sim.processes.unread();
    assert!(unread > 200, "what it said while nobody listened is there: {unread}");
    sim.processes.crash(Exit::Code(1));
    assert_eq!(driver.block_on(async move { adopted.exited().await }), Exit::Unknown);
    let second = start(&next).id();
    sim.cut_power();
    assert!(sim.switch_on().processes.adopt(second).is_none());
}

#[test]
fn a_full_pipe_makes_it_wait_and_loses_nothing() {
    let (sim, board, driver) = device(Script { chatter: Some(Duration::from_millis(1)), ..Script::default() });
    let _process = start(&board);
    driver.run_for(secs(60), || ());
    let stood_still_at = sim.processes.unread();
    assert!((60 << 10..=64 << 10).contains(&stood_still_at), "{stood_still_at}");
    let lines = driver.block_on(async move {
        let mut text = Vec::new();
        while text.len() < 200_000 {
            text.extend(board.processes.output().await.1);
        }
        String::from_utf8(text).unwrap()
    });
    let numbers = lines.lines().filter_map(|line| line.strip_prefix("line ")?.split(' ').next()?.parse::<u64>().ok());
    assert!(numbers.zip(1..).all(|(said, expected)| said == expected));
}

#[test]
fn the_status_page_answers_as_its_script_says() {
    let (sim, board, driver) = device(Script::default());
    let ask = |board: &Board| {
        let board = board.clone();
        driver.block_on(
            async move { board.fetch.get("http://127.0.0.1:8081/restart_status", true, secs(5), 1 << 16).await },
        )
    };
    assert!(matches!(ask(&board), Err(FetchError::Unreachable { .. })), "nothing runs");
    let _process = start(&board);
    driver.run_for(secs(3), || ());
    let body = |permission| {
        sim.processes.permit(permission);
        ask(&board).map(|reply| (reply.status, String::from_utf8(reply.body).unwrap()))
    };
    let allowed = r#"{"restart_allowed": true, "does_not_handle_needs_restart": true}"#;
    assert_eq!(body(Permission::Allowed).unwrap(), (200, allowed.to_owned()));
    assert!(body(Permission::Refused).unwrap().1.contains("false"));
    assert_eq!(body(Permission::Unknown).unwrap().0, 404);
    assert_eq!(body(Permission::Error).unwrap().0, 500);
    assert!(matches!(body(Permission::Silent), Err(FetchError::Stalled { .. })));
    sim.processes.hang();
    assert!(matches!(body(Permission::Allowed), Err(FetchError::Stalled { .. })), "a hung one is silent");
}

fn download(sim: &SimBoard, board: &Board, driver: &Driver, validator: Option<Validator>) -> Result<bool, FetchError> {
    let what = Download {
        url: "http://mirror/file".into(),
        into: "/root/part".into(),
        validator,
        bytes_max: 1 << 20,
        stall: secs(30),
        total: secs(600),
        rate: None,
        reserve: 1000,
    };
    let (board, sim) = (board.clone(), sim.clone());
    driver.block_on(async move {
        let progress = Progress::default();
        let done = board.fetch.download(&what, &progress).await;
        assert_eq!(progress.have.get(), sim.files.content("/root/part").map_or(0, |part| part.len() as u64));
        done.map(|done| done.resumed)
    })
}

#[test]
fn a_download_goes_on_where_it_ended_as_long_as_it_is_the_same_resource() {
    let (sim, board, driver) = device(Script::default());
    let content: Vec<u8> = (0..500_000_u32).map(|at| at.to_le_bytes()[1]).collect();
    let whole = Resource::of(content.clone());
    sim.web.serve("http://mirror/file", whole.clone().spoiled(Spoiled::EndsAfter(200_000)));
    let ended = download(&sim, &board, &driver, None);
    assert!(matches!(ended, Err(FetchError::Truncated { have: 200_000, expected: 500_000, .. })), "{ended:?}");
    sim.web.serve("http://mirror/file", whole.clone());
    assert!(download(&sim, &board, &driver, whole.validator.clone()).unwrap());
    assert_eq!(sim.files.content("/root/part"), Some(content));
    assert_eq!(sim.web.asked().last().map(|asked| asked.from), Some(200_000));

    let other = Resource::of(vec![9; 1000]);
    sim.web.serve("http://mirror/file", other);
    assert!(!download(&sim, &board, &driver, whole.validator).unwrap(), "another resource starts anew");
    assert_eq!(sim.files.content("/root/part"), Some(vec![9; 1000]));
}

#[test]
fn what_goes_wrong_on_the_way_is_told_apart() {
    let (sim, board, driver) = device(Script::default());
    let whole = Resource::of(vec![1; 200_000]);
    let outcome = |resource: Resource| {
        sim.files.lose("/root/part");
        sim.web.serve("http://mirror/file", resource);
        download(&sim, &board, &driver, None)
    };
    assert!(matches!(outcome(Resource::refusal(503)), Err(FetchError::Refused { status: 503, .. })));
    assert!(matches!(outcome(Resource::of(vec![1; 2 << 20])), Err(FetchError::TooLong { .. })));
    let stalled = outcome(whole.clone().spoiled(Spoiled::StallsAfter(70_000)));
    assert!(matches!(stalled, Err(FetchError::Stalled { have: 70_000, .. })));
    assert!(outcome(whole.clone().spoiled(Spoiled::CaptivePage)).is_ok(), "a captive page looks like success");
    sim.files.leave_free(100_000);
    assert!(matches!(outcome(whole.clone()), Err(FetchError::NoSpace { needed: 200_000, .. })));
    sim.files.set_capacity(1 << 30);
    sim.web.set_online(false);
    assert!(matches!(outcome(whole), Err(FetchError::Unreachable { .. })));
}
