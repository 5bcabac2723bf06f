//! People, their roles and their keys: given, taken, exchanged, invited; and what others learn of them.

mod world;

#[path = "people/leaving.rs"]
mod leaving;
#[path = "people/links.rs"]
mod links;

use api::pb::platform::app::v1::*;
use fleet::people;
use tonic::Code;
use world::{Client, Owner, World, code};

use Code::{
    AlreadyExists, FailedPrecondition, InvalidArgument, NotFound, Ok as Yes, PermissionDenied as Denied,
    Unauthenticated,
};

/// A person of this server, and a client with their key.
struct Person {
    id: String,
    key_id: String,
    key: String,
    client: Client,
}

async fn person(world: &World, email: &str) -> Person {
    let made = people::add(&world.server.context, email, None).await.unwrap();
    let client = world.login("api-key", &made.key_id, &made.key).await.unwrap();
    Person { id: made.user_id, key_id: made.key_id, key: made.key, client }
}

fn authorization(owner: &Owner, role: &str, kind: &str, resource: &str, identity: &str) -> Authorization {
    Authorization {
        authorization_type: "role".into(),
        authorization_id: format!("{kind}_{role}"),
        resource_type: kind.into(),
        resource_id: resource.into(),
        identity_id: identity.into(),
        organization_id: owner.organization.clone(),
        identity_type: String::new(),
    }
}

async fn add(client: &Client, authorization: Authorization) -> Code {
    let request = AddRoleRequest { authorization: Some(authorization) };
    code(client.app::<_, AddRoleResponse>("AddRole", request).await)
}

async fn remove(client: &Client, authorization: Authorization) -> Code {
    let request = RemoveRoleRequest { authorization: Some(authorization) };
    code(client.app::<_, RemoveRoleResponse>("RemoveRole", request).await)
}

async fn change(client: &Client, old: Authorization, new: Authorization) -> Code {
    let request = ChangeRoleRequest { old_authorization: Some(old), new_authorization: Some(new) };
    code(client.app::<_, ChangeRoleResponse>("ChangeRole", request).await)
}

async fn authorizations(client: &Client, organization: &str, resources: &[&str]) -> Result<Vec<String>, Code> {
    let request = ListAuthorizationsRequest {
        organization_id: organization.into(),
        resource_ids: resources.iter().map(ToString::to_string).collect(),
    };
    let listed = client.app::<_, ListAuthorizationsResponse>("ListAuthorizations", request).await;
    let listed = listed.map_err(|refused| refused.code())?;
    let text = |one: Authorization| format!("{} {} {}", one.identity_type, one.authorization_id, one.identity_id);
    Ok(listed.authorizations.into_iter().map(text).collect())
}

async fn reads(client: &Client, machine: &str) -> Code {
    code(client.app::<_, GetRobotResponse>("GetRobot", GetRobotRequest { id: machine.into() }).await)
}

async fn members(client: &Client, organization: &str) -> ListOrganizationMembersResponse {
    let request = ListOrganizationMembersRequest { organization_id: organization.into() };
    client.app("ListOrganizationMembers", request).await.unwrap()
}

