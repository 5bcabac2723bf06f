//! Who this device is, as its credentials file says.
//!
//! Owns the reading of that file and the sentences about what is wrong with it. Never guesses: a malformed API key is a
//! mistake to be corrected, not a reason to take the secret beside it. Nothing of the content reaches an error or a log.
//!
//! ```json
//! {"cloud": {"app_address": "https://fleet.example.com", "id": "PART-ID", "secret": "…"}}
//! {"cloud": {"app_address": "https://fleet.example.com", "id": "PART-ID", "api_key": {"id": "…", "key": "…"}}}
//! ```

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use actors::server::launch::fingerprint_of;
use api::{
    Secret,
    client::{Address, AddressError, Credentials},
    json::{self, JsonError, Limits, Value},
};
use board::files::Files as _;
use board_portable::PortableFiles;

/// Who this device is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its fleet server.
    pub server: Address,
    /// The part it is.
    pub part_id: String,
    /// What it shows to be believed: a part secret or an API key.
    pub credentials: Credentials,
}

impl Identity {
    /// Tells this identity from another one, without saying anything of it; never 0.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        let (id, proof) = match &self.credentials {
            Credentials::ApiKey { id, key } => (id, key.expose()),
            Credentials::PartSecret { part_id, secret } => (part_id, secret.expose()),
            Credentials::LocationSecret { part_id, secret } => (part_id, secret.expose()),
            Credentials::Token(token) => (&self.part_id, token.expose()),
        };
        fingerprint_of(&[self.server.base(), &self.part_id, id, proof])
    }
}

/// Why there is no identity. Each message names the file and says what to do.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// No such file.
    #[error("{} does not exist: put this machine's credentials file there", path.display())]
    Missing {
        /// Where it should be.
        path: PathBuf,
    },
    /// It is there and cannot be read.
    #[error("{} cannot be read ({source}): make it readable for this user", path.display())]
    Unreadable {
        /// Where it is.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A folder, or a pipe that would have to be waited for.
    #[error("{} is not a plain file: put this machine's credentials file in its place", path.display())]
    NoFile {
        /// Where it is.
        path: PathBuf,
    },
    /// It is no JSON document.
    #[error("{} is not JSON ({source}): get the file again from the fleet server", path.display())]
    NotJson {
        /// Where it is.
        path: PathBuf,
        /// What is wrong, and where.
        source: JsonError,
    },
    /// Something is missing in it or is of the wrong kind.
    #[error("{}: {field} {problem}", path.display())]
    Field {
        /// Where it is.
        path: PathBuf,
        /// Which entry.
        field: &'static str,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The server's address is none.
    #[error("{}: cloud.app_address: {source}", path.display())]
    Address {
        /// Where it is.
        path: PathBuf,
        /// What is wrong with it.
        source: AddressError,
    },
    /// The secret would travel where everybody can read it.
    #[error(
        "{}: cloud.app_address is plain http to another machine, which would show the secret to the network: use https, \
         or --dev-mode to accept that",
        path.display()
    )]
    Plain {
        /// Where it is.
        path: PathBuf,
    },
}

/// Reads the credentials file. Unless `plain_http`, a server on another machine must be reached by https.
pub fn read(path: &Path, plain_http: bool) -> Result<Identity, IdentityError> {
    parse(path, &content(path)?, plain_http)
}

/// Reads what the file at `path` has, or would have.
pub fn parse(path: &Path, text: &[u8], plain_http: bool) -> Result<Identity, IdentityError> {
    let not_json = |source| IdentityError::NotJson { path: path.to_owned(), source };
    let document = json::parse(text, Limits::SMALL).map_err(not_json)?;
    let wrong = |field, problem| IdentityError::Field { path: path.to_owned(), field, problem };
    let of = |parent: Option<Value<'_>>, key, field| -> Result<String, IdentityError> {
        let value = parent.and_then(|parent| parent.get(key)).ok_or_else(|| wrong(field, "is missing"))?;
        let text = value.as_text().ok_or_else(|| wrong(field, "must be a text"))?;
        if text.is_empty() { Err(wrong(field, "is empty")) } else { Ok(text.into_owned()) }
    };
    let cloud = Some(document.get("cloud").ok_or_else(|| wrong("cloud", "is missing"))?);
    let server: Address = of(cloud, "app_address", "cloud.app_address")?
        .parse()
        .map_err(|source| IdentityError::Address { path: path.to_owned(), source })?;
    if !plain_http && !server.is_encrypted() && !server.is_loopback() {
        return Err(IdentityError::Plain { path: path.to_owned() });
    }
    let part_id = of(cloud, "id", "cloud.id")?;
    // Present means meant, also when it is `null` or of the wrong kind.
    let credentials = match cloud.and_then(|cloud| cloud.get("api_key")) {
        Some(api_key) => Credentials::ApiKey {
            id: of(Some(api_key), "id", "cloud.api_key.id")?,
            key: Secret::from(of(Some(api_key), "key", "cloud.api_key.key")?),
        },
        None => Credentials::PartSecret {
            secret: Secret::from(of(cloud, "secret", "cloud.secret")?),
            part_id: part_id.clone(),
        },
    };
    Ok(Identity { server, part_id, credentials })
}

