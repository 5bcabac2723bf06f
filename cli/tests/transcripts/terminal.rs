//! What somebody at a real terminal sees, and others do not.

use std::{
    ffi::OsStr,
    fs::File,
    io::{Read, Write},
    os::unix::ffi::OsStrExt,
    process::{Command, ExitStatus, Stdio},
};

use rustix::{
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{LocalModes, tcgetattr},
};

use super::*;

/// A terminal: what is written to it can be read by `person`, and the other way round.
struct Terminal {
    person: File,
    program: File,
}

impl Terminal {
    fn new() -> Self {
        let person = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&person).unwrap();
        unlockpt(&person).unwrap();
        let name = ptsname(&person, Vec::new()).unwrap();
        let program = File::options().read(true).write(true).open(OsStr::from_bytes(name.as_bytes())).unwrap();
        Self { person: person.into(), program }
    }

    fn side(&self) -> Stdio {
        self.program.try_clone().unwrap().into()
    }

    /// Runs a program whose screen this is, and types `answer` when it has asked `question`. Everything on the screen, and
    /// how the program ended.
    fn sit(mut self, mut command: Command, question: &str, answer: &str) -> (String, ExitStatus) {
        // A terminal that hides what is typed shows it again afterwards.
        let before = tcgetattr(&self.program).unwrap().local_modes;
        let mut child = command.spawn().unwrap();
        drop(command);
        let (mut screen, mut typed) = (Vec::new(), question.is_empty());
        let program = self.program;
        let watcher = std::thread::spawn(move || {
            let status = child.wait().unwrap();
            let after = tcgetattr(&program).unwrap().local_modes;
            // When the last one closes it, reading ends.
            drop(program);
            (status, after)
        });
        let mut buffer = [0; 4096];
        while let Ok(n @ 1..) = self.person.read(&mut buffer) {
            screen.extend_from_slice(&buffer[..n]);
            if !typed && String::from_utf8_lossy(&screen).contains(question) {
                self.person.write_all(answer.as_bytes()).unwrap();
                typed = true;
            }
        }
        let (status, after) = watcher.join().unwrap();
        assert!(before.contains(LocalModes::ECHO) && after.contains(LocalModes::ECHO), "it shows what is typed again");
        (String::from_utf8(screen).unwrap(), status)
    }
}

#[test]
fn an_upload_shows_how_far_it_is_to_who_looks() {
    let desk = Desk::new();
    assert_eq!(desk.run("module create camera").exit, 0);
    desk.file("module.tar.gz", &"x".repeat(20_000_000));
    let line = "module upload camera module.tar.gz --version 1.2.3 --platform any";
    let terminal = Terminal::new();
    let mut command = desk.command(line);
    let out = desk.home.path().join("out");
    command.stdin(Stdio::null()).stdout(File::create(&out).unwrap()).stderr(terminal.side());
    let (screen, status) = terminal.sit(command, "", "");
    assert!(status.success(), "{screen}");
    let said = fs::read_to_string(&out).unwrap();
    assert!(said.contains("is uploaded: 20000000 bytes") && !said.contains('#'), "nothing of it for a script: {said}");
    let drawings: Vec<&str> = screen.split('\r').filter(|drawing| drawing.contains('[')).collect();
    assert!(drawings.len() >= 2, "{screen:?}");
    assert!(drawings[0].starts_with("[-----") && drawings[0].contains(" of 20.0 MB"), "{screen:?}");
    let full = format!("[{}] 100 %  20.0 of 20.0 MB", "#".repeat(30));
    assert!(drawings.last().unwrap().starts_with(&full) && screen.ends_with('\n'), "{screen:?}");
    assert_eq!(screen.matches('\n').count(), 1, "on one line: {screen:?}");

    // What went wrong begins on a line of its own.
    desk.fleet.state().refused = Some(("UploadModuleFile", 6));
    let terminal = Terminal::new();
    let mut command = desk.command(line);
    command.stdin(Stdio::null()).stdout(terminal.side()).stderr(terminal.side());
    let (screen, status) = terminal.sit(command, "", "");
    assert_eq!(status.code(), Some(1), "{screen}");
    assert!(screen.contains("\nplatform: could not upload the file: "), "{screen:?}");
}

#[test]
fn a_key_is_not_shown_while_it_is_typed() {
    let desk = Desk::without_key();
    let terminal = Terminal::new();
    let mut command = desk.command(&format!("login --url {} --key-id {KEY_ID}", desk.fleet.server.url()));
    command.stdin(terminal.side()).stdout(terminal.side()).stderr(terminal.side());
    let (screen, status) = terminal.sit(command, "API key (not shown): ", "right\n");
    assert!(status.success(), "{screen}");
    assert!(screen.contains("Logged in to ") && !screen.contains("right"), "{screen:?}");
    assert_eq!(desk.run("machine list").exit, 0, "it was the right one");
}
