//! Whom a TCP balancer brings: the header of the PROXY protocol, before anything else on a connection, TLS included.
//!
//! Versions 1 and 2, as HAProxy's `doc/proxy-protocol.txt` has them. The header is demanded of balancers that were named
//! and looked for in no other connection: whoever may leave it out, or may write one, chooses where it comes from. Owns
//! where a header ends and what it says. Not a byte beyond it is read: what follows is TLS's. Notes behind the addresses
//! (TLVs) are passed over, a checksum among them too: TCP has its own, and whoever could change the bytes could change it.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use tokio::{io::AsyncReadExt, net::TcpStream};

/// A line of version 1, with its end.
const LINE_MAX: usize = 107;
/// What version 2 begins with.
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// The signature, what this is, and the length of the rest.
const FIXED: usize = 16;
/// Two addresses and notes. Balancers write some hundred bytes; the format would allow 64 KiB.
const REST_MAX: usize = 2048;

/// What the first bytes of a connection say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Header {
    /// All of them belong to a header that goes on.
    GoesOn,
    /// It ends after so many bytes. Without an address it is the balancer's own connection, or of somebody whom it
    /// cannot name.
    Whole { length: usize, told: Option<IpAddr> },
}

/// What came is no header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Nonsense;

/// Why a balancer's connection is closed.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoHeader {
    /// It begins with something else.
    #[error("no header of the PROXY protocol, or a wrong one: have the balancer send it")]
    Nonsense,
    /// It ended before the header did.
    #[error("the connection ended inside the header")]
    Cut,
    /// It goes on for too long.
    #[error("the header did not come in time")]
    Slow,
    /// The system could not read.
    #[error("could not read the header")]
    Read(#[from] io::Error),
}

/// Reads the header, as long as it takes, and nothing of what follows; from where the balancer brings somebody.
pub(super) async fn brought(stream: &mut TcpStream) -> Result<Option<IpAddr>, NoHeader> {
    // Not in the connection's own memory, which is there for as long as the connection.
    let mut bytes = vec![0; FIXED + REST_MAX];
    let mut read = 0;
    loop {
        let more = stream.peek(&mut bytes[read..]).await?;
        if more == 0 {
            return Err(NoHeader::Cut);
        }
        let found = header(&bytes[..read + more]).map_err(|Nonsense| NoHeader::Nonsense)?;
        let end = match found {
            Header::GoesOn => read + more,
            Header::Whole { length, .. } => length,
        };
        stream.read_exact(&mut bytes[read..end]).await?;
        match found {
            Header::GoesOn => read = end,
            Header::Whole { told, .. } => return Ok(told.map(|address| address.to_canonical())),
        }
    }
}

/// Decided after any number of bytes: as many as there can be are always the end of it.
fn header(seen: &[u8]) -> Result<Header, Nonsense> {
    if begins(seen, SIGNATURE) { binary(seen) } else { line(seen) }
}

fn binary(seen: &[u8]) -> Result<Header, Nonsense> {
    let Some((&[.., version_and_command, kind, high, low], rest)) = seen.split_first_chunk::<FIXED>() else {
        return Ok(Header::GoesOn);
    };
    let length = usize::from(u16::from_be_bytes([high, low]));
    if length > REST_MAX {
        return Err(Nonsense);
    }
    let Some(rest) = rest.get(..length) else { return Ok(Header::GoesOn) };
    let told = match (version_and_command, kind) {
        // LOCAL: it looks whether we are well. What else it says means nothing.
        (0x20, _) => None,
        // PROXY, of somebody unknown, or from a socket of its own machine.
        (0x21, 0x00 | 0x31) => None,
        // TCP: both addresses, both ports.
        (0x21, 0x11) => Some(IpAddr::from(*rest.first_chunk::<4>().filter(|_| rest.len() >= 12).ok_or(Nonsense)?)),
        (0x21, 0x21) => Some(IpAddr::from(*rest.first_chunk::<16>().filter(|_| rest.len() >= 36).ok_or(Nonsense)?)),
        _ => return Err(Nonsense),
    };
    Ok(Header::Whole { length: FIXED + length, told })
}

fn line(seen: &[u8]) -> Result<Header, Nonsense> {
    if !begins(seen, b"PROXY ") {
        return Err(Nonsense);
    }
    let Some(end) = seen.windows(2).take(LINE_MAX - 1).position(|two| two == b"\r\n") else {
        return if seen.len() < LINE_MAX { Ok(Header::GoesOn) } else { Err(Nonsense) };
    };
    let text = str::from_utf8(&seen[..end]).map_err(|_| Nonsense)?;
    let words: Vec<&str> = text.split(' ').collect();
    let told = match *words {
        [_, "UNKNOWN", ..] => None,
        [_, "TCP4", from, to, ref ports @ ..] if to.parse::<Ipv4Addr>().is_ok() && two_ports(ports) => {
            Some(IpAddr::V4(from.parse().map_err(|_| Nonsense)?))
        }
        [_, "TCP6", from, to, ref ports @ ..] if to.parse::<Ipv6Addr>().is_ok() && two_ports(ports) => {
            Some(IpAddr::V6(from.parse().map_err(|_| Nonsense)?))
        }
        _ => return Err(Nonsense),
    };
    Ok(Header::Whole { length: end + 2, told })
}

