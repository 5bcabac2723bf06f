//! The shell of the logs actor: waits for lines and news, and lets the spool do what the machine wants.

use std::{path::PathBuf, rc::Rc};

use board::{
    Clock,
    files::{FileError, Files},
};
use smol::future::FutureExt as _;

use super::{
    Offered, SpoolStatus,
    frame::SpoolId,
    machine::{Effect, Event, Machine},
    spool::{Batch, Limits, Spool},
};
use crate::{
    cloud::{Acknowledged, Reach},
    kit::{
        latest::{Latest, Watch},
        lossy,
        step::{self, assert_moved},
        supervise::Lifeline,
        trace::Trace,
    },
    rank::Actor,
};

/// What this actor hears.
pub struct Inbox {
    /// Lines of agent and machine server, as records of [`super::line::Line`].
    pub lines: lossy::Reader,
    /// Whether the fleet server can be reached.
    pub reach: Watch<Reach>,
    /// Which batches it keeps.
    pub acknowledged: Watch<Acknowledged>,
    /// The time of day, for the line about lines lost in the ring.
    pub clock: Rc<dyn Clock>,
    /// Stops this actor; it is stopped last, so that the others' last words are kept.
    pub lifeline: Lifeline,
}

/// What this actor can do.
pub struct Ports {
    /// Time.
    pub clock: Rc<dyn Clock>,
    /// The disk.
    pub files: Rc<dyn Files>,
    /// Where the spool lies.
    pub folder: PathBuf,
    /// How large it may become.
    pub limits: Limits,
    /// A random name for a new spool.
    pub fresh_id: Rc<dyn Fn() -> SpoolId>,
    /// Name of this device in every entry.
    pub host: Rc<str>,
    /// The batch to deliver.
    pub offered: Latest<Option<Offered>>,
    /// How full the spool is.
    pub status: Latest<SpoolStatus>,
    /// What was done, for people. Only what is unusual: a line per write would be one more line to write.
    pub trace: Trace,
}

impl step::Inbox for Inbox {
    type Event = Event;

    async fn next(&mut self) -> Option<Event> {
        let Inbox { lines, reach, acknowledged, clock, lifeline } = self;
        let overrun = |lost: u64| Event::Overrun { lines: lost, at: clock.wall() };
        let line = async {
            match lines.take_dropped() {
                0 => Event::Line(lines.next().await),
                lost => overrun(lost),
            }
        };
        let heard = async { Event::Acknowledged(acknowledged.changed().await) }
            .or(async { Event::Reach(reach.changed().await == Reach::Reached) })
            .or(line);
        let stop = async {
            lifeline.stopped().await;
            None
        };
        // What has been said is taken before the stop is: the last words are in the ring when it comes.
        let event = async { Some(heard.await) }.or(stop).await;
        lifeline.turn_begins();
        event
    }

    fn deadline_passed(&self) -> Event {
        Event::DeadlinePassed
    }
}

/// Runs the actor until it is stopped.
pub async fn run(mut machine: Machine, mut inbox: Inbox, ports: Ports) {
    let mut desk = Desk { ports, spool: None, trouble: false };
    let opened = desk.open();
    desk.carry_out(&mut machine, opened).await;
    loop {
        inbox.lifeline.turn_ends();
        let deadline = machine.deadline();
        let Some(event) = step::next_event(&mut inbox, &*desk.ports.clock, deadline).await else { break };
        let by_time = event == Event::DeadlinePassed;
        desk.carry_out(&mut machine, Some(event)).await;
        if by_time {
            assert_moved(Actor::Logs.name(), deadline, machine.deadline(), desk.ports.clock.now());
        }
    }
    desk.carry_out(&mut machine, Some(Event::Stop)).await;
}

/// The spool, once it could be opened, and what it is opened with.
struct Desk {
    ports: Ports,
    spool: Option<Spool>,
    /// The last write failed.
    trouble: bool,
}

impl Desk {
    /// Feeds the machine until it wants nothing more. Each answer of the spool is its next event.
    async fn carry_out(&mut self, machine: &mut Machine, mut event: Option<Event>) {
        while let Some(happened) = event.take() {
            if let Some(effect) = machine.step(self.ports.clock.now(), happened) {
                event = Some(self.perform(effect).await);
            }
        }
        let spool = self.spool.as_ref();
        self.ports.status.publish_if_changed(SpoolStatus {
            queued_bytes: spool.map_or(0, Spool::queued_bytes),
            dropped_lines: spool.map_or(0, Spool::dropped_lines).saturating_add(machine.lost_ever()),
        });
    }

    async fn perform(&mut self, effect: Effect) -> Event {
        if self.spool.is_none() {
            self.open();
        }
        match (effect, &mut self.spool) {
            (Effect::Keep { lines, .. }, None) => Event::NotKept { lines },
            (Effect::Settle(_), None) => Event::Spooled { in_flight: false, waiting: false },
            (Effect::Keep { lines, cut }, Some(spool)) => match spool.keep(&lines, cut).await {
                Ok(batch) => {
                    self.trouble = false;
                    // What a cut did not find cannot be read: it does not wait.
                    let waiting = spool.waiting() && !(cut && batch.is_none());
                    match batch {
                        Some(batch) => self.offer(Some(batch)),
                        None => Event::Spooled { in_flight: self.in_flight(), waiting },
                    }
                }
                Err(error) => {
                    self.complain(&error);
                    Event::NotKept { lines }
                }
            },
            (Effect::Settle(Acknowledged { spool_id, number }), Some(spool)) => {
                spool.acknowledge(&spool_id, number);
                let batch = spool.unfinished();
                self.offer(batch)
            }
        }
    }

    /// Opens the spool; the batch an earlier agent cut is offered first.
    fn open(&mut self) -> Option<Event> {
        let Ports { files, folder, limits, fresh_id, .. } = &self.ports;
        match Spool::open(Rc::clone(files), folder.clone(), *limits, Rc::clone(fresh_id)) {
            Ok(mut spool) => {
                let batch = spool.unfinished();
                self.spool = Some(spool);
                Some(self.offer(batch))
            }
            Err(error) => {
                self.complain(&error);
                None
            }
        }
    }

    /// Once per trouble: a line per attempt would be one more line that finds no place.
    fn complain(&mut self, error: &FileError) {
        if !std::mem::replace(&mut self.trouble, true) {
            log::warn!("log lines wait in memory, the newest of them: {error}: {}", error.source);
            self.note(format_args!("lines wait in memory: {error}"));
        }
    }

    fn offer(&mut self, batch: Option<Batch>) -> Event {
        let offered = batch.and_then(|Batch { number, lost, lines }| {
            let spool_id = self.spool.as_ref()?.id().into();
            Some(Offered { spool_id, number, host: Rc::clone(&self.ports.host), lost, lines: lines.into() })
        });
        if let Some(Offered { number, lost, .. }) = &offered
            && !lost.is_none()
        {
            self.note(format_args!("batch {number} tells of a gap: {} lines, {} bytes", lost.lines, lost.bytes));
        }
        self.ports.offered.publish_if_changed(offered);
        let waiting = self.spool.as_ref().is_some_and(Spool::waiting);
        Event::Spooled { in_flight: self.in_flight(), waiting }
    }

    fn in_flight(&self) -> bool {
        self.ports.offered.get().flatten().is_some()
    }

    fn note(&self, text: std::fmt::Arguments<'_>) {
        self.ports.trace.note(self.ports.clock.now(), Actor::Logs, text);
    }
}
