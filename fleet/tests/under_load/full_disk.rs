//! A disk that is full: whoever writes hears so, and everything goes on by itself when there is room again.

use std::{
    fs,
    io::{self, BufRead, BufReader, Write},
    process::{Child, Command, Stdio},
    time::Duration,
};

use api::pb::platform::{
    app::v1::*,
    common::v1::LogEntry,
    fleet::v1::{UploadLogsRequest, UploadLogsResponse},
};
use fleet::authn::digest_of;
use tonic::{Code, Status};

use super::{
    pages,
    world::{
        Client, Owner, PATIENCE,
        engine::ON_POSTGRES,
        process::{Keys, keys, login, owner, url},
    },
    writers,
};

/// A server whose data folder is a small disk of its own, in a mount namespace that ends with it.
struct OnSmallDisk {
    process: Child,
    url: String,
    folder: tempfile::TempDir,
}

/// Bytes that somebody else has on the disk.
const BALLAST_MEGABYTES: usize = 6;
const DISK_MEGABYTES: usize = 10;

/// What a namespace of mounts is for: nothing of it is seen outside, and nothing stays.
const MOUNT: &str = "mount --make-rprivate / && mount -t tmpfs -o mode=0700,size=";

/// In a namespace of its own, with `$1` and so on.
fn apart(script: &str) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, "sh"]).stdin(Stdio::null());
    command
}

/// Whether this user may mount at all.
fn may_mount() -> bool {
    let folder = tempfile::tempdir().unwrap();
    let tried = apart(&format!("{MOUNT}1m tmpfs \"$1\"")).arg(folder.path()).stderr(Stdio::null()).status();
    tried.is_ok_and(|status| status.success())
}

impl OnSmallDisk {
    /// With what its `init` said.
    fn start() -> (Self, Keys) {
        let folder = tempfile::tempdir().unwrap();
        let script = format!(
            "set -e; {MOUNT}{DISK_MEGABYTES}m tmpfs \"$1\"
             head -c {BALLAST_MEGABYTES}M /dev/zero > \"$1/ballast\"
             \"$2\" init --org Acme --email owner@example.org --json --data \"$1/data\"
             exec \"$2\" serve --json --listen 127.0.0.1:0 --data \"$1/data\""
        );
        let mut command = apart(&script);
        command.arg(folder.path()).arg(env!("CARGO_BIN_EXE_platform-fleet"));
        let log = tempfile::NamedTempFile::new().unwrap();
        let mut process = command.stdout(Stdio::piped()).stderr(log.reopen().unwrap()).spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut server = Self { process, url: String::new(), folder };
        let mut line = || {
            let line = lines.next().transpose().unwrap();
            line.unwrap_or_else(|| panic!("it did not start: {}", fs::read_to_string(log.path()).unwrap()))
        };
        let keys = keys(&line());
        server.url = url(&line());
        (server, keys)
    }

    /// The disk, seen from outside.
    fn path(&self, name: &str) -> std::path::PathBuf {
        let here = self.folder.path().strip_prefix("/").unwrap();
        std::path::Path::new("/proc").join(self.process.id().to_string()).join("root").join(here).join(name)
    }
}

impl OnSmallDisk {
    /// Somebody else takes what is left, to the last byte.
    fn fill(&self) {
        let mut file = fs::OpenOptions::new().create(true).append(true).open(self.path("more ballast")).unwrap();
        let full = loop {
            if let Err(full) = file.write_all(&[0; 4096]) {
                break full;
            }
        };
        assert_eq!(full.kind(), io::ErrorKind::StorageFull, "{full}");
    }

    /// Somebody makes room.
    fn empty(&self) {
        for name in ["ballast", "more ballast"] {
            let _ = fs::remove_file(self.path(name));
        }
    }

