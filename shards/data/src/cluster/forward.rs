//! A request that another node answers.

use std::{
    rc::Rc,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use queen_ephemeral::TenantId;
use queen_fabric::members::Member;
use queen_wire::peer::{Answer, Ask, Request};

use super::{
    Home, convert,
    link::{Lost, Sent},
    placement::DEFAULT_PARTITION,
};
use crate::{
    connection::{Operation, Outcome, ParkedPermit},
    error::{ApiError, Code},
    handed::Claimed,
    protocol::{AckAsk, PopAsk, PushAsk, RequestAsk},
    reply::Reply,
    shard::Shard,
};

/// A request on its way to another node and back. Dropped, nobody waits for it there.
pub(crate) struct Forwarded {
    shard: Rc<Shard>,
    request: Request,
    on_its_way: OnItsWay,
    /// It was sent to where its owner had moved: it is not sent again.
    is_moved: bool,
    /// When a wait ends.
    until: Instant,
    _permit: Option<ParkedPermit>,
}

/// Who has it.
enum OnItsWay {
    /// Another node.
    Elsewhere(Sent),
    /// This one, after all.
    Here(Operation),
}

impl Shard {
    /// Sends a push to its owner.
    pub(crate) fn forward_push(self: &Rc<Self>, to: &Member, push: PushAsk) -> Result<Operation, ApiError> {
        let tenant = push.key.tenant;
        self.forward(to, tenant, convert::push_of(push)?, None)
    }

    /// Sends a pop to its owner, where it may wait.
    pub(crate) fn forward_pop(self: &Rc<Self>, to: &Member, pop: PopAsk) -> Result<Operation, ApiError> {
        let permit = (pop.wait_ms > 0).then(|| self.park_permit()).transpose()?;
        let tenant = pop.key.tenant;
        self.forward(to, tenant, convert::pop_of(pop), permit)
    }

    /// Sends a request to where its inbox is.
    pub(crate) fn forward_request(
        self: &Rc<Self>,
        to: &Member,
        request: RequestAsk,
        permit: ParkedPermit,
    ) -> Result<Operation, ApiError> {
        let tenant = request.key.tenant;
        self.forward(to, tenant, convert::request_of(request), Some(permit))
    }

    /// Sends acks to the owner of their partitions.
    pub(crate) fn forward_acks(self: &Rc<Self>, to: &Member, acks: AckAsk) -> Result<Operation, ApiError> {
        let tenant = acks.key.tenant;
        self.forward(to, tenant, convert::ack_of(acks), None)
    }

    fn forward(
        self: &Rc<Self>,
        to: &Member,
        tenant: TenantId,
        ask: Ask,
        permit: Option<ParkedPermit>,
    ) -> Result<Operation, ApiError> {
        let wait_ms = match &ask {
            Ask::Pop(pop) => pop.wait_ms,
            Ask::Request(request) => request.wait_ms,
            _ => 0,
        };
        let request = Request { tenant: tenant.0, access: 0, ask };
        let sent = self.links.to(to)?.ask(&request)?;
        self.metrics.forwarded();
        Ok(Operation::Forwarded(Box::new(Forwarded {
            shard: Rc::clone(self),
            request,
            on_its_way: OnItsWay::Elsewhere(sent),
            is_moved: false,
            until: Instant::now() + Duration::from_millis(wait_ms),
            _permit: permit,
        })))
    }
}

impl Forwarded {
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Outcome> {
        loop {
            let sent = match &mut self.on_its_way {
                OnItsWay::Here(operation) => return operation.poll(cx),
                OnItsWay::Elsewhere(sent) => sent,
            };
            let answer = ready!(sent.poll(cx));
            let outcome = match answer {
                Ok(Answer::Pushed(messages)) => Ok(Outcome::Pushed(messages)),
                Ok(Answer::Popped { body, has_claim }) => {
                    Ok(Outcome::Popped(body, has_claim.then(|| Claimed::Elsewhere(sent.claim()))))
                }
                Ok(Answer::Reply { status, body }) => Ok(Outcome::Reply(Reply::json(status, body))),
                Ok(Answer::Refused(refusal)) => Err(convert::refused(refusal)),
                Ok(Answer::Moved { owner }) => match self.go_after(&owner) {
                    Ok(on_its_way) => {
                        self.on_its_way = on_its_way;
                        continue;
                    }
                    Err(error) => Err(error),
                },
                Ok(_) => Err(ApiError::forward_failed("The node that owns it answered what was not asked")),
                Err(Lost) => Err(ApiError::forward_failed(
                    "The node that owns it went before it answered; what was asked may have been done",
                )),
            };
            return Poll::Ready(outcome.unwrap_or_else(|error| Outcome::Reply(error.into())));
        }
    }

    /// Sends it to where its partition is now, once.
    fn go_after(&mut self, owner: &str) -> Result<OnItsWay, ApiError> {
        if std::mem::replace(&mut self.is_moved, true) {
            return Err(ApiError::owner_moved());
        }
        let left_ms = self.until.saturating_duration_since(Instant::now()).as_millis() as u64;
        match &mut self.request.ask {
            Ask::Pop(pop) => pop.wait_ms = pop.wait_ms.min(left_ms),
            Ask::Request(request) => request.wait_ms = request.wait_ms.min(left_ms),
            _ => {}
        }
        let tenant = TenantId(self.request.tenant);
        let (queue, partition) = convert::place(&self.request.ask).expect("it was forwarded");
        let home = self.shard.home_of(tenant, queue, partition.unwrap_or(DEFAULT_PARTITION))?;
        let named = (!owner.is_empty()).then(|| self.shard.links.named(owner)).flatten();
        match (named, home) {
            (Some(link), _) => Ok(OnItsWay::Elsewhere(link.ask(&self.request)?)),
            (None, Home::Elsewhere(member)) => {
                Ok(OnItsWay::Elsewhere(self.shard.links.to(&member)?.ask(&self.request)?))
            }
            (None, Home::Awaited) => Err(ApiError::owner_moved()),
            (None, Home::Here) => {
                let to = self.shard.owner(tenant, queue);
                let waits = self.request.ask.waits();
                let ask = convert::ask(tenant, self.request.ask.clone()).expect("it was forwarded");
                Ok(OnItsWay::Here(if waits {
                    Operation::AskedParked {
                        asked: self.shard.peers.ask_parked(to, ask),
                        _permit: self._permit.take().ok_or_else(ApiError::owner_moved)?,
                    }
                } else {
                    Operation::Asked(self.shard.ask(to, ask)?)
                }))
            }
        }
    }
}

impl ApiError {
    /// A partition's owner changed while it was asked.
    pub(crate) fn owner_moved() -> Self {
        Self::new(Code::OwnerMoved, "The partition's owner has just changed; nothing was done, try again")
    }

    /// The owner could not be asked, or did not answer.
    pub(crate) fn forward_failed(what: &str) -> Self {
        Self::new(Code::EphemeralForwardFailed, format!("{what}; try again"))
    }

    /// Nodes of different versions.
    pub(crate) fn unsupported() -> Self {
        Self::new(Code::EphemeralForwardFailed, "The node that owns it does not know this request: upgrade it")
    }
}
