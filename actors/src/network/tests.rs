//! The network as a specification: rows for what is decided, and the actor on a simulated board for how it goes.

use std::{cell::Cell, rc::Rc, time::Duration};

use api::{
    Secret,
    device_config::{self, Network, NetworkKind, NetworkSettings, Settings},
};
use board::{
    Mono,
    network::{Address, Internet, Link, Links, Manager, Medium, Profile, Radio, Security, Seen, Ssid},
};
use board_sim::{
    Driver, SimBoard,
    radio::{AccessPoint, Beyond, Cable, ssid},
};

use super::{
    Air, Command, Connectivity, Given, Joining, Outcome, Report, actor,
    choose::{Attempts, Choice},
    machine::Policy,
    online::{Facts, Online},
    profiles::{self, Step},
};
use crate::{
    cloud::Reach,
    config::ConfigStatus,
    kit::{
        latest::Latest,
        mailbox::{self, Mailbox},
        supervise::Lifeline,
        trace::Trace,
    },
};

mod changes;
mod others;

const MINUTE: Duration = Duration::from_secs(60);
const PSK: &str = "correct horse";

fn at(seconds: u64) -> Mono {
    Mono::BOOT + Duration::from_secs(3600 + seconds)
}

fn wifi(name: &str, priority: i16, hidden: bool) -> Profile {
    Profile {
        key: format!("net:{name}"),
        medium: Medium::Wifi { ssid: ssid(name), psk: Some(Secret::from(PSK)), hidden },
        interface: None,
        priority,
        address: Address::Auto,
        gateway: None,
        dns: Vec::new(),
        route_metric: 600,
    }
}

fn wired(priority: i16) -> Profile {
    Profile { key: "net:cable".into(), medium: Medium::Wired, route_metric: 100, ..wifi("cable", priority, false) }
}

fn seen(name: &str, signal: u8) -> Seen {
    Seen { ssid: ssid(name), signal, security: Security::Wpa2, frequency_mhz: 2412, heard: None }
}

fn radio(interface: &str) -> Radio {
    Radio { interface: interface.into(), access_point: true, both: false, blocked: None }
}

fn link(key: Option<&str>, default_route: bool) -> Link {
    let address = Some(([192, 168, 1, 2].into(), 24));
    Link { interface: "wlan0".into(), ssid: None, key: key.map(str::to_owned), address, default_route }
}

fn given(name: &str, psk: &str) -> Given {
    Given { ssid: ssid(name), psk: Some(psk).filter(|psk| !psk.is_empty()).map(Secret::from), hidden: false }
}

fn network(name: &str, priority: i16) -> Network {
    Network {
        name: name.into(),
        kind: NetworkKind::Wifi { ssid: name.into(), psk: Some(Secret::from(PSK)) },
        interface: None,
        priority,
        address: device_config::Address::Auto,
        gateway: None,
        dns: Box::default(),
        route_metric: 600,
    }
}

#[test]
fn who_is_tried_next() {
    let all =
        [wifi("low", -5, true), wifi("high", 20, true), wifi("shy", 900, true), wifi("loud", 900, false), wired(3)];
    let bound = [Profile { interface: Some("wlan1".into()), ..wifi("bound", 1, true) }];
    let same = [wifi("weak", 1, true), wifi("strong", 1, true), profiles::of_given(&given("door", PSK), None)];
    let same: Vec<_> = same.into_iter().map(|profile| Profile { priority: 1, ..profile }).collect();
    let blocked = Radio { blocked: Some("rfkill".into()), ..radio("wlan0") };
    let (near, far): (&[Seen], &[Seen]) = (&[seen("low", 90), seen("high", 10)], &[]);
    let levels: &[Seen] = &[seen("strong", 80), seen("weak", 20)];
    let one = [radio("wlan0")];
    type Row<'a> = (&'a str, &'a [Profile], &'a [Seen], &'a [Radio], Option<&'a str>, &'a [&'a str]);
    let table: [Row<'_>; 8] = [
        // case                             profiles seen    radios        connected          order
        ("in the air first, then asked for", &all, near, &one, None, &["high", "cable", "low", "shy"]),
        ("nothing in the air", &all, far, &one, None, &["cable", "shy", "high", "low"]),
        ("not what is connected", &all, near, &one, Some("net:high"), &["cable", "low", "shy"]),
        ("no radio", &all, near, &[], None, &["cable"]),
        ("a radio that is switched off", &all, near, &[blocked], None, &["cable"]),
        ("another radio", &bound, far, &one, None, &[]),
        ("its own radio", &bound, far, &[radio("wlan1")], None, &["bound"]),
        ("given by a person, then by signal", &same, levels, &one, None, &["strong", "weak"]),
    ];
    for (case, profiles, seen, radios, connected, order) in table {
        let links: Vec<Link> = connected.iter().map(|key| link(Some(key), true)).collect();
        let choice = Choice { profiles, seen, links: &links, radios };
        let found = Attempts::new(1).candidates(at(0), choice, false);
        let expected: Vec<String> = order.iter().map(|name| format!("net:{name}")).collect();
        assert_eq!(found, expected, "{case}");
    }
}

