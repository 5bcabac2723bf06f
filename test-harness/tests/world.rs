//! The simulated world itself, with an agent small enough to be obvious: it counts minutes, on the disk.

use std::{path::Path, rc::Rc};

use actors::rank::Actor;
use board::files::Access;
use expect_test::expect;
use test_harness::world::{
    Seed, World, hours,
    interruptions::at_every_write,
    life::{Agent, Needs, Started},
    minutes,
};

const COUNT: &str = "/root/count";

/// Writes each minute's number once, and goes on where it was. A careless one writes the number in two places.
fn counter(careless: bool) -> Agent {
    Rc::new(move |Needs { board, trace, executor, .. }: Needs| {
        let (stop, stopped) = actors::kit::mailbox::outside::<()>(1);
        let read = |board: &board::Board, path: &str| {
            let content = board.files.read(Path::new(path), 100).ok().flatten()?;
            String::from_utf8(content).ok()?.parse::<u64>().ok()
        };
        let counting = executor.spawn(async move {
            let mut count = read(&board, COUNT).unwrap_or(0);
            trace.note(board.clock.now(), Actor::Config, format_args!("starts at {count}"));
            if careless {
                assert_eq!(read(&board, "/root/copy").unwrap_or(0), count, "two records of one thing");
            }
            loop {
                board.clock.sleep_until(board.clock.now() + minutes(1)).await;
                count += 1;
                let text = count.to_string();
                let _ = board.files.write(Path::new(COUNT), text.as_bytes(), Access::Private);
                if careless {
                    let _ = board.files.write(Path::new("/root/copy"), text.as_bytes(), Access::Private);
                }
                trace.note(board.clock.now(), Actor::Config, format_args!("counted {count}"));
            }
        });
        let run = Box::pin(async move {
            stopped.next().await;
            counting.cancel().await;
            "as asked".to_owned()
        });
        Started { run, stop: Box::new(move || stop.try_send(()).unwrap_or_default()) }
    })
}

fn world(careless: bool) -> World {
    World::with_agent(Seed(1), counter(careless))
}

#[test]
fn time_flies_and_the_chronicle_tells() {
    let mut world = world(false);
    world.start();
    world.after(minutes(2), |hands| hands.chronicle.note("somebody came by"));
    world.run_for(minutes(3));
    world.cut_power();
    world.run_for(minutes(1));
    assert_eq!(world.stop_agent().as_secs(), 0);
    world.expect_trace(&expect![[r#"
        00:00  config  starts at 0
        01:00  config  counted 1
        02:00  world   somebody came by
        02:00  config  counted 2
        03:00  config  counted 3
        03:00  world   power cut
        03:15  config  starts at 3
        04:15  config  counted 4
        04:15  world   agent asked to stop
        04:15  world   agent ended: as asked
    "#]]);
    assert_eq!(world.lives(), 2);
}

#[test]
fn one_record_survives_an_interruption_at_every_write() {
    let runs = at_every_write(
        || world(false),
        |world| {
            world.start();
            world.run_for(minutes(6));
        },
        |world| {
            let count: u64 = String::from_utf8(world.board.files.content(COUNT).unwrap()).unwrap().parse().unwrap();
            assert!((4..=6).contains(&count), "{count}");
        },
    );
    assert_eq!(runs, 6 * 7, "two interruptions, three ways, six writes and one too many");
}

#[test]
#[should_panic(expected = "a task panicked")]
fn two_records_of_one_thing_do_not() {
    at_every_write(
        || world(true),
        |world| {
            world.start();
            world.run_for(minutes(4));
        },
        |_| (),
    );
}

#[test]
fn a_month_is_quick() {
    let mut world = world(false);
    world.start();
    world.run_for(hours(24 * 30));
    assert_eq!(world.board.files.content(COUNT).unwrap(), (30 * 24 * 60).to_string().into_bytes());
}
