//! Options of the program, declared once.

use std::{net::SocketAddr, path::PathBuf};

use clap::{Args, Parser, Subcommand, ValueEnum};
use http::Uri;
use prost_types::Timestamp;

use crate::{
    authz::Role,
    edge::{proxy::Network, throttle::Limits},
    limits::CONNECTIONS_MAX,
    mail,
    releases::command::ReleaseCommand,
    sign_in,
};

/// The fleet management server.
#[derive(Debug, Parser)]
#[command(version, about, after_help = EXIT_CODES)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const EXIT_CODES: &str = "\
Exit codes:
  0  done; for serve: stopped by SIGTERM or SIGINT after the running calls ended
  1  refused or failed; one line on standard error says why and what to do
  2  the command line cannot be understood
  3  the port is in use, or cannot be listened on
  4  the data folder or the database cannot be used (permission, disk full, not reached, no database of ours)
  5  the database was written by a newer version";

/// What to do.
#[derive(Debug, Subcommand)]
#[expect(clippy::large_enum_variant, reason = "there is one, and it is read once")]
pub enum Command {
    /// Run the server.
    Serve(Serve),
    /// Create an organization and the API key of its owner, and print them once.
    Init(Init),
    /// People: give somebody an account, another key, or a link to an organization.
    #[command(subcommand)]
    User(User),
    /// Print what was changed, by whom and from where, as one line of JSON each.
    Audit(Audit),
    /// Copy everything a server needs to be itself again into a new folder; the server may run meanwhile.
    ///
    /// The databases of a server on PostgreSQL are not in it: take them with pg_dump first, and this right after it.
    Backup(Backup),
    /// Make the data folder of a server out of a backup. No server may run with that folder.
    Restore(Restore),
    /// Make, sign and publish releases; works offline.
    #[command(subcommand)]
    Release(ReleaseCommand),
}

/// Where everything is.
#[derive(Debug, Clone, Args)]
pub struct Place {
    /// Folder of databases, keys and artifacts; made if it is not there, readable by its owner only.
    #[arg(long, value_name = "DIR", default_value = "fleet-data")]
    pub data: PathBuf,
    /// PostgreSQL database in place of SQLite files in the data folder: postgres://USER@HOST:PORT/NAME?sslmode=verify-full.
    /// The environment variable PLATFORM_FLEET_DATABASE may name it as well. A password does not belong here, where
    /// every user of the machine can read it.
    #[arg(long, value_name = "URL")]
    pub database: Option<String>,
    /// File whose first line is the database's password; the environment variable PGPASSWORD may hold it as well.
    #[arg(long, value_name = "FILE")]
    pub database_password_file: Option<PathBuf>,
    /// Keep the registry's files in this bucket in place of the data folder: s3://BUCKET/PREFIX. Region, endpoint and
    /// credentials come from the environment variables AWS_REGION, AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID,
    /// AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN.
    #[arg(long, value_name = "URL")]
    pub artifacts: Option<String>,
    /// File of mode 0600 with the bucket's credentials, as ~/.aws/credentials has them; may hold region and endpoint_url.
    #[arg(long, value_name = "FILE")]
    pub artifacts_credentials: Option<PathBuf>,
}

