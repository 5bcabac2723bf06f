//! Where a fleet server is: a checked URL without path.
//!
//! Decides by the scheme alone whether the connection is encrypted; a bare `host[:port]` means https. Refuses whatever
//! would be dropped silently later: paths, queries, user names.

use std::{fmt, str::FromStr};

use ureq::http::Uri;

/// Longest address that is looked at; longer ones are a mistake or an attack.
const ADDRESS_BYTES_MAX: usize = 512;

/// The address of a fleet server, for example `https://fleet.example.com` or `http://127.0.0.1:8080`.
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    /// `scheme://host[:port]`, without a slash at the end.
    base: String,
    host: String,
    encrypted: bool,
}

/// Why a text is not the address of a fleet server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// Nothing was given.
    #[error("no server address was given; it looks like https://fleet.example.com or http://127.0.0.1:8080")]
    Empty,
    /// A scheme that is not http or https.
    #[error("{0}:// is not a way to reach a fleet server; use https:// (or http:// within this machine)")]
    Scheme(String),
    /// Something behind the host, or a user name in front of it.
    #[error("the server address {address:?} must end after host and port: remove {extra}")]
    Extra {
        /// The address as given.
        address: String,
        /// What is too much.
        extra: &'static str,
    },
    /// Anything else.
    #[error("{0:?} is not a server address; it looks like https://fleet.example.com or http://127.0.0.1:8080")]
    Malformed(String),
}

impl Address {
    /// `scheme://host[:port]`, without a slash at the end.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// The name or IP address of the server, without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Whether the connection is TLS.
    pub fn is_encrypted(&self) -> bool {
        self.encrypted
    }

    /// Whether the server is this machine itself: such traffic never takes a proxy and needs no encryption.
    pub fn is_loopback(&self) -> bool {
        web::is_loopback(&self.host)
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let text = text.trim();
        if text.is_empty() {
            return Err(AddressError::Empty);
        }
        let malformed = || AddressError::Malformed(text.chars().take(80).collect());
        if text.len() > ADDRESS_BYTES_MAX {
            return Err(malformed());
        }
        let (scheme, rest) = text.split_once("://").unwrap_or(("https", text));
        let encrypted = match scheme.to_ascii_lowercase().as_str() {
            "https" => true,
            "http" => false,
            other => return Err(AddressError::Scheme(other.to_owned())),
        };
        let extra = |extra| AddressError::Extra { address: text.to_owned(), extra };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        for (mark, name) in [('@', "the user name"), ('?', "the query"), ('#', "the fragment"), ('/', "the path")] {
            if rest.contains(mark) {
                // A password may stand in front of the @: such an address is not repeated.
                return Err(if mark == '@' {
                    AddressError::Extra { address: "…@…".into(), extra: name }
                } else {
                    extra(name)
                });
            }
        }
        let scheme = if encrypted { "https" } else { "http" };
        let base = format!("{scheme}://{rest}");
        let uri = Uri::try_from(base.as_str()).map_err(|_| malformed())?;
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(malformed)?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let port_is_wrong = match rest.rsplit_once(':') {
            // The last colon of a bracketed IPv6 address stands within it.
            Some((_, port)) if !port.ends_with(']') => !port.parse::<u16>().is_ok_and(|port| port > 0),
            _ => false,
        };
        if port_is_wrong {
            return Err(malformed());
        }
        Ok(Self { base, host, encrypted })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.base)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.base)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let table = [
            // given                            base                           host            encrypted
            ("https://fleet.example.com", "https://fleet.example.com", "fleet.example.com", true),
            ("https://fleet.example.com:443/", "https://fleet.example.com:443", "fleet.example.com", true),
            ("HTTP://127.0.0.1:8080", "http://127.0.0.1:8080", "127.0.0.1", false),
            ("fleet.example.com:8443", "https://fleet.example.com:8443", "fleet.example.com", true),
            ("fleet", "https://fleet", "fleet", true),
            ("http://[::1]:8080", "http://[::1]:8080", "::1", false),
            ("http://[::1]", "http://[::1]", "::1", false),
            ("  http://a ", "http://a", "a", false),
        ];
        for (given, base, host, encrypted) in table {
            let address: Address = given.parse().unwrap_or_else(|error| panic!("{given}: {error}"));
            assert_eq!((address.base(), address.host(), address.is_encrypted()), (base, host, encrypted), "{given}");
        }
    }

    #[test]
    fn refusals() {
        let table = [
            ("", "no server address"),
            ("ftp://a", "ftp:// is not a way"),
            ("http://a/api", "remove the path"),
            ("http://a?x=1", "remove the query"),
            ("http://a#b", "remove the fragment"),
            ("http://me:hunter2@a", "remove the user name"),
            ("http://", "is not a server address"),
            ("http://a:b", "is not a server address"),
            ("http://a:0", "is not a server address"),
            ("http://a:70000", "is not a server address"),
            ("http://a b", "is not a server address"),
        ];
        for (given, message) in table {
            let error = given.parse::<Address>().expect_err(given).to_string();
            assert!(error.contains(message), "{given}: {error}");
            assert!(!error.contains("hunter2"), "{given}: {error}");
        }
    }

    #[test]
    fn loopback() {
        for (given, loopback) in [
            ("http://127.0.0.1:1", true),
            ("http://[::1]:1", true),
            ("http://localhost", true),
            ("http://10.0.0.1", false),
        ] {
            assert_eq!(given.parse::<Address>().unwrap().is_loopback(), loopback, "{given}");
        }
    }
}
