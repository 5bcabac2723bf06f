//! People and this server: how they come to a key of their own.
//!
//! `platform-fleet user add|key|invite` for its administrator, the page behind an invitation's link for whoever was
//! invited, and what happens when somebody signs in. A personal key is shown once.

use std::{net::IpAddr, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    authn::{Caller, Sealer, Who, digest_of},
    authz::{Grant, Role},
    clock::Millis,
    context::Context,
    ids,
    refusal::Refusal,
    services::{input, members::owner_of},
    store::{
        DbError, Tx, identities,
        invites::{self, Door, Ended, Link, Stored},
        keys, organizations,
        roles::{Identity, IdentityKind},
        users,
    },
};

/// How long the button of an invitation's page shows the key again that it gave: a second press, or an answer that was lost.
const SHOWN_AGAIN_WITHIN: Millis = 60_000;
/// A login is written down when the last one is older than this: to the minute is enough for people.
const LOGIN_WRITTEN_EVERY: Millis = 60_000;

/// A key as its holder gets it, once.
pub struct Issued {
    /// Whose.
    pub user_id: String,
    /// Of the key.
    pub key_id: String,
    /// The key.
    pub key: String,
}

/// `user add`: a person with a key, members of `organization` (id or name) if one is given, and of every organization
/// that invited them without a mail.
pub async fn add(context: &Context, email: &str, role: Option<(&str, Role)>) -> Result<Issued, Refusal> {
    let email = input::email("--email", email)?;
    let role = role.map(|(organization, role)| (organization.to_owned(), role));
    let now = context.clock.now();
    context
        .store
        .write::<_, Refusal>(move |tx| {
            let caller = Caller::local();
            let user = ids::new_id();
            users::create(tx, &caller, &user, &email, now)?;
            let issued = issue(tx, &caller, &user, &email, now)?;
            if let Some((organization, role)) = role {
                let grant = Grant { role, ..owner_of(&named(tx, &organization)?) };
                let to = Identity { kind: IdentityKind::User, id: user.clone() };
                users::give_locally(tx, &caller, &to, &grant, now)?;
            }
            for invite in invites::without_link(tx, &email)? {
                invites::accept(tx, &caller, &invite, &user, now)?;
            }
            Ok(issued)
        })
        .await
}

/// What becomes of the keys that a person has already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OtherKeys {
    /// They stay good.
    Stay,
    /// They end, also those that signing in gave.
    End,
}

/// `user key`: one more key for a person who has none at hand.
pub async fn key(context: &Context, email: &str, others: OtherKeys) -> Result<Issued, Refusal> {
    let email = input::email("--email", email)?;
    let now = context.clock.now();
    context
        .store
        .write::<_, Refusal>(move |tx| {
            let user =
                users::by_email(tx, &email)?.ok_or_else(|| Refusal::not_found("user with the address", &email))?;
            let caller = Caller::local();
            if others == OtherKeys::End {
                keys::end_all_of_user(tx, &caller, &user.id, now)?;
            }
            issue(tx, &caller, &user.id, &email, now)
        })
        .await
}

/// `user invite`: invites somebody, or makes another link for an invitation that waits. The link's path.
pub async fn invite(context: &Context, organization: &str, email: &str, role: Role) -> Result<String, Refusal> {
    let (email, organization) = (input::email("--email", email)?, organization.to_owned());
    let (secret, now) = (ids::new_secret(), context.clock.now());
    let door = Door::Link { digest: digest_of(&secret), mail: None };
    context
        .store
        .write::<_, Refusal>(move |tx| {
            let (caller, organization) = (Caller::local(), named(tx, &organization)?);
            if !invites::renew_locally(tx, &caller, &organization, &email, &door, now)? {
                let grant = Grant { role, ..owner_of(&organization) };
                invites::create_locally(tx, &caller, &organization, &email, &[grant], &door, now)?;
            }
            Ok(())
        })
        .await?;
    Ok(format!("{PATH}{secret}"))
}

