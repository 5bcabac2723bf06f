//! `login` and `logout`: profiles.

use std::path::{Path, PathBuf};

use api::{
    Secret,
    client::{Address, CallOptions},
};
use clap::Args;
use serde_json::json;

use super::{read_text, sign_in};
use crate::{
    args::Global,
    failure::Failure,
    output::Output,
    profiles::{DEFAULT_NAME, Profile, Profiles},
    session, terminal,
};

/// Asks for what is not given. The key is read from --key-file, from a hidden prompt, or from standard input; never from
/// the command line, where every user of the machine could see it.
#[derive(Args)]
pub(crate) struct Login {
    /// Address of the fleet server, such as https://fleet.example.com
    #[arg(long)]
    url: Option<String>,
    /// Sign in in a browser, at the server's identity provider, instead of giving a key
    #[arg(long, conflicts_with_all = ["key_id", "key_file"])]
    oidc: bool,
    /// Id of the API key
    #[arg(long)]
    key_id: Option<String>,
    /// File that contains the API key
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// PEM file of the authority that signed the server's certificate; the certificate itself where nobody else did
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Store the profile without asking the server whether the key is right
    #[arg(long)]
    unchecked: bool,
}

pub(super) fn login(global: &Global, login: Login, output: &mut Output) -> Result<(), Failure> {
    let name = global.profile.clone().unwrap_or_else(|| DEFAULT_NAME.to_owned());
    let url = given_or_asked(login.url, "Address of the fleet server", "--url")?;
    let address: Address = url.parse()?;
    // Kept absolute: the profile is used from other folders.
    let ca = login.ca.map(|ca| std::path::absolute(&ca).map_err(Failure::file(ca))).transpose()?;
    let (key_id, key) = match login.oidc {
        true => {
            let page = |page: &str| eprintln!("Open this page in a browser on this machine:\n\n  {page}\n");
            let issued = sign_in::key(&address, ca.as_deref(), page)?;
            (issued.key_id, Secret::from(issued.key))
        }
        false => key_of_a_person(login.key_id, login.key_file.as_deref())?,
    };
    let profile = Profile { url: address.base().to_owned(), key_id, key, ca };
    if !address.is_encrypted() && !address.is_loopback() {
        eprintln!("warning: {address} is not encrypted; everybody on the way can read the key");
    }
    if !login.unchecked {
        session::client(&profile)?
            .authenticate(CallOptions::idempotent())
            .map_err(Failure::call("could not log in"))?;
    }
    let mut profiles = Profiles::load()?;
    profiles.profiles.insert(name.clone(), profile);
    profiles.current = Some(name.clone());
    let path = profiles.store()?;
    output.done(
        &format!("Logged in to {address} (profile {name:?} in {}).", path.display()),
        json!({"profile": name, "url": address.base()}),
    )
}

pub(super) fn logout(global: &Global, output: &mut Output) -> Result<(), Failure> {
    let mut profiles = Profiles::load()?;
    let Some(name) = profiles.choose(global.profile.as_deref())?.map(|(name, _)| name.to_owned()) else {
        return output.done("You were not logged in.", json!({"profile": null}));
    };
    profiles.profiles.remove(&name);
    if profiles.current.as_deref() == Some(&name) {
        profiles.current = None;
    }
    profiles.store()?;
    output.done(
        &format!("The key of profile {name:?} is forgotten here; it stays valid until it is deleted on the server."),
        json!({"profile": name}),
    )
}

fn key_of_a_person(id: Option<String>, file: Option<&Path>) -> Result<(String, Secret), Failure> {
    let id = given_or_asked(id, "Id of the API key", "--key-id")?;
    let key = match file {
        Some(file) => read_text(file)?,
        None if terminal::is_there() => {
            terminal::ask_hidden("API key (not shown)").map_err(Failure::file("terminal"))?
        }
        None => read_text(Path::new("-"))?,
    };
    let key = Secret::from(key.trim());
    match key.is_empty() {
        true => Err(Failure::Usage("the API key is empty; give it by --key-file or on standard input".to_owned())),
        false => Ok((id, key)),
    }
}

fn given_or_asked(given: Option<String>, question: &str, option: &str) -> Result<String, Failure> {
    match given {
        Some(given) => Ok(given),
        None if terminal::is_there() => terminal::ask(question).map_err(Failure::file("terminal")),
        None => Err(Failure::Usage(format!("{option} is needed where nobody can be asked"))),
    }
}
