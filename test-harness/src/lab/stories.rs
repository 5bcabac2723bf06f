//! What is promised about an installed agent, story by story. Each says in figures what was seen.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Mutex,
    time::Instant,
};

use api::{
    brand::AGENT,
    pb::platform::fleet::v1::{DeviceStatus, Product, update_status::Phase},
};
use serde_json::json;

use super::{
    board::{Board, LOGS, Target},
    hardships,
    radio::{board::RadioBoard, machine::Source},
    site::{self, DOWNLOADS, FIRST, Kind, Site, server_pid, update},
};
use crate::real::{Trouble, agents, eventually};

/// The unit, as systemd knows it.
pub(in crate::lab) const UNIT: &str = "platform-agent.service";

/// Where the agent is that a board is made with.
pub(super) const SLOT_A: &str = "/opt/platform/versions/platform-agent/a/platform-agent";

/// What a story has.
pub struct Stage<'a> {
    /// The board's image.
    pub image: &'a Path,
    /// What the boards with radios are started from; without it there are none here.
    pub radio: Option<&'a Source>,
    /// What those boards are made of.
    pub kind: Kind,
    /// A folder of its own.
    pub folder: &'a Path,
    /// What was seen so far.
    pub seen: &'a Seen,
}

/// What a story has seen so far, and when: what a story that fails leaves behind, and where the time of one that is well has gone.
pub struct Seen {
    begin: Instant,
    aloud: Option<String>,
    lines: Mutex<Vec<String>>,
}

impl Seen {
    /// Begins now. With a name each line is printed as it comes, behind the name.
    #[must_use]
    pub fn new(aloud: Option<String>) -> Seen {
        Seen { begin: Instant::now(), aloud, lines: Mutex::default() }
    }

    fn add(&self, line: &str) {
        let line = format!("{:6.1} s  {line}", self.begin.elapsed().as_secs_f64());
        if let Some(name) = &self.aloud {
            eprintln!("{name}: {line}");
        }
        if let Ok(mut lines) = self.lines.lock() {
            lines.push(line);
        }
    }

    /// The lines, each with the seconds since the story began.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        self.lines.lock().map(|lines| lines.clone()).unwrap_or_default()
    }
}

/// A story: sentences about what was seen.
pub type Story = fn(&Stage<'_>) -> Result<Vec<String>, Trouble>;

/// All of them, with the names by which they are asked for.
pub const STORIES: [(&str, Story); 15] = [
    ("install", install),
    ("watchdog", watchdog),
    ("crash", crash),
    ("stop", stop),
    ("update", self_update),
    ("broken-update", broken_update),
    ("reboot", reboot),
    ("script", script),
    ("exposure", exposure),
    ("hang-at-start", hardships::hang_at_start),
    ("lock-held", hardships::lock_held),
    ("killed-in-stop", hardships::killed_in_stop),
    ("bad-launcher", hardships::bad_launcher),
    ("full-disk", hardships::full_disk),
    ("uninstall-failed", hardships::uninstall_failed),
];

impl Stage<'_> {
    /// Something was seen just now.
    pub(in crate::lab) fn saw(&self, line: impl AsRef<str>) {
        self.seen.add(line.as_ref());
    }

    /// A fleet server with what is published for the boards with radios.
    pub(in crate::lab) fn site(&self) -> Result<Site, Trouble> {
        Site::open_for(self.kind.clone(), &self.folder.join("site"))
    }

    /// A board with radios.
    pub(in crate::lab) fn radio_board(&self) -> Result<RadioBoard, Trouble> {
        let source = self.radio.ok_or_else(|| Trouble("there is no image of a board with radios".to_owned()))?;
        RadioBoard::start(source, &self.folder.join("board"))
    }

    /// A board with radios and the memory of a machine of 128 MB.
    pub(in crate::lab) fn small_board(&self) -> Result<RadioBoard, Trouble> {
        self.small_board_called("board")
    }

    /// One beside others of the same story: `name`, a file's, is its own among them.
    pub(in crate::lab) fn small_board_called(&self, name: &str) -> Result<RadioBoard, Trouble> {
        let source = self.radio.ok_or_else(|| Trouble("there is no image of a board with radios".to_owned()))?;
        RadioBoard::start_small(source, &self.folder.join(name))
    }

    /// All was seen on a board with radios: what the agent weighs there is said last.
    pub(in crate::lab) fn ends(&self, board: &RadioBoard) -> Result<Vec<String>, Trouble> {
        self.saw(format!("at the end {}", board.weighs()?));
        Ok(Vec::new())
    }

    /// What this story's boards left when they ended is kept; where.
    pub fn keep_evidence(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.folder).into_iter().flatten().flatten().map(|entry| entry.path());
        let logs = entries.filter(|path| path.extension().is_some_and(|kind| kind == LOGS));
        let story = self.folder.file_name().unwrap_or_default().to_string_lossy();
        let keep = |log: PathBuf| {
            let kept = kept().join(format!("{story}-{}", log.file_name()?.to_string_lossy()));
            fs::create_dir_all(kept.parent()?).ok()?;
            fs::copy(&log, &kept).ok()?;
            Some(kept)
        };
        logs.filter_map(keep).collect()
    }

    /// A board with an installed agent whose machine server is ready.
    pub(super) fn installed(&self) -> Result<(Site, Board, u32), Trouble> {
        let site = Site::open(&self.folder.join("site"))?;
        let board = Board::boot(self.image, &self.folder.join("board"))?;
        site.install(&board)?;
        let pid = ready(&site, &board)?;
        Ok((site, board, pid))
    }
}

