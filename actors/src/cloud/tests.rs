//! Rows of the machine, and the actor on a simulated device against a fleet server of a few lines.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::Duration,
};

use api::pb::platform::{
    app::{
        agent::v1::{DeviceAgentConfigRequest, DeviceAgentConfigResponse, UpdateInfo},
        v1::{NeedsRestartRequest, NeedsRestartResponse},
    },
    fleet::v1::{
        AgentStatus, Product, ReportRequest, ReportResponse, UpdateRetry, UpdateStatus, UploadLogsRequest,
        UploadLogsResponse,
    },
};
use async_trait::async_trait;
use board::Mono;
use board_sim::{Driver, SimBoard};

use super::{
    Acknowledged, FetchedConfig, Reach, RestartsWanted, Retries,
    actor::{self, Inbox, Ports},
    calls::{Answers, Plan, Report},
    machine::{BatchKey, Effect, Event, Machine},
    port::{Cloud, CloudError},
    sources::Sources,
};
use crate::{
    config::ConfigStatus,
    kit::{
        latest::{Latest, Watch},
        mailbox,
        supervise::Supervisor,
        trace::Trace,
    },
    logs::{Offered, SpoolStatus, frame::Lost},
    rank::Actor,
    server,
};

const NOTHING: Plan = Plan { config: false, report: Report::No, unheard: false, restart: false, upload: false };
/// What an ordinary wake-up calls.
const POLL: Plan = Plan { config: true, report: Report::IfChanged, restart: true, ..NOTHING };
/// Nobody knows what the last agent was told about restarts.
const FIRST: Plan = Plan { config: true, report: Report::Always, unheard: true, ..NOTHING };

fn at(millis: u64) -> Mono {
    Mono::from_nanos(millis * 1_000_000)
}

fn seconds(count: i64) -> prost_types::Duration {
    prost_types::Duration { seconds: count, nanos: 0 }
}

fn response(version: &str) -> DeviceAgentConfigResponse {
    DeviceAgentConfigResponse {
        check_interval: Some(seconds(5)),
        agent_update_info: Some(UpdateInfo { version: version.into(), ..UpdateInfo::default() }),
        ..DeviceAgentConfigResponse::default()
    }
}

fn fetched(version: &str) -> FetchedConfig {
    FetchedConfig::of("part-1", response(version))
}

fn five() -> Option<Duration> {
    Some(Duration::from_secs(5))
}

/// All is well and nothing is new.
fn fine() -> Answers {
    Answers { config: Some(Ok((fetched("1"), five()))), restart: Some(Ok((false, five()))), ..Answers::default() }
}

fn answered(answers: Answers) -> Event {
    Event::Answered(Box::new(answers))
}

fn failed(error: CloudError) -> Event {
    answered(Answers { config: Some(Err(error)), ..Answers::default() })
}

fn told() -> Option<Result<Retries, CloudError>> {
    Some(Ok(Rc::from([])))
}

fn done(operator_restarts: u64) -> Event {
    Event::MachineServer { operator_restarts, handles_needs_restart: false }
}

fn silent() -> CloudError {
    CloudError::Unreachable { reason: "connection refused".into() }
}

fn refused() -> CloudError {
    CloudError::CredentialsRefused { reason: "no such secret".into() }
}

fn no_identity() -> CloudError {
    CloudError::NoIdentity { reason: "no such file".into() }
}

fn unimplemented() -> CloudError {
    CloudError::Refused { code: 12, reason: "unimplemented".into() }
}

fn batch(number: u64) -> Option<BatchKey> {
    Some(BatchKey { spool_id: "s".into(), number })
}

fn kept(number: u64) -> Acknowledged {
    Acknowledged { spool_id: "s".into(), number }
}

