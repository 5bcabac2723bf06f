//! Registry items and modules: from the first upload to the last download.

mod world;

use std::{fs, path::PathBuf, time::Duration};

use api::pb::platform::{
    app::{packages::v1::*, v1::*},
    fleet::v1::{ListAuditEventsRequest, ListAuditEventsResponse},
};
use bytes::Bytes;
use fleet::artifacts::s3::Bucket;
use prost::Message;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::mpsc,
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Status, client::Grpc};
use upload_module_file_request::ModuleFile;
use world::{Client, Owner, PATIENCE, Plain, World, code};

use Code::{AlreadyExists, FailedPrecondition, InvalidArgument, NotFound, Ok as Yes, PermissionDenied as Denied};

const UPLOAD: &str = "/platform.app.v1.AppService/UploadModuleFile";

fn info(module: &str, version: &str, platform: &str) -> ModuleFileInfo {
    ModuleFileInfo {
        module_id: module.into(),
        version: version.into(),
        platform: platform.into(),
        platform_tags: vec!["distro:debian".into()],
    }
}

fn said(part: ModuleFile) -> Bytes {
    UploadModuleFileRequest { module_file: Some(part) }.encode_to_vec().into()
}

fn about(info: ModuleFileInfo) -> Bytes {
    said(ModuleFile::ModuleFileInfo(info))
}

fn bytes(bytes: &[u8]) -> Bytes {
    said(ModuleFile::File(bytes.to_vec().into()))
}

/// An upload that goes on until the sender is dropped.
fn open(client: &Client, path: &'static str) -> (mpsc::Sender<Bytes>, tokio::task::JoinHandle<Result<Bytes, Status>>) {
    let (messages, queue) = mpsc::channel(4);
    let mut request = Request::new(ReceiverStream::new(queue));
    if let Some(token) = &client.token {
        request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    }
    let mut grpc = Grpc::new(client.channel.clone());
    let call = async move {
        grpc.ready().await.unwrap();
        let answer = grpc.client_streaming(request, path.parse().unwrap(), Plain);
        tokio::time::timeout(PATIENCE, answer).await.expect("an answer").map(tonic::Response::into_inner)
    };
    (messages, tokio::spawn(call))
}

async fn send(client: &Client, messages: Vec<Bytes>) -> Result<UploadModuleFileResponse, Status> {
    let (sender, answer) = open(client, UPLOAD);
    for message in messages {
        // Refused before all was said: the answer tells.
        let _ = sender.send(message).await;
    }
    drop(sender);
    Ok(UploadModuleFileResponse::decode(answer.await.unwrap()?).unwrap())
}

async fn upload(client: &Client, info: ModuleFileInfo, file: &[u8]) -> Result<UploadModuleFileResponse, Status> {
    send(client, vec![about(info), bytes(file)]).await
}

async fn create(owner: &Owner, name: &str) -> Result<CreateModuleResponse, Status> {
    let request = CreateModuleRequest { organization_id: owner.organization.clone(), name: name.into() };
    owner.client.app("CreateModule", request).await
}

async fn module(owner: &Owner, name: &str) -> String {
    create(owner, name).await.unwrap().module_id
}

async fn get(client: &Client, id: &str) -> Result<Module, Status> {
    let request = GetModuleRequest { module_id: id.into(), include_markdown_documentation: Some(true) };
    client.app::<_, GetModuleResponse>("GetModule", request).await.map(|got| got.module.unwrap())
}

async fn item(client: &Client, id: &str) -> Result<RegistryItem, Status> {
    let request = GetRegistryItemRequest { item_id: id.into(), ..Default::default() };
    client.app::<_, GetRegistryItemResponse>("GetRegistryItem", request).await.map(|got| got.item.unwrap())
}

async fn delete(client: &Client, id: &str) -> Code {
    let request = DeleteRegistryItemRequest { item_id: id.into() };
    code(client.app::<_, DeleteRegistryItemResponse>("DeleteRegistryItem", request).await)
}

async fn show(client: &Client, id: &str, visibility: Visibility) -> Result<UpdateModuleResponse, Status> {
    let request =
        UpdateModuleRequest { module_id: id.into(), visibility: visibility.into(), ..UpdateModuleRequest::default() };
    client.app("UpdateModule", request).await
}

