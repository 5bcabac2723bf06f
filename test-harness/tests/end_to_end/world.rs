//! One fleet server, one device, one person: a folder, ports and processes of their own for each test.
//!
//! Owns how a story is told: what a person does (`configure`, `mark_for_restart`), what is waited for (`until`), and what
//! is looked at (`page`, `status`, `log`). Waits for events only; the agent's minute lasts a second.

#![allow(unreachable_pub, reason = "a module of a test, not of a library")]

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use api::{
    client::Client,
    pb::platform::{
        app::v1::{
            GetRobotPartLogsRequest, GetRobotPartLogsResponse, LogOrder, MarkPartForRestartRequest, app_service,
        },
        common::v1::LogEntry,
        fleet::v1::{
            DeviceStatus, GetPartStatusRequest, GetPartStatusResponse, Product, ServerStatus, UpdateStatus,
            admin_service, server_status, update_status,
        },
    },
};
pub use rustix::process::Signal;
use rustix::process::{Pid, kill_process, kill_process_group, test_kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;
use test_harness::real::{
    agent::AgentOptions,
    device::Device,
    fleet::{Fleet, Owner, call, client, init, try_call},
    port::Port,
    process::Running,
    programs::find,
    releases::Factory,
    stand_in,
};
pub use test_harness::real::{eventually, http, mirror::Mirror};

/// Where the machine server is.
pub type ServerPhase = server_status::Phase;
/// Where the update is.
pub type UpdatePhase = update_status::Phase;

/// The agent's minute, in seconds.
const MINUTE: f64 = 1.0;
/// The question with which a device says that it is there.
const CHECK: &str = "AgentDeviceService/DeviceAgentConfig\",code=\"0\"} ";

/// A stand-in with knobs: version, and what it does.
pub type Release<'a> = (&'a str, &'a [(&'a str, &'a str)]);

/// Everything of one test.
pub struct World {
    pub fleet: Option<Fleet>,
    pub client: Client,
    /// Who owns the organization, for the command line.
    pub owner: Owner,
    pub device: Device,
    pub factory: Factory,
    pub options: AgentOptions,
    pub agent: Option<Running>,
    /// `http://127.0.0.1:PORT` of the fleet server, the same after each start.
    pub url: String,
    /// Where the machine server is asked until it names a better place.
    pub status_url: String,
    /// Of both.
    _ports: [Port; 2],
    numbers: u64,
    folder: PathBuf,
    // Last, so that it outlives the processes.
    own: Option<TempDir>,
}

impl World {
    /// A fleet server with these releases, the last of them in channel `stable`, and a device that has not started.
    pub fn new(releases: &[Release<'_>]) -> World {
        let own = tempfile::tempdir().expect("a folder for a test");
        let mut world = World::at(own.path(), releases);
        world.own = Some(own);
        world
    }

    /// The same in a folder that somebody else cleans up.
    pub fn at(folder: &Path, releases: &[Release<'_>]) -> World {
        let data = folder.join("fleet");
        let owner = init(&data, None).expect("an organization");
        let factory = Factory::open(&folder.join("factory"), &data).expect("keys");
        let ports = [(); 2].map(|()| Port::reserve().expect("a port"));
        let [url, status_url] = ports.each_ref().map(Port::url);
        let fleet = start_fleet(folder, &url);
        let client = client(&fleet.url, &owner).expect("a client");
        let device = Device::create(&client, &owner.organization_id, "Here", "machine").expect("a machine");
        let options = AgentOptions { minute: Some(MINUTE), ..AgentOptions::new(&folder.join("device")) };
        fs::create_dir_all(&options.folder).expect("a folder for the device");
        let mut world = World {
            fleet: Some(fleet),
            client,
            owner,
            device,
            factory,
            options,
            agent: None,
            url,
            status_url,
            _ports: ports,
            numbers: 0,
            folder: folder.to_owned(),
            own: None,
        };
        world.write_credentials(&world.url.clone());
        world.write_defaults(&json!({}));
        for (version, knobs) in releases {
            world.release(version, knobs);
        }
        if let Some((version, _)) = releases.last() {
            world.channel("stable", version);
        }
        world
    }

    /// The same with a running agent and a machine server that is ready.
    pub fn running(releases: &[Release<'_>]) -> World {
        World::running_at(MINUTE, releases)
    }

    /// The same, where a minute lasts so many seconds: for what must not be over before the test is.
    pub fn running_at(minute: f64, releases: &[Release<'_>]) -> World {
        let mut world = World::new(releases);
        world.options.minute = Some(minute);
        world.start_agent();
        world.until_ready();
        world
    }

    /// A path in the test's folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    // ── What a manufacturer does ──────────────────────────────────────────────────────────────────────────────────

    /// A stand-in that nobody signed.
    pub fn build(&self, version: &str, knobs: &[(&str, &str)]) -> PathBuf {
        let path = self.path(&format!("stand-in-{version}"));
        let diary = self.path("diary").display().to_string();
        let knobs: Vec<_> = knobs.iter().copied().chain([("diary", diary.as_str())]).collect();
        stand_in::build_with(version, &knobs, &path).expect("a stand-in");
        path
    }

    /// Signs and publishes a stand-in.
    pub fn release(&mut self, version: &str, knobs: &[(&str, &str)]) {
        let artifact = self.build(version, knobs);
        self.numbers += 1;
        self.factory.release(version, self.numbers, &artifact).expect("a release");
    }

    /// What a channel means from now on.
    pub fn channel(&self, channel: &str, version: &str) {
        self.factory.channels(&[(channel, version)]).expect("a channel");
    }

    /// Replaces the manufacturer's defaults; the status address is always this test's own.
    pub fn write_defaults(&self, advanced: &Value) {
        let mut advanced = advanced.clone();
        advanced["server_status_url"] = json!(self.status_url);
        let defaults = json!({"advanced_settings": advanced});
        fs::write(self.options.defaults(), defaults.to_string()).expect("a defaults file");
    }

    // ── What an operator does ─────────────────────────────────────────────────────────────────────────────────────

    /// `UpdateRobotPart` with this `agent` section.
    pub fn configure(&self, agent: &Value) {
        self.device.configure(&self.client, &json!({"agent": agent})).expect("the part takes it");
    }

    /// What the command line prints for these arguments.
    #[track_caller]
    pub fn platform(&self, arguments: &[&str]) -> String {
        let mut command = Command::new(find("platform").expect("it is built"));
        command.args(arguments).stdin(Stdio::null()).env("HOME", &self.folder).env("PLATFORM_URL", &self.url);
        command.env("PLATFORM_API_KEY_ID", &self.owner.key_id).env("PLATFORM_API_KEY", self.owner.key.expose());
        let output = command.output().expect("it starts");
        let said = [&*output.stdout, &*output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
        assert!(output.status.success(), "{arguments:?}: {}{}", said[0], said[1]);
        said[0].clone()
    }

    /// `MarkPartForRestart`
    pub fn mark_for_restart(&self) {
        let request = MarkPartForRestartRequest { part_id: self.device.part_id.clone() };
        call(&self.client, app_service::MARK_PART_FOR_RESTART, &request).expect("the part is marked");
    }

    /// `GetPartStatus`; panics unless the server answers.
    pub fn part_status(&self) -> GetPartStatusResponse {
        let request = GetPartStatusRequest { part_id: self.device.part_id.clone() };
        call(&self.client, admin_service::GET_PART_STATUS, &request).expect("a status")
    }

    /// What the device says of itself.
    pub fn status(&self) -> DeviceStatus {
        self.part_status().status.unwrap_or_default()
    }

    /// Waits for a status like this.
    #[track_caller]
    pub fn until(&self, what: &str, wanted: impl Fn(&DeviceStatus) -> bool) -> DeviceStatus {
        let seen = eventually(what, || Some(self.status()).filter(&wanted));
        seen.unwrap_or_else(|trouble| panic!("{trouble}; it is {:#?}\n{}", self.status(), self.agent_said()))
    }

    /// Waits for a machine server that is ready.
    #[track_caller]
    pub fn until_ready(&self) -> ServerStatus {
        self.until("a machine server that is ready", |status| server(status).phase() == ServerPhase::Running)
            .server
            .unwrap_or_default()
    }

    /// Waits for a machine server of this version that is ready.
    #[track_caller]
    pub fn until_version(&self, version: &str) -> ServerStatus {
        let what = format!("version {version}");
        let ready =
            |status: &DeviceStatus| server(status).phase() == ServerPhase::Running && server(status).version == version;
        self.until(&what, ready).server.unwrap_or_default()
    }

    /// Waits until the configuration that was made last is in force.
    #[track_caller]
    pub fn until_checked(&self) {
        // The first may have begun before; the second began after. When the third ends, its answer has been acted upon.
        let enough = self.checks() + 3;
        let seen = eventually("three questions of the device", || (self.checks() >= enough).then_some(()));
        seen.unwrap_or_else(|trouble| panic!("{trouble}\n{}", self.agent_said()));
    }

    /// How often the one device of this fleet server has been told its configuration since the server's start.
    fn checks(&self) -> u64 {
        let (status, page) = http::get(&format!("{}/metrics", self.url)).expect("a page");
        assert_eq!(status, 200, "{page}");
        let count = page.lines().find_map(|line| line.split_once(CHECK)?.1.parse().ok());
        count.unwrap_or(0)
    }

    /// All lines of the part whose text contains this, oldest first, read in pages of so many.
    pub fn lines_by(&self, filter: &str, page: i64) -> Vec<LogEntry> {
        let mut request = GetRobotPartLogsRequest {
            id: self.device.part_id.clone(),
            filter: Some(filter.to_owned()),
            order: Some(LogOrder::Ascending.into()),
            limit: Some(page),
            ..Default::default()
        };
        let mut lines = Vec::new();
        loop {
            let answer: GetRobotPartLogsResponse =
                call(&self.client, app_service::GET_ROBOT_PART_LOGS, &request).expect("a page of the log");
            lines.extend(answer.logs);
            if answer.next_page_token.is_empty() {
                return lines;
            }
            request.page_token = Some(answer.next_page_token);
        }
    }

    /// All lines of the part whose text contains this, oldest first.
    pub fn lines(&self, filter: &str) -> Vec<LogEntry> {
        self.lines_by(filter, 500)
    }

    /// The newest line of the part whose text contains this.
    pub fn newest_line(&self, filter: &str) -> Option<LogEntry> {
        let request = GetRobotPartLogsRequest {
            id: self.device.part_id.clone(),
            filter: Some(filter.to_owned()),
            order: Some(LogOrder::Descending.into()),
            limit: Some(1),
            ..Default::default()
        };
        call(&self.client, app_service::GET_ROBOT_PART_LOGS, &request).expect("a page of the log").logs.pop()
    }

    // ── What happens to the fleet server ──────────────────────────────────────────────────────────────────────────

    /// Stops it in order.
    pub fn stop_fleet(&mut self) {
        let fleet = self.fleet.take().expect("it runs");
        assert_eq!(fleet.process.stop().expect("it ends"), Some(0));
    }

    /// `kill -9`
    pub fn kill_fleet(&mut self) {
        self.fleet.take().expect("it runs").process.kill();
    }

    /// Starts it again where it was.
    pub fn start_fleet(&mut self) {
        self.fleet = Some(start_fleet(&self.folder, &self.url));
    }

    // ── What happens to the device ────────────────────────────────────────────────────────────────────────────────

    /// Gives the device its identity, with this address of the fleet server.
    pub fn write_credentials(&self, url: &str) {
        self.device.write_credentials(url, &self.options.credentials()).expect("a credentials file");
    }

    pub fn start_agent(&mut self) {
        assert!(self.agent.is_none(), "one agent at a time");
        self.agent = Some(self.options.start().expect("an agent"));
    }

    /// Stops the agent in order, and with it the machine server.
    #[track_caller]
    pub fn stop_agent(&mut self) {
        let agent = self.agent.take().expect("it runs");
        let code = agent.stop().unwrap_or_else(|trouble| panic!("{trouble}\n{}", self.agent_said()));
        assert_eq!(code, Some(0), "{}", self.agent_said());
    }

    /// What somebody at the device gets to see.
    pub fn ask_agent(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(find("platform-agent").expect("it is built"));
        command.arg("status").args(arguments).arg("--root").arg(self.options.root()).stdin(Stdio::null());
        command.output().expect("it starts")
    }

    /// The same for programs: exit code and document.
    #[track_caller]
    pub fn local_status(&self) -> (Option<i32>, Value) {
        let output = self.ask_agent(&["--json"]);
        let text = String::from_utf8_lossy(&output.stdout);
        let document = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        (output.status.code(), document)
    }

    /// `kill -9`: the machine server lives on.
    pub fn kill_agent(&mut self) {
        self.agent.take().expect("it runs").kill();
    }

    /// Everything the agent printed.
    pub fn agent_said(&self) -> String {
        fs::read_to_string(self.options.log()).unwrap_or_default()
    }

    /// Waits for a line of the agent.
    #[track_caller]
    pub fn until_said(&self, words: &str) {
        let said = eventually(words, || self.agent_said().contains(words).then_some(()));
        said.unwrap_or_else(|trouble| panic!("{trouble}; the agent said:\n{}", self.agent_said()));
    }

    /// Every start of the machine server so far, by its own diary: version and process.
    pub fn starts(&self) -> Vec<(String, u32)> {
        let diary = fs::read_to_string(self.path("diary")).unwrap_or_default();
        let entry =
            |line: &str| line.split_once(' ').and_then(|(version, pid)| Some((version.into(), pid.parse().ok()?)));
        diary.lines().filter_map(entry).collect()
    }

    /// Waits for the start that follows that of this process; its own process.
    #[track_caller]
    pub fn until_started_after(&self, pid: u32) -> u32 {
        let next = eventually("another start of the machine server", || {
            self.starts().into_iter().map(|(_, started)| started).skip_while(|started| *started != pid).nth(1)
        });
        next.unwrap_or_else(|trouble| panic!("{trouble}\n{}", self.agent_said()))
    }

    /// A page of the machine server at its usual place, if it serves.
    pub fn page(&self, path: &str) -> Option<(u16, String)> {
        http::get(&format!("{}{path}", self.status_url)).ok()
    }

    /// The body of a page that is there.
    #[track_caller]
    pub fn read(&self, path: &str) -> String {
        let answer = eventually(path, || self.page(path)).expect("the machine server serves");
        assert_eq!(answer.0, 200, "{path}");
        answer.1
    }

    /// Turns a knob of the machine server that runs.
    pub fn behave(&self, knob: &str, value: &str) {
        let answer = http::post(&format!("{}/behave/{knob}/{value}", self.status_url)).expect("it serves");
        assert_eq!(answer.0, 200, "{knob}");
    }

    /// The process that serves at the usual place.
    pub fn server_pid(&self) -> u32 {
        self.read("/pid").parse().expect("a number")
    }

    /// Waits until the machine server serves as another process.
    #[track_caller]
    pub fn until_other_than(&self, pid: u32) -> u32 {
        let other = eventually("another process of the machine server", || {
            let (status, body) = self.page("/pid")?;
            body.parse().ok().filter(|found| status == 200 && *found != pid)
        });
        other.unwrap_or_else(|trouble| panic!("{trouble}: {:#?}\n{}", self.part_status(), self.agent_said()))
    }
}

impl Drop for World {
    /// The agent first: it ends its machine server. After a kill there may be one without an agent.
    fn drop(&mut self) {
        let had_agent = self.agent.take().is_some();
        drop(self.fleet.take());
        if !had_agent && let Some(pid) = self.page("/pid").and_then(|(_, body)| body.parse().ok()) {
            // With the children that it was told to have.
            let _ = kill_process_group(self::pid(pid), Signal::KILL);
        }
    }
}

fn start_fleet(folder: &Path, url: &str) -> Fleet {
    let (listen, arguments) = (url.trim_start_matches("http://"), ["--check-seconds", "1"]);
    Fleet::start_with(&folder.join("fleet"), listen, None, &folder.join("fleet.log"), &arguments)
        .expect("a fleet server")
}

/// The machine server in a status.
pub fn server(status: &DeviceStatus) -> ServerStatus {
    status.server.clone().unwrap_or_default()
}

/// The update of the machine server in a status.
pub fn update(status: &DeviceStatus) -> UpdateStatus {
    let of_server = |update: &&UpdateStatus| update.product() == Product::MachineServer;
    status.updates.iter().find(of_server).cloned().unwrap_or_default()
}

/// One call, with its error.
pub fn attempt<Request, Response>(
    client: &Client,
    method: api::method::Unary<Request, Response>,
    request: &Request,
) -> Result<Response, api::client::CallError>
where
    Request: prost::Message,
    Response: prost::Message + Default,
{
    try_call(client, method, request)
}

/// "nobody" everywhere.
pub const NOBODY: u32 = 65_534;

/// Copies of these programs in a folder where everybody may run them: that of a build may be closed to others.
pub fn for_everybody(place: &Path, programs: &[&str]) -> PathBuf {
    let bin = place.join("bin");
    fs::create_dir(&bin).expect("a folder for programs");
    for program in programs {
        let (from, to) = (find(program).expect("it is built"), bin.join(program));
        // The same disk, most likely; the programs of a debug build are large.
        if fs::hard_link(&from, &to).is_err() {
            test_executables::copy(&from, &to).expect("a copy");
        }
    }
    fs::set_permissions(place, fs::Permissions::from_mode(0o777)).expect("everybody's");
    bin
}

/// Whether this is root, who can become anybody and may mount.
pub fn is_root() -> bool {
    rustix::process::getuid().is_root()
}

fn pid(number: u32) -> Pid {
    i32::try_from(number).ok().and_then(Pid::from_raw).expect("a process number")
}

/// Sends a signal to any process.
pub fn signal(number: u32, signal: Signal) {
    let _ = kill_process(pid(number), signal);
}

/// Whether such a process is there and not only waits to be buried.
pub fn is_alive(number: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{number}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    test_kill_process(pid(number)).is_ok() && state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

/// Waits for the end of a process that is not ours.
#[track_caller]
pub fn until_gone(number: u32) {
    eventually(&format!("the end of process {number}"), || (!is_alive(number)).then_some(())).expect("it ends");
}
