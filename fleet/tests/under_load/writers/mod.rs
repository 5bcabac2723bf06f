//! Writers of every kind, each on things of its own, that remember what they were told: for servers that die meanwhile.
//!
//! What was acknowledged has to be there afterwards, with everything that belongs to it. What a writer had asked for last
//! and heard nothing about was done or not, but never half.

#![allow(dead_code, unused_imports, reason = "every test file uses its own part of it")]

mod configuration;
mod devices;
mod files;
mod keys;

use std::{
    collections::BTreeMap,
    error::Error,
    ops::RangeInclusive,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Instant,
};

use api::pb::platform::app::v1::RobotPart;
use tokio::{sync::mpsc, task::JoinHandle};
use tonic::{Code, Status};

use super::world::{Client, Owner, PATIENCE, process};
use configuration::{Fragments, Parts, Places};
use devices::{Lines, Marks};
use files::Files;
pub(crate) use files::{about, files, piece, upload};
use keys::{Keys, Secrets};

/// How something is done that takes a while.
pub(crate) type Doing<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Where a server, or one of several, is reached, and the key of the organization's owner.
#[derive(Clone)]
pub(crate) struct There {
    pub(crate) url: String,
    pub(crate) keys: process::Keys,
}

impl There {
    /// On a connection of their own.
    pub(crate) async fn owner(&self) -> Owner {
        process::owner(&self.url, &self.keys).await
    }

    async fn login(&self, kind: &str, entity: &str, payload: &str) -> Result<Client, Status> {
        process::login(&self.url, kind, entity, payload).await
    }

    /// The same caller on another connection.
    async fn again(&self, client: &Client) -> Client {
        let channel = tonic::transport::Channel::from_shared(self.url.clone()).unwrap().connect().await.unwrap();
        Client { channel, token: client.token.clone() }
    }

    async fn new_part(&self, owner: &Owner) -> RobotPart {
        let location = owner.location("of a writer", None).await;
        owner.main_part(&owner.machine(&location, "arm").await).await
    }
}

/// One of them.
pub(crate) trait Writer: Send {
    fn kind(&self) -> &'static str;

    /// Writes once more; an error is that nothing was heard, because the connection ended.
    fn step(&mut self) -> Doing<'_, Result<(), Status>>;

    /// Changes that were acknowledged, counted from the first one.
    fn acknowledged(&self) -> u64;

    /// Fails unless what is there is what there was at one moment of its work, when so many changes at least had been
    /// acknowledged: all of it, and nothing half done.
    fn check_from<'a>(&'a mut self, there: &'a There, least: u64) -> Doing<'a, ()>;

    /// Has asked for enough: what it is told from now on is what counts.
    fn rests(&self) -> bool {
        false
    }
}

