//! Which way calls take, as the caller chooses.

use web::{ProxyError, proxy};

use super::address::Address;
use crate::Secret;

/// Which way calls take.
#[derive(Clone, Debug, Default)]
pub enum ProxyChoice {
    /// `HTTPS_PROXY` or `HTTP_PROXY` by the server's scheme, else `ALL_PROXY`; not for hosts in `NO_PROXY`.
    #[default]
    Environment,
    /// Straight to the server.
    Direct,
    /// This one, `http://[user:password@]host:port`, wherever the server is.
    Through(Secret),
}

impl ProxyChoice {
    pub(super) fn resolve(&self, server: &Address) -> Result<Option<ureq::Proxy>, ProxyError> {
        match self {
            Self::Through(given) => proxy::given(given.expose(), "the settings").map(Some),
            Self::Direct => Ok(None),
            Self::Environment => {
                proxy::from_environment(server.host(), server.is_encrypted(), |name| std::env::var(name).ok())
            }
        }
    }
}
