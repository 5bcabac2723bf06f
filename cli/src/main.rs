//! `platform`: the command line for people and scripts.
//!
//! `noun verb`, tables for people, `--output json` for scripts. Exit codes: 0 done, 1 it failed and the message says what
//! to do, 2 the command line itself was wrong. Speaks to the fleet server with the blocking client of `api`, so that
//! starting costs no runtime.

mod args;
mod commands;
mod configuration;
mod failure;
mod find;
mod output;
mod profiles;
mod session;
mod terminal;
mod when;

use std::process::ExitCode;

use clap::Parser;

use crate::{args::Args, failure::Failure, output::Output};

fn main() -> ExitCode {
    let args = Args::parse();
    let mut output = Output::to_stdout(args.global.output);
    match commands::run(args, &mut output).and_then(|()| output.finish()) {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever read our output has seen enough (`platform … | head`).
        Err(failure) if failure.is_closed_output() => ExitCode::SUCCESS,
        Err(failure) => {
            report(&failure);
            ExitCode::from(failure.exit_code())
        }
    }
}

fn report(failure: &Failure) {
    eprintln!("{}: {}", api::brand::NAME, output::plain(&failure.to_string()));
    if let Some(hint) = failure.hint() {
        eprintln!("{hint}");
    }
}
