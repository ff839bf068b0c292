//! Responses that are not there yet: a waiting pop or request, another shard's answer, the store's, a task's promise,
//! an exchange of several of these.

use std::{
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
};

use queen_ephemeral::WaiterId;
use queen_fabric::port::{Asked, Reply as AnswerOf};

use super::{
    exchange::{Exchange, Exchanged},
    out::Frame,
};
use crate::{
    cluster::{Anywhere, Forwarded, Held, Routed, Scattered},
    durable::{Answered, Stored},
    error::ApiError,
    handed::Claimed,
    outlet::render_empty,
    protocol::{Answer, DataProtocol},
    reply::{Promised, Reply},
    shard::Shard,
    waiters::{Abandoned, Given},
};

/// A response to wait for.
pub(crate) struct Later {
    pub(crate) operation: Operation,
    pub(crate) frame: Frame,
    pub(crate) waits: Waits,
}

/// What a client may wait for: the end of its bytes ends the wait, and its going is seen.
pub(crate) enum Waits {
    /// For nothing but the work: a push or an ack runs to its end whatever the client does.
    No,
    /// For messages of this queue, which the empty list names.
    ForMessages(Box<str>),
    /// For the reply to a request.
    ForReply,
    /// For what a durable pop or fetch waits for. A node that stops ends this wait too: elsewhere its engine does.
    ForStore,
}

impl Later {
    /// The client has sent its last byte: the wait ends with what there is, which is nothing. An exchange goes on with
    /// its other parts, a fetch with what is there without waiting.
    pub(super) fn end_wait(&mut self) {
        let nothing = match std::mem::replace(&mut self.waits, Waits::No) {
            Waits::No => return,
            Waits::ForMessages(queue) => Outcome::nothing(&queue),
            Waits::ForReply => Outcome::Reply(ApiError::no_reply().into()),
            Waits::ForStore => {
                if let Operation::Stored(stored) = &mut self.operation {
                    self.operation = stored.end_wait();
                }
                return;
            }
        };
        match &mut self.operation {
            Operation::Exchange(exchange) => exchange.end_pop(nothing),
            operation => *operation = Operation::Ended(Some(nothing)),
        }
    }
}

/// What makes the response. Dropping it takes back what can be taken back: a parked pop leaves its queue, a request
/// its inbox.
pub(crate) enum Operation {
    /// A pop or a request that waits in this shard's engine.
    Waiting(Waiting),
    /// Another shard has been asked.
    Asked(Asked<DataProtocol>),
    /// Another shard has been asked for what may wait there.
    AskedParked { asked: Asked<DataProtocol>, _permit: ParkedPermit },
    /// Another node has been asked.
    Forwarded(Box<Forwarded>),
    /// A pop that waits goes after its partition.
    Routed(Box<Routed>),
    /// It is held until its partition may be served.
    Held(Box<Held>),
    /// This node is asked first, and another where it has nothing.
    Anywhere(Box<Anywhere>),
    /// Acks of partitions that several nodes own.
    Scattered(Box<Scattered>),
    /// The store has been asked.
    Stored(Box<Stored>),
    /// A task of this shard is making it.
    Promised(Promised),
    /// Several of these at once.
    Exchange(Box<Exchange>),
    /// The wait was ended; this is what there was.
    Ended(Option<Outcome>),
}

/// The response, but for its frame.
pub(crate) enum Outcome {
    /// A pop's rendered answer, and the claim on what is in it.
    Popped(Vec<u8>, Option<Claimed>),
    Pushed(u32),
    Reply(Reply),
    Exchanged(Box<Exchanged>),
    Stored(Box<Answered>),
}

impl Outcome {
    /// The answer to a pop that gets nothing.
    pub(crate) fn nothing(queue: &str) -> Self {
        let mut body = Vec::new();
        render_empty(&mut body, queue);
        Self::Popped(body, None)
    }

