//! Exchange of a secret for a token: the one operation that asks for none.

use api::pb::proto::rpc::v1::{AuthenticateRequest, AuthenticateResponse};

use crate::{authn::Caller, context::Context, refusal::Refusal};

/// Authenticate.
pub async fn authenticate(
    context: &Context,
    _: Caller,
    request: AuthenticateRequest,
) -> Result<AuthenticateResponse, Refusal> {
    let credentials =
        request.credentials.ok_or_else(|| Refusal::invalid("credentials", "type and payload are needed"))?;
    let access_token = context.authn.authenticate(&request.entity, &credentials.r#type, &credentials.payload).await?;
    Ok(AuthenticateResponse { access_token })
}