async fn namespace(owner: &Owner, namespace: &str) {
    let request = UpdateOrganizationRequest {
        organization_id: owner.organization.clone(),
        public_namespace: Some(namespace.into()),
        ..Default::default()
    };
    owner.client.app::<_, UpdateOrganizationResponse>("UpdateOrganization", request).await.unwrap();
}

async fn package(client: &Client, id: &str, version: &str, platform: &str) -> Result<Package, Status> {
    let request = GetPackageRequest {
        id: id.into(),
        version: version.into(),
        platform: Some(platform.into()),
        include_url: Some(true),
        ..Default::default()
    };
    let path = "/platform.app.packages.v1.PackageService/GetPackage";
    client.call::<_, GetPackageResponse>(path, request).await.map(|got| got.package.unwrap())
}

async fn configure(owner: &Owner, part: &RobotPart, json: &str) {
    let request = UpdateRobotPartRequest {
        id: part.id.clone(),
        name: part.name.clone(),
        robot_config_json: Some(json.into()),
        ..Default::default()
    };
    owner.client.app::<_, UpdateRobotPartResponse>("UpdateRobotPart", request).await.unwrap();
}

async fn audit(owner: &Owner) -> Vec<String> {
    let request =
        ListAuditEventsRequest { organization_id: owner.organization.clone(), limit: 1000, ..Default::default() };
    let path = "/platform.fleet.v1.AdminService/ListAuditEvents";
    let listed: ListAuditEventsResponse = owner.client.call(path, request).await.unwrap();
    listed.events.into_iter().map(|event| format!("{} {}", event.operation, event.detail)).collect()
}

fn artifacts(world: &World, folder: &str) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(world.folder.path().join("data/artifacts").join(folder)) else { return Vec::new() };
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    found.sort();
    found
}

/// Waits for what happens soon on the server.
async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let wait = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("never: {what}"));
}

struct Fetched {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Fetched {
    fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (key, value) = line.split_once(": ")?;
            key.eq_ignore_ascii_case(name).then_some(value)
        })
    }
}

async fn fetch(world: &World, method: &str, path: &str, headers: &[(&str, &str)]) -> Fetched {
    let mut stream = TcpStream::connect(world.server.address).await.unwrap();
    let lines: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let head = format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{lines}\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut all = Vec::new();
    tokio::time::timeout(PATIENCE, stream.read_to_end(&mut all)).await.unwrap().unwrap();
    let end = all.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    let head = String::from_utf8(all[..end].to_vec()).unwrap();
    Fetched { status: head[9..12].parse().unwrap(), head, body: all.split_off(end + 4) }
}

fn bearer(client: &Client) -> String {
    format!("Bearer {}", client.token.as_deref().unwrap_or_default())
}

