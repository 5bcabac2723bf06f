//! Places for connections: how many there are, and who gives way when they become few.
//!
//! Whoever showed a good token keeps its place. A *stranger* is a connection on which none was shown, or none for a
//! long time: it costs nothing to be one, so strangers together may not keep devices and people out. While half of the
//! places are free nobody is disturbed. Beyond that a stranger that does nothing has a minute. When all are taken, some
//! strangers give way to every newcomer: first those from the address that has the most of them, the oldest there. Good
//! connections from an address speak for the strangers beside them, so a site of 50,000 devices behind one address is
//! not taken for an attack while a part of it signs in. A good token keeps a place while its key has its share of them
//! (`throttle.rs`): beyond that its calls are refused, and the connection stays a stranger's.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use tokio::sync::Notify;

use super::{
    metrics::Metrics,
    throttle::{Held, Throttle, network},
};
use crate::{authn::Caller, refusal::Refusal};

/// A connection on which no good token was shown for this long, and nothing is under way, is a stranger's again: its key
/// may be deleted since. Devices call every few seconds.
const KNOWN_FOR: Duration = Duration::from_secs(600);
/// Who has just signed in comes with its token within this.
const SIGNED_IN_FOR: Duration = Duration::from_secs(30);
/// Between two looks for strangers that have been there for too long.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// After a look that found nobody to give way: looking again for each newcomer would be the greater harm.
const IN_VAIN_FOR: Duration = Duration::from_millis(100);

/// How many connections that give way at once; also how many may be there beyond the most, while they leave.
fn batch(most: usize) -> usize {
    most / 16 + 4
}

/// All places of a port.
pub(super) struct Places {
    most: usize,
    /// How long a stranger that does nothing is left alone while places are few.
    stranger_for: Duration,
    table: Mutex<Table>,
    emptied: Notify,
}

#[derive(Default)]
struct Table {
    seats: HashMap<u64, Arc<Seat>>,
    next: u64,
    leaving: usize,
    look_again: Option<Instant>,
    /// The last look was for somebody to give way, and found nobody.
    in_vain: bool,
}

/// One connection, as those see it who answer its calls.
pub(super) struct Seat {
    peer: Origin,
    /// Whom a balancer says that it brings, once it has.
    told: OnceLock<Origin>,
    since: Instant,
    /// Milliseconds from `since` until which it is known; 0 before the first good token or secret.
    known_until: AtomicU64,
    /// A good token was shown here, and not only a secret.
    shown: AtomicBool,
    /// Of whose share it is, once somebody showed a good token here.
    holder: Mutex<Option<Held>>,
    busy: AtomicU32,
    leaving: AtomicBool,
    leave: Notify,
}

/// Whose a connection is.
#[derive(Debug, Clone, Copy)]
struct Origin {
    network: IpAddr,
    /// A proxy of ours, behind which many are.
    trusted: bool,
}

/// Taken by a connection; given back when dropped.
pub(super) struct Place {
    places: Arc<Places>,
    id: u64,
    pub(super) seat: Arc<Seat>,
}

impl Places {
    pub(super) fn new(most: usize, stranger_for: Duration) -> Arc<Self> {
        Arc::new(Self { most, stranger_for, table: Mutex::default(), emptied: Notify::new() })
    }

