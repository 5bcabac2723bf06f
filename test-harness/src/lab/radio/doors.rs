//! Stories of people at a board's hotspot: one who sets a new device up, and one who wants somebody else's.

use std::time::Instant;

use api::{
    brand,
    client::Client,
    pb::platform::{
        fleet::v1::{GetPartStatusRequest, admin_service},
        provisioning::v1::{CloudConfig, SetSmartMachineCredentialsRequest},
    },
};
use prost::Message as _;
use serde_json::{Value, json};

use super::{
    bluetooth::offered as offered_by_bluetooth,
    board::RadioBoard,
    probes::PROBES,
    visitor::{Answer, Visitor, choice, doors, until},
};
use crate::{
    lab::{
        board::Target,
        site::FIRST,
        stories::{Stage, ensure},
    },
    real::{Trouble, device::Device, fleet::call},
};

/// Where the agent keeps who it is.
const IDENTITY: &str = "/etc/platform.json";
/// Where a visitor's phone has the credentials that he gives.
pub(super) const GIVEN: &str = "/root/credentials.json";
/// Where a script of a button says that somebody is at the device.
const FORCE: &str = "/opt/platform/etc/force_provisioning_mode";
/// What a person reads who may not say who the device is.
const STAYS: &str = "his device belongs to somebody already; only its network can be changed here";

