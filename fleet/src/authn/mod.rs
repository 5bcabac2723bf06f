//! Who is calling.
//!
//! Secrets become tokens once (`Authenticate`), tokens become a [`Caller`] on every call. A token says which key or
//! secret it was made from and is signed by the server: it needs no table, survives restarts, and is good exactly as
//! long as that key or secret is. What a key may do is kept in memory (`sessions`) and forgotten when it changes.

mod sealing;
mod sessions;
mod tokens;

use std::{
    net::{IpAddr, Ipv4Addr},
    path::Path,
    sync::Arc,
};

use ring::digest;

pub use sealing::{KeyFileError, Sealer, digest_of_key};
use sessions::Session;
pub use sessions::Sessions;
use tokens::{Claim, Signer};

use crate::{
    authz::Grant,
    clock::{Clock, Millis},
    hex, ids,
    memory::Memory,
    refusal::Refusal,
    store::{DbError, Store, Tx, keys, news, roles, secrets},
};

/// Lookups of one token that revocations overtake, one after the other; each takes microseconds.
const LOOKUPS_MAX: usize = 100;
/// In the data folder; the same on every server of a database.
pub const KEY_FILE: &str = "server.key";
/// One sentence for every way in which a login can be wrong, so that it tells nobody which ids exist.
const WRONG: &str = "the id or the secret is wrong, or it was deleted";
/// The same for tokens.
const NO_TOKEN: &str = "this call needs a bearer token: ask for one with Authenticate";
const BAD_TOKEN: &str = "the token is not valid any more: authenticate again";
/// The same for calls that stay open.
const ENDED: &str = "the key was deleted or changed: authenticate again";

/// Somebody, and where the call came from. Cheap to clone.
#[derive(Clone)]
pub struct Caller {
    session: Arc<Session>,
    from: IpAddr,
}

/// What a caller is.
#[derive(Debug, PartialEq, Eq)]
pub enum Who {
    /// An API key, of a person or a program.
    ApiKey {
        /// Its id.
        id: String,
        /// The person it belongs to, unless it is an organization's.
        user: Option<String>,
        /// What it may do: the person's roles, or its own.
        grants: Vec<Grant>,
    },
    /// A device, by its part's own secret.
    Part {
        /// The part.
        part: String,
    },
    /// A device, by a secret of a location its part lies in.
    LocationSecret {
        /// The part.
        part: String,
        /// The location whose secret it is.
        location: String,
    },
    /// A command run on the server itself.
    Local,
    /// Nobody known: only open doors answer.
    Nobody,
}

impl Caller {
    /// A command run on the server itself.
    pub fn local() -> Self {
        Self::of(Who::Local, IpAddr::V4(Ipv4Addr::LOCALHOST))
    }

    /// Somebody without a token.
    pub fn nobody(from: IpAddr) -> Self {
        Self::of(Who::Nobody, from)
    }

    fn of(who: Who, from: IpAddr) -> Self {
        Self { session: Arc::new(Session::new(who, 0, 0)), from }
    }

    /// What the caller is.
    pub fn who(&self) -> &Who {
        &self.session.who
    }

    /// Where the call came from.
    pub fn from(&self) -> IpAddr {
        self.from
    }

    /// The name under which changes are written down: "api-key:ID", "user:ID by api-key:ID", "part:ID", "local".
    pub fn name(&self) -> String {
        match self.who() {
            Who::ApiKey { id, user: None, .. } => format!("api-key:{id}"),
            Who::ApiKey { id, user: Some(user), .. } => format!("user:{user} by api-key:{id}"),
            Who::Part { part } => format!("part:{part}"),
            Who::LocationSecret { part, location } => format!("part:{part} by location:{location}"),
            Who::Local => "local".into(),
            Who::Nobody => "nobody".into(),
        }
    }

    /// Rises when something moved in the tree: a call that stays open has to ask once more whether it may.
    pub fn moved(&self) -> u64 {
        self.session.moved()
    }

    /// Whether its key or secret was deleted or rotated since the call began, or has ended. A call that stays open (a
    /// tail) asks every second and ends.
    pub fn is_revoked(&self) -> bool {
        self.session.is_revoked()
    }

    /// Whether it may have other roles by now than when the call began: [`Authn::again`] tells.
    pub fn is_outdated(&self) -> bool {
        self.session.is_outdated()
    }
}

/// Makes and checks tokens.
pub struct Authn {
    store: Store,
    signer: Signer,
    clock: Clock,
    /// Opens and closes what must be readable again: secrets of parts and locations.
    pub sealer: Arc<Sealer>,
    memory: Arc<Memory>,
}

impl Authn {
    /// Reads the server's key file in the data folder, or makes one.
    pub fn open(store: Store, memory: Arc<Memory>, folder: &Path, clock: Clock) -> Result<Self, KeyFileError> {
        let master = sealing::master_key(&folder.join(KEY_FILE))?;
        Ok(Self { store, signer: Signer::new(&master), clock, sealer: Arc::new(Sealer::new(&master)), memory })
    }

