//! GET pop: what is there now, or a wait for it at the owner.

use std::rc::Rc;

use queen_ephemeral::{Pop, Popped as Outcome};
use queen_wire::target::PopQuery;

use super::{Call, Handled, not_reserved};
use crate::{
    cluster::{DEFAULT_PARTITION, Home},
    connection::{Frame, Later, Operation, Out, Outcome as Settled, ParkedPermit, Waiting, Waits},
    error::{ApiError, Code},
    handed::Claimed,
    outlet::render_empty,
    protocol::{Ask, PopAsk, QueueKey},
    routes::Route,
    shard::Shard,
    waiters::{AT_ONCE, Place},
};

impl Shard {
    pub(crate) fn pop(self: &Rc<Self>, call: &Call<'_>, out: &mut Out) -> Result<Handled, ApiError> {
        let query = PopQuery::parse(call.request.query)?;
        let pop = self.asked_for(call, &query);
        not_reserved(pop.queue)?;
        let waits = pop.wait_ms > 0;
        if !waits && self.is_here(&pop) {
            return self.pop_at_once(call, pop, out);
        }
        let operation = self.pop_later(call, pop)?;
        let route = if waits { Route::WaitingPop } else { Route::Pop };
        let waits = if waits { Waits::ForMessages(pop.queue.into()) } else { Waits::No };
        Ok(Handled::Later(Later { operation, frame: Frame { route, ..call.frame }, waits }))
    }

    /// The pop that a query asks for. On a stopping node nothing waits.
    pub(super) fn asked_for<'q>(&self, call: &Call<'_>, query: &'q PopQuery<'_>) -> Pop<'q> {
        Pop {
            tenant: call.tenant,
            queue: &query.queue,
            partition: query.partition.as_deref(),
            group: query.group.as_deref(),
            batch: query.batch,
            auto_ack: query.auto_ack,
            wait_ms: if query.wait && !self.node.is_stopping() { query.timeout_ms } else { 0 },
        }
    }

    /// Whether this shard's engine is to be asked, and no other.
    pub(super) fn is_here(&self, pop: &Pop<'_>) -> bool {
        let partition = pop.partition.unwrap_or(DEFAULT_PARTITION);
        self.owner(pop.tenant, pop.queue) == self.id()
            && self.home_of(pop.tenant, pop.queue, partition).is_ok_and(|home| home == Home::Here)
    }

    /// A pop whose answer has to be waited for, because it waits for messages or because another shard has the queue.
    pub(super) fn pop_later(self: &Rc<Self>, call: &Call<'_>, pop: Pop<'_>) -> Result<Operation, ApiError> {
        if pop.wait_ms > 0 && self.node.cluster.is_some() {
            return self.pop_wherever(owned(&pop));
        }
        match (self.home_of(pop.tenant, pop.queue, pop.partition.unwrap_or(DEFAULT_PARTITION))?, pop.partition) {
            (Home::Here, _) => {}
            (Home::Awaited, _) => return self.hold(Ask::Pop(Box::new(owned(&pop)))),
            (Home::Elsewhere(member), Some(_)) => return self.forward_pop(&member, owned(&pop)),
            // Without a partition it is served what this node owns, as long as that is something.
            (Home::Elsewhere(member), None) => return self.pop_anywhere(owned(&pop), member),
        }
        let owner = self.owner(call.tenant, pop.queue);
        if owner == self.id() {
            return self.pop_or_park(call, pop);
        }
        let ask = Ask::Pop(Box::new(owned(&pop)));
        Ok(if pop.wait_ms > 0 {
            // It may stay unanswered for minutes: it counts as a parked pop, not against the lane.
            let permit = self.park_permit()?;
            Operation::AskedParked { asked: self.peers.ask_parked(owner, ask), _permit: permit }
        } else {
            Operation::Asked(self.ask(owner, ask)?)
        })
    }

    fn pop_at_once(self: &Rc<Self>, call: &Call<'_>, pop: Pop<'_>, out: &mut Out) -> Result<Handled, ApiError> {
        match self.pop_here(call.now_ms, pop, AT_ONCE)? {
            Outcome::Delivered => {
                let mut at_once = self.outlet.at_once().borrow_mut();
                let claimed = at_once.claim.take().map(Claimed::Here);
                out.popped(&call.frame, &at_once.body, claimed);
            }
            Outcome::Empty => out.with_body(&call.frame, 200, |body| render_empty(body, pop.queue)),
            Outcome::Parked(_) => unreachable!("a pop that does not wait is not parked"),
        }
        Ok(Handled::Done)
    }

    /// What there is now, for a caller that keeps it for a while.
    pub(super) fn pop_now(&self, call: &Call<'_>, pop: Pop<'_>) -> Result<Settled, ApiError> {
        let outcome = self.pop_here(call.now_ms, pop, AT_ONCE)?;
        if outcome != Outcome::Delivered {
            return Ok(Settled::nothing(pop.queue));
        }
        let mut at_once = self.outlet.at_once().borrow_mut();
        Ok(Settled::Popped(std::mem::take(&mut at_once.body), at_once.claim.take().map(Claimed::Here)))
    }

    fn pop_or_park(self: &Rc<Self>, call: &Call<'_>, pop: Pop<'_>) -> Result<Operation, ApiError> {
        let permit = self.park_permit()?;
        let waiter = self.outlet.waiters().borrow_mut().add_here();
        match self.pop_here(call.now_ms, pop, waiter) {
            Ok(outcome) => {
                if let Outcome::Parked(park) = outcome {
                    self.outlet.waiters().borrow_mut().placed(waiter, Place::Parked(park));
                }
                debug_assert!(!matches!(outcome, Outcome::Empty), "a waiting pop is answered or parked");
                Ok(Operation::Waiting(Waiting::new(waiter, permit)))
            }
            Err(error) => {
                self.outlet.waiters().borrow_mut().remove(waiter);
                Err(error)
            }
        }
    }

    pub(crate) fn park_permit(self: &Rc<Self>) -> Result<ParkedPermit, ApiError> {
        ParkedPermit::take(self).ok_or_else(|| {
            let most = self.node.config.ephemeral_max_parked;
            ApiError::new(
                Code::ParkedLimit,
                format!(
                    "The node holds {most} waiting pops and requests, as many as QUEEN_EPHEMERAL_MAX_PARKED allows"
                ),
            )
        })
    }
}

fn owned(pop: &Pop<'_>) -> PopAsk {
    PopAsk {
        key: QueueKey { tenant: pop.tenant, queue: pop.queue.to_owned() },
        partition: pop.partition.map(str::to_owned),
        group: pop.group.map(str::to_owned),
        batch: pop.batch,
        auto_ack: pop.auto_ack,
        wait_ms: pop.wait_ms,
        unless_empty: false,
    }
}
