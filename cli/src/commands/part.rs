//! `part`: one device of a machine. Its configuration, its environment, its version, its restart, its credentials.

use std::{io::Write, path::PathBuf};

use api::{
    brand,
    pb::platform::{
        app::v1::{self as app, app_service},
        fleet::v1::{self as fleet, admin_service},
    },
};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::{config, logs, machine::online, secrets};
use crate::{
    configuration::{Configuration, change_agent, object_at, section},
    failure::Failure,
    find,
    output::Output,
    session::Session,
    when::moment,
};

const ADVANCED: &str = "advanced_settings";
const VERSIONS: &str = "version_control";
/// Name of the agent's own version setting.
const AGENT_VERSION: &str = "agent";
/// Entries that `part history` reads in one page.
const HISTORY_PAGE: i64 = 100;

/// Which part is meant.
#[derive(Args)]
pub(crate) struct Which {
    /// MACHINE, LOCATION/MACHINE, LOCATION/MACHINE/PART or id; may be left out if there is only one machine
    #[arg(conflicts_with = "named_part")]
    part: Option<String>,
    #[command(flatten)]
    whose: Whose,
}

/// Which part is meant, where other things stand on the command line.
#[derive(Args)]
pub(crate) struct Whose {
    /// MACHINE, LOCATION/MACHINE, LOCATION/MACHINE/PART or id; may be left out if there is only one machine
    #[arg(long = "part", short = 'p', id = "named_part", value_name = "PART")]
    named: Option<String>,
}

impl Which {
    pub(super) fn find(&self, session: &Session) -> Result<app::RobotPart, Failure> {
        find::part(session, self.part.as_deref().or(self.whose.named.as_deref()))
    }
}

impl Whose {
    pub(super) fn find(&self, session: &Session) -> Result<app::RobotPart, Failure> {
        find::part(session, self.named.as_deref())
    }
}

#[derive(Subcommand)]
pub(crate) enum Verb {
    /// Show the parts of a machine
    List {
        /// NAME, LOCATION/NAME or id; may be left out if there is only one
        machine: Option<String>,
    },
    /// Show one
    Get(Which),
    /// Add one to a machine
    Create {
        /// Its name
        name: String,
        /// NAME, LOCATION/NAME or id; may be left out if there is only one
        #[arg(long)]
        machine: Option<String>,
    },
    /// Rename one
    Update {
        #[command(flatten)]
        which: Which,
        /// New name
        #[arg(long)]
        name: String,
    },
    /// Show the one with this name (or the first word of its address) in a location
    Find {
        /// Its name
        name: String,
        /// By name or id; may be left out if there is only one
        #[arg(long)]
        location: Option<String>,
    },
    /// Make it the main part of its machine
    MakeMain(Which),
    /// Delete one that is not the main part
    Delete {
        /// LOCATION/MACHINE/PART or id
        part: String,
    },
    /// Show what the device and its machine server logged
    Logs(logs::Logs),
    /// Show earlier states of its configuration, newest first
    History(Which),
    /// Have its machine server restarted
    Restart(Which),
    /// Give the file by which a device knows who it is; it contains a secret
    Credentials {
        #[command(flatten)]
        which: Which,
        /// Write it to this file, which only you can read
        #[arg(long, value_name = "FILE")]
        write: Option<PathBuf>,
    },
    /// Its configuration as a whole
    #[command(subcommand)]
    Config(config::Verb),
    /// Environment variables of its machine server
    #[command(subcommand)]
    Env(EnvVerb),
    /// Choose the version of its machine server: a channel, a version, a URL or a file
    Pin {
        /// Such as stable, dev or 1.0.0, or an address that begins with https:// or file://
        version: String,
        #[command(flatten)]
        whose: Whose,
        /// Choose the version of the agent itself instead
        #[arg(long)]
        agent: bool,
    },
    /// Secrets with which its device may log in
    #[command(subcommand)]
    Secret(SecretVerb),
}

