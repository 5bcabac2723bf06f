//! A manufacturer with keys of its own, who signs versions and puts them onto a fleet server.
//!
//! Uses the shipped commands only, as a manufacturer would, so that they are tried whenever a sandbox or a test starts.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use api::brand;

use super::{Trouble, programs};

/// The manufacturer's folder of keys and documents, and the server's data folder it publishes to.
#[derive(Clone, Debug)]
pub struct Factory {
    folder: PathBuf,
    data: PathBuf,
}

impl Factory {
    /// Makes a key and a root document and publishes the root, unless the folder has them already.
    pub fn open(folder: &Path, data: &Path) -> Result<Factory, Trouble> {
        let factory = Factory { folder: folder.to_owned(), data: data.to_owned() };
        fs::create_dir_all(folder).map_err(|error| Trouble::of(folder.display(), error))?;
        if !factory.key().is_file() {
            factory.run(&["keygen"], &[factory.key().as_path()])?;
        }
        if !factory.root().is_file() {
            factory.run(&["root", "--key"], &[factory.key().as_path(), Path::new("--out"), &factory.root()])?;
            factory.run(&["add", "--data"], &[factory.data.as_path(), &factory.root()])?;
        }
        Ok(factory)
    }

    /// The private key: keep it off the server.
    #[must_use]
    pub fn key(&self) -> PathBuf {
        self.folder.join("release.key")
    }

    /// The first root document.
    #[must_use]
    pub fn root(&self) -> PathBuf {
        self.folder.join("root.1.json")
    }

    /// Signs and publishes one version of the machine server for this machine; `number` rises with each release.
    pub fn release(&self, version: &str, number: u64, artifact: &Path) -> Result<(), Trouble> {
        self.release_product(brand::MACHINE_SERVER, version, number, artifact)
    }

    /// Packs, signs and publishes one version of the machine server for this machine.
    pub fn release_packed(&self, version: &str, number: u64, artifact: &Path) -> Result<(), Trouble> {
        let document = self.signed(brand::MACHINE_SERVER, &this_platform(), version, number, artifact, &["--xz"])?;
        let mut packed = artifact.as_os_str().to_owned();
        packed.push(".xz");
        self.add(&document, Path::new(&packed))
    }

    /// Signs and publishes one version of the agent for this machine.
    pub fn release_agent(&self, version: &str, number: u64, artifact: &Path) -> Result<(), Trouble> {
        self.release_product(brand::AGENT, version, number, artifact)
    }

    /// Signs and publishes one version of any product for this machine, and makes it `stable`.
    pub fn publish(&self, product: &str, version: &str, number: u64, artifact: &Path) -> Result<(), Trouble> {
        self.publish_for(&this_platform(), product, version, number, artifact)
    }

    /// The same for machines of another kind.
    pub fn publish_for(
        &self,
        platform: &str,
        product: &str,
        version: &str,
        number: u64,
        artifact: &Path,
    ) -> Result<(), Trouble> {
        let document = self.signed(product, platform, version, number, artifact, &[])?;
        self.add(&document, artifact)?;
        self.channels_of(product, &[("stable", version)])
    }

    /// Signs a version of the machine server without publishing it, and gives the document back.
    pub fn sign(&self, platform: &str, version: &str, number: u64, artifact: &Path) -> Result<PathBuf, Trouble> {
        self.signed(brand::MACHINE_SERVER, platform, version, number, artifact, &[])
    }

    fn release_product(&self, product: &str, version: &str, number: u64, artifact: &Path) -> Result<(), Trouble> {
        let document = self.signed(product, &this_platform(), version, number, artifact, &[])?;
        self.add(&document, artifact)
    }

    fn signed(
        &self,
        product: &str,
        platform: &str,
        version: &str,
        number: u64,
        artifact: &Path,
        more: &[&str],
    ) -> Result<PathBuf, Trouble> {
        let document = self.folder.join(format!("{product}-{version}.json"));
        let (number, key) = (number.to_string(), self.key());
        let words = ["sign", "--product", product, "--version", version, "--number", &number, "--platform", platform];
        let paths = [Path::new("--artifact"), artifact, Path::new("--key"), &key, Path::new("--out"), &document];
        self.run(&[&words, more].concat(), &paths)?;
        Ok(document)
    }

    fn add(&self, document: &Path, artifact: &Path) -> Result<(), Trouble> {
        self.run(&["add", "--data"], &[self.data.as_path(), Path::new("--artifact"), artifact, document])
    }

    /// Signs and publishes what channels mean from now on for the machine server: `("stable", "1.1.0")`.
    pub fn channels(&self, meanings: &[(&str, &str)]) -> Result<(), Trouble> {
        self.channels_of(brand::MACHINE_SERVER, meanings)
    }

    fn channels_of(&self, product: &str, meanings: &[(&str, &str)]) -> Result<(), Trouble> {
        let mut words = ["channel", "--product", product].map(str::to_owned).to_vec();
        for (channel, version) in meanings {
            words.extend(["--set".to_owned(), format!("{channel}={version}")]);
        }
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        self.run(&words, &[Path::new("--key"), &self.key(), Path::new("--data"), &self.data])
    }

    fn run(&self, words: &[&str], paths: &[&Path]) -> Result<(), Trouble> {
        let mut command = Command::new(programs::find("platform-fleet")?);
        command.arg("release").args(words).args(paths);
        let output = command.output().map_err(|error| Trouble::of("could not run platform-fleet release", error))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(Trouble::of(format!("platform-fleet release {}", words.join(" ")), said.trim()))
    }
}

/// This machine in the words of the registry.
#[must_use]
pub fn this_platform() -> String {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    format!("{}/{architecture}", std::env::consts::OS)
}
