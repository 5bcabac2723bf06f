//! `release list`: what a server's data folder has.

use std::path::Path;

use api::releases::{Channel, Release};

use super::{ReleaseError, input::folder_of};
use crate::releases::folder::FolderError;

pub(super) fn list(data: &Path, json: bool) -> Result<String, ReleaseError> {
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
