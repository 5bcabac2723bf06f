//! Connections on which nobody has shown who they are: they may be many, and keep nobody out.

use std::time::Duration;

use api::pb::platform::{app::v1::*, common::v1::LogEntry};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::world::{Client, Owner, PATIENCE, World, code, metric};

/// What an HTTP/2 client says first: the preface and its settings, of which there are none.
const HELLO: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
/// Kinds of HTTP/2 frames.
const PING: u8 = 6;
const GOAWAY: u8 = 7;

/// A connection that says hello, answers pings and shows no token, until it is closed; whether it was told to go.
async fn stay(mut stream: TcpStream) -> bool {
    let (mut told, mut head) = (false, [0; 9]);
    while stream.read_exact(&mut head).await.is_ok() {
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let mut body = vec![0; length];
        if stream.read_exact(&mut body).await.is_err() {
            break;
        }
        told |= head[3] == GOAWAY;
        if head[3] == PING && head[4] & 1 == 0 {
            let pong = [&[0, 0, 8, PING, 1, 0, 0, 0, 0][..], &body].concat();
            if stream.write_all(&pong).await.is_err() {
                break;
            }
        }
    }
    told
}

async fn stranger(world: &World) -> Option<tokio::task::JoinHandle<bool>> {
    let mut stream = TcpStream::connect(world.server.address).await.ok()?;
    stream.write_all(HELLO).await.ok()?;
    // The server's settings: it has taken the connection.
    let mut first = [0];
    stream.peek(&mut first).await.ok().filter(|length| *length > 0)?;
    Some(tokio::spawn(stay(stream)))
}

async fn list(client: &Client) -> tonic::Code {
    code(client.app::<_, ListOrganizationsResponse>("ListOrganizations", ListOrganizationsRequest {}).await)
}

/// A newcomer that is closed at the door tries again, as clients do.
async fn newcomer(world: &World, owner: &Owner) -> Client {
    let try_in = async {
        loop {
            let channel = tonic::transport::Channel::from_shared(format!("http://{}", world.server.address)).unwrap();
            if let Ok(channel) = channel.connect().await {
                let client = Client { channel, token: owner.client.token.clone() };
                if list(&client).await == tonic::Code::Ok {
                    return client;
                }
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, try_in).await.expect("people get in")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strangers_keep_neither_devices_nor_people_out() {
    let world = World::with(|options| options.connections_max = 24).await;
    let owner = world.owner("Acme").await;
    let location = owner.location("North", None).await;
    let part = owner.main_part(&owner.machine(&location, "arm").await).await;
    // A stream that was there before, and one device: both on connections that are known.
    let follow = TailRobotPartLogsRequest { id: part.id.clone(), ..Default::default() };
    let mut tail = owner.client.stream("/platform.app.v1.AppService/TailRobotPartLogs", follow).await;
    let device = world.login("robot-secret", &part.id, &part.secret).await.unwrap();
    let mut says = async |message: &str| {
        let entry = LogEntry { level: "info".into(), message: message.into(), ..LogEntry::default() };
        let say = LogRequest { id: part.id.clone(), logs: vec![entry] };
        device.call::<_, LogResponse>("/platform.app.v1.RobotService/Log", say).await.unwrap();
        let line = tokio::time::timeout(PATIENCE, tail.message()).await.expect("a line").unwrap();
        assert!(line.is_some_and(|line| String::from_utf8_lossy(&line).contains(message)));
    };
    // From its first call on it is known for longer than by having signed in.
    says("here").await;
    // Somebody opens connections and keeps them: he gets no more than there are, and each newcomer takes one from him.
    let mut strangers = Vec::new();
    for _ in 0..100 {
        strangers.extend(stranger(&world).await);
    }
    let mut people = Vec::new();
    for _ in 0..10 {
        people.push(newcomer(&world, &owner).await);
        strangers.extend(stranger(&world).await);
    }
    for _ in 0..50 {
        strangers.extend(stranger(&world).await);
    }
    // Who is in stays in: no person, nor the device, had to connect again.
    let taken = || metric(&world.server, "fleet_connections_total");
    let before = taken();
    for person in &people {
        assert_eq!(list(person).await, tonic::Code::Ok);
    }
    says("still here").await;
    assert_eq!(taken(), before);
    assert!(metric(&world.server, "fleet_connections_open") <= 24 + 5, "the most, and those who are leaving");
    // Those who had to go were told so.
    let (mut gone, all) = (0, strangers.len());
    for one in strangers {
        if one.is_finished() {
            assert!(one.await.unwrap(), "closed without a word");
            gone += 1;
        } else {
            one.abort();
        }
    }
    assert!(gone >= 12, "{gone} of {all}: ten people and a device are in");
    assert!(metric(&world.server, "fleet_strangers_closed_total") >= gone);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_places_are_few_a_stranger_has_so_long_and_not_longer() {
    let world = World::with(|options| (options.connections_max, options.stranger_for) = (20, Duration::ZERO)).await;
    let owner = world.owner("Acme").await;
    let mut strangers = Vec::new();
    for _ in 0..5 {
        strangers.push(stranger(&world).await.expect("there is room"));
    }
    let mut people = Vec::new();
    let crowded = async {
        loop {
            people.push(newcomer(&world, &owner).await);
            if people.len() > 12 {
                people.remove(0);
            }
            if strangers.iter().all(|one| one.is_finished()) {
                return;
            }
        }
    };
    tokio::time::timeout(PATIENCE, crowded).await.expect("they are closed");
    for one in strangers {
        assert!(one.await.unwrap(), "told to go");
    }
    assert_eq!(list(&owner.client).await, tonic::Code::Ok);
    world.end().await;
}
