//! How much a configuration may cost, each with its reason. Every complaint about one of them says the number.

/// A whole document of one source: text of a file, or encoded response of the fleet server.
pub const DOCUMENT_BYTES_MAX: usize = 1024 * 1024;
/// Objects and lists inside each other. The table needs five; the rest is room for what we ignore.
pub const DOCUMENT_DEPTH_MAX: u32 = crate::json::DEPTH_MAX;
/// Networks of all sources together: each becomes a profile in the operating system.
pub const NETWORKS_MAX: usize = 64;
/// Name of a network, which is also the name of its profile.
pub const NETWORK_NAME_BYTES_MAX: usize = 64;
/// Name servers of one network; resolvers ask three.
pub const DNS_SERVERS_MAX: usize = 8;
/// Variables for the machine server.
pub const ENV_ENTRIES_MAX: usize = 128;
/// Names and values of the variables together: a quarter of what the smallest systems pass to a new process.
pub const ENV_BYTES_MAX: usize = 32 * 1024;
/// Keys that a manufacturer trusts: a few people and a spare each.
pub const RELEASE_KEYS_MAX: usize = 16;
/// Complaints that are kept one by one; a last one counts the others.
pub const COMPLAINTS_MAX: usize = 32;
/// Path, found and allowed of one complaint together, so that all of them fit a status report.
pub const COMPLAINT_BYTES_MAX: usize = 256;
/// Names and texts which are one line on a screen.
pub const LINE_BYTES_MAX: usize = 128;
/// What one option of DHCP can hold.
pub const DHCP_OPTION_BYTES_MAX: usize = 255;
/// A year: longer than anybody waits, short enough that no arithmetic overflows.
pub const MINUTES_MAX: i64 = 525_600;
