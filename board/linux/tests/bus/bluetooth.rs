//! BlueZ that is slow, has two adapters, and reads and writes what is offered: what no real one can be made to do at will.

use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap},
    path::PathBuf,
    rc::Rc,
};

use board::bluetooth::{
    Advertisement, Allows, Bluetooth, BluetoothError, Characteristic, Found, Offer, Service, Uuid, Visit, WriteRefused,
};
use board_linux::bluez::Bluez;
use smol::{LocalExecutor, Task, channel, stream::StreamExt as _};
use zbus::{
    Connection, Message, MessageStream,
    message::Type,
    zvariant::{ObjectPath, OwnedObjectPath, OwnedValue, Value},
};

use super::{Board, address, with_board};

const SERVICE: Uuid = Uuid(0x51d9_84c2_43bd_5228_a3ac_a3ec_a992_e8b3);
const STATUS: Uuid = Uuid(0xea8a_8689_548f_5941_829b_82ae_ff80_95b7);
const SSID: Uuid = Uuid(0x37a7_20ee_86e5_55a8_b876_d200_fb7e_4f72);
const CHARACTERISTIC: &str = "org.bluez.GattCharacteristic1";
const PROPERTIES: &str = "org.freedesktop.DBus.Properties";

type Objects = HashMap<OwnedObjectPath, BTreeMap<String, BTreeMap<String, OwnedValue>>>;

