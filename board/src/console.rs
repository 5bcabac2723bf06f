//! Questions that somebody at the device asks the running agent.
//!
//! Whoever can ask is on this machine and has the agent's own rights: the port sees to that. One question is heard at a
//! time and each has one answer; the next asker waits. Nobody who asks holds the agent up: one who says nothing, never
//! ends the line or does not read the answer is let go after a limit.

use std::time::Duration;

use async_trait::async_trait;

/// Longest question that is heard, in bytes; of a longer one only this much.
pub const QUESTION_BYTES_MAX: usize = 64;
/// Longest answer, in bytes: twice what a whole status can have.
pub const ANSWER_BYTES_MAX: usize = 128 * 1024;
/// How long an asker may take for the question.
pub const ASKING_TAKES_MAX: Duration = Duration::from_secs(2);
/// How long an asker may take to read the answer.
pub const READING_TAKES_MAX: Duration = Duration::from_secs(5);

/// A question that waits for its answer; dropping it ends the conversation without one.
#[async_trait(?Send)]
pub trait Question {
    /// The words, without the line break; what is not UTF-8 is replaced.
    fn words(&self) -> &str;

    /// Gives the answer and ends the conversation. Resolves when the asker has it, or after [`READING_TAKES_MAX`].
    /// An answer longer than [`ANSWER_BYTES_MAX`] is not given.
    async fn answer(self: Box<Self>, answer: &[u8]);
}

/// The place where questions arrive.
#[async_trait(?Send)]
pub trait Console {
    /// The next question. Stays pending for as long as nobody asks, also when nobody could.
    async fn next(&self) -> Box<dyn Question>;
}
