//! What operations there are, for tools such as grpcurl: server reflection, version 1 and the alpha that older tools speak.
//!
//! Behind the door like everything else: the contract is no secret, but an open stream costs memory, and the list of
//! doors that anybody may hold open is short on purpose. Both package prefixes are described, as both are answered.

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, OnceLock},
};

use http::{Request, Response};
use prost::Message as _;
use prost_types::{DescriptorProto, FileDescriptorProto, FileDescriptorSet};
use tonic::{Status, body::Body, codegen::Service};
use tonic_reflection::server::Builder;

use super::serve::SERVICES;
use crate::limits::LOGIN_BYTES_MAX;

/// The service's name.
pub(super) const V1: &str = "grpc.reflection.v1.ServerReflection";
/// The same, before it was one.
pub(super) const V1_ALPHA: &str = "grpc.reflection.v1alpha.ServerReflection";

type Answer = Pin<Box<dyn Future<Output = Response<Body>> + Send>>;
type Serve = Arc<dyn Fn(Request<Body>) -> Answer + Send + Sync>;

/// Both versions, made when somebody asks for the first time: some megabytes that most servers never need. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Reflection {
    made: Arc<OnceLock<Versions>>,
}

struct Versions {
    v1: Option<Serve>,
    v1_alpha: Option<Serve>,
}

impl Versions {
    fn make() -> Self {
        let theirs = under_the_other_prefix(api::pb::DESCRIPTORS);
        let builder = || {
            let mut builder = Builder::configure()
                .register_encoded_file_descriptor_set(api::pb::DESCRIPTORS)
                .register_file_descriptor_set(theirs.clone())
                .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
                // So that the details of an error can be read.
                .register_encoded_file_descriptor_set(tonic_types::pb::FILE_DESCRIPTOR_SET);
            for service in SERVICES.iter().filter(|name| !name.is_empty()) {
                builder = builder.with_service_name(*service);
            }
            ["grpc.health.v1.Health", V1, V1_ALPHA]
                .iter()
                .fold(builder, |builder, name| builder.with_service_name(*name))
        };
        let v1 = builder().build_v1().map(|service| serve(service.max_decoding_message_size(LOGIN_BYTES_MAX)));
        let alpha = builder().build_v1alpha().map(|service| serve(service.max_decoding_message_size(LOGIN_BYTES_MAX)));
        Self { v1: v1.ok(), v1_alpha: alpha.ok() }
    }
}

impl Reflection {
    pub(super) async fn call(&self, request: Request<Body>) -> Response<Body> {
        let made = self.made.get_or_init(Versions::make);
        let serve = if request.uri().path().contains(".v1alpha.") { &made.v1_alpha } else { &made.v1 };
        match serve {
            Some(serve) => serve(request).await,
            None => Status::unimplemented("the contract cannot be described").into_http(),
        }
    }
}

/// Our own files once more, as those who call the other package prefix know them.
fn under_the_other_prefix(descriptors: &[u8]) -> FileDescriptorSet {
    let mut set = FileDescriptorSet::decode(descriptors).expect("the contract that was built in can be read");
    set.file.retain(|file| file.package().starts_with("platform."));
    set.file.iter_mut().for_each(rename_file);
    set
}

fn rename_file(file: &mut FileDescriptorProto) {
    rename(&mut file.package, "platform.", "viam.");
    rename(&mut file.name, "platform/", "viam/");
    for one in &mut file.dependency {
        if let Some(rest) = one.strip_prefix("platform/") {
            *one = format!("viam/{rest}");
        }
    }
    file.message_type.iter_mut().for_each(rename_message);
    for method in file.service.iter_mut().flat_map(|service| &mut service.method) {
        rename(&mut method.input_type, ".platform.", ".viam.");
        rename(&mut method.output_type, ".platform.", ".viam.");
    }
}

fn rename_message(message: &mut DescriptorProto) {
    message.field.iter_mut().for_each(|field| rename(&mut field.type_name, ".platform.", ".viam."));
    message.nested_type.iter_mut().for_each(rename_message);
}

fn rename(name: &mut Option<String>, ours: &str, theirs: &str) {
    if let Some(rest) = name.as_deref().and_then(|name| name.strip_prefix(ours)) {
        *name = Some(format!("{theirs}{rest}"));
    }
}

fn serve<S>(service: S) -> Serve
where
    S: Service<Request<Body>, Response = Response<Body>, Error = std::convert::Infallible>
        + Clone
        + Send
        + Sync
        + 'static,
    S::Future: Send + 'static,
{
    Arc::new(move |request| {
        let mut service = service.clone();
        Box::pin(async move {
            match service.call(request).await {
                Ok(answer) => answer,
                Err(never) => match never {},
            }
        })
    })
}