#[test]
fn one_that_fails_waits_longer_each_time_and_is_never_forgotten() {
    for (refused, first, max) in [(false, 30, 900), (true, 300, 3600)] {
        let (mut attempts, profiles, mut now) = (Attempts::new(7), [wifi("house", 0, true)], 0);
        let heard = [seen("house", 50)];
        let mut waits = Vec::new();
        for round in 0..20 {
            let news = attempts.failed(at(now), "net:house", true, refused, "no");
            assert_eq!(news, round == 0, "the same is said once");
            let choice = Choice { profiles: &profiles, seen: &heard, links: &[], radios: &[radio("wlan0")] };
            let wait = (0..=max).find(|wait| !attempts.candidates(at(now + wait), choice, false).is_empty());
            let wait = wait.expect("it is tried again within the limit");
            assert!(!attempts.candidates(at(now), choice, true).is_empty(), "a round that somebody waits for");
            waits.push(wait);
            now += wait;
        }
        assert!(waits[0] >= first / 2 && waits[0] <= first, "{waits:?}");
        assert!(waits[19] >= max / 2, "{waits:?}");
    }
    // Gone when it was tried, and in the air again: at once.
    let (mut attempts, profiles, heard) = (Attempts::new(7), [wifi("house", 0, true)], [seen("house", 50)]);
    attempts.failed(at(0), "net:house", false, false, "no");
    let radios = [radio("wlan0")];
    let choice = |seen| Choice { profiles: &profiles, seen, links: &[], radios: &radios };
    assert!(attempts.candidates(at(1), choice(&[]), false).is_empty());
    assert_eq!(attempts.candidates(at(1), choice(&heard), false), ["net:house"]);
}

#[test]
fn wanted_and_present_profiles_are_compared() {
    let (house, shed) = (network("house", 1), network("shed", 2));
    let door = profiles::of_given(&given("door", PSK), None);
    let wanted = profiles::wanted(&[house.clone(), shed]);
    let present = |names: &[&Profile]| names.iter().copied().cloned().collect::<Vec<_>>();
    let edited = Profile { priority: 7, ..wanted[1].clone() };
    let old = wifi("old", 0, true);
    let table = [
        // case                        present                                     put, removed
        ("nothing there", present(&[]), vec!["+net:house", "+net:shed"]),
        ("all there", present(&[&wanted[1], &wanted[0]]), vec![]),
        ("one was edited", present(&[&wanted[0], &edited]), vec!["+net:shed"]),
        ("one is not wanted any more", present(&[&wanted[0], &old, &wanted[1]]), vec!["-net:old"]),
        ("what was given stays", present(&[&wanted[0], &door, &wanted[1]]), vec![]),
    ];
    let shown = |steps: Vec<Step>| -> Vec<String> {
        let sign = |step: &Step| if matches!(step, Step::Put(_)) { '+' } else { '-' };
        steps.iter().map(|step| format!("{}{}", sign(step), step.key())).collect()
    };
    for (case, present, expected) in table {
        assert_eq!(shown(profiles::compare(&wanted, &present, true, &[])), expected, "{case}");
        let kept = shown(profiles::compare(&wanted, &present, false, &[]));
        assert!(kept.iter().all(|step| step.starts_with('+')), "{case}: the cloud was not heard yet");
    }
    let Network { kind, .. } = house;
    let fixed = Network {
        name: "line".into(),
        kind: NetworkKind::Wired,
        interface: Some("eth0".into()),
        address: device_config::Address::Fixed([10, 0, 0, 2].into(), 24),
        gateway: Some([10, 0, 0, 1].into()),
        dns: [[1, 1, 1, 1].into()].into(),
        route_metric: 50,
        priority: -999,
    };
    let profile = profiles::wanted(&[fixed]).remove(0);
    assert_eq!(profile.address, Address::Fixed([10, 0, 0, 2].into(), 24));
    assert_eq!((profile.interface.as_deref(), profile.priority, profile.route_metric), (Some("eth0"), -999, 50));
    assert_eq!((profile.gateway, profile.dns.len(), profile.medium), (Some([10, 0, 0, 1].into()), 1, Medium::Wired));
    assert!(matches!(kind, NetworkKind::Wifi { .. }));
}

