//! What is asked of a part: which one is meant, its secrets, its variables, its versions, its whole configuration.

use super::*;

#[test]
fn a_part_is_found_by_what_a_person_would_say() {
    let desk = Desk::new();
    let name = |line: &str| {
        let done = desk.run(&format!("part get {line} -o json"));
        assert_eq!(done.exit, 0, "{line}: {}", done.err);
        serde_json::from_str::<serde_json::Value>(&done.out).unwrap()["id"].as_str().unwrap().to_owned()
    };
    for line in ["", "rover", "plant/rover", "plant/rover/rover-main", ROVER_MAIN, ROVER] {
        assert_eq!(name(line), ROVER_MAIN, "{line:?}");
    }
    desk.fails(
        "part get attic/rover",
        1,
        "there is no location \"attic\"; there are:\n  plant  0a000000-0000-4000-8000-000000000002\n  lab",
    );
    desk.fails("part get arm", 1, "there is no machine \"arm\"; there are:\n  rover");
    desk.fails("part get plant/rover/left", 1, "there is no part \"left\"; there are:\n  rover-main");
    desk.fleet.state().two_machines = true;
    desk.fails("part get", 1, "there is more than one machine; name one, as LOCATION/MACHINE or by its id:\n  rover  0a000000-0000-4000-8000-000000000004\n  rover");
    desk.fails("part get rover", 1, "more than one machine is called \"rover\"");
    assert_eq!((name("plant/rover"), name("lab/rover")), (ROVER_MAIN.to_owned(), ARM_MAIN.to_owned()));
}

#[test]
fn secrets_are_shown_only_to_who_asks_for_them() {
    let desk = Desk::new();
    for line in [
        "part get",
        "part get -o json",
        "part list -o json",
        "machine get -o json",
        "part history -o json",
        "part secret list -o json",
        "part secret create -o json",
        "location get plant -o json",
        "location list -o json",
    ] {
        let done = desk.run(line);
        assert_eq!(done.exit, 0, "{line}: {}", done.err);
        assert!(!done.out.contains("s3cret"), "{line}: {}", done.out);
    }
    desk.shows("part credentials", "{\"cloud\": {\"secret\": \"s3cret\"}}\n");
    desk.shows(
        "part credentials --write device.json",
        "Written to device.json; put it on the device as /etc/platform.json.\n",
    );
    let path = desk.home.path().join("device.json");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::read_to_string(path).unwrap(), "{\"cloud\": {\"secret\": \"s3cret\"}}");
    desk.shows("part secret list", "ID                                    STATE    CREATED\n0a000000-0000-4000-8000-000000000008  enabled  2023-11-14T22:13:20.500Z\n");
    desk.shows(&format!("part secret delete {KEY_ID}"), &format!("Secret {KEY_ID} is deleted.\n"));
}

#[test]
fn environment_variables() {
    let desk = Desk::new();
    desk.shows(
        "part env set GREETING=hello␠world EMPTY=",
        "GREETING, EMPTY set for \"rover-main\"; its machine server is restarted as soon as it permits.\n",
    );
    assert_eq!(
        desk.config(),
        serde_json::json!({"components": [], "agent": {"advanced_settings": {"debug": true, "platform_server_env": {"GREETING": "hello world", "EMPTY": ""}}}})
    );
    assert!(desk.fleet.state().config.starts_with("{\n  \"components\""), "the order of keys is kept");
    desk.shows("part env list", "GREETING=hello world\nEMPTY=\n");
    desk.shows("part env set GREETING=hello␠world", "Nothing to change for \"rover-main\".\n");
    desk.shows(
        "part env unset GREETING --part plant/rover",
        "GREETING removed for \"rover-main\"; its machine server is restarted as soon as it permits.\n",
    );
    desk.shows("part env list -o json", "{\n  \"EMPTY\": \"\"\n}\n");
    desk.fails("part env set GREETING", 2, "\"GREETING\" is not KEY=VALUE");
    desk.fails("part env set =x", 2, "\"=x\" is not KEY=VALUE");
    desk.fails("part env set", 2, "required arguments were not provided");
}

#[test]
fn a_small_change_survives_somebody_elses() {
    let desk = Desk::new();
    desk.fleet.state().rivals = 2;
    desk.shows("part env set A=1 -o json", &format!("{{\n  \"part_id\": \"{ROVER_MAIN}\",\n  \"changed\": true\n}}\n"));
    desk.fleet.state().rivals = 100;
    desk.fails(
        "part env set A=2",
        1,
        "the part was changed meanwhile (ABORTED)\nSomebody else changed it in the meantime",
    );
}

