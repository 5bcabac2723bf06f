//! Signing in with a real identity provider: who comes in, for how long, and what is refused on the way.

use std::{
    io::{self, Write},
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
    time::Duration,
};

use api::{Secret, pb::platform::app::v1::*};
use fleet::{
    authz::Role,
    hex,
    people::{self, OtherKeys},
    sign_in::Settings,
    store::DbError,
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tonic::Code;

mod world;

#[path = "sign_in/browser.rs"]
mod browser;

use world::{Client, Owner, World, lines::Lines};

const DAY: i64 = 86_400_000;

struct Provider {
    child: Child,
    orders: Option<ChildStdin>,
    said: Lines,
    address: String,
}

impl Provider {
    /// `None`, aloud, where it could not be fetched.
    fn start(seconds: i64) -> Option<Self> {
        let Some(python) = std::env::var_os("CLIENT_PYTHON").filter(|value| !value.is_empty()) else {
            let line = b"SKIPPED signing in: CLIENT_PYTHON is not set; packaging/clients.sh sets it\n";
            let _ = io::stderr().write_all(line);
            return None;
        };
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sign_in/provider.py");
        let mut command = Command::new(python);
        command.arg(script).arg(seconds.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::null()).spawn().unwrap();
        let said = Lines::of(child.stdout.take().unwrap());
        let address = format!("http://127.0.0.1:{}", said.next());
        let orders = child.stdin.take();
        Some(Self { child, orders, said, address })
    }

    fn rotate(&mut self) {
        writeln!(self.orders.as_mut().unwrap(), "rotate").unwrap();
        assert_eq!(self.said.next(), "rotated");
    }

    /// What it knows of somebody from now on.
    async fn knows(&self, subject: &str, claims: Value) {
        let put = format!("{}/users/{subject}", self.address);
        let answer = http("PUT", &put, &[("content-type", "application/json")], &claims.to_string()).await;
        assert_eq!(answer.status, 204, "{answer:?}");
    }

    /// Somebody signs in there; where the browser is sent then.
    async fn signs(&self, door: &str, subject: &str) -> String {
        let form = [("content-type", "application/x-www-form-urlencoded")];
        let answer = http("POST", door, &form, &format!("sub={subject}")).await;
        answer.header("location").unwrap_or_else(|| panic!("{answer:?}")).to_owned()
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        drop(self.orders.take());
        let _ = self.child.wait();
    }
}

#[derive(Debug)]
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find_map(|(found, value)| found.eq_ignore_ascii_case(name).then_some(value))
    }

    fn between(&self, before: &str) -> &str {
        self.body.split(before).nth(1).unwrap_or_else(|| panic!("{before} {self:?}")).split('<').next().unwrap()
    }
}

/// One question as a browser asks it, without following where it is sent.
async fn http(method: &str, address: &str, headers: &[(&str, &str)], body: &str) -> Answer {
    let rest = address.strip_prefix("http://").unwrap();
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let mut request = format!("{method} /{path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n");
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    request.push_str(&format!("content-length: {}\r\n\r\n{body}", body.len()));
    let asked = async {
        let mut socket = TcpStream::connect(host).await.unwrap();
        socket.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Answer { status, head: head.to_owned(), body: body.to_owned() }
    };
    tokio::time::timeout(world::PATIENCE, asked).await.unwrap()
}

async fn get(address: &str, cookie: &str) -> Answer {
    let headers = [("cookie", cookie)];
    http("GET", address, if cookie.is_empty() { &[] } else { &headers }, "").await
}

/// A server whose people sign in there.
async fn with(provider: &Provider) -> (World, Owner) {
    let settings = Settings {
        issuer: provider.address.clone(),
        client_id: "fleet".into(),
        client_secret: Some(Secret::new("s3cret")),
        authorities: None,
        address: "http://fleet.example.org".into(),
        key_lives: Duration::from_secs(7 * 86_400),
    };
    let world = World::with(|options| options.sign_in = Some(settings)).await;
    let owner = world.owner("Acme").await;
    (world, owner)
}