#[tokio::test]
async fn roles_are_given_taken_and_exchanged_and_take_effect_on_the_next_call() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    let org = owner.organization.clone();
    let location = owner.location("North", None).await;
    let machine = owner.machine(&location, "arm").await;
    let ann = person(&world, "Ann@Example.org").await;
    let stranger = world.owner("Strangers").await;
    assert_eq!(reads(&ann.client, &machine).await, NotFound);

    let on = |role: &str, kind: &str, resource: &str| authorization(&owner, role, kind, resource, &ann.id);
    assert_eq!(add(&owner.client, on("operator", "location", &location)).await, Yes);
    assert_eq!(reads(&ann.client, &machine).await, Yes, "on her present token");
    assert_eq!(add(&owner.client, on("operator", "location", &location)).await, Yes, "once more changes nothing");
    assert_eq!(authorizations(&owner.client, &org, &[]).await.unwrap().len(), 2);
    assert_eq!(
        authorizations(&owner.client, &org, &[&location]).await,
        Ok(vec![format!("user location_operator {}", ann.id)])
    );

    // Operator of a location becomes owner of a machine there, in one step or not at all.
    let nobody = "00000000-0000-4000-8000-000000000000";
    let wrong = Authorization { identity_id: nobody.into(), ..on("owner", "robot", &machine) };
    assert_eq!(change(&owner.client, on("operator", "location", &location), wrong).await, NotFound);
    assert_eq!(authorizations(&owner.client, &org, &[&location]).await.unwrap().len(), 1, "nothing was taken");
    let since = members(&owner.client, &org).await.members[0].date_added;
    assert_eq!(change(&owner.client, on("operator", "location", &location), on("owner", "robot", &machine)).await, Yes);
    assert_eq!(members(&owner.client, &org).await.members[0].date_added, since);
    let request = UpdateRobotRequest { id: machine.clone(), name: "renamed".into(), location: String::new() };
    assert_eq!(code(ann.client.app::<_, UpdateRobotResponse>("UpdateRobot", request).await), Yes);
    assert_eq!(
        change(&owner.client, on("operator", "location", &location), on("owner", "robot", &machine)).await,
        NotFound,
        "that role is gone"
    );

    // Keys too: the organization's own, and nobody else's.
    let made = owner.key_request("operator", "robot", &machine);
    let made: CreateKeyResponse = owner.client.app("CreateKey", made).await.unwrap();
    let key = |role: &str, id: &str| authorization(&owner, role, "organization", &org, id);
    assert_eq!(add(&owner.client, key("operator", &made.id)).await, Yes);
    assert_eq!(add(&owner.client, key("operator", &stranger.key_id)).await, NotFound);
    assert_eq!(add(&owner.client, key("operator", &ann.key_id)).await, NotFound, "roles are hers, not her key's");
    let typed = |word: &str, id: &str| Authorization { identity_type: word.into(), ..key("operator", id) };
    let foreign = stranger.location("theirs", None).await;
    let table = [
        ("the right type", typed("api-key", &made.id), Yes),
        ("the wrong type", typed("user", &made.id), NotFound),
        ("no type", typed("robot", &made.id), InvalidArgument),
        ("no identity", typed("", ""), InvalidArgument),
        (
            "no role",
            Authorization { authorization_id: "organization_admin".into(), ..key("owner", &made.id) },
            InvalidArgument,
        ),
        ("no kind", Authorization { resource_type: "fragment".into(), ..key("owner", &made.id) }, InvalidArgument),
        ("torn", Authorization { authorization_id: "robot_owner".into(), ..key("owner", &made.id) }, InvalidArgument),
        ("no such place", on("owner", "location", nobody), NotFound),
        ("another's place", on("owner", "location", &foreign), NotFound),
        (
            "another organization",
            Authorization { organization_id: stranger.organization.clone(), ..key("owner", &ann.id) },
            NotFound,
        ),
    ];
    for (case, authorization, expected) in table {
        assert_eq!(add(&owner.client, authorization).await, expected, "{case}");
    }
    let none = AddRoleRequest { authorization: None };
    assert_eq!(code(owner.client.app::<_, AddRoleResponse>("AddRole", none).await), InvalidArgument);

    assert_eq!(authorizations(&owner.client, &org, &[&foreign]).await, Err(NotFound));
    assert_eq!(authorizations(&owner.client, &org, &["x"]).await, Err(InvalidArgument));
    assert_eq!(authorizations(&ann.client, &org, &[]).await, Err(Denied));
    assert_eq!(remove(&ann.client, on("owner", "robot", &machine)).await, Denied);
    assert_eq!(remove(&owner.client, on("owner", "robot", &machine)).await, Yes);
    assert_eq!(reads(&ann.client, &machine).await, NotFound);
    assert_eq!(remove(&owner.client, on("owner", "robot", &machine)).await, NotFound);
    assert!(members(&owner.client, &org).await.members.is_empty(), "who has no role is no member");
    world.end().await;
}

