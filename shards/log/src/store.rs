//! What the log asks of a store, and what comes back.
//!
//! Four kinds of work: [`Load`]s read rows, a [`Batch`] of writes commits as one, [`Create`] makes rows that are named
//! for the first time, and [`Admin`] does what is rare. A store keeps to three rules:
//!
//! - **A batch commits whole or not at all**, and what it answers is what it did. Within it every append and every
//!   cursor stands for itself: one that meets rows other than those it expects is left out and said so; the others are
//!   written.
//! - **Times are the store's.** A batch has one time, `now_us`, read in the same transaction.
//! - **Creating is idempotent**: what is there already stays as it is and is answered.

use std::sync::Arc;

use crate::{
    id::{LeaseId, PartitionId, QueueId, TenantId},
    options::{OptionsPatch, QueueOptions},
    read::{Read, ReadAnswer},
    row::{CursorRow, DeadLetter, GroupRow, IndexRow, PartitionRow, QueueRow, SegmentRow},
};

/// Work that a store is to do, under a number that its outcome is told with.
pub type JobId = u64;

/// A read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Load {
    /// A queue by name, with all groups that are registered on it: [`Loaded::Queue`].
    Queue {
        /// Whose.
        tenant: TenantId,
        /// Its name.
        name: Arc<str>,
    },
    /// Queues by namespace and task, at most 10,000, with their groups: [`Loaded::Queues`].
    Discover {
        /// Whose.
        tenant: TenantId,
        /// Equal to this, if given.
        namespace: Option<Arc<str>>,
        /// Equal to this, if given.
        task: Option<Arc<str>>,
    },
    /// A partition by name: [`Loaded::Partition`].
    Partition {
        /// The queue.
        queue: QueueId,
        /// Its name.
        name: Arc<str>,
    },
    /// A partition by id, and the queue it belongs to: [`Loaded::PartitionById`].
    PartitionById(PartitionId),
    /// The partitions of a queue with a number above `after`, in the order of their numbers, at most `limit`:
    /// [`Loaded::Partitions`].
    Partitions {
        /// The queue.
        queue: QueueId,
        /// 0 starts at the first.
        after: u64,
        /// The most rows.
        limit: u32,
    },
    /// A group's cursors in the partitions of a queue with a number above `after`, in the order of the partitions'
    /// numbers, at most `limit` partitions with a cursor: [`Loaded::Cursors`].
    CursorsOf {
        /// The queue.
        queue: QueueId,
        /// The group.
        group: Arc<str>,
        /// 0 starts at the first.
        after: u64,
        /// The most rows.
        limit: u32,
    },
    /// One group's cursor in one partition: [`Loaded::Cursor`].
    Cursor {
        /// The partition.
        partition: PartitionId,
        /// The group.
        group: Arc<str>,
    },
    /// The segments that hold offsets from `from` on: in order, as many as come to `max_bytes` of stored data, at least
    /// one if there is one, at most 1,024: [`Loaded::Segments`].
    Segments {
        /// The partition.
        partition: PartitionId,
        /// The first offset that is wanted.
        from: u64,
        /// Where to stop.
        max_bytes: u32,
    },
    /// The indexes of the segments that begin below `below`, the newest first, down to and with the first one that is
    /// stamped before `since_us`; at most 10,000: [`Loaded::Indexes`]. Fewer, without such a one, means that there is no
    /// older segment.
    Indexes {
        /// The partition.
        partition: PartitionId,
        /// The earliest stamp.
        since_us: i64,
        /// The offset where it ends.
        below: u64,
    },
    /// The first offset stamped at `stamp_us` or later; the high watermark when there is none: [`Loaded::Offset`].
    OffsetAt {
        /// The partition.
        partition: PartitionId,
        /// The time.
        stamp_us: i64,
    },
    /// The store's time: [`Loaded::Clock`].
    Clock,
    /// Queues of all tenants that remove messages, at most 10,000: [`Loaded::Queues`], their groups left out.
    Retaining,
    /// Partitions with segments stamped at `since_us` or later, and queues changed since then: [`Loaded::Changed`].
    Changed {
        /// What an earlier answer gave as `safe_us`; `i64::MAX` reads nothing but that.
        since_us: i64,
    },
}

