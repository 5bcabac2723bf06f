//! What is between `fork` and `exec` of a machine server: it joins its leaf, and takes on what is its own.
//!
//! The agent sets no limits for itself, so that what the machine server inherits is what the service's unit says. Only
//! the agent's own protection from the kernel's memory shortage is not handed on: the kernel shall end the machine
//! server before it ends the agent, which would start it again.

use std::{
    collections::BTreeMap,
    env,
    ffi::{CString, OsStr, OsString, c_char},
    fs, io,
    os::unix::{ffi::OsStrExt as _, process::CommandExt as _},
    process::Command,
};

use rustix::{
    fs::{Mode, OFlags},
    process::{Resource, Rlimit, getrlimit, setrlimit},
};

use super::cgroup::{Leaf, Unit, not_in_force};

/// A leaf for the machine server that is about to be started; without one it is started all the same.
pub(super) fn leaf(unit: &Unit) -> Option<Leaf> {
    match unit.fresh() {
        Ok(leaf) => Some(leaf),
        Err(error) => {
            log::warn!("daemons of the machine server will not be found: no control group could be made: {error}");
            None
        }
    }
}

/// Has these things done in the new process. None of them is worth not starting it.
#[expect(unsafe_code, reason = "the standard library leaves it to its callers what is safe between fork and exec")]
pub(super) fn prepare(command: &mut Command, leaf: Option<&Leaf>, open_files_max: Option<u32>) {
    let door = leaf.and_then(|leaf| leaf.door().ok());
    let is_protected = fs::read_to_string("/proc/self/oom_score_adj").is_ok_and(|score| score.starts_with('-'));
    if door.is_none() && open_files_max.is_none() && !is_protected {
        // Then the system may take its cheapest way to start a process.
        return;
    }
    // What no program can be given is refused by the standard library, in its words.
    let Some(image) = Image::of(command) else { return };
    let files = open_files_max.map(|files| {
        let hard = getrlimit(Resource::Nofile).maximum;
        let wanted = u64::from(files);
        let fallback = Rlimit { current: Some(hard.map_or(wanted, |hard| hard.min(wanted))), maximum: hard };
        (Rlimit { current: Some(wanted), maximum: Some(wanted) }, fallback)
    });
    let begin = move || -> io::Result<()> {
        if let Some(door) = &door {
            let _ = rustix::io::write(door, b"0");
        }
        if let Some((wanted, fallback)) = &files
            && setrlimit(Resource::Nofile, *wanted).is_err()
        {
            let _ = setrlimit(Resource::Nofile, *fallback);
        }
        if is_protected && let Ok(score) = rustix::fs::open(c"/proc/self/oom_score_adj", OFlags::WRONLY, Mode::empty())
        {
            let _ = rustix::io::write(&score, b"0");
        }
        Err(image.become_it())
    };
    // SAFETY: only system calls; nothing is allocated, locked or freed in the new process.
    unsafe { command.pre_exec(begin) };
}

/// Turns this process into that program, and returns only if it cannot. What the kernel cannot run is not handed to a
/// shell; signals are received as a program expects it.
#[expect(unsafe_code, reason = "nothing but execve happens in there, and this process is still its own")]
pub fn become_program(mut command: Command) -> io::Error {
    let Some(image) = Image::of(&command) else {
        return io::Error::new(io::ErrorKind::InvalidInput, "there is a zero byte in its arguments or its environment");
    };
    // SAFETY: there is no fork here, and so nothing that could be in an unknown state.
    unsafe { command.pre_exec(move || Err(image.become_it())) };
    command.exec()
}

/// A program with its arguments and environment, as the kernel wants them.
///
/// The standard library would end in `execvp`, which hands to a shell whatever the kernel does not know how to run: the
/// program of another machine, or a page that was fetched in its place.
struct Image {
    program: CString,
    arguments: Pointers,
    environment: Pointers,
}

/// Texts, and where each begins, with a null pointer behind the last.
struct Pointers {
    starts: Vec<*const c_char>,
    _texts: Vec<CString>,
}

// SAFETY: the pointers lead into texts that live as long and that nobody changes.
#[expect(unsafe_code, reason = "pointers are taken for shared by nobody; these are only read")]
unsafe impl Send for Pointers {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "as above")]
unsafe impl Sync for Pointers {}

impl Pointers {
    fn to(texts: impl Iterator<Item = Option<CString>>) -> Option<Pointers> {
        let texts: Vec<CString> = texts.collect::<Option<_>>()?;
        let starts = texts.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect();
        Some(Pointers { starts, _texts: texts })
    }
}

impl Image {
    /// `None` when a text has a zero byte in it.
    fn of(command: &Command) -> Option<Image> {
        let text = |text: &OsStr| CString::new(text.as_bytes()).ok();
        let arguments = [command.get_program()].into_iter().chain(command.get_args());
        let mut variables: BTreeMap<OsString, OsString> = env::vars_os().collect();
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => variables.insert(name.to_owned(), value.to_owned()),
                None => variables.remove(name),
            };
        }
        let variables = variables.into_iter().map(|(mut name, value)| {
            name.push("=");
            name.push(value);
            text(&name)
        });
        Some(Image {
            program: text(command.get_program())?,
            arguments: Pointers::to(arguments.map(text))?,
            environment: Pointers::to(variables)?,
        })
    }

    /// Returns only when it could not.
    #[expect(unsafe_code, reason = "the standard library has no plain execve, and rustix none that is meant for use")]
    fn become_it(&self) -> io::Error {
        let Image { program, arguments, environment } = self;
        // SAFETY: the texts end with a zero byte and the lists with a null pointer, and both outlive the call.
        unsafe { libc::execve(program.as_ptr(), arguments.starts.as_ptr(), environment.starts.as_ptr()) };
        io::Error::last_os_error()
    }
}

/// Why this many open files cannot be allowed, in a sentence, if they cannot.
pub(super) fn open_files_trouble(wanted: u32) -> Option<String> {
    let wanted = u64::from(wanted);
    let most = fs::read_to_string("/proc/sys/fs/nr_open").ok().and_then(|most| most.trim().parse().ok());
    let allowed = if rustix::process::geteuid().is_root() { most } else { getrlimit(Resource::Nofile).maximum };
    let allowed = allowed.filter(|allowed| *allowed < wanted)?;
    Some(not_in_force("open_files_max", &format!("this system allows the agent {allowed} at most")))
}
