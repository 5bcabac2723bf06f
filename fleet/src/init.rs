//! `platform-fleet init`: the first organization, and the key of its owner.
//!
//! A command on the server itself: whoever may write the data folder owns everything in it anyway.

use crate::{
    authn::{Caller, digest_of},
    authz::{Grant, ResourceKind, Role},
    context::Context,
    ids,
    refusal::Refusal,
    services::input,
    store::{keys, organizations},
};

/// Shown once; of the key nothing readable is kept.
pub struct Created {
    /// Of the organization.
    pub organization_id: String,
    /// Of the key.
    pub key_id: String,
    /// The key.
    pub key: String,
}

/// Creates an organization and an owner key named after `email`.
pub async fn organization(context: &Context, name: &str, email: &str) -> Result<Created, Refusal> {
    let (name, email) = (input::name("--org", name)?, input::email("--email", email)?);
    let created = Created { organization_id: ids::new_id(), key_id: ids::new_id(), key: ids::new_secret() };
    let (organization, key_id) = (created.organization_id.clone(), created.key_id.clone());
    let (digest, now) = (digest_of(&created.key), context.clock.now());
    let work = context.store.write::<_, Refusal>(move |tx| {
        let local = Caller::local();
        organizations::create(tx, &local, &organization, &name, now)?;
        let grants = [Grant {
            role: Role::Owner,
            kind: ResourceKind::Organization,
            resource: (&*organization).into(),
            organization: (&*organization).into(),
        }];
        let new = keys::New { id: &key_id, name: &email, digest: &digest, grants: &grants };
        Ok(keys::create_first(tx, &local, &organization, &new, now)?)
    });
    work.await?;
    Ok(created)
}
