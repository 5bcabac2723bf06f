//! The shell of the config actor: waits for the cloud and for a reload, reads and stores files, publishes.

use std::{collections::VecDeque, path::PathBuf, rc::Rc};

use api::device_config::{Source, limits::DOCUMENT_BYTES_MAX};
use board::{Clock, files::Files};
use smol::future::FutureExt as _;

use super::{
    Reload, Sections, cache,
    machine::{Defaults, Effect, Event, Machine, Publication},
};
use crate::{
    cloud::FetchedConfig,
    kit::{
        latest::Watch,
        mailbox::Mail,
        step::{self, assert_moved},
        supervise::Lifeline,
        trace::Trace,
    },
    rank::Actor,
};

/// What this actor hears.
pub struct Inbox {
    /// The newest configuration of the cloud.
    pub fetched: Watch<Rc<FetchedConfig>>,
    /// Somebody wants the defaults file to be read again.
    pub reload: Mail<Reload>,
    /// Stops this actor.
    pub lifeline: Lifeline,
}

/// What this actor can do.
pub struct Ports {
    /// Time.
    pub clock: Rc<dyn Clock>,
    /// The disk.
    pub files: Rc<dyn Files>,
    /// The manufacturer's defaults file.
    pub defaults: PathBuf,
    /// Where the configuration in force is kept.
    pub cache: PathBuf,
    /// The part that this device is, as the credentials file has it now.
    pub part_id: Rc<dyn Fn() -> Option<String>>,
    /// The settings in force.
    pub sections: Sections,
    /// What was done, for people.
    pub trace: Trace,
}

impl step::Inbox for Inbox {
    type Event = Event;

    async fn next(&mut self) -> Option<Event> {
        let Inbox { fetched, reload, lifeline } = self;
        let heard = async { Some(Event::Fetched(fetched.changed().await)) }.or(async {
            reload.next().await;
            Some(Event::ReloadWanted)
        });
        let event = async {
            lifeline.stopped().await;
            None
        }
        .or(heard)
        .await;
        self.lifeline.turn_begins();
        event
    }

    fn deadline_passed(&self) -> Event {
        Event::DeadlinePassed
    }
}

/// Runs the actor until it is stopped. The settings of the last life are published before it waits for the first time.
pub async fn run(mut machine: Machine, mut inbox: Inbox, ports: Ports) {
    let kept = cache::load(&*ports.files, &ports.cache);
    let defaults = read_defaults(&ports);
    let part_id = (ports.part_id)();
    carry_out(&mut machine, Event::Started { kept, defaults, part_id }, &ports);
    loop {
        inbox.lifeline.turn_ends();
        let deadline = machine.deadline();
        let Some(event) = step::next_event(&mut inbox, &*ports.clock, deadline).await else { break };
        let by_time = matches!(event, Event::DeadlinePassed);
        carry_out(&mut machine, event, &ports);
        if by_time {
            assert_moved(Actor::Config.name(), deadline, machine.deadline(), ports.clock.now());
        }
    }
}

/// Does what the machine wants, and tells it how that went.
fn carry_out(machine: &mut Machine, event: Event, ports: &Ports) {
    let mut events = VecDeque::from([event]);
    while let Some(event) = events.pop_front() {
        for effect in machine.step(ports.clock.now(), event) {
            events.extend(perform(effect, ports));
        }
    }
}

fn perform(effect: Effect, ports: &Ports) -> Option<Event> {
    match effect {
        Effect::ReadDefaults => Some(Event::DefaultsRead(read_defaults(ports))),
        Effect::Store(kept) => {
            let outcome = cache::store(&*ports.files, &ports.cache, &kept);
            Some(Event::Stored(outcome.map_err(|error| format!("{error}: {}", error.source).into())))
        }
        Effect::Publish(publication) => {
            publish(*publication, ports);
            None
        }
    }
}

fn read_defaults(ports: &Ports) -> Defaults {
    match ports.files.read(&ports.defaults, DOCUMENT_BYTES_MAX) {
        Ok(None) => Source::Absent,
        Ok(Some(text)) => Source::Given(text.into()),
        Err(error) => Source::Unreadable(format!("{error}: {}", error.source)),
    }
}

fn publish(publication: Publication, ports: &Ports) {
    let Publication { settings, changed, status } = publication;
    let sections = &ports.sections;
    let before = sections.status.get().unwrap_or_default();
    for complaint in status.complaints.iter().filter(|complaint| !before.complaints.contains(complaint)) {
        log::warn!("configuration from {}: {complaint}", complaint.origin);
    }
    if let (Some(trouble), None) = (&status.trouble, &before.trouble) {
        log::error!("the configuration in force would be lost by a restart: {trouble}");
    }
    let revision: String = status.applied_revision.iter().flatten().take(4).map(|byte| format!("{byte:02x}")).collect();
    let revision = if revision.is_empty() { "none".to_owned() } else { revision };
    ports.trace.note(
        ports.clock.now(),
        Actor::Config,
        format_args!("revision {revision} in force: {changed} changed, {} complaints", status.complaints.len()),
    );
    if changed.versions {
        sections.versions.publish(settings.versions);
    }
    if changed.advanced {
        sections.advanced.publish(settings.advanced);
    }
    if changed.network {
        sections.network.publish(settings.network);
    }
    if changed.networks {
        sections.networks.publish(settings.networks);
    }
    if changed.system {
        sections.system.publish(settings.system);
    }
    sections.status.publish(status);
}
