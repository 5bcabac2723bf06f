//! The way up from a thing to its organization, for the authorization module.

use std::sync::Arc;

use super::{DbError, Tx};
use crate::authz::{Chain, Target};

/// Locations may lie this deep in each other; also ends a loop that no operation can make.
pub const NESTED_LOCATIONS_MAX: usize = 32;

/// Where a thing lies, itself included.
pub fn way_up(tx: &Tx<'_>, what: Target, id: &str) -> Result<Option<Chain>, DbError> {
    let parent = |sql, id: &str| tx.first(sql, &[id.into()], |row| Ok(Arc::<str>::from(row.str(0)?)));
    let (machine, location) = match what {
        Target::Organization => {
            let found = parent("SELECT id FROM organizations WHERE id = $1", id)?;
            return Ok(found.map(of_organization));
        }
        Target::Fragment => {
            let found = parent("SELECT organization_id FROM fragments WHERE id = $1", id)?;
            return Ok(found.map(of_organization));
        }
        Target::RegistryItem => {
            let found = parent("SELECT organization_id FROM registry_items WHERE id = $1", id)?;
            return Ok(found.map(of_organization));
        }
        Target::Location => (None, Some(Arc::from(id))),
        Target::Machine => (Some(Arc::from(id)), parent("SELECT location_id FROM machines WHERE id = $1", id)?),
        Target::Part => {
            let sql = "SELECT m.id, m.location_id FROM parts p JOIN machines m ON m.id = p.machine_id WHERE p.id = $1";
            let both = |row: &super::Row<'_>| Ok((Arc::from(row.str(0)?), Arc::from(row.str(1)?)));
            tx.first(sql, &[id.into()], both)?.unzip()
        }
    };
    let Some(mut next) = location else { return Ok(None) };
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
            _ => return Ok(Some(Chain { machine, locations, organization, shared_with })),
        }
    }
}

fn of_organization(organization: Arc<str>) -> Chain {
    Chain { machine: None, locations: Vec::new(), organization, shared_with: Vec::new() }
}
