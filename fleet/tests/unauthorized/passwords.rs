//! Passwords in configurations: who reads them, over the wire, in every answer that shows a configuration.

use api::pb::platform::app::v1::*;
use bytes::Bytes;
use fleet::{authz::Role, documents::MASK};
use prost::Message;
use tonic::{Code, Status};

use super::{
    person,
    world::{Client, Owner, World},
};

/// How somebody is shown a configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sight {
    /// With its passwords.
    Clear,
    /// With a mask in their place.
    Masked,
    /// Seen, and not shown.
    Denied,
    /// Not even that there is one.
    Absent,
}

use Sight::{Absent, Clear, Denied, Masked};

/// Everything that has a configuration.
struct Things {
    owner: Owner,
    location: String,
    machine: String,
    part: RobotPart,
    private: String,
    public: String,
    unlisted: String,
}

/// In both revisions of the thing of that name.
fn secret(of: &str, revision: usize) -> String {
    format!("password-{of}-{revision}")
}

fn config(of: &str, revision: usize) -> String {
    let secret = secret(of, revision);
    format!(
        r#""agent":{{"additional_networks":{{"home":{{"ssid":"home","psk":"{secret}"}}}},
           "network_configuration":{{"hotspot_password":"{secret}"}},
           "advanced_settings":{{"platform_server_env":{{"TOKEN":"{secret}"}}}}}}"#
    )
}

async fn fragment(owner: &Owner, name: &str, visibility: FragmentVisibility) -> String {
    let request = CreateFragmentRequest {
        name: name.into(),
        organization_id: owner.organization.clone(),
        visibility: Some(visibility.into()),
        ..CreateFragmentRequest::default()
    };
    let made: CreateFragmentResponse = owner.client.app("CreateFragment", request).await.unwrap();
    let id = made.fragment.unwrap().id;
    for revision in [1, 2] {
        let request = UpdateFragmentRequest {
            id: id.clone(),
            name: name.into(),
            fragment_config_json: Some(format!("{{{}}}", config(name, revision))),
            ..UpdateFragmentRequest::default()
        };
        owner.client.app::<_, UpdateFragmentResponse>("UpdateFragment", request).await.unwrap();
    }
    id
}

async fn things(world: &World) -> Things {
    let owner = world.owner("Acme").await;
    let location = owner.location("North", None).await;
    let machine = owner.machine(&location, "arm").await;
    let part = owner.main_part(&machine).await;
    let private = fragment(&owner, "private", FragmentVisibility::Private).await;
    let public = fragment(&owner, "public", FragmentVisibility::Public).await;
    let unlisted = fragment(&owner, "unlisted", FragmentVisibility::PublicUnlisted).await;
    for revision in [1, 2, 3] {
        let (own, given) = (config("part", revision), secret("part", revision));
        let text = format!(
            r#"{{{own},"fragments":[{{"id":"{private}","variables":{{"wifi":"{given}"}}}}],
               "fragment_mods":[{{"fragment_id":"{private}","mods":[{{"$set":{{"agent.additional_networks.x.psk":"{given}"}}}}]}}]}}"#
        );
        let request = UpdateRobotPartRequest {
            id: part.id.clone(),
            name: part.name.clone(),
            robot_config_json: Some(text),
            ..UpdateRobotPartRequest::default()
        };
        owner.client.app::<_, UpdateRobotPartResponse>("UpdateRobotPart", request).await.unwrap();
    }
    Things { owner, location, machine, part, private, public, unlisted }
}

