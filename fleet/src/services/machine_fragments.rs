//! ListMachineFragments: what a machine's configuration is made of, and what it would be made of with more.
//!
//! Everything that the parts name, directly or through other fragments, and what the caller names in addition. Whoever
//! may read the machine's configuration sees what it is made of; for the additional ones it needs the right to read
//! them, or listing them here would be a way around it.

use std::collections::BTreeSet;

use api::pb::platform::app::v1::{
    FragmentError, FragmentErrorType, ListMachineFragmentsRequest, ListMachineFragmentsResponse, ResolvedFragment,
};
use serde_json::{Map, Value, json};

use super::{
    fragments::{message, readable},
    input,
};
use crate::{
    authn::Caller,
    authz::{Permission, Target, right},
    compose::{self, Key, Library},
    context::Context,
    documents, ids,
    limits::FRAGMENTS_PER_CONFIG_MAX,
    refusal::Refusal,
    store::{
        Tx,
        fragment_users::{self, Usage},
        fragments::{self, Stored},
        parts,
    },
};

/// Text of configurations in one answer; each is in there three times, and clients refuse messages above 4 MiB.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;

/// ListMachineFragments.
pub async fn list(
    context: &Context,
    caller: Caller,
    request: ListMachineFragmentsRequest,
) -> Result<ListMachineFragmentsResponse, Refusal> {
    let granted = context.authz.machine::<right::ReadRobotConfig>(&caller, &request.machine_id).await?;
    let additional = additional(context, &caller, request).await?;
    let (machine, organization) = (granted.id().to_owned(), granted.organization().to_owned());
    let held = context.authz.permissions(&caller, Target::Organization, &organization).await?.unwrap_or_default();
    let sight = Sight {
        variables: granted.permissions().contains(Permission::WriteRobot),
        private: held.contains(Permission::ReadFragment),
    };
    let found = context.store.scan(move |tx| look(tx, &machine, &organization, additional, sight)).await?;

    let mut fragments = Vec::with_capacity(found.fragments.len());
    let mut written = BTreeSet::new();
    for (stored, usage) in found.fragments {
        let held = context.authz.permissions(&caller, Target::Fragment, &stored.id).await?;
        let writes = held.is_some_and(|held| held.contains(Permission::WriteFragment));
        if writes {
            written.insert(stored.id.clone());
        }
        fragments.push(message(stored, usage, writes));
    }
    let resolved_fragments = found.resolved.into_iter().map(|resolved| {
        // Passwords inside are for who could write others in their place, in every fragment that went in.
        let clear = sight.variables && resolved.used.iter().all(|id| written.contains(id));
        let text = if clear { resolved.text } else { documents::masked(&resolved.text) };
        ResolvedFragment {
            resolved_config: resolved.error.is_none().then(|| documents::to_struct(&text)),
            fragment_id: resolved.id,
            error: resolved.error,
            revision: resolved.revision,
        }
    });
    Ok(ListMachineFragmentsResponse { fragments, resolved_fragments: resolved_fragments.collect() })
}

/// What the caller sees of what is not its own to write.
#[derive(Clone, Copy)]
struct Sight {
    /// What is given to variables: only a fragment knows which of them become passwords.
    variables: bool,
    /// The organization's private fragments, beside those that the machine is made of.
    private: bool,
}

