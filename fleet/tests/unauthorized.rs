//! Every row of the operations table, called by those who may not.
//!
//! Requests are made from the contract itself: every field whose name says what it holds names our resource.

mod world;

use std::collections::HashMap;

use api::pb::{
    DESCRIPTORS,
    platform::app::v1::{ShareLocationRequest, ShareLocationResponse},
};
use bytes::Bytes;
use fleet::operations::OPERATIONS;
use prost::Message;
use prost_types::{DescriptorProto, FileDescriptorSet, field_descriptor_proto::Type};
use tonic::Code;
use world::{
    Client, Owner, World, code,
    things::{Ours, ours, value},
};

struct Contract {
    messages: HashMap<String, DescriptorProto>,
    inputs: HashMap<String, String>,
}

impl Contract {
    fn read() -> Self {
        let set = FileDescriptorSet::decode(DESCRIPTORS).unwrap();
        let (mut messages, mut inputs) = (HashMap::new(), HashMap::new());
        for file in set.file {
            let package = file.package().to_owned();
            for message in file.message_type {
                messages.insert(format!(".{package}.{}", message.name()), message);
            }
            for service in file.service {
                for method in &service.method {
                    let path = format!("/{package}.{}/{}", service.name(), method.name());
                    inputs.insert(path, method.input_type().to_owned());
                }
            }
        }
        Self { messages, inputs }
    }

    fn request(&self, path: &str, ours: &Ours) -> Bytes {
        let mut bytes = Vec::new();
        self.fill(&self.inputs[path], path, ours, 0, &mut bytes);
        bytes.into()
    }

    fn fill(&self, message: &str, path: &str, ours: &Ours, depth: usize, bytes: &mut Vec<u8>) {
        let Some(message) = self.messages.get(message).filter(|_| depth < 3) else { return };
        for field in &message.field {
            // A location's place is another permission's matter: where it is, it stays.
            if field.name() == "parent_location_id" && path.ends_with("/UpdateLocation") {
                continue;
            }
            let mut inner = Vec::new();
            match field.r#type() {
                Type::String => inner.extend_from_slice(value(field.name(), path, ours).as_bytes()),
                Type::Message if field.type_name().starts_with(".platform.") => {
                    self.fill(field.type_name(), path, ours, depth + 1, &mut inner);
                }
                _ => continue,
            }
            prost::encoding::encode_key(
                u32::try_from(field.number()).unwrap(),
                prost::encoding::WireType::LengthDelimited,
                bytes,
            );
            prost::encoding::encode_varint(inner.len() as u64, bytes);
            bytes.extend(inner);
        }
    }
}

/// Open to everybody, with or without a key.
const OPEN: [&str; 1] = ["/proto.rpc.v1.AuthService/Authenticate"];
/// About the caller's own affairs: a stranger has some too.
const OWN_AFFAIRS: [&str; 3] = [
    "/platform.app.v1.AppService/CreateOrganization",
    "/platform.app.v1.AppService/ListOrganizations",
    "/platform.app.v1.AppService/GetOrganizationNamespaceAvailability",
];

#[tokio::test]
async fn nobody_is_answered_before_anything_else_is_looked_at() {
    let world = World::new().await;
    let nobody = world.nobody().await;
    let garbage = world::Client { token: Some("0".repeat(98)), ..nobody.clone() };
    let mut paths: Vec<String> = OPERATIONS.iter().map(|operation| operation.path.to_owned()).collect();
    // Not in the table, not in the contract, not even a service: the same answer.
    paths.extend(Contract::read().inputs.into_keys());
    paths.extend(["/platform.app.v1.AppService/Nothing".into(), "/nothing.at.All/Here".into()]);
    for path in paths {
        if !OPEN.contains(&&*path) {
            for client in [&nobody, &garbage] {
                assert_eq!(code(client.raw(&path, Bytes::from_static(b"\xff")).await), Code::Unauthenticated, "{path}");
            }
        }
    }
    world.end().await;
}