/// A machine that has reached the server at `at(0)` and waits for `at(5_000)`.
fn reached() -> Machine {
    let mut machine = Machine::new(1);
    assert_eq!(machine.step(at(0), Event::Started(RestartsWanted(3)))[..], [Effect::Call(FIRST)]);
    assert_eq!(machine.step(at(0), done(3))[..], []);
    let first = Answers { restart: None, reported: told(), ..fine() };
    assert_eq!(
        machine.step(at(0), answered(first))[..],
        [Effect::Configure(fetched("1")), Effect::Tell(Reach::Reached, None)]
    );
    assert_eq!(machine.deadline(), Some(at(5_000)));
    machine
}

#[test]
fn an_ordinary_day() {
    let mut machine = reached();
    let upload = Plan { upload: true, ..NOTHING };
    let uploaded = |number| answered(Answers { uploaded: Some(Ok(kept(number))), ..Answers::default() });
    let quiet = || answered(fine());
    let wants = || answered(Answers { restart: Some(Ok((true, five()))), ..fine() });
    let handles = |handles_needs_restart| Event::MachineServer { operator_restarts: 4, handles_needs_restart };
    let table = [
        // case                                 ms      event                   effects                                             deadline
        ("time has come", 5_000, Event::DeadlinePassed, vec![Effect::Call(POLL)], None),
        ("nothing new", 5_100, quiet(), vec![], Some(10_100)),
        ("a batch is delivered at once", 6_000, Event::Offered(batch(1)), vec![Effect::Call(upload)], None),
        ("the next waits for its offer", 6_050, uploaded(1), vec![Effect::Acknowledge(kept(1))], Some(10_100)),
        ("which follows at once", 6_050, Event::Offered(batch(2)), vec![Effect::Call(upload)], None),
        ("something changes meanwhile", 6_060, Event::StatusChanged, vec![], None),
        ("it is reported soon", 6_100, uploaded(2), vec![Effect::Acknowledge(kept(2))], Some(7_060)),
        ("no batch", 6_100, Event::Offered(None), vec![], Some(7_060)),
        (
            "the report",
            7_060,
            Event::DeadlinePassed,
            vec![Effect::Call(Plan { report: Report::IfChanged, ..NOTHING })],
            None,
        ),
        ("it was news", 7_100, answered(Answers { reported: told(), ..Answers::default() }), vec![], Some(10_100)),
        ("again a change: not at once", 7_200, Event::StatusChanged, vec![], Some(10_100)),
        ("what is almost due goes along", 10_100, Event::DeadlinePassed, vec![Effect::Call(POLL)], None),
        ("a restart is wanted", 10_200, wants(), vec![Effect::Restart(RestartsWanted(4))], Some(15_200)),
        (
            "nobody asks before it is done",
            14_900,
            Event::Offered(batch(3)),
            vec![Effect::Call(Plan { restart: false, upload: true, ..POLL })],
            None,
        ),
        (
            "another configuration",
            15_000,
            answered(Answers {
                config: Some(Ok((fetched("2"), Some(Duration::from_millis(1))))),
                uploaded: Some(Ok(kept(3))),
                ..Answers::default()
            }),
            vec![Effect::Configure(fetched("2")), Effect::Acknowledge(kept(3))],
            Some(16_000),
        ),
        ("no batch waits", 15_000, Event::Offered(None), vec![], Some(16_000)),
        (
            "not more often than each second",
            16_000,
            Event::DeadlinePassed,
            vec![Effect::Call(Plan { restart: false, ..POLL })],
            None,
        ),
        (
            "nor ever silent for long",
            16_000,
            answered(Answers {
                config: Some(Ok((fetched("2"), Some(Duration::from_secs(86_400))))),
                ..Answers::default()
            }),
            vec![],
            Some(607_100),
        ),
        ("it is done: asked at once", 16_500, done(4), vec![Effect::Call(Plan { restart: true, ..NOTHING })], None),
        (
            "one mark was one restart",
            16_500,
            answered(Answers { restart: Some(Ok((false, five()))), ..Answers::default() }),
            vec![],
            Some(17_500),
        ),
        ("it asks for itself from now on", 17_000, handles(true), vec![], Some(17_500)),
        (
            "nobody else asks",
            17_500,
            Event::DeadlinePassed,
            vec![Effect::Call(Plan { report: Report::IfChanged, ..NOTHING })],
            None,
        ),
        ("nothing to tell", 17_500, answered(Answers::default()), vec![], Some(607_100)),
    ];
    for (case, ms, event, effects, deadline) in table {
        assert_eq!(machine.step(at(ms), event)[..], effects, "{case}");
        assert_eq!(machine.deadline(), deadline.map(at), "{case}");
    }
    // Ten minutes after the last report there is another, whatever has changed.
    let effects = machine.step(at(607_100), Event::DeadlinePassed);
    assert_eq!(effects[..], [Effect::Call(Plan { report: Report::Always, ..NOTHING })]);
}

