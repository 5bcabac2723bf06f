//! Files: what is written, refused, listed and found.

use std::{future::Future, io, path::PathBuf, pin::Pin, rc::Rc};

use board::files::{Access, Files};
use board_portable::PortableFiles;
use board_sim::{Driver, SimBoard, image};

/// Runs what a check waits for.
type Run = Box<dyn Fn(Pin<Box<dyn Future<Output = ()>>>)>;

struct Side {
    name: &'static str,
    files: Rc<dyn Files>,
    root: PathBuf,
    run: Run,
}

impl Side {
    fn at(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    fn content(&self, name: &str) -> Option<Vec<u8>> {
        self.files.read(&self.at(name), 1000).unwrap()
    }
}

/// The same check on both sides.
fn on_both(check: impl Fn(&Side)) {
    let folder = tempfile::tempdir().unwrap();
    let run: Run = Box::new(smol::block_on);
    check(&Side { name: "real", files: Rc::new(PortableFiles), root: folder.path().to_owned(), run });

    let sim = SimBoard::new(1);
    let (board, driver) = (sim.switch_on(), Driver::new(&sim));
    board.files.make_folder(&PathBuf::from("/root"), Access::Private).unwrap();
    let run: Run = Box::new(move |future| driver.block_on(future));
    check(&Side { name: "simulated", files: board.files, root: PathBuf::from("/root"), run });
}

fn kind(result: Result<impl std::fmt::Debug, board::files::FileError>) -> io::ErrorKind {
    result.unwrap_err().source.kind()
}

#[test]
fn a_record_is_replaced_as_a_whole() {
    on_both(|side| {
        assert_eq!(side.content("a/b/record"), None, "{}", side.name);
        for content in ["one", "two and more", ""] {
            side.files.write(&side.at("a/b/record"), content.as_bytes(), Access::Private).unwrap();
            assert_eq!(side.content("a/b/record").unwrap(), content.as_bytes(), "{}", side.name);
        }
    });
}

#[test]
fn a_record_that_is_too_long_is_an_error_and_never_a_cut() {
    on_both(|side| {
        side.files.write(&side.at("record"), b"12345", Access::Private).unwrap();
        assert!(side.files.read(&side.at("record"), 5).unwrap().is_some());
        assert_eq!(kind(side.files.read(&side.at("record"), 4)), io::ErrorKind::FileTooLarge, "{}", side.name);
    });
}

#[test]
fn folders_are_not_files_and_files_are_not_folders() {
    on_both(|side| {
        side.files.make_folder(&side.at("folder"), Access::Readable).unwrap();
        side.files.make_folder(&side.at("folder"), Access::Private).unwrap();
        side.files.write(&side.at("file"), b"x", Access::Private).unwrap();
        assert_eq!(kind(side.files.read(&side.at("folder"), 10)), io::ErrorKind::IsADirectory, "{}", side.name);
        assert!(side.files.write(&side.at("folder"), b"x", Access::Private).is_err(), "{}", side.name);
        assert!(side.files.write(&side.at("file/inside"), b"x", Access::Private).is_err(), "{}", side.name);
        assert!(smol::block_on(side.files.append(&side.at("file/inside"), b"x")).is_err(), "{}", side.name);
        assert!(side.files.make_folder(&side.at("file"), Access::Private).is_err(), "{}", side.name);
        assert!(side.files.remove(&side.at("folder")).is_err(), "{}", side.name);
        assert!(side.files.rename(&side.at("file"), &side.at("folder")).is_err(), "{}", side.name);
        assert!(side.files.list(&side.at("file")).is_err(), "{}", side.name);
        assert_eq!(side.content("file").unwrap(), b"x", "{}", side.name);
    });
}

#[test]
fn a_spool_grows_is_read_in_parts_and_cut() {
    on_both(|side| {
        let path = side.at("spool/1");
        assert_eq!(kind(side.files.read_at(&path, 0, 5)), io::ErrorKind::NotFound, "{}", side.name);
        assert_eq!(kind(side.files.truncate(&path, 0)), io::ErrorKind::NotFound, "{}", side.name);
        assert_eq!(smol::block_on(side.files.append(&path, b"abc")).unwrap(), 3);
        assert_eq!(smol::block_on(side.files.append(&path, b"")).unwrap(), 3);
        assert_eq!(smol::block_on(side.files.append(&path, b"def")).unwrap(), 6);
        for (offset, len, expected) in [(0, 6, "abcdef"), (2, 2, "cd"), (4, 100, "ef"), (6, 1, ""), (60, 1, "")] {
            let part = side.files.read_at(&path, offset, len).unwrap();
            assert_eq!(part, expected.as_bytes(), "{} {offset}", side.name);
        }
        side.files.truncate(&path, 2).unwrap();
        assert_eq!(smol::block_on(side.files.append(&path, b"!")).unwrap(), 3);
        assert_eq!(side.content("spool/1").unwrap(), b"ab!", "{}", side.name);
    });
}

#[test]
fn removing_what_is_not_there_is_fine_and_renaming_it_is_not() {
    on_both(|side| {
        side.files.remove(&side.at("nothing")).unwrap();
        side.files.remove(&side.at("no/folder")).unwrap();
        assert_eq!(
            kind(side.files.rename(&side.at("nothing"), &side.at("x"))),
            io::ErrorKind::NotFound,
            "{}",
            side.name
        );
        side.files.write(&side.at("a"), b"a", Access::Private).unwrap();
        side.files.write(&side.at("b"), b"b", Access::Private).unwrap();
        let nowhere = side.files.rename(&side.at("a"), &side.at("no/folder"));
        assert_eq!(kind(nowhere), io::ErrorKind::NotFound, "{}", side.name);
        side.files.rename(&side.at("a"), &side.at("b")).unwrap();
        assert_eq!((side.content("a"), side.content("b")), (None, Some(b"a".to_vec())), "{}", side.name);
        assert_eq!(kind(side.files.set_access(&side.at("a"), Access::Private)), io::ErrorKind::NotFound);
    });
}

#[test]
fn a_list_has_the_plain_files_of_one_folder_by_name() {
    on_both(|side| {
        assert!(side.files.list(&side.at("nowhere")).unwrap().is_empty(), "{}", side.name);
        for (name, content) in [("f/b", "12"), ("f/a", "1"), ("f/deep/c", "123"), ("g", "")] {
            side.files.write(&side.at(name), content.as_bytes(), Access::Private).unwrap();
        }
        let listed = side.files.list(&side.at("f")).unwrap();
        let found: Vec<_> = listed.iter().map(|entry| (entry.name.as_str(), entry.len)).collect();
        assert_eq!(found, [("a", 1), ("b", 2)], "{}", side.name);
    });
}

#[test]
fn large_files_are_digested_and_copied_or_not_at_all() {
    on_both(|side| {
        let content: Vec<u8> = (0..200_000_u32).map(|at| at.to_le_bytes()[0]).collect();
        side.files.write(&side.at("from"), &content, Access::Private).unwrap();
        let (files, name) = (Rc::clone(&side.files), side.name);
        let (from, to, missing) = (side.at("from"), side.at("new/to"), side.at("missing"));
        (side.run)(Box::pin(async move {
            let digest = files.digest(&from).await.unwrap();
            assert_eq!((digest.sha256, digest.len), (image::sha256(&content), 200_000), "{name}");
            assert_eq!(files.copy(&from, &to, 200_000).await.unwrap(), 200_000);
            assert_eq!(files.digest(&to).await.unwrap(), digest, "{name}");
            assert_eq!(kind(files.copy(&from, &to, 199_999).await), io::ErrorKind::FileTooLarge, "{name}");
            assert_eq!(kind(files.digest(&missing).await), io::ErrorKind::NotFound, "{name}");
            assert_eq!(kind(files.copy(&missing, &to, 10).await), io::ErrorKind::NotFound, "{name}");
        }));
    });
}

#[test]
fn streams_are_unpacked_to_a_length_or_not_at_all() {
    on_both(|side| {
        let content: Vec<u8> = (0..50_000_u32).map(|at| at.to_le_bytes()[0]).collect();
        let good = image::xz(&content, 1 << 16);
        let doubled = [good.clone(), good.clone()].concat();
        let write = |name: &str, bytes: &[u8]| side.files.write(&side.at(name), bytes, Access::Private).unwrap();
        write("good", &good);
        write("doubled", &doubled);
        write("cut", &good[..good.len() / 2]);
        write("large", &image::xz(&content, 12 << 20));
        write("new", b"left by a power cut");
        let (files, name, root) = (Rc::clone(&side.files), side.name, side.root.clone());
        (side.run)(Box::pin(async move {
            let (from, to) = (|name: &str| root.join(name), root.join("new"));
            let digest = files.unpack(&from("good"), &to, 50_000).await.unwrap();
            assert_eq!((digest.sha256, digest.len), (image::sha256(&content), 50_000), "{name}");
            assert_eq!(files.digest(&to).await.unwrap(), digest, "{name}");
            for (packed, limit, words) in [
                ("good", 49_999, "unpacks to more than 49999 bytes"),
                ("doubled", 1 << 20, "something follows it"),
                ("cut", 1 << 20, "is not one whole xz stream"),
                ("large", 1 << 20, "a dictionary of more than 8 MiB"),
                ("missing", 1 << 20, "could not read"),
            ] {
                let error = files.unpack(&from(packed), &to, limit).await.unwrap_err().to_string();
                assert!(error.contains(words), "{name} {packed}: {error}");
                assert_eq!(files.read(&to, 100_000).unwrap(), None, "{name} {packed}: nothing is left");
            }
        }));
    });
}

#[test]
fn space_is_known_for_folders_that_will_be() {
    on_both(|side| {
        let space = side.files.space(&side.at("not/yet")).unwrap();
        assert!(space.free > 0 && space.free <= space.total, "{}", side.name);
    });
}
