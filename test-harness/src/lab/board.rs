//! One virtual board: a throw-away copy of the image, booted by systemd-nspawn, with systemd as its process 1.
//!
//! Works as `test-harness/lab/run.sh` starts it: in namespaces of its own. The board's processes are numbered by the
//! board; its network is this process's own, so that a server here is on its loopback.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use crate::real::{Trouble, eventually};

/// Room for what a board writes, in memory.
const OVERLAY: &str = "size=3G,mode=755";
/// The exit code of a container that wants to be started again, as a unit would.
const REBOOTS: i32 = 133;
/// How long a board may take to end before it is killed.
const END_LIMIT: Duration = Duration::from_secs(30);

/// What a story wants of a board, of whatever kind it is.
pub trait Target {
    /// Runs a command line in the board's shell; whether it succeeded, and what it printed.
    fn ask(&self, line: &str) -> Result<(bool, String), Trouble>;

    /// Writes a file of the board; its folder is made.
    fn write(&self, path: &str, mode: u32, content: &[u8]) -> Result<(), Trouble>;

    /// Copies a file of this machine onto the board; its mode is kept, its folder is made.
    fn put(&self, from: &Path, to: &str) -> Result<(), Trouble>;

    /// What this machine's loopback is called on the board.
    fn outside(&self) -> &str;

    /// The same as `ask` for what must succeed; what it printed, without blanks around it.
    fn run(&self, line: &str) -> Result<String, Trouble> {
        match self.ask(line)? {
            (true, said) => Ok(said.trim().to_owned()),
            (false, said) => Err(Trouble(format!("`{line}` failed: {said}"))),
        }
    }

    /// One property of the agent's unit.
    fn property(&self, name: &str) -> Result<String, Trouble> {
        self.run(&format!("systemctl show --property {name} --value platform-agent.service"))
    }

    /// The agent's log of this boot, for whoever has to find out what went wrong.
    fn journal(&self) -> String {
        self.run("journalctl --no-pager --boot --unit platform-agent --output short-monotonic | tail -n 60")
            .unwrap_or_default()
    }
}

/// Ends the name of the file that a board leaves beside its folder when it ends.
pub const LOGS: &str = "log";

/// Writes down what a board can say of itself, for whoever has to find out what went wrong there.
pub(super) fn leave_logs(board: &dyn Target, folder: &Path, more: &str) {
    let ask = format!("journalctl --boot --no-pager --output short-monotonic; platform-agent status --json; {more}");
    let said = board.ask(&ask).map_or_else(|trouble| trouble.to_string(), |(_, said)| said);
    if let Err(error) = fs::write(folder.with_extension(LOGS), said) {
        eprintln!("the logs of {}: {error}", folder.display());
    }
}

/// A board that runs.
pub struct Board {
    container: Child,
    /// Where the overlay and its layers are.
    folder: PathBuf,
    /// From the start of its process 1 to "running".
    pub booted_in: Duration,
}

impl Board {
    /// Boots a copy of the image; `folder` must be new.
    pub fn boot(image: &Path, folder: &Path) -> Result<Board, Trouble> {
        let trouble = |error| Trouble::of(folder.display(), error);
        fs::create_dir_all(folder).map_err(trouble)?;
        run("mount", &["-t", "tmpfs", "-o", OVERLAY, "none", &text(folder)])?;
        for name in ["upper", "work", "root"] {
            fs::create_dir(folder.join(name)).map_err(trouble)?;
        }
        let layers = format!(
            "lowerdir={},upperdir={},workdir={}",
            text(image),
            text(&folder.join("upper")),
            text(&folder.join("work"))
        );
        run("mount", &["-t", "overlay", "-o", &layers, "none", &text(&folder.join("root"))])?;
        let begin = Instant::now();
        let container = start(folder)?;
        let mut board = Board { container, folder: folder.to_owned(), booted_in: Duration::ZERO };
        board.until_running()?;
        board.booted_in = begin.elapsed();
        Ok(board)
    }

    /// A path of the board, as it is seen from here.
    #[must_use]
    pub fn path(&self, inside: &str) -> PathBuf {
        self.folder.join("root").join(inside.trim_start_matches('/'))
    }

