//! Power save of WiFi links: the agent's own file among the network manager's, and nobody else's.

use std::{fs, io, path::Path};

/// Named so that it is read after the files of distributions.
fn name(brand: &str) -> String {
    format!("zz-{brand}-wifi-powersave.conf")
}

fn text(brand: &str, on: bool) -> String {
    let value = if on { 3 } else { 2 };
    // A section of its own comes before the plain one, in which distributions write theirs.
    format!("[connection-{brand}-powersave]\nmatch-device=type:wifi\nwifi.powersave={value}\n")
}

/// Writes or removes the file. Whether anything was changed.
pub(super) fn set(folder: &Path, brand: &str, on: Option<bool>) -> io::Result<bool> {
    let folder = folder.join("conf.d");
    let file = folder.join(name(brand));
    let Some(on) = on else {
        return match fs::remove_file(&file) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        };
    };
    let text = text(brand, on);
    if fs::read_to_string(&file).is_ok_and(|there| there == text) {
        return Ok(false);
    }
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
            assert_eq!(set(folder.path(), "acme", on).unwrap(), changed, "{on:?}");
            let there = fs::read_to_string(&file).ok();
            assert_eq!(there.is_some(), value.is_some());
            assert!(value.is_none_or(|value| there.unwrap().contains(&format!("wifi.powersave={value}\n"))));
        }
        assert_eq!(fs::read_dir(folder.path().join("conf.d")).unwrap().count(), 1, "only the others' is left");
    }
}
