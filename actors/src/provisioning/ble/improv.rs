//! Improv over Bluetooth LE, revision 2.2 of the open standard: gives the device a WiFi network, and nothing else.
//!
//! Owns its packets and its state. What it asks for is a [`Visit`] like any other; an identity is never one of them.
//! A person's presence is shown at the device and lasts a minute, as the standard advises.

use std::{collections::VecDeque, time::Duration};

use api::brand;
use board::{
    Mono,
    bluetooth::WriteRefused,
    network::{Security, Seen},
};

use crate::provisioning::{
    visit::{self, Visit},
    welcome::{Result as Outcome, Welcome},
};

/// The device can tell of itself, and of networks. It has nothing to blink or to sound with.
pub(super) const CAPABILITIES: u8 = 0b0110;
/// Presence lasts so long.
const PRESENCE: Duration = Duration::from_secs(60);
/// A phone that asks before anything was heard is answered when something is, and then at the latest: listening to all
/// channels takes a few seconds, and clients give up after ten.
const LISTENING: Duration = Duration::from_secs(8);
/// Command, length, data, sum.
const PACKET_MAX: usize = 3 + u8::MAX as usize;
/// Phones whose commands are in pieces at the same time.
const PHONES: usize = 4;

const WIFI: u8 = 1;
const IDENTIFY: u8 = 2;
const DEVICE_INFO: u8 = 3;
const SCAN: u8 = 4;

/// The standard's states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    NeedsPresence = 1,
    Ready = 2,
    Provisioning = 3,
    Provisioned = 4,
}

/// The standard's errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    None = 0,
    InvalidPacket = 1,
    UnknownCommand = 2,
    UnableToConnect = 3,
    NotAuthorized = 4,
}

/// The conversation with whoever speaks Improv.
pub(super) struct Improv {
    needs_presence: bool,
    present_until: Option<Mono>,
    /// A phone waits until then for what is heard.
    listens_until: Option<Mono>,
    url: String,
    /// The number of attempts there had been when a network was given.
    attempt: Option<u64>,
    outcome: State,
    trouble: Trouble,
    result: Vec<u8>,
    /// Errors and results so far: each is told, also the second of two that are the same.
    errors: u64,
    results: u64,
    pieces: VecDeque<(String, Vec<u8>)>,
}

impl Improv {
    /// `url` is where the person goes on afterwards; may be empty.
    pub(super) fn new(needs_presence: bool, url: &str) -> Improv {
        Improv {
            needs_presence,
            present_until: None,
            listens_until: None,
            url: url.chars().take(u8::MAX as usize / 4).collect(),
            attempt: None,
            outcome: State::Ready,
            trouble: Trouble::None,
            result: Vec::new(),
            errors: 0,
            results: 0,
            pieces: VecDeque::new(),
        }
    }

    pub(super) fn state(&self) -> u8 {
        let state = match self.outcome {
            State::Ready | State::NeedsPresence if !self.authorized() => State::NeedsPresence,
            other => other,
        };
        state as u8
    }

    pub(super) fn trouble(&self) -> u8 {
        self.trouble as u8
    }

    pub(super) fn result(&self) -> &[u8] {
        &self.result
    }

    /// How many errors and results there have been.
    pub(super) fn told(&self) -> (u64, u64) {
        (self.errors, self.results)
    }

    /// In the advertisement: state, capabilities, four zeros.
    pub(super) fn service_data(&self) -> [u8; 6] {
        [self.state(), CAPABILITIES, 0, 0, 0, 0]
    }

    /// Somebody is at the device.
    pub(super) fn present(&mut self, now: Mono) {
        self.present_until = Some(now + PRESENCE);
    }

    pub(super) fn deadline(&self) -> Option<Mono> {
        [self.present_until, self.listens_until].into_iter().flatten().min()
    }

    pub(super) fn tick(&mut self, now: Mono) {
        if self.present_until.is_some_and(|until| until <= now) {
            self.present_until = None;
        }
        if self.listens_until.is_some_and(|until| until <= now) {
            self.listens_until = None;
            self.answer(networks(&[]));
        }
    }

