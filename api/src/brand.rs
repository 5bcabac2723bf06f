//! The vendor's name, written once.
//!
//! `platform` unless the build sets `PLATFORM_BRAND`, so that a manufacturer ships `acme-agent`, `/etc/acme.json` and
//! `ACME_AGENT_DEBUG` without touching the source.

include!(concat!(env!("OUT_DIR"), "/brand.rs"));