/// What a [`Load`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Loaded {
    /// A queue and its groups.
    Queue(Option<(QueueRow, Vec<GroupRow>)>),
    /// Queues and their groups.
    Queues(Vec<(QueueRow, Vec<GroupRow>)>),
    /// A partition.
    Partition(Option<PartitionRow>),
    /// A partition, its queue, and the queue's groups.
    PartitionById(Option<(PartitionRow, QueueRow, Vec<GroupRow>)>),
    /// Partitions.
    Partitions(Vec<PartitionRow>),
    /// Cursors, each with its partition's number.
    Cursors(Vec<(u64, CursorRow)>),
    /// A cursor.
    Cursor(Option<CursorRow>),
    /// Segments.
    Segments(Vec<SegmentRow>),
    /// Indexes, the newest first.
    Indexes(Vec<IndexRow>),
    /// An offset.
    Offset(u64),
    /// Microseconds since 1970.
    Clock(i64),
    /// What has changed.
    Changed {
        /// No segment stamped below this can still appear.
        safe_us: i64,
        /// The partitions, each with its high watermark and newest stamp.
        partitions: Vec<ChangedPartition>,
        /// Queues whose rows were made or changed.
        queues: Vec<QueueRow>,
        /// Partitions of queues that were removed, for a minute at least.
        dropped: Vec<PartitionId>,
    },
}

/// A partition that was written to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedPartition {
    /// Its queue.
    pub queue: QueueId,
    /// Its id.
    pub partition: PartitionId,
    /// Its high watermark.
    pub next: u64,
    /// The stamp of its newest segment.
    pub stamp_us: i64,
}

/// Writes that commit as one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// The batch that this one is to be written after, when that is still in commit: what follows it is left out
    /// otherwise. The outcome of that one is told first.
    pub behind: Option<JobId>,
    /// Segments, sorted by partition.
    pub appends: Vec<Append>,
    /// Cursors, sorted by partition and group.
    pub cursors: Vec<CursorWrite>,
    /// Messages that are given up.
    pub dead: Vec<(usize, DeadLetter)>,
}

/// A segment to be appended. Left out when the partition is gone, when its newest segment does not end at `base`, or is
/// not the one that this follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Append {
    /// The partition.
    pub partition: PartitionId,
    /// The queue that it belongs to.
    pub queue: QueueId,
    /// The offset of its first record: the high watermark as the log knows it.
    pub base: u64,
    /// The offset behind its last.
    pub next: u64,
    /// The stamp becomes the latest of this, the batch's time and the stamp of the segment before it.
    pub floor_us: i64,
    /// [`PartitionRow::ahead_us`] after it.
    pub ahead_us: i64,
    /// Which append this is: a number of its own, stored with the segment.
    pub mark: i64,
    /// The mark of the segment before it, where that was still in commit when this was planned.
    pub follows: Option<i64>,
    /// As in [`SegmentRow`].
    pub hashes: Vec<u8>,
    /// As in [`SegmentRow`].
    pub data: Vec<u8>,
}

/// A cursor to be written. Left out when it is not as expected, or when what it needs is left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CursorWrite {
    /// The partition.
    pub partition: PartitionId,
    /// The group.
    pub group: Arc<str>,
    /// The version that it replaces; `None` makes it, if it is not there and the partition is.
    pub expect: Option<i64>,
    /// Its new version.
    pub version: i64,
    /// An append of this batch that has to be written too.
    pub needs_append: Option<usize>,
    /// As in [`CursorRow`].
    pub next: u64,
    /// As in [`CursorRow`].
    pub run_end: u64,
    /// The lease after it.
    pub lease: Option<LeaseWrite>,
    /// As in [`CursorRow`].
    pub retries: i64,
    /// As in [`CursorRow`].
    pub consumed: u64,
}

/// A lease that lapses at the later of `floor_us` and the batch's time + `for_us`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseWrite {
    /// Its id.
    pub id: LeaseId,
    /// Its end if it is kept as it is.
    pub floor_us: i64,
    /// Its length from now; `i64::MIN / 2` keeps the floor.
    pub for_us: i64,
}

/// Keeps a lease's end as it is.
pub const KEEP_LEASE: i64 = i64::MIN / 2;

/// What a [`Batch`] did, once it is durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// The batch's time.
    pub now_us: i64,
    /// The stamp of each append, `None` where it was left out.
    pub stamps: Vec<Option<i64>>,
    /// Whether each cursor was written. Dead letters go with their cursors.
    pub cursors: Vec<bool>,
}

