//! Generates the service traits that the operations table fills in. The messages come from the `api` crate.

use std::{env, path::PathBuf};

/// Only services with at least one operation in the table; every other path is answered by the edge.
const FILES: [&str; 6] = [
    "platform/app/agent/v1/agent.proto",
    "platform/app/packages/v1/packages.proto",
    "platform/app/v1/app.proto",
    "platform/app/v1/robot.proto",
    "platform/fleet/v1/fleet.proto",
    "proto/rpc/v1/auth.proto",
];

/// Answers that are bytes already: what every device asks for every few seconds is encoded once, what people's programs ask
/// for is encoded from the stored text, and a line of a log once for all who follow it.
const WRITTEN: [(&str, &str); 4] = [
    (".platform.app.agent.v1.DeviceAgentConfigResponse", "platform::app::agent::v1::DeviceAgentConfigResponse"),
    (".platform.app.v1.GetRobotPartResponse", "platform::app::v1::GetRobotPartResponse"),
    (".platform.app.v1.UpdateRobotPartResponse", "platform::app::v1::UpdateRobotPartResponse"),
    (".platform.app.v1.TailRobotPartLogsResponse", "platform::app::v1::TailRobotPartLogsResponse"),
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let contract = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("../api/proto");
    println!("cargo:rerun-if-changed={}", contract.display());
    println!("cargo:rerun-if-changed=migrations");
    let descriptors = protox::compile(FILES, [contract])?;
    let written = WRITTEN.iter().fold(tonic_prost_build::configure(), |configured, (message, path)| {
        configured.extern_path(*message, format!("crate::written::Written<::api::pb::{path}>"))
    });
    written
        .build_client(false)
        .build_server(true)
        .build_transport(false)
        .codec_path("crate::edge::Codec")
        // An operation that is not in the table answers UNIMPLEMENTED.
        .generate_default_stubs(true)
        .extern_path(".platform", "::api::pb::platform")
        .extern_path(".proto", "::api::pb::proto")
        .extern_path(".google.rpc", "::api::pb::google::rpc")
        .include_file("services.rs")
        .compile_fds(descriptors)?;
    Ok(())
}
