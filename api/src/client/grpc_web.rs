//! The framing of gRPC-Web: five bytes in front of every message, and the status as a last frame.
//!
//! Reads frame by frame, so that a long stream never lies in memory, and believes no length before the bytes are there.
//! Knows nothing of connections, tokens or time.

use std::io::{self, Read};

use super::error::{Code, Status};

/// The content type of a request, and the beginning of an answer's.
pub(super) const CONTENT_TYPE: &str = "application/grpc-web+proto";
/// Flag and length.
const HEADER_BYTES: usize = 5;
/// Marks the frame that carries the status.
const TRAILER: u8 = 0x80;
/// Marks a compressed message; never asked for, so never accepted.
const COMPRESSED: u8 = 0x01;
/// A status with its details; servers keep this well below what HTTP headers may have.
const TRAILER_BYTES_MAX: u64 = 64 * 1024;
/// First allocation for a message: a lying length costs this much, not what it claims.
const FIRST_STEP: usize = 8 * 1024;

/// What an answer consists of.
#[derive(Debug)]
pub(super) enum Frame {
    Message(Vec<u8>),
    /// The status ends the answer.
    Status(Status),
}

/// Why an answer could not be read.
#[derive(Debug)]
pub(super) enum FrameError {
    TooLarge { size: u64, limit: u64 },
    Damaged(&'static str),
    Io(io::Error),
}

/// Takes frames off a body.
pub(super) struct Frames<R> {
    body: R,
    message_bytes_max: u64,
}

impl<R: Read> Frames<R> {
    pub(super) fn new(body: R, message_bytes_max: u64) -> Self {
        Self { body, message_bytes_max }
    }

    /// The next frame. The end of the body is not a frame: an answer without a status was cut.
    pub(super) fn next(&mut self) -> Result<Frame, FrameError> {
        let mut header = [0; HEADER_BYTES];
        self.read_header(&mut header)?;
        let [flag, a, b, c, d] = header;
        let size = u64::from(u32::from_be_bytes([a, b, c, d]));
        if flag & COMPRESSED != 0 {
            return Err(FrameError::Damaged("it is compressed, which was not asked for"));
        }
        let is_status = flag & TRAILER != 0;
        let limit = if is_status { TRAILER_BYTES_MAX } else { self.message_bytes_max };
        if size > limit {
            return Err(FrameError::TooLarge { size, limit });
        }
        let mut content = Vec::with_capacity(usize::try_from(size).unwrap_or(FIRST_STEP).min(FIRST_STEP));
        let read = self.body.by_ref().take(size).read_to_end(&mut content).map_err(cut)?;
        if u64::try_from(read).unwrap_or(u64::MAX) < size {
            return Err(FrameError::Damaged("it ends in the middle of a message"));
        }
        if is_status {
            let status = status_of_trailers(&content).ok_or(FrameError::Damaged("its last frame has no status"))?;
            return Ok(Frame::Status(status));
        }
        Ok(Frame::Message(content))
    }

    /// Reads past the last frame to the end of the body, without which a connection cannot be used again.
    pub(super) fn finish(&mut self) {
        // One byte: more behind the status is none of ours, and then the connection is rightly not kept.
        let _ = self.body.read(&mut [0]);
    }

    fn read_header(&mut self, header: &mut [u8; HEADER_BYTES]) -> Result<(), FrameError> {
        let mut filled = 0;
        while let Some(rest) = header.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match self.body.read(rest) {
                Ok(0) if filled == 0 => return Err(FrameError::Damaged("it ends without a status")),
                Ok(0) => return Err(FrameError::Damaged("it ends in the middle of a frame")),
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(cut(error)),
            }
        }
        Ok(())
    }
}

fn cut(error: io::Error) -> FrameError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => FrameError::Damaged("the connection ended in the middle of it"),
        _ => FrameError::Io(error),
    }
}

/// One message with its five bytes in front.
pub(super) fn framed(message: &impl prost::Message) -> io::Result<Vec<u8>> {
    let size = message.encoded_len();
    let announced = u32::try_from(size).map_err(|_| io::Error::other("a message cannot be longer than 4 GiB"))?;
    let mut frame = Vec::with_capacity(HEADER_BYTES.saturating_add(size));
    frame.push(0);
    frame.extend_from_slice(&announced.to_be_bytes());
    message.encode(&mut frame).map_err(io::Error::other)?;
    Ok(frame)
}

/// The status from names and values, wherever they stood: headers of a bodiless answer, or the last frame.
pub(super) fn status_of<'a>(mut value: impl FnMut(&str) -> Option<&'a [u8]>) -> Option<Status> {
    let number = std::str::from_utf8(value("grpc-status")?).ok()?.trim().parse().ok()?;
    let message = value("grpc-message").map(percent_decoded).unwrap_or_default();
    let status = Status::new(Code::from_number(number), message);
    Some(match value("grpc-status-details-bin").and_then(from_base64) {
        Some(details) => status.with_details(&details),
        None => status,
    })
}

