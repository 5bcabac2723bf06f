//! The shell of the provisioning actor: waits for news and visitors, opens and closes the doors, and tells the others.

use std::{path::PathBuf, rc::Rc, time::Duration};

use api::{
    device_config::{Advanced, NetworkSettings},
    pb::platform::fleet::v1::ProvisioningStatus,
};
use board::{
    Clock,
    bluetooth::{self, Bluetooth, BluetoothError, Standing},
    doorway::{Doorway, Knock, Open},
    files::Files,
    network::{Links, Networks},
};
use smol::{LocalExecutor, future::FutureExt as _};

use super::{
    desk::{Desk, Known},
    front::{Done, Front},
    machine::{Event, Machine},
    near::{self, MakeKeys, Near},
};
use crate::{
    cloud::Reach,
    config::ConfigStatus,
    kit::{
        background::Results,
        latest::{Latest, Watch},
        mailbox::Mailbox,
        step::{self, assert_moved},
        supervise::Lifeline,
        trace::Trace,
    },
    network::{self, Air, Connectivity, Joining},
    rank::Actor,
};

/// The file of whoever stands at the device is looked for this often.
const LOOK_EVERY: Duration = Duration::from_secs(20);
/// How long closing the doors may take when the agent ends.
const LEAVING_MAX: Duration = Duration::from_secs(10);

/// Whether this content of a credentials file would be accepted, or why not.
pub type Check = Rc<dyn Fn(&[u8]) -> Result<(), String>>;

/// What this actor hears.
pub struct Inbox {
    /// Section `advanced_settings`.
    pub advanced: Watch<Rc<Advanced>>,
    /// Section `network_configuration`.
    pub network: Watch<Rc<NetworkSettings>>,
    /// How the device is connected.
    pub connectivity: Watch<Connectivity>,
    /// The last attempt.
    pub joining: Watch<Joining>,
    /// What there is in the air.
    pub air: Watch<Air>,
    /// How the fleet server can be reached.
    pub reach: Watch<Reach>,
    /// What is wrong with the configuration.
    pub config: Watch<ConfigStatus>,
    /// Rises when somebody at the device asks for the doors: `provision --now`.
    pub wishes: Watch<u64>,
    /// Stops this actor.
    pub lifeline: Lifeline,
}

/// What this actor can do.
pub struct Ports {
    /// Time.
    pub clock: Rc<dyn Clock>,
    /// The credentials file, and the one that asks for the doors.
    pub files: Rc<dyn Files>,
    /// Links and radio; `None` where there is nothing to configure.
    pub networks: Option<Rc<dyn Networks>>,
    /// The listener for people.
    pub doorway: Option<Rc<dyn Doorway>>,
    /// Bluetooth.
    pub bluetooth: Option<Rc<dyn Bluetooth>>,
    /// Makes the keys of Bluetooth.
    pub make_keys: MakeKeys,
    /// For what takes longer than a turn.
    pub executor: Rc<LocalExecutor<'static>>,
    /// To the keeper of the network.
    pub to_network: Mailbox<network::Command>,
    /// The fleet server is to be called at once.
    pub poke: Mailbox<()>,
    /// The credentials file.
    pub credentials: PathBuf,
    /// Its presence asks for the doors.
    pub force_file: PathBuf,
    /// Whether this content of a credentials file would be accepted, or why not.
    pub check: Check,
    /// Whether the device has an identity that it can use.
    pub has_identity: Rc<dyn Fn() -> bool>,
    /// The device's own name.
    pub hostname: Rc<str>,
    /// Names the device for ever; may be empty.
    pub serial: Rc<str>,
    /// The agent's version.
    pub agent_version: Rc<str>,
    /// Length of a minute.
    pub minute: Duration,
    /// Chance.
    pub random: Rc<dyn Fn() -> u64>,
    /// For the fleet server and for people.
    pub status: Latest<ProvisioningStatus>,
    /// What was done, for people.
    pub trace: Trace,
}

/// What is heard.
pub(super) enum Heard {
    /// For the machine.
    News(Event),
    /// The configuration has changed.
    Settings,
    /// The network manager or a radio has come, gone, or changed something.
    Able,
    /// The identity may have come or gone.
    Reach,
    /// The hotspot was opened or closed.
    Front(Done),
    /// A visitor asks something.
    Knock(Box<dyn Knock>),
    /// Bluetooth was offered, or not.
    Near(near::Done),
    /// Phones were asked for their connection.
    Asked(near::Asked),
    /// A phone does something over Bluetooth.
    Phone(Result<bluetooth::Visit, BluetoothError>),
    /// Somebody at the device wants the doors open.
    Forced,
    /// Time has come.
    Time,
}

