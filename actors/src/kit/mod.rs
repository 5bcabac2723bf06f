//! What an actor is made of.
//!
//! An actor module exports an `Inbox` (what it hears), `Ports` (what it can do) and `run(machine, inbox, ports)`. Three
//! kinds of channel join actors, chosen by what a full one means:
//!
//! | kind | when full | for |
//! |---|---|---|
//! | [`mailbox::Mailbox`] | the sender waits | commands, down the ranks only |
//! | [`latest`] | the newest value replaces the older one | states |
//! | [`lossy`] | the oldest record is dropped and counted | log lines |
//!
//! Everything here is for one thread, except the sending end of [`lossy`], because log records come from anywhere, and
//! [`reply`], which is how a thread answers.

pub mod background;
pub mod backoff;
pub mod latest;
pub mod lossy;
pub mod mailbox;
pub mod planted;
pub mod reply;
pub mod step;
pub mod supervise;
pub mod trace;
