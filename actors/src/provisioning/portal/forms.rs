//! What a browser sends when a form is submitted, in both of its encodings. Refuses what it does not understand as a
//! whole: half a form would be a password without its network.

use std::borrow::Cow;

/// Fields of a form; ours has seven.
const FIELDS_MAX: usize = 16;
/// Longest text between the parts of a form (RFC 2046).
const BOUNDARY_BYTES_MAX: usize = 70;

/// The body is no form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Broken;

/// Name and value.
type Field<'a> = (Cow<'a, [u8]>, Cow<'a, [u8]>);

/// Fields by name, in order. May hold a password: no `Debug`.
#[derive(Default)]
pub(super) struct Form<'a> {
    fields: Vec<Field<'a>>,
}

impl<'a> Form<'a> {
    /// Reads a body by its content type.
    pub(super) fn read(content_type: &str, body: &'a [u8]) -> Result<Form<'a>, Broken> {
        let mut parameters = Parameters(content_type.as_bytes());
        let (kind, _) = parameters.next().ok_or(Broken)?;
        if kind.eq_ignore_ascii_case(b"application/x-www-form-urlencoded") {
            return urlencoded(body);
        }
        if kind.eq_ignore_ascii_case(b"multipart/form-data") {
            let boundary = parameters.value(b"boundary").ok_or(Broken)?;
            return multipart(&boundary, body);
        }
        Err(Broken)
    }

    /// The first field of this name.
    pub(super) fn get(&self, name: &str) -> &[u8] {
        let field = self.fields.iter().find(|(field, _)| **field == *name.as_bytes());
        field.map(|(_, value)| &**value).unwrap_or_default()
    }

    /// The same as text; empty when it is none.
    pub(super) fn text(&self, name: &str) -> &str {
        std::str::from_utf8(self.get(name)).unwrap_or_default()
    }

    fn push(&mut self, name: Cow<'a, [u8]>, value: Cow<'a, [u8]>) -> Result<(), Broken> {
        if self.fields.len() >= FIELDS_MAX {
            return Err(Broken);
        }
        self.fields.push((name, value));
        Ok(())
    }
}

fn urlencoded(body: &[u8]) -> Result<Form<'_>, Broken> {
    let mut form = Form::default();
    for pair in body.split(|&byte| byte == b'&').filter(|pair| !pair.is_empty()) {
        let (name, value) = halves(pair, b"=").unwrap_or((pair, &[]));
        form.push(Cow::Owned(unescaped(name)?), Cow::Owned(unescaped(value)?))?;
    }
    Ok(form)
}

fn unescaped(text: &[u8]) -> Result<Vec<u8>, Broken> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, tail @ ..] = rest {
        rest = tail;
        bytes.push(match (first, tail) {
            (b'+', _) => b' ',
            (b'%', [high, low, after @ ..]) => {
                rest = after;
                digit(*high).ok_or(Broken)? << 4 | digit(*low).ok_or(Broken)?
            }
            (b'%', _) => return Err(Broken),
            (plain, _) => *plain,
        });
    }
    Ok(bytes)
}

/// Pairs of hexadecimal digits.
pub(super) fn from_hex(text: &[u8]) -> Option<Vec<u8>> {
    let pairs = text.chunks(2).map(|pair| match pair {
        [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    });
    pairs.collect()
}

fn digit(letter: u8) -> Option<u8> {
    char::from(letter).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

fn multipart<'a>(boundary: &[u8], body: &'a [u8]) -> Result<Form<'a>, Broken> {
    if boundary.is_empty() || boundary.len() > BOUNDARY_BYTES_MAX {
        return Err(Broken);
    }
    let delimiter = [b"\r\n--", boundary].concat();
    let mut form = Form::default();
    // The first one has no line break in front.
    let mut rest = body.strip_prefix(delimiter.get(2..).unwrap_or_default()).ok_or(Broken)?;
    loop {
        if rest.starts_with(b"--") {
            return Ok(form);
        }
        rest = rest.strip_prefix(b"\r\n").ok_or(Broken)?;
        let (head, content) = halves(rest, b"\r\n\r\n").ok_or(Broken)?;
        let (content, after) = halves(content, &delimiter).ok_or(Broken)?;
        rest = after;
        let mut lines = head.split(|&byte| byte == b'\n').filter_map(|line| halves(line, b":"));
        let disposition = lines.find(|(name, _)| name.eq_ignore_ascii_case(b"content-disposition"));
        let (_, disposition) = disposition.ok_or(Broken)?;
        let name = Parameters(disposition.trim_ascii()).value(b"name").ok_or(Broken)?;
        form.push(Cow::Owned(name), Cow::Borrowed(content))?;
    }
}