/// Where pictures and logs are kept for who wants to judge them.
pub(in crate::lab) fn kept() -> PathBuf {
    let beside = std::env::current_exe().ok().and_then(|this| Some(this.parent()?.parent()?.join("lab")));
    beside.unwrap_or_else(|| std::env::temp_dir().join("platform-lab"))
}

pub(super) fn ready(site: &Site, board: &Board) -> Result<u32, Trouble> {
    site.until_ready(board)?;
    eventually("an answer of the machine server", server_pid)
}

pub(in crate::lab) fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), Trouble> {
    if holds { Ok(()) } else { Err(Trouble(otherwise())) }
}

/// Settings of the unit for the length of a story.
pub(super) fn adjust(board: &Board, settings: &str) -> Result<(), Trouble> {
    let folder = board.path("/etc/systemd/system").join(format!("{UNIT}.d"));
    fs::create_dir_all(&folder).map_err(|error| Trouble::of(folder.display(), error))?;
    let text = format!("[Service]\n{settings}\n");
    fs::write(folder.join("lab.conf"), text).map_err(|error| Trouble::of(folder.display(), error))?;
    board.run("systemctl daemon-reload").map(drop)
}

pub(in crate::lab) fn active_again(board: &dyn Target, before: &str) -> Result<(), Trouble> {
    eventually("another agent that is ready", || {
        let pid = board.property("MainPID").ok().filter(|pid| pid != before && pid != "0")?;
        (board.property("ActiveState").ok()? == "active").then_some(pid)
    })
    .map(drop)
    .map_err(|trouble| Trouble(format!("{trouble}\n{}", board.journal())))
}

