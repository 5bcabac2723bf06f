//! `GET /install.sh` and `GET /install/credentials`: how a bare device becomes one of this fleet.
//!
//! The script is the shipped one (packaging/linux/install.sh) with this server's address and the release keys of the
//! newest root in it. It verifies what it fetches with those keys, so that whoever keeps a copy of it is as safe from
//! this server as a device is. The credentials need an API key that may read the part's secret; everything else about
//! them is `GetPartCredentials`.

use std::net::IpAddr;

use api::{
    brand,
    pb::platform::fleet::v1::GetPartCredentialsRequest,
    releases::{RoleKeys, Root},
};
use http::{HeaderMap, HeaderValue, Response, Uri, header};
use tonic::{Status, body::Body};

use crate::{
    authn::Caller,
    context::Context,
    edge::{http_status, sentence},
    refusal::Refusal,
    services::{admin, login},
};

/// With `@WORDS@` to be filled in.
const SCRIPT: &str = include_str!("../../packaging/linux/install.sh");
/// Headers of the API key, in the names that existing installers send.
const KEY_ID: &str = "key_id";
const KEY: &str = "key";

/// The script, for everybody: nothing in it is secret.
pub fn script(context: &Context) -> Response<Body> {
    let Some(address) = context.address.as_deref() else {
        return sentence(
            503,
            "this server does not know under which address devices reach it: start it with --address URL\n",
        );
    };
    let catalog = context.releases.catalog();
    let Some(root) = catalog.root() else {
        return sentence(503, "this server has no releases yet: publish a root document and an agent first\n");
    };
    if !is_plain(address) {
        return sentence(503, "the address of this server has signs that no script should carry: change --address\n");
    }
    if !is_private(address) {
        return sentence(
            503,
            "this server's address is plain http, over which no API key and no script that is run as root may travel: \
             give it TLS, and its https address with --address\n",
        );
    }
    let mut answer = sentence(200, &filled_in(address, root));
    let kind = HeaderValue::from_static("text/x-shellscript; charset=utf-8");
    answer.headers_mut().insert(header::CONTENT_TYPE, kind);
    // A proxy that keeps an old one keeps old keys.
    answer.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    answer
}

/// The credentials file of a part, for the holder of an API key that may read its secret.
pub async fn credentials(context: &Context, headers: &HeaderMap, query: &str, from: IpAddr) -> Response<Body> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let (Some(key_id), Some(key)) = (text(KEY_ID), text(KEY)) else {
        return sentence(401, "give an API key in the headers key_id and key\n");
    };
    let part = query.split('&').find_map(|pair| pair.strip_prefix("part=")).unwrap_or_default();
    match find(context, key_id, key, part, from).await {
        Ok(file) => {
            let mut answer = sentence(200, &file);
            answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            answer.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
            answer
        }
        Err(refusal) => {
            let status = Status::from(refusal);
            sentence(http_status(status.code()), &format!("{}\n", status.message()))
        }
    }
}

async fn find(context: &Context, key_id: &str, key: &str, part: &str, from: IpAddr) -> Result<String, Refusal> {
    let token = login::token(context, &Caller::nobody(from), key_id, "api-key", key).await?;
    let caller = context.authn.caller(Some(&token), from).await?;
    let request = GetPartCredentialsRequest { part_id: part.to_owned() };
    Ok(admin::part_credentials(context, caller, request).await?.credentials_json)
}

/// Nothing that a shell gives a meaning to inside double quotes.
fn is_plain(address: &str) -> bool {
    address.bytes().all(|byte| byte.is_ascii_alphanumeric() || b":/._-[]".contains(&byte))
}

/// Whether what is sent there, and what comes from there, is nobody else's: https, or this very machine.
fn is_private(address: &str) -> bool {
    let Ok(uri) = address.parse::<Uri>() else { return false };
    let host = uri.host().unwrap_or_default();
    let loopback = host == "localhost"
        || host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    match uri.scheme_str() {
        Some("https") => !host.is_empty(),
        Some("http") => loopback,
        _ => false,
    }
}

fn filled_in(address: &str, root: &Root) -> String {
    SCRIPT
        .replace("@ADDRESS@", address.trim_end_matches('/'))
        .replace("@ROOT_NUMBER@", &root.version.to_string())
        .replace("@RELEASE_KEYS@", &keys(&root.release))
        .replace("@RELEASE_THRESHOLD@", &root.release.threshold.to_string())
        .replace("@CHANNEL_KEYS@", &keys(&root.channel))
        .replace("@CHANNEL_THRESHOLD@", &root.channel.threshold.to_string())
        .replace("@BRAND@", brand::NAME)
        .replace("@ENV@", brand::ENV_PREFIX)
        .replace("@AGENT@", brand::AGENT)
        .replace("@LAUNCHER@", brand::LAUNCHER)
        .replace("@CREDENTIALS@", brand::CREDENTIALS_FILE)
        .replace("@ROOT_FOLDER@", brand::ROOT_FOLDER)
}

/// `KEYID:KEY`, both in hexadecimal digits, separated by blanks.
fn keys(role: &RoleKeys) -> String {
    role.keys.iter().map(|key| format!("{}:{key}", key.id())).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use api::releases::Expires;

    use super::*;

    #[test]
    fn no_blank_is_left_in_the_script() {
        let key = "ab".repeat(32).parse().expect("a key");
        let role = || RoleKeys::new(1, [key]);
        let root = Root {
            version: 3,
            expires: Expires::parse("2030-01-01T00:00:00Z").expect("a time"),
            root: role(),
            release: role(),
            channel: role(),
        };
        let script = filled_in("https://fleet.example.com/", &root);
        assert!(script.starts_with("#!/bin/sh\n"), "{script}");
        assert!(script.contains("ADDRESS=\"https://fleet.example.com\"\n"), "{script}");
        assert!(script.contains(&format!(":{}", "ab".repeat(32))), "the key");
        let blank = |word: &str| word.len() > 2 && word.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
        let left: Vec<_> = script.split('@').skip(1).step_by(2).filter(|word| blank(word)).collect();
        assert_eq!(left, Vec::<&str>::new());
    }

    #[test]
    fn keys_travel_encrypted_or_not_at_all() {
        for good in ["https://fleet.example.com", "http://127.0.0.1:8080", "http://[::1]:8080", "http://localhost:8080"]
        {
            assert!(is_private(good), "{good}");
        }
        for bad in ["http://fleet.example.com", "http://192.168.1.5:8080", "http://127.0.0.1.example.com", "fleet", ""]
        {
            assert!(!is_private(bad), "{bad}");
        }
    }

    #[test]
    fn an_address_cannot_become_a_command() {
        for good in ["https://fleet.example.com", "http://127.0.0.1:8080", "https://[::1]:8443/fleet"] {
            assert!(is_plain(good), "{good}");
        }
        for bad in ["https://x\"; reboot; \"", "http://$(reboot)", "http://a b", "http://`x`", "http://x\n"] {
            assert!(!is_plain(bad), "{bad}");
        }
    }
}
