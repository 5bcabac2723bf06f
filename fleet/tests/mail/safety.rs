//! To whom a password is said, and to whom nothing at all.

use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf};

use super::*;

const PASSWORD: &str = "s3cret-of-the-mail-server";

/// A mail server's certificate for `name`, and its key.
struct Papers {
    folder: tempfile::TempDir,
}

impl Papers {
    fn new() -> Self {
        let papers = Self { folder: tempfile::tempdir().unwrap() };
        for (file, name) in [("good", "localhost"), ("stranger", "localhost"), ("misnamed", "mail.example.org")] {
            let mut wanted = rcgen::CertificateParams::new([name.to_owned()]).unwrap();
            wanted.distinguished_name.push(rcgen::DnType::CommonName, file);
            let pair = rcgen::KeyPair::generate().unwrap();
            fs::write(papers.path(&format!("{file}.pem")), wanted.self_signed(&pair).unwrap().pem()).unwrap();
            fs::write(papers.path(&format!("{file}.key")), pair.serialize_pem()).unwrap();
        }
        papers
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    fn server(&self, security: &str, whose: &str) -> Option<MailServer> {
        let (certificate, key) = (self.text(&format!("{whose}.pem")), self.text(&format!("{whose}.key")));
        MailServer::start_with(&[security, &certificate, &key, PASSWORD])
    }

    fn settings(&self, port: u16, security: Security, trusted: &str) -> Settings {
        Settings {
            host: "localhost".into(),
            security,
            login: Some(("fleet".into(), Secret::new(PASSWORD))),
            authorities: Some(self.path(&format!("{trusted}.pem"))),
            retry: Retry { within: Duration::ZERO, ..settings(0).retry },
            ..settings(port)
        }
    }
}

/// A program that does not outlive its test.
struct Killed(std::process::Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What an owner reads about the only mail, which is not tried again.
async fn refused(settings: Settings) -> String {
    let (world, owner) = with(settings).await;
    invite(&owner, "ann@example.org").await;
    all_done(&world).await;
    let rows = "SELECT detail FROM audit WHERE operation = 'mail not sent'";
    let store = &world.server.context.store;
    let mut said = store.read::<_, DbError>(|tx| tx.all(rows, &[], |row| row.text(0))).await.unwrap();
    world.end().await;
    assert_eq!(said.len(), 1, "{said:?}");
    said.remove(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_goes_to_a_mail_server_with_a_good_certificate_only() {
    let papers = Papers::new();
    for (word, security) in [("starttls", Security::Starttls), ("tls", Security::Tls)] {
        let Some(server) = papers.server(word, "good") else { return };
        let untrusted = refused(papers.settings(server.port, security, "stranger")).await;
        let why = "the certificate of the mail server localhost is not believed (UnknownIssuer): ";
        assert!(untrusted.starts_with(why) && untrusted.contains("--mail-authorities"), "{word}: {untrusted}");
        let guess = Settings {
            login: Some(("fleet".into(), Secret::new("a-guess"))),
            ..papers.settings(server.port, security, "good")
        };
        let unknown = refused(guess).await;
        assert!(unknown.contains("535") && !unknown.contains("a-guess"), "{word}: {unknown}");
        let (world, owner) = with(papers.settings(server.port, security, "good")).await;
        invite(&owner, "ann@example.org").await;
        let mail = server.next();
        assert!(mail.tls && mail.user == "fleet", "{word}: {mail:?}");
        all_done(&world).await;
        world.end().await;
        assert_eq!(server.rest().len(), 0, "{word}");

        let misnamed = papers.server(word, "misnamed").unwrap();
        let said = refused(papers.settings(misnamed.port, security, "misnamed")).await;
        let why = "the certificate of the mail server localhost is not believed (certificate not valid for name";
        assert!(said.starts_with(why), "another's name, {word}: {said}");
        assert_eq!(misnamed.rest().len(), 0, "{word}");
    }
}

/// A listener that only writes down what it is told.
async fn listener() -> (u16, tokio::task::JoinHandle<Vec<u8>>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let heard = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        let mut heard = Vec::new();
        let mut buffer = [0; 4096];
        socket.write_all(b"220 mail ESMTP\r\n").await.unwrap();
        while let Ok(n @ 1..) = socket.read(&mut buffer).await {
            heard.extend_from_slice(&buffer[..n]);
            // It takes everything; what it offers beyond that is a login in clear.
            if socket.write_all(b"250-here\r\n250 AUTH PLAIN LOGIN\r\n").await.is_err() {
                break;
            }
        }
        heard
    });
    (port, heard)
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_said_in_clear_to_a_server_that_knows_no_tls() {
    let papers = Papers::new();
    for security in [Security::Starttls, Security::Tls] {
        let (port, heard) = listener().await;
        let said = refused(papers.settings(port, security, "good")).await;
        let heard = heard.await.unwrap();
        let heard = String::from_utf8_lossy(&heard);
        for word in ["AUTH", "MAIL FROM", "ann@example.org", "/invite/", PASSWORD] {
            assert!(!heard.contains(word), "{security:?}: {heard}");
        }
        assert!(!said.is_empty() && !said.contains(PASSWORD), "{security:?}: {said}");
    }
}

/// The program itself, telling all it can.
#[tokio::test(flavor = "multi_thread")]
async fn neither_the_password_nor_a_link_is_in_the_log() {
    use base64::{Engine, engine::general_purpose::STANDARD};
    let papers = Papers::new();
    let Some(server) = papers.server("tls", "good") else { return };
    let data = papers.path("data");
    let database = world::engine::url(papers.folder.path());
    let place = |command: &mut Command| {
        command.arg("--data").arg(&data).args(database.iter().flat_map(|url| ["--database", url]));
    };
    let program = || Command::new(env!("CARGO_BIN_EXE_platform-fleet"));
    let mut init = program();
    init.args(["init", "--org", "Acme", "--email", "owner@example.org", "--json"]);
    place(&mut init);
    let made: serde_json::Value = serde_json::from_slice(&init.output().unwrap().stdout).unwrap();
    fs::write(papers.path("password"), format!("{PASSWORD}\n")).unwrap();
    fs::set_permissions(papers.path("password"), fs::Permissions::from_mode(0o600)).unwrap();
    let log = fs::File::create(papers.path("log")).unwrap();
    let mut serve = program();
    serve.args(["serve", "--json", "--listen", "127.0.0.1:0", "--address", "http://fleet.example.org"]);
    serve.args(["--mail-security", "tls", "--mail-from", "fleet@example.org", "--mail-user", "fleet"]);
    serve.arg("--mail-server").arg(format!("localhost:{}", server.port));
    serve.arg("--mail-password-file").arg(papers.path("password"));
    serve.arg("--mail-authorities").arg(papers.path("good.pem"));
    place(&mut serve);
    serve.env("RUST_LOG", "trace").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
    let mut running = Killed(serve.spawn().unwrap());
    let ready = Lines::of(running.0.stdout.take().unwrap()).next();
    let ready: serde_json::Value = serde_json::from_str(&ready).unwrap();
    let address = ready["address"].as_str().unwrap().parse().unwrap();

    let question = |path: &str, token: &str, body: serde_json::Value| {
        let (body, path) = (body.to_string(), path.to_owned());
        let (token, bearer) = (token.to_owned(), format!("Bearer {token}"));
        async move {
            let headers = [("Content-Type", "application/json"), ("Authorization", &*bearer)];
            let headers = &headers[..if token.is_empty() { 1 } else { 2 }];
            world::http::ask_at(address, "POST", &format!("/{path}"), headers, body.as_bytes()).await.json()
        }
    };
    let credentials = serde_json::json!({"type": "api-key", "payload": made["key"]});
    let login = serde_json::json!({"entity": made["key_id"], "credentials": credentials});
    let token = question("proto.rpc.v1.AuthService/Authenticate", "", login).await;
    let token = token["accessToken"].as_str().unwrap().to_owned();
    for email in ["ann@example.org", "full@example.org", "gone@example.org"] {
        let invite = serde_json::json!({"organizationId": made["organization_id"], "email": email});
        question("platform.app.v1.AppService/CreateOrganizationInvite", &token, invite).await;
    }
    let mail = server.next();
    let told = |text: &str| {
        let path = papers.path("log");
        let text = text.to_owned();
        async move {
            let seen = async {
                while !fs::read_to_string(&path).unwrap().contains(&text) {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            };
            tokio::time::timeout(world::PATIENCE, seen).await.unwrap_or_else(|_| panic!("{text}"));
        }
    };
    told("an invitation was sent").await;
    told("an invitation was not sent yet").await;
    told("an invitation is not sent any more").await;
    drop(running);
    let log = fs::read_to_string(papers.path("log")).unwrap();
    let plain = STANDARD.encode(format!("\0fleet\0{PASSWORD}"));
    let secret = mail.link().strip_prefix("/invite/").unwrap();
    let key = made["key"].as_str().unwrap();
    for (what, secret) in [
        ("the password", PASSWORD),
        ("the password as it travels", &plain),
        ("the password alone as it travels", &STANDARD.encode(PASSWORD)),
        ("the link", secret),
        ("the API key", key),
        ("the token", &token),
    ] {
        assert!(!log.contains(secret), "{what} is in the log");
    }
    server.rest();
}
