//! Releases from the key to the download, in a temporary folder.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use api::{
    brand,
    pb::platform::app::agent::v1::PackageFormat,
    releases::{Freshness, Root, artifact_path},
};
use clap::Parser;
use http::{HeaderMap, Method, StatusCode, header};
use http_body_util::BodyExt;
use tempfile::TempDir;

use super::{
    command::{self, ReleaseCommand},
    serve::answer,
    *,
};
use crate::hex;

#[derive(Parser)]
struct Line {
    #[command(subcommand)]
    command: ReleaseCommand,
}

/// A folder with keys, files and a server's data.
struct Workshop {
    folder: TempDir,
}

impl Workshop {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a temporary folder") }
    }

    /// With two releases in `stable` and one in `dev`.
    fn stocked() -> Self {
        let shop = Self::new();
        shop.ok("keygen @root.key");
        shop.ok("keygen @release.key");
        shop.ok("root --key @root.key --release-key @release.key --out @root.1.json");
        shop.ok("add --data @data @root.1.json");
        for (number, version) in ["1.0.0", "1.1.0", "1.2.0-dev"].iter().enumerate() {
            shop.publish(version, number + 1);
        }
        shop.ok("channel --key @release.key --data @data --set stable=1.1.0 --set dev=1.2.0-dev");
        shop
    }

    fn publish(&self, version: &str, number: usize) {
        fs::write(self.path(version), Self::artifact(version)).expect("writes");
        self.ok(&format!(
            "sign --key @release.key --version {version} --number {number} --artifact @{version} --platform linux/amd64 --out @{version}.json"
        ));
        self.ok(&format!("add --data @data --artifact @{version} @{version}.json"));
    }

    /// More than one chunk, different for every version.
    fn artifact(version: &str) -> Vec<u8> {
        version.bytes().cycle().take(300_000).collect()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs a command line; `@` stands for the folder.
    fn run(&self, line: &str) -> Result<String, String> {
        let folder = format!("{}/", self.folder.path().display());
        let words = line.split(' ').map(|word| match word.strip_prefix('@') {
            Some(name) => format!("{folder}{name}"),
            None => word.to_owned(),
        });
        let line =
            Line::try_parse_from(std::iter::once("release".to_owned()).chain(words)).map_err(|e| e.to_string())?;
        let mut said = Vec::new();
        command::run(line.command, &mut said).map_err(|refusal| told(&refusal).replace(&folder, "@"))?;
        Ok(String::from_utf8(said).expect("text").replace(&folder, "@"))
    }

    fn ok(&self, line: &str) -> String {
        self.run(line).unwrap_or_else(|refusal| panic!("{line}: {refusal}"))
    }

    fn refused(&self, line: &str, because: &str) {
        match self.run(line) {
            Ok(said) => panic!("{line} was done: {said}"),
            Err(refusal) => assert!(refusal.contains(because), "{line}: {refusal}"),
        }
    }

    fn data(&self) -> Folder {
        Folder::of_data(&self.path("data"))
    }
}

#[test]
fn private_keys_are_for_their_owner() {
    let shop = Workshop::new();
    let said = shop.ok("keygen @a.key");
    let mode = fs::metadata(shop.path("a.key")).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let text = fs::read_to_string(shop.path("a.key")).expect("reads");
    let private = text.split("\"private\":\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a private part");
    assert!(!said.contains(private) && said.contains("public key"));
    shop.refused("keygen @a.key", "cannot make @a.key");
    assert_eq!(fs::read_to_string(shop.path("a.key")).expect("reads"), text, "the key that was there stays");
}

