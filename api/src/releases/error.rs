//! Why a document is not followed.

use super::{DocumentType, root::Role};
use crate::json::JsonError;

/// A document that was refused. Nothing of it is used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DocumentError {
    /// Not JSON, too long, too deep, cut off.
    #[error("not a signed document: {0}")]
    NotJson(#[from] JsonError),
    /// An entry is missing or is something else than it must be.
    #[error("the signed document's {entry} is missing or is not {expected}")]
    Malformed {
        /// Which entry.
        entry: &'static str,
        /// What it must be.
        expected: &'static str,
    },
    /// Genuine perhaps, but not what was asked for.
    #[error("a {expected} document was expected, and this is {found:?}")]
    WrongType {
        /// What was expected.
        expected: DocumentType,
        /// What `_type` says.
        found: String,
    },
    /// Written for later readers.
    #[error("the document has the shape {found}, which this version cannot read: update the agent first")]
    TooNew {
        /// What `spec_version` says.
        found: String,
    },
    /// Not enough of the keys that count have signed these bytes.
    #[error(
        "{valid} of {needed} signatures by {role} keys are valid ({wrong} are wrong, {unknown} by keys that do not count): \
         it was changed on its way, or signed by somebody else"
    )]
    BelowThreshold {
        /// Whose signatures are needed.
        role: Role,
        /// Different keys that signed.
        valid: usize,
        /// How many must.
        needed: usize,
        /// Signatures of counting keys that do not fit.
        wrong: usize,
        /// Signatures of other keys.
        unknown: usize,
    },
    /// The first root of a device must be signed by keys it was given.
    #[error(
        "the root document is signed by {valid} of the {given} release keys in the manufacturer's defaults, and {needed} \
         must sign: nothing of this server is taken"
    )]
    NotAnchored {
        /// Given keys that signed.
        valid: usize,
        /// How many must.
        needed: usize,
        /// How many there are.
        given: usize,
    },
    /// A root follows its predecessor without a gap.
    #[error("root document number {needed} was expected, and this is number {found}")]
    RootOutOfOrder {
        /// The number wanted.
        needed: u64,
        /// The number it has.
        found: u64,
    },
    /// A genuine document in another one's place.
    #[error("the document for {expected} was asked for, and this is the one for {found}")]
    WrongSubject {
        /// What was asked for.
        expected: String,
        /// What came.
        found: String,
    },
}
