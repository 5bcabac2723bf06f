//! Which version of a program is wanted, as a person writes it.
//!
//! `stable`, `dev`, an exact semantic version, or a URL of a binary. A URL is checked for its shape only; whether its
//! bytes are trusted is decided where they are fetched.

use std::fmt;

/// Longest URL.
pub(super) const URL_BYTES_MAX: usize = 2048;

/// What of a program is wanted. Its `Debug` shows no secret; [`fmt::Display`] is the setting as it was written.
#[derive(Clone, PartialEq, Eq)]
pub enum VersionSetting {
    /// Whatever a signed channel document names.
    Channel(Channel),
    /// This release, however old.
    Exact(semver::Version),
    /// The binary at this place: `http`, `https`, or `file`.
    Url(Box<str>),
}

/// A line of releases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    /// Released versions.
    Stable,
    /// Versions in development.
    Dev,
}

impl Channel {
    /// As it is written in settings and in the channel document's name.
    pub fn name(self) -> &'static str {
        match self {
            Channel::Stable => "stable",
            Channel::Dev => "dev",
        }
    }
}

impl VersionSetting {
    /// Reads a setting; `None` if it is none of the allowed forms.
    pub fn parse(text: &str) -> Option<VersionSetting> {
        match text {
            "stable" => Some(VersionSetting::Channel(Channel::Stable)),
            "dev" => Some(VersionSetting::Channel(Channel::Dev)),
            _ if is_web_url(text) || local_path(text).is_some() => Some(VersionSetting::Url(text.into())),
            _ if text.len() <= URL_BYTES_MAX => semver::Version::parse(text).ok().map(VersionSetting::Exact),
            _ => None,
        }
    }

    /// The local path of a `file` URL.
    pub fn local_path(&self) -> Option<String> {
        match self {
            VersionSetting::Url(url) => local_path(url),
            VersionSetting::Channel(_) | VersionSetting::Exact(_) => None,
        }
    }
}

impl fmt::Debug for VersionSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&without_secrets(&self.to_string()))
    }
}

/// A version setting as it may be shown: in a URL a user name, a password or a query may be secret.
#[must_use]
pub fn without_secrets(setting: &str) -> String {
    let web = setting.split_once("://").filter(|(scheme, _)| !scheme.eq_ignore_ascii_case("file"));
    let Some((scheme, rest)) = web else { return setting.to_owned() };
    let (place, query) = match rest.split_once(['?', '#']) {
        Some((place, _)) => (place, "?…"),
        None => (rest, ""),
    };
    let (host, path) = place.split_once('/').map_or((place, String::new()), |(host, path)| (host, format!("/{path}")));
    let host = host.rsplit_once('@').map_or_else(|| host.to_owned(), |(_, host)| format!("…@{host}"));
    format!("{scheme}://{host}{path}{query}")
}

/// As it was written.
impl fmt::Display for VersionSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            VersionSetting::Channel(channel) => f.write_str(channel.name()),
            VersionSetting::Exact(version) => version.fmt(f),
            VersionSetting::Url(url) => f.write_str(url),
        }
    }
}

/// `http://host…` or `https://host…` without blanks and control characters.
pub(super) fn is_web_url(text: &str) -> bool {
    let rest = strip_scheme(text, "http://").or_else(|| strip_scheme(text, "https://"));
    let host = rest.and_then(|rest| rest.split(['/', '?', '#']).next()).unwrap_or_default();
    let host = host.rsplit('@').next().unwrap_or_default();
    is_plain(text) && !host.is_empty() && !host.starts_with(':')
}

/// The path that a `file` URL names on this machine: `file:///opt/x`, `file://localhost/opt/x`, `file:///C:/x` and, as
/// people write it, `file://C:\x`. `%20` and the like are decoded. Another host is refused.
pub(super) fn local_path(url: &str) -> Option<String> {
    if url.len() > URL_BYTES_MAX || url.chars().any(char::is_control) {
        return None;
    }
    let rest = strip_scheme(url, "file://")?;
    let path = percent_decoded(rest.strip_prefix("localhost").filter(|rest| rest.starts_with('/')).unwrap_or(rest))?;
    if path.contains('\0') {
        return None;
    }
    let windows = path.strip_prefix('/').filter(|inner| has_drive(inner)).map(str::to_owned);
    let unix = || (path.starts_with('/') && path.len() > 1 && !path.starts_with("//")).then(|| path.clone());
    windows.or_else(|| has_drive(&path).then(|| path.clone())).or_else(unix)
}

