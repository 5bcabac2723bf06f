//! Talks to systemd (or whoever set `NOTIFY_SOCKET`) in its one-datagram protocol.
//!
//! A lost message is only a late one: the socket never blocks, and errors are not worth a word, because the service
//! manager itself reports a service that stays silent.

use std::{
    env,
    ffi::OsString,
    io::IoSlice,
    mem::MaybeUninit,
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::{ffi::OsStrExt as _, net::UnixDatagram},
    },
    time::Duration,
};

use board::service::Service;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, sendmsg_addr, sendto};

/// What a service manager tells a service about itself. None of it is passed on to the machine server, which would
/// speak in the agent's name.
pub(crate) const OF_THE_MANAGER: [&str; 7] =
    ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "LISTEN_PIDFDID"];
/// Bytes of a status sentence that are sent.
const STATUS_BYTES_MAX: usize = 256;

/// The way to the service manager, or nowhere.
pub struct Notify {
    way: Option<(UnixDatagram, SocketAddrUnix)>,
    watchdog: Option<Duration>,
}

impl Notify {
    /// As the environment says.
    #[must_use]
    pub fn from_environment() -> Self {
        Self::new(
            env::var_os("NOTIFY_SOCKET"),
            env::var("WATCHDOG_USEC").ok().as_deref(),
            env::var("WATCHDOG_PID").ok().as_deref(),
        )
    }

    fn new(socket: Option<OsString>, watchdog_micros: Option<&str>, watchdog_pid: Option<&str>) -> Self {
        let way = socket.and_then(|name| match connect(&name) {
            Ok(way) => Some(way),
            Err(error) => {
                log::warn!("the service manager at {} cannot be reached: {error}", name.display());
                None
            }
        });
        let ours = watchdog_pid.is_none_or(|pid| pid.parse() == Ok(std::process::id()));
        let watchdog = watchdog_micros
            .and_then(|micros| micros.parse().ok())
            .filter(|&micros: &u64| ours && micros > 0)
            // Twice in its time, so that one late message does not end the agent.
            .map(|micros| Duration::from_micros(micros / 2));
        Notify { watchdog: watchdog.filter(|_| way.is_some()), way }
    }

    fn tell(&self, message: &str) {
        if let Some((socket, address)) = &self.way {
            let _ = sendto(socket, message.as_bytes(), SendFlags::NOSIGNAL, address);
        }
    }

    /// Gives an open file into the manager's keeping, in place of what it has under this name. It comes back to the next
    /// process of this service (`LISTEN_FDS`). Not watched there: an end of a pipe that nobody writes to would be let go.
    pub(crate) fn keep(&self, name: &str, file: &OwnedFd) {
        let Some((socket, address)) = &self.way else { return };
        self.tell(&format!("FDSTOREREMOVE=1\nFDNAME={name}\n"));
        let message = format!("FDSTORE=1\nFDPOLL=0\nFDNAME={name}\n");
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut rights = SendAncillaryBuffer::new(&mut space);
        let files = [file.as_fd()];
        let room = rights.push(SendAncillaryMessage::ScmRights(&files));
        let sent = sendmsg_addr(socket, address, &[IoSlice::new(message.as_bytes())], &mut rights, SendFlags::NOSIGNAL);
        if let (false, _) | (_, Err(_)) = (room, sent) {
            log::debug!("the service manager does not keep {name}");
        }
    }
}

