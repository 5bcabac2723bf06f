//! Drives the port of networks by hand, on a board: one command per line of the input, or one as arguments.
//!
//! Answers each with one line: milliseconds, `ok` or `failed`, and what came of it. Ends with its input, and with it the
//! hotspot that it opened.

use std::{
    env,
    io::{self, BufRead as _, Write as _},
    net::Ipv4Addr,
    rc::Rc,
    time::{Duration, Instant},
};

use board::{
    Clock,
    network::{Address, CaptiveNames, Hotspot, Manager, Medium, Networks, Profile, Ssid},
    power::Power as _,
};
use board_linux::{bus::Bus, clock::LinuxClock, network_manager::NetworkManager, power::LinuxPower};
use secret::Secret;
use smol::{LocalExecutor, future::FutureExt as _};

const HELP: &str = "\
links                                   how things are
watch SECONDS                           prints each change
profiles                                the agent's own, without passwords
wifi KEY SSID [psk=P] [hidden] [OPTION…]    puts a profile; SSID may have \\xNN
wired KEY [OPTION…]
  OPTION: interface=I priority=N address=A/P gateway=A dns=A,A metric=N
remove KEY | join KEY | join-known
scan [INTERFACE] | heard [INTERFACE]    with and without listening anew
hotspot SSID PASSWORD INTERFACE CHANNEL [ADDRESS/PREFIX] [setup] [api=URL]
close
power-save on|off|none
country XX
idle SECONDS                            nothing, for measuring
reboot";

struct Probe {
    networks: NetworkManager,
    power: LinuxPower,
    clock: Rc<LinuxClock>,
}

fn main() {
    let executor = Rc::new(LocalExecutor::new());
    let words: Vec<String> = env::args().skip(1).collect();
    smol::future::block_on(executor.run(run(&executor, words)));
}

async fn run(executor: &Rc<LocalExecutor<'static>>, words: Vec<String>) {
    let clock = Rc::new(LinuxClock::new(executor).expect("a timer"));
    let bus = Bus::new(executor, Rc::clone(&clock) as _);
    let networks = NetworkManager::new(executor, Rc::clone(&clock) as _, Rc::clone(&bus), "platform");
    let probe = Probe { networks, power: LinuxPower::new(bus), clock };
    // The first session takes a moment.
    let ready = async {
        while probe.networks.links().manager == Manager::Absent {
            probe.networks.changed().await;
        }
    };
    ready.or(probe.sleep(Duration::from_secs(5))).await;
    if !words.is_empty() {
        probe.answer(&words).await;
        return;
    }
    loop {
        let line = smol::unblock(|| io::stdin().lock().lines().next()).await;
        let Some(Ok(line)) = line else { return };
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        probe.answer(&words).await;
    }
}

impl Probe {
    async fn sleep(&self, length: Duration) {
        self.clock.sleep_until(self.clock.now() + length).await;
    }

    async fn answer(&self, words: &[String]) {
        let begin = Instant::now();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let (verdict, text) = match self.command(&words).await {
            Ok(text) => ("ok", text),
            Err(text) => ("failed", text),
        };
        println!("{} ms {verdict} {} {text}", begin.elapsed().as_millis(), words.first().unwrap_or(&""));
        let _ = io::stdout().flush();
    }