#[test]
fn another_mistake_in_the_credentials_file_is_told() {
    let wrong = |reason: &str| failed(CloudError::NoIdentity { reason: reason.into() });
    let silent = |reason: &str| failed(CloudError::Unreachable { reason: reason.into() });
    let table = [
        ("the first", wrong("no such file"), true),
        ("the same", wrong("no such file"), false),
        ("another", wrong("is not JSON"), true),
        ("put right, and the network is bad", silent("nothing listens there"), true),
        ("bad in another way", silent("no answer"), false),
        ("and wrong again", wrong("is not JSON"), true),
    ];
    let mut machine = Machine::new(7);
    machine.step(Mono::BOOT, Event::Started(RestartsWanted(0)));
    for (case, event, expected) in table {
        let told = machine.step(Mono::BOOT, event).iter().any(|effect| matches!(effect, Effect::Tell(..)));
        assert_eq!(told, expected, "{case}");
    }
}

#[test]
fn failures_are_waited_out_and_told_once() {
    type Fails = fn() -> CloudError;
    let table: [(Fails, Reach, u64); 3] = [
        (silent, Reach::Unreachable, 60_000),
        (refused, Reach::CredentialsRefused, 600_000),
        (no_identity, Reach::NoIdentity, 10_000),
    ];
    for (error, reach, longest) in table {
        let mut machine = reached();
        let mut now = at(5_000);
        machine.step(now, Event::DeadlinePassed);
        assert_eq!(machine.step(now, failed(error()))[..], [Effect::Tell(reach, Some(error()))]);
        let mut delay = Duration::ZERO;
        for _ in 0..20 {
            let mut due = machine.deadline().expect("it is tried again");
            let mut looks = 0;
            // News in between wait with everything else.
            assert_eq!(machine.step(now, Event::StatusChanged)[..], []);
            machine.step(now, Event::Offered(None));
            assert_eq!(machine.step(now, Event::Offered(batch(1)))[..], []);
            let mut effects = machine.step(due, Event::DeadlinePassed);
            while effects[..] == [Effect::Look] {
                looks += 1;
                due = machine.deadline().expect("it is tried again");
                effects = machine.step(due, Event::DeadlinePassed);
            }
            delay = due.since(now);
            // Whoever puts other credentials there need not wait for the next call.
            let looked = reach == Reach::CredentialsRefused && delay > Duration::from_secs(10);
            assert_eq!(looks > 0, looked, "{looks} looks in {delay:?}");
            effects.retain(|effect| *effect != Effect::Look);
            assert!(delay >= Duration::from_millis(500) && delay <= Duration::from_millis(longest), "{delay:?}");
            now = due;
            assert!(matches!(effects[..], [Effect::Call(Plan { config: true, .. })]), "{effects:?}");
            assert_eq!(machine.step(now, failed(error()))[..], [], "told once");
        }
        assert!(delay >= Duration::from_millis(longest / 2), "{delay:?} is not the cap");
        // Somebody knows better.
        let effects = machine.step(now, Event::Poked);
        assert!(matches!(effects[..], [Effect::Call(Plan { config: true, restart: true, upload: true, .. })]));
        let fine = Answers { uploaded: Some(Ok(kept(1))), reported: told(), ..fine() };
        let effects = machine.step(now, answered(fine));
        assert_eq!(effects[..], [Effect::Acknowledge(kept(1)), Effect::Tell(Reach::Reached, None)]);
        // And the next failure is met with a short wait again.
        let effects = machine.step(now + Duration::from_secs(1), Event::Poked);
        assert!(matches!(effects[..], [Effect::Call(_)]), "{effects:?}");
        now = now + Duration::from_secs(1);
        machine.step(now, failed(error()));
        assert!(machine.deadline().expect("tried again").since(now) <= Duration::from_secs(1));
    }
}

