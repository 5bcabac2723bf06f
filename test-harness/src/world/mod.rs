//! A whole world in one process: a device, its fleet server, the factory, time, and the agent as it is wired in
//! production.
//!
//! Owns the order of things: the agent runs until none of its tasks can move, the invariants are checked, then time
//! moves to the next moment at which anything would happen. Interruptions (a power cut, a kill) end a life of the agent
//! and begin the next one. The same seed and the same commit give the same chronicle.

pub mod chronicle;
pub mod cloud;
pub mod doors;
pub mod factory;
pub mod faults;
pub mod interruptions;
mod invariants;
pub mod launch;
pub mod life;
pub mod near;
pub mod person;
mod production;
pub mod trial;

use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    rc::Rc,
    time::Duration,
};

use api::brand;
use board::{files::Access, process::Exit};
use board_sim::{Driven, Driver, Interruption, SimBoard};

use chronicle::Chronicle;
use cloud::SimCloud;
use factory::Factory;
use invariants::Watcher;
use launch::{Agents, EXEC_TAKES};
use life::{Agent, CRASHES, HANDS_OVER, Life, Needs};

/// Time from a power cut to the next start of the agent.
pub const BOOT_TAKES: Duration = Duration::from_secs(15);
/// Time from the end of the agent to its next start: the launcher's doing.
pub const RESTART_TAKES: Duration = Duration::from_millis(200);
/// Lines of the chronicle shown with a failure.
const TAIL_LINES: usize = 60;

/// Where chance begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seed(pub u64);

/// What a test can lay hands on while the world runs.
#[derive(Clone)]
pub struct Hands {
    /// The device.
    pub board: SimBoard,
    /// The fleet server.
    pub cloud: SimCloud,
    /// Whoever makes machine servers.
    pub factory: Factory,
    /// What happened.
    pub chronicle: Chronicle,
    /// The versions of the agent, in a world with a launcher.
    pub agents: Agents,
}

/// The world.
pub struct World {
    /// Everything in it that a test can change.
    pub hands: Hands,
    agent: Agent,
    /// Agents are started by a launcher.
    launched: bool,
    life: Option<Life>,
    watcher: Watcher,
    seed: Seed,
    lives: u32,
}

impl std::ops::Deref for World {
    type Target = Hands;

    fn deref(&self) -> &Hands {
        &self.hands
    }
}

/// Minutes.
#[must_use]
pub const fn minutes(minutes: u64) -> Duration {
    Duration::from_secs(minutes * 60)
}

/// Hours.
#[must_use]
pub const fn hours(hours: u64) -> Duration {
    minutes(hours * 60)
}

/// Seconds.
#[must_use]
pub const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

impl World {
    /// A world in which `agent` will live. The device is online, has credentials and the factory's key, and nothing is
    /// installed; version 1.0.0 is stable, 1.2.0-dev is dev.
    #[must_use]
    pub fn with_agent(seed: Seed, agent: Agent) -> Self {
        let board = SimBoard::new(seed.0);
        let cloud = SimCloud::new(&board.clock, &board.web, &board.files, board.random.branch());
        let factory = Factory::new(&board.web, &board.platform());
        for version in ["1.0.0", "1.1.0", "1.2.0-dev"] {
            factory.release(version);
        }
        factory.channel("stable", "1.0.0");
        factory.channel("dev", "1.2.0-dev");
        let credentials = serde_json::json!({
            "cloud": {"app_address": factory::SERVER, "id": cloud::PART_ID, "secret": cloud::SECRET}
        });
        board.files.put(brand::CREDENTIALS_FILE, credentials.to_string(), Access::Private);
        let defaults = serde_json::json!({"advanced_settings": {"release_keys": [factory.public_key()]}});
        board.files.put(brand::DEFAULTS_FILE, defaults.to_string(), Access::Readable);
        let chronicle = Chronicle::new(&board.clock);
        let hands = Hands { board, cloud, factory, chronicle, agents: Agents::default() };
        World { hands, agent, launched: false, life: None, watcher: Watcher::default(), seed, lives: 0 }
    }

    /// The same with a launcher, and this version of the agent installed and stable.
    #[must_use]
    pub fn with_launcher(mut self, version: &str) -> Self {
        self.launched = true;
        self.agents.install(&self.board, version);
        self.factory.release_agent(version);
        self.factory.agent_channel("stable", version);
        self
    }

