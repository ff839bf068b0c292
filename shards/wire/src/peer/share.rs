//! One node's share of ephemeral queues, as listings and depths over all nodes put them together.

use super::codec::{FieldError, Reader, Writer};
use crate::name::NAME_BYTES_MAX;

/// Queues of one [`Answer::Queues`](super::Answer::Queues), at most.
pub const QUEUES_MAX: usize = 1_000;

/// Partitions, and groups, of one [`DepthShare`], at most.
pub const DEPTH_ROWS_MAX: usize = 1 << 20;

/// A node's share of one queue, as a listing shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueShare {
    /// The queue.
    pub queue: String,
    /// Whether it is declared there.
    pub is_declared: bool,
    /// Messages.
    pub depth: u64,
    /// Their payload bytes.
    pub bytes: u64,
    /// Partitions.
    pub partitions: u64,
    /// Groups.
    pub groups: u64,
    /// Messages that bounds, TTL and the retry limit took, in this order.
    pub drops: [u64; 3],
    /// The options in force.
    pub limits: QueueLimits,
}

/// The options in force for a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// The bound on payload bytes.
    pub max_bytes: u64,
    /// The bound on messages.
    pub max_length: u64,
    /// Whether the oldest go at a bound; else a push is refused.
    pub drops_oldest: bool,
    /// The age at which a message is dropped, if any.
    pub ttl_ms: Option<u64>,
    /// How long a delivered message waits for its ack.
    pub lease_ms: u64,
    /// Deliveries of a message before it is dropped.
    pub retry_limit: u32,
    /// How long a waiting pop gathers messages; 0 does not.
    pub window_ms: u64,
    /// The number of messages that ends it; 0 does not.
    pub window_count: u32,
}

/// A node's share of one queue, as its depth shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DepthShare {
    /// Whether it is declared there.
    pub is_declared: bool,
    /// Messages.
    pub pending: u64,
    /// Partitions that hold some.
    pub partitions_pending: u64,
    /// Their payload bytes.
    pub bytes: u64,
    /// Name, messages and payload bytes of each partition.
    pub partitions: Vec<(String, u64, u64)>,
    /// Name, messages before it and messages that it missed, of each group.
    pub groups: Vec<(String, u64, u64)>,
}

/// Bytes of the smallest share of a queue: its name's length, two flags and an option, eleven u64 and two u32.
const QUEUE_BYTES_MIN: usize = 4 + 3 + 11 * 8 + 2 * 4;

/// Bytes of the smallest row of a depth.
const ROW_BYTES_MIN: usize = 4 + 2 * 8;

impl QueueShare {
    fn read(reader: &mut Reader<'_>) -> Result<Self, FieldError> {
        Ok(Self {
            queue: reader.text(NAME_BYTES_MAX)?,
            is_declared: reader.bool()?,
            depth: reader.u64()?,
            bytes: reader.u64()?,
            partitions: reader.u64()?,
            groups: reader.u64()?,
            drops: [reader.u64()?, reader.u64()?, reader.u64()?],
            limits: QueueLimits {
                max_bytes: reader.u64()?,
                max_length: reader.u64()?,
                drops_oldest: reader.bool()?,
                ttl_ms: reader.optional(Reader::u64)?,
                lease_ms: reader.u64()?,
                retry_limit: reader.u32()?,
                window_ms: reader.u64()?,
                window_count: reader.u32()?,
            },
        })
    }

    fn write(&self, writer: &mut Writer) {
        writer.text(&self.queue, NAME_BYTES_MAX);
        writer.bool(self.is_declared);
        [self.depth, self.bytes, self.partitions, self.groups].into_iter().for_each(|count| writer.u64(count));
        self.drops.into_iter().for_each(|count| writer.u64(count));
        let limits = &self.limits;
        writer.u64(limits.max_bytes);
        writer.u64(limits.max_length);
        writer.bool(limits.drops_oldest);
        writer.optional(limits.ttl_ms, Writer::u64);
        writer.u64(limits.lease_ms);
        writer.u32(limits.retry_limit);
        writer.u64(limits.window_ms);
        writer.u32(limits.window_count);
    }

    pub(super) fn read_list(reader: &mut Reader<'_>) -> Result<Vec<Self>, FieldError> {
        reader.list(QUEUES_MAX, QUEUE_BYTES_MIN, Self::read)
    }

    pub(super) fn write_list(list: &[Self], writer: &mut Writer) {
        writer.list(list, QUEUES_MAX, |writer, share| share.write(writer));
    }
}

impl DepthShare {
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, FieldError> {
        let row = |reader: &mut Reader<'_>| Ok((reader.text(NAME_BYTES_MAX)?, reader.u64()?, reader.u64()?));
        Ok(Self {
            is_declared: reader.bool()?,
            pending: reader.u64()?,
            partitions_pending: reader.u64()?,
            bytes: reader.u64()?,
            partitions: reader.list(DEPTH_ROWS_MAX, ROW_BYTES_MIN, row)?,
            groups: reader.list(DEPTH_ROWS_MAX, ROW_BYTES_MIN, row)?,
        })
    }

    pub(super) fn write(&self, writer: &mut Writer) {
        writer.bool(self.is_declared);
        writer.u64(self.pending);
        writer.u64(self.partitions_pending);
        writer.u64(self.bytes);
        for rows in [&self.partitions, &self.groups] {
            writer.list(rows, DEPTH_ROWS_MAX, |writer, (name, first, second)| {
                writer.text(name, NAME_BYTES_MAX);
                writer.u64(*first);
                writer.u64(*second);
            });
        }
    }
}
