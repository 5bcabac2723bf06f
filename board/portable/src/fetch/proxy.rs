//! Which way a request takes.
//!
//! The scheme of the address chooses the variable (`HTTPS_PROXY` or `HTTP_PROXY`, then `ALL_PROXY`), `NO_PROXY` names who
//! is reached directly, and this machine itself always is. The HTTP client's own reading takes the first variable it
//! finds, whatever the scheme, and ignores one that it cannot read.

use std::net::IpAddr;

use ureq::{Proxy, ProxyProtocol, http::Uri};

/// The proxy for an address, or what is wrong with the one in the environment. Its value may hold a password and is not
/// repeated.
pub(super) fn choose(uri: &Uri, environment: impl Fn(&str) -> Option<String>) -> Result<Option<Proxy>, String> {
    let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    if host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback()) {
        return Ok(None);
    }
    let set = |name: &'static str| {
        let value = environment(&name.to_ascii_lowercase()).or_else(|| environment(name));
        value.filter(|value| !value.trim().is_empty()).map(|value| (name, value))
    };
    let by_scheme = if uri.scheme_str() == Some("https") { "HTTPS_PROXY" } else { "HTTP_PROXY" };
    let Some((variable, value)) = set(by_scheme).or_else(|| set("ALL_PROXY")) else { return Ok(None) };
    if set("NO_PROXY").is_some_and(|(_, list)| is_exempt(host, &list)) {
        return Ok(None);
    }
    match Proxy::new(value.trim()) {
        Ok(proxy) if matches!(proxy.protocol(), ProxyProtocol::Http | ProxyProtocol::Https) => Ok(Some(proxy)),
        _ => Err(format!("the proxy in {variable} must look like http://proxy.example.com:3128")),
    }
}

/// `*`, names with everything below them, addresses.
fn is_exempt(host: &str, list: &str) -> bool {
    let host = host.to_ascii_lowercase();
    list.split(',').map(|entry| entry.trim().to_ascii_lowercase()).filter(|entry| !entry.is_empty()).any(|entry| {
        let name = entry.trim_start_matches("*.").trim_start_matches('.');
        entry == "*" || host == name || host.strip_suffix(name).is_some_and(|front| front.ends_with('.'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices() {
        type Set = &'static [(&'static str, &'static str)];
        let table: [(&str, &str, Set, Option<&str>); 9] = [
            ("nothing set", "https://f.example/a", &[], None),
            (
                "by scheme",
                "https://f.example/a",
                &[("HTTPS_PROXY", "http://p:1"), ("HTTP_PROXY", "http://q:1")],
                Some("p"),
            ),
            ("another scheme's", "http://f.example/a", &[("HTTPS_PROXY", "http://p:1")], None),
            ("lower case first", "http://f.example/a", &[("http_proxy", "q:1"), ("HTTP_PROXY", "p:1")], Some("q")),
            ("for all", "http://f.example/a", &[("ALL_PROXY", "http://p:1")], Some("p")),
            ("this machine", "http://127.0.0.1:8080/a", &[("ALL_PROXY", "http://p:1")], None),
            ("exempt", "http://f.example/a", &[("ALL_PROXY", "p:1"), ("NO_PROXY", "b, .example")], None),
            ("not exempt", "http://xf.example/a", &[("ALL_PROXY", "http://p:1"), ("NO_PROXY", "f.example")], Some("p")),
            ("all exempt", "http://f.example/a", &[("ALL_PROXY", "p:1"), ("NO_PROXY", "*")], None),
        ];
        for (case, uri, environment, expected) in table {
            let look = |name: &str| environment.iter().find(|(set, _)| *set == name).map(|(_, value)| (*value).into());
            let chosen = choose(&uri.parse().unwrap(), look).unwrap();
            assert_eq!(chosen.as_ref().map(Proxy::host), expected, "{case}");
        }
        let socks = |_: &str| Some("socks5://me:hunter2@p:1".to_owned());
        let error =
            choose(&"http://f.example".parse().unwrap(), |name| (name == "HTTP_PROXY").then(|| socks(name)).flatten());
        let error = error.unwrap_err();
        assert!(error.contains("HTTP_PROXY") && !error.contains("hunter2"), "{error}");
    }
}