/// A new device: its hotspot, a phone whose questions open the page, a wrong password told in words, then the right one
/// and the credentials; it is online with its configuration, and nothing is left of the hotspot.
pub(super) fn portal(stage: &Stage<'_>) -> Result<Vec<String>, Trouble> {
    let site = stage.site()?;
    site.configure(&json!({"network_configuration": {"hotspot_prefix": "hillside"}}))?;
    let board = stage.small_board()?;
    board.lead_to(&site.fleet.url)?;
    board.run("lab-ap up home --ssid HomeNet --password home-pass-1 --security mixed; lab-ap internet home on")?;
    site.make(&board)?;
    let begin = Instant::now();
    site.install_without_identity(&board)?;
    let visitor = Visitor::waits(&board)?;
    stage.saw(format!("{} open {:.1} s after the copying began", visitor.hotspot(), secs(begin)));
    ensure(visitor.hotspot() == "platform-setup-board", || visitor.hotspot().to_owned())?;

    let begin = Instant::now();
    let lease = visitor.joins()?;
    let rooms = ["address=10.42.0.", "router=10.42.0.1\n", "dns=10.42.0.1\n"];
    ensure(rooms.iter().all(|part| lease.contains(part)), || format!("the phone was told {lease}"))?;
    visitor.is_sent_to_the_page()?;
    let page = visitor.until_listed("HomeNet")?;
    ensure(page.contains("name=\"credentials\""), || format!("no field for credentials: {page}"))?;
    stage.saw(format!(
        "a phone joined, was sent to the page by {} questions of all makers, and saw HomeNet: {:.1} s",
        PROBES.len(),
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
    stage.saw(format!("a wrong password: hotspot gone after {gone:.1} s, back with the reason after {back:.1} s"));

    board.write(GIVEN, 0o600, site.device.credentials(&site.address(&board)).as_bytes())?;
    let begin = Instant::now();
    let both = format!("{} -F file=@{GIVEN}", network("HomeNet", "home-pass-1"));
    says(&visitor.sends("/join", &both)?, "200", "The device leaves to join <bdi>HomeNet</bdi>")?;
    site.until(&board, "a report of the new device", |status| status.agent_version == FIRST)?;
    let online = secs(begin);
    in_force(&board)?;
    let configured = secs(begin);
    site.until_ready(&board)?;
    stage.saw(format!(
        "the right one and credentials: online after {online:.1} s, configured after {configured:.1} s, its machine \
         server ready after {:.1} s",
        secs(begin)
    ));
    closed(&board)?;
    let link = board.run("iw dev wlan0 link")?;
    ensure(link.contains("SSID: HomeNet"), || link.clone())?;
    private(&board)?;
    unsaid(&board, &["not-its-password", "home-pass-1", site.device.part_secret.expose()])?;
    stage.saw(format!("nothing is left of the hotspot; {IDENTITY} is for root only; no secret in a log"));
    stage.ends(&board)
}

/// Somebody takes the network away from a device that has an owner, and meets its doors: whatever he gives, at whichever of them, it
/// stays whose it is. Only who is at the device is offered more.
pub(super) fn takeover(stage: &Stage<'_>) -> Result<Vec<String>, Trouble> {
    let site = stage.site()?;
    site.configure(&json!({"network_configuration": quick()}))?;
    let client = site.fleet.client(&site.owner)?;
    let other = Device::create(&client, &site.owner.organization_id, "Elsewhere", "other")?;
    let board = stage.small_board()?;
    board.lead_to(&site.fleet.url)?;
    board.plug_into_office()?;
    board.plug_in_bluetooth()?;
    site.install(&board)?;
    in_force(&board)?;
    let online = doors(&board).unwrap_or_default();
    ensure(online["open"] == false, || format!("an invitation while it is online: {online}"))?;
    let identity = || board.run(&format!("stat -c '%i %Y %a' {IDENTITY} && sha256sum {IDENTITY}"));
    let before = identity()?;
    stage.saw("installed, online, its doors closed");

    // Who is on the device, but not as who may.
    let ask = "setpriv --reuid 65534 --regid 65534 --clear-groups platform-agent provision --now";
    let asked = Target::ask(&board, ask)?;
    ensure(!asked.0, || format!("`provision --now` for anybody: {}", asked.1))?;
    let told = doors(&board).unwrap_or_default();
    ensure(told["open"] == false && told["forced"] == false, || format!("nobody opened it: {told}"))?;
    stage.saw("`provision --now` by another user of the device: refused, nothing opened");

    board.machine().plug_cable(false)?;
    let visitor = Visitor::waits(&board)?;
    stage.saw("its network gone, the hotspot is open");
    visitor.joins()?;
    let page = visitor.page()?;
    let offered = ["name=\"credentials\"", "type=\"file\""].iter().any(|field| page.contains(field));
    ensure(!offered && page.contains("only the network can be changed"), || {
        format!("the page offers too much: {page}")
    })?;

    let address = site.address(&board);
    board.write(GIVEN, 0o600, other.credentials(&address).as_bytes())?;
    let forms = [
        format!("-F file=@{GIVEN}"),
        format!("--data-urlencode credentials@{GIVEN}"),
        format!("{} -F file=@{GIVEN}", network("CafeNet", "cafe-pass-1")),
    ];
    for form in &forms {
        says(&visitor.sends("/join", form)?, "409", STAYS)?;
    }
    let cloud = CloudConfig {
        id: other.part_id.clone(),
        secret: other.part_secret.expose().into(),
        app_address: address.clone(),
        api_key: None,
    };
    let message = SetSmartMachineCredentialsRequest { cloud: Some(cloud) }.encode_to_vec();
    let length = u32::try_from(message.len()).unwrap_or_default().to_be_bytes();
    board.write("/root/call", 0o600, &[&[0], &length[..], &message].concat())?;
    let method = format!("/{}.provisioning.v1.ProvisioningService/SetSmartMachineCredentials", brand::NAME);
    let kind = "-H 'Content-Type: application/grpc-web+proto' --data-binary @/root/call --output -";
    let called = visitor.browses(&method, kind)?;
    says(&called, "200", STAYS)?;
    ensure(called.body.contains("grpc-status:9\r\n"), || called.body.clone())?;
    stage.saw("other credentials at the hotspot: three forms (409) and the provisioning service (9) refused in words");

    offered_by_bluetooth(&board)?;
    let words = ["take", visitor.password(), &other.part_id, other.part_secret.expose(), &address];
    let said = board.bluetooth_phone("app.py", &words)?;
    ensure(said.contains("told in words") && said.contains("verdict 2"), || said.clone())?;
    stage
        .saw("and by Bluetooth: the existing apps' service told so in words, the authenticated one with its verdict 2");

    let after = identity()?;
    ensure(after == before, || format!("{IDENTITY} was {before} and is {after}"))?;
    let told = doors(&board).unwrap_or_default();
    ensure(told["last_network"] == "" && told["forced"] == false, || format!("something came of it: {told}"))?;
    ensure(version(&client, &other)?.is_empty(), || "it has reported as the other machine".to_owned())?;

    // Somebody is at the device.
    board.write(FORCE, 0o644, b"")?;
    visitor.until_shown("Make it another machine")?;
    ensure(Target::ask(&board, &format!("test -e {FORCE}"))? == (false, String::new()), || format!("{FORCE} is left"))?;
    stage.saw("nothing of it changed anything; with the file of somebody at the device the page offers it");
    private(&board)?;
    unsaid(&board, &["cafe-pass-1", other.part_secret.expose(), site.device.part_secret.expose()])?;
    stage.ends(&board)
}

/// Somebody at a device that has an owner and is online opens its doors by hand, and makes it another machine; then again, and
/// leaves without having changed anything.
pub(super) fn by_hand(stage: &Stage<'_>) -> Result<Vec<String>, Trouble> {
    let site = stage.site()?;
    site.configure(&json!({"network_configuration": quick()}))?;
    let client = site.fleet.client(&site.owner)?;
    let other = Device::create(&client, &site.owner.organization_id, "Elsewhere", "other")?;
    let board = stage.small_board()?;
    board.lead_to(&site.fleet.url)?;
    board.plug_into_office()?;
    board.run("lab-ap up cafe --ssid CafeNet --security mixed --password cafe-pass-1 --channel 11")?;
    site.install(&board)?;
    in_force(&board)?;
    stage.saw("installed and online");
    board.write(FORCE, 0o644, b"")?;
    let visitor = Visitor::waits(&board)?;
    ensure(Target::ask(&board, &format!("test -e {FORCE}"))? == (false, String::new()), || format!("{FORCE} is left"))?;
    stage.saw("the file of somebody at the device: hotspot open");
    visitor.joins()?;
    visitor.until_shown("Make it another machine")?;
    board.write(GIVEN, 0o600, other.credentials(&site.address(&board)).as_bytes())?;
    let both = format!("-F network=other -F name=CafeNet -F password=cafe-pass-1 -F file=@{GIVEN}");
    says(&visitor.sends("/join", &both)?, "200", "The device leaves to join <bdi>CafeNet</bdi>")?;
    stage.saw("a network and other credentials given");
    until(&board, "a report as the other machine", || {
        version(&client, &other).ok().filter(|version| version == FIRST)
    })?;
    let now = board.run(&format!("cat {IDENTITY}"))?;
    ensure(now.contains(&other.part_id), || "it reports as who it is not".to_owned())?;
    // The cable is still in: that it is online does not wait for the network that was given.
    until(&board, "CafeNet", || {
        board.run("iw dev wlan0 link").ok().filter(|link| link.contains("SSID: CafeNet")).map(drop)
    })?;
    closed(&board)?;
    stage.saw("another machine, in that network, online; the hotspot is gone");

    let said = board.run("platform-agent provision --now")?;
    let visitor = Visitor::waits(&board)?;
    ensure(said.contains(visitor.hotspot()), || format!("`provision --now` said {said}"))?;
    stage.saw("`provision --now` opened it again");
    visitor.joins()?;
    visitor.until_shown("Make it another machine")?;
    visitor.sends("/leave", "")?;
    closed(&board)?;
    stage.saw("`leave` closed it");
    private(&board)?;
    unsaid(&board, &["cafe-pass-1", other.part_secret.expose(), site.device.part_secret.expose()])?;
    stage.ends(&board)
}

/// Doors that open as soon as the device is offline, and a name by which it is seen that the configuration is in force.
fn quick() -> Value {
    json!({"offline_before_starting_hotspot_minutes": 0, "hotspot_prefix": "hillside"})
}

/// That configuration is in force.
fn in_force(board: &RadioBoard) -> Result<(), Trouble> {
    until(board, "a configuration that is in force", || {
        board.run("platform-agent hotspot").ok().filter(|said| said.contains("hillside-board")).map(drop)
    })
}

pub(super) fn secs(since: Instant) -> f64 {
    since.elapsed().as_secs_f64()
}

/// The words of curl for a form with a network of the list.
pub(super) fn network(ssid: &str, password: &str) -> String {
    format!("-F network={} -F password={password}", choice(ssid))
}

pub(super) fn says(answer: &Answer, status: &str, sentence: &str) -> Result<(), Trouble> {
    let right = answer.status == status && answer.body.contains(sentence);
    ensure(right, || format!("not {status} and {sentence:?}, but {} and {}", answer.status, answer.body))
}

/// The version that a machine has reported last; empty while there is no report.
fn version(client: &Client, device: &Device) -> Result<String, Trouble> {
    let request = GetPartStatusRequest { part_id: device.part_id.clone() };
    let status = call(client, admin_service::GET_PART_STATUS, &request)?.status;
    Ok(status.unwrap_or_default().agent_version)
}

/// No hotspot, no page, and nothing of either.
pub(super) fn closed(board: &RadioBoard) -> Result<(), Trouble> {
    let left = "nmcli --terse --fields NAME connection show | grep hotspot; ls -A /etc/NetworkManager/dnsmasq-shared.d; \
                ss -Hltn 'sport = :80'; ip -4 address show wlan0 | grep 10.42.0.1";
    until(board, "the end of the hotspot", || {
        let said = Target::ask(board, left).ok()?.1;
        said.trim().is_empty().then_some(())
    })?;
    let doors = doors(board).unwrap_or_default();
    ensure(doors["hotspot"] == "DOOR_CLOSED" || doors["hotspot"] == "DOOR_DISABLED", || {
        format!("it still invites: {doors}")
    })
}

/// Who the device is can be read by root only.
pub(super) fn private(board: &RadioBoard) -> Result<(), Trouble> {
    let mode = board.run(&format!("stat -c '%a %U:%G' {IDENTITY}"))?;
    ensure(mode == "600 root:root", || format!("{IDENTITY} is {mode}"))
}

/// None of these is in a log.
pub(super) fn unsaid(board: &RadioBoard, secrets: &[&str]) -> Result<(), Trouble> {
    board.write("/run/lab/secrets", 0o600, secrets.join("\n").as_bytes())?;
    let logs = board.run("journalctl --boot --no-pager | grep -F -f /run/lab/secrets || true")?;
    ensure(logs.is_empty(), || format!("a secret in a log: {logs}"))
}
