//! A fleet server of its own, with an organization and an owner's key.

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use api::{
    Secret,
    client::{CallError, CallOptions, Client, Credentials},
    method::Unary,
};

use super::{Trouble, process::Running, programs};

/// An organization's owner, as `platform-fleet init` made it.
#[derive(Clone, Debug)]
pub struct Owner {
    /// Id of the organization.
    pub organization_id: String,
    /// Id of the API key.
    pub key_id: String,
    /// The API key.
    pub key: Secret,
}

/// A running fleet server.
pub struct Fleet {
    /// The process.
    pub process: Running,
    /// `http://127.0.0.1:PORT`
    pub url: String,
    /// Its data folder.
    pub data: PathBuf,
}

/// Creates an organization and its owner's key in a data folder; the server need not run.
pub fn init(data: &Path, database: Option<&str>) -> Result<Owner, Trouble> {
    let mut command = Command::new(programs::find("platform-fleet")?);
    command.args(["init", "--org", "Sandbox", "--email", "owner@example.com", "--json", "--data"]).arg(data);
    if let Some(database) = database {
        command.args(["--database", database]);
    }
    let output = command.output().map_err(|error| Trouble::of("could not run platform-fleet init", error))?;
    if !output.status.success() {
        return Err(Trouble::of("platform-fleet init", String::from_utf8_lossy(&output.stderr).trim()));
    }
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout)
        .map_err(|error| Trouble::of("platform-fleet init answered with something that is no JSON", error))?;
    let field = |name: &str| {
        let text = answer.get(name).and_then(serde_json::Value::as_str);
        text.map(str::to_owned).ok_or_else(|| Trouble(format!("platform-fleet init did not name {name}")))
    };
    Ok(Owner { organization_id: field("organization_id")?, key_id: field("key_id")?, key: Secret::new(field("key")?) })
}

impl Fleet {
    /// Starts a server on `listen` (port 0: any free one) and waits until it answers.
    pub fn start(data: &Path, listen: &str, database: Option<&str>, log: &Path) -> Result<Fleet, Trouble> {
        Self::start_with(data, listen, database, log, &[])
    }

    /// The same with further arguments.
    pub fn start_with(
        data: &Path,
        listen: &str,
        database: Option<&str>,
        log: &Path,
        arguments: &[&str],
    ) -> Result<Fleet, Trouble> {
        let mut command = Command::new(programs::find("platform-fleet")?);
        command.args(["serve", "--json", "--listen", listen, "--data"]).arg(data);
        if let Some(database) = database {
            command.args(["--database", database]);
        }
        command.args(arguments);
        let (process, line) = Running::start(command, "platform-fleet", log, true)?;
        let ready: serde_json::Value = serde_json::from_str(&line)
            .map_err(|_| Trouble(format!("platform-fleet did not start; it said:\n{line}\n{}", process.said())))?;
        let url = ready.get("url").and_then(serde_json::Value::as_str);
        let url = url.ok_or_else(|| Trouble(format!("platform-fleet did not say where it listens: {line}")))?;
        Ok(Fleet { process, url: url.to_owned(), data: data.to_owned() })
    }

    /// A client of the server for this owner.
    pub fn client(&self, owner: &Owner) -> Result<Client, Trouble> {
        client(&self.url, owner)
    }
}

/// A client of the server at `url` for this owner.
pub fn client(url: &str, owner: &Owner) -> Result<Client, Trouble> {
    let address = url.parse().map_err(|error| Trouble::of(url, error))?;
    let credentials = Credentials::ApiKey { id: owner.key_id.clone(), key: owner.key.clone() };
    Client::builder(address).credentials(credentials).build().map_err(|error| Trouble::of(url, error))
}

/// One call within twenty seconds.
pub fn call<Request, Response>(
    client: &Client,
    method: Unary<Request, Response>,
    request: &Request,
) -> Result<Response, Trouble>
where
    Request: prost::Message,
    Response: prost::Message + Default,
{
    try_call(client, method, request).map_err(|error| Trouble::of(method.path, error))
}

/// The same, with the error as the client gives it.
pub fn try_call<Request, Response>(
    client: &Client,
    method: Unary<Request, Response>,
    request: &Request,
) -> Result<Response, CallError>
where
    Request: prost::Message,
    Response: prost::Message + Default,
{
    client.unary(method, request, CallOptions::default().within(Duration::from_secs(20)))
}
