//! Plain HTTP/1.1, as curl would send it.

use std::net::SocketAddr;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::{PATIENCE, World};

pub struct Answer {
    pub status: u16,
    /// Its names in lower case.
    pub head: String,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|_| panic!("no JSON: {}", String::from_utf8_lossy(&self.body)))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

/// One request on a connection of its own.
pub async fn ask(world: &World, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
    ask_at(world.server.address, method, path, headers, body).await
}

/// The same of a server elsewhere.
pub async fn ask_at(address: SocketAddr, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n");
    head += &format!("Content-Length: {}\r\n", body.len());
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    let mut stream = TcpStream::connect(address).await.unwrap();
    // A server that has read enough answers and closes: what is still being sent is lost, and what it said is not.
    let _ = stream.write_all(&[head.as_bytes(), b"\r\n", body].concat()).await;
    let mut said = Vec::new();
    let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut said)).await.expect("an answer");
    let end = said.windows(4).position(|four| four == b"\r\n\r\n").expect("a whole head");
    let lines = String::from_utf8_lossy(&said[..end]);
    let lines = lines.lines().map(|line| match line.split_once(": ") {
        Some((name, value)) => format!("{}: {value}", name.to_lowercase()),
        None => line.to_owned(),
    });
    let head = lines.collect::<Vec<_>>().join("\r\n");
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { status, head, body: said[end + 4..].to_vec() }
}
