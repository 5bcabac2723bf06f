//! The command line, declared once: parsing, help and completions come from here.

use std::path::PathBuf;

use clap::{Args as Group, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use crate::commands::{
    app, audit, call, fragment, key, location, login, machine, member, metadata, module, organization, part, registry,
    role,
};

/// Commands for machines, their parts and what runs on them.
#[derive(Parser)]
#[command(
    name = api::brand::NAME,
    version,
    about = "Manages machines through a fleet server",
    after_help = "Exit codes: 0 done; 1 it failed, and the message says why; 2 the command line was wrong.",
    propagate_version = false
)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) noun: Noun,
}

/// What every command understands.
#[derive(Group)]
pub(crate) struct Global {
    /// Profile to use, as made by `login`; without, the environment counts, then the profile last logged in to
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) profile: Option<String>,
    /// For people, or for programs
    #[arg(long, short, global = true, value_enum, default_value_t = Format::Table)]
    pub(crate) output: Format,
    /// Organization by name or id, where the key sees more than one
    #[arg(long, global = true, value_name = "ORGANIZATION")]
    pub(crate) organization: Option<String>,
}

/// How results are written.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    Table,
    Json,
}

#[derive(Subcommand)]
pub(crate) enum Noun {
    /// Store a key for a server, and make it the one that is used
    Login(login::Login),
    /// Forget a stored key
    Logout,
    /// Organizations
    #[command(subcommand, visible_alias = "org")]
    Organization(organization::Verb),
    /// Locations: where machines are
    #[command(subcommand)]
    Location(location::Verb),
    /// Machines
    #[command(subcommand)]
    Machine(machine::Verb),
    /// Parts of machines: configuration, restart, logs
    #[command(subcommand)]
    Part(part::Verb),
    /// Fragments: configuration that machines share
    #[command(subcommand)]
    Fragment(fragment::Verb),
    /// Modules: programs that machines run
    #[command(subcommand)]
    Module(module::Verb),
    /// Registry items of every kind: modules, models, training scripts, archives
    #[command(subcommand)]
    Registry(registry::Verb),
    /// Web applications that modules bring
    #[command(subcommand)]
    App(app::Verb),
    /// API keys
    #[command(subcommand)]
    Key(key::Verb),
    /// People of an organization
    #[command(subcommand)]
    Member(member::Verb),
    /// People who are asked to join an organization
    #[command(subcommand)]
    Invite(member::InviteVerb),
    /// Who may do what with which resource
    #[command(subcommand)]
    Role(role::Verb),
    /// Free-form objects kept with organizations, locations, machines and parts
    #[command(subcommand)]
    Metadata(metadata::Verb),
    /// Any operation by its name, as JSON
    Call(call::Call),
    /// What was changed, when and by whom
    #[command(subcommand)]
    Audit(audit::Verb),
    /// Device configuration in files
    #[command(subcommand)]
    Config(ConfigVerb),
    /// Print completions for a shell
    #[command(alias = "completions")]
    Completion {
        /// The shell
        shell: Shell,
    },
    /// Write a page of the manual for each command
    Man {
        /// Where to; made if it is not there
        folder: PathBuf,
    },
}

#[derive(Subcommand)]
pub(crate) enum ConfigVerb {
    /// Say what a device would say to a configuration, without a server
    Check {
        /// JSON file; - reads standard input
        file: PathBuf,
        /// Read it as a manufacturer's defaults file, which may set more
        #[arg(long)]
        defaults: bool,
    },
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    /// clap notices contradictions between arguments only when a command is used.
    #[test]
    fn every_command_is_consistent() {
        super::Args::command().debug_assert();
    }
}
