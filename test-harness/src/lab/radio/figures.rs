//! The story of what the doors cost on a board, and what a join takes beside the network manager's own program.

use serde_json::json;

use super::{
    bluetooth::offered,
    board::RadioBoard,
    doors::{closed, network, says},
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

/// How long an agent with which nobody does anything is watched, in seconds of the board.
const WATCHED: u32 = 60;
/// It is given this long before, in seconds: whoever installed it, or took its network away, has gone then.
const SETTLES: u32 = 20;
/// More context switches a second than this are no rest.
const SWITCHES_MAX: f64 = 10.0;
/// What a join costs beside the network manager's own: the page that says so has to reach the phone (3 s), and a radio that was an
/// access point listens before it joins (up to 9 s under emulation, and once more where it heard only a part). Beyond that
/// and this factor something waits that should not.
const OURS_MAX: (f64, f64) = (3.0, 25.0);

/// A new device with both doors open and nobody there; its network given at the page, and the same one joined by `nmcli` from a
/// hotspot of the same kind; the network lost, and the doors open again.
pub(super) fn figures(stage: &Stage<'_>) -> Result<Vec<String>, Trouble> {
    let site = stage.site()?;
    // A network that is not there is looked for.
    let elsewhere = json!({"elsewhere": {"type": "wifi", "ssid": "ElseNet", "psk": "else-pass-1"}});
    let quick = json!({"offline_before_starting_hotspot_minutes": 0});
    site.configure(&json!({"network_configuration": quick, "additional_networks": elsewhere}))?;
    // On a small one most of what is counted would be pages that are read from the disk again.
    let board = stage.radio_board()?;
    board.lead_to(&site.fleet.url)?;
    board.plug_in_bluetooth()?;
    board.run(HOME)?;
    site.make(&board)?;
    site.install_without_identity(&board)?;
    let visitor = Visitor::waits(&board)?;
    offered(&board)?;
    stage.saw("a new device: hotspot and Bluetooth are open");
    stage.saw(format!("with both open and nobody there {}", rest(&board)?));
    stage.saw(format!("then {}", board.weighs()?));

    // Who it is, first: what is timed is the network alone.
    visitor.joins()?;
    board.write(super::doors::GIVEN, 0o600, site.device.credentials(&site.address(&board)).as_bytes())?;
    visitor.sends("/join", &format!("-F file=@{}", super::doors::GIVEN))?;
    visitor.until_listed("HomeNet")?;
    let (began, answer) = visitor.sends_at("/join", &network("HomeNet", "home-pass-1"))?;
    says(&answer, "200", "The device leaves to join <bdi>HomeNet</bdi>")?;
    until(&board, "HomeNet", || linked(&board, "HomeNet"))?;
    let ours = Join::of(&board, began)?;
    site.until(&board, "a report of the new device", |status| status.agent_version == FIRST)?;
    stage.saw(format!("the form's button to an address of HomeNet: {}", ours.words()));
    closed(&board)?;

    // Without what the agent knows, or the network manager would join by itself.
    board.run(
        "systemctl stop platform-agent && nmcli --terse --fields UUID,TYPE connection show | sed -n \
         's/:802-11-wireless$//p' | xargs -r nmcli connection delete",
    )?;
    let open = format!(
        "nmcli --wait 60 device wifi hotspot ifname wlan0 con-name bare ssid '{}' band bg channel 1 password '{}'",
        visitor.hotspot(),
        visitor.password()
    );
    board.run(&open)?;
    visitor.joins()?;
    let began = board.run(
        "date +%s.%N; nmcli connection down bare >/dev/null; \
         until nmcli --wait 60 device wifi connect HomeNet password home-pass-1 >>/root/bare.log 2>&1; do sleep 0.2; done",
    )?;
    let bare = Join::of(&board, seconds(&began)?)?;
    let tries = board.run("wc -l </root/bare.log")?;
    stage.saw(format!("`nmcli` from such a hotspot to an address of HomeNet: {} ({tries} tries)", bare.words()));
    let ratio = ours.took / bare.took;
    stage.saw(format!(
        "a join at the door takes {:.1} s more than a bare one: {ratio:.2} of its time",
        ours.took - bare.took
    ));
    ensure(ours.took <= bare.took * OURS_MAX.0 + OURS_MAX.1, || {
        format!("a join takes {:.1} s, and a bare one {:.1} s\n{}", ours.took, bare.took, board.journal())
    })?;

    board.run("nmcli connection delete bare && systemctl start platform-agent && lab-ap down home")?;
    until(&board, "open doors of a device without a network", || {
        doors(&board).filter(|doors| doors["hotspot"] == "DOOR_OPEN" && doors["bluetooth"] == "DOOR_OPEN").map(drop)
    })?;
    stage.saw("its network is gone: hotspot and Bluetooth are open");
    stage.saw(format!("offline, with a network that is gone and nobody there, {}", rest(&board)?));
    stage.ends(&board)
}

/// The house's access point.
const HOME: &str = "lab-ap up home --ssid HomeNet --password home-pass-1 --security wpa2; lab-ap internet home on";

/// What the agent does while nobody does anything with it. Nothing is asked of the board meanwhile.
fn rest(board: &RadioBoard) -> Result<String, Trouble> {
    let pid = board.property("MainPID")?;
    let said = board.run(&format!(
        "count() {{ cat /proc/{pid}/task/*/status | sed -n 's/^voluntary_ctxt_switches:/own /p; \
         s/^nonvoluntary_ctxt_switches:/non /p'; cut -d' ' -f14,15 /proc/{pid}/stat | sed 's/^/cpu /'; \
         cut -d' ' -f12 /proc/{pid}/stat | sed 's/^/read /'; cut -d' ' -f1 /proc/uptime | sed 's/^/at /'; }}; \
         sleep {SETTLES}; count; echo; timeout {WATCHED} iw event -t >/run/lab/air; count; \
         echo \"scans $(grep -c 'wlan0.*scan started' /run/lab/air)\"",
    ))?;
    let (before, after) =
        said.split_once("\n\n").ok_or_else(|| Trouble(format!("the counters could not be read: {said}")))?;
    let sum = |text: &str, name: &str| -> f64 {
        let lines = text.lines().filter_map(|line| line.strip_prefix(name));
        lines.flat_map(str::split_whitespace).filter_map(|word| word.parse::<f64>().ok()).sum()
    };
    let grown = |name: &str| sum(after, name) - sum(before, name);
    let seconds = grown("at ");
    let (voluntary, not) = (grown("own ") / seconds, grown("non ") / seconds);
    let text = format!(
        "the agent has {:.2} context switches a second ({voluntary:.2} of them voluntary; {seconds:.0} s of the board), takes \
         {:.0} ms of its processor, reads {} pages from the disk and listened to the air {} times",
        voluntary + not,
        grown("cpu ") * 10.0,
        grown("read "),
        sum(after, "scans "),
    );
    ensure(voluntary + not <= SWITCHES_MAX && seconds >= f64::from(WATCHED) * 0.9, || {
        format!("that is no rest: {text}\n{said}\n{}", board.journal())
    })?;
    Ok(text)
}

/// How a join went, by the network manager's own log.
struct Join {
    /// Seconds until it said that the radio is connected.
    took: f64,
    /// What the radio did, and when.
    states: Vec<(f64, String)>,
}

impl Join {
    /// The one that began at this second of the board's clock.
    fn of(board: &RadioBoard, began: f64) -> Result<Join, Trouble> {
        let said = board.run(&format!(
            "journalctl --boot --no-pager -u NetworkManager -o short-unix --since @{began:.0} | grep 'device (wlan0): state change'"
        ))?;
        let state = |line: &str| -> Option<(f64, String)> {
            let at = line.split_whitespace().next()?.parse::<f64>().ok()? - began;
            let (_, rest) = line.split_once(" -> ")?;
            Some((at, rest.split_whitespace().next()?.to_owned())).filter(|(at, _)| *at >= 0.0)
        };
        let states: Vec<(f64, String)> = said.lines().filter_map(state).collect();
        let up = states.iter().find(|(_, state)| state == "activated").map(|(at, _)| *at);
        let took = up.ok_or_else(|| Trouble(format!("it never joined: {said}\n{}", board.journal())))?;
        Ok(Join { took, states })
    }

    fn words(&self) -> String {
        let states: Vec<String> = self.states.iter().map(|(at, state)| format!("{state} {at:.1}")).collect();
        format!("{:.1} s ({})", self.took, states.join(", "))
    }
}

/// The first word of what a board said, as seconds.
fn seconds(said: &str) -> Result<f64, Trouble> {
    let word = said.split_whitespace().next().unwrap_or_default();
    word.parse().map_err(|error| Trouble::of(format!("a time in {said:?}"), error))
}