#[derive(Subcommand)]
pub(crate) enum EnvVerb {
    /// Show them
    List(Which),
    /// Set some; the machine server is restarted as soon as it permits
    Set {
        /// The variables
        #[arg(required = true, value_name = "KEY=VALUE")]
        variables: Vec<String>,
        #[command(flatten)]
        whose: Whose,
    },
    /// Remove some; the machine server is restarted as soon as it permits
    Unset {
        /// Their names
        #[arg(required = true, value_name = "KEY")]
        names: Vec<String>,
        #[command(flatten)]
        whose: Whose,
    },
}

#[derive(Subcommand)]
pub(crate) enum SecretVerb {
    /// Show their ids
    List(Which),
    /// Add one; `part credentials` then gives it
    Create(Which),
    /// Remove one; a device that uses it is out at once
    Delete {
        /// Id of the secret
        id: String,
        #[command(flatten)]
        whose: Whose,
    },
}

pub(super) fn run(session: &Session, verb: Verb, output: &mut Output) -> Result<(), Failure> {
    match verb {
        Verb::List { machine } => {
            let machine = find::machine(session, machine.as_deref())?;
            let parts: Vec<_> = find::parts(session, &machine.id)?.into_iter().map(without_secrets).collect();
            output.list(&parts, ["name", "main", "state", "id"], "The machine has no part.", |one| {
                let main = if one.main_part { "yes" } else { "" };
                [one.name.clone(), main.to_owned(), online(one.online_state, one.last_access.as_ref()), one.id.clone()]
            })
        }
        Verb::Get(which) => show(output, which.find(session)?),
        Verb::Create { name, machine } => {
            let robot_id = find::machine(session, machine.as_deref())?.id;
            let request = app::NewRobotPartRequest { robot_id, part_name: name.clone() };
            let id = session.change("could not make the part", app_service::NEW_ROBOT_PART, &request)?.part_id;
            output.done(&format!("Part {name:?} is made. Its id is {id}."), json!({"id": id, "name": name}))
        }
        Verb::Update { which, name } => {
            let part = which.find(session)?;
            // Without a configuration: the server keeps the one it has.
            let request = app::UpdateRobotPartRequest { id: part.id, name, ..Default::default() };
            let changed = session.change("could not rename the part", app_service::UPDATE_ROBOT_PART, &request)?;
            show(output, changed.part.unwrap_or_default())
        }
        Verb::Find { name, location } => {
            let location_id = find::location(session, location.as_deref())?.id;
            let request = app::GetRobotPartByNameAndLocationRequest { name, location_id };
            let method = app_service::GET_ROBOT_PART_BY_NAME_AND_LOCATION;
            let found = session.ask("could not find the part", method, &request)?;
            show(output, found.part.unwrap_or_default())
        }
        Verb::MakeMain(which) => {
            let part = which.find(session)?;
            let request = app::MarkPartAsMainRequest { part_id: part.id.clone() };
            session.change("could not make it the main part", app_service::MARK_PART_AS_MAIN, &request)?;
            output.done(&format!("{:?} is the main part of its machine now.", part.name), json!({"part_id": part.id}))
        }
        Verb::Delete { part } => {
            let part = find::part(session, Some(&part))?;
            let request = app::DeleteRobotPartRequest { part_id: part.id.clone() };
            session.change("could not delete the part", app_service::DELETE_ROBOT_PART, &request)?;
            output.done(&format!("Part {:?} is deleted.", part.name), json!({"part_id": part.id}))
        }
        Verb::Logs(logs) => logs::run(session, logs, output),
        Verb::History(which) => history(session, which.find(session)?.id, output),
        Verb::Restart(which) => {
            let part = which.find(session)?;
            let request = app::MarkPartForRestartRequest { part_id: part.id.clone() };
            session.ask("could not mark the part for restart", app_service::MARK_PART_FOR_RESTART, &request)?;
            output.done(
                &format!("The machine server of {:?} is restarted as soon as it permits.", part.name),
                json!({"part_id": part.id}),
            )
        }
        Verb::Credentials { which, write } => credentials(session, &which.find(session)?.id, write, output),
        Verb::Config(verb) => config::run(session, verb, output),
        Verb::Env(verb) => env(session, verb, output),
        Verb::Pin { version, whose, agent } => pin(session, &version, &whose, agent, output),
        Verb::Secret(verb) => secret(session, verb, output),
    }
}

