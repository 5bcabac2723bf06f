//! Which bucket, where it is, and who we are there.
//!
//! The address is an argument; what must not be seen comes from the environment, by the names that every S3 program
//! knows, or from a file that only its owner can read, in the form that every S3 program writes.

use std::{
    env, fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use api::Secret;
use object_store::{
    Error as StoreError, RetryConfig,
    aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey},
    path::Path as Key,
};

use super::wire::Connector;
use crate::authorities::AuthoritiesError;

/// What an address begins with.
const SCHEME: &str = "s3://";
/// How long something is tried again that fails in a way that passes.
const RETRIED_FOR: Duration = Duration::from_secs(20);
/// How often.
const RETRIES: usize = 4;

/// Why a bucket cannot be used. For the person who started the server; repeats no secret.
#[derive(Debug, thiserror::Error)]
pub enum BucketError {
    /// Something else than a bucket.
    #[error("--artifacts {found:?} is no bucket: s3://BUCKET or s3://BUCKET/PREFIX is")]
    Address {
        /// What was given.
        found: String,
    },
    /// No such file, or no permission.
    #[error("cannot read the credentials of the bucket from {path}")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Others could use them.
    #[error("the credentials of the bucket in {path} can be read by others: chmod 600 {path}")]
    Open {
        /// Which file.
        path: PathBuf,
    },
    /// Half of them.
    #[error("{path} needs both aws_access_key_id and aws_secret_access_key, one in a line, as NAME = VALUE")]
    Half {
        /// Which file.
        path: PathBuf,
    },
    /// A file for nothing.
    #[error("--artifacts-credentials is given, but no --artifacts")]
    NoBucket,
    /// The library refuses what it was given.
    #[error("the bucket cannot be used: {0}")]
    Refused(String),
    /// Asked at the start: wrong keys, or ones that may not look into it.
    #[error(
        "the bucket {name} refuses these keys: look at AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and that they may \
         s3:ListBucket there: {why}"
    )]
    Denied {
        /// Which.
        name: String,
        /// What the store said.
        why: String,
    },
    /// Asked at the start.
    #[error("there is no bucket {name} at that endpoint: look at --artifacts and AWS_ENDPOINT_URL: {why}")]
    NoSuchBucket {
        /// Which.
        name: String,
        /// What the store said.
        why: String,
    },
    /// Asked at the start.
    #[error("the bucket {name} is in another region: look at AWS_REGION: {why}")]
    OtherRegion {
        /// Which.
        name: String,
        /// What the store said.
        why: String,
    },
    /// Asked at the start.
    #[error(
        "nobody who is trusted vouches for the bucket {name}: name a file with its authority's certificate in \
         AWS_CA_BUNDLE, or add it to the system's: {why}"
    )]
    Untrusted {
        /// Which.
        name: String,
        /// What is wrong with its certificate.
        why: String,
    },
    /// The list of authorities cannot be read.
    #[error("AWS_CA_BUNDLE (ca_bundle): {0}")]
    Authorities(#[source] AuthoritiesError),
    /// TLS cannot be used.
    #[error("the bucket cannot be reached by TLS: {0}")]
    Tls(String),
}

/// A bucket and how to reach it.
#[derive(Debug, Clone)]
pub struct Bucket {
    name: String,
    pub(super) prefix: Key,
    settings: Vec<(AmazonS3ConfigKey, Secret)>,
    authorities: Option<PathBuf>,
}

impl Bucket {
    /// What a first question found out that no later one would change; nothing where that may pass.
    pub(super) fn complaint(&self, problem: &StoreError) -> Option<BucketError> {
        let (name, mut why) = (self.name.clone(), with_sources(problem));
        // On one line.
        why.retain(|letter| !letter.is_control());
        let says = |words: &[&str]| words.iter().any(|word| why.contains(word));
        // First: some stores say with 403 what others say with 400 or a redirect.
        if says(&["AuthorizationHeaderMalformed", "PermanentRedirect", "IncorrectEndpoint"]) {
            return Some(BucketError::OtherRegion { name, why });
        }
        if says(&["invalid peer certificate"]) {
            return Some(BucketError::Untrusted { name, why });
        }
        match problem {
            StoreError::PermissionDenied { .. } | StoreError::Unauthenticated { .. } => {
                Some(BucketError::Denied { name, why })
            }
            StoreError::NotFound { .. } => Some(BucketError::NoSuchBucket { name, why }),
            _ if says(&["InvalidAccessKeyId", "NotSignedUp", "SignatureDoesNotMatch", "AccessDenied"]) => {
                Some(BucketError::Denied { name, why })
            }
            _ if says(&["NoSuchBucket"]) => Some(BucketError::NoSuchBucket { name, why }),
            _ => None,
        }
    }

    /// Whose word counts for the bucket's certificate, where it is not the system's list.
    pub(super) fn authorities(&self) -> Option<&Path> {
        self.authorities.as_deref()
    }

    /// From the arguments, and the environment.
    pub fn named(address: Option<&str>, credentials: Option<&Path>) -> Result<Option<Self>, BucketError> {
        let environment =
            env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        match (address, credentials) {
            (Some(address), credentials) => Self::from(address, environment, credentials).map(Some),
            (None, Some(_)) => Err(BucketError::NoBucket),
            (None, None) => Ok(None),
        }
    }

