//! Every command against a real server, on both engines: what it shows to people, what it tells programs, and that no
//! operation is to be reached by `call` alone.

use std::{collections::BTreeSet, fs, os::unix::fs::PermissionsExt as _, path::Path, process::Command};

use api::pb::platform::{
    app::v1::{LogRequest, robot_service},
    common::v1::LogEntry,
};
use serde_json::{Value, json};
use test_harness::real::{eventually, fleet::call, http, process::Running, programs::find};

use super::desk::{Desk, text};
use crate::world::Signal;

/// The server's own table.
const TABLE: &str = include_str!("../../../../fleet/src/operations.rs");
/// What devices call about themselves: for people only by `call`.
const OF_DEVICES: [&str; 6] = ["Config", "Log", "NeedsRestart", "DeviceAgentConfig", "Report", "UploadLogs"];

#[test]
fn every_command_does_what_it_says_and_every_operation_has_one() {
    story(None);
}

#[test]
fn every_command_does_what_it_says_on_postgresql_too() {
    if let Some(database) = test_postgres::database_or_skip("every command on PostgreSQL") {
        story(Some(&database));
    }
}

fn story(database: Option<&str>) {
    let mut desk = Desk::new(database, &[]);
    let gamma = organizations(&mut desk);
    places(&mut desk, &gamma);
    machines(&mut desk);
    parts(&mut desk);
    configuration(&mut desk);
    logs(&mut desk);
    fragments(&mut desk);
    modules(&mut desk);
    registry(&mut desk);
    keys(&mut desk);
    people(&mut desk, database);
    metadata(&mut desk);
    desk.shows("audit list -n 3", &["WHEN", "UpdateRobotPartMetadata", "127.0.0.1"]);
    desk.tells("audit list -n 1", &[("/0/operation", json!("UpdateRobotPartMetadata"))]);
    let all = desk.prints("audit export");
    assert!(all.len() > 60 && all.iter().all(|row| row["when"].is_string()), "{} changes", all.len());
    endings(&mut desk);

    let called = operations_called(&desk);
    let expected: BTreeSet<String> = operations().into_iter().filter(|name| !OF_DEVICES.contains(&&**name)).collect();
    assert!(expected.len() >= 80, "{} rows were read", expected.len());
    let missing: Vec<&String> = expected.difference(&called).collect();
    assert!(missing.is_empty(), "no command called these, or none with success: {missing:?}");

    without_a_server(&mut desk);
    let missing: Vec<&String> = desk.commands.difference(&desk.shown).collect();
    assert!(missing.is_empty(), "not seen to show anything: {missing:?}");
    // A program in the language of a shell is the same for everybody.
    let missing: Vec<&String> =
        desk.commands.difference(&desk.documented).filter(|name| *name != "completion").collect();
    assert!(missing.is_empty(), "not seen to print JSON: {missing:?}");
}

/// "        unary GetRobot get_robot(app::GetRobotRequest) -> …" → "GetRobot"
fn operations() -> BTreeSet<String> {
    let rows = TABLE.lines().filter_map(|line| {
        let mut words = line.trim().split(' ');
        let kind = words.next()?;
        let name = words.next().filter(|_| matches!(kind, "unary" | "stream" | "upload"))?;
        words.next()?.contains('(').then(|| name.to_owned())
    });
    rows.collect()
}

/// Those that the server counts as done.
fn operations_called(desk: &Desk) -> BTreeSet<String> {
    let (status, page) = http::get(&format!("{}/metrics", desk.fleet.url)).unwrap();
    assert_eq!(status, 200, "{page}");
    let done = page.lines().filter_map(|line| {
        let rest = line.strip_prefix("fleet_calls_total{operation=\"")?;
        let (path, rest) = rest.split_once('"')?;
        rest.starts_with(",code=\"0\"").then(|| path.rsplit('/').next().unwrap_or(path).to_owned())
    });
    done.collect()
}

