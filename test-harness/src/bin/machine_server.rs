//! A stand-in for the machine server: keeps the contract of docs/machine-server.md and misbehaves on demand.
//!
//! Owns nothing but its own behaviour: when it is ready, what it answers, what it prints, how it ends. Standard library
//! only, so that starting it costs next to nothing. What it does is told by knobs (see [`KNOBS`]), each of which can be
//! baked into the executable (`test_harness::real::stand_in`), set by an environment variable, given as an option, or
//! turned while it runs (`POST /behave/KNOB/VALUE`); later wins.

use std::{
    collections::BTreeMap,
    env, fs,
    io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _},
    net::{TcpListener, TcpStream},
    os::unix::process::CommandExt as _,
    process::{Command, ExitCode, Stdio},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// What an executable with baked in knobs ends with. A file of its own, so that this program need not be linked with the
/// harness: it stays small.
const TRAILER_END: &str = include_str!("../real/stand_in.trailer");

/// Name, meaning. Milliseconds are whole numbers, switches are `true` or anything else.
const KNOBS: [(&str, &str); 18] = [
    ("version", "what --version prints"),
    ("listen", "address of its status pages; default is the one the agent expects"),
    ("ready-after-ms", "serves this long after its start"),
    ("never-ready", "never serves"),
    ("says-serving", "false: does not print where it serves, so that its status URL has to tell"),
    ("crash-after-ms", "ends by itself this long after its start"),
    ("crash-with", "how: an exit code, or a signal by name (SEGV)"),
    ("refuse-restart", "says that it may not be restarted"),
    ("handles-needs-restart", "says that it asks the fleet server itself"),
    ("answer", "to /restart_status instead: a status like 404 or 500, or garbage"),
    ("silent", "takes questions and never answers"),
    ("ignore-sigterm", "does not hear SIGTERM"),
    ("children", "so many processes that outlive it"),
    ("flood-lines", "prints so many lines at once"),
    ("long-line-bytes", "prints one line of this length"),
    ("hog-megabytes", "takes so much memory at once, and keeps it"),
    ("chatter-ms", "prints a numbered line this often"),
    ("diary", "notes each start in this file: version and process"),
];
/// Where the agent looks first, unless it says otherwise.
const USUAL_PLACE: &str = "127.0.0.1:8081";
/// How long an environment variable of the agent's brand may be called: `…_SERVER_STATUS_URL`.
const STATUS_URL: &str = "_SERVER_STATUS_URL";
/// Requests are short; the rest is not read.
const REQUEST_BYTES_MAX: u64 = 8 * 1024;
/// Set for the process that ignores SIGTERM, so that it does not try to become it again.
const DEAF: &str = "STAND_IN_IS_DEAF";

type Knobs = Arc<Mutex<BTreeMap<String, String>>>;