fn two_ports(words: &[&str]) -> bool {
    let port = |word: &&str| word.bytes().all(|letter| letter.is_ascii_digit()) && word.parse::<u16>().is_ok();
    words.len() == 2 && words.iter().all(port)
}

/// As far as both go.
fn begins(seen: &[u8], word: &[u8]) -> bool {
    seen.iter().zip(word).all(|(one, other)| one == other)
}

#[cfg(test)]
mod tests {
    use tokio::{io::AsyncWriteExt, net::TcpListener};

    use super::*;

    /// Version 2: what it is, and what follows.
    fn two(command: u8, kind: u8, rest: &[u8]) -> Vec<u8> {
        let length = u16::try_from(rest.len()).unwrap().to_be_bytes();
        [SIGNATURE, &[command, kind][..], &length, rest].concat()
    }

    const V4: [u8; 12] = [203, 0, 113, 7, 10, 0, 0, 1, 0x30, 0x39, 0x01, 0xbb];

    fn v6(from: &str) -> Vec<u8> {
        let from: Ipv6Addr = from.parse().unwrap();
        [&from.octets()[..], &[0xfd; 16], &[0, 1, 0, 2]].concat()
    }

    #[test]
    fn what_headers_say() {
        let notes = [&V4[..], &[3, 0, 4, 1, 2, 3, 4], &[7; 500]].concat();
        let longest = b"PROXY UNKNOWN ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535\r\n";
        assert_eq!(longest.len(), LINE_MAX);
        let table: [(&[u8], Option<&str>); 15] = [
            (b"PROXY TCP4 203.0.113.7 10.0.0.1 12345 443\r\n", Some("203.0.113.7")),
            (b"PROXY TCP6 2001:db8::7 fd00::1 12345 443\r\n", Some("2001:db8::7")),
            (b"PROXY TCP6 ::ffff:203.0.113.7 ::ffff:10.0.0.1 1 65535\r\n", Some("::ffff:203.0.113.7")),
            (b"PROXY UNKNOWN\r\n", None),
            (b"PROXY UNKNOWN anything 1.2.3.4\r\n", None),
            (longest, None),
            (&two(0x21, 0x11, &V4), Some("203.0.113.7")),
            (&two(0x21, 0x11, &notes), Some("203.0.113.7")),
            (&two(0x21, 0x21, &v6("2001:db8::7")), Some("2001:db8::7")),
            (&two(0x20, 0x00, &[]), None),
            (&two(0x20, 0x11, &V4), None),
            (&two(0x20, 0xff, &[1; 40]), None),
            (&two(0x21, 0x00, &[]), None),
            (&two(0x21, 0x31, &[0; 216]), None),
            (&two(0x21, 0x11, &[&V4[..], &[0; REST_MAX - 12]].concat()), Some("203.0.113.7")),
        ];
        for (bytes, told) in table {
            let told = told.map(|address| address.parse().unwrap());
            let whole = Ok(Header::Whole { length: bytes.len(), told });
            let case = String::from_utf8_lossy(bytes);
            assert_eq!(header(bytes), whole, "{case:?}");
            for length in 0..bytes.len() {
                assert_eq!(header(&bytes[..length]), Ok(Header::GoesOn), "{length} bytes of {case:?}");
            }
            for follows in ["\r\n", "PROXY UNKNOWN\r\n", "GET / HTTP/1.1\r\n\r\n"] {
                assert_eq!(header(&[bytes, follows.as_bytes()].concat()), whole, "{case:?} and then {follows:?}");
            }
        }
    }