/// The id of another organization of the same owner.
fn organizations(desk: &mut Desk) -> String {
    let id = desk.owner.organization_id.clone();
    desk.shows("organization list", &["NAME     ID", "Sandbox  ", &id]);
    desk.tells("organization list", &[("/0/name", json!("Sandbox")), ("/0/id", json!(id))]);
    desk.shows("organization get", &["name       Sandbox\n", &id]);
    desk.tells(&format!("organization get {id}"), &[("/name", json!("Sandbox"))]);
    desk.shows("organization namespace acme", &["acme is to be had.\n"]);
    desk.shows("organization update Sandbox --namespace acme", &["namespace  acme\n"]);
    desk.tells(
        "organization update Sandbox --name Acme␠&␠Söhne",
        &[("/name", json!("Acme & Söhne")), ("/public_namespace", json!("acme"))],
    );
    desk.tells("organization namespace acme", &[("/available", json!(false))]);
    desk.shows("organization create Beta", &["name       Beta\n"]);
    let gamma = desk.tells("organization create Gamma", &[("/name", json!("Gamma"))]);
    desk.fails("location list", 1, &["there is more than one organization; use --organization:\n  ", "Gamma"]);
    desk.environment.push(("PLATFORM_ORGANIZATION".into(), "Acme & Söhne".into()));
    desk.shows("organization delete Beta", &["Organization \"Beta\" is deleted.\n"]);
    text(&gamma, "/id")
}

fn places(desk: &mut Desk, gamma: &str) {
    let north = text(&desk.tells("location create North", &[("/name", json!("North"))]), "/id");
    desk.shows("location create South --parent North", &["name      South\n", &format!("parent    {north}\n")]);
    desk.shows("location list", &["NAME   ID", "South  ", &north]);
    let listed = desk.tells("location list", &[("/1/parent_location_id", json!(north))]);
    let south = text(&listed, "/1/id");
    desk.shows("location get North", &[&format!("id        {north}\n")]);
    desk.tells(&format!("location get {south}"), &[("/name", json!("South"))]);
    desk.fails("location update South", 2, &["nothing to change: give --name, --parent or --top"]);
    desk.shows("location update South --name Down", &["name      Down\n", &north]);
    desk.tells("location update Down --top", &[("/parent_location_id", json!("")), ("/name", json!("Down"))]);
    desk.fails("location update North --parent North", 1, &["parent_location_id"]);

    desk.shows(&format!("location share North {gamma}"), &[&format!("{gamma} sees \"North\" now.\n")]);
    desk.shows("location shared North", &["NAME", "Gamma  "]);
    desk.tells("location shared North", &[("/1/id", json!(gamma))]);
    desk.tells(&format!("location unshare North {gamma}"), &[("/organization_id", json!(gamma))]);
    assert_eq!(desk.tells("location shared North", &[]).as_array().unwrap().len(), 1);
    desk.tells(&format!("location share North {gamma}"), &[]);
    desk.shows(&format!("location unshare North {gamma}"), &["no longer sees \"North\".\n"]);

    let out = desk.shows("location secret create North", &["ID  ", "SECRET", "  enabled  "]);
    let words: Vec<&str> = out.lines().nth(1).unwrap().split_whitespace().collect();
    let (first, secret) = (words[0].to_owned(), words[3].to_owned());
    let made = desk.tells("location secret create North", &[("/1/state", json!("STATE_ENABLED"))]);
    let second = (0..2).map(|at| text(&made, &format!("/{at}/id"))).find(|id| *id != first).unwrap();
    assert!(!desk.shows("location secret list North", &[&first, &second]).contains(&secret));
    assert!(!desk.tells("location secret list North", &[]).to_string().contains(&secret));
    desk.shows("location secret list North --reveal", &[&secret]);
    desk.fails("location secret create North", 1, &["FAILED_PRECONDITION"]);
    desk.shows(&format!("location secret delete {first} --location North"), &[&format!("Secret {first} is deleted")]);
    desk.tells(&format!("location secret delete {second} --location North"), &[("/id", json!(second))]);
    for name in ["Attic", "Cellar"] {
        desk.tells(&format!("location create {name}"), &[]);
    }
    desk.shows("location delete Attic", &["Location \"Attic\" is deleted.\n"]);
    desk.tells("location delete Cellar", &[]);
}

