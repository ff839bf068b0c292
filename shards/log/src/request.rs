//! What the log is asked, and what it answers: the durable verbs, already parsed and owned.

use std::sync::Arc;

use crate::{
    id::{LeaseId, PartitionId, TenantId},
    options::OptionsPatch,
    read::{Read, ReadAnswer},
    record::Records,
    row::QueueRow,
    segment::Segment,
};

/// A durable request.
#[derive(Debug)]
pub enum Request {
    /// Append messages.
    Push(PushRequest),
    /// Take messages, or wait for them.
    Pop(PopRequest),
    /// Settle messages.
    Ack(AckRequest),
    /// Make leases last longer.
    Extend(ExtendRequest),
    /// Read at offsets.
    Fetch(FetchRequest),
    /// Make a queue or change it.
    Configure {
        /// Whose.
        tenant: TenantId,
        /// Its name.
        queue: Arc<str>,
        /// What changes.
        patch: Box<OptionsPatch>,
    },
    /// Remove a queue.
    Delete {
        /// Whose.
        tenant: TenantId,
        /// Its name.
        queue: Arc<str>,
    },
    /// Read counts and lists, straight from the store.
    Read(Read),
    /// What was popped under a lease did not reach the client: it can be popped again. Answered like acks, with none.
    GiveBack {
        /// Whose.
        tenant: TenantId,
        /// The group that popped it.
        group: Arc<str>,
        /// The lease.
        lease: LeaseId,
        /// Where it reaches to.
        partitions: Vec<PartitionId>,
    },
}

/// A push: its messages by partition.
#[derive(Debug)]
pub struct PushRequest {
    /// Whose.
    pub tenant: TenantId,
    /// Distinct partitions, each with its records in the order of the call.
    pub parts: Vec<PushPart>,
}

/// The part of a push that goes to one partition.
#[derive(Debug)]
pub struct PushPart {
    /// The queue.
    pub queue: Arc<str>,
    /// The partition.
    pub partition: Arc<str>,
    /// Its messages.
    pub records: Records,
}

/// A pop.
#[derive(Debug)]
pub struct PopRequest {
    /// Whose.
    pub tenant: TenantId,
    /// Where from.
    pub scope: Scope,
    /// The group; [`QUEUE_MODE`](crate::row::QUEUE_MODE) for queue mode.
    pub group: Arc<str>,
    /// At most so many messages, at least 1.
    pub batch: u32,
    /// From at most so many partitions, at least 1.
    pub partitions: u32,
    /// How long to wait for the first message; 0 does not wait.
    pub wait_ms: u64,
    /// Whether delivery settles them.
    pub auto_ack: bool,
    /// In place of the queue's lease, at least 1.
    pub lease_s: Option<i64>,
    /// Where the group starts where it has not been yet.
    pub start: Start,
    /// Whether the group shall conflate; `None` does not say.
    pub conflation: Option<bool>,
}

/// Where a pop takes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Any partition of a queue.
    Queue(Arc<str>),
    /// One partition.
    Partition(Arc<str>, Arc<str>),
    /// All queues of a namespace, or with a task, or both.
    Discover {
        /// Equal to this, if given.
        namespace: Option<Arc<str>>,
        /// Equal to this, if given.
        task: Option<Arc<str>>,
    },
}

/// Where a group starts at first contact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At the oldest message.
    All,
    /// At what comes from now on.
    New,
    /// At the first message stamped at this or later.
    From(i64),
}

/// What a pop gives.
#[derive(Clone, Debug, Default)]
pub struct Popped {
    /// Whose, as asked: an answer that nobody waits for any more is given back from what stands in it.
    pub tenant: TenantId,
    /// The group, as asked.
    pub group: Arc<str>,
    /// The lease over all of it; `None` with autoAck or without messages.
    pub lease: Option<LeaseId>,
    /// The claimed runs, in order.
    pub runs: Vec<Run>,
    /// Set where the group conflates, or was asked to.
    pub conflation: Conflation,
    /// Pops are paused: there may be messages all the same.
    pub paused: bool,
}

/// What a pop is told about conflation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Conflation {
    /// The group does not conflate.
    #[default]
    No,
    /// It does.
    Yes,
    /// The group is one way and was asked to be the other.
    Conflict,
}

/// A claimed run of one partition.
#[derive(Clone, Debug)]
pub struct Run {
    /// The queue's name.
    pub queue: Arc<str>,
    /// The partition's name.
    pub partition: Arc<str>,
    /// The partition's id.
    pub partition_id: PartitionId,
    /// The partition's number, which is in the message ids.
    pub number: u64,
    /// 1 at the first delivery.
    pub attempt: u64,
    /// The messages: of each segment the offsets from and to, exclusive.
    pub slices: Vec<Slice>,
}

/// Messages of one segment.
#[derive(Clone, Debug)]
pub struct Slice {
    /// The segment.
    pub segment: Arc<Segment>,
    /// The first offset.
    pub from: u64,
    /// The offset behind the last.
    pub to: u64,
}

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckStatus {
    /// Done.
    Completed,
    /// To be delivered again, and charged.
    Failed,
    /// To be delivered again, not charged.
    Retry,
    /// To be given up at once.
    Dead,
}

impl AckStatus {
    /// The status that a word stands for: every unknown word is a failure.
    #[must_use]
    pub fn from_word(word: Option<&str>) -> Self {
        match word {
            None | Some("completed" | "success" | "acked" | "ok") => Self::Completed,
            Some("retry") => Self::Retry,
            Some("dlq") => Self::Dead,
            Some(_) => Self::Failed,
        }
    }
}

