//! Unary operations as JSON over plain HTTP, by the Connect protocol: for curl and for programs without gRPC.
//!
//! POST to the operation's path with `application/json` (or `application/proto`). The message is turned into the gRPC
//! one by the contract's own descriptors and takes the same way as every other call, so nothing is decided here: who
//! may, what is refused, what is counted. Answers follow the JSON mapping of protobuf: 64-bit numbers and timestamps
//! are strings, bytes are base64, enums are names; fields in their usual state are left out. A stream is refused: it
//! needs gRPC or gRPC-Web. GET is refused too: no operation of the contract is marked as free of side effects.

use bytes::{Buf, Bytes};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use prost::{
    Message,
    encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field},
};
use prost_reflect::{DeserializeOptions, DynamicMessage, Kind, MessageDescriptor, MethodDescriptor};
use serde_json::{Value, json};
use tokio::{sync::Semaphore, time::timeout};
use tonic::{Code, Status, body::Body};
use tonic_types::StatusExt;

use super::{Peer, Services, alias, calls, slow, time_limit};
use crate::{
    authn::Caller,
    contract,
    limits::{LOGIN_BYTES_MAX, REQUEST_BYTES_MAX},
    refusal::Refusal,
};

/// The protocol's version, which callers may name.
const VERSION: &str = "connect-protocol-version";
/// In milliseconds.
pub(super) const TIMEOUT: &str = "connect-timeout-ms";
/// Bytes of a gRPC frame before its message.
const HEAD_BYTES: usize = 5;
/// Of a timeout: ten digits by the protocol, eight by gRPC's.
const TIMEOUT_DIGITS_MAX: usize = 8;

/// Values in one message that is written or read as JSON. Each takes some 700 bytes on its way; a device's configuration of
/// a megabyte has far fewer.
const VALUES_MAX: usize = 50_000;
/// The same in protobuf's own form, where a value has a place in its list and a kind.
const FIELDS_MAX: usize = 2 * VALUES_MAX;
/// Messages that are on that way at once.
const CONVERTING_MAX: usize = 4;
/// Messages within messages: twice what a configuration may have, because a Struct needs two for each.
const DEPTH_MAX: usize = 256;

/// How the message is written, both ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Json,
    Binary,
    /// A stream of messages, which is refused in its own framing.
    Stream,
}

/// Whether that content type is ours.
pub(super) fn form(content_type: &[u8]) -> Option<Form> {
    let name = content_type.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    match name.to_ascii_lowercase().as_slice() {
        b"application/json" => Some(Form::Json),
        b"application/proto" => Some(Form::Binary),
        b"application/connect+json" | b"application/connect+proto" => Some(Form::Stream),
        _ => None,
    }
}

/// A POST in one of these forms to a path of an operation.
pub(super) async fn answer(
    mut services: Services,
    form: Form,
    mut request: Request<Body>,
    peer: &Peer,
) -> Response<Body> {
    alias::canonical(&mut request);
    let context = services.context.clone();
    let call = calls::Call::begins(request.uri().path(), request.headers());
    let json = request.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().ends_with(b"json"));
    let within = time_limit(request.headers(), context.waits.call);
    // Before anything else about the call is looked at, here as everywhere.
    let (caller, told) = match services.enter(&call.path, request.headers(), peer).await {
        // A message that comes in drop by drop is not waited for without end.
        Ok((caller, _)) => match timeout(within, unary(&mut services, form, caller.clone(), request)).await {
            Ok(told) => (caller, told),
            Err(_) => (caller, Err(Refusal::too_slow(within).into())),
        },
        Err((caller, status)) => (caller, Err(status)),
    };
    let key = context.throttle.of_caller(&caller);
    let told = match told {
        Ok(content) => slow::whole(&context.throttle, key, &call.path, content).await,
        Err(status) => Err(status),
    };
    let code = told.as_ref().err().map_or(Code::Ok, Status::code);
    let mut answer = match told {
        Ok(content) if form == Form::Json => response(StatusCode::OK, "application/json", content),
        Ok(content) => response(StatusCode::OK, "application/proto", content),
        Err(status) if form == Form::Stream => ended(&status, json),
        Err(status) => refused(&status),
    };
    call.answers_with(&context, &caller, &mut answer, code);
    answer
}

