//! Rows of documents, what is in force after them, and what is said about them.

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
fn nothing_said_means_the_built_in_values() {
    let Reading { settings, accepted, complaints } = reading("{}", "{}");
    assert_eq!(complaints, []);
    assert_eq!(accepted, Accepted::default());
    assert_eq!(settings, Settings::default());

    let stable = VersionSetting::Channel(Channel::Stable);
    assert_eq!(*settings.versions, VersionControl { agent: stable.clone(), server: stable });
    let advanced = Advanced {
        debug: false,
        disable_network_configuration: false,
        disable_system_configuration: false,
        disable_server: false,
        server_env: Box::default(),
        server_start_timeout: Minutes(10),
        server_status_url: "http://127.0.0.1:8081".into(),
        wait_for_update_check: false,
        maintenance: None,
        update_bandwidth_kilobytes_per_second: 0,
        disk_reserve_megabytes: 64,
        probation: None,
        server_limits: ServerLimits::default(),
        trust: Trust { release_keys: Box::default(), release_keys_threshold: None, allow_unsigned_pins: true },
    };
    assert_eq!(*settings.advanced, advanced);
    let network = NetworkSettings {
        device_reboot_after_offline: None,
        disable_bt_provisioning: false,
        disable_wifi_provisioning: false,
        disable_captive_portal_redirect: false,
        bluetooth_trust_all: false,
        fragment_id: None,
        hotspot_interface: None,
        hotspot_password: Secret::from(crate::brand::HOTSPOT_PASSWORD),
        hotspot_password_secret: None,
        hotspot_prefix: crate::brand::HOTSPOT_PREFIX.into(),
        manufacturer: crate::brand::NAME.into(),
        model: "custom".into(),
        offline_before_starting_hotspot: Minutes(2),
        retry_connection_timeout: Minutes(10),
        turn_on_hotspot_if_wifi_has_no_internet: false,
        user_idle: Minutes(5),
        wifi_power_save: None,
        wifi_country: None,
        connectivity_check_url: None,
        allow_identity_change: false,
        advertise_captive_api: None,
        improv: false,
        improv_needs_presence: true,
    };
    assert_eq!(*settings.network, network);
    assert_eq!(settings.networks.len(), 0);
    let system = SystemSettings {
        forward_system_logs: "".into(),
        journald_runtime: JournalLimit::Megabytes(512),
        journald_system: JournalLimit::Megabytes(512),
        os_auto_upgrade: OsUpgrade::Unchanged,
    };
    assert_eq!(*settings.system, system);
}

