//! UploadModuleFile: one file of one version for one platform, kept as a whole or not at all.
//!
//! The bytes go to the artifact store as they come, through one small buffer, and their digest is made on the way. They
//! are never unpacked or looked into. Only when the caller said that this was all do they get a name, and only then
//! does the registry refer to them.

use api::pb::platform::app::v1::{ModuleFileInfo, UploadModuleFileResponse};
use bytes::BytesMut;
use prost::Message;
use ring::digest;
use semver::Version;

use super::{
    input,
    registry_item::{MODULE, address, found, writable},
};
use crate::{
    artifacts::sweep,
    authn::Caller,
    authz::{Granted, RegistryItem, right},
    context::Context,
    edge::throttle::UPLOAD_AGAIN_AFTER,
    hex,
    limits::{UPLOAD_BYTES_MAX, UPLOAD_CHUNK_BYTES},
    refusal::Refusal,
    store::{
        DbError, artifacts,
        registry_files::{self, File},
    },
    upload::{Incoming, Piece},
};

/// Of a version, a platform or a tag.
const WORD_BYTES_MAX: usize = 128;
/// Of one file.
const TAGS_MAX: usize = 50;

/// UploadModuleFile. The same bytes under the same version and platform once more are accepted and change nothing.
pub async fn upload(
    context: &Context,
    caller: Caller,
    incoming: &mut Incoming,
) -> Result<UploadModuleFileResponse, Refusal> {
    let Some(Piece::Info(info)) = incoming.next().await? else {
        return Err(Refusal::invalid("module_file_info", "is missing: it comes first, and then the file"));
    };
    let info = ModuleFileInfo::decode(&*info)
        .map_err(|_| Refusal::invalid("module_file_info", "cannot be read: send the message of the contract"))?;
    let granted = writable(context, &caller, &info.module_id).await?;
    let stored = found(context, &info.module_id).await?;
    if stored.kind != MODULE {
        return Err(Refusal::unfit(
            "module_id",
            &info.module_id,
            "it is a registry item that is no module, name a module",
        ));
    }
    check(&info)?;
    let url = format!("{}/{}/{}", address(context, &stored.item_id()), info.version, info.platform);
    let _held = context.throttle.late(context.throttle.upload(&caller)).await?;
    let Ok(_permit) = context.uploads.try_acquire() else {
        let message = "too many uploads are under way on this server: try again in a minute";
        return Err(Refusal::too_many("uploads", message, UPLOAD_AGAIN_AFTER));
    };
    let (digest, bytes) = taken_in(context, incoming).await?;
    let file = File {
        item: stored.id,
        version: info.version,
        platform: info.platform,
        platform_tags: info.platform_tags.join("\n"),
        digest: digest.clone(),
        bytes: i64::try_from(bytes).unwrap_or(i64::MAX),
        uploaded_at: 0,
    };
    let added = referred(context, granted, file).await;
    if !matches!(added, Ok(true)) {
        // Nobody else may need these bytes; if somebody does, they stay.
        let withdrawn = context.store.write::<_, DbError>(move |tx| artifacts::withdraw(tx, &digest)).await;
        if withdrawn.is_ok() {
            sweep::now(context).await;
        }
    }
    added.map(|_| UploadModuleFileResponse { url })
}

/// The last step: from here on everybody sees the file.
async fn referred(
    context: &Context,
    granted: Granted<RegistryItem, right::WritePrivateRegistryItem>,
    file: File,
) -> Result<bool, Refusal> {
    let now = context.clock.now();
    context.store.write(move |tx| registry_files::add(tx, &granted, &file, now)).await
}

/// Everything that comes, into the artifact store: (digest, length).
async fn taken_in(context: &Context, incoming: &mut Incoming) -> Result<(String, u64), Refusal> {
    let mut artifact = context.artifacts.begin().await?;
    let mut sum = digest::Context::new(&digest::SHA256);
    let (mut length, mut chunk) = (0_u64, BytesMut::with_capacity(UPLOAD_CHUNK_BYTES));
    while let Some(piece) = incoming.next().await? {
        let Piece::Bytes(bytes) = piece else {
            return Err(Refusal::invalid("module_file_info", "comes a second time: send it once, before the file"));
        };
        length += bytes.len() as u64;
        if length > UPLOAD_BYTES_MAX {
            return Err(Refusal::invalid(
                "file",
                format_args!("is too long: at most {UPLOAD_BYTES_MAX} bytes are kept"),
            ));
        }
        sum.update(&bytes);
        chunk.extend_from_slice(&bytes);
        if chunk.len() >= UPLOAD_CHUNK_BYTES {
            artifact.add(chunk.split().freeze()).await?;
            chunk.reserve(UPLOAD_CHUNK_BYTES);
        }
    }
    if length == 0 {
        return Err(Refusal::invalid("file", "has no bytes: send the file"));
    }
    artifact.add(chunk.freeze()).await?;
    let digest = hex::encode(sum.finish().as_ref());
    let (announced, now) = (digest.clone(), context.clock.now());
    if !context.store.write::<_, DbError>(move |tx| artifacts::announce(tx, &announced, now)).await? {
        return Err(Refusal::again("the same bytes are just being removed: upload once more"));
    }
    artifact.keep(&digest).await?;
    context.trust.forget(&digest);
    Ok((digest, length))
}

fn check(info: &ModuleFileInfo) -> Result<(), Refusal> {
    let version = Version::parse(&info.version).is_ok() && info.version.len() <= WORD_BYTES_MAX;
    if !version {
        return Err(Refusal::unfit(
            "version",
            &info.version,
            "give a semantic version of three numbers, such as 1.2.3 or 1.2.3-rc.1",
        ));
    }
    if !is_platform(&info.platform) {
        return Err(Refusal::unfit("platform", &info.platform, "give SYSTEM/PROCESSOR such as linux/arm64, or any"));
    }
    if info.platform_tags.len() > TAGS_MAX {
        let why = format_args!("has {} entries: at most {TAGS_MAX} are kept", info.platform_tags.len());
        return Err(Refusal::invalid("platform_tags", why));
    }
    if let Some(long) = info.platform_tags.iter().find(|tag| tag.len() > WORD_BYTES_MAX) {
        let why = format_args!("give tags of {WORD_BYTES_MAX} bytes at most");
        return Err(Refusal::unfit("platform_tags", long, why));
    }
    info.platform_tags.iter().try_for_each(|tag| input::printable("platform_tags", tag))
}

/// Up to three words: it becomes part of an address.
fn is_platform(platform: &str) -> bool {
    let word = |word: &str| {
        !word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
    };
    platform.len() <= WORD_BYTES_MAX && platform.split('/').count() <= 3 && platform.split('/').all(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn platforms() {
        for fits in ["linux/arm64", "any", "linux/any", "linux/arm32v7", "windows/x86_64", "linux/arm/v7"] {
            assert!(is_platform(fits), "{fits}");
        }
        for wrong in ["", "/", "linux/", "linux//x", "Linux/arm64", "a/b/c/d", "../x", "linux/arm 64", "a\0"] {
            assert!(!is_platform(wrong), "{wrong:?}");
        }
    }
}
