//! The time at which certificates are judged.
//!
//! A board without a battery boots in 1970, where every certificate is "not valid yet", and without a connection many never
//! learn the time. So a clock is not believed when it shows less than is certain: when this program was built, and the
//! latest day that a synchronised clock has shown on this device.

use std::{
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use actors::update::{check::last_certain_time, slots::Layout};
use api::brand;
use board::files::Files;

/// A clock that never shows less than is certain. What is certain is read now.
pub fn clock(files: &dyn Files, root: &Path) -> impl Fn() -> SystemTime + Send + Sync + use<> {
    let certain = certain(files, root);
    move || SystemTime::now().max(certain)
}

fn certain(files: &dyn Files, root: &Path) -> SystemTime {
    let layout = Layout::new(root, brand::MACHINE_SERVER);
    let seen = last_certain_time(files, &layout.trust()).and_then(|at| u64::try_from(at.as_millis()).ok());
    let built = UNIX_EPOCH + Duration::from_secs(api::BUILT_AT);
    // A time that no clock can hold is none.
    seen.and_then(|millis| UNIX_EPOCH.checked_add(Duration::from_millis(millis))).map_or(built, |seen| seen.max(built))
}

#[cfg(test)]
mod tests {
    use super::*;
    use actors::update::trust::Seen;
    use board::files::Access;
    use board_portable::PortableFiles;

    #[test]
    fn no_clock_is_believed_that_shows_less_than_is_certain() {
        let root = tempfile::tempdir().expect("a folder");
        let built = UNIX_EPOCH + Duration::from_secs(api::BUILT_AT);
        assert!(built > UNIX_EPOCH + Duration::from_secs(1_700_000_000), "it is no constant somebody forgot");
        assert_eq!(certain(&PortableFiles, root.path()), built, "nothing was seen yet");
        let seen = |seconds: i64| {
            let mut numbers = Seen::default();
            numbers.time = seconds;
            let path = root.path().join("trust/numbers");
            PortableFiles.write(&path, &numbers.encode(), Access::Private).expect("written");
            certain(&PortableFiles, root.path())
        };
        let later = api::BUILT_AT + 86_400;
        assert_eq!(seen(i64::try_from(later).expect("small")), UNIX_EPOCH + Duration::from_secs(later));
        for earlier in [0, 1, -1, i64::MIN, 1_000_000_000] {
            assert_eq!(seen(earlier), built, "{earlier}");
        }
        assert!(seen(i64::MAX) >= built, "no overflow");
        assert!(clock(&PortableFiles, root.path())() >= built);
    }
}
