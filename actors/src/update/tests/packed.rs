//! Executables that arrive in xz streams, and streams that are traps.

use api::{
    pb::platform::fleet::v1::update_status,
    releases::{Artifact, Unpacked, artifact_path},
};
use board_sim::{Interruption, Reached, SimBoard, fetch::Resource, image};

use super::device::{Life, SERVER, device, device_with, image_of, updates_in_spite_of};

const DICTIONARY: u32 = 1 << 16;

/// What is inside, as it is signed; and the stream.
fn signed(inside: &[u8], stream: Vec<u8>) -> (Artifact, Vec<u8>) {
    let unpacked = Unpacked { sha256: image::sha256(inside), length: inside.len() as u64 };
    (Artifact::xz(board_sim::PLATFORM, image::sha256(&stream), stream.len() as u64, unpacked), stream)
}

fn honest(executable: &[u8]) -> (Artifact, Vec<u8>) {
    signed(executable, image::xz(executable, DICTIONARY))
}

fn nothing_is_left(sim: &SimBoard) -> bool {
    sim.files.paths().iter().all(|path| !path.to_string_lossy().contains("/download/"))
}

#[test]
fn an_executable_is_unpacked_on_its_way_into_its_slot() {
    let sim = device_with(11, &["1.0.0"], honest);
    let life = Life::begin(&sim, "stable");
    life.run(10);
    // The keeper has compared it with the executable.
    assert_eq!(life.told(), ["run 1 nothing", "run 1 1.0.0"]);
    life.run(400);
    assert_eq!((life.phase(), life.status().last_error.as_str()), (update_status::Phase::Committed, ""));
    assert!(nothing_is_left(&sim), "{:?}", sim.files.paths());
    life.end(false);
    // The same version is known again, although its bytes on the way are others.
    let asked = sim.web.asked().len();
    let life = Life::begin(&sim, "1.0.0");
    life.run(60);
    let stream = artifact_path(&honest(&image_of("1.0.0")).0.sha256);
    assert!(sim.web.asked().iter().skip(asked).all(|asked| !asked.url.ends_with(&stream)));
    life.end(false);
}

#[test]
fn a_packed_update_survives_an_interruption_at_every_write() {
    let prepared = |seed: u64| {
        let sim = device_with(seed, &["1.0.0", "1.1.0"], honest);
        let life = Life::begin(&sim, "1.0.0");
        life.run(400);
        assert_eq!(life.phase(), update_status::Phase::Committed);
        life.end(false);
        sim
    };
    let mut points = 0;
    for interruption in [Interruption::PowerCut, Interruption::Killed] {
        for reached in Reached::ALL {
            let mut writes = 0;
            while updates_in_spite_of(interruption, reached, writes + 1, &prepared) {
                writes += 1;
            }
            assert!(writes >= 15, "{interruption:?} {reached:?}: only {writes} writes were tried");
            points += writes;
        }
    }
    println!("{points} interruptions of a packed update");
}

