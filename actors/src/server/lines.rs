//! The machine server's output as log lines.
//!
//! A line of standard output may say its own time, level, logger and place, separated by tabs:
//!
//! ```text
//! 2026-01-02T03:04:05.678Z ⇥ INFO ⇥ motor.left ⇥ motor/driver.go:42 ⇥ the text, with further tabs
//! ```
//!
//! Logger or place may be left out. Every other line of standard output is information, every other line of standard
//! error a warning. Pieces of output are cut anywhere; lines longer than [`TEXT_BYTES_MAX`] are split, never cut, and
//! never inside a character. docs/machine-server.md is the page for people.

use api::brand;
use board::{Wall, process::Stream};

use crate::logs::line::{Level, Line, TEXT_BYTES_MAX};

/// What is kept of a line until it ends or is split: its text and room for its head.
const HELD_BYTES_MAX: usize = TEXT_BYTES_MAX + HEAD_BYTES_MAX;
/// Time, level, logger and place together; a longer head is taken for text.
const HEAD_BYTES_MAX: usize = 256;
/// Longest names that are taken for a logger or a place, in bytes.
const NAME_BYTES_MAX: usize = 96;

/// One stream of output, cut into lines.
pub struct Lines {
    stream: Stream,
    held: Vec<u8>,
    /// The head of the line whose first part was given away already.
    continued: Option<Head>,
}

/// What a line says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Head {
    at: Option<Wall>,
    level: Level,
    logger: Option<String>,
    file: String,
    line: u32,
}

impl Lines {
    /// Nothing has been said yet.
    #[must_use]
    pub fn new(stream: Stream) -> Self {
        Lines { stream, held: Vec::new(), continued: None }
    }

    /// Takes the next piece and gives away the lines it completes. `now` is the time of lines that say none.
    pub fn feed(&mut self, piece: &[u8], now: Wall, mut give: impl FnMut(Line)) {
        let mut rest = piece;
        while !rest.is_empty() {
            let limit = if self.continued.is_some() { TEXT_BYTES_MAX } else { HELD_BYTES_MAX };
            let room = limit.saturating_sub(self.held.len());
            let near = rest.get(..rest.len().min(room)).unwrap_or_default();
            match near.iter().position(|&byte| byte == b'\n') {
                Some(end) => {
                    self.held.extend(near.get(..end).unwrap_or_default());
                    rest = rest.get(end + 1..).unwrap_or_default();
                    self.end_of_line(now, &mut give);
                }
                None => {
                    self.held.extend(near);
                    rest = rest.get(near.len()..).unwrap_or_default();
                    if self.held.len() >= limit {
                        self.split(now, &mut give);
                    }
                }
            }
        }
    }

    /// Gives away a last line without an end: whoever was speaking is gone.
    pub fn flush(&mut self, now: Wall, mut give: impl FnMut(Line)) {
        self.end_of_line(now, &mut give);
        self.held = Vec::new();
    }

    fn end_of_line(&mut self, now: Wall, give: &mut impl FnMut(Line)) {
        if self.held.last() == Some(&b'\r') {
            self.held.pop();
        }
        self.give_held(now, give);
        self.held.clear();
    }

    /// Gives away the first part of a line that is too long to be held.
    fn split(&mut self, now: Wall, give: &mut impl FnMut(Line)) {
        // The last few bytes may be the beginning of a character; they stay.
        let whole = match std::str::from_utf8(&self.held) {
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            _ => self.held.len(),
        };
        let kept = self.held.split_off(whole);
        self.continued = Some(self.give_held(now, give));
        self.held = kept;
    }

    /// Gives away what is held, and says with which head.
    fn give_held(&mut self, now: Wall, give: &mut impl FnMut(Line)) -> Head {
        let text = String::from_utf8_lossy(&self.held);
        let (head, text) = match self.continued.take() {
            Some(head) => (head, &*text),
            None => self.head(&text),
        };
        let mut rest = text;
        while !rest.is_empty() {
            let (part, after) = rest.split_at(floor(rest, TEXT_BYTES_MAX));
            give(head.line(part, now));
            rest = after;
        }
        head
    }

    fn head<'a>(&self, line: &'a str) -> (Head, &'a str) {
        if let Some(found) = Head::read(line) {
            return found;
        }
        let level = match self.stream {
            Stream::Out => Level::Info,
            Stream::Err => Level::Warn,
        };
        (Head { at: None, level, logger: None, file: String::new(), line: 0 }, line)
    }
}