#[test]
fn one_mark_is_one_restart_whatever_gets_lost() {
    let wants = |must_restart| Some(Ok((must_restart, five())));
    let plan_at = |machine: &mut Machine, ms, event| match &machine.step(at(ms), event)[..] {
        [Effect::Call(plan)] => *plan,
        other => panic!("{ms} ms: {other:?}"),
    };
    let mut machine = reached();
    // The counter was lost: it goes on from what has been done.
    machine.step(at(0), done(8));
    plan_at(&mut machine, 5_000, Event::DeadlinePassed);
    let effects = machine.step(at(5_000), answered(Answers { restart: wants(true), reported: told(), ..fine() }));
    assert_eq!(effects[..], [Effect::Restart(RestartsWanted(9))]);
    // While it is under way there is nothing to ask.
    for ms in [10_000, 15_000] {
        let plan = plan_at(&mut machine, ms, Event::DeadlinePassed);
        assert!(!plan.restart && !plan.unheard, "{plan:?}");
        machine.step(at(ms), answered(Answers { restart: None, ..fine() }));
    }
    // It is done: asked at once, and this time the answer gets lost.
    assert!(plan_at(&mut machine, 16_000, done(9)).restart);
    machine.step(at(16_000), answered(Answers { restart: Some(Err(silent())), ..Answers::default() }));
    // The report that says so comes first, whether or not anything else is new.
    let due = machine.deadline().expect("it is tried again");
    let Effect::Call(plan) = machine.step(due, Event::DeadlinePassed)[0].clone() else { panic!("a call is due") };
    assert_eq!(plan, Plan { report: Report::Always, unheard: true, ..POLL });
    // Both get through: it is a mark after all.
    let both = Answers { restart: wants(true), reported: told(), ..fine() };
    let effects = machine.step(due, answered(both));
    assert_eq!(effects[..], [Effect::Restart(RestartsWanted(10)), Effect::Tell(Reach::Reached, None)]);
    machine.step(due, done(10));
    let due = machine.deadline().expect("there is always something to do");
    let Effect::Call(plan) = machine.step(due, Event::DeadlinePassed)[0].clone() else { panic!("a call is due") };
    assert!(!plan.unheard, "{plan:?}");

    // Before the machine server's keeper has spoken nobody knows what is under way.
    let mut machine = Machine::new(1);
    machine.step(at(0), Event::Started(RestartsWanted(1)));
    machine.step(at(100), answered(Answers { restart: None, reported: told(), ..fine() }));
    assert_eq!(plan_at(&mut machine, 5_100, Event::DeadlinePassed), Plan { restart: false, ..POLL });
}

