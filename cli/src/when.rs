//! Moments as people read them.

pub(crate) use api::report::ago;
use prost_types::Timestamp;

/// The moment in UTC, or a dash if it never was.
pub(crate) fn moment(time: Option<&Timestamp>) -> String {
    match time.filter(|time| time.seconds > 0 || time.nanos > 0) {
        Some(time) => time.to_string(),
        None => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never() {
        assert_eq!((ago(None), moment(None)), ("never".to_owned(), "-".to_owned()));
        let time = Timestamp { seconds: 1_700_000_000, nanos: 678_000_000 };
        assert_eq!(moment(Some(&time)), "2023-11-14T22:13:20.678Z");
    }
}
