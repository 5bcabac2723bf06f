//! `platform-fleet audit`: everything that was changed on this server, as a line of JSON each, oldest first.
//!
//! A command on the server itself: it shows what belongs to no organization too (people, their keys), and what belonged
//! to one that is gone. Owners of an organization read theirs with `platform audit`.

use std::io::{self, Write};

use prost_types::Timestamp;
use serde_json::json;

use crate::{
    clock::{Millis, millis, timestamp},
    store::{
        DbError, Store,
        audit::{self, Event},
    },
};

/// Rows that are in memory at the same time.
const PAGE: i64 = 1000;

/// Which rows.
#[derive(Debug, Clone, Default)]
pub struct Range {
    /// Of this organization only; empty is what belongs to none.
    pub organization: Option<String>,
    /// Not before this.
    pub since: Option<Timestamp>,
    /// Before this.
    pub until: Option<Timestamp>,
}

/// Why it ended early.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// See [`DbError`].
    #[error(transparent)]
    Database(#[from] DbError),
    /// Nobody reads.
    #[error("could not write the audit log")]
    Output(#[from] io::Error),
}

/// Writes them, organization by organization.
pub async fn export(store: &Store, range: &Range, to: &mut (impl Write + Send)) -> Result<(), ExportError> {
    let since = range.since.as_ref().map_or(Millis::MIN, millis);
    let until = range.until.as_ref().map_or(Millis::MAX, millis);
    let organizations = match &range.organization {
        Some(organization) => vec![organization.clone()],
        None => store.scan::<_, DbError>(audit::organizations).await?,
    };
    for organization in organizations {
        // Ids are never empty: this is before the first row of that moment.
        let mut after = (since, String::new());
        loop {
            let (of, from) = (organization.clone(), after.clone());
            let page: Vec<Event> =
                store.scan::<_, DbError>(move |tx| audit::onward(tx, &of, &from, until, PAGE)).await?;
            let Some(last) = page.last() else { break };
            after = (last.happened_at, last.id.clone());
            for event in page {
                let line = json!({
                    "when": timestamp(event.happened_at).to_string(), "organization_id": organization,
                    "who": event.actor, "from": event.from_address, "operation": event.operation,
                    "resource_type": event.resource_type, "resource_id": event.resource_id, "detail": event.detail,
                });
                writeln!(to, "{line}")?;
            }
        }
    }
    Ok(to.flush()?)
}