    /// From an address, variables, and a file that has the last word.
    pub fn from(
        address: &str,
        variables: impl IntoIterator<Item = (String, String)>,
        credentials: Option<&Path>,
    ) -> Result<Self, BucketError> {
        let refused = || BucketError::Address { found: address.to_owned() };
        let rest = address.strip_prefix(SCHEME).ok_or_else(refused)?;
        let (name, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'.';
        if !(3..=63).contains(&name.len()) || !name.bytes().all(plain) {
            return Err(refused());
        }
        let prefix = Key::parse(prefix).map_err(|_| refused())?;
        let known = |name: &str| name.starts_with("aws_").then(|| name.parse::<AmazonS3ConfigKey>().ok()).flatten();
        let mut bucket = Self { name: name.to_owned(), prefix, settings: Vec::new(), authorities: None };
        for (variable, value) in variables.into_iter().filter(|(_, value)| !value.is_empty()) {
            let variable = variable.to_ascii_lowercase();
            match known(&variable) {
                Some(key) => bucket.settings.push((key, Secret::new(value))),
                None if variable == "aws_ca_bundle" => bucket.authorities = Some(value.into()),
                None => {}
            }
        }
        if let Some(path) = credentials {
            bucket.read(path)?;
        }
        Ok(bucket)
    }

    /// `NAME = VALUE` in the lines of a file; sections and comments are passed over.
    fn read(&mut self, path: &Path) -> Result<(), BucketError> {
        let file = |source| BucketError::File { path: path.into(), source };
        if fs::metadata(path).map_err(file)?.permissions().mode() & 0o077 != 0 {
            return Err(BucketError::Open { path: path.into() });
        }
        let text = fs::read_to_string(path).map_err(file)?;
        let before = self.settings.len();
        for (name, value) in text.lines().filter_map(|line| line.split_once('=')) {
            let (name, value) = (name.trim(), value.trim());
            let key = match name {
                "aws_access_key_id" => AmazonS3ConfigKey::AccessKeyId,
                "aws_secret_access_key" => AmazonS3ConfigKey::SecretAccessKey,
                "aws_session_token" => AmazonS3ConfigKey::Token,
                "region" => AmazonS3ConfigKey::Region,
                "endpoint_url" => AmazonS3ConfigKey::Endpoint,
                _ => {
                    self.authorities = (name == "ca_bundle").then(|| value.into()).or(self.authorities.take());
                    continue;
                }
            };
            self.settings.push((key, Secret::new(value)));
        }
        let has = |wanted| self.settings.iter().skip(before).any(|(key, _)| *key == wanted);
        match has(AmazonS3ConfigKey::AccessKeyId) && has(AmazonS3ConfigKey::SecretAccessKey) {
            true => Ok(()),
            false => Err(BucketError::Half { path: path.into() }),
        }
    }

    pub(super) fn store(&self, connector: Connector) -> Result<AmazonS3, BucketError> {
        let retry = RetryConfig { max_retries: RETRIES, retry_timeout: RETRIED_FOR, ..RetryConfig::default() };
        let mut builder = AmazonS3Builder::new().with_retry(retry).with_http_connector(connector);
        for (key, value) in &self.settings {
            // Somebody who names an endpoint by http means it: it is on this machine, or in a network of its own.
            if *key == AmazonS3ConfigKey::Endpoint && value.expose().starts_with("http://") {
                builder = builder.with_allow_http(true);
            }
            builder = builder.with_config(*key, value.expose());
        }
        // After the others: a variable may not turn the address into something else.
        builder.with_bucket_name(&self.name).build().map_err(|why| BucketError::Refused(why.to_string()))
    }
}

/// What went wrong, and why: a refused certificate is the reason of a reason.
fn with_sources(problem: &StoreError) -> String {
    let mut text = problem.to_string();
    let mut source = std::error::Error::source(problem);
    while let Some(reason) = source {
        let words = reason.to_string();
        if !text.contains(&words) {
            text = format!("{text}: {words}");
        }
        source = reason.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_bucket_and_perhaps_a_prefix() {
        let table = [
            ("s3://fleet", Some(("fleet", ""))),
            ("s3://fleet/", Some(("fleet", ""))),
            ("s3://fleet/a/b", Some(("fleet", "a/b"))),
            ("s3://Fleet", None),
            ("s3://a_b", None),
            ("s3://", None),
            ("s3:///a", None),
            ("s3://fleet/../x", None),
            ("https://fleet.s3.amazonaws.com", None),
            ("/var/lib/artifacts", None),
        ];
        for (address, expected) in table {
            let found = Bucket::from(address, [], None).ok();
            let found = found.as_ref().map(|bucket| (&*bucket.name, bucket.prefix.as_ref()));
            assert_eq!(found, expected, "{address}");
        }
    }

    #[test]
    fn credentials_come_from_the_environment_or_a_closed_file_and_are_never_shown() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("credentials");
        let set = |text: &str, mode| {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        };
        let named = |file: Option<&Path>| {
            let variables = [("AWS_SECRET_ACCESS_KEY", "planted1"), ("AWS_REGION", "eu-1"), ("HOME", "/root")];
            Bucket::from("s3://fleet", variables.map(|(name, value)| (name.to_owned(), value.to_owned())), file)
        };
        assert_eq!(named(None).unwrap().settings.len(), 2);
        let text = "[default]\naws_access_key_id = id\n# more\naws_secret_access_key=planted2\nregion = eu-2\n";
        set(text, 0o644);
        assert!(matches!(named(Some(&path)), Err(BucketError::Open { .. })));
        set("aws_access_key_id = id\n", 0o600);
        assert!(matches!(named(Some(&path)), Err(BucketError::Half { .. })));
        set(text, 0o600);
        let bucket = named(Some(&path)).unwrap();
        assert!(!format!("{bucket:?}").contains("planted"));
        let store = bucket.store(Connector::new(None).unwrap()).unwrap();
        assert!(!format!("{store}").contains("planted"));
        assert!(matches!(named(Some(&folder.path().join("none"))), Err(BucketError::File { .. })));
        assert!(matches!(Bucket::named(None, Some(&path)), Err(BucketError::NoBucket)));
    }
}