#[test]
fn what_is_given_comes_first_and_the_older_ones_step_down() {
    let mut present = vec![wifi("house", 900, true)];
    for name in 0..profiles::GIVEN_MAX + 4 {
        let new = profiles::of_given(&given(&format!("door {name}"), PSK), None);
        for step in profiles::give(new, &present, |_| true) {
            step.done_to(&mut present);
        }
        let mut given: Vec<_> = present.iter().filter(|profile| profiles::is_given(profile)).collect();
        given.sort_by_key(|profile| -profile.priority);
        assert!(given.len() <= profiles::GIVEN_MAX, "they are bounded");
        assert_eq!(given[0].key, format!("given:door {name}"), "the newest is the highest");
        let priorities: Vec<i16> = given.iter().map(|profile| profile.priority).collect();
        let expected: Vec<i16> = (0..).map(|down| 999 - down).take(given.len()).collect();
        assert_eq!(priorities, expected, "in their order, none equal");
    }
    assert_eq!(present.iter().filter(|profile| !profiles::is_given(profile)).count(), 1);
    let strange = Given { ssid: Ssid::new(&[0xff; 32]).expect("32 bytes"), psk: None, hidden: true };
    let key = profiles::of_given(&strange, None).key;
    assert!(key.len() <= 128 && !key.contains(char::is_control), "{key}");
}

#[test]
fn what_counts_as_online() {
    let unknown = Internet::Unknown;
    let ready = |links: Vec<Link>, internet| Links { manager: Manager::Ready, links, internet, ..Links::default() };
    let bridge = Link { interface: "docker0".into(), ..link(None, false) };
    let absent = Links::default();
    let yes = Some(Some(true));
    type Row = (&'static str, Links, Reach, Option<Option<bool>>, &'static str);
    let table: [Row; 16] = [
        // case                                 links                                   fleet server       asked         word
        ("no link", ready(vec![], unknown), Reach::Unreachable, None, "Offline"),
        ("no link that the manager knows", ready(vec![], unknown), Reach::Reached, None, "Online"),
        ("refused is reached", ready(vec![], unknown), Reach::CredentialsRefused, None, "Online"),
        ("a bridge is no link", ready(vec![bridge], unknown), Reach::Unreachable, None, "Offline"),
        ("a link, nobody has asked", ready(vec![link(None, true)], unknown), Reach::Unknown, None, "Unknown"),
        ("a link, no answer", ready(vec![link(None, true)], unknown), Reach::Unreachable, Some(Some(false)), "Local"),
        ("a link, nobody to ask", ready(vec![link(None, true)], unknown), Reach::NoIdentity, Some(None), "Local"),
        ("a link, an answer", ready(vec![link(None, true)], unknown), Reach::Unreachable, yes, "Online"),
        ("the manager's word", ready(vec![link(None, true)], Internet::Yes), Reach::Unreachable, None, "Online"),
        (
            "filtered: its word is no, ours is yes",
            ready(vec![link(None, true)], Internet::No),
            Reach::Unreachable,
            yes,
            "Online",
        ),
        (
            "a login page",
            ready(vec![link(None, true)], Internet::Portal),
            Reach::Unreachable,
            Some(Some(false)),
            "Local",
        ),
        (
            "no way out",
            ready(vec![link(Some("k"), false)], Internet::No),
            Reach::Unreachable,
            Some(Some(false)),
            "Local",
        ),
        ("no manager, an answer", absent.clone(), Reach::Unreachable, yes, "Online"),
        ("no manager, no answer", absent.clone(), Reach::Unreachable, Some(Some(false)), "Offline"),
        ("no manager, reached", absent.clone(), Reach::Reached, None, "Online"),
        ("no manager, nobody has asked", absent, Reach::Unknown, None, "Unknown"),
    ];
    for (case, links, reach, asked, word) in table {
        let mut online = Online::new(at(0), 1);
        let facts = Facts { links: &links, reach, disabled: false, doubted: &[] };
        online.look(at(1), facts);
        if let Some(answer) = asked {
            assert!(!online.ask(at(1)), "{case}: who says more is waited for");
            assert!(online.ask(online.deadline().unwrap_or_else(|| panic!("{case}: it asks"))), "{case}");
            online.answered(at(5), answer);
            online.look(at(5), facts);
        }
        let shown = format!("{:?}", online.word());
        assert!(shown.starts_with(word), "{case}: {shown}");
        let disabled = Facts { disabled: true, ..facts };
        let mut passive = Online::new(at(0), 1);
        passive.look(at(1), disabled);
        assert_eq!(passive.deadline(), None, "{case}: disabled, nobody is asked");
        let reached = matches!(reach, Reach::Reached | Reach::CredentialsRefused);
        assert_eq!(matches!(passive.word(), Connectivity::Online { .. }), reached, "{case}: disabled");
    }
}

