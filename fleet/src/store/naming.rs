//! Which fragments and registry items documents name: noted in the transaction that stores the document.
//!
//! A document is the configuration of a part or of a fragment, or an organization's default fragments. What a former
//! revision of a fragment names stays noted for as long as that revision is kept: somebody may name the revision.
//! Anybody may write any id into a document: whether there is such a thing, and whether it may be used, is asked by who
//! wants to know its users ([`super::dependents`]).

use std::collections::BTreeSet;

use api::pb::platform::app::v1::FragmentImportList;
use prost::Message;
use serde_json::{Map, Value};

use super::{DbError, Tx};
use crate::{
    clock::Millis,
    compose::{self, Key, Library},
    hex,
};

/// Whose document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A part's configuration.
    Part,
    /// A fragment's configuration.
    Fragment,
    /// An organization's default fragments.
    Organization,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Self::Part => "part",
            Self::Fragment => "fragment",
            Self::Organization => "organization",
        }
    }
}

/// What a document names.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Named {
    /// Fragments, in the revision that it says or in the newest one.
    pub fragments: Vec<Key>,
    /// Owner and name of registry items, as it writes them.
    pub items: BTreeSet<(String, String)>,
}

impl Named {
    /// By a configuration.
    pub fn by(document: &Map<String, Value>) -> Self {
        Self { fragments: compose::missing(document, &Library::default()), items: items(document) }
    }

    /// By the text of a configuration.
    fn by_text(config: &str) -> Self {
        if !may_name_something(config) {
            return Self::default();
        }
        serde_json::from_str(config).map(|document| Self::by(&document)).unwrap_or_default()
    }

    /// By default fragments, as they are kept: the bytes of a message in hexadecimal digits.
    fn by_defaults(list: &str) -> Self {
        let list = hex::decode(list).and_then(|bytes| FragmentImportList::decode(&*bytes).ok()).unwrap_or_default();
        let key = |id, version: String| Key { id, version: Some(version).filter(|version| !version.is_empty()) };
        let fragments = list.fragments.into_iter().map(|one| key(one.fragment_id, one.version)).collect();
        Self { fragments, items: BTreeSet::new() }
    }
}

/// Whether it is worth reading a configuration for this: most name nothing.
pub fn may_name_something(config: &str) -> bool {
    // A letter may be written by its number.
    ["\"fragments\"", "\"module_id\"", "\"package\"", "\\u"].iter().any(|sign| config.contains(sign))
}

/// `modules` say `module_id: OWNER:NAME`, `packages` say `package: OWNER/NAME`.
fn items(document: &Map<String, Value>) -> BTreeSet<(String, String)> {
    let list = |name: &str, field: &str, sign: char| -> Vec<(String, String)> {
        let elements = document.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let ids = elements.iter().filter_map(|element| element.get(field).and_then(Value::as_str));
        let split = ids.filter_map(|id| id.split_once(sign));
        split.map(|(owner, name)| (owner.to_owned(), name.to_owned())).collect()
    };
    let modules = list("modules", "module_id", ':');
    modules
        .into_iter()
        .chain(list("packages", "package", '/'))
        .filter(|(owner, name)| fits(owner) && fits(name))
        .collect()
}

/// Nothing longer is the name of anything, and nothing longer shall fill an index.
fn fits(word: &str) -> bool {
    (1..=crate::limits::NAME_CHARS_MAX).contains(&word.len()) && !word.contains('\0')
}

/// Notes what a document names as it is now, in place of what it named before.
pub fn note(tx: &Tx<'_>, kind: Kind, id: &str, named: &Named) -> Result<(), DbError> {
    forget_revision(tx, kind, id, "")?;
    add(tx, kind, id, "", named)
}

/// Notes which fragments an organization proposes.
pub fn note_defaults(tx: &Tx<'_>, organization: &str, list: &str) -> Result<(), DbError> {
    note(tx, Kind::Organization, organization, &Named::by_defaults(list))
}

/// Notes what a new part's configuration names.
pub fn note_new_part(tx: &Tx<'_>, id: &str, config: &str) -> Result<(), DbError> {
    add(tx, Kind::Part, id, "", &Named::by_text(config))
}

