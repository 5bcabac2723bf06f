//! What a thief of the fleet server and somebody in the middle can make a device do, and what not: both are played.
//!
//! The thief answers every question of the device as they like and has every document that was ever published, but no key.
//! Somebody in the middle of plain http is the same, and over TLS less. docs/security.md has one row for each row here.

use std::time::Duration;

use api::{
    digest::sha256,
    releases::{
        Artifact, Channel, ChannelEntry, Expires, Format, Release, RoleKeys, Root, Unpacked, artifact_path,
        channel_path, release_path, root_path, sign, sign::SigningKey,
    },
};
use board_sim::image;
use serde_json::json;
use test_harness::real::{
    mirror::{Lie, Mirror},
    releases::this_platform,
};

use crate::world::{Signal, UpdatePhase, World, http, server, signal, update};

const PRODUCT: &str = "platform-server";
const END: Expires = Expires::from_unix_seconds(4_000_000_000);
const LONG_AGO: Expires = Expires::from_unix_seconds(1_000_000_000);

/// A device whose manufacturer gave it the root key; the thief's server in front of the real one.
struct Scene {
    world: World,
    thief: Mirror,
    /// The manufacturer's: for what is signed by mistake or was signed before.
    key: SigningKey,
    /// Document number 1 of `stable`; the device has seen number 2.
    old_news: Vec<u8>,
}

impl Scene {
    fn new(advanced: &serde_json::Value) -> Scene {
        let mut world = World::new(&[("1.1.0", &[]), ("1.0.0", &[])]);
        let key = SigningKey::from_text(&std::fs::read(world.factory.key()).unwrap()).unwrap();
        let (status, old_news) = http::get(&format!("{}{}", world.url, channel_path("stable"))).unwrap();
        assert_eq!(status, 200);
        world.channel("stable", "1.0.0");
        let thief = Mirror::start(Some(&world.url)).unwrap();
        world.write_credentials(&thief.url());
        let mut advanced = advanced.clone();
        advanced["release_keys"] = json!([key.public().to_string()]);
        world.write_defaults(&advanced);
        world.start_agent();
        assert_eq!(world.until_ready().version, "1.0.0");
        Scene { world, thief, key, old_news: old_news.into_bytes() }
    }

    fn wants(&self, version: &str) {
        let wish = json!({"version_control": {"platform-server": version}});
        self.world.configure(
            &json!({"version_control": wish["version_control"], "advanced_settings": {"probation_minutes": 1}}),
        );
    }

    fn staged(&self, version: &str) {
        self.world.until(&format!("{version} to be staged"), |status| {
            update(status).phase() == UpdatePhase::Staged && update(status).target_version == version
        });
    }
}

fn release(version: &str, artifact: Artifact) -> Release {
    let version = version.parse().unwrap();
    Release { product: PRODUCT.into(), version, number: 99, expires: END, artifacts: vec![artifact] }
}

fn raw(bytes: &[u8]) -> Artifact {
    Artifact::raw(&this_platform(), sha256(bytes), bytes.len() as u64)
}

fn channel(name: &str, version: &str, number: u64) -> Channel {
    let entry = ChannelEntry { product: PRODUCT.into(), version: version.parse().unwrap(), number };
    Channel { name: name.into(), version: 1000, expires: END, products: vec![entry] }
}

fn honest(body: impl Into<Vec<u8>>) -> Lie {
    Lie::Body(200, body.into())
}

/// The documents and bytes of one attack, and what the device says about it.
struct Attack {
    name: &'static str,
    setting: String,
    lies: Vec<(String, Lie)>,
    words: &'static str,
}

/// Asks for versions of its own, so that each attack is a question of its own.
struct Plot<'a> {
    key: &'a SigningKey,
    attacks: Vec<Attack>,
}

impl Plot<'_> {
    fn attack(&mut self, name: &'static str, setting: &str, lies: Vec<(String, Lie)>, words: &'static str) {
        self.attacks.push(Attack { name, setting: setting.to_owned(), lies, words });
    }

    /// A release document that is answered for `9.9.N`, and what the artifact's address answers.
    fn on_release(
        &mut self,
        name: &'static str,
        words: &'static str,
        forged: impl FnOnce(&str) -> (String, Option<(Artifact, Lie)>),
    ) {
        let version = format!("9.9.{}", self.attacks.len());
        let (document, artifact) = forged(&version);
        let mut lies = vec![(release_path(PRODUCT, &version.parse().unwrap()), honest(document))];
        lies.extend(artifact.map(|(artifact, lie)| (artifact.path, lie)));
        self.attack(name, &version, lies, words);
    }

    /// A release that the manufacturer did sign, and an artifact that is not as it should be.
    fn on_artifact(&mut self, name: &'static str, words: &'static str, artifact: Artifact, lie: Lie) {
        let key = self.key;
        self.on_release(name, words, |version| {
            (sign::release(&release(version, artifact.clone()), &[key]).unwrap(), Some((artifact, lie)))
        });
    }
}

