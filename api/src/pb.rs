//! The generated messages, one module per protobuf package.

#![allow(missing_docs, clippy::all, reason = "generated: the documentation is in the .proto files")]

include!(concat!(env!("OUT_DIR"), "/contract.rs"));

/// Every file of the contract as a serialized `FileDescriptorSet`: for reflection, for JSON, and for the server's generator.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
