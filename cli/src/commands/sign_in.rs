//! `login --oidc`: a person signs in in a browser, and this program gets their key.
//!
//! The browser comes back to a port of this machine with a code that is worth nothing without a secret which never left
//! this program, so that whoever else sees the address cannot use it.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    path::Path,
    time::{Duration, Instant},
};

use api::{
    Secret, brand,
    client::{Address, CallOptions, Client, Code},
};
use ring::{
    digest,
    rand::{SecureRandom, SystemRandom},
};
use serde::Deserialize;
use serde_json::json;
use ureq::{
    Agent,
    unversioned::transport::{ConnectProxyConnector, Connector, TcpConnector},
};

use crate::failure::Failure;

/// A person may have to look for a second factor.
const PERSON_WITHIN: Duration = Duration::from_secs(10 * 60);
/// How often it is looked whether the browser has come.
const LOOKED_EVERY: Duration = Duration::from_millis(100);
/// For a browser that came and says nothing, and for the server's answer.
const WORD_WITHIN: Duration = Duration::from_secs(20);
/// Of the first line that a browser sends.
const LINE_BYTES_MAX: u64 = 16 * 1024;
/// Of the server's answer.
const ANSWER_BYTES_MAX: u64 = 64 * 1024;

/// A personal key that ends by itself.
#[derive(Deserialize)]
pub(super) struct Issued {
    pub(super) key_id: String,
    pub(super) key: String,
}

/// Says which page to open, waits for the person, and asks the server for their key. The server is asked first whether
/// it has such a page: nobody is sent to one that is not there, and waited for.
pub(super) fn key(address: &Address, ca: Option<&Path>, say: impl FnOnce(&str)) -> Result<Issued, Failure> {
    look_for_provider(address, ca)?;
    let terminal = Failure::file("loopback");
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| {
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        Ok((listener, port))
    });
    let (listener, port) = listener.map_err(terminal)?;
    let mut bytes = [0; 32];
    SystemRandom::new().fill(&mut bytes).map_err(|_| failed("this system has no random numbers"))?;
    let secret = hexadecimal(&bytes);
    let challenge = hexadecimal(digest::digest(&digest::SHA256, secret.as_bytes()).as_ref());
    say(&format!("{}/sign-in/start?port={port}&challenge={challenge}", address.base()));
    let code = code(&listener)?;
    redeem(address, ca, &code, &secret)
}

fn look_for_provider(address: &Address, ca: Option<&Path>) -> Result<(), Failure> {
    let client = Client::builder(address.clone())
        .tls(web::Tls::new(trust(ca), None))
        .program(format!("{}-cli/{}", brand::NAME, env!("CARGO_PKG_VERSION")))
        .build()?;
    match client.download("/sign-in", 0, "", CallOptions::idempotent().within(WORD_WITHIN)) {
        Ok(_) => Ok(()),
        // What a server without a provider answers, and one of another make.
        Err(why) if why.code() == Code::Unimplemented => {
            Err(failed(format!("{address} offers no sign-in with an identity provider: it wants an API key")))
        }
        Err(why) => Err(Failure::call("could not ask the server whether people sign in there")(why)),
    }
}

fn trust(ca: Option<&Path>) -> web::Trust {
    ca.map_or(web::Trust::System, |file| web::Trust::File(file.to_owned()))
}

