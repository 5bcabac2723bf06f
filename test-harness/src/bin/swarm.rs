//! Many simulated devices through bad days, and many random configurations; the first failure is shown with its seed.
//!
//! `swarm --days 10000 --from 1000 --documents 1000000`: devices, one per seed, until they have lived that many days
//! together; `--seeds 1` is one device. Then nonsense for everything that strangers near a device can reach, for
//! `--fuzz-seconds 60`; `--fuzz` is nothing but that, for an hour. The same seed and the same commit give the same failure, so a
//! seed that fails becomes a named test.

use std::{
    fmt,
    process::ExitCode,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Instant,
};

use actors::kit::planted::{self, Bug};
use api::device_config::{Accepted, random};
use test_harness::{
    fuzz,
    world::{
        Seed, World, doors,
        trial::{self, Lived},
    },
};

/// Nonsense at the end of an ordinary run.
const FUZZ_SECONDS: u64 = 60;
/// Nonsense when nothing else is wanted.
const FUZZ_ALONE_SECONDS: u64 = 3600;
/// Rounds after which memory has its size.
const FUZZ_WARM_ROUNDS: u64 = 20_000;
/// Growth after that which is no longer chance, in KiB.
const FUZZ_GROWTH_KIB: u64 = 16 * 1024;

/// Threads, unless said otherwise: each world needs one processor.
const THREADS: u64 = 2;

struct Options {
    from: u64,
    seeds: Option<u64>,
    days: u64,
    documents: u64,
    threads: u64,
    fuzz_alone: bool,
    fuzz_seconds: Option<u64>,
}

fn options() -> Result<Options, String> {
    let mut options = Options {
        from: 0,
        seeds: None,
        days: 10_000,
        documents: 1_000_000,
        threads: THREADS,
        fuzz_alone: false,
        fuzz_seconds: None,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let mut number = || {
            let value = arguments.next().and_then(|value| value.parse().ok());
            value.ok_or_else(|| format!("{name} needs a number"))
        };
        match name.as_str() {
            "--from" => options.from = number()?,
            "--seeds" => options.seeds = Some(number()?),
            "--days" => options.days = number()?,
            "--documents" => options.documents = number()?,
            "--threads" => options.threads = number()?,
            "--fuzz" => options.fuzz_alone = true,
            "--fuzz-seconds" => options.fuzz_seconds = Some(number()?),
            _ => {
                return Err(format!(
                    "{name} is no option; there are --from, --seeds, --days, --documents, --threads, --fuzz and --fuzz-seconds"
                ));
            }
        }
    }
    Ok(options)
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(options) => options,
        Err(trouble) => {
            eprintln!("{trouble}");
            return ExitCode::from(2);
        }
    };
    if cfg!(feature = "planted-bugs") {
        return find_planted(options.from, options.threads);
    }
    if options.fuzz_alone {
        return nonsense(&options, FUZZ_ALONE_SECONDS);
    }
    let began = Instant::now();
    let tally = Tally::default();
    let worlds = each(options.threads, options.from, |seed| {
        let enough = match options.seeds {
            Some(seeds) => seed >= options.from + seeds,
            None => tally.seconds.load(Ordering::Relaxed) >= options.days * 24 * 3600,
        };
        if enough {
            return Ok(false);
        }
        // One in four is a device whose doors are visited; the others are updated, restarted and configured.
        let lived = if seed % 4 == 3 { doors::run(Seed(seed))? } else { trial::run(Seed(seed), World::launched)? };
        tally.add(lived);
        Ok(true)
    });
    if let Err((seed, story)) = worlds {
        println!("{story}\nseed {seed} fails; again: swarm --from {seed} --seeds 1 --documents 0");
        return ExitCode::FAILURE;
    }
    println!("{tally} in {:.1} s", began.elapsed().as_secs_f64());
    let shares = options.threads.min(options.documents);
    let documents = each(options.threads, 0, |share| {
        if share < shares {
            read_documents(options.from, options.documents, share, options.threads)?;
        }
        Ok(share < shares)
    });
    if let Err((_, story)) = documents {
        println!("{story}");
        return ExitCode::FAILURE;
    }
    println!("{} documents, all well, {:.1} s in all", options.documents, began.elapsed().as_secs_f64());
    if options.seeds.is_some() && options.fuzz_seconds.is_none() {
        return ExitCode::SUCCESS;
    }
    nonsense(&options, FUZZ_SECONDS)
}

