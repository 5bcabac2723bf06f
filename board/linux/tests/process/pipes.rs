//! What somebody else does to the output pipes, and what is in their place.

use super::*;

#[test]
fn the_pipes_are_made_again_after_somebody_cleaned_up() {
    let folder = tempfile::tempdir().unwrap();
    as_agent(folder.path(), async |board| {
        let launch = shell(folder.path(), "echo here");
        for _ in 0..2 {
            let process = board.processes.spawn(&launch).unwrap();
            line(board, Stream::Out, |line| line == "here").await;
            process.exited().await;
            fs::remove_dir_all(folder.path().join("run")).unwrap();
        }
    });
}

#[test]
fn a_server_is_heard_after_somebody_removed_its_pipes() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    // More than a pipe holds: who is not read waits.
    let script = "echo first; while ! test -e go; do sleep 0.01; done; seq 1 300000; echo over >&2; \
                  while ! test -e die; do sleep 0.01; done; echo last words; exit 5";
    let note = ("NOTE".to_owned(), "it is mine".to_owned());
    let id = as_agent(folder.path(), async |board| {
        let launch = Launch { environment: vec![note.clone()], ..shell(folder.path(), script) };
        let process = board.processes.spawn(&launch).unwrap();
        line(board, Stream::Out, |line| line == "first").await;
        process.id()
    });
    fs::remove_dir_all(&run).unwrap();
    as_agent(folder.path(), async |board| {
        let unrecorded = Unrecorded { id, note: note.1.clone() };
        assert_eq!(board.processes.unrecorded("NOTE"), [unrecorded], "it is still known by its pipe");
        let process = board.processes.adopt(id).expect("it lives");
        fs::write(folder.path().join("go"), "").unwrap();
        let (mut said, mut over) = (String::new(), String::new());
        while !(said.ends_with("300000\n") && over == "over\n") {
            let (stream, piece) = board.processes.output().await;
            let of = if stream == Stream::Out { &mut said } else { &mut over };
            *of += std::str::from_utf8(&piece).unwrap();
        }
        assert_eq!(said.lines().count(), 300_000, "nothing is lost");
        // The next one speaks into pipes that have names again, and the last words of this one are read first.
        fs::write(folder.path().join("die"), "").unwrap();
        process.exited().await;
        let next = board.processes.spawn(&shell(folder.path(), "echo next")).unwrap();
        next.exited().await;
        let mut said = Vec::new();
        while let Some((_, piece)) = smol::future::poll_once(board.processes.output()).await {
            said.extend(piece);
        }
        assert_eq!(String::from_utf8(said).unwrap(), "last words\nnext\n");
        assert!(run.join("server.stdout").exists());
    });
}

#[test]
fn what_a_server_did_with_its_own_output_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let script = "exec >other; mkfifo own; exec 2<>own; touch ready; exec sleep 1000";
    let id = as_agent(folder.path(), async |board| board.processes.spawn(&shell(folder.path(), script)).unwrap().id());
    while !folder.path().join("ready").exists() {
        std::thread::sleep(Duration::from_millis(1));
    }
    as_agent(folder.path(), async |board| {
        let process = board.processes.adopt(id).expect("it lives");
        let own = fs::OpenOptions::new().read(true).write(true).open(folder.path().join("own")).unwrap();
        rustix::io::write(&own, b"for somebody else\n").unwrap();
        assert_eq!(smol::future::poll_once(board.processes.output()).await, None);
        process.kill();
        process.exited().await;
    });
}

#[test]
fn what_lies_in_the_place_of_the_run_folder_or_a_pipe_is_moved_aside() {
    type Plant = fn(&Path);
    let rows: [(&str, Plant); 6] = [
        ("run", |path| fs::write(path, "a file").unwrap()),
        ("run", |path| std::os::unix::fs::symlink("nowhere", path).unwrap()),
        ("run", |path| {
            fs::write(path, "a file").unwrap();
            fs::create_dir_all(path.with_file_name("run.in-the-way/inside")).unwrap();
        }),
        ("run/server.stdout", |path| fs::create_dir_all(path.join("inside")).unwrap()),
        ("run/server.stderr", |path| fs::create_dir_all(path.join("inside")).unwrap()),
        ("run/server.stdout", |path| {
            fs::create_dir_all(path.join("inside")).unwrap();
            fs::write(path.with_file_name("server.stdout.in-the-way"), "earlier").unwrap();
        }),
    ];
    for (index, (name, plant)) in rows.into_iter().enumerate() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        plant(&path);
        as_agent(folder.path(), async |board| {
            let process = board.processes.spawn(&shell(folder.path(), "echo here; echo there >&2")).unwrap();
            process.exited().await;
            line(board, Stream::Out, |line| line == "here").await;
            line(board, Stream::Err, |line| line == "there").await;
        });
        let aside = folder.path().join(format!("{name}.in-the-way"));
        assert!(fs::symlink_metadata(aside).is_ok(), "row {index}");
        assert!(folder.path().join("run/server.stdout").exists(), "row {index}");
    }
}

#[test]
fn where_no_named_pipe_can_be_made_a_server_runs_and_is_heard_by_the_next_agent_too() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let script = "echo first; while ! test -e go; do sleep 0.01; done; echo second; exit 5";
    let id = as_agent(&file, async |board| {
        let process = board.processes.spawn(&shell(folder.path(), script)).unwrap();
        line(board, Stream::Out, |line| line == "first").await;
        process.id()
    });
    as_agent(&file, async |board| {
        let process = board.processes.adopt(id).expect("it lives");
        fs::write(folder.path().join("go"), "").unwrap();
        line(board, Stream::Out, |line| line == "second").await;
        assert_eq!(process.exited().await, Exit::Code(5));
        let next = board.processes.spawn(&shell(folder.path(), "echo third")).unwrap();
        line(board, Stream::Out, |line| line == "third").await;
        next.exited().await;
    });
}
