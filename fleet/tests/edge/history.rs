//! How long it is kept what was.

use api::pb::platform::{app::v1::*, fleet::v1::*};
use fleet::{history, store::Tx};

use super::world::{Owner, World};

const DAY: i64 = 24 * 60 * 60 * 1000;

async fn change(owner: &Owner, part: &RobotPart, n: usize) {
    owner.configure(part, &format!(r#"{{"n": {n}}}"#)).await;
}

/// (former states of the part, rows of the audit log)
async fn kept(world: &World, owner: &Owner, part: &RobotPart) -> (usize, usize) {
    let request = GetRobotPartHistoryRequest { id: part.id.clone(), ..Default::default() };
    let history: GetRobotPartHistoryResponse = owner.client.app("GetRobotPartHistory", request).await.unwrap();
    let count = "SELECT COUNT(*) FROM audit";
    let rows = world
        .server
        .context
        .store
        .read::<_, fleet::store::DbError>(|tx: &Tx<'_>| tx.first(count, &[], |row| row.int(0)));
    (history.history.len(), usize::try_from(rows.await.unwrap().unwrap()).unwrap())
}

#[tokio::test]
async fn history_is_kept_for_ever_or_for_as_long_as_somebody_says() {
    let world = World::new().await;
    let context = &world.server.context;
    let owner = world.owner("Acme").await;
    let location = owner.location("North", None).await;
    let part = owner.main_part(&owner.machine(&location, "arm").await).await;
    for n in 0..5 {
        change(&owner, &part, n).await;
    }
    // More of it than goes in one step.
    let old = context.clock.now();
    let many = move |tx: &Tx<'_>| {
        let sql = "INSERT INTO audit (organization_id, happened_at, id, actor, from_address, operation, resource_type,
                       resource_id, detail) VALUES ('other', $1, $2, '', '', '', '', '', '')";
        (0..450_i64).try_for_each(|n| tx.run(sql, &[(old - n / 2).into(), (&n.to_string()).into()]).map(drop))
    };
    context.store.write::<_, fleet::store::DbError>(many).await.unwrap();
    let (_, before) = kept(&world, &owner, &part).await;
    context.clock.push(10 * DAY);
    change(&owner, &part, 5).await;
    assert_eq!(kept(&world, &owner, &part).await, (6, before + 1), "for ever");
    let round = async |audit_days, history_days| {
        let gone = history::round(context, history::Limits::new(audit_days, history_days)).await.unwrap();
        assert_eq!(gone.fragments, 0, "there is none");
        (gone.audit, gone.parts)
    };
    assert_eq!(round(Some(11), Some(11)).await, (0, 0));
    assert_eq!(round(None, Some(9)).await, (0, 5));
    assert_eq!(kept(&world, &owner, &part).await, (1, before + 1), "the one is not the other");
    assert_eq!(round(Some(9), None).await, (before, 0));
    assert_eq!(kept(&world, &owner, &part).await, (1, 1));
    let request = GetRobotPartRequest { id: part.id.clone() };
    let now: GetRobotPartResponse = owner.client.app("GetRobotPart", request).await.unwrap();
    assert!(now.config_json.contains('5'), "what is, stays");
    let list = ListAuditEventsRequest { organization_id: owner.organization.clone(), ..Default::default() };
    let told: ListAuditEventsResponse =
        owner.client.call("/platform.fleet.v1.AdminService/ListAuditEvents", list).await.unwrap();
    assert_eq!(told.events.len(), 1);
    world.end().await;
}
