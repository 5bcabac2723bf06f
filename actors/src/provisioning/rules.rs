//! What the configuration and the device allow, as the machine needs it.

use std::time::Duration;

use api::device_config::{Advanced, NetworkSettings};

/// Visitors have the radio for so many periods of `retry_connection_timeout_minutes` or `user_idle_minutes` ...
const HELD_PERIODS: u32 = 6;
/// ... and for no longer than this, unless one period is longer. Somebody who types all this time can go on afterwards;
/// a device whose own network is back cannot wait for a visitor who never goes.
const HELD_MAX: Duration = Duration::from_secs(60 * 60);

/// The part of the configuration that decides about doors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// The network may be configured at all.
    pub network: bool,
    /// The hotspot may open.
    pub wifi: bool,
    /// Bluetooth may be offered.
    pub bluetooth: bool,
    /// Offline this long before anybody is invited.
    pub offline_before: Duration,
    /// An invitation ends after this, so that other connections are tried.
    pub retry: Duration,
    /// A visitor who did nothing for this long is idle.
    pub user_idle: Duration,
    /// A link without internet counts as offline.
    pub internet_counts: bool,
    /// The manufacturer lets a visitor give another identity.
    pub identity_may_change: bool,
}

impl Rules {
    /// From the settings in force. `minute` is the length of a minute; `--dev-mode` may shorten it.
    #[must_use]
    pub fn new(settings: &NetworkSettings, advanced: &Advanced, minute: Duration) -> Rules {
        Rules {
            network: !advanced.disable_network_configuration,
            wifi: !settings.disable_wifi_provisioning,
            bluetooth: !settings.disable_bt_provisioning,
            offline_before: settings.offline_before_starting_hotspot.times(minute),
            retry: settings.retry_connection_timeout.times(minute),
            user_idle: settings.user_idle.times(minute),
            internet_counts: settings.turn_on_hotspot_if_wifi_has_no_internet,
            identity_may_change: settings.allow_identity_change,
        }
    }

    /// Whether there may be a hotspot.
    #[must_use]
    pub const fn hotspot(&self) -> bool {
        self.network && self.wifi
    }

    /// Whether there may be Bluetooth.
    #[must_use]
    pub const fn radio(&self) -> bool {
        self.network && self.bluetooth
    }

    /// How long visitors may keep the device from its own networks.
    #[must_use]
    pub fn held_max(&self) -> Duration {
        (self.retry.max(self.user_idle) * HELD_PERIODS).min(HELD_MAX).max(self.retry)
    }

    /// Whether there may be a door.
    #[must_use]
    pub const fn any(&self) -> bool {
        self.hotspot() || self.radio()
    }
}

/// What the device has at the moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Able {
    /// The network manager answers, and there is a radio that can be an access point.
    pub hotspot: bool,
    /// That radio can join a network meanwhile.
    pub both: bool,
    /// There is Bluetooth.
    pub bluetooth: bool,
}