/// An operation, what it is asked for, and the passwords that its answer would show.
struct Question {
    what: String,
    operation: &'static str,
    request: Bytes,
    about: About,
    shows: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum About {
    Part,
    Private,
    Public,
    Unlisted,
    /// The fragments that a machine is made of.
    Made,
    /// The organization's own list.
    List,
    /// That of public ones, in whatever organization one is asked for.
    PublicList,
}

fn questions(things: &Things) -> Vec<Question> {
    let mut all = Vec::new();
    let mut ask = |what: &str, operation, about, request: Vec<u8>, of: &str, revisions: &[usize]| {
        let shows = revisions.iter().map(|revision| secret(of, *revision)).collect();
        all.push(Question { what: format!("{operation}, {what}"), operation, request: request.into(), about, shows });
    };
    let fragments = [
        ("private", About::Private, &things.private),
        ("public", About::Public, &things.public),
        ("unlisted", About::Unlisted, &things.unlisted),
    ];
    for (name, about, id) in fragments {
        let get = |version: Option<&str>| {
            let version = version.map(str::to_owned);
            GetFragmentRequest { id: id.clone(), version, ..GetFragmentRequest::default() }.encode_to_vec()
        };
        ask(name, "GetFragment", about, get(None), name, &[2]);
        ask(&format!("{name}, the revision before"), "GetFragment", about, get(Some("2")), name, &[1]);
        let history = GetFragmentHistoryRequest { id: id.clone(), ..GetFragmentHistoryRequest::default() };
        ask(name, "GetFragmentHistory", about, history.encode_to_vec(), name, &[1, 2]);
    }
    let list = |organization: &str, visibility: FragmentVisibility| {
        ListFragmentsRequest {
            organization_id: organization.into(),
            fragment_visibility: vec![visibility.into()],
            ..ListFragmentsRequest::default()
        }
        .encode_to_vec()
    };
    let own = &things.owner.organization;
    ask("private", "ListFragments", About::List, list(own, FragmentVisibility::Private), "private", &[2]);
    ask("unlisted", "ListFragments", About::List, list(own, FragmentVisibility::PublicUnlisted), "unlisted", &[2]);
    ask("public", "ListFragments", About::List, list(own, FragmentVisibility::Public), "public", &[2]);
    ask("", "ListFragments", About::PublicList, list("", FragmentVisibility::Public), "public", &[2]);

    let part = GetRobotPartRequest { id: things.part.id.clone() };
    ask("", "GetRobotPart", About::Part, part.encode_to_vec(), "part", &[3]);
    let parts = GetRobotPartsRequest { robot_id: things.machine.clone() };
    ask("", "GetRobotParts", About::Part, parts.encode_to_vec(), "part", &[3]);
    let named =
        GetRobotPartByNameAndLocationRequest { name: things.part.name.clone(), location_id: things.location.clone() };
    ask("", "GetRobotPartByNameAndLocation", About::Part, named.encode_to_vec(), "part", &[3]);
    let history = GetRobotPartHistoryRequest { id: things.part.id.clone(), ..GetRobotPartHistoryRequest::default() };
    ask("", "GetRobotPartHistory", About::Part, history.encode_to_vec(), "part", &[1, 2]);
    let made =
        ListMachineFragmentsRequest { machine_id: things.machine.clone(), ..ListMachineFragmentsRequest::default() };
    ask("", "ListMachineFragments", About::Made, made.encode_to_vec(), "private", &[2]);
    let more = ListMachineFragmentsRequest { additional_fragment_ids: vec![things.public.clone()], ..made };
    ask("with a public one", "ListMachineFragments", About::Made, more.encode_to_vec(), "public", &[2]);
    all
}

/// What an answer shows of all passwords there are.
fn sight(question: &Question, answer: Result<Bytes, Status>) -> Result<Sight, String> {
    let bytes = match answer {
        Ok(bytes) => bytes,
        Err(refused) => {
            return match refused.code() {
                Code::NotFound => Ok(Absent),
                Code::PermissionDenied => Ok(Denied),
                _ => Err(refused.to_string()),
            };
        }
    };
    let holds = |text: &str| bytes.windows(text.len()).any(|part| part == text.as_bytes());
    let of_ours = ["part", "private", "public", "unlisted"];
    let shown: Vec<String> = of_ours
        .iter()
        .flat_map(|of| [1, 2, 3].map(|revision| secret(of, revision)))
        .filter(|secret| holds(secret))
        .collect();
    match (holds(MASK), shown.is_empty()) {
        (false, false) if question.shows.iter().all(|secret| shown.contains(secret)) => Ok(Clear),
        (true, true) => Ok(Masked),
        (masked, _) => Err(format!("masked: {masked}, shown: {shown:?}")),
    }
}

#[tokio::test]
async fn passwords_are_for_who_may_write_them_in_every_answer() {
    let world = World::new().await;
    let things = things(&world).await;
    let org = things.owner.organization.clone();
    let partner = world.owner("Partner").await;
    let share =
        ShareLocationRequest { location_id: things.location.clone(), organization_id: partner.organization.clone() };
    things.owner.client.app::<_, ShareLocationResponse>("ShareLocation", share).await.unwrap();
    let stranger = world.owner("Strangers").await;
    let key = async |role: &str, kind: &str, resource: &str| world.key(&things.owner, role, kind, resource).await;
    let (_, ann) = person(&world, "ann@example.org", Some((&org, Role::Operator))).await;
    let (_, loner) = person(&world, "loner@example.org", None).await;
    let device = world.login("robot-secret", &things.part.id, &things.part.secret).await.unwrap();
    let (location, machine) = (&*things.location, &*things.machine);
    // Who; the organization in which it looks for public fragments; how it is shown parts, private fragments, public
    // ones by their id, what the machine is made of, its own list, and the list of public ones.
    type Row<'r> = (&'r str, Client, &'r str, [Sight; 6]);
    let table: Vec<Row<'_>> = vec![
        ("owner", things.owner.client.clone(), &org, [Clear; 6]),
        ("operator", key("operator", "organization", &org).await, &org, [Masked; 6]),
        ("operator, a person", ann, &org, [Masked; 6]),
        (
            "location owner",
            key("owner", "location", location).await,
            &org,
            [Clear, Absent, Masked, Masked, Denied, Denied],
        ),
        (
            "location operator",
            key("operator", "location", location).await,
            &org,
            [Masked, Absent, Masked, Masked, Denied, Denied],
        ),
        ("machine owner", key("owner", "robot", machine).await, &org, [Clear, Absent, Masked, Masked, Denied, Denied]),
        (
            "machine operator",
            key("operator", "robot", machine).await,
            &org,
            [Masked, Absent, Masked, Masked, Denied, Denied],
        ),
        (
            "owner, by a share",
            partner.client.clone(),
            &partner.organization,
            [Clear, Absent, Masked, Masked, Absent, Masked],
        ),
        (
            "operator, by a share",
            world.key(&partner, "operator", "organization", &partner.organization).await,
            &partner.organization,
            [Masked, Absent, Masked, Masked, Absent, Masked],
        ),
        ("stranger", stranger.client.clone(), &stranger.organization, [Absent, Absent, Masked, Absent, Absent, Masked]),
        ("a person of no organization", loner, &org, [Absent, Absent, Masked, Absent, Absent, Absent]),
        ("the device", device, &org, [Denied; 6]),
    ];
    let mut wrong = Vec::new();
    for (who, client, organization, [parts, private, public, made, own, listed]) in table {
        for question in questions(&things) {
            let expected = match question.about {
                About::Part => parts,
                About::Private => private,
                About::Public | About::Unlisted => public,
                About::Made => made,
                About::List => own,
                About::PublicList => listed,
            };
            let mut request = question.request.clone();
            if question.about == About::PublicList {
                let mut list = ListFragmentsRequest::decode(&*request).unwrap();
                list.organization_id = organization.to_owned();
                request = list.encode_to_vec().into();
            }
            let path = format!("/platform.app.v1.AppService/{}", question.operation);
            let seen = sight(&question, client.raw(&path, request).await);
            if seen != Ok(expected) {
                wrong.push(format!("{who}: {}: {seen:?}, expected {expected:?}", question.what));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    world.end().await;
}

#[tokio::test]
async fn what_is_given_to_default_fragments_is_for_owners() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    let base = fragment(&owner, "base", FragmentVisibility::Private).await;
    let value = prost_types::Value { kind: Some(prost_types::value::Kind::StringValue("given-new".into())) };
    #[allow(deprecated, reason = "old clients give variables as text")]
    let import = FragmentImport {
        fragment_id: base.clone(),
        variables: [("wifi".to_owned(), "given-old".to_owned())].into(),
        fragment_variables: Some(prost_types::Struct { fields: [("wifi".to_owned(), value)].into() }),
        ..FragmentImport::default()
    };
    let request = UpdateOrganizationRequest {
        organization_id: owner.organization.clone(),
        default_fragments: Some(FragmentImportList { fragments: vec![import.clone()] }),
        ..UpdateOrganizationRequest::default()
    };
    owner.client.app::<_, UpdateOrganizationResponse>("UpdateOrganization", request).await.unwrap();
    let operator = world.key(&owner, "operator", "organization", &owner.organization).await;
    let shown = async |client: &Client| {
        let get = GetOrganizationRequest { organization_id: owner.organization.clone() };
        let got: GetOrganizationResponse = client.app("GetOrganization", get).await.unwrap();
        let listed: ListOrganizationsResponse =
            client.app("ListOrganizations", ListOrganizationsRequest {}).await.unwrap();
        let got = got.organization.unwrap();
        assert_eq!(listed.organizations, std::slice::from_ref(&got), "told alike by both");
        got.default_fragments.unwrap().fragments.remove(0)
    };
    assert_eq!(shown(&owner.client).await, import);
    let masked = shown(&operator).await;
    assert_eq!(masked.fragment_id, base);
    let (text, names) = (format!("{masked:?}"), masked.fragment_variables.unwrap().fields);
    assert!(!text.contains("given-") && text.contains(MASK), "{text}");
    assert_eq!(names.into_keys().collect::<Vec<_>>(), ["wifi"], "which there are is told");
    world.end().await;
}
