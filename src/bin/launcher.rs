//! The launcher as a program: starts the agent version that is to run, by becoming it.
//!
//! Thin on purpose: reads arguments and environment, asks whether another agent has the root folder, waits, says what
//! it does on standard error, and executes. What it decides is in `platform_agent::launcher`.

// What protects every version from itself must not end by itself.
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::string_slice, clippy::unreachable))]
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unwrap_used))]

#[path = "../note.rs"]
mod note;

use std::{
    env,
    ffi::{OsStr, OsString},
    fmt::Display,
    fs,
    io::{self, ErrorKind, Write as _},
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    thread,
    time::Duration,
};

use actors::update::slots::Slot;
use api::brand;
use platform_agent::{
    args, end_server,
    hand_over::VARIABLES,
    launcher::{
        Choice, Run, SAFE,
        answer::{self, Answer},
        disk::SystemDisk,
        start_limit, start_limit_variable,
    },
    lock::{self, Lock, LockError},
    logger, platform,
};

/// What the note says that this is.
const PROGRAM: &str = brand::LAUNCHER;
/// There is no version that can be started (EX_UNAVAILABLE of sysexits).
const NOTHING_THERE: u8 = 69;
/// Another agent has this root folder: try again later (EX_TEMPFAIL of sysexits).
const HELD: u8 = 75;

/// Before an end after which a service manager starts us again at once.
const END_PAUSE: Duration = Duration::from_secs(10);
/// Before a start that could not be counted: nothing else slows down one that is repeated for ever.
const UNCOUNTED_PAUSE: Duration = Duration::from_secs(2);
/// What keeps a program from being executed for a moment only is tried again this often, with a pause between.
const EXEC_TRIES: u32 = 3;
const EXEC_PAUSE: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    let mut arguments = env::args_os();
    let own_name = arguments.next().unwrap_or_default();
    let arguments: Vec<OsString> = arguments.collect();
    let is_agent = Path::new(&own_name).file_name() == Some(OsStr::new(brand::AGENT));
    if !is_agent && arguments.first().is_some_and(|first| first == "--version") {
        return said(&format!("{} {}", brand::LAUNCHER, note::version()));
    }
    if arguments.first().is_some_and(|first| first == args::RESTORE) {
        return restore(&own_name);
    }
    if arguments.first().is_some_and(|first| first == args::END_SERVER) {
        return end_server(&arguments);
    }
    let root = args::root(arguments.iter().cloned(), |name| env::var_os(name), platform::ordinary_user());
    let mut run = Run::new(&SystemDisk, &root, platform::boot());
    if is_agent {
        return as_agent(&run, &arguments);
    }
    if arguments.first().is_some_and(|first| first == "--explain") {
        return said(&explained(&run));
    }
    // `systemctl reload` while it waits, or while the agent that it becomes does not listen yet.
    platform::ignore_reload();
    let tell = Tell { journal: logger::is_journal() };
    // The kernel lets go of it when a version is executed, which takes it for itself.
    let _lock = match take(&root, &tell) {
        Ok(lock) => lock,
        Err(code) => return code,
    };
    let launcher = own_path(&own_name);
    let limit = start_limit(env::var_os(start_limit_variable()).as_deref());
    loop {
        let choice = match run.choose() {
            Ok(choice) => choice,
            Err(why) => {
                tell.error(format_args!("{why}. Install it again"));
                pause_before_end(&tell);
                return ExitCode::from(NOTHING_THERE);
            }
        };
        let program = run.program(choice.slot);
        choice.said.iter().for_each(|line| tell.warning(line));
        if !choice.wait.is_zero() {
            tell.warning(format_args!("it is started in {} s", choice.wait.as_secs()));
            thread::sleep(choice.wait);
        }
        let (counted, said) = run.count(&choice);
        said.iter().for_each(|line| tell.error(line));
        if !counted {
            thread::sleep(UNCOUNTED_PAUSE);
        }
        let starts = choice.starts.starts;
        let safe = if choice.safe { " with --safe" } else { "" };
        tell.info(format_args!("starts slot {}{safe}, start {starts} in a row", choice.slot.name()));
        if let Err(error) = platform::set_deadline(limit) {
            tell.warning(format_args!("a version that hangs before it is ready would not be ended: {error}"));
        }
        let error = become_agent(&program, &arguments, &choice, launcher.as_deref());
        // Pauses are not the version's.
        let _ = platform::set_deadline(Duration::ZERO);
        tell.error(format_args!("{} cannot be executed: {error}", program.display()));
        run.failed(choice.slot, error.to_string());
    }
}

