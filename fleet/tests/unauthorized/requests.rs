//! A good request for every operation.
//!
//! Made from the contract itself: every field whose name says what it holds names our resource. What names cannot tell
//! is written down one by one.

use std::collections::HashMap;

use api::pb::{
    DESCRIPTORS,
    platform::{
        app::{packages::v1::PackageType, v1::*},
        fleet::v1::*,
    },
};
use bytes::Bytes;
use prost::Message;
use prost_types::{DescriptorProto, FileDescriptorSet, field_descriptor_proto::Type};
use tonic::{Request, Status, client::Grpc};

use super::world::{
    Client, PATIENCE, Plain,
    things::{Ours, value},
};

pub(super) struct Contract {
    messages: HashMap<String, DescriptorProto>,
    pub(super) inputs: HashMap<String, String>,
}

impl Contract {
    pub(super) fn read() -> Self {
        let set = FileDescriptorSet::decode(DESCRIPTORS).unwrap();
        let (mut messages, mut inputs) = (HashMap::new(), HashMap::new());
        for file in set.file {
            let package = file.package().to_owned();
            for message in file.message_type {
                messages.insert(format!(".{package}.{}", message.name()), message);
            }
            for service in file.service {
                for method in &service.method {
                    let path = format!("/{package}.{}/{}", service.name(), method.name());
                    inputs.insert(path, method.input_type().to_owned());
                }
            }
        }
        Self { messages, inputs }
    }

    /// Calls an operation about what is ours; the bytes of its answer. A stream is answered when it is open.
    pub(super) async fn call(&self, client: &Client, path: &str, ours: &Ours) -> Result<Bytes, Status> {
        match path.rsplit('/').next().unwrap() {
            "TailRobotPartLogs" => {
                let request = TailRobotPartLogsRequest { id: ours.part.clone(), ..TailRobotPartLogsRequest::default() };
                client.try_stream(path, request).await.map(|_| Bytes::new())
            }
            "UploadModuleFile" => upload(client, path, ours).await,
            _ => client.raw(path, self.request(path, ours)).await,
        }
    }

    /// What is asked of an operation that takes one message.
    pub(super) fn request(&self, path: &str, ours: &Ours) -> Bytes {
        if let Some(special) = special(path.rsplit('/').next().unwrap(), ours) {
            return special;
        }
        let mut bytes = Vec::new();
        self.fill(&self.inputs[path], path, ours, 0, &mut bytes);
        bytes.into()
    }

    fn fill(&self, message: &str, path: &str, ours: &Ours, depth: usize, bytes: &mut Vec<u8>) {
        let Some(message) = self.messages.get(message).filter(|_| depth < 3) else { return };
        for field in &message.field {
            let mut inner = Vec::new();
            match field.r#type() {
                Type::String => inner.extend_from_slice(value(field.name(), path, ours).as_bytes()),
                Type::Message if field.type_name().starts_with(".platform.") => {
                    self.fill(field.type_name(), path, ours, depth + 1, &mut inner);
                }
                _ => continue,
            }
            prost::encoding::encode_key(
                u32::try_from(field.number()).unwrap(),
                prost::encoding::WireType::LengthDelimited,
                bytes,
            );
            prost::encoding::encode_varint(inner.len() as u64, bytes);
            bytes.extend(inner);
        }
    }
}

