//! The page behind the hotspot on this machine, with a device that is only played: for people to look at, for a browser to
//! try (`test-harness/portal/look.mjs`), and for clients of the provisioning service.
//!
//! `cargo run --package test-harness --example portal -- --port 8088`. The right password of every network is
//! `correct horse`. `--owned`: the device has an identity and keeps it. `--leaves`: its radio cannot do two things at once,
//! so that the page goes away while a network is tried. `--takes 300`: how long it tries, in milliseconds. What visitors
//! do is printed, without what is secret. How fast it answers is in
//! `make bench ARGS="--only doors"`.

use std::{
    cell::RefCell,
    fs,
    io::Read as _,
    net::{Ipv4Addr, SocketAddrV4},
    rc::Rc,
    time::Duration,
};

use actors::provisioning::{
    machine::Refused,
    portal::{Answer, Portal, Site},
    visit::{Door, Visit},
    welcome::{Attempt, IdentityDoor, Result as Outcome, Welcome},
};
use board::{
    Clock,
    doorway::{Doorway as _, Knock, Open},
    network::{Security, Seen, Ssid},
};
use board_linux::clock::LinuxClock;
use board_portable::PortableDoorway;
use smol::{LocalExecutor, future::FutureExt as _};

struct Options {
    port: u16,
    owned: bool,
    leaves: bool,
    takes: Duration,
}

fn options() -> Result<Options, String> {
    let mut options = Options { port: 8088, owned: false, leaves: false, takes: Duration::from_secs(4) };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let mut number = || arguments.next().and_then(|text| text.parse().ok()).ok_or(format!("{name} needs a number"));
        match name.as_str() {
            "--port" => options.port = number()?,
            "--takes" => options.takes = Duration::from_millis(number()?.into()),
            "--owned" => options.owned = true,
            "--leaves" => options.leaves = true,
            _ => return Err(format!("{name} is no option; see the beginning of this file")),
        }
    }
    Ok(options)
}

fn seen(name: &str, signal: u8, security: Security) -> Seen {
    let ssid = Ssid::new(name.as_bytes()).expect("a name");
    Seen { ssid, signal, security, frequency_mhz: 2437, heard: None }
}

fn device(options: &Options) -> Welcome {
    Welcome {
        manufacturer: "Acme Robotics".into(),
        model: "Arm 7".into(),
        hostname: "arm-7-0042".into(),
        agent_version: env!("CARGO_PKG_VERSION").into(),
        fragment_id: Some("4ab9…c1".into()),
        networks: Rc::from([
            seen("Home", 88, Security::Wpa2Wpa3),
            seen("Workshop 2.4 GHz", 71, Security::Wpa2),
            seen("Café Grüße 🏠", 55, Security::Open),
            seen("A name of thirty-two bytes, long", 41, Security::Wpa3),
            seen("Campus", 33, Security::Enterprise),
            seen("old-router", 12, Security::Wep),
            seen("Flat 3", 11, Security::Wpa2),
            seen("Flat 4", 10, Security::Wpa2),
            seen("Flat 5", 9, Security::Wpa2),
            seen("\u{202e}x <b>bold</b>", 8, Security::EnhancedOpen),
        ]),
        has_identity: options.owned,
        identity: if options.owned { IdentityDoor::Shut } else { IdentityDoor::Wanted },
        stays: !options.leaves,
        ..Welcome::default()
    }
}

/// A device that does what visitors want, after a while.
struct Played {
    welcome: RefCell<Welcome>,
    portal: RefCell<Portal>,
    options: Options,
    clock: Rc<dyn Clock>,
    executor: Rc<LocalExecutor<'static>>,
    leaving: smol::channel::Sender<()>,
}

impl Played {
    async fn answer(&self, knock: Box<dyn Knock>) -> Option<Attempt> {
        let trying = matches!(&self.welcome.borrow().attempt, Some(Attempt { result: Outcome::Trying, .. }));
        let permits = |_: Door, visit: &Visit| match visit {
            Visit::Network(_) if trying => Err(Refused::Busy),
            Visit::Identity(_) if self.options.owned => Err(Refused::IdentityStays),
            _ => Ok(()),
        };
        let answer = self.portal.borrow_mut().answer(knock.request(), &self.welcome.borrow(), &permits);
        let Answer { response, visits } = answer;
        let mut joining = None;
        for (door, visit) in visits {
            let mut welcome = self.welcome.borrow_mut();
            match visit {
                Visit::Network(given) => {
                    println!("{door:?}: network {}", given.ssid);
                    let number = welcome.attempt.as_ref().map_or(0, |attempt| attempt.number) + 1;
                    let right = given.psk.as_ref().is_none_or(|psk| psk.expose() == "correct horse");
                    let attempt = |result| Attempt { number, ssid: given.ssid.clone(), result };
                    welcome.attempt = Some(attempt(Outcome::Trying));
                    let joined = Outcome::Joined { address: Some("192.168.1.20".into()), online: true };
                    let failed = Outcome::Failed(format!("wrong password for {}", given.ssid).into());
                    joining = Some(attempt(if right { joined } else { failed }));
                }
                Visit::Identity(identity) => {
                    println!("{door:?}: identity {}", identity.part_id);
                    (welcome.has_identity, welcome.identity) = (true, IdentityDoor::Shut);
                }
                other => println!("{door:?}: {other:?}"),
            }
        }
        knock.answer(response).await;
        joining
    }

    fn ends(&self, attempt: Attempt) {
        let mut welcome = self.welcome.borrow_mut();
        if matches!(attempt.result, Outcome::Joined { .. }) {
            (welcome.online, welcome.joined) = (true, Some(attempt.ssid.clone()));
        }
        welcome.attempt = Some(attempt);
    }
}

async fn serve(played: Rc<Played>, open: Rc<dyn Open>) {
    loop {
        let knock = open.next().await;
        let played = Rc::clone(&played);
        let executor = Rc::clone(&played.executor);
        executor
            .spawn(async move {
                let Some(attempt) = played.answer(knock).await else { return };
                if played.options.leaves {
                    let _ = played.leaving.send(()).await;
                }
                played.clock.sleep_until(played.clock.now() + played.options.takes).await;
                played.ends(attempt);
            })
            .detach();
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = options()?;
    let executor: Rc<LocalExecutor<'static>> = Rc::default();
    let clock: Rc<dyn Clock> = Rc::new(LinuxClock::new(&executor)?);
    let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, options.port);
    let doorway = PortableDoorway::new(&executor, Rc::clone(&clock));
    let mut key = [0; 32];
    fs::File::open("/dev/urandom")?.read_exact(&mut key)?;
    let (leaving, leaves) = smol::channel::bounded(1);
    let served = async {
        let mut open = doorway.open(address).await?;
        let address = open.address();
        println!("http://{address}/");
        let site = Site {
            address,
            prefix: 8,
            hotspot: "acme-arm-7-0042".into(),
            captive_api: Some("https://portal.acme.example/api".into()),
        };
        let (welcome, takes) = (RefCell::new(device(&options)), options.takes);
        let portal = RefCell::new(Portal::new(site, key));
        let played =
            Played { welcome, portal, options, clock: Rc::clone(&clock), executor: Rc::clone(&executor), leaving };
        let played = Rc::new(played);
        loop {
            let away = async {
                let _ = leaves.recv().await;
            };
            away.or(serve(Rc::clone(&played), open)).await;
            println!("the hotspot is away");
            clock.sleep_until(clock.now() + takes).await;
            open = doorway.open(address).await?;
            println!("the hotspot is back");
        }
    };
    smol::block_on(executor.run(served))
}
