//! What others are told: the next agent by record and note, people by report.

use api::device_config::ServerLimits;
use board::{Wall, process::Exit};

use super::{Machine, State};
use crate::server::{
    Phase, Program, Report,
    record::{Note, Record},
};

impl Machine {
    /// What the next agent must know.
    #[must_use]
    pub fn record(&self) -> Record {
        Record {
            running: self.server.as_ref().map(|server| server.recorded.clone()),
            program: self.ran.clone(),
            starts: self.starts,
            crashes: self.crashes,
            crashes_of_program: self.crashes_of_program,
            operator_restarts: self.operator_restarts,
            shut_since: self.pending.shut_since(),
        }
    }

    /// What [`Machine::record`] will say when `program` has been started now.
    #[must_use]
    pub fn note(&self, program: Program, wall: Wall, identity: u64) -> Note {
        Note {
            crashes_of_program: if self.ran.as_ref() == Some(&program) { self.crashes_of_program } else { 0 },
            program,
            started_at: wall,
            environment: self.environment,
            identity,
            starts: self.starts + 1,
            crashes: self.crashes,
            operator_restarts: self.restarts_wanted,
        }
    }

    /// See [`Report::crashes`].
    #[must_use]
    pub const fn crashes(&self) -> u64 {
        self.crashes
    }

    /// What others may know.
    #[must_use]
    pub fn report(&self) -> Report {
        let recorded = self.server.as_ref().map(|server| &server.recorded);
        Report {
            phase: match self.state {
                State::Opening { .. } | State::NoVersion => Phase::NoVersion,
                State::Disabled => Phase::Disabled,
                State::Looking { .. } => Phase::WaitingToRestart,
                State::Launching | State::Starting { .. } => Phase::Starting,
                State::Running { .. } => Phase::Running,
                State::Stopping { .. } | State::Ended => Phase::Stopping,
                State::Waiting { .. } => Phase::WaitingToRestart,
            },
            opening: self.opening,
            program: self.ran.clone(),
            process: recorded.map(|recorded| recorded.id),
            started_at: recorded.map(|recorded| recorded.started_at),
            ready_at: recorded.and_then(|recorded| recorded.ready_at),
            crashes: self.crashes,
            crashes_of_program: self.crashes_of_program,
            last_exit: self.last_exit.clone(),
            last_lines: Vec::new(),
            trouble: Vec::new(),
            restart_pending: match &self.state {
                State::Looking { foreign: Some(url), .. } => {
                    format!("not started: a program that this agent did not start answers at {url}; stop that one")
                }
                _ => self.pending.sentence(),
            },
            url: recorded.and_then(|recorded| recorded.urls.first()).cloned().unwrap_or_default(),
            operator_restarts: self.operator_restarts,
            handles_needs_restart: self.handles_needs_restart,
        }
    }
}

/// For people.
pub(super) fn describe(exit: Exit, limits: ServerLimits) -> String {
    match exit {
        Exit::OutOfMemory => match limits.memory_max_megabytes {
            Some(megabytes) => format!("killed for want of memory: memory_max_megabytes is {megabytes}"),
            None => "killed for want of memory: the machine had none left".to_owned(),
        },
        Exit::Code(code) => format!("exit code {code}"),
        Exit::Signal(signal) => match signal_name(signal) {
            "" => format!("signal {signal}"),
            name => format!("signal {signal} ({name})"),
        },
        Exit::Unknown => "ended while another agent was its parent: how is not known".to_owned(),
    }
}

const fn signal_name(signal: i32) -> &'static str {
    match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        6 => "SIGABRT",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        15 => "SIGTERM",
        _ => "",
    }
}
