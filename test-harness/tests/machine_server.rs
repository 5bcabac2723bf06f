//! The real board, the real actor and a real process: what the machine server's actor promises, on this machine.
//!
//! No network and no fleet server: settings and commands come from the test. Every wait is for an event.

#![cfg(target_os = "linux")]

use std::{
    cell::Cell,
    io::{Read as _, Write as _},
    net::TcpStream,
    path::{Path, PathBuf},
    rc::Rc,
    time::Duration,
};

use actors::{
    cloud::RestartsWanted,
    kit::{
        latest::{Latest, Watch},
        lossy::{Reader, lossy},
        mailbox::{Mailbox, outside},
        supervise::Supervisor,
        trace::Trace,
    },
    logs::line::{Level, Line},
    maintenance::SystemWindows,
    rank::Actor,
    server::{
        Command, Phase, Program, Report,
        actor::{Inbox, Ports, run},
        launch::{ApiKey, Places, Presented},
        machine::Policy,
    },
};
use api::device_config::{Advanced, Minutes, Settings};
use board::{Clock, Wall, files::Files, host::Host as _, process::ProcessId};
use smol::{LocalExecutor, future::FutureExt as _};
use test_harness::real::{port::Port, stand_in};

/// Only reached when something is broken.
const PATIENCE: Duration = Duration::from_secs(60);
/// The agent's minute in these tests.
const MINUTE: Duration = Duration::from_secs(2);

/// One agent, as far as the machine server is concerned.
struct Agent {
    settings: Latest<Rc<Advanced>>,
    commands: Mailbox<Command>,
    restarts: Latest<RestartsWanted>,
    report: Watch<Report>,
    lines: Reader,
    supervisor: Supervisor,
    hand_over: Rc<Cell<bool>>,
    folder: PathBuf,
}

/// A folder for everything, and a port of its own.
struct Device {
    folder: tempfile::TempDir,
    port: Port,
}

impl Drop for Device {
    /// Whatever a failed test left running.
    fn drop(&mut self) {
        let record = std::fs::read_to_string(self.folder.path().join("machine-server")).unwrap_or_default();
        if let Some(pid) = record.lines().find_map(|line| line.strip_prefix("pid ")) {
            let _ = std::process::Command::new("kill").args(["-KILL", "--", &format!("-{pid}")]).status();
        }
    }
}

impl Device {
    fn new() -> Device {
        Device { folder: tempfile::tempdir().unwrap(), port: Port::reserve().unwrap() }
    }

    fn program(&self, version: &str, knobs: &[(&str, &str)]) -> Program {
        let path = self.folder.path().join(format!("stand-in-{version}"));
        stand_in::build_with(version, knobs, &path).unwrap();
        Program { version: version.into(), path }
    }

    fn settings(&self, environment: &[(&str, &str)]) -> Advanced {
        Advanced {
            server_status_url: self.port.url().into(),
            server_env: environment.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
            ..Rc::unwrap_or_clone(Settings::default().advanced)
        }
    }

    /// An agent lives as long as `life` takes; what it leaves behind is up to `life`.
    fn agent<T>(&self, life: impl AsyncFnOnce(&mut Agent) -> T) -> T {
        let executor = Rc::new(LocalExecutor::new());
        let pieces = board_linux::connect(&executor, &self.folder.path().join("run"), "platform").unwrap();
        let (clock, processes) = (pieces.clock as Rc<dyn Clock>, pieces.processes);
        let (settings, restarts, report, hand_over) = (Latest::new(), Latest::new(), Latest::new(), Rc::default());
        let (commands, mail) = outside(4);
        let (writer, lines) = lossy(256 * 1024);
        let supervisor = Supervisor::new(&executor, &clock);
        let ports = Ports {
            clock: Rc::clone(&clock),
            processes,
            fetch: Rc::new(board_portable::PortableFetch::new(String::new(), web::Tls::default())),
            files: Rc::new(board_portable::PortableFiles) as Rc<dyn Files>,
            executor: Rc::clone(&executor),
            places: Places {
                credentials: self.folder.path().join("platform.json"),
                folder: self.folder.path().to_owned(),
                record: self.folder.path().join("machine-server"),
            },
            identity: Rc::new(|| {
                let api_key = Some(ApiKey { id: "the id".into(), key: "the key".into() });
                Some(Presented { api_key, fingerprint: 1 })
            }),
            boot_id: pieces.host.facts().boot_id.clone(),
            windows: Rc::new(SystemWindows::new(Rc::new(board_portable::PortableFiles))),
            lines: writer,
            report: report.clone(),
            hand_over: Rc::clone(&hand_over),
            // Shown when a test fails.
            trace: Trace::watched(|entry| println!("{:?} {}", entry.at, entry.text)),
        };
        let told = report.clone();
        let (watch_settings, watch_restarts) = (settings.watch(), restarts.watch());
        supervisor.start(Actor::Server, "server", |lifeline| {
            let identity = Latest::new().watch();
            let inbox =
                Inbox { settings: watch_settings, commands: mail, restarts: watch_restarts, identity, lifeline };
            run(Policy::new(MINUTE, 7), inbox, ports)
        });
        let folder = self.folder.path().to_owned();
        let mut agent =
            Agent { settings, commands, restarts, report: report.watch(), lines, supervisor, hand_over, folder };
        let patience = async {
            smol::Timer::after(PATIENCE).await;
            panic!("nothing happened for {PATIENCE:?}: {:#?}", told.get())
        };
        smol::future::block_on(executor.run(life(&mut agent).or(patience)))
    }
}