/// Rows that are made if they are not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Create {
    /// A queue.
    Queue {
        /// Its id, if it is made.
        id: QueueId,
        /// Whose.
        tenant: TenantId,
        /// Its name.
        name: Arc<str>,
        /// Its namespace.
        namespace: Arc<str>,
        /// Its task.
        task: Arc<str>,
        /// Its options.
        options: QueueOptions,
    },
    /// A partition. Left out when its queue is gone.
    Partition {
        /// Its id, if it is made.
        id: PartitionId,
        /// The queue.
        queue: QueueId,
        /// Its name.
        name: Arc<str>,
    },
    /// A group. Left out when its queue is gone.
    Group {
        /// The queue.
        queue: QueueId,
        /// The group.
        group: Arc<str>,
        /// As in [`GroupRow`].
        mode: Arc<str>,
        /// As in [`GroupRow`]; `None` is the time at which it is made.
        from_us: Option<i64>,
        /// As in [`GroupRow`].
        conflation: bool,
    },
}

/// The row that is there after a [`Create`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Created {
    /// The queue, with its groups.
    Queue(QueueRow, Vec<GroupRow>),
    /// The partition.
    Partition(PartitionRow),
    /// The group.
    Group(GroupRow),
    /// Its queue is gone.
    Gone,
}

/// What is rare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admin {
    /// Makes a queue or changes its options: [`AdminDone::Configured`].
    Configure {
        /// The id, if it is made.
        id: QueueId,
        /// Whose.
        tenant: TenantId,
        /// Its name.
        name: Arc<str>,
        /// What changes; a new queue starts from the defaults.
        patch: Box<OptionsPatch>,
    },
    /// Removes a queue with its messages, partitions, cursors, groups and dead letters: [`AdminDone::Deleted`].
    Delete {
        /// Whose.
        tenant: TenantId,
        /// Its name.
        name: Arc<str>,
    },
    /// Extends every live lease with this id in the tenant's queues to the later of its end and now + `for_us`:
    /// [`AdminDone::Extended`].
    Extend {
        /// Whose.
        tenant: TenantId,
        /// The lease.
        lease: LeaseId,
        /// From now.
        for_us: i64,
    },
    /// Removes what retention lets go of: [`AdminDone::Retained`].
    Retain(Retain),
}

/// A step of retention over one queue: at most `limit` segments and partitions are touched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retain {
    /// The queue.
    pub queue: QueueId,
    /// Segments stamped this long ago or longer go.
    pub age_us: Option<i64>,
    /// Segments stamped this long ago or longer, which every group has consumed, go. Nothing where there is no group.
    pub consumed_age_us: Option<i64>,
    /// The most segments.
    pub limit: u32,
}

/// What came of an [`Admin`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdminDone {
    /// The queue as it is now, its groups, and whether it was there.
    Configured(QueueRow, Vec<GroupRow>),
    /// The id of the queue that was removed.
    Deleted(Option<QueueId>),
    /// The cursors whose leases were extended, as they are now.
    Extended {
        /// The time.
        now_us: i64,
        /// The cursors.
        cursors: Vec<CursorRow>,
    },
    /// Partitions whose log starts later now, and whether there is more to do.
    Retained {
        /// Each with its log start.
        starts: Vec<(PartitionId, u64)>,
        /// Messages that went.
        messages: u64,
        /// Whether the limit was met.
        more: bool,
    },
}

/// A piece of work for a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// Read rows: [`Done::Loaded`].
    Load(Load),
    /// Commit writes: [`Done::Committed`].
    Commit(Batch),
    /// Make rows: [`Done::Created`].
    Create(Vec<Create>),
    /// Do what is rare: [`Done::Admin`].
    Admin(Admin),
    /// Read lists and counts: [`Done::Read`].
    Read(Read),
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done {
    /// The rows.
    Loaded(Loaded),
    /// What was written.
    Committed(Committed),
    /// The rows that are there now, in the order asked.
    Created(Vec<Created>),
    /// What was done.
    Admin(AdminDone),
    /// What was read.
    Read(ReadAnswer),
}

/// Why a store did nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreFailure {
    /// It cannot be reached, or says that it can't now. Nothing was done.
    #[error("the store is unavailable: {0}")]
    Unavailable(Box<str>),
    /// It will not, and would not if asked again.
    #[error("the store refused: {0}")]
    Refused(Box<str>),
}
