//! Questions to the kernel's network stack: addresses, default routes, and what a radio can do and must obey.
//!
//! Owns the messages of netlink that the agent needs, no more. An answer that cannot be read is an absent answer.

use std::{fs, io, net::Ipv4Addr, os::fd::OwnedFd};

use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, bind,
    netlink::{GENERIC, SocketAddrNetlink},
    recv, sendto, socket_with, sockopt,
};
use smol::Async;

/// Room for one datagram; the kernel sends at most this much at once.
const DATAGRAM: usize = 32 << 10;
/// Longest wait for the kernel, which answers at once.
const ANSWER_MAX: std::time::Duration = std::time::Duration::from_secs(2);
/// Length of a message's header.
const HEADER: usize = 16;
/// Most datagrams of one answer.
const DATAGRAMS_MAX: usize = 256;

const REQUEST: u16 = 0x1;
const ACK: u16 = 0x4;
const DUMP: u16 = 0x300;
const ERROR: u16 = 2;
const DONE: u16 = 3;

const NEW_LINK: u16 = 16;
const NEW_ADDRESS: u16 = 20;
const GET_ADDRESS: u16 = 22;
/// Attribute of a link's message that tells of a radio and not of the link.
const LINK_WIRELESS: u16 = 11;

/// An IPv4 address of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Addressed {
    pub interface: String,
    pub address: Ipv4Addr,
    pub prefix: u8,
}

/// IPv4 addresses of this machine in the kernel's order, without those of the loopback.
pub(crate) fn addresses() -> io::Result<Vec<Addressed>> {
    let socket = open(None, 0, SocketFlags::CLOEXEC)?;
    let body = [u8::try_from(AddressFamily::INET.as_raw()).unwrap_or_default(), 0, 0, 0, 0, 0, 0, 0];
    let mut found = Vec::new();
    ask(&socket, GET_ADDRESS, DUMP, &body, |kind, body| {
        if kind == NEW_ADDRESS {
            found.extend(address(body));
        }
    })?;
    let named = found.into_iter().filter_map(|(index, address, prefix)| {
        let interface = rustix::net::netdevice::index_to_name(&socket, index).ok()?;
        (interface != "lo").then_some(Addressed { interface, address, prefix })
    });
    Ok(named.collect())
}

/// Index, address and prefix of one message, where its scope is wider than this machine.
fn address(body: &[u8]) -> Option<(u32, Ipv4Addr, u8)> {
    const LOCAL: u16 = 2;
    const PEER: u16 = 1;
    const SCOPE_HOST: u8 = 254;
    let [_family, prefix, _flags, scope, index @ ..] = body.first_chunk::<8>()?;
    let of = |wanted| {
        let value = attributes(body.get(8..)?).find(|(kind, _)| *kind == wanted)?.1;
        Some(Ipv4Addr::from(*value.first_chunk::<4>()?))
    };
    let address = of(LOCAL).or_else(|| of(PEER))?;
    (*scope < SCOPE_HOST).then(|| (u32::from_ne_bytes(*index), address, *prefix))
}

/// Interfaces that have a default route for IPv4.
pub(crate) fn default_routes() -> Vec<String> {
    fs::read_to_string("/proc/net/route").map(|table| default_routes_of(&table)).unwrap_or_default()
}

fn default_routes_of(table: &str) -> Vec<String> {
    let line = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let interface = words.next()?;
        let destination = words.next()?;
        let flags = u32::from_str_radix(words.nth(1)?, 16).ok()?;
        let mask = words.nth(3)?;
        // Up, and no route that refuses.
        (destination == "00000000" && mask == "00000000" && flags & 0x201 == 1).then(|| interface.to_owned())
    };
    table.lines().skip(1).filter_map(line).collect()
}

/// The shortest prefix of a network; what is wider is a way out, such as a tunnel's two halves of everywhere.
const NETWORK_PREFIX_MIN: u8 = 8;

/// Networks that traffic is routed to.
pub(crate) fn routes() -> Vec<Addressed> {
    fs::read_to_string("/proc/net/route").map(|table| routes_of(&table)).unwrap_or_default()
}

