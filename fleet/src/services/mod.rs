//! What the operations do, one file per resource. Each function reads as *who, may they, do it, answer*.

pub mod input;
pub mod configuration;
pub mod device;
pub mod login;
pub mod organizations;
pub mod part_logs;
mod robot_config;
