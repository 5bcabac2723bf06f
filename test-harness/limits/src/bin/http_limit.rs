//! The least that can answer HTTP: says the same bytes to each request on a connection, one thread a connection.
//! Loopback only. `http_limit [--bytes 200]`: length of the answer's body.
//!
//! Prints the address it listens on, then serves until it is ended.

use std::{
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    thread,
};

use limits::arg;

fn serve(mut stream: TcpStream, answer: &[u8]) -> std::io::Result<()> {
    // The load asks with one write and waits: a request is never in two pieces on loopback, nor two in one.
    let mut request = [0; 4096];
    while stream.read(&mut request)? > 0 {
        stream.write_all(answer)?;
    }
    Ok(())
}

fn main() -> std::io::Result<()> {
    let bytes: usize = arg("bytes", 200);
    let mut answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {bytes}\r\n\r\n").into_bytes();
    answer.resize(answer.len() + bytes, b'x');
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    println!("http://{}/", listener.local_addr()?);
    for stream in listener.incoming() {
        let (stream, answer) = (stream?, answer.clone());
        stream.set_nodelay(true)?;
        thread::spawn(move || serve(stream, &answer));
    }
    Ok(())
}
