//! Composition: a part's configuration and the fragments it names, made into the one document its device gets.
//!
//! Owns the rules of merging (`docs/fragments.md` shows them as worked examples, which are the tests). Pure: fragments
//! come in a [`Library`] that the caller fills; nothing here waits, reads or stores.
//! One bad reference, variable or path costs itself and leaves a [`Complaint`]; only a result that is too large or too
//! deep is refused as a whole, because a device that cannot read its document keeps the one it has.

mod complaint;
mod library;
mod merge;
mod mods;
mod prefix;
mod reference;
mod variables;
pub mod wire;

#[cfg(test)]
mod examples;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use serde_json::{Map, Value};

pub use self::{
    complaint::Complaint,
    library::{Fragment, Library, SaveRefusal, check_fragment, check_part, missing},
    reference::{Key, Reference, reference},
};
use self::{complaint::Complaints, merge::merge};
use crate::hex;

/// A fragment in a fragment in …: deeper than this is a mistake rather than a design.
pub const DEPTH_MAX: usize = 8;
/// What a device reads at most; the same limit as the device's own reader.
pub const COMPOSED_MAX_BYTES: usize = 1 << 20;
/// Nesting of the composed document; the same limit as the device's own reader.
pub const NESTING_MAX: usize = 64;
/// All text copied while composing: a variable used ten thousand times, or a fragment named by hundreds, ends here.
pub const WORK_MAX_BYTES: usize = 8 << 20;
/// Fragments resolved for one part, repeats counted: eight levels that each name ten others would be a hundred million.
pub const RESOLUTIONS_MAX: usize = 256;

/// The keys that steer composition and are therefore not part of its result.
const FRAGMENTS: &str = "fragments";
const FRAGMENT_MODS: &str = "fragment_mods";

/// What a part's configuration amounts to.
#[derive(Debug, Clone, PartialEq)]
pub struct Composed {
    /// The document, in the order of its sources' keys.
    pub config: Map<String, Value>,
    /// The document as text: what was measured and digested.
    pub text: String,
    /// SHA-256 of `text`, in hexadecimal.
    pub revision: String,
    /// What could not be followed, in the order it was met.
    pub complaints: Vec<Complaint>,
    /// Every fragment that went in, with the revision taken, each once.
    pub used: Vec<Used>,
}

/// A fragment that went into a composition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Used {
    /// The fragment's id.
    pub id: String,
    /// The revision taken.
    pub revision: String,
}

/// Why there is no composed document.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ComposeError {
    /// The result is larger than a device reads.
    #[error(
        "the composed configuration is {bytes} bytes, and a device reads at most {COMPOSED_MAX_BYTES}: take fragments out of the part, or parts out of the fragments"
    )]
    TooLarge {
        /// Size of the document.
        bytes: usize,
    },
    /// Composing copied more than [`WORK_MAX_BYTES`].
    #[error(
        "composing copied more than {WORK_MAX_BYTES} bytes: a large variable is used too often, or a large fragment is named too often"
    )]
    TooMuchWork,
    /// More than [`RESOLUTIONS_MAX`] fragments, repeats counted.
    #[error(
        "more than {RESOLUTIONS_MAX} fragments would be resolved, repeats counted: name each fragment in fewer places"
    )]
    TooManyFragments,
    /// The result is nested deeper than a device reads.
    #[error("the composed configuration is nested deeper than {NESTING_MAX} levels, and a device reads no deeper")]
    TooDeep,
}

/// Composes `part` with the fragments it names. What `library` does not hold is a complaint: fill it first, see [`missing`].
pub fn compose(part: &Map<String, Value>, library: &Library) -> Result<Composed, ComposeError> {
    let mut work = Work {
        library,
        complaints: Complaints::default(),
        used: Vec::new(),
        path: Vec::new(),
        bytes_left: WORK_MAX_BYTES,
        resolutions_left: RESOLUTIONS_MAX,
    };
    let mut config = work.resolve(part, None, "the part")?;
    merge::strip_nulls(&mut config);
    if merge::deeper_than(&config, NESTING_MAX) {
        return Err(ComposeError::TooDeep);
    }
    let text = serde_json::to_string(&config).expect("text keys and finite numbers always serialise");
    if text.len() > COMPOSED_MAX_BYTES {
        return Err(ComposeError::TooLarge { bytes: text.len() });
    }
    Ok(Composed { revision: revision(&text), config, text, complaints: work.complaints.into_list(), used: work.used })
}

