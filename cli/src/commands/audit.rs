//! `audit`: what was changed, when and by whom.

use api::pb::platform::fleet::v1::{self as fleet, admin_service};
use clap::Subcommand;

use crate::{failure::Failure, find, output::Output, session::Session, when::moment};

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
}

pub(super) fn run(session: &Session, verb: Verb, output: &mut Output) -> Result<(), Failure> {
    let Verb::List { lines } = verb;
    let organization_id = find::organization(session, None)?.id;
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
