//! A question that was asked, its reply, and what may follow.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use super::{Parcel, Port, Protocol, slots::Charge};

/// All credits towards a shard are in use. Holds the question, so that the caller can answer it otherwise.
#[derive(Debug, thiserror::Error)]
#[error("too many requests wait for another shard")]
pub struct Overloaded<A>(pub A);

/// A question that was asked: a future of its reply.
///
/// Dropped before the answer was taken, it sends a cancel, and the answer comes to the pump as
/// [`Incoming::Orphan`](super::Incoming::Orphan).
#[must_use = "dropping it cancels the question"]
pub struct Asked<P: Protocol> {
    port: Port<P>,
    /// None once the reply was taken.
    id: Option<u32>,
}

/// The answer to a question.
#[must_use = "the answer's contents are lost, and what follows it is dropped"]
pub struct Reply<P: Protocol> {
    /// What the peer answered.
    pub answer: P::Answer,
    /// Tells the peer what became of the answer. The question's credit is held until this is used or dropped.
    pub follow: FollowUp<P>,
}

/// The chance to tell the peer what became of its answer. Dropped, nothing needs telling.
pub struct FollowUp<P: Protocol> {
    port: Port<P>,
    charge: Charge,
}

impl<P: Protocol> Asked<P> {
    pub(super) fn new(port: Port<P>, id: u32) -> Self {
        Self { port, id: Some(id) }
    }
}

impl<P: Protocol> Future for Asked<P> {
    type Output = Reply<P>;

    /// # Panics
    ///
    /// When polled after it was ready.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Reply<P>> {
        let id = self.id.expect("a question is not polled after its reply");
        let Some((charge, answer)) = self.port.shared.slots.borrow_mut().take(id, cx.waker()) else {
            return Poll::Pending;
        };
        self.id = None;
        Poll::Ready(Reply { answer, follow: FollowUp::new(self.port.clone(), charge) })
    }
}

impl<P: Protocol> Drop for Asked<P> {
    fn drop(&mut self) {
        let Some(id) = self.id else { return };
        let shared = &self.port.shared;
        let cancel_to = shared.slots.borrow_mut().cancel(id);
        match cancel_to {
            Some(to) => shared.post(to, Parcel::Cancel { id }),
            None => shared.wake_pump(),
        }
    }
}

impl<P: Protocol> FollowUp<P> {
    pub(super) fn new(port: Port<P>, charge: Charge) -> Self {
        Self { port, charge }
    }

    /// Tells the peer.
    pub fn tell(self, tell: P::Tell) {
        self.port.shared.post(self.charge.to, Parcel::Tell(tell));
    }
}

impl<P: Protocol> Drop for FollowUp<P> {
    fn drop(&mut self) {
        if self.charge.credited {
            self.port.shared.outboxes.borrow_mut().give_credit(self.charge.to);
        }
    }
}
