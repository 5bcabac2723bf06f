//! Fields of answers that tell more than what was asked to be stored: names for ids, counts, versions.

use api::{
    brand,
    pb::platform::{app::v1::*, fleet::v1::*},
};
use prost::Message;

use super::world::{Client, Owner, World};

async fn told<A: Message + Default>(client: &Client, operation: &str, request: impl Message) -> A {
    client.app(operation, request).await.unwrap_or_else(|refused| panic!("{operation}: {refused}"))
}

/// A new machine's main part.
async fn part(owner: &Owner, location: &str, name: &str) -> RobotPart {
    owner.main_part(&owner.machine(location, name).await).await
}

#[tokio::test]
async fn a_part_tells_its_names_and_its_summary_what_runs_there() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    let location = owner.location("North", None).await;
    let main = part(&owner, &location, "arm").await;
    let request = NewRobotPartRequest { robot_id: main.robot.clone(), part_name: "wrist".into() };
    let second: NewRobotPartResponse = told(&owner.client, "NewRobotPart", request).await;
    let request = GetRobotPartRequest { id: second.part_id.clone() };
    let second: GetRobotPartResponse = told(&owner.client, "GetRobotPart", request).await;
    let second = second.part.unwrap();
    for (part, dns_name) in [(&main, "arm-main"), (&second, "wrist")] {
        assert_eq!(part.dns_name, dns_name);
        assert_eq!(part.fqdn, format!("{dns_name}.{location}.{}.internal", brand::NAME));
        assert_eq!(part.local_fqdn, format!("{dns_name}.{location}.local.{}.internal", brand::NAME));
    }

    let device = world.login("robot-secret", &main.id, &main.secret).await.unwrap();
    let server = ServerStatus { version: "0.118.0".into(), ..ServerStatus::default() };
    let status = DeviceStatus { agent_version: "1.2.3".into(), server: Some(server), ..DeviceStatus::default() };
    let report = ReportRequest { part_id: main.id.clone(), status: Some(status), ..ReportRequest::default() };
    device.call::<_, ReportResponse>("/platform.fleet.v1.DeviceService/Report", report).await.unwrap();
    let all: ListMachineSummariesResponse =
        told(&owner.client, "ListMachineSummaries", ListMachineSummariesRequest::default()).await;
    let [place] = &all.location_summaries[..] else { panic!("one location: {all:?}") };
    assert_eq!((&*place.location_id, &*place.location_name), (&*location, "North"));
    let [machine] = &place.machine_summaries[..] else { panic!("one machine: {all:?}") };
    assert_eq!((&machine.machine_id, &*machine.machine_name), (&main.robot, "arm"));
    let table = [
        (&main, true, Some("1.2.3"), Some("0.118.0")),
        // Nobody has told anything of it.
        (&second, false, None, None),
    ];
    assert_eq!(machine.part_summaries.len(), table.len());
    for (part, is_main, agent, server) in table {
        let summary = machine.part_summaries.iter().find(|one| one.part_id == part.id).expect("every part");
        let agent = agent.map(|version| platform_agent_version::Version::Major(version.to_owned()));
        let server = server.map(|version| platform_server_version::Version::Major(version.to_owned()));
        assert_eq!((&summary.part_name, summary.is_main_part), (&part.name, is_main));
        assert_eq!(summary.dns_name.as_deref(), Some(&*part.dns_name));
        assert_eq!(summary.platform_agent_version.clone().and_then(|of| of.version), agent, "{}", part.name);
        assert_eq!(summary.platform_server_version.clone().and_then(|of| of.version), server, "{}", part.name);
    }
    world.end().await;
}

