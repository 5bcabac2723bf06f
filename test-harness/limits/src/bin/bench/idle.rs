//! Connections that are there and say nothing: what each costs the fleet server.

use std::{
    io::{Read, Write},
    net::TcpStream,
};

use test_harness::real::fleet::Fleet;

use crate::{Trouble, fleet::resident_mb, table::Table};

/// A site of devices between two calls.
const CONNECTIONS: usize = 10_000;
/// What an HTTP/2 client says before anything else, and settings that say nothing.
const HELLO: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// In plain text; what TLS adds is measured with the agent.
pub(crate) fn measure(fleet: &Fleet, table: &mut Table) -> Result<(), Trouble> {
    let address = fleet.url.strip_prefix("http://").unwrap_or(&fleet.url);
    let before = resident_mb(fleet.process.pid());
    let mut connections = Vec::with_capacity(CONNECTIONS);
    for _ in 0..CONNECTIONS {
        let mut connection = TcpStream::connect(address)?;
        connection.write_all(HELLO)?;
        // The head of the server's settings: from now on it is a connection for it too.
        connection.read_exact(&mut [0; 9])?;
        connections.push(connection);
    }
    let each = (resident_mb(fleet.process.pid()) - before) * 1024.0 / CONNECTIONS as f64;
    table.row(
        "fleet server, a quiet connection",
        format!("{each:.1} KiB"),
        "≤ 48 KiB",
        "10,000 of HTTP/2, without TLS",
    );
    Ok(())
}
