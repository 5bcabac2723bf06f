//! Genuine documents are followed; each way of not being one is a row.

use super::{
    sign::{self, SignError, SigningKey},
    *,
};
use semver::Version;

fn key(seed: u8) -> SigningKey {
    SigningKey::from_seed(&[seed; 32]).unwrap()
}

fn keys(threshold: usize, seeds: &[u8]) -> RoleKeys {
    RoleKeys::new(threshold, seeds.iter().map(|seed| key(*seed).public()))
}

const END: Expires = Expires::from_unix_seconds(1_900_000_000);

/// Root keys 1, 2, 3 (two must sign), release key 4, channel key 5.
fn first_root() -> Root {
    Root { version: 1, expires: END, root: keys(2, &[1, 2, 3]), release: keys(1, &[4]), channel: keys(1, &[5]) }
}

fn release() -> Release {
    Release {
        product: "platform-server".into(),
        version: Version::new(1, 1, 0),
        number: 2,
        expires: END,
        artifacts: vec![
            Artifact::xz("linux/arm64", [0xAB; 32], 77, Unpacked { sha256: [0xEF; 32], length: 5000 }),
            Artifact::raw("linux/amd64", [0xCD; 32], 4096),
        ],
    }
}

fn channel() -> Channel {
    let entry = ChannelEntry { product: "platform-server".into(), version: Version::new(1, 1, 0), number: 2 };
    Channel { name: "stable".into(), version: 7, expires: END, products: vec![entry] }
}

#[test]
fn what_is_signed_reads_back() {
    let root = first_root();
    let text = sign::root(&root, &[&key(1), &key(2)]).unwrap();
    assert_eq!(Root::pinned(text.as_bytes()).unwrap(), root);

    let text = sign::release(&release(), &[&key(4)]).unwrap();
    let read = root.release(text.as_bytes(), "platform-server", &Version::new(1, 1, 0)).unwrap();
    assert_eq!(read.artifact("linux/amd64"), release().artifact("linux/amd64"));
    assert_eq!(read.artifact("linux/arm64").unwrap().format, Format::Xz);
    assert_eq!((read.number, read.expires), (2, END));

    let text = sign::channel(&channel(), &[&key(5)]).unwrap();
    assert_eq!(root.channel(text.as_bytes(), "stable").unwrap(), channel());
}

#[test]
fn the_bytes_are_canonical_and_final() {
    let text = sign::channel(&channel(), &[&key(5)]).unwrap();
    assert!(
        text.contains(
            r#""signed":{"_type":"snapshot","expires":"2030-03-17T17:46:40Z","meta":{"platform-server/1.1.0.json":{"version":2}},"name":"stable","spec_version":"1.0.0","version":7}}"#
        ),
        "{text}"
    );
    let (raw, stream, inside) = ("cd".repeat(32), "ab".repeat(32), "ef".repeat(32));
    assert_eq!(
        release().canonical(),
        format!(
            r#"{{"_type":"targets","expires":"2030-03-17T17:46:40Z","product":"platform-server","product_version":"1.1.0","spec_version":"1.0.0","targets":{{"linux/amd64":{{"custom":{{"format":"raw","path":"/releases/v1/artifact/{raw}"}},"hashes":{{"sha256":"{raw}"}},"length":4096}},"linux/arm64":{{"custom":{{"format":"xz","path":"/releases/v1/artifact/{stream}","unpacked":{{"hashes":{{"sha256":"{inside}"}},"length":5000}}}},"hashes":{{"sha256":"{stream}"}},"length":77}}}},"version":2}}"#
        )
    );
    // SHA-256 of {"keytype":"ed25519","keyval":{"public":"8a88…"},"scheme":"ed25519"}, computed elsewhere.
    assert_eq!(key(1).public().to_string(), "8a88e3dd7409f195fd52db2d3cba5d72ca6709bf1d94121bf3748801b40f6f5c");
    assert_eq!(key(1).public().id().to_string(), "7ab6b86cb2c9684b0ddc10896153aa2595decf4d4327a5ff1a8ab7422c828b12");
    let written = first_root().canonical();
    let mut ids: Vec<_> = [1, 2, 3, 4, 5].map(|seed| key(seed).public().id().to_string()).into();
    ids.sort();
    let places: Vec<_> = ids.iter().map(|id| written.find(&format!("\"{id}\":{{")).unwrap()).collect();
    assert!(places.is_sorted(), "keys are sorted by their ids");
}

