//! Following a log: what a reader is sent that is slow or wants little, and how its roles reach what it follows.

use std::ops::Range;

use super::*;

/// So wide that a ring of the server holds a small part of all of them.
fn wide(numbers: Range<usize>) -> Vec<LogEntry> {
    numbers.map(|number| line("info", &format!("{number} {}", "x".repeat(1_000)))).collect()
}

type Tail = tonic::Streaming<TailRobotPartLogsResponse>;

impl Client {
    async fn follow(&self, request: TailRobotPartLogsRequest) -> Result<Tail, Status> {
        let path = PathAndQuery::from_static("/platform.app.v1.AppService/TailRobotPartLogs");
        let request = TailRobotPartLogsRequest { id: PART.into(), ..request };
        let codec = ProstCodec::<TailRobotPartLogsRequest, TailRobotPartLogsResponse>::default();
        Ok(self.grpc().await.server_streaming(self.request(request), path, codec).await?.into_inner())
    }

    async fn app<Q: prost::Message + 'static, A: prost::Message + Default + 'static>(
        &self,
        name: &str,
        request: Q,
    ) -> Result<A, Status> {
        self.call(&format!("platform.app.v1.AppService/{name}"), request).await
    }
}

/// The same caller on a connection on which little is on its way to who does not read.
async fn idle(world: &World, client: &Client) -> Client {
    let address = Connection::from_shared(format!("http://{}", world.server.address)).expect("an address");
    let address = address.initial_stream_window_size(65_535).initial_connection_window_size(65_535);
    Client { connection: address.connect().await.expect("connects"), ..client.clone() }
}

/// The next message, which is none without lines: some clients take that for the end.
async fn next(tail: &mut Tail) -> Result<Vec<LogEntry>, Status> {
    let message = tokio::time::timeout(PATIENCE, tail.message()).await.expect("a message")?;
    let lines = message.expect("a stream ends with its reason").logs;
    assert!(!lines.is_empty(), "an empty message is the end for some clients");
    Ok(lines)
}

async fn lines(tail: &mut Tail, count: usize) -> Vec<String> {
    let mut lines = Vec::new();
    while lines.len() < count {
        lines.extend(next(tail).await.expect("goes on").into_iter().map(|entry| entry.message));
    }
    lines
}

