//! One device whose radios come and go, with people of every kind beside it, and whether it gets online in the end.
//!
//! Owns what "well" means: its identity was changed only by whom somebody at the device let in; when everything is well
//! again and a person sets it up, it comes online and closes its doors. On the way the actors' own assertions hold.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

use api::brand;
use board::{bluetooth::BluetoothError, files::Access, network::Manager};
use board_sim::{
    Interruption, Random, Reached,
    console::Manner,
    radio::{AccessPoint, Beyond, Cable},
};
use serde_json::json;

use super::{
    Hands, Seed, World, cloud, factory, hours, minutes,
    near::{improv, sealed, uuid},
    seconds,
    trial::Lived,
};

/// How long the bad time is.
const BAD_TIME: Duration = hours(30);
/// The device's own network.
const HOME: (&str, &str) = ("home", "correct horse");
/// Credentials of somebody who has no right to the device.
const THIEF: &str =
    r#"{"cloud": {"app_address": "https://thief.example.com", "id": "stolen", "secret": "planted-thief"}}"#;

fn credentials() -> String {
    json!({"cloud": {"app_address": factory::SERVER, "id": cloud::PART_ID, "secret": cloud::SECRET}}).to_string()
}

/// Runs the world of this seed. `Err` has what broke and the chronicle up to there.
pub fn run(seed: Seed) -> Result<Lived, String> {
    let mut world = World::launched(seed);
    let hands = world.hands.clone();
    let lived = catch_unwind(AssertUnwindSafe(|| {
        let mut story = Story { random: world.board.random.branch(), permitted: false };
        story.fit(&world);
        world.start();
        while world.board.clock.elapsed() < BAD_TIME {
            world.run_for(seconds(1 + story.random.below(1500)));
            for _ in 0..=story.random.below(4) {
                story.happens(&mut world);
                story.look(&world);
            }
        }
        story.becomes_well(&mut world);
    }));
    if lived.is_err() {
        // The tasks of a world that broke are in no state to be let go.
        std::mem::forget(world);
        return Err(hands.chronicle.render());
    }
    Ok(Lived {
        time: hands.board.clock.elapsed(),
        transitions: hands.chronicle.transitions(),
        lives: u64::from(world.lives()),
        switches: 0,
        starts: hands.board.processes.starts().0 as u64,
    })
}

struct Story {
    random: Random,
    /// Somebody at the device, or its manufacturer, lets its identity be changed, or it had none: it may be anybody's now.
    permitted: bool,
}

impl Story {
    fn fit(&mut self, world: &World) {
        let (networks, random) = (&world.board.networks, &self.random);
        networks.install();
        networks.plug_radio("wlan0", random.chance(40));
        networks.set_by_itself_takes(seconds(random.below(40)));
        networks.set_remembers(seconds(random.below(240)));
        networks.place(AccessPoint::new(HOME.0, HOME.1));
        networks.place(AccessPoint::new("neighbour", "not yours at all"));
        if random.chance(70) {
            world.board.bluetooth.fit();
        }
        if random.chance(40) {
            world.board.files.take_away(brand::CREDENTIALS_FILE);
            self.permitted = true;
        }
        let defaults = json!({
            "advanced_settings": {"release_keys": [world.factory.public_key()]},
            "network_configuration": {
                "improv": random.chance(60), "improv_needs_presence": random.chance(60),
                "turn_on_hotspot_if_wifi_has_no_internet": random.chance(30),
                "device_reboot_after_offline_minutes": if random.chance(30) { 90 } else { 0 },
            },
        });
        world.board.files.put(brand::DEFAULTS_FILE, defaults.to_string(), Access::Readable);
    }

    /// Something that somebody does, or that goes wrong.
    fn happens(&mut self, world: &mut World) {
        let random = self.random.branch();
        let name = |random: &Random| *random.pick(&["wlan0", "wlan1"]);
        let what = random.below(28);
        world.chronicle.note(format!("happening {what}"));
        match what {
            0..=5 => self.visits(world),
            6..=9 => self.comes_near(world),
            // A button that is pressed, once or by somebody impatient.
            10 | 11 => {
                let path = format!("{}/etc/force_provisioning_mode", brand::ROOT_FOLDER);
                world.board.files.put(path, "", Access::Readable);
                self.permitted = true;
            }
            12 | 13 => {
                world.board.console.ask(Manner::polite("provision 1"));
                self.permitted = true;
            }
            14 => world.board.networks.unplug_radio(name(&random)),
            15 => world.board.networks.plug_radio(name(&random), random.chance(40)),
            16 => world.board.networks.restart_manager(seconds(random.below(300))),
            17 => {
                world.board.networks.set_manager(Manager::Absent);
                let back = |hands: &Hands| hands.board.networks.set_manager(Manager::Ready);
                world.after(seconds(random.below(7200)), back);
            }
            18 => {
                world.board.networks.silence(HOME.0);
                let back = |hands: &Hands| hands.board.networks.place(AccessPoint::new(HOME.0, HOME.1));
                world.after(seconds(random.below(20_000)), back);
            }
            19 => {
                world.board.web.set_online(false);
                world.after(seconds(random.below(7200)), |hands| hands.board.web.set_online(true));
            }
            20 => world.board.bluetooth.pull(),
            21 => world.board.bluetooth.plug(),
            22 => world.board.bluetooth.restart(),
            23 => {
                let times = usize::try_from(random.below(6)).unwrap_or(1);
                world.board.bluetooth.fail(BluetoothError::Refused("not now".to_owned()), times);
            }
            24 => {
                world.board.doorway.take_port(true);
                world.after(seconds(random.below(3600)), |hands| hands.board.doorway.take_port(false));
            }
            25 => {
                let by = *random.pick(&[Interruption::PowerCut, Interruption::Killed]);
                world.board.files.interrupt_at_write(1 + random.below(4), by, *random.pick(&Reached::ALL));
            }
            26 => {
                world.board.console.ask(Manner::polite("deprovision 1"));
                self.permitted = true;
            }
            _ => match random.below(3) {
                0 => world.restart_agent(),
                1 => world.kill_agent(),
                _ => world.cut_power(),
            },
        }
    }

