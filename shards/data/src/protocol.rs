//! What data shards ask each other over their lanes, and what comes back.
//!
//! A request crosses already parsed and owned; an answer crosses already rendered. Everything above a few words is
//! boxed, so that a parcel stays within the lane's 64 bytes.

use queen_ephemeral::{AckStatus, Claim, Parcel, TenantId};
use queen_fabric::port::Protocol;
use queen_wire::{
    body::Options,
    peer::{Declaration, DepthShare, QueueShare},
};

use crate::{
    error::ApiError,
    observe::Observation,
    reply::{Popped, Reply},
};

/// The protocol among data shards.
#[derive(Debug)]
pub struct DataProtocol;

impl Protocol for DataProtocol {
    type Ask = Ask;
    type Tell = Tell;
    type Answer = Answer;
}

/// A request for a queue that another shard owns.
#[derive(Debug)]
pub enum Ask {
    /// Append messages.
    Push(Box<PushAsk>),
    /// Take messages, or wait for them.
    Pop(Box<PopAsk>),
    /// Push a message and wait for its reply, at an inbox whose name leads to this shard.
    Request(Box<RequestAsk>),
    /// Settle leases.
    Ack(Box<AckAsk>),
    /// Store a declaration, then apply it.
    Configure(Box<ConfigureAsk>),
    /// Drop a queue's messages.
    Reset(Box<QueueKey>),
    /// Remove a queue and its declaration.
    Delete(Box<QueueKey>),
    /// Take a partition in that another node has handed over.
    Adopt(Box<AdoptAsk>),
    /// Drop a queue's messages, as another shard of the node or another node has been asked to.
    Drop(Box<QueueKey>),
    /// Take over a declaration of another node, if it is the newest.
    TakeOver(Box<Declaration>),
    /// Whether a partition that another node owns is still to go there: [`Answer::Coming`], [`Answer::Empty`], or a refusal where
    /// it is still served here.
    Inquire(Box<PartitionKey>),
    /// Read a queue's depth.
    Depth(Box<DepthAsk>),
    /// Read a queue's depth, to be added to that of other nodes.
    DepthShare(Box<DepthAsk>),
    /// Read a piece of the listing.
    Scan(Box<ScanAsk>),
    /// Read the shard's counters.
    Observe,
}

/// What a shard says without waiting for an answer: the end of a claim that it was handed.
#[derive(Debug)]
pub enum Tell {
    /// The answer reached the client's socket.
    Settle(Claim),
    /// It could not be written: the messages go back to where they were.
    GiveBack(Claim),
}

/// The answer to an [`Ask`].
#[derive(Debug)]
pub enum Answer {
    /// A push was taken whole: so many messages.
    Pushed(u32),
    /// A pop's messages, or its empty list.
    Popped(Box<Popped>),
    /// The queue holds nothing on this node.
    Elsewhere,
    /// A partition is this node's now.
    Adopted,
    /// A queue was emptied, or removed.
    Dropped {
        /// Whether it was there.
        existed: bool,
        /// Messages that are gone.
        messages: u64,
    },
    /// A declaration was looked at.
    Declared {
        /// Whether it was taken over; if not, a newer one is known.
        applied: bool,
    },
    /// What the shard holds of a queue, if it does.
    DepthShare(Box<Option<DepthShare>>),
    /// A partition that is another node's has still to go there.
    Coming,
    /// Nothing of it is here.
    Empty,
    /// A whole response.
    Reply(Box<Reply>),
    /// A refusal.
    Refused(Box<ApiError>),
    /// A piece of the listing.
    Piece(Box<Piece>),
    /// The shard's counters.
    Observed(Box<Observation>),
}

/// A queue of a tenant.
#[derive(Debug, Clone)]
pub struct QueueKey {
    /// Whose.
    pub tenant: TenantId,
    /// Its name.
    pub queue: String,
}

/// A partition of a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionKey {
    /// Whose.
    pub tenant: TenantId,
    /// The queue.
    pub queue: String,
    /// The partition.
    pub partition: String,
}

/// The payloads of one push, copied out of the request's buffer in one piece.
#[derive(Debug)]
pub struct PushAsk {
    /// The queue.
    pub key: QueueKey,
    /// The partition.
    pub partition: String,
    /// All payloads, one after the other.
    pub bytes: Vec<u8>,
    /// Where each payload ends in `bytes`.
    pub ends: Vec<usize>,
    /// The inbox that the reply to the one message goes to, if it is a request.
    pub reply_to: Option<String>,
}

impl PushAsk {
    /// The payloads in order.
    pub fn payloads(&self) -> impl ExactSizeIterator<Item = &[u8]> + Clone {
        (0..self.ends.len()).map(|index| {
            let start = if index == 0 { 0 } else { self.ends[index - 1] };
            &self.bytes[start..self.ends[index]]
        })
    }
}

/// A partition that another node has handed over.
#[derive(Debug)]
pub struct AdoptAsk {
    /// That node's number for it.
    pub transfer: u64,
    /// What it is.
    pub parcel: Parcel,
}

/// One request.
#[derive(Debug)]
pub struct RequestAsk {
    /// The queue that the message goes to.
    pub key: QueueKey,
    /// The partition.
    pub partition: String,
    /// The message.
    pub payload: Vec<u8>,
    /// The inbox that the requester chose.
    pub reply_to: String,
    /// How long to wait for the reply.
    pub wait_ms: u64,
}

/// One pop.
#[derive(Clone, Debug)]
pub struct PopAsk {
    /// The queue.
    pub key: QueueKey,
    /// One partition, or any.
    pub partition: Option<String>,
    /// The group, or queue mode.
    pub group: Option<String>,
    /// At most so many messages.
    pub batch: u32,
    /// Whether delivery settles them.
    pub auto_ack: bool,
    /// How long to wait for the first message; 0 does not wait.
    pub wait_ms: u64,
    /// Where the queue holds nothing on this node, it is to be asked for elsewhere: [`Answer::Elsewhere`].
    pub unless_empty: bool,
}

/// The acks of one call.
#[derive(Debug)]
pub struct AckAsk {
    /// The queue.
    pub key: QueueKey,
    /// The group, or queue mode.
    pub group: Option<String>,
    /// Ids and what became of the messages.
    pub acks: Vec<(String, AckStatus)>,
}

/// A declaration on its way to the store and into the engine.
#[derive(Debug)]
pub struct ConfigureAsk {
    /// The queue.
    pub key: QueueKey,
    /// The options as sent, stored and echoed.
    pub options_text: String,
    /// The options as read.
    pub options: Options,
}

/// A depth read.
#[derive(Debug)]
pub struct DepthAsk {
    /// The queue.
    pub key: QueueKey,
    /// Count what this group has before it.
    pub group: Option<String>,
}

/// A piece of the listing: from one slot of the owner's queue table, a bounded number on.
#[derive(Debug)]
pub struct ScanAsk {
    /// Whose queues.
    pub tenant: TenantId,
    /// The slot to start at; 0 is the first.
    pub from: u32,
}

/// Rows of a [`ScanAsk`], in no order.
#[derive(Debug)]
pub struct Piece {
    /// What the shard holds.
    pub rows: Vec<QueueShare>,
    /// Where the next piece starts, if there is one.
    pub next: Option<u32>,
}