#[test]
fn what_is_listed_and_resolved() {
    let shop = Workshop::stocked();
    let listed = shop.ok("list --data @data");
    let lines: Vec<_> = listed.lines().map(|line| line.split(" (").next().unwrap_or(line)).collect();
    let server = brand::MACHINE_SERVER;
    assert_eq!(
        lines[1..],
        [
            format!("channel dev: {server} 1.2.0-dev"),
            format!("channel stable: {server} 1.1.0"),
            format!("{server} 1.0.0, number 1: linux/amd64"),
            format!("{server} 1.1.0, number 2: linux/amd64"),
            format!("{server} 1.2.0-dev, number 3: linux/amd64"),
        ]
    );
    let json: serde_json::Value = serde_json::from_str(&shop.ok("list --json --data @data")).expect("JSON");
    assert_eq!(json["channels"][1]["products"][server], "1.1.0");

    let catalog = Catalog::read(&shop.data());
    let version = |setting, platform| catalog.resolve(server, setting, platform).map(|hint| hint.version.to_string());
    let table = [
        ("stable", "linux/amd64", Some("1.1.0")),
        ("dev", "linux/amd64", Some("1.2.0-dev")),
        ("1.0.0", "linux/amd64", Some("1.0.0")),
        ("1.0.1", "linux/amd64", None),
        ("stable", "linux/arm64", None),
        ("beta", "linux/amd64", None),
        ("http://example.com/x", "linux/amd64", None),
        ("", "", None),
    ];
    for (setting, platform, resolved) in table {
        assert_eq!(version(setting, platform).as_deref(), resolved, "{setting} on {platform}");
    }
    assert_eq!(catalog.resolve("other", "stable", "linux/amd64"), None);
    let info = catalog.resolve(server, "1.0.0", "linux/amd64").expect("there").into_update_info("http://host:1/");
    let sha256: [u8; 32] = info.sha256.clone().try_into().expect("32 bytes");
    assert_eq!(info.url, format!("http://host:1{}", artifact_path(&sha256)));
    assert_eq!(
        (info.format(), info.version.as_str(), info.filename.as_str()),
        (PackageFormat::Executable, "1.0.0", server)
    );
}

#[test]
fn what_is_added_verifies() {
    let shop = Workshop::stocked();
    shop.ok("keygen @stranger.key");
    fs::write(shop.path("evil"), "evil").expect("writes");
    let sign = |key: &str, version: &str, number| {
        format!(
            "sign --key @{key} --version {version} --number {number} --artifact @evil --platform linux/amd64 --out @evil.json"
        )
    };
    shop.ok(&sign("stranger.key", "6.6.6", 66));
    shop.refused("add --data @data --artifact @evil @evil.json", "0 of 1 signatures by release keys are valid");
    shop.refused("verify --root @root.1.json @evil.json", "0 of 1 signatures by release keys are valid");
    // A root key is no release key here.
    shop.ok(&sign("root.key", "6.6.6", 66));
    shop.refused("add --data @data --artifact @evil @evil.json", "0 of 1 signatures by release keys");

    // The version that is published already, with other bytes.
    shop.ok(&sign("release.key", "1.0.0", 66));
    shop.refused("add --data @data --artifact @evil @evil.json", "is here already, with other contents");
    // Without its bytes, and with wrong ones.
    shop.ok(&sign("release.key", "2.0.0", 7));
    shop.refused("add --data @data @evil.json", "name its file with --artifact");
    shop.refused("add --data @data --artifact @1.0.0 @evil.json", "name its file with --artifact");
    shop.refused("channel --key @release.key --data @data --set stable=2.0.0", "add that release first");
    // Changed by one byte on its way.
    let document = fs::read_to_string(shop.path("evil.json")).expect("reads");
    fs::write(shop.path("bent.json"), document.replace("\"version\":7", "\"version\":8")).expect("writes");
    shop.refused("add --data @data --artifact @evil @bent.json", "1 are wrong");
    fs::write(shop.path("none.json"), "{\"signed\": 1}").expect("writes");
    shop.refused("add --data @data @none.json", "is no signed root, release or channel");
    shop.refused("add --data @data @missing.json", "cannot read @missing.json");

    let before = shop.ok("list --data @data");
    assert!(!before.contains("2.0.0") && !before.contains("6.6.6"));
    let parts = fs::read_dir(shop.path("data/releases/artifact")).expect("a folder");
    assert_eq!(parts.count(), 3, "nothing half-done is left");
    shop.ok("add --data @data --artifact @evil @evil.json");
    shop.ok("add --data @data --artifact @evil @evil.json");
    shop.ok("verify --root @root.1.json --artifact @evil @evil.json");
    shop.refused("verify --root @root.1.json --artifact @1.0.0 @evil.json", "no --artifact is the linux/amd64 one");
}

