//! The way to the message bus, against a real bus of its own that comes, goes and is restarted.

#![cfg(target_os = "linux")]

mod bluetooth;
mod networks;
mod wire;

use std::{
    fs,
    path::Path,
    process::{Child, Command},
    rc::Rc,
};

use board_linux::{
    bus::{Bus, There},
    clock::LinuxClock,
};
use smol::{LocalExecutor, future::poll_once};
use zbus::connection::Builder;

const NAME: &str = "org.example.Service";

/// A bus with a socket in `folder`; ended when it is dropped.
struct Daemon(Child);

impl Daemon {
    fn start(folder: &Path) -> Daemon {
        let configuration = folder.join("bus.conf");
        let text = format!(
            "<busconfig><listen>{}</listen><policy context=\"default\"><allow user=\"*\"/>\
             <allow own=\"*\"/><allow send_destination=\"*\"/><allow receive_sender=\"*\"/></policy></busconfig>",
            address(folder)
        );
        fs::write(&configuration, text).expect("a folder of ours");
        let mut command = Command::new("dbus-daemon");
        command.arg("--nofork").arg("--nosyslog").arg("--config-file").arg(&configuration);
        Daemon(command.spawn().expect("dbus-daemon of the package dbus"))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn address(folder: &Path) -> String {
    format!("unix:path={}/socket", folder.display())
}

/// Somebody who owns [`NAME`]; waits for the bus to listen.
async fn service(folder: &Path) -> zbus::Connection {
    loop {
        let builder = Builder::address(address(folder).as_str()).and_then(|builder| builder.name(NAME));
        if let Ok(connection) = builder.expect("an address and a name").build().await {
            return connection;
        }
        smol::future::yield_now().await;
    }
}

/// What a test has of a board.
struct Board {
    executor: Rc<LocalExecutor<'static>>,
    clock: Rc<LinuxClock>,
    bus: Rc<Bus>,
}

fn with_board<F: Future<Output = ()>>(test: impl FnOnce(Board, std::path::PathBuf) -> F) {
    if Command::new("dbus-daemon").arg("--version").output().is_err() {
        eprintln!("SKIPPED there is no dbus-daemon here");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let executor = Rc::new(LocalExecutor::new());
    let clock = Rc::new(LinuxClock::new(&executor).expect("a timer"));
    let bus = Bus::at(&executor, Rc::clone(&clock) as _, address(folder.path()));
    let board = Board { executor: Rc::clone(&executor), clock, bus };
    smol::block_on(executor.run(test(board, folder.path().to_owned())));
}

fn with_bus<F: Future<Output = ()>>(test: impl FnOnce(Rc<Bus>, std::path::PathBuf) -> F) {
    with_board(|board, folder| test(board.bus, folder));
}

async fn is_gone(there: &There) -> bool {
    poll_once(there.gone()).await.is_some()
}

#[test]
fn a_service_is_seen_coming_late_restarting_and_going() {
    with_bus(|bus, folder| async move {
        let _daemon = Daemon::start(&folder);
        let mut appeared = Box::pin(bus.appeared(NAME));
        assert!(poll_once(&mut appeared).await.is_none(), "nobody is there");
        let (first, there) = smol::future::zip(service(&folder), appeared).await;
        assert_eq!(Some(there.owner()), first.unique_name().map(|name| name.as_str()));
        assert!(!is_gone(&there).await);
        first.close().await.expect("a connection");
        there.gone().await;

        let (second, again) = smol::future::zip(service(&folder), bus.appeared(NAME)).await;
        assert_ne!(there.owner(), again.owner(), "the successor is another one");
        assert!(!is_gone(&again).await);
        drop(second);
        again.gone().await;
        assert!(is_gone(&there).await, "what is gone stays gone");
    });
}

#[test]
fn a_bus_that_comes_late_and_is_restarted_is_found() {
    with_bus(|bus, folder| async move {
        assert!(bus.connection().await.is_err(), "there is no bus");
        let mut appeared = Box::pin(bus.appeared(NAME));
        assert!(poll_once(&mut appeared).await.is_none());
        let daemon = Daemon::start(&folder);
        let (_service, there) = smol::future::zip(service(&folder), appeared).await;
        drop(daemon);
        there.gone().await;
        fs::remove_file(folder.join("socket")).expect("a killed bus leaves its socket");
        let _daemon = Daemon::start(&folder);
        let (_service, again) = smol::future::zip(service(&folder), bus.appeared(NAME)).await;
        assert!(!is_gone(&again).await);
    });
}
