//! Cloud: decides when to call the fleet server, and what the answers mean for the others.
//!
//! Owns the rhythm. Messages, threads and files live in `calls.rs` and `actor.rs`.
//!
//! Everything that is due at about the same time goes in one wake-up, the configuration first: it is what the server
//! counts as a sign of life. After a failure nothing is called until the wait is over, and the next wake-up begins with
//! the configuration again.
//!
//! # One mark, one restart
//!
//! The server says once that a part is marked for restart; the mark goes when a later start of the machine server is
//! reported, or with the next question, whichever comes first. So nothing may hang on a single answer, and nothing may be
//! counted twice:
//!
//! - While a restart is wanted and not done, nobody asks: the start that comes answers every mark made until then, its
//!   report clears them, and what is marked later is found by the next question.
//! - An answer that did not arrive may have been a yes, and so may the last answer to an agent that is gone. The next
//!   report says so, the server forgets that it has told of the mark, and only then the question is asked again. The
//!   same report tells of the last start, so that a mark which is done already is gone before the question.
//! - The counter is stored before the machine server's keeper hears of it. A disk that refuses holds no restart back: if
//!   the agent died now, the mark would still be on the server.

use std::time::Duration;

use board::Mono;

use super::{
    Acknowledged, FetchedConfig, Reach, RestartsWanted, Retries,
    calls::{Answers, Plan, Report},
    port::CloudError,
};
use crate::kit::backoff::Backoff;

/// Between two checks while the server has not said otherwise.
const CHECK_DEFAULT: Duration = Duration::from_secs(5);
/// No server may make a device call more often.
const CHECK_MIN: Duration = Duration::from_secs(1);
/// No server may make a device silent for longer.
const CHECK_MAX: Duration = Duration::from_secs(600);
/// What is due within this goes along now, instead of waking the device twice.
const TOGETHER: Duration = Duration::from_millis(500);
/// First wait after a failure of any kind.
const RETRY_FIRST: Duration = Duration::from_secs(1);
/// Longest wait while the server is silent: a returning network is used within a minute.
const SILENT_MAX: Duration = Duration::from_secs(60);
/// Longest wait while the server refuses: somebody has to do something there first.
const REFUSED_MAX: Duration = Duration::from_secs(600);
/// While the server refuses: whether somebody has put other credentials there is looked at this often. A look at a file.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// Longest wait for an identity: looking for it costs no more than a look at a file, and a person waits.
const NO_IDENTITY_MAX: Duration = Duration::from_secs(10);
/// A report goes out this often even if nothing changed.
const REPORT_EVERY: Duration = Duration::from_secs(600);
/// While an update is in trouble: the answer to a report is how a device hears that it shall try again, and a person waits.
const REPORT_IN_TROUBLE: Duration = Duration::from_secs(60);
/// A change is reported this soon: several often come together.
const REPORT_SOON: Duration = Duration::from_secs(1);
/// Between two reports that are caused by changes, whatever keeps changing.
const REPORT_APART: Duration = Duration::from_secs(3);

/// A log batch that waits for delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchKey {
    /// Its spool.
    pub spool_id: std::rc::Rc<str>,
    /// Its number there.
    pub number: u64,
}

/// What happens to this machine.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The agent starts; this many restarts were wanted so far.
    Started(RestartsWanted),
    /// Somebody has reason to believe that calling now is worth it: the network is back, an identity was given.
    Poked,
    /// Something that people want to see has changed.
    StatusChanged,
    /// How the updates are.
    Updates {
        /// One of them has failed, and somebody may want it tried again.
        in_trouble: bool,
    },
    /// What the machine server has done about restarts, and whether it asks the fleet server itself.
    MachineServer {
        /// Restarts carried out for operators.
        operator_restarts: u64,
        /// It asks itself; the agent leaves it to it.
        handles_needs_restart: bool,
    },
    /// The log batch to deliver changed.
    Offered(Option<BatchKey>),
    /// The calls of a wake-up have ended.
    Answered(Box<Answers>),
    /// Time has come.
    DeadlinePassed,
}

