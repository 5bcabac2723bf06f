//! `audit`: what was changed, when and by whom.

use api::pb::platform::fleet::v1::{self as fleet, admin_service};
use clap::Subcommand;
use prost_types::Timestamp;

use crate::{
    failure::Failure,
    find,
    output::{Output, json_of},
    session::Session,
    when::moment,
};

/// What the server gives in one page.
const PAGE_MAX: u32 = 1000;

#[derive(Subcommand)]
pub(crate) enum Verb {
    /// Show changes, newest first
    List {
        /// How many
        #[arg(long, short = 'n', default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
        lines: u32,
    },
    /// Print changes as one line of JSON each, newest first, all of them unless a time is given
    Export {
        /// Not before this moment, such as 2026-11-20T09:00:00Z
        #[arg(long, value_name = "TIME")]
        since: Option<Timestamp>,
        /// Before this moment
        #[arg(long, value_name = "TIME")]
        until: Option<Timestamp>,
    },
}

pub(super) fn run(session: &Session, verb: Verb, output: &mut Output) -> Result<(), Failure> {
    let organization_id = find::organization(session, None)?.id;
    let lines = match verb {
        Verb::List { lines } => lines,
        Verb::Export { since, until } => return export(session, &organization_id, since, until, output),
    };
    let wanted = usize::try_from(lines).unwrap_or(usize::MAX);
    let (mut events, mut page_token) = (Vec::new(), String::new());
    loop {
        let missing = u32::try_from(wanted.saturating_sub(events.len())).unwrap_or(PAGE_MAX);
        let request = fleet::ListAuditEventsRequest {
            organization_id: organization_id.clone(),
            limit: missing.min(PAGE_MAX),
            page_token,
        };
        let page = session.ask("could not read the audit log", admin_service::LIST_AUDIT_EVENTS, &request)?;
        events.extend(page.events);
        page_token = page.next_page_token;
        if page_token.is_empty() || events.len() >= wanted {
            break;
        }
    }
    events.truncate(wanted);
    output.list(&events, ["when", "who", "from", "what", "on", "detail"], "Nothing was changed yet.", |one| {
        let on = format!("{} {}", one.resource_type, one.resource_id);
        [
            moment(one.when.as_ref()),
            one.actor.clone(),
            one.from_address.clone(),
            one.operation.clone(),
            on.trim().to_owned(),
            one.detail.clone(),
        ]
    })
}

/// A page in memory at a time. The server gives the newest first, so what is too new is passed over, and what is too old
/// ends it.
fn export(
    session: &Session,
    organization_id: &str,
    since: Option<Timestamp>,
    until: Option<Timestamp>,
    output: &mut Output,
) -> Result<(), Failure> {
    let order = |time: &Timestamp| (time.seconds, time.nanos);
    let mut page_token = String::new();
    loop {
        let request =
            fleet::ListAuditEventsRequest { organization_id: organization_id.to_owned(), limit: PAGE_MAX, page_token };
        let page = session.ask("could not read the audit log", admin_service::LIST_AUDIT_EVENTS, &request)?;
        for event in &page.events {
            let at = event.when.as_ref().map(order).unwrap_or_default();
            if since.as_ref().is_some_and(|since| at < order(since)) {
                return Ok(());
            }
            if until.as_ref().is_none_or(|until| at < order(until)) {
                output.json_line(&json_of(event))?;
            }
        }
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return Ok(());
        }
    }
}