#[test]
fn what_is_packed_says_what_is_inside() {
    let shop = Workshop::stocked();
    fs::write(shop.path("server"), Workshop::artifact("2.0.0")).expect("writes");
    let said = shop.ok("sign --key @release.key --xz --version 2.0.0 --number 4 --artifact @server --platform linux/amd64 --out @2.0.0.json");
    assert!(said.contains("@server.xz: ") && said.contains(" of 300000 bytes, to be added instead"), "{said}");
    shop.refused("add --data @data --artifact @server @2.0.0.json", "name its file with --artifact");
    shop.ok("add --data @data --artifact @server.xz @2.0.0.json");
    shop.ok("verify --root @root.1.json --artifact @server.xz @2.0.0.json");
    let hint = Catalog::read(&shop.data()).resolve(brand::MACHINE_SERVER, "2.0.0", "linux/amd64").expect("there");
    assert_eq!(hint.into_update_info("http://h").format(), PackageFormat::XzExecutable);
    let root = shop.data().root().expect("a root");
    let version = "2.0.0".parse().expect("a version");
    let release = shop.data().release(&root, brand::MACHINE_SERVER, &version).expect("genuine").expect("there");
    let artifact = release.artifact("linux/amd64").expect("there");
    let inside = artifact.unpacked.expect("it is packed");
    assert_eq!(inside.length, 300_000);
    assert_eq!(inside.sha256, *ring::digest::digest(&ring::digest::SHA256, &Workshop::artifact("2.0.0")).as_ref());
    assert_eq!(artifact.length, fs::metadata(shop.path("server.xz")).expect("there").len());

    // What was packed before says the same.
    let sign = |file: &str| {
        format!(
            "sign --key @release.key --format xz --version 2.0.1 --number 5 --artifact @{file} --platform linux/amd64 --out @2.0.1.json"
        )
    };
    shop.ok(&sign("server.xz"));
    shop.ok("add --data @data --artifact @server.xz @2.0.1.json");
    shop.refused(&sign("server"), "cannot pack @server");
    let stream = fs::read(shop.path("server.xz")).expect("reads");
    fs::write(shop.path("two.xz"), [stream.clone(), stream.clone()].concat()).expect("writes");
    shop.refused(&sign("two.xz"), "something follows the xz stream");
    fs::write(shop.path("cut.xz"), &stream[..stream.len() / 2]).expect("writes");
    shop.refused(&sign("cut.xz"), "cannot pack @cut.xz");
    // `xz -9`: devices would refuse it.
    let mut options = lzma_rust2::XzOptions::with_preset(0);
    options.lzma_options.dict_size = 64 << 20;
    let mut writer =
        lzma_rust2::XzWriter::new(fs::File::create(shop.path("9.xz")).expect("made"), options).expect("options");
    std::io::Write::write_all(&mut writer, &Workshop::artifact("9")).expect("writes");
    writer.finish().expect("writes");
    shop.refused(&sign("9.xz"), "devices refuse a dictionary of more than 8 MiB");
}

