//! What was deleted is gone from every table: only the audit log tells of it, and who changed what is still there.

use std::collections::BTreeSet;

use api::pb::platform::app::packages::v1::PackageType;
use fleet::store::DbError;
use prost::Message;

use super::{
    world::{PATIENCE, engine::ON_POSTGRES},
    *,
};

const TAIL: &str = "/platform.app.v1.AppService/TailRobotPartLogs";

/// Columns of text, of the store that is asked.
const COLUMNS: &str = match ON_POSTGRES {
    true => {
        "SELECT table_name, column_name FROM information_schema.columns
         WHERE table_schema = current_schema() AND data_type = 'text'"
    }
    false => {
        "SELECT m.name, c.name FROM sqlite_master m JOIN pragma_table_info(m.name) c
         WHERE m.type = 'table' AND c.type = 'TEXT'"
    }
};

/// Where a text of the databases has that in it: "table.column".
async fn traces(world: &World, of: &str) -> BTreeSet<String> {
    let store = &world.server.context.store;
    let mut found = BTreeSet::new();
    for database in [&store.state, &store.logs] {
        let columns =
            database.read::<_, DbError, _>(|tx| tx.all(COLUMNS, &[], |row| Ok((row.text(0)?, row.text(1)?)))).await;
        for (table, column) in columns.unwrap() {
            // Few, and as long as the test: the store takes no texts that are made while it runs.
            let sql = format!("SELECT COUNT(*) FROM {table} WHERE {column} LIKE $1").leak();
            let like = format!("%{of}%");
            let rows = database.read::<_, DbError, _>(|tx| tx.first(sql, &[(&like).into()], |row| row.int(0))).await;
            if rows.unwrap().unwrap_or_default() > 0 {
                found.insert(format!("{table}.{column}"));
            }
        }
    }
    // What was told to other servers; they forget it by themselves.
    found.remove("news.about");
    found
}

/// All that may tell of what is gone.
const AUDIT: [&str; 2] = ["audit.detail", "audit.resource_id"];

async fn does<A: Message + Default>(owner: &Owner, operation: &str, request: impl Message) -> A {
    owner.client.app(operation, request).await.unwrap_or_else(|refused| panic!("{operation}: {refused}"))
}

fn role(owner: &Owner, kind: &str, resource: &str, identity: &str) -> Authorization {
    let mut made = owner.key_request("operator", kind, resource);
    Authorization { identity_id: identity.into(), identity_type: String::new(), ..made.authorizations.remove(0) }
}

async fn invite(owner: &Owner, email: &str, authorizations: Vec<Authorization>) {
    let request = CreateOrganizationInviteRequest {
        organization_id: owner.organization.clone(),
        email: email.into(),
        authorizations,
        send_email_invite: Some(false),
    };
    does::<CreateOrganizationInviteResponse>(owner, "CreateOrganizationInvite", request).await;
}

