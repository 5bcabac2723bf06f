//! Which of several sources counts, and what of them is kept.

use super::*;

#[test]
fn later_sources_win_field_by_field() {
    let defaults = r#"{
        "advanced_settings": {"debug": true, "disk_reserve_megabytes": 100, "platform_server_env": {"A": "1", "B": "1"}},
        "network_configuration": {"user_idle_minutes": 9, "fragment_id": "f-1"},
        "additional_networks": {"a": {"type": "wifi", "ssid": "A", "priority": 1}, "b": {"type": "wired"}}
    }"#;
    let cloud = r#"{
        "advanced_settings": {"debug": false, "disk_reserve_megabytes": null, "platform_server_env": {"B": "2", "C": "2"}},
        "network_configuration": {"user_idle_minutes": 0, "fragment_id": ""},
        "additional_networks": {"a": {"type": "wifi", "ssid": "A2"}, "b": null, "c": {"type": "wired"}}
    }"#;
    let Reading { settings, complaints, .. } = reading(defaults, cloud);
    assert_eq!(complaints, []);
    assert!(!settings.advanced.debug, "false of the cloud is a value");
    assert_eq!(settings.advanced.disk_reserve_megabytes, 100, "null of the cloud is no value");
    assert_eq!(settings.network.user_idle, Minutes(0), "zero of the cloud is a value");
    assert_eq!(settings.network.fragment_id, None, "empty text of the cloud is a value");
    let variable = |name: &str, value: &str| (Box::from(name), Secret::from(value));
    assert_eq!(settings.advanced.server_env[..], [variable("A", "1"), variable("B", "2"), variable("C", "2")]);
    let networks: Vec<_> = settings.networks.iter().map(|network| (&*network.name, network.priority)).collect();
    assert_eq!(networks, [("a", 0), ("b", 0), ("c", 0)], "an entry is replaced as a whole");

    let response = response(cloud);
    let command_line = CommandLine { debug: Some(true), wait_for_update_check: Some(true) };
    let sources = Sources { defaults: Source::Absent, cloud: Source::Given(&response), command_line };
    let over = read(&sources, &Accepted::default()).settings;
    assert!(over.advanced.debug && over.advanced.wait_for_update_check, "the command line has the last word");
}

