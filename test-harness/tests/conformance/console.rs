//! The console: a Unix socket on this machine, somebody with manners or without in the simulation.

use std::{
    io::{Read as _, Write as _},
    os::unix::net::UnixStream,
    path::PathBuf,
    pin::Pin,
    rc::Rc,
    thread::JoinHandle,
    time::Duration,
};

use board::console::{ANSWER_BYTES_MAX, ASKING_TAKES_MAX, Console, QUESTION_BYTES_MAX, READING_TAKES_MAX};
use board_linux::clock::LinuxClock;
use board_sim::{
    Driver, SimBoard, SimConsole,
    console::{Conversation, Manner, Outcome},
};
use smol::{LocalExecutor, future::FutureExt as _};

/// Only reached when something is broken.
const PATIENCE: Duration = Duration::from_secs(60);
/// Somebody at the device.
enum Asker {
    Real(JoinHandle<Outcome>),
    Simulated(Conversation),
}

impl Asker {
    /// What became of it, once the agent has let go.
    fn outcome(self) -> Outcome {
        match self {
            Asker::Real(thread) => thread.join().unwrap(),
            Asker::Simulated(conversation) => conversation.outcome(),
        }
    }
}

/// One side: where to ask, and who hears it.
struct Side {
    name: &'static str,
    console: Rc<dyn Console>,
    folder: PathBuf,
    simulated: Option<SimConsole>,
}

impl Side {
    fn ask(&self, manner: Manner) -> Asker {
        if let Some(console) = &self.simulated {
            return Asker::Simulated(console.ask(manner));
        }
        // Connected here, so that who asks first is heard first.
        let stream = board_linux::console::ask(&self.folder, PATIENCE).unwrap();
        Asker::Real(std::thread::spawn(move || ask(stream, &manner)))
    }

    async fn heard(&self, words: &str, answer: &[u8]) {
        let question = self.console.next().await;
        assert_eq!(question.words(), words, "{}", self.name);
        question.answer(answer).await;
    }
}

/// A silent one waits for the agent to let go, and so does one that does not read: neither looks at a clock.
fn ask(mut stream: UnixStream, manner: &Manner) -> Outcome {
    if manner.asking_takes > ASKING_TAKES_MAX {
        let ended = stream.read(&mut [0]).unwrap();
        assert_eq!(ended, 0, "nothing to answer");
        return Outcome::CutOff;
    }
    stream.write_all(&manner.says).unwrap();
    if manner.reading_takes > READING_TAKES_MAX {
        // A write succeeds for as long as the other end is there.
        while stream.write_all(b".").is_ok() {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    let mut answer = Vec::new();
    // Who says more than is heard may find the end reset, after the answer.
    let _ = stream.read_to_end(&mut answer);
    let in_time = manner.reading_takes <= READING_TAKES_MAX;
    if in_time && !answer.is_empty() { Outcome::Answered(answer) } else { Outcome::CutOff }
}

type Check = fn(Side) -> Pin<Box<dyn Future<Output = ()>>>;

fn on_both(check: Check) {
    let folder = tempfile::tempdir().unwrap();
    let executor = Rc::new(LocalExecutor::new());
    let clock = Rc::new(LinuxClock::new(&executor).unwrap());
    let console = Rc::new(board_linux::console::LinuxConsole::new(folder.path(), clock));
    let side = Side { name: "real", console, folder: folder.path().to_owned(), simulated: None };
    let patience = async {
        smol::Timer::after(PATIENCE).await;
        panic!("nothing happened for {PATIENCE:?}")
    };
    smol::block_on(executor.run(check(side).or(patience)));

    let sim = SimBoard::new(1);
    let (board, driver) = (sim.switch_on(), Driver::new(&sim));
    let simulated = Some(sim.console.clone());
    driver.block_on(check(Side { name: "simulated", console: board.console, folder: PathBuf::new(), simulated }));
}

#[test]
fn those_who_ask_are_answered_one_after_the_other() {
    on_both(|side| {
        Box::pin(async move {
            let first = side.ask(Manner::polite("status"));
            let second = side.ask(Manner::polite("status again\r"));
            side.heard("status", b"well").await;
            side.heard("status again", b"still well").await;
            assert_eq!(first.outcome(), Outcome::Answered(b"well".to_vec()), "{}", side.name);
            assert_eq!(second.outcome(), Outcome::Answered(b"still well".to_vec()), "{}", side.name);
        })
    });
}

#[test]
fn of_an_endless_question_the_beginning_is_heard() {
    on_both(|side| {
        Box::pin(async move {
            let endless = Manner { says: vec![b'x'; 10_000], ..Manner::polite("") };
            let asker = side.ask(endless);
            side.heard(&"x".repeat(QUESTION_BYTES_MAX), b"what?").await;
            assert_eq!(asker.outcome(), Outcome::Answered(b"what?".to_vec()), "{}", side.name);
            let asker = side.ask(Manner { says: b"\xff\xfe\n".to_vec(), ..Manner::polite("") });
            side.heard("\u{fffd}\u{fffd}", b"what?").await;
            assert_eq!(asker.outcome(), Outcome::Answered(b"what?".to_vec()), "{}", side.name);
        })
    });
}

#[test]
fn who_says_nothing_holds_nobody_up() {
    on_both(|side| {
        Box::pin(async move {
            let silent = side.ask(Manner { asking_takes: PATIENCE, ..Manner::polite("late") });
            let empty = side.ask(Manner::polite(""));
            let next = side.ask(Manner::polite("status"));
            side.heard("status", b"well").await;
            assert_eq!(silent.outcome(), Outcome::CutOff, "{}", side.name);
            assert_eq!(empty.outcome(), Outcome::CutOff, "{}", side.name);
            assert_eq!(next.outcome(), Outcome::Answered(b"well".to_vec()), "{}", side.name);
        })
    });
}

#[test]
fn who_does_not_read_is_let_go() {
    on_both(|side| {
        Box::pin(async move {
            let slow = side.ask(Manner { reading_takes: PATIENCE, ..Manner::polite("status") });
            let next = side.ask(Manner::polite("status"));
            side.heard("status", &vec![b'.'; ANSWER_BYTES_MAX]).await;
            side.heard("status", b"well").await;
            assert_eq!(slow.outcome(), Outcome::CutOff, "{}", side.name);
            assert_eq!(next.outcome(), Outcome::Answered(b"well".to_vec()), "{}", side.name);
        })
    });
}

#[test]
fn a_question_that_is_dropped_and_an_answer_that_is_too_long_end_it() {
    on_both(|side| {
        Box::pin(async move {
            let dropped = side.ask(Manner::polite("status"));
            drop(side.console.next().await);
            assert_eq!(dropped.outcome(), Outcome::CutOff, "{}", side.name);
            let too_long = side.ask(Manner::polite("status"));
            side.heard("status", &vec![b'.'; ANSWER_BYTES_MAX + 1]).await;
            assert_eq!(too_long.outcome(), Outcome::CutOff, "{}", side.name);
        })
    });
}