/// Where the page of an invitation is.
pub const PATH: &str = "/invite/";

/// What the page shows before anybody decides.
pub struct Waiting {
    /// Name of the organization.
    pub organization: String,
    /// Whom it is for.
    pub email: String,
}

/// A link that opens nothing, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dead {
    /// It was not used in time.
    Expired,
    /// It was used, withdrawn or replaced.
    Ended(Ended),
    /// It was never made here, or ended long ago.
    Unknown,
}

/// The invitation that a link accepts.
fn alive(link: Link) -> Result<Stored, Dead> {
    match link {
        Link::Waits(invite) => Ok(invite),
        Link::Expired => Err(Dead::Expired),
        Link::Ended(why) => Err(Dead::Ended(why)),
        Link::Unknown => Err(Dead::Unknown),
    }
}

/// The invitation with that link.
pub async fn waiting(context: &Context, secret: &str) -> Result<Result<Waiting, Dead>, Refusal> {
    let (digest, now) = (digest_of(secret), context.clock.now());
    let found = context.store.read::<_, DbError>(|tx| {
        let invite = match alive(invites::by_link(tx, &digest, now)?) {
            Ok(invite) => invite,
            Err(dead) => return Ok(Err(dead)),
        };
        let organization = organizations::get(tx, &invite.organization)?.map(|found| found.name).unwrap_or_default();
        Ok(Ok(Waiting { organization, email: invite.email }))
    });
    Ok(found.await?)
}

/// What the page of an invitation has in its form, sealed: the key that accepting will give. So each answer to a button
/// that is pressed twice shows the same key, of which only the digest is stored here.
#[derive(Serialize, Deserialize)]
struct Promise {
    organization: String,
    email: String,
    /// Names the form too, where no key is given.
    key_id: String,
    key: String,
}

/// What sealed promises are bound to: one of another link opens nothing.
fn bound(digest: &str) -> String {
    format!("invitation form {digest}")
}

/// For the form behind that link, anew for each page that is shown.
pub fn promise(context: &Context, secret: &str, waiting: &Waiting) -> String {
    let promise = Promise {
        organization: waiting.organization.clone(),
        email: waiting.email.clone(),
        key_id: ids::new_id(),
        key: ids::new_secret(),
    };
    let text = serde_json::to_string(&promise).expect("texts can be written");
    context.authn.sealer.seal(&bound(&digest_of(secret)), &text)
}

fn promised(sealer: &Sealer, digest: &str, form: &str) -> Option<Promise> {
    serde_json::from_str(&sealer.open(&bound(digest), form)?).ok()
}

/// What the same button brought a moment ago.
fn again(tx: &Tx<'_>, digest: &str, promise: Promise, now: Millis) -> Result<Option<Accepted>, DbError> {
    let Promise { organization, email, key_id, key } = promise;
    let form = invites::form_that_accepted(tx, digest, now - SHOWN_AGAIN_WITHIN)?;
    if form.as_deref() != Some(&*key_id) {
        return Ok(None);
    }
    // It may have been rotated or deleted since.
    let login = keys::for_login(tx, &key_id)?.filter(|login| login.digest == digest_of(&key));
    let issued = login.and_then(|login| login.user).map(|user_id| Issued { user_id, key_id, key });
    Ok(Some(Accepted { waiting: Waiting { organization, email }, issued }))
}

/// What accepting brought.
pub struct Accepted {
    /// The organization.
    pub waiting: Waiting,
    /// A key, for who had none. Who has one keeps it: a link from one organization opens no other.
    pub issued: Option<Issued>,
}

