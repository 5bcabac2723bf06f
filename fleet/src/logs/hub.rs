//! The hub: who follows which part, and one bounded ring of recent entries for each part that is followed.
//!
//! Taking logs in never waits for a reader, and shows them to nobody: `feed` reads back what was committed, by whichever
//! server, and publishes it here. A reader that falls behind the ring is told how many lines it missed and
//! goes on with what is there. A line is decoded, and encoded for readers, when the first of them takes it, and once for
//! all: what comes while nobody reads costs nothing. A part that nobody follows costs one look into a map; dropping a
//! [`Follower`] frees everything it held. Never yields an empty batch: a client would take it for the end.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use api::pb::platform::{app::v1::TailRobotPartLogsResponse, common::v1::LogEntry};
use bytes::Bytes;
use prost::Message as _;
use tokio::sync::{Notify, watch};

use super::{encoded, query::Wanted};
use crate::{clock::Millis, clock::timestamp, refusal::Refusal, written::Written};

/// Lines kept for slow readers of one part: ten of the device's batches.
const RING_MAX_LINES: usize = 1_000;
/// The same in bytes, because a line may be long.
const RING_MAX_BYTES: usize = 1 << 20;
/// Lines in one message to a reader.
const BATCH_MAX_LINES: usize = 100;
/// Readers of one part: a team that looks at an accident together.
const FOLLOWERS_PER_PART_MAX: usize = 64;

/// Who follows which part.
#[derive(Default, Clone)]
pub struct Hub {
    parts: Arc<Mutex<HashMap<String, Arc<Watched>>>>,
    came: Arc<Notify>,
    /// Whose followers are to be woken, in this order; nothing while nobody has to, and no task does it.
    turns: Arc<Mutex<Option<VecDeque<Turn>>>>,
}

/// A part that somebody follows.
struct Watched {
    ring: Mutex<Ring>,
    /// Stood in for under the ring's lock, together with the look into it, so that nobody who waits is overlooked.
    arrived: Notify,
    /// Set once: there will be no more lines, because there is no such part any more.
    gone: watch::Sender<bool>,
}

#[derive(Default)]
struct Ring {
    lines: VecDeque<Line>,
    bytes: usize,
    /// The number of the next line; the oldest in the ring has this minus their count.
    next: u64,
    /// Bytes of all lines so far, those that went included.
    written: u64,
    followers: usize,
    /// Of them, those that wait for the next line.
    waiting: usize,
    /// While it has a turn: of what those who wait are woken for.
    turn: Option<Woken>,
}

/// What followers are woken for, one after the other.
#[derive(Clone, Copy)]
struct Woken {
    /// The first of them has slept since then, at most.
    since: Mark,
    /// They see what came until then.
    until: Mark,
}

/// A part whose followers are woken, whoever waits longest first.
struct Turn {
    watched: Arc<Watched>,
    /// How many of them are still asleep, or more.
    asleep: usize,
}

/// All that came to a part until then.
#[derive(PartialEq, Clone, Copy)]
struct Mark {
    lines: u64,
    bytes: u64,
}

struct Line {
    /// As it is in its block.
    stored: Bytes,
    /// What a reader's wishes are compared with, and what it is sent; nothing of a line that cannot be read.
    shown: OnceLock<Option<(LogEntry, Bytes)>>,
    block: i64,
}

/// One reader. Dropping it ends its share of the hub.
pub struct Follower {
    hub: Hub,
    part_id: String,
    watched: Arc<Watched>,
    wanted: Wanted,
    next: u64,
    /// The newest block when it came: what is in it and in older ones was before its time.
    since: i64,
}

/// What a reader is given: at least one line, or at least one missed.
#[derive(Debug, Clone, PartialEq)]
pub struct Batch {
    /// Lines that came and went before this reader was here for them; told as an entry of its own.
    pub missed: u64,
    /// Lines in the order of their arrival, as `encoded` makes them.
    pub lines: Vec<Bytes>,
}

impl Hub {
    /// Whether entries of a part are of use to anybody.
    pub fn is_watched(&self, part_id: &str) -> bool {
        held(&self.parts).contains_key(part_id)
    }

    /// Resolves as soon as anybody follows anything.
    pub async fn some_follower(&self) {
        loop {
            let came = self.came.notified();
            tokio::pin!(came);
            came.as_mut().enable();
            if self.watched_parts() > 0 {
                return;
            }
            came.await;
        }
    }

