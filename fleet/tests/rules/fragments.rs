//! Fragments: who lists which, and pages of their histories. Modules of others that are public.

use api::pb::platform::app::v1::*;
use fleet::history;
use tonic::Code;

use super::world::{Owner, World, code};

use Code::{InvalidArgument, NotFound};
use FragmentVisibility::{Private, Public, PublicUnlisted};

#[tokio::test]
async fn fragments_are_listed_by_visibility_and_unlisted_ones_by_their_owner_alone() {
    let world = World::new().await;
    let (owner, other) = (world.owner("Acme").await, world.owner("Other").await);
    for (whose, prefix) in [(&owner, "our"), (&other, "their")] {
        for (visibility, name) in [(Private, "private"), (Public, "public"), (PublicUnlisted, "unlisted")] {
            whose.fragment(&format!("{prefix} {name}"), visibility).await;
        }
    }
    let list = async |show_public: bool, visibilities: &[i32]| {
        let request = ListFragmentsRequest {
            organization_id: owner.organization.clone(),
            show_public,
            fragment_visibility: visibilities.to_vec(),
        };
        let listed = owner.client.app::<_, ListFragmentsResponse>("ListFragments", request).await;
        let mut found = listed.map_err(|refused| refused.code())?.fragments;
        found.sort_by(|one, other| one.name.cmp(&other.name));
        for one in &found {
            assert_eq!(one.public, one.visibility() != Private, "{}", one.name);
        }
        Ok(found.into_iter().map(|one| one.name).collect::<Vec<_>>().join(", "))
    };
    let (private, public, unlisted) = (i32::from(Private), i32::from(Public), i32::from(PublicUnlisted));
    let table = [
        ("public only", true, vec![], Ok("our public, their public")),
        ("private only", false, vec![], Ok("our private")),
        ("a list decides", true, vec![private], Ok("our private")),
        ("a list decides", false, vec![public], Ok("our public, their public")),
        ("one's own unlisted ones", true, vec![unlisted], Ok("our unlisted")),
        ("all", false, vec![private, public, unlisted], Ok("our private, our public, our unlisted, their public")),
        ("nothing in particular", true, vec![0], Err(InvalidArgument)),
        ("no such visibility", true, vec![9], Err(InvalidArgument)),
    ];
    for (case, show_public, visibilities, expected) in table {
        assert_eq!(list(show_public, &visibilities).await, expected.map(str::to_owned), "{case}");
    }
    for name in ["", "  ", "a\0b", &"x".repeat(201)] {
        let wrong = CreateFragmentRequest {
            name: name.into(),
            organization_id: owner.organization.clone(),
            ..CreateFragmentRequest::default()
        };
        let refused = owner.client.app::<_, CreateFragmentResponse>("CreateFragment", wrong).await;
        assert_eq!(code(refused), InvalidArgument, "{name:?}");
    }
    world.end().await;
}

/// Sets what a fragment is made of; what the server says to it.
async fn contains(owner: &Owner, id: &str, fragments: &[&str]) -> Result<(), tonic::Status> {
    let request = UpdateFragmentRequest {
        id: id.into(),
        name: id.into(),
        fragment_config_json: Some(serde_json::json!({ "fragments": fragments }).to_string()),
        ..UpdateFragmentRequest::default()
    };
    owner.client.app::<_, UpdateFragmentResponse>("UpdateFragment", request).await.map(drop)
}

#[tokio::test]
async fn fragments_contain_no_circle_and_lie_no_deeper_than_eight_levels_from_either_end() {
    let world = World::new().await;
    let (owner, other) = (world.owner("Acme").await, world.owner("Other").await);
    let mut chain = Vec::new();
    for n in 0..9 {
        chain.push(owner.fragment(&format!("f{n}"), PublicUnlisted).await);
    }
    let link = async |from: usize, to: usize| {
        let refused = contains(&owner, &chain[from], &[&chain[to]]).await.err();
        refused.map(|refused| {
            assert_eq!(refused.code(), InvalidArgument, "{refused}");
            refused.message().to_owned()
        })
    };
    for (from, to) in [(0, 1), (1, 2)] {
        assert_eq!(link(from, to).await, None);
    }
    let refused = link(2, 0).await.expect("a circle of three");
    assert!(refused.contains("would contain itself"), "{refused}");
    // Eight levels, put together from the middle; the ninth is too much at the top, and at the bottom.
    for (from, to) in [(5, 6), (4, 5), (3, 4), (2, 3), (6, 7)] {
        assert_eq!(link(from, to).await, None, "{from} in {to}");
    }
    let refused = link(7, 0).await.expect("a circle of eight");
    assert!(refused.contains("would contain itself"), "{refused}");
    let refused = link(7, 8).await.expect("nine levels from below");
    assert!(refused.contains("deeper than 8 levels: 7 above it"), "{refused}");
    let refused = link(8, 0).await.expect("nine levels from above");
    assert!(refused.contains("deeper than 8 levels"), "{refused}");
    // Who puts it into fragments of another organization keeps nobody from changing it.
    let theirs = other.fragment("theirs", Private).await;
    contains(&owner, &chain[6], &[]).await.unwrap();
    contains(&other, &theirs, &[&chain[0]]).await.unwrap();
    assert_eq!(link(6, 8).await, None);
    world.end().await;
}

