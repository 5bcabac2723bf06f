//! The hotspot: an access point with addresses and names for phones, which leaves nothing behind.
//!
//! The profile is never on disk and belongs to the agent's connection to the bus: when the agent dies, the network manager
//! closes the hotspot by itself. Where the radio can be an access point and a station on two channels, the hotspot gets an
//! interface of its own beside the one that joins networks.

use std::{fs, net::Ipv4Addr, path::Path, time::Duration};

use board::network::{Hotspot, NetworkError, Subnet, overlap};
use smol::future::FutureExt as _;

use super::{
    NetworkManager,
    activation::{Failure, Watching},
    daemon::{ACTIVE, DEVICE, Daemon, NAME, NOTHING, PATH, PROPERTIES, trouble, uuid},
    dnsmasq::Started,
    known::{self, Device, state},
    reasons::device as reason,
    settings,
};
use crate::{
    dbus::{Error, Value},
    netlink::{self, Addressed, Radios},
};

/// An access point that does not start is reported after 25 seconds.
const OPEN_MAX: Duration = Duration::from_secs(45);
/// The name server is started before the hotspot is up.
const NAMES_MAX: Duration = Duration::from_secs(3);
const CLOSE_MAX: Duration = Duration::from_secs(10);
/// A new interface is ready once wpa_supplicant has it.
const BESIDE_MAX: Duration = Duration::from_secs(10);
/// Where the network manager looks for the name server.
const DNSMASQ: [&str; 6] = [
    "/usr/local/sbin/dnsmasq",
    "/usr/local/bin/dnsmasq",
    "/usr/sbin/dnsmasq",
    "/usr/bin/dnsmasq",
    "/sbin/dnsmasq",
    "/bin/dnsmasq",
];

impl NetworkManager {
    pub(super) async fn open(&self, hotspot: &Hotspot) -> Result<(), NetworkError> {
        let daemon = self.daemon()?;
        let mut device = self.radio(Some(&hotspot.interface))?;
        let radios = self.links_now().radios;
        let Some(radio) = radios.iter().find(|radio| radio.interface == device.interface && radio.access_point) else {
            return Err(NetworkError::Refused(format!("{} cannot be an access point", device.interface)));
        };
        // Without it the network manager opens a hotspot on which no phone gets an address.
        if !DNSMASQ.iter().any(|path| Path::new(path).exists()) {
            let words = "dnsmasq is not installed, which gives phones their addresses (Debian: dnsmasq-base)";
            return Err(NetworkError::Refused(words.to_owned()));
        }
        self.close(&daemon).await?;
        if let Some(taken) =
            netlink::addresses().ok().and_then(|all| collision(hotspot.address, &device.interface, &all))
        {
            return Err(NetworkError::Refused(taken));
        }
        if let Err(error) = self.names().write(hotspot) {
            // A hotspot without the sign-in sheet is better than none.
            log::warn!("the hotspot's names cannot be set, its page opens by address only: {error}");
        }
        if radio.both {
            match self.beside(&daemon, &device.interface).await {
                Ok(beside) => device = beside,
                Err(error) => {
                    self.names().remove();
                    self.remove_beside();
                    self.give_up_both(&device.interface);
                    return Err(error);
                }
            }
        }
        let opened = self.open_on(&daemon, hotspot, &device.path, &device.interface).await;
        self.names().remove();
        if opened.is_err() {
            // What was begun is not left behind.
            let _ = self.close(&daemon).await;
        }
        opened
    }

    /// An interface of the same radio for the hotspot, so that the first one can join networks meanwhile.
    async fn beside(&self, daemon: &Daemon, interface: &str) -> Result<Device, NetworkError> {
        let mut states = daemon.signals(None, DEVICE, "StateChanged", None).await?;
        let name = self.own_interface();
        let made = Radios::open().and_then(|radios| radios.add_access_point(interface, &name));
        made.map_err(|error| NetworkError::Refused(format!("{interface} takes no access point beside it: {error}")))?;
        let limit = self.clock().now() + BESIDE_MAX;
        let mut mine = false;
        loop {
            let known = known::ask(daemon, self.mark()).await?;
            if let Some(device) = known.devices.iter().find(|device| device.interface == name) {
                if !mine {
                    // Not for the networks that the network manager joins by itself.
                    let no = Value::Variant(Box::new(Value::from(false)));
                    let never = vec![Value::from(DEVICE), Value::from("Autoconnect"), no];
                    daemon.call(&device.path, PROPERTIES, "Set", never).await?;
                    mine = true;
                }
                if device.state >= state::DISCONNECTED {
                    return Ok(device.clone());
                }
            }
            let over = async {
                self.clock().sleep_until(limit).await;
                None
            };
            if states.next().or(over).await.is_none() {
                return Err(NetworkError::Refused(format!("{name} was made beside {interface} and is not ready")));
            }
        }
    }