    /// Starts the agent. One that is interrupted while it is being made is started again, as its launcher would.
    ///
    /// # Panics
    /// When it lives already.
    pub fn start(&mut self) {
        assert!(self.life.is_none(), "the agent lives already");
        self.lives += 1;
        self.watcher.excused();
        let driver = Driver::new(&self.board);
        let board = self.board.switch_on();
        let started = catch_unwind(AssertUnwindSafe(|| {
            let wait = |time| self.elapse(time);
            let start = self.launched.then(|| self.agents.launch(&self.board, &board, wait));
            if let Some(start) = &start {
                let safe = if start.safe { " with --safe" } else { "" };
                let note = start.launched.note.as_deref().map(|note| format!(": {note}")).unwrap_or_default();
                self.chronicle.note(format!("agent {} starts{safe}{note}", start.version));
            }
            (self.agent)(Needs {
                board,
                cloud: Rc::new(self.cloud.clone()),
                executor: driver.executor(),
                trace: self.chronicle.trace(),
                seed: self.seed.0 ^ u64::from(self.lives),
                clock: self.board.clock.clone(),
                start,
            })
        }));
        match (started, self.board.files.take_interruption()) {
            (Ok(started), _) => self.life = Some(Life::begin(driver, started)),
            (Err(_), Some(by)) => self.interrupted(by),
            (Err(panicked), None) => resume_unwind(panicked),
        }
    }

    fn interrupted(&mut self, by: Interruption) {
        match by {
            Interruption::PowerCut => self.cut_power(),
            Interruption::Killed => self.kill_agent(),
        }
    }

    /// Lets something happen, `after` from now, while the world runs.
    pub fn after(&self, after: Duration, what: impl FnOnce(&Hands) + 'static) {
        let hands = self.hands.clone();
        self.board.clock.happens_after(after, move || what(&hands));
    }

    /// Runs for `time`. An agent that is interrupted is started again, as its launcher would.
    ///
    /// # Panics
    /// When an invariant breaks, when the agent ends unasked, or when one of its tasks panics; the chronicle's end is
    /// shown.
    pub fn run_for(&mut self, time: Duration) {
        let end = self.board.clock.elapsed() + time;
        loop {
            let left = end.saturating_sub(self.board.clock.elapsed());
            match self.drive(left) {
                Driven::Interrupted(by) => self.interrupted(by),
                Driven::Done => {
                    self.next_life();
                    if self.life.is_none() || self.board.clock.elapsed() >= end {
                        break;
                    }
                }
            }
        }
    }

    /// Runs until `done` says so, at most for `limit`; says whether it did.
    pub fn run_until(&mut self, limit: Duration, done: impl Fn(&Hands) -> bool) -> bool {
        let end = self.board.clock.elapsed() + limit;
        while !done(&self.hands) {
            let left = end.saturating_sub(self.board.clock.elapsed());
            if left.is_zero() {
                return false;
            }
            // Small enough steps that nobody cares, large enough that a day is quick.
            self.run_for(left.min(seconds(1)));
        }
        true
    }

    /// The power goes, and comes back.
    pub fn cut_power(&mut self) {
        self.chronicle.note("power cut");
        self.watcher.interrupted();
        // In this order: nothing may run between the cut and the end of the tasks.
        self.board.end_life();
        self.life = None;
        self.board.cut_power();
        self.pass(BOOT_TAKES);
        self.start();
    }

    /// The machine reboots because the agent asked for it.
    fn reboot(&mut self) {
        self.chronicle.note("device reboots");
        self.watcher.interrupted();
        self.board.end_life();
        self.life = None;
        self.board.cut_power();
        self.pass(BOOT_TAKES);
        self.start();
    }

    /// The agent is killed, and started again.
    pub fn kill_agent(&mut self) {
        self.chronicle.note("agent killed");
        self.watcher.interrupted();
        self.board.end_life();
        self.life = None;
        self.pass(RESTART_TAKES);
        self.start();
    }

