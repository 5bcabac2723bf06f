//! Bluetooth LE: a table of services that whoever is near can find, read and write; pairing; tethering.
//!
//! The radio may be missing, be plugged in late, or its daemon be restarted: an offer then ends with an error and can be
//! made again. Values that are read are kept by the port, so that a read costs the agent nothing and never waits.

use std::{fmt, rc::Rc};

use async_trait::async_trait;

/// Longest value of a characteristic, in bytes (Bluetooth Core 5.4, Vol 3, Part F, 3.2.9).
pub const VALUE_BYTES_MAX: usize = 512;

/// A 128-bit UUID; the 16-bit ones of the Bluetooth SIG are written out in full.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Uuid(pub u128);

impl Uuid {
    /// `0x4677` of the Bluetooth SIG.
    #[must_use]
    pub const fn short(number: u16) -> Uuid {
        Uuid(((number as u128) << 96) | 0x0000_0000_0000_1000_8000_0080_5f9b_34fb)
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hex = format!("{:032x}", self.0);
        for (at, part) in [0..8, 8..12, 12..16, 16..20, 20..32].into_iter().enumerate() {
            if at > 0 {
                f.write_str("-")?;
            }
            f.write_str(hex.get(part).unwrap_or_default())?;
        }
        Ok(())
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What can be done with a characteristic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allows {
    /// Reading.
    pub read: bool,
    /// Writing, long values in pieces. The phone is told whether it was taken.
    pub write: bool,
    /// Writing without an answer too. BlueZ then tells a phone that asks for one that its write was taken, whatever becomes
    /// of it.
    pub write_unanswered: bool,
    /// Being told of changes.
    pub notify: bool,
}

/// One value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Characteristic {
    /// Its name.
    pub uuid: Uuid,
    /// What can be done with it.
    pub allows: Allows,
}

/// Values that belong together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Its name.
    pub uuid: Uuid,
    /// Its values.
    pub characteristics: Vec<Characteristic>,
}

/// A service that is named to who scans, with data that must be in the same packet. Of the packet's 31 bytes, 18 are the
/// service's name, so that 6 bytes of data with a short name are the most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Which.
    pub service: Uuid,
    /// The data and its name.
    pub data: Option<(Uuid, Vec<u8>)>,
}

/// What is found by who scans.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advertisement {
    /// Name of the device; the port shortens what does not fit into the packet.
    pub name: String,
    /// One packet each, taking turns.
    pub found: Vec<Found>,
}

/// What is offered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// What is found.
    pub advertisement: Advertisement,
    /// What is there then.
    pub services: Vec<Service>,
}

/// Why a write is refused, as the phone sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteRefused {
    /// What was written cannot be understood.
    Invalid,
    /// Longer than this value may be.
    TooLong,
    /// Not before somebody has unlocked or authorized it.
    NotAuthorized,
    /// Not now.
    Busy,
}

/// Something that whoever is near did. Values may be secrets: no `Debug`.
pub enum Visit {
    /// A value was written; the phone waits for the answer when it asked for one.
    Write {
        /// Which.
        characteristic: Uuid,
        /// Whose: the same text for as long as the phone is connected.
        phone: String,
        /// All of it, put together when it came in pieces. At most [`VALUE_BYTES_MAX`].
        value: Secretive,
        /// Takes the answer.
        answer: Box<dyn FnOnce(Result<(), WriteRefused>)>,
    },
    /// Somebody wants to pair, and showed this number where numbers are compared.
    Pairing {
        /// Whose.
        phone: String,
        /// What both sides show.
        passkey: Option<u32>,
        /// Takes the answer.
        answer: Box<dyn FnOnce(bool)>,
    },
    /// A phone has paired and offers its own internet connection (PAN).
    Tether {
        /// Address of the phone.
        phone: String,
    },
    /// A phone that offered its own connection before has connected by itself.
    Back {
        /// Address of the phone.
        phone: String,
    },
    /// A phone has come or gone.
    Connected {
        /// Whose.
        phone: String,
        /// Come.
        here: bool,
    },
}

/// Bytes that may be a secret: no `Debug`, and no accident.
#[derive(Clone, PartialEq, Eq)]
pub struct Secretive(Vec<u8>);

impl Secretive {
    /// Takes them out of the light.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Secretive {
        Secretive(bytes)
    }

    /// The bytes themselves.
    #[must_use]
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

/// Why nothing can be offered. The message says what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BluetoothError {
    /// No daemon or no adapter.
    #[error("there is no Bluetooth: {0}")]
    Absent(String),
    /// Switched off by hand.
    #[error("Bluetooth is switched off: {0}")]
    Blocked(String),
    /// The daemon refused.
    #[error("the Bluetooth daemon refused: {0}")]
    Refused(String),
}

/// An offer that stands; dropping it takes it back.
#[async_trait(?Send)]
pub trait Standing {
    /// What is done next. An error when the offer has ended by itself: daemon restarted, adapter gone. Cancel-safe.
    async fn next(&self) -> Result<Visit, BluetoothError>;

    /// Puts a value in place for who reads, and tells those who want to be told. At most [`VALUE_BYTES_MAX`]; the rest
    /// is cut off.
    fn set(&self, characteristic: Uuid, value: &[u8]);

    /// Changes the data of this name in the advertisement.
    fn set_service_data(&self, name: Uuid, data: &[u8]);

    /// Sends phones away: what they have begun is forgotten.
    fn disconnect_all(&self);
}

/// The Bluetooth daemon and its adapter.
#[async_trait(?Send)]
pub trait Bluetooth {
    /// Whether there is a daemon with an adapter; costs nothing.
    fn present(&self) -> bool;

    /// Resolves when [`Bluetooth::present`] differs from what it was when this was called. Cancel-safe.
    async fn changed(&self);

    /// Offers this, on the first adapter that can, until the answer is dropped.
    async fn offer(&self, offer: &Offer) -> Result<Rc<dyn Standing>, BluetoothError>;

    /// Addresses of phones that are near, and once were let in and offered their own connection to the internet. None while
    /// one shares it, while the adapter is off, and where nobody can tell. Takes some seconds for each that is not near.
    async fn sharers(&self) -> Vec<String>;

    /// Uses a paired phone's own connection to the internet (PAN user). Resolves when the link has an address.
    async fn tether(&self, phone: &str) -> Result<(), BluetoothError>;
}