/// `--install`: active, ready by its own word, enabled; again changes nothing.
fn install(stage: &Stage<'_>) -> Result<Vec<String>, Trouble> {
    let site = Site::open(&stage.folder.join("site"))?;
    let board = Board::boot(stage.image, &stage.folder.join("board"))?;
    let begin = Instant::now();
    let first = site.install(&board)?;
    let took = begin.elapsed().as_millis();
    ensure(first.contains("ready after"), || first.clone())?;
    let state = ["ActiveState", "UnitFileState", "Type", "NRestarts", "StatusText"].map(|name| board.property(name));
    let [active, enabled, kind, restarts, status] = state;
    let state = [active?, enabled?, kind?, restarts?];
    ensure(state == ["active", "enabled", "notify", "0"], || format!("{state:?}\n{}", board.journal()))?;
    let pid = ready(&site, &board)?;
    let main = board.property("MainPID")?;
    let again = board.run(&format!("{DOWNLOADS}/{AGENT} --install"))?;
    ensure(!again.contains("copied") && !again.contains("written") && !again.contains("started"), || again.clone())?;
    ensure(board.property("MainPID")? == main && server_pid() == Some(pid), || "it was restarted".to_owned())?;
    let version = board.run("platform-agent --version")?;
    ensure(version == format!("{AGENT} {FIRST}"), || version.clone())?;
    // Ends with 3 where something is worth a warning: a board has no synchronised clock.
    let told = board.ask("platform-agent status")?.stdout;
    let told = String::from_utf8_lossy(&told).into_owned();
    ensure(told.contains("agent     1.0.0"), || told.clone())?;

    // A newer one over it, and the older one again. The channel is kept from having its own way.
    site.configure(&json!({"version_control": {"agent": "1.5.0"}}))?;
    let newer = board.path(DOWNLOADS).join("newer");
    fs::create_dir_all(&newer).map_err(|error| Trouble::of(newer.display(), error))?;
    agents::build("1.5.0", &newer.join(AGENT))?;
    let over = board.run(&format!("{DOWNLOADS}/newer/{AGENT} --install"))?;
    ensure(["stopped", "/b/platform-agent", "started"].iter().all(|word| over.contains(word)), || over.clone())?;
    site.until(&board, "the newer agent", |status| status.agent_version == "1.5.0")?;
    let older = board.ask(&format!("{DOWNLOADS}/{AGENT} --install"))?;
    let words = String::from_utf8_lossy(&older.stderr).into_owned();
    ensure(!older.status.success() && words.contains("--force"), || words.clone())?;
    let size = |path: &str| fs::metadata(board.path(path)).map_or(0, |file| file.len());
    Ok(vec![
        format!(
            "a board is up in {} ms; installed and ready in {took} ms; status {:?}",
            board.booted_in.as_millis(),
            status?
        ),
        "1.5.0 over it took the spare slot; back to 1.0.0 only with --force".to_owned(),
        format!(
            "the launcher has {} KiB here (not the device's build)",
            size("/opt/platform/bin/platform-launcher") / 1024
        ),
    ])
}

/// A hung agent is killed and followed by one that adopts the machine server.
fn watchdog(stage: &Stage<'_>) -> Result<Vec<String>, Trouble> {
    let (site, board, pid) = stage.installed()?;
    adjust(&board, "WatchdogSec=2")?;
    board.run(&format!("systemctl restart {UNIT}"))?;
    let server = eventually("the next machine server", || server_pid().filter(|now| *now != pid))?;
    site.until_ready(&board)?;
    let main = board.property("MainPID")?;
    let begin = Instant::now();
    board.run(&format!("kill -STOP {main}"))?;
    active_again(&board, &main)?;
    let took = begin.elapsed().as_millis();
    let journal = board.run(&format!("journalctl --no-pager --boot --unit {UNIT}"))?;
    ensure(journal.contains("Watchdog timeout"), || journal.clone())?;
    ensure(server_pid() == Some(server), || format!("the machine server was not kept\n{}", board.journal()))?;
    let adopted = site.until(&board, "the same machine server", |status| {
        status.server.as_ref().is_some_and(|found| found.pid == server && found.crashes == 0)
    })?;
    ensure(adopted.agent_version == FIRST, || adopted.agent_version.clone())?;
    Ok(vec![format!("stopped by SIGSTOP, the next agent was ready after {took} ms; machine server {server} adopted")])
}

