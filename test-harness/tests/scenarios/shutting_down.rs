//! The agent ends in order and in time, and takes the machine server with it.

use std::time::Duration;

use board_sim::{process::Script, service::Word};
use test_harness::world::{minutes, seconds};

use crate::{assert_serves, serving, started_with};

#[test]
fn the_machine_server_is_asked_to_end_and_the_last_words_are_kept() {
    let mut world = serving(1);
    let took = world.stop_agent();
    assert!(world.board.processes.running().is_empty());
    assert!(took < seconds(5), "{took:?}");
    let told: Vec<_> = world.board.service.told().into_iter().map(|told| told.what).collect();
    assert!(matches!(told.first(), Some(Word::Ready(_))), "{told:?}");
    assert_eq!(told.last(), Some(&Word::Stopping));
}

#[test]
fn one_that_does_not_listen_is_killed_after_the_limit() {
    let deaf = Script { ignores_sigterm: true, children: 3, ..Script::default() };
    let mut world = started_with(2, "1.0.0", deaf);
    assert_serves(&mut world, "1.0.0", minutes(2));
    let took = world.stop_agent();
    assert!(took >= seconds(10) && took < minutes(4), "{took:?}");
    assert_eq!(world.board.processes.running().len() + world.board.processes.orphans(), 0);
}

#[test]
fn it_ends_in_time_also_without_network_and_while_something_is_fetched() {
    for online in [true, false] {
        let mut world = serving(3);
        world.board.web.set_bandwidth(1000);
        world.factory.channel("stable", "1.1.0");
        world.run_for(minutes(20));
        world.board.web.set_online(online);
        let took = world.stop_agent();
        assert!(took < seconds(30), "{took:?}");
        assert!(world.board.processes.running().is_empty());
    }
}

#[test]
fn what_was_said_before_the_end_arrives_after_the_next_start() {
    let mut world = started_with(4, "1.0.0", Script { chatter: Some(Duration::from_millis(700)), ..Script::default() });
    assert_serves(&mut world, "1.0.0", minutes(2));
    world.board.web.set_online(false);
    world.run_for(minutes(5));
    let number = world.board.processes.starts().0;
    world.stop_agent();
    world.pass(minutes(1));
    world.board.web.set_online(true);
    world.start();
    world.run_for(minutes(10));
    let of_it = |message: &str| message.ends_with(&format!(" of {number}"));
    let arrived = world.cloud.lines().iter().filter(|kept| of_it(&kept.entry.message)).count();
    assert!(arrived > 420, "five minutes of lines: {arrived}");
}

#[test]
fn the_service_manager_hears_of_it_while_it_takes_long() {
    let deaf = Script { ignores_sigterm: true, ..Script::default() };
    let mut world = started_with(5, "1.0.0", deaf);
    let watchdog = seconds(3);
    world.board.service.watch(watchdog);
    world.stop_agent();
    world.start();
    assert_serves(&mut world, "1.0.0", minutes(2));
    let begin = world.board.clock.elapsed();
    let took = world.stop_agent();
    assert!(took >= seconds(10), "{took:?}");
    let told = world.board.service.told();
    let mut heard: Vec<_> = told.iter().filter(|told| told.what == Word::Alive).map(|told| told.at).collect();
    assert!(heard.iter().any(|at| *at > begin), "{heard:?}");
    heard.retain(|at| *at + minutes(1) > begin);
    heard.push(begin + took);
    // A message may be as late as the clock's phase; the manager gives it twice this time.
    let longest = heard.windows(2).map(|pair| pair[1] - pair[0]).max();
    assert!(longest <= Some(watchdog + seconds(1)), "{longest:?}: {heard:?}");
}
