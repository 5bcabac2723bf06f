//! Stories of known networks: what the configuration gives is there, tried, left, found again and taken away.

use std::time::Instant;

use serde_json::{Value, json};

use super::{board::RadioBoard, visitor::until};
use crate::{
    lab::{
        board::Target,
        site::Site,
        stories::{Stage, ensure},
    },
    real::Trouble,
};

/// Passwords that may stand nowhere but in the profiles.
const PASSWORDS: [&str; 2] = ["home-pass-1", "cafe-pass-1"];

/// The networks that a configuration gives: two access points and a cable.
fn given() -> Value {
    json!({
        "home": {"type": "wifi", "ssid": "HomeNet", "psk": PASSWORDS[0], "priority": 1},
        "cafe": {"type": "wifi", "ssid": "CafeNet", "psk": PASSWORDS[1], "priority": 10},
        "desk": {"type": "wired", "interface": "eth0", "priority": 5, "ipv4_address": "192.168.88.7/24",
                 "ipv4_gateway": "192.168.88.1", "ipv4_dns": ["192.168.88.1"], "ipv4_route_metric": 150},
    })
}

/// A cable with an address by hand; without it the network of the highest priority, WPA2 and WPA3 mixed; without that the next, hidden;
/// what comes back is found again; NetworkManager restarted; removed from the configuration, all are gone and
/// a person's own profile is not touched.
pub(super) fn known(stage: &Stage<'_>) -> Result<Vec<String>, Trouble> {
    let site = Site::open(&stage.folder.join("site"))?;
    let board = stage.radio_board()?;
    board.lead_to(&site.fleet.url)?;
    board.plug_into_office()?;
    board.run("lab-ap up cafe --ssid CafeNet --security mixed --password cafe-pass-1 --channel 11")?;
    board.run("lab-ap up home --ssid HomeNet --security wpa2 --hidden")?;
    site.configure(&json!({"additional_networks": given()}))?;
    site.install(&board)?;
    site.until_ready(&board)?;
    let mut seen = Vec::new();

    let begin = Instant::now();
    until(&board, "three profiles of the agent", || (profiles(&board)?.len() == 3).then_some(()))?;
    until(&board, "the cable's address by hand", || {
        board.run("ip -4 address show eth0 && ip route").ok().filter(|said| {
            said.contains("192.168.88.7/24")
                && said.contains("default via 192.168.88.1 dev eth0 proto static metric 150")
        })
    })?;
    seen.push(format!("cable with its address by hand after {:.1} s", begin.elapsed().as_secs_f64()));

    let began = Instant::now();
    board.machine().plug_cable(false)?;
    joined(&board, "CafeNet")?;
    heard(&site, &board)?;
    seen.push(format!(
        "without the cable: the higher priority (WPA2 and WPA3 mixed), reported after {:.1} s",
        began.elapsed().as_secs_f64()
    ));

    let began = Instant::now();
    board.run("lab-ap down cafe")?;
    joined(&board, "HomeNet")?;
    heard(&site, &board)?;
    seen.push(format!("without that: the next (hidden, WPA2), reported after {:.1} s", began.elapsed().as_secs_f64()));

    let began = Instant::now();
    board
        .run("lab-ap up cafe --ssid CafeNet --security mixed --password cafe-pass-1 --channel 11; lab-ap down home")?;
    joined(&board, "CafeNet")?;
    heard(&site, &board)?;
    seen.push(format!("what was lost is back and found again after {:.1} s", began.elapsed().as_secs_f64()));

    let began = Instant::now();
    let agent = board.property("MainPID")?;
    board.run("systemctl restart NetworkManager")?;
    until(&board, "the lost network of before", || linked(&board))?;
    heard(&site, &board)?;
    ensure(board.property("MainPID")? == agent, || format!("the agent did not live through it\n{}", board.journal()))?;
    seen.push(format!("NetworkManager restarted: connected and reported after {:.1} s", began.elapsed().as_secs_f64()));

    // Passwords: in files of root only, in no log.
    let words = PASSWORDS.map(|word| format!("-e {word}")).join(" ");
    let logs = board.run(&format!("journalctl --boot --no-pager | grep {words} || true"))?;
    ensure(logs.is_empty(), || format!("a password in a log: {logs}"))?;
    let open = board.run(&format!(
        "grep -rl {words} /etc /opt /var /tmp /run/NetworkManager 2>/dev/null | xargs -r stat -c '%a %n' | grep -v '^[0-9]*00 ' || true"
    ))?;
    ensure(open.is_empty(), || format!("readable for others: {open}"))?;

    // Removed from the configuration: gone; what a person made stays.
    site.configure(&json!({}))?;
    until(&board, "the end of the profiles", || profiles(&board)?.is_empty().then_some(()))?;
    let left = board.run("nmcli --terse --escape no --fields NAME connection show")?;
    ensure(left.lines().any(|name| name == "office"), || format!("a person's profile is gone: {left}"))?;
    seen.push("removed from the configuration: gone; a person's own profile is there; no password in a log".to_owned());
    Ok(seen)
}

/// The profiles that the agent has made, by their names.
fn profiles(board: &RadioBoard) -> Option<Vec<String>> {
    let said = board.run("nmcli --terse --escape no --fields NAME connection show").ok()?;
    Some(said.lines().filter(|name| name.starts_with("platform net:")).map(str::to_owned).collect())
}

/// The network that the board's radio is in.
fn linked(board: &RadioBoard) -> Option<String> {
    let said = board.run("iw dev wlan0 link && ip -4 address show wlan0").ok()?;
    let name = said.lines().find_map(|line| line.trim().strip_prefix("SSID: "))?.to_owned();
    said.contains("inet ").then_some(name)
}

fn joined(board: &RadioBoard, name: &str) -> Result<(), Trouble> {
    until(board, name, || linked(board).filter(|ssid| ssid == name)).map(drop)
}

/// A report that was made after now.
fn heard(site: &Site, board: &RadioBoard) -> Result<(), Trouble> {
    let now = board.run("cut -d. -f1 /proc/uptime")?.parse::<u64>().unwrap_or(u64::MAX);
    site.until(board, "a report through this network", |status| status.uptime_seconds > now).map(drop)
}
