//! Where a call really comes from, when a proxy of ours stands in front.
//!
//! Off unless somebody says which addresses are proxies: whoever is not one can write anything into the header.

use std::{net::IpAddr, str::FromStr};

use http::HeaderMap;

/// Addresses of proxies that are believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

/// Of an IPv6 address that stands for one of IPv4, what says so (RFC 4291, 2.5.5.2).
const MAPPED_BITS: u8 = 96;

/// It is not an address or a network.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("give an address such as 10.0.0.1 or a network such as 10.0.0.0/8 or fd00::/8")]
pub struct NoNetwork;

impl FromStr for Network {
    type Err = NoNetwork;

    fn from_str(text: &str) -> Result<Self, NoNetwork> {
        let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let address: IpAddr = address.parse().map_err(|_| NoNetwork)?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(most), |bits| bits.parse().map_err(|_| NoNetwork))?;
        match (address.to_canonical(), bits) {
            (_, bits) if bits > most => Err(NoNetwork),
            // ::ffff:10.0.0.1 is 10.0.0.1: so are callers' addresses compared, however the port hears of them.
            (IpAddr::V4(mapped), MAPPED_BITS..) if address.is_ipv6() => {
                Ok(Self { address: mapped.into(), bits: bits - MAPPED_BITS })
            }
            _ => Ok(Self { address, bits }),
        }
    }
}

impl Network {
    /// Whether the address is that one, or in that network.
    pub fn has(&self, other: IpAddr) -> bool {
        let bits = |address: IpAddr| match address {
            IpAddr::V4(address) => u128::from(address.to_bits()) << 96,
            IpAddr::V6(address) => address.to_bits(),
        };
        let differs = bits(self.address) ^ bits(other);
        let outside = u32::from(self.bits);
        self.address.is_ipv4() == other.is_ipv4() && (outside == 0 || differs >> (128 - outside) == 0)
    }
}

/// The nearest address on the way here that is no proxy of ours. Each proxy writes behind what it was told.
pub(super) fn origin(proxies: &[Network], peer: IpAddr, headers: &HeaderMap) -> IpAddr {
    let ours = |address: IpAddr| proxies.iter().any(|proxy| proxy.has(address));
    let mut nearest = peer;
    if !ours(nearest) {
        return peer;
    }
    let values = headers.get_all("x-forwarded-for").iter().rev();
    for named in values.flat_map(|value| value.to_str().unwrap_or("").rsplit(',')) {
        // Nonsense, or a name: what is beyond it cannot be believed.
        let Some(address) = address(named.trim()) else { break };
        nearest = address;
        if !ours(nearest) {
            break;
        }
    }
    nearest
}

/// Some proxies add the port.
fn address(named: &str) -> Option<IpAddr> {
    let with_port = || named.parse::<std::net::SocketAddr>().ok().map(|address| address.ip());
    let bracketed = named.trim_start_matches('[').trim_end_matches(']');
    bracketed.parse::<IpAddr>().ok().or_else(with_port).map(|address| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_proxies_are_believed_and_only_as_far_as_they_are_ours() {
        let table: [(&[&str], &str, &[&str], &str); 10] = [
            (&[], "10.0.0.1", &["203.0.113.9"], "10.0.0.1"),
            (&["10.0.0.0/8"], "192.0.2.1", &["203.0.113.9"], "192.0.2.1"),
            (&["10.0.0.0/8"], "10.0.0.1", &[], "10.0.0.1"),
            (&["10.0.0.0/8"], "10.0.0.1", &["203.0.113.9"], "203.0.113.9"),
            // What the caller wrote itself stands first, and is not looked at.
            (&["10.0.0.0/8"], "10.0.0.1", &["1.1.1.1, 203.0.113.9"], "203.0.113.9"),
            (&["10.0.0.0/8"], "10.0.0.1", &["1.1.1.1, 203.0.113.9, 10.2.3.4"], "203.0.113.9"),
            (&["10.0.0.0/8"], "10.0.0.1", &["1.1.1.1", "203.0.113.9:4711"], "203.0.113.9"),
            (&["10.0.0.0/8"], "10.0.0.1", &["1.1.1.1, nonsense"], "10.0.0.1"),
            (&["::1"], "::1", &["[2001:db8::7]"], "2001:db8::7"),
            (&["0.0.0.0/0"], "10.0.0.1", &["203.0.113.9"], "203.0.113.9"),
        ];
        for (proxies, peer, said, origin) in table {
            let proxies: Vec<Network> = proxies.iter().map(|one| one.parse().unwrap()).collect();
            let mut headers = HeaderMap::new();
            for value in said {
                headers.append("x-forwarded-for", value.parse().unwrap());
            }
            let found = super::origin(&proxies, peer.parse().unwrap(), &headers);
            assert_eq!(found, origin.parse::<IpAddr>().unwrap(), "{peer} says {said:?}");
        }
    }

    #[test]
    fn networks_are_read_and_nonsense_is_not() {
        for wrong in ["", "x", "10.0.0.1/33", "10.0.0.0/", "::/129", "10.0.0.1/8/9"] {
            assert_eq!(wrong.parse::<Network>(), Err(NoNetwork), "{wrong:?}");
        }
        let network: Network = "192.0.2.128/25".parse().unwrap();
        assert!(network.has("192.0.2.200".parse().unwrap()) && !network.has("192.0.2.1".parse().unwrap()));
        let same =
            [("::ffff:10.0.0.1", "10.0.0.1"), ("::ffff:10.0.0.0/104", "10.0.0.0/8"), ("::ffff:0:0/96", "0.0.0.0/0")];
        for (mapped, plain) in same {
            assert_eq!(mapped.parse::<Network>(), plain.parse(), "{mapped:?}");
        }
        // Wider than what stands for IPv4: a network of IPv6.
        let wider: Network = "::ffff:0:0/80".parse().unwrap();
        assert!(wider.has("::1".parse().unwrap()) && !wider.has("10.0.0.1".parse().unwrap()));
    }
}
