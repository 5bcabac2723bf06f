//! What is published: modules, models, applications; who sees and changes it.

use super::*;

#[tokio::test]
async fn a_module_from_its_name_to_its_versions() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    let made = create(&owner, "camera").await.unwrap();
    let first_id = format!("{}:camera", owner.organization);
    assert_eq!(made.module_id, first_id);
    assert!(made.url.ends_with(&format!("/packages/v1/{}/camera", owner.organization)), "{}", made.url);
    assert_eq!(code(create(&owner, "camera").await), AlreadyExists);
    let item_too = CreateRegistryItemRequest {
        organization_id: owner.organization.clone(),
        name: "camera".into(),
        r#type: PackageType::MlModel.into(),
    };
    let same_name = owner.client.app::<_, CreateRegistryItemResponse>("CreateRegistryItem", item_too).await;
    assert_eq!(code(same_name), AlreadyExists, "one name in the organization, whatever it is");
    for name in ["", " ", "a b", "a:b", "a/b", "../x", "-x", "ü", "x\0", &"x".repeat(201)] {
        assert_eq!(code(create(&owner, name).await), InvalidArgument, "{name:?}");
    }

    assert_eq!(code(show(&owner.client, &first_id, Visibility::Public).await), FailedPrecondition, "no namespace yet");
    namespace(&owner, "acme-1").await;
    let model = Model { api: "a:b:c".into(), model: "acme-1:camera:usb".into(), ..Default::default() };
    let change = UpdateModuleRequest {
        module_id: first_id.clone(),
        visibility: Visibility::Private.into(),
        url: "https://example.org/camera".into(),
        description: "takes pictures\nof things".into(),
        models: vec![Model { markdown_documentation: Some("# usb".into()), ..model.clone() }],
        entrypoint: "bin/camera".into(),
        first_run: Some("setup.sh".into()),
        markdown_description: Some("# camera".into()),
        ..Default::default()
    };
    let changed: UpdateModuleResponse = owner.client.app("UpdateModule", change.clone()).await.unwrap();
    assert!(changed.url.ends_with("/packages/v1/acme-1/camera"), "{}", changed.url);
    for wrong in [
        UpdateModuleRequest { visibility: 4, ..change.clone() },
        UpdateModuleRequest { description: "a\0b".into(), ..change.clone() },
        UpdateModuleRequest { url: "a\nb".into(), ..change.clone() },
        UpdateModuleRequest { models: vec![model.clone(); 1001], ..change.clone() },
        UpdateModuleRequest { markdown_description: Some("x".repeat(1 << 20)), ..change.clone() },
    ] {
        let refused = owner.client.app::<_, UpdateModuleResponse>("UpdateModule", wrong).await;
        assert_eq!(code(refused), InvalidArgument);
    }

    // Uploaded in any order and in any pieces; told in the order of versions.
    for (version, platform) in [("1.10.0", "linux/arm64"), ("1.2.0", "linux/arm64"), ("1.2.0", "linux/amd64")] {
        upload(&owner.client, info("acme-1:camera", version, platform), b"bytes").await.unwrap();
    }
    let clearing = UpdateModuleRequest {
        module_id: "acme-1:camera".into(),
        entrypoint: "bin/new".into(),
        ..UpdateModuleRequest::default()
    };
    owner.client.app::<_, UpdateModuleResponse>("UpdateModule", clearing).await.unwrap();
    for id in [&*first_id, "acme-1:camera"] {
        let module = get(&owner.client, id).await.unwrap();
        assert_eq!((&*module.module_id, &*module.public_namespace), ("acme-1:camera", "acme-1"), "asked as {id}");
        assert_eq!((&*module.entrypoint, module.models.len(), &*module.url), ("bin/new", 0, ""));
        assert_eq!(module.first_run.as_deref(), Some("setup.sh"), "absent is unchanged");
        let versions: Vec<_> = module.versions.iter().map(|one| (&*one.version, one.files.len())).collect();
        assert_eq!(versions, [("1.2.0", 2), ("1.10.0", 1)]);
        assert_eq!(
            (&*module.versions[0].entrypoint, &module.versions[0].models[0].model),
            ("bin/camera", &model.model)
        );
        assert_eq!(module.versions[0].markdown_description.as_deref(), Some("# camera"));
    }
    // Pages are long: they come only to who asks for them.
    for (asked, page) in [(None, None), (Some(false), None), (Some(true), Some("# camera"))] {
        let request = ListModulesRequest {
            organization_id: Some(owner.organization.clone()),
            include_markdown_documentation: asked,
        };
        let listed: ListModulesResponse = owner.client.app("ListModules", request).await.unwrap();
        let request = GetModuleRequest { module_id: first_id.clone(), include_markdown_documentation: asked };
        let got: GetModuleResponse = owner.client.app("GetModule", request).await.unwrap();
        for module in [&listed.modules[0], &got.module.unwrap()] {
            let of_version = &module.versions[0];
            let told = [&module.markdown_description, &of_version.markdown_description];
            assert_eq!(told.map(Option::as_deref), [page, page], "{asked:?}");
            let model = of_version.models[0].markdown_documentation.as_deref();
            assert_eq!(model, page.map(|_| "# usb"), "{asked:?}");
        }
    }
    let told = item(&owner.client, "acme-1:camera").await.unwrap();
    let Some(registry_item::Metadata::ModuleMetadata(metadata)) = told.metadata else { panic!("a module") };
    assert_eq!((metadata.versions.len(), metadata.versions[0].models.len()), (2, 1));
    let pages = (&metadata.markdown_description, &metadata.versions[0].markdown_description);
    assert_eq!(pages, (&None, &None), "only if they are asked for");
    assert!(told.updated_at.unwrap().seconds >= told.created_at.unwrap().seconds);
    for id in ["", "acme-1", "acme-1:none:x", "ACME:camera", "acme-1:ca mera", "acme-1:\0"] {
        assert_eq!(code(get(&owner.client, id).await), InvalidArgument, "{id:?}");
        assert_eq!(delete(&owner.client, id).await, InvalidArgument, "{id:?}");
    }
    assert_eq!(code(get(&owner.client, "acme-1:none").await), NotFound);
    let log = audit(&owner).await;
    for what in ["CreateModule \"camera\"", "UpdateModule \"camera\"", "UploadModuleFile \"camera\" 1.10.0 linux/arm64"]
    {
        assert!(log.iter().any(|line| line.starts_with(what)), "{what}: {log:?}");
    }
    world.end().await;
}

