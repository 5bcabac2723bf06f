//! What the configuration wants of a product, taken out of the sections that say it.

use std::rc::Rc;

use api::{
    device_config::{Advanced, VersionControl, VersionSetting},
    releases::RoleKeys,
};

/// Which pins without a signed digest are taken as the owner's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pins {
    /// All of them.
    Any,
    /// Those that name a file of this machine: whoever can put one there has the machine already.
    LocalFiles,
    /// None.
    Never,
}

/// What the configuration wants of this product.
#[derive(Clone, Debug, PartialEq)]
pub struct Wish {
    /// Which version.
    pub setting: VersionSetting,
    /// Versions are switched in maintenance windows only.
    pub has_window: bool,
    /// Pins that are taken.
    pub pins: Pins,
    /// Root keys given by the manufacturer, and how many of them a root needs; `None` learns them at first contact.
    pub release_keys: Option<Rc<RoleKeys>>,
    /// How long a new version is watched.
    pub probation_minutes: Option<u32>,
    /// The first start waits for a check.
    pub wait: bool,
    /// Bytes per second.
    pub rate: Option<u64>,
    /// Bytes that stay free on the disk.
    pub reserve: u64,
}

impl Wish {
    /// What the sections say about the machine server.
    #[must_use]
    pub fn of_server(versions: &VersionControl, advanced: &Advanced) -> Wish {
        let pins = if advanced.trust.allow_unsigned_pins { Pins::Any } else { Pins::Never };
        Wish { pins, wait: advanced.wait_for_update_check, ..Wish::of(versions.server.clone(), advanced) }
    }

    /// What the sections say about the agent itself. Its own slot takes unsigned bytes from a local file only, so that
    /// a stolen fleet server cannot make a device run an agent that nobody has signed.
    #[must_use]
    pub fn of_agent(versions: &VersionControl, advanced: &Advanced, dev_mode: bool) -> Wish {
        let pins = match (advanced.trust.allow_unsigned_pins, dev_mode) {
            (false, _) => Pins::Never,
            (true, true) => Pins::Any,
            (true, false) => Pins::LocalFiles,
        };
        Wish { pins, ..Wish::of(versions.agent.clone(), advanced) }
    }

    fn of(setting: VersionSetting, advanced: &Advanced) -> Wish {
        let (keys, threshold) = (&advanced.trust.release_keys, advanced.trust.release_keys_threshold);
        // One that cannot be read is left out; an empty list of given keys still is one, and accepts nothing.
        let keys = (!keys.is_empty()).then(|| {
            let given = RoleKeys::most_of(keys.iter().filter_map(|key| key.parse().ok()));
            let threshold = threshold.and_then(|count| usize::try_from(count).ok()).unwrap_or(given.threshold);
            Rc::new(RoleKeys { threshold, ..given })
        });
        let rate = u64::from(advanced.update_bandwidth_kilobytes_per_second) * 1000;
        Wish {
            setting,
            has_window: advanced.maintenance.is_some(),
            pins: Pins::Never,
            release_keys: keys,
            probation_minutes: advanced.probation.map(|minutes| minutes.0),
            wait: false,
            rate: (rate > 0).then_some(rate),
            reserve: u64::from(advanced.disk_reserve_megabytes) * 1_000_000,
        }
    }
}