    /// Runs a command line in the board's shell.
    pub fn ask(&self, line: &str) -> Result<Output, Trouble> {
        let leader = self.leader().ok_or_else(|| Trouble("the board does not run".to_owned()))?;
        Command::new("nsenter")
            .args(["--target", &leader.to_string(), "--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup"])
            .args(["--root", "--wd", "--", "/usr/bin/env", "-i", "HOME=/root", "LANG=C.UTF-8", "SYSTEMD_PAGER=cat"])
            .args(["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "/bin/sh", "-c", line])
            .stdin(Stdio::null())
            .output()
            .map_err(|error| Trouble::of("nsenter", error))
    }

    /// The same, for what must succeed; what it printed, without blanks around it.
    pub fn run(&self, line: &str) -> Result<String, Trouble> {
        let output = self.ask(line)?;
        let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        match output.status.success() {
            true => Ok(said),
            false => {
                let error = String::from_utf8_lossy(&output.stderr);
                Err(Trouble(format!("`{line}` failed with {}: {said}\n{error}", output.status)))
            }
        }
    }

    /// `reboot`, as a person types it; returns once the machine is up again.
    pub fn reboot(&mut self) -> Result<(), Trouble> {
        // Its answer may be overtaken by what it does.
        let _ = self.ask("systemctl reboot")?;
        let status = eventually("the end of this boot", || self.container.try_wait().ok().flatten())?;
        if status.code() != Some(REBOOTS) {
            return Err(Trouble(format!("the board did not reboot, it ended with {status}")));
        }
        self.container = start(&self.folder)?;
        self.until_running()
    }

    fn until_running(&mut self) -> Result<(), Trouble> {
        let up = eventually("a board that is up", || {
            let asked = self.ask("systemctl is-system-running").ok()?;
            let state = String::from_utf8_lossy(&asked.stdout).trim().to_owned();
            matches!(&*state, "running" | "degraded").then_some(())
        });
        up.map_err(|trouble| {
            let console = fs::read_to_string(self.folder.join("console.log")).unwrap_or_default();
            Trouble(format!("{trouble}; its console says:\n{console}"))
        })
    }

    /// The board's process 1, numbered here: the child of the container's only child.
    fn leader(&self) -> Option<u32> {
        let child = |pid: u32| -> Option<u32> {
            let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
            children.split_whitespace().next()?.parse().ok()
        };
        let outer = child(self.container.id())?;
        let is_systemd =
            |pid: u32| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "systemd\n");
        [Some(outer), child(outer)].into_iter().flatten().find(|pid| is_systemd(*pid))
    }
}

impl Target for Board {
    fn ask(&self, line: &str) -> Result<(bool, String), Trouble> {
        let output = Board::ask(self, line)?;
        let said = [output.stdout, output.stderr].concat();
        Ok((output.status.success(), String::from_utf8_lossy(&said).into_owned()))
    }

    fn write(&self, path: &str, mode: u32, content: &[u8]) -> Result<(), Trouble> {
        let path = self.path(path);
        let folder = path.parent().map_or(Ok(()), fs::create_dir_all);
        let written = folder
            .and_then(|()| fs::write(&path, content))
            .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(mode)));
        written.map_err(|error| Trouble::of(path.display(), error))
    }

    fn put(&self, from: &Path, to: &str) -> Result<(), Trouble> {
        let to = self.path(to);
        let folder = to.parent().map_or(Ok(()), fs::create_dir_all);
        let copied = folder.and_then(|()| fs::copy(from, &to));
        copied.map(drop).map_err(|error| Trouble::of(to.display(), error))
    }

    fn outside(&self) -> &'static str {
        "127.0.0.1"
    }

    fn run(&self, line: &str) -> Result<String, Trouble> {
        Board::run(self, line)
    }
}

/// Starts the container on the layers in this folder.
fn start(folder: &Path) -> Result<Child, Trouble> {
    let trouble = |error| Trouble::of(folder.display(), error);
    let log = fs::File::options().create(true).append(true).open(folder.join("console.log")).map_err(trouble)?;
    let again = log.try_clone().map_err(trouble)?;
    Command::new("systemd-nspawn")
        .args(["--quiet", "--register=no", "--keep-unit", "--machine=board", "--boot"])
        .args(["--network-namespace-path=/proc/self/ns/net", "--kill-signal=SIGRTMIN+3", "--console=pipe"])
        .args(["--capability=all", "--directory"])
        .arg(folder.join("root"))
        .args(["systemd.unit=multi-user.target", "systemd.mask=console-getty.service"])
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(again)
        .spawn()
        .map_err(|error| Trouble::of("systemd-nspawn", error))
}

impl Drop for Board {
    fn drop(&mut self) {
        leave_logs(self, &self.folder, "systemctl --failed --no-pager; uptime");
        // SIGRTMIN+3 asks systemd to power off.
        if let Some(leader) = self.leader() {
            let _ = Command::new("kill").args(["-RTMIN+3", &leader.to_string()]).status();
        }
        let begin = Instant::now();
        while !matches!(self.container.try_wait(), Ok(Some(_)) | Err(_)) {
            if begin.elapsed() > END_LIMIT {
                if let Some(leader) = self.leader().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?)) {
                    let _ = kill_process(leader, Signal::KILL);
                }
                let _ = self.container.kill();
                let _ = self.container.wait();
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = run("umount", &[&text(&self.folder.join("root"))]);
        let _ = run("umount", &[&text(&self.folder)]);
        let _ = fs::remove_dir(&self.folder);
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn run(program: &str, words: &[&str]) -> Result<(), Trouble> {
    let output = Command::new(program).args(words).output().map_err(|error| Trouble::of(program, error))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(Trouble::of(program, String::from_utf8_lossy(&output.stderr).trim())),
    }
}
