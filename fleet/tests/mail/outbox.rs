//! The outbox by the clock: when what failed is tried again, for how long, and who is told that it is over.

use super::*;

const MINUTE: i64 = 60_000;
const DAY: i64 = 24 * 60 * MINUTE;

/// A mail server that hangs up when it is told to.
struct Rude(TcpListener);

impl Rude {
    /// Takes the next call and hangs up. When the mail is due again, in whole minutes from now; nothing if it is gone.
    async fn hangs_up(&self, world: &World) -> Option<i64> {
        let called = tokio::time::timeout(world::PATIENCE, self.0.accept()).await.expect("a call");
        // Whoever sends it has taken it until then.
        let taken = due(world).await.expect("a mail that is being sent");
        // It is taken for four minutes, and due again in four if it fails for the third time: not the same moment now.
        world.server.context.clock.push(1);
        drop(called);
        let again = async {
            loop {
                match due(world).await {
                    Some(due) if due == taken => tokio::time::sleep(Duration::from_millis(2)).await,
                    now => return now,
                }
            }
        };
        let again = tokio::time::timeout(world::PATIENCE, again).await.expect("an end of the attempt");
        again.map(|due| (due - world.server.context.clock.now() + MINUTE - 1) / MINUTE)
    }
}

/// When the only mail is due.
async fn due(world: &World) -> Option<i64> {
    let read = |tx: &fleet::store::Tx<'_>| tx.first("SELECT due_at FROM mails", &[], |row| row.int(0));
    world.server.context.store.read::<_, DbError>(read).await.unwrap()
}

async fn later(world: &World, millis: i64) {
    world.server.context.clock.push(millis);
    world.server.context.mail.as_ref().expect("a mail server").wake();
}

async fn told(world: &World) -> Vec<(String, String)> {
    let rows = "SELECT resource_id, detail FROM audit WHERE operation = 'mail not sent'";
    let read = |tx: &fleet::store::Tx<'_>| tx.all(rows, &[], |row| Ok((row.text(0)?, row.text(1)?)));
    world.server.context.store.read::<_, DbError>(read).await.unwrap()
}

async fn world_with(retry: Retry) -> (Rude, World, Owner) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (world, owner) = with(Settings { retry, ..settings(port) }).await;
    (Rude(listener), world, owner)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mail_is_tried_at_growing_intervals_for_three_days_and_then_owners_are_told() {
    let (server, world, owner) = world_with(Retry::default()).await;
    invite(&owner, "ann@example.org").await;
    let mut waits = Vec::new();
    while let Some(minutes) = server.hangs_up(&world).await {
        assert_eq!(told(&world).await, [], "after {waits:?}");
        waits.push(minutes);
        let left = due(&world).await.unwrap() - world.server.context.clock.now();
        later(&world, left + 1).await;
    }
    let expected: Vec<i64> = [1, 2, 4, 8, 16, 32].into_iter().chain([60; 70]).collect();
    assert_eq!(waits, expected, "71 hours and three minutes; another hour would be the fourth day");
    let said = told(&world).await;
    assert!(said.len() == 1 && said[0].0 == "ann@example.org" && !said[0].1.is_empty(), "{said:?}");
    let (_, page) = http(&world, "GET", "/metrics").await;
    for line in
        ["fleet_mail_attempts_failed_total 77\n", "fleet_mails_given_up_total 1\n", "fleet_mails_sent_total 0\n"]
    {
        assert!(page.contains(line), "{line}{page}");
    }
    // The invitation waits on; sending it again begins anew.
    resend(&owner, "ann@example.org", None).await;
    assert_eq!(server.hangs_up(&world).await, Some(1));
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mail_whose_link_will_be_dead_is_not_tried_again() {
    let (server, world, owner) =
        world_with(Retry { within: Duration::from_secs(30 * 86_400), ..Retry::default() }).await;
    invite(&owner, "ann@example.org").await;
    assert_eq!(server.hangs_up(&world).await, Some(1));
    // Two minutes later it would be two weeks old.
    later(&world, 14 * DAY - MINUTE).await;
    assert_eq!(server.hangs_up(&world).await, None);
    assert_eq!(told(&world).await.len(), 1);
    world.end().await;
}
