//! What devices are told and what they say: restart marks, log lines.

use api::pb::platform::{app::v1::*, common::v1::LogEntry, fleet::v1::*};
use tonic::Status;

use super::super::world::{Client, Owner};
use super::{Doing, There, Writer, configuration::changes};

/// Marks a part for a restart; its device asks, hears of it, asks again: these three, again and again.
pub(super) struct Marks {
    owner: Owner,
    device: Client,
    part: String,
    secret: String,
    acknowledged: u64,
    /// One more than acknowledged if somebody has asked and heard nothing.
    asked: u64,
    rests_after: u64,
}

impl Marks {
    pub(super) async fn new(there: &There, rests_after: u64) -> Self {
        let owner = there.owner().await;
        let part = there.new_part(&owner).await;
        let secret = part.secrets[0].secret.clone();
        let device = there.login("robot-secret", &part.id, &secret).await.unwrap();
        Self { owner, device, part: part.id, secret, acknowledged: 0, asked: 0, rests_after }
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
        self.acknowledged >= self.rests_after
    }

    fn step(&mut self) -> Doing<'_, Result<(), Status>> {
        Box::pin(async {
            self.asked = self.acknowledged + 1;
            match self.acknowledged % 3 {
                0 => {
                    let request = MarkPartForRestartRequest { part_id: self.part.clone() };
                    let _: MarkPartForRestartResponse = self.owner.client.app("MarkPartForRestart", request).await?;
                }
                1 => assert!(self.must_restart(&self.device).await?, "the device is told"),
                _ => assert!(!self.must_restart(&self.device).await?, "once"),
            }
            self.acknowledged = self.asked;
            Ok(())
        })
    }

    fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    fn check_from<'a>(&'a mut self, there: &'a There, least: u64) -> Doing<'a, ()> {
        Box::pin(async move {
            let device = there.login("robot-secret", &self.part, &self.secret).await.unwrap();
            let answer_lost = self.asked > self.acknowledged && !self.acknowledged.is_multiple_of(3);
            if answer_lost {
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
            assert!(!self.must_restart(&device).await.unwrap(), "told twice");
            // How many marks there were tells the moment, up to what the device was told of the last one.
            let last_mark = 3 * changes(&there.owner().await, &self.part, "MarkPartForRestart").await;
            let moments = match must_restart {
                true if answer_lost => last_mark.saturating_sub(2)..last_mark,
                true => last_mark.saturating_sub(2)..last_mark.saturating_sub(1),
                // It would have been told again.
                false if answer_lost => last_mark..last_mark + 1,
                false => last_mark.saturating_sub(1)..last_mark + 1,
            };
            let known = least..=self.asked;
            assert!(
                moments.clone().any(|moment| known.contains(&moment)),
                "must restart: {must_restart}, after {moments:?} of {known:?}"
            );
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

    async fn is_whole(&self, there: &There, least: u64) {
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

    fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    fn check_from<'a>(&'a mut self, there: &'a There, least: u64) -> Doing<'a, ()> {
        Box::pin(self.is_whole(there, least))
    }
}
