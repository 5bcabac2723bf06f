//! TUF's reference library for Rust reads and verifies what we sign, and this is where our documents differ from TUF's.
//!
//! docs/adr/0019 says why. The library re-writes each object as canonical JSON before it verifies: equal signatures mean
//! that our bytes are exactly those.

use api::releases::{
    Artifact, Channel, ChannelEntry, Expires, Release, RoleKeys, Root, Unpacked, hex,
    sign::{self, SigningKey},
};
use tough::schema::{self, RoleType, Signed, Snapshot, Targets};

const END: Expires = Expires::from_unix_seconds(1_900_000_000);

fn key(seed: u8) -> SigningKey {
    SigningKey::from_seed(&[seed; 32]).unwrap()
}

fn keys(threshold: usize, seeds: &[u8]) -> RoleKeys {
    RoleKeys::new(threshold, seeds.iter().map(|seed| key(*seed).public()))
}

/// Two of root keys 1, 2, 3; release key 4; channel key 5.
fn root() -> Root {
    Root { version: 1, expires: END, root: keys(2, &[1, 2, 3]), release: keys(1, &[4]), channel: keys(1, &[5]) }
}

fn release() -> Release {
    Release {
        product: "platform-server".into(),
        version: "1.1.0-rc.1+build.7".parse().unwrap(),
        number: 2,
        expires: END,
        artifacts: vec![
            Artifact::xz("linux/arm64", [0xAB; 32], 77, Unpacked { sha256: [0xEF; 32], length: 5000 }),
            Artifact::raw("linux/amd64", [0xCD; 32], 4096),
        ],
    }
}

fn channel() -> Channel {
    let entry = |product: &str| ChannelEntry { product: product.into(), version: release().version, number: 2 };
    let products = vec![entry("platform-agent"), entry("platform-server")];
    Channel { name: "stable".into(), version: 7, expires: END, products }
}

fn read<T: serde::de::DeserializeOwned>(document: &str) -> Signed<T> {
    serde_json::from_str(document).unwrap_or_else(|error| panic!("{error}: {document}"))
}

fn signed_root() -> Signed<schema::Root> {
    read(&sign::root(&root(), &[&key(1), &key(3)]).unwrap())
}

#[test]
fn our_documents_verify() {
    let root = signed_root();
    root.signed.verify_role(&root).expect("a root, by its own keys");
    assert_eq!(root.signed.version.get(), 1);
    assert_eq!(root.signed.expires.to_rfc3339(), "2030-03-17T17:46:40+00:00");
    for (id, key) in &root.signed.keys {
        assert_eq!(key.key_id().unwrap(), *id, "key ids are made as TUF says");
    }

    let targets: Signed<Targets> = read(&sign::release(&release(), &[&key(4)]).unwrap());
    root.signed.verify_role(&targets).expect("a release, by the release keys");
    assert_eq!(targets.signed.version.get(), 2, "the release's number");
    let named = |name: &str| targets.signed.targets.iter().find(|(known, _)| known.raw() == name).unwrap().1;
    let (packed, raw) = (named("linux/arm64"), named("linux/amd64"));
    assert_eq!((raw.length, raw.hashes.sha256.as_ref()), (4096, &[0xCD; 32][..]));
    assert_eq!((packed.length, packed.hashes.sha256.as_ref()), (77, &[0xAB; 32][..]), "what is downloaded");
    assert_eq!(packed.custom["unpacked"]["hashes"]["sha256"], hex::encode(&[0xEF; 32]));

    let snapshot: Signed<Snapshot> = read(&sign::channel(&channel(), &[&key(5)]).unwrap());
    root.signed.verify_role(&snapshot).expect("a channel, by the channel keys");
    assert_eq!(snapshot.signed.version.get(), 7);
    assert_eq!(snapshot.signed.meta["platform-server/1.1.0-rc.1+build.7.json"].version.get(), 2);
}

#[test]
fn the_library_refuses_what_our_devices_refuse() {
    let root = signed_root();
    let below: Signed<schema::Root> = read(&sign::root(&self::root(), &[&key(1)]).unwrap());
    assert!(below.signed.verify_role(&below).is_err(), "one of two");
    let again: Signed<schema::Root> = read(&sign::root(&self::root(), &[&key(1), &key(1)]).unwrap());
    assert!(again.signed.verify_role(&again).is_err(), "one of two, twice");
    let wrong: Signed<Targets> = read(&sign::release(&release(), &[&key(5)]).unwrap());
    assert!(root.signed.verify_role(&wrong).is_err(), "a release by the channel key");
    let bent = sign::release(&release(), &[&key(4)]).unwrap().replace("4096", "4097");
    assert!(root.signed.verify_role(&read::<Targets>(&bent)).is_err(), "changed by one digit");
}

#[test]
fn a_rotation_verifies_step_by_step() {
    let first = signed_root();
    let next = Root { version: 2, root: keys(2, &[2, 3, 6]), release: keys(1, &[7]), ..root() };
    let second: Signed<schema::Root> = read(&sign::root(&next, &[&key(2), &key(3), &key(6)]).unwrap());
    first.signed.verify_role(&second).expect("by the keys before");
    second.signed.verify_role(&second).expect("and by its own");
    let old: Signed<Targets> = read(&sign::release(&release(), &[&key(4)]).unwrap());
    assert!(second.signed.verify_role(&old).is_err(), "what the key that was revoked has signed counts no more");
    let thief: Signed<schema::Root> = read(&sign::root(&next, &[&key(6), &key(7)]).unwrap());
    assert!(first.signed.verify_role(&thief).is_err(), "by strangers");
}

/// Each line is a row of docs/adr/0019.
#[test]
fn where_we_differ() {
    let root = signed_root();
    // The role that TUF wants and nobody here signs with: the channel's keys.
    let ids = |role: RoleType| root.signed.roles[&role].keyids.clone();
    assert_eq!(ids(RoleType::Timestamp), ids(RoleType::Snapshot));
    assert!(!root.signed.consistent_snapshot, "documents are named by what they say, not by number or digest");
    // One document for each version: product and version stand beside what TUF knows.
    let targets: Signed<Targets> = read(&sign::release(&release(), &[&key(4)]).unwrap());
    assert_eq!(targets.signed._extra["product"], "platform-server");
    assert_eq!(targets.signed._extra["product_version"], "1.1.0-rc.1+build.7");
    let mut known: Vec<_> = targets.signed._extra.keys().collect();
    known.sort();
    assert_eq!(known, ["product", "product_version"], "and nothing else");
    // A target's name is its platform; where the bytes are is custom.
    for (name, target) in &targets.signed.targets {
        assert!(target.custom["path"].as_str().unwrap().starts_with("/releases/v1/artifact/"), "{name:?}");
        let mut custom: Vec<_> = target.custom.keys().map(String::as_str).collect();
        custom.sort_unstable();
        assert_eq!(
            custom.iter().filter(|entry| !["format", "path", "unpacked"].contains(entry)).count(),
            0,
            "{custom:?}"
        );
    }
    // One document for each channel, told apart by its name.
    let snapshot: Signed<Snapshot> = read(&sign::channel(&channel(), &[&key(5)]).unwrap());
    assert_eq!(snapshot.signed._extra.keys().collect::<Vec<_>>(), ["name"]);
    assert!(!snapshot.signed.meta.contains_key("targets.json"), "there is no single targets document");
}
