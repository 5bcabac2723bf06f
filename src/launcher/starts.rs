//! What the launcher remembers from start to start: which pointer it followed, on which rung of the ladder it stands,
//! and how many starts there did not live.
//!
//! A few lines of text with a checksum, always of the same length: on a full disk the file can then be overwritten in
//! place. The agent puts its [`Mark`] in it once it has lived, or has ended as asked.

use std::fmt::Write as _;

use actors::update::slots::{Pointer, Slot};

use super::Boot;

/// Length of the file, in bytes. Larger ones are none of ours.
pub const STARTS_BYTES: usize = 1024;
/// Longest boot id that is kept, in bytes; Linux has 36.
const BOOT_BYTES_MAX: usize = 64;
/// Longest note that is kept and passed on, in bytes: one sentence.
pub const NOTE_BYTES_MAX: usize = 400;
const HEAD: &str = "agent-starts 1 ";

/// How the ladder stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Starts {
    /// The pointer file that these numbers belong to. With another one they begin anew.
    pub pointer: Pointer,
    /// The slot at the top of the ladder.
    pub home: Slot,
    /// The rung that was started last.
    pub rung: Rung,
    /// Starts of that rung in a row that ended without a mark.
    pub starts: u32,
    /// Those of them that ended because the machine was started anew; not in `starts`.
    pub cuts: u32,
    /// How often the ladder was gone through to its end.
    pub rounds: u32,
    /// The boot of the last start.
    pub boot: Boot,
    /// What the agent said about the last start.
    pub mark: Option<Mark>,
    /// Why another slot is started than the one that was to prove itself; told to each agent until one lives.
    pub note: String,
}

/// One rung of the ladder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rung {
    /// The slot, as it is meant.
    Usual,
    /// The same slot with `--safe`.
    Safe,
    /// The other slot with `--safe`.
    OtherSafe,
}

/// What the agent says about its own start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// It has lived for [`super::LIVED`].
    Lived,
    /// It has ended because somebody asked it to, or hands over.
    Stopped,
}

const RUNGS: [(Rung, &str); 3] = [(Rung::Usual, "usual"), (Rung::Safe, "safe"), (Rung::OtherSafe, "other-safe")];
const MARKS: [(Option<Mark>, &str); 3] =
    [(None, "none"), (Some(Mark::Lived), "lived"), (Some(Mark::Stopped), "stopped")];

impl Mark {
    /// The word in the file.
    #[must_use]
    pub fn name(self) -> &'static str {
        name(&MARKS, &Some(self))
    }
}

impl Starts {
    /// Nothing has been started with this pointer.
    #[must_use]
    pub fn fresh(pointer: Pointer) -> Self {
        Starts {
            pointer,
            home: pointer.slot,
            rung: Rung::Usual,
            starts: 0,
            cuts: 0,
            rounds: 0,
            boot: Boot::default(),
            mark: None,
            note: String::new(),
        }
    }

    /// The slot of the rung.
    #[must_use]
    pub const fn slot(&self) -> Slot {
        match self.rung {
            Rung::Usual | Rung::Safe => self.home,
            Rung::OtherSafe => self.home.other(),
        }
    }

    /// Whether the ladder begins with a version that has yet to prove itself.
    #[must_use]
    pub fn points_at_trial(&self) -> bool {
        self.pointer == Pointer::trial(self.home)
    }

    /// The same with a mark. Whoever lived has the past behind it.
    #[must_use]
    pub fn marked(mut self, mark: Mark) -> Self {
        if mark == Mark::Lived {
            self = Starts { boot: self.boot, ..Starts::fresh(self.pointer) };
        }
        // Who has lived stays so, whatever comes then.
        if self.mark != Some(Mark::Lived) {
            self.mark = Some(mark);
        }
        self
    }

    /// The bytes of the file.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let Starts { pointer, home, rung, starts, cuts, rounds, boot, mark, note } = self;
        let (rung, mark) = (name(&RUNGS, rung), name(&MARKS, mark));
        let mut body = format!("pointer {pointer}\nhome {}\nrung {rung}\n", home.name());
        // Writing into a String cannot fail.
        let _ = write!(body, "starts {starts}\ncuts {cuts}\nrounds {rounds}\nmark {mark}\n");
        let _ = write!(body, "boot {}\nuptime {}\n", plain(&boot.id, BOOT_BYTES_MAX), boot.uptime_seconds);
        let _ = writeln!(body, "note {}", plain(note, NOTE_BYTES_MAX));
        let mut text = format!("{HEAD}{:016x}\n{body}", checksum(body.as_bytes()));
        text.extend(std::iter::repeat_n('\n', STARTS_BYTES.saturating_sub(text.len())));
        text.into_bytes()
    }

    /// Reads the bytes of the file; `None` for anything else.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Starts> {
        let text = std::str::from_utf8(bytes).ok()?.strip_prefix(HEAD)?;
        let (hash, body) = text.split_once('\n')?;
        let body = body.trim_end_matches('\n');
        // The one line break that belongs to it.
        let whole = [body.as_bytes(), b"\n"].concat();
        if u64::from_str_radix(hash, 16).ok()? != checksum(&whole) {
            return None;
        }
        let value = |wanted: &str| {
            body.lines().find_map(|line| {
                let (name, value) = line.split_once(' ').unwrap_or((line, ""));
                (name == wanted).then_some(value)
            })
        };
        let number = |wanted: &str| value(wanted)?.parse().ok();
        Some(Starts {
            pointer: Pointer::named(value("pointer")?)?,
            home: Slot::named(value("home")?)?,
            rung: named(&RUNGS, value("rung")?)?,
            starts: number("starts")?,
            cuts: number("cuts")?,
            rounds: number("rounds")?,
            boot: Boot { id: value("boot")?.to_owned(), uptime_seconds: value("uptime")?.parse().ok()? },
            mark: named(&MARKS, value("mark")?)?,
            note: value("note")?.to_owned(),
        })
    }
}

fn name<T: PartialEq>(table: &[(T, &'static str)], of: &T) -> &'static str {
    table.iter().find(|(value, _)| value == of).map_or("", |(_, name)| name)
}

fn named<T: Copy>(table: &[(T, &'static str)], wanted: &str) -> Option<T> {
    table.iter().find(|(_, name)| *name == wanted).map(|(value, _)| *value)
}

/// One line of at most `bytes_max` bytes, without what a terminal or an environment could not bear.
pub(super) fn plain(text: &str, bytes_max: usize) -> String {
    let mut line = String::new();
    for character in text.trim().chars() {
        let character = if character.is_control() { ' ' } else { character };
        if line.len() + character.len_utf8() > bytes_max {
            break;
        }
        line.push(character);
    }
    line.trim().to_owned()
}

/// FNV-1a: finds what a power cut tore, not what somebody meant.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}