#[test]
fn since_when_it_is_so() {
    let up = Links { manager: Manager::Ready, links: vec![link(None, true)], ..Links::default() };
    let down = Links { links: Vec::new(), ..up.clone() };
    let mut online = Online::new(at(0), 1);
    let mut look = |second, links: &Links, reach, answer: Option<bool>| {
        let facts = Facts { links, reach, disabled: false, doubted: &[] };
        online.look(at(second), facts);
        if let Some(answer) = answer {
            assert!(online.ask(at(second)));
            online.answered(at(second), Some(answer));
            online.look(at(second), facts);
        }
        (online.word(), online.away(false), online.away(true))
    };
    let (offline, local) = (|since| Connectivity::Offline { since }, |since| Connectivity::Local { since });
    let table = [
        (look(10, &down, Reach::Unreachable, None), (offline(at(0)), Some(at(0)), Some(at(0)))),
        (look(20, &up, Reach::Reached, None), (Connectivity::Online { since: at(20) }, None, None)),
        (look(30, &up, Reach::Reached, None), (Connectivity::Online { since: at(20) }, None, None)),
        (look(40, &up, Reach::Unreachable, None), (Connectivity::Online { since: at(20) }, None, None)),
        (look(50, &up, Reach::Unreachable, Some(false)), (local(at(50)), None, Some(at(50)))),
        (look(60, &down, Reach::Unreachable, None), (offline(at(60)), Some(at(60)), Some(at(50)))),
        (look(70, &up, Reach::Unreachable, None), (local(at(50)), None, Some(at(50)))),
        (look(80, &up, Reach::Reached, None), (Connectivity::Online { since: at(80) }, None, None)),
    ];
    for (row, (found, expected)) in table.into_iter().enumerate() {
        assert_eq!(found, expected, "row {row}");
    }
}

/// The actor on a board with one radio, whose network manager connects nothing by itself.
struct Bench {
    sim: SimBoard,
    driver: Driver,
    commands: Mailbox<Command>,
    reach: Latest<Reach>,
    network: Latest<Rc<NetworkSettings>>,
    networks: Latest<Rc<[Network]>>,
    connectivity: Latest<Connectivity>,
    joining: Latest<Joining>,
    air: Latest<Air>,
    report: Latest<Report>,
    trace: Trace,
    attempt: Cell<u64>,
}

