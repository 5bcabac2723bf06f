//! Which slot is started, and how: SEMANTICS 1.4 as one function without effects.
//!
//! ```text
//!   a version on trial   ─ 3 starts ─►  the other slot, kept
//!   a kept version       ─ 3 starts ─►  the same with --safe  ─ 3 ─►  the other one with --safe  ─ 3 ─►  from the top
//! ```
//!
//! A start counts when neither "lived" nor "stopped" was said about it. Starts that ended with the boot of the machine
//! are counted apart, up to a higher limit: power is cut without any fault of the agent, and yet a version that takes
//! the machine down must not be immortal. What cannot be executed is passed over at once.

use std::time::Duration;

use actors::{
    kit::planted::{self, Bug},
    update::slots::{Pointer, Slot},
};

use super::{
    Boot,
    starts::{Mark, NOTE_BYTES_MAX, Rung, Starts, plain},
};

/// Starts in a row without a mark, after which the next rung's turn comes.
pub const STARTS_MAX: u32 = 3;
/// The same for starts that ended with the boot.
pub const CUTS_MAX: u32 = 8;
/// Pauses before the second and the third start of a rung in the first round: what was in the way may pass.
const PAUSES: [Duration; 3] = [Duration::ZERO, Duration::from_secs(1), Duration::from_secs(2)];
/// Longest pause of later rounds: as long as a start must live to count as good. A launcher that is ended while it waits
/// begins the pause anew.
pub const PAUSE_MAX: Duration = Duration::from_secs(60);
/// Pause before each start of the second round; doubled with each further one, up to [`PAUSE_MAX`].
const PAUSE_OF_ROUND: Duration = Duration::from_secs(10);

/// What is there to decide upon.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The pointer file, or why it cannot be used.
    pub pointer: Result<Pointer, String>,
    /// The starts file, nothing if there is none, or why it cannot be used.
    pub starts: Result<Option<Starts>, String>,
    /// Why slot A and B cannot be executed.
    pub unusable: [Option<String>; 2],
    /// This boot.
    pub boot: Boot,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The slot to start.
    pub slot: Slot,
    /// Whether with `--safe`.
    pub safe: bool,
    /// How long to wait before.
    pub wait: Duration,
    /// What to store before the start. Its pointer is what the pointer file has to say, too.
    pub starts: Starts,
    /// The pointer that was found, or assumed.
    pub found: Pointer,
    /// What is wrong and was got round, for the log, in order.
    pub said: Vec<String>,
    /// For the agent, which tells people.
    pub note: Option<String>,
}

impl Seen {
    fn unusable(&self, slot: Slot) -> Option<&str> {
        let [a, b] = &self.unusable;
        match slot {
            Slot::A => a.as_deref(),
            Slot::B => b.as_deref(),
        }
    }

    fn is_usable(&self, slot: Slot) -> bool {
        self.unusable(slot).is_none()
    }
}

/// Chooses the next start; `None` when there is nothing that can be executed.
#[must_use]
pub fn choose(seen: &Seen) -> Option<Choice> {
    if !Slot::ALL.into_iter().any(|slot| seen.is_usable(slot)) {
        return None;
    }
    let mut said = Vec::new();
    let found = pointed_at(seen, &mut said);
    let mut at = history(seen, found, &mut said);
    let mut safe_because = String::new();
    // Each turn goes down one rung, to one without starts; whichever of the four comes first and can be executed ends it.
    while let Some(why) = leave(&at, seen) {
        let (usable, slot) = (seen.is_usable(at.slot().other()), at.slot());
        let to = down(&at, usable, seen.is_usable(slot));
        let sentence = format!("slot {} {why}: {}", slot.name(), going(&to, slot));
        said.push(sentence.clone());
        match to.rung {
            Rung::Usual if to.home != at.home => at = Starts { note: sentence, ..to },
            Rung::Usual => at = to,
            Rung::Safe | Rung::OtherSafe => {
                safe_because = sentence;
                at = to;
            }
        }
    }
    let (slot, safe) = (at.slot(), at.rung != Rung::Usual);
    if safe && safe_because.is_empty() {
        safe_because = format!("earlier starts of slot {} did not live: it starts with --safe", at.home.name());
    }
    let wait = pause(&at, seen);
    let note = [at.note.as_str(), if safe { &safe_because } else { "" }];
    let note: Vec<&str> = note.into_iter().filter(|part| !part.is_empty()).collect();
    let note = (!note.is_empty()).then(|| plain(&note.join("; "), NOTE_BYTES_MAX));
    // The pointer follows what is started: the agent takes its slot and overwrites the other one.
    let pointer = if slot == found.slot && at.home == found.slot { found } else { Pointer::kept(slot) };
    let counted = if planted::is(Bug::StartsUncounted) { 0 } else { 1 };
    let starts =
        Starts { pointer, starts: at.starts.saturating_add(counted), boot: seen.boot.clone(), mark: None, ..at };
    Some(Choice { slot, safe, wait, starts, found, said, note })
}

