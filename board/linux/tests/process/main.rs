//! Real processes: every promise of the process port, kept or broken by this kernel.

mod control_group;
mod pipes;

use std::{
    fs,
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    rc::Rc,
    time::Duration,
};

use board::process::{Exit, Launch, Limits, ProcessId, Processes, SpawnError, Stream, Unrecorded};
use board_linux::{Pieces, connect};
use smol::{LocalExecutor, future::FutureExt as _};

/// Long enough for a busy machine; only reached when something is broken.
const PATIENCE: Duration = Duration::from_secs(60);

/// One agent's view of the machine, in a run folder that may be handed to the next one.
fn as_agent<T>(folder: &Path, life: impl AsyncFnOnce(&Pieces) -> T) -> T {
    let executor = Rc::new(LocalExecutor::new());
    let pieces = connect(&executor, &folder.join("run"), "platform").expect("a board");
    let patience = async {
        smol::Timer::after(PATIENCE).await;
        panic!("nothing happened for {PATIENCE:?}")
    };
    smol::future::block_on(executor.run(life(&pieces).or(patience)))
}

fn shell(folder: &Path, script: &str) -> Launch {
    Launch {
        program: PathBuf::from("/bin/sh"),
        arguments: vec!["-c".into(), script.into()],
        environment: Vec::new(),
        folder: folder.to_owned(),
    }
}

/// Reads until `stream` has said a whole line that satisfies `wanted`, and returns it.
async fn line(board: &Pieces, stream: Stream, wanted: impl Fn(&str) -> bool) -> String {
    let mut said = String::new();
    loop {
        let (from, piece) = board.processes.output().await;
        if from == stream {
            said += &String::from_utf8_lossy(&piece);
        }
        while let Some((line, rest)) = said.split_once('\n') {
            if wanted(line) {
                return line.to_owned();
            }
            said = rest.to_owned();
        }
    }
}

#[test]
fn how_it_ended_is_told_each_time_it_is_asked() {
    let folder = tempfile::tempdir().unwrap();
    as_agent(folder.path(), async |board| {
        for (script, exit) in [
            ("exit 0", Exit::Code(0)),
            ("exit 7", Exit::Code(7)),
            ("kill -SEGV $$", Exit::Signal(11)),
            ("kill -KILL $$", Exit::Signal(9)),
        ] {
            let process = board.processes.spawn(&shell(folder.path(), script)).unwrap();
            assert_eq!(process.exited().await, exit, "{script}");
            assert_eq!(process.exited().await, exit, "{script}, asked again");
            assert!(board.processes.adopt(process.id()).is_none(), "nothing is left of it");
        }
    });
}

#[test]
fn both_streams_environment_and_folder_reach_the_right_place() {
    let folder = tempfile::tempdir().unwrap();
    as_agent(folder.path(), async |board| {
        let mut launch =
            shell(folder.path(), "echo \"$GREETING $HOME\"; pwd; read nothing || echo none; echo trouble >&2");
        launch.environment = vec![("GREETING".into(), "grüße aus".into()), ("HOME".into(), "/nowhere".into())];
        let process = board.processes.spawn(&launch).unwrap();
        process.exited().await;
        let (mut out, mut err) = (String::new(), String::new());
        while let Some((stream, piece)) = smol::future::poll_once(board.processes.output()).await {
            match stream {
                Stream::Out => out += &String::from_utf8(piece).unwrap(),
                Stream::Err => err += &String::from_utf8(piece).unwrap(),
            }
        }
        let here = fs::canonicalize(folder.path()).unwrap();
        assert_eq!(out, format!("grüße aus /nowhere\n{}\nnone\n", here.display()));
        assert_eq!(err, "trouble\n");
    });
}