/// `C:/x` or `C:\x`.
fn has_drive(path: &str) -> bool {
    matches!(path.as_bytes(), [drive, b':', b'/' | b'\\', _, ..] if drive.is_ascii_alphabetic())
}

fn strip_scheme<'a>(text: &'a str, scheme: &str) -> Option<&'a str> {
    let (head, rest) = text.split_at_checked(scheme.len())?;
    head.eq_ignore_ascii_case(scheme).then_some(rest)
}

fn is_plain(text: &str) -> bool {
    text.len() <= URL_BYTES_MAX && !text.chars().any(|character| character.is_control() || character.is_whitespace())
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let high = char::from(rest.next()?).to_digit(16)?;
                let low = char::from(rest.next()?).to_digit(16)?;
                u8::try_from(high << 4 | low).ok()?
            }
            plain => plain,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_as_they_may_be_shown() {
        for (setting, shown) in [
            ("stable", "stable"),
            ("1.0.0", "1.0.0"),
            ("http://10.0.0.1:8000/a/server", "http://10.0.0.1:8000/a/server"),
            ("https://me:hunter2@host/a@b", "https://…@host/a@b"),
            ("https://me@host", "https://…@host"),
            ("https://host/a?token=hunter2", "https://host/a?…"),
            ("https://host?token=hunter2#x", "https://host?…"),
            ("file:///opt/what?@server", "file:///opt/what?@server"),
        ] {
            assert_eq!(without_secrets(setting), shown);
            let debug = format!("{:?}", VersionSetting::parse(setting).expect("a setting"));
            assert_eq!(debug, shown);
        }
    }

    #[test]
    fn a_version_is_written_in_five_ways() {
        let url = |text: &str| Some(VersionSetting::Url(text.into()));
        let table = [
            ("stable", Some(VersionSetting::Channel(Channel::Stable))),
            ("dev", Some(VersionSetting::Channel(Channel::Dev))),
            ("1.0.0", Some(VersionSetting::Exact(semver::Version::new(1, 0, 0)))),
            ("1.2.0-dev.3+abc", semver::Version::parse("1.2.0-dev.3+abc").ok().map(VersionSetting::Exact)),
            ("http://10.0.0.1:8000/server", url("http://10.0.0.1:8000/server")),
            ("https://example.com/server?x=1", url("https://example.com/server?x=1")),
            ("HTTP://example.com", url("HTTP://example.com")),
            ("file:///opt/my%20server", url("file:///opt/my%20server")),
            ("file:///C:/server.exe", url("file:///C:/server.exe")),
            (r"file://C:\Program Files\server.exe", url(r"file://C:\Program Files\server.exe")),
            ("", None),
            ("Stable", None),
            ("latest", None),
            ("1.0", None),
            ("v1.0.0", None),
            ("1.0.0 ", None),
            ("http://", None),
            ("http:///path", None),
            ("http://:80/", None),
            ("http://a b", None),
            ("ftp://example.com/x", None),
            ("file://", None),
            ("file:///", None),
            ("file://server/share", None),
            ("file:///a\nb", None),
            ("file:///a%00b", None),
            ("file:///a%zz", None),
        ];
        for (text, expected) in table {
            assert_eq!(VersionSetting::parse(text), expected, "{text:?}");
            if let Some(version) = expected {
                assert_eq!(version.to_string(), text);
            }
        }
        assert_eq!(VersionSetting::parse(&format!("https://example.com/{}", "x".repeat(URL_BYTES_MAX))), None);
        assert_eq!(VersionSetting::parse(&format!("1.0.0-{}", "x".repeat(URL_BYTES_MAX))), None);
    }

    #[test]
    fn file_urls_name_local_paths() {
        let table = [
            ("file:///opt/server", Some("/opt/server")),
            ("file://localhost/opt/server", Some("/opt/server")),
            ("FILE:///opt/my%20server", Some("/opt/my server")),
            ("file:///C:/server.exe", Some("C:/server.exe")),
            (r"file:///C:\server.exe", Some(r"C:\server.exe")),
            (r"file://C:\server.exe", Some(r"C:\server.exe")),
            ("file://c:/server.exe", Some("c:/server.exe")),
            ("file:////server/share", None),
            ("file://C:", None),
            ("http://x/y", None),
        ];
        for (url, path) in table {
            assert_eq!(local_path(url).as_deref(), path, "{url}");
        }
    }
}
