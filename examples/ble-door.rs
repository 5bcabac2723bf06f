//! The Bluetooth door by itself, on this machine's own BlueZ: for trying it out, and for the lab.
//!
//! `ble-door [--password PASSWORD] [--improv] [--presence] [--configured] [--trust-all]`: offers everything until it is killed, and prints what is done.
//! The network `home` with the password `correct horse` is joined after a second; every other one is refused.
//! Lines on its input: `present` (somebody is at the device).

use std::{io::BufRead as _, rc::Rc, time::Duration};

use actors::provisioning::{
    ble::session::{Changes, Session, Settings},
    visit::{Visit as Done, network},
    welcome::{Attempt, IdentityDoor, Result as Outcome, Welcome},
};
use api::Secret;
use board::{
    Clock as _,
    bluetooth::{Bluetooth as _, BluetoothError, Standing, Visit},
    network::{Security, Seen, Ssid},
};
use board_linux::{bluez::Bluez, bus::Bus, clock::LinuxClock};
use platform_agent::keys;
use smol::{LocalExecutor, channel::Receiver, future::FutureExt as _};

enum Event {
    Visit(Result<Visit, BluetoothError>),
    Present,
    Due,
    Decided,
}

fn main() {
    let flag = |name: &str| std::env::args().any(|arg| arg == name);
    let value = |name: &str| std::env::args().skip_while(|arg| arg != name).nth(1);
    let settings = Settings {
        name: "platform-setup-board-7".into(),
        password: Secret::new(value("--password").unwrap_or_else(|| "platform-setup".into())),
        trust_all: flag("--trust-all"),
        improv: flag("--improv"),
        improv_needs_presence: flag("--presence"),
        url: Rc::from("https://fleet.example.com"),
    };
    let has_identity = flag("--configured");
    let welcome = Welcome {
        manufacturer: "acme".into(),
        model: "model 1".into(),
        fragment_id: Some("fragment-1".into()),
        hostname: "board-7".into(),
        agent_version: "1.2.3".into(),
        networks: [seen("home", 90, Security::Wpa2), seen("café", 40, Security::Open)].into(),
        has_identity,
        identity: if has_identity { IdentityDoor::Shut } else { IdentityDoor::Wanted },
        ..Welcome::default()
    };
    let executor = Rc::new(LocalExecutor::new());
    smol::block_on(executor.run(doors(Rc::clone(&executor), settings, welcome)));
}

async fn doors(executor: Rc<LocalExecutor<'static>>, settings: Settings, mut welcome: Welcome) {
    let clock = Rc::new(LinuxClock::new(&executor).unwrap());
    let bluez = Bluez::new(&executor, Rc::clone(&clock) as _, Bus::new(&executor, Rc::clone(&clock) as _));
    let (said, heard) = smol::channel::bounded(1);
    std::thread::spawn(move || {
        std::io::stdin().lock().lines().map_while(Result::ok).for_each(|line| drop(said.send_blocking(line)))
    });
    loop {
        while !bluez.present() {
            println!("WAITING for an adapter");
            bluez.changed().await;
        }
        let began = std::time::Instant::now();
        let keys = keys::make(settings.password.clone()).await.unwrap();
        println!("KEYS in {} ms", began.elapsed().as_millis());
        let mut session = Session::new(&settings, keys, &welcome);
        match bluez.offer(&session.offer()).await {
            Ok(standing) => {
                println!("OPEN after {} ms", began.elapsed().as_millis());
                let ended = stand(&clock, &*standing, &mut session, &mut welcome, &heard).await;
                println!("ENDED {ended}");
            }
            Err(error) => println!("REFUSED {error}"),
        }
        clock.sleep_until(clock.now() + Duration::from_secs(1)).await;
    }
}

async fn stand(
    clock: &LinuxClock,
    standing: &dyn Standing,
    session: &mut Session,
    welcome: &mut Welcome,
    heard: &Receiver<String>,
) -> BluetoothError {
    let mut decides = None;
    loop {
        give(standing, session.changes());
        let due = session.deadline().unwrap_or(board::Mono::NEVER);
        let decided = decides.unwrap_or(board::Mono::NEVER);
        let event = async { Event::Visit(standing.next().await) }
            .or(async {
                match heard.recv().await {
                    Ok(_) => Event::Present,
                    Err(_) => std::future::pending().await,
                }
            })
            .or(async {
                clock.sleep_until(due).await;
                Event::Due
            })
            .or(async {
                clock.sleep_until(decided).await;
                Event::Decided
            })
            .await;
        match event {
            Event::Visit(Err(error)) => return error,
            Event::Visit(Ok(Visit::Write { characteristic, phone, value, answer })) => {
                let began = std::time::Instant::now();
                let result = session.write(clock.now(), &phone, characteristic, value.expose());
                println!(
                    "WRITE {characteristic} {} bytes by {phone} in {} us: {result:?}",
                    value.expose().len(),
                    began.elapsed().as_micros()
                );
                give(standing, session.changes());
                answer(result.as_ref().map(drop).map_err(|refused| *refused));
                for visit in result.into_iter().flat_map(|visits| visits.visits) {
                    let Done::Network(given) = visit else { continue };
                    let number = welcome.attempt.as_ref().map_or(0, |attempt| attempt.number) + 1;
                    let right = network(b"home", "correct horse", given.hidden).is_ok_and(|home| home == given);
                    welcome.attempt = Some(Attempt { number, ssid: given.ssid, result: Outcome::Trying });
                    welcome.online = right;
                    decides = Some(clock.now() + Duration::from_secs(1));
                }
            }
            Event::Visit(Ok(Visit::Pairing { phone, passkey, answer })) => {
                let allowed = session.pairing(clock.now());
                println!("PAIRING {phone} {passkey:?} {allowed}");
                answer(allowed);
            }
            Event::Visit(Ok(Visit::Tether { phone })) => println!("TETHER {phone}"),
            Event::Visit(Ok(Visit::Back { phone })) => println!("BACK {phone}"),
            Event::Visit(Ok(Visit::Connected { phone, here })) => {
                println!("CONNECTED {phone} {here}");
                if !here {
                    session.left(&phone);
                }
            }
            Event::Present => session.present(clock.now()),
            Event::Due => session.tick(clock.now()),
            Event::Decided => {
                decides = None;
                if let Some(attempt) = &mut welcome.attempt {
                    attempt.result = match welcome.online {
                        true => Outcome::Joined { address: None, online: true },
                        false => Outcome::Failed(format!("wrong password for {}", attempt.ssid).into()),
                    };
                }
            }
        }
        session.welcome(clock.now(), welcome);
    }
}

fn give(standing: &dyn Standing, changes: Changes) {
    for (uuid, value) in changes.values {
        standing.set(uuid, &value);
    }
    if let Some((name, data)) = changes.service_data {
        standing.set_service_data(name, &data);
    }
}

fn seen(name: &str, signal: u8, security: Security) -> Seen {
    Seen { ssid: Ssid::new(name.as_bytes()).unwrap(), signal, security, frequency_mhz: 2412, heard: None }
}
