//! The story of a radio that can be hotspot and station at once: a person sees everything on one page, in a real browser
//! where this machine has one, and every phone's and computer's own question is answered before and after.

use std::{
    path::Path,
    process::{Command, Stdio},
    time::Instant,
};

use super::{
    board::RadioBoard,
    doors::{GIVEN, closed, network, private, says, secs, unsaid},
    probes::PROBES,
    visitor::{Visitor, doors, until},
};
use crate::{
    lab::{
        board::Target,
        site::FIRST,
        stories::{Stage, ensure, kept},
    },
    real::Trouble,
};

/// Where a browser of this machine looks into the phone's network: a port of the house that `lab-setup` leads there.
const WINDOW: u16 = 8042;
/// How long the browser waits for what it wants to see, in seconds.
const LOOKS: &str = "120";

/// The hotspot stays while networks are tried: a wrong password is told on the page, the right one and the credentials
/// make it online while the phone is still there, and its sheet is told to close; then the hotspot goes.
pub(super) fn sheet(stage: &Stage<'_>) -> Result<Vec<String>, Trouble> {
    let site = stage.site()?;
    let board = stage.small_board()?;
    board.lead_to(&site.fleet.url)?;
    board.run("lab-radio both && lab-ap up home --ssid HomeNet --password home-pass-1 --security wpa3")?;
    site.make(&board)?;
    let begin = Instant::now();
    site.install_without_identity(&board)?;
    let visitor = Visitor::waits(&board)?;
    stage.saw(format!("open {:.1} s after the copying began", secs(begin)));
    let begin = Instant::now();
    visitor.joins()?;
    visitor.is_sent_to_the_page()?;
    visitor.until_listed("HomeNet")?;
    stage.saw(format!(
        "a phone joined, was sent to the page by {} questions of all makers, saw HomeNet: {:.1} s",
        PROBES.len(),
        secs(begin)
    ));

    stage.saw(format!("with the hotspot and a phone on it, {}", board.weighs()?));

    let begin = Instant::now();
    let wrong = ["wrong", "HomeNet", "not-its-password"];
    let who = in_a_browser(&board, &wrong)?;
    if who.is_none() {
        let wrong = visitor.sends("/join", &network("HomeNet", "not-its-password"))?;
        says(&wrong, "200", "Connecting to <bdi>HomeNet</bdi>")?;
    }
    visitor.until_shown("Wrong password for HomeNet")?;
    stage.saw(format!(
        "a wrong password told on the page: {:.1} s ({})",
        secs(begin),
        who.as_deref().unwrap_or("by curl, for want of node and Chromium on this machine")
    ));

    // Nobody looks at the result before the phone's own questions: ten seconds after it was seen everything closes.
    let begin = Instant::now();
    board.write(GIVEN, 0o600, site.device.credentials(&site.address(&board)).as_bytes())?;
    let right = format!("{} -F file=@{GIVEN}", network("HomeNet", "home-pass-1"));
    says(&visitor.sends("/join", &right)?, "200", "Connecting to <bdi>HomeNet</bdi>")?;
    until(&board, "a network that was joined", || doors(&board).filter(|doors| doors["last_result"] == "joined"))?;
    stage.saw(format!("the right one and credentials taken: {:.1} s", secs(begin)));
    // The door closes a minute later whoever is there: what was answered until then is what counts.
    let mut answered = visitor.is_done();
    while let Err(trouble) = answered {
        stage.saw(format!("not yet: {}", trouble.0.lines().next().unwrap_or_default()));
        let told = doors(&board).unwrap_or_default();
        ensure(told["hotspot"] == "DOOR_OPEN", || format!("it closed before sheets could: {trouble}\n{told}"))?;
        answered = visitor.is_done();
    }
    let told = doors(&board).unwrap_or_default();
    ensure(told["hotspot"] == "DOOR_OPEN", || format!("the hotspot did not stay: {told}"))?;
    stage.saw(format!(
        "online with the hotspot still there: the same {} questions are answered so that sheets close",
        PROBES.len()
    ));
    in_a_browser(&board, &["done", "HomeNet"])?;
    site.until(&board, "a report of the new device", |status| status.agent_version == FIRST)?;
    closed(&board)?;
    let link = board.run("iw dev wlan0 link")?;
    ensure(link.contains("SSID: HomeNet"), || link.clone())?;
    private(&board)?;
    unsaid(&board, &["not-its-password", "home-pass-1", site.device.part_secret.expose()])?;
    stage.saw("nothing is left of the hotspot; no secret in a log");
    stage.ends(&board)
}

/// What the browser found to be well, and where its pictures are; nothing where there is none.
fn in_a_browser(board: &RadioBoard, words: &[&str]) -> Result<Option<String>, Trouble> {
    let chromium = std::env::var("CHROMIUM").unwrap_or_else(|_| "chromium".to_owned());
    let there = |program: &str| {
        let asked = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        asked.is_ok_and(|status| status.success())
    };
    if !there("node") || !there(&chromium) {
        return Ok(None);
    }
    let pictures = kept();
    let port = board.machine().forward(WINDOW)?.to_string();
    let mut node = Command::new("node");
    node.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("portal/board.mjs")).arg(&pictures);
    let output = node.arg(port).args(words).env("LOOK_SECONDS", LOOKS).output();
    let output = output.map_err(|error| Trouble::of("node", error))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure(output.status.success(), || {
        format!("the browser: {said}\n{}\n{}", String::from_utf8_lossy(&output.stderr), board.journal())
    })?;
    let well = said.lines().filter(|line| line.starts_with("ok ")).count();
    Ok(Some(format!("Chromium, {well} checks, pictures in {}", pictures.display())))
}