    /// What was heard for a phone that asked, and how the attempt goes that was made for a network given here.
    pub(super) fn welcome(&mut self, now: Mono, welcome: &Welcome) {
        if !welcome.networks.is_empty() && self.listens_until.take().is_some() {
            self.answer(networks(&welcome.networks));
        }
        let Some(before) = self.attempt else { return };
        let Some(attempt) = welcome.attempt.as_ref().filter(|attempt| attempt.number > before) else { return };
        match &attempt.result {
            Outcome::Trying => {}
            Outcome::Joined { .. } => {
                self.attempt = None;
                self.outcome = State::Provisioned;
                // Without an address the standard's result has no string at all; an empty one would be followed.
                let url = Some(self.url.as_bytes()).filter(|url| !url.is_empty());
                self.answer(packet(WIFI, url.as_slice()));
            }
            Outcome::Failed(_) => {
                self.attempt = None;
                self.outcome = State::Ready;
                self.fail(Trouble::UnableToConnect);
                // The minute begins anew: the person is still there, and typed something wrong.
                if self.present_until.is_some() {
                    self.present(now);
                }
            }
        }
    }

    /// The network that was given last is not tried.
    pub(super) fn refused(&mut self) {
        if self.attempt.take().is_some() {
            self.outcome = State::Ready;
            self.fail(Trouble::UnableToConnect);
        }
    }

    pub(super) fn left(&mut self, phone: &str) {
        self.pieces.retain(|(whose, _)| whose != phone);
    }

    /// A packet, or the next piece of one.
    pub(super) fn command(
        &mut self,
        now: Mono,
        phone: &str,
        piece: &[u8],
        welcome: &Welcome,
    ) -> Result<Option<Visit>, WriteRefused> {
        let mut packet = match self.pieces.iter().position(|(whose, _)| whose == phone) {
            Some(at) => self.pieces.remove(at).map(|(_, packet)| packet).unwrap_or_default(),
            None => Vec::new(),
        };
        packet.extend(piece.iter().take(PACKET_MAX + 1));
        self.trouble = Trouble::None;
        let wanted = match packet.get(1) {
            Some(length) => usize::from(*length) + 3,
            None if packet.is_empty() => return self.refuse(Trouble::InvalidPacket),
            None => PACKET_MAX,
        };
        if packet.len() < wanted {
            self.pieces.truncate(PHONES - 1);
            self.pieces.push_front((phone.to_owned(), packet));
            return Ok(None);
        }
        let Some((sum, body)) = packet.split_last() else { return self.refuse(Trouble::InvalidPacket) };
        if packet.len() > wanted || sum_of(body) != *sum {
            return self.refuse(Trouble::InvalidPacket);
        }
        let (command, data) = (body.first().copied(), body.get(2..).unwrap_or_default());
        match command {
            Some(WIFI) => self.wifi(data, welcome),
            Some(IDENTIFY | DEVICE_INFO | SCAN) if !data.is_empty() => self.refuse(Trouble::InvalidPacket),
            Some(IDENTIFY) => {
                log::info!("somebody near asks over Bluetooth (Improv) which device this is");
                Ok(None)
            }
            Some(DEVICE_INFO) => {
                let firmware = [brand::AGENT.as_bytes(), welcome.agent_version.as_bytes()];
                let device = [welcome.model.as_bytes(), welcome.hostname.as_bytes()];
                self.answer(self::packet(DEVICE_INFO, &[firmware, device].concat()));
                Ok(None)
            }
            Some(SCAN) => {
                if welcome.networks.is_empty() && self.authorized() {
                    self.listens_until.get_or_insert(now + LISTENING);
                } else {
                    self.answer(networks(&welcome.networks));
                }
                // Who may not give a network here may read what is heard anyway, and neither keeps a door open by it nor
                // the radio busy.
                Ok(self.authorized().then_some(Visit::Rescan))
            }
            _ => self.refuse(Trouble::UnknownCommand),
        }
    }

