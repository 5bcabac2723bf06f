//! Mails to people: invitations, by SMTP.
//!
//! Owns what is written (`letter.rs`), how it leaves (`smtp.rs`) and when (`outbox.rs`). What waits is in the database,
//! written with the invitation itself. The link in a mail is a secret: it is in the outbox sealed, in the mail, and
//! nowhere else.

mod letter;
mod outbox;
mod settings;
mod smtp;

use std::{
    fmt::Write,
    sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed},
};

use tokio::sync::Notify;

pub use outbox::keep_sent;
pub use settings::{Arguments, MailArgumentError, Retry, Security, Settings};
pub use smtp::MailSetupError;

use crate::{
    authn::{Sealer, digest_of},
    clock::Millis,
    ids,
    store::invites::Door,
};

/// Sends mails, if a mail server is configured.
pub struct Mail {
    settings: Settings,
    smtp: smtp::Smtp,
    /// Something was queued on this server; what other servers queue is found by looking.
    queued: Notify,
    counters: Counters,
}

#[derive(Default)]
struct Counters {
    sent: AtomicU64,
    failed: AtomicU64,
    given_up: AtomicU64,
    /// When it was looked at last.
    waiting: AtomicI64,
    /// When the oldest of them was queued; 0 if none waits.
    oldest: AtomicI64,
}

impl Mail {
    /// Reads certificates; nothing is sent yet.
    pub fn new(settings: Settings) -> Result<Self, MailSetupError> {
        let smtp = smtp::Smtp::new(&settings)?;
        Ok(Self { settings, smtp, queued: Notify::new(), counters: Counters::default() })
    }

    /// A new link and the mail that brings it.
    pub fn door(&self, sealer: &Sealer) -> Door {
        let secret = ids::new_secret();
        let digest = digest_of(&secret);
        Door::Link { mail: Some(sealer.seal(&digest, &secret)), digest }
    }

    /// A mail was queued, and its transaction is over.
    pub fn wake(&self) {
        self.queued.notify_one();
    }

    /// Counters, as Prometheus reads them.
    pub fn metrics(&self, page: &mut String, now: Millis) {
        let Counters { sent, failed, given_up, waiting, oldest } = &self.counters;
        let oldest = match oldest.load(Relaxed) {
            0 => 0,
            oldest => (now - oldest).max(0) / 1000,
        };
        let lines = [
            ("fleet_mails_sent_total", "counter", sent.load(Relaxed).to_string()),
            ("fleet_mail_attempts_failed_total", "counter", failed.load(Relaxed).to_string()),
            ("fleet_mails_given_up_total", "counter", given_up.load(Relaxed).to_string()),
            ("fleet_mails_waiting", "gauge", waiting.load(Relaxed).to_string()),
            ("fleet_mails_oldest_waiting_seconds", "gauge", oldest.to_string()),
        ];
        for (name, kind, value) in lines {
            // Writing into a string cannot fail.
            let _ = writeln!(page, "# TYPE {name} {kind}\n{name} {value}");
        }
    }
}
