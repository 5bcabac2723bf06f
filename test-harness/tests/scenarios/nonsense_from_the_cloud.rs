//! A fleet server that is silent, broken or talks nonsense changes nothing on the device.

use test_harness::world::{cloud::Mood, hours, minutes};

use crate::{serving, starts};

#[test]
fn whatever_it_says_the_machine_server_runs() {
    for mood in [Mood::Nonsense, Mood::Silent, Mood::Error(2), Mood::Error(13), Mood::RefusesCredentials] {
        let mut world = serving(1);
        world.cloud.set_mood(mood);
        world.run_for(hours(2));
        assert_eq!((starts(&world), world.board.processes.serving().as_deref()), (1, Some("1.0.0")), "{mood:?}");
        world.cloud.set_mood(Mood::Well);
        let calls = world.cloud.calls().len();
        world.run_for(minutes(15));
        assert!(world.cloud.calls().len() > calls, "{mood:?}: it comes back");
    }
}

#[test]
fn a_broken_server_is_not_hammered() {
    for mood in [Mood::Error(13), Mood::Silent, Mood::RefusesCredentials] {
        let mut world = serving(2);
        world.cloud.set_mood(mood);
        let before = world.board.clock.elapsed();
        world.run_for(hours(2));
        let calls = world.cloud.attempts_since(before);
        assert!(calls < 1500, "{mood:?}: {calls} attempts in two hours");
    }
}

#[test]
fn without_an_identity_the_agent_waits_and_does_not_crash() {
    let mut world = test_harness::world::World::new(test_harness::world::Seed(3));
    world.cloud.set_identity(None);
    world.start();
    world.run_for(hours(2));
    assert_eq!(starts(&world), 0);
    world.cloud.set_identity(Some(test_harness::world::cloud::PART_ID));
    crate::assert_serves(&mut world, "1.0.0", minutes(15));
}
