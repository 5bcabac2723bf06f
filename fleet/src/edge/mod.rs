//! One port: what arrives, who sent it, where it goes.
//!
//! Dispatch is by content type, said out loud: `application/grpc` over HTTP/2 → the operations; `application/grpc-web`
//! over any HTTP → the same through tonic-web; OPTIONS with an Origin → CORS; everything else → plain HTTP (`http.rs`).
//! A bearer token is asked for before anything else about a call is looked at, its path included.

mod alias;
mod authenticate;
mod http;
pub mod metrics;
mod serve;
mod tls;
mod upload;

use std::{
    convert::Infallible,
    future::Future,
    net::IpAddr,
    pin::Pin,
    sync::Arc,
    task::{Context as Poller, Poll},
};

use ::http::{HeaderValue, Method, Request, Response, Version, header};
use tonic::{Status, body::Body, codegen::Service};
use tonic_web::GrpcWebLayer;
use tower_layer::Layer;

pub(crate) use authenticate::bearer;
pub(crate) use http::{http_status, sentence};
pub use serve::{Edge, ServeError, serve};
pub use tls::{TlsError, acceptor};

use crate::{
    authn::Caller,
    context::Context,
    limits::{LOGIN_BYTES_MAX, REQUEST_BYTES_MAX},
    operations::{
        Operations, admin_service_server::AdminServiceServer, agent_device_service_server::AgentDeviceServiceServer,
        app_service_server::AppServiceServer, auth_service_server::AuthServiceServer,
        device_service_server::DeviceServiceServer, package_service_server::PackageServiceServer,
        robot_service_server::RobotServiceServer, takes_upload,
    },
};

/// What browsers may send from another origin. No cookies are involved, so every origin may ask.
const CORS_REQUEST_HEADERS: HeaderValue = HeaderValue::from_static(
    "authorization, content-type, viam_client, platform_client, x-grpc-web, x-user-agent, grpc-timeout",
);
/// What their scripts may read: errors without a body carry their status here.
const CORS_RESPONSE_HEADERS: HeaderValue =
    HeaderValue::from_static("grpc-status, grpc-message, grpc-status-details-bin");

/// Every service behind its path. Cheap to clone: each is a pointer.
#[derive(Clone)]
struct Services {
    context: Arc<Context>,
    auth: AuthServiceServer<Operations>,
    app: AppServiceServer<Operations>,
    robot: RobotServiceServer<Operations>,
    agent: AgentDeviceServiceServer<Operations>,
    packages: PackageServiceServer<Operations>,
    device: DeviceServiceServer<Operations>,
    admin: AdminServiceServer<Operations>,
    health: tonic_health::pb::health_server::HealthServer<tonic_health::server::HealthService>,
}

impl Services {
    fn new(context: Arc<Context>, health: tonic_health::server::HealthService) -> Self {
        let operations = Arc::new(Operations { context: context.clone() });
        Self {
            context,
            auth: AuthServiceServer::from_arc(operations.clone()).max_decoding_message_size(LOGIN_BYTES_MAX),
            app: AppServiceServer::from_arc(operations.clone()).max_decoding_message_size(REQUEST_BYTES_MAX),
            robot: RobotServiceServer::from_arc(operations.clone()).max_decoding_message_size(REQUEST_BYTES_MAX),
            agent: AgentDeviceServiceServer::from_arc(operations.clone()),
            packages: PackageServiceServer::from_arc(operations.clone()),
            device: DeviceServiceServer::from_arc(operations.clone()).max_decoding_message_size(REQUEST_BYTES_MAX),
            admin: AdminServiceServer::from_arc(operations),
            health: tonic_health::pb::health_server::HealthServer::new(health)
                .max_decoding_message_size(LOGIN_BYTES_MAX),
        }
    }

    /// A call in gRPC's own framing, whichever way it came.
    async fn call(mut self, mut request: Request<Body>, from: IpAddr) -> Response<Body> {
        alias::canonical(&mut request);
        let door = authenticate::door(request.uri().path());
        let caller = match door {
            authenticate::Door::Open => Caller::nobody(from),
            authenticate::Door::Closed => {
                match self.context.authn.caller(authenticate::bearer(request.headers()), from).await {
                    Ok(caller) => caller,
                    Err(refusal) => return self.refused(refusal.into()),
                }
            }
        };
        if takes_upload(request.uri().path()) {
            let answer = upload::answer(&self.context, caller, request).await;
            self.context.metrics.answered(&answer);
            return answer;
        }
        request.extensions_mut().insert(caller);
        let service = request.uri().path().get(1..).and_then(|path| path.split_once('/')).map(|(service, _)| service);
        // Infallible: the generated services answer errors as responses.
        let answer = match service {
            Some("platform.app.v1.AppService") => self.app.call(request).await,
            Some("platform.app.agent.v1.AgentDeviceService") => self.agent.call(request).await,
            Some("platform.app.v1.RobotService") => self.robot.call(request).await,
            Some("platform.app.packages.v1.PackageService") => self.packages.call(request).await,
            Some("platform.fleet.v1.DeviceService") => self.device.call(request).await,
            Some("platform.fleet.v1.AdminService") => self.admin.call(request).await,
            Some("proto.rpc.v1.AuthService") => self.auth.call(request).await,
            Some("grpc.health.v1.Health") => self.health.call(request).await,
            _ => return self.refused(Status::unimplemented("this server has no such operation")),
        };
        let answer = match answer {
            Ok(answer) => answer,
            Err(never) => match never {},
        };
        self.context.metrics.answered(&answer);
        answer
    }

    fn refused(&self, status: Status) -> Response<Body> {
        let answer = status.into_http();
        self.context.metrics.answered(&answer);
        answer
    }
}

/// What tonic-web wraps.
struct Calls {
    services: Services,
    from: IpAddr,
}

impl Service<Request<Body>> for Calls {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Poller<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (services, from) = (self.services.clone(), self.from);
        Box::pin(async move { Ok(services.call(request, from).await) })
    }
}

/// Any request on the port.
async fn answer(services: Services, request: Request<Body>, from: IpAddr) -> Response<Body> {
    let content_type = request.headers().get(header::CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    let web = content_type.starts_with(b"application/grpc-web");
    if !web && content_type.starts_with(b"application/grpc") {
        if request.version() != Version::HTTP_2 {
            return http::sentence(400, "gRPC needs HTTP/2; over HTTP/1.1 use application/grpc-web+proto\n");
        }
        return services.call(request, from).await;
    }
    let cross_origin = request.headers().contains_key(header::ORIGIN);
    if cross_origin && request.method() == Method::OPTIONS {
        return with_cors(http::preflight());
    }
    let answer = if web {
        match GrpcWebLayer::new().layer(Calls { services, from }).call(request).await {
            Ok(answer) => answer,
            Err(never) => match never {},
        }
    } else {
        http::answer(&services.context, request, from).await
    };
    if cross_origin { with_cors(answer) } else { answer }
}

fn with_cors(mut answer: Response<Body>) -> Response<Body> {
    let headers = answer.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, CORS_RESPONSE_HEADERS);
    answer
}