fn main() -> ExitCode {
    let options: Vec<String> = env::args().skip(1).collect();
    if options.first().is_some_and(|option| option == "--linger") {
        loop {
            thread::sleep(Duration::from_secs(3600));
        }
    }
    let knobs = match knobs(&options) {
        Ok(knobs) => knobs,
        Err(unknown) => {
            eprintln!("stand-in-server: {unknown}");
            for (name, meaning) in KNOBS {
                eprintln!("  --{name} VALUE  {meaning}");
            }
            return ExitCode::from(2);
        }
    };
    let version = text(&knobs, "version").unwrap_or_else(|| "0.0.0-plain".into());
    if options.iter().any(|option| option == "--version") {
        println!("{version}");
        return ExitCode::SUCCESS;
    }
    if is(&knobs, "ignore-sigterm") && env::var_os(DEAF).is_none() {
        return become_deaf(&options);
    }
    log("INFO", "stand_in", line!(), &format!("version {version} runs as process {}", std::process::id()));
    if let Some(diary) = text(&knobs, "diary") {
        note_in(&diary, &format!("{version} {}\n", std::process::id()));
    }
    for _ in 0..number(&knobs, "children").unwrap_or(0) {
        linger();
    }
    if let Some(after) = number(&knobs, "crash-after-ms") {
        let knobs = Arc::clone(&knobs);
        thread::spawn(move || {
            thread::sleep(Duration::from_millis(after));
            crash(&text(&knobs, "crash-with").unwrap_or_else(|| "1".into()));
        });
    }
    noise(&knobs);
    hoard(&knobs);
    if let Some(every) = number(&knobs, "chatter-ms") {
        thread::spawn(move || {
            for count in 1_u64.. {
                thread::sleep(Duration::from_millis(every));
                log("INFO", "stand_in.chatter", line!(), &format!("line {count}"));
            }
        });
    }
    if is(&knobs, "never-ready") {
        log("WARN", "stand_in", line!(), "I was told never to be ready");
        loop {
            thread::sleep(Duration::from_secs(3600));
        }
    }
    thread::sleep(Duration::from_millis(number(&knobs, "ready-after-ms").unwrap_or(0)));
    match listener(&knobs) {
        Ok(listener) => serve(&listener, &knobs, &version),
        Err(error) => {
            log("ERROR", "stand_in.web", line!(), &format!("nowhere to listen: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Baked in, then environment, then options.
fn knobs(options: &[String]) -> Result<Knobs, String> {
    let mut knobs = BTreeMap::new();
    for line in trailer().lines() {
        if let Some((name, value)) = line.split_once('=') {
            knobs.insert(name.to_owned(), value.to_owned());
        }
    }
    for (name, _) in KNOBS {
        let variable = format!("STAND_IN_{}", name.replace('-', "_").to_uppercase());
        if let Ok(value) = env::var(variable) {
            knobs.insert(name.to_owned(), value);
        }
    }
    let mut options = options.iter();
    while let Some(option) = options.next() {
        match option.as_str() {
            "--version" => {}
            // Given by the agent: the credentials file.
            "-config" => drop(options.next()),
            other => {
                let name = other.strip_prefix("--").filter(|name| KNOBS.iter().any(|(known, _)| known == name));
                let (Some(name), Some(value)) = (name, options.next()) else { return Err(format!("what is {other}?")) };
                knobs.insert(name.to_owned(), value.clone());
            }
        }
    }
    Ok(Arc::new(Mutex::new(knobs)))
}

/// What was appended to this executable: lines `knob=value`, their length as 8 hexadecimal digits, the end mark.
fn trailer() -> String {
    let read = || -> io::Result<String> {
        let mut file = fs::File::open(env::current_exe()?)?;
        let mut end = vec![0; 8 + TRAILER_END.len()];
        file.seek(SeekFrom::End(-i64::try_from(end.len()).unwrap_or(0)))?;
        file.read_exact(&mut end)?;
        let (length, mark) = end.split_at(8);
        let length = std::str::from_utf8(length).ok().and_then(|digits| i64::from_str_radix(digits, 16).ok());
        let Some(length) = length.filter(|_| mark == TRAILER_END.as_bytes()) else { return Ok(String::new()) };
        file.seek(SeekFrom::End(-(length + i64::try_from(end.len()).unwrap_or(0))))?;
        let mut lines = String::new();
        file.take(u64::try_from(length).unwrap_or(0)).read_to_string(&mut lines)?;
        Ok(lines)
    };
    read().unwrap_or_default()
}

fn text(knobs: &Knobs, name: &str) -> Option<String> {
    knobs.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
}

fn is(knobs: &Knobs, name: &str) -> bool {
    text(knobs, name).is_some_and(|value| value == "true" || value == "1")
}

fn number(knobs: &Knobs, name: &str) -> Option<u64> {
    text(knobs, name)?.parse().ok()
}

/// The shell ignores the signal and becomes this program again: what is ignored stays ignored, and so does the number
/// of the process. The standard library has no words for signals.
fn become_deaf(options: &[String]) -> ExitCode {
    let Ok(this) = env::current_exe() else { return ExitCode::FAILURE };
    let shell = Command::new("/bin/sh")
        .args(["-c", "trap '' TERM; exec \"$0\" \"$@\""])
        .arg(this)
        .args(options)
        .env(DEAF, "1")
        .exec();
    eprintln!("stand-in-server: could not ignore SIGTERM: {shell}");
    ExitCode::FAILURE
}

fn linger() {
    let child = env::current_exe().and_then(|this| Command::new(this).arg("--linger").stdin(Stdio::null()).spawn());
    match child {
        Ok(child) => log("INFO", "stand_in.children", line!(), &format!("child {} lingers", child.id())),
        Err(error) => log("ERROR", "stand_in.children", line!(), &format!("no child: {error}")),
    }
}

/// In one write, so that a kill leaves whole lines.
fn note_in(diary: &str, line: &str) {
    let noted =
        fs::File::options().create(true).append(true).open(diary).and_then(|mut file| file.write_all(line.as_bytes()));
    if let Err(error) = noted {
        log("ERROR", "stand_in", line!(), &format!("{diary}: {error}"));
    }
}

/// Ends at once, by code or by signal.
fn crash(how: &str) {
    if let Ok(code) = how.parse() {
        std::process::exit(code);
    }
    let shell = Command::new("/bin/sh").args(["-c", &format!("kill -{how} $$")]).exec();
    eprintln!("stand-in-server: could not end by {how}: {shell}");
    std::process::abort();
}

/// Each byte is written, so that it is really taken.
fn hoard(knobs: &Knobs) {
    if let Some(bytes) = number(knobs, "hog-megabytes").and_then(|many| usize::try_from(many << 20).ok()) {
        std::mem::forget(vec![1_u8; bytes]);
    }
}

fn noise(knobs: &Knobs) {
    let mut out = io::stdout().lock();
    for count in 1..=number(knobs, "flood-lines").unwrap_or(0) {
        let _ = writeln!(out, "{}", head("INFO", "stand_in.flood", line!(), &format!("flood {count}")));
    }
    if let Some(length) = number(knobs, "long-line-bytes") {
        let text = "0123456789".repeat(usize::try_from(length / 10).unwrap_or(0));
        let _ = writeln!(out, "{}", head("WARN", "stand_in.long", line!(), &text));
    }
    let _ = out.flush();
}

/// Where it was told to, or where it is expected; if somebody is there already, anywhere.
fn listener(knobs: &Knobs) -> io::Result<TcpListener> {
    let expected =
        env::vars().find(|(name, _)| name.ends_with(STATUS_URL)).and_then(|(_, url)| place(&url).map(str::to_owned));
    if let Some(told) = text(knobs, "listen") {
        return TcpListener::bind(told);
    }
    let wanted = expected.as_deref().unwrap_or(USUAL_PLACE);
    TcpListener::bind(wanted).or_else(|error| {
        log("WARN", "stand_in.web", line!(), &format!("{wanted} cannot be had ({error}): listening elsewhere"));
        TcpListener::bind("127.0.0.1:0")
    })
}

/// `host:port` of an address.
fn place(url: &str) -> Option<&str> {
    url.strip_prefix("http://")?.split('/').next()
}

fn serve(listener: &TcpListener, knobs: &Knobs, version: &str) -> ExitCode {
    let Ok(address) = listener.local_addr() else { return ExitCode::FAILURE };
    if text(knobs, "says-serving").is_none_or(|says| says != "false") {
        log("INFO", "stand_in.web", line!(), &format!("serving\t{{\"url\":\"http://{address}\"}}"));
    }
    for visitor in listener.incoming().flatten() {
        let (knobs, version) = (Arc::clone(knobs), version.to_owned());
        thread::spawn(move || answer(visitor, &knobs, &version));
    }
    ExitCode::SUCCESS
}

fn answer(visitor: TcpStream, knobs: &Knobs, version: &str) {
    let Ok(question) = visitor.try_clone() else { return };
    let mut question = BufReader::new(question.take(REQUEST_BYTES_MAX));
    let mut line = String::new();
    if question.read_line(&mut line).is_err() {
        return;
    }
    let mut words = line.split_whitespace();
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    // Read to the end of the head: an answer before that may be lost in a reset.
    let mut header = String::new();
    while question.read_line(&mut header).is_ok_and(|length| length > 2) {
        header.clear();
    }
    if is(knobs, "silent") && !path.starts_with("/behave/") {
        loop {
            thread::sleep(Duration::from_secs(3600));
        }
    }
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let (status, body) = match (method, parts.as_slice()) {
        ("GET", [""]) => (200, format!("stand-in machine server {version}\n")),
        ("GET", ["version"]) => (200, version.to_owned()),
        ("GET", ["pid"]) => (200, std::process::id().to_string()),
        ("GET", ["restart_status"]) => restart_status(knobs),
        ("GET", ["env", name]) => env::var(name).map_or_else(|_| (404, String::new()), |value| (200, value)),
        ("GET", ["child", "env", name]) => of_child(name),
        ("POST", ["behave", "crash", how]) => {
            say(&visitor, 200, "");
            crash(how);
            return;
        }
        ("POST", ["behave", "child"]) => {
            linger();
            (200, String::new())
        }
        ("POST", ["say", level, text]) => {
            log(level, "stand_in.said", line!(), text);
            (200, String::new())
        }
        ("POST", ["behave", name, value]) if KNOBS.iter().any(|(known, _)| known == name) => {
            knobs.lock().unwrap_or_else(PoisonError::into_inner).insert((*name).to_owned(), (*value).to_owned());
            if name.starts_with("flood") || name.starts_with("long") {
                noise(knobs);
            }
            if name.starts_with("hog") {
                hoard(knobs);
            }
            (200, String::new())
        }
        _ => (404, "no such page\n".to_owned()),
    };
    say(&visitor, status, &body);
}

fn restart_status(knobs: &Knobs) -> (u16, String) {
    match text(knobs, "answer").as_deref().unwrap_or_default() {
        "garbage" => (200, "<html>{\"restart_allowed\": maybe".to_owned()),
        "" => {
            let (allowed, not_handled) = (!is(knobs, "refuse-restart"), !is(knobs, "handles-needs-restart"));
            (200, format!(r#"{{"restart_allowed": {allowed}, "does_not_handle_needs_restart": {not_handled}}}"#))
        }
        status => (status.parse().unwrap_or(500), String::new()),
    }
}

/// What a process started by this one sees of its environment.
fn of_child(name: &str) -> (u16, String) {
    match Command::new("printenv").arg(name).stdin(Stdio::null()).output() {
        Ok(output) if output.status.success() => {
            (200, String::from_utf8_lossy(&output.stdout).trim_end_matches('\n').to_owned())
        }
        _ => (404, String::new()),
    }
}

fn say(mut visitor: &TcpStream, status: u16, body: &str) {
    let length = body.len();
    let _ =
        write!(visitor, "HTTP/1.1 {status} Stand-In\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
    let _ = visitor.flush();
}

fn log(level: &str, logger: &str, line: u32, text: &str) {
    println!("{}", head(level, logger, line, text));
}

/// One line as docs/machine-server.md has it.
fn head(level: &str, logger: &str, line: u32, text: &str) -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, seconds) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second, millis) = (seconds / 3600, seconds / 60 % 60, seconds % 60, since.subsec_millis());
    format!(
        "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z\t{level}\t{logger}\tmachine_server.rs:{line}\t{text}"
    )
}

/// Howard Hinnant's `civil_from_days`, for days after 1970.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    (year, month, day_of_year - (153 * shifted_month + 2) / 5 + 1)
}