/// `kill -9` of the agent: adopted; a machine server that dies while no agent lives has its last words delivered.
fn crash(stage: &Stage<'_>) -> Result<Vec<String>, Trouble> {
    let (site, board, pid) = stage.installed()?;
    let main = board.property("MainPID")?;
    let begin = Instant::now();
    board.run(&format!("kill -KILL {main}"))?;
    active_again(&board, &main)?;
    let took = begin.elapsed().as_millis();
    ensure(server_pid() == Some(pid), || format!("the machine server was not kept\n{}", board.journal()))?;
    let kept = board.property("NFileDescriptorStore")?;
    ensure(kept == "2", || format!("{kept} descriptors are kept"))?;

    // Long enough for the machine server to die alone.
    adjust(&board, "RestartSec=10")?;
    let main = board.property("MainPID")?;
    board.run(&format!("kill -KILL {main}"))?;
    site::say("farewell-from-the-gap")?;
    site::crash();
    eventually("the end of the machine server", || server_pid().is_none().then_some(()))?;
    // systemd may not have noticed yet that the last one has died.
    let now = board.property("MainPID")?;
    ensure(now == "0" || now == main, || "an agent was there too early for this story".to_owned())?;
    active_again(&board, &main)?;
    let next = eventually("the next machine server", || server_pid().filter(|now| *now != pid))?;
    eventually("the last words", || site.lines("farewell-from-the-gap").ok().filter(|lines| *lines > 0))
        .map_err(|trouble| Trouble(format!("{trouble}\n{}", board.journal())))?;
    Ok(vec![
        format!("killed, the next agent was ready after {took} ms and adopted machine server {pid}"),
        format!("a machine server that died in a gap of 10 s left its last words; {next} follows it"),
    ])
}

/// `systemctl stop` ends the machine server, whatever state the agent is in; `restart` gives a new one.
fn stop(stage: &Stage<'_>) -> Result<Vec<String>, Trouble> {
    let (site, board, pid) = stage.installed()?;
    let mut seen = Vec::new();
    let begin = Instant::now();
    board.run(&format!("systemctl stop {UNIT}"))?;
    ensure(server_pid().is_none(), || "the machine server outlived a stop".to_owned())?;
    seen.push(format!("stop of a healthy agent: {} ms, nothing left", begin.elapsed().as_millis()));

    // Agents that do not hear, and that die at once, in the place of the real one.
    for (kind, script, sign) in [
        ("hung", "trap \"\" TERM; while :; do sleep 1; done", "starts slot a, start"),
        ("dead", "exit 1", "it is started in"),
    ] {
        board.run(&format!("systemctl start {UNIT}"))?;
        let server = ready(&site, &board)?;
        ensure(server != pid, || "the same process".to_owned())?;
        adjust(&board, "TimeoutStopSec=3")?;
        board.run(&format!(
            "mv {SLOT_A} {SLOT_A}.away; printf '#!/bin/sh\\n{script}\\n' >{SLOT_A}; chmod 755 {SLOT_A}"
        ))?;
        let main = board.property("MainPID")?;
        board.run(&format!("journalctl --rotate --vacuum-time 1s; kill -KILL {main}"))?;
        eventually("the agent in its place", || board.journal().contains(sign).then_some(()))
            .map_err(|trouble| Trouble(format!("{trouble}\n{}", board.journal())))?;
        ensure(server_pid() == Some(server), || "the machine server did not survive its agent".to_owned())?;
        let begin = Instant::now();
        board.run(&format!("systemctl stop {UNIT}"))?;
        let took = begin.elapsed().as_millis();
        ensure(server_pid().is_none(), || format!("the machine server outlived it\n{}", board.journal()))?;
        let left = board.run(
            "cat /sys/fs/cgroup/systemd/system.slice/platform-agent.service/cgroup.procs \
                              /sys/fs/cgroup/system.slice/platform-agent.service/cgroup.procs 2>/dev/null || true",
        )?;
        ensure(left.is_empty(), || format!("left behind: {left}"))?;
        seen.push(format!("stop of a {kind} agent (limit 3 s): {took} ms, nothing left"));
        board.run(&format!("mv {SLOT_A}.away {SLOT_A}"))?;
    }

    board.run(&format!("systemctl start {UNIT}"))?;
    let fourth = ready(&site, &board)?;
    board.run(&format!("systemctl restart {UNIT}"))?;
    eventually("the next machine server", || server_pid().filter(|now| *now != fourth))?;
    Ok(seen)
}

