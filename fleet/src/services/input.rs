//! What callers send, read once: names, pages.

use crate::{
    authn::digest_of,
    limits::{NAME_CHARS_MAX, PAGE_DEFAULT, PAGE_MAX},
    refusal::Refusal,
};

/// Of an e-mail address: what mail servers pass on.
const EMAIL_BYTES_MAX: usize = 254;

/// A name a person gave: trimmed, 1 to 200 printable characters.
pub fn name(field: &'static str, given: &str) -> Result<String, Refusal> {
    let name = given.trim();
    let length = name.chars().count();
    if !(1..=NAME_CHARS_MAX).contains(&length) {
        let why = format_args!("a name has 1 to {NAME_CHARS_MAX} characters, this has {length}");
        return Err(Refusal::unfit(field, name, why));
    }
    printable(field, name)?;
    Ok(name.to_owned())
}

/// An e-mail address as it is kept: trimmed, in lowercase. Whether it exists only a mail can find out.
pub fn email(field: &'static str, given: &str) -> Result<String, Refusal> {
    let email = given.trim().to_lowercase();
    let odd = |letter: char| letter.is_whitespace() || letter.is_control() || "<>()[]\\,;:\"".contains(letter);
    let fits = email.len() <= EMAIL_BYTES_MAX
        && !email.contains(odd)
        && email.split_once('@').is_some_and(|(who, host)| {
            !who.is_empty()
                && !host.contains('@')
                && host.contains('.')
                && host.split('.').all(|label| !label.is_empty() && !label.starts_with('-') && !label.ends_with('-'))
        });
    match fits {
        true => Ok(email),
        false => Err(Refusal::unfit(field, given, "give an e-mail address such as somebody@example.org")),
    }
}

/// Text without control characters; may be empty.
pub fn printable(field: &'static str, text: &str) -> Result<(), Refusal> {
    match text.chars().any(char::is_control) {
        true => Err(Refusal::unfit(field, text, "take the control characters out")),
        false => Ok(()),
    }
}

/// Text of several lines, for people.
pub fn text(field: &'static str, text: &str) -> Result<(), Refusal> {
    match text.chars().any(|letter| letter.is_control() && !matches!(letter, '\n' | '\r' | '\t')) {
        true => Err(Refusal::unfit(field, text, "take the control characters out")),
        false => Ok(()),
    }
}

/// `None` for what several clients send when nothing was given.
pub fn given(text: Option<&str>) -> Option<&str> {
    text.filter(|text| !text.is_empty())
}

/// How many entries a page has; absent or 0 is our choice.
pub fn page_size(field: &'static str, asked: i64) -> Result<usize, Refusal> {
    match usize::try_from(asked) {
        Ok(0) => Ok(PAGE_DEFAULT),
        Ok(size) if size <= PAGE_MAX => Ok(size),
        _ => Err(Refusal::unfit(field, asked, format_args!("give 0 (for {PAGE_DEFAULT}) to {PAGE_MAX}"))),
    }
}

/// Where the next page begins. Bound to what was asked for: elsewhere it is refused.
pub fn page_token(scope: &[&str], place: i64) -> String {
    format!("{place:x}.{}", scope_mark(scope))
}

/// The place in a page token; `None` for the first page.
pub fn page_place(scope: &[&str], token: &str) -> Result<Option<i64>, Refusal> {
    if token.is_empty() {
        return Ok(None);
    }
    let place = token.split_once('.').filter(|(_, mark)| *mark == scope_mark(scope));
    let place = place.and_then(|(place, _)| i64::from_str_radix(place, 16).ok());
    place.map(Some).ok_or_else(|| Refusal::foreign_token(token))
}

fn scope_mark(scope: &[&str]) -> String {
    // The separator cannot be in ids and numbers; 64 bits keep an honest caller from mistakes, nothing else.
    digest_of(&scope.join("\n")).chars().take(16).collect()
}

/// The part of a host name that a name becomes: letters, digits and single dashes.
pub fn dns_label(name: &str) -> String {
    let mut label = String::new();
    for letter in name.chars() {
        if letter.is_ascii_alphanumeric() {
            label.push(letter.to_ascii_lowercase());
        } else if !label.is_empty() && !label.ends_with('-') {
            label.push('-');
        }
    }
    // Room for "-99" behind it; a label has at most 63 bytes, and these are ASCII.
    label.truncate(56);
    let label = label.trim_end_matches('-');
    if label.is_empty() { "x".to_owned() } else { label.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        assert_eq!(name("name", "  Werk Süd ").unwrap(), "Werk Süd");
        assert_eq!(name("name", &"ü".repeat(200)).unwrap().chars().count(), 200);
        for wrong in ["", "   ", "a\nb", "a\0b", &"x".repeat(201)] {
            assert!(name("name", wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn emails() {
        for (given, kept) in [(" Ann@Example.ORG ", "ann@example.org"), ("a.b+c@x-y.example", "a.b+c@x-y.example")] {
            assert_eq!(email("email", given).unwrap(), kept);
        }
        for wrong in
            ["", "ann", "@example.org", "ann@", "ann@host", "a@b@c.d", "a b@c.d", "a@c..d", "a@-c.d", "<a@c.d>"]
        {
            assert!(email("email", wrong).is_err(), "{wrong:?}");
        }
        assert!(email("email", &format!("{}@example.org", "x".repeat(250))).is_err());
    }

    #[test]
    fn labels() {
        let long = "a".repeat(70);
        let table = [
            ("Robo Arm 1", "robo-arm-1"),
            ("  --x--  ", "x"),
            ("Süd/Nord", "s-d-nord"),
            ("日本", "x"),
            (&long, &long[..56]),
        ];
        for (name, label) in table {
            assert_eq!(dns_label(name), label, "{name}");
        }
    }
}