#[test]
fn every_field_is_read() {
    let text = r#"{
        "version_control": {"agent": "1.2.3", "platform-server": "file:///C:/server.exe"},
        "advanced_settings": {
            "debug": true, "disable_network_configuration": true, "disable_system_configuration": true,
            "disable_platform_server": true, "platform_server_env": {"B": "2", "A": "", "ü": "\ud83d\ude00"},
            "platform_server_start_timeout_minutes": 3, "server_status_url": "http://127.0.0.1:9", "wait_for_update_check": true,
            "maintenance": {"windows": [{"days": ["mon", "sun"], "from": "22:00", "to": "04:30", "tz": "Europe/Berlin"}],
                            "use_server_word": false},
            "update_bandwidth_kilobytes_per_second": 100, "disk_reserve_megabytes": 0, "probation_minutes": 1,
            "server_limits": {"memory_max_megabytes": 256, "cpu_weight": 50, "open_files_max": 4096},
            "release_keys": ["ABcd000000000000000000000000000000000000000000000000000000000000"],
            "release_keys_threshold": 1, "allow_unsigned_pins": false
        },
        "network_configuration": {
            "device_reboot_after_offline_minutes": 60, "disable_bt_provisioning": true, "disable_wifi_provisioning": true,
            "disable_captive_portal_redirect": true, "bluetooth_trust_all": true, "fragment_id": "f-1",
            "hotspot_interface": "wlan1", "hotspot_password": "correct horse", "hotspot_prefix": "acme",
            "manufacturer": "Acme", "model": "T-1", "offline_before_starting_hotspot_minutes": 0,
            "retry_connection_timeout_minutes": 20, "turn_on_hotspot_if_wifi_has_no_internet": true,
            "user_idle_minutes": 7, "wifi_power_save": false, "wifi_country": "DE",
            "connectivity_check_url": "http://example.com/check", "allow_identity_change": true,
            "hotspot_password_secret": "0123456789abcdef", "advertise_captive_api": "https://portal.acme.example/api", "improv": true,
            "improv_needs_presence": false
        },
        "additional_networks": {
            "office": {"type": "wifi", "ssid": "Office", "psk": "correct horse", "priority": 10},
            "cable": {"type": "wired", "interface": "eth0", "priority": -999, "ipv4_address": "10.0.0.5/24",
                      "ipv4_gateway": "10.0.0.1", "ipv4_dns": ["10.0.0.1", "8.8.8.8"], "ipv4_route_metric": 7}
        },
        "system_configuration": {
            "forward_system_logs": "all,-cron", "logging_journald_runtime_max_use_megabytes": -1,
            "logging_journald_system_max_use_megabytes": 96, "os_auto_upgrade_type": "security"
        }
    }"#;
    let Reading { settings, complaints, accepted } = reading(text, "{}");
    assert_eq!(lines(&complaints), [""; 0]);
    assert_eq!(accepted.defaults.values.len() + 9, FIELDS.len(), "a field of the table is not in this document");

    let server = VersionSetting::Url("file:///C:/server.exe".into());
    let agent = VersionSetting::Exact(semver::Version::new(1, 2, 3));
    assert_eq!(*settings.versions, VersionControl { agent, server });
    let window = Window {
        days: Days::NONE.with("mon").and_then(|days| days.with("sun")).unwrap(),
        from: MinuteOfDay::parse("22:00").unwrap(),
        to: MinuteOfDay::parse("04:30").unwrap(),
        zone: Zone::Named("Europe/Berlin".into()),
    };
    let variable = |name: &str, value: &str| (Box::from(name), Secret::from(value));
    let advanced = Advanced {
        debug: true,
        disable_network_configuration: true,
        disable_system_configuration: true,
        disable_server: true,
        server_env: [variable("A", ""), variable("B", "2"), variable("ü", "😀")].into(),
        server_start_timeout: Minutes(3),
        server_status_url: "http://127.0.0.1:9".into(),
        wait_for_update_check: true,
        maintenance: Some(Maintenance { windows: Rc::new([window]), use_server_word: false }),
        update_bandwidth_kilobytes_per_second: 100,
        disk_reserve_megabytes: 0,
        probation: Some(Minutes(1)),
        server_limits: ServerLimits {
            memory_max_megabytes: Some(256),
            cpu_weight: Some(50),
            open_files_max: Some(4096),
        },
        trust: Trust {
            release_keys: ["abcd000000000000000000000000000000000000000000000000000000000000".into()].into(),
            release_keys_threshold: Some(1),
            allow_unsigned_pins: false,
        },
    };
    assert_eq!(*settings.advanced, advanced);
    let network = NetworkSettings {
        device_reboot_after_offline: Some(Minutes(60)),
        disable_bt_provisioning: true,
        disable_wifi_provisioning: true,
        disable_captive_portal_redirect: true,
        bluetooth_trust_all: true,
        fragment_id: Some("f-1".into()),
        hotspot_interface: Some("wlan1".into()),
        hotspot_password: Secret::from("correct horse"),
        hotspot_password_secret: Some(Secret::from("0123456789abcdef")),
        hotspot_prefix: "acme".into(),
        manufacturer: "Acme".into(),
        model: "T-1".into(),
        offline_before_starting_hotspot: Minutes(0),
        retry_connection_timeout: Minutes(20),
        turn_on_hotspot_if_wifi_has_no_internet: true,
        user_idle: Minutes(7),
        wifi_power_save: Some(false),
        wifi_country: Some("DE".into()),
        connectivity_check_url: Some("http://example.com/check".into()),
        allow_identity_change: true,
        advertise_captive_api: Some("https://portal.acme.example/api".into()),
        improv: true,
        improv_needs_presence: false,
    };
    assert_eq!(*settings.network, network);
    let ip = |text: &str| text.parse::<std::net::Ipv4Addr>().unwrap();
    let cable = Network {
        name: "cable".into(),
        kind: NetworkKind::Wired,
        interface: Some("eth0".into()),
        priority: -999,
        address: Address::Fixed(ip("10.0.0.5"), 24),
        gateway: Some(ip("10.0.0.1")),
        dns: [ip("10.0.0.1"), ip("8.8.8.8")].into(),
        route_metric: 7,
    };
    let office = Network {
        name: "office".into(),
        kind: NetworkKind::Wifi { ssid: "Office".into(), psk: Some(Secret::from("correct horse")) },
        interface: None,
        priority: 10,
        address: Address::Auto,
        gateway: None,
        dns: Box::default(),
        route_metric: 600,
    };
    assert_eq!(settings.networks[..], [cable, office]);
    let system = SystemSettings {
        forward_system_logs: "all,-cron".into(),
        journald_runtime: JournalLimit::Unmanaged,
        journald_system: JournalLimit::Megabytes(96),
        os_auto_upgrade: OsUpgrade::Security,
    };
    assert_eq!(*settings.system, system);

    // The same under `agent`, and the same from the wire but for what is the manufacturer's alone.
    assert_eq!(reading(&format!("{{\"agent\": {text}}}"), "{}").settings, settings);
    let from_cloud = reading("{}", text);
    let manufacturer: Vec<_> = FIELDS.iter().filter(|field| field.setter == Setter::Manufacturer).collect();
    assert_eq!(from_cloud.complaints.len(), manufacturer.len());
    for field in manufacturer {
        let complaint = from_cloud.complaints.iter().find(|complaint| *complaint.path == *field.name());
        let line = complaint.unwrap_or_else(|| panic!("{} was taken from the cloud", field.name())).to_string();
        assert!(
            line.ends_with("found a setting of the manufacturer, allowed is this setting in the defaults file only")
        );
    }
    assert_eq!(from_cloud.settings.networks, settings.networks);
    assert_eq!(from_cloud.settings.system, settings.system);
    assert_eq!(from_cloud.settings.versions, settings.versions);
    assert_eq!(from_cloud.settings.advanced.maintenance, settings.advanced.maintenance);
}