/// Accepts the invitation with that link, once. `form` is what its page had in its form, if it comes from there.
pub async fn accept(
    context: &Context,
    secret: &str,
    form: &str,
    from: IpAddr,
) -> Result<Result<Accepted, Dead>, Refusal> {
    let (digest, now) = (digest_of(secret), context.clock.now());
    let promise = promised(&context.authn.sealer, &digest, form);
    // Where there is an identity provider, nobody needs a key for ever.
    let signs_in = context.sign_in.is_some();
    let accepted = context.store.write::<_, Refusal>(move |tx| {
        let invite = match alive(invites::by_link(tx, &digest, now)?) {
            Ok(invite) => invite,
            Err(dead @ Dead::Ended(Ended::Accepted)) => {
                let before = promise.map(|promise| again(tx, &digest, promise, now)).transpose()?.flatten();
                return Ok(before.ok_or(dead));
            }
            Err(dead) => return Ok(Err(dead)),
        };
        let organization = organizations::get(tx, &invite.organization)?.map(|found| found.name).unwrap_or_default();
        let caller = Caller::nobody(from);
        let user = match users::by_email(tx, &invite.email)? {
            Some(user) => user.id,
            None => {
                let id = ids::new_id();
                users::create(tx, &caller, &id, &invite.email, now)?;
                id
            }
        };
        let form = promise.as_ref().map(|promise| promise.key_id.clone());
        let issued = match keys::of_user(tx, &user, now)?.is_empty() && !signs_in {
            true => {
                let (key_id, key) = match promise {
                    Some(promise) => (promise.key_id, promise.key),
                    None => (ids::new_id(), ids::new_secret()),
                };
                Some(issue_this(tx, &caller, &invite.email, Issued { user_id: user.clone(), key_id, key }, now)?)
            }
            false => None,
        };
        invites::accept(tx, &caller, &invite, &user, now)?;
        if let Some(form) = form {
            invites::note_form(tx, &digest, &form)?;
        }
        let waiting = Waiting { organization, email: invite.email };
        Ok(Ok(Accepted { waiting, issued }))
    });
    accepted.await
}

/// Somebody's key was used to sign in: they are shown as having been here, and invitations that waited for that are
/// theirs.
pub async fn signed_in(context: &Context, key: &str, token: &str, from: IpAddr) -> Result<(), Refusal> {
    let now = context.clock.now();
    let looked = context.store.read::<_, DbError>(|tx| {
        let Some(user) = keys::user_of(tx, key)? else { return Ok(None) };
        let Some(user) = users::get(tx, &user)? else { return Ok(None) };
        let long_ago = user.last_login_at.is_none_or(|at| (now - at).abs() >= LOGIN_WRITTEN_EVERY);
        let waits = !invites::without_link(tx, &user.email)?.is_empty();
        Ok((long_ago || waits).then_some(user))
    });
    let Some(user) = looked.await? else { return Ok(()) };
    // Written down is who it was: the key's secret has just been shown.
    let caller = context.authn.caller(Some(token), from).await?;
    let written = context.store.write::<_, Refusal>(move |tx| {
        users::store_login(tx, &user.id, now)?;
        let waiting: Vec<Stored> = invites::without_link(tx, &user.email)?;
        for invite in &waiting {
            invites::accept(tx, &caller, invite, &user.id, now)?;
        }
        Ok(())
    });
    written.await
}

/// Why somebody whom an identity provider knows does not come in here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stranger {
    /// Nobody knows the address here.
    Unknown,
    /// Invited, by a mail whose link was not opened.
    Invited,
    /// The address is somebody's whom the provider calls otherwise: it changed hands.
    Another,
}

