//! `role`: who may do what with which resource.

use api::pb::platform::app::v1::{self as app, app_service};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::json;

use super::member::user_id;
use crate::{
    failure::Failure,
    find,
    output::{Output, json_of},
    session::Session,
};

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Role {
    /// May do everything with the resource and what is below it
    Owner,
    /// May look and operate, but not change
    Operator,
}

/// With what something may be done.
#[derive(Args)]
pub(crate) struct On {
    /// Only for this location and what is below it, by name or id
    #[arg(long, conflicts_with = "machine")]
    pub(super) location: Option<String>,
    /// Only for this machine, by name or id
    #[arg(long)]
    pub(super) machine: Option<String>,
}

impl On {
    /// The organization, and type and id of the resource.
    pub(super) fn find(&self, session: &Session) -> Result<(String, &'static str, String), Failure> {
        let organization = find::organization(session, None)?.id;
        Ok(match (&self.location, &self.machine) {
            (Some(location), _) => (organization, "location", find::location(session, Some(location))?.id),
            (None, Some(machine)) => (organization, "robot", find::machine(session, Some(machine))?.id),
            (None, None) => (organization.clone(), "organization", organization),
        })
    }

    /// A role on it, of nobody yet.
    pub(super) fn authorization(&self, session: &Session, role: Role) -> Result<app::Authorization, Failure> {
        let (organization_id, resource_type, resource_id) = self.find(session)?;
        Ok(app::Authorization {
            authorization_type: "role".to_owned(),
            authorization_id: format!("{resource_type}_{}", role.word()),
            resource_type: resource_type.to_owned(),
            resource_id,
            organization_id,
            ..Default::default()
        })
    }
}

impl Role {
    fn word(self) -> &'static str {
        match self {
            Self::Owner => "owner",
            Self::Operator => "operator",
        }
    }
}

#[derive(Subcommand)]
pub(crate) enum Verb {
    /// Show all of the organization, or those on one resource
    List {
        #[command(flatten)]
        on: On,
    },
    /// Give one to a person or an API key
    Add {
        /// E-mail address or id of a person, or id of an API key
        identity: String,
        /// Which
        #[arg(value_enum)]
        role: Role,
        #[command(flatten)]
        on: On,
    },
    /// Take one away
    Remove {
        /// E-mail address or id of a person, or id of an API key
        identity: String,
        /// Which
        #[arg(value_enum)]
        role: Role,
        #[command(flatten)]
        on: On,
    },
    /// Give another one in place of the one there is, in one step
    Change {
        /// E-mail address or id of a person, or id of an API key
        identity: String,
        /// The one there is
        #[arg(value_enum)]
        from: Role,
        /// The one in its place
        #[arg(value_enum)]
        to: Role,
        #[command(flatten)]
        on: On,
    },
    /// Say which of these permissions the key in use has
    Check {
        /// Such as read_robot, write_robot, control_robot (docs/permissions.md)
        #[arg(required = true, value_name = "PERMISSION")]
        permissions: Vec<String>,
        #[command(flatten)]
        on: On,
    },
}

pub(super) fn run(session: &Session, verb: Verb, output: &mut Output) -> Result<(), Failure> {
    match verb {
        Verb::List { on } => {
            let (organization_id, kind, resource) = on.find(session)?;
            let resource_ids = if kind == "organization" { Vec::new() } else { vec![resource] };
            let request = app::ListAuthorizationsRequest { organization_id, resource_ids };
            let listed = session.ask("could not list the roles", app_service::LIST_AUTHORIZATIONS, &request)?;
            output.list(&listed.authorizations, ["role", "on", "of", "id"], "There is no role there.", |one| {
                let role = one.authorization_id.clone();
                [role, one.resource_id.clone(), one.identity_type.clone(), one.identity_id.clone()]
            })
        }
        Verb::Add { identity, role, on } => {
            let authorization = Some(of(session, &identity, on.authorization(session, role)?)?);
            session.change("could not give the role", app_service::ADD_ROLE, &app::AddRoleRequest { authorization })?;
            done(output, &format!("{identity} is {} now.", role.word()), &identity)
        }
        Verb::Remove { identity, role, on } => {
            let authorization = Some(of(session, &identity, on.authorization(session, role)?)?);
            let request = app::RemoveRoleRequest { authorization };
            session.change("could not take the role away", app_service::REMOVE_ROLE, &request)?;
            done(output, &format!("{identity} is no longer {} there.", role.word()), &identity)
        }
        Verb::Change { identity, from, to, on } => {
            let old = of(session, &identity, on.authorization(session, from)?)?;
            let authorization_id = format!("{}_{}", old.resource_type, to.word());
            let new = app::Authorization { authorization_id, ..old.clone() };
            let request = app::ChangeRoleRequest { old_authorization: Some(old), new_authorization: Some(new) };
            session.change("could not change the role", app_service::CHANGE_ROLE, &request)?;
            done(output, &format!("{identity} is {} now.", to.word()), &identity)
        }
        Verb::Check { permissions, on } => {
            let (_, resource_type, resource_id) = on.find(session)?;
            let asked =
                app::AuthorizedPermissions { resource_type: resource_type.to_owned(), resource_id, permissions };
            let request = app::CheckPermissionsRequest { permissions: vec![asked.clone()] };
            let told = session.ask("could not check the permissions", app_service::CHECK_PERMISSIONS, &request)?;
            let held: Vec<&String> = told.authorized_permissions.iter().flat_map(|one| &one.permissions).collect();
            if output.is_json() {
                return output.json(&told.authorized_permissions.first().map_or(json!({}), json_of));
            }
            let rows = asked.permissions.iter().map(|permission| {
                let held = if held.contains(&permission) { "yes" } else { "no" };
                [permission.clone(), held.to_owned()]
            });
            output.table(["permission", "held"], rows.collect())
        }
    }
}

/// Whose role it is.
fn of(session: &Session, identity: &str, role: app::Authorization) -> Result<app::Authorization, Failure> {
    let identity_id = user_id(session, identity)?;
    Ok(app::Authorization { identity_id, ..role })
}

fn done(output: &mut Output, sentence: &str, identity: &str) -> Result<(), Failure> {
    output.done(sentence, json!({"identity": identity}))
}
