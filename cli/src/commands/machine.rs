//! `machine`: what is managed.

use api::{
    brand,
    pb::platform::{
        app::v1::{self as app, OnlineState, app_service},
        fleet::v1::{self as fleet, Product, admin_service},
    },
};
use clap::{Subcommand, ValueEnum};
use serde_json::{Value, json};

use super::status;
use crate::{
    failure::Failure,
    find,
    output::{Output, json_of},
    session::Session,
    when::{ago, moment},
};

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Program {
    /// The machine server
    #[value(alias = "server")]
    MachineServer,
    /// The agent itself
    Agent,
}

#[derive(Subcommand)]
pub(crate) enum Verb {
    /// Show all that the key sees
    List {
        /// Only those of this location, by name or id
        #[arg(long)]
        location: Option<String>,
    },
    /// Show one with its parts
    Get {
        /// NAME, LOCATION/NAME or id; may be left out if there is only one
        machine: Option<String>,
    },
    /// Make a new one, with a main part
    Create {
        /// Its name
        name: String,
        /// Where it is, by name or id; may be left out if there is only one location
        #[arg(long)]
        location: Option<String>,
    },
    /// Rename one, or move it
    Update {
        /// NAME, LOCATION/NAME or id
        machine: String,
        /// New name
        #[arg(long)]
        name: Option<String>,
        /// New location, by name or id
        #[arg(long)]
        location: Option<String>,
    },
    /// Show what its devices say about themselves
    Status {
        /// NAME, LOCATION/NAME or id; may be left out if there is only one
        machine: Option<String>,
    },
    /// Show all of the organization with their parts, versions and state
    Summary {
        /// Only those of this location, by name or id
        #[arg(long)]
        location: Option<String>,
        /// Only those that use this fragment, by id
        #[arg(long)]
        fragment: Option<String>,
        /// At most so many
        #[arg(long)]
        limit: Option<i32>,
    },
    /// Show the fragments that make up its configuration
    Fragments {
        /// NAME, LOCATION/NAME or id; may be left out if there is only one
        machine: Option<String>,
        /// As if it used this one as well, by id
        #[arg(long, value_name = "ID")]
        with: Vec<String>,
    },
    /// Show the API keys that have a role on it
    Keys {
        /// NAME, LOCATION/NAME or id; may be left out if there is only one
        machine: Option<String>,
    },
    /// Delete one, with its parts, their secrets and logs
    Delete {
        /// NAME, LOCATION/NAME or id
        machine: String,
    },
    /// Let its devices try versions again that failed before
    RetryUpdate {
        /// NAME, LOCATION/NAME or id; may be left out if there is only one
        machine: Option<String>,
        /// Only of this product
        #[arg(long = "product", alias = "program", value_enum)]
        product: Option<Program>,
    },
}

