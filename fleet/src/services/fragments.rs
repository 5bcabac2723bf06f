//! Fragments: pieces of configuration that many parts share.

use api::pb::platform::app::v1::{
    CreateFragmentRequest, CreateFragmentResponse, DeleteFragmentRequest, DeleteFragmentResponse, Fragment as Message,
    FragmentHistoryEntry, FragmentRevision, FragmentUsage, FragmentVisibility, GetFragmentHistoryRequest,
    GetFragmentHistoryResponse, GetFragmentRequest, GetFragmentResponse, ListFragmentsRequest, ListFragmentsResponse,
    UpdateFragmentRequest, UpdateFragmentResponse,
};

use super::{
    input,
    parts::{HISTORY_BYTES_MAX, edited_by},
};
use crate::{
    authn::{Caller, Who},
    authz::{Granted, Permission, Permissions, Target, right},
    clock::{Millis, millis, timestamp},
    context::Context,
    documents, ids,
    limits::{FRAGMENT_HISTORY_PAGE_DEFAULT, FRAGMENT_HISTORY_PAGE_MAX},
    refusal::Refusal,
    store::{
        DbError,
        fragment_users::{self, Usage},
        fragments::{self, Change, PRIVATE, PUBLIC, Reader, Revision, Stored, Visibility},
    },
};

/// Revisions shown with a fragment; the history has the rest.
const REVISIONS_SHOWN: i64 = 100;

/// CreateFragment: private unless asked otherwise.
pub async fn create(
    context: &Context,
    caller: Caller,
    request: CreateFragmentRequest,
) -> Result<CreateFragmentResponse, Refusal> {
    let organization = request.organization_id;
    let granted = context.authz.organization::<right::WriteFragment>(&caller, &organization).await?;
    let name = input::name("name", &request.name)?;
    let config = request.config.map(|config| documents::to_text("config", &config)).transpose()?;
    let config = config.unwrap_or_else(|| "{}".to_owned());
    let visibility = request.visibility.filter(|given| *given != 0).map(visibility).transpose()?.unwrap_or(PRIVATE);
    let (id, now) = (ids::new_id(), context.clock.now());
    let created = context.store.write::<_, Refusal>(move |tx| {
        let new = fragments::New { id: &id, name: &name, config: &config, visibility };
        fragments::create(tx, &granted, &new, now)?;
        Ok((
            fragments::get(tx, &id)?.ok_or_else(|| Refusal::not_found("fragment", &id))?,
            fragment_users::usage(tx, &id)?,
        ))
    });
    let (stored, usage) = created.await?;
    Ok(CreateFragmentResponse { fragment: Some(message(stored, usage, true)) })
}

/// GetFragment, in its present form or in the revision that is asked for.
pub async fn get(
    context: &Context,
    caller: Caller,
    request: GetFragmentRequest,
) -> Result<GetFragmentResponse, Refusal> {
    let Readable { mut stored, writes, reader } = readable(context, &caller, &request.id).await?;
    input::printable("version", request.version.as_deref().unwrap_or_default())?;
    let (id, wanted) = (stored.id.clone(), request.version.filter(|version| !version.is_empty()));
    // Machines are counted for who may look at the organization.
    let current = Some(request.current_organization_id).filter(|id| ids::is_id(id));
    let held = match &current {
        Some(id) => context.authz.permissions(&caller, Target::Organization, id).await?.unwrap_or_default(),
        None => Permissions::NONE,
    };
    let current = current.filter(|_| held.contains(Permission::ReadOrganization));
    let found = context.store.scan::<_, Refusal>(move |tx| {
        let missing = |wanted: &str| Refusal::not_found("revision of that fragment", wanted);
        let named =
            |wanted: String| fragments::revision_named(tx, &id, &wanted, reader)?.ok_or_else(|| missing(&wanted));
        let revision = wanted.map(named).transpose()?;
        let revisions = fragments::revision_names(tx, &id, reader, REVISIONS_SHOWN)?;
        let here = current.map(|current| fragment_users::machines_in(tx, &id, &current)).transpose()?;
        Ok((revision, revisions, fragment_users::usage(tx, &id)?, here.unwrap_or_default()))
    });
    let (wanted, revisions, usage, here) = found.await?;
    if let Some(revision) = wanted {
        stored.config = revision.config;
        stored.revision = revision.revision;
        stored.updated_at = revision.made_at;
    }
    let fragment_usage = FragmentUsage {
        fragment_id: stored.id.clone(),
        organizations: count(usage.organizations),
        machines: count(usage.machines),
        machines_in_current_org: count(here),
        version: None,
    };
    let revisions = revisions
        .into_iter()
        .map(|(revision, made_at)| FragmentRevision { revision, created_at: Some(timestamp(made_at)) });
    Ok(GetFragmentResponse {
        fragment_usage: Some(fragment_usage),
        revisions: revisions.collect(),
        tags: Vec::new(),
        fragment: Some(message(stored, usage, writes)),
    })
}

