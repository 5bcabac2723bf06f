//! Members who go, keys that end, and the last owner, who does neither.

use api::pb::platform::fleet::v1::{ListAuditEventsRequest, ListAuditEventsResponse};
use fleet::{
    people::OtherKeys,
    store::{DbError, Tx},
};

use super::*;

#[tokio::test]
async fn an_organization_always_has_an_owner_who_can_sign_in() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    let org = owner.organization.clone();
    let of = |role: &str, id: &str| authorization(&owner, role, "organization", &org, id);
    let ann = person(&world, "ann@example.org").await;
    let leave = async |client: &Client, user: &str| {
        let request = DeleteOrganizationMemberRequest { organization_id: org.clone(), user_id: user.into() };
        code(client.app::<_, DeleteOrganizationMemberResponse>("DeleteOrganizationMember", request).await)
    };
    let delete = async |client: &Client, key: &str| {
        let request = DeleteKeyRequest { id: key.into() };
        code(client.app::<_, DeleteKeyResponse>("DeleteKey", request).await)
    };
    assert_eq!(remove(&owner.client, of("owner", &owner.key_id)).await, FailedPrecondition);
    assert_eq!(
        change(&owner.client, of("owner", &owner.key_id), of("operator", &owner.key_id)).await,
        FailedPrecondition
    );
    assert_eq!(add(&owner.client, of("owner", &ann.id)).await, Yes);
    assert_eq!(delete(&ann.client, &owner.key_id).await, Yes);
    assert_eq!(
        code(owner.client.app::<_, ListOrganizationsResponse>("ListOrganizations", ListOrganizationsRequest {}).await),
        Unauthenticated
    );
    // Now she is the last one, with one key.
    assert_eq!(remove(&ann.client, of("owner", &ann.id)).await, FailedPrecondition);
    assert_eq!(change(&ann.client, of("owner", &ann.id), of("operator", &ann.id)).await, FailedPrecondition);
    assert_eq!(leave(&ann.client, &ann.id).await, FailedPrecondition);
    assert_eq!(delete(&ann.client, &ann.key_id).await, FailedPrecondition);
    let like = CreateKeyFromExistingKeyAuthorizationsRequest { id: ann.key_id.clone() };
    let second: CreateKeyFromExistingKeyAuthorizationsResponse =
        ann.client.app("CreateKeyFromExistingKeyAuthorizations", like).await.unwrap();
    let second_client = world.login("api-key", &second.id, &second.key).await.unwrap();
    assert_eq!(delete(&second_client, &ann.key_id).await, Yes);
    assert_eq!(leave(&ann.client, &ann.id).await, Unauthenticated);
    assert_eq!(delete(&second_client, &second.id).await, FailedPrecondition);
    assert_eq!(leave(&second_client, "00000000-0000-4000-8000-000000000000").await, NotFound);
    assert_eq!(leave(&second_client, "ann").await, InvalidArgument);
    // An owner without a key does not count.
    let bob = person(&world, "bob@example.org").await;
    assert_eq!(add(&second_client, of("owner", &bob.id)).await, Yes);
    assert_eq!(delete(&bob.client, &bob.key_id).await, Yes, "she is there");
    assert_eq!(remove(&second_client, of("owner", &ann.id)).await, FailedPrecondition, "he cannot sign in");
    let another = people::key(&world.server.context, "BOB@example.org", OtherKeys::Stay).await.unwrap();
    assert_eq!(remove(&second_client, of("owner", &ann.id)).await, Yes);
    let bob = world.login("api-key", &another.key_id, &another.key).await.unwrap();
    assert_eq!(leave(&bob, &ann.id).await, NotFound, "no member any more");
    world.end().await;
}

