//! Rows of documents, what is in force after them, and what is said about them.

mod sources;
mod values;

use super::{
    fields::{FIELDS, Key, Setter},
    limits::{COMPLAINTS_MAX, ENV_BYTES_MAX, ENV_ENTRIES_MAX, NETWORKS_MAX},
    random::{PLANTED_SECRET, as_response, hold},
    *,
};
use crate::Secret;
use std::{rc::Rc, time::Duration};

fn response(text: &str) -> DeviceAgentConfigResponse {
    as_response(text.as_bytes()).unwrap_or_else(|| panic!("not a response: {text}"))
}

/// What is in force after both sources, from nothing.
fn reading(defaults: &str, cloud: &str) -> Reading {
    reading_after(&Accepted::default(), defaults, cloud)
}

fn reading_after(before: &Accepted, defaults: &str, cloud: &str) -> Reading {
    let response = response(cloud);
    let sources = Sources {
        defaults: Source::Given(defaults.as_bytes()),
        cloud: Source::Given(&response),
        command_line: CommandLine::default(),
    };
    read(&sources, before)
}

fn lines(complaints: &[Complaint]) -> Vec<String> {
    complaints.iter().map(|complaint| format!("{}: {complaint}", complaint.origin)).collect()
}

#[test]
fn a_reboot_never_comes_before_every_other_attempt() {
    let with = |reboot: &str, retry: &str| {
        format!(
            "{{\"network_configuration\": {{\"device_reboot_after_offline_minutes\": {reboot}, \"retry_connection_timeout_minutes\": {retry}}}}}"
        )
    };
    let table = [
        // case                                before              defaults            cloud              in force   complaints of
        ("long enough", with("null", "10"), with("null", "10"), with("12", "10"), Some(12), vec![]),
        ("too early", with("null", "10"), with("null", "10"), with("11", "10"), None, vec![Origin::Cloud]),
        ("too early, had one", with("30", "10"), with("null", "10"), with("11", "10"), Some(30), vec![Origin::Cloud]),
        (
            "too early, manufacturer has one",
            with("null", "10"),
            with("60", "10"),
            with("11", "10"),
            Some(60),
            vec![Origin::Cloud],
        ),
        ("the other one grew", with("30", "10"), with("null", "10"), with("30", "50"), None, vec![Origin::Cloud]),
        (
            "the other one grew, nothing helps",
            with("30", "10"),
            with("40", "10"),
            with("30", "50"),
            None,
            vec![Origin::Cloud, Origin::Defaults],
        ),
        ("switched off", with("30", "10"), with("60", "10"), with("0", "10"), None, vec![]),
    ];
    for (case, before, defaults, cloud, in_force, origins) in table {
        let before = reading("{}", &before).accepted;
        let after = reading_after(&before, &defaults, &cloud);
        assert_eq!(after.settings.network.device_reboot_after_offline, in_force.map(Minutes), "{case}");
        let said: Vec<_> = after.complaints.iter().map(|complaint| complaint.origin).collect();
        assert_eq!(said, origins, "{case}");
    }
}

