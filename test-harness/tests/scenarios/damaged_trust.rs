//! What a device believes of releases outlives damage to the files that say so: old news stays old, a thief stays a thief.

use std::io;

use api::{
    pb::platform::fleet::v1::UpdateStatus,
    releases::{Channel, ChannelEntry, Expires, RoleKeys, Root, channel_path, root_path, sign},
};
use board_sim::fetch::Resource;
use test_harness::world::{Hands, World, factory::SERVER, hours};

use crate::serving;

const NUMBERS: [&str; 2] = ["/opt/platform/trust/numbers", "/opt/platform/trust/numbers.copy"];
const ROOT: [&str; 2] = ["/opt/platform/trust/root.json", "/opt/platform/trust/root.json.copy"];

fn server_update(hands: &Hands) -> UpdateStatus {
    hands.cloud.status().updates[0].clone()
}

/// A device that has seen that stable means 1.1.0, and the document before that.
fn informed(seed: u64) -> (World, Resource) {
    let mut world = serving(seed);
    let before = world.board.web.resource(&stable()).expect("published");
    world.factory.channel("stable", "1.1.0");
    world.run_for(hours(3));
    assert_eq!(server_update(&world).target_version, "1.1.0");
    (world, before)
}

fn stable() -> String {
    format!("{SERVER}{}", channel_path("stable"))
}

#[track_caller]
fn assert_old_news_are_refused(world: &mut World, case: &str) {
    world.run_for(hours(3));
    let update = server_update(world);
    assert!(update.last_error.contains("somebody serves old news"), "{case}: {update:?}");
    assert_ne!(update.target_version, "1.0.0", "{case}");
}

#[test]
fn one_damaged_file_forgets_nothing() {
    for path in NUMBERS.into_iter().chain(ROOT) {
        let (mut world, before) = informed(1);
        world.board.web.serve(stable(), before);
        assert_old_news_are_refused(&mut world, "whole");
        world.board.files.corrupt(path, 100);
        assert_old_news_are_refused(&mut world, path);
        world.board.files.lose(path);
        assert_old_news_are_refused(&mut world, path);
        world.board.files.refuse_reads(path.rsplit('/').next().unwrap(), io::ErrorKind::Other);
        if !path.ends_with("copy") {
            // The name of a copy contains the file's.
            world.board.files.heal();
            continue;
        }
        assert_old_news_are_refused(&mut world, path);
        world.board.files.heal();
        // The other one, after the first was mended.
        world.run_for(hours(3));
        world.board.files.corrupt(path.trim_end_matches(".copy"), 100);
        world.restart_agent();
        assert_old_news_are_refused(&mut world, path);
    }
}

/// Somebody else's root, and a channel signed by its keys.
fn a_thief_takes_the_server(world: &World) {
    let key = sign::SigningKey::from_seed(&[66; 32]).expect("any 32 bytes are a seed");
    let keys = || RoleKeys::new(1, [key.public()]);
    let expires = Expires::from_unix_seconds(4_000_000_000);
    let root = Root { version: 1, expires, root: keys(), release: keys(), channel: keys() };
    let entry = ChannelEntry { product: "platform-server".into(), version: "1.2.0-dev".parse().unwrap(), number: 99 };
    let channel = Channel { name: "stable".into(), version: 99, expires, products: vec![entry] };
    let web = &world.board.web;
    web.serve(format!("{SERVER}{}", root_path(1)), Resource::of(sign::root(&root, &[&key]).unwrap()));
    web.serve(stable(), Resource::of(sign::channel(&channel, &[&key]).unwrap()));
}

#[test]
fn a_thief_is_no_first_contact_of_a_device_that_lost_its_numbers() {
    for lost in [&NUMBERS[..], &ROOT[..1], &ROOT[1..], &[NUMBERS[0], NUMBERS[1], ROOT[0]]] {
        let (mut world, _) = informed(2);
        a_thief_takes_the_server(&world);
        for path in lost {
            world.board.files.corrupt(path, 100);
        }
        for _ in 0..2 {
            world.run_for(hours(3));
            let update = server_update(&world);
            assert!(update.last_error.contains("0 of 1 signatures by channel keys are valid"), "{lost:?}: {update:?}");
            let known = [update.target_version, update.installed_version].map(|version| version == "1.2.0-dev");
            assert_eq!(known, [false, false], "{lost:?}");
            world.restart_agent();
        }
    }
}

#[test]
fn lost_numbers_are_reported_until_there_is_news() {
    let (mut world, _) = informed(3);
    for path in NUMBERS {
        world.board.files.corrupt(path, 100);
    }
    world.run_for(hours(3));
    assert!(server_update(&world).last_error.contains("was lost with damaged files"), "{:?}", server_update(&world));
    world.restart_agent();
    world.run_for(hours(3));
    assert!(server_update(&world).last_error.contains("was lost with damaged files"), "{:?}", server_update(&world));
    let before = world.board.web.resource(&stable()).expect("published");
    world.factory.channel("stable", "1.0.0");
    world.run_for(hours(3));
    let update = server_update(&world);
    assert!(!update.last_error.contains("was lost"), "{update:?}");
    world.board.web.serve(stable(), before);
    world.run_for(hours(3));
    assert!(server_update(&world).last_error.contains("somebody serves old news"), "{:?}", server_update(&world));
}
