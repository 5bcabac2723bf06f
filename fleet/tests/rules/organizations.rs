//! Organizations, their namespaces and keys.

use std::{collections::BTreeMap, sync::Arc};

use api::pb::platform::app::v1::*;
use serde_json::json;
use tokio::sync::Barrier;
use tonic::Code;

use super::world::{Client, Owner, World, code};

use Code::{AlreadyExists, FailedPrecondition, InvalidArgument, NotFound, Ok as Yes};

async fn update(client: &Client, request: UpdateOrganizationRequest) -> Result<Organization, Code> {
    let updated = client.app::<_, UpdateOrganizationResponse>("UpdateOrganization", request).await;
    updated.map(|updated| updated.organization.unwrap()).map_err(|refused| refused.code())
}

fn of(owner: &Owner) -> UpdateOrganizationRequest {
    UpdateOrganizationRequest { organization_id: owner.organization.clone(), ..Default::default() }
}

async fn claim(client: Client, organization: String, namespace: String) -> Code {
    let request = UpdateOrganizationRequest {
        organization_id: organization,
        public_namespace: Some(namespace),
        ..Default::default()
    };
    code(client.app::<_, UpdateOrganizationResponse>("UpdateOrganization", request).await)
}

#[tokio::test]
async fn an_update_of_an_organization_changes_what_it_names() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    let request = CreateFragmentRequest {
        name: "base".into(),
        organization_id: owner.organization.clone(),
        ..CreateFragmentRequest::default()
    };
    let base: CreateFragmentResponse = owner.client.app("CreateFragment", request).await.unwrap();
    let import = FragmentImport { fragment_id: base.fragment.unwrap().id, ..Default::default() };
    let list = FragmentImportList { fragments: vec![import] };
    let change = UpdateOrganizationRequest {
        name: Some("  Werk Süd ".into()),
        region: Some("eu-north".into()),
        cid: Some("customer 7".into()),
        default_fragments: Some(list.clone()),
        ..of(&owner)
    };
    let expected = update(&owner.client, change).await.unwrap();
    assert_eq!((&*expected.name, &*expected.default_region), ("Werk Süd", "eu-north"));
    assert_eq!((expected.cid.as_deref(), &expected.default_fragments), (Some("customer 7"), &Some(list)));
    for nothing in [of(&owner), UpdateOrganizationRequest { name: Some(String::new()), ..of(&owner) }] {
        assert_eq!(update(&owner.client, nothing).await.as_ref(), Ok(&expected));
    }
    let get = GetOrganizationRequest { organization_id: owner.organization.clone() };
    let got: GetOrganizationResponse = owner.client.app("GetOrganization", get).await.unwrap();
    assert_eq!(got.organization, Some(expected));
    for name in [" ".to_owned(), "a\0b".into(), "a\u{7}".into(), "x".repeat(201)] {
        let wrong = UpdateOrganizationRequest { name: Some(name), ..of(&owner) };
        assert_eq!(update(&owner.client, wrong).await, Err(InvalidArgument));
    }
    for name in ["", "  ", "a\nb"] {
        let wrong = CreateOrganizationRequest { name: name.into() };
        let refused = owner.client.app::<_, CreateOrganizationResponse>("CreateOrganization", wrong).await;
        assert_eq!(code(refused), InvalidArgument, "{name:?}");
    }
    world.end().await;
}

#[tokio::test]
async fn a_namespace_is_claimed_once_by_one_and_never_changed() {
    let world = World::new().await;
    let (owner, other) = (world.owner("Acme").await, world.owner("Other").await);
    let available = async |namespace: &str| {
        let request = GetOrganizationNamespaceAvailabilityRequest {
            public_namespace: namespace.into(),
            ..GetOrganizationNamespaceAvailabilityRequest::default()
        };
        let operation = "GetOrganizationNamespaceAvailability";
        let told = owner.client.app::<_, GetOrganizationNamespaceAvailabilityResponse>(operation, request).await;
        told.map(|told| told.available).map_err(|refused| refused.code())
    };
    let claims =
        |owner: &Owner, namespace: &str| claim(owner.client.clone(), owner.organization.clone(), namespace.to_owned());
    for wrong in ["Acme", "a b", "a_b", "a.b", "ä", "a:b", "a/b", "a\0", &"x".repeat(64), &other.organization] {
        assert_eq!(available(wrong).await, Err(InvalidArgument), "{wrong:?}");
        assert_eq!(claims(&owner, wrong).await, InvalidArgument, "{wrong:?}");
    }
    assert_eq!(available("").await, Err(InvalidArgument));
    assert_eq!(available("acme-1").await, Ok(true));
    assert_eq!(claims(&owner, "acme-1").await, Yes);
    assert_eq!(available("acme-1").await, Ok(false));
    assert_eq!(claims(&other, "acme-1").await, AlreadyExists);
    assert_eq!(claims(&owner, "acme-2").await, FailedPrecondition);
    assert_eq!(claims(&owner, "acme-1").await, Yes, "what is there already is no change");
    world.end().await;
}

