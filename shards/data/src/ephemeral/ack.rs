//! POST ack: what became of the messages that a pop handed out.

use std::rc::Rc;

use queen_ephemeral::AckStatus;
use queen_wire::body::{AckBody, parse_ack};

use super::{Call, Handled};
use crate::{
    cluster::AckHome,
    connection::{Operation, Out},
    error::ApiError,
    protocol::{AckAsk, Ask, QueueKey},
    shard::Shard,
};

impl Shard {
    pub(crate) fn ack(self: &Rc<Self>, call: &Call<'_>, out: &mut Out) -> Result<Handled, ApiError> {
        let body = parse_ack(call.request.body, self.node.config.json_depth_max)?;
        match self.ack_elsewhere(ack_ask(call, body))? {
            Acking::Here(ask) => {
                out.with_body(&call.frame, 200, |out| self.ack_here(call.now_ms, &ask, out));
                Ok(Handled::Done)
            }
            Acking::Later(operation) => Ok(call.later(operation)),
        }
    }

    /// Sends acks to where they have to go, or gives them back for this shard's engine.
    pub(super) fn ack_elsewhere(self: &Rc<Self>, ask: AckAsk) -> Result<Acking, ApiError> {
        let owner = self.owner(ask.key.tenant, &ask.key.queue);
        Ok(match self.home_of_acks(&ask)? {
            AckHome::Here if owner == self.id() => Acking::Here(ask),
            AckHome::Here => Acking::Later(Operation::Asked(self.ask(owner, Ask::Ack(Box::new(ask)))?)),
            AckHome::Elsewhere(member) => Acking::Later(self.forward_acks(&member, ask)?),
            AckHome::Awaited => Acking::Later(self.hold(Ask::Ack(Box::new(ask)))?),
            AckHome::Several(homes) => Acking::Later(self.scatter_acks(ask, &homes)?),
        })
    }
}

/// Where acks are settled.
pub(super) enum Acking {
    /// By this shard's engine.
    Here(AckAsk),
    /// Their owners have been asked.
    Later(Operation),
}

/// The acks of a body, for the queue's owner.
pub(super) fn ack_ask(call: &Call<'_>, body: AckBody) -> AckAsk {
    let acks = body.acks.into_iter().map(|ack| (ack.id, AckStatus::from_word(ack.status.as_deref())));
    let key = QueueKey { tenant: call.tenant, queue: body.queue };
    AckAsk { key, group: body.group, acks: acks.collect() }
}
