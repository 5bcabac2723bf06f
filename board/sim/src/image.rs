//! What a machine server looks like as bytes: enough of an ELF header to be told from garbage, and a version.

use std::{io::Write as _, str};

/// Marks the programs that the simulated device can run.
const MARK: &str = "\nsimulated machine server, version ";
/// Bytes of the ELF header of a 64-bit program.
const ELF_BYTES: usize = 64;
/// Bytes of one program header behind it.
const ENTRY_BYTES: usize = 56;
/// Bytes of the note behind that: owner, and two fields of 32 bytes.
const NOTE_BYTES: usize = 12 + 16 + 2 * FIELD_BYTES;
const FIELD_BYTES: usize = 32;
/// Everything before the text.
const HEADER_BYTES: usize = ELF_BYTES + ENTRY_BYTES + NOTE_BYTES;

/// ELF machine numbers by the name of the platform.
const MACHINES: [(&str, u16); 4] =
    [("linux/amd64", 62), ("linux/arm64", 183), ("linux/arm", 40), ("linux/riscv64", 243)];

/// SHA-256, as digests in documents are.
#[must_use]
pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    let mut sha256 = [0; 32];
    sha256.copy_from_slice(digest.as_ref());
    sha256
}

/// A program of `size` bytes (at least a few hundred) that runs on `platform` and says it is `version`.
///
/// # Panics
/// When the platform is none of those the simulation knows.
#[must_use]
pub fn program(version: &str, platform: &str, size: usize) -> Vec<u8> {
    build(version, platform, size, None)
}

/// The same, with the note of an agent that says it is the program `name`.
///
/// # Panics
/// When the platform is none of those the simulation knows.
#[must_use]
pub fn agent(name: &str, version: &str, platform: &str, size: usize) -> Vec<u8> {
    build(version, platform, size, Some(name))
}

fn build(version: &str, platform: &str, size: usize, note: Option<&str>) -> Vec<u8> {
    let machine = MACHINES.iter().find(|(name, _)| *name == platform).map(|(_, machine)| *machine);
    let machine = machine.expect("the simulation knows this platform");
    let mut image = vec![0x7f, b'E', b'L', b'F', 2, 1, 1];
    image.resize(16, 0);
    image.extend(2_u16.to_le_bytes());
    image.extend(machine.to_le_bytes());
    image.extend(1_u32.to_le_bytes());
    image.resize(32, 0);
    image.extend((ELF_BYTES as u64).to_le_bytes());
    image.resize(54, 0);
    image.extend([ENTRY_BYTES as u16, u16::from(note.is_some())].map(u16::to_le_bytes).concat());
    image.resize(ELF_BYTES, 0);
    if let Some(name) = note {
        // PT_NOTE, readable; offset, addresses, lengths, alignment.
        image.extend([4_u32, 4].map(u32::to_le_bytes).concat());
        let (at, length) = ((ELF_BYTES + ENTRY_BYTES) as u64, NOTE_BYTES as u64);
        image.extend([at, 0, 0, length, length, 4].map(u64::to_le_bytes).concat());
        image.extend([16_u32, 2 * FIELD_BYTES as u32, 1].map(u32::to_le_bytes).concat());
        for (text, field) in [("device-agent", 16), (name, FIELD_BYTES), (version, FIELD_BYTES)] {
            let end = image.len() + field;
            image.extend(text.bytes().take(field));
            image.resize(end, 0);
        }
    }
    image.resize(HEADER_BYTES, 0);
    image.extend(MARK.as_bytes());
    image.extend(version.as_bytes());
    image.push(b'\n');
    // Not one byte repeated: a torn or swapped block has to change the digest.
    let mut state = u32::try_from(size).unwrap_or(u32::MAX) ^ u32::from(machine);
    while image.len() + 32 < size {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        image.push(state.to_be_bytes()[0]);
    }
    let seal = sha256(&image);
    image.extend(seal);
    image
}

/// These bytes in one xz stream with a dictionary of this many bytes.
///
/// # Panics
/// Never: writing into memory does not fail.
#[must_use]
pub fn xz(bytes: &[u8], dictionary: u32) -> Vec<u8> {
    let mut options = lzma_rust2::XzOptions::with_preset(0);
    options.lzma_options.dict_size = dictionary;
    let mut writer = lzma_rust2::XzWriter::new(Vec::new(), options).expect("these options are possible");
    writer.write_all(bytes).expect("memory takes it");
    writer.finish().expect("memory takes it")
}

/// The version of a whole program that runs on `platform`.
#[must_use]
pub fn version(image: &[u8], platform: &str) -> Option<String> {
    match runs(image, platform) {
        Runs::As(version) => Some(version),
        Runs::Broken | Runs::NotAtAll => None,
    }
}

/// What becomes of bytes that somebody tries to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Runs {
    /// A whole program, of this version.
    As(String),
    /// It starts, and breaks at the first wrong byte.
    Broken,
    /// Not a program of this machine.
    NotAtAll,
}

/// Looks at bytes as a kernel and a processor would.
pub(crate) fn runs(image: &[u8], platform: &str) -> Runs {
    let machine = MACHINES.iter().find(|(name, _)| *name == platform).map(|(_, machine)| machine.to_le_bytes());
    let is_elf = image.starts_with(&[0x7f, b'E', b'L', b'F']);
    if !is_elf || image.len() < HEADER_BYTES || image.get(18..20) != machine.as_ref().map(<[u8; 2]>::as_slice) {
        return Runs::NotAtAll;
    }
    let whole = image.split_last_chunk::<32>().filter(|(body, seal)| sha256(body) == **seal);
    let version = || {
        let text = str::from_utf8(whole?.0.get(HEADER_BYTES + MARK.len()..)?.split(|&byte| byte == b'\n').next()?);
        text.ok().map(str::to_owned)
    };
    version().map_or(Runs::Broken, Runs::As)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_program_of_this_machine_runs() {
        let image = program("1.2.3", "linux/amd64", 5_000);
        assert_eq!(image.len(), 5_000);
        assert_eq!(runs(&image, "linux/amd64"), Runs::As("1.2.3".into()));
        assert_eq!(runs(&image, "linux/arm64"), Runs::NotAtAll);
        assert_eq!(runs(&image[..4_000], "linux/amd64"), Runs::Broken);
        assert_eq!(runs(b"<html>sign in to the hotel network</html>", "linux/amd64"), Runs::NotAtAll);
        let mut rotten = image;
        rotten[3_000] ^= 1;
        assert_eq!(runs(&rotten, "linux/amd64"), Runs::Broken);
    }
}
