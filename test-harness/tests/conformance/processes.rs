//! Processes: shell scripts on this machine, scripted machine servers in the simulation.

use std::{
    fs,
    path::{Path, PathBuf},
    pin::Pin,
    rc::Rc,
    time::Duration,
};

use board::{
    files::Access,
    process::{Exit, Launch, Process, ProcessId, Processes, SpawnError, Stream, Unrecorded},
};
use board_sim::{
    Driver, PLATFORM, SimBoard, image,
    process::{Script, launch_of},
};
use smol::{LocalExecutor, future::FutureExt as _};

/// Only reached when something is broken.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a program does, and how each side is told.
const PROGRAMS: [(&str, &str); 4] = [
    ("stays", "echo ready; exec sleep 1000"),
    ("fails", "exit 3"),
    ("ignores", "trap '' TERM; echo ready; while :; do sleep 1000; done"),
    ("leaves", "trap '' TERM; sleep 1000 & exit 0"),
];

fn script(name: &str) -> Script {
    let quiet = Script { ready_after: None, ..Script::default() };
    let ready = || vec![(Duration::ZERO, Stream::Out, "ready".to_owned())];
    match name {
        "stays" => Script { says: ready(), stop_takes: Duration::from_millis(1), ..quiet },
        "fails" => Script { ends: Some((Duration::ZERO, Exit::Code(3))), ..quiet },
        "ignores" => Script { says: ready(), ignores_sigterm: true, ..quiet },
        _ => Script { ends: Some((Duration::ZERO, Exit::Code(0))), children: 1, ignores_sigterm: true, ..quiet },
    }
}

/// One side: where its programs are, and who runs them.
struct Side {
    name: &'static str,
    processes: Rc<dyn Processes>,
    folder: PathBuf,
}

impl Side {
    fn launch(&self, program: &str) -> Launch {
        Launch { folder: self.folder.clone(), ..launch_of(self.folder.join(program)) }
    }

    fn start(&self, program: &str) -> Rc<dyn Process> {
        match self.processes.spawn(&self.launch(program)) {
            Ok(process) => process,
            Err(error) => panic!("{}: {error}", self.name),
        }
    }

    /// Reads until the program says that it is ready.
    async fn ready(&self) {
        let mut said = Vec::new();
        while said != b"ready\n" {
            let (stream, piece) = self.processes.output().await;
            assert_eq!(stream, Stream::Out, "{}", self.name);
            said.extend(piece);
        }
    }
}

type Check = fn(Side) -> Pin<Box<dyn Future<Output = ()>>>;

fn on_both(check: Check) {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in PROGRAMS {
        let path = folder.path().join(name);
        test_executables::write(&path, format!("#!/bin/sh\n{text}\n").as_bytes()).unwrap();
    }
    fs::write(folder.path().join("data"), "#!/bin/sh\n").unwrap();
    test_executables::write(&folder.path().join("page"), b"<html>").unwrap();
    let executor = Rc::new(LocalExecutor::new());
    let pieces =
        board_linux::connect(&executor, &folder.path().join("run"), "platform").expect("this machine is a board");
    let side = Side { name: "real", processes: pieces.processes, folder: folder.path().to_owned() };
    let patience = async {
        smol::Timer::after(PATIENCE).await;
        panic!("nothing happened for {PATIENCE:?}")
    };
    smol::block_on(executor.run(check(side).or(patience)));

    let sim = SimBoard::new(1);
    let root = Path::new("/programs");
    for (name, _) in PROGRAMS {
        sim.files.put(root.join(name), image::program(name, PLATFORM, 500), Access::Executable);
        sim.processes.script(name, script(name));
    }
    sim.files.put(root.join("data"), image::program("stays", PLATFORM, 500), Access::Private);
    sim.files.put(root.join("page"), "<html>", Access::Executable);
    let (board, driver) = (sim.switch_on(), Driver::new(&sim));
    driver.block_on(check(Side { name: "simulated", processes: board.processes, folder: root.to_owned() }));
}