fn routes_of(table: &str) -> Vec<Addressed> {
    let number = |word: &str| u32::from_str_radix(word, 16).ok();
    let line = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let interface = words.next()?.to_owned();
        let address = Ipv4Addr::from(number(words.next()?)?.to_ne_bytes());
        let prefix = u8::try_from(number(words.nth(5)?)?.count_ones()).ok()?;
        (prefix >= NETWORK_PREFIX_MIN).then_some(Addressed { interface, address, prefix })
    };
    table.lines().skip(1).filter_map(line).collect()
}

/// Tells of changes of addresses, routes and links.
pub(crate) struct Changes(Async<OwnedFd>);

impl Changes {
    pub(crate) fn watch() -> io::Result<Changes> {
        const LINK: u32 = 0x1;
        const IPV4_ADDRESS: u32 = 0x10;
        const IPV4_ROUTE: u32 = 0x40;
        let socket = open(None, LINK | IPV4_ADDRESS | IPV4_ROUTE, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
        Ok(Changes(Async::new_nonblocking(socket)?))
    }

    /// Resolves when something has changed. Cancel-safe.
    pub(crate) async fn next(&self) -> io::Result<()> {
        loop {
            self.0.readable().await?;
            let mut buffer = vec![0; 8 << 10];
            let mut matters = false;
            loop {
                match recv(self.0.get_ref(), &mut *buffer, RecvFlags::DONTWAIT) {
                    Ok((length, _)) => matters |= !is_only_radio(buffer.get(..length).unwrap_or_default()),
                    Err(rustix::io::Errno::AGAIN) => break,
                    // Some were lost, so anything may have changed.
                    Err(rustix::io::Errno::NOBUFS) => matters = true,
                    Err(error) => return Err(error.into()),
                }
            }
            if matters {
                return Ok(());
            }
        }
    }
}

/// Every scan of a radio is told as a change of its link.
fn is_only_radio(datagram: &[u8]) -> bool {
    const LINK_BODY: usize = 16;
    messages(datagram).all(|(kind, body)| {
        kind == NEW_LINK && attributes(body.get(LINK_BODY..).unwrap_or_default()).any(|(kind, _)| kind == LINK_WIRELESS)
    })
}

/// The kernel's family for radios.
pub(crate) struct Radios {
    socket: OwnedFd,
    family: u16,
}

impl Radios {
    const GET_WIPHY: u8 = 1;
    const NEW_INTERFACE: u8 = 7;
    const DELETE_INTERFACE: u8 = 8;
    const REQUEST_COUNTRY: u8 = 27;
    const SET_POWER_SAVE: u8 = 61;
    const GET_POWER_SAVE: u8 = 62;
    const INTERFACE_INDEX: u16 = 3;
    const INTERFACE_NAME: u16 = 4;
    const INTERFACE_TYPE: u16 = 5;
    const ADDRESS: u16 = 6;
    const COUNTRY: u16 = 33;
    const POWER_SAVE: u16 = 93;
    const COMBINATIONS: u16 = 120;