/// What this machine wants done.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Make these calls; answered by [`Event::Answered`].
    Call(Plan),
    /// The server can be reached, or why not.
    Tell(Reach, Option<CloudError>),
    /// Something else than before is configured.
    Configure(FetchedConfig),
    /// Store the counter, then tell it.
    Restart(RestartsWanted),
    /// Tell what is to be tried again.
    Retry(Retries),
    /// The server keeps this batch.
    Acknowledge(Acknowledged),
    /// Look whether the credentials are other ones now; if so, [`Event::Poked`].
    Look,
    /// One call is refused although the server is there.
    Complain(&'static str, CloudError),
}

/// No step asks for more than this: one for each of the four answers of a wake-up, the reach, and the next calls.
pub type Effects = heapless::Vec<Effect, 6>;

/// The decision maker.
#[derive(Clone, Debug)]
pub struct Machine {
    reach: Reach,
    /// What was wrong with the credentials file when that was last told.
    mistake: Option<CloudError>,
    /// Calls are under way: one wake-up at a time.
    busy: bool,
    /// After a failure: nothing before this.
    hold: Option<Mono>,
    /// While the credentials are refused: when other ones are looked for.
    look: Option<Mono>,
    retry: [Backoff; 3],
    config: Schedule,
    restart: Schedule,
    configured: Option<FetchedConfig>,
    wanted: RestartsWanted,
    /// Restarts carried out; `None` until the machine server's keeper has said so.
    operator_restarts: Option<u64>,
    /// The server may have told of a mark without being heard, and does not know that.
    unheard: bool,
    handles_needs_restart: bool,
    in_trouble: bool,
    /// When the next report is due at the latest.
    report_at: Mono,
    report_refused: Option<i32>,
    reported_at: Option<Mono>,
    batch: Option<BatchKey>,
    batch_at: Mono,
    batch_retry: Backoff,
    batch_refused: Option<i32>,
}

/// A question that is asked again and again.
#[derive(Clone, Debug)]
struct Schedule {
    due: Mono,
    every: Duration,
    refused: Option<i32>,
    retry: Backoff,
}

impl Schedule {
    fn new(seed: u64) -> Self {
        let retry = Backoff::new(CHECK_DEFAULT, REFUSED_MAX, seed);
        Schedule { due: Mono::BOOT, every: CHECK_DEFAULT, refused: None, retry }
    }

    /// Answered; the server may have said when to ask again.
    fn answered(&mut self, now: Mono, every: Option<Duration>) {
        if let Some(every) = every {
            self.every = every.clamp(CHECK_MIN, CHECK_MAX);
        }
        self.retry.reset();
        (self.due, self.refused) = (now + self.every, None);
    }

    /// Refused for a reason of its own; says whether that is news.
    fn refused(&mut self, now: Mono, code: i32) -> bool {
        self.due = now + self.retry.next_delay().max(self.every);
        self.refused.replace(code) != Some(code)
    }
}