    /// Shows the entries of a block to the part's followers, each as it is in the block. Waits for none of them: those who
    /// sleep are woken by a task, which is there while anybody has to be. When half of what the ring holds came since their
    /// turn began, all are woken at once: none may miss a line only because its turn comes late.
    pub fn publish(&self, part_id: &str, block: i64, entries: Vec<Bytes>) {
        if entries.is_empty() {
            return;
        }
        let Some(watched) = held(&self.parts).get(part_id).cloned() else { return };
        let mut ring = held(&watched.ring);
        let before = ring.mark();
        entries.into_iter().for_each(|entry| ring.push(block, entry));
        let (until, waiting) = (ring.mark(), ring.waiting);
        let since = ring.turn.map_or(before, |turn| turn.since);
        if ring.fills_since(since) {
            ring.turn = ring.turn.map(|_| Woken { since: until, until });
            watched.arrived.notify_waiters();
            return;
        }
        if waiting == 0 || ring.turn.is_some() {
            return;
        }
        ring.turn = Some(Woken { since, until });
        drop(ring);
        let turn = Turn { watched, asleep: waiting };
        let mut turns = held(&self.turns);
        match &mut *turns {
            Some(turns) => turns.push_back(turn),
            None => {
                *turns = Some(VecDeque::from([turn]));
                tokio::spawn(self.clone().wake_in_turns());
            }
        }
    }

    /// Wakes one follower after the other, of one part after the other, with everybody else's turns in between: woken at
    /// once, all of them would be answered before any call that comes meanwhile.
    async fn wake_in_turns(self) {
        while let Some(mut turn) = self.next_turn() {
            if turn.wake() {
                if let Some(turns) = &mut *held(&self.turns) {
                    turns.push_back(turn);
                }
                tokio::task::yield_now().await;
            }
        }
    }

    fn next_turn(&self) -> Option<Turn> {
        let mut turns = held(&self.turns);
        let next = turns.as_mut().and_then(VecDeque::pop_front);
        if next.is_none() {
            *turns = None;
        }
        next
    }

    /// Follows a part; sees what is in blocks after `since`.
    pub fn follow(&self, part_id: &str, since: i64, wanted: Wanted) -> Result<Follower, Refusal> {
        let mut parts = held(&self.parts);
        let watched = parts.entry(part_id.to_owned()).or_insert_with(|| {
            Arc::new(Watched { ring: Mutex::default(), arrived: Notify::new(), gone: watch::Sender::new(false) })
        });
        let mut ring = held(&watched.ring);
        if ring.followers >= FOLLOWERS_PER_PART_MAX {
            return Err(Refusal::exhausted(format!(
                "{FOLLOWERS_PER_PART_MAX} readers follow this part already: close one of them"
            )));
        }
        ring.followers += 1;
        let next = ring.next;
        drop(ring);
        self.came.notify_waiters();
        Ok(Follower { hub: self.clone(), part_id: part_id.to_owned(), watched: watched.clone(), wanted, next, since })
    }

    /// The part is gone: tells its followers.
    pub fn end(&self, part_id: &str) {
        if let Some(watched) = held(&self.parts).remove(part_id) {
            watched.gone.send_replace(true);
        }
    }

    /// Parts that are followed now; for the metrics.
    pub fn watched_parts(&self) -> usize {
        held(&self.parts).len()
    }
}

impl Turn {
    /// Wakes one follower, if anybody has not seen all there is.
    fn wake(&mut self) -> bool {
        if self.asleep == 0 {
            let mut ring = held(&self.watched.ring);
            let (until, waiting) = (ring.mark(), ring.waiting);
            match ring.turn {
                Some(turn) if waiting > 0 && turn.until != until => {
                    // Whoever begins to wait from now on has seen these lines.
                    ring.turn = Some(Woken { since: turn.until, until });
                    self.asleep = waiting;
                }
                _ => {
                    ring.turn = None;
                    return false;
                }
            }
        }
        // One wake too many is a look for nothing.
        self.watched.arrived.notify_one();
        self.asleep -= 1;
        true
    }
}