/// ListFragments. A list of visibilities decides; without one, `show_public` true means public only, false
/// private only: who wants unlisted ones names them.
pub async fn list(
    context: &Context,
    caller: Caller,
    request: ListFragmentsRequest,
) -> Result<ListFragmentsResponse, Refusal> {
    let organization = request.organization_id;
    let granted = context.authz.organization::<right::ReadFragment>(&caller, &organization).await?;
    let mut wanted: Vec<i64> = Vec::new();
    for one in &request.fragment_visibility {
        wanted.push(visibility(*one)?);
    }
    if wanted.is_empty() {
        wanted = vec![if request.show_public { PUBLIC } else { PRIVATE }];
    }
    let writes = granted.permissions().contains(Permission::WriteFragment);
    let found = context.store.scan::<_, DbError>(move |tx| {
        let mut found = fragments::of_organization(tx, granted.id())?;
        if wanted.contains(&PUBLIC) {
            found.extend(fragments::public_elsewhere(tx, granted.id())?);
        }
        found.retain(|fragment| wanted.contains(&fragment.visibility));
        let with_usage = |stored: Stored| {
            let usage = fragment_users::usage(tx, &stored.id)?;
            let own = stored.organization == granted.id();
            Ok(message(stored, usage, own && writes))
        };
        found.into_iter().map(with_usage).collect::<Result<Vec<_>, DbError>>()
    });
    Ok(ListFragmentsResponse { fragments: found.await?, fragment_usages: Vec::new() })
}

/// UpdateFragment. Every change makes a revision; parts that name no revision follow it.
pub async fn update(
    context: &Context,
    caller: Caller,
    request: UpdateFragmentRequest,
) -> Result<UpdateFragmentResponse, Refusal> {
    let granted = writable(context, &caller, &request.id).await?;
    let name = Some(input::name("name", &request.name)?);
    let config = match (request.fragment_config_json.filter(|text| !text.is_empty()), request.config) {
        (Some(text), _) => {
            documents::checked("fragment_config_json", &text)?;
            Some(text)
        }
        (None, Some(config)) => Some(documents::to_text("config", &config)?),
        (None, None) => None,
    };
    let given = request.visibility.filter(|visibility| *visibility != 0).map(visibility).transpose()?;
    let visibility = match (request.public, given) {
        (None, None) => None,
        (None, Some(given)) => Some(Visibility::Exactly(given)),
        (Some(public), None) => Some(if public { Visibility::Public } else { Visibility::Exactly(PRIVATE) }),
        (Some(public), Some(given)) if public == (given != PRIVATE) => Some(Visibility::Exactly(given)),
        (Some(_), Some(_)) => {
            return Err(Refusal::unfit(
                "public",
                request.public.unwrap_or_default(),
                "it contradicts visibility, give one of them",
            ));
        }
    };
    let change = Change { name, config, visibility, last_known_update: request.last_known_update.as_ref().map(millis) };
    let now = context.clock.now();
    let updated = context.store.write::<_, Refusal>(move |tx| {
        let stored = fragments::update(tx, &granted, change, now)?;
        let usage = fragment_users::usage(tx, &stored.id)?;
        Ok((stored, usage))
    });
    let (stored, usage) = updated.await?;
    Ok(UpdateFragmentResponse { fragment: Some(message(stored, usage, true)) })
}

/// DeleteFragment: one that nobody uses.
pub async fn delete(
    context: &Context,
    caller: Caller,
    request: DeleteFragmentRequest,
) -> Result<DeleteFragmentResponse, Refusal> {
    let granted = writable(context, &caller, &request.id).await?;
    let now = context.clock.now();
    context.store.write(move |tx| fragment_users::delete(tx, &granted, now)).await?;
    Ok(DeleteFragmentResponse {})
}

