//! A network manager that is restarted, that connects by itself meanwhile, and that remembers what is gone; a cable that
//! leads nowhere.

use super::*;

const PLUGGED: Cable = Cable { plugged: true, dhcp: true, beyond: Beyond::Internet };

#[test]
fn a_network_manager_that_is_restarted_costs_nobody_a_network() {
    const SHORT: u64 = 8;
    const LONG: u64 = 400;
    // case                          goes after (ms), each time for so long        what the person is told
    type Row = (&'static str, &'static [(u64, u64)], &'static str);
    let table: [Row; 6] = [
        ("while it lists", &[(10, SHORT)], "joined home"),
        ("while it stores", &[(30, SHORT)], "joined home"),
        ("while it joins", &[(2_000, SHORT)], "joined home"),
        ("and comes only slowly", &[(2_000, 25)], "joined home"),
        ("twice", &[(2_000, SHORT), (12_000, SHORT)], "the network manager was stopped or restarted meanwhile"),
        ("and is not started again", &[(2_000, LONG)], "the network manager went away"),
    ];
    for (case, goes, told) in table {
        let bench = Bench::new(&[]);
        bench.sim.networks.place(AccessPoint::new("home", PSK));
        for (after, time) in goes {
            let (networks, time) = (bench.sim.networks.clone(), Duration::from_secs(*time));
            let what = move || networks.restart_manager(time);
            bench.sim.clock.happens_after(Duration::from_millis(*after), what);
        }
        assert_eq!(bench.gives("home", PSK), told, "{case}");
        if told.starts_with("joined") {
            assert_eq!(bench.profiles(), [("given:home".to_owned(), 999)], "{case}: nothing else is left");
        }
    }
    // What was there before, and worked, is put back all the same where the new one is wrong.
    let bench = Bench::new(&[]);
    bench.sim.networks.place(AccessPoint::new("home", PSK));
    assert_eq!(bench.gives("home", PSK), "joined home");
    let networks = bench.sim.networks.clone();
    bench.sim.clock.happens_after(Duration::from_secs(3), move || networks.restart_manager(Duration::from_secs(SHORT)));
    assert_eq!(bench.gives("home", "wrong horse"), "wrong password for home");
    bench.runs(60);
    let psks: Vec<_> = bench.sim.networks.ours().into_iter().map(|profile| profile.medium).collect();
    let right = Medium::Wifi { ssid: ssid("home"), psk: Some(Secret::from(PSK)), hidden: false };
    assert_eq!(psks, [right]);
}

/// A device that is online by the highest of its networks, and whose network manager connects by itself, in its own time.
fn online_by_cafe(others: Duration) -> Bench {
    let bench = Bench::new(&[network("cafe", 10), network("home", 1)]);
    for name in ["cafe", "home"] {
        bench.sim.networks.place(AccessPoint::new(name, PSK));
    }
    bench.sim.networks.set_remembers(Duration::from_secs(180));
    assert!((0..60).any(|_| {
        bench.runs(1);
        bench.sim.networks.joined().as_deref() == Some("cafe")
    }));
    bench.runs(60);
    bench.sim.networks.set_by_itself_takes(others);
    bench.sim.networks.set_by_itself(others > Duration::ZERO);
    bench
}

#[test]
fn what_was_just_lost_is_in_nobodys_way() {
    // The network manager does nothing by itself: the agent's first round goes past the network that the radio remembers.
    let bench = online_by_cafe(Duration::ZERO);
    let joins = bench.joins();
    bench.sim.networks.silence("cafe");
    bench.runs(40);
    assert_eq!((bench.sim.networks.joined().as_deref(), bench.joins() - joins), (Some("home"), 1));
    // Lost and there again, as it was heard after the loss.
    let bench = online_by_cafe(Duration::ZERO);
    let joins = bench.joins();
    bench.sim.networks.silence("cafe");
    bench.runs(2);
    bench.sim.networks.place(AccessPoint::new("cafe", PSK));
    bench.runs(40);
    assert_eq!((bench.sim.networks.joined().as_deref(), bench.joins() - joins), (Some("cafe"), 1));
}

#[test]
fn who_is_being_connected_already_is_let_end() {
    // It begins five seconds after the loss, and takes half a minute: the round comes in the middle of it.
    let bench = online_by_cafe(Duration::from_secs(30));
    let joins = bench.joins();
    bench.sim.networks.silence("cafe");
    bench.runs(40);
    assert_eq!((bench.sim.networks.joined().as_deref(), bench.joins() - joins), (Some("home"), 0));
    bench.runs(60);
    assert_eq!((bench.sim.networks.joined().as_deref(), bench.joins() - joins), (Some("home"), 0));
    // One that never ends is not waited for for ever.
    let bench = online_by_cafe(Duration::from_secs(3600));
    bench.sim.networks.silence("cafe");
    bench.runs(110);
    assert_eq!(bench.sim.networks.joined().as_deref(), Some("home"));
}

#[test]
fn a_higher_network_that_only_the_agent_can_join_is_joined_whoever_comes_first() {
    // The cable is pulled; the network manager takes what it can, in between the agent's steps.
    for takes in [1, 9, 12, 14, 17, 20, 30] {
        let bench = Bench::new(&[network("cafe", 10), network("home", 1)]);
        let networks = &bench.sim.networks;
        networks.by_admin(Profile { key: "Wired connection 1".into(), interface: None, ..wired(-999) });
        networks.cable("eth0", PLUGGED);
        networks.set_by_itself(true);
        bench.runs(60);
        assert!(matches!(bench.connectivity.get(), Some(Connectivity::Online { .. })));
        networks.place(AccessPoint { security: Security::Wpa3, ..AccessPoint::new("cafe", PSK) });
        networks.place(AccessPoint { hidden: true, ..AccessPoint::new("home", PSK) });
        networks.set_by_itself_takes(Duration::from_secs(takes));
        networks.unplug_radio("wlan0");
        networks.plug_radio("wlan0", false);
        networks.cable("eth0", Cable { plugged: false, ..PLUGGED });
        bench.runs(180);
        assert_eq!(bench.sim.networks.joined().as_deref(), Some("cafe"), "{takes} s: {:?}", bench.trace.entries());
        let joins = bench.joins();
        bench.runs(3600);
        assert_eq!((bench.joins(), bench.sim.networks.joined().as_deref()), (joins, Some("cafe")), "{takes} s");
    }
}

#[test]
fn a_cable_that_never_led_anywhere_is_no_link() {
    let line = |last: u8| Network {
        name: "line".into(),
        kind: NetworkKind::Wired,
        interface: Some("eth0".into()),
        address: device_config::Address::Fixed([10, 1, 2, 44].into(), 24),
        gateway: Some([10, 1, 2, last].into()),
        ..network("line", 0)
    };
    let word = |bench: &Bench| bench.connectivity.get().map(|word| format!("{word:?}"));
    let is = |bench: &Bench, wanted: &str| word(bench).is_some_and(|word| word.starts_with(wanted));
    let trouble = |bench: &Bench| bench.report.get().map(|report| report.trouble.join("; ")).unwrap_or_default();
    // Wrong from the start: offline, which opens the doors.
    let bench = Bench::new(&[line(9)]);
    bench.sim.networks.set_gateway("eth0", [10, 1, 2, 1].into());
    bench.sim.networks.cable("eth0", PLUGGED);
    bench.runs(120);
    assert!(bench.sim.networks.links().iter().any(|link| link.key.as_deref() == Some("net:line")));
    assert!(is(&bench, "Offline"), "{:?}", word(&bench));
    assert!(trouble(&bench).contains(r#"the cable of network "line" leads nowhere"#), "{}", trouble(&bench));
    // Mended, it is online; and what it leads to may then be away for as long as it likes.
    bench.networks.publish([line(1)].into());
    bench.runs(400);
    assert!(is(&bench, "Online"), "{:?}", word(&bench));
    assert_eq!(trouble(&bench), "");
    bench.sim.networks.cable("eth0", Cable { beyond: Beyond::Nothing, ..PLUGGED });
    bench.runs(600);
    assert!(is(&bench, "Local"), "{:?}", word(&bench));
    // A wrong one beside a network that works takes all the traffic: that is offline, too.
    let bench = Bench::new(&[line(9), network("home", 1)]);
    bench.sim.networks.place(AccessPoint { beyond: Beyond::Nothing, ..AccessPoint::new("home", PSK) });
    bench.sim.networks.set_gateway("eth0", [10, 1, 2, 1].into());
    bench.runs(60);
    assert!(is(&bench, "Local"), "by WiFi alone: {:?}", word(&bench));
    bench.sim.networks.cable("eth0", PLUGGED);
    bench.sim.networks.set_by_itself(true);
    bench.runs(120);
    assert!(is(&bench, "Offline"), "{:?}", word(&bench));
}