impl Agent {
    /// The first report that satisfies `wanted`, from now on.
    async fn until(&mut self, wanted: impl Fn(&Report) -> bool) -> Report {
        loop {
            if let Some(report) = self.report.get().filter(&wanted) {
                return report;
            }
            self.report.changed().await;
        }
    }

    async fn running(&mut self) -> Report {
        self.until(|report| report.phase == Phase::Running).await
    }

    async fn line(&self, wanted: impl Fn(&Line) -> bool) -> Line {
        loop {
            let line = Line::decode(&self.lines.next().await).unwrap();
            if wanted(&line) {
                return line;
            }
        }
    }

    async fn start(&mut self, settings: Advanced, program: &Program) -> Report {
        self.settings.publish(Rc::new(settings));
        self.commands.send(Command::Run { opening: 1, program: Some(program.clone()) }).await;
        self.running().await
    }

    async fn stop(&self) {
        self.supervisor.stop(PATIENCE).await;
    }
}

/// Asks the stand-in, in a thread of its own: the agent goes on meanwhile.
async fn ask(url: &str, method: &str, path: &str) -> (u16, String) {
    let (place, question) =
        (url.strip_prefix("http://").unwrap().to_owned(), format!("{method} {path} HTTP/1.1\r\n\r\n"));
    smol::unblock(move || {
        let mut stream = TcpStream::connect(place).unwrap();
        stream.write_all(question.as_bytes()).unwrap();
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        let status = answer.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
        (status, answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default())
    })
    .await
}

fn lives(id: ProcessId) -> bool {
    std::fs::read_to_string(format!("/proc/{}/stat", id.pid))
        .is_ok_and(|stat| !stat.rsplit_once(')').is_some_and(|(_, rest)| rest.starts_with(" Z")))
}

async fn gone(pid: u32) {
    while lives(ProcessId { pid, start_ticks: 0 }) {
        smol::Timer::after(Duration::from_millis(2)).await;
    }
}

#[test]
fn it_runs_with_its_environment_and_so_do_its_children() {
    let device = Device::new();
    let program = device.program("1.0.0", &[]);
    device.agent(async |agent| {
        let report = agent.start(device.settings(&[("GREETING", "grüße")]), &program).await;
        assert_eq!(report.program, Some(program.clone()));
        assert_eq!(report.url, device.port.url());
        for path in ["/env/GREETING", "/child/env/GREETING"] {
            assert_eq!(ask(&report.url, "GET", path).await, (200, "grüße".into()));
        }
        assert_eq!(ask(&report.url, "GET", "/env/PLATFORM_API_KEY").await.1, "the key");
        assert_eq!(ask(&report.url, "GET", "/env/PLATFORM_API_KEY_ID").await.1, "the id");
        let path = std::env::var("PATH").unwrap();
        assert_eq!(ask(&report.url, "GET", "/child/env/PATH").await.1, path, "the agent's own");

        // Changed: restarted once it permits, and not before.
        ask(&report.url, "POST", "/behave/refuse-restart/true").await;
        agent.settings.publish(Rc::new(device.settings(&[("OTHER", "1")])));
        let waiting = agent.until(|report| report.restart_pending.contains("does not allow")).await;
        assert_eq!(waiting.process, report.process);
        ask(&report.url, "POST", "/behave/refuse-restart/false").await;
        let after = agent.until(|after| after.phase == Phase::Running && after.process != report.process).await;
        assert_eq!(ask(&after.url, "GET", "/env/GREETING").await.0, 404, "removed");
        assert_eq!(ask(&after.url, "GET", "/child/env/OTHER").await.1, "1");
        assert_eq!((after.crashes, after.restart_pending.as_str()), (0, ""), "{after:#?}");

        agent.stop().await;
        assert!(!lives(after.process.unwrap()), "the agent's end is its end");
    });
}