#[test]
fn a_child_has_no_descriptor_of_ours_and_no_blocked_signal() {
    let folder = tempfile::tempdir().unwrap();
    as_agent(folder.path(), async |board| {
        let _source = board_linux::signals::signals().unwrap();
        let launch = shell(folder.path(), "grep SigBlk /proc/self/status; exec sleep 1000");
        let process = board.processes.spawn(&launch).unwrap();
        let blocked = line(board, Stream::Out, |line| line.starts_with("SigBlk")).await;
        assert!(blocked.ends_with("0000000000000000"), "{blocked}");
        for entry in fs::read_dir(format!("/proc/{}/fd", process.id().pid)).unwrap() {
            let number = entry.unwrap();
            let Ok(target) = fs::read_link(number.path()) else { continue };
            let (number, target) = (number.file_name().into_string().unwrap(), target.display().to_string());
            // Whoever started this test may have left something open; what is ours is closed.
            let ours = target.contains("anon_inode") || target.contains("server.std");
            assert!(!ours || ["1", "2"].contains(&&*number), "{number} is {target}");
        }
        process.kill();
        process.exited().await;
    });
}

#[test]
fn killing_ends_the_whole_group_and_terminating_only_asks_the_leader() {
    let folder = tempfile::tempdir().unwrap();
    as_agent(folder.path(), async |board| {
        let script = "trap 'echo asked' TERM; sleep 1000 & echo $!; while :; do wait; done";
        let process = board.processes.spawn(&shell(folder.path(), script)).unwrap();
        let child: u32 = line(board, Stream::Out, |_| true).await.parse().unwrap();
        process.terminate();
        line(board, Stream::Out, |line| line == "asked").await;
        assert!(is_running(child));
        process.kill();
        assert_eq!(process.exited().await, Exit::Signal(9));
        gone(child).await;
    });
}

#[test]
fn orphans_are_ended_politely_then_at_once_and_strangers_never() {
    let folder = tempfile::tempdir().unwrap();
    as_agent(folder.path(), async |board| {
        let script = "sleep 1000 & echo $! >prompt; sh -c 'trap \"echo asked >>times\" TERM; echo slow; while :; do sleep 0.01; done' & \
                      while ! test -e die; do sleep 0.01; done; exit 3";
        let process = board.processes.spawn(&shell(folder.path(), script)).unwrap();
        line(board, Stream::Out, |line| line == "slow").await;
        let prompt: u32 = fs::read_to_string(folder.path().join("prompt")).unwrap().trim().parse().unwrap();
        fs::write(folder.path().join("die"), "").unwrap();
        assert_eq!(process.exited().await, Exit::Code(3));
        let leader = process.id();
        // Before anything could be started in its place, and whoever is prompt is gone before it binds a port.
        gone(prompt).await;
        let times = folder.path().join("times");
        while !fs::read(&times).is_ok_and(|said| said.ends_with(b"\n")) {
            smol::Timer::after(Duration::from_millis(1)).await;
        }

        let other_start = ProcessId { pid: leader.pid, start_ticks: u64::MAX };
        assert_eq!(board.processes.end_orphans(other_start, Duration::ZERO).await, 0, "older than that leader");
        let count = board.processes.end_orphans(leader, Duration::from_millis(50)).await;
        assert!(count >= 1, "{count}");
        assert_eq!(fs::read_to_string(times).unwrap(), "asked\n", "once");
        // A child that the slow one had just started may be left for a moment.
        while board.processes.end_orphans(leader, Duration::ZERO).await > 0 {
            smol::Timer::after(Duration::from_millis(1)).await;
        }

        let own = std::process::id();
        let stranger = ProcessId { pid: own, start_ticks: 0 };
        assert_eq!(board.processes.end_orphans(stranger, Duration::ZERO).await, 0, "the number means us now");
    });
}

#[test]
fn open_files_are_limited_from_the_next_start_on() {
    let folder = tempfile::tempdir().unwrap();
    as_agent(folder.path(), async |board| {
        let said = async |limits: Limits| {
            assert_eq!(board.processes.limit(&limits), Vec::<String>::new());
            let process = board.processes.spawn(&shell(folder.path(), "echo $(ulimit -Sn) $(ulimit -Hn)")).unwrap();
            let said = line(board, Stream::Out, |_| true).await;
            process.exited().await;
            said
        };
        let usual = said(Limits::default()).await;
        assert_eq!(said(Limits { open_files_max: Some(77), ..Limits::default() }).await, "77 77");
        assert_eq!(said(Limits::default()).await, usual, "what the service has");
        let memory = Limits { memory_max_bytes: Some(1 << 30), ..Limits::default() };
        if !board_linux::process::cgroup::is_ours() {
            let [sentence] = &board.processes.limit(&memory)[..] else { panic!("one complaint") };
            assert!(sentence.starts_with("server_limits.memory_max_megabytes is not in force"), "{sentence}");
        }
    });
}

