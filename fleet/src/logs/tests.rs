//! Rows for what a reader may ask, and the log database in a temporary folder.

use api::pb::platform::{
    app::v1::{GetRobotPartLogsRequest, LogOrder, TailRobotPartLogsResponse},
    common::v1::LogEntry,
};
use prost::Message as _;
use tempfile::TempDir;

#[path = "tests_walks.rs"]
mod walks;

use super::{
    block::{self, BLOCK_MAX_BYTES, BLOCK_SPAN_MAX, TEXT_MAX_BYTES},
    level::Levels,
    query::{Page, Query, Wanted},
    retention::{Limits, Pruned},
    *,
};
use crate::{
    clock::timestamp,
    store::{Address, Db, Durability, Migration, Place},
};

/// Whoever waits so long waits for ever.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);
const NOW: Millis = 1_800_000_000_000;
const TABLES: Migration =
    Migration { number: 1, name: "blocks", sql: include_str!("../../migrations/logs/0001_blocks.sql") };

/// `None` where there is no PostgreSQL: this file is compiled once for each engine.
fn logs_with(limits: Limits) -> Option<(TempDir, Logs)> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let place = match module_path!().ends_with("_on_postgres") {
        true => Place::Schema(Address::parse(&test_postgres::database_or_skip("logs")?).expect("a URL"), "logs"),
        false => Place::File(folder.path().join("logs.db")),
    };
    let db = Db::open(&place, &[TABLES], Durability::ProcessDeath).expect("opens");
    Some((folder, Logs::new(db, Hub::default(), limits)))
}

fn entry(at: Millis, level: &str, message: &str) -> LogEntry {
    LogEntry { time: Some(timestamp(at)), level: level.into(), message: message.into(), ..LogEntry::default() }
}

fn spool(number: i64) -> Source {
    Source::Spool { id: "spool".into(), number }
}

fn ask(change: impl FnOnce(&mut GetRobotPartLogsRequest)) -> GetRobotPartLogsRequest {
    let mut request = GetRobotPartLogsRequest { id: "p".into(), ..Default::default() };
    change(&mut request);
    request
}

fn messages(page: &Page) -> Vec<&str> {
    page.entries.iter().map(|entry| entry.message.as_str()).collect()
}

async fn page(logs: &Logs, request: &GetRobotPartLogsRequest) -> Page {
    logs.page("p", Query::read(request, NOW).expect("a good question")).await.expect("a page")
}

/// Every entry, page by page, as a client gathers them.
async fn all(logs: &Logs, mut request: GetRobotPartLogsRequest) -> Vec<LogEntry> {
    let mut gathered = Vec::new();
    loop {
        let page = page(logs, &request).await;
        assert!(page.next.is_empty() || !page.entries.is_empty(), "a token beside an empty page");
        gathered.extend(page.entries);
        if page.next.is_empty() {
            return gathered;
        }
        request.page_token = Some(page.next);
    }
}

#[tokio::test]
async fn newest_first_unless_asked_otherwise() {
    let Some((_folder, logs)) = logs_with(Limits::default()) else { return };
    let batch = vec![entry(NOW - 3, "info", "one"), entry(NOW - 2, "info", "two"), entry(NOW - 2, "info", "three")];
    logs.take("p", spool(1), batch, NOW).await.expect("taken");
    logs.take("p", spool(2), vec![entry(NOW - 1, "info", "four")], NOW).await.expect("taken");
    logs.take("other", spool(1), vec![entry(NOW, "info", "elsewhere")], NOW).await.expect("taken");

    assert_eq!(messages(&page(&logs, &ask(|_| {})).await), ["four", "three", "two", "one"]);
    let rising = ask(|request| request.order = Some(LogOrder::Ascending.into()));
    assert_eq!(messages(&page(&logs, &rising).await), ["one", "two", "three", "four"]);
    let empty = logs.page("nobody", Query::read(&ask(|_| {}), NOW).expect("good")).await.expect("a page");
    assert_eq!(empty, Page { entries: vec![], next: String::new() });
}

