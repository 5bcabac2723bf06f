//! `fragment_mods`: what a document changes in a fragment before it is laid over it.
//!
//! A path is keys joined by dots; in a list of objects a step is the `name` of an element. `$set` makes what is missing
//! on the way; `$unset` of something that is not there is a complaint, because it is usually a typing error.

use serde_json::{Map, Value};

use super::{ComposeError, Work, complaint::Complaints, merge::name_of, reference::Reference, variables::size};

/// Steps of one path; deeper than a device reads would be of no use.
const STEPS_MAX: usize = 32;

/// The changes to one fragment.
pub(super) struct FragmentMods {
    pub(super) fragment_id: String,
    /// Only the reference with this prefix, where the fragment is used more than once.
    prefix: Option<String>,
    mods: Vec<Mod>,
    at: String,
}

enum Mod {
    Set { path: String, value: Value },
    Unset { path: String },
}

/// The `fragment_mods` of a document; what cannot be read leaves a complaint.
pub(super) fn read(list: Option<Value>, at: &str, complaints: &mut Complaints) -> Vec<FragmentMods> {
    let at = format!("{at}, fragment_mods");
    let list = match list {
        None | Some(Value::Null) => return Vec::new(),
        Some(Value::Array(list)) => list,
        Some(_) => {
            complaints.add(at, "a list of objects with fragment_id and mods belongs here; it was ignored");
            return Vec::new();
        }
    };
    let mut all = Vec::with_capacity(list.len());
    for entry in list {
        let id = entry.get("fragment_id").and_then(Value::as_str).map(str::to_owned);
        let prefix = entry.get("prefix").and_then(Value::as_str).map(str::to_owned);
        let (Some(fragment_id), Value::Object(mut entry)) = (id, entry) else {
            complaints.add(at.as_str(), "an entry has no fragment_id; it was ignored");
            continue;
        };
        let mut mods = Vec::new();
        match entry.remove("mods") {
            Some(Value::Array(list)) => list.into_iter().for_each(|one| read_mod(one, &mut mods, &at, complaints)),
            _ => complaints.add(at.as_str(), format!("the entry for fragment {fragment_id} has no list of mods")),
        }
        all.push(FragmentMods { at: format!("{at} of {fragment_id}"), fragment_id, prefix, mods });
    }
    all
}

/// One element of `mods`: usually one verb with one path, but several of each are read too, in order.
fn read_mod(one: Value, mods: &mut Vec<Mod>, at: &str, complaints: &mut Complaints) {
    let Value::Object(one) = one else {
        complaints.add(at, "a mod must be an object with $set or $unset; it was ignored");
        return;
    };
    for (verb, paths) in one {
        let Value::Object(paths) = paths else {
            complaints.add(at, format!("{verb} needs an object: path and value; it was ignored"));
            continue;
        };
        match verb.as_str() {
            "$set" => mods.extend(paths.into_iter().map(|(path, value)| Mod::Set { path, value })),
            "$unset" => mods.extend(paths.into_iter().map(|(path, _)| Mod::Unset { path })),
            _ => complaints.add(at, format!("{verb} is unknown: $set and $unset are allowed; it was ignored")),
        }
    }
}

impl FragmentMods {
    pub(super) fn is_for(&self, reference: &Reference) -> bool {
        self.fragment_id == reference.key.id && (self.prefix.is_none() || self.prefix == reference.prefix)
    }

    pub(super) fn apply(&self, fragment: &mut Map<String, Value>, work: &mut Work<'_>) -> Result<(), ComposeError> {
        let mut whole = Value::Object(std::mem::take(fragment));
        for one in &self.mods {
            let (path, outcome) = match one {
                Mod::Set { path, value } => {
                    work.spend(size(value) + path.len())?;
                    (path, steps(path).and_then(|steps| set(&mut whole, &steps, value)))
                }
                Mod::Unset { path } => (path, steps(path).and_then(|steps| unset(&mut whole, &steps))),
            };
            if let Err(says) = outcome {
                work.complaints.add(format!("{}, {path}", self.at), says);
            }
        }
        if let Value::Object(changed) = whole {
            *fragment = changed;
        }
        Ok(())
    }
}

fn steps(path: &str) -> Result<Vec<&str>, &'static str> {
    let steps: Vec<&str> = path.split('.').take(STEPS_MAX + 1).collect();
    match steps.iter().any(|step| step.is_empty()) {
        true => Err("the path has an empty step; it was ignored"),
        false if steps.len() > STEPS_MAX => Err("the path has more than 32 steps; it was ignored"),
        false => Ok(steps),
    }
}

fn set(place: &mut Value, steps: &[&str], value: &Value) -> Result<(), &'static str> {
    // A removed key is a place where something new can be made.
    if place.is_null() {
        *place = Value::Object(Map::new());
    }
    let Some((step, rest)) = steps.split_first() else {
        *place = value.clone();
        return Ok(());
    };
    match place {
        Value::Object(object) => {
            let next = object.entry(*step).or_insert(Value::Null);
            match rest.is_empty() {
                true => *next = value.clone(),
                false => return set(next, rest, value),
            }
            Ok(())
        }
        Value::Array(list) => {
            if rest.is_empty() && !value.is_object() {
                return Err("an element of a list of objects can only be set to an object; it was ignored");
            }
            if list.iter().any(|element| name_of(element).is_none()) {
                return Err("the path goes through a list whose elements have no names; it was ignored");
            }
            let index = list.iter().position(|element| name_of(element) == Some(step)).unwrap_or_else(|| {
                list.push(Value::Object(Map::new()));
                list.len() - 1
            });
            set(&mut list[index], rest, value)?;
            if name_of(&list[index]).is_none()
                && let Value::Object(element) = &mut list[index]
            {
                element.shift_insert(0, "name".into(), Value::from(*step));
            }
            Ok(())
        }
        _ => Err("the path goes through a value that is neither an object nor a list; it was ignored"),
    }
}

fn unset(place: &mut Value, steps: &[&str]) -> Result<(), &'static str> {
    const NOTHING_THERE: &str = "there is nothing at this path to unset; it was ignored";
    let (step, rest) = steps.split_first().ok_or(NOTHING_THERE)?;
    match place {
        Value::Object(object) if rest.is_empty() => object.shift_remove(*step).map(drop).ok_or(NOTHING_THERE),
        Value::Object(object) => unset(object.get_mut(*step).ok_or(NOTHING_THERE)?, rest),
        Value::Array(list) => {
            let index = list.iter().position(|element| name_of(element) == Some(step)).ok_or(NOTHING_THERE)?;
            if rest.is_empty() {
                list.remove(index);
                return Ok(());
            }
            unset(&mut list[index], rest)
        }
        _ => Err(NOTHING_THERE),
    }
}