#[tokio::test]
async fn whoever_was_made_a_member_may_leave_and_the_last_owner_may_not() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    let org = owner.organization.clone();
    let location = owner.location("North", None).await;
    let machine = owner.machine(&location, "arm").await;
    let (ann, bob) = (person(&world, "ann@example.org").await, person(&world, "bob@example.org").await);
    let leave = async |client: &Client, organization: &str, user: &str| {
        let request = DeleteOrganizationMemberRequest { organization_id: organization.into(), user_id: user.into() };
        code(client.app::<_, DeleteOrganizationMemberResponse>("DeleteOrganizationMember", request).await)
    };
    // With a role on all of it, and with one on a location only.
    for (kind, resource) in [("organization", &org), ("location", &location)] {
        assert_eq!(add(&owner.client, authorization(&owner, "operator", kind, resource, &ann.id)).await, Yes);
        assert_eq!(reads(&ann.client, &machine).await, Yes);
        let tail = TailRobotPartLogsRequest { id: owner.main_part(&machine).await.id, ..Default::default() };
        let mut tail = ann.client.stream("/platform.app.v1.AppService/TailRobotPartLogs", tail).await;
        assert_eq!(leave(&ann.client, &org, &ann.id).await, Yes, "{kind}");
        assert_eq!(reads(&ann.client, &machine).await, NotFound, "{kind}");
        let ended = tokio::time::timeout(world::PATIENCE, tail.message()).await.expect("its tail ends");
        assert_eq!(code(ended), NotFound, "{kind}");
        assert_eq!(leave(&ann.client, &org, &ann.id).await, NotFound, "{kind}: no member any more");
    }
    assert!(members(&owner.client, &org).await.members.is_empty());
    assert_eq!(leave(&ann.client, "acme", &ann.id).await, InvalidArgument);
    // Nobody else, by anybody who is no owner.
    assert_eq!(add(&owner.client, authorization(&owner, "owner", "organization", &org, &bob.id)).await, Yes);
    assert_eq!(leave(&ann.client, &org, &bob.id).await, NotFound);
    assert_eq!(add(&owner.client, authorization(&owner, "operator", "organization", &org, &ann.id)).await, Yes);
    assert_eq!(leave(&ann.client, &org, &bob.id).await, Denied);
    // The last owner.
    let delete = DeleteKeyRequest { id: owner.key_id.clone() };
    bob.client.app::<_, DeleteKeyResponse>("DeleteKey", delete).await.unwrap();
    assert_eq!(leave(&bob.client, &org, &bob.id).await, FailedPrecondition);
    assert_eq!(leave(&ann.client, &org, &ann.id).await, Yes);
    let asked = ListAuditEventsRequest { organization_id: org.clone(), limit: 1, page_token: String::new() };
    let told: ListAuditEventsResponse =
        bob.client.call("/platform.fleet.v1.AdminService/ListAuditEvents", asked).await.unwrap();
    let last = &told.events[0];
    assert_eq!((&*last.operation, &*last.resource_id), ("DeleteOrganizationMember", &*ann.id));
    // Others are not kept because nobody is left who could let them go.
    assert_eq!(add(&bob.client, authorization(&owner, "operator", "organization", &org, &ann.id)).await, Yes);
    let lost = bob.id.clone();
    let lose = move |tx: &Tx<'_>| tx.run("DELETE FROM api_keys WHERE user_id = $1", &[(&lost).into()]).map(drop);
    world.server.context.store.write::<_, DbError>(lose).await.unwrap();
    assert_eq!(leave(&ann.client, &org, &ann.id).await, Yes);
    world.end().await;
}

#[tokio::test]
async fn a_key_that_somebody_else_may_have_ends_with_all_others_of_that_person() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    let (ann, bob) = (person(&world, "ann@example.org").await, person(&world, "bob@example.org").await);
    let role = authorization(&owner, "operator", "organization", &owner.organization, &ann.id);
    assert_eq!(add(&owner.client, role).await, Yes);
    let like = CreateKeyFromExistingKeyAuthorizationsRequest { id: ann.key_id.clone() };
    let copy: CreateKeyFromExistingKeyAuthorizationsResponse =
        ann.client.app("CreateKeyFromExistingKeyAuthorizations", like).await.unwrap();
    let copied = world.login("api-key", &copy.id, &copy.key).await.unwrap();
    let machine = owner.machine(&owner.location("North", None).await, "arm").await;
    assert_eq!(reads(&copied, &machine).await, Yes);

    let only = people::key(&world.server.context, "ann@example.org", OtherKeys::End).await.unwrap();
    for (id, key, client) in [(&ann.key_id, &ann.key, &ann.client), (&copy.id, &copy.key, &copied)] {
        assert_eq!(reads(client, &machine).await, Unauthenticated, "on its present token");
        assert_eq!(code(world.login("api-key", id, key).await.map(drop)), Unauthenticated);
    }
    let client = world.login("api-key", &only.key_id, &only.key).await.unwrap();
    assert_eq!(reads(&client, &machine).await, Yes, "she is who she was");
    world.login("api-key", &bob.key_id, &bob.key).await.unwrap();
    world.end().await;
}
