//! The way up from a thing to its organization, for the authorization module.

use std::sync::Arc;

use super::{DbError, Tx};
use crate::authz::{Chain, Target};

/// Locations may lie this deep in each other; also ends a loop that no operation can make.
pub const NESTED_LOCATIONS_MAX: usize = 32;

/// A machine and the location it stands in.
pub type Place = (Arc<str>, Arc<str>);

/// Where a thing lies, itself included.
pub fn way_up(tx: &Tx<'_>, what: Target, id: &str) -> Result<Option<Chain>, DbError> {
    let parent = |sql, id: &str| tx.first(sql, &[id.into()], |row| Ok(Arc::<str>::from(row.str(0)?)));
    match what {
        Target::Organization => {
            let found = parent("SELECT id FROM organizations WHERE id = $1", id)?;
            Ok(found.map(of_organization))
        }
        Target::Fragment => {
            let found = parent("SELECT organization_id FROM fragments WHERE id = $1", id)?;
            Ok(found.map(of_organization))
        }
        Target::RegistryItem => {
            let found = parent("SELECT organization_id FROM registry_items WHERE id = $1", id)?;
            Ok(found.map(of_organization))
        }
        Target::Location => of_location(tx, id.into()),
        Target::Machine | Target::Part => {
            let Some((machine, location)) = place(tx, what, id)? else { return Ok(None) };
            Ok(of_location(tx, location)?.map(|above| Chain { machine: Some(machine), ..above }))
        }
    }
}

/// The machine that a part belongs to, or that a machine is, and the location it stands in; `None` for other things.
pub fn place(tx: &Tx<'_>, what: Target, id: &str) -> Result<Option<Place>, DbError> {
    let sql = match what {
        Target::Machine => "SELECT id, location_id FROM machines WHERE id = $1",
        Target::Part => {
            "SELECT m.id, m.location_id FROM parts p JOIN machines m ON m.id = p.machine_id WHERE p.id = $1"
        }
        Target::Organization | Target::Location | Target::Fragment | Target::RegistryItem => return Ok(None),
    };
    tx.first(sql, &[id.into()], |row| Ok((Arc::from(row.str(0)?), Arc::from(row.str(1)?))))
}

fn of_location(tx: &Tx<'_>, mut next: Arc<str>) -> Result<Option<Chain>, DbError> {
    let mut locations: Vec<Arc<str>> = Vec::new();
    let mut shared_with: Vec<Arc<str>> = Vec::new();
    loop {
        let sql = "SELECT organization_id, parent_id FROM locations WHERE id = $1";
        let Some((organization, parent)) =
            tx.first(sql, &[(&*next).into()], |row| Ok((Arc::<str>::from(row.str(0)?), row.maybe_text(1)?)))?
        else {
            return Ok(None);
        };
        let shares = "SELECT organization_id FROM location_shares WHERE location_id = $1";
        shared_with.extend(tx.all(shares, &[(&*next).into()], |row| Ok(Arc::<str>::from(row.str(0)?)))?);
        locations.push(next);
        match parent {
            Some(parent) if locations.len() < NESTED_LOCATIONS_MAX => next = parent.into(),
            _ => return Ok(Some(Chain { machine: None, locations, organization, shared_with })),
        }
    }
}

fn of_organization(organization: Arc<str>) -> Chain {
    Chain { machine: None, locations: Vec::new(), organization, shared_with: Vec::new() }
}
