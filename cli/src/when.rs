//! Moments as people read them.

use std::time::{Duration, SystemTime};

use prost_types::Timestamp;

/// The moment in UTC, or a dash if it never was.
pub(crate) fn moment(time: Option<&Timestamp>) -> String {
    match time.filter(|time| time.seconds > 0 || time.nanos > 0) {
        Some(time) => time.to_string(),
        None => "-".to_owned(),
    }
}

/// How long ago, roughly: "12 s ago", "3 h ago".
pub(crate) fn ago(time: Option<&Timestamp>) -> String {
    let Some(then) = time.filter(|time| time.seconds > 0).and_then(|time| SystemTime::try_from(*time).ok()) else {
        return "never".to_owned();
    };
    match SystemTime::now().duration_since(then) {
        Ok(past) => format!("{} ago", span(past)),
        // The server's clock may run ahead of ours.
        Err(_) => "now".to_owned(),
    }
}

/// A length of time in its largest unit.
pub(crate) fn span(length: Duration) -> String {
    let seconds = length.as_secs();
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans() {
        for (seconds, text) in [(0, "0 s"), (119, "119 s"), (120, "2 min"), (7200, "2 h"), (172_800, "2 days")] {
            assert_eq!(span(Duration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn never() {
        assert_eq!((ago(None), moment(None)), ("never".to_owned(), "-".to_owned()));
        let time = Timestamp { seconds: 1_700_000_000, nanos: 678_000_000 };
        assert_eq!(moment(Some(&time)), "2023-11-14T22:13:20.678Z");
    }
}
