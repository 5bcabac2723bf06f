//! The same scenario again and again, interrupted at each of its writes in turn.
//!
//! Owns the loop. A power cut or a kill in the middle of the first write, of the second, and so on until the scenario
//! makes fewer writes than that; each with nothing, a part and all of the write done. The agent is started again each
//! time and the scenario goes on; what it promises has to come true all the same.

use std::io::ErrorKind::StorageFull;

use board_sim::{Interruption, Reached};

use super::World;

/// A scenario that makes more writes than this is too long for this purpose.
const WRITES_MAX: u64 = 5_000;

/// Runs `scenario` in a fresh world for each write and each way to be interrupted in it, and returns how many runs that
/// were. `kept` asserts what must be true at the end of each.
///
/// # Panics
/// With whatever broke, after saying where the interruption was.
pub fn at_every_write(make: impl Fn() -> World, scenario: impl Fn(&mut World), kept: impl Fn(&World)) -> u64 {
    let ways = [Interruption::PowerCut, Interruption::Killed]
        .into_iter()
        .flat_map(|interruption| Reached::ALL.into_iter().map(move |reached| (interruption, reached)));
    let mut runs = 0;
    for (interruption, reached) in ways {
        for nth in 1..=WRITES_MAX {
            let mut world = make();
            // What was written before the scenario begins is no part of it.
            let nth = world.board.files.writes() + nth;
            world.board.files.interrupt_at_write(nth - world.board.files.writes(), interruption, reached);
            let place = Place { nth, interruption, reached, world: world.hands.clone() };
            scenario(&mut world);
            kept(&world);
            let reached_it = world.board.files.writes() >= nth;
            drop(place);
            runs += 1;
            if !reached_it {
                break;
            }
        }
    }
    runs
}

/// How many writes one after the other are refused: a single one, and as many as a disk refuses that is full for a while.
const REFUSED: [u64; 2] = [1, 12];

/// Runs `scenario` in a fresh world for each write, which the disk refuses, alone or with those that follow it, and
/// returns how many runs that were. `kept` asserts what must be true at the end of each.
///
/// # Panics
/// With whatever broke, after saying which writes were refused.
pub fn at_every_refusal(make: impl Fn() -> World, scenario: impl Fn(&mut World), kept: impl Fn(&World)) -> u64 {
    let mut runs = 0;
    for refused in REFUSED {
        for nth in 1..=WRITES_MAX {
            let mut world = make();
            (nth..nth + refused).for_each(|nth| world.board.files.fail_write(nth, StorageFull));
            let place = Refusal { nth, refused, world: world.hands.clone() };
            scenario(&mut world);
            kept(&world);
            let reached_it = world.board.files.writes() >= nth;
            drop(place);
            runs += 1;
            if !reached_it {
                break;
            }
        }
    }
    runs
}

/// Says which writes were refused when a run fails.
struct Refusal {
    nth: u64,
    refused: u64,
    world: super::Hands,
}

impl Drop for Refusal {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Refusal { nth, refused, world } = self;
            let history = world.board.files.history();
            let write = usize::try_from(*nth).ok().and_then(|nth| history.get(nth - 1)).map_or("", String::as_str);
            eprintln!("{refused} writes refused from write {nth} on ({write})\n{}", world.chronicle.tail(80));
        }
    }
}

/// Says where the interruption was when a run fails.
struct Place {
    nth: u64,
    interruption: Interruption,
    reached: Reached,
    world: super::Hands,
}

impl Drop for Place {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let Place { nth, interruption, reached, world } = self;
        let history = world.board.files.history();
        let write = usize::try_from(*nth).ok().and_then(|nth| history.get(nth - 1)).map_or("no write", String::as_str);
        eprintln!(
            "{interruption:?} at write {nth} ({write}), of which {reached:?} got through\n{}",
            world.chronicle.tail(80)
        );
    }
}
