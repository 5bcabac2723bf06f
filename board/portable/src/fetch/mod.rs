//! Fetching over HTTP on a thread of the pool: streaming, in bounded memory, within every limit it is given.
//!
//! Each fetch has an HTTP client of its own, which is how it can be interrupted without disturbing another one, and why
//! no connection stays open afterwards. All share one TLS configuration.

mod transfer;

#[cfg(test)]
mod tests;

use std::time::Duration;

use async_trait::async_trait;
use board::fetch::{Download, Downloaded, Fetch, FetchError, Progress, Reply};
use smol::future::FutureExt as _;
use ureq::{
    Agent,
    http::Uri,
    unversioned::transport::{ConnectProxyConnector, Connector as _, TcpConnector},
};
use web::{Names, Tls, proxy};

use self::transfer::{Job, Meter, Transfer};
use crate::work;

/// Redirects followed: a release on a mirror behind a balancer needs two or three.
const REDIRECTS_MAX: u32 = 5;
/// Time to find and reach a server; more would only delay the next attempt.
const CONNECT_MAX: Duration = Duration::from_secs(30);
/// Each buffer of a connection; the HTTP client's own default is 128 KiB.
const BUFFER_BYTES: usize = 16 * 1024;
/// Headers of an answer.
const HEADER_BYTES_MAX: usize = 16 * 1024;

/// Fetching over HTTP.
pub struct PortableFetch {
    user_agent: String,
    tls: Tls,
    /// Variables of the environment.
    environment: fn(&str) -> Option<String>,
}

impl PortableFetch {
    /// Reads nothing yet. `user_agent` is how the agent introduces itself: "platform-agent/1.2.3".
    #[must_use]
    pub const fn new(user_agent: String, tls: Tls) -> Self {
        PortableFetch { user_agent, tls, environment: |name| std::env::var(name).ok() }
    }

    fn agent(&self, url: &str, local: bool, stall: Duration, total: Duration) -> Result<Agent, FetchError> {
        let bad = || FetchError::BadUrl { url: shown(url) };
        let uri: Uri = url.parse().map_err(|_| bad())?;
        if !matches!(uri.scheme_str(), Some("http" | "https")) || uri.host().is_none_or(str::is_empty) {
            return Err(bad());
        }
        let (host, encrypted) = (uri.host().unwrap_or_default(), uri.scheme_str() == Some("https"));
        let proxy = if local { Ok(None) } else { proxy::from_environment(host, encrypted, self.environment) };
        let proxy = proxy.map_err(|error| FetchError::Unreachable { url: shown(url), reason: error.to_string() })?;
        let config = Agent::config_builder()
            .proxy(proxy)
            // What was asked for in private is not taken from a redirect to the open.
            .https_only(encrypted)
            .http_status_as_error(false)
            .max_redirects(if local { 0 } else { REDIRECTS_MAX })
            .max_redirects_will_error(!local)
            .user_agent(self.user_agent.as_str())
            .accept_encoding("identity")
            .timeout_connect(Some(CONNECT_MAX.min(total)))
            .timeout_per_read(Some(stall))
            .timeout_per_write(Some(stall))
            .timeout_global(Some(total))
            .input_buffer_size(BUFFER_BYTES)
            .output_buffer_size(BUFFER_BYTES)
            .max_response_header_size(HEADER_BYTES_MAX)
            .max_idle_connections(0)
            .build();
        let connector =
            ().chain(ConnectProxyConnector::default()).chain(TcpConnector::default()).chain(self.tls.clone());
        Ok(Agent::with_parts(config, connector, Names::default()))
    }
}

#[async_trait(?Send)]
impl Fetch for PortableFetch {
    async fn download(&self, what: &Download, progress: &Progress) -> Result<Downloaded, FetchError> {
        let agent = self.agent(&what.url, false, what.stall, what.total)?;
        let (meter, moved) = Meter::new();
        let job = Job { what: what.clone(), shown: shown(&what.url), meter: meter.clone() };
        let transfer = work::run(move |abandon| {
            abandon.covers(&agent);
            Transfer::new(&job, &agent, abandon).run()
        });
        let relay = async {
            while moved.recv().await.is_ok() {
                meter.show(progress);
            }
            std::future::pending().await
        };
        let downloaded = transfer.or(relay).await;
        meter.show(progress);
        downloaded
    }

    async fn get(&self, url: &str, local: bool, limit: Duration, bytes_max: usize) -> Result<Reply, FetchError> {
        let agent = self.agent(url, local, limit, limit)?;
        let url = url.to_owned();
        work::run(move |abandon| {
            abandon.covers(&agent);
            transfer::get(&agent, &url, &shown(&url), bytes_max)
        })
        .await
    }
}

/// The address for messages: without user name, password and query, which may be secret.
fn shown(url: &str) -> String {
    let end = url.find(['?', '#']).unwrap_or(url.len());
    let (url, _) = url.split_at_checked(end).unwrap_or((url, ""));
    match url.split_once("://").map(|(scheme, rest)| (scheme, rest.split_once('@'))) {
        Some((scheme, Some((user, rest)))) if !user.contains('/') => format!("{scheme}://…@{rest}"),
        _ => url.to_owned(),
    }
}
