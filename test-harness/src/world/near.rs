//! Phones that speak Bluetooth with the device: existing apps, and bystanders.
//!
//! Every opening of a simulated door has the same keys for the same password: made anew each time they would be most of
//! what a simulated month costs. That keys are new at each opening is shown beside the door itself.

use std::{cell::RefCell, collections::BTreeMap, sync::OnceLock, time::Duration};

use actors::provisioning::ble::{characteristics::TABLE, session::Keys};
use api::Secret;
use board::bluetooth::{Uuid, WriteRefused};
use board_sim::{SimPhone, random::Random};
use rsa_key::Key;

use super::{World, seconds};

/// How long a phone waits for an answer.
const PATIENCE: Duration = seconds(5);

/// The key of every simulated door.
fn key() -> &'static Key {
    static KEY: OnceLock<Key> = OnceLock::new();
    KEY.get_or_init(|| Key::make(&mut chance(&Random::new(7))).expect("there is chance"))
}

fn chance(random: &Random) -> impl FnMut(&mut [u8]) -> bool + use<> {
    let random = random.branch();
    move |bytes: &mut [u8]| {
        bytes.iter_mut().for_each(|byte| *byte = u8::try_from(random.below(256)).unwrap_or(0));
        true
    }
}

/// Keys of a simulated door with this password.
pub fn keys(password: &Secret) -> Option<Keys> {
    thread_local! {
        static MADE: RefCell<BTreeMap<String, Keys>> = const { RefCell::new(BTreeMap::new()) };
    }
    if let Some(keys) = MADE.with_borrow(|made| made.get(password.expose()).cloned()) {
        return Some(keys);
    }
    let keys = Keys::with(key().clone(), password, &mut chance(&Random::new(11)))?;
    MADE.with_borrow_mut(|made| made.insert(password.expose().to_owned(), keys.clone()));
    Some(keys)
}

/// What an existing app writes for this value.
#[must_use]
pub fn sealed(random: &Random, password: &str, value: &str) -> Vec<u8> {
    let mut seed = [0; 32];
    chance(random)(&mut seed);
    key().seal(format!("{password}:{value}").as_bytes(), &seed)
}

/// The name in the air of a characteristic.
///
/// # Panics
/// When there is none of this name.
#[must_use]
pub fn uuid(name: &str) -> Uuid {
    TABLE.iter().find(|row| row.name == name).unwrap_or_else(|| panic!("no characteristic {name}")).uuid
}

/// A packet of Improv: a command and its strings.
#[must_use]
pub fn improv(command: u8, strings: &[&str]) -> Vec<u8> {
    let short = |length: usize| u8::try_from(length).unwrap_or(u8::MAX);
    let data: Vec<u8> = strings.iter().flat_map(|text| [&[short(text.len())], text.as_bytes()].concat()).collect();
    let mut packet = [&[command, short(data.len())], &data[..]].concat();
    packet.push(packet.iter().fold(0, |sum: u8, byte| sum.wrapping_add(*byte)));
    packet
}

impl World {
    /// A phone near the device, connected, if anything is offered.
    #[must_use]
    pub fn near(&self, name: &str) -> Option<SimPhone> {
        let phone = self.board.bluetooth.phone(name);
        phone.connect().then_some(phone)
    }

    /// Writes a value and waits for the answer; `None` when none comes.
    pub fn write(&mut self, phone: &SimPhone, name: &str, value: &[u8]) -> Option<Result<(), WriteRefused>> {
        let answer = phone.write(uuid(name), value);
        let waiting = answer.clone();
        self.run_until(PATIENCE, move |_| waiting.answer().is_some());
        answer.answer()
    }

    /// What an existing app does: these values, sealed with what it believes to be the password, and that this was all.
    pub fn app_gives(&mut self, phone: &SimPhone, password: &str, values: &[(&str, &str)]) -> bool {
        let random = self.board.random.branch();
        let all = values.iter().copied().chain([("exit_provisioning", "1")]);
        let all: Vec<_> = all.map(|(name, value)| (name, sealed(&random, password, value))).collect();
        all.iter().all(|(name, value)| self.write(phone, name, value) == Some(Ok(())))
    }
}
