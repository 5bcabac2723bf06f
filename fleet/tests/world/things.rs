//! One thing of each kind, and requests about them: every field whose name says what it holds names one.

use super::{Owner, World};

/// Ids of one thing of each kind.
pub struct Ours {
    pub organization: String,
    pub location: String,
    pub machine: String,
    pub part: String,
    pub fragment: String,
    /// A module with one file and an application.
    pub module: String,
    pub key: String,
    pub part_secret: String,
    pub location_secret: String,
    /// Of a member of the organization.
    pub user: String,
}

/// Of that member.
const EMAIL: &str = "member@example.org";

/// Of the organization.
const NAMESPACE: &str = "acme";
/// Of that module.
const APPLICATION: &str = "dashboard";

/// What a string field of that name holds in a good request.
pub fn value<'a>(field: &str, path: &str, ours: &'a Ours) -> &'a str {
    let operation = path.rsplit('/').next().unwrap();
    match field {
        "organization_id" | "org_id" | "current_organization_id" => &ours.organization,
        "location_id" | "location" | "parent_location_id" | "location_ids" => &ours.location,
        "robot_id" | "machine_id" => &ours.machine,
        "part_id" => &ours.part,
        // Who names a fragment in vain learns nothing: what is asked is whether the machine's own may be read.
        "additional_fragment_ids" => "",
        "fragment_id" => &ours.fragment,
        "secret_id" if operation == "DeleteLocationSecret" => &ours.location_secret,
        "secret_id" => &ours.part_secret,
        "identity_id" | "user_id" => &ours.user,
        "identity_type" => "user",
        "item_id" | "module_id" => &ours.module,
        "version" if operation.contains("Package") => "1.0.0",
        "email" => EMAIL,
        "permissions" => "read_organization",
        "authorization_type" => "role",
        "authorization_id" => "organization_owner",
        "resource_type" => "organization",
        "resource_id" => &ours.organization,
        "id" if operation.contains("Fragment") => &ours.fragment,
        "id" if operation.contains("Package") => &ours.module,
        "name" if operation == "ListPackages" => "",
        "name" if operation.starts_with("GetApp") => APPLICATION,
        "id" if operation.contains("Key") => &ours.key,
        "id" if matches!(operation, "GetRobot" | "UpdateRobot" | "DeleteRobot") => &ours.machine,
        "id" if matches!(operation, "GetRobotMetadata" | "UpdateRobotMetadata") => &ours.machine,
        "id" => &ours.part,
        "name" | "part_name" => "arm-main",
        "public_namespace" => NAMESPACE,
        "region" | "cid" => "x",
        _ => "",
    }
}

pub async fn ours(world: &World, owner: &Owner) -> Ours {
    use api::pb::platform::app::v1::*;
    let location = owner.location("North", None).await;
    let machine = owner.machine(&location, "arm").await;
    let part = owner.main_part(&machine).await;
    let request = CreateLocationSecretRequest { location_id: location.clone() };
    let made: CreateLocationSecretResponse = owner.client.app("CreateLocationSecret", request).await.unwrap();
    let (part_secret, part) = (part.secrets[0].id.clone(), part.id);
    let create = CreateFragmentRequest {
        name: "base".into(),
        organization_id: owner.organization.clone(),
        ..Default::default()
    };
    let fragment: CreateFragmentResponse = owner.client.app("CreateFragment", create).await.unwrap();
    let claim = UpdateOrganizationRequest {
        organization_id: owner.organization.clone(),
        public_namespace: Some(NAMESPACE.into()),
        ..Default::default()
    };
    let _: UpdateOrganizationResponse = owner.client.app("UpdateOrganization", claim).await.unwrap();
    let create = CreateModuleRequest { organization_id: owner.organization.clone(), name: "camera".into() };
    let module: CreateModuleResponse = owner.client.app("CreateModule", create).await.unwrap();
    let dashboard = App {
        name: APPLICATION.into(),
        r#type: "multi_machine".into(),
        entrypoint: "index.html".into(),
        ..Default::default()
    };
    let declare =
        UpdateModuleRequest { module_id: module.module_id.clone(), apps: vec![dashboard], ..Default::default() };
    let _: UpdateModuleResponse = owner.client.app("UpdateModule", declare).await.unwrap();
    // Straight into the store: how a file gets there is told elsewhere.
    let file = "INSERT INTO registry_files (item_id, version, platform, platform_tags, digest, bytes, uploaded_at)
                SELECT id, '1.0.0', 'any', '', '', 1, 0 FROM registry_items";
    let version = "INSERT INTO registry_versions (item_id, version, details, created_at)
                   SELECT id, '1.0.0', details, 0 FROM registry_items";
    let insert = move |tx: &fleet::store::Tx<'_>| {
        tx.run(version, &[])?;
        tx.run(file, &[])
    };
    world.server.context.store.write::<_, fleet::store::DbError>(insert).await.unwrap();
    let member = (&*owner.organization, fleet::authz::Role::Operator);
    let member = fleet::people::add(&world.server.context, EMAIL, Some(member)).await.unwrap();
    Ours {
        user: member.user_id,
        organization: owner.organization.clone(),
        location,
        machine,
        part,
        fragment: fragment.fragment.unwrap().id,
        module: module.module_id,
        key: owner.key_id.clone(),
        part_secret,
        location_secret: made.auth.unwrap().secrets[0].id.clone(),
    }
}