#[test]
fn a_device_in_trouble_reports_every_minute_and_hears_what_to_try_again() {
    let retry = UpdateRetry { product: Product::MachineServer.into(), edition: 5 };
    let mut machine = reached();
    let reports = |machine: &mut Machine, from: u64, until: u64, retries: &Retries| {
        let (mut reports, mut heard) = (0, 0);
        while let Some(due) = machine.deadline().filter(|due| *due < at(until)) {
            let due = due.max(at(from));
            for effect in machine.step(due, Event::DeadlinePassed) {
                let Effect::Call(plan) = effect else { panic!("{effect:?}") };
                let always = plan.report == Report::Always;
                reports += u32::from(always);
                let reported = always.then(|| Ok(Rc::clone(retries)));
                let effects = machine.step(due, answered(Answers { reported, ..fine() }));
                heard += effects.iter().filter(|effect| matches!(effect, Effect::Retry(_))).count();
            }
        }
        (reports, heard)
    };
    let none: Retries = Rc::from([]);
    assert_eq!(reports(&mut machine, 0, 1_203_000, &none), (2, 0), "in twenty minutes");
    machine.step(at(1_203_000), Event::Updates { in_trouble: true });
    assert_eq!(reports(&mut machine, 1_203_000, 1_803_000, &Rc::from([retry])), (10, 10));
    machine.step(at(1_803_000), Event::Updates { in_trouble: false });
    let (calm, _) = reports(&mut machine, 1_803_000, 3_003_000, &none);
    assert!(calm <= 3, "{calm} in twenty minutes");
}

#[test]
fn a_server_that_lacks_a_service_is_still_reached() {
    let mut machine = reached();
    machine.step(at(4_000), Event::Offered(batch(1)));
    let nothing_works = || Answers {
        config: Some(Ok((fetched("1"), five()))),
        restart: Some(Err(unimplemented())),
        reported: Some(Err(unimplemented())),
        uploaded: Some(Err(unimplemented())),
    };
    let effects = machine.step(at(4_000), answered(nothing_works()));
    let named: Vec<_> = effects.iter().map(|effect| matches!(effect, Effect::Complain(..))).collect();
    assert_eq!(named, [true, true, true]);
    assert_eq!(machine.reach(), Reach::Reached);
    // An hour later nothing has been told twice, and what is refused is asked about rarely.
    let (mut calls, mut uploads, mut restarts) = (0, 0, 0);
    while let Some(due) = machine.deadline().filter(|due| *due < at(3_600_000)) {
        for effect in machine.step(due, Event::DeadlinePassed) {
            let Effect::Call(plan) = effect else { panic!("{effect:?}") };
            calls += 1;
            uploads += u32::from(plan.upload);
            restarts += u32::from(plan.restart);
            let answers = Answers {
                restart: plan.restart.then_some(Err(unimplemented())),
                reported: (plan.report != Report::No).then_some(Err(unimplemented())),
                uploaded: plan.upload.then_some(Err(unimplemented())),
                ..fine()
            };
            assert_eq!(machine.step(due, answered(answers))[..], [], "told once");
            assert_eq!(machine.step(due, Event::StatusChanged)[..], []);
        }
    }
    assert!((690..760).contains(&calls), "{calls} wake-ups in an hour at 5 s");
    assert!(uploads < 25 && restarts < 25, "{uploads} uploads, {restarts} questions");
}

#[test]
fn a_server_that_acknowledges_what_nobody_sent_is_not_flooded() {
    let mut machine = reached();
    let mut uploads = 0;
    // The spool takes another name each time, and offers the same lines again.
    let offer = |machine: &mut Machine, name: u32, now| {
        let spool_id = name.to_string().as_str().into();
        machine.step(now, Event::Offered(Some(BatchKey { spool_id, number: 1 })))
    };
    let mut effects = offer(&mut machine, 0, at(1_000));
    let mut now = at(1_000);
    while now < at(3_600_000) {
        for effect in effects {
            let Effect::Call(plan) = effect else { continue };
            let spool_id: Rc<str> = uploads.to_string().as_str().into();
            uploads += u32::from(plan.upload);
            let too_much = Acknowledged { spool_id, number: u64::MAX };
            machine.step(now, answered(Answers { uploaded: plan.upload.then_some(Ok(too_much)), ..fine() }));
            if plan.upload {
                offer(&mut machine, uploads, now);
            }
        }
        now = machine.deadline().expect("there is always something to do").max(now);
        effects = machine.step(now, Event::DeadlinePassed);
    }
    assert!((3..25).contains(&uploads), "{uploads} uploads in an hour");
}

