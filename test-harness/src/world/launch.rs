//! Versions of the agent on the simulated disk, and the launcher that starts them.
//!
//! The launcher is the one of production on the simulated files. What a version does is a script; one that lives is the
//! agent of production. A hand-over ends a life of the agent and nothing else: the machine server and its pipes stay.

use std::{cell::RefCell, collections::BTreeMap, path::Path, rc::Rc, time::Duration};

use actors::{
    cloud::port::{Cloud, CloudError},
    update::slots::{Layout, Pointer, Slot},
};
use api::{
    brand,
    pb::platform::{
        app::{
            agent::v1::{DeviceAgentConfigRequest, DeviceAgentConfigResponse},
            v1::{NeedsRestartRequest, NeedsRestartResponse},
        },
        fleet::v1::{ReportRequest, ReportResponse, UploadLogsRequest, UploadLogsResponse},
    },
};
use async_trait::async_trait;
use board::{Board, files::Access};
use board_sim::{SimBoard, image};
use platform_agent::{
    hand_over::Launched,
    launcher::{Boot, Run, disk::OnBoard},
};

/// Size of an agent; not that of a machine server, so that equal versions are not equal bytes.
pub const AGENT_BYTES: usize = 120_000;
/// From the end of one life to the first instruction of the next, over `exec`.
pub const EXEC_TAKES: Duration = Duration::from_millis(5);
/// After this without a sign of life the service manager ends the agent.
pub const WATCHDOG: Duration = Duration::from_secs(120);

/// What a version of the agent does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Conduct {
    /// What the agent of production does.
    #[default]
    Lives,
    /// It cannot be executed.
    CannotStart,
    /// It ends before it has done anything.
    DiesAtOnce,
    /// The same, and then it ends without a word.
    DiesAfter(Duration),
    /// The same, but no call reaches the fleet server.
    NeverReachesCloud,
    /// Nothing of it moves; the service manager ends it.
    Hangs,
}

/// One start of an agent by the launcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentStart {
    /// How long after the beginning of the world.
    pub at: Duration,
    /// What was started.
    pub version: String,
    /// With `--safe`.
    pub safe: bool,
}

/// What the launcher has started.
#[derive(Clone, Debug)]
pub struct Start {
    /// What it told.
    pub launched: Launched,
    /// The version that lies in the slot.
    pub version: String,
    /// With `--safe`.
    pub safe: bool,
    /// What that version does.
    pub conduct: Conduct,
}

/// The versions of the agent, as the test sees them.
#[derive(Clone, Default)]
pub struct Agents {
    conduct: Rc<RefCell<BTreeMap<String, Conduct>>>,
    starts: Rc<RefCell<Vec<AgentStart>>>,
    notes: Rc<RefCell<Vec<String>>>,
}

/// Where the agent's slots are.
#[must_use]
pub fn layout() -> Layout {
    Layout::new(Path::new(brand::ROOT_FOLDER), brand::AGENT)
}

/// Where the launcher is.
#[must_use]
pub fn launcher() -> std::path::PathBuf {
    Path::new(brand::ROOT_FOLDER).join("bin").join(brand::LAUNCHER)
}

impl Agents {
    /// What a version does from its next start on.
    pub fn script(&self, version: &str, conduct: Conduct) {
        self.conduct.borrow_mut().insert(version.to_owned(), conduct);
    }

    /// Every start so far.
    #[must_use]
    pub fn starts(&self) -> Vec<AgentStart> {
        self.starts.borrow().clone()
    }

    /// The version that was started last.
    #[must_use]
    pub fn version(&self) -> Option<String> {
        self.starts.borrow().last().map(|start| start.version.clone())
    }

    /// How often another version was started than the time before, to `version`.
    #[must_use]
    pub fn switches_to(&self, version: &str) -> usize {
        let starts = self.starts.borrow();
        let pairs = starts.iter().zip(starts.iter().skip(1));
        pairs.filter(|(before, after)| before.version != after.version && after.version == version).count()
    }

    /// What the launcher told the agents it started.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        self.notes.borrow().clone()
    }

    /// Puts a first version there, as an installer does.
    pub fn install(&self, board: &SimBoard, version: &str) {
        let layout = layout();
        let image = image::agent(brand::AGENT, version, &board.platform(), AGENT_BYTES);
        board.files.put(layout.executable(Slot::A), image, Access::Executable);
        board.files.put(layout.pointer(), Pointer::kept(Slot::A).text(), Access::Readable);
        board.files.put(launcher(), image::program("0.0.0", &board.platform(), 1_000), Access::Executable);
    }

    /// One run of the launcher, up to the version that it becomes. `wait` lets time pass.
    pub(super) fn launch(&self, sim: &SimBoard, board: &Board, wait: impl Fn(Duration)) -> Start {
        let boot = Boot {
            id: board.host.facts().boot_id.clone(),
            uptime_seconds: sim.clock.mono().as_nanos() / 1_000_000_000,
        };
        let disk = OnBoard(&*board.files);
        let mut run = Run::new(&disk, Path::new(brand::ROOT_FOLDER), boot);
        loop {
            let choice = run.choose().expect("a version of the agent can be started");
            wait(choice.wait);
            let (_, _) = run.count(&choice);
            let program = run.program(choice.slot);
            let content = sim.files.content(&program).unwrap_or_default();
            let Some(version) = image::version(&content, &sim.platform()) else {
                run.failed(choice.slot, "it is broken".to_owned());
                continue;
            };
            let conduct = self.conduct.borrow().get(&version).copied().unwrap_or_default();
            if conduct == Conduct::CannotStart {
                run.failed(choice.slot, "exec format error".to_owned());
                continue;
            }
            self.starts.borrow_mut().push(AgentStart {
                at: sim.clock.elapsed(),
                version: version.clone(),
                safe: choice.safe,
            });
            self.notes.borrow_mut().extend(choice.note.clone());
            let launched = Launched { launcher: launcher(), slot: choice.slot, note: choice.note, refused: None };
            return Start { launched, version, safe: choice.safe, conduct };
        }
    }
}

/// A fleet server that this agent never reaches.
pub(super) struct Deaf(pub(super) Rc<dyn Cloud>);

fn unreachable<T>() -> Result<T, CloudError> {
    Err(CloudError::Unreachable { reason: "a bug of this version".to_owned() })
}

#[async_trait(?Send)]
impl Cloud for Deaf {
    fn part_id(&self) -> Option<String> {
        self.0.part_id()
    }

    async fn device_config(&self, _: DeviceAgentConfigRequest) -> Result<DeviceAgentConfigResponse, CloudError> {
        unreachable()
    }

    async fn needs_restart(&self, _: NeedsRestartRequest) -> Result<NeedsRestartResponse, CloudError> {
        unreachable()
    }

    async fn report(&self, _: ReportRequest) -> Result<ReportResponse, CloudError> {
        unreachable()
    }

    async fn upload_logs(&self, _: UploadLogsRequest) -> Result<UploadLogsResponse, CloudError> {
        unreachable()
    }
}