pub(super) fn run(session: &Session, verb: Verb, output: &mut Output) -> Result<(), Failure> {
    match verb {
        Verb::List { location } => {
            let placed = find::machines(session, location.as_deref())?;
            if output.is_json() {
                return output.json(&Value::Array(placed.iter().map(|one| json_of(&one.machine)).collect()));
            }
            if placed.is_empty() {
                return output.line("There is no machine yet; make one with `machine create NAME`.");
            }
            let rows = placed.into_iter().map(|one| {
                let state = online(one.machine.online_state, one.machine.last_access.as_ref());
                [one.machine.name, one.location.name, state, one.machine.id]
            });
            output.table(["name", "location", "state", "id"], rows.collect())
        }
        Verb::Get { machine } => show(session, output, &find::machine(session, machine.as_deref())?),
        Verb::Create { name, location } => {
            let location = find::location(session, location.as_deref())?.id;
            let request = app::NewRobotRequest { name: name.clone(), location };
            let id = session.change("could not make the machine", app_service::NEW_ROBOT, &request)?.id;
            output.done(
                &format!("Machine {name:?} is made. Its id is {id}; `{} part credentials {id}` gives the file for its device.", brand::NAME),
                json!({"id": id, "name": name}),
            )
        }
        Verb::Update { machine, name, location } => {
            let before = find::machine(session, Some(&machine))?;
            let location = match location {
                Some(location) => find::location(session, Some(&location))?.id,
                None => before.location,
            };
            let request = app::UpdateRobotRequest { id: before.id, name: name.unwrap_or(before.name), location };
            let changed = session.change("could not change the machine", app_service::UPDATE_ROBOT, &request)?;
            show(session, output, &changed.robot.unwrap_or_default())
        }
        Verb::Status { machine } => status::show(session, &find::machine(session, machine.as_deref())?, output),
        Verb::Summary { location, fragment, limit } => summary(session, output, location.as_deref(), fragment, limit),
        Verb::Fragments { machine, with } => {
            let machine_id = find::machine(session, machine.as_deref())?.id;
            let request =
                app::ListMachineFragmentsRequest { machine_id, additional_fragment_ids: with, ..Default::default() };
            let listed = session.ask("could not list the fragments", app_service::LIST_MACHINE_FRAGMENTS, &request)?;
            if output.is_json() {
                return output.json(&json_of(&listed));
            }
            output.list(&listed.fragments, ["name", "id", "revision"], "It uses none.", |one| {
                [one.name.clone(), one.id.clone(), one.revision.clone()]
            })
        }
        Verb::Keys { machine } => {
            let request = app::GetRobotApiKeysRequest { robot_id: find::machine(session, machine.as_deref())?.id };
            let listed = session.ask("could not list the keys", app_service::GET_ROBOT_API_KEYS, &request)?;
            super::key::list(output, &listed.api_keys)
        }
        Verb::Delete { machine } => {
            let machine = find::machine(session, Some(&machine))?;
            let request = app::DeleteRobotRequest { id: machine.id.clone() };
            session.change("could not delete the machine", app_service::DELETE_ROBOT, &request)?;
            output.done(&format!("Machine {:?} is deleted.", machine.name), json!({"id": machine.id}))
        }
        Verb::RetryUpdate { machine, product } => {
            let machine = find::machine(session, machine.as_deref())?;
            let products = [(Program::MachineServer, Product::MachineServer), (Program::Agent, Product::Agent)];
            for part in find::parts(session, &machine.id)? {
                for (_, wire) in products.iter().filter(|(one, _)| product.is_none_or(|product| product == *one)) {
                    let request = fleet::RetryUpdateRequest { part_id: part.id.clone(), product: (*wire).into() };
                    session.ask("could not ask for another try", admin_service::RETRY_UPDATE, &request)?;
                }
            }
            output.done(
                &format!(
                    "The devices of {:?} try their updates again within a minute, or when they are back.",
                    machine.name
                ),
                json!({"machine_id": machine.id}),
            )
        }
    }
}

fn summary(
    session: &Session,
    output: &mut Output,
    location: Option<&str>,
    fragment: Option<String>,
    limit: Option<i32>,
) -> Result<(), Failure> {
    let location_ids = location.map(|given| find::location(session, Some(given)).map(|found| found.id)).transpose()?;
    let request = app::ListMachineSummariesRequest {
        organization_id: find::organization(session, None)?.id,
        fragment_ids: fragment.into_iter().collect(),
        location_ids: location_ids.into_iter().collect(),
        limit,
    };
    let listed = session.ask("could not list the machines", app_service::LIST_MACHINE_SUMMARIES, &request)?;
    if output.is_json() {
        return output.json(&json_of(&listed));
    }
    let mut rows = Vec::new();
    for location in &listed.location_summaries {
        for machine in &location.machine_summaries {
            for part in &machine.part_summaries {
                rows.push([
                    location.location_name.clone(),
                    machine.machine_name.clone(),
                    part.part_name.clone(),
                    online(part.online_state, part.last_access.as_ref()),
                    part.os.clone().unwrap_or_default(),
                    part.platform.clone().unwrap_or_default(),
                ]);
            }
        }
    }
    output.table(["location", "machine", "part", "state", "system", "platform"], rows)
}

fn show(session: &Session, output: &mut Output, machine: &app::Robot) -> Result<(), Failure> {
    let parts = find::parts(session, &machine.id)?;
    if output.is_json() {
        let mut object = json_of(machine);
        let parts = parts.into_iter().map(|part| json_of(&super::part::without_secrets(part))).collect();
        if let Some(object) = object.as_object_mut() {
            object.insert("parts".to_owned(), Value::Array(parts));
        }
        return output.json(&object);
    }
    let mut lines = vec![
        ("name", machine.name.clone()),
        ("id", machine.id.clone()),
        ("location", machine.location.clone()),
        ("state", online(machine.online_state, machine.last_access.as_ref())),
        ("created", moment(machine.created_on.as_ref())),
    ];
    for part in parts {
        let main = if part.main_part { " (main)" } else { "" };
        let state = online(part.online_state, part.last_access.as_ref());
        lines.push(("part", format!("{}{main}  {}  {state}", part.name, part.id)));
    }
    output.facts(&lines)
}

/// "live", or since when not.
pub(super) fn online(state: i32, last_access: Option<&prost_types::Timestamp>) -> String {
    match OnlineState::try_from(state) {
        Ok(OnlineState::Online) => "live".to_owned(),
        Ok(OnlineState::AwaitingSetup) => "awaiting setup".to_owned(),
        Ok(OnlineState::Offline | OnlineState::Unspecified) | Err(_) => {
            format!("not live, last seen {}", ago(last_access))
        }
    }
}
