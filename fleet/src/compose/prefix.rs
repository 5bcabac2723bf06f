//! A prefix before the names of a fragment's resources, so that one fragment can be used twice on a machine.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::merge::name_of;

/// Lists whose elements other resources know by name. Modules and packages are not among them: two uses of a fragment
/// want the same module once.
const RESOURCES: [&str; 4] = ["components", "services", "remotes", "jobs"];

/// Renames every resource of the fragment to `prefix-name`; `depends_on`, `frame.parent` and a job's `resource` that
/// name a resource of the same fragment follow.
pub(super) fn apply(fragment: &mut Map<String, Value>, prefix: &str) {
    let own: HashSet<String> = RESOURCES
        .iter()
        .filter_map(|list| fragment.get(*list)?.as_array())
        .flatten()
        .filter_map(|element| name_of(element).map(str::to_owned))
        .collect();
    let rename = |value: &mut Value| {
        if let Value::String(name) = value
            && own.contains(name.as_str())
        {
            *name = format!("{prefix}-{name}");
        }
    };
    for list in RESOURCES {
        let Some(Value::Array(elements)) = fragment.get_mut(list) else { continue };
        for element in elements.iter_mut().filter_map(Value::as_object_mut) {
            if let Some(Value::Array(needed)) = element.get_mut("depends_on") {
                needed.iter_mut().for_each(rename);
            }
            if let Some(parent) = element.get_mut("frame").and_then(|frame| frame.get_mut("parent")) {
                rename(parent);
            }
            for named in ["name", "resource"] {
                element.get_mut(named).into_iter().for_each(rename);
            }
        }
    }
}
