//! Unmodified client libraries against a server of its own process: the Python one, and the TypeScript one in Node and
//! in a browser. `make test` fetches them once (packaging/clients.sh) and names them in the environment.
//!
//! docs/clients.md lists which operation each library calls by which method. A method that a library has and nobody
//! calls fails here, as does an operation that the page does not list.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs,
    io::Write,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use fleet::operations::OPERATIONS;
use serde::Deserialize;
use tempfile::TempDir;

#[path = "world/engine.rs"]
mod engine;
#[path = "world/lines.rs"]
mod lines;

const PROGRAM: &str = env!("CARGO_BIN_EXE_platform-fleet");
const PAGE: &str = include_str!("../../docs/clients.md");

/// Of the Python library, and not of this API.
const OTHER_PYTHON: [&str; 17] = [
    "add_favorite_machine",
    "create_oauth_app_user",
    "delete_device_push_token",
    "delete_firebase_config",
    "deprecate_registry_item",
    "deprecate_registry_item_version",
    "get_device_push_tokens",
    "get_firebase_config",
    "get_rover_rental_robots",
    "list_favorite_machines",
    "list_robots_for_locations",
    "remove_favorite_machine",
    "set_config_property",
    "set_firebase_config",
    "undeprecate_registry_item",
    "undeprecate_registry_item_version",
    "upload_device_push_token",
];
/// Of the TypeScript library, and not of this API.
const OTHER_TYPESCRIPT: [&str; 1] = ["getRoverRentalRobots"];

/// What a library's program says at its end.
#[derive(Deserialize)]
struct Report {
    /// What it offers.
    methods: BTreeSet<String>,
    /// What of it was called.
    called: BTreeSet<String>,
    /// Operations that were seen on their way, where they can be.
    #[serde(default)]
    wire: BTreeSet<String>,
    /// Paths for which a browser asked first whether it may call.
    #[serde(default)]
    preflights: BTreeSet<String>,
    /// Operations that the server wrote down, by a key, from this machine.
    #[serde(skip)]
    written_down: BTreeSet<String>,
}

/// Whether an operation changes something: it is written down then, by whom and from where.
fn is_change(operation: &str) -> bool {
    let reads = ["Get", "List", "Check", "Tail"];
    !reads.iter().any(|word| operation.starts_with(word)) && operation != "LocationAuth"
}

/// A column of the page: the operation, and the library's method if it has one.
fn column(place: usize) -> Vec<(&'static str, Option<&'static str>)> {
    let rows = PAGE.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| `")?.split('|');
        let operation = cells.next()?.trim().trim_end_matches('`');
        let method = cells.nth(place)?.trim().trim_matches('`');
        Some((operation, (method != "–").then_some(method)))
    });
    rows.collect()
}

fn compare(report: &Report, place: usize, others: &[&str]) {
    let column = column(place);
    let listed: BTreeSet<&str> = column.iter().map(|(operation, _)| *operation).collect();
    let served = OPERATIONS.iter().filter_map(|operation| operation.path.strip_prefix("/platform.app.v1.AppService/"));
    assert_eq!(listed, served.collect(), "the operations that docs/clients.md lists");
    let wanted: BTreeSet<&str> = column.iter().filter_map(|(_, method)| *method).collect();
    let called = report.called.iter().map(String::as_str).collect();
    assert_eq!(wanted, called, "what docs/clients.md says, and what was called");
    let all: BTreeSet<&str> = wanted.into_iter().chain(others.iter().copied()).collect();
    let offered = report.methods.iter().map(String::as_str).collect();
    assert_eq!(all, offered, "what docs/clients.md says, and what the library offers");
    let changes = column.iter().filter(|(operation, method)| method.is_some() && is_change(operation));
    for (operation, _) in changes {
        assert!(report.written_down.contains(*operation), "{operation} is in no audit log: {:?}", report.written_down);
    }
}

/// Everything that the server wrote down of what a key did over loopback.
fn written_down(data: &Path) -> BTreeSet<String> {
    let output = Command::new(PROGRAM).arg("audit").args(place(data)).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = std::str::from_utf8(&output.stdout).unwrap().lines();
    let events = lines.map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let by_a_key =
        events.filter(|event| event["from"] == "127.0.0.1" && event["who"].as_str().unwrap().contains("api-key:"));
    by_a_key.map(|event| event["operation"].as_str().unwrap().to_owned()).collect()
}

/// The same, as it was seen outside the library.
fn compare_wire(report: &Report) {
    let column = column(1);
    let wanted: BTreeSet<&str> = column.iter().filter(|row| row.1.is_some()).map(|row| row.0).collect();
    assert_eq!(wanted, report.wire.iter().map(String::as_str).collect(), "what was seen on its way");
}