/// Whether these are the words. Nothing expires by a clock that nobody vouches for, as this machine's may be.
fn says(said: &str, words: &str) -> bool {
    said.contains(words)
        || words.contains("expired at")
            && said == "a signed document seems expired, but this device's clock is not synchronised: check the clock"
}

fn signed_anyhow(canonical: &str, key: &SigningKey) -> String {
    sign::add_signature(format!("{{\"signed\":{canonical},\"signatures\":[]}}").as_bytes(), key).unwrap()
}

fn attacks(scene: &Scene) -> Vec<Attack> {
    let key = &scene.key;
    let thief = SigningKey::generate().unwrap();
    let good = std::fs::read(scene.world.path("stand-in-1.1.0")).unwrap();
    let mut other_machine = good.clone();
    other_machine[18..20].copy_from_slice(if cfg!(target_arch = "aarch64") { &[62, 0] } else { &[183, 0] });
    // Never served, so that no earlier row can have brought it here.
    let absent = [&*good, b"more"].concat();
    let mut flipped = absent.clone();
    *flipped.last_mut().unwrap() ^= 1;
    let real = |version: &str| release(version, raw(&good));
    let packed = |inside: &[u8], promised: &[u8], dictionary: u32| {
        let stream = image::xz(inside, dictionary);
        let unpacked = Unpacked { sha256: sha256(promised), length: promised.len() as u64 };
        (Artifact::xz(&this_platform(), sha256(&stream), stream.len() as u64, unpacked), honest(stream))
    };
    let mut plot = Plot { key, attacks: Vec::new() };

    plot.on_release("a release signed by the thief", "0 of 1 signatures by release keys are valid", |version| {
        (sign::release(&real(version), &[&thief]).unwrap(), None)
    });
    plot.on_release("a release changed after it was signed", "(1 are wrong, 0 by keys that do not count)", |version| {
        (sign::release(&real(version), &[key]).unwrap().replace("\"version\":99", "\"version\":98"), None)
    });
    plot.on_release(
        "another version's release",
        "was asked for, and this is the one for platform-server 1.1.0",
        |_| (sign::release(&real("1.1.0"), &[key]).unwrap(), None),
    );
    plot.on_release("another product's release", "was asked for, and this is the one for platform-agent", |version| {
        (sign::release(&Release { product: "platform-agent".into(), ..real(version) }, &[key]).unwrap(), None)
    });
    plot.on_release("a release for other machines only", "is not released for linux/", |version| {
        (
            sign::release(&release(version, Artifact { platform: "linux/riscv64".into(), ..raw(&good) }), &[key])
                .unwrap(),
            None,
        )
    });
    plot.on_release("a release that has expired", "expired at 2001-09-09T01:46:40Z", |version| {
        (sign::release(&Release { expires: LONG_AGO, ..real(version) }, &[key]).unwrap(), None)
    });
    plot.on_release("a zip archive", "is packed as zip, which this agent cannot unpack", |version| {
        let zip = Artifact { format: Format::Other("zip".into()), ..raw(&good) };
        (sign::release(&release(version, zip), &[key]).unwrap(), None)
    });
    for (name, path) in [
        ("a path to another server", "//evil.example/x"),
        ("a path out of the folder", "/../../etc/shadow"),
        ("an escaped path", "/%2e%2e/x"),
    ] {
        plot.on_release(name, "targets is missing or is not", |version| {
            let document = sign::release(&real(version), &[key]).unwrap();
            let signed = document.split_once("\"signed\":").unwrap().1.trim_end().strip_suffix('}').unwrap();
            (signed_anyhow(&signed.replace(&artifact_path(&sha256(&good)), path), key), None)
        });
    }
    plot.on_release("a web page instead of a release", "not a signed document", |_| {
        ("<html>Welcome</html>".into(), None)
    });

    plot.on_artifact(
        "bytes of the same length",
        "its digest is not the one in the signed release",
        raw(&absent),
        honest(flipped),
    );
    plot.on_artifact("a web page with status 200", "1.1.0", raw(&absent), honest("<html>Welcome</html>"));
    plot.attacks.last_mut().unwrap().words = "bytes and the signed release says";
    plot.on_artifact(
        "an endless stream",
        "is longer than the",
        raw(&absent),
        Lie::Endless { head: "HTTP/1.1 200 OK\r\n\r\n".into(), again: vec![b'x'; 65_536], pause: Duration::ZERO },
    );
    plot.on_artifact(
        "endless headers",
        "could not be downloaded",
        raw(&absent),
        Lie::Endless {
            head: "HTTP/1.1 200 OK\r\n".into(),
            again: b"x-more: and more\r\n".to_vec(),
            pause: Duration::ZERO,
        },
    );
    plot.on_artifact(
        "a program of another machine",
        "and this machine is linux/",
        raw(&other_machine),
        honest(other_machine.clone()),
    );
    plot.on_artifact("a script", "it is no ELF executable but a script", raw(b"#!/bin/sh\n"), honest("#!/bin/sh\n"));
    let (bomb, stream) = packed(&vec![0; 64 << 20], &absent, 1 << 16);
    plot.on_artifact("an xz bomb", "there is more in it than the", bomb, stream);
    let (large, stream) = packed(&absent, &absent, 12 << 20);
    plot.on_artifact("a dictionary that eats the memory", "its dictionary is larger than the 8 MiB", large, stream);
    let (other, stream) = packed(b"something else", &absent, 1 << 16);
    plot.on_artifact("a stream with something else in it", "what is inside is not what was signed", other, stream);

    let stable = |body: Vec<u8>| vec![(channel_path("stable"), honest(body))];
    let dev = |body: String| vec![(channel_path("dev"), honest(body))];
    plot.attack("old news", "stable", stable(scene.old_news.clone()), "document 1, and document 2 has been seen");
    let forged = sign::channel(&channel("dev", "1.1.0", 1), &[&thief]).unwrap();
    plot.attack("a channel signed by the thief", "dev", dev(forged), "0 of 1 signatures by channel keys are valid");
    plot.attack(
        "another channel",
        "stable",
        stable(sign::channel(&channel("dev", "1.1.0", 1), &[key]).unwrap().into()),
        "for stable was asked for, and this is the one for dev",
    );
    let expired = Channel { expires: LONG_AGO, ..channel("dev", "1.1.0", 1) };
    plot.attack(
        "a channel that has expired",
        "dev",
        dev(sign::channel(&expired, &[key]).unwrap()),
        "the channel dev expired at 2001-09-09T01:46:40Z",
    );
    let mixed = sign::channel(&Channel { version: 2000, ..channel("stable", "1.1.0", 77) }, &[key]).unwrap();
    plot.attack("mix and match", "stable", stable(mixed.into()), "as release number 77, and its document says 1");
    let (own, keys) = (SigningKey::generate().unwrap(), |key: &SigningKey| RoleKeys::new(1, [key.public()]));
    let root = Root { version: 2, expires: END, root: keys(&own), release: keys(&own), channel: keys(&own) };
    let root = sign::root(&root, &[&own]).unwrap();
    plot.attack(
        "a root of the thief's",
        "1.1.0",
        vec![(root_path(2), honest(root))],
        "root document 2: 0 of 1 signatures by root keys are valid",
    );
    plot.attack(
        "nothing at all",
        "dev",
        vec![(channel_path("dev"), Lie::Body(404, Vec::new()))],
        "the fleet server has no channel dev",
    );
    plot.attacks
}

