//! Several servers on one database: what one of them is told, all of them know.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use api::pb::platform::{
    app::v1::*,
    common::v1::LogEntry,
    fleet::v1::{GetPartStatusRequest, GetPartStatusResponse},
};
use fleet::{
    store::{Address, Db, DbError, duties},
    wiring::{self, Options, StartError},
};
use prost::Message;
use tonic::Code;

#[path = "../world/mod.rs"]
mod world;

use world::{Client, Owner, PATIENCE, World, code, http::ask};

/// By when another server has to know.
const KNOWN_WITHIN: Duration = Duration::from_secs(2);

/// How often it is looked, and how many looks that time has on a machine that is not disturbed: on one that does a hundred
/// other things, they are what counts.
const LOOK: Duration = Duration::from_millis(20);
const LOOKS: u32 = 100;

/// Two servers, each with a folder of its own and the same key.
struct Pair {
    a: World,
    b: World,
    url: String,
}

fn options(folder: &Path, url: &str) -> Options {
    Options { folder: folder.join("data"), database: Some(Address::parse(url).unwrap()), ..Options::default() }
}

async fn another(url: &str, like: &World) -> World {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("data")).unwrap();
    fs::copy(like.folder.path().join("data/server.key"), folder.path().join("data/server.key")).unwrap();
    let server = wiring::start(options(folder.path(), url)).await.unwrap();
    World { folder, server }
}

impl Pair {
    async fn on(url: String) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let server = wiring::start(options(folder.path(), &url)).await.unwrap();
        let a = World { folder, server };
        let b = another(&url, &a).await;
        Self { a, b, url }
    }

    async fn new() -> Option<Self> {
        Some(Self::on(test_postgres::database_or_skip("several servers")?).await)
    }

    async fn end(self) {
        self.a.end().await;
        self.b.end().await;
    }
}

/// The same caller, connected to another server.
async fn at(world: &World, client: &Client) -> Client {
    Client { token: client.token.clone(), ..world.nobody().await }
}

/// Looks at what another server has to know soon.
struct Looks<'a> {
    /// Of one of the servers.
    database: &'a Db,
    begin: Instant,
    count: u32,
}

impl<'a> Looks<'a> {
    fn begin(pair: &'a Pair) -> Self {
        Self { database: &pair.a.server.context.store.state, begin: Instant::now(), count: 0 }
    }

    /// One was in vain; fails if the servers had their time. A machine that stood still has looked less often than its clock
    /// says; and so that this is also true of one whose database stood still, that is asked too.
    async fn again(&mut self, what: &str) {
        self.database.read_apart::<_, DbError, _>(duties::clock_of_database).await.unwrap();
        self.count += 1;
        let late = self.begin.elapsed() >= KNOWN_WITHIN && self.count >= LOOKS;
        assert!(!late, "{what}: not within {:?}", self.begin.elapsed());
    }
}

/// Waits until it is so; fails if that takes longer than the servers may need.
async fn soon<F: Future<Output = bool>>(pair: &Pair, what: &str, mut so: impl FnMut() -> F) {
    let mut looks = Looks::begin(pair);
    while !so().await {
        looks.again(what).await;
        tokio::time::sleep(LOOK).await;
    }
}

async fn log(device: &Client, part: &str, texts: impl IntoIterator<Item = String>) {
    let entry = |message| LogEntry { level: "info".into(), message, ..LogEntry::default() };
    let request = LogRequest { id: part.into(), logs: texts.into_iter().map(entry).collect() };
    let _: LogResponse = device.call("/platform.app.v1.RobotService/Log", request).await.unwrap();
}

struct Tail(tonic::Streaming<bytes::Bytes>);

impl Tail {
    async fn open(client: &Client, part: &str) -> Self {
        let request = TailRobotPartLogsRequest { id: part.into(), ..TailRobotPartLogsRequest::default() };
        Self(client.stream("/platform.app.v1.AppService/TailRobotPartLogs", request).await)
    }

    async fn texts(&mut self, count: usize) -> Vec<String> {
        let mut texts = Vec::new();
        while texts.len() < count {
            let message = tokio::time::timeout(PATIENCE, self.0.message()).await.expect("a line").unwrap().unwrap();
            let batch = TailRobotPartLogsResponse::decode(message).unwrap().logs;
            assert!(!batch.is_empty(), "an empty message is the end for some clients");
            texts.extend(batch.into_iter().map(|entry| entry.message));
        }
        texts
    }

