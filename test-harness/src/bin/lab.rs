//! `make lab`: the agent as an installed service on virtual boards. Started by `test-harness/lab/run.sh`, which makes the
//! image and the namespaces that this expects.

use std::{env, path::PathBuf, process::ExitCode, time::Instant};

use test_harness::lab::stories::{STORIES, Stage};

const HELP: &str = "make lab ARGS=\"NAME…\": only these stories; --list names them";

fn main() -> ExitCode {
    let mut image = None;
    let mut wanted = Vec::new();
    let mut arguments = env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match &*argument {
            "--image" => image = arguments.next().map(PathBuf::from),
            "--list" => {
                STORIES.iter().for_each(|(name, _)| println!("{name}"));
                return ExitCode::SUCCESS;
            }
            name if STORIES.iter().any(|(known, _)| *known == name) => wanted.push(argument),
            _ => {
                eprintln!("{argument} is not understood\n{HELP}");
                return ExitCode::from(2);
            }
        }
    }
    let Some(image) = image else {
        eprintln!("start it by test-harness/lab/run.sh\n{HELP}");
        return ExitCode::from(2);
    };
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    let begin = Instant::now();
    for (name, story) in STORIES {
        if !wanted.is_empty() && !wanted.iter().any(|one| one == name) {
            skipped += 1;
            continue;
        }
        let folder = env::temp_dir().join(format!("platform-lab-{}-{name}", std::process::id()));
        let begin = Instant::now();
        let seen = story(&Stage { image: &image, folder: &folder });
        let took = begin.elapsed().as_secs_f64();
        let _ = std::fs::remove_dir_all(&folder);
        match seen {
            Ok(seen) => {
                passed += 1;
                println!("ok      {name:<14} {took:5.1} s");
                seen.iter().for_each(|line| println!("          {line}"));
            }
            Err(trouble) => {
                failed += 1;
                println!("FAILED  {name:<14} {took:5.1} s\n{trouble}");
            }
        }
    }
    println!("{passed} passed, {failed} failed, {skipped} skipped, {:.0} s", begin.elapsed().as_secs_f64());
    if failed == 0 && passed > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
