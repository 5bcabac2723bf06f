//! The shell of the console actor: one question after the other.

use std::rc::Rc;

use api::{Secret, pb::platform::fleet::v1::LocalStatus};
use board::console::Console;
use smol::future::FutureExt as _;

use super::{Desk, Identity, answer, cloud};
use crate::{
    cloud::{Contact, sources::Sources},
    kit::{
        latest::{Latest, Watch},
        supervise::Lifeline,
    },
};

/// What this actor needs.
pub struct Ports {
    /// Where questions arrive.
    pub console: Rc<dyn Console>,
    /// What the status is made of.
    pub sources: Rc<Sources>,
    /// How the fleet server can be reached.
    pub contact: Watch<Contact>,
    /// Who this device is.
    pub identity: Identity,
    /// Name and password of the hotspot; `None` before the configuration is known.
    pub hotspot: Rc<dyn Fn() -> Option<(String, Secret)>>,
    /// Rises with each wish that the doors be opened; `None` where there are none.
    pub provision: Option<Latest<u64>>,
    /// Rises with each wish that the device forget whose it is.
    pub deprovision: Latest<u64>,
}

impl Desk for Ports {
    fn status(&self) -> LocalStatus {
        let (address, part_id) = (self.identity)();
        LocalStatus { status: Some(self.sources.status()), cloud: Some(cloud(self.contact.get(), address, part_id)) }
    }

    fn provision(&self) -> bool {
        self.provision.as_ref().map(wish).is_some()
    }

    fn deprovision(&self) {
        wish(&self.deprovision);
    }

    fn hotspot(&self) -> Option<(String, Secret)> {
        (self.hotspot)()
    }
}

fn wish(wishes: &Latest<u64>) {
    wishes.publish(wishes.get().unwrap_or_default() + 1);
}

/// Answers until it is stopped. Who does not read costs the next asker a few seconds and nobody else anything.
pub async fn run(ports: Ports, mut lifeline: Lifeline) {
    loop {
        lifeline.turn_ends();
        let asked = async { Some(ports.console.next().await) };
        let stop = async {
            lifeline.stopped().await;
            None
        };
        let Some(question) = stop.or(asked).await else { break };
        lifeline.turn_begins();
        let answer = answer(question.words(), &ports);
        let given = async {
            question.answer(&answer).await;
            false
        };
        let stop = async {
            lifeline.stopped().await;
            true
        };
        if given.or(stop).await {
            break;
        }
    }
}
