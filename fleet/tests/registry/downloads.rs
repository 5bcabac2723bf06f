//! Files on their way out: to people, programs and devices.

use super::*;

#[tokio::test]
async fn downloads_are_for_who_may_and_go_on_where_they_broke_off() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    namespace(&owner, "acme").await;
    module(&owner, "camera").await;
    let file: Vec<u8> = (0..200_000_u32).map(|n| (n % 251) as u8).collect();
    upload(&owner.client, info("acme:camera", "1.0.0", "linux/arm64"), &file).await.unwrap();
    upload(&owner.client, info("acme:camera", "1.1.0+b", "linux/any"), b"newer").await.unwrap();
    let path = "/packages/v1/acme/camera/1.0.0/linux/arm64";
    let token = bearer(&owner.client);
    let token = ("authorization", &*token);

    let whole = fetch(&world, "GET", path, &[token]).await;
    assert_eq!((whole.status, whole.body == file), (200, true));
    let etag = whole.header("etag").unwrap().to_owned();
    let name = whole.header("content-disposition").unwrap();
    assert_eq!(name, "attachment; filename=\"camera-1.0.0-linux-arm64.tar.gz\"");
    let head = fetch(&world, "HEAD", path, &[token]).await;
    assert_eq!((head.status, head.header("content-length"), head.body.len()), (200, Some("200000"), 0));
    let part = fetch(&world, "GET", path, &[token, ("range", "bytes=150000-"), ("if-range", &etag)]).await;
    assert_eq!((part.status, part.body == file[150_000..]), (206, true));
    assert_eq!(part.header("content-range"), Some("bytes 150000-199999/200000"));
    let middle = fetch(&world, "GET", path, &[token, ("range", "bytes=10-19")]).await;
    assert_eq!((middle.status, &*middle.body), (206, &file[10..20]));
    let changed = fetch(&world, "GET", path, &[token, ("range", "bytes=150000-"), ("if-range", "\"other\"")]).await;
    assert_eq!((changed.status, changed.body.len()), (200, file.len()), "a piece of something else");
    assert_eq!(fetch(&world, "GET", path, &[token, ("range", "bytes=200000-")]).await.status, 416);
    assert_eq!(fetch(&world, "GET", path, &[token, ("if-none-match", &etag)]).await.status, 304);
    for (below, status, body) in [
        ("latest/linux/arm64", 200, Some("newer")),
        ("1.1.0+b/linux/amd64", 200, Some("newer")),
        ("1.1.0%2Bb/linux/any", 200, Some("newer")),
        ("latest/darwin/arm64", 404, None),
        ("2.0.0/linux/arm64", 404, None),
        ("../../../server.key", 404, None),
        ("1.0.0", 400, None),
        ("", 400, None),
    ] {
        let got = fetch(&world, "GET", &format!("/packages/v1/acme/camera/{below}"), &[token]).await;
        assert_eq!(got.status, status, "{below}: {}", String::from_utf8_lossy(&got.body));
        if let Some(body) = body {
            assert_eq!(got.body, body.as_bytes(), "{below}");
        }
    }
    assert_eq!(fetch(&world, "PUT", path, &[token]).await.status, 405);
    assert_eq!(fetch(&world, "GET", "/packages/v1/a%2f..:x/y/1.0.0/any", &[token]).await.status, 400);

    // Who is asking: tokens, keys, devices; and who may.
    let location = owner.location("North", None).await;
    let machine = owner.machine(&location, "arm").await;
    let part = owner.main_part(&machine).await;
    let stranger = world.owner("Strangers").await;
    let their_location = stranger.location("South", None).await;
    let their_machine = stranger.machine(&their_location, "arm").await;
    let their_part = stranger.main_part(&their_machine).await;
    let operator = world.key(&owner, "operator", "robot", &machine).await;
    let (strange, operates) = (bearer(&stranger.client), bearer(&operator));
    let table = [
        ("nobody", vec![], 401),
        ("a wrong token", vec![("authorization", "Bearer x")], 401),
        ("a key", vec![("key_id", &owner.key_id), ("key", &owner.key)], 200),
        ("a wrong key", vec![("key_id", &owner.key_id), ("key", "x")], 401),
        ("a device", vec![("part_id", &part.id), ("secret", &part.secret)], 200),
        ("a wrong secret", vec![("part_id", &part.id), ("secret", &their_part.secret)], 401),
        ("a key of one machine", vec![("authorization", &operates)], 200),
        ("a stranger", vec![("authorization", &strange)], 404),
        ("a stranger's device", vec![("part_id", &their_part.id), ("secret", &their_part.secret)], 404),
    ];
    for (who, headers, status) in &table {
        assert_eq!(fetch(&world, "GET", path, headers).await.status, *status, "{who}");
    }
    show(&owner.client, "acme:camera", Visibility::PublicUnlisted).await.unwrap();
    for (who, headers, status) in &table {
        let status = if *status == 404 { 200 } else { *status };
        assert_eq!(fetch(&world, "GET", path, headers).await.status, status, "{who}, now public");
    }
    world.end().await;
}

