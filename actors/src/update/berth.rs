//! One at a time: what the two products share.
//!
//! There is room for one unfinished download on a small disk, and one walk through the trusted documents at a time.
//! Whoever asks first has it until it is done. Where both begin together the agent's own update asks first: it is small,
//! and a newer agent may be the cure for what ails the other download.

use std::{cell::Cell, rc::Rc};

use api::pb::platform::fleet::v1::Product;

use crate::kit::latest::Latest;

/// Tickets below are products.
const FIRST_TICKET: u64 = 100;

/// A place for one.
#[derive(Clone)]
pub struct Berth {
    holder: Latest<Option<u64>>,
    next: Rc<Cell<u64>>,
}

impl Berth {
    /// A free one, known to others by `holder`.
    #[must_use]
    pub fn new(holder: Latest<Option<u64>>) -> Self {
        Berth { holder, next: Rc::new(Cell::new(FIRST_TICKET)) }
    }

    /// Takes it for a product if it is free; says whether the product has it now.
    pub fn try_take(&self, product: Product) -> bool {
        self.try_ticket(ticket(product))
    }

    /// Waits until the product has it, and says whether it had not had it before. Cancel-safe.
    pub async fn take(&self, product: Product) -> bool {
        let had = self.holder.get().flatten() == Some(ticket(product));
        self.take_ticket(ticket(product)).await;
        !had
    }

    /// Gives it up, if the product has it.
    pub fn leave(&self, product: Product) {
        self.leave_ticket(ticket(product));
    }

    /// Has it, whoever asks, until the result is dropped.
    pub async fn hold(&self) -> Held {
        let ticket = self.next.get();
        self.next.set(ticket + 1);
        self.take_ticket(ticket).await;
        Held { berth: self.clone(), ticket }
    }

    fn try_ticket(&self, ticket: u64) -> bool {
        let holder = self.holder.get().flatten();
        if holder.is_none() {
            self.holder.publish(Some(ticket));
        }
        holder.is_none_or(|holder| holder == ticket)
    }

    async fn take_ticket(&self, ticket: u64) {
        let mut holder = self.holder.watch();
        while !self.try_ticket(ticket) {
            holder.changed().await;
        }
    }

    fn leave_ticket(&self, ticket: u64) {
        if self.holder.get().flatten() == Some(ticket) {
            self.holder.publish(None);
        }
    }
}

fn ticket(product: Product) -> u64 {
    u64::try_from(product as i32).unwrap_or_default()
}

/// A berth that is held.
pub struct Held {
    berth: Berth,
    ticket: u64,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.berth.leave_ticket(self.ticket);
    }
}
