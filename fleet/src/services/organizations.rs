//! Organizations.

use api::pb::platform::app::v1::{ListOrganizationsRequest, ListOrganizationsResponse};

use crate::{authn::Caller, context::Context, refusal::Refusal};

/// ListOrganizations.
pub async fn list(_: &Context, _: Caller, _: ListOrganizationsRequest) -> Result<ListOrganizationsResponse, Refusal> {
    Ok(ListOrganizationsResponse { organizations: Vec::new() })
}
