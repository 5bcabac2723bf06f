//! Rows for the machine, and the shell on a simulated device: restarts, damage, a full disk, a power cut.

use std::{io, rc::Rc, time::Duration};

use api::device_config::{Accepted, CommandLine, Source, VersionSetting, limits::DOCUMENT_BYTES_MAX, random};
use board::{Mono, files::Access};
use board_sim::{Driven, Driver, Interruption, Reached, SimBoard};
use prost_types::{Struct, Value, value::Kind};

use super::{
    ConfigStatus, Reload, Sections,
    actor::{self, Inbox, Ports},
    cache::Kept,
    machine::{Defaults, Effect, Event, Machine, STORE_RETRY},
};
use crate::{
    cloud::FetchedConfig,
    kit::{latest::Latest, mailbox, mailbox::Mailbox, supervise::Supervisor, trace::Trace},
    rank::Actor,
};

const CACHE: &str = "/root/config";
const DEFAULTS: &str = "/etc/defaults.json";

fn at(seconds: u64) -> Mono {
    Mono::BOOT + Duration::from_secs(seconds)
}

fn fetched(text: &str) -> Rc<FetchedConfig> {
    fetched_by("part", text)
}

fn fetched_by(part_id: &str, text: &str) -> Rc<FetchedConfig> {
    let response = random::as_response(text.as_bytes()).unwrap_or_else(|| panic!("not a response: {text}"));
    Rc::new(FetchedConfig::of(part_id, response))
}

fn given(text: &str) -> Defaults {
    Source::Given(text.as_bytes().into())
}

fn too_large(part_id: &str) -> Rc<FetchedConfig> {
    let long = Value { kind: Some(Kind::StringValue("x".repeat(DOCUMENT_BYTES_MAX))) };
    let advanced_settings = Some(Struct { fields: [("x".to_owned(), long)].into() });
    let response =
        api::pb::platform::app::agent::v1::DeviceAgentConfigResponse { advanced_settings, ..Default::default() };
    Rc::new(FetchedConfig::of(part_id, response))
}

/// What a step wants, as the rows write it.
fn said(machine: &mut Machine, now: Mono, event: Event) -> Vec<String> {
    let line = |effect| match effect {
        Effect::ReadDefaults => "read defaults".to_owned(),
        Effect::Store(Kept { cloud: None, .. }) => "store".to_owned(),
        Effect::Store(Kept { cloud: Some(_), .. }) => "store with cloud".to_owned(),
        Effect::Publish(publication) => {
            let complaints = publication.status.complaints.len();
            let trouble = if publication.status.trouble.is_some() { ", trouble" } else { "" };
            format!("publish {}, {complaints} complaints{trouble}", publication.changed)
        }
    };
    machine.step(now, event).into_iter().map(line).collect()
}

fn started(kept: Option<Kept>, defaults: Defaults) -> Machine {
    let mut machine = Machine::new(CommandLine::default());
    let wanted = said(&mut machine, at(0), Event::Started { kept, defaults, part_id: None });
    assert!(!wanted.is_empty(), "a start publishes");
    if wanted.iter().any(|effect| effect.starts_with("store")) {
        machine.step(at(0), Event::Stored(Ok(())));
    }
    machine
}

