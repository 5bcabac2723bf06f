//! What an invitation's mail says: plain text, no pictures, nothing that tells whether it was read.

use lettre::{
    Message,
    message::{Mailbox, header::ContentType},
};

use crate::{clock::Millis, people, store::mails::Due};

/// Why there can be no such mail; trying again would not help.
#[derive(Debug, thiserror::Error)]
#[error("no mail can be written to that address")]
pub(super) struct Unwritable;

/// `address` is what the link begins with, `secret` what it ends with.
pub(super) fn invitation(due: &Due, from: &Mailbox, address: &str, secret: &str) -> Result<Message, Unwritable> {
    let to = due.email.parse().map_err(|_| Unwritable)?;
    let domain = from.email.domain();
    let Due { organization_name, id, .. } = due;
    Message::builder()
        // The same for each attempt: a mailbox that already has it can tell.
        .message_id(Some(format!("<{id}@{domain}>")))
        .from(from.clone())
        .to(Mailbox::new(None, to))
        .subject(format!("Invitation to {organization_name}"))
        .header(ContentType::TEXT_PLAIN)
        .body(format!(
            "You are invited to the organization {organization_name} on the fleet server {address}\r\n\
             \r\n\
             To accept, open this page and press the button there:\r\n\
             \r\n\
             {address}{path}{secret}\r\n\
             \r\n\
             The link works once, until {until}. Whoever has it can accept: do not pass it on.\r\n\
             If you did not expect this mail, nothing happens when you do nothing.\r\n",
            path = people::PATH,
            until = day(due.expires_at),
        ))
        .map_err(|_| Unwritable)
}

/// "2026-12-04", in UTC.
fn day(at: Millis) -> String {
    // Howard Hinnant's civil_from_days.
    let days = at.div_euclid(86_400_000) + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days() {
        let table = [(0, "1970-01-01"), (951_782_400_000, "2000-02-29"), (1_796_342_399_999, "2026-12-03")];
        for (at, wanted) in table {
            assert_eq!(day(at), wanted);
        }
    }

    #[test]
    fn names_and_addresses_make_no_headers() {
        let due = |name: &str, email: &str| Due {
            id: "0".into(),
            organization: "org".into(),
            organization_name: name.into(),
            email: email.into(),
            sealed: String::new(),
            digest: String::new(),
            expires_at: 0,
            queued_at: 0,
            attempt: 1,
        };
        let from: Mailbox = "Fleet <fleet@example.org>".parse().unwrap();
        let letter = invitation(&due("Acme\r\nBcc: x@example.org", "ann@example.org"), &from, "https://f", "s3cret");
        let text = String::from_utf8(letter.unwrap().formatted()).unwrap();
        let (headers, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(!headers.lines().any(|line| line.starts_with("Bcc")), "{headers}");
        assert!(headers.contains("Message-ID: <0@example.org>"), "{headers}");
        assert!(body.contains("https://f/invite/s3cret"), "{body}");
        assert!(invitation(&due("Acme", "ann@example.org>\r\nRCPT TO:<x@y.z"), &from, "https://f", "s").is_err());
    }
}
