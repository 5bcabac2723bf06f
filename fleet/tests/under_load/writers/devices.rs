//! What devices are told and what they say: restart marks, log lines.

use api::pb::platform::{app::v1::*, common::v1::LogEntry, fleet::v1::*};
use tonic::Status;

use super::super::world::{Client, Owner};
use super::{Doing, There, Writer};

/// What a device and whoever wants it restarted said to each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mark {
    /// None, or done.
    None,
    /// Acknowledged.
    Made,
    /// The device was told.
    Told,
}

/// Marks a part for a restart; its device asks, hears of it, asks again.
pub(super) struct Marks {
    owner: Owner,
    device: Client,
    part: String,
    secret: String,
    mark: Mark,
    /// Somebody has asked and heard nothing.
    open: bool,
    steps: usize,
    rests_after: usize,
}

impl Marks {
    pub(super) async fn new(there: &There, rests_after: usize) -> Self {
        let owner = there.owner().await;
        let part = there.new_part(&owner).await;
        let secret = part.secrets[0].secret.clone();
        let device = there.login("robot-secret", &part.id, &secret).await.unwrap();
        Self { owner, device, part: part.id, secret, mark: Mark::None, open: false, steps: 0, rests_after }
    }

    async fn must_restart(&self, device: &Client) -> Result<bool, Status> {
        let request = NeedsRestartRequest { id: self.part.clone() };
        let answer: NeedsRestartResponse = device.call("/platform.app.v1.RobotService/NeedsRestart", request).await?;
        Ok(answer.must_restart)
    }
}

impl Writer for Marks {
    fn kind(&self) -> &'static str {
        "restart marks"
    }

    fn rests(&self) -> bool {
        self.steps >= self.rests_after
    }

    fn step(&mut self) -> Doing<'_, Result<(), Status>> {
        Box::pin(async {
            self.open = true;
            let next = match self.mark {
                Mark::None => {
                    let request = MarkPartForRestartRequest { part_id: self.part.clone() };
                    let _: MarkPartForRestartResponse = self.owner.client.app("MarkPartForRestart", request).await?;
                    Mark::Made
                }
                Mark::Made => {
                    assert!(self.must_restart(&self.device).await?, "the device is told");
                    Mark::Told
                }
                Mark::Told => {
                    assert!(!self.must_restart(&self.device).await?, "once");
                    Mark::None
                }
            };
            (self.mark, self.open) = (next, false);
            self.steps += 1;
            Ok(())
        })
    }

    fn check<'a>(&'a mut self, there: &'a There) -> Doing<'a, ()> {
        Box::pin(async {
            let device = there.login("robot-secret", &self.part, &self.secret).await.unwrap();
            if self.open && self.mark != Mark::None {
                // As our agent does: it does not know what it would have been told.
                let report = ReportRequest {
                    part_id: self.part.clone(),
                    status: Some(DeviceStatus::default()),
                    restart_answer_lost: true,
                };
                let path = "/platform.fleet.v1.DeviceService/Report";
                let _: ReportResponse = device.call(path, report).await.unwrap();
            }
            let must_restart = self.must_restart(&device).await.unwrap();
            match (self.mark, self.open) {
                (Mark::Made, _) => assert!(must_restart, "an acknowledged mark is lost"),
                (_, false) => assert!(!must_restart, "told twice: {:?}", self.mark),
                // It was made or cleared, or not.
                (_, true) => {}
            }
        })
    }
}

/// A device's lines, in numbered batches.
pub(super) struct Lines {
    device: Client,
    part: String,
    acknowledged: u64,
    asked: u64,
}

const LINES: u64 = 5;

fn lines(number: u64) -> impl Iterator<Item = String> {
    (0..LINES).map(move |line| format!("{number}.{line}"))
}

impl Lines {
    pub(super) async fn new(there: &There) -> Self {
        let owner = there.owner().await;
        let part = there.new_part(&owner).await;
        let device = there.login("robot-secret", &part.id, &part.secrets[0].secret).await.unwrap();
        Self { device, part: part.id, acknowledged: 0, asked: 0 }
    }

    async fn check_from(&self, there: &There, least: u64) {
        let mut found = there.owner().await.client.lines(&self.part).await;
        found.reverse();
        let batches = found.len() as u64 / LINES;
        assert!((least..=self.asked).contains(&batches), "{batches} batches, {least} acknowledged");
        assert_eq!(found, (1..=batches).flat_map(lines).collect::<Vec<_>>(), "each once, in order, no batch half");
    }
}

impl Writer for Lines {
    fn kind(&self) -> &'static str {
        "log lines"
    }

    fn step(&mut self) -> Doing<'_, Result<(), Status>> {
        Box::pin(async {
            self.asked = self.acknowledged + 1;
            let entry = |message| LogEntry { level: "info".into(), message, ..LogEntry::default() };
            let request = UploadLogsRequest {
                part_id: self.part.clone(),
                spool_id: "spool".into(),
                batch_number: self.asked,
                logs: lines(self.asked).map(entry).collect(),
            };
            let path = "/platform.fleet.v1.DeviceService/UploadLogs";
            let reply: UploadLogsResponse = self.device.call(path, request).await?;
            assert_eq!(reply.acknowledged, self.asked);
            self.acknowledged = self.asked;
            Ok(())
        })
    }

    fn check<'a>(&'a mut self, there: &'a There) -> Doing<'a, ()> {
        Box::pin(self.check_from(there, self.acknowledged))
    }

    fn check_moment<'a>(&'a mut self, there: &'a There) -> Doing<'a, ()> {
        Box::pin(self.check_from(there, 0))
    }
}