    fn names(&self, folder: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path("data/artifacts").join(folder)).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

impl Drop for OnSmallDisk {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn started() -> Option<(OnSmallDisk, Keys)> {
    if ON_POSTGRES {
        // There the disk is the database's: `on_postgres/loss.rs`.
        return None;
    }
    if !may_mount() {
        let _ = writeln!(io::stderr(), "SKIPPED a full disk: this user may not mount");
        return None;
    }
    Some(OnSmallDisk::start())
}

/// Tries until it is done; fails if it never is.
async fn again<F: Future<Output = Result<(), Status>>>(mut what: impl FnMut() -> F) {
    let tries = async {
        while let Err(refused) = what().await {
            assert_eq!(refused.code(), Code::Unavailable, "{refused:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, tries).await.expect("it never recovers");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_full_disk_writes_are_unavailable_and_come_back_by_themselves() {
    let Some((mut server, keys)) = started() else { return };
    let Owner { organization, client, .. } = owner(&server.url, &keys).await;
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
    server.empty();
    again(|| async { write(acknowledged.len()).await.map(drop) }).await;
    acknowledged.push(format!("fragment {}", acknowledged.len()));
    let there = list().await;
    assert_eq!(there.len(), acknowledged.len(), "nothing that was refused");
    assert!(acknowledged.iter().all(|name| there.contains(name)), "nothing acknowledged is gone");
}

/// Lines that no packing makes small.
fn lines(of: &str) -> Vec<LogEntry> {
    let line = |n: usize| LogEntry {
        level: "info".into(),
        message: format!("{of}.{n} {}", (0..16).map(|m| digest_of(&format!("{of} {n} {m}"))).collect::<String>()),
        ..LogEntry::default()
    };
    (0..50).map(line).collect()
}

/// A device's batches of one kind: those that were acknowledged, and the one that was refused.
struct Batches<'a> {
    device: &'a Client,
    part: &'a str,
    numbered: bool,
    acknowledged: u64,
}

impl Batches<'_> {
    fn name(&self, number: u64) -> String {
        format!("{} {number}", if self.numbered { "numbered" } else { "unnumbered" })
    }

    async fn send(&self, number: u64) -> Result<(), Status> {
        let (id, logs) = (self.part.to_owned(), lines(&self.name(number)));
        if self.numbered {
            let request = UploadLogsRequest { part_id: id, spool_id: "spool".into(), batch_number: number, logs };
            let sent: UploadLogsResponse =
                self.device.call("/platform.fleet.v1.DeviceService/UploadLogs", request).await?;
            assert_eq!(sent.acknowledged, number);
            return Ok(());
        }
        self.device.call::<_, LogResponse>("/platform.app.v1.RobotService/Log", LogRequest { id, logs }).await.map(drop)
    }

    /// Sends until there is no room for the next one, which is refused again and again.
    async fn until_refused(&mut self) {
        loop {
            assert!(self.acknowledged < 200, "the disk is never full");
            match self.send(self.acknowledged + 1).await {
                Ok(()) => self.acknowledged += 1,
                Err(refused) => break is_full(&refused),
            }
        }
        for _ in 0..5 {
            is_full(&self.send(self.acknowledged + 1).await.unwrap_err());
        }
    }

    /// The refused one is kept now, and once, however often its device repeats it.
    async fn repeat(&mut self) {
        self.acknowledged += 1;
        again(|| self.send(self.acknowledged)).await;
        self.send(self.acknowledged).await.unwrap();
    }

    fn all(&self) -> impl Iterator<Item = String> {
        (1..=self.acknowledged).flat_map(|number| lines(&self.name(number))).map(|entry| entry.message)
    }
}

fn is_full(refused: &Status) {
    assert_eq!(refused.code(), Code::Unavailable, "{refused:?}");
    let says = ["disk is full", "no space left for files"];
    assert!(says.iter().any(|what| refused.message().contains(what)), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_full_disk_lines_and_files_are_refused_as_a_whole_and_kept_once_when_there_is_room() {
    let Some((mut server, keys)) = started() else { return };
    let owner = owner(&server.url, &keys).await;
    let part = pages::part(&owner).await;
    let device = login(&server.url, "robot-secret", &part.id, &part.secrets[0].secret).await.unwrap();
    let request = CreateModuleRequest { organization_id: owner.organization.clone(), name: "camera".into() };
    let module: CreateModuleResponse = owner.client.app("CreateModule", request).await.unwrap();
    let file = |version: &str| format!("{version} ").repeat(100_000);
    let upload = async |version: &str| {
        let mut messages = vec![writers::about(&module.module_id, version)];
        messages.extend(file(version).as_bytes().chunks(50_000).map(writers::piece));
        writers::upload(&owner.client, tokio_stream::iter(messages)).await
    };
    upload("1.0.0").await.unwrap();
    let batches = |numbered| Batches { device: &device, part: &part.id, numbered, acknowledged: 0 };
    let (mut numbered, mut unnumbered) = (batches(true), batches(false));
    for one in [&mut numbered, &mut unnumbered] {
        one.send(1).await.unwrap();
        one.acknowledged = 1;
    }

    server.fill();
    let refused = upload("2.0.0").await.unwrap_err();
    is_full(&refused);
    for one in [&mut numbered, &mut unnumbered] {
        one.until_refused().await;
    }
    is_full(&upload("2.0.0").await.unwrap_err());
    assert!(server.names("incoming").is_empty(), "{:?}", server.names("incoming"));
    assert_eq!(server.names("sha256"), [digest_of(&file("1.0.0"))]);
    assert_eq!(owner.client.lines(&part.id).await.len() as u64, 50 * (numbered.acknowledged + unnumbered.acknowledged));
    assert_eq!(server.process.try_wait().unwrap(), None, "it lives");

    server.empty();
    for one in [&mut numbered, &mut unnumbered] {
        one.repeat().await;
    }
    again(|| upload("2.0.0")).await;
    let mut kept = owner.client.lines(&part.id).await;
    let mut sent: Vec<String> = numbered.all().chain(unnumbered.all()).collect();
    kept.sort();
    sent.sort();
    assert!(kept == sent, "{} lines of {}", kept.len(), sent.len());
    let mut digests = ["1.0.0", "2.0.0"].map(|version| digest_of(&file(version)));
    let mut names = server.names("sha256");
    names.sort();
    digests.sort();
    assert_eq!((names, server.names("incoming").len()), (digests.to_vec(), 0));
}