/// What the operation answers, in the caller's form.
async fn unary(services: &mut Services, form: Form, caller: Caller, request: Request<Body>) -> Result<Bytes, Status> {
    if form == Form::Stream {
        return Err(Status::unimplemented("streams are answered over gRPC and gRPC-Web only"));
    }
    let path = request.uri().path().to_owned();
    let method = contract::method(&path);
    let method = method.ok_or_else(|| Status::unimplemented("this server has no such operation"))?;
    if method.is_client_streaming() || method.is_server_streaming() {
        return Err(Status::unimplemented("this operation is a stream: call it over gRPC or gRPC-Web"));
    }
    let (parts, body) = request.into_parts();
    check(&parts.headers)?;
    let most = if path.starts_with("/proto.rpc.") { LOGIN_BYTES_MAX } else { REQUEST_BYTES_MAX };
    let sent = Limited::new(body, most).collect().await.map_err(|problem| match problem.downcast_ref::<Status>() {
        // Our own word. What the framework has none for is no fault of ours: it was no HTTP.
        Some(status) if !matches!(status.code(), Code::Internal | Code::Unknown) => status.clone(),
        _ => Refusal::unreadable(format_args!("the message is longer than {most} bytes, or it broke off")).into(),
    })?;
    let message = match form {
        Form::Json => {
            let input = method.input();
            converted(move || binary(input, &sent.to_bytes())).await?
        }
        _ => sent.to_bytes(),
    };
    let answer = services.dispatch(&path, caller, call(&parts.headers, &path, &message)?).await?;
    replied(form, &method, answer).await
}

/// Runs what takes memory and time a few at once, beside what answers other calls.
async fn converted(work: impl FnOnce() -> Result<Bytes, Status> + Send + 'static) -> Result<Bytes, Status> {
    static ROOM: Semaphore = Semaphore::const_new(CONVERTING_MAX);
    let _place = ROOM.acquire().await;
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| Err(Status::internal("the message could not be converted")))
}

/// Whether so many values are in this text at most. Each comes after one of these signs.
fn has_few_values(text: &[u8]) -> bool {
    let (mut values, mut quoted, mut escaped) = (1, false, false);
    for byte in text {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b',' | b'[' | b'{' if !quoted => values += 1,
            _ => {}
        }
    }
    values <= VALUES_MAX
}

/// Uses up one of `left` for each field that is there, in messages within messages too. Nothing where they are not
/// enough, or where it is no such message.
fn count(message: &MessageDescriptor, mut bytes: &[u8], depth: usize, left: &mut usize) -> Option<()> {
    while !bytes.is_empty() {
        *left = left.checked_sub(1)?;
        let (tag, wire_type) = decode_key(&mut bytes).ok()?;
        if wire_type != WireType::LengthDelimited {
            skip_field(wire_type, tag, &mut bytes, DecodeContext::default()).ok()?;
            continue;
        }
        let length = usize::try_from(decode_varint(&mut bytes).ok()?).ok()?;
        let (inner, rest) = bytes.split_at_checked(length)?;
        bytes = rest;
        if let Some(Kind::Message(kind)) = message.get_field(tag).map(|field| field.kind()) {
            count(&kind, inner, depth.checked_sub(1)?, left)?;
        }
    }
    Some(())
}

fn check(headers: &HeaderMap) -> Result<(), Status> {
    if headers.get(VERSION).is_some_and(|version| version != "1") {
        return Err(Refusal::unreadable("connect-protocol-version has to be 1").into());
    }
    if headers.get(header::CONTENT_ENCODING).is_some_and(|encoding| encoding != "identity") {
        return Err(Status::unimplemented("compressed messages are not accepted: send it plain"));
    }
    Ok(())
}

/// The same message in protobuf's own form. What it was is not repeated: it may hold a secret.
fn binary(input: MessageDescriptor, text: &[u8]) -> Result<Bytes, Status> {
    // Nothing at all is what somebody sends who has nothing to say.
    let text = if text.trim_ascii().is_empty() { b"{}" } else { text };
    if !has_few_values(text) {
        let why = format_args!("it has more than {VALUES_MAX} values: send it as application/proto, or over gRPC");
        return Err(Refusal::unreadable(why).into());
    }
    let name = input.name().to_owned();
    let mut json = serde_json::Deserializer::from_slice(text);
    // Clients of another version know other fields.
    let options = DeserializeOptions::new().deny_unknown_fields(false);
    let message = DynamicMessage::deserialize_with_options(input, &mut json, &options)
        .and_then(|message| json.end().map(|()| message))
        .map_err(|why| {
            let kind = if why.is_data() { format!("it is no {name} of the contract") } else { "it is no JSON".into() };
            Status::from(Refusal::unreadable(format_args!("line {} column {}: {kind}", why.line(), why.column())))
        })?;
    Ok(message.encode_to_vec().into())
}

