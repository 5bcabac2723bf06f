//! The promises of an artifact store, kept by a bucket.

use super::*;

struct Fixture {
    server: test_s3::Server,
    s3: S3,
}

impl Fixture {
    async fn new() -> Self {
        let server = test_s3::Server::start().await.unwrap();
        let address = format!("s3://{}/of/fleet", test_s3::BUCKET);
        let s3 = S3::of(&Bucket::from(&address, server.variables(), None).unwrap()).unwrap();
        Self { server, s3 }
    }

    async fn upload(&self, bytes: &[u8], digest: &str) {
        let mut upload = self.s3.begin().await.unwrap();
        for piece in bytes.chunks(256 << 10) {
            upload.add(Bytes::copy_from_slice(piece)).await.unwrap();
        }
        upload.keep(digest).await.unwrap();
    }

    async fn read(&self, digest: &str, from: u64, bytes: u64) -> io::Result<Vec<u8>> {
        let mut pieces = self.s3.open(digest, from, bytes).await.map_err(io::Error::other)?.pieces;
        let mut all = Vec::new();
        while let Some(piece) = pieces.next().await {
            all.extend(piece?);
        }
        Ok(all)
    }

    /// Work that goes on after something was dropped.
    async fn until(&self, what: &str, so: impl Fn(&test_s3::Server) -> bool) {
        let wait = async {
            while !so(&self.server) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let so = tokio::time::timeout(Duration::from_secs(60), wait).await;
        assert!(so.is_ok(), "{what}: {:?}, {} parts", self.server.objects(), self.server.parts());
    }
}

#[tokio::test]
async fn a_bucket_by_tls_is_believed_by_whom_its_authority_is_named_to() {
    let server = test_s3::Server::start_by_tls().await.unwrap();
    let address = format!("s3://{}/of/fleet", test_s3::BUCKET);
    let bucket = Bucket::from(&address, server.variables(), None).unwrap();
    let s3 = S3::of(&bucket).unwrap();
    s3.probe(&bucket, PROBED_WITHIN).await.unwrap();
    let mut upload = s3.begin().await.unwrap();
    upload.add(Bytes::from_static(b"by TLS")).await.unwrap();
    upload.keep("small").await.unwrap();
    assert_eq!(server.objects(), ["of/fleet/sha256/small"]);

    // The same without the file, and with one that is none.
    let with = |path: &str| {
        let variables = server.variables().into_iter().filter(|(name, _)| name != "AWS_CA_BUNDLE");
        let variables = variables.chain([("AWS_CA_BUNDLE".to_owned(), path.to_owned())]);
        Bucket::from(&address, variables, None).unwrap()
    };
    let bucket = with("");
    let refused = S3::of(&bucket).unwrap().probe(&bucket, Duration::from_secs(30)).await.unwrap_err();
    assert!(matches!(refused, BucketError::Untrusted { .. }), "{refused}");
    let refused = S3::of(&with("/nonexistent/authority.pem")).err().unwrap();
    assert!(refused.to_string().contains("AWS_CA_BUNDLE"), "{refused}");
    assert!(refused.to_string().contains("/nonexistent/authority.pem"), "{refused}");
}

/// Bytes that differ everywhere.
fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

#[tokio::test]
async fn an_artifact_is_there_as_a_whole_or_not_at_all() {
    let fixture = Fixture::new().await;
    let small = bytes(1000);
    fixture.upload(&small, "small").await;
    assert_eq!(fixture.server.objects(), ["of/fleet/sha256/small"]);
    assert_eq!(fixture.read("small", 0, 1000).await.unwrap(), small);

    // In three parts; while it is uploaded it has no name.
    let large = bytes(PART_BYTES * 2 + 12_345);
    let mut upload = fixture.s3.begin().await.unwrap();
    for piece in large.chunks(256 << 10) {
        upload.add(Bytes::copy_from_slice(piece)).await.unwrap();
    }
    assert!(fixture.server.parts() > 0);
    assert!(!fixture.server.objects().contains(&"of/fleet/sha256/large".to_owned()));
    // Somebody cleans meanwhile: it has an owner.
    fixture.s3.clean().await.unwrap();
    upload.keep("large").await.unwrap();
    fixture.until("only what has a name", |server| server.parts() == 0 && server.objects().len() == 2).await;
    assert_eq!(fixture.read("large", 0, large.len() as u64).await.unwrap(), large);
    let (from, to) = (PART_BYTES - 10, PART_BYTES + 10);
    assert_eq!(fixture.read("large", from as u64, 20).await.unwrap(), large[from..to], "over the edge of a part");
    assert_eq!(fixture.read("large", 5, 0).await.unwrap(), b"");
    // The same once more is the same.
    fixture.upload(&large, "large").await;

    for _ in 0..2 {
        fixture.s3.remove("large").await.unwrap();
    }
    assert!(matches!(fixture.s3.open("large", 0, 9).await.map(drop), Err(ArtifactError::Missing)));
    assert!(matches!(fixture.s3.open("large", 0, 0).await.map(drop), Err(ArtifactError::Missing)));
}

#[tokio::test]
async fn what_is_not_finished_leaves_nothing() {
    let fixture = Fixture::new().await;
    let mut given_up = fixture.s3.begin().await.unwrap();
    given_up.add(bytes(PART_BYTES + 1).into()).await.unwrap();
    assert!(fixture.server.parts() > 0);
    drop(given_up);
    fixture.until("given up", |server| server.parts() == 0 && server.objects().is_empty()).await;

    // A server that was killed gives nothing up itself.
    let mut killed = fixture.s3.begin().await.unwrap();
    killed.add(bytes(PART_BYTES + 1).into()).await.unwrap();
    std::mem::forget(killed);
    fixture.s3.clean().await.unwrap();
    assert!(fixture.server.parts() > 0, "it may be another server's, and under way");
    let later = fixture.s3.clone().with_abandoned_after(Duration::ZERO);
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    later.clean().await.unwrap();
    assert_eq!((fixture.server.parts(), fixture.server.objects()), (0, vec![]));
}

#[tokio::test]
async fn a_bucket_that_fails_is_told_and_recovers_by_itself() {
    let fixture = Fixture::new().await;
    fixture.upload(b"there", "there").await;
    // Nobody answers: tried again for a while, then told.
    fixture.server.answer(false);
    let failed = fixture.s3.open("there", 0, 5).await.map(drop);
    assert!(matches!(failed, Err(ArtifactError::Failed(_))));
    let told = format!("{:?}", failed.unwrap_err());
    assert!(!told.contains(test_s3::SECRET), "{told}");
    fixture.server.answer(true);
    assert_eq!(fixture.read("there", 0, 5).await.unwrap(), b"there");
    // The wrong secret is told as a failure, never as a missing file.
    let mut variables = fixture.server.variables();
    variables.push(("AWS_SECRET_ACCESS_KEY".into(), "wrong".into()));
    let address = format!("s3://{}/of/fleet", test_s3::BUCKET);
    let stranger = S3::of(&Bucket::from(&address, variables, None).unwrap()).unwrap();
    assert!(matches!(stranger.open("there", 0, 5).await.map(drop), Err(ArtifactError::Failed(_))));
}

#[tokio::test]
async fn a_wrong_key_or_name_is_said_at_the_start_and_silence_is_not_the_end() {
    let fixture = Fixture::new().await;
    let probe = async |address: &str, more: &[(&str, &str)], seconds| {
        let mut variables = fixture.server.variables();
        variables.extend(more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let bucket = Bucket::from(address, variables, None).unwrap();
        S3::of(&bucket).unwrap().probe(&bucket, Duration::from_secs(seconds)).await
    };
    let ours = format!("s3://{}/of/fleet", test_s3::BUCKET);
    probe(&ours, &[], 60).await.unwrap();
    let wrong = [("AWS_SECRET_ACCESS_KEY", "planted-secret")];
    let why = probe(&ours, &wrong, 60).await.expect_err("a wrong secret").to_string();
    assert!(why.contains("AWS_SECRET_ACCESS_KEY") && !why.contains("planted") && !why.contains('\n'), "{why}");
    // What a store in the cloud says about another region.
    let bucket = Bucket::from(&ours, [], None).unwrap();
    let said = "<Code>AuthorizationHeaderMalformed</Code><Message>expecting 'eu-west-1'</Message>";
    let problem = StoreError::Generic { store: "S3", source: said.into() };
    assert!(matches!(bucket.complaint(&problem), Some(BucketError::OtherRegion { .. })));
    let unknown = StoreError::Generic { store: "S3", source: "<Code>InvalidAccessKeyId</Code>".into() };
    assert!(matches!(bucket.complaint(&unknown), Some(BucketError::Denied { .. })));
    let missing = StoreError::NotFound { path: "of/fleet".into(), source: "<Code>NoSuchBucket</Code>".into() };
    let complaint = bucket.complaint(&missing).unwrap().to_string();
    assert!(complaint.contains("there is no bucket fleet"), "{complaint}");
    let passing = StoreError::Generic { store: "S3", source: "error sending request".into() };
    assert!(bucket.complaint(&passing).is_none());
    fixture.server.answer(false);
    probe(&ours, &[], 0).await.unwrap();
}
