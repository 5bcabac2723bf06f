//! What the hotspot's name server says, as a file that the network manager hands to it when it is started.
//!
//! The folder belongs to every connection that is shared. So that others are not touched, the file is there only from
//! just before the hotspot's name server is started until it has read it.

use std::{
    fmt::Write as _,
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use board::network::{CaptiveNames, Hotspot};
use rustix::fs::inotify;
use smol::Async;

/// The file of one vendor's agent.
pub(super) struct Names {
    file: PathBuf,
}

impl Names {
    /// In the network manager's folder.
    pub(super) fn new(folder: &Path, brand: &str) -> Names {
        Names { file: folder.join("dnsmasq-shared.d").join(format!("{brand}-hotspot.conf")) }
    }

    pub(super) fn write(&self, hotspot: &Hotspot) -> io::Result<()> {
        if let Some(folder) = self.file.parent() {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::write(&self.file, text(hotspot))
    }

    /// None there is fine.
    pub(super) fn remove(&self) {
        match std::fs::remove_file(&self.file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                log::warn!("could not remove {}: {error}", self.file.display());
            }
            _ => {}
        }
    }
}

/// The lines for the hotspot's name server.
fn text(hotspot: &Hotspot) -> String {
    let (address, _) = hotspot.address;
    let names = match hotspot.names {
        CaptiveNames::All => "#",
        CaptiveNames::Setup => "setup",
    };
    // The second line: other questions about these names, such as for an IPv6 address, are answered with "no such record"
    // at once, and are not asked of a server that cannot be reached. Of all names that is only so where no other server is
    // known at all: dnsmasq would take one up as soon as the device has another network beside its hotspot.
    let mut text = format!("address=/{names}/{address}\nlocal=/{names}/\n");
    if hotspot.names == CaptiveNames::All {
        text.push_str("no-resolv\n");
    }
    if let Some(api) =
        hotspot.captive_api.as_deref().filter(|api| api.bytes().all(|byte| byte.is_ascii_graphic() && byte != b','))
    {
        let _ = writeln!(text, "dhcp-option-force=114,{api}");
    }
    text
}

/// Waits for the name server of an interface to have read its files.
pub(super) struct Started {
    watcher: Async<OwnedFd>,
    file: PathBuf,
}

impl Started {
    /// Before it is started. `folder` is where the network manager lets it write the number of its process.
    pub(super) fn watch(folder: &Path, interface: &str) -> io::Result<Started> {
        let file = folder.join(format!("nm-dnsmasq-{interface}.pid"));
        let watcher = inotify::init(inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC)?;
        inotify::add_watch(&watcher, folder, inotify::WatchFlags::CLOSE_WRITE)?;
        Ok(Started { watcher: Async::new_nonblocking(watcher)?, file })
    }

    /// Resolves when it has written the number of its process, which it does when everything is read.
    pub(super) async fn done(&self) -> io::Result<()> {
        let name = self.file.file_name().unwrap_or_default();
        loop {
            self.watcher.readable().await?;
            let mut buffer = [std::mem::MaybeUninit::uninit(); 1024];
            let mut reader = inotify::Reader::new(self.watcher.get_ref(), &mut buffer);
            loop {
                match reader.next() {
                    Ok(event) => {
                        if event.file_name().is_some_and(|file| file.to_bytes() == name.as_encoded_bytes()) {
                            return Ok(());
                        }
                    }
                    Err(rustix::io::Errno::AGAIN) => break,
                    Err(error) => return Err(error.into()),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use board::network::Ssid;
    use secret::Secret;

    use super::*;

    #[test]
    fn lines_of_the_name_server() {
        let hotspot = |names, captive_api: Option<&str>| Hotspot {
            ssid: Ssid::new(b"board").unwrap(),
            password: Secret::from("at least eight"),
            interface: "wlan0".to_owned(),
            channel: 1,
            address: (Ipv4Addr::new(10, 42, 7, 1), 24),
            names,
            captive_api: captive_api.map(str::to_owned),
        };
        assert_eq!(text(&hotspot(CaptiveNames::All, None)), "address=/#/10.42.7.1\nlocal=/#/\nno-resolv\n");
        assert_eq!(
            text(&hotspot(CaptiveNames::Setup, Some("https://board.example/api"))),
            "address=/setup/10.42.7.1\nlocal=/setup/\ndhcp-option-force=114,https://board.example/api\n"
        );
        for planted in ["https://a\nserver=/x/6.6.6.6", "https://a,b", "https://a b"] {
            assert!(!text(&hotspot(CaptiveNames::All, Some(planted))).contains("114"), "{planted}");
        }
    }
}