    /// A place for a newcomer; none when all are taken and nobody gives way.
    pub(super) fn take(self: &Arc<Self>, from: IpAddr, trusted: bool, metrics: &Metrics) -> Option<Place> {
        let now = Instant::now();
        let mut table = self.table();
        let open = table.open();
        let wanted = if open >= self.most { batch(self.most) } else { 0 };
        let due = table.look_again.is_none_or(|moment| moment <= now);
        let at_once = wanted > 0 && table.leaving == 0 && !table.in_vain;
        if open > self.most / 2 && (due || at_once) {
            let seen = table.seats.iter().filter(|(_, seat)| !seat.leaving.load(Relaxed));
            let seen = seen.map(|(id, seat)| seat.seen(*id, now)).collect();
            let going = gives_way(seen, wanted, self.stranger_for);
            table.in_vain = wanted > 0 && going.is_empty();
            table.look_again = Some(now + if table.in_vain { IN_VAIN_FOR } else { LOOK_EVERY });
            metrics.strangers_closed(going.len());
            for seat in going.iter().filter_map(|id| table.seats.get(id)) {
                seat.leaving.store(true, Relaxed);
                seat.leave.notify_one();
            }
            table.leaving += going.len();
        }
        if table.open() >= self.most || table.seats.len() >= self.most + batch(self.most) {
            metrics.connection_refused();
            return None;
        }
        let id = table.next;
        table.next += 1;
        let seat = Arc::new(Seat {
            peer: Origin { network: network(from), trusted },
            told: OnceLock::new(),
            since: now,
            known_until: AtomicU64::new(0),
            shown: AtomicBool::new(false),
            holder: Mutex::default(),
            busy: AtomicU32::new(0),
            leaving: AtomicBool::new(false),
            leave: Notify::new(),
        });
        table.seats.insert(id, seat.clone());
        metrics.connected();
        Some(Place { places: self.clone(), id, seat })
    }

    /// Until nobody is there any more.
    pub(super) async fn empty(&self) {
        loop {
            let emptied = self.emptied.notified();
            if self.table().seats.is_empty() {
                return;
            }
            emptied.await;
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// Those who leave have no place any more.
    fn open(&self) -> usize {
        self.seats.len().saturating_sub(self.leaving)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Not when the last of those who answer calls is gone: the connection is.
        drop(self.seat.holder.lock().unwrap_or_else(PoisonError::into_inner).take());
        let mut table = self.places.table();
        table.seats.remove(&self.id);
        if self.seat.leaving.load(Relaxed) {
            table.leaving = table.leaving.saturating_sub(1);
        }
        if table.seats.is_empty() {
            self.places.emptied.notify_waiters();
        }
    }
}

impl Seat {
    /// A balancer has said whom it brings, or that it comes itself. Once.
    pub(super) fn brought(&self, from: IpAddr, trusted: bool) {
        let _ = self.told.set(Origin { network: network(from), trusted });
    }

    /// Whether it came through a balancer, whose word is all that is known of where it comes from.
    pub(super) fn is_brought(&self) -> bool {
        self.told.get().is_some()
    }

    fn origin(&self) -> Origin {
        *self.told.get().unwrap_or(&self.peer)
    }

    /// A good token was shown here. The place is of the share of whoever does so first; refused where that has no more.
    /// Behind a proxy of ours are many.
    pub(super) fn held_by(&self, caller: &Caller, throttle: &Throttle) -> Result<(), Refusal> {
        if !self.origin().trusted {
            let mut holder = self.holder.lock().unwrap_or_else(PoisonError::into_inner);
            if holder.is_none() {
                *holder = throttle.connection(caller)?;
            }
        }
        self.shown.store(true, Relaxed);
        self.known_for(KNOWN_FOR);
        Ok(())
    }

    /// Somebody has signed in here, whose token has not been seen yet.
    pub(super) fn signed_in(&self) {
        self.known_for(SIGNED_IN_FOR);
    }

    fn known_for(&self, time: Duration) {
        let until = self.since.elapsed() + time;
        self.known_until.fetch_max(u64::try_from(until.as_millis()).unwrap_or(u64::MAX), Relaxed);
    }

    /// Something is under way until that is dropped.
    pub(super) fn busy(self: &Arc<Self>) -> Busy {
        self.busy.fetch_add(1, Relaxed);
        Busy(self.clone())
    }

    /// When somebody else gets the place. Once.
    pub(super) async fn has_to_leave(&self) {
        self.leave.notified().await;
    }

    fn seen(&self, id: u64, now: Instant) -> Seen {
        let (busy, age) = (self.busy.load(Relaxed) > 0, now.saturating_duration_since(self.since));
        let until = Duration::from_millis(self.known_until.load(Relaxed));
        // What is open to everybody may keep a connection busy for ever.
        let Origin { network, trusted } = self.origin();
        let known = trusted || age < until || busy && self.shown.load(Relaxed);
        Seen { id, network, age, known, busy }
    }
}

/// Holds a connection busy.
pub(super) struct Busy(Arc<Seat>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Relaxed);
    }
}