/// One field of the cloud, and the complaint about it: nothing when it is fine.
#[test]
fn each_bad_value_is_named_with_what_is_allowed() {
    let table = [
        ("advanced_settings", r#""debug": true"#, ""),
        ("advanced_settings", r#""debug": null"#, ""),
        ("advanced_settings", r#""debug": "true""#, r#"debug: found "true", allowed is true or false"#),
        ("advanced_settings", r#""debug": 1"#, "debug: found 1, allowed is true or false"),
        ("advanced_settings", r#""debug": {}"#, "debug: found an object, allowed is true or false"),
        ("advanced_settings", r#""platform_server_start_timeout_minutes": 10.0"#, ""),
        ("advanced_settings", r#""platform_server_start_timeout_minutes": 1e1"#, ""),
        (
            "advanced_settings",
            r#""platform_server_start_timeout_minutes": 10.5"#,
            "platform_server_start_timeout_minutes: found 10.5, allowed is an integer from 1 to 525600",
        ),
        (
            "advanced_settings",
            r#""platform_server_start_timeout_minutes": "10""#,
            r#"platform_server_start_timeout_minutes: found "10", allowed is an integer from 1 to 525600"#,
        ),
        (
            "advanced_settings",
            r#""platform_server_start_timeout_minutes": 525601"#,
            "platform_server_start_timeout_minutes: found 525601, allowed is an integer from 1 to 525600",
        ),
        (
            "advanced_settings",
            r#""platform_server_start_timeout_minutes": 0"#,
            "platform_server_start_timeout_minutes: found 0, allowed is an integer from 1 to 525600",
        ),
        (
            "advanced_settings",
            r#""platform_server_env": []"#,
            "platform_server_env: found a list, allowed is an object of at most 128 texts and 32768 bytes",
        ),
        (
            "advanced_settings",
            r#""platform_server_env": {"A": 1}"#,
            "platform_server_env.A: found a number, allowed is text",
        ),
        (
            "advanced_settings",
            r#""platform_server_env": {"A=B": "x"}"#,
            "platform_server_env.A=B: found a name that no variable can have, allowed is a name without '=' and NUL, not empty",
        ),
        (
            "advanced_settings",
            r#""platform_server_env": {"A": "x\u0000y"}"#,
            "platform_server_env.A: found text with a NUL, allowed is text without NUL",
        ),
        ("advanced_settings", r#""maintenance": {"windows": []}"#, ""),
        ("advanced_settings", r#""maintenance": {"windows": [{"from": "00:00", "to": "24:00"}]}"#, ""),
        ("advanced_settings", r#""maintenance": 1"#, "maintenance: found a number, allowed is an object"),
        (
            "advanced_settings",
            r#""maintenance": {"windows": [{"from": "00:00", "to": "24:00"}, {"from": "2:00", "to": "03:00"}]}"#,
            r#"maintenance.windows[1].from: found "2:00", allowed is a time such as 02:30, at most 24:00"#,
        ),
        (
            "advanced_settings",
            r#""maintenance": {"windows": [{"from": "02:00"}]}"#,
            "maintenance.windows[0].to: found nothing, allowed is a time such as 02:30, at most 24:00",
        ),
        (
            "advanced_settings",
            r#""maintenance": {"windows": [{"from": "02:00", "to": "02:00"}]}"#,
            "maintenance.windows[0].to: found 02:00, the same as from, allowed is a time other than from; a whole day is 00:00 to 24:00",
        ),
        (
            "advanced_settings",
            r#""maintenance": {"windows": [{"from": "02:00", "to": "03:00", "days": ["mon", "Tue"]}]}"#,
            r#"maintenance.windows[0].days: found "Tue", allowed is a list of mon, tue, wed, thu, fri, sat, sun"#,
        ),
        (
            "advanced_settings",
            r#""maintenance": {"windows": [{"from": "02:00", "to": "03:00", "tz": "../etc"}]}"#,
            r#"maintenance.windows[0].tz: found "../etc", allowed is "local" or a name of the zone database such as Europe/Berlin"#,
        ),
        (
            "advanced_settings",
            r#""maintenance": {"windows": [{"from": "02:00", "to": "03:00", "day": "mon"}]}"#,
            "maintenance.windows[0].day: found a name nobody knows, allowed is days, from, to, tz",
        ),
        (
            "advanced_settings",
            r#""server_limits": {"memory_max_megabytes": 0, "cpu_weight": 0, "open_files_max": 0}"#,
            "",
        ),
        (
            "advanced_settings",
            r#""server_limits": {"open_files_max": 3}"#,
            "server_limits.open_files_max: found 3, allowed is an integer from 64 to 1048576, or 0 (the system's own)",
        ),
        (
            "advanced_settings",
            r#""server_limits": {"memory_max_megabytes": 8}"#,
            "server_limits.memory_max_megabytes: found 8, allowed is an integer from 16 to 16777216, or 0 (no limit)",
        ),
        (
            "advanced_settings",
            r#""server_status_url": """#,
            "server_status_url: found empty text, allowed is an http or https URL of at most 2048 bytes",
        ),
        (
            "advanced_settings",
            r#""new_thing": {"a": [1]}"#,
            "new_thing: found a setting nobody knows, allowed is a name of the reference; it is ignored",
        ),
        (
            "version_control",
            r#""agent": "latest""#,
            r#"agent: found "latest", allowed is "stable", "dev", a semantic version, or an http, https or file URL"#,
        ),
        (
            "version_control",
            r#""platform-server": """#,
            r#"platform-server: found empty text, allowed is "stable", "dev", a semantic version, or an http, https or file URL"#,
        ),
        (
            "version_control",
            r#""agent": "ftp://user:planted-secret@h/x""#,
            r#"agent: found text of 29 bytes, allowed is "stable", "dev", a semantic version, or an http, https or file URL"#,
        ),
        (
            "version_control",
            r#""agent": "ftp://h/x?token=planted-secret""#,
            r#"agent: found text of 30 bytes, allowed is "stable", "dev", a semantic version, or an http, https or file URL"#,
        ),
        (
            "network_configuration",
            r#""hotspot_password": "1234567""#,
            "hotspot_password: found text of 7 bytes, allowed is 8 to 63 printable ASCII characters",
        ),
        (
            "network_configuration",
            r#""hotspot_password": 12345678"#,
            "hotspot_password: found a number, allowed is 8 to 63 printable ASCII characters",
        ),
        ("network_configuration", r#""hotspot_interface": """#, ""),
        (
            "network_configuration",
            r#""hotspot_interface": "wlan0123456789ab""#,
            r#"hotspot_interface: found "wlan0123456789ab", allowed is an interface name of at most 15 bytes without blanks and slashes, or empty"#,
        ),
        (
            "network_configuration",
            r#""hotspot_prefix": """#,
            "hotspot_prefix: found empty text, allowed is one line of 1 to 24 bytes",
        ),
        (
            "network_configuration",
            r#""manufacturer": "a\nb""#,
            r#"manufacturer: found "a\nb", allowed is one line of 1 to 128 bytes"#,
        ),
        (
            "network_configuration",
            r#""wifi_country": "de""#,
            r#"wifi_country: found "de", allowed is two capital letters, or empty"#,
        ),
        (
            "network_configuration",
            r#""connectivity_check_url": "example.com""#,
            r#"connectivity_check_url: found "example.com", allowed is an http or https URL of at most 2048 bytes, or empty"#,
        ),
        ("network_configuration", r#""device_reboot_after_offline_minutes": 12"#, ""),
        (
            "network_configuration",
            r#""device_reboot_after_offline_minutes": 11"#,
            "device_reboot_after_offline_minutes: found 11, allowed is 0 or at least 12, which is offline_before_starting_hotspot_minutes and retry_connection_timeout_minutes together",
        ),
        ("additional_networks", r#""n": {"type": "wifi", "ssid": "S"}"#, ""),
        (
            "additional_networks",
            r#""n": {"type": "wifi", "ssid": "S", "psk": "", "ipv4_address": "auto", "ipv4_gateway": ""}"#,
            "",
        ),
        ("additional_networks", r#""n": null"#, ""),
        ("additional_networks", r#""n": 1"#, "n: found a number, allowed is an object"),
        ("additional_networks", r#""n": {}"#, r#"n.type: found nothing, allowed is "wifi", "wired""#),
        (
            "additional_networks",
            r#""n": {"type": "wifi"}"#,
            "n.ssid: found nothing, allowed is the name of the WiFi network",
        ),
        (
            "additional_networks",
            r#""n": {"type": "bluetooth"}"#,
            r#"n.type: found "bluetooth", allowed is "wifi", "wired""#,
        ),
        (
            "additional_networks",
            r#""n": {"type": "wifi", "ssid": "S", "psk": "planted"}"#,
            "n.psk: found text of 7 bytes, allowed is 8 to 63 printable ASCII characters, 64 hexadecimal digits, or empty",
        ),
        (
            "additional_networks",
            r#""n": {"type": "wifi", "ssid": "123456789012345678901234567890123"}"#,
            r#"n.ssid: found "123456789012345678901234567890123", allowed is one line of at most 32 bytes"#,
        ),
        (
            "additional_networks",
            r#""n": {"type": "wired", "priority": 1000}"#,
            "n.priority: found 1000, allowed is an integer from -999 to 999",
        ),
        (
            "additional_networks",
            r#""n": {"type": "wired", "ipv4_address": "10.0.0.1"}"#,
            r#"n.ipv4_address: found "10.0.0.1", allowed is "auto" or an IPv4 address with prefix length such as 192.168.1.5/24"#,
        ),
        (
            "additional_networks",
            r#""n": {"type": "wired", "ipv4_gateway": "::1"}"#,
            r#"n.ipv4_gateway: found "::1", allowed is an IPv4 address, or empty"#,
        ),
        (
            "additional_networks",
            r#""n": {"type": "wired", "ipv4_dns": "8.8.8.8"}"#,
            r#"n.ipv4_dns: found "8.8.8.8", allowed is a list of at most 8 IPv4 addresses"#,
        ),
        (
            "additional_networks",
            r#""n": {"type": "wired", "ipv4_dns": ["8.8.8.8", "dns.google"]}"#,
            r#"n.ipv4_dns[1]: found "dns.google", allowed is an IPv4 address"#,
        ),
        (
            "additional_networks",
            r#""n": {"type": "wired", "ipv4_route_metric": -1}"#,
            "n.ipv4_route_metric: found -1, allowed is an integer from 0 to 4294967295",
        ),
        (
            "additional_networks",
            r#""n": {"type": "wired", "mtu": 1400}"#,
            "n.mtu: found a setting nobody knows, allowed is a name of the reference; it is ignored",
        ),
        (
            "system_configuration",
            r#""logging_journald_system_max_use_megabytes": 0"#,
            "logging_journald_system_max_use_megabytes: found 0, allowed is an integer from 1 to 1048576, or -1 (no limit set by us, ours is removed)",
        ),
        (
            "system_configuration",
            r#""os_auto_upgrade_type": true"#,
            r#"os_auto_upgrade_type: found true, allowed is "", "all", "security", "disable""#,
        ),
        ("system_configuration", r#""os_auto_upgrade_type": """#, ""),
    ];
    for (section, field, line) in table {
        let document = format!("{{\"{section}\": {{{field}}}}}");
        let expected = if line.is_empty() { vec![] } else { vec![format!("{section}.{line}")] };
        let said: Vec<_> = reading("{}", &document).complaints.iter().map(Complaint::to_string).collect();
        assert_eq!(said, expected, "on the wire: {document}");

        // As text it says the same, with its place. Numbers are shown as they were written.
        let said = check(document.as_bytes(), Origin::Cloud);
        assert_eq!(said.len(), expected.len(), "{document}");
        for (complaint, line) in said.iter().zip(&expected) {
            assert!(complaint.to_string().ends_with(line), "{complaint} instead of {line}");
            let across_fields = &*complaint.path == "network_configuration.device_reboot_after_offline_minutes";
            assert!(complaint.position.is_some_and(|position| position.line == 1) || across_fields, "{complaint:?}");
        }
    }
}

/// RFC 8908 asks for a certificate, and nobody is given one for an address.
#[test]
fn the_captive_api_is_a_name_by_https() {
    let table = [
        (r#""https://portal.acme.example/api""#, true),
        (r#""https://portal.acme.example:8443/a?b=c""#, true),
        (r#""""#, true),
        ("true", false),
        (r#""http://portal.acme.example/api""#, false),
        (r#""https://10.42.0.1/api""#, false),
        (r#""https://[2001:db8::1]/api""#, false),
        (r#""https://portal/api""#, false),
        (r#""https://user@portal.acme.example/""#, false),
        (r#""https://portal.acme.example/a,b""#, false),
        (r#""https://portal.acme.example/a#b""#, false),
        (r#""https://portal.acme.example/\\""#, false),
    ];
    for (value, good) in table {
        let document = format!(r#"{{"network_configuration": {{"advertise_captive_api": {value}}}}}"#);
        let said: Vec<_> = check(document.as_bytes(), Origin::Defaults).iter().map(Complaint::to_string).collect();
        let allowed = "an https URL of at most 255 bytes whose host is a name and no address, or empty";
        let refused = said.len() == 1 && said[0].contains("advertise_captive_api") && said[0].ends_with(allowed);
        assert_eq!((said.is_empty(), refused), (good, !good), "{value}: {said:?}");
    }
}

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
fn a_key_given_twice_counts_once_and_is_said() {
    let said = check(br#"{"agent": {"advanced_settings": {"debug": true, "debug": false}}}"#, Origin::Cloud);
    let line =
        "line 1, column 58: advanced_settings.debug: found a second value, allowed is one value; the last one counts";
    assert_eq!(said.iter().map(Complaint::to_string).collect::<Vec<_>>(), [line]);
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
fn a_minute_can_be_shortened() {
    assert_eq!(Minutes(10).times(Duration::from_secs(60)), Duration::from_secs(600));
    assert_eq!(Minutes(10).times(Duration::from_millis(100)), Duration::from_secs(1));
    assert_eq!(Minutes(525_600).times(Duration::MAX), Duration::MAX);
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

#[test]
fn built_in_values_are_allowed_values() {
    for field in FIELDS {
        let text = match field.builtin {
            fields::Builtin::Unset => continue,
            fields::Builtin::Flag(flag) => flag.to_string(),
            fields::Builtin::Integer(number) => number.to_string(),
            fields::Builtin::Text(text) => json::quoted(text).to_string(),
        };
        let node = Node::Text(json::parse(text.as_bytes(), DOCUMENT).unwrap());
        assert!(leaf::read(field, node).is_ok(), "{}: {text}", field.name());
    }
    assert_eq!(Key::Debug.field().name(), "advanced_settings.debug");
}
