//! Every change is written down once, by whom and from where; what was refused is not.

use std::collections::BTreeSet;

use api::pb::platform::{app::v1::*, fleet::v1::*};
use bytes::Bytes;
use fleet::{operations::OPERATIONS, people, store::DbError};
use prost::Message;
use tonic::{Code, Request, Status, client::Grpc};

use super::{
    rows::{self, Rows},
    world::{Client, Owner, PATIENCE, Plain, World, code},
};

/// A row of the audit log.
#[derive(Debug, Clone, PartialEq)]
struct Row {
    organization: String,
    at: i64,
    who: String,
    from: String,
    operation: String,
    kind: String,
    id: String,
    detail: String,
}

/// All that was ever written down.
async fn written(world: &World) -> Vec<Row> {
    let sql = "SELECT organization_id, happened_at, actor, from_address, operation, resource_type, resource_id, detail
               FROM audit ORDER BY happened_at, id";
    let row = |row: &fleet::store::Row<'_>| {
        let text = |n| row.text(n);
        Ok(Row {
            organization: text(0)?,
            at: row.int(1)?,
            who: text(2)?,
            from: text(3)?,
            operation: text(4)?,
            kind: text(5)?,
            id: text(6)?,
            detail: text(7)?,
        })
    };
    let read = world.server.context.store.read::<_, DbError>(move |tx| tx.all(sql, &[], row));
    read.await.unwrap()
}

/// What is new since then, in the order of its moments.
async fn written_since(world: &World, before: &[Row]) -> Vec<Row> {
    let mut new = written(world).await;
    for row in before {
        let at = new.iter().position(|one| one == row).expect("nothing that was written down goes");
        new.remove(at);
    }
    new
}

/// In place of words: an id, which is compared where the change is made.
const AN_ID: &str = "an id";

/// Of each change: what it is a change of, and words that tell in which way.
const CHANGES: [(&str, &str, &str); 46] = [
    ("AddRole", "user", "operator of organization "),
    ("ChangeRole", "user", " becomes owner of organization "),
    ("CreateFragment", "fragment", "base"),
    ("CreateKey", "api key", "\"organization operator\", operator of organization "),
    ("CreateKeyFromExistingKeyAuthorizations", "api key", "\"organization operator\", operator of organization "),
    ("CreateLocation", "organization", " \"North\""),
    ("CreateLocationSecret", "location", AN_ID),
    ("CreateModule", "registry item", "\"camera\""),
    ("CreateOrganization", "organization", "Second"),
    ("CreateOrganizationInvite", "invitation", "owner of organization "),
    ("CreateRegistryItem", "registry item", "\"model\""),
    ("CreateRobotPartSecret", "robot part", AN_ID),
    ("DeleteFragment", "fragment", "\"ground\""),
    ("DeleteKey", "api key", "\"organization operator\""),
    ("DeleteLocation", "location", "\"Norden\""),
    ("DeleteLocationSecret", "location", AN_ID),
    ("DeleteOrganization", "organization", "\"Second\""),
    ("DeleteOrganizationInvite", "invitation", ""),
    ("DeleteOrganizationMember", "user", "member@example.org"),
    ("DeleteRegistryItem", "registry item", "\"camera\""),
    ("DeleteRobot", "robot", "\"leg\", parts "),
    ("DeleteRobotPart", "robot part", "\"arm-main\" of robot "),
    ("DeleteRobotPartSecret", "robot part", AN_ID),
    ("MarkPartAsMain", "robot part", ""),
    ("MarkPartForRestart", "robot part", ""),
    ("NewRobot", "location", " \"arm\", main part "),
    ("NewRobotPart", "robot", " \"wrist\""),
    ("RemoveRole", "user", "owner of organization "),
    ("ResendOrganizationInvite", "invitation", ""),
    ("RetryUpdate", "robot part", "product 1"),
    ("RotateKey", "api key", "\"organization operator\""),
    ("ShareLocation", "location", AN_ID),
    ("UnshareLocation", "location", AN_ID),
    ("UpdateFragment", "fragment", "revision 2"),
    ("UpdateLocation", "location", "name \"Norden\""),
    ("UpdateLocationMetadata", "location", "2 bytes"),
    ("UpdateModule", "registry item", "\"camera\""),
    ("UpdateOrganization", "organization", "namespace \"acme\""),
    ("UpdateOrganizationInviteAuthorizations", "invitation", "operator of organization "),
    ("UpdateOrganizationMetadata", "organization", "2 bytes"),
    ("UpdateRegistryItem", "registry item", "\"model\""),
    ("UpdateRobot", "robot", "name \"leg\""),
    ("UpdateRobotMetadata", "robot", "2 bytes"),
    ("UpdateRobotPart", "robot part", "name"),
    ("UpdateRobotPartMetadata", "robot part", "2 bytes"),
    ("UploadModuleFile", "registry item", "\"camera\" 1.0.0 any, 5 bytes, sha256 2770"),
];

