//! Calls by gRPC-Web over HTTP/1.1, written by hand: a client library would not send what is wrong.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    time::Duration,
};

use crate::Trouble;

/// One call by gRPC-Web on a connection of its own; its status.
pub(crate) fn post(address: &str, path: &str, token: &str, body: &[u8]) -> String {
    ask(&mut None, address, path, token, &framed(body))
}

/// One call by gRPC-Web on a connection that is kept; its status.
pub(crate) fn ask(stream: &mut Option<TcpStream>, address: &str, path: &str, token: &str, body: &[u8]) -> String {
    let mut once = || -> std::io::Result<String> {
        let mut open = match stream.take() {
            Some(open) => open,
            None => {
                let new = TcpStream::connect(address)?;
                new.set_nodelay(true)?;
                new.set_read_timeout(Some(Duration::from_secs(20)))?;
                new
            }
        };
        let mut request = head(path, token, address, body.len()).into_bytes();
        request.extend(body);
        open.write_all(&request)?;
        let (said, keeps) = answer(&mut open)?;
        if keeps {
            *stream = Some(open);
        }
        Ok(said)
    };
    once().unwrap_or_else(|_| "cut off".into())
}

/// What comes before the frame of a call, which has so many bytes.
pub(crate) fn head(path: &str, token: &str, address: &str, length: usize) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n\
         Content-Type: application/grpc-web+proto\r\nX-Grpc-Web: 1\r\nContent-Length: {length}\r\n\r\n"
    )
}

/// A message as it stands in the body.
pub(crate) fn framed(message: &[u8]) -> Vec<u8> {
    let mut body = vec![0];
    body.extend((message.len() as u32).to_be_bytes());
    body.extend(message);
    body
}

/// That a stream was opened: its head came, without the status that a refusal has there. Nothing behind it is read.
pub(crate) fn opened(stream: &mut TcpStream) -> Result<(), Trouble> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte)?;
        head.extend(byte);
    }
    let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
    match head.starts_with("http/1.1 200 ") && !head.contains("grpc-status:") {
        true => Ok(()),
        false => Err(format!("a stream was refused: {head}").into()),
    }
}

/// The gRPC status of an answer, and whether the connection can be used again.
pub(crate) fn answer(stream: &mut TcpStream) -> std::io::Result<(String, bool)> {
    let (mut text, mut chunk) = (Vec::new(), [0; 16 << 10]);
    let whole = |text: &[u8]| -> Option<bool> {
        let text = String::from_utf8_lossy(text).to_ascii_lowercase();
        let (head, body) = text.split_once("\r\n\r\n")?;
        // In chunks until the empty one, or nothing at all.
        let chunked = head.contains("transfer-encoding: chunked");
        let ended =
            if chunked { body.ends_with("0\r\n\r\n") } else { head.contains("content-length: 0") || !body.is_empty() };
        ended.then_some(!head.contains("connection: close"))
    };
    let keeps = loop {
        if let Some(keeps) = whole(&text) {
            break keeps;
        }
        match stream.read(&mut chunk)? {
            0 if text.is_empty() => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            0 => break false,
            count => text.extend(chunk.get(..count).unwrap_or_default()),
        }
    };
    let said = String::from_utf8_lossy(&text).to_ascii_lowercase();
    let status = said.rsplit("grpc-status:").next().filter(|_| said.contains("grpc-status:"));
    let status = status.map(|rest| rest.trim_start().chars().take_while(char::is_ascii_digit).collect::<String>());
    let http = || format!("http {}", said.split(' ').nth(1).unwrap_or("?"));
    Ok((status.unwrap_or_else(http), keeps))
}
