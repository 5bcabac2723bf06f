//! Invitations by mail: through a real mail server, one that is away, refuses, or loses its answer.

use std::{
    io::{self, Write},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering::SeqCst},
    },
    time::Duration,
};

use api::{Secret, pb::platform::app::v1::*};
use fleet::{
    mail::{Retry, Security, Settings},
    store::{DbError, mails},
};
use serde::Deserialize;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy},
    net::{TcpListener, TcpStream},
};

mod world;

#[path = "mail/outbox.rs"]
mod outbox;
#[path = "mail/safety.rs"]
mod safety;

use world::{Owner, World, lines::Lines};

/// A mail as the mail server took it.
#[derive(Debug, Deserialize)]
struct Taken {
    to: Vec<String>,
    from: String,
    data: String,
    tls: bool,
    user: String,
}

impl Taken {
    fn header(&self, name: &str) -> &str {
        let head = self.data.split("\r\n\r\n").next().unwrap();
        head.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{name} {head}")).trim()
    }

    /// The path of the link in it.
    fn link(&self) -> &str {
        let from = self.data.find("/invite/").unwrap();
        self.data[from..].lines().next().unwrap()
    }
}

/// Ends with its standard input.
struct MailServer {
    child: Child,
    said: Lines,
    port: u16,
}

impl MailServer {
    /// `None`, aloud, where it could not be fetched.
    fn start() -> Option<Self> {
        Self::start_with(&["none", "", "", ""])
    }

    /// With what `server.py` is told.
    fn start_with(arguments: &[&str; 4]) -> Option<Self> {
        let Some(python) = std::env::var_os("CLIENT_PYTHON").filter(|value| !value.is_empty()) else {
            let line = b"SKIPPED mails: CLIENT_PYTHON is not set; packaging/clients.sh sets it\n";
            let _ = io::stderr().write_all(line);
            return None;
        };
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mail/server.py");
        let mut command = Command::new(python);
        command.arg(script).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let said = Lines::of(child.stdout.take().unwrap());
        let port = said.next().parse().unwrap();
        Some(Self { child, said, port })
    }

    /// The next mail it takes; waits for it.
    fn next(&self) -> Taken {
        serde_json::from_str(&tokio::task::block_in_place(|| self.said.next())).unwrap()
    }

