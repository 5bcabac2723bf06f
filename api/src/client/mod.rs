//! Blocking gRPC-Web client.
