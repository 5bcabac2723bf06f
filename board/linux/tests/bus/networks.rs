//! The network manager that is late, old, restarted or out of its mind: what no real one can be made to do at will.

use std::{
    cell::Cell,
    collections::{BTreeMap, HashMap},
    path::PathBuf,
    rc::Rc,
};

use board::{
    Clock as _,
    network::{JoinError, Links, Manager, Medium, NetworkError, Networks},
};
use board_linux::{bus::CALL_MAX, network_manager::NetworkManager};
use smol::{LocalExecutor, Task, stream::StreamExt as _};
use zbus::{
    Connection, Message, MessageStream,
    message::Type,
    zvariant::{ObjectPath, Value},
};

use super::{Board, address, with_board};

const NAME: &str = "org.freedesktop.NetworkManager";
const ROOT: &str = "/org/freedesktop/NetworkManager";
const PROFILE: &str = "/org/freedesktop/NetworkManager/Settings/1";
const DEVICE: &str = "/org/freedesktop/NetworkManager/Devices/1";
const ACTIVE: &str = "/org/freedesktop/NetworkManager/ActiveConnection/1";
const HEARD: &str = "/org/freedesktop/NetworkManager/AccessPoint/1";
const WIRELESS: &str = "org.freedesktop.NetworkManager.Device.Wireless";
const SECURITY: &str = "802-11-wireless-security";
const PASSWORD: &str = "planted-secret-42";

type Map = BTreeMap<String, Value<'static>>;

