//! The reasons to say no, and the status of each.
//!
//! A refusal carries a machine-readable reason (google.rpc.ErrorInfo), for a bad field which one (google.rpc.BadRequest),
//! for a thing that is not there which one (google.rpc.ResourceInfo), and when to come again where that helps
//! (google.rpc.RetryInfo). Its message names field, value and remedy; what went wrong inside the server goes to the
//! server's own log and never to the caller, and a secret into neither.

use std::{borrow::Cow, collections::HashMap, error::Error, fmt, time::Duration};

use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

use crate::{contract, documents, ids, store::DbError};

/// Whose reasons these are, for clients that match on ErrorInfo.
const DOMAIN: &str = "platform.fleet";
/// Of a value that is repeated to whoever sent it.
const SHOWN_CHARS: usize = 64;
/// When to come again after a fault that usually passes: long enough for a database to be started anew.
const AGAIN_AFTER: Duration = Duration::from_secs(2);
/// Clients take nothing for something else.
const AGAIN_AT_LEAST: Duration = Duration::from_millis(1);

/// Why an operation was not done.
pub struct Refusal {
    kind: Kind,
    message: String,
    field: Option<Field>,
    /// For programs, beside the reason: the permission that is missing, the value that was found.
    facts: Vec<(&'static str, String)>,
    /// Earlier it would be for nothing.
    again_after: Option<Duration>,
}

/// Which field of the request is wrong.
enum Field {
    /// As it is called, perhaps inside others: `apps.name`.
    Named(Cow<'static, str>),
    /// The one that holds the id of such a thing; its name depends on the request.
    IdOf(&'static str),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Unauthenticated,
    Denied,
    NotFound,
    Invalid,
    Exists,
    Precondition,
    Stale,
    Exhausted,
    Unavailable,
    Unreachable,
    Again,
    TooSlow,
    Internal,
}

impl Refusal {
    /// No token, a bad one, a revoked one, a wrong secret. Says no more than that.
    pub fn unauthenticated(message: &str) -> Self {
        Self::new(Kind::Unauthenticated, message.to_owned())
    }

    /// The caller sees it but may not do this.
    pub fn denied(permission: &str) -> Self {
        let message = format!(
            "this needs the permission {permission}, which your key does not have here: \
             ask an owner of the resource for a role that has it"
        );
        Self::new(Kind::Denied, message).with("permission", permission)
    }

    /// Not allowed whatever the permissions are.
    pub fn forbidden(message: impl Into<String>) -> Self {
        Self::new(Kind::Denied, message.into())
    }

    /// There is none, or the caller may not know that there is.
    pub fn not_found(what: &str, id: &str) -> Self {
        let named = if id.is_empty() { "without an id".to_owned() } else { shown(id) };
        Self::new(Kind::NotFound, format!("there is no {what} {named}")).with("resource", what).with("id", &cut(id))
    }

    /// It cannot be the id of anything here.
    pub fn malformed_id(what: &'static str, id: &str) -> Self {
        let article = if what.starts_with(['A', 'a', 'o']) { "an" } else { "a" };
        let message = format!("{} is not the id of {article} {what}: ids are UUIDs in lowercase", shown(id));
        Self { field: Some(Field::IdOf(what)), ..Self::new(Kind::Invalid, message).with("found", &cut(id)) }
    }

    /// A field of the request cannot be accepted; `why` says what is there and what is allowed.
    pub fn invalid(field: &'static str, why: impl fmt::Display) -> Self {
        let field_named = Some(Field::Named(field.into()));
        Self { field: field_named, ..Self::new(Kind::Invalid, format!("{field}: {why}")) }
    }

    /// The same, where the value itself can be shown, which a secret must not be; `allowed` says what is.
    pub fn unfit(field: &'static str, found: impl fmt::Display, allowed: impl fmt::Display) -> Self {
        let found = found.to_string();
        Self::invalid(field, format_args!("{} is not possible: {allowed}", shown(&found))).with("found", &cut(&found))
    }

    /// A page token from elsewhere.
    pub fn foreign_token(token: &str) -> Self {
        Self::unfit("page_token", token, "this list did not give it for this request, start again without one")
    }

    /// What arrived is no request at all.
    pub fn unreadable(why: impl fmt::Display) -> Self {
        Self::new(Kind::Invalid, format!("the request cannot be read: {why}"))
    }

    /// The name is taken, or the thing is there already.
    pub fn exists(message: impl Into<String>) -> Self {
        Self::new(Kind::Exists, message.into())
    }

    /// Something else must happen first; the message says what.
    pub fn precondition(message: impl Into<String>) -> Self {
        Self::new(Kind::Precondition, message.into())
    }

    /// Somebody else changed it since the caller looked.
    pub fn stale(message: impl Into<String>) -> Self {
        Self::new(Kind::Stale, message.into())
    }

    /// A limit is reached.
    pub fn exhausted(message: impl Into<String>) -> Self {
        Self::new(Kind::Exhausted, message.into())
    }

    /// So many at a time are answered, and these are more; after the wait there is room again.
    pub fn too_many(limit: &'static str, message: impl Into<String>, wait: Duration) -> Self {
        Self { again_after: Some(wait), ..Self::new(Kind::Exhausted, message.into()).with("limit", limit) }
    }

    /// It took too long; whether it was done is not known.
    pub fn too_slow(within: Duration) -> Self {
        let seconds = within.as_secs_f64();
        Self::new(
            Kind::TooSlow,
            format!("this was not done within {seconds} seconds: look whether it was, and try again"),
        )
    }

    /// It could not be done just now, through no fault of the caller: the same again may succeed.
    pub fn again(message: impl Into<String>) -> Self {
        Self { again_after: Some(AGAIN_AFTER), ..Self::new(Kind::Again, message.into()) }
    }

    /// A fault of the server. The cause is logged here, once, and not told.
    pub fn internal(cause: impl Error) -> Self {
        let mut text = cause.to_string();
        let mut source = cause.source();
        while let Some(deeper) = source {
            text = format!("{text}: {deeper}");
            source = deeper.source();
        }
        tracing::error!(cause = text, "an operation failed inside the server");
        Self::new(Kind::Internal, "the server failed; its log says why".to_owned())
    }

    /// Whether the thing asked for is not there (or not visible).
    pub fn is_not_found(&self) -> bool {
        self.kind == Kind::NotFound
    }

    /// Whether the caller may not, or there is no such thing: the same call again would be refused again.
    pub fn is_final(&self) -> bool {
        matches!(self.kind, Kind::Denied | Kind::NotFound | Kind::Unauthenticated)
    }

    /// Whether the caller did not show who it is.
    pub fn is_unauthenticated(&self) -> bool {
        self.kind == Kind::Unauthenticated
    }

    /// How long it is until the same call may succeed, as far as that is known.
    pub fn wait(&self) -> Duration {
        self.again_after.unwrap_or_default()
    }

    /// The same, told that much later than it was made. Never "at once".
    pub fn after(self, waited: Duration) -> Self {
        Self { again_after: self.again_after.map(|wait| wait.saturating_sub(waited).max(AGAIN_AT_LEAST)), ..self }
    }

    /// What the caller is told.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The field is this one, where the function that refused could not know its name. Other refusals stay as they are.
    pub fn on(mut self, field: &'static str) -> Self {
        if let Some(known) = &mut self.field {
            self.message = format!("{field}: {}", self.message);
            *known = Field::Named(field.into());
        }
        self
    }

    /// The field lies in this one, where a request has several like it. Other refusals stay as they are.
    pub fn inside(mut self, outer: &'static str) -> Self {
        let name = match &self.field {
            Some(Field::Named(name)) => name.as_ref(),
            Some(Field::IdOf(what)) => ids_of(what)[0],
            None => return self,
        };
        let path = format!("{outer}.{name}");
        let said = self.message.strip_prefix(name).and_then(|rest| rest.strip_prefix(": "));
        self.message = format!("{path}: {}", said.unwrap_or(&self.message));
        self.field = Some(Field::Named(path.into()));
        self
    }

    /// Gives the field the path under which it is found in that message of the contract.
    pub fn within(mut self, message: &str) -> Self {
        self.field = self.field.map(|field| {
            let (names, said): (&[&str], &str) = match &field {
                Field::Named(name) => (&[name, other_name(name)], name),
                Field::IdOf(what) => (ids_of(what), ""),
            };
            let Some(path) = contract::path_of(message, names) else { return field };
            let rest = self.message.strip_prefix(said).and_then(|rest| rest.strip_prefix(": "));
            let rest = rest.filter(|_| !said.is_empty()).unwrap_or(&self.message);
            self.message = format!("{path}: {rest}");
            Field::Named(path.into())
        });
        self
    }

    fn with(mut self, name: &'static str, value: &str) -> Self {
        self.facts.push((name, value.to_owned()));
        self
    }

    fn new(kind: Kind, message: String) -> Self {
        Self { kind, message, field: None, facts: Vec::new(), again_after: None }
    }
}

impl Kind {
    fn code(self) -> Code {
        match self {
            Self::Unauthenticated => Code::Unauthenticated,
            Self::Denied => Code::PermissionDenied,
            Self::NotFound => Code::NotFound,
            Self::Invalid => Code::InvalidArgument,
            Self::Exists => Code::AlreadyExists,
            Self::Precondition => Code::FailedPrecondition,
            Self::Stale => Code::Aborted,
            Self::Exhausted => Code::ResourceExhausted,
            Self::Unavailable | Self::Unreachable | Self::Again => Code::Unavailable,
            Self::TooSlow => Code::DeadlineExceeded,
            Self::Internal => Code::Internal,
        }
    }

    fn reason(self) -> &'static str {
        match self {
            Self::Unauthenticated => "UNAUTHENTICATED",
            Self::Denied => "PERMISSION_DENIED",
            Self::NotFound => "NOT_FOUND",
            Self::Invalid => "INVALID_FIELD",
            Self::Exists => "ALREADY_EXISTS",
            Self::Precondition => "NOT_IN_THIS_STATE",
            Self::Stale => "CHANGED_MEANWHILE",
            Self::Exhausted => "LIMIT_REACHED",
            Self::Unavailable => "SHUTTING_DOWN",
            Self::Unreachable => "DATABASE_UNREACHABLE",
            Self::Again => "TRY_AGAIN",
            Self::TooSlow => "TOO_SLOW",
            Self::Internal => "SERVER_FAULT",
        }
    }
}

/// What a field is called in other requests that have it.
fn other_name(field: &str) -> &'static str {
    match field {
        "item_id" => "module_id",
        "location_id" => "location",
        "visibility" => "fragment_visibility",
        _ => "",
    }
}

/// What the fields are called that hold the id of such a thing, the likeliest first.
fn ids_of(what: &str) -> &'static [&'static str] {
    match what {
        "organization" => &["organization_id", "org_id", "id"],
        "location" => &["location_id", "location", "id"],
        "robot" => &["robot_id", "machine_id", "id"],
        "robot part" => &["part_id", "id"],
        "fragment" => &["fragment_id", "id", "additional_fragment_ids"],
        "user" => &["user_id"],
        "user or API key" => &["identity_id"],
        _ => &["id"],
    }
}