    async fn command(&self, words: &[&str]) -> Result<String, String> {
        let networks = &self.networks;
        match words {
            ["links"] => Ok(format!("{:?}", networks.links())),
            ["watch", seconds] => {
                let length = Duration::from_secs(number(seconds)?);
                let watch = async {
                    loop {
                        networks.changed().await;
                        println!("changed {:?}", networks.links());
                    }
                };
                watch.or(self.sleep(length)).await;
                Ok(String::new())
            }
            ["idle", seconds] => {
                self.sleep(Duration::from_secs(number(seconds)?)).await;
                Ok(String::new())
            }
            ["profiles"] => said(networks.profiles().await.map(|profiles| format!("{profiles:?}"))),
            ["wifi", key, ssid, options @ ..] => {
                let psk = options.iter().find_map(|option| option.strip_prefix("psk=")).map(Secret::from);
                let medium = Medium::Wifi { ssid: name(ssid)?, psk, hidden: options.contains(&"hidden") };
                said(networks.put(&profile(key, medium, 600, options)?).await.map(|()| String::new()))
            }
            ["wired", key, options @ ..] => {
                said(networks.put(&profile(key, Medium::Wired, 100, options)?).await.map(|()| String::new()))
            }
            ["remove", key] => said(networks.remove(key).await.map(|()| String::new())),
            ["join", key] => said(networks.join(key).await.map(|link| format!("{link:?}"))),
            ["join-known"] => said(networks.join_known(None).await.map(|any| any.to_string())),
            ["scan" | "heard", rest @ ..] => {
                let fresh = words.first() == Some(&"scan");
                said(networks.scan(rest.first().copied(), fresh).await.map(|seen| format!("{seen:?}")))
            }
            ["hotspot", ssid, password, interface, channel, rest @ ..] => {
                let address = rest.iter().find_map(|word| subnet(word)).unwrap_or((Ipv4Addr::new(10, 42, 0, 1), 24));
                let hotspot = Hotspot {
                    ssid: name(ssid)?,
                    password: Secret::from(*password),
                    interface: (*interface).to_owned(),
                    channel: number(channel)?,
                    address,
                    names: if rest.contains(&"setup") { CaptiveNames::Setup } else { CaptiveNames::All },
                    captive_api: rest.iter().find_map(|word| word.strip_prefix("api=")).map(str::to_owned),
                };
                said(networks.open_hotspot(&hotspot).await.map(|()| String::new()))
            }
            ["close"] => said(networks.close_hotspot().await.map(|()| String::new())),
            ["power-save", word] => {
                let on = match *word {
                    "on" => Some(true),
                    "off" => Some(false),
                    _ => None,
                };
                said(networks.set_power_save(on).await.map(|changed| format!("changed: {changed}")))
            }
            ["country", country] => said(networks.set_country(Some(country)).await.map(|()| String::new())),
            ["reboot"] => said(self.power.reboot().await.map(|()| String::new())),
            _ => Err(HELP.to_owned()),
        }
    }
}

fn said<E: std::fmt::Display>(result: Result<String, E>) -> Result<String, String> {
    result.map_err(|error| error.to_string())
}

fn number<N: std::str::FromStr>(word: &str) -> Result<N, String> {
    word.parse().map_err(|_| format!("{word} is no number"))
}

fn subnet(word: &str) -> Option<(Ipv4Addr, u8)> {
    let (address, prefix) = word.split_once('/')?;
    Some((address.parse().ok()?, prefix.parse().ok()?))
}

fn name(word: &str) -> Result<Ssid, String> {
    let (mut bytes, mut rest) = (Vec::new(), word);
    while let Some((before, after)) = rest.split_once("\\x") {
        bytes.extend(before.bytes());
        let (digits, after) = after.split_at_checked(2).ok_or("half a byte")?;
        bytes.push(u8::from_str_radix(digits, 16).map_err(|error| error.to_string())?);
        rest = after;
    }
    bytes.extend(rest.bytes());
    Ssid::new(&bytes).ok_or_else(|| "1 to 32 bytes".to_owned())
}

fn profile(key: &str, medium: Medium, metric: u32, options: &[&str]) -> Result<Profile, String> {
    let of = |name: &str| options.iter().find_map(|option| option.strip_prefix(name)?.strip_prefix('='));
    Ok(Profile {
        key: key.to_owned(),
        medium,
        interface: of("interface").map(str::to_owned),
        priority: of("priority").map_or(Ok(0), number)?,
        address: of("address")
            .and_then(subnet)
            .map_or(Address::Auto, |(address, prefix)| Address::Fixed(address, prefix)),
        gateway: of("gateway").map(number).transpose()?,
        dns: of("dns").map_or(Ok(Vec::new()), |list| list.split(',').map(number).collect::<Result<_, _>>())?,
        route_metric: of("metric").map_or(Ok(metric), number)?,
    })
}
