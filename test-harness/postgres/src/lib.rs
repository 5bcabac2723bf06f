//! A real PostgreSQL server for tests, from the system's package, in a temporary folder.
//!
//! It listens on a Unix socket in that folder (and on a loopback port if asked). A shell watches over it: when the test
//! process ends, however it ends, the shell's standard input closes, and it stops the server and removes the folder.
//! PostgreSQL refuses to run as root, so for root it runs as an unprivileged user of the system.

use std::{
    fmt::Write as _,
    fs,
    io::{self, BufRead as _, BufReader, Write as _},
    net::TcpListener,
    os::unix::{
        fs::{DirBuilderExt as _, PermissionsExt as _, chown},
        process::CommandExt as _,
    },
    path::{Path, PathBuf},
    process::{self, ChildStdin, ChildStdout, Command, Stdio},
    sync::{
        Mutex, OnceLock,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

/// What an own server is to be like.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Listens on a loopback port too; users from there need the password.
    pub password: Option<String>,
    /// Certificate and key in PEM: TLS on that port.
    pub tls: Option<(String, String)>,
}

/// A running server. Stopped and removed when it is dropped, or when this process ends.
pub struct Server {
    folder: PathBuf,
    programs: PathBuf,
    /// The loopback port, if one was asked for.
    pub port: Option<u16>,
    watcher: Mutex<(ChildStdin, BufReader<ChildStdout>)>,
    databases: AtomicUsize,
}

/// Superuser of the server, without a password on the socket.
pub const USER: &str = "fleet";

/// $1: programs, $2: folder, $3: options of the server. Says each word it was told when that is done.
const WATCHER: &str = r#"
trap '' INT TERM HUP PIPE
ctl() { "$1/pg_ctl" -s -w -t 60 -D "$2/data" -l "$2/log" "$4" $5 ${6:+-o "$3"} >>"$2/log" 2>&1; }
ctl "$1" "$2" "$3" start "" options && echo start || echo failed
while read -r word; do
    case $word in
        start) ctl "$1" "$2" "$3" start "" options ;;
        stop) ctl "$1" "$2" "$3" stop "-m fast" ;;
        crash) ctl "$1" "$2" "$3" stop "-m immediate" ;;
    esac
    echo "$word"
done
ctl "$1" "$2" "$3" stop "-m immediate"
rm -rf "$2"
"#;

/// The one server of this test process, started by whoever asks first. An error says why there can be none: the tests
/// are then to be skipped, aloud.
pub fn shared() -> Result<&'static Server, &'static str> {
    static SHARED: OnceLock<Result<Server, String>> = OnceLock::new();
    let server = SHARED.get_or_init(|| {
        programs().ok_or("PostgreSQL is not installed (Debian: postgresql)")?;
        // Installed but not to be started is a failure of the tests, never a reason to skip them.
        Ok(Server::start(&Options::default()).unwrap_or_else(|why| panic!("PostgreSQL does not start: {why}")))
    });
    server.as_ref().map_err(String::as_str)
}

/// A new database on the shared server. Where there is no PostgreSQL, says so aloud and gives `None`: return then.
pub fn database_or_skip(what: &str) -> Option<String> {
    match shared() {
        Ok(server) => Some(server.database()),
        Err(why) => {
            // Not by print: what a passing test prints is shown to nobody.
            let _ = writeln!(io::stderr(), "SKIPPED {what}: {why}");
            None
        }
    }
}

/// Where the newest version's programs are.
fn programs() -> Option<PathBuf> {
    let version = |path: &Path| -> Option<u32> { path.parent()?.file_name()?.to_str()?.parse().ok() };
    let of_debian =
        fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten().map(|entry| entry.path().join("bin"));
    let newest = of_debian.filter(|path| path.join("initdb").is_file()).max_by_key(|path| version(path));
    let path = std::env::var_os("PATH").unwrap_or_default();
    newest.or_else(|| std::env::split_paths(&path).find(|path| path.join("initdb").is_file()))
}