#[test]
fn paths() {
    assert_eq!(root_path(3), "/releases/v1/root.3.json");
    assert_eq!(channel_path("dev"), "/releases/v1/channel/dev.json");
    let version = Version::parse("1.2.0-dev.1+abc").unwrap();
    assert_eq!(
        release_path("platform-server", &version),
        "/releases/v1/release/platform-server/1.2.0-dev.1%2Babc.json"
    );
    assert_eq!(artifact_path(&[0xAB; 32]), format!("/releases/v1/artifact/{}", "ab".repeat(32)));
}

#[test]
fn a_channel_that_is_not_genuine() {
    let root = first_root();
    let genuine = sign::channel(&channel(), &[&key(5)]).unwrap();
    let doubled = {
        let signature = &genuine[genuine.find('[').unwrap() + 1..genuine.find(']').unwrap()];
        genuine.replacen(signature, &format!("{signature},{signature}"), 1)
    };
    let no_signatures = sign::channel(&channel(), &[]).unwrap();
    let tampered = genuine.replace("1.1.0", "1.0.9");
    let table = [
        ("genuine", genuine.clone(), "stable", Ok(())),
        ("the same signature twice", doubled, "stable", Ok(())),
        ("another signer besides", sign::channel(&channel(), &[&key(9), &key(5)]).unwrap(), "stable", Ok(())),
        ("blanks outside", genuine.replacen("\"signed\":", " \"signed\" :\n ", 1), "stable", Ok(())),
        ("blanks inside", genuine.replacen("\"version\":7", "\"version\": 7", 1), "stable", Err("0 of 1 signatures")),
        ("changed", tampered, "stable", Err("(1 are wrong, 0 by keys that do not count)")),
        ("a stranger's", sign::channel(&channel(), &[&key(9)]).unwrap(), "stable", Err("(0 are wrong, 1 by keys")),
        (
            "another role's",
            sign::channel(&channel(), &[&key(4)]).unwrap(),
            "stable",
            Err("0 of 1 signatures by channel"),
        ),
        ("nobody's", no_signatures, "stable", Err("0 of 1 signatures")),
        ("another channel's", genuine.clone(), "dev", Err("for dev was asked for, and this is the one for stable")),
        (
            "another kind",
            sign::release(&release(), &[&key(5)]).unwrap(),
            "stable",
            Err("a channel document was expected"),
        ),
        ("two contents", genuine.replacen("{", "{\"signed\":{},", 1), "stable", Err("given more than once")),
        ("a login page", "<html>sign in</html>".into(), "stable", Err("not a signed document: line 1")),
        ("nothing", String::new(), "stable", Err("not a signed document")),
        ("a later shape", genuine.replace("\"1.0.0\"", "\"2.0.0\""), "stable", Err("update the agent first")),
        ("too long", format!("{genuine}{}", " ".repeat(DOCUMENT_BYTES_MAX)), "stable", Err("allowed are 65536")),
        ("too deep", format!("{{\"signed\":{}", "[".repeat(5000)), "stable", Err("more than 8 deep")),
    ];
    for (case, text, name, expected) in table {
        match (root.channel(text.as_bytes(), name), expected) {
            (Ok(read), Ok(())) => assert_eq!(read, channel(), "{case}"),
            (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{case}: {error}"),
            (got, _) => panic!("{case}: {got:?}"),
        }
    }
    for cut in 0..genuine.len() - 1 {
        assert!(root.channel(&genuine.as_bytes()[..cut], "stable").is_err(), "cut after {cut} bytes");
    }
}

#[test]
fn a_release_is_only_taken_for_what_it_is() {
    let root = first_root();
    let genuine = sign::release(&release(), &[&key(4)]).unwrap();
    let refused = |text: &str, product: &str, version: &str| {
        root.release(text.as_bytes(), product, &Version::parse(version).unwrap()).unwrap_err().to_string()
    };
    assert!(refused(&genuine, "platform-server", "1.0.0").contains("platform-server 1.0.0 was asked for"));
    assert!(refused(&genuine, "platform-agent", "1.1.0").contains("platform-agent 1.1.0 was asked for"));
    // Signed by whoever holds the key, and still not acceptable: what a device would do with it is not defined.
    for (case, from, to, message) in [
        ("a digest too short", "abab", "ab", "hashes is missing"),
        ("a path to elsewhere", "\"/releases", "\"//releases", "targets is missing"),
        ("a path upwards", "\"/releases", "\"/../releases", "targets is missing"),
        ("another way upwards", "\"/releases", "\"/%2e%2e/releases", "targets is missing"),
        ("an address", "\"/releases", "\"http://elsewhere/releases", "targets is missing"),
        (
            "a stream with nothing about what is inside",
            ",\"unpacked\":{\"hashes\":{\"sha256\":\"INSIDE\"},\"length\":5000}",
            "",
            "targets is missing",
        ),
        ("a program that is said to be packed", "\"xz\"", "\"raw\"", "targets is missing"),
        ("nothing inside", "\"length\":5000", "\"length\":0", "length is missing"),
        ("no length", "\"length\":77", "\"length\":0", "length is missing"),
        ("length as text", "\"length\":77", "\"length\":\"77\"", "length is missing"),
        ("no version", "\"product_version\":\"1.1.0\"", "\"product_version\":\"new\"", "product_version is missing"),
        ("no number", "\"version\":2", "\"version\":-2", "version is missing"),
        ("no end", "2030-03-17", "2030-02-30", "expires is missing"),
        ("no platform", "linux/arm64", "arm64", "targets is missing"),
    ] {
        let changed = release().canonical().replace(&from.replace("INSIDE", &"ef".repeat(32)), to);
        assert_ne!(changed, release().canonical(), "{case}");
        let text =
            sign::add_signature(format!("{{\"signed\":{changed},\"signatures\":[]}}").as_bytes(), &key(4)).unwrap();
        let error = refused(&text, "platform-server", "1.1.0");
        assert!(error.contains(message), "{case}: {error}");
    }
}

#[test]
fn roots_follow_each_other() {
    let root = first_root();
    let (k1, k2, k3, k6, k7) = (key(1), key(2), key(3), key(6), key(7));
    // Key 1 is given up, 6 and 7 come in.
    let next = Root { version: 2, root: keys(2, &[3, 6, 7]), ..first_root() };
    let table = [
        ("old and new agree", vec![&k2, &k3, &k6], Ok(())),
        ("only the new", vec![&k6, &k7], Err("0 of 2 signatures by root keys")),
        ("only the old", vec![&k1, &k2], Err("0 of 2 signatures by root keys")),
        ("one of the old is missing", vec![&k3, &k6], Err("1 of 2 signatures by root keys")),
        ("one key twice", vec![&k3, &k3, &k6], Err("1 of 2 signatures by root keys")),
    ];
    for (case, signers, expected) in table {
        let text = sign::root(&next, &signers).unwrap();
        match (root.successor(text.as_bytes()), expected) {
            (Ok(read), Ok(())) => assert_eq!(read, next, "{case}"),
            (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{case}: {error}"),
            (got, _) => panic!("{case}: {got:?}"),
        }
    }
    let all = [&k1, &k2, &k3, &k6, &k7];
    for number in [1, 3, u64::MAX] {
        let text = sign::root(&Root { version: number, ..next.clone() }, &all).unwrap();
        assert_eq!(
            root.successor(text.as_bytes()),
            Err(DocumentError::RootOutOfOrder { needed: 2, found: number }),
            "neither a step back nor a leap"
        );
    }
}

#[test]
fn a_first_root_is_signed_by_keys_that_were_given() {
    let text = sign::root(&first_root(), &[&key(1), &key(2)]).unwrap();
    let given = |seeds: &[u8]| RoleKeys::most_of(seeds.iter().map(|seed| key(*seed).public()));
    assert_eq!([0, 1, 2, 3, 4, 5].map(|count| given(&[1, 2, 3, 4, 5][..count]).threshold), [1, 1, 2, 2, 3, 3]);
    assert!(Root::anchored(text.as_bytes(), &given(&[1, 2, 3])).is_ok());
    assert!(Root::anchored(text.as_bytes(), &given(&[1, 2])).is_ok());
    let refused = |valid, needed, given| Err(DocumentError::NotAnchored { valid, needed, given });
    assert_eq!(Root::anchored(text.as_bytes(), &given(&[1, 3])), refused(1, 2, 2));
    assert_eq!(Root::anchored(text.as_bytes(), &given(&[])), refused(0, 1, 0));
    let nobody = RoleKeys { threshold: 0, ..given(&[]) };
    assert_eq!(Root::anchored(text.as_bytes(), &nobody), refused(0, 0, 0));
    // A thief of one key of three writes a root that needs one signature.
    let modest = Root { root: keys(1, &[1]), ..first_root() };
    let text = sign::root(&modest, &[&key(1)]).unwrap();
    assert_eq!(Root::anchored(text.as_bytes(), &given(&[1, 2, 3])), refused(1, 2, 3));
    // Somebody else's complete set of documents.
    let strangers = Root { root: keys(1, &[9]), release: keys(1, &[9]), channel: keys(1, &[9]), ..first_root() };
    let text = sign::root(&strangers, &[&key(9)]).unwrap();
    assert!(Root::anchored(text.as_bytes(), &given(&[1, 2, 3])).is_err());
}

#[test]
fn a_root_must_be_possible() {
    let id = key(1).public().id().to_string();
    for (case, from, to, message) in [
        ("nobody must sign", "\"threshold\":2".to_owned(), "\"threshold\":0".to_owned(), "threshold is missing"),
        ("more than there are", "\"threshold\":2".to_owned(), "\"threshold\":4".to_owned(), "root is missing"),
        ("a key under another name", format!("\"{id}\":{{"), format!("\"{}\":{{", "0".repeat(64)), "keys is missing"),
    ] {
        let changed = first_root().canonical().replace(&from, &to);
        let mut text = format!("{{\"signed\":{changed},\"signatures\":[]}}");
        for seed in [1, 2, 3] {
            text = sign::add_signature(text.as_bytes(), &key(seed)).unwrap();
        }
        let error = Root::pinned(text.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(message), "{case}: {error}");
    }
    let impossible = Root { channel: keys(2, &[5]), ..first_root() };
    assert!(matches!(sign::root(&impossible, &[]), Err(SignError::WouldBeRefused(_))));
}

#[test]
fn signatures_are_added_by_different_people() {
    let text = sign::root(&first_root(), &[&key(1)]).unwrap();
    assert!(Root::pinned(text.as_bytes()).is_err());
    let text = sign::add_signature(text.as_bytes(), &key(3)).unwrap();
    assert_eq!(Root::pinned(text.as_bytes()).unwrap(), first_root());
    let again = sign::add_signature(text.as_bytes(), &key(3)).unwrap();
    assert_eq!(again.matches("keyid\"").count(), text.matches("keyid\"").count(), "replaced, not doubled");
}

#[test]
fn key_files_read_back_and_do_not_show_themselves() {
    let made = SigningKey::generate().unwrap();
    let read = SigningKey::from_text(made.to_text().expose().as_bytes()).unwrap();
    assert_eq!(read.public(), made.public());
    assert_eq!(format!("{:?}", made.to_text()), "(secret)");
    for garbage in
        ["", "{}", "{\"keytype\":\"rsa\",\"private\":\"00\"}", "{\"keytype\":\"ed25519\",\"private\":\"00\"}"]
    {
        assert!(SigningKey::from_text(garbage.as_bytes()).is_err(), "{garbage}");
    }
}

#[test]
fn what_a_path_may_be() {
    let long = format!("/{}", "a".repeat(600));
    let table = [
        ("/releases/v1/artifact/ab", true),
        ("/mirror/acme_server-1.2.0+5~rc", true),
        ("", false),
        ("/", false),
        ("relative", false),
        ("//other.example/x", false),
        ("/a//b", false),
        ("/a/", false),
        ("/a/../b", false),
        ("/a/./b", false),
        ("/..", false),
        ("/%2e%2e/etc", false),
        ("/a%00b", false),
        ("/a\0b", false),
        ("/a\\b", false),
        ("/a b", false),
        ("/a?b", false),
        ("/a#b", false),
        ("/user@host/x", false),
        ("/grüße", false),
        ("http://other.example/x", false),
        ("file:///etc/passwd", false),
        (&*long, false),
    ];
    for (path, allowed) in table {
        let mut release = release();
        release.artifacts[0].path = path.to_owned();
        let signed = sign::release(&release, &[&key(4)]);
        assert_eq!(signed.is_ok(), allowed, "signing {path:?}");
        // Signed all the same, by some other tool.
        let text = format!("{{\"signed\":{},\"signatures\":[]}}", release.canonical());
        let signed = sign::add_signature(text.as_bytes(), &key(4));
        let read = signed.map_err(drop).and_then(|text| {
            first_root().release(text.as_bytes(), "platform-server", &Version::new(1, 1, 0)).map_err(drop)
        });
        assert_eq!(read.is_ok(), allowed, "reading {path:?}");
    }
    for name in ["../etc", "a/b", "", ".hidden", "-x", "A", "a\0", "a b", &"a".repeat(65)] {
        assert!(!is_name(name), "{name:?}");
        let product = Release { product: name.to_owned(), ..release() };
        assert!(sign::release(&product, &[&key(4)]).is_err(), "{name:?}");
        let channel = Channel { name: name.to_owned(), ..channel() };
        assert!(sign::channel(&channel, &[&key(5)]).is_err(), "{name:?}");
    }
}
