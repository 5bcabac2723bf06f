//! The least that can be abused: takes every connection, looks at nothing, and says the same to each request.
//! Loopback only.
//!
//! What a machine's other programs feel while somebody shouts at this one is what the shouting itself costs the machine. A
//! body of more than 4 MiB is not read to its end, as no server would; TailRobotPartLogs is answered with a head and never
//! ended, as a stream on which nothing comes. Prints the address it listens on, then serves until it is
//! ended.

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

/// What is read on of a request that nobody wants.
const BODY_MAX: usize = 4 << 20;
const DONE: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\ngrpc-status: 0\r\n\r\n";
const TOO_LONG: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\ngrpc-status: 11\r\nconnection: close\r\n\r\n";
const OPEN: &[u8] = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> std::io::Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    println!("{}", listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        // Whoever goes away is no error.
        tokio::spawn(async move { serve(stream).await.unwrap_or_default() });
    }
}

async fn serve(mut stream: TcpStream) -> std::io::Result<()> {
    // Until something comes there is no buffer: most never say anything.
    stream.readable().await?;
    let (mut chunk, mut head) = (vec![0; 64 << 10], Vec::new());
    loop {
        let length = stream.read(&mut chunk).await?;
        head.extend(chunk.get(..length).unwrap_or_default());
        let Some(end) = head.windows(4).position(|four| four == b"\r\n\r\n") else {
            if length == 0 || !head.starts_with(b"POST ") {
                return Ok(());
            }
            continue;
        };
        let text = String::from_utf8_lossy(head.get(..end).unwrap_or_default()).to_ascii_lowercase();
        let named = text.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
        let Some(body) = named else { return Ok(()) };
        if body > BODY_MAX {
            return stream.write_all(TOO_LONG).await;
        }
        let mut left = body.saturating_sub(head.len() - end - 4);
        while left > 0 {
            match stream.read(&mut chunk).await? {
                0 => return Ok(()),
                length => left = left.saturating_sub(length),
            }
        }
        head.clear();
        let streams = text.lines().next().is_some_and(|first| first.contains("/tailrobotpartlogs "));
        stream.write_all(if streams { OPEN } else { DONE }).await?;
    }
}
