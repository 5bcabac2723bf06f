//! Many at once, and a disk that is full: what was acknowledged stays, and nobody is told something else than it was.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, Command, Stdio},
    time::Duration,
};

pub(crate) mod world;

#[path = "under_load/killed.rs"]
mod killed;
#[path = "under_load/race.rs"]
pub(crate) mod race;
#[path = "under_load/writers/mod.rs"]
pub(crate) mod writers;

use api::pb::platform::common::v1::LogEntry;
use api::pb::platform::{
    app::v1::*,
    fleet::v1::{UploadLogsRequest, UploadLogsResponse},
};
use tonic::Code;
use world::{Client, PATIENCE, World, engine::ON_POSTGRES};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_200_writers_of_one_revision_one_wins() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    let clients = [owner.client.clone()];
    race::of_a_part(&owner, &clients).await;
    race::of_a_fragment(&owner, &clients).await;
    world.end().await;
}

/// Readers page in both directions while devices write: nothing is left out, nothing comes twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_are_true_while_lines_arrive() {
    const WRITERS: u64 = 3;
    const BATCHES: u64 = 40;
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    owner.location("North", None).await;
    let part = owner.main_part(&owner.machine("", "arm").await).await;
    let secret = part.secrets[0].secret.clone();
    let device = world.login("robot-secret", &part.id, &secret).await.unwrap();
    let (caller, id) = (device.clone(), part.id.clone());
    let upload = move |writer: u64, number: u64| {
        let (device, part) = (caller.clone(), id.clone());
        async move {
            let entry =
                |n| LogEntry { level: "info".into(), message: format!("{writer}.{number}.{n}"), ..LogEntry::default() };
            let request = UploadLogsRequest {
                part_id: part,
                spool_id: format!("spool {writer}"),
                batch_number: number,
                logs: (0..5).map(entry).collect(),
            };
            let path = "/platform.fleet.v1.DeviceService/UploadLogs";
            let _: UploadLogsResponse = device.call(path, request).await.unwrap();
        }
    };
    for writer in 0..WRITERS {
        upload(writer, 1).await;
    }
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let upload = upload.clone();
            tokio::spawn(async move {
                for number in 2..=BATCHES {
                    upload(writer, number).await;
                }
            })
        })
        .collect();
    let read = async |order: LogOrder, limit: u64| {
        let (mut lines, mut token) = (Vec::new(), String::new());
        loop {
            let request = GetRobotPartLogsRequest {
                id: part.id.clone(),
                limit: Some(limit as i64),
                order: Some(order.into()),
                page_token: Some(token),
                ..GetRobotPartLogsRequest::default()
            };
            let page: GetRobotPartLogsResponse = owner.client.app("GetRobotPartLogs", request).await.unwrap();
            assert!(!page.logs.is_empty() || page.next_page_token.is_empty(), "an empty page never has a token");
            lines.extend(page.logs.into_iter().map(|entry| entry.message));
            token = page.next_page_token;
            if token.is_empty() {
                return lines;
            }
        }
    };
    let once = |lines: &[String]| {
        let mut sorted = lines.to_vec();
        sorted.sort();
        sorted.dedup();
        assert_eq!(sorted.len(), lines.len(), "something came twice");
    };
    let mut limit = 7;
    while writers.iter().any(|writer| !writer.is_finished()) {
        // What was there before a reader began is there once.
        let before = read(LogOrder::Descending, 1000).await;
        once(&before);
        for order in [LogOrder::Ascending, LogOrder::Descending] {
            let lines = read(order, limit).await;
            once(&lines);
            for line in &before {
                assert!(lines.contains(line), "{line} was left out, pages of {limit}, {order:?}");
            }
            limit = limit % 60 + 7;
        }
    }
    for writer in writers {
        writer.await.unwrap();
    }
    for limit in [1, 13, 600, 1000] {
        let (rising, mut falling) = (read(LogOrder::Ascending, limit).await, read(LogOrder::Descending, limit).await);
        once(&rising);
        assert_eq!(rising.len() as u64, WRITERS * BATCHES * 5);
        falling.reverse();
        assert_eq!(rising, falling, "pages of {limit}");
    }
    world.end().await;
}

/// A server whose data folder is a small disk of its own, in a mount namespace that ends with it.
struct OnSmallDisk {
    process: Child,
    url: String,
    folder: tempfile::TempDir,
}

/// Bytes that somebody else has on the disk.
const BALLAST_MEGABYTES: usize = 6;
const DISK_MEGABYTES: usize = 10;

