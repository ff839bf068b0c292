//! What a port's pump does: it receives in turn from all peers, and sends what was posted.

use std::task::{Context, Poll};

use super::{FollowUp, Parcel, Port, Protocol, Ticket, inbox::Found, slots::Arrived};
use crate::ShardId;

/// Parcels posted before a busy pump sends them. An idle one sends what there is.
const BATCH_PARCELS: usize = 64;

/// What comes in at a port.
pub enum Incoming<P: Protocol> {
    /// A peer asks. [`Port::answer`] is owed, exactly once.
    Ask {
        /// Names the question.
        ticket: Ticket,
        /// The question.
        ask: P::Ask,
    },
    /// Nobody waits for the answer to this question any more. The answer is still owed if it was not given yet; if it
    /// was, this means nothing.
    Cancel {
        /// Names the question.
        ticket: Ticket,
    },
    /// What a peer says after an answer.
    Tell {
        /// The peer.
        from: ShardId,
        /// What it says.
        tell: P::Tell,
    },
    /// The answer to a question that was dropped meanwhile: whoever pumps gives its contents back.
    Orphan {
        /// The answer.
        answer: P::Answer,
        /// As in a [`Reply`](super::Reply).
        follow: FollowUp<P>,
    },
}

impl<P: Protocol> Port<P> {
    /// The next of what peers ask and tell: in order per peer, and the peers in turn. One task calls it in a loop until
    /// it is pending; replies reach their tasks meanwhile, and what was posted is sent.
    pub fn poll_incoming(&self, cx: &mut Context<'_>) -> Poll<Incoming<P>> {
        let shared = &*self.shared;
        if shared.pump_sleeps.replace(false) {
            shared.inbox.borrow().awake();
        }
        loop {
            let orphan = shared.slots.borrow_mut().next_orphan();
            if let Some((charge, answer)) = orphan {
                return Poll::Ready(Incoming::Orphan { answer, follow: FollowUp::new(self.clone(), charge) });
            }
            if shared.outboxes.borrow().posted() >= BATCH_PARCELS {
                self.flush();
            }
            let found = shared.inbox.borrow_mut().next();
            match found {
                Found::Parcel(from, parcel) => {
                    if let Some(incoming) = self.receive(from, parcel) {
                        return Poll::Ready(incoming);
                    }
                }
                Found::OwesRoom(peer) => self.ring(peer),
                Found::Nothing => {
                    if self.collect() {
                        continue;
                    }
                    self.flush();
                    if shared.inbox.borrow_mut().sleep(cx.waker()) {
                        shared.pump_sleeps.set(true);
                        return Poll::Pending;
                    }
                }
            }
        }
    }

    /// Deals with one parcel. Replies go to the task that waits; the rest is the pump's.
    fn receive(&self, from: ShardId, parcel: Parcel<P>) -> Option<Incoming<P>> {
        match parcel {
            Parcel::Ask { id, ask } => Some(Incoming::Ask { ticket: Ticket { from, id }, ask }),
            Parcel::Cancel { id } => Some(Incoming::Cancel { ticket: Ticket { from, id } }),
            Parcel::Tell(tell) => Some(Incoming::Tell { from, tell }),
            Parcel::Answer { id, answer } => {
                let arrived = self.shared.slots.borrow_mut().answered(from, id, answer);
                match arrived {
                    Arrived::Waited(waker) => {
                        if let Some(waker) = waker {
                            waker.wake();
                        }
                        None
                    }
                    Arrived::Orphan(charge, answer) => {
                        Some(Incoming::Orphan { answer, follow: FollowUp::new(self.clone(), charge) })
                    }
                }
            }
        }
    }

    /// Notes which peers rang: their lanes have something, or those to them have room.
    fn collect(&self) -> bool {
        let mut outboxes = self.shared.outboxes.borrow_mut();
        self.shared.inbox.borrow_mut().collect(|peer| outboxes.room_told(peer))
    }

    /// Sends what was posted, as far as the lanes have room, and rings each peer once.
    fn flush(&self) {
        let mut to_ring = self.shared.to_ring.take();
        self.shared.outboxes.borrow_mut().flush(&mut to_ring);
        for peer in to_ring.drain(..) {
            self.ring(peer);
        }
        self.shared.to_ring.set(to_ring);
    }

    fn ring(&self, peer: ShardId) {
        let woke = self.shared.ringers[usize::from(peer)].ring();
        self.shared.wakes_sent.set(self.shared.wakes_sent.get() + u64::from(woke));
    }
}