/// The call as gRPC would have brought it.
fn call(headers: &HeaderMap, path: &str, message: &[u8]) -> Result<Request<Body>, Status> {
    let too_long = |_| Status::resource_exhausted("the message is too long");
    let length = u32::try_from(message.len()).map_err(too_long)?.to_be_bytes();
    let framed = Bytes::from([&[0], &length[..], message].concat());
    let mut call = Request::new(Body::new(Full::from(framed)));
    *call.method_mut() = http::Method::POST;
    *call.version_mut() = http::Version::HTTP_2;
    *call.uri_mut() = path.parse().map_err(|_| Status::unimplemented("this server has no such operation"))?;
    let known = [header::AUTHORIZATION, calls::REQUEST_ID, header::USER_AGENT];
    for name in known {
        if let Some(value) = headers.get(&name) {
            call.headers_mut().insert(name, value.clone());
        }
    }
    for name in ["viam_client", "platform_client"] {
        if let Some(value) = headers.get(name) {
            call.headers_mut().insert(name, value.clone());
        }
    }
    call.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    call.headers_mut().insert(header::TE, HeaderValue::from_static("trailers"));
    if let Some(timeout) = headers.get(TIMEOUT) {
        let digits = timeout.to_str().unwrap_or_default();
        let fits = (1..=TIMEOUT_DIGITS_MAX).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
        let timeout = HeaderValue::try_from(format!("{digits}m"));
        match timeout {
            Ok(timeout) if fits => drop(call.headers_mut().insert("grpc-timeout", timeout)),
            _ => return Err(Refusal::unreadable("connect-timeout-ms has to be up to eight digits").into()),
        }
    }
    Ok(call)
}

/// What gRPC would have answered, in the caller's form.
async fn replied(form: Form, method: &MethodDescriptor, answer: Response<Body>) -> Result<Bytes, Status> {
    let (parts, body) = answer.into_parts();
    let told = body.collect().await?;
    let status = Status::from_header_map(&parts.headers)
        .or_else(|| told.trailers().and_then(Status::from_header_map))
        .filter(|status| status.code() != Code::Ok);
    if let Some(status) = status {
        return Err(status);
    }
    let mut message = told.to_bytes();
    message.advance(HEAD_BYTES.min(message.len()));
    if form != Form::Json {
        return Ok(message);
    }
    let output = method.output();
    let mut left = FIELDS_MAX;
    if count(&output, &message, DEPTH_MAX, &mut left).is_none() {
        let why =
            format!("the answer has more than {VALUES_MAX} values: ask for less, as application/proto or over gRPC");
        return Err(Status::out_of_range(why));
    }
    converted(move || match DynamicMessage::decode(output, message).map(|told| serde_json::to_vec(&told)) {
        Ok(Ok(text)) => Ok(text.into()),
        // What was kept cannot be written as JSON: a timestamp of the year 10,000.
        _ => Err(Status::internal("the answer cannot be written as JSON: ask in another form")),
    })
    .await
}

fn response(status: StatusCode, kind: &'static str, content: Body) -> Response<Body> {
    let mut answer = Response::new(content);
    *answer.status_mut() = status;
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}

/// An error is JSON in every form.
fn refused(status: &Status) -> Response<Body> {
    let (number, _) = code(status.code());
    let http = StatusCode::from_u16(number).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut answer = response(http, "application/json", Body::new(Full::from(error(status).to_string())));
    let details = status.get_details_retry_info();
    if let Some(delay) = details.and_then(|retry| retry.retry_delay) {
        // In whole seconds, and never "at once".
        answer.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(delay.as_secs().max(1)));
    }
    answer
}

/// A stream's end, which is where its errors are.
fn ended(status: &Status, json: bool) -> Response<Body> {
    let text = json!({ "error": error(status) }).to_string();
    let length = u32::try_from(text.len()).unwrap_or_default().to_be_bytes();
    let framed = Bytes::from([&[2], &length[..], text.as_bytes()].concat());
    let kind = if json { "application/connect+json" } else { "application/connect+proto" };
    response(StatusCode::OK, kind, Body::new(Full::from(framed)))
}

fn error(status: &Status) -> Value {
    let mut error = json!({ "code": code(status.code()).1, "message": status.message() });
    let details = tonic_types::Status::decode(status.details()).map(|told| told.details).unwrap_or_default();
    let readable = readable(status);
    let details: Vec<Value> = details
        .into_iter()
        .map(|detail| {
            let kind = detail.type_url.rsplit('/').next().unwrap_or_default().to_owned();
            let mut one = json!({ "type": kind, "value": base64(&detail.value) });
            if let Some(debug) = readable.get(&kind) {
                one["debug"] = debug.clone();
            }
            one
        })
        .collect();
    if !details.is_empty() {
        error["details"] = details.into();
    }
    error
}

