//! The actor on a simulated disk and web: real signatures, real records, and the power cut at every write.

use std::{cell::RefCell, collections::VecDeque};

use api::{
    device_config::{Advanced, Settings, VersionControl},
    pb::platform::fleet::v1::{UpdateStatus, update_status},
    releases::{
        Artifact, Channel, ChannelEntry, Expires, Release, RoleKeys, Root, artifact_path, channel_path, release_path,
        root_path, sign, sign::SigningKey,
    },
};
use board::files::Access;
use board_sim::{Driven, Driver, Interruption, Reached, SimBoard, fetch::Resource, image};

use super::*;
use crate::{
    cloud::{FetchedConfig, Retries},
    kit::{latest::Latest, mailbox, supervise::Lifeline, trace::Trace},
    server::Report,
    update::{
        actor::{self, Keeper},
        berth::Berth,
        slots::Pointer,
    },
};

pub(super) const SERVER: &str = "http://fleet.test";
const IMAGE_BYTES: usize = 200_000;

pub(super) fn image_of(version: &str) -> Vec<u8> {
    image::program(version, board_sim::PLATFORM, IMAGE_BYTES)
}

fn artifact_url(version: &str) -> String {
    format!("{SERVER}{}", artifact_path(&image::sha256(&image_of(version))))
}

fn key() -> SigningKey {
    SigningKey::from_seed(&[7; 32]).expect("any 32 bytes")
}

/// A device whose fleet server has released these versions and calls the last one stable.
pub(super) fn device(seed: u64, versions: &[&str]) -> SimBoard {
    device_with(seed, versions, |bytes| {
        (Artifact::raw(board_sim::PLATFORM, image::sha256(bytes), bytes.len() as u64), bytes.to_vec())
    })
}

/// The same, with what is signed and what is served made of each executable.
pub(super) fn device_with(seed: u64, versions: &[&str], made: impl Fn(&[u8]) -> (Artifact, Vec<u8>)) -> SimBoard {
    let sim = SimBoard::new(seed);
    let keys = || RoleKeys::new(1, [key().public()]);
    let end = Expires::from_unix_seconds(4_000_000_000);
    let root = Root { version: 1, expires: end, root: keys(), release: keys(), channel: keys() };
    let serve = |path: String, text: String| sim.web.serve(format!("{SERVER}{path}"), Resource::of(text));
    serve(root_path(1), sign::root(&root, &[&key()]).expect("possible"));
    for (number, version) in (1..).zip(versions) {
        let (bytes, version) = (image_of(version), version.parse().expect("semantic"));
        let product = brand::MACHINE_SERVER.to_owned();
        let (artifact, bytes) = made(&bytes);
        let sha256 = artifact.sha256;
        let artifacts = vec![artifact];
        let release = Release { product: product.clone(), version, number, expires: end, artifacts };
        let document = sign::release(&release, &[&key()]).expect("complete");
        serve(release_path(&product, &release.version), document);
        sim.web.serve(format!("{SERVER}{}", artifact_path(&sha256)), Resource::of(bytes));
        let products = vec![ChannelEntry { product, version: release.version, number }];
        let channel = Channel { name: "stable".into(), version: number, expires: end, products };
        serve(channel_path("stable"), sign::channel(&channel, &[&key()]).expect("complete"));
    }
    sim
}

/// One life of the actor, and a keeper of the program that does what it is told at once.
pub(super) struct Life {
    sim: SimBoard,
    driver: Driver,
    versions: Latest<Rc<VersionControl>>,
    report: Latest<Report>,
    status: Latest<UpdateStatus>,
    told: Rc<RefCell<VecDeque<String>>>,
    task: Option<smol::Task<()>>,
    keeper: Option<smol::Task<()>>,
}