impl Machine {
    /// Nothing is known of the server; everything is due. `seed` differs per device.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Machine {
            reach: Reach::Unknown,
            mistake: None,
            busy: false,
            hold: None,
            look: None,
            retry: [SILENT_MAX, REFUSED_MAX, NO_IDENTITY_MAX].map(|max| Backoff::new(RETRY_FIRST, max, seed)),
            config: Schedule::new(seed),
            restart: Schedule::new(seed),
            configured: None,
            wanted: RestartsWanted::default(),
            operator_restarts: None,
            unheard: true,
            handles_needs_restart: false,
            in_trouble: false,
            report_at: Mono::BOOT,
            report_refused: None,
            reported_at: None,
            batch: None,
            batch_at: Mono::BOOT,
            batch_retry: Backoff::new(RETRY_FIRST, REFUSED_MAX, seed),
            batch_refused: None,
        }
    }

    /// The only place where the state changes.
    pub fn step(&mut self, now: Mono, event: Event) -> Effects {
        let mut effects = Effects::new();
        match event {
            Event::Started(wanted) => {
                self.wanted = wanted;
                // With the second check: until then the machine server's keeper has said what was done.
                self.restart.due = now + self.restart.every;
            }
            Event::Poked => {
                (self.hold, self.look, self.config.due, self.restart.due) = (None, None, now, now);
                self.retry.iter_mut().for_each(Backoff::reset);
            }
            Event::StatusChanged => self.report_soon(now),
            Event::Updates { in_trouble } => {
                self.in_trouble = in_trouble;
                self.report_soon(now);
            }
            Event::MachineServer { operator_restarts, handles_needs_restart } => {
                self.operator_restarts = Some(operator_restarts);
                self.handles_needs_restart = handles_needs_restart;
                self.report_soon(now);
            }
            Event::Offered(batch) => {
                if batch != self.batch {
                    self.batch = batch;
                    // What holds up one batch holds up the next.
                    self.batch_at = self.batch_at.max(now);
                }
            }
            Event::Answered(answers) => {
                self.busy = false;
                self.answered(now, *answers, &mut effects);
            }
            Event::DeadlinePassed => {
                if self.look.is_some_and(|at| at <= now) {
                    self.look = Some(now + LOOK_EVERY);
                    tell(&mut effects, Effect::Look);
                }
            }
        }
        if let Some(plan) = self.plan(now) {
            self.busy = true;
            tell(&mut effects, Effect::Call(plan));
        }
        effects
    }

    /// The moment at which time alone would change something.
    #[must_use]
    pub fn deadline(&self) -> Option<Mono> {
        if self.busy {
            return None;
        }
        if let Some(hold) = self.hold {
            return Some(self.look.map_or(hold, |look| look.min(hold)));
        }
        let restart = self.may_ask().then_some(self.restart.due);
        let batch = self.batch.as_ref().map(|_| self.batch_at);
        [Some(self.config.due), restart, Some(self.report_at), batch].into_iter().flatten().min()
    }

    /// How the server can be reached.
    #[must_use]
    pub fn reach(&self) -> Reach {
        self.reach
    }

    /// What to call now, if anything is due.
    fn plan(&self, now: Mono) -> Option<Plan> {
        if self.deadline()? > now {
            return None;
        }
        let soon = |due: Mono| due <= now + TOGETHER;
        // The first call after a silence is the sign of life; what it costs to find out is paid once.
        let config = self.hold.is_some() || self.reach != Reach::Reached || soon(self.config.due);
        let restart = self.may_ask() && soon(self.restart.due);
        let report = match (soon(self.report_at), config) {
            _ if self.report_refused.is_some() && !soon(self.report_at) => Report::No,
            _ if restart && self.unheard => Report::Always,
            (true, _) if self.reported_at.is_none_or(|at| now.since(at) >= self.report_every()) => Report::Always,
            (true, _) | (false, true) => Report::IfChanged,
            (false, false) => Report::No,
        };
        Some(Plan {
            config,
            report,
            unheard: self.unheard,
            restart,
            upload: self.batch.is_some() && soon(self.batch_at),
        })
    }

    /// Whether it is the agent who asks about restarts, and none is under way.
    fn may_ask(&self) -> bool {
        !self.handles_needs_restart && self.operator_restarts.is_some_and(|done| done >= self.wanted.0)
    }

    fn report_every(&self) -> Duration {
        if self.in_trouble { REPORT_IN_TROUBLE } else { REPORT_EVERY }
    }

    fn answered(&mut self, now: Mono, answers: Answers, effects: &mut Effects) {
        let Answers { config, reported, restart, uploaded } = answers;
        let mut failure = None;
        let mut answered = false;
        match config {
            Some(Ok((fetched, every))) => {
                answered = true;
                self.config.answered(now, every);
                if !self.configured.as_ref().is_some_and(|known| known.is(&fetched)) {
                    self.configured = Some(fetched.clone());
                    tell(effects, Effect::Configure(fetched));
                }
            }
            Some(Err(CloudError::Refused { code, reason })) => {
                answered = true;
                if self.config.refused(now, code) {
                    tell(effects, Effect::Complain("the configuration", CloudError::Refused { code, reason }));
                }
            }
            Some(Err(error)) => failure = Some(error),
            None => {}
        }
        match reported {
            Some(Ok(retries)) => {
                // What it did not know is in every report.
                (answered, self.report_refused, self.unheard) = (true, None, false);
                (self.reported_at, self.report_at) = (Some(now), now + self.report_every());
                if !retries.is_empty() {
                    tell(effects, Effect::Retry(retries));
                }
            }
            Some(Err(CloudError::Refused { code, reason })) => {
                answered = true;
                (self.reported_at, self.report_at) = (Some(now), now + self.report_every());
                if self.report_refused.replace(code) != Some(code) {
                    tell(effects, Effect::Complain("the status report", CloudError::Refused { code, reason }));
                }
            }
            Some(Err(error)) => failure = failure.or(Some(error)),
            // There was nothing to tell.
            None if self.report_at <= now + TOGETHER => {
                self.report_at = self.reported_at.map_or(now, |at| at + self.report_every()).max(now + REPORT_APART);
            }
            None => {}
        }
        match restart {
            Some(Ok((must_restart, every))) => {
                answered = true;
                self.restart.answered(now, every);
                if must_restart {
                    let done = self.operator_restarts.unwrap_or_default();
                    self.wanted = RestartsWanted(self.wanted.0.max(done).saturating_add(1));
                    tell(effects, Effect::Restart(self.wanted));
                }
            }
            Some(Err(CloudError::Refused { code, reason })) => {
                answered = true;
                if self.restart.refused(now, code) {
                    tell(
                        effects,
                        Effect::Complain("the question about restarts", CloudError::Refused { code, reason }),
                    );
                }
            }
            Some(Err(error)) => {
                self.unheard = true;
                failure = failure.or(Some(error));
            }
            None => {}
        }
        match uploaded {
            Some(Ok(acknowledged)) => {
                answered = true;
                self.batch_refused = None;
                let batch = self.batch.as_ref().filter(|batch| batch.spool_id == acknowledged.spool_id);
                let (arrived, exactly) = batch.map_or((true, true), |batch| {
                    (acknowledged.number >= batch.number, acknowledged.number == batch.number)
                });
                if arrived {
                    self.batch = None;
                }
                if exactly {
                    self.batch_retry.reset();
                } else {
                    // It does not keep what it was just given, or keeps more than it can have been given: the same
                    // lines will be offered again, and not at once.
                    self.batch_at = now + self.batch_retry.next_delay();
                }
                tell(effects, Effect::Acknowledge(acknowledged));
            }
            Some(Err(CloudError::Refused { code, reason })) => {
                answered = true;
                self.batch_at = now + self.batch_retry.next_delay();
                if self.batch_refused.replace(code) != Some(code) {
                    tell(effects, Effect::Complain("the log batch", CloudError::Refused { code, reason }));
                }
            }
            Some(Err(error)) => failure = failure.or(Some(error)),
            None => {}
        }
        match failure {
            Some(error) => self.failed(now, error, effects),
            None if answered => {
                (self.hold, self.look) = (None, None);
                self.retry.iter_mut().for_each(Backoff::reset);
                self.change(Reach::Reached, None, effects);
            }
            None => {}
        }
    }

    /// A server that takes no reports is asked again now and then, not at each change.
    fn report_soon(&mut self, now: Mono) {
        if self.report_refused.is_none() {
            let apart = self.reported_at.map_or(now, |at| at + REPORT_APART);
            self.report_at = self.report_at.min((now + REPORT_SOON).max(apart));
        }
    }

    fn failed(&mut self, now: Mono, error: CloudError, effects: &mut Effects) {
        let [silent, refused, no_identity] = &mut self.retry;
        let (reach, retry) = match &error {
            CloudError::NoIdentity { .. } => (Reach::NoIdentity, no_identity),
            CloudError::CredentialsRefused { .. } => (Reach::CredentialsRefused, refused),
            CloudError::Unreachable { .. } | CloudError::Refused { .. } => (Reach::Unreachable, silent),
        };
        self.hold = Some(now + retry.next_delay());
        self.look = (reach == Reach::CredentialsRefused).then(|| now + LOOK_EVERY);
        self.change(reach, Some(error), effects);
    }

    fn change(&mut self, reach: Reach, why: Option<CloudError>, effects: &mut Effects) {
        // Somebody is working on the credentials file: what is wrong with it now is news, a network's mood is not.
        let corrected = reach == Reach::NoIdentity && self.mistake != why;
        if self.reach != reach || corrected {
            self.reach = reach;
            self.mistake = why.clone().filter(|_| reach == Reach::NoIdentity);
            tell(effects, Effect::Tell(reach, why));
        }
    }
}

fn tell(effects: &mut Effects, effect: Effect) {
    let fits = effects.push(effect).is_ok();
    debug_assert!(fits, "no step asks for more than its list holds");
}
