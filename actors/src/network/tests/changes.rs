//! Networks that are changed from far away or by a person's mistake: whatever was wrong, the way back is there.

use super::*;

const PLUGGED: Cable = Cable { plugged: true, dhcp: true, beyond: Beyond::Internet };

fn with_password(name: &str, psk: &str) -> Network {
    Network { kind: NetworkKind::Wifi { ssid: name.into(), psk: Some(Secret::from(psk)) }, ..network(name, 0) }
}

/// A cable with a fixed address and this way out.
fn line(last: u8) -> Network {
    Network {
        kind: NetworkKind::Wired,
        interface: Some("eth0".into()),
        address: device_config::Address::Fixed([10, 1, 2, 3].into(), 24),
        gateway: Some([10, 1, 2, last].into()),
        ..network("line", 0)
    }
}

impl Bench {
    fn online(&self) -> bool {
        matches!(self.connectivity.get(), Some(Connectivity::Online { .. }))
    }

    fn keys(&self) -> Vec<String> {
        self.sim.networks.ours().into_iter().map(|profile| profile.key).collect()
    }

    fn in_use(&self) -> Option<String> {
        self.sim.networks.links().into_iter().find_map(|link| link.key)
    }

    fn trouble(&self) -> String {
        self.report.get().expect("published").trouble.join("\n")
    }

    #[track_caller]
    fn waits(&self, what: &str, limit: u64, is_so: impl Fn(&Bench) -> bool) -> u64 {
        for second in 0..limit {
            if is_so(self) {
                return second;
            }
            self.runs(1);
        }
        panic!("{what}: {:?} {:?}\n{:?}", self.keys(), self.trouble(), self.trace.entries())
    }
}

#[test]
fn a_wrong_password_from_far_away_does_not_cut_the_device_off() {
    let bench = Bench::new(&[with_password("house", PSK)]);
    bench.sim.networks.place(AccessPoint::new("house", PSK));
    bench.waits("online", 60, Bench::online);
    bench.networks.publish([with_password("house", "wrong horse")].into());
    bench.waits("told", 60, |bench| bench.trouble().contains("not taken as changed: wrong password for house"));
    bench.waits("online again", 20, Bench::online);
    assert_eq!(bench.keys(), ["net:house", "old:net:house"], "both are there, whatever comes");
    let joins = bench.joins();
    bench.runs(6 * 3600);
    assert!(bench.online() && bench.joins() == joins, "what works is not left for what does not");
    // Whoever wrote it meant the password that the access point gets now.
    bench.sim.networks.silence("house");
    bench.sim.networks.place(AccessPoint::new("house", "wrong horse"));
    bench.waits("the new password", 600, |bench| bench.keys() == ["net:house"] && bench.online());
    assert_eq!(bench.trouble(), "");
    let said = format!("{:?} {:?}", bench.trace.entries(), bench.report.get());
    assert!(!said.contains("horse"), "{said}");
}