/// Any operation; the messages of an upload are several.
async fn call(client: &Client, path: &str, messages: Vec<Bytes>) -> Result<Bytes, Status> {
    if !path.ends_with("/UploadModuleFile") {
        return client.raw(path, messages.concat().into()).await;
    }
    let mut request = Request::new(tokio_stream::iter(messages));
    let token = client.token.as_deref().unwrap_or_default();
    request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    let mut grpc = Grpc::new(client.channel.clone());
    grpc.ready().await.unwrap();
    let answer = grpc.client_streaming(request, path.parse().unwrap(), Plain);
    tokio::time::timeout(PATIENCE, answer).await.expect("an answer").map(tonic::Response::into_inner)
}

/// What an operator may do, too.
const OPERATOR_MAY: [&str; 3] = ["CreateOrganization", "MarkPartForRestart", "RetryUpdate"];
/// What a device says of itself, and what tells who somebody is: no change of what the fleet is.
const NO_CHANGE: [&str; 8] =
    ["Authenticate", "Config", "DeviceAgentConfig", "Log", "LocationAuth", "NeedsRestart", "Report", "UploadLogs"];

/// Makes changes, and counts what is written down of them.
struct Walk<'w> {
    world: &'w World,
    owner: &'w Owner,
    operator: Client,
    stranger: Client,
    seen: BTreeSet<&'static str>,
    /// Of the last change, where it is told by an id.
    seen_id: Option<String>,
    first: First,
}

/// What is tried before a change is made.
#[derive(Clone, Copy)]
enum First {
    /// The same by those who may not, and nonsense.
    Refusals,
    /// The same while the audit log takes nothing; all rows must stay as they are.
    Unwritten(Rows),
}