fn machines(desk: &mut Desk) {
    desk.shows("machine create rover --location North", &["Machine \"rover\" is made. Its id is "]);
    let arm = text(&desk.tells("machine create arm --location Down", &[("/name", json!("arm"))]), "/id");
    desk.shows("machine list", &["NAME   LOCATION  STATE           ID\n", "arm    Down      awaiting setup  ", &arm]);
    let there = desk.tells("machine list --location Down", &[("/0/id", json!(arm))]);
    assert_eq!(there.as_array().unwrap().len(), 1, "{there:#}");
    desk.shows("machine get North/rover", &["name      rover\n", "part      rover-main (main)  "]);
    let got = desk.tells("machine get North/rover", &[("/parts/0/main_part", json!(true))]);
    assert_eq!(got.pointer("/parts/0/secret"), Some(&json!("")), "{got}");
    desk.shows("machine update rover --name crawler", &["name      crawler\n"]);
    let down = desk.tells("machine update crawler --location Down", &[("/name", json!("crawler"))]);
    assert_eq!(text(&down, "/location"), text(&desk.tells("location get Down", &[]), "/id"));
    desk.shows("machine update Down/crawler --location North", &["location  "]);
    desk.shows("machine status crawler", &["machine  crawler\n", "device   has not reported yet\n"]);
    desk.tells("machine status crawler", &[("/0/part_name", json!("rover-main")), ("/0/live", json!(false))]);
    desk.shows("machine summary", &["LOCATION  MACHINE", "North     crawler  rover-main  awaiting setup"]);
    desk.tells("machine summary --location Down", &[("/location_summaries/0/location_name", json!("Down"))]);
    desk.shows("machine retry-update crawler", &["The devices of \"crawler\" try their updates again"]);
    desk.tells(&format!("machine retry-update {arm}"), &[("/machine_id", json!(arm))]);
    desk.fails("machine get wing", 1, &["there is no machine \"wing\"; there are:\n  ", "crawler"]);
}

fn parts(desk: &mut Desk) {
    desk.shows("part create left --machine crawler", &["Part \"left\" is made. Its id is "]);
    let right = text(&desk.tells("part create right --machine crawler", &[("/name", json!("right"))]), "/id");
    desk.shows("part list crawler", &["NAME        MAIN  STATE", "rover-main  yes   awaiting setup  ", &right]);
    let listed = desk.tells("part list crawler", &[("/0/main_part", json!(true)), ("/2/id", json!(right))]);
    let main = text(&listed, "/0/id");
    desk.shows("part get crawler", &["name     rover-main\n", "main     yes\n"]);
    desk.tells("part get North/crawler/right", &[("/id", json!(right)), ("/secret", json!(""))]);
    desk.shows("part update North/crawler/left --name links", &["name     links\n"]);
    desk.tells("part update North/crawler/links --name left", &[("/name", json!("left"))]);
    desk.shows("part find right --location North", &[&right]);
    desk.tells("part find right --location North", &[("/id", json!(right))]);
    desk.shows("part make-main North/crawler/left", &["\"left\" is the main part of its machine now.\n"]);
    desk.tells(&format!("part make-main {main}"), &[("/part_id", json!(main))]);
    desk.fails(&format!("part delete {main}"), 1, &["make another part the main part first"]);
    desk.shows("part delete North/crawler/left", &["Part \"left\" is deleted.\n"]);
    desk.tells(&format!("part delete {right}"), &[("/part_id", json!(right))]);
    desk.shows("part restart crawler", &["The machine server of \"rover-main\" is restarted as soon as it permits.\n"]);
    desk.tells(&format!("part restart {main}"), &[("/part_id", json!(main))]);
    desk.shows("machine status crawler", &["restart  marked "]);

    let told = desk.prints("part credentials crawler");
    assert_eq!((text(&told[0], "/cloud/id"), told.len()), (main.clone(), 1));
    desk.shows("part credentials crawler --write device.json", &["Written to device.json; put it on the device as "]);
    desk.tells(&format!("part credentials {main} --write again.json"), &[("/part_id", json!(main))]);
    for name in ["device.json", "again.json"] {
        let path = desk.path(name);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(serde_json::from_slice::<Value>(&fs::read(path).unwrap()).unwrap(), told[0]);
    }
    let secret = text(&told[0], "/cloud/secret");

    let before = desk.tells("part secret list crawler", &[("/0/secret", json!(""))]);
    desk.shows("part secret list crawler", &[&text(&before, "/0/id"), "  enabled  "]);
    let other = |desk: &mut Desk| {
        let now = desk.tells("part secret list crawler", &[]);
        let mut ids = (0..2).map(|at| text(&now, &format!("/{at}/id")));
        ids.find(|id| *id != text(&before, "/0/id")).unwrap()
    };
    desk.shows("part secret create crawler", &["ID  ", "  enabled  "]);
    let made = other(desk);
    desk.shows(&format!("part secret delete {made} --part crawler"), &[&format!("Secret {made} is deleted.\n")]);
    desk.tells("part secret create crawler", &[("/1/state", json!("STATE_ENABLED"))]);
    let made = other(desk);
    desk.tells(&format!("part secret delete {made} --part crawler"), &[("/id", json!(made))]);
    assert_eq!(text(&desk.prints("part credentials crawler")[0], "/cloud/secret"), secret, "the first one is left");
}

