//! What a change of the tables leaves to be done once by the program: SQL cannot read configurations.

use crate::{
    clock::Millis,
    context::Context,
    store::{
        DbError,
        naming::{self, Kind},
    },
};

/// Notes what documents name that were stored before it was noted. Before the port is served, as the changes of the tables
/// themselves are; a second or two for a hundred thousand parts, and once.
pub async fn finish(context: &Context) -> Result<(), DbError> {
    for kind in [Kind::Part, Kind::Fragment, Kind::Organization] {
        let mut after = Some((String::new(), Millis::MIN));
        while let Some(behind) = after {
            after = context.store.write::<_, DbError>(move |tx| naming::note_older(tx, kind, &behind)).await?;
        }
    }
    Ok(())
}