impl Life {
    pub(super) fn begin(sim: &SimBoard, setting: &str) -> Life {
        let board = sim.switch_on();
        let driver = Driver::new(sim);
        let (versions, advanced, reach) = (Latest::new(), Latest::<Rc<Advanced>>::new(), Latest::new());
        let (report, status) = (Latest::new(), Latest::new());
        let (server, mail) = mailbox::outside(4);
        let inbox = actor::Inbox {
            versions: versions.watch(),
            advanced: advanced.watch(),
            reach: reach.watch(),
            fetched: Latest::<Rc<FetchedConfig>>::new().watch(),
            retries: Latest::<Retries>::new().watch(),
            keeper: Keeper::Server(report.watch()),
            lifeline: Lifeline::unattended(Rc::clone(&board.clock)),
        };
        let ports = actor::Ports {
            clock: Rc::clone(&board.clock),
            files: Rc::clone(&board.files),
            fetch: Rc::clone(&board.fetch),
            executor: driver.executor(),
            platform: board.host.facts().platform.clone(),
            dev_mode: true,
            address: Rc::new(|| Some(SERVER.to_owned())),
            keeper: server,
            room: Berth::new(Latest::new()),
            checks: Berth::new(Latest::new()),
            percent: Latest::new(),
            status: status.clone(),
            trace: Trace::default(),
        };
        let life = Life {
            task: Some(driver.executor().spawn(actor::run(policy(), inbox, ports))),
            keeper: None,
            sim: sim.clone(),
            driver,
            versions,
            report,
            status,
            told: Rc::default(),
        };
        advanced.publish(Settings::default().advanced);
        reach.publish(Reach::Reached);
        life.wish(setting);
        life.report.publish(Report { opening: 1, ..Report::default() });
        let (report, told, sim) = (life.report.clone(), Rc::clone(&life.told), sim.clone());
        let keeper = life.driver.executor().spawn(async move {
            loop {
                let command = mail.next().await;
                let text = said(&Effects::from_slice(&[Effect::Tell(command.clone())]).expect("one fits"));
                told.borrow_mut().push_back(text);
                let program = match command {
                    Command::Run { program, .. } => program,
                    Command::Switch { program } | Command::Back { program } => Some(program),
                    Command::Hold { .. } => None,
                };
                let Some(program) = program else { continue };
                let content = sim.files.content(&program.path).expect("what is to be run is there");
                assert_eq!(sim.files.access(&program.path), Some(Access::Executable));
                assert!(content == image_of(&program.version), "{program:?} is whole, and what it says");
                let now = report.get().unwrap_or_default();
                report.publish(Report { program: Some(program), phase: Phase::Running, ..now });
            }
        });
        Life { keeper: Some(keeper), ..life }
    }

    pub(super) fn wish(&self, setting: &str) {
        let server = VersionSetting::parse(setting).expect("a setting");
        self.versions.publish(Rc::new(VersionControl { agent: server.clone(), server }));
    }

    pub(super) fn open(&self) {
        let now = self.report.get().unwrap_or_default();
        self.report.publish(Report { opening: now.opening + 1, ..now });
    }

    pub(super) fn run(&self, seconds: u64) -> Driven {
        self.driver.run_for(Duration::from_secs(seconds), || {})
    }

    pub(super) fn status(&self) -> UpdateStatus {
        self.status.get().expect("it has said something")
    }

    pub(super) fn phase(&self) -> update_status::Phase {
        self.status().phase()
    }

    pub(super) fn told(&self) -> Vec<String> {
        self.told.borrow_mut().drain(..).collect()
    }

    fn crash(&self) {
        let now = self.report.get().unwrap_or_default();
        let phase = Phase::WaitingToRestart;
        self.report.publish(Report { crashes_of_program: now.crashes_of_program + 1, phase, ..now });
    }

    /// The agent is gone without a word.
    pub(super) fn end(mut self, power: bool) {
        match power {
            true => self.sim.cut_power(),
            false => self.sim.end_life(),
        }
        drop((self.task.take(), self.keeper.take()));
        self.driver.bury();
    }
}

