//! Every test of the server in the files beside this one, once more, on PostgreSQL.

#![allow(clippy::duplicate_mod, reason = "each of these files has its own copy of the world")]

#[path = "backup.rs"]
mod backup;
#[path = "clients.rs"]
mod clients;
#[path = "deleting.rs"]
mod deleting;
#[path = "devices.rs"]
mod devices;
#[path = "edge.rs"]
mod edge;
#[path = "large_files.rs"]
mod large_files;
#[path = "on_postgres/loss.rs"]
mod loss;
#[path = "mail.rs"]
mod mail;
#[path = "main_job.rs"]
mod main_job;
#[path = "people.rs"]
mod people;
#[path = "port.rs"]
mod port;
#[path = "program.rs"]
mod program;
#[path = "random_grants.rs"]
mod random_grants;
#[path = "reach.rs"]
mod reach;
#[path = "registry.rs"]
mod registry;
#[path = "rules.rs"]
mod rules;
#[path = "on_postgres/several.rs"]
mod several;
#[path = "sign_in.rs"]
mod sign_in;
#[path = "on_postgres/together.rs"]
mod together;
#[path = "unauthorized.rs"]
mod unauthorized;
#[path = "under_load.rs"]
mod under_load;
