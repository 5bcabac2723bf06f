//! The table: every operation and the function that does it. The index of the API, and where a new one starts.
//!
//! A function is `async fn(&Context, Caller, Request) -> Result<Reply, Refusal>`; the framework's types end here. What
//! is not in the table answers UNIMPLEMENTED. To add an operation: write its function in `services/`, add its row.

use std::{pin::Pin, sync::Arc};

use tonic::{Request, Response, Status};

use crate::{authn::Caller, context::Context, services};

/// The generated service traits, messages from the `api` crate.
mod wire {
    #![allow(missing_docs, unreachable_pub, clippy::all, reason = "generated")]
    include!(concat!(env!("OUT_DIR"), "/services.rs"));
}

pub(crate) use wire::{
    platform::{
        app::{agent::v1::agent_device_service_server, v1::app_service_server, v1::robot_service_server},
        fleet::v1::{admin_service_server, device_service_server},
    },
    proto::rpc::v1::auth_service_server,
};

/// What a streaming operation answers with. Ends early on shutdown and when the caller's key is revoked.
pub type Replies<T> = tonic::codegen::BoxStream<T>;

type Answer<'f, T> = Pin<Box<dyn Future<Output = Result<Response<T>, Status>> + Send + 'f>>;

/// Implements every service of the table.
pub struct Operations {
    /// For the functions.
    pub context: Arc<Context>,
}

/// One row, for tests that call everything.
#[derive(Debug, Clone, Copy)]
pub struct Operation {
    /// "/platform.app.v1.AppService/GetRobot"
    pub path: &'static str,
}

fn caller<T>(request: &mut Request<T>) -> Result<Caller, Status> {
    // Put there by the edge for every path that is no open door; a missing one is a bug, and must not be a way in.
    request.extensions_mut().remove::<Caller>().ok_or_else(|| Status::unauthenticated("no caller"))
}

macro_rules! operations {
    (table: $(
        $service:literal $server:ident :: $trait:ident {
            $($kind:ident $wire:ident $method:ident($request:ty) -> $reply:ty = $function:path;)*
        }
    )*) => {
        /// Every row.
        pub const OPERATIONS: &[Operation] = &[
            $($(Operation { path: concat!("/", $service, "/", stringify!($wire)) },)*)*
        ];

        $(
            impl $server::$trait for Operations {
                $(operations!(@$kind $method, $request, $reply, $function);)*
            }
        )*
    };
    // What `async_trait` would make of an `async fn`; it cannot look into a macro in its place.
    (@$kind:ident $method:ident, $request:ty, $reply:ty, $function:path) => {
        fn $method<'s, 'f>(&'s self, mut request: Request<$request>) -> Answer<'f, operations!(@reply $kind $reply)>
        where
            's: 'f,
            Self: 'f,
        {
            Box::pin(async move {
                let caller = caller(&mut request)?;
                Ok(Response::new($function(&self.context, caller, request.into_inner()).await?))
            })
        }
    };
    (@reply unary $reply:ty) => { $reply };
    (@reply stream $reply:ty) => { Replies<$reply> };
}

use api::pb::{
    platform::{
        app::{agent::v1 as agent, v1 as app},
        fleet::v1 as fleet,
    },
    proto::rpc::v1 as rpc,
};
use services::configuration::EncodedConfig;

operations! { table:
    "proto.rpc.v1.AuthService" auth_service_server::AuthService {
        unary Authenticate authenticate(rpc::AuthenticateRequest) -> rpc::AuthenticateResponse = services::login::authenticate;
    }
    "platform.app.v1.AppService" app_service_server::AppService {
        unary ListOrganizations list_organizations(app::ListOrganizationsRequest) -> app::ListOrganizationsResponse = services::organizations::list;
        unary GetRobotPartLogs get_robot_part_logs(app::GetRobotPartLogsRequest) -> app::GetRobotPartLogsResponse = services::part_logs::get;
        stream TailRobotPartLogs tail_robot_part_logs(app::TailRobotPartLogsRequest) -> app::TailRobotPartLogsResponse = services::part_logs::tail;
    }
    "platform.app.v1.RobotService" robot_service_server::RobotService {
        unary Config config(app::ConfigRequest) -> app::ConfigResponse = services::device::config;
        unary Log log(app::LogRequest) -> app::LogResponse = services::device::log;
        unary NeedsRestart needs_restart(app::NeedsRestartRequest) -> app::NeedsRestartResponse = services::device::needs_restart;
    }
    "platform.app.agent.v1.AgentDeviceService" agent_device_service_server::AgentDeviceService {
        unary DeviceAgentConfig device_agent_config(agent::DeviceAgentConfigRequest) -> EncodedConfig = services::device::agent_config;
    }
    "platform.fleet.v1.DeviceService" device_service_server::DeviceService {
        unary Report report(fleet::ReportRequest) -> fleet::ReportResponse = services::device::report;
        unary UploadLogs upload_logs(fleet::UploadLogsRequest) -> fleet::UploadLogsResponse = services::device::upload_logs;
    }
    "platform.fleet.v1.AdminService" admin_service_server::AdminService {}
}