/// The agent replaces itself; the machine server does not notice.
fn self_update(stage: &Stage<'_>) -> Result<Vec<String>, Trouble> {
    let (mut site, board, pid) = stage.installed()?;
    let (main, restarts) = (board.property("MainPID")?, board.property("NRestarts")?);
    let second = site.path("agent-2");
    agents::build("2.0.0", &second)?;
    let begin = Instant::now();
    site.publish(AGENT, "2.0.0", &second)?;
    site.until(&board, "version 2.0.0 of the agent", |status| status.agent_version == "2.0.0")?;
    let took = begin.elapsed().as_millis();
    ensure(server_pid() == Some(pid), || format!("the machine server was not kept\n{}", board.journal()))?;
    let now = (board.property("MainPID")?, board.property("NRestarts")?);
    ensure(now == (main, restarts), || format!("{now:?}: it was no hand-over\n{}", board.journal()))?;
    let status =
        site.until(&board, "its probation", |status| update(status, Product::Agent).phase() == Phase::Probation)?;
    ensure(server(&status) == pid, || format!("{status:?}"))?;
    let version = board.run("platform-agent --version")?;
    ensure(version == format!("{AGENT} 2.0.0"), || version.clone())?;
    Ok(vec![format!("from publishing 2.0.0 to its first report {took} ms; machine server {pid} and main process kept")])
}

fn server(status: &DeviceStatus) -> u32 {
    status.server.as_ref().map_or(0, |server| server.pid)
}

/// A release that dies at once: the launcher goes back, the version is remembered as bad, the machine server lives.
fn broken_update(stage: &Stage<'_>) -> Result<Vec<String>, Trouble> {
    let (mut site, board, pid) = stage.installed()?;
    let third = site.path("agent-3");
    agents::build_broken("3.0.0", &third)?;
    let back = taken_back(&mut site, &board, &third, pid)?;
    Ok(vec![back.seen, format!("the operator reads: {}", back.error)])
}

/// What was seen of an agent that the launcher took back.
pub(super) struct TakenBack {
    pub(super) seen: String,
    /// What the operator is told.
    pub(super) error: String,
    /// What the unit said.
    pub(super) journal: String,
}

/// Publishes this as the agent's version 3.0.0, which cannot live: three starts, then the one before runs again, and the
/// machine server `pid` does not notice.
pub(super) fn taken_back(site: &mut Site, board: &Board, agent: &Path, pid: u32) -> Result<TakenBack, Trouble> {
    let begin = Instant::now();
    site.publish(AGENT, "3.0.0", agent)?;
    let status = site.until(board, "a rolled back update", |status| {
        update(status, Product::Agent).bad_versions.iter().any(|bad| bad == "3.0.0")
    })?;
    let took = begin.elapsed().as_millis();
    ensure(status.agent_version == FIRST, || status.agent_version.clone())?;
    ensure(server_pid() == Some(pid), || format!("the machine server was not kept\n{}", board.journal()))?;
    let journal = board.run(&format!("journalctl --no-pager --boot --unit {UNIT} --output cat"))?;
    let starts = journal.lines().filter(|line| line.contains("starts slot b, start")).count();
    ensure(starts == 3, || format!("{starts} starts of a version that cannot live\n{}", board.journal()))?;
    let seen = format!("{starts} starts of 3.0.0, {FIRST} again {took} ms after publishing; machine server {pid} kept");
    Ok(TakenBack { seen, error: update(&status, Product::Agent).last_error, journal })
}

