//! What an agent leaves to the program it becomes: here this very test, which really calls `exec`, and a simulated life.
//!
//! Each side tells the same two things: what the next agent read, and how the machine server ended for it.

use std::{
    env, fs,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::Command,
    rc::Rc,
    time::Duration,
};

use board::{
    files::Access,
    process::{Exit, Process, ProcessId, Processes, Stream},
};
use board_sim::{
    Driver, PLATFORM, SimBoard, image,
    process::{Script, launch_of},
};
use smol::{
    LocalExecutor,
    future::{FutureExt as _, poll_once},
};

/// Only reached when something is broken.
const PATIENCE: Duration = Duration::from_secs(60);
/// Names the folder that the programs and pipes are in; set for the process that calls `exec`.
const FOLDER: &str = "HAND_OVER_TEST_FOLDER";
/// Set for the program it becomes.
const SUCCESSOR: &str = "HAND_OVER_TEST_SUCCESSOR";

/// What an agent does before it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Case {
    /// Passes the pipes on while a machine server lives that ends afterwards.
    Lives,
    /// Passes the pipes on after the machine server has died and before anybody read what it said.
    Died,
    /// The same, but forgets to pass the pipes on.
    Forgotten,
    /// As the first two, after somebody has removed the run folder.
    LivesWithoutFolder,
    DiedWithoutFolder,
    /// Passes the pipes on, cannot become the next agent, starts the server, and ends without passing them on.
    ChangedItsMind,
}

const CASES: [Case; 6] =
    [Case::Lives, Case::Died, Case::Forgotten, Case::LivesWithoutFolder, Case::DiedWithoutFolder, Case::ChangedItsMind];

impl Case {
    const fn lives(self) -> bool {
        matches!(self, Case::Lives | Case::LivesWithoutFolder)
    }

    const fn passes_on(self) -> bool {
        matches!(self, Case::Died | Case::DiedWithoutFolder) || self.lives()
    }

    /// Nothing that a simulated board has.
    const fn loses_folder(self) -> bool {
        matches!(self, Case::LivesWithoutFolder | Case::DiedWithoutFolder)
    }
}

const fn expected(case: Case) -> &'static str {
    match case {
        _ if case.lives() => "\"first\\nlast words\\n\", Some(Code(5))",
        _ if case.passes_on() => "\"first\\nlast words\\n\", None",
        _ => "\"\", None",
    }
}

/// The first agent, up to the moment in which it would become the next one.
async fn first(case: Case, processes: &dyn Processes, program: &Path) -> ProcessId {
    if case == Case::ChangedItsMind {
        drop(processes.pass_on());
    }
    let server = start(processes, program);
    if !case.lives() {
        server.exited().await;
    }
    server.id()
}

fn start(processes: &dyn Processes, program: &Path) -> Rc<dyn Process> {
    let launch = board::process::Launch { folder: "/".into(), ..launch_of(program) };
    processes.spawn(&launch).unwrap_or_else(|error| panic!("{error}"))
}

/// The next agent: tells what it finds. `go` lets a machine server end that still lives.
async fn next(processes: &dyn Processes, id: ProcessId, go: impl FnOnce()) -> String {
    let server = processes.adopt(id);
    go();
    let exit: Option<Exit> = match &server {
        Some(server) => Some(server.exited().await),
        None => None,
    };
    let mut said = Vec::new();
    while let Some((stream, piece)) = poll_once(processes.output()).await {
        assert_eq!(stream, Stream::Out);
        said.extend(piece);
    }
    format!("{:?}, {exit:?}", String::from_utf8(said).unwrap())
}

#[test]
fn what_is_passed_on_reaches_the_next_agent() {
    if let Some(folder) = env::var_os(FOLDER) {
        return in_a_process_of_its_own(Path::new(&folder));
    }
    for case in CASES {
        assert_eq!(really(case), expected(case), "really: {case:?}");
        assert_eq!(simulated(case), expected(case), "simulated: {case:?}");
    }
}

fn really(case: Case) -> String {
    let folder = tempfile::tempdir().unwrap();
    let script = match case {
        _ if case.lives() => "echo first; while ! test -e FOLDER/go; do sleep 0.01; done; echo last words; exit 5",
        _ => "echo first; echo last words; exit 5",
    };
    let script = script.replace("FOLDER", &folder.path().to_string_lossy());
    let program = folder.path().join("server");
    test_executables::write(&program, format!("#!/bin/sh\n{script}\n").as_bytes()).unwrap();
    fs::write(folder.path().join("case"), format!("{case:?}")).unwrap();
    let status = this_test().env(FOLDER, folder.path()).stdout(std::process::Stdio::null()).status().unwrap();
    assert!(status.success(), "{case:?}: {status}");
    fs::read_to_string(folder.path().join("found")).unwrap()
}

async fn patience<T>() -> T {
    smol::Timer::after(PATIENCE).await;
    panic!("nothing happened for {PATIENCE:?}")
}

fn this_test() -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "hand_over::what_is_passed_on_reaches_the_next_agent", "--nocapture"]);
    command
}

fn in_a_process_of_its_own(folder: &Path) {
    let executor = Rc::new(LocalExecutor::new());
    let pieces = board_linux::connect(&executor, &folder.join("run"), "platform").expect("this machine is a board");
    let case = fs::read_to_string(folder.join("case")).unwrap();
    let case = CASES.into_iter().find(|known| format!("{known:?}") == case).expect("a case");
    let processes = &*pieces.processes;
    if let Some(started) = env::var_os(SUCCESSOR) {
        let started = started.into_string().unwrap();
        let (pid, start_ticks) = started.split_once(' ').unwrap();
        let id = ProcessId { pid: pid.parse().unwrap(), start_ticks: start_ticks.parse().unwrap() };
        let next = next(processes, id, || fs::write(folder.join("go"), "").unwrap());
        let found = smol::block_on(executor.run(next.or(patience())));
        fs::write(folder.join("found"), found).unwrap();
        return;
    }
    let id = smol::block_on(executor.run(first(case, processes, &folder.join("server")).or(patience())));
    let mut successor = this_test();
    successor.env(SUCCESSOR, format!("{} {}", id.pid, id.start_ticks));
    if case.loses_folder() {
        fs::remove_dir_all(folder.join("run")).unwrap();
    }
    let passed = case.passes_on().then(|| processes.pass_on());
    if let Some(passed) = &passed {
        successor.envs(passed.environment().iter().map(|(name, value)| (name, value)));
    }
    panic!("{}", successor.exec());
}

fn simulated(case: Case) -> String {
    let sim = SimBoard::new(1);
    let program = PathBuf::from("/programs/server");
    sim.files.put(&program, image::program("server", PLATFORM, 500), Access::Executable);
    let (soon, late) = (Duration::from_secs(1), Duration::from_secs(60));
    let ends = if case.lives() { late } else { soon };
    let says = [(Duration::ZERO, "first"), (ends, "last words")];
    sim.processes.script(
        "server",
        Script {
            ready_after: None,
            says: says.into_iter().map(|(after, text)| (after, Stream::Out, text.to_owned())).collect(),
            ends: Some((ends, Exit::Code(5))),
            ..Script::default()
        },
    );
    let board = sim.switch_on();
    let before = Driver::new(&sim).block_on(async move {
        let id = first(case, &*board.processes, &program).await;
        if case.passes_on() {
            // As with exec: nothing of this agent is ever dropped.
            std::mem::forget(board.processes.pass_on());
        }
        id
    });
    sim.end_life();
    let board = sim.switch_on();
    Driver::new(&sim).block_on(async move { next(&*board.processes, before, || {}).await })
}