/// A connection at a moment.
#[derive(Debug, Clone, Copy)]
struct Seen {
    id: u64,
    network: IpAddr,
    age: Duration,
    known: bool,
    busy: bool,
}

/// Who leaves: every stranger that did nothing for too long, and others until there are `wanted`.
fn gives_way(seen: Vec<Seen>, wanted: usize, stranger_for: Duration) -> Vec<u64> {
    let mut known: HashMap<IpAddr, usize> = HashMap::new();
    let mut strangers = Vec::with_capacity(seen.len());
    let mut going = Vec::new();
    for one in seen {
        if one.known {
            *known.entry(one.network).or_default() += 1;
        } else if !one.busy && one.age >= stranger_for {
            going.push(one.id);
        } else {
            strangers.push(one);
        }
    }
    let wanted = wanted.saturating_sub(going.len());
    if wanted > 0 {
        // How many younger strangers there are from the same address, beyond those that are known there. Taking away those
        // who have the most of them is taking from whoever has most.
        strangers.sort_by_key(|one| one.age);
        let mut younger: HashMap<IpAddr, usize> = HashMap::new();
        let mut ranked: Vec<(usize, Duration, u64)> = strangers
            .iter()
            .map(|one| {
                let before = younger.entry(one.network).or_default();
                *before += 1;
                (before.saturating_sub(known.get(&one.network).copied().unwrap_or_default()), one.age, one.id)
            })
            .collect();
        ranked.sort_unstable_by(|one, other| other.cmp(one));
        going.extend(ranked.iter().take(wanted).map(|(.., id)| *id));
    }
    going
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edge::throttle::Limits;

    fn at(last: u8) -> IpAddr {
        IpAddr::from([203, 0, 113, last])
    }

    fn one(id: u64, network: u8, age: u64) -> Seen {
        Seen { id, network: at(network), age: Duration::from_secs(age), known: false, busy: false }
    }

    #[test]
    fn who_gives_way() {
        let known = |id, network| Seen { known: true, ..one(id, network, 1000) };
        let busy = |id, network| Seen { busy: true, ..one(id, network, 1000) };
        let table: [(&str, Vec<Seen>, usize, &[u64]); 9] = [
            ("nobody there", vec![], 3, &[]),
            ("the young are left alone", vec![one(1, 1, 59), one(2, 1, 3)], 0, &[]),
            ("the old are not", vec![one(1, 1, 60), one(2, 1, 3)], 0, &[1]),
            ("unless something is under way", vec![busy(1, 1), one(2, 1, 3)], 0, &[]),
            ("who is known never", vec![known(1, 1), known(2, 1)], 5, &[]),
            ("the oldest first", vec![one(1, 1, 2), one(2, 1, 9), one(3, 1, 5)], 2, &[2, 3]),
            (
                "of the address that has most",
                vec![one(1, 1, 50), one(2, 2, 3), one(3, 2, 2), one(4, 2, 1), one(5, 3, 40)],
                2,
                &[2, 3],
            ),
            ("also when they are busy", vec![busy(1, 1), one(2, 1, 1), one(3, 2, 7)], 1, &[1]),
            (
                "known ones speak for their neighbours",
                vec![known(1, 1), known(2, 1), known(3, 1), one(4, 1, 9), one(5, 1, 8), one(6, 2, 2), one(7, 2, 1)],
                2,
                &[6, 7],
            ),
        ];
        for (case, seen, wanted, expected) in table {
            assert_eq!(gives_way(seen, wanted, Duration::from_secs(60)), expected, "{case}");
        }
    }

    #[test]
    fn strangers_of_one_address_are_levelled_down_to_those_of_others() {
        let mut seen: Vec<Seen> = (0..600).map(|id| one(id, 1, id % 50)).collect();
        seen.extend((600..1000).map(|id| one(id, 2, id % 50)));
        let going = gives_way(seen.clone(), 300, Duration::from_secs(60));
        let left = |network| seen.iter().filter(|one| one.network == at(network) && !going.contains(&one.id)).count();
        assert_eq!((left(1), left(2)), (350, 350));
    }

    #[test]
    fn a_place_is_given_back_and_those_who_leave_have_none() {
        let (places, metrics) = (Places::new(4, Duration::from_secs(60)), Metrics::default());
        let (throttle, key) = (Throttle::new(Limits::default()), |last| Caller::nobody(at(last)));
        let take = |network| places.take(at(network), false, &metrics);
        let device = take(1).unwrap();
        device.seat.held_by(&key(1), &throttle).unwrap();
        let mut strangers: Vec<Place> = (0..3).map(|_| take(2).unwrap()).collect();
        let person = take(1).expect("strangers give way");
        person.seat.held_by(&key(2), &throttle).unwrap();
        assert!(!device.seat.leaving.load(Relaxed) && !person.seat.leaving.load(Relaxed));
        assert!(strangers.iter().all(|one| one.seat.leaving.load(Relaxed)));
        strangers.clear();
        let others = [take(1).unwrap(), take(1).unwrap()];
        others.iter().for_each(|one| one.seat.held_by(&key(1), &throttle).unwrap());
        assert!(take(3).is_none(), "everybody there is known");
        // Who would give way now is found by the next look, and not before.
        places.table().look_again = Some(Instant::now() + Duration::from_secs(3600));
        drop(others);
        let strangers = [take(2).unwrap(), take(2).unwrap()];
        assert!(take(3).is_none(), "nobody is looked for again so soon");
        places.table().look_again = Some(Instant::now());
        assert!(take(3).is_some());
        assert!(strangers.iter().all(|one| one.seat.leaving.load(Relaxed)));
    }

    #[test]
    fn whom_a_balancer_brings_is_one_like_others_and_gives_way_to_those_of_another_address() {
        let (places, metrics) = (Places::new(16, Duration::from_secs(60)), Metrics::default());
        let throttle = Throttle::new(Limits { connections_per_key: 1, ..Limits::default() });
        let through = |last| {
            // The balancer may be a proxy of ours for what it says in calls; whom it brings is none for that.
            let place = places.take(at(9), true, &metrics).expect("strangers give way");
            place.seat.brought(at(last), false);
            place
        };
        let alone = through(2);
        let crowd: Vec<Place> = (0..15).map(|_| through(1)).collect();
        let newcomer = through(3);
        let leaving = crowd.iter().filter(|one| one.seat.leaving.load(Relaxed)).count();
        assert_eq!(leaving, batch(16), "those of the address that has most");
        assert!(!alone.seat.leaving.load(Relaxed), "although it is the oldest");
        alone.seat.held_by(&Caller::nobody(at(2)), &throttle).unwrap();
        assert!(newcomer.seat.held_by(&Caller::nobody(at(2)), &throttle).is_err(), "a key's share holds behind it too");
        assert!(newcomer.seat.is_brought());
    }

    #[test]
    fn a_connection_is_of_the_first_that_shows_a_token_and_one_beyond_the_share_stays_a_strangers() {
        let (places, metrics) = (Places::new(8, Duration::from_secs(60)), Metrics::default());
        let throttle = Throttle::new(Limits { connections_per_key: 1, ..Limits::default() });
        let key = |last| Caller::nobody(at(last));
        let take = |trusted| places.take(at(1), trusted, &metrics).unwrap();
        let known = |place: &Place| place.seat.seen(place.id, Instant::now()).known;
        let (first, second, proxy) = (take(false), take(false), take(true));
        first.seat.held_by(&key(1), &throttle).unwrap();
        first.seat.held_by(&key(2), &throttle).unwrap();
        assert!(second.seat.held_by(&key(1), &throttle).is_err());
        assert!(known(&first) && !known(&second));
        second.seat.signed_in();
        assert!(known(&second), "for as long as its first call may take");
        let later = |place: &Place| place.seat.seen(place.id, Instant::now() + KNOWN_FOR + SIGNED_IN_FOR).known;
        let _busy = (first.seat.busy(), second.seat.busy());
        assert!(later(&first) && !later(&second) && later(&proxy));
        proxy.seat.held_by(&key(1), &throttle).unwrap();
        second.seat.held_by(&key(2), &throttle).unwrap();
        drop(first);
        take(false).seat.held_by(&key(1), &throttle).unwrap();
    }
}
