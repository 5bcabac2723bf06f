//! Packing executables into xz streams as devices unpack them: one stream, a dictionary that a small board has memory for.

use std::{
    fs::{self, File},
    io::{self, BufReader, Read},
    path::{Path, PathBuf},
};

use lzma_rust2::{XzOptions, XzReader, XzWriter};

use super::folder::measure;

/// How hard to try, as `xz -6`.
const PRESET: u32 = 6;
/// Memory that a device needs for unpacking. 8 MiB, what it allows at most, would make executables 2 or 3 % smaller.
const DICTIONARY_BYTES: u32 = 2 << 20;
/// What devices allow (`board::files::DICTIONARY_BYTES_MAX`) in KiB, with the fixed buffers of the decoder.
const MEMORY_KIB_MAX: u32 = (8 << 10) + 40 + 64;
/// More than this is no executable.
const INSIDE_BYTES_MAX: u64 = 4 << 30;

/// Where the packed form of a file goes.
pub(super) fn beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".xz");
    path.with_file_name(name)
}

/// Packs a file into another one; SHA-256 and length of the stream.
pub(super) fn pack(from: &Path, to: &Path) -> io::Result<([u8; 32], u64)> {
    let mut options = XzOptions::with_preset(PRESET);
    options.lzma_options.dict_size = DICTIONARY_BYTES;
    let unfinished = to.with_extension(format!("{}.part", crate::ids::new_id()));
    let packed = (|| {
        let mut writer = XzWriter::new(io::BufWriter::new(File::create_new(&unfinished)?), options)?;
        io::copy(&mut File::open(from)?, &mut writer)?;
        writer.finish()?.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
        fs::rename(&unfinished, to)?;
        measure(&mut File::open(to)?, |_| Ok(()))
    })();
    if packed.is_err() {
        // The first failure is the one to tell.
        let _ = fs::remove_file(&unfinished);
    }
    packed
}

/// SHA-256 and length of what is inside one xz stream that devices would unpack.
pub(super) fn look_inside(path: &Path) -> io::Result<([u8; 32], u64)> {
    let mut stream = XzReader::new_mem_limit(BufReader::new(File::open(path)?), false, MEMORY_KIB_MAX);
    let mut left = INSIDE_BYTES_MAX;
    let inside = measure(&mut stream, |chunk| {
        left = left.checked_sub(chunk.len() as u64).ok_or(io::ErrorKind::FileTooLarge)?;
        Ok(())
    });
    let inside = inside.map_err(|error| match error.kind() {
        io::ErrorKind::OutOfMemory => io::Error::other(
            "devices refuse a dictionary of more than 8 MiB: pack it with `xz --lzma2=dict=8MiB`, or sign it with --xz",
        ),
        _ => error,
    })?;
    match stream.into_inner().read(&mut [0])? {
        0 => Ok(inside),
        _ => Err(io::Error::other("something follows the xz stream: devices unpack exactly one")),
    }
}
