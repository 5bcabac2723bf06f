//! Fragments for composition: what a document names, as far as its organization may use it.

use std::sync::Arc;

use api::pb::platform::app::v1::FragmentVisibility;
use serde_json::{Map, Value};

use super::{DbError, Tx};
use crate::compose::{Fragment, Key, Library, missing};

/// Reads everything that `document` names, directly or through other fragments, into the library.
/// A private fragment of another organization is, for this one, not there.
pub fn fill(
    tx: &Tx<'_>,
    organization: &str,
    document: &Map<String, Value>,
    library: &mut Library,
) -> Result<(), DbError> {
    loop {
        let wanted = missing(document, library);
        if wanted.is_empty() {
            return Ok(());
        }
        for key in wanted {
            let fragment = fragment(tx, organization, &key)?;
            library.add(key, fragment.map(Arc::new));
        }
    }
}

fn fragment(tx: &Tx<'_>, organization: &str, key: &Key) -> Result<Option<Fragment>, DbError> {
    let usable = |owner: &str, visibility: i64| {
        let open = [FragmentVisibility::Public, FragmentVisibility::PublicUnlisted];
        owner == organization || open.iter().any(|open| i64::from(i32::from(*open)) == visibility)
    };
    // Whether it may be used is what the fragment is today; which words it has is what the revision says.
    let found = match &key.version {
        None => tx.first(
            "SELECT organization_id, visibility, revision, config FROM fragments WHERE id = $1",
            &[(&key.id).into()],
            |row| Ok(usable(row.str(0)?, row.int(1)?).then(|| (row.text(2), row.text(3)))),
        )?,
        Some(version) => tx.first(
            "SELECT f.organization_id, f.visibility, r.revision, r.config
             FROM fragments f JOIN fragment_revisions r ON r.fragment_id = f.id
             WHERE f.id = $1 AND r.revision = $2",
            &[(&key.id).into(), version.into()],
            |row| Ok(usable(row.str(0)?, row.int(1)?).then(|| (row.text(2), row.text(3)))),
        )?,
    };
    let Some(Some((revision, text))) = found else { return Ok(None) };
    Ok(Fragment::read(revision?, &text?))
}
