//! The least that can accept TLS: a handshake, then each byte is said back. Loopback only.
//! `tls_limit --chain FILE --key FILE`
//!
//! By the library of the fleet server, with its defaults. Prints the address it listens on, then serves until it is ended.

use std::{path::PathBuf, sync::Arc};

use limits::arg;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    },
};

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let [chain, key] = ["chain", "key"].map(|name| arg(name, PathBuf::new()));
    let chain = CertificateDer::pem_file_iter(chain)?.collect::<Result<Vec<_>, _>>()?;
    let config = ServerConfig::builder().with_no_client_auth();
    let acceptor = TlsAcceptor::from(Arc::new(config.with_single_cert(chain, PrivateKeyDer::from_pem_file(key)?)?));
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    println!("{}", listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let acceptor = acceptor.clone();
        tokio::spawn(async move {
            let Ok(mut stream) = acceptor.accept(stream).await else { return };
            let mut bytes = [0; 1024];
            while let Ok(count @ 1..) = stream.read(&mut bytes).await {
                let said = bytes.get(..count).unwrap_or_default();
                if stream.write_all(said).await.is_err() || stream.flush().await.is_err() {
                    return;
                }
            }
        });
    }
}
