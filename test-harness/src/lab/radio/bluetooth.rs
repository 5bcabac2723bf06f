//! Stories of people at a board who have Bluetooth: an app for a device that is new, and Improv's own client.

use std::{path::Path, time::Instant};

use serde_json::json;

use super::{
    board::RadioBoard,
    doors::{closed, private, secs, unsaid},
    visitor::{doors, until},
};
use crate::{
    lab::{
        board::Target,
        site::FIRST,
        stories::{Stage, ensure},
    },
    real::Trouble,
};

/// The phone's app: existing scheme, authenticated service, nonsense, pairing.
const APP: &str = "app.py";
/// The characteristics of existing apps that can be read, beside the key.
const READ: [&str; 7] = ["status", "networks", "errors", "manufacturer", "model", "fragment_id", "agent_version"];

/// A new device and an app: everything is read; nonsense changes nothing; pairing only where it was unlocked; a wrong
/// password by the authenticated service is told by notification, and its message is not taken twice; the right one and
/// the identity as existing apps give them bring the device online.
pub(super) fn app(stage: &Stage<'_>) -> Result<Vec<String>, Trouble> {
    let site = stage.site()?;
    let board = stage.small_board()?;
    board.lead_to(&site.fleet.url)?;
    board.run("lab-ap up home --ssid HomeNet --password home-pass-1 --security mixed")?;
    board.plug_in_bluetooth()?;
    // Only Bluetooth: the hotspot's stories are others, and every second of a radio is emulated.
    site.make_with(&board, json!({"disable_wifi_provisioning": true, "fragment_id": "lab", "manufacturer": "Lab"}))?;
    let begin = Instant::now();
    site.install_without_identity(&board)?;
    offered(&board)?;
    let password = password(&board)?;
    stage.saw(format!("offered {:.1} s after the copying began", secs(begin)));

    let begin = Instant::now();
    let shown = board.bluetooth_phone(APP, &["show"])?;
    let all = READ.iter().all(|name| shown.contains(&format!("reads {name} ")));
    ensure(all && shown.contains("key 294") && shown.contains(&format!("b'{FIRST}'")), || shown.clone())?;
    ensure(shown.contains("reads status b'\\x00'") && shown.contains("b'Lab'"), || shown.clone())?;
    stage.saw(format!("a phone found it and read all of it: {:.1} s", secs(begin)));

    let begin = Instant::now();
    let identity = || Target::ask(&board, "stat -c '%i %Y' /etc/platform.json");
    let said = board.bluetooth_phone(APP, &["nonsense"])?;
    ensure(said.contains("nothing came of it"), || said.clone())?;
    let told = doors(&board).unwrap_or_default();
    ensure(!identity()?.0 && told["last_network"] == "" && told["bluetooth"] == "DOOR_OPEN", || {
        format!("something came of nonsense: {told}")
    })?;
    stage.saw(format!("50 writes of nonsense changed nothing: {:.1} s", secs(begin)));

    let begin = Instant::now();
    for unlocked in ["no", "yes"] {
        let said = board.bluetooth_phone(APP, &["pair", &password, unlocked])?;
        ensure(said.contains("as it should be"), || said.clone())?;
        Target::ask(&board, "bluetoothctl remove F0:F1:F2:F3:F4:F5")?;
    }
    stage.saw(format!("pairing refused, and taken once it was unlocked: {:.1} s", secs(begin)));
    stage.saw(format!("while it is offered, {}", board.weighs()?));

    let begin = Instant::now();
    let wrong = ["talk", &password, "wrong password for HomeNet", "1=HomeNet", "2=not-its-password", "11=0"];
    let said = board.bluetooth_phone(APP, &wrong)?;
    let right = said.contains("message taken") && said.contains("verdict 0") && said.contains("again refused");
    ensure(right, || said.clone())?;
    stage.saw(format!("a wrong password by the authenticated service, told after {:.1} s", secs(begin)));

    let begin = Instant::now();
    let address = site.address(&board);
    let secret = site.device.part_secret.expose();
    let identity =
        [format!("id={}", site.device.part_id), format!("secret={secret}"), format!("app_address={address}")];
    let mut words = vec!["give", &password, "online", "ssid=HomeNet", "psk=home-pass-1"];
    words.extend(identity.iter().map(String::as_str));
    board.bluetooth_phone(APP, &words)?;
    let told = secs(begin);
    site.until(&board, "a report of the new device", |status| status.agent_version == FIRST)?;
    stage.saw(format!(
        "the right one and the identity as existing apps give them: the phone told after {told:.1} s, a report after {:.1} s",
        secs(begin)
    ));
    site.until_ready(&board)?;
    until(&board, "the end of the offer", || {
        doors(&board).filter(|doors| doors["bluetooth"] == "DOOR_CLOSED").map(drop)
    })?;
    closed(&board)?;
    private(&board)?;
    unsaid(&board, &["not-its-password", "home-pass-1", secret])?;
    stage.saw("machine server ready; nothing is offered any more; no secret in a log");
    stage.ends(&board)
}

