//! Questions and answers between shards, over lanes.
//!
//! A [`Port`] is one shard's end of a mesh. It lives on its executor (it is an `Rc`), and exactly one task pumps it
//! with [`Port::poll_incoming`]: that task receives what the peers ask and tell, and it is also what sends. Nothing
//! leaves a port while its pump is not polled, and everything that was sent while the executor ran other tasks leaves
//! in one batch: one release store and at most one wake per peer.
//!
//! # One question
//!
//! ```text
//! asker                                  answerer
//! ask() ── takes a credit
//!         ─ Ask ─────────────────────►   Incoming::Ask { ticket, ask }
//!         ─ Cancel (if dropped early) ►  Incoming::Cancel { ticket }
//!         ◄──────────────── Answer ─     answer(ticket, ..), exactly once, cancelled or not
//! Reply { answer, follow }
//!         ─ Tell (if follow.tell()) ──►  Incoming::Tell { from, tell }
//! credit goes back when `follow` is used or dropped
//! ```
//!
//! A question that was dropped before its answer came leaves an [`Incoming::Orphan`] with the answer at the asker's
//! own pump, which gives back what is in it. A cancel and an answer may cross: a cancel for a ticket that is answered
//! already means nothing.
//!
//! # Why nothing deadlocks
//!
//! Nothing here ever waits for room in a lane. What the ring does not take waits in the sender's outbox, a plain
//! queue, and the outbox is bounded by construction. Towards one peer it holds, with `C` credits and `P` unanswered
//! parked questions (which the caller bounds by its own limit):
//!
//! - asks: each holds its credit or its parked place until it is answered, and it can't be answered before it left.
//!   At most `C + P`.
//! - cancels: one per unanswered question at most. A cancel left behind by an answer that crossed it was in the
//!   outbox while its question was in flight, ahead of every question asked since. At most `2 (C + P)`.
//! - tells: one per answered question. The outbox is first in, first out, so all tells in it belong to questions that
//!   were in flight when its oldest parcel came in. At most `C + P`.
//! - answers: one per question taken from that peer, whose credit stays with the peer until the answer is there. At
//!   most the peer's `C + P`.
//!
//! A sender whose ring is full marks the lane as short of room and sleeps; the receiver, having taken from the lane,
//! rings the sender's doorbell. Both directions of every pair progress independently of each other: a full lane holds
//! up its own direction only, and a pump that is polled always empties what comes in, whatever is stuck going out.

mod asked;
mod counters;
mod inbox;
mod mesh;
mod outbox;
mod pump;
mod slots;

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

pub use asked::{Asked, FollowUp, Overloaded, Reply};
pub use counters::{PeerCounters, PortCounters};
pub use mesh::{MeshOptions, PortSeed, mesh};
pub use pump::Incoming;

use crate::{ShardId, lane::wake::Ringer};
use inbox::Inbox;
use outbox::Outboxes;
use slots::{Charge, Slots};

/// The messages of one mesh.
///
/// Each type is at most 48 bytes, which is checked when the mesh is compiled: box what is larger, so that a parcel is
/// at most [`PARCEL_BYTES_MAX`].
pub trait Protocol: 'static {
    /// A question. Exactly one [`Answer`](Self::Answer) comes back for it.
    type Ask: Send + 'static;
    /// What an asker says after an answer, for example that it could not be delivered.
    type Tell: Send + 'static;
    /// The answer to a question.
    type Answer: Send + 'static;
}

/// The largest parcel in bytes: one cache line.
pub const PARCEL_BYTES_MAX: usize = 64;

/// Names one question of a peer, for its answer. Unique among the questions of that peer that are unanswered here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    /// The shard that asked.
    pub from: ShardId,
    /// The asker's number for the question.
    pub id: u32,
}

/// What travels in a lane.
enum Parcel<P: Protocol> {
    Ask { id: u32, ask: P::Ask },
    Cancel { id: u32 },
    Answer { id: u32, answer: P::Answer },
    Tell(P::Tell),
}

/// One shard's end of a mesh. Clones are the same port.
pub struct Port<P: Protocol> {
    shared: Rc<Shared<P>>,
}

