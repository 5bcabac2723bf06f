//! Registry items and modules: from the first upload to the last download.

mod world;

#[path = "registry/downloads.rs"]
mod downloads;
#[path = "registry/items.rs"]
mod items;
#[path = "registry/uploads.rs"]
mod uploads;
#[path = "registry/uses.rs"]
mod uses;

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

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
use tonic_types::StatusExt;
use upload_module_file_request::ModuleFile;
use world::{
    Client, Owner, PATIENCE, Plain, World, code,
    http::{Answer, ask},
    metric,
};

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

async fn fetch(world: &World, method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
    ask(world, method, path, headers, b"").await
}

fn bearer(client: &Client) -> String {
    format!("Bearer {}", client.token.as_deref().unwrap_or_default())
}
