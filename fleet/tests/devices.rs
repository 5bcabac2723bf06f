//! Devices against the real server in this process: real sockets, real databases in a temporary folder.

#[path = "world/engine.rs"]
mod engine;

#[path = "devices/configuration.rs"]
mod configuration;
#[path = "devices/lines.rs"]
mod lines;
#[path = "devices/tails.rs"]
mod tails;
#[path = "devices/wishes.rs"]
mod wishes;

use std::time::Duration;

use api::{
    brand,
    pb::{
        platform::{
            app::{
                agent::v1::{DeviceAgentConfigRequest, DeviceAgentConfigResponse, HostInfo},
                v1::*,
            },
            common::v1::LogEntry,
            fleet::v1::*,
        },
        proto::rpc::v1::{AuthenticateRequest, AuthenticateResponse, Credentials},
    },
    releases::{Artifact, Channel, ChannelEntry, Expires, Release, RoleKeys, Root, sign, sign::SigningKey},
};
use fleet::{
    authn::digest_of,
    clock::{Clock, timestamp},
    releases::Folder,
    store::{
        DbError, Tx,
        news::{self, News},
    },
    wiring::{self, Options, Running},
};
use prost_types::value::Kind;
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tonic::{Code, Request, Status, client::Grpc, codegen::http::uri::PathAndQuery, transport::Channel as Connection};
use tonic_prost::ProstCodec;

const ORGANIZATION: &str = "00000000-0000-4000-8000-000000000001";
const OTHER_ORGANIZATION: &str = "00000000-0000-4000-8000-000000000002";
const LOCATION: &str = "00000000-0000-4000-8000-000000000003";
const MACHINE: &str = "00000000-0000-4000-8000-000000000004";
const PART: &str = "00000000-0000-4000-8000-000000000005";
const OTHER_PART: &str = "00000000-0000-4000-8000-000000000006";
const OWNER: &str = "00000000-0000-4000-8000-000000000007";
const OPERATOR: &str = "00000000-0000-4000-8000-000000000008";
const STRANGER: &str = "00000000-0000-4000-8000-000000000009";

/// Longer than anything here takes on a loaded machine; only a hang reaches it.
const PATIENCE: Duration = Duration::from_secs(60);

struct World {
    server: Running,
    folder: TempDir,
}

/// Somebody with a token and a connection.
#[derive(Clone)]
struct Client {
    connection: Connection,
    token: String,
}