/// Says nonsense for as long as it was asked for; without a failure, and without growing.
fn nonsense(options: &Options, seconds: u64) -> ExitCode {
    let (began, seconds) = (Instant::now(), options.fuzz_seconds.unwrap_or(seconds));
    let (rounds, warm) = (AtomicU64::new(0), AtomicU64::new(0));
    let all = each(options.threads, options.from, |seed| {
        if began.elapsed().as_secs() >= seconds {
            return Ok(false);
        }
        fuzz::round(seed)?;
        if rounds.fetch_add(1, Ordering::Relaxed) == FUZZ_WARM_ROUNDS {
            warm.store(resident_kib(), Ordering::Relaxed);
        }
        Ok(true)
    });
    if let Err((seed, story)) = all {
        println!("{story}\nnonsense {seed} is not borne; again: swarm --fuzz --from {seed} --fuzz-seconds 1");
        return ExitCode::FAILURE;
    }
    let (rounds, warm, now) = (rounds.into_inner(), warm.into_inner(), resident_kib());
    println!("{rounds} rounds of nonsense in {seconds} s, all borne, {now} KiB at the end");
    if warm > 0 && now > warm + FUZZ_GROWTH_KIB {
        println!("memory has grown from {warm} KiB");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// Memory of this process; 0 where it cannot be asked.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// What all devices have lived through.
#[derive(Default)]
struct Tally {
    devices: AtomicU64,
    seconds: AtomicU64,
    transitions: AtomicU64,
    lives: AtomicU64,
    switches: AtomicU64,
    starts: AtomicU64,
}

impl Tally {
    fn add(&self, lived: Lived) {
        let Lived { time, transitions, lives, switches, starts } = lived;
        let Tally { devices, seconds, .. } = self;
        for (sum, more) in [
            (devices, 1),
            (seconds, time.as_secs()),
            (&self.transitions, transitions),
            (&self.lives, lives),
            (&self.switches, switches),
            (&self.starts, starts),
        ] {
            sum.fetch_add(more, Ordering::Relaxed);
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tally { devices, seconds, transitions, lives, switches, starts } = self;
        let [devices, seconds, transitions, lives, switches, starts] =
            [devices, seconds, transitions, lives, switches, starts].map(|sum| sum.load(Ordering::Relaxed));
        let days = seconds / (24 * 3600);
        write!(
            f,
            "{devices} devices, {days} days, {transitions} transitions, {lives} starts of the agent, \
             {switches} of them of another version than before, {starts} of a machine server, all well,"
        )
    }
}

/// Devices that may pass before a planted bug has to be found.
const FOUND_WITHIN: u64 = 400;

/// Plants one bug after the other and has the swarm find it.
fn find_planted(from: u64, threads: u64) -> ExitCode {
    for bug in Bug::ALL {
        planted::plant(bug);
        let began = Instant::now();
        let devices = AtomicU64::new(0);
        let found = each(threads, from, |seed| {
            if devices.fetch_add(1, Ordering::Relaxed) >= FOUND_WITHIN {
                return Ok(false);
            }
            trial::run(Seed(seed), World::launched).map(|_| true)
        });
        let devices = devices.load(Ordering::Relaxed);
        match found {
            Err((seed, _)) => {
                println!("{bug:?}: found at seed {seed}, {devices} devices, {:.1} s", began.elapsed().as_secs_f64());
            }
            Ok(()) => {
                println!("{bug:?}: not found in {devices} devices");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}

/// Runs `what` for each number from `from` on until it says that there is no more; ends soon after the first failure.
fn each(threads: u64, from: u64, what: impl Fn(u64) -> Result<bool, String> + Sync) -> Result<(), (u64, String)> {
    let (next, failed) = (AtomicU64::new(from), AtomicBool::new(false));
    let failure = Mutex::new(None::<(u64, String)>);
    thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                while !failed.load(Ordering::Relaxed) {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let story = match what(number) {
                        Ok(true) => continue,
                        Ok(false) => return,
                        Err(story) => story,
                    };
                    failed.store(true, Ordering::Relaxed);
                    let mut first = failure.lock().unwrap_or_else(PoisonError::into_inner);
                    // The smallest, so that two threads tell the same story.
                    if first.as_ref().is_none_or(|(seed, _)| number < *seed) {
                        *first = Some((number, story));
                    }
                }
            });
        }
    });
    failure.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}

/// Reads every `step`th document from `share` on; each falls back to what was accepted of the one before.
fn read_documents(from: u64, count: u64, share: u64, step: u64) -> Result<(), String> {
    let mut accepted = Accepted::default();
    for number in (share..count).step_by(usize::try_from(step).unwrap_or(1)) {
        let seed = from + number;
        let read = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| random::hold(seed, &accepted)));
        accepted = read.map_err(|_| format!("the document of seed {seed} breaks the reader: see above"))?;
    }
    Ok(())
}
