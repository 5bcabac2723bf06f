//! Takes a client stream apart while it arrives: bytes in, pieces out. Keeps at most one `info`.
//!
//! A stream is frames (a flag, a length, a message); a message of an upload is a protobuf whose field 1 is a message
//! that says what is coming and whose field 2 is bytes of it, many or few. Other fields are of a newer contract and are
//! passed over. Never allocates what a length merely claims.

use bytes::{Buf, Bytes};

use crate::limits::UPLOAD_INFO_BYTES_MAX;

/// The flag and the length of a frame.
const HEAD_BYTES: usize = 5;
/// Of a number that is written in pieces of seven bits.
const VARINT_BYTES_MAX: u32 = 10;

/// What comes out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// All of field 1, encoded.
    Info(Vec<u8>),
    /// Some of field 2.
    Bytes(Bytes),
}

/// Why a stream cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Wrong {
    #[error("compressed messages are not accepted here: send it plain")]
    Compressed,
    #[error("it is not a stream of upload messages")]
    Malformed,
    #[error("it ends in the middle of a message")]
    CutShort,
    #[error("it says more about the file than is accepted")]
    InfoTooLong,
}

/// Where in the stream we are.
#[derive(Debug)]
pub(super) struct Frames {
    state: State,
    /// Bytes of the present message that have not been looked at.
    left: usize,
}

#[derive(Debug)]
enum State {
    Head { bytes: [u8; HEAD_BYTES], have: usize },
    Tag(Varint),
    Length(u64, Varint),
    PassVarint(Varint),
    Pass(usize),
    Info { bytes: Vec<u8>, left: usize },
    Bytes { left: usize },
}

#[derive(Debug, Default)]
struct Varint {
    value: u64,
    bytes: u32,
}

impl Varint {
    /// The number, with its last byte.
    fn with(&mut self, byte: u8) -> Result<Option<u64>, Wrong> {
        let part = u64::from(byte & 0x7f).checked_shl(self.bytes * 7).unwrap_or(0);
        self.value |= part;
        self.bytes += 1;
        match byte & 0x80 == 0 {
            true => Ok(Some(self.value)),
            false if self.bytes >= VARINT_BYTES_MAX => Err(Wrong::Malformed),
            false => Ok(None),
        }
    }
}

const HEAD: State = State::Head { bytes: [0; HEAD_BYTES], have: 0 };

impl Default for Frames {
    fn default() -> Self {
        Self { state: HEAD, left: 0 }
    }
}

impl Frames {
    /// The next piece from what has arrived; nothing, and `from` is empty, when more is needed.
    pub(super) fn next(&mut self, from: &mut Bytes) -> Result<Option<Piece>, Wrong> {
        while !from.is_empty() {
            match &mut self.state {
                State::Head { bytes, have } => {
                    let end = (*have + from.len()).min(HEAD_BYTES);
                    if let Some(place) = bytes.get_mut(*have..end) {
                        from.copy_to_slice(place);
                    }
                    *have = end;
                    if end == HEAD_BYTES {
                        let [flag, length @ ..] = *bytes;
                        match flag {
                            0 => {}
                            1 => return Err(Wrong::Compressed),
                            _ => return Err(Wrong::Malformed),
                        }
                        self.left = usize::try_from(u32::from_be_bytes(length)).map_err(|_| Wrong::Malformed)?;
                        self.between_fields();
                    }
                }
                State::Tag(_) | State::Length(..) | State::PassVarint(_) => {
                    let byte = from.get_u8();
                    self.left = self.left.checked_sub(1).ok_or(Wrong::Malformed)?;
                    if let Some(piece) = self.byte(byte)? {
                        return Ok(Some(piece));
                    }
                }
                State::Pass(left) => {
                    let some = (*left).min(from.len());
                    from.advance(some);
                    *left -= some;
                    self.left -= some;
                    if *left == 0 {
                        self.between_fields();
                    }
                }
                State::Info { bytes, left } => {
                    let some = (*left).min(from.len());
                    bytes.extend_from_slice(&from.split_to(some));
                    *left -= some;
                    self.left -= some;
                    if *left == 0 {
                        let info = std::mem::take(bytes);
                        self.between_fields();
                        return Ok(Some(Piece::Info(info)));
                    }
                }
                State::Bytes { left } => {
                    let some = from.split_to((*left).min(from.len()));
                    *left -= some.len();
                    self.left -= some.len();
                    if *left == 0 {
                        self.between_fields();
                    }
                    return Ok(Some(Piece::Bytes(some)));
                }
            }
        }
        Ok(None)
    }

    /// Whether a stream may end here.
    pub(super) fn finish(&self) -> Result<(), Wrong> {
        match self.state {
            State::Head { have: 0, .. } => Ok(()),
            _ => Err(Wrong::CutShort),
        }
    }

    fn between_fields(&mut self) {
        self.state = if self.left == 0 { HEAD } else { State::Tag(Varint::default()) };
    }