#[tokio::test]
async fn a_personal_key_is_its_owners_alone_and_may_found_organizations() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    let ann = person(&world, "ann@example.org").await;
    let again = people::add(&world.server.context, "ANN@example.org", None).await;
    assert!(again.is_err(), "one address, one person");
    let role = authorization(&owner, "operator", "organization", &owner.organization, &ann.id);
    assert_eq!(add(&owner.client, role).await, Yes);
    for operation in ["DeleteKey", "RotateKey", "CreateKeyFromExistingKeyAuthorizations"] {
        let request = DeleteKeyRequest { id: ann.key_id.clone() };
        assert_eq!(code(owner.client.app::<_, DeleteKeyResponse>(operation, request).await), NotFound, "{operation}");
    }
    let rotated: RotateKeyResponse =
        ann.client.app("RotateKey", RotateKeyRequest { id: ann.key_id.clone() }).await.unwrap();
    assert_eq!(code(world.login("api-key", &ann.key_id, &ann.key).await.map(drop)), Unauthenticated);
    let ann_again = world.login("api-key", &ann.key_id, &rotated.key).await.unwrap();
    let found = CreateOrganizationRequest { name: "Ann's".into() };
    let hers: CreateOrganizationResponse = ann_again.app("CreateOrganization", found).await.unwrap();
    let hers = hers.organization.unwrap().id;
    let listed = members(&ann_again, &hers).await.members;
    assert_eq!(
        (listed.len(), &*listed[0].user_id, &listed[0].emails),
        (1, &*ann.id, &vec!["ann@example.org".to_owned()])
    );
    assert!(listed[0].last_login.is_some());

    // What others learn of her: only through an organization they share.
    let stranger = world.owner("Strangers").await.client;
    let machine = owner.machine(&owner.location("North", None).await, "arm").await;
    let narrow = world.key(&owner, "owner", "robot", &machine).await;
    let id_of = async |client: &Client, email: &str| {
        let request = GetUserIdByEmailRequest { email: email.into() };
        client.app::<_, GetUserIdByEmailResponse>("GetUserIDByEmail", request).await.map(|found| found.user_id)
    };
    let organizations = async |client: &Client| {
        let request = ListOrganizationsByUserRequest { user_id: ann.id.clone() };
        let listed = client.app::<_, ListOrganizationsByUserResponse>("ListOrganizationsByUser", request).await;
        listed.map(|listed| listed.orgs.into_iter().map(|one| one.org_name).collect::<Vec<_>>())
    };
    assert_eq!(id_of(&owner.client, " Ann@example.org").await.unwrap(), ann.id);
    assert_eq!(id_of(&ann_again, "ann@example.org").await.unwrap(), ann.id);
    assert_eq!(organizations(&owner.client).await.unwrap(), ["Acme"]);
    assert_eq!(organizations(&ann_again).await.unwrap().len(), 2);
    for other in [&stranger, &narrow] {
        assert_eq!(code(id_of(other, "ann@example.org").await), NotFound);
        assert_eq!(code(organizations(other).await), NotFound);
    }
    assert_eq!(code(id_of(&owner.client, "nobody@example.org").await), NotFound);
    assert_eq!(code(id_of(&owner.client, "nobody").await), InvalidArgument);
    // A device's secret opens none of this, and the audit names the person.
    let listed: api::pb::platform::fleet::v1::ListAuditEventsResponse = ann_again
        .call(
            "/platform.fleet.v1.AdminService/ListAuditEvents",
            api::pb::platform::fleet::v1::ListAuditEventsRequest { organization_id: hers, ..Default::default() },
        )
        .await
        .unwrap();
    assert_eq!(listed.events[0].actor, format!("user:{} by api-key:{}", ann.id, ann.key_id));
    world.end().await;
}

async fn invite(
    client: &Client,
    organization: &str,
    email: &str,
    authorizations: Vec<Authorization>,
    mail: Option<bool>,
) -> Result<OrganizationInvite, Code> {
    let request = CreateOrganizationInviteRequest {
        organization_id: organization.into(),
        email: email.into(),
        authorizations,
        send_email_invite: mail,
    };
    let made = client.app::<_, CreateOrganizationInviteResponse>("CreateOrganizationInvite", request).await;
    made.map(|made| made.invite.unwrap()).map_err(|refused| refused.code())
}

fn brings(invite: &OrganizationInvite) -> Vec<&str> {
    invite.authorizations.iter().map(|one| &*one.authorization_id).collect()
}

/// Status and text, over plain HTTP as a browser asks.
async fn page(world: &World, method: &str, path: &str) -> (u16, String) {
    let answer = world::http::ask(world, method, path, &[], b"").await;
    (answer.status, format!("{}\r\n\r\n{}", answer.head, String::from_utf8(answer.body).unwrap()))
}

fn between<'a>(text: &'a str, before: &str) -> &'a str {
    text.split(before).nth(1).unwrap().split('<').next().unwrap()
}

