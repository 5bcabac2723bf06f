//! Keys a person has logged in with, in one file that nobody else can read.
//!
//! `$XDG_CONFIG_HOME/platform/profiles.json`, else `~/.config/…`. Written whole or not at all; refused when others could
//! read it, because then the keys in it are no secret any more.

use std::{
    collections::BTreeMap,
    env, fs,
    io::Write,
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::{Path, PathBuf},
};

use api::{Secret, brand};
use serde::{Deserialize, Serialize};

use crate::failure::Failure;

/// Name of a profile when nobody gave one.
pub(crate) const DEFAULT_NAME: &str = "default";
/// Bits that let others than the owner in.
const OTHERS: u32 = 0o077;

/// The file's content.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Profiles {
    /// The profile that is used when none is named.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) current: Option<String>,
    #[serde(default)]
    pub(crate) profiles: BTreeMap<String, Profile>,
}

/// One server and the key for it.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Profile {
    pub(crate) url: String,
    pub(crate) key_id: String,
    #[serde(with = "exposed")]
    pub(crate) key: Secret,
    /// PEM file of the authority that signed the server's certificate, if it is none of the system's.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) ca: Option<PathBuf>,
}

/// The one place where a key is written out.
mod exposed {
    use api::Secret;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(key: &Secret, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(key.expose())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Secret, D::Error> {
        String::deserialize(from).map(Secret::from)
    }
}

impl Profiles {
    /// What is stored; nothing if there is no file yet.
    pub(crate) fn load() -> Result<Self, Failure> {
        let path = path()?;
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(Failure::file(path)(error)),
        };
        let mode = fs::metadata(&path).map_err(Failure::file(&path))?.permissions().mode();
        if mode & OTHERS != 0 {
            let shown = path.display();
            return Err(Failure::NotLoggedIn(format!(
                "{shown} can be read by others (mode {:03o}), so its keys are not used; run `chmod 600 {shown}` and rotate the keys if others may have read it",
                mode & 0o777
            )));
        }
        serde_json::from_slice(&text).map_err(|error| {
            Failure::NotLoggedIn(format!("{} is damaged ({error}); remove it and log in again", path.display()))
        })
    }

    pub(crate) fn store(&self) -> Result<PathBuf, Failure> {
        let path = path()?;
        let folder = path.parent().unwrap_or(Path::new("."));
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(Failure::file(folder))?;
        // Made with mode 0600 from the beginning.
        let mut file = tempfile::NamedTempFile::new_in(folder).map_err(Failure::file(folder))?;
        let mut text = serde_json::to_vec_pretty(self).map_err(|error| Failure::file(&path)(error.into()))?;
        text.push(b'\n');
        file.write_all(&text).and_then(|()| file.as_file().sync_all()).map_err(Failure::file(&path))?;
        file.persist(&path).map_err(|error| Failure::file(&path)(error.error))?;
        Ok(path)
    }

    /// The named profile, or the current one.
    pub(crate) fn choose(&self, name: Option<&str>) -> Result<Option<(&str, &Profile)>, Failure> {
        let Some(name) = name.or(self.current.as_deref()) else { return Ok(None) };
        match self.profiles.get_key_value(name) {
            Some((name, profile)) => Ok(Some((name, profile))),
            None => {
                let known: Vec<&str> = self.profiles.keys().map(String::as_str).collect();
                let known =
                    if known.is_empty() { "there is none".to_owned() } else { format!("known: {}", known.join(", ")) };
                Err(Failure::NotLoggedIn(format!("there is no profile {name:?} ({known})")))
            }
        }
    }
}

fn path() -> Result<PathBuf, Failure> {
    let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let folder = set("XDG_CONFIG_HOME")
        .filter(|folder| folder.is_absolute())
        .or_else(|| set("HOME").map(|home| home.join(".config")));
    match folder {
        Some(folder) => Ok(folder.join(brand::NAME).join("profiles.json")),
        None => Err(Failure::NotLoggedIn(
            "neither XDG_CONFIG_HOME nor HOME is set, so there is no place for profiles".to_owned(),
        )),
    }
}
