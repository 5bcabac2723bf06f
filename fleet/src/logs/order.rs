//! The order of an answer: blocks overlap in time, a page does not.
//!
//! Pure. Blocks are put in by their outer edge (newest first: by their last time, falling), and an entry comes out as
//! soon as no block still to come can hold one that belongs before it. So a page needs only the blocks around it.

use std::{cmp::Reverse, collections::BinaryHeap};

use api::pb::platform::common::v1::LogEntry;

use super::block::time_of;
use crate::clock::Millis;

/// The place of an entry among all entries of a part: no two have the same, and it never changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// Its time.
    pub at: Millis,
    /// The block it is in; blocks are numbered as they arrive.
    pub block: i64,
    /// Its index in the block.
    pub index: i64,
}

/// Which end comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// Newest first.
    #[default]
    Falling,
    /// Oldest first.
    Rising,
}

/// Entries of opened blocks, waiting for their turn.
pub struct Merge {
    order: Order,
    waiting: BinaryHeap<Waiting>,
}

struct Waiting {
    /// Largest first out of the heap: the place itself, or its reverse.
    turn: Turn,
    entry: LogEntry,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Turn {
    Falling(Place),
    Rising(Reverse<Place>),
}

impl Merge {
    /// Nothing opened yet.
    pub fn new(order: Order) -> Self {
        Self { order, waiting: BinaryHeap::new() }
    }

    /// Takes in the entries of a block, each with its index there, that `wanted` lets pass.
    pub fn open(
        &mut self,
        block: i64,
        entries: Vec<(i64, LogEntry)>,
        mut wanted: impl FnMut(Place, &LogEntry) -> bool,
    ) {
        for (index, entry) in entries {
            let place = Place { at: time_of(&entry), block, index };
            if wanted(place, &entry) {
                let turn = match self.order {
                    Order::Falling => Turn::Falling(place),
                    Order::Rising => Turn::Rising(Reverse(place)),
                };
                self.waiting.push(Waiting { turn, entry });
            }
        }
    }

    /// The next entry, if nothing in blocks whose outer edge is at `edge` or further can come before it.
    /// `None` for the edge: every block is open.
    pub fn next(&mut self, edge: Option<Millis>) -> Option<(Place, LogEntry)> {
        let place = self.waiting.peek()?.place();
        let certain = match (self.order, edge) {
            (_, None) => true,
            (Order::Falling, Some(edge)) => place.at > edge,
            (Order::Rising, Some(edge)) => place.at < edge,
        };
        if !certain {
            return None;
        }
        self.waiting.pop().map(|waiting| (place, waiting.entry))
    }
}

impl Waiting {
    fn place(&self) -> Place {
        match self.turn {
            Turn::Falling(place) | Turn::Rising(Reverse(place)) => place,
        }
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.turn == other.turn
    }
}

impl Eq for Waiting {}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.turn.cmp(&other.turn)
    }
}
