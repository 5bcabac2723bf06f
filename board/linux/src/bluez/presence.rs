//! Whether a phone is near: it is asked for its name, which it answers without a connection.
//!
//! Connecting to one that is not near would tell, too. But there are kernels (6.1.192 of Debian) that free the channel of a
//! connection that nobody answered twice, and stop bluetoothd for it. The controller is spoken to beside BlueZ, which has no
//! such question; its answers disturb nobody else.

use std::{
    io, mem,
    os::fd::{AsRawFd as _, OwnedFd},
    time::Duration,
};

use board::Clock;
use rustix::net::{AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};
use smol::{Async, future::FutureExt as _};

/// Longest wait. A controller gives up after five seconds, unless somebody has told it otherwise.
const ANSWER_MAX: Duration = Duration::from_secs(12);
/// Room for the longest event.
const EVENT: usize = 3 + 255;

const COMMAND: u8 = 1;
const TELLS: u8 = 4;
const REMOTE_NAME_REQUEST: u16 = 0x0419;
const REMOTE_NAME: u8 = 0x07;
const COMMAND_STATUS: u8 = 0x0F;

/// Protocol HCI of Bluetooth's sockets.
const HCI: u32 = 1;
const FILTER_LEVEL: libc::c_int = 0;
const FILTER: libc::c_int = 2;

/// `struct sockaddr_hci`: which controller, and that it is spoken to as it is.
#[repr(C)]
struct Place {
    family: u16,
    controller: u16,
    channel: u16,
}

/// `struct hci_ufilter`: what is heard.
#[repr(C)]
struct Filter {
    kinds: u32,
    events: [u32; 2],
    command: u16,
    unused: u16,
}

/// Whether the phone of this address answers the adapter at this path of BlueZ's. Takes up to seconds where it does not.
pub(super) async fn is_near(clock: &dyn Clock, adapter: &str, phone: [u8; 6]) -> io::Result<bool> {
    let number = adapter.rsplit("/hci").next().and_then(|number| number.parse().ok());
    let socket = Async::new_nonblocking(open(number.ok_or(io::ErrorKind::InvalidInput)?)?)?;
    // Bluetooth sends addresses from their end.
    let mut address = phone;
    address.reverse();
    send(socket.get_ref(), &question(address), SendFlags::NOSIGNAL)?;
    let answered = async {
        let mut event = [0; EVENT];
        loop {
            socket.readable().await?;
            match recv(socket.get_ref(), &mut event, RecvFlags::DONTWAIT) {
                Ok((length, _)) => {
                    if let Some(near) = answer(event.get(..length).unwrap_or_default(), address) {
                        return Ok(near);
                    }
                }
                Err(rustix::io::Errno::AGAIN) => {}
                Err(error) => return Err(error.into()),
            }
        }
    };
    let late = async {
        clock.sleep_until(clock.now() + ANSWER_MAX).await;
        Ok(false)
    };
    answered.or(late).await
}

/// The packet that asks for the name of who has this address.
fn question(address: [u8; 6]) -> [u8; 14] {
    let [low, high] = REMOTE_NAME_REQUEST.to_le_bytes();
    let [a, b, c, d, e, f] = address;
    // Scanned as is usual for phones (R2), clock not known.
    [COMMAND, low, high, 10, a, b, c, d, e, f, 2, 0, 0, 0]
}

/// What this event says to our question; nothing where it is about something else.
fn answer(event: &[u8], address: [u8; 6]) -> Option<bool> {
    match event {
        [TELLS, REMOTE_NAME, _, status, rest @ ..] if rest.starts_with(&address) => Some(*status == 0),
        // Refused: it has something else to do.
        [TELLS, COMMAND_STATUS, _, status, _, low, high, ..]
            if *status != 0 && u16::from_le_bytes([*low, *high]) == REMOTE_NAME_REQUEST =>
        {
            Some(false)
        }
        _ => None,
    }
}

#[expect(unsafe_code, reason = "rustix knows neither addresses nor options of Bluetooth's sockets")]
fn open(controller: u16) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let family = AddressFamily::from_raw(libc::AF_BLUETOOTH as u16);
    let protocol = Protocol::from_raw(HCI.try_into().map_err(|_| io::ErrorKind::InvalidInput)?);
    let socket = socket_with(family, SocketType::RAW, flags, Some(protocol))?;
    let filter =
        Filter { kinds: 1 << TELLS, events: [(1 << REMOTE_NAME) | (1 << COMMAND_STATUS), 0], command: 0, unused: 0 };
    let place = Place { family: family.as_raw(), controller, channel: 0 };
    // SAFETY: the kernel reads as many bytes as it is told, of plain numbers that live until the call returns.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            FILTER_LEVEL,
            FILTER,
            (&raw const filter).cast(),
            mem::size_of::<Filter>() as u32,
        )
    };
    if set < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: as above.
    let bound = unsafe { libc::bind(socket.as_raw_fd(), (&raw const place).cast(), mem::size_of::<Place>() as u32) };
    if bound < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_answer_to_our_question_counts() {
        let (ours, other) = ([6, 5, 4, 3, 2, 1], [6, 5, 4, 3, 2, 9]);
        assert_eq!(question(ours), [1, 0x19, 0x04, 10, 6, 5, 4, 3, 2, 1, 2, 0, 0, 0]);
        let named = |status: u8, address: [u8; 6]| [&[4, 7, 255, status][..], &address, &[0; 248]].concat();
        let table = [
            ("it is near", named(0, ours), Some(true)),
            ("nobody answered", named(4, ours), Some(false)),
            ("somebody else's name", named(0, other), None),
            ("it is being asked", vec![4, 15, 4, 0, 1, 0x19, 0x04], None),
            ("the controller is busy", vec![4, 15, 4, 12, 1, 0x19, 0x04], Some(false)),
            ("another command failed", vec![4, 15, 4, 12, 1, 0x05, 0x04], None),
            ("cut off", vec![4, 7, 255, 0, 6, 5], None),
            ("nothing", Vec::new(), None),
        ];
        for (case, event, expected) in table {
            assert_eq!(answer(&event, ours), expected, "{case}");
        }
    }
}