#[test]
fn a_flood_arrives_whole_and_in_order() {
    let folder = tempfile::tempdir().unwrap();
    as_agent(folder.path(), async |board| {
        const LINES: usize = 100_000;
        let script = format!("seq 1 {LINES}; echo over >&2");
        let process = board.processes.spawn(&shell(folder.path(), &script)).unwrap();
        let (mut next, mut rest) = (1, String::new());
        while next <= LINES {
            let (stream, piece) = board.processes.output().await;
            if stream == Stream::Err {
                continue;
            }
            assert!(piece.len() <= 8 * 1024);
            rest += std::str::from_utf8(&piece).unwrap();
            while let Some((line, after)) = rest.split_once('\n') {
                assert_eq!(line.parse(), Ok(next));
                next += 1;
                rest = after.to_owned();
            }
        }
        assert_eq!(process.exited().await, Exit::Code(0));
    });
}

#[test]
fn a_server_outlives_its_agent_and_speaks_to_the_next_one() {
    let folder = tempfile::tempdir().unwrap();
    let id = as_agent(folder.path(), async |board| {
        let script = "echo first; while ! test -e go; do sleep 0.01; done; echo second; while ! test -e die; do sleep 0.01; done; exit 5";
        let process = board.processes.spawn(&shell(folder.path(), script)).unwrap();
        line(board, Stream::Out, |line| line == "first").await;
        process.id()
    });
    // Nobody reads now.
    fs::write(folder.path().join("go"), "").unwrap();
    as_agent(folder.path(), async |board| {
        assert!(board.processes.adopt(ProcessId { start_ticks: id.start_ticks + 1, ..id }).is_none());
        let process = board.processes.adopt(id).expect("it lives");
        assert_eq!(process.id(), id);
        line(board, Stream::Out, |line| line == "second").await;
        fs::write(folder.path().join("die"), "").unwrap();
        // The same process is its parent still, as after an exec of the agent's successor.
        assert_eq!(process.exited().await, Exit::Code(5));
    });
}

#[test]
fn an_adopted_stranger_ends_for_unknown_reasons() {
    let folder = tempfile::tempdir().unwrap();
    as_agent(folder.path(), async |board| {
        // A grandchild, whose parent leaves: it belongs to init from then on. Deaf to what is then said to its group.
        let launch = shell(folder.path(), "trap '' TERM; sleep 1000 & echo $!");
        let parent = board.processes.spawn(&launch).unwrap();
        let pid: u32 = line(board, Stream::Out, |_| true).await.parse().unwrap();
        parent.exited().await;
        let id = ProcessId { pid, start_ticks: start_ticks(pid) };
        let adopted = board.processes.adopt(id).expect("it lives");
        assert_eq!(smol::future::poll_once(adopted.exited()).await, None);
        adopted.kill();
        assert_eq!(adopted.exited().await, Exit::Unknown);
    });
}

#[test]
fn a_server_that_has_ended_is_not_adopted_although_its_number_is_still_taken() {
    let folder = tempfile::tempdir().unwrap();
    // Its parent, this test, does not ask how it ended, as the first process of a system that is slow to.
    let mut dead = std::process::Command::new("true").spawn().unwrap();
    let id = ProcessId { pid: dead.id(), start_ticks: start_ticks(dead.id()) };
    let pid = rustix::process::Pid::from_raw(i32::try_from(id.pid).unwrap()).unwrap();
    let ended = rustix::process::WaitIdOptions::EXITED | rustix::process::WaitIdOptions::NOWAIT;
    rustix::process::waitid(rustix::process::WaitId::Pid(pid), ended).unwrap();
    assert_eq!(start_ticks(id.pid), id.start_ticks, "it is still in the table");
    as_agent(folder.path(), async |board| assert!(board.processes.adopt(id).is_none()));
    dead.wait().unwrap();
}