#[test]
fn a_stream_that_is_a_trap_is_refused_and_nothing_else_happens() {
    let small = image_of("1.0.0").len();
    let bomb = || image::xz(&vec![0; 20 << 20], DICTIONARY);
    type Row = (&'static str, Box<dyn Fn(&[u8]) -> (Artifact, Vec<u8>)>, &'static str);
    let rows: Vec<Row> = vec![
        (
            "a bomb",
            Box::new(move |inside| signed(inside, bomb())),
            "there is more in it than the 200000 bytes of the signed release",
        ),
        (
            "less than was signed",
            Box::new(|inside| signed(inside, image::xz(&inside[..1000], DICTIONARY))),
            "what is inside is not what was signed",
        ),
        (
            "something else of the same length",
            Box::new(|inside| signed(inside, image::xz(&vec![1; inside.len()], DICTIONARY))),
            "what is inside is not what was signed",
        ),
        (
            "a dictionary for a server",
            Box::new(|inside| signed(inside, image::xz(inside, 12 << 20))),
            "its dictionary is larger than the 8 MiB this agent has memory for; pack it with `xz --lzma2=dict=8MiB`",
        ),
        (
            "cut before it was signed",
            Box::new(|inside| {
                let stream = image::xz(inside, DICTIONARY);
                signed(inside, stream[..stream.len() / 2].to_vec())
            }),
            "it is not one whole xz stream",
        ),
        (
            "a zip archive",
            Box::new(|inside| signed(inside, b"PK\x03\x04 and so on, and so on".to_vec())),
            "it is not one whole xz stream",
        ),
        (
            "a script, packed",
            Box::new(|_| signed(b"#!/bin/sh\nreboot\n", image::xz(b"#!/bin/sh\nreboot\n", DICTIONARY))),
            "it is no ELF executable but a script",
        ),
        (
            "for another machine, packed",
            Box::new(move |_| {
                let other = image::program("1.0.0", "linux/arm64", small);
                signed(&other, image::xz(&other, DICTIONARY))
            }),
            "it is an executable for linux/arm64 and this machine is linux/amd64",
        ),
    ];
    for (case, made, message) in rows {
        let sim = device_with(12, &["1.0.0"], made);
        let life = Life::begin(&sim, "stable");
        let before = sim.files.used();
        life.run(20);
        let said = life.status().last_error;
        assert!(said.starts_with("1.0.0 was refused: ") && said.contains(message), "{case}: {said}");
        assert!(nothing_is_left(&sim), "{case}: {:?}", sim.files.paths());
        assert!(sim.files.used() < before + 10_000, "{case}");
        assert!(life.status().bad_versions.is_empty(), "{case}: bytes are bad, not a version");
        life.end(false);
    }
}

#[test]
fn there_is_room_for_both_or_nothing_is_fetched() {
    let sim = device_with(13, &["1.0.0"], honest);
    let (artifact, stream) = honest(&image_of("1.0.0"));
    // The reserve of the settings, the stream, and not quite the executable.
    let reserve = 64 * 1_000_000;
    sim.files.leave_free(reserve + stream.len() as u64 + 150_000);
    let life = Life::begin(&sim, "stable");
    life.run(30);
    let said = life.status().last_error;
    assert!(said.contains("bytes are needed") && said.contains("make room on the disk"), "{said}");
    let length = |path: &str| sim.files.content(path).map_or(0, |content| content.len());
    assert_eq!(length("/root/download/platform-server.partial"), 0);
    assert_eq!(artifact.length, stream.len() as u64);
    // Somebody makes room.
    sim.files.leave_free(reserve + 2_000_000);
    life.run(700);
    assert_eq!(life.phase(), update_status::Phase::Committed, "{:?}", life.status());
    life.end(false);
}

#[test]
fn a_pinned_stream_is_unpacked_too() {
    let sim = device(14, &["1.0.0"]);
    let life = Life::begin(&sim, "stable");
    life.run(400);
    life.told();
    let executable = image::program("7.0.0", board_sim::PLATFORM, 5000);
    sim.web.serve("http://10.0.0.9/server.xz", Resource::of(image::xz(&executable, DICTIONARY)));
    life.wish("http://10.0.0.9/server.xz");
    life.run(30);
    assert_eq!(life.phase(), update_status::Phase::Staged, "{:?}", life.status());
    assert_eq!(sim.files.content("/root/versions/platform-server/b/platform-server"), Some(executable));
    // A stream without an end to speak of: the disk's reserve is what stops it, and the rest is given back.
    sim.files.leave_free(80_000_000);
    let used = sim.files.used();
    sim.web.serve(format!("{SERVER}/bomb"), Resource::of(image::xz(&vec![0; 40 << 20], DICTIONARY)));
    life.wish(&format!("{SERVER}/bomb"));
    life.run(30);
    let said = life.status().last_error;
    assert!(said.contains("unpacked") && said.contains("must stay free"), "{said}");
    assert!(sim.files.used() < used + 100_000, "{:?}", sim.files.paths());
    life.end(false);
}