fn content(path: &Path) -> Result<Vec<u8>, IdentityError> {
    // One byte more than allowed, so that the parser names the limit.
    PortableFiles.read_at(path, 0, Limits::SMALL.bytes + 1).map_err(|error| {
        let path = path.to_owned();
        match error.source.kind() {
            io::ErrorKind::NotFound => IdentityError::Missing { path },
            // Neither is waited for.
            _ if fs::metadata(&path).is_ok_and(|found| !found.is_file()) => IdentityError::NoFile { path },
            _ => IdentityError::Unreadable { path, source: error.source },
        }
    })
}

/// Whether others on this machine can read who this device is, in a sentence that says what to do.
#[must_use]
pub fn exposure(path: &Path) -> Option<String> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let found = fs::metadata(path).ok()?;
        (found.permissions().mode() & 0o077 != 0)
            .then(|| format!("others on this machine can read the credentials: chmod 600 {}", path.display()))
    }
    #[cfg(not(unix))]
    {
        let _ = path;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn what_others_can_read_is_said_and_a_pipe_is_not_waited_for() {
        use std::{os::unix::fs::PermissionsExt as _, process::Command};
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("platform.json");
        assert_eq!(exposure(&path), None, "there is none");
        fs::write(&path, "{}").expect("written");
        for (mode, exposed) in [(0o600, false), (0o400, false), (0o640, true), (0o604, true), (0o777, true)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("set");
            let said = exposure(&path);
            assert_eq!(said.is_some(), exposed, "{mode:o}: {said:?}");
            assert!(said.is_none_or(|said| said.contains("chmod 600") && said.contains("platform.json")));
        }
        let pipe = folder.path().join("pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
        assert!(matches!(read(&pipe, true), Err(IdentityError::NoFile { .. })), "nobody writes into it");
    }

    fn read_text(text: &str, plain_http: bool) -> Result<Identity, IdentityError> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("platform.json");
        fs::write(&path, text).expect("written");
        read(&path, plain_http)
    }

    #[test]
    fn both_kinds_of_credentials_are_read() {
        let secret = r#"{"cloud": {"app_address": "http://127.0.0.1:8080", "id": "p", "secret": "s"}, "more": [1]}"#;
        let identity = read_text(secret, false).expect("it is complete");
        assert_eq!((identity.server.base(), identity.part_id.as_str()), ("http://127.0.0.1:8080", "p"));
        let expected = Credentials::PartSecret { part_id: "p".into(), secret: "s".into() };
        assert_eq!(identity.credentials, expected);
        let key = r#"{"cloud": {"app_address": "fleet.example.com", "id": "p", "api_key": {"id": "i", "key": "k"}}}"#;
        let identity = read_text(key, false).expect("it is complete");
        assert_eq!(identity.credentials, Credentials::ApiKey { id: "i".into(), key: "k".into() });
        assert!(identity.server.is_encrypted());
    }

    #[test]
    fn what_is_wrong_is_named_and_no_secret_is() {
        let table = [
            ("nothing", "", "not JSON"),
            ("not JSON", "{cloud", "not JSON"),
            ("a list", "[]", "cloud is missing"),
            ("no address", r#"{"cloud": {"id": "p", "secret": "hidden"}}"#, "cloud.app_address is missing"),
            ("a bad address", r#"{"cloud": {"app_address": "ftp://x", "id": "p"}}"#, "ftp://"),
            ("no id", r#"{"cloud": {"app_address": "x", "secret": "hidden"}}"#, "cloud.id is missing"),
            ("no secret", r#"{"cloud": {"app_address": "x", "id": "p"}}"#, "cloud.secret is missing"),
            ("an empty secret", r#"{"cloud": {"app_address": "x", "id": "p", "secret": ""}}"#, "cloud.secret is empty"),
            (
                "a malformed key is not replaced by the secret",
                r#"{"cloud": {"app_address": "x", "id": "p", "secret": "hidden", "api_key": {"id": "i", "key": 5}}}"#,
                "cloud.api_key.key must be a text",
            ),
            (
                "nor is half a key",
                r#"{"cloud": {"app_address": "x", "id": "p", "secret": "hidden", "api_key": null}}"#,
                "cloud.api_key.id is missing",
            ),
            (
                "plain http to another machine",
                r#"{"cloud": {"app_address": "http://fleet.example.com", "id": "p", "secret": "hidden"}}"#,
                "--dev-mode",
            ),
        ];
        for (case, text, named) in table {
            let error = read_text(text, false).expect_err(case).to_string();
            assert!(error.contains(named) && error.contains("platform.json"), "{case}: {error}");
            assert!(!error.contains("hidden"), "{case}: {error}");
        }
        let plain = r#"{"cloud": {"app_address": "http://fleet.example.com", "id": "p", "secret": "s"}}"#;
        assert!(read_text(plain, true).is_ok(), "accepted by --dev-mode");
        let huge = format!("{{\"cloud\": \"{}\"}}", "x".repeat(100_000));
        assert!(matches!(read_text(&huge, true), Err(IdentityError::NotJson { .. })));
        for closed in ["/dev", "/dev/null"] {
            let error = read(Path::new(closed), true).expect_err(closed).to_string();
            assert!(error.contains("not a plain file"), "{error}");
        }
        let missing = read(Path::new("/nowhere/platform.json"), true).expect_err("nothing is there");
        assert!(matches!(missing, IdentityError::Missing { .. }), "{missing}");
    }
}
