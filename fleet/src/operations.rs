//! The table: every operation and the function that does it. The index of the API, and where a new one starts.
//!
//! A function is `async fn(&Context, Caller, Request) -> Result<Reply, Refusal>`; the framework's types end here. What
//! is not in the table answers UNIMPLEMENTED. To add an operation: write its function in `services/`, add its row.

use std::{pin::Pin, sync::Arc};

use prost::{Message, Name};
use tonic::{Request, Response, Status};

use crate::{
    authn::{Caller, Who},
    context::Context,
    refusal::Refusal,
    services,
    upload::Incoming,
    written::Written,
};

/// The generated service traits, messages from the `api` crate.
mod wire {
    #![allow(missing_docs, unreachable_pub, clippy::all, reason = "generated")]
    include!(concat!(env!("OUT_DIR"), "/services.rs"));
}

pub(crate) use wire::{
    platform::{
        app::{
            agent::v1::agent_device_service_server, packages::v1::package_service_server, v1::app_service_server,
            v1::robot_service_server,
        },
        fleet::v1::{admin_service_server, device_service_server},
    },
    proto::rpc::v1::auth_service_server,
};

/// What a streaming operation answers with. Ends early on shutdown and when the caller's key is revoked.
pub type Replies<T> = tonic::codegen::BoxStream<T>;

type Answer<'f, T> = Pin<Box<dyn Future<Output = Result<Response<T>, Status>> + Send + 'f>>;

/// Implements every service of the table.
pub struct Operations {
    /// For the functions.
    pub context: Arc<Context>,
}

/// One row, for tests that call everything.
#[derive(Debug, Clone, Copy)]
pub struct Operation {
    /// "/platform.app.v1.AppService/GetRobot"
    pub path: &'static str,
    /// Whether the answer is a stream of messages.
    pub streams: bool,
}

/// Whom a service is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Audience {
    /// People and their programs, with an API key. A device's secret, however it was got, opens nothing here.
    People,
    /// Devices, people, and those who have no token yet: its functions tell them apart.
    Anybody,
}

fn caller<T>(request: &mut Request<T>, audience: Audience) -> Result<Caller, Status> {
    // Put there by the edge for every call; a missing one is a bug, and must not be a way in.
    let caller = request.extensions_mut().remove::<Caller>().ok_or_else(|| Status::unauthenticated("no caller"))?;
    welcome(&caller, audience)?;
    Ok(caller)
}

fn welcome(caller: &Caller, audience: Audience) -> Result<(), Refusal> {
    match (audience, caller.who()) {
        (Audience::People, Who::Part { .. } | Who::LocationSecret { .. }) => {
            Err(Refusal::forbidden("a device's token opens only its own device calls: use an API key"))
        }
        _ => Ok(()),
    }
}

/// A refusal whose field is named as in the request.
fn within<Q: Name>(refusal: Refusal) -> Refusal {
    refusal.within(&Q::full_name())
}

