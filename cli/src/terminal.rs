//! Asking a person at a terminal.

use std::io::{self, BufRead, IsTerminal, Write};

use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};

/// Whether somebody sits there who can be asked.
pub(crate) fn is_there() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Asks for a line of text.
pub(crate) fn ask(question: &str) -> io::Result<String> {
    eprint!("{question}: ");
    io::stderr().flush()?;
    let mut line = String::new();
    if io::stdin().lock().read_line(&mut line)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(line.trim().to_owned())
}

/// Asks for a text that is not shown while it is typed.
pub(crate) fn ask_hidden(question: &str) -> io::Result<String> {
    let stdin = io::stdin();
    let before = tcgetattr(&stdin)?;
    let mut hidden = before.clone();
    hidden.local_modes.remove(LocalModes::ECHO);
    tcsetattr(&stdin, OptionalActions::Flush, &hidden)?;
    let answer = ask(question);
    // Restored also when asking failed; a terminal without echo would be a bad farewell.
    tcsetattr(&stdin, OptionalActions::Flush, &before)?;
    eprintln!();
    answer
}
