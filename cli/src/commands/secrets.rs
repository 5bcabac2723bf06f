//! The secrets of a part or a location, as a table.

use api::pb::platform::app::v1::SharedSecret;
use serde_json::Value;

use crate::{
    failure::Failure,
    output::{Output, json_of},
    when::moment,
};

/// All of them; themselves only where somebody asked for that.
pub(super) fn show(output: &mut Output, mut secrets: Vec<SharedSecret>, reveal: bool) -> Result<(), Failure> {
    if !reveal {
        secrets.iter_mut().for_each(|one| one.secret.clear());
    }
    if output.is_json() {
        return output.json(&Value::Array(secrets.iter().map(json_of).collect()));
    }
    let rows = secrets.into_iter().map(|one| {
        let state = one.state().as_str_name().trim_start_matches("STATE_").to_ascii_lowercase();
        [one.id, state, moment(one.created_on.as_ref()), one.secret]
    });
    output.table(["id", "state", "created", if reveal { "secret" } else { "" }], rows.collect())
}