#[tokio::test]
async fn items_of_other_kinds_are_kept_and_found() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    namespace(&owner, "acme").await;
    let other = world.owner("Other").await;
    namespace(&other, "other").await;
    let item_of = |owner: &Owner, name: &str, kind: i32| CreateRegistryItemRequest {
        organization_id: owner.organization.clone(),
        name: name.into(),
        r#type: kind,
    };
    for (owner, name, kind, expected) in [
        (&owner, "detector", PackageType::MlModel.into(), Yes),
        (&owner, "script", PackageType::MlTraining.into(), Yes),
        (&owner, "things", PackageType::Archive.into(), Yes),
        (&other, "theirs", PackageType::MlModel.into(), Yes),
        (&other, "hidden", PackageType::MlModel.into(), Yes),
        (&other, "unlisted", PackageType::MlModel.into(), Yes),
        (&owner, "nothing", 0, InvalidArgument),
        (&owner, "more", 6, InvalidArgument),
    ] {
        let made = owner.client.app::<_, CreateRegistryItemResponse>("CreateRegistryItem", item_of(owner, name, kind));
        assert_eq!(code(made.await), expected, "{name}");
    }
    module(&owner, "camera").await;
    upload(&owner.client, info("acme:camera", "1.0.0", "linux/any"), b"x").await.unwrap();
    let update = |id: &str, kind: PackageType, visibility: Visibility| UpdateRegistryItemRequest {
        item_id: id.into(),
        r#type: kind.into(),
        description: "finds Screws".into(),
        visibility: visibility.into(),
        ..Default::default()
    };
    use update_registry_item_request::Metadata as Update;
    let detector = UpdateRegistryItemRequest {
        url: Some("https://example.org".into()),
        metadata: Some(Update::UpdateMlModelMetadata(UpdateMlModelMetadata {
            model_framework: 4,
            ..UpdateMlModelMetadata::default()
        })),
        ..update("acme:detector", PackageType::MlModel, Visibility::Public)
    };
    let change = |client: Client, request: UpdateRegistryItemRequest| async move {
        code(client.app::<_, UpdateRegistryItemResponse>("UpdateRegistryItem", request).await)
    };
    assert_eq!(change(owner.client.clone(), detector.clone()).await, Yes);
    let told = item(&owner.client, "acme:detector").await.unwrap();
    assert_eq!((&*told.description, &*told.url), ("finds Screws", "https://example.org"));
    assert!(
        matches!(&told.metadata, Some(registry_item::Metadata::MlModelMetadata(model)) if model.model_framework == 4)
    );
    // What is not said stays; an item's description has no way of not being said.
    let nothing = UpdateRegistryItemRequest {
        item_id: "acme:detector".into(),
        description: "finds Screws".into(),
        ..Default::default()
    };
    assert_eq!(change(owner.client.clone(), nothing).await, Yes);
    let still = item(&owner.client, "acme:detector").await.unwrap();
    assert_eq!((still.visibility, &still.url, still.r#type), (told.visibility, &told.url, told.r#type));
    assert_eq!((&still.metadata, still.visibility()), (&told.metadata, Visibility::Public));
    let other_kind = UpdateRegistryItemRequest { r#type: PackageType::Module.into(), ..detector.clone() };
    let other_metadata = UpdateRegistryItemRequest {
        metadata: Some(Update::UpdateMlTrainingMetadata(UpdateMlTrainingMetadata::default())),
        ..detector.clone()
    };
    let page = UpdateRegistryItemRequest { markdown_description: Some("x".into()), ..detector.clone() };
    for wrong in [other_kind, other_metadata, page] {
        assert_eq!(change(owner.client.clone(), wrong).await, InvalidArgument);
    }
    for (id, visibility) in [("other:theirs", Visibility::Public), ("other:unlisted", Visibility::PublicUnlisted)] {
        assert_eq!(change(other.client.clone(), update(id, PackageType::MlModel, visibility)).await, Yes);
    }
    assert_eq!(
        change(owner.client.clone(), update("other:theirs", PackageType::MlModel, Visibility::Private)).await,
        Denied,
        "what is seen and not ours"
    );
    assert_eq!(
        change(owner.client.clone(), update("other:hidden", PackageType::MlModel, Visibility::Private)).await,
        NotFound
    );
    assert_eq!(code(item(&owner.client, "other:unlisted").await), Yes, "for who knows its id");
    assert_eq!(code(item(&owner.client, "other:hidden").await), NotFound);

    let list = |request: ListRegistryItemsRequest| {
        let client = owner.client.clone();
        async move {
            let listed: Result<ListRegistryItemsResponse, _> = client.app("ListRegistryItems", request).await;
            listed.map(|listed| listed.items.into_iter().map(|one| one.item_id).collect::<Vec<_>>())
        }
    };
    let any = ListRegistryItemsRequest { organization_id: Some(String::new()), ..Default::default() };
    let ours = ListRegistryItemsRequest { organization_id: Some(owner.organization.clone()), ..Default::default() };
    let table = [
        ("all", any.clone(), vec!["acme:camera", "acme:detector", "acme:script", "acme:things", "other:theirs"]),
        ("ours", ours.clone(), vec!["acme:camera", "acme:detector", "acme:script", "acme:things"]),
        (
            "after one",
            ListRegistryItemsRequest { page_token: Some("acme:detectoR".into()), ..ours.clone() },
            vec!["acme:detector", "acme:script", "acme:things"],
        ),
        ("models", ListRegistryItemsRequest { types: vec![2], ..any.clone() }, vec!["acme:detector", "other:theirs"]),
        (
            "private",
            ListRegistryItemsRequest { visibilities: vec![1, 3], types: vec![2, 3], ..any.clone() },
            vec!["acme:camera"],
        ),
        (
            "a platform",
            ListRegistryItemsRequest { platforms: vec!["linux/arm64".into()], ..any.clone() },
            vec!["acme:camera"],
        ),
        ("published", ListRegistryItemsRequest { statuses: vec![1], ..any.clone() }, vec!["acme:camera"]),
        (
            "in development",
            ListRegistryItemsRequest { statuses: vec![2], types: vec![4, 5], ..any.clone() },
            vec!["acme:script"],
        ),
        (
            "both",
            ListRegistryItemsRequest { statuses: vec![1, 2], types: vec![3, 5], ..any.clone() },
            vec!["acme:camera", "acme:script"],
        ),
        (
            "a word",
            ListRegistryItemsRequest { search_term: Some("sCREWS".into()), ..any.clone() },
            vec!["acme:detector", "other:theirs"],
        ),
        ("no word", ListRegistryItemsRequest { search_term: Some("%".into()), ..any.clone() }, vec![]),
        (
            "a namespace",
            ListRegistryItemsRequest { public_namespaces: vec!["other".into()], ..any.clone() },
            vec!["other:theirs"],
        ),
        ("a language", ListRegistryItemsRequest { module_languages: vec![1], ..any.clone() }, vec![]),
    ];
    for (case, request, expected) in table {
        assert_eq!(list(request).await.unwrap(), expected, "{case}");
    }
    // From when it had no namespace yet.
    let before = format!("{}:detectoR", owner.organization);
    let page = ListRegistryItemsRequest { page_token: Some(before), ..ours.clone() };
    assert_eq!(list(page).await.unwrap(), ["acme:detector", "acme:script", "acme:things"]);
    for wrong in [
        ListRegistryItemsRequest { types: vec![9], ..any.clone() },
        ListRegistryItemsRequest { visibilities: vec![0], ..any.clone() },
        ListRegistryItemsRequest { statuses: vec![-1], ..any.clone() },
        ListRegistryItemsRequest { page_token: Some("nonsense".into()), ..any.clone() },
        ListRegistryItemsRequest { organization_id: Some("x\0".into()), ..any.clone() },
    ] {
        assert_eq!(code(list(wrong).await), InvalidArgument);
    }
    let theirs = ListRegistryItemsRequest { organization_id: Some(other.organization.clone()), ..any };
    assert_eq!(code(list(theirs).await), NotFound);
    let modules = ListModulesRequest { organization_id: Some(owner.organization.clone()), ..Default::default() };
    let listed: ListModulesResponse = owner.client.app("ListModules", modules).await.unwrap();
    assert_eq!(listed.modules.iter().map(|one| &*one.module_id).collect::<Vec<_>>(), ["acme:camera"]);
    world.end().await;
}

#[tokio::test]
async fn versions_of_models_and_scripts_are_told_in_every_list_that_clients_know() {
    use registry_item::Metadata::{MlModelMetadata, MlTrainingMetadata};
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    for (name, kind) in [("model", PackageType::MlModel), ("script", PackageType::MlTraining)] {
        let request = CreateRegistryItemRequest {
            organization_id: owner.organization.clone(),
            name: name.into(),
            r#type: kind.into(),
        };
        owner.client.app::<_, CreateRegistryItemResponse>("CreateRegistryItem", request).await.unwrap();
    }
    let versions = async |name: &str| {
        let told = item(&owner.client, &format!("{}:{name}", owner.organization)).await.unwrap();
        #[allow(deprecated, reason = "old clients read the list that is deprecated")]
        match told.metadata {
            Some(MlModelMetadata(model)) => {
                let detailed: Vec<_> = model.detailed_versions.into_iter().map(|one| one.version).collect();
                assert_eq!(model.versions, detailed, "both lists");
                detailed
            }
            Some(MlTrainingMetadata(script)) => script.versions.into_iter().map(|one| one.version).collect(),
            other => panic!("{other:?}"),
        }
    };
    for name in ["model", "script"] {
        assert!(versions(name).await.is_empty(), "{name}: nothing was uploaded");
    }
    // Straight into the store: no operation uploads one yet.
    let insert = |tx: &fleet::store::Tx<'_>| {
        tx.run(
            "INSERT INTO registry_versions (item_id, version, details, created_at)
             SELECT i.id, v.version, i.details, 0 FROM registry_items i
             CROSS JOIN (SELECT '1.10.0' AS version UNION ALL SELECT '1.2.0') v",
            &[],
        )?;
        tx.run(
            "INSERT INTO registry_files (item_id, version, platform, platform_tags, digest, bytes, uploaded_at)
             SELECT item_id, version, 'any', '', '', 1, 0 FROM registry_versions",
            &[],
        )
    };
    world.server.context.store.write::<_, fleet::store::DbError>(insert).await.unwrap();
    for name in ["model", "script"] {
        assert_eq!(versions(name).await, ["1.2.0", "1.10.0"], "{name}");
    }
    world.end().await;
}

#[tokio::test]
async fn applications_are_found_by_their_name_by_who_may_read_the_module() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    namespace(&owner, "acme").await;
    module(&owner, "camera").await;
    module(&owner, "twin").await;
    let app = App {
        name: "dashboard".into(),
        r#type: "multi_machine".into(),
        entrypoint: "dist/index.html".into(),
        fragment_ids: vec!["f".into()],
        logo_path: Some("static/logo.png".into()),
        customizations: Some(AppCustomizations {
            machine_picker: Some(MachinePickerCustomizations {
                heading: Some("Choose".into()),
                ..MachinePickerCustomizations::default()
            }),
        }),
        allowed_org_ids: Some(AllowedOrgIDs { ids: vec!["o".into()] }),
    };
    let declare = |module: &str, apps: Vec<App>| {
        let request = UpdateModuleRequest { module_id: module.into(), apps, ..UpdateModuleRequest::default() };
        let client = owner.client.clone();
        async move { code(client.app::<_, UpdateModuleResponse>("UpdateModule", request).await) }
    };
    let operator = world.key(&owner, "operator", "organization", &owner.organization).await;
    let content_for = |client: &Client, namespace: &str, name: &str| {
        let request = GetAppContentRequest { public_namespace: namespace.into(), name: name.into() };
        let client = client.clone();
        async move { client.app::<_, GetAppContentResponse>("GetAppContent", request).await }
    };
    let content = |namespace: &str, name: &str| content_for(&operator, namespace, name);
    for wrong in [
        App { name: "a b".into(), ..app.clone() },
        App { r#type: "no_machine".into(), ..app.clone() },
        App { entrypoint: String::new(), ..app.clone() },
    ] {
        assert_eq!(declare("acme:camera", vec![wrong]).await, InvalidArgument);
    }
    assert_eq!(declare("acme:camera", vec![app.clone(), app.clone()]).await, InvalidArgument);
    assert_eq!(declare("acme:camera", vec![app.clone()]).await, Yes);
    assert_eq!(declare("acme:twin", vec![app.clone()]).await, AlreadyExists, "one name in the organization");
    assert_eq!(code(content("acme", "dashboard").await), NotFound, "nothing was uploaded");
    for version in ["1.9.0", "1.10.0", "1.2.0"] {
        upload(&owner.client, info("acme:camera", version, "any"), version.as_bytes()).await.unwrap();
    }
    assert_eq!(declare("acme:camera", vec![]).await, Yes, "clients that cannot say any take none away");
    let found = content("acme", "dashboard").await.unwrap();
    assert_eq!((&*found.blob_path, &*found.entrypoint), ("/packages/v1/acme/camera/1.10.0/any", "dist/index.html"));
    assert_eq!((found.app_type(), found.public), (AppType::MultiMachine, false));
    let blob = fetch(&world, "GET", &found.blob_path, &[("authorization", &bearer(&owner.client))]).await;
    assert_eq!(blob.body, b"1.10.0");
    assert_eq!(
        fetch(&world, "GET", &found.blob_path, &[]).await.status,
        401,
        "the content itself is not for everybody"
    );
    let request = GetAppBrandingRequest { public_namespace: "acme".into(), name: "dashboard".into() };
    let branding: GetAppBrandingResponse = operator.app("GetAppBranding", request.clone()).await.unwrap();
    assert_eq!(branding.logo_path.as_deref(), Some("static/logo.png"));
    assert_eq!(
        (&branding.fragment_ids[..], &branding.allowed_org_ids[..]),
        (&["f".to_owned()][..], &["o".to_owned()][..])
    );
    assert_eq!(branding.text_customizations["machinePicker"].fields["heading"], "Choose");
    for (namespace, name, expected) in [
        ("acme", "none", NotFound),
        ("none", "dashboard", NotFound),
        ("", "", NotFound),
        ("acme", "a\0", InvalidArgument),
    ] {
        assert_eq!(code(content(namespace, name).await), expected, "{namespace} {name:?}");
    }
    let (nobody, stranger) = (world.nobody().await, world.owner("Strangers").await.client);
    let of_location = world.key(&owner, "owner", "location", &owner.location("North", None).await).await;
    let revoked = Client { token: Some("0".repeat(98)), ..nobody.clone() };
    for (visibility, others, nobodys) in [
        (Visibility::Private, NotFound, Code::Unauthenticated),
        (Visibility::PublicUnlisted, Yes, Yes),
        (Visibility::Public, Yes, Yes),
    ] {
        show(&owner.client, "acme:camera", visibility).await.unwrap();
        for name in ["none", "a\0"] {
            assert_eq!(
                code(content_for(&nobody, "acme", name).await),
                Code::Unauthenticated,
                "{visibility:?} {name:?}"
            );
        }
        for (client, expected) in
            [(&nobody, nobodys), (&revoked, Code::Unauthenticated), (&stranger, others), (&of_location, others)]
        {
            assert_eq!(code(content_for(client, "acme", "dashboard").await), expected, "{visibility:?}");
            let branding = client.app::<_, GetAppBrandingResponse>("GetAppBranding", request.clone()).await;
            assert_eq!(code(branding), expected, "{visibility:?}");
        }
    }
    // By the general operation a list is what it says, also an empty one.
    let none = update_registry_item_request::Metadata::UpdateModuleMetadata(UpdateModuleMetadata::default());
    let request =
        UpdateRegistryItemRequest { item_id: "acme:camera".into(), metadata: Some(none), ..Default::default() };
    owner.client.app::<_, UpdateRegistryItemResponse>("UpdateRegistryItem", request).await.unwrap();
    assert_eq!(code(content("acme", "dashboard").await), NotFound);
    assert_eq!(declare("acme:twin", vec![app]).await, Yes, "the name is free again");
    world.end().await;
}

#[tokio::test]
async fn who_may_what() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    namespace(&owner, "acme").await;
    module(&owner, "camera").await;
    let location = owner.location("North", None).await;
    let operator = world.key(&owner, "operator", "organization", &owner.organization).await;
    let of_location = world.key(&owner, "owner", "location", &location).await;
    let stranger = world.owner("Strangers").await.client;
    let file = || info("acme:camera", "1.0.0", "any");
    // read, change, upload, delete, while it is private and while it is public.
    for (visibility, table) in [
        (
            Visibility::Private,
            [(&operator, Yes, Denied), (&of_location, NotFound, NotFound), (&stranger, NotFound, NotFound)],
        ),
        (Visibility::Public, [(&operator, Yes, Denied), (&of_location, Yes, Denied), (&stranger, Yes, Denied)]),
    ] {
        show(&owner.client, "acme:camera", visibility).await.unwrap();
        for (n, (client, reads, writes)) in table.into_iter().enumerate() {
            assert_eq!(code(item(client, "acme:camera").await), reads, "{visibility:?} {n}");
            assert_eq!(code(get(client, "acme:camera").await), reads, "{visibility:?} {n}");
            assert_eq!(code(show(client, "acme:camera", Visibility::Private).await), writes, "{visibility:?} {n}");
            assert_eq!(code(upload(client, file(), b"x").await), writes, "{visibility:?} {n}");
            assert_eq!(delete(client, "acme:camera").await, writes, "{visibility:?} {n}");
        }
    }
    // Nobody becomes the owner of another organization's ids.
    let taken = UpdateOrganizationRequest {
        organization_id: world.owner("Thief").await.organization,
        public_namespace: Some(owner.organization.clone()),
        ..Default::default()
    };
    let thief = owner.client.app::<_, UpdateOrganizationResponse>("UpdateOrganization", taken).await;
    assert_eq!(code(thief), NotFound);
    let own = UpdateOrganizationRequest {
        organization_id: owner.organization.clone(),
        public_namespace: Some("0a000000-0000-4000-8000-000000000001".into()),
        ..Default::default()
    };
    assert_eq!(
        code(owner.client.app::<_, UpdateOrganizationResponse>("UpdateOrganization", own).await),
        InvalidArgument
    );
    world.end().await;
}