/// A device that has an identity and no network, and the public client of Improv on a board of its own: two adapters of one bluetoothd
/// are no two ends, because it takes the one's connection for the other's and ends it. The client hears what the device hears,
/// waits until somebody is at the device, is refused with a wrong password and let in by the right one.
pub(super) fn improv(stage: &Stage<'_>) -> Result<Vec<String>, Trouble> {
    let site = stage.site()?;
    let board = stage.small_board()?;
    let phone = stage.small_board_called("phone")?;
    board.lead_to(&site.fleet.url)?;
    board.run("lab-ap up home --ssid HomeNet --password home-pass-1 --security wpa3")?;
    board.plug_in_bluetooth()?;
    phone.plug_in_bluetooth_near(&board)?;
    site.make_with(
        &board,
        json!({"improv": true, "offline_before_starting_hotspot_minutes": 0, "disable_wifi_provisioning": true}),
    )?;
    site.introduce(&board)?;
    let begin = Instant::now();
    site.install_without_identity(&board)?;
    offered(&board)?;
    stage.saw(format!("offered {:.1} s after the copying began", secs(begin)));

    let begin = Instant::now();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("lab/radio/host/improv.py");
    phone.put(&script, "/root/improv.py")?;
    let client = "python3 /root/improv.py /usr/local/lib/lab/improv hci0 HomeNet not-its-password home-pass-1";
    phone.run(&format!(
        "(setsid {client} >/root/improv.log 2>&1; echo \"ended $?\" >>/root/improv.log) </dev/null >/dev/null 2>&1 &"
    ))?;
    let log = || phone.run("cat /root/improv.log").unwrap_or_default();
    let says = |words: &str| {
        until(&board, words, || Some(log()).filter(|said| said.contains(words) || said.contains("\nended ")))
            .and_then(|said| ensure(said.contains(words), || format!("not {words:?}, but {said}")))
            .map_err(|trouble| Trouble(format!("{trouble}\n{}\n{}", log(), board.journal())))
    };
    says("waits")?;
    ensure(log().contains("needs a person: True") && log().contains("HomeNet"), log)?;
    stage.saw(format!("the client found it, heard HomeNet and waits for a person: {:.1} s", secs(begin)));

    let begin = Instant::now();
    // It ends with 3 where the hotspot is asked for and there is none.
    Target::ask(&board, "platform-agent provision --now")?;
    says("somebody is there")?;
    let there = secs(begin);
    says("refused: 3")?;
    let refused = secs(begin);
    says("ended 0")?;
    // The device has no page on the network that it joined.
    ensure(log().contains("state 4") && log().contains("goes on at None"), log)?;
    stage.saw(format!(
        "`provision --now` let it in after {there:.1} s; a wrong password refused after {refused:.1} s, the right one (WPA3) \
         taken after {:.1} s",
        secs(begin)
    ));
    site.until(&board, "a report", |status| status.agent_version == FIRST)?;
    unsaid(&board, &["not-its-password", "home-pass-1"])?;
    stage.ends(&board)
}

/// Bluetooth is open.
pub(super) fn offered(board: &RadioBoard) -> Result<(), Trouble> {
    until(board, "an offer by Bluetooth", || doors(board).filter(|doors| doors["bluetooth"] == "DOOR_OPEN").map(drop))
}

/// What stands on the label.
pub(super) fn password(board: &RadioBoard) -> Result<String, Trouble> {
    let said = board.run("platform-agent hotspot")?;
    let word = said.lines().find_map(|line| line.strip_prefix("password")).map(|word| word.trim().to_owned());
    word.ok_or_else(|| Trouble(format!("no label: {said}")))
}
