//! The durable verbs as HTTP requests: one file per family, each of which reads the request, asks the store role, and
//! keeps what it needs to render the answer.
//!
//! An answer crosses as the segments that the store role holds, shared, and is rendered here, into the buffer of the
//! connection's responses.

mod ack;
mod changed;
mod configure;
mod delete;
mod fetch;
mod lease;
mod pop;
mod push;
mod render;
mod resources;

use std::{
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, ready},
};

use queen_fabric::{
    port::Asked,
    protocol::store::{StoreAnswer, StoreAsk, StoreProtocol},
};
use queen_log::{
    id::TenantId,
    request::{Answer, Failure, Popped, Request},
};
use queen_wire::{body::BodyError, name, target};

use self::{
    ack::AckPlan, changed::ChangedPlan, configure::ConfigurePlan, delete::DeletePlan, fetch::FetchPlan,
    lease::ExtendPlan, pop::PopPlan, push::PushPlan, resources::ReadPlan,
};
use crate::{
    connection::{Frame, Operation, Out, Outcome, ParkedPermit},
    dispatch::{Call, Handled},
    error::ApiError,
    shard::Shard,
    store::Leased,
};

/// The error of an entry whose queue or partition is not there.
const UNKNOWN: &str = "UNKNOWN_TOPIC_OR_PARTITION";

/// What a request has to remember for its answer.
enum Plan {
    Push(PushPlan),
    Pop(PopPlan),
    Ack(AckPlan),
    Extend(ExtendPlan),
    Configure(ConfigurePlan),
    Delete(DeletePlan),
    Fetch(FetchPlan),
    Changed(ChangedPlan),
    Read(ReadPlan),
}

/// A request that the store role was asked. Dropped before its answer was taken, it is cancelled, and what it was
/// given goes back.
pub(crate) struct Stored {
    shard: Rc<Shard>,
    asked: Asked<StoreProtocol>,
    /// None once it was answered.
    plan: Option<Plan>,
    /// Held by one that may wait long.
    parked: Option<ParkedPermit>,
}

impl Stored {
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Answered> {
        let reply = ready!(Pin::new(&mut self.asked).poll(cx));
        let answer = match reply.answer {
            StoreAnswer::Log(answer) => *answer,
            StoreAnswer::Unavailable(why) => Answer::Failed(Failure::Unavailable(why)),
            _ => unreachable!("the store answers what it was asked"),
        };
        let plan = self.plan.take().expect("not polled after its answer");
        Poll::Ready(Answered { plan, answer })
    }

    /// It shall wait no longer: a pop ends with nothing, a fetch with what there is.
    pub(crate) fn end_wait(&mut self) -> Operation {
        match self.plan.take().expect("not answered yet") {
            Plan::Fetch(plan) => match self.shard.fetch_now(plan) {
                Ok(operation) => operation,
                Err(error) => Operation::Ended(Some(Outcome::Reply(error.into()))),
            },
            plan => {
                let answer = Answer::Popped(Popped::default());
                Operation::Ended(Some(Outcome::Stored(Box::new(Answered { plan, answer }))))
            }
        }
    }
}

impl Drop for Stored {
    fn drop(&mut self) {
        if self.parked.is_some() {
            self.shard.metrics.durable_unparks();
        }
    }
}

/// A request and its answer.
pub(crate) struct Answered {
    plan: Plan,
    answer: Answer,
}

impl Answered {
    /// Whether it hands messages out that can be given back.
    pub(crate) fn hands_out(&self) -> bool {
        matches!(&self.answer, Answer::Popped(popped) if popped.lease.is_some() && !popped.runs.is_empty())
    }

    /// The client has gone: its messages stay for the next, and what is left is the answer without any.
    pub(crate) fn give_back(&mut self, shard: &Shard) {
        if let Answer::Popped(popped) = &mut self.answer
            && let Some(leased) = Leased::of(&std::mem::take(popped))
        {
            shard.store.give_back(leased);
        }
    }

    /// Renders the response.
    pub(crate) fn write(self, shard: &Shard, frame: &Frame, out: &mut Out) {
        let answer = match self.answer {
            Answer::Failed(failure) => {
                return match self.plan {
                    Plan::Ack(plan) => plan.fail(&failure, frame, out),
                    _ => out.reply(frame, &ApiError::failed(&failure).into()),
                };
            }
            answer => answer,
        };
        match (self.plan, answer) {
            (Plan::Push(plan), Answer::Pushed(parts)) => plan.write(&parts, shard, frame, out),
            (Plan::Pop(plan), Answer::Popped(popped)) => plan.write(&popped, shard, frame, out),
            (Plan::Ack(plan), Answer::Acked(acked)) => plan.write(&acked, shard, frame, out),
            (Plan::Extend(plan), Answer::Extended(extended)) => plan.write(extended, frame, out),
            (Plan::Configure(plan), Answer::Configured(row)) => plan.write(&row, frame, out),
            (Plan::Delete(plan), Answer::Deleted(existed)) => plan.write(existed, frame, out),
            (Plan::Fetch(plan), Answer::Fetched(entries)) => plan.write(&entries, frame, out),
            (Plan::Changed(plan), Answer::Read(answer)) => plan.write(answer, frame, out),
            (Plan::Read(plan), Answer::Read(answer)) => plan.write(answer, frame, out),
            _ => unreachable!("the store answers what it was asked"),
        }
    }
}

impl Call<'_> {
    /// The tenant as the log knows it.
    fn log_tenant(&self) -> TenantId {
        queen_log::id::Uuid(self.tenant.0)
    }

    /// A segment of the path, decoded and checked.
    fn named(
        &self,
        index: usize,
        field: &'static str,
        check: fn(&'static str, &str) -> Result<(), BodyError>,
    ) -> Result<Option<Arc<str>>, BodyError> {
        let Some(raw) = self.segments[index] else { return Ok(None) };
        let text =
            target::decode_segment(raw).map_err(|fault| BodyError::Encoding { parameter: field.to_owned(), fault })?;
        check(field, &text)?;
        Ok(Some(text.into()))
    }

    /// The queue that the path names.
    fn durable_queue(&self) -> Result<Arc<str>, ApiError> {
        let queue = self.named(0, "queue", name::check_queue).map_err(|fault| ApiError::bad_request(&fault))?;
        Ok(queue.expect("the route has a queue in its path"))
    }
}

impl Shard {
    /// Asks the store role; the answer is waited for whatever the client does.
    fn ask_store(self: &Rc<Self>, request: Request, plan: Plan) -> Result<Operation, ApiError> {
        let asked = self.store.ask(StoreAsk::Log(Box::new(request)))?;
        Ok(self.stored(asked, plan, None))
    }

    /// Asks the store role what may wait there.
    fn ask_store_parked(self: &Rc<Self>, request: Request, plan: Plan) -> Result<Operation, ApiError> {
        let permit = self.park_permit()?;
        self.metrics.durable_parks();
        let asked = self.store.ask_parked(request);
        Ok(self.stored(asked, plan, Some(permit)))
    }

    fn stored(self: &Rc<Self>, asked: Asked<StoreProtocol>, plan: Plan, parked: Option<ParkedPermit>) -> Operation {
        Operation::Stored(Box::new(Stored { shard: Rc::clone(self), asked, plan: Some(plan), parked }))
    }

    /// Asks the store role for one whole answer.
    fn serve_stored(self: &Rc<Self>, call: &Call<'_>, request: Request, plan: Plan) -> Result<Handled, ApiError> {
        Ok(call.later(self.ask_store(request, plan)?))
    }
}
