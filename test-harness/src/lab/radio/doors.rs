//! Stories of people at a board's hotspot.

use std::time::Instant;

use serde_json::json;

use super::{
    board::RadioBoard,
    visitor::{Answer, Visitor, choice, doors, until},
};
use crate::{
    lab::{
        board::Target,
        site::{FIRST, Site},
        stories::{Stage, ensure},
    },
    real::Trouble,
};

/// Where the agent keeps who it is.
const IDENTITY: &str = "/etc/platform.json";
/// Where a visitor's phone has the credentials that he gives.
const GIVEN: &str = "/root/credentials.json";
/// A new device: its hotspot, a phone whose questions open the page, a wrong password told in words, then the right one
/// and the credentials; it is online with its configuration, and nothing is left of the hotspot.
pub(super) fn portal(stage: &Stage<'_>) -> Result<Vec<String>, Trouble> {
    let site = Site::open(&stage.folder.join("site"))?;
    site.configure(&json!({"network_configuration": {"hotspot_prefix": "hillside"}}))?;
    let board = stage.radio_board()?;
    board.lead_to(&site.fleet.url)?;
    board.run("lab-ap up home --ssid HomeNet --password home-pass-1 --security mixed; lab-ap internet home on")?;
    site.make(&board)?;
    let begin = Instant::now();
    site.install_without_identity(&board)?;
    let visitor = Visitor::waits(&board)?;
    let mut seen = vec![format!("{} open {:.1} s after the copying began", visitor.hotspot(), secs(begin))];
    ensure(visitor.hotspot() == "platform-setup-board", || visitor.hotspot().to_owned())?;

    let begin = Instant::now();
    let lease = visitor.joins()?;
    let rooms = ["address=10.42.0.", "router=10.42.0.1\n", "dns=10.42.0.1\n"];
    ensure(rooms.iter().all(|part| lease.contains(part)), || format!("the phone was told {lease}"))?;
    visitor.is_sent_to_the_page()?;
    let page = visitor.until_listed("HomeNet")?;
    ensure(page.contains("name=\"credentials\""), || format!("no field for credentials: {page}"))?;
    seen.push(format!(
        "a phone joined, was sent to the page by four systems' questions, and saw HomeNet: {:.1} s",
        secs(begin)
    ));

    let short = visitor.sends("/join", &network("HomeNet", "short"))?;
    says(&short, "422", "A WiFi password has 8 to 63 characters")?;

    let begin = Instant::now();
    let left = visitor.sends("/join", &network("HomeNet", "not-its-password"))?;
    says(&left, "200", "The device leaves to join <bdi>HomeNet</bdi>")?;
    visitor.until_lost()?;
    let gone = secs(begin);
    let visitor = Visitor::waits(&board)?;
    let back = secs(begin);
    visitor.joins()?;
    // A phone's own questions come first, and take nothing away from the person.
    visitor.is_sent_to_the_page()?;
    visitor.until_shown("Wrong password for HomeNet")?;
    let told = doors(&board).unwrap_or_default();
    ensure(told["last_result"] == "wrong password for HomeNet", || format!("the status says {told}"))?;
    seen.push(format!("a wrong password: hotspot gone after {gone:.1} s, back with the reason after {back:.1} s"));

    board.write(GIVEN, 0o600, site.device.credentials(&site.address(&board)).as_bytes())?;
    let begin = Instant::now();
    let both = format!("{} -F file=@{GIVEN}", network("HomeNet", "home-pass-1"));
    says(&visitor.sends("/join", &both)?, "200", "The device leaves to join <bdi>HomeNet</bdi>")?;
    site.until(&board, "a report of the new device", |status| status.agent_version == FIRST)?;
    let online = secs(begin);
    until(&board, "a configuration that is in force", || {
        board.run("platform-agent hotspot").ok().filter(|said| said.contains("hillside-board"))
    })?;
    let configured = secs(begin);
    site.until_ready(&board)?;
    seen.push(format!(
        "the right one and credentials: online after {online:.1} s, configured after {configured:.1} s, its machine \
         server ready after {:.1} s",
        secs(begin)
    ));
    closed(&board)?;
    let link = board.run("iw dev wlan0 link")?;
    ensure(link.contains("SSID: HomeNet"), || link.clone())?;
    private(&board)?;
    unsaid(&board, &["not-its-password", "home-pass-1", site.device.part_secret.expose()])?;
    seen.push(format!("nothing is left of the hotspot; {IDENTITY} is for root only; no secret in a log"));
    Ok(seen)
}

fn secs(since: Instant) -> f64 {
    since.elapsed().as_secs_f64()
}

/// The words of curl for a form with a network of the list.
fn network(ssid: &str, password: &str) -> String {
    format!("-F network={} -F password={password}", choice(ssid))
}

fn says(answer: &Answer, status: &str, sentence: &str) -> Result<(), Trouble> {
    let right = answer.status == status && answer.body.contains(sentence);
    ensure(right, || format!("not {status} and {sentence:?}, but {} and {}", answer.status, answer.body))
}

/// No hotspot, no page, and nothing of either.
fn closed(board: &RadioBoard) -> Result<(), Trouble> {
    let left = "nmcli --terse --fields NAME connection show | grep hotspot; ls -A /etc/NetworkManager/dnsmasq-shared.d; \
                ss -Hltn 'sport = :80'; ip -4 address show wlan0 | grep 10.42.0.1";
    until(board, "the end of the hotspot", || {
        let said = Target::ask(board, left).ok()?.1;
        said.trim().is_empty().then_some(())
    })?;
    let doors = doors(board).unwrap_or_default();
    ensure(doors["hotspot"] == "DOOR_CLOSED", || format!("it still invites: {doors}"))
}

/// Who the device is can be read by root only.
fn private(board: &RadioBoard) -> Result<(), Trouble> {
    let mode = board.run(&format!("stat -c '%a %U:%G' {IDENTITY}"))?;
    ensure(mode == "600 root:root", || format!("{IDENTITY} is {mode}"))
}

/// None of these is in a log.
fn unsaid(board: &RadioBoard, secrets: &[&str]) -> Result<(), Trouble> {
    board.write("/run/lab/secrets", 0o600, secrets.join("\n").as_bytes())?;
    let logs = board.run("journalctl --boot --no-pager | grep -F -f /run/lab/secrets || true")?;
    ensure(logs.is_empty(), || format!("a secret in a log: {logs}"))
}