/// Twelve organizations, each wanting two of six names at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_claims_at_once_each_name_has_one_winner_and_each_organization_one_name() {
    let world = World::new().await;
    let mut owners = Vec::new();
    for n in 0..12 {
        owners.push(world.owner(&format!("Organization {n}")).await);
    }
    let together = Arc::new(Barrier::new(24));
    let claims = (0..24).map(|n| {
        let (owner, together) = (&owners[n / 2], together.clone());
        let (client, organization) = (owner.client.clone(), owner.organization.clone());
        // The two of one organization are different, and each name is wanted by four.
        let namespace = format!("name-{}", (n / 2 + n % 2 * 3) % 6);
        tokio::spawn(async move {
            together.wait().await;
            (organization.clone(), namespace.clone(), claim(client, organization, namespace).await)
        })
    });
    let mut won: BTreeMap<String, String> = BTreeMap::new();
    for claim in claims.collect::<Vec<_>>() {
        let (organization, namespace, answer) = claim.await.unwrap();
        match answer {
            Yes => {
                let before = won.insert(organization, namespace.clone());
                assert_eq!(before, None, "an organization has one name: {namespace}");
            }
            refused => assert!(matches!(refused, AlreadyExists | FailedPrecondition), "{namespace}: {refused:?}"),
        }
    }
    let names: std::collections::BTreeSet<&String> = won.values().collect();
    assert_eq!((won.len(), names.len()), (6, 6), "each name has one owner: {won:?}");
    for owner in &owners {
        let get = GetOrganizationRequest { organization_id: owner.organization.clone() };
        let got: GetOrganizationResponse = owner.client.app("GetOrganization", get).await.unwrap();
        let kept = got.organization.unwrap().public_namespace;
        assert_eq!(won.get(&owner.organization).map_or("", String::as_str), kept);
    }
    world.end().await;
}

#[tokio::test]
async fn a_key_has_roles_of_one_organization_a_name_and_a_secret_that_is_shown_once() {
    let world = World::new().await;
    let (owner, other) = (world.owner("Acme").await, world.owner("Other").await);
    let create = async |request: CreateKeyRequest| {
        let made = owner.client.app::<_, CreateKeyResponse>("CreateKey", request).await;
        made.map_err(|refused| refused.code())
    };
    let good = owner.key_request("operator", "organization", &owner.organization);
    let of = |change: fn(&mut Authorization)| {
        let mut request = good.clone();
        change(&mut request.authorizations[0]);
        request
    };
    let mut torn = good.clone();
    torn.authorizations.extend(other.key_request("operator", "organization", &other.organization).authorizations);
    let foreign = owner.key_request("operator", "organization", &other.organization);
    let table = [
        ("no role", CreateKeyRequest { authorizations: Vec::new(), ..good.clone() }, InvalidArgument),
        ("two organizations", torn, InvalidArgument),
        ("no such role", of(|one| one.authorization_id = "organization_admin".into()), InvalidArgument),
        ("no such kind", of(|one| one.resource_type = "fragment".into()), InvalidArgument),
        ("no organization", of(|one| one.organization_id.clear()), InvalidArgument),
        ("another's resource", foreign, NotFound),
        ("a bell in the name", CreateKeyRequest { name: "a\u{7}".into(), ..good.clone() }, InvalidArgument),
    ];
    for (case, request, expected) in table {
        assert_eq!(create(request).await.map(drop), Err(expected), "{case}");
    }
    let named = create(good.clone()).await.unwrap();
    let unnamed = create(CreateKeyRequest { name: String::new(), ..good }).await.unwrap();
    let list = ListKeysRequest { org_id: owner.organization.clone() };
    let listed: ListKeysResponse = owner.client.app("ListKeys", list).await.unwrap();
    let key = |id: &str| {
        let with = listed.api_keys.iter().find(|one| one.api_key.as_ref().unwrap().id == id).unwrap();
        (with.api_key.clone().unwrap(), with.authorizations.clone())
    };
    let (one, roles) = key(&named.id);
    assert_eq!((&*one.name, &*one.key), ("organization operator", ""));
    assert_eq!((roles.len(), &*roles[0].authorization_id), (1, "organization_operator"));
    assert_eq!((&roles[0].org_id, &roles[0].resource_id), (&owner.organization, &owner.organization));
    // The day is in the name: nothing else tells such keys apart.
    let (one, _) = key(&unnamed.id);
    assert!(one.name.contains(|letter: char| letter.is_ascii_digit()), "{}", one.name);
    assert!(!format!("{listed:?}").contains(&named.key), "a key is shown once");
    assert_eq!(named.id.split('-').map(str::len).collect::<Vec<_>>(), [8, 4, 4, 4, 12], "a UUID");
    world.end().await;
}