/// What the details say, for people.
fn readable(status: &Status) -> serde_json::Map<String, Value> {
    let details = status.get_error_details();
    let mut all = serde_json::Map::new();
    let mut put = |name: &str, value: Value| drop(all.insert(format!("google.rpc.{name}"), value));
    if let Some(info) = details.error_info() {
        put("ErrorInfo", json!({"reason": info.reason, "domain": info.domain, "metadata": info.metadata}));
    }
    if let Some(bad) = details.bad_request() {
        let violations = bad.field_violations.iter();
        let violations = violations.map(|one| json!({"field": one.field, "description": one.description}));
        put("BadRequest", json!({"fieldViolations": violations.collect::<Vec<_>>()}));
    }
    if let Some(resource) = details.resource_info() {
        let (kind, name) = (&resource.resource_type, &resource.resource_name);
        put("ResourceInfo", json!({"resourceType": kind, "resourceName": name, "description": resource.description}));
    }
    if let Some(delay) = details.retry_info().and_then(|retry| retry.retry_delay) {
        put("RetryInfo", json!({"retryDelay": format!("{}s", delay.as_secs_f64())}));
    }
    all
}

/// HTTP status and name of a code, by the protocol.
fn code(code: Code) -> (u16, &'static str) {
    match code {
        Code::Ok => (200, "ok"),
        Code::Cancelled => (499, "canceled"),
        Code::Unknown => (500, "unknown"),
        Code::InvalidArgument => (400, "invalid_argument"),
        Code::DeadlineExceeded => (504, "deadline_exceeded"),
        Code::NotFound => (404, "not_found"),
        Code::AlreadyExists => (409, "already_exists"),
        Code::PermissionDenied => (403, "permission_denied"),
        Code::ResourceExhausted => (429, "resource_exhausted"),
        Code::FailedPrecondition => (400, "failed_precondition"),
        Code::Aborted => (409, "aborted"),
        Code::OutOfRange => (400, "out_of_range"),
        Code::Unimplemented => (501, "unimplemented"),
        Code::Internal => (500, "internal"),
        Code::Unavailable => (503, "unavailable"),
        Code::DataLoss => (500, "data_loss"),
        Code::Unauthenticated => (401, "unauthenticated"),
    }
}

/// Without padding, as the protocol wants it.
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let bits = three.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
        for place in 0..=three.len() {
            text.push(char::from(ALPHABET[(bits >> (18 - 6 * place) & 63) as usize]));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_everybody() {
        // RFC 4648, without its padding.
        let table = [("", ""), ("f", "Zg"), ("fo", "Zm8"), ("foo", "Zm9v"), ("foob", "Zm9vYg"), ("fooba", "Zm9vYmE")];
        for (bytes, text) in table {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
        assert_eq!(base64(&[0xfb, 0xff, 0xfe]), "+//+");
    }

    #[test]
    fn values_are_counted_before_memory_is_taken_for_them() {
        let list = |values: usize| format!("[{}]", vec!["0"; values].join(","));
        assert!(has_few_values(list(VALUES_MAX - 2).as_bytes()));
        assert!(!has_few_values(list(VALUES_MAX + 1).as_bytes()));
        assert!(
            has_few_values(format!("{:?}", ",[{".repeat(VALUES_MAX)).as_bytes()),
            "in a text they count for nothing"
        );
        assert!(
            !has_few_values(format!("[\"\\\"\",{}", list(VALUES_MAX + 1)).as_bytes()),
            "an escaped quote ends no text"
        );

        let robot = contract::pool().get_message_by_name("google.protobuf.Struct").unwrap();
        let message = |values: usize| {
            let null = prost_types::Value { kind: Some(prost_types::value::Kind::NullValue(0)) };
            let list = prost_types::value::Kind::ListValue(prost_types::ListValue { values: vec![null; values] });
            let fields = [("a".to_owned(), prost_types::Value { kind: Some(list) })].into();
            prost_types::Struct { fields }.encode_to_vec()
        };
        let counted = |bytes: &[u8]| {
            let mut left = FIELDS_MAX;
            count(&robot, bytes, DEPTH_MAX, &mut left).map(|()| FIELDS_MAX - left)
        };
        // Entry, key, value, list; and two for each of its values.
        assert_eq!(counted(&message(10)), Some(4 + 20));
        assert_eq!(counted(&message(VALUES_MAX)), None);
        assert_eq!(counted(&[0x0a, 0x7f]), None, "cut off");
    }

    #[test]
    fn forms_are_told_by_content_type() {
        assert_eq!(form(b"application/json"), Some(Form::Json));
        assert_eq!(form(b"Application/JSON; charset=utf-8"), Some(Form::Json));
        assert_eq!(form(b"application/proto"), Some(Form::Binary));
        assert_eq!(form(b"application/connect+json"), Some(Form::Stream));
        for other in [&b""[..], b"text/plain", b"application/jsonx", b"application/grpc"] {
            assert_eq!(form(other), None);
        }
    }
}
