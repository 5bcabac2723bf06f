//! Devices against the real server in this process: real sockets, real databases in a temporary folder.

#[path = "world/engine.rs"]
mod engine;

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

/// Waits until the server got something done that nothing tells of; fails after ten seconds.
async fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    for _ in 0..1000 {
        if done() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{what} did not happen within ten seconds");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_agent_section_arrives_as_four_structs() {
    let world = World::new().await;
    let device = world.device().await;
    let empty = device.config().await.expect("answers");
    assert_eq!(empty.check_interval.map(|interval| interval.seconds), Some(5));
    assert_eq!((empty.advanced_settings, empty.network_configuration), (None, None));

    world
        .fragment(
            "site",
            ORGANIZATION,
            1,
            json!({"agent": {"network_configuration": {"user_idle_minutes": 3, "model": "site"}}}),
        )
        .await;
    world
        .configure(json!({
            "fragments": ["site"],
            "components": [{"name": "arm"}],
            "agent": {
                "version_control": {"platform-server": "1.0.0", "agent": 7},
                "advanced_settings": {"debug": true, "platform_server_start_timeout_minutes": 10},
                "network_configuration": {"model": "part"},
                "additional_networks": {"office": {"type": "wifi", "priority": 20}},
                "system_configuration": "not an object",
            },
        }))
        .await;
    let config = device.config().await.expect("answers");
    assert!(config.subsystem_configs_is_empty());
    let advanced = config.advanced_settings.expect("there");
    assert_eq!(number(&advanced, "platform_server_start_timeout_minutes"), Some(10.0));
    let Some(Kind::StructValue(versions)) = &advanced.fields["version_control"].kind else { panic!("no versions") };
    assert_eq!(versions.fields["platform-server"].kind, Some(Kind::StringValue("1.0.0".into())));
    assert_eq!(number(versions, "agent"), Some(7.0), "verbatim: the device complains, not we");
    let network = config.network_configuration.expect("there");
    assert_eq!(number(&network, "user_idle_minutes"), Some(3.0));
    assert_eq!(network.fields["model"].kind, Some(Kind::StringValue("part".into())));
    assert!(config.additional_networks.expect("there").fields.contains_key("office"));
    assert_eq!(config.system_configuration, None);
    world.stop().await;
}

trait NothingDeprecated {
    fn subsystem_configs_is_empty(&self) -> bool;
}