#[tokio::test]
async fn a_location_tells_whose_it_is_and_a_member_where_they_are_one() {
    let world = World::new().await;
    let (owner, other) = (world.owner("Acme").await, world.owner("Other").await);
    let location_id = owner.location("North", None).await;
    let share = ShareLocationRequest { location_id: location_id.clone(), organization_id: other.organization.clone() };
    told::<ShareLocationResponse>(&owner.client, "ShareLocation", share).await;
    for reader in [&owner, &other] {
        let request = GetLocationRequest { location_id: location_id.clone() };
        let seen: GetLocationResponse = told(&reader.client, "GetLocation", request).await;
        let primary = OrganizationIdentity { id: owner.organization.clone(), name: "Acme".into() };
        assert_eq!(seen.location.unwrap().primary_org_identity, Some(primary));
    }

    let member = Some((&*owner.organization, fleet::authz::Role::Operator));
    let user_id = fleet::people::add(&world.server.context, "ann@example.org", member).await.unwrap().user_id;
    let details = async || {
        let request = ListOrganizationsByUserRequest { user_id: user_id.clone() };
        let mut listed: ListOrganizationsByUserResponse = told(&owner.client, "ListOrganizationsByUser", request).await;
        assert_eq!(listed.orgs.len(), 1);
        listed.orgs.remove(0)
    };
    let mut expected =
        OrgDetails { org_id: owner.organization.clone(), org_name: "Acme".into(), ..OrgDetails::default() };
    assert_eq!(details().await, expected);
    expected.org_cid = Some("customer 7".into());
    expected.public_namespace = Some("acme".into());
    let request = UpdateOrganizationRequest {
        organization_id: owner.organization.clone(),
        cid: expected.org_cid.clone(),
        public_namespace: expected.public_namespace.clone(),
        ..UpdateOrganizationRequest::default()
    };
    told::<UpdateOrganizationResponse>(&owner.client, "UpdateOrganization", request).await;
    assert_eq!(details().await, expected);
    world.end().await;
}

#[tokio::test]
async fn what_is_published_tells_how_many_use_it_here_and_elsewhere() {
    let world = World::new().await;
    let (owner, other) = (world.owner("Acme").await, world.owner("Other").await);
    let organization_id = owner.organization.clone();
    let visibility = Some(FragmentVisibility::Public.into());
    let request = CreateFragmentRequest {
        name: "base".into(),
        organization_id: organization_id.clone(),
        visibility,
        ..CreateFragmentRequest::default()
    };
    let made: CreateFragmentResponse = told(&owner.client, "CreateFragment", request).await;
    let fragment = made.fragment.unwrap().id;
    let public_namespace = Some("acme".to_owned());
    let request = UpdateOrganizationRequest {
        organization_id: organization_id.clone(),
        public_namespace,
        ..UpdateOrganizationRequest::default()
    };
    told::<UpdateOrganizationResponse>(&owner.client, "UpdateOrganization", request).await;
    let request = CreateModuleRequest { organization_id, name: "camera".into() };
    let module = told::<CreateModuleResponse>(&owner.client, "CreateModule", request).await.module_id;
    let visibility = Visibility::Public.into();
    let request = UpdateModuleRequest { module_id: module.clone(), visibility, ..UpdateModuleRequest::default() };
    told::<UpdateModuleResponse>(&owner.client, "UpdateModule", request).await;

    let (north, south) = (owner.location("North", None).await, other.location("South", None).await);
    let parts = [
        (&owner, part(&owner, &north, "arm").await),
        (&other, part(&other, &south, "leg").await),
        (&other, part(&other, &south, "eye").await),
    ];
    let uses = format!(r#"{{"fragments":["{fragment}"],"modules":[{{"module_id":"{module}","name":"c"}}]}}"#);
    // Parts (each of another machine) and organizations that use it; machines and organizations elsewhere.
    for (users, expected) in [(0_usize, (0, 0, 0, 0)), (1, (1, 1, 0, 0)), (2, (2, 2, 1, 1)), (3, (3, 2, 2, 1))] {
        if let Some((whose, part)) = users.checked_sub(1).map(|last| &parts[last]) {
            whose.configure(part, &uses).await;
        }
        let (all, organizations, machines_elsewhere, organizations_elsewhere) = expected;
        for reader in [&owner, &other] {
            let request = GetFragmentRequest { id: fragment.clone(), ..GetFragmentRequest::default() };
            let seen: GetFragmentResponse = told(&reader.client, "GetFragment", request).await;
            let seen = seen.fragment.unwrap();
            assert_eq!((&*seen.organization_name, &seen.organization_owner), ("Acme", &owner.organization));
            assert_eq!((seen.robot_part_count, seen.organization_count), (all, organizations), "{users}");
            assert_eq!(seen.only_used_by_owner, organizations_elsewhere == 0, "{users}");
            let request = GetRegistryItemRequest { item_id: module.clone(), ..GetRegistryItemRequest::default() };
            let seen: GetRegistryItemResponse = told(&reader.client, "GetRegistryItem", request).await;
            let seen = seen.item.unwrap();
            let counted = (seen.total_robot_usage, seen.total_organization_usage);
            assert_eq!(counted, (i64::from(all), i64::from(organizations)), "{users}");
            let elsewhere = (seen.total_external_robot_usage, seen.total_external_organization_usage);
            assert_eq!(elsewhere, (machines_elsewhere, organizations_elsewhere), "{users}");
        }
    }
    world.end().await;
}
