//! A pop that waits, on a node of several: when its partition moves, it is asked again where that is now.

use std::{
    rc::Rc,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use queen_fabric::rt::Deadline;

use super::{DEFAULT_PARTITION, Home};
use crate::{
    connection::{Operation, Outcome},
    error::{ApiError, Code},
    protocol::{Ask, PopAsk},
    shard::Shard,
};

/// The pause before it is asked again: this node may not have heard yet where its partition goes.
const PAUSE: Duration = Duration::from_millis(5);

/// So often a pop goes after its partition: more moves than that within one wait are no hand-overs.
const MOVES_MAX: u8 = 16;

/// Such a pop.
pub(crate) struct Routed {
    shard: Rc<Shard>,
    pop: PopAsk,
    until: Instant,
    moves: u8,
    stage: Stage,
}

enum Stage {
    Asked(Operation),
    Pausing(Deadline),
}

impl Shard {
    /// Starts a pop that waits, wherever its partition is.
    pub(crate) fn pop_wherever(self: &Rc<Self>, pop: PopAsk) -> Result<Operation, ApiError> {
        let until = Instant::now() + Duration::from_millis(pop.wait_ms);
        let operation = self.route_pop(pop.clone())?;
        Ok(Operation::Routed(Box::new(Routed {
            shard: Rc::clone(self),
            pop,
            until,
            moves: 0,
            stage: Stage::Asked(operation),
        })))
    }

    fn route_pop(self: &Rc<Self>, pop: PopAsk) -> Result<Operation, ApiError> {
        let partition = pop.partition.as_deref().unwrap_or(DEFAULT_PARTITION);
        match self.home_of(pop.key.tenant, &pop.key.queue, partition)? {
            Home::Elsewhere(member) if pop.partition.is_some() => self.forward_pop(&member, pop),
            // Without a partition it is served what this node owns, as long as that is something.
            Home::Elsewhere(member) => self.pop_anywhere(pop, member),
            Home::Here => {
                let owner = self.owner(pop.key.tenant, &pop.key.queue);
                let permit = self.park_permit()?;
                let asked = self.peers.ask_parked(owner, Ask::Pop(Box::new(pop)));
                Ok(Operation::AskedParked { asked, _permit: permit })
            }
        }
    }
}

impl Routed {
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Outcome> {
        loop {
            match &mut self.stage {
                Stage::Asked(operation) => {
                    let outcome = ready!(operation.poll(cx));
                    let is_moved = matches!(&outcome, Outcome::Reply(reply) if reply.code == Some(Code::OwnerMoved));
                    if is_moved && self.shard.node.is_stopping() {
                        return Poll::Ready(Outcome::nothing(&self.pop.key.queue));
                    }
                    if !is_moved || self.moves >= MOVES_MAX {
                        return Poll::Ready(outcome);
                    }
                    self.moves += 1;
                    let mut pause = Deadline::new();
                    pause.set(Some(Instant::now() + PAUSE));
                    self.stage = Stage::Pausing(pause);
                }
                Stage::Pausing(pause) => {
                    ready!(pause.poll(cx));
                    self.pop.wait_ms = self.until.saturating_duration_since(Instant::now()).as_millis() as u64;
                    if self.pop.wait_ms == 0 {
                        return Poll::Ready(Outcome::nothing(&self.pop.key.queue));
                    }
                    match self.shard.route_pop(self.pop.clone()) {
                        Ok(operation) => self.stage = Stage::Asked(operation),
                        Err(error) => return Poll::Ready(Outcome::Reply(error.into())),
                    }
                }
            }
        }
    }
}
