//! `release add`: documents and artifacts into a server's data folder, verified first.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use super::{
    ReleaseError,
    error::option,
    input::{Subject, folder_of, measured, read, root_number, subject},
};

pub(super) fn add(data: &Path, artifacts: &[PathBuf], paths: &[PathBuf]) -> Result<String, ReleaseError> {
    let folder = folder_of(data);
    let mut documents = Vec::new();
    for path in paths {
        let document = read(path)?;
        documents.push((subject(path, &document)?, path, document));
    }
    // Roots before releases before channels: each is verified with what came before. Roots by the number in their text.
    documents.sort_by_key(|(subject, _, document)| (subject.rank(), root_number(document)));
    let mut unused: BTreeSet<&PathBuf> = artifacts.iter().collect();
    let mut said = String::new();
    for (subject, path, document) in documents {
        let refused = |source| ReleaseError::Add { path: path.clone(), source };
        match subject {
            Subject::Root => {
                let root = folder.add_root(&document).map_err(refused)?;
                said += &format!("added root number {}\n", root.version);
            }
            Subject::Release(product, version) => {
                let release =
                    folder.root().and_then(|root| Ok(root.release(&document, &product, &version)?)).map_err(refused)?;
                let mut files = Vec::new();
                for file in artifacts {
                    let (sha256, length) = measured(file)?;
                    if release.artifacts.iter().any(|one| one.sha256 == sha256 && one.length == length) {
                        unused.remove(file);
                        files.push(file.clone());
                    }
                }
                folder.add_release(&document, &product, &version, &files).map_err(refused)?;
                said += &format!("added {product} {version}\n");
            }
            Subject::Channel(name) => {
                let channel = folder.add_channel(&document, &name).map_err(refused)?;
                said += &format!("added channel {name}, document number {}\n", channel.version);
            }
        }
    }
    match unused.first() {
        Some(file) => Err(option("--artifact", format!("{} is part of none of the releases", file.display()))),
        None => Ok(said),
    }
}
