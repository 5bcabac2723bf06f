//! Hears what other servers announce: LISTEN on a connection of its own, on a thread that does nothing else.
//!
//! A wake-up, never the truth: while there is no such connection (the database restarts, a pooler in between does not
//! know LISTEN) nothing is heard, and who waits looks by itself every half second. After connecting again everybody is
//! woken once, because something may have been missed. The channel is named after the schema; there is no payload.

use std::{
    future::{pending, poll_fn},
    io,
    sync::{Arc, Weak},
    thread,
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::watch,
};
use tokio_postgres::AsyncMessage;

use super::{
    Gone, Live, Server, fault, gate,
    socket::{Socket, Wire},
};

/// How soon the thread notices that its database was closed.
const TURN: Duration = Duration::from_secs(1);
/// Between two attempts to connect. Apart from the other connections' gate: they have work to do, this one has not.
const PAUSE: Duration = Duration::from_secs(1);

/// Wakes `changed` for every announcement, until nobody has the database open any more.
pub(in super::super) fn listen(server: Arc<Server>, changed: Weak<watch::Sender<u64>>) -> io::Result<()> {
    let work = move || {
        let mut warned = false;
        // Each round is one connection.
        while changed.strong_count() > 0 {
            match hear_until_lost(&server, &changed) {
                Ok(()) => return,
                Err(Ended { why, heard }) => {
                    warned &= !heard;
                    if !warned {
                        tracing::warn!(database = %server.address, why, "not woken by other servers: looking by itself");
                        warned = true;
                    }
                    thread::sleep(PAUSE);
                }
            }
        }
    };
    thread::Builder::new().name("store-listener".into()).spawn(work).map(drop)
}

/// Why a connection is of no use any more.
struct Ended {
    why: String,
    /// It was, before.
    heard: bool,
}

/// `Ok` when the database was closed here.
fn hear_until_lost(server: &Server, changed: &Weak<watch::Sender<u64>>) -> Result<(), Ended> {
    let lost = |heard| move |why| Ended { why, heard };
    let wake = {
        let changed = changed.clone();
        move || {
            if let Some(changed) = changed.upgrade() {
                changed.send_modify(|count| *count += 1);
            }
        }
    };
    let on_message = {
        let wake = wake.clone();
        move |_: &str| wake()
    };
    let Live { client, mut line, .. } = server.connect_and(on_message).map_err(lost(false))?;
    let listening = line.run(gate::ATTEMPT_WITHIN, client.batch_execute(&format!("LISTEN {}", server.schema)));
    match listening {
        Ok(Ok(())) => {}
        Ok(Err(why)) => return Err(lost(false)(fault::sentence(&why))),
        Err(gone) => return Err(lost(false)(fault::of_gone(&gone))),
    }
    wake();
    loop {
        match line.run(TURN, pending::<()>()) {
            Ok(()) | Err(Gone::Late) => {}
            Err(gone) => return Err(lost(true)(fault::of_gone(&gone))),
        }
        // It may have ended in the very turn that answered LISTEN.
        if line.wire.is_none() {
            return Err(lost(true)("it was closed".to_owned()));
        }
        if changed.strong_count() == 0 {
            return Ok(());
        }
    }
}

/// The driver's half of a connection, which tells of notifications where the driver itself would drop them.
pub(super) fn wire<T>(
    mut connection: tokio_postgres::Connection<Socket, T>,
    hear: impl Fn(&str) + Send + 'static,
) -> Wire
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    Box::pin(async move {
        while let Some(message) = poll_fn(|cx| connection.poll_message(cx)).await {
            match message? {
                AsyncMessage::Notification(notification) => hear(notification.channel()),
                AsyncMessage::Notice(notice) => tracing::debug!(notice = notice.message(), "the database says"),
                _ => {}
            }
        }
        Ok(())
    })
}
