//! Files on their way in: as a whole or not at all, into a folder or a bucket.

use super::*;

#[tokio::test]
async fn an_upload_is_kept_as_a_whole_or_not_at_all() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    namespace(&owner, "acme").await;
    module(&owner, "camera").await;
    module(&owner, "other").await;
    let good = || info("acme:camera", "1.0.0", "linux/arm64");
    let file: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();

    let kept = send(&owner.client, [vec![about(good())], file.chunks(700_001).map(bytes).collect()].concat()).await;
    assert!(kept.unwrap().url.ends_with("/packages/v1/acme/camera/1.0.0/linux/arm64"));
    assert_eq!((artifacts(&world, "sha256").len(), artifacts(&world, "incoming").len()), (1, 0));
    assert_eq!(fs::read(&artifacts(&world, "sha256")[0]).unwrap(), file);
    // In one message, as existing clients send it: the same bytes are no change.
    upload(&owner.client, good(), &file).await.unwrap();
    let refused = upload(&owner.client, good(), b"other bytes").await.unwrap_err();
    assert_eq!(refused.code(), AlreadyExists, "{refused}");
    assert_eq!(artifacts(&world, "sha256").len(), 1, "nothing is left of what was refused");
    // The same bytes elsewhere lie there once.
    upload(&owner.client, info("acme:other", "1.0.0", "any"), &file).await.unwrap();
    assert_eq!(artifacts(&world, "sha256").len(), 1);

    let table = [
        ("nothing", vec![], InvalidArgument),
        ("no info", vec![bytes(b"x")], InvalidArgument),
        ("info twice", vec![about(good()), bytes(b"x"), about(good())], InvalidArgument),
        ("no bytes", vec![about(good())], InvalidArgument),
        ("empty bytes", vec![about(good()), bytes(b"")], InvalidArgument),
        ("a word as version", vec![about(info("acme:camera", "latest", "any")), bytes(b"x")], InvalidArgument),
        ("no version", vec![about(info("acme:camera", "", "any")), bytes(b"x")], InvalidArgument),
        (
            "a long version",
            vec![about(info("acme:camera", &format!("1.0.0-{}", "x".repeat(200)), "any"))],
            InvalidArgument,
        ),
        ("a way out", vec![about(info("acme:camera", "1.0.1", "../../x")), bytes(b"x")], InvalidArgument),
        ("no platform", vec![about(info("acme:camera", "1.0.1", "")), bytes(b"x")], InvalidArgument),
        ("an unknown module", vec![about(info("acme:none", "1.0.1", "any")), bytes(b"x")], NotFound),
        ("a malformed id", vec![about(info("camera", "1.0.1", "any")), bytes(b"x")], InvalidArgument),
        ("not a message", vec![Bytes::from_static(b"\xff\xff\xff\xff")], InvalidArgument),
        (
            "a tag with a bell",
            vec![about(ModuleFileInfo { platform_tags: vec!["a\u{7}".into()], ..good() }), bytes(b"x")],
            InvalidArgument,
        ),
        ("too much about it", vec![about(info(&"x".repeat(70_000), "1.0.0", "any"))], InvalidArgument),
    ];
    for (case, messages, expected) in table {
        assert_eq!(code(send(&owner.client, messages).await), expected, "{case}");
        assert_eq!((artifacts(&world, "sha256").len(), artifacts(&world, "incoming").len()), (1, 0), "{case}");
    }

    // The uploader vanishes half-way.
    let (sender, answer) = open(&owner.client, UPLOAD);
    sender.send(about(info("acme:camera", "2.0.0", "any"))).await.unwrap();
    sender.send(bytes(&file)).await.unwrap();
    until("bytes arrive", || !artifacts(&world, "incoming").is_empty()).await;
    answer.abort();
    until("the half is gone", || artifacts(&world, "incoming").is_empty()).await;
    assert_eq!(get(&owner.client, "acme:camera").await.unwrap().versions.len(), 1);

    // The uploader's key goes away half-way.
    let key = owner.key_request("owner", "organization", &owner.organization);
    let key: CreateKeyResponse = owner.client.app("CreateKey", key).await.unwrap();
    let second = world.login("api-key", &key.id, &key.key).await.unwrap();
    let (sender, answer) = open(&second, UPLOAD);
    sender.send(about(info("acme:camera", "2.0.0", "any"))).await.unwrap();
    sender.send(bytes(&file)).await.unwrap();
    until("bytes arrive", || !artifacts(&world, "incoming").is_empty()).await;
    owner.client.app::<_, DeleteKeyResponse>("DeleteKey", DeleteKeyRequest { id: key.id }).await.unwrap();
    assert_eq!(code(answer.await.unwrap()), Code::Unauthenticated);
    assert_eq!((artifacts(&world, "sha256").len(), artifacts(&world, "incoming").len()), (1, 0));
    world.end().await;
}

