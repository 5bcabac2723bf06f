//! A real server in this process, on real sockets and files, and clients of it.

#![allow(dead_code, unreachable_pub, reason = "every test file uses its own part of the world")]

pub mod engine;
pub mod http;
pub mod lines;
pub mod process;
pub mod things;

use std::time::Duration;

use api::pb::{
    platform::app::v1::*,
    proto::rpc::v1::{AuthenticateRequest, AuthenticateResponse, Credentials},
};
use bytes::{Buf, BufMut, Bytes};
use fleet::{
    init,
    operations::OPERATIONS,
    wiring::{self, Options, Running},
};
use prost::Message;
use tempfile::TempDir;
use tonic::{
    Code, Request, Status,
    client::Grpc,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
    codegen::http::uri::PathAndQuery,
    transport::Channel,
};

/// Longer than anything here takes on a loaded machine; only a hang reaches it.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub struct World {
    pub folder: TempDir,
    pub server: Running,
}

/// Somebody with a connection and perhaps a token.
#[derive(Clone)]
pub struct Client {
    pub channel: Channel,
    pub token: Option<String>,
}

/// An organization and its owner.
pub struct Owner {
    pub organization: String,
    pub key_id: String,
    pub key: String,
    pub client: Client,
}

impl World {
    pub async fn new() -> Self {
        Self::with(|_| {}).await
    }

    /// With other options than the usual ones.
    pub async fn with(change: impl FnOnce(&mut Options)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut options = options(&folder);
        change(&mut options);
        let server = wiring::start(options).await.unwrap();
        Self { folder, server }
    }

    /// The same files, another process as far as they are concerned.
    pub async fn restart(self) -> Self {
        let Self { folder, server } = self;
        server.stop().await;
        let server = wiring::start(options(&folder)).await.unwrap();
        Self { folder, server }
    }

    /// A server on the files of one that was stopped, with other options than the usual ones.
    pub async fn again(folder: TempDir, change: impl FnOnce(&mut Options)) -> Self {
        let mut options = options(&folder);
        change(&mut options);
        let server = wiring::start(options).await.unwrap();
        Self { folder, server }
    }

    pub async fn end(self) {
        self.server.stop().await;
    }

    pub async fn nobody(&self) -> Client {
        let channel = Channel::from_shared(format!("http://{}", self.server.address)).unwrap();
        Client { channel: channel.connect().await.unwrap(), token: None }
    }

