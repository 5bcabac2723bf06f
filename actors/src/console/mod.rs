//! Answers who asks at the device: the same status that the fleet server is told, and how that server can be reached;
//! takes the few wishes of whoever has this device in his hands.
//!
//! Owns the few words of the conversation. Knows nothing by itself, waits for nobody, and answers whatever the network,
//! the updates and the machine server are doing. `actor` waits; [`answer`] decides. Whoever can ask has the agent's own
//! rights ([`board::console`]), so that a password may be told.

pub mod actor;

use std::rc::Rc;

use api::{
    Secret,
    pb::platform::fleet::v1::{CloudStatus, LocalStatus, cloud_status},
};
use prost::Message as _;

use crate::cloud::{Contact, Reach, status::timestamp};

/// The question for the status. The number rises when a later answer could not be read by who asks today.
pub const ASK_STATUS: &str = "status 1";
/// First line of the answer: this, and the number of bytes that follow; they are an encoded [`LocalStatus`].
pub const STATUS: &str = "status ";
/// The wish that the doors be opened: people are invited to set this device up.
pub const ASK_PROVISION: &str = "provision 1";
/// The wish that this device forget whose it is.
pub const ASK_DEPROVISION: &str = "deprovision 1";
/// The answer to a wish that was heard.
pub const HEARD: &str = "ok\n";
/// The question for name and password of the hotspot.
pub const ASK_HOTSPOT: &str = "hotspot 1";
/// First line of its answer; name and password are the next two.
pub const HOTSPOT: &str = "hotspot";
/// Begins the only line of an answer to anything else.
pub const REFUSED: &str = "error ";

/// What can be answered and done.
pub(crate) trait Desk {
    /// How the device is.
    fn status(&self) -> LocalStatus;
    /// Opens the doors; `false` where there are none.
    fn provision(&self) -> bool;
    /// Forgets whose the device is.
    fn deprovision(&self);
    /// Name and password of the hotspot; `None` before the configuration is known.
    fn hotspot(&self) -> Option<(String, Secret)>;
}

/// The answer to a question.
pub(crate) fn answer(question: &str, desk: &impl Desk) -> Vec<u8> {
    let refused = |why: &str| format!("{REFUSED}{why}\n").into_bytes();
    match question {
        ASK_STATUS => {
            let status = desk.status();
            let mut answer = format!("{STATUS}{}\n", status.encoded_len()).into_bytes();
            answer.reserve_exact(status.encoded_len());
            // Room was made, and a vector grows anyway.
            let _ = status.encode(&mut answer);
            answer
        }
        ASK_PROVISION if desk.provision() => HEARD.into(),
        ASK_PROVISION => refused("this device has nothing to invite people with"),
        ASK_DEPROVISION => {
            desk.deprovision();
            HEARD.into()
        }
        ASK_HOTSPOT => match desk.hotspot() {
            Some((name, password)) => format!("{HOTSPOT}\n{name}\n{}\n", password.expose()).into_bytes(),
            None => refused("the configuration has not been read yet"),
        },
        _ => refused(&format!("the question for the status is \"{ASK_STATUS}\"")),
    }
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
    use std::cell::Cell;

    use super::*;

    struct Told {
        provisions: bool,
        wishes: Cell<[u32; 2]>,
    }

    impl Desk for Told {
        fn status(&self) -> LocalStatus {
            LocalStatus { cloud: Some(cloud(None, Some("https://f".into()), None)), ..Default::default() }
        }

        fn provision(&self) -> bool {
            let [asked, wiped] = self.wishes.get();
            self.wishes.set([asked + 1, wiped]);
            self.provisions
        }

        fn deprovision(&self) {
            let [asked, wiped] = self.wishes.get();
            self.wishes.set([asked, wiped + 1]);
        }

        fn hotspot(&self) -> Option<(String, Secret)> {
            Some(("setup-pump".into(), Secret::from("opensesame")))
        }
    }

    #[test]
    fn only_questions_are_answered_and_only_wishes_are_done() {
        let desk = Told { provisions: true, wishes: Cell::default() };
        for garbage in
            ["", "status", "status 2", "STATUS 1", "GET / HTTP/1.1", "\u{fffd}\u{fffd}", "provision", "deprovision 11"]
        {
            let refused = answer(garbage, &desk);
            assert_eq!(refused, b"error the question for the status is \"status 1\"\n", "{garbage}");
        }
        assert_eq!(desk.wishes.get(), [0, 0], "nothing was done");
        let given = answer("status 1", &desk);
        let (head, body) = given.split_at(given.iter().position(|&byte| byte == b'\n').unwrap() + 1);
        assert_eq!(head, format!("status {}\n", body.len()).as_bytes());
        assert_eq!(LocalStatus::decode(body), Ok(desk.status()));
        assert_eq!(answer("provision 1", &desk), b"ok\n");
        assert_eq!(answer("deprovision 1", &desk), b"ok\n");
        assert_eq!(answer("hotspot 1", &desk), b"hotspot\nsetup-pump\nopensesame\n");
        assert_eq!(desk.wishes.get(), [1, 1]);
        let desk = Told { provisions: false, ..desk };
        assert!(answer("provision 1", &desk).starts_with(b"error "));
    }
}
