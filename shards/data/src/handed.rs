//! Messages that were handed out, and the way back to who handed them out.

use queen_ephemeral::Claim;
use queen_fabric::port::FollowUp;

use crate::{
    cluster::LinkClaim,
    protocol::{DataProtocol, Tell},
    shard::Shard,
};

/// A claim on messages that are on their way to a client. It is settled once they have reached the client's socket, or
/// given back: forgotten, they would be lost.
#[must_use = "a claim is settled or given back, never forgotten"]
pub(crate) enum Claimed {
    /// This shard has handed them out.
    Here(Claim),
    /// Another shard of this node has.
    There(Claim, FollowUp<DataProtocol>),
    /// Another node has.
    Elsewhere(LinkClaim),
}

impl Claimed {
    /// They have reached the client.
    pub(crate) fn settle(self, shard: &Shard) {
        match self {
            Self::Here(claim) => shard.settle_here(claim),
            Self::There(claim, follow) => follow.tell(Tell::Settle(claim)),
            Self::Elsewhere(claim) => claim.settle(),
        }
    }

    /// They have not: they go back to where they were.
    pub(crate) fn give_back(self, shard: &Shard) {
        match self {
            Self::Here(claim) => shard.give_back_here(claim),
            Self::There(claim, follow) => follow.tell(Tell::GiveBack(claim)),
            Self::Elsewhere(claim) => claim.give_back(),
        }
    }
}