/// Adds what is not noted of it yet.
fn add(tx: &Tx<'_>, kind: Kind, id: &str, revision: &str, named: &Named) -> Result<(), DbError> {
    for key in &named.fragments {
        let sql = "INSERT INTO fragment_uses (user_kind, user_id, user_revision, fragment_id, version)
                   VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING";
        let version = key.version.as_deref().unwrap_or_default();
        tx.run(sql, &[kind.word().into(), id.into(), revision.into(), (&*key.id).into(), version.into()])?;
    }
    for (owner, name) in &named.items {
        let sql = "INSERT INTO registry_uses (user_kind, user_id, user_revision, owner, name)
                   VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING";
        tx.run(sql, &[kind.word().into(), id.into(), revision.into(), (&**owner).into(), (&**name).into()])?;
    }
    Ok(())
}

/// A fragment becomes another one: what it names now, it named in that revision.
pub fn becomes_former(tx: &Tx<'_>, fragment: &str, revision: &str) -> Result<(), DbError> {
    for sql in [
        "INSERT INTO fragment_uses (user_kind, user_id, user_revision, fragment_id, version)
         SELECT user_kind, user_id, CAST($2 AS TEXT), fragment_id, version FROM fragment_uses
         WHERE user_kind = 'fragment' AND user_id = $1 AND user_revision = ''",
        "INSERT INTO registry_uses (user_kind, user_id, user_revision, owner, name)
         SELECT user_kind, user_id, CAST($2 AS TEXT), owner, name FROM registry_uses
         WHERE user_kind = 'fragment' AND user_id = $1 AND user_revision = ''",
    ] {
        tx.run(sql, &[fragment.into(), revision.into()])?;
    }
    Ok(())
}

/// That former revision of a fragment is gone.
pub fn forget_former(tx: &Tx<'_>, fragment: &str, revision: &str) -> Result<(), DbError> {
    forget_revision(tx, Kind::Fragment, fragment, revision)
}

fn forget_revision(tx: &Tx<'_>, kind: Kind, id: &str, revision: &str) -> Result<(), DbError> {
    for sql in [
        "DELETE FROM fragment_uses WHERE user_kind = $1 AND user_id = $2 AND user_revision = $3",
        "DELETE FROM registry_uses WHERE user_kind = $1 AND user_id = $2 AND user_revision = $3",
    ] {
        tx.run(sql, &[kind.word().into(), id.into(), revision.into()])?;
    }
    Ok(())
}

/// Whoever named something is gone, with every revision.
pub fn forget(tx: &Tx<'_>, kind: Kind, id: &str) -> Result<(), DbError> {
    for sql in [
        "DELETE FROM fragment_uses WHERE user_kind = $1 AND user_id = $2",
        "DELETE FROM registry_uses WHERE user_kind = $1 AND user_id = $2",
    ] {
        tx.run(sql, &[kind.word().into(), id.into()])?;
    }
    Ok(())
}

/// Documents that are read at once; each may be a mebibyte.
const PAGE: i64 = 50;
/// Stands in the place of a user once everything of a kind is noted; no user is of this kind.
const NOTED: &str = "noted";

/// Behind which document of a kind to go on: its id, and when it was made where there are several of one id.
pub type After = (String, Millis);