/// Something a caller sent, fit to be repeated to it: short, and no secret that went into the wrong field.
fn cut(text: &str) -> String {
    if ids::may_be_secret(text) {
        return documents::MASK.to_owned();
    }
    text.chars().take(SHOWN_CHARS).collect()
}

/// The same in a sentence, printable.
fn shown(text: &str) -> String {
    if ids::may_be_secret(text) {
        return format!("({} letters, not repeated: may be a secret)", text.chars().count());
    }
    let dots = if text.chars().nth(SHOWN_CHARS).is_some() { "…" } else { "" };
    format!("{:?}{dots}", cut(text))
}

impl From<DbError> for Refusal {
    fn from(cause: DbError) -> Self {
        match cause {
            DbError::Full => {
                tracing::error!("the disk of the data folder is full: nothing can be written until there is space");
                Self::again("the server's disk is full: nothing was changed, try again when there is space")
            }
            DbError::Unfit => Self::unreadable("a text in it is too long or holds NUL: shorten it, take that out"),
            DbError::Related => Self::precondition(
                "what this belongs to was deleted meanwhile, or something else belongs to it by now: look again",
            ),
            DbError::Closed => Self {
                again_after: Some(AGAIN_AFTER),
                ..Self::new(Kind::Unavailable, "the server is shutting down: try again".to_owned())
            },
            DbError::Unreachable => Self {
                again_after: Some(AGAIN_AFTER),
                ..Self::new(Kind::Unreachable, "the server cannot reach its database: try again".to_owned())
            },
            other => Self::internal(other),
        }
    }
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Self {
        let Refusal { kind, message, field, facts, again_after } = refusal;
        let mut info: HashMap<String, String> = HashMap::new();
        let mut details = ErrorDetails::new();
        for (name, value) in &facts {
            info.insert((*name).to_owned(), value.clone());
        }
        if kind == Kind::NotFound {
            let fact = |wanted| facts.iter().find(|(name, _)| *name == wanted).map_or("", |(_, value)| value.as_str());
            details.set_resource_info(fact("resource"), fact("id"), "", message.clone());
        }
        if let Some(field) = field {
            let path = match field {
                Field::Named(path) => path,
                Field::IdOf(what) => ids_of(what).first().copied().unwrap_or("id").into(),
            };
            info.insert("field".to_owned(), path.to_string());
            details.add_bad_request_violation(path, message.clone());
        }
        if again_after.is_some() {
            details.set_retry_info(again_after);
        }
        details.set_error_info(kind.reason(), DOMAIN, info);
        Status::with_error_details(kind.code(), message, details)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl fmt::Debug for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.message)
    }
}

