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

/// The pause before it is asked again, doubled up to the second figure: this node may not have heard yet where its
/// partition goes, or that its owner is gone.
const PAUSE_MIN: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(200);

/// Such a pop.
pub(crate) struct Routed {
    shard: Rc<Shard>,
    pop: PopAsk,
    until: Instant,
    pause: Duration,
    asked_at: Instant,
    stage: Stage,
}

enum Stage {
    Asked(Operation),
    Pausing(Deadline),
}

impl Shard {
    /// Starts a pop that waits, wherever its partition is.
    pub(crate) fn pop_wherever(self: &Rc<Self>, pop: PopAsk) -> Result<Operation, ApiError> {
        let asked_at = Instant::now();
        let until = asked_at + Duration::from_millis(pop.wait_ms);
        let mut routed = Routed {
            shard: Rc::clone(self),
            pop,
            until,
            pause: PAUSE_MIN,
            asked_at,
            stage: Stage::Pausing(Deadline::new()),
        };
        routed.ask()?;
        Ok(Operation::Routed(Box::new(routed)))
    }

    /// Sends a pop to wherever its partition is now.
    pub(super) fn route_pop(self: &Rc<Self>, pop: PopAsk) -> Result<Operation, ApiError> {
        let partition = pop.partition.as_deref().unwrap_or(DEFAULT_PARTITION);
        match self.home_of(pop.key.tenant, &pop.key.queue, partition)? {
            Home::Elsewhere(member) if pop.partition.is_some() => self.forward_pop(&member, pop),
            // Without a partition it is served what this node owns, as long as that is something.
            Home::Elsewhere(member) => self.pop_anywhere(pop, member),
            Home::Awaited => self.hold(Ask::Pop(Box::new(pop))),
            Home::Here => {
                let owner = self.owner(pop.key.tenant, &pop.key.queue);
                if pop.wait_ms == 0 {
                    return Ok(Operation::Asked(self.ask(owner, Ask::Pop(Box::new(pop)))?));
                }
                let permit = self.park_permit()?;
                let asked = self.peers.ask_parked(owner, Ask::Pop(Box::new(pop)));
                Ok(Operation::AskedParked { asked, _permit: permit })
            }
        }
    }
}

/// Whether its partition's owner is another by now, or may soon be: nothing was done.
fn is_moving(code: Option<Code>) -> bool {
    matches!(code, Some(Code::OwnerMoved | Code::EphemeralForwardFailed))
}

impl Routed {
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Outcome> {
        loop {
            match &mut self.stage {
                Stage::Asked(operation) => {
                    let outcome = ready!(operation.poll(cx));
                    // Messages that were on their way over a link that broke are back where they were.
                    if !matches!(&outcome, Outcome::Reply(reply) if is_moving(reply.code)) {
                        return Poll::Ready(outcome);
                    }
                    self.pause();
                }
                Stage::Pausing(pause) => {
                    ready!(pause.poll(cx));
                    let left = self.until.saturating_duration_since(Instant::now());
                    self.pop.wait_ms = left.as_millis() as u64;
                    if self.pop.wait_ms == 0 || self.shard.node.is_stopping() {
                        return Poll::Ready(Outcome::nothing(&self.pop.key.queue));
                    }
                    if let Err(error) = self.ask() {
                        return Poll::Ready(Outcome::Reply(error.into()));
                    }
                }
            }
        }
    }

    /// Asks wherever its partition is now, or pauses where nobody can be asked.
    fn ask(&mut self) -> Result<(), ApiError> {
        self.asked_at = Instant::now();
        match self.shard.route_pop(self.pop.clone()) {
            Ok(operation) => self.stage = Stage::Asked(operation),
            Err(error) if is_moving(Some(error.code)) => self.pause(),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Waits a moment, longer each time unless it has waited for messages in between.
    fn pause(&mut self) {
        if self.asked_at.elapsed() > PAUSE_MAX {
            self.pause = PAUSE_MIN;
        }
        let mut deadline = Deadline::new();
        deadline.set(Some((Instant::now() + self.pause).min(self.until)));
        self.stage = Stage::Pausing(deadline);
        self.pause = (self.pause * 2).min(PAUSE_MAX);
    }
}
