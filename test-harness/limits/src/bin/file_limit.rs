//! The least that can send a file: reads a piece, writes it, and again; one answer a connection. Loopback only.
//! `file_limit --file FILE [--chain FILE --key FILE] [--unsent BYTES]`
//!
//! By the libraries of the fleet server and in pieces as large as its own, in plain text or, with a certificate, by TLS.
//! `--unsent` bounds what waits in the system for its turn on the line, as the server does; 0 is the system's own bound.
//! Prints the address it listens on, then serves until it is ended.

use std::{
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use limits::arg;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpListener,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    },
};

/// As the fleet server reads.
const PIECE_BYTES: usize = 64 << 10;

async fn send(mut stream: impl AsyncRead + AsyncWrite + Unpin, file: &Path) -> io::Result<()> {
    // The load asks with one write, which is never in two pieces on loopback.
    if stream.read(&mut [0; 4096]).await? == 0 {
        return Ok(());
    }
    let mut file = File::open(file)?;
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", file.metadata()?.len());
    stream.write_all(head.as_bytes()).await?;
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        match file.read(&mut piece)? {
            0 => break,
            count => stream.write_all(piece.get(..count).unwrap_or_default()).await?,
        }
    }
    stream.shutdown().await
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let [file, chain, key] = ["file", "chain", "key"].map(|name| arg(name, PathBuf::new()));
    let unsent: u32 = arg("unsent", 0);
    let acceptor = if chain.as_os_str().is_empty() {
        None
    } else {
        let chain = CertificateDer::pem_file_iter(chain)?.collect::<Result<Vec<_>, _>>()?;
        let config = ServerConfig::builder().with_no_client_auth();
        Some(TlsAcceptor::from(Arc::new(config.with_single_cert(chain, PrivateKeyDer::from_pem_file(key)?)?)))
    };
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    if unsent > 0 {
        socket2::SockRef::from(&listener).set_tcp_notsent_lowat(unsent)?;
    }
    println!("{}", listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let (acceptor, file) = (acceptor.clone(), file.clone());
        tokio::spawn(async move {
            // Who went away before the end is nobody's trouble here: the load counts what it was sent.
            let _ = match acceptor {
                None => send(stream, &file).await,
                Some(acceptor) => match acceptor.accept(stream).await {
                    Ok(stream) => send(stream, &file).await,
                    Err(refused) => Err(refused),
                },
            };
        });
    }
}
