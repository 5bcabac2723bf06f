//! The contract as the program itself can read it: which fields a message has, which operations there are.
//!
//! Compiled in from the same files as the messages. Used where names matter: errors, JSON, reflection.

use std::sync::LazyLock;

use api::pb::DESCRIPTORS;
use prost_reflect::{DescriptorPool, FieldDescriptor, Kind, MessageDescriptor, MethodDescriptor};

/// Messages inside messages that are searched for a field: what a request says about a thing and its parts.
const DEPTH_MAX: usize = 3;

static POOL: LazyLock<DescriptorPool> =
    LazyLock::new(|| DescriptorPool::decode(DESCRIPTORS).expect("compiled in, and read by a test"));

/// Every message and service.
pub fn pool() -> &'static DescriptorPool {
    &POOL
}

/// The operation at "/platform.app.v1.AppService/GetRobot".
pub fn method(path: &str) -> Option<MethodDescriptor> {
    let (service, name) = path.strip_prefix('/')?.split_once('/')?;
    POOL.get_service_by_name(service)?.methods().find(|method| method.name() == name)
}

/// Where a message of that full name has the first of these fields that it has at all: "authorization.resource_type".
/// A field may be a path of its own, of which the first step is searched.
pub fn path_of(message: &str, fields: &[&str]) -> Option<String> {
    let message = POOL.get_message_by_name(message)?;
    fields.iter().find_map(|field| path_in(&message, field, 0)).or_else(|| {
        // Nothing of that name at the top: the first below it.
        (1..DEPTH_MAX).find_map(|depth| fields.iter().find_map(|field| path_in(&message, field, depth)))
    })
}

/// At exactly that depth.
fn path_in(message: &MessageDescriptor, path: &str, depth: usize) -> Option<String> {
    if depth == 0 {
        let first = path.split('.').next().unwrap_or(path);
        return message.get_field_by_name(first).map(|_| path.to_owned());
    }
    message.fields().find_map(|field| {
        let inner = ours(&field)?;
        path_in(&inner, path, depth - 1).map(|rest| format!("{}.{rest}", field.name()))
    })
}

/// The message in a field, unless it is one of those that everybody knows, such as a Struct.
fn ours(field: &FieldDescriptor) -> Option<MessageDescriptor> {
    match field.kind() {
        Kind::Message(message) if !field.is_map() && !message.full_name().starts_with("google.") => Some(message),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operations::OPERATIONS;

    #[test]
    fn every_operation_of_the_table_is_in_the_contract() {
        for operation in OPERATIONS {
            let method = method(operation.path).unwrap_or_else(|| panic!("{} is not in the contract", operation.path));
            assert_eq!(operation.streams, method.is_server_streaming(), "{}", operation.path);
        }
        assert!(method("/platform.app.v1.AppService/NoSuch").is_none());
        assert!(method("nonsense").is_none());
    }
}
