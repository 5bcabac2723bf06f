//! What operations there are, as grpcurl asks.

use api::pb::platform::app::v1::{ListOrganizationsRequest, ListOrganizationsResponse};
use prost::Message;
use prost_types::FileDescriptorProto;
use tonic::{Code, Request, Status};
use tonic_reflection::pb::{v1, v1alpha};

use crate::world::{Client, World, code};

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

    for symbol in ["platform.app.v1.AppService", "platform.app.v1.GetRobotRequest", "google.rpc.BadRequest"] {
        let question = Question::FileContainingSymbol(symbol.to_owned());
        let Told::FileDescriptorResponse(told) = ask(&owner.client, question).await.unwrap() else { panic!("no file") };
        let file = FileDescriptorProto::decode(&*told.file_descriptor_proto[0]).unwrap();
        assert!(symbol.starts_with(file.package()), "{symbol} in {}", file.name());
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
