//! POST ack: what became of the messages that a pop handed out.

use std::rc::Rc;

use queen_ephemeral::AckStatus;
use queen_wire::body::parse_ack;

use super::{Call, Handled};
use crate::{
    connection::{Operation, Out},
    error::ApiError,
    protocol::{AckAsk, Ask, QueueKey},
    shard::Shard,
};

impl Shard {
    pub(super) fn ack(self: &Rc<Self>, call: &Call<'_>, out: &mut Out) -> Result<Handled, ApiError> {
        let body = parse_ack(call.request.body, self.node.config.json_depth_max)?;
        let owner = self.owner(call.tenant, &body.queue);
        let acks = body.acks.into_iter().map(|ack| (ack.id, AckStatus::from_word(ack.status.as_deref())));
        if owner != self.id() {
            let key = QueueKey { tenant: call.tenant, queue: body.queue };
            let ask = Ask::Ack(Box::new(AckAsk { key, group: body.group, acks: acks.collect() }));
            return Ok(call.later(Operation::Asked(self.ask(owner, ask)?)));
        }
        let acks: Vec<_> = acks.collect();
        let acks = acks.iter().map(|(id, status)| (id.as_str(), *status));
        out.with_body(&call.frame, 200, |out| {
            self.ack_here(call.now_ms, call.tenant, &body.queue, body.group.as_deref(), acks, out);
        });
        Ok(Handled::Done)
    }
}
