//! How much one caller gets: calls by time, open streams, connections, wrong sign-ins; what is open to everybody, by
//! address.
//!
//! A key or a device is counted by what it is, wherever it calls from, and never by its address: 50,000 devices of one
//! organization may share one. Only those who have shown nothing are counted by address, and of sign-ins only the
//! wrong ones, which are slowed down while the right ones come in. A call that is wrong in itself costs as much as many
//! right ones, and who is told to come again is told it late: whoever asks the next thing as soon as it is answered is
//! slowed down by that, and not fed with refusals. Owns what is limited and how much; the counting is `buckets.rs`.

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    net::IpAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use tokio::sync::Semaphore;
use tonic::Code;

use super::{
    buckets::{self, Table},
    slow::Unread,
};
use crate::{
    authn::{Caller, Who},
    limits::{CONNECTIONS_MAX, UPLOADS_OF_ONE_MAX},
    refusal::Refusal,
};

/// A bucket holds what this time lets through: who was quiet may hurry.
const BURST: Duration = Duration::from_secs(5);
/// What a device asks for costs a tenth of other calls: it is cheaper, and one key may serve many devices.
const DEVICE_CALLS_FOR_ONE: f64 = 10.0;
/// A call that is wrong in itself costs as much as so many that are not: it may have been of any size, a program that
/// makes one makes them again, and nobody needs many answered by second.
const WRONG_CALL: f64 = 20.0;
/// A refusal is held back until its turn in line has come, at most for this long …
const HELD_BACK_MAX: Duration = buckets::LINE_MAX;
/// … and no more than so many at a time, because each is a call that waits.
const HELD_BACK_AT_ONCE: usize = 4_096;
/// Wrong sign-ins with one id from one address, at once …
const FAILURES_PER_ID: f64 = 10.0;
/// … and again one after this time.
const FAILURE_PER_ID_EVERY: Duration = Duration::from_secs(6);

/// When to come again who has too many streams open.
const STREAM_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// The same for connections, which are closed less often.
const CONNECTION_AGAIN_AFTER: Duration = Duration::from_secs(5);
/// And for uploads: most that are under way end within this.
pub const UPLOAD_AGAIN_AFTER: Duration = Duration::from_secs(60);

/// How much is let through. 0 is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Calls of one key or device, by second, over some seconds.
    pub calls_per_key: u32,
    /// Streams that one key or device has open, or one address without a key.
    pub streams_per_key: u32,
    /// Connections that one key or device holds.
    pub connections_per_key: u32,
    /// Calls without a key from one address, by second: what is open to everybody, sign-ins apart.
    pub open_calls_per_address: u32,
    /// Wrong sign-ins from one address, by minute.
    pub failures_per_address: u32,
}

impl Default for Limits {
    /// Far above what existing clients do one after the other, and what a site of 50,000 devices does at its worst.
    fn default() -> Self {
        Self {
            calls_per_key: 1_000,
            streams_per_key: 2_000,
            connections_per_key: share_of(CONNECTIONS_MAX),
            open_calls_per_address: 500,
            failures_per_address: 12_000,
        }
    }
}

/// Of so many connections, what one key or device may hold if nobody says otherwise: one that goes mad leaves most of them
/// to others.
pub fn share_of(connections: usize) -> u32 {
    u32::try_from(connections / 4).unwrap_or(u32::MAX).max(1)
}

/// What was refused, for numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// See [`Limits::calls_per_key`].
    Calls,
    /// See [`Limits::streams_per_key`].
    Streams,
    /// See [`Limits::connections_per_key`].
    Connections,
    /// See [`Limits::open_calls_per_address`].
    OpenCalls,
    /// See [`Limits::failures_per_address`], and the same for one id.
    SignIns,
    /// Of large answers that are left unread.
    UnreadBytes,
    /// Under way of one key; see [`UPLOADS_OF_ONE_MAX`].
    Uploads,
}

impl Limit {
    /// Every one.
    pub const ALL: [Self; 7] = [
        Self::Calls,
        Self::Streams,
        Self::Connections,
        Self::OpenCalls,
        Self::SignIns,
        Self::UnreadBytes,
        Self::Uploads,
    ];

    /// Its name for programs.
    pub fn word(self) -> &'static str {
        match self {
            Self::Calls => "calls_per_key",
            Self::Streams => "streams_per_key",
            Self::Connections => "connections_per_key",
            Self::OpenCalls => "open_calls_per_address",
            Self::SignIns => "sign_in_failures",
            Self::UnreadBytes => "unread_bytes",
            Self::Uploads => "uploads_per_key",
        }
    }
}