/// Options of `serve`.
#[derive(Debug, Clone, Args)]
pub struct Serve {
    /// Address and port of everything: gRPC, gRPC-Web, health, metrics, releases. Port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8080")]
    pub listen: SocketAddr,
    /// Where databases and keys are.
    #[command(flatten)]
    pub place: Place,
    /// Certificate chain in PEM; turns TLS on.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// Private key of the certificate in PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Listen without TLS on an address that others can reach: keys and secrets travel readably.
    #[arg(long)]
    pub insecure: bool,
    /// How devices reach this server, for credentials files, if that is not the address listened on:
    /// https://HOST[:PORT].
    #[arg(long, value_name = "URL", value_parser = base)]
    pub address: Option<String>,
    /// How invitations are sent.
    #[command(flatten)]
    pub mail: mail::Arguments,
    /// Where people sign in.
    #[command(flatten)]
    pub sign_in: sign_in::Arguments,
    /// Make acknowledged writes survive a power cut too: one fsync per commit.
    #[arg(long)]
    pub durable: bool,
    /// Days that log entries are kept, counted from their arrival.
    #[arg(long, value_name = "DAYS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
    pub log_days: u32,
    /// Megabytes of log entries kept of one part; the oldest go first.
    #[arg(long, value_name = "MB", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    pub log_megabytes_per_part: u32,
    /// Megabytes of log entries kept of all parts.
    #[arg(long, value_name = "MB", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..))]
    pub log_megabytes: u32,
    /// Days that rows of the audit log are kept. Not given: for ever.
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..))]
    pub audit_days: Option<u32>,
    /// Days that former configurations of parts and fragments are kept. Not given: for ever. A fragment's revision stays for as
    /// long as a part, a revision of another fragment or an organization's default names it.
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..))]
    pub history_days: Option<u32>,
    /// Seconds between two questions of a device: a change arrives within this.
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=5))]
    pub check_seconds: u64,
    /// Calls a second of one key or device, over some seconds; what devices ask for counts a tenth. 0: no limit.
    #[arg(long, value_name = "NUMBER", default_value_t = Limits::default().calls_per_key)]
    pub calls_per_key: u32,
    /// Streams that one key or device may have open, or one address without a key. 0: no limit.
    #[arg(long, value_name = "NUMBER", default_value_t = Limits::default().streams_per_key)]
    pub streams_per_key: u32,
    /// Connections that one key or device may hold. 0: no limit. Not given: a quarter of --max-connections.
    #[arg(long, value_name = "NUMBER")]
    pub connections_per_key: Option<u32>,
    /// Calls a second without a key from one address; signing in is not among them. 0: no limit.
    #[arg(long, value_name = "NUMBER", default_value_t = Limits::default().open_calls_per_address)]
    pub open_calls_per_address: u32,
    /// Wrong sign-ins a minute from one address; right ones are not counted. 0: no limit.
    #[arg(long, value_name = "NUMBER", default_value_t = Limits::default().failures_per_address)]
    pub sign_in_failures_per_address: u32,
    /// Connections at the same time.
    #[arg(long, value_name = "NUMBER", default_value_t = CONNECTIONS_MAX as u32, value_parser = clap::value_parser!(u32).range(1..))]
    pub max_connections: u32,
    /// Believe this proxy, an address or a network, when it says in X-Forwarded-For where a call comes from; may be
    /// given several times. Without, the header is not looked at.
    #[arg(long, value_name = "ADDRESS")]
    pub trusted_proxy: Vec<Network>,
    /// Demand of this TCP balancer, an address or a network, that it begins each connection with a header of the PROXY
    /// protocol, version 1 or 2, and believe where it says that the connection comes from; may be given several times.
    /// Of others such a header is not accepted.
    #[arg(long, value_name = "ADDRESS")]
    pub proxy_protocol: Vec<Network>,
    /// File of mode 0600 whose first line opens /metrics, shown as a bearer token; then nothing else does, not even being
    /// on this machine. For a server behind a proxy on the same machine.
    #[arg(long, value_name = "FILE")]
    pub metrics_token_file: Option<PathBuf>,
    /// How the log on standard error is written.
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
    /// Refuse CreateOrganization: only `init` on this server makes organizations.
    #[arg(long)]
    pub no_new_organizations: bool,
    /// Go on with the present server.key although the database was used with another one. For a key that is lost: tokens
    /// end, and stored secrets of parts and locations cannot be read any more.
    #[arg(long)]
    pub new_key: bool,
    /// When ready, print one line of JSON {"url", "address"} instead of a sentence.
    #[arg(long)]
    pub json: bool,
}

/// How the log is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Lines for people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Options of `init`.
#[derive(Debug, Clone, Args)]
pub struct Init {
    /// Name of the organization.
    #[arg(long, value_name = "NAME")]
    pub org: String,
    /// E-mail address of its owner; names the key.
    #[arg(long, value_name = "EMAIL")]
    pub email: String,
    /// Where databases and keys are.
    #[command(flatten)]
    pub place: Place,
    /// Print one line of JSON {"organization_id", "key_id", "key"}.
    #[arg(long)]
    pub json: bool,
}

/// Options of `audit`.
#[derive(Debug, Clone, Args)]
pub struct Audit {
    /// Of this organization only, by its id; empty is what belongs to none: people and their keys.
    #[arg(long, value_name = "ORG")]
    pub org: Option<String>,
    /// Not before this moment, such as 2026-11-20T09:00:00Z.
    #[arg(long, value_name = "TIME")]
    pub since: Option<Timestamp>,
    /// Before this moment.
    #[arg(long, value_name = "TIME")]
    pub until: Option<Timestamp>,
    /// Where databases and keys are.
    #[command(flatten)]
    pub place: Place,
}

/// Options of `backup`.
#[derive(Debug, Clone, Args)]
pub struct Backup {
    /// The folder to make. It is there when all of it is.
    #[arg(value_name = "FOLDER")]
    pub to: PathBuf,
    /// Where the server's databases and keys are.
    #[command(flatten)]
    pub place: Place,
    /// Leave the server's key out, to keep it apart: together with the databases it opens every secret.
    #[arg(long)]
    pub without_key: bool,
    /// Print one line of JSON.
    #[arg(long)]
    pub json: bool,
}

