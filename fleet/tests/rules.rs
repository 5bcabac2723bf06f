//! Rules that are easy to forget, one by one: docs/rules.md lists all rules, and where each is tested.

mod world;

#[path = "rules/audit.rs"]
mod audit;
#[path = "rules/check_ins.rs"]
mod check_ins;
#[path = "rules/fragments.rs"]
mod fragments;
#[path = "rules/names.rs"]
mod names;
#[path = "rules/organizations.rs"]
mod organizations;
#[path = "rules/parts.rs"]
mod parts;
#[path = "rules/places.rs"]
mod places;
#[path = "rules/rows.rs"]
mod rows;
#[path = "rules/times.rs"]
mod times;
#[path = "rules/told.rs"]
mod told;