/// The counters. One per server process.
pub struct Throttle {
    limits: Limits,
    started: Instant,
    hasher: RandomState,
    /// Keys, devices, and addresses of those without.
    callers: Table,
    /// Who was wrong: apart, because whoever makes up ids fills it.
    wrong: Table,
    streams: Arc<Counts>,
    connections: Arc<Counts>,
    uploads: Arc<Counts>,
    held_back: Semaphore,
    told_late: AtomicU64,
    pub(super) unread: Arc<Unread>,
    refused: [AtomicU64; Limit::ALL.len()],
}

/// How many of something each has.
#[derive(Default)]
struct Counts(Mutex<HashMap<u64, u32>>);

impl Counts {
    /// One more, unless that one has the most already.
    fn take(self: &Arc<Self>, key: u64, most: u32) -> Option<Held> {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let own = counts.entry(key).or_default();
        (*own < most).then(|| {
            *own += 1;
            Held { counts: self.clone(), key }
        })
    }
}

/// Counts until it is dropped.
pub struct Held {
    counts: Arc<Counts>,
    key: u64,
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut counts = self.counts.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = counts.get_mut(&self.key) {
            *own -= 1;
            if *own == 0 {
                counts.remove(&self.key);
            }
        }
    }
}

impl Throttle {
    /// Nothing is used yet.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            started: Instant::now(),
            hasher: RandomState::new(),
            callers: Table::default(),
            wrong: Table::default(),
            streams: Arc::default(),
            connections: Arc::default(),
            uploads: Arc::default(),
            held_back: Semaphore::new(HELD_BACK_AT_ONCE),
            told_late: AtomicU64::new(0),
            unread: Arc::default(),
            refused: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    /// A call begins.
    pub fn call(&self, caller: &Caller, of_device: bool) -> Result<(), Refusal> {
        match caller.who() {
            Who::Local => return Ok(()),
            Who::Nobody => return self.open_call(caller.from()),
            Who::ApiKey { .. } | Who::Part { .. } | Who::LocationSecret { .. } => {}
        }
        let (key, per_second) = self.bucket_of(caller);
        let cost = if of_device { 1.0 / DEVICE_CALLS_FOR_ONE } else { 1.0 };
        let rate = f64::from(per_second);
        self.callers.take(key, cost, rate, rate * BURST.as_secs_f64(), self.now()).map_err(|wait| {
            self.refuse(
                Limit::Calls,
                format!(
                    "this key makes more than {per_second} calls a second, of which one that is wrong counts as \
                     {WRONG_CALL}: slow down, or use several keys"
                ),
                wait,
            )
        })
    }

    /// How a call ended that was let through.
    pub fn answered(&self, caller: &Caller, code: Code) {
        let wrong = matches!(code, Code::InvalidArgument | Code::OutOfRange | Code::Unimplemented);
        if wrong && !matches!(caller.who(), Who::Local) {
            let (key, per_second) = self.bucket_of(caller);
            let rate = f64::from(per_second);
            let most = rate * (BURST + HELD_BACK_MAX).as_secs_f64();
            self.callers.charge(key, 1.0, WRONG_CALL, rate, most, self.now());
        }
    }

    /// Tells who showed no token, or no good one, late where many such calls come from that address: they are refused all
    /// the same, and a device whose token has ended is in no hurry.
    pub async fn late_for_strangers<T>(&self, known: Result<T, Refusal>, from: IpAddr) -> Result<T, Refusal> {
        if known.as_ref().is_err_and(Refusal::is_unauthenticated) {
            self.hold_back(self.not_known(from)).await;
        }
        known
    }

    /// How long such an answer is to be held back.
    fn not_known(&self, from: IpAddr) -> Duration {
        let rate = f64::from(self.limits.open_calls_per_address);
        let key = self.key(&("not known", network(from)));
        let taken = self.callers.take(key, 1.0, rate, rate * BURST.as_secs_f64(), self.now());
        taken.err().unwrap_or_default()
    }

    /// Tells a refusal late: when it is its turn to come again, as far as that is known, and a second later at most.
    pub async fn late<T>(&self, outcome: Result<T, Refusal>) -> Result<T, Refusal> {
        match outcome {
            Err(refusal) => {
                let waited = self.hold_back(refusal.wait()).await;
                Err(refusal.after(waited))
            }
            done => done,
        }
    }

