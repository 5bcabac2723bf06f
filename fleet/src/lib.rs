//! The fleet management server: *who, may they, do it, answer*, one file per resource.
//!
//! `edge` turns what arrives on the one port into a [`authn::Caller`] and a message; `operations` is the table of every
//! operation and its function; `services` holds those functions; `authz` answers "may they" with a value that `store`
//! demands. `wiring` puts it together, for `main` and for tests alike.

pub mod args;
pub mod artifacts;
pub mod audit_export;
pub mod authn;
pub mod authorities;
pub mod authz;
pub mod backup;
pub mod changes;
pub mod clock;
pub mod compose;
pub mod context;
pub mod contract;
pub mod database;
pub mod documents;
pub mod downloads;
pub mod edge;
pub mod encoded_struct;
pub mod file_error;
pub mod hex;
pub mod history;
pub mod ids;
pub mod init;
pub mod install;
pub mod invitation;
pub mod limits;
pub mod logs;
pub mod mail;
pub mod memory;
pub mod operations;
mod page;
pub mod people;
pub mod presence;
mod range;
pub mod refusal;
pub mod releases;
pub mod services;
pub mod sign_in;
pub mod skew;
pub mod store;
pub mod turns;
pub mod upgrade;
pub mod upload;
pub mod wiring;
pub mod written;
