//! Files of modules: whole, or not there.

use api::pb::platform::app::v1::{upload_module_file_request::ModuleFile, *};
use bytes::Bytes;
use fleet::authn::digest_of;
use prost::Message;
use tonic::{Status, client::Grpc};

use super::super::world::{Client, Owner, Plain, http};
use super::{Doing, There, Writer};

/// Uploads versions of one module.
pub(super) struct Files {
    owner: Owner,
    module: String,
    name: String,
    /// Versions and what is in them.
    acknowledged: Vec<(String, String)>,
    asked: Option<(String, String)>,
}

impl Files {
    pub(super) async fn new(there: &There) -> Self {
        let owner = there.owner().await;
        let name = format!("camera-{}", fleet::ids::new_id());
        let request = CreateModuleRequest { organization_id: owner.organization.clone(), name: name.clone() };
        let module: CreateModuleResponse = owner.client.app("CreateModule", request).await.unwrap();
        Self { owner, module: module.module_id, name, acknowledged: Vec::new(), asked: None }
    }

    async fn is_whole(&self, there: &There, least: u64) {
        let owner = there.owner().await;
        let request = GetModuleRequest { module_id: self.module.clone(), ..Default::default() };
        let got: GetModuleResponse = owner.client.app("GetModule", request).await.unwrap();
        let listed: Vec<String> = got.module.unwrap().versions.into_iter().map(|one| one.version).collect();
        let sent = self.acknowledged.iter().chain(&self.asked);
        let count = sent.clone().take_while(|(version, _)| listed.contains(version)).count();
        assert!(count as u64 >= least, "{listed:?}, {least} acknowledged");
        assert_eq!(count, listed.len(), "one came after another that is not there: {listed:?}");
        for (version, file) in sent {
            let there = self.download(&owner, there, version).await;
            assert_eq!(listed.contains(version), there.is_some(), "{version} is listed and not there, or not listed");
            assert!(there.is_none_or(|one| digest_of(&one) == digest_of(file)), "half of {version}");
        }
    }

    /// What somebody gets who asks for a version, if there is one.
    async fn download(&self, owner: &Owner, there: &There, version: &str) -> Option<String> {
        let address = there.url.strip_prefix("http://").unwrap().parse().unwrap();
        let path = format!("/packages/v1/{}/{}/{version}/any", owner.organization, self.name);
        let token = format!("Bearer {}", owner.client.token.as_deref().unwrap());
        let got = http::ask_at(address, "GET", &path, &[("authorization", &token)], b"").await;
        match got.status {
            200 => Some(String::from_utf8(got.body).unwrap()),
            404 => None,
            other => panic!("{path}: {other} {}", String::from_utf8_lossy(&got.body)),
        }
    }
}

fn message(part: ModuleFile) -> Bytes {
    UploadModuleFileRequest { module_file: Some(part) }.encode_to_vec().into()
}

/// What begins an upload.
pub(crate) fn about(module_id: &str, version: &str) -> Bytes {
    let (version, platform) = (version.to_owned(), "any".to_owned());
    message(ModuleFile::ModuleFileInfo(ModuleFileInfo {
        module_id: module_id.into(),
        version,
        platform,
        platform_tags: Vec::new(),
    }))
}

/// What goes on with it.
pub(crate) fn piece(bytes: &[u8]) -> Bytes {
    message(ModuleFile::File(bytes.to_vec().into()))
}

/// One file, as these messages.
pub(crate) async fn upload(
    client: &Client,
    messages: impl tokio_stream::Stream<Item = Bytes> + Send + 'static,
) -> Result<(), Status> {
    let mut request = tonic::Request::new(messages);
    let token = format!("Bearer {}", client.token.as_deref().unwrap());
    request.metadata_mut().insert("authorization", token.parse().unwrap());
    let mut grpc = Grpc::new(client.channel.clone());
    grpc.ready().await.map_err(|lost| Status::unavailable(lost.to_string()))?;
    let path = "/platform.app.v1.AppService/UploadModuleFile".parse().unwrap();
    grpc.client_streaming(request, path, Plain).await.map(drop)
}

impl Writer for Files {
    fn kind(&self) -> &'static str {
        "files"
    }

    fn step(&mut self) -> Doing<'_, Result<(), Status>> {
        Box::pin(async {
            let version = format!("1.0.{}", self.acknowledged.len());
            let file = format!("{} {version} ", self.name).repeat(20_000);
            self.asked = Some((version.clone(), file.clone()));
            let mut messages = vec![about(&self.module, &version)];
            messages.extend(file.as_bytes().chunks(100_000).map(piece));
            upload(&self.owner.client, tokio_stream::iter(messages)).await?;
            self.acknowledged.extend(self.asked.take());
            Ok(())
        })
    }

    fn acknowledged(&self) -> u64 {
        self.acknowledged.len() as u64
    }

    fn check_from<'a>(&'a mut self, there: &'a There, least: u64) -> Doing<'a, ()> {
        Box::pin(self.is_whole(there, least))
    }
}

/// One that uploads, by itself.
pub(crate) async fn files(there: &There) -> Box<dyn Writer> {
    Box::new(Files::new(there).await)
}