#[tokio::test]
async fn devices_find_the_package_they_run() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    namespace(&owner, "acme").await;
    module(&owner, "camera").await;
    upload(&owner.client, info("acme:camera", "1.0.0", "linux/arm64"), b"one").await.unwrap();
    upload(&owner.client, info("acme:camera", "1.1.0-rc.1", "linux/arm64"), b"two!").await.unwrap();
    let location = owner.location("North", None).await;
    let machine = owner.machine(&location, "arm").await;
    let part = owner.main_part(&machine).await;
    let secret = CreateLocationSecretRequest { location_id: location.clone() };
    let auth: CreateLocationSecretResponse = owner.client.app("CreateLocationSecret", secret).await.unwrap();
    let secret = &auth.auth.unwrap().secrets[0].secret;
    let device = world.login("robot-secret", &part.id, &part.secret).await.unwrap();
    let by_location = world.login("robot-location-secret", &part.id, secret).await.unwrap();
    let by_key = world.key(&owner, "operator", "robot", &machine).await;
    let stranger = world.owner("Strangers").await;
    for client in [&device, &by_location, &by_key, &owner.client] {
        for id in ["acme:camera", "acme/camera", &format!("{}/camera", owner.organization)] {
            let found = package(client, id, "latest", "linux/arm64").await.unwrap();
            let about = found.info.unwrap();
            assert_eq!((&*about.version, about.files[0].size), ("1.0.0", 3), "{id}: finished before not finished");
            assert_eq!((&*found.id, found.checksum.len()), ("acme/camera", 64));
            assert!(found.url.starts_with("http://") && found.url.ends_with("/acme/camera/1.0.0/linux/arm64"));
        }
        let exact = package(client, "acme/camera", "1.1.0-rc.1", "linux/arm64").await.unwrap();
        assert_eq!(exact.info.unwrap().files[0].size, 4);
        assert_eq!(code(package(client, "acme/camera", "1.0.0", "linux/amd64").await), NotFound);
        assert_eq!(code(package(client, "acme/none", "1.0.0", "linux/arm64").await), NotFound);
        assert_eq!(code(package(client, "acme", "1.0.0", "linux/arm64").await), InvalidArgument);
        let list = ListPackagesRequest {
            organization_id: owner.organization.clone(),
            name: Some("camera".into()),
            ..Default::default()
        };
        let path = "/platform.app.packages.v1.PackageService/ListPackages";
        let listed: ListPackagesResponse = client.call(path, list.clone()).await.unwrap();
        assert_eq!(listed.packages.len(), 2);
        let one = ListPackagesRequest { version: Some("1.0.0".into()), ..list.clone() };
        assert_eq!(client.call::<_, ListPackagesResponse>(path, one).await.unwrap().packages.len(), 1);
        let none = ListPackagesRequest { r#type: Some(PackageType::MlModel.into()), ..list.clone() };
        assert_eq!(client.call::<_, ListPackagesResponse>(path, none).await.unwrap().packages.len(), 0);
        assert_eq!(code(stranger.client.call::<_, ListPackagesResponse>(path, list).await), NotFound);
    }
    assert_eq!(code(package(&stranger.client, "acme/camera", "", "linux/arm64").await), NotFound);
    show(&owner.client, "acme:camera", Visibility::Public).await.unwrap();
    assert_eq!(code(package(&stranger.client, "acme/camera", "", "linux/arm64").await), Yes);
    // A device's token still opens nothing that people do.
    let request = GetModuleRequest { module_id: "acme:camera".into(), ..Default::default() };
    assert_eq!(code(device.app::<_, GetModuleResponse>("GetModule", request).await), Denied);
    world.end().await;
}

