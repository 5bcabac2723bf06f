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
    /// Both names were taken out again: nothing that is there now leads to `base` or to the module it names.
    async fn new() -> Self {
        let world = World::new().await;
        let owner = world.owner("Acme").await;
        let mut ids = Vec::new();
        for name in ["base", "over", "top"] {
            ids.push(owner.fragment(name, FragmentVisibility::Private).await);
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

    fn part_is_bound_to(&self, revision: &str, fragment: &str) -> String {
        let Self { part, .. } = self;
        format!(
            "{:?} of machine \"arm\" ({}), by revision {revision} of fragment {fragment}, first",
            part.name, part.id
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
        assert!(module.ends_with(&scene.part_is_bound_to(revision, fragment)), "{module}");
    }
    // Of `base` itself: by those that named it. Its own user is named as one.
    let [itself, _] = scene.refusals().await;
    assert!(itself.ends_with(&format!("{:?} of machine \"arm\" ({}) first", part.name, part.id)), "{itself}");
    owner.configure(part, &names(top, "2")).await;
    let [through, _] = scene.refusals().await;
    assert!(through.ends_with(&scene.part_is_bound_to("2", top)), "{through}");

    // An older server noted nothing of this: it is found out at the start.
    for table in ["DELETE FROM registry_uses", "DELETE FROM fragment_uses"] {
        let forget = move |tx: &fleet::store::Tx<'_>| tx.run(table, &[]);
        scene.world.server.context.store.write::<_, fleet::store::DbError>(forget).await.unwrap();
    }
    assert_eq!(scene.machines().await, 0);
    let Scene { world, owner, part, base, over, top } = scene;
    let world = world.restart().await;
    let client = world.login("api-key", &owner.key_id, &owner.key).await.unwrap();
    let scene = Scene { world, owner: Owner { client, ..owner }, part, base, over, top };
    assert_eq!(scene.machines().await, 1);
    let [through, _] = scene.refusals().await;
    assert!(through.ends_with(&scene.part_is_bound_to("2", &scene.top)), "{through}");

    // Bound to what names nothing any more.
    scene.owner.configure(&scene.part, &names(&scene.over, "4")).await;
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
        let who = format!("default fragments of organization \"Acme\", by revision 2 of fragment {}", scene.top);
        assert!(refused.contains(&who), "{refused}");
    }
    propose(Vec::new()).await;
    delete_fragment(&scene.owner.client, &scene.base).await.unwrap();
    scene.world.end().await;
}

#[tokio::test]
async fn who_may_not_use_a_fragment_keeps_nothing_of_it() {
    let scene = Scene::new().await;
    let stranger = scene.world.owner("Strangers").await;
    let location = stranger.location("South", None).await;
    let theirs = stranger.main_part(&stranger.machine(&location, "leg").await).await;
    stranger.configure(&theirs, &names(&scene.over, "2")).await;
    delete_fragment(&scene.owner.client, &scene.base).await.unwrap();
    scene.world.end().await;
}
