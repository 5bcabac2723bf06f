//! A person with a home folder and the command line, and a fleet server of their own.

#![allow(unreachable_pub, reason = "a module of a test, not of a library")]

use std::{
    collections::BTreeSet,
    fs,
    path::PathBuf,
    process::{Command, Stdio},
};

use serde_json::Value;
use tempfile::TempDir;
use test_harness::real::{
    fleet::{Fleet, Owner, init},
    programs::find,
};

/// What a command left behind.
pub struct Done {
    pub exit: i32,
    pub out: String,
    pub err: String,
}

pub struct Desk {
    pub fleet: Fleet,
    pub owner: Owner,
    pub environment: Vec<(String, String)>,
    /// Commands without commands of their own, as their pages of the manual are called: "part-config-get".
    pub commands: BTreeSet<String>,
    /// Those that were seen to show something to a person, and a document to a program.
    pub shown: BTreeSet<String>,
    pub documented: BTreeSet<String>,
    // Last, so that it outlives the processes.
    pub place: TempDir,
}

impl Desk {
    /// With the owner's key of an organization called Sandbox in the environment.
    pub fn new(database: Option<&str>, arguments: &[&str]) -> Desk {
        let place = tempfile::tempdir().unwrap();
        let data = place.path().join("fleet");
        let owner = init(&data, database).unwrap();
        let log = place.path().join("fleet.log");
        let fleet = Fleet::start_with(&data, "127.0.0.1:0", database, &log, arguments).unwrap();
        Desk::at(place, fleet, owner)
    }

    pub fn at(place: TempDir, fleet: Fleet, owner: Owner) -> Desk {
        let environment = [("URL", fleet.url.as_str()), ("API_KEY_ID", &owner.key_id), ("API_KEY", owner.key.expose())]
            .map(|(name, value)| (format!("PLATFORM_{name}"), value.to_owned()));
        let nothing = BTreeSet::new;
        let mut desk = Desk {
            environment: environment.to_vec(),
            fleet,
            owner,
            commands: nothing(),
            shown: nothing(),
            documented: nothing(),
            place,
        };
        desk.commands = desk.leaves();
        desk
    }

    /// Every page of the manual that is no other page's beginning.
    fn leaves(&self) -> BTreeSet<String> {
        assert_eq!(self.run("man pages").exit, 0);
        let pages = fs::read_dir(self.path("pages")).unwrap().map(|page| page.unwrap().file_name());
        let pages: BTreeSet<String> = pages
            .filter_map(|page| Some(page.to_str()?.strip_prefix("platform-")?.strip_suffix(".1")?.to_owned()))
            .collect();
        let above = |page: &str| pages.iter().any(|other| other.starts_with(&format!("{page}-")));
        pages.iter().filter(|page| !above(page)).cloned().collect()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    pub fn file(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    /// The command of a line; `␠` is a blank within a word.
    pub fn command(&self, line: &str) -> Command {
        let words = line.split(' ').filter(|word| !word.is_empty()).map(|word| word.replace('␠', " "));
        let mut command = Command::new(find("platform").unwrap());
        command.args(words).env_clear().envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.env("HOME", self.place.path()).env("PATH", "/usr/bin:/bin").env("TMPDIR", self.place.path());
        command.current_dir(self.place.path()).stdin(Stdio::null());
        command
    }

    pub fn run(&self, line: &str) -> Done {
        let output = self.command(line).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Done { exit: output.status.code().unwrap(), out: text(output.stdout), err: text(output.stderr) }
    }

    /// Its page of the manual.
    fn name(&self, line: &str) -> String {
        let words: Vec<&str> = line.split(' ').collect();
        let mut beginnings = (1..=words.len()).rev().map(|count| words[..count].join("-"));
        beginnings.find(|name| self.commands.contains(name)).unwrap_or_else(|| panic!("{line} is no command"))
    }

    #[track_caller]
    fn works(&self, line: &str) -> String {
        let done = self.run(line);
        assert_eq!((done.exit, done.err.as_str()), (0, ""), "{line}\n{}", done.out);
        done.out
    }

    /// The command works, says nothing beside, and shows these words to a person.
    #[track_caller]
    pub fn shows(&mut self, line: &str, words: &[&str]) -> String {
        let out = self.works(line);
        assert!(!out.starts_with(['{', '[']), "for a person: {line}\n{out}");
        for word in words {
            assert!(out.contains(word), "{line}: {word:?} in\n{out}");
        }
        self.shown.insert(self.name(line));
        out
    }

    /// It works and prints one document, in which these are to be found.
    #[track_caller]
    pub fn tells(&mut self, line: &str, facts: &[(&str, Value)]) -> Value {
        let line = format!("{line} -o json");
        let out = self.works(&line);
        let told: Value = serde_json::from_str(&out).unwrap_or_else(|_| panic!("no document: {line}\n{out}"));
        for (place, expected) in facts {
            assert_eq!(told.pointer(place), Some(expected), "{line}: {place} in\n{told:#}");
        }
        self.documented.insert(self.name(&line));
        told
    }

    /// What it prints is a document for everybody, or one on each line.
    #[track_caller]
    pub fn prints(&mut self, line: &str) -> Vec<Value> {
        let out = self.works(line);
        self.shown.insert(self.name(line));
        self.documented.insert(self.name(line));
        let documents = serde_json::Deserializer::from_str(&out).into_iter().collect::<Result<Vec<Value>, _>>();
        documents.unwrap_or_else(|why| panic!("{line}: {why}\n{out}"))
    }

    /// It fails with this exit code and these words.
    #[track_caller]
    pub fn fails(&self, line: &str, exit: i32, words: &[&str]) {
        let done = self.run(line);
        assert_eq!((done.exit, done.out.as_str()), (exit, ""), "{line}\n{}", done.err);
        for word in words {
            assert!(done.err.contains(word), "{line}: {word:?} in\n{}", done.err);
        }
    }
}

/// A text in a document.
#[track_caller]
pub fn text(document: &Value, place: &str) -> String {
    document.pointer(place).and_then(Value::as_str).unwrap_or_else(|| panic!("{place} in\n{document:#}")).to_owned()
}