#[test]
fn from_nothing_to_a_second_version() {
    let sim = device(1, &["1.0.0"]);
    let life = Life::begin(&sim, "stable");
    life.run(10);
    assert_eq!(life.told(), ["run 1 nothing", "run 1 1.0.0"]);
    let pointer = || sim.files.content("/root/state/platform-server.pointer").and_then(|text| Pointer::read(&text));
    assert_eq!(pointer(), Some(Pointer::trial(Slot::A)));
    life.run(400);
    assert_eq!(pointer(), Some(Pointer::kept(Slot::A)));
    assert_eq!((life.phase(), life.status().last_error.as_str()), (update_status::Phase::Committed, ""));

    let sim2 = device(1, &["1.0.0", "1.1.0"]);
    for url in [format!("{SERVER}{}", channel_path("stable")), artifact_url("1.1.0")] {
        sim.web.serve(&*url, sim2.web.resource(&url).expect("released"));
    }
    let version = "1.1.0".parse().expect("semantic");
    let url = format!("{SERVER}{}", release_path(brand::MACHINE_SERVER, &version));
    sim.web.serve(&*url, sim2.web.resource(&url).expect("released"));
    life.run(3600);
    assert_eq!(life.phase(), update_status::Phase::Staged, "{:?}", life.status());
    assert_eq!(life.told(), [""; 0], "nobody is disturbed");
    life.open();
    life.run(1);
    assert_eq!(life.told(), ["run 2 1.1.0"]);
    life.crash();
    life.run(1);
    assert_eq!((life.told(), life.phase()), (vec!["back 1.0.0".to_owned()], update_status::Phase::RolledBack));
    assert_eq!(life.status().bad_versions, ["1.1.0"]);
    let before = sim.web.asked().len();
    life.run(24 * 3600);
    let asked: Vec<_> = sim.web.asked().split_off(before);
    assert!(asked.iter().all(|asked| asked.url != artifact_url("1.1.0")), "it is not fetched again");
    assert!(asked.len() < 24 * 4, "hourly checks of three documents and a root that is not there");
    life.end(false);
}

#[test]
fn a_download_is_continued_by_the_next_agent() {
    let sim = device(2, &["1.0.0"]);
    sim.web.set_bandwidth(20_000);
    let life = Life::begin(&sim, "stable");
    life.run(6);
    assert_eq!(life.phase(), update_status::Phase::Downloading);
    assert!(life.status().percent >= 25, "{:?}", life.status());
    life.end(false);
    let life = Life::begin(&sim, "stable");
    life.run(20);
    assert_eq!(life.phase(), update_status::Phase::Probation);
    let asked: Vec<_> = sim.web.asked().into_iter().filter(|asked| asked.url == artifact_url("1.0.0")).collect();
    assert!(asked.len() == 2 && asked[1].from >= 65_536, "{asked:?}");
    assert!(sim.files.paths().iter().all(|path| !path.to_string_lossy().contains("/download/")), "nothing is left");
    life.end(false);
}

#[test]
fn a_download_that_nobody_went_on_with_for_days_begins_anew() {
    for (days, continued) in [(2, true), (4, false)] {
        let sim = device(2, &["1.0.0"]);
        sim.web.set_bandwidth(20_000);
        let life = Life::begin(&sim, "stable");
        life.run(6);
        life.end(false);
        sim.clock.jump_wall(days * 24 * 3_600_000);
        let life = Life::begin(&sim, "stable");
        life.run(20);
        assert_eq!(life.phase(), update_status::Phase::Probation, "{days} days");
        let asked: Vec<_> = sim.web.asked().into_iter().filter(|asked| asked.url == artifact_url("1.0.0")).collect();
        assert!(asked.len() == 2 && (asked[1].from > 0) == continued, "{days} days: {asked:?}");
        life.end(false);
    }
}