/// How the impostor behaves, and what it was told.
#[derive(Default)]
struct Manners {
    /// Questions for its objects that are refused first.
    refusals: usize,
    adapters: Vec<&'static str>,
    /// Where it has phones, and what is true of each.
    phones: Vec<(&'static str, &'static [&'static str])>,
    /// Its adapters are off.
    off: bool,
    /// What these are asked fails.
    broken: Vec<&'static str>,
    /// Methods that were called on its adapters.
    called: Vec<String>,
}

/// Somebody who has BlueZ's name. Sends on what is registered: who registers, and where.
struct Impostor {
    connection: Connection,
    manners: Rc<RefCell<Manners>>,
    registered: channel::Receiver<(String, String)>,
    signals: channel::Receiver<Message>,
    _serving: Task<()>,
}

async fn impostor(executor: &Rc<LocalExecutor<'static>>, folder: PathBuf, manners: Manners) -> Impostor {
    let connection = loop {
        let builder = zbus::connection::Builder::address(address(&folder).as_str()).expect("an address");
        if let Ok(connection) = builder.build().await {
            break connection;
        }
        smol::future::yield_now().await;
    };
    let mut messages = MessageStream::from(&connection);
    connection.request_name("org.bluez").await.expect("nobody else has it");
    let manners = Rc::new(RefCell::new(manners));
    let (register, registered) = channel::unbounded();
    let (tell, signals) = channel::unbounded();
    let (served, serving) = (connection.clone(), Rc::clone(&manners));
    let serving = executor.spawn(async move {
        while let Some(Ok(message)) = messages.next().await {
            match message.message_type() {
                Type::MethodCall => answer(&served, &message, &serving, &register).await.expect("the bus takes it"),
                Type::Signal if message.header().interface().is_some_and(|name| name.as_str() == PROPERTIES) => {
                    tell.try_send(message).expect("somebody listens");
                }
                _ => {}
            }
        }
    });
    Impostor { connection, manners, registered, signals, _serving: serving }
}

async fn answer(
    connection: &Connection,
    message: &Message,
    manners: &RefCell<Manners>,
    register: &channel::Sender<(String, String)>,
) -> zbus::Result<()> {
    let header = message.header();
    let path = header.path().map(|path| path.to_string()).unwrap_or_default();
    let method = header.member().map(|member| member.to_string()).unwrap_or_default();
    if method == "GetManagedObjects" {
        if manners.borrow().refusals > 0 {
            manners.borrow_mut().refusals -= 1;
            return connection.reply_error(&header, "org.freedesktop.DBus.Error.UnknownObject", &"not yet").await;
        }
        let has = ["org.bluez.Adapter1", "org.bluez.GattManager1", "org.bluez.LEAdvertisingManager1"];
        let none = || BTreeMap::<&str, Value<'_>>::new();
        let adapters = manners.borrow().adapters.clone();
        let objects: HashMap<ObjectPath<'_>, BTreeMap<&str, BTreeMap<&str, Value<'_>>>> = adapters
            .into_iter()
            .map(|path| (ObjectPath::try_from(path).expect("a path"), has.map(|name| (name, none())).into()))
            .collect();
        return connection.reply(&header, &objects).await;
    }
    let what = match &*method {
        "Set" => {
            let body = message.body();
            let (_, name, value): (&str, &str, Value<'_>) = body.deserialize()?;
            if name == "Powered" {
                manners.borrow_mut().off = value == Value::from(false);
            }
            let value = match value {
                Value::Bool(yes) => yes.to_string(),
                Value::U32(number) => number.to_string(),
                other => format!("{other:?}"),
            };
            format!("{name} {value}")
        }
        method => method.to_owned(),
    };
    manners.borrow_mut().called.push(format!("{path} {what}"));
    if manners.borrow().broken.contains(&&*path) {
        return connection.reply_error(&header, "org.bluez.Error.Failed", &"out of order").await;
    }
    match &*method {
        "GetAll" => {
            let there = manners.borrow().phones.iter().find(|(at, _)| *at == path).map(|(_, is)| phone(is));
            let adapter = BTreeMap::from([("Powered", Value::from(!manners.borrow().off))]);
            connection.reply(&header, &there.unwrap_or(adapter)).await
        }
        "RegisterApplication" | "RegisterAdvertisement" => {
            let body = message.body();
            let (place, _): (ObjectPath<'_>, HashMap<&str, Value<'_>>) = body.deserialize()?;
            let who = header.sender().map(|name| name.to_string()).unwrap_or_default();
            register.try_send((who, place.to_string())).expect("somebody listens");
            connection.reply(&header, &()).await
        }
        _ => connection.reply(&header, &()).await,
    }
}

/// What it knows of a phone of which all these are true.
fn phone(is: &[&'static str]) -> BTreeMap<&'static str, Value<'static>> {
    is.iter().map(|name| (*name, Value::from(true))).collect()
}

fn bluez(board: &Board) -> Bluez {
    Bluez::new(&board.executor, Rc::clone(&board.clock) as _, Rc::clone(&board.bus))
}

async fn until_present(bluez: &Bluez) {
    while !bluez.present() {
        bluez.changed().await;
    }
}

fn offer() -> Offer {
    let read = Allows { read: true, notify: true, ..Allows::default() };
    let write = Allows { write: true, ..Allows::default() };
    let characteristics =
        vec![Characteristic { uuid: STATUS, allows: read }, Characteristic { uuid: SSID, allows: write }];
    let found = Found { service: SERVICE, data: None };
    Offer {
        services: vec![Service { uuid: SERVICE, characteristics }],
        advertisement: Advertisement { name: "board".to_owned(), found: vec![found] },
    }
}

#[test]
fn one_that_is_not_ready_is_asked_again() {
    with_board(|board, folder| async move {
        let _daemon = super::Daemon::start(&folder);
        let bluez = bluez(&board);
        let manners = Manners { refusals: 1, adapters: vec!["/org/bluez/hci0"], ..Manners::default() };
        let impostor = impostor(&board.executor, folder, manners).await;
        until_present(&bluez).await;
        assert_eq!(impostor.manners.borrow().refusals, 0);
    });
}

#[test]
fn the_adapter_that_works_is_used() {
    with_board(|board, folder| async move {
        let _daemon = super::Daemon::start(&folder);
        let bluez = bluez(&board);
        let adapters = vec!["/org/bluez/hci0", "/org/bluez/hci1"];
        let manners = Manners { adapters, broken: vec!["/org/bluez/hci0"], ..Manners::default() };
        let impostor = impostor(&board.executor, folder, manners).await;
        until_present(&bluez).await;
        let offering = bluez.offer(&offer()).await.expect("the second works");
        let called = |wanted: &str| impostor.manners.borrow().called.iter().any(|one| one == wanted);
        assert!(called("/org/bluez/hci1 RegisterAdvertisement"), "{:?}", impostor.manners.borrow().called);
        assert!(!called("/org/bluez/hci0 RegisterAdvertisement"));
        drop(offering);
        impostor.manners.borrow_mut().broken.push("/org/bluez/hci1");
        let refused = bluez.offer(&offer()).await.err();
        assert!(
            matches!(&refused, Some(BluetoothError::Refused(words)) if words.contains("out of order")),
            "{refused:?}"
        );
    });
}

#[test]
fn what_is_offered_is_read_written_and_told() {
    with_board(|board, folder| async move {
        let _daemon = super::Daemon::start(&folder);
        let bluez = bluez(&board);
        let manners = Manners { adapters: vec!["/org/bluez/hci0"], ..Manners::default() };
        let impostor = impostor(&board.executor, folder, manners).await;
        until_present(&bluez).await;
        let offering = bluez.offer(&offer()).await.expect("it works");
        offering.set(STATUS, &[1, 2, 3]);
        let (agent, table) = impostor.registered.recv().await.expect("the table");
        let (_, advertisement) = impostor.registered.recv().await.expect("the advertisement");
        let agent = Some(&*agent);
        let connection = &impostor.connection;

        let manager = "org.freedesktop.DBus.ObjectManager";
        let answer = connection.call_method(agent, &*table, Some(manager), "GetManagedObjects", &()).await;
        let objects: Objects = answer.expect("our objects").body().deserialize().expect("our objects");
        let place = |uuid: Uuid| {
            let found = objects.iter().find(|(_, has)| {
                has.get(CHARACTERISTIC).and_then(|it| it.get("UUID"))
                    == Some(&Value::from(uuid.to_string()).try_into().expect("a text"))
            });
            found.expect("the characteristic").0.to_string()
        };
        assert_eq!(objects.len(), 3);
        let (status, ssid) = (place(STATUS), place(SSID));

        let asked = "org.bluez.LEAdvertisement1";
        let answer = connection.call_method(agent, &*advertisement, Some(PROPERTIES), "GetAll", &asked).await;
        let properties: HashMap<String, OwnedValue> = answer.expect("it").body().deserialize().expect("properties");
        assert_eq!(properties.get("LocalName").map(|name| &**name), Some(&Value::from("board")));
        assert_eq!(properties.get("ServiceUUIDs").map(|all| &**all), Some(&Value::from(vec![SERVICE.to_string()])));

        let read = |offset: u16| {
            let options = HashMap::from([("offset", Value::from(offset))]);
            let status = &*status;
            async move { connection.call_method(agent, status, Some(CHARACTERISTIC), "ReadValue", &options).await }
        };
        let bytes: Vec<u8> = read(1).await.expect("a value").body().deserialize().expect("bytes");
        assert_eq!(bytes, [2, 3]);
        let refused = read(4).await.expect_err("there is no such byte");
        assert!(
            matches!(&refused, zbus::Error::MethodError(name, ..) if name.as_str() == "org.bluez.Error.InvalidOffset"),
            "{refused:?}"
        );

        // Told only to who wants to know.
        connection.call_method(agent, &*status, Some(CHARACTERISTIC), "StartNotify", &()).await.expect("it may");
        offering.set(STATUS, &[9]);
        let told = impostor.signals.recv().await.expect("a change");
        assert_eq!(told.header().path().map(|path| path.as_str()), Some(&*status));
        let (of, changed, _): (String, HashMap<String, OwnedValue>, Vec<String>) =
            told.body().deserialize().expect("a change");
        assert_eq!(
            (&*of, changed.get("Value").map(|value| &**value)),
            (CHARACTERISTIC, Some(&Value::from(vec![9_u8])))
        );

        // The phone waits until the actor has looked at what it wrote.
        let write = |bytes: &'static [u8]| {
            let device = ObjectPath::try_from("/org/bluez/hci0/dev_AA_BB_CC_DD_EE_FF").expect("a path");
            let body = (bytes, HashMap::from([("device", Value::from(device))]));
            let ssid = &*ssid;
            async move { connection.call_method(agent, ssid, Some(CHARACTERISTIC), "WriteValue", &body).await }
        };
        for (bytes, verdict) in [(&b"home"[..], Ok(())), (b"nonsense", Err(WriteRefused::NotAuthorized))] {
            let looked = async {
                loop {
                    let Visit::Write { characteristic, phone, value, answer } = offering.next().await.expect("a visit")
                    else {
                        continue;
                    };
                    assert_eq!((characteristic, &*phone, value.expose()), (SSID, "AA:BB:CC:DD:EE:FF", bytes));
                    return answer(verdict);
                }
            };
            let (written, ()) = smol::future::zip(write(bytes), looked).await;
            match written {
                Ok(_) => assert!(verdict.is_ok()),
                Err(zbus::Error::MethodError(name, ..)) => assert_eq!(name.as_str(), "org.bluez.Error.NotAuthorized"),
                Err(error) => panic!("{error}"),
            }
        }
    });
}

#[test]
fn an_adapter_is_left_as_it_was() {
    const PHONE: &str = "/org/bluez/hci0/dev_AA_BB_CC_DD_EE_FF";
    const MADE: [&str; 4] = ["Powered true", "Pairable true", "DiscoverableTimeout 0", "Discoverable true"];
    const LEFT: [&str; 4] = ["Discoverable false", "DiscoverableTimeout 180", "Pairable false", "Powered false"];
    // A phone's connection needs the radio when the doors are closed, too.
    for (is, left) in [(&["Connected"][..], &LEFT[..3]), (&[], &LEFT)] {
        with_board(|board, folder| async move {
            let _daemon = super::Daemon::start(&folder);
            let bluez = bluez(&board);
            let manners = Manners {
                adapters: vec!["/org/bluez/hci0"],
                phones: vec![(PHONE, is)],
                off: true,
                ..Manners::default()
            };
            let impostor = impostor(&board.executor, folder, manners).await;
            until_present(&bluez).await;
            let sets = || -> Vec<String> {
                let called = impostor.manners.borrow().called.clone();
                let set = |one: &String| {
                    one.strip_prefix("/org/bluez/hci0 ").filter(|one| one.contains(' ')).map(str::to_owned)
                };
                called.iter().filter_map(set).collect()
            };
            let offering = bluez.offer(&offer()).await.expect("it works");
            assert_eq!(sets(), MADE);
            let alone = bluez.tether("AA:BB:CC:DD:EE:FF").await;
            assert!(alone.is_err(), "there is no network manager here");
            drop(offering);
            // The next one waits until that was taken back.
            bluez.offer(&offer()).await.expect("it works");
            assert_eq!(
                sets().get(4..4 + left.len()),
                Some(left.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>().as_slice())
            );
            assert_eq!(sets().get(4 + left.len()).map(|one| one == "Powered false"), Some(false));
        });
    }
}
