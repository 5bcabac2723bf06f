//! Answers who asks at the device: the same status that the fleet server is told, and how that server can be reached.
//!
//! Owns the few words of the conversation. Knows nothing by itself, waits for nobody, and answers whatever the network,
//! the updates and the machine server are doing. `actor` waits; [`answer`] decides.

pub mod actor;

use std::rc::Rc;

use api::pb::platform::fleet::v1::{CloudStatus, LocalStatus, cloud_status};
use prost::Message as _;

use crate::cloud::{Contact, Reach, status::timestamp};

/// The question for the status. The number rises when a later answer could not be read by who asks today.
pub const ASK_STATUS: &str = "status 1";
/// First line of the answer: this, and the number of bytes that follow; they are an encoded [`LocalStatus`].
pub const STATUS: &str = "status ";
/// Begins the only line of an answer to anything else.
pub const REFUSED: &str = "error ";

/// The answer to a question. `status` is asked for only if it is wanted.
pub(crate) fn answer(question: &str, status: impl FnOnce() -> LocalStatus) -> Vec<u8> {
    if question != ASK_STATUS {
        return format!("{REFUSED}the only question is \"{ASK_STATUS}\"\n").into_bytes();
    }
    let status = status();
    let mut answer = format!("{STATUS}{}\n", status.encoded_len()).into_bytes();
    answer.reserve_exact(status.encoded_len());
    // Room was made, and a vector grows anyway.
    let _ = status.encode(&mut answer);
    answer
}

/// The fleet server, as the device sees it.
pub(crate) fn cloud(contact: Option<Contact>, address: Option<String>, part_id: Option<String>) -> CloudStatus {
    use cloud_status::Reach as Wire;
    let contact = contact.unwrap_or_default();
    let reach = match contact.reach {
        Reach::Unknown => Wire::Unknown,
        Reach::Reached => Wire::Reached,
        Reach::Unreachable => Wire::Unreachable,
        Reach::CredentialsRefused => Wire::CredentialsRefused,
        Reach::NoIdentity => Wire::NoIdentity,
    };
    CloudStatus {
        reach: reach.into(),
        since: contact.since.map(timestamp),
        why: contact.why.as_deref().unwrap_or_default().to_owned(),
        address: address.unwrap_or_default(),
        part_id: part_id.unwrap_or_default(),
    }
}

/// What the configuration file says now about who this device is: address of the fleet server, part.
pub type Identity = Rc<dyn Fn() -> (Option<String>, Option<String>)>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_one_question_is_answered() {
        let status = || LocalStatus { cloud: Some(cloud(None, Some("https://f".into()), None)), ..Default::default() };
        for garbage in ["", "status", "status 2", "STATUS 1", "GET / HTTP/1.1", "\u{fffd}\u{fffd}"] {
            let refused = answer(garbage, || panic!("nobody wants it"));
            assert_eq!(refused, b"error the only question is \"status 1\"\n", "{garbage}");
        }
        let given = answer("status 1", status);
        let (head, body) = given.split_at(given.iter().position(|&byte| byte == b'\n').unwrap() + 1);
        assert_eq!(head, format!("status {}\n", body.len()).as_bytes());
        assert_eq!(LocalStatus::decode(body), Ok(status()));
    }
}