async fn module(owner: &Owner, name: &str) -> String {
    let request = CreateModuleRequest { organization_id: owner.organization.clone(), name: name.into() };
    let id = does::<CreateModuleResponse>(owner, "CreateModule", request).await.module_id;
    let app =
        App { name: "panel".into(), r#type: "single_machine".into(), entrypoint: "i.html".into(), ..App::default() };
    let request = UpdateModuleRequest { module_id: id.clone(), apps: vec![app], ..UpdateModuleRequest::default() };
    does::<UpdateModuleResponse>(owner, "UpdateModule", request).await;
    id
}

/// A part with everything that can lie beside one.
async fn lived(world: &World, owner: &Owner, part: &RobotPart, uses: &str) {
    owner.configure(part, uses).await;
    let device = world.login("robot-secret", &part.id, &part.secrets[0].secret).await.unwrap();
    let entry = LogEntry { level: "info".into(), message: "here I am".into(), ..LogEntry::default() };
    let log = LogRequest { id: part.id.clone(), logs: vec![entry] };
    device.call::<_, LogResponse>("/platform.app.v1.RobotService/Log", log).await.unwrap();
    let report =
        ReportRequest { part_id: part.id.clone(), status: Some(DeviceStatus::default()), ..Default::default() };
    device.call::<_, ReportResponse>("/platform.fleet.v1.DeviceService/Report", report).await.unwrap();
    let data = Some(Struct::default());
    let request = UpdateRobotPartMetadataRequest { id: part.id.clone(), data };
    does::<UpdateRobotPartMetadataResponse>(owner, "UpdateRobotPartMetadata", request).await;
    let request = MarkPartForRestartRequest { part_id: part.id.clone() };
    does::<MarkPartForRestartResponse>(owner, "MarkPartForRestart", request).await;
    let request = RetryUpdateRequest { part_id: part.id.clone(), product: Product::Agent.into() };
    let path = "/platform.fleet.v1.AdminService/RetryUpdate";
    owner.client.call::<_, RetryUpdateResponse>(path, request).await.unwrap();
    let request = CreateRobotPartSecretRequest { part_id: part.id.clone() };
    does::<CreateRobotPartSecretResponse>(owner, "CreateRobotPartSecret", request).await;
}

#[tokio::test]
async fn what_is_deleted_leaves_a_line_in_the_audit_log_and_no_row_elsewhere() {
    let world = World::new().await;
    let (owner, other) = (world.owner("Acme").await, world.owner("Second").await);
    let made: CreateOrganizationResponse =
        does(&owner, "CreateOrganization", CreateOrganizationRequest { name: "Third".into() }).await;
    let third = Owner {
        organization: made.organization.unwrap().id,
        key_id: owner.key_id.clone(),
        key: owner.key.clone(),
        client: owner.client.clone(),
    };
    let base = third.fragment("base", FragmentVisibility::Private).await;
    let around = third.fragment("around", FragmentVisibility::Private).await;
    let module = module(&third, "camera").await;
    let uses = format!(r#"{{"fragments":["{base}"],"modules":[{{"module_id":"{module}","name":"c"}}]}}"#);
    let nest = UpdateFragmentRequest {
        id: around.clone(),
        name: "around".into(),
        fragment_config_json: Some(uses.clone()),
        ..Default::default()
    };
    does::<UpdateFragmentResponse>(&third, "UpdateFragment", nest).await;

    let north = third.location("North", None).await;
    let machine = third.machine(&north, "arm").await;
    let main = third.main_part(&machine).await;
    let second = NewRobotPartRequest { robot_id: machine.clone(), part_name: "wrist".into() };
    let second = does::<NewRobotPartResponse>(&third, "NewRobotPart", second).await.part_id;
    let second = GetRobotPartRequest { id: second };
    let second = does::<GetRobotPartResponse>(&third, "GetRobotPart", second).await.part.unwrap();
    for part in [&main, &second] {
        lived(&world, &third, part, &uses).await;
    }
    let secret = CreateLocationSecretRequest { location_id: north.clone() };
    does::<CreateLocationSecretResponse>(&third, "CreateLocationSecret", secret).await;
    let share = ShareLocationRequest { location_id: north.clone(), organization_id: other.organization.clone() };
    does::<ShareLocationResponse>(&third, "ShareLocation", share).await;
    let key: CreateKeyResponse = does(&third, "CreateKey", third.key_request("operator", "robot", &machine)).await;
    let member = fleet::people::add(&world.server.context, "ann@example.org", None).await.unwrap().user_id;
    for (kind, resource) in [("organization", &third.organization), ("location", &north), ("robot", &machine)] {
        let authorization = Some(role(&third, kind, resource, &member));
        does::<AddRoleResponse>(&third, "AddRole", AddRoleRequest { authorization }).await;
        // Of the invitations for one thing only, nothing is left when it is gone.
        let roles = vec![role(&third, kind, resource, "")];
        invite(&third, &format!("only-{kind}@example.org"), roles).await;
    }
    invite(&third, "withdrawn@example.org", Vec::new()).await;
    let ran = does::<RotateKeyResponse>(&third, "RotateKey", RotateKeyRequest { id: key.id.clone() }).await;

    for (what, id, operation) in [
        ("a part", &second.id, "DeleteRobotPart"),
        ("a machine", &machine, "DeleteRobot"),
        ("a location", &north, "DeleteLocation"),
        ("a fragment that uses others", &around, "DeleteFragment"),
        ("a fragment", &base, "DeleteFragment"),
        ("a key", &ran.id, "DeleteKey"),
    ] {
        let before = traces(&world, id).await;
        assert!(before.iter().any(|place| !place.starts_with("audit.")), "{what} was there: {before:?}");
        // An id is the first field of each of these.
        does::<DeleteKeyResponse>(&third, operation, DeleteKeyRequest { id: id.clone() }).await;
        let left = traces(&world, id).await;
        assert!(left.iter().all(|place| AUDIT.contains(&&**place)), "{what}: {left:?}");
        assert!(left.contains("audit.resource_id"), "{what} is told of: {left:?}");
    }
    assert!(traces(&world, &main.id).await.iter().all(|place| AUDIT.contains(&&**place)), "with its machine");
    let listed = ListAuthorizationsRequest { organization_id: third.organization.clone(), resource_ids: Vec::new() };
    let listed: ListAuthorizationsResponse = does(&third, "ListAuthorizations", listed).await;
    let whose: BTreeSet<_> = listed.authorizations.iter().map(|one| (&*one.identity_id, &*one.resource_type)).collect();
    let expected = [(&*third.key_id, "organization"), (&*member, "organization")];
    assert_eq!(whose, expected.into(), "the key's role went with the key, and others with what they were on");
    for kind in ["robot", "location"] {
        assert_eq!(
            traces(&world, &format!("only-{kind}@example.org")).await,
            BTreeSet::from(["audit.resource_id".into()])
        );
    }

    let name = "camera";
    assert!(traces(&world, name).await.contains("registry_items.name"));
    does::<DeleteRegistryItemResponse>(
        &third,
        "DeleteRegistryItem",
        DeleteRegistryItemRequest { item_id: module.clone() },
    )
    .await;
    for of in [name, "panel"] {
        let left = traces(&world, of).await;
        assert!(left.iter().all(|place| AUDIT.contains(&&**place)), "{of}: {left:?}");
    }
    let request = CreateRegistryItemRequest {
        organization_id: third.organization.clone(),
        name: "model".into(),
        r#type: PackageType::MlModel.into(),
    };
    does::<CreateRegistryItemResponse>(&third, "CreateRegistryItem", request).await;
    let request = DeleteOrganizationInviteRequest {
        organization_id: third.organization.clone(),
        email: "withdrawn@example.org".into(),
    };
    does::<DeleteOrganizationInviteResponse>(&third, "DeleteOrganizationInvite", request).await;
    assert_eq!(traces(&world, "withdrawn@example.org").await, BTreeSet::from(["audit.resource_id".into()]));

    // The organization itself, with all that is left in it.
    let fragments = FragmentImportList {
        fragments: vec![FragmentImport {
            fragment_id: third.fragment("default", FragmentVisibility::Private).await,
            ..FragmentImport::default()
        }],
    };
    let request = UpdateOrganizationRequest {
        organization_id: third.organization.clone(),
        default_fragments: Some(fragments),
        ..UpdateOrganizationRequest::default()
    };
    does::<UpdateOrganizationResponse>(&third, "UpdateOrganization", request).await;
    assert_eq!(delete_organization(&owner.client, &third.organization).await, Yes);
    let left = traces(&world, &third.organization).await;
    let told = ["audit.detail", "audit.organization_id", "audit.resource_id"];
    assert!(left.iter().all(|place| told.contains(&&**place)), "{left:?}");
    for email in ["only-organization@example.org", "ann@example.org"] {
        let left = traces(&world, email).await;
        let person = ["audit.detail", "audit.resource_id", "users.email", "api_keys.name"];
        assert!(left.iter().all(|place| person.contains(&&**place)), "{email}: {left:?}");
    }
    world.end().await;
}

#[tokio::test]
async fn a_member_who_is_removed_loses_every_role_in_the_organization_and_none_elsewhere() {
    let world = World::new().await;
    let (owner, other) = (world.owner("Acme").await, world.owner("Second").await);
    let person = fleet::people::add(&world.server.context, "ann@example.org", None).await.unwrap();
    let ann = world.login("api-key", &person.key_id, &person.key).await.unwrap();
    let north = owner.location("North", None).await;
    let hall = owner.location("Hall", Some(&north)).await;
    let (in_north, in_hall) = (owner.machine(&north, "arm").await, owner.machine(&hall, "leg").await);
    let theirs = other.machine(&other.location("South", None).await, "wing").await;
    // One of these covers others; none of them may be what is left.
    let roles = [
        (&owner, "organization", &owner.organization),
        (&owner, "location", &north),
        (&owner, "location", &hall),
        (&owner, "robot", &in_north),
        (&owner, "robot", &in_hall),
        (&other, "robot", &theirs),
    ];
    for (by, kind, resource) in roles {
        let authorization = Some(role(by, kind, resource, &person.user_id));
        does::<AddRoleResponse>(by, "AddRole", AddRoleRequest { authorization }).await;
    }
    let get = async |machine: &str| {
        code(ann.app::<_, GetRobotResponse>("GetRobot", GetRobotRequest { id: machine.into() }).await)
    };
    let mut open = Vec::new();
    for (by, machine) in [(&owner, &in_north), (&owner, &in_hall), (&other, &theirs)] {
        assert_eq!(get(machine).await, Yes);
        let tail = TailRobotPartLogsRequest { id: by.main_part(machine).await.id, ..Default::default() };
        open.push(ann.stream(TAIL, tail).await);
    }
    let mut stays = open.pop().unwrap();
    let request = DeleteOrganizationMemberRequest {
        organization_id: owner.organization.clone(),
        user_id: person.user_id.clone(),
    };
    does::<DeleteOrganizationMemberResponse>(&owner, "DeleteOrganizationMember", request).await;

    for machine in [&in_north, &in_hall] {
        assert_eq!(get(machine).await, NotFound, "on the next call, on the present token");
    }
    for mut stream in open {
        let ended = tokio::time::timeout(PATIENCE, stream.message()).await.expect("the tail ends");
        assert_eq!(code(ended), NotFound, "what somebody may not see any more is not there for them");
    }
    let listed =
        |by: &Owner| ListAuthorizationsRequest { organization_id: by.organization.clone(), resource_ids: vec![] };
    for (by, roles) in [(&owner, 0), (&other, 1)] {
        let left: ListAuthorizationsResponse = does(by, "ListAuthorizations", listed(by)).await;
        let left = left.authorizations.iter().filter(|one| one.identity_id == person.user_id).count();
        assert_eq!(left, roles);
    }
    // Elsewhere everything is as it was.
    assert_eq!(get(&theirs).await, Yes);
    let part = other.main_part(&theirs).await;
    let device = world.login("robot-secret", &part.id, &part.secret).await.unwrap();
    let entry = LogEntry { level: "info".into(), message: "still here".into(), ..LogEntry::default() };
    let log = LogRequest { id: part.id, logs: vec![entry] };
    device.call::<_, LogResponse>("/platform.app.v1.RobotService/Log", log).await.unwrap();
    let told = tokio::time::timeout(PATIENCE, stays.message()).await.expect("a line");
    let told = TailRobotPartLogsResponse::decode(told.expect("no end").expect("no end")).unwrap();
    assert_eq!(told.logs[0].message, "still here");
    let mine: ListOrganizationsResponse = ann.app("ListOrganizations", ListOrganizationsRequest {}).await.unwrap();
    assert_eq!(mine.organizations.len(), 1);
    world.end().await;
}
