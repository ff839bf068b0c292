//! POST reset: the messages go, the queue and its declaration stay.

use std::rc::Rc;

use queen_wire::{
    body::parse_reset,
    response::{append_json_string, append_u64},
};

use super::{Call, Handled, not_reserved};
use crate::{
    connection::{Operation, Out},
    error::ApiError,
    protocol::{Ask, QueueKey},
    reply::Reply,
    shard::Shard,
};

impl Shard {
    pub(crate) fn reset(self: &Rc<Self>, call: &Call<'_>, out: &mut Out) -> Result<Handled, ApiError> {
        let queue = parse_reset(call.request.body, self.node.config.json_depth_max)?;
        not_reserved(&queue)?;
        let key = QueueKey { tenant: call.tenant, queue };
        if self.node.cluster.is_some() {
            return self.reset_everywhere(call, key);
        }
        let owner = self.owner(key.tenant, &key.queue);
        if owner != self.id() {
            return Ok(call.later(Operation::Asked(self.ask(owner, Ask::Reset(Box::new(key)))?)));
        }
        out.reply(&call.frame, &self.reset_reply(&key));
        Ok(Handled::Done)
    }

    /// Resets a queue of this shard: `{"queue","dropped"}`.
    pub(crate) fn reset_reply(&self, key: &QueueKey) -> Reply {
        dropped(key, self.reset_here(self.engine_now_ms(), key))
    }
}

/// `{"queue","dropped"}`.
pub(crate) fn dropped(key: &QueueKey, messages: u64) -> Reply {
    let mut body = Vec::with_capacity(32 + key.queue.len());
    body.extend_from_slice(b"{\"queue\":");
    append_json_string(&mut body, &key.queue);
    body.extend_from_slice(b",\"dropped\":");
    append_u64(&mut body, messages);
    body.push(b'}');
    Reply::json(200, body)
}
