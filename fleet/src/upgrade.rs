//! What a change of the tables leaves to be done once by the program: SQL cannot read configurations.

use crate::{
    clock::Millis,
    context::Context,
    store::{
        DbError,
        naming::{self, Kind},
    },
};

/// How many documents are read between two lines of the log.
const TOLD_EVERY: usize = 100_000;

/// Notes what documents name that were stored before it was noted: once, before the port is served, as the changes of the
/// tables themselves are. A start that is killed meanwhile is gone through again by the next one.
pub async fn finish(context: &Context) -> Result<(), DbError> {
    let mut read = 0;
    for kind in [Kind::Part, Kind::Fragment, Kind::Organization] {
        let mut after = Some((String::new(), Millis::MIN));
        while let Some(behind) = after {
            let (next, more) =
                context.store.write::<_, DbError>(move |tx| naming::note_older(tx, kind, &behind)).await?;
            if (read + more) / TOLD_EVERY > read / TOLD_EVERY {
                tracing::info!(documents = read + more, "noting what older configurations name, once");
            }
            (after, read) = (next, read + more);
        }
    }
    if read >= TOLD_EVERY {
        tracing::info!(documents = read, "what older configurations name is noted");
    }
    Ok(())
}
