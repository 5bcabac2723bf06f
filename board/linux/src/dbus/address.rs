//! Where the bus is, and the greeting that lets this process in.

use std::{
    io,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect as connect_socket, socket_with};
use smol::{
    Async,
    io::{AsyncReadExt as _, AsyncWriteExt as _},
};

use super::Error;

/// Longest line of the greeting.
const LINE_MAX: usize = 1024;

/// One place where a bus may listen.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    Path(PathBuf),
    Abstract(Vec<u8>),
}

/// The places of an address that can be used, in its order. Only sockets of this machine.
fn places(address: &str) -> Vec<Place> {
    let place = |one: &str| {
        one.strip_prefix("unix:")?.split(',').find_map(|pair| match pair.split_once('=')? {
            ("path", path) => Some(Place::Path(PathBuf::from(String::from_utf8(unescaped(path)?).ok()?))),
            ("abstract", name) => Some(Place::Abstract(unescaped(name)?)),
            _ => None,
        })
    };
    address.split(';').filter_map(place).collect()
}

/// `%41` is `A`.
fn unescaped(text: &str) -> Option<Vec<u8>> {
    let mut bytes = text.bytes();
    let mut plain = Vec::new();
    while let Some(byte) = bytes.next() {
        plain.push(match byte {
            b'%' => {
                let digits = [bytes.next()?, bytes.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            byte => byte,
        });
    }
    Some(plain)
}

/// The file of the bus's socket, when it is one.
pub(crate) fn socket_file(address: &str) -> Option<PathBuf> {
    places(address).into_iter().find_map(|place| if let Place::Path(path) = place { Some(path) } else { None })
}

/// Connects to the first place where somebody listens, and is let in.
pub(super) async fn connect(address: &str) -> Result<Async<UnixStream>, Error> {
    let mut failed = Error::Address(address.to_owned());
    for place in places(address) {
        match open(&place) {
            Ok(stream) => return greet(Async::new(stream)?).await,
            Err(error) => failed = error.into(),
        }
    }
    Err(failed)
}

/// Connecting to a socket of this machine succeeds or fails at once.
fn open(place: &Place) -> io::Result<UnixStream> {
    let address = match place {
        Place::Path(path) => SocketAddrUnix::new::<&Path>(path)?,
        Place::Abstract(name) => SocketAddrUnix::new_abstract_name(name)?,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect_socket(&socket, &address)?;
    Ok(UnixStream::from(socket))
}

/// Says who this process is; the kernel vouches for it.
async fn greet(mut stream: Async<UnixStream>) -> Result<Async<UnixStream>, Error> {
    let user = rustix::process::geteuid().as_raw().to_string();
    let hex: String = user.bytes().map(|byte| format!("{byte:02x}")).collect();
    stream.write_all(format!("\0AUTH EXTERNAL {hex}\r\n").as_bytes()).await?;
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        let mut byte = [0];
        // Byte by byte, for nothing behind the line may be taken. It is one line in a connection's life.
        if stream.read(&mut byte).await? == 0 || line.len() >= LINE_MAX {
            return Err(Error::Refused("it hangs up".to_owned()));
        }
        line.extend_from_slice(&byte);
    }
    let said = String::from_utf8_lossy(&line).trim_end().to_owned();
    if !said.starts_with("OK ") {
        return Err(Error::Refused(said));
    }
    stream.write_all(b"BEGIN\r\n").await?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        let path = |path: &str| Place::Path(PathBuf::from(path));
        let table = [
            ("unix:path=/run/dbus/system_bus_socket", vec![path("/run/dbus/system_bus_socket")]),
            ("unix:guid=01,path=/a%20b", vec![path("/a b")]),
            ("tcp:host=a;unix:abstract=%00x,guid=1;unix:path=/c", vec![Place::Abstract(b"\0x".to_vec()), path("/c")]),
            ("unix:path=/a%2", vec![]),
            ("unix:path=/a%zz", vec![]),
            ("unix:", vec![]),
            ("nonsense", vec![]),
            ("", vec![]),
        ];
        for (address, expected) in table {
            assert_eq!(places(address), expected, "{address}");
        }
        assert_eq!(socket_file("tcp:host=a;unix:path=/c"), Some(PathBuf::from("/c")));
    }
}
