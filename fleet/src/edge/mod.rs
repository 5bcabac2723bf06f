//! One port: what arrives, who sent it, where it goes.
//!
//! Dispatch is by content type, said out loud: `application/grpc` over HTTP/2 → the operations; `application/grpc-web`
//! over any HTTP → the same through tonic-web; POST of `application/json` to an operation → the same by the Connect
//! protocol (`json.rs`); OPTIONS with an Origin → CORS; everything else → plain HTTP (`http.rs`).
//! A bearer token is asked for before anything else about a call is looked at, its path included.

mod alias;
mod authenticate;
mod balancer;
mod body;
mod buckets;
mod calls;
mod codec;
mod http;
mod json;
pub mod metrics;
mod places;
pub mod proxy;
mod reflection;
mod rest;
mod serve;
mod slow;
pub mod throttle;
mod tls;
mod upload;

use std::{
    convert::Infallible,
    future::Future,
    net::IpAddr,
    pin::Pin,
    sync::Arc,
    task::{Context as Poller, Poll},
    time::Duration,
};

use ::http::{HeaderValue, Method, Request, Response, Version, header};
use tokio::time::timeout;
use tonic::{Code, Status, body::Body, codegen::Service};
use tonic_web::GrpcWebLayer;
use tower_layer::Layer;

pub(crate) use authenticate::bearer;
pub(crate) use codec::Codec;
pub(crate) use http::{http_status, sentence};
pub use serve::{Edge, ServeError, serve};
pub use tls::{Certificate, TlsError};

use crate::{
    authn::Caller,
    context::Context,
    limits::{LOGIN_BYTES_MAX, REQUEST_BYTES_MAX},
    operations::{
        Operations, admin_service_server::AdminServiceServer, agent_device_service_server::AgentDeviceServiceServer,
        app_service_server::AppServiceServer, auth_service_server::AuthServiceServer,
        device_service_server::DeviceServiceServer, package_service_server::PackageServiceServer,
        robot_service_server::RobotServiceServer, streams, takes_upload,
    },
    refusal::Refusal,
};

/// What browsers may send from another origin. No cookies are involved, so every origin may ask.
const CORS_REQUEST_HEADERS: HeaderValue = HeaderValue::from_static(
    "authorization, content-type, viam_client, platform_client, x-grpc-web, x-user-agent, grpc-timeout, x-request-id, \
     connect-protocol-version, connect-timeout-ms",
);
/// What their scripts may read: errors without a body carry their status here.
const CORS_RESPONSE_HEADERS: HeaderValue =
    HeaderValue::from_static("grpc-status, grpc-message, grpc-status-details-bin, x-request-id, retry-after");