    /// Waits for that long, if there is room for one that waits; how long it was.
    pub(super) async fn hold_back(&self, wait: Duration) -> Duration {
        let wait = wait.min(HELD_BACK_MAX);
        match self.held_back.try_acquire() {
            Ok(_place) if !wait.is_zero() => {
                self.told_late.fetch_add(1, Relaxed);
                tokio::time::sleep(wait).await;
                wait
            }
            _ => Duration::ZERO,
        }
    }

    /// Where the calls of that caller are counted, and how many it may make by second.
    fn bucket_of(&self, caller: &Caller) -> (u64, u32) {
        match caller.who() {
            Who::Nobody => (self.open_key(caller.from()), self.limits.open_calls_per_address),
            _ => (self.of_caller(caller), self.limits.calls_per_key),
        }
    }

    fn open_key(&self, from: IpAddr) -> u64 {
        self.key(&("open", network(from)))
    }

    /// Somebody without a key asks for what is open to everybody.
    pub fn open_call(&self, from: IpAddr) -> Result<(), Refusal> {
        let rate = f64::from(self.limits.open_calls_per_address);
        self.callers.take(self.open_key(from), 1.0, rate, rate * BURST.as_secs_f64(), self.now()).map_err(|wait| {
            let message = format!(
                "more than {} calls a second without a key come from this address: slow down, or use a key",
                self.limits.open_calls_per_address
            );
            self.refuse(Limit::OpenCalls, message, wait)
        })
    }

    /// A stream opens; nothing if it counts nowhere.
    pub fn stream(&self, caller: &Caller) -> Result<Option<Held>, Refusal> {
        self.hold(&self.streams, self.limits.streams_per_key, caller, |most| {
            let message = match caller.who() {
                Who::Nobody => {
                    format!("{most} streams without a key are open from this address, which is the most: close some")
                }
                _ => format!("this key has {most} streams open, which is the most: close some, or use several keys"),
            };
            (Limit::Streams, message, STREAM_AGAIN_AFTER)
        })
    }

    /// A connection becomes one of that caller's; nothing if it counts nowhere.
    pub fn connection(&self, caller: &Caller) -> Result<Option<Held>, Refusal> {
        self.hold(&self.connections, self.limits.connections_per_key, caller, |most| {
            let message = format!(
                "this key holds {most} connections, which is the most: make several calls on one, close some, or use several keys"
            );
            (Limit::Connections, message, CONNECTION_AGAIN_AFTER)
        })
    }

    /// An upload begins; nothing if it counts nowhere.
    pub fn upload(&self, caller: &Caller) -> Result<Option<Held>, Refusal> {
        self.hold(&self.uploads, UPLOADS_OF_ONE_MAX, caller, |most| {
            let message =
                format!("this key has {most} uploads under way, which is the most: wait until some have ended");
            (Limit::Uploads, message, UPLOAD_AGAIN_AFTER)
        })
    }

    fn hold(
        &self,
        counts: &Arc<Counts>,
        most: u32,
        caller: &Caller,
        refusal: impl FnOnce(u32) -> (Limit, String, Duration),
    ) -> Result<Option<Held>, Refusal> {
        if most == 0 || matches!(caller.who(), Who::Local) {
            return Ok(None);
        }
        counts.take(self.of_caller(caller), most).map(Some).ok_or_else(|| {
            let (limit, message, wait) = refusal(most);
            self.refuse(limit, message, wait)
        })
    }

    /// Somebody has signed in: a call like others, counted by the id that was proven.
    pub fn signed_in(&self, id: &str) -> Result<(), Refusal> {
        let rate = f64::from(self.limits.calls_per_key);
        self.callers.take(self.key(&("signed in", id)), 1.0, rate, rate * BURST.as_secs_f64(), self.now()).map_err(
            |wait| {
                let message = format!(
                    "this key or device signs in more than {} times a second: keep the token, it holds for hours",
                    self.limits.calls_per_key
                );
                self.refuse(Limit::Calls, message, wait)
            },
        )
    }

    /// A sign-in was wrong. Refused for another reason once there were too many: the id or the address has to wait,
    /// but never who is right. A secret has 128 bits, so nothing is won by turning the right one away, and behind a
    /// balancer or a NAT one that is wrong without end would keep everybody out.
    pub fn sign_in_failed(&self, from: IpAddr, id: &str) -> Result<(), Refusal> {
        self.sign_in_failed_at(from, id, self.now())
    }