/// The pointer, or what is taken for it: the one that was followed last, or the first slot that holds something.
fn pointed_at(seen: &Seen, said: &mut Vec<String>) -> Pointer {
    let why = match &seen.pointer {
        Ok(pointer) => return *pointer,
        Err(why) => why,
    };
    let remembered = seen.starts.as_ref().ok().and_then(Option::as_ref).map(|starts| starts.pointer);
    let first = Slot::ALL.into_iter().find(|slot| seen.is_usable(*slot)).unwrap_or(Slot::A);
    let (pointer, reason) = match remembered {
        Some(pointer) => (pointer, "as at the last start"),
        None => (Pointer::kept(first), "the first that holds something"),
    };
    said.push(format!("the pointer {why}: slot {pointer} is taken, {reason}"));
    pointer
}

/// How the ladder stands for this pointer.
fn history(seen: &Seen, found: Pointer, said: &mut Vec<String>) -> Starts {
    match &seen.starts {
        Ok(Some(starts)) if starts.pointer == found && starts.mark.is_none() => {
            let mut starts = starts.clone();
            if starts.starts > 0 && starts.boot.is_before(&seen.boot) {
                starts.starts -= 1;
                starts.cuts = starts.cuts.saturating_add(1);
            }
            starts
        }
        Ok(Some(starts)) => {
            // One that was stopped at once may not have told anybody.
            let untold = starts.pointer == found && starts.mark == Some(Mark::Stopped);
            Starts { note: if untold { starts.note.clone() } else { String::new() }, ..Starts::fresh(found) }
        }
        Ok(None) if !found.trial => Starts::fresh(found),
        uncounted => {
            // Nobody knows how often a version on trial was started: it has one start left.
            let starts = if found.trial { STARTS_MAX - 1 } else { 0 };
            let why = uncounted.as_ref().err().map_or("is missing", String::as_str);
            said.push(format!("the count of starts {why}: {starts} are assumed"));
            Starts { starts, ..Starts::fresh(found) }
        }
    }
}

/// Why the rung is left; `None` to start it.
fn leave(at: &Starts, seen: &Seen) -> Option<String> {
    if let Some(why) = seen.unusable(at.slot()) {
        return Some(format!("cannot be started, {why}"));
    }
    let is_first = at.rung == Rung::Usual && at.rounds == 0;
    if at.points_at_trial() && !is_first && seen.is_usable(at.home.other()) {
        return Some("did not live on trial, and there is something to go back to again".to_owned());
    }
    let how = if at.rung == Rung::Usual { "" } else { " with --safe" };
    let lived = super::LIVED.as_secs();
    if at.starts >= STARTS_MAX {
        return Some(format!("was started{how} {} times in a row and did not live for {lived} s", at.starts));
    }
    (at.cuts >= CUTS_MAX).then(|| {
        format!("was started{how} {} times in a row and the machine went down within {lived} s of each", at.cuts)
    })
}

/// The next rung. `other` says whether the other slot than the present one can be executed, `this` the present one.
fn down(at: &Starts, other: bool, this: bool) -> Starts {
    let (home, rung, rounds) = match at.rung {
        Rung::Usual | Rung::Safe if other && at.points_at_trial() => (at.home.other(), Rung::Usual, at.rounds),
        Rung::Usual if other && !this => (at.home.other(), Rung::Usual, at.rounds),
        Rung::Usual => (at.home, Rung::Safe, at.rounds),
        Rung::Safe if other => (at.home, Rung::OtherSafe, at.rounds),
        Rung::Safe | Rung::OtherSafe => (at.home, Rung::Usual, at.rounds.saturating_add(1)),
    };
    Starts { home, rung, rounds, starts: 0, cuts: 0, ..at.clone() }
}

fn going(to: &Starts, from: Slot) -> String {
    let name = to.slot().name();
    match to.rung {
        Rung::Usual if to.slot() != from => format!("back to slot {name}"),
        Rung::Usual => format!("slot {name} is tried again"),
        Rung::Safe => "it is started with --safe".to_owned(),
        Rung::OtherSafe => format!("slot {name} is started with --safe"),
    }
}

/// How long to wait before the start.
fn pause(at: &Starts, seen: &Seen) -> Duration {
    if at.rounds > 0 {
        let doubled = PAUSE_OF_ROUND.saturating_mul(1 << (at.rounds - 1).min(8));
        return doubled.min(PAUSE_MAX);
    }
    // A new boot was pause enough.
    if at.boot.is_before(&seen.boot) {
        return Duration::ZERO;
    }
    let index = usize::try_from(at.starts).unwrap_or(usize::MAX);
    PAUSES.get(index).copied().unwrap_or_default()
}
