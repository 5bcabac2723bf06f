//! Bytes that are not what was signed are refused; the old version keeps running and nothing is fetched in a loop.

use board_sim::{
    fetch::{Resource, Spoiled},
    image,
};
use test_harness::world::{World, factory::IMAGE_BYTES, hours, minutes};

use crate::{assert_serves, serving, starts};

fn downloads(world: &World, version: &str) -> usize {
    let url = world.factory.artifact(version);
    world.board.web.asked().iter().filter(|asked| asked.url == url).count()
}

/// Version 1.1.0 arrives like this for a day.
fn after_a_day(seed: u64, most: usize, how: impl FnOnce(Resource) -> Resource) -> World {
    let mut world = serving(seed);
    world.factory.tamper("1.1.0", how);
    world.factory.channel("stable", "1.1.0");
    world.run_for(hours(24));
    assert_eq!((starts(&world), world.board.processes.serving().as_deref()), (1, Some("1.0.0")));
    let update = world.cloud.status().updates.into_iter().next().expect("it is reported");
    assert!(!update.last_error.is_empty(), "somebody is told what is wrong");
    // A network that fails may be better in ten minutes; bytes that are wrong will be wrong for hours.
    assert!(downloads(&world, "1.1.0") <= most, "{} times in a day", downloads(&world, "1.1.0"));
    world
}

/// A good release is not blocked for ever by what happened to it on the way.
fn heals(mut world: World) {
    world.factory.tamper("1.1.0", |resource| Resource { spoiled: None, ..resource });
    world.run_for(hours(7));
    world.restart_agent();
    assert_serves(&mut world, "1.1.0", minutes(2));
}

#[test]
fn a_flipped_bit() {
    heals(after_a_day(1, 20, |resource| resource.spoiled(Spoiled::FlippedBit(IMAGE_BYTES as u64 / 2))));
}

#[test]
fn a_page_of_a_hotel() {
    heals(after_a_day(2, 20, |resource| resource.spoiled(Spoiled::CaptivePage)));
}

#[test]
fn an_end_in_the_middle() {
    heals(after_a_day(3, 250, |resource| resource.spoiled(Spoiled::EndsAfter(IMAGE_BYTES as u64 / 3))));
}

#[test]
fn a_stall_in_the_middle() {
    heals(after_a_day(4, 250, |resource| resource.spoiled(Spoiled::StallsAfter(100))));
}

#[test]
fn an_executable_of_another_machine_even_if_it_is_signed() {
    let mut world = serving(5);
    world.factory.release_bytes("1.3.0", image::program("1.3.0", "linux/arm64", IMAGE_BYTES));
    world.factory.channel("stable", "1.3.0");
    world.run_for(hours(12));
    world.restart_agent();
    world.run_for(hours(1));
    assert_eq!(world.board.processes.serving().as_deref(), Some("1.0.0"));
    assert!(world.board.processes.started().iter().all(|start| start.version == "1.0.0"));
}

#[test]
fn a_channel_document_that_somebody_changed() {
    let mut world = serving(6);
    let url = format!("{}/releases/v1/channel/stable.json", test_harness::world::factory::SERVER);
    world.factory.channel("stable", "1.1.0");
    let signed = world.board.web.resource(&url).expect("it is published");
    let text = String::from_utf8(signed.body.to_vec()).expect("documents are text");
    world.board.web.serve(&url, Resource::of(text.replace("1.1.0", "1.2.0-dev")));
    world.run_for(hours(12));
    world.restart_agent();
    world.run_for(hours(1));
    assert_eq!(world.board.processes.serving().as_deref(), Some("1.0.0"));
}
