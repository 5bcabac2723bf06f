//! Any bytes as defaults file and as answer of the fleet server: no panic, no overflow, a stored form that is read back.
#![no_main]

use api::{
    device_config::{Accepted, CommandLine, Origin, Source, Sources, check, random, read},
    pb::platform::app::agent::v1::DeviceAgentConfigResponse,
};
use libfuzzer_sys::fuzz_target;
use prost::Message as _;

fuzz_target!(|bytes: &[u8]| {
    let _ = check(bytes, Origin::Cloud);
    let on_the_wire = DeviceAgentConfigResponse::decode(bytes).ok().or_else(|| random::as_response(bytes));
    let sources = Sources {
        defaults: Source::Given(bytes),
        cloud: on_the_wire.as_ref().map_or(Source::Absent, Source::Given),
        command_line: CommandLine::default(),
    };
    let reading = read(&sources, &Accepted::default());
    let stored = Accepted::decode(reading.accepted.encode().as_bytes());
    assert!(stored.as_ref() == Some(&reading.accepted), "what was accepted must survive a restart");
});
