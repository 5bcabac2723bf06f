//! One opening of the Bluetooth door: from a write to its visits, from a welcome to the values that phones read.
//!
//! Pure: bytes and the time go in, visits and bytes come out. A session ends with the door, and its keys with it: what
//! somebody recorded is worth nothing at the next one.
//!
//! How it is used, by who owns the door:
//! 1. [`Keys::make`] on a thread that may take seconds, then [`Session::new`] with what there is to show.
//! 2. [`Session::offer`] to the radio, then [`Session::changes`] for all values; again after every call below.
//! 3. [`Session::welcome`] when there is something new to show, [`Session::write`], [`Session::pairing`],
//!    [`Session::left`] as phones do things, [`Session::refused`] when a visit is not permitted, [`Session::present`] when a person is at the device, [`Session::tick`] at
//!    [`Session::deadline`].

use std::{rc::Rc, time::Duration};

use api::Secret;
use board::{
    Mono,
    bluetooth::{Advertisement, Found, Offer, Uuid, VALUE_BYTES_MAX, WriteRefused},
};

use rsa_key::{Chance, Key};

use super::{
    channel::{Channel, Stretched, Verdict},
    characteristics::{self, Group, IMPROV_DATA, Role, Shows, TABLE, Takes, Value},
    draft::{Draft, Unfit},
    improv::Improv,
    limit::Limit,
    sealing::{Opened, Refused, Sealing},
};
use crate::provisioning::{
    visit::{Door, Visit},
    welcome::{IdentityDoor, Welcome},
};

/// Phones may pair for so long after somebody unlocked it.
const UNLOCKED: Duration = Duration::from_secs(120);
/// Most that one write can mean: who the device is, its network, and that this was all.
pub const VISITS_MAX: usize = 3;

/// Said of every value that is not sealed as it should be, whatever it is.
const UNOPENED: &str = "a value could not be opened: is the password of this device's hotspot right?";
/// Said of an identity that is not wanted.
const KEEPS_IDENTITY: &str = "this device has an identity and keeps it";

/// What the configuration says of this door.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Name in the advertisement.
    pub name: String,
    /// Password of the hotspot, which phones must know here too.
    pub password: Secret,
    /// Every phone may pair.
    pub trust_all: bool,
    /// Improv is offered.
    pub improv: bool,
    /// Improv waits for a person at the device.
    pub improv_needs_presence: bool,
    /// Where a person goes on after Improv; may be empty.
    pub url: Rc<str>,
}

/// Keys of one session. They belong to one password.
#[derive(Clone)]
pub struct Keys {
    rsa: Key,
    stretched: Stretched,
}

impl Keys {
    /// Makes them: a tenth of a second here, seconds on a small board. `None` when there is no chance to be had.
    #[must_use]
    pub fn make(password: &Secret, chance: Chance<'_>) -> Option<Keys> {
        let rsa = Key::make(chance)?;
        Keys::with(rsa, password, chance)
    }

    /// The same with a key that is there already: for simulations and tests.
    #[must_use]
    pub fn with(rsa: Key, password: &Secret, chance: Chance<'_>) -> Option<Keys> {
        let mut salt = [0; 16];
        chance(&mut salt).then(|| Keys { rsa, stretched: Stretched::new(password, salt) })
    }
}

/// What a write means.
#[derive(Debug, PartialEq, Eq)]
pub struct Visits {
    /// Which door it was.
    pub door: Door,
    /// In this order; empty when it has no meaning yet.
    pub visits: heapless::Vec<Visit, VISITS_MAX>,
}

/// Values that differ from what was given last.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// For [`board::bluetooth::Standing::set`].
    pub values: Vec<(Uuid, Vec<u8>)>,
    /// For [`board::bluetooth::Standing::set_service_data`].
    pub service_data: Option<(Uuid, Vec<u8>)>,
}

/// One opening of the door.
pub struct Session {
    name: String,
    trust_all: bool,
    sealing: Sealing,
    channel: Channel,
    improv: Option<Improv>,
    limit: Limit,
    draft: Draft,
    mistyped: Option<String>,
    unlocked_until: Option<Mono>,
    welcome: Welcome,
    given: Vec<(Uuid, Vec<u8>)>,
    given_data: Option<[u8; 6]>,
    /// Errors and results of Improv that were given.
    told: (u64, u64),
}

