//! Phones that shared their connection before: when they are asked again.

use super::*;

/// How long nobody was asked, each time, in seconds.
fn pauses(asked: &[u64]) -> Vec<u64> {
    asked.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

#[test]
fn phones_are_asked_soon_then_ever_more_seldom_and_never_when_online() {
    let mut device = Device::new(BOTH, true);
    device.hears(0, Event::Connectivity(Connectivity::Unknown));
    device.until(600);
    assert_eq!(device.asked, [], "nobody knows yet how it is connected");
    device.hears(600, offline(600));
    device.until(600 + 6 * 3600);
    let (first, pauses) = (device.asked[0] - 600, pauses(&device.asked));
    assert!((15..=30).contains(&first), "{first}");
    assert!(
        pauses.iter().take(5).zip([60, 120, 240, 480, 900]).all(|(pause, most)| (most / 2..=most + 1).contains(pause)),
        "{pauses:?}"
    );
    assert!(pauses[5..].iter().all(|pause| (450..=901).contains(pause)), "{pauses:?}");

    let before = device.asked.len();
    device.hears(30_000, online(30_000));
    assert_eq!(device.machine.deadline(), None);
    device.hears(40_000, offline(40_000));
    device.until(40_030);
    assert_eq!(device.asked.len(), before + 1, "soon again, the next time");
}

#[test]
fn who_is_asked() {
    let offline_for_an_hour = |rules: Rules, able: Able, event: Event| {
        let mut device = Device::new(able, true);
        device.hears(0, Event::Rules(rules));
        device.hears(0, event);
        device.until(3600);
        !device.asked.is_empty()
    };
    let without = |change: fn(&mut Rules)| {
        let mut rules = rules();
        change(&mut rules);
        rules
    };
    let table = [
        ("offline", rules(), BOTH, offline(0), true),
        ("no internet", rules(), BOTH, local(0), false),
        ("no internet, flag", without(|rules| rules.internet_counts = true), BOTH, local(0), true),
        ("no adapter", rules(), Able { bluetooth: false, ..BOTH }, offline(0), false),
        ("no Bluetooth wanted", without(|rules| rules.bluetooth = false), BOTH, offline(0), false),
        ("network left alone", without(|rules| rules.network = false), BOTH, offline(0), false),
        ("no hotspot wanted", without(|rules| rules.wifi = false), BOTH, offline(0), true),
    ];
    for (case, rules, able, event, expected) in table {
        assert_eq!(offline_for_an_hour(rules, able, event), expected, "{case}");
    }
}

#[test]
fn nobody_is_asked_beside_somebody_who_sets_it_up() {
    let mut device = Device::new(BOTH, true);
    device.hears(0, offline(0));
    device.until(130);
    // Somebody is there all the time, with less than five minutes between two touches.
    device.visit(130, Visit::Came);
    device.asked.clear();
    for second in (200..2000).step_by(200) {
        device.until(second);
        device.visit(second, Visit::Touched);
    }
    assert_eq!(device.asked, []);
    device.until(2400);
    assert_eq!(device.asked[0], 2100, "as soon as he counts as gone");
    device.visit(2400, Visit::Network(given("home")));
    device.asked.clear();
    device.until(2440);
    assert_eq!(device.asked, [], "while a network is tried");
}

#[test]
fn one_that_connects_by_itself_is_asked_at_once() {
    let mut device = Device::new(BOTH, true);
    device.hears(0, online(0));
    device.hears(10, Event::PhoneCame);
    assert_eq!(device.asked, [], "it is online");
    device.hears(100, offline(100));
    device.hears(101, Event::PhoneCame);
    assert_eq!(device.asked, [101]);
    device.near = true;
    device.hears(102, Event::PhoneCame);
    assert_eq!(device.asked, [101, 102], "the last one was not near");
    // What asking itself has brought about is no reason to ask again, or one that refuses would be asked for ever.
    device.hears(111, Event::PhoneCame);
    assert_eq!(device.asked, [101, 102]);
    device.hears(112, Event::PhoneCame);
    assert_eq!(device.asked, [101, 102, 112]);

    let mut machine = device.machine;
    assert_eq!(machine.step(at(130), Event::PhoneCame)[..], [Effect::AskPhones]);
    assert_eq!(machine.step(at(134), Event::PhoneCame)[..], [], "it is being looked for");
    assert_eq!(machine.step(at(135), Event::Asked(false))[..], [Effect::AskPhones], "and was missed by a moment");
    assert_eq!(machine.step(at(140), Event::PhoneCame)[..], []);
    assert_eq!(machine.step(at(150), Event::Asked(true))[..], [], "that was the asking");
    // Nor is one that is let in just now asked twice.
    machine.step(at(170), Event::Asking);
    assert_eq!(machine.step(at(175), Event::PhoneCame)[..], []);
    assert_eq!(machine.step(at(200), Event::DeadlinePassed)[..], []);
    machine.step(at(201), Event::Asked(true));
    assert_eq!(machine.step(at(205), Event::PhoneCame)[..], []);
}