/// What a command says in one line of JSON.
fn said(data: &Path, arguments: &[&str]) -> serde_json::Value {
    let output = Command::new(PROGRAM).args(arguments).arg("--json").args(place(data)).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn place(data: &Path) -> Vec<OsString> {
    let mut arguments = vec!["--data".into(), data.into()];
    if let Some(url) = engine::url(data.parent().unwrap()) {
        arguments.extend(["--database".into(), url.into()]);
    }
    arguments
}

/// Killed when dropped.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// How a library reaches the server.
#[derive(Clone, Copy, PartialEq)]
enum By {
    Plain,
    /// With a certificate that only this program is told to believe.
    Tls,
}

/// Runs a library's program with a new server's address, an owner's key and organization, and the e-mail address of
/// somebody who is no member of it.
fn drive(mut program: Command, by: By) -> Report {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let owner = said(&data, &["init", "--org", "Acme", "--email", "owner@example.org"]);
    said(&data, &["user", "add", "--email", "ann@example.org", "--org", "Acme", "--role", "operator"]);
    said(&data, &["user", "add", "--email", "outsider@example.org"]);
    let mut serve = Command::new(PROGRAM);
    serve.args(["serve", "--json", "--listen", "127.0.0.1:0"]).args(place(&data));
    if by == By::Tls {
        let own = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
        let (certificate, key) = (folder.path().join("certificate.pem"), folder.path().join("key.pem"));
        fs::write(&certificate, own.cert.pem()).unwrap();
        fs::write(&key, own.signing_key.serialize_pem()).unwrap();
        serve.arg("--tls-cert").arg(&certificate).arg("--tls-key").arg(key);
        // What Python's own library reads, and what Node reads.
        program.env("SSL_CERT_FILE", &certificate).env("NODE_EXTRA_CA_CERTS", &certificate);
    }
    let mut server = serve.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let said = lines::Lines::of(server.stdout.take().unwrap());
    let _server = Server(server);
    let ready: serde_json::Value = serde_json::from_str(&said.next()).unwrap();
    let scheme = if by == By::Tls { "https://" } else { "http://" };
    assert!(ready["url"].as_str().unwrap().starts_with(scheme), "{ready}");
    let values = [&ready["url"], &owner["key_id"], &owner["key"], &owner["organization_id"]];
    program.args(values.map(|value| value.as_str().unwrap())).arg("outsider@example.org");
    let output = program.output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}\n{err}");
    let report: Report = serde_json::from_str(out.lines().last().unwrap()).unwrap();
    Report { written_down: written_down(&data), ..report }
}

/// What `make test` named. Where it could not be fetched, says so aloud.
fn named(variable: &str, what: &str) -> Option<PathBuf> {
    let found = std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from);
    if found.is_none() {
        // Not by print: what a passing test prints is shown to nobody. In one piece: others print too.
        let line = format!("SKIPPED {what}: {variable} is not set; packaging/clients.sh sets it\n");
        let _ = std::io::stderr().write_all(line.as_bytes());
    }
    found
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(name)
}

/// A program of the TypeScript library's, beside the library: Node looks for it there, not where it is started.
fn node(libraries: &Path, name: &str) -> (Command, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    for name in ["every_operation.mjs", "in_node.mjs", "in_browser.mjs"] {
        fs::copy(script("typescript").join(name), folder.path().join(name)).unwrap();
    }
    symlink(libraries.join("node_modules"), folder.path().join("node_modules")).unwrap();
    let mut command = Command::new("node");
    command.arg(folder.path().join(name));
    (command, folder)
}

#[test]
fn the_python_library_calls_every_operation() {
    let Some(python) = named("CLIENT_PYTHON", "the Python library") else { return };
    let mut command = Command::new(python);
    command.arg(script("python/every_operation.py"));
    compare(&drive(command, By::Plain), 0, &OTHER_PYTHON);
}

#[test]
fn the_python_library_calls_every_operation_by_tls() {
    let Some(python) = named("CLIENT_PYTHON", "the Python library by TLS") else { return };
    let mut command = Command::new(python);
    command.arg(script("python/every_operation.py"));
    compare(&drive(command, By::Tls), 0, &OTHER_PYTHON);
}

#[test]
fn the_typescript_library_in_node_calls_every_operation_by_tls() {
    let Some(folder) = named("CLIENT_NODE", "the TypeScript library in Node, by TLS") else { return };
    let (mut command, _folder) = node(&folder, "in_node.mjs");
    command.arg("web");
    let report = drive(command, By::Tls);
    compare(&report, 1, &OTHER_TYPESCRIPT);
    compare_wire(&report);
}

#[test]
fn the_typescript_library_in_node_calls_every_operation_as_grpc_web() {
    let Some(folder) = named("CLIENT_NODE", "the TypeScript library in Node") else { return };
    let (mut command, _folder) = node(&folder, "in_node.mjs");
    command.arg("web");
    let report = drive(command, By::Plain);
    compare(&report, 1, &OTHER_TYPESCRIPT);
    compare_wire(&report);
}

#[test]
fn the_typescript_library_in_node_calls_every_operation_as_grpc() {
    let Some(folder) = named("CLIENT_NODE", "the TypeScript library in Node, by gRPC") else { return };
    let (mut command, _folder) = node(&folder, "in_node.mjs");
    command.arg("grpc");
    let report = drive(command, By::Plain);
    compare(&report, 1, &OTHER_TYPESCRIPT);
    // One question before it and what the script sends by itself.
    let by_web = ["ListOrganizations", "TailRobotPartLogs", "UpdateModule"].map(str::to_owned);
    assert!(report.wire.is_subset(&by_web.into()), "went by gRPC-Web all the same: {:?}", report.wire);
}

#[test]
fn the_typescript_library_in_a_browser_on_another_origin_calls_every_operation() {
    let Some(folder) = named("CLIENT_NODE", "the TypeScript library in a browser") else { return };
    let Some(browser) = named("CLIENT_BROWSER", "the TypeScript library in a browser") else { return };
    let (mut command, _folder) = node(&folder, "in_browser.mjs");
    command.env("CHROMIUM", browser);
    let report = drive(command, By::Plain);
    compare(&report, 1, &OTHER_TYPESCRIPT);
    compare_wire(&report);
    for operation in &report.wire {
        let path = format!("/viam.app.v1.AppService/{operation}");
        assert!(report.preflights.contains(&path), "{path}: {:?}", report.preflights);
    }
}
