//! GetRobotPart's answer, with the Struct form of the configuration encoded from its text.
//!
//! People's programs ask this most. The answer tells one configuration three times; only the first is copied, and the
//! Struct is never built (`encoded_struct`).

use std::fmt;

use api::pb::platform::app::v1::RobotPart;
use prost::{
    DecodeError, Message,
    bytes::{Buf, BufMut},
    encoding::{DecodeContext, WireType, encode_key, encode_varint, encoded_len_varint, key_len, skip_field},
};

use crate::encoded_struct;

/// Field numbers of the contract: GetRobotPartResponse.part and .config_json, RobotPart.robot_config.
const PART: u32 = 1;
const CONFIG_JSON: u32 = 2;
const ROBOT_CONFIG: u32 = 5;

/// A GetRobotPartResponse that is only written.
#[derive(Default)]
pub struct EncodedPart {
    /// Everything but `robot_config`.
    part: RobotPart,
    robot_config: Vec<u8>,
}

impl EncodedPart {
    /// Of a part with `robot_config_json` and without `robot_config`.
    pub(super) fn new(part: RobotPart) -> Self {
        let robot_config = encoded_struct::of_text(part.robot_config_json.as_deref().unwrap_or_default());
        Self { part, robot_config }
    }

    fn part_len(&self) -> usize {
        self.part.encoded_len() + field_len(ROBOT_CONFIG, self.robot_config.len())
    }

    fn text(&self) -> &str {
        self.part.robot_config_json.as_deref().unwrap_or_default()
    }
}

/// It holds a secret.
impl fmt::Debug for EncodedPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EncodedPart").field("id", &self.part.id).finish_non_exhaustive()
    }
}

fn field_len(tag: u32, content: usize) -> usize {
    key_len(tag) + encoded_len_varint(content as u64) + content
}

fn begin_field(tag: u32, content: usize, buf: &mut impl BufMut) {
    encode_key(tag, WireType::LengthDelimited, buf);
    encode_varint(content as u64, buf);
}

impl Message for EncodedPart {
    fn encode_raw(&self, buf: &mut impl BufMut) {
        begin_field(PART, self.part_len(), buf);
        self.part.encode_raw(buf);
        begin_field(ROBOT_CONFIG, self.robot_config.len(), buf);
        buf.put_slice(&self.robot_config);
        if !self.text().is_empty() {
            begin_field(CONFIG_JSON, self.text().len(), buf);
            buf.put_slice(self.text().as_bytes());
        }
    }

    fn encoded_len(&self) -> usize {
        let text = if self.text().is_empty() { 0 } else { field_len(CONFIG_JSON, self.text().len()) };
        field_len(PART, self.part_len()) + text
    }

    /// Nobody decodes answers here; whoever tried would get an empty one.
    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        buf: &mut impl Buf,
        ctx: DecodeContext,
    ) -> Result<(), DecodeError> {
        skip_field(wire_type, tag, buf, ctx)
    }

    fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use api::pb::platform::app::v1::GetRobotPartResponse;

    use super::*;
    use crate::documents;

    #[test]
    fn it_reads_as_the_message_it_stands_for() {
        for text in ["{}", r#"{"components":[{"name":"arm","attributes":{"x":[1,2.5,null]}}]}"#] {
            let part = RobotPart {
                id: "7".into(),
                secret: "hidden".into(),
                main_part: true,
                seconds_since_online: 12,
                robot_config_json: Some(text.into()),
                ..RobotPart::default()
            };
            let whole = RobotPart { robot_config: Some(documents::to_struct(text)), ..part.clone() };
            let meant = GetRobotPartResponse { part: Some(whole), config_json: text.into() };
            let encoded = EncodedPart::new(part);
            let bytes = encoded.encode_to_vec();
            assert_eq!(bytes.len(), encoded.encoded_len());
            assert_eq!(GetRobotPartResponse::decode(&*bytes).unwrap(), meant);
            assert!(!format!("{encoded:?}").contains("hidden"));
        }
    }
}