#[tokio::test]
async fn a_module_from_its_name_to_its_versions() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    let made = create(&owner, "camera").await.unwrap();
    let first_id = format!("{}:camera", owner.organization);
    assert_eq!(made.module_id, first_id);
    assert!(made.url.ends_with(&format!("/packages/v1/{}/camera", owner.organization)), "{}", made.url);
    assert_eq!(code(create(&owner, "camera").await), AlreadyExists);
    let item_too = CreateRegistryItemRequest {
        organization_id: owner.organization.clone(),
        name: "camera".into(),
        r#type: PackageType::MlModel.into(),
    };
    let same_name = owner.client.app::<_, CreateRegistryItemResponse>("CreateRegistryItem", item_too).await;
    assert_eq!(code(same_name), AlreadyExists, "one name in the organization, whatever it is");
    for name in ["", " ", "a b", "a:b", "a/b", "../x", "-x", "ü", "x\0", &"x".repeat(201)] {
        assert_eq!(code(create(&owner, name).await), InvalidArgument, "{name:?}");
    }

    assert_eq!(code(show(&owner.client, &first_id, Visibility::Public).await), FailedPrecondition, "no namespace yet");
    namespace(&owner, "acme-1").await;
    let model = Model { api: "a:b:c".into(), model: "acme-1:camera:usb".into(), ..Default::default() };
    let change = UpdateModuleRequest {
        module_id: first_id.clone(),
        visibility: Visibility::Private.into(),
        url: "https://example.org/camera".into(),
        description: "takes pictures\nof things".into(),
        models: vec![Model { markdown_documentation: Some("# usb".into()), ..model.clone() }],
        entrypoint: "bin/camera".into(),
        first_run: Some("setup.sh".into()),
        markdown_description: Some("# camera".into()),
        ..Default::default()
    };
    let changed: UpdateModuleResponse = owner.client.app("UpdateModule", change.clone()).await.unwrap();
    assert!(changed.url.ends_with("/packages/v1/acme-1/camera"), "{}", changed.url);
    for wrong in [
        UpdateModuleRequest { visibility: 4, ..change.clone() },
        UpdateModuleRequest { description: "a\0b".into(), ..change.clone() },
        UpdateModuleRequest { url: "a\nb".into(), ..change.clone() },
        UpdateModuleRequest { models: vec![model.clone(); 1001], ..change.clone() },
        UpdateModuleRequest { markdown_description: Some("x".repeat(1 << 20)), ..change.clone() },
    ] {
        let refused = owner.client.app::<_, UpdateModuleResponse>("UpdateModule", wrong).await;
        assert_eq!(code(refused), InvalidArgument);
    }

    // Uploaded in any order and in any pieces; told in the order of versions.
    for (version, platform) in [("1.10.0", "linux/arm64"), ("1.2.0", "linux/arm64"), ("1.2.0", "linux/amd64")] {
        upload(&owner.client, info("acme-1:camera", version, platform), b"bytes").await.unwrap();
    }
    let clearing = UpdateModuleRequest {
        module_id: "acme-1:camera".into(),
        entrypoint: "bin/new".into(),
        ..UpdateModuleRequest::default()
    };
    owner.client.app::<_, UpdateModuleResponse>("UpdateModule", clearing).await.unwrap();
    for id in [&*first_id, "acme-1:camera"] {
        let module = get(&owner.client, id).await.unwrap();
        assert_eq!((&*module.module_id, &*module.public_namespace), ("acme-1:camera", "acme-1"), "asked as {id}");
        assert_eq!((&*module.entrypoint, module.models.len(), &*module.url), ("bin/new", 0, ""));
        assert_eq!(module.first_run.as_deref(), Some("setup.sh"), "absent is unchanged");
        let versions: Vec<_> = module.versions.iter().map(|one| (&*one.version, one.files.len())).collect();
        assert_eq!(versions, [("1.2.0", 2), ("1.10.0", 1)]);
        assert_eq!(
            (&*module.versions[0].entrypoint, &module.versions[0].models[0].model),
            ("bin/camera", &model.model)
        );
        assert_eq!(module.versions[0].markdown_description.as_deref(), Some("# camera"));
    }
    let told = item(&owner.client, "acme-1:camera").await.unwrap();
    let Some(registry_item::Metadata::ModuleMetadata(metadata)) = told.metadata else { panic!("a module") };
    assert_eq!((metadata.versions.len(), metadata.versions[0].models.len()), (2, 1));
    let pages = (&metadata.markdown_description, &metadata.versions[0].markdown_description);
    assert_eq!(pages, (&None, &None), "only if they are asked for");
    assert!(told.updated_at.unwrap().seconds >= told.created_at.unwrap().seconds);
    for id in ["", "acme-1", "acme-1:none:x", "ACME:camera", "acme-1:ca mera", "acme-1:\0"] {
        assert_eq!(code(get(&owner.client, id).await), InvalidArgument, "{id:?}");
        assert_eq!(delete(&owner.client, id).await, InvalidArgument, "{id:?}");
    }
    assert_eq!(code(get(&owner.client, "acme-1:none").await), NotFound);
    let log = audit(&owner).await;
    for what in ["CreateModule \"camera\"", "UpdateModule \"camera\"", "UploadModuleFile \"camera\" 1.10.0 linux/arm64"]
    {
        assert!(log.iter().any(|line| line.starts_with(what)), "{what}: {log:?}");
    }
    world.end().await;
}

