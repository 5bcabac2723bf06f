//! A device that forgets whose it is, and becomes somebody else's.

use api::brand;
use board::{files::Access, network::Manager};
use board_sim::console::Manner;
use serde_json::json;
use test_harness::world::{Seed, World, cloud, factory, interruptions::at_every_write, minutes, seconds};

use crate::{
    assert_serves,
    provisioning::{PSK, assert_hotspot, credentials, device, online, phone},
};

/// Online by a network that a person gave it.
fn owned(seed: u64) -> World {
    let mut world = device(seed, false, false);
    assert_hotspot(&mut world, minutes(3));
    let owner = phone(&world);
    world.give_identity(owner, &credentials()).expect("a page");
    world.give_network(owner, "home", PSK).expect("a page");
    assert!(world.run_until(minutes(3), online), "{}", world.chronicle.tail(40));
    world.run_for(minutes(2));
    world
}

fn given(world: &World) -> usize {
    world.board.networks.ours().iter().filter(|profile| profile.key.starts_with("given:")).count()
}

#[test]
fn nothing_of_the_last_owner_is_left_and_the_next_is_invited() {
    let mut world = owned(31);
    assert_eq!(given(&world), 1);
    world.board.console.ask(Manner::polite("deprovision 1"));
    assert_hotspot(&mut world, minutes(5));
    assert_eq!(world.board.files.content(brand::CREDENTIALS_FILE), None);
    assert_eq!(given(&world), 0, "a password of theirs");
    let next = phone(&world);
    let page = world.give_identity(next, &credentials()).expect("a page");
    assert_eq!(page.status, 200);
}

#[test]
fn networks_go_when_the_manager_comes_that_was_not_there() {
    let mut world = owned(32);
    world.board.networks.set_manager(Manager::Absent);
    world.board.console.ask(Manner::polite("deprovision 1"));
    let gone = world.run_until(minutes(5), |hands| hands.board.files.content(brand::CREDENTIALS_FILE).is_none());
    assert!(gone);
    world.run_for(minutes(10));
    assert_eq!(given(&world), 1, "nobody could remove it");
    world.board.networks.set_manager(Manager::Ready);
    world.run_for(seconds(20));
    assert_eq!(given(&world), 0, "{}", world.chronicle.tail(30));
    // The same over a restart of the agent, and nothing of the next owner's goes.
    world.restart_agent();
    assert_hotspot(&mut world, minutes(3));
    let next = phone(&world);
    world.give_identity(next, &credentials()).expect("a page");
    world.give_network(next, "home", PSK).expect("a page");
    assert!(world.run_until(minutes(3), online), "{}", world.chronicle.tail(40));
    world.restart_agent();
    world.run_for(minutes(2));
    assert!(online(&world.hands) && given(&world) == 1, "{}", world.chronicle.tail(40));
}

/// With the power cut, or the agent killed, in the middle of any write: nobody's, with nothing left, or still theirs.
#[test]
fn a_power_cut_while_it_forgets_changes_nothing_of_that() {
    let runs = at_every_write(
        || owned(33),
        |world| {
            world.board.console.ask(Manner::polite("deprovision 1"));
            world.run_for(seconds(60));
        },
        |world| {
            let theirs = world.board.files.content(brand::CREDENTIALS_FILE).is_some();
            assert_eq!(theirs, given(world) == 1, "one without the other");
            let asked = world.board.files.paths().iter().any(|path| path.ends_with("state/deprovisioning"));
            assert!(!asked, "it is still not done");
        },
    );
    assert!(runs > 20, "{runs}");
    println!("{runs} runs");
}

/// With the power cut, or the agent killed, in the middle of any write of an identity: the old one or the new one.
#[test]
fn a_power_cut_while_an_identity_is_given_leaves_one_of_the_two() {
    let runs = at_every_write(
        || {
            let mut world = device(34, false, false);
            assert_hotspot(&mut world, minutes(3));
            world
        },
        |world| {
            if let Some(owner) = world.phone(20, &world.label()) {
                world.give_identity(owner, &credentials());
            }
            world.run_for(seconds(30));
        },
        |world| {
            let stored = world.board.files.content(brand::CREDENTIALS_FILE);
            assert!(stored.is_none_or(|stored| String::from_utf8_lossy(&stored).contains(cloud::SECRET)));
        },
    );
    println!("{runs} runs");
}

/// It would go on as the robot of whom the device belonged to before.
#[test]
fn a_new_identity_is_a_new_start_of_the_machine_server() {
    let mut world = World::new(Seed(35));
    world.start();
    assert_serves(&mut world, "1.0.0", minutes(2));
    world.run_for(minutes(5));
    let starts = world.board.processes.starts().0;
    // The same content written again is no news.
    let content = world.board.files.content(brand::CREDENTIALS_FILE).expect("there");
    world.board.files.put(brand::CREDENTIALS_FILE, content, Access::Private);
    world.run_for(minutes(5));
    assert_eq!(world.board.processes.starts().0, starts);
    let moved = json!({"cloud": {"app_address": factory::SERVER, "id": "part-1", "secret": "another"}});
    world.board.files.put(brand::CREDENTIALS_FILE, moved.to_string(), Access::Private);
    world.run_for(minutes(5));
    assert_eq!(world.board.processes.starts().0, starts + 1, "{}", world.chronicle.tail(40));
    assert_serves(&mut world, "1.0.0", minutes(2));
    // And while no agent runs.
    world.kill_agent();
    world.run_for(minutes(5));
    assert_eq!(world.board.processes.starts().0, starts + 1, "adopted as it is");
}
