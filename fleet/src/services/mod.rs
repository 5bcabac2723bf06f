//! What the operations do, one file per resource. Each function reads as *who, may they, do it, answer*.

pub mod input;
pub mod login;
pub mod organizations;
