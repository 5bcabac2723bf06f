//! Many simulated devices through bad days, and many random configurations; the first failure is shown with its seed.
//!
//! `swarm --seeds 200 --from 1000 --documents 1000000`. The same seed and the same commit give the same failure, so a
//! seed that fails becomes a named test.

use std::{
    process::ExitCode,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Instant,
};

use api::device_config::{Accepted, random};
use test_harness::world::{Seed, World, trial};

/// Threads, unless said otherwise: each world needs one processor.
const THREADS: u64 = 2;

struct Options {
    from: u64,
    seeds: u64,
    documents: u64,
    threads: u64,
}

fn options() -> Result<Options, String> {
    let mut options = Options { from: 0, seeds: 200, documents: 1_000_000, threads: THREADS };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let place = match name.as_str() {
            "--from" => &mut options.from,
            "--seeds" => &mut options.seeds,
            "--documents" => &mut options.documents,
            "--threads" => &mut options.threads,
            _ => return Err(format!("{name} is no option; there are --from, --seeds, --documents and --threads")),
        };
        let value = arguments.next().and_then(|value| value.parse().ok());
        *place = value.ok_or_else(|| format!("{name} needs a number"))?;
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
    let began = Instant::now();
    let worlds = each(options.threads, options.from, options.seeds, |seed| trial::run(Seed(seed), World::new));
    if let Err((seed, story)) = worlds {
        println!("{story}\nseed {seed} fails; again: swarm --from {seed} --seeds 1 --documents 0");
        return ExitCode::FAILURE;
    }
    let documents = each(options.threads, 0, options.threads.min(options.documents), |share| {
        read_documents(options.from, options.documents, share, options.threads)
    });
    if let Err((_, story)) = documents {
        println!("{story}");
        return ExitCode::FAILURE;
    }
    let Options { seeds, documents, from, .. } = options;
    println!(
        "{seeds} devices from seed {from} and {documents} documents, all well, in {:.1} s",
        began.elapsed().as_secs_f64()
    );
    ExitCode::SUCCESS
}

/// Runs `what` for each of `count` numbers from `from` on; ends soon after the first failure.
fn each(
    threads: u64,
    from: u64,
    count: u64,
    what: impl Fn(u64) -> Result<(), String> + Sync,
) -> Result<(), (u64, String)> {
    let (next, failed) = (AtomicU64::new(from), AtomicBool::new(false));
    let failure = Mutex::new(None::<(u64, String)>);
    thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                while !failed.load(Ordering::Relaxed) {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= from + count {
                        return;
                    }
                    if let Err(story) = what(number) {
                        failed.store(true, Ordering::Relaxed);
                        let mut first = failure.lock().unwrap_or_else(PoisonError::into_inner);
                        // The smallest, so that two threads tell the same story.
                        if first.as_ref().is_none_or(|(seed, _)| number < *seed) {
                            *first = Some((number, story));
                        }
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
