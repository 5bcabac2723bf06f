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
use tokio::{net::TcpListener, task::JoinHandle};

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
}

impl Server {
    /// Listens on a free port of this machine.
    pub async fn start() -> io::Result<Self> {
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
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                if !open.load(SeqCst) {
                    continue;
                }
                let service = service.clone();
                tokio::spawn(async move {
                    let http = Builder::new(TokioExecutor::new());
                    let _ = http.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Ok(Self { folder, address, accepting, answers })
    }

    /// From now on every connection is closed at once, or served again.
    pub fn answer(&self, yes: bool) {
        self.answers.store(yes, SeqCst);
    }

    /// What programs that speak S3 read from their environment.
    pub fn variables(&self) -> Vec<(String, String)> {
        let endpoint = format!("http://{}", self.address);
        let variables = [
            ("AWS_ENDPOINT_URL", &*endpoint),
            ("AWS_REGION", "us-east-1"),
            ("AWS_ACCESS_KEY_ID", KEY_ID),
            ("AWS_SECRET_ACCESS_KEY", SECRET),
        ];
        variables.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec()
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

fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => walk(&entry.path(), found),
            _ => found.push(entry.path()),
        }
    }
}