#[tokio::test]
async fn items_of_other_kinds_are_kept_and_found() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    namespace(&owner, "acme").await;
    let other = world.owner("Other").await;
    namespace(&other, "other").await;
    let item_of = |owner: &Owner, name: &str, kind: i32| CreateRegistryItemRequest {
        organization_id: owner.organization.clone(),
        name: name.into(),
        r#type: kind,
    };
    for (owner, name, kind, expected) in [
        (&owner, "detector", PackageType::MlModel.into(), Yes),
        (&owner, "script", PackageType::MlTraining.into(), Yes),
        (&owner, "things", PackageType::Archive.into(), Yes),
        (&other, "theirs", PackageType::MlModel.into(), Yes),
        (&other, "hidden", PackageType::MlModel.into(), Yes),
        (&other, "unlisted", PackageType::MlModel.into(), Yes),
        (&owner, "nothing", 0, InvalidArgument),
        (&owner, "more", 6, InvalidArgument),
    ] {
        let made = owner.client.app::<_, CreateRegistryItemResponse>("CreateRegistryItem", item_of(owner, name, kind));
        assert_eq!(code(made.await), expected, "{name}");
    }
    module(&owner, "camera").await;
    upload(&owner.client, info("acme:camera", "1.0.0", "linux/any"), b"x").await.unwrap();
    let update = |id: &str, kind: PackageType, visibility: Visibility| UpdateRegistryItemRequest {
        item_id: id.into(),
        r#type: kind.into(),
        description: "finds Screws".into(),
        visibility: visibility.into(),
        ..Default::default()
    };
    use update_registry_item_request::Metadata as Update;
    let detector = UpdateRegistryItemRequest {
        url: Some("https://example.org".into()),
        metadata: Some(Update::UpdateMlModelMetadata(UpdateMlModelMetadata {
            model_framework: 4,
            ..UpdateMlModelMetadata::default()
        })),
        ..update("acme:detector", PackageType::MlModel, Visibility::Public)
    };
    let change = |client: Client, request: UpdateRegistryItemRequest| async move {
        code(client.app::<_, UpdateRegistryItemResponse>("UpdateRegistryItem", request).await)
    };
    assert_eq!(change(owner.client.clone(), detector.clone()).await, Yes);
    let told = item(&owner.client, "acme:detector").await.unwrap();
    assert_eq!((&*told.description, &*told.url), ("finds Screws", "https://example.org"));
    assert!(
        matches!(told.metadata, Some(registry_item::Metadata::MlModelMetadata(model)) if model.model_framework == 4)
    );
    let other_kind = UpdateRegistryItemRequest { r#type: PackageType::Module.into(), ..detector.clone() };
    let other_metadata = UpdateRegistryItemRequest {
        metadata: Some(Update::UpdateMlTrainingMetadata(UpdateMlTrainingMetadata::default())),
        ..detector.clone()
    };
    let page = UpdateRegistryItemRequest { markdown_description: Some("x".into()), ..detector.clone() };
    for wrong in [other_kind, other_metadata, page] {
        assert_eq!(change(owner.client.clone(), wrong).await, InvalidArgument);
    }
    for (id, visibility) in [("other:theirs", Visibility::Public), ("other:unlisted", Visibility::PublicUnlisted)] {
        assert_eq!(change(other.client.clone(), update(id, PackageType::MlModel, visibility)).await, Yes);
    }
    assert_eq!(
        change(owner.client.clone(), update("other:theirs", PackageType::MlModel, Visibility::Private)).await,
        Denied,
        "what is seen and not ours"
    );
    assert_eq!(
        change(owner.client.clone(), update("other:hidden", PackageType::MlModel, Visibility::Private)).await,
        NotFound
    );
    assert_eq!(code(item(&owner.client, "other:unlisted").await), Yes, "for who knows its id");
    assert_eq!(code(item(&owner.client, "other:hidden").await), NotFound);

    let list = |request: ListRegistryItemsRequest| {
        let client = owner.client.clone();
        async move {
            let listed: Result<ListRegistryItemsResponse, _> = client.app("ListRegistryItems", request).await;
            listed.map(|listed| listed.items.into_iter().map(|one| one.item_id).collect::<Vec<_>>())
        }
    };
    let any = ListRegistryItemsRequest { organization_id: Some(String::new()), ..Default::default() };
    let ours = ListRegistryItemsRequest { organization_id: Some(owner.organization.clone()), ..Default::default() };
    let table = [
        ("all", any.clone(), vec!["acme:camera", "acme:detector", "acme:script", "acme:things", "other:theirs"]),
        ("ours", ours.clone(), vec!["acme:camera", "acme:detector", "acme:script", "acme:things"]),
        (
            "after one",
            ListRegistryItemsRequest { page_token: Some("acme:detectoR".into()), ..ours.clone() },
            vec!["acme:detector", "acme:script", "acme:things"],
        ),
        ("models", ListRegistryItemsRequest { types: vec![2], ..any.clone() }, vec!["acme:detector", "other:theirs"]),
        (
            "private",
            ListRegistryItemsRequest { visibilities: vec![1, 3], types: vec![2, 3], ..any.clone() },
            vec!["acme:camera"],
        ),
        (
            "a platform",
            ListRegistryItemsRequest { platforms: vec!["linux/arm64".into()], ..any.clone() },
            vec!["acme:camera"],
        ),
        ("published", ListRegistryItemsRequest { statuses: vec![1], ..any.clone() }, vec!["acme:camera"]),
        (
            "in development",
            ListRegistryItemsRequest { statuses: vec![2], types: vec![4, 5], ..any.clone() },
            vec!["acme:script"],
        ),
        (
            "both",
            ListRegistryItemsRequest { statuses: vec![1, 2], types: vec![3, 5], ..any.clone() },
            vec!["acme:camera", "acme:script"],
        ),
        (
            "a word",
            ListRegistryItemsRequest { search_term: Some("sCREWS".into()), ..any.clone() },
            vec!["acme:detector", "other:theirs"],
        ),
        ("no word", ListRegistryItemsRequest { search_term: Some("%".into()), ..any.clone() }, vec![]),
        (
            "a namespace",
            ListRegistryItemsRequest { public_namespaces: vec!["other".into()], ..any.clone() },
            vec!["other:theirs"],
        ),
        ("a language", ListRegistryItemsRequest { module_languages: vec![1], ..any.clone() }, vec![]),
    ];
    for (case, request, expected) in table {
        assert_eq!(list(request).await.unwrap(), expected, "{case}");
    }
    for wrong in [
        ListRegistryItemsRequest { types: vec![9], ..any.clone() },
        ListRegistryItemsRequest { visibilities: vec![0], ..any.clone() },
        ListRegistryItemsRequest { statuses: vec![-1], ..any.clone() },
        ListRegistryItemsRequest { page_token: Some("nonsense".into()), ..any.clone() },
        ListRegistryItemsRequest { organization_id: Some("x\0".into()), ..any.clone() },
    ] {
        assert_eq!(code(list(wrong).await), InvalidArgument);
    }
    let theirs = ListRegistryItemsRequest { organization_id: Some(other.organization.clone()), ..any };
    assert_eq!(code(list(theirs).await), NotFound);
    let modules = ListModulesRequest { organization_id: Some(owner.organization.clone()), ..Default::default() };
    let listed: ListModulesResponse = owner.client.app("ListModules", modules).await.unwrap();
    assert_eq!(listed.modules.iter().map(|one| &*one.module_id).collect::<Vec<_>>(), ["acme:camera"]);
    world.end().await;
}

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
    // The same bytes once more mend it.
    upload(&owner.client, good(), b"x").await.unwrap();
    let mended = fetch(&world, "GET", "/packages/v1/acme/camera/1.0.0/any", &headers).await;
    assert_eq!(mended.body, b"x");
    world.end().await;
}

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
async fn an_upload_that_stalls_is_given_up() {
    let world = World::with(|options| options.upload_idle = Duration::from_secs(1)).await;
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
        (refused.code(), refused.message().contains("nothing arrived for 1 seconds")),
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

#[tokio::test]
async fn what_is_used_stays_and_what_is_not_leaves_nothing_behind() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    namespace(&owner, "acme").await;
    module(&owner, "camera").await;
    module(&owner, "twin").await;
    upload(&owner.client, info("acme:camera", "1.0.0", "any"), b"same bytes").await.unwrap();
    upload(&owner.client, info("acme:camera", "1.1.0", "any"), b"own bytes").await.unwrap();
    upload(&owner.client, info("acme:twin", "1.0.0", "any"), b"same bytes").await.unwrap();
    let location = owner.location("North", None).await;
    let machine = owner.machine(&location, "arm").await;
    let part = owner.main_part(&machine).await;
    let naming = |id: &str| format!(r#"{{"modules":[{{"name":"camera","type":"registry","module_id":"{id}"}}]}}"#);
    configure(&owner, &part, &naming("acme:camera")).await;
    let told = item(&owner.client, "acme:camera").await.unwrap();
    assert_eq!((told.total_robot_usage, told.total_organization_usage, told.total_external_robot_usage), (1, 1, 0));
    let request = DeleteRegistryItemRequest { item_id: "acme:camera".into() };
    let refused = owner.client.app::<_, DeleteRegistryItemResponse>("DeleteRegistryItem", request).await.unwrap_err();
    assert_eq!(refused.code(), FailedPrecondition);
    assert!(refused.message().contains("part \"arm-main\" of machine \"arm\""), "{}", refused.message());

    // The same by the organization's id, and by a fragment.
    configure(&owner, &part, &naming(&format!("{}:camera", owner.organization))).await;
    assert_eq!(delete(&owner.client, "acme:camera").await, FailedPrecondition);
    let request = CreateFragmentRequest {
        name: "base".into(),
        organization_id: owner.organization.clone(),
        ..Default::default()
    };
    let fragment: CreateFragmentResponse = owner.client.app("CreateFragment", request).await.unwrap();
    let fragment = fragment.fragment.unwrap();
    let fill = UpdateFragmentRequest {
        id: fragment.id.clone(),
        name: "base".into(),
        fragment_config_json: Some(naming("acme:camera")),
        ..Default::default()
    };
    owner.client.app::<_, UpdateFragmentResponse>("UpdateFragment", fill.clone()).await.unwrap();
    configure(&owner, &part, &format!(r#"{{"fragments":["{}"]}}"#, fragment.id)).await;
    let told = get(&owner.client, "acme:camera").await.unwrap();
    assert_eq!((told.total_robot_usage, told.total_organization_usage), (1, 1), "by the fragment");
    assert_eq!(delete(&owner.client, "acme:camera").await, FailedPrecondition);

    // Somebody else names it: no use while it is private, one that is only counted while it is public.
    let other = world.owner("Other").await;
    let there = other.location("South", None).await;
    let there = other.machine(&there, "leg").await;
    let their_part = other.main_part(&there).await;
    configure(&other, &their_part, &naming("acme:camera")).await;
    configure(&owner, &part, "{}").await;
    let emptied = UpdateFragmentRequest { fragment_config_json: Some("{}".into()), ..fill };
    owner.client.app::<_, UpdateFragmentResponse>("UpdateFragment", emptied).await.unwrap();
    assert_eq!(item(&owner.client, "acme:camera").await.unwrap().total_robot_usage, 0);
    show(&owner.client, "acme:camera", Visibility::Public).await.unwrap();
    assert_eq!(item(&owner.client, "acme:camera").await.unwrap().total_external_robot_usage, 1);
    let request = DeleteRegistryItemRequest { item_id: "acme:camera".into() };
    let refused = owner.client.app::<_, DeleteRegistryItemResponse>("DeleteRegistryItem", request).await.unwrap_err();
    assert!(refused.message().contains("1 more") && !refused.message().contains("leg"), "{}", refused.message());
    show(&owner.client, "acme:camera", Visibility::Private).await.unwrap();

    assert_eq!(artifacts(&world, "sha256").len(), 2);
    assert_eq!(delete(&owner.client, "acme:camera").await, Yes);
    assert_eq!(delete(&owner.client, "acme:camera").await, NotFound);
    assert_eq!(artifacts(&world, "sha256").len(), 1, "the twin's bytes stay");
    let twin =
        fetch(&world, "GET", "/packages/v1/acme/twin/1.0.0/any", &[("authorization", &bearer(&owner.client))]).await;
    assert_eq!(twin.body, b"same bytes");

    // With the organization goes what it published.
    let request = DeleteRobotRequest { id: machine };
    owner.client.app::<_, DeleteRobotResponse>("DeleteRobot", request).await.unwrap();
    let request = DeleteLocationRequest { location_id: location };
    owner.client.app::<_, DeleteLocationResponse>("DeleteLocation", request).await.unwrap();
    show(&owner.client, "acme:twin", Visibility::Public).await.unwrap();
    configure(&other, &their_part, &naming("acme:twin")).await;
    let end = || DeleteOrganizationRequest { organization_id: owner.organization.clone() };
    let refused = owner.client.app::<_, DeleteOrganizationResponse>("DeleteOrganization", end()).await;
    assert_eq!(code(refused), FailedPrecondition, "others use what it published");
    configure(&other, &their_part, "{}").await;
    owner.client.app::<_, DeleteOrganizationResponse>("DeleteOrganization", end()).await.unwrap();
    assert_eq!(artifacts(&world, "sha256").len(), 0);
    world.end().await;
}

#[tokio::test]
async fn what_was_configured_before_there_was_a_registry_is_noted_after_the_upgrade() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    namespace(&owner, "acme").await;
    module(&owner, "camera").await;
    let location = owner.location("North", None).await;
    for count in 0..60 {
        let machine = owner.machine(&location, &format!("arm {count}")).await;
        let part = owner.main_part(&machine).await;
        configure(&owner, &part, r#"{"modules":[{"module_id":"acme:camera"}]}"#).await;
    }
    let request = CreateFragmentRequest {
        name: "base".into(),
        organization_id: owner.organization.clone(),
        ..Default::default()
    };
    let fragment: CreateFragmentResponse = owner.client.app("CreateFragment", request).await.unwrap();
    let fill = UpdateFragmentRequest {
        id: fragment.fragment.unwrap().id,
        name: "base".into(),
        fragment_config_json: Some(r#"{"modules":[{"module_id":"acme:camera"}]}"#.into()),
        ..Default::default()
    };
    owner.client.app::<_, UpdateFragmentResponse>("UpdateFragment", fill).await.unwrap();
    // As an older server would have left it.
    let forget = |tx: &fleet::store::Tx<'_>| tx.run("DELETE FROM registry_uses", &[]);
    world.server.context.store.write::<_, fleet::store::DbError>(forget).await.unwrap();
    assert_eq!(item(&owner.client, "acme:camera").await.unwrap().total_robot_usage, 0);
    let world = world.restart().await;
    let client = world.login("api-key", &owner.key_id, &owner.key).await.unwrap();
    assert_eq!(item(&client, "acme:camera").await.unwrap().total_robot_usage, 60);
    let request = DeleteRegistryItemRequest { item_id: "acme:camera".into() };
    let refused = client.app::<_, DeleteRegistryItemResponse>("DeleteRegistryItem", request).await.unwrap_err();
    assert!(refused.message().contains("51 more"), "the fragment too: {}", refused.message());
    world.end().await;
}

#[tokio::test]
async fn applications_are_found_by_their_name_without_a_token() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    namespace(&owner, "acme").await;
    module(&owner, "camera").await;
    module(&owner, "twin").await;
    let app = App {
        name: "dashboard".into(),
        r#type: "multi_machine".into(),
        entrypoint: "dist/index.html".into(),
        fragment_ids: vec!["f".into()],
        logo_path: Some("static/logo.png".into()),
        customizations: Some(AppCustomizations {
            machine_picker: Some(MachinePickerCustomizations {
                heading: Some("Choose".into()),
                ..MachinePickerCustomizations::default()
            }),
        }),
        allowed_org_ids: Some(AllowedOrgIDs { ids: vec!["o".into()] }),
    };
    let declare = |module: &str, apps: Vec<App>| {
        let request = UpdateModuleRequest { module_id: module.into(), apps, ..UpdateModuleRequest::default() };
        let client = owner.client.clone();
        async move { code(client.app::<_, UpdateModuleResponse>("UpdateModule", request).await) }
    };
    let nobody = world.nobody().await;
    let content = |namespace: &str, name: &str| {
        let request = GetAppContentRequest { public_namespace: namespace.into(), name: name.into() };
        let nobody = nobody.clone();
        async move { nobody.app::<_, GetAppContentResponse>("GetAppContent", request).await }
    };
    for wrong in [
        App { name: "a b".into(), ..app.clone() },
        App { r#type: "no_machine".into(), ..app.clone() },
        App { entrypoint: String::new(), ..app.clone() },
    ] {
        assert_eq!(declare("acme:camera", vec![wrong]).await, InvalidArgument);
    }
    assert_eq!(declare("acme:camera", vec![app.clone(), app.clone()]).await, InvalidArgument);
    assert_eq!(declare("acme:camera", vec![app.clone()]).await, Yes);
    assert_eq!(declare("acme:twin", vec![app.clone()]).await, AlreadyExists, "one name in the organization");
    assert_eq!(code(content("acme", "dashboard").await), NotFound, "nothing was uploaded");
    for version in ["1.9.0", "1.10.0", "1.2.0"] {
        upload(&owner.client, info("acme:camera", version, "any"), version.as_bytes()).await.unwrap();
    }
    assert_eq!(declare("acme:camera", vec![]).await, Yes, "clients that cannot say any take none away");
    let found = content("acme", "dashboard").await.unwrap();
    assert_eq!((&*found.blob_path, &*found.entrypoint), ("/packages/v1/acme/camera/1.10.0/any", "dist/index.html"));
    assert_eq!((found.app_type(), found.public), (AppType::MultiMachine, false));
    let blob = fetch(&world, "GET", &found.blob_path, &[("authorization", &bearer(&owner.client))]).await;
    assert_eq!(blob.body, b"1.10.0");
    assert_eq!(
        fetch(&world, "GET", &found.blob_path, &[]).await.status,
        401,
        "the content itself is not for everybody"
    );
    let request = GetAppBrandingRequest { public_namespace: "acme".into(), name: "dashboard".into() };
    let branding: GetAppBrandingResponse = nobody.app("GetAppBranding", request).await.unwrap();
    assert_eq!(branding.logo_path.as_deref(), Some("static/logo.png"));
    assert_eq!(
        (&branding.fragment_ids[..], &branding.allowed_org_ids[..]),
        (&["f".to_owned()][..], &["o".to_owned()][..])
    );
    assert_eq!(branding.text_customizations["machinePicker"].fields["heading"], "Choose");
    for (namespace, name, expected) in [
        ("acme", "none", NotFound),
        ("none", "dashboard", NotFound),
        ("", "", NotFound),
        ("acme", "a\0", InvalidArgument),
    ] {
        assert_eq!(code(content(namespace, name).await), expected, "{namespace} {name:?}");
    }
    // By the general operation a list is what it says, also an empty one.
    let none = update_registry_item_request::Metadata::UpdateModuleMetadata(UpdateModuleMetadata::default());
    let request =
        UpdateRegistryItemRequest { item_id: "acme:camera".into(), metadata: Some(none), ..Default::default() };
    owner.client.app::<_, UpdateRegistryItemResponse>("UpdateRegistryItem", request).await.unwrap();
    assert_eq!(code(content("acme", "dashboard").await), NotFound);
    assert_eq!(declare("acme:twin", vec![app]).await, Yes, "the name is free again");
    world.end().await;
}

#[tokio::test]
async fn who_may_what() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    namespace(&owner, "acme").await;
    module(&owner, "camera").await;
    let location = owner.location("North", None).await;
    let operator = world.key(&owner, "operator", "organization", &owner.organization).await;
    let of_location = world.key(&owner, "owner", "location", &location).await;
    let stranger = world.owner("Strangers").await.client;
    let file = || info("acme:camera", "1.0.0", "any");
    // read, change, upload, delete, while it is private and while it is public.
    for (visibility, table) in [
        (
            Visibility::Private,
            [(&operator, Yes, Denied), (&of_location, NotFound, NotFound), (&stranger, NotFound, NotFound)],
        ),
        (Visibility::Public, [(&operator, Yes, Denied), (&of_location, Yes, Denied), (&stranger, Yes, Denied)]),
    ] {
        show(&owner.client, "acme:camera", visibility).await.unwrap();
        for (n, (client, reads, writes)) in table.into_iter().enumerate() {
            assert_eq!(code(item(client, "acme:camera").await), reads, "{visibility:?} {n}");
            assert_eq!(code(get(client, "acme:camera").await), reads, "{visibility:?} {n}");
            assert_eq!(code(show(client, "acme:camera", Visibility::Private).await), writes, "{visibility:?} {n}");
            assert_eq!(code(upload(client, file(), b"x").await), writes, "{visibility:?} {n}");
            assert_eq!(delete(client, "acme:camera").await, writes, "{visibility:?} {n}");
        }
    }
    // Nobody becomes the owner of another organization's ids.
    let taken = UpdateOrganizationRequest {
        organization_id: world.owner("Thief").await.organization,
        public_namespace: Some(owner.organization.clone()),
        ..Default::default()
    };
    let thief = owner.client.app::<_, UpdateOrganizationResponse>("UpdateOrganization", taken).await;
    assert_eq!(code(thief), NotFound);
    let own = UpdateOrganizationRequest {
        organization_id: owner.organization.clone(),
        public_namespace: Some("0a000000-0000-4000-8000-000000000001".into()),
        ..Default::default()
    };
    assert_eq!(
        code(owner.client.app::<_, UpdateOrganizationResponse>("UpdateOrganization", own).await),
        InvalidArgument
    );
    world.end().await;
}
