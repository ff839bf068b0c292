//! POST ack: what became of the messages that a pop handed out.

use std::rc::Rc;

use queen_ephemeral::AckStatus;
use queen_wire::body::{AckBody, parse_ack};

use super::{Call, Handled};
use crate::{
    connection::{Operation, Out},
    error::ApiError,
    protocol::{AckAsk, Ask, QueueKey},
    shard::Shard,
};

impl Shard {
    pub(crate) fn ack(self: &Rc<Self>, call: &Call<'_>, out: &mut Out) -> Result<Handled, ApiError> {
        let body = parse_ack(call.request.body, self.node.config.json_depth_max)?;
        let owner = self.owner(call.tenant, &body.queue);
        let ask = ack_ask(call, body);
        if owner != self.id() {
            return Ok(call.later(Operation::Asked(self.ask(owner, Ask::Ack(Box::new(ask)))?)));
        }
        out.with_body(&call.frame, 200, |out| self.ack_here(call.now_ms, &ask, out));
        Ok(Handled::Done)
    }
}

/// The acks of a body, for the queue's owner.
pub(super) fn ack_ask(call: &Call<'_>, body: AckBody) -> AckAsk {
    let acks = body.acks.into_iter().map(|ack| (ack.id, AckStatus::from_word(ack.status.as_deref())));
    let key = QueueKey { tenant: call.tenant, queue: body.queue };
    AckAsk { key, group: body.group, acks: acks.collect() }
}