#[tokio::test]
async fn over_http_1_a_refusal_is_heard_by_who_sends_everything_first() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    // More than the buffers of both ends hold, for a module that is not there.
    let file = vec![7; 16 << 20];
    let framed = |message: Bytes| [&[0], &u32::try_from(message.len()).unwrap().to_be_bytes()[..], &message].concat();
    let body = [framed(about(info("acme:none", "1.0.0", "any"))), framed(bytes(&file))].concat();
    let head = format!(
        "POST {UPLOAD} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/grpc-web+proto\r\n\
         Authorization: {}\r\nContent-Length: {}\r\n\r\n",
        bearer(&owner.client),
        body.len()
    );
    let mut stream = TcpStream::connect(world.server.address).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&body).await.expect("all of it is taken");
    let mut said = Vec::new();
    tokio::time::timeout(PATIENCE, stream.read_to_end(&mut said)).await.unwrap().unwrap();
    let said = String::from_utf8_lossy(&said).to_lowercase();
    assert!(said.contains("grpc-status: 5") || said.contains("grpc-status:5"), "{said}");
    world.end().await;
}

#[tokio::test]
async fn a_store_that_fails_is_told_and_recovers_by_itself() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    namespace(&owner, "acme").await;
    module(&owner, "camera").await;
    let place = world.folder.path().join("data/artifacts");
    let _ = fs::remove_dir_all(&place);
    fs::write(&place, "not a folder").unwrap();
    let good = || info("acme:camera", "1.0.0", "any");
    let refused = upload(&owner.client, good(), b"x").await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    assert!(refused.message().contains("file store"), "{refused}");
    assert_eq!(get(&owner.client, "acme:camera").await.unwrap().versions.len(), 0);
    fs::remove_file(&place).unwrap();
    upload(&owner.client, good(), b"x").await.unwrap();
    // The registry knows it, and the disk has lost it.
    fs::remove_dir_all(&place).unwrap();
    let token = bearer(&owner.client);
    let headers = [("authorization", &*token)];
    let lost = fetch(&world, "GET", "/packages/v1/acme/camera/1.0.0/any", &headers).await;
    assert_eq!(lost.status, 503);
    let head = fetch(&world, "HEAD", "/packages/v1/acme/camera/1.0.0/any", &headers).await;
    assert_eq!((head.status, head.header("etag")), (503, None));
    // The same bytes once more mend it.
    upload(&owner.client, good(), b"x").await.unwrap();
    let mended = fetch(&world, "GET", "/packages/v1/acme/camera/1.0.0/any", &headers).await;
    assert_eq!(mended.body, b"x");
    world.end().await;
}

