//! Who may do what.
//!
//! A grant gives a *role* on a *resource*: an organization, a location or a machine. `policy` is one table that says
//! which of the 35 permissions a role gives at which level; `ancestry` knows what lies inside what. A caller may do
//! something to a part if one of its grants lies on the part's way up (machine, locations from the inner to the
//! outermost, organization, and organizations with which one of those locations is shared) and gives that permission.
//!
//! Example: Ann's key is operator of organization A and owner of location A/north. Asked for `write_robot` on a
//! machine in A/north/hall, the way up is machine → hall → north → A: operator on A does not give it, owner on north
//! does. For a machine in A/south only the operator's grant lies on the way: she sees it, so the answer is
//! PERMISSION_DENIED; for one in organization B nothing does, and the answer is NOT_FOUND.
//!
//! The answer "yes" is a value, [`Granted`], which only this module can make and which the store demands.

mod ancestry;
mod granted;
mod permissions;
mod policy;

#[cfg(test)]
mod matrix_test;

use std::sync::Arc;

pub use ancestry::{Ancestry, Chain};
pub use granted::{
    Fragment, Granted, Kind as TargetKind, Location, Machine, Organization, Part, RegistryItem, Target, right,
};
pub use permissions::{Permission, Permissions};
pub use policy::{Grant, Level, ResourceKind, Role, policy};

use crate::{
    authn::{Caller, Who},
    refusal::Refusal,
    store::Store,
};

/// Answers "may this caller".
#[derive(Clone)]
pub struct Authz {
    store: Store,
    ancestry: Arc<Ancestry>,
}

impl Authz {
    /// Over the state database and what is known of its tree.
    pub fn new(store: Store, ancestry: Arc<Ancestry>) -> Self {
        Self { store, ancestry }
    }

    /// May the caller do `R` to this organization?
    pub async fn organization<R: right::Right>(
        &self,
        caller: &Caller,
        id: &str,
    ) -> Result<Granted<Organization, R>, Refusal> {
        self.granted(caller, id).await
    }

    /// May the caller do `R` to this location?
    pub async fn location<R: right::Right>(&self, caller: &Caller, id: &str) -> Result<Granted<Location, R>, Refusal> {
        self.granted(caller, id).await
    }

    /// May the caller do `R` to this machine?
    pub async fn machine<R: right::Right>(&self, caller: &Caller, id: &str) -> Result<Granted<Machine, R>, Refusal> {
        self.granted(caller, id).await
    }

    /// May the caller do `R` to this part?
    pub async fn part<R: right::Right>(&self, caller: &Caller, id: &str) -> Result<Granted<Part, R>, Refusal> {
        self.granted(caller, id).await
    }

    /// May the caller do `R` to this fragment? (A public one is readable without asking.)
    pub async fn fragment<R: right::Right>(&self, caller: &Caller, id: &str) -> Result<Granted<Fragment, R>, Refusal> {
        self.granted(caller, id).await
    }

    /// May the caller do `R` to this registry item? (A public one is readable without asking.)
    pub async fn registry_item<R: right::Right>(
        &self,
        caller: &Caller,
        id: &str,
    ) -> Result<Granted<RegistryItem, R>, Refusal> {
        self.granted(caller, id).await
    }

