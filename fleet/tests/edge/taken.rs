//! What is taken although it was spoilt, or finds nothing, and why. Everything else is refused.

/// Need not be said.
const ABSENT: &str = "need not be said";
/// Any printable text is a good one, and another thing may have it already.
const TEXT: &str = "any printable text is a good one";
/// Asks for what is not there: an empty answer.
const FILTER: &str = "finds nothing";
/// Names what is not there.
const LOOKUP: &str = "there is no such thing";
/// Said otherwise, or by the token, or there is nothing here that would need it.
const IGNORED: &str = "never looked at";
/// Only describes something, and a newer client may have a name for it.
const NEWER: &str = "a newer client may know it";
/// Judged after the invitation itself: whether there is one, or a member already. Whom it is for the address says.
const LATER: &str = "judged later";

/// What a device says of itself is kept as it says it, or left out: a refusal would lose all of it.
pub(super) const A_DEVICE_SAYS: [&str; 5] =
    ["Config agent_info", "DeviceAgentConfig ", "Log logs", "Report status", "UploadLogs logs"];

/// (operation, ways, fields, why). Ways: _a_bsent, some _w_ords, letters of all the _u_niverse, a _b_ell in it, 300
/// letters _x_, a _n_umber without a name.
pub(super) const TAKEN: &[(&str, &str, &str, &str)] = &[
    ("AddRole", "a", "authorization.authorization_type authorization.identity_type", ABSENT),
    ("ChangeRole", "a", "new_authorization.authorization_type new_authorization.identity_type", ABSENT),
    ("ChangeRole", "a", "old_authorization.authorization_type old_authorization.identity_type", ABSENT),
    ("CreateFragment", "a", "config", ABSENT),
    ("CreateKey", "a", "authorizations.authorization_type", ABSENT),
    ("CreateLocation", "a", "parent_location_id", ABSENT),
    ("GetFragmentHistory", "a", "page_token", ABSENT),
    ("GetRobotPartHistory", "a", "end page_token start", ABSENT),
    ("GetRobotPartLogs", "a", "end page_token range start", ABSENT),
    ("ListAuditEvents", "a", "page_token", ABSENT),
    ("ListAuthorizations", "a", "resource_ids", ABSENT),
    ("ListMachineFragments", "a", "additional_fragment_ids additional_fragments", ABSENT),
    ("ListMachineSummaries", "a", "fragment_ids location_ids organization_id", ABSENT),
    ("ListModules", "a", "organization_id", ABSENT),
    ("ListRegistryItems", "a", "organization_id page_token", ABSENT),
    ("RemoveRole", "a", "authorization.authorization_type authorization.identity_type", ABSENT),
    ("UpdateFragment", "a", "config fragment_config_json last_known_update", ABSENT),
    ("UpdateLocation", "a", "parent_location_id", ABSENT),
    ("UpdateModule", "a", "apps", ABSENT),
    ("UpdateOrganization", "a", "default_fragments default_fragments.fragments", ABSENT),
    ("UpdateOrganization", "a", "default_fragments.fragments.fragment_variables public_namespace", ABSENT),
    ("UpdateRegistryItem", "a", "update_ml_training_metadata update_module_metadata.apps", ABSENT),
    ("UpdateRegistryItem", "a", "update_module_metadata.models", ABSENT),
    ("UpdateRobot", "a", "location", ABSENT),
    ("UpdateRobotPart", "a", "last_known_update robot_config robot_config_json", ABSENT),
    ("CreateKey", "awu", "name", TEXT),
    ("UpdateLocation", "awu", "name", TEXT),
    ("UpdateOrganization", "awu", "name", TEXT),
    ("UpdateLocation", "awux", "region", TEXT),
    ("UpdateOrganization", "awux", "cid region", TEXT),
    ("UpdateOrganization", "awu", "default_fragments.fragments.prefix", TEXT),
    ("UpdateRegistryItem", "awux", "update_module_metadata.entrypoint", TEXT),
    ("UpdateRegistryItem", "awux", "update_module_metadata.min_platform_server_version", TEXT),
    ("CreateFragment", "wu", "name", TEXT),
    ("CreateLocation", "wu", "name", TEXT),
    ("CreateOrganization", "wu", "name", TEXT),
    ("NewRobot", "wu", "name", TEXT),
    ("NewRobotPart", "wu", "part_name", TEXT),
    ("UpdateFragment", "wu", "name", TEXT),
    ("UpdateRobot", "wu", "name", TEXT),
    ("UpdateRobotPart", "wu", "name", TEXT),
    ("GetRobotPartLogs", "awub", "source", FILTER),
    ("GetPackage", "awubx", "platform", FILTER),
    ("GetRobotPartLogs", "awubx", "filter levels", FILTER),
    ("ListPackages", "awubx", "name version", FILTER),
    ("ListRegistryItems", "awubx", "search_term", FILTER),
    ("ListRegistryItems", "awux", "platforms public_namespaces", FILTER),
    ("GetFragment", "awux", "version", LOOKUP),
    ("GetPackage", "awubx", "version", LOOKUP),
    ("ListMachineFragments", "awux", "additional_fragments.version", LOOKUP),
    ("GetAppBranding", "awux", "name public_namespace", LOOKUP),
    ("GetAppContent", "awux", "name public_namespace", LOOKUP),
    ("UpdateOrganization", "awu", "default_fragments.fragments.version", LOOKUP),
    ("GetRobotPartByNameAndLocation", "wux", "name", LOOKUP),
    ("UpdateOrganization", "a", "allowed_login_methods", IGNORED),
    ("CreateKey", "awubx", "authorizations.identity_id authorizations.identity_type", IGNORED),
    ("GetFragment", "awubx", "current_organization_id", IGNORED),
    ("GetOrganizationNamespaceAvailability", "awubx", "organization_id", IGNORED),
    ("UpdateOrganization", "n", "allowed_login_methods.methods", IGNORED),
    ("UpdateRegistryItem", "n", "update_module_metadata.language update_module_metadata.source_type", NEWER),
    ("CreateOrganizationInvite", "a", "authorizations authorizations.authorization_type", LATER),
    ("CreateOrganizationInvite", "a", "authorizations.organization_id", LATER),
    ("UpdateOrganizationInviteAuthorizations", "a", "add_authorizations", LATER),
    ("UpdateOrganizationInviteAuthorizations", "a", "add_authorizations.authorization_type", LATER),
    ("UpdateOrganizationInviteAuthorizations", "a", "add_authorizations.organization_id", LATER),
    ("UpdateOrganizationInviteAuthorizations", "a", "remove_authorizations", LATER),
    ("UpdateOrganizationInviteAuthorizations", "a", "remove_authorizations.authorization_type", LATER),
    ("UpdateOrganizationInviteAuthorizations", "a", "remove_authorizations.organization_id", LATER),
    ("CreateOrganizationInvite", "awubx", "authorizations.identity_id authorizations.identity_type", LATER),
    ("UpdateOrganizationInviteAuthorizations", "awubx", "add_authorizations.identity_id", LATER),
    ("UpdateOrganizationInviteAuthorizations", "awubx", "add_authorizations.identity_type", LATER),
    ("UpdateOrganizationInviteAuthorizations", "awubx", "remove_authorizations.identity_id", LATER),
    ("UpdateOrganizationInviteAuthorizations", "awubx", "remove_authorizations.identity_type", LATER),
    ("UpdateModule", "a", "apps.allowed_org_ids apps.customizations apps.customizations.machine_picker", ABSENT),
    ("UpdateModule", "a", "models", ABSENT),
    ("UpdateModule", "awux", "apps.allowed_org_ids.ids apps.customizations.machine_picker.heading", TEXT),
    ("UpdateModule", "awux", "apps.customizations.machine_picker.subheading apps.fragment_ids", TEXT),
    ("UpdateModule", "awux", "apps.logo_path description entrypoint first_run markdown_description", TEXT),
    ("UpdateModule", "awux", "models.api models.description models.markdown_documentation models.model", TEXT),
    ("UpdateModule", "awux", "models.supported_hardware url", TEXT),
    ("UpdateModule", "wux", "apps.entrypoint", TEXT),
    ("UpdateRegistryItem", "a", "billing billing.cost_per_month billing.cost_per_year", ABSENT),
    ("UpdateRegistryItem", "a", "update_ml_model_metadata update_module_metadata", ABSENT),
    ("UpdateRegistryItem", "a", "update_module_metadata.apps.allowed_org_ids", ABSENT),
    ("UpdateRegistryItem", "a", "update_module_metadata.apps.customizations", ABSENT),
    ("UpdateRegistryItem", "a", "update_module_metadata.apps.customizations.machine_picker", ABSENT),
    ("UpdateRegistryItem", "awux", "description markdown_description url", TEXT),
    ("UpdateRegistryItem", "awux", "update_module_metadata.apps.allowed_org_ids.ids", TEXT),
    ("UpdateRegistryItem", "awux", "update_module_metadata.apps.fragment_ids", TEXT),
    ("UpdateRegistryItem", "awux", "update_module_metadata.apps.logo_path update_module_metadata.models.api", TEXT),
    ("UpdateRegistryItem", "awux", "update_module_metadata.models.description", TEXT),
    ("UpdateRegistryItem", "awux", "update_module_metadata.models.markdown_documentation", TEXT),
    ("UpdateRegistryItem", "awux", "update_module_metadata.models.model", TEXT),
    ("UpdateRegistryItem", "awux", "update_module_metadata.models.supported_hardware", TEXT),
    ("UpdateRegistryItem", "wux", "update_module_metadata.apps.entrypoint", TEXT),
    ("UploadLogs", "wu", "spool_id", TEXT),
];
