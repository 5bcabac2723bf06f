//! What each field takes, and what is said of what it does not.

use super::*;

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

#[test]
fn a_minute_can_be_shortened() {
    assert_eq!(Minutes(10).times(Duration::from_secs(60)), Duration::from_secs(600));
    assert_eq!(Minutes(10).times(Duration::from_millis(100)), Duration::from_secs(1));
    assert_eq!(Minutes(525_600).times(Duration::MAX), Duration::MAX);
}
