//! Invariants of the source text that neither the compiler nor clippy can hold.
//!
//! Each test is one rule with its reason. A finding names the file and the line, and the rule says what to do instead.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Above this many lines a file of logic needs a reason.
const LINES_WANTED: usize = 400;

struct Source {
    /// Path below the root of the repository, with slashes.
    path: String,
    text: String,
}

impl Source {
    /// The part before the tests, which stand at the end of a file.
    fn code(&self) -> &str {
        self.text.find("#[cfg(test)]\nmod tests {").and_then(|end| self.text.get(..end)).unwrap_or(&self.text)
    }

    fn is_test(&self) -> bool {
        self.path.contains("/tests/") || self.path.ends_with("/tests.rs") || self.path.ends_with("_test.rs")
    }

    fn is_below(&self, folders: &[&str]) -> bool {
        folders.iter().any(|folder| self.path.starts_with(folder))
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("this crate lies in the repository").to_owned()
}

/// Every file with one of these endings.
fn files(endings: &[&str]) -> Vec<Source> {
    fn walk(folder: &Path, endings: &[&str], found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).expect("the repository can be read") {
            let path = entry.expect("the repository can be read").path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() {
                if !matches!(&*name, "target" | "sandbox" | ".git" | ".lab" | "node_modules") {
                    walk(&path, endings, found);
                }
            } else if endings.iter().any(|ending| name.ends_with(ending)) {
                found.push(path);
            }
        }
    }
    let (root, mut found) = (root(), Vec::new());
    walk(&root, endings, &mut found);
    found.sort();
    let source = |path: PathBuf| {
        let text = fs::read_to_string(&path).ok()?;
        let path = path.strip_prefix(&root).ok()?.to_string_lossy().replace('\\', "/");
        Some(Source { path, text })
    };
    found.into_iter().filter_map(source).collect()
}

fn rust() -> Vec<Source> {
    files(&[".rs"])
}

/// `file:line: text` of each line of the code that the rule is broken in.
fn findings<'a>(sources: impl IntoIterator<Item = &'a Source>, broken: impl Fn(&Source, &str) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    for source in sources {
        for (number, line) in source.code().lines().enumerate() {
            let is_comment = line.trim_start().starts_with("//");
            if !is_comment && broken(source, line) {
                found.push(format!("{}:{}: {}", source.path, number + 1, line.trim()));
            }
        }
    }
    found
}

#[track_caller]
fn none(rule: &str, found: &[String]) {
    assert!(found.is_empty(), "{rule}\n{}", found.join("\n"));
}

/// `word` as a whole word.
fn has_word(line: &str, word: &str) -> bool {
    line.split(|c: char| !c.is_alphanumeric() && c != '_').any(|found| found == word)
}

#[test]
fn every_file_opens_with_its_purpose() {
    let silent = rust().into_iter().filter(|source| !source.text.starts_with("//!")).map(|source| source.path);
    none("a reader who opens a file sees first what it owns: begin with `//!`", &silent.collect::<Vec<_>>());
}

#[test]
fn channels_are_created_in_the_wiring_only() {
    let makers = ["mailbox::mailbox(", "mailbox::outside(", "lossy::lossy(", "Latest::new(", "Latest::default("];
    let raw = ["async_channel::", "smol::channel::", "mpsc::channel(", "mpsc::sync_channel("];
    let found = findings(&rust(), |source, line| {
        let in_agent = source.is_below(&["src/", "actors/src/"]) && !source.is_test();
        let may = source.path == "src/wiring.rs" || source.is_below(&["actors/src/kit/"]);
        in_agent && !may && makers.iter().chain(&raw).any(|maker| line.contains(maker))
    });
    none(
        "who is joined to whom, and how much waits between them, is written in src/wiring.rs and nowhere else",
        &found,
    );
}

#[test]
fn no_channel_of_the_agent_is_unbounded() {
    let found = findings(&rust(), |source, line| {
        source.is_below(&["src/", "actors/", "board/"]) && !source.is_test() && line.contains("unbounded(")
    });
    none("every queue has a limit with a name and a reason", &found);
}