/// Operations whose request says more than which things it is about, or must leave something out.
fn special(operation: &str, ours: &Ours) -> Option<Bytes> {
    let data = Some(prost_types::Struct::default());
    let bytes = match operation {
        "UpdateOrganization" => UpdateOrganizationRequest {
            organization_id: ours.organization.clone(),
            region: Some("us-east".into()),
            ..UpdateOrganizationRequest::default()
        }
        .encode_to_vec(),
        "UpdateOrganizationInviteAuthorizations" => {
            let role = Authorization {
                authorization_type: "role".into(),
                authorization_id: "location_operator".into(),
                resource_type: "location".into(),
                resource_id: ours.location.clone(),
                organization_id: ours.organization.clone(),
                ..Authorization::default()
            };
            UpdateOrganizationInviteAuthorizationsRequest {
                organization_id: ours.organization.clone(),
                email: ours.guest.clone(),
                add_authorizations: vec![role],
                remove_authorizations: Vec::new(),
            }
            .encode_to_vec()
        }
        "UpdateOrganizationMetadata" => {
            UpdateOrganizationMetadataRequest { organization_id: ours.organization.clone(), data }.encode_to_vec()
        }
        // Where it lies is another permission's matter: it stays.
        "UpdateLocation" => UpdateLocationRequest {
            location_id: ours.location.clone(),
            name: Some("North".into()),
            ..UpdateLocationRequest::default()
        }
        .encode_to_vec(),
        "UpdateLocationMetadata" => {
            UpdateLocationMetadataRequest { location_id: ours.location.clone(), data }.encode_to_vec()
        }
        "UpdateRobotMetadata" => UpdateRobotMetadataRequest { id: ours.machine.clone(), data }.encode_to_vec(),
        "UpdateRobotPartMetadata" => UpdateRobotPartMetadataRequest { id: ours.part.clone(), data }.encode_to_vec(),
        // The main part goes with its machine only.
        "DeleteRobotPart" => DeleteRobotPartRequest { part_id: ours.spare.clone() }.encode_to_vec(),
        // Who names a fragment in vain learns nothing: what is asked is whether the machine's own may be read.
        "ListMachineFragments" => {
            ListMachineFragmentsRequest { machine_id: ours.machine.clone(), ..ListMachineFragmentsRequest::default() }
                .encode_to_vec()
        }
        "ListFragments" => {
            ListFragmentsRequest { organization_id: ours.organization.clone(), ..ListFragmentsRequest::default() }
                .encode_to_vec()
        }
        "ListRegistryItems" => ListRegistryItemsRequest {
            organization_id: Some(ours.organization.clone()),
            ..ListRegistryItemsRequest::default()
        }
        .encode_to_vec(),
        "ListMachineSummaries" => ListMachineSummariesRequest {
            organization_id: ours.organization.clone(),
            location_ids: vec![ours.location.clone()],
            ..ListMachineSummariesRequest::default()
        }
        .encode_to_vec(),
        "ListAuthorizations" => ListAuthorizationsRequest {
            organization_id: ours.organization.clone(),
            resource_ids: vec![ours.location.clone()],
        }
        .encode_to_vec(),
        "CreateRegistryItem" => CreateRegistryItemRequest {
            organization_id: ours.organization.clone(),
            name: "pictures".into(),
            r#type: PackageType::Archive.into(),
        }
        .encode_to_vec(),
        "UpdateRegistryItem" => UpdateRegistryItemRequest {
            item_id: ours.module.clone(),
            r#type: PackageType::Module.into(),
            description: "takes pictures".into(),
            visibility: Visibility::Private.into(),
            ..UpdateRegistryItemRequest::default()
        }
        .encode_to_vec(),
        "UpdateModule" => UpdateModuleRequest {
            module_id: ours.module.clone(),
            visibility: Visibility::Private.into(),
            description: "takes pictures".into(),
            entrypoint: "run".into(),
            ..UpdateModuleRequest::default()
        }
        .encode_to_vec(),
        "UploadLogs" => UploadLogsRequest {
            part_id: ours.part.clone(),
            spool_id: "spool".into(),
            batch_number: 1,
            logs: Vec::new(),
        }
        .encode_to_vec(),
        "RetryUpdate" => {
            RetryUpdateRequest { part_id: ours.part.clone(), product: Product::Agent.into() }.encode_to_vec()
        }
        _ => return None,
    };
    Some(bytes.into())
}

async fn upload(client: &Client, path: &str, ours: &Ours) -> Result<Bytes, Status> {
    use upload_module_file_request::ModuleFile;
    let about = ModuleFileInfo {
        module_id: ours.module.clone(),
        version: "1.1.0".into(),
        platform: "any".into(),
        platform_tags: Vec::new(),
    };
    let messages = [ModuleFile::ModuleFileInfo(about), ModuleFile::File(Bytes::from(ours.module.clone()))]
        .map(|one| Bytes::from(UploadModuleFileRequest { module_file: Some(one) }.encode_to_vec()));
    let mut request = Request::new(tokio_stream::iter(messages));
    if let Some(token) = &client.token {
        request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    }
    let mut grpc = Grpc::new(client.channel.clone());
    grpc.ready().await.map_err(|lost| Status::unavailable(lost.to_string()))?;
    let answer = grpc.client_streaming(request, path.parse().unwrap(), Plain);
    tokio::time::timeout(PATIENCE, answer).await.expect("an answer").map(tonic::Response::into_inner)
}
