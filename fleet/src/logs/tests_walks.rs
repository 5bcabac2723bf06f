//! Walks through a log, page by page, while lines arrive, late ones too, and old blocks go: compared with a list of what was
//! sent. A line that is there from a walk's first page to its last is seen once, whatever happens meanwhile.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

const SEEDS: u64 = 4;
const STEPS: i64 = 250;
/// Walks that go on at the same time.
const WALKS: usize = 4;
const LEVELS: [&str; 4] = ["debug", "info", "Warn", "error"];
const LOGGERS: [&str; 4] = ["platform-agent", "platform-agent.update", "platform-agents", "platform-server"];
const WORDS: [&str; 4] = ["motor is warm", "Motor stalled", "größe", "nothing new"];

/// Numbers from a seed; the seed is in the message of a failure.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: i64) -> i64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        i64::try_from(self.0 >> 33).expect("31 bits") % end
    }

    fn one_of<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.below(all.len() as i64) as usize]
    }
}

/// Every line that was acknowledged, by its message, which no other has.
type Sent = BTreeMap<String, LogEntry>;

struct Walk {
    request: GetRobotPartLogsRequest,
    /// What was acknowledged before its first page.
    before: BTreeSet<String>,
    seen: Vec<LogEntry>,
}

impl Walk {
    fn new(dice: &mut Dice, sent: &Sent, now: Millis) -> Self {
        let mut request = ask(|request| {
            request.limit = Some(3 + dice.below(60));
            request.order = Some([LogOrder::Ascending, LogOrder::Descending][dice.below(2) as usize].into());
        });
        // One of these, several, or none.
        if dice.below(4) == 0 {
            request.levels = vec![dice.one_of(&LEVELS).to_uppercase(), dice.one_of(&LEVELS).to_owned()];
        }
        if dice.below(4) == 0 {
            request.source = Some(dice.one_of(&LOGGERS).to_owned());
        }
        if dice.below(3) == 0 {
            request.filter = Some(dice.one_of(&["MOTOR", "GRÖ", "motor stalled", "7"]).to_owned());
        }
        if dice.below(3) == 0 {
            request.start = Some(timestamp(now - dice.below(8) * 3_600_000));
        }
        if dice.below(3) == 0 {
            let start = request.start.as_ref().map_or(now - 9 * 3_600_000, crate::clock::millis);
            request.end = Some(timestamp(start + dice.below(9 * 3_600_000)));
        }
        Self { request, before: sent.keys().cloned().collect(), seen: Vec::new() }
    }

    /// Whether it asked for that line, told by its request alone.
    fn wants(&self, entry: &LogEntry) -> bool {
        let GetRobotPartLogsRequest { levels, source, filter, start, end, .. } = &self.request;
        let logger = &entry.logger_name;
        let at = block::time_of(entry);
        (levels.is_empty() || levels.iter().any(|level| level.eq_ignore_ascii_case(&entry.level)))
            && source.as_ref().is_none_or(|source| logger == source || logger.starts_with(&format!("{source}.")))
            && filter.as_ref().is_none_or(|part| entry.message.to_lowercase().contains(&part.to_lowercase()))
            && start.as_ref().is_none_or(|start| crate::clock::millis(start) <= at)
            && end.as_ref().is_none_or(|end| at <= crate::clock::millis(end))
    }

    /// One page further; whether that was the last.
    async fn step(&mut self, logs: &Logs) -> bool {
        let page = page(logs, &self.request).await;
        assert!(page.next.is_empty() || !page.entries.is_empty(), "a token beside an empty page");
        assert!(page.entries.len() as i64 <= self.request.limit.expect("set"), "no longer than asked for");
        self.seen.extend(page.entries);
        self.request.page_token = Some(page.next.clone());
        page.next.is_empty()
    }

    /// How many lines it had to see, all of which it has.
    fn check(&self, sent: &Sent, left: &BTreeSet<String>, case: &str) -> usize {
        let case = format!("{case}: {:?}", self.request);
        let mut times = BTreeMap::<&str, usize>::new();
        for entry in &self.seen {
            *times.entry(&entry.message).or_default() += 1;
            let same = sent.get(&entry.message).is_some_and(|sent| block::shown(sent.clone()) == *entry);
            assert!(same && self.wants(entry), "{case}: {entry:?} was not sent, or not asked for");
        }
        let twice: Vec<_> = times.iter().filter(|(_, times)| **times > 1).collect();
        assert!(twice.is_empty(), "{case}: twice: {twice:?}");
        let rises = |two: &[LogEntry]| block::time_of(&two[0]) <= block::time_of(&two[1]);
        let falls = |two: &[LogEntry]| block::time_of(&two[0]) >= block::time_of(&two[1]);
        let ordered = match self.request.order == Some(LogOrder::Ascending.into()) {
            true => self.seen.windows(2).all(rises),
            false => self.seen.windows(2).all(falls),
        };
        assert!(ordered, "{case}: not in order");
        let due: Vec<_> = self.before.intersection(left).filter(|message| self.wants(&sent[*message])).collect();
        let lost: Vec<_> = due.iter().filter(|message| !times.contains_key(message.as_str())).collect();
        assert!(lost.is_empty(), "{case}: lost: {lost:?}");
        due.len()
    }
}