/// What the service manager runs after the service has ended. Here and not in the agent: it must work with a broken one.
fn end_server(arguments: &[OsString]) -> ExitCode {
    let root = args::root(arguments.iter().cloned(), |name| env::var_os(name), platform::ordinary_user());
    match end_server::run(&root, env::var(end_server::SERVICE_RESULT).ok().as_deref()) {
        Ok(sentence) => said(&sentence),
        Err(error) => {
            eprintln!("{}: {error}", brand::LAUNCHER);
            ExitCode::from(HELD)
        }
    }
}

/// As the launcher that was installed before: takes the place of its successor if that does not work. Without it, a file
/// that the disk has spoilt would be the end of the only way to an agent.
fn restore(own_name: &OsStr) -> ExitCode {
    let tell = Tell { journal: logger::is_journal() };
    let Some(own) = own_path(own_name) else { return ExitCode::FAILURE };
    let name = own.file_name().and_then(OsStr::to_str).and_then(|name| name.strip_suffix(args::PREVIOUS));
    let Some(successor) = name.map(|name| own.with_file_name(name)) else {
        tell.error(format_args!("`{}` is for the launcher that is kept as NAME{}", args::RESTORE, args::PREVIOUS));
        return ExitCode::FAILURE;
    };
    let Answer::Broken(why) = answer::ask(&successor) else { return ExitCode::SUCCESS };
    let put = SystemDisk.copy_program(&own, &successor).or_else(|_| {
        // No room for a copy: then there is only one of it.
        fs::rename(&own, &successor)
    });
    match put {
        Ok(()) => tell.error(format_args!("{}: {why}. The one before takes its place", successor.display())),
        Err(error) => {
            tell.error(format_args!("{}: {why}; the one before cannot take its place: {error}", successor.display()));
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// Executes the version; comes back only if that fails.
fn become_agent(program: &Path, arguments: &[OsString], choice: &Choice, launcher: Option<&Path>) -> io::Error {
    let mut tries = 1;
    loop {
        let mut command = bare(program);
        command.args(choice.safe.then_some(SAFE)).args(arguments).env(brand::ENV_SLOT, choice.slot.name());
        command.envs(launcher.map(|launcher| (brand::ENV_LAUNCHER, launcher)));
        command.envs(choice.note.as_ref().map(|note| (brand::ENV_LAUNCH_NOTE, note)));
        let error = platform::become_program(command);
        let passes = matches!(
            error.kind(),
            ErrorKind::ExecutableFileBusy | ErrorKind::OutOfMemory | ErrorKind::WouldBlock | ErrorKind::Interrupted
        );
        if !passes || tries == EXEC_TRIES {
            return error;
        }
        tries += 1;
        thread::sleep(EXEC_PAUSE);
    }
}

/// As `platform-agent` in somebody's path: the version that would run, for its other commands. Nothing is counted.
fn as_agent(run: &Run<'_>, arguments: &[OsString]) -> ExitCode {
    let failed = |why: &dyn Display| {
        eprintln!("{}: {why}", brand::AGENT);
        ExitCode::from(NOTHING_THERE)
    };
    // Not the next start's choice: the agent that runs is most likely the one that the pointer names.
    let first = match (run.look().pointer, run.choose()) {
        (Ok(pointer), Ok(_)) => pointer.slot,
        (Err(_), Ok(choice)) => choice.slot,
        (_, Err(why)) => return failed(&why),
    };
    let mut error = None;
    for slot in [first, first.other()] {
        let program = run.program(slot);
        let mut command = bare(&program);
        command.args(arguments);
        let refused = platform::become_program(command);
        error.get_or_insert(format!("{}: {refused}", program.display()));
    }
    failed(&error.unwrap_or_default())
}

/// Without what an earlier launcher has said.
fn bare(program: &Path) -> Command {
    let mut command = Command::new(program);
    for name in VARIABLES {
        command.env_remove(name);
    }
    command
}

/// Takes the root folder until a version takes it. Only another agent is a reason not to go on.
fn take(root: &Path, tell: &Tell) -> Result<Option<Lock>, ExitCode> {
    match lock::take_soon(root) {
        Ok(lock) => Ok(Some(lock)),
        Err(error @ LockError::Held { .. }) => {
            tell.error(error);
            pause_before_end(tell);
            Err(ExitCode::from(HELD))
        }
        Err(error) => {
            tell.warning(error);
            Ok(None)
        }
    }
}

/// For a person at a terminal there is nothing to slow down.
fn pause_before_end(tell: &Tell) {
    if tell.journal || env::var_os("NOTIFY_SOCKET").is_some() {
        thread::sleep(END_PAUSE);
    }
}

/// Where this program is, for the hand-over. As it was called if that says it: the file may have been replaced.
fn own_path(own_name: &OsStr) -> Option<PathBuf> {
    let called = Path::new(own_name);
    if called.components().count() > 1 { std::path::absolute(called).ok() } else { env::current_exe().ok() }
}

/// What would be started, and why.
fn explained(run: &Run<'_>) -> String {
    let seen = run.look();
    let mut lines = vec![match &seen.pointer {
        Ok(pointer) => format!("pointer: slot {pointer}"),
        Err(why) => format!("pointer: {why}"),
    }];
    for (slot, unusable) in Slot::ALL.into_iter().zip(&seen.unusable) {
        let state = unusable.as_deref().unwrap_or("can be started");
        lines.push(format!("slot {}: {state} ({})", slot.name(), run.program(slot).display()));
    }
    lines.push(match &seen.starts {
        Ok(Some(starts)) => format!(
            "starts in a row without a mark: {} of slot {}, {} more ended with the boot, round {}; mark of the last: {}",
            starts.starts,
            starts.slot().name(),
            starts.cuts,
            starts.rounds,
            starts.mark.map_or("none", |mark| mark.name()),
        ),
        Ok(None) => "starts: none yet".to_owned(),
        Err(why) => format!("starts: the count {why}"),
    });
    match run.choose() {
        Ok(choice) => {
            lines.extend(choice.said.iter().cloned());
            let safe = if choice.safe { " with --safe" } else { "" };
            let wait = choice.wait.as_secs();
            lines.push(format!("next start: slot {}{safe}, after {wait} s", choice.slot.name()));
        }
        Err(why) => lines.push(why),
    }
    lines.join("\n")
}

/// To standard output, where somebody may have stopped reading.
fn said(text: &str) -> ExitCode {
    match writeln!(io::stdout(), "{text}") {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Standard error: with priorities for the journal, and with the name for people.
struct Tell {
    journal: bool,
}

impl Tell {
    fn error(&self, text: impl Display) {
        self.line(3, text);
    }

    fn warning(&self, text: impl Display) {
        self.line(4, text);
    }

    fn info(&self, text: impl Display) {
        self.line(6, text);
    }

    fn line(&self, priority: u8, text: impl Display) {
        let line = if self.journal {
            format!("<{priority}>launcher: {text}\n")
        } else {
            format!("{}: {text}\n", brand::LAUNCHER)
        };
        // Nobody may be listening, and that is no reason to stop.
        let _ = io::stderr().write_all(line.as_bytes());
    }
}