/// What the clones of a port share. No borrow of a cell lives across a wake or any other foreign code.
struct Shared<P: Protocol> {
    id: ShardId,
    /// This port's side of each peer's doorbell.
    ringers: Box<[Ringer]>,
    outboxes: RefCell<Outboxes<P>>,
    inbox: RefCell<Inbox<P>>,
    slots: RefCell<Slots<P>>,
    /// The pump's last poll returned pending, and nothing in here has woken it since.
    pump_sleeps: Cell<bool>,
    /// Peers whose pump slept and was woken from here.
    wakes_sent: Cell<u64>,
    /// The peers that a flush has to ring, kept for its memory.
    to_ring: Cell<Vec<ShardId>>,
}

impl<P: Protocol> Clone for Port<P> {
    fn clone(&self) -> Self {
        Self { shared: Rc::clone(&self.shared) }
    }
}

impl<P: Protocol> Shared<P> {
    fn new(id: ShardId, ringers: Box<[Ringer]>, outboxes: Outboxes<P>, inbox: Inbox<P>) -> Self {
        Self {
            id,
            ringers,
            outboxes: RefCell::new(outboxes),
            inbox: RefCell::new(inbox),
            slots: RefCell::new(Slots::new()),
            pump_sleeps: Cell::new(false),
            wakes_sent: Cell::new(0),
            to_ring: Cell::new(Vec::new()),
        }
    }

    /// Queues a parcel for `to`; the pump sends it.
    fn post(&self, to: ShardId, parcel: Parcel<P>) {
        self.outboxes.borrow_mut().post(to, parcel);
        self.wake_pump();
    }

    /// Lets the pump run if it sleeps. A pump that was told `Ready` polls again of its own accord.
    fn wake_pump(&self) {
        if self.pump_sleeps.replace(false) {
            let waker = {
                let inbox = self.inbox.borrow();
                inbox.awake();
                inbox.waker()
            };
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }
}

impl<P: Protocol> Port<P> {
    /// This shard's number in the mesh.
    #[must_use]
    pub fn id(&self) -> ShardId {
        self.shared.id
    }

    /// Number of shards in the mesh, this one included.
    #[must_use]
    pub fn shards(&self) -> usize {
        self.shared.ringers.len()
    }

    /// Asks `to`, for a credit that is held until the reply's [`FollowUp`] is used or dropped.
    ///
    /// # Errors
    ///
    /// Gives the question back when all credits towards `to` are in use: too many questions wait for its answers.
    ///
    /// # Panics
    ///
    /// When there is no shard `to`, here and in the other calls.
    pub fn ask(&self, to: ShardId, ask: P::Ask) -> Result<Asked<P>, Overloaded<P::Ask>> {
        if !self.shared.outboxes.borrow_mut().take_credit(to) {
            return Err(Overloaded(ask));
        }
        Ok(self.send_ask(Charge { to, credited: true }, ask))
    }

    /// Asks `to` what may stay unanswered for long, such as a pop that waits. No credit is taken: the caller bounds
    /// how many of these are out by a limit of its own.
    pub fn ask_parked(&self, to: ShardId, ask: P::Ask) -> Asked<P> {
        self.send_ask(Charge { to, credited: false }, ask)
    }

    /// Answers a question, exactly once, also if it was cancelled. Never waits and never fails.
    pub fn answer(&self, ticket: Ticket, answer: P::Answer) {
        self.shared.post(ticket.from, Parcel::Answer { id: ticket.id, answer });
    }

    /// What the port has counted, and how full it is now.
    #[must_use]
    pub fn counters(&self) -> PortCounters {
        PortCounters {
            peers: self.shared.outboxes.borrow().counters(),
            unanswered: self.shared.slots.borrow().unanswered(),
            sleeps: self.shared.inbox.borrow().sleeps(),
            wakes_sent: self.shared.wakes_sent.get(),
        }
    }

    fn send_ask(&self, charge: Charge, ask: P::Ask) -> Asked<P> {
        let id = self.shared.slots.borrow_mut().open(charge);
        self.shared.post(charge.to, Parcel::Ask { id, ask });
        Asked::new(self.clone(), id)
    }
}
