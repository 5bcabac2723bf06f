//! What is left of files after an interruption in the middle of a write.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    time::Duration,
};

use board::{
    Board,
    fetch::{Download, Progress},
    files::Access,
};
use board_sim::{Driven, Driver, Interruption, Reached, SimBoard, fetch::Resource, power::Interrupted};

const RECORD: &str = "/root/record";
const SPOOL: &str = "/root/spool";

/// Lets `act` be interrupted in its only write, and starts the device again.
fn interrupted(sim: &SimBoard, by: Interruption, reached: Reached, act: impl Fn(&Board)) -> Board {
    let board = sim.switch_on();
    sim.files.interrupt_at_write(1, by, reached);
    let payload = catch_unwind(AssertUnwindSafe(|| act(&board))).expect_err("the write is interrupted");
    assert_eq!(payload.downcast_ref(), Some(&Interrupted(by)));
    match by {
        Interruption::PowerCut => sim.cut_power(),
        Interruption::Killed => sim.end_life(),
    }
    let late = board.files.write(Path::new("/root/late"), b"x", Access::Private);
    assert!(late.is_err() && sim.files.content("/root/late").is_none(), "an agent that is gone writes nothing");
    sim.switch_on()
}

#[test]
fn a_record_holds_the_old_content_or_the_new() {
    for by in [Interruption::PowerCut, Interruption::Killed] {
        for (reached, left) in [(Reached::Nothing, "old"), (Reached::Part, "old"), (Reached::Everything, "new")] {
            let sim = SimBoard::new(1);
            sim.files.put(RECORD, "old", Access::Private);
            let board = interrupted(&sim, by, reached, |board| {
                drop(board.files.write(Path::new(RECORD), b"new", Access::Private))
            });
            let content = board.files.read(Path::new(RECORD), 10).unwrap().unwrap();
            assert_eq!(content, left.as_bytes(), "{by:?} {reached:?}");
        }
    }
}

#[test]
fn an_appended_line_may_be_torn_and_the_lines_before_it_are_not() {
    for seed in 0..50 {
        let sim = SimBoard::new(seed);
        sim.files.put(SPOOL, "one\n", Access::Private);
        let board = interrupted(&sim, Interruption::PowerCut, Reached::Part, |board| {
            drop(smol::block_on(board.files.append(Path::new(SPOOL), b"two\n")));
        });
        let content = board.files.read(Path::new(SPOOL), 100).unwrap().unwrap();
        assert!(content.starts_with(b"one\n") && b"one\ntwo\n".starts_with(&content) && content.len() < 8);
    }
}

#[test]
fn what_was_streamed_is_unsure_until_it_is_put_on_stable_storage() {
    let content = vec![7_u8; 300_000];
    let outcome = |seed: u64, sync: bool| {
        let sim = SimBoard::new(seed);
        sim.web.serve("http://mirror/file", Resource::of(content.clone()));
        let board = sim.switch_on();
        let driver = Driver::new(&sim);
        let files = board.files.clone();
        driver.block_on(async move {
            let what = Download {
                url: "http://mirror/file".into(),
                into: "/root/part".into(),
                validator: None,
                bytes_max: 1 << 20,
                stall: Duration::from_secs(30),
                total: Duration::from_secs(600),
                rate: None,
                reserve: 0,
            };
            board.fetch.download(&what, &Progress::default()).await.unwrap();
        });
        if sync {
            files.set_access(Path::new("/root/part"), Access::Executable).unwrap();
        }
        files.rename(Path::new("/root/part"), Path::new("/root/slot")).unwrap();
        sim.cut_power();
        sim.files.content("/root/slot")
    };
    assert!((0..20).all(|seed| outcome(seed, true).as_deref() == Some(&content[..])));
    assert!((0..20).any(|seed| outcome(seed, false).is_some_and(|left| left.len() < content.len())));
    assert!((0..20).any(|seed| outcome(seed, false).is_some_and(|left| left.contains(&0))));
}

#[test]
fn an_interruption_ends_a_task_in_the_middle_and_the_driver_says_so() {
    let sim = SimBoard::new(3);
    let board = sim.switch_on();
    let driver = Driver::new(&sim);
    sim.files.interrupt_at_write(2, Interruption::PowerCut, Reached::Everything);
    let task = driver.executor().spawn(async move {
        for minute in 0..10_u8 {
            board.clock.sleep_until(board.clock.now() + Duration::from_secs(60)).await;
            board.files.write(Path::new(RECORD), &[minute], Access::Private).unwrap();
        }
    });
    let mut rests = 0;
    let driven = driver.run_for(Duration::from_secs(3600), || rests += 1);
    assert_eq!(driven, Driven::Interrupted(Interruption::PowerCut));
    assert_eq!(sim.clock.elapsed(), Duration::from_secs(120));
    drop(task);
    sim.cut_power();
    assert_eq!(sim.files.content(RECORD), Some(vec![1]));
    assert_eq!(sim.files.history(), ["write /root/record", "write /root/record"]);
    assert!(rests >= 2);
}