#[tokio::test]
async fn what_is_not_in_the_table_says_so_under_both_names() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    let mut asked = 0;
    for path in Contract::read().inputs.keys() {
        if OPERATIONS.iter().any(|operation| operation.path == path) {
            continue;
        }
        for path in [path.clone(), path.replacen("/platform.", "/viam.", 1)] {
            assert_eq!(code(owner.client.raw(&path, Bytes::new()).await), Code::Unimplemented, "{path}");
            asked += 1;
        }
    }
    assert!(asked > 0, "the whole contract is done: this test can go");
    world.end().await;
}

#[tokio::test]
async fn a_stranger_finds_nothing() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    let ours = ours(&world, &owner).await;
    let stranger = world.owner("Strangers").await;
    let contract = Contract::read();
    for operation in OPERATIONS {
        let path = operation.path;
        if OPEN.contains(&path) || OWN_AFFAIRS.contains(&path) {
            continue;
        }
        let refused = stranger.client.raw(path, contract.request(path, &ours)).await;
        assert_eq!(code(refused), Code::NotFound, "{path}");
    }
    world.end().await;
}

#[tokio::test]
async fn a_device_does_nothing_but_its_own_calls() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    let ours = ours(&world, &owner).await;
    let part = owner.main_part(&ours.machine).await;
    let device = world.login("robot-secret", &part.id, &part.secret).await.unwrap();
    let contract = Contract::read();
    for operation in OPERATIONS {
        let path = operation.path;
        let of_people = path.contains("AppService") || path.contains("AdminService");
        if of_people && !OPEN.contains(&path) {
            let refused = code(device.raw(path, contract.request(path, &ours)).await);
            assert_eq!(refused, Code::PermissionDenied, "{path}");
        }
    }
    world.end().await;
}

/// What an operator of the organization may do; everything else is denied, because it sees what it is about.
const OPERATOR_MAY: [&str; 39] = [
    "CreateOrganization",
    "ListOrganizations",
    "GetOrganization",
    "GetOrganizationNamespaceAvailability",
    "GetOrganizationsWithAccessToLocation",
    "GetOrganizationMetadata",
    "ListOrganizationMembers",
    "GetUserIDByEmail",
    "ListOrganizationsByUser",
    "CheckPermissions",
    "GetLocation",
    "GetLocationMetadata",
    "ListLocations",
    "GetRobot",
    "ListRobots",
    "GetRobotMetadata",
    "GetRobotParts",
    "GetRobotPart",
    "GetRobotPartByNameAndLocation",
    "GetRobotPartMetadata",
    "GetRobotPartHistory",
    "GetRobotPartLogs",
    "TailRobotPartLogs",
    "MarkPartForRestart",
    "ListFragments",
    "GetFragment",
    "GetFragmentHistory",
    "ListMachineFragments",
    "ListMachineSummaries",
    "GetRegistryItem",
    "ListRegistryItems",
    "GetModule",
    "ListModules",
    "GetAppContent",
    "GetAppBranding",
    "GetPackage",
    "ListPackages",
    "GetPartStatus",
    "RetryUpdate",
];

#[tokio::test]
async fn an_operator_reads_and_controls_and_is_denied_the_rest() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    let ours = ours(&world, &owner).await;
    let operator = world.key(&owner, "operator", "organization", &owner.organization).await;
    let contract = Contract::read();
    for operation in OPERATIONS {
        let path = operation.path;
        if OPEN.contains(&path) {
            continue;
        }
        let name = path.rsplit('/').next().unwrap();
        let answer = code(operator.raw(path, contract.request(path, &ours)).await);
        if OPERATOR_MAY.contains(&name) {
            // That the request is odd in some field is another matter.
            assert!(matches!(answer, Code::Ok | Code::InvalidArgument), "{path}: {answer:?}");
        } else {
            assert_eq!(answer, Code::PermissionDenied, "{path}");
        }
    }
    world.end().await;
}

/// On another organization, with which the location is shared.
const SHARED: &str = "shared";

/// Who is asked for, and where the role is given.
const LEVELS: [(&str, &str, &str); 8] = [
    ("organization owner", "owner", "organization"),
    ("organization operator", "operator", "organization"),
    ("owner, by a share", "owner", SHARED),
    ("operator, by a share", "operator", SHARED),
    ("location owner", "owner", "location"),
    ("location operator", "operator", "location"),
    ("machine owner", "owner", "robot"),
    ("machine operator", "operator", "robot"),
];