#[test]
fn the_interval_of_the_checks_is_no_change_of_the_configuration() {
    let faster = DeviceAgentConfigResponse { check_interval: Some(seconds(1)), ..response("1") };
    assert_eq!(FetchedConfig::of("part-1", faster).revision, fetched("1").revision);
    assert_ne!(fetched("2").revision, fetched("1").revision);
}

/// A fleet server of a few lines.
#[derive(Default)]
struct Fleet {
    failure: RefCell<Option<CloudError>>,
    version: Cell<u32>,
    /// A part is marked; the first question is answered with yes, the second clears it, and so does a later start.
    marked: Cell<bool>,
    answered_yes: Cell<bool>,
    /// The next answer about restarts gets lost.
    loses_answer: Cell<bool>,
    retries: RefCell<Vec<UpdateRetry>>,
    reports: RefCell<Vec<ReportRequest>>,
    logs: RefCell<Vec<String>>,
    highest: Cell<u64>,
    calls: RefCell<Vec<&'static str>>,
    hangs: Cell<bool>,
}

impl Fleet {
    async fn called(&self, name: &'static str) -> Result<(), CloudError> {
        self.calls.borrow_mut().push(name);
        if self.hangs.get() {
            std::future::pending::<()>().await;
        }
        smol::future::yield_now().await;
        self.failure.borrow().clone().map_or(Ok(()), Err)
    }
}

#[async_trait(?Send)]
impl Cloud for Fleet {
    fn part_id(&self) -> Option<String> {
        Some("part-1".into())
    }

    async fn device_config(&self, request: DeviceAgentConfigRequest) -> Result<DeviceAgentConfigResponse, CloudError> {
        self.called("config").await?;
        assert_eq!(request.id, "part-1");
        assert_eq!(request.version_info.map(|versions| versions.agent_running), Some("9.9.9".into()));
        Ok(response(&self.version.get().to_string()))
    }

    async fn needs_restart(&self, _: NeedsRestartRequest) -> Result<NeedsRestartResponse, CloudError> {
        self.called("restart").await?;
        if self.answered_yes.replace(self.marked.get()) {
            self.marked.set(false);
            self.answered_yes.set(false);
        }
        if self.loses_answer.take() {
            return Err(silent());
        }
        let restart_check_interval = Some(seconds(5));
        Ok(NeedsRestartResponse { must_restart: self.marked.get(), restart_check_interval, ..Default::default() })
    }

    async fn report(&self, request: ReportRequest) -> Result<ReportResponse, CloudError> {
        self.called("report").await?;
        if request.restart_answer_lost {
            self.answered_yes.set(false);
        }
        self.reports.borrow_mut().push(request);
        Ok(ReportResponse { retries: self.retries.borrow().clone() })
    }

    async fn upload_logs(&self, request: UploadLogsRequest) -> Result<UploadLogsResponse, CloudError> {
        self.called("logs").await?;
        self.highest.set(request.batch_number);
        self.logs.borrow_mut().extend(request.logs.into_iter().map(|entry| entry.message));
        Ok(UploadLogsResponse { acknowledged: self.highest.get() })
    }
}

/// The actor on a simulated device.
struct Bench {
    sim: SimBoard,
    driver: Driver,
    fleet: Rc<Fleet>,
    supervisor: Rc<Supervisor>,
    poke: mailbox::Mailbox<()>,
    server: Latest<server::Report>,
    offered: Latest<Option<Offered>>,
    fetched: Watch<Rc<FetchedConfig>>,
    reach: Latest<Reach>,
    restarts: Latest<RestartsWanted>,
    retries: Latest<Retries>,
    updates: Latest<UpdateStatus>,
    acknowledged: Latest<Acknowledged>,
}