/// Who is at the other end of a connection.
#[derive(Clone)]
struct Peer {
    ip: IpAddr,
    seat: Arc<places::Seat>,
}

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
    reflection: reflection::Reflection,
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
            reflection: reflection::Reflection::default(),
        }
    }

    /// A call in gRPC's own framing, whichever way it came: let in, within its limits, answered in time, written down.
    async fn call(mut self, mut request: Request<Body>, peer: &Peer) -> Response<Body> {
        alias::canonical(&mut request);
        let context = self.context.clone();
        let call = calls::Call::begins(request.uri().path(), request.headers());
        let (caller, answer, permit) = match self.enter(&call.path, request.headers(), peer).await {
            Ok((caller, permit)) => {
                let mut answer = self.dispatch(&call.path, caller.clone(), request).await;
                // What others answer is small.
                if call.path.starts_with("/platform.app.v1.AppService/") && !is_stream(&call.path) {
                    let key = context.throttle.of_caller(&caller);
                    answer = match answer {
                        Ok(made) => slow::counted(&context.throttle, key, &call.path, made).await,
                        refused => refused,
                    };
                }
                (caller, answer, permit)
            }
            Err((caller, status)) => (caller, Err(status), None),
        };
        let mut answer = answer.unwrap_or_else(Status::into_http);
        let code = call.answers(&context, &caller, &mut answer);
        if code == Code::Ok && call.path == authenticate::SIGN_IN {
            peer.seat.signed_in();
        }
        match code == Code::Ok && is_stream(&call.path) {
            true => call.streams(&context, &caller, (permit, peer.seat.busy()), answer),
            false => answer,
        }
    }

    /// Who calls, and that they may by their limits, before anything else of the call is looked at. With a refusal comes
    /// who was refused.
    async fn enter(
        &self,
        path: &str,
        headers: &::http::HeaderMap,
        peer: &Peer,
    ) -> Result<(Caller, Option<throttle::Held>), (Caller, Status)> {
        let throttle = &self.context.throttle;
        let caller = match authenticate::door(path) {
            authenticate::Door::Open => Caller::nobody(peer.ip),
            authenticate::Door::Ajar if !headers.contains_key(::http::header::AUTHORIZATION) => Caller::nobody(peer.ip),
            authenticate::Door::Closed | authenticate::Door::Ajar => {
                let caller = self.context.authn.caller(authenticate::bearer(headers), peer.ip).await;
                let caller = match throttle.late_for_strangers(caller, peer.ip).await {
                    Ok(caller) => caller,
                    Err(refusal) => return Err((Caller::nobody(peer.ip), refusal.into())),
                };
                if let Err(refusal) = throttle.late(peer.seat.held_by(&caller, throttle)).await {
                    return Err((caller, refusal.into()));
                }
                caller
            }
        };
        match throttle.late(self.permitted(path, &caller)).await {
            Ok(permit) => Ok((caller, permit)),
            Err(refusal) => Err((caller, refusal.into())),
        }
    }

    /// Whether the caller still may, by its limits; what holds its place if it is a stream.
    fn permitted(&self, path: &str, caller: &Caller) -> Result<Option<throttle::Held>, Refusal> {
        // A sign-in is no call of anybody yet: it is counted where it is found out whose it is. Whether the server is well
        // is asked by balancers, with whom strangers may share an address, and is answered from memory.
        if path == authenticate::SIGN_IN || path == "/grpc.health.v1.Health/Check" {
            return Ok(None);
        }
        let throttle = &self.context.throttle;
        let of_device = [
            "/platform.app.v1.RobotService/",
            "/platform.app.agent.v1.AgentDeviceService/",
            "/platform.fleet.v1.DeviceService/",
        ];
        throttle.call(caller, of_device.iter().any(|service| path.starts_with(service)))?;
        if is_stream(path) { throttle.stream(caller) } else { Ok(None) }
    }

    async fn dispatch(
        &mut self,
        path: &str,
        caller: Caller,
        mut request: Request<Body>,
    ) -> Result<Response<Body>, Status> {
        if takes_upload(path) {
            // As long as it takes: one from which nothing comes is given up on its own.
            return Ok(upload::answer(&self.context, caller, request).await);
        }
        let within = time_limit(request.headers(), self.context.waits.call);
        if path.starts_with("/grpc.reflection.") {
            request = request.map(|body| calls::until_end(&self.context, &caller, body));
        }
        request.extensions_mut().insert(caller);
        let service = path.get(1..).and_then(|path| path.split_once('/')).map(|(service, _)| service);
        let answer: Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>> = match service {
            Some("platform.app.v1.AppService") => Box::pin(self.app.call(request)),
            Some("platform.app.agent.v1.AgentDeviceService") => Box::pin(self.agent.call(request)),
            Some("platform.app.v1.RobotService") => Box::pin(self.robot.call(request)),
            Some("platform.app.packages.v1.PackageService") => Box::pin(self.packages.call(request)),
            Some("platform.fleet.v1.DeviceService") => Box::pin(self.device.call(request)),
            Some("platform.fleet.v1.AdminService") => Box::pin(self.admin.call(request)),
            Some("proto.rpc.v1.AuthService") => Box::pin(self.auth.call(request)),
            Some("grpc.health.v1.Health") => Box::pin(self.health.call(request)),
            Some(reflection::V1 | reflection::V1_ALPHA) => return Ok(self.reflection.call(request).await),
            _ => return Err(Status::unimplemented("this server has no such operation")),
        };
        // Infallible: the generated services answer errors as responses.
        match timeout(within, answer).await {
            Ok(Ok(answer)) => readable(answer),
            Ok(Err(never)) => match never {},
            Err(_) => Err(Refusal::too_slow(within).into()),
        }
    }
}

/// Whether the answer may go on for as long as the connection does.
fn is_stream(path: &str) -> bool {
    streams(path) || path == "/grpc.health.v1.Health/Watch" || path.starts_with("/grpc.reflection.")
}