/// Another byte in the middle of a file, which is as long as before, and says that it is as old or older.
fn damage(path: &Path, older: Duration) {
    use std::os::unix::fs::{FileExt, MetadataExt};
    let file = fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let whole = file.metadata().unwrap();
    let (written, middle) = (whole.modified().unwrap(), whole.len() / 2);
    let mut byte = [0];
    file.read_exact_at(&mut byte, middle).unwrap();
    file.write_all_at(&[!byte[0]], middle).unwrap();
    let touched = |file: &fs::Metadata| (file.ctime(), file.ctime_nsec());
    // Not in the same tick of the file system's clock as it was written in: nobody could tell it then.
    loop {
        file.set_modified(written - older).unwrap();
        if touched(&file.metadata().unwrap()) != touched(&whole) {
            return;
        }
    }
}

/// What comes of a download that the server breaks off, the head included.
async fn broken(world: &World, path: &str, token: &str) -> Vec<u8> {
    let mut stream = TcpStream::connect(world.server.address).await.unwrap();
    let head = format!("GET {path} HTTP/1.1\r\nHost: x\r\nauthorization: {token}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut all = Vec::new();
    // It ends by itself: nobody asked for that.
    let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut all)).await.expect("the connection ends");
    all
}

/// A file that rots where it lies: from the first download that shows it nobody gets it, until it is uploaded once more.
async fn rots(world: &World, older: Duration, lies_at: impl Fn(&str) -> PathBuf) {
    let owner = world.owner("Acme").await;
    namespace(&owner, "acme").await;
    module(&owner, "camera").await;
    let token = bearer(&owner.client);
    let by = ("authorization", &*token);
    let rest = [by, ("range", "bytes=299999-")];
    for (version, read_before) in [("1.0.0", true), ("1.1.0", false)] {
        let file: Vec<u8> = (0..300_000_u32).map(|n| (n % 251) as u8 ^ version.as_bytes()[2]).collect();
        let about = || info("acme:camera", version, "any");
        upload(&owner.client, about(), &file).await.unwrap();
        let path = format!("/packages/v1/acme/camera/{version}/any");
        let head = fetch(world, "HEAD", &path, &[by]).await;
        let place = lies_at(head.header("etag").unwrap().trim_matches('"'));
        if read_before {
            for _ in 0..2 {
                assert!(fetch(world, "GET", &path, &[by]).await.body == file, "{version}");
            }
        }
        damage(&place, older);
        let got = broken(world, &path, &token).await;
        assert!(got.len() < file.len(), "{version}: never all of it, {} bytes came", got.len());
        // Who was left without the last byte does not get it either, and is told why.
        for headers in [&rest[..], &[by]] {
            let head = fetch(world, "HEAD", &path, headers).await;
            assert_eq!((head.status, head.header("etag")), (503, None), "{version}");
            let refused = fetch(world, "GET", &path, headers).await;
            assert_eq!(refused.status, 503, "{version}");
            assert!(String::from_utf8_lossy(&refused.body).contains("upload it once more"), "{version}");
        }
        // The same bytes once more mend it.
        upload(&owner.client, about(), &file).await.unwrap();
        let mended = fetch(world, "GET", &path, &[by]).await;
        assert!(mended.body == file, "{version}");
        assert_eq!(fetch(world, "HEAD", &path, &[by]).await.status, 200, "{version}");
        let piece = fetch(world, "GET", &path, &rest).await;
        assert_eq!((piece.status, piece.body == file[299_999..]), (206, true), "{version}");
    }
}

#[tokio::test]
async fn nobody_gets_all_of_a_file_that_rots_in_the_folder() {
    let world = World::new().await;
    let folder = world.folder.path().join("data/artifacts/sha256");
    rots(&world, Duration::ZERO, |digest| folder.join(digest)).await;
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_gets_all_of_a_file_that_rots_in_the_bucket() {
    let bucket = test_s3::Server::start().await.unwrap();
    let place = Bucket::from(&format!("s3://{}", test_s3::BUCKET), bucket.variables(), None).unwrap();
    let world = World::with(|options| options.bucket = Some(place)).await;
    // A bucket tells times in seconds, and nothing of what happens below it.
    rots(&world, Duration::from_secs(3600), |digest| bucket.file(&format!("sha256/{digest}"))).await;
    world.end().await;
}