#[test]
fn machines_decide_and_do_not_wait() {
    // A back-off is a value; the rest of the kit is for shells.
    let waits = |line: &str| {
        has_word(line, "async") || line.contains(".await") || line.contains("Rc<dyn") || line.contains("&dyn")
    };
    let kit = |line: &str| line.contains("kit::") && !line.contains("kit::backoff");
    let ports = ["Clock", "Files", "Fetch", "Processes", "Service", "Host", "Cloud"];
    let found = findings(&rust(), |source, line| {
        let is_use = line.trim_start().starts_with("use ") || line.contains("board::");
        let names_port = is_use && ports.iter().any(|port| has_word(line, port));
        source.path.starts_with("actors/")
            && source.path.ends_with("/machine.rs")
            && (waits(line) || kit(line) || names_port)
    });
    none(
        "machine.rs decides: plain values in, plain values out. Waiting, channels and ports belong into actor.rs",
        &found,
    );
}

#[test]
fn the_agent_asks_the_operating_system_through_ports_only() {
    let banned = ["std::fs", "std::net", "std::thread", "std::process", "Instant::now", "SystemTime", "std::env"];
    let found = findings(&rust(), |source, line| {
        source.is_below(&["actors/src/"]) && !source.is_test() && banned.iter().any(|banned| line.contains(banned))
    });
    none("actors ask the board; otherwise they cannot live in simulated time", &found);
}

#[test]
fn the_launcher_does_not_know_what_time_it_is() {
    let own = ["src/launcher/", "src/bin/launcher.rs", "src/lock.rs", "src/end_server.rs", "board/linux/src/host.rs"];
    let clocks = ["SystemTime", "UNIX_EPOCH", ".wall(", ".modified()", ".created()", "Realtime", "CLOCK_REALTIME"];
    let found = findings(&rust(), |source, line| {
        source.is_below(&own) && !source.is_test() && clocks.iter().any(|clock| line.contains(clock))
    });
    none("a board without a battery boots in 1970: the launcher counts starts and time since boot", &found);
}

#[test]
fn only_the_store_speaks_sql() {
    let words = ["SELECT ", "INSERT INTO ", "DELETE FROM ", "CREATE TABLE ", "ON CONFLICT"];
    let found = findings(&rust(), |source, line| {
        let elsewhere =
            source.is_below(&["fleet/src/", "cli/", "src/", "actors/"]) && !source.is_below(&["fleet/src/store/"]);
        elsewhere && !source.is_test() && words.iter().any(|word| line.contains(&format!("\"{word}")))
    });
    none("SQL lives in fleet/src/store, where both engines are tested against it", &found);
}

#[test]
fn the_vendors_name_is_written_once() {
    let programs = ["agent", "server", "launcher"].map(|program| format!("\"platform-{program}"));
    let found = findings(&rust(), |source, line| {
        let owners = source.is_below(&["src/", "actors/src/", "board/"]) && !source.is_test();
        owners && programs.iter().any(|program| line.contains(program.as_str()))
    });
    none("a manufacturer builds with another name: use api::brand", &found);
}

#[test]
fn the_wire_alias_stays_at_the_edge() {
    let alias = ["vi", "am"].concat();
    let may = ["fleet/src/edge/", "fleet/tests/", "test-harness/", "docs/adr/", "Cargo.lock"];
    let found: Vec<_> = files(&[".rs", ".md", ".toml", ".proto", ".sh", ".yml"])
        .into_iter()
        .filter(|source| !source.is_below(&may) && source.text.to_lowercase().contains(&alias))
        .map(|source| source.path)
        .collect();
    none("the second prefix of the wire contract is known to the edge of the fleet server and to nobody else", &found);
}

