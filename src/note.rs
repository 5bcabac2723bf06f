//! What this executable says about itself: the note that an agent looks for before it makes way for another one, and an
//! installation before it replaces the launcher. Part of both programs, each of which says which one it is (`PROGRAM`).
//!
//! The version that is shown everywhere is read from it, so that the two can never differ.

use std::hint::black_box;

use actors::update::note::{FIELD_BYTES, KIND, OWNER, padded, text};

#[repr(C, align(4))]
struct Note {
    owner_bytes: u32,
    text_bytes: u32,
    kind: u32,
    owner: [u8; OWNER.len()],
    program: [u8; FIELD_BYTES],
    version: [u8; FIELD_BYTES],
}

// A section whose name begins so becomes a note segment, which linkers do not drop and `strip` leaves alone.
#[used]
#[cfg_attr(target_os = "linux", unsafe(link_section = ".note.device-agent"))]
#[allow(unsafe_code, reason = "the section is ours alone and holds nothing but this note")]
static NOTE: Note = Note {
    owner_bytes: OWNER.len() as u32,
    text_bytes: 2 * FIELD_BYTES as u32,
    kind: KIND,
    owner: OWNER,
    program: padded(crate::PROGRAM),
    version: padded(env!("CARGO_PKG_VERSION")),
};

/// The version of this program.
pub(crate) fn version() -> &'static str {
    // As it lies in the file: not what the compiler knows of it.
    let Note { version, .. } = black_box(&NOTE);
    text(version)
}