fn failed(why: impl Into<String>) -> Failure {
    Failure::NotLoggedIn(why.into())
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What the browser brings. Others that come are told that nothing is here.
fn code(listener: &TcpListener) -> Result<Secret, Failure> {
    let end = Instant::now() + PERSON_WITHIN;
    while Instant::now() < end {
        match listener.accept() {
            Ok((browser, _)) => {
                if let Ok(Some(code)) = greet(&browser) {
                    return Ok(code);
                }
            }
            Err(nobody) if nobody.kind() == io::ErrorKind::WouldBlock => std::thread::sleep(LOOKED_EVERY),
            Err(error) => return Err(Failure::file("loopback")(error)),
        }
    }
    Err(failed("nobody signed in within ten minutes"))
}

fn greet(browser: &TcpStream) -> io::Result<Option<Secret>> {
    browser.set_nonblocking(false)?;
    browser.set_read_timeout(Some(WORD_WITHIN))?;
    let mut lines = BufReader::new(browser.take(LINE_BYTES_MAX));
    let mut first = String::new();
    lines.read_line(&mut first)?;
    // The rest of the question is read too: closing with unread bytes would take the answer away.
    let mut line = String::new();
    while lines.read_line(&mut line)? > 2 {
        line.clear();
    }
    let code = first.strip_prefix("GET /?code=").and_then(|rest| rest.split(' ').next());
    let code = code.filter(|code| !code.is_empty() && code.bytes().all(|byte| byte.is_ascii_hexdigit()));
    let (status, text) = match code {
        Some(_) => ("200 OK", "You are signed in. This page can be closed."),
        None => ("404 Not Found", "Nothing is here."),
    };
    let mut browser = browser;
    write!(
        browser,
        "HTTP/1.1 {status}\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: {}\r\n\
         cache-control: no-store\r\nreferrer-policy: no-referrer\r\nconnection: close\r\n\r\n{text}",
        text.len()
    )?;
    Ok(code.map(Secret::new))
}

fn redeem(address: &Address, ca: Option<&Path>, code: &Secret, secret: &str) -> Result<Issued, Failure> {
    let proxy = web::proxy::from_environment(address.host(), address.is_encrypted(), |name| std::env::var(name).ok())?;
    let config = Agent::config_builder()
        .proxy(proxy)
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .timeout_global(Some(WORD_WITHIN))
        .build();
    let tls = web::Tls::new(trust(ca), None);
    let connector = ().chain(ConnectProxyConnector::default()).chain(TcpConnector::default()).chain(tls);
    let agent = Agent::with_parts(config, connector, web::Names::default());
    let question = json!({"code": code.expose(), "secret": secret}).to_string();
    let reached = agent.post(format!("{}/sign-in/token", address.base())).send(&question);
    let mut answer = reached.map_err(|why| failed(format!("could not ask {address} for the key: {why}")))?;
    let status = answer.status();
    let text = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_string();
    let text = text.map_err(|why| failed(format!("could not read the answer of {address}: {why}")))?;
    if !status.is_success() {
        return Err(failed(format!("{address} gives no key: {}", text.trim())));
    }
    serde_json::from_str(&text).map_err(|_| failed(format!("{address} answers what is no key")))
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// One question over HTTP; the whole answer.
    fn ask(port: &str, path: &str) -> String {
        let mut socket = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
        write!(socket, "GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n").unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        answer
    }

    /// The first line and the headers of what is asked.
    fn head(lines: &mut impl BufRead) -> String {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(lines.read_line(&mut head).unwrap() > 0, "{head}");
        }
        head
    }

    #[test]
    fn the_browsers_code_and_the_secret_behind_the_challenge_buy_the_key() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let address: Address = format!("http://{}", server.local_addr().unwrap()).parse().unwrap();
        let (said, page) = std::sync::mpsc::channel::<String>();
        let person = thread::spawn(move || {
            let page = page.recv().unwrap();
            let query = page.split_once("/sign-in/start?port=").unwrap().1;
            let (port, challenge) = query.split_once("&challenge=").unwrap();
            for wrong in ["/favicon.ico", "/?code=", "/?code=%3Cscript%3E"] {
                assert!(ask(port, wrong).starts_with("HTTP/1.1 404"), "{wrong}");
            }
            assert!(ask(port, "/?code=c0de").contains("signed in"));
            challenge.to_owned()
        });
        let fleet = thread::spawn(move || {
            let (socket, _) = server.accept().unwrap();
            let asked = head(&mut BufReader::new(&socket));
            assert!(asked.starts_with("GET /sign-in HTTP/1.1\r\n"), "before anybody is sent there: {asked}");
            write!(&socket, "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").unwrap();
            let (socket, _) = server.accept().unwrap();
            let mut lines = BufReader::new(&socket);
            let head = head(&mut lines);
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap().parse().unwrap();
            let mut body = vec![0; length];
            lines.read_exact(&mut body).unwrap();
            let answer = r#"{"user_id": "u", "key_id": "id", "key": "k"}"#;
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n";
            write!(&socket, "{head}content-length: {}\r\n\r\n{answer}", answer.len()).unwrap();
            (head.len(), serde_json::from_slice::<serde_json::Value>(&body).unwrap())
        });
        let issued = key(&address, None, |page| said.send(page.to_owned()).unwrap()).unwrap();
        assert_eq!((&*issued.key_id, &*issued.key), ("id", "k"));
        let (challenge, (_, question)) = (person.join().unwrap(), fleet.join().unwrap());
        assert_eq!(question["code"], "c0de");
        let secret = question["secret"].as_str().unwrap();
        assert_eq!(hexadecimal(digest::digest(&digest::SHA256, secret.as_bytes()).as_ref()), challenge);
    }
}
