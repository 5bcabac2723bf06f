//! Kills a real agent and its launcher again and again in the middle of real updates, on a real file system.
//!
//! `kills --count 500 --from 1`. Launcher, agent and machine server are installed as on a device; this program is the
//! service manager that starts the launcher again at once. Both products are sent from version to version, every sixth
//! of the agent's dies at its first instruction. After each kill there must be an agent that can be started and one
//! machine server at most; after every few, both products must have arrived where they were sent, or have gone back.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    time::{Duration, Instant},
};

use actors::update::slots::{Layout, Slot};
use api::{
    brand,
    client::Client,
    pb::platform::fleet::v1::{
        DeviceStatus, GetPartStatusRequest, Product, UpdateStatus, admin_service, update_status::Phase,
    },
};
use board_sim::Random;
use rustix::process::Signal;
use serde_json::json;
use test_harness::real::{
    Trouble,
    agent::AgentOptions,
    agents,
    device::Device,
    eventually,
    fleet::{Fleet, call, init},
    process::Running,
    releases::Factory,
    stand_in,
};

/// Seconds in a minute of settings: probation takes half a second for the agent, a quarter for the machine server.
const MINUTE: f64 = 0.05;
/// Kills until both products have to arrive.
const KILLS_PER_WALK: u64 = 10;
/// Longest life between two kills; an update takes about a second.
const LIFE_MAX_MS: u64 = 1_200;
/// Versions of each product.
const VERSIONS: u64 = 4;
const BROKEN: &str = "9.0.0";

fn main() -> ExitCode {
    let (mut count, mut from) = (500, 1);
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments.next().and_then(|value| value.parse().ok());
        match (name.as_str(), value) {
            ("--count", Some(value)) => count = value,
            ("--from", Some(value)) => from = value,
            _ => {
                eprintln!("{name} is no option, or has no number; there are --count and --from");
                return ExitCode::from(2);
            }
        }
    }
    let folder = std::env::temp_dir().join(format!("kills-{}", std::process::id()));
    let begin = Instant::now();
    match run(&folder, count, from) {
        Ok(tally) => {
            let _ = fs::remove_dir_all(&folder);
            println!("{tally} in {:.0} s", begin.elapsed().as_secs_f64());
            ExitCode::SUCCESS
        }
        Err(trouble) => {
            println!("{trouble}\nseed {from}; what it left is in {}", folder.display());
            ExitCode::FAILURE
        }
    }
}

#[derive(Default)]
struct Tally {
    kills: u64,
    /// Of them, while the launcher was the process.
    of_launcher: u64,
    /// Of them, while a walk was under way, by where it was.
    midway: std::collections::BTreeMap<String, u64>,
    arrived: u64,
    went_back: u64,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tally { kills, of_launcher, midway, arrived, went_back } = self;
        write!(
            f,
            "{kills} kills, {of_launcher} of them of the launcher, {arrived} walks arrived, {went_back} went back; \
             killed by state of the agent's walk:"
        )?;
        midway.iter().try_for_each(|(state, count)| write!(f, " {state} {count}"))
    }
}

/// One device and all it needs.
struct Bench {
    client: Client,
    device: Device,
    options: AgentOptions,
    agent: Option<Running>,
    layout: Layout,
    tally: Tally,
}

fn run(folder: &Path, count: u64, from: u64) -> Result<Tally, Trouble> {
    let random = Random::new(from);
    fs::create_dir_all(folder).map_err(|error| Trouble::of(folder.display(), error))?;
    let data = folder.join("fleet");
    let owner = init(&data, None)?;
    let factory = Factory::open(&folder.join("factory"), &data)?;
    let first = publish(folder, &factory)?;
    let fleet = Fleet::start(&data, "127.0.0.1:0", None, &folder.join("fleet.log"))?;
    let client = fleet.client(&owner)?;
    let device = Device::create(&client, &owner.organization_id, "hillside", "board")?;
    let mut options = AgentOptions { minute: Some(MINUTE), ..AgentOptions::new(&folder.join("device")) };
    fs::create_dir_all(&options.folder).map_err(|error| Trouble::of(options.folder.display(), error))?;
    device.write_credentials(&fleet.url, &options.credentials())?;
    agents::install(&first, &mut options)?;
    let layout = Layout::new(&options.root(), brand::AGENT);
    let mut bench = Bench { client, device, options, agent: None, layout, tally: Tally::default() };
    bench.want("1.0.1", "1.0.1")?;
    bench.start()?;
    bench.arrive("1.0.1", "1.0.1")?;
    let mut walk = 1;
    while bench.tally.kills < count {
        walk += 1;
        let (agent, server) = (1 + walk % VERSIONS, 1 + random.below(VERSIONS));
        let broken = walk % 6 == 0;
        let agent = if broken { BROKEN.to_owned() } else { format!("1.0.{agent}") };
        let server = format!("1.0.{server}");
        bench.want(&agent, &server)?;
        for _ in 0..KILLS_PER_WALK.min(count - bench.tally.kills) {
            // Mostly in the first moments, when most is done.
            let life = if random.chance(70) { LIFE_MAX_MS / 4 } else { LIFE_MAX_MS };
            std::thread::sleep(Duration::from_millis(random.below(life)));
            bench.kill()?;
            bench.check()?;
        }
        bench.arrive(&agent, &server)?;
        if walk % 5 == 0 {
            println!("{}", bench.tally);
        }
    }
    if let Some(agent) = bench.agent.take() {
        agent.stop()?;
    }
    fleet.process.stop()?;
    Ok(bench.tally)
}