    /// A token for whoever knows the secret.
    ///
    /// `api-key` with the key's id, `robot-secret` or `robot-location-secret` with the part's id or its full name.
    pub async fn authenticate(&self, entity: &str, kind: &str, payload: &str) -> Result<String, Refusal> {
        let digest = digest_of(payload);
        if entity.contains('\0') {
            return Err(wrong());
        }
        let claim = match kind {
            "api-key" => {
                let key = self.store.read(|tx| keys::for_login(tx, entity)).await?;
                let key = key.filter(|key| same(&key.digest, &digest) && self.lives(key)).ok_or_else(wrong)?;
                Claim::api_key(entity, key.generation)
            }
            "robot-secret" | "robot-location-secret" => {
                let part = self.store.read(|tx| secrets::part_for_login(tx, entity)).await?.ok_or_else(wrong)?;
                self.device_claim(&part, &digest).await?
            }
            _ => {
                return Err(Refusal::unfit(
                    "credentials.type",
                    kind,
                    "give api-key, robot-secret or robot-location-secret",
                ));
            }
        };
        Ok(self.signer.token(&claim.ok_or_else(wrong)?))
    }

    fn lives(&self, key: &keys::Login) -> bool {
        key.expires_at.is_none_or(|at| at > self.clock.now())
    }

    /// Devices in the field send either kind of secret under either name: both are tried.
    async fn device_claim(&self, part: &str, digest: &str) -> Result<Option<Claim>, Refusal> {
        let of_part = self.store.read(|tx| secrets::digests_of_part(tx, part)).await?;
        if let Some((secret, _)) = of_part.iter().find(|(_, stored)| same(stored, digest)) {
            return Ok(Claim::part(secret, part));
        }
        let of_locations = self.store.read(|tx| secrets::digests_of_locations_above(tx, part)).await?;
        let found = of_locations.iter().find(|(_, stored)| same(stored, digest));
        found.map(|(secret, _)| Ok(Claim::location(secret, part))).ok_or_else(wrong)?
    }

    /// Who holds this token. The usual case touches no database.
    pub async fn caller(&self, token: Option<&str>, from: IpAddr) -> Result<Caller, Refusal> {
        let token = token.ok_or_else(|| Refusal::unauthenticated(NO_TOKEN))?;
        let claim = self.signer.open(token).ok_or_else(|| Refusal::unauthenticated(BAD_TOKEN))?;
        self.holder(&claim, from).await
    }

    /// Whoever calls, as it is by now: for a call that stays open. Refused if its key or secret is not good any more.
    pub async fn again(&self, caller: &Caller) -> Result<Caller, Refusal> {
        if caller.is_revoked() {
            return Err(Refusal::unauthenticated(ENDED));
        }
        match &caller.session.claim {
            Some(claim) if caller.is_outdated() => self.holder(claim, caller.from).await,
            _ => Ok(caller.clone()),
        }
    }

    async fn holder(&self, claim: &Claim, from: IpAddr) -> Result<Caller, Refusal> {
        let bad = || Refusal::unauthenticated(BAD_TOKEN);
        let remembered = self.memory.freshness.is_current().then(|| self.memory.sessions.get(&claim.session()));
        let session = match remembered.flatten().filter(|session| !session.is_over()) {
            Some(session) => session,
            // Not known, or ended this very moment: of that its own token may not be the reason.
            None => self.load(claim).await?.ok_or_else(bad)?,
        };
        if session.generation != claim.generation() || session.is_revoked() {
            return Err(bad());
        }
        Ok(Caller { session, from })
    }

    async fn load(&self, claim: &Claim) -> Result<Option<Arc<Session>>, Refusal> {
        let sessions = &self.memory.sessions;
        for _ in 0..LOOKUPS_MAX {
            let before = sessions.revocations();
            let found = self.store.read::<_, DbError>(|tx| Ok((look_up(tx, claim)?, news::newest(tx)?))).await?;
            let (Some((who, generation, ends)), read_at) = found else {
                sessions.forget(&claim.session(), claim.generation());
                return Ok(None);
            };
            let mut session = Session::new(who, generation, read_at);
            session.ends = ends.map(|at| (at, self.clock.clone()));
            session.claim = Some(claim.clone());
            let session = sessions.remember(claim.session(), session, before);
            if session.is_some() {
                return Ok(session);
            }
        }
        Err(DbError::Closed.into())
    }
}

fn look_up(tx: &Tx<'_>, claim: &Claim) -> Result<Option<(Who, u64, Option<Millis>)>, DbError> {
    Ok(match claim {
        Claim::ApiKey { id, generation } => {
            let id = ids::from_bytes(*id);
            let Some(key) = keys::for_login(tx, &id)?.filter(|key| key.generation == *generation) else {
                return Ok(None);
            };
            let grants = roles::of_identity(tx, key.user.as_deref().unwrap_or(&id))?;
            Some((Who::ApiKey { id, user: key.user, grants }, *generation, key.expires_at))
        }
        Claim::Part { secret, part } => {
            let (secret, part) = (ids::from_bytes(*secret), ids::from_bytes(*part));
            let there = secrets::digests_of_part(tx, &part)?.iter().any(|(id, _)| *id == secret);
            there.then_some((Who::Part { part }, 0, None))
        }
        Claim::Location { secret, part } => {
            let (secret, part) = (ids::from_bytes(*secret), ids::from_bytes(*part));
            secrets::location_of_secret(tx, &secret)?.map(|location| (Who::LocationSecret { part, location }, 0, None))
        }
    })
}

fn wrong() -> Refusal {
    Refusal::unauthenticated(WRONG)
}

/// What is kept of a secret that need not be shown again. Enough for secrets of 128 random bits and more.
pub fn digest_of(secret: &str) -> String {
    hex::encode(digest::digest(&digest::SHA256, secret.as_bytes()).as_ref())
}

/// Compares in a time that depends on the length only.
fn same(one: &str, other: &str) -> bool {
    let differences = one.bytes().zip(other.bytes()).fold(0, |sum, (a, b)| sum | (a ^ b));
    one.len() == other.len() && std::hint::black_box(differences) == 0
}
