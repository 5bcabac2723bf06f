//! `member` and `invite`: the people of an organization, and those who are asked to join.

use api::pb::platform::app::v1::{self as app, app_service};
use clap::Subcommand;
use serde_json::json;

use super::role::{On, Role};
use crate::{
    failure::Failure,
    find,
    output::{Output, json_of},
    session::Session,
    when::moment,
};

#[derive(Subcommand)]
pub(crate) enum Verb {
    /// Show all, and the invitations that wait
    List,
    /// Take one out of the organization, with every role there
    Remove {
        /// E-mail address or id
        member: String,
    },
    /// Show the id of a person
    Id {
        /// E-mail address
        email: String,
    },
    /// Show which organizations a person is a member of
    Organizations {
        /// E-mail address or id
        member: String,
    },
}

#[derive(Subcommand)]
pub(crate) enum InviteVerb {
    /// Ask somebody to join
    Create {
        /// E-mail address
        email: String,
        /// What they will be
        #[arg(long, value_enum, default_value_t = Role::Owner)]
        role: Role,
        #[command(flatten)]
        on: On,
        /// Without a mail: it is accepted when they sign in
        #[arg(long)]
        no_mail: bool,
    },
    /// Give an invitation that waits one more role, or take one away
    Update {
        /// E-mail address
        email: String,
        /// One more
        #[arg(long, value_enum, required_unless_present = "remove")]
        add: Option<Role>,
        /// One less; the last one stays
        #[arg(long, value_enum)]
        remove: Option<Role>,
        #[command(flatten)]
        on: On,
    },
    /// Send it again, with a new link
    Resend {
        /// E-mail address
        email: String,
        /// From now on without a mail
        #[arg(long)]
        no_mail: bool,
    },
    /// Take it back
    Delete {
        /// E-mail address
        email: String,
    },
}

pub(super) fn run(session: &Session, verb: Verb, output: &mut Output) -> Result<(), Failure> {
    match verb {
        Verb::List => {
            let organization_id = find::organization(session, None)?.id;
            let request = app::ListOrganizationMembersRequest { organization_id };
            let listed = session.ask("could not list the members", app_service::LIST_ORGANIZATION_MEMBERS, &request)?;
            if output.is_json() {
                return output.json(&json_of(&listed));
            }
            let member = |one: &app::OrganizationMember| {
                [one.emails.join(", "), "member".to_owned(), moment(one.date_added.as_ref()), one.user_id.clone()]
            };
            let invite = |one: &app::OrganizationInvite| {
                [one.email.clone(), "invited".to_owned(), moment(one.created_on.as_ref()), String::new()]
            };
            let rows = listed.members.iter().map(member).chain(listed.invites.iter().map(invite));
            output.table(["e-mail", "state", "since", "id"], rows.collect())
        }
        Verb::Remove { member } => {
            let organization_id = find::organization(session, None)?.id;
            let user_id = user_id(session, &member)?;
            let request = app::DeleteOrganizationMemberRequest { organization_id, user_id: user_id.clone() };
            session.change("could not remove the member", app_service::DELETE_ORGANIZATION_MEMBER, &request)?;
            output.done(&format!("{member} is no longer a member."), json!({"user_id": user_id}))
        }
        Verb::Id { email } => {
            let user_id = user_id(session, &email)?;
            output.done(&user_id, json!({"user_id": user_id}))
        }
        Verb::Organizations { member } => {
            let request = app::ListOrganizationsByUserRequest { user_id: user_id(session, &member)? };
            let listed =
                session.ask("could not list the organizations", app_service::LIST_ORGANIZATIONS_BY_USER, &request)?;
            output.list(&listed.orgs, ["name", "id", "namespace"], "None that you may see.", |one| {
                [one.org_name.clone(), one.org_id.clone(), one.public_namespace.clone().unwrap_or_default()]
            })
        }
    }
}

pub(super) fn invite(session: &Session, verb: InviteVerb, output: &mut Output) -> Result<(), Failure> {
    let organization_id = find::organization(session, None)?.id;
    match verb {
        InviteVerb::Create { email, role, on, no_mail } => {
            let authorizations = vec![on.authorization(session, role)?];
            let request = app::CreateOrganizationInviteRequest {
                organization_id,
                email,
                authorizations,
                send_email_invite: Some(!no_mail),
            };
            let made = session.change("could not invite them", app_service::CREATE_ORGANIZATION_INVITE, &request)?;
            show(output, &made.invite.unwrap_or_default())
        }
        InviteVerb::Update { email, add, remove, on } => {
            let list = |role: Option<Role>| role.map(|role| on.authorization(session, role)).transpose();
            let request = app::UpdateOrganizationInviteAuthorizationsRequest {
                organization_id,
                email,
                add_authorizations: list(add)?.into_iter().collect(),
                remove_authorizations: list(remove)?.into_iter().collect(),
            };
            let method = app_service::UPDATE_ORGANIZATION_INVITE_AUTHORIZATIONS;
            let changed = session.change("could not change the invitation", method, &request)?;
            show(output, &changed.invite.unwrap_or_default())
        }
        InviteVerb::Resend { email, no_mail } => {
            let request =
                app::ResendOrganizationInviteRequest { organization_id, email, send_email_invite: Some(!no_mail) };
            let sent = session.change("could not send it again", app_service::RESEND_ORGANIZATION_INVITE, &request)?;
            show(output, &sent.invite.unwrap_or_default())
        }
        InviteVerb::Delete { email } => {
            let request = app::DeleteOrganizationInviteRequest { organization_id, email: email.clone() };
            session.change("could not take it back", app_service::DELETE_ORGANIZATION_INVITE, &request)?;
            output.done(&format!("{email} is no longer invited."), json!({"email": email}))
        }
    }
}

/// The id of a person (or of a key, which is one already).
pub(super) fn user_id(session: &Session, given: &str) -> Result<String, Failure> {
    if !given.contains('@') {
        return Ok(given.to_owned());
    }
    let request = app::GetUserIdByEmailRequest { email: given.to_owned() };
    Ok(session.ask("could not find the person", app_service::GET_USER_ID_BY_EMAIL, &request)?.user_id)
}

fn show(output: &mut Output, one: &app::OrganizationInvite) -> Result<(), Failure> {
    let roles = one.authorizations.iter().map(|role| format!("{} {}", role.authorization_id, role.resource_id));
    output.one(
        one,
        &[
            ("e-mail", one.email.clone()),
            ("roles", roles.collect::<Vec<_>>().join(", ")),
            ("invited", moment(one.created_on.as_ref())),
        ],
    )
}
