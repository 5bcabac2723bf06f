//! The program itself, as a process of its own that a test may kill.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Output, Stdio},
};

use api::pb::{
    platform::app::{
        agent::v1::{DeviceAgentConfigRequest, DeviceAgentConfigResponse},
        v1::{GetRobotPartLogsRequest, GetRobotPartLogsResponse},
    },
    proto::rpc::v1::{AuthenticateRequest, AuthenticateResponse, Credentials},
};
use tonic::{Status, transport::Channel};

use super::{Client, Owner, engine};

pub fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_platform-fleet"));
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Where everything is kept. Data folders that lie in one folder have one database, if it is PostgreSQL's.
pub fn place(data: &Path) -> Vec<String> {
    let mut arguments = vec!["--data".to_owned(), data.display().to_string()];
    if let Some(url) = engine::url(data.parent().unwrap()) {
        arguments.extend(["--database".to_owned(), url]);
    }
    arguments
}

/// Its exit code, and what it wrote.
pub fn run(arguments: &[&str]) -> (i32, String, String) {
    let Output { status, stdout, stderr } = program(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (status.code().unwrap_or(-1), text(stdout), text(stderr))
}

/// Id of an organization, id and secret of its owner's key.
pub type Keys = (String, String, String);

/// Makes an organization.
pub fn init(data: &Path) -> Keys {
    let output = program(&["init", "--org", "Acme", "--email", "owner@example.org", "--json"])
        .args(place(data))
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let (out, err) = (text(output.stdout), text(output.stderr));
    assert_eq!((output.status.code(), &*err), (Some(0), ""));
    keys(&out)
}

/// What `init --json` says.
pub fn keys(line: &str) -> Keys {
    let created: serde_json::Value = serde_json::from_str(line).unwrap();
    let field = |name: &str| created[name].as_str().unwrap().to_owned();
    (field("organization_id"), field("key_id"), field("key"))
}

/// What `serve --json` says first.
pub fn url(line: &str) -> String {
    let ready: serde_json::Value = serde_json::from_str(line).unwrap();
    ready["url"].as_str().unwrap().to_owned()
}

/// A server as its own process; killed when dropped.
pub struct Server {
    pub process: Child,
    pub url: String,
}

impl Server {
    pub fn start(data: &Path) -> Self {
        Self::start_with(data, |command| command.stderr(Stdio::null()))
    }

    /// For many calls at once: nothing of that is about limits.
    pub fn start_unlimited(data: &Path) -> Self {
        Self::start_with(data, |command| {
            let limits = ["--calls-per-key", "0", "--sign-in-failures-per-address", "0"];
            command.args(limits).stderr(Stdio::null())
        })
    }

    pub fn start_with(data: &Path, change: impl FnOnce(&mut Command) -> &mut Command) -> Self {
        let arguments = ["serve", "--json", "--listen", "127.0.0.1:0"];
        let mut command = program(&arguments);
        let mut process = change(command.args(place(data)).stdout(Stdio::piped())).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { process, url: url(&line) }
    }

    /// By SIGKILL, which it cannot do anything about.
    pub fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    pub async fn client(&self, key_id: &str, key: &str) -> Client {
        self.login("api-key", key_id, key).await
    }

    pub async fn login(&self, kind: &str, entity: &str, payload: &str) -> Client {
        login(&self.url, kind, entity, payload).await.unwrap()
    }

    pub async fn owner(&self, keys: &Keys) -> Owner {
        owner(&self.url, keys).await
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Signs in at whatever listens there.
pub async fn login(url: &str, kind: &str, entity: &str, payload: &str) -> Result<Client, Status> {
    let channel = Channel::from_shared(url.to_owned()).unwrap().connect().await;
    let channel = channel.map_err(|lost| Status::unavailable(lost.to_string()))?;
    let nobody = Client { channel, token: None };
    let credentials = Some(Credentials { r#type: kind.into(), payload: payload.into() });
    let request = AuthenticateRequest { entity: entity.into(), credentials };
    let reply: AuthenticateResponse = nobody.call("/proto.rpc.v1.AuthService/Authenticate", request).await?;
    Ok(Client { token: Some(reply.access_token), ..nobody })
}

/// By what [`init`] said, at whatever listens there.
pub async fn owner(url: &str, keys: &Keys) -> Owner {
    let (organization, key_id, key) = keys.clone();
    let client = login(url, "api-key", &key_id, &key).await.unwrap();
    Owner { organization, key_id, key, client }
}

impl Client {
    /// A device fetches what it is configured with, which is a sign of life.
    pub async fn check_in(&self, part: &str) -> DeviceAgentConfigResponse {
        let request = DeviceAgentConfigRequest { id: part.into(), ..DeviceAgentConfigRequest::default() };
        self.call("/platform.app.agent.v1.AgentDeviceService/DeviceAgentConfig", request).await.unwrap()
    }

    /// Every line of a part, newest first, page by page.
    pub async fn lines(&self, part: &str) -> Vec<String> {
        let (mut lines, mut token) = (Vec::new(), String::new());
        loop {
            let request = GetRobotPartLogsRequest {
                id: part.into(),
                page_token: Some(token),
                limit: Some(1000),
                ..Default::default()
            };
            let page: GetRobotPartLogsResponse = self.app("GetRobotPartLogs", request).await.unwrap();
            lines.extend(page.logs.into_iter().map(|entry| entry.message));
            token = page.next_page_token;
            if token.is_empty() {
                return lines;
            }
        }
    }
}