/// GetFragmentHistory, newest first: what it was before each change. A page ends early where its configurations are long.
pub async fn history(
    context: &Context,
    caller: Caller,
    request: GetFragmentHistoryRequest,
) -> Result<GetFragmentHistoryResponse, Refusal> {
    let limit = match request.page_limit.unwrap_or_default() {
        0 => FRAGMENT_HISTORY_PAGE_DEFAULT,
        limit if (1..=FRAGMENT_HISTORY_PAGE_MAX).contains(&limit) => limit,
        odd => return Err(Refusal::unfit("page_limit", odd, format_args!("give 0 to {FRAGMENT_HISTORY_PAGE_MAX}"))),
    };
    let Readable { stored, writes, reader } = readable(context, &caller, &request.id).await?;
    let scope = ["fragment history", &stored.id];
    let before = input::page_place(&scope, request.page_token.as_deref().unwrap_or_default())?;
    let id = stored.id.clone();
    let most = usize::try_from(limit).unwrap_or(usize::MAX);
    // One more than the page has entries: an entry shows what the revision before it was.
    let revisions = context.store.scan::<_, DbError>(move |tx| {
        let (mut found, mut bytes, mut before) = (Vec::<Revision>::new(), 0, before.unwrap_or(Millis::MAX));
        while found.len() <= most
            && (found.len() < 2 || bytes <= HISTORY_BYTES_MAX)
            && let Some(next) = fragments::revision_before(tx, &id, before, reader)?
        {
            (before, bytes) = (next.made_at, bytes + next.config.len());
            found.push(next);
        }
        let more = match found.last() {
            Some(last) => found.len() > most || fragments::revision_before(tx, &id, last.made_at, reader)?.is_some(),
            None => false,
        };
        Ok((found, more))
    });
    let (revisions, more) = revisions.await?;
    let page = if more { revisions.len().saturating_sub(1) } else { revisions.len() };
    let mut history = Vec::with_capacity(page);
    for (place, revision) in revisions.iter().take(page).enumerate() {
        let old = revisions.get(place + 1).map(|old| message(at(&stored, old), Usage::default(), writes));
        let config = if writes { revision.config.clone() } else { documents::masked(&revision.config) };
        history.push(FragmentHistoryEntry {
            fragment: stored.id.clone(),
            edited_on: Some(timestamp(revision.made_at)),
            old,
            edited_by: match reader {
                Reader::Own => Some(edited_by(revision.edited_by_type, revision.edited_by.clone())),
                // Whose keys an organization has is nobody else's business.
                Reader::Stranger => None,
            },
            revision: revision.revision.clone(),
            config: Some(documents::to_struct(&config)),
        });
    }
    let last = revisions.get(page.saturating_sub(1)).filter(|_| more);
    let next_page_token = last.map(|last| input::page_token(&scope, last.made_at)).unwrap_or_default();
    Ok(GetFragmentHistoryResponse { history, next_page_token })
}

fn at(stored: &Stored, revision: &Revision) -> Stored {
    Stored {
        name: revision.name.clone(),
        visibility: revision.visibility,
        config: revision.config.clone(),
        revision: revision.revision.clone(),
        updated_at: revision.made_at,
        ..stored.clone()
    }
}

/// A fragment that the caller may read.
pub(super) struct Readable {
    stored: Stored,
    /// Whether it may write it too.
    writes: bool,
    reader: Reader,
}

/// A public one is for everybody with a key.
pub(super) async fn readable(context: &Context, caller: &Caller, id: &str) -> Result<Readable, Refusal> {
    let missing = || Refusal::not_found("fragment", id);
    // First, because it refuses what cannot be an id.
    let permissions = context.authz.permissions(caller, Target::Fragment, id).await?;
    let stored = context.store.read(|tx| fragments::get(tx, id)).await?.ok_or_else(missing)?;
    let holds = |permission| permissions.is_some_and(|permissions| permissions.contains(permission));
    let public = stored.visibility != PRIVATE && matches!(caller.who(), Who::ApiKey { .. });
    let reader = if holds(Permission::ReadFragment) { Reader::Own } else { Reader::Stranger };
    match reader == Reader::Own || public {
        true => Ok(Readable { stored, writes: holds(Permission::WriteFragment), reader }),
        false => Err(missing()),
    }
}

async fn writable(
    context: &Context,
    caller: &Caller,
    id: &str,
) -> Result<Granted<crate::authz::Fragment, right::WriteFragment>, Refusal> {
    let refused = match context.authz.fragment(caller, id).await {
        Ok(granted) => return Ok(granted),
        Err(refused) => refused,
    };
    // Somebody else's public fragment is seen, so it is "denied" and not "not there".
    match readable(context, caller, id).await {
        Ok(_) => Err(Refusal::denied(Permission::WriteFragment.word())),
        Err(_) => Err(refused),
    }
}

fn visibility(number: i32) -> Result<i64, Refusal> {
    match FragmentVisibility::try_from(number) {
        Ok(FragmentVisibility::Private | FragmentVisibility::Public | FragmentVisibility::PublicUnlisted) => {
            Ok(i64::from(number))
        }
        _ => Err(Refusal::unfit("visibility", number, "give private (1), public (2) or public but unlisted (3)")),
    }
}

fn count(number: i64) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

pub(super) fn message(stored: Stored, usage: Usage, writes: bool) -> Message {
    let config = if writes { stored.config } else { documents::masked(&stored.config) };
    Message {
        id: stored.id,
        name: stored.name,
        fragment: Some(documents::to_struct(&config)),
        organization_owner: stored.organization,
        public: stored.visibility != PRIVATE,
        created_on: Some(timestamp(stored.created_at)),
        organization_name: stored.organization_name,
        robot_part_count: count(usage.parts),
        organization_count: count(usage.organizations),
        only_used_by_owner: usage.others == 0,
        visibility: count(stored.visibility),
        last_updated: Some(timestamp(stored.updated_at)),
        revision: stored.revision,
        public_namespace: stored.organization_namespace,
        fragment_config_json: Some(config),
    }
}
