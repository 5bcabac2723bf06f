//! What a device says: its log, and who follows it.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn logs_arrive_in_order_once_and_survive_a_restart() {
    let world = World::new().await;
    let device = world.device().await;
    assert_eq!(device.upload(1, vec![line("info", "one"), line("warn", "two")]).await.expect("taken"), 1);
    assert_eq!(device.upload(2, vec![line("error", "three")]).await.expect("taken"), 2);
    // The answer got lost, the device sends it again; also across a restart of the server.
    assert_eq!(device.upload(2, vec![line("error", "three")]).await.expect("taken"), 2);
    drop(device);
    let folder = world.stop().await;
    let world = World { server: World::start(&folder).await, folder };
    let (device, owner) = (world.device().await, world.owner().await);
    assert_eq!(device.upload(2, vec![line("error", "three")]).await.expect("taken"), 2);
    assert_eq!(device.upload(3, vec![line("info", "four")]).await.expect("taken"), 3);
    assert_eq!(device.log(PART, vec![line("info", "five")]).await.expect("taken"), LogResponse {});
    assert_eq!(device.log(PART, vec![]).await.expect("taken"), LogResponse {});

    let rising = || GetRobotPartLogsRequest { order: Some(LogOrder::Ascending.into()), ..Default::default() };
    let page = owner.logs(rising()).await.expect("reads");
    assert_eq!(messages(&page.logs), ["one", "two", "three", "four", "five"]);
    assert_eq!(page.next_page_token, "");
    let errors = GetRobotPartLogsRequest { levels: vec!["error".into()], filter: Some("THREE".into()), ..rising() };
    assert_eq!(messages(&owner.logs(errors).await.expect("reads").logs), ["three"]);
    let first = owner.logs(GetRobotPartLogsRequest { limit: Some(2), ..rising() }).await.expect("reads");
    let token = Some(first.next_page_token.clone());
    let wrong = GetRobotPartLogsRequest { page_token: token.clone(), filter: Some("x".into()), ..rising() };
    assert_eq!(owner.logs(wrong).await.map_err(|status| status.code()).err(), Some(Code::InvalidArgument));
    let rest = owner.logs(GetRobotPartLogsRequest { page_token: token, ..rising() }).await.expect("reads");
    assert_eq!(messages(&rest.logs), ["three", "four", "five"]);

    let many = (0..1000).map(|n| line("info", &n.to_string())).collect();
    assert_eq!(device.log(PART, many).await.expect("as many as there may be"), LogResponse {});
    let numbers = GetRobotPartLogsRequest { filter: Some("99".into()), ..rising() };
    assert_eq!(owner.logs(numbers).await.expect("reads").logs.len(), 19, "all of them");
    for (case, refused) in [
        ("too many", device.log(PART, vec![LogEntry::default(); 1001]).await.map(drop)),
        ("no number", device.upload(0, vec![]).await.map(drop)),
        ("an absurd number", device.upload(u64::MAX, vec![]).await.map(drop)),
    ] {
        assert_eq!(refused.map_err(|status| status.code()), Err(Code::InvalidArgument), "{case}");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tail_follows_and_ends_with_its_reader_its_key_or_the_server() {
    let world = World::new().await;
    let (device, owner) = (world.device().await, world.owner().await);
    let operator = world.client(OPERATOR, "api-key", "operator secret").await;
    let watched = || world.server.context.logs.hub.watched_parts();
    device.log(PART, vec![line("info", "before")]).await.expect("taken");
    let mut all = owner.tail(false).await.expect("a stream");
    let mut errors = operator.tail(true).await.expect("a stream");
    device.log(PART, vec![line("info", "one"), line("Error", "two")]).await.expect("taken");
    device.log(PART, vec![line("fatal", "three")]).await.expect("taken");
    let mut seen = Vec::new();
    while seen.len() < 3 {
        let batch = all.message().await.expect("goes on").expect("goes on").logs;
        assert!(!batch.is_empty(), "an empty message is the end for some clients");
        seen.extend(batch.into_iter().map(|entry| entry.message));
    }
    assert_eq!(seen, ["one", "two", "three"]);
    assert_eq!(messages(&errors.message().await.expect("goes on").expect("goes on").logs)[0], "two");

    // The reader goes away.
    drop(all);
    // The key goes away.
    let delete = |tx: &Tx<'_>| {
        news::tell(tx, News::Key(OPERATOR.into()));
        tx.run("DELETE FROM api_keys WHERE id = $1", &[OPERATOR.into()]).map(drop)
    };
    world.sql(delete).await;
    let ended = loop {
        match errors.message().await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("ended without a reason"),
            Err(status) => break status,
        }
    };
    assert_eq!(ended.code(), Code::Unauthenticated);
    eventually("freeing both streams", || watched() == 0).await;

    // The server goes away.
    let mut last = owner.tail(false).await.expect("a stream");
    let reader = tokio::spawn(async move { last.message().await.map_err(|status| status.code()) });
    eventually("following", || watched() == 1).await;
    world.stop().await;
    assert_eq!(reader.await.expect("reads"), Err(Code::Unavailable));
}
