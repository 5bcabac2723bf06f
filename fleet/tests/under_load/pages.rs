//! A part's log, read page by page and as it grows, while devices write to it: nothing is left out, nothing comes twice.

use std::sync::Arc;

use api::pb::platform::{
    app::v1::*,
    common::v1::LogEntry,
    fleet::v1::{UploadLogsRequest, UploadLogsResponse},
};
use prost::Message as _;
use tokio::{sync::Semaphore, task::JoinHandle};

use super::world::{Client, Owner, PATIENCE};

const WRITERS: usize = 4;
const BATCHES: usize = 40;
const LINES: usize = 5;
/// So many of each writer's batches come as fast as they can; each of the others is written when some more pages were read, so
/// that readers have turned pages while lines arrived, however slow they are, and reach the end, however fast lines arrive.
const HASTY: usize = 20;
const PAGES_FOR_A_BATCH: usize = 3;

/// The main part of a machine of its own.
pub(crate) async fn part(owner: &Owner) -> RobotPart {
    let location = owner.location("North", None).await;
    owner.main_part(&owner.machine(&location, "arm").await).await
}

fn text(writer: usize, number: usize, line: usize) -> String {
    format!("{writer}.{number}.{line}")
}

async fn upload(device: &Client, part: &str, writer: usize, number: usize) {
    let entry = |n| LogEntry { level: "info".into(), message: text(writer, number, n), ..LogEntry::default() };
    let request = UploadLogsRequest {
        part_id: part.into(),
        spool_id: format!("spool {writer}"),
        batch_number: number as u64,
        logs: (0..LINES).map(entry).collect(),
    };
    let path = "/platform.fleet.v1.DeviceService/UploadLogs";
    let _: UploadLogsResponse = device.call(path, request).await.unwrap();
}

/// What a follower is shown, in that order, until it has seen so many lines.
async fn follow(client: &Client, part: &str, count: usize) -> JoinHandle<Vec<String>> {
    let request = TailRobotPartLogsRequest { id: part.into(), ..TailRobotPartLogsRequest::default() };
    let mut stream = client.stream("/platform.app.v1.AppService/TailRobotPartLogs", request).await;
    tokio::spawn(async move {
        let mut seen = Vec::new();
        while seen.len() < count {
            let next = tokio::time::timeout(PATIENCE, stream.message()).await;
            let next = next.unwrap_or_else(|_| panic!("{} of {count} lines, and no more", seen.len()));
            let batch = TailRobotPartLogsResponse::decode(next.unwrap().expect("it goes on")).unwrap();
            seen.extend(batch.logs.into_iter().map(|entry| entry.message));
        }
        seen
    })
}

/// Every line that is there, each page asked of the next of them. Writers are told of every page.
async fn read(readers: &[Client], part: &str, order: LogOrder, limit: i64, pages: &Semaphore) -> Vec<String> {
    let (mut lines, mut token) = (Vec::new(), String::new());
    for client in readers.iter().cycle() {
        let request = GetRobotPartLogsRequest {
            id: part.into(),
            limit: Some(limit),
            order: Some(order.into()),
            page_token: Some(token),
            ..GetRobotPartLogsRequest::default()
        };
        let page: GetRobotPartLogsResponse = client.app("GetRobotPartLogs", request).await.unwrap();
        pages.add_permits(1);
        assert!(!page.logs.is_empty() || page.next_page_token.is_empty(), "an empty page never has a token");
        lines.extend(page.logs.into_iter().map(|entry| entry.message));
        token = page.next_page_token;
        if token.is_empty() {
            break;
        }
    }
    lines
}

fn once(lines: &[String]) {
    let mut sorted = lines.to_vec();
    sorted.sort();
    sorted.dedup();
    assert_eq!(sorted.len(), lines.len(), "something came twice");
}

/// Fails if one of the writers was shown in another order than it wrote, or anything is missing.
fn all_in_order(lines: &[String], from: usize) {
    for writer in 0..WRITERS {
        let its = format!("{writer}.");
        let seen: Vec<&String> = lines.iter().filter(|line| line.starts_with(&its)).collect();
        let wrote: Vec<String> =
            (from..=BATCHES).flat_map(|number| (0..LINES).map(move |line| text(writer, number, line))).collect();
        assert_eq!(seen, wrote.iter().collect::<Vec<_>>(), "of writer {writer}");
    }
}

/// The devices are one part's, and the readers one caller, each at a server or all at the same one.
pub(crate) async fn are_true(part: &str, devices: &[Client], readers: &[Client]) {
    for writer in 0..WRITERS {
        upload(&devices[writer % devices.len()], part, writer, 1).await;
    }
    let mut tails = Vec::new();
    for reader in readers {
        tails.push(follow(reader, part, WRITERS * (BATCHES - 1) * LINES).await);
    }
    let pages = Arc::new(Semaphore::new(0));
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let (devices, part, pages) = (devices.to_vec(), part.to_owned(), pages.clone());
            tokio::spawn(async move {
                for number in 2..=BATCHES {
                    if number > HASTY {
                        pages.acquire_many(PAGES_FOR_A_BATCH as u32).await.unwrap().forget();
                    }
                    // As behind a balancer: the next batch may go elsewhere.
                    upload(&devices[(writer + number) % devices.len()], &part, writer, number).await;
                }
            })
        })
        .collect();
    let (mut limit, mut walks) = (7, 0);
    while writers.iter().any(|writer| !writer.is_finished()) {
        // What was there before a reader began is there once.
        let before = read(readers, part, LogOrder::Descending, 1000, &pages).await;
        once(&before);
        for order in [LogOrder::Ascending, LogOrder::Descending] {
            let lines = read(readers, part, order, limit, &pages).await;
            once(&lines);
            for line in &before {
                assert!(lines.contains(line), "{line} was left out, pages of {limit}, {order:?}");
            }
            limit = limit % 60 + 7;
            walks += 1;
        }
    }
    println!("{walks} walks while lines arrived");
    // Two are over before the writers have so many pages.
    assert!(walks > 2, "{walks} walks while lines arrived");
    for writer in writers {
        writer.await.unwrap();
    }
    for limit in [1, 13, 600, 1000] {
        let rising = read(readers, part, LogOrder::Ascending, limit, &pages).await;
        let mut falling = read(readers, part, LogOrder::Descending, limit, &pages).await;
        all_in_order(&rising, 1);
        assert_eq!(rising.len(), WRITERS * BATCHES * LINES);
        falling.reverse();
        assert_eq!(rising, falling, "pages of {limit}");
    }
    for tail in tails {
        // As many as there are, so none of them twice.
        all_in_order(&tail.await.unwrap(), 2);
    }
}