#[tokio::test]
async fn what_comes_late_is_put_where_its_time_says() {
    let Some((_folder, logs)) = logs_with(Limits::default()) else { return };
    let mut expected = Vec::new();
    for batch in 0..20i64 {
        // Batches that overlap each other, jump back by hours, and are not sorted themselves.
        let entries: Vec<_> = (0..30i64)
            .map(|line| {
                let at = NOW - (batch * 7_919 % 20) * 600_000 - (line * 31 % 30) * 90_000;
                entry(at, "info", &format!("{at} {batch:02} {line:02}"))
            })
            .collect();
        expected.extend(entries.clone());
        logs.take("p", spool(batch + 1), entries, NOW).await.expect("taken");
    }
    expected.sort_by_key(block::time_of);
    let times = |entries: &[LogEntry]| entries.iter().map(block::time_of).collect::<Vec<_>>();
    for limit in [1, 7, 100, 1000] {
        let rising = ask(|request| (request.order, request.limit) = (Some(LogOrder::Ascending.into()), Some(limit)));
        let up = all(&logs, rising).await;
        let down = all(&logs, ask(|request| request.limit = Some(limit))).await;
        assert_eq!(times(&up), times(&expected), "pages of {limit}");
        assert_eq!(up.iter().rev().cloned().collect::<Vec<_>>(), down, "pages of {limit}: both ways the same");
        let mut seen: Vec<_> = up.iter().map(|entry| entry.message.clone()).collect();
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), 600, "pages of {limit}: nothing lost or repeated");
    }
}

#[tokio::test]
async fn a_page_token_stays_true_while_entries_arrive() {
    let Some((_folder, logs)) = logs_with(Limits::default()) else { return };
    let lines = |from: i64| (from..from + 10).map(|n| entry(NOW - 1000 + n, "info", &n.to_string())).collect();
    logs.take("p", spool(1), lines(0), NOW).await.expect("taken");
    let first = page(&logs, &ask(|request| request.limit = Some(4))).await;
    assert_eq!(messages(&first), ["9", "8", "7", "6"]);
    logs.take("p", spool(2), lines(10), NOW).await.expect("taken");
    let second =
        page(&logs, &ask(|request| (request.limit, request.page_token) = (Some(6), Some(first.next.clone())))).await;
    assert_eq!(messages(&second), ["5", "4", "3", "2", "1", "0"]);
    assert_eq!(second.next, "", "the last page has no token, even when it is exactly full");
}

#[test]
fn a_token_belongs_to_its_part_and_filter() {
    let first = Query::read(&ask(|_| {}), NOW).expect("good");
    let token = first.token(order::Place { at: 1, block: 2, index: 3 });
    let with = |change: fn(&mut GetRobotPartLogsRequest)| {
        let request = ask(|request| {
            request.page_token = Some(token.clone());
            change(request);
        });
        Query::read(&request, NOW).is_ok()
    };
    assert!(with(|_| {}));
    assert!(with(|request| request.limit = Some(7)), "the size of a page may change");
    assert!(with(|request| request.filter = Some(String::new())), "an empty filter is none");
    assert!(!with(|request| request.id = "q".into()));
    assert!(!with(|request| request.filter = Some("x".into())));
    assert!(!with(|request| request.levels = vec!["error".into()]));
    assert!(!with(|request| request.order = Some(LogOrder::Ascending.into())));
    assert!(!with(|request| request.range = Some("1h".into())));
    for garbage in ["x", "1.2.3", "1.2.3.4", "1.2.x.4", &format!("{token}0"), "999999999999999999999.1.1.1"] {
        assert!(Query::read(&ask(|request| request.page_token = Some(garbage.into())), NOW).is_err(), "{garbage}");
    }
}