#[test]
fn it_is_found_ready_by_asking_when_it_does_not_say_so() {
    let device = Device::new();
    let program = device.program("1.0.0", &[("says-serving", "false"), ("ready-after-ms", "300")]);
    device.agent(async |agent| {
        let report = agent.start(device.settings(&[]), &program).await;
        assert_eq!(report.url, device.port.url());
        assert!(report.ready_at > report.started_at);
        agent.stop().await;
    });
}

#[test]
fn a_crash_is_answered_at_once_told_and_cleaned_up_after() {
    let device = Device::new();
    let program = device.program("1.0.0", &[("children", "1")]);
    device.agent(async |agent| {
        let before = agent.start(device.settings(&[]), &program).await;
        let child = agent.line(|line| line.logger == "stand_in.children").await.text;
        let child: u32 = child.split(' ').nth(1).unwrap().parse().unwrap();
        ask(&before.url, "POST", "/say/error/last-words").await;
        ask(&before.url, "POST", "/behave/crash/SEGV").await;
        let after = agent.until(|report| report.crashes == 1).await;
        assert_ne!(after.phase, Phase::WaitingToRestart, "no wait before the first restart");
        assert_eq!(after.last_exit, "signal 11 (SIGSEGV)");
        assert!(after.last_lines.contains(&"last-words".to_owned()), "{:?}", after.last_lines);
        gone(child).await;
        let after = agent.running().await;
        assert_ne!(after.process, before.process);
        assert!(after.started_at > before.started_at);
        agent.stop().await;
    });
}

#[test]
fn who_never_gets_ready_is_killed_with_its_children() {
    let device = Device::new();
    let program = device.program("1.0.0", &[("never-ready", "true"), ("children", "1"), ("ignore-sigterm", "true")]);
    device.agent(async |agent| {
        let impatient = Advanced { server_start_timeout: Minutes(1), ..device.settings(&[]) };
        agent.settings.publish(Rc::new(impatient));
        agent.commands.send(Command::Run { opening: 1, program: Some(program.clone()) }).await;
        let first = agent.until(|report| report.process.is_some()).await;
        let child = agent.line(|line| line.logger == "stand_in.children").await.text;
        let child: u32 = child.split(' ').nth(1).unwrap().parse().unwrap();
        let second = agent.until(|report| report.process.is_some() && report.process != first.process).await;
        // This one has longer, so that there is no third.
        agent.settings.publish(Rc::new(device.settings(&[])));
        assert!(!lives(first.process.unwrap()));
        gone(child).await;
        assert!(second.last_exit.contains("not ready"), "{}", second.last_exit);
        // It hears no SIGTERM; the test does not wait two minutes for the agent to lose patience.
        agent.settings.publish(Rc::new(Advanced { disable_server: true, ..device.settings(&[]) }));
        let stopping = agent.until(|report| report.phase == Phase::Stopping).await;
        assert_eq!(stopping.process, second.process);
        let group = format!("-{}", second.process.unwrap().pid);
        assert!(std::process::Command::new("kill").args(["-KILL", "--", &group]).status().unwrap().success());
        agent.until(|report| report.phase == Phase::Disabled).await;
        agent.stop().await;
    });
}

#[test]
fn an_operator_s_restart_lets_another_version_in() {
    let device = Device::new();
    let (old, new) = (device.program("1.0.0", &[]), device.program("1.1.0", &[]));
    device.agent(async |agent| {
        let before = agent.start(device.settings(&[]), &old).await;
        assert_eq!(ask(&before.url, "GET", "/version").await.1, "1.0.0");
        agent.restarts.publish(RestartsWanted(1));
        let opening = agent.until(|report| report.opening == 2).await;
        assert_eq!((opening.phase, opening.process), (Phase::NoVersion, None));
        agent.commands.send(Command::Run { opening: 2, program: Some(new.clone()) }).await;
        let after = agent.running().await;
        assert_eq!((after.operator_restarts, after.program), (1, Some(new.clone())));
        assert_eq!(ask(&after.url, "GET", "/version").await.1, "1.1.0");
        agent.stop().await;
    });
}

#[test]
fn the_next_agent_finds_it_and_hears_what_it_said_meanwhile() {
    let device = Device::new();
    let program = device.program("1.0.0", &[]);
    let before = device.agent(async |agent| {
        let report = agent.start(device.settings(&[]), &program).await;
        agent.hand_over.set(true);
        agent.stop().await;
        report
    });
    assert!(lives(before.process.unwrap()), "handed over");
    smol::block_on(ask(&before.url, "POST", "/say/warn/nobody-listens"));
    device.agent(async |agent| {
        agent.settings.publish(Rc::new(device.settings(&[])));
        let adopted = agent.running().await;
        assert_eq!((adopted.opening, adopted.process), (0, before.process));
        assert_eq!(
            (adopted.started_at, adopted.ready_at, &adopted.url),
            (before.started_at, before.ready_at, &before.url)
        );
        assert_eq!(agent.line(|line| line.text == "nobody-listens").await.level, Level::Warn);
        ask(&adopted.url, "POST", "/behave/crash/3").await;
        let after = agent.until(|report| report.crashes == 1).await;
        assert_ne!(after.process, before.process);
        assert_eq!(after.program, Some(program.clone()));
        agent.running().await;
        agent.stop().await;
    });
    // Dead, and recorded as such: the next start is an opening.
    device.agent(async |agent| {
        agent.settings.publish(Rc::new(device.settings(&[])));
        let report = agent.until(|report| report.opening == 1).await;
        assert_eq!((report.process, report.crashes), (None, 1));
        // Nobody answers: what ran before runs.
        assert_eq!(agent.running().await.program, Some(program.clone()));
        agent.stop().await;
    });
}

