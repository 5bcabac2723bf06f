//! Values that phones write over Bluetooth, in both schemes and in Improv. Without the password nothing leads anywhere
//! but Improv's network; what was well said comes out as it was said; no value grows without bound.

use std::time::Duration;

use actors::provisioning::{
    ble::{
        characteristics::TABLE,
        session::{Session, Settings},
    },
    visit::{Door, Visit},
    welcome::{IdentityDoor, Welcome},
};
use api::Secret;
use board::{Mono, bluetooth::VALUE_BYTES_MAX};
use board_sim::random::Random;

use super::{noise, spoil};
use crate::world::near::{improv, keys, sealed, uuid};

/// Of the door.
const PASSWORD: &str = "platform:hotspot";
/// A value under RSA takes milliseconds: one round in so many has them.
const SEALED_EVERY: u64 = 32;
/// All values that phones read, together: 16 of at most 512 bytes.
const VALUES_BYTES_MAX: usize = TABLE.len() * VALUE_BYTES_MAX;

pub(super) fn round(random: &Random) -> Result<(), String> {
    let needs_presence = random.chance(50);
    let settings = Settings {
        name: "platform-setup".to_owned(),
        password: Secret::from(PASSWORD),
        trust_all: false,
        improv: random.chance(80),
        improv_needs_presence: needs_presence,
        url: "".into(),
    };
    let identity = *random.pick(&[IdentityDoor::Wanted, IdentityDoor::Open, IdentityDoor::Shut]);
    let welcome = Welcome { identity, ..Welcome::default() };
    let keys = keys(&settings.password).ok_or("no keys")?;
    let mut session = Session::new(&settings, keys, &welcome);
    let slow = random.below(SEALED_EVERY) == 0;
    let mut now = Mono::BOOT + Duration::from_secs(1000);
    for _ in 0..8 {
        now = now + Duration::from_millis(random.below(3_000));
        let row = random.pick(&TABLE);
        let (name, mut value) = match random.below(8) {
            0 => ("command", improv(1, &["home", "correct horse"])),
            1 => ("command", improv(u8::try_from(random.below(6)).unwrap_or(0), &[])),
            2 => ("command", noise(random, 300)),
            3 => ("begin", [&[1], &noise(random, 60)[..]].concat()),
            4 => ("message", [&[1], &noise(random, 600)[..]].concat()),
            5 if slow => ("ssid", sealed(random, "a guess at it", "home")),
            6 if slow => ("exit_provisioning", noise(random, 256)),
            // Of every length but the one that is looked at for milliseconds.
            _ => (row.name, noise(random, 255)),
        };
        if random.chance(60) {
            spoil(random, &mut value);
        }
        let before = session_size(&mut session);
        let Ok(visits) = session.write(now, random.pick::<&str>(&["a", "b", "c"]), uuid(name), &value) else {
            continue;
        };
        let only_network = visits.visits.iter().all(|visit| matches!(visit, Visit::Network(_) | Visit::Rescan));
        if visits.door != Door::Improv && !visits.visits.is_empty() || !only_network {
            return Err(format!("{name} led to {:?} by {value:02x?}", visits.visits));
        }
        if needs_presence && !visits.visits.is_empty() {
            return Err(format!("{name} led to {:?} with nobody at the device", visits.visits));
        }
        let after = session_size(&mut session);
        if after > VALUES_BYTES_MAX {
            return Err(format!("{before} bytes of values became {after}"));
        }
        session.left(random.pick::<&str>(&["a", "b"]));
        session.tick(now);
    }
    if slow { well_said(random, &mut session, now + Duration::from_secs(60), identity) } else { Ok(()) }
}

/// After all this nonsense, somebody with the password who does it well.
fn well_said(random: &Random, session: &mut Session, now: Mono, identity: IdentityDoor) -> Result<(), String> {
    let mut last = Vec::new();
    let mut write = |name: &str, value: &str| -> Result<(), String> {
        let visits = session.write(now, "app", uuid(name), &sealed(random, PASSWORD, value));
        last = visits.map_err(|why| format!("{name} was refused: {why:?}"))?.visits.to_vec();
        Ok(())
    };
    // What nonsense may have left in the draft cannot be: it had no password.
    write("ssid", "home")?;
    write("psk", "correct horse")?;
    let named = write("id", "part-1");
    if named.is_ok() == (identity == IdentityDoor::Shut) {
        return Err(format!("an identity at a door that is {identity:?}: {named:?}"));
    }
    if identity != IdentityDoor::Shut {
        write("secret", "of the part")?;
        write("app_address", "https://fleet.example.com:443")?;
    }
    write("exit_provisioning", "1")?;
    let network = last.iter().any(|visit| {
        matches!(visit, Visit::Network(given)
            if given.ssid.bytes() == b"home" && given.psk.as_ref().is_some_and(|psk| psk.expose() == "correct horse"))
    });
    let who = last.iter().any(|visit| matches!(visit, Visit::Identity(identity) if identity.part_id == "part-1"));
    if !network || who == (identity == IdentityDoor::Shut) {
        return Err(format!("what was well said became {last:?}"));
    }
    Ok(())
}

/// Bytes of all values that phones read.
fn session_size(session: &mut Session) -> usize {
    session.forget_given();
    session.changes().values.iter().map(|(_, value)| value.len()).sum()
}
