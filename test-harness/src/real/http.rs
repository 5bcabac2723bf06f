//! Small questions to a program on this machine: the pages of the stand-in, and words that are no HTTP at all.

use std::{
    io::{self, Read as _, Write as _},
    net::TcpStream,
};

use super::{PATIENCE, Trouble};

/// `GET url`: status and body.
pub fn get(url: &str) -> Result<(u16, String), Trouble> {
    request("GET", url)
}

/// `POST url` without a body: status and body.
pub fn post(url: &str) -> Result<(u16, String), Trouble> {
    request("POST", url)
}

fn request(method: &str, url: &str) -> Result<(u16, String), Trouble> {
    let rest = url.strip_prefix("http://").ok_or_else(|| Trouble(format!("{url} is not an http address")))?;
    let (address, path) = rest.split_once('/').unwrap_or((rest, ""));
    let head =
        format!("{method} /{path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    let answer = raw(address, head.as_bytes()).map_err(|error| Trouble::of(url, error))?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    Ok((status.ok_or_else(|| Trouble(format!("{url} answered with no HTTP: {head}")))?, body.to_owned()))
}

/// Sends these bytes and gives back all that is answered until the other side closes.
pub fn raw(address: &str, bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(bytes)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(answer)
}