/// What a writer says while it works.
enum Heard {
    /// Something of that kind was acknowledged, that was asked for at the first of these moments.
    Acknowledged(&'static str, RangeInclusive<Instant>),
    /// It was told what cannot be: the test is over.
    Failed(&'static str),
}

/// Says so if its writer panics: the others would go on for ever.
struct Alarm(&'static str, mpsc::UnboundedSender<Heard>);

impl Drop for Alarm {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = self.1.send(Heard::Failed(self.0));
        }
    }
}

/// Whether a connection ended and nothing was heard. What a server says has no cause on this side, and it says why: that, and
/// a fault, are never taken for its death.
fn is_lost(status: &Status) -> bool {
    match status.code() {
        Code::Internal => false,
        Code::Unavailable if status.details().is_empty() => true,
        _ => status.source().is_some(),
    }
}

/// Writers at work.
pub(crate) struct Load {
    tasks: Vec<JoinHandle<Box<dyn Writer>>>,
    heard: mpsc::UnboundedReceiver<Heard>,
    acknowledged: BTreeMap<&'static str, usize>,
    ended: Arc<AtomicBool>,
    /// Whether somebody kills a server of theirs.
    killed: Arc<AtomicBool>,
}

impl Load {
    /// Some of each kind.
    pub(crate) async fn begin(there: &There) -> Self {
        let mut writers: Vec<Box<dyn Writer>> = Vec::new();
        // Some are at rest when the server dies, and know for certain what is.
        for rests_after in [u64::MAX, 1, 2] {
            writers.push(Box::new(Places::new(there).await));
            writers.push(Box::new(Parts::new(there).await));
            writers.push(Box::new(Fragments::new(there).await));
            writers.push(Box::new(Keys::new(there, rests_after).await));
            writers.push(Box::new(Secrets::new(there).await));
            for rests_after in [rests_after, rests_after.saturating_add(2)] {
                writers.push(Box::new(Marks::new(there, rests_after).await));
            }
            writers.push(Box::new(Lines::new(there).await));
            writers.push(Box::new(Files::new(there).await));
        }
        let (tell, heard) = mpsc::unbounded_channel();
        let (ended, killed) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let mut acknowledged = BTreeMap::new();
        let tasks = writers.into_iter().map(|mut writer| {
            acknowledged.insert(writer.kind(), 0);
            let (tell, ended, killed) = (tell.clone(), ended.clone(), killed.clone());
            tokio::spawn(async move {
                let _alarm = Alarm(writer.kind(), tell.clone());
                while !ended.load(SeqCst) && !writer.rests() {
                    let begin = Instant::now();
                    match writer.step().await {
                        Ok(()) => drop(tell.send(Heard::Acknowledged(writer.kind(), begin..=Instant::now()))),
                        Err(status) => {
                            assert!(is_lost(&status), "{}: {status:?}", writer.kind());
                            assert!(killed.load(SeqCst), "{} lost a server nobody killed: {status:?}", writer.kind());
                            break;
                        }
                    }
                }
                writer
            })
        });
        let tasks = tasks.collect();
        Self { tasks, heard, acknowledged, ended, killed }
    }

    /// Returns when each kind was acknowledged so often since it began.
    pub(crate) async fn acknowledged(&mut self, times: usize) {
        while self.acknowledged.values().any(|count| *count < times) {
            let kind = self.next().await;
            *self.acknowledged.entry(kind).or_default() += 1;
        }
    }

    /// Returns when some were acknowledged that have not been heard of yet.
    pub(crate) async fn goes_on(&mut self, times: usize) {
        while self.heard.try_recv().is_ok() {}
        for _ in 0..times {
            self.next().await;
        }
    }

    /// Whether something was asked for and acknowledged in that time, of what has not been heard of yet.
    pub(crate) fn wrote_within(&mut self, time: RangeInclusive<Instant>) -> bool {
        let mut wrote = false;
        while let Ok(heard) = self.heard.try_recv() {
            match heard {
                Heard::Acknowledged(_, its) => wrote |= time.contains(its.start()) && time.contains(its.end()),
                Heard::Failed(kind) => panic!("a writer of {kind} failed"),
            }
        }
        wrote
    }

    async fn next(&mut self) -> &'static str {
        match tokio::time::timeout(PATIENCE, self.heard.recv()).await {
            Ok(Some(Heard::Acknowledged(kind, _))) => kind,
            Ok(Some(Heard::Failed(kind))) => panic!("a writer of {kind} failed"),
            Ok(None) | Err(_) => panic!("nobody writes any more: {:?}", self.acknowledged),
        }
    }

    /// From here on a writer may lose its connection; before, it must not.
    pub(crate) fn is_killed(&self) {
        self.killed.store(true, SeqCst);
    }

    /// Each stops after what it is doing, or where its server died.
    pub(crate) async fn end(self) -> Vec<Box<dyn Writer>> {
        self.ended.store(true, SeqCst);
        let mut writers = Vec::new();
        for task in self.tasks {
            writers.push(task.await.unwrap());
        }
        writers
    }
}

/// Fails if something acknowledged is not there, or something is half done.
pub(crate) async fn check(writers: &mut [Box<dyn Writer>], there: &There) {
    for writer in writers {
        let least = writer.acknowledged();
        writer.check_from(there, least).await;
    }
}

/// Fails if there is no moment of its work at which all of this was so: for copies that were made meanwhile.
pub(crate) async fn check_moment(writers: &mut [Box<dyn Writer>], there: &There) {
    for writer in writers {
        writer.check_from(there, 0).await;
    }
}