#[test]
fn a_server_that_no_agent_recorded_is_found_before_what_it_started() {
    let folder = tempfile::tempdir().unwrap();
    let note = ("NOTE".to_owned(), "it is mine".to_owned());
    let find = |board: &Pieces| board.processes.unrecorded("NOTE");
    let found = |id| Unrecorded { id, note: note.1.clone() };
    let (id, daemon) = as_agent(folder.path(), async |board| {
        assert_eq!(find(board), []);
        let script = "setsid sleep 1000 & echo $!; sleep 1000 & exec sh -c 'while ! test -e die; do sleep 0.01; done'";
        let launch = Launch { environment: vec![note.clone()], ..shell(folder.path(), script) };
        let process = board.processes.spawn(&launch).unwrap();
        (process.id(), line(board, Stream::Out, |_| true).await.parse::<u32>().unwrap())
    });
    // What a machine server may start in a group of its own, with everything inherited.
    let pipe = fs::OpenOptions::new().write(true).open(folder.path().join("run/server.stdout")).unwrap();
    let mut module = std::process::Command::new("sleep");
    let mut module = module.arg("1000").envs([note.clone()]).stdout(pipe).process_group(0).spawn().unwrap();
    let module_id = ProcessId { pid: module.id(), start_ticks: start_ticks(module.id()) };
    as_agent(folder.path(), async |board| {
        while field(daemon, 3) != u64::from(daemon) {
            smol::Timer::after(Duration::from_millis(1)).await;
        }
        assert_eq!(find(board), [found(id), found(module_id)]);
        assert_eq!(board.processes.unrecorded("NOT"), []);
        let process = board.processes.adopt(id).expect("it lives");
        fs::write(folder.path().join("die"), "").unwrap();
        process.exited().await;
        assert_eq!(find(board), [found(module_id)]);
        if board_linux::process::cgroup::is_ours() {
            gone(daemon).await;
        }
    });
    module.kill().unwrap();
    module.wait().unwrap();
    as_agent(&folder.path().join("elsewhere"), async |board| assert_eq!(find(board), []));
    for left in [id.pid, daemon] {
        let group = rustix::process::Pid::from_raw(left.try_into().unwrap()).unwrap();
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
}

#[test]
fn what_cannot_run_is_refused_in_words() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &[u8], mode: u32| {
        let path = folder.path().join(name);
        test_executables::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    };
    let table = [
        (folder.path().join("missing"), "there is no such file"),
        (file("text", b"hello", 0o755), "it is not an executable for this machine"),
        (file("closed", b"#!/bin/sh\n", 0o644), "permission denied"),
        (file("script", b"#!/no/such/interpreter\n", 0o755), "the loader or interpreter"),
    ];
    as_agent(folder.path(), async |board| {
        // The second time nothing that the system gives by itself, which is another way to start.
        for ((program, sentence), files) in table.iter().flat_map(|row| [(row, None), (row, Some(256))]) {
            board.processes.limit(&Limits { open_files_max: files, ..Limits::default() });
            let program = program.clone();
            let launch = Launch { program, arguments: vec![], environment: vec![], folder: folder.path().to_owned() };
            let Err(SpawnError::NotRunnable { reason, .. }) = board.processes.spawn(&launch) else {
                panic!("{sentence}")
            };
            assert!(reason.to_string().contains(sentence), "{reason} should say: {sentence}");
        }
        let mut nowhere = shell(folder.path(), "exit 0");
        nowhere.folder = folder.path().join("nowhere");
        let refused = board.processes.spawn(&nowhere).err().expect("no such folder").to_string();
        assert!(refused.contains("working directory"), "{refused}");
    });
}

fn is_running(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit_once(')').is_some_and(|(_, rest)| rest.starts_with(" Z")))
}

async fn gone(pid: u32) {
    while is_running(pid) {
        smol::Timer::after(Duration::from_millis(1)).await;
    }
}

fn start_ticks(pid: u32) -> u64 {
    field(pid, 19)
}

/// Of those behind the name in `/proc/PID/stat`.
fn field(pid: u32, index: usize) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit_once(')').unwrap().1.split_whitespace().nth(index).unwrap().parse().unwrap()
}