/// What is kept of the part, read in one go.
async fn left(logs: &Logs) -> BTreeSet<String> {
    let all = |tx: &crate::store::Tx<'_>| {
        let blocks = store::after(tx, 0, i64::MAX)?.into_iter().filter(|(_, part)| part == "p");
        blocks.filter_map(|(id, _)| store::body(tx, id).transpose()).collect()
    };
    let bodies: Vec<Vec<u8>> = logs.db.read::<_, DbError, _>(all).await.expect("read");
    let entries = bodies.into_iter().flat_map(|body| block::find(0, body, None));
    entries.map(|(_, entry)| entry.message).collect()
}

/// Lines of a device: on time, hours late, of a clock that is a day behind, of no clock; many of one millisecond.
fn batch(dice: &mut Dice, number: i64, now: Millis) -> Vec<LogEntry> {
    let late = match dice.below(6) {
        0 => dice.below(5 * 3_600_000),
        1 => 86_400_000,
        _ => 0,
    };
    let lines = 1 + dice.below(40);
    let made = (0..lines).map(|line| {
        let at = now - late - dice.below(if late > 0 { 3 * 3_600_000 } else { 1_000 });
        let message = format!("{number}.{line} {}", dice.one_of(&WORDS));
        let time = (dice.below(20) > 0).then(|| timestamp(at - at % 7));
        let (level, logger_name) = (dice.one_of(&LEVELS).to_owned(), dice.one_of(&LOGGERS).to_owned());
        LogEntry { time, level, logger_name, message, ..LogEntry::default() }
    });
    made.collect()
}

async fn walked(seed: u64) {
    let limits = Limits { age: std::time::Duration::from_secs(90), bytes_per_part: 60_000, bytes: 90_000 };
    let Some((_folder, logs)) = logs_with(limits) else { return };
    let (mut dice, mut sent) = (Dice(seed), Sent::new());
    let (mut walks, mut done, mut due, mut gone) = (Vec::new(), 0, 0, Pruned::default());
    for step in 0.. {
        let now = NOW + step * 1_000;
        let goes_on = step < STEPS;
        while goes_on && walks.len() < WALKS {
            walks.push(Walk::new(&mut dice, &sent, now));
        }
        if walks.is_empty() {
            break;
        }
        let lines = if goes_on && dice.below(3) > 0 { batch(&mut dice, step, now) } else { Vec::new() };
        let (walk, prunes) = (dice.below(walks.len() as i64) as usize, goes_on && dice.below(6) == 0);
        // All of it at once.
        let takes = async {
            if !lines.is_empty() {
                logs.take("p", spool(step + 1), lines.clone(), now).await.expect("taken");
                logs.take("q", spool(step + 1), vec![entry(now, "info", "of another part")], now).await.expect("taken");
            }
        };
        let goes = async {
            if prunes {
                let pruned = logs.prune(now).await.expect("pruned");
                (gone.aged, gone.over_size) = (gone.aged + pruned.aged, gone.over_size + pruned.over_size);
            }
        };
        let ((), (), ended) = tokio::join!(takes, goes, walks[walk].step(&logs));
        sent.extend(block::accept(lines, now).into_iter().map(|entry| (entry.message.clone(), entry)));
        if ended {
            due += walks.swap_remove(walk).check(&sent, &left(&logs).await, &format!("seed {seed}, step {step}"));
            done += 1;
        }
    }
    assert!(done >= 10 && due >= 100, "seed {seed}: {done} walks had to see {due} lines");
    assert!(gone.aged > 0 && gone.over_size > 0, "seed {seed}: {gone:?} went meanwhile");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_line_that_stays_is_seen_once_while_others_come_and_go() {
    let walks: tokio::task::JoinSet<_> = (0..SEEDS).map(walked).collect();
    walks.join_all().await;
}