/// Notes what documents behind `after` name that were stored before anybody noted it, one page of them: behind which to go
/// on, or nothing when all are noted, now or long ago; and how many it read.
pub fn note_older(tx: &Tx<'_>, kind: Kind, after: &After) -> Result<(Option<After>, usize), DbError> {
    let done = "SELECT 1 FROM fragment_uses WHERE user_kind = $1 AND user_id = $2";
    if tx.first(done, &[NOTED.into(), kind.word().into()], |_| Ok(()))?.is_some() {
        return Ok((None, 0));
    }
    let sql = match kind {
        Kind::Part => {
            "SELECT id, CAST(0 AS BIGINT), '', config FROM parts
             WHERE id >= $1 AND (id > $1 OR CAST(0 AS BIGINT) > $2) ORDER BY id LIMIT $3"
        }
        // The present one is among them.
        Kind::Fragment => {
            "SELECT r.fragment_id, r.made_at, CASE WHEN r.revision = f.revision THEN '' ELSE r.revision END, r.config
             FROM fragment_revisions r JOIN fragments f ON f.id = r.fragment_id
             WHERE r.fragment_id >= $1 AND (r.fragment_id > $1 OR r.made_at > $2)
             ORDER BY r.fragment_id, r.made_at LIMIT $3"
        }
        Kind::Organization => {
            "SELECT id, CAST(0 AS BIGINT), '', COALESCE(default_fragments, '') FROM organizations
             WHERE id >= $1 AND (id > $1 OR CAST(0 AS BIGINT) > $2) ORDER BY id LIMIT $3"
        }
    };
    let page = tx.all(sql, &[(&*after.0).into(), after.1.into(), PAGE.into()], |row| {
        let named = match kind {
            Kind::Organization => Named::by_defaults(row.str(3)?),
            Kind::Part | Kind::Fragment => Named::by_text(row.str(3)?),
        };
        Ok((row.text(0)?, row.int(1)?, row.text(2)?, named))
    })?;
    for (id, _, revision, named) in &page {
        add(tx, kind, id, revision, named)?;
    }
    let read = page.len();
    let last = page.into_iter().next_back();
    if last.is_none() {
        let sql = "INSERT INTO fragment_uses (user_kind, user_id, user_revision, fragment_id, version)
                   VALUES ($1, $2, '', '', '')";
        tx.run(sql, &[NOTED.into(), kind.word().into()])?;
    }
    Ok((last.map(|(id, made_at, ..)| (id, made_at)), read))
}

/// Of rows of `fragment_uses`, for statements that ask for the fragment and the version: the kind stands between the two in
/// the index, which is looked into for each kind then.
macro_rules! of_any_kind {
    () => {
        "user_kind IN ('part', 'fragment', 'organization')"
    };
}
pub(super) use of_any_kind;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_configuration_names() {
        let both = |list: &[(&str, &str)]| list.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
        let long = format!(r#"{{"modules":[{{"module_id":"a:{}"}}]}}"#, "x".repeat(300));
        let table: [(&str, &[(&str, &str)]); 9] = [
            ("{}", &[]),
            (r#"{"modules":[{"module_id":"acme:camera"},{"module_id":"acme:camera"}]}"#, &[("acme", "camera")]),
            (
                r#"{"packages":[{"package":"acme/model"}],"modules":[{"module_id":"a:b"}]}"#,
                &[("a", "b"), ("acme", "model")],
            ),
            (r#"{"modules":[{"module_id":"local"},{"module_id":":x"},{"module_id":7},3]}"#, &[]),
            (r#"{"modules":{"module_id":"a:b"}}"#, &[]),
            (r#"{"components":[{"attributes":{"module_id":"a:b"}}]}"#, &[]),
            (r#"["module_id"]"#, &[]),
            (&long, &[]),
            (r#"{"modules":[{"\u006dodule_id":"a:b"}]}"#, &[("a", "b")]),
        ];
        for (config, names) in table {
            assert_eq!(Named::by_text(config), Named { fragments: Vec::new(), items: both(names) }, "{config}");
        }
        let key = |id: &str, version: Option<&str>| Key { id: id.into(), version: version.map(str::to_owned) };
        let config = r#"{"\u0066ragments":["base",{"id":"base","version":"2"},{"id":"over","version":""},"base"]}"#;
        let fragments = vec![key("base", None), key("base", Some("2")), key("over", None)];
        assert_eq!(Named::by_text(config), Named { fragments, items: BTreeSet::new() });
    }

    #[test]
    fn what_default_fragments_name() {
        use api::pb::platform::app::v1::FragmentImport;
        let import = |id: &str, version: &str| FragmentImport {
            fragment_id: id.into(),
            version: version.into(),
            ..FragmentImport::default()
        };
        let key = |id: &str, version: Option<&str>| Key { id: id.into(), version: version.map(str::to_owned) };
        let list = FragmentImportList { fragments: vec![import("base", ""), import("base", "2"), import("over", "1")] };
        let fragments = vec![key("base", None), key("base", Some("2")), key("over", Some("1"))];
        assert_eq!(Named::by_defaults(&hex::encode(&list.encode_to_vec())).fragments, fragments);
        for nothing in ["", "no digits", "ff"] {
            assert_eq!(Named::by_defaults(nothing), Named::default(), "{nothing:?}");
        }
    }
}
