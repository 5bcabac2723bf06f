//! An organization's default fragments: what the main part of each of its new machines is configured with.

use api::pb::platform::app::v1::{FragmentImport, FragmentImportList};
use prost::Message;
use serde_json::{Map, Value};

use super::input;
use crate::{
    compose::{self, Key, wire},
    documents, hex, ids,
    limits::FRAGMENTS_PER_CONFIG_MAX,
    refusal::Refusal,
};

/// The fragments of a list, as far as the list itself tells whether a machine can be configured with them.
pub(super) fn checked(list: &FragmentImportList) -> Result<Vec<Key>, Refusal> {
    const ID: &str = "default_fragments.fragments.fragment_id";
    let count = list.fragments.len();
    if count > FRAGMENTS_PER_CONFIG_MAX {
        let why = format_args!("has {count} entries: at most {FRAGMENTS_PER_CONFIG_MAX} are kept");
        return Err(Refusal::invalid("default_fragments.fragments", why));
    }
    let key = |import: &FragmentImport| {
        if !ids::is_id(&import.fragment_id) {
            return Err(Refusal::unfit(ID, &import.fragment_id, "give the id of a fragment, a UUID in lowercase"));
        }
        input::printable("default_fragments.fragments.version", &import.version)?;
        input::printable("default_fragments.fragments.prefix", import.prefix.as_deref().unwrap_or_default())?;
        let reference = compose::reference(&entry(import));
        Ok(reference.map_err(|why| Refusal::invalid("default_fragments.fragments", why))?.key)
    };
    let keys = list.fragments.iter().map(key).collect::<Result<_, _>>()?;
    documents::checked("default_fragments", &configuration(list))?;
    Ok(keys)
}

/// The configuration of a new machine's main part, JSON text; what an organization keeps is [`kept`].
pub(super) fn configuration(list: &FragmentImportList) -> String {
    let mut config = Map::new();
    if !list.fragments.is_empty() {
        config.insert("fragments".into(), list.fragments.iter().map(entry).collect());
    }
    Value::Object(config).to_string()
}

/// As an entry of a configuration's `fragments`.
fn entry(import: &FragmentImport) -> Value {
    #[allow(deprecated, reason = "old clients give variables as text")]
    let old = import.variables.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str())));
    let mut variables = old.collect::<Map<_, _>>();
    variables.extend(import.fragment_variables.iter().flat_map(wire::from_struct));

    let mut entry = Map::new();
    entry.insert("id".into(), import.fragment_id.as_str().into());
    for (name, text) in [("version", Some(&import.version)), ("prefix", import.prefix.as_ref())] {
        if let Some(text) = text.filter(|text| !text.is_empty()) {
            entry.insert(name.into(), text.as_str().into());
        }
    }
    if !variables.is_empty() {
        entry.insert("variables".into(), variables.into());
    }
    Value::Object(entry)
}

/// As an organization keeps them: the bytes of the message in hexadecimal digits.
pub(super) fn to_keep(list: &FragmentImportList) -> String {
    hex::encode(&list.encode_to_vec())
}

/// What was kept so.
pub(super) fn kept(text: &str) -> Option<FragmentImportList> {
    FragmentImportList::decode(&*hex::decode(text)?).ok()
}

/// What is given to the fragments' variables is hidden, as in configurations: it may be passwords.
pub(super) fn masked(mut list: FragmentImportList) -> FragmentImportList {
    let mask = || prost_types::Value { kind: Some(prost_types::value::Kind::StringValue(documents::MASK.into())) };
    for fragment in &mut list.fragments {
        #[allow(deprecated, reason = "old clients give variables as text")]
        fragment.variables.values_mut().for_each(|value| *value = documents::MASK.into());
        let given = fragment.fragment_variables.iter_mut().flat_map(|given| given.fields.values_mut());
        given.for_each(|value| *value = mask());
    }
    list
}
