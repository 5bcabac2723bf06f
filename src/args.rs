//! Options and environment variables of the agent, read into one checked value.
//!
//! An option on the command line wins over the environment, which wins over the configuration.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    time::Duration,
};

use api::brand;

use crate::{
    deprovision,
    install::{Install, Uninstall},
    provision, status,
};

/// Everything that was said when the agent was started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Credentials file.
    pub credentials: PathBuf,
    /// Manufacturer defaults file.
    pub defaults: PathBuf,
    /// Folder for versions, state and queued logs.
    pub root: PathBuf,
    /// Debug log of the agent, whatever the configuration says.
    pub debug: bool,
    /// Whether to check for updates before the first start; `None` leaves it to the configuration.
    pub wait: Option<bool>,
    /// May run as an ordinary user and not as a service; secrets may travel over plain http.
    pub dev_mode: bool,
    /// Set the stored state aside and begin with the defaults and what the fleet server says. Identity stays.
    pub safe: bool,
    /// How long one minute of a setting lasts. Sixty seconds, except in a test.
    pub minute: Duration,
}

impl Options {
    /// The same with paths that mean the same everywhere: the machine server is started in the root folder, where a
    /// relative path would name another file.
    #[must_use]
    pub fn absolute(self) -> Self {
        // Fails only for an empty path and when the present folder is gone: the path as it was then says what is wrong.
        let whole = |path: PathBuf| std::path::absolute(&path).unwrap_or(path);
        Options { credentials: whole(self.credentials), defaults: whole(self.defaults), root: whole(self.root), ..self }
    }
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Run the agent.
    Run(Options),
    /// Ask the agent that runs here how the device is.
    Status(status::Options),
    /// Ask the agent that runs here to invite people.
    Provision(provision::Options),
    /// Forget whose this device is.
    Deprovision(deprovision::Options),
    /// Show name and password of the hotspot.
    Hotspot(provision::Options),
    /// Make it a service of this machine, or of an image.
    Install(Install),
    /// Take it away again.
    Uninstall(Uninstall),
    /// Print the help text.
    Help,
    /// Print name and version.
    Version,
}

/// Why the command line was not understood.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}\nTry --help.")]
pub struct UsageError(String);

/// The help text.
#[must_use]
pub fn help() -> String {
    format!(
        "\
{agent} {version}: installs, runs, watches and updates the machine server

Usage: {agent} [OPTIONS]           runs the agent
       {agent} status [OPTIONS]    asks the one that runs how this device is
       {agent} provision --now     asks it to invite people to set this device up
       {agent} deprovision         makes this device forget whose it is, and its networks
       {agent} hotspot             shows name and password of the hotspot
       {agent} --install [OPTIONS], {agent} --uninstall [OPTIONS]

  -c, --config FILE     credentials of this machine (default {credentials})
      --defaults FILE   manufacturer defaults (default {defaults})
      --root DIR        versions, state and queued logs (default {root};
                        with --dev-mode as an ordinary user: beside the credentials file)
  -d, --debug           debug log of the agent (also {debug}=1)
  -w, --wait            update before the machine server is first started (also {wait}=1)
      --dev-mode        run as an ordinary user and not as a service, and leave this machine's network alone
                        (also {dev_mode}=1)
      --safe            set the stored state aside and begin anew; identity and machine server
                        stay. The launcher asks for it when an agent does not live
      --minute SECONDS  length of a minute in settings, for tests; only with --dev-mode
      --json            with status: a document for programs
      --now             with provision: at once, for `retry_connection_timeout_minutes`
      --yes             with deprovision: do not ask
      --serial NUMBER   with hotspot: of the device with this number, for labels
      --install         make this a service of the machine; again: change what differs
      --uninstall       remove it again; the identity stays
      --into DIR        install into the image below DIR, or uninstall from it
      --launcher FILE   the launcher to install (default: the one beside this program)
      --force           install over a newer version
      --purge           uninstall the identity too
      --version         name and version
  -h, --help            this text

Environment: {fast_start}=1 starts the machine server without waiting for an update check.
Exit codes: 0 stopped as asked, 1 failed, 2 wrong usage, 75 another agent runs in this root, 77 needs root.
Of status:  0 all is well, 1 no agent answers, 3 it runs and something is not well, 77 needs root.
Of provision: 0 a door is open, 1 no agent answers, 3 no door could be opened yet, 77 needs root.
",
        agent = brand::AGENT,
        version = env!("CARGO_PKG_VERSION"),
        credentials = brand::CREDENTIALS_FILE,
        defaults = brand::DEFAULTS_FILE,
        root = brand::ROOT_FOLDER,
        debug = brand::ENV_DEBUG,
        wait = brand::ENV_WAIT,
        dev_mode = brand::ENV_DEV_MODE,
        fast_start = brand::ENV_FAST_START,
    )
}

