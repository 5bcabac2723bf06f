//! Who uses what was published, and what that keeps from being deleted.

use super::*;

#[tokio::test]
async fn what_is_used_stays_and_what_is_not_leaves_nothing_behind() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    namespace(&owner, "acme").await;
    module(&owner, "camera").await;
    module(&owner, "twin").await;
    upload(&owner.client, info("acme:camera", "1.0.0", "any"), b"same bytes").await.unwrap();
    upload(&owner.client, info("acme:camera", "1.1.0", "any"), b"own bytes").await.unwrap();
    upload(&owner.client, info("acme:twin", "1.0.0", "any"), b"same bytes").await.unwrap();
    let location = owner.location("North", None).await;
    let machine = owner.machine(&location, "arm").await;
    let part = owner.main_part(&machine).await;
    let naming = |id: &str| format!(r#"{{"modules":[{{"name":"camera","type":"registry","module_id":"{id}"}}]}}"#);
    owner.configure(&part, &naming("acme:camera")).await;
    let told = item(&owner.client, "acme:camera").await.unwrap();
    assert_eq!((told.total_robot_usage, told.total_organization_usage, told.total_external_robot_usage), (1, 1, 0));
    let request = DeleteRegistryItemRequest { item_id: "acme:camera".into() };
    let refused = owner.client.app::<_, DeleteRegistryItemResponse>("DeleteRegistryItem", request).await.unwrap_err();
    assert_eq!(refused.code(), FailedPrecondition);
    assert!(refused.message().contains("part \"arm-main\" of machine \"arm\""), "{}", refused.message());

    // The same by the organization's id, and by a fragment.
    owner.configure(&part, &naming(&format!("{}:camera", owner.organization))).await;
    assert_eq!(delete(&owner.client, "acme:camera").await, FailedPrecondition);
    let request = CreateFragmentRequest {
        name: "base".into(),
        organization_id: owner.organization.clone(),
        ..Default::default()
    };
    let fragment: CreateFragmentResponse = owner.client.app("CreateFragment", request).await.unwrap();
    let fragment = fragment.fragment.unwrap();
    let fill = UpdateFragmentRequest {
        id: fragment.id.clone(),
        name: "base".into(),
        fragment_config_json: Some(naming("acme:camera")),
        ..Default::default()
    };
    owner.client.app::<_, UpdateFragmentResponse>("UpdateFragment", fill.clone()).await.unwrap();
    owner.configure(&part, &format!(r#"{{"fragments":["{}"]}}"#, fragment.id)).await;
    let told = get(&owner.client, "acme:camera").await.unwrap();
    assert_eq!((told.total_robot_usage, told.total_organization_usage), (1, 1), "by the fragment");
    assert_eq!(delete(&owner.client, "acme:camera").await, FailedPrecondition);

    // Somebody else names it: no use while it is private, one that is only counted while it is public.
    let other = world.owner("Other").await;
    let there = other.location("South", None).await;
    let there = other.machine(&there, "leg").await;
    let their_part = other.main_part(&there).await;
    other.configure(&their_part, &naming("acme:camera")).await;
    owner.configure(&part, "{}").await;
    let emptied = UpdateFragmentRequest { fragment_config_json: Some("{}".into()), ..fill };
    owner.client.app::<_, UpdateFragmentResponse>("UpdateFragment", emptied).await.unwrap();
    assert_eq!(item(&owner.client, "acme:camera").await.unwrap().total_robot_usage, 0);
    show(&owner.client, "acme:camera", Visibility::Public).await.unwrap();
    assert_eq!(item(&owner.client, "acme:camera").await.unwrap().total_external_robot_usage, 1);
    let request = DeleteRegistryItemRequest { item_id: "acme:camera".into() };
    let refused = owner.client.app::<_, DeleteRegistryItemResponse>("DeleteRegistryItem", request).await.unwrap_err();
    assert!(
        refused.message().contains("1 in other organizations") && !refused.message().contains("leg"),
        "{}",
        refused.message()
    );
    show(&owner.client, "acme:camera", Visibility::Private).await.unwrap();

    assert_eq!(artifacts(&world, "sha256").len(), 2);
    assert_eq!(delete(&owner.client, "acme:camera").await, Yes);
    assert_eq!(delete(&owner.client, "acme:camera").await, NotFound);
    assert_eq!(artifacts(&world, "sha256").len(), 1, "the twin's bytes stay");
    let twin =
        fetch(&world, "GET", "/packages/v1/acme/twin/1.0.0/any", &[("authorization", &bearer(&owner.client))]).await;
    assert_eq!(twin.body, b"same bytes");

    // With the organization goes what it published.
    let request = DeleteRobotRequest { id: machine };
    owner.client.app::<_, DeleteRobotResponse>("DeleteRobot", request).await.unwrap();
    let request = DeleteLocationRequest { location_id: location };
    owner.client.app::<_, DeleteLocationResponse>("DeleteLocation", request).await.unwrap();
    show(&owner.client, "acme:twin", Visibility::Public).await.unwrap();
    other.configure(&their_part, &naming("acme:twin")).await;
    let end = || DeleteOrganizationRequest { organization_id: owner.organization.clone() };
    let refused = owner.client.app::<_, DeleteOrganizationResponse>("DeleteOrganization", end()).await;
    assert_eq!(code(refused), FailedPrecondition, "others use what it published");
    other.configure(&their_part, "{}").await;
    owner.client.app::<_, DeleteOrganizationResponse>("DeleteOrganization", end()).await.unwrap();
    assert_eq!(artifacts(&world, "sha256").len(), 0);
    world.end().await;
}

#[tokio::test]
async fn what_was_configured_before_there_was_a_registry_is_noted_after_the_upgrade() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    namespace(&owner, "acme").await;
    module(&owner, "camera").await;
    let location = owner.location("North", None).await;
    for count in 0..60 {
        let machine = owner.machine(&location, &format!("arm {count}")).await;
        let part = owner.main_part(&machine).await;
        owner.configure(&part, r#"{"modules":[{"module_id":"acme:camera"}]}"#).await;
    }
    let request = CreateFragmentRequest {
        name: "base".into(),
        organization_id: owner.organization.clone(),
        ..Default::default()
    };
    let fragment: CreateFragmentResponse = owner.client.app("CreateFragment", request).await.unwrap();
    let fill = UpdateFragmentRequest {
        id: fragment.fragment.unwrap().id,
        name: "base".into(),
        fragment_config_json: Some(r#"{"modules":[{"module_id":"acme:camera"}]}"#.into()),
        ..Default::default()
    };
    owner.client.app::<_, UpdateFragmentResponse>("UpdateFragment", fill).await.unwrap();
    // As an older server would have left it.
    for table in ["DELETE FROM registry_uses", "DELETE FROM fragment_uses"] {
        let forget = move |tx: &fleet::store::Tx<'_>| tx.run(table, &[]);
        world.server.context.store.write::<_, fleet::store::DbError>(forget).await.unwrap();
    }
    assert_eq!(item(&owner.client, "acme:camera").await.unwrap().total_robot_usage, 0);
    let world = world.restart().await;
    let client = world.login("api-key", &owner.key_id, &owner.key).await.unwrap();
    assert_eq!(item(&client, "acme:camera").await.unwrap().total_robot_usage, 60);
    let request = DeleteRegistryItemRequest { item_id: "acme:camera".into() };
    let refused = client.app::<_, DeleteRegistryItemResponse>("DeleteRegistryItem", request).await.unwrap_err();
    assert!(refused.message().contains("51 more"), "the fragment too: {}", refused.message());
    world.end().await;
}
