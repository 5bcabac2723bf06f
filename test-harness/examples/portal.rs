//! The page behind the hotspot on this machine, with a device that is only played: for people to look at, for a browser to
//! try (`test-harness/portal/look.mjs`), and for clients of the provisioning service.
//!
//! `cargo run --package test-harness --example portal -- --port 8088`. The right password of every network is
//! `correct horse`. `--owned`: the device has an identity and keeps it. `--leaves`: its radio cannot do two things at once,
//! so that the page goes away while a network is tried. `--takes 300`: how long it tries, in milliseconds. What visitors
//! do is printed, without what is secret. `--measure`: how fast it answers, and what an idle connection costs.

use std::{
    cell::RefCell,
    fs,
    io::{Read as _, Write as _},
    net::{Ipv4Addr, SocketAddrV4, TcpStream},
    rc::Rc,
    time::{Duration, Instant},
};

use actors::provisioning::{
    machine::Refused,
    portal::{Answer, Portal, Site},
    visit::{Door, Visit},
    welcome::{Attempt, IdentityDoor, Result as Outcome, Welcome},
};
use board::{
    Clock,
    doorway::{Doorway as _, Knock, Open, VISITORS_MAX},
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
    measure: bool,
}

fn options() -> Result<Options, String> {
    let mut options =
        Options { port: 8088, owned: false, leaves: false, takes: Duration::from_secs(4), measure: false };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let mut number = || arguments.next().and_then(|text| text.parse().ok()).ok_or(format!("{name} needs a number"));
        match name.as_str() {
            "--port" => options.port = number()?,
            "--takes" => options.takes = Duration::from_millis(number()?.into()),
            "--owned" => options.owned = true,
            "--leaves" => options.leaves = true,
            "--measure" => options.measure = true,
            _ => return Err(format!("{name} is no option; see the beginning of this file")),
        }
    }
    Ok(options)
}

fn seen(name: &str, signal: u8, security: Security) -> Seen {
    let ssid = Ssid::new(name.as_bytes()).expect("a name");
    Seen { ssid, signal, security, frequency_mhz: 2437 }
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
        let site = Site { address, prefix: 8, hotspot: "acme-arm-7-0042".into(), captive_api: true };
        if options.measure {
            std::thread::spawn(move || measure(address));
        }
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

/// Memory that this process has written to, in bytes.
fn written() -> u64 {
    let status = fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Private_Dirty:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0) * 1024
}

/// Is silent on every connection, and then asks for the page and for a phone's question as fast as one visitor can.
fn measure(address: SocketAddrV4) {
    let silent = || {
        let mut stream = TcpStream::connect(address).expect("it listens");
        stream.write_all(format!("GET /x HTTP/1.1\r\nHost: {}\r\n\r\n", address.ip()).as_bytes()).expect("written");
        one(&mut stream);
        stream
    };
    // The first one also pays for what is there once.
    let first = silent();
    let before = written();
    let others: Vec<_> = (1..VISITORS_MAX).map(|_| silent()).collect();
    let more = written().saturating_sub(before) / others.len() as u64;
    println!("{more} bytes of memory for each idle connection after the first, of {VISITORS_MAX}");
    drop((first, others));
    for (what, path) in [("pages", "/"), ("questions of phones", "/generate_204")] {
        let mut stream = TcpStream::connect(address).expect("it listens");
        let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\nAccept: text/html\r\n\r\n", address.ip());
        let (began, mut count, mut bytes) = (Instant::now(), 0_u32, 0);
        while began.elapsed() < Duration::from_secs(3) {
            stream.write_all(request.as_bytes()).expect("written");
            bytes = one(&mut stream);
            count += 1;
        }
        println!(
            "{:.0} {what} a second over one connection, {bytes} bytes each",
            f64::from(count) / began.elapsed().as_secs_f64()
        );
    }
    std::process::exit(0);
}

/// Reads one answer and says how long it was.
fn one(stream: &mut TcpStream) -> usize {
    let (mut said, mut piece) = (Vec::new(), [0; 16 * 1024]);
    loop {
        let read = stream.read(&mut piece).expect("it answers");
        assert_ne!(read, 0, "the answer was cut");
        said.extend_from_slice(&piece[..read]);
        let Some(end) = said.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(&said[..end]).to_ascii_lowercase();
        let length = head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next()?.parse().ok());
        if said.len() >= end + 4 + length.unwrap_or(0) {
            return said.len();
        }
    }
}