fn show(output: &mut Output, part: app::RobotPart) -> Result<(), Failure> {
    let part = without_secrets(part);
    let lines = [
        ("name", part.name.clone()),
        ("id", part.id.clone()),
        ("machine", part.robot.clone()),
        ("main", if part.main_part { "yes" } else { "no" }.to_owned()),
        ("state", online(part.online_state, part.last_access.as_ref())),
        ("address", part.fqdn.clone()),
        ("changed", moment(part.last_updated.as_ref())),
        ("created", moment(part.created_on.as_ref())),
    ];
    output.one(&part, &lines)
}

/// Part secrets let a device in; `part credentials` gives them to who asks for them.
pub(super) fn without_secrets(mut part: app::RobotPart) -> app::RobotPart {
    part.secret.clear();
    part.secrets.iter_mut().for_each(|secret| secret.secret.clear());
    part
}

fn history(session: &Session, id: String, output: &mut Output) -> Result<(), Failure> {
    let (mut entries, mut page_token) = (Vec::new(), None);
    loop {
        let request = app::GetRobotPartHistoryRequest {
            id: id.clone(),
            page_token,
            page_limit: Some(HISTORY_PAGE),
            start: None,
            end: None,
        };
        let page = session.ask("could not read the history", app_service::GET_ROBOT_PART_HISTORY, &request)?;
        entries.extend(page.history);
        page_token = Some(page.next_page_token).filter(|token| !token.is_empty());
        if page_token.is_none() {
            break;
        }
    }
    for entry in &mut entries {
        entry.old = entry.old.take().map(without_secrets);
    }
    output.list(&entries, ["when", "by", "name before"], "It was not changed yet.", |one| {
        let by = one.edited_by.as_ref().map(|by| by.value.clone()).unwrap_or_default();
        [moment(one.when.as_ref()), by, one.old.as_ref().map(|old| old.name.clone()).unwrap_or_default()]
    })
}

fn credentials(session: &Session, part_id: &str, write: Option<PathBuf>, output: &mut Output) -> Result<(), Failure> {
    let request = fleet::GetPartCredentialsRequest { part_id: part_id.to_owned() };
    let text =
        session.ask("could not read the credentials", admin_service::GET_PART_CREDENTIALS, &request)?.credentials_json;
    let Some(path) = write else { return output.line(text.trim_end()) };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(".".as_ref());
    // A temporary file has mode 0600 from the beginning, so that nobody reads it in between.
    let mut file = tempfile::NamedTempFile::new_in(folder).map_err(Failure::file(folder))?;
    file.write_all(text.as_bytes()).and_then(|()| file.as_file().sync_all()).map_err(Failure::file(&path))?;
    file.persist(&path).map_err(|error| Failure::file(&path)(error.error))?;
    output.done(
        &format!("Written to {}; put it on the device as {}.", path.display(), brand::CREDENTIALS_FILE),
        json!({"file": path, "part_id": part_id}),
    )
}