#[tokio::test]
async fn the_text_of_a_configuration_wins_over_its_struct_and_what_is_not_said_stays() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    let made = owner.fragment("f", Private).await;
    let part = owner.main_part(&owner.machine(&owner.location("North", None).await, "arm").await).await;
    let value = prost_types::Value { kind: Some(prost_types::value::Kind::BoolValue(true)) };
    let filled = || prost_types::Struct { fields: [("struct".to_owned(), value.clone())].into() };
    let text = |said: &str| Some(format!("{{\"{said}\": true}}"));
    let table = [
        ("a Struct alone", Some(filled()), None, "struct"),
        ("both", Some(filled()), text("text"), "text"),
        ("text alone", None, text("other"), "other"),
        ("neither", None, None, "other"),
    ];
    for (case, config, json, expected) in table {
        let update = UpdateFragmentRequest {
            id: made.clone(),
            name: "f".into(),
            config: config.clone(),
            fragment_config_json: json.clone(),
            ..UpdateFragmentRequest::default()
        };
        let updated: UpdateFragmentResponse = owner.client.app("UpdateFragment", update).await.unwrap();
        let stored = updated.fragment.unwrap().fragment.unwrap();
        assert_eq!(stored.fields.keys().collect::<Vec<_>>(), [expected], "a fragment, {case}");
        let update = UpdateRobotPartRequest {
            id: part.id.clone(),
            name: part.name.clone(),
            robot_config: config,
            robot_config_json: json,
            ..UpdateRobotPartRequest::default()
        };
        let updated: UpdateRobotPartResponse = owner.client.app("UpdateRobotPart", update).await.unwrap();
        let stored = updated.part.unwrap().robot_config.unwrap();
        assert_eq!(stored.fields.keys().collect::<Vec<_>>(), [expected], "a part, {case}");
    }
    world.end().await;
}

#[tokio::test]
async fn a_page_of_a_fragments_history_has_ten_entries_and_its_token_is_good_there_alone() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    let (one, other) = (owner.fragment("one", Private).await, owner.fragment("other", Private).await);
    for id in [&one, &other] {
        for n in 0..11 {
            let request = UpdateFragmentRequest {
                id: id.clone(),
                name: id[..8].into(),
                fragment_config_json: Some(format!("{{\"n\":{n}}}")),
                ..UpdateFragmentRequest::default()
            };
            owner.client.app::<_, UpdateFragmentResponse>("UpdateFragment", request).await.unwrap();
        }
    }
    let ask = async |id: &str, token: Option<&str>, limit: Option<i64>| {
        let request = GetFragmentHistoryRequest { id: id.into(), page_token: token.map(Into::into), page_limit: limit };
        let told = owner.client.app::<_, GetFragmentHistoryResponse>("GetFragmentHistory", request).await;
        told.map(|told| (told.history.len(), told.next_page_token)).map_err(|refused| refused.code())
    };
    let (count, token) = ask(&one, None, None).await.unwrap();
    assert_eq!(count, 10);
    assert_eq!(ask(&one, Some(""), Some(0)).await, Ok((10, token.clone())), "absent and nothing are the same");
    assert_eq!(ask(&one, Some(&token), Some(100)).await, Ok((2, String::new())));
    assert_eq!(ask(&other, Some(&token), None).await, Err(InvalidArgument), "another's token");
    assert_eq!(ask(&one, Some("x"), None).await, Err(InvalidArgument));
    assert_eq!(ask("x", None, None).await, Err(InvalidArgument));
    assert_eq!(ask("00000000-0000-4000-8000-000000000000", None, None).await, Err(NotFound));
    world.end().await;
}

