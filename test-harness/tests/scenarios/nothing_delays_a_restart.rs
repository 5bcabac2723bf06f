//! Whatever else the agent waits for, a machine server that dies is started again at once.

use std::time::Duration;

use board::process::Exit;
use test_harness::world::{World, cloud::Mood, minutes, seconds};

use crate::{serving, starts};

/// What is wrong, and how it comes to be.
type Trouble = (&'static str, fn(&mut World));

const TROUBLES: [Trouble; 5] = [
    ("a cloud that opens connections and says nothing", |world| world.cloud.set_mood(Mood::Silent)),
    ("no network", |world| world.board.web.set_online(false)),
    ("a network that loses the sense of time", |world| world.board.web.set_latency(minutes(5))),
    ("a download that stalls", |world| {
        world.board.web.set_bandwidth(1);
        world.factory.channel("stable", "1.1.0");
    }),
    ("a download that stalls, and a cloud that says nothing any more", |world| {
        world.board.web.set_bandwidth(1);
        world.factory.channel("stable", "1.1.0");
        world.run_for(minutes(2));
        world.cloud.set_mood(Mood::Silent);
    }),
];

#[test]
fn a_restart_waits_for_nothing() {
    for (trouble, bring) in TROUBLES {
        let mut world = serving(1);
        bring(&mut world);
        // At any moment of whatever is being waited for; each is the first crash in a row.
        for moment in 0..12 {
            world.run_for(minutes(6) + seconds(moment * 7));
            let before = starts(&world);
            world.crash_server(Exit::Signal(11));
            world.run_for(Duration::from_millis(5));
            assert_eq!(starts(&world), before + 1, "{trouble}, moment {moment}");
        }
    }
}
