//! Exchange of a secret for a token: the one operation that asks for none.

use api::pb::proto::rpc::v1::{AuthenticateRequest, AuthenticateResponse};

use crate::{authn::Caller, context::Context, people, refusal::Refusal};

/// Authenticate.
pub async fn authenticate(
    context: &Context,
    caller: Caller,
    request: AuthenticateRequest,
) -> Result<AuthenticateResponse, Refusal> {
    let credentials = request
        .credentials
        .ok_or_else(|| Refusal::invalid("credentials", "is missing: its type and payload are needed"))?;
    let access_token = token(context, &caller, &request.entity, &credentials.r#type, &credentials.payload).await?;
    // What it brings is no part of the answer: whoever has the right key gets a token.
    if credentials.r#type == "api-key"
        && let Err(refusal) = people::signed_in(context, &request.entity, &access_token, caller.from()).await
    {
        tracing::warn!(why = refusal.message(), "could not write down that somebody signed in");
    }
    Ok(AuthenticateResponse { access_token })
}

/// A token for whoever knows the secret, however often others were wrong. Who is wrong too often has to wait.
pub async fn token(
    context: &Context,
    caller: &Caller,
    entity: &str,
    kind: &str,
    payload: &str,
) -> Result<String, Refusal> {
    match context.authn.authenticate(entity, kind, payload).await {
        Ok(token) => {
            context.throttle.late(context.throttle.signed_in(entity)).await?;
            Ok(token)
        }
        Err(refusal) if refusal.is_unauthenticated() => {
            context.throttle.late(context.throttle.sign_in_failed(caller.from(), entity)).await?;
            Err(refusal)
        }
        Err(refusal) => Err(refusal),
    }
}
