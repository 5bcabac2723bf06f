//! Ports of this machine that stay one's own before anybody listens there, and between two who do.

use std::net::{TcpListener, UdpSocket};

use super::Trouble;

/// How many there are to choose from, from which on: below those that the system gives to outgoing connections.
const PORTS: u16 = 8_000;
const FIRST: u16 = 20_000;

/// A port where nobody listens: whoever holds its number for datagrams has it.
pub struct Port {
    /// On 127.0.0.1.
    pub number: u16,
    _held: UdpSocket,
}

impl Port {
    /// Any that is free.
    pub fn reserve() -> Result<Port, Trouble> {
        let begin = u16::try_from(std::process::id() % u32::from(PORTS)).unwrap_or(0);
        let mut free = (0..PORTS).filter_map(|step| Port::hold(FIRST + (begin + step) % PORTS));
        free.next().ok_or_else(|| Trouble("no port is free".into()))
    }

    /// This one, if it is free.
    pub fn hold(number: u16) -> Option<Port> {
        let held = UdpSocket::bind(("127.0.0.1", number)).ok()?;
        TcpListener::bind(("127.0.0.1", number)).is_ok().then_some(Port { number, _held: held })
    }

    /// `http://127.0.0.1:PORT`
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.number)
    }
}
