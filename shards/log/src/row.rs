//! What a store keeps, row by row, as the log sees it.
//!
//! All times are microseconds since 1970 by the store's clock.

use std::sync::Arc;

use crate::{
    id::{LeaseId, PartitionId, QueueId, TenantId, Uuid},
    options::QueueOptions,
};

/// A queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueRow {
    /// Its id.
    pub id: QueueId,
    /// Whose it is.
    pub tenant: TenantId,
    /// Its name, unique for the tenant.
    pub name: Arc<str>,
    /// For discovery and listings.
    pub namespace: Arc<str>,
    /// For discovery and listings.
    pub task: Arc<str>,
    /// When it was made.
    pub created_us: i64,
    /// What it does.
    pub options: QueueOptions,
}

/// A partition with the end of its log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionRow {
    /// Its id.
    pub id: PartitionId,
    /// Its number: unique in the store, in the order of creation, from 1.
    pub number: u64,
    /// The queue.
    pub queue: QueueId,
    /// Its name, unique in the queue.
    pub name: Arc<str>,
    /// The oldest offset that is kept; equals `next` when none is.
    pub log_start: u64,
    /// The high watermark: the offset of the next message.
    pub next: u64,
    /// The stamp of the newest segment; 0 with none.
    pub stamp_us: i64,
    /// By how much the time of a version 7 transaction id was ever ahead of its stamp here, in microseconds.
    pub ahead_us: i64,
}

/// A consumer group's registration on a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupRow {
    /// The group's name; [`QUEUE_MODE`] for queue mode.
    pub group: Arc<str>,
    /// `all`, `new` or `timestamp`.
    pub mode: Arc<str>,
    /// A partition without a cursor starts at the first message stamped at or after this.
    pub from_us: i64,
    /// When it was registered.
    pub created_us: i64,
    /// Whether it takes the newest message of each partition only.
    pub conflation: bool,
}

/// The group of pops that name none.
pub const QUEUE_MODE: &str = "__QUEUE_MODE__";

/// How far a group has come in a partition, and who holds the next messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CursorRow {
    /// The partition.
    pub partition: PartitionId,
    /// The group.
    pub group: Arc<str>,
    /// Changes with every write: the number of the last one, drawn at random.
    pub version: i64,
    /// The next offset to deliver: everything below is done.
    pub next: u64,
    /// The end, exclusive, of the last run that was handed out, also when its lease is over. At least `next`.
    pub run_end: u64,
    /// The lease of that run, if it was not ended. It may have lapsed.
    pub lease: Option<Lease>,
    /// Charged failures since the last run was completed.
    pub retries: i64,
    /// Messages that were acked or passed, ever.
    pub consumed: u64,
}

/// A lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Its id.
    pub id: LeaseId,
    /// When it lapses.
    pub until_us: i64,
}

/// A segment as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentRow {
    /// The partition.
    pub partition: PartitionId,
    /// The offset of its first record.
    pub base: u64,
    /// The offset behind its last.
    pub next: u64,
    /// When it was stored. Never below the stamp of the segment before it.
    pub stamp_us: i64,
    /// The hashes of its transaction ids, 8 bytes each, little endian; empty when it has none at all.
    pub hashes: Vec<u8>,
    /// Records, [packed](crate::segment::Packer::pack).
    pub data: Vec<u8>,
}

/// The index of a segment, without its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexRow {
    /// As in [`SegmentRow`].
    pub base: u64,
    /// As in [`SegmentRow`].
    pub next: u64,
    /// As in [`SegmentRow`].
    pub stamp_us: i64,
    /// As in [`SegmentRow`].
    pub hashes: Vec<u8>,
}

/// A message that was given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// The row's id.
    pub id: Uuid,
    /// Where it was.
    pub partition: PartitionId,
    /// Its offset there.
    pub offset: u64,
    /// The group that gave it up.
    pub group: Arc<str>,
    /// Its transaction id.
    pub transaction_id: String,
    /// Why.
    pub error: String,
    /// Charged failures before.
    pub retries: i64,
    /// Its encoded record: what it was survives the removal of its segment.
    pub record: Vec<u8>,
}
