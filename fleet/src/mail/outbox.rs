//! Sends what waits, one mail after the other, and tries again what failed.

use std::{sync::Arc, sync::atomic::Ordering::Relaxed, time::Duration};

use tokio::sync::watch;

use super::{
    Mail, letter,
    smtp::{Failure, SEND_WITHIN},
};
use crate::{
    clock::Millis,
    context::Context,
    store::{
        DbError, mails,
        mails::{Due, Waiting},
    },
};

/// How often the outbox is looked at without being told: another server may have queued something, and died.
const LOOKED_AT_EVERY: Duration = Duration::from_secs(30);
/// A mail that somebody has taken is left alone for this long: longer than any attempt lasts.
const TAKEN_FOR: Duration = Duration::from_secs(2 * SEND_WITHIN.as_secs());
/// How much of a mail server's complaint is kept.
const COMPLAINT_CHARS_MAX: usize = 300;

/// Until the server stops. What is being sent then is given back; it may leave a second time.
pub async fn keep_sent(context: Arc<Context>, mut stopped: watch::Receiver<bool>) {
    let Some(mail) = &context.mail else { return };
    while !*stopped.borrow() {
        let wait = match round(&context, mail, &mut stopped).await {
            Ok(wait) => wait,
            Err(problem) => {
                tracing::warn!(%problem, "could not look at the mails that wait");
                LOOKED_AT_EVERY
            }
        };
        tokio::select! {
            _ = tokio::time::timeout(wait, mail.queued.notified()) => {}
            () = stop(&mut stopped) => {}
        }
    }
}

async fn stop(stopped: &mut watch::Receiver<bool>) {
    let _ = stopped.wait_for(|stop| *stop).await;
}

/// Sends all that is due; how long there is nothing to do.
async fn round(context: &Context, mail: &Mail, stopped: &mut watch::Receiver<bool>) -> Result<Duration, DbError> {
    loop {
        if *stopped.borrow() {
            return Ok(LOOKED_AT_EVERY);
        }
        let Waiting { count, next, oldest } = context.store.read(mails::waiting).await?;
        mail.counters.waiting.store(count, Relaxed);
        mail.counters.oldest.store(oldest.unwrap_or_default(), Relaxed);
        let now = context.clock.now();
        match next {
            Some(due) if due <= now => {}
            Some(due) => return Ok(LOOKED_AT_EVERY.min(Duration::from_millis((due - now).unsigned_abs()))),
            None => return Ok(LOOKED_AT_EVERY),
        }
        let taken = context.store.write::<_, DbError>(move |tx| mails::take(tx, now, now + millis(TAKEN_FOR))).await?;
        // Another server was faster.
        let Some(due) = taken else { continue };
        attempt(context, mail, due, stopped).await?;
    }
}

async fn attempt(context: &Context, mail: &Mail, due: Due, stopped: &mut watch::Receiver<bool>) -> Result<(), DbError> {
    let settings = &mail.settings;
    let secret = context.authn.sealer.open(&due.digest, &due.sealed);
    let written =
        secret.as_deref().and_then(|secret| letter::invitation(&due, &settings.from, &settings.address, secret).ok());
    let unsaid = |why: &str| complaint(why, &settings.told_in_confidence(secret.as_deref().unwrap_or_default()));
    let outcome = match written {
        Some(letter) => tokio::select! {
            outcome = mail.smtp.send(letter) => outcome,
            () = stop(stopped) => {
                let now = context.clock.now();
                return context.store.write(move |tx| mails::later(tx, &due.id, now)).await;
            }
        },
        None => Err(Failure::Final("it cannot be written: the address is odd, or server.key is another one".into())),
    };
    let now = context.clock.now();
    let (organization, attempt) = (&due.organization, due.attempt);
    let why = match outcome {
        Ok(()) => {
            mail.counters.sent.fetch_add(1, Relaxed);
            tracing::info!(organization, email = due.email, attempt, "an invitation was sent");
            return context.store.write(move |tx| mails::sent(tx, &due.id)).await;
        }
        Err(Failure::Passing(why)) => {
            mail.counters.failed.fetch_add(1, Relaxed);
            let wait = millis(settings.retry.after(attempt));
            if now + wait < (due.queued_at + millis(settings.retry.within)).min(due.expires_at) {
                let why = unsaid(&why);
                tracing::warn!(organization, email = due.email, attempt, why, "an invitation was not sent yet");
                return context.store.write(move |tx| mails::later(tx, &due.id, now + wait)).await;
            }
            why
        }
        Err(Failure::Final(why)) => {
            mail.counters.failed.fetch_add(1, Relaxed);
            why
        }
    };
    mail.counters.given_up.fetch_add(1, Relaxed);
    let why = unsaid(&why);
    tracing::warn!(organization, email = due.email, attempt, why, "an invitation is not sent any more: send it again");
    context.store.write(move |tx| mails::give_up(tx, &due, &why, now)).await
}

/// What a stranger said, so that it fits on a line. Filters quote the address that they do not like, and servers the login
/// that they refuse: what is secret in that is left out.
fn complaint(why: &str, secrets: &[String]) -> String {
    let hidden = secrets.iter().fold(why.to_owned(), |why, secret| why.replace(secret, "…"));
    hidden.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).take(COMPLAINT_CHARS_MAX).collect()
}

fn millis(time: Duration) -> Millis {
    Millis::try_from(time.as_millis()).unwrap_or(Millis::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mail::{Arguments, Settings};

    #[test]
    fn what_a_mail_server_repeats_of_what_it_was_told_in_confidence_is_left_out() {
        let arguments = Arguments {
            mail_server: Some("mail.example.org".into()),
            mail_from: Some("fleet@example.org".into()),
            ..Arguments::default()
        };
        let mut settings = Settings::read(&arguments, Some("https://f.example/")).unwrap().unwrap();
        settings.login = Some(("fleet".into(), api::Secret::new("pass word")));
        let secrets = settings.told_in_confidence("abc123");
        let table = [
            ("554 5.7.1 blocked: https://f.example/invite/abc123", "554 5.7.1 blocked: https://f.example/invite/…"),
            ("535 pass word is wrong", "535 … is wrong"),
            ("500 AUTH PLAIN AGZsZWV0AHBhc3Mgd29yZA== what?", "500 AUTH PLAIN … what?"),
            ("500 cGFzcyB3b3Jk what?", "500 … what?"),
            ("451 try\r\nagain", "451 try  again"),
        ];
        for (said, kept) in table {
            assert_eq!(complaint(said, &secrets), kept);
        }
    }
}
