//! `platform-fleet release …`: making and adding signed releases.
//!
//! `keygen`, `root`, `sign`, `cosign` and `channel` need private keys and belong on a machine that is not a server;
//! `verify`, `list` and `add` need none. Nothing here talks to a running server: `add` puts files into its folder,
//! and it looks there once a second. One file for each command; what they read is `input`.

mod add;
mod channel;
mod cosign;
mod error;
mod input;
mod keygen;
mod list;
mod root;
mod sign;
mod verify;

use std::{io::Write, path::PathBuf};

use clap::Subcommand;

pub use channel::ChannelArgs;
pub use error::ReleaseError;
pub use root::RootArgs;
pub use sign::SignArgs;

/// What can be done with releases.
#[derive(Debug, Subcommand)]
pub enum ReleaseCommand {
    /// Make a private key, in a file that only its owner can read
    Keygen {
        /// The file to make; it must not exist
        #[arg(value_name = "FILE")]
        out: PathBuf,
    },
    /// Sign a root document: which keys count from now on
    #[command(visible_alias = "rotate")]
    Root(RootArgs),
    /// Sign a release: what the bytes of one version are
    Sign(SignArgs),
    /// Add a signature to a document that somebody else signed
    Cosign {
        /// File with the private key
        #[arg(long, required = true)]
        key: Vec<PathBuf>,
        /// The document; it is replaced
        document: PathBuf,
    },
    /// Sign a channel: which version `stable` or `dev` means from now on
    Channel(ChannelArgs),
    /// Say whether documents (and the files they describe) are genuine
    Verify {
        /// Root documents in the order of their numbers, the first of them trusted
        #[arg(long, required = true)]
        root: Vec<PathBuf>,
        /// Files of the artifacts that the releases describe
        #[arg(long)]
        artifact: Vec<PathBuf>,
        /// Releases and channels
        documents: Vec<PathBuf>,
    },
    /// Put documents and artifacts into a server's data folder, verified first
    Add {
        /// The server's data folder
        #[arg(long)]
        data: PathBuf,
        /// Files of the artifacts that the releases describe
        #[arg(long)]
        artifact: Vec<PathBuf>,
        /// Roots, releases and channels, in any order
        #[arg(required = true)]
        documents: Vec<PathBuf>,
    },
    /// Show what a server's data folder has
    List {
        /// The server's data folder
        #[arg(long)]
        data: PathBuf,
        /// As one line of JSON
        #[arg(long)]
        json: bool,
    },
}

/// Does what was asked and says what was done.
pub fn run(command: ReleaseCommand, out: &mut dyn Write) -> Result<(), ReleaseError> {
    let said = match command {
        ReleaseCommand::Keygen { out } => keygen::keygen(&out)?,
        ReleaseCommand::Root(args) => root::root(&args)?,
        ReleaseCommand::Sign(args) => sign::release(&args)?,
        ReleaseCommand::Cosign { key, document } => cosign::cosign(&key, &document)?,
        ReleaseCommand::Channel(args) => channel::channel(&args)?,
        ReleaseCommand::Verify { root, artifact, documents } => verify::verify(&root, &artifact, &documents)?,
        ReleaseCommand::Add { data, artifact, documents } => add::add(&data, &artifact, &documents)?,
        ReleaseCommand::List { data, json } => list::list(&data, json)?,
    };
    // A reader that went away (`| head -1`) is no failure of what was done.
    let _ = out.write_all(said.as_bytes());
    Ok(())
}
