//! Command line and environment of the machine server.

use std::path::PathBuf;

use api::{Secret, brand, device_config::Advanced};
use board::process::Launch;

use super::record::Note;

/// Where things are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    /// The credentials file, which is also the machine server's configuration file.
    pub credentials: PathBuf,
    /// Its working directory.
    pub folder: PathBuf,
    /// What the next agent must know.
    pub record: PathBuf,
}

/// An API key, when that is how this device identifies itself.
#[derive(Clone, Debug)]
pub struct ApiKey {
    /// Its id.
    pub id: String,
    /// The key.
    pub key: Secret,
}

/// Who this device is, as far as its machine server is concerned.
#[derive(Clone, Debug)]
pub struct Presented {
    /// Its API key, when it has one instead of a secret.
    pub api_key: Option<ApiKey>,
    /// Tells this identity from another one, see [`fingerprint_of`]; never 0.
    pub fingerprint: u64,
}

/// A fingerprint of who a device is: address of the fleet server, part and what proves it. Never 0.
#[must_use]
pub fn fingerprint_of(identity: &[&str]) -> u64 {
    let mut hash = Fnv::new();
    for text in identity {
        hash.add(text.as_bytes());
        hash.add(&[0]);
    }
    hash.value().max(1)
}

/// Ends in this, behind the brand: the machine server need not ask the fleet server whether it shall restart.
const AGENT_ASKS: &str = "_AGENT_HANDLES_NEEDS_RESTART_CHECKING";

/// Ends in this, behind the brand: the [`Note`], for an agent that finds the process without a record of it.
const NOTE: &str = "_AGENT_NOTE";

/// Name of the variable that carries the note.
#[must_use]
pub fn note_variable() -> String {
    format!("{}{NOTE}", brand::ENV_PREFIX)
}

/// How what is noted is started. Later variables win over earlier ones and over the agent's own environment, so the
/// configured ones come last, except for the note, which is nobody's to choose.
#[must_use]
pub fn launch(note: &Note, settings: &Advanced, places: &Places, api_key: Option<&ApiKey>) -> Launch {
    let configured = &settings.server_env;
    let mut environment = vec![
        (format!("{}{AGENT_ASKS}", brand::ENV_PREFIX), "true".to_owned()),
        (brand::ENV_STATUS_URL.to_owned(), settings.server_status_url.to_string()),
    ];
    if let Some(ApiKey { id, key }) = api_key {
        environment.push((brand::ENV_API_KEY_ID.to_owned(), id.clone()));
        environment.push((brand::ENV_API_KEY.to_owned(), key.expose().to_owned()));
    }
    environment.extend(configured.iter().map(|(name, value)| (name.to_string(), value.expose().to_owned())));
    environment.push((note_variable(), note.encode()));
    Launch {
        program: note.program.path.clone(),
        arguments: vec!["-config".to_owned(), places.credentials.to_string_lossy().into_owned()],
        environment,
        folder: places.folder.clone(),
    }
}

/// Where a machine server with these settings is asked for its status until it names a better place.
#[must_use]
pub fn status_url(settings: &Advanced) -> &str {
    let configured = settings.server_env.iter().find(|(name, _)| &**name == brand::ENV_STATUS_URL);
    configured.map_or(&*settings.server_status_url, |(_, value)| value.expose()).trim_end_matches('/')
}

/// A fingerprint of the configured variables: a machine server that was started with another one is to be restarted.
/// Kept instead of the variables because it is stored, and they may be secrets.
#[must_use]
pub fn fingerprint(settings: &Advanced) -> u64 {
    let mut hash = Fnv::new();
    for (name, value) in &settings.server_env {
        hash.add(name.as_bytes());
        hash.add(&[0]);
        hash.add(value.expose().as_bytes());
        hash.add(&[0]);
    }
    hash.value()
}

/// FNV-1a, 64 bits: the same on every version and architecture. Tells apart what changed by accident or on purpose,
/// not what somebody forged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fnv(u64);

impl Fnv {
    pub(crate) const fn new() -> Self {
        Fnv(0xcbf2_9ce4_8422_2325)
    }

    pub(crate) fn add(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    pub(crate) const fn value(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::{Program, tests::settings};

    fn places() -> Places {
        Places { credentials: "/etc/p.json".into(), folder: "/opt/p".into(), record: "/opt/p/record".into() }
    }

    fn note() -> Note {
        Note {
            program: Program { version: "1.0.0".into(), path: "/opt/p/server".into() },
            started_at: board::Wall::from_millis(0),
            environment: 0,
            identity: 0,
            starts: 1,
            crashes: 0,
            crashes_of_program: 0,
            operator_restarts: 0,
        }
    }

    fn last<'a>(launch: &'a Launch, name: &str) -> Option<&'a str> {
        launch.environment.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    #[test]
    fn the_configuration_wins_and_the_key_is_given_unless_it_is_configured() {
        let note = note();
        let key = ApiKey { id: "key-id".into(), key: "key-secret".into() };
        let launched = launch(&note, &settings(&[("GREETING", "hi")]), &places(), Some(&key));
        assert_eq!(launched.program, note.program.path);
        assert_eq!(last(&launched, &note_variable()), Some(&*note.encode()));
        assert_eq!(launched.arguments, ["-config", "/etc/p.json"]);
        assert_eq!(last(&launched, brand::ENV_STATUS_URL), Some("http://127.0.0.1:8081"));
        assert_eq!(last(&launched, brand::ENV_API_KEY), Some("key-secret"));
        assert_eq!(last(&launched, brand::ENV_API_KEY_ID), Some("key-id"));
        assert_eq!(last(&launched, "GREETING"), Some("hi"));

        let (note_name, elsewhere) = (note_variable(), "http://elsewhere");
        let own = settings(&[(brand::ENV_API_KEY, "mine"), (brand::ENV_STATUS_URL, elsewhere), (&*note_name, "mine")]);
        let launched = launch(&note, &own, &places(), Some(&key));
        assert_eq!(last(&launched, &note_name), Some(&*note.encode()));
        assert_eq!(last(&launched, brand::ENV_API_KEY), Some("mine"));
        assert_eq!(last(&launched, brand::ENV_STATUS_URL), Some(elsewhere));
        assert_eq!(status_url(&own), elsewhere);
        assert_eq!(status_url(&settings(&[])), "http://127.0.0.1:8081");

        let launched = launch(&note, &settings(&[]), &places(), None);
        assert_eq!(last(&launched, brand::ENV_API_KEY), None);
    }

    #[test]
    fn fingerprints_differ_where_environments_do() {
        let prints =
            [&[][..], &[("A", "b")], &[("A", "c")], &[("Ab", "")], &[("A", "b"), ("C", "")], &[("A", ""), ("b", "")]]
                .map(|environment| fingerprint(&settings(environment)));
        for (index, print) in prints.iter().enumerate() {
            assert!(!prints[index + 1..].contains(print), "{index}");
        }
        assert_eq!(fingerprint(&settings(&[("A", "b")])), prints[1]);
    }
}
