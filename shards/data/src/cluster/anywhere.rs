//! A pop that names no partition: it is served what this node owns, or else where its queue is placed.

use std::{
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
};

use queen_fabric::{members::Member, port::Asked};

use crate::{
    connection::{Operation, Outcome, ParkedPermit},
    error::ApiError,
    protocol::{Answer, Ask, DataProtocol, PopAsk},
    shard::Shard,
};

/// Such a pop.
pub(crate) struct Anywhere {
    shard: Rc<Shard>,
    pop: PopAsk,
    /// Where its queue is placed.
    to: Member,
    stage: Stage,
}

enum Stage {
    /// The shard that has the queue here looks whether it holds anything.
    Looking(Asked<DataProtocol>, Option<ParkedPermit>),
    /// It does not.
    Elsewhere(Operation),
}

impl Shard {
    /// Starts a pop that names no partition and whose queue is placed at another node.
    pub(crate) fn pop_anywhere(self: &Rc<Self>, pop: PopAsk, to: Member) -> Result<Operation, ApiError> {
        let owner = self.owner(pop.key.tenant, &pop.key.queue);
        let ask = Ask::Pop(Box::new(PopAsk { unless_empty: true, ..pop.clone() }));
        let stage = if pop.wait_ms > 0 {
            let permit = self.park_permit()?;
            Stage::Looking(self.peers.ask_parked(owner, ask), Some(permit))
        } else {
            Stage::Looking(self.ask(owner, ask)?, None)
        };
        Ok(Operation::Anywhere(Box::new(Anywhere { shard: Rc::clone(self), pop, to, stage })))
    }
}

impl Anywhere {
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Outcome> {
        if let Stage::Looking(asked, permit) = &mut self.stage {
            let reply = ready!(Pin::new(asked).poll(cx));
            if !matches!(reply.answer, Answer::Elsewhere) {
                return Poll::Ready(reply.into());
            }
            // The other wait has a permit of its own.
            drop(permit.take());
            match self.shard.forward_pop(&self.to, self.pop.clone()) {
                Ok(operation) => self.stage = Stage::Elsewhere(operation),
                Err(error) => return Poll::Ready(Outcome::Reply(error.into())),
            }
        }
        let Stage::Elsewhere(operation) = &mut self.stage else { unreachable!("just put there") };
        operation.poll(cx)
    }
}
