//! May the machine server be restarted now? What its answer to `GET /restart_status` means.
//!
//! The answer is `{"restart_allowed": bool, "does_not_handle_needs_restart": bool}`. A server that does not know the
//! question (404) does not mind. Silence, an error or nonsense is not a yes: how long it is respected is decided by
//! the machine.

use api::json::{self, Limits};
use board::fetch::Reply;

/// Longest answer that is read, in bytes.
pub const ANSWER_BYTES_MAX: usize = 4096;
/// The question, behind the address.
pub const PATH: &str = "/restart_status";

/// What it says about being restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// Go ahead.
    Allowed,
    /// Not now.
    Refused,
    /// Nobody answered, or with something that is no answer.
    Silent,
}

/// The result of asking.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The address that answered; whoever answers is up, whatever it says.
    pub from: Option<String>,
    /// What it says.
    pub word: Word,
    /// Whether it asks the fleet server itself if it shall restart; `None` when it did not say.
    pub handles_needs_restart: Option<bool>,
}

impl Answer {
    /// Nobody answered.
    pub const SILENCE: Answer = Answer { from: None, word: Word::Silent, handles_needs_restart: None };

    /// Reads what came from `from`.
    #[must_use]
    pub fn read(from: &str, reply: &Reply) -> Answer {
        let answered =
            |word, handles_needs_restart| Answer { from: Some(from.to_owned()), word, handles_needs_restart };
        match reply.status {
            404 => answered(Word::Allowed, Some(false)),
            200..300 => {
                let Ok(root) = json::parse(&reply.body, Limits { bytes: ANSWER_BYTES_MAX, ..Limits::SMALL }) else {
                    return answered(Word::Silent, None);
                };
                let flag = |name| root.get(name).and_then(|value| value.as_bool());
                let word = match flag("restart_allowed") {
                    Some(true) => Word::Allowed,
                    Some(false) => Word::Refused,
                    None => Word::Silent,
                };
                // The name says it: who does not deny it, handles it.
                answered(word, Some(!flag("does_not_handle_needs_restart").unwrap_or(false)))
            }
            // It is up and minds something about the question.
            400..500 => answered(Word::Silent, None),
            _ => Answer::SILENCE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_clear_yes_is_a_yes() {
        let up = Some("http://x".to_owned());
        let table = [
            // status, body, up, word, handles
            (
                200,
                r#"{"restart_allowed": true, "does_not_handle_needs_restart": true}"#,
                true,
                Word::Allowed,
                Some(false),
            ),
            (
                200,
                r#"{"restart_allowed": false, "does_not_handle_needs_restart": false}"#,
                true,
                Word::Refused,
                Some(true),
            ),
            (200, r#"{"restart_allowed": true}"#, true, Word::Allowed, Some(true)),
            (200, r#"{"restart_allowed": "yes"}"#, true, Word::Silent, Some(true)),
            (200, "{}", true, Word::Silent, Some(true)),
            (200, "<html>{\"restart_allowed\": true</html>", true, Word::Silent, None),
            (404, "no such page", true, Word::Allowed, Some(false)),
            (403, "only from this host", true, Word::Silent, None),
            (500, r#"{"restart_allowed": true}"#, false, Word::Silent, None),
            (503, "starting", false, Word::Silent, None),
            (302, "", false, Word::Silent, None),
        ];
        for (status, body, is_up, word, handles_needs_restart) in table {
            let answer = Answer::read("http://x", &Reply { status, body: body.as_bytes().to_vec() });
            let from = up.clone().filter(|_| is_up);
            assert_eq!(answer, Answer { from, word, handles_needs_restart }, "{status} {body}");
        }
        let long = format!(r#"{{"restart_allowed": true, "x": "{}"}}"#, "x".repeat(ANSWER_BYTES_MAX));
        assert_eq!(Answer::read("http://x", &Reply { status: 200, body: long.into_bytes() }).word, Word::Silent);
    }
}