const LEVELS_PAGE: &str = "
# Who may call what

Generated by a test of `fleet/tests/unauthorized.rs`, which calls every operation about an organization, a location in it, a machine
there, its main part, a fragment, a module, a key and a member, once with a key of each role; it fails when this page is stale (`make
docs` writes it). docs/permissions.md says why, docs/rules.md what else is asked of each operation.

`yes`: the role suffices. `denied`: what it is about can be seen, and that may not be done to it (PERMISSION_DENIED). `–`: for this role
there is no such thing (NOT_FOUND). *By a share*: the role was given on another organization, with which the location is shared.
Without a token every operation but Authenticate is UNAUTHENTICATED; for all other keys of another organization everything here is
NOT_FOUND, except what is about the caller's own affairs (CreateOrganization, ListOrganizations, GetOrganizationNamespaceAvailability);
a device's secret opens its own device calls alone.
";

/// What destroys goes last, and what destroys most at the very end.
fn destroys(name: &str) -> usize {
    // Locations and organizations that hold something are not deleted: the machine goes last.
    let last = [
        "DeleteRobotPart",
        "DeleteFragment",
        "DeleteRegistryItem",
        "DeleteLocation",
        "DeleteOrganization",
        "DeleteRobot",
    ];
    let at = last.iter().position(|one| *one == name).map(|at| at + 2);
    at.unwrap_or(usize::from(name.starts_with("Delete") || name.starts_with("Remove")))
}

/// A key of another organization, with which the location is shared.
async fn by_a_share(world: &World, owner: &Owner, role: &str, location: &str) -> Client {
    let other = world.owner("Partner").await;
    let share = ShareLocationRequest { location_id: location.into(), organization_id: other.organization.clone() };
    owner.client.app::<_, ShareLocationResponse>("ShareLocation", share).await.unwrap();
    world.key(&other, role, "organization", &other.organization).await
}

#[tokio::test]
async fn generated_what_every_level_is_answered() {
    let contract = Contract::read();
    let mut operations: Vec<&str> = OPERATIONS.iter().map(|operation| operation.path).collect();
    operations.retain(|path| !OPEN.contains(path));
    let mut answers: HashMap<&str, Vec<&str>> = HashMap::new();
    for (level, role, kind) in LEVELS {
        // A world for each: owners destroy theirs.
        let world = World::new().await;
        let owner = world.owner("Acme").await;
        let ours = ours(&world, &owner).await;
        let resource = match kind {
            "organization" => &ours.organization,
            "location" => &ours.location,
            _ => &ours.machine,
        };
        let client = match kind {
            SHARED => by_a_share(&world, &owner, role, &ours.location).await,
            _ => world.key(&owner, role, kind, resource).await,
        };
        let mut ordered = operations.clone();
        ordered.sort_by_key(|path| destroys(path.rsplit('/').next().unwrap()));
        for path in ordered {
            let answer = code(client.raw(path, contract.request(path, &ours)).await);
            let word = match answer {
                Code::PermissionDenied => "denied",
                // An owner sees everything: what it does not find is not there.
                Code::NotFound if level != "organization owner" => "–",
                Code::Unauthenticated | Code::Unimplemented | Code::Internal | Code::Unknown => {
                    panic!("{level} {path}: {answer:?}")
                }
                _ => "yes",
            };
            answers.entry(path).or_default().push(word);
        }
        world.end().await;
    }
    let mut page = LEVELS_PAGE.trim_start().to_owned();
    let mut service = "";
    for path in operations {
        let (of, name) = path[1..].split_once('/').unwrap();
        if of != service {
            service = of;
            let titles = LEVELS.map(|(level, ..)| level).join(" | ");
            page.push_str(&format!("\n## {service}\n\n| | {titles} |\n|---|{}\n", "---|".repeat(LEVELS.len())));
        }
        page.push_str(&format!("| {name} | {} |\n", answers[path].join(" | ")));
    }
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/operations.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&file, &page).unwrap();
    }
    let kept = std::fs::read_to_string(&file).unwrap_or_default();
    assert_eq!(kept, page, "docs/operations.md is stale: make docs");
}
