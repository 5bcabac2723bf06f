//! The commands of docs/database.md, as they stand there, run by a shell beside a server that is written to.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

use tokio::task::block_in_place;

use super::{
    world::{
        PATIENCE,
        engine::{self, ON_POSTGRES},
        process::{Server, init, place, program},
    },
    writers::{self, Load, There},
};

const PAGE: &str = include_str!("../../../docs/database.md");

/// What the page says to type, of the blocks that one command is in.
fn documented(first: &str) -> Vec<&'static str> {
    let blocks = PAGE.split("```console\n").skip(1).filter_map(|rest| rest.split("```").next());
    let block = blocks.into_iter().find(|block| block.starts_with(&format!("$ {first}")));
    let lines = block.unwrap_or_else(|| panic!("the page says nothing of {first}")).lines();
    // How a server is started is the test's matter: its port has to be a free one.
    lines.filter_map(|line| line.strip_prefix("$ ")).filter(|line| !line.starts_with("platform-fleet serve")).collect()
}

/// The page's names, and what they are here.
struct Here {
    names: Vec<(&'static str, String)>,
    path: String,
}

impl Here {
    fn new(folder: &Path, data: &Path, new: &Path) -> Self {
        let bin = folder.join("bin");
        fs::create_dir(&bin).unwrap();
        symlink(env!("CARGO_BIN_EXE_platform-fleet"), bin.join("platform-fleet")).unwrap();
        let text = |path: &Path| path.display().to_string();
        let mut names = vec![
            ("/backup/2026-11-20", text(&folder.join("backup"))),
            ("/var/lib/platform-fleet", text(data)),
            ("/var/lib/new", text(new)),
            ("fleet.dump", text(&folder.join("fleet.dump"))),
        ];
        let mut path = vec![bin];
        if let Some(url) = engine::url(folder) {
            let server = test_postgres::shared().unwrap();
            path.push(server.programs().to_owned());
            names.push(("postgres://fleet@db/fleet", url));
            names.push(("postgres://fleet@db/restored", server.url("restored")));
            names.push(("postgres://fleet@db/postgres", server.url("postgres")));
        }
        path.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap()));
        Self { names, path: std::env::join_paths(path).unwrap().into_string().unwrap() }
    }

    fn run(&self, commands: &[&str]) {
        for command in commands {
            let typed = self.names.iter().fold((*command).to_owned(), |text, (name, here)| text.replace(name, here));
            let done = Command::new("sh").args(["-c", &typed]).env("PATH", &self.path).output().unwrap();
            assert!(done.status.success(), "{command}: {}", String::from_utf8_lossy(&done.stderr));
        }
    }
}

/// Where a server goes whose database is another one: none in the folder of the first.
fn elsewhere(folder: &Path) -> PathBuf {
    let again = folder.join("again");
    fs::create_dir(&again).unwrap();
    if ON_POSTGRES {
        fs::write(again.join("database-url"), test_postgres::shared().unwrap().url("restored")).unwrap();
    }
    again.join("new")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_documented_commands_make_the_same_server_again() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let new = elsewhere(folder.path());
    let keys = init(&data);
    let server = Server::start_unlimited(&data);
    let here = Here::new(folder.path(), &data, &new);
    let there = There { url: server.url.clone(), keys: keys.clone() };
    // Some have ended before the backup begins; others never pause.
    let mut before = Load::begin(&there).await;
    before.acknowledged(5).await;
    let mut before = before.end().await;
    let mut meanwhile = Load::begin(&there).await;
    meanwhile.acknowledged(5).await;
    let backup = if ON_POSTGRES { documented("pg_dump") } else { split(documented("platform-fleet backup")).0 };
    // Again until somebody has written meanwhile: a busy machine may give the writers no time.
    let patient_until = Instant::now() + PATIENCE;
    loop {
        let begin = Instant::now();
        block_in_place(|| here.run(&backup));
        if meanwhile.wrote_within(begin..=Instant::now()) {
            break;
        }
        assert!(Instant::now() < patient_until, "nobody writes during a backup");
        fs::remove_dir_all(folder.path().join("backup")).unwrap();
    }
    // And the load goes on.
    meanwhile.goes_on(50).await;
    let mut meanwhile = meanwhile.end().await;
    drop(server);
    fs::remove_dir_all(&data).unwrap();
    if ON_POSTGRES {
        block_in_place(|| here.run(&documented("createdb")));
    } else {
        let (_, restore) = split(documented("platform-fleet backup"));
        block_in_place(|| here.run(&restore));
    }
    let server = Server::start_unlimited(&new);
    let there = There { url: server.url.clone(), keys };
    writers::check(&mut before, &there).await;
    writers::check_moment(&mut meanwhile, &there).await;
    // And it goes on.
    let mut after = Load::begin(&there).await;
    after.acknowledged(2).await;
    writers::check(&mut after.end().await, &there).await;
}

/// What is typed while there is a server, and what when it is lost.
fn split(commands: Vec<&'static str>) -> (Vec<&'static str>, Vec<&'static str>) {
    let (backup, restore): (Vec<_>, Vec<_>) = commands.into_iter().partition(|one| one.contains("fleet backup"));
    assert!(!backup.is_empty() && !restore.is_empty());
    (backup, restore)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_that_lie_in_a_bucket_are_the_restored_server_s_too() {
    let bucket = test_s3::Server::start().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let keys = init(&data);
    let place_of_files = ["--artifacts".to_owned(), format!("s3://{}/production", test_s3::BUCKET)];
    let serve = |data: &Path| {
        block_in_place(|| {
            Server::start_with(data, |command| {
                command.args(&place_of_files).envs(bucket.variables()).stderr(Stdio::null())
            })
        })
    };
    let server = serve(&data);
    let there = There { url: server.url.clone(), keys: keys.clone() };
    let mut files = writers::files(&there).await;
    for _ in 0..3 {
        files.step().await.unwrap();
    }
    let to = folder.path().join("backup");
    let run = |command: &mut Command| {
        let done = block_in_place(|| command.output().unwrap());
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).unwrap()
    };
    let mut backup = program(&["backup"]);
    backup.arg(&to).args(place(&data)).args(&place_of_files).envs(bucket.variables());
    let said = run(&mut backup);
    assert!(said.contains("no files of the registry (they lie in the bucket)"), "{said}");
    assert!(!to.join("artifacts").exists());
    // Later than the backup: the bucket has more than the restored server knows of.
    writers::files(&there).await.step().await.unwrap();
    assert_eq!(bucket.objects().len(), 4);
    drop(server);
    fs::remove_dir_all(&data).unwrap();
    run(program(&["restore"]).arg(&to).arg("--data").arg(&data));
    let server = serve(&data);
    let there = There { url: server.url.clone(), keys };
    let mut more = writers::files(&there).await;
    more.step().await.unwrap();
    writers::check(&mut [files, more], &there).await;
}
