//! Waits until a connection is up, by signals, and finds out why it is not.

use std::{collections::HashMap, time::Duration};

use board::{Clock, Mono, network::NetworkError};
use smol::{future::FutureExt as _, stream::StreamExt as _};
use zbus::{
    MatchRule, Message, MessageStream,
    message::Type,
    zvariant::{ObjectPath, Value},
};

use super::{
    daemon::{ACTIVE, DEVICE, Daemon, PROPERTIES, trouble},
    known::state,
    reasons::device as reason,
    value,
};

/// States of a connection (`NMActiveConnectionState`).
const UP: u32 = 2;
const DOWN: u32 = 4;
/// What an access point answers to each half of the proof of a password (IEEE 802.11, status codes).
const ACCEPTED: i64 = 0;
const REFUSED: i64 = 1;
const PROOF_FAILED: i64 = 15;
const SUPPLICANT: &str = "fi.w1.wpa_supplicant1";
const SUPPLICANT_INTERFACE: &str = "fi.w1.wpa_supplicant1.Interface";
/// The device tells the reason at about the time at which its connection goes down.
const REASON_MAX: Duration = Duration::from_millis(500);

/// Why waiting ended without a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// A reason of the device's state.
    Reason(u32),
    /// The access point says that the password is wrong.
    WrongPassword,
    /// It took too long.
    TimedOut,
    /// The network manager went.
    Network(NetworkError),
}

impl From<NetworkError> for Failure {
    fn from(error: NetworkError) -> Self {
        Failure::Network(error)
    }
}

/// Signals of a device and of connections, listened to since before the connection was asked for.
pub(super) struct Watching {
    device: MessageStream,
    actives: MessageStream,
    /// What wpa_supplicant says of the password, where it says something.
    supplicant: Option<MessageStream>,
    /// An access point with WPA3 has taken the first half of the password's proof.
    half_proven: bool,
}

enum Event {
    Authentication(i64),
    Device { new: u32, reason: u32 },
    Active { path: String, state: u32, reason: u32 },
    Gone,
}

impl Watching {
    pub(super) async fn begin(daemon: &Daemon, device: &str) -> Result<Watching, NetworkError> {
        Ok(Watching {
            device: daemon.signals(Some(device), DEVICE, "StateChanged", None).await?,
            actives: daemon.signals(None, ACTIVE, "StateChanged", None).await?,
            supplicant: None,
            half_proven: false,
        })
    }

    /// Listens to wpa_supplicant too: the network manager tells a wrong password for WPA3 as a network that is not there,
    /// and only after 25 seconds.
    pub(super) async fn with_supplicant(mut self, daemon: &Daemon, interface: &str) -> Watching {
        self.supplicant =
            supplicant(daemon, interface).await.inspect_err(|error| log::debug!("wpa_supplicant: {error}")).ok();
        self
    }

    async fn next(&mut self) -> Event {
        let device = async { self.device.next().await.and_then(device_event) };
        let active = async { self.actives.next().await.and_then(active_event) };
        let supplicant = async {
            match &mut self.supplicant {
                Some(messages) => loop {
                    let message = messages.next().await?.ok()?;
                    if let Some(code) = authentication(&message) {
                        return Some(Event::Authentication(code));
                    }
                },
                None => std::future::pending().await,
            }
        };
        device.or(active).or(supplicant).await.unwrap_or(Event::Gone)
    }

    /// Resolves when `active` is up. `limit` is when it ends at the latest.
    pub(super) async fn up(
        &mut self,
        daemon: &Daemon,
        active: &str,
        limit: Mono,
        clock: &dyn Clock,
    ) -> Result<(), Failure> {
        if daemon.all(active, ACTIVE).await?.number("State") == UP {
            return Ok(());
        }
        let mut told = None;
        loop {
            let over = async {
                clock.sleep_until(limit).await;
                None
            };
            let Some(event) = async { Some(self.next().await) }.or(over).await else { return Err(Failure::TimedOut) };
            match event {
                Event::Gone => return Err(NetworkError::Absent("it went away".to_owned()).into()),
                Event::Authentication(ACCEPTED) => self.half_proven = true,
                Event::Authentication(REFUSED | PROOF_FAILED) if self.half_proven => {
                    return Err(Failure::WrongPassword);
                }
                Event::Device { new: state::FAILED, reason } => told = Some(reason),
                Event::Active { path, state: UP, .. } if path == active => return Ok(()),
                Event::Active { path, state: DOWN, reason } if path == active => {
                    return Err(Failure::Reason(match told {
                        Some(told) => told,
                        None => self.told_soon(clock).await.unwrap_or_else(|| of_active(reason)),
                    }));
                }
                Event::Device { .. } | Event::Active { .. } | Event::Authentication(_) => {}
            }
        }
    }