/// User and group to run as, if this is root.
fn unprivileged() -> Result<Option<(u32, u32)>, String> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let users = fs::read_to_string("/etc/passwd").map_err(|why| why.to_string())?;
    let of = |name: &str| {
        let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut numbers = line.split(':').skip(2);
        Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
    };
    of("postgres").or_else(|| of("nobody")).map(Some).ok_or_else(|| "there is no user to run it as".to_owned())
}

impl Server {
    /// Makes a folder, fills it and starts a server in it; returns when it answers.
    pub fn start(options: &Options) -> Result<Self, String> {
        match Self::start_once(options) {
            // Its port was free a moment ago.
            Err(why) if why.contains("Address already in use") => Self::start_once(options),
            started => started,
        }
    }

    fn start_once(options: &Options) -> Result<Self, String> {
        let said = |why: io::Error| why.to_string();
        let programs = programs().ok_or("PostgreSQL is not installed")?;
        let user = unprivileged()?;
        let folder = new_folder().map_err(said)?;
        let own = |path: &Path| user.map_or(Ok(()), |(uid, gid)| chown(path, Some(uid), Some(gid))).map_err(said);
        own(&folder)?;
        let put = |name: &str, text: &str| -> Result<String, String> {
            let path = folder.join(name);
            fs::write(&path, text).map_err(said)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).map_err(said)?;
            own(&path)?;
            Ok(path.display().to_string())
        };
        let run = |command: &mut Command| {
            if let Some((uid, gid)) = user {
                command.gid(gid).uid(uid);
            }
            command.current_dir(&folder).env("LC_ALL", "C.UTF-8").process_group(0);
        };

        let mut first = Command::new(programs.join("initdb"));
        first.args(["--no-sync", "--no-instructions", "--encoding=UTF8", "--locale=C.UTF-8", "-U", USER, "-D"]);
        first.arg(folder.join("data")).arg("--auth-local=trust");
        match &options.password {
            Some(password) => {
                let file = put("password", password)?;
                first.arg("--auth-host=scram-sha-256").arg(format!("--pwfile={file}"));
            }
            None => drop(first.arg("--auth-host=reject")),
        }
        run(&mut first);
        let made = first.output().map_err(said)?;
        if !made.status.success() {
            let _ = fs::remove_dir_all(&folder);
            return Err(String::from_utf8_lossy(&made.stderr).into_owned());
        }

