//! The calls of one wake-up, in their order, and what their answers say.
//!
//! Owns the order and when to stop: after a call that found no server, no identity or no trust, the others would only
//! find the same. Decides nothing else.

use std::{rc::Rc, time::Duration};

use api::pb::platform::{
    app::{agent::v1::DeviceAgentConfigRequest, v1::NeedsRestartRequest},
    fleet::v1::{DeviceStatus, ReportRequest, UploadLogsRequest},
};

use super::{
    Acknowledged, FetchedConfig,
    port::{Cloud, CloudError},
};
use crate::logs::Offered;

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
    /// Ask whether somebody wants the machine server restarted.
    pub restart: bool,
    /// Tell how the device is.
    pub report: Report,
    /// Deliver the log batch.
    pub upload: bool,
}

/// What came back; `None` for what was not called.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answers {
    /// The configuration, and when to ask again.
    pub config: Option<Result<(FetchedConfig, Option<Duration>), CloudError>>,
    /// Whether a restart is wanted, and when to ask again.
    pub restart: Option<Result<(bool, Option<Duration>), CloudError>>,
    /// The report arrived.
    pub reported: Option<Result<(), CloudError>>,
    /// What the server keeps of the spool.
    pub uploaded: Option<Result<Acknowledged, CloudError>>,
}

/// What the calls of a plan carry; what is `None` is not called.
#[derive(Clone, Debug, Default)]
pub struct Questions {
    /// Asks for the configuration.
    pub config: Option<DeviceAgentConfigRequest>,
    /// Asks about restarts.
    pub restart: bool,
    /// The status to report.
    pub report: Option<DeviceStatus>,
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
    let mut answers = Answers::default();
    // Without an identity the first call says why there is none.
    let part_id = cloud.part_id().unwrap_or_default();
    if let Some(request) = questions.config {
        let answer = cloud.device_config(DeviceAgentConfigRequest { id: part_id.clone(), ..request }).await;
        let over = is_over(&answer);
        answers.config = Some(answer.map(|response| {
            let every = response.check_interval.and_then(interval);
            (FetchedConfig::of(response), every)
        }));
        if over {
            return answers;
        }
    }
    if questions.restart {
        let answer = cloud.needs_restart(NeedsRestartRequest { id: part_id.clone() }).await;
        let over = is_over(&answer);
        answers.restart =
            Some(answer.map(|response| (response.must_restart, response.restart_check_interval.and_then(interval))));
        if over {
            return answers;
        }
    }
    if let Some(status) = questions.report {
        let answer = cloud.report(ReportRequest { part_id: part_id.clone(), status: Some(status) }).await;
        let over = is_over(&answer);
        answers.reported = Some(answer.map(|_| ()));
        if over {
            return answers;
        }
    }
    if let Some(batch) = questions.upload {
        let request = UploadLogsRequest {
            part_id,
            spool_id: batch.spool_id.to_string(),
            batch_number: batch.number,
            logs: batch.entries(),
        };
        let answer = cloud.upload_logs(request).await;
        answers.uploaded =
            Some(answer.map(|response| Acknowledged { spool_id: batch.spool_id, number: response.acknowledged }));
    }
    answers
}

/// Whether the calls after this one would only find the same.
fn is_over<T>(answer: &Result<T, CloudError>) -> bool {
    match answer {
        Ok(_) | Err(CloudError::Refused { .. }) => false,
        Err(CloudError::NoIdentity { .. } | CloudError::Unreachable { .. } | CloudError::CredentialsRefused { .. }) => {
            true
        }
    }
}
