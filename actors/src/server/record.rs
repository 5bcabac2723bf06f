//! What the next agent must know to find the running machine server again, and to count on.
//!
//! A few lines of text with a checksum. Written after a start, never before: the record of a process that was not
//! started would be a lie, and nothing may lie between a death and the next start. For an agent that does not live to
//! write it, the machine server carries a [`Note`] that says the same.

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
};

use board::{
    Wall,
    files::{Access, FileError, Files},
    process::ProcessId,
};

use super::{Program, launch::Fnv, readiness::URL_BYTES_MAX};

/// Longest version that is remembered, in bytes.
const VERSION_BYTES_MAX: usize = 128;
/// Longest path that is remembered, in bytes.
const PATH_BYTES_MAX: usize = 512;
/// Largest record, in bytes: the texts above, two addresses, and a dozen numbers.
const RECORD_BYTES_MAX: usize = VERSION_BYTES_MAX + PATH_BYTES_MAX + 2 * URL_BYTES_MAX + 512;
const HEAD: &str = "machine-server 1 ";

/// The machine server as the last agent knew it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// The process, if one was running.
    pub running: Option<Recorded>,
    /// What ran last.
    pub program: Option<Program>,
    /// Processes that were started. Tells a start that is not in the record from what earlier ones left behind.
    pub starts: u64,
    /// See [`super::Report::crashes`].
    pub crashes: u64,
    /// See [`super::Report::crashes_of_program`].
    pub crashes_of_program: u64,
    /// See [`super::Report::operator_restarts`].
    pub operator_restarts: u64,
    /// Since when a restart has waited for a maintenance window that is shut.
    pub shut_since: Option<Wall>,
}

/// A process that was running.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// Its name.
    pub id: ProcessId,
    /// Fingerprint of the boot it belongs to: numbers and start times begin anew with each.
    pub boot: u64,
    /// When it was started.
    pub started_at: Wall,
    /// When it was ready.
    pub ready_at: Option<Wall>,
    /// Fingerprint of its configured environment.
    pub environment: u64,
    /// Fingerprint of the identity that it was started with; 0 where nobody knows.
    pub identity: u64,
    /// Where it said it serves.
    pub urls: Vec<String>,
}

/// What the record will say after a start, except for the process's own name. Handed to the process in its environment;
/// read only when no record names a process that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// What is started.
    pub program: Program,
    /// When.
    pub started_at: Wall,
    /// Fingerprint of its configured environment.
    pub environment: u64,
    /// See [`Record::starts`].
    pub starts: u64,
    /// See [`super::Report::crashes`].
    pub crashes: u64,
    /// See [`super::Report::crashes_of_program`].
    pub crashes_of_program: u64,
    /// See [`super::Report::operator_restarts`].
    pub operator_restarts: u64,
    /// See [`Recorded::identity`].
    pub identity: u64,
}

/// First field of a note.
const NOTE: &str = "1";

impl Note {
    /// One line, without anything that is secret.
    #[must_use]
    pub fn encode(&self) -> String {
        let Note { program, started_at, environment, starts, crashes, crashes_of_program, operator_restarts, identity } =
            self;
        let (started_at, path) = (started_at.as_millis(), program.path.to_string_lossy());
        // Nothing that would end a field, or could not be in an environment at all.
        let [version, path] = [&*program.version, &*path].map(|text| text.replace(char::is_control, " "));
        format!(
            "{NOTE}\t{started_at}\t{environment}\t{starts}\t{crashes}\t{crashes_of_program}\t{operator_restarts}\t{version}\t{path}\t{identity}"
        )
    }

    /// `None` when it is none of ours.
    #[must_use]
    pub fn decode(note: &str) -> Option<Note> {
        let mut fields = note.split('\t');
        (fields.next()? == NOTE).then_some(())?;
        let started_at = Wall::from_millis(fields.next()?.parse().ok()?);
        let mut number = || fields.next()?.parse().ok();
        let [environment, starts, crashes, crashes_of_program, operator_restarts] =
            [number()?, number()?, number()?, number()?, number()?];
        let program = Program { version: fields.next()?.to_owned(), path: PathBuf::from(fields.next()?) };
        let identity = fields.next().and_then(|field| field.parse().ok()).unwrap_or_default();
        Some(Note {
            program,
            started_at,
            environment,
            starts,
            crashes,
            crashes_of_program,
            operator_restarts,
            identity,
        })
    }

