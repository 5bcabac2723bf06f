//! Declares the one echo service by hand, with messages that need no generator.

use tonic_build::manual::{Builder, Method, Service};

fn main() {
    let unary = Method::builder()
        .name("unary")
        .route_name("Unary")
        .input_type("crate::Msg")
        .output_type("crate::Msg")
        .codec_path("tonic_prost::ProstCodec")
        .build();
    let echo = Service::builder().name("Echo").package("limits.v1").method(unary).build();
    Builder::new().compile(&[echo]);
}
