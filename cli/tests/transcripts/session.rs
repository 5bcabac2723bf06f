//! Who is logged in where, and what is said to whom who is not.

use super::*;

#[test]
fn logging_in_and_out() {
    let desk = Desk::without_key();
    desk.fails("machine list", 1, "you are not logged in to a fleet server\nLog in with `platform login");
    let url = desk.fleet.server.url();
    let login = format!("login --url {url} --key-id {KEY_ID}");
    let done = desk.run_with(&login, "right\n", &[]);
    let path = desk.home.path().join(".config/platform/profiles.json");
    assert_eq!(done.out, format!("Logged in to http://fleet (profile \"default\" in {}).\n", path.display()));
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(path.parent().unwrap()).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(desk.run("machine list").exit, 0);

    let wrong = desk.run_with(&format!("{login} --profile other"), "wrong", &[]);
    assert_eq!(wrong.exit, 1);
    assert!(
        wrong.err.contains("did not accept the credentials: no such key") && !wrong.err.contains("wrong"),
        "{}",
        wrong.err
    );
    desk.fails("machine list --profile other", 1, "there is no profile \"other\" (known: default)");
    assert_eq!(desk.run_with(&format!("{login} --profile other --unchecked"), "wrong", &[]).exit, 0);
    desk.fails("machine list", 1, "log in again with `platform login`");
    assert_eq!(desk.run("machine list --profile default").exit, 0);

    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    desk.fails("machine list", 1, "can be read by others (mode 644)");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();

    desk.shows(
        "logout --profile other",
        "The key of profile \"other\" is forgotten here; it stays valid until it is deleted on the server.\n",
    );
    assert!(!fs::read_to_string(&path).unwrap().contains("wrong"));
    desk.fails("machine list", 1, "you are not logged in");
    desk.fails("login --url ftp://x --key-id y", 2, "ftp:// is not a way");
    desk.fails("login", 2, "--url is needed where nobody can be asked");
    let empty = desk.run_with(&login, "", &[]);
    assert!(empty.exit == 2 && empty.err.contains("the API key is empty"), "{}", empty.err);
    fs::write(&path, "{").unwrap();
    desk.fails("machine list", 1, "is damaged");
}

#[test]
fn nobody_is_sent_to_a_page_that_is_not_there() {
    let desk = Desk::without_key();
    let url = desk.fleet.server.url();
    let done = desk.run(&format!("login --url {url} --oidc"));
    assert_eq!((done.exit, done.out.as_str()), (1, ""));
    let told = "platform: http://fleet offers no sign-in with an identity provider: it wants an API key\n\
        Log in with `platform login --url URL --key-id ID`";
    assert!(done.err.starts_with(told), "{}", done.err);
    let nobody = desk.run("login --url http://127.0.0.1:1 --oidc");
    assert_eq!((nobody.exit, nobody.out.as_str()), (1, ""));
    let told = "platform: could not ask the server whether people sign in there: cannot reach the server \
        http://127.0.0.1:1: nothing listens there";
    assert!(nobody.err.starts_with(told), "{}", nobody.err);
}

#[test]
fn the_environment_is_taken_whole_or_not_at_all() {
    let mut desk = Desk::new();
    assert_eq!(desk.run("machine list").exit, 0);
    desk.environment.retain(|(name, _)| name != "PLATFORM_API_KEY");
    desk.fails("machine list", 2, "PLATFORM_URL is set, but PLATFORM_API_KEY is not: set all three");
    desk.environment.retain(|(name, _)| name != "PLATFORM_URL");
    desk.fails("machine list", 1, "you are not logged in");
}

#[test]
fn refusals_say_what_to_do() {
    let desk = Desk::new();
    let table = [
        ("GetRobotPart", 7, "(PERMISSION_DENIED)\nAsk an owner"),
        ("GetRobotPart", 12, "(UNIMPLEMENTED)\nThis server does not offer the operation"),
        ("GetRobotPart", 5, "platform: could not read the part: refused for the test (NOT_FOUND)"),
    ];
    for (operation, code, expected) in table {
        desk.fleet.state().refused = Some((operation, code));
        desk.fails(&format!("part get {ROVER_MAIN}"), 1, expected);
    }
    desk.fails("part logs a --part b", 2, "cannot be used with");
    desk.fails("part shout", 2, "unrecognized subcommand 'shout'");
    desk.fails("", 2, "Usage: platform");
    let nobody = desk.run_with("machine list", "", &[("PLATFORM_URL", "http://127.0.0.1:1")]);
    assert!(
        nobody.exit == 1 && nobody.err.contains("cannot reach the server http://127.0.0.1:1: nothing listens there"),
        "{}",
        nobody.err
    );
}

#[test]
fn checking_a_file_needs_no_server() {
    let desk = Desk::without_key();
    desk.file("good.json", r#"{"agent": {"advanced_settings": {"debug": true}}}"#);
    desk.shows("config check good.json", "good.json: a device accepts all of it\n");
    desk.shows("config check good.json -o json", "[]\n");
    desk.file("bad.json", "{\"agent\": {\n  \"advanced_settings\": {\"debug\": 1}}}");
    let done = desk.run("config check bad.json");
    assert_eq!(done.exit, 1);
    assert!(
        done.out.starts_with("bad.json:2:34: ") && done.out.contains("advanced_settings.debug: found 1"),
        "{}",
        done.out
    );
    assert!(done.err.contains("1 setting is not accepted"), "{}", done.err);
    assert_eq!(desk.run_with("config check -", "nonsense", &[]).exit, 1);
}

#[test]
fn completions_and_help() {
    let desk = Desk::without_key();
    for shell in ["bash", "zsh", "fish"] {
        let done = desk.run(&format!("completions {shell}"));
        assert!(done.exit == 0 && done.out.contains("credentials"), "{shell}");
    }
    assert_eq!(desk.run("part logs --help").exit, 0);
    assert!(desk.run("--version").out.starts_with("platform "));
}