#[test]
fn one_whose_agent_was_killed_before_it_wrote_is_found_with_everything_that_was_not_written() {
    let device = Device::new();
    let program = device.program("1.0.0", &[]);
    let record = device.folder.path().join("machine-server");
    let (first, before_crash) = device.agent(async |agent| {
        let first = agent.start(device.settings(&[]), &program).await;
        let before_crash = std::fs::read(&record).unwrap();
        ask(&first.url, "POST", "/behave/crash/3").await;
        let second = agent.until(|report| report.crashes == 1 && report.phase == Phase::Running).await;
        agent.hand_over.set(true);
        agent.stop().await;
        (second, before_crash)
    });
    // As if the agent had died between the second start and its record, and then between the first and its record.
    for record_then in [Some(before_crash), None] {
        match record_then {
            Some(bytes) => std::fs::write(&record, bytes).unwrap(),
            None => std::fs::remove_file(&record).unwrap(),
        }
        device.agent(async |agent| {
            agent.settings.publish(Rc::new(device.settings(&[])));
            let adopted = agent.running().await;
            assert_eq!((adopted.opening, adopted.process), (0, first.process));
            assert_eq!((adopted.program, adopted.crashes, adopted.crashes_of_program), (Some(program.clone()), 1, 1));
            assert_eq!(adopted.restart_pending, "", "its environment is known");
            let recorded = std::fs::read_to_string(&record).unwrap();
            assert!(recorded.contains(&format!("\npid {}\n", first.process.unwrap().pid)), "{recorded}");
            agent.hand_over.set(true);
            agent.stop().await;
        });
    }
    device.agent(async |agent| {
        agent.settings.publish(Rc::new(device.settings(&[])));
        agent.running().await;
        agent.stop().await;
    });
    assert!(!lives(first.process.unwrap()));
}

#[test]
fn lines_keep_their_level_time_logger_and_place() {
    let device = Device::new();
    let program = device.program("1.0.0", &[("flood-lines", "2000"), ("long-line-bytes", "5000")]);
    device.agent(async |agent| {
        let report = agent.start(device.settings(&[]), &program).await;
        let (mut flood, mut long) = (0, String::new());
        while long.len() < 5000 {
            let line = agent.line(|line| line.logger.starts_with("stand_in.")).await;
            assert_eq!(line.file, "machine_server.rs");
            assert!(line.line > 0 && line.at > Wall::from_millis(1_700_000_000_000));
            match line.logger.as_str() {
                "stand_in.flood" => {
                    flood += 1;
                    assert_eq!((line.text, line.level), (format!("flood {flood}"), Level::Info));
                }
                "stand_in.long" => {
                    assert_eq!(line.level, Level::Warn);
                    long += &line.text;
                }
                _ => {}
            }
        }
        assert_eq!((flood, long), (2000, "0123456789".repeat(500)));
        assert_eq!(report.crashes, 0, "{report:#?}");
        agent.stop().await;
    });
}

#[test]
fn what_cannot_run_is_reported_and_a_better_one_takes_its_place() {
    let device = Device::new();
    let good = device.program("1.1.0", &[]);
    let bad = Program { version: "1.0.0".into(), path: write_text(device.folder.path()) };
    device.agent(async |agent| {
        agent.settings.publish(Rc::new(device.settings(&[])));
        agent.commands.send(Command::Run { opening: 1, program: Some(bad.clone()) }).await;
        let report = agent.until(|report| report.phase == Phase::WaitingToRestart).await;
        assert!(report.last_exit.contains("it is not an executable for this machine"), "{}", report.last_exit);
        agent.commands.send(Command::Switch { program: good.clone() }).await;
        assert_eq!(agent.running().await.program, Some(good.clone()));
        assert!(agent.folder.join("machine-server").is_file());
        agent.stop().await;
    });
}

fn write_text(folder: &Path) -> PathBuf {
    let path = folder.join("text");
    test_executables::write(&path, b"not a program").unwrap();
    path
}
