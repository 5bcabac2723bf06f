//! What goes wrong, chosen by the seed, and how everything becomes well again.
//!
//! Owns the repertoire of misfortune. A fault is put into the world and takes itself out again after a while; what
//! people do at the same time (change the configuration, mark for restart) is in the same repertoire, because the worst
//! moment to do something is during a fault.

use std::{io, time::Duration};

use api::brand;
use board::process::{Exit, Stream};
use board_sim::{
    Interruption, Random, Reached,
    fetch::{Resource, Spoiled},
    process::Permission,
};
use serde_json::json;

use super::{
    Hands,
    cloud::{Call, Mood},
    factory::IMAGE_BYTES,
    minutes, seconds,
};

/// Something that happens to a world.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// No network, for a while.
    Offline(Duration),
    /// The network goes and comes back so many times, a few seconds each.
    Flapping(u64),
    /// A hotel's page answers everything, for a while.
    CaptivePortal(Duration),
    /// The fleet server behaves like this, for a while.
    Cloud(Mood, Duration),
    /// Answers take this long, for a while.
    SlowNetwork(Duration, Duration),
    /// The machine server ends.
    ServerEnds(Exit),
    /// The machine server stops answering.
    ServerHangs,
    /// The machine server says this about restarts from now on.
    ServerSays(Permission),
    /// The machine server prints a lot.
    ServerShouts(u32),
    /// The agent is interrupted in the middle of a write soon.
    Interrupted(Interruption, u64, Reached),
    /// A write soon fails.
    WriteFails(u64, io::ErrorKind),
    /// One bit of something that the agent keeps for itself changes on the disk.
    Rot(u64),
    /// Hardly any room on the disk, for a while.
    DiskFull(Duration),
    /// The wall clock jumps by this many milliseconds.
    ClockJumps(i64),
    /// Nobody vouches for the wall clock, for a while.
    ClockUnsure(Duration),
    /// What passes of a version's bytes is spoiled, for a while.
    Spoiled(&'static str, Spoiled, Duration),
    /// Somebody sets a variable of the machine server.
    Environment(u64),
    /// Somebody chooses a version of the machine server, and with it the stable agent.
    Version(&'static str),
    /// The channel `stable` means this machine server from now on.
    Channel(&'static str),
    /// Somebody chooses a version of the agent, and with it the stable machine server.
    AgentVersion(&'static str),
    /// The channel `stable` means this agent from now on.
    AgentChannel(&'static str),
    /// Somebody wants what failed to be tried again.
    Retry,
    /// Somebody wants a restart.
    Mark,
    /// Somebody switches the machine server off, for a while.
    Disabled(Duration),
}

/// Versions that are published; some of them do not work, as the seed has it.
pub const VERSIONS: [&str; 3] = ["1.0.0", "1.1.0", "1.2.0-dev"];

/// Versions of the agent that are published; the first is installed and lives, of the others some do not.
pub const AGENTS: [&str; 3] = ["1.0.0", "2.0.0", "2.1.0"];

/// One misfortune.
#[must_use]
pub fn any(random: &Random) -> Fault {
    let a_while = || seconds(random.below(1200));
    let version = || *random.pick(&VERSIONS);
    match random.below(28) {
        0 | 1 => Fault::Offline(a_while()),
        2 => Fault::CaptivePortal(a_while()),
        3 | 4 => {
            let moods = [
                Mood::Silent,
                Mood::Error(13),
                Mood::Error(14),
                Mood::RefusesCredentials,
                Mood::Nonsense,
                Mood::LosesAnswers(*random.pick(&Call::ALL), 3),
            ];
            Fault::Cloud(*random.pick(&moods), a_while())
        }
        5 => Fault::SlowNetwork(Duration::from_millis(random.below(30_000)), a_while()),
        6 | 7 => Fault::ServerEnds(*random.pick(&[Exit::Code(0), Exit::Code(3), Exit::Signal(9), Exit::Signal(11)])),
        8 => Fault::ServerHangs,
        9 => {
            let says = [
                Permission::Allowed,
                Permission::Refused,
                Permission::Silent,
                Permission::Error,
                Permission::Unknown,
                Permission::Garbage,
            ];
            Fault::ServerSays(*random.pick(&says))
        }
        10 => Fault::ServerShouts(u32::try_from(random.below(2000)).unwrap_or(0)),
        11 | 12 => Fault::Interrupted(Interruption::PowerCut, 1 + random.below(12), *random.pick(&Reached::ALL)),
        13 => Fault::Interrupted(Interruption::Killed, 1 + random.below(12), *random.pick(&Reached::ALL)),
        14 => {
            let kinds = [io::ErrorKind::StorageFull, io::ErrorKind::Other, io::ErrorKind::ReadOnlyFilesystem];
            Fault::WriteFails(1 + random.below(8), *random.pick(&kinds))
        }
        15 => Fault::DiskFull(a_while()),
        16 if random.chance(50) => {
            let day = 86_400_000;
            Fault::ClockJumps(i64::try_from(random.below(20 * day)).unwrap_or(0) - 10 * 86_400_000)
        }
        16 => Fault::ClockUnsure(a_while()),
        17 => {
            let at = random.below(IMAGE_BYTES as u64);
            let spoiled =
                [Spoiled::EndsAfter(at), Spoiled::StallsAfter(at), Spoiled::CaptivePage, Spoiled::FlippedBit(at)];
            Fault::Spoiled(version(), random.pick(&spoiled).clone(), a_while())
        }
        18 => Fault::Environment(random.below(1000)),
        19 => {
            let settings = ["stable", "dev", "1.0.0", "1.1.0"];
            if random.chance(50) { Fault::Version(random.pick::<&str>(&settings)) } else { Fault::Channel(version()) }
        }
        20 => Fault::Mark,
        21 => Fault::Rot(random.any()),
        22 => Fault::Flapping(1 + random.below(60)),
        23 | 24 => Fault::AgentVersion(random.pick::<&str>(&["stable", "1.0.0", "2.0.0", "2.1.0"])),
        25 => Fault::AgentChannel(random.pick::<&str>(&AGENTS)),
        26 => Fault::Retry,
        _ => Fault::Disabled(a_while()),
    }
}

/// Lets it happen now.
pub fn strike(hands: &Hands, fault: &Fault) {
    hands.chronicle.note(format!("{fault:?}"));
    let Hands { board, cloud, factory, .. } = hands;
    match fault.clone() {
        Fault::Offline(time) => {
            board.web.set_online(false);
            until(hands, time, |hands| hands.board.web.set_online(true));
        }
        Fault::Flapping(0) => {}
        Fault::Flapping(times) => {
            board.web.set_online(false);
            until(hands, seconds(1 + times % 7), move |hands| {
                hands.board.web.set_online(true);
                until(hands, seconds(1 + times % 11), move |hands| strike(hands, &Fault::Flapping(times - 1)));
            });
        }
        Fault::CaptivePortal(time) => {
            board.web.set_captive(true);
            // The fleet server cannot be reached through it either.
            cloud.set_mood(Mood::Error(14));
            until(hands, time, |hands| {
                hands.board.web.set_captive(false);
                hands.cloud.set_mood(Mood::Well);
            });
        }
        Fault::Cloud(mood, time) => {
            cloud.set_mood(mood);
            until(hands, time, |hands| hands.cloud.set_mood(Mood::Well));
        }
        Fault::SlowNetwork(latency, time) => {
            board.web.set_latency(latency);
            until(hands, time, |hands| hands.board.web.set_latency(board_sim::fetch::LATENCY));
        }
        Fault::ServerEnds(exit) if !board.processes.running().is_empty() => board.processes.crash(exit),
        Fault::ServerEnds(_) => {}
        Fault::ServerHangs => board.processes.hang(),
        Fault::ServerSays(permission) => board.processes.permit(permission),
        Fault::ServerShouts(lines) if !board.processes.running().is_empty() => {
            for line in 0..lines {
                board.processes.say(Stream::Err, &format!("shouting, {line}"));
            }
        }
        Fault::ServerShouts(_) => {}
        Fault::Interrupted(interruption, nth, reached) => board.files.interrupt_at_write(nth, interruption, reached),
        Fault::WriteFails(nth, kind) => board.files.fail_write(nth, kind),
        Fault::Rot(which) => rot(hands, which),
        Fault::DiskFull(time) => {
            board.files.leave_free(2000);
            until(hands, time, |hands| hands.board.files.set_capacity(board_sim::files::CAPACITY));
        }
        Fault::ClockJumps(millis) => board.clock.jump_wall(millis),
        Fault::ClockUnsure(time) => {
            board.clock.set_synchronised(false);
            until(hands, time, |hands| hands.board.clock.set_synchronised(true));
        }
        Fault::Spoiled(version, how, time) => {
            let url = factory.artifact(version);
            factory.tamper(version, |resource| resource.spoiled(how));
            until(hands, time, move |hands| {
                if let Some(resource) = hands.board.web.resource(&url) {
                    hands.board.web.serve(url, Resource { spoiled: None, ..resource });
                }
            });
        }
        Fault::Environment(value) => advanced(hands, &json!({"platform_server_env": {"VALUE": value.to_string()}})),
        Fault::Version(version) => cloud.set_section("version_control", &json!({"platform-server": version})),
        Fault::Channel(version) => factory.channel("stable", version),
        Fault::AgentVersion(version) => cloud.set_section("version_control", &json!({"agent": version})),
        Fault::AgentChannel(version) => factory.agent_channel("stable", version),
        Fault::Retry => cloud.want_retry(),
        Fault::Mark => cloud.mark_for_restart(),
        Fault::Disabled(time) => {
            advanced(hands, &json!({"disable_platform_server": true}));
            until(hands, time, |hands| advanced(hands, &json!({})));
        }
    }
}

/// Changes one bit of a record, a cache or a document. Programs are spared: nobody promises that one with a wrong bit
/// runs; and so is the spool, which counts what it cannot read and says so, and may then say some lines twice.
fn rot(hands: &Hands, which: u64) {
    let files = &hands.board.files;
    let programs: Vec<_> = files.executables().into_iter().map(|(path, ..)| path).collect();
    let mut kept = files.paths();
    kept.retain(|path| {
        let spool = path.extension().is_some_and(|ending| ending == "spool");
        path.starts_with(brand::ROOT_FOLDER) && !programs.contains(path) && !spool
    });
    let random = Random::new(which);
    if kept.is_empty() {
        return;
    }
    let path = random.pick(&kept);
    let length = files.content(path).map_or(0, |content| content.len() as u64);
    if length > 0 {
        hands.chronicle.note(format!("{} rots", path.display()));
        files.corrupt(path, usize::try_from(random.below(length)).unwrap_or(0));
    }
}

/// Puts `count` misfortunes of the seed into the next `time`.
pub fn plan(hands: &Hands, random: &Random, count: u64, time: Duration) {
    for _ in 0..count {
        let (at, fault) =
            (Duration::from_millis(random.below(u64::try_from(time.as_millis()).unwrap_or(0))), any(random));
        let hands = hands.clone();
        let clock = hands.board.clock.clone();
        clock.happens_after(at, move || strike(&hands, &fault));
    }
}

/// Everything is well again: network, disk, clock, fleet server, and a machine server that permits restarts.
pub fn heal(hands: &Hands) {
    hands.chronicle.note("everything is well again");
    let Hands { board, cloud, factory, .. } = hands;
    board.web.set_online(true);
    board.web.set_captive(false);
    board.web.set_latency(board_sim::fetch::LATENCY);
    board.files.heal();
    board.files.set_capacity(board_sim::files::CAPACITY);
    board.clock.set_synchronised(true);
    let should =
        board_sim::clock::WALL_AT_START.as_millis() + i64::try_from(board.clock.elapsed().as_millis()).unwrap_or(0);
    board.clock.jump_wall(should - board.clock.wall_clock().as_millis());
    board.processes.permit(Permission::Allowed);
    cloud.set_mood(Mood::Well);
    for version in VERSIONS {
        factory.tamper(version, |resource| Resource { spoiled: None, ..resource });
    }
}

/// Longest time after which a fault has taken itself out.
pub const FAULT_MAX: Duration = minutes(20);

fn until(hands: &Hands, time: Duration, end: impl FnOnce(&Hands) + 'static) {
    let inside = hands.clone();
    hands.board.clock.happens_after(time, move || end(&inside));
}

fn advanced(hands: &Hands, settings: &serde_json::Value) {
    hands.cloud.set_section("advanced_settings", settings);
}