/// What the impostor answers; signals follow the answer.
enum Answer {
    Map(Map),
    Maps(BTreeMap<String, Map>),
    Objects(BTreeMap<ObjectPath<'static>, BTreeMap<String, Map>>),
    Paths(Vec<ObjectPath<'static>>),
    Path(ObjectPath<'static>),
    Error(&'static str),
    /// An error by its name.
    Named(&'static str),
    /// The device fails for this reason after its connection was asked for.
    Fails(u32),
    /// As [`Answer::Fails`], with this many other signals before everything else.
    FailsInAStorm(u32, u32),
    /// The radio says its state after the answer.
    ThenState(Box<Answer>, u32),
    /// It goes after its connection was asked for; in good order it lets go of the device before.
    Goes {
        in_good_order: bool,
    },
    Nothing,
}

fn map<const N: usize>(entries: [(&str, Value<'static>); N]) -> Map {
    entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

fn path(path: &'static str) -> ObjectPath<'static> {
    ObjectPath::try_from(path).expect("a path")
}

/// Somebody who has the network manager's name and answers by `answer`: path, method, interface that was asked for.
async fn impostor(
    executor: &Rc<LocalExecutor<'static>>,
    folder: PathBuf,
    mut answer: impl FnMut(&str, &str, &str) -> Answer + 'static,
) -> Task<()> {
    let connection = loop {
        let builder = zbus::connection::Builder::address(address(&folder).as_str()).expect("an address");
        if let Ok(connection) = builder.build().await {
            break connection;
        }
        smol::future::yield_now().await;
    };
    let mut messages = MessageStream::from(&connection);
    // Listens before it has its name.
    connection.request_name(NAME).await.expect("nobody else has it");
    executor.spawn(async move {
        while let Some(Ok(message)) = messages.next().await {
            if message.message_type() == Type::MethodCall {
                let header = message.header();
                let asked: String = message.body().deserialize::<&str>().unwrap_or_default().to_owned();
                let method = header.member().map(|member| member.to_string()).unwrap_or_default();
                let path = header.path().map(|path| path.to_string()).unwrap_or_default();
                let answer = answer(&path, &method, &asked);
                reply(&connection, &message, answer).await.expect("the bus takes it");
            }
        }
    })
}

async fn reply(connection: &Connection, to: &Message, answer: Answer) -> zbus::Result<()> {
    let header = to.header();
    match answer {
        Answer::Map(map) => connection.reply(&header, &map).await,
        Answer::Maps(maps) => connection.reply(&header, &maps).await,
        Answer::Objects(objects) => connection.reply(&header, &objects).await,
        Answer::Paths(paths) => connection.reply(&header, &paths).await,
        Answer::Path(path) => connection.reply(&header, &path).await,
        Answer::Nothing => connection.reply(&header, &()).await,
        Answer::Error(words) => connection.reply_error(&header, "org.example.Refused", &words).await,
        Answer::Named(name) => connection.reply_error(&header, name, &"no").await,
        Answer::FailsInAStorm(reason, signals) => {
            for _ in 0..signals {
                let device = "org.freedesktop.NetworkManager.Device";
                connection.emit_signal(None::<&str>, DEVICE, device, "StateChanged", &(50_u32, 40_u32, 0_u32)).await?;
            }
            Box::pin(reply(connection, to, Answer::Fails(reason))).await
        }
        Answer::ThenState(answer, state) => {
            Box::pin(reply(connection, to, *answer)).await?;
            let (device, changed) = ("org.freedesktop.NetworkManager.Device", map([("State", Value::from(state))]));
            let body = (device, changed, Vec::<String>::new());
            connection
                .emit_signal(None::<&str>, DEVICE, "org.freedesktop.DBus.Properties", "PropertiesChanged", &body)
                .await
        }
        Answer::Goes { in_good_order } => {
            connection.reply(&header, &path(ACTIVE)).await?;
            let (none, device) = (None::<&str>, "org.freedesktop.NetworkManager.Device");
            let active = "org.freedesktop.NetworkManager.Connection.Active";
            if in_good_order {
                connection.emit_signal(none, DEVICE, device, "StateChanged", &(110_u32, 70_u32, 3_u32)).await?;
                connection.emit_signal(none, ACTIVE, active, "StateChanged", &(4_u32, 3_u32)).await?;
            }
            connection.release_name(NAME).await.map(drop)
        }
        Answer::Fails(reason) => {
            connection.reply(&header, &path(ACTIVE)).await?;
            let none = None::<&str>;
            let device = "org.freedesktop.NetworkManager.Device";
            let active = "org.freedesktop.NetworkManager.Connection.Active";
            connection.emit_signal(none, DEVICE, device, "StateChanged", &(120_u32, 50_u32, reason)).await?;
            connection.emit_signal(none, ACTIVE, active, "StateChanged", &(4_u32, 1_u32)).await
        }
    }
}

/// A network manager as they are, with one radio and one profile of the agent's.
fn ordinary(version: &'static str, reason: u32) -> impl FnMut(&str, &str, &str) -> Answer {
    move |object, method, asked| match (object, method, asked) {
        (ROOT, "GetAll", _) => Answer::Map(map([
            ("Version", Value::from(version)),
            ("WirelessEnabled", Value::from(true)),
            ("WirelessHardwareEnabled", Value::from(true)),
            ("NetworkingEnabled", Value::from(true)),
            ("Devices", Value::from(vec![path(DEVICE)])),
        ])),
        (DEVICE, "GetAll", "org.freedesktop.NetworkManager.Device") => Answer::Map(map([
            ("DeviceType", Value::from(2_u32)),
            ("State", Value::from(30_u32)),
            ("Interface", Value::from("radio0")),
        ])),
        // Listened to so recently that it need not be done again.
        (DEVICE, "GetAll", _) => Answer::Map(map([("LastScan", Value::from(i64::MAX))])),
        (ACTIVE, "GetAll", _) => Answer::Map(map([("State", Value::from(1_u32))])),
        ("/org/freedesktop", ..) => Answer::Objects(BTreeMap::from([
            (
                path(DEVICE),
                BTreeMap::from([(WIRELESS.to_owned(), map([("AccessPoints", Value::from(vec![path(HEARD)]))]))]),
            ),
            (
                path(HEARD),
                BTreeMap::from([(
                    "org.freedesktop.NetworkManager.AccessPoint".to_owned(),
                    map([
                        ("Ssid", Value::from(b"home".to_vec())),
                        ("Strength", Value::from(70_u8)),
                        ("Flags", Value::from(1_u32)),
                        ("RsnFlags", Value::from(0x188_u32)),
                    ]),
                )]),
            ),
        ])),
        (_, "GetSecrets", _) => {
            Answer::Maps(BTreeMap::from([(SECURITY.to_owned(), map([("psk", Value::from(PASSWORD))]))]))
        }
        (_, "ListConnections", _) => Answer::Paths(vec![path(PROFILE)]),
        (PROFILE, "GetSettings", _) => Answer::Maps(BTreeMap::from([
            ("connection".to_owned(), map([("type", Value::from("802-11-wireless"))])),
            ("802-11-wireless".to_owned(), map([("ssid", Value::from(b"home".to_vec()))])),
            (SECURITY.to_owned(), map([("key-mgmt", Value::from("wpa-psk"))])),
            ("user".to_owned(), map([("data", Value::from(HashMap::from([("test.network", "home")])))])),
        ])),
        (_, "ActivateConnection", _) => Answer::Fails(reason),
        _ => Answer::Error("what is that?"),
    }
}

fn networks(board: &Board) -> NetworkManager {
    NetworkManager::new(&board.executor, Rc::clone(&board.clock) as _, Rc::clone(&board.bus), "test")
}

async fn until(networks: &NetworkManager, wanted: impl Fn(&Links) -> bool) {
    while !wanted(&networks.links()) {
        networks.changed().await;
    }
}

#[test]
fn it_is_late_and_restarted_and_too_old() {
    with_board(|board, folder| async move {
        let daemon = super::Daemon::start(&folder);
        let networks = networks(&board);
        assert_eq!(networks.links().manager, Manager::Absent);
        assert!(matches!(networks.profiles().await, Err(NetworkError::Absent(_))));

        // It has its name before it has its objects.
        let mut refusals = 1;
        let mut later = ordinary("1.42.4", 0);
        let first = impostor(&board.executor, folder.clone(), move |object, method, asked| {
            if object == ROOT && refusals > 0 {
                refusals -= 1;
                return Answer::Error("no such object");
            }
            later(object, method, asked)
        });
        let first = first.await;
        until(&networks, |links| links.manager == Manager::Ready).await;
        assert_eq!(networks.links().radios.first().map(|radio| radio.interface.clone()).as_deref(), Some("radio0"));
        let keys: Vec<String> = networks.profiles().await.expect("there").into_iter().map(|one| one.key).collect();
        assert_eq!(keys, ["home"]);

        drop(first);
        until(&networks, |links| links.manager == Manager::Absent).await;
        assert!(networks.links().radios.is_empty());

        let _old = impostor(&board.executor, folder.clone(), ordinary("1.22.0", 0)).await;
        until(&networks, |links| matches!(&links.manager, Manager::Unusable(words) if words.contains("1.22.0"))).await;
        assert!(matches!(networks.scan(None, true).await, Err(NetworkError::Refused(words)) if words.contains("1.30")));
        drop(daemon);
        until(&networks, |links| links.manager == Manager::Absent).await;
    });
}

/// Answers of every other shape than is asked for.
#[test]
fn nonsense_is_refused_and_ends_nothing() {
    let answers: [fn() -> Answer; 5] = [
        || Answer::Nothing,
        || Answer::Path(path("/")),
        || Answer::Paths(vec![path("/a"); 300]),
        || {
            Answer::Map(map([
                ("Devices", Value::from(7_u32)),
                ("Version", Value::from("1.42")),
                ("State", Value::from("x")),
            ]))
        },
        || Answer::Maps(BTreeMap::from([("user".to_owned(), map([("data", Value::from(true))]))])),
    ];
    for answer in answers {
        with_board(|board, folder| async move {
            let _daemon = super::Daemon::start(&folder);
            let networks = networks(&board);
            let mut usual = ordinary("1.42.4", 0);
            let mut asked = 0;
            // The first look is answered well, so that calls get as far as they can.
            let _impostor = impostor(&board.executor, folder.clone(), move |object, method, interface| {
                asked += 1;
                if asked <= 3 { usual(object, method, interface) } else { answer() }
            })
            .await;
            until(&networks, |links| links.manager == Manager::Ready).await;
            let _ = networks.profiles().await;
            let _ = networks.scan(None, false).await;
            let _ = networks.join_known(None).await;
            let _ = networks.remove("home").await;
            let _ = networks.close_hotspot().await;
            assert!(networks.join("home").await.is_err());
        });
    }
}

#[test]
fn why_it_failed_is_said_in_words_and_without_the_password() {
    let reasons = [
        (7, "wrong password for home"),
        (53, "no network named home is in range"),
        (5, "home gives this device no address: is its DHCP server running, and has it addresses left?"),
    ];
    for (reason, words) in reasons {
        with_board(|board, folder| async move {
            let _daemon = super::Daemon::start(&folder);
            let networks = networks(&board);
            let mut usual = ordinary("1.42.4", reason);
            let _impostor = impostor(&board.executor, folder.clone(), move |object, method, asked| {
                // Whatever was heard was heard just now.
                if method == "RequestScan" { Answer::Error("too soon") } else { usual(object, method, asked) }
            })
            .await;
            until(&networks, |links| links.manager == Manager::Ready).await;
            let profile = networks.profiles().await.expect("there").remove(0);
            assert!(matches!(&profile.medium, Medium::Wifi { psk: Some(psk), .. } if psk.expose() == PASSWORD));
            let error = networks.put(&profile).await.expect_err("it refuses");
            assert!(!format!("{error} {error:?} {profile:?}").contains(PASSWORD), "{error:?}");
            let refused = networks.join("home").await.expect_err("it fails");
            assert_eq!(refused.to_string(), words);
            let unknown = networks.join("nobody").await.expect_err("there is none");
            assert!(unknown.to_string().contains("nobody"), "{unknown}");
        });
    }
}

/// A cable that is pulled while its address is put on it, and one that loses its address for another reason.
#[test]
fn why_a_cable_has_no_address() {
    let fixed = [("address", Value::from("192.168.88.7")), ("prefix", Value::from(24_u32))];
    let fixed =
        || map([("method", Value::from("manual")), ("address-data", Value::from(vec![HashMap::from(fixed.clone())]))]);
    let auto = || map([("method", Value::from("auto"))]);
    let rows = [
        (fixed(), false, "no cable is plugged into cable0"),
        (auto(), false, "no cable is plugged into cable0"),
        (fixed(), true, "the network manager refused: cable0 did not keep its address 192.168.88.7"),
        (auto(), true, "cable0 gives this device no address: is its DHCP server running, and has it addresses left?"),
    ];
    for (address, stays, words) in rows {
        with_board(|board, folder| async move {
            let _daemon = super::Daemon::start(&folder);
            let networks = networks(&board);
            let mut usual = ordinary("1.42.4", 5);
            let pulled = Rc::new(Cell::new(false));
            let _impostor =
                impostor(&board.executor, folder.clone(), move |object, method, asked| match (object, method, asked) {
                    (DEVICE, "GetAll", "org.freedesktop.NetworkManager.Device") => Answer::Map(map([
                        ("DeviceType", Value::from(1_u32)),
                        ("State", Value::from(30_u32)),
                        ("Interface", Value::from("cable0")),
                    ])),
                    (DEVICE, "GetAll", "org.freedesktop.NetworkManager.Device.Wired") => {
                        Answer::Map(map([("Carrier", Value::from(!pulled.get()))]))
                    }
                    (PROFILE, "GetSettings", _) => Answer::Maps(BTreeMap::from([
                        ("connection".to_owned(), map([("type", Value::from("802-3-ethernet"))])),
                        ("802-3-ethernet".to_owned(), Map::new()),
                        ("ipv4".to_owned(), address.clone()),
                        ("user".to_owned(), map([("data", Value::from(HashMap::from([("test.network", "desk")])))])),
                    ])),
                    (_, "ActivateConnection", _) => {
                        pulled.set(!stays);
                        Answer::Fails(5)
                    }
                    _ => usual(object, method, asked),
                })
                .await;
            until(&networks, |links| links.manager == Manager::Ready).await;
            let failed = networks.join("desk").await.expect_err("it fails");
            assert_eq!(failed.to_string(), words);
        });
    }
}

/// Nobody else has used the device meanwhile, and no password was wrong.
#[test]
fn it_is_restarted_in_the_middle_of_a_join() {
    for in_good_order in [true, false] {
        with_board(|board, folder| async move {
            let _daemon = super::Daemon::start(&folder);
            let networks = networks(&board);
            let mut usual = ordinary("1.42.4", 7);
            let _impostor = impostor(&board.executor, folder.clone(), move |object, method, asked| match method {
                "ActivateConnection" => Answer::Goes { in_good_order },
                "RequestScan" => Answer::Error("too soon"),
                _ => usual(object, method, asked),
            })
            .await;
            until(&networks, |links| links.manager == Manager::Ready).await;
            let cut = networks.join("home").await.expect_err("it went");
            assert_eq!(cut, JoinError::Network(NetworkError::Restarted), "in good order: {in_good_order}");
            until(&networks, |links| links.manager == Manager::Absent).await;
        });
    }
}

#[test]
fn a_radio_that_is_not_ready_yet_is_waited_for() {
    with_board(|board, folder| async move {
        let _daemon = super::Daemon::start(&folder);
        let networks = networks(&board);
        let mut usual = ordinary("1.42.4", 7);
        let mut state = 20_u32;
        let _impostor = impostor(&board.executor, folder.clone(), move |object, method, asked| {
            let answer = usual(object, method, asked);
            match (method, answer) {
                ("RequestScan", _) => Answer::Error("too soon"),
                ("GetAll", Answer::Map(mut told)) if told.contains_key("Interface") => {
                    told.insert("State".to_owned(), Value::from(state));
                    Answer::Map(told)
                }
                // The last that is asked for before a radio is.
                ("GetSecrets", answer) => {
                    state = 30;
                    Answer::ThenState(Box::new(answer), state)
                }
                (_, answer) => answer,
            }
        })
        .await;
        until(&networks, |links| links.radios.iter().any(|radio| radio.blocked.is_some())).await;
        assert!(
            matches!(networks.scan(None, false).await, Err(NetworkError::Refused(_))),
            "who only looks waits for none"
        );
        let failed = networks.join("home").await.expect_err("its password is wrong");
        assert_eq!(failed.to_string(), "wrong password for home", "it came as far as that");
    });
}

/// What is not told must not be written back as "no password".
#[test]
fn a_password_that_is_not_told_is_no_open_network() {
    let table = [
        ("org.freedesktop.NetworkManager.Settings.PermissionDenied", false),
        ("org.freedesktop.NetworkManager.AgentManager.UserCanceled", false),
        // Somebody has taken it from the disk: it never comes back.
        ("org.freedesktop.NetworkManager.AgentManager.NoSecrets", true),
    ];
    for (error, listed) in table {
        with_board(|board, folder| async move {
            let _daemon = super::Daemon::start(&folder);
            let networks = networks(&board);
            let mut usual = ordinary("1.42.4", 7);
            let _impostor = impostor(&board.executor, folder.clone(), move |object, method, asked| match method {
                "GetSecrets" => Answer::Named(error),
                "RequestScan" => Answer::Error("too soon"),
                _ => usual(object, method, asked),
            })
            .await;
            until(&networks, |links| links.manager == Manager::Ready).await;
            match networks.profiles().await {
                Ok(all) => {
                    assert!(listed, "{error}");
                    let [profile] = &*all else { panic!("{all:?}") };
                    assert!(
                        matches!(&profile.medium, Medium::Wifi { psk: Some(psk), .. } if psk.is_empty()),
                        "{error}"
                    );
                }
                Err(refused) => assert!(!listed && matches!(refused, NetworkError::Refused(_)), "{error}: {refused}"),
            }
            // The network manager can use what it does not tell.
            let failed = networks.join("home").await.expect_err("it fails");
            assert_eq!(failed.to_string(), "wrong password for home", "{error}");
        });
    }
}

/// While an answer is waited for, nobody reads the signals that were asked for before.
#[test]
fn a_storm_of_signals_holds_nothing_up() {
    with_board(|board, folder| async move {
        let _daemon = super::Daemon::start(&folder);
        let networks = networks(&board);
        let mut usual = ordinary("1.42.4", 0);
        let _impostor = impostor(&board.executor, folder.clone(), move |object, method, asked| match method {
            "ActivateConnection" => Answer::FailsInAStorm(7, 500),
            "RequestScan" => Answer::Error("too soon"),
            _ => usual(object, method, asked),
        })
        .await;
        until(&networks, |links| links.manager == Manager::Ready).await;
        let began = board.clock.now();
        let failed = networks.join("home").await.expect_err("it fails");
        assert_eq!(failed.to_string(), "wrong password for home");
        assert!(board.clock.now() < began + CALL_MAX, "an answer was held up");
    });
}

#[test]
fn power_save_that_was_not_heeded_is_told_again() {
    with_board(|board, folder| async move {
        let _daemon = super::Daemon::start(&folder);
        let settings = folder.join("settings");
        let (clock, bus) = (Rc::clone(&board.clock) as _, Rc::clone(&board.bus));
        let networks = NetworkManager::with_folder(&board.executor, clock, bus, "test", &settings);
        assert!(networks.set_power_save(Some(false)).await.is_err(), "nobody is there");
        assert!(!settings.exists(), "and nothing is written");

        let mut usual = ordinary("1.42.4", 0);
        let mut reloads = 0;
        let (tell, reloaded) = smol::channel::unbounded();
        let _impostor = impostor(&board.executor, folder.clone(), move |object, method, asked| match method {
            "Reload" => {
                reloads += 1;
                tell.try_send(()).expect("somebody counts");
                if reloads == 1 { Answer::Error("busy") } else { Answer::Nothing }
            }
            _ => usual(object, method, asked),
        })
        .await;
        until(&networks, |links| links.manager == Manager::Ready).await;
        // What is wanted, whether it succeeds and changes something, and how often the network manager was told by then.
        let steps = [
            (None, Some(false), 0),
            (Some(false), None, 1),
            (Some(false), Some(true), 2),
            (Some(false), Some(false), 2),
            (None, Some(true), 3),
            (None, Some(false), 3),
        ];
        for (wanted, expected, told) in steps {
            assert_eq!(networks.set_power_save(wanted).await.ok(), expected, "{wanted:?} {told}");
            assert_eq!(reloaded.len(), told, "{wanted:?}");
        }
    });
}