    /// Resolves when `active` is down, or was not there any more.
    pub(super) async fn down(&mut self, daemon: &Daemon, active: &str, limit: Mono, clock: &dyn Clock) {
        let gone = daemon.all(active, ACTIVE).await.map_or(DOWN, |properties| properties.number("State")) == DOWN;
        let told = async {
            loop {
                match self.next().await {
                    Event::Gone => return,
                    Event::Active { path, state: DOWN, .. } if path == active => return,
                    Event::Device { .. } | Event::Active { .. } | Event::Authentication(_) => {}
                }
            }
        };
        if !gone {
            told.or(clock.sleep_until(limit)).await;
        }
    }

    async fn told_soon(&mut self, clock: &dyn Clock) -> Option<u32> {
        let limit = clock.now() + REASON_MAX;
        let told = async {
            loop {
                match self.next().await {
                    Event::Device { new: state::FAILED, reason } => return Some(reason),
                    Event::Gone => return None,
                    Event::Device { .. } | Event::Active { .. } | Event::Authentication(_) => {}
                }
            }
        };
        let over = async {
            clock.sleep_until(limit).await;
            None
        };
        told.or(over).await
    }
}

/// A reason of a connection (`NMActiveConnectionStateReason`) in terms of a device's.
fn of_active(active: u32) -> u32 {
    match active {
        2 => reason::USER_REQUESTED,
        3 => reason::NEW_ACTIVATION,
        5 => reason::IP_CONFIG_UNAVAILABLE,
        6 => reason::SUPPLICANT_TIMEOUT,
        9 => reason::NO_SECRETS,
        11 => reason::CONNECTION_REMOVED,
        14 => reason::REMOVED,
        _ => 1,
    }
}

/// Changes of wpa_supplicant's object for this interface.
async fn supplicant(daemon: &Daemon, interface: &str) -> Result<MessageStream, NetworkError> {
    let connection = daemon.there.connection();
    let call = connection.call_method(
        Some(SUPPLICANT),
        "/fi/w1/wpa_supplicant1",
        Some(SUPPLICANT),
        "GetInterface",
        &interface,
    );
    let answer = call.await.map_err(trouble)?;
    let body = answer.body();
    let path: ObjectPath<'_> = body.deserialize().map_err(trouble)?;
    let rule = || {
        Ok::<_, zbus::Error>(
            MatchRule::builder()
                .msg_type(Type::Signal)
                .path(path)?
                .interface(PROPERTIES)?
                .member("PropertiesChanged")?
                .arg(0, SUPPLICANT_INTERFACE)?
                .build(),
        )
    };
    MessageStream::for_match_rule(rule().map_err(trouble)?, connection, None).await.map_err(trouble)
}

fn authentication(message: &Message) -> Option<i64> {
    let body = message.body();
    let (_, changed, _): (&str, HashMap<&str, Value<'_>>, Vec<&str>) = body.deserialize().ok()?;
    value::signed(changed.get("AuthStatusCode")?)
}

fn device_event(message: zbus::Result<Message>) -> Option<Event> {
    let message = message.ok()?;
    let (new, _old, reason): (u32, u32, u32) = message.body().deserialize().ok()?;
    Some(Event::Device { new, reason })
}

fn active_event(message: zbus::Result<Message>) -> Option<Event> {
    let message = message.ok()?;
    let (state, reason): (u32, u32) = message.body().deserialize().ok()?;
    let path = message.header().path()?.as_str().to_owned();
    Some(Event::Active { path, state, reason })
}