impl Session {
    /// A session with these keys, which must have been made for this password.
    #[must_use]
    pub fn new(settings: &Settings, keys: Keys, welcome: &Welcome) -> Session {
        Session {
            name: settings.name.clone(),
            trust_all: settings.trust_all,
            sealing: Sealing::new(keys.rsa, settings.password.clone()),
            channel: Channel::new(keys.stretched),
            improv: settings.improv.then(|| Improv::new(settings.improv_needs_presence, &settings.url)),
            limit: Limit::default(),
            draft: Draft::default(),
            mistyped: None,
            unlocked_until: None,
            welcome: welcome.clone(),
            given: Vec::new(),
            given_data: None,
            told: (0, 0),
        }
    }

    /// What the radio is to offer.
    #[must_use]
    pub fn offer(&self) -> Offer {
        let groups = [Some(Group::Classic), Some(Group::Channel), self.improv.is_some().then_some(Group::Improv)];
        let mut found = vec![Found { service: Group::Classic.uuid(), data: None }];
        if let Some(improv) = &self.improv {
            let data = Some((IMPROV_DATA, improv.service_data().to_vec()));
            found.push(Found { service: Group::Improv.uuid(), data });
        }
        Offer {
            advertisement: Advertisement { name: self.name.clone(), found },
            services: groups.into_iter().flatten().map(characteristics::service).collect(),
        }
    }

    /// What phones are to read from now on. An offer that is made anew needs all of it: [`Session::forget_given`].
    pub fn changes(&mut self) -> Changes {
        let mut changes = Changes::default();
        let told = self.improv.as_ref().map(Improv::told).unwrap_or_default();
        let before = std::mem::replace(&mut self.told, told);
        for row in &TABLE {
            let Role::Shows(shows, _) = row.role else { continue };
            let Some(value) = self.shown(shows) else { continue };
            match self.given.iter_mut().find(|(uuid, _)| *uuid == row.uuid) {
                // Each error and each result is told, though it be the same as the one before.
                Some((_, given)) if *given == value => match shows {
                    Shows::ImprovError if told.0 != before.0 => {}
                    Shows::ImprovResult if told.1 != before.1 => {}
                    _ => continue,
                },
                Some((_, given)) => given.clone_from(&value),
                None => self.given.push((row.uuid, value.clone())),
            }
            changes.values.push((row.uuid, value));
        }
        let data = self.improv.as_ref().map(Improv::service_data);
        if data != self.given_data {
            self.given_data = data;
            changes.service_data = data.map(|data| (IMPROV_DATA, data.to_vec()));
        }
        changes
    }

    /// The radio lost what it was given.
    pub fn forget_given(&mut self) {
        self.given.clear();
        self.given_data = None;
    }

    /// There is something new to show.
    pub fn welcome(&mut self, now: Mono, welcome: &Welcome) {
        self.welcome = welcome.clone();
        if let Some(improv) = &mut self.improv {
            improv.welcome(now, welcome);
        }
    }

    /// A phone wrote this. What is refused has changed nothing but what phones read of errors.
    pub fn write(
        &mut self,
        now: Mono,
        phone: &str,
        characteristic: Uuid,
        bytes: &[u8],
    ) -> Result<Visits, WriteRefused> {
        let row = characteristics::row(characteristic).ok_or(WriteRefused::Invalid)?;
        let Role::Takes(takes) = row.role else { return Err(WriteRefused::Invalid) };
        if bytes.len() > VALUE_BYTES_MAX {
            return Err(WriteRefused::TooLong);
        }
        let visits = match takes {
            Takes::Sealed(value) => self.sealed(now, value, bytes)?,
            Takes::Begin => self.begin(now, phone, bytes)?,
            Takes::Message => self.message(now, phone, bytes)?,
            Takes::ImprovCommand => {
                let improv = self.improv.as_mut().ok_or(WriteRefused::Invalid)?;
                improv.tick(now);
                let visit = improv.command(now, phone, bytes, &self.welcome)?;
                return Ok(Visits { door: Door::Improv, visits: visit.into_iter().collect() });
            }
        };
        Ok(Visits { door: Door::Bluetooth, visits })
    }

    /// What the last write meant was refused by whoever decides: another network is being tried, or the door closes.
    pub fn refused(&mut self, door: Door) {
        if let (Door::Improv, Some(improv)) = (door, &mut self.improv) {
            improv.refused();
        }
    }