#[test]
fn a_rotation_keeps_what_nobody_speaks_of() {
    let shop = Workshop::stocked();
    let said = shop.ok("keygen @next.key");
    let next = said.rsplit(' ').next().expect("a key").trim().to_owned();
    // Only the root key is replaced: releases and channels go on counting.
    let said = shop
        .ok("rotate --previous @root.1.json --key @root.key --key @next.key --root-key @next.key --out @root.2.json");
    assert!(said.contains(&format!("\"release_keys\": [\"{next}\"], \"release_keys_threshold\": 1")), "{said}");
    shop.ok("add --data @data @root.2.json");
    assert!(!shop.ok("list --data @data").contains("does not count"));
    // Only its end is put off.
    shop.ok("rotate --previous @root.2.json --key @next.key --expires 2040-01-31 --out @root.3.json");
    shop.ok("add --data @data @root.3.json");
    let root = shop.data().root().expect("a root");
    assert_eq!((root.version, root.expires.to_string().as_str()), (3, "2040-01-31T23:59:59Z"));
    assert!(!shop.ok("list --data @data").contains("does not count"));
    // A root of old keys, or of a thief, goes nowhere.
    shop.ok("rotate --previous @root.3.json --key @root.key --root-key @root.key --out @root.4.json");
    shop.refused("add --data @data @root.4.json", "0 of 1 signatures by root keys");
}

#[test]
fn channels_go_forward() {
    let shop = Workshop::stocked();
    fs::copy(shop.path("data/releases/channel/stable.json"), shop.path("old.json")).expect("copies");
    let said = shop.ok("channel --key @release.key --data @data --set stable=1.0.0 --expires 30d");
    assert!(
        said.contains("1.0.0 is") || said.contains("is 1.0.0 now (document number 2"),
        "a recall is a newer document: {said}"
    );
    shop.refused("add --data @data @old.json", "number 2 is here already");
    let root = shop.data().root().expect("a root");
    let stable = shop.data().channel(&root, "stable").expect("reads").expect("there");
    let now = crate::clock::Clock::default().now() / 1000;
    assert_eq!(stable.expires.at(now + 29 * 86_400, true), Freshness::Fresh);
    assert_eq!(stable.expires.at(now + 31 * 86_400, true), Freshness::Expired);
    shop.refused("channel --key @release.key --data @data --set stable", "such as stable=1.1.0");
    shop.refused("channel --key @release.key --data @data --set stable=1.0.0 --expires soon", "such as 90d");
    // Another product keeps its place in the channel.
    shop.ok("sign --key @release.key --product platform-agent --version 3.0.0 --number 1 --artifact @1.0.0 --platform linux/arm64 --out @agent.json");
    shop.ok("add --data @data --artifact @1.0.0 @agent.json");
    shop.ok("channel --key @release.key --data @data --product platform-agent --set stable=3.0.0");
    let stable = shop.data().channel(&root, "stable").expect("reads").expect("there");
    assert_eq!((stable.version, stable.products.len()), (3, 2));
}

#[test]
fn roots_rotate_with_thresholds() {
    let shop = Workshop::stocked();
    ["a.key", "b.key", "c.key"].iter().for_each(|key| drop(shop.ok(&format!("keygen @{key}"))));
    let keys = "--root-key @a.key --root-key @b.key --root-key @c.key";
    let words = |line: &str| shop.run(line);
    // Two of three from now on; signed by the old key and one new one, the second one lies elsewhere.
    let line = format!(
        "root --key @root.key --key @a.key {keys} --root-threshold 2 --release-key @c.key --previous @root.1.json --out @root.2.json"
    );
    assert!(words(&line).expect("signs").contains("not complete yet"));
    shop.refused("add --data @data @root.2.json", "1 of 2 signatures by root keys");
    shop.ok("cosign --key @b.key @root.2.json");
    shop.ok("add --data @data @root.2.json");
    assert_eq!(shop.data().root().expect("a chain").version, 2);
    shop.ok("verify --root @root.1.json --root @root.2.json");

    // What the old release key signed counts no more, and is no longer hinted at.
    assert!(Catalog::read(&shop.data()).resolve(brand::MACHINE_SERVER, "stable", "linux/amd64").is_none());
    // Its own rule cannot be impossible, and a chain has no gaps.
    shop.refused("root --key @a.key --root-threshold 4 --previous @root.2.json --out @root.3.json", "threshold");
    shop.ok("root --key @a.key --key @b.key --root-threshold 2 --root-key @a.key --root-key @b.key --previous @root.2.json --out @root.3.json");
    shop.ok("root --key @a.key --key @b.key --root-threshold 2 --root-key @a.key --root-key @b.key --previous @root.3.json --out @root.4.json");
    shop.refused("add --data @data @root.4.json", "number 3 was expected");
    shop.ok("add --data @data @root.4.json @root.3.json");
    assert_eq!(shop.data().root().expect("a chain").version, 4);
    let first = fs::read(shop.path("root.1.json")).expect("reads");
    assert!(Root::pinned(&first).is_ok());
}

