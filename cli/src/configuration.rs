//! A part's configuration: read, changed in one place, checked as the device would, and written only if nobody else was
//! faster.
//!
//! Keeps the text's order of keys. Complaints that the change brought are refused unless forced; those that were there
//! before are none of this change's business and only shown.

use api::{
    client::Code,
    device_config::{AGENT_KEY, Complaint, Origin, check},
    pb::platform::app::v1::{self as app, app_service},
};
use prost_types::Timestamp;
use serde_json::{Map, Value};

use crate::{failure::Failure, find, output::json_of_struct, output::plain, session::Session};

/// A small change is made anew this often when somebody else was faster.
const TRIES_MAX: u32 = 4;

/// What to do with a configuration that the device would not accept as a whole.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unacceptable {
    /// Do not write it.
    Refused,
    /// Do not write it, but say that --force would.
    RefusedUnlessForced,
    /// Write it all the same.
    Written,
}

impl Unacceptable {
    pub(crate) fn forced(force: bool) -> Self {
        if force { Self::Written } else { Self::RefusedUnlessForced }
    }
}

/// A part's configuration as it was read.
pub(crate) struct Configuration {
    pub(crate) part: app::RobotPart,
    /// The text as the server keeps it.
    pub(crate) text: String,
}

impl Configuration {
    pub(crate) fn read(session: &Session, part_id: &str) -> Result<Self, Failure> {
        let (part, config_json) = find::part_by_id(session, part_id)?;
        let text = match &part.robot_config_json {
            Some(text) if !text.is_empty() => text.clone(),
            _ if !config_json.is_empty() => config_json,
            _ => match &part.robot_config {
                Some(config) => format!("{:#}", json_of_struct(config)),
                None => "{}".to_owned(),
            },
        };
        Ok(Self { part, text })
    }

    /// The document, for a change to one of its keys.
    fn document(&self) -> Result<Map<String, Value>, Failure> {
        match serde_json::from_str(&self.text) {
            Ok(Value::Object(document)) => Ok(document),
            Ok(_) => Err(Failure::Configuration(
                "the part's configuration is not a JSON object; use `part config edit`".to_owned(),
            )),
            Err(error) => Err(Failure::Configuration(format!(
                "the part's configuration is not JSON ({error}); use `part config edit`"
            ))),
        }
    }

    /// Writes `text` over what was read, unless somebody else did since `known` (or since the reading).
    pub(crate) fn write(
        &self,
        session: &Session,
        text: &str,
        known: Option<Timestamp>,
        unacceptable: Unacceptable,
    ) -> Result<app::RobotPart, Failure> {
        if let Err(error) = serde_json::from_str::<Map<String, Value>>(text) {
            return Err(Failure::Configuration(format!(
                "this is not a configuration, which is a JSON object: {error}"
            )));
        }
        self.refuse_new_complaints(text, unacceptable)?;
        let request = app::UpdateRobotPartRequest {
            id: self.part.id.clone(),
            name: self.part.name.clone(),
            robot_config: None,
            last_known_update: known.or(self.part.last_updated),
            robot_config_json: Some(text.to_owned()),
        };
        let updated =
            session.change("could not change the part's configuration", app_service::UPDATE_ROBOT_PART, &request)?;
        Ok(updated.part.unwrap_or_else(|| self.part.clone()))
    }

    fn refuse_new_complaints(&self, text: &str, unacceptable: Unacceptable) -> Result<(), Failure> {
        let same = |a: &Complaint, b: &Complaint| (&a.path, &a.found) == (&b.path, &b.found);
        let before = check(self.text.as_bytes(), Origin::Cloud);
        let (known, new): (Vec<_>, Vec<_>) = check(text.as_bytes(), Origin::Cloud)
            .into_iter()
            .partition(|now| before.iter().any(|then| same(now, then)));
        for complaint in &known {
            eprintln!("note: the device does not accept: {}", plain(&complaint.to_string()));
        }
        if new.is_empty() || unacceptable == Unacceptable::Written {
            return Ok(());
        }
        let list: String = new.iter().map(|complaint| format!("\n  {complaint}")).collect();
        let way_out = match unacceptable {
            Unacceptable::RefusedUnlessForced => " (--force changes it anyway)",
            Unacceptable::Refused | Unacceptable::Written => "",
        };
        Err(Failure::Configuration(format!("the device would not accept this, so nothing was changed{way_out}:{list}")))
    }
}

/// Changes the `agent` section of a part's configuration; made anew if somebody else changes the part meanwhile.
/// `change` says whether there was anything to change.
pub(crate) fn change_agent(
    session: &Session,
    part_id: &str,
    change: impl Fn(&mut Map<String, Value>) -> Result<bool, Failure>,
) -> Result<bool, Failure> {
    let mut tries = 1;
    loop {
        let configuration = Configuration::read(session, part_id)?;
        let mut document = configuration.document()?;
        if !change(section(&mut document, AGENT_KEY)?)? {
            return Ok(false);
        }
        let text = format!("{:#}", Value::Object(document));
        match configuration.write(session, &text, None, Unacceptable::Refused) {
            Ok(_) => return Ok(true),
            Err(failure) if failure.code() == Some(Code::Aborted) && tries < TRIES_MAX => tries += 1,
            Err(failure) => return Err(failure),
        }
    }
}

/// The object under a key, made if it is missing.
pub(crate) fn section<'a>(
    within: &'a mut Map<String, Value>,
    key: &str,
) -> Result<&'a mut Map<String, Value>, Failure> {
    let value = within.entry(key).or_insert_with(|| Value::Object(Map::new()));
    if value.is_null() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(object) => Ok(object),
        _ => Err(Failure::Configuration(format!(
            "{key:?} in the part's configuration is not an object; use `part config edit`"
        ))),
    }
}

/// An object under a path, if it is there.
pub(crate) fn object_at<'a>(within: &'a Map<String, Value>, path: &[&str]) -> Option<&'a Map<String, Value>> {
    path.iter().try_fold(within, |object, key| object.get(*key)?.as_object())
}