#[test]
fn a_wrong_way_out_of_a_cable_is_noticed_and_left() {
    let bench = Bench::new(&[line(1)]);
    bench.sim.networks.set_gateway("eth0", [10, 1, 2, 1].into());
    bench.sim.networks.cable("eth0", PLUGGED);
    bench.waits("online", 60, Bench::online);
    bench.runs(100);
    assert_eq!(bench.keys(), ["net:line"], "there was nothing to lose");
    bench.networks.publish([line(9)].into());
    bench.waits("it leads nowhere", 60, |bench| !bench.online());
    let took = bench.waits("back", 120, |bench| bench.online() && bench.in_use().as_deref() == Some("old:net:line"));
    assert!(took <= 80, "{took}");
    assert!(bench.trouble().contains(r#"network "line" was not taken as changed: there is no internet by it"#));
    // Corrected: it is proven, and what was before goes.
    bench.sim.networks.set_gateway("eth0", [10, 1, 2, 7].into());
    bench.networks.publish([line(7)].into());
    bench.waits("proven", 60, |bench| bench.keys() == ["net:line"] && bench.online() && bench.trouble().is_empty());
    // The internet itself is gone for a day: a network that is proven is not left for that.
    bench.sim.networks.cable("eth0", Cable { beyond: Beyond::Nothing, ..PLUGGED });
    let joins = bench.joins();
    bench.runs(24 * 3600);
    assert_eq!(bench.joins(), joins);
}

#[test]
fn a_cable_that_worked_by_itself_is_given_back() {
    let admins = Profile { key: "Wired connection 1".into(), ..wired(-999) };
    for dhcp in [true, false] {
        let bench = Bench::new(&[]);
        let networks = &bench.sim.networks;
        networks.set_gateway("eth0", [10, 1, 2, 1].into());
        let fixed = Address::Fixed([10, 1, 2, 44].into(), 24);
        let address = if dhcp { Address::Auto } else { fixed };
        let gateway = (!dhcp).then(|| [10, 1, 2, 1].into());
        networks.by_admin(Profile { address, gateway, ..admins.clone() });
        networks.set_by_itself(true);
        networks.cable("eth0", Cable { dhcp, ..PLUGGED });
        bench.waits("online", 60, Bench::online);
        bench.sim.networks.set_by_itself(false);
        bench.networks.publish([line(9)].into());
        bench.waits("it leads nowhere", 60, |bench| !bench.online());
        let way = if dhcp { "DHCP" } else { "its administrator's profile" };
        bench.waits(way, 180, Bench::online);
        assert_eq!(bench.sim.networks.admin_in_use().is_some(), !dhcp, "{way}");
    }
}

#[test]
fn a_change_that_works_leaves_nothing_behind_and_a_priority_is_no_change() {
    let bench = Bench::new(&[with_password("house", PSK)]);
    bench.sim.networks.place(AccessPoint::new("house", PSK));
    bench.waits("online", 60, Bench::online);
    let joins = bench.joins();
    bench.networks.publish([Network { priority: 7, ..with_password("house", PSK) }].into());
    bench.runs(60);
    assert_eq!((bench.joins(), bench.keys()), (joins, vec!["net:house".to_owned()]));
    bench.networks.publish([Network { route_metric: 50, ..with_password("house", PSK) }].into());
    bench.waits("kept first", 5, |bench| bench.keys().len() == 2);
    bench.waits("proven", 60, |bench| bench.keys() == ["net:house"] && bench.online());
    assert_eq!(bench.joins(), joins + 1);
    // A network manager that does not tell the password: what cannot be kept is not changed.
    bench.sim.networks.keep_secrets(true);
    bench.networks.publish([with_password("house", "wrong horse")].into());
    bench.waits("told", 60, |bench| bench.trouble().contains("its present password is not told"));
    assert!(bench.online() && bench.joins() == joins + 1);
    bench.sim.networks.keep_secrets(false);
    bench.waits("tried after all", 900, |bench| bench.trouble().contains("not taken as changed: wrong password"));
}

#[test]
fn what_worked_at_a_door_is_not_lost_to_a_mistake_or_to_names_made_up() {
    let bench = Bench::new(&[]);
    bench.sim.networks.place(AccessPoint::new("home", PSK));
    assert_eq!(bench.gives("home", PSK), "joined home");
    bench.runs(5);
    // The router is off: that is why somebody is here, and mistypes.
    bench.sim.networks.silence("home");
    assert_eq!(bench.gives("home", "wrong horse"), "no network named home is in range");
    // Somebody with the password of the hotspot makes names up.
    for number in 0..2 * profiles::GIVEN_MAX {
        bench.gives(&format!("invented {number}"), PSK);
    }
    bench.runs(5);
    let given = bench.keys();
    assert_eq!(given.len(), profiles::GIVEN_MAX);
    assert!(given.contains(&"given:home".to_owned()), "{given:?}");
    bench.sim.networks.place(AccessPoint::new("home", PSK));
    bench.waits("home", 1200, |bench| bench.sim.networks.joined().as_deref() == Some("home"));
}

#[test]
fn what_could_not_be_taken_back_is_taken_back_later() {
    let bench = Bench::new(&[]);
    bench.sim.networks.place(AccessPoint::new("home", PSK));
    bench.asks(Command::Join { attempt: 1, given: given("home", "wrong horse") });
    bench.runs(3);
    assert_eq!(bench.keys(), ["given:home"], "it is being tried");
    bench.sim.networks.fail_calls(1);
    bench.runs(40);
    assert!(matches!(bench.joining.get().expect("told").outcome, Outcome::Failed(_)));
    assert_eq!(bench.keys(), ["given:home"]);
    bench.sim.networks.fail_calls(0);
    bench.waits("taken back", 60, |bench| bench.keys().is_empty());
    // And a list that fails once costs no rounds of networks.
    let bench = Bench::new(&[network("office", 5)]);
    bench.runs(5);
    bench.sim.networks.fail_calls(1);
    assert!(bench.gives("home", PSK).contains("network manager"));
    bench.sim.networks.fail_calls(0);
    bench.sim.networks.place(AccessPoint::new("office", PSK));
    bench.waits("office", 60, |bench| bench.sim.networks.joined().as_deref() == Some("office"));
}

#[test]
fn a_person_gets_an_answer_in_time() {
    let bench = Bench::new(&[]);
    bench.sim.networks.place(AccessPoint { dhcp: false, ..AccessPoint::new("home", PSK) });
    bench.sim.networks.set_call_takes(Duration::from_secs(100));
    let began = bench.sim.clock.elapsed();
    bench.asks(Command::Join { attempt: 1, given: given("home", PSK) });
    let told = || bench.joining.get().is_some_and(|joining| matches!(joining.outcome, Outcome::Failed(_)));
    bench.waits("an answer", 175, |_| told());
    let took = bench.sim.clock.elapsed() - began;
    assert!(took > Duration::from_secs(100), "{took:?}");
}

/// A radio that can be an access point or not, and is switched off or not.
fn radios(bench: &Bench, list: &[(&str, bool, bool)]) {
    for (interface, access_point, blocked) in list {
        bench.sim.networks.plug_radio(interface, false);
        bench.sim.networks.change_radio(interface, |radio| {
            radio.access_point = *access_point;
            radio.blocked = blocked.then(|| "rfkill".to_owned());
        });
    }
    bench.runs(1);
}

#[test]
fn the_radio_that_can_is_taken_and_not_the_first_by_name() {
    type Row<'a> = (&'a str, &'a [(&'a str, bool, bool)], &'a str);
    let table: [Row<'_>; 4] = [
        ("both can", &[("wlan0", true, false), ("wlan1", true, false)], "wlan0"),
        ("the first is switched off", &[("wlan0", true, true), ("wlan1", true, false)], "wlan1"),
        ("the first only joins", &[("wlan0", false, false), ("wlan1", true, false)], "wlan1"),
        ("one that only joins is better than none", &[("wlan0", true, true), ("wlan1", false, false)], "wlan1"),
    ];
    for (case, list, expected) in table {
        let bench = Bench::new(&[]);
        radios(&bench, list);
        let air = bench.air.get().expect("published");
        assert_eq!(air.radio.map(|radio| radio.interface).as_deref(), Some(expected), "{case}");
        assert_eq!(bench.trouble(), "", "{case}");
    }
    let bench = Bench::new(&[]);
    radios(&bench, &[("wlan0", false, false), ("wlan1", false, false)]);
    assert!(bench.trouble().contains("no WiFi device of this device can be an access point"));
    // The hotspot's radio stays the hotspot's when a better one comes.
    let bench = Bench::new(&[]);
    radios(&bench, &[("wlan0", true, true), ("wlan1", true, false)]);
    bench.asks(Command::Hotspot(true));
    radios(&bench, &[("wlan0", true, false)]);
    assert_eq!(bench.air.get().and_then(|air| air.radio).map(|radio| radio.interface).as_deref(), Some("wlan1"));
    bench.asks(Command::Hotspot(false));
    assert_eq!(bench.air.get().and_then(|air| air.radio).map(|radio| radio.interface).as_deref(), Some("wlan0"));
}

