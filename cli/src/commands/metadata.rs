//! `metadata`: a free-form object that people's programs keep with a resource. The server does not look into it.

use std::path::PathBuf;

use api::pb::platform::app::v1::{self as app, app_service};
use clap::{Args, Subcommand, ValueEnum};
use prost_types::Struct;
use serde_json::json;

use super::{fragment, read_text};
use crate::{
    failure::Failure,
    find,
    output::{Output, json_of_struct},
    session::Session,
};

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    Organization,
    Location,
    Machine,
    Part,
}

/// Whose metadata.
#[derive(Args)]
pub(crate) struct Of {
    /// Of what
    #[arg(value_enum)]
    kind: Kind,
    /// Name or id; may be left out if there is only one
    #[arg(long = "of", value_name = "NAME")]
    name: Option<String>,
}

#[derive(Subcommand)]
pub(crate) enum Verb {
    /// Show it
    Get(Of),
    /// Replace it as a whole
    Set {
        #[command(flatten)]
        of: Of,
        /// JSON file with an object; - reads standard input
        file: PathBuf,
    },
}

impl Of {
    fn id(&self, session: &Session) -> Result<String, Failure> {
        let name = self.name.as_deref();
        Ok(match self.kind {
            Kind::Organization => find::organization(session, name)?.id,
            Kind::Location => find::location(session, name)?.id,
            Kind::Machine => find::machine(session, name)?.id,
            Kind::Part => find::part(session, name)?.id,
        })
    }
}

pub(super) fn run(session: &Session, verb: Verb, output: &mut Output) -> Result<(), Failure> {
    match verb {
        Verb::Get(of) => {
            let data = get(session, of.kind, of.id(session)?)?.unwrap_or_default();
            output.json(&json_of_struct(&data))
        }
        Verb::Set { of, file } => {
            let data = fragment::checked(&read_text(&file)?)?;
            let id = of.id(session)?;
            set(session, of.kind, id.clone(), data)?;
            output.done("The metadata is changed.", json!({"id": id}))
        }
    }
}

fn get(session: &Session, kind: Kind, id: String) -> Result<Option<Struct>, Failure> {
    let doing = "could not read the metadata";
    Ok(match kind {
        Kind::Organization => {
            let request = app::GetOrganizationMetadataRequest { organization_id: id };
            session.ask(doing, app_service::GET_ORGANIZATION_METADATA, &request)?.data
        }
        Kind::Location => {
            let request = app::GetLocationMetadataRequest { location_id: id };
            session.ask(doing, app_service::GET_LOCATION_METADATA, &request)?.data
        }
        Kind::Machine => {
            session.ask(doing, app_service::GET_ROBOT_METADATA, &app::GetRobotMetadataRequest { id })?.data
        }
        Kind::Part => {
            session.ask(doing, app_service::GET_ROBOT_PART_METADATA, &app::GetRobotPartMetadataRequest { id })?.data
        }
    })
}

fn set(session: &Session, kind: Kind, id: String, data: Struct) -> Result<(), Failure> {
    let (doing, data) = ("could not change the metadata", Some(data));
    match kind {
        Kind::Organization => {
            let request = app::UpdateOrganizationMetadataRequest { organization_id: id, data };
            session.change(doing, app_service::UPDATE_ORGANIZATION_METADATA, &request).map(drop)
        }
        Kind::Location => {
            let request = app::UpdateLocationMetadataRequest { location_id: id, data };
            session.change(doing, app_service::UPDATE_LOCATION_METADATA, &request).map(drop)
        }
        Kind::Machine => {
            let request = app::UpdateRobotMetadataRequest { id, data };
            session.change(doing, app_service::UPDATE_ROBOT_METADATA, &request).map(drop)
        }
        Kind::Part => {
            let request = app::UpdateRobotPartMetadataRequest { id, data };
            session.change(doing, app_service::UPDATE_ROBOT_PART_METADATA, &request).map(drop)
        }
    }
}