/// Revisions of it that there are, newest first.
async fn revisions(owner: &Owner, id: &str) -> String {
    let request = GetFragmentHistoryRequest { id: id.into(), page_token: None, page_limit: Some(100) };
    let told: GetFragmentHistoryResponse = owner.client.app("GetFragmentHistory", request).await.unwrap();
    told.history.into_iter().map(|entry| entry.revision).collect::<Vec<_>>().join(" ")
}

async fn changed(owner: &Owner, id: &str, config: String) {
    let request = UpdateFragmentRequest {
        id: id.into(),
        name: id[..8].into(),
        fragment_config_json: Some(config),
        ..UpdateFragmentRequest::default()
    };
    owner.client.app::<_, UpdateFragmentResponse>("UpdateFragment", request).await.unwrap();
}

async fn names(owner: &Owner, part: &RobotPart, fragment: &str, version: &str) {
    let config = format!(r#"{{"fragments": [{{"id": "{fragment}", "version": "{version}"}}]}}"#);
    owner.configure(part, &config).await;
}

#[tokio::test]
async fn a_former_revision_stays_while_it_is_young_or_named_by_whatever_may_be_used() {
    let world = World::new().await;
    let context = &world.server.context;
    let (owner, other) = (world.owner("Acme").await, world.owner("Other").await);
    let (base, over) = (owner.fragment("base", Public).await, owner.fragment("over", Public).await);
    // Revisions 2 to 7; 1 was empty.
    for n in 2..=7 {
        changed(&owner, &base, format!(r#"{{"components": [{{"name": "n{n}", "model": "acme:arm:{n}"}}]}}"#)).await;
    }
    // By a part of another organization; by a fragment's former revision, which a part names; by a default of all.
    let location = other.location("North", None).await;
    let (arm, leg) = (other.machine(&location, "arm").await, other.machine(&location, "leg").await);
    let (arm, leg) = (other.main_part(&arm).await, other.main_part(&leg).await);
    names(&other, &arm, &base, "2").await;
    changed(&owner, &over, format!(r#"{{"fragments": [{{"id": "{base}", "version": "3"}}]}}"#)).await;
    names(&other, &leg, &over, "2").await;
    changed(&owner, &over, "{}".to_owned()).await;
    let default = FragmentImport { fragment_id: base.clone(), version: "4".into(), ..FragmentImport::default() };
    let defaults = |fragments| UpdateOrganizationRequest {
        organization_id: owner.organization.clone(),
        default_fragments: Some(FragmentImportList { fragments }),
        ..UpdateOrganizationRequest::default()
    };
    let wanted = defaults(vec![default]);
    owner.client.app::<_, UpdateOrganizationResponse>("UpdateOrganization", wanted).await.unwrap();

    let days = |days: i64| days * 24 * 60 * 60 * 1000;
    let round = async |kept| {
        let gone = history::round(context, history::Limits::new(None, Some(kept))).await.unwrap();
        (gone.fragments, revisions(&owner, &base).await, revisions(&owner, &over).await)
    };
    let is = |gone, base: &str, over: &str| (gone, base.to_owned(), over.to_owned());
    context.clock.push(days(10));
    changed(&owner, &base, "{}".to_owned()).await;
    assert_eq!(round(11).await, is(0, "8 7 6 5 4 3 2 1", "3 2 1"), "young");
    // What was replaced a moment ago was the present one for ten days.
    assert_eq!(round(9).await, is(4, "8 7 4 3 2", "3 2"));
    assert_eq!(round(9).await, is(0, "8 7 4 3 2", "3 2"));
    // Nobody names the former revision of the other one any more, and then nothing names what that named.
    names(&other, &leg, &base, "4").await;
    owner.client.app::<_, UpdateOrganizationResponse>("UpdateOrganization", defaults(Vec::new())).await.unwrap();
    assert_eq!(round(9).await, is(2, "8 7 4 2", "3"));
    context.clock.push(days(10));
    assert_eq!(round(9).await, is(1, "8 4 2", "3"), "what is, stays, however old");
    for (part, n) in [(&arm, "n2"), (&leg, "n4")] {
        let request = ConfigRequest { id: part.id.clone(), ..ConfigRequest::default() };
        let device = world.login("robot-secret", &part.id, &part.secret).await.unwrap();
        let told: ConfigResponse = device.call("/platform.app.v1.RobotService/Config", request).await.unwrap();
        let components = told.config.unwrap().components;
        assert_eq!(components.iter().map(|one| &*one.name).collect::<Vec<_>>(), [n]);
    }
    world.end().await;
}

#[tokio::test]
async fn modules_are_listed_with_the_public_ones_of_others() {
    let world = World::new().await;
    let (owner, other) = (world.owner("Acme").await, world.owner("Other").await);
    let namespace = UpdateOrganizationRequest {
        organization_id: other.organization.clone(),
        public_namespace: Some("other".into()),
        ..UpdateOrganizationRequest::default()
    };
    other.client.app::<_, UpdateOrganizationResponse>("UpdateOrganization", namespace).await.unwrap();
    for (whose, name, visibility) in [
        (&owner, "ours", Visibility::Private),
        (&other, "private", Visibility::Private),
        (&other, "public", Visibility::Public),
        (&other, "unlisted", Visibility::PublicUnlisted),
    ] {
        let create = CreateModuleRequest { organization_id: whose.organization.clone(), name: name.into() };
        let made: CreateModuleResponse = whose.client.app("CreateModule", create).await.unwrap();
        let show = UpdateModuleRequest {
            module_id: made.module_id,
            visibility: visibility.into(),
            ..UpdateModuleRequest::default()
        };
        whose.client.app::<_, UpdateModuleResponse>("UpdateModule", show).await.unwrap();
    }
    let list = ListModulesRequest { organization_id: Some(owner.organization.clone()), ..Default::default() };
    let listed: ListModulesResponse = owner.client.app("ListModules", list).await.unwrap();
    let mut names: Vec<&str> = listed.modules.iter().map(|module| &*module.name).collect();
    names.sort_unstable();
    assert_eq!(names, ["ours", "public"]);
    world.end().await;
}

#[tokio::test]
async fn a_fragment_that_becomes_private_is_gone_from_the_machines_of_others_at_the_next_question() {
    use api::pb::platform::app::agent::v1::{DeviceAgentConfigRequest, DeviceAgentConfigResponse};
    let world = World::new().await;
    let (owner, other) = (world.owner("Acme").await, world.owner("Other").await);
    let id = owner.fragment("shared", Private).await;
    let setting = |n: u8| format!(r#"{{"agent":{{"advanced_settings":{{"n":{n}}}}}}}"#);
    let show = async |public: Option<bool>, config: Option<String>| {
        let request = UpdateFragmentRequest {
            id: id.clone(),
            name: "shared".into(),
            public,
            fragment_config_json: config,
            ..UpdateFragmentRequest::default()
        };
        owner.client.app::<_, UpdateFragmentResponse>("UpdateFragment", request).await.unwrap();
    };
    // Revision 2 while it is private, 3 when it is public.
    show(None, Some(setting(2))).await;
    show(Some(true), Some(setting(3))).await;
    let mut devices = Vec::new();
    for (whose, version) in [(&owner, ""), (&other, ""), (&owner, "2"), (&other, "2"), (&other, "3")] {
        let location = whose.location(&format!("North {version}"), None).await;
        let part = whose.main_part(&whose.machine(&location, "arm").await).await;
        match version {
            "" => {
                let request = UpdateRobotPartRequest {
                    id: part.id.clone(),
                    name: part.name.clone(),
                    robot_config_json: Some(format!(r#"{{"fragments":["{id}"]}}"#)),
                    ..UpdateRobotPartRequest::default()
                };
                whose.client.app::<_, UpdateRobotPartResponse>("UpdateRobotPart", request).await.unwrap();
            }
            version => names(whose, &part, &id, version).await,
        }
        devices.push((world.login("robot-secret", &part.id, &part.secret).await.unwrap(), part.id));
    }
    let told = async || {
        let mut told = Vec::new();
        for (device, part) in &devices {
            let request = DeviceAgentConfigRequest { id: part.clone(), ..DeviceAgentConfigRequest::default() };
            let path = "/platform.app.agent.v1.AgentDeviceService/DeviceAgentConfig";
            // Twice: the second answer is the one that is kept.
            let [one, two] = [(); 2].map(|()| device.call::<_, DeviceAgentConfigResponse>(path, request.clone()));
            let (one, two) = (one.await.unwrap(), two.await.unwrap());
            assert_eq!(one.advanced_settings, two.advanced_settings);
            let value = one.advanced_settings.and_then(|all| all.fields.get("n").cloned());
            told.push(value.and_then(|value| match value.kind {
                Some(prost_types::value::Kind::NumberValue(n)) => Some(n),
                _ => None,
            }));
        }
        told
    };
    let public = [Some(3.0), Some(3.0), Some(2.0), None, Some(3.0)];
    assert_eq!(told().await, public, "public: not what it was while it was private");
    show(Some(false), None).await;
    assert_eq!(told().await, [Some(3.0), None, Some(2.0), None, None], "private: its own organization's machines");
    show(Some(true), None).await;
    assert_eq!(told().await, public, "public again");
    world.end().await;
}