/// Where a sign-in begins at the provider, and the browser's cookie.
async fn begin(world: &World, query: &str) -> (String, String) {
    let sent = get(&format!("http://{}/sign-in/start{query}", world.server.address), "").await;
    assert_eq!(sent.status, 303, "{sent:?}");
    let cookie = sent.header("set-cookie").unwrap();
    for word in ["HttpOnly", "SameSite=Lax", "Path=/sign-in", "Max-Age=600"] {
        assert!(cookie.contains(word), "{cookie}");
    }
    let cookie = cookie.split(';').next().unwrap().to_owned();
    (sent.header("location").unwrap().to_owned(), cookie)
}

/// The provider sends the browser to the configured address; a name server would lead it here.
fn here(world: &World, location: &str) -> String {
    let (_, below) = location.split_once("/sign-in/callback").unwrap_or_else(|| panic!("{location}"));
    format!("http://{}/sign-in/callback{below}", world.server.address)
}

async fn sign_in(world: &World, provider: &Provider, subject: &str) -> Answer {
    let (door, cookie) = begin(world, "").await;
    get(&here(world, &provider.signs(&door, subject).await), &cookie).await
}

async fn enter(world: &World, page: &Answer) -> Client {
    assert_eq!(page.status, 200, "{page:?}");
    world.login("api-key", page.between("id=\"key-id\">"), page.between("id=\"key\">")).await.unwrap()
}

async fn organizations(client: &Client) -> Result<usize, Code> {
    let listed = client.app::<_, ListOrganizationsResponse>("ListOrganizations", ListOrganizationsRequest {}).await;
    listed.map(|listed| listed.organizations.len()).map_err(|status| status.code())
}

