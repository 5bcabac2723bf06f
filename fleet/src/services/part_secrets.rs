//! Secrets of parts: what a device signs in with. Two at a time, so that one can be replaced without a gap.

use api::pb::platform::app::v1::{
    CreateRobotPartSecretRequest, CreateRobotPartSecretResponse, DeleteRobotPartSecretRequest,
    DeleteRobotPartSecretResponse, SharedSecret, shared_secret::State,
};

use super::parts;
use crate::{
    authn::{Caller, Sealer, digest_of},
    authz::right,
    clock::timestamp,
    context::Context,
    ids,
    refusal::Refusal,
    store::secrets::{self, Sealed},
};

/// CreateRobotPartSecret.
pub async fn create(
    context: &Context,
    caller: Caller,
    request: CreateRobotPartSecretRequest,
) -> Result<CreateRobotPartSecretResponse, Refusal> {
    let granted = context.authz.part::<right::WriteRobot>(&caller, &request.part_id).await?;
    let (fresh, now) = (Fresh::new(&context.authn.sealer), context.clock.now());
    let readable = granted.also().ok_or_else(|| Refusal::denied("read_robot_config"))?;
    context.store.write(move |tx| secrets::add_to_part(tx, &granted, &fresh.stored(), now)).await?;
    let part = parts::read(context, &readable).await?;
    Ok(CreateRobotPartSecretResponse { part: Some(part) })
}

/// DeleteRobotPartSecret.
pub async fn delete(
    context: &Context,
    caller: Caller,
    request: DeleteRobotPartSecretRequest,
) -> Result<DeleteRobotPartSecretResponse, Refusal> {
    let granted = context.authz.part::<right::WriteRobot>(&caller, &request.part_id).await?;
    let (secret, now) = (request.secret_id, context.clock.now());
    if !ids::is_id(&secret) {
        return Err(Refusal::malformed_id("secret", &secret).on("secret_id"));
    }
    context.store.write(move |tx| secrets::delete_of_part(tx, &granted, &secret, now)).await?;
    Ok(DeleteRobotPartSecretResponse {})
}

/// A new secret on its way into the store.
pub(crate) struct Fresh {
    id: String,
    digest: String,
    sealed: String,
}

impl Fresh {
    pub(crate) fn new(sealer: &Sealer) -> Self {
        let (id, secret) = (ids::new_id(), ids::new_secret());
        Self { digest: digest_of(&secret), sealed: sealer.seal(&id, &secret), id }
    }

    pub(crate) fn stored(&self) -> secrets::New<'_> {
        secrets::New { id: &self.id, digest: &self.digest, sealed: &self.sealed }
    }
}

/// For their owners. One that does not open (another server key was restored) is shown without its text, so that it
/// can be deleted.
pub(super) fn opened(sealer: &Sealer, sealed: Vec<Sealed>) -> Vec<SharedSecret> {
    let open = |sealed: Sealed| SharedSecret {
        secret: sealer.open(&sealed.id, &sealed.sealed).unwrap_or_default(),
        id: sealed.id,
        created_on: Some(timestamp(sealed.created_at)),
        state: State::Enabled.into(),
    };
    sealed.into_iter().map(open).collect()
}
