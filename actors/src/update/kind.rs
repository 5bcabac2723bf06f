//! What differs between the two products: everything else is one machine.
//!
//! | | machine server | agent |
//! |---|---|---|
//! | tried | at an opening, or when its window allows | when its keeper says that nothing speaks against it |
//! | pointer | follows the switch | on stable storage before the switch |
//! | taken back | by this agent | by this agent, or by the launcher before it |
//! | proven by | running and no crash, 5 minutes | all actors alive and the fleet server reached, 10 minutes |
//! | unsigned pins | as the manufacturer says | local files only |

use api::device_config::VersionSetting;

use super::{
    slots::Slot,
    target::Target,
    wish::{Pins, Wish},
};

/// Minutes that a new machine server is watched when nobody says otherwise.
const SERVER_PROBATION_MINUTES: u32 = 5;
/// Minutes that a new agent is watched: the fleet server has to be reached meanwhile.
const AGENT_PROBATION_MINUTES: u32 = 10;

/// Which product a machine is for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// Another process, whose keeper starts and stops it.
    #[default]
    MachineServer,
    /// This process, as the launcher has started it.
    Agent(Launched),
}

/// How the launcher has started this agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launched {
    /// The slot that this process was started from.
    pub slot: Slot,
    /// What the launcher has to tell about that, when it did not start what it was to start.
    pub note: Option<String>,
    /// Why the hand-over to the active slot came to nothing: then this process is the one that had begun it.
    pub refused: Option<String>,
    /// The version that this program says it is.
    pub version: String,
}

impl Kind {
    /// How this agent was started, for the agent product.
    #[must_use]
    pub const fn launched(&self) -> Option<&Launched> {
        match self {
            Kind::MachineServer => None,
            Kind::Agent(launched) => Some(launched),
        }
    }

    /// Whether it is the agent's own product.
    #[must_use]
    pub const fn is_agent(&self) -> bool {
        matches!(self, Kind::Agent(_))
    }

    /// How long a new version is watched when nobody says otherwise.
    #[must_use]
    pub const fn probation_minutes(&self) -> u32 {
        match self {
            Kind::MachineServer => SERVER_PROBATION_MINUTES,
            Kind::Agent(_) => AGENT_PROBATION_MINUTES,
        }
    }
}

/// Why a pin is not taken; `None` for one that is.
#[must_use]
pub fn refusal(wish: &Wish, target: &Target) -> Option<String> {
    let VersionSetting::Url(_) = wish.setting else { return None };
    let why = match wish.pins {
        Pins::Any => return None,
        Pins::LocalFiles if target.is_local() => return None,
        Pins::LocalFiles => "without a signature the agent itself is taken from a local file only: sign a release",
        Pins::Never => "the manufacturer allows signed releases only (allow_unsigned_pins)",
    };
    Some(format!("{} is not taken: {why}", target.version))
}
