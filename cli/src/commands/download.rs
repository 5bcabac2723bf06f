//! A file of the registry on its way here: continued where an earlier try ended, and believed by its digest only.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use api::{
    client::{CallOptions, Download},
    digest::Sum,
    pb::platform::app::packages::v1::Package,
};
use serde_json::json;

use super::upload::Bar;
use crate::{failure::Failure, output::Output, session::Session};

/// Where the server keeps files, in their addresses.
const PATH: &str = "/packages/v1/";
/// Pieces in which it is read and written.
const PIECE_BYTES: usize = 64 * 1024;
/// Tries, as long as each brings something.
const TRIES_MAX: u32 = 20;

pub(super) fn run(
    session: &Session,
    output: &mut Output,
    package: &Package,
    to: Option<PathBuf>,
) -> Result<(), Failure> {
    let about = package.info.clone().unwrap_or_default();
    let named = about.files.first().map(|file| file.name.clone()).unwrap_or_default();
    let to = target(to, &named, &package.checksum)?;
    let mut partial = to.clone().into_os_string();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    let length = fetch(session, package, &partial).inspect_err(|_| {
        // What arrived is kept for the next try; where nothing did, nothing is left.
        if fs::metadata(&partial).is_ok_and(|left| left.len() == 0) {
            let _ = fs::remove_file(&partial);
        }
    })?;
    // Another try would come no further than this one.
    fs::rename(&partial, &to).inspect_err(|_| drop(fs::remove_file(&partial))).map_err(Failure::file(&to))?;
    let sentence = format!("{} is here: {length} bytes, SHA-256 {}.", to.display(), package.checksum);
    output.done(&sentence, json!({"file": to, "bytes": length, "sha256": package.checksum, "version": about.version}))
}

/// The path that a person named, or the file's own name in the folder they named or are in. Known before a byte is
/// fetched, so that nothing is left of what could not have its place.
fn target(given: Option<PathBuf>, named: &str, checksum: &str) -> Result<PathBuf, Failure> {
    let folder = given.as_ref().is_none_or(|path| path.is_dir());
    let to = match (given, folder) {
        (Some(file), false) => file,
        (folder, _) => {
            // A name of somebody else's is no way to another folder.
            let own = Path::new(named).file_name();
            let own =
                own.ok_or_else(|| Failure::Usage("the file has no name of its own: give --to FILE".to_owned()))?;
            folder.unwrap_or_default().join(own)
        }
    };
    let taken = |why: &str| Err(Failure::file(&to)(io::Error::other(why.to_owned())));
    match fs::metadata(&to) {
        _ if to.file_name().is_none() => Err(Failure::Usage(format!("--to {:?} is no name of a file", to.display()))),
        Ok(there) if there.is_dir() => taken("there is a folder of this name: give --to FILE"),
        Ok(there) if !there.is_file() => taken("this is no file: give --to FILE"),
        // Somebody else chose the name, so it takes no other file's place.
        Ok(_) if folder && digest(&to)? != checksum => {
            taken("there is another file of this name: --to with its name writes over it")
        }
        _ => Ok(to),
    }
}

/// Until the file is whole and is what it should be.
fn fetch(session: &Session, package: &Package, partial: &Path) -> Result<u64, Failure> {
    let address = package.url.find(PATH).and_then(|at| package.url.get(at..)).unwrap_or(&package.url);
    // What the server calls this very content.
    let tag = format!("\"{}\"", package.checksum);
    for _ in 0..TRIES_MAX {
        let mut file = OpenOptions::new().create(true).append(true).open(partial).map_err(Failure::file(partial))?;
        let have = file.metadata().map_err(Failure::file(partial))?.len();
        if have > 0 && digest(partial)? == package.checksum {
            return Ok(have);
        }
        let from = if have >= size(package).unwrap_or(u64::MAX) { 0 } else { have };
        let mut bytes = session
            .client
            .download(address, from, &tag, CallOptions { idempotent: true, ..CallOptions::lasting() })
            .map_err(Failure::call("could not fetch the file"))?;
        if bytes.from != have {
            // Another file by now, or more than there should be: from the beginning.
            file.set_len(bytes.from).map_err(Failure::file(partial))?;
        }
        let got = copy(&mut bytes, &mut file).map_err(Failure::file(partial))?;
        file.sync_all().map_err(Failure::file(partial))?;
        let length = bytes.from + got.bytes;
        match got.broke {
            None if digest(partial)? == package.checksum => return Ok(length),
            None => {
                fs::remove_file(partial).map_err(Failure::file(partial))?;
                return Err(Failure::Found(format!(
                    "what arrived is not the file with SHA-256 {}, and was removed: try again",
                    package.checksum
                )));
            }
            Some(problem) if got.bytes == 0 => return Err(Failure::file(partial)(problem)),
            Some(_) => {}
        }
    }
    Err(Failure::Found(format!("the connection broke {TRIES_MAX} times: what arrived is kept, try again")))
}

fn size(package: &Package) -> Option<u64> {
    package.info.as_ref()?.files.first().map(|file| file.size)
}

struct Got {
    bytes: u64,
    /// Why there is no more of it, if it is not the end.
    broke: Option<io::Error>,
}

/// What comes is written; that it stops coming is no error of the file's.
fn copy(bytes: &mut Download, file: &mut File) -> io::Result<Got> {
    let mut bar = bytes.total.and_then(Bar::of);
    let (mut piece, mut got) = (vec![0; PIECE_BYTES], 0);
    loop {
        let broke = match bytes.read(&mut piece) {
            Ok(0) => {
                bytes.total.is_some_and(|total| bytes.from + got < total).then(|| io::ErrorKind::UnexpectedEof.into())
            }
            Ok(length) => {
                file.write_all(piece.get(..length).unwrap_or_default())?;
                got += length as u64;
                if let Some(bar) = &mut bar {
                    bar.draw(bytes.from + got, false);
                }
                continue;
            }
            Err(problem) => Some(problem),
        };
        if let Some(bar) = &mut bar {
            bar.draw(bytes.from + got, true);
        }
        return Ok(Got { bytes: got, broke });
    }
}

fn digest(path: &Path) -> Result<String, Failure> {
    let mut file = File::open(path).map_err(Failure::file(path))?;
    let (mut sum, mut piece) = (Sum::default(), vec![0; PIECE_BYTES]);
    loop {
        match file.read(&mut piece).map_err(Failure::file(path))? {
            0 => return Ok(sum.hex()),
            length => sum.add(piece.get(..length).unwrap_or_default()),
        }
    }
}
