//! `release root`: which keys count from now on.

use std::path::PathBuf;

use api::releases::{PublicKey, RoleKeys, Root, sign, sign::SigningKey};
use clap::Args;

use super::{
    ReleaseError,
    input::{at, expires, public_key, read, read_keys},
};
use crate::releases::folder::write_whole;

/// Keys of a year's people; a root outlives several of them.
const ROOT_DAYS: &str = "3650d";

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

pub(super) fn root(args: &RootArgs) -> Result<String, ReleaseError> {
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
pub(super) fn for_devices(root: &Root) -> String {
    let keys: Vec<_> = root.root.keys.iter().map(|key| format!("\"{key}\"")).collect();
    format!(
        "manufacturer's defaults: \"advanced_settings\": {{\"release_keys\": [{}], \"release_keys_threshold\": {}}}\n",
        keys.join(", "),
        root.root.threshold
    )
}
