//! What a caller may send, in one place, each with its reason.

use std::time::Duration;

/// Of one request message: a configuration of 1 MiB as text and again as a Struct, with room around it.
pub const REQUEST_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Of a login, which is answered to anybody.
pub const LOGIN_BYTES_MAX: usize = 16 * 1024;
/// Of one configuration as JSON text: what a device accepts. Of one metadata object too.
pub const CONFIG_BYTES_MAX: usize = 1024 * 1024;
/// How deep a configuration may nest: what a device accepts.
pub const CONFIG_DEPTH_MAX: usize = 64;
/// Of a name, in characters.
pub const NAME_CHARS_MAX: usize = 200;
/// Enabled secrets of one part or location: one in use and the one that replaces it.
pub const SECRETS_MAX: usize = 2;
/// Roles of one key: a list that a person can still read.
pub const GRANTS_PER_KEY_MAX: usize = 100;
/// Keys of one person: one for each place they work at.
pub const KEYS_PER_USER_MAX: usize = 20;
/// Invitations of one organization that wait: nobody sends mails to everybody from here.
pub const INVITES_MAX: i64 = 1000;
/// Fragments named by one part or fragment.
pub const FRAGMENTS_PER_CONFIG_MAX: usize = 100;
/// Entries of one page where the caller may choose, and the choice when it does not.
pub const PAGE_MAX: usize = 1000;
/// See above.
pub const PAGE_DEFAULT: usize = 100;
/// Of a fragment's history.
pub const FRAGMENT_HISTORY_PAGE_MAX: i64 = 100;
/// See above.
pub const FRAGMENT_HISTORY_PAGE_DEFAULT: i64 = 10;

/// Of one uploaded file. A single gRPC message cannot be longer than 4 GiB, and boards have little more disk.
pub const UPLOAD_BYTES_MAX: u64 = 2 * 1024 * 1024 * 1024;
/// Of what is said about a file before its bytes.
pub const UPLOAD_INFO_BYTES_MAX: usize = 64 * 1024;
/// Bytes of an upload that are collected before they are written: few switches of threads, little memory.
pub const UPLOAD_CHUNK_BYTES: usize = 256 * 1024;
/// Uploads at the same time; each keeps a chunk, a file and what is on its way in the connection.
pub const UPLOADS_MAX: usize = 64;
/// Of these, those of one key: whoever sends slowly leaves most places to others.
pub const UPLOADS_OF_ONE_MAX: u32 = 16;
/// An upload that was waited for this long, all in all, is given up …
pub const UPLOAD_IDLE_MAX: Duration = Duration::from_secs(60);
/// … while no more than this came of it: a kilobyte a second is less than any line has.
pub const UPLOAD_LITTLE_BYTES: usize = 64 * 1024;
/// Models, applications and the like of one registry item, each.
pub const REGISTRY_LIST_MAX: usize = 1000;
/// Everything that is said about one registry item, its page for people included.
pub const REGISTRY_DETAILS_BYTES_MAX: usize = 1024 * 1024;
/// Registry items of one organization.
pub const REGISTRY_ITEMS_MAX: i64 = 10_000;

/// Until an answer begins. The slowest list takes seconds; a message that takes longer to arrive never will.
pub const CALL_WITHIN: Duration = Duration::from_secs(60);
/// Connections at the same time, if nobody says otherwise. A quiet one costs about 20 KiB.
pub const CONNECTIONS_MAX: usize = 65_536;
/// While more than half of the connections are taken, one that has shown no good token and does nothing is closed after this.
pub const STRANGER_FOR: Duration = Duration::from_secs(60);
/// A connection that gives way to another one is told so, and gone after this.
pub const LEAVE_WITHIN: Duration = Duration::from_millis(500);
/// Calls at the same time on one connection.
pub const CALLS_PER_CONNECTION_MAX: u32 = 256;
/// Of all headers of a call.
pub const HEADER_BYTES_MAX: u32 = 16 * 1024;
/// A connection that has not said a word for this long never will.
pub const FIRST_BYTE_WITHIN: Duration = Duration::from_secs(20);
/// For the TLS handshake, for the first words of HTTP/2, and for the headers of an HTTP/1.1 request, the first or the next.
pub const HEADERS_WITHIN: Duration = Duration::from_secs(20);
/// A quiet HTTP/2 connection is asked this often whether it is still there …
pub const KEEP_ALIVE_EVERY: Duration = Duration::from_secs(30);
/// … and is closed when it does not answer for this long.
pub const KEEP_ALIVE_WITHIN: Duration = Duration::from_secs(20);
/// Calls that are running when the server is told to stop may finish within this.
pub const DRAIN_WITHIN: Duration = Duration::from_secs(10);

/// How long callers are waited for, and wait. What is usual is above; tests have less time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waits {
    /// See [`CALL_WITHIN`].
    pub call: Duration,
    /// See [`FIRST_BYTE_WITHIN`].
    pub first_byte: Duration,
    /// See [`HEADERS_WITHIN`].
    pub headers: Duration,
}

impl Default for Waits {
    fn default() -> Self {
        Self { call: CALL_WITHIN, first_byte: FIRST_BYTE_WITHIN, headers: HEADERS_WITHIN }
    }
}