#[test]
fn limits_are_named_and_keep_what_was_there() {
    let numbered = |count: usize, value: &str| {
        (0..count).map(|number| format!("\"n{number:03}\": {value}")).collect::<Vec<_>>().join(",")
    };
    let networks = |count| format!("{{\"additional_networks\": {{{}}}}}", numbered(count, r#"{"type": "wired"}"#));
    let env = |count, value: &str| {
        format!("{{\"advanced_settings\": {{\"platform_server_env\": {{{}}}}}}}", numbered(count, value))
    };
    let full = reading("{}", &networks(NETWORKS_MAX));
    assert_eq!((full.settings.networks.len(), full.complaints.len()), (NETWORKS_MAX, 0));
    let over = reading_after(&full.accepted, "{}", &networks(NETWORKS_MAX + 1));
    assert_eq!(over.settings.networks, full.settings.networks);
    assert_eq!(
        lines(&over.complaints),
        ["cloud: additional_networks: found 65 networks, allowed is an object of at most 64 networks"]
    );
    let both = reading(
        r#"{"additional_networks": {"x": {"type": "wired"}, "n000": {"type": "wired"}}}"#,
        &networks(NETWORKS_MAX),
    );
    assert_eq!(both.settings.networks, full.settings.networks);
    assert_eq!(
        lines(&both.complaints),
        [
            "defaults file: additional_networks.x: found one network too many, allowed is 64 networks together with the cloud's"
        ]
    );

    let full = reading("{}", &env(ENV_ENTRIES_MAX, r#""x""#));
    assert_eq!((full.settings.advanced.server_env.len(), full.complaints.len()), (ENV_ENTRIES_MAX, 0));
    let over = reading_after(&full.accepted, "{}", &env(ENV_ENTRIES_MAX + 1, r#""x""#));
    assert_eq!(over.settings, full.settings);
    assert_eq!(
        lines(&over.complaints),
        [
            "cloud: advanced_settings.platform_server_env: found 129 variables, allowed is an object of at most 128 texts and 32768 bytes"
        ]
    );
    let both = reading(&env(ENV_ENTRIES_MAX, r#""y""#), &env(1, r#""x""#));
    assert_eq!((both.settings.advanced.server_env.len(), both.complaints.len()), (ENV_ENTRIES_MAX, 0));

    let large = format!("\"{}\"", "x".repeat(ENV_BYTES_MAX - 4 - 2));
    assert_eq!(reading("{}", &env(1, &large)).complaints, []);
    let over = reading_after(&full.accepted, "{}", &env(2, &large));
    assert_eq!(over.settings, full.settings);
    assert_eq!(over.complaints.len(), 1);
    let both = reading(&env(1, &large), &env(2, r#""x""#));
    assert_eq!(both.settings.advanced.server_env.len(), 2, "the cloud's come first");

    let many = reading("{}", &format!("{{\"advanced_settings\": {{{}}}}}", numbered(5000, "1")));
    assert_eq!(many.complaints.len(), COMPLAINTS_MAX + 1);
    assert!(many.complaints[COMPLAINTS_MAX].found.starts_with("4968 more"));
}

#[test]
fn a_machines_document_is_checked_by_its_agent_part() {
    let table = [
        (r#"{"components": [{"name": "arm"}], "debug": 1}"#, 0),
        (r#"{"components": [], "agent": {"advanced_settings": {"debug": 1}}}"#, 1),
        (r#"{"advanced_settings": {"debug": 1}, "components": []}"#, 2),
        (r#"{"agent": {"advanced_settings": {"release_keys": []}}}"#, 1),
        ("{", 1),
    ];
    for (document, complaints) in table {
        let said = check(document.as_bytes(), Origin::Cloud);
        assert_eq!(said.len(), complaints, "{document}: {said:?}");
        assert!(said.iter().all(|complaint| complaint.position.is_some()), "{said:?}");
    }
    assert_eq!(check(br#"{"agent": {"advanced_settings": {"release_keys": []}}}"#, Origin::Defaults), []);
}

#[test]
fn secrets_are_shown_nowhere() {
    let text = r#"{
        "advanced_settings": {"platform_server_env": {"GOOD": "planted-secret", "BAD": {"x": "planted-secret"}, "N": "planted-secret\u0000"}},
        "network_configuration": {"hotspot_password": "planted-secret", "hotspot_password_secret": "planted-secret-long"},
        "additional_networks": {
            "good": {"type": "wifi", "ssid": "S", "psk": "planted-secret"},
            "bad": {"type": "wifi", "ssid": "S", "psk": "planted-secret-€"},
            "odd": {"type": "wifi", "ssid": "S", "psk": ["planted-secret"], "password": "planted-secret"}
        }
    }"#;
    let reading = reading(text, text);
    assert!(reading.accepted.encode().contains(PLANTED_SECRET), "the stored form keeps them");
    for shown in [format!("{reading:?}"), format!("{reading:#?}"), lines(&reading.complaints).join("\n")] {
        assert!(!shown.contains("planted"), "{shown}");
    }
    assert_eq!(reading.complaints.len(), 11);
}

#[test]
fn random_documents_never_panic_and_keep_what_must_hold() {
    let mut accepted = Accepted::default();
    for seed in 0..3_000 {
        accepted = hold(seed, &accepted);
    }
    assert_ne!(accepted, Accepted::default());
}

#[test]
fn no_document_overflows_a_small_stack() {
    let thread = std::thread::Builder::new().stack_size(256 * 1024).spawn(|| {
        let nested =
            |levels: usize, open: &str, close: &str| format!("{}1{}", open.repeat(levels), close.repeat(levels));
        for (open, close) in [("[", "]"), ("{\"k\":", "}")] {
            for levels in [60, 61, 62, 63, 64, 1000, 100_000] {
                let deep = nested(levels, open, close);
                for document in [
                    deep.clone(),
                    format!("{{\"unknown\":{deep}}}"),
                    format!("{{\"advanced_settings\":{{\"platform_server_env\":{{\"A\":{deep}}}}}}}"),
                    format!("{{\"additional_networks\":{{\"n\":{{\"psk\":{deep}}}}}}}"),
                ] {
                    assert!(!check(document.as_bytes(), Origin::Defaults).is_empty());
                }
            }
        }
        for seed in 0..300 {
            hold(seed, &Accepted::default());
        }
    });
    thread.unwrap().join().unwrap();
}

#[test]
fn the_generated_reference_page_is_fresh() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/config.md");
    let page = reference::page();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(there == page, "docs/config.md is stale: run `make docs`");
}
