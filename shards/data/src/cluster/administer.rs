//! What one node asks all others to do to an ephemeral queue, at the end that does it: reset, take over a declaration or a
//! deletion, and say what it holds.

use std::rc::Rc;

use queen_ephemeral::TenantId;
use queen_wire::peer::{Answer, Ask, Declaration, QUEUES_MAX};

use super::{declared::undeclared, serve::Started};
use crate::{
    ephemeral::{not_reserved, reads::Selection},
    error::ApiError,
    protocol::{self, DepthAsk, QueueKey},
    shard::Shard,
};

/// Whether a request is of the kind that goes to every node, wherever partitions are.
pub(super) fn is_for_everybody(ask: &Ask) -> bool {
    matches!(ask, Ask::Reset { .. } | Ask::Delete { .. } | Ask::Declare(_) | Ask::Depth { .. } | Ask::Queues { .. })
}

/// Starts such a request. Who may ask for it was seen to at the node that has the client; whether ephemeral queues are
/// switched on is each node's to say, but of declarations, which are no use of them.
pub(super) fn start(shard: &Rc<Shard>, tenant: TenantId, ask: Ask) -> Result<Started, ApiError> {
    if !matches!(ask, Ask::Delete { .. } | Ask::Declare(_)) {
        shard.check_ephemeral(tenant, true)?;
    }
    let (queue, ask) = match ask {
        Ask::Reset { queue } => (queue.clone(), protocol::Ask::Drop(Box::new(QueueKey { tenant, queue }))),
        Ask::Depth { queue, group } => {
            let key = QueueKey { tenant, queue: queue.clone() };
            (queue, protocol::Ask::DepthShare(Box::new(DepthAsk { key, group })))
        }
        Ask::Delete { queue } => (queue.clone(), protocol::Ask::TakeOver(Box::new(undeclared(tenant, queue)))),
        Ask::Declare(declaration) => {
            let Declaration { key, .. } = &declaration;
            let (tenant, queue) = (TenantId(key.tenant), key.queue.clone());
            not_reserved(&queue)?;
            let owner = shard.owner(tenant, &queue);
            let asked = shard.ask(owner, protocol::Ask::TakeOver(Box::new(declaration)))?;
            return Ok(Started::Asked(asked, None));
        }
        Ask::Queues { after, limit } => {
            let shard = Rc::clone(shard);
            let limit = (limit as usize).clamp(1, QUEUES_MAX);
            return Ok(Started::Later(Box::pin(async move {
                match shard.list_here(tenant, Selection { limit, after }).await {
                    Ok(listing) => Answer::Queues {
                        bytes: listing.bytes,
                        queues: listing.rows.into_values().collect(),
                        more: listing.is_more,
                    },
                    Err(error) => Answer::Refused(super::serve::refusal(&error)),
                }
            })));
        }
        _ => return Err(ApiError::unsupported()),
    };
    not_reserved(&queue)?;
    Ok(Started::Asked(shard.ask(shard.owner(tenant, &queue), ask)?, None))
}
