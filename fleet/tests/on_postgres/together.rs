//! Several servers as processes of their own on one database: who writes at two of them at once, and what is left when one
//! of them is killed.

use std::{
    fs,
    net::SocketAddr,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use api::pb::platform::fleet::v1::{GetPartStatusRequest, GetPartStatusResponse};

use crate::under_load::{
    pages, race,
    world::{
        Client, PATIENCE,
        process::{Keys, Server, init},
    },
    writers::{self, Load, There},
};

/// Data folders of two servers: one database, one key, one folder for the registry's files.
fn folders(folder: &Path) -> ([PathBuf; 2], Keys) {
    let [one, other] = ["one", "other"].map(|name| folder.join(name));
    let keys = init(&one);
    fs::create_dir_all(one.join("artifacts")).unwrap();
    fs::create_dir(&other).unwrap();
    fs::copy(one.join("server.key"), other.join("server.key")).unwrap();
    symlink(one.join("artifacts"), other.join("artifacts")).unwrap();
    ([one, other], keys)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_200_writers_at_two_servers_one_wins() {
    let folder = tempfile::tempdir().unwrap();
    let (folders, keys) = folders(folder.path());
    let servers = folders.map(|data| Server::start_unlimited(&data));
    let owner = servers[0].owner(&keys).await;
    let clients: [Client; 2] = [owner.client.clone(), servers[1].client(&keys.1, &keys.2).await];
    race::of_a_part(&owner, &clients).await;
    race::of_a_fragment(&owner, &clients).await;
}

/// Spreads connections over addresses, one after the other, and passes bytes on: what any TCP balancer does.
async fn balance(over: Vec<SocketAddr>) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (over, turn) = (Arc::new(over), Arc::new(AtomicUsize::new(0)));
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let (over, turn) = (over.clone(), turn.clone());
            tokio::spawn(async move {
                for _ in 0..over.len() {
                    let next = over[turn.fetch_add(1, Relaxed) % over.len()];
                    if let Ok(mut server) = tokio::net::TcpStream::connect(next).await {
                        let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                        return;
                    }
                }
            });
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_a_balancer_one_may_be_killed_and_nothing_acknowledged_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let (folders, keys) = folders(folder.path());
    let [mut first, second] = folders.map(|data| Server::start_unlimited(&data));
    let address = |server: &Server| server.url.strip_prefix("http://").unwrap().parse().unwrap();
    let balancer = balance(vec![address(&first), address(&second)]).await;
    let there = There { url: format!("http://{balancer}"), keys: keys.clone() };
    let mut load = Load::begin(&there).await;
    let mut at_the_other = Load::begin(&There { url: second.url.clone(), keys }).await;
    load.acknowledged(8).await;
    at_the_other.acknowledged(2).await;
    load.is_killed();
    first.kill();
    // Nobody else gets its port: whoever the balancer sends there is refused.
    let held = tokio::net::TcpSocket::new_v4().unwrap();
    held.set_reuseaddr(true).unwrap();
    held.bind(address(&first)).unwrap();
    // Those at the other one are not disturbed.
    at_the_other.goes_on(100).await;
    let mut writers = load.end().await;
    writers.extend(at_the_other.end().await);
    // Whoever connects now reaches the one that is left.
    writers::check(&mut writers, &there).await;
    drop(held);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_and_tails_are_true_while_lines_arrive_at_two_servers() {
    let folder = tempfile::tempdir().unwrap();
    let (folders, keys) = folders(folder.path());
    let servers = folders.map(|data| Server::start_unlimited(&data));
    let owner = servers[0].owner(&keys).await;
    let part = pages::part(&owner).await;
    let (mut devices, mut readers) = (Vec::new(), Vec::new());
    for server in &servers {
        devices.push(server.login("robot-secret", &part.id, &part.secrets[0].secret).await);
        readers.push(server.client(&keys.1, &keys.2).await);
    }
    pages::are_true(&part.id, &devices, &readers).await;
}

/// What it wrote down counts, and it writes once a second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_is_live_also_when_the_server_that_heard_it_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let (folders, keys) = folders(folder.path());
    let [mut first, second] = folders.map(|data| Server::start_unlimited(&data));
    let part = pages::part(&first.owner(&keys).await).await;
    let device = first.login("robot-secret", &part.id, &part.secrets[0].secret).await;
    let [here, there] = [first.client(&keys.1, &keys.2).await, second.client(&keys.1, &keys.2).await];
    let status = async |client: &Client| -> GetPartStatusResponse {
        let request = GetPartStatusRequest { part_id: part.id.clone() };
        client.call("/platform.fleet.v1.AdminService/GetPartStatus", request).await.unwrap()
    };
    let at = |status: &GetPartStatusResponse| status.last_access.map(|at| (at.seconds, at.nanos));
    let never = status(&there).await;
    assert_eq!((never.live, at(&never)), (false, None));
    let heard = async {
        loop {
            device.check_in(&part.id).await;
            let shown = status(&there).await;
            if shown.last_access.is_some() {
                return shown;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    let heard = tokio::time::timeout(PATIENCE, heard).await.expect("the other one shows it");
    assert!(heard.live, "{heard:?}");
    assert!(at(&status(&here).await) >= at(&heard), "nobody heard it later than the one that it spoke to");
    first.kill();
    let left = status(&there).await;
    assert!(left.live, "{left:?}");
    assert!(at(&left) >= at(&heard), "{left:?} {heard:?}");
    // It calls the one that is left, as one behind a balancer does.
    let device = second.login("robot-secret", &part.id, &part.secrets[0].secret).await;
    device.check_in(&part.id).await;
    let now = status(&there).await;
    assert!(now.live && at(&now) > at(&left), "{now:?}");
}