#[test]
fn a_start_publishes_what_was_kept() {
    let debug = fetched(r#"{"advanced_settings": {"debug": true}}"#);
    let kept = |accepted| Some(Kept { accepted, cloud: Some(Rc::clone(&debug)) });
    let known = Accepted::decode(br#"{"defaults": {}, "cloud": {"advanced_settings": {"debug": true}}}"#).unwrap();
    let all = "versions, advanced, network, networks, system";
    let table = [
        ("new device", None, Source::Absent, vec![format!("publish {all}, 0 complaints")]),
        ("nothing new", kept(known.clone()), Source::Absent, vec![format!("publish {all}, 0 complaints")]),
        (
            "a manufacturer's file came",
            kept(known.clone()),
            given(r#"{"advanced_settings": {"disk_reserve_megabytes": 1}}"#),
            vec!["store with cloud".into(), format!("publish {all}, 0 complaints")],
        ),
        ("a manufacturer's file without effect", None, given("{"), vec![format!("publish {all}, 1 complaints")]),
        (
            "this agent reads more of it than the last one",
            kept(Accepted::default()),
            Source::Absent,
            vec!["store with cloud".into(), format!("publish {all}, 0 complaints")],
        ),
    ];
    for (case, kept, defaults, expected) in table {
        let mut machine = Machine::new(CommandLine::default());
        assert_eq!(said(&mut machine, at(0), Event::Started { kept, defaults, part_id: None }), expected, "{case}");
    }
}

#[test]
fn what_was_said_of_another_part_is_forgotten_with_all_it_had_accepted() {
    let off = r#"{"advanced_settings": {"disable_platform_server": true}}"#;
    let bad = r#"{"advanced_settings": {"disable_platform_server": 7}}"#;
    let known = Accepted::decode(format!(r#"{{"defaults": {{}}, "cloud": {off}}}"#).as_bytes()).unwrap();
    let start = |part_id: Option<&str>| {
        let kept = Some(Kept { accepted: known.clone(), cloud: Some(fetched_by("old", off)) });
        let mut machine = Machine::new(CommandLine::default());
        let part_id = part_id.map(str::to_owned);
        let wanted = said(&mut machine, at(0), Event::Started { kept, defaults: Source::Absent, part_id });
        (machine, wanted)
    };
    let all = "publish versions, advanced, network, networks, system, 0 complaints";
    // Nobody can say who this device is, or it is still the same.
    for part_id in [None, Some("old")] {
        let (mut machine, wanted) = start(part_id);
        assert_eq!(wanted, [all], "{part_id:?}");
        // A bad value of the same part falls back to what it had: still switched off.
        let wanted = said(&mut machine, at(1), Event::Fetched(fetched_by("old", bad)));
        assert_eq!(wanted, ["store with cloud", "publish nothing, 1 complaints"]);
    }
    // It is another one now: the old part's server is not switched off any more, also where the new one says nonsense.
    assert_eq!(start(Some("new")).1, ["store", all]);
    for (case, fetched, expected) in [
        ("nonsense", fetched_by("new", bad), &["store with cloud", "publish advanced, 1 complaints"][..]),
        ("the same words", fetched_by("new", off), &["store with cloud"]),
        ("more than is allowed", too_large("new"), &["store", "publish advanced, 1 complaints"]),
    ] {
        let (mut machine, _) = start(Some("old"));
        assert_eq!(said(&mut machine, at(1), Event::Fetched(fetched)), expected, "{case}");
    }
}

#[test]
fn what_the_cloud_says_is_stored_and_then_published() {
    let first = r#"{"advanced_settings": {"debug": true}}"#;
    let other = Event::Fetched(fetched(
        r#"{"advanced_settings": {"debug": true}, "system_configuration": {"os_auto_upgrade_type": "all"}}"#,
    ));
    let bad = Event::Fetched(fetched(r#"{"advanced_settings": {"debug": 1}}"#));
    let unknown = Event::Fetched(fetched(r#"{"advanced_settings": {"debug": true, "x": 1}}"#));
    let table = [
        // case                          event                               wanted
        ("the same", Event::Fetched(fetched(first)), vec![]),
        ("another section", other, vec!["store with cloud", "publish system, 0 complaints"]),
        ("a bad value", bad, vec!["store with cloud", "publish nothing, 1 complaints"]),
        ("an unknown name", unknown, vec!["store with cloud", "publish nothing, 1 complaints"]),
        ("nothing any more", Event::Fetched(fetched("{}")), vec!["store with cloud", "publish advanced, 0 complaints"]),
        ("more than is allowed", Event::Fetched(too_large("part")), vec!["publish nothing, 1 complaints"]),
        ("reload is wanted", Event::ReloadWanted, vec!["read defaults"]),
        ("reload finds the same", Event::DefaultsRead(given("{}")), vec![]),
        ("reload finds nothing", Event::DefaultsRead(Source::Absent), vec![]),
        ("reload finds garbage", Event::DefaultsRead(given("[")), vec!["publish nothing, 1 complaints"]),
        (
            "reload may not read",
            Event::DefaultsRead(Source::Unreadable("no".into())),
            vec!["publish nothing, 1 complaints"],
        ),
        (
            "reload finds a setting",
            Event::DefaultsRead(given(r#"{"network_configuration": {"model": "m"}}"#)),
            vec!["store with cloud", "publish network, 0 complaints"],
        ),
        ("reload finds a hidden one", Event::DefaultsRead(given(first)), vec!["store with cloud"]),
        ("nothing to do yet", Event::DeadlinePassed, vec![]),
    ];
    for (case, event, expected) in table {
        let mut machine = started(None, given("{}"));
        let wanted = said(&mut machine, at(1), Event::Fetched(fetched(first)));
        assert_eq!(wanted, ["store with cloud", "publish advanced, 0 complaints"]);
        assert_eq!(said(&mut machine, at(1), Event::Stored(Ok(()))), [""; 0]);
        assert_eq!(machine.deadline(), None);
        assert_eq!(said(&mut machine, at(2), event), expected, "{case}");
    }
}

#[test]
fn an_answer_that_was_too_large_is_forgotten_with_the_next_good_one() {
    let good = fetched(r#"{"advanced_settings": {"disable_platform_server": true}}"#);
    let mut machine = started(None, Source::Absent);
    machine.step(at(1), Event::Fetched(Rc::clone(&good)));
    assert_eq!(said(&mut machine, at(2), Event::Fetched(too_large("part"))), ["publish nothing, 1 complaints"]);
    assert_eq!(said(&mut machine, at(3), Event::Fetched(too_large("part"))), [""; 0], "said once");
    assert_eq!(said(&mut machine, at(4), Event::Fetched(good)), ["publish nothing, 0 complaints"], "and kept already");
}

#[test]
fn a_store_that_failed_is_tried_again_and_holds_nothing_back() {
    let full = || Event::Stored(Err("could not write /root/config: no space".into()));
    let mut machine = started(None, Source::Absent);
    let news = Event::Fetched(fetched(r#"{"advanced_settings": {"debug": true}}"#));
    assert_eq!(said(&mut machine, at(1), news), ["store with cloud", "publish advanced, 0 complaints"]);
    assert_eq!(said(&mut machine, at(1), full()), ["publish nothing, 0 complaints, trouble"]);
    let again = at(1) + STORE_RETRY;
    assert_eq!(machine.deadline(), Some(again));

    assert_eq!(said(&mut machine, again, Event::DeadlinePassed), ["store with cloud"]);
    assert!(machine.deadline() > Some(again), "a deadline must move");
    assert_eq!(said(&mut machine, again, full()), [""; 0], "said once");
    assert_eq!(said(&mut machine, again + STORE_RETRY, Event::DeadlinePassed), ["store with cloud"]);
    assert_eq!(said(&mut machine, again + STORE_RETRY, Event::Stored(Ok(()))), ["publish nothing, 0 complaints"]);
    assert_eq!(machine.deadline(), None);
}

/// The shell on a simulated device, for one life of the agent.
struct Bench {
    sim: SimBoard,
    driver: Driver,
    fetched: Latest<Rc<FetchedConfig>>,
    reload: Mailbox<Reload>,
    sections: Sections,
    supervisor: Rc<Supervisor>,
}

impl Bench {
    fn new(sim: &SimBoard) -> Bench {
        let board = sim.switch_on();
        let driver = Driver::new(sim);
        let supervisor = Rc::new(Supervisor::new(&driver.executor(), &board.clock));
        let (fetched, sections) = (Latest::new(), Sections::default());
        let (reload, mail) = mailbox::outside(4);
        let ports = Ports {
            clock: board.clock,
            files: board.files,
            defaults: DEFAULTS.into(),
            cache: CACHE.into(),
            part_id: Rc::new(|| Some("part".into())),
            sections: sections.clone(),
            trace: Trace::default(),
        };
        let watch = fetched.watch();
        supervisor.start(Actor::Config, "config", |lifeline| {
            actor::run(Machine::new(CommandLine::default()), Inbox { fetched: watch, reload: mail, lifeline }, ports)
        });
        let bench = Bench { sim: sim.clone(), driver, fetched, reload, sections, supervisor };
        bench.settle();
        bench
    }

    fn settle(&self) -> Driven {
        self.driver.run_for(Duration::from_secs(1), || {})
    }

    fn hear(&self, text: &str) -> Driven {
        self.fetched.publish(fetched(text));
        self.settle()
    }

    fn server_version(&self) -> VersionSetting {
        self.sections.versions.get().unwrap().server.clone()
    }

    fn status(&self) -> ConfigStatus {
        self.sections.status.get().unwrap()
    }

    /// Lets every task go without a word.
    fn die(self) -> Driver {
        self.driver
    }

    fn stop(self) {
        let supervisor = Rc::clone(&self.supervisor);
        self.driver.block_on(async move { supervisor.stop(Duration::from_secs(5)).await });
        self.sim.end_life();
    }
}

fn exactly(version: &str) -> VersionSetting {
    VersionSetting::parse(version).unwrap()
}

fn pin(version: &str) -> String {
    format!("{{\"version_control\": {{\"platform-server\": \"{version}\"}}}}")
}

#[test]
fn a_restart_without_network_finds_the_configuration() {
    let sim = SimBoard::new(1);
    let bench = Bench::new(&sim);
    assert_eq!(bench.server_version(), exactly("stable"));
    assert_eq!(bench.status(), ConfigStatus::default());
    assert_eq!(sim.files.content(CACHE), None, "nothing to keep, nothing written");
    bench.hear(&pin("1.0.0"));
    assert_eq!(bench.server_version(), exactly("1.0.0"));
    let revision = bench.status().applied_revision;
    assert!(revision.is_some());
    assert_eq!(sim.files.access(CACHE), Some(Access::Private));
    bench.stop();

    let bench = Bench::new(&sim);
    assert_eq!(bench.server_version(), exactly("1.0.0"));
    assert_eq!(bench.status().applied_revision, revision);
    let writes = sim.files.writes();
    bench.hear(&pin("1.0.0"));
    assert_eq!(sim.files.writes(), writes, "the same configuration costs no write");
    bench.hear(&pin("newest"));
    assert_eq!(bench.server_version(), exactly("1.0.0"), "a bad value falls back across the restart");
    assert_eq!(bench.status().complaints.len(), 1);
    bench.stop();

    let bench = Bench::new(&sim);
    assert_eq!(bench.server_version(), exactly("1.0.0"), "and across another one");
    bench.stop();
}

#[test]
fn readers_hear_only_of_sections_that_changed() {
    let sim = SimBoard::new(2);
    let bench = Bench::new(&sim);
    let (mut versions, mut advanced) = (bench.sections.versions.watch(), bench.sections.advanced.watch());
    let seen = async move {
        versions.changed().await;
        advanced.changed().await;
        (versions, advanced)
    };
    let (mut versions, mut advanced) = bench.driver.block_on(seen);
    bench.hear(&pin("1.0.0"));
    let changed = bench.driver.block_on(async move { versions.changed().await });
    assert_eq!(changed.server, exactly("1.0.0"));
    let quiet = bench.driver.block_on(async move { smol::future::poll_once(advanced.changed()).await });
    assert!(quiet.is_none(), "advanced settings did not change");
    bench.stop();
}

#[test]
fn a_damaged_store_is_set_aside() {
    let sim = SimBoard::new(3);
    let bench = Bench::new(&sim);
    bench.hear(&pin("1.0.0"));
    bench.stop();

    sim.files.corrupt(CACHE, 20);
    let damaged = sim.files.content(CACHE);
    let bench = Bench::new(&sim);
    assert_eq!(bench.server_version(), exactly("stable"));
    assert_eq!(sim.files.content("/root/config.corrupt"), damaged);
    assert_eq!(sim.files.content(CACHE), None);
    bench.hear(&pin("1.1.0"));
    assert_eq!(bench.server_version(), exactly("1.1.0"));
    bench.stop();

    sim.files.put(CACHE, vec![b'x'; board::files::RECORD_BYTES_MAX + 1], Access::Private);
    let bench = Bench::new(&sim);
    assert_eq!(bench.server_version(), exactly("stable"), "one that is too large is no reason not to start");
    bench.stop();

    sim.files.refuse_reads(CACHE, io::ErrorKind::PermissionDenied);
    let bench = Bench::new(&sim);
    assert_eq!(bench.server_version(), exactly("stable"), "nor one that cannot be read");
    bench.stop();
}

#[test]
fn a_full_disk_is_reported_and_healed() {
    let sim = SimBoard::new(4);
    let bench = Bench::new(&sim);
    sim.files.refuse_writes(CACHE, io::ErrorKind::StorageFull);
    bench.hear(&pin("1.0.0"));
    assert_eq!(bench.server_version(), exactly("1.0.0"), "the owner's word counts on a full disk too");
    assert!(bench.status().trouble.is_some());
    sim.files.heal();
    bench.driver.run_for(STORE_RETRY * 2, || {});
    assert_eq!(bench.status().trouble, None);
    assert!(sim.files.content(CACHE).is_some());
    bench.stop();
}

#[test]
fn a_reload_reads_the_defaults_file_again() {
    let sim = SimBoard::new(5);
    sim.files.put(DEFAULTS, br#"{"agent": {"network_configuration": {"model": "one"}}}"#.to_vec(), Access::Readable);
    let bench = Bench::new(&sim);
    let model = |bench: &Bench| bench.sections.network.get().unwrap().model.to_string();
    assert_eq!(model(&bench), "one");
    for (content, expected, complaints) in [
        (&br#"{"network_configuration": {"model": "two"}}"#[..], "two", 0),
        (b"{\"network_configuration\": {\"model\": \"thr", "two", 1),
        (b"{}", "custom", 0),
    ] {
        sim.files.put(DEFAULTS, content.to_vec(), Access::Readable);
        assert_eq!(bench.reload.try_send(Reload), Ok(()));
        bench.settle();
        assert_eq!((&*model(&bench), bench.status().complaints.len()), (expected, complaints));
    }
    bench.stop();
}

#[test]
fn a_power_cut_leaves_the_old_configuration_or_the_new_one() {
    for reached in Reached::ALL {
        let sim = SimBoard::new(6);
        let bench = Bench::new(&sim);
        bench.hear(&pin("1.0.0"));
        sim.files.interrupt_at_write(1, Interruption::PowerCut, reached);
        assert_eq!(bench.hear(&pin("1.1.0")), Driven::Interrupted(Interruption::PowerCut));
        assert_eq!(bench.server_version(), exactly("1.0.0"), "{reached:?}: what is not stored is not published");
        let driver = bench.die();
        sim.cut_power();
        driver.bury();

        let bench = Bench::new(&sim);
        let expected = if reached == Reached::Everything { "1.1.0" } else { "1.0.0" };
        assert_eq!(bench.server_version(), exactly(expected), "{reached:?}");
        bench.stop();
    }
}

#[test]
fn nothing_published_shows_a_secret() {
    let text = r#"{"advanced_settings": {"platform_server_env": {"TOKEN": "planted-secret"}},
                   "additional_networks": {"n": {"type": "wifi", "ssid": "S", "psk": "planted-secret"}}}"#;
    let mut machine = started(None, Source::Absent);
    let shown = format!("{:?}", machine.step(at(1), Event::Fetched(fetched(text))));
    assert!(shown.contains("Store") && shown.contains("Publish") && !shown.contains("planted"), "{shown}");
}
