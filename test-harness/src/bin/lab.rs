//! `make lab`: the agent as an installed service on virtual boards. Started by `test-harness/lab/run.sh`, which makes the
//! image and the namespaces that this expects.

use std::{env, path::PathBuf, process::ExitCode, time::Instant};

use test_harness::lab::{
    radio,
    stories::{self, Stage, Story},
};

const HELP: &str = "make lab ARGS=\"NAME…\": only these stories; --list names them; --times N; --radio, --containers: those of one kind";

fn main() -> ExitCode {
    let (mut image, mut radio_image) = (None, None);
    let mut wanted: Vec<String> = Vec::new();
    let mut times = 1;
    let all = || stories::STORIES.into_iter().chain(radio::stories::STORIES);
    let is_radio = |name: &str| radio::stories::STORIES.iter().any(|(known, _)| *known == name);
    let mut arguments = env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match &*argument {
            "--image" => image = arguments.next().map(PathBuf::from),
            "--radio-image" => radio_image = arguments.next().map(PathBuf::from),
            "--list" => {
                all().for_each(|(name, _)| println!("{name}{}", if is_radio(name) { " (radio)" } else { "" }));
                return ExitCode::SUCCESS;
            }
            "--radio" => wanted.extend(radio::stories::STORIES.iter().map(|(name, _)| (*name).to_owned())),
            "--containers" => wanted.extend(stories::STORIES.iter().map(|(name, _)| (*name).to_owned())),
            "--times" => times = arguments.next().and_then(|number| number.parse().ok()).unwrap_or(1),
            name if all().any(|(known, _)| known == name) => wanted.push(argument),
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
    let rounds: Vec<(&str, Story)> = (0..times).flat_map(|_| all()).collect();
    for (name, story) in rounds {
        let asked_for = wanted.is_empty() || wanted.iter().any(|one| one == name);
        if !asked_for || (is_radio(name) && radio_image.is_none()) {
            if asked_for {
                println!("SKIPPED {name:<14} there is no image of a board with radios");
            }
            skipped += 1;
            continue;
        }
        let folder = env::temp_dir().join(format!("platform-lab-{}-{name}", std::process::id()));
        let begin = Instant::now();
        let seen = story(&Stage { image: &image, radio: radio_image.as_deref(), folder: &folder });
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