    /// Asks the agent to end, waits until it has, and says how long that took. One that is interrupted meanwhile is
    /// started again, as its launcher would.
    ///
    /// # Panics
    /// When it has not ended after ten minutes.
    pub fn stop_agent(&mut self) -> Duration {
        let began = self.board.clock.elapsed();
        self.chronicle.note("agent asked to stop");
        self.life.as_ref().expect("only what lives can be stopped").ask_to_stop();
        loop {
            if let Driven::Interrupted(by) = self.drive(Duration::from_millis(10)) {
                self.interrupted(by);
                return self.board.clock.elapsed() - began;
            }
            if let Some(words) = self.life.as_mut().and_then(Life::last_words) {
                self.chronicle.note(format!("agent ended: {words}"));
                if words == HANDS_OVER {
                    // It was asked a moment too late, and the next one is asked.
                    self.become_the_next();
                    self.life.as_ref().expect("it was just started").ask_to_stop();
                    continue;
                }
                break;
            }
            let took = self.board.clock.elapsed() - began;
            assert!(took < minutes(10), "the agent does not stop\n{}", self.chronicle.tail(TAIL_LINES));
        }
        let took = self.board.clock.elapsed() - began;
        self.board.end_life();
        self.life = None;
        took
    }

    /// Stops the agent and starts it again.
    pub fn restart_agent(&mut self) {
        self.stop_agent();
        if self.life.is_none() {
            self.pass(RESTART_TAKES);
            self.start();
        }
    }

    /// Lets time pass without an agent.
    pub fn pass(&mut self, time: Duration) {
        assert!(self.life.is_none(), "an agent that lives cannot be passed over");
        self.elapse(time);
    }

    /// Time goes on without a turn for anybody on the device.
    fn elapse(&self, time: Duration) {
        let end = self.board.clock.elapsed() + time;
        loop {
            let left = end.saturating_sub(self.board.clock.elapsed());
            let next = self.board.clock.next_change().map_or(left, |next| next.min(left));
            self.board.clock.advance(next);
            if next == left {
                break;
            }
        }
    }

    /// The device sleeps, its processor included: time passes, and nothing runs until it is over.
    pub fn suspend(&mut self, time: Duration) {
        self.chronicle.note(format!("suspended for {time:?}"));
        self.elapse(time);
        self.watcher.excused();
    }

    /// The machine server dies of this.
    pub fn crash_server(&self, exit: Exit) {
        self.chronicle.note(format!("machine server ends: {exit:?}"));
        self.board.processes.crash(exit);
    }

    /// One bit of a program changes on the disk.
    pub fn rot(&mut self, path: impl AsRef<std::path::Path>, at: usize) {
        self.watcher.rotten();
        self.board.files.corrupt(path, at);
    }

    /// How often the agent was started.
    #[must_use]
    pub const fn lives(&self) -> u32 {
        self.lives
    }

    /// Compares the chronicle with what a scenario expects. `UPDATE_EXPECT=1` writes the expectation.
    pub fn expect_trace(&self, expected: &expect_test::Expect) {
        expected.assert_eq(&self.chronicle.render());
    }

    /// Starts the next life of an agent that ended by itself, if that is how it is meant.
    fn next_life(&mut self) {
        if self.board.power.is_due() {
            return self.reboot();
        }
        let Some(words) = self.life.as_mut().and_then(Life::last_words) else { return };
        if words == HANDS_OVER {
            self.become_the_next();
        } else if let Some(how) = words.strip_prefix(CRASHES) {
            self.chronicle.note(format!("agent crashes{how}"));
            self.watcher.interrupted();
            self.board.end_life();
            self.life = None;
            self.pass(RESTART_TAKES);
            self.start();
        } else {
            panic!("the agent ended by itself: {words}\n{}", self.chronicle.tail(TAIL_LINES));
        }
    }

    /// `exec`: the process stays, and so does everything it has open for the next one.
    fn become_the_next(&mut self) {
        self.chronicle.note("agent hands over");
        self.board.end_life();
        self.life = None;
        self.pass(EXEC_TAKES);
        self.start();
    }

    fn drive(&mut self, time: Duration) -> Driven {
        let Some(life) = &mut self.life else {
            self.pass(time);
            return Driven::Done;
        };
        let (hands, watcher) = (&self.hands, &mut self.watcher);
        life.driver.run_while(time, || {
            if let Err(wrong) = watcher.look(&hands.board, &hands.cloud) {
                panic!("{wrong}, after {:?}\n{}", hands.board.clock.elapsed(), hands.chronicle.tail(TAIL_LINES));
            }
            !life.has_ended() && !hands.board.power.is_due()
        })
    }
}
