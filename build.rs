//! Leaves the tables for unwinding out of what is installed on boards: it aborts (docs/adr/0005).

use std::{env, path::Path};

/// The profile of what is installed.
const PROFILE: &str = "device";

fn main() {
    let of = |name: &str| env::var(name).unwrap_or_default();
    let script = Path::new(&of("CARGO_MANIFEST_DIR")).join("packaging/no-unwinding.ld");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={}", script.display());
    // target/[triple/]PROFILE/build/PACKAGE-HASH/out
    let out = of("OUT_DIR");
    let profile = Path::new(&out).ancestors().nth(3).and_then(Path::file_name);
    if profile.is_some_and(|profile| profile == PROFILE) && of("CARGO_CFG_TARGET_OS") == "linux" {
        println!("cargo::rustc-link-arg-bins=-T");
        println!("cargo::rustc-link-arg-bins={}", script.display());
    }
}
