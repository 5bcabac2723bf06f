//! What is connected: the kernel's addresses and default routes, with the network manager's names.
//!
//! The kernel is asked because an interface that the network manager does not manage connects a machine just as well.

use std::{net::Ipv4Addr, path::Path};

use board::network::{Link, Links, Subnet};

use super::{
    daemon::Owned,
    known::{Device, Known, state},
};
use crate::netlink::{self, Addressed};

/// What the kernel says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Kernel {
    pub addresses: Vec<Addressed>,
    pub ways_out: Vec<String>,
    /// Networks that traffic is routed to, and by which interface.
    pub routes: Vec<Addressed>,
    /// Interfaces of real hardware that have a carrier and an address.
    pub hardware: Vec<String>,
    /// Interfaces of real hardware that have no carrier.
    pub dead: Vec<String>,
}

impl Kernel {
    pub(super) fn read() -> Kernel {
        let addresses = netlink::addresses().unwrap_or_else(|error| {
            log::debug!("the kernel tells no addresses: {error}");
            Vec::new()
        });
        let (alive, dead) = hardware(Path::new("/sys/class/net"));
        let hardware = alive.into_iter().filter(|name| addresses.iter().any(|one| one.interface == *name)).collect();
        Kernel { addresses, ways_out: netlink::default_routes(), routes: netlink::routes(), hardware, dead }
    }
}

/// Interfaces of real hardware with a carrier, and those without. One that is shut is neither: nobody can tell.
fn hardware(folder: &Path) -> (Vec<String>, Vec<String>) {
    let (mut alive, mut dead) = (Vec::new(), Vec::new());
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let Ok(name) = entry.file_name().into_string() else { continue };
        let carrier = std::fs::read_to_string(entry.path().join("carrier"));
        match carrier.as_deref().map(str::trim) {
            _ if !entry.path().join("device").exists() => {}
            Ok("1") => alive.push(name),
            Ok("0") => dead.push(name),
            _ => {}
        }
    }
    (alive, dead)
}

/// Puts both together.
///
/// An interface counts when the network manager has connected it by a profile, when it is hardware with an address and a
/// carrier, or when traffic to elsewhere goes out there. The bridges of containers are none of these. Hardware without a
/// carrier never counts: where an access point vanishes in the moment between the address and the end of the activation,
/// the network manager (1.42) sets no time limit and goes on saying "connected" for ever.
pub(super) fn links(known: &Known, kernel: &Kernel) -> Links {
    let of = |interface: &str| known.devices.iter().find(|device| device.ip_interface == interface);
    let made =
        |interface: &str| of(interface).is_some_and(|device| device.state == state::ACTIVATED && !device.external);
    let mut names: Vec<&str> = kernel.addresses.iter().map(|one| one.interface.as_str()).collect();
    // Connected by IPv6 only.
    names.extend(known.devices.iter().map(|device| device.ip_interface.as_str()).filter(|name| made(name)));
    names.sort_unstable();
    names.dedup();
    let link = |interface: &str| {
        let device = of(interface);
        let owned = device.and_then(|device| device.owned.as_ref());
        let default_route = kernel.ways_out.iter().any(|name| name == interface);
        let counts = made(interface) || default_route || kernel.hardware.iter().any(|name| name == interface);
        if !counts || owned == Some(&Owned::Hotspot) || kernel.dead.iter().any(|name| name == interface) {
            return None;
        }
        let address = kernel.addresses.iter().find(|one| one.interface == interface);
        Some(Link {
            interface: interface.to_owned(),
            ssid: device.and_then(|device| device.ssid.clone()),
            key: owned.and_then(|owned| if let Owned::Profile(key) = owned { Some(key.clone()) } else { None }),
            address: address.map(|one| (one.address, one.prefix)),
            default_route,
        })
    };
    let other = |one: &&Addressed| of(&one.interface).is_none_or(|device| device.owned != Some(Owned::Hotspot));
    let all = kernel.addresses.iter().chain(&kernel.routes).filter(other);
    // By the network and not by the address, so that what lies in it is named once.
    let mut subnets: Vec<_> = all.map(|one| network(one.address, one.prefix)).collect();
    subnets.sort_unstable();
    subnets.dedup();
    Links {
        manager: known.manager.clone(),
        radios: known.radios.clone(),
        links: names.into_iter().filter_map(link).collect(),
        coming: coming(known),
        internet: known.internet,
        subnets,
    }
}

/// Radios between idle and connected.
fn coming(known: &Known) -> Vec<String> {
    let busy = |device: &&Device| device.state > state::DISCONNECTED && device.state < state::ACTIVATED;
    let radios = known.devices.iter().filter(|device| device.wifi && device.owned != Some(Owned::Hotspot)).filter(busy);
    let mut coming: Vec<String> = radios.map(|device| device.interface.clone()).collect();
    coming.sort_unstable();
    coming
}

