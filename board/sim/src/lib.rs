//! A simulated device: the same ports as a real one, with a stopped clock and injected faults.
//!
//! A [`SimBoard`] is the device itself: disk, processes, network, clock. [`SimBoard::switch_on`] gives the ports for
//! one life of the agent; when that life is over (power cut, kill, orderly end) its ports are dead and the next life
//! gets new ones. Misuse of a port is an assertion: what a real device would only sometimes punish is punished here
//! each time. Everything runs on one thread, nothing reads the computer's clock, and all chance comes from the seed.

pub mod bluetooth;
pub mod clock;
pub mod console;
pub mod doorway;
pub mod drive;
pub mod fetch;
pub mod files;
mod host;
pub mod image;
pub mod power;
pub mod process;
pub mod radio;
pub mod random;
pub mod reboot;
pub mod service;

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

use board::{Board, host::Facts};

pub use bluetooth::{SimBluetooth, SimPhone};
pub use clock::SimClock;
pub use console::SimConsole;
pub use doorway::SimDoorway;
pub use drive::{Driven, Driver};
pub use fetch::SimWeb;
pub use files::SimFiles;
pub use power::{Interruption, Reached};
pub use process::SimProcesses;
pub use radio::SimNetworks;
pub use random::Random;
pub use reboot::SimPower;
pub use service::SimService;

/// What the simulated device is, unless a test says otherwise.
pub const PLATFORM: &str = "linux/amd64";

/// A device, as the test sees it.
#[derive(Clone)]
pub struct SimBoard {
    /// Time.
    pub clock: SimClock,
    /// The disk.
    pub files: SimFiles,
    /// The process table.
    pub processes: SimProcesses,
    /// Everything beyond the device.
    pub web: SimWeb,
    /// The service manager.
    pub service: SimService,
    /// Somebody at the device.
    pub console: SimConsole,
    /// Links, profiles and the air.
    pub networks: SimNetworks,
    /// Bluetooth, and phones near it.
    pub bluetooth: SimBluetooth,
    /// Switching it off and on.
    pub power: SimPower,
    /// People near the device.
    pub doorway: SimDoorway,
    /// Chance.
    pub random: Rc<Random>,
    facts: Rc<RefCell<Facts>>,
    boots: Rc<Cell<u32>>,
    life: Rc<RefCell<Option<power::Alive>>>,
}

impl SimBoard {
    /// A device whose disk is empty, online, switched off.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let random = Random::new(seed);
        let clock = SimClock::new();
        let files = SimFiles::new(&clock, random.branch());
        let processes = SimProcesses::new(&clock, &files, PLATFORM);
        let facts = Facts {
            platform: PLATFORM.into(),
            distro: "simulated 1".into(),
            hostname: "bench-robot".into(),
            boot_id: "boot-1".into(),
            serial: "100000001a2b3c4d".into(),
        };
        let web = SimWeb::new(&clock);
        SimBoard {
            networks: SimNetworks::new(&clock, &web),
            bluetooth: SimBluetooth::new(&clock),
            power: SimPower::new(&clock),
            web,
            service: SimService::new(&clock),
            console: SimConsole::new(&clock),
            doorway: SimDoorway::default(),
            random: Rc::new(random),
            facts: Rc::new(RefCell::new(facts)),
            boots: Rc::new(Cell::new(1)),
            life: Rc::default(),
            clock,
            files,
            processes,
        }
    }

    /// The ports for one life of the agent.
    ///
    /// # Panics
    /// When the last life is not over: two agents on one device would both be wrong.
    #[must_use]
    pub fn switch_on(&self) -> Board {
        assert!(!self.is_on(), "there is one agent at a time");
        let alive = power::Alive::new();
        self.life.replace(Some(alive.clone()));
        self.processes.agent_came();
        let (disk, processes, web) = (self.files.clone(), self.processes.clone(), self.web.clone());
        let bluetooth = self.bluetooth.port(&alive);
        Board {
            clock: Rc::new(clock::ClockPort { clock: self.clock.clone(), alive: alive.clone() }),
            files: Rc::new(files::FilesPort { disk: disk.clone(), alive: alive.clone() }),
            fetch: Rc::new(fetch::FetchPort { web, disk, processes: processes.clone(), alive: alive.clone() }),
            processes: Rc::new(process::ProcessesPort { processes, alive: alive.clone() }),
            service: Rc::new(service::ServicePort { service: self.service.clone(), alive: alive.clone() }),
            console: Rc::new(console::ConsolePort { console: self.console.clone(), alive: alive.clone() }),
            networks: radio::port(&self.networks, &alive),
            power: Some(Rc::new(reboot::PowerPort { power: self.power.clone(), alive: alive.clone() })),
            doorway: Some(Rc::new(doorway::DoorwayPort { doorway: self.doorway.clone(), alive })),
            bluetooth,
            host: Rc::new(host::HostPort { facts: self.facts.borrow().clone() }),
        }
    }

    /// Whether the agent that was given ports last may still use them.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.life.borrow().as_ref().is_some_and(power::Alive::get)
    }

    /// What kind of machine it is.
    #[must_use]
    pub fn platform(&self) -> String {
        self.facts.borrow().platform.clone()
    }

    /// Another kind of machine, from the next life on.
    pub fn set_platform(&self, platform: &str) {
        platform.clone_into(&mut self.facts.borrow_mut().platform);
        self.processes.set_platform(platform);
    }

    /// How often the device has booted, the first time included.
    #[must_use]
    pub fn boots(&self) -> u32 {
        self.boots.get()
    }

    /// The agent is gone: it ended, or it was killed. The machine server and every file stay as they are.
    pub fn end_life(&self) {
        if let Some(alive) = self.life.take() {
            alive.end();
        }
        self.clock.forget_sleepers();
        self.processes.agent_went();
        self.console.agent_went();
        self.networks.agent_went();
        self.bluetooth.agent_went();
        self.doorway.agent_went();
    }

    /// The power goes and comes back. Every task of the agent must have been dropped already, or be dropped next.
    pub fn cut_power(&self) {
        self.end_life();
        self.files.lose_what_is_not_stable();
        self.processes.power_went();
        self.networks.power_went();
        self.power.take_due();
        self.clock.reboot();
        self.boots.set(self.boots.get() + 1);
        self.facts.borrow_mut().boot_id = format!("boot-{}", self.boots.get());
    }
}
