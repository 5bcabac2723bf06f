//! `platform-fleet release …`: making and adding signed releases.
//!
//! `keygen`, `root`, `sign`, `cosign` and `channel` need private keys and belong on a machine that is not a server;
//! `verify`, `list` and `add` need none. Nothing here talks to a running server: `add` puts files into its folder,
//! and it looks there once a second.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use api::{
    brand,
    releases::{
        Artifact, Channel, ChannelEntry, DocumentError, DocumentType, Expires, PublicKey, Release, RoleKeys, Root,
        Unpacked, sign,
        sign::{KeyFileError, SignError, SigningKey},
    },
};
use clap::{Args, Subcommand};
use semver::Version;
use serde::Deserialize;

use super::{
    folder::{Folder, FolderError, measure, write_whole},
    pack,
};
use crate::hex;

/// Keys of a year's people; a root outlives several of them.
const ROOT_DAYS: &str = "3650d";
/// A release stays installable for longer than most devices are left alone.
const RELEASE_DAYS: &str = "1095d";
/// Short, so that nobody can keep devices on old news for long.
const CHANNEL_DAYS: &str = "90d";

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

/// A root.
#[derive(Debug, Args)]
pub struct RootArgs {
    /// File with a private root key; for a successor those of the previous root too
    #[arg(long, required = true)]
    key: Vec<PathBuf>,
    /// Root keys from now on, as key files or 64 hexadecimal digits; those of --previous, else of --key unless given
    #[arg(long)]
    root_key: Vec<String>,
    /// How many root keys must sign; as in --previous, else 1 unless given
    #[arg(long)]
    root_threshold: Option<usize>,
    /// Keys that sign releases; those of --previous, else the root keys unless given
    #[arg(long)]
    release_key: Vec<String>,
    /// How many must sign a release; as in --previous, else 1 unless given
    #[arg(long)]
    release_threshold: Option<usize>,
    /// Keys that sign channels; the --release-key, else those of --previous unless given
    #[arg(long)]
    channel_key: Vec<String>,
    /// How many must sign a channel; as in --previous, else 1 unless given
    #[arg(long)]
    channel_threshold: Option<usize>,
    /// The root before this one; without it this is number 1
    #[arg(long)]
    previous: Option<PathBuf>,
    /// When it stops counting: a number of days such as 3650d, or 2030-01-31
    #[arg(long, default_value = ROOT_DAYS)]
    expires: String,
    /// The file to write
    #[arg(long)]
    out: PathBuf,
}

/// A release.
#[derive(Debug, Args)]
pub struct SignArgs {
    /// File with a private release key
    #[arg(long, required = true)]
    key: Vec<PathBuf>,
    /// What it is a version of
    #[arg(long, default_value = brand::MACHINE_SERVER)]
    product: String,
    /// Its version
    #[arg(long)]
    version: Version,
    /// Its number: higher than that of every release of this product before
    #[arg(long)]
    number: u64,
    /// A file to install; repeat it with --platform for further platforms
    #[arg(long, required = true)]
    artifact: Vec<PathBuf>,
    /// The platform of the --artifact at the same place, such as linux/arm64
    #[arg(long, required = true)]
    platform: Vec<String>,
    /// The --artifact at the same place is an executable (`raw`), or one in an xz stream already (`xz`)
    #[arg(long)]
    format: Vec<String>,
    /// Pack each executable into an xz stream beside it (FILE.xz), which is what is added and downloaded then
    #[arg(long, conflicts_with = "format")]
    xz: bool,
    /// Where the --artifact at the same place is, below the address of the server or mirror; /releases/v1/artifact/… unless given
    #[arg(long)]
    url: Vec<String>,
    /// When it may no longer be installed: a number of days such as 1095d, or 2030-01-31
    #[arg(long, default_value = RELEASE_DAYS)]
    expires: String,
    /// The file to write
    #[arg(long)]
    out: PathBuf,
}

/// Channels.
#[derive(Debug, Args)]
pub struct ChannelArgs {
    /// File with a private channel key
    #[arg(long, required = true)]
    key: Vec<PathBuf>,
    /// A folder with the releases and the channels so far: a server's data folder, or a copy of its `releases`
    #[arg(long)]
    data: PathBuf,
    /// What the versions are versions of
    #[arg(long, default_value = brand::MACHINE_SERVER)]
    product: String,
    /// Channel and version, such as stable=1.1.0; can be repeated
    #[arg(long, required = true)]
    set: Vec<String>,
    /// When it stops counting: a number of days such as 90d, or 2030-01-31
    #[arg(long, default_value = CHANNEL_DAYS)]
    expires: String,
    /// A folder to write the documents to, instead of putting them into --data at once
    #[arg(long)]
    out: Option<PathBuf>,
}