impl Error for Refusal {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_has_its_status_and_says_why_in_details() {
        let table = [
            (Refusal::unauthenticated("x"), Code::Unauthenticated),
            (Refusal::denied("write_robot"), Code::PermissionDenied),
            (Refusal::not_found("robot", "x"), Code::NotFound),
            (Refusal::malformed_id("robot", "x"), Code::InvalidArgument),
            (Refusal::invalid("name", "x"), Code::InvalidArgument),
            (Refusal::exists("x"), Code::AlreadyExists),
            (Refusal::precondition("x"), Code::FailedPrecondition),
            (Refusal::stale("x"), Code::Aborted),
            (Refusal::again("x"), Code::Unavailable),
            (DbError::Full.into(), Code::Unavailable),
            (DbError::Closed.into(), Code::Unavailable),
            (DbError::Unreachable.into(), Code::Unavailable),
            (DbError::Related.into(), Code::FailedPrecondition),
            (DbError::Unfit.into(), Code::InvalidArgument),
            (DbError::Panicked.into(), Code::Internal),
        ];
        for (refusal, code) in table {
            let (reason, has_field) = (refusal.kind.reason(), refusal.field.is_some());
            let status = Status::from(refusal);
            assert_eq!(status.code(), code, "{reason}");
            assert_eq!(status.get_details_error_info().unwrap().reason, reason);
            assert_eq!(status.get_details_bad_request().is_some(), has_field, "{reason}");
            let comes_again = status.get_details_retry_info().is_some();
            assert_eq!(comes_again, code == Code::Unavailable, "{reason}: the caller is told when to try again");
        }
    }