    /// The interface that an agent made, also one that was killed.
    pub(super) fn remove_beside(&self) {
        match Radios::open().and_then(|radios| radios.remove(&self.own_interface())) {
            Ok(true) => log::debug!("{} is removed", self.own_interface()),
            Ok(false) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => log::warn!("{} could not be removed: {error}", self.own_interface()),
        }
    }

    async fn open_on(
        &self,
        daemon: &Daemon,
        hotspot: &Hotspot,
        device: &str,
        interface: &str,
    ) -> Result<(), NetworkError> {
        let started = Started::watch(self.run_folder(), interface);
        let mut watching = Watching::begin(daemon, device).await?;
        let settings = settings::of_hotspot(self.mark(), hotspot, interface, &uuid()?);
        let options =
            Value::dict([("persist", Value::from("volatile")), ("bind-activation", Value::from("dbus-client"))]);
        let body = vec![settings::value(settings), Value::path(device), Value::path(NOTHING), options];
        let answer = daemon.call(PATH, NAME, "AddAndActivateConnection2", body).await?;
        let Some(Value::Path(active)) = answer.nth(1) else {
            return Err(trouble(Error::Nonsense("no connection where one belongs")));
        };
        let limit = self.clock().now() + OPEN_MAX;
        match watching.up(daemon, active, limit, self.clock()).await {
            Ok(()) => {}
            Err(Failure::Network(error)) => return Err(error),
            Err(Failure::TimedOut | Failure::WrongPassword) => {
                return Err(NetworkError::Refused(no_start(hotspot, None)));
            }
            Err(Failure::Reason(reason)) => return Err(NetworkError::Refused(no_start(hotspot, Some(reason)))),
        }
        let names = async {
            match started {
                Ok(started) => started.done().await.is_ok(),
                Err(_) => false,
            }
        };
        let over = async {
            self.clock().sleep_until(self.clock().now() + NAMES_MAX).await;
            false
        };
        if !names.or(over).await {
            log::debug!("the hotspot's name server did not say that it has started");
        }
        Ok(())
    }

    /// Ends every hotspot of the agent, and forgets what a killed agent left.
    pub(super) async fn close(&self, daemon: &Daemon) -> Result<(), NetworkError> {
        self.names().remove();
        let manager = daemon.all(PATH, NAME).await?;
        for active in manager.paths("ActiveConnections") {
            let Ok(properties) = daemon.all(active, ACTIVE).await else { continue };
            let Some(profile) = properties.path("Connection") else { continue };
            let Ok(settings) = daemon.settings(profile).await else { continue };
            if !self.mark().is_hotspot(&settings) {
                continue;
            }
            let device = properties.paths("Devices").next().unwrap_or(NOTHING).to_owned();
            let mut watching = Watching::begin(daemon, &device).await?;
            match daemon.deactivate(active).await {
                Err(error @ NetworkError::Absent(_)) => return Err(error),
                // It went by itself.
                Err(_) => continue,
                Ok(()) => {}
            }
            watching.down(daemon, active, self.clock().now() + CLOSE_MAX, self.clock()).await;
        }
        for kept in daemon.kept().await? {
            if self.mark().is_hotspot(&kept.settings)
                && let Err(error @ NetworkError::Absent(_)) = daemon.delete(&kept.path).await
            {
                return Err(error);
            }
        }
        self.remove_beside();
        Ok(())
    }
}

