//! Requests on their way: what each has still to do, and what it waits for.

use std::sync::Arc;

use hashbrown::HashSet;

use super::cache::{GroupKey, PartitionKey};
use crate::{
    id::{LeaseId, PartitionId, QueueId, TenantId},
    read::Read,
    request::{AckRequest, Acked, Conflation, ExtendRequest, FetchRequest, Fetched, PopRequest, PushRequest, Pushed},
    store::{Admin, Load},
};

/// Names an operation. Its slot may be used again; the serial is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OpKey {
    pub(super) slot: usize,
    pub(super) serial: u64,
}

/// An operation.
#[derive(Debug)]
pub(super) struct Op<T> {
    pub(super) serial: u64,
    pub(super) token: T,
    pub(super) kind: Kind,
    /// What of its waits has not come yet.
    pub(super) waits: u32,
    /// It stands in the queue of those that can go on.
    pub(super) queued: bool,
    /// It waits for messages.
    pub(super) parked: bool,
    /// A pop whose claims are in a commit: only that decides on its answer.
    pub(super) committing: bool,
    /// When it is answered as it is: a wait is over, or patience.
    pub(super) due_us: u64,
    /// What the store said is not there. Holds for this operation only.
    pub(super) absent: Vec<Load>,
    /// How often it waited for what it asked to be read. One that has waited a few times takes what is there: what it
    /// needs together may be more than stays in memory.
    pub(super) rounds: u32,
    /// Where it had ids looked for that are older than what the indexes hold.
    pub(super) probes: Vec<Probe>,
}

/// A search for ids in the stored indexes of one partition, from the newest on.
#[derive(Debug)]
pub(super) struct Probe {
    pub(super) partition: PartitionId,
    pub(super) hashes: HashSet<u64>,
    /// It began below this offset.
    pub(super) below: u64,
    /// It has come down to this one; what stands before it is stamped `before_us` at most.
    pub(super) from: u64,
    pub(super) before_us: i64,
    /// Hash and offset of what it found.
    pub(super) hits: Vec<(u64, u64)>,
}

/// What an operation is about.
#[derive(Debug)]
pub(super) enum Kind {
    Push(PushOp),
    Pop(Box<PopOp>),
    Ack(AckOp),
    GiveBack {
        tenant: TenantId,
        group: Arc<str>,
        lease: LeaseId,
        partitions: Vec<PartitionId>,
    },
    Fetch(FetchOp),
    /// The job is under way.
    Admin(Admin),
    Extend(ExtendRequest),
    Read(Option<Read>),
}

/// A push.
#[derive(Debug)]
pub(super) struct PushOp {
    pub(super) request: PushRequest,
    pub(super) parts: Vec<PartState>,
    pub(super) left: usize,
    /// The store was asked what other brokers have done since it came.
    pub(super) refreshed: bool,
}

/// How far one part of a push is.
#[derive(Debug)]
pub(super) enum PartState {
    Todo,
    Committing,
    Done { number: u64, messages: Vec<Pushed> },
}

/// A pop.
#[derive(Debug)]
pub(super) struct PopOp {
    pub(super) request: PopRequest,
    /// The groups it takes from, as far as they are resolved.
    pub(super) groups: Vec<GroupKey>,
    /// Queues of a discovery, once they were read.
    pub(super) discovered: Option<Vec<QueueId>>,
    /// The store's time when it came: where a group that is new with it starts.
    pub(super) came_us: Option<i64>,
    /// It waits for a fuller batch until then.
    pub(super) linger_us: Option<u64>,
    /// The store was asked what other brokers have done since it came.
    pub(super) refreshed: bool,
    /// It waited when what it takes from was not there: all that is there now came later.
    pub(super) unborn: bool,
    /// It stands in the list of its only group.
    pub(super) listed: bool,
    pub(super) conflation: Conflation,
}

/// Acks.
#[derive(Debug)]
pub(super) struct AckOp {
    pub(super) request: AckRequest,
    /// By partition and lease.
    pub(super) groups: Vec<AckGroup>,
    pub(super) results: Vec<Option<Acked>>,
}

/// The acks of one call that stand or fall together.
#[derive(Debug)]
pub(super) struct AckGroup {
    pub(super) partition: PartitionId,
    pub(super) lease: Option<Option<LeaseId>>,
    /// Places in the request.
    pub(super) items: Vec<usize>,
    pub(super) state: AckState,
    /// The rows were read again for it: what they say now counts.
    pub(super) reread: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AckState {
    Todo,
    Committing,
    Done,
}

/// A fetch.
#[derive(Debug)]
pub(super) struct FetchOp {
    pub(super) request: FetchRequest,
    pub(super) refreshed: bool,
    pub(super) last: Vec<Fetched>,
}

/// What an operation waits for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Wait {
    Load(Load),
    CreateQueue(TenantId, Arc<str>),
    CreatePartition(QueueId, Arc<str>),
    CreateGroup(QueueId, Arc<str>),
    Scan(GroupKey),
    Append(PartitionKey),
    Cursor(GroupKey, PartitionKey),
}
