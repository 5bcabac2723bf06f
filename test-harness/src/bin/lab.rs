//! `make lab`: the agent as an installed service on virtual boards. Started by `test-harness/lab/run.sh`, which makes the
//! image and the namespaces that this expects.

use std::{
    env,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use test_harness::lab::{
    radio::{self, machine::Source},
    site::Kind,
    stories::{self, Seen, Stage, Story},
};

const HELP: &str =
    "make lab ARGS=\"NAME…\": only these stories; --list names them; --radio, --containers, --arm64: those of one kind;
--times N; --boards N: so many boards with radios at a time (2 under qemu, 3 under a user-mode kernel); --aloud: print what is seen
when it is seen; --machine qemu, --machine user-mode: what boards with radios run on; --kernel: make the user-mode kernel, and that is all";

/// Boards with radios at a time. An emulated one takes less than one processor most of the time, and waits for radios.
const BOARDS: usize = 2;
/// Those under a user-mode kernel, which take a third of that.
const USER_MODE_BOARDS: usize = 3;

fn main() -> ExitCode {
    let (mut image, mut radio_image, mut arm64_image, mut kernel) = (None, None, None, None);
    let mut wanted: Vec<String> = Vec::new();
    let (mut times, mut boards, mut aloud) = (1, None, false);
    let all = || stories::STORIES.into_iter().chain(radio::stories::STORIES);
    let (arm64, measures) = (radio::stories::ARM64, radio::stories::MEASURES);
    let by_name = || measures.into_iter().chain(arm64);
    let is_arm64 = |name: &str| arm64.iter().any(|(known, _)| *known == name);
    let is_radio = |name: &str| radio::stories::STORIES.iter().chain(&measures).any(|(known, _)| *known == name);
    let mut arguments = env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match &*argument {
            "--image" => image = arguments.next().map(PathBuf::from),
            "--radio-image" => radio_image = arguments.next().map(PathBuf::from),
            "--arm64-image" => arm64_image = arguments.next().map(PathBuf::from),
            "--user-mode-kernel" => kernel = arguments.next().map(PathBuf::from),
            // `run.sh` has acted upon it.
            "--machine" => drop(arguments.next()),
            "--list" => {
                by_name().for_each(|(name, _)| println!("{name} (only when it is named)"));
                all().for_each(|(name, _)| println!("{name}{}", if is_radio(name) { " (radio)" } else { "" }));
                return ExitCode::SUCCESS;
            }
            "--radio" => wanted.extend(radio::stories::STORIES.iter().map(|(name, _)| (*name).to_owned())),
            "--containers" => wanted.extend(stories::STORIES.iter().map(|(name, _)| (*name).to_owned())),
            "--times" => times = arguments.next().and_then(|number| number.parse().ok()).unwrap_or(1),
            "--boards" => boards = arguments.next().and_then(|number| number.parse().ok()),
            "--aloud" => aloud = true,
            "--arm64" => wanted.extend(arm64.iter().map(|(name, _)| (*name).to_owned())),
            name if all().chain(by_name()).any(|(known, _)| known == name) => wanted.push(argument),
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
    let begin = Instant::now();
    let asked_for = |name: &str| {
        (wanted.is_empty() && all().any(|(known, _)| known == name)) || wanted.iter().any(|one| one == name)
    };
    let rounds: Vec<(&str, Story)> = (0..times).flat_map(|_| all().chain(by_name())).collect();
    let skipped = rounds.iter().filter(|(name, _)| !asked_for(name)).count();
    let (machines, containers): (Vec<_>, Vec<_>) =
        rounds.into_iter().filter(|(name, _)| asked_for(name)).partition(|(name, _)| is_radio(name) || is_arm64(name));
    let told = Told { image: &image, aloud, failed: Mutex::new(Vec::new()), passed: AtomicUsize::new(0) };
    let next = AtomicUsize::new(0);
    let mut without = 0;
    let boards = boards.unwrap_or(if kernel.is_some() { USER_MODE_BOARDS } else { BOARDS });
    let own = radio_image.map(|image| Source { image, kernel });
    let arm64 = arm64_image.map(|image| Source { image, kernel: None });
    let played: Vec<_> = machines
        .into_iter()
        .filter_map(|(name, story)| {
            let source = if is_arm64(name) { &arm64 } else { &own };
            if source.is_none() {
                println!("SKIPPED {name:<14} there is no image of a board with radios");
                without += 1;
            }
            Some((name, story, (source.as_ref()?, is_arm64(name))))
        })
        .collect();
    std::thread::scope(|scope| {
        // One after the other, because they share ports of this machine.
        scope.spawn(|| containers.into_iter().for_each(|(name, story)| told.play(name, story, None)));
        for _ in 0..boards {
            scope.spawn(|| {
                while let Some((name, story, radio)) = played.get(next.fetch_add(1, Ordering::Relaxed)) {
                    told.play(name, *story, Some(*radio));
                }
            });
        }
    });
    let failed = told.failed.into_inner().unwrap_or_default();
    let passed = told.passed.into_inner();
    println!(
        "{passed} passed, {} failed, {} skipped, {:.0} s",
        failed.len(),
        skipped + without,
        begin.elapsed().as_secs_f64()
    );
    if !failed.is_empty() {
        println!("failed: {}", failed.join(" "));
    }
    if failed.is_empty() && passed > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// What became of the stories.
struct Told<'a> {
    image: &'a Path,
    aloud: bool,
    failed: Mutex<Vec<String>>,
    passed: AtomicUsize,
}

impl Told<'_> {
    /// Plays a story and prints what was seen.
    fn play(&self, name: &str, story: Story, radio: Option<(&Source, bool)>) {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        // Process numbers are small here, and the same in another lab.
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = env::temp_dir().join(format!("platform-lab-{}-{number}-{name}", own_number()));
        // Of a lab that was killed, whose number is free again.
        let _ = std::fs::remove_dir_all(&folder);
        let kind = if radio.is_some_and(|(_, arm64)| arm64) { arm64_kind() } else { Kind::own() };
        let seen = Seen::new(self.aloud.then(|| name.to_owned()));
        let begin = Instant::now();
        let radio = radio.map(|(source, _)| source);
        let stage = Stage { image: self.image, radio, kind, folder: &folder, seen: &seen };
        let end = story(&stage);
        let took = begin.elapsed().as_secs_f64();
        let kept = if end.is_err() { stage.keep_evidence() } else { Vec::new() };
        let _ = std::fs::remove_dir_all(&folder);
        let (word, rest) = match end {
            Ok(lines) => {
                self.passed.fetch_add(1, Ordering::Relaxed);
                ("ok     ", lines.iter().fold(String::new(), |text, line| format!("{text}          {line}\n")))
            }
            Err(trouble) => {
                self.failed.lock().map(|mut failed| failed.push(name.to_owned())).unwrap_or_default();
                let kept = kept.iter().fold(String::new(), |text, log| format!("{text}its logs: {}\n", log.display()));
                ("FAILED ", format!("{trouble}\n{kept}"))
            }
        };
        let lines = seen.lines().iter().fold(String::new(), |text, line| format!("{text}          {line}\n"));
        print!("{word} {name:<14} {took:5.1} s\n{lines}{rest}");
    }
}

/// A number that no other lab of this machine has at this time.
fn own_number() -> String {
    let space = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    space.to_string_lossy().chars().filter(char::is_ascii_digit).collect()
}

/// `LAB_ARM64` names the folder with agent, launcher and stand-in that were built for it.
fn arm64_kind() -> Kind {
    Kind { platform: "linux/arm64".to_owned(), programs: env::var_os("LAB_ARM64").map(PathBuf::from) }
}