impl Bench {
    fn new(networks: &[Network]) -> Bench {
        let sim = SimBoard::new(1);
        sim.networks.install();
        sim.networks.set_by_itself(false);
        sim.networks.plug_radio("wlan0", false);
        sim.networks.cable("eth0", Cable::default());
        let (driver, board) = (Driver::new(&sim), sim.switch_on());
        let settings = Settings::default();
        let (advanced, network, given, config) = (Latest::new(), Latest::new(), Latest::new(), Latest::new());
        advanced.publish(settings.advanced);
        network.publish(settings.network);
        given.publish(networks.into());
        config.publish(ConfigStatus { applied_revision: Some([1; 32]), ..ConfigStatus::default() });
        let (commands, mail) = mailbox::outside(8);
        let (reach, trace) = (Latest::new(), Trace::default());
        let (connectivity, joining, air, report) = (Latest::new(), Latest::new(), Latest::new(), Latest::new());
        reach.publish(Reach::Unreachable);
        let inbox = actor::Inbox {
            advanced: advanced.watch(),
            network: network.watch(),
            networks: given.watch(),
            config: config.watch(),
            reach: reach.watch(),
            commands: mail,
            lifeline: Lifeline::unattended(Rc::clone(&board.clock)),
        };
        let ports = actor::Ports {
            clock: board.clock,
            files: board.files,
            fetch: board.fetch,
            networks: board.networks,
            power: board.power,
            executor: driver.executor(),
            record: "/root/network.record".into(),
            boot_id: "b".into(),
            address: Rc::new(|| Some("https://fleet.test".into())),
            connectivity: connectivity.clone(),
            joining: joining.clone(),
            air: air.clone(),
            report: report.clone(),
            stir: Latest::new(),
            trace: trace.clone(),
        };
        driver.executor().spawn(actor::run(Policy { minute: MINUTE, seed: 3 }, inbox, ports)).detach();
        let attempt = Cell::new(0);
        let bench = Bench {
            sim,
            driver,
            commands,
            reach,
            network,
            networks: given,
            connectivity,
            joining,
            air,
            report,
            trace,
            attempt,
        };
        bench.runs(1);
        bench
    }

    fn runs(&self, seconds: u64) {
        self.driver.run_for(Duration::from_secs(seconds), || ());
    }

    fn asks(&self, command: Command) {
        assert!(self.commands.try_send(command).is_ok(), "there is room");
        self.driver.settle();
    }

    /// A person gives this at a door; what they are told in the end.
    fn gives(&self, name: &str, psk: &str) -> String {
        self.attempt.set(self.attempt.get() + 1);
        let attempt = self.attempt.get();
        self.asks(Command::Join { attempt, given: given(name, psk) });
        let trying = self.joining.get().expect("told at once");
        assert_eq!(trying.attempt, attempt);
        for _ in 0..120 {
            let Joining { outcome, attempt: told, .. } = self.joining.get().expect("told");
            assert_eq!(told, attempt);
            match outcome {
                Outcome::Trying => self.runs(1),
                Outcome::Joined(link) => return format!("joined {}", link.ssid.expect("a radio's")),
                Outcome::Failed(why) => return why.to_string(),
            }
        }
        panic!("no word within two minutes: {:?}", self.trace.entries());
    }

    /// Key and priority of the agent's profiles, the highest first.
    fn profiles(&self) -> Vec<(String, i16)> {
        let mut ours: Vec<_> =
            self.sim.networks.ours().into_iter().map(|profile| (profile.key, profile.priority)).collect();
        ours.sort_by_key(|(_, priority)| -priority);
        ours
    }

    /// Seconds until the round is told to have ended.
    fn round(&self, number: u64, limit: u64) -> u64 {
        self.asks(Command::TryKnown { round: number });
        let ended = || self.joining.get().is_some_and(|joining| joining.round_ended == number);
        (0..limit)
            .find(|_| {
                ended() || {
                    self.runs(1);
                    false
                }
            })
            .unwrap_or_else(|| panic!("{:?}", self.trace.entries()))
    }

    fn joins(&self) -> u64 {
        self.sim.networks.counts().joins
    }
}

#[test]
fn what_a_person_gives_is_joined_stored_and_the_highest() {
    let bench = Bench::new(&[network("office", 5)]);
    bench.sim.networks.place(AccessPoint::new("home", PSK));
    bench.sim.networks.place(AccessPoint::new("cafe", ""));
    let table = [
        ("home", "wrong horse", "wrong password for home", vec![("net:office", 5)]),
        ("home", PSK, "joined home", vec![("given:home", 999), ("net:office", 5)]),
        (
            "nowhere",
            PSK,
            "no network named nowhere is in range",
            vec![("given:nowhere", 999), ("given:home", 998), ("net:office", 5)],
        ),
        (
            "cafe",
            "",
            "joined cafe",
            vec![("given:cafe", 999), ("given:nowhere", 998), ("given:home", 997), ("net:office", 5)],
        ),
        // What worked before is put back, where it was.
        ("home", "wrong horse", "wrong password for home", vec![("given:home", 997), ("net:office", 5)]),
    ];
    for (name, psk, told, profiles) in table {
        assert_eq!(bench.gives(name, psk), told);
        bench.runs(2);
        let found = bench.profiles();
        for (key, priority) in profiles {
            assert!(found.contains(&(key.to_owned(), priority)), "{name} {psk}: {key} {priority}, {found:?}");
        }
    }
    // A change of the configuration removes its own and nothing that a person gave.
    bench.networks.publish([].into());
    bench.runs(5);
    let keys: Vec<_> = bench.profiles().into_iter().map(|(key, _)| key).collect();
    assert!(!keys.contains(&"net:office".to_owned()) && keys.len() == 3, "{keys:?}");
    let said = format!("{:?} {:?}", bench.trace.entries(), bench.report.get());
    assert!(!said.contains("horse"), "{said}");
}