fn network(address: Ipv4Addr, prefix: u8) -> Subnet {
    let mask = u32::MAX.checked_shl(32 - u32::from(prefix.min(32))).unwrap_or(0);
    (Ipv4Addr::from(address.to_bits() & mask), prefix)
}

#[cfg(test)]
mod tests {
    use board::network::Ssid;

    use super::*;

    fn device(interface: &str, state: u32) -> Device {
        Device {
            path: format!("/{interface}"),
            interface: interface.to_owned(),
            ip_interface: interface.to_owned(),
            wifi: false,
            ethernet: true,
            state,
            active: None,
            external: false,
            ssid: None,
            owned: None,
        }
    }

    fn address(interface: &str, last: u8) -> Addressed {
        Addressed { interface: interface.to_owned(), address: Ipv4Addr::new(10, 0, 0, last), prefix: 24 }
    }

    fn address_in(network: [u8; 4]) -> Addressed {
        Addressed { address: network.into(), ..address("", 0) }
    }

    #[test]
    fn hardware_with_and_without_a_carrier() {
        let folder = tempfile::tempdir().unwrap();
        let interface = |name: &str, real: bool, carrier: Option<&str>| {
            let folder = folder.path().join(name);
            std::fs::create_dir_all(if real { folder.join("device") } else { folder.clone() }).unwrap();
            if let Some(carrier) = carrier {
                std::fs::write(folder.join("carrier"), carrier).unwrap();
            }
        };
        interface("eth0", true, Some("1\n"));
        interface("wlan0", true, Some("0\n"));
        interface("eth1", true, None);
        interface("docker0", false, Some("0\n"));
        let found = hardware(folder.path());
        assert_eq!(found, (vec!["eth0".to_owned()], vec!["wlan0".to_owned()]));
        assert_eq!(hardware(&folder.path().join("none")), (vec![], vec![]));
    }

    #[test]
    fn what_is_connected() {
        let home = Ssid::new(b"home");
        let known = Known {
            devices: vec![
                Device { owned: Some(Owned::Profile("cable".to_owned())), ..device("eth0", 100) },
                Device { ssid: home.clone(), ..device("wlan0", 100) },
                Device { owned: Some(Owned::Hotspot), ..device("wlan1", 100) },
                Device { external: true, ..device("docker0", 100) },
                device("eth1", 70),
                device("eth2", 100),
                Device { ssid: home.clone(), owned: Some(Owned::Profile("gone".to_owned())), ..device("wlan2", 100) },
                Device { ip_interface: "ppp0".to_owned(), ..device("ttyUSB0", 100) },
            ],
            ..Known::default()
        };
        let kernel = Kernel {
            addresses: vec![
                address("eth0", 1),
                address("eth0", 2),
                address("wlan0", 3),
                address("wlan1", 4),
                address("docker0", 5),
                address("eth1", 6),
                address("ppp0", 7),
                address("usb0", 8),
                address("tun0", 9),
                address("veth0", 10),
                address("wlan2", 11),
            ],
            ways_out: vec!["eth0".to_owned(), "tun0".to_owned(), "wlan2".to_owned()],
            routes: vec![
                address("eth0", 0),
                Addressed { interface: "flannel.1".to_owned(), ..address_in([10, 42, 1, 0]) },
                Addressed { interface: "wlan1".to_owned(), ..address_in([10, 77, 0, 0]) },
            ],
            hardware: vec!["eth0".to_owned(), "wlan0".to_owned(), "wlan1".to_owned(), "usb0".to_owned()],
            dead: vec!["wlan2".to_owned()],
        };
        let Links { links: found, subnets, .. } = links(&known, &kernel);
        let apart = ([10, 42, 1, 0].into(), 24);
        assert_eq!(subnets, [([10, 0, 0, 0].into(), 24), apart], "bridges too, and each network once");
        let short: Vec<_> = found
            .iter()
            .map(|link| {
                let last = link.address.map(|(address, _)| address.octets()[3]);
                (link.interface.as_str(), link.key.as_deref(), link.ssid.clone(), last, link.default_route)
            })
            .collect();
        let expected = [
            ("eth0", Some("cable"), None, Some(1), true),
            ("eth2", None, None, None, false),
            ("ppp0", None, None, Some(7), false),
            ("tun0", None, None, Some(9), true),
            ("usb0", None, None, Some(8), false),
            ("wlan0", None, home, Some(3), false),
        ];
        assert_eq!(short, expected);
    }
}
