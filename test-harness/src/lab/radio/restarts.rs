//! The story of services that are restarted, and of radios that come late, in the middle of everything.

use super::{
    bluetooth::offered,
    board::RadioBoard,
    doors::{GIVEN, closed, network, says, unsaid},
    networks::linked,
    visitor::{Visitor, doors, until},
};
use crate::{
    lab::{
        board::Target,
        site::FIRST,
        stories::{Stage, ensure},
    },
    real::Trouble,
};

/// The phone's app.
const APP: &str = "app.py";
/// What NetworkManager says of the radio, line by line.
const MONITOR: &str = "/run/lab/monitor";

/// A new device without radio and adapter says so, and uses both when they are plugged in.
pub(super) fn late(stage: &Stage<'_>) -> Result<Vec<String>, Trouble> {
    let site = stage.site()?;
    let board = stage.small_board()?;
    board.run("lab-radio out")?;
    site.make(&board)?;
    site.install_without_identity(&board)?;
    let agent = board.property("MainPID")?;
    until(&board, "words about what is missing", || {
        doors(&board).filter(|doors| ["hotspot", "bluetooth"].iter().all(|door| doors[door] == "DOOR_ABSENT")).map(drop)
    })?;
    stage.saw("without radio and adapter it says that both doors are absent, and waits");

    board.run("lab-radio in")?;
    let visitor = Visitor::waits(&board)?;
    stage.saw("the radio plugged in: hotspot open");
    visitor.joins()?;
    visitor.page()?;
    stage.saw("a phone has its page");
    board.plug_in_bluetooth()?;
    offered(&board)?;
    stage.saw("an adapter plugged in: offered");
    let shown = board.bluetooth_phone(APP, &["show"])?;
    ensure(shown.contains("reads status b'\\x00'"), || shown.clone())?;
    same(&board, &agent)?;
    stage.saw("an app reads everything; one agent all the time");
    stage.ends(&board)
}

/// NetworkManager and bluetoothd are restarted under open doors: one agent all the time, which opens them again.
pub(super) fn under_doors(stage: &Stage<'_>) -> Result<Vec<String>, Trouble> {
    let site = stage.site()?;
    let board = stage.small_board()?;
    board.plug_in_bluetooth()?;
    site.make(&board)?;
    site.install_without_identity(&board)?;
    let agent = board.property("MainPID")?;
    let visitor = Visitor::waits(&board)?;
    offered(&board)?;
    stage.saw("both doors are open");

    board.run("systemctl restart NetworkManager")?;
    stage.saw("NetworkManager is restarted");
    // It comes back with nothing of the hotspot, whatever the status says until that is noticed.
    until(&board, "a phone on the hotspot of before", || {
        visitor.joins_once().ok()?;
        visitor.page().ok()
    })?;
    stage.saw("a phone has the page again");

    board.run("systemctl restart bluetooth")?;
    stage.saw("bluetoothd is restarted");
    until(&board, "an app that reads everything", || board.bluetooth_phone(APP, &["show"]).ok())?;
    same(&board, &agent)?;
    stage.saw("an app reads everything again; one agent all the time");
    stage.ends(&board)
}

/// Both are restarted while a network is joined that somebody has given: the device is online in the end, or says why it is not, and then
/// the person gives it again.
pub(super) fn in_a_join(stage: &Stage<'_>) -> Result<Vec<String>, Trouble> {
    let site = stage.site()?;
    let board = stage.small_board()?;
    board.lead_to(&site.fleet.url)?;
    board.run("lab-ap up home --ssid HomeNet --password home-pass-1 --security mixed")?;
    board.plug_in_bluetooth()?;
    site.make(&board)?;
    site.install_without_identity(&board)?;
    let agent = board.property("MainPID")?;
    let visitor = Visitor::waits(&board)?;
    visitor.joins()?;
    visitor.until_listed("HomeNet")?;
    stage.saw("a person at the hotspot sees HomeNet");
    board.write(GIVEN, 0o600, site.device.credentials(&site.address(&board)).as_bytes())?;
    // What the manager says of the radio, from before the form is sent: a join takes some seconds only, and a look now and then misses it.
    board.run(&format!("(setsid nmcli device monitor wlan0 >{MONITOR} 2>&1 &) </dev/null"))?;
    let both = format!("{} -F file=@{GIVEN}", network("HomeNet", "home-pass-1"));
    says(&visitor.sends("/join", &both)?, "200", "The device leaves to join <bdi>HomeNet</bdi>")?;
    board
        .run(&format!(
            "timeout 150 grep --quiet --max-count 1 \"using connection 'platform given:HomeNet'\" <(tail --follow --lines +1 {MONITOR}) \
             && systemctl restart NetworkManager bluetooth"
        ))
        .map_err(|trouble| Trouble(format!("{trouble}: {}", board.run(&format!("cat {MONITOR}")).unwrap_or_default())))?;
    stage.saw("NetworkManager and bluetoothd are restarted in the middle");
    let mut again = 0;
    until(&board, "an agent that is online", || {
        // It may have been online by what was just torn down: what counts is a link of the manager that runs now.
        if linked(&board, "HomeNet").is_some() && reached(&board) && site.status().ok()?.agent_version == FIRST {
            return Some(());
        }
        // It may have failed with a reason, and then the person gives it again.
        if again < 3 && doors(&board)?["hotspot"] == "DOOR_OPEN" && visitor.joins_once().is_ok() {
            let page = visitor.page().ok()?;
            if page.contains("role=\"alert\"") || page.contains("HomeNet") {
                again += 1;
                visitor.sends("/join", &network("HomeNet", "home-pass-1")).ok()?;
            }
        }
        None
    })?;
    stage.saw(format!("online, given again {again} times"));
    site.until_ready(&board)?;
    closed(&board)?;
    same(&board, &agent)?;
    unsaid(&board, &["home-pass-1", site.device.part_secret.expose()])?;
    stage.saw("one agent all the time; nothing left of the hotspot; no secret in a log");
    stage.ends(&board)
}

/// The agent has reached its fleet server.
fn reached(board: &RadioBoard) -> bool {
    let said = Target::ask(board, "platform-agent status --json").map(|(_, said)| said).unwrap_or_default();
    said.contains("\"reach\": \"REACH_REACHED\"")
}

/// The agent is the one of the beginning.
fn same(board: &RadioBoard, agent: &str) -> Result<(), Trouble> {
    let same = board.property("MainPID")? == agent && board.property("NRestarts")? == "0";
    ensure(same, || format!("the agent was restarted\n{}", board.journal()))
}
