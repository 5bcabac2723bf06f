//! One xz stream into a file, in bounded memory, to a length that was promised and no further.

use std::{
    fs::{self, OpenOptions},
    io::{self, BufReader, Read, Write as _},
    path::Path,
};

use board::files::{Access, DICTIONARY_BYTES_MAX, Digest, UnpackError};
use lzma_rust2::XzReader;
use ring::digest::{Context, SHA256};

use crate::{
    files::{absent_is_fine, failed, open, open_new},
    work::Abandon,
};

/// Read and written at a time.
const CHUNK_BYTES: usize = 64 * 1024;
/// What may wait in the system's memory for the disk.
const SYNC_EVERY_BYTES: u64 = 8 << 20;
/// The decoder's own word for [`DICTIONARY_BYTES_MAX`]: KiB, with its fixed buffers.
const MEMORY_KIB_MAX: u32 = (DICTIONARY_BYTES_MAX >> 10) as u32 + 40 + 64;

pub(crate) fn unpack(from: &Path, to: &Path, limit: u64, abandon: &Abandon) -> Result<Digest, UnpackError> {
    let source = open(OpenOptions::new().read(true), from).map_err(failed("read", from))?;
    absent_is_fine(fs::remove_file(to)).map_err(failed("replace", to))?;
    let mut file = open_new(to, Access::Private).map_err(failed("make", to))?;
    let mut stream = XzReader::new_mem_limit(BufReader::with_capacity(CHUNK_BYTES, source), false, MEMORY_KIB_MAX);
    let malformed = |error: &io::Error| match error.kind() {
        io::ErrorKind::OutOfMemory => UnpackError::Dictionary { path: from.to_owned() },
        _ => UnpackError::Malformed { path: from.to_owned(), reason: error.to_string() },
    };
    let (mut buffer, mut context) = (vec![0; CHUNK_BYTES], Context::new(&SHA256));
    let (mut len, mut unsynced) = (0, 0);
    loop {
        if abandon.is_wanted() {
            return Err(failed("unpack", from)(io::Error::other("nobody waits for it any more")).into());
        }
        let count = match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count as u64,
            Err(error) => return Err(malformed(&error)),
        };
        len += count;
        if len > limit {
            return Err(UnpackError::TooLong { path: from.to_owned(), limit });
        }
        let chunk = usize::try_from(count).ok().and_then(|count| buffer.get(..count)).unwrap_or_default();
        context.update(chunk);
        file.write_all(chunk).map_err(failed("write", to))?;
        unsynced += count;
        if unsynced >= SYNC_EVERY_BYTES {
            file.sync_data().map_err(failed("write", to))?;
            unsynced = 0;
        }
    }
    // What follows the stream was never looked at: an archive with two faces is none.
    match stream.into_inner().read(&mut [0]) {
        Ok(0) => {}
        Ok(_) => return Err(malformed(&io::Error::other("something follows it"))),
        Err(error) => return Err(failed("read", from)(error).into()),
    }
    let mut sha256 = [0; 32];
    sha256.iter_mut().zip(context.finish().as_ref()).for_each(|(byte, digest)| *byte = *digest);
    Ok(Digest { sha256, len })
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use board::files::Files as _;
    use lzma_rust2::{XzOptions, XzWriter};

    use super::*;
    use crate::PortableFiles;

    fn packed(content: &[u8], dictionary: u32) -> Vec<u8> {
        let mut options = XzOptions::with_preset(0);
        options.lzma_options.dict_size = dictionary;
        let mut writer = XzWriter::new(Vec::new(), options).unwrap();
        writer.write_all(content).unwrap();
        writer.finish().unwrap()
    }

    fn noise(len: usize) -> Vec<u8> {
        let mut state = 1_u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state.to_be_bytes()[0] & 0x3F
        };
        (0..len).map(|_| next()).collect()
    }

    fn run(stream: &[u8], limit: u64) -> (Result<Digest, UnpackError>, Option<Vec<u8>>) {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| -> PathBuf { folder.path().join(name) };
        fs::write(at("packed"), stream).unwrap();
        fs::write(at("unpacked"), "left by a power cut").unwrap();
        let result = smol::block_on(PortableFiles.unpack(&at("packed"), &at("unpacked"), limit));
        (result, fs::read(at("unpacked")).ok())
    }

    #[test]
    fn what_was_packed_comes_out() {
        for (content, dictionary) in [(noise(300_000), 1 << 20), (noise(300_000), 8 << 20), (Vec::new(), 1 << 16)] {
            let (result, unpacked) = run(&packed(&content, dictionary), content.len() as u64);
            let digest = ring::digest::digest(&SHA256, &content);
            let expected = Digest { sha256: digest.as_ref().try_into().unwrap(), len: content.len() as u64 };
            assert_eq!(result.unwrap(), expected);
            assert!(unpacked.unwrap() == content);
        }
    }

    #[test]
    fn what_is_no_honest_stream_leaves_nothing() {
        let (content, long) = (noise(50_000), 1 << 30);
        let good = packed(&content, 1 << 20);
        let mut flipped = good.clone();
        flipped[good.len() / 2] ^= 1;
        let rows: Vec<(&str, Vec<u8>, u64, &str)> = vec![
            ("a bomb", packed(&vec![0; 50 << 20], 1 << 20), 50_000, "unpacks to more than 50000 bytes"),
            ("one byte more than promised", good.clone(), 49_999, "unpacks to more than 49999 bytes"),
            ("a large dictionary", packed(&content, (8 << 20) + (4 << 20)), long, "dictionary of more than 8 MiB"),
            ("a huge dictionary", packed_with_dictionary_code(&content, 40), long, "dictionary of more than 8 MiB"),
            ("a flipped bit", flipped, long, "is not one whole xz stream"),
            ("cut", good[..good.len() - 1].to_vec(), long, "is not one whole xz stream"),
            ("cut at the footer", good[..good.len() - 12].to_vec(), long, "is not one whole xz stream"),
            ("nothing", Vec::new(), long, "is not one whole xz stream"),
            ("a zip archive", b"PK\x03\x04 and so on, and on".to_vec(), long, "is not one whole xz stream"),
            ("a gzip archive", vec![0x1F, 0x8B, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0], long, "is not one whole xz stream"),
            ("two streams", [good.clone(), good.clone()].concat(), long, "something follows it"),
            ("a tail", [good, b"#!/bin/sh".to_vec()].concat(), long, "something follows it"),
        ];
        for (case, stream, limit, message) in rows {
            let (result, left) = run(&stream, limit);
            let error = result.unwrap_err().to_string();
            assert!(error.contains(message), "{case}: {error}");
            assert_eq!(left, None, "{case}");
        }
    }

    /// A stream whose block header asks for a dictionary by this code (40 is 4 GiB), with a right checksum.
    fn packed_with_dictionary_code(content: &[u8], code: u8) -> Vec<u8> {
        let mut stream = packed(content, 1 << 20);
        // Stream header (12), then the block header: size, flags, filter 0x21, size of its properties, the code.
        let header = 12..12 + (usize::from(stream[12]) + 1) * 4;
        let at = stream[header.clone()].windows(2).position(|two| two == [0x21, 1]).unwrap() + header.start + 2;
        stream[at] = code;
        let crc = crc32(&stream[header.start..header.end - 4]);
        stream[header.end - 4..header.end].copy_from_slice(&crc.to_le_bytes());
        stream
    }

    fn crc32(bytes: &[u8]) -> u32 {
        !bytes.iter().fold(u32::MAX, |crc, byte| {
            (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0xEDB8_8320 & (crc & 1).wrapping_neg()))
        })
    }
}
