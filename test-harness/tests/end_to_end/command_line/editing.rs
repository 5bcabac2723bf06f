//! Two people and one part: nobody's change is lost without a word, whatever each of them uses.

use std::{collections::BTreeSet, fs, os::unix::fs::PermissionsExt as _, thread};

use serde_json::{Value, json};
use test_harness::real::programs::find;

use super::desk::Desk;

/// People who change one part at the same time.
const RIVALS: usize = 8;

fn desk() -> Desk {
    let mut desk = Desk::new(None, &[]);
    desk.tells("location create Here", &[]);
    desk.tells("machine create rover", &[]);
    desk.file("first.json", r#"{"components": [], "agent": {"advanced_settings": {"debug": false}}}"#);
    desk.tells("part config set first.json", &[]);
    desk
}

fn configuration(desk: &mut Desk) -> Value {
    desk.prints("part config get")[0].clone()
}

/// Edits with a script in place of an editor; the file is its last word.
fn edit(desk: &mut Desk, line: &str, script: &str) -> super::desk::Done {
    let path = desk.path("editor");
    test_executables::write(&path, format!("#!/bin/sh\nset -e\n{script}\n").as_bytes()).unwrap();
    desk.environment.retain(|(name, _)| name != "EDITOR");
    desk.environment.push(("EDITOR".into(), format!("{} --wait", path.display())));
    desk.run(line)
}

#[test]
fn who_edits_longer_loses_nothing_and_overwrites_nothing() {
    let mut desk = desk();
    let platform = find("platform").unwrap();
    // While the one edits, the other sets a variable.
    let script = format!("{} part env set THEIRS=1 >&2\nsed -i s/false/true/ \"$2\"", platform.display());
    let done = edit(&mut desk, "part config edit", &script);
    assert_eq!((done.exit, &*done.out), (1, ""), "{}", done.err);
    assert!(done.err.contains("(ABORTED)\nSomebody else changed it in the meantime"), "{}", done.err);
    let kept = done.err.split("Your text is kept in ").nth(1).and_then(|rest| rest.split(".json").next()).unwrap();
    let kept = format!("{kept}.json");
    assert_eq!(fs::metadata(&kept).unwrap().permissions().mode() & 0o777, 0o600, "it may contain passwords");
    let typed: Value = serde_json::from_slice(&fs::read(&kept).unwrap()).unwrap();
    assert_eq!(typed["agent"]["advanced_settings"], json!({"debug": true}));
    let theirs = json!({"debug": false, "platform_server_env": {"THEIRS": "1"}});
    assert_eq!(configuration(&mut desk)["agent"]["advanced_settings"], theirs, "nothing of hers");
    // She looks again, and has both.
    let done = edit(&mut desk, "part config edit", "sed -i s/false/true/ \"$2\"");
    assert_eq!(done.exit, 0, "{}", done.err);
    let both = json!({"debug": true, "platform_server_env": {"THEIRS": "1"}});
    assert_eq!(configuration(&mut desk)["agent"]["advanced_settings"], both);
    let left: Vec<_> = fs::read_dir(desk.place.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    let drafts = left.iter().filter(|name| name.to_string_lossy().starts_with("platform-config-")).count();
    assert_eq!(drafts, 1, "only the text that was kept: {left:?}");
}

#[test]
fn what_a_device_would_not_take_is_written_by_force_only() {
    let mut desk = desk();
    let before = configuration(&mut desk);
    let bad = "sed -i 's/false/\"loud\"/' \"$2\"";
    let done = edit(&mut desk, "part config edit", bad);
    assert_eq!(done.exit, 1);
    for words in ["nothing was changed (--force changes it anyway)", "advanced_settings.debug", "Your text is kept in "]
    {
        assert!(done.err.contains(words), "{words}: {}", done.err);
    }
    assert_eq!(configuration(&mut desk), before);
    let done = edit(&mut desk, "part config edit --force", bad);
    assert_eq!((done.exit, &*done.err), (0, ""), "{}", done.out);
    assert_eq!(configuration(&mut desk)["agent"]["advanced_settings"]["debug"], json!("loud"));
    // What was wrong before is told, and holds up no other change.
    let done = desk.run("part env set A=1");
    assert!(done.exit == 0 && done.err.contains("note: the device does not accept: "), "{}{}", done.out, done.err);
    // By force is not past others: what came meanwhile is not overwritten.
    let platform = find("platform").unwrap();
    let script = format!("{} part env set B=2 >&2 2>/dev/null\nsed -i s/loud/louder/ \"$2\"", platform.display());
    let done = edit(&mut desk, "part config edit --force", &script);
    assert!(done.exit == 1 && done.err.contains("ABORTED"), "{}", done.err);
    assert_eq!(
        configuration(&mut desk)["agent"]["advanced_settings"]["platform_server_env"],
        json!({"A": "1", "B": "2"})
    );
    // An editor that fails, and a text that is nothing, change nothing.
    let before = configuration(&mut desk);
    for (script, words) in [("exit 3", "ended with"), ("echo '{' > \"$2\"", "this is not a configuration")] {
        let done = edit(&mut desk, "part config edit --force", script);
        assert!(done.exit == 1 && done.err.contains(words), "{script}: {}", done.err);
    }
    assert_eq!(configuration(&mut desk), before);
}

#[test]
fn small_changes_of_many_at_once_are_all_there_or_refused_aloud() {
    let mut desk = desk();
    let done: Vec<(usize, bool)> = thread::scope(|scope| {
        let desk = &desk;
        let all: Vec<_> = (0..RIVALS)
            .map(|who| {
                scope.spawn(move || {
                    let done = desk.run(&format!("part env set V{who}=1"));
                    assert!(done.exit == 0 || done.err.contains("ABORTED"), "{}", done.err);
                    (who, done.exit == 0)
                })
            })
            .collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let won: BTreeSet<String> = done.iter().filter(|(_, won)| *won).map(|(who, _)| format!("V{who}")).collect();
    assert!(!won.is_empty());
    let there = configuration(&mut desk);
    let there = there["agent"]["advanced_settings"]["platform_server_env"].as_object().unwrap();
    assert_eq!(there.keys().cloned().collect::<BTreeSet<_>>(), won);
}