    /// Whether this phone may pair now.
    pub fn pairing(&mut self, now: Mono) -> bool {
        self.tick(now);
        self.trust_all || self.unlocked_until.is_some()
    }

    /// A phone has gone: what it had begun and not finished is forgotten. Values that were taken stay, because phones
    /// lose their connection between two writes.
    pub fn left(&mut self, phone: &str) {
        self.channel.left(phone);
        if let Some(improv) = &mut self.improv {
            improv.left(phone);
        }
    }

    /// A person is at the device, for a minute.
    pub fn present(&mut self, now: Mono) {
        if let Some(improv) = &mut self.improv {
            improv.present(now);
        }
    }

    /// The moment at which time alone would change something.
    #[must_use]
    pub fn deadline(&self) -> Option<Mono> {
        let presence = self.improv.as_ref().and_then(Improv::deadline);
        [presence, self.unlocked_until].into_iter().flatten().min()
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Mono) {
        if let Some(improv) = &mut self.improv {
            improv.tick(now);
        }
        self.unlocked_until = self.unlocked_until.filter(|until| *until > now);
    }

    fn shown(&self, shows: Shows) -> Option<Vec<u8>> {
        let welcome = &self.welcome;
        Some(match shows {
            Shows::PublicKey => self.sealing.public_der(),
            Shows::Status => vec![characteristics::status(welcome)],
            Shows::Networks => characteristics::networks(welcome),
            Shows::Errors => characteristics::errors(welcome, self.mistyped.as_deref()),
            Shows::Manufacturer => characteristics::text(&welcome.manufacturer),
            Shows::Model => characteristics::text(&welcome.model),
            Shows::FragmentId => characteristics::text(welcome.fragment_id.as_deref().unwrap_or_default()),
            Shows::AgentVersion => characteristics::text(&welcome.agent_version),
            Shows::Hello => self.channel.hello(),
            Shows::Answer => self.channel.answer().to_vec(),
            Shows::ImprovState => vec![self.improv.as_ref()?.state()],
            Shows::ImprovError => vec![self.improv.as_ref()?.trouble()],
            Shows::ImprovResult => self.improv.as_ref()?.result().to_vec(),
            Shows::ImprovCapabilities => vec![self.improv.as_ref().map(|_| super::improv::CAPABILITIES)?],
        })
    }

    fn sealed(&mut self, now: Mono, value: Value, bytes: &[u8]) -> Result<Taken, WriteRefused> {
        if self.sealing.is_new(bytes) && !self.limit.allows(now) {
            return Err(WriteRefused::Busy);
        }
        let plain = match self.sealing.open(value, bytes) {
            Ok(Opened::Again) => return Ok(Taken::new()),
            Ok(Opened::Value(plain)) => plain,
            Err(Refused::Full) => return Err(WriteRefused::Busy),
            Err(Refused::Wrong) => {
                self.limit.wrong(now);
                // The same for everything that can be wrong; where BlueZ gives no answer, this is the answer.
                self.mistyped = Some(UNOPENED.to_owned());
                return Err(WriteRefused::Invalid);
            }
        };
        let identity = matches!(value, Value::PartId | Value::Secret | Value::ApiKey) && !plain.is_empty();
        if identity && self.welcome.identity == IdentityDoor::Shut {
            self.mistyped = Some(KEEPS_IDENTITY.to_owned());
            return Err(WriteRefused::NotAuthorized);
        }
        let taken = match value {
            Value::Ssid => self.draft.ssid(&plain),
            Value::Psk => self.draft.psk(&plain),
            Value::PartId => self.draft.part_id(&plain),
            Value::Secret => self.draft.secret(&plain),
            Value::ApiKey => self.draft.api_key(&plain),
            Value::AppAddress => self.draft.app_address(&plain),
            Value::UnlockPairing => return self.unlock(now, &plain),
            Value::Exit => return self.finish(),
        };
        self.judge(taken)?;
        Ok(touched())
    }

    fn unlock(&mut self, now: Mono, plain: &[u8]) -> Result<Taken, WriteRefused> {
        self.unlocked_until = match plain {
            b"1" | b"t" | b"T" | b"true" | b"True" | b"TRUE" => Some(now + UNLOCKED),
            b"" | b"0" | b"f" | b"F" | b"false" | b"False" | b"FALSE" => None,
            _ => return Err(WriteRefused::Invalid),
        };
        Ok(touched())
    }