    fn sign_in_failed_at(&self, from: IpAddr, id: &str, now: f64) -> Result<(), Refusal> {
        for (key, rate, most) in self.of_sign_in(from, id) {
            if let Err(wait) = self.wrong.take(key, 1.0, rate, most, now) {
                let message = "too many wrong sign-ins: check id and secret, and try again later";
                return Err(self.refuse(Limit::SignIns, message.to_owned(), wait));
            }
        }
        Ok(())
    }

    /// How often that limit refused somebody.
    pub fn refused(&self, limit: Limit) -> u64 {
        self.refused[limit as usize].load(Relaxed)
    }

    /// How many refusals were held back, calls without a good token included.
    pub fn told_late(&self) -> u64 {
        self.told_late.load(Relaxed)
    }

    /// How often somebody was let pass because the table was full of others: of callers, and of wrong sign-ins.
    pub fn uncounted(&self) -> [(&'static str, u64); 2] {
        [("callers", self.callers.uncounted()), ("sign_ins", self.wrong.uncounted())]
    }

    fn of_sign_in(&self, from: IpAddr, id: &str) -> [(u64, f64, f64); 2] {
        let per_minute = f64::from(self.limits.failures_per_address);
        let from = network(from);
        // No limit by address is no limit at all: it is what somebody sets who tests with wrong keys.
        let by_id = if per_minute == 0.0 { 0.0 } else { 1.0 / FAILURE_PER_ID_EVERY.as_secs_f64() };
        [
            (self.key(&("sign-in", from, id)), by_id, FAILURES_PER_ID),
            (self.key(&("sign-in", from)), per_minute / 60.0, per_minute),
        ]
    }

    pub(super) fn refuse(&self, limit: Limit, message: String, wait: Duration) -> Refusal {
        self.refused[limit as usize].fetch_add(1, Relaxed);
        Refusal::too_many(limit.word(), message, wait)
    }

    /// Under which a caller is counted.
    pub(super) fn of_caller(&self, caller: &Caller) -> u64 {
        match caller.who() {
            Who::ApiKey { id, .. } => self.key(&("key", id)),
            Who::Part { part } | Who::LocationSecret { part, .. } => self.key(&("part", part)),
            Who::Nobody | Who::Local => self.key(&("address", network(caller.from()))),
        }
    }

    fn key(&self, what: &impl std::hash::Hash) -> u64 {
        self.hasher.hash_one(what)
    }

    fn now(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }
}

/// Whom an address stands for: with IPv6 everybody has 2^64 of them.
pub(super) fn network(from: IpAddr) -> IpAddr {
    match from {
        IpAddr::V4(_) => from,
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::from([a, b, c, d, 0, 0, 0, 0])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edge::buckets::BUCKETS;

    fn throttle() -> Throttle {
        Throttle::new(Limits::default())
    }

    #[test]
    fn a_wrong_call_costs_as_much_as_twenty() {
        let throttle = throttle();
        let stranger = |last| Caller::nobody(IpAddr::from([203, 0, 113, last]));
        // 500 a second and 2,500 at once: so many may be wrong, and hardly more while this goes on.
        let passed = |last, code| {
            let calls = (0..200).take_while(|_| throttle.call(&stranger(last), false).is_ok());
            calls.inspect(|_| throttle.answered(&stranger(last), code)).count()
        };
        for (last, code) in [Code::InvalidArgument, Code::OutOfRange, Code::Unimplemented].iter().enumerate() {
            let passed = passed(last as u8, *code);
            assert!((125..200).contains(&passed), "{passed} were {code:?}");
        }
        for (last, code) in [Code::Ok, Code::NotFound, Code::Unavailable, Code::Internal].iter().enumerate() {
            assert_eq!(passed(100 + last as u8, *code), 200, "{code:?}");
        }
    }

    #[tokio::test]
    async fn a_refusal_is_held_back_where_there_is_room_for_it() {
        let throttle = throttle();
        let hold = |wait| Box::pin(throttle.hold_back(Duration::from_secs(wait)));
        let mut poller = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(hold(0).as_mut().poll(&mut poller).is_ready(), "nothing to wait for");
        let mut held: Vec<_> = (0..HELD_BACK_AT_ONCE).map(|_| hold(60)).collect();
        assert!(held.iter_mut().all(|one| one.as_mut().poll(&mut poller).is_pending()));
        assert!(hold(60).as_mut().poll(&mut poller).is_ready(), "no more than so many");
        assert_eq!(throttle.told_late(), HELD_BACK_AT_ONCE as u64);
        // Whoever goes away makes room, and nobody waits for a minute.
        drop(held.pop());
        let held = tokio::time::timeout(Duration::from_secs(30), hold(60)).await;
        assert_eq!(held, Ok(HELD_BACK_MAX));
    }

    #[test]
    fn who_is_not_known_waits_where_many_are_not() {
        let throttle = Throttle::new(Limits { open_calls_per_address: 1, ..Limits::default() });
        let site = IpAddr::from([203, 0, 113, 9]);
        assert_eq!(throttle.not_known(site), Duration::ZERO);
        assert!((0..50).any(|_| !throttle.not_known(site).is_zero()));
        assert!(throttle.open_call(site).is_ok(), "that is counted apart");
    }

    #[test]
    fn wrong_sign_ins_are_slowed_down_by_id_and_by_address() {
        let throttle = throttle();
        // All in one moment.
        let fail = |from, id: &str| throttle.sign_in_failed_at(from, id, 1.0);
        let site = IpAddr::from([203, 0, 113, 9]);
        for _ in 0..10 {
            fail(site, "stolen").unwrap();
        }
        assert!(fail(site, "stolen").is_err());
        assert!(fail(site, "another").is_ok());
        assert!(fail(IpAddr::from([203, 0, 113, 10]), "stolen").is_ok(), "elsewhere nobody was wrong");
        assert_eq!(throttle.refused(Limit::SignIns), 1);
        // Who goes through all ids is stopped at last.
        let passed = (0..20_000).filter(|device| fail(site, &device.to_string()).is_ok()).count();
        assert!((11_000..=12_000).contains(&passed), "{passed}");
    }

    #[test]
    fn made_up_ids_leave_room_for_callers() {
        let throttle = Throttle::new(Limits { calls_per_key: 1, failures_per_address: u32::MAX, ..Limits::default() });
        for id in 0..2 * BUCKETS {
            let _ = throttle.sign_in_failed_at(IpAddr::from([203, 0, 113, 9]), &id.to_string(), 1.0);
        }
        let refused = (0..50).filter(|_| throttle.signed_in("one").is_err()).count();
        assert!(refused >= 40, "{refused} of 50");
        assert!(matches!(throttle.uncounted(), [("callers", 0), ("sign_ins", 1..)]));
    }

    #[test]
    fn signing_in_is_a_call_of_the_key_that_does_it() {
        let throttle = Throttle::new(Limits { calls_per_key: 1, ..Limits::default() });
        let refused = (0..50).filter(|_| throttle.signed_in("one").is_err()).count();
        assert!(refused >= 40, "{refused} of 50");
        assert!(throttle.signed_in("another").is_ok());
    }

    #[test]
    fn addresses_of_one_ipv6_network_are_one() {
        let throttle = Throttle::new(Limits { open_calls_per_address: 1, ..Limits::default() });
        let address = |last: u16| IpAddr::from([0x2001, 0xdb8, 1, 2, 3, 4, 5, last]);
        let refused = (0..50).filter(|last| throttle.open_call(address(*last)).is_err()).count();
        assert!(refused >= 40, "{refused} of 50");
        assert!(throttle.open_call(IpAddr::from([0x2001, 0xdb8, 1, 3, 0, 0, 0, 1])).is_ok());
    }

    #[test]
    fn streams_and_connections_count_until_they_are_dropped_each_for_itself() {
        let throttle = Throttle::new(Limits { streams_per_key: 2, connections_per_key: 1, ..Limits::default() });
        let caller = |last| Caller::nobody(IpAddr::from([127, 0, 0, last]));
        let first = throttle.stream(&caller(1)).unwrap();
        let second = throttle.stream(&caller(1)).unwrap();
        assert!(throttle.stream(&caller(1)).is_err());
        let connection = throttle.connection(&caller(1)).unwrap();
        assert!(throttle.connection(&caller(1)).is_err());
        assert!(throttle.connection(&caller(2)).is_ok(), "another one is not concerned");
        drop(first);
        drop(throttle.stream(&caller(1)).unwrap());
        drop((second, connection));
        for counts in [&throttle.streams, &throttle.connections] {
            assert!(counts.0.lock().unwrap().is_empty());
        }
        assert_eq!((throttle.refused(Limit::Streams), throttle.refused(Limit::Connections)), (1, 1));
    }
}