impl Walk<'_> {
    async fn refusals(&self, operation: &str, path: &str, messages: &[Bytes]) {
        if operation != "CreateOrganization" {
            let stranger = self.refused("a stranger", &self.stranger, path, messages.to_vec()).await;
            assert_eq!(stranger, Code::NotFound, "{path}");
        }
        if !OPERATOR_MAY.contains(&operation) {
            let operator = self.refused("an operator", &self.operator, path, messages.to_vec()).await;
            assert_eq!(operator, Code::PermissionDenied, "{path}");
        }
        // Without a word, an owner of one location makes a secret for it.
        if operation != "CreateLocationSecret" {
            self.refused("an empty request", &self.owner.client, path, vec![Bytes::new()]).await;
        }
    }

    async fn unwritten(&self, path: &str, messages: &[Bytes], rows: Rows) {
        let before = rows.read(self.world).await;
        rows::forbid(self.world).await;
        let refused = code(call(&self.owner.client, path, messages.to_vec()).await);
        rows::allow(self.world).await;
        assert_eq!(refused, Code::Internal, "{path} could not be written down");
        let after = rows.read(self.world).await;
        let gone: Vec<_> = before.iter().filter(|row| !after.contains(row)).collect();
        let new: Vec<_> = after.iter().filter(|row| !before.contains(row)).collect();
        assert!(before == after, "{path} could not be written down: of the rows {gone:?} became {new:?}");
    }

    async fn refused(&self, case: &str, client: &Client, path: &str, messages: Vec<Bytes>) -> Code {
        let before = written(self.world).await.len();
        let refused = code(call(client, path, messages).await);
        assert_ne!(refused, Code::Ok, "{case}: {path}");
        assert_eq!(written(self.world).await.len(), before, "{case}: {path} was refused and is written down");
        refused
    }

    async fn uploads(&mut self, operation: &'static str, messages: Vec<Bytes>) -> Bytes {
        let row = OPERATIONS.iter().find(|row| row.path.rsplit('/').next() == Some(operation)).expect("in the table");
        let path = row.path;
        match self.first {
            First::Refusals => self.refusals(operation, path, &messages).await,
            First::Unwritten(rows) => self.unwritten(path, &messages, rows).await,
        }
        let before = written(self.world).await;
        let clock = &self.world.server.context.clock;
        let began = clock.now();
        let asked = messages.concat();
        let done = call(&self.owner.client, path, messages).await;
        let done = done.unwrap_or_else(|refused| panic!("{path}: {refused}"));
        let ended = clock.now();
        let by = format!("api-key:{}", self.owner.key_id);
        let new = written_since(self.world, &before).await;
        let [row] = &new[..] else { panic!("{operation}: one row, not {new:?}") };
        assert_eq!((&*row.operation, &*row.who, &*row.from), (operation, &*by, "127.0.0.1"));
        assert!((began..=ended).contains(&row.at), "{row:?}: between {began} and {ended}");
        let (_, kind, words) = CHANGES.iter().find(|change| change.0 == operation).expect("in the table");
        assert_eq!(row.kind, *kind, "{row:?}");
        assert!(*words == AN_ID || row.detail.contains(words), "{row:?}: {words:?}");
        assert_eq!(row.detail.is_empty(), words.is_empty(), "{row:?}: {words:?}");
        // A registry item is told by a name that people know, and by an id of its own.
        let told = [asked, done.to_vec()].concat();
        let told = String::from_utf8_lossy(&told);
        assert!(told.contains(&row.id) || row.kind == "registry item" && row.id.len() == 36, "{row:?}: {told:?}");
        assert!(told.contains(&row.organization) || row.organization == self.owner.organization, "{row:?}");
        assert!(self.seen_id.is_none(), "the id of the change before was not compared");
        self.seen_id = (*words == AN_ID).then(|| row.detail.clone());
        self.seen.insert(operation);
        done
    }

    /// What was written down of the last change is that id.
    fn told(&mut self, id: &str) {
        assert_eq!(self.seen_id.take().as_deref(), Some(id));
    }

    async fn makes<A: Message + Default>(&mut self, operation: &'static str, request: impl Message) -> A {
        let done = self.uploads(operation, vec![request.encode_to_vec().into()]).await;
        A::decode(done).unwrap()
    }

    async fn does(&mut self, operation: &'static str, request: impl Message) {
        self.uploads(operation, vec![request.encode_to_vec().into()]).await;
    }
}

fn role(owner: &Owner, role: &str, identity: &str) -> Authorization {
    let mut made = owner.key_request(role, "organization", &owner.organization);
    Authorization { identity_id: identity.into(), identity_type: String::new(), ..made.authorizations.remove(0) }
}

/// Makes every change that there is.
async fn walk(world: &World, first: First) {
    let (owner, other) = (world.owner("Acme").await, world.owner("Other").await);
    let operator = world.key(&owner, "operator", "organization", &owner.organization).await;
    let member = people::add(&world.server.context, "member@example.org", None).await.unwrap().user_id;
    let stranger = other.client.clone();
    let mut walk = Walk { world, owner: &owner, operator, stranger, seen: BTreeSet::new(), seen_id: None, first };
    places_and_machines(&mut walk, &other).await;
    people_and_keys(&mut walk, &member).await;
    fragments_and_modules(&mut walk).await;
    organizations(&mut walk).await;

    let is_change = |name: &&str| {
        let reads = ["Get", "List", "Check", "Tail"];
        !NO_CHANGE.contains(name) && !reads.iter().any(|word| name.starts_with(word))
    };
    let names = OPERATIONS.iter().filter_map(|row| row.path.rsplit('/').next());
    assert_eq!(walk.seen, names.filter(is_change).collect(), "every operation that changes something was called");
}

#[tokio::test]
async fn every_change_is_written_down_once_and_nothing_that_was_refused() {
    let world = World::new().await;
    walk(&world, First::Refusals).await;
    world.end().await;
}

#[tokio::test]
async fn what_cannot_be_written_down_is_not_done() {
    let world = World::new().await;
    let rows = Rows::of(&world).await;
    walk(&world, First::Unwritten(rows)).await;
    world.end().await;
}

