//! `make sandbox`: the main job on this machine, from one command.
//!
//! A fleet server on SQLite, a manufacturer's signed releases, a machine, and an agent that runs the stand-in machine
//! server: all real programs on real sockets, on loopback, in one folder. A second start finds everything as it was.

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Instant,
};

use api::{
    Secret,
    pb::platform::{
        app::v1::{CreateFragmentRequest, app_service},
        fleet::v1::{GetPartStatusRequest, admin_service, server_status::Phase},
    },
};
use async_signal::Signal;
use serde_json::{Value, json};
use smol::{future::FutureExt as _, stream::StreamExt as _};
use test_harness::real::{
    Trouble,
    agent::AgentOptions,
    device::{Device, write_private},
    eventually,
    fleet::{Fleet, Owner, call, client, init},
    port::Port,
    process::Running,
    programs,
    releases::Factory,
    stand_in, structs,
};

const HELP: &str = "\
make sandbox ARGS=\"…\": a fleet server, an agent and a machine server on this machine

  --data DIR          where everything is kept (default ./sandbox)
  --listen ADDRESS    where the fleet server listens (default 127.0.0.1:8080; port 0: any free one)
  --database URL      a database of your own for the fleet server
  --no-agent          only the fleet server, with a machine that waits for its device
  --minute SECONDS    how long a minute of the agent's settings lasts (default 60)
  --json              one line of JSON when ready, for scripts
";

/// Where a machine server is asked how it is, unless told otherwise.
const USUAL_STATUS_PORT: u16 = 8081;

struct Options {
    data: PathBuf,
    listen: String,
    database: Option<String>,
    agent: bool,
    minute: Option<f64>,
    json: bool,
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(Some(options)) => options,
        Ok(None) => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(trouble) => {
            eprintln!("{trouble}\n{HELP}");
            return ExitCode::from(2);
        }
    };
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(trouble) => {
            eprintln!("sandbox: {trouble}");
            ExitCode::FAILURE
        }
    }
}

fn options() -> Result<Option<Options>, Trouble> {
    let mut options = Options {
        data: PathBuf::from("sandbox"),
        listen: "127.0.0.1:8080".into(),
        database: None,
        agent: true,
        minute: None,
        json: false,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| Trouble(format!("{argument} needs a value")));
        match argument.as_str() {
            "--data" => options.data = value()?.into(),
            "--listen" => options.listen = value()?,
            "--database" => options.database = Some(value()?),
            "--minute" => {
                let seconds = value()?;
                options.minute = Some(seconds.parse().map_err(|error| Trouble::of(seconds, error))?);
            }
            "--no-agent" => options.agent = false,
            "--json" => options.json = true,
            "--help" | "-h" => return Ok(None),
            other => return Err(Trouble(format!("{other} is not an option"))),
        }
    }
    Ok(Some(options))
}

fn run(options: &Options) -> Result<(), Trouble> {
    let begin = Instant::now();
    // From here on Ctrl-C is an event, so that it cannot leave half of the processes behind; a closed terminal too.
    let mut interrupts = async_signal::Signals::new([Signal::Int, Signal::Term, Signal::Hup])
        .map_err(|error| Trouble::of("signals", error))?;

    let folder = std::path::absolute(&options.data).map_err(|error| Trouble::of(options.data.display(), error))?;
    fs::create_dir_all(&folder).map_err(|error| Trouble::of(folder.display(), error))?;
    let data = folder.join("fleet");
    let memory = folder.join("sandbox.json");
    let mut known = remembered(&memory)?;

    let owner = match &known {
        Some(known) => known.owner.clone(),
        None => init(&data, options.database.as_deref())?,
    };
    if known.is_none() {
        publish_releases(&folder, &data)?;
    }
    // Whoever shortens minutes does not want to wait for the next question of the device either.
    let hurry: &[&str] = if options.minute.is_some() { &["--check-seconds", "1"] } else { &[] };
    let database = options.database.as_deref();
    let fleet = Fleet::start_with(&data, &options.listen, database, &folder.join("fleet.log"), hurry)?;
    let client = client(&fleet.url, &owner)?;
    if known.is_none() {
        let made = Known { device: furnish(&client, &owner)?, owner };
        write_private(&memory, &made.to_json(&fleet.url).to_string())?;
        known = Some(made);
    }
    let known = known.ok_or_else(|| Trouble("nothing was made".into()))?;

    let device = AgentOptions { minute: options.minute, ..AgentOptions::new(&folder.join("device")) };
    fs::create_dir_all(&device.folder).map_err(|error| Trouble::of(device.folder.display(), error))?;
    known.device.write_credentials(&fleet.url, &device.credentials())?;
    let _status_port = choose_status_port(&device)?;
    let mut agent = if options.agent { Some(device.start()?) } else { None };
    if agent.is_some() {
        let request = GetPartStatusRequest { part_id: known.device.part_id.clone() };
        // What a machine of before has told is still there, and says that it runs.
        let asked = call(&client, admin_service::GET_PART_STATUS, &request).ok();
        let before = asked.and_then(|answer| answer.status?.server?.started_at);
        eventually("the machine to be live", || {
            let answer = call(&client, admin_service::GET_PART_STATUS, &request).ok()?;
            let server = answer.status?.server?;
            let running = server.phase() == Phase::Running && server.started_at != before;
            (answer.live && running).then_some(())
        })
        .map_err(|trouble| Trouble(format!("{trouble}; see {}", device.log().display())))?;
    }

    if options.json {
        println!("{}", known.to_json(&fleet.url));
    } else {
        println!("{}", screen(&fleet, &known, &folder, agent.is_some(), begin)?);
    }

    let ended = smol::block_on(
        async {
            interrupts.next().await;
            None
        }
        .or(first_end(&fleet, agent.as_ref())),
    );
    if let Some(agent) = agent.take() {
        agent.stop()?;
    }
    fleet.process.stop()?;
    match ended {
        Some(name) => Err(Trouble(format!("{name} ended by itself; see its log in {}", folder.display()))),
        None => Ok(()),
    }
}