#[tokio::test]
async fn a_link_accepts_once_and_shows_a_new_person_their_key() {
    let world = World::new().await;
    let owner = world.owner("Acme & <Sons>").await;
    let org = owner.organization.clone();
    let context = &world.server.context;
    let made = invite(&owner.client, &org, "Ann@Example.org", Vec::new(), None).await.unwrap();
    assert_eq!((&*made.email, brings(&made)), ("ann@example.org", vec!["organization_owner"]));
    assert_eq!(invite(&owner.client, &org, "ann@example.org", Vec::new(), Some(false)).await, Err(AlreadyExists));

    let first = people::invite(context, &org, "ann@example.org", fleet::authz::Role::Operator).await.unwrap();
    let link = people::invite(context, "Acme & <Sons>", "ann@example.org", fleet::authz::Role::Owner).await.unwrap();
    let (status, text) = page(&world, "GET", &first).await;
    assert!(status == 404 && text.contains("newest mail"), "the newer link takes its place: {text}");
    for _ in 0..2 {
        let (status, text) = page(&world, "GET", &link).await;
        assert_eq!(status, 200);
        assert!(text.contains("Acme &amp; &lt;Sons&gt;") && text.contains("no-store"), "{text}");
    }
    let (status, text) = page(&world, "POST", &link).await;
    assert_eq!(status, 200, "{text}");
    let (key_id, key) = (between(&text, "id=\"key-id\">").to_owned(), between(&text, "id=\"key\">").to_owned());
    let ann = world.login("api-key", &key_id, &key).await.unwrap();
    let renamed =
        UpdateOrganizationRequest { organization_id: org.clone(), name: Some("Acme".into()), ..Default::default() };
    assert_eq!(code(ann.app::<_, UpdateOrganizationResponse>("UpdateOrganization", renamed).await), Yes, "an owner");
    for method in ["GET", "POST"] {
        let (status, text) = page(&world, method, &link).await;
        assert!(status == 404 && text.contains("used already"), "{text}");
    }
    assert_eq!(page(&world, "DELETE", &link).await.0, 405);
    assert_eq!(page(&world, "GET", &format!("/invite/{}", "x".repeat(5000))).await.0, 404);
    assert_eq!(invite(&owner.client, &org, "ann@example.org", Vec::new(), None).await, Err(AlreadyExists), "a member");
    assert!(people::invite(context, &org, "ann@example.org", fleet::authz::Role::Owner).await.is_err());

    // Another organization's link brings her its roles, and no key: that would open the first organization too.
    let second = world.owner("Second").await;
    let link = people::invite(context, &second.organization, "ann@example.org", fleet::authz::Role::Operator).await;
    let (status, text) = page(&world, "POST", &link.unwrap()).await;
    assert!(status == 200 && !text.contains("id=\"key\""), "{text}");
    let seen: ListOrganizationsResponse = ann.app("ListOrganizations", ListOrganizationsRequest {}).await.unwrap();
    assert_eq!(seen.organizations.len(), 2, "on her present token");

    // A link ends by itself.
    let link = people::invite(context, &org, "late@example.org", fleet::authz::Role::Owner).await.unwrap();
    context.clock.push(15 * 86_400_000);
    for method in ["GET", "POST"] {
        let (status, text) = page(&world, method, &link).await;
        assert!(status == 404 && text.contains("too old"), "{text}");
    }
    let (status, text) = page(&world, "GET", "/invite/0123456789").await;
    assert!(status == 404 && text.contains("Nobody is invited"), "{text}");
    world.end().await;
}

