//! What only a former revision of a fragment names: it stays for as long as somebody is bound to that revision.

use super::*;

struct Scene {
    world: World,
    owner: Owner,
    part: RobotPart,
    /// Named by revision 2 of `over`, which revision 2 of `top` names.
    base: String,
    over: String,
    top: String,
}

impl Scene {
    async fn new() -> Self {
        Self::with([FragmentVisibility::Private; 3]).await
    }

    /// Both names were taken out again: nothing that is there now leads to `base` or to the module it names.
    async fn with(visibilities: [FragmentVisibility; 3]) -> Self {
        let world = World::new().await;
        let owner = world.owner("Acme").await;
        let mut ids = Vec::new();
        for (name, visibility) in ["base", "over", "top"].into_iter().zip(visibilities) {
            ids.push(owner.fragment(name, visibility).await);
        }
        let [base, over, top] = ids.try_into().unwrap();
        let location = owner.location("North", None).await;
        let part = owner.main_part(&owner.machine(&location, "arm").await).await;
        let claim = UpdateOrganizationRequest {
            organization_id: owner.organization.clone(),
            public_namespace: Some("acme".into()),
            ..Default::default()
        };
        owner.client.app::<_, UpdateOrganizationResponse>("UpdateOrganization", claim).await.unwrap();
        let create = CreateModuleRequest { organization_id: owner.organization.clone(), name: "camera".into() };
        owner.client.app::<_, CreateModuleResponse>("CreateModule", create).await.unwrap();
        let scene = Self { world, owner, part, base, over, top };
        scene.change(&scene.base, "base", r#"{"modules":[{"module_id":"acme:camera"}]}"#).await;
        scene.change(&scene.over, "over", &names(&scene.base, "2")).await;
        scene.change(&scene.top, "top", &names(&scene.over, "2")).await;
        // A revision that has another name only names what the one before it did.
        scene.change(&scene.over, "over it", &names(&scene.base, "2")).await;
        for (id, name) in [(&scene.base, "base"), (&scene.over, "over"), (&scene.top, "top")] {
            scene.change(id, name, "{}").await;
        }
        scene
    }

    async fn change(&self, id: &str, name: &str, config: &str) {
        let request = UpdateFragmentRequest {
            id: id.into(),
            name: name.into(),
            fragment_config_json: Some(config.into()),
            ..UpdateFragmentRequest::default()
        };
        self.owner.client.app::<_, UpdateFragmentResponse>("UpdateFragment", request).await.unwrap();
    }

    /// What is refused of the fragment and of the module.
    async fn refusals(&self) -> [String; 2] {
        let fragment = delete_fragment(&self.owner.client, &self.base).await.unwrap_err();
        let request = DeleteRegistryItemRequest { item_id: "acme:camera".into() };
        let module =
            self.owner.client.app::<_, DeleteRegistryItemResponse>("DeleteRegistryItem", request).await.unwrap_err();
        assert_eq!((fragment.code(), module.code()), (FailedPrecondition, FailedPrecondition));
        [fragment, module].map(|refused| refused.message().to_owned())
    }

    /// On how many machines the module is in use.
    async fn machines(&self) -> i64 {
        let request = GetRegistryItemRequest { item_id: "acme:camera".into(), ..Default::default() };
        let got: GetRegistryItemResponse = self.owner.client.app("GetRegistryItem", request).await.unwrap();
        got.item.unwrap().total_robot_usage
    }

    /// How a refusal names the part; `bound` is where it is bound to a former revision.
    fn part(&self, bound: Option<(&str, &str)>) -> String {
        let by = bound.map(|(revision, fragment)| format!(" (by revision {revision} of fragment {fragment})"));
        format!(
            "take it out of part {:?} of machine \"arm\" ({}){} first, or name another revision there",
            self.part.name,
            self.part.id,
            by.unwrap_or_default()
        )
    }
}

fn names(fragment: &str, version: &str) -> String {
    format!(r#"{{"fragments":[{{"id":"{fragment}","version":"{version}"}}]}}"#)
}

#[tokio::test]
async fn what_a_former_revision_names_stays_while_somebody_is_bound_to_it() {
    let scene = Scene::new().await;
    let Scene { owner, part, base, over, top, .. } = &scene;
    assert_eq!(scene.machines().await, 0, "nobody is bound to anything yet");
    for (fragment, revision) in [(over, "2"), (over, "3"), (top, "2"), (base, "2")] {
        owner.configure(part, &names(fragment, revision)).await;
        assert_eq!(scene.machines().await, 1, "revision {revision} of {fragment}");
        let [_, module] = scene.refusals().await;
        assert!(module.ends_with(&scene.part(Some((revision, fragment)))), "{module}");
    }
    // Of `base` itself: by those that named it. Its own user is named as one.
    let [itself, _] = scene.refusals().await;
    assert!(itself.ends_with(&scene.part(None)), "{itself}");
    owner.configure(part, &names(top, "2")).await;
    let [through, _] = scene.refusals().await;
    assert!(through.ends_with(&scene.part(Some(("2", top)))), "{through}");

    // Bound to what names nothing any more.
    owner.configure(part, &names(over, "4")).await;
    assert_eq!(scene.machines().await, 0);
    delete_fragment(&scene.owner.client, &scene.base).await.unwrap();
    let request = DeleteRegistryItemRequest { item_id: "acme:camera".into() };
    scene.owner.client.app::<_, DeleteRegistryItemResponse>("DeleteRegistryItem", request).await.unwrap();
    scene.world.end().await;
}

#[tokio::test]
async fn an_organizations_default_fragments_are_bound_to_a_revision_as_parts_are() {
    let scene = Scene::new().await;
    let propose = async |fragments: Vec<FragmentImport>| {
        let request = UpdateOrganizationRequest {
            organization_id: scene.owner.organization.clone(),
            default_fragments: Some(FragmentImportList { fragments }),
            ..UpdateOrganizationRequest::default()
        };
        scene.owner.client.app::<_, UpdateOrganizationResponse>("UpdateOrganization", request).await.unwrap();
    };
    let bound = FragmentImport { fragment_id: scene.top.clone(), version: "2".into(), ..Default::default() };
    propose(vec![bound]).await;
    for refused in scene.refusals().await {
        let who = format!("default fragments of organization \"Acme\" (by revision 2 of fragment {})", scene.top);
        assert!(refused.contains(&who), "{refused}");
    }
    propose(Vec::new()).await;
    delete_fragment(&scene.owner.client, &scene.base).await.unwrap();
    scene.world.end().await;
}

#[tokio::test]
async fn who_may_not_use_a_fragment_keeps_nothing_of_it() {
    use FragmentVisibility::{Private, Public};
    // What `base` and the former revision of `over` are, what `over` is made at the end, and whether strangers depend on it.
    for (base, former, over, depend) in [
        (Private, Public, None, false),
        (Public, Private, None, false),
        (Public, Private, Some(Public), false),
        (Public, Public, None, true),
    ] {
        let scene = Scene::with([base, former, Private]).await;
        if let Some(visibility) = over {
            let show = UpdateFragmentRequest {
                id: scene.over.clone(),
                name: "over".into(),
                visibility: Some(visibility.into()),
                ..UpdateFragmentRequest::default()
            };
            scene.owner.client.app::<_, UpdateFragmentResponse>("UpdateFragment", show).await.unwrap();
        }
        let stranger = scene.world.owner("Strangers").await;
        let location = stranger.location("South", None).await;
        let theirs = stranger.main_part(&stranger.machine(&location, "leg").await).await;
        stranger.configure(&theirs, &names(&scene.over, "2")).await;
        match delete_fragment(&scene.owner.client, &scene.base).await {
            Ok(_) => assert!(!depend, "{base:?} {former:?} {over:?}"),
            Err(refused) => {
                assert!(depend && refused.code() == FailedPrecondition, "{base:?} {former:?} {over:?}: {refused}");
                let others = "take it out of 1 in other organizations first, or name another revision there; \
                              others lose it when it is made private";
                assert!(refused.message().ends_with(others), "{refused}");
            }
        }
        scene.world.end().await;
    }
}

/// Everything that is noted.
async fn noted(world: &World) -> Vec<String> {
    let mut noted = Vec::new();
    for sql in [
        "SELECT user_kind || ' ' || user_id || ' ' || user_revision || ' ' || fragment_id || ' ' || version
         FROM fragment_uses",
        "SELECT user_kind || ' ' || user_id || ' ' || user_revision || ' ' || owner || ' ' || name FROM registry_uses",
    ] {
        let all = |tx: &fleet::store::Tx<'_>| tx.all(sql, &[], |row| row.text(0));
        noted.extend(world.server.context.store.read::<_, fleet::store::DbError>(all).await.unwrap());
    }
    noted.sort_unstable();
    noted
}

#[tokio::test]
async fn what_an_older_server_did_not_note_is_found_out_at_the_start() {
    let scene = Scene::new().await;
    let Scene { world, owner, part, base, over, top } = &scene;
    owner.configure(part, &names(top, "2")).await;
    let bound = FragmentImport { fragment_id: over.clone(), version: "3".into(), ..Default::default() };
    let request = UpdateOrganizationRequest {
        organization_id: owner.organization.clone(),
        default_fragments: Some(FragmentImportList { fragments: vec![bound] }),
        ..UpdateOrganizationRequest::default()
    };
    owner.client.app::<_, UpdateOrganizationResponse>("UpdateOrganization", request).await.unwrap();
    // More than what is read at once, of parts and of revisions, those of one fragment too.
    let location = owner.location("South", None).await;
    for n in 0..60 {
        let part = owner.main_part(&owner.machine(&location, &format!("arm {n}")).await).await;
        owner.configure(&part, &names(base, &n.to_string())).await;
        scene.change(over, "over", &names(base, &n.to_string())).await;
    }
    let before = noted(world).await;
    assert!(before.len() > 120, "{before:?}");
    for table in ["DELETE FROM registry_uses", "DELETE FROM fragment_uses"] {
        let forget = move |tx: &fleet::store::Tx<'_>| tx.run(table, &[]);
        world.server.context.store.write::<_, fleet::store::DbError>(forget).await.unwrap();
    }
    let world = scene.world.restart().await;
    assert_eq!(noted(&world).await, before);
    world.end().await;
}
