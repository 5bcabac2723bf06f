//! Power save of WiFi links: the agent's own file among the network manager's, and nobody else's.

use std::{
    fmt::Write as _,
    fs, io,
    path::{Path, PathBuf},
};

/// Named so that it is read after the files of distributions.
fn name(brand: &str) -> String {
    format!("zz-{brand}-wifi-powersave.conf")
}

fn text(brand: &str, on: bool) -> String {
    let value = if on { 3 } else { 2 };
    // A section of its own comes before the plain one, in which distributions write theirs.
    format!("[connection-{brand}-powersave]\nmatch-device=type:wifi\nwifi.powersave={value}\n")
}

/// Before the name of an interface and how it was found; in the file, so that it survives the agent.
const BEFORE: &str = "# before: ";

/// An interface, and whether its power save is on.
pub(super) type State = (String, bool);

/// What the file says of how things were before it was first written.
pub(super) fn before(folder: &Path, brand: &str) -> Vec<State> {
    let text = fs::read_to_string(file(folder, brand)).unwrap_or_default();
    let line = |line: &str| {
        let (interface, state) = line.strip_prefix(BEFORE)?.split_once(' ')?;
        Some((interface.to_owned(), state == "on"))
    };
    text.lines().filter_map(line).collect()
}

fn file(folder: &Path, brand: &str) -> PathBuf {
    folder.join("conf.d").join(name(brand))
}

/// Writes or removes the file. Whether anything was changed. `now` is how things are without it.
pub(super) fn set(folder: &Path, brand: &str, on: Option<bool>, now: &[State]) -> io::Result<bool> {
    let file = file(folder, brand);
    let Some(on) = on else {
        return match fs::remove_file(&file) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        };
    };
    let mut text = text(brand, on);
    if fs::read_to_string(&file).is_ok_and(|there| there.starts_with(&text)) {
        return Ok(false);
    }
    let kept = before(folder, brand);
    for (interface, on) in if file.exists() { &kept } else { now } {
        let _ = writeln!(text, "{BEFORE}{interface} {}", if *on { "on" } else { "off" });
    }
    let folder = folder.join("conf.d");
    fs::create_dir_all(&folder)?;
    let new = folder.join(format!(".{}.new", name(brand)));
    fs::write(&new, text)?;
    fs::rename(&new, &file)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_comes_changes_and_goes() {
        let folder = tempfile::tempdir().unwrap();
        let others = folder.path().join("conf.d/default-wifi-powersave-on.conf");
        fs::create_dir_all(others.parent().unwrap()).unwrap();
        fs::write(&others, "[connection]\nwifi.powersave = 3\n").unwrap();
        let file = folder.path().join("conf.d/zz-acme-wifi-powersave.conf");
        let steps = [
            (None, false, None),
            (Some(false), true, Some(2)),
            (Some(false), false, Some(2)),
            (Some(true), true, Some(3)),
            (None, true, None),
            (None, false, None),
        ];
        for (on, changed, value) in steps {
            let now = [("wlan0".to_owned(), on != Some(true)), ("wlan1".to_owned(), on.is_none())];
            assert_eq!(set(folder.path(), "acme", on, &now).unwrap(), changed, "{on:?}");
            let kept = before(folder.path(), "acme");
            let first = [("wlan0".to_owned(), true), ("wlan1".to_owned(), false)];
            assert_eq!(kept, if on.is_some() { &first[..] } else { &[] }, "as it was before the first of them");
            let there = fs::read_to_string(&file).ok();
            assert_eq!(there.is_some(), value.is_some());
            assert!(value.is_none_or(|value| there.unwrap().contains(&format!("wifi.powersave={value}\n"))));
        }
        assert_eq!(fs::read_dir(folder.path().join("conf.d")).unwrap().count(), 1, "only the others' is left");
    }
}
