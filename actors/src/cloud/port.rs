//! The fleet server, as the agent needs it.

use api::pb::platform::{
    app::{
        agent::v1::{DeviceAgentConfigRequest, DeviceAgentConfigResponse},
        v1::{NeedsRestartRequest, NeedsRestartResponse},
    },
    fleet::v1::{ReportRequest, ReportResponse, UploadLogsRequest, UploadLogsResponse},
};
use async_trait::async_trait;

/// Why a call ended without an answer that can be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CloudError {
    /// There is no credentials file, or it cannot be read.
    #[error("this device has no identity: {reason}")]
    NoIdentity {
        /// What is wrong with the file, and what to do.
        reason: String,
    },
    /// No answer: no network, a dead server, a captive page in between. Try again later.
    #[error("the fleet server cannot be reached: {reason}")]
    Unreachable {
        /// In the words of whoever failed.
        reason: String,
    },
    /// The server does not accept the part's credentials.
    #[error("the fleet server refused the credentials of this device: {reason}")]
    CredentialsRefused {
        /// In the server's words.
        reason: String,
    },
    /// The server answered with another error.
    #[error("the fleet server answered with an error: {reason}")]
    Refused {
        /// gRPC status code.
        code: i32,
        /// In the server's words.
        reason: String,
    },
}

impl CloudError {
    /// Whether the calls after this one would only find the same: no server, no identity, no trust.
    #[must_use]
    pub fn ends_the_round(&self) -> bool {
        match self {
            CloudError::Refused { .. } => false,
            CloudError::NoIdentity { .. } | CloudError::Unreachable { .. } | CloudError::CredentialsRefused { .. } => {
                true
            }
        }
    }
}

/// The calls of one wake-up; what is `None` is not called.
#[derive(Clone, Debug, Default)]
pub struct Requests {
    /// [`Cloud::device_config`].
    pub config: Option<DeviceAgentConfigRequest>,
    /// [`Cloud::report`].
    pub report: Option<ReportRequest>,
    /// [`Cloud::needs_restart`]: after the report, which may say that the last answer was not heard.
    pub restart: Option<NeedsRestartRequest>,
    /// [`Cloud::upload_logs`].
    pub upload: Option<UploadLogsRequest>,
}

/// Their answers; `None` for what was not called, be it that nobody wanted to or that an earlier call ended the round.
#[derive(Clone, Debug, Default)]
pub struct Replies {
    /// Of [`Cloud::device_config`].
    pub config: Option<Result<DeviceAgentConfigResponse, CloudError>>,
    /// Of [`Cloud::report`].
    pub report: Option<Result<ReportResponse, CloudError>>,
    /// Of [`Cloud::needs_restart`].
    pub restart: Option<Result<NeedsRestartResponse, CloudError>>,
    /// Of [`Cloud::upload_logs`].
    pub upload: Option<Result<UploadLogsResponse, CloudError>>,
}

/// The calls. Each is given up after a limit of its own; dropping the future abandons the call.
#[async_trait(?Send)]
pub trait Cloud {
    /// The part that this device is, once the credentials file could be read.
    fn part_id(&self) -> Option<String>;

    /// Whether the credentials are other ones now than those of the last call; costs a look at a file.
    fn is_renewed(&self) -> bool {
        false
    }

    /// The device's configuration.
    async fn device_config(&self, request: DeviceAgentConfigRequest) -> Result<DeviceAgentConfigResponse, CloudError>;

    /// Tells how the device is.
    async fn report(&self, request: ReportRequest) -> Result<ReportResponse, CloudError>;

    /// Whether somebody wants the machine server restarted.
    async fn needs_restart(&self, request: NeedsRestartRequest) -> Result<NeedsRestartResponse, CloudError>;

    /// Delivers a numbered batch of log entries.
    async fn upload_logs(&self, request: UploadLogsRequest) -> Result<UploadLogsResponse, CloudError>;

    /// The calls of one wake-up, in this order, until one of them ends the round. A port that hands calls to somebody
    /// else does so once for all of them: a sleeping device is woken by the last answer only.
    async fn round(&self, requests: Requests) -> Replies {
        let mut replies = Replies::default();
        if let Some(request) = requests.config {
            let reply = self.device_config(request).await;
            let over = reply.as_ref().is_err_and(CloudError::ends_the_round);
            replies.config = Some(reply);
            if over {
                return replies;
            }
        }
        if let Some(request) = requests.report {
            let reply = self.report(request).await;
            let over = reply.as_ref().is_err_and(CloudError::ends_the_round);
            replies.report = Some(reply);
            if over {
                return replies;
            }
        }
        if let Some(request) = requests.restart {
            let reply = self.needs_restart(request).await;
            let over = reply.as_ref().is_err_and(CloudError::ends_the_round);
            replies.restart = Some(reply);
            if over {
                return replies;
            }
        }
        if let Some(request) = requests.upload {
            replies.upload = Some(self.upload_logs(request).await);
        }
        replies
    }
}
