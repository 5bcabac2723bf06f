//! Waits for commands and for the maintenance window; tells whoever can end this process when to do so.

use std::rc::Rc;

use api::{
    device_config::Advanced,
    pb::platform::fleet::v1::{UpdateStatus, update_status::Phase},
};
use board::Clock;
use smol::future::FutureExt as _;

use super::{
    Leave, Report,
    machine::{Event, Machine, Now},
};
use crate::{
    kit::{
        latest::{Latest, Watch},
        mailbox::Mail,
        step::{self, assert_moved, next_event},
        supervise::Lifeline,
        trace::Trace,
    },
    maintenance::Windows,
    rank::Actor,
    server::Command,
};

/// What the actor hears.
pub struct Inbox {
    /// From the update actor of the agent.
    pub commands: Mail<Command>,
    /// Section `advanced_settings`.
    pub settings: Watch<Rc<Advanced>>,
    /// Where the walk of the agent's version is.
    pub update: Watch<UpdateStatus>,
    /// Hand-overs that could not be carried out, and why.
    pub refused: Mail<String>,
    /// From the supervisor.
    pub lifeline: Lifeline,
}

/// What the actor can do.
pub struct Ports {
    /// Time.
    pub clock: Rc<dyn Clock>,
    /// Maintenance windows.
    pub windows: Rc<dyn Windows>,
    /// Whether every actor is alive.
    pub all_alive: Rc<dyn Fn() -> bool>,
    /// How this process is.
    pub report: Latest<Report>,
    /// It is to make way.
    pub leave: Latest<Leave>,
    /// What was done.
    pub trace: Trace,
}

/// Runs until it is told to stop.
pub async fn run(mut machine: Machine, inbox: Inbox, ports: Ports) {
    let mut ears = Ears { inbox, on_trial: false };
    ports.report.publish(machine.report());
    loop {
        ears.inbox.lifeline.turn_ends();
        let deadline = machine.deadline();
        let Some(event) = next_event(&mut ears, &*ports.clock, deadline).await else { return };
        ears.inbox.lifeline.turn_begins();
        let by_time = event == Event::DeadlinePassed;
        let leave = machine.step(now(&ears, &ports), event);
        ports.report.publish_if_changed(machine.report());
        if let Some(leave) = leave {
            ports.trace.note(ports.clock.now(), Actor::Successor, format_args!("makes way for another version"));
            ports.leave.publish(leave);
        }
        if by_time {
            assert_moved(Actor::Successor.name(), deadline, machine.deadline(), ports.clock.now());
        }
    }
}

fn now(ears: &Ears, ports: &Ports) -> Now {
    let wall = ports.clock.wall();
    let settings = ears.inbox.settings.get();
    let maintenance = settings.as_ref().and_then(|settings| settings.maintenance.as_ref());
    let window = maintenance.map(|maintenance| ports.windows.look(maintenance, wall));
    Now { mono: ports.clock.now(), wall, window, alive: (ports.all_alive)() }
}

struct Ears {
    inbox: Inbox,
    on_trial: bool,
}

impl step::Inbox for Ears {
    type Event = Event;

    async fn next(&mut self) -> Option<Event> {
        loop {
            let Ears { inbox: Inbox { commands, settings, update, refused, lifeline }, on_trial } = self;
            let stop = async {
                lifeline.stopped().await;
                None
            };
            let event = async { Event::Refused(refused.next().await) }
                .or(async { Event::Command(commands.next().await) })
                .or(async {
                    settings.changed().await;
                    Event::Settings
                })
                .or(async { Event::OnTrial(update.changed().await.phase() == Phase::Probation) });
            let event = stop.or(async { Some(event.await) }).await;
            // Percents of a download are no news here.
            if let Some(Event::OnTrial(now)) = event
                && std::mem::replace(on_trial, now) == now
            {
                continue;
            }
            return event;
        }
    }

    fn deadline_passed(&self) -> Event {
        Event::DeadlinePassed
    }
}