fn configuration(desk: &mut Desk) {
    desk.shows("part env set GREETING=hello␠world EMPTY= -p crawler", &["GREETING, EMPTY set for \"rover-main\"; "]);
    desk.tells("part env set EMPTY= -p crawler", &[("/changed", json!(false))]);
    desk.shows("part env list crawler", &["GREETING=hello world\nEMPTY=\n"]);
    desk.tells("part env list crawler", &[("/GREETING", json!("hello world"))]);
    desk.shows("part env unset EMPTY -p crawler", &["EMPTY removed for \"rover-main\"; "]);
    desk.tells("part env unset GREETING -p crawler", &[("/changed", json!(true))]);
    desk.shows("part pin 1.0.0 -p crawler", &["platform-server of \"rover-main\" is pinned to 1.0.0; "]);
    desk.tells("part pin stable --agent -p crawler", &[("/version", json!("stable")), ("/changed", json!(true))]);
    let printed = desk.prints("part config get crawler");
    assert_eq!(printed[0]["agent"]["version_control"], json!({"platform-server": "1.0.0", "agent": "stable"}));
    let told = desk.tells("part config get crawler", &[("/config", printed[0].clone())]);
    let since = text(&told, "/last_updated");

    desk.file("good.json", r#"{"components": [], "agent": {"advanced_settings": {"debug": false}}}"#);
    desk.file("bad.json", r#"{"agent": {"advanced_settings": {"debug": 7}}}"#);
    desk.shows("config check good.json", &["good.json: a device accepts all of it\n"]);
    desk.tells("config check good.json", &[("", json!([]))]);
    desk.shows(&format!("part config set good.json -p crawler --unchanged-since {since}"), &["is changed; its device"]);
    desk.fails(&format!("part config set good.json -p crawler --unchanged-since {since}"), 1, &["ABORTED"]);
    desk.tells("part config set good.json -p crawler", &[("/changed", json!(true))]);
    desk.fails("part config set bad.json -p crawler", 1, &["advanced_settings.debug", "--force changes it anyway"]);
    desk.environment.push(("EDITOR".into(), "sed -i s/false/true/".into()));
    desk.shows("part config edit crawler", &["The configuration of \"rover-main\" is changed; "]);
    assert_eq!(desk.prints("part config get crawler")[0]["agent"]["advanced_settings"]["debug"], json!(true));
    desk.tells("part config edit crawler", &[("/changed", json!(false))]);
    desk.shows("part history crawler", &["WHEN", "NAME BEFORE", "rover-main"]);
    let history = desk.tells("part history crawler", &[("/0/old/name", json!("rover-main"))]);
    assert!(history.as_array().unwrap().len() >= 7, "{history:#}");
}

fn logs(desk: &mut Desk) {
    let part = text(&desk.tells("part get crawler", &[]), "/id");
    let client = desk.fleet.client(&desk.owner).unwrap();
    let log = |message: &str, level: &str| {
        let time = Some(std::time::SystemTime::now().into());
        let (message, level, logger_name) = (message.to_owned(), level.to_owned(), "platform-agent.update".to_owned());
        let entry = LogEntry { message, level, logger_name, time, ..LogEntry::default() };
        call(&client, robot_service::LOG, &LogRequest { id: part.clone(), logs: vec![entry] }).unwrap();
    };
    log("a first line", "info");
    log("a second line", "error");
    desk.shows("part logs crawler", &["a first line\n", "a second line\n"]);
    let errors = desk.shows("part logs crawler --level error --source platform-agent --since 1h", &["a second line\n"]);
    assert_eq!(errors.lines().count(), 1, "{errors}");
    let told = desk.prints("part logs crawler --filter first -o json");
    assert_eq!((text(&told[0], "/message"), told.len()), ("a first line".to_owned(), 1));

    let file = desk.path("followed");
    let command = desk.command("part logs crawler --follow -n 1");
    let (follower, _) = Running::start(command, "platform", &file, false).unwrap();
    let sees = |words: &str| eventually(words, || follower.said().contains(words).then_some(())).unwrap();
    sees("a second line");
    // Its place in the stream is taken when it has seen what is there; what comes now comes by the stream or is read back.
    log("a third line", "info");
    sees("a third line");
    eventually("the stream", || operations_called(desk).contains("TailRobotPartLogs").then_some(())).unwrap();
    assert_eq!(follower.said().matches("line").count(), 2, "nothing twice: {}", follower.said());
    // Not INT, which a shell has its background programs ignore, and this test with them.
    assert_eq!(follower.end_by(Signal::TERM).unwrap(), None, "it ends when it is told to");
}

fn fragments(desk: &mut Desk) {
    desk.file("base.json", r#"{"agent": {"minutes": 10, "none": null}}"#);
    desk.shows("fragment create base base.json", &["name          base\n", "revision      1\n", "\"minutes\":10"]);
    let other = desk.tells("fragment create other base.json", &[("/name", json!("other"))]);
    desk.shows("fragment list", &["NAME   ID", "base   ", "other  "]);
    desk.tells("fragment list", &[("/1/id", json!(text(&other, "/id")))]);
    desk.shows("fragment update base --name basis", &["name          basis\n", "revision      2\n", "\"none\":null"]);
    desk.file("more.json", r#"{"agent": {"minutes": 20}}"#);
    let changed = desk.tells("fragment update basis more.json --visibility unlisted", &[("/revision", json!("3"))]);
    desk.shows("fragment get basis --version 1", &["revision      1\n", "10"]);
    desk.tells("fragment get basis", &[("/fragment/agent/minutes", json!(20))]);
    desk.shows("fragment history basis", &["WHEN", "NAME BEFORE", "basis"]);
    desk.tells("fragment history basis", &[("/0/revision", json!("3"))]);

    let id = text(&changed, "/id");
    desk.file("uses.json", &format!(r#"{{"fragments": ["{id}"]}}"#));
    desk.tells("part config set uses.json -p crawler", &[]);
    desk.shows("machine fragments crawler", &["NAME   ID", &id]);
    desk.tells("machine fragments crawler", &[("/fragments/0/id", json!(id))]);
    desk.tells(&format!("machine summary --fragment {id}"), &[("/location_summaries/0/location_name", json!("North"))]);
    desk.fails("fragment delete basis", 1, &["FAILED_PRECONDITION"]);
    desk.tells("part config set good.json -p crawler", &[]);
    defaults(desk, &id, &text(&other, "/id"));
    desk.shows("fragment delete basis", &["Fragment \"basis\" is deleted.\n"]);
    desk.tells("fragment delete other", &[("/id", json!(text(&other, "/id")))]);
}

/// New machines begin with them, and with nothing again.
fn defaults(desk: &mut Desk, basis: &str, other: &str) {
    let organization = desk.owner.organization_id.clone();
    let line = format!("organization update {organization} --default-fragment basis@1 --default-fragment {other}");
    desk.shows(&line, &[&format!("defaults   {basis}@1, {other}\n")]);
    desk.shows("machine create begun --location North", &["Machine \"begun\" is made."]);
    desk.tells(
        "part config get begun",
        &[("/config/fragments", json!([{"id": basis, "version": "1"}, {"id": other}]))],
    );
    desk.tells("machine delete begun", &[]);
    desk.fails("fragment delete other", 1, &["FAILED_PRECONDITION", "default"]);
    let line = format!("organization update {organization} --no-default-fragments --region north --cid 7");
    let shown = desk.shows(&line, &["region     north\n", "cid        7\n"]);
    assert!(!shown.contains("defaults"), "{shown}");
}

fn modules(desk: &mut Desk) {
    desk.shows("module create camera", &["id   acme:camera\n", "/packages/v1/acme/camera\n"]);
    desk.tells("module create lidar", &[("/module_id", json!("acme:lidar"))]);
    let meta = r#"{"description": "takes pictures", "entrypoint": "bin/run",
        "models": [{"api": "rdk:component:camera", "model": "acme:camera:usb"}],
        "applications": [{"name": "board", "type": "multi_machine", "entrypoint": "index.html", "logoPath": "logo.png",
            "customizations": {"machinePicker": {"heading": "Choose"}}}]}"#;
    desk.file("meta.json", meta);
    desk.shows("module update camera --meta meta.json", &["description  takes pictures\n", "apps         board\n"]);
    desk.tells("module update camera --visibility public", &[("/visibility", json!("VISIBILITY_PUBLIC"))]);
    let content = "0123456789".repeat(50_000);
    desk.file("camera.tar.gz", &content);
    let line = "module upload camera camera.tar.gz --version 1.0.0 --platform linux/arm64 --tag distro:debian";
    desk.shows(line, &["acme:camera 1.0.0 for linux/arm64 is uploaded: 500000 bytes, sha256 "]);
    let line = "module upload acme:camera camera.tar.gz --version 1.1.0 --platform any";
    let sum = text(&desk.tells(line, &[("/version", json!("1.1.0")), ("/bytes", json!(500_000))]), "/sha256");
    desk.shows(line, &[&sum]);
    desk.file("other.tar.gz", "something else");
    let line = "module upload camera other.tar.gz --version 1.1.0 --platform any";
    desk.fails(line, 1, &["could not upload the file", "ALREADY_EXISTS"]);
    desk.shows("module list", &["ID           VISIBILITY  NEWEST", "acme:camera  public      1.1.0", "acme:lidar"]);
    desk.tells("module list", &[("/0/module_id", json!("acme:camera"))]);
    desk.shows("module get camera", &["VERSION  PLATFORM", "1.0.0    linux/arm64", "1.1.0    any"]);
    desk.tells("module get camera", &[("/apps/0/name", json!("board")), ("/models/0/model", json!("acme:camera:usb"))]);
    desk.shows("module file camera --version 1.0.0", &["platform  linux/arm64\n", "bytes     500000\n", &sum]);
    desk.tells("module file camera", &[("/info/version", json!("1.1.0")), ("/checksum", json!(sum))]);
    desk.shows("module download camera --to here.tar.gz", &["here.tar.gz is here: 500000 bytes, SHA-256 ", &sum]);
    desk.tells("module download camera --version 1.0.0 --to there.tar.gz", &[("/sha256", json!(sum))]);
    for name in ["here.tar.gz", "there.tar.gz"] {
        assert_eq!(fs::read_to_string(desk.path(name)).unwrap(), content, "{name}");
    }
    desk.shows("app content acme board", &["entrypoint  index.html\n", "kind        for several machines\n"]);
    desk.tells("app content acme board", &[("/app_type", json!("APP_TYPE_MULTI_MACHINE")), ("/public", json!(true))]);
    desk.shows("app branding acme board", &["logo       logo.png\n", "texts      machinePicker.heading: Choose\n"]);
    desk.tells("app branding acme board", &[("/logo_path", json!("logo.png"))]);
}

fn registry(desk: &mut Desk) {
    desk.shows("registry create weights --kind model", &["id           acme:weights\n", "kind         model\n"]);
    desk.tells("registry create maze --kind map", &[("/type", json!("PACKAGE_TYPE_SLAM_MAP"))]);
    desk.shows("registry update weights --description finds␠screws", &["description  finds screws\n"]);
    desk.tells("registry update maze --visibility unlisted", &[("/visibility", json!("VISIBILITY_PUBLIC_UNLISTED"))]);
    desk.shows("registry get weights", &["visibility   private\n"]);
    desk.tells("registry get acme:weights", &[("/description", json!("finds screws"))]);
    desk.shows("registry list --own", &["ID            KIND", "acme:camera   module", "acme:weights  model"]);
    let found = desk.tells("registry list --search screws", &[("/0/item_id", json!("acme:weights"))]);
    assert_eq!(found.as_array().unwrap().len(), 1);
    let out = desk.shows(
        "registry files",
        &["NAME    KIND    VERSION  PLATFORM     BYTES", "camera  module  1.0.0    linux/arm64"],
    );
    assert_eq!(out.lines().count(), 3, "{out}");
    let told = desk.tells("registry files --item camera --kind module --version 1.1.0", &[]);
    assert_eq!((text(&told, "/0/info/platform"), told.as_array().unwrap().len()), ("any".to_owned(), 1));
    assert!(text(&told, "/0/url").contains("/packages/v1/acme/camera/1.1.0/any"), "{told}");
    desk.shows("registry files --kind model", &["There is no such file.\n"]);
    desk.shows("registry delete weights", &["The registry item ", ":weights is deleted.\n"]);
    desk.tells("registry delete acme:maze", &[("/id", json!("acme:maze"))]);
    desk.shows("module delete acme:lidar", &["The module acme:lidar is deleted.\n"]);
    desk.tells("module delete acme:camera", &[("/id", json!("acme:camera"))]);
}

fn keys(desk: &mut Desk) {
    let out =
        desk.shows("key create robots --role owner --machine North/crawler", &["id   ", "The key is shown this once"]);
    let id = out.split_whitespace().nth(1).unwrap().to_owned();
    let made = desk.tells("key create builder", &[]);
    desk.shows("machine keys crawler", &["robots  ", &id, "robot_owner "]);
    desk.tells("machine keys crawler", &[("/0/api_key/name", json!("robots"))]);
    desk.shows("key list", &["NAME", "builder  ", "organization_operator "]);
    desk.tells("key list", &[("/0/api_key/key", json!("")), ("/0/api_key/name", json!("owner@example.com"))]);
    // Keys work, and only as far as they go.
    let with = |desk: &Desk, id: &str, key: &str, line: &str| {
        let mut command = desk.command(line);
        command.env("PLATFORM_API_KEY_ID", id).env("PLATFORM_API_KEY", key);
        command.output().unwrap().status.success()
    };
    let (other, key) = (text(&made, "/id"), text(&made, "/key"));
    assert!(with(desk, &other, &key, "machine list") && !with(desk, &other, &key, "machine delete North/crawler"));
    let rotated = desk.tells(&format!("key rotate {other}"), &[("/id", json!(other))]);
    assert!(!with(desk, &other, &key, "machine list") && with(desk, &other, &text(&rotated, "/key"), "machine list"));
    desk.shows(&format!("key rotate {id}"), &[&format!("id   {id}\nkey  ")]);
    let copy = text(&desk.tells(&format!("key copy {id}"), &[]), "/id");
    desk.shows(&format!("key copy {id}"), &["The key is shown this once"]);
    desk.shows(&format!("key delete {copy}"), &[&format!("Key {copy} is deleted.\n")]);
    desk.tells(&format!("key delete {id}"), &[("/id", json!(id))]);

    // What a role says about a key.
    desk.shows(&format!("role add {other} owner --machine North/crawler"), &["is owner now.\n"]);
    desk.tells(&format!("role change {other} owner operator --machine North/crawler"), &[("/identity", json!(other))]);
    desk.shows("role list --machine North/crawler", &["ROLE", &format!("api-key  {other}")]);
    desk.tells(&format!("role remove {other} operator --machine North/crawler"), &[]);
}

fn people(desk: &mut Desk, database: Option<&str>) {
    let data = desk.fleet.data.clone();
    let add = |email: &str| {
        let mut command = Command::new(find("platform-fleet").unwrap());
        command.args(["user", "add", "--email", email, "--data"]).arg(&data);
        command.args(database.iter().flat_map(|database| ["--database", database]));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    let invite = "invite create ann@example.org --role operator --location North --no-mail";
    desk.shows(invite, &["e-mail   ann@example.org\n", "roles    location_operator "]);
    desk.fails(invite, 1, &["ALREADY_EXISTS"]);
    desk.tells(
        "invite create bob@example.org --no-mail",
        &[("/authorizations/0/authorization_id", json!("organization_owner"))],
    );
    desk.shows(
        "invite update ann@example.org --add owner --remove operator --location North",
        &["roles    location_owner "],
    );
    let line = "invite update bob@example.org --add operator --machine North/crawler";
    assert_eq!(desk.tells(line, &[])["authorizations"].as_array().unwrap().len(), 2);
    desk.shows("invite resend ann@example.org --no-mail", &["e-mail   ann@example.org\n"]);
    desk.tells("invite resend bob@example.org --no-mail", &[("/email", json!("bob@example.org"))]);
    desk.shows("member list", &["E-MAIL           STATE", "ann@example.org  invited"]);
    for who in ["carl", "dora"] {
        desk.tells(&format!("invite create {who}@example.org --no-mail"), &[]);
    }
    desk.shows("invite delete carl@example.org", &["carl@example.org is no longer invited.\n"]);
    desk.tells("invite delete dora@example.org", &[("/email", json!("dora@example.org"))]);

    // They come in: an account for the address accepts.
    add("ann@example.org");
    add("bob@example.org");
    let listed = desk.tells("member list", &[("/invites", json!([]))]);
    assert_eq!(listed["members"].as_array().unwrap().len(), 2, "{listed:#}");
    let ann = text(&desk.tells("member id ann@example.org", &[]), "/user_id");
    desk.shows("member id ann@example.org", &[&ann]);
    desk.shows("member list", &["ann@example.org  member"]);
    desk.shows("member organizations ann@example.org", &["NAME", "Acme & Söhne  "]);
    desk.tells(&format!("member organizations {ann}"), &[("/0/org_name", json!("Acme & Söhne"))]);
    desk.fails("member id nobody@example.org", 1, &["NOT_FOUND"]);

    desk.shows("role list --location North", &["ROLE            ON", &format!("user  {ann}")]);
    desk.tells("role list --location North", &[("/0/identity_id", json!(ann))]);
    desk.tells("role add ann@example.org operator", &[("/identity", json!("ann@example.org"))]);
    desk.shows("role change ann@example.org operator owner", &["ann@example.org is owner now.\n"]);
    desk.shows("role remove ann@example.org owner", &["ann@example.org is no longer owner there.\n"]);
    desk.shows(
        "role check read_robot write_robot --machine North/crawler",
        &["PERMISSION   HELD\n", "write_robot  yes\n"],
    );
    desk.tells("role check read_robot --machine North/crawler", &[("/permissions", json!(["read_robot"]))]);
    let (own, organization) = (desk.owner.key_id.clone(), desk.owner.organization_id.clone());
    desk.shows("member remove bob@example.org", &["bob@example.org is no longer a member.\n"]);
    desk.tells(&format!("member remove {ann}"), &[("/user_id", json!(ann))]);
    desk.fails(
        &format!("role remove {own} owner --organization {organization}"),
        1,
        &["without an owner who can sign in"],
    );
}

fn metadata(desk: &mut Desk) {
    desk.file("object.json", r#"{"shelf": {"row": 3, "tags": ["a", null]}}"#);
    let object: Value = serde_json::from_slice(&fs::read(desk.path("object.json")).unwrap()).unwrap();
    let things =
        [("organization", "Acme␠&␠Söhne"), ("location", "North"), ("machine", "North/crawler"), ("part", "crawler")];
    for (kind, name) in things {
        let what = format!("{kind} --of {name}");
        assert_eq!(desk.prints(&format!("metadata get {what}")), [json!({})]);
        desk.shows(&format!("metadata set {what} object.json"), &["The metadata is changed.\n"]);
        assert_eq!(desk.prints(&format!("metadata get {what}")), std::slice::from_ref(&object), "{kind}");
        assert!(text(&desk.tells(&format!("metadata set {what} object.json"), &[]), "/id").len() == 36);
    }
    desk.file("list.json", "[]");
    desk.fails("metadata set machine --of North/crawler list.json", 1, &["this is not a JSON object"]);
}

fn endings(desk: &mut Desk) {
    desk.shows("machine delete Down/arm", &["Machine \"arm\" is deleted.\n"]);
    desk.tells("machine delete North/crawler", &[]);
    desk.tells("organization delete Gamma", &[]);
    desk.tells("organization list", &[("/0/name", json!("Acme & Söhne"))]);
}

/// What the person's own folder keeps, and what needs no server.
fn without_a_server(desk: &mut Desk) {
    desk.file("key", desk.owner.key.expose());
    let login = format!("login --url {} --key-id {} --key-file key", desk.fleet.url, desk.owner.key_id);
    desk.shows(&login, &["Logged in to http://127.0.0.1:", "(profile \"default\" in "]);
    desk.tells(&format!("{login} --profile other"), &[("/profile", json!("other"))]);
    desk.environment.retain(|(name, _)| !name.starts_with("PLATFORM_"));
    desk.shows("machine list", &["There is no machine yet"]);
    desk.shows("logout --profile default", &["The key of profile \"default\" is forgotten here; "]);
    desk.tells("logout", &[("/profile", json!("other"))]);
    desk.fails("machine list", 1, &["you are not logged in"]);
    desk.shows("completion bash", &["complete -F"]);
    desk.shows("man other-pages", &[&format!("{} pages are in other-pages", pages(&desk.path("pages")))]);
    desk.tells("man pages", &[("/folder", json!("pages"))]);
    desk.shows("call", &["SERVICE", "GetRobotPartRequest"]);
    desk.environment.extend([
        ("PLATFORM_URL".into(), desk.fleet.url.clone()),
        ("PLATFORM_API_KEY_ID".into(), desk.owner.key_id.clone()),
        ("PLATFORM_API_KEY".into(), desk.owner.key.expose().to_owned()),
    ]);
    desk.tells("call ListOrganizations", &[("/organizations/0/name", json!("Acme & Söhne"))]);
}

fn pages(folder: &Path) -> usize {
    fs::read_dir(folder).unwrap().count()
}
