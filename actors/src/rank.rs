//! Who may command whom.
//!
//! Commands (messages whose sender waits while the queue is full) go from a lower rank to a higher one only; everything
//! upwards and sideways travels in channels whose senders never wait. The last rank waits for nobody, so by induction
//! every waiting sender is served: the agent cannot lock up.

/// The actors, ordered: an earlier one may command a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Actor {
    /// Keeps the settings in force.
    Config,
    /// Brings a product to its wanted version.
    Update,
    /// Keeps this process, and makes way for another version of it.
    Successor,
    /// Invites a person to give the device a network or an identity.
    Provisioning,
    /// Talks to the fleet server.
    Cloud,
    /// Runs the machine server.
    Server,
    /// Keeps the device connected with what it was given.
    Network,
    /// Delivers log lines.
    Logs,
    /// Answers who asks at the device.
    Console,
}

impl Actor {
    /// Every actor, in rank order.
    pub const ALL: [Actor; 9] = [
        Actor::Config,
        Actor::Update,
        Actor::Successor,
        Actor::Provisioning,
        Actor::Cloud,
        Actor::Server,
        Actor::Network,
        Actor::Logs,
        Actor::Console,
    ];

    /// The name in logs and traces.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Actor::Config => "config",
            Actor::Update => "update",
            Actor::Successor => "successor",
            Actor::Provisioning => "provisioning",
            Actor::Cloud => "cloud",
            Actor::Server => "server",
            Actor::Network => "network",
            Actor::Logs => "logs",
            Actor::Console => "console",
        }
    }
}
