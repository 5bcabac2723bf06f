//! A limit for this process that outlives `exec`: the kernel ends whatever it has become, by SIGALRM, unless that says in
//! time that it runs.
//!
//! Needs no service manager and no process that watches. Children do not inherit it, so it can only ever end the process
//! that set it.

#[cfg(test)]
use std::os::unix::process::ExitStatusExt as _;
use std::{io, time::Duration};

/// Has the kernel end this process after `limit`, whatever program it is by then; zero takes an earlier limit away.
/// A second call replaces the first.
#[expect(unsafe_code, reason = "rustix has neither interval timers nor dispositions; nothing but numbers is passed")]
pub fn set(limit: Duration) -> io::Result<()> {
    let none = libc::timeval { tv_sec: 0, tv_usec: 0 };
    let seconds = libc::time_t::try_from(limit.as_secs()).unwrap_or(libc::time_t::MAX);
    let value = libc::timeval { tv_sec: seconds, tv_usec: limit.subsec_micros().into() };
    let timer = libc::itimerval { it_interval: none, it_value: value };
    // SAFETY: the default disposition runs no code of this process, and the timer's value is read during the call only.
    let failed = unsafe {
        // Whoever started this process may have had the signal ignored, and that outlives `exec` too.
        libc::signal(libc::SIGALRM, libc::SIG_DFL) == libc::SIG_ERR
            || libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut()) != 0
    };
    if failed { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Set in a process of its own, as the limit is one of the whole process.
    const IN_CHILD: &str = "DEADLINE_TEST";

    #[test]
    fn it_ends_what_the_process_has_become_and_can_be_taken_away() {
        match std::env::var(IN_CHILD).as_deref() {
            Ok("kept") => {
                set(Duration::from_millis(50)).expect("set");
                let mut program = Command::new("/bin/sleep");
                program.arg("1000");
                panic!("{}", crate::process::become_program(program));
            }
            Ok(_) => {
                set(Duration::from_secs(1)).expect("set");
                set(Duration::ZERO).expect("taken away");
                let mut program = Command::new("/bin/sleep");
                program.arg("1.2");
                panic!("{}", crate::process::become_program(program));
            }
            Err(_) => {}
        }
        let run = |what: &str| {
            // A shell that ignores the signal, as some start scripts do.
            let mut command = Command::new("/bin/sh");
            command.args(["-c", "trap '' ALRM; exec \"$0\" \"$@\""]).arg(std::env::current_exe().expect("known"));
            let name = "deadline::tests::it_ends_what_the_process_has_become_and_can_be_taken_away";
            command.args(["--exact", name]).env(IN_CHILD, what);
            command.output().expect("it runs").status
        };
        assert_eq!(run("kept").signal(), Some(libc::SIGALRM));
        assert_eq!(run("taken away").code(), Some(0), "sleep ended by itself");
    }
}