    /// What it took beside what was asked for. Ends it.
    fn rest(mut self) -> Vec<Taken> {
        drop(self.child.stdin.take());
        self.said.rest().iter().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// What stands between the fleet server and the mail server.
const AWAY: u8 = 0;
const THERE: u8 = 1;
/// The answer to a mail's last line is lost, once.
const FORGETFUL: u8 = 2;

/// A way to the mail server that can be cut.
struct Way {
    port: u16,
    state: Arc<AtomicU8>,
    refused: Arc<tokio::sync::Notify>,
}

impl Way {
    async fn to(port: u16, state: u8) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let (state, refused) = (Arc::new(AtomicU8::new(state)), Arc::new(tokio::sync::Notify::new()));
        let way = Self { port: listener.local_addr().unwrap().port(), state: state.clone(), refused: refused.clone() };
        tokio::spawn(async move {
            loop {
                let Ok((socket, _)) = listener.accept().await else { return };
                if state.load(SeqCst) == AWAY {
                    refused.notify_one();
                    continue;
                }
                tokio::spawn(forward(socket, port, state.clone()));
            }
        });
        way
    }
}

async fn forward(socket: TcpStream, port: u16, state: Arc<AtomicU8>) {
    let server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let ((mut from, mut to), (mut answers, mut questions)) = (socket.into_split(), server.into_split());
    let back = tokio::spawn(async move {
        let mut data = false;
        let mut buffer = [0; 4096];
        while let Ok(n @ 1..) = answers.read(&mut buffer).await {
            // The answer after "354 go ahead" is the one that says the mail was taken.
            if data && state.compare_exchange(FORGETFUL, THERE, SeqCst, SeqCst).is_ok() {
                return;
            }
            data = buffer.starts_with(b"354");
            if to.write_all(&buffer[..n]).await.is_err() {
                return;
            }
        }
    });
    let forth = tokio::spawn(async move { copy(&mut from, &mut questions).await });
    let _ = back.await;
    forth.abort();
}

fn settings(port: u16) -> Settings {
    Settings {
        host: "127.0.0.1".into(),
        port,
        security: Security::None,
        login: None,
        from: "Fleet <fleet@example.org>".parse().unwrap(),
        authorities: None,
        address: "https://fleet.example.org".into(),
        retry: Retry {
            first: Duration::from_millis(20),
            most: Duration::from_millis(200),
            within: Duration::from_secs(3600),
        },
    }
}

async fn with(settings: Settings) -> (World, Owner) {
    let world = World::with(|options| options.mail = Some(settings)).await;
    let owner = world.owner("Acme & Söhne").await;
    (world, owner)
}

async fn invite(owner: &Owner, email: &str) {
    let request = CreateOrganizationInviteRequest {
        organization_id: owner.organization.clone(),
        email: email.into(),
        authorizations: Vec::new(),
        send_email_invite: None,
    };
    let _: CreateOrganizationInviteResponse = owner.client.app("CreateOrganizationInvite", request).await.unwrap();
}

async fn resend(owner: &Owner, email: &str, send_email_invite: Option<bool>) {
    let request = ResendOrganizationInviteRequest {
        organization_id: owner.organization.clone(),
        email: email.into(),
        send_email_invite,
    };
    let _: ResendOrganizationInviteResponse = owner.client.app("ResendOrganizationInvite", request).await.unwrap();
}

async fn waiting(world: &World) -> i64 {
    world.server.context.store.read::<_, DbError>(mails::waiting).await.unwrap().count
}

/// Until the outbox is empty.
async fn all_done(world: &World) {
    let done = async {
        while waiting(world).await > 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(world::PATIENCE, done).await.expect("the outbox is empty");
}

async fn http(world: &World, method: &str, path: &str) -> (u16, String) {
    let answer = world::http::ask(world, method, path, &[], b"").await;
    (answer.status, String::from_utf8(answer.body).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mail_arrives_once_after_the_mail_server_was_away_and_its_link_opens_the_organization() {
    let Some(server) = MailServer::start() else { return };
    let way = Way::to(server.port, AWAY).await;
    let (world, owner) = with(settings(way.port)).await;
    invite(&owner, "ann@example.org").await;
    // Tried, failed and tried again, while it waits in the database.
    for _ in 0..3 {
        tokio::time::timeout(world::PATIENCE, way.refused.notified()).await.unwrap();
    }
    assert_eq!(waiting(&world).await, 1);
    way.state.store(THERE, SeqCst);
    let mail = server.next();
    assert_eq!((&mail.to, &*mail.from), (&vec!["ann@example.org".to_owned()], "fleet@example.org"));
    assert!(mail.header("Message-ID:").ends_with("@example.org>"));
    assert!(mail.header("Subject:").starts_with("Invitation to Acme & "), "{}", mail.header("Subject:"));
    all_done(&world).await;
    let (status, page) = http(&world, "GET", mail.link()).await;
    assert!(status == 200 && page.contains("Acme &amp; Söhne"), "{page}");
    let (status, page) = http(&world, "POST", mail.link()).await;
    assert_eq!(status, 200, "{page}");
    let shown = |id: &str| page.split(&format!("id=\"{id}\">")).nth(1).unwrap().split('<').next().unwrap().to_owned();
    let member = world.login("api-key", &shown("key-id"), &shown("key")).await.unwrap();
    let seen: ListOrganizationsResponse = member.app("ListOrganizations", ListOrganizationsRequest {}).await.unwrap();
    assert_eq!(seen.organizations.len(), 1);
    assert!(http(&world, "GET", mail.link()).await.1.contains("accepted"), "it says why it opens nothing");
    // The count of those that wait is of the last look.
    let mut metrics = String::new();
    let counted = async {
        let lines = ["fleet_mails_sent_total 1\n", "fleet_mails_waiting 0\n", "fleet_mails_given_up_total 0\n"];
        while !lines.iter().all(|line| metrics.contains(line)) {
            tokio::time::sleep(Duration::from_millis(20)).await;
            metrics = http(&world, "GET", "/metrics").await.1;
        }
    };
    tokio::time::timeout(world::PATIENCE, counted).await.unwrap();
    world.end().await;
    assert_eq!(server.rest().len(), 0, "once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mail_whose_receipt_is_lost_comes_again_as_the_same_mail() {
    let Some(server) = MailServer::start() else { return };
    let way = Way::to(server.port, FORGETFUL).await;
    let (world, owner) = with(settings(way.port)).await;
    invite(&owner, "ann@example.org").await;
    let (first, second) = (server.next(), server.next());
    assert_eq!(first.header("Message-ID:"), second.header("Message-ID:"), "a mailbox can tell");
    assert_eq!(first.link(), second.link(), "both open it");
    all_done(&world).await;
    assert_eq!(http(&world, "POST", first.link()).await.0, 200);
    world.end().await;
    assert_eq!(server.rest().len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mail_that_waits_survives_the_server_and_goes_with_its_invitation() {
    let Some(server) = MailServer::start() else { return };
    let way = Way::to(server.port, AWAY).await;
    let (world, owner) = with(settings(way.port)).await;
    invite(&owner, "ann@example.org").await;
    invite(&owner, "withdrawn@example.org").await;
    invite(&owner, "silent@example.org").await;
    let withdraw = DeleteOrganizationInviteRequest {
        organization_id: owner.organization.clone(),
        email: "withdrawn@example.org".into(),
    };
    let _: DeleteOrganizationInviteResponse = owner.client.app("DeleteOrganizationInvite", withdraw).await.unwrap();
    resend(&owner, "silent@example.org", Some(false)).await;
    resend(&owner, "ann@example.org", None).await;
    assert_eq!(waiting(&world).await, 1, "one mail of one invitation, the newest");
    let World { folder, server: running } = world;
    running.stop().await;
    way.state.store(THERE, SeqCst);
    let world = World::again(folder, |options| options.mail = Some(settings(way.port))).await;
    let mail = server.next();
    assert_eq!(mail.to, ["ann@example.org"]);
    assert_eq!(http(&world, "GET", mail.link()).await.0, 200);
    all_done(&world).await;
    world.end().await;
    assert_eq!(server.rest().len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_will_never_arrive_is_given_up_at_once_and_a_full_mailbox_in_the_end() {
    let Some(server) = MailServer::start() else { return };
    let retry = Retry { within: Duration::from_millis(1500), ..settings(0).retry };
    let (world, owner) = with(Settings { retry, ..settings(server.port) }).await;
    for email in ["gone@example.org", "full@example.org", "ann@example.org"] {
        invite(&owner, email).await;
    }
    assert_eq!(server.next().to, ["ann@example.org"], "others are not held up");
    all_done(&world).await;
    let request = api::pb::platform::fleet::v1::ListAuditEventsRequest {
        organization_id: owner.organization.clone(),
        ..Default::default()
    };
    let log: api::pb::platform::fleet::v1::ListAuditEventsResponse =
        owner.client.call("/platform.fleet.v1.AdminService/ListAuditEvents", request).await.unwrap();
    let given_up: Vec<_> = log.events.iter().filter(|event| event.operation == "mail not sent").collect();
    let mut whose: Vec<&str> = given_up.iter().map(|event| &*event.resource_id).collect();
    whose.sort_unstable();
    assert_eq!(whose, ["full@example.org", "gone@example.org"]);
    let why = |who: &str| &*given_up.iter().find(|event| event.resource_id == who).unwrap().detail;
    assert!(why("gone@example.org").contains("no such mailbox"), "{}", why("gone@example.org"));
    assert!(why("full@example.org").contains("mailbox full"), "{}", why("full@example.org"));
    // The invitation itself waits on.
    resend(&owner, "gone@example.org", None).await;
    world.end().await;
    assert_eq!(server.rest().len(), 0);
}