/// Runs the actor until it is stopped.
pub async fn run(inbox: Inbox, ports: Ports) {
    let front = match (ports.networks.clone(), ports.doorway.clone()) {
        (Some(networks), Some(doorway)) => Some(Front::new(networks, doorway, &ports.executor)),
        _ => None,
    };
    let (front, done) = front.unzip();
    let near = ports.bluetooth.clone();
    let near = near.map(|bluetooth| Near::new(bluetooth, Rc::clone(&ports.make_keys), &ports.executor));
    let (near, offered, asked) = match near {
        Some((near, offered, asked)) => (Some(near), Some(offered), Some(asked)),
        None => (None, None, None),
    };
    let clock = Rc::clone(&ports.clock);
    let machine = Machine::new((ports.random)());
    let mut ears = Ears {
        inbox,
        done,
        offered,
        asked,
        listener: None,
        standing: None,
        networks: None,
        bluetooth: None,
        links: Links::default(),
        present: false,
    };
    let known = Known {
        advanced: ears.inbox.advanced.clone(),
        settings: ears.inbox.network.clone(),
        config: ears.inbox.config.clone(),
        reach: ears.inbox.reach.clone(),
        air: ears.inbox.air.clone(),
    };
    let mut desk = Desk::new(machine, ports, known, front, near);
    desk.identity().await;
    let mut look = clock.now();
    loop {
        ears.inbox.lifeline.turn_ends();
        ears.listener = desk.listener();
        ears.standing = desk.standing();
        ears.networks = desk.networks();
        ears.bluetooth = desk.bluetooth();
        let next = [desk.machine.deadline(), desk.near_deadline(), Some(look)].into_iter().flatten().min();
        let Some(heard) = step::next_event(&mut ears, &*clock, next).await else { break };
        ears.inbox.lifeline.turn_begins();
        match heard {
            Heard::Time => {}
            Heard::News(event) => desk.hear(event).await,
            Heard::Settings => {
                desk.settings().await;
                // A reload is how a person says "look at once".
                desk.look_for_force_file().await;
            }
            Heard::Able => desk.able().await,
            Heard::Reach => desk.identity().await,
            Heard::Front(done) => desk.front_done(done).await,
            Heard::Knock(knock) => desk.knock(knock).await,
            Heard::Near(done) => desk.near_done(done).await,
            Heard::Asked(near) => desk.hear(Event::Asked(near)).await,
            Heard::Phone(visit) => desk.phone(visit).await,
            Heard::Forced => desk.forced().await,
        }
        // After each turn, not only after one that time began: visitors without a pause hold up nothing that is due.
        let now = clock.now();
        desk.tick(now);
        if look <= now {
            look = now + LOOK_EVERY;
            desk.look_for_force_file().await;
        }
        let due = desk.machine.deadline().filter(|due| *due <= now);
        if due.is_some() {
            desk.hear(Event::DeadlinePassed).await;
            assert_moved(Actor::Provisioning.name(), due, desk.machine.deadline(), now);
        }
        desk.show();
        desk.publish();
    }
    let over = async { clock.sleep_until(clock.now() + LEAVING_MAX).await };
    desk.leave().or(over).await;
}

/// Everything that is waited for.
struct Ears {
    inbox: Inbox,
    done: Option<Results<Done>>,
    offered: Option<Results<near::Done>>,
    asked: Option<Results<near::Asked>>,
    listener: Option<Rc<dyn Open>>,
    standing: Option<Rc<dyn Standing>>,
    /// Only while it may be looked at.
    networks: Option<Rc<dyn Networks>>,
    bluetooth: Option<Rc<dyn Bluetooth>>,
    /// What was told last.
    links: Links,
    present: bool,
}

impl step::Inbox for Ears {
    type Event = Heard;

    async fn next(&mut self) -> Option<Heard> {
        let Ears { inbox, done, offered, asked, listener, standing, networks, bluetooth, links, present } = self;
        let Inbox { advanced, network, connectivity, joining, air, reach, config, wishes, lifeline } = inbox;
        let stop = async {
            lifeline.stopped().await;
            None
        };
        let doors = async {
            match done {
                Some(done) => Heard::Front(done.next().await),
                None => std::future::pending().await,
            }
        };
        let visitors = async {
            match listener {
                Some(listener) => Heard::Knock(listener.next().await),
                None => std::future::pending().await,
            }
        };
        let offered = async {
            match offered {
                Some(offered) => Heard::Near(offered.next().await),
                None => std::future::pending().await,
            }
        };
        let asked = async {
            match asked {
                Some(asked) => Heard::Asked(asked.next().await),
                None => std::future::pending().await,
            }
        };
        let phones = async {
            match standing {
                Some(standing) => Heard::Phone(standing.next().await),
                None => std::future::pending().await,
            }
        };
        let adapter = async {
            let Some(bluetooth) = bluetooth else { return std::future::pending().await };
            loop {
                let now = bluetooth.present();
                if now != *present {
                    *present = now;
                    return Heard::Able;
                }
                bluetooth.changed().await;
            }
        };
        let manager = async {
            let Some(networks) = networks else { return std::future::pending().await };
            loop {
                let now = networks.links();
                if now != *links {
                    *links = now;
                    return Heard::Able;
                }
                networks.changed().await;
            }
        };
        let settings = async {
            advanced.changed().await;
            Heard::Settings
        }
        .or(async {
            network.changed().await;
            Heard::Settings
        });
        let network = async { Heard::News(Event::Connectivity(connectivity.changed().await)) }
            .or(async { Heard::News(Event::Joining(joining.changed().await)) })
            .or(async {
                air.changed().await;
                Heard::Able
            });
        let others = async {
            reach.changed().await;
            Heard::Reach
        }
        .or(async {
            config.changed().await;
            Heard::Reach
        })
        .or(async {
            wishes.changed().await;
            Heard::Forced
        });
        // Visitors last: whoever floods the door holds up none of the rest.
        let any = settings
            .or(network)
            .or(others)
            .or(manager)
            .or(adapter)
            .or(doors)
            .or(offered)
            .or(asked)
            .or(phones)
            .or(visitors);
        stop.or(async { Some(any.await) }).await
    }

    fn deadline_passed(&self) -> Heard {
        Heard::Time
    }
}
