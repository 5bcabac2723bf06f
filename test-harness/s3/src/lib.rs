//! A server that speaks S3, for tests: signatures and digests are checked, objects are files in a temporary folder.

use std::{
    fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto::Builder,
};
use s3s::{auth::SimpleAuth, service::S3ServiceBuilder};
use s3s_fs::FileSystem;
use tempfile::TempDir;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
    task::JoinHandle,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{ServerConfig, crypto::ring, pki_types::PrivateKeyDer},
};

/// The only bucket.
pub const BUCKET: &str = "fleet";
/// The only user.
pub const KEY_ID: &str = "test-key";
/// Their secret.
pub const SECRET: &str = "test-secret-that-nobody-may-see";

/// A running server. Stopped and removed when it is dropped.
pub struct Server {
    folder: TempDir,
    /// Where it listens.
    pub address: SocketAddr,
    accepting: JoinHandle<()>,
    answers: Arc<AtomicBool>,
    by_tls: bool,
}

impl Server {
    /// Listens on a free port of this machine.
    pub async fn start() -> io::Result<Self> {
        Server::listen(None).await
    }

    /// The same by TLS, with a certificate that nobody vouches for but the file that `AWS_CA_BUNDLE` names.
    pub async fn start_by_tls() -> io::Result<Self> {
        let own = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).map_err(io::Error::other)?;
        let key = PrivateKeyDer::try_from(own.signing_key.serialize_der()).map_err(io::Error::other)?;
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_no_client_auth()
            .with_single_cert(vec![own.cert.der().clone()], key)
            .map_err(io::Error::other)?;
        let server = Server::listen(Some(TlsAcceptor::from(Arc::new(config)))).await?;
        fs::write(server.authority(), own.cert.pem())?;
        Ok(server)
    }

    async fn listen(tls: Option<TlsAcceptor>) -> io::Result<Self> {
        let folder = tempfile::tempdir()?;
        fs::create_dir(folder.path().join(BUCKET))?;
        let files = FileSystem::new(folder.path()).map_err(|why| io::Error::other(format!("{why:?}")))?;
        let mut service = S3ServiceBuilder::new(files);
        service.set_auth(SimpleAuth::from_single(KEY_ID, SECRET));
        let service = service.build();
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let answers = Arc::new(AtomicBool::new(true));
        let open = answers.clone();
        let by_tls = tls.is_some();
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                if !open.load(SeqCst) {
                    continue;
                }
                let (service, tls) = (service.clone(), tls.clone());
                tokio::spawn(async move {
                    let stream: Box<dyn Wire> = match tls {
                        Some(tls) => Box::new(tls.accept(stream).await?),
                        None => Box::new(stream),
                    };
                    let http = Builder::new(TokioExecutor::new());
                    http.serve_connection(TokioIo::new(stream), service).await.map_err(io::Error::other)
                });
            }
        });
        Ok(Self { folder, address, accepting, answers, by_tls })
    }

    /// From now on every connection is closed at once, or served again.
    pub fn answer(&self, yes: bool) {
        self.answers.store(yes, SeqCst);
    }

    /// What programs that speak S3 read from their environment.
    pub fn variables(&self) -> Vec<(String, String)> {
        let authority = self.authority().display().to_string();
        let (endpoint, authority) = match self.by_tls {
            true => (format!("https://localhost:{}", self.address.port()), &*authority),
            false => (format!("http://{}", self.address), ""),
        };
        let variables = [
            ("AWS_ENDPOINT_URL", &*endpoint),
            ("AWS_CA_BUNDLE", authority),
            ("AWS_REGION", "us-east-1"),
            ("AWS_ACCESS_KEY_ID", KEY_ID),
            ("AWS_SECRET_ACCESS_KEY", SECRET),
        ];
        variables.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec()
    }

    /// Where the certificate is of who vouches for this server. Beside the bucket.
    fn authority(&self) -> PathBuf {
        self.folder.path().join("authority.pem")
    }

    /// The file that an object is.
    pub fn file(&self, object: &str) -> PathBuf {
        self.folder.path().join(BUCKET).join(object)
    }

    /// Names of the objects in the bucket, in alphabetical order.
    pub fn objects(&self) -> Vec<String> {
        let bucket = self.folder.path().join(BUCKET);
        let mut found = Vec::new();
        walk(&bucket, &mut found);
        let mut names: Vec<String> = found
            .iter()
            .filter_map(|path| Some(path.strip_prefix(&bucket).ok()?.display().to_string()))
            .filter(|name| !name.split('/').any(|part| part.starts_with('.')))
            .collect();
        names.sort();
        names
    }

    /// Parts of uploads that were neither finished nor given up.
    pub fn parts(&self) -> usize {
        let mut found = Vec::new();
        walk(self.folder.path(), &mut found);
        found
            .iter()
            .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().contains(".part-")))
            .count()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// What HTTP is spoken over.
trait Wire: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Wire for T {}

fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => walk(&entry.path(), found),
            _ => found.push(entry.path()),
        }
    }
}
