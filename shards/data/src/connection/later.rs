//! Responses that are not there yet: a parked pop, another shard's answer, a task's promise.

use std::{
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
};

use queen_ephemeral::WaiterId;
use queen_fabric::port::{Asked, FollowUp};

use super::out::{Frame, give_back};
use crate::{
    protocol::{Answer, DataProtocol},
    reply::{Popped, Promised, Reply},
    shard::Shard,
    waiters::Abandoned,
};

/// A response to wait for.
pub(crate) struct Later {
    pub(crate) operation: Operation,
    pub(crate) frame: Frame,
    /// The queue of a waiting pop: what its empty list names when the client stops sending.
    pub(crate) waiting_for: Option<Box<str>>,
}

/// What makes the response. Dropping it takes back what can be taken back: a parked pop leaves its queue.
pub(crate) enum Operation {
    /// A pop that waits in this shard's engine.
    Parked(Parked),
    /// Another shard has been asked.
    Asked(Asked<DataProtocol>),
    /// Another shard has been asked for a pop that may wait there.
    AskedParked { asked: Asked<DataProtocol>, _permit: ParkedPermit },
    /// A task of this shard is making it.
    Promised(Promised),
}

/// The response, but for its frame.
pub(super) enum Outcome {
    Popped(Popped, Option<FollowUp<DataProtocol>>),
    Pushed(u32),
    Reply(Reply),
}

impl Operation {
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Outcome> {
        match self {
            Self::Parked(parked) => parked.poll(cx).map(|popped| Outcome::Popped(popped, None)),
            Self::Promised(promised) => promised.poll(cx).map(Outcome::Reply),
            Self::Asked(asked) | Self::AskedParked { asked, .. } => {
                let reply = ready!(Pin::new(asked).poll(cx));
                Poll::Ready(match reply.answer {
                    Answer::Popped(popped) => Outcome::Popped(*popped, Some(reply.follow)),
                    Answer::Pushed(messages) => Outcome::Pushed(messages),
                    Answer::Reply(whole) => Outcome::Reply(*whole),
                    Answer::Refused(error) => Outcome::Reply((*error).into()),
                    Answer::Piece(_) | Answer::Observed(_) => {
                        unreachable!("no client's request is answered with these")
                    }
                })
            }
        }
    }
}

/// The right to keep one pop waiting, out of the node's maximum.
pub(crate) struct ParkedPermit {
    shard: Rc<Shard>,
}

impl ParkedPermit {
    pub(crate) fn take(shard: &Rc<Shard>) -> Option<Self> {
        shard.parked.try_take(&shard.node.parked, 1).then(|| Self { shard: Rc::clone(shard) })
    }
}

impl Drop for ParkedPermit {
    fn drop(&mut self) {
        self.shard.parked.give(&self.shard.node.parked, 1);
    }
}

/// A pop that waits in this shard's engine, or has just been answered there.
pub(crate) struct Parked {
    /// None once the answer was taken.
    waiter: Option<WaiterId>,
    permit: ParkedPermit,
}

impl Parked {
    pub(crate) fn new(waiter: WaiterId, permit: ParkedPermit) -> Self {
        Self { waiter: Some(waiter), permit }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Popped> {
        let waiter = self.waiter.expect("not polled after its answer");
        let popped = ready!(self.permit.shard.outlet.waiters().borrow_mut().poll(waiter, cx));
        self.waiter = None;
        Poll::Ready(popped)
    }
}

impl Drop for Parked {
    fn drop(&mut self) {
        let Some(waiter) = self.waiter else { return };
        let shard = &self.permit.shard;
        let abandoned = shard.outlet.waiters().borrow_mut().abandon(waiter);
        match abandoned {
            Abandoned::Parked(park) => shard.cancel_here(park),
            Abandoned::Answered(popped) => give_back(shard, popped.claim, None),
        }
    }
}
