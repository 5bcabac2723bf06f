//! Windows by the local clock, past midnight and over both changes of the clock.

use api::device_config::{Days, MinuteOfDay};

use super::*;

/// A compiled zone without listed changes: only a rule.
fn zone(rule: &str) -> Vec<u8> {
    let header = |types: u32| {
        let mut header = b"TZif2".to_vec();
        header.extend([0; 15]);
        for count in [0, 0, 0, 0, types, types * 4] {
            header.extend(u32::to_be_bytes(count));
        }
        header
    };
    let mut file = header(0);
    file.extend(header(1));
    file.extend([0, 0, 0, 0, 0, 0]);
    file.extend(b"LMT\0");
    file.extend(format!("\n{rule}\n").bytes());
    file
}

fn maintenance(days: &str, from: &str, to: &str) -> Maintenance {
    let window = Window {
        days: days.split(',').fold(Days::NONE, |days, day| days.with(day).unwrap()),
        from: MinuteOfDay::parse(from).unwrap(),
        to: MinuteOfDay::parse(to).unwrap(),
        zone: Zone::parse("Test/Zone").unwrap(),
    };
    Maintenance { windows: [window].into(), use_server_word: true }
}

fn calendar(days: &str, from: &str, to: &str, rule: &str) -> Calendar {
    let (calendar, unknown) = Calendar::new(&maintenance(days, from, to), |_| Some(zone(rule)));
    assert_eq!(unknown, Vec::<String>::new());
    calendar
}

/// `2026-03-29T01:30` in UTC.
fn utc(text: &str) -> Wall {
    let (date, time) = text.split_once('T').unwrap();
    let mut date = date.split('-').map(|part| part.parse::<i64>().unwrap());
    let (year, month, day) = (date.next().unwrap(), date.next().unwrap(), date.next().unwrap());
    // Days from civil, after Howard Hinnant's chrono-compatible algorithms: another way than the one under test.
    let (y, m) = if month <= 2 { (year - 1, month + 9) } else { (year, month - 3) };
    let era = y.div_euclid(400);
    let year_of_era = y - era * 400;
    let day_of_year = (153 * m + 2) / 5 + day - 1;
    let days = era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468;
    let (hours, minutes) = time.split_once(':').unwrap();
    let minutes = hours.parse::<i64>().unwrap() * 60 + minutes.parse::<i64>().unwrap();
    Wall::from_millis((days * 1440 + minutes) * 60_000)
}

const BERLIN: &str = "CET-1CEST,M3.5.0,M10.5.0/3";

#[test]
fn windows_follow_the_local_clock() {
    let shut_until = |text: &str| Opening::Shut { until: Some(utc(text)) };
    let table = [
        // case                        days       from     to       rule              now (UTC)           answer
        ("winter, open", "mon", "02:00", "04:30", BERLIN, "2026-01-05T01:00", Opening::Open),
        ("winter, last minute", "mon", "02:00", "04:30", BERLIN, "2026-01-05T03:29", Opening::Open),
        ("winter, just shut", "mon", "02:00", "04:30", BERLIN, "2026-01-05T03:30", shut_until("2026-01-12T01:00")),
        ("summer, open", "mon", "02:00", "04:30", BERLIN, "2026-07-06T00:00", Opening::Open),
        ("wrong day", "tue", "02:00", "04:30", BERLIN, "2026-01-05T01:00", shut_until("2026-01-06T01:00")),
        ("several days", "mon,tue", "02:00", "03:00", BERLIN, "2026-01-05T02:00", shut_until("2026-01-06T01:00")),
        ("past midnight, evening", "fri", "22:00", "02:00", BERLIN, "2026-01-09T21:30", Opening::Open),
        ("past midnight, morning", "fri", "22:00", "02:00", BERLIN, "2026-01-10T00:59", Opening::Open),
        ("past midnight, over", "fri", "22:00", "02:00", BERLIN, "2026-01-10T01:00", shut_until("2026-01-16T21:00")),
        ("not the evening after", "fri", "22:00", "02:00", BERLIN, "2026-01-10T21:30", shut_until("2026-01-16T21:00")),
        ("to midnight", "mon", "23:00", "24:00", "UTC0", "2026-01-05T23:59", Opening::Open),
        ("whole day", "mon", "00:00", "24:00", "UTC0", "2026-01-05T12:00", Opening::Open),
        // On 29 March the clock jumps from 02:00 to 03:00: that window has no minute that day.
        ("skipped hour", "sun", "02:15", "02:45", BERLIN, "2026-03-29T01:20", shut_until("2026-04-05T00:15")),
        ("over the skipped hour", "sun", "01:30", "03:30", BERLIN, "2026-03-29T01:10", Opening::Open),
        // On 25 October 02:00 to 03:00 comes twice.
        ("repeated hour, first", "sun", "02:15", "02:45", BERLIN, "2026-10-25T00:20", Opening::Open),
        ("repeated hour, second", "sun", "02:15", "02:45", BERLIN, "2026-10-25T01:20", Opening::Open),
        ("between", "sun", "02:15", "02:45", BERLIN, "2026-10-25T00:50", shut_until("2026-10-25T01:15")),
        ("south", "thu", "12:00", "13:00", "AEST-10AEDT,M10.1.0,M4.1.0/3", "2026-01-01T01:30", Opening::Open),
        ("half hours", "thu", "12:00", "13:00", "<+0545>-5:45", "2026-01-01T06:15", Opening::Open),
        ("julian day", "thu", "12:00", "13:00", "AAA3BBB,J60/2,J300", "2028-03-02T14:30", Opening::Open),
    ];
    for (case, days, from, to, rule, now, answer) in table {
        assert_eq!(calendar(days, from, to, rule).at(utc(now)), answer, "{case}");
    }
}