/// The digest that names a document.
pub fn revision(text: &str) -> String {
    hex::encode(ring::digest::digest(&ring::digest::SHA256, text.as_bytes()).as_ref())
}

/// One composition under way.
struct Work<'a> {
    library: &'a Library,
    complaints: Complaints,
    used: Vec<Used>,
    /// Ids from the part down to the fragment being resolved: a cycle is an id met twice here.
    path: Vec<String>,
    bytes_left: usize,
    resolutions_left: usize,
}

impl Work<'_> {
    /// The document's fragments in list order, then the document over them. Keeps `null`s: they still have to remove
    /// the keys of what comes before this document in its parent's list.
    fn resolve(
        &mut self,
        document: &Map<String, Value>,
        variables: Option<&Map<String, Value>>,
        at: &str,
    ) -> Result<Map<String, Value>, ComposeError> {
        let mut own = Map::new();
        for (key, value) in document.iter().filter(|(key, _)| key.as_str() != FRAGMENTS) {
            if let Some(value) = self.substitute(value, variables, at)? {
                own.insert(key.clone(), value);
            }
        }
        let mods = mods::read(own.shift_remove(FRAGMENT_MODS), at, &mut self.complaints);
        let mut taken = vec![false; mods.len()];

        let mut result = Map::new();
        for reference in reference::read(document.get(FRAGMENTS), at, &mut self.complaints) {
            let mut given = Map::new();
            for (name, value) in &reference.variables {
                if let Some(value) = self.substitute(value, variables, at)? {
                    given.insert(name.clone(), value);
                }
            }
            let Some(mut fragment) = self.fragment(&reference, &given, at)? else { continue };
            if let Some(prefix) = &reference.prefix {
                prefix::apply(&mut fragment, prefix);
            }
            for (of_fragment, taken) in mods.iter().zip(&mut taken) {
                if of_fragment.is_for(&reference) {
                    *taken = true;
                    of_fragment.apply(&mut fragment, self)?;
                }
            }
            merge(&mut result, fragment);
        }
        for (of_fragment, _) in mods.iter().zip(taken).filter(|(_, taken)| !taken) {
            self.complaints.add(
                format!("{at}, fragment_mods"),
                format!("fragment {} is not in this document's list of fragments", of_fragment.fragment_id),
            );
        }
        merge(&mut result, own);
        Ok(result)
    }

    /// One referenced fragment, resolved; nothing, with a complaint, where it cannot be.
    fn fragment(
        &mut self,
        reference: &Reference,
        variables: &Map<String, Value>,
        at: &str,
    ) -> Result<Option<Map<String, Value>>, ComposeError> {
        let id = &reference.key.id;
        if self.path.iter().any(|above| above == id) {
            self.complaints.add(at, format!("fragment {id} contains itself; it was left out here"));
            return Ok(None);
        }
        if self.path.len() >= DEPTH_MAX {
            self.complaints
                .add(at, format!("fragment {id} is nested deeper than {DEPTH_MAX} levels; it was left out here"));
            return Ok(None);
        }
        let Some(fragment) = self.library.get(&reference.key) else {
            self.complaints.add(at, format!("there is no fragment {}; it was left out", reference.key));
            return Ok(None);
        };
        self.resolutions_left = self.resolutions_left.checked_sub(1).ok_or(ComposeError::TooManyFragments)?;
        self.spend(fragment.bytes())?;

        let fragment = Arc::clone(fragment);
        let used = Used { id: id.clone(), revision: fragment.revision().to_owned() };
        if !self.used.contains(&used) {
            self.used.push(used);
        }
        self.path.push(id.clone());
        let resolved = self.resolve(fragment.config(), Some(variables), &format!("fragment {}", reference.key));
        self.path.pop();
        resolved.map(Some)
    }

    /// Accounts for text about to be copied.
    fn spend(&mut self, bytes: usize) -> Result<(), ComposeError> {
        self.bytes_left = self.bytes_left.checked_sub(bytes).ok_or(ComposeError::TooMuchWork)?;
        Ok(())
    }
}