#[test]
fn a_stolen_fleet_server_forges_nothing() {
    let scene = Scene::new(&json!({"allow_unsigned_pins": false}));
    let (world, thief) = (&scene.world, &scene.thief);
    let pid = world.server_pid();
    for Attack { name, setting, lies, words } in attacks(&scene) {
        thief.be_honest();
        for (path, lie) in lies {
            thief.lie(&path, lie);
        }
        scene.wants(&setting);
        let status = world.until(&format!("{name}: {words}"), |status| {
            update(status).wanted == setting && says(&update(status).last_error, words)
        });
        assert!(update(&status).bad_versions.is_empty(), "{name}: nothing has failed, so nothing is bad");
        println!("{name} | {}", update(&status).last_error);
    }
    // Nor a URL of the thief's, where the manufacturer forbids them.
    thief.be_honest();
    thief.lie("/evil", honest(std::fs::read(world.build("6.6.6", &[])).unwrap()));
    scene.wants(&format!("{}/evil", thief.url()));
    world.until("a refusal", |status| {
        update(status).last_error.contains("the manufacturer allows signed releases only")
    });
    assert_eq!(thief.asked("/evil"), 0);
    assert_eq!(
        (world.server_pid(), world.read("/version").as_str()),
        (pid, "1.0.0"),
        "the old version runs on, undisturbed"
    );
    // What a thief can do: choose among what was signed. And nothing of all that stands in the way of a good release.
    scene.wants("1.1.0");
    scene.staged("1.1.0");
    let download = world.options.root().join("download");
    let left: Vec<_> = std::fs::read_dir(download).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn what_a_stolen_fleet_server_can_do() {
    let scene = Scene::new(&json!({}));
    let (world, thief) = (&scene.world, &scene.thief);
    let pid = world.server_pid();
    // Withhold: what is installed runs on, and the device says what is missing.
    thief.lie("/releases/", Lie::Body(503, Vec::new()));
    scene.wants("1.1.0");
    world.until("a report", |status| update(status).last_error.contains("answered with status 503"));
    assert_eq!(world.server_pid(), pid);
    // Choose among what was signed: any version, also an older one, by naming it exactly.
    thief.be_honest();
    scene.wants("stable");
    scene.wants("1.1.0");
    scene.staged("1.1.0");
    // Name a URL, unless the manufacturer forbids it: the machine server only, and it says so.
    thief.lie("/theirs", honest(std::fs::read(world.build("6.6.6", &[])).unwrap()));
    let theirs = format!("{}/theirs", thief.url());
    scene.wants(&theirs);
    let staged = world.until("the pin to be staged", |status| {
        update(status).phase() == UpdatePhase::Staged && update(status).wanted == theirs
    });
    assert!(
        update(&staged).last_error.contains("plain http without a signed digest"),
        "{}",
        update(&staged).last_error
    );
}

#[test]
fn keys_are_rotated_and_revoked_while_a_device_sleeps() {
    let scene = Scene::new(&json!({}));
    let (world, thief) = (&scene.world, &scene.thief);
    let [a, b, c, signer] = [1, 2, 3, 4].map(|seed| SigningKey::from_seed(&[seed; 32]).unwrap());
    let trio = RoleKeys::new(2, [&a, &b, &c].map(SigningKey::public));
    let release_keys = RoleKeys::new(1, [signer.public()]);
    // The root key goes to three people, releases get a key of their own; then a root a month, for years.
    let numbered = |version| Root {
        version,
        expires: END,
        root: trio.clone(),
        release: release_keys.clone(),
        channel: release_keys.clone(),
    };
    thief.lie(&root_path(2), honest(sign::root(&numbered(2), &[&scene.key, &a, &b]).unwrap()));
    for number in 3..=80 {
        thief.lie(&root_path(number), honest(sign::root(&numbered(number), &[&b, &c]).unwrap()));
    }
    // One of the three is not enough for the next one.
    thief.lie(&root_path(81), honest(sign::root(&numbered(81), &[&c]).unwrap()));
    scene.wants("1.1.0");
    world.until("a refusal", |status| {
        update(status).last_error.contains("root document 81: 1 of 2 signatures by root keys are valid")
    });
    // What the revoked key has signed counts no more.
    thief.lie(&root_path(81), honest(sign::root(&numbered(81), &[&a, &c]).unwrap()));
    scene.wants("stable");
    world
        .until("a refusal", |status| update(status).last_error.contains("0 of 1 signatures by channel keys are valid"));
    scene.wants("1.1.0");
    world
        .until("a refusal", |status| update(status).last_error.contains("0 of 1 signatures by release keys are valid"));
    // What the new key signs does.
    let good = std::fs::read(world.path("stand-in-1.1.0")).unwrap();
    let document = sign::release(&release("1.1.0", raw(&good)), &[&signer]).unwrap();
    thief.lie(&release_path(PRODUCT, &"1.1.0".parse().unwrap()), honest(document));
    scene.wants("stable");
    scene.wants("1.1.0");
    scene.staged("1.1.0");
    // Each root was asked for once: the chain is stored as it is followed.
    assert_eq!(thief.asked("/root.40.json"), 1);
}

#[test]
fn a_download_that_drips_delays_nothing() {
    let scene = Scene::new(&json!({}));
    let (world, thief) = (&scene.world, &scene.thief);
    let good = std::fs::read(world.path("stand-in-1.1.0")).unwrap();
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", good.len());
    let again = vec![0x7F];
    thief.lie("/releases/v1/artifact/", Lie::Endless { head, again, pause: Duration::from_millis(50) });
    scene.wants("1.1.0");
    world.until("a download", |status| update(status).phase() == UpdatePhase::Downloading);
    // A machine server that dies runs again, a restart that somebody wants is done, and settings arrive.
    let pid = world.server_pid();
    signal(pid, Signal::KILL);
    let pid = world.until_other_than(pid);
    world.until("a crash that is told", |status| server(status).crashes == 1);
    world.mark_for_restart();
    world.until_other_than(pid);
    assert_eq!(update(&world.status()).phase(), UpdatePhase::Downloading);
    // Another wish ends it.
    thief.be_honest();
    scene.wants("stable");
    world.until("the wish", |status| {
        update(status).wanted == "stable" && update(status).phase() != UpdatePhase::Downloading
    });
    scene.wants("1.1.0");
    scene.staged("1.1.0");
}