#[test]
fn a_network_manager_that_only_starts_is_not_said_to_be_missing() {
    let bench = Bench::new(&[network("house", 0)]);
    assert_eq!(bench.trouble(), "");
    for (away, said) in [(5, false), (29, false), (32, true)] {
        bench.sim.networks.set_manager(Manager::Absent);
        bench.runs(away);
        assert_eq!(bench.trouble().contains("no network manager runs"), said, "after {away} s");
        bench.sim.networks.set_manager(Manager::Ready);
        bench.runs(5);
        assert_eq!(bench.trouble(), "");
    }
}

#[test]
fn an_access_point_that_dies_unnoticed_is_left() {
    let bench = Bench::new(&[network("house", 9), network("shed", 1)]);
    bench.sim.networks.place(AccessPoint::new("house", PSK));
    bench.sim.networks.place(AccessPoint::new("shed", PSK));
    bench.waits("online", 60, Bench::online);
    let scans = bench.sim.networks.counts().scans;
    bench.runs(3600);
    assert_eq!(bench.sim.networks.counts().scans, scans, "online, nothing is scanned");
    bench.sim.networks.die_unnoticed("house");
    assert_eq!(bench.sim.networks.joined().as_deref(), Some("house"), "by the network manager's word");
    bench.waits("nobody answers", 200, |bench| !bench.online());
    let took = bench.waits("left", 120, |bench| bench.sim.networks.joined().as_deref() == Some("shed"));
    assert!(took <= 75, "{took}");
    // One that is there and leads nowhere is not left, where that does not count as offline.
    let bench = Bench::new(&[network("house", 9), network("shed", 1)]);
    bench.sim.networks.place(AccessPoint { beyond: Beyond::Nothing, ..AccessPoint::new("house", PSK) });
    bench.sim.networks.place(AccessPoint::new("shed", PSK));
    bench.waits("joined", 60, |bench| bench.joins() == 1);
    let scans = bench.sim.networks.counts().scans;
    bench.runs(24 * 3600);
    let scans = bench.sim.networks.counts().scans - scans;
    assert_eq!((bench.joins(), bench.sim.networks.joined().as_deref()), (1, Some("house")));
    assert!(scans < 120, "{scans} in a day");
}

