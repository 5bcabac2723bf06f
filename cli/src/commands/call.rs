//! `call`: any operation by its name, for what has no command of its own and for trying things out.

use std::path::PathBuf;

use api::method::Unary;
use clap::Args;
use prost::{
    DecodeError, Message,
    bytes::{Buf, BufMut},
    encoding::{DecodeContext, WireType, decode_varint, encode_key, encode_varint},
};
use prost_reflect::{DeserializeOptions, DynamicMessage, MethodDescriptor};

use super::read_text;
use crate::{
    failure::Failure,
    output::{Output, json_of_bytes, pool},
    session::Session,
};

#[derive(Args)]
pub(crate) struct Call {
    /// Such as GetRobot, or AdminService/ListAuditEvents where the name is not enough; without, the operations are listed
    operation: Option<String>,
    /// The request as JSON; - reads standard input
    #[arg(default_value = "{}")]
    request: String,
    /// Show every operation
    #[arg(long, conflicts_with = "operation")]
    list: bool,
    /// The request is in this file
    #[arg(long, value_name = "FILE", conflicts_with = "request")]
    file: Option<PathBuf>,
}

impl Call {
    /// Whether only names are wanted, which needs no server.
    pub(super) fn is_list(&self) -> bool {
        self.list || self.operation.is_none()
    }
}

pub(super) fn run(session: &Session, call: Call, output: &mut Output) -> Result<(), Failure> {
    let name = call.operation.unwrap_or_default();
    let method = find(&name)?;
    if method.is_client_streaming() || method.is_server_streaming() {
        return Err(Failure::Usage(format!("{name} is a stream: it has a command of its own")));
    }
    let text = match (call.file, &*call.request) {
        (Some(file), _) => read_text(&file)?,
        (None, "-") => read_text("-".as_ref())?,
        (None, text) => text.to_owned(),
    };
    let mut json = serde_json::Deserializer::from_str(&text);
    let strict = DeserializeOptions::new().deny_unknown_fields(true);
    let request = DynamicMessage::deserialize_with_options(method.input(), &mut json, &strict)
        .and_then(|request| json.end().map(|()| request))
        .map_err(|why| Failure::Usage(format!("this is no {}: {why}", method.input().name())))?;
    // One call in the life of the program.
    let path: &'static str = format!("/{}/{}", method.parent_service().full_name(), method.name()).leak();
    let answer = session.change("the call failed", Unary::<DynamicMessage, Raw>::at(path), &request)?;
    output.json(&json_of_bytes(&method.output(), &answer.0))
}

/// Every operation with its request and answer.
pub(super) fn list(output: &mut Output) -> Result<(), Failure> {
    let rows = methods().map(|method| {
        let service = method.parent_service().name().to_owned();
        [service, method.name().to_owned(), method.input().name().to_owned(), method.output().name().to_owned()]
    });
    output.table(["service", "operation", "request", "answer"], rows.collect())
}

fn methods() -> impl Iterator<Item = MethodDescriptor> {
    pool().services().flat_map(|service| service.methods().collect::<Vec<_>>())
}

fn find(name: &str) -> Result<MethodDescriptor, Failure> {
    let (service, operation) = match name.trim_start_matches('/').rsplit_once('/') {
        Some((service, operation)) => (Some(service), operation),
        None => (None, name),
    };
    let of_service = |method: &MethodDescriptor| {
        let parent = method.parent_service();
        service.is_none_or(|service| service == parent.name() || service == parent.full_name())
    };
    let found = methods().filter(of_service).filter(|method| method.name().eq_ignore_ascii_case(operation));
    match &found.collect::<Vec<_>>()[..] {
        [only] => Ok(only.clone()),
        [] => Err(Failure::Usage(format!("there is no operation {name:?}; `call --list` shows all"))),
        several => {
            let names = several.iter().map(|one| format!("{}/{}", one.parent_service().name(), one.name()));
            let names = names.collect::<Vec<_>>().join(", ");
            Err(Failure::Usage(format!("{name:?} is the name of several operations: {names}")))
        }
    }
}

/// An answer as its bytes, whatever is in it.
#[derive(Debug, Clone, Default, PartialEq)]
struct Raw(Vec<u8>);

impl Message for Raw {
    fn encode_raw(&self, buffer: &mut impl BufMut) {
        buffer.put_slice(&self.0);
    }

    fn merge_field(
        &mut self,
        tag: u32,
        kind: WireType,
        buffer: &mut impl Buf,
        _: DecodeContext,
    ) -> Result<(), DecodeError> {
        encode_key(tag, kind, &mut self.0);
        let length = match kind {
            WireType::Varint => {
                encode_varint(decode_varint(buffer)?, &mut self.0);
                return Ok(());
            }
            WireType::SixtyFourBit => 8,
            WireType::ThirtyTwoBit => 4,
            WireType::LengthDelimited => {
                let length = decode_varint(buffer)?;
                encode_varint(length, &mut self.0);
                usize::try_from(length).unwrap_or(usize::MAX)
            }
            // Not in proto3. The message is read again, by its descriptor, which says so.
            WireType::StartGroup | WireType::EndGroup => 0,
        };
        // What is missing is noticed there too.
        let length = length.min(buffer.remaining());
        self.0.put(buffer.take(length));
        Ok(())
    }

    fn encoded_len(&self) -> usize {
        self.0.len()
    }

    fn clear(&mut self) {
        self.0.clear();
    }
}