    /// Fails where the kernel has no radios at all.
    pub(crate) fn open() -> io::Result<Radios> {
        const CONTROL: u16 = 16;
        const GET_FAMILY: u8 = 3;
        const FAMILY_ID: u16 = 1;
        const FAMILY_NAME: u16 = 2;
        let socket = open(Some(GENERIC), 0, SocketFlags::CLOEXEC)?;
        let mut family = None;
        let body = generic(GET_FAMILY, &[(FAMILY_NAME, b"nl80211\0")]);
        ask(&socket, CONTROL, 0, &body, |_, body| {
            family = attributes(body.get(4..).unwrap_or_default())
                .find(|(kind, _)| *kind == FAMILY_ID)
                .and_then(|(_, value)| Some(u16::from_ne_bytes(*value.first_chunk()?)));
        })?;
        family.map(|family| Radios { socket, family }).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Whether this device can be an access point and join another one at the same time, on channels of their own.
    pub(crate) fn both_at_once(&self, interface: &str) -> io::Result<bool> {
        let index = self.index(interface)?;
        let mut both = false;
        let body = generic(Self::GET_WIPHY, &[(Self::INTERFACE_INDEX, &index)]);
        ask(&self.socket, self.family, 0, &body, |_, body| {
            let combinations =
                attributes(body.get(4..).unwrap_or_default()).find(|(kind, _)| *kind == Self::COMBINATIONS);
            both |= combinations.is_some_and(|(_, list)| attributes(list).any(|(_, one)| allows_both(one)));
        })?;
        Ok(both)
    }

    /// Makes a second interface of this radio, for an access point beside the station.
    pub(crate) fn add_access_point(&self, beside: &str, name: &str) -> io::Result<()> {
        const ACCESS_POINT: u32 = 3;
        let index = self.index(beside)?;
        let text = fs::read_to_string(format!("/sys/class/net/{beside}/address"))?;
        let mut address: Vec<u8> = text
            .trim()
            .split(':')
            .map(|byte| u8::from_str_radix(byte, 16))
            .collect::<Result<_, _>>()
            .map_err(io::Error::other)?;
        // Of its own, and marked as one that is locally given.
        if let [first, .., last] = &mut *address {
            *first |= 0x02;
            *last ^= 0x01;
        }
        let body = generic(
            Self::NEW_INTERFACE,
            &[
                (Self::INTERFACE_INDEX, &index),
                (Self::INTERFACE_NAME, format!("{name}\0").as_bytes()),
                (Self::INTERFACE_TYPE, &ACCESS_POINT.to_ne_bytes()),
                (Self::ADDRESS, &address),
            ],
        );
        ask(&self.socket, self.family, ACK, &body, |_, _| ())
    }

    /// Takes an interface of a radio away again. Whether there was one.
    pub(crate) fn remove(&self, name: &str) -> io::Result<bool> {
        let Ok(index) = self.index(name) else { return Ok(false) };
        let body = generic(Self::DELETE_INTERFACE, &[(Self::INTERFACE_INDEX, &index)]);
        ask(&self.socket, self.family, ACK, &body, |_, _| ()).map(|()| true)
    }

    /// Switches power save of a link on or off, from now on.
    pub(crate) fn set_power_save(&self, interface: &str, on: bool) -> io::Result<()> {
        let index = self.index(interface)?;
        let state = u32::from(on).to_ne_bytes();
        let body = generic(Self::SET_POWER_SAVE, &[(Self::INTERFACE_INDEX, &index), (Self::POWER_SAVE, &state)]);
        ask(&self.socket, self.family, ACK, &body, |_, _| ())
    }

    /// Whether power save of a link is on.
    pub(crate) fn power_save(&self, interface: &str) -> io::Result<bool> {
        let index = self.index(interface)?;
        let mut on = None;
        let body = generic(Self::GET_POWER_SAVE, &[(Self::INTERFACE_INDEX, &index)]);
        ask(&self.socket, self.family, 0, &body, |_, body| {
            let mut all = attributes(body.get(4..).unwrap_or_default());
            let value = all.find(|(kind, _)| *kind == Self::POWER_SAVE).map(|(_, value)| value);
            on = value.and_then(|value| value.first_chunk()).map(|value| u32::from_ne_bytes(*value) != 0);
        })?;
        on.ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Asks for the radio rules of a country, two letters.
    pub(crate) fn set_country(&self, country: [u8; 2]) -> io::Result<()> {
        let [first, second] = country;
        let body = generic(Self::REQUEST_COUNTRY, &[(Self::COUNTRY, &[first, second, 0])]);
        ask(&self.socket, self.family, ACK, &body, |_, _| ())
    }

    fn index(&self, interface: &str) -> io::Result<[u8; 4]> {
        Ok(rustix::net::netdevice::name_to_index(&self.socket, interface)?.to_ne_bytes())
    }
}

/// Whether one of the kernel's combinations of interfaces has room for a station and an access point on two channels.
fn allows_both(combination: &[u8]) -> bool {
    const LIMITS: u16 = 1;
    const AT_MOST: u16 = 2;
    const CHANNELS: u16 = 4;
    const LIMIT_MAX: u16 = 1;
    const LIMIT_TYPES: u16 = 2;
    const STATION: u16 = 2;
    const ACCESS_POINT: u16 = 3;
    let number = |of: &[u8], wanted| {
        let value = attributes(of).find(|(kind, _)| *kind == wanted)?.1;
        Some(u32::from_ne_bytes(*value.first_chunk()?))
    };
    if number(combination, AT_MOST).unwrap_or(0) < 2 || number(combination, CHANNELS).unwrap_or(1) < 2 {
        return false;
    }
    // Room by itself for each, and for both where they share a limit.
    let (mut station, mut access_point, mut shared, mut own) = (false, false, false, 0);
    for (_, limit) in attributes(combination).filter(|(kind, _)| *kind == LIMITS).flat_map(|(_, list)| attributes(list))
    {
        let at_most = number(limit, LIMIT_MAX).unwrap_or(0);
        let types =
            || attributes(limit).filter(|(kind, _)| *kind == LIMIT_TYPES).flat_map(|(_, list)| attributes(list));
        let has = |wanted| at_most > 0 && types().any(|(kind, _)| kind == wanted);
        station |= has(STATION);
        access_point |= has(ACCESS_POINT);
        shared |= has(STATION) && has(ACCESS_POINT) && at_most >= 2;
        own += u32::from(has(STATION) || has(ACCESS_POINT));
    }
    station && access_point && (shared || own >= 2)
}

/// `None` is the family of addresses, routes and links, whose number is zero.
fn open(protocol: Option<Protocol>, groups: u32, flags: SocketFlags) -> io::Result<OwnedFd> {
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, protocol)?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(ANSWER_MAX))?;
    bind(&socket, &SocketAddrNetlink::new(0, groups))?;
    Ok(socket)
}

/// Sends one question and reads its answer to the end.
fn ask(socket: &OwnedFd, kind: u16, flags: u16, body: &[u8], mut read: impl FnMut(u16, &[u8])) -> io::Result<()> {
    let length = u32::try_from(HEADER + body.len()).map_err(io::Error::other)?;
    let mut question = Vec::with_capacity(HEADER + body.len());
    question.extend_from_slice(&length.to_ne_bytes());
    question.extend_from_slice(&kind.to_ne_bytes());
    question.extend_from_slice(&(REQUEST | flags).to_ne_bytes());
    question.extend_from_slice(&[0; 8]);
    question.extend_from_slice(body);
    sendto(socket, &question, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    let mut buffer = vec![0; DATAGRAM];
    for _ in 0..DATAGRAMS_MAX {
        let (length, _) = recv(socket, &mut *buffer, RecvFlags::empty())?;
        for (kind, body) in messages(buffer.get(..length).unwrap_or_default()) {
            match kind {
                DONE => return Ok(()),
                ERROR => {
                    let code = body.first_chunk().map_or(-1, |code| i32::from_ne_bytes(*code));
                    return if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code.saturating_neg())) };
                }
                kind => read(kind, body),
            }
        }
        if flags & (DUMP | ACK) == 0 {
            return Ok(());
        }
    }
    Err(io::Error::other("the kernel's answer does not end"))
}

