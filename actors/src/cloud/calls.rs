//! The calls of one wake-up: from what the machine planned to the messages on the wire, and from the answers back to
//! what the machine understands. Decides nothing.

use std::{rc::Rc, time::Duration};

use api::pb::platform::{
    app::{agent::v1::DeviceAgentConfigRequest, v1::NeedsRestartRequest},
    fleet::v1::{DeviceStatus, ReportRequest, UploadLogsRequest},
};

use super::{
    Acknowledged, FetchedConfig, Retries,
    port::{Cloud, CloudError, Requests},
};
use crate::logs::Offered;

/// Products that a server may want tried again; there are two.
const RETRIES_MAX: usize = 4;

/// Whether to report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Report {
    /// No.
    #[default]
    No,
    /// If there is something that the server has not been told.
    IfChanged,
    /// Yes.
    Always,
}

/// What to call in one wake-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Fetch the configuration.
    pub config: bool,
    /// Tell how the device is.
    pub report: Report,
    /// Tell with it that the last answer about restarts was not heard.
    pub unheard: bool,
    /// Ask whether somebody wants the machine server restarted.
    pub restart: bool,
    /// Deliver the log batch.
    pub upload: bool,
}

/// What came back; `None` for what was not called.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answers {
    /// The configuration, and when to ask again.
    pub config: Option<Result<(FetchedConfig, Option<Duration>), CloudError>>,
    /// The report arrived; what is to be tried again.
    pub reported: Option<Result<Retries, CloudError>>,
    /// Whether a restart is wanted, and when to ask again.
    pub restart: Option<Result<(bool, Option<Duration>), CloudError>>,
    /// What the server keeps of the spool.
    pub uploaded: Option<Result<Acknowledged, CloudError>>,
}

/// What the calls of a plan carry; what is `None` is not called.
#[derive(Clone, Debug, Default)]
pub struct Questions {
    /// Asks for the configuration.
    pub config: Option<DeviceAgentConfigRequest>,
    /// The status to report.
    pub report: Option<DeviceStatus>,
    /// Says with it that the last answer about restarts was not heard.
    pub unheard: bool,
    /// Asks about restarts.
    pub restart: bool,
    /// The batch to deliver.
    pub upload: Option<Offered>,
}

/// A length of time as it travels; `None` for what is none. By hand: the library's conversion negates, and the most
/// negative numbers have no counterpart.
fn interval(said: prost_types::Duration) -> Option<Duration> {
    let (seconds, nanos) = (u64::try_from(said.seconds).ok()?, u64::try_from(said.nanos).ok()?);
    Duration::from_secs(seconds).checked_add(Duration::from_nanos(nanos))
}

/// Makes the calls.
pub async fn carry_out(cloud: Rc<dyn Cloud>, questions: Questions) -> Answers {
    // Without an identity the first call says why there is none.
    let part_id = cloud.part_id().unwrap_or_default();
    let spool_id = questions.upload.as_ref().map(|batch| Rc::clone(&batch.spool_id));
    let replies = cloud.round(requests(questions, &part_id)).await;
    Answers {
        config: replies.config.map(|reply| {
            reply.map(|response| {
                let every = response.check_interval.and_then(interval);
                (FetchedConfig::of(&part_id, response), every)
            })
        }),
        restart: replies.restart.map(|reply| {
            reply.map(|response| (response.must_restart, response.restart_check_interval.and_then(interval)))
        }),
        reported: replies
            .report
            .map(|reply| reply.map(|response| response.retries.into_iter().take(RETRIES_MAX).collect())),
        uploaded: replies
            .upload
            .zip(spool_id)
            .map(|(reply, spool_id)| reply.map(|response| Acknowledged { spool_id, number: response.acknowledged })),
    }
}

fn requests(questions: Questions, part_id: &str) -> Requests {
    let Questions { config, report, unheard, restart, upload } = questions;
    let id = || part_id.to_owned();
    Requests {
        config: config.map(|request| DeviceAgentConfigRequest { id: id(), ..request }),
        report: report.map(|status| ReportRequest {
            part_id: id(),
            status: Some(status),
            restart_answer_lost: unheard,
        }),
        restart: restart.then(|| NeedsRestartRequest { id: id() }),
        upload: upload.map(|batch| UploadLogsRequest {
            part_id: id(),
            spool_id: batch.spool_id.to_string(),
            batch_number: batch.number,
            logs: batch.entries(),
        }),
    }
}
