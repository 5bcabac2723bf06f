//! What every operation may use.

use std::{path::PathBuf, sync::Arc, time::Duration};

use api::Secret;
use tokio::sync::{Mutex, Semaphore, watch};

use crate::{
    artifacts::{Artifacts, trust::Trust},
    authn::Authn,
    authz::Authz,
    changes::Changes,
    clock::Clock,
    edge::{metrics::Metrics, proxy::Network, throttle::Throttle},
    limits::Waits,
    logs::Logs,
    mail::Mail,
    memory::Memory,
    presence::Presence,
    releases,
    services::configuration::Configurations,
    sign_in::SignIn,
    store::Store,
};

/// Handed to every operation. Made in `wiring.rs`.
pub struct Context {
    /// Everything that is kept.
    pub store: Store,
    /// Who is calling.
    pub authn: Arc<Authn>,
    /// May they.
    pub authz: Authz,
    /// What of the database is remembered, and forgotten when it changes.
    pub memory: Arc<Memory>,
    /// Which devices are there.
    pub presence: Arc<Presence>,
    /// Which configurations have to be composed again.
    pub changes: Arc<Changes>,
    /// What devices said.
    pub logs: Logs,
    /// Answers to devices that are still good.
    pub configurations: Configurations,
    /// How often devices ask.
    pub check_every: Duration,
    /// Whether callers may create organizations of their own; `init` always may.
    pub organizations_are_open: bool,
    /// Which versions there are.
    pub releases: releases::Watched,
    /// Taken by each upload under way.
    pub uploads: Semaphore,
    /// How long hardly anything may come of one of them.
    pub upload_idle: Duration,
    /// The bytes of uploads.
    pub artifacts: Arc<dyn Artifacts>,
    /// Which of them have been looked at.
    pub trust: Arc<Trust>,
    /// Held by who removes artifacts.
    pub sweeping: Mutex<()>,
    /// Of this run of this server, among those that share the database.
    pub server: String,
    /// The time.
    pub clock: Clock,
    /// What was done, counted.
    pub metrics: Metrics,
    /// How long callers are waited for, and wait.
    pub waits: Waits,
    /// How much each caller gets.
    pub throttle: Arc<Throttle>,
    /// Proxies in front, which say where a call really comes from.
    pub trusted_proxies: Vec<Network>,
    /// The data folder: databases, artifacts, signed documents.
    pub folder: PathBuf,
    /// How devices reach this server, for credentials files ("http://127.0.0.1:8080"). Unknown when it listens on every
    /// address and nobody said under which one it is reached.
    pub address: Option<String>,
    /// What opens `/metrics`; without, this machine itself and keys do.
    pub metrics_token: Option<Secret>,
    /// Sends invitations, if there is a mail server.
    pub mail: Option<Mail>,
    /// The identity provider, if there is one.
    pub sign_in: Option<SignIn>,
    /// Becomes true when the server is told to stop: open streams end.
    pub draining: watch::Receiver<bool>,
}