#[tokio::test]
async fn default_fragments_are_there_and_may_be_used() {
    let world = World::new().await;
    let (owner, other) = (world.owner("Acme").await, world.owner("Other").await);
    let own = owner.fragment("own", FragmentVisibility::Private).await;
    let shared = other.fragment("shared", FragmentVisibility::PublicUnlisted).await;
    let hidden = other.fragment("hidden", FragmentVisibility::Private).await;
    let import = |id: &str, version: &str| FragmentImport {
        fragment_id: id.into(),
        version: version.into(),
        ..FragmentImport::default()
    };
    let set = async |fragments: Vec<FragmentImport>| {
        let request =
            UpdateOrganizationRequest { default_fragments: Some(FragmentImportList { fragments }), ..of(&owner) };
        update(&owner.client, request).await.map(|now| now.default_fragments.unwrap_or_default().fragments.len())
    };
    let nothing = "00000000-0000-4000-8000-000000000000";
    let odd = FragmentImport { prefix: Some("a\0b".into()), ..import(&own, "") };
    let long = FragmentImport { prefix: Some("x".repeat(61)), ..import(&own, "") };
    let table = [
        ("its own and one that is public", vec![import(&own, ""), import(&shared, "1")], Ok(2)),
        ("no id", vec![import("", "")], Err(Code::InvalidArgument)),
        ("not an id", vec![import(&own, ""), import("base", "")], Err(Code::InvalidArgument)),
        ("of nothing", vec![import(nothing, "")], Err(Code::NotFound)),
        ("somebody's private one", vec![import(&hidden, "")], Err(Code::NotFound)),
        ("a version that never was", vec![import(&own, "9")], Err(Code::NotFound)),
        ("a version with a bell", vec![import(&own, "\u{7}")], Err(Code::InvalidArgument)),
        ("a prefix with NUL", vec![odd], Err(Code::InvalidArgument)),
        ("a prefix that is no beginning of a name", vec![long], Err(Code::InvalidArgument)),
        ("too many", vec![import(&own, ""); 101], Err(Code::InvalidArgument)),
    ];
    for (case, fragments, expected) in table {
        assert_eq!(set(fragments).await, expected, "{case}");
        assert_eq!(update(&owner.client, of(&owner)).await.unwrap().default_fragments.unwrap().fragments.len(), 2);
    }
    assert_eq!(set(Vec::new()).await, Ok(0));
    world.end().await;
}

#[tokio::test]
async fn a_new_machine_begins_with_its_organizations_default_fragments() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    let place = owner.location("Hall", None).await;
    let machine = async |name: &str| {
        let machine = owner.machine(&place, name).await;
        let request = GetRobotPartsRequest { robot_id: machine.clone() };
        let parts: GetRobotPartsResponse = owner.client.app("GetRobotParts", request).await.unwrap();
        let config = parts.parts[0].robot_config_json.clone().unwrap();
        (machine, serde_json::from_str::<serde_json::Value>(&config).unwrap())
    };
    assert_eq!(machine("before").await.1, json!({}));

    let (base, bound) = (
        owner.fragment("base", FragmentVisibility::Private).await,
        owner.fragment("bound", FragmentVisibility::Private).await,
    );
    let text = |text: &str| prost_types::Value { kind: Some(prost_types::value::Kind::StringValue(text.into())) };
    #[allow(deprecated, reason = "old clients give variables as text")]
    let imports = vec![
        FragmentImport { fragment_id: base.clone(), ..Default::default() },
        FragmentImport {
            fragment_id: bound.clone(),
            version: "1".into(),
            prefix: Some("left".into()),
            variables: [("old".to_owned(), "a".to_owned()), ("both".to_owned(), "b".to_owned())].into(),
            fragment_variables: Some(prost_types::Struct { fields: [("both".to_owned(), text("c"))].into() }),
        },
    ];
    let defaults =
        UpdateOrganizationRequest { default_fragments: Some(FragmentImportList { fragments: imports }), ..of(&owner) };
    update(&owner.client, defaults).await.unwrap();
    let (with, config) = machine("with").await;
    let expected = json!({ "fragments": [
        { "id": base },
        { "id": bound, "version": "1", "prefix": "left", "variables": { "old": "a", "both": "c" } },
    ]});
    assert_eq!(config, expected);
    let part: NewRobotPartResponse = owner
        .client
        .app("NewRobotPart", NewRobotPartRequest { robot_id: with.clone(), part_name: "arm".into() })
        .await
        .unwrap();
    let got: GetRobotPartResponse =
        owner.client.app("GetRobotPart", GetRobotPartRequest { id: part.part_id }).await.unwrap();
    assert_eq!(got.part.unwrap().robot_config_json.as_deref(), Some("{}"), "machines begin so, further parts do not");

    // The machine names them by itself now: they stay when the organization proposes nothing any more.
    let none = UpdateOrganizationRequest { default_fragments: Some(FragmentImportList::default()), ..of(&owner) };
    update(&owner.client, none).await.unwrap();
    let delete = async |id: &str| {
        let request = DeleteFragmentRequest { id: id.into() };
        owner.client.app::<_, DeleteFragmentResponse>("DeleteFragment", request).await.map_err(|refused| refused.code())
    };
    assert_eq!(delete(&bound).await.err(), Some(Code::FailedPrecondition));
    assert_eq!(machine("after").await.1, json!({}));
    let gone = DeleteRobotRequest { id: with };
    owner.client.app::<_, DeleteRobotResponse>("DeleteRobot", gone).await.unwrap();
    assert_eq!(delete(&bound).await.err(), None);
    world.end().await;
}
