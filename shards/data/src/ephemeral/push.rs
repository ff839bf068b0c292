//! POST push: a memory write on the owner, all or nothing.

use std::rc::Rc;

use queen_wire::{
    body::{PushBody, Span, parse_push},
    response::append_u64,
};

use super::{Call, Handled};
use crate::{
    cluster::Home,
    connection::{Operation, Out},
    error::{ApiError, Code},
    protocol::{Ask, PushAsk, QueueKey},
    shard::Shard,
};

impl Shard {
    pub(crate) fn push(self: &Rc<Self>, call: &Call<'_>, out: &mut Out) -> Result<Handled, ApiError> {
        let mut spans = self.spans.take();
        let handled = self.push_spans(call, &mut spans, out);
        spans.clear();
        self.spans.set(spans);
        handled
    }

    fn push_spans(self: &Rc<Self>, call: &Call<'_>, spans: &mut Vec<Span>, out: &mut Out) -> Result<Handled, ApiError> {
        let body = call.request.body;
        let push = parse_push(body, self.node.config.json_depth_max, spans)?;
        if spans.is_empty() {
            out.pushed(&call.frame, 0);
            return Ok(Handled::Done);
        }
        match self.start_push(call, push, spans)? {
            Pushing::Done(messages) => {
                out.pushed(&call.frame, messages);
                Ok(Handled::Done)
            }
            Pushing::Later(operation) => Ok(call.later(operation)),
        }
    }

    /// Pushes messages whose payloads are spans of the call's body, here or at the queue's owner.
    pub(super) fn start_push(
        self: &Rc<Self>,
        call: &Call<'_>,
        push: PushBody<'_>,
        spans: &[Span],
    ) -> Result<Pushing, ApiError> {
        let body = call.request.body;
        self.take_rate(call, spans.len() as u64)?;
        let payloads = spans.iter().map(|span| &body[span.start as usize..span.end as usize]);
        let home = self.home_of(call.tenant, &push.queue, &push.partition)?;
        let owner = self.owner(call.tenant, &push.queue);
        if owner == self.id() && home == Home::Here {
            self.push_here(call.now_ms, call.tenant, &push.queue, &push.partition, payloads)?;
            return Ok(Pushing::Done(spans.len() as u32));
        }
        // The request's buffer is shared: what crosses is a copy of the payloads alone.
        let mut bytes = Vec::with_capacity(payloads.clone().map(<[u8]>::len).sum());
        let ends = payloads
            .map(|payload| {
                bytes.extend_from_slice(payload);
                bytes.len()
            })
            .collect();
        let key = QueueKey { tenant: call.tenant, queue: push.queue.into_owned() };
        let ask = PushAsk { key, partition: push.partition.into_owned(), bytes, ends, reply_to: None };
        Ok(Pushing::Later(match home {
            Home::Here => Operation::Asked(self.ask(owner, Ask::Push(Box::new(ask)))?),
            Home::Elsewhere(member) => self.forward_push(&member, ask)?,
            Home::Awaited => self.hold(Ask::Push(Box::new(ask)))?,
        }))
    }

    pub(super) fn take_rate(&self, call: &Call<'_>, messages: u64) -> Result<(), ApiError> {
        let now_ns = call.now.saturating_duration_since(self.node.boot).as_nanos() as u64;
        let (rate, limit) = self.rate_of(call.tenant);
        self.node.rates.take(call.tenant, limit, messages, now_ns).map_err(|wait_ms| {
            ApiError::new(
                Code::RateLimited,
                format!("The tenant's rate of {rate} messages a second is used up; try again in {wait_ms} ms"),
            )
            .after_s(wait_ms.div_ceil(1000))
        })
    }
}

/// A push that was taken.
pub(super) enum Pushing {
    /// So many messages, here.
    Done(u32),
    /// Its owner has been asked.
    Later(Operation),
}

impl Out {
    /// `201 {"pushed":N}`.
    pub(crate) fn pushed(&mut self, frame: &crate::connection::Frame, messages: u32) {
        self.with_body(frame, 201, |body| {
            body.extend_from_slice(b"{\"pushed\":");
            append_u64(body, u64::from(messages));
            body.push(b'}');
        });
    }
}
