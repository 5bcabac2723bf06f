//! A part as an answer, with the Struct form of the configuration encoded from its text.
//!
//! People's programs ask for parts most, and change them most. Such an answer tells one configuration two or three times:
//! the Struct is never built (`encoded_struct`), and everything is written once, into the bytes that go out.

use api::pb::platform::app::v1::{GetRobotPartResponse, RobotPart, UpdateRobotPartResponse};
use prost::{Message as _, bytes::BufMut as _};

use crate::{
    encoded_struct,
    written::{Written, begin_field, field_len},
};

/// Field numbers of the contract: `part` of either answer, GetRobotPartResponse.config_json, RobotPart.robot_config.
const PART: u32 = 1;
const CONFIG_JSON: u32 = 2;
const ROBOT_CONFIG: u32 = 5;

/// Of a part with `robot_config_json` and without `robot_config`.
pub(super) fn got(part: &RobotPart) -> Written<GetRobotPartResponse> {
    answer(part, text(part)).into()
}

/// The same for who changed it.
pub(super) fn updated(part: &RobotPart) -> Written<UpdateRobotPartResponse> {
    answer(part, "").into()
}

fn text(part: &RobotPart) -> &str {
    part.robot_config_json.as_deref().unwrap_or_default()
}

fn answer(part: &RobotPart, config_json: &str) -> bytes::Bytes {
    let config = encoded_struct::of_text(text(part));
    let inner = part.encoded_len() + field_len(ROBOT_CONFIG, config.len());
    let mut out = Vec::with_capacity(field_len(PART, inner) + field_len(CONFIG_JSON, config_json.len()));
    begin_field(PART, inner, &mut out);
    part.encode_raw(&mut out);
    begin_field(ROBOT_CONFIG, config.len(), &mut out);
    out.put_slice(&config);
    if !config_json.is_empty() {
        begin_field(CONFIG_JSON, config_json.len(), &mut out);
        out.put_slice(config_json.as_bytes());
    }
    out.into()
}

#[cfg(test)]
mod tests {
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
            let meant = GetRobotPartResponse { part: Some(whole.clone()), config_json: text.into() };
            assert_eq!(GetRobotPartResponse::decode(&*got(&part).encode_to_vec()).unwrap(), meant);
            let meant = UpdateRobotPartResponse { part: Some(whole) };
            assert_eq!(UpdateRobotPartResponse::decode(&*updated(&part).encode_to_vec()).unwrap(), meant);
        }
    }
}
