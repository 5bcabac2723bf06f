//! Messages of the bus (D-Bus): real ones, spoilt.

use board_linux::dbus::{Kind, Message, parse};
use board_sim::random::Random;

/// What dbus-daemon answers to a Hello.
const HELLO: &[u8] = b"l\x02\x01\x01\x09\0\0\0\x01\0\0\0\x3d\0\0\0\
    \x06\x01s\0\x04\0\0\0:1.0\0\0\0\0\x05\x01u\0\x01\0\0\0\x08\x01g\0\x01s\0\0\
    \x07\x01s\0\x14\0\0\0org.freedesktop.DBus\0\0\0\0\x04\0\0\0:1.0\0";
/// A write by a phone: bytes, and options of four types.
const WRITE: &[u8] =
    b"l\x01\0\x01\x86\0\0\0\x09\0\0\0]\0\0\0\x01\x01o\0\x04\0\0\0/a/b\0\0\0\0\x03\x01s\0\x0a\0\0\0WriteValu\
    e\0\0\0\0\0\0\x02\x01s\0\x0b\0\0\0org.bluez.x\0\0\0\0\0\x08\x01g\0\x07aya{sv}\0\0\0\0\x07\x01s\0\x04\0\
    \0\0:1.7\0\0\0\0\x02\0\0\0hi\0\0v\0\0\0\0\0\0\0\x06\0\0\0offset\0\x01q\0\x07\0\x04\0\0\0link\0\x01s\0\
    \x02\0\0\0LE\0\0\0\0\0\0\x06\0\0\0device\0\x01o\0\0\0\x04\0\0\0/a/b\0\0\0\0\0\0\0\0\x03\0\0\0all\0\x06\
    a{uas}\0\x16\0\0\0\0\0\0\0\x05\0\0\0\x0e\0\0\0\x02\0\0\0ab\0\0\x01\0\0\0c\0";

/// Whatever is read can be sent, and is then the same.
pub(super) fn round(random: &Random) -> Result<(), String> {
    let mut bytes = random.pick(&[HELLO, WRITE]).to_vec();
    super::spoil(random, &mut bytes);
    if random.below(2) == 0 {
        // A length that fits, so that what is behind it is looked at.
        let body = u32::try_from(bytes.len()).unwrap_or(0).saturating_sub(*random.pick(&[80, 112]));
        bytes.splice(4.min(bytes.len())..8.min(bytes.len()), body.to_le_bytes());
    }
    let Ok(message) = parse(&bytes) else { return Ok(()) };
    // A kind that this protocol does not know is passed over, as it has to be, and never sent.
    if message.kind == Kind::Unknown {
        return Ok(());
    }
    let sent = |message: &Message| message.bytes(false).map_err(|error| format!("{error}: {message:?}"));
    let once = sent(&message)?;
    let again = parse(&once).map_err(|error| format!("{error}: {message:?}"))?;
    if sent(&again)? == once { Ok(()) } else { Err(format!("another message comes of it: {message:?}")) }
}

#[cfg(test)]
mod tests {
    #[test]
    fn they_are_messages() {
        for bytes in [super::HELLO, super::WRITE] {
            board_linux::dbus::parse(bytes).expect("a message");
        }
    }
}
