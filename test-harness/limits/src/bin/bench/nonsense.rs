//! What nobody should send to a server: noise, messages that are too long, and well-formed frames with something in them that
//! is not acceptable.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    time::Duration,
};

use api::pb::platform::app::v1::{CreateLocationRequest, GetRobotPartLogsRequest, UpdateRobotPartRequest};
use prost::Message as _;

use crate::web::{answer, head};

/// Bytes that are no HTTP, or begin like HTTP/2 and go on like nothing.
pub(crate) fn garbage(address: &str, turn: usize) -> String {
    let Ok(mut stream) = TcpStream::connect(address) else { return "cut off".into() };
    let _ = stream.set_read_timeout(Some(Duration::from_millis(200)));
    let mut seed = turn as u64 | 1;
    let noise: Vec<u8> = (0..4096)
        .map(|_| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 56) as u8
        })
        .collect();
    if turn % 8 < 4 {
        let _ = stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    }
    let _ = stream.write_all(&noise);
    let _ = stream.read(&mut [0; 1024]);
    "cut off".into()
}

/// A message of 64 MiB, all of it sent as far as the server takes it.
pub(crate) fn huge(address: &str, token: &str) -> String {
    let Ok(mut stream) = TcpStream::connect(address) else { return "cut off".into() };
    let _ = stream.set_read_timeout(Some(Duration::from_secs(10)));
    let _ = stream.set_write_timeout(Some(Duration::from_secs(10)));
    let bytes: u32 = 64 << 20;
    let head = head("/platform.app.v1.AppService/UpdateRobotPart", token, address, bytes as usize + 5);
    let _ = stream.write_all(head.as_bytes());
    let mut prefix = vec![0];
    prefix.extend(bytes.to_be_bytes());
    let _ = stream.write_all(&prefix);
    // Some systems let nobody else run until a write is done.
    let chunk = vec![b'x'; 64 << 10];
    for _ in 0..bytes as usize / chunk.len() {
        if stream.write_all(&chunk).is_err() {
            break;
        }
    }
    answer(&mut stream).map_or("cut off".into(), |(said, _)| said)
}

/// A field of a message: its tag, which says that a length comes, and what is in it.
fn field(tag: u8, inner: &[u8]) -> Vec<u8> {
    let mut message = vec![tag];
    prost::encoding::encode_varint(inner.len() as u64, &mut message);
    message.extend(inner);
    message
}

/// Requests that are well-formed frames with something in them that is not acceptable.
pub(crate) fn calls(parts: &[String], organization: &str) -> Vec<(&'static str, Vec<u8>)> {
    let part = parts.first().cloned().unwrap_or_default();
    let update = |json: String| {
        let request = UpdateRobotPartRequest {
            id: part.clone(),
            name: "arm".into(),
            robot_config_json: Some(json),
            ..Default::default()
        };
        ("/platform.app.v1.AppService/UpdateRobotPart", request.encode_to_vec())
    };
    let logs = |request: GetRobotPartLogsRequest| {
        let request = GetRobotPartLogsRequest { id: part.clone(), ..request };
        ("/platform.app.v1.AppService/GetRobotPartLogs", request.encode_to_vec())
    };
    let location = |name: &str| {
        let request = CreateLocationRequest {
            organization_id: organization.to_owned(),
            name: name.into(),
            parent_location_id: Some("'; DROP TABLE parts; --".into()),
        };
        ("/platform.app.v1.AppService/CreateLocation", request.encode_to_vec())
    };
    // A Struct in a Struct in …, deeper than any reader goes: fields { key: "a" value { struct_value { … } } }.
    let mut deep = Vec::new();
    for _ in 0..2_000 {
        let value = field(0x12, &field(0x2a, &deep));
        deep = field(0x0a, &[field(0x0a, b"a"), value].concat());
    }
    let deep = field(0x1a, &deep);
    vec![
        update("[".repeat(500_000)),
        update("{\"a\":".repeat(100_000)),
        update(format!("{{\"a\": \"{}\"}}", "x".repeat(2 << 20))),
        update("{\"a\": \"\u{0}\"}".into()),
        logs(GetRobotPartLogsRequest { page_token: Some("9".repeat(100_000)), ..Default::default() }),
        logs(GetRobotPartLogsRequest {
            page_token: Some("'; DELETE FROM log_blocks; --".into()),
            ..Default::default()
        }),
        logs(GetRobotPartLogsRequest { limit: Some(i64::MIN), ..Default::default() }),
        logs(GetRobotPartLogsRequest { limit: Some(i64::MAX), filter: Some("%_\\'\"".into()), ..Default::default() }),
        logs(GetRobotPartLogsRequest { range: Some("999999999999999999d".into()), ..Default::default() }),
        location("a\0b"),
        location("%s%n${jndi:ldap://x}"),
        ("/platform.app.v1.AppService/UpdateRobotPart", deep),
        // A text that is no UTF-8, a length that goes beyond the message, a tag of no kind.
        ("/platform.app.v1.AppService/GetRobotPart", vec![0x0a, 0x04, 0xff, 0xfe, 0xc0, 0x80]),
        ("/platform.app.v1.AppService/GetRobotPart", vec![0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f]),
        ("/platform.app.v1.AppService/GetRobotPart", vec![0x07, 0x00]),
        ("/platform.app.v1.AppService/NoSuchThing", vec![]),
        ("/../../etc/passwd", vec![]),
    ]
}