#[tokio::test]
async fn one_key_holds_a_quarter_of_the_places_for_uploads() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    namespace(&owner, "acme").await;
    module(&owner, "camera").await;
    let free = || world.server.context.uploads.available_permits();
    let all = free();
    let mut under_way = Vec::new();
    for patch in 0..all / 4 {
        let (sender, answer) = open(&owner.client, UPLOAD);
        sender.send(about(info("acme:camera", &format!("1.0.{patch}"), "any"))).await.unwrap();
        sender.send(bytes(b"begun")).await.unwrap();
        under_way.push((sender, answer));
    }
    until("all of them have a place", || free() == all - all / 4).await;
    let another = async |client: &Client, version| upload(client, info("acme:camera", version, "any"), b"x").await;
    let refused = another(&owner.client, "2.0.0").await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused:?}");
    assert_eq!(refused.get_details_error_info().unwrap().metadata["limit"], "uploads_per_key");
    assert!(refused.get_details_retry_info().unwrap().retry_delay.unwrap() > Duration::from_secs(30));
    assert_eq!(metric(&world.server, "fleet_refused_total{limit=\"uploads_per_key\"}"), 1);
    // It is the key that is counted, and the places come back.
    let other = world.key(&owner, "owner", "organization", &owner.organization).await;
    another(&other, "2.0.0").await.unwrap();
    let (last, ended) = under_way.pop().unwrap();
    drop(last);
    ended.await.unwrap().unwrap();
    until("its place is free", || free() == all - all / 4 + 1).await;
    another(&owner.client, "2.0.1").await.unwrap();
    for (sender, answer) in under_way {
        drop(sender);
        answer.await.unwrap().unwrap();
    }
    assert_eq!(free(), all);
    world.end().await;
}

#[tokio::test]
async fn an_upload_that_stalls_is_given_up() {
    let world = World::with(|options| options.upload_idle = Duration::from_secs(5)).await;
    let owner = world.owner("Acme").await;
    namespace(&owner, "acme").await;
    module(&owner, "camera").await;
    let free = || world.server.context.uploads.available_permits();
    let all = free();
    let (sender, answer) = open(&owner.client, UPLOAD);
    sender.send(about(info("acme:camera", "1.0.0", "any"))).await.unwrap();
    sender.send(bytes(&[7; 100_000])).await.unwrap();
    until("it has begun", || artifacts(&world, "incoming").len() == 1 && free() == all - 1).await;
    // From now on nothing, and no end either.
    let refused = tokio::time::timeout(PATIENCE, answer).await.expect("it is given up").unwrap().unwrap_err();
    assert_eq!(
        (refused.code(), refused.message().contains("hardly anything arrived for 5 seconds")),
        (Code::Unavailable, true)
    );
    until("nothing is left of it", || artifacts(&world, "incoming").is_empty() && free() == all).await;
    drop(sender);
    assert!(artifacts(&world, "sha256").is_empty());
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_may_lie_in_a_bucket() {
    let bucket = test_s3::Server::start().await.unwrap();
    let address = format!("s3://{}", test_s3::BUCKET);
    let place = Bucket::from(&address, bucket.variables(), None).unwrap();
    let world = World::with(|options| options.bucket = Some(place)).await;
    let owner = world.owner("Acme").await;
    namespace(&owner, "acme").await;
    let id = module(&owner, "camera").await;
    // Two parts and a rest.
    let file: Vec<u8> = (0..11_000_000_u32).map(|n| (n % 251) as u8).collect();
    upload(&owner.client, info("acme:camera", "1.0.0", "linux/arm64"), &file).await.unwrap();
    let path = "/packages/v1/acme/camera/1.0.0/linux/arm64";
    let token = bearer(&owner.client);
    let token = ("authorization", &*token);
    let whole = fetch(&world, "GET", path, &[token]).await;
    assert_eq!((whole.status, whole.body == file), (200, true));
    let rest = fetch(&world, "GET", path, &[token, ("range", "bytes=5242870-")]).await;
    assert_eq!((rest.status, rest.body == file[5_242_870..]), (206, true));
    // The bucket is away, and comes back.
    bucket.answer(false);
    assert_eq!(fetch(&world, "GET", path, &[token]).await.status, 503);
    let failed = upload(&owner.client, info("acme:camera", "1.1.0", "linux/arm64"), b"newer").await;
    assert_eq!(code(failed), Code::Unavailable);
    bucket.answer(true);
    upload(&owner.client, info("acme:camera", "1.1.0", "linux/arm64"), b"newer").await.unwrap();
    assert_eq!(bucket.objects().len(), 2, "{:?}", bucket.objects());
    assert_eq!(delete(&owner.client, &id).await, Code::Ok);
    until("nothing is left in the bucket", || bucket.objects().is_empty() && bucket.parts() == 0).await;
    assert!(!world.folder.path().join("data/artifacts/sha256").exists(), "nothing of it lies in the folder");
    world.end().await;
}