#[test]
fn what_was_seen_once_is_what_would_be_seen_again() {
    let sim = board_sim::SimBoard::new(1);
    let files = sim.switch_on().files;
    files.write(&zone_file(&Zone::parse("Test/Zone").unwrap()), &zone(BERLIN), board::files::Access::Readable).unwrap();
    let kept = SystemWindows::new(std::rc::Rc::clone(&files));
    let settings = [maintenance("sat", "02:00", "04:30"), maintenance("mon,thu", "23:00", "01:00")];
    let start = utc("2026-03-23T00:00").as_millis();
    // Forward in uneven steps, back again as clocks are set, and another setting now and then.
    for step in 0..400_i64 {
        let millis = start + step * 97 * 60_000 - if step % 50 == 49 { 3 * 86_400_000 } else { 0 };
        let (at, setting) = (Wall::from_millis(millis), &settings[usize::from(step % 90 > 45)]);
        let fresh = SystemWindows::new(std::rc::Rc::clone(&files));
        assert_eq!(kept.look(setting, at), fresh.look(setting, at), "step {step}");
        assert!(kept.trouble().is_empty());
    }
}

#[test]
fn an_unknown_zone_keeps_its_window_shut_and_is_named() {
    let window = |zone: &str| Window {
        days: Days::ALL,
        from: MinuteOfDay::parse("00:00").unwrap(),
        to: MinuteOfDay::parse("24:00").unwrap(),
        zone: Zone::parse(zone).unwrap(),
    };
    let only = |zone: &str| Maintenance { windows: [window(zone)].into(), use_server_word: true };
    let (calendar, unknown) = Calendar::new(&only("Mars/Olympus"), |_| None);
    assert_eq!(unknown, ["Mars/Olympus"]);
    assert_eq!(calendar.at(utc("2026-01-01T00:00")), Opening::Shut { until: None });
    let (calendar, unknown) = Calendar::new(&only("local"), |_| None);
    assert!(unknown.is_empty());
    assert_eq!(calendar.at(utc("2026-01-01T00:00")), Opening::Open);
    let (_, unknown) = Calendar::new(&only("Europe/Berlin"), |_| Some(b"no zone".to_vec()));
    assert_eq!(unknown, ["Europe/Berlin"]);

    // The report names it until somebody installs it.
    let files = board_sim::SimBoard::new(1).switch_on().files;
    let (windows, mars) = (SystemWindows::new(std::rc::Rc::clone(&files)), only("Mars/Olympus"));
    assert!(!windows.look(&mars, utc("2026-01-01T00:00")).open);
    assert!(windows.trouble()[0].contains("Mars/Olympus"));
    let path = zone_file(&Zone::parse("Mars/Olympus").unwrap());
    files.write(&path, &zone("MTC0"), board::files::Access::Readable).unwrap();
    assert!(windows.look(&mars, utc("2026-01-02T00:00")).open);
    assert!(windows.trouble().is_empty());
}

#[test]
fn listed_changes_come_before_the_rule() {
    let mut file = zone("UTC0");
    let start = file.len() - "\nUTC0\n".len() - 4 - 6;
    // One change at second 1000 to the second of two types, +1 h; the counts of the second header change with it.
    file.splice(start.., []);
    let counts = start - 24;
    file.splice(counts.., [0u32, 0, 0, 1, 2, 4].iter().flat_map(|count| count.to_be_bytes()));
    file.extend(1000i64.to_be_bytes());
    file.push(1);
    for offset in [-1800i32, 3600] {
        file.extend(offset.to_be_bytes());
        file.extend([0, 0]);
    }
    file.extend(b"LMT\0\n\n");
    let zone = TimeZone::parse(&file).unwrap();
    assert_eq!([zone.offset_at(999), zone.offset_at(1000), zone.offset_at(i64::MAX / 2)], [-1800, 3600, 3600]);
    for shorter in 0..file.len() {
        let _ = TimeZone::parse(&file[..shorter]);
    }
}

#[test]
fn what_is_no_rule_is_refused() {
    for text in
        ["", "X", "CET", "CET-1CEST", "CET-1CEST,M3.5.0", "CET-1CEST,M13.5.0,M10.5.0", "CET-1CEST,M3.5.0,M10.5.0/3x"]
    {
        assert!(super::posix_rule::PosixRule::parse(text).is_none(), "{text}");
    }
}