/// The person whom the provider calls `subject`; at the first sign-in the one with that verified address. Invitations
/// that waited for the address are accepted. The person's id.
pub async fn known_at(
    context: &Context,
    issuer: &str,
    subject: &str,
    email: &str,
    from: IpAddr,
) -> Result<Result<String, Stranger>, Refusal> {
    let (issuer, subject, email) = (issuer.to_owned(), subject.to_owned(), email.to_owned());
    let now = context.clock.now();
    let found = context.store.write::<_, Refusal>(move |tx| {
        let caller = Caller::nobody(from);
        let waiting = invites::without_link(tx, &email)?;
        let user = match (identities::user_of(tx, &issuer, &subject)?, users::by_email(tx, &email)?) {
            (Some(user), _) => user,
            (None, Some(user)) if identities::is_known(tx, &issuer, &user.id)? => return Ok(Err(Stranger::Another)),
            (None, Some(user)) => {
                identities::remember(tx, &caller, &issuer, &subject, &user.id, now)?;
                user.id
            }
            (None, None) if waiting.is_empty() => {
                let invited = invites::is_invited(tx, &email, now)?;
                return Ok(Err(if invited { Stranger::Invited } else { Stranger::Unknown }));
            }
            (None, None) => {
                let user = ids::new_id();
                users::create(tx, &caller, &user, &email, now)?;
                identities::remember(tx, &caller, &issuer, &subject, &user, now)?;
                user
            }
        };
        for invite in &waiting {
            invites::accept(tx, &caller, invite, &user, now)?;
        }
        users::store_login(tx, &user, now)?;
        Ok(Ok(user))
    });
    found.await
}

/// A key for somebody who signed in, good for as long as `lives`.
pub async fn issue_for(context: &Context, user: &str, lives: Duration, from: IpAddr) -> Result<Issued, Refusal> {
    let now = context.clock.now();
    let expires_at = now.saturating_add(Millis::try_from(lives.as_millis()).unwrap_or(Millis::MAX));
    let issued = Issued { user_id: user.to_owned(), key_id: ids::new_id(), key: ids::new_secret() };
    let (user, key_id, digest) = (user.to_owned(), issued.key_id.clone(), digest_of(&issued.key));
    let work = context.store.write::<_, Refusal>(move |tx| {
        let person = users::get(tx, &user)?.ok_or_else(|| Refusal::not_found("user", &user))?;
        let new =
            keys::New { id: &key_id, name: &format!("sign-in of {}", person.email), digest: &digest, grants: &[] };
        keys::create_for_sign_in(tx, &Caller::nobody(from), &user, &new, expires_at, now)
    });
    work.await?;
    Ok(issued)
}

/// One more key of a person.
pub fn issue(tx: &Tx<'_>, caller: &Caller, user: &str, email: &str, now: Millis) -> Result<Issued, Refusal> {
    let issued = Issued { user_id: user.to_owned(), key_id: ids::new_id(), key: ids::new_secret() };
    issue_this(tx, caller, email, issued, now)
}

fn issue_this(tx: &Tx<'_>, caller: &Caller, email: &str, issued: Issued, now: Millis) -> Result<Issued, Refusal> {
    let digest = digest_of(&issued.key);
    let new = keys::New { id: &issued.key_id, name: email, digest: &digest, grants: &[] };
    keys::create_for_user(tx, caller, &issued.user_id, &new, None, now)?;
    Ok(issued)
}

/// An organization by its id, or by its name if only one has it.
fn named(tx: &Tx<'_>, given: &str) -> Result<String, Refusal> {
    if let Some(found) = organizations::get(tx, given)? {
        return Ok(found.id);
    }
    let mut found = organizations::all(tx)?.into_iter().filter(|one| one.name == given);
    match (found.next(), found.next()) {
        (Some(one), None) => Ok(one.id),
        (None, _) => Err(Refusal::not_found("organization", given)),
        (Some(_), Some(_)) => {
            Err(Refusal::invalid("--org", format_args!("several organizations are called {given:?}: give the id")))
        }
    }
}

/// The identity that a caller's new organization belongs to: the person, or the key of a program.
pub fn identity(caller: &Caller) -> Option<Identity> {
    match caller.who() {
        Who::ApiKey { user: Some(user), .. } => Some(Identity { kind: IdentityKind::User, id: user.clone() }),
        Who::ApiKey { id, user: None, .. } => Some(Identity { kind: IdentityKind::ApiKey, id: id.clone() }),
        Who::Part { .. } | Who::LocationSecret { .. } | Who::Local | Who::Nobody => None,
    }
}
