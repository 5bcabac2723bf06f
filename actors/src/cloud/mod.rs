//! Talks to the fleet server: fetches the configuration, reports status, asks whether a restart is wanted, delivers log
//! batches.
//!
//! Owns when to call and what an answer means for the others; the calls themselves are a port, answered by a thread
//! that speaks gRPC-Web. A cloud that is silent, slow or wrong never holds up another actor.
//!
//! | file | owns |
//! |---|---|
//! | `machine` | when to call, how long to wait after a failure, what is told to whom |
//! | `calls` | one wake-up's calls in their order, and what their answers say |
//! | `status` | what the device tells about itself, bounded |
//! | `sources` | nothing: it gathers what a status is made of |
//! | `port` | the fleet server, as the agent needs it |
//! | `actor` | waiting and doing |

pub mod actor;
pub mod calls;
pub mod machine;
pub mod port;
pub mod sources;
pub mod status;
#[cfg(test)]
mod tests;

use std::{fmt, rc::Rc};

use api::pb::platform::{app::agent::v1::DeviceAgentConfigResponse, fleet::v1::UpdateRetry};
use board::Wall;
use prost::Message as _;

/// A configuration as the fleet server sent it, unread.
#[derive(Clone, PartialEq)]
pub struct FetchedConfig {
    /// The part whose it is: a device that is given another identity must not go on as the old one.
    pub part_id: Rc<str>,
    /// The answer.
    pub response: Rc<DeviceAgentConfigResponse>,
    /// SHA-256 of the encoded answer without its check interval: the same digest means nothing changed.
    pub revision: [u8; 32],
}

/// The answer holds passwords: only its name is shown.
impl fmt::Debug for FetchedConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("revision ")?;
        self.revision.iter().take(4).try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FetchedConfig {
    /// Names an answer by its content. What is no part of the configuration is taken out first: the interval of the
    /// checks, and a deprecated map whose order on the wire means nothing and which nobody reads.
    #[must_use]
    pub fn of(part_id: &str, mut response: DeviceAgentConfigResponse) -> Self {
        response.check_interval = None;
        response.subsystem_configs = Default::default();
        let revision = api::digest(&response.encode_to_vec());
        FetchedConfig { part_id: part_id.into(), response: Rc::new(response), revision }
    }

    /// Whether it says the same of the same part.
    #[must_use]
    pub fn is(&self, other: &FetchedConfig) -> bool {
        self.revision == other.revision && self.part_id == other.part_id
    }
}

/// How the fleet server can be reached right now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// No call has ended yet.
    #[default]
    Unknown,
    /// The last call was answered.
    Reached,
    /// The last call got no answer; the cached configuration stays in force.
    Unreachable,
    /// The server answers, and does not accept who we say we are.
    CredentialsRefused,
    /// There is no identity to present.
    NoIdentity,
}

/// How the fleet server can be reached, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contact {
    /// How.
    pub reach: Reach,
    /// Since when, by the device's clock; `None` before the first call has ended.
    pub since: Option<Wall>,
    /// What the call said that failed.
    pub why: Option<Rc<str>>,
}

/// Restarts of the machine server that an operator asked for, counted since the agent's state was created.
///
/// How a mark becomes exactly one of them is told in [`machine`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct RestartsWanted(pub u64);

/// What operators want to be tried again, by product; whoever carries it out remembers the edition.
pub type Retries = Rc<[UpdateRetry]>;

/// The highest log batch that the fleet server keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acknowledged {
    /// Of which spool.
    pub spool_id: Rc<str>,
    /// Up to and including this number.
    pub number: u64,
}
