//! What has been written so far, until somebody says that it is all.
//!
//! Values come one by one, in any order, and some twice. A value that cannot be right is refused when it comes, so that
//! the person sees which. Nothing of a draft counts before it is taken.

use api::Secret;
use serde::Deserialize;

use crate::{
    network::Given,
    provisioning::visit::{self, Identity, Mistyped, Proof, Visit},
};

/// Longest part id, key id or address: what the fleet server gives is far shorter.
const TEXT_MAX: usize = 256;

/// Why a value cannot be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unfit {
    /// A network that cannot be.
    #[error(transparent)]
    Mistyped(#[from] Mistyped),
    /// Neither an address nor an id nor a key.
    #[error("that is no {0} as the fleet server gives it")]
    Credential(&'static str),
    /// Some parts of an identity are missing.
    #[error("an identity needs the server's address, the part's id, and a secret or an API key")]
    Incomplete,
}

/// The values.
#[derive(Default)]
pub(super) struct Draft {
    ssid: Option<Box<[u8]>>,
    psk: Option<Secret>,
    hidden: bool,
    part_id: Option<String>,
    secret: Option<Secret>,
    api_key: Option<(String, Secret)>,
    app_address: Option<String>,
}

/// As it is written to the characteristic.
#[derive(Deserialize)]
struct ApiKeyText<'a> {
    id: &'a str,
    key: &'a str,
}

impl Draft {
    /// An empty value forgets the one before, in all of these.
    pub(super) fn ssid(&mut self, value: &[u8]) -> Result<(), Unfit> {
        if !value.is_empty() {
            visit::network(value, "", false)?;
        }
        self.ssid = (!value.is_empty()).then(|| value.into());
        Ok(())
    }

    pub(super) fn psk(&mut self, value: &[u8]) -> Result<(), Unfit> {
        let text = str::from_utf8(value).map_err(|_| Mistyped::Letters)?;
        self.psk = visit::network(b"-", text, false)?.psk;
        Ok(())
    }

    pub(super) fn hidden(&mut self, hidden: bool) {
        self.hidden = hidden;
    }

    pub(super) fn part_id(&mut self, value: &[u8]) -> Result<(), Unfit> {
        self.part_id = credential(value, "part id")?.map(str::to_owned);
        Ok(())
    }

    pub(super) fn secret(&mut self, value: &[u8]) -> Result<(), Unfit> {
        self.secret = credential(value, "secret")?.map(Secret::from);
        Ok(())
    }

    pub(super) fn api_key(&mut self, value: &[u8]) -> Result<(), Unfit> {
        const WHAT: &str = "API key";
        self.api_key = match credential(value, WHAT)? {
            None => None,
            Some(text) => {
                let (key, _) =
                    serde_json_core::from_str::<ApiKeyText<'_>>(text).map_err(|_| Unfit::Credential(WHAT))?;
                let wrong = || Unfit::Credential(WHAT);
                let id = credential(key.id.as_bytes(), WHAT)?.ok_or_else(wrong)?;
                let key = credential(key.key.as_bytes(), WHAT)?.ok_or_else(wrong)?;
                Some((id.to_owned(), Secret::from(key)))
            }
        };
        Ok(())
    }

    /// The same, with id and key apart.
    pub(super) fn api_key_pair(&mut self, id: &[u8], key: &[u8]) -> Result<(), Unfit> {
        const WHAT: &str = "API key";
        self.api_key = credential(id, WHAT)?.map(str::to_owned).zip(credential(key, WHAT)?.map(Secret::from));
        Ok(())
    }

    pub(super) fn app_address(&mut self, value: &[u8]) -> Result<(), Unfit> {
        const WHAT: &str = "server address";
        let address = credential(value, WHAT)?;
        if address.is_some_and(|address| !(address.starts_with("https://") || address.starts_with("http://"))) {
            return Err(Unfit::Credential(WHAT));
        }
        self.app_address = address.map(str::to_owned);
        Ok(())
    }

    /// Everything, and an empty draft again: identity first, because the network leads to it.
    ///
    /// An address alone is no identity: apps write it for every device, also for one that keeps its identity.
    pub(super) fn take(&mut self) -> Result<heapless::Vec<Visit, 2>, Unfit> {
        let begun = self.part_id.is_some() || self.secret.is_some() || self.api_key.is_some();
        let identity = match (&self.app_address, &self.part_id, &self.api_key, &self.secret) {
            _ if !begun => None,
            (Some(app_address), Some(part_id), Some((id, key)), _) => Some(Identity {
                app_address: app_address.clone(),
                part_id: part_id.clone(),
                proof: Proof::ApiKey { id: id.clone(), key: key.clone() },
            }),
            (Some(app_address), Some(part_id), None, Some(secret)) => Some(Identity {
                app_address: app_address.clone(),
                part_id: part_id.clone(),
                proof: Proof::Secret(secret.clone()),
            }),
            _ => return Err(Unfit::Incomplete),
        };
        let network = match &self.ssid {
            Some(ssid) => Some(visit::network(ssid, "", self.hidden)?),
            None => None,
        };
        let mut visits = heapless::Vec::new();
        let draft = std::mem::take(self);
        let network = network.map(|given| Visit::Network(Given { psk: draft.psk, ..given }));
        for visit in identity.map(Visit::Identity).into_iter().chain(network) {
            // Two at most, and there is room for two.
            let _ = visits.push(visit);
        }
        Ok(visits)
    }
}

/// Printable ASCII of bounded length; nothing when empty.
fn credential<'a>(value: &'a [u8], what: &'static str) -> Result<Option<&'a str>, Unfit> {
    let text = str::from_utf8(value).map_err(|_| Unfit::Credential(what))?;
    let fits = text.len() <= TEXT_MAX && text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    if fits { Ok((!text.is_empty()).then_some(text)) } else { Err(Unfit::Credential(what)) }
}
