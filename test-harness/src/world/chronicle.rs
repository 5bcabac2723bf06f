//! What happened in a world, one line per transition, as scenarios expect it.

use std::{
    cell::{Cell, RefCell},
    fmt::Write as _,
    rc::Rc,
    time::Duration,
};

use actors::kit::trace::Trace;
use board_sim::SimClock;

/// Lines kept; a scenario that needs more is two scenarios.
const LINES_MAX: usize = 100_000;

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// How long after the beginning of the world.
    pub at: Duration,
    /// Which actor, or "world".
    pub who: &'static str,
    /// What it did.
    pub text: String,
}

/// The chronicle of a world; goes on over reboots.
#[derive(Clone)]
pub struct Chronicle {
    clock: SimClock,
    lines: Rc<RefCell<Vec<Line>>>,
    transitions: Rc<Cell<u64>>,
}

impl Chronicle {
    /// An empty one.
    #[must_use]
    pub fn new(clock: &SimClock) -> Self {
        Chronicle { clock: clock.clone(), lines: Rc::default(), transitions: Rc::default() }
    }

    /// A trace for one life of the agent, whose entries are written down here.
    #[must_use]
    pub fn trace(&self) -> Trace {
        let (clock, lines, transitions) = (self.clock.clone(), Rc::clone(&self.lines), Rc::clone(&self.transitions));
        Trace::watched(move |entry| {
            transitions.set(transitions.get() + 1);
            let line = Line { at: clock.elapsed_at(entry.at), who: entry.actor.name(), text: entry.text.clone() };
            push(&lines, line);
        })
    }

    /// Writes down what was done to the world.
    pub fn note(&self, text: impl Into<String>) {
        push(&self.lines, Line { at: self.clock.elapsed(), who: "world", text: text.into() });
    }

    /// How often an actor went from one state to another, in all lives.
    #[must_use]
    pub fn transitions(&self) -> u64 {
        self.transitions.get()
    }

    /// Every line.
    #[must_use]
    pub fn lines(&self) -> Vec<Line> {
        self.lines.borrow().clone()
    }

    /// How many lines of `who` contain `text`.
    #[must_use]
    pub fn count(&self, who: &str, text: &str) -> usize {
        self.lines.borrow().iter().filter(|line| line.who == who && line.text.contains(text)).count()
    }

    /// `mm:ss  actor  text`, one line each.
    #[must_use]
    pub fn render(&self) -> String {
        let mut rendered = String::new();
        for Line { at, who, text } in self.lines.borrow().iter() {
            let secs = at.as_secs();
            let _ = writeln!(rendered, "{:02}:{:02}  {who:7} {}", secs / 60, secs % 60, text.trim_end());
        }
        rendered
    }

    /// The last lines, for the report of a failure.
    #[must_use]
    pub fn tail(&self, lines: usize) -> String {
        let rendered = self.render();
        let all: Vec<_> = rendered.lines().collect();
        all.get(all.len().saturating_sub(lines)..).unwrap_or_default().join("\n")
    }
}

fn push(lines: &RefCell<Vec<Line>>, line: Line) {
    let mut lines = lines.borrow_mut();
    if lines.len() < LINES_MAX {
        lines.push(line);
    }
}