#[test]
fn a_bad_value_keeps_what_was_accepted_before() {
    let good = r#"{
        "version_control": {"platform-server": "1.0.0"},
        "advanced_settings": {"disable_platform_server": true, "platform_server_env": {"A": "1", "B": "1"},
                              "server_limits": {"cpu_weight": 7}},
        "additional_networks": {"a": {"type": "wifi", "ssid": "A", "psk": "correct horse"}, "b": {"type": "wired"}}
    }"#;
    let bad = r#"{
        "version_control": {"platform-server": "newest"},
        "advanced_settings": {"disable_platform_server": "yes", "platform_server_env": {"A": 2, "C": "3"},
                              "server_limits": [], "debug": 3},
        "additional_networks": {"a": {"type": "wifi", "ssid": "A", "psk": "short"}, "c": {"type": "radio"}}
    }"#;
    let before = reading("{}", good);
    assert_eq!(before.complaints, []);
    // Through the stored form, as after a restart.
    let stored = Accepted::decode(before.accepted.encode().as_bytes()).unwrap();
    assert_eq!(stored, before.accepted);

    let after = reading_after(&stored, r#"{"advanced_settings": {"debug": true}}"#, bad);
    let paths: Vec<_> = after.complaints.iter().map(|complaint| &*complaint.path).collect();
    let expected = [
        "advanced_settings.debug",
        "advanced_settings.disable_platform_server",
        "advanced_settings.platform_server_env.A",
        "advanced_settings.server_limits",
        "version_control.platform-server",
        "additional_networks.a.psk",
        "additional_networks.c.type",
    ];
    assert_eq!(paths, expected);
    let Settings { versions, advanced, networks, .. } = &after.settings;
    assert_eq!(versions.server, VersionSetting::Exact(semver::Version::new(1, 0, 0)));
    assert!(advanced.disable_server, "a typing error must not start the machine server");
    assert!(advanced.debug, "without an accepted value the manufacturer's counts");
    assert_eq!(advanced.server_limits.cpu_weight, Some(7));
    let variable = |name: &str, value: &str| (Box::from(name), Secret::from(value));
    assert_eq!(advanced.server_env[..], [variable("A", "1"), variable("C", "3")], "the good variables are taken");
    assert_eq!(networks[..], before.settings.networks[..1], "a keeps its entry, b was taken away, c never was");

    // Saying nothing is not a bad value.
    let unset = reading_after(&stored, "{}", r#"{"advanced_settings": {"disable_platform_server": null}}"#);
    assert_eq!((unset.settings, unset.complaints), (Settings::default(), vec![]));
}

#[test]
fn a_document_that_cannot_be_read_leaves_its_source_as_it_was() {
    let good = r#"{"advanced_settings": {"disable_platform_server": true}}"#;
    let before = reading(good, r#"{"advanced_settings": {"debug": true}}"#).accepted;
    let deep = format!("{{\"x\": {}1{}}}", "[".repeat(70), "]".repeat(70));
    let long = format!("{{\"x\": \"{}\"}}", "x".repeat(1 << 20));
    let table = [
        (
            "",
            "line 1, column 1: found a document that is not accepted: expected a value, found the end of the document",
        ),
        (
            "{\n  \"debug\": tru}",
            "line 2, column 12: found a document that is not accepted: expected a value, found 't'",
        ),
        (
            "{} // why",
            "line 1, column 4: found a document that is not accepted: comments are not allowed in JSON; expected nothing after the document",
        ),
        (
            &deep,
            "line 1, column 70: found a document that is not accepted: objects and lists inside each other more than 64 deep",
        ),
        (
            &long,
            "line 1, column 1: found a document that is not accepted: the document has 1048585 bytes, allowed are 1048576",
        ),
        ("[]", "line 1, column 1: found a list, allowed is an object"),
        (r#"{"agent": "none"}"#, "line 1, column 11: agent: found text of 4 bytes, allowed is an object"),
    ];
    for (document, line) in table {
        let after = reading_after(&before, document, r#"{"advanced_settings": {"debug": true}}"#);
        let said: Vec<_> = after.complaints.iter().map(Complaint::to_string).collect();
        assert!(said.len() == 1 && said[0].starts_with(line), "{said:?} instead of {line}");
        assert_eq!(after.accepted, before, "{line}");
        assert!(after.settings.advanced.disable_server && after.settings.advanced.debug);
    }

    let deep = response(&format!("{{\"advanced_settings\": {{\"x\": {}1{}}}}}", "[".repeat(62), "]".repeat(62)));
    let mut too_deep = deep.clone();
    for _ in 0..2 {
        let kind = too_deep.advanced_settings.take().map(prost_types::value::Kind::StructValue);
        let fields = [("y".to_owned(), prost_types::Value { kind })].into();
        too_deep.advanced_settings = Some(prost_types::Struct { fields });
    }
    let mut large = response("{}");
    let long = prost_types::value::Kind::StringValue("x".repeat(DOCUMENT_BYTES_MAX));
    large.advanced_settings =
        Some(prost_types::Struct { fields: [("x".to_owned(), prost_types::Value { kind: Some(long) })].into() });
    for (case, response, refused) in [("deep", &deep, false), ("too deep", &too_deep, true), ("large", &large, true)] {
        let cloud = Source::Given(response);
        let sources = Sources { defaults: Source::Absent, cloud, command_line: CommandLine::default() };
        let after = read(&sources, &before);
        assert_eq!(after.accepted.cloud == before.cloud, refused, "{case}: {:?}", after.complaints);
    }
    let unreadable = Source::Unreadable("permission denied".into());
    let sources = Sources { defaults: unreadable, cloud: Source::Absent, command_line: CommandLine::default() };
    let after = read(&sources, &before);
    assert_eq!(after.accepted.defaults, before.defaults);
    assert_eq!(
        lines(&after.complaints),
        [
            "defaults file: found a document that is not accepted: permission denied, allowed is a JSON object; what was accepted before stays"
        ]
    );
}

#[test]
fn a_key_given_twice_counts_once_and_is_said() {
    let said = check(br#"{"agent": {"advanced_settings": {"debug": true, "debug": false}}}"#, Origin::Cloud);
    let line =
        "line 1, column 58: advanced_settings.debug: found a second value, allowed is one value; the last one counts";
    assert_eq!(said.iter().map(Complaint::to_string).collect::<Vec<_>>(), [line]);
}

#[test]
fn the_stored_form_fits_its_limit_and_refuses_what_is_not_its_own() {
    // The most that can be accepted, with characters that are long when written.
    let escaped = |bytes: usize| "\\u0001".repeat(bytes);
    let env: Vec<_> =
        (0..ENV_ENTRIES_MAX).map(|n| format!("\"{n:03}{}\": \"{}\"", escaped(57), escaped(194))).collect();
    let network = |n: usize| {
        let dns = ["\"255.255.255.255\""; 8].join(",");
        format!(
            "\"{n:064}\": {{\"type\": \"wifi\", \"ssid\": \"{}\", \"psk\": \"{}\", \"ipv4_dns\": [{dns}]}}",
            "\\\"".repeat(32),
            "\\\"".repeat(63)
        )
    };
    let networks: Vec<_> = (0..NETWORKS_MAX).map(network).collect();
    let text = format!(
        "{{\"advanced_settings\": {{\"platform_server_env\": {{{}}}}}, \"additional_networks\": {{{}}}}}",
        env.join(","),
        networks.join(",")
    );
    let reading = reading(&text, &text);
    assert_eq!(reading.complaints, []);
    let stored = reading.accepted.encode();
    assert!(stored.len() > 400_000 && stored.len() < DOCUMENT_BYTES_MAX, "{} bytes", stored.len());
    assert_eq!(Accepted::decode(stored.as_bytes()), Some(reading.accepted));

    for text in ["", "{}", "[]", r#"{"defaults": {}}"#, "\u{0}"] {
        assert_eq!(Accepted::decode(text.as_bytes()), None, "{text:?}");
    }
    let odd = br#"{"defaults": 3, "cloud": {"advanced_settings": {"debug": "x"}}, "more": 1}"#;
    assert_eq!(Accepted::decode(odd), Some(Accepted::default()), "what is not allowed is left out");
}