#[test]
fn a_damaged_record_is_set_aside_and_the_slots_are_believed() {
    let sim = device(3, &["1.0.0"]);
    let life = Life::begin(&sim, "stable");
    life.run(400);
    life.end(false);
    sim.files.corrupt("/root/state/platform-server.record", 100);
    sim.web.set_online(false);
    let begun = Life::begin(&sim, "stable");
    begun.end(false);
    assert!(sim.files.content("/root/state/platform-server.record").is_some(), "nothing ran yet");
    sim.web.set_online(true);
    let life = Life::begin(&sim, "1.0.0");
    // The keeper checks that "unknown" is what it says, so let the check come first.
    life.report.publish(Report::default());
    life.run(5);
    life.open();
    life.run(5);
    assert_eq!(life.told(), ["run 1 1.0.0"], "by its digest it is known again");
    assert!(sim.files.content("/root/state/platform-server.record.unreadable").is_some());
    life.end(false);
}

#[test]
fn pins_are_copied_and_judged() {
    let sim = device(4, &["1.0.0"]);
    let life = Life::begin(&sim, "stable");
    life.run(400);
    life.told();
    sim.files.put("/media/page.html", "<html>no program</html>", Access::Readable);
    life.wish("file:///media/page.html");
    life.run(30);
    assert!(life.status().last_error.contains("no ELF executable but a web page"), "{:?}", life.status());
    life.wish("file:///media/gone");
    life.run(30);
    assert!(life.status().last_error.contains("/media/gone"), "{:?}", life.status());
    assert_eq!(life.status().running_version, "1.0.0");
    life.wish("http://10.0.0.9/other");
    sim.web.serve("http://10.0.0.9/other", Resource::of(image::program("7.0.0", "linux/arm64", 1000)));
    life.run(30);
    assert!(life.status().last_error.contains("for linux/arm64 and this machine is linux/amd64"));
    let asked = sim.web.asked().iter().filter(|asked| asked.url == "http://10.0.0.9/other").count();
    assert_eq!(asked, 1, "it is not fetched in a loop");
    life.end(false);
}

/// Lives from here until 1.1.0 is committed, interrupted once at the `nth` write. Says whether there was such a write.
pub(super) fn updates_in_spite_of(
    interruption: Interruption,
    reached: Reached,
    nth: u64,
    prepared: &dyn Fn(u64) -> SimBoard,
) -> bool {
    let sim = prepared(nth);
    sim.files.interrupt_at_write(nth, interruption, reached);
    let mut interrupted = false;
    let mut life = Life::begin(&sim, "1.1.0");
    for _ in 0..6 {
        match life.run(700) {
            Driven::Done => {
                if life.phase() == update_status::Phase::Committed && life.status().running_version == "1.1.0" {
                    break;
                }
                life.open();
            }
            Driven::Interrupted(by) => {
                interrupted = true;
                life.end(by == Interruption::PowerCut);
                // The first answer of the next life is checked by the keeper: something whole runs at once.
                life = Life::begin(&sim, "1.1.0");
                life.run(1);
                assert!(
                    life.told().iter().any(|told| told.starts_with("run 1 1.")),
                    "{interruption:?} {reached:?} {nth}"
                );
            }
        }
    }
    let status = life.status();
    assert_eq!(life.phase(), update_status::Phase::Committed, "{interruption:?} {reached:?} {nth}: {status:?}");
    assert_eq!(status.running_version, "1.1.0", "{interruption:?} {reached:?} {nth}: {status:?}");
    assert!(status.bad_versions.is_empty(), "an interruption is nobody's fault");
    life.end(false);
    interrupted
}

#[test]
fn an_update_survives_an_interruption_at_every_write() {
    let prepared = |seed: u64| {
        let sim = device(seed, &["1.0.0", "1.1.0"]);
        let life = Life::begin(&sim, "1.0.0");
        life.run(400);
        assert_eq!(life.phase(), update_status::Phase::Committed);
        life.end(false);
        sim
    };
    for interruption in [Interruption::PowerCut, Interruption::Killed] {
        for reached in Reached::ALL {
            let mut writes = 0;
            while updates_in_spite_of(interruption, reached, writes + 1, &prepared) {
                writes += 1;
            }
            assert!(writes >= 10, "{interruption:?} {reached:?}: only {writes} writes were tried");
        }
    }
}