    /// One byte of a number. A message that ends within one is malformed.
    fn byte(&mut self, byte: u8) -> Result<Option<Piece>, Wrong> {
        let left = self.left;
        let number = match &mut self.state {
            State::Tag(number) | State::Length(_, number) | State::PassVarint(number) => number.with(byte)?,
            _ => None,
        };
        let Some(number) = number else {
            return if left == 0 { Err(Wrong::Malformed) } else { Ok(None) };
        };
        match self.state {
            State::Tag(_) => {
                let (field, kind) = (number >> 3, number & 7);
                self.state = match kind {
                    _ if field == 0 => return Err(Wrong::Malformed),
                    0 => State::PassVarint(Varint::default()),
                    1 => State::Pass(8),
                    2 => State::Length(field, Varint::default()),
                    5 => State::Pass(4),
                    _ => return Err(Wrong::Malformed),
                };
                let passed = if let State::Pass(bytes) = self.state { bytes } else { 1 };
                if left < passed { Err(Wrong::Malformed) } else { Ok(None) }
            }
            State::Length(field, _) => {
                let length = usize::try_from(number).ok().filter(|length| *length <= left).ok_or(Wrong::Malformed)?;
                match (field, length) {
                    (1, length) if length > UPLOAD_INFO_BYTES_MAX => return Err(Wrong::InfoTooLong),
                    (1, 0) => {
                        self.between_fields();
                        return Ok(Some(Piece::Info(Vec::new())));
                    }
                    (1, left) => self.state = State::Info { bytes: Vec::with_capacity(left), left },
                    (_, 0) => self.between_fields(),
                    (2, left) => self.state = State::Bytes { left },
                    (_, left) => self.state = State::Pass(left),
                }
                Ok(None)
            }
            _ => {
                self.between_fields();
                Ok(None)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use api::pb::platform::app::v1::{ModuleFileInfo, UploadModuleFileRequest, upload_module_file_request::ModuleFile};
    use prost::Message;

    use super::*;

    fn framed(message: &[u8]) -> Vec<u8> {
        let length = u32::try_from(message.len()).unwrap().to_be_bytes();
        [&[0], &length[..], message].concat()
    }

    fn info(id: &str) -> ModuleFileInfo {
        ModuleFileInfo { module_id: id.into(), version: "1.0.0".into(), ..Default::default() }
    }

    fn message(part: ModuleFile) -> Vec<u8> {
        framed(&UploadModuleFileRequest { module_file: Some(part) }.encode_to_vec())
    }

    /// What a stream says, however it was cut: (info, bytes).
    fn read(stream: &[u8], cut: usize) -> Result<(Vec<Vec<u8>>, Vec<u8>), Wrong> {
        let (mut frames, mut infos, mut all) = (Frames::default(), Vec::new(), Vec::new());
        for chunk in stream.chunks(cut) {
            let mut chunk = Bytes::copy_from_slice(chunk);
            while let Some(piece) = frames.next(&mut chunk)? {
                match piece {
                    Piece::Info(info) => infos.push(info),
                    Piece::Bytes(bytes) => all.extend(bytes),
                }
            }
            assert!(chunk.is_empty());
        }
        frames.finish()?;
        Ok((infos, all))
    }

    #[test]
    fn the_same_whatever_the_pieces_are() {
        let bytes: Vec<u8> = (0..1000_u32).map(|n| n as u8).collect();
        let file = |bytes: &[u8]| message(ModuleFile::File(bytes.to_vec().into()));
        let whole = [message(ModuleFile::ModuleFileInfo(info("acme:x"))), file(&bytes)].concat();
        let (first, second) = bytes.split_at(300);
        let parts = [
            message(ModuleFile::ModuleFileInfo(info("acme:x"))),
            file(first),
            framed(&[]),
            file(&[]),
            // Fields that this contract does not know: a number, eight bytes, a text, four bytes.
            framed(
                &[&[0x18, 0xff, 0x01][..], &[0x21, 0, 0, 0, 0, 0, 0, 0, 0], &[0x2a, 2, 9, 9], &[0x35, 1, 2, 3, 4]]
                    .concat(),
            ),
            file(second),
        ]
        .concat();
        for stream in [whole, parts] {
            for cut in [1, 2, 3, 5, 7, 64, 999, 100_000] {
                let (infos, all) = read(&stream, cut).unwrap();
                assert_eq!(infos, [info("acme:x").encode_to_vec()], "cut {cut}");
                assert_eq!(all, bytes, "cut {cut}");
            }
        }
    }

    #[test]
    fn what_is_no_upload_is_refused() {
        let long = message(ModuleFile::ModuleFileInfo(info(&"x".repeat(UPLOAD_INFO_BYTES_MAX))));
        let whole = message(ModuleFile::File(Bytes::from_static(b"abc")));
        let table: [(&str, &[u8], Wrong); 12] = [
            ("compressed", &[1, 0, 0, 0, 1, 0], Wrong::Compressed),
            ("a trailer", &[0x80, 0, 0, 0, 1, 0], Wrong::Malformed),
            ("not a frame", b"GET / HTTP/1.1", Wrong::Malformed),
            ("half a head", &[0, 0, 0], Wrong::CutShort),
            ("half a message", &whole[..whole.len() - 1], Wrong::CutShort),
            ("field 0", &framed(&[0x02, 1, 1]), Wrong::Malformed),
            ("a group", &framed(&[0x0b, 0x0c]), Wrong::Malformed),
            ("longer than its message", &framed(&[0x12, 4, 1, 2, 3]), Wrong::Malformed),
            ("ends in a tag", &framed(&[0x80]), Wrong::Malformed),
            ("ends before its value", &framed(&[0x12]), Wrong::Malformed),
            ("a number without an end", &framed(&[0x18; 30].map(|_| 0xff)), Wrong::Malformed),
            ("too much about it", &long, Wrong::InfoTooLong),
        ];
        for (case, stream, wrong) in table {
            for cut in [1, 4, 100_000] {
                assert_eq!(read(stream, cut), Err(wrong), "{case}, cut {cut}");
            }
        }
    }

    #[test]
    fn a_length_alone_costs_nothing() {
        let mut claim = Bytes::from_static(&[0, 0xff, 0xff, 0xff, 0xff, 0x12, 0xf0, 0xff, 0xff, 0xff, 0x0f, 1]);
        let mut frames = Frames::default();
        assert_eq!(frames.next(&mut claim), Ok(Some(Piece::Bytes(Bytes::from_static(&[1])))));
    }
}
