//! What a kernel does for a service that was given a control group of its own.
//!
//! The first test makes such a group and runs the others in it, in a process of its own. They need the right to do so.

use std::process::Command;

use board_linux::process::cgroup;
use rustix::fs::XattrFlags;

use super::*;

const TESTS: [&str; 3] = [
    "control_group::daemons_end_with_their_server",
    "control_group::one_that_shows_nothing_is_ended_before_another_is_started",
    "a_server_that_no_agent_recorded_is_found_before_what_it_started",
];

/// A control group as a service manager leaves it to a unit; removed with what is in it.
struct Group(PathBuf);

impl Group {
    fn make() -> Result<Group, String> {
        let mounts = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(Path::new);
        let mount = mounts.into_iter().find(|mount| mount.join("cgroup.controllers").exists());
        let mount = mount.ok_or("control groups of version 2 are not mounted here")?;
        let folder = mount.join(format!("board-linux-test-{}.service", std::process::id()));
        fs::create_dir(&folder).map_err(|error| format!("no control group can be made: {error}"))?;
        let group = Group(folder);
        let delegate = |name| rustix::fs::setxattr(&group.0, name, b"1", XattrFlags::empty());
        let delegated = delegate("user.delegate").or_else(|_| delegate("trusted.delegate"));
        delegated.map_err(|error| format!("a control group cannot be marked as delegated: {error}"))?;
        Ok(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for _ in 0..100 {
            let _ = fs::write(self.0.join("cgroup.kill"), "1");
            if remove(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

fn remove(folder: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove(&entry.path())?;
        }
    }
    fs::remove_dir(folder)
}

#[test]
fn in_a_control_group() {
    if cgroup::is_ours() {
        // The others run as they are.
        return;
    }
    let group = match Group::make() {
        Ok(group) => group,
        Err(why) => return println!("SKIPPED: {why}"),
    };
    let mut command = Command::new("sh");
    command.args(["-c", "echo $$ >\"$GROUP\" && exec \"$0\" \"$@\""]).env("GROUP", group.0.join("cgroup.procs"));
    command.arg(std::env::current_exe().unwrap()).args(["--exact", "--test-threads=1"]).args(TESTS);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("3 passed") && !said.contains("SKIPPED"), "{said}");
}

/// Whether this process has such a group.
fn inside() -> bool {
    if !cgroup::is_ours() {
        println!("SKIPPED here: `in_a_control_group` runs it in one");
    }
    cgroup::is_ours()
}

#[test]
fn daemons_end_with_their_server() {
    if !inside() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    as_agent(folder.path(), async |board| {
        let script = "setsid sh -c 'echo $$; exec sleep 1000' & while ! test -e die; do sleep 0.01; done; exit 3";
        let process = board.processes.spawn(&shell(folder.path(), script)).unwrap();
        let daemon: u32 = line(board, Stream::Out, |_| true).await.parse().unwrap();
        // The next one is not to be taken for what the last one left behind, wherever it lives.
        fs::write(folder.path().join("die"), "").unwrap();
        assert_eq!(process.exited().await, Exit::Code(3));
        let next =
            board.processes.spawn(&shell(folder.path(), "setsid sleep 1000 & echo $!; exec sleep 1000")).unwrap();
        let next_daemon: u32 = line(board, Stream::Out, |_| true).await.parse().unwrap();
        board.processes.end_orphans(process.id(), Duration::from_secs(1)).await;
        gone(daemon).await;
        assert!(is_running(next.id().pid) && is_running(next_daemon));
        // At once, and with everything it started.
        next.kill();
        assert_eq!(next.exited().await, Exit::Signal(9));
        gone(next_daemon).await;
    });
}

#[test]
fn one_that_shows_nothing_is_ended_before_another_is_started() {
    if !inside() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let note = ("NOTE".to_owned(), "it is mine".to_owned());
    let rows = [
        // Elsewhere with its output, but it says whose it is.
        ("exec >/dev/null 2>&1; touch ready; exec sleep 1000", true),
        ("touch ready; exec env -i sh -c 'trap \"\" TERM; while :; do sleep 1; done'", false),
    ];
    for (script, tells) in rows {
        let id = as_agent(folder.path(), async |board| {
            let launch = Launch { environment: vec![note.clone()], ..shell(folder.path(), script) };
            board.processes.spawn(&launch).unwrap().id()
        });
        let environment = || fs::read(format!("/proc/{}/environ", id.pid)).unwrap_or_default();
        while !folder.path().join("ready").exists() || environment().is_empty() == tells {
            std::thread::sleep(Duration::from_millis(1));
        }
        fs::remove_file(folder.path().join("ready")).unwrap();
        fs::remove_dir_all(folder.path().join("run")).unwrap();
        as_agent(folder.path(), async |board| {
            let found = board.processes.unrecorded("NOTE").into_iter().map(|found| found.id).collect::<Vec<_>>();
            assert_eq!(found, if tells { vec![id] } else { vec![] });
            assert!(board.processes.end_strays(Duration::from_millis(100)).await >= 1);
            gone(id.pid).await;
            assert_eq!(board.processes.end_strays(Duration::ZERO).await, 0);
        });
    }
}
