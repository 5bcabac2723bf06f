//! What the operations do, one file per resource. Each function reads as *who, may they, do it, answer*.

pub mod admin;
pub mod configuration;
pub mod device;
pub mod encoded_part;
pub mod fragments;
pub mod input;
pub mod keys;
pub mod location_access;
pub mod locations;
pub mod login;
pub mod machine_fragments;
pub mod machines;
pub mod members;
pub mod metadata;
pub mod organizations;
pub mod part_logs;
pub mod part_secrets;
pub mod parts;
mod robot_config;
pub mod roles;
pub mod summaries;