#[test]
fn somebody_who_gives_a_network_does_not_wait_for_others() {
    let bench = Bench::new(&[network("a", 3), network("b", 2), network("c", 1)]);
    bench.sim.networks.place(AccessPoint::new("home", PSK));
    bench.runs(16);
    assert_eq!(bench.joins(), 0);
    bench.runs(5);
    assert_eq!(bench.joins(), 1, "it asks for names that are not in the air, which takes its time");
    let began = bench.sim.clock.elapsed();
    assert_eq!(bench.gives("home", PSK), "joined home");
    let took = bench.sim.clock.elapsed() - began;
    assert!(took < Duration::from_secs(7), "{took:?}");
    // Who mistypes and corrects it at once does not wait until the mistake is taken back, and it is.
    assert_eq!(bench.gives("home", "wrong horse"), "wrong password for home");
    assert_eq!(bench.gives("home", PSK), "joined home");
    assert_eq!(bench.gives("home", "wrong horse"), "wrong password for home");
    bench.runs(60);
    assert_eq!(bench.sim.networks.joined().as_deref(), Some("home"), "by what worked before");
    // And gets an answer also where there is nobody who could do it.
    bench.sim.networks.set_manager(Manager::Unusable("NetworkManager 1.20 is too old: install 1.30".into()));
    bench.runs(1);
    assert_eq!(bench.gives("home", PSK), "NetworkManager 1.20 is too old: install 1.30");
    bench.sim.networks.set_manager(Manager::Ready);
    bench.runs(5);
    bench.asks(Command::Join { attempt: 99, given: given("home", PSK) });
    bench.sim.networks.set_manager(Manager::Absent);
    bench.runs(5);
    let waits = bench.joining.get().is_some_and(|joining| joining.outcome == Outcome::Trying);
    assert!(waits, "it may only be restarted");
    bench.runs(30);
    let Some(Joining { attempt: 99, outcome: Outcome::Failed(why), .. }) = bench.joining.get() else {
        panic!("{:?}", bench.joining.get())
    };
    assert!(why.contains("network manager"), "{why}");
}

#[test]
fn between_two_invitations_everything_is_tried_once() {
    let bench = Bench::new(&[network("a", 3), network("b", 2)]);
    bench.asks(Command::Hotspot(true));
    bench.runs(600);
    assert_eq!(
        (bench.joins(), bench.sim.networks.counts().scans),
        (0, 1),
        "the radio is the hotspot's; it looked once"
    );
    bench.asks(Command::Hotspot(false));
    let took = bench.round(1, 400);
    assert!((60..=65).contains(&took), "at least a minute: {took}");
    assert_eq!(bench.joins(), 2);
    // One that failed a moment ago is tried again, because somebody has closed the door for that.
    bench.sim.networks.place(AccessPoint::new("b", PSK));
    let took = bench.round(2, 400);
    assert!(took < 20 && bench.sim.networks.joined().as_deref() == Some("b"), "{took}");
    bench.sim.networks.silence("b");
    bench.runs(1);
    // The administrator's own is used when nothing of ours can be, and is not changed.
    let admins = Profile { key: "By hand".into(), ..wifi("c", 0, false) };
    bench.sim.networks.by_admin(admins.clone());
    bench.sim.networks.place(AccessPoint::new("c", PSK));
    let took = bench.round(3, 400);
    assert_eq!(bench.sim.networks.admin_in_use().as_deref(), Some("By hand"), "{took}");
    assert_eq!(bench.sim.networks.admins(), [admins]);
    // At most five minutes.
    bench.sim.networks.silence("c");
    let many: Vec<Network> = (0..60).map(|name| network(&format!("n{name}"), 0)).collect();
    bench.networks.publish(many.into());
    bench.runs(10);
    let took = bench.round(4, 400);
    assert!((299..=301).contains(&took), "{took}");
    // And with nobody to do it, it is over at once.
    bench.sim.networks.set_manager(Manager::Absent);
    bench.runs(1);
    assert!(bench.round(5, 400) <= 1);
}