#[test]
fn questions() {
    let at = |millis| Some(timestamp(millis));
    type Row = (&'static str, GetRobotPartLogsRequest, Option<(Millis, Millis)>);
    let table: [Row; 16] = [
        // case              request                                                                    from .. to
        ("all of time", ask(|_| {}), Some((Millis::MIN, Millis::MAX))),
        ("from", ask(|r| r.start = at(5)), Some((5, Millis::MAX))),
        ("to", ask(|r| r.end = at(5)), Some((Millis::MIN, 5))),
        ("both", ask(|r| (r.start, r.end) = (at(5), at(5))), Some((5, 5))),
        ("the wrong way round", ask(|r| (r.start, r.end) = (at(6), at(5))), None),
        ("a while from", ask(|r| (r.start, r.range) = (at(5), Some("10m".into()))), Some((5, 600_005))),
        ("a while up to", ask(|r| (r.end, r.range) = (at(5_000), Some("3s".into()))), Some((2_000, 5_000))),
        ("a while until now", ask(|r| r.range = Some("10d".into())), Some((NOW - 864_000_000, Millis::MAX))),
        ("composed", ask(|r| r.range = Some("1h30m".into())), Some((NOW - 5_400_000, Millis::MAX))),
        ("three of them", ask(|r| (r.start, r.end, r.range) = (at(1), at(2), Some("1s".into()))), None),
        ("no unit", ask(|r| r.range = Some("10".into())), None),
        ("a word", ask(|r| r.range = Some("soon".into())), None),
        ("nothing", ask(|r| r.range = Some("0s".into())), None),
        ("too long to count", ask(|r| r.range = Some("99999999999999999999d".into())), None),
        ("negative", ask(|r| r.limit = Some(-1)), None),
        ("unknown order", ask(|r| r.order = Some(7)), None),
    ];
    for (case, request, span) in table {
        let read = Query::read(&request, NOW).ok().map(|query| (query.wanted.from, query.wanted.to));
        assert_eq!(read, span, "{case}");
    }
}

#[test]
fn filters() {
    let table = [
        // case                     levels              errors only  filter       entry                            wanted
        ("no question", vec![], false, "", ("info", "x"), true),
        ("a level", vec!["error"], false, "", ("error", "x"), true),
        ("in any case", vec!["ERROR"], false, "", ("Error", "x"), true),
        ("another level", vec!["error"], false, "", ("info", "x"), false),
        ("warn is warning", vec!["warn"], false, "", ("WARNING", "x"), true),
        ("a level of its own", vec!["notice"], false, "", ("Notice", "x"), true),
        ("another of its own", vec!["notice"], false, "", ("hint", "x"), false),
        ("no level is none", vec![""], false, "", ("info", "x"), true),
        ("errors only: error", vec![], true, "", ("ERROR", "x"), true),
        ("errors only: fatal", vec![], true, "", ("fatal", "x"), true),
        ("errors only: panic", vec![], true, "", ("Panic", "x"), true),
        ("errors only: warn", vec![], true, "", ("warn", "x"), false),
        ("levels win", vec!["info"], true, "", ("info", "x"), true),
        ("part of the message", vec![], false, "eep", ("info", "Deep sleep"), true),
        ("whatever case", vec![], false, "dEEP", ("info", "Deep sleep"), true),
        ("beyond ASCII", vec![], false, "größe", ("info", "GRÖSSE or GRÖßE"), true),
        ("not there", vec![], false, "deeper", ("info", "Deep sleep"), false),
        ("a sign of SQL", vec![], false, "%", ("info", "Deep sleep"), false),
        ("longer than the message", vec![], false, "long", ("info", "lo"), false),
    ];
    for (case, levels, errors_only, filter, (level, message), wanted) in table {
        let levels: Vec<String> = levels.into_iter().map(str::to_owned).collect();
        let question = Wanted::new(&levels, errors_only, Some(filter)).expect("good");
        assert_eq!(question.admits(&entry(0, level, message)), wanted, "{case}");
    }
    assert!(Wanted::new(&[], false, Some(&"x".repeat(1025))).is_err());
}

#[tokio::test]
async fn a_rare_line_is_found_among_very_many() {
    let Some((_folder, logs)) = logs_with(Limits::default()) else { return };
    for number in 0..300i64 {
        let mut lines: Vec<_> =
            (0..20).map(|line| entry(NOW - 1_000_000 + number * 100 + line, "info", "common")).collect();
        if number % 100 == 50 {
            lines.push(entry(NOW - 1_000_000 + number * 100 + 50, "error", "RARE"));
        }
        logs.take("p", spool(number + 1), lines, NOW).await.expect("taken");
    }
    let rare = all(&logs, ask(|request| (request.filter, request.limit) = (Some("rare".into()), Some(2)))).await;
    assert_eq!(rare.len(), 3);
    let errors = all(&logs, ask(|request| (request.levels, request.limit) = (vec!["error".into()], Some(1)))).await;
    assert_eq!(errors, rare);
    let span = |r: &mut GetRobotPartLogsRequest| {
        (r.start, r.end) = (Some(timestamp(NOW - 1_000_000 + 100)), Some(timestamp(NOW - 1_000_000 + 5_050)));
    };
    assert_eq!(all(&logs, ask(span)).await.len(), 49 * 20 + 20 + 1, "both ends are included");
}

#[tokio::test]
async fn a_source_is_a_logger_and_those_below_it() {
    let Some((_folder, logs)) = logs_with(Limits::default()) else { return };
    let loggers = ["platform-agent", "platform-agent.update", "platform-agents", "platform-server.motor", ""];
    let from = |(n, logger): (i64, &str)| LogEntry { logger_name: logger.into(), ..entry(NOW + n, "info", logger) };
    logs.take("p", spool(1), (0..).zip(loggers).map(from).collect(), NOW).await.expect("taken");
    let table: [(&str, &[&str]); 6] = [
        ("platform-agent", &["platform-agent.update", "platform-agent"]),
        ("platform-agent.update", &["platform-agent.update"]),
        ("platform-server", &["platform-server.motor"]),
        ("platform", &[]),
        ("motor", &[]),
        ("", &["", "platform-server.motor", "platform-agents", "platform-agent.update", "platform-agent"]),
    ];
    for (source, wanted) in table {
        let request = ask(|request| request.source = Some(source.into()));
        assert_eq!(messages(&page(&logs, &request).await), wanted, "{source:?}");
        // Its pages belong to it.
        let paged = ask(|request| (request.source, request.limit) = (Some(source.into()), Some(1)));
        assert_eq!(all(&logs, paged.clone()).await.len(), wanted.len(), "{source:?}");
        let token = page(&logs, &paged).await.next;
        let other = ask(|request| (request.source, request.page_token) = (Some("x".into()), Some(token.clone())));
        assert_eq!(Query::read(&other, NOW).is_err(), !token.is_empty(), "{source:?}");
    }
    assert!(Query::read(&ask(|request| request.source = Some("x".repeat(257))), NOW).is_err());
}

#[tokio::test]
async fn a_repeat_is_acknowledged_and_dropped() {
    let Some((_folder, logs)) = logs_with(Limits::default()) else { return };
    let line = |text: &str| vec![entry(NOW, "info", text)];
    let take = async |source, text: &str| logs.take("p", source, line(text), NOW).await.expect("taken");

    assert_eq!(take(spool(1), "a").await, Taken { acknowledged: 1, repeat: false });
    assert_eq!(take(spool(2), "b").await, Taken { acknowledged: 2, repeat: false });
    assert_eq!(take(spool(2), "b").await, Taken { acknowledged: 2, repeat: true });
    assert_eq!(take(spool(1), "a").await, Taken { acknowledged: 2, repeat: true });
    let new_spool = Source::Spool { id: "after the disk was wiped".into(), number: 1 };
    assert_eq!(take(new_spool, "c").await, Taken { acknowledged: 1, repeat: false });
    assert_eq!(take(Source::Unnumbered, "d").await, Taken { acknowledged: 0, repeat: false });
    assert_eq!(take(Source::Unnumbered, "d").await, Taken { acknowledged: 0, repeat: true });
    assert_eq!(take(Source::Unnumbered, "e").await, Taken { acknowledged: 0, repeat: false });
    assert_eq!(take(Source::Unnumbered, "d").await, Taken { acknowledged: 0, repeat: false });
    let rising = ask(|request| request.order = Some(LogOrder::Ascending.into()));
    assert_eq!(messages(&page(&logs, &rising).await), ["a", "b", "c", "d", "e", "d"]);
}

#[tokio::test]
async fn one_statement_per_batch_and_source() {
    let Some((_folder, logs)) = logs_with(Limits::default()) else { return };
    let lines: Vec<_> = (0..100).map(|n| entry(NOW + n, "info", "a line of an ordinary length")).collect();
    let before = logs.db.counted();
    logs.take("p", spool(1), lines, NOW).await.expect("taken");
    let after = logs.db.counted();
    assert_eq!((after.writes - before.writes, after.commits - before.commits), (2, 1));
}

#[test]
fn entries_are_made_fit() {
    let long = "ä".repeat(TEXT_MAX_BYTES);
    let mut bad = entry(0, "info", &long);
    bad.time = Some(prost_types::Timestamp { seconds: i64::MAX, nanos: -1 });
    bad.fields = vec![prost_types::Struct::default(); 100];
    let timeless = LogEntry { message: "x".into(), ..LogEntry::default() };
    let late = entry(NOW + 5, "info", "late");
    let fit = block::accept(vec![late, bad, timeless], NOW);
    assert!(
        fit[0].message.len() <= TEXT_MAX_BYTES
            && fit[0].message.ends_with(&format!("(cut by the server: {} bytes)", long.len()))
    );
    assert_eq!((fit[0].fields.len(), block::time_of(&fit[0])), (64, NOW));
    assert_eq!((fit[1].message.as_str(), block::time_of(&fit[1])), ("x", NOW));
    assert_eq!(fit[2].message, "late");
    let caller = block::shown(fit[1].clone()).caller.expect("a caller");
    assert!(caller.fields.contains_key("File") && caller.fields.contains_key("Line"));
}

#[test]
fn blocks_are_bounded_in_bytes_and_in_time() {
    let long = "x".repeat(TEXT_MAX_BYTES);
    let entries: Vec<_> =
        (0..50).map(|n| entry(NOW + n, "info", &long)).chain([entry(NOW + BLOCK_SPAN_MAX * 2, "panic", "y")]).collect();
    let blocks = block::pack(entries.clone());
    assert!(
        blocks.iter().all(|block| block.body.len() <= BLOCK_MAX_BYTES && block.last - block.first <= BLOCK_SPAN_MAX)
    );
    assert_eq!(blocks.last().map(|block| block.levels), Some(Levels::of("panic")));
    let read = |body| block::find(0, body, None).into_iter().map(|(_, entry)| entry).collect::<Vec<_>>();
    let unpacked: Vec<_> = blocks.iter().flat_map(|block| read(block.body.clone())).collect();
    assert_eq!(unpacked, entries);
    assert_eq!(read(b"\xff\xff".to_vec()), [], "a damaged block does not hide the others");
}

#[test]
fn who_looks_for_words_is_given_the_entries_that_have_them_with_their_places() {
    let said = ["a word", "", "another", "ünïcode WORD", "last word"];
    let mut entries: Vec<_> = (0..).zip(said).map(|(n, text)| entry(NOW + n, "word", text)).collect();
    entries[2].stack = "a word that is no message".into();
    entries[2].host = "word".into();
    let [block] = &block::pack(entries.clone())[..] else { panic!("one block") };
    let look = |filter: &str| {
        let wanted = Wanted::new(&[], false, Some(filter)).expect("good");
        let passes = |message: &str| wanted.passes(message);
        block::find(0, block.body.clone(), Some(&passes))
    };
    let all: Vec<_> = (0..).zip(entries).collect();
    let only = |places: &[usize]| places.iter().map(|place| all[*place].clone()).collect::<Vec<_>>();
    assert_eq!(look("Word"), only(&[0, 3, 4]));
    assert_eq!(look("ÜNÏ"), only(&[3]));
    assert_eq!(look(""), all);
    assert_eq!(look("words"), []);
}

#[tokio::test]
async fn pages_are_bounded_in_bytes() {
    let Some((_folder, logs)) = logs_with(Limits::default()) else { return };
    let long = "x".repeat(TEXT_MAX_BYTES);
    for number in 1..=2 {
        let lines = (0..100).map(|n| entry(NOW + number * 1000 + n, "info", &long)).collect();
        logs.take("p", spool(number), lines, NOW).await.expect("taken");
    }
    let first = page(&logs, &ask(|request| request.limit = Some(1000))).await;
    assert!(first.entries.len() < 70 && !first.next.is_empty(), "{} entries", first.entries.len());
    assert_eq!(all(&logs, ask(|request| request.limit = Some(1000))).await.len(), 200);
}

#[tokio::test]
async fn what_is_old_or_too_much_goes() {
    let limits = Limits { age: std::time::Duration::from_secs(100), bytes_per_part: 40_000, bytes: 60_000 };
    let Some((_folder, logs)) = logs_with(limits) else { return };
    let line = "x".repeat(1_000);
    let lines = |at| (0..10).map(|n| entry(at + n, "info", &line)).collect::<Vec<_>>();
    // A device with a clock in the future is as old as its arrival.
    logs.take("old", spool(1), lines(NOW * 2), NOW - 101_000).await.expect("taken");
    for number in 1..=8 {
        logs.take("p", spool(number), lines(NOW + number * 100), NOW + number).await.expect("taken");
    }
    for number in 1..=3 {
        logs.take("q", spool(number), lines(NOW + number * 100), NOW + 100 + number).await.expect("taken");
    }
    assert_eq!(logs.prune(NOW).await.expect("pruned"), Pruned { aged: 1, over_size: 6 });
    assert_eq!(logs.prune(NOW).await.expect("pruned"), Pruned::default());
    let newest = page(&logs, &ask(|_| {})).await;
    assert_eq!(newest.entries.len(), 20, "the newest blocks of the part stay");
    assert_eq!(block::time_of(&newest.entries[0]), NOW + 809);
    logs.forget("p").await.expect("forgotten");
    assert_eq!(page(&logs, &ask(|_| {})).await.entries, []);
    assert!(!logs.take("p", spool(1), lines(NOW), NOW).await.expect("taken").repeat);
}

/// An entry as it lies in a block.
fn stored(message: &str) -> bytes::Bytes {
    entry(NOW, "info", message).encode_to_vec().into()
}

/// What a reader is sent.
fn texts(batch: hub::Batch) -> Vec<String> {
    let sent = batch.into_message(NOW).encode_to_vec();
    let sent = TailRobotPartLogsResponse::decode(&*sent).expect("a message");
    sent.logs.into_iter().map(|entry| entry.message).collect()
}

fn everything() -> Wanted {
    Wanted::new(&[], false, None).expect("good")
}

#[tokio::test]
async fn a_follower_sees_what_arrives_from_then_on() {
    let Some((_folder, logs)) = logs_with(Limits::default()) else { return };
    logs.take("p", spool(1), vec![entry(NOW, "info", "before")], NOW).await.expect("taken");
    let mut follower = logs.follow("p", everything()).await.expect("follows");
    let mut errors = logs.follow("p", Wanted::new(&[], true, None).expect("good")).await.expect("follows");
    logs.take("p", spool(2), vec![entry(NOW, "info", "one"), entry(NOW, "error", "two")], NOW).await.expect("taken");
    logs.take("p", spool(2), vec![entry(NOW, "info", "repeat")], NOW).await.expect("taken");
    logs.feed().await.expect("fed");
    assert_eq!(texts(follower.next().await), ["one", "two"]);
    assert_eq!(texts(errors.next().await), ["two"]);

    // Waiting, and woken only by what it wants.
    let (batch, ()) = tokio::join!(errors.next(), async {
        logs.take("p", spool(3), vec![entry(NOW, "info", "three")], NOW).await.expect("taken");
        logs.feed().await.expect("fed");
        logs.take("p", spool(4), vec![entry(NOW, "fatal", "four")], NOW).await.expect("taken");
        logs.feed().await.expect("fed");
    });
    assert_eq!(texts(batch), ["four"]);
    drop(follower);
    assert_eq!(logs.hub.watched_parts(), 1);
    drop(errors);
    assert_eq!(logs.hub.watched_parts(), 0, "nobody follows: nothing is kept");
}

#[tokio::test]
async fn whoever_else_wants_to_work_gets_between_the_blocks_that_are_shown() {
    let Some((_folder, logs)) = logs_with(Limits::default()) else { return };
    let mut follower = logs.follow("p", everything()).await.expect("follows");
    let blocks = 20;
    for number in 1..=blocks {
        let line = vec![entry(NOW, "info", &number.to_string())];
        logs.take("p", spool(number), line, NOW).await.expect("taken");
    }
    let (mut shown, mut turns) = (std::pin::pin!(logs.feed()), 0);
    let done = std::future::poll_fn(|poller| {
        turns += 1;
        shown.as_mut().poll(poller)
    });
    done.await.expect("fed");
    assert!(turns > blocks, "{turns} turns for {blocks} blocks");
    assert_eq!(texts(follower.next().await).len(), 20);
}

#[tokio::test]
async fn a_slow_reader_is_told_what_it_missed() {
    let hub = Hub::default();
    let mut follower = hub.follow("p", 0, everything()).expect("follows");
    for hundred in 0..12 {
        hub.publish("p", 1, (0..100).map(|n| stored(&(hundred * 100 + n).to_string())).collect());
    }
    let first = follower.next().await;
    assert_eq!((first.missed, first.lines.len()), (200, 100));
    let told = texts(first);
    assert_eq!(
        (told.len(), told[0].as_str(), told[1].as_str()),
        (101, "200 lines missed: this reader is slower than the part writes", "200")
    );
    for hundred in 3..12 {
        let next = follower.next().await;
        assert_eq!((next.missed, texts(next)[0].clone()), (0, (hundred * 100).to_string()));
    }
    // What cannot be read is left out, and neither ends the stream nor holds up the rest.
    hub.publish("p", 1, vec![stored("before"), bytes::Bytes::from_static(&[0xff]), stored("after")]);
    assert_eq!(texts(follower.next().await), ["before", "after"]);
    // Long lines push each other out by their bytes.
    hub.publish("p", 2, (0..100).map(|_| stored(&"x".repeat(TEXT_MAX_BYTES))).collect());
    let long = follower.next().await;
    assert!(long.missed > 60 && long.missed + long.lines.len() as u64 == 100, "{} missed", long.missed);
}

#[tokio::test]
async fn all_who_wait_are_shown_a_line_with_turns_for_others_in_between() {
    let (hub, readers) = (Hub::default(), 30);
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let mut reading = tokio::task::JoinSet::new();
    for _ in 0..readers {
        let mut follower = hub.follow("p", 0, everything()).expect("follows");
        let tell = tell.clone();
        reading.spawn(async move {
            let mut read = Vec::new();
            while read.last().is_none_or(|line| line != "last") {
                read.extend(texts(follower.next().await));
                tell.send(()).expect("is counted");
            }
            read
        });
    }
    let mut came = || std::iter::from_fn(|| told.try_recv().ok()).count();
    // All of them run until they wait.
    tokio::task::yield_now().await;
    hub.publish("p", 1, vec![stored("line")]);
    let (mut shown, mut most) = (0, 0);
    while shown < readers {
        tokio::task::yield_now().await;
        let now = came();
        (shown, most) = (shown + now, most.max(now));
    }
    assert_eq!((shown, most), (readers, 1));
    // What comes while others still wait for their turn: nobody sleeps through it, and nobody is shown anything twice.
    hub.publish("p", 2, vec![stored("second")]);
    tokio::task::yield_now().await;
    hub.publish("p", 3, vec![stored("last")]);
    let read = tokio::time::timeout(PATIENCE, reading.join_all()).await.expect("nobody sleeps on");
    assert_eq!(read, vec![["line", "second", "last"]; readers]);
    assert_eq!(came(), readers + 1, "the first one was shown them one by one, the others both at once");
}

#[tokio::test]
async fn followers_of_one_part_after_the_other_have_their_turn() {
    let (hub, parts) = (Hub::default(), 10);
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    for part in (0..parts).flat_map(|part| [part; 3]) {
        let mut follower = hub.follow(&part.to_string(), 0, everything()).expect("follows");
        let tell = tell.clone();
        tokio::spawn(async move {
            follower.next().await;
            tell.send(part).expect("is counted");
        });
    }
    // All of them run until they wait.
    tokio::task::yield_now().await;
    for part in 0..parts {
        hub.publish(&part.to_string(), 1, vec![stored("line")]);
    }
    let mut order = Vec::new();
    let all = async {
        while order.len() < 3 * parts {
            tokio::task::yield_now().await;
            let woken: Vec<_> = std::iter::from_fn(|| told.try_recv().ok()).collect();
            assert!(woken.len() <= 1, "several had the same turn: {woken:?}");
            order.extend(woken);
        }
    };
    tokio::time::timeout(PATIENCE, all).await.expect("all have their turn");
    assert_eq!(order, (0..3).flat_map(|_| 0..parts).collect::<Vec<_>>());
}

#[tokio::test]
async fn nobody_misses_a_line_because_its_turn_comes_late() {
    // One part that many follow, and one of very many that all have a turn; small blocks, and large ones.
    for (parts, readers, size) in [(1, 64, 100), (500, 2, 100), (1, 32, 400), (1, 32, 1000)] {
        let (hub, blocks) = (Hub::default(), 50);
        let mut reading = tokio::task::JoinSet::new();
        for part in (0..parts).flat_map(|part| vec![part; readers]) {
            let mut follower = hub.follow(&part.to_string(), 0, everything()).expect("follows");
            let wanted = if part == 0 { size * blocks } else { 1 };
            reading.spawn(async move {
                let (mut missed, mut lines) = (0, 0);
                while missed + lines < wanted {
                    let batch = follower.next().await;
                    (missed, lines) = (missed + batch.missed, lines + batch.lines.len() as u64);
                }
                missed
            });
        }
        // All of them run until they wait.
        for _ in 0..parts * readers {
            tokio::task::yield_now().await;
        }
        (1..parts).for_each(|part| hub.publish(&part.to_string(), 1, vec![stored("line")]));
        for block in 0..blocks {
            hub.publish("0", 1 + block as i64, (0..size).map(|_| stored("line")).collect());
            tokio::task::yield_now().await;
        }
        let missed = tokio::time::timeout(PATIENCE, reading.join_all()).await.expect("nobody sleeps on");
        assert_eq!(missed, vec![0; parts * readers], "{parts} parts, blocks of {size}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_woken_for_a_line_that_it_does_not_want_takes_it_from_nobody() {
    let hub = Hub::default();
    let uninterested = Wanted::new(&[], true, None).expect("wanted");
    for _ in 0..8 {
        let mut follower = hub.follow("p", 0, uninterested.clone()).expect("follows");
        tokio::spawn(async move { follower.next().await });
    }
    let mut follower = hub.follow("p", 0, everything()).expect("follows");
    for number in 0..5_000 {
        // Sometimes it waits already, sometimes it is about to.
        hub.publish("p", 1 + number, vec![stored(&number.to_string())]);
        let batch = tokio::time::timeout(PATIENCE, follower.next()).await.expect("it is woken");
        assert_eq!(texts(batch), [number.to_string()]);
    }
    hub.end("p");
}

#[test]
fn a_part_has_a_limited_number_of_followers() {
    let hub = Hub::default();
    let mut followers: Vec<_> = (0..64).map(|_| hub.follow("p", 0, everything()).expect("follows")).collect();
    assert!(hub.follow("p", 0, everything()).is_err());
    assert!(hub.follow("q", 0, everything()).is_ok());
    followers.pop();
    assert!(hub.follow("p", 0, everything()).is_ok());
}
