//! Profiles there and back.

use super::*;

fn mark() -> Mark {
    Mark("acme".to_owned())
}

/// As the network manager gives it back: secrets apart.
fn received(settings: &Settings) -> (Value, Value) {
    let mut settings = settings.clone();
    let mut secrets = Settings::new();
    for (name, section) in &mut settings {
        let psk = section.extract_if(.., |(key, _)| *key == "psk").collect::<Section>();
        secrets.extend((!psk.is_empty()).then_some((*name, psk)));
    }
    (value(settings), value(secrets))
}

/// Without one of its sections, or with another one.
fn with_section(settings: &Value, name: &str, section: Option<Value>) -> Value {
    let Value::Map(kind, entries) = settings else { panic!("{settings:?}") };
    let mut entries = entries.clone();
    entries.retain(|(key, _)| key.text() != Some(name));
    entries.extend(section.map(|section| (Value::from(name), section)));
    Value::Map(kind.clone(), entries)
}

fn nothing() -> Value {
    value(Settings::new())
}

fn wifi_profile() -> Profile {
    Profile {
        key: "given/home".to_owned(),
        medium: Medium::Wifi {
            ssid: Ssid::new(b"\xffnot text\x00").unwrap(),
            psk: Some(Secret::from("correct horse")),
            hidden: true,
        },
        interface: Some("wlan0".to_owned()),
        priority: 999,
        address: Address::Auto,
        gateway: None,
        dns: vec![],
        route_metric: 600,
    }
}

fn wired_profile() -> Profile {
    Profile {
        key: "wired".to_owned(),
        medium: Medium::Wired,
        interface: None,
        priority: -999,
        address: Address::Fixed(Ipv4Addr::new(192, 168, 7, 9), 22),
        gateway: Some(Ipv4Addr::new(192, 168, 4, 1)),
        dns: vec![Ipv4Addr::new(9, 9, 9, 9), Ipv4Addr::new(192, 168, 4, 1)],
        route_metric: 100,
    }
}

#[test]
fn what_was_written_is_read_back() {
    let open = Medium::Wifi { ssid: Ssid::new("Grüße 🏠".as_bytes()).unwrap(), psk: None, hidden: false };
    let gateway = Some(Ipv4Addr::new(10, 0, 0, 9));
    let table = [
        wifi_profile(),
        wired_profile(),
        Profile { medium: open, interface: None, priority: -1, route_metric: 0, ..wifi_profile() },
        Profile { gateway, ..wifi_profile() },
        Profile { gateway: None, dns: vec![], ..wired_profile() },
        Profile { address: Address::Auto, gateway: None, ..wired_profile() },
    ];
    for profile in table {
        let Medium::Wifi { psk, .. } = &profile.medium else {
            let (settings, secrets) = received(&of_profile(&mark(), &profile, How::Open, "u"));
            assert_eq!(to_profile(&mark(), &settings, &secrets), Some(profile));
            continue;
        };
        let ways: &[How] = if psk.is_some() {
            &[How::Password, How::Wpa2Only, How::Wpa3Only]
        } else {
            &[How::Open, How::EnhancedOpen]
        };
        for way in ways {
            let (settings, secrets) = received(&of_profile(&mark(), &profile, *way, "u"));
            assert_eq!(how(&settings), *way);
            assert_eq!(to_profile(&mark(), &settings, &secrets), Some(profile.clone()), "{way:?}");
        }
    }
}

#[test]
fn a_password_that_was_not_told_is_left_as_it_is() {
    let (settings, _) = received(&of_profile(&mark(), &wifi_profile(), How::Wpa3Only, "u"));
    let read = to_profile(&mark(), &settings, &nothing()).unwrap();
    assert!(matches!(&read.medium, Medium::Wifi { psk: Some(psk), .. } if psk.is_empty()));
    let written = of_profile(&mark(), &Profile { priority: 5, ..read }, How::Wpa3Only, "u");
    let written = value(written);
    assert_eq!(
        written.at(WIFI_SECURITY, "key-mgmt").and_then(Value::text),
        Some("sae"),
        "it does not become an open network"
    );
    assert!(written.at(WIFI_SECURITY, "psk").is_none(), "the network manager keeps what it has");
}

#[test]
fn profiles_of_others_are_not_ours() {
    let (settings, secrets) = received(&of_profile(&mark(), &wifi_profile(), How::Password, "u"));
    assert_eq!(to_profile(&Mark("other".to_owned()), &settings, &secrets), None);
    let unmarked = with_section(&settings, "user", None);
    assert_eq!(to_profile(&mark(), &unmarked, &secrets), None);
    let hotspot = hotspot();
    let (settings, secrets) = received(&of_hotspot(&mark(), &hotspot, "wlan0", "u"));
    assert!(mark().is_hotspot(&settings));
    assert_eq!(to_profile(&mark(), &settings, &secrets), None, "the hotspot is no network to join");
}

#[test]
fn an_edited_profile_comes_with_what_can_be_read() {
    let mut settings = of_profile(&mark(), &wired_profile(), How::Open, "u");
    settings.retain(|(name, _)| *name != "ipv4");
    let edited = [
        ("method", text("manual")),
        ("address-data", Value::from(7_u32)),
        ("dns", Value::from(true)),
        ("route-metric", Value::from(-1_i64)),
    ];
    settings.push(("ipv4", edited.into()));
    let (settings, _) = received(&settings);
    let read = to_profile(&mark(), &settings, &nothing()).unwrap();
    assert_eq!((read.address, &*read.dns, read.route_metric), (Address::Auto, &[][..], 0));
}

fn hotspot() -> Hotspot {
    Hotspot {
        ssid: Ssid::new(b"board-1").unwrap(),
        password: Secret::from("at least eight"),
        interface: "wlan0".to_owned(),
        channel: 6,
        address: (Ipv4Addr::new(10, 42, 0, 1), 24),
        names: board::network::CaptiveNames::All,
        captive_api: None,
    }
}

#[test]
fn the_hotspot_never_comes_up_by_itself_and_says_its_channel() {
    let settings = value(of_hotspot(&mark(), &hotspot(), "wlan0", "u"));
    let at = |section: &str, key: &str| settings.at(section, key).map(Value::bare).expect("a setting");
    assert_eq!(at("connection", "autoconnect"), &Value::from(false));
    assert_eq!(at(WIFI, "channel"), &Value::from(6_u32));
    assert_eq!(at(WIFI, "band"), &Value::from("bg"));
    assert_eq!(at(WIFI_SECURITY, "pmf"), &Value::from(1_i32));
    assert_eq!(at("ipv4", "never-default"), &Value::from(true));
    assert_eq!(at("ipv6", "method"), &Value::from("disabled"));
    assert_eq!(first_address(at("ipv4", "address-data")), Some((Ipv4Addr::new(10, 42, 0, 1), 24)));
}
