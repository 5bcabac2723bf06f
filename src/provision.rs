//! `provision --now` and `hotspot`: what a person at the device wants of its doors.
//!
//! Owns the words for that person. The running agent opens the doors and knows name and password; without one, both are
//! worked out from the manufacturer's defaults, which is how labels are printed.

use std::{
    fmt::Write as _,
    io::{self, Write as _},
    path::PathBuf,
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use actors::{
    console::{ASK_HOTSPOT, ASK_PROVISION, HEARD, HOTSPOT},
    provisioning::hotspot,
};
use api::{
    Secret, brand,
    device_config::{self, Accepted, CommandLine, Source, Sources},
    pb::platform::fleet::v1::{ProvisioningStatus, provisioning_status::Door},
    report,
};
use board::files::{Files as _, RECORD_BYTES_MAX};
use board_portable::PortableFiles;

use crate::{
    platform,
    status::{self, StatusError},
};

/// A door is open.
const OPEN: u8 = 0;
/// It was asked for, and no door is open yet.
const NOT_YET: u8 = 3;
/// How long the doors are waited for: a radio takes some seconds.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Root folder of the agent.
    pub root: PathBuf,
    /// Manufacturer's defaults file.
    pub defaults: PathBuf,
    /// The number of another device.
    pub serial: Option<String>,
}

/// Asks the running agent to open its doors, and says how a phone finds them.
#[must_use]
pub fn run(options: &Options) -> ExitCode {
    let opened = match open(options) {
        Ok(status) => status,
        Err(error) => return failed(&error),
    };
    let Some(doors) = opened else {
        eprintln!("{}: it was asked for, and no door is open yet: look at {0} status", brand::AGENT);
        return ExitCode::from(NOT_YET);
    };
    let password = known_hotspot(options).ok().map(|(_, password)| password);
    said(&invitation(&doors, password.as_ref()), OPEN)
}

/// Shows name and password of the hotspot.
#[must_use]
pub fn show_hotspot(options: &Options) -> ExitCode {
    let known = match &options.serial {
        None => known_hotspot(options),
        Some(_) => Err(StatusError::NotRunning { root: options.root.clone() }),
    };
    let (name, password) = match known {
        Ok(known) => known,
        // Only where nobody runs: an agent that runs knows better than its defaults.
        Err(StatusError::NotRunning { .. }) => match by_defaults(options) {
            Ok(known) => known,
            Err(why) => {
                eprintln!("{}: {why}", brand::AGENT);
                return ExitCode::from(status::NOT_RUNNING);
            }
        },
        Err(error) => return failed(&error),
    };
    said(&format!("hotspot   {}\npassword  {}\n", report::plain(&name), password.expose()), OPEN)
}

fn failed(error: &StatusError) -> ExitCode {
    eprintln!("{}: {error}", brand::AGENT);
    ExitCode::from(error.exit())
}

fn said(text: &str, exit: u8) -> ExitCode {
    match io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::from(exit),
        Err(_) => ExitCode::from(status::NOT_RUNNING),
    }
}

/// The doors once one of them is open; `None` when none is in time.
fn open(options: &Options) -> Result<Option<ProvisioningStatus>, StatusError> {
    let answer = status::question(&options.root, ASK_PROVISION)?;
    if answer != HEARD.as_bytes() {
        return Err(status::strange(&options.root, &answer));
    }
    let begin = Instant::now();
    loop {
        let told = status::ask(&options.root)?;
        let doors = told.status.and_then(|status| status.provisioning);
        let opening = |door: Door| door == Door::Opening;
        if let Some(doors) = doors
            && doors.open
            && (doors.hotspot() == Door::Open || doors.bluetooth() == Door::Open && !opening(doors.hotspot()))
        {
            return Ok(Some(doors));
        }
        if begin.elapsed() > PATIENCE {
            return Ok(None);
        }
        thread::sleep(LOOK_EVERY);
    }
}

fn invitation(doors: &ProvisioningStatus, password: Option<&Secret>) -> String {
    let mut text = String::new();
    let name = report::plain(&doors.name);
    if doors.hotspot() == Door::Open {
        let _ = writeln!(text, "hotspot    {name}");
        if let Some(password) = password {
            let _ = writeln!(text, "password   {}", password.expose());
        }
        let _ = writeln!(text, "page       {}", doors.address);
    }
    if doors.bluetooth() == Door::Open {
        let _ = writeln!(text, "bluetooth  {name}");
    }
    for trouble in &doors.trouble {
        let _ = writeln!(text, "! {}", report::plain(trouble));
    }
    text
}

/// As the running agent has it.
fn known_hotspot(options: &Options) -> Result<(String, Secret), StatusError> {
    let answer = status::question(&options.root, ASK_HOTSPOT)?;
    let text = String::from_utf8_lossy(&answer).into_owned();
    let mut lines = text.lines();
    match (lines.next(), lines.next(), lines.next()) {
        (Some(HOTSPOT), Some(name), Some(password)) => Ok((name.to_owned(), Secret::from(password))),
        _ => Err(status::strange(&options.root, &answer)),
    }
}

/// As the manufacturer's defaults say, for this device or the one with another number.
fn by_defaults(options: &Options) -> Result<(String, Secret), String> {
    let text = PortableFiles.read(&options.defaults, RECORD_BYTES_MAX);
    let text = text.map_err(|error| format!("{error}: {}", error.source))?;
    let sources = Sources {
        defaults: text.as_deref().map_or(Source::Absent, Source::Given),
        cloud: Source::Absent,
        command_line: CommandLine::default(),
    };
    let settings = device_config::read(&sources, &Accepted::default()).settings;
    let (hostname, own) = platform::names();
    let serial = options.serial.as_deref().unwrap_or(&own);
    let name = hotspot::ssid(&settings.network.hotspot_prefix, &hostname).ok_or("the hotspot has no name")?;
    Ok((name.to_string(), hotspot::password(&settings.network, serial)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_person_reads_how_to_find_the_device() {
        let doors = ProvisioningStatus {
            open: true,
            hotspot: Door::Open.into(),
            bluetooth: Door::Open.into(),
            name: "platform-setup-pump-7".into(),
            address: "http://10.42.0.1".into(),
            ..ProvisioningStatus::default()
        };
        let expected = "\
hotspot    platform-setup-pump-7
password   gl5xnuijiksx
page       http://10.42.0.1
bluetooth  platform-setup-pump-7
";
        assert_eq!(invitation(&doors, Some(&Secret::from("gl5xnuijiksx"))), expected);
        let wired = ProvisioningStatus { hotspot: Door::Absent.into(), ..doors };
        assert_eq!(invitation(&wired, None), "bluetooth  platform-setup-pump-7\n");
    }

    #[test]
    fn a_label_is_printed_without_an_agent() {
        let folder = tempfile::tempdir().expect("a folder");
        let defaults = folder.path().join("defaults.json");
        let text = r#"{"network_configuration": {"hotspot_password_secret": "secret of the factory", "hotspot_prefix": "acme"}}"#;
        std::fs::write(&defaults, text).expect("written");
        let serial = Some("100000001a2b3c4d".to_owned());
        let options = Options { root: folder.path().to_owned(), defaults, serial };
        let (name, password) = by_defaults(&options).expect("all is there");
        assert!(name.starts_with("acme-"), "{name}");
        assert_eq!(password.expose(), "gl5xnuijiksx");
        let options = Options { defaults: folder.path().join("none"), ..options };
        let (_, password) = by_defaults(&options).expect("the built-in ones");
        assert_eq!(password.expose(), brand::HOTSPOT_PASSWORD);
    }
}