    /// Somebody with a browser, if he knows the password.
    fn visits(&mut self, world: &mut World) {
        let random = self.random.branch();
        let Some(phone) = world.phone(20 + u8::try_from(random.below(4)).unwrap_or(0), &world.label()) else { return };
        for _ in 0..=random.below(6) {
            match random.below(9) {
                0 => drop(world.probe(phone)),
                1 => drop(world.open_page(phone)),
                2 => drop(world.fill_in(phone, "/rescan", &[])),
                3 => drop(world.fill_in(phone, "/touched", &[])),
                4 => drop(world.fill_in(phone, "/leave", &[])),
                5 => drop(world.give_network(phone, HOME.0, HOME.1)),
                6 => drop(world.give_network(phone, "neighbour", "a guess at it")),
                7 => drop(world.give_network(phone, "nowhere", "some password")),
                _ => drop(world.give_identity(phone, THIEF)),
            }
            world.run_for(Duration::from_millis(random.below(60_000)));
        }
    }

    /// Somebody with a phone that speaks Bluetooth.
    fn comes_near(&mut self, world: &mut World) {
        let random = self.random.branch();
        let Some(phone) = world.near(random.pick::<&str>(&["a", "b"])) else { return };
        let right = random.chance(50);
        let password = if right { brand::HOTSPOT_PASSWORD } else { "a guess at it" };
        for _ in 0..=random.below(5) {
            let value = match random.below(10) {
                0 => ("ssid", sealed(&random, password, HOME.0)),
                1 => ("psk", sealed(&random, password, random.pick::<&str>(&[HOME.1, "wrong horse"]))),
                2 => ("exit_provisioning", sealed(&random, password, "1")),
                3 => ("id", sealed(&random, password, "stolen")),
                4 => ("secret", sealed(&random, password, "planted-thief")),
                5 => ("app_address", sealed(&random, password, "https://thief.example.com")),
                6 => ("command", improv(1, &[HOME.0, random.pick::<&str>(&[HOME.1, "wrong horse"])])),
                7 => ("command", improv(1 + u8::try_from(random.below(5)).unwrap_or(0), &[])),
                8 => ("begin", vec![1; 49]),
                _ => ("message", vec![1; 40]),
            };
            if phone.is_connected() {
                // Nobody waits for every answer.
                let answer = phone.write(uuid(value.0), &value.1);
                world.run_for(Duration::from_millis(random.below(5_000)));
                drop(answer);
            }
        }
        if random.chance(70) {
            phone.disconnect();
        }
    }

    /// What must hold at every moment.
    fn look(&self, world: &World) {
        let stored = world.board.files.content(brand::CREDENTIALS_FILE).unwrap_or_default();
        let stolen = String::from_utf8_lossy(&stored).contains("thief");
        assert!(self.permitted || !stolen, "it was taken over\n{}", world.chronicle.tail(80));
    }

    /// Everything is well again, and a person sets the device up.
    fn becomes_well(&self, world: &mut World) {
        world.chronicle.note("everything is well again");
        let board = &world.board;
        board.files.heal();
        board.web.set_online(true);
        board.networks.set_manager(Manager::Ready);
        board.networks.plug_radio("wlan0", false);
        board.networks.place(AccessPoint::new(HOME.0, HOME.1));
        board.doorway.take_port(false);
        world.run_for(minutes(1));
        board_is_ours(world);
        let end = world.board.clock.elapsed() + hours(3);
        // Whoever is there is waited for, for an hour; then its own networks are tried, where it has any.
        while !is_online(world) {
            assert!(world.board.clock.elapsed() < end, "it stays offline\n{}", world.chronicle.tail(80));
            if let Some(phone) = world.phone(50, &world.label()) {
                world.give_network(phone, HOME.0, HOME.1);
            }
            world.run_for(minutes(2));
        }
        let closed = world.run_until(minutes(90), |hands| hands.board.networks.hotspot().is_none());
        assert!(closed, "its hotspot stays\n{}", world.chronicle.tail(60));
        world.run_for(minutes(30));
        assert!(is_online(world), "it does not stay online\n{}", world.chronicle.tail(60));
        // A cable is enough for what has no radio.
        world.board.networks.cable("eth0", Cable { plugged: true, dhcp: true, beyond: Beyond::Internet });
        world.run_for(minutes(5));
        let (at, _) = world.cloud.report().expect("it has reported");
        assert!(world.board.clock.elapsed() - at < minutes(11), "it no longer reports\n{}", world.chronicle.tail(60));
    }
}

/// Its owner puts the right credentials there by hand.
fn board_is_ours(world: &mut World) {
    world.board.files.put(brand::CREDENTIALS_FILE, credentials(), Access::Private);
}

fn is_online(world: &World) -> bool {
    world.board.networks.joined().is_some()
        && world.cloud.report().is_some_and(|(at, _)| world.board.clock.elapsed() - at < minutes(11))
}
