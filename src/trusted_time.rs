//! The time at which certificates are judged.
//!
//! A board without a battery boots in 1970, where every certificate is "not valid yet", and without a connection many never
//! learn the time. So a clock that nothing vouches for is not believed when it shows less than is certain: when this program
//! was built, and the latest day that a synchronised clock has shown on this device. A synchronised clock is believed as it
//! is: it may have been wrong before, and would otherwise be wrong for ever.

use std::{
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use actors::update::{check::last_certain_time, slots::Layout};
use api::brand;
use board::files::Files;

/// A clock that never shows less than is certain, unless `synchronised` says that something vouches for it. What is certain
/// is read now.
pub fn clock<S: Fn() -> bool + Send + Sync>(
    files: &dyn Files,
    root: &Path,
    synchronised: S,
) -> impl Fn() -> SystemTime + Send + Sync + use<S> {
    let certain = certain(files, root);
    move || judged(SystemTime::now(), synchronised(), certain)
}

fn judged(shown: SystemTime, synchronised: bool, certain: SystemTime) -> SystemTime {
    if synchronised { shown } else { shown.max(certain) }
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
        assert!(clock(&PortableFiles, root.path(), || false)() >= built);
    }

    #[test]
    fn a_synchronised_clock_is_believed_as_it_is() {
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        // shown, synchronised, certain, judged by
        let table = [
            ("1970", at(5), false, at(100), at(100)),
            ("ahead", at(200), false, at(100), at(200)),
            ("synchronised after it was wrong once", at(50), true, at(100), at(50)),
            ("synchronised", at(200), true, at(100), at(200)),
        ];
        for (case, shown, synchronised, certain, expected) in table {
            assert_eq!(judged(shown, synchronised, certain), expected, "{case}");
        }
        let root = tempfile::tempdir().expect("a folder");
        let mut numbers = Seen::default();
        numbers.time = i64::try_from(api::BUILT_AT).expect("small") + 100 * 365 * 86_400;
        PortableFiles.write(&root.path().join("trust/numbers"), &numbers.encode(), Access::Private).expect("written");
        let soon = SystemTime::now() + Duration::from_secs(86_400);
        assert!(clock(&PortableFiles, root.path(), || true)() < soon);
        assert!(clock(&PortableFiles, root.path(), || false)() > soon);
    }
}
