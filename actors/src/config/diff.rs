//! Old settings and new ones: which sections changed.

use std::fmt;

use api::device_config::Settings;

/// One flag per section.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// `version_control`
    pub versions: bool,
    /// `advanced_settings`
    pub advanced: bool,
    /// `network_configuration`
    pub network: bool,
    /// `additional_networks`
    pub networks: bool,
    /// `system_configuration`
    pub system: bool,
}

impl Changed {
    /// What differs; everything if there was nothing before.
    #[must_use]
    pub fn between(old: Option<&Settings>, new: &Settings) -> Changed {
        let Some(old) = old else {
            return Changed { versions: true, advanced: true, network: true, networks: true, system: true };
        };
        Changed {
            versions: old.versions != new.versions,
            advanced: old.advanced != new.advanced,
            network: old.network != new.network,
            networks: old.networks != new.networks,
            system: old.system != new.system,
        }
    }

    /// Whether any section changed.
    #[must_use]
    pub fn any(self) -> bool {
        self != Changed::default()
    }
}

/// Names of the sections, for the trace.
impl fmt::Display for Changed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Changed { versions, advanced, network, networks, system } = *self;
        let sections = [
            (versions, "versions"),
            (advanced, "advanced"),
            (network, "network"),
            (networks, "networks"),
            (system, "system"),
        ];
        let mut comma = "";
        for (_, name) in sections.into_iter().filter(|(changed, _)| *changed) {
            write!(f, "{comma}{name}")?;
            comma = ", ";
        }
        if comma.is_empty() { f.write_str("nothing") } else { Ok(()) }
    }
}