    fn wifi(&mut self, data: &[u8], welcome: &Welcome) -> Result<Option<Visit>, WriteRefused> {
        let Some((ssid, rest)) = string(data) else { return self.refuse(Trouble::InvalidPacket) };
        let Some((password, rest)) = string(rest) else { return self.refuse(Trouble::InvalidPacket) };
        let password = str::from_utf8(password);
        let (Ok(password), true) = (password, rest.is_empty()) else { return self.refuse(Trouble::InvalidPacket) };
        if !self.authorized() {
            return self.refuse(Trouble::NotAuthorized);
        }
        if self.outcome == State::Provisioning {
            return Err(WriteRefused::Busy);
        }
        let hidden = !welcome.networks.iter().any(|seen| seen.ssid.bytes() == ssid);
        let Ok(given) = visit::network(ssid, password, hidden) else {
            // A network that cannot be: for the standard that is one that cannot be joined.
            return self.refuse(Trouble::UnableToConnect);
        };
        self.attempt = Some(welcome.attempt.as_ref().map_or(0, |attempt| attempt.number));
        self.outcome = State::Provisioning;
        Ok(Some(Visit::Network(given)))
    }

    const fn authorized(&self) -> bool {
        !self.needs_presence || self.present_until.is_some()
    }

    /// The standard tells errors by its own characteristic; the write itself was received.
    fn refuse(&mut self, trouble: Trouble) -> Result<Option<Visit>, WriteRefused> {
        self.fail(trouble);
        Ok(None)
    }

    fn fail(&mut self, trouble: Trouble) {
        self.trouble = trouble;
        self.errors += 1;
    }

    /// The one before stays until then: an empty one would be no packet.
    fn answer(&mut self, result: Vec<u8>) {
        self.result = result;
        self.results += 1;
    }
}

fn sum_of(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |sum: u8, byte| sum.wrapping_add(*byte))
}

/// A string behind its length, and what follows.
fn string(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = data.split_first()?;
    rest.split_at_checked(usize::from(*length))
}

/// Strings, each behind its length, as many as fit; each cut to what is left.
fn packet(command: u8, strings: &[&[u8]]) -> Vec<u8> {
    let mut data = Vec::new();
    for string in strings {
        let Some(room) = usize::from(u8::MAX).checked_sub(data.len() + 1) else { break };
        let cut = string.get(..string.len().min(room)).unwrap_or_default();
        data.push(u8::try_from(cut.len()).unwrap_or_default());
        data.extend(cut);
    }
    let mut packet = vec![command, u8::try_from(data.len()).unwrap_or_default()];
    packet.extend(data);
    packet.push(sum_of(&packet));
    packet
}

/// Name, signal in dBm, kind: whole networks, as many as fit into one packet, strongest first. Names that are no text
/// cannot be said.
fn networks(heard: &[Seen]) -> Vec<u8> {
    let mut list: Vec<(&[u8], String, &[u8])> = Vec::new();
    let mut length = 0;
    for seen in heard.iter().filter(|seen| str::from_utf8(seen.ssid.bytes()).is_ok()) {
        let kind: &[u8] = match seen.security {
            Security::Open | Security::EnhancedOpen => b"NO",
            Security::Wep => b"WEP",
            Security::Wpa => b"WPA",
            Security::Wpa2 => b"WPA2",
            Security::Wpa2Wpa3 => b"WPA2/WPA3",
            Security::Wpa3 => b"WPA3",
            Security::Enterprise => b"WPA2 EAP",
        };
        // 100 is -50 dBm and better, 0 is -100 dBm and worse.
        let signal = (i32::from(seen.signal.min(100)) / 2 - 100).to_string();
        length += 3 + seen.ssid.bytes().len() + signal.len() + kind.len();
        if length > usize::from(u8::MAX) {
            break;
        }
        list.push((seen.ssid.bytes(), signal, kind));
    }
    let strings: Vec<&[u8]> = list.iter().flat_map(|(name, signal, kind)| [*name, signal.as_bytes(), *kind]).collect();
    packet(SCAN, &strings)
}
