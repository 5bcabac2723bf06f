//! What composition could not follow: kept, bounded, and shown beside the result.

use std::fmt;

/// As many as a device reports of its own configuration; more would not be read by anybody.
const COMPLAINTS_MAX: usize = 32;
/// One sentence with an id and a path in it.
const COMPLAINT_MAX_BYTES: usize = 256;

/// One thing that was left out or ignored, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Complaint {
    /// Where: the document, and the path in it where there is one.
    pub at: String,
    /// What was found and what became of it.
    pub says: String,
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.at, self.says)
    }
}

/// Complaints being gathered; those beyond the limit are counted.
#[derive(Debug, Default)]
pub(super) struct Complaints {
    list: Vec<Complaint>,
    beyond: usize,
}

impl Complaints {
    pub(super) fn add(&mut self, at: impl Into<String>, says: impl Into<String>) {
        if self.list.len() == COMPLAINTS_MAX {
            self.beyond += 1;
            return;
        }
        self.list.push(Complaint { at: bounded(at.into()), says: bounded(says.into()) });
    }

    pub(super) fn into_list(mut self) -> Vec<Complaint> {
        if self.beyond > 0 {
            // Instead of the last one, so that the limit holds for readers that count.
            self.list.pop();
            self.list.push(Complaint {
                at: "the composed configuration".into(),
                says: format!("{} more complaints; correct these first", self.beyond + 1),
            });
        }
        self.list
    }
}

fn bounded(mut text: String) -> String {
    if text.len() > COMPLAINT_MAX_BYTES {
        let end = (0..=COMPLAINT_MAX_BYTES - 3).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
    text
}