/// A line that all of them read, which shows that they are open. Whoever reads one has looked whether it may, and looks once
/// more a second later: who was open before has looked in between.
async fn all_read(device: &Client, text: &str, tails: &mut [&mut Tail]) {
    device.log(PART, vec![line("info", text)]).await.expect("taken");
    for tail in tails {
        assert_eq!(lines(tail, 1).await, [text]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_does_not_read_is_told_what_it_missed_and_holds_nobody_up() {
    const CALLS: usize = 40;
    const LINES: usize = 100;
    let world = World::new().await;
    let (device, owner) = (world.device().await, world.owner().await);
    let mut slow = idle(&world, &owner).await.tail(false).await.expect("a stream");
    let mut fast = owner.tail(false).await.expect("a stream");
    for call in 0..CALLS {
        let numbers = call * LINES..(call + 1) * LINES;
        device.log(PART, wide(numbers.clone())).await.expect("acknowledged, whoever reads");
        let seen = lines(&mut fast, LINES).await;
        let expected = wide(numbers).into_iter().map(|entry| entry.message);
        assert!(seen.into_iter().eq(expected), "who reads sees every line meanwhile");
    }
    // Then it reads: each line that there was, in order, or that it was missed.
    let (mut place, mut missed) = (0, 0);
    while place < CALLS * LINES {
        for entry in next(&mut slow).await.expect("goes on") {
            let number: usize = entry.message.split(' ').next().unwrap().parse().expect("a number comes first");
            if entry.logger_name == "fleet.tail" {
                let rest = entry.message.split_once(' ').expect("words").1;
                assert_eq!(rest, "lines missed: this reader is slower than the part writes");
                assert_eq!((&*entry.level, entry.time.is_some()), ("warn", true));
                (place, missed) = (place + number, missed + number);
            } else {
                assert_eq!(number, place, "neither lost without a word nor twice");
                place += 1;
            }
        }
    }
    assert_eq!(place, CALLS * LINES);
    assert!(missed > CALLS * LINES / 4, "{missed} missed: it has read all the time");
    device.log(PART, vec![line("info", "live")]).await.expect("acknowledged");
    for tail in [&mut slow, &mut fast] {
        assert_eq!(lines(tail, 1).await, ["live"], "it goes on with what comes");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_does_not_read_hears_all_the_same_why_it_ended() {
    let world = World::new().await;
    let (device, owner) = (world.device().await, world.owner().await);
    let idle = idle(&world, &world.client(OPERATOR, "api-key", "operator secret").await).await;
    let mut slow = idle.tail(false).await.expect("a stream");
    // More than is on its way to it at most.
    for call in 0..20 {
        device.log(PART, wide(call * 100..(call + 1) * 100)).await.expect("taken");
    }
    let mut fast = owner.tail(false).await.expect("a stream");
    device.log(PART, vec![line("info", "shown")]).await.expect("taken");
    assert_eq!(lines(&mut fast, 1).await, ["shown"], "all of them were shown");
    drop(fast);
    owner.app::<_, DeleteKeyResponse>("DeleteKey", DeleteKeyRequest { id: OPERATOR.into() }).await.expect("deleted");
    eventually("the end of the stream", || world.server.context.logs.hub.watched_parts() == 0).await;
    let ended = loop {
        if let Err(status) = next(&mut slow).await {
            break status;
        }
    };
    assert_eq!(ended.code(), Code::Unauthenticated, "{ended:?}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_wants_little_is_sent_no_empty_message() {
    let world = World::new().await;
    let (device, owner) = (world.device().await, world.owner().await);
    let filter = |filter: &str, errors_only| TailRobotPartLogsRequest {
        filter: Some(filter.into()),
        errors_only,
        ..TailRobotPartLogsRequest::default()
    };
    let mut rare = owner.follow(filter("needle", false)).await.expect("a stream");
    let mut errors = owner.follow(filter("NEEDLE", true)).await.expect("a stream");
    let mut all = owner.tail(false).await.expect("a stream");
    let hay = |lines: usize| (0..lines).map(|_| line("info", "hay")).collect::<Vec<_>>();
    for turn in 0..8 {
        // Blocks of which nothing is wanted; one that nobody can read, and one with a line that nobody can read.
        device.log(PART, hay(200)).await.expect("taken");
        let unreadable: [&'static [u8]; 2] = [&[0xff; 40], &[0x0a, 2, 0xff, 0xff]];
        for body in unreadable {
            let put = move |tx: &Tx<'_>| {
                let sql = "INSERT INTO log_blocks (id, part_id, first_ms, last_ms, levels, bytes, body)
                           SELECT MAX(id) + 1, $1, MAX(last_ms), MAX(last_ms), -1, 40, $2 FROM log_blocks";
                tx.run(sql, &[PART.into(), fleet::store::Arg::Blob(body)])
            };
            assert_eq!(world.server.context.store.logs.write::<_, DbError, _>(put).await.expect("put"), 1);
        }
        device
            .log(PART, [hay(50), vec![line("error", &format!("needle {turn}"))], hay(50)].concat())
            .await
            .expect("taken");
        // Whoever waits sees it before more comes, so that nobody misses a line.
        let needle = format!("needle {turn}");
        assert_eq!(lines(&mut all, 301).await.iter().filter(|line| **line == needle).count(), 1);
        for tail in [&mut rare, &mut errors] {
            assert_eq!(lines(tail, 1).await, [&*needle]);
        }
    }
    // Pages: of blocks that hold nothing that is wanted comes no page but the last one, and no token leads to nothing.
    for (filter, found) in [("needle", 8), ("hay", 8 * 300), ("nothing of all", 0)] {
        for (limit, order) in [(1, LogOrder::Descending), (7, LogOrder::Ascending), (1000, LogOrder::Descending)] {
            if found / limit > 500 {
                continue;
            }
            let (mut token, mut seen) = (None, 0);
            loop {
                let request = GetRobotPartLogsRequest {
                    filter: Some(filter.into()),
                    page_token: token,
                    limit: i64::try_from(limit).ok(),
                    order: Some(order.into()),
                    ..GetRobotPartLogsRequest::default()
                };
                let page = owner.logs(request).await.expect("a page");
                seen += page.logs.len();
                assert!(seen <= found, "{filter} by {limit}: some of them twice");
                if page.next_page_token.is_empty() {
                    break;
                }
                assert!(!page.logs.is_empty(), "a token beside an empty page");
                token = Some(page.next_page_token);
            }
            assert_eq!(seen, found, "{filter} by {limit}");
        }
    }
    world.stop().await;
}

fn role(key: &str, role: &str, kind: &str, resource: &str) -> Option<Authorization> {
    Some(Authorization {
        authorization_type: "role".into(),
        authorization_id: format!("{kind}_{role}"),
        resource_type: kind.into(),
        resource_id: resource.into(),
        identity_id: key.into(),
        organization_id: ORGANIZATION.into(),
        identity_type: "api-key".into(),
    })
}

/// On PostgreSQL, a second server of the same database; else the same one.
async fn elsewhere(world: &World) -> (Option<(TempDir, Running)>, String) {
    let Some(database) = engine::database(world.folder.path()) else {
        return (None, world.server.address.to_string());
    };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let data = folder.path().join("data");
    std::fs::create_dir(&data).expect("a folder");
    std::fs::copy(world.folder.path().join("data/server.key"), data.join("server.key")).expect("the same key");
    let options = Options { folder: data, database: Some(database), ..Options::default() };
    let server = wiring::start(options).await.expect("starts");
    let address = server.address.to_string();
    (Some((folder, server)), address)
}

/// A key's roles change while it follows a log: it goes on as long as one of them lets it, and ends with what it may not see.
#[tokio::test(flavor = "multi_thread")]
async fn a_tail_goes_on_with_the_roles_that_its_key_has_by_now_and_ends_with_the_last_that_lets_it() {
    let world = World::new().await;
    let (device, owner) = (world.device().await, world.owner().await);
    let (second, address) = elsewhere(&world).await;
    let at = async |client: &Client| {
        let connection = Connection::from_shared(format!("http://{address}")).expect("an address");
        Client { connection: connection.connect().await.expect("connects"), ..client.clone() }
    };
    let operator = at(&world.client(OPERATOR, "api-key", "operator secret").await).await;
    let mut stays = operator.tail(false).await.expect("a stream");
    let made = async |kind: &str, resource: &str| -> CreateKeyResponse {
        let authorizations = role("", "operator", kind, resource).into_iter().collect();
        owner.app("CreateKey", CreateKeyRequest { authorizations, name: "temporary".into() }).await.expect("made")
    };
    let add = async |one| {
        owner.app::<_, AddRoleResponse>("AddRole", AddRoleRequest { authorization: one }).await.expect("added");
    };
    let remove = async |one| {
        let request = RemoveRoleRequest { authorization: one };
        owner.app::<_, RemoveRoleResponse>("RemoveRole", request).await.expect("taken");
    };
    let change = async |old, new| {
        let request = ChangeRoleRequest { old_authorization: old, new_authorization: new };
        owner.app::<_, ChangeRoleResponse>("ChangeRole", request).await.expect("changed");
    };
    let on = |key: &str, kind: &str, resource: &str| role(key, "operator", kind, resource);
    // Each round: something changes for the one that stays, then another one loses sight of the part.
    for round in 0..4 {
        match round {
            0 => add(on(OPERATOR, "location", LOCATION)).await,
            1 => remove(on(OPERATOR, "robot", MACHINE)).await,
            2 => change(on(OPERATOR, "location", LOCATION), role(OPERATOR, "owner", "location", LOCATION)).await,
            _ => {
                change(role(OPERATOR, "owner", "location", LOCATION), on(OPERATOR, "organization", ORGANIZATION)).await
            }
        }
        let key = made("robot", MACHINE).await;
        let client = at(&world.client(&key.id, "api-key", &key.key).await).await;
        let mut loses = client.tail(false).await.expect("a stream");
        all_read(&device, &format!("before {round}"), &mut [&mut stays, &mut loses]).await;
        remove(on(&key.id, "robot", MACHINE)).await;
        let ended = next(&mut loses).await.expect_err("it may not see it any more");
        assert_eq!(ended.code(), Code::NotFound, "{ended:?}");
        all_read(&device, &format!("after {round}"), &mut [&mut stays]).await;
    }
    // What it may by its new roles ends with them, and its key is none the worse for it.
    remove(on(OPERATOR, "organization", ORGANIZATION)).await;
    let ended = next(&mut stays).await.expect_err("nothing lets it");
    assert_eq!(ended.code(), Code::NotFound, "{ended:?}");
    add(on(OPERATOR, "robot", MACHINE)).await;
    let again = async {
        loop {
            match operator.tail(false).await {
                Ok(tail) => return tail,
                Err(status) => assert_eq!(status.code(), Code::NotFound, "its token is good: {status:?}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let mut again = tokio::time::timeout(PATIENCE, again).await.expect("it is let in");
    // With other roles since, it hears all the same that its key is deleted, or changed.
    add(on(OPERATOR, "location", LOCATION)).await;
    let key = made("robot", MACHINE).await;
    let mut rotated = at(&world.client(&key.id, "api-key", &key.key).await).await.tail(false).await.expect("a stream");
    add(on(&key.id, "location", LOCATION)).await;
    all_read(&device, "both", &mut [&mut again, &mut rotated]).await;
    let request = DeleteKeyRequest { id: OPERATOR.into() };
    owner.app::<_, DeleteKeyResponse>("DeleteKey", request).await.expect("deleted");
    owner.app::<_, RotateKeyResponse>("RotateKey", RotateKeyRequest { id: key.id }).await.expect("rotated");
    for mut tail in [again, rotated] {
        let ended = next(&mut tail).await.expect_err("the key is not good any more");
        assert_eq!(ended.code(), Code::Unauthenticated, "{ended:?}");
    }
    if let Some((_folder, server)) = second {
        server.stop().await;
    }
    world.stop().await;
}

/// What was missed of the news may be anything: whoever is still who it was goes on, and whose key is gone does not.
#[tokio::test(flavor = "multi_thread")]
async fn who_still_may_follows_on_when_news_was_missed() {
    let world = World::new().await;
    let (device, owner) = (world.device().await, world.owner().await);
    let mut stays = world.client(OPERATOR, "api-key", "operator secret").await.tail(false).await.expect("a stream");
    // Twice: by the second end the one that stays has looked after the first news.
    for round in 0..2 {
        let authorizations = role("", "operator", "robot", MACHINE).into_iter().collect();
        let request = CreateKeyRequest { authorizations, name: "temporary".into() };
        let key: CreateKeyResponse = owner.app("CreateKey", request).await.expect("made");
        let mut ends = world.client(&key.id, "api-key", &key.key).await.tail(false).await.expect("a stream");
        all_read(&device, &format!("before {round}"), &mut [&mut stays, &mut ends]).await;
        // Gone without a word, and then it is known that something was missed.
        world.sql(move |tx| tx.run("DELETE FROM api_keys WHERE id = $1", &[(&key.id).into()]).map(drop)).await;
        let missed = |tx: &Tx<'_>| {
            news::tell(tx, News::Everything);
            Ok(())
        };
        world.sql(missed).await;
        let ended = next(&mut ends).await.expect_err("its key is gone");
        assert_eq!(ended.code(), Code::Unauthenticated, "{ended:?}");
        all_read(&device, &format!("after {round}"), &mut [&mut stays]).await;
    }
    world.stop().await;
}