#[tokio::test]
async fn invitations_are_listed_changed_resent_and_withdrawn_by_owners() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    let org = owner.organization.clone();
    let location = owner.location("North", None).await;
    let machine = owner.machine(&location, "arm").await;
    let operator = world.key(&owner, "operator", "organization", &org).await;
    let on = |role: &str, kind: &str, resource: &str| authorization(&owner, role, kind, resource, "");
    for wrong in ["", "ann", "ann@host", "a b@example.org"] {
        assert_eq!(invite(&owner.client, &org, wrong, Vec::new(), None).await, Err(InvalidArgument), "{wrong:?}");
    }
    let elsewhere = Authorization { organization_id: location.clone(), ..on("owner", "location", &location) };
    assert_eq!(invite(&owner.client, &org, "a@example.org", vec![elsewhere], None).await, Err(InvalidArgument));
    assert_eq!(invite(&operator, &org, "a@example.org", Vec::new(), None).await, Err(Denied));
    let made =
        invite(&owner.client, &org, "a@example.org", vec![on("operator", "robot", &machine)], None).await.unwrap();
    assert_eq!(brings(&made), ["robot_operator"]);

    let update = async |add: Vec<Authorization>, remove: Vec<Authorization>, email: &str| {
        let request = UpdateOrganizationInviteAuthorizationsRequest {
            organization_id: org.clone(),
            email: email.into(),
            add_authorizations: add,
            remove_authorizations: remove,
        };
        let operation = "UpdateOrganizationInviteAuthorizations";
        let changed = owner.client.app::<_, UpdateOrganizationInviteAuthorizationsResponse>(operation, request).await;
        changed.map(|changed| brings(&changed.invite.unwrap()).join(" ")).map_err(|refused| refused.code())
    };
    let (here, there) = (on("operator", "robot", &machine), on("owner", "location", &location));
    let table = [
        ("nothing to do", vec![], vec![], "a@example.org", Err(InvalidArgument)),
        ("the last one", vec![], vec![here.clone()], "a@example.org", Err(FailedPrecondition)),
        ("not there", vec![], vec![there.clone()], "a@example.org", Err(NotFound)),
        ("nobody invited", vec![there.clone()], vec![], "b@example.org", Err(NotFound)),
        ("one more", vec![there.clone()], vec![], "A@example.org", Ok("location_owner robot_operator")),
        ("exchanged", vec![there.clone()], vec![here], "a@example.org", Ok("location_owner")),
    ];
    for (case, add, remove, email, expected) in table {
        assert_eq!(update(add, remove, email).await, expected.map(str::to_owned), "{case}");
    }
    let seen = members(&operator, &org).await;
    assert_eq!((seen.members.len(), seen.invites.len(), brings(&seen.invites[0])), (0, 1, vec!["location_owner"]));

    // Sent again without a mail: the link is worth nothing, signing in accepts.
    let link = people::invite(&world.server.context, &org, "a@example.org", fleet::authz::Role::Owner).await.unwrap();
    let resend = async |email: &str, mail: Option<bool>| {
        let request = ResendOrganizationInviteRequest {
            organization_id: org.clone(),
            email: email.into(),
            send_email_invite: mail,
        };
        code(owner.client.app::<_, ResendOrganizationInviteResponse>("ResendOrganizationInvite", request).await)
    };
    assert_eq!(resend("b@example.org", None).await, NotFound);
    let ann = person(&world, "a@example.org").await;
    assert_eq!(members(&owner.client, &org).await.members.len(), 0, "with a mail only the link accepts");
    assert_eq!(resend("a@example.org", Some(false)).await, Yes);
    assert_eq!(page(&world, "POST", &link).await.0, 404);
    let again = world.login("api-key", &ann.key_id, &ann.key).await.unwrap();
    assert_eq!(reads(&again, &machine).await, Yes);
    let now = members(&owner.client, &org).await;
    assert_eq!((now.members.len(), now.invites.len()), (1, 0));

    // An account made for the address accepts too; a withdrawn invitation and one to nothing bring nothing.
    invite(&owner.client, &org, "c@example.org", vec![there.clone()], Some(false)).await.unwrap();
    let carl = person(&world, "c@example.org").await;
    assert_eq!(reads(&carl.client, &machine).await, Yes);
    invite(&owner.client, &org, "d@example.org", vec![there], Some(false)).await.unwrap();
    let withdraw = async || {
        let request = DeleteOrganizationInviteRequest { organization_id: org.clone(), email: "d@example.org".into() };
        code(owner.client.app::<_, DeleteOrganizationInviteResponse>("DeleteOrganizationInvite", request).await)
    };
    assert_eq!((withdraw().await, withdraw().await), (Yes, NotFound));
    let only = on("owner", "robot", &machine);
    invite(&owner.client, &org, "e@example.org", vec![only], Some(false)).await.unwrap();
    let delete = DeleteRobotRequest { id: machine.clone() };
    owner.client.app::<_, DeleteRobotResponse>("DeleteRobot", delete).await.unwrap();
    assert!(members(&owner.client, &org).await.invites.is_empty());
    world.end().await;
}