fn env(session: &Session, verb: EnvVerb, output: &mut Output) -> Result<(), Failure> {
    match verb {
        EnvVerb::List(which) => {
            let part = which.find(session)?;
            let text = Configuration::read(session, &part.id)?.text;
            let document: Value = serde_json::from_str(&text).unwrap_or_default();
            let path = [api::device_config::AGENT_KEY, ADVANCED, brand::SERVER_ENV_KEY];
            let variables =
                document.as_object().and_then(|document| object_at(document, &path)).cloned().unwrap_or_default();
            if output.is_json() {
                return output.json(&Value::Object(variables));
            }
            for (name, value) in variables {
                let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                output.line(&crate::output::plain(&format!("{name}={value}")))?;
            }
            Ok(())
        }
        EnvVerb::Set { variables, whose } => {
            let variables = variables
                .iter()
                .map(|text| match text.split_once('=') {
                    Some((name, value)) if !name.is_empty() => Ok((name, value)),
                    _ => Err(Failure::Usage(format!("{text:?} is not KEY=VALUE"))),
                })
                .collect::<Result<Vec<_>, _>>()?;
            let names: Vec<&str> = variables.iter().map(|(name, _)| *name).collect();
            change_env(session, &whose, output, &names, "set", |name| {
                variables.iter().rev().find(|(one, _)| *one == name).map(|(_, value)| Value::from(*value))
            })
        }
        EnvVerb::Unset { names, whose } => {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            change_env(session, &whose, output, &names, "removed", |_| None)
        }
    }
}

fn change_env(
    session: &Session,
    whose: &Whose,
    output: &mut Output,
    names: &[&str],
    done: &str,
    wanted: impl Fn(&str) -> Option<Value>,
) -> Result<(), Failure> {
    let part = whose.find(session)?;
    let changed = change_agent(session, &part.id, |agent| {
        let variables = section(section(agent, ADVANCED)?, brand::SERVER_ENV_KEY)?;
        let mut changed = false;
        for name in names {
            changed |= match wanted(name) {
                Some(value) => variables.insert((*name).to_owned(), value.clone()) != Some(value),
                // The order of the others is the person's.
                None => variables.shift_remove(*name).is_some(),
            };
        }
        Ok(changed)
    })?;
    let names = names.join(", ");
    let sentence = if changed {
        format!("{names} {done} for {:?}; its machine server is restarted as soon as it permits.", part.name)
    } else {
        format!("Nothing to change for {:?}.", part.name)
    };
    output.done(&sentence, json!({"part_id": part.id, "changed": changed}))
}

fn pin(session: &Session, version: &str, whose: &Whose, agent: bool, output: &mut Output) -> Result<(), Failure> {
    let (key, program) =
        if agent { (AGENT_VERSION, brand::AGENT) } else { (brand::SERVER_VERSION_KEY, brand::MACHINE_SERVER) };
    let part = whose.find(session)?;
    let changed = change_agent(session, &part.id, |settings| {
        let wanted = Value::from(version);
        Ok(section(settings, VERSIONS)?.insert(key.to_owned(), wanted.clone()) != Some(wanted))
    })?;
    let sentence = match (changed, agent) {
        (false, _) => format!("{program} of {:?} was pinned to {version} already.", part.name),
        (true, true) => {
            format!("{program} of {:?} is pinned to {version}; the device switches once it is verified.", part.name)
        }
        (true, false) => format!(
            "{program} of {:?} is pinned to {version}; the device fetches it now and starts it at its next restart (`{} part restart`).",
            part.name,
            brand::NAME
        ),
    };
    output.done(&sentence, json!({"part_id": part.id, "version": version, "changed": changed}))
}

fn secret(session: &Session, verb: SecretVerb, output: &mut Output) -> Result<(), Failure> {
    match verb {
        SecretVerb::List(which) => secrets::show(output, which.find(session)?.secrets, false),
        SecretVerb::Create(which) => {
            let part_id = which.find(session)?.id;
            let request = app::CreateRobotPartSecretRequest { part_id };
            let made = session.change("could not make a secret", app_service::CREATE_ROBOT_PART_SECRET, &request)?;
            secrets::show(output, made.part.unwrap_or_default().secrets, false)
        }
        SecretVerb::Delete { id, whose } => {
            let part_id = whose.find(session)?.id;
            let request = app::DeleteRobotPartSecretRequest { part_id, secret_id: id.clone() };
            session.change("could not delete the secret", app_service::DELETE_ROBOT_PART_SECRET, &request)?;
            output.done(&format!("Secret {id} is deleted."), json!({"id": id}))
        }
    }
}