impl World {
    async fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let server = Self::start(&folder).await;
        let world = Self { server, folder };
        world.sql(people_and_places).await;
        world
    }

    async fn start(folder: &TempDir) -> Running {
        let options = Options {
            listen: "127.0.0.1:0".parse().expect("an address"),
            folder: folder.path().join("data"),
            database: engine::database(folder.path()),
            address: Some("http://fleet.test".into()),
            ..Options::default()
        };
        wiring::start(options).await.expect("starts")
    }

    async fn sql(&self, work: impl FnOnce(&Tx<'_>) -> Result<(), fleet::store::DbError> + Send + 'static) {
        self.server.context.store.write(work).await.expect("writes");
        self.server.context.changes.part(PART);
        self.server.context.changes.shared();
    }

    async fn configure(&self, config: serde_json::Value) {
        let text = config.to_string();
        self.sql(move |tx| {
            tx.run("UPDATE parts SET config = $2 WHERE id = $1", &[PART.into(), (&text).into()]).map(drop)
        })
        .await;
    }

    async fn fragment(&self, id: &'static str, organization: &'static str, visibility: i64, config: serde_json::Value) {
        let text = config.to_string();
        self.sql(move |tx| {
            let sql = "INSERT INTO fragments (id, organization_id, name, visibility, config, revision, updated_at, created_at)
                       VALUES ($1, $2, $1, $3, $4, '1', 1, 1)";
            tx.run(sql, &[id.into(), organization.into(), visibility.into(), (&text).into()]).map(drop)
        })
        .await;
    }

    async fn client(&self, entity: &str, kind: &str, payload: &str) -> Client {
        let connection = Connection::from_shared(format!("http://{}", self.server.address)).expect("an address");
        let connection = connection.connect().await.expect("connects");
        let mut client = Client { connection, token: String::new() };
        let credentials = Some(Credentials { r#type: kind.into(), payload: payload.into() });
        let request = AuthenticateRequest { entity: entity.into(), credentials };
        let answer: AuthenticateResponse =
            client.call("proto.rpc.v1.AuthService/Authenticate", request).await.expect("a token");
        client.token = answer.access_token;
        client
    }

    /// Plain HTTP, as a downloader speaks it.
    async fn http(&self, request: &str) -> String {
        let mut stream = tokio::net::TcpStream::connect(self.server.address).await.expect("connects");
        stream.write_all(request.as_bytes()).await.expect("writes");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("reads");
        answer
    }

    async fn device(&self) -> Client {
        self.client(PART, "robot-secret", "part secret").await
    }

    async fn owner(&self) -> Client {
        self.client(OWNER, "api-key", "owner secret").await
    }

    async fn stop(self) -> TempDir {
        self.server.stop().await;
        self.folder
    }
}

fn people_and_places(tx: &Tx<'_>) -> Result<(), fleet::store::DbError> {
    for organization in [ORGANIZATION, OTHER_ORGANIZATION] {
        let sql = "INSERT INTO organizations (id, name, region, created_at) VALUES ($1, $1, '', 1)";
        tx.run(sql, &[organization.into()])?;
    }
    let sql = "INSERT INTO locations (id, organization_id, name, region, created_at) VALUES ($1, $2, 'hall', '', 1)";
    tx.run(sql, &[LOCATION.into(), ORGANIZATION.into()])?;
    let sql = "INSERT INTO machines (id, location_id, name, created_at) VALUES ($1, $2, 'machine', 1)";
    tx.run(sql, &[MACHINE.into(), LOCATION.into()])?;
    for (part, main) in [(PART, 1_i64), (OTHER_PART, 0)] {
        let sql = "INSERT INTO parts (id, machine_id, name, dns_name, main, config, updated_at, created_at)
                   VALUES ($1, $2, $1, $1, $3, '{}', 1, 1)";
        tx.run(sql, &[part.into(), MACHINE.into(), main.into()])?;
    }
    let secret = |id: &str, part: &str, secret: &str| {
        let sql = "INSERT INTO part_secrets (id, part_id, digest, sealed, created_at) VALUES ($1, $2, $3, '', 1)";
        tx.run(sql, &[id.into(), part.into(), (&digest_of(secret)).into()])
    };
    secret("00000000-0000-4000-8000-0000000000a1", PART, "part secret")?;
    secret("00000000-0000-4000-8000-0000000000a2", OTHER_PART, "other secret")?;
    let keys = [
        (OWNER, ORGANIZATION, "owner secret", "owner", "organization", ORGANIZATION),
        (OPERATOR, ORGANIZATION, "operator secret", "operator", "robot", MACHINE),
        (STRANGER, OTHER_ORGANIZATION, "stranger secret", "owner", "organization", OTHER_ORGANIZATION),
    ];
    for (id, organization, secret, role, kind, resource) in keys {
        let sql = "INSERT INTO api_keys (id, organization_id, name, digest, generation, created_at)
                   VALUES ($1, $2, $1, $3, 1, 1)";
        tx.run(sql, &[id.into(), organization.into(), (&digest_of(secret)).into()])?;
        let sql = "INSERT INTO grants (identity_type, identity_id, organization_id, role, resource_type, resource_id, created_at)
                   VALUES ('api-key', $1, $2, $3, $4, $5, 1)";
        tx.run(sql, &[id.into(), organization.into(), role.into(), kind.into(), resource.into()])?;
    }
    Ok(())
}

impl Client {
    fn request<Q>(&self, message: Q) -> Request<Q> {
        let mut request = Request::new(message);
        if !self.token.is_empty() {
            let bearer = format!("Bearer {}", self.token).parse().expect("a header value");
            request.metadata_mut().insert("authorization", bearer);
        }
        request
    }

    async fn grpc(&self) -> Grpc<Connection> {
        let mut grpc = Grpc::new(self.connection.clone());
        grpc.ready().await.expect("a connection");
        grpc
    }

    async fn call<Q, A>(&self, path: &str, message: Q) -> Result<A, Status>
    where
        Q: prost::Message + 'static,
        A: prost::Message + Default + 'static,
    {
        let path = PathAndQuery::try_from(format!("/{path}")).expect("a path");
        let answer = self.grpc().await.unary(self.request(message), path, ProstCodec::<Q, A>::default()).await?;
        Ok(answer.into_inner())
    }

    async fn config(&self) -> Result<DeviceAgentConfigResponse, Status> {
        let host_info = Some(HostInfo { platform: "linux/amd64".into(), ..HostInfo::default() });
        let request = DeviceAgentConfigRequest { id: PART.into(), host_info, ..DeviceAgentConfigRequest::default() };
        self.call("platform.app.agent.v1.AgentDeviceService/DeviceAgentConfig", request).await
    }

    async fn robot_config(&self) -> Result<ConfigResponse, Status> {
        let request = ConfigRequest { id: PART.into(), agent_info: None };
        self.call("viam.app.v1.RobotService/Config", request).await
    }

    async fn log(&self, part: &str, logs: Vec<LogEntry>) -> Result<LogResponse, Status> {
        self.call("platform.app.v1.RobotService/Log", LogRequest { id: part.into(), logs }).await
    }

    async fn upload(&self, batch_number: u64, logs: Vec<LogEntry>) -> Result<u64, Status> {
        let request = UploadLogsRequest { part_id: PART.into(), spool_id: "spool".into(), batch_number, logs };
        let answer: UploadLogsResponse = self.call("platform.fleet.v1.DeviceService/UploadLogs", request).await?;
        Ok(answer.acknowledged)
    }

    async fn logs(&self, request: GetRobotPartLogsRequest) -> Result<GetRobotPartLogsResponse, Status> {
        let request = GetRobotPartLogsRequest { id: PART.into(), ..request };
        self.call("platform.app.v1.AppService/GetRobotPartLogs", request).await
    }

    async fn must_restart(&self) -> bool {
        let request = NeedsRestartRequest { id: PART.into() };
        let answer: NeedsRestartResponse =
            self.call("platform.app.v1.RobotService/NeedsRestart", request).await.expect("answers");
        assert_eq!((answer.id.as_str(), answer.restart_check_interval.is_some()), (PART, true));
        answer.must_restart
    }

    async fn report(&self, status: DeviceStatus) -> Result<ReportResponse, Status> {
        self.report_with(ReportRequest { status: Some(status), ..ReportRequest::default() }).await
    }

    async fn report_with(&self, request: ReportRequest) -> Result<ReportResponse, Status> {
        let request = ReportRequest { part_id: PART.into(), ..request };
        self.call("platform.fleet.v1.DeviceService/Report", request).await
    }

    async fn status(&self) -> GetPartStatusResponse {
        let request = GetPartStatusRequest { part_id: PART.into() };
        self.call("platform.fleet.v1.AdminService/GetPartStatus", request).await.expect("answers")
    }

    async fn tail(&self, errors_only: bool) -> Result<tonic::Streaming<TailRobotPartLogsResponse>, Status> {
        let path = PathAndQuery::from_static("/platform.app.v1.AppService/TailRobotPartLogs");
        let request = TailRobotPartLogsRequest { id: PART.into(), errors_only, filter: None };
        let codec = ProstCodec::<TailRobotPartLogsRequest, TailRobotPartLogsResponse>::default();
        Ok(self.grpc().await.server_streaming(self.request(request), path, codec).await?.into_inner())
    }
}

fn line(level: &str, message: &str) -> LogEntry {
    let time = Some(timestamp(Clock::default().now()));
    LogEntry { level: level.into(), message: message.into(), time, ..LogEntry::default() }
}

fn messages(entries: &[LogEntry]) -> Vec<&str> {
    entries.iter().map(|entry| entry.message.as_str()).collect()
}

fn number(object: &prost_types::Struct, key: &str) -> Option<f64> {
    match object.fields.get(key)?.kind {
        Some(Kind::NumberValue(number)) => Some(number),
        _ => None,
    }
}

/// Waits until the server got something done that nothing tells of.
async fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let wait = async {
        while !done() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("{what} did not happen"));
}

#[tokio::test(flavor = "multi_thread")]
async fn many_devices_are_written_down_with_few_statements() {
    let world = World::new().await;
    let context = &world.server.context;
    let (now, before) = (context.clock.now(), context.store.state.counted().writes);
    // Nothing is kept of those that are gone.
    (0..100).for_each(|n| context.presence.touch(&format!("gone-{n}"), now));
    context.presence.touch(PART, now);
    // The server does the same by itself, once a second.
    while context.presence.write_down(&context.store, now).await.expect("writes") > 0 {}
    let writes = context.store.state.counted().writes - before;
    assert!(writes < 50, "{writes} statements for 101 devices");
    let sql = "SELECT part_id, last_access FROM part_presence";
    let stored = context.store.read(|tx| tx.all(sql, &[], |row| Ok((row.text(0)?, row.int(1)?)))).await;
    let stored: Vec<(String, i64)> = stored.map_err(|error: DbError| error.to_string()).expect("reads");
    assert_eq!(stored, [(PART.to_owned(), now)]);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_speak_as_a_device() {
    let world = World::new().await;
    let device = world.device().await;
    let other = world.client(OTHER_PART, "robot-secret", "other secret").await;
    let operator = world.client(OPERATOR, "api-key", "operator secret").await;
    let stranger = world.client(STRANGER, "api-key", "stranger secret").await;
    let nobody = Client { token: String::new(), ..device.clone() };
    let table = [
        ("its own secret", &device, None),
        ("its owner's key", &world.owner().await, None),
        ("a key that may control the machine", &operator, None),
        ("another part of the machine", &other, Some(Code::NotFound)),
        ("a stranger's key", &stranger, Some(Code::NotFound)),
        ("nobody", &nobody, Some(Code::Unauthenticated)),
    ];
    for (case, client, refused) in table {
        assert_eq!(client.config().await.err().map(|status| status.code()), refused, "{case}");
        assert_eq!(client.robot_config().await.err().map(|status| status.code()), refused, "{case}");
        assert_eq!(
            client.log(PART, vec![line("info", case)]).await.err().map(|status| status.code()),
            refused,
            "{case}"
        );
        assert_eq!(client.report(DeviceStatus::default()).await.err().map(|status| status.code()), refused, "{case}");
        assert_eq!(client.upload(1, vec![]).await.err().map(|status| status.code()), refused, "{case}");
    }
    // A device writes its log and does not read it; others read as far as they see.
    let all = GetRobotPartLogsRequest::default;
    assert_eq!(device.logs(all()).await.map_err(|status| status.code()).err(), Some(Code::PermissionDenied));
    assert_eq!(stranger.logs(all()).await.map_err(|status| status.code()).err(), Some(Code::NotFound));
    assert_eq!(operator.logs(all()).await.expect("reads").logs.len(), 3);
    assert_eq!(stranger.tail(false).await.map_err(|status| status.code()).err(), Some(Code::NotFound));
    let certificate: Result<CertificateResponse, _> =
        device.call("platform.app.v1.RobotService/Certificate", CertificateRequest { id: PART.into() }).await;
    assert_eq!(certificate.map_err(|status| status.code()).err(), Some(Code::Unimplemented));
    world.stop().await;
}
