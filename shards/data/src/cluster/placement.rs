//! Which node a request is for.

use queen_ephemeral::{
    TenantId,
    inbox::{self, Minted},
};
use queen_fabric::members::Member;

use crate::{error::ApiError, shard::Shard};

/// The partition by which what has none is placed.
pub(crate) const DEFAULT_PARTITION: &str = "Default";

/// Where something is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Home {
    /// By this node.
    Here,
    /// By another member.
    Elsewhere(Member),
    /// By this node, once it is known that what others have of it is here: until then a request is held.
    Awaited,
}

impl Shard {
    /// The node that owns a partition of a queue, or where an inbox is: by the node's epoch in a name that a broker has
    /// made, by the hash of one that its requester chose.
    pub(crate) fn home_of(&self, tenant: TenantId, queue: &str, partition: &str) -> Result<Home, ApiError> {
        if self.node.cluster.is_none() {
            return Ok(Home::Here);
        }
        let members = self.mesh.members();
        let Some(members) = members.as_ref() else {
            // Before the mesh has spoken, nobody knows whether this node is alone.
            return Ok(Home::Awaited);
        };
        let (is_inbox, minted) = (inbox::is_inbox(queue), Minted::parse(queue));
        if is_inbox && let Some(minted) = minted {
            let at = members.members.iter().find(|member| member.epoch == minted.epoch && !members.is_me(member));
            // Where no member has this epoch, its node is gone: here as elsewhere the reply is late.
            return Ok(at.map_or(Home::Here, |member| Home::Elsewhere(member.clone())));
        }
        let partition = if is_inbox { DEFAULT_PARTITION } else { partition };
        match members.owner(&tenant.0, queue, partition) {
            Some(owner) if !members.is_me(owner) => Ok(Home::Elsewhere(owner.clone())),
            Some(_) if members.is_starting => Ok(Home::Awaited),
            Some(_) if self.holding.owner_before(tenant, queue, partition).is_some() => Ok(Home::Awaited),
            // Alone on its way out, it serves what it has.
            Some(_) | None => Ok(Home::Here),
        }
    }
}
