//! What bringing a version costs a small device: bytes written to its flash, memory held meanwhile and afterwards.

use std::fs;

use serde_json::json;
use test_harness::real::stand_in;

use crate::world::{UpdatePhase, World, update};

/// Incompressible bytes in the machine server beside the stand-in itself.
const PADDING: u64 = 20_000_000;
/// Records, pointers, log lines and questions beside the bytes of the version.
const BESIDE: u64 = 400_000;

/// A number in kilobytes of `/proc/PID/status`, or of bytes in `/proc/PID/io`.
fn number(world: &World, file: &str, name: &str) -> u64 {
    let pid = world.agent.as_ref().expect("it runs").pid();
    let text = fs::read_to_string(format!("/proc/{pid}/{file}")).expect("its own process");
    let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("the kernel counts it");
    line.trim_start_matches(':').split_whitespace().next().and_then(|word| word.parse().ok()).expect("a number")
}

/// Brings a version of this setting and says what was written, by the agent's own writes.
fn bring(world: &World, version: &str) -> u64 {
    let before = number(world, "io", "wchar");
    world.configure(&json!({"version_control": {"platform-server": version}}));
    world.until(&format!("{version} to be staged"), |status| {
        update(status).phase() == UpdatePhase::Staged && update(status).target_version == version
    });
    number(world, "io", "wchar") - before
}

#[test]
fn an_update_is_written_once_and_a_packed_one_as_stream_and_executable() {
    let world = World::running(&[("1.0.0", &[])]);
    let padded = |version: &str| {
        let path = world.path(&format!("padded-{version}"));
        stand_in::build_padded(version, &[], PADDING, &path).expect("a stand-in");
        let length = fs::metadata(&path).expect("there").len();
        (path, length)
    };
    let (raw, raw_length) = padded("2.0.0");
    world.factory.release("2.0.0", 20, &raw).expect("a release");
    let (packed, length) = padded("2.1.0");
    world.factory.release_packed("2.1.0", 21, &packed).expect("a packed release");
    let stream = fs::metadata(world.path("padded-2.1.0.xz")).expect("packed beside it").len();

    let written = bring(&world, "2.0.0");
    println!("raw: {written} bytes written for {raw_length}");
    assert!(written >= raw_length && written < raw_length + BESIDE, "{written} bytes for {raw_length}");

    let quiet = number(&world, "status", "RssAnon");
    let written = bring(&world, "2.1.0");
    let peak = number(&world, "status", "VmHWM");
    println!("xz: {written} bytes written for a stream of {stream} and an executable of {length}; peak {peak} KiB");
    assert!(
        written >= stream + length && written < stream + length + BESIDE,
        "{written} bytes for {stream} and {length}"
    );
    // The dictionary has 2 MiB: it is given back.
    let after = number(&world, "status", "RssAnon");
    println!("memory of its own: {quiet} KiB before, {after} KiB after");
    assert!(after < quiet + 1024, "{quiet} KiB before, {after} KiB after");
}
