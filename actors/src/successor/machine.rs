//! Decides when this process makes way for another version of itself.

use std::{path::PathBuf, time::Duration};

use board::{Mono, Wall};

use super::{Leave, Report};
use crate::{
    maintenance::{WindowState, gate::Gate},
    server::{Command, Phase, Program},
};

/// Minutes until a hand-over that could not be carried out is tried again.
const RETRY_MINUTES: u32 = 10;
/// While a version has to prove itself its actors are looked at this often.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// What the machine hears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// From the update actor.
    Command(Command),
    /// The present version is on probation, or not.
    OnTrial(bool),
    /// The settings have changed.
    Settings,
    /// A hand-over could not be carried out.
    Refused(String),
    /// The deadline has passed.
    DeadlinePassed,
}

/// What is so at the moment of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Time.
    pub mono: Mono,
    /// The wall clock.
    pub wall: Wall,
    /// The maintenance window; `None` when none is configured.
    pub window: Option<WindowState>,
    /// Every actor is alive.
    pub alive: bool,
}

/// What another version waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Wish {
    /// None is wanted.
    None,
    /// This one, as soon as nothing speaks against it.
    Switch(PathBuf),
    /// The update actor was told that nothing speaks against it, and answers.
    Opened,
    /// The present version has failed.
    Back,
    /// The hand-over is under way.
    Leaving,
}

/// The decisions for this process.
pub struct Machine {
    own: Program,
    minute: Duration,
    opening: u64,
    wish: Wish,
    /// Hand-overs begun.
    leaves: u64,
    on_trial: bool,
    alive: bool,
    gate: Gate,
    refused: Option<(u64, String)>,
    /// Nothing is handed over before this.
    retry: Option<Mono>,
    /// A shut window, or an actor, is looked at again then.
    look: Option<Mono>,
}

fn retry_at(now: Mono, minute: Duration) -> Mono {
    now + minute.saturating_mul(RETRY_MINUTES)
}

impl Machine {
    /// For the program that this process is. `minute` is the length of a minute; `--dev-mode` may shorten it.
    #[must_use]
    pub fn new(own: Program, minute: Duration) -> Self {
        Machine {
            own,
            minute,
            opening: 0,
            wish: Wish::None,
            leaves: 0,
            on_trial: false,
            alive: true,
            gate: Gate::default(),
            refused: None,
            retry: None,
            look: None,
        }
    }

    /// The process before this one was this very program, and could not hand over for this reason: it is tried later.
    #[must_use]
    pub fn after_refusal(self, now: Mono, reason: String) -> Self {
        Machine { refused: Some((0, reason)), retry: Some(retry_at(now, self.minute)), ..self }
    }

    /// The only place where anything changes. What comes back has to be carried out by whoever can end this process.
    pub fn step(&mut self, now: Now, event: Event) -> Option<Leave> {
        self.alive = now.alive;
        match event {
            Event::Command(command) => self.told(command),
            Event::OnTrial(on_trial) => self.on_trial = on_trial,
            Event::Refused(reason) => {
                if self.wish == Wish::Leaving {
                    // The update actor says again what it wants.
                    self.wish = Wish::None;
                    self.refused = Some((self.leaves, reason));
                    self.retry = Some(retry_at(now.mono, self.minute));
                }
            }
            Event::Settings | Event::DeadlinePassed => {}
        }
        self.retry = self.retry.filter(|at| *at > now.mono);
        let shut = now.window.filter(|window| !window.open && matches!(self.wish, Wish::Switch(_)));
        self.look = self.gate.look(now.mono, now.wall, shut);
        if self.on_trial {
            let soon = now.mono + LOOK_EVERY;
            self.look = Some(self.look.map_or(soon, |at| at.min(soon)));
        }
        if self.retry.is_some() {
            return None;
        }
        match self.wish {
            Wish::Switch(_) if shut.is_none() => {
                self.opening += 1;
                self.wish = Wish::Opened;
                None
            }
            Wish::Back => Some(self.leave()),
            Wish::None | Wish::Switch(_) | Wish::Opened | Wish::Leaving => None,
        }
    }

    /// The moment at which time alone would change something.
    #[must_use]
    pub fn deadline(&self) -> Option<Mono> {
        let retry = self.retry.filter(|_| matches!(self.wish, Wish::Switch(_) | Wish::Back));
        [retry, self.look].into_iter().flatten().min()
    }

    /// For the update actor.
    #[must_use]
    pub fn report(&self) -> Report {
        Report {
            opening: self.opening,
            program: self.own.clone(),
            phase: if self.alive { Phase::Running } else { Phase::Starting },
            refused: self.refused.clone(),
            shut_for_long: self.gate.is_shut_for_long(),
        }
    }

    fn told(&mut self, command: Command) {
        if self.wish == Wish::Leaving {
            return;
        }
        match command {
            Command::Switch { program } | Command::Back { program } if program.path == self.own.path => {
                self.wish = Wish::None;
            }
            Command::Switch { program } => self.wish = Wish::Switch(program.path),
            Command::Back { .. } => self.wish = Wish::Back,
            Command::Run { opening, program } if opening == self.opening && self.wish == Wish::Opened => {
                let another = program.is_some_and(|program| program.path != self.own.path);
                self.wish = if another { Wish::Back } else { Wish::None };
            }
            Command::Run { .. } | Command::Hold { .. } => {}
        }
    }

    fn leave(&mut self) -> Leave {
        self.wish = Wish::Leaving;
        self.refused = None;
        self.leaves += 1;
        Leave(self.leaves)
    }
}