#[test]
fn nothing_is_left_for_later() {
    let marks = ["TO", "FIX", "XX"].map(|begin| {
        begin.to_owned()
            + if begin == "TO" {
                "DO"
            } else if begin == "FIX" {
                "ME"
            } else {
                "X"
            }
    });
    let found: Vec<_> = files(&[".rs", ".md", ".proto", ".sh"])
        .into_iter()
        .flat_map(|source| {
            let lines = source.text.lines().enumerate();
            let marked = lines.filter(|(_, line)| marks.iter().any(|mark| has_word(line, mark)));
            marked.map(|(number, line)| format!("{}:{}: {}", source.path, number + 1, line.trim())).collect::<Vec<_>>()
        })
        .collect();
    none("what is not done is an issue, not a comment", &found);
}

/// Names a test for each rule of the management API.
const RULES: &str = "docs/rules.md";

#[test]
fn tests_that_documents_name_are_there() {
    let (sources, documents) = (rust(), files(&[".md"]));
    let is_test = |name: &str| sources.iter().any(|source| source.text.contains(&format!("fn {name}(")));
    let settings = documents.iter().find(|document| document.path == "docs/config.md").expect("it is generated");
    let is_setting = |name: &str| settings.text.contains(&format!("`{name}`"));
    let is_word = |word: &str| word.bytes().all(|byte| byte.is_ascii_lowercase() || matches!(byte, b'0'..=b'9' | b'_'));
    // What one page quotes are tests and nothing else; in the others a test is told by its length.
    let is_name = |path: &str, word: &str| is_word(word) && (path == RULES || word.matches('_').count() > 1);
    let found: Vec<_> = documents
        .iter()
        .filter(|document| {
            ["docs/provisioning.md", "docs/bluetooth.md", "docs/security.md", RULES].contains(&&*document.path)
        })
        .flat_map(|document| document.text.split('`').skip(1).step_by(2).map(|word| (&document.path, word)))
        .filter(|(path, word)| is_name(path, word) && !is_test(word) && !is_setting(word))
        .map(|(path, word)| format!("{path}: {word}"))
        .collect();
    none("a document that names a test which is gone proves nothing any more", &found);
}

#[test]
fn the_servers_tests_run_on_both_engines() {
    let sources = rust();
    let both = sources.iter().find(|source| source.path == "fleet/tests/on_postgres.rs").expect("it is there");
    let found: Vec<_> = sources
        .iter()
        .filter_map(|source| source.path.strip_prefix("fleet/tests/"))
        .filter(|name| !name.contains('/') && *name != "on_postgres.rs")
        .filter(|name| !both.text.contains(&format!("#[path = \"{name}\"]")))
        .map(str::to_owned)
        .collect();
    none("tests of the server that are not run on PostgreSQL", &found);
}

/// Printed, not refused: a table may be long, logic seldom has to be.
#[test]
fn long_files_are_seen() {
    for source in rust() {
        let lines = source.text.lines().count();
        if lines > LINES_WANTED && source.is_below(&["actors/", "src/", "fleet/src/services/"]) && !source.is_test() {
            println!("{}: {lines} lines", source.path);
        }
    }
}

/// What a program links, as Cargo resolves it.
fn linked(package: &str) -> String {
    let tree = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "--package", package, "--edges", "normal", "--prefix", "none"])
        .current_dir(root())
        .output()
        .expect("cargo can be run");
    assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
    String::from_utf8(tree.stdout).expect("names of crates are text")
}

#[test]
fn neither_agent_nor_command_line_links_a_second_runtime() {
    for package in ["platform-agent", "platform-cli"] {
        let tree = linked(package);
        for banned in ["tokio", "hyper", "openssl", "native-tls", "fleet"] {
            let found = tree.lines().any(|line| line.split(' ').next() == Some(banned));
            assert!(!found, "{package} links {banned}: see deny.toml for the reason");
        }
    }
}

#[test]
fn the_actors_link_no_operating_system() {
    let tree = linked("actors");
    for banned in ["board-linux", "board-portable", "ureq", "zbus"] {
        assert!(
            !tree.lines().any(|line| line.split(' ').next() == Some(banned)),
            "actors link {banned}: ask for a port"
        );
    }
}
