//! Lists and counts, as the reading routes show them. A store answers them on its own; the log only passes them on.

use std::sync::Arc;

use crate::{
    id::{PartitionId, TenantId},
    row::QueueRow,
};

/// What to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Read {
    /// All queues of a tenant, newest first: [`ReadAnswer::Queues`].
    Queues {
        /// Whose.
        tenant: TenantId,
    },
    /// One queue with its partitions: [`ReadAnswer::Queue`].
    Queue {
        /// Whose.
        tenant: TenantId,
        /// Its name.
        queue: Arc<str>,
    },
    /// What a group has before it: [`ReadAnswer::Depth`].
    Depth {
        /// Whose.
        tenant: TenantId,
        /// The queue.
        queue: Arc<str>,
        /// The group; `None` is the slowest named group, or queue mode where there is none.
        group: Option<Arc<str>>,
    },
    /// Partitions with the most pending messages: [`ReadAnswer::Lags`].
    Lags {
        /// Whose.
        tenant: TenantId,
        /// Only of this queue.
        queue: Option<Arc<str>>,
        /// The most rows.
        limit: u32,
    },
    /// Partitions written to since a time: [`ReadAnswer::Changed`].
    Changed {
        /// Whose.
        tenant: TenantId,
        /// What to look for.
        entries: Vec<ChangedEntry>,
    },
}

/// A queue of a [`Read::Changed`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedEntry {
    /// The queue.
    pub queue: Arc<str>,
    /// Partitions whose newest stamp is this or later; `None` is all.
    pub since_us: Option<i64>,
    /// Partitions with a number above this.
    pub after: u64,
    /// The most rows.
    pub limit: u32,
}

/// Messages of a queue or partition, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Stored now.
    pub total: u64,
    /// Behind the slowest named group, or behind queue mode where there is no named group.
    pub pending: u64,
    /// In live leases.
    pub processing: u64,
    /// Given up.
    pub dead: u64,
}

/// A queue, counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueStats {
    /// The queue.
    pub row: QueueRow,
    /// Its partitions.
    pub partitions: u64,
    /// Stored bytes, compressed as they are.
    pub retained_bytes: u64,
    /// Its segments.
    pub segments: u64,
    /// Its messages.
    pub counts: Counts,
}

/// A partition, counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionStats {
    /// Its id.
    pub id: PartitionId,
    /// Its name.
    pub name: Arc<str>,
    /// When it was made.
    pub created_us: i64,
    /// The oldest message that is not consumed.
    pub oldest_us: Option<i64>,
    /// The newest that is stored.
    pub newest_us: Option<i64>,
    /// Its messages.
    pub counts: Counts,
}

/// A partition and what is pending in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionLag {
    /// The queue's name.
    pub queue: Arc<str>,
    /// Its name.
    pub partition: Arc<str>,
    /// Its id.
    pub id: PartitionId,
    /// Its messages.
    pub counts: Counts,
    /// The age of the oldest pending message; `None` when caught up.
    pub lag_us: Option<i64>,
}

/// A partition that was written to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedRow {
    /// Its name.
    pub name: Arc<str>,
    /// Its id.
    pub id: PartitionId,
    /// Its number: pass the last one as `after` for the next page.
    pub number: u64,
    /// The high watermark.
    pub next: u64,
    /// The oldest offset that is kept.
    pub log_start: u64,
    /// The stamp of its newest message.
    pub stamp_us: i64,
}

/// What a group has before it in a queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Depth {
    /// By partition, those that have any.
    pub pending: Vec<(Arc<str>, u64)>,
    /// Whether the group conflates.
    pub conflation: bool,
}

/// What was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadAnswer {
    /// Queues.
    Queues(Vec<QueueStats>),
    /// A queue, or none.
    Queue(Option<Box<(QueueStats, Vec<PartitionStats>)>>),
    /// Pending messages of a queue, or no such queue.
    Depth(Option<Depth>),
    /// Partitions, most pending first.
    Lags(Vec<PartitionLag>),
    /// Changed partitions by entry, in the order of their numbers; `None` for a queue that is not there.
    Changed {
        /// No record stamped at or below this can still appear.
        safe_us: i64,
        /// By entry.
        entries: Vec<Option<Vec<ChangedRow>>>,
    },
}
