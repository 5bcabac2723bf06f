//! `release sign`: what the bytes of one version are.

use std::path::PathBuf;

use api::{
    brand,
    releases::{Artifact, Release, Unpacked, sign},
};
use clap::Args;
use semver::Version;

use super::{
    ReleaseError,
    error::{failed, option},
    input::{expires, measured, read_keys},
};
use crate::{
    hex,
    releases::{folder::write_whole, pack},
};

/// A release stays installable for longer than most devices are left alone.
const RELEASE_DAYS: &str = "1095d";

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

pub(super) fn release(args: &SignArgs) -> Result<String, ReleaseError> {
    if args.platform.len() != args.artifact.len() {
        return Err(option("--platform", "each --artifact needs one, in the same order"));
    }
    let (mut artifacts, mut said) = (Vec::new(), String::new());
    for (index, (path, platform)) in args.artifact.iter().zip(&args.platform).enumerate() {
        let failed = failed("pack", path);
        let (sha256, length) = measured(path)?;
        let mut artifact = match args.format.get(index).map(String::as_str) {
            None if args.xz => {
                let packed = pack::beside(path);
                let (stream, stream_length) = pack::pack(path, &packed).map_err(&failed)?;
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
