//! The simulated door: people near the device who ask it something by HTTP.
//!
//! As strict as a network: nobody gets in where nothing listens, no more at a time than there is room for, and whoever
//! was inside when it closed is cut off.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    future::poll_fn,
    io,
    net::IpAddr,
    rc::Rc,
    task::{Poll, Waker},
};

use async_trait::async_trait;
use board::doorway::{
    BODY_BYTES_MAX, Doorway, DoorwayError, EACH_MAX, Knock, Open, Request, Response, SocketAddrV4, VISITORS_MAX,
};

use crate::power::Alive;

/// What became of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Answer {
    /// It waits.
    #[default]
    Open,
    /// Nobody listens there.
    Refused,
    /// The connection ended without an answer.
    CutOff,
    /// The answer.
    Given(Response),
}

/// A request on its way, as the visitor sees it.
#[derive(Clone, Default)]
pub struct Exchange {
    answer: Rc<RefCell<Answer>>,
}

impl Exchange {
    /// How it stands.
    #[must_use]
    pub fn answer(&self) -> Answer {
        self.answer.borrow().clone()
    }

    fn end(&self, with: Answer) {
        let mut answer = self.answer.borrow_mut();
        if *answer == Answer::Open {
            *answer = with;
        }
    }
}

/// A listener and who stands before it.
#[derive(Default)]
struct Hall {
    address: Option<SocketAddrV4>,
    waiting: VecDeque<(Request, Exchange)>,
    listener: Option<Waker>,
    /// Whose connections are open.
    inside: Vec<IpAddr>,
    /// Rises with each opening: who came before is not let in by the next.
    opening: u64,
}

/// The doorway, as the test sees it.
#[derive(Clone, Default)]
pub struct SimDoorway {
    hall: Rc<RefCell<Hall>>,
    /// Another program has the port.
    taken: Rc<Cell<bool>>,
    opened: Rc<Cell<u32>>,
}

impl SimDoorway {
    /// Somebody asks. Refused at once where nobody listens.
    ///
    /// # Panics
    /// When the body is longer than the port lets pass: such a visitor never reaches the agent.
    #[must_use]
    pub fn knock(&self, request: Request) -> Exchange {
        assert!(request.body.len() <= BODY_BYTES_MAX, "the port does not let this pass");
        let exchange = Exchange::default();
        let mut hall = self.hall.borrow_mut();
        let whose = request.visitor.ip();
        let his = hall.inside.iter().filter(|one| **one == whose).count();
        if hall.address.is_none() || hall.inside.len() >= VISITORS_MAX || his >= EACH_MAX {
            exchange.end(Answer::Refused);
            return exchange;
        }
        hall.inside.push(whose);
        hall.waiting.push_back((request, exchange.clone()));
        if let Some(listener) = hall.listener.take() {
            listener.wake();
        }
        exchange
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddrV4> {
        self.hall.borrow().address
    }

    /// How often it was opened.
    #[must_use]
    pub fn opened(&self) -> u32 {
        self.opened.get()
    }

    /// From now on another program has the port, or lets it go.
    pub fn take_port(&self, taken: bool) {
        self.taken.set(taken);
    }

    /// The agent is gone: who was inside is cut off.
    pub(crate) fn agent_went(&self) {
        self.close();
    }

    fn close(&self) {
        let mut hall = self.hall.borrow_mut();
        hall.address = None;
        hall.inside.clear();
        hall.opening += 1;
        hall.listener = None;
        for (_, exchange) in hall.waiting.drain(..) {
            exchange.end(Answer::CutOff);
        }
    }
}

/// The doorway as the agent of one life sees it.
pub(crate) struct DoorwayPort {
    pub(crate) doorway: SimDoorway,
    pub(crate) alive: Alive,
}

#[async_trait(?Send)]
impl Doorway for DoorwayPort {
    async fn open(&self, address: SocketAddrV4) -> Result<Rc<dyn Open>, DoorwayError> {
        self.alive.or_for_ever().await;
        let SimDoorway { hall, taken, opened } = &self.doorway;
        if taken.get() || hall.borrow().address.is_some() {
            return Err(DoorwayError { address, source: io::ErrorKind::AddrInUse.into() });
        }
        opened.set(opened.get() + 1);
        hall.borrow_mut().address = Some(address);
        let opening = hall.borrow().opening;
        Ok(Rc::new(Listener { doorway: self.doorway.clone(), alive: self.alive.clone(), address, opening }))
    }
}

struct Listener {
    doorway: SimDoorway,
    alive: Alive,
    address: SocketAddrV4,
    opening: u64,
}

impl Drop for Listener {
    fn drop(&mut self) {
        if self.alive.get() && self.doorway.hall.borrow().opening == self.opening {
            self.doorway.close();
        }
    }
}

#[async_trait(?Send)]
impl Open for Listener {
    fn address(&self) -> SocketAddrV4 {
        self.address
    }

    async fn next(&self) -> Box<dyn Knock> {
        let (request, exchange) = poll_fn(|context| {
            let mut hall = self.doorway.hall.borrow_mut();
            if !self.alive.get() || hall.opening != self.opening {
                return Poll::Pending;
            }
            match hall.waiting.pop_front() {
                Some(visitor) => Poll::Ready(visitor),
                None => {
                    hall.listener = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await;
        Box::new(Visitor { request, exchange, doorway: self.doorway.clone(), opening: self.opening })
    }
}

struct Visitor {
    request: Request,
    exchange: Exchange,
    doorway: SimDoorway,
    opening: u64,
}

impl Drop for Visitor {
    fn drop(&mut self) {
        self.exchange.end(Answer::CutOff);
        let mut hall = self.doorway.hall.borrow_mut();
        if hall.opening == self.opening {
            let whose = self.request.visitor.ip();
            if let Some(at) = hall.inside.iter().position(|one| *one == whose) {
                hall.inside.swap_remove(at);
            }
        }
    }
}

#[async_trait(?Send)]
impl Knock for Visitor {
    fn request(&self) -> &Request {
        &self.request
    }

    async fn answer(self: Box<Self>, response: Response) {
        for (_, value) in &response.headers {
            assert!(!value.contains(['\r', '\n']), "a header with a line break is two headers");
        }
        if self.doorway.hall.borrow().opening == self.opening {
            self.exchange.end(Answer::Given(response));
        }
    }
}