fn status_of_trailers(block: &[u8]) -> Option<Status> {
    status_of(|wanted| {
        block.split(|byte| *byte == b'\n').find_map(|line| {
            let colon = line.iter().position(|byte| *byte == b':')?;
            let (name, value) = line.split_at_checked(colon)?;
            name.trim_ascii()
                .eq_ignore_ascii_case(wanted.as_bytes())
                .then(|| value.get(1..).unwrap_or_default().trim_ascii())
        })
    })
}

/// Undoes the percent-encoding of `grpc-message`; what is not valid stays as it is, because half a message is better
/// than none.
fn percent_decoded(text: &[u8]) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, tail @ ..] = rest {
        match rest {
            [b'%', high, low, after @ ..] => match (hex(*high), hex(*low)) {
                (Some(high), Some(low)) => {
                    bytes.push(high << 4 | low);
                    rest = after;
                }
                _ => {
                    bytes.push(b'%');
                    rest = tail;
                }
            },
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

/// Standard alphabet, with or without padding: gRPC allows both.
fn from_base64(text: &[u8]) -> Option<Vec<u8>> {
    let text = text.trim_ascii();
    let unpadded = text.strip_suffix(b"==").or_else(|| text.strip_suffix(b"=")).unwrap_or(text);
    let mut bytes = Vec::with_capacity(unpadded.len() / 4 * 3);
    let (mut bits, mut count) = (0_u32, 0);
    for digit in unpadded {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push(u8::try_from(bits >> count & 0xff).ok()?);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(flag: u8, content: &[u8]) -> Vec<u8> {
        let mut bytes = vec![flag];
        bytes.extend_from_slice(&u32::try_from(content.len()).unwrap().to_be_bytes());
        bytes.extend_from_slice(content);
        bytes
    }

    #[test]
    fn messages_then_status() {
        let body =
            [frame(0, b"one"), frame(0, b""), frame(0x80, b"Grpc-Status: 5\r\ngrpc-message: no%20such%0Athing\r\n")]
                .concat();
        let mut frames = Frames::new(&body[..], 16);
        assert!(matches!(frames.next(), Ok(Frame::Message(m)) if m == b"one"));
        assert!(matches!(frames.next(), Ok(Frame::Message(m)) if m.is_empty()));
        let Ok(Frame::Status(status)) = frames.next() else { panic!("no status") };
        assert_eq!(status, Status::new(Code::NotFound, "no such\nthing"));
    }

    #[test]
    fn damaged_bodies() {
        let table: [(&str, Vec<u8>, &str); 7] = [
            ("nothing", vec![], "Damaged(\"it ends without a status\")"),
            ("half a header", vec![0, 0], "Damaged(\"it ends in the middle of a frame\")"),
            ("half a message", vec![0, 0, 0, 0, 9, 1, 2], "Damaged(\"it ends in the middle of a message\")"),
            ("compressed", frame(1, b"x"), "Damaged(\"it is compressed, which was not asked for\")"),
            ("too large", frame(0, &[0; 17]), "TooLarge { size: 17, limit: 16 }"),
            ("4 GiB announced", vec![0, 255, 255, 255, 255], "TooLarge { size: 4294967295, limit: 16 }"),
            ("status without number", frame(0x80, b"grpc-status: x\r\n"), "Damaged(\"its last frame has no status\")"),
        ];
        for (case, body, expected) in table {
            let error = Frames::new(&body[..], 16).next().expect_err(case);
            assert_eq!(format!("{error:?}"), expected, "{case}");
        }
    }

    #[test]
    fn percent_decoding() {
        let table = [
            ("plain", "plain"),
            ("%41%zz%4", "A%zz%4"),
            ("100%", "100%"),
            ("%C3%BC", "ü"),
            ("%ff", "\u{fffd}"),
            ("", ""),
        ];
        for (encoded, decoded) in table {
            assert_eq!(percent_decoded(encoded.as_bytes()), decoded, "{encoded}");
        }
    }

    #[test]
    fn base64() {
        let table: [(&str, Option<&[u8]>); 7] = [
            ("", Some(b"")),
            ("Zg==", Some(b"f")),
            ("Zg", Some(b"f")),
            ("Zm8=", Some(b"fo")),
            ("Zm9v", Some(b"foo")),
            ("_-8", Some(b"\xff\xef")),
            ("Zm 9v", None),
        ];
        for (encoded, decoded) in table {
            assert_eq!(from_base64(encoded.as_bytes()).as_deref(), decoded, "{encoded}");
        }
    }

    #[test]
    fn details_are_kept_and_bad_ones_do_not_spoil_the_status() {
        // code 5, message "m", one Any {type_url "t", value "v"}
        let good = b"grpc-status: 5\r\ngrpc-message: m\r\ngrpc-status-details-bin: CAUSAW0aBgoBdBIBdg\r\n";
        let status = status_of_trailers(good).unwrap();
        assert_eq!(status.details, [prost_types::Any { type_url: "t".into(), value: b"v".to_vec() }]);
        let bad = b"grpc-status: 5\r\ngrpc-status-details-bin: !!!\r\n";
        assert_eq!(status_of_trailers(bad), Some(Status::new(Code::NotFound, "")));
    }
}
