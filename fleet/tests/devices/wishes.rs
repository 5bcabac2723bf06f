//! What a device is asked to do: restarts, updates to be tried again.

use super::*;

/// Somebody wished for a restart at that moment.
async fn mark(world: &World, at: i64) {
    let wish = "UPDATE parts SET restart_marked_at = $2 WHERE id = $1";
    world.sql(move |tx| tx.run(wish, &[PART.into(), at.into()]).map(drop)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_is_told_once_and_cleared_by_the_call_after_that() {
    let world = World::new().await;
    let device = world.device().await;
    assert!(!device.must_restart().await);
    mark(&world, Clock::default().now()).await;
    device.log(PART, vec![line("info", "a batch clears nothing")]).await.expect("taken");
    assert!(device.must_restart().await);
    assert!(!device.must_restart().await, "the call after the one that said so clears the mark");
    assert!(!device.must_restart().await);
    // Marked again after it was told: told again.
    mark(&world, Clock::default().now()).await;
    assert!(device.must_restart().await);
    mark(&world, Clock::default().now() + 5).await;
    assert!(device.must_restart().await);
    assert!(!device.must_restart().await);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_calls_at_once_one_is_told_to_restart() {
    let world = World::new().await;
    let device = world.device().await;
    for round in 0..20 {
        let at = Clock::default().now() + round;
        mark(&world, at).await;
        let calls = [device.must_restart(), device.must_restart(), device.must_restart(), device.must_restart()];
        let [a, b, c, d] = calls;
        let (a, b, c, d) = tokio::join!(a, b, c, d);
        assert_eq!([a, b, c, d].iter().filter(|told| **told).count(), 1, "round {round}");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_is_told_again_to_a_device_that_may_not_have_heard() {
    let world = World::new().await;
    let device = world.device().await;
    let now = Clock::default().now();
    mark(&world, now - 60_000).await;
    let unheard = |started_ago: i64| {
        let started_at = Some(timestamp(now - started_ago));
        let server = Some(ServerStatus { started_at, ..ServerStatus::default() });
        let status = Some(DeviceStatus { device_time: Some(timestamp(now)), server, ..DeviceStatus::default() });
        ReportRequest { status, restart_answer_lost: true, ..ReportRequest::default() }
    };
    for _ in 0..3 {
        assert!(device.must_restart().await);
        device.report_with(unheard(120_000)).await.expect("kept");
    }
    // A start later than the mark ends it, heard or not.
    assert!(device.must_restart().await);
    device.report_with(unheard(1_000)).await.expect("kept");
    assert!(!device.must_restart().await);
    device.report_with(unheard(1_000)).await.expect("kept");
    assert!(!device.must_restart().await, "nobody marked it");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_was_told_before_the_mark_does_not_end_it_however_late_a_report_arrives() {
    let world = World::new().await;
    let device = world.device().await;
    let report = |started: i64, sent: i64| {
        let server = Some(ServerStatus { started_at: Some(timestamp(started)), pid: 7, ..ServerStatus::default() });
        let status = Some(DeviceStatus { device_time: Some(timestamp(sent)), server, ..DeviceStatus::default() });
        ReportRequest { status, ..ReportRequest::default() }
    };
    let now = Clock::default().now();
    device.report_with(report(now - 1_000, now)).await.expect("kept");
    mark(&world, now - 500).await;
    // Sent right after the start, and on its way for longer than the mark is old: by this server's clock the start is
    // later than the mark.
    device.report_with(report(now - 1_000, now - 999)).await.expect("kept");
    assert!(device.must_restart().await, "the wish stands");
    // Another start ends it.
    device.report_with(report(now - 100, now)).await.expect("kept");
    assert!(!device.must_restart().await);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_to_be_tried_again_is_told_until_it_is_done() {
    let world = World::new().await;
    let device = world.device().await;
    let owner = world.owner().await;
    let ask = || async {
        let request = RetryUpdateRequest { part_id: PART.into(), product: Product::MachineServer.into() };
        owner
            .call::<_, RetryUpdateResponse>("platform.fleet.v1.AdminService/RetryUpdate", request)
            .await
            .expect("answers");
    };
    let report = |retried| {
        let update = |product: Product| UpdateStatus { product: product.into(), retried, ..UpdateStatus::default() };
        let updates = vec![update(Product::Agent), update(Product::MachineServer)];
        device.report(DeviceStatus { updates, ..DeviceStatus::default() })
    };
    assert_eq!(report(0).await.expect("kept").retries, []);
    ask().await;
    let [first] = report(0).await.expect("kept").retries[..] else { panic!("one wish") };
    assert_eq!(first.product(), Product::MachineServer);
    assert_eq!(report(0).await.expect("kept").retries, [first], "told until it is done");
    assert_eq!(report(first.edition).await.expect("kept").retries, []);
    // Another wish has another number, also when the clock went back.
    world.server.context.clock.push(-3_600_000);
    ask().await;
    let [second] = report(first.edition).await.expect("kept").retries[..] else { panic!("another wish") };
    assert!(second.edition > first.edition);
    assert_eq!(report(second.edition).await.expect("kept").retries, []);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_is_cleared_by_a_start_later_than_the_mark() {
    let world = World::new().await;
    let device = world.device().await;
    let now = Clock::default().now();
    mark(&world, now - 60_000).await;
    // The device's clock is a year behind; what counts is how long ago the start was.
    let there = now - 365 * 86_400_000;
    let status = |started_ago: i64| DeviceStatus {
        device_time: Some(timestamp(there)),
        server: Some(ServerStatus { started_at: Some(timestamp(there - started_ago)), ..ServerStatus::default() }),
        ..DeviceStatus::default()
    };
    device.report(status(120_000)).await.expect("kept");
    assert!(device.must_restart().await, "a start before the mark clears nothing");
    device.report(status(10_000)).await.expect("kept");
    assert!(!device.must_restart().await);
    assert!(!device.must_restart().await);

    let bloated = DeviceStatus { warnings: vec!["x".repeat(100_000)], ..DeviceStatus::default() };
    assert_eq!(device.report(bloated).await.map_err(|status| status.code()), Err(Code::InvalidArgument));
    world.stop().await;
}