/// Reads the command line (without the program's name) and the environment. `ordinary_user` says that this process
/// may not write to the system's folders.
pub fn parse(
    arguments: impl IntoIterator<Item = OsString>,
    environment: impl Fn(&str) -> Option<OsString>,
    ordinary_user: bool,
) -> Result<Request, UsageError> {
    use lexopt::prelude::{Long, Short, Value, ValueExt as _};

    let set = |name: &str| environment(name).is_some_and(|value| truthy(&value));
    let mut credentials = PathBuf::from(brand::CREDENTIALS_FILE);
    let mut defaults = PathBuf::from(brand::DEFAULTS_FILE);
    let mut root = None;
    let mut debug = set(brand::ENV_DEBUG);
    let mut wait = None;
    let mut dev_mode = set(brand::ENV_DEV_MODE);
    let mut safe = false;
    let mut minute = None;
    let (mut asks, mut json) = (false, false);
    let (mut word, mut now, mut yes, mut serial) = (None, false, false, None);
    let (mut install, mut uninstall, mut force, mut purge) = (false, false, false, false);
    let (mut into, mut launcher) = (None, None);

    let mut parser = lexopt::Parser::from_args(arguments);
    let unusable = |error: lexopt::Error| UsageError(error.to_string());
    while let Some(argument) = parser.next().map_err(unusable)? {
        match argument {
            Short('c') | Long("config") => credentials = parser.value().map_err(unusable)?.into(),
            Long("defaults") => defaults = parser.value().map_err(unusable)?.into(),
            Long("root") => root = Some(PathBuf::from(parser.value().map_err(unusable)?)),
            Short('d') | Long("debug") => debug = true,
            Short('w') | Long("wait") => wait = Some(true),
            Long("dev-mode") => dev_mode = true,
            Long("safe") => safe = true,
            Long("minute") => {
                let seconds: f64 = parser.value().map_err(unusable)?.parse().map_err(unusable)?;
                let length = Duration::try_from_secs_f64(seconds).ok().filter(|length| !length.is_zero());
                minute = Some(length.ok_or_else(|| UsageError("--minute needs a positive number of seconds".into()))?);
            }
            Value(first) if first == "status" && !asks => asks = true,
            Value(first) if WORDS.contains(&&*first.to_string_lossy()) && word.is_none() => {
                word = WORDS.into_iter().find(|known| first == *known);
            }
            Long("json") => json = true,
            Long("now") => now = true,
            Long("yes") => yes = true,
            Long("serial") => serial = Some(parser.value().map_err(unusable)?.to_string_lossy().into_owned()),
            Long("install") => install = true,
            Long("uninstall") => uninstall = true,
            Long("into") => into = Some(PathBuf::from(parser.value().map_err(unusable)?)),
            Long("launcher") => launcher = Some(PathBuf::from(parser.value().map_err(unusable)?)),
            Long("force") => force = true,
            Long("purge") => purge = true,
            Long("version") => return Ok(Request::Version),
            Short('h') | Long("help") => return Ok(Request::Help),
            other => return Err(unusable(other.unexpected())),
        }
    }
    if json && !asks {
        return Err(UsageError("--json shows a status and needs the word `status`".into()));
    }
    if minute.is_some() && !dev_mode {
        return Err(UsageError("--minute is for tests and works only with --dev-mode".into()));
    }
    if [install, uninstall, asks, word.is_some()].into_iter().filter(|wish| *wish).count() > 1 {
        return Err(UsageError(format!("only one of --install, --uninstall, status, {} at a time", WORDS.join(", "))));
    }
    let misplaced = [
        ("--now", now && word != Some("provision")),
        ("--yes", yes && word != Some("deprovision")),
        ("--serial", serial.is_some() && word != Some("hotspot")),
        ("--into", into.is_some() && !install && !uninstall),
        ("--launcher", launcher.is_some() && !install),
        ("--force", force && !install),
        ("--purge", purge && !uninstall),
    ];
    if let Some((option, _)) = misplaced.into_iter().find(|(_, misplaced)| *misplaced) {
        return Err(UsageError(format!("{option} goes with something else, as --help says")));
    }
    if install {
        let root = root.unwrap_or_else(|| PathBuf::from(brand::ROOT_FOLDER));
        return Ok(Request::Install(Install { root, credentials, defaults, into, launcher, force }));
    }
    if uninstall {
        return Ok(Request::Uninstall(Uninstall { root, credentials, into, purge }));
    }
    let root = root.unwrap_or_else(|| usual_root(&credentials, dev_mode && ordinary_user));
    if asks {
        return Ok(Request::Status(status::Options { root, json }));
    }
    match word {
        Some("provision") if !now => {
            return Err(UsageError("provision needs --now: doors open by themselves when a device is offline".into()));
        }
        Some("provision") => return Ok(Request::Provision(provision::Options { root, defaults, serial })),
        Some("hotspot") => return Ok(Request::Hotspot(provision::Options { root, defaults, serial })),
        Some(_) => return Ok(Request::Deprovision(deprovision::Options { root, credentials, yes })),
        None => {}
    }
    let wait = wait
        .or_else(|| set(brand::ENV_FAST_START).then_some(false))
        .or_else(|| environment(brand::ENV_WAIT).map(|value| truthy(&value)));
    let minute = minute.unwrap_or(Duration::from_secs(60));
    Ok(Request::Run(Options { credentials, defaults, root, debug, wait, dev_mode, safe, minute }))
}

