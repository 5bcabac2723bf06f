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

/// The calls. Each is given up after a limit of its own; dropping the future abandons the call.
#[async_trait(?Send)]
pub trait Cloud {
    /// The part that this device is, once the credentials file could be read.
    fn part_id(&self) -> Option<String>;

    /// The device's configuration.
    async fn device_config(&self, request: DeviceAgentConfigRequest) -> Result<DeviceAgentConfigResponse, CloudError>;

    /// Whether somebody wants the machine server restarted.
    async fn needs_restart(&self, request: NeedsRestartRequest) -> Result<NeedsRestartResponse, CloudError>;

    /// Tells how the device is.
    async fn report(&self, request: ReportRequest) -> Result<ReportResponse, CloudError>;

    /// Delivers a numbered batch of log entries.
    async fn upload_logs(&self, request: UploadLogsRequest) -> Result<UploadLogsResponse, CloudError>;
}
