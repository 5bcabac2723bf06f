//! What a change of the tables leaves to be done once by the program: SQL cannot read configurations.

use crate::{
    context::Context,
    store::{DbError, registry_users},
};

/// Notes which registry items the configurations name that were stored before there was a registry. Before the port is
/// served, as the changes of the tables themselves are; a second or two for a hundred thousand parts, and once.
pub async fn finish(context: &Context) -> Result<(), DbError> {
    for kind in ["part", "fragment"] {
        let mut after = Some(String::new());
        while let Some(id) = after {
            after = context.store.write::<_, DbError>(move |tx| registry_users::note_older(tx, kind, &id)).await?;
        }
    }
    Ok(())
}
