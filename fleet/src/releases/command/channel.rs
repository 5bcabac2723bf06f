//! `release channel`: which version `stable` or `dev` means from now on.

use std::path::PathBuf;

use api::{
    brand,
    releases::{Channel, ChannelEntry, sign},
};
use clap::Args;
use semver::Version;

use super::{
    ReleaseError,
    error::option,
    input::{expires, folder_of, read_keys},
};
use crate::releases::folder::{FolderError, write_whole};

/// Short, so that nobody can keep devices on old news for long.
const CHANNEL_DAYS: &str = "90d";

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

pub(super) fn channel(args: &ChannelArgs) -> Result<String, ReleaseError> {
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