impl Bench {
    fn new(sim: &SimBoard, fleet: &Rc<Fleet>) -> Self {
        let board = sim.switch_on();
        let driver = Driver::new(sim);
        let supervisor = Rc::new(Supervisor::new(&driver.executor(), &board.clock));
        let (poke, pokes) = mailbox::outside(1);
        let (server, offered, fetched) = (Latest::new(), Latest::new(), Latest::new());
        let (reach, restarts, acknowledged) = (Latest::new(), Latest::new(), Latest::new());
        let (retries, updates) = (Latest::new(), Latest::new());
        let config = Latest::<ConfigStatus>::new().watch();
        let sources = Sources {
            board: board.clone(),
            root: "/root".into(),
            agent_version: "9.9.9".into(),
            started: board.clock.now(),
            agent: AgentStatus::default(),
            exposure: Rc::new(|| None),
            config: config.clone(),
            server: server.watch(),
            updates: vec![updates.watch()],
            spool: Latest::<SpoolStatus>::new().watch(),
            network: Latest::new().watch(),
            provisioning: Latest::new().watch(),
        };
        let ports = Ports {
            board,
            sources: Rc::new(sources),
            contact: Latest::new(),
            identity: Rc::new(|| 1),
            whose: Latest::new(),
            cloud: Rc::<Fleet>::clone(fleet),
            executor: driver.executor(),
            counter_file: "/root/restarts".into(),
            fetched: fetched.clone(),
            reach: reach.clone(),
            restarts: restarts.clone(),
            retries: retries.clone(),
            acknowledged: acknowledged.clone(),
            trace: Trace::default(),
        };
        supervisor.start(Actor::Cloud, "cloud", |lifeline| {
            let (server, offered, updates) = (server.watch(), offered.watch(), vec![updates.watch()]);
            let (network, stir, doors) = (Latest::new().watch(), Latest::new().watch(), Latest::new().watch());
            let inbox = Inbox { pokes, config, server, updates, offered, network, doors, stir, lifeline };
            actor::run(Machine::new(1), inbox, ports)
        });
        let (sim, fleet, fetched) = (sim.clone(), Rc::clone(fleet), fetched.watch());
        server.publish(server::Report::default());
        Bench {
            sim,
            driver,
            fleet,
            supervisor,
            poke,
            server,
            offered,
            fetched,
            reach,
            restarts,
            retries,
            updates,
            acknowledged,
        }
    }

    /// The machine server's keeper has carried out what was wanted.
    fn restarted(&self) {
        let operator_restarts = self.restarts.get().unwrap_or_default().0;
        self.server.publish(server::Report { operator_restarts, ..server::Report::default() });
    }

    fn run(&self, seconds: u64) {
        self.driver.run_for(Duration::from_secs(seconds), || {});
    }

    fn calls(&self) -> Vec<&'static str> {
        self.fleet.calls.take()
    }

    fn stop(self) {
        let supervisor = Rc::clone(&self.supervisor);
        self.driver.block_on(async move { supervisor.stop(Duration::from_secs(5)).await });
        self.sim.end_life();
    }
}

#[test]
fn a_device_lives_beside_its_fleet_server() {
    let (sim, fleet) = (SimBoard::new(1), Rc::new(Fleet::default()));
    let bench = Bench::new(&sim, &fleet);
    bench.run(1);
    assert_eq!(bench.calls(), ["config", "report"]);
    assert!(fleet.reports.borrow()[0].restart_answer_lost, "nobody knows what the last agent heard");
    assert_eq!(bench.reach.get(), Some(Reach::Reached));
    let first = bench.fetched.get().expect("fetched").revision;
    bench.run(60);
    assert_eq!(bench.calls(), ["config", "restart"].repeat(12), "nothing else is new");
    fleet.version.set(2);
    bench.server.publish(server::Report { crashes: 1, ..server::Report::default() });
    bench.run(6);
    assert_ne!(bench.fetched.get().expect("fetched").revision, first);
    let status = fleet.reports.borrow().last().and_then(|report| report.status.clone()).expect("reported");
    assert_eq!(status.server.map(|server| server.crashes), Some(1));
    assert_eq!(status.hostname, "bench-robot");
    bench.stop();
}

