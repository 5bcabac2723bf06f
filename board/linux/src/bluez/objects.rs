//! What BlueZ reads of our objects: services, characteristics and advertisements, as properties.

use board::bluetooth::{Offer, Uuid};

use super::packets::{self, Packet};
use crate::dbus::Value;

pub(super) const SERVICE: &str = "org.bluez.GattService1";
pub(super) const CHARACTERISTIC: &str = "org.bluez.GattCharacteristic1";
pub(super) const ADVERTISEMENT: &str = "org.bluez.LEAdvertisement1";
/// Milliseconds between two packets: found within a second, and for the radio's power no difference.
const INTERVAL_MIN: u32 = 100;
const INTERVAL_MAX: u32 = 150;
/// Seconds before the next advertisement has its turn.
const TURN: u16 = 1;

/// Where our objects are: each offer has a place of its own, so that nothing said to one reaches the next.
pub(super) struct Places {
    pub root: String,
}

impl Places {
    pub(super) fn new(offer: u64) -> Places {
        Places { root: format!("/provisioning/offer{offer}") }
    }

    pub(super) fn agent(&self) -> String {
        format!("{}/agent", self.root)
    }

    pub(super) fn table(&self) -> String {
        format!("{}/table", self.root)
    }

    pub(super) fn advertisement(&self, at: usize) -> String {
        format!("{}/advertisement{at}", self.root)
    }

    /// The advertisement of this path.
    pub(super) fn advertisement_at(&self, path: &str) -> Option<usize> {
        path.strip_prefix(&self.root)?.strip_prefix("/advertisement")?.parse().ok()
    }

    fn service(&self, at: usize) -> String {
        format!("{}/table/s{at}", self.root)
    }

    pub(super) fn characteristic(&self, service: usize, at: usize) -> String {
        format!("{}/table/s{service}/c{at:02}", self.root)
    }
}

/// Every characteristic with its path.
pub(super) fn paths(places: &Places, offer: &Offer) -> Vec<(String, Uuid)> {
    let services = offer.services.iter().enumerate();
    services
        .flat_map(|(s, service)| {
            let all = service.characteristics.iter().enumerate();
            all.map(move |(c, one)| (places.characteristic(s, c), one.uuid))
        })
        .collect()
}

/// Services and characteristics, as BlueZ asks for them once. In the same order each time: phones remember what is where.
pub(super) fn table(places: &Places, offer: &Offer) -> Value {
    let mut objects = Vec::new();
    let mut put = |path: String, interface: &str, properties: Value| {
        objects.push((Value::Path(path), Value::dict_of_dicts([(interface, properties)])));
    };
    for (s, service) in offer.services.iter().enumerate() {
        let properties = [("UUID", Value::from(service.uuid.to_string())), ("Primary", Value::from(true))];
        put(places.service(s), SERVICE, Value::dict(properties));
        for (c, one) in service.characteristics.iter().enumerate() {
            let mut flags = Vec::new();
            flags.extend(one.allows.read.then_some("read"));
            flags.extend(one.allows.notify.then_some("notify"));
            flags.extend(one.allows.write.then_some("write"));
            flags.extend(one.allows.write_unanswered.then_some("write-without-response"));
            let properties = [
                ("UUID", Value::from(one.uuid.to_string())),
                ("Service", Value::Path(places.service(s))),
                ("Flags", Value::texts(flags)),
            ];
            put(places.characteristic(s, c), CHARACTERISTIC, Value::dict(properties));
        }
    }
    Value::Map("oa{sa{sv}}".into(), objects)
}

/// The properties of one advertisement.
pub(super) fn advertisement(packet: &Packet, name: &str) -> Value {
    let data = packet.data.as_ref().map(|(name, data)| ("ServiceData", service_data(*name, data)));
    let properties = [
        ("Type", Value::from("peripheral")),
        ("ServiceUUIDs", Value::texts([packet.service.to_string()])),
        ("LocalName", Value::from(name)),
        ("Discoverable", Value::from(true)),
        ("Duration", Value::from(TURN)),
        ("MinInterval", Value::from(INTERVAL_MIN)),
        ("MaxInterval", Value::from(INTERVAL_MAX)),
    ];
    Value::dict(properties.into_iter().chain(data))
}

pub(super) fn service_data(name: Uuid, data: &[u8]) -> Value {
    Value::dict([(name.to_string(), Value::from(data.to_vec()))])
}

/// All advertisements of an offer.
pub(super) fn advertisements(offer: &Offer) -> Vec<Packet> {
    packets::packets(&offer.advertisement)
}
