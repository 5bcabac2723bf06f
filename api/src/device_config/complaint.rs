//! What could not be accepted: by its path, what was found, what is allowed, and where it came from.
//!
//! Complaints go to logs, to the fleet server and to screens, so they are bounded, and a secret is never in one.

use super::{
    limits::{COMPLAINT_BYTES_MAX, COMPLAINTS_MAX},
    node::Place,
};
use crate::json::Position;
use std::fmt;

/// Where a value came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The manufacturer's defaults file.
    Defaults,
    /// The fleet server.
    Cloud,
}

impl Origin {
    /// As it is shown and sent.
    pub fn name(self) -> &'static str {
        match self {
            Origin::Defaults => "defaults file",
            Origin::Cloud => "cloud",
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One thing that could not be accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint {
    /// Where it came from.
    pub origin: Origin,
    /// `network_configuration.user_idle_minutes`; empty for the document as a whole.
    pub path: Box<str>,
    /// Line and column, if it came as text.
    pub position: Option<Position>,
    /// What was found: the value, or only its kind if it may be secret.
    pub found: Box<str>,
    /// What is allowed.
    pub allowed: Box<str>,
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(position) = self.position {
            write!(f, "{position}: ")?;
        }
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        write!(f, "found {}, allowed is {}", self.found, self.allowed)
    }
}

/// A value that was refused, before anybody knows its path.
#[derive(Debug)]
pub(super) struct Fault<'a> {
    /// Inside the field, such as `[1].from`.
    pub(super) inside: String,
    pub(super) place: Place<'a>,
    pub(super) found: String,
    pub(super) allowed: String,
}

impl Fault<'_> {
    /// The fault is in this part of the value.
    pub(super) fn within(mut self, part: &str) -> Self {
        self.inside = format!(".{part}{}", self.inside);
        self
    }
}

/// Complaints of one reading, bounded. Refused values come before unknown names, which may be many and harm nobody.
#[derive(Debug, Default)]
pub(super) struct Complaints {
    refused: Vec<Complaint>,
    unknown: Vec<Complaint>,
    left_out: usize,
}

impl Complaints {
    /// A value that was not accepted.
    pub(super) fn refuse(&mut self, origin: Origin, path: &str, fault: Fault<'_>) {
        if self.refused.len() == COMPLAINTS_MAX {
            self.left_out += 1;
            return;
        }
        let path = format!("{path}{}", fault.inside);
        self.refused.push(complaint(origin, &path, fault.place, &fault.found, &fault.allowed));
    }

    /// A document that was not accepted as a whole.
    pub(super) fn refuse_document(&mut self, origin: Origin, why: &str, position: Option<Position>) {
        let found = format!("a document that is not accepted: {why}");
        let allowed = "a JSON object; what was accepted before stays";
        self.refused.push(Complaint { position, ..complaint(origin, "", None, &found, allowed) });
    }

    /// A name that nobody knows.
    pub(super) fn unknown(&mut self, origin: Origin, path: &str, place: Place<'_>) {
        if self.unknown.len() == COMPLAINTS_MAX {
            self.left_out += 1;
            return;
        }
        let allowed = "a name of the reference; it is ignored";
        self.unknown.push(complaint(origin, path, place, "a setting nobody knows", allowed));
    }

    /// At most [`COMPLAINTS_MAX`], and one that counts the others.
    pub(super) fn finish(self) -> Vec<Complaint> {
        let Complaints { mut refused, unknown, mut left_out } = self;
        refused.extend(unknown);
        let origin = refused.last().map_or(Origin::Cloud, |last| last.origin);
        left_out += refused.len().saturating_sub(COMPLAINTS_MAX);
        refused.truncate(COMPLAINTS_MAX);
        if left_out > 0 {
            let found = format!("{left_out} more complaints");
            refused.push(complaint(origin, "", None, &found, &format!("{COMPLAINTS_MAX} shown at a time")));
        }
        refused
    }
}

fn complaint(origin: Origin, path: &str, place: Place<'_>, found: &str, allowed: &str) -> Complaint {
    // The sentence of what is allowed is ours and short; the path and what was found may be anything.
    const PATH_BYTES_MAX: usize = 100;
    const PATH_AND_FOUND_BYTES_MAX: usize = 156;
    let path = shown(path, PATH_BYTES_MAX);
    let found = shown(found, PATH_AND_FOUND_BYTES_MAX - path.len());
    let rest = COMPLAINT_BYTES_MAX.saturating_sub(path.len() + found.len());
    let position = place.map(|value| value.position());
    Complaint { origin, path: path.into(), position, found: found.into(), allowed: shown(allowed, rest).into() }
}

/// One line of at most `limit` bytes: what others wrote must not bend a log or a screen.
fn shown(text: &str, limit: usize) -> String {
    const CUT: &str = "…";
    let mut line = String::new();
    for character in text.chars() {
        let piece = if character.is_control() { character.escape_default().to_string() } else { character.to_string() };
        line.push_str(&piece);
        if line.len() > limit {
            let mut end = limit.saturating_sub(CUT.len());
            while !line.is_char_boundary(end) {
                end -= 1;
            }
            line.truncate(end);
            line.push_str(CUT);
            break;
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(found: &str) -> Fault<'_> {
        Fault { inside: String::new(), place: None, found: found.into(), allowed: "true or false".into() }
    }

    #[test]
    fn many_complaints_become_a_count() {
        let mut complaints = Complaints::default();
        for number in 0..100 {
            complaints.unknown(Origin::Cloud, &format!("x{number}"), None);
        }
        for number in 0..3 {
            complaints.refuse(Origin::Cloud, &format!("debug{number}"), fault("1"));
        }
        let list = complaints.finish();
        assert_eq!(list.len(), COMPLAINTS_MAX + 1);
        assert_eq!(&*list[0].path, "debug0");
        assert_eq!(&*list[3].path, "x0");
        assert_eq!(list.last().unwrap().to_string(), "found 71 more complaints, allowed is 32 shown at a time");
    }

    #[test]
    fn a_complaint_is_one_short_line() {
        let mut complaints = Complaints::default();
        complaints.refuse(Origin::Defaults, &"ä\n".repeat(1000), fault(&"\u{1b}[31m€".repeat(100)));
        let list = complaints.finish();
        let line = list[0].to_string();
        assert!(!line.contains(char::is_control), "{line}");
        let Complaint { path, found, allowed, .. } = &list[0];
        assert!(path.len() + found.len() + allowed.len() <= COMPLAINT_BYTES_MAX, "{line}");
        assert!(path.ends_with('…') && found.ends_with('…'));
    }
}
