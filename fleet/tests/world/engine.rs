//! Which engine the tests of this binary run on: SQLite, and PostgreSQL in `on_postgres.rs`.

#![allow(dead_code, unreachable_pub, reason = "every test file uses its own part of it")]

use std::{fs, io::Write, path::Path};

use fleet::store::Address;

/// `on_postgres.rs` compiles the same files once more.
pub const ON_POSTGRES: bool = matches!(env!("CARGO_CRATE_NAME").as_bytes(), b"on_postgres");

/// The database that belongs to a test's folder, as a URL; a new one if it has none yet. `None` means files.
pub fn url(folder: &Path) -> Option<String> {
    if !ON_POSTGRES {
        return None;
    }
    let note = folder.join("database-url");
    if let Ok(url) = fs::read_to_string(&note) {
        return Some(url);
    }
    match test_postgres::shared() {
        Ok(server) => {
            let url = server.database();
            fs::write(&note, &url).unwrap();
            Some(url)
        }
        Err(why) => {
            // The same tests have run on SQLite: without PostgreSQL none of this binary can be run.
            let _ = writeln!(std::io::stderr(), "ALL SKIPPED the server's tests on PostgreSQL: {why}");
            std::process::exit(0)
        }
    }
}

/// The same, as the server takes it.
pub fn database(folder: &Path) -> Option<Address> {
    url(folder).map(|url| Address::parse(&url).unwrap())
}