/// Options of `restore`.
#[derive(Debug, Clone, Args)]
pub struct Restore {
    /// What `backup` made.
    #[arg(value_name = "FOLDER")]
    pub from: PathBuf,
    /// The data folder to make; it may be there if it is empty.
    #[arg(long, value_name = "DIR", default_value = "fleet-data")]
    pub data: PathBuf,
    /// Leave the backup's key out: another one is put in its place.
    #[arg(long)]
    pub without_key: bool,
}

/// What to do for a person.
#[derive(Debug, Clone, Subcommand)]
pub enum User {
    /// Create a person and print their personal API key once.
    ///
    /// Invitations without a mail that wait for the address are accepted by it.
    Add {
        /// Their e-mail address.
        #[arg(long, value_name = "EMAIL")]
        email: String,
        /// Make them a member of this organization at once: its id, or its name if only one has it.
        #[arg(long, value_name = "ORG")]
        org: Option<String>,
        /// What they are in that organization.
        #[arg(long, value_enum, default_value_t = RoleName::Owner, requires = "org")]
        role: RoleName,
        /// What is common to all of these.
        #[command(flatten)]
        output: Output,
    },
    /// Make one more key for a person who has none at hand, and print it once.
    Key {
        /// Their e-mail address.
        #[arg(long, value_name = "EMAIL")]
        email: String,
        /// Every other key of theirs ends at once, those of sign-ins included: for a key that somebody else may have.
        #[arg(long)]
        only: bool,
        /// What is common to all of these.
        #[command(flatten)]
        output: Output,
    },
    /// Invite somebody, or make a new link for an invitation that waits, and print the link.
    Invite {
        /// To which organization: its id, or its name if only one has it.
        #[arg(long, value_name = "ORG")]
        org: String,
        /// Whom.
        #[arg(long, value_name = "EMAIL")]
        email: String,
        /// What they will be there; an invitation that waits keeps the roles it has.
        #[arg(long, value_enum, default_value_t = RoleName::Owner)]
        role: RoleName,
        /// How the server is reached, https://HOST[:PORT]: what the link begins with.
        #[arg(long, value_name = "URL", value_parser = base)]
        address: String,
        /// What is common to all of these.
        #[command(flatten)]
        output: Output,
    },
}

/// Where, and in which form the answer is.
#[derive(Debug, Clone, Args)]
pub struct Output {
    /// Where databases and keys are.
    #[command(flatten)]
    pub place: Place,
    /// Print one line of JSON.
    #[arg(long)]
    pub json: bool,
}

/// An address that others are told to begin with: scheme, host and port, and nothing behind it.
fn base(text: &str) -> Result<String, String> {
    let base = text.trim_end_matches('/');
    let good = |uri: &Uri| {
        let web = matches!(uri.scheme_str(), Some("http" | "https"));
        let host = uri.authority().is_some_and(|whole| {
            let port = whole.as_str().strip_prefix(whole.host()).filter(|_| !whole.host().is_empty());
            let number = |port: &str| port.strip_prefix(':').and_then(|port| port.parse::<u16>().ok());
            port.is_some_and(|port| port.is_empty() || number(port).is_some_and(|port| port > 0))
        });
        web && host && uri.path() == "/" && uri.query().is_none()
    };
    match base.parse::<Uri>() {
        Ok(uri) if good(&uri) && !base.contains('#') => Ok(uri.to_string().trim_end_matches('/').to_owned()),
        _ => Err("give http:// or https://, a host and perhaps a port, such as https://fleet.example.com".to_owned()),
    }
}

/// What somebody may be in an organization.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RoleName {
    /// May do everything.
    Owner,
    /// Looks at everything, controls machines, changes nothing.
    Operator,
}

impl From<RoleName> for Role {
    fn from(name: RoleName) -> Self {
        match name {
            RoleName::Owner => Self::Owner,
            RoleName::Operator => Self::Operator,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_ends_after_host_and_port() {
        for good in ["https://fleet.example.com", "http://127.0.0.1:8080", "https://[::1]:8443"] {
            assert_eq!(base(good).as_deref(), Ok(good));
            assert_eq!(base(&format!("{good}/")).as_deref(), Ok(good));
        }
        assert_eq!(base("HTTPS://fleet.example.com/").as_deref(), Ok("https://fleet.example.com"));
        let bad = ["", "fleet.example.com", "ftp://fleet", "https://", "https://a/b", "https://a?b", "https://a#b"];
        for bad in bad.into_iter().chain(["https://u:p@a", "https://a:99999", "https://a b"]) {
            assert!(base(bad).is_err(), "{bad}");
        }
    }
}
