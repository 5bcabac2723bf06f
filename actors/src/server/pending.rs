//! A restart that is wanted, and what it still waits for.
//!
//! Four wishes: an operator's, another identity, another version, another environment. The last two wait for the
//! maintenance window and for the machine server's word; the first two wait for the word only, and not for ever: somebody
//! marked the device, or gave it to another owner. So does the way back from a
//! version that has failed: until the window opens it would go on failing. A machine server that says no is respected;
//! one that says nothing is respected for a while. Owns that reasoning; stopping and starting is the machine's.

use std::time::Duration;

use board::{Mono, Wall};

use super::{Program, WindowState, machine::Now, permission::Word};
use crate::maintenance::gate::Gate;

/// How long whom is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// A machine server that does not answer is taken to agree after this.
    pub with_silence: Duration,
    /// An operator's restart happens at the latest after this.
    pub of_operator: Duration,
    /// The machine server is asked again after this.
    pub ask_again: Duration,
}

/// Who must agree, from the settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// The maintenance window now; `None` when none is configured.
    pub window: Option<WindowState>,
    /// The machine server's word counts.
    pub word_counts: bool,
}

/// What the machine server is doing, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Situation {
    /// It can be asked.
    Ready,
    /// It cannot be asked yet.
    NotReady,
    /// It cannot be asked yet, and has failed before: nothing is lost by another version.
    Faltering,
    /// It does not run, and will be started soon.
    Dead,
    /// It stands still, or is about to.
    Settled,
}

/// What follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing to do now.
    Wait,
    /// Ask the machine server.
    Ask,
    /// Restart it and run what is to run.
    Restart,
    /// Restart it, and let another version in without asking: an operator wants it.
    Open,
}

/// The wishes.
#[derive(Debug, Default)]
pub struct Pending {
    /// An operator wants a restart, since then.
    pub operator: Option<Mono>,
    /// The device has another identity than the one that it was started with, since then.
    pub identity: Option<Mono>,
    /// This is to run.
    pub switch: Option<Program>,
    /// That is the way back from a version that has failed.
    pub back: bool,
    /// It runs with another environment than the configured one.
    pub environment: bool,
    word: Option<Word>,
    permitted: bool,
    silent_since: Option<Mono>,
    ask_at: Option<Mono>,
    gate: Gate,
    /// When this is to be thought about again.
    until: Option<Mono>,
}

impl Pending {
    /// Whether there is any wish.
    #[must_use]
    pub fn any(&self) -> bool {
        self.asked().is_some() || self.switch.is_some() || self.environment
    }

    /// Since when somebody wants it who does not wait for a window.
    fn asked(&self) -> Option<Mono> {
        [self.operator, self.identity].into_iter().flatten().min()
    }

    /// Nothing is wanted yet; the window may have been shut since then ([`Pending::shut_since`]).
    #[must_use]
    pub fn resume(shut_since: Option<Wall>) -> Self {
        Pending { gate: Gate::resume(shut_since), ..Pending::default() }
    }

    /// All wishes are granted by the start that just happened.
    pub fn granted(&mut self) {
        let mut gate = std::mem::take(&mut self.gate);
        gate.leave();
        *self = Pending { gate, ..Pending::default() };
    }

    /// Since when something has waited for a shut window, for the next agent.
    #[must_use]
    pub fn shut_since(&self) -> Option<Wall> {
        self.gate.since()
    }

    /// The process that was asked is gone; what it said counts no longer.
    pub fn forget_words(&mut self) {
        (self.word, self.permitted, self.silent_since, self.ask_at, self.until) = (None, false, None, None, None);
    }

    /// The machine server was asked, and this is what it said.
    pub fn answered(&mut self, now: Mono, word: Word, patience: &Patience) {
        if !self.any() {
            return;
        }
        self.word = Some(word);
        self.ask_at = Some(now + patience.ask_again);
        self.permitted = match word {
            Word::Allowed => true,
            Word::Refused => {
                self.silent_since = None;
                false
            }
            Word::Silent => now.since(*self.silent_since.get_or_insert(now)) >= patience.with_silence,
        };
    }

    /// What follows from everything that is known. `asking`: an answer is on its way.
    pub fn decide(
        &mut self,
        now: Now,
        situation: Situation,
        rules: Rules,
        patience: &Patience,
        asking: bool,
    ) -> Verdict {
        self.until = None;
        // A yes is for now, not for the next window.
        let permitted = std::mem::take(&mut self.permitted);
        if !self.any() {
            self.granted();
            return Verdict::Wait;
        }
        let back = self.back && self.switch.is_some();
        let shut = rules.window.filter(|window| !window.open && !back);
        self.until = self.gate.look(now.mono, now.wall, shut);
        let asked = self.asked();
        let latest = asked.map(|since| since + patience.of_operator);
        match situation {
            Situation::Settled => Verdict::Wait,
            Situation::Dead if asked.is_some() => Verdict::Open,
            Situation::Dead if self.switch.is_some() && shut.is_none() => Verdict::Restart,
            Situation::Dead => Verdict::Wait,
            _ if latest.is_some_and(|latest| latest <= now.mono) => Verdict::Open,
            Situation::Faltering if self.switch.is_some() && shut.is_none() => Verdict::Restart,
            Situation::NotReady if back => Verdict::Restart,
            Situation::NotReady | Situation::Faltering => self.wait(latest),
            Situation::Ready if asked.is_none() && shut.is_some() => Verdict::Wait,
            Situation::Ready if permitted || !(rules.word_counts || asked.is_some()) => {
                if asked.is_some() {
                    Verdict::Open
                } else {
                    Verdict::Restart
                }
            }
            Situation::Ready if asking => self.wait(latest),
            Situation::Ready if self.ask_at.is_none_or(|at| at <= now.mono) => {
                self.ask_at = None;
                self.wait(latest);
                Verdict::Ask
            }
            Situation::Ready => self.wait([latest, self.ask_at].into_iter().flatten().min()),
        }
    }

    /// When to decide again, if nothing happens before.
    #[must_use]
    pub fn deadline(&self) -> Option<Mono> {
        self.until
    }

    fn wait(&mut self, until: Option<Mono>) -> Verdict {
        self.until = [self.until, until].into_iter().flatten().min();
        Verdict::Wait
    }

    /// For people: what is wanted and what it waits for; empty when nothing is.
    #[must_use]
    pub fn sentence(&self) -> String {
        let wish = match self {
            Pending { operator: Some(_), .. } => "an operator asked for a restart".to_owned(),
            Pending { identity: Some(_), .. } => "this device has another identity".to_owned(),
            Pending { switch: Some(program), back: true, .. } => {
                format!("the present version has failed, and version {} is to run", program.version)
            }
            Pending { switch: Some(program), .. } => format!("version {} is to run", program.version),
            Pending { environment: true, .. } => "its environment has changed".to_owned(),
            _ => return String::new(),
        };
        let waits = match (self.asked(), self.gate.sentence(), self.word) {
            (None, Some(shut), _) => shut,
            (_, _, Some(Word::Refused)) => "the machine server does not allow a restart now",
            (_, _, Some(Word::Silent)) => "the machine server does not say whether it may be restarted",
            _ => "waiting for the machine server's permission",
        };
        format!("{wish}; {waits}")
    }
}
