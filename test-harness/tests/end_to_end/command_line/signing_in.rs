//! `login --oidc` from the printed page to a key that works: the real program, server and provider, and a browser that is
//! played.

use std::{
    fs,
    io::{self, BufRead as _, BufReader, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Child, Command, Stdio},
};

use serde_json::json;
use test_harness::real::{
    device::write_private,
    eventually,
    fleet::{Fleet, init},
    http,
    port::Port,
    process::Running,
};

use super::desk::Desk;
use crate::world::Signal;

/// An identity provider; ends with its standard input.
struct Provider {
    child: Child,
    address: String,
}

impl Provider {
    /// `None`, aloud, where it could not be fetched.
    fn start() -> Option<Provider> {
        let Some(python) = std::env::var_os("CLIENT_PYTHON").filter(|value| !value.is_empty()) else {
            let line = b"SKIPPED login --oidc: CLIENT_PYTHON is not set; packaging/clients.sh sets it\n";
            let _ = io::stderr().write_all(line);
            return None;
        };
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fleet/tests/sign_in/provider.py");
        let mut command = Command::new(python);
        command.arg(script).arg("3600").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let provider = Provider { child, address: format!("http://127.0.0.1:{}", line.trim()) };
        for who in ["ann", "stranger"] {
            let claims = json!({"email": format!("{who}@example.org"), "email_verified": true}).to_string();
            let url = format!("{}/users/{who}", provider.address);
            let answer = browse("PUT", &url, "content-type: application/json\r\n", &claims);
            assert_eq!(answer.status, 204, "{}", answer.text);
        }
        Some(provider)
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

struct Answer {
    status: u16,
    text: String,
}

impl Answer {
    #[track_caller]
    fn header(&self, name: &str) -> &str {
        let mut lines = self.text.lines().filter_map(|line| line.split_once(": "));
        let found = lines.find_map(|(found, value)| found.eq_ignore_ascii_case(name).then_some(value));
        found.unwrap_or_else(|| panic!("{name} in {}", self.text))
    }
}

/// One question as a browser asks it, without following where it is sent.
fn browse(method: &str, url: &str, headers: &str, body: &str) -> Answer {
    let rest = url.strip_prefix("http://").unwrap();
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let length = body.len();
    let question = format!(
        "{method} /{path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n{headers}content-length: {length}\r\n\r\n{body}"
    );
    let text = String::from_utf8(http::raw(host, question.as_bytes()).unwrap()).unwrap();
    Answer { status: text.split(' ').nth(1).unwrap().parse().unwrap(), text }
}

/// Somebody opens the page and signs in at the provider; what the fleet server says when they come back.
fn signs_in(page: &str, who: &str) -> Answer {
    let begun = browse("GET", page, "", "");
    assert_eq!(begun.status, 303, "{}", begun.text);
    let cookie = begun.header("set-cookie").split(';').next().unwrap();
    let form = "content-type: application/x-www-form-urlencoded\r\n";
    let back = browse("POST", begun.header("location"), form, &format!("sub={who}"));
    browse("GET", back.header("location"), &format!("cookie: {cookie}\r\n"), "")
}

/// A server that has this provider, and an owner with a key in the environment.
fn desk_where_people_sign_in(issuer: &str) -> Desk {
    let place = tempfile::tempdir().unwrap();
    let data = place.path().join("fleet");
    let owner = init(&data, None).unwrap();
    let port = Port::reserve().unwrap();
    let url = port.url();
    let secret = place.path().join("secret");
    write_private(&secret, "known to both\n").unwrap();
    let issuer = ["--oidc-issuer", issuer, "--oidc-client-id", "fleet"];
    let client = ["--address", &url, "--oidc-client-secret-file", secret.to_str().unwrap()];
    let log = place.path().join("fleet.log");
    let listen = url.trim_start_matches("http://");
    let fleet = Fleet::start_with(&data, listen, None, &log, &[issuer, client].concat()).unwrap();
    Desk::at(place, fleet, owner)
}

#[test]
fn a_person_signs_in_in_a_browser_and_the_command_line_has_their_key() {
    let Some(provider) = Provider::start() else { return };
    let mut desk = desk_where_people_sign_in(&provider.address);
    let url = desk.fleet.url.clone();
    desk.tells("invite create ann@example.org --role operator --no-mail", &[]);

    desk.environment.clear();
    let screen = desk.path("screen");
    let command = desk.command(&format!("login --oidc --url {url} --profile ann"));
    let (mut login, _) = Running::start(command, "platform", &screen, false).unwrap();
    let page = eventually("the page to open", || {
        let said = login.said();
        said.lines().find_map(|line| line.trim().strip_prefix(&url).map(|path| format!("{url}{path}")))
    });
    let page = page.unwrap();

    // Somebody whom nobody invited is told so in the browser, and the program waits on.
    let refused = signs_in(&page, "stranger");
    assert!(
        refused.status == 403 && refused.text.contains("Nobody has invited stranger@example.org"),
        "{}",
        refused.text
    );
    let port = page.split("port=").nth(1).unwrap().split('&').next().unwrap().to_owned();
    let lost = browse("GET", &format!("http://127.0.0.1:{port}/favicon.ico"), "", "");
    assert_eq!(lost.status, 404, "{}", lost.text);
    assert!(login.is_running(), "{}", login.said());

    let sent = signs_in(&page, "ann");
    assert_eq!(sent.status, 303, "{}", sent.text);
    let home = sent.header("location");
    assert!(home.starts_with(&format!("http://127.0.0.1:{port}/?code=")), "{home}");
    let told = browse("GET", home, "", "");
    assert!(told.status == 200 && told.text.contains("You are signed in. This page can be closed."), "{}", told.text);
    assert_eq!(login.wait().unwrap(), Some(0), "{}", login.said());
    let said = login.said();
    assert!(said.contains(&format!("Logged in to {url} (profile \"ann\" in ")), "{said}");

    // The key is in the profile, for its owner's eyes, and nowhere on the screen.
    let profiles = desk.path(".config/platform/profiles.json");
    assert_eq!(fs::metadata(&profiles).unwrap().permissions().mode() & 0o777, 0o600);
    let stored: serde_json::Value = serde_json::from_slice(&fs::read(&profiles).unwrap()).unwrap();
    let key = stored["profiles"]["ann"]["key"].as_str().unwrap();
    assert!(key.len() >= 32 && !said.contains(key), "{said}");
    desk.shows("organization list", &["Sandbox"]);
    desk.shows("role check read_organization", &["read_organization  yes"]);
    desk.fails("location create Mine", 1, &["PERMISSION_DENIED"]);
    // The code was good for this program alone, once.
    let asked = json!({"code": home.split("code=").nth(1).unwrap(), "secret": "a guess"}).to_string();
    let again = browse("POST", &format!("{url}/sign-in/token"), "content-type: application/json\r\n", &asked);
    assert_eq!(again.status, 400, "{}", again.text);
    // What stays on the server is deleted there.
    let id = stored["profiles"]["ann"]["key_id"].as_str().unwrap();
    desk.shows(&format!("key delete {id}"), &["is deleted"]);
    desk.fails("organization list", 1, &["log in again with `platform login`"]);
}

#[test]
fn a_server_without_a_provider_says_so_at_once() {
    let desk = Desk::new(None, &[]);
    let line = format!("login --oidc --url {}", desk.fleet.url);
    desk.fails(&line, 1, &["offers no sign-in with an identity provider", "login --url URL --key-id ID"]);
}

#[test]
fn a_code_that_the_server_did_not_give_ends_the_login_with_a_sentence() {
    // Nobody gets as far as the provider.
    let desk = desk_where_people_sign_in("http://127.0.0.1:9");
    let line = format!("login --oidc --url {}", desk.fleet.url);
    let (mut login, _) = Running::start(desk.command(&line), "platform", &desk.path("screen"), false).unwrap();
    let port = eventually("the page to open", || {
        let said = login.said();
        said.split("port=").nth(1).and_then(|rest| rest.split_once('&')).map(|(port, _)| port.to_owned())
    });
    let told = browse("GET", &format!("http://127.0.0.1:{}/?code=c0de", port.unwrap()), "", "");
    assert_eq!(told.status, 200, "{}", told.text);
    assert_eq!(login.wait().unwrap(), Some(1), "{}", login.said());
    assert!(login.said().contains("gives no key: "), "{}", login.said());
    assert!(!desk.path(".config/platform/profiles.json").exists());
    // Somebody changes their mind.
    let (login, _) = Running::start(desk.command(&line), "platform", &desk.path("screen-2"), false).unwrap();
    eventually("the page to open", || login.said().contains("port=").then_some(())).unwrap();
    assert_eq!(login.end_by(Signal::TERM).unwrap(), None);
}
