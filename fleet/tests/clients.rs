//! Unmodified client libraries against a server of its own process. `make clients` fetches them and runs this.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
};

const PROGRAM: &str = env!("CARGO_BIN_EXE_platform-fleet");

/// What a command says in one line of JSON.
fn said(arguments: &[&str]) -> serde_json::Value {
    let output = Command::new(PROGRAM).args(arguments).args(["--json"]).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Killed when dropped.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
#[ignore = "needs the client library: make clients"]
fn the_python_library_calls_every_operation() {
    let python = std::env::var_os("CLIENT_PYTHON").expect("CLIENT_PYTHON: make clients sets it");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/every_operation.py");
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let data = data.to_str().unwrap();
    let owner = said(&["init", "--org", "Acme", "--email", "owner@example.org", "--data", data]);
    said(&["user", "add", "--email", "ann@example.org", "--org", "Acme", "--role", "operator", "--data", data]);
    said(&["user", "add", "--email", "outsider@example.org", "--data", data]);

    let mut server = Command::new(PROGRAM)
        .args(["serve", "--json", "--listen", "127.0.0.1:0", "--data", data])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let _server = Server(server);
    let ready: serde_json::Value = serde_json::from_str(&line).unwrap();
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let output = Command::new(python)
        .arg(script)
        .args([text(&ready["url"]), text(&owner["key_id"]), text(&owner["key"]), text(&owner["organization_id"])])
        .arg("outsider@example.org")
        .output()
        .unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}\n{err}");
    assert!(out.contains(" operations"), "it reached its end: {out}");
}