/// What can be said instead of options, besides `status`.
const WORDS: [&str; 3] = ["provision", "deprovision", "hotspot"];

/// The root folder that [`parse`] would find, from arguments of any version of the agent: what is not known here is
/// passed over. For the launcher, which must not fail on an option that only the next version understands.
pub fn root(
    arguments: impl IntoIterator<Item = OsString>,
    environment: impl Fn(&str) -> Option<OsString>,
    ordinary_user: bool,
) -> PathBuf {
    use lexopt::prelude::{Long, Short};

    let mut credentials = PathBuf::from(brand::CREDENTIALS_FILE);
    let mut root = None;
    let mut dev_mode = environment(brand::ENV_DEV_MODE).is_some_and(|value| truthy(&value));
    let mut parser = lexopt::Parser::from_args(arguments);
    loop {
        match parser.next() {
            Ok(None) => break,
            Ok(Some(Short('c') | Long("config"))) => credentials = parser.value().map_or(credentials, PathBuf::from),
            Ok(Some(Long("root"))) => root = parser.value().ok().map(PathBuf::from).or(root),
            // Their values may look like options.
            Ok(Some(Long("defaults" | "minute" | "into" | "launcher" | "serial"))) => drop(parser.value()),
            Ok(Some(Long("dev-mode"))) => dev_mode = true,
            // An option with a value that is not known here, `--new=value`, is an error at the next turn, and past then.
            Ok(Some(_)) | Err(_) => {}
        }
    }
    let root = root.unwrap_or_else(|| usual_root(&credentials, dev_mode && ordinary_user));
    std::path::absolute(&root).unwrap_or(root)
}

/// Where an agent has its files unless it is told: an ordinary user who tries it may not write to the system's folders.
fn usual_root(credentials: &Path, tried: bool) -> PathBuf {
    match credentials.parent() {
        Some(beside) if tried => beside.join(brand::AGENT),
        _ => PathBuf::from(brand::ROOT_FOLDER),
    }
}

/// What the service manager says to the launcher after the service has ended: the machine server is to end too.
pub const END_SERVER: &str = "end-server";

/// What the service manager says before a start to the launcher that was installed before the present one: to take its
/// place if that one does not work.
pub const RESTORE: &str = "restore";
/// What follows the launcher's name in that one's.
pub const PREVIOUS: &str = ".previous";