/// A message of the generic family.
fn generic(command: u8, attributes: &[(u16, &[u8])]) -> Vec<u8> {
    let mut body = vec![command, 1, 0, 0];
    for (kind, value) in attributes {
        let length = u16::try_from(4 + value.len()).unwrap_or(4);
        body.extend_from_slice(&length.to_ne_bytes());
        body.extend_from_slice(&kind.to_ne_bytes());
        body.extend_from_slice(value);
        body.resize(body.len().next_multiple_of(4), 0);
    }
    body
}

/// Kind and body of each message of a datagram.
fn messages(mut rest: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let header = rest.first_chunk::<HEADER>()?;
        let [a, b, c, d, e, f, ..] = *header;
        let length = usize::try_from(u32::from_ne_bytes([a, b, c, d])).ok()?;
        let body = rest.get(HEADER..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((u16::from_ne_bytes([e, f]), body))
    })
}

/// Kind and value of each attribute.
fn attributes(mut rest: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    /// Marks of nesting and byte order.
    const KIND: u16 = 0x3fff;
    std::iter::from_fn(move || {
        let [a, b, c, d] = *rest.first_chunk::<4>()?;
        let length = usize::from(u16::from_ne_bytes([a, b]));
        let value = rest.get(4..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((u16::from_ne_bytes([c, d]) & KIND, value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        generic(0, &[(kind, value)]).split_off(4)
    }

    fn combination(at_most: u32, channels: u32, limits: &[(u32, &[u16])]) -> Vec<u8> {
        let limits = limits.iter().enumerate().flat_map(|(index, (at_most, types))| {
            let types: Vec<u8> = types.iter().flat_map(|kind| attribute(*kind, &[])).collect();
            let limit = [attribute(1, &at_most.to_ne_bytes()), attribute(2, &types)].concat();
            attribute(u16::try_from(index).unwrap() + 1, &limit)
        });
        let limits: Vec<u8> = limits.collect();
        [attribute(1, &limits), attribute(2, &at_most.to_ne_bytes()), attribute(4, &channels.to_ne_bytes())].concat()
    }

    #[test]
    fn an_access_point_beside_a_station_needs_room_and_a_second_channel() {
        const STATION: u16 = 2;
        const AP: u16 = 3;
        let cases = [
            ("one limit for both", combination(4, 2, &[(4, &[STATION, AP])]), true),
            ("a limit each", combination(3, 2, &[(1, &[STATION]), (1, &[AP, 9])]), true),
            ("one of either", combination(2, 2, &[(1, &[STATION, AP])]), false),
            ("one interface", combination(1, 2, &[(1, &[STATION]), (1, &[AP])]), false),
            ("the same channel only", combination(4, 1, &[(1, &[STATION]), (1, &[AP])]), false),
            ("no access point", combination(4, 2, &[(4, &[STATION])]), false),
            ("nothing", vec![], false),
            ("rubbish", vec![0xff; 40], false),
        ];
        for (case, combination, both) in cases {
            assert_eq!(allows_both(&combination), both, "{case}");
        }
    }

    #[test]
    fn a_default_route_is_one_that_leads_out() {
        let table = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n\
                     eth0\t00000000\t0101A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n\
                     eth0\t0001A8C0\t00000000\t0001\t0\t0\t100\t00FFFFFF\t0\t0\t0\n\
                     wlan0\t00000000\t0101A8C0\t0203\t0\t0\t600\t00000000\t0\t0\t0\n\
                     tun0\t00000000\t00000000\t0001\t0\t0\t50\t00000080\t0\t0\t0\nhalf\t0000";
        assert_eq!(default_routes_of(table), ["eth0"]);
        let routes: Vec<_> = routes_of(table).into_iter().map(|one| (one.interface, one.address, one.prefix)).collect();
        assert_eq!(routes, [("eth0".to_owned(), [192, 168, 1, 0].into(), 24)], "half of everywhere is a way out");
    }

    #[test]
    fn this_machine_answers() {
        let addresses = addresses().expect("netlink");
        assert!(addresses.iter().all(|one| !one.address.is_loopback() && one.prefix <= 32), "{addresses:?}");
    }

    #[test]
    fn a_scan_is_no_change() {
        let message = |kind: u16, body: &[u8]| {
            let length = u32::try_from(HEADER + body.len()).unwrap();
            [&length.to_ne_bytes(), &kind.to_ne_bytes()[..], &[0; 10], body].concat()
        };
        let scan = message(NEW_LINK, &[&[0; 16][..], &attribute(LINK_WIRELESS, &[1, 2, 3, 4])].concat());
        let link = message(NEW_LINK, &[&[0; 16][..], &attribute(3, b"eth0")].concat());
        assert!(is_only_radio(&scan));
        assert!(!is_only_radio(&link));
        assert!(!is_only_radio(&[scan, link].concat()));
        assert!(!is_only_radio(&message(NEW_ADDRESS, &[0; 8])));
    }
}