    /// The record that was not written.
    #[must_use]
    pub fn record(self, id: ProcessId, boot: u64) -> Record {
        let Note { program, started_at, environment, starts, crashes, crashes_of_program, operator_restarts, identity } =
            self;
        let running = Recorded { id, boot, started_at, ready_at: None, environment, identity, urls: Vec::new() };
        Record {
            running: Some(running),
            program: Some(program),
            starts,
            crashes,
            crashes_of_program,
            operator_restarts,
            shut_since: None,
        }
    }
}

/// Fingerprint of a boot.
#[must_use]
pub fn boot(boot_id: &str) -> u64 {
    let mut hash = Fnv::new();
    hash.add(boot_id.as_bytes());
    hash.value()
}

/// Reads the record. A missing or broken one is an empty one: the machine server is then started, and counted from 0.
#[must_use]
pub fn load(files: &dyn Files, path: &Path) -> Record {
    match files.read(path, RECORD_BYTES_MAX) {
        Ok(None) => Record::default(),
        Ok(Some(bytes)) => Record::decode(&bytes).unwrap_or_else(|| {
            log::warn!("the record of the machine server in {} is damaged and not used", path.display());
            Record::default()
        }),
        Err(error) => {
            log::warn!("the record of the machine server is not used: {error}");
            Record::default()
        }
    }
}

/// Writes the record.
pub fn store(files: &dyn Files, path: &Path, record: &Record) -> Result<(), FileError> {
    files.write(path, &record.encode(), Access::Private)
}

impl Record {
    /// The bytes of the file.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut body = format!(
            "starts {}\ncrashes {}\ncrashes_of_program {}\noperator_restarts {}\n",
            self.starts, self.crashes, self.crashes_of_program, self.operator_restarts
        );
        // Writing into a String cannot fail. What is too long is not remembered: nothing is cut to mean another thing.
        if let Some(Program { version, path }) = &self.program
            && let Some(path) = path.to_str()
            && fits(version, VERSION_BYTES_MAX)
            && fits(path, PATH_BYTES_MAX)
        {
            let _ = writeln!(body, "version {version}\npath {path}");
        }
        if let Some(shut_since) = self.shut_since {
            let _ = writeln!(body, "shut_since {}", shut_since.as_millis());
        }
        if let Some(Recorded { id, boot, started_at, ready_at, environment, identity, urls }) = &self.running {
            let _ = writeln!(
                body,
                "pid {}\nstart_ticks {}\nboot {boot}\nenvironment {environment}",
                id.pid, id.start_ticks
            );
            let _ = writeln!(body, "identity {identity}\nstarted_at {}", started_at.as_millis());
            if let Some(ready_at) = ready_at {
                let _ = writeln!(body, "ready_at {}", ready_at.as_millis());
            }
            for url in urls.iter().filter(|url| fits(url, URL_BYTES_MAX)).take(2) {
                let _ = writeln!(body, "url {url}");
            }
        }
        let mut hash = Fnv::new();
        hash.add(body.as_bytes());
        format!("{HEAD}{:016x}\n{body}", hash.value()).into_bytes()
    }

    /// Reads the bytes of the file; `None` for anything else.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Record> {
        let (head, body) = std::str::from_utf8(bytes).ok()?.split_once('\n')?;
        let mut hash = Fnv::new();
        hash.add(body.as_bytes());
        (head == format!("{HEAD}{:016x}", hash.value())).then_some(())?;
        let values =
            |name: &'static str| body.lines().filter_map(move |line| line.strip_prefix(name)?.strip_prefix(' '));
        let text = |name| values(name).next();
        let number = |name| text(name)?.parse::<u64>().ok();
        let wall = |name| Some(Wall::from_millis(text(name)?.parse().ok()?));
        let running = || {
            Some(Recorded {
                id: ProcessId { pid: text("pid")?.parse().ok()?, start_ticks: number("start_ticks")? },
                boot: number("boot")?,
                started_at: wall("started_at")?,
                ready_at: wall("ready_at"),
                environment: number("environment")?,
                identity: number("identity").unwrap_or_default(),
                urls: values("url").map(str::to_owned).collect(),
            })
        };
        let program = || Some(Program { version: text("version")?.to_owned(), path: PathBuf::from(text("path")?) });
        Some(Record {
            running: running(),
            program: program(),
            starts: number("starts").unwrap_or(0),
            crashes: number("crashes")?,
            crashes_of_program: number("crashes_of_program")?,
            operator_restarts: number("operator_restarts")?,
            shut_since: wall("shut_since"),
        })
    }
}

