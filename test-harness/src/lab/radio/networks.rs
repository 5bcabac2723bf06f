//! Stories of known networks: what the configuration gives is there, tried, left, found again and taken away.

use api::pb::platform::fleet::v1::DeviceStatus;
use serde_json::{Value, json};

use super::{board::RadioBoard, doors::unsaid, visitor::until};
use crate::{
    lab::{
        board::Target,
        site::Site,
        stories::{Stage, ensure},
    },
    real::Trouble,
};

/// The cafe's access point, by what it takes.
fn cafe(security: &str) -> String {
    format!("lab-ap up cafe --ssid CafeNet --security {security} --password cafe-pass-1 --channel 11")
}

/// The house's.
const HOME: &str = "lab-ap up home --ssid HomeNet --security wpa2";

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

/// A cable with an address by hand; without it the network of the highest priority, which takes WPA3 only, while another one of WPA2 is
/// there as well; removed from the configuration, all are gone and a person's own profile is not touched.
pub(super) fn known(stage: &Stage<'_>) -> Result<Vec<String>, Trouble> {
    let site = stage.site()?;
    let board = begun(stage, &site, &format!("{}; {HOME}", cafe("wpa3")))?;
    let since = uptime(&board)?;
    board.machine().plug_cable(false)?;
    heard_from(&site, &board, "CafeNet", since)?;
    stage.saw("without the cable: the higher priority (WPA3 only), and not the other one (WPA2)");

    // Passwords: in files of root only, in no log.
    let words = PASSWORDS.map(|word| format!("-e {word}")).join(" ");
    unsaid(&board, &PASSWORDS)?;
    let open = board.run(&format!(
        "grep -rlZ {words} /etc /opt /var /tmp /run/NetworkManager 2>/dev/null | xargs -r0 stat -c '%a %n' | grep -v '^[0-9]*00 ' || true"
    ))?;
    ensure(open.is_empty(), || format!("readable for others: {open}"))?;
    stage.saw("the passwords are in no log and in no file that others may read");

    // Removed from the configuration: gone; what a person made stays.
    site.configure(&json!({}))?;
    until(&board, "the end of the profiles", || profiles(&board)?.is_empty().then_some(()))?;
    let left = board.run("nmcli --terse --escape no --fields NAME connection show")?;
    ensure(left.lines().any(|name| name == "office"), || format!("a person's profile is gone: {left}"))?;
    stage.saw("removed from the configuration: gone; a person's own profile is there");
    stage.ends(&board)
}

/// An access point that dies without a word (its program is killed, its radio silent): the next one, hidden, of WPA2; that one ends in
/// good order, and what was lost is back, though it takes WPA3 only now.
pub(super) fn loss(stage: &Stage<'_>) -> Result<Vec<String>, Trouble> {
    let site = stage.site()?;
    let board = begun(stage, &site, &format!("{}; {HOME} --hidden", cafe("mixed")))?;
    let since = uptime(&board)?;
    board.machine().plug_cable(false)?;
    heard_from(&site, &board, "CafeNet", since)?;
    stage.saw("online by the higher priority (WPA2 and WPA3 mixed)");

    let since = uptime(&board)?;
    board.run("kill -KILL $(cat /run/lab/cafe/hostapd.pid); ip -n cafe link set wlan3 down")?;
    heard_from(&site, &board, "HomeNet", since)?;
    stage.saw("its access point was killed: the next (hidden, WPA2), reported");

    let since = uptime(&board)?;
    board.run(&format!("{}; lab-ap down home", cafe("wpa3")))?;
    heard_from(&site, &board, "CafeNet", since)?;
    stage.saw("that one ended, and the first is back as WPA3 only: found again, reported");
    unsaid(&board, &PASSWORDS)?;
    stage.ends(&board)
}

/// A device in the office that knows two networks in the air, which these commands put there.
fn begun(stage: &Stage<'_>, site: &Site, air: &str) -> Result<RadioBoard, Trouble> {
    let board = stage.small_board()?;
    board.lead_to(&site.fleet.url)?;
    board.plug_into_office()?;
    board.run(air)?;
    // This is no story of doors, and a join takes long on a machine that is busy with other things.
    let shut = json!({"disable_wifi_provisioning": true, "disable_bt_provisioning": true});
    site.configure(&json!({"additional_networks": given(), "network_configuration": shut}))?;
    site.install(&board)?;
    site.until_ready(&board)?;
    until(&board, "three profiles of the agent", || (profiles(&board)?.len() == 3).then_some(()))?;
    stage.saw("installed, online by cable, three profiles");
    until(&board, "the cable's address by hand", || {
        board.run("ip -4 address show eth0 && ip route").ok().filter(|said| {
            said.contains("192.168.88.7/24")
                && said.contains("default via 192.168.88.1 dev eth0 proto static metric 150")
        })
    })?;
    // Known to the server, or what comes next would be no news to it: before the cable was its own, the radio may have been all there was.
    site.until(&board, "a report by cable", |status| {
        let links = status.network.as_ref().map_or(&[][..], |network| &network.links);
        links.iter().any(|link| link.interface == "eth0" && link.address == "192.168.88.7/24")
    })?;
    stage.saw("a cable with its address by hand");
    Ok(board)
}

/// The profiles that the agent has made, by their names.
fn profiles(board: &RadioBoard) -> Option<Vec<String>> {
    let said = board.run("nmcli --terse --escape no --fields NAME connection show").ok()?;
    Some(said.lines().filter(|name| name.starts_with("platform net:")).map(str::to_owned).collect())
}

/// The board's radio is in this network, and NetworkManager is done with it: version 1.42 never notices an access
/// point that vanishes between the address and that.
pub(super) fn linked(board: &RadioBoard, name: &str) -> Option<()> {
    let link = board.run("iw dev wlan0 link").ok()?;
    link.lines().find(|line| line.trim().strip_prefix("SSID: ") == Some(name))?;
    let said = board.run("nmcli --terse --fields DEVICE,STATE device").ok()?;
    said.lines().any(|line| line == "wlan0:connected").then_some(())
}

/// Seconds since the board has started.
fn uptime(board: &RadioBoard) -> Result<u64, Trouble> {
    Ok(board.run("cut -d. -f1 /proc/uptime")?.parse::<u64>().unwrap_or(u64::MAX))
}

/// What the device was connected by is gone, after this moment: it joins this network, and says so through it.
fn heard_from(site: &Site, board: &RadioBoard, name: &str, since: u64) -> Result<(), Trouble> {
    until(board, name, || linked(board, name))?;
    let only = |status: &DeviceStatus| {
        let links = status.network.as_ref().map_or(&[][..], |network| &network.links);
        matches!(links, [link] if link.network == name && link.default_route)
    };
    site.until(board, "a report through this network", |status| status.uptime_seconds >= since && only(status))
        .map(drop)
}
