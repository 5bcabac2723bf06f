//! Which words on standard output mean that the machine server serves.
//!
//! A line with the word `serving`, followed by a JSON object with `url` or `alt_url`, or directly by an address. Fed
//! with pieces as they come: the line may be cut anywhere. The other way to be ready, a status address that answers, is
//! no business of this parser.

use api::json::{self, Limits};

/// Longest line that is looked at, in bytes; what is longer announces nothing.
const LINE_BYTES_MAX: usize = 4096;
/// Longest address that is believed, in bytes.
pub const URL_BYTES_MAX: usize = 128;
const WORD: &str = "serving";

/// Where the machine server says it serves: never empty, at most two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Serving {
    /// The better address first, without a slash at the end.
    pub urls: Vec<String>,
}

/// Looks at standard output.
#[derive(Debug, Default)]
pub struct Readiness {
    line: Vec<u8>,
    /// The present line is too long, and passed over.
    passing: bool,
}

impl Readiness {
    /// Takes the next piece; returns the last announcement that was completed by it.
    pub fn feed(&mut self, piece: &[u8]) -> Option<Serving> {
        let mut announced = None;
        let mut rest = piece;
        while let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
            let (line, after) = rest.split_at(end);
            rest = after.get(1..).unwrap_or_default();
            if !self.passing {
                announced = match self.line.is_empty() {
                    true => read(line),
                    false => {
                        self.line.extend(line);
                        read(&self.line)
                    }
                }
                .or(announced);
            }
            self.line.clear();
            self.passing = false;
        }
        if self.line.len() + rest.len() > LINE_BYTES_MAX {
            self.passing = true;
            self.line.clear();
        } else if !self.passing {
            self.line.extend(rest);
        }
        announced
    }

    /// Another process speaks from now on.
    pub fn start_over(&mut self) {
        *self = Readiness::default();
    }
}

fn read(line: &[u8]) -> Option<Serving> {
    let line = std::str::from_utf8(line).ok().filter(|line| line.len() <= LINE_BYTES_MAX)?;
    let (_, after) = line.split_once(WORD)?;
    let after = after.trim();
    let urls: Vec<String> = match after.find('{') {
        Some(start) => {
            let object = after.get(start..)?;
            let root = json::parse(object.as_bytes(), Limits::SMALL).ok()?;
            ["url", "alt_url"].into_iter().filter_map(|key| address(&root.get(key)?.as_text()?)).collect()
        }
        None => after.split_whitespace().map_while(address).take(2).collect(),
    };
    (!urls.is_empty()).then_some(Serving { urls })
}

/// An address that can be asked: everybody's address is nobody's, so it becomes this machine's.
fn address(text: &str) -> Option<String> {
    let text = text.trim_end_matches(['/', ',']);
    let known = text.starts_with("http://") || text.starts_with("https://");
    (known && text.len() <= URL_BYTES_MAX && !text.contains(char::is_whitespace))
        .then(|| text.replacen("://0.0.0.0", "://127.0.0.1", 1).replacen("://[::]", "://[::1]", 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn announcements_are_told_from_chatter() {
        let table: [(&str, &[&str]); 12] = [
            (
                "2026-01-02T03:04:05.006Z\tINFO\tweb\tserver/web.go:12\tserving\t{\"url\":\"https://a.b:8080\",\"alt_url\":\"https://a.local:8080\"}",
                &["https://a.b:8080", "https://a.local:8080"],
            ),
            (r#"serving {"url": "http://0.0.0.0:8080/"}"#, &["http://127.0.0.1:8080"]),
            (r#"serving {"alt_url": "http://[::]:1"}"#, &["http://[::1]:1"]),
            (r#"serving {"url": "", "alt_url": "http://b"}"#, &["http://b"]),
            ("serving http://127.0.0.1:8080", &["http://127.0.0.1:8080"]),
            ("serving http://a, http://b/", &["http://a", "http://b"]),
            ("serving", &[]),
            ("serving {}", &[]),
            (r#"serving {"url": 3}"#, &[]),
            (r#"serving {"url": "ftp://a"}"#, &[]),
            ("serving files of http://a", &[]),
            (r#"{"url": "http://a"} is what we are not serving"#, &[]),
        ];
        for (line, urls) in table {
            let found = Readiness::default().feed(format!("{line}\n").as_bytes());
            assert_eq!(found.map(|serving| serving.urls).unwrap_or_default(), urls, "{line}");
        }
    }

    #[test]
    fn a_line_may_be_cut_anywhere() {
        let text = b"noise\nserving {\"url\": \"http://a\"}\nmore";
        for cut in 0..text.len() {
            let mut readiness = Readiness::default();
            let (first, second) = text.split_at(cut);
            let found = readiness.feed(first).or_else(|| readiness.feed(second));
            assert_eq!(found, Some(Serving { urls: vec!["http://a".into()] }), "cut at {cut}");
        }
        let mut readiness = Readiness::default();
        let found: Vec<_> = text.iter().filter_map(|&byte| readiness.feed(&[byte])).collect();
        assert_eq!(found.len(), 1, "byte by byte");
    }

    #[test]
    fn an_endless_line_costs_nothing_and_the_next_one_counts() {
        let mut readiness = Readiness::default();
        for _ in 0..1000 {
            assert_eq!(readiness.feed(&[b'x'; 1000]), None);
            assert!(readiness.line.len() <= LINE_BYTES_MAX);
        }
        assert_eq!(readiness.feed(b" serving http://evil\n"), None, "part of the endless line");
        assert!(readiness.feed(b"serving http://good\n").is_some());
    }
}
