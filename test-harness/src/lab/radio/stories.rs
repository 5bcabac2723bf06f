//! What is promised about an agent on a board with radios, story by story. Each says in figures what was seen.

use std::time::Instant;

use serde_json::json;

use super::{bluetooth, board::RadioBoard, doors, figures, networks, restarts, sheet, tethering};
use crate::{
    lab::{
        board::Target,
        stories::{Stage, Story, UNIT, active_again, ensure},
    },
    real::{Trouble, eventually},
};

/// All of them, with the names by which they are asked for.
pub const STORIES: [(&str, Story); 13] = [
    ("limits", limits),
    ("networks", networks::known),
    ("loss", networks::loss),
    ("portal", doors::portal),
    ("sheet", sheet::sheet),
    ("takeover", doors::takeover),
    ("by-hand", doors::by_hand),
    ("bluetooth", bluetooth::app),
    ("improv", bluetooth::improv),
    ("late-radios", restarts::late),
    ("restarts", restarts::under_doors),
    ("restart-in-join", restarts::in_a_join),
    ("tethering", tethering::tethering),
];

/// What is measured, and played when it is asked for: most of its four minutes nothing may happen.
pub const MEASURES: [(&str, Story); 1] = [("figures", figures::figures)];

/// Those of a board with an arm64 processor, which run when they are asked for: emulation is slower still, and the programs
/// for it have to be built by a compiler that makes them.
pub const ARM64: [(&str, Story); 2] = [("arm64-portal", doors::portal), ("arm64-bluetooth", bluetooth::app)];

/// The control group of machine servers, on the board.
const GROUP: &str = "/sys/fs/cgroup/system.slice/platform-agent.service/server";

/// `server_limits` under systemd 252 with control groups in version 2: in force, felt by who wants more, named in the
/// status; an agent that dies is followed by one that adopts, under the same limits.
fn limits(stage: &Stage<'_>) -> Result<Vec<String>, Trouble> {
    let site = stage.site()?;
    let board = stage.radio_board()?;
    board.lead_to(&site.fleet.url)?;
    board.plug_into_office()?;
    site.configure(&json!({"advanced_settings": {"server_limits": {"memory_max_megabytes": 48, "cpu_weight": 50}}}))?;
    let begin = Instant::now();
    site.install(&board)?;
    site.until_ready(&board)?;
    let installed = begin.elapsed().as_secs_f64();
    in_force(&board)?;

    let first = answering(&board, 0)?;
    let begin = Instant::now();
    hog(&board)?;
    let want = "killed for want of memory: memory_max_megabytes is 48";
    site.until(&board, "a hog that was killed", |status| {
        status.server.as_ref().is_some_and(|server| server.last_exit == want && server.crashes == 1)
    })?;
    let told = begin.elapsed().as_secs_f64();
    let second = answering(&board, first)?;

    // The agent dies, the machine server does not: systemd has to start the next one into a unit whose group has limits.
    let main = board.property("MainPID")?;
    let begin = Instant::now();
    board.run(&format!("kill -KILL {main}"))?;
    active_again(&board, &main)?;
    let again = begin.elapsed().as_secs_f64();
    site.until(&board, "the same machine server", |status| {
        status.server.as_ref().is_some_and(|server| server.pid == second)
    })?;
    ensure(board.server_pid() == Some(second), || format!("it was not kept\n{}", board.journal()))?;
    eventually("limits that are in force again", || in_force(&board).ok())
        .map_err(|trouble| Trouble(format!("{trouble}\n{}", board.journal())))?;
    hog(&board)?;
    site.until(&board, "an adopted hog that was killed", |status| {
        status.server.as_ref().is_some_and(|server| server.last_exit == want && server.pid != second)
    })?;
    let third = answering(&board, second)?;

    // As a person restarts it: a new machine server, in the same limits; without the setting there are none.
    board.run(&format!("systemctl restart {UNIT}"))?;
    answering(&board, third)?;
    eventually("limits after a restart", || in_force(&board).ok())
        .map_err(|trouble| Trouble(format!("{trouble}\n{}", board.journal())))?;
    site.configure(&json!({}))?;
    eventually("no limits", || {
        let memory = board.run(&format!("cat {GROUP}/memory.max 2>/dev/null || echo max")).ok()?;
        (memory == "max").then_some(())
    })?;
    let failed = board.run("systemctl --failed --no-legend")?;
    ensure(failed.is_empty(), || failed.clone())?;
    stage.saw(format!("installed and ready in {installed:.1} s, limits of 48 MB and weight 50 in the group of {UNIT}"));
    stage.saw(format!("a hog of 96 MB: \"{want}\" in the status {told:.1} s later"));
    stage.saw(format!(
        "the agent killed: the next one ready after {again:.1} s, adopted {second}, its limits felt again"
    ));
    stage.ends(&board)
}

/// The files of the kernel say what was asked for.
fn in_force(board: &RadioBoard) -> Result<(), Trouble> {
    let said = board.run(&format!("cat {GROUP}/memory.max {GROUP}/cpu.weight"))?;
    ensure(said == "50331648\n50", || format!("the limits say {said:?}\n{}", board.journal()))
}

/// Has the machine server take twice what it may have.
fn hog(board: &RadioBoard) -> Result<(), Trouble> {
    // It does not live to answer.
    board.run("curl -sS -m 20 -X POST http://127.0.0.1:8081/behave/hog-megabytes/96 || true").map(drop)
}

/// The machine server that answers and is not this one.
fn answering(board: &RadioBoard, not: u32) -> Result<u32, Trouble> {
    eventually("another machine server that answers", || board.server_pid().filter(|pid| *pid != not))
        .map_err(|trouble| Trouble(format!("{trouble}\n{}", board.journal())))
}
