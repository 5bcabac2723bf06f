//! One thing of each kind, and requests about them: every field whose name says what it holds names one.

use api::pb::platform::app::v1::*;

use super::{Owner, World};

/// Ids of one thing of each kind.
pub struct Ours {
    pub organization: String,
    pub location: String,
    pub machine: String,
    pub part: String,
    pub fragment: String,
    pub namespace: String,
    /// A module with one file and an application.
    pub module: String,
    /// With one role, on the location.
    pub key: String,
    pub part_secret: String,
    pub location_secret: String,
    /// Of a member of the organization.
    pub user: String,
    /// Of that member.
    pub email: String,
    /// Of somebody who is none.
    pub guest: String,
    /// Another part of the machine.
    pub spare: String,
    /// Another organization.
    pub partner: String,
    pub planted: Planted,
}

/// Of that module.
pub const APPLICATION: &str = "dashboard";

/// What is secret about them.
#[derive(Debug, Clone)]
pub struct Planted {
    /// In the part's configuration, now and before.
    pub in_part: String,
    /// In the fragment, now and before.
    pub in_fragment: String,
    /// Given to a variable of a default fragment.
    pub in_defaults: String,
    /// By which the part's device signs in.
    pub part_secret: String,
    /// By which devices of the location do.
    pub location_secret: String,
}

/// What a string field of that name holds in a good request.
pub fn value<'a>(field: &str, path: &str, ours: &'a Ours) -> &'a str {
    let operation = path.rsplit('/').next().unwrap();
    match field {
        "organization_id" if matches!(operation, "ShareLocation" | "UnshareLocation") => &ours.partner,
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
        "email" if operation.contains("Invite") => &ours.guest,
        "email" => &ours.email,
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
        "name" if operation == "UpdateRobot" => "arm",
        "name" if operation == "UpdateFragment" => "base",
        "part_name" => "second",
        "name" => "arm-main",
        "public_namespace" => &ours.namespace,
        "region" | "cid" => "x",
        _ => "",
    }
}

pub async fn ours(world: &World, owner: &Owner) -> Ours {
    let location = owner.location("North", None).await;
    let machine = owner.machine(&location, "arm").await;
    let part = owner.main_part(&machine).await;
    let spare = NewRobotPartRequest { robot_id: machine.clone(), part_name: "spare".into() };
    let spare: NewRobotPartResponse = owner.client.app("NewRobotPart", spare).await.unwrap();
    let request = CreateLocationSecretRequest { location_id: location.clone() };
    let made: CreateLocationSecretResponse = owner.client.app("CreateLocationSecret", request).await.unwrap();
    let location_secret = made.auth.unwrap().secrets.remove(0);
    // Told apart by the organization, of which one world has several.
    let of = &owner.organization[..8];
    let planted = Planted {
        in_part: format!("in the part of {of}"),
        in_fragment: format!("in the fragment of {of}"),
        in_defaults: format!("in the defaults of {of}"),
        part_secret: part.secret.clone(),
        location_secret: location_secret.secret.clone(),
    };
    let fragment = fragment(owner, &planted).await;
    configure(owner, &part, &planted).await;
    let namespace = format!("acme-{of}");
    let claim = UpdateOrganizationRequest {
        organization_id: owner.organization.clone(),
        public_namespace: Some(namespace.clone()),
        ..UpdateOrganizationRequest::default()
    };
    owner.client.app::<_, UpdateOrganizationResponse>("UpdateOrganization", claim).await.unwrap();
    let module = module(world, owner).await;
    let email = format!("member-{of}@example.org");
    let member = (&*owner.organization, fleet::authz::Role::Operator);
    let member = fleet::people::add(&world.server.context, &email, Some(member)).await.unwrap();
    let key: CreateKeyResponse =
        owner.client.app("CreateKey", owner.key_request("operator", "location", &location)).await.unwrap();
    Ours {
        user: member.user_id,
        email,
        guest: format!("guest-{of}@example.org"),
        organization: owner.organization.clone(),
        location,
        machine,
        part: part.id,
        spare: spare.part_id,
        fragment,
        namespace,
        module,
        key: key.id,
        part_secret: part.secrets[0].id.clone(),
        location_secret: location_secret.id,
        partner: world.owner("Partner").await.organization,
        planted,
    }
}