#[tokio::test]
async fn permissions_are_told_as_the_policy_has_them() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    let location = owner.location("North", None).await;
    let machine = owner.machine(&location, "arm").await;
    let stranger = world.owner("Strangers").await.client;
    let check = async |client: &Client, asked: &[(&str, &str, &[&str])]| {
        let permissions = asked.iter().map(|(kind, id, words)| AuthorizedPermissions {
            resource_type: (*kind).into(),
            resource_id: (*id).into(),
            permissions: words.iter().map(ToString::to_string).collect(),
        });
        let request = CheckPermissionsRequest { permissions: permissions.collect() };
        let told = client.app::<_, CheckPermissionsResponse>("CheckPermissions", request).await;
        told.map(|told| told.authorized_permissions).map_err(|refused| refused.code())
    };
    // All 35, on each kind of resource, as each role: exactly what the table says.
    let words: Vec<&str> = fleet::authz::Permission::ALL.iter().map(|one| one.word()).collect();
    assert_eq!(words.len(), 35);
    use fleet::authz::{Level, Role, Target, policy};
    let org = &*owner.organization;
    for (role_name, role) in [("owner", Role::Owner), ("operator", Role::Operator)] {
        for (at, resource, level) in [
            ("organization", org, Level::Organization),
            ("location", &*location, Level::Location),
            ("robot", &*machine, Level::Machine),
        ] {
            let key = world.key(&owner, role_name, at, resource).await;
            for (kind, id, target) in [
                ("organization", org, Target::Organization),
                ("location", &*location, Target::Location),
                ("robot", &*machine, Target::Machine),
            ] {
                let told = check(&key, &[(kind, id, &words)]).await.unwrap();
                let told = told.into_iter().flat_map(|told| told.permissions).collect::<Vec<_>>();
                let held = policy(role, level, target);
                let expected: Vec<&str> = fleet::authz::Permission::ALL
                    .iter()
                    .filter(|one| held.contains(**one))
                    .map(|one| one.word())
                    .collect();
                // Where a role does not reach, it still sees where it stands.
                let reaches =
                    matches!((at, kind), ("organization", _) | ("location", "location" | "robot") | (_, "robot"));
                assert_eq!(told, expected, "{role_name} on {at}, asked on {kind}");
                assert_eq!(!expected.is_empty(), reaches, "{role_name} on {at}, asked on {kind}");
            }
        }
    }
    let some: &[&str] = &["read_robot"];
    let table = [
        ("nothing asked", vec![], Err(InvalidArgument)),
        ("no words", vec![("robot", &*machine, &[][..])], Err(InvalidArgument)),
        ("no such word", vec![("robot", &*machine, &["fly_robot"][..])], Err(InvalidArgument)),
        ("no such kind", vec![("fragment", &*machine, some)], Err(InvalidArgument)),
        ("no id", vec![("robot", "x", some)], Err(InvalidArgument)),
        ("wrong kind", vec![("location", &*machine, some)], Err(NotFound)),
        (
            "two of three",
            vec![
                ("robot", &*machine, some),
                ("robot", &*machine, &["read_organization"][..]),
                ("location", &*location, some),
            ],
            Ok(2),
        ),
    ];
    for (case, asked, expected) in table {
        assert_eq!(check(&owner.client, &asked).await.map(|told| told.len()), expected, "{case}");
    }
    assert_eq!(check(&stranger, &[("robot", &machine, some)]).await, Err(NotFound));
    world.end().await;
}

#[tokio::test]
async fn a_list_of_keys_shows_guests_and_their_roles_can_be_taken() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    let third: CreateOrganizationResponse =
        owner.client.app("CreateOrganization", CreateOrganizationRequest { name: "Third".into() }).await.unwrap();
    let third = third.organization.unwrap().id;
    let own =
        Owner { organization: third.clone(), key_id: String::new(), key: String::new(), client: owner.client.clone() };
    let request = own.key_request("owner", "organization", &third);
    let made: CreateKeyResponse = owner.client.app("CreateKey", request).await.unwrap();
    let local = world.login("api-key", &made.id, &made.key).await.unwrap();
    let listed: ListKeysResponse = local.app("ListKeys", ListKeysRequest { org_id: third.clone() }).await.unwrap();
    let ids: Vec<String> = listed.api_keys.into_iter().map(|key| key.api_key.unwrap().id).collect();
    assert_eq!(ids, [made.id.clone(), owner.key_id.clone()]);
    let delete = DeleteKeyRequest { id: owner.key_id.clone() };
    assert_eq!(code(local.app::<_, DeleteKeyResponse>("DeleteKey", delete).await), Denied);
    let role = authorization(&own, "owner", "organization", &third, &owner.key_id);
    assert_eq!(remove(&local, role).await, Yes);
    let get = GetOrganizationRequest { organization_id: third };
    assert_eq!(code(owner.client.app::<_, GetOrganizationResponse>("GetOrganization", get).await), NotFound);
    let get = GetOrganizationRequest { organization_id: owner.organization.clone() };
    assert_eq!(code(owner.client.app::<_, GetOrganizationResponse>("GetOrganization", get).await), Yes);
    world.end().await;
}
