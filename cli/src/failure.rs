//! Why a command did not do what it was asked, and what the person can do next.

use std::{io, path::PathBuf};

use api::{
    brand,
    client::{AddressError, CallError, Code, ProxyError},
};

/// Everything that ends a command early.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The command line asks for something that cannot be meant.
    #[error("{0}")]
    Usage(String),
    /// There is nobody to call as.
    #[error("{0}")]
    NotLoggedIn(String),
    /// The server refused, or could not be asked.
    #[error("{doing}: {source}")]
    Call {
        /// "could not read the part"
        doing: &'static str,
        source: Box<CallError>,
    },
    /// Nothing, or more than one thing, has the name that was given.
    #[error("{0}")]
    NotFound(String),
    /// The configuration would be one that the device refuses.
    #[error("{0}")]
    Configuration(String),
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("could not write the output: {0}")]
    Output(#[source] io::Error),
    /// A check that the person asked for found something; it has been printed already.
    #[error("{0}")]
    Found(String),
    #[error(transparent)]
    Address(#[from] AddressError),
    #[error(transparent)]
    Proxy(#[from] ProxyError),
}

impl Failure {
    pub(crate) fn call(doing: &'static str) -> impl FnOnce(CallError) -> Self {
        move |source| Self::Call { doing, source: Box::new(source) }
    }

    pub(crate) fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { path, source }
    }

    /// 2 where the command line is to blame, 1 for everything else.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) | Self::Address(_) => 2,
            _ => 1,
        }
    }

    pub(crate) fn is_closed_output(&self) -> bool {
        matches!(self, Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }

    /// The server's code, if it was asked at all.
    pub(crate) fn code(&self) -> Option<Code> {
        match self {
            Self::Call { source, .. } => Some(source.code()),
            _ => None,
        }
    }

    /// What to do, where the message alone does not say.
    pub(crate) fn hint(&self) -> Option<String> {
        let name = brand::NAME;
        match self {
            Self::NotLoggedIn(_) => Some(format!(
                "Log in with `{name} login --url URL --key-id ID`, or set {prefix}_URL, {prefix}_API_KEY_ID and {prefix}_API_KEY.",
                prefix = brand::ENV_PREFIX
            )),
            Self::Call { source, .. } if matches!(**source, CallError::CredentialsRefused { .. }) => {
                Some(format!("The key may have been rotated or deleted; log in again with `{name} login`."))
            }
            _ => match self.code()? {
                Code::PermissionDenied => {
                    Some("Ask an owner of the organization, or use a key with a higher role.".to_owned())
                }
                Code::Unimplemented => {
                    Some("This server does not offer the operation (yet); a newer one may.".to_owned())
                }
                Code::Aborted => {
                    Some("Somebody else changed it in the meantime: look at it again, then repeat.".to_owned())
                }
                _ => None,
            },
        }
    }
}