/// The acks of one call.
#[derive(Debug)]
pub struct AckRequest {
    /// Whose.
    pub tenant: TenantId,
    /// The group; [`QUEUE_MODE`](crate::row::QUEUE_MODE) for queue mode.
    pub group: Arc<str>,
    /// The acks, in order.
    pub acks: Vec<Ack>,
}

/// One ack.
#[derive(Clone, Debug)]
pub struct Ack {
    /// The partition as it was given; `None` where it is no UUID or absent.
    pub partition: Option<PartitionId>,
    /// The message's transaction id; `None` where it is absent.
    pub transaction_id: Option<Box<str>>,
    /// What became of it.
    pub status: AckStatus,
    /// The lease, if one was named. One that is no UUID is no live lease.
    pub lease: Option<Option<LeaseId>>,
    /// Why it failed.
    pub error: Option<Box<str>>,
}

/// What came of one ack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acked {
    /// Taken, or why not.
    pub result: Result<AckTaken, AckRefusal>,
    /// Whether this ack's group ended the lease.
    pub lease_released: bool,
}

/// An ack that was taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AckTaken {
    /// It changed nothing: the message was done before.
    pub noop: bool,
    /// The message went to the dead letters.
    pub dead: bool,
    /// How many older messages a conflating group skipped with it.
    pub conflated: Option<u64>,
}

/// Why an ack was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AckRefusal {
    /// Partition or transaction id are missing, or the partition is no UUID.
    #[error("db error: `partitionId` must be a UUID and `transactionId` a string")]
    Malformed,
    /// The tenant has no such partition, or the group never popped it.
    #[error("consumer not found")]
    NoConsumer,
    /// The lease is not, or no longer, the one that holds the partition.
    #[error("invalid or expired lease")]
    Lease,
    /// No message with this id, or one that was not handed out.
    #[error("unresolvable transactionId: no such message in what was handed out")]
    Unresolvable,
    /// It failed after it, or a later one, was done.
    #[error("already committed: the cursor has passed this message")]
    Committed,
    /// The store could not be reached.
    #[error("ack flush failed; lease will expire and redeliver")]
    Unavailable,
}

/// A lease extension.
#[derive(Clone, Copy, Debug)]
pub struct ExtendRequest {
    /// Whose.
    pub tenant: TenantId,
    /// The lease; `None` for text that is no UUID.
    pub lease: Option<LeaseId>,
    /// From now, at least 1.
    pub seconds: u64,
}

/// What came of an extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extended {
    /// Partitions whose lease was extended.
    pub renewed: u32,
    /// The earliest of their ends, microseconds since 1970.
    pub until_us: Option<i64>,
}

/// A fetch.
#[derive(Debug)]
pub struct FetchRequest {
    /// Whose.
    pub tenant: TenantId,
    /// What to read.
    pub entries: Vec<FetchEntry>,
    /// Bytes over all entries.
    pub max_bytes: u64,
    /// How long to wait for `min_bytes`; 0 does not wait.
    pub max_wait_ms: u64,
    /// Payload bytes that end a wait.
    pub min_bytes: u64,
}

/// A place to read from.
#[derive(Debug)]
pub struct FetchEntry {
    /// The queue.
    pub queue: Arc<str>,
    /// The partition.
    pub partition: Arc<str>,
    /// From this offset on.
    pub offset: u64,
    /// Bytes of this entry, already clamped.
    pub max_bytes: u64,
}

/// What an entry of a fetch gives, in the order of the entries.
#[derive(Clone, Debug, Default)]
pub struct Fetched {
    /// Why there is nothing, if that is an error.
    pub error: Option<FetchError>,
    /// The partition's number, which is in the message ids.
    pub number: u64,
    /// The messages.
    pub slices: Vec<Slice>,
    /// The next offset to be given out.
    pub high_watermark: u64,
    /// The oldest that is kept.
    pub log_start: u64,
}

/// An error of one entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchError {
    /// No such queue or partition.
    Unknown,
    /// The offset is below the log start or above the high watermark.
    OutOfRange,
}

/// What became of one message of a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// Stored at this offset with this stamp.
    Queued {
        /// Its offset.
        offset: u64,
        /// Its stamp.
        stamp_us: i64,
    },
    /// Its transaction id was known: the original's offset and stamp.
    Duplicate {
        /// The original's.
        offset: u64,
        /// The original's.
        stamp_us: i64,
    },
}

/// What became of one part of a push.
#[derive(Clone, Debug)]
pub struct PushedPart {
    /// The partition's number, which is in the message ids.
    pub number: u64,
    /// Each message, in order.
    pub messages: Vec<Pushed>,
}

/// An answer.
#[derive(Debug)]
pub enum Answer {
    /// To a push: its parts in order.
    Pushed(Vec<PushedPart>),
    /// To a pop.
    Popped(Popped),
    /// To acks, in order.
    Acked(Vec<Acked>),
    /// To an extension.
    Extended(Extended),
    /// To a fetch: its entries in order.
    Fetched(Vec<Fetched>),
    /// To a configuration.
    Configured(QueueRow),
    /// To a removal: whether there was such a queue.
    Deleted(bool),
    /// To a read.
    Read(ReadAnswer),
    /// The store is away, or refuses: nothing, or not all, was done.
    Failed(Failure),
}

/// Why a request was not served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The store cannot be reached. What a push asked for may still be stored: a retry with transaction ids is safe.
    #[error("the store is unavailable: {0}")]
    Unavailable(Box<str>),
    /// Too much waits for the store.
    #[error("too many requests wait for the store")]
    Overloaded,
    /// What it asked for cannot be.
    #[error("{0}")]
    Refused(Box<str>),
}
