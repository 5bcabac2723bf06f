//! Boards with radios by hand. Started by `test-harness/lab/radio.sh`, which makes the image.

use std::{
    env, fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

use test_harness::{
    lab::radio::{
        air,
        machine::{MEMORY, Machine, Size, Source},
    },
    real::Trouble,
};

const HELP: &str = "\
radio.sh start NAME [--memory MB]   a board: under the user-mode kernel if there is one and LAB_MACHINE is not qemu, else from qemu's saved state
radio.sh stop NAME | list
radio.sh exec NAME COMMAND…         a command line in its bash; its exit code is this one's
radio.sh put NAME FILE PATH         a file of here onto the board
radio.sh get NAME PATH FILE         a file of the board
radio.sh cable NAME in|out          the cable of eth0
radio.sh power-cut NAME             it boots again; `exec NAME lab-setup` gives it its radios back
radio.sh forward NAME PORT          a port of loopback here that leads to PORT in the board's netns `home`; prints it
radio.sh bluetooth NAME [--extended] plugs in hci0 and opens the air that phones hear it through
radio.sh bluetooth NAME --of OTHER   plugs in hci0 in the air of another board, which is open
radio.sh phone NAME SCRIPT WORD…    a Python script here with Bumble and the module `phone`; SCRIPT may be phone.py itself
                                    (scan, list SERVICE, read, write); its first word is the board's folder
On the board: lab-bluetooth in|out (controllers), lab-ap (access points), lab-phone (a phone). docs/lab.md says more.";

/// How long a command may take.
const LIMIT: Duration = Duration::from_secs(3600);

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match run(&words) {
        Ok(code) => code,
        Err(trouble) => {
            eprintln!("{trouble}");
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[&str]) -> Result<ExitCode, Trouble> {
    let [_, image, rest @ ..] = words else { return Err(Trouble(format!("start it by radio.sh\n{HELP}"))) };
    let image = Path::new(image);
    let (kernel, rest) = match rest {
        ["--user-mode-kernel", kernel, rest @ ..] => (Some(PathBuf::from(kernel)), rest),
        rest => (None, rest),
    };
    match rest {
        ["start", name, options @ ..] => {
            let memory = match options {
                [] => MEMORY,
                ["--memory", number] => number.parse().map_err(|error| Trouble::of("--memory", error))?,
                _ => return Err(Trouble(HELP.to_owned())),
            };
            if Machine::find(&folder(name)).is_some() {
                return Err(Trouble(format!("{name} runs already")));
            }
            let _ = fs::remove_dir_all(folder(name));
            let begin = Instant::now();
            let source = Source { image: image.to_owned(), kernel };
            let machine = Machine::start(&source, &folder(name), Size::Megabytes(memory))?;
            println!("{name} is up after {:.1} s: {}", begin.elapsed().as_secs_f64(), machine.folder().display());
        }
        ["stop", name] => find(name)?.stop()?,
        ["list"] => {
            let boards = fs::read_dir(boards()).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
            for board in boards.filter(|board| Machine::find(board).is_some()) {
                println!("{}", board.file_name().unwrap_or_default().to_string_lossy());
            }
        }
        ["exec", name, command @ ..] if !command.is_empty() => {
            let mut out = std::io::stdout();
            let code = find(name)?.channel()?.execute(&command.join(" "), LIMIT, &mut out)?;
            let _ = out.flush();
            // A signal is told as shells do.
            let code = if code < 0 { 128 - code } else { code };
            return Ok(ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX)));
        }
        ["put", name, file, path] => find(name)?.channel()?.put(Path::new(file), path)?,
        ["get", name, path, file] => {
            let mut to = fs::File::create(file).map_err(|error| Trouble::of(file, error))?;
            find(name)?.channel()?.get(path, &mut to)?;
        }
        ["cable", name, way @ ("in" | "out")] => find(name)?.plug_cable(*way == "in")?,
        ["power-cut", name] => find(name)?.cut_power()?,
        ["forward", name, port] => {
            let port = port.parse().map_err(|error| Trouble::of("PORT", error))?;
            println!("{}", find(name)?.forward(port)?);
        }
        ["bluetooth", name, options @ ..] => {
            let machine = find(name)?;
            match options {
                ["--of", other] => air::open(image, &machine, &["--of", &find(other)?.folder().to_string_lossy()])?,
                options => air::open(image, &machine, options)?,
            }
            let code = machine.channel()?.execute("lab-bluetooth in 0", LIMIT, &mut std::io::stdout())?;
            return Ok(if code == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        ["phone", name, script, words @ ..] => {
            let mut python = air::python(image, &find(name)?, Path::new(script));
            let status = python.args(words).status().map_err(|error| Trouble::of("python3", error))?;
            return Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        _ => return Err(Trouble(HELP.to_owned())),
    }
    Ok(ExitCode::SUCCESS)
}

fn boards() -> PathBuf {
    env::var_os("LAB_BOARDS").map_or_else(|| env::temp_dir().join("platform-radio"), PathBuf::from)
}

fn folder(name: &str) -> PathBuf {
    boards().join(name)
}

fn find(name: &str) -> Result<Machine, Trouble> {
    Machine::find(&folder(name)).ok_or_else(|| Trouble(format!("no board called {name} runs: radio.sh start {name}")))
}
