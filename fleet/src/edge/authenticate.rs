//! Which doors are open, and what the others ask for.

use http::{HeaderMap, header};

/// Whether a call needs a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Door {
    /// Answers anybody.
    Open,
    /// Answers who shows no token too, and says itself what for; a bad token is one all the same.
    Ajar,
    /// Answers callers with a good token, and everybody else UNAUTHENTICATED, whether the path exists or not.
    Closed,
}

/// Where secrets become tokens.
pub(super) const SIGN_IN: &str = "/proto.rpc.v1.AuthService/Authenticate";

/// By the path under which the operation is known here.
pub(super) fn door(path: &str) -> Door {
    match path {
        SIGN_IN => Door::Open,
        // A page shows what an application looks like before a person has signed in to it.
        "/platform.app.v1.AppService/GetAppContent" | "/platform.app.v1.AppService/GetAppBranding" => Door::Ajar,
        _ if path.starts_with("/grpc.health.v1.Health/") => Door::Open,
        _ => Door::Closed,
    }
}

/// The token of `authorization: Bearer TOKEN`, the word in any case.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}