/// The usual port of the machine server's status page, or a free one where somebody has it: another sandbox may run on
/// this machine, and its machine server must not be taken for this one's. To be kept as long as the machine server.
fn choose_status_port(device: &AgentOptions) -> Result<Port, Trouble> {
    let port = Port::hold(USUAL_STATUS_PORT).map_or_else(Port::reserve, Ok)?;
    let defaults = json!({"advanced_settings": {"server_status_url": port.url()}});
    let written = fs::write(device.defaults(), defaults.to_string());
    written.map_err(|error| Trouble::of(device.defaults().display(), error))?;
    Ok(port)
}

/// Resolves with the name of a program that ended although nobody stopped it.
async fn first_end(fleet: &Fleet, agent: Option<&Running>) -> Option<&'static str> {
    let gone = |process: &Running| !Path::new(&format!("/proc/{}/exe", process.pid())).exists();
    loop {
        smol::Timer::after(std::time::Duration::from_millis(500)).await;
        if gone(&fleet.process) {
            return Some("platform-fleet");
        }
        if agent.is_some_and(gone) {
            return Some("platform-agent");
        }
    }
}

/// What a sandbox remembers between starts. The server keeps only digests of keys, so the key itself is kept here, in a
/// file that only its owner can read.
struct Known {
    owner: Owner,
    device: Device,
}

impl Known {
    fn to_json(&self, url: &str) -> Value {
        json!({
            "url": url,
            "key_id": self.owner.key_id,
            "key": self.owner.key.expose(),
            "organization_id": self.owner.organization_id,
            "location_id": self.device.location_id,
            "machine_id": self.device.machine_id,
            "part_id": self.device.part_id,
            "part_secret": self.device.part_secret.expose(),
        })
    }
}

fn remembered(path: &Path) -> Result<Option<Known>, Trouble> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Trouble::of(path.display(), error)),
    };
    let unusable = || Trouble(format!("{} is damaged: remove the whole folder and start again", path.display()));
    let json: Value = serde_json::from_str(&text).map_err(|_| unusable())?;
    let field = |name: &str| json.get(name).and_then(Value::as_str).map(str::to_owned).ok_or_else(unusable);
    Ok(Some(Known {
        owner: Owner {
            organization_id: field("organization_id")?,
            key_id: field("key_id")?,
            key: Secret::new(field("key")?),
        },
        device: Device {
            location_id: field("location_id")?,
            machine_id: field("machine_id")?,
            part_id: field("part_id")?,
            part_name: "sandbox-machine-main".into(),
            part_secret: Secret::new(field("part_secret")?),
        },
    }))
}

/// Three versions of the stand-in machine server: real executables, signed by a key that the server never sees.
fn publish_releases(folder: &Path, data: &Path) -> Result<(), Trouble> {
    let factory = Factory::open(&folder.join("factory"), data)?;
    for (number, version) in (1..).zip(["1.0.0", "1.1.0", "1.2.0-dev"]) {
        let artifact = folder.join("factory").join(format!("stand-in-{version}"));
        stand_in::build(version, &artifact)?;
        factory.release(version, number, &artifact)?;
    }
    factory.channels(&[("stable", "1.1.0"), ("dev", "1.2.0-dev")])
}

/// A location, a machine and a fragment that it uses.
fn furnish(client: &api::client::Client, owner: &Owner) -> Result<Device, Trouble> {
    let device = Device::create(client, &owner.organization_id, "Sandbox", "sandbox-machine")?;
    let fragment = json!({"agent": {"advanced_settings": {"platform_server_env": {"FROM_FRAGMENT": "hello"}}}});
    let request = CreateFragmentRequest {
        organization_id: owner.organization_id.clone(),
        name: "sandbox defaults".into(),
        config: Some(structs::from_json(&fragment)),
        ..Default::default()
    };
    let fragment = call(client, app_service::CREATE_FRAGMENT, &request)?.fragment;
    let fragment = fragment.ok_or_else(|| Trouble("CreateFragment gave no fragment".into()))?;
    device.configure(client, &json!({"fragments": [fragment.id], "agent": {}}))?;
    Ok(device)
}

fn screen(fleet: &Fleet, known: &Known, folder: &Path, agent: bool, begin: Instant) -> Result<String, Trouble> {
    let cli = programs::find("platform")?;
    let cli = cli.strip_prefix(std::env::current_dir().unwrap_or_default()).unwrap_or(&cli).display();
    let server_log = if agent { "the machine is live" } else { "no agent was started" };
    Ok(format!(
        "
  Fleet server  {url}   ({server_log}, {ms} ms after the start)
  Key           id {id}
                key {key}
  Output        {folder}/fleet.log and {folder}/device/agent.log

  In another terminal:

      export PLATFORM_URL={url} PLATFORM_API_KEY_ID={id} PLATFORM_API_KEY={key}

  Five things to try:

      {cli} part env set GREETING=hello       # the machine server restarts and sees it
      pkill -9 -f {folder}/device/root/versions/; {cli} machine status   # kill it and look
      {cli} part pin 1.0.0                    # another version, from the next restart on
      {cli} part restart                      # restarts the machine server, now with that version
      {cli} part logs --follow                # what agent and machine server say

  Ctrl-C stops everything; the next start finds it as it was. `rm -r {folder}` forgets it.
",
        url = fleet.url,
        ms = begin.elapsed().as_millis(),
        id = known.owner.key_id,
        key = known.owner.key.expose(),
        folder = folder.display(),
    ))
}