#[test]
fn after_a_rotation_everything_is_signed_again_and_nothing_else_changes() {
    let shop = Workshop::stocked();
    ["new-root.key", "new-release.key"].iter().for_each(|key| drop(shop.ok(&format!("keygen @{key}"))));
    shop.ok("channel --key @release.key --data @data --set stable=1.0.0");
    shop.ok("root --previous @root.1.json --key @root.key --key @new-root.key --root-key @new-root.key --release-key @new-release.key --out @root.2.json");
    shop.ok("add --data @data @root.2.json");
    let listed = shop.ok("list --data @data");
    assert!(listed.contains("platform-server 1.1.0 does not count, sign it again"), "{listed}");
    let hint = || Catalog::read(&shop.data()).resolve(brand::MACHINE_SERVER, "stable", "linux/amd64");
    assert!(hint().is_none());

    // The old document with one more signature, and a new one about the same bytes, are both the same release.
    shop.ok("cosign --key @new-release.key @1.0.0.json");
    shop.ok("add --data @data @1.0.0.json");
    let anew = "sign --key @new-release.key --artifact @1.1.0 --platform linux/amd64 --out @1.1.0.json --version 1.1.0";
    shop.ok(&format!("{anew} --number 7"));
    shop.refused("add --data @data @1.1.0.json", "other contents");
    shop.ok(&format!("{anew} --number 2"));
    shop.ok("add --data @data @1.1.0.json");
    // Devices remember the channel's number: it goes on from the one that counts no more.
    shop.ok("channel --key @new-release.key --data @data --set stable=1.1.0");
    let data = shop.data();
    let root = data.root().expect("a chain");
    let stable = data.channel(&root, "stable").expect("reads").expect("there");
    assert_eq!((root.version, stable.version), (2, 3));
    assert_eq!(hint().expect("hinted at again").version.to_string(), "1.1.0");
}

#[test]
fn a_running_server_notices() {
    let shop = Workshop::stocked();
    let watched = Watched::new(shop.data());
    let (before, at) = (watched.revision(10_000), |watched: &Watched| {
        watched.catalog().resolve(brand::MACHINE_SERVER, "stable", "linux/amd64").map(|hint| hint.version.to_string())
    });
    assert_eq!(at(&watched).as_deref(), Some("1.1.0"));
    shop.ok("channel --key @release.key --data @data --set stable=1.0.0");
    assert_eq!(watched.revision(10_500), before, "looked at once a second");
    assert_eq!(watched.revision(11_100), before + 1);
    assert_eq!(at(&watched).as_deref(), Some("1.0.0"));
    assert_eq!(watched.revision(5), before + 1, "a clock that jumped back does not blind it");
    let empty = Watched::new(Folder::of_data(Path::new("/nonexistent")));
    assert_eq!((empty.revision(0), at(&empty)), (1, None));
}

async fn get(folder: &Folder, path: &str, headers: &[(header::HeaderName, &str)]) -> (StatusCode, HeaderMap, Vec<u8>) {
    ask(folder, Method::GET, path, headers).await
}