#[test]
fn pinning() {
    let desk = Desk::new();
    desk.shows("part pin 1.0.0", "platform-server of \"rover-main\" is pinned to 1.0.0; the device fetches it now and starts it at its next restart (`platform part restart`).\n");
    assert_eq!(desk.config()["agent"]["version_control"], serde_json::json!({"platform-server": "1.0.0"}));
    desk.shows(
        "part pin dev --agent",
        "platform-agent of \"rover-main\" is pinned to dev; the device switches once it is verified.\n",
    );
    desk.shows("part pin 1.0.0", "platform-server of \"rover-main\" was pinned to 1.0.0 already.\n");
    let before = desk.fleet.state().config.clone();
    desk.fails("part pin not␠a␠version", 1, "the device would not accept this, so nothing was changed:\n  ");
    assert_eq!(desk.fleet.state().config, before);
}

#[test]
fn the_whole_configuration() {
    let desk = Desk::new();
    desk.shows("part config get", "{\"components\": [], \"agent\": {\"advanced_settings\": {\"debug\": true}}}\n");
    desk.file("good.json", r#"{"agent": {"version_control": {"agent": "stable"}}}"#);
    desk.shows(
        "part config set good.json",
        "The configuration of \"rover-main\" is changed; its device takes it over within seconds.\n",
    );
    assert_eq!(desk.fleet.state().config, r#"{"agent": {"version_control": {"agent": "stable"}}}"#, "to the letter");

    desk.file("bad.json", r#"{"agent": {"advanced_settings": {"debug": "yes"}}}"#);
    desk.fails("part config set bad.json", 1, "(--force changes it anyway):\n  line 1, column 43: ");
    desk.fails("part config set bad.json", 1, "advanced_settings.debug: found \"yes\"");
    assert_eq!(desk.run("part config set bad.json --force").exit, 0);
    let known = desk.run("part env set A=1");
    assert_eq!(known.exit, 0, "an old fault does not stand in the way of something else: {}", known.err);
    assert!(known.err.contains("note: the device does not accept"), "{}", known.err);

    let piped = desk.run_with("part config set -", "[]", &[]);
    assert_eq!(
        (piped.exit, piped.err.contains("this is not a configuration, which is a JSON object")),
        (1, true),
        "{}",
        piped.err
    );
    desk.fails(
        "part config set good.json --unchanged-since 2023-11-14T22:13:20.500Z",
        1,
        "the part was changed meanwhile",
    );
    desk.fails("part config set good.json --unchanged-since yesterday", 2, "--unchanged-since");
    desk.fails("part config set none.json", 1, "none.json: No such file");
}

#[test]
fn editing() {
    let desk = Desk::new();
    let edit = |script: &str| {
        let editor = desk.home.path().join("editor.sh");
        let text = format!("#!/bin/sh\nstat -c %a \"$2\" > mode\n{script}\n");
        test_executables::write(&editor, text.as_bytes()).unwrap();
        desk.run_with("part config edit", "", &[("EDITOR", &format!("{} --wait", editor.display()))])
    };
    let done = edit("sed -i s/true/false/ \"$2\"");
    assert_eq!((done.exit, done.err.as_str()), (0, ""), "{}", done.out);
    assert_eq!(desk.config()["agent"]["advanced_settings"]["debug"], false);
    assert_eq!(fs::read_to_string(desk.home.path().join("mode")).unwrap(), "600\n");
    assert_eq!(edit("true").out, "Nothing was changed.\n");
    let done = edit("exit 3");
    assert!(done.exit == 1 && done.err.contains("nothing was changed"), "{}", done.err);
    let done = edit("echo '{oh' > \"$2\"");
    assert!(done.exit == 1 && done.err.contains("Your text is kept in "), "{}", done.err);
    let kept = done.err.split("kept in ").nth(1).unwrap().split(".\n").next().unwrap();
    assert_eq!(fs::read_to_string(kept).unwrap(), "{oh\n");
    // What a device would not take is not sent, and what somebody else changed meanwhile is not written over.
    let before = desk.config();
    let done = edit("echo '{\"agent\": {\"advanced_settings\": {\"debug\": \"yes\"}}}' > \"$2\"");
    assert!(done.exit == 1 && done.err.contains("debug") && done.err.contains("Your text is kept in "), "{}", done.err);
    desk.fleet.state().rivals = 1;
    let done = edit("sed -i s/false/true/ \"$2\"");
    assert!(done.exit == 1 && done.err.contains("changed meanwhile (ABORTED)"), "{}", done.err);
    assert!(done.err.contains("Your text is kept in "), "{}", done.err);
    assert_eq!(desk.config(), before);
}