#[test]
fn a_program_that_cannot_run_is_told_at_once() {
    on_both(|side| {
        Box::pin(async move {
            for (program, code) in [("missing", 2), ("data", 13), ("page", 8)] {
                match side.processes.spawn(&side.launch(program)) {
                    Err(SpawnError::NotRunnable { reason, .. }) => {
                        let expected = std::io::Error::from_raw_os_error(code).kind();
                        assert_eq!(reason.kind(), expected, "{} {program}", side.name);
                    }
                    _ => panic!("{}: {program} ran", side.name),
                }
            }
        })
    });
}

#[test]
fn how_it_ended_is_told_each_time() {
    on_both(|side| {
        Box::pin(async move {
            let process = side.start("fails");
            assert_eq!(process.exited().await, Exit::Code(3), "{}", side.name);
            assert_eq!(process.exited().await, Exit::Code(3), "{}", side.name);
        })
    });
}

#[test]
fn asking_ends_what_listens_and_killing_ends_the_rest() {
    on_both(|side| {
        Box::pin(async move {
            let listens = side.start("stays");
            side.ready().await;
            listens.terminate();
            assert_eq!(listens.exited().await, Exit::Signal(15), "{}", side.name);
            listens.terminate();
            listens.kill();

            let ignores = side.start("ignores");
            side.ready().await;
            ignores.terminate();
            ignores.kill();
            assert_eq!(ignores.exited().await, Exit::Signal(9), "{}", side.name);
        })
    });
}

#[test]
fn a_process_is_adopted_by_number_and_start_and_only_while_it_runs() {
    on_both(|side| {
        Box::pin(async move {
            let process = side.start("stays");
            side.ready().await;
            let id = process.id();
            let other = ProcessId { start_ticks: id.start_ticks + 1, ..id };
            assert!(side.processes.adopt(other).is_none(), "{}: another with the same number", side.name);
            let adopted = side.processes.adopt(id).expect("it runs");
            assert_eq!(adopted.id(), id);
            adopted.kill();
            process.exited().await;
            assert!(side.processes.adopt(id).is_none(), "{}: it is gone", side.name);
        })
    });
}

#[test]
fn what_a_leader_leaves_behind_is_ended() {
    on_both(|side| {
        Box::pin(async move {
            let process = side.start("leaves");
            let id = process.id();
            assert_eq!(process.exited().await, Exit::Code(0), "{}", side.name);
            assert_eq!(side.processes.end_orphans(id, Duration::from_millis(50)).await, 1, "{}", side.name);
            assert_eq!(side.processes.end_orphans(id, Duration::from_millis(50)).await, 0, "{}", side.name);
        })
    });
}

#[test]
fn one_that_nobody_recorded_is_found_by_what_it_was_given() {
    on_both(|side| {
        Box::pin(async move {
            let find = |variable| side.processes.unrecorded(variable);
            assert_eq!(find("NOTE"), [], "{}", side.name);
            let launch = Launch { environment: vec![("NOTE".to_owned(), "mine".to_owned())], ..side.launch("stays") };
            let Ok(process) = side.processes.spawn(&launch) else { panic!("{}: it starts", side.name) };
            side.ready().await;
            // The shell is just becoming `sleep`; in the middle of that nothing shows what it was given.
            let found = loop {
                let found = find("NOTE");
                if !found.is_empty() {
                    break found;
                }
                smol::future::yield_now().await;
            };
            assert_eq!(found, [Unrecorded { id: process.id(), note: "mine".into() }], "{}", side.name);
            assert_eq!(find("OTHER"), [], "{}", side.name);
            process.kill();
            process.exited().await;
            assert_eq!(find("NOTE"), [], "{}", side.name);
        })
    });
}

#[test]
fn nobody_strays_where_nothing_was_started() {
    on_both(|side| Box::pin(async move { assert_eq!(side.processes.end_strays(PATIENCE).await, 0, "{}", side.name) }));
}