    /// The answer to its pop in it, and the claim on what that holds.
    pub(super) fn popped_mut(&mut self) -> Option<(&mut Vec<u8>, &mut Option<Claimed>)> {
        match self {
            Self::Popped(body, claimed) => Some((body, claimed)),
            Self::Exchanged(exchanged) => exchanged.pop.as_mut()?.popped_mut(),
            Self::Pushed(_) | Self::Reply(_) | Self::Stored(_) => None,
        }
    }
}

impl Operation {
    /// Whether what it waits for is not in this node's engines, which end every wait when the node stops.
    pub(super) fn is_elsewhere(&self) -> bool {
        matches!(self, Self::Forwarded(_) | Self::Routed(_) | Self::Anywhere(_) | Self::Held(_) | Self::Exchange(_))
    }

    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Outcome> {
        match self {
            Self::Waiting(waiting) => waiting.poll(cx).map(|given| match given {
                Given::Popped(popped) => Outcome::Popped(popped.body, popped.claim.map(Claimed::Here)),
                Given::Reply(reply) => Outcome::Reply(reply),
            }),
            Self::Exchange(exchange) => exchange.poll(cx).map(|exchanged| Outcome::Exchanged(Box::new(exchanged))),
            Self::Ended(outcome) => Poll::Ready(outcome.take().expect("not polled after its answer")),
            Self::Promised(promised) => promised.poll(cx).map(Outcome::Reply),
            Self::Stored(stored) => stored.poll(cx).map(|answered| Outcome::Stored(Box::new(answered))),
            Self::Forwarded(forwarded) => forwarded.poll(cx),
            Self::Routed(routed) => routed.poll(cx),
            Self::Anywhere(anywhere) => anywhere.poll(cx),
            Self::Held(held) => held.poll(cx),
            Self::Scattered(scattered) => scattered.poll(cx),
            Self::Asked(asked) | Self::AskedParked { asked, .. } => {
                let reply = ready!(Pin::new(asked).poll(cx));
                Poll::Ready(reply.into())
            }
        }
    }
}

impl From<AnswerOf<DataProtocol>> for Outcome {
    fn from(reply: AnswerOf<DataProtocol>) -> Self {
        match reply.answer {
            Answer::Popped(popped) => {
                Self::Popped(popped.body, popped.claim.map(|claim| Claimed::There(claim, reply.follow)))
            }
            Answer::Pushed(messages) => Self::Pushed(messages),
            Answer::Reply(whole) => Self::Reply(*whole),
            Answer::Refused(error) => Self::Reply((*error).into()),
            Answer::Adopted
            | Answer::Elsewhere
            | Answer::Dropped { .. }
            | Answer::Declared { .. }
            | Answer::DepthShare(_)
            | Answer::Coming
            | Answer::Empty
            | Answer::Piece(_)
            | Answer::Observed(_) => {
                unreachable!("no client's request is answered with these")
            }
        }
    }
}

/// The right to keep one pop or request waiting, out of the node's maximum.
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

/// A pop or a request that waits in this shard's engine, or has just been answered there.
pub(crate) struct Waiting {
    /// None once the answer was taken.
    waiter: Option<WaiterId>,
    permit: ParkedPermit,
}

impl Waiting {
    pub(crate) fn new(waiter: WaiterId, permit: ParkedPermit) -> Self {
        Self { waiter: Some(waiter), permit }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Given> {
        let waiter = self.waiter.expect("not polled after its answer");
        let given = ready!(self.permit.shard.outlet.waiters().borrow_mut().poll(waiter, cx));
        self.waiter = None;
        Poll::Ready(given)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let Some(waiter) = self.waiter else { return };
        let shard = &self.permit.shard;
        let abandoned = shard.outlet.waiters().borrow_mut().abandon(waiter);
        match abandoned {
            Abandoned::Waiting(place) => shard.cancel_here(place),
            Abandoned::Answered(Given::Popped(popped)) => {
                popped.claim.into_iter().for_each(|claim| shard.give_back_here(claim));
            }
            Abandoned::Answered(Given::Reply(_)) => {}
        }
    }
}
