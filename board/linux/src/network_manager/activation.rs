//! Waits until a connection is up, by signals, and finds out why it is not.

use std::time::Duration;

use super::{
    daemon::{ACTIVE, DEVICE, Daemon, PROPERTIES, trouble},
    known::state,
    reasons::device as reason,
};
use crate::dbus::{Inbox, Message, Rule, Said, Value};
use board::{Clock, Mono, network::NetworkError};
use smol::future::FutureExt as _;

/// States of a connection (`NMActiveConnectionState`).
const UP: u32 = 2;
const DOWN: u32 = 4;
/// A reason of a connection.
const DOWN_FOR_NO_REASON: u32 = 1;
/// What an access point answers to each half of the proof of a password (IEEE 802.11, status codes).
const ACCEPTED: i64 = 0;
const REFUSED: i64 = 1;
const PROOF_FAILED: i64 = 15;
const SUPPLICANT: &str = "fi.w1.wpa_supplicant1";
const SUPPLICANT_INTERFACE: &str = "fi.w1.wpa_supplicant1.Interface";
/// It ends this long after it has let go of its devices.
const LEAVING_MAX: Duration = Duration::from_secs(10);
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
    /// The network manager went, or said something else.
    Network(NetworkError),
}

impl From<NetworkError> for Failure {
    fn from(error: NetworkError) -> Self {
        Failure::Network(error)
    }
}

/// Signals of a device and of connections, listened to since before the connection was asked for.
pub(super) struct Watching {
    device: Inbox,
    actives: Inbox,
    /// What wpa_supplicant says of the password, where it says something.
    supplicant: Option<Inbox>,
    /// An access point with WPA3 has taken the first half of the password's proof.
    half_proven: bool,
    /// The network manager lets go of the device, as it does when it ends.
    leaving: bool,
}

enum Event {
    Authentication(i64),
    Device {
        new: u32,
        reason: u32,
    },
    Active {
        path: String,
        state: u32,
        reason: u32,
    },
    /// Some were not read in time.
    Lost,
    Gone,
}

impl Watching {
    pub(super) async fn begin(daemon: &Daemon, device: &str) -> Result<Watching, NetworkError> {
        Ok(Watching {
            device: daemon.signals(Some(device), DEVICE, "StateChanged", None).await?,
            actives: daemon.signals(None, ACTIVE, "StateChanged", None).await?,
            supplicant: None,
            half_proven: false,
            leaving: false,
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
        let device = async { read(&mut self.device, device_event).await };
        let active = async { read(&mut self.actives, active_event).await };
        let supplicant = async {
            match &mut self.supplicant {
                // Lost is what it says of access points; a password's answer that is among it is found out later.
                Some(messages) => loop {
                    if let Said::Message(message) = messages.next().await?
                        && let Some(code) = authentication(&message)
                    {
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
        let gone = async {
            daemon.there.gone().await;
            Err(NetworkError::Restarted.into())
        };
        let ended = self.ended(daemon, active, limit, clock).or(gone).await;
        match ended {
            Err(_) if self.leaving => {
                // Whoever asks again finds it gone, and not in the middle of it.
                daemon.there.gone().or(clock.sleep_until(clock.now() + LEAVING_MAX)).await;
                Err(NetworkError::Restarted.into())
            }
            ended => ended,
        }
    }

    async fn ended(&mut self, daemon: &Daemon, active: &str, limit: Mono, clock: &dyn Clock) -> Result<(), Failure> {
        if standing(daemon, active).await? == UP {
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
                Event::Lost => match standing(daemon, active).await? {
                    UP => return Ok(()),
                    DOWN => {
                        let told = if told.is_some() { told } else { self.told_soon(clock).await };
                        return Err(Failure::Reason(told.unwrap_or_else(|| of_active(DOWN_FOR_NO_REASON))));
                    }
                    _ => {}
                },
                Event::Authentication(ACCEPTED) => self.half_proven = true,
                Event::Authentication(REFUSED | PROOF_FAILED) if self.half_proven => {
                    return Err(Failure::WrongPassword);
                }
                Event::Device { new: state::FAILED, reason } => told = Some(reason),
                Event::Device { reason: reason::NOW_UNMANAGED, .. } => self.leaving = true,
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
        let told = async {
            let mut unknown = true;
            loop {
                if unknown && standing(daemon, active).await.unwrap_or(DOWN) == DOWN {
                    return;
                }
                unknown = false;
                match self.next().await {
                    Event::Gone => return,
                    Event::Lost => unknown = true,
                    Event::Active { path, state: DOWN, .. } if path == active => return,
                    Event::Device { .. } | Event::Active { .. } | Event::Authentication(_) => {}
                }
            }
        };
        told.or(clock.sleep_until(limit)).await;
    }

    async fn told_soon(&mut self, clock: &dyn Clock) -> Option<u32> {
        let limit = clock.now() + REASON_MAX;
        let told = async {
            loop {
                match self.next().await {
                    Event::Device { new: state::FAILED, reason } => return Some(reason),
                    Event::Device { reason: reason::NOW_UNMANAGED, .. } => self.leaving = true,
                    Event::Gone => return None,
                    Event::Device { .. } | Event::Active { .. } | Event::Authentication(_) | Event::Lost => {}
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

/// The state of a connection; one that is not there any more is down.
async fn standing(daemon: &Daemon, active: &str) -> Result<u32, NetworkError> {
    match daemon.all(active, ACTIVE).await {
        Ok(properties) => Ok(properties.number("State")),
        Err(NetworkError::Refused(_)) => Ok(DOWN),
        Err(error) => Err(error),
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
async fn supplicant(daemon: &Daemon, interface: &str) -> Result<Inbox, NetworkError> {
    let (connection, root) = (daemon.there.connection(), "/fi/w1/wpa_supplicant1");
    let asked = connection.call(SUPPLICANT, root, SUPPLICANT, "GetInterface", vec![Value::from(interface)]);
    let answer = asked.await.map_err(trouble)?;
    let rule = Rule {
        // Whoever answered, and nobody who says so.
        sender: answer.sender.clone(),
        path: answer.object().map_err(trouble)?.to_owned(),
        interface: PROPERTIES,
        member: "PropertiesChanged",
        first: SUPPLICANT_INTERFACE,
        ..Rule::default()
    };
    daemon.there.listen(rule).await.map_err(trouble)
}

fn authentication(message: &Message) -> Option<i64> {
    message.nth(1)?.get("AuthStatusCode")?.signed()
}

async fn read(inbox: &mut Inbox, event: impl Fn(&Message) -> Option<Event>) -> Option<Event> {
    match inbox.next().await? {
        Said::Message(message) => event(&message),
        Said::Lost => Some(Event::Lost),
    }
}

fn device_event(message: &Message) -> Option<Event> {
    Some(Event::Device { new: message.first()?.unsigned()?, reason: message.nth(2)?.unsigned()? })
}

fn active_event(message: &Message) -> Option<Event> {
    let (state, reason) = (message.first()?.unsigned()?, message.nth(1)?.unsigned()?);
    Some(Event::Active { path: message.path.clone(), state, reason })
}
