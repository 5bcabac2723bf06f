//! What operations there are, as grpcurl asks.

use std::collections::BTreeMap;

use api::pb::platform::app::v1::{
    CreateKeyResponse, DeleteKeyRequest, DeleteKeyResponse, ListOrganizationsRequest, ListOrganizationsResponse,
};
use prost::Message;
use prost_types::{DescriptorProto, FileDescriptorProto, ServiceDescriptorProto};
use tonic::{Code, Request, Status};
use tonic_reflection::pb::{v1, v1alpha};

use super::world::{Client, PATIENCE, World, code};

macro_rules! asker {
    ($name:ident, $version:ident) => {
        /// The answer to one question.
        async fn $name(
            client: &Client,
            question: $version::server_reflection_request::MessageRequest,
        ) -> Result<$version::server_reflection_response::MessageResponse, Status> {
            let asked = $version::ServerReflectionRequest { host: String::new(), message_request: Some(question) };
            let mut request = Request::new(tokio_stream::iter([asked]));
            if let Some(token) = &client.token {
                request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
            }
            let mut asker = $version::server_reflection_client::ServerReflectionClient::new(client.channel.clone());
            let mut answers = asker.server_reflection_info(request).await?.into_inner();
            Ok(answers.message().await?.expect("an answer").message_response.unwrap())
        }
    };
}

asker!(ask, v1);
asker!(ask_alpha, v1alpha);

#[tokio::test]
async fn who_has_a_key_may_read_the_contract_in_both_versions() {
    use v1::{
        server_reflection_request::MessageRequest as Question, server_reflection_response::MessageResponse as Told,
    };
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    let nobody = world.nobody().await;
    let list = || Question::ListServices(String::new());
    assert_eq!(code(ask(&nobody, list()).await), Code::Unauthenticated);

    let Told::ListServicesResponse(told) = ask(&owner.client, list()).await.unwrap() else { panic!("no list") };
    let services: Vec<String> = told.service.into_iter().map(|service| service.name).collect();
    for operation in fleet::operations::OPERATIONS {
        let service = operation.path[1..].split_once('/').unwrap().0;
        assert!(services.iter().any(|known| known == service), "{service} is not in {services:?}");
    }
    assert!(!services.iter().any(|name| name.contains("MLTraining")), "what is not done is not offered: {services:?}");
    for ours in services.iter().filter_map(|service| service.strip_prefix("platform.")) {
        assert!(services.iter().any(|name| *name == format!("viam.{ours}")), "{ours} under the other prefix");
    }

    for symbol in ["platform.app.v1.AppService", "platform.app.v1.GetRobotRequest", "google.rpc.BadRequest"] {
        let question = Question::FileContainingSymbol(symbol.to_owned());
        let Told::FileDescriptorResponse(told) = ask(&owner.client, question).await.unwrap() else { panic!("no file") };
        let file = FileDescriptorProto::decode(&*told.file_descriptor_proto[0]).unwrap();
        let services = file.service.iter().map(ServiceDescriptorProto::name);
        let mut names = services.chain(file.message_type.iter().map(DescriptorProto::name));
        let (package, name) = symbol.rsplit_once('.').unwrap();
        assert!(file.package() == package && names.any(|one| one == name), "{symbol} is not in {}", file.name());
    }
    // What a tool does to call the operation under the other prefix: the service's file, and all that it needs.
    let (mut wanted, mut files) = (Vec::new(), BTreeMap::<String, FileDescriptorProto>::new());
    let mut question = Some(Question::FileContainingSymbol("viam.app.v1.AppService".into()));
    while let Some(asked) = question {
        let Told::FileDescriptorResponse(told) = ask(&owner.client, asked).await.unwrap() else { panic!("no file") };
        for bytes in told.file_descriptor_proto {
            let file = FileDescriptorProto::decode(&*bytes).unwrap();
            wanted.extend(file.dependency.iter().cloned());
            files.insert(file.name().to_owned(), file);
        }
        wanted.retain(|name| !files.contains_key(name));
        question = wanted.pop().map(Question::FileByFilename);
    }
    let mut names: Vec<String> = Vec::new();
    for file in files.values() {
        let named = file.message_type.iter().map(DescriptorProto::name);
        names.extend(named.map(|name| format!(".{}.{name}", file.package())));
    }
    let service = files.values().flat_map(|file| &file.service).find(|service| service.name() == "AppService").unwrap();
    assert!(service.method.len() > 80, "{}", service.method.len());
    for method in &service.method {
        for name in [method.input_type(), method.output_type()] {
            assert!(name.starts_with(".viam.") && names.iter().any(|known| known == name), "{name} is not described");
        }
    }
    let fields = files.values().flat_map(|file| &file.message_type).flat_map(|message| &message.field);
    for field in fields {
        assert!(!field.type_name().starts_with(".platform."), "{} mixes the prefixes", field.type_name());
    }
    let unknown = ask(&owner.client, Question::FileContainingSymbol("no.such.Thing".into())).await;
    assert_eq!(code(unknown), Code::NotFound);

    let question = v1alpha::server_reflection_request::MessageRequest::ListServices(String::new());
    assert_eq!(code(ask_alpha(&nobody, question.clone()).await), Code::Unauthenticated);
    let told = ask_alpha(&owner.client, question).await.unwrap();
    let v1alpha::server_reflection_response::MessageResponse::ListServicesResponse(told) = told else { panic!("none") };
    assert_eq!(told.service.len(), services.len());
    let still = owner.client.app::<_, ListOrganizationsResponse>("ListOrganizations", ListOrganizationsRequest {});
    assert_eq!(code(still.await), Code::Ok);
    world.end().await;
}

/// Streams that belong to no operation of the contract end as all others do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_that_stays_open_ends_with_its_key_and_with_the_server() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    let request = owner.key_request("operator", "organization", &owner.organization);
    let made: CreateKeyResponse = owner.client.app("CreateKey", request).await.unwrap();
    let key = world.login("api-key", &made.id, &made.key).await.unwrap();
    let open = async |client: &Client| {
        // Nothing is asked, and nothing ends it.
        let mut request = Request::new(tokio_stream::pending::<v1::ServerReflectionRequest>());
        let token = client.token.as_ref().unwrap();
        request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
        let mut asker = v1::server_reflection_client::ServerReflectionClient::new(client.channel.clone());
        asker.server_reflection_info(request).await.unwrap().into_inner()
    };
    let (mut of_key, mut of_owner) = (open(&key).await, open(&owner.client).await);
    // The first message says that it serves.
    let nobody = world.nobody().await;
    let mut health = nobody.stream("/grpc.health.v1.Health/Watch", ()).await;
    assert!(health.message().await.unwrap().is_some());
    let _: DeleteKeyResponse = owner.client.app("DeleteKey", DeleteKeyRequest { id: made.id }).await.unwrap();
    let ended = tokio::time::timeout(PATIENCE, of_key.message()).await.expect("it ends");
    assert_eq!(code(ended), Code::Unauthenticated);
    let stopping = tokio::spawn(world.end());
    let ended = tokio::time::timeout(PATIENCE, of_owner.message()).await.expect("it ends");
    assert_eq!(code(ended), Code::Unavailable);
    let ended = async {
        loop {
            if let Err(status) = health.message().await {
                return status.code();
            }
        }
    };
    assert_eq!(tokio::time::timeout(PATIENCE, ended).await.expect("it ends"), Code::Unavailable);
    stopping.await.unwrap();
}