    pub async fn login(&self, kind: &str, entity: &str, payload: &str) -> Result<Client, Status> {
        let mut client = self.nobody().await;
        let credentials = Some(Credentials { r#type: kind.into(), payload: payload.into() });
        let request = AuthenticateRequest { entity: entity.into(), credentials };
        let reply: AuthenticateResponse = client.call("/proto.rpc.v1.AuthService/Authenticate", request).await?;
        client.token = Some(reply.access_token);
        Ok(client)
    }

    pub async fn owner(&self, organization: &str) -> Owner {
        let created = init::organization(&self.server.context, organization, "owner@example.org").await.unwrap();
        let client = self.login("api-key", &created.key_id, &created.key).await.unwrap();
        Owner { organization: created.organization_id, key_id: created.key_id, key: created.key, client }
    }

    /// A key with one role, made by the owner.
    pub async fn key(&self, owner: &Owner, role: &str, kind: &str, resource: &str) -> Client {
        let made: CreateKeyResponse =
            owner.client.app("CreateKey", owner.key_request(role, kind, resource)).await.unwrap();
        self.login("api-key", &made.id, &made.key).await.unwrap()
    }
}

fn options(folder: &TempDir) -> Options {
    Options { folder: folder.path().join("data"), database: engine::database(folder.path()), ..Options::default() }
}

impl Owner {
    pub fn key_request(&self, role: &str, kind: &str, resource: &str) -> CreateKeyRequest {
        let authorization = Authorization {
            authorization_type: "role".into(),
            authorization_id: format!("{kind}_{role}"),
            resource_type: kind.into(),
            resource_id: resource.into(),
            identity_id: String::new(),
            organization_id: self.organization.clone(),
            identity_type: "api-key".into(),
        };
        CreateKeyRequest { authorizations: vec![authorization], name: format!("{kind} {role}") }
    }

    pub async fn location(&self, name: &str, parent: Option<&str>) -> String {
        let request = CreateLocationRequest {
            organization_id: self.organization.clone(),
            name: name.into(),
            parent_location_id: parent.map(Into::into),
        };
        let made: CreateLocationResponse = self.client.app("CreateLocation", request).await.unwrap();
        made.location.unwrap().id
    }

    pub async fn machine(&self, location: &str, name: &str) -> String {
        let request = NewRobotRequest { name: name.into(), location: location.into() };
        self.client.app::<_, NewRobotResponse>("NewRobot", request).await.unwrap().id
    }

    /// A fragment with nothing in it.
    pub async fn fragment(&self, name: &str, visibility: FragmentVisibility) -> String {
        let request = CreateFragmentRequest {
            name: name.into(),
            organization_id: self.organization.clone(),
            visibility: Some(visibility.into()),
            ..CreateFragmentRequest::default()
        };
        let made: CreateFragmentResponse = self.client.app("CreateFragment", request).await.unwrap();
        made.fragment.unwrap().id
    }

    pub async fn configure(&self, part: &RobotPart, json: &str) {
        let request = UpdateRobotPartRequest {
            id: part.id.clone(),
            name: part.name.clone(),
            robot_config_json: Some(json.into()),
            ..UpdateRobotPartRequest::default()
        };
        self.client.app::<_, UpdateRobotPartResponse>("UpdateRobotPart", request).await.unwrap();
    }

    pub async fn main_part(&self, machine: &str) -> RobotPart {
        let request = GetRobotPartsRequest { robot_id: machine.into() };
        let parts: GetRobotPartsResponse = self.client.app("GetRobotParts", request).await.unwrap();
        parts.parts.into_iter().find(|part| part.main_part).unwrap()
    }
}

impl Client {
    /// AppService, by our own name of it.
    pub async fn app<Q: Message, A: Message + Default>(&self, method: &str, request: Q) -> Result<A, Status> {
        self.call(&format!("/platform.app.v1.AppService/{method}"), request).await
    }

    pub async fn call<Q: Message, A: Message + Default>(&self, path: &str, request: Q) -> Result<A, Status> {
        let reply = self.raw(path, request.encode_to_vec().into()).await?;
        Ok(A::decode(reply).unwrap())
    }

    /// An answer that goes on, undecoded. It is open on the server when this returns.
    pub async fn stream<Q: Message>(&self, path: &str, request: Q) -> tonic::Streaming<Bytes> {
        self.try_stream(path, request).await.unwrap()
    }

    /// The same, where it may be refused.
    pub async fn try_stream<Q: Message>(&self, path: &str, request: Q) -> Result<tonic::Streaming<Bytes>, Status> {
        self.open(path, request.encode_to_vec().into()).await
    }

    /// Bytes in, bytes out: any operation, also those without a type here. Of one that streams nothing is read: what
    /// refuses it comes before it is open.
    pub async fn raw(&self, path: &str, message: Bytes) -> Result<Bytes, Status> {
        let mut replies = self.open(path, message).await?;
        let ours = path.replacen("/viam.", "/platform.", 1);
        if OPERATIONS.iter().any(|row| row.streams && row.path == ours) {
            return Ok(Bytes::new());
        }
        let answer = tokio::time::timeout(PATIENCE, replies.message()).await.expect("an end");
        Ok(answer?.unwrap_or_else(|| panic!("{path}: done, and no message")))
    }

    async fn open(&self, path: &str, message: Bytes) -> Result<tonic::Streaming<Bytes>, Status> {
        let mut request = Request::new(message);
        if let Some(token) = &self.token {
            request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
        }
        let mut grpc = Grpc::new(self.channel.clone());
        grpc.ready().await.map_err(|lost| Status::unavailable(lost.to_string()))?;
        let path: PathAndQuery = path.parse().unwrap();
        let call = grpc.server_streaming(request, path, Plain);
        Ok(tokio::time::timeout(PATIENCE, call).await.expect("an answer")?.into_inner())
    }
}

/// What the page for monitoring says of that name, labels included.
pub fn metric(server: &Running, name: &str) -> u64 {
    let context = &server.context;
    let page = context.metrics.text(&context.store, &context.throttle);
    let mut values = page.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    values.next().and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {name} in {page}"))
}

pub fn code<T: std::fmt::Debug>(result: Result<T, Status>) -> Code {
    match result {
        Ok(_) => Code::Ok,
        Err(status) => status.code(),
    }
}

/// No codec at all.
#[derive(Clone, Copy, Default)]
pub struct Plain;

impl Codec for Plain {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Plain {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put(item);
        Ok(())
    }
}

impl Decoder for Plain {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}
