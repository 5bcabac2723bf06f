//! `make lab`: the agent as an installed service on virtual boards. Started by `test-harness/lab/run.sh`, which makes the
//! image and the namespaces that this expects.

use std::{env, path::PathBuf, process::ExitCode, time::Instant};

use test_harness::lab::{
    radio,
    site::Kind,
    stories::{self, Stage, Story},
};

const HELP: &str = "make lab ARGS=\"NAME…\": only these stories; --list names them; --times N; --radio, --containers, --arm64: those of one kind";

fn main() -> ExitCode {
    let (mut image, mut radio_image, mut arm64_image) = (None, None, None);
    let mut wanted: Vec<String> = Vec::new();
    let mut times = 1;
    let all = || stories::STORIES.into_iter().chain(radio::stories::STORIES);
    let arm64 = radio::stories::ARM64;
    let is_arm64 = |name: &str| arm64.iter().any(|(known, _)| *known == name);
    let is_radio = |name: &str| radio::stories::STORIES.iter().any(|(known, _)| *known == name);
    let mut arguments = env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match &*argument {
            "--image" => image = arguments.next().map(PathBuf::from),
            "--radio-image" => radio_image = arguments.next().map(PathBuf::from),
            "--arm64-image" => arm64_image = arguments.next().map(PathBuf::from),
            "--list" => {
                arm64.iter().for_each(|(name, _)| println!("{name} (only when it is named)"));
                all().for_each(|(name, _)| println!("{name}{}", if is_radio(name) { " (radio)" } else { "" }));
                return ExitCode::SUCCESS;
            }
            "--radio" => wanted.extend(radio::stories::STORIES.iter().map(|(name, _)| (*name).to_owned())),
            "--containers" => wanted.extend(stories::STORIES.iter().map(|(name, _)| (*name).to_owned())),
            "--times" => times = arguments.next().and_then(|number| number.parse().ok()).unwrap_or(1),
            "--arm64" => wanted.extend(arm64.iter().map(|(name, _)| (*name).to_owned())),
            name if all().chain(arm64).any(|(known, _)| known == name) => wanted.push(argument),
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
    let rounds: Vec<(&str, Story)> = (0..times).flat_map(|_| all().chain(arm64)).collect();
    for (name, story) in rounds {
        let asked_for = (wanted.is_empty() && !is_arm64(name)) || wanted.iter().any(|one| one == name);
        let radio_image = if is_arm64(name) { &arm64_image } else { &radio_image };
        if !asked_for || ((is_radio(name) || is_arm64(name)) && radio_image.is_none()) {
            if asked_for {
                println!("SKIPPED {name:<14} there is no image of a board with radios");
            }
            skipped += 1;
            continue;
        }
        let folder = env::temp_dir().join(format!("platform-lab-{}-{name}", std::process::id()));
        let begin = Instant::now();
        let kind = if is_arm64(name) { arm64_kind() } else { Kind::own() };
        let seen = story(&Stage { image: &image, radio: radio_image.as_deref(), kind, folder: &folder });
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

/// `LAB_ARM64` names the folder with agent, launcher and stand-in that were built for it.
fn arm64_kind() -> Kind {
    Kind { platform: "linux/arm64".to_owned(), programs: env::var_os("LAB_ARM64").map(PathBuf::from) }
}