async fn ask(
    folder: &Folder,
    method: Method,
    path: &str,
    sent: &[(header::HeaderName, &str)],
) -> (StatusCode, HeaderMap, Vec<u8>) {
    let headers = sent.iter().map(|(name, value)| (name.clone(), value.parse().expect("a header value"))).collect();
    let (head, body) = answer(folder, &method, path, &headers).await.into_parts();
    let bytes = body.collect().await.expect("a whole body").to_bytes().to_vec();
    if method == Method::GET
        && let Some(length) = head.headers.get(header::CONTENT_LENGTH)
    {
        assert_eq!(length.to_str().expect("digits"), bytes.len().to_string());
    }
    (head.status, head.headers, bytes)
}

#[tokio::test]
async fn documents_are_served_as_they_were_signed() {
    let shop = Workshop::stocked();
    let folder = shop.data();
    for (path, file) in [
        ("/releases/v1/root.1.json", "root.1.json"),
        ("/releases/v1/release/platform-server/1.2.0-dev.json", "1.2.0-dev.json"),
    ] {
        let (status, headers, body) = get(&folder, path, &[]).await;
        assert_eq!((status, body), (StatusCode::OK, fs::read(shop.path(file)).expect("reads")), "{path}");
        assert_eq!(headers[header::CACHE_CONTROL], "no-cache");
        let etag = headers[header::ETAG].to_str().expect("text").to_owned();
        let (status, _, body) = get(&folder, path, &[(header::IF_NONE_MATCH, &etag)]).await;
        assert_eq!((status, body.len()), (StatusCode::NOT_MODIFIED, 0));
    }
    for path in ["/releases/v1/root.2.json", "/releases/v1/channel/none.json", "/releases/v1/stamp", "/releases/"] {
        assert_eq!(get(&folder, path, &[]).await.0, StatusCode::NOT_FOUND, "{path}");
    }
    let (status, headers, _) = ask(&folder, Method::POST, "/releases/v1/root.1.json", &[]).await;
    assert_eq!(
        (status, &headers[header::ALLOW]),
        (StatusCode::METHOD_NOT_ALLOWED, &"GET, HEAD".parse().expect("text"))
    );
}

#[tokio::test]
async fn a_download_that_broke_off_goes_on() {
    let shop = Workshop::stocked();
    let bytes = Workshop::artifact("1.1.0");
    let digest = hex::encode(ring::digest::digest(&ring::digest::SHA256, &bytes).as_ref());
    let (folder, path, etag) = (shop.data(), format!("/releases/v1/artifact/{digest}"), format!("\"{digest}\""));

    let (status, headers, body) = get(&folder, &path, &[]).await;
    assert_eq!((status, body == bytes, headers[header::ETAG] == etag.as_str()), (StatusCode::OK, true, true));
    assert_eq!(headers[header::ACCEPT_RANGES], "bytes");

    let rest = [(header::RANGE, "bytes=100000-"), (header::IF_RANGE, etag.as_str())];
    let (status, headers, body) = get(&folder, &path, &rest).await;
    assert_eq!((status, body == bytes[100_000..]), (StatusCode::PARTIAL_CONTENT, true));
    assert_eq!(headers[header::CONTENT_RANGE], "bytes 100000-299999/300000");

    let other = [(header::RANGE, "bytes=100000-"), (header::IF_RANGE, "\"another\"")];
    assert_eq!(get(&folder, &path, &other).await.2.len(), bytes.len(), "other bytes are sent whole");
    let (status, headers, body) = get(&folder, &path, &[(header::RANGE, "bytes=300000-")]).await;
    assert_eq!((status, body.len()), (StatusCode::RANGE_NOT_SATISFIABLE, 0));
    assert_eq!(headers[header::CONTENT_RANGE], "bytes */300000");
    let (status, headers, body) = ask(&folder, Method::HEAD, &path, &[]).await;
    assert_eq!(
        (status, body.len(), &headers[header::CONTENT_LENGTH]),
        (StatusCode::OK, 0, &"300000".parse().expect("text"))
    );
    let missing = format!("/releases/v1/artifact/{}", "0".repeat(64));
    assert_eq!(get(&folder, &missing, &[]).await.0, StatusCode::NOT_FOUND);
}