#[test]
fn what_the_network_manager_came_to_by_itself_is_left_once_for_a_higher_one() {
    let wpa3 = |psk| AccessPoint { security: Security::Wpa3, ..AccessPoint::new("house", psk) };
    // case                               the higher one                                            where it ends    left
    let table = [
        ("not learned yet", wpa3(PSK), "house", 1),
        ("it refuses the password", wpa3("another password"), "shed", 2),
        ("it leads nowhere", AccessPoint { beyond: Beyond::Nothing, ..wpa3(PSK) }, "shed", 2),
    ];
    for (case, house, ends, joins) in table {
        let bench = Bench::new(&[network("house", 9), network("shed", 1)]);
        bench.sim.networks.set_by_itself(true);
        bench.sim.networks.place(AccessPoint::new("shed", PSK));
        bench.sim.networks.place(house);
        bench.waits(case, 15, |bench| bench.sim.networks.joined().as_deref() == Some("shed"));
        bench.runs(200);
        assert_eq!(bench.sim.networks.joined().as_deref(), Some(ends), "{case}");
        assert!(bench.online(), "{case}");
        bench.runs(6 * 3600);
        assert_eq!((bench.joins(), bench.sim.networks.joined().as_deref()), (joins, Some(ends)), "{case}: it stays");
        // A link that flaps is not left each time.
        for _ in 0..60 {
            bench.sim.networks.silence("shed");
            bench.runs(5);
            bench.sim.networks.place(AccessPoint::new("shed", PSK));
            bench.runs(55);
        }
        assert!(bench.joins() < joins + 12, "{case}: {} in an hour", bench.joins());
    }
}

#[test]
fn a_link_that_comes_and_goes_is_not_online_for_ever_nor_a_reason_to_wait_for_ever() {
    // It goes up and down every two seconds: nobody can be asked, and nobody answers.
    let up = Links { manager: Manager::Ready, links: vec![link(None, true)], ..Links::default() };
    let other = Links { links: vec![Link { interface: "wlan1".into(), ..link(None, true) }], ..up.clone() };
    let mut online = Online::new(at(0), 1);
    online.look(at(1), Facts { links: &up, reach: Reach::Reached, disabled: false, doubted: &[] });
    for second in (2..120).step_by(2) {
        let links = if second % 4 == 0 { &up } else { &other };
        online.stirred(at(second));
        online.look(at(second), Facts { links, reach: Reach::Unreachable, disabled: false, doubted: &[] });
        if second == 6 {
            assert!(online.ask(at(second)), "the question is not put off");
        }
    }
    assert!(matches!(online.word(), Connectivity::Local { .. }), "{:?}", online.word());
    // An access point takes the device in and drops it, for hours: that is offline since it began.
    let down = Links { links: Vec::new(), ..up.clone() };
    let mut online = Online::new(at(0), 1);
    for round in 0..20 {
        for (second, links) in [(0, &down), (60, &up)] {
            let now = at(round * 90 + second);
            online.look(now, Facts { links, reach: Reach::Unreachable, disabled: false, doubted: &[] });
            if online.ask(at(round * 90 + second + 3)) {
                online.answered(at(round * 90 + second + 3), Some(false));
            }
        }
    }
    online.look(at(1800), Facts { links: &down, reach: Reach::Unreachable, disabled: false, doubted: &[] });
    assert_eq!(online.away(false), Some(at(0)));
}