impl OnSmallDisk {
    /// `None` where this user may not mount.
    fn start() -> Option<(Self, serde_json::Value)> {
        let folder = tempfile::tempdir().unwrap();
        // /proc/self/ns in a private tree: nothing of it is seen outside, and nothing stays.
        let script = format!(
            "set -e; mount --make-rprivate /; mount -t tmpfs -o size={DISK_MEGABYTES}m,mode=0700 tmpfs \"$1\"
             head -c {BALLAST_MEGABYTES}M /dev/zero > \"$1/ballast\"
             \"$2\" init --org Acme --email owner@example.org --json --data \"$1/data\"
             exec \"$2\" serve --json --listen 127.0.0.1:0 --data \"$1/data\""
        );
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", &script, "sh"]).arg(folder.path());
        command.arg(env!("CARGO_BIN_EXE_platform-fleet"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = command.spawn().ok()?;
        let mut lines = BufReader::new(process.stdout.take()?).lines();
        let mut line = || serde_json::from_str::<serde_json::Value>(&lines.next()?.ok()?).ok();
        let (Some(created), Some(ready)) = (line(), line()) else {
            let _ = process.wait();
            return None;
        };
        Some((Self { process, url: ready["url"].as_str()?.to_owned(), folder }, created))
    }

    /// The disk, seen from outside.
    fn path(&self, name: &str) -> std::path::PathBuf {
        let here = self.folder.path().strip_prefix("/").unwrap();
        std::path::Path::new("/proc").join(self.process.id().to_string()).join("root").join(here).join(name)
    }
}

impl Drop for OnSmallDisk {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_full_disk_writes_are_unavailable_and_come_back_by_themselves() {
    if ON_POSTGRES {
        // There the disk is the database's: `on_postgres/loss.rs`.
        return;
    }
    let Some((mut server, created)) = OnSmallDisk::start() else {
        let _ = writeln!(std::io::stderr(), "SKIPPED a full disk: this user may not mount");
        return;
    };
    let field = |name: &str| created[name].as_str().unwrap().to_owned();
    let channel = tonic::transport::Channel::from_shared(server.url.clone()).unwrap().connect().await.unwrap();
    let nobody = Client { channel, token: None };
    let credentials = api::pb::proto::rpc::v1::Credentials { r#type: "api-key".into(), payload: field("key") };
    let login =
        api::pb::proto::rpc::v1::AuthenticateRequest { entity: field("key_id"), credentials: Some(credentials) };
    let reply: api::pb::proto::rpc::v1::AuthenticateResponse =
        nobody.call("/proto.rpc.v1.AuthService/Authenticate", login).await.unwrap();
    let client = Client { token: Some(reply.access_token), ..nobody };
    let organization = field("organization_id");
    let filling = prost_types::Value { kind: Some(prost_types::value::Kind::StringValue("x".repeat(200_000))) };
    let write = async |n: usize| {
        let request = CreateFragmentRequest {
            name: format!("fragment {n}"),
            organization_id: organization.clone(),
            config: Some(prost_types::Struct { fields: [("filling".to_owned(), filling.clone())].into() }),
            ..CreateFragmentRequest::default()
        };
        client.app::<_, CreateFragmentResponse>("CreateFragment", request).await
    };
    let list = async || {
        let request = ListFragmentsRequest { organization_id: organization.clone(), ..Default::default() };
        let listed: ListFragmentsResponse = client.app("ListFragments", request).await.unwrap();
        listed.fragments.into_iter().map(|fragment| fragment.name).collect::<Vec<_>>()
    };
    let mut acknowledged = Vec::new();
    let refused = loop {
        assert!(acknowledged.len() < 200, "the disk is never full");
        match write(acknowledged.len()).await {
            Ok(_) => acknowledged.push(format!("fragment {}", acknowledged.len())),
            Err(status) => break status,
        }
    };
    assert_eq!(refused.code(), Code::Unavailable, "{refused:?}");
    assert!(refused.message().contains("disk is full"), "{refused:?}");
    assert!(acknowledged.len() > 2, "{}", acknowledged.len());
    // It goes on: reads are answered, writes refused, again and again.
    for n in 0..20 {
        assert_eq!(write(1000 + n).await.unwrap_err().code(), Code::Unavailable);
        assert!(
            client.app::<_, ListOrganizationsResponse>("ListOrganizations", ListOrganizationsRequest {}).await.is_ok()
        );
    }
    assert_eq!(server.process.try_wait().unwrap(), None, "it lives");
    // Somebody makes room.
    std::fs::remove_file(server.path("ballast")).unwrap();
    let begin = std::time::Instant::now();
    while write(acknowledged.len()).await.is_err() {
        assert!(begin.elapsed() < PATIENCE, "it never recovers");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    acknowledged.push(format!("fragment {}", acknowledged.len()));
    let there = list().await;
    assert_eq!(there.len(), acknowledged.len(), "nothing that was refused");
    assert!(acknowledged.iter().all(|name| there.contains(name)), "nothing acknowledged is gone");
}