/// Who has addresses of the hotspot's network already.
fn collision(hotspot: Subnet, own: &str, addresses: &[Addressed]) -> Option<String> {
    let (address, prefix) = hotspot;
    let others = addresses.iter().filter(|one| one.interface != own);
    let taken = others.into_iter().find(|one| overlap(hotspot, (one.address, one.prefix)))?;
    Some(format!(
        "the hotspot's network {address}/{prefix} is that of {} already ({}/{})",
        taken.interface, taken.address, taken.prefix
    ))
}

/// Why the hotspot did not start.
fn no_start(hotspot: &Hotspot, because: Option<u32>) -> String {
    use reason::{
        DHCP_START_FAILED, IP_CONFIG_UNAVAILABLE, SHARED_FAILED, SHARED_START_FAILED, SUPPLICANT_CONFIG_FAILED,
        SUPPLICANT_DISCONNECT, SUPPLICANT_FAILED, SUPPLICANT_TIMEOUT,
    };
    let Hotspot { interface, channel, address: (address, _), .. } = hotspot;
    match because {
        Some(IP_CONFIG_UNAVAILABLE | SHARED_START_FAILED | SHARED_FAILED | DHCP_START_FAILED) => {
            let tables = fs::read_to_string("/proc/net/udp").unwrap_or_default();
            match held(&tables, *address) {
                Some(53) => {
                    format!("another name server holds port 53 of {address}: let it listen on its own addresses only")
                }
                Some(port) => {
                    format!("another DHCP server holds port {port}: let it listen on its own interfaces only")
                }
                None => format!("addresses could not be given on {interface}: dnsmasq did not start"),
            }
        }
        Some(SUPPLICANT_TIMEOUT | SUPPLICANT_DISCONNECT | SUPPLICANT_CONFIG_FAILED | SUPPLICANT_FAILED) | None => {
            format!(
                "{interface} did not start as an access point on channel {channel}: is the channel allowed in this country?"
            )
        }
        Some(reason) => format!("{interface} did not start as an access point (reason {reason})"),
    }
}

/// A port of names or addresses that somebody holds, by the kernel's table.
fn held(table: &str, own: Ipv4Addr) -> Option<u16> {
    let local = |line: &str| {
        let (address, port) = line.split_ascii_whitespace().nth(1)?.split_once(':')?;
        let address = Ipv4Addr::from(u32::from_str_radix(address, 16).ok()?.to_ne_bytes());
        Some((address, u16::from_str_radix(port, 16).ok()?))
    };
    let mut holders = table.lines().filter_map(local);
    let found =
        holders.find(|(address, port)| matches!(port, 53 | 67) && (address.is_unspecified() || *address == own));
    found.map(|(_, port)| port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_that_is_there_already_is_refused() {
        let there =
            |address: [u8; 4], prefix| Addressed { interface: "eth0".to_owned(), address: address.into(), prefix };
        let hotspot = (Ipv4Addr::new(10, 42, 0, 1), 24);
        let table = [
            ("the same", there([10, 42, 0, 77], 24), true),
            ("around it", there([10, 0, 0, 1], 8), true),
            ("inside it", there([10, 42, 0, 129], 30), true),
            ("beside it", there([10, 42, 1, 1], 24), false),
            ("everywhere", there([10, 42, 0, 3], 0), false),
        ];
        for (case, one, taken) in table {
            assert_eq!(collision(hotspot, "wlan0", std::slice::from_ref(&one)).is_some(), taken, "{case}");
            assert_eq!(collision(hotspot, "eth0", &[one]), None, "{case}: its own address");
        }
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn who_holds_a_port_is_read_from_the_kernels_table() {
        let line =
            |local: &str| format!("  1: {local} 00000000:0000 07 00000000:00000000 00:00000000 00000000 0 0 1 2 0 0");
        let own = Ipv4Addr::new(10, 42, 0, 1);
        let table = [
            ("everybody's names", line("00000000:0035"), Some(53)),
            ("our own address", line("01002A0A:0035"), Some(53)),
            ("systemd-resolved", line("3500007F:0035"), None),
            ("addresses", line("00000000:0043"), Some(67)),
            ("a client", line("00000000:0044"), None),
            ("rubbish", "x y z".to_owned(), None),
        ];
        for (case, table, port) in table {
            assert_eq!(held(&table, own), port, "{case}");
        }
    }
}