fn fits(text: &str, limit: usize) -> bool {
    text.len() <= limit && !text.contains('\n')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> Record {
        Record {
            running: Some(Recorded {
                id: ProcessId { pid: 4242, start_ticks: 987_654_321 },
                boot: boot("b6f2c1de-0000-4000-8000-000000000000"),
                started_at: Wall::from_millis(1_700_000_000_123),
                ready_at: Some(Wall::from_millis(1_700_000_002_000)),
                environment: u64::MAX,
                identity: u64::MAX - 1,
                urls: vec!["https://a.b:8080".into(), "http://127.0.0.1:8080".into()],
            }),
            program: Some(Program { version: "1.2.0-dev".into(), path: "/opt/p/versions/with space/server".into() }),
            starts: 9,
            crashes: 7,
            crashes_of_program: 2,
            operator_restarts: 3,
            shut_since: None,
        }
    }

    #[test]
    fn records_read_back() {
        let not_ready = |record: &mut Record| {
            let running = record.running.as_mut().unwrap();
            (running.ready_at, running.urls) = (None, Vec::new());
        };
        let mut starting = full();
        not_ready(&mut starting);
        let shut = Record { shut_since: Some(Wall::from_millis(1_700_000_000_001)), ..full() };
        for record in [full(), starting, shut, Record { running: None, ..full() }, Record::default()] {
            let bytes = record.encode();
            assert!(bytes.len() <= RECORD_BYTES_MAX);
            assert_eq!(Record::decode(&bytes), Some(record));
        }
    }

    #[test]
    fn a_note_says_what_the_record_would_have_said() {
        let starting = Record {
            running: full().running.map(|running| Recorded { ready_at: None, urls: Vec::new(), ..running }),
            ..full()
        };
        let (running, program) = (starting.running.clone().unwrap(), starting.program.clone().unwrap());
        let note = Note {
            program,
            started_at: running.started_at,
            environment: running.environment,
            identity: running.identity,
            starts: 9,
            crashes: 7,
            crashes_of_program: 2,
            operator_restarts: 3,
        };
        let text = note.encode();
        assert_eq!(
            text,
            "1\t1700000000123\t18446744073709551615\t9\t7\t2\t3\t1.2.0-dev\t/opt/p/versions/with space/server\t18446744073709551614"
        );
        assert_eq!(Note::decode(&text), Some(note.clone()));
        assert_eq!(note.clone().record(running.id, running.boot), starting);
        for other in ["", "1", "1\t2\t3\t4\t5\t6\t7\tversion", &text.replace("1\t", "2\t"), &text.replace("\t9", "\tx")]
        {
            assert_eq!(Note::decode(other), None, "{other}");
        }
        let strange = Program { version: "a\tb\nc\0".into(), ..note.program.clone() };
        assert_eq!(Note::decode(&Note { program: strange, ..note }.encode()).unwrap().program.version, "a b c ");
    }

    #[test]
    fn any_damage_is_noticed() {
        let bytes = full().encode();
        for index in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[index] ^= 1;
            assert_eq!(Record::decode(&damaged), None, "byte {index}");
            assert_eq!(Record::decode(&bytes[..index]), None, "cut at {index}");
        }
    }

    #[test]
    fn what_is_too_long_is_not_remembered_and_not_cut() {
        let mut record = full();
        record.program = Some(Program { version: "v".into(), path: "/x".repeat(PATH_BYTES_MAX).into() });
        record.running.as_mut().unwrap().urls = vec![format!("http://{}", "x".repeat(URL_BYTES_MAX))];
        let bytes = record.encode();
        assert!(bytes.len() <= RECORD_BYTES_MAX);
        let back = Record::decode(&bytes).unwrap();
        assert_eq!(back.program, None);
        assert_eq!(back.running.unwrap().urls, Vec::<String>::new());
        assert_eq!(back.crashes, 7);
    }
}