async fn invite(owner: &Owner, email: &str, send_email_invite: bool) {
    let request = CreateOrganizationInviteRequest {
        organization_id: owner.organization.clone(),
        email: email.into(),
        authorizations: Vec::new(),
        send_email_invite: Some(send_email_invite),
    };
    let _: CreateOrganizationInviteResponse = owner.client.app("CreateOrganizationInvite", request).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_known_person_signs_in_and_the_key_ends_by_itself() {
    let Some(provider) = Provider::start(3600) else { return };
    let (world, owner) = with(&provider).await;
    provider.knows("248", json!({"email": "Ann@Example.org", "email_verified": true})).await;
    people::add(&world.server.context, "ann@example.org", Some((&owner.organization, Role::Operator))).await.unwrap();
    let first = get(&format!("http://{}/sign-in", world.server.address), "").await;
    assert!(first.status == 200 && first.body.contains("href=\"/sign-in/start\""), "{first:?}");

    let (door, cookie) = begin(&world, "").await;
    for part in ["response_type=code", "code_challenge_method=S256", "scope=openid%20email", "nonce=", "state="] {
        assert!(door.contains(part), "{door}");
    }
    let back = here(&world, &provider.signs(&door, "248").await);
    // Somebody else's browser, an attempt of another time, and an answer to another question.
    let (_, other) = begin(&world, "").await;
    for (case, cookie) in [("none", String::new()), ("another", other), ("damaged", format!("{cookie}00"))] {
        let refused = get(&back, &cookie).await;
        assert!(refused.status == 400 && !refused.body.contains("id=\"key\""), "{case}: {refused:?}");
    }
    world.server.context.clock.push(11 * 60_000);
    assert_eq!(get(&back, &cookie).await.status, 400, "too long ago");
    world.server.context.clock.push(-11 * 60_000);

    let page = get(&back, &cookie).await;
    assert!(page.header("set-cookie").unwrap().contains("Max-Age=0"), "{page:?}");
    assert!(page.header("cache-control") == Some("no-store") && page.header("referrer-policy") == Some("no-referrer"));
    let ann = enter(&world, &page).await;
    assert_eq!(organizations(&ann).await, Ok(1));
    assert_eq!(get(&back, &cookie).await.status, 502, "a code is good once");

    let (id, key) = (page.between("id=\"key-id\">"), page.between("id=\"key\">"));
    world.server.context.clock.push(7 * DAY + 1000);
    assert_eq!(organizations(&ann).await, Err(Code::Unauthenticated), "on its present token");
    assert_eq!(world.login("api-key", id, key).await.map(drop).unwrap_err().code(), Code::Unauthenticated);
    world.server.context.clock.push(-7 * DAY);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_who_is_known_or_invited_comes_in() {
    let Some(provider) = Provider::start(3600) else { return };
    let (world, owner) = with(&provider).await;
    let context = &world.server.context;
    people::add(context, "ann@example.org", Some((&owner.organization, Role::Operator))).await.unwrap();
    invite(&owner, "bob@example.org", false).await;
    invite(&owner, "carl@example.org", true).await;
    let verified = |email: &str| json!({"email": email, "email_verified": true});
    provider.knows("ann", verified("ann@example.org")).await;
    provider.knows("bob", verified("bob@example.org")).await;
    provider.knows("carl", verified("carl@example.org")).await;
    provider.knows("dora", verified("dora@example.org")).await;
    provider.knows("unverified", json!({"email": "ann@example.org", "email_verified": false})).await;
    provider.knows("silent", json!({"email": "ann@example.org"})).await;
    provider.knows("nobody", json!({})).await;
    for (subject, why) in [
        ("unverified", "no verified e-mail address"),
        ("silent", "no verified e-mail address"),
        ("nobody", "no verified e-mail address"),
        ("dora", "Nobody has invited dora@example.org"),
        ("carl", "open its link first"),
    ] {
        let refused = sign_in(&world, &provider, subject).await;
        assert!(refused.status == 403 && refused.body.contains(why), "{subject}: {refused:?}");
    }
    let bob = enter(&world, &sign_in(&world, &provider, "bob").await).await;
    assert_eq!(organizations(&bob).await, Ok(1), "what waited for the address is accepted");
    let ann = enter(&world, &sign_in(&world, &provider, "ann").await).await;
    assert_eq!(organizations(&ann).await, Ok(1));

    // Addresses change hands: who was ann stays ann, and who has her address now is not.
    provider.knows("ann", verified("ann.new@example.org")).await;
    provider.knows("heir", verified("ann@example.org")).await;
    assert_eq!(organizations(&enter(&world, &sign_in(&world, &provider, "ann").await).await).await, Ok(1));
    let refused = sign_in(&world, &provider, "heir").await;
    assert!(refused.status == 403 && refused.body.contains("another account"), "{refused:?}");

    // A link makes a member, and signing in is what gives the key then.
    let link = people::invite(context, &owner.organization, "carl@example.org", Role::Operator).await.unwrap();
    let accepted = http("POST", &format!("http://{}{link}", world.server.address), &[], "").await;
    assert!(accepted.body.contains("href=\"/sign-in\"") && !accepted.body.contains("id=\"key\""), "{accepted:?}");
    assert_eq!(organizations(&enter(&world, &sign_in(&world, &provider, "carl").await).await).await, Ok(1));

    // Any number of sign-ins leaves as many keys as a person may have.
    for _ in 0..22 {
        assert_eq!(sign_in(&world, &provider, "bob").await.status, 200);
    }
    assert_eq!(organizations(&bob).await, Err(Code::Unauthenticated), "the oldest one made room");
    world.end().await;
}

async fn roles(client: &Client, method: &str, owner: &Owner, identity: &str) -> Code {
    let authorization = Authorization {
        authorization_type: "role".into(),
        authorization_id: "organization_owner".into(),
        resource_type: "organization".into(),
        resource_id: owner.organization.clone(),
        identity_id: identity.into(),
        organization_id: owner.organization.clone(),
        identity_type: String::new(),
    };
    let request = AddRoleRequest { authorization: Some(authorization) };
    world::code(client.app::<_, AddRoleResponse>(method, request).await)
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_signs_in_at_the_provider_is_an_owner_for_as_long_as_the_provider_knows_them() {
    let Some(provider) = Provider::start(30 * 86_400) else { return };
    let (world, owner) = with(&provider).await;
    for who in ["ann", "bob"] {
        provider.knows(who, json!({"email": format!("{who}@example.org"), "email_verified": true})).await;
    }
    invite(&owner, "ann@example.org", false).await;
    people::add(&world.server.context, "bob@example.org", None).await.unwrap();
    let page = sign_in(&world, &provider, "ann").await;
    let (ann, ann_key) = (enter(&world, &page).await, page.between("id=\"key-id\">").to_owned());
    let request = GetUserIdByEmailRequest { email: "ann@example.org".into() };
    let ann_id = ann.app::<_, GetUserIdByEmailResponse>("GetUserIDByEmail", request).await.unwrap().user_id;

    // The key that the sign-in gave has ended, and is gone since somebody else signed in: she can come again, and counts.
    world.server.context.clock.push(8 * DAY);
    enter(&world, &sign_in(&world, &provider, "bob").await).await;
    let count = "SELECT COUNT(*) FROM api_keys WHERE expires_at IS NOT NULL";
    let store = &world.server.context.store;
    let left = store.read::<_, DbError>(|tx| tx.first(count, &[], |row| row.int(0))).await.unwrap();
    assert_eq!(left, Some(1), "bob's");
    assert_eq!(roles(&owner.client, "RemoveRole", &owner, &owner.key_id).await, Code::Ok, "ann remains");
    assert_eq!(organizations(&ann).await, Err(Code::Unauthenticated), "with this key no more");
    let page = sign_in(&world, &provider, "ann").await;
    let (ann, second_key) = (enter(&world, &page).await, page.between("id=\"key-id\">").to_owned());
    assert_ne!(second_key, ann_key);
    assert_eq!(roles(&ann, "RemoveRole", &owner, &ann_id).await, Code::FailedPrecondition, "she is the last one");
    let delete = async |key: &str| {
        let request = DeleteKeyRequest { id: key.into() };
        world::code(ann.app::<_, DeleteKeyResponse>("DeleteKey", request).await)
    };
    assert_eq!(delete(&second_key).await, Code::FailedPrecondition, "nor is her last key deleted");
    let third = sign_in(&world, &provider, "ann").await;
    assert_eq!(delete(third.between("id=\"key-id\">")).await, Code::Ok, "one of two");
    assert_eq!(roles(&ann, "AddRole", &owner, &owner.key_id).await, Code::Ok);

    // The provider is given up. A key that ends says nothing about tomorrow: she is in today, and does not count.
    let (id, key) = (third.between("id=\"key-id\">").to_owned(), third.between("id=\"key\">").to_owned());
    assert_eq!(delete(&id).await, Code::NotFound);
    let fourth = sign_in(&world, &provider, "ann").await;
    let world = world.restart().await;
    assert_ne!(fourth.between("id=\"key\">"), key);
    let ann = enter(&world, &fourth).await;
    assert_eq!(roles(&ann, "RemoveRole", &owner, &owner.key_id).await, Code::FailedPrecondition);
    people::key(&world.server.context, "ann@example.org", OtherKeys::Stay).await.unwrap();
    assert_eq!(roles(&ann, "RemoveRole", &owner, &owner.key_id).await, Code::Ok, "by a key that lasts");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_a_key_that_ends_ends_with_it() {
    let Some(provider) = Provider::start(40 * 86_400) else { return };
    let (world, owner) = with(&provider).await;
    provider.knows("ann", json!({"email": "ann@example.org", "email_verified": true})).await;
    invite(&owner, "ann@example.org", false).await;
    let page = sign_in(&world, &provider, "ann").await;
    let (ann, id) = (enter(&world, &page).await, page.between("id=\"key-id\">").to_owned());
    world.server.context.clock.push(6 * DAY);
    let like = CreateKeyFromExistingKeyAuthorizationsRequest { id: id.clone() };
    let copy: CreateKeyFromExistingKeyAuthorizationsResponse =
        ann.app("CreateKeyFromExistingKeyAuthorizations", like).await.unwrap();
    let by_copy = world.login("api-key", &copy.id, &copy.key).await.unwrap();
    assert_eq!(organizations(&by_copy).await, Ok(1));
    let rotated: RotateKeyResponse = by_copy.app("RotateKey", RotateKeyRequest { id: id.clone() }).await.unwrap();
    let by_rotated = world.login("api-key", &id, &rotated.key).await.unwrap();
    assert_eq!(organizations(&by_rotated).await, Ok(1));
    world.server.context.clock.push(DAY + 1000);
    for (case, client) in [("copy", &by_copy), ("rotated", &by_rotated)] {
        assert_eq!(organizations(client).await, Err(Code::Unauthenticated), "{case}");
    }
    let again = world.login("api-key", &copy.id, &copy.key).await.map(drop).unwrap_err().code();
    assert_eq!(again, Code::Unauthenticated, "the copy opens nothing anew");
    // What lasts is copied to what lasts.
    let lasting = people::key(&world.server.context, "ann@example.org", OtherKeys::Stay).await.unwrap();
    let ann = world.login("api-key", &lasting.key_id, &lasting.key).await.unwrap();
    let like = CreateKeyFromExistingKeyAuthorizationsRequest { id: lasting.key_id };
    let copy: CreateKeyFromExistingKeyAuthorizationsResponse =
        ann.app("CreateKeyFromExistingKeyAuthorizations", like).await.unwrap();
    world.server.context.clock.push(20 * DAY);
    assert_eq!(organizations(&world.login("api-key", &copy.id, &copy.key).await.unwrap()).await, Ok(1));

    // Who calls with a key that ends makes nothing that lasts longer out of those that do.
    let page = sign_in(&world, &provider, "ann").await;
    let (today, ends) = (enter(&world, &page).await, page.between("id=\"key-id\">").to_owned());
    let rotate = RotateKeyRequest { id: copy.id.clone() };
    let refused = today.app::<_, RotateKeyResponse>("RotateKey", rotate).await;
    assert_eq!(world::code(refused), Code::PermissionDenied);
    let like = CreateKeyFromExistingKeyAuthorizationsRequest { id: copy.id.clone() };
    let brief: CreateKeyFromExistingKeyAuthorizationsResponse =
        today.app("CreateKeyFromExistingKeyAuthorizations", like).await.unwrap();
    // And of one that is gone, or has ended and still lies here, there is no copy.
    let _: DeleteKeyResponse = ann.app("DeleteKey", DeleteKeyRequest { id: copy.id.clone() }).await.unwrap();
    world.server.context.clock.push(8 * DAY);
    assert_eq!(world::code(world.login("api-key", &brief.id, &brief.key).await.map(drop)), Code::Unauthenticated);
    for id in [copy.id, ends] {
        let like = CreateKeyFromExistingKeyAuthorizationsRequest { id: id.clone() };
        let copied = ann
            .app::<_, CreateKeyFromExistingKeyAuthorizationsResponse>("CreateKeyFromExistingKeyAuthorizations", like);
        assert_eq!(world::code(copied.await), Code::NotFound, "{id}");
    }
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_of_another_sign_in_or_an_old_one_is_refused_and_new_keys_are_learnt() {
    let Some(mut provider) = Provider::start(3600) else { return };
    let (world, _) = with(&provider).await;
    people::add(&world.server.context, "ann@example.org", None).await.unwrap();
    let ann = json!({"email": "ann@example.org", "email_verified": true});
    provider.knows("ann", ann.clone()).await;
    let swapped = async |provider: &Provider, name: &str| {
        let (door, cookie) = begin(&world, "").await;
        let at = door.find(&format!("{name}=")).unwrap() + name.len() + 1;
        let end = door[at..].find('&').map_or(door.len(), |length| at + length);
        let other = format!("{}another{}", &door[..at], &door[end..]);
        get(&here(&world, &provider.signs(&other, "ann").await), &cookie).await
    };
    let refused = swapped(&provider, "nonce").await;
    assert!(refused.status == 502 && refused.body.contains("nonce"), "{refused:?}");
    let refused = swapped(&provider, "client_id").await;
    assert!(refused.status == 502 && !refused.body.contains("id=\"key\""), "{refused:?}");
    assert_eq!(swapped(&provider, "state").await.status, 400);
    let denied = begin(&world, "").await;
    let state = denied.0.split("state=").nth(1).unwrap().split('&').next().unwrap();
    let back = format!("http://{}/sign-in/callback?state={state}&error=access%3Cdenied", world.server.address);
    let refused = get(&back, &denied.1).await;
    assert!(refused.status == 403 && refused.body.contains("access&lt;denied"), "{refused:?}");

    assert_eq!(sign_in(&world, &provider, "ann").await.status, 200);
    provider.rotate();
    provider.knows("ann", ann.clone()).await;
    assert_eq!(sign_in(&world, &provider, "ann").await.status, 200, "signed by a key that it did not have before");
    // An hour and a minute later by our clock.
    world.server.context.clock.push(3_600_000 + 61_000);
    let refused = sign_in(&world, &provider, "ann").await;
    assert!(refused.status == 502 && refused.body.contains("expiry"), "{refused:?}");
    world.server.context.clock.push(-3_600_000 - 61_000 - 120_000);
    let refused = sign_in(&world, &provider, "ann").await;
    assert!(refused.status == 502 && refused.body.contains("time of issue"), "{refused:?}");
    drop(provider);
    let away = get(&format!("http://{}/sign-in/callback", world.server.address), "").await;
    assert_eq!(away.status, 400, "nothing is asked for nobody");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_gets_its_key_by_the_secret_that_only_it_has() {
    let Some(provider) = Provider::start(3600) else { return };
    let (world, owner) = with(&provider).await;
    people::add(&world.server.context, "ann@example.org", Some((&owner.organization, Role::Operator))).await.unwrap();
    provider.knows("ann", json!({"email": "ann@example.org", "email_verified": true})).await;
    let secret = "only the program knows";
    let challenge = hex::encode(ring::digest::digest(&ring::digest::SHA256, secret.as_bytes()).as_ref());
    let start = format!("http://{}/sign-in/start", world.server.address);
    let wrong = ["?port=80".to_owned(), format!("?port=0&challenge={challenge}"), "?port=80&challenge=short".into()];
    for query in wrong {
        assert_eq!(get(&format!("{start}{query}"), "").await.status, 400, "{query}");
    }
    let (door, cookie) = begin(&world, &format!("?port=8123&challenge={challenge}")).await;
    let sent = get(&here(&world, &provider.signs(&door, "ann").await), &cookie).await;
    let code = sent.header("location").unwrap().strip_prefix("http://127.0.0.1:8123/?code=").unwrap();
    let asks = async |code: &str, secret: &str| {
        let question = json!({"code": code, "secret": secret}).to_string();
        http("POST", &format!("http://{}/sign-in/token", world.server.address), &[], &question).await
    };
    assert_eq!(asks(code, "a guess").await.status, 400);
    assert_eq!(asks(cookie.split_once('=').unwrap().1, secret).await.status, 400, "sealed for something else");
    assert_eq!(asks(&"0".repeat(100_000), secret).await.status, 400);
    let given = asks(code, secret).await;
    let issued: Value = serde_json::from_str(&given.body).unwrap();
    let text = |name: &str| issued[name].as_str().unwrap();
    let ann = world.login("api-key", text("key_id"), text("key")).await.unwrap();
    assert_eq!(organizations(&ann).await, Ok(1));
    world.server.context.clock.push(61_000);
    assert_eq!(asks(code, secret).await.status, 400, "too late");
    world.end().await;

    let without = World::new().await;
    assert_eq!(get(&format!("http://{}/sign-in", without.server.address), "").await.status, 404);
    without.end().await;
}
