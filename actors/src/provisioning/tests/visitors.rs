//! Visitors: what they do, what they are told, and for how long a device is theirs.

use super::*;

#[test]
fn a_radio_that_can_do_both_keeps_the_hotspot_while_it_tries() {
    let mut device = Device::new(BOTH, true);
    device.hears(0, offline(0));
    device.until(120);
    assert_eq!(device.visit(130, Visit::Came), "Inviting HB busy");
    assert!(device.machine.stays());
    assert_eq!(device.visit(140, Visit::Network(given("home"))), "Joining HB join1:home");
    assert_eq!(device.visit(141, Visit::Network(given("other"))), "a network is being tried: wait for the result");
    assert_eq!(device.hears(145, outcome(1, Outcome::Failed("wrong password for home".into()))), "Inviting HB");
    assert_eq!(device.result(), "wrong password for home");
    assert_eq!(device.visit(160, Visit::Network(given("home"))), "Joining HB join2:home");
    assert_eq!(device.hears(161, outcome(1, Outcome::Joined(link()))), "Joining HB", "the end of another attempt");
    assert_eq!(device.hears(165, outcome(2, Outcome::Joined(link()))), "Showing HB");
    assert_eq!(device.result(), "joined 192.168.1.20");
    device.hears(166, online(166));
    assert_eq!(device.visit(168, Visit::SawResult), "Showing HB");
    assert_eq!(device.until(178), "178: Resting -- idle; ", "closed ten seconds after it was seen");
}

#[test]
fn another_radio_tells_goes_and_comes_back() {
    let mut device = Device::new(ONE, true);
    device.hears(0, offline(0));
    device.until(120);
    assert!(!device.machine.stays());
    assert_eq!(device.visit(140, Visit::Network(given("home"))), "Parting HB busy");
    assert_eq!(device.result(), "trying");
    assert_eq!(device.until(143), "143: Joining -B join1:home; ", "the page has arrived, the hotspot has gone");
    assert_eq!(
        device.hears(150, outcome(1, Outcome::Failed("no network named home is in range".into()))),
        "Inviting HB"
    );
    assert_eq!(device.result(), "no network named home is in range");
    // Neither looking nor time takes the reason away.
    device.visit(160, Visit::Came);
    assert_eq!(device.result(), "no network named home is in range");
    assert_eq!(device.until(1200).split(';').next(), Some("460: Inviting HB idle"), "whoever came is gone");
    assert_eq!(device.result(), "no network named home is in range", "the next invitation still says so");
    device.visit(1210, Visit::SawResult);
    device.hears(1220, online(1220));
    device.until(3000);
    device.hears(5000, offline(5000));
    device.until(5120);
    assert_eq!(device.result(), "nothing", "seen, and another day");
}

#[test]
fn a_hotspot_that_does_not_go_holds_nobody_up() {
    let mut device = Device::new(ONE, true);
    device.hears(0, offline(0));
    device.until(120);
    device.visit(140, Visit::Network(given("home")));
    let effects = device.machine.step(at(143), Event::DeadlinePassed);
    assert_eq!(effects[..], [Effect::CloseHotspot], "the network manager is asked, and does not answer");
    assert_eq!(device.machine.state.name(), "Clearing");
    let effects = device.machine.step(at(163), Event::DeadlinePassed);
    assert_eq!(effects[..], [Effect::Join(1, given("home"))]);
    let effects = device.machine.step(at(343), Event::DeadlinePassed);
    assert_eq!(device.result(), "home did not answer in time");
    assert_eq!(effects[..], [], "closing has not ended yet");
    let effects = device.machine.step(at(344), Event::HotspotClosed(Err("timed out".into())));
    assert_eq!(effects[..], []);
    let due = device.machine.deadline().expect("it is tried again");
    assert!(due > at(344) && due <= at(350), "{due:?}");
    assert_eq!(device.machine.step(due, Event::DeadlinePassed)[..], [Effect::CloseHotspot], "what is left goes first");
    assert_eq!(device.machine.step(due, Event::HotspotClosed(Ok(())))[..], [Effect::OpenHotspot]);
}

#[test]
fn a_network_without_internet_is_no_success_where_that_counts() {
    let mut device = Device::new(BOTH, true);
    device.hears(0, Event::Rules(Rules { internet_counts: true, ..rules() }));
    device.hears(0, local(0));
    device.until(120);
    device.visit(130, Visit::Network(given("cafe")));
    assert_eq!(device.hears(140, outcome(1, Outcome::Joined(link()))), "Joining HB");
    device.hears(141, local(141));
    assert_eq!(device.until(185), "185: Inviting HB; ");
    assert_eq!(device.result(), "cafe was joined, and there is no internet behind it");
    device.visit(200, Visit::Network(given("home")));
    device.hears(210, outcome(2, Outcome::Joined(link())));
    assert_eq!(device.hears(215, online(215)), "Showing HB");
}