/// What stands before and behind the first `mark`.
fn halves<'a>(bytes: &'a [u8], mark: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let at = bytes.windows(mark.len()).position(|window| window == mark)?;
    Some((bytes.get(..at)?, bytes.get(at + mark.len()..)?))
}

/// `value; name=value; name="value"` of a header, piece by piece; the first piece has no name.
struct Parameters<'a>(&'a [u8]);

impl Parameters<'_> {
    fn value(&mut self, wanted: &[u8]) -> Option<Vec<u8>> {
        self.find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| value)
    }
}

impl<'a> Iterator for Parameters<'a> {
    type Item = (&'a [u8], Vec<u8>);

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let (mut quoted, mut escaped) = (false, false);
        let ends = |&byte: &u8| {
            match byte {
                _ if escaped => escaped = false,
                b'\\' if quoted => escaped = true,
                b'"' => quoted = !quoted,
                b';' => return !quoted,
                _ => {}
            }
            false
        };
        let end = self.0.iter().position(ends).unwrap_or(self.0.len());
        let (piece, rest) = self.0.split_at_checked(end)?;
        self.0 = rest.strip_prefix(b";").unwrap_or_default();
        let (name, value) = halves(piece, b"=").unwrap_or((piece, &[]));
        let value = value.trim_ascii();
        let inner = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value);
        Some((name.trim_ascii(), inner.iter().copied().filter(|&byte| byte != b'\\').collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(content_type: &str, body: &[u8]) -> Result<String, Broken> {
        let form = Form::read(content_type, body)?;
        let shown = |bytes: &[u8]| bytes.escape_ascii().to_string();
        let fields = form.fields.iter().map(|(name, value)| format!("{}={}", shown(name), shown(value)));
        Ok(fields.collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn encoded_for_a_url() {
        let kind = "application/x-www-form-urlencoded; charset=UTF-8";
        let many = "a=b&".repeat(FIELDS_MAX + 1);
        let table = [
            ("", Ok("")),
            ("a=b&c=d", Ok("a=b c=d")),
            ("a=b+c%26%3d&&x", Ok("a=b c&= x=")),
            ("p=%C3%BC%00%FF", Ok(r"p=\xc3\xbc\x00\xff")),
            ("a=b=c", Ok("a=b=c")),
            ("a=%", Err(Broken)),
            ("a=%4", Err(Broken)),
            ("a=%zz", Err(Broken)),
            (many.as_str(), Err(Broken)),
        ];
        for (body, expected) in table {
            assert_eq!(fields(kind, body.as_bytes()).as_deref(), expected.as_deref(), "{body}");
        }
    }

    #[test]
    fn in_parts() {
        let kind = "Multipart/Form-Data; boundary=\"x y\"";
        let part = |head: &str, content: &str| format!("--x y\r\n{head}\r\n\r\n{content}\r\n");
        let named = |name: &str, content| part(&format!("Content-Disposition: form-data; name=\"{name}\""), content);
        let upload =
            "content-type: text/plain\r\ncontent-disposition: form-data; filename=\"a;name=\\\"b.json\"; name=f";
        let table = [
            (named("a", "1") + &named("b", "") + "--x y--\r\n", Ok("a=1 b=")),
            (named("a", "\r\n--x\r\n--x-y\r\n") + "--x y--", Ok(r"a=\r\n--x\r\n--x-y\r\n")),
            (part(upload, "{}") + "--x y--", Ok("f={}")),
            ("--x y--".into(), Ok("")),
            (String::new(), Err(Broken)),
            ("x".into(), Err(Broken)),
            (named("a", "1"), Err(Broken)),
            (named("a", "1") + "--x y", Err(Broken)),
            (part("Content-Disposition: form-data", "1") + "--x y--", Err(Broken)),
            (part("x: y", "1") + "--x y--", Err(Broken)),
            (named("a", "1").repeat(FIELDS_MAX + 1) + "--x y--", Err(Broken)),
        ];
        for (body, expected) in table {
            assert_eq!(fields(kind, body.as_bytes()).as_deref(), expected.as_deref(), "{body:?}");
        }
        let long = format!("multipart/form-data; boundary={}", "x".repeat(BOUNDARY_BYTES_MAX + 1));
        for kind in ["", "text/plain", "multipart/form-data", "multipart/form-data; boundary=", &long, ";;;=\"\\"] {
            assert_eq!(fields(kind, b"--x--"), Err(Broken), "{kind}");
        }
    }

    #[test]
    fn digits() {
        assert_eq!(from_hex(b"00fFa"), None);
        assert_eq!(from_hex(b"00fF"), Some(vec![0, 0xff]));
        assert_eq!(from_hex(b"0g"), None);
    }
}
