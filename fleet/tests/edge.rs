//! What surrounds the operations: how they refuse, other ways to call them, limits, certificates.

mod world;

#[path = "edge/balancer.rs"]
mod balancer;
#[path = "edge/history.rs"]
mod history;
#[path = "edge/json.rs"]
mod json;
#[path = "edge/limits.rs"]
mod limits;
#[path = "edge/reflection.rs"]
mod reflection;
#[path = "edge/refusals.rs"]
mod refusals;
#[path = "edge/renewal.rs"]
mod renewal;
#[path = "unauthorized/requests.rs"]
mod requests;
#[path = "edge/rest.rs"]
mod rest;
#[path = "edge/slow.rs"]
mod slow;
#[path = "edge/strangers.rs"]
mod strangers;
#[path = "edge/twins.rs"]
mod twins;