impl NothingDeprecated for DeviceAgentConfigResponse {
    fn subsystem_configs_is_empty(&self) -> bool {
        self.subsystem_configs.is_empty()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unchanged_heartbeat_asks_the_database_nothing() {
    let world = World::new().await;
    let device = world.device().await;
    world.configure(json!({"agent": {"advanced_settings": {"debug": true}}})).await;
    let first = device.config().await.expect("answers");
    let counted = || world.server.context.store.state.counted();
    let before = counted();
    for _ in 0..100 {
        assert_eq!(device.config().await.expect("answers"), first);
    }
    // The server itself looks twice a second whether another one told something, and writes down who is there.
    let (reads, writes) = (counted().reads - before.reads, counted().writes - before.writes);
    assert!(reads < 50 && writes < 50, "{reads} reads and {writes} writes for 100 calls");
    // Another configuration is served by the very next call.
    world.configure(json!({"agent": {"advanced_settings": {"debug": false}}})).await;
    assert_ne!(device.config().await.expect("answers"), first);
    assert!(world.server.context.presence.last_access(PART, None, world.server.context.clock.now()).is_some());
    world.stop().await;
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
    assert_eq!(stored.map_err(|error: DbError| error.to_string()), Ok(vec![(PART.to_owned(), now)]));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn versions_are_hinted_at_as_they_are_released() {
    let world = World::new().await;
    let device = world.device().await;
    assert_eq!(device.config().await.expect("answers").platform_server_update_info, None);

    let key = SigningKey::generate().expect("a key");
    let keys = RoleKeys::new(1, [key.public()]);
    let expires = Expires::from_unix_seconds(4_000_000_000);
    let root = Root { version: 1, expires, root: keys.clone(), release: keys.clone(), channel: keys };
    let folder = Folder::of_data(&world.folder.path().join("data"));
    folder.add_root(sign::root(&root, &[&key]).expect("signs").as_bytes()).expect("added");
    let file = world.folder.path().join("artifact");
    std::fs::write(&file, b"bytes").expect("writes");
    let sha256: [u8; 32] = ring::digest::digest(&ring::digest::SHA256, b"bytes").as_ref().try_into().expect("32 bytes");
    let version: semver::Version = "1.1.0".parse().expect("a version");
    let artifacts = vec![Artifact::raw("linux/amd64", sha256, 5)];
    let product = brand::MACHINE_SERVER.to_owned();
    let release = Release { product: product.clone(), version: version.clone(), number: 2, expires, artifacts };
    let document = sign::release(&release, &[&key]).expect("signs");
    folder.add_release(document.as_bytes(), &product, &version, &[file]).expect("added");
    let products = vec![ChannelEntry { product, version, number: 2 }];
    let channel = Channel { name: "stable".into(), version: 1, expires, products };
    folder.add_channel(sign::channel(&channel, &[&key]).expect("signs").as_bytes(), "stable").expect("added");

    // As a device asks: again and again. The server looks at the folder once a second.
    let mut hint = None;
    for _ in 0..1000 {
        hint = device.config().await.expect("answers").platform_server_update_info;
        if hint.is_some() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let hint = hint.expect("a hint within ten seconds");
    assert_eq!((hint.version.as_str(), hint.sha256.as_slice()), ("1.1.0", &sha256[..]));
    let path = hint.url.strip_prefix("http://fleet.test").expect("this server's public address");

    // And what is hinted at can be fetched, without a token.
    let answer =
        world.http(&format!("GET {path} HTTP/1.1\r\nhost: x\r\nrange: bytes=1-3\r\nconnection: close\r\n\r\n")).await;
    assert!(answer.starts_with("HTTP/1.1 206 ") && answer.ends_with("\r\n\r\nyte"), "{answer}");
    world.configure(json!({"agent": {"version_control": {"platform-server": "http://example.com/x"}}})).await;
    assert_eq!(device.config().await.expect("answers").platform_server_update_info, None, "a URL means itself");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fragments_of_others_are_not_there_unless_public() {
    let world = World::new().await;
    let device = world.device().await;
    world.fragment("theirs", OTHER_ORGANIZATION, 1, json!({"agent": {"advanced_settings": {"a": 1}}})).await;
    world.fragment("public", OTHER_ORGANIZATION, 2, json!({"agent": {"advanced_settings": {"b": 1}}})).await;
    world.fragment("unlisted", OTHER_ORGANIZATION, 3, json!({"agent": {"advanced_settings": {"c": 1}}})).await;
    world.configure(json!({"fragments": ["theirs", "public", "unlisted"]})).await;
    let advanced = device.config().await.expect("answers").advanced_settings.expect("there");
    assert_eq!(advanced.fields.keys().map(String::as_str).collect::<Vec<_>>(), ["b", "c"]);
    let config = device.robot_config().await.expect("answers").config.expect("there");
    let complaints: Vec<_> = config.overwrite_fragment_status.iter().map(|status| status.error.as_str()).collect();
    assert_eq!(complaints, ["the part: there is no fragment theirs; it was left out"]);
    let request = GetPartStatusRequest { part_id: PART.into() };
    let status: GetPartStatusResponse =
        world.owner().await.call("platform.fleet.v1.AdminService/GetPartStatus", request).await.expect("answers");
    let complaint = &status.status.expect("there").complaints[0];
    assert_eq!((complaint.source.as_str(), complaint.path.as_str()), ("fragments", "the part"));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_configuration_no_device_could_read_says_so_and_recovers() {
    let world = World::new().await;
    let device = world.device().await;
    let large = "x".repeat(600_000);
    world.fragment("large", ORGANIZATION, 1, json!({ "a": large })).await;
    world.configure(json!({"fragments": ["large"], "b": large})).await;
    for _ in 0..2 {
        let refused = device.config().await.expect_err("too large");
        assert_eq!(refused.code(), Code::FailedPrecondition);
        assert!(refused.message().contains("a device reads at most"), "{}", refused.message());
    }
    world.configure(json!({"fragments": ["large"]})).await;
    assert!(device.config().await.is_ok());
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_machine_server_reads_the_whole_document() {
    let world = World::new().await;
    let device = world.device().await;
    world
        .configure(json!({
            "components": [{
                "name": "arm", "model": "acme:arm", "api": "rdk:component:arm", "depends_on": ["board"], "attributes": {"speed": 10},
                "frame": {"parent": "world", "translation": {"x": 1, "y": 2, "z": 3}, "orientation": {"type": "ov_degrees", "value": {"th": 90, "z": 1}}},
            }],
            "services": [{"name": "data", "log_configuration": {"level": "debug"}}],
            "modules": [{"name": "m", "executable_path": "/m", "env": {"A": "1"}}],
            "jobs": [{"name": "j", "schedule": "1h", "resource": "arm", "method": "Stop"}],
            "debug": true, "network": {"bind_address": ":8080"}, "processes": 7,
        }))
        .await;
    let config = device.robot_config().await.expect("answers").config.expect("there");
    let arm = &config.components[0];
    assert_eq!((arm.name.as_str(), arm.depends_on[0].as_str()), ("arm", "board"));
    assert_eq!(arm.attributes.as_ref().and_then(|attributes| number(attributes, "speed")), Some(10.0));
    assert_eq!(arm.frame.as_ref().and_then(|frame| frame.translation.as_ref()).map(|at| at.z), Some(3.0));
    assert_eq!((config.modules[0].path.as_str(), config.modules[0].env["A"].as_str()), ("/m", "1"));
    assert_eq!((config.jobs.len(), config.processes.len(), config.debug), (1, 0, Some(true)));
    assert_eq!(config.revision.len(), 64);
    let cloud = config.cloud.expect("there");
    assert_eq!(
        (cloud.machine_id.as_str(), cloud.location_id.as_str(), cloud.primary_org_id.as_str()),
        (MACHINE, LOCATION, ORGANIZATION)
    );
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

#[tokio::test(flavor = "multi_thread")]
async fn logs_arrive_in_order_once_and_survive_a_restart() {
    let world = World::new().await;
    let device = world.device().await;
    assert_eq!(device.upload(1, vec![line("info", "one"), line("warn", "two")]).await.expect("taken"), 1);
    assert_eq!(device.upload(2, vec![line("error", "three")]).await.expect("taken"), 2);
    // The answer got lost, the device sends it again; also across a restart of the server.
    assert_eq!(device.upload(2, vec![line("error", "three")]).await.expect("taken"), 2);
    drop(device);
    let folder = world.stop().await;
    let world = World { server: World::start(&folder).await, folder };
    let (device, owner) = (world.device().await, world.owner().await);
    assert_eq!(device.upload(2, vec![line("error", "three")]).await.expect("taken"), 2);
    assert_eq!(device.upload(3, vec![line("info", "four")]).await.expect("taken"), 3);
    assert_eq!(device.log(PART, vec![line("info", "five")]).await.expect("taken"), LogResponse {});
    assert_eq!(device.log(PART, vec![]).await.expect("taken"), LogResponse {});

    let rising = || GetRobotPartLogsRequest { order: Some(LogOrder::Ascending.into()), ..Default::default() };
    let page = owner.logs(rising()).await.expect("reads");
    assert_eq!(messages(&page.logs), ["one", "two", "three", "four", "five"]);
    assert_eq!(page.next_page_token, "");
    let errors = GetRobotPartLogsRequest { levels: vec!["error".into()], filter: Some("THREE".into()), ..rising() };
    assert_eq!(messages(&owner.logs(errors).await.expect("reads").logs), ["three"]);
    let first = owner.logs(GetRobotPartLogsRequest { limit: Some(2), ..rising() }).await.expect("reads");
    let token = Some(first.next_page_token.clone());
    let wrong = GetRobotPartLogsRequest { page_token: token.clone(), filter: Some("x".into()), ..rising() };
    assert_eq!(owner.logs(wrong).await.map_err(|status| status.code()).err(), Some(Code::InvalidArgument));
    let rest = owner.logs(GetRobotPartLogsRequest { page_token: token, ..rising() }).await.expect("reads");
    assert_eq!(messages(&rest.logs), ["three", "four", "five"]);

    for (case, refused) in [
        ("too many", device.log(PART, vec![LogEntry::default(); 1001]).await.map(drop)),
        ("no number", device.upload(0, vec![]).await.map(drop)),
        ("an absurd number", device.upload(u64::MAX, vec![]).await.map(drop)),
    ] {
        assert_eq!(refused.map_err(|status| status.code()), Err(Code::InvalidArgument), "{case}");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tail_follows_and_ends_with_its_reader_its_key_or_the_server() {
    let world = World::new().await;
    let (device, owner) = (world.device().await, world.owner().await);
    let operator = world.client(OPERATOR, "api-key", "operator secret").await;
    let watched = || world.server.context.logs.hub.watched_parts();
    device.log(PART, vec![line("info", "before")]).await.expect("taken");
    let mut all = owner.tail(false).await.expect("a stream");
    let mut errors = operator.tail(true).await.expect("a stream");
    device.log(PART, vec![line("info", "one"), line("Error", "two")]).await.expect("taken");
    device.log(PART, vec![line("fatal", "three")]).await.expect("taken");
    let mut seen = Vec::new();
    while seen.len() < 3 {
        let batch = all.message().await.expect("goes on").expect("goes on").logs;
        assert!(!batch.is_empty(), "an empty message is the end for some clients");
        seen.extend(batch.into_iter().map(|entry| entry.message));
    }
    assert_eq!(seen, ["one", "two", "three"]);
    assert_eq!(messages(&errors.message().await.expect("goes on").expect("goes on").logs)[0], "two");

    // The reader goes away.
    drop(all);
    // The key goes away.
    let delete = |tx: &Tx<'_>| {
        news::tell(tx, News::Key(OPERATOR.into()));
        tx.run("DELETE FROM api_keys WHERE id = $1", &[OPERATOR.into()]).map(drop)
    };
    world.sql(delete).await;
    let ended = loop {
        match errors.message().await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("ended without a reason"),
            Err(status) => break status,
        }
    };
    assert_eq!(ended.code(), Code::Unauthenticated);
    eventually("freeing both streams", || watched() == 0).await;

    // The server goes away.
    let mut last = owner.tail(false).await.expect("a stream");
    let reader = tokio::spawn(async move { last.message().await.map_err(|status| status.code()) });
    eventually("following", || watched() == 1).await;
    world.stop().await;
    assert_eq!(reader.await.expect("reads"), Err(Code::Unavailable));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_is_told_once_and_cleared_by_the_call_after_that() {
    let world = World::new().await;
    let device = world.device().await;
    let mark = |at: i64| {
        world.sql(move |tx| {
            tx.run("UPDATE parts SET restart_marked_at = $2 WHERE id = $1", &[PART.into(), at.into()]).map(drop)
        })
    };
    assert!(!device.must_restart().await);
    mark(Clock::default().now()).await;
    device.log(PART, vec![line("info", "a batch clears nothing")]).await.expect("taken");
    assert!(device.must_restart().await);
    assert!(!device.must_restart().await, "the call after the one that said so clears the mark");
    assert!(!device.must_restart().await);
    // Marked again after it was told: told again.
    mark(Clock::default().now()).await;
    assert!(device.must_restart().await);
    mark(Clock::default().now() + 5).await;
    assert!(device.must_restart().await);
    assert!(!device.must_restart().await);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_calls_at_once_one_is_told_to_restart() {
    let world = World::new().await;
    let device = world.device().await;
    for round in 0..20 {
        let at = Clock::default().now() + round;
        world
            .sql(move |tx| {
                tx.run("UPDATE parts SET restart_marked_at = $2 WHERE id = $1", &[PART.into(), at.into()]).map(drop)
            })
            .await;
        let calls = [device.must_restart(), device.must_restart(), device.must_restart(), device.must_restart()];
        let [a, b, c, d] = calls;
        let (a, b, c, d) = tokio::join!(a, b, c, d);
        assert_eq!([a, b, c, d].iter().filter(|told| **told).count(), 1, "round {round}");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_is_told_again_to_a_device_that_may_not_have_heard() {
    let world = World::new().await;
    let device = world.device().await;
    let now = Clock::default().now();
    world
        .sql(move |tx| {
            tx.run("UPDATE parts SET restart_marked_at = $2 WHERE id = $1", &[PART.into(), (now - 60_000).into()])
                .map(drop)
        })
        .await;
    let unheard = |started_ago: i64| {
        let started_at = Some(timestamp(now - started_ago));
        let server = Some(ServerStatus { started_at, ..ServerStatus::default() });
        let status = Some(DeviceStatus { device_time: Some(timestamp(now)), server, ..DeviceStatus::default() });
        ReportRequest { status, restart_answer_lost: true, ..ReportRequest::default() }
    };
    for _ in 0..3 {
        assert!(device.must_restart().await);
        device.report_with(unheard(120_000)).await.expect("kept");
    }
    // A start later than the mark ends it, heard or not.
    assert!(device.must_restart().await);
    device.report_with(unheard(1_000)).await.expect("kept");
    assert!(!device.must_restart().await);
    device.report_with(unheard(1_000)).await.expect("kept");
    assert!(!device.must_restart().await, "nobody marked it");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_was_told_before_the_mark_does_not_end_it_however_late_a_report_arrives() {
    let world = World::new().await;
    let device = world.device().await;
    let report = |started: i64, sent: i64| {
        let server = Some(ServerStatus { started_at: Some(timestamp(started)), pid: 7, ..ServerStatus::default() });
        let status = Some(DeviceStatus { device_time: Some(timestamp(sent)), server, ..DeviceStatus::default() });
        ReportRequest { status, ..ReportRequest::default() }
    };
    let now = Clock::default().now();
    device.report_with(report(now - 1_000, now)).await.expect("kept");
    let mark = "UPDATE parts SET restart_marked_at = $2 WHERE id = $1";
    world.sql(move |tx| tx.run(mark, &[PART.into(), (now - 500).into()]).map(drop)).await;
    // Sent right after the start, and on its way for longer than the mark is old: by this server's clock the start is
    // later than the mark.
    device.report_with(report(now - 1_000, now - 999)).await.expect("kept");
    assert!(device.must_restart().await, "the wish stands");
    // Another start ends it.
    device.report_with(report(now - 100, now)).await.expect("kept");
    assert!(!device.must_restart().await);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_to_be_tried_again_is_told_until_it_is_done() {
    let world = World::new().await;
    let device = world.device().await;
    let owner = world.owner().await;
    let ask = || async {
        let request = RetryUpdateRequest { part_id: PART.into(), product: Product::MachineServer.into() };
        owner
            .call::<_, RetryUpdateResponse>("platform.fleet.v1.AdminService/RetryUpdate", request)
            .await
            .expect("answers");
    };
    let report = |retried| {
        let update = |product: Product| UpdateStatus { product: product.into(), retried, ..UpdateStatus::default() };
        let updates = vec![update(Product::Agent), update(Product::MachineServer)];
        device.report(DeviceStatus { updates, ..DeviceStatus::default() })
    };
    assert_eq!(report(0).await.expect("kept").retries, []);
    ask().await;
    let [first] = report(0).await.expect("kept").retries[..] else { panic!("one wish") };
    assert_eq!(first.product(), Product::MachineServer);
    assert_eq!(report(0).await.expect("kept").retries, [first], "told until it is done");
    assert_eq!(report(first.edition).await.expect("kept").retries, []);
    // Another wish has another number, also when the clock went back.
    world.server.context.clock.push(-3_600_000);
    ask().await;
    let [second] = report(first.edition).await.expect("kept").retries[..] else { panic!("another wish") };
    assert!(second.edition > first.edition);
    assert_eq!(report(second.edition).await.expect("kept").retries, []);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_never_reaches_a_device_is_complained_about_for_it() {
    let world = World::new().await;
    let device = world.device().await;
    let owner = world.owner().await;
    let complaints = || async {
        let status = owner.status().await.status.unwrap_or_default();
        status.complaints.into_iter().map(|one| (one.path, one.source)).collect::<Vec<_>>()
    };
    let cloud = |path: &str| (path.to_owned(), "cloud".to_owned());
    world.configure(json!({"agent": 7, "components": []})).await;
    assert_eq!(complaints().await, [cloud("agent")]);
    world
        .configure(json!({"agent": {
            "advanced_settings": {"debug": 1},
            "system_configuration": "not an object",
            "sytem_configuration": {},
        }}))
        .await;
    let all = [cloud("advanced_settings.debug"), cloud("system_configuration"), cloud("sytem_configuration")];
    assert_eq!(complaints().await, all, "nobody else says it as long as the device is silent");
    // What reaches the device is the device's to judge.
    device.report(DeviceStatus::default()).await.expect("kept");
    assert_eq!(complaints().await, [cloud("system_configuration"), cloud("sytem_configuration")]);
    let said = Complaint { path: "system_configuration".into(), source: "cloud".into(), ..Complaint::default() };
    device.report(DeviceStatus { complaints: vec![said], ..DeviceStatus::default() }).await.expect("kept");
    assert_eq!(complaints().await, [cloud("system_configuration"), cloud("sytem_configuration")], "once each");
    world.configure(json!({"components": [], "advanced_settings": {"nobody": "reads this"}})).await;
    device.report(DeviceStatus::default()).await.expect("kept");
    assert_eq!(complaints().await, []);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_is_cleared_by_a_start_later_than_the_mark() {
    let world = World::new().await;
    let device = world.device().await;
    let now = Clock::default().now();
    world
        .sql(move |tx| {
            tx.run("UPDATE parts SET restart_marked_at = $2 WHERE id = $1", &[PART.into(), (now - 60_000).into()])
                .map(drop)
        })
        .await;
    // The device's clock is a year behind; what counts is how long ago the start was.
    let there = now - 365 * 86_400_000;
    let status = |started_ago: i64| DeviceStatus {
        device_time: Some(timestamp(there)),
        server: Some(ServerStatus { started_at: Some(timestamp(there - started_ago)), ..ServerStatus::default() }),
        ..DeviceStatus::default()
    };
    device.report(status(120_000)).await.expect("kept");
    assert!(device.must_restart().await, "a start before the mark clears nothing");
    device.report(status(10_000)).await.expect("kept");
    assert!(!device.must_restart().await);
    assert!(!device.must_restart().await);

    let bloated = DeviceStatus { warnings: vec!["x".repeat(100_000)], ..DeviceStatus::default() };
    assert_eq!(device.report(bloated).await.map_err(|status| status.code()), Err(Code::InvalidArgument));
    world.stop().await;
}