fn connect(name: &OsString) -> std::io::Result<(UnixDatagram, SocketAddrUnix)> {
    let address = match name.as_bytes().strip_prefix(b"@") {
        Some(abstract_name) => SocketAddrUnix::new_abstract_name(abstract_name)?,
        None => SocketAddrUnix::new(name.as_bytes())?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    Ok((socket, address))
}

impl Service for Notify {
    fn ready(&self, status: &str) {
        let line: String = status.lines().next().unwrap_or_default().chars().take(STATUS_BYTES_MAX / 4).collect();
        self.tell(&format!("READY=1\nSTATUS={line}\nMAINPID={}\n", std::process::id()));
    }

    fn alive(&self) {
        self.tell("WATCHDOG=1\n");
    }

    fn watchdog(&self) -> Option<Duration> {
        self.watchdog
    }

    fn stopping(&self) {
        self.tell("STOPPING=1\n");
    }
}

#[cfg(test)]
mod tests {
    use std::os::{linux::net::SocketAddrExt as _, unix::net::SocketAddr};

    use super::*;

    fn heard(socket: &UnixDatagram) -> String {
        let mut bytes = [0; 512];
        let length = socket.recv(&mut bytes).expect("a message");
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    }

    #[test]
    fn messages_arrive_at_a_path_and_at_an_abstract_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("notify");
        let name = format!("platform-notify-test-{}", std::process::id());
        let abstract_address = SocketAddr::from_abstract_name(name.as_bytes()).expect("a name");
        for (socket, given) in [
            (UnixDatagram::bind(&path), path.clone().into_os_string()),
            (UnixDatagram::bind_addr(&abstract_address), OsString::from(format!("@{name}"))),
        ] {
            let socket = socket.expect("bound");
            let notify = Notify::new(Some(given), Some("10000000"), None);
            assert_eq!(notify.watchdog(), Some(Duration::from_secs(5)));
            notify.ready("connected\nas part p");
            assert_eq!(heard(&socket), format!("READY=1\nSTATUS=connected\nMAINPID={}\n", std::process::id()));
            notify.alive();
            assert_eq!(heard(&socket), "WATCHDOG=1\n");
            notify.stopping();
            assert_eq!(heard(&socket), "STOPPING=1\n");
        }
    }

    #[test]
    fn what_is_to_be_kept_is_sent_along_and_replaces_what_was_kept() {
        use std::io::{Read as _, Write as _};
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("notify");
        let manager = UnixDatagram::bind(&path).expect("bound");
        let notify = Notify::new(Some(path.into_os_string()), None, None);
        let (mut reader, mut writer) = std::io::pipe().expect("a pipe");
        writer.write_all(b"last words").expect("room");
        notify.keep("server.stdout", &OwnedFd::from(reader.try_clone().expect("a copy")));
        assert_eq!(heard(&manager), "FDSTOREREMOVE=1\nFDNAME=server.stdout\n");

        let mut bytes = [0; 512];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut rights = rustix::net::RecvAncillaryBuffer::new(&mut space);
        let mut buffers = [std::io::IoSliceMut::new(&mut bytes)];
        let received = rustix::net::recvmsg(&manager, &mut buffers, &mut rights, rustix::net::RecvFlags::CMSG_CLOEXEC);
        let length = received.expect("a message").bytes;
        assert_eq!(&bytes[..length], b"FDSTORE=1\nFDPOLL=0\nFDNAME=server.stdout\n");
        let kept: Vec<OwnedFd> = rights
            .drain()
            .filter_map(|message| match message {
                rustix::net::RecvAncillaryMessage::ScmRights(files) => Some(files),
                _ => None,
            })
            .flatten()
            .collect();
        assert_eq!(kept.len(), 1);
        drop(writer);
        let mut said = String::new();
        std::fs::File::from(kept.into_iter().next().expect("one")).read_to_string(&mut said).expect("readable");
        assert_eq!(said, "last words");
        assert_eq!(reader.read(&mut [0; 1]).expect("readable"), 0, "it is the same pipe");
    }

    #[test]
    fn without_a_manager_nothing_happens() {
        let notify = Notify::new(None, Some("1000000"), None);
        notify.ready("");
        notify.alive();
        assert_eq!(notify.watchdog(), None, "nobody to tell");
    }

    #[test]
    fn a_watchdog_of_another_process_is_not_ours() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("notify");
        let _socket = UnixDatagram::bind(&path).expect("bound");
        let given = || Some(path.clone().into_os_string());
        assert_eq!(Notify::new(given(), Some("1000000"), Some("1")).watchdog(), None);
        assert_eq!(Notify::new(given(), Some("nonsense"), None).watchdog(), None);
        let own = std::process::id().to_string();
        assert_eq!(Notify::new(given(), Some("1000000"), Some(&own)).watchdog(), Some(Duration::from_millis(500)));
    }
}