/// Everything comes back, with the versions that were there.
fn reboot(stage: &Stage<'_>) -> Result<Vec<String>, Trouble> {
    let (mut site, mut board, pid) = stage.installed()?;
    let second = site.path("agent-2");
    agents::build("2.0.0", &second)?;
    site.publish(AGENT, "2.0.0", &second)?;
    site.until(&board, "version 2.0.0 of the agent", |status| status.agent_version == "2.0.0")?;
    let before = site.status()?;
    let begin = Instant::now();
    board.reboot()?;
    let up = begin.elapsed().as_millis();
    let status = site.until(&board, "a report of the next boot", |status| {
        status.agent_version == "2.0.0"
            && status.agent_uptime_seconds < before.agent_uptime_seconds.max(30)
            && server(status) != 0
    })?;
    let next = ready(&site, &board)?;
    let took = begin.elapsed().as_millis();
    let server = status.server.unwrap_or_default();
    ensure(server.version == FIRST && server.crashes == 0, || format!("{server:?}"))?;
    Ok(vec![format!(
        "up after {up} ms, machine server {next} (before: {pid}) ready after {took} ms, agent 2.0.0 still"
    )])
}

/// The fleet server's own script, twice; uninstalled, nothing is left.
fn script(stage: &Stage<'_>) -> Result<Vec<String>, Trouble> {
    let site = Site::open(&stage.folder.join("site"))?;
    let board = Board::boot(stage.image, &stage.folder.join("board"))?;
    site.make(&board)?;
    let everything = "find / -xdev \\( -path /var/log -o -path /var/lib/systemd -o -path /tmp -o -path /var/tmp -o -path /run \
                      -o -path /proc -o -path /sys -o -path /dev \\) -prune -o -print | sort";
    let before = board.run(everything)?;
    let (url, key) = (&site.fleet.url, &site.owner);
    let line = format!(
        "curl -fsSL {url}/install.sh -o /tmp/install.sh && PLATFORM_API_KEY_ID={} PLATFORM_API_KEY={} PLATFORM_PART_ID={} sh /tmp/install.sh",
        key.key_id,
        key.key.expose(),
        site.device.part_id
    );
    let begin = Instant::now();
    let first = board.run(&line)?;
    let took = begin.elapsed().as_millis();
    ensure(first.contains("started"), || first.clone())?;
    let pid = ready(&site, &board)?;
    let modes = board.run("stat -c %a%u /etc/platform.json")?;
    ensure(modes == "6000", || modes.clone())?;
    let again = board.run(&line)?;
    ensure(again.contains("up to date") && again.contains("active"), || again.clone())?;
    ensure(server_pid() == Some(pid), || "the second run restarted the machine server".to_owned())?;
    let gone = board.run("platform-agent --uninstall --purge")?;
    ensure(server_pid().is_none(), || "the machine server outlived the uninstallation".to_owned())?;
    let after = board.run(everything)?;
    let left: Vec<&str> = after.lines().filter(|line| !before.lines().any(|known| known == *line)).collect();
    ensure(left.is_empty(), || format!("left behind: {left:?}\n{gone}"))?;
    Ok(vec![format!("installed by the script in {took} ms; again without a restart; uninstalled without a trace")])
}

/// What systemd thinks of the unit. A figure, and a bound that it may not grow beyond.
fn exposure(stage: &Stage<'_>) -> Result<Vec<String>, Trouble> {
    let (_site, board, _) = stage.installed()?;
    let told = board
        .run(&format!("systemd-analyze security --offline=true --no-pager /etc/systemd/system/{UNIT} | tail -n 1"))?;
    let figure = told.split(": ").nth(1).and_then(|rest| rest.split(' ').next()?.parse::<f64>().ok());
    ensure(figure.is_some_and(|figure| figure <= 9.6), || told.clone())?;
    Ok(vec![format!("{} (goal 6.0 not met: docs/adr/0018 says why)", told.trim_start_matches(['→', ' ']))])
}