#[test]
fn nobody_is_disturbed() {
    let bench = Bench::new(&[network("a", 3)]);
    let settings = bench.network.get().expect("published");
    bench.network.publish(Rc::new(NetworkSettings {
        device_reboot_after_offline: Some(device_config::Minutes(60)),
        ..(*settings).clone()
    }));
    bench.asks(Command::Busy(true));
    bench.runs(4 * 3600);
    assert_eq!((bench.joins(), bench.sim.power.reboots().len()), (0, 0), "{:?}", bench.trace.entries());
    bench.asks(Command::Busy(false));
    bench.runs(2);
    assert_eq!(bench.sim.power.reboots().len(), 1, "it has been offline for long enough");
}

#[test]
fn a_person_sees_what_is_in_the_air() {
    let bench = Bench::new(&[]);
    bench.sim.networks.place(AccessPoint { signal: 30, ..AccessPoint::new("weak", PSK) });
    bench.sim.networks.place(AccessPoint { signal: 90, ..AccessPoint::new("strong", "") });
    bench.sim.networks.place(AccessPoint { hidden: true, ..AccessPoint::new("hidden", "") });
    bench.runs(5);
    let scans = bench.sim.networks.counts().scans;
    bench.asks(Command::Rescan);
    bench.runs(1);
    bench.asks(Command::Rescan);
    bench.runs(5);
    assert!(bench.sim.networks.counts().scans <= scans + 2, "one at a time");
    let air = bench.air.get().expect("published");
    let names: Vec<_> = air.seen.iter().map(|seen| seen.ssid.to_string()).collect();
    assert_eq!(names, ["strong", "weak"]);
    assert_eq!(air.radio.map(|radio| radio.interface), Some("wlan0".into()));
    bench.runs(3600);
    assert!(bench.sim.networks.counts().scans <= scans + 2, "and nobody else wants it");
    let crowd = (0..200).map(|number| AccessPoint::new(&format!("crowd {number}"), PSK));
    crowd.for_each(|point| bench.sim.networks.place(point));
    bench.asks(Command::Rescan);
    bench.runs(5);
    assert_eq!(bench.air.get().expect("published").seen.len(), super::SEEN_MAX);
    // A configured radio that is not there is said to be missing, and no other is taken.
    let settings = bench.network.get().expect("published");
    bench.network.publish(Rc::new(NetworkSettings { hotspot_interface: Some("wlan7".into()), ..(*settings).clone() }));
    bench.runs(1);
    let air = bench.air.get().expect("published");
    assert_eq!(
        (air.radio, air.trouble.as_deref()),
        (None, Some("there is no WiFi device named wlan7, which is configured"))
    );
}

#[test]
fn a_fleet_server_that_answers_is_online_and_a_login_page_is_not() {
    let bench = Bench::new(&[network("hotel", 3)]);
    bench.sim.networks.place(AccessPoint { beyond: Beyond::Portal, ..AccessPoint::new("hotel", PSK) });
    bench.runs(60);
    assert!(matches!(bench.connectivity.get(), Some(Connectivity::Local { .. })), "{:?}", bench.connectivity.get());
    bench.reach.publish(Reach::Reached);
    bench.runs(1);
    assert!(matches!(bench.connectivity.get(), Some(Connectivity::Online { .. })));
    // It goes silent; our own question is asked, and the guest has paid meanwhile.
    bench.sim.networks.change("hotel", |point| point.beyond = Beyond::Internet);
    bench.reach.publish(Reach::Unreachable);
    bench.runs(60);
    assert!(matches!(bench.connectivity.get(), Some(Connectivity::Online { .. })), "{:?}", bench.connectivity.get());
    assert!(bench.sim.web.asked().iter().all(|asked| asked.url == "https://fleet.test/healthz"));
}
