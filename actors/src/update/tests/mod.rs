//! The walk as rows, stored things as round trips, and whole walks on a simulated device.

mod device;
mod formats;
mod own;
mod packed;
mod rows;

use std::{path::Path, rc::Rc, time::Duration};

use api::{brand, device_config::VersionSetting};
use board::Mono;

use super::{
    check::Found,
    events::{Effect, Effects, Event, Sight, Trouble, VerifyTrouble},
    kind::Kind,
    machine::{Machine, Policy},
    record::{Bad, Outcome, Record, State},
    slots::{Installed, Layout, Slot, Slots},
    target::{Promise, Source, Target},
    wish::{Pins, Wish},
};
use crate::{
    cloud::Reach,
    server::{Command, Phase, Program},
};

const MINUTE: Duration = Duration::from_secs(60);

fn at(seconds: u64) -> Mono {
    Mono::BOOT + Duration::from_secs(1000 + seconds)
}

fn policy() -> Policy {
    let layout = Layout::new(Path::new("/root"), brand::MACHINE_SERVER);
    Policy { layout, kind: Kind::MachineServer, minute: MINUTE, wait: Some(false), seed: 1, safe: false }
}

/// Bytes of a version: its number repeated.
fn installed(version: &str) -> Installed {
    let number = version.bytes().fold(0, u8::wrapping_add);
    Installed { version: version.into(), sha256: [number; 32], length: 100, pin: None }
}

fn target(version: &str) -> Target {
    let Installed { sha256, length, .. } = installed(version);
    let source = Source::Web(format!("http://fleet/{version}"));
    Target { version: version.into(), source, promise: Some(Promise { sha256, length, packed: None }) }
}

fn found(version: &str) -> Event {
    Event::Checked(Ok(Found { target: target(version), warning: String::new() }))
}

fn wish(setting: &str) -> Wish {
    Wish {
        setting: VersionSetting::parse(setting).expect("a setting"),
        has_window: false,
        pins: Pins::Any,
        release_keys: None,
        probation_minutes: None,
        wait: false,
        rate: None,
        reserve: 0,
    }
}

fn wants(wish: Wish) -> Event {
    Event::Wish(Rc::new(wish))
}

fn slots(active: Option<Slot>, a: Option<&str>, b: Option<&str>) -> Slots {
    Slots { active, a: a.map(installed), b: b.map(installed) }
}

fn record(state: State, slots: Slots) -> Record {
    Record { wanted: "stable".into(), slots, state, ..Record::default() }
}

fn program(slot: Slot, version: &str) -> Program {
    Program { version: version.into(), path: policy().layout.executable(slot) }
}

/// The program in a slot, as its keeper reports it.
fn runs(opening: u64, slot: Slot, version: &str, phase: Phase, crashes: u64) -> Event {
    Event::Server(Sight { opening, program: Some(program(slot, version)), phase, crashes, ..Sight::default() })
}

fn opens(opening: u64) -> Event {
    Event::Server(Sight { opening, ..Sight::default() })
}

/// Effects as a person would say them.
fn said(effects: &Effects) -> String {
    let version = |program: &Program| program.version.clone();
    let words = effects.iter().map(|effect| match effect {
        Effect::Store(record) => format!("store {}", record.state.name()),
        Effect::Point(pointer) => format!("point {pointer}"),
        Effect::Cancel => "cancel".into(),
        Effect::Discard => "discard".into(),
        Effect::Check(wish) => format!("check {}", wish.setting),
        Effect::Download(target, _) => format!("download {}", target.version),
        Effect::Verify(target, _) => format!("verify {}", target.version),
        Effect::Place(slot, _) => format!("place {}", slot.name()),
        Effect::Tell(Command::Run { opening, program }) => {
            format!("run {opening} {}", program.as_ref().map_or_else(|| "nothing".into(), version))
        }
        Effect::Tell(Command::Hold { opening }) => format!("hold {opening}"),
        Effect::Tell(Command::Switch { program }) => format!("switch {}", program.version),
        Effect::Tell(Command::Back { program }) => format!("back {}", program.version),
    });
    let words: Vec<_> = words.collect();
    let stores = words.iter().filter(|word| word.starts_with("store")).count();
    assert!(stores <= 1, "one step is one record: {words:?}");
    assert!(stores == 0 || words[0].starts_with("store"), "stored before acted: {words:?}");
    words.join(", ")
}

/// A machine whose first step has been taken.
fn resumed(policy: Policy, record: Record, now: Mono) -> Machine {
    let mut machine = Machine::new(policy, record, now);
    machine.resume();
    machine
}

/// Lets time pass: a version on probation is looked at whenever the machine wants to, and nothing comes of it.
fn look_on(machine: &mut Machine, until: u64) {
    while matches!(machine.state(), State::Probation { .. })
        && let Some(due) = machine.deadline().filter(|due| *due < at(until))
    {
        assert_eq!(said(&machine.step(due, Event::DeadlinePassed)), "", "a look at {due:?}");
    }
}

/// Steps through events and says what each brought.
fn walk<const N: usize>(machine: &mut Machine, steps: [(u64, Event, &str); N]) {
    for (index, (second, event, expected)) in steps.into_iter().enumerate() {
        let shown = format!("step {index} at {second} s: {event:?}");
        look_on(machine, second);
        assert_eq!(said(&machine.step(at(second), event)), expected, "{shown}");
    }
}

fn outcome(machine: &Machine) -> Option<Outcome> {
    match machine.state() {
        State::Idle(outcome) => Some(*outcome),
        _ => None,
    }
}

fn network_down() -> Event {
    Event::Downloaded(Err(Trouble::Network("no route".into())))
}

fn refused() -> Event {
    Event::Verified(Err(VerifyTrouble::Refused(super::verify::Refusal::Digest)))
}