    /// May the caller fetch what this organization keeps to itself for its machines to run?
    ///
    /// Devices of its machines, keys that may control one of these, and whoever holds `read_packages`.
    pub async fn runs_packages_of(&self, caller: &Caller, organization: &str) -> Result<bool, Refusal> {
        let lies_there = async |what, id: &str| {
            let chain = self.ancestry.of(&self.store, what, id).await?;
            Ok::<_, Refusal>(chain.filter(|chain| *chain.organization == *organization))
        };
        match caller.who() {
            Who::Part { part } => Ok(lies_there(Target::Part, part).await?.is_some()),
            Who::LocationSecret { part, location } => {
                Ok(lies_there(Target::Part, part).await?.is_some_and(|chain| chain.passes(Target::Location, location)))
            }
            Who::ApiKey { grants, .. } => {
                for grant in grants {
                    let Some(chain) = lies_there(grant.kind.target(), &grant.resource).await? else { continue };
                    let of_machines = |level| policy(grant.role, level, Target::Machine);
                    if chain.level_of(grant).is_some_and(|level| of_machines(level).contains(Permission::ControlRobot))
                    {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Who::Local => Ok(true),
            Who::Nobody => Ok(false),
        }
    }

    /// Is the caller this part's device, or somebody who may act as it?
    ///
    /// The part's own secret, a secret of a location it lies in, or an API key: one with a role on this very machine, or
    /// one that may write it. What a device reads holds passwords, and what it says is believed: an operator of more
    /// than the machine looks at both, and is shown them without.
    pub async fn device(&self, caller: &Caller, part: &str) -> Result<Granted<Part, right::ActAsDevice>, Refusal> {
        let chain = self.ancestry.of(&self.store, Target::Part, part).await?;
        let chain = chain.ok_or_else(|| Refusal::not_found(Target::Part.word(), part))?;
        let may = match caller.who() {
            Who::Part { part: own } => own == part,
            Who::LocationSecret { part: own, location } => own == part && chain.passes(Target::Location, location),
            Who::ApiKey { grants, .. } => {
                let granted: Granted<Part, right::ActAsDevice> = self.granted(caller, part).await?;
                let of_machine = grants.iter().any(|grant| chain.level_of(grant) == Some(Level::Machine));
                if of_machine || granted.permissions().contains(Permission::WriteRobot) {
                    return Ok(granted);
                }
                return Err(Refusal::forbidden(
                    "device calls are for the device: sign in with a secret of the part, or with a key that has a role \
                     on the machine itself",
                ));
            }
            Who::Local => true,
            Who::Nobody => false,
        };
        if !may {
            return Err(Refusal::not_found(Target::Part.word(), part));
        }
        Ok(Granted::new(part, chain, caller.clone()))
    }

    /// All permissions of the caller on a resource; `None` if it may not even know that the resource exists.
    pub async fn permissions(&self, caller: &Caller, on: Target, id: &str) -> Result<Option<Permissions>, Refusal> {
        let Some(chain) = self.ancestry.of(&self.store, on, id).await? else { return Ok(None) };
        let permissions = permitted(caller, on, &chain);
        Ok((!permissions.is_empty() || self.sees(caller, on, id, &chain).await?).then_some(permissions))
    }

    /// Where a resource lies.
    pub async fn chain(&self, on: Target, id: &str) -> Result<Option<Arc<Chain>>, Refusal> {
        self.ancestry.of(&self.store, on, id).await
    }

    async fn granted<T: granted::Kind, R: right::Right>(
        &self,
        caller: &Caller,
        id: &str,
    ) -> Result<Granted<T, R>, Refusal> {
        let chain = self.ancestry.of(&self.store, T::TARGET, id).await?;
        let chain = chain.ok_or_else(|| Refusal::not_found(T::TARGET.word(), id))?;
        if permitted(caller, T::TARGET, &chain).contains(R::PERMISSION) {
            return Ok(Granted::new(id, chain, caller.clone()));
        }
        if self.sees(caller, T::TARGET, id, &chain).await? {
            Err(Refusal::denied(R::PERMISSION.word()))
        } else {
            Err(Refusal::not_found(T::TARGET.word(), id))
        }
    }

    /// Whether the caller knows that the resource exists: it has a grant on it, above it or below it.
    async fn sees(&self, caller: &Caller, on: Target, id: &str, chain: &Chain) -> Result<bool, Refusal> {
        if !permitted(caller, on, chain).is_empty() {
            return Ok(true);
        }
        let below: Vec<(Target, &str)> = match caller.who() {
            Who::ApiKey { grants, .. } => grants.iter().map(|grant| (grant.kind.target(), &*grant.resource)).collect(),
            Who::Part { part } => vec![(Target::Part, part)],
            Who::LocationSecret { part, location } => {
                // Of a part that has left the location the secret says nothing any more.
                let chain = self.ancestry.of(&self.store, Target::Part, part).await?;
                let lies_there = chain.is_some_and(|chain| chain.passes(Target::Location, location));
                if lies_there { vec![(Target::Part, part)] } else { Vec::new() }
            }
            Who::Local => return Ok(true),
            Who::Nobody => return Ok(false),
        };
        for (kind, resource) in below {
            if (kind, resource) == (on, id) {
                return Ok(true);
            }
            if let Some(way_up) = self.ancestry.of(&self.store, kind, resource).await?
                && way_up.passes(on, id)
            {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// The permissions that the caller's grants give on a resource with this way up.
fn permitted(caller: &Caller, on: Target, chain: &Chain) -> Permissions {
    match caller.who() {
        Who::ApiKey { grants, .. } => grants
            .iter()
            .filter_map(|grant| Some(policy(grant.role, chain.level_of(grant)?, on)))
            .fold(Permissions::NONE, Permissions::with),
        Who::Local => Permissions::ALL,
        Who::Part { .. } | Who::LocationSecret { .. } | Who::Nobody => Permissions::NONE,
    }
}