    /// Why it ended; fails where that takes longer than the servers may need.
    async fn end(mut self, pair: &Pair) -> Code {
        let mut looks = Looks::begin(pair);
        loop {
            match tokio::time::timeout(LOOK, self.0.message()).await {
                Ok(end) => {
                    println!("a stream ended after {:?}", looks.begin.elapsed());
                    return code(end.map(drop));
                }
                Err(_) => looks.again("a stream ends").await,
            }
        }
    }
}

/// A machine's part, and its device on a server.
async fn device_at(world: &World, owner: &Owner, part: &RobotPart) -> Client {
    let request = GetRobotPartRequest { id: part.id.clone() };
    let found: GetRobotPartResponse = owner.client.app("GetRobotPart", request).await.unwrap();
    let secret = found.part.unwrap().secrets.pop().unwrap().secret;
    world.login("robot-secret", &part.id, &secret).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_one_server_takes_in_all_of_them_show() {
    let Some(pair) = Pair::new().await else { return };
    let owner = pair.a.owner("Acme").await;
    owner.location("North", None).await;
    let part = owner.main_part(&owner.machine("", "arm").await).await;
    // A token from one is good on all.
    let there = at(&pair.b, &owner.client).await;
    let devices = [device_at(&pair.a, &owner, &part).await, device_at(&pair.b, &owner, &part).await];
    log(&devices[0], &part.id, ["before".to_owned()]).await;
    let mut tails = [Tail::open(&owner.client, &part.id).await, Tail::open(&there, &part.id).await];
    let sent: Vec<String> = (0..200).map(|n| format!("line {n}")).collect();
    for (n, texts) in sent.chunks(10).enumerate() {
        log(&devices[n % 2], &part.id, texts.to_vec()).await;
    }
    for tail in &mut tails {
        assert_eq!(tail.texts(sent.len()).await, sent, "all of them, once, in the order they were taken in");
    }

    // Pages of one question, asked of either in turn.
    let (mut read, mut token) = (Vec::new(), String::new());
    for n in 0.. {
        let client = if n % 2 == 0 { &owner.client } else { &there };
        let request = GetRobotPartLogsRequest {
            id: part.id.clone(),
            limit: Some(30),
            page_token: Some(token),
            order: Some(LogOrder::Ascending.into()),
            ..GetRobotPartLogsRequest::default()
        };
        let page: GetRobotPartLogsResponse = client.app("GetRobotPartLogs", request).await.unwrap();
        read.extend(page.logs.into_iter().map(|entry| entry.message));
        token = page.next_page_token;
        if token.is_empty() {
            break;
        }
    }
    assert_eq!(read[0], "before");
    assert_eq!(read[1..], sent);

    // A sign of life on one is seen on the other, and stays seen when the one that heard it is gone.
    let quiet = owner.main_part(&owner.machine("", "leg").await).await;
    let device = device_at(&pair.a, &owner, &quiet).await;
    device.check_in(&quiet.id).await;
    let seen = async || {
        let request = GetRobotPartRequest { id: quiet.id.clone() };
        let found: GetRobotPartResponse = there.app("GetRobotPart", request).await.unwrap();
        found.part.unwrap().last_access.is_some()
    };
    soon(&pair, "last access", seen).await;
    pair.a.end().await;
    assert!(seen().await);
    pair.b.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_one_server_is_told_all_of_them_know() {
    let Some(pair) = Pair::new().await else { return };
    let owner = pair.a.owner("Acme").await;
    let north = owner.location("North", None).await;
    let machine = owner.machine(&north, "arm").await;
    let part = owner.main_part(&machine).await;
    let there = at(&pair.b, &owner.client).await;
    let device = device_at(&pair.b, &owner, &part).await;

    // A restart that one is asked for is answered by the other, at once.
    let mark = MarkPartForRestartRequest { part_id: part.id.clone() };
    let _: MarkPartForRestartResponse = owner.client.app("MarkPartForRestart", mark).await.unwrap();
    let request = NeedsRestartRequest { id: part.id.clone() };
    let needs: NeedsRestartResponse =
        device.call("/platform.app.v1.RobotService/NeedsRestart", request.clone()).await.unwrap();
    assert!(needs.must_restart);
    let again: NeedsRestartResponse =
        at(&pair.a, &device).await.call("/platform.app.v1.RobotService/NeedsRestart", request).await.unwrap();
    assert!(!again.must_restart, "told once, whoever is asked");

    // A configuration that was changed here is what the device gets there, although the old one was kept.
    let config = async || device.check_in(&part.id).await.advanced_settings.is_some();
    assert!(!config().await);
    let change = UpdateRobotPartRequest {
        id: part.id.clone(),
        name: part.name.clone(),
        robot_config_json: Some(r#"{"agent": {"advanced_settings": {"debug": true}}}"#.into()),
        ..UpdateRobotPartRequest::default()
    };
    let _: UpdateRobotPartResponse = owner.client.app("UpdateRobotPart", change).await.unwrap();
    soon(&pair, "a configuration", config).await;

    // A role that is given here opens what it opens there; taken away it closes that, and ends nothing that another lets in.
    let made: CreateKeyResponse =
        owner.client.app("CreateKey", owner.key_request("owner", "robot", &machine)).await.unwrap();
    let key = pair.b.login("api-key", &made.id, &made.key).await.unwrap();
    let rename = || UpdateLocationRequest {
        location_id: north.clone(),
        name: Some("North".into()),
        ..UpdateLocationRequest::default()
    };
    assert_eq!(code(key.app::<_, UpdateLocationResponse>("UpdateLocation", rename()).await), Code::PermissionDenied);
    let mut role = owner.key_request("owner", "location", &north).authorizations.remove(0);
    role.identity_id.clone_from(&made.id);
    let add = AddRoleRequest { authorization: Some(role.clone()) };
    let _: AddRoleResponse = owner.client.app("AddRole", add).await.unwrap();
    soon(&pair, "a role", async || key.app::<_, UpdateLocationResponse>("UpdateLocation", rename()).await.is_ok())
        .await;
    let mut tail = Tail::open(&key, &part.id).await;
    let _: RemoveRoleResponse =
        owner.client.app("RemoveRole", RemoveRoleRequest { authorization: Some(role) }).await.unwrap();
    soon(&pair, "no role", async || {
        let renamed = key.app::<_, UpdateLocationResponse>("UpdateLocation", rename()).await;
        code(renamed) == Code::PermissionDenied
    })
    .await;
    log(&device, &part.id, ["its other role is good".to_owned()]).await;
    assert_eq!(tail.texts(1).await, ["its other role is good"]);

    // A key that is deleted here ends what is open there, and its calls.
    let _: DeleteKeyResponse = owner.client.app("DeleteKey", DeleteKeyRequest { id: made.id.clone() }).await.unwrap();
    assert_eq!(tail.end(&pair).await, Code::Unauthenticated);
    let list = ListOrganizationsRequest {};
    assert_eq!(code(key.app::<_, ListOrganizationsResponse>("ListOrganizations", list).await), Code::Unauthenticated);

    // A machine that is deleted here is gone there: its device, and who follows its log.
    let tail = Tail::open(&there, &part.id).await;
    let _: DeleteRobotResponse =
        owner.client.app("DeleteRobot", DeleteRobotRequest { id: machine.clone() }).await.unwrap();
    assert_eq!(tail.end(&pair).await, Code::NotFound);
    let request = NeedsRestartRequest { id: part.id.clone() };
    let asked: Result<NeedsRestartResponse, _> =
        device.call("/platform.app.v1.RobotService/NeedsRestart", request).await;
    assert_eq!(code(asked), Code::Unauthenticated);
    pair.end().await;
}

/// So many rounds in which nothing woke it.
const DEAF_ROUNDS: usize = 3;

/// Wake-ups are only that: without them everything is known a little later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_never_woken_looks_by_itself() {
    if test_postgres::database_or_skip("a server that is never woken").is_none() {
        return;
    }
    let database = Arc::new(test_postgres::Server::start(&test_postgres::Options::default()).unwrap());
    let pair = Pair::on(database.database()).await;
    let owner = pair.a.owner("Acme").await;
    owner.location("North", None).await;
    let part = owner.main_part(&owner.machine("", "arm").await).await;
    let device = device_at(&pair.a, &owner, &part).await;
    let name = pair.url.rsplit('/').next().unwrap();
    let listeners = format!("pg_stat_activity WHERE datname = '{name}' AND query LIKE 'LISTEN%'");
    let all_listen = async || {
        let begin = Instant::now();
        loop {
            let (database, count) = (database.clone(), format!("SELECT COUNT(*) FROM {listeners}"));
            if tokio::task::spawn_blocking(move || database.sql("postgres", &count)).await.unwrap() == "4" {
                return;
            }
            assert!(begin.elapsed() < PATIENCE, "each server listens to both of its schemas");
            tokio::time::sleep(LOOK).await;
        }
    };
    all_listen().await;
    // From now on nobody can listen: the database itself ends each attempt, again and again.
    let deaf = format!(
        "DO $$ BEGIN
             WHILE NOT EXISTS (SELECT FROM pg_class WHERE relname = 'enough') LOOP
                 PERFORM pg_stat_clear_snapshot();
                 PERFORM pg_terminate_backend(pid) FROM {listeners};
                 PERFORM pg_sleep(0.01);
             END LOOP;
         END $$"
    );
    let deaf = std::thread::spawn({
        let database = database.clone();
        move || database.sql("postgres", &deaf)
    });
    let there = at(&pair.b, &owner.client).await;
    let store = &pair.b.server.context.store;
    let (mut state, mut logs) = (store.state.changed(), store.logs.changed());
    // Each attempt wakes whoever waits, once: a round in which there was none counts.
    let (mut keys, mut lines) = (0, 0);
    let begin = Instant::now();
    while keys < DEAF_ROUNDS || lines < DEAF_ROUNDS {
        assert!(begin.elapsed() < PATIENCE, "something always wakes it: {keys} keys, {lines} lines");
        let made: CreateKeyResponse = owner
            .client
            .app("CreateKey", owner.key_request("operator", "organization", &owner.organization))
            .await
            .unwrap();
        let key = pair.b.login("api-key", &made.id, &made.key).await.unwrap();
        let tail = Tail::open(&key, &part.id).await;
        state.mark_unchanged();
        let _: DeleteKeyResponse = owner.client.app("DeleteKey", DeleteKeyRequest { id: made.id }).await.unwrap();
        soon(&pair, "no key", async || {
            let listed =
                key.app::<_, ListOrganizationsResponse>("ListOrganizations", ListOrganizationsRequest {}).await;
            code(listed) == Code::Unauthenticated
        })
        .await;
        keys += usize::from(!state.has_changed().unwrap());
        assert_eq!(tail.end(&pair).await, Code::Unauthenticated);
        let mut tail = Tail::open(&there, &part.id).await;
        logs.mark_unchanged();
        let text = format!("after {:?}", begin.elapsed());
        log(&device, &part.id, [text.clone()]).await;
        assert_eq!(tail.texts(1).await, [text]);
        lines += usize::from(!logs.has_changed().unwrap());
    }
    tokio::task::spawn_blocking({
        let database = database.clone();
        move || database.sql("postgres", "CREATE TABLE enough ()")
    })
    .await
    .unwrap();
    deaf.join().unwrap();
    // Left alone, they listen again.
    all_listen().await;
    pair.end().await;
}

/// Takes every connection for reads, and a queue before them, until the answer is dropped.
async fn saturated(world: &World) -> std::sync::mpsc::Sender<()> {
    let (release, released) = std::sync::mpsc::channel::<()>();
    let released = Arc::new(std::sync::Mutex::new(released));
    let (told, mut taken) = tokio::sync::mpsc::unbounded_channel();
    for _ in 0..24 {
        let (store, released, told) = (world.server.context.store.clone(), released.clone(), told.clone());
        tokio::spawn(async move {
            let hold = |_: &fleet::store::Tx<'_>| {
                let _ = told.send(());
                // Until nobody can say so any more.
                let _ = released.lock().unwrap().recv();
                Ok::<_, DbError>(())
            };
            store.read(hold).await
        });
    }
    for _ in 0..8 {
        tokio::time::timeout(PATIENCE, taken.recv()).await.expect("a connection").unwrap();
    }
    release
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_whose_reads_all_wait_still_hears_the_news() {
    let Some(pair) = Pair::new().await else { return };
    let owner = pair.a.owner("Acme").await;
    owner.location("North", None).await;
    let part = owner.main_part(&owner.machine("", "arm").await).await;
    let made: CreateKeyResponse =
        owner.client.app("CreateKey", owner.key_request("operator", "robot", &part.robot)).await.unwrap();
    let key = pair.b.login("api-key", &made.id, &made.key).await.unwrap();
    let tail = Tail::open(&key, &part.id).await;
    let release = saturated(&pair.b).await;
    // Longer than a server counts on what it heard last.
    tokio::time::sleep(KNOWN_WITHIN).await;
    let freshness = &pair.b.server.context.memory.freshness;
    soon(&pair, "what is remembered counts", async || freshness.is_current()).await;
    let _: DeleteKeyResponse = owner.client.app("DeleteKey", DeleteKeyRequest { id: made.id.clone() }).await.unwrap();
    assert_eq!(tail.end(&pair).await, Code::Unauthenticated);
    drop(release);
    pair.end().await;
}

/// Often enough that one which is rounded up is met: half of them would be.
const ASKED: usize = 100;

#[tokio::test]
async fn the_time_that_all_share_is_cut_off_as_each_clock_is() {
    let Some(pair) = Pair::new().await else { return };
    let context = &pair.a.server.context;
    for _ in 0..ASKED {
        let before = context.clock.now();
        let shared = context.store.state.read_apart::<_, DbError, _>(duties::clock_of_database).await.unwrap();
        assert!((before..=context.clock.now()).contains(&shared), "{before}, {shared}, {}", context.clock.now());
    }
    pair.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_whose_clocks_differ_mean_the_same_moment() {
    let Some(pair) = Pair::new().await else { return };
    let owner = pair.a.owner("Acme").await;
    owner.location("North", None).await;
    let part = owner.main_part(&owner.machine("", "arm").await).await;
    let there = at(&pair.b, &owner.client).await;
    let live = async || {
        let request = GetPartStatusRequest { part_id: part.id.clone() };
        let status: GetPartStatusResponse =
            there.call("/platform.fleet.v1.AdminService/GetPartStatus", request).await.unwrap();
        status.live
    };
    // A's clock goes ahead by far more than a device may be silent, and A notices.
    let (a, b) = (&pair.a.server.context, &pair.b.server.context);
    assert!(a.memory.skew.is_tolerable() && b.memory.skew.is_tolerable());
    a.clock.push(3_600_000);
    a.memory.skew.measure(&a.store, &a.clock).await.unwrap();
    assert!((3_595_000..3_605_000).contains(&a.memory.skew.ahead()), "{}", a.memory.skew.ahead());
    assert!(!a.memory.skew.is_tolerable());
    // What it hears is shown by the other as what happened now.
    let device = device_at(&pair.a, &owner, &part).await;
    soon(&pair, "live there", async || {
        device.check_in(&part.id).await;
        live().await
    })
    .await;
    // And what the other wrote is believed here.
    let stored = b.store.read::<_, DbError>(|tx| fleet::store::parts::get(tx, &part.id)).await;
    let stored = stored.unwrap().unwrap().last_access.unwrap();
    assert!((b.clock.now() - stored).abs() < 60_000, "in the time that all share");
    // It takes no duty: by its clock everything is old.
    let held = async |context: &fleet::context::Context| {
        fleet::artifacts::sweep::round(context).await.unwrap();
        let holder = "SELECT server FROM duties WHERE name = 'remove artifacts'";
        let holder = context.store.read::<_, DbError>(|tx| tx.first(holder, &[], |row| row.text(0))).await;
        holder.unwrap()
    };
    assert_eq!(held(a).await, None, "nobody was there before");
    assert_eq!(held(b).await.as_ref(), Some(&b.server));
    let page = String::from_utf8(ask(&pair.a, "GET", "/metrics", &[], b"").await.body).unwrap();
    let told = page.lines().find_map(|line| line.strip_prefix("fleet_clock_ahead_seconds ")).unwrap();
    assert!(told.parse::<f64>().unwrap() > 3_000.0, "{told}");
    // Set right, it is as good as any.
    a.clock.push(-3_600_000);
    a.memory.skew.measure(&a.store, &a.clock).await.unwrap();
    assert!(a.memory.skew.is_tolerable());
    pair.end().await;
}

#[tokio::test]
async fn a_server_without_the_key_of_its_database_or_with_another_one_is_refused() {
    let Some(pair) = Pair::new().await else { return };
    let url = pair.url.clone();
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("data/server.key");
    let refused = async || match wiring::start(options(folder.path(), &pair.url)).await {
        Ok(_) => panic!("it started"),
        Err(refused) => refused,
    };
    let missing = refused().await;
    assert!(matches!(missing, StartError::MissingKey { .. }) && missing.to_string().contains("copy it"), "{missing}");
    assert!(!key.exists(), "one that opens nothing is not made");
    fs::write(&key, [7; 32]).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    let other = refused().await;
    assert!(matches!(other, StartError::OtherKey { .. }) && other.to_string().contains("copy server.key"), "{other}");
    fs::remove_file(&key).unwrap();
    pair.end().await;
    // That key is lost: this one counts from now on.
    let new = Options { new_key: true, ..options(folder.path(), &url) };
    wiring::start(new).await.unwrap().stop().await;
    wiring::start(options(folder.path(), &url)).await.unwrap().stop().await;
}
