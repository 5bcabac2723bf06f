//! Profiles as the network manager keeps them: maps of sections.
//!
//! Owns the mark that tells the agent's profiles from others, and both directions of the translation. Whatever was
//! written is read back the same, so that comparing finds what somebody edited.

use std::net::Ipv4Addr;

use board::network::{Address, Hotspot, Medium, Profile, Ssid};
use secret::Secret;

use super::security::How;
use crate::dbus::Value;

/// A section that is sent.
pub(super) type Section = Vec<(&'static str, Value)>;
/// A profile that is sent.
pub(super) type Settings = Vec<(&'static str, Section)>;

pub(super) const WIFI: &str = "802-11-wireless";
pub(super) const WIRED: &str = "802-3-ethernet";
pub(super) const WIFI_SECURITY: &str = "802-11-wireless-security";
/// Seconds that a WiFi network has to give an address. A switch may need half a minute before it lets a cable through, so
/// cables keep the network manager's own 45.
const WIFI_DHCP_SECONDS: i32 = 30;

/// The vendor's word by which the agent knows its own profiles again.
#[derive(Clone, Debug)]
pub(super) struct Mark(pub String);

impl Mark {
    fn key_name(&self) -> String {
        format!("{}.network", self.0)
    }

    fn hotspot_name(&self) -> String {
        format!("{}.hotspot", self.0)
    }

    /// Name of the interface that a hotspot beside a station gets; the kernel allows 15 bytes.
    pub(super) fn interface(&self) -> String {
        let brand: String = self.0.chars().take(12).collect();
        format!("{brand}-ap")
    }

    /// The key of a profile, when it is the agent's.
    pub(super) fn key(&self, received: &Value) -> Option<String> {
        self.user_data(received, &self.key_name())
    }

    /// Whether this is the agent's hotspot.
    pub(super) fn is_hotspot(&self, received: &Value) -> bool {
        self.user_data(received, &self.hotspot_name()).is_some()
    }

    fn user_data(&self, received: &Value, name: &str) -> Option<String> {
        received.at("user", "data")?.get(name)?.text().map(str::to_owned)
    }

    fn section(name: String, text: &str) -> Section {
        Section::from([("data", Value::dict_of_texts([(name, text)]))])
    }
}

/// As it is sent.
pub(super) fn value(settings: Settings) -> Value {
    Value::dict_of_dicts(settings.into_iter().map(|(name, section)| (name, Value::dict(section))))
}

/// What is sent for a profile. `uuid` names it for the network manager.
pub(super) fn of_profile(mark: &Mark, profile: &Profile, how: How, uuid: &str) -> Settings {
    let (kind, security) = match &profile.medium {
        Medium::Wifi { .. } => (WIFI, how),
        Medium::Wired => (WIRED, How::Open),
    };
    let mut connection = Section::from([
        ("id", text(format!("{} {}", mark.0, profile.key))),
        ("uuid", text(uuid)),
        ("type", text(kind)),
        ("autoconnect", Value::from(true)),
        ("autoconnect-priority", Value::from(i32::from(profile.priority))),
    ]);
    if let Some(interface) = &profile.interface {
        connection.push(("interface-name", text(interface)));
    }
    let mut settings = Settings::from([
        ("connection", connection),
        ("ipv4", ipv4(profile)),
        (
            "ipv6",
            Section::from([("method", text("auto")), ("route-metric", Value::from(i64::from(profile.route_metric)))]),
        ),
        ("user", Mark::section(mark.key_name(), &profile.key)),
    ]);
    match &profile.medium {
        Medium::Wifi { ssid, psk, hidden } => {
            settings.push((WIFI, wifi(ssid, "infrastructure", *hidden)));
            if let Some(section) = of_security(security, psk.as_ref()) {
                settings.push((WIFI_SECURITY, section));
            }
        }
        Medium::Wired => {
            settings.push((WIRED, Section::new()));
        }
    }
    settings
}

fn wifi(ssid: &Ssid, mode: &'static str, hidden: bool) -> Section {
    let mut section = Section::from([("ssid", Value::from(ssid.bytes().to_vec())), ("mode", text(mode))]);
    if hidden {
        section.push(("hidden", Value::from(true)));
    }
    section
}

fn of_security(how: How, psk: Option<&Secret>) -> Option<Section> {
    const PMF_OFF: i32 = 1;
    const PMF_REQUIRED: i32 = 3;
    let mut section = Section::new();
    let (management, pmf) = match how {
        How::Open => return None,
        How::EnhancedOpen => ("owe", None),
        How::Password => ("wpa-psk", None),
        How::Wpa2Only => ("wpa-psk", Some(PMF_OFF)),
        How::Wpa3Only => ("sae", Some(PMF_REQUIRED)),
    };
    section.push(("key-mgmt", text(management)));
    if let Some(pmf) = pmf {
        section.push(("pmf", Value::from(pmf)));
    }
    // Without one the network manager keeps what it has.
    if let Some(psk) = psk.filter(|psk| how != How::EnhancedOpen && !psk.expose().is_empty()) {
        section.push(("psk", text(psk.expose())));
    }
    Some(section)
}

/// How a profile that is there uses its secret.
pub(super) fn how(received: &Value) -> How {
    let of = |key| received.at(WIFI_SECURITY, key);
    match (of("key-mgmt").and_then(Value::text), of("pmf").and_then(Value::signed)) {
        (None, _) => How::Open,
        (Some("owe"), _) => How::EnhancedOpen,
        (Some("sae"), _) => How::Wpa3Only,
        (Some(_), Some(1)) => How::Wpa2Only,
        (Some(_), _) => How::Password,
    }
}

fn ipv4(profile: &Profile) -> Section {
    let mut section = Section::from([("route-metric", Value::from(i64::from(profile.route_metric)))]);
    match profile.address {
        Address::Auto => {
            section.push(("method", text("auto")));
            if matches!(profile.medium, Medium::Wifi { .. }) {
                section.push(("dhcp-timeout", Value::from(WIFI_DHCP_SECONDS)));
            }
            if let Some(gateway) = profile.gateway {
                // A gateway is refused where the addresses are DHCP's; a route of one's own is not.
                section.push(("ignore-auto-routes", Value::from(true)));
                let route = Value::dict([
                    ("dest", text("0.0.0.0")),
                    ("prefix", Value::from(0_u32)),
                    ("next-hop", text(gateway.to_string())),
                    ("metric", Value::from(profile.route_metric)),
                ]);
                section.push(("route-data", Value::List("a{sv}".into(), vec![route])));
            }
        }
        Address::Fixed(address, prefix) => {
            section.push(("method", text("manual")));
            section.push(("address-data", addresses(address, prefix)));
            if let Some(gateway) = profile.gateway {
                section.push(("gateway", text(gateway.to_string())));
            }
        }
    }
    if !profile.dns.is_empty() {
        let server = |server: &Ipv4Addr| Value::U32(u32::from_ne_bytes(server.octets()));
        section.push(("dns", Value::List("u".into(), profile.dns.iter().map(server).collect())));
        section.push(("ignore-auto-dns", Value::from(true)));
    }
    section
}

fn addresses(address: Ipv4Addr, prefix: u8) -> Value {
    let one = Value::dict([("address", text(address.to_string())), ("prefix", Value::from(u32::from(prefix)))]);
    Value::List("a{sv}".into(), vec![one])
}

/// What is sent for the hotspot.
pub(super) fn of_hotspot(mark: &Mark, hotspot: &Hotspot, interface: &str, uuid: &str) -> Settings {
    let (address, prefix) = hotspot.address;
    let mut radio = wifi(&hotspot.ssid, "ap", false);
    radio.push(("band", text("bg")));
    radio.push(("channel", Value::from(u32::from(hotspot.channel))));
    // WPA2 alone: the radios of some boards fail phones that ask for protected management frames.
    let security = Section::from([
        ("key-mgmt", text("wpa-psk")),
        ("proto", Value::texts(["rsn"])),
        ("pairwise", Value::texts(["ccmp"])),
        ("group", Value::texts(["ccmp"])),
        ("pmf", Value::from(1_i32)),
        ("psk", text(hotspot.password.expose())),
    ]);
    Settings::from([
        (
            "connection",
            Section::from([
                ("id", text(format!("{} hotspot", mark.0))),
                ("uuid", text(uuid)),
                ("type", text(WIFI)),
                ("interface-name", text(interface)),
                ("autoconnect", Value::from(false)),
            ]),
        ),
        (WIFI, radio),
        (WIFI_SECURITY, security),
        (
            "ipv4",
            Section::from([
                ("method", text("shared")),
                ("address-data", addresses(address, prefix)),
                ("never-default", Value::from(true)),
            ]),
        ),
        ("ipv6", Section::from([("method", text("disabled"))])),
        ("user", Mark::section(mark.hotspot_name(), "open")),
    ])
}

/// The network manager's name of a profile.
pub(super) fn uuid(received: &Value) -> String {
    received.at("connection", "uuid").and_then(Value::text).unwrap_or_default().to_owned()
}

/// What is read of one of the agent's profiles; `None` when it is somebody else's.
pub(super) fn to_profile(mark: &Mark, received: &Value, secrets: &Value) -> Option<Profile> {
    let key = mark.key(received)?;
    let of = |section: &str, key: &str| received.at(section, key);
    let medium = match of(WIFI, "ssid").and_then(Value::bytes).and_then(Ssid::new) {
        Some(ssid) => {
            let psk = secrets.at(WIFI_SECURITY, "psk").and_then(Value::text);
            Medium::Wifi {
                ssid,
                psk: how(received).is_by_password().then(|| Secret::from(psk.unwrap_or_default())),
                hidden: of(WIFI, "hidden").and_then(Value::boolean).unwrap_or(false),
            }
        }
        None => Medium::Wired,
    };
    let fixed = of("ipv4", "address-data").and_then(first_address);
    let manual = of("ipv4", "method").and_then(Value::text) == Some("manual");
    let address = fixed.filter(|_| manual).map_or(Address::Auto, |(address, prefix)| Address::Fixed(address, prefix));
    let gateway = match address {
        Address::Auto => of("ipv4", "route-data").and_then(way_out),
        Address::Fixed(..) => of("ipv4", "gateway").and_then(Value::text).and_then(|gateway| gateway.parse().ok()),
    };
    let server = |value: &Value| value.unsigned().map(|server| Ipv4Addr::from(server.to_ne_bytes()));
    let metric = of("ipv4", "route-metric").and_then(Value::signed).and_then(|metric| u32::try_from(metric).ok());
    let priority = of("connection", "autoconnect-priority").and_then(Value::signed);
    Some(Profile {
        key,
        medium,
        interface: of("connection", "interface-name").and_then(Value::text).map(str::to_owned),
        priority: priority.and_then(|priority| i16::try_from(priority).ok()).unwrap_or(0),
        address,
        gateway,
        dns: of("ipv4", "dns").map(Value::list).unwrap_or_default().iter().filter_map(server).collect(),
        route_metric: metric.unwrap_or(0),
    })
}

/// The first of a list of addresses with their prefixes.
pub(super) fn first_address(list: &Value) -> Option<(Ipv4Addr, u8)> {
    list.list().iter().find_map(|one| {
        let address = one.get("address").and_then(Value::text)?.parse().ok()?;
        Some((address, one.get("prefix").and_then(Value::unsigned)?.try_into().ok()?))
    })
}

fn way_out(routes: &Value) -> Option<Ipv4Addr> {
    routes.list().iter().find_map(|route| {
        let everywhere = route.get("prefix").and_then(Value::unsigned)? == 0;
        let next = route.get("next-hop").and_then(Value::text)?;
        everywhere.then(|| next.parse().ok())?
    })
}

fn text(text: impl Into<String>) -> Value {
    Value::Text(text.into())
}

#[cfg(test)]
mod tests;
