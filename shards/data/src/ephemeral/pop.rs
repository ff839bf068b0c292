//! GET pop: what is there now, or a wait for it at the owner.

use std::rc::Rc;

use queen_ephemeral::{Pop, Popped as Outcome};
use queen_wire::target::PopQuery;

use super::{Call, Handled};
use crate::{
    connection::{Frame, Later, Operation, Out, Parked, ParkedPermit},
    error::{ApiError, Code},
    outlet::render_empty,
    protocol::{Ask, PopAsk, QueueKey},
    routes::Route,
    shard::Shard,
    waiters::AT_ONCE,
};

impl Shard {
    pub(super) fn pop(self: &Rc<Self>, call: &Call<'_>, out: &mut Out) -> Result<Handled, ApiError> {
        let query = PopQuery::parse(call.request.query)?;
        let pop = Pop {
            tenant: call.tenant,
            queue: &query.queue,
            partition: query.partition.as_deref(),
            group: query.group.as_deref(),
            batch: query.batch,
            auto_ack: query.auto_ack,
            wait_ms: if query.wait { query.timeout_ms } else { 0 },
        };
        let waits = pop.wait_ms > 0 && !self.node.is_stopping();
        let owner = self.owner(call.tenant, pop.queue);
        match (owner == self.id(), waits) {
            (true, false) => self.pop_at_once(call, pop, out),
            (true, true) => self.pop_or_park(call, pop),
            (false, _) => {
                let operation = if waits {
                    // It may stay unanswered for minutes: it counts as a parked pop, not against the lane.
                    let permit = self.park_permit()?;
                    let asked = self.peers.ask_parked(owner, Ask::Pop(Box::new(owned(&pop))));
                    Operation::AskedParked { asked, _permit: permit }
                } else {
                    Operation::Asked(self.ask(owner, Ask::Pop(Box::new(owned(&pop))))?)
                };
                Ok(waiting(call, operation, pop.queue, waits))
            }
        }
    }

    fn pop_at_once(self: &Rc<Self>, call: &Call<'_>, pop: Pop<'_>, out: &mut Out) -> Result<Handled, ApiError> {
        match self.pop_here(call.now_ms, pop, AT_ONCE)? {
            Outcome::Delivered => {
                let mut at_once = self.outlet.at_once().borrow_mut();
                let claim = at_once.claim.take();
                out.popped(&call.frame, &at_once.body, claim, None);
            }
            Outcome::Empty => out.with_body(&call.frame, 200, |body| render_empty(body, pop.queue)),
            Outcome::Parked(_) => unreachable!("a pop that does not wait is not parked"),
        }
        Ok(Handled::Done)
    }

    fn pop_or_park(self: &Rc<Self>, call: &Call<'_>, pop: Pop<'_>) -> Result<Handled, ApiError> {
        let permit = self.park_permit()?;
        let waiter = self.outlet.waiters().borrow_mut().add_here();
        match self.pop_here(call.now_ms, pop, waiter) {
            Ok(outcome) => {
                if let Outcome::Parked(park) = outcome {
                    self.outlet.waiters().borrow_mut().parked(waiter, park);
                }
                debug_assert!(!matches!(outcome, Outcome::Empty), "a waiting pop is answered or parked");
                let parked = Parked::new(waiter, permit);
                Ok(waiting(call, Operation::Parked(parked), pop.queue, true))
            }
            Err(error) => {
                self.outlet.waiters().borrow_mut().remove(waiter);
                Err(error)
            }
        }
    }

    fn park_permit(self: &Rc<Self>) -> Result<ParkedPermit, ApiError> {
        ParkedPermit::take(self).ok_or_else(|| {
            let most = self.node.config.ephemeral_max_parked;
            ApiError::new(
                Code::ParkedLimit,
                format!("The node holds {most} waiting pops, as many as QUEEN_EPHEMERAL_MAX_PARKED allows"),
            )
        })
    }
}

fn waiting(call: &Call<'_>, operation: Operation, queue: &str, waits: bool) -> Handled {
    let route = if waits { Route::WaitingPop } else { Route::Pop };
    let frame = Frame { route, ..call.frame };
    Handled::Later(Later { operation, frame, waiting_for: waits.then(|| queue.into()) })
}

fn owned(pop: &Pop<'_>) -> PopAsk {
    PopAsk {
        key: QueueKey { tenant: pop.tenant, queue: pop.queue.to_owned() },
        partition: pop.partition.map(str::to_owned),
        group: pop.group.map(str::to_owned),
        batch: pop.batch,
        auto_ack: pop.auto_ack,
        wait_ms: pop.wait_ms,
    }
}