    #[test]
    fn a_field_is_named_by_its_path_in_the_request() {
        let table = [
            ("GetRobotRequest", Refusal::malformed_id("robot", "x"), "id"),
            ("ListMachineFragmentsRequest", Refusal::malformed_id("robot", "x"), "machine_id"),
            ("ListMachineFragmentsRequest", Refusal::malformed_id("fragment", "x"), "additional_fragment_ids"),
            ("AddRoleRequest", Refusal::malformed_id("organization", "x"), "authorization.organization_id"),
            ("AddRoleRequest", Refusal::malformed_id("location", "x").on("resource_id"), "authorization.resource_id"),
            ("CreateKeyRequest", Refusal::invalid("resource_type", "x"), "authorizations.resource_type"),
            (
                "ChangeRoleRequest",
                Refusal::malformed_id("organization", "x").inside("new_authorization"),
                "new_authorization.organization_id",
            ),
            (
                "ChangeRoleRequest",
                Refusal::unfit("resource_type", "x", "y").inside("new_authorization"),
                "new_authorization.resource_type",
            ),
            ("UpdateModuleRequest", Refusal::invalid("apps.name", "x"), "apps.name"),
            ("UploadModuleFileRequest", Refusal::invalid("version", "x"), "module_file_info.version"),
        ];
        for (message, refusal, path) in table {
            let status = Status::from(refusal.within(&format!("platform.app.v1.{message}")));
            assert_eq!(status.get_details_bad_request().unwrap().field_violations[0].field, path, "{message}");
            assert_eq!(status.get_details_error_info().unwrap().metadata["field"], path, "{message}");
        }
    }

    #[test]
    fn a_missing_thing_is_named_for_programs_too() {
        let status = Status::from(Refusal::not_found("robot part", "abc"));
        let resource = status.get_details_resource_info().unwrap();
        assert_eq!((&*resource.resource_type, &*resource.resource_name), ("robot part", "abc"));
        let status = Status::from(Refusal::denied("write_robot"));
        assert_eq!(status.get_details_error_info().unwrap().metadata["permission"], "write_robot");
        let status = Status::from(Refusal::too_many("calls", "slower", Duration::from_millis(1500)));
        assert_eq!(status.get_details_retry_info().unwrap().retry_delay, Some(Duration::from_millis(1500)));
    }

    #[test]
    fn a_fault_of_the_server_tells_nobody_what_it_was() {
        let fault = Refusal::internal(std::io::Error::other("secret path /srv/x"));
        assert!(!fault.message().contains("secret"));
        assert!(!Refusal::not_found("robot", &"\u{7}x".repeat(500)).message().contains('\u{7}'));
    }
}