impl Head {
    /// The head of a line, and the text behind it.
    fn read(line: &str) -> Option<(Head, &str)> {
        let (time, rest) = line.split_once('\t')?;
        let at = time_of(time)?;
        let (word, rest) = rest.split_once('\t')?;
        let level = level_of(word)?;
        let mut head = Head { at: Some(at), level, logger: None, file: String::new(), line: 0 };
        let mut text = rest;
        // Logger, then place, each at most once; the first field that is neither begins the text.
        if let Some((field, after)) = text.split_once('\t')
            && place_of(field).is_none()
            && is_name(field)
        {
            head.logger = (!field.is_empty()).then(|| field.to_owned());
            text = after;
        }
        if let Some((field, after)) = text.split_once('\t')
            && let Some((file, number)) = place_of(field)
        {
            (head.file, head.line) = (file.to_owned(), number);
            text = after;
        }
        (line.len() - text.len() <= HEAD_BYTES_MAX).then_some((head, text))
    }

    fn line(&self, text: &str, now: Wall) -> Line {
        Line {
            at: self.at.unwrap_or(now),
            level: self.level,
            logger: self.logger.clone().unwrap_or_else(|| brand::MACHINE_SERVER.to_owned()),
            file: self.file.clone(),
            line: self.line,
            text: text.to_owned(),
        }
    }
}

fn level_of(word: &str) -> Option<Level> {
    let is = |names: &[&str]| names.iter().any(|name| word.eq_ignore_ascii_case(name));
    if is(&["debug", "trace"]) {
        Some(Level::Debug)
    } else if is(&["info"]) {
        Some(Level::Info)
    } else if is(&["warn", "warning"]) {
        Some(Level::Warn)
    } else if is(&["error", "dpanic", "panic", "fatal"]) {
        Some(Level::Error)
    } else {
        None
    }
}

fn is_name(field: &str) -> bool {
    field.len() <= NAME_BYTES_MAX && !field.contains(char::is_whitespace)
}

/// `file:line`.
fn place_of(field: &str) -> Option<(&str, u32)> {
    let (file, number) = field.rsplit_once(':')?;
    (!file.is_empty() && is_name(file)).then_some((file, number.parse().ok()?))
}

/// An RFC 3339 time, or the same with a zone without colon as some loggers write it.
fn time_of(text: &str) -> Option<Wall> {
    let (date, clock) = text.split_once(['T', ' '])?;
    let mut date = date.splitn(3, '-').map(number::<i64>);
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    ((1..=9999).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day)).then_some(())?;
    let zone_at = clock.find(['Z', 'z', '+', '-'])?;
    let (clock, zone) = clock.split_at(zone_at);
    let (whole, fraction) = clock.split_once(['.', ',']).unwrap_or((clock, "0"));
    let mut clock = whole.splitn(3, ':').map(number::<i64>);
    let (hour, minute, second) = (clock.next()??, clock.next()??, clock.next()??);
    (hour < 24 && minute < 60 && second <= 60 && fraction.bytes().all(|byte| byte.is_ascii_digit())).then_some(())?;
    let millis: i64 = format!("{fraction:0<3}").get(..3)?.parse().ok()?;
    let offset_minutes = match zone.split_at_checked(1)? {
        ("Z" | "z", "") => 0,
        (sign, zone) => {
            let (hours, minutes) = zone.split_once(':').or_else(|| zone.split_at_checked(2))?;
            let minutes = number::<i64>(hours)? * 60 + number::<i64>(minutes)?;
            if sign == "-" { -minutes } else { minutes }
        }
    };
    let seconds = (days_since_1970(year, month, day) * 24 + hour) * 3600 + (minute - offset_minutes) * 60 + second;
    Some(Wall::from_millis(seconds * 1000 + millis))
}

fn number<N: std::str::FromStr>(text: &str) -> Option<N> {
    (!text.is_empty() && text.len() <= 4 && text.bytes().all(|byte| byte.is_ascii_digit())).then_some(())?;
    text.parse().ok()
}