/// References to the additional ones, each of which the caller may read.
async fn additional(
    context: &Context,
    caller: &Caller,
    request: ListMachineFragmentsRequest,
) -> Result<Vec<Value>, Refusal> {
    let ids = request.additional_fragment_ids.into_iter();
    let mut references: Vec<(&'static str, String, Value)> =
        ids.map(|id| ("additional_fragment_ids", id.clone(), json!({"id": id}))).collect();
    for one in &request.additional_fragments {
        input::printable("additional_fragments.version", one.version.as_deref().unwrap_or_default())?;
    }
    references.extend(request.additional_fragments.into_iter().map(|one| {
        let reference = match one.version.as_deref() {
            None | Some("") => json!({"id": one.fragment_id}),
            Some(version) => json!({"id": one.fragment_id, "version": version}),
        };
        ("additional_fragments.fragment_id", one.fragment_id, reference)
    }));
    if references.len() > FRAGMENTS_PER_CONFIG_MAX {
        return Err(Refusal::invalid(
            "additional_fragments",
            format_args!("has too many entries: at most {FRAGMENTS_PER_CONFIG_MAX}"),
        ));
    }
    for (field, id, _) in &references {
        if !ids::is_id(id) {
            return Err(Refusal::malformed_id("fragment", id).on(field));
        }
        readable(context, caller, id).await?;
    }
    Ok(references.into_iter().map(|(_, _, reference)| reference).collect())
}

#[derive(Default)]
struct Found {
    /// Each with its users counted, the outer ones first.
    fragments: Vec<(Stored, Usage)>,
    resolved: Vec<Resolved>,
    seen: BTreeSet<Key>,
    bytes: usize,
}

/// One reference of a part, or an additional one, taken by itself.
struct Resolved {
    id: String,
    revision: String,
    text: String,
    error: Option<FragmentError>,
    /// Fragments that went in.
    used: Vec<String>,
}

fn look(
    tx: &Tx<'_>,
    machine: &str,
    organization: &str,
    additional: Vec<Value>,
    sight: Sight,
) -> Result<Found, Refusal> {
    let mut found = Found::default();
    let mut references: Vec<Value> = Vec::new();
    for part in parts::of_machine(tx, machine)? {
        let Ok(Value::Object(mut document)) = serde_json::from_str(&part.config) else { continue };
        let Some(Value::Array(list)) = document.remove("fragments") else { continue };
        for reference in list {
            if !references.contains(&reference) {
                references.push(reference);
            }
        }
    }
    for reference in &references {
        found.take(tx, organization, reference, sight, true)?;
    }
    for reference in &additional {
        if !references.contains(reference) && found.take(tx, organization, reference, sight, false)?.is_none() {
            let id = reference.get("id").and_then(Value::as_str).unwrap_or_default();
            return Err(Refusal::not_found("such version of a fragment that the machine may use:", id));
        }
    }
    Ok(found)
}

impl Found {
    /// `None` if the reference is to nothing that the organization may use.
    fn take(
        &mut self,
        tx: &Tx<'_>,
        organization: &str,
        reference: &Value,
        sight: Sight,
        part: bool,
    ) -> Result<Option<()>, Refusal> {
        let mut reference = reference.clone();
        if let (false, Value::Object(fields)) = (sight.variables, &mut reference) {
            fields.remove("variables");
        }
        let document = Map::from_iter([("fragments".to_owned(), Value::Array(vec![reference]))]);
        // What is no reference at all is a complaint in the part's status.
        let Some(outer) = compose::missing(&document, &Library::default()).pop() else { return Ok(Some(())) };
        let (id, revision) = match fragments::used(tx, organization, &outer)? {
            Some(stored) => (stored.id, stored.revision),
            None if part => {
                let error = FragmentError {
                    error_type: FragmentErrorType::NoAccess.into(),
                    fragment_id: outer.id.clone(),
                    detail: format!("there is no fragment {outer} that the machine may use"),
                };
                let none = String::new;
                let (revision, text) = (none(), none());
                self.resolved.push(Resolved { id: outer.id, revision, text, error: Some(error), used: Vec::new() });
                return Ok(None);
            }
            None => return Ok(None),
        };
        // A revision from before an additional one was public is for those who may read private ones, and inside of it
        // may lie what the caller may not read: such a one is not resolved for it.
        let private = sight.private || part;
        if !private && !fragments::may_be_used_by_anybody(tx, &outer)? {
            return Ok(None);
        }
        let whole = self.walk(tx, organization, vec![outer], private)?;
        let mut library = Library::default();
        fragments::fill(tx, organization, &document, &mut library)?;
        let (text, error, used) = match compose::compose(&document, &library) {
            _ if !whole => return Ok(Some(())),
            Ok(composed) => (composed.text, None, composed.used.into_iter().map(|used| used.id).collect()),
            Err(why) => {
                let error_type = FragmentErrorType::Unspecified.into();
                let error = FragmentError { error_type, fragment_id: id.clone(), detail: why.to_string() };
                (String::new(), Some(error), Vec::new())
            }
        };
        self.weigh(text.len())?;
        self.resolved.push(Resolved { id, revision, text, error, used });
        Ok(Some(()))
    }

    /// Adds what these keys name, level by level. False where something private was left out.
    fn walk(&mut self, tx: &Tx<'_>, organization: &str, outer: Vec<Key>, private: bool) -> Result<bool, Refusal> {
        let mut whole = true;
        let mut level = outer;
        for _ in 0..=compose::DEPTH_MAX {
            let mut next = Vec::new();
            for key in level {
                let Some(stored) = fragments::used(tx, organization, &key)? else { continue };
                if !private && !fragments::may_be_used_by_anybody(tx, &key)? {
                    whole = false;
                    continue;
                }
                if let Ok(Value::Object(document)) = serde_json::from_str(&stored.config) {
                    next.extend(compose::missing(&document, &Library::default()));
                }
                if self.seen.insert(key) {
                    self.weigh(stored.config.len())?;
                    let usage = fragment_users::usage(tx, &stored.id)?;
                    self.fragments.push((stored, usage));
                }
            }
            next.sort();
            next.dedup();
            level = next;
        }
        Ok(whole)
    }

    fn weigh(&mut self, bytes: usize) -> Result<(), Refusal> {
        self.bytes += bytes;
        match self.bytes > ANSWER_BYTES_MAX {
            true => Err(Refusal::precondition(format!(
                "the machine's fragments are more than {ANSWER_BYTES_MAX} bytes: read them one by one with GetFragment"
            ))),
            false => Ok(()),
        }
    }
}