#[test]
fn a_mark_for_restart_is_one_restart_also_across_restarts_of_the_agent() {
    let (sim, fleet) = (SimBoard::new(1), Rc::new(Fleet::default()));
    let bench = Bench::new(&sim, &fleet);
    bench.run(1);
    assert_eq!(bench.restarts.get(), Some(RestartsWanted(0)));
    // The first answer gets lost.
    fleet.marked.set(true);
    fleet.loses_answer.set(true);
    bench.run(30);
    assert_eq!(bench.restarts.get(), Some(RestartsWanted(1)));
    assert!(fleet.marked.get(), "nobody asks before it is done");
    bench.stop();
    // The next agent finds it in the file, and is told again of what it does not count.
    let bench = Bench::new(&sim, &fleet);
    bench.run(30);
    assert_eq!((bench.restarts.get(), fleet.marked.get()), (Some(RestartsWanted(1)), true));
    bench.restarted();
    fleet.marked.set(false);
    bench.run(30);
    assert_eq!(bench.restarts.get(), Some(RestartsWanted(1)));

    // A disk that refuses holds no restart back.
    sim.files.refuse_writes("restarts", std::io::ErrorKind::StorageFull);
    fleet.marked.set(true);
    bench.run(30);
    assert_eq!(bench.restarts.get(), Some(RestartsWanted(2)));
    bench.restarted();
    bench.run(30);
    assert_eq!((bench.restarts.get(), fleet.marked.get()), (Some(RestartsWanted(2)), false));
    bench.stop();
}

#[test]
fn what_is_to_be_tried_again_is_handed_on() {
    let (sim, fleet) = (SimBoard::new(1), Rc::new(Fleet::default()));
    let bench = Bench::new(&sim, &fleet);
    bench.run(10);
    assert_eq!(bench.retries.get(), None);
    bench.updates.publish(UpdateStatus {
        wanted: "stable".into(),
        bad_versions: vec!["1.1.0".into()],
        ..UpdateStatus::default()
    });
    bench.run(10);
    let retry = UpdateRetry { product: Product::MachineServer.into(), edition: 7 };
    fleet.retries.replace(vec![retry; 100]);
    bench.run(66);
    assert_eq!(bench.retries.get().map(|retries| retries.to_vec()), Some(vec![retry; 4]), "and no more than that");
    bench.stop();
}

#[test]
fn a_batch_is_delivered_once_the_server_is_there() {
    let (sim, fleet) = (SimBoard::new(1), Rc::new(Fleet::default()));
    fleet.failure.replace(Some(silent()));
    let bench = Bench::new(&sim, &fleet);
    let offered = Offered {
        spool_id: "s".into(),
        number: 1,
        host: "h".into(),
        lost: Lost { lines: 2, bytes: 0 },
        lines: Rc::from([]),
    };
    bench.offered.publish(Some(offered.clone()));
    bench.run(600);
    assert_eq!((bench.reach.get(), bench.acknowledged.get()), (Some(Reach::Unreachable), None));
    assert!((10..40).contains(&bench.calls().len()), "it knocks less and less");
    fleet.failure.replace(None);
    bench.run(61);
    assert_eq!(bench.acknowledged.get(), Some(kept(1)));
    assert_eq!(*fleet.logs.borrow(), ["2 lines lost: the queue on disk was full"]);
    // The next goes at once, without waiting for the next check.
    bench.offered.publish(Some(Offered { number: 2, ..offered }));
    bench.run(0);
    assert_eq!(bench.acknowledged.get(), Some(kept(2)));
    bench.stop();
}

#[test]
fn a_server_that_hangs_keeps_nobody_from_stopping() {
    let (sim, fleet) = (SimBoard::new(1), Rc::new(Fleet::default()));
    fleet.hangs.set(true);
    let bench = Bench::new(&sim, &fleet);
    bench.run(3_600);
    assert_eq!(bench.calls(), ["config"]);
    assert!(bench.poke.try_send(()).is_ok());
    bench.run(1);
    bench.stop();
}
