//! The story of services that are restarted, and of radios that come late, in the middle of everything.

use std::time::Instant;

use super::{
    bluetooth::{offered, password},
    doors::{GIVEN, closed, network, says, secs, unsaid},
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

/// A new device without radio and adapter says so, and uses both when they are plugged in; NetworkManager and bluetoothd
/// are restarted under an open hotspot, and again while a network is joined: the agent lives through all of it, opens
/// its doors again, and gets online.
pub(super) fn restarts(stage: &Stage<'_>) -> Result<Vec<String>, Trouble> {
    let site = stage.site()?;
    let board = stage.small_board()?;
    board.lead_to(&site.fleet.url)?;
    board.run("lab-radio out; lab-ap up home --ssid HomeNet --password home-pass-1 --security mixed")?;
    site.make(&board)?;
    site.install_without_identity(&board)?;
    let agent = board.property("MainPID")?;
    until(&board, "words about what is missing", || {
        doors(&board).filter(|doors| ["hotspot", "bluetooth"].iter().all(|door| doors[door] == "DOOR_ABSENT")).map(drop)
    })?;
    stage.saw("without radio and adapter it says that both doors are absent, and waits".to_owned());

    let begin = Instant::now();
    board.run("lab-radio in")?;
    let visitor = Visitor::waits(&board)?;
    let hotspot = secs(begin);
    let begin = Instant::now();
    board.plug_in_bluetooth()?;
    offered(&board)?;
    stage.saw(format!(
        "the radio plugged in: hotspot after {hotspot:.1} s; an adapter: offered after {:.1} s",
        secs(begin)
    ));

    let begin = Instant::now();
    board.run("systemctl restart NetworkManager")?;
    // It comes back with nothing of the hotspot, whatever the status says until that is noticed.
    until(&board, "a phone on the hotspot of before", || {
        visitor.joins_once().ok()?;
        visitor.page().ok()
    })?;
    stage.saw(format!("NetworkManager restarted under it: a phone has the page again after {:.1} s", secs(begin)));

    let begin = Instant::now();
    let password = password(&board)?;
    board.run("systemctl restart bluetooth")?;
    until(&board, "an app that reads everything", || board.bluetooth_phone(APP, &["show"]).ok())?;
    stage.saw(format!("bluetoothd restarted: an app reads everything again after {:.1} s", secs(begin)));
    ensure(!password.is_empty() && board.property("MainPID")? == agent, || {
        format!("the agent died\n{}", board.journal())
    })?;

    // Both again while a network is joined.
    board.write(GIVEN, 0o600, site.device.credentials(&site.address(&board)).as_bytes())?;
    let begin = Instant::now();
    let both = format!("{} -F file=@{GIVEN}", network("HomeNet", "home-pass-1"));
    visitor.until_listed("HomeNet")?;
    says(&visitor.sends("/join", &both)?, "200", "The device leaves to join <bdi>HomeNet</bdi>")?;
    until(&board, "a network that is being joined", || {
        let said = board.run("nmcli --terse --fields DEVICE,STATE device").ok()?;
        said.lines().find(|line| line.starts_with("wlan0:connecting")).map(drop)
    })?;
    board.run("systemctl restart NetworkManager bluetooth")?;
    let met = secs(begin);
    let mut again = 0;
    until(&board, "an agent that is online", || {
        if site.status().ok()?.agent_version == FIRST {
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
    stage.saw(format!(
        "both restarted {met:.1} s into a join: online after {:.1} s, given again {again} times",
        secs(begin)
    ));
    site.until_ready(&board)?;
    closed(&board)?;
    let same = board.property("MainPID")? == agent && board.property("NRestarts")? == "0";
    ensure(same, || format!("the agent was restarted\n{}", board.journal()))?;
    unsaid(&board, &["home-pass-1", site.device.part_secret.expose()])?;
    stage.saw("one agent all the time; nothing left of the hotspot; no secret in a log".to_owned());
    stage.saw(format!("at the end {}", board.weighs()?));
    Ok(Vec::new())
}
