//! Who is calling which server: the environment, else a stored profile.
//!
//! Never mixes the two: a key goes only to the server that it was given for.

use std::{env, io, path::PathBuf};

use api::{
    Secret, brand,
    client::{Address, CallOptions, Client, Credentials, Stream, Tls, Trust},
    method::{ClientStream, ServerStream, Unary},
};
use prost::Message;

use crate::{
    args::Global,
    failure::Failure,
    profiles::{Profile, Profiles},
};

/// A page of logs or the tree of an organization; the agent accepts less.
const MESSAGE_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// A server and the right to speak to it.
pub(crate) struct Session {
    pub(crate) client: Client,
    /// As given on the command line or in the environment.
    pub(crate) organization: Option<String>,
}

impl Session {
    pub(crate) fn open(global: &Global) -> Result<Self, Failure> {
        let profile = identity(global.profile.as_deref(), &|name| env::var(name).ok())?;
        let organization =
            global.organization.clone().or_else(|| variable(&|name| env::var(name).ok(), "ORGANIZATION"));
        Ok(Self { client: client(&profile)?, organization })
    }

    /// A question: asked again if the connection breaks.
    pub(crate) fn ask<Q, R>(&self, doing: &'static str, method: Unary<Q, R>, request: &Q) -> Result<R, Failure>
    where
        Q: Message,
        R: Message + Default,
    {
        self.client.unary(method, request, CallOptions::idempotent()).map_err(Failure::call(doing))
    }

    /// A change: said once.
    pub(crate) fn change<Q, R>(&self, doing: &'static str, method: Unary<Q, R>, request: &Q) -> Result<R, Failure>
    where
        Q: Message,
        R: Message + Default,
    {
        self.client.unary(method, request, CallOptions::default()).map_err(Failure::call(doing))
    }

    /// Answers as they come.
    pub(crate) fn follow<Q, R>(
        &self,
        doing: &'static str,
        method: ServerStream<Q, R>,
        request: &Q,
        options: CallOptions,
    ) -> Result<Stream<R>, Failure>
    where
        Q: Message,
        R: Message + Default,
    {
        self.client.server_stream(method, request, options).map_err(Failure::call(doing))
    }
}

impl Session {
    /// Many messages for one answer, as long as it takes: said once.
    pub(crate) fn send<Q, R>(
        &self,
        doing: &'static str,
        method: ClientStream<Q, R>,
        messages: impl IntoIterator<Item = io::Result<Q>>,
    ) -> Result<R, Failure>
    where
        Q: Message,
        R: Message + Default,
    {
        self.client.client_stream(method, messages, CallOptions::lasting()).map_err(Failure::call(doing))
    }
}

/// The client for a profile.
pub(crate) fn client(profile: &Profile) -> Result<Client, Failure> {
    let address: Address = profile.url.parse()?;
    let credentials = Credentials::ApiKey { id: profile.key_id.clone(), key: profile.key.clone() };
    let trust = profile.ca.clone().map_or(Trust::System, Trust::File);
    let builder = Client::builder(address)
        .credentials(credentials)
        .tls(Tls::new(trust, None))
        .message_bytes_max(MESSAGE_BYTES_MAX)
        .program(format!("{}-cli/{}", brand::NAME, env!("CARGO_PKG_VERSION")));
    Ok(builder.build()?)
}

type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

fn variable(environment: Environment<'_>, name: &str) -> Option<String> {
    environment(&format!("{}_{name}", brand::ENV_PREFIX)).filter(|value| !value.trim().is_empty())
}

/// A named profile wins; then a whole identity in the environment; then the current profile.
fn identity(named: Option<&str>, environment: Environment<'_>) -> Result<Profile, Failure> {
    if named.is_none() {
        let name = |name: &str| format!("{}_{name}", brand::ENV_PREFIX);
        let given = ["URL", "API_KEY_ID", "API_KEY"].map(|part| (part, variable(environment, part)));
        match &given {
            [(_, Some(url)), (_, Some(key_id)), (_, Some(key))] => {
                let ca = variable(environment, "CA").map(PathBuf::from);
                return Ok(Profile { url: url.clone(), key_id: key_id.clone(), key: Secret::from(key.as_str()), ca });
            }
            // Programs that only use the SDK set the key alone; that is no half identity for us.
            [(_, None), ..] => {}
            _ => {
                let missing: Vec<String> =
                    given.iter().filter(|(_, value)| value.is_none()).map(|(part, _)| name(part)).collect();
                return Err(Failure::Usage(format!(
                    "{} is set, but {} is not: set all three, or none and use a profile",
                    name("URL"),
                    missing.join(" and ")
                )));
            }
        }
    }
    let named = named.map(str::to_owned).or_else(|| variable(environment, "PROFILE"));
    let profiles = Profiles::load()?;
    match profiles.choose(named.as_deref())? {
        Some((_, profile)) => Ok(profile.clone()),
        None => Err(Failure::NotLoggedIn("you are not logged in to a fleet server".to_owned())),
    }
}
