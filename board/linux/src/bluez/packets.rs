//! What fits into an advertisement: 31 bytes each, of which BlueZ uses three for flags. The name goes into the answer to
//! a scan, which has 31 bytes of its own.

use board::bluetooth::{Advertisement, Uuid};

/// One packet (Bluetooth Core 5.4, Vol 3, Part C, 11).
const PACKET: usize = 31;
/// Length and kind before each part.
const HEAD: usize = 2;
/// BlueZ puts them into each packet.
const FLAGS: usize = HEAD + 1;

/// One advertisement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Packet {
    /// The service that is named.
    pub service: Uuid,
    /// Data and its name.
    pub data: Option<(Uuid, Vec<u8>)>,
}

/// Bytes of a name in the air.
fn size(uuid: Uuid) -> usize {
    let is_short = (0..=u16::MAX).contains(&u16::try_from(uuid.0 >> 96).unwrap_or_default())
        && Uuid::short(u16::try_from(uuid.0 >> 96).unwrap_or_default()) == uuid;
    if is_short { 2 } else { 16 }
}

/// One packet for each service that is found. Data that does not fit is left out, rather than the service.
pub(super) fn packets(advertisement: &Advertisement) -> Vec<Packet> {
    let fits = |service: Uuid, name: Uuid, data: &[u8]| {
        FLAGS + HEAD + size(service) + HEAD + size(name) + data.len() <= PACKET
    };
    advertisement
        .found
        .iter()
        .map(|found| Packet {
            service: found.service,
            data: found.data.clone().filter(|(name, data)| fits(found.service, *name, data)),
        })
        .collect()
}

/// The name as far as it fits into the answer to a scan, cut at a character.
pub(super) fn name(advertisement: &Advertisement) -> &str {
    let name = &advertisement.name;
    let end = (0..=name.len().min(PACKET - HEAD)).rev().find(|at| name.is_char_boundary(*at)).unwrap_or_default();
    name.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use board::bluetooth::Found;

    use super::*;

    #[test]
    fn thirty_one_bytes() {
        let long = Uuid(0x0046_7768_6228_2272_4663_2774_7826_8000);
        let table = [
            (long, Some((Uuid::short(0x4677), vec![0; 6])), true),
            (long, Some((Uuid::short(0x4677), vec![0; 7])), false),
            (long, Some((long, vec![])), false),
            (Uuid::short(0x180a), Some((Uuid::short(0x4677), vec![0; 20])), true),
            (Uuid::short(0x180a), Some((Uuid::short(0x4677), vec![0; 21])), false),
            (long, None, false),
        ];
        for (service, data, kept) in table {
            let length = data.as_ref().map(|(_, data)| data.len());
            let found = vec![Found { service, data }];
            let packets = packets(&Advertisement { name: "x".into(), found });
            assert_eq!(packets[0].data.is_some(), kept, "{service} {length:?}");
            assert_eq!(packets[0].service, service);
        }
        let named = |name: &str| Advertisement { name: name.into(), found: vec![] };
        assert_eq!(name(&named("platform-setup-board-7")), "platform-setup-board-7");
        assert_eq!(name(&named(&"ä".repeat(20))), "ä".repeat(14));
        assert_eq!(name(&named(&"x".repeat(40))).len(), 29);
    }
}