    #[test]
    fn what_is_no_header() {
        let too_long = [b"PROXY UNKNOWN ", &[b'x'; LINE_MAX][..], b"\r\n"].concat();
        let table: [&[u8]; 24] = [
            b"GET / HTTP/1.1\r\n\r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01",
            b"proxy UNKNOWN\r\n",
            b"PROXY\r\n",
            b"PROXY \r\n",
            b"PROXY TCP4\r\n",
            b"PROXY TCP5 1.2.3.4 1.2.3.4 1 2\r\n",
            b"PROXY TCP4 1.2.3.4 1.2.3.4 1\r\n",
            b"PROXY TCP4 1.2.3.4 1.2.3.4 1 2 3\r\n",
            b"PROXY TCP4  1.2.3.4 1.2.3.4 1 2\r\n",
            b"PROXY TCP4 1.2.3 1.2.3.4 1 2\r\n",
            b"PROXY TCP4 ::1 ::1 1 2\r\n",
            b"PROXY TCP6 1.2.3.4 ::1 1 2\r\n",
            b"PROXY TCP4 1.2.3.4 1.2.3.4 +1 2\r\n",
            b"PROXY TCP4 1.2.3.4 1.2.3.4 1 65536\r\n",
            b"PROXY TCP4 1.2.3.4 1.2.3.4 1 2\n\r\n",
            b"PROXY TCP4 1.2.3.\xff 1.2.3.4 1 2\r\n",
            &too_long,
            b"\r\n\r\n\0\r\nQUIT\r",
            &two(0x11, 0x11, &V4),
            &two(0x22, 0x11, &V4),
            &two(0x21, 0x12, &V4),
            &two(0x21, 0x11, &V4[..11]),
        ];
        for bytes in table {
            assert_eq!(header(bytes), Err(Nonsense), "{:?}", String::from_utf8_lossy(bytes));
        }
        assert_eq!(header(&two(0x21, 0x21, &v6("::1")[..35])), Err(Nonsense));
        // Refused before it is there.
        let huge = two(0x21, 0x11, &[0; REST_MAX + 1]);
        assert_eq!(header(&huge[..FIXED]), Err(Nonsense));
    }

    #[test]
    fn any_bytes_are_decided_and_what_was_decided_stays() {
        let good = [
            b"PROXY TCP4 203.0.113.7 10.0.0.1 12345 443\r\n".to_vec(),
            b"PROXY TCP6 2001:db8::7 fd00::1 12345 443\r\n".to_vec(),
            two(0x21, 0x11, &[&V4[..], &[3; 60]].concat()),
            two(0x21, 0x21, &v6("2001:db8::7")),
            two(0x20, 0x00, &[]),
        ];
        let mut state = 7_u64;
        let mut below = |end: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(state >> 33).unwrap() % end
        };
        let (mut whole, mut wrong) = (0, 0);
        for round in 0..3_000 {
            let mut bytes = good[below(good.len())].clone();
            for _ in 0..below(3) {
                let at = below(bytes.len());
                bytes[at] = u8::try_from(below(256)).unwrap();
            }
            bytes.resize_with(bytes.len() + FIXED + REST_MAX, || u8::try_from(below(256)).unwrap());
            let mut before = Ok(Header::GoesOn);
            for seen in 1..=bytes.len() {
                let now = header(&bytes[..seen]);
                match before {
                    Ok(Header::GoesOn) => {
                        if let Ok(Header::Whole { length, .. }) = now {
                            assert_eq!(length, seen, "round {round}: known as soon as it is there, and not before");
                            whole += 1;
                        }
                        wrong += i32::from(now.is_err());
                    }
                    decided => {
                        assert_eq!(now, decided, "round {round}, {seen} bytes");
                        // One more says as much as two thousand.
                        if seen % 64 == 0 {
                            break;
                        }
                    }
                }
                before = now;
            }
            assert_ne!(before, Ok(Header::GoesOn), "round {round}: no end of it");
        }
        assert!(whole > 1_000 && wrong > 500, "{whole} headers, {wrong} others");
    }

    #[tokio::test]
    async fn not_a_byte_beyond_it_is_read_however_it_comes() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mapped = two(0x21, 0x21, &[&v6("::ffff:203.0.113.7")[..], &[3; 700]].concat());
        for header in [b"PROXY TCP4 203.0.113.7 10.0.0.1 12345 443\r\n".to_vec(), mapped] {
            for piece in [1, 7, 4096] {
                let (client, server) = tokio::join!(TcpStream::connect(address), listener.accept());
                let (mut client, (mut server, _)) = (client.unwrap(), server.unwrap());
                let all = [&header[..], b"what follows"].concat();
                let saying = tokio::spawn(async move {
                    client.set_nodelay(true).unwrap();
                    for piece in all.chunks(piece) {
                        client.write_all(piece).await.unwrap();
                        tokio::task::yield_now().await;
                    }
                });
                assert_eq!(brought(&mut server).await.unwrap(), Some(IpAddr::from([203, 0, 113, 7])));
                let mut rest = String::new();
                server.read_to_string(&mut rest).await.unwrap();
                assert_eq!(rest, "what follows");
                saying.await.unwrap();
            }
        }
        let (client, server) = tokio::join!(TcpStream::connect(address), listener.accept());
        client.unwrap().write_all(b"PROXY TCP4 203.0.113.7").await.unwrap();
        assert!(matches!(brought(&mut server.unwrap().0).await, Err(NoHeader::Cut)));
    }
}
