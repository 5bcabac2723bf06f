//! Whether a request goes through a proxy, as the environment says.
//!
//! The HTTP client's own reading takes the first variable it finds whatever the scheme, and ignores what it cannot parse:
//! traffic would then leave by a way nobody chose. Here the scheme chooses the variable, this machine itself is never
//! asked for through a proxy, and a value that cannot be used is an error.

use std::net::IpAddr;

use ureq::{Proxy, ProxyProtocol};

/// A proxy that cannot be used. The value is not repeated: it may contain a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the proxy in {place} cannot be used; it must look like http://proxy.example.com:3128")]
pub struct ProxyError {
    /// Which environment variable or setting.
    pub place: String,
}

/// `HTTPS_PROXY` or `HTTP_PROXY` by the scheme, else `ALL_PROXY`; not for hosts in `NO_PROXY`, never for this machine.
pub fn from_environment(
    host: &str,
    encrypted: bool,
    environment: impl Fn(&str) -> Option<String>,
) -> Result<Option<Proxy>, ProxyError> {
    if crate::is_loopback(host) {
        return Ok(None);
    }
    let set = |name: &str| {
        let lower = name.to_ascii_lowercase();
        [lower.as_str(), name].iter().find_map(|name| {
            environment(name).filter(|value| !value.trim().is_empty()).map(|value| ((*name).to_owned(), value))
        })
    };
    let by_scheme = if encrypted { "HTTPS_PROXY" } else { "HTTP_PROXY" };
    let Some((variable, value)) = set(by_scheme).or_else(|| set("ALL_PROXY")) else { return Ok(None) };
    if set("NO_PROXY").is_some_and(|(_, list)| is_exempt(crate::bare(host), &list)) {
        return Ok(None);
    }
    given(&value, &format!("the environment variable {variable}")).map(Some)
}

/// A proxy that was given in `place`, `http://[user:password@]host:port`.
pub fn given(value: &str, place: &str) -> Result<Proxy, ProxyError> {
    match Proxy::new(value.trim()) {
        // SOCKS is not built in.
        Ok(proxy) if matches!(proxy.protocol(), ProxyProtocol::Http | ProxyProtocol::Https) => Ok(proxy),
        _ => Err(ProxyError { place: place.to_owned() }),
    }
}

/// The usual reading of `NO_PROXY`: `*`, names with everything below them, IP addresses and networks.
fn is_exempt(host: &str, list: &str) -> bool {
    let host = host.to_ascii_lowercase();
    list.split(',').map(|entry| entry.trim().to_ascii_lowercase()).filter(|entry| !entry.is_empty()).any(|entry| {
        if entry == "*" {
            return true;
        }
        if let (Ok(ip), Some((network, bits))) = (host.parse(), entry.split_once('/')) {
            return network.parse().is_ok_and(|network| bits.parse().is_ok_and(|bits| contains(network, bits, ip)));
        }
        let name = entry.trim_start_matches("*.").trim_start_matches('.');
        host == name || host.strip_suffix(name).is_some_and(|front| front.ends_with('.'))
    })
}

fn contains(network: IpAddr, bits: u32, ip: IpAddr) -> bool {
    match (network, ip) {
        (IpAddr::V4(network), IpAddr::V4(ip)) if bits <= 32 => {
            let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
            network.to_bits() & mask == ip.to_bits() & mask
        }
        (IpAddr::V6(network), IpAddr::V6(ip)) if bits <= 128 => {
            let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
            network.to_bits() & mask == ip.to_bits() & mask
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Case, server, environment, proxy.
    type Row = (
        &'static str,
        &'static str,
        &'static [(&'static str, &'static str)],
        Result<Option<&'static str>, &'static str>,
    );

    #[test]
    fn choices() {
        let table: [Row; 14] = [
            ("nothing set", "https://f.example", &[], Ok(None)),
            ("https", "https://f.example", &[("HTTPS_PROXY", "http://p:1")], Ok(Some("p"))),
            (
                "lower case wins",
                "https://f.example",
                &[("HTTPS_PROXY", "http://p:1"), ("https_proxy", "http://q:1")],
                Ok(Some("q")),
            ),
            ("other scheme's variable", "http://f.example", &[("HTTPS_PROXY", "http://p:1")], Ok(None)),
            ("http", "http://f.example", &[("http_proxy", "p:1")], Ok(Some("p"))),
            ("all", "http://f.example", &[("ALL_PROXY", "http://p:1")], Ok(Some("p"))),
            ("empty is unset", "http://f.example", &[("http_proxy", "")], Ok(None)),
            ("this machine", "http://127.0.0.1:8080", &[("http_proxy", "p:1")], Ok(None)),
            ("exempt", "https://f.example", &[("HTTPS_PROXY", "p:1"), ("NO_PROXY", "a, .example")], Ok(None)),
            ("exempt network", "https://10.1.2.3", &[("HTTPS_PROXY", "p:1"), ("NO_PROXY", "10.0.0.0/8")], Ok(None)),
            (
                "another network",
                "https://11.1.2.3",
                &[("HTTPS_PROXY", "p:1"), ("NO_PROXY", "10.0.0.0/8")],
                Ok(Some("p")),
            ),
            (
                "not a suffix of labels",
                "https://xf.example",
                &[("HTTPS_PROXY", "p:1"), ("NO_PROXY", "f.example")],
                Ok(Some("p")),
            ),
            ("garbage", "https://f.example", &[("HTTPS_PROXY", "::::")], Err("the environment variable HTTPS_PROXY")),
            (
                "socks",
                "https://f.example",
                &[("HTTPS_PROXY", "socks5://p:1")],
                Err("the environment variable HTTPS_PROXY"),
            ),
        ];
        for (case, server, environment, expected) in table {
            let look =
                |name: &str| environment.iter().find(|(set, _)| *set == name).map(|(_, value)| (*value).to_owned());
            let uri: ureq::http::Uri = server.parse().unwrap();
            let chosen = from_environment(uri.host().unwrap(), uri.scheme_str() == Some("https"), look);
            let chosen =
                chosen.as_ref().map(|proxy| proxy.as_ref().map(|proxy| proxy.host())).map_err(|e| e.place.as_str());
            assert_eq!(chosen, expected, "{case}");
        }
    }
}