/// (operation, kind, id, words, whether it belongs to the organization)
type Expected<'e> = (&'e str, &'e str, &'e str, String, bool);

/// Exactly these rows are new, in any order.
async fn expect_since(
    world: &World,
    before: &mut Vec<Row>,
    what: &str,
    by: (&str, &str),
    expected: &[Expected<'_>],
    of: &str,
) {
    let mut new = written_since(world, before).await;
    before.extend(new.clone());
    for (operation, kind, id, words, belongs) in expected {
        let row = new.iter().position(|row| {
            (&*row.operation, &*row.kind, &*row.id, row.organization.is_empty()) == (*operation, *kind, *id, !belongs)
        });
        let row = new.remove(row.unwrap_or_else(|| panic!("{what}: no {operation} of {kind} {id}: {new:?}")));
        assert_eq!((&*row.who, &*row.from), by, "{what}: {row:?}");
        assert!(row.detail.contains(words), "{what}: {row:?}, not {words:?}");
        assert_eq!(row.organization, if *belongs { of } else { "" }, "{what}: {row:?}");
    }
    assert!(new.is_empty(), "{what}: more than that: {new:?}");
}

#[tokio::test]
async fn what_is_done_on_the_server_itself_and_by_a_link_is_written_down_too() {
    let world = World::new().await;
    let context = &world.server.context;
    let mut before = written(&world).await;
    let here = ("local", "127.0.0.1");
    let owner = world.owner("Acme").await;
    let of = &*owner.organization;
    let founded = [
        ("CreateOrganization", "organization", of, "Acme".to_owned(), true),
        ("CreateKey", "api key", &*owner.key_id, format!("owner of organization {of}"), true),
    ];
    expect_since(&world, &mut before, "init", here, &founded, of).await;

    let role = Some((of, fleet::authz::Role::Operator));
    let ann = people::add(context, "ann@example.org", role).await.unwrap();
    let added = [
        ("user add", "user", &*ann.user_id, "ann@example.org".to_owned(), false),
        ("CreateKey", "api key", &*ann.key_id, ann.user_id.clone(), false),
        ("user add", "user", &*ann.user_id, format!("operator of organization {of}"), true),
    ];
    expect_since(&world, &mut before, "user add", here, &added, of).await;
    let more = people::key(context, "ann@example.org", people::OtherKeys::Stay).await.unwrap();
    let made = [("CreateKey", "api key", &*more.key_id, ann.user_id.clone(), false)];
    expect_since(&world, &mut before, "user key", here, &made, of).await;

    let invite = async |email: &str| people::invite(context, of, email, fleet::authz::Role::Owner).await.unwrap();
    let first = invite("bob@example.org").await;
    let invited = [("user invite", "invitation", "bob@example.org", format!("owner of organization {of}"), true)];
    expect_since(&world, &mut before, "user invite", here, &invited, of).await;
    let second = invite("bob@example.org").await;
    let again = [("user invite", "invitation", "bob@example.org", "another link".to_owned(), true)];
    expect_since(&world, &mut before, "another link", here, &again, of).await;

    let from = "192.0.2.7".parse().unwrap();
    let secret = |path: &str| path.strip_prefix(people::PATH).unwrap().to_owned();
    assert!(people::accept(context, &secret(&first), "", from).await.unwrap().is_err(), "the first link has ended");
    expect_since(&world, &mut before, "a link that has ended", here, &[], of).await;
    let Ok(accepted) = people::accept(context, &secret(&second), "", from).await.unwrap() else {
        panic!("the second lives")
    };
    let bob = accepted.issued.expect("a key for somebody new");
    let accepted = [
        ("user add", "user", &*bob.user_id, "bob@example.org".to_owned(), false),
        ("CreateKey", "api key", &*bob.key_id, bob.user_id.clone(), false),
        ("AcceptInvite", "user", &*bob.user_id, format!("bob@example.org: owner of organization {of}"), true),
    ];
    expect_since(&world, &mut before, "a link", ("nobody", "192.0.2.7"), &accepted, of).await;

    // An invitation without a link is accepted by signing in.
    let other = world.owner("Other").await;
    let of = &*other.organization;
    let request = CreateOrganizationInviteRequest {
        organization_id: of.to_owned(),
        email: "ann@example.org".into(),
        authorizations: Vec::new(),
        send_email_invite: Some(false),
    };
    let done = other.client.app::<_, CreateOrganizationInviteResponse>("CreateOrganizationInvite", request).await;
    done.unwrap();
    before = written(&world).await;
    world.login("api-key", &ann.key_id, &ann.key).await.unwrap();
    let by = format!("user:{} by api-key:{}", ann.user_id, ann.key_id);
    let words = format!("ann@example.org: owner of organization {of}");
    let accepted = [("AcceptInvite", "user", &*ann.user_id, words, true)];
    expect_since(&world, &mut before, "a sign-in", (&by, "127.0.0.1"), &accepted, of).await;
    world.end().await;
}

async fn places_and_machines(walk: &mut Walk<'_>, other: &Owner) {
    let organization_id = walk.owner.organization.clone();
    let data = Some(prost_types::Struct::default());
    let request = CreateLocationRequest { organization_id, name: "North".into(), parent_location_id: None };
    let made: CreateLocationResponse = walk.makes("CreateLocation", request).await;
    let location_id = made.location.unwrap().id;
    let request = UpdateLocationRequest {
        location_id: location_id.clone(),
        name: Some("Norden".into()),
        ..UpdateLocationRequest::default()
    };
    walk.does("UpdateLocation", request).await;
    walk.does(
        "UpdateLocationMetadata",
        UpdateLocationMetadataRequest { location_id: location_id.clone(), data: data.clone() },
    )
    .await;
    let secret = CreateLocationSecretRequest { location_id: location_id.clone() };
    let made: CreateLocationSecretResponse = walk.makes("CreateLocationSecret", secret.clone()).await;
    let secret_id = made.auth.unwrap().secrets.remove(0).id;
    walk.told(&secret_id);
    walk.owner.client.app::<_, CreateLocationSecretResponse>("CreateLocationSecret", secret.clone()).await.unwrap();
    let path = "/platform.app.v1.AppService/CreateLocationSecret";
    walk.refused("a third secret", &walk.owner.client, path, vec![secret.encode_to_vec().into()]).await;
    let delete = DeleteLocationSecretRequest { location_id: location_id.clone(), secret_id: secret_id.clone() };
    walk.does("DeleteLocationSecret", delete).await;
    walk.told(&secret_id);

    let request = NewRobotRequest { name: "arm".into(), location: location_id.clone() };
    let machine: NewRobotResponse = walk.makes("NewRobot", request.clone()).await;
    let (path, id) = ("/platform.app.v1.AppService/NewRobot", machine.id);
    walk.refused("the same name", &walk.owner.client, path, vec![request.encode_to_vec().into()]).await;
    walk.does("UpdateRobot", UpdateRobotRequest { id: id.clone(), name: "leg".into(), location: String::new() }).await;
    walk.does("UpdateRobotMetadata", UpdateRobotMetadataRequest { id: id.clone(), data: data.clone() }).await;
    let main = walk.owner.main_part(&id).await;
    let request = NewRobotPartRequest { robot_id: id.clone(), part_name: "wrist".into() };
    let made: NewRobotPartResponse = walk.makes("NewRobotPart", request).await;
    let part_id = made.part_id;
    let request = UpdateRobotPartRequest { id: part_id.clone(), name: "hand".into(), ..Default::default() };
    walk.does("UpdateRobotPart", request.clone()).await;
    let last_known_update = Some(prost_types::Timestamp { seconds: 1, nanos: 0 });
    let stale = UpdateRobotPartRequest { last_known_update, ..request };
    let path = "/platform.app.v1.AppService/UpdateRobotPart";
    walk.refused("a stale update", &walk.owner.client, path, vec![stale.encode_to_vec().into()]).await;
    walk.does("UpdateRobotPartMetadata", UpdateRobotPartMetadataRequest { id: part_id.clone(), data }).await;
    walk.does("MarkPartForRestart", MarkPartForRestartRequest { part_id: part_id.clone() }).await;
    let request = RetryUpdateRequest { part_id: part_id.clone(), product: Product::Agent.into() };
    walk.does("RetryUpdate", request).await;
    let request = CreateRobotPartSecretRequest { part_id: part_id.clone() };
    let made: CreateRobotPartSecretResponse = walk.makes("CreateRobotPartSecret", request).await;
    let secret_id = made.part.unwrap().secrets.remove(0).id;
    walk.told(&secret_id);
    let request = DeleteRobotPartSecretRequest { part_id: part_id.clone(), secret_id: secret_id.clone() };
    walk.does("DeleteRobotPartSecret", request).await;
    walk.told(&secret_id);
    walk.does("MarkPartAsMain", MarkPartAsMainRequest { part_id: part_id.clone() }).await;
    let path = "/platform.app.v1.AppService/DeleteRobotPart";
    let request = DeleteRobotPartRequest { part_id };
    walk.refused("the main part", &walk.owner.client, path, vec![request.encode_to_vec().into()]).await;
    walk.does("DeleteRobotPart", DeleteRobotPartRequest { part_id: main.id }).await;
    let path = "/platform.app.v1.AppService/DeleteLocation";
    let request = DeleteLocationRequest { location_id: location_id.clone() };
    walk.refused("not empty", &walk.owner.client, path, vec![request.encode_to_vec().into()]).await;
    walk.does("DeleteRobot", DeleteRobotRequest { id }).await;
    let organization_id = other.organization.clone();
    let share = ShareLocationRequest { location_id: location_id.clone(), organization_id: organization_id.clone() };
    walk.does("ShareLocation", share).await;
    walk.told(&organization_id);
    let unshare = UnshareLocationRequest { location_id: location_id.clone(), organization_id: organization_id.clone() };
    // Whoever it is shared with sees it, and is denied.
    let path = "/platform.app.v1.AppService/UnshareLocation";
    let request = vec![unshare.encode_to_vec().into()];
    let shared = walk.refused("who it is shared with", &walk.stranger, path, request).await;
    assert_eq!(shared, Code::PermissionDenied);
    let stranger = std::mem::replace(&mut walk.stranger, walk.world.owner("Third").await.client);
    walk.does("UnshareLocation", unshare).await;
    walk.told(&organization_id);
    walk.stranger = stranger;
    walk.does("DeleteLocation", DeleteLocationRequest { location_id }).await;
}

async fn people_and_keys(walk: &mut Walk<'_>, member: &str) {
    let (organization_id, email) = (walk.owner.organization.clone(), "ann@example.org".to_owned());
    let authorization = Some(role(walk.owner, "operator", member));
    walk.does("AddRole", AddRoleRequest { authorization: authorization.clone() }).await;
    let new_authorization = Some(role(walk.owner, "owner", member));
    let request =
        ChangeRoleRequest { old_authorization: authorization.clone(), new_authorization: new_authorization.clone() };
    walk.does("ChangeRole", request).await;
    walk.does("RemoveRole", RemoveRoleRequest { authorization: new_authorization }).await;
    let request = AddRoleRequest { authorization };
    walk.owner.client.app::<_, AddRoleResponse>("AddRole", request).await.unwrap();
    let request =
        DeleteOrganizationMemberRequest { organization_id: organization_id.clone(), user_id: member.to_owned() };
    walk.does("DeleteOrganizationMember", request).await;

    let request = CreateOrganizationInviteRequest {
        organization_id: organization_id.clone(),
        email: email.clone(),
        authorizations: Vec::new(),
        send_email_invite: Some(false),
    };
    walk.does("CreateOrganizationInvite", request).await;
    let request = UpdateOrganizationInviteAuthorizationsRequest {
        organization_id: organization_id.clone(),
        email: email.clone(),
        add_authorizations: vec![role(walk.owner, "operator", "")],
        remove_authorizations: Vec::new(),
    };
    walk.does("UpdateOrganizationInviteAuthorizations", request).await;
    let request = ResendOrganizationInviteRequest {
        organization_id: organization_id.clone(),
        email: email.clone(),
        send_email_invite: Some(false),
    };
    walk.does("ResendOrganizationInvite", request).await;
    walk.does("DeleteOrganizationInvite", DeleteOrganizationInviteRequest { organization_id, email }).await;

    let request = walk.owner.key_request("operator", "organization", &walk.owner.organization);
    let made: CreateKeyResponse = walk.makes("CreateKey", request).await;
    walk.does("RotateKey", RotateKeyRequest { id: made.id.clone() }).await;
    let request = CreateKeyFromExistingKeyAuthorizationsRequest { id: made.id.clone() };
    walk.does("CreateKeyFromExistingKeyAuthorizations", request).await;
    walk.does("DeleteKey", DeleteKeyRequest { id: made.id }).await;
    let path = "/platform.app.v1.AppService/DeleteKey";
    let last = DeleteKeyRequest { id: walk.owner.key_id.clone() };
    walk.refused("the last owner's key", &walk.owner.client, path, vec![last.encode_to_vec().into()]).await;
}

async fn fragments_and_modules(walk: &mut Walk<'_>) {
    let organization_id = walk.owner.organization.clone();
    let request = CreateFragmentRequest {
        name: "base".into(),
        organization_id: organization_id.clone(),
        ..CreateFragmentRequest::default()
    };
    let made: CreateFragmentResponse = walk.makes("CreateFragment", request).await;
    let id = made.fragment.unwrap().id;
    let request = UpdateFragmentRequest { id: id.clone(), name: "ground".into(), ..UpdateFragmentRequest::default() };
    walk.does("UpdateFragment", request).await;
    walk.does("DeleteFragment", DeleteFragmentRequest { id }).await;

    let request = CreateModuleRequest { organization_id: organization_id.clone(), name: "camera".into() };
    let made: CreateModuleResponse = walk.makes("CreateModule", request).await;
    let module_id = made.module_id;
    let request = UpdateModuleRequest { module_id: module_id.clone(), ..UpdateModuleRequest::default() };
    walk.does("UpdateModule", request).await;
    use upload_module_file_request::ModuleFile;
    let info = |version: &str| {
        ModuleFile::ModuleFileInfo(ModuleFileInfo {
            module_id: module_id.clone(),
            version: version.into(),
            platform: "any".into(),
            ..ModuleFileInfo::default()
        })
    };
    let said =
        |part: ModuleFile| -> Bytes { UploadModuleFileRequest { module_file: Some(part) }.encode_to_vec().into() };
    let file = |bytes: &[u8]| said(ModuleFile::File(bytes.to_vec().into()));
    walk.uploads("UploadModuleFile", vec![said(info("1.0.0")), file(b"bytes")]).await;
    let path = "/platform.app.v1.AppService/UploadModuleFile";
    walk.refused("other bytes", &walk.owner.client, path, vec![said(info("1.0.0")), file(b"others")]).await;
    walk.refused("no version", &walk.owner.client, path, vec![said(info("latest")), file(b"others")]).await;
    let r#type = api::pb::platform::app::packages::v1::PackageType::MlModel.into();
    let request = CreateRegistryItemRequest { organization_id, name: "model".into(), r#type };
    walk.does("CreateRegistryItem", request).await;
    let request = UpdateRegistryItemRequest {
        item_id: format!("{}:model", walk.owner.organization),
        r#type,
        ..UpdateRegistryItemRequest::default()
    };
    walk.does("UpdateRegistryItem", request).await;
    walk.does("DeleteRegistryItem", DeleteRegistryItemRequest { item_id: module_id }).await;
}

async fn organizations(walk: &mut Walk<'_>) {
    let organization_id = walk.owner.organization.clone();
    let request = UpdateOrganizationMetadataRequest {
        organization_id: organization_id.clone(),
        data: Some(prost_types::Struct::default()),
    };
    walk.does("UpdateOrganizationMetadata", request).await;
    let request = UpdateOrganizationRequest {
        organization_id,
        public_namespace: Some("acme".into()),
        ..UpdateOrganizationRequest::default()
    };
    walk.does("UpdateOrganization", request.clone()).await;
    let again = UpdateOrganizationRequest { public_namespace: Some("other".into()), ..request };
    let path = "/platform.app.v1.AppService/UpdateOrganization";
    walk.refused("set once", &walk.owner.client, path, vec![again.encode_to_vec().into()]).await;
    let request = CreateOrganizationRequest { name: "Second".into() };
    let made: CreateOrganizationResponse = walk.makes("CreateOrganization", request).await;
    // The operator of the first one has no say in the second.
    let second = Owner {
        organization: made.organization.unwrap().id,
        key_id: walk.owner.key_id.clone(),
        key: walk.owner.key.clone(),
        client: walk.owner.client.clone(),
    };
    walk.operator = walk.world.key(&second, "operator", "organization", &second.organization).await;
    walk.does("DeleteOrganization", DeleteOrganizationRequest { organization_id: second.organization }).await;
}
