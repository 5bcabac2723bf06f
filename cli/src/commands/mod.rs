//! One file per noun; a verb reads as: find what is meant, ask or change, show.

pub(crate) mod app;
pub(crate) mod audit;
pub(crate) mod call;
pub(crate) mod config;
mod download;
pub(crate) mod fragment;
pub(crate) mod key;
pub(crate) mod location;
pub(crate) mod login;
pub(crate) mod logs;
pub(crate) mod machine;
pub(crate) mod member;
pub(crate) mod metadata;
pub(crate) mod module;
mod module_meta;
pub(crate) mod organization;
pub(crate) mod part;
pub(crate) mod registry;
pub(crate) mod role;
mod secrets;
mod sign_in;
pub(crate) mod status;
mod upload;

use std::{
    fs,
    io::{self, Read},
    path::Path,
};

use clap::CommandFactory;

use crate::{
    args::{Args, ConfigVerb, Noun},
    failure::Failure,
    output::Output,
    session::Session,
};

/// Configurations are limited to 1 MiB by the server; this is only against the wrong file.
const FILE_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// Does what the command line says.
pub(crate) fn run(args: Args, output: &mut Output) -> Result<(), Failure> {
    let global = &args.global;
    match args.noun {
        Noun::Login(login) => login::login(global, login, output),
        Noun::Logout => login::logout(global, output),
        Noun::Organization(verb) => organization::run(&Session::open(global)?, verb, output),
        Noun::Location(verb) => location::run(&Session::open(global)?, verb, output),
        Noun::Machine(verb) => machine::run(&Session::open(global)?, verb, output),
        Noun::Part(verb) => part::run(&Session::open(global)?, verb, output),
        Noun::Fragment(verb) => fragment::run(&Session::open(global)?, verb, output),
        Noun::Module(verb) => module::run(&Session::open(global)?, verb, output),
        Noun::Registry(verb) => registry::run(&Session::open(global)?, verb, output),
        Noun::App(verb) => app::run(&Session::open(global)?, &verb, output),
        Noun::Key(verb) => key::run(&Session::open(global)?, verb, output),
        Noun::Member(verb) => member::run(&Session::open(global)?, verb, output),
        Noun::Invite(verb) => member::invite(&Session::open(global)?, verb, output),
        Noun::Role(verb) => role::run(&Session::open(global)?, verb, output),
        Noun::Metadata(verb) => metadata::run(&Session::open(global)?, verb, output),
        Noun::Call(call) if call.is_list() => call::list(output),
        Noun::Call(call) => call::run(&Session::open(global)?, call, output),
        Noun::Audit(verb) => audit::run(&Session::open(global)?, verb, output),
        Noun::Config(ConfigVerb::Check { file, defaults }) => config::check_file(&file, defaults, output),
        Noun::Man { folder } => man(&folder, output),
        Noun::Completion { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Args::command(), api::brand::NAME, &mut script);
            output.line(String::from_utf8_lossy(&script).trim_end())
        }
    }
}

/// A page of the manual for each command.
fn man(folder: &Path, output: &mut Output) -> Result<(), Failure> {
    fs::create_dir_all(folder).map_err(Failure::file(folder))?;
    clap_mangen::generate_to(Args::command(), folder).map_err(Failure::file(folder))?;
    let count = fs::read_dir(folder).map_err(Failure::file(folder))?.count();
    let sentence = format!("{count} pages are in {}; `man -M` wants them in a folder man1.", folder.display());
    output.done(&sentence, serde_json::json!({"folder": folder, "pages": count}))
}

/// The content of a file, or of standard input for `-`.
fn read_text(path: &Path) -> Result<String, Failure> {
    let mut text = String::new();
    let read = if path == Path::new("-") {
        io::stdin().lock().take(FILE_BYTES_MAX).read_to_string(&mut text)
    } else {
        fs::File::open(path).and_then(|file| file.take(FILE_BYTES_MAX).read_to_string(&mut text))
    };
    read.map(|_| text).map_err(Failure::file(path))
}