/// Signs and publishes every version; the first agent.
fn publish(folder: &Path, factory: &Factory) -> Result<PathBuf, Trouble> {
    for number in 1..=VERSIONS {
        let version = format!("1.0.{number}");
        let [agent, server] = ["agent", "server"].map(|what| folder.join(format!("{what}-{version}")));
        agents::build(&version, &agent)?;
        factory.release_agent(&version, number, &agent)?;
        stand_in::build_with(&version, &[], &server)?;
        factory.release(&version, number, &server)?;
    }
    let broken = folder.join("agent-broken");
    agents::build_broken(BROKEN, &broken)?;
    factory.release_agent(BROKEN, VERSIONS + 1, &broken)?;
    Ok(folder.join("agent-1.0.1"))
}

impl Bench {
    fn want(&self, agent: &str, server: &str) -> Result<(), Trouble> {
        // A window that is always open, so that the machine server's switch waits for no restart.
        let days = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
        let window = json!({"windows": [{"days": days, "from": "00:00", "to": "24:00", "tz": "UTC"}]});
        let config = json!({"agent": {
            "version_control": {"agent": agent, "platform-server": server},
            // Slow enough that a download can be hit.
            "advanced_settings": {"maintenance": window, "update_bandwidth_kilobytes_per_second": 40_000},
        }});
        self.device.configure(&self.client, &config)
    }

    fn start(&mut self) -> Result<(), Trouble> {
        self.agent = Some(self.options.start()?);
        Ok(())
    }

    /// Kills whatever the process is now, launcher or agent, and starts the launcher again.
    fn kill(&mut self) -> Result<(), Trouble> {
        let Some(agent) = self.agent.take() else { return self.start() };
        let is_launcher = is_launcher(agent.pid());
        let record = fs::read_to_string(self.layout.record()).unwrap_or_default();
        let state = record.split_once("\"state\":\"").and_then(|(_, rest)| rest.split('"').next()).unwrap_or("none");
        agent.kill();
        self.tally.kills += 1;
        self.tally.of_launcher += u64::from(is_launcher);
        *self.tally.midway.entry(state.to_owned()).or_default() += 1;
        self.start()
    }

    /// What must be so at any time.
    fn check(&self) -> Result<(), Trouble> {
        let starts = |slot| {
            let program: PathBuf = self.layout.executable(slot);
            let said = Command::new(program).arg("--version").output();
            said.is_ok_and(|output| output.status.success())
        };
        if !Slot::ALL.into_iter().any(starts) {
            return Err(Trouble("no version of the agent can be started".into()));
        }
        let servers = self.servers();
        if servers > 1 {
            return Err(Trouble(format!("{servers} machine servers run")));
        }
        Ok(())
    }

    fn servers(&self) -> usize {
        let ours = self.options.root().join("versions").join(brand::MACHINE_SERVER);
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        // Of one program: what it was started as may be replaced meanwhile.
        entries.filter(|entry| fs::read_link(entry.path().join("exe")).is_ok_and(|exe| exe.starts_with(&ours))).count()
    }

    /// Waits until both products are where they were sent, or have gone back from there.
    fn arrive(&mut self, agent: &str, server: &str) -> Result<(), Trouble> {
        let mut last = None::<DeviceStatus>;
        let arrived = eventually(&format!("agent {agent} and machine server {server}"), || {
            // The service manager never sleeps.
            if self.agent.as_mut().is_none_or(|agent| !agent.is_running()) {
                self.start().ok()?;
            }
            // Polls come every five seconds; whoever asks does not wait for the next one.
            if let Some(running) = &self.agent
                && !is_launcher(running.pid())
            {
                running.signal(Signal::HUP);
            }
            let request = GetPartStatusRequest { part_id: self.device.part_id.clone() };
            last = call(&self.client, admin_service::GET_PART_STATUS, &request).ok()?.status;
            let updates = &last.as_ref()?.updates;
            let of = |product| updates.iter().find(|update| update.product() == product);
            let (of_agent, of_server) = (of(Product::Agent)?, of(Product::MachineServer)?);
            (is_there(of_agent, agent) && is_there(of_server, server)).then(|| of_agent.phase())
        });
        match arrived {
            Ok(Phase::RolledBack) => self.tally.went_back += 1,
            Ok(_) => self.tally.arrived += 1,
            Err(trouble) => return Err(Trouble(format!("{trouble}; the last status: {last:#?}"))),
        }
        self.check()
    }
}

fn is_launcher(pid: u32) -> bool {
    fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|program| program.ends_with(brand::LAUNCHER))
}

/// Whether a walk to `version` is over: there, or back because it could not live. To be killed three times before it
/// has lived is no fault of a version, but nobody can know.
fn is_there(update: &UpdateStatus, version: &str) -> bool {
    let rests = matches!(update.phase(), Phase::Idle | Phase::Committed | Phase::RolledBack);
    let is_bad = update.bad_versions.iter().any(|bad| bad == version);
    rests && update.wanted == version && (update.running_version == version || is_bad)
}