#[test]
fn nobody_is_interrupted_and_nobody_is_waited_for_who_has_gone() {
    let mut device = Device::new(BOTH, true);
    device.hears(0, offline(0));
    device.until(120);
    assert_eq!(device.visit(700, Visit::Touched), "Inviting HB busy");
    assert_eq!(device.until(999), "");
    assert_eq!(device.visit(999, Visit::Rescan), "Inviting HB rescan");
    assert_eq!(device.until(1299), "1299: Retrying -B idle try1; ", "five minutes after the last touch");
    // Online while somebody types: the doors stay until that person is gone.
    device.hears(1360, round(1));
    device.visit(1400, Visit::Touched);
    assert_eq!(device.hears(1410, online(1410)), "Inviting HB");
    assert_eq!(device.until(1700), "1700: Resting -- idle; ");
}

#[test]
fn looking_at_the_result_is_no_activity() {
    let mut device = Device::new(BOTH, true);
    device.hears(0, offline(0));
    device.until(120);
    device.visit(719, Visit::SawResult);
    assert_eq!(device.until(720), "720: Retrying -B try1; ");
}

#[test]
fn whoever_is_done_may_say_so() {
    let mut device = Device::new(BOTH, true);
    device.hears(0, offline(0));
    device.until(120);
    device.visit(130, Visit::Came);
    // Whoever says so is answered before the hotspot goes.
    assert_eq!(device.visit(140, Visit::Leave), "Parting HB");
    assert_eq!(device.until(143), "143: Retrying -B idle try1; ");
    assert_eq!(device.hears(144, online(144)), "Resting --");
    // On a device that is online, somebody at the device had opened the doors.
    device.hears(200, Event::Forced);
    device.visit(210, Visit::Leave);
    assert_eq!(device.until(213), "213: Resting -- idle; ");
}

#[test]
fn a_success_of_long_ago_is_no_news() {
    let mut device = Device::new(ONE, true);
    device.hears(0, offline(0));
    device.until(120);
    device.visit(130, Visit::Network(given("home")));
    device.until(133);
    device.hears(140, outcome(1, Outcome::Joined(link())));
    device.hears(141, online(141));
    device.until(300);
    assert_eq!(device.machine.state, State::Resting);
    // The phone was somewhere else when the hotspot went: nobody has seen it.
    device.hears(9000, offline(9000));
    device.until(9120);
    assert!(matches!(device.machine.state, State::Inviting { .. }));
    assert_eq!(device.machine.attempt(), None, "a phone that asks is not told that all is well");
}

#[test]
fn a_visitor_who_never_goes_keeps_no_device_from_its_own_networks() {
    // Ten minutes at a time: an hour. Then everything known has its turn, whoever types.
    let mut device = Device::new(ONE, true);
    device.hears(0, offline(0));
    device.until(120);
    let mut said = String::new();
    for second in (130..7200).step_by(60) {
        said += &device.until(second);
        device.visit(second, Visit::Touched);
        if second == 3730 {
            assert_eq!(device.visit(second, Visit::Network(given("evil"))), Refused::Busy.to_string(), "{said}");
            device.hears(second, round(1));
        }
    }
    assert_eq!(said, "3720: Retrying -B idle try1; 3780: Inviting HB busy; ");
    assert_eq!(device.until(7380), "7380: Retrying -B idle try2; ");
}

#[test]
fn nor_does_one_who_gives_network_after_network() {
    for able in [ONE, BOTH] {
        let mut device = Device::new(able, true);
        device.hears(0, offline(0));
        device.until(120);
        let (mut second, mut said) = (130, String::new());
        while !said.contains("try1") {
            assert!(second < 3720 + 200, "{said}");
            said += &device.until(second);
            device.visit(second, Visit::Network(given("nowhere")));
            second += 100;
        }
        assert_eq!(device.result(), "nowhere did not answer in time", "who gave it is told when the doors open again");
    }
}

#[test]
fn a_period_that_is_longer_than_an_hour_is_kept() {
    for (retry, user_idle, expected) in [(10, 5, 60), (1, 5, 30), (5, 1, 30), (30, 5, 60), (90, 5, 90)] {
        let rules = Rules { retry: retry * MINUTE, user_idle: user_idle * MINUTE, ..rules() };
        assert_eq!(rules.held_max(), expected * MINUTE, "{retry} {user_idle}");
    }
}

#[test]
fn a_device_that_is_online_closes_its_doors_on_who_stays_too_long() {
    let mut device = Device::new(BOTH, true);
    device.hears(0, online(0));
    device.hears(10, Event::Forced);
    for second in (20..3600).step_by(60) {
        assert!(!device.until(second).contains("Resting"), "{second}");
        device.visit(second, Visit::Touched);
    }
    assert_eq!(device.until(3610), "3610: Resting -- idle; ");
}

#[test]
fn the_air_is_listened_to_now_and_then_only() {
    let mut device = Device::new(BOTH, true);
    device.hears(0, offline(0));
    device.until(120);
    let said: Vec<_> = (130..160).map(|second| device.visit(second, Visit::Rescan)).collect();
    assert_eq!(said.iter().filter(|said| said.contains("rescan")).count(), 3, "{said:?}");
}