/// A part's configuration with that in it, and one before.
async fn configure(owner: &Owner, part: &RobotPart, planted: &Planted) {
    let secret = &planted.in_part;
    for n in 0..2 {
        let text = format!(
            r#"{{"agent":{{"additional_networks":{{"home":{{"psk":"{secret}"}}}},
                 "advanced_settings":{{"platform_server_env":{{"TOKEN":"{secret}"}}}}}},"log":[{{"pattern":"{n}"}}]}}"#
        );
        let request = UpdateRobotPartRequest {
            id: part.id.clone(),
            name: part.name.clone(),
            robot_config_json: Some(text),
            ..UpdateRobotPartRequest::default()
        };
        owner.client.app::<_, UpdateRobotPartResponse>("UpdateRobotPart", request).await.unwrap();
    }
}

/// A fragment that nobody uses, with two revisions, and what the organization gives to another one by default.
async fn fragment(owner: &Owner, planted: &Planted) -> String {
    let make = async |name: &str| {
        let request = CreateFragmentRequest {
            name: name.into(),
            organization_id: owner.organization.clone(),
            ..CreateFragmentRequest::default()
        };
        let made: CreateFragmentResponse = owner.client.app("CreateFragment", request).await.unwrap();
        made.fragment.unwrap().id
    };
    let fragment = make("base").await;
    for n in 0..2 {
        let text =
            format!(r#"{{"agent":{{"n":{n},"additional_networks":{{"x":{{"psk":"{}"}}}}}}}}"#, planted.in_fragment);
        let request = UpdateFragmentRequest {
            id: fragment.clone(),
            name: "base".into(),
            fragment_config_json: Some(text),
            ..UpdateFragmentRequest::default()
        };
        owner.client.app::<_, UpdateFragmentResponse>("UpdateFragment", request).await.unwrap();
    }
    let given = prost_types::Value { kind: Some(prost_types::value::Kind::StringValue(planted.in_defaults.clone())) };
    #[allow(deprecated, reason = "old clients give variables as text")]
    let default = FragmentImport {
        fragment_id: make("default").await,
        variables: [("wifi".to_owned(), planted.in_defaults.clone())].into(),
        fragment_variables: Some(prost_types::Struct { fields: [("wifi".to_owned(), given)].into() }),
        ..FragmentImport::default()
    };
    let request = UpdateOrganizationRequest {
        organization_id: owner.organization.clone(),
        default_fragments: Some(FragmentImportList { fragments: vec![default] }),
        ..UpdateOrganizationRequest::default()
    };
    owner.client.app::<_, UpdateOrganizationResponse>("UpdateOrganization", request).await.unwrap();
    fragment
}

/// A module with an application and one file; how a file gets there is told elsewhere.
async fn module(world: &World, owner: &Owner) -> String {
    let create = CreateModuleRequest { organization_id: owner.organization.clone(), name: "camera".into() };
    let module: CreateModuleResponse = owner.client.app("CreateModule", create).await.unwrap();
    let dashboard = App {
        name: APPLICATION.into(),
        r#type: "multi_machine".into(),
        entrypoint: "index.html".into(),
        ..App::default()
    };
    let declare = UpdateModuleRequest {
        module_id: module.module_id.clone(),
        apps: vec![dashboard],
        ..UpdateModuleRequest::default()
    };
    owner.client.app::<_, UpdateModuleResponse>("UpdateModule", declare).await.unwrap();
    let organization = owner.organization.clone();
    let file = "INSERT INTO registry_files (item_id, version, platform, platform_tags, digest, bytes, uploaded_at)
                SELECT id, '1.0.0', 'any', '', '', 1, 0 FROM registry_items WHERE organization_id = $1";
    let version = "INSERT INTO registry_versions (item_id, version, details, created_at)
                   SELECT id, '1.0.0', details, 0 FROM registry_items WHERE organization_id = $1";
    let insert = move |tx: &fleet::store::Tx<'_>| {
        tx.run(version, &[(&*organization).into()])?;
        tx.run(file, &[(&*organization).into()])
    };
    world.server.context.store.write::<_, fleet::store::DbError>(insert).await.unwrap();
    module.module_id
}
