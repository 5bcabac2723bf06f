//! Completion as shells load it, and the manual as its readers render it. What this machine does not have is skipped, aloud.

use std::io;

use super::*;

/// What is typed up to the end of a word, and all that may stand in its place.
const TYPED: [(&str, &str); 6] = [
    ("platform regis", "registry"),
    ("platform part con", "config"),
    ("platform part config e", "edit"),
    ("platform part config edit --fo", "--force"),
    ("platform machine list -o ", "table json"),
    ("platform key create robots --role o", "owner operator"),
];

/// Runs a program of the system; `None`, aloud, where there is none.
fn program(name: &str, what: &str, arguments: &[&str], desk: &Desk) -> Option<Done> {
    let mut command = Command::new(name);
    command
        .args(arguments)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", desk.home.path())
        .env("LC_ALL", "C.UTF-8");
    match command.current_dir(desk.home.path()).stdin(Stdio::null()).output() {
        Ok(output) => {
            let text = |bytes| String::from_utf8(bytes).unwrap();
            Some(Done { exit: output.status.code().unwrap(), out: text(output.stdout), err: text(output.stderr) })
        }
        Err(why) if why.kind() == io::ErrorKind::NotFound => {
            let _ = writeln!(io::stderr(), "SKIPPED {what}: {name} is not installed");
            None
        }
        Err(why) => panic!("{name}: {why}"),
    }
}

/// A desk with the completions for a shell in the file `loaded`.
fn desk(shell: &str) -> Desk {
    let desk = Desk::without_key();
    let done = desk.run(&format!("completion {shell}"));
    assert_eq!((done.exit, &*done.err), (0, ""));
    desk.file("loaded", &done.out);
    desk
}

#[test]
fn bash_completes() {
    let desk = desk("bash");
    let script = r#"
        . ./loaded || exit 1
        how=$(complete -p platform) || exit 1
        function=$(expr "$how" : '.*-F \([^ ]*\)')
        COMP_LINE=$1 COMP_POINT=${#1}
        read -ra COMP_WORDS <<<"$1"
        case $1 in *' ') COMP_WORDS+=('') ;; esac
        COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
        "$function" platform "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
        echo "${COMPREPLY[*]}""#;
    for (typed, wanted) in TYPED {
        let Some(done) = program("bash", "completion by bash", &["--norc", "-c", script, "bash", typed], &desk) else {
            return;
        };
        assert_eq!((done.exit, done.out.trim_end(), &*done.err), (0, wanted, ""), "{typed}");
    }
}

#[test]
fn zsh_loads_its_completion() {
    let desk = desk("zsh");
    // Its way to complete needs a terminal and a person; that it takes the file and who answers for the command is seen here.
    let script = "autoload -Uz compinit && compinit -u -d ./dump && . ./loaded && print -r -- $_comps[platform]";
    let Some(done) = program("zsh", "completion by zsh", &["-f", "-c", script], &desk) else { return };
    assert_eq!((done.exit, done.out.trim_end(), &*done.err), (0, "_platform", ""));
}

#[test]
fn fish_completes() {
    let desk = desk("fish");
    // What is made for fish goes two commands deep: of `part config edit` it offers no options.
    for (typed, wanted) in TYPED.into_iter().filter(|(typed, _)| !typed.contains(" edit ")) {
        let script = format!("source loaded; complete -C '{typed}'");
        let Some(done) = program("fish", "completion by fish", &["--no-config", "-c", &script], &desk) else { return };
        let mut found: Vec<&str> = done.out.lines().filter_map(|line| line.split('\t').next()).collect();
        let mut wanted: Vec<&str> = wanted.split(' ').collect();
        found.sort_unstable();
        wanted.sort_unstable();
        assert_eq!((done.exit, found), (0, wanted), "{typed}: {}", done.err);
    }
}

#[test]
fn the_manual_is_rendered_without_a_warning() {
    let desk = Desk::without_key();
    assert_eq!(desk.run("man pages").exit, 0);
    let folder = desk.home.path().join("pages");
    let pages: Vec<String> =
        fs::read_dir(folder).unwrap().map(|page| page.unwrap().path().to_str().unwrap().to_owned()).collect();
    assert!(pages.len() > 100, "{}", pages.len());
    let all: Vec<&str> =
        ["-man", "-Tutf8", "-ww", "-P-cbou"].into_iter().chain(pages.iter().map(|page| &**page)).collect();
    let Some(done) = program("groff", "the manual", &all, &desk) else { return };
    assert_eq!((done.exit, &*done.err), (0, ""), "warnings");
    for page in &pages {
        let name = page.rsplit('/').next().unwrap().trim_end_matches(".1");
        // Broken lines are joined: words count here.
        let text = done.out.split_whitespace().collect::<Vec<_>>().join(" ");
        let told = text.split(&format!("NAME {name} - ")).nth(1).unwrap_or_else(|| panic!("{name} has no line"));
        assert!(told.starts_with(|letter: char| letter.is_alphabetic()), "{name} says nothing: {told:.60}");
    }
    assert!(done.out.contains("--force") && done.out.contains("$EDITOR"));
}