        let port = options.password.as_ref().map(|_| free_port()).transpose().map_err(said)?;
        let mut settings = format!("-c unix_socket_directories={}", folder.display());
        // Nothing here has to survive the machine; the death of a process is survived all the same.
        settings.push_str(" -c fsync=off -c shared_buffers=32MB -c autovacuum=off");
        let _ = write!(settings, " -c max_connections={}", connections_max());
        match port {
            Some(port) => {
                let _ = write!(settings, " -c listen_addresses=127.0.0.1 -p {port}");
            }
            None => settings.push_str(" -c listen_addresses= -p 5432"),
        }
        if let Some((certificate, key)) = &options.tls {
            let (certificate, key) = (put("server.crt", certificate)?, put("server.key", key)?);
            let _ = write!(settings, " -c ssl=on -c ssl_cert_file={certificate} -c ssl_key_file={key}");
        }
        let mut watcher = Command::new("sh");
        watcher.args(["-c", WATCHER, "watcher"]).arg(&programs).arg(&folder).arg(settings);
        watcher.stdin(Stdio::piped()).stdout(Stdio::piped());
        run(&mut watcher);
        let mut child = watcher.spawn().map_err(said)?;
        let (Some(orders), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("the watcher has no pipes".to_owned());
        };
        let server = Self {
            folder,
            programs,
            port,
            watcher: Mutex::new((orders, BufReader::new(answers))),
            databases: AtomicUsize::new(0),
        };
        match server.answer().as_str() {
            "start" => Ok(server),
            other => {
                let log = fs::read_to_string(server.folder.join("log")).unwrap_or_default();
                Err(format!("the server did not start ({other}):\n{log}"))
            }
        }
    }

    /// The socket's URL of a new, empty database.
    pub fn database(&self) -> String {
        let name = format!("test{}", self.databases.fetch_add(1, Relaxed));
        self.sql("postgres", &format!("CREATE DATABASE {name}"));
        self.url(&name)
    }

    /// The socket's URL of a database by its name.
    pub fn url(&self, name: &str) -> String {
        let folder = self.folder.display().to_string().replace('/', "%2F");
        format!("postgres://{USER}@{folder}:{}/{name}", self.port.unwrap_or(5432))
    }

    /// The address of a database on the loopback port, without a password.
    pub fn tcp_url(&self, name: &str) -> String {
        format!("postgres://{USER}@localhost:{}/{name}", self.port.expect("a port was asked for"))
    }

    /// Runs SQL as superuser; what it answers, one row a line.
    pub fn sql(&self, database: &str, sql: &str) -> String {
        let mut command = Command::new(self.programs.join("psql"));
        command.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-U", USER, "-d", database, "-c", sql]);
        command.arg("-h").arg(&self.folder).arg("-p").arg(self.port.unwrap_or(5432).to_string());
        let output = command.output().expect("psql runs");
        assert!(output.status.success(), "{sql}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// The folder of PostgreSQL's own programs: those that belong to this server.
    pub fn programs(&self) -> &Path {
        &self.programs
    }

    /// Everything in a database, as text.
    pub fn dump(&self, url: &str) -> String {
        let output =
            Command::new(self.programs.join("pg_dump")).args(["--inserts", url]).output().expect("pg_dump runs");
        assert!(output.status.success(), "pg_dump: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// A new database with what [`Self::dump`] gave; its URL.
    pub fn restored(&self, dump: &str) -> String {
        let url = self.database();
        let mut command = Command::new(self.programs.join("psql"));
        command.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", &url]).stdin(Stdio::piped()).stdout(Stdio::null());
        let mut psql = command.spawn().expect("psql runs");
        psql.stdin.take().expect("a pipe").write_all(dump.as_bytes()).expect("psql reads");
        assert!(psql.wait().expect("psql ends").success(), "the dump is restored");
        url
    }

    /// Stops it at once, as a crash would: sessions end, nothing is tidied up. Returns when it is gone.
    pub fn crash(&self) {
        self.order("crash");
    }

    /// Stops it properly; sessions are ended.
    pub fn stop(&self) {
        self.order("stop");
    }

    /// Starts it again; returns when it answers.
    pub fn start_again(&self) {
        self.order("start");
    }

    fn order(&self, word: &str) {
        {
            let mut watcher = self.watcher.lock().expect("no test panicked in here");
            writeln!(watcher.0, "{word}").expect("the watcher lives");
        }
        assert_eq!(self.answer(), word);
    }

    fn answer(&self) -> String {
        let mut line = String::new();
        let read = self.watcher.lock().expect("no test panicked in here").1.read_line(&mut line);
        read.expect("the watcher answers");
        line.trim().to_owned()
    }
}

/// A folder of this process's own; one that a killed machine left may have its name.
fn new_folder() -> io::Result<PathBuf> {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    loop {
        // Short: the path of a Unix socket may not exceed 107 bytes.
        let name = format!("platform-pg-{}-{}", process::id(), COUNT.fetch_add(1, Relaxed));
        let folder = std::env::temp_dir().join(name);
        match fs::DirBuilder::new().mode(0o700).create(&folder) {
            Err(why) if why.kind() == io::ErrorKind::AlreadyExists => {}
            made => return made.map(|()| folder),
        }
    }
}

/// Three tests at a time for each processor (packaging/test.sh), each with a fleet server that opens up to thirty
/// connections; and some for whoever looks.
fn connections_max() -> usize {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    (3 * processors * 30 + 50).max(400)
}

fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}