/// Days from 1970-01-01, by Howard Hinnant's `days_from_civil`: the year begins in March, so that the leap day is last.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// The largest character boundary not after `at`, and never 0: a character is shorter than any limit here.
fn floor(text: &str, at: usize) -> usize {
    (1..=at.min(text.len())).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Wall = Wall::from_millis(5);

    fn lines(stream: Stream, pieces: &[&[u8]]) -> Vec<Line> {
        let (mut lines, mut given) = (Lines::new(stream), Vec::new());
        for piece in pieces {
            lines.feed(piece, NOW, |line| given.push(line));
        }
        lines.flush(NOW, |line| given.push(line));
        given
    }

    fn plain(level: Level, text: &str) -> Line {
        Line { at: NOW, level, logger: brand::MACHINE_SERVER.into(), file: String::new(), line: 0, text: text.into() }
    }

    #[test]
    fn heads_are_read_and_everything_else_is_text() {
        let at = Wall::from_millis(1_767_323_045_678);
        let said = |level, logger: &str, file: &str, line, text: &str| Line {
            at,
            level,
            logger: logger.into(),
            file: file.into(),
            line,
            text: text.into(),
        };
        let table = [
            (
                "2026-01-02T03:04:05.678Z\tINFO\tmotor\tmotor/driver.go:42\tturning\t{\"rpm\":3}",
                said(Level::Info, "motor", "motor/driver.go", 42, "turning\t{\"rpm\":3}"),
            ),
            ("2026-01-02T04:04:05.678+0100\twarn\tmotor\tslow", said(Level::Warn, "motor", "", 0, "slow")),
            (
                "2026-01-01T22:04:05.678901-05:00\tFATAL\ta.go:1\tgone",
                said(Level::Error, brand::MACHINE_SERVER, "a.go", 1, "gone"),
            ),
            (
                "2026-01-02T03:04:05.678Z\tDEBUG\t\ta.go:1\tno logger",
                said(Level::Debug, brand::MACHINE_SERVER, "a.go", 1, "no logger"),
            ),
            (
                "2026-01-02T03:04:05.678Z\tERROR\tonly text",
                said(Level::Error, brand::MACHINE_SERVER, "", 0, "only text"),
            ),
            (
                "2026-01-02T03:04:05.678Z\tINFO\ta sentence\twith a tab",
                said(Level::Info, brand::MACHINE_SERVER, "", 0, "a sentence\twith a tab"),
            ),
        ];
        for (text, line) in table {
            assert_eq!(lines(Stream::Out, &[text.as_bytes(), b"\n"]), [line], "{text}");
        }
        for text in [
            "hello",
            "INFO\thello",
            "2026-01-02T03:04:05Z hello",
            "2026-01-02T03:04:05Z\tLOUD\thello",
            "2026-13-02T03:04:05Z\tINFO\thello",
            "2026-01-02T25:04:05Z\tINFO\thello",
            "2026-01-02T03:04:05\tINFO\thello",
        ] {
            assert_eq!(lines(Stream::Out, &[text.as_bytes()]), [plain(Level::Info, text)], "{text}");
            assert_eq!(lines(Stream::Err, &[text.as_bytes()]), [plain(Level::Warn, text)], "{text}");
        }
    }

    #[test]
    fn lines_do_not_depend_on_where_pieces_are_cut() {
        let text = "2026-01-02T03:04:05.678Z\tWARN\tmotor\ta.go:1\tgrüße\r\n\n\nplain 🤖\nno end".as_bytes();
        let whole = lines(Stream::Out, &[text]);
        assert_eq!(whole.iter().map(|line| line.text.as_str()).collect::<Vec<_>>(), ["grüße", "plain 🤖", "no end"]);
        for cut in 0..text.len() {
            let (first, second) = text.split_at(cut);
            assert_eq!(lines(Stream::Out, &[first, second]), whole, "cut at {cut}");
        }
        let bytes: Vec<&[u8]> = text.chunks(1).collect();
        assert_eq!(lines(Stream::Out, &bytes), whole);
    }

    #[test]
    fn long_lines_are_split_without_losing_a_character() {
        for (head, logger) in
            [("", brand::MACHINE_SERVER), ("2026-01-02T03:04:05.678Z\tWARN\tmotor\ta.go:1\t", "motor")]
        {
            for length in [1023, 1024, 1025, 1279, 1280, 1281, 2048, 5000, 100_000] {
                for character in ["x", "ü", "€", "🤖"] {
                    let text = character.repeat(length / character.len() + 1);
                    let line = format!("{head}{text}\nafter\n");
                    let pieces: Vec<&[u8]> = line.as_bytes().chunks(777).collect();
                    let given = lines(Stream::Out, &pieces);
                    let (after, parts) = given.split_last().unwrap();
                    assert_eq!(after, &plain(Level::Info, "after"));
                    assert!(parts.iter().all(|part| part.text.len() <= TEXT_BYTES_MAX && part.logger == logger));
                    assert_eq!(parts.iter().map(|part| part.text.as_str()).collect::<String>(), text);
                }
            }
        }
    }

    #[test]
    fn bytes_that_are_no_text_do_no_harm() {
        let given = lines(Stream::Err, &[b"a\xffb\n", &[0xff; 10_000], b"\n", b"\xf0\x9f", b"\x98"]);
        assert_eq!(given.first(), Some(&plain(Level::Warn, "a\u{fffd}b")));
        assert!(given.iter().all(|line| line.text.len() <= TEXT_BYTES_MAX));
        let replaced: usize = given.iter().map(|line| line.text.matches('\u{fffd}').count()).sum();
        assert_eq!(replaced, 10_002);
    }

    #[test]
    fn dates_are_the_calendar_s() {
        let table = [
            ("1970-01-01T00:00:00Z", 0),
            ("2000-02-29T12:00:00Z", 951_825_600_000),
            ("2100-03-01T00:00:00Z", 4_107_542_400_000),
            ("1969-12-31T23:59:59.999Z", -1),
            ("2016-12-31T23:59:60Z", 1_483_228_800_000),
        ];
        for (text, millis) in table {
            assert_eq!(time_of(text), Some(Wall::from_millis(millis)), "{text}");
        }
    }
}