/// The same answer, unless the framework could not make a message of the request. It calls that a fault of the server, as
/// faults of ours are, which come with their reason; this one is the caller's.
fn readable(answer: Response<Body>) -> Result<Response<Body>, Status> {
    match Status::from_header_map(answer.headers()) {
        Some(status) if status.code() == Code::Internal && status.details().is_empty() => {
            Err(Refusal::unreadable(status.message()).into())
        }
        _ => Ok(answer),
    }
}

/// What the caller is willing to wait for the answer to begin, and never longer than the server is: a request that comes
/// in drop by drop would otherwise be waited for without end.
fn time_limit(headers: &::http::HeaderMap, most: Duration) -> Duration {
    let asked = headers.get("grpc-timeout").and_then(|value| value.to_str().ok()).and_then(|text| {
        let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
        let number: u64 = if number.len() <= 8 { number.parse().ok()? } else { return None };
        Some(match unit {
            "H" => Duration::from_secs(number * 3600),
            "M" => Duration::from_secs(number * 60),
            "S" => Duration::from_secs(number),
            "m" => Duration::from_millis(number),
            "u" => Duration::from_micros(number),
            "n" => Duration::from_nanos(number),
            _ => return None,
        })
    });
    // What the JSON of the same calls says in its place.
    let in_json = || headers.get(json::TIMEOUT)?.to_str().ok()?.parse().ok().map(Duration::from_millis);
    asked.or_else(in_json).map_or(most, |asked| asked.min(most))
}

/// What tonic-web wraps.
struct Calls {
    services: Services,
    peer: Peer,
}

impl Service<Request<Body>> for Calls {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Poller<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (services, peer) = (self.services.clone(), self.peer.clone());
        Box::pin(async move { Ok(services.call(request, &peer).await) })
    }
}

/// Any request on the port.
async fn answer(services: Services, request: Request<Body>, mut peer: Peer) -> Response<Body> {
    peer.ip = proxy::origin(&services.context.trusted_proxies, peer.ip, request.headers());
    let content_type = request.headers().get(header::CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    let web = content_type.starts_with(b"application/grpc-web");
    if !web && content_type.starts_with(b"application/grpc") {
        if request.version() != Version::HTTP_2 {
            return http::sentence(400, "gRPC needs HTTP/2; over HTTP/1.1 use application/grpc-web+proto\n");
        }
        return services.call(request, &peer).await;
    }
    let cross_origin =
        request.headers().contains_key(header::ORIGIN) && http::is_for_other_origins(request.uri().path());
    if cross_origin && request.method() == Method::OPTIONS {
        return with_cors(http::preflight());
    }
    let form = json::form(content_type).filter(|_| request.method() == Method::POST);
    let answer = if web {
        match GrpcWebLayer::new().layer(Calls { services, peer }).call(request).await {
            Ok(answer) => answer,
            Err(never) => match never {},
        }
    } else if let Some(form) = form.filter(|_| http::is_operation(request.uri().path())) {
        json::answer(services, form, request, &peer).await
    } else {
        http::answer(&services.context, request, &peer).await
    };
    if cross_origin { with_cors(answer) } else { answer }
}

fn with_cors(mut answer: Response<Body>) -> Response<Body> {
    let headers = answer.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, CORS_RESPONSE_HEADERS);
    answer
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::CALL_WITHIN;

    #[test]
    fn a_caller_may_wait_less_than_the_server_and_not_more() {
        let table = [
            (None, CALL_WITHIN),
            (Some("500m"), Duration::from_millis(500)),
            (Some("2S"), Duration::from_secs(2)),
            (Some("7u"), Duration::from_micros(7)),
            (Some("99999999H"), CALL_WITHIN),
            (Some("x"), CALL_WITHIN),
            (Some(""), CALL_WITHIN),
            (Some("123456789S"), CALL_WITHIN),
            (Some("5X"), CALL_WITHIN),
            (Some("ü"), CALL_WITHIN),
        ];
        for (said, limit) in table {
            let mut headers = ::http::HeaderMap::new();
            if let Some(said) = said {
                headers.insert("grpc-timeout", HeaderValue::from_bytes(said.as_bytes()).unwrap());
            }
            assert_eq!(time_limit(&headers, CALL_WITHIN), limit, "{said:?}");
        }
    }
}
