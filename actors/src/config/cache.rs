//! The configuration in force as one private file, so that a start without network finds it.
//!
//! Owns the form: a mark, a SHA-256 of all that follows, what was accepted, and the cloud's answer as it came with the
//! part whose it is. The answer is kept raw because a later agent may read more out of it than this one did. A file that is not exactly that is set
//! aside, never trusted and never fatal: the device then knows what its manufacturer says until the cloud answers.

use std::{
    io,
    path::{Path, PathBuf},
    rc::Rc,
};

use api::{device_config::Accepted, pb::platform::app::agent::v1::DeviceAgentConfigResponse};
use board::files::{Access, FileError, Files, RECORD_BYTES_MAX};
use prost::Message as _;

use crate::cloud::FetchedConfig;

/// First bytes of the file; the last one is the version of its form.
const MARK: &[u8; 8] = b"config\0\x02";
const DIGEST_BYTES: usize = 32;

/// What is kept.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Kept {
    /// What was accepted from each source.
    pub accepted: Accepted,
    /// The cloud's configuration in force, as it came; `None` if the cloud was never heard.
    pub cloud: Option<Rc<FetchedConfig>>,
}

/// Reads what is kept. Whatever is wrong with the file, the agent starts.
pub fn load(files: &dyn Files, path: &Path) -> Option<Kept> {
    let damaged = match files.read(path, RECORD_BYTES_MAX) {
        Ok(None) => return None,
        Ok(Some(bytes)) => match decode(&bytes) {
            Some(kept) => return Some(kept),
            None => "it is damaged or of another version",
        },
        Err(FileError { source, .. }) if source.kind() == io::ErrorKind::FileTooLarge => "it is too large",
        Err(error) => {
            log::error!("starting without the stored configuration: {error}: {}", error.source);
            return None;
        }
    };
    let aside = aside(path);
    match files.rename(path, &aside) {
        Ok(()) => log::error!("the stored configuration was set aside as {}: {damaged}", aside.display()),
        Err(error) => log::error!("the stored configuration is ignored: {damaged}; {error}: {}", error.source),
    }
    None
}

/// Stores what is to be kept: the whole of it or, if that fails, what was there.
pub fn store(files: &dyn Files, path: &Path, kept: &Kept) -> Result<(), FileError> {
    files.write(path, &encode(kept), Access::Private)
}

/// Where a damaged file goes.
fn aside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".corrupt");
    name.into()
}

fn encode(kept: &Kept) -> Vec<u8> {
    let mut bytes = Vec::from(*MARK);
    bytes.extend([0; DIGEST_BYTES]);
    measured(&mut bytes, &kept.accepted.encode());
    if let Some(cloud) = &kept.cloud {
        measured(&mut bytes, &cloud.part_id);
        bytes.extend(cloud.revision);
        bytes.extend(cloud.response.encode_to_vec());
    }
    if let Some((head, body)) = bytes.split_at_mut_checked(MARK.len() + DIGEST_BYTES)
        && let Some(checksum) = head.get_mut(MARK.len()..)
    {
        checksum.copy_from_slice(&api::digest(body));
    }
    bytes
}

/// A text behind its length.
#[allow(clippy::expect_used, reason = "a document is at most 1 MiB, and what was accepted of it not much longer")]
fn measured(bytes: &mut Vec<u8>, text: &str) {
    let length = u32::try_from(text.len()).expect("the limits of a configuration keep it far below 4 GiB");
    bytes.extend(length.to_le_bytes());
    bytes.extend(text.as_bytes());
}

/// The same taken off again.
fn taken<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, rest) = bytes.split_first_chunk()?;
    let (text, rest) = rest.split_at_checked(u32::from_le_bytes(*length).try_into().ok()?)?;
    *bytes = rest;
    Some(text)
}

fn decode(bytes: &[u8]) -> Option<Kept> {
    let (checksum, body) = bytes.strip_prefix(MARK)?.split_first_chunk::<DIGEST_BYTES>()?;
    (api::digest(body) == *checksum).then_some(())?;
    let mut rest = body;
    let accepted = Accepted::decode(taken(&mut rest)?)?;
    if rest.is_empty() {
        return Some(Kept { accepted, cloud: None });
    }
    let part_id = std::str::from_utf8(taken(&mut rest)?).ok()?.into();
    let (revision, response) = rest.split_first_chunk()?;
    let response = Rc::new(DeviceAgentConfigResponse::decode(response).ok()?);
    let cloud = FetchedConfig { part_id, response, revision: *revision };
    Some(Kept { accepted, cloud: Some(Rc::new(cloud)) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::device_config::{CommandLine, Source, Sources, random, read};

    fn kept() -> Kept {
        let text = br#"{"advanced_settings": {"debug": true, "platform_server_env": {"A": "1"}}}"#;
        let response = random::as_response(text).unwrap();
        let cloud = Source::Given(&response);
        let sources = Sources { defaults: Source::Absent, cloud, command_line: CommandLine::default() };
        let accepted = read(&sources, &Accepted::default()).accepted;
        let cloud = FetchedConfig { part_id: "part".into(), response: Rc::new(response), revision: [7; 32] };
        Kept { accepted, cloud: Some(Rc::new(cloud)) }
    }

    #[test]
    fn what_is_written_is_read() {
        for kept in [Kept::default(), Kept { cloud: None, ..kept() }, kept()] {
            assert_eq!(decode(&encode(&kept)), Some(kept));
        }
    }

    #[test]
    fn no_damage_goes_unnoticed() {
        let good = encode(&kept());
        for at in 0..good.len() {
            let mut flipped = good.clone();
            flipped[at] ^= 0x04;
            assert_eq!(decode(&flipped), None, "bit in byte {at} flipped");
            assert_eq!(decode(&good[..at]), None, "cut after {at} bytes");
        }
        assert_eq!(decode(&[good.as_slice(), b"x"].concat()), None, "a byte more");
    }
}