impl Ring {
    fn push(&mut self, block: i64, stored: Bytes) {
        self.bytes += stored.len();
        self.written += stored.len() as u64;
        self.lines.push_back(Line { stored, shown: OnceLock::new(), block });
        self.next += 1;
        // The newest line always stays, however long it is.
        while self.lines.len() > RING_MAX_LINES || (self.bytes > RING_MAX_BYTES && self.lines.len() > 1) {
            if let Some(oldest) = self.lines.pop_front() {
                self.bytes -= oldest.stored.len();
            }
        }
    }

    /// How far it is.
    fn mark(&self) -> Mark {
        Mark { lines: self.next, bytes: self.written }
    }

    /// Whether so much came since that a reader may soon miss some.
    fn fills_since(&self, mark: Mark) -> bool {
        self.next - mark.lines >= RING_MAX_LINES as u64 / 2 || self.written - mark.bytes >= RING_MAX_BYTES as u64 / 2
    }

    /// The next lines from number `from` on, in blocks after `since`, that are wanted: what was missed, the lines, and
    /// where to go on.
    fn take(&self, from: u64, since: i64, wanted: &Wanted) -> (u64, Vec<Bytes>, u64) {
        let oldest = self.next - self.lines.len() as u64;
        let start = from.max(oldest);
        let mut lines = Vec::new();
        let mut number = start;
        for line in self.lines.iter().skip((start - oldest) as usize) {
            number += 1;
            if line.block > since
                && let Some((entry, encoded)) = line.shown()
                && wanted.admits(entry)
            {
                lines.push(encoded.clone());
            }
            if lines.len() == BATCH_MAX_LINES {
                break;
            }
        }
        (start - from, lines, number)
    }
}

impl Line {
    fn shown(&self) -> Option<&(LogEntry, Bytes)> {
        let make = || match LogEntry::decode(self.stored.clone()) {
            Ok(entry) => {
                let encoded = encoded::line(&entry);
                Some((entry, encoded))
            }
            Err(cause) => {
                tracing::error!(block = self.block, %cause, "a log entry cannot be read and is left out");
                None
            }
        };
        self.shown.get_or_init(make).as_ref()
    }
}

impl Follower {
    /// Resolves when the part is gone, never before.
    pub fn gone(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut gone = self.watched.gone.subscribe();
        async move {
            if gone.wait_for(|gone| *gone).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Waits for lines that this reader wants.
    pub async fn next(&mut self) -> Batch {
        let watched = self.watched.clone();
        loop {
            let arrived = watched.arrived.notified();
            tokio::pin!(arrived);
            let _waiting = {
                let mut ring = held(&watched.ring);
                let (missed, lines, next) = ring.take(self.next, self.since, &self.wanted);
                self.next = next;
                if missed > 0 || !lines.is_empty() {
                    return Batch { missed, lines };
                }
                // Before anybody can bring another line.
                arrived.as_mut().enable();
                Waiting::new(&watched, &mut ring)
            };
            arrived.await;
        }
    }
}

/// Counts one that waits, until it is dropped.
struct Waiting<'a>(&'a Watched);

impl<'a> Waiting<'a> {
    fn new(watched: &'a Watched, ring: &mut Ring) -> Self {
        ring.waiting += 1;
        Self(watched)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        held(&self.0.ring).waiting -= 1;
    }
}

impl Batch {
    /// What is sent: the lines, and before them, where some were missed, an entry that says so.
    pub fn into_message(self, now: Millis) -> Written<TailRobotPartLogsResponse> {
        let told = (self.missed > 0).then(|| {
            encoded::line(&LogEntry {
                level: "warn".into(),
                time: Some(timestamp(now)),
                logger_name: "fleet.tail".into(),
                message: format!("{} lines missed: this reader is slower than the part writes", self.missed),
                ..LogEntry::default()
            })
        });
        told.into_iter().chain(self.lines).collect()
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let mut parts = held(&self.hub.parts);
        let mut ring = held(&self.watched.ring);
        ring.followers -= 1;
        // A part that is gone was taken out before; whoever came after it has a ring of its own.
        if ring.followers == 0 && parts.get(&self.part_id).is_some_and(|known| Arc::ptr_eq(known, &self.watched)) {
            parts.remove(&self.part_id);
        }
    }
}

/// Nothing in here can be left half-done by a panic, so a poisoned lock is as good as any.
fn held<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}