macro_rules! operations {
    (table: $(
        $service:literal for $audience:ident $server:ident :: $trait:ident {
            $($kind:ident $wire:ident $method:ident($request:ty) -> $reply:ty = $function:path;)*
        }
    )*) => {
        /// Every row.
        pub const OPERATIONS: &[Operation] = &[
            $($(Operation {
                path: concat!("/", $service, "/", stringify!($wire)),
                streams: operations!(@is_stream $kind),
            },)*)*
        ];

        $(
            impl $server::$trait for Operations {
                $(operations!(@$kind $audience $method, $request, $reply, $function);)*
            }
        )*

        /// Whether the operation answers with a stream.
        pub(crate) fn streams(path: &str) -> bool {
            $($((operations!(@is_stream $kind) && path == concat!("/", $service, "/", stringify!($wire))) ||)*)* false
        }

        /// Whether the operation takes a file of any size: it is given the body of the call, by [`upload`].
        pub(crate) fn takes_upload(path: &str) -> bool {
            $($((operations!(@is_upload $kind) && path == concat!("/", $service, "/", stringify!($wire))) ||)*)* false
        }

        /// Does such an operation; the encoded reply.
        pub(crate) async fn upload(
            context: &Context,
            path: &str,
            caller: Caller,
            incoming: &mut Incoming,
        ) -> Result<Vec<u8>, Refusal> {
            $($(operations!(
                @upload $kind $audience $request, context path caller incoming,
                concat!("/", $service, "/", stringify!($wire)), $function
            );)*)*
            Err(Refusal::not_found("upload", path))
        }
    };
    (@is_stream stream) => { true };
    (@is_stream $other:ident) => { false };
    (@is_upload upload) => { true };
    (@is_upload $other:ident) => { false };
    (@upload upload $audience:ident $request:ty, $context:ident $path:ident $caller:ident $incoming:ident, $here:expr, $function:path) => {
        if $path == $here {
            welcome(&$caller, Audience::$audience)?;
            let reply = $function($context, $caller, $incoming).await;
            return Ok(reply.map_err(within::<$request>)?.encode_to_vec());
        }
    };
    (@upload $other:ident $audience:ident $request:ty, $context:ident $path:ident $caller:ident $incoming:ident, $here:expr, $function:path) => {};
    // The framework's own way to it stays UNIMPLEMENTED: the edge never takes it.
    (@upload $audience:ident $method:ident, $request:ty, $reply:ty, $function:path) => {};
    // What `async_trait` would make of an `async fn`; it cannot look into a macro in its place.
    (@$kind:ident $audience:ident $method:ident, $request:ty, $reply:ty, $function:path) => {
        fn $method<'s, 'f>(&'s self, mut request: Request<$request>) -> Answer<'f, operations!(@reply $kind $reply)>
        where
            's: 'f,
            Self: 'f,
        {
            Box::pin(async move {
                let caller = caller(&mut request, Audience::$audience)?;
                let reply = $function(&self.context, caller, request.into_inner()).await;
                Ok(Response::new(reply.map_err(within::<$request>)?))
            })
        }
    };
    (@reply unary $reply:ty) => { $reply };
    (@reply stream $reply:ty) => { Replies<$reply> };
}

use api::pb::{
    platform::{
        app::{agent::v1 as agent, packages::v1 as packages, v1 as app},
        fleet::v1 as fleet,
    },
    proto::rpc::v1 as rpc,
};

operations! { table:
    "proto.rpc.v1.AuthService" for Anybody auth_service_server::AuthService {
        unary Authenticate authenticate(rpc::AuthenticateRequest) -> rpc::AuthenticateResponse = services::login::authenticate;
    }
    "platform.app.v1.AppService" for People app_service_server::AppService {
        unary GetUserIDByEmail get_user_id_by_email(app::GetUserIdByEmailRequest) -> app::GetUserIdByEmailResponse = services::members::id_by_email;
        unary CreateOrganization create_organization(app::CreateOrganizationRequest) -> app::CreateOrganizationResponse = services::organizations::create;
        unary ListOrganizations list_organizations(app::ListOrganizationsRequest) -> app::ListOrganizationsResponse = services::organizations::list;
        unary GetOrganization get_organization(app::GetOrganizationRequest) -> app::GetOrganizationResponse = services::organizations::get;
        unary GetOrganizationNamespaceAvailability get_organization_namespace_availability(app::GetOrganizationNamespaceAvailabilityRequest) -> app::GetOrganizationNamespaceAvailabilityResponse = services::organizations::namespace_availability;
        unary UpdateOrganization update_organization(app::UpdateOrganizationRequest) -> app::UpdateOrganizationResponse = services::organizations::update;
        unary DeleteOrganization delete_organization(app::DeleteOrganizationRequest) -> app::DeleteOrganizationResponse = services::organizations::delete;
        unary ListOrganizationsByUser list_organizations_by_user(app::ListOrganizationsByUserRequest) -> app::ListOrganizationsByUserResponse = services::members::organizations_of;
        unary ListOrganizationMembers list_organization_members(app::ListOrganizationMembersRequest) -> app::ListOrganizationMembersResponse = services::members::list;
        unary CreateOrganizationInvite create_organization_invite(app::CreateOrganizationInviteRequest) -> app::CreateOrganizationInviteResponse = services::members::invite;
        unary UpdateOrganizationInviteAuthorizations update_organization_invite_authorizations(app::UpdateOrganizationInviteAuthorizationsRequest) -> app::UpdateOrganizationInviteAuthorizationsResponse = services::members::change_invite;
        unary DeleteOrganizationMember delete_organization_member(app::DeleteOrganizationMemberRequest) -> app::DeleteOrganizationMemberResponse = services::members::delete;
        unary DeleteOrganizationInvite delete_organization_invite(app::DeleteOrganizationInviteRequest) -> app::DeleteOrganizationInviteResponse = services::members::delete_invite;
        unary ResendOrganizationInvite resend_organization_invite(app::ResendOrganizationInviteRequest) -> app::ResendOrganizationInviteResponse = services::members::resend_invite;
        unary GetOrganizationMetadata get_organization_metadata(app::GetOrganizationMetadataRequest) -> app::GetOrganizationMetadataResponse = services::metadata::of_organization;
        unary UpdateOrganizationMetadata update_organization_metadata(app::UpdateOrganizationMetadataRequest) -> app::UpdateOrganizationMetadataResponse = services::metadata::update_of_organization;
        unary GetOrganizationsWithAccessToLocation get_organizations_with_access_to_location(app::GetOrganizationsWithAccessToLocationRequest) -> app::GetOrganizationsWithAccessToLocationResponse = services::location_access::organizations;
        unary CreateLocation create_location(app::CreateLocationRequest) -> app::CreateLocationResponse = services::locations::create;
        unary GetLocation get_location(app::GetLocationRequest) -> app::GetLocationResponse = services::locations::get;
        unary UpdateLocation update_location(app::UpdateLocationRequest) -> app::UpdateLocationResponse = services::locations::update;
        unary DeleteLocation delete_location(app::DeleteLocationRequest) -> app::DeleteLocationResponse = services::locations::delete;
        unary ListLocations list_locations(app::ListLocationsRequest) -> app::ListLocationsResponse = services::locations::list;
        unary ShareLocation share_location(app::ShareLocationRequest) -> app::ShareLocationResponse = services::location_access::share;
        unary UnshareLocation unshare_location(app::UnshareLocationRequest) -> app::UnshareLocationResponse = services::location_access::unshare;
        unary LocationAuth location_auth(app::LocationAuthRequest) -> app::LocationAuthResponse = services::location_access::auth;
        unary CreateLocationSecret create_location_secret(app::CreateLocationSecretRequest) -> app::CreateLocationSecretResponse = services::location_access::create_secret;
        unary DeleteLocationSecret delete_location_secret(app::DeleteLocationSecretRequest) -> app::DeleteLocationSecretResponse = services::location_access::delete_secret;
        unary GetLocationMetadata get_location_metadata(app::GetLocationMetadataRequest) -> app::GetLocationMetadataResponse = services::metadata::of_location;
        unary UpdateLocationMetadata update_location_metadata(app::UpdateLocationMetadataRequest) -> app::UpdateLocationMetadataResponse = services::metadata::update_of_location;
        unary NewRobot new_robot(app::NewRobotRequest) -> app::NewRobotResponse = services::machines::create;
        unary GetRobot get_robot(app::GetRobotRequest) -> app::GetRobotResponse = services::machines::get;
        unary ListRobots list_robots(app::ListRobotsRequest) -> app::ListRobotsResponse = services::machines::list;
        unary UpdateRobot update_robot(app::UpdateRobotRequest) -> app::UpdateRobotResponse = services::machines::update;
        unary DeleteRobot delete_robot(app::DeleteRobotRequest) -> app::DeleteRobotResponse = services::machines::delete;
        unary GetRobotMetadata get_robot_metadata(app::GetRobotMetadataRequest) -> app::GetRobotMetadataResponse = services::metadata::of_machine;
        unary UpdateRobotMetadata update_robot_metadata(app::UpdateRobotMetadataRequest) -> app::UpdateRobotMetadataResponse = services::metadata::update_of_machine;
        unary GetRobotParts get_robot_parts(app::GetRobotPartsRequest) -> app::GetRobotPartsResponse = services::machines::parts;
        unary GetRobotAPIKeys get_robot_api_keys(app::GetRobotApiKeysRequest) -> app::GetRobotApiKeysResponse = services::machines::api_keys;
        unary GetRobotPart get_robot_part(app::GetRobotPartRequest) -> Written<app::GetRobotPartResponse> = services::parts::get;
        unary GetRobotPartByNameAndLocation get_robot_part_by_name_and_location(app::GetRobotPartByNameAndLocationRequest) -> app::GetRobotPartByNameAndLocationResponse = services::parts::get_by_name;
        unary GetRobotPartHistory get_robot_part_history(app::GetRobotPartHistoryRequest) -> app::GetRobotPartHistoryResponse = services::parts::history;
        unary UpdateRobotPart update_robot_part(app::UpdateRobotPartRequest) -> Written<app::UpdateRobotPartResponse> = services::parts::update;
        unary NewRobotPart new_robot_part(app::NewRobotPartRequest) -> app::NewRobotPartResponse = services::parts::create;
        unary DeleteRobotPart delete_robot_part(app::DeleteRobotPartRequest) -> app::DeleteRobotPartResponse = services::parts::delete;
        unary MarkPartAsMain mark_part_as_main(app::MarkPartAsMainRequest) -> app::MarkPartAsMainResponse = services::parts::mark_as_main;
        unary MarkPartForRestart mark_part_for_restart(app::MarkPartForRestartRequest) -> app::MarkPartForRestartResponse = services::parts::mark_for_restart;
        unary GetRobotPartMetadata get_robot_part_metadata(app::GetRobotPartMetadataRequest) -> app::GetRobotPartMetadataResponse = services::metadata::of_part;
        unary UpdateRobotPartMetadata update_robot_part_metadata(app::UpdateRobotPartMetadataRequest) -> app::UpdateRobotPartMetadataResponse = services::metadata::update_of_part;
        unary CreateRobotPartSecret create_robot_part_secret(app::CreateRobotPartSecretRequest) -> app::CreateRobotPartSecretResponse = services::part_secrets::create;
        unary DeleteRobotPartSecret delete_robot_part_secret(app::DeleteRobotPartSecretRequest) -> app::DeleteRobotPartSecretResponse = services::part_secrets::delete;
        unary ListFragments list_fragments(app::ListFragmentsRequest) -> app::ListFragmentsResponse = services::fragments::list;
        unary GetFragment get_fragment(app::GetFragmentRequest) -> app::GetFragmentResponse = services::fragments::get;
        unary CreateFragment create_fragment(app::CreateFragmentRequest) -> app::CreateFragmentResponse = services::fragments::create;
        unary UpdateFragment update_fragment(app::UpdateFragmentRequest) -> app::UpdateFragmentResponse = services::fragments::update;
        unary DeleteFragment delete_fragment(app::DeleteFragmentRequest) -> app::DeleteFragmentResponse = services::fragments::delete;
        unary GetFragmentHistory get_fragment_history(app::GetFragmentHistoryRequest) -> app::GetFragmentHistoryResponse = services::fragments::history;
        unary ListMachineFragments list_machine_fragments(app::ListMachineFragmentsRequest) -> app::ListMachineFragmentsResponse = services::machine_fragments::list;
        unary ListMachineSummaries list_machine_summaries(app::ListMachineSummariesRequest) -> app::ListMachineSummariesResponse = services::summaries::list;
        unary AddRole add_role(app::AddRoleRequest) -> app::AddRoleResponse = services::roles::add;
        unary RemoveRole remove_role(app::RemoveRoleRequest) -> app::RemoveRoleResponse = services::roles::remove;
        unary ChangeRole change_role(app::ChangeRoleRequest) -> app::ChangeRoleResponse = services::roles::change;
        unary ListAuthorizations list_authorizations(app::ListAuthorizationsRequest) -> app::ListAuthorizationsResponse = services::roles::list;
        unary CheckPermissions check_permissions(app::CheckPermissionsRequest) -> app::CheckPermissionsResponse = services::roles::check;
        unary CreateKey create_key(app::CreateKeyRequest) -> app::CreateKeyResponse = services::keys::create;
        unary DeleteKey delete_key(app::DeleteKeyRequest) -> app::DeleteKeyResponse = services::keys::delete;
        unary ListKeys list_keys(app::ListKeysRequest) -> app::ListKeysResponse = services::keys::list;
        unary RotateKey rotate_key(app::RotateKeyRequest) -> app::RotateKeyResponse = services::keys::rotate;
        unary CreateKeyFromExistingKeyAuthorizations create_key_from_existing_key_authorizations(app::CreateKeyFromExistingKeyAuthorizationsRequest) -> app::CreateKeyFromExistingKeyAuthorizationsResponse = services::keys::create_like;
        unary GetRegistryItem get_registry_item(app::GetRegistryItemRequest) -> app::GetRegistryItemResponse = services::registry::get;
        unary CreateRegistryItem create_registry_item(app::CreateRegistryItemRequest) -> app::CreateRegistryItemResponse = services::registry::create;
        unary UpdateRegistryItem update_registry_item(app::UpdateRegistryItemRequest) -> app::UpdateRegistryItemResponse = services::registry::update;
        unary ListRegistryItems list_registry_items(app::ListRegistryItemsRequest) -> app::ListRegistryItemsResponse = services::registry_list::list;
        unary DeleteRegistryItem delete_registry_item(app::DeleteRegistryItemRequest) -> app::DeleteRegistryItemResponse = services::registry::delete;
        unary CreateModule create_module(app::CreateModuleRequest) -> app::CreateModuleResponse = services::modules::create;
        unary UpdateModule update_module(app::UpdateModuleRequest) -> app::UpdateModuleResponse = services::modules::update;
        upload UploadModuleFile upload_module_file(app::UploadModuleFileRequest) -> app::UploadModuleFileResponse = services::module_files::upload;
        unary GetModule get_module(app::GetModuleRequest) -> app::GetModuleResponse = services::modules::get;
        unary ListModules list_modules(app::ListModulesRequest) -> app::ListModulesResponse = services::modules::list;
        unary GetAppContent get_app_content(app::GetAppContentRequest) -> app::GetAppContentResponse = services::apps::content;
        unary GetAppBranding get_app_branding(app::GetAppBrandingRequest) -> app::GetAppBrandingResponse = services::apps::branding;
        unary GetRobotPartLogs get_robot_part_logs(app::GetRobotPartLogsRequest) -> app::GetRobotPartLogsResponse = services::part_logs::get;
        stream TailRobotPartLogs tail_robot_part_logs(app::TailRobotPartLogsRequest) -> Written<app::TailRobotPartLogsResponse> = services::part_logs::tail;
    }
    "platform.app.v1.RobotService" for Anybody robot_service_server::RobotService {
        unary Config config(app::ConfigRequest) -> app::ConfigResponse = services::device::config;
        unary Log log(app::LogRequest) -> app::LogResponse = services::device::log;
        unary NeedsRestart needs_restart(app::NeedsRestartRequest) -> app::NeedsRestartResponse = services::device::needs_restart;
    }
    "platform.app.agent.v1.AgentDeviceService" for Anybody agent_device_service_server::AgentDeviceService {
        unary DeviceAgentConfig device_agent_config(agent::DeviceAgentConfigRequest) -> Written<agent::DeviceAgentConfigResponse> = services::device::agent_config;
    }
    "platform.app.packages.v1.PackageService" for Anybody package_service_server::PackageService {
        unary GetPackage get_package(packages::GetPackageRequest) -> packages::GetPackageResponse = services::packages::get;
        unary ListPackages list_packages(packages::ListPackagesRequest) -> packages::ListPackagesResponse = services::packages::list;
    }
    "platform.fleet.v1.DeviceService" for Anybody device_service_server::DeviceService {
        unary Report report(fleet::ReportRequest) -> fleet::ReportResponse = services::device::report;
        unary UploadLogs upload_logs(fleet::UploadLogsRequest) -> fleet::UploadLogsResponse = services::device::upload_logs;
    }
    "platform.fleet.v1.AdminService" for People admin_service_server::AdminService {
        unary GetPartStatus get_part_status(fleet::GetPartStatusRequest) -> fleet::GetPartStatusResponse = services::admin::part_status;
        unary RetryUpdate retry_update(fleet::RetryUpdateRequest) -> fleet::RetryUpdateResponse = services::admin::retry_update;
        unary GetPartCredentials get_part_credentials(fleet::GetPartCredentialsRequest) -> fleet::GetPartCredentialsResponse = services::admin::part_credentials;
        unary ListAuditEvents list_audit_events(fleet::ListAuditEventsRequest) -> fleet::ListAuditEventsResponse = services::admin::audit_events;
    }
}