    /// That was all: what was written becomes visits.
    fn finish(&mut self) -> Result<Taken, WriteRefused> {
        let taken = self.draft.take();
        let mut visits: Taken = self.judge(taken)?.into_iter().collect();
        leave(&mut visits);
        Ok(visits)
    }

    fn begin(&mut self, now: Mono, phone: &str, half: &[u8]) -> Result<Taken, WriteRefused> {
        if !self.limit.allows(now) {
            return Err(WriteRefused::Busy);
        }
        if self.channel.begin(phone, half).is_none() {
            self.limit.wrong(now);
            return Err(WriteRefused::Invalid);
        }
        Ok(touched())
    }

    fn message(&mut self, now: Mono, phone: &str, message: &[u8]) -> Result<Taken, WriteRefused> {
        if !self.limit.allows(now) {
            return Err(WriteRefused::Busy);
        }
        let Some(fields) = self.channel.hear(phone, message) else {
            self.limit.wrong(now);
            return Err(WriteRefused::Invalid);
        };
        let (verdict, sentence, visits) = match self.fields(now, &fields) {
            Ok(visits) => (Verdict::Taken, String::new(), Ok(visits)),
            Err(WriteRefused::NotAuthorized) => {
                (Verdict::NotAllowed, KEEPS_IDENTITY.to_owned(), Err(WriteRefused::NotAuthorized))
            }
            Err(refused) => (Verdict::Unfit, self.mistyped.clone().unwrap_or_default(), Err(refused)),
        };
        self.channel.say(phone, verdict, &sentence);
        visits
    }

    /// All fields of a message, or none of them.
    fn fields(&mut self, now: Mono, mut rest: &[u8]) -> Result<Taken, WriteRefused> {
        let mut draft = Draft::default();
        let mut key_id: Option<&[u8]> = None;
        let (mut leaves, mut rescans, mut unlocks) = (false, false, None);
        while let Some((tag, after)) = rest.split_first() {
            let (length, after) = after.split_first_chunk().ok_or(WriteRefused::Invalid)?;
            let length = usize::from(u16::from_be_bytes(*length));
            let (value, after) = after.split_at_checked(length).ok_or(WriteRefused::Invalid)?;
            rest = after;
            if matches!(tag, 5..=8) && self.welcome.identity == IdentityDoor::Shut {
                return Err(WriteRefused::NotAuthorized);
            }
            let taken = match tag {
                1 => draft.ssid(value),
                2 => draft.psk(value),
                3 => {
                    draft.hidden(value == b"\x01");
                    Ok(())
                }
                4 => draft.app_address(value),
                5 => draft.part_id(value),
                6 => draft.secret(value),
                7 => {
                    key_id = Some(value);
                    Ok(())
                }
                8 => draft.api_key_pair(key_id.ok_or(WriteRefused::Invalid)?, value),
                9 => {
                    leaves = true;
                    Ok(())
                }
                10 => {
                    rescans = true;
                    Ok(())
                }
                11 => {
                    unlocks = Some(value);
                    Ok(())
                }
                _ => return Err(WriteRefused::Invalid),
            };
            self.judge(taken)?;
        }
        let taken = draft.take();
        let mut visits: Taken = self.judge(taken)?.into_iter().collect();
        if let Some(value) = unlocks {
            self.unlock(now, value)?;
        }
        if leaves {
            leave(&mut visits);
        } else if visits.is_empty() {
            let _ = visits.push(if rescans { Visit::Rescan } else { Visit::Touched });
        }
        Ok(visits)
    }

    /// What cannot be right is told in words, until something right is written.
    fn judge<T>(&mut self, taken: Result<T, Unfit>) -> Result<T, WriteRefused> {
        match taken {
            Ok(taken) => {
                self.mistyped = None;
                Ok(taken)
            }
            Err(unfit) => {
                self.mistyped = Some(unfit.to_string());
                Err(WriteRefused::Invalid)
            }
        }
    }
}

type Taken = heapless::Vec<Visit, VISITS_MAX>;

/// The visitor is done. A network that was given is tried at once, and there is nothing to leave until that has ended.
fn leave(visits: &mut Taken) {
    if !visits.iter().any(|visit| matches!(visit, Visit::Network(_))) {
        // There is room for a third.
        let _ = visits.push(Visit::Leave);
    }
}

/// Somebody who knows the password is here.
fn touched() -> Taken {
    [Visit::Touched].into_iter().collect()
}
