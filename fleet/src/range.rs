//! Parts of files over HTTP: what `Range`, `If-Range` and `If-None-Match` ask for.

use http::{HeaderMap, header};

/// What a `Range` header asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Range {
    /// Everything: no range, or one of a kind we need not understand.
    Whole,
    /// From this byte to that one, both included.
    Part { from: u64, to: u64 },
    /// Beyond the end.
    Impossible,
}

/// One range in bytes. Several ranges, other units and nonsense count as none, as the standard allows.
pub(crate) fn read_range(range: &str, length: u64) -> Range {
    let Some((from, to)) = range.strip_prefix("bytes=").and_then(|spec| spec.trim().split_once('-')) else {
        return Range::Whole;
    };
    let number = |text: &str| match text.bytes().all(|byte| byte.is_ascii_digit()) {
        true => text.parse::<u64>().ok(),
        false => None,
    };
    let (from, to) = match (from, to) {
        ("", last) => match number(last) {
            None => return Range::Whole,
            Some(0) => return Range::Impossible,
            Some(last) => (length.saturating_sub(last), length.saturating_sub(1)),
        },
        (from, "") => match number(from) {
            None => return Range::Whole,
            Some(from) => (from, length.saturating_sub(1)),
        },
        (from, to) => match (number(from), number(to)) {
            (Some(from), Some(to)) if from <= to => (from, to.min(length.saturating_sub(1))),
            _ => return Range::Whole,
        },
    };
    if from >= length { Range::Impossible } else { Range::Part { from, to } }
}

/// Whether a download may be continued: only if what the client has a piece of is what is here.
pub(crate) fn if_range_holds(headers: &HeaderMap, etag: &str) -> bool {
    headers.get(header::IF_RANGE).is_none_or(|validator| validator.as_bytes() == etag.as_bytes())
}

/// Whether one of the tags in a header is this one.
pub(crate) fn names_tag(headers: &HeaderMap, name: header::HeaderName, etag: &str) -> bool {
    let matches = |tag: &str| tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == etag;
    headers
        .get_all(name)
        .iter()
        .filter_map(|tags| tags.to_str().ok())
        .any(|tags| tags.split(',').any(|t| matches(t.trim())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges() {
        let part = |from, to| Range::Part { from, to };
        let table = [
            // header         length  meaning
            ("bytes=0-9", 100, part(0, 9)),
            ("bytes=10-", 100, part(10, 99)),
            ("bytes=-10", 100, part(90, 99)),
            ("bytes=-1000", 100, part(0, 99)),
            ("bytes=90-1000", 100, part(90, 99)),
            ("bytes=99-99", 100, part(99, 99)),
            ("bytes=100-", 100, Range::Impossible),
            ("bytes=-0", 100, Range::Impossible),
            ("bytes=0-", 0, Range::Impossible),
            ("bytes=9-0", 100, Range::Whole),
            ("bytes=0-1,5-6", 100, Range::Whole),
            ("bytes=", 100, Range::Whole),
            ("bytes=+1-", 100, Range::Whole),
            ("bytes=99999999999999999999-", 100, Range::Whole),
            ("lines=0-9", 100, Range::Whole),
        ];
        for (header, length, meaning) in table {
            assert_eq!(read_range(header, length), meaning, "{header}");
        }
    }
}
