//! Random histories: whatever happens, something that can be started starts.

use super::*;
use crate::launcher::{
    ladder::{CUTS_MAX, PAUSE_MAX, STARTS_MAX},
    starts::NOTE_BYTES_MAX,
};

/// Chance from a seed (xorshift).
struct Chance(u64);

impl Chance {
    fn of(seed: u64) -> Self {
        Chance(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    fn one_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }
}

/// Random histories of starts, marks, boots, damage, full disks and agents that move the pointer.
#[test]
fn whatever_happens_something_that_can_be_started_starts() {
    let histories = std::env::var("HISTORIES").ok().and_then(|text| text.parse().ok()).unwrap_or(500);
    let (mut trials, mut fallbacks) = (0, 0);
    for seed in 1..=histories {
        let mut chance = Chance::of(seed);
        let disk = disk(&BOTH, Some(Pointer::kept(Slot::A)));
        let (mut boots, mut boots_before) = (1, 1);
        // Starts of the slot on trial since it was put there, or since a mark; and how often its count was damaged.
        let (mut on_trial, mut crashes, mut damage): (Option<Slot>, u64, u64) = (None, 0, 0);
        for _ in 0..60 {
            match chance.below(24) {
                0 => plant(&disk, files().starts(), Some((0..chance.below(1100)).map(|n| (n % 251) as u8).collect())),
                1 => plant(&disk, files().pointer(), Some(vec![b's'; chance.below(40) as usize])),
                2 => plant(&disk, files().starts(), None),
                3 => *disk.refuses.borrow_mut() = vec![if chance.one_in(2) { ".pointer" } else { ".starts" }],
                4 => disk.refuses.borrow_mut().clear(),
                5 => {
                    let slot = Slot::ALL[chance.below(2) as usize];
                    disk.files.borrow_mut().remove(&files().executable(slot));
                }
                6 => Slot::ALL.into_iter().for_each(|slot| disk.put(files().executable(slot), "program")),
                _ => {}
            }
            // Each of these may hide starts from the count.
            let torn = Pointer::read(&content(&disk, &files().pointer())).is_none();
            if torn || !disk.refuses.borrow().is_empty() || Starts::decode(&starts_file(&disk)).is_none() {
                damage += 1;
            }
            boots += u64::from(chance.one_in(12));
            let usable = |slot| disk.is_program(&files().executable(slot)).is_ok();
            let mut run = Run::new(&disk, Path::new(ROOT), boot(&boots.to_string(), 5));
            let broken = chance.one_in(20).then(|| Slot::ALL[chance.below(2) as usize]);
            let mut started = None;
            while let Ok(choice) = run.choose() {
                assert!(usable(choice.slot), "seed {seed}: slot {} cannot be started", choice.slot.name());
                assert!(choice.wait <= PAUSE_MAX && choice.note.as_ref().is_none_or(|n| n.len() <= NOTE_BYTES_MAX));
                let _ = run.count(&choice);
                if broken != Some(choice.slot) {
                    started = Some(choice);
                    break;
                }
                run.failed(choice.slot, "Exec format error".into());
            }
            let Some(choice) = started else {
                let any = Slot::ALL.into_iter().any(|slot| usable(slot) && broken != Some(slot));
                assert!(!any, "seed {seed}: something could have been started");
                continue;
            };
            let trial = on_trial.filter(|slot| choice.slot == *slot && !choice.safe && choice.starts.points_at_trial());
            // With nothing to go back to, it has its turn in each round.
            if let Some(slot) = trial
                && (!usable(slot.other()) || broken == Some(slot.other()))
            {
                damage += 1;
            }
            if trial.is_some() {
                crashes += 1;
                // A start that ended with the boot is none of the three.
                let limit = u64::from(STARTS_MAX) + damage + (boots - boots_before);
                assert!(crashes <= limit, "seed {seed}: {crashes} starts on trial, {damage} damaged, boot {boots}");
            } else if on_trial.is_some() && choice.slot != on_trial.unwrap_or(Slot::A) {
                fallbacks += 1;
                on_trial = None;
            }
            match chance.below(8) {
                0 | 1 => {
                    let how = if chance.one_in(2) { Mark::Lived } else { Mark::Stopped };
                    if mark(&disk, Path::new(ROOT), choice.slot, how).is_ok() {
                        (crashes, damage, boots_before) = (0, 0, boots);
                    }
                }
                // An update: the other slot is on trial from now on.
                2 if disk.refuses.borrow().is_empty() => {
                    let next = choice.slot.other();
                    disk.put(files().executable(next), "program");
                    disk.put(files().pointer(), Pointer::trial(next).text());
                    mark(&disk, Path::new(ROOT), choice.slot, Mark::Stopped).unwrap();
                    (on_trial, crashes, damage, boots_before) = (Some(next), 0, 0, boots);
                    trials += 1;
                }
                _ => {}
            }
        }
    }
    println!("{histories} histories, {trials} trials, {fallbacks} ended on the other slot");
    assert!(trials > histories && fallbacks > histories / 10, "{trials} {fallbacks}");
}

/// Without damage the limit is exact.
#[test]
fn a_version_on_trial_gets_three_starts() {
    for seed in 1..=2000_u64 {
        let mut chance = Chance::of(seed);
        let disk = disk(&BOTH, Some(Pointer::trial(Slot::B)));
        let (mut crashes, mut cuts, mut boots) = (0, 0, 0_u64);
        loop {
            let (_, choice) = start(&disk, &boot(&boots.to_string(), 5));
            if !choice.starts.points_at_trial() {
                break;
            }
            if chance.one_in(3) {
                (boots, cuts) = (boots + 1, cuts + 1);
            } else {
                crashes += 1;
            }
        }
        assert!(crashes == STARTS_MAX || cuts == CUTS_MAX, "seed {seed}: {crashes} crashes, {cuts} cuts");
        assert!(crashes <= STARTS_MAX && cuts <= CUTS_MAX, "seed {seed}: {crashes} crashes, {cuts} cuts");
    }
}
