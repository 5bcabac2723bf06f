//! `fragment`: configuration that machines share.

use std::path::PathBuf;

use api::pb::platform::app::v1::{self as app, app_service};
use clap::{Subcommand, ValueEnum};
use serde_json::{Map, Value, json};

use super::read_text;
use crate::{
    failure::Failure,
    find,
    output::{Output, json_of, json_of_struct},
    session::Session,
    when::moment,
};

#[derive(Subcommand)]
pub(crate) enum Verb {
    /// Show all of the organization
    List,
    /// Show one with its configuration
    Get {
        /// Name or id
        fragment: String,
        /// An older revision, or a tag
        #[arg(long)]
        version: Option<String>,
    },
    /// Make a new one
    Create {
        /// Its name
        name: String,
        /// JSON file with the configuration; - reads standard input
        file: PathBuf,
    },
    /// Change one
    Update {
        /// Name or id
        fragment: String,
        /// JSON file with the new configuration; - reads standard input
        file: Option<PathBuf>,
        /// New name
        #[arg(long)]
        name: Option<String>,
        /// Who may use it
        #[arg(long, value_enum)]
        visibility: Option<Visibility>,
    },
    /// Show what was changed, when and by whom, newest first
    History {
        /// Name or id
        fragment: String,
    },
    /// Delete one that nobody uses
    Delete {
        /// Name or id
        fragment: String,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Visibility {
    /// Its organization
    Private,
    /// Everybody, and it is listed
    Public,
    /// Everybody who knows its id
    Unlisted,
}

impl Visibility {
    fn number(self) -> i32 {
        match self {
            Self::Private => app::FragmentVisibility::Private,
            Self::Public => app::FragmentVisibility::Public,
            Self::Unlisted => app::FragmentVisibility::PublicUnlisted,
        }
        .into()
    }
}

/// Entries that `history` reads in one page.
const HISTORY_PAGE: i64 = 100;

pub(super) fn run(session: &Session, verb: Verb, output: &mut Output) -> Result<(), Failure> {
    match verb {
        Verb::List => output.list(
            &fragments(session, None)?,
            ["name", "id", "parts", "last updated"],
            "There is no fragment yet; make one with `fragment create NAME FILE`.",
            |one| {
                [one.name.clone(), one.id.clone(), one.robot_part_count.to_string(), moment(one.last_updated.as_ref())]
            },
        ),
        Verb::Get { fragment, version } => {
            let id = id_of(session, &fragment)?;
            let request = app::GetFragmentRequest { id, version, ..Default::default() };
            let found = session.ask("could not read the fragment", app_service::GET_FRAGMENT, &request)?;
            show(output, &found.fragment.unwrap_or_default())
        }
        Verb::Create { name, file } => {
            let config = checked(&read_text(&file)?)?;
            let organization_id = find::organization(session, None)?.id;
            let request = app::CreateFragmentRequest { name, config: Some(config), organization_id, visibility: None };
            let made = session.change("could not make the fragment", app_service::CREATE_FRAGMENT, &request)?;
            show(output, &made.fragment.unwrap_or_default())
        }
        Verb::Update { fragment, file, name, visibility } => {
            if file.is_none() && name.is_none() && visibility.is_none() {
                return Err(Failure::Usage("nothing to change: give a file, --name or --visibility".to_owned()));
            }
            let id = id_of(session, &fragment)?;
            let request = app::GetFragmentRequest { id: id.clone(), ..Default::default() };
            let before = session
                .ask("could not read the fragment", app_service::GET_FRAGMENT, &request)?
                .fragment
                .unwrap_or_default();
            let text = file.map(|file| read_text(&file)).transpose()?;
            let config = match &text {
                Some(text) => Some(checked(text)?),
                None => before.fragment,
            };
            let request = app::UpdateFragmentRequest {
                id,
                name: name.unwrap_or(before.name),
                config,
                last_known_update: before.last_updated,
                fragment_config_json: text.or(before.fragment_config_json),
                visibility: visibility.map(Visibility::number),
                ..Default::default()
            };
            let changed = session.change("could not change the fragment", app_service::UPDATE_FRAGMENT, &request)?;
            show(output, &changed.fragment.unwrap_or_default())
        }
        Verb::History { fragment } => history(session, id_of(session, &fragment)?, output),
        Verb::Delete { fragment } => {
            let id = id_of(session, &fragment)?;
            let request = app::DeleteFragmentRequest { id: id.clone() };
            session.change("could not delete the fragment", app_service::DELETE_FRAGMENT, &request)?;
            output.done(&format!("Fragment {fragment:?} is deleted."), json!({"id": id}))
        }
    }
}

fn history(session: &Session, id: String, output: &mut Output) -> Result<(), Failure> {
    let (mut entries, mut page_token) = (Vec::new(), None);
    loop {
        let request = app::GetFragmentHistoryRequest { id: id.clone(), page_token, page_limit: Some(HISTORY_PAGE) };
        let page = session.ask("could not read the history", app_service::GET_FRAGMENT_HISTORY, &request)?;
        entries.extend(page.history);
        page_token = Some(page.next_page_token).filter(|token| !token.is_empty());
        if page_token.is_none() {
            break;
        }
    }
    output.list(&entries, ["when", "by", "name before", "revision"], "It was not changed yet.", |one| {
        let by = one.edited_by.as_ref().map(|by| by.value.clone()).unwrap_or_default();
        let name = one.old.as_ref().map(|old| old.name.clone()).unwrap_or_default();
        [moment(one.edited_on.as_ref()), by, name, one.revision.clone()]
    })
}

/// The organization's own, whoever may see them.
fn fragments(session: &Session, organization: Option<&str>) -> Result<Vec<app::Fragment>, Failure> {
    let organization_id = find::organization(session, organization)?.id;
    let all = [Visibility::Private, Visibility::Public, Visibility::Unlisted].map(Visibility::number);
    let request = app::ListFragmentsRequest {
        organization_id: organization_id.clone(),
        fragment_visibility: all.into(),
        ..Default::default()
    };
    let mut found = session.ask("could not list the fragments", app_service::LIST_FRAGMENTS, &request)?.fragments;
    found.retain(|fragment| fragment.organization_owner == organization_id);
    Ok(found)
}

fn id_of(session: &Session, given: &str) -> Result<String, Failure> {
    id_in(session, None, given)
}

/// By its id, or by the name that it has in the organization.
pub(super) fn id_in(session: &Session, organization: Option<&str>, given: &str) -> Result<String, Failure> {
    if find::is_id(given) {
        return Ok(given.to_owned());
    }
    find::only(fragments(session, organization)?, "fragment", Some(given), |one| (&one.id, &one.name), "use its id")
        .map(|one| one.id)
}

/// A configuration as the wire has it.
pub(super) fn checked(text: &str) -> Result<prost_types::Struct, Failure> {
    let object: Map<String, Value> = serde_json::from_str(text)
        .map_err(|error| Failure::Configuration(format!("this is not a JSON object: {error}")))?;
    Ok(prost_types::Struct { fields: object.into_iter().map(|(key, value)| (key, wire(value))).collect() })
}

fn wire(value: Value) -> prost_types::Value {
    use prost_types::value::Kind;
    let kind = match value {
        Value::Null => Kind::NullValue(0),
        Value::Bool(truth) => Kind::BoolValue(truth),
        // Every JSON number that serde_json reads is within a double.
        Value::Number(number) => Kind::NumberValue(number.as_f64().unwrap_or_default()),
        Value::String(text) => Kind::StringValue(text),
        Value::Array(items) => {
            Kind::ListValue(prost_types::ListValue { values: items.into_iter().map(wire).collect() })
        }
        Value::Object(entries) => Kind::StructValue(prost_types::Struct {
            fields: entries.into_iter().map(|(key, value)| (key, wire(value))).collect(),
        }),
    };
    prost_types::Value { kind: Some(kind) }
}

fn show(output: &mut Output, one: &app::Fragment) -> Result<(), Failure> {
    if output.is_json() {
        return output.json(&json_of(one));
    }
    output.facts(&[
        ("name", one.name.clone()),
        ("id", one.id.clone()),
        ("revision", one.revision.clone()),
        ("last updated", moment(one.last_updated.as_ref())),
    ])?;
    let config = one.fragment_config_json.clone().filter(|text| !text.is_empty());
    let config = config.or_else(|| one.fragment.as_ref().map(|config| format!("{:#}", json_of_struct(config))));
    output.line(&crate::output::plain(&config.unwrap_or_default()))
}
