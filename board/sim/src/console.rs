//! Somebody at the simulated device, who asks and may be rude.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    future::poll_fn,
    rc::Rc,
    task::{Poll, Waker},
    time::Duration,
};

use async_trait::async_trait;
use board::console::{ANSWER_BYTES_MAX, ASKING_TAKES_MAX, Console, QUESTION_BYTES_MAX, Question, READING_TAKES_MAX};

use crate::{clock::SimClock, power::Alive};

/// How somebody asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manner {
    /// What is said; up to the first line break it is the question.
    pub says: Vec<u8>,
    /// How long saying it takes.
    pub asking_takes: Duration,
    /// How long reading the answer takes.
    pub reading_takes: Duration,
}

impl Manner {
    /// Says this line at once and reads the answer at once.
    #[must_use]
    pub fn polite(line: &str) -> Manner {
        let says = format!("{line}\n").into_bytes();
        Manner { says, asking_takes: Duration::ZERO, reading_takes: Duration::ZERO }
    }
}

/// What became of a conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Outcome {
    /// It is not over.
    #[default]
    Open,
    /// The answer.
    Answered(Vec<u8>),
    /// It ended without an answer, or before it was read.
    CutOff,
}

/// One conversation, as the asker sees it.
#[derive(Clone, Default)]
pub struct Conversation {
    outcome: Rc<RefCell<Outcome>>,
}

impl Conversation {
    /// How it stands.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        self.outcome.borrow().clone()
    }

    fn end(&self, with: Outcome) {
        let mut outcome = self.outcome.borrow_mut();
        if *outcome == Outcome::Open {
            *outcome = with;
        }
    }
}

/// The console, as the test sees it.
#[derive(Clone)]
pub struct SimConsole {
    clock: SimClock,
    waiting: Rc<RefCell<VecDeque<(Manner, Conversation)>>>,
    listener: Rc<Cell<Option<Waker>>>,
}

impl SimConsole {
    pub(crate) fn new(clock: &SimClock) -> Self {
        SimConsole { clock: clock.clone(), waiting: Rc::default(), listener: Rc::default() }
    }

    /// Somebody asks; who asked before is heard before.
    pub fn ask(&self, manner: Manner) -> Conversation {
        let conversation = Conversation::default();
        self.waiting.borrow_mut().push_back((manner, conversation.clone()));
        if let Some(listener) = self.listener.take() {
            listener.wake();
        }
        conversation
    }

    /// The agent is gone: who waited is sent away.
    pub(crate) fn agent_went(&self) {
        self.listener.take();
        for (_, conversation) in self.waiting.borrow_mut().drain(..) {
            conversation.end(Outcome::CutOff);
        }
    }

    async fn accept(&self) -> (Manner, Conversation) {
        poll_fn(|context| match self.waiting.borrow_mut().pop_front() {
            Some(asker) => Poll::Ready(asker),
            None => {
                self.listener.set(Some(context.waker().clone()));
                Poll::Pending
            }
        })
        .await
    }
}

/// The console as the agent of one boot sees it.
pub(crate) struct ConsolePort {
    pub(crate) console: SimConsole,
    pub(crate) alive: Alive,
}

#[async_trait(?Send)]
impl Console for ConsolePort {
    async fn next(&self) -> Box<dyn Question> {
        loop {
            let (manner, conversation) = self.console.accept().await;
            if !self.alive.get() {
                return std::future::pending().await;
            }
            pause(&self.console.clock, manner.asking_takes.min(ASKING_TAKES_MAX)).await;
            let line = manner.says.split(|&byte| byte == b'\n').next().unwrap_or_default();
            let line = String::from_utf8_lossy(&line[..line.len().min(QUESTION_BYTES_MAX)]).into_owned();
            let asked = Asked {
                words: line.trim_end_matches('\r').to_owned(),
                manner,
                conversation,
                console: self.console.clone(),
            };
            if asked.manner.asking_takes < ASKING_TAKES_MAX && !asked.words.is_empty() {
                return Box::new(asked);
            }
        }
    }
}

async fn pause(clock: &SimClock, time: Duration) {
    let (over, sleeper): (Rc<Cell<bool>>, Rc<Cell<Option<Waker>>>) = Default::default();
    if time.is_zero() {
        return;
    }
    let (rings, woken) = (Rc::clone(&over), Rc::clone(&sleeper));
    clock.happens_after(time, move || {
        rings.set(true);
        if let Some(waker) = woken.take() {
            waker.wake();
        }
    });
    poll_fn(|context| {
        if over.get() {
            return Poll::Ready(());
        }
        sleeper.set(Some(context.waker().clone()));
        Poll::Pending
    })
    .await;
}

struct Asked {
    words: String,
    manner: Manner,
    conversation: Conversation,
    console: SimConsole,
}

/// A question that is dropped is a conversation that is over.
impl Drop for Asked {
    fn drop(&mut self) {
        self.conversation.end(Outcome::CutOff);
    }
}

#[async_trait(?Send)]
impl Question for Asked {
    fn words(&self) -> &str {
        &self.words
    }

    async fn answer(self: Box<Self>, answer: &[u8]) {
        pause(&self.console.clock, self.manner.reading_takes.min(READING_TAKES_MAX)).await;
        if answer.len() <= ANSWER_BYTES_MAX && self.manner.reading_takes < READING_TAKES_MAX {
            self.conversation.end(Outcome::Answered(answer.to_vec()));
        }
    }
}
