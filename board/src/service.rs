//! The service manager above the agent, when there is one.

/// What the agent tells whoever started it. Every call is cheap and never fails: without a service manager it does nothing.
pub trait Service {
    /// The actors live; `status` is one sentence for people.
    fn ready(&self, status: &str);

    /// Still making progress: feeds the watchdog.
    fn alive(&self);

    /// How often the service manager wants to hear [`Service::alive`]; `None` when it does not watch.
    fn watchdog(&self) -> Option<std::time::Duration>;

    /// Going down on purpose.
    fn stopping(&self);
}
