//! The shell of the console actor: one question after the other.

use std::rc::Rc;

use api::pb::platform::fleet::v1::LocalStatus;
use board::console::Console;
use smol::future::FutureExt as _;

use super::{Identity, answer, cloud};
use crate::{
    cloud::{Contact, sources::Sources},
    kit::{latest::Watch, supervise::Lifeline},
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
        let answer = answer(question.words(), || status(&ports));
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

fn status(ports: &Ports) -> LocalStatus {
    let (address, part_id) = (ports.identity)();
    LocalStatus { status: Some(ports.sources.status()), cloud: Some(cloud(ports.contact.get(), address, part_id)) }
}
