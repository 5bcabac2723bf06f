//! What the machine hears, and what it asks for.

use std::rc::Rc;

use super::{
    check::Found,
    record::Record,
    slots::{Installed, Pointer, Slot},
    target::Target,
    verify::Refusal,
    wish::Wish,
};
use crate::{
    cloud::Reach,
    server::{self, Command, Phase, Program},
    successor,
};

/// What this actor sees of the program it updates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sight {
    /// The last opening.
    pub opening: u64,
    /// What runs, or ran last.
    pub program: Option<Program>,
    /// What it is doing.
    pub phase: Phase,
    /// Times it ended unasked since that program was first started.
    pub crashes: u64,
    /// Which hand-over could not be carried out, counted, and why.
    pub refused: Option<(u64, String)>,
    /// A switch has met a shut maintenance window for very long.
    pub shut_for_long: bool,
}

impl From<&server::Report> for Sight {
    fn from(report: &server::Report) -> Self {
        Sight {
            opening: report.opening,
            program: report.program.clone(),
            phase: report.phase,
            crashes: report.crashes_of_program,
            ..Sight::default()
        }
    }
}

impl From<&successor::Report> for Sight {
    fn from(report: &successor::Report) -> Self {
        Sight {
            opening: report.opening,
            program: Some(report.program.clone()),
            phase: report.phase,
            crashes: 0,
            refused: report.refused.clone(),
            shut_for_long: report.shut_for_long,
        }
    }
}

/// What can go wrong while bytes are brought here, by what helps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Trying again soon, going on where it stopped.
    Network(String),
    /// Fetching everything afresh, later and later.
    Bytes(String),
    /// Trying again later; something on this machine has to change.
    Local(String),
}

/// What this actor hears.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The settings in force.
    Wish(Rc<Wish>),
    /// Whether the fleet server can be reached.
    Reach(Reach),
    /// The fleet server hints that something is new.
    Hint,
    /// An operator wants the versions that failed tried again; of this edition.
    Retry(u64),
    /// The program's report.
    Server(Sight),
    /// A check has ended.
    Checked(Result<Found, String>),
    /// So much of the download is here, in percent.
    Arrived(u32),
    /// All bytes are here, or not.
    Downloaded(Result<(), Trouble>),
    /// They have been judged.
    Verified(Result<Installed, VerifyTrouble>),
    /// They lie in the spare slot, or not.
    Placed(Result<(), Trouble>),
    /// The record could not be written; effects behind it in that step have not been carried out.
    NotStored(String),
    /// The agent's pointer file could not be written; effects behind it in that step have not been carried out.
    NotPointed(String),
    /// The deadline has passed.
    DeadlinePassed,
}

/// Why a judgement did not let bytes pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VerifyTrouble {
    /// They are wrong.
    Refused(Refusal),
    /// They could not be read.
    Unreadable(String),
}

/// What is to be done, in this order.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Put this on stable storage; nothing behind it is done if that fails.
    Store(Box<Record>),
    /// Say in the pointer file which slot is started; for the agent nothing behind it is done if that fails.
    Point(Pointer),
    /// Stop bringing bytes here.
    Cancel,
    /// Remove what has arrived.
    Discard,
    /// Ask which version is meant.
    Check(Rc<Wish>),
    /// Bring bytes here, going on where an earlier attempt stopped.
    Download(Box<Target>, Rc<Wish>),
    /// Judge what arrived, and unpack it.
    Verify(Box<Target>, Rc<Wish>),
    /// Move what was judged good into the slot.
    Place(Slot, Box<Installed>),
    /// Tell the program's keeper.
    Tell(Command),
}

/// The most that one step asks for: begin once more after a disk that took nothing, store, give up a walk, and start
/// another one.
pub type Effects = heapless::Vec<Effect, 16>;

/// Room for it is proven by the tests, which take every way through a step.
pub(super) fn give(effects: &mut Effects, effect: Effect) {
    let given = effects.push(effect);
    assert!(given.is_ok(), "a step asks for no more than its effects can hold");
}