/// Why a release command was not done.
#[derive(Debug, thiserror::Error)]
pub enum ReleaseError {
    /// A file on disk.
    #[error("cannot {what} {path}")]
    File {
        /// What was to be done.
        what: &'static str,
        /// With which file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// A key file.
    #[error("{path} cannot be used to sign")]
    Key {
        /// The file.
        path: PathBuf,
        /// Why it is none.
        source: KeyFileError,
    },
    /// A document.
    #[error("{path} is refused")]
    Document {
        /// The file.
        path: PathBuf,
        /// Why it is refused.
        source: DocumentError,
    },
    /// The folder.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// A document while it is put into the folder.
    #[error("{path} was not added")]
    Add {
        /// The file.
        path: PathBuf,
        /// Why it is refused.
        source: FolderError,
    },
    /// Signing.
    #[error(transparent)]
    Sign(#[from] SignError),
    /// An option.
    #[error("{option}: {why}")]
    Option {
        /// Which one.
        option: &'static str,
        /// What is allowed.
        why: String,
    },
    /// A packed artifact with another executable in it than the release says.
    #[error("{path}: what {file} unpacks to is not what was signed")]
    OtherInside {
        /// The release.
        path: PathBuf,
        /// The packed file.
        file: PathBuf,
    },
    /// Artifacts that no given file is.
    #[error("{path}: no --artifact is the {platform} one (sha256 {sha256})")]
    NotVerified {
        /// The release.
        path: PathBuf,
        /// The platform.
        platform: String,
        /// What was signed.
        sha256: String,
    },
}

fn option(option: &'static str, why: impl Into<String>) -> ReleaseError {
    ReleaseError::Option { option, why: why.into() }
}

/// Does what was asked and says what was done.
pub fn run(command: ReleaseCommand, out: &mut dyn Write) -> Result<(), ReleaseError> {
    let said = match command {
        ReleaseCommand::Keygen { out } => keygen(&out)?,
        ReleaseCommand::Root(args) => root(&args)?,
        ReleaseCommand::Sign(args) => release(&args)?,
        ReleaseCommand::Cosign { key, document } => cosign(&key, &document)?,
        ReleaseCommand::Channel(args) => channel(&args)?,
        ReleaseCommand::Verify { root, artifact, documents } => verify(&root, &artifact, &documents)?,
        ReleaseCommand::Add { data, artifact, documents } => add(&data, &artifact, &documents)?,
        ReleaseCommand::List { data, json } => list(&data, json)?,
    };
    // A reader that went away (`| head -1`) is no failure of what was done.
    let _ = out.write_all(said.as_bytes());
    Ok(())
}

fn keygen(path: &Path) -> Result<String, ReleaseError> {
    let failed = |source| ReleaseError::File { what: "make", path: path.into(), source };
    let key = SigningKey::generate().map_err(|source| ReleaseError::Key { path: path.into(), source })?;
    // Never over an existing file: that key may be the only one that can sign the next root.
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(failed)?;
    file.write_all(key.to_text().expose().as_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
    Ok(format!("{}: private key, keep it off the server\npublic key {}\n", path.display(), key.public()))
}

fn root(args: &RootArgs) -> Result<String, ReleaseError> {
    let keys = read_keys(&args.key)?;
    let mine: Vec<PublicKey> = keys.iter().map(SigningKey::public).collect();
    let previous = match &args.previous {
        None => None,
        Some(path) => Some((path, Root::pinned(&read(path)?).map_err(|source| at(path, source))?)),
    };
    // What nobody speaks of stays as it is: a root that forgets the release keys would end every release.
    let role = |given: &[String], threshold: Option<usize>, before: Option<&RoleKeys>, otherwise: &[PublicKey]| {
        let keys = match (given, before) {
            ([], Some(before)) => before.keys.clone(),
            ([], None) => otherwise.to_vec(),
            (given, _) => given.iter().map(|text| public_key(text)).collect::<Result<_, _>>()?,
        };
        Ok::<_, ReleaseError>(RoleKeys::new(threshold.or(before.map(|before| before.threshold)).unwrap_or(1), keys))
    };
    let before = previous.as_ref().map(|(_, previous)| previous);
    let root_keys = role(&args.root_key, args.root_threshold, before.map(|before| &before.root), &mine)?;
    let release_before = before.map(|before| &before.release);
    let release_keys = role(&args.release_key, args.release_threshold, release_before, &root_keys.keys)?;
    let channel_before = before.map(|before| &before.channel).filter(|_| args.release_key.is_empty());
    let channel_keys = role(&args.channel_key, args.channel_threshold, channel_before, &release_keys.keys)?;
    let root = Root {
        version: before.map_or(1, |previous| previous.version + 1),
        expires: expires(&args.expires)?,
        root: root_keys,
        release: release_keys,
        channel: channel_keys,
    };
    let document = sign::root(&root, &keys.iter().collect::<Vec<_>>())?;
    write_whole(&args.out, document.as_bytes())?;
    let genuine = match &previous {
        Some((_, previous)) => previous.successor(document.as_bytes()),
        None => Root::pinned(document.as_bytes()),
    };
    let shown = args.out.display();
    Ok(match genuine {
        Ok(root) => format!("{shown}: root number {}\n{}", root.version, for_devices(&root)),
        Err(lacking) => format!(
            "{shown}: root number {}, not complete yet: {lacking}; `release cosign` adds signatures\n",
            root.version
        ),
    })
}

/// What the manufacturer's defaults of devices must hold so that they believe this root from their first day.
fn for_devices(root: &Root) -> String {
    let keys: Vec<_> = root.root.keys.iter().map(|key| format!("\"{key}\"")).collect();
    format!(
        "manufacturer's defaults: \"advanced_settings\": {{\"release_keys\": [{}], \"release_keys_threshold\": {}}}\n",
        keys.join(", "),
        root.root.threshold
    )
}

fn release(args: &SignArgs) -> Result<String, ReleaseError> {
    if args.platform.len() != args.artifact.len() {
        return Err(option("--platform", "each --artifact needs one, in the same order"));
    }
    let (mut artifacts, mut said) = (Vec::new(), String::new());
    for (index, (path, platform)) in args.artifact.iter().zip(&args.platform).enumerate() {
        let failed = |source| ReleaseError::File { what: "pack", path: path.clone(), source };
        let (sha256, length) = measured(path)?;
        let mut artifact = match args.format.get(index).map(String::as_str) {
            None if args.xz => {
                let packed = pack::beside(path);
                let (stream, stream_length) = pack::pack(path, &packed).map_err(failed)?;
                said += &format!("{}: {stream_length} of {length} bytes, to be added instead\n", packed.display());
                Artifact::xz(platform, stream, stream_length, Unpacked { sha256, length })
            }
            None | Some("raw") => Artifact::raw(platform, sha256, length),
            Some("xz") => {
                let (inside, inside_length) = pack::look_inside(path).map_err(failed)?;
                Artifact::xz(platform, sha256, length, Unpacked { sha256: inside, length: inside_length })
            }
            Some(_) => return Err(option("--format", "`raw` or `xz` is allowed")),
        };
        if let Some(path) = args.url.get(index) {
            artifact.path.clone_from(path);
        }
        artifacts.push(artifact);
    }
    let release = Release {
        product: args.product.clone(),
        version: args.version.clone(),
        number: args.number,
        expires: expires(&args.expires)?,
        artifacts,
    };
    let keys = read_keys(&args.key)?;
    let document = sign::release(&release, &keys.iter().collect::<Vec<_>>())?;
    write_whole(&args.out, document.as_bytes())?;
    said += &format!(
        "{}: {} {}, number {}, until {}\n",
        args.out.display(),
        release.product,
        release.version,
        release.number,
        release.expires
    );
    for artifact in &release.artifacts {
        said +=
            &format!("  {} {} bytes, sha256 {}\n", artifact.platform, artifact.length, hex::encode(&artifact.sha256));
    }
    Ok(said)
}

fn cosign(keys: &[PathBuf], path: &Path) -> Result<String, ReleaseError> {
    let mut document = read(path)?;
    for key in read_keys(keys)? {
        document = sign::add_signature(&document, &key)?.into_bytes();
    }
    write_whole(path, &document)?;
    // A root that has become complete, or anything else.
    let complete = Root::pinned(&document).map_or_else(|_| String::new(), |root| for_devices(&root));
    Ok(format!("{}: signed\n{complete}", path.display()))
}

fn channel(args: &ChannelArgs) -> Result<String, ReleaseError> {
    let folder = folder_of(&args.data);
    let root = folder.root()?;
    let keys = read_keys(&args.key)?;
    let expires = expires(&args.expires)?;
    let mut said = String::new();
    for set in &args.set {
        let wanted = "a channel and a version such as stable=1.1.0";
        let (name, version) = set.split_once('=').ok_or_else(|| option("--set", wanted))?;
        let version = Version::parse(version).map_err(|cause| option("--set", format!("{wanted}; {cause}")))?;
        let release = folder.release(&root, &args.product, &version)?.ok_or_else(|| FolderError::NoRelease {
            channel: name.into(),
            product: args.product.clone(),
            version: version.clone(),
        })?;
        let before = folder.channel_once(name)?;
        let mut products = before.as_ref().map(|before| before.products.clone()).unwrap_or_default();
        products.retain(|entry| entry.product != args.product);
        products.push(ChannelEntry { product: args.product.clone(), version, number: release.number });
        let channel =
            Channel { name: name.into(), version: before.map_or(1, |before| before.version + 1), expires, products };
        let document = sign::channel(&channel, &keys.iter().collect::<Vec<_>>())?;
        match &args.out {
            None => drop(folder.add_channel(document.as_bytes(), name)?),
            Some(out) => write_whole(&out.join(format!("{name}.json")), document.as_bytes())?,
        }
        said += &format!(
            "{name}: {} is {} now (document number {}, until {expires})\n",
            args.product, release.version, channel.version
        );
    }
    Ok(said)
}

fn verify(roots: &[PathBuf], artifacts: &[PathBuf], documents: &[PathBuf]) -> Result<String, ReleaseError> {
    let mut said = String::new();
    let mut trusted: Option<Root> = None;
    for path in roots {
        let document = read(path)?;
        let next = match &trusted {
            None => Root::pinned(&document),
            Some(root) => root.successor(&document),
        };
        let root = next.map_err(|source| at(path, source))?;
        said += &format!("{}: root number {}, until {}\n", path.display(), root.version, root.expires);
        trusted = Some(root);
    }
    let root = trusted.ok_or_else(|| option("--root", "at least one is needed"))?;
    let mut have = BTreeMap::new();
    for path in artifacts {
        have.insert(measured(path)?, path);
    }
    for path in documents {
        let document = read(path)?;
        match subject(path, &document)? {
            Subject::Root => {
                return Err(option("DOCUMENT", "roots are named with --root, in the order of their numbers"));
            }
            Subject::Channel(name) => {
                let channel = root.channel(&document, &name).map_err(|source| at(path, source))?;
                said += &format!(
                    "{}: channel {name}, number {}, until {}\n",
                    path.display(),
                    channel.version,
                    channel.expires
                );
            }
            Subject::Release(product, version) => {
                let release = root.release(&document, &product, &version).map_err(|source| at(path, source))?;
                let lacking = release.artifacts.iter().find(|one| !have.contains_key(&(one.sha256, one.length)));
                if let (Some(lacking), false) = (lacking, artifacts.is_empty()) {
                    let (platform, sha256) = (lacking.platform.clone(), hex::encode(&lacking.sha256));
                    return Err(ReleaseError::NotVerified { path: path.clone(), platform, sha256 });
                }
                for one in &release.artifacts {
                    let (Some(promised), Some(file)) = (one.unpacked, have.get(&(one.sha256, one.length))) else {
                        continue;
                    };
                    let failed = |source| ReleaseError::File { what: "unpack", path: (*file).clone(), source };
                    if pack::look_inside(file).map_err(failed)? != (promised.sha256, promised.length) {
                        return Err(ReleaseError::OtherInside { path: path.clone(), file: (*file).clone() });
                    }
                }
                said += &format!(
                    "{}: {product} {version}, number {}, until {}\n",
                    path.display(),
                    release.number,
                    release.expires
                );
            }
        }
    }
    Ok(said)
}

fn add(data: &Path, artifacts: &[PathBuf], paths: &[PathBuf]) -> Result<String, ReleaseError> {
    let folder = folder_of(data);
    let mut documents = Vec::new();
    for path in paths {
        let document = read(path)?;
        documents.push((subject(path, &document)?, path, document));
    }
    // Roots before releases before channels: each is verified with what came before. Roots by the number in their text.
    documents.sort_by_key(|(subject, _, document)| (subject.rank(), root_number(document)));
    let mut unused: BTreeSet<&PathBuf> = artifacts.iter().collect();
    let mut said = String::new();
    for (subject, path, document) in documents {
        let refused = |source| ReleaseError::Add { path: path.clone(), source };
        match subject {
            Subject::Root => {
                let root = folder.add_root(&document).map_err(refused)?;
                said += &format!("added root number {}\n", root.version);
            }
            Subject::Release(product, version) => {
                let release =
                    folder.root().and_then(|root| Ok(root.release(&document, &product, &version)?)).map_err(refused)?;
                let mut files = Vec::new();
                for file in artifacts {
                    let (sha256, length) = measured(file)?;
                    if release.artifacts.iter().any(|one| one.sha256 == sha256 && one.length == length) {
                        unused.remove(file);
                        files.push(file.clone());
                    }
                }
                folder.add_release(&document, &product, &version, &files).map_err(refused)?;
                said += &format!("added {product} {version}\n");
            }
            Subject::Channel(name) => {
                let channel = folder.add_channel(&document, &name).map_err(refused)?;
                said += &format!("added channel {name}, document number {}\n", channel.version);
            }
        }
    }
    match unused.first() {
        Some(file) => Err(option("--artifact", format!("{} is part of none of the releases", file.display()))),
        None => Ok(said),
    }
}

fn list(data: &Path, json: bool) -> Result<String, ReleaseError> {
    let folder = folder_of(data);
    let root = match folder.root() {
        Ok(root) => root,
        Err(FolderError::NoRoot) if json => return Ok("{\"channels\":[],\"releases\":[]}\n".into()),
        Err(FolderError::NoRoot) => return Ok("no releases: add root.1.json first\n".into()),
        Err(other) => return Err(other.into()),
    };
    // What counts no more, since keys were rotated: to be signed anew.
    let mut lapsed = Vec::new();
    let mut channels = Vec::new();
    for name in folder.channels()? {
        match folder.channel(&root, &name) {
            Ok(channel) => channels.extend(channel),
            Err(FolderError::Document(cause)) => lapsed.push((format!("channel {name}"), cause)),
            Err(other) => return Err(other.into()),
        }
    }
    let mut releases = Vec::new();
    for (product, version) in folder.releases()? {
        match folder.release(&root, &product, &version) {
            Ok(release) => releases.extend(release),
            Err(FolderError::Document(cause)) => lapsed.push((format!("{product} {version}"), cause)),
            Err(other) => return Err(other.into()),
        }
    }
    if json {
        let channel = |channel: &Channel| {
            let products =
                channel.products.iter().map(|entry| (entry.product.clone(), entry.version.to_string().into()));
            serde_json::json!({
                "name": channel.name, "number": channel.version, "expires": channel.expires.to_string(),
                "products": serde_json::Value::Object(products.collect()),
            })
        };
        let release = |release: &Release| {
            let platforms: Vec<_> = release.artifacts.iter().map(|artifact| artifact.platform.as_str()).collect();
            serde_json::json!({
                "product": release.product, "version": release.version.to_string(), "number": release.number,
                "expires": release.expires.to_string(), "platforms": platforms,
            })
        };
        let all = serde_json::json!({
            "root": root.version,
            "channels": channels.iter().map(channel).collect::<Vec<_>>(),
            "releases": releases.iter().map(release).collect::<Vec<_>>(),
            "not_counting": lapsed.iter().map(|(what, _)| what).collect::<Vec<_>>(),
        });
        return Ok(format!("{all}\n"));
    }
    let mut said = format!("root number {}, until {}\n", root.version, root.expires);
    for channel in &channels {
        for entry in &channel.products {
            said +=
                &format!("channel {}: {} {} (until {})\n", channel.name, entry.product, entry.version, channel.expires);
        }
    }
    for release in &releases {
        let platforms: Vec<_> = release.artifacts.iter().map(|artifact| artifact.platform.as_str()).collect();
        said +=
            &format!("{} {}, number {}: {}\n", release.product, release.version, release.number, platforms.join(", "));
    }
    for (what, cause) in &lapsed {
        said += &format!("{what} does not count, sign it again: {cause}\n");
    }
    Ok(said)
}

/// What a document is about, by its own words; nothing of it is believed yet.
enum Subject {
    Root,
    Release(String, Version),
    Channel(String),
}

impl Subject {
    fn rank(&self) -> u8 {
        match self {
            Self::Root => 0,
            Self::Release(..) => 1,
            Self::Channel(_) => 2,
        }
    }
}

#[derive(Deserialize)]
struct Document {
    signed: Signed,
}

#[derive(Deserialize)]
struct Signed {
    #[serde(rename = "_type")]
    kind: String,
    name: Option<String>,
    product: Option<String>,
    product_version: Option<String>,
    version: Option<serde_json::Value>,
}

fn subject(path: &Path, document: &[u8]) -> Result<Subject, ReleaseError> {
    let unknown = || option("DOCUMENT", format!("{} is no signed root, release or channel", path.display()));
    let Document { signed } = serde_json::from_slice(document).map_err(|_| unknown())?;
    let kind = [DocumentType::Root, DocumentType::Release, DocumentType::Channel]
        .into_iter()
        .find(|kind| kind.name() == signed.kind);
    match (kind, signed.name, signed.product, signed.product_version) {
        (Some(DocumentType::Root), ..) => Ok(Subject::Root),
        (Some(DocumentType::Channel), Some(name), ..) => Ok(Subject::Channel(name)),
        (Some(DocumentType::Release), _, Some(product), Some(version)) => {
            Ok(Subject::Release(product, Version::parse(&version).map_err(|_| unknown())?))
        }
        _ => Err(unknown()),
    }
}

fn root_number(document: &[u8]) -> u64 {
    let signed = serde_json::from_slice::<Document>(document).ok();
    signed.and_then(|document| document.signed.version?.as_u64()).unwrap_or_default()
}

/// A server's data folder, or a folder of releases itself.
fn folder_of(data: &Path) -> Folder {
    let is_releases = data.file_name().is_some_and(|name| name == "releases");
    Folder::of_data(data.parent().filter(|_| is_releases).unwrap_or(data))
}

fn read(path: &Path) -> Result<Vec<u8>, ReleaseError> {
    fs::read(path).map_err(|source| ReleaseError::File { what: "read", path: path.into(), source })
}

fn read_keys(paths: &[PathBuf]) -> Result<Vec<SigningKey>, ReleaseError> {
    let key = |path: &PathBuf| {
        let text = read(path)?;
        SigningKey::from_text(&text).map_err(|source| ReleaseError::Key { path: path.clone(), source })
    };
    paths.iter().map(key).collect()
}

/// 64 hexadecimal digits, or the key file of which only the public part is taken.
fn public_key(text: &str) -> Result<PublicKey, ReleaseError> {
    match text.parse() {
        Ok(key) => Ok(key),
        Err(_) => Ok(read_keys(&[text.into()])?
            .first()
            .map(SigningKey::public)
            .ok_or_else(|| option("--root-key", "a key file or 64 hexadecimal digits"))?),
    }
}

fn measured(path: &Path) -> Result<([u8; 32], u64), ReleaseError> {
    let failed = |source| ReleaseError::File { what: "read", path: path.into(), source };
    let mut file = fs::File::open(path).map_err(failed)?;
    measure(&mut file, |_| Ok(())).map_err(failed)
}

/// `90d` from now, or a date (its last second), or the exact form of the documents.
fn expires(text: &str) -> Result<Expires, ReleaseError> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let days = text.strip_suffix('d').and_then(|days| days.parse::<u32>().ok());
    let expires = match days {
        Some(days) => i64::try_from(now + u64::from(days) * 86_400).ok().map(Expires::from_unix_seconds),
        None => Expires::parse(text).or_else(|| Expires::parse(&format!("{text}T23:59:59Z"))),
    };
    // The documents' form has four digits for the year.
    expires
        .filter(|expires| Expires::parse(&expires.to_string()).is_some())
        .ok_or_else(|| option("--expires", "a number of days such as 90d, or a date such as 2030-01-31"))
}

fn at(path: &Path, source: DocumentError) -> ReleaseError {
    ReleaseError::Document { path: path.into(), source }
}