/// Whether an environment variable says yes: anything but empty, `0`, `false`, `no` and `off`.
fn truthy(value: &OsString) -> bool {
    !matches!(value.to_string_lossy().trim().to_ascii_lowercase().as_str(), "" | "0" | "false" | "no" | "off")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(line: &str, environment: &[(&str, &str)]) -> Result<Request, UsageError> {
        let look_up = |name: &str| environment.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into());
        parse(line.split_whitespace().map(OsString::from), look_up, true)
    }

    fn options(line: &str, environment: &[(&str, &str)]) -> Options {
        match run(line, environment) {
            Ok(Request::Run(options)) => options,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn defaults_are_the_documented_ones() {
        let options = options("", &[]);
        assert_eq!(options.credentials, PathBuf::from("/etc/platform.json"));
        assert_eq!(options.defaults, PathBuf::from("/etc/platform-defaults.json"));
        assert_eq!(options.root, PathBuf::from("/opt/platform"));
        assert_eq!((options.debug, options.wait, options.dev_mode), (false, None, false));
        assert_eq!(options.minute, Duration::from_secs(60));
    }

    #[test]
    fn relative_paths_are_meant_from_here() {
        let here = std::env::current_dir().expect("a folder");
        let found = options("--dev-mode -c me/platform.json --defaults ./d.json", &[]).absolute();
        assert_eq!(found.credentials, here.join("me/platform.json"));
        assert_eq!(found.defaults, here.join("d.json"));
        assert_eq!(found.root, here.join("me/platform-agent"));
        assert_eq!(options("", &[]).absolute(), options("", &[]));
    }

    #[test]
    fn an_option_wins_over_fast_start_which_wins_over_the_wait_variable() {
        type Set = &'static [(&'static str, &'static str)];
        let rows: [(&str, Set, Option<bool>); 6] = [
            ("", &[], None),
            ("--wait", &[], Some(true)),
            ("-w", &[("PLATFORM_AGENT_FAST_START", "1")], Some(true)),
            ("", &[("PLATFORM_AGENT_FAST_START", "1"), ("PLATFORM_AGENT_WAIT_FOR_UPDATE", "1")], Some(false)),
            ("", &[("PLATFORM_AGENT_WAIT_FOR_UPDATE", "true")], Some(true)),
            ("", &[("PLATFORM_AGENT_WAIT_FOR_UPDATE", "0")], Some(false)),
        ];
        for (line, environment, wait) in rows {
            assert_eq!(options(line, environment).wait, wait, "{line} {environment:?}");
        }
    }

    #[test]
    fn short_and_long_forms_and_the_environment_say_the_same() {
        assert!(options("-d", &[]).debug && options("--debug", &[]).debug);
        assert!(options("", &[("PLATFORM_AGENT_DEBUG", "1")]).debug);
        assert!(options("", &[("PLATFORM_AGENT_DEVMODE", "1")]).dev_mode);
        assert!(options("--safe", &[]).safe && !options("", &[]).safe);
        assert_eq!(options("-c /a/b.json", &[]).credentials, options("--config=/a/b.json", &[]).credentials);
        assert_eq!(options("--dev-mode -c /a/b.json", &[]).root, PathBuf::from("/a/platform-agent"));
        assert_eq!(options("--dev-mode --minute 0.5", &[]).minute, Duration::from_millis(500));
    }

    #[test]
    fn the_word_status_asks() {
        let asks = |line: &str| match run(line, &[]) {
            Ok(Request::Status(status::Options { root, json })) => (root, json),
            other => panic!("{line}: {other:?}"),
        };
        assert_eq!(asks("status"), ("/opt/platform".into(), false));
        assert_eq!(asks("status --json --root /r"), ("/r".into(), true));
        assert_eq!(asks("--root /r status"), ("/r".into(), false));
        assert_eq!(asks("status --dev-mode -c /a/b.json"), ("/a/platform-agent".into(), false));
        for (line, named) in [("--json", "status"), ("status status", "status"), ("stats", "stats")] {
            let error = run(line, &[]).expect_err(line).to_string();
            assert!(error.contains(named), "{line}: {error}");
        }
    }

    #[test]
    fn words_ask_for_what_a_person_at_the_device_may_want() {
        let root = || PathBuf::from("/r");
        let defaults = || PathBuf::from("/etc/platform-defaults.json");
        let serial = |serial: Option<&str>| serial.map(str::to_owned);
        let options = |number| provision::Options { root: root(), defaults: defaults(), serial: serial(number) };
        assert_eq!(run("provision --now --root /r", &[]), Ok(Request::Provision(options(None))));
        assert_eq!(run("--root /r hotspot --serial 77", &[]), Ok(Request::Hotspot(options(Some("77")))));
        let deprovision = |yes| deprovision::Options { root: root(), credentials: "/etc/platform.json".into(), yes };
        assert_eq!(run("deprovision --root /r", &[]), Ok(Request::Deprovision(deprovision(false))));
        assert_eq!(run("deprovision --yes --root /r", &[]), Ok(Request::Deprovision(deprovision(true))));
        let wrong = [
            "provision",
            "--now",
            "--yes",
            "provision --now status",
            "deprovision hotspot",
            "hotspot --now",
            "--serial 7",
        ];
        for line in wrong {
            assert!(run(line, &[]).is_err(), "{line}");
        }
    }

    #[test]
    fn the_launcher_finds_the_same_root_whatever_else_is_said() {
        let here = std::env::current_dir().expect("a folder");
        let same = [
            "",
            "--root /r",
            "--root=/r",
            "--root rel",
            "--root /a --root /b",
            "--dev-mode -c /a/b.json",
            "-c/a/b.json --dev-mode",
        ];
        let same = same.into_iter().chain([
            "--config --root --dev-mode",
            "--defaults --root -d",
            "-dw --root /r",
            "--safe --root /r",
        ]);
        for line in same {
            for ordinary_user in [true, false] {
                let words = || line.split_whitespace().map(OsString::from);
                let parsed = match parse(words(), |_| None, ordinary_user) {
                    Ok(Request::Run(options)) => options.absolute().root,
                    other => panic!("{line}: {other:?}"),
                };
                assert_eq!(root(words(), |_| None, ordinary_user), parsed, "{line}");
            }
        }
        let table = [
            ("--tomorrow --root /r", "/r"),
            ("--tomorrow=yes --root=/r", "/r"),
            ("--tomorrow yes -xyz --root /r status --json", "/r"),
            ("-h --root", "/opt/platform"),
            ("status -- --root /r", "/opt/platform"),
            ("--root /r --root", "/r"),
        ];
        for (line, expected) in table {
            let found = root(line.split_whitespace().map(OsString::from), |_| None, true);
            assert_eq!(found, PathBuf::from(expected), "{line}");
        }
        let by_environment = |name: &str| (name == "PLATFORM_AGENT_DEVMODE").then(|| "1".into());
        let words = ["-c", "me/p.json"].map(OsString::from);
        assert_eq!(root(words, by_environment, true), here.join("me/platform-agent"));
    }

    #[test]
    fn what_is_not_understood_is_named() {
        let rows = [
            ("--fast", "--fast"),
            ("extra", "extra"),
            ("--config", "--config"),
            ("--minute 1", "--dev-mode"),
            ("--dev-mode --minute none", "none"),
            ("--dev-mode --minute 0", "positive"),
        ];
        for (line, named) in rows {
            let error = run(line, &[]).expect_err(line).to_string();
            assert!(error.contains(named), "{line}: {error}");
        }
    }

    #[test]
    fn installing_is_asked_for_by_one_option_and_refined_by_its_own() {
        match run("--install --into /image --root /data/p --launcher /l --force", &[]) {
            Ok(Request::Install(install)) => {
                assert_eq!((install.root, install.into), ("/data/p".into(), Some("/image".into())));
                assert_eq!((install.launcher, install.force), (Some("/l".into()), true));
            }
            other => panic!("{other:?}"),
        }
        // The root folder of --dev-mode is nobody's for a service.
        assert!(
            matches!(run("--dev-mode --install", &[]), Ok(Request::Install(it)) if it.root == std::path::Path::new("/opt/platform"))
        );
        assert!(matches!(run("--uninstall --purge", &[]), Ok(Request::Uninstall(it)) if it.purge && it.root.is_none()));
        for line in [
            "--install --uninstall",
            "--force",
            "--into /x",
            "--install --purge",
            "--uninstall --force",
            "status --install",
        ] {
            assert!(run(line, &[]).is_err(), "{line}");
        }
    }

    #[test]
    fn help_names_every_option_and_variable() {
        let text = help();
        for word in [
            "-c, --config",
            "--defaults",
            "-d, --debug",
            "-w, --wait",
            "-h, --help",
            "--version",
            "--dev-mode",
            "--safe",
        ] {
            assert!(text.contains(word), "{word}");
        }
        for word in ["PLATFORM_AGENT_DEBUG", "PLATFORM_AGENT_WAIT_FOR_UPDATE", "PLATFORM_AGENT_DEVMODE"] {
            assert!(text.contains(word), "{word}");
        }
        assert!(text.contains("PLATFORM_AGENT_FAST_START"));
        assert_eq!(run("--help --nonsense", &[]), Ok(Request::Help));
        assert_eq!(run("--version", &[]), Ok(Request::Version));
    }
}
