//! What the walk looks like from outside.

use api::{
    brand,
    device_config::without_secrets,
    pb::platform::fleet::v1::{Product, UpdateStatus, update_status::Phase},
};

use super::{
    machine::{Machine, Said},
    record::{Bad, Outcome, State},
    slots::{Installed, Layout},
};

/// The product's name on the wire.
pub(super) fn product(layout: &Layout) -> Product {
    if layout.product() == brand::AGENT { Product::Agent } else { Product::MachineServer }
}

impl Machine {
    /// A switch of the agent that waits for a window which does not open; the machine server's keeper says it itself.
    fn window_sentence(&self) -> String {
        match (self.server.shut_for_long, self.candidate()) {
            (true, Some(program)) => {
                format!("{} waits: the maintenance window has been shut for over 14 days", program.version)
            }
            _ => String::new(),
        }
    }

    fn running_version(&self) -> String {
        match (self.policy.kind.launched(), &self.server.program) {
            // Known before its keeper says so.
            (Some(launched), _) => launched.version.clone(),
            (None, program) => program.as_ref().map(|program| program.version.clone()).unwrap_or_default(),
        }
    }

    /// For the fleet server and people.
    #[must_use]
    pub fn progress(&self) -> UpdateStatus {
        let slots = &self.record.slots;
        let version = |content: Option<&Installed>| content.map(|content| content.version.clone()).unwrap_or_default();
        let (phase, target_version) = match &self.record.state {
            State::Idle(Outcome::None) => (Phase::Idle, String::new()),
            State::Idle(Outcome::Committed) => (Phase::Committed, String::new()),
            State::Idle(Outcome::RolledBack) => (Phase::RolledBack, String::new()),
            State::Downloading(target) => (Phase::Downloading, target.version.clone()),
            State::Verifying(target) | State::Placing(target, _) => (Phase::Verifying, target.version.clone()),
            State::Staged => (Phase::Staged, version(slots.spare())),
            State::Waiting => (Phase::Waiting, version(slots.spare())),
            State::Switching => (Phase::Switching, version(slots.active())),
            State::Probation { .. } => (Phase::Probation, version(slots.active())),
        };
        let Said { disk, hand_over, bringing, room, verdict, check, warning, launcher } = &self.said;
        let window = self.window_sentence();
        let last_error = [disk, hand_over, bringing, room, verdict, check, warning, launcher, &window]
            .into_iter()
            .find(|text| !text.is_empty());
        UpdateStatus {
            product: product(&self.policy.layout).into(),
            phase: phase.into(),
            wanted: without_secrets(&self.record.wanted),
            target_version,
            running_version: self.running_version(),
            installed_version: version(slots.active()),
            percent: if phase == Phase::Downloading { self.percent } else { 0 },
            last_error: last_error.cloned().unwrap_or_default(),
            retried: self.record.retried,
            bad_versions: self.record.bad.iter().map(|Bad { version, .. }| version.clone()).collect(),
        }
    }
}
