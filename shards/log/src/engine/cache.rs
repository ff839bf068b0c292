//! What the log has seen of the store's rows: queues, partitions and their newest segments. The store is right; this is
//! what it is asked against.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use hashbrown::HashMap;
use slab::Slab;

use super::{
    dedup::{ID_BYTES, Index},
    room,
    underway::Underway,
};
use crate::{
    id::{PartitionId, QueueId, TenantId},
    row::{PartitionRow, QueueRow},
    segment::Segment,
    store::JobId,
};

/// A queue in the cache.
pub(super) type QueueKey = usize;
/// A partition in the cache.
pub(super) type PartitionKey = usize;
/// A group in the cache.
pub(super) type GroupKey = usize;

/// A queue.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) row: QueueRow,
    pub(super) partitions: HashMap<Arc<str>, PartitionKey>,
    /// Whether `partitions` has all that the store has had when it was read.
    pub(super) complete: bool,
    pub(super) groups: HashMap<Arc<str>, GroupKey>,
}

/// A partition.
#[derive(Debug)]
pub(super) struct Partition {
    pub(super) id: PartitionId,
    pub(super) number: u64,
    pub(super) queue: QueueKey,
    pub(super) name: Arc<str>,
    pub(super) log_start: u64,
    pub(super) next: u64,
    pub(super) stamp_us: i64,
    pub(super) ahead_us: i64,
    /// Another broker has written: what is known of its end is too old to append to.
    pub(super) stale: bool,
    pub(super) underway: Underway,
    /// Reads that were asked for after this job show all that is known of its end.
    pub(super) known_by: JobId,
    pub(super) index: Index,
    segments: BTreeMap<u64, Cached>,
}

/// A segment in memory, with the hashes of its ids.
#[derive(Debug, Clone)]
pub(super) struct Cached {
    pub(super) segment: Arc<Segment>,
    pub(super) hashes: Arc<[u64]>,
}

impl Partition {
    fn new(row: &PartitionRow, queue: QueueKey) -> Self {
        Self {
            id: row.id,
            number: row.number,
            queue,
            name: Arc::clone(&row.name),
            log_start: row.log_start,
            next: row.next,
            stamp_us: row.stamp_us,
            ahead_us: row.ahead_us,
            stale: false,
            underway: Underway::default(),
            known_by: 0,
            index: Index::starting_at(row.next, row.stamp_us),
            segments: BTreeMap::new(),
        }
    }

    /// Whether its row is too old for what is planned with it, and can be read now.
    pub(super) fn has_to_be_read(&self) -> bool {
        self.stale && !self.underway.any()
    }

    /// The segment in memory that holds an offset.
    pub(super) fn segment(&self, offset: u64) -> Option<&Cached> {
        let (_, cached) = self.segments.range(..=offset).next_back()?;
        (offset < cached.segment.next()).then_some(cached)
    }
}

/// The cache.
#[derive(Debug, Default)]
pub(super) struct Cache {
    pub(super) queues: Slab<Queue>,
    /// In boxes: the place of one that has gone is a pointer, and a slab keeps all its places.
    pub(super) partitions: Slab<Box<Partition>>,
    names: HashMap<(TenantId, Arc<str>), QueueKey>,
    queue_ids: HashMap<QueueId, QueueKey>,
    partition_ids: HashMap<PartitionId, PartitionKey>,
    /// Segments in memory, the oldest first. Those that went another way are passed over.
    segments: VecDeque<(PartitionId, u64)>,
    segment_count: usize,
    segment_bytes: usize,
    /// Partitions with indexed segments, in the order in which these came; some may be passed over.
    indexed: VecDeque<PartitionId>,
    indexed_ids: usize,
}

/// Entries of a queue of the oldest that may be passed over, besides as many as there are others.
const PASSED_OVER_MAX: usize = 4096;

impl Cache {
    pub(super) fn queue(&self, tenant: TenantId, name: &Arc<str>) -> Option<QueueKey> {
        // A key to look up with costs two words and no text.
        self.names.get(&(tenant, Arc::clone(name))).copied()
    }

    pub(super) fn queue_by_id(&self, id: QueueId) -> Option<QueueKey> {
        self.queue_ids.get(&id).copied()
    }

    pub(super) fn partition(&self, queue: QueueKey, name: &str) -> Option<PartitionKey> {
        self.queues[queue].partitions.get(name).copied()
    }

    pub(super) fn partition_by_id(&self, id: PartitionId) -> Option<PartitionKey> {
        self.partition_ids.get(&id).copied()
    }

    /// A queue's groups, in an order that does not depend on hashing: a simulation runs the same way again.
    pub(super) fn groups_of(&self, queue: QueueKey) -> Vec<GroupKey> {
        let mut groups: Vec<_> = self.queues[queue].groups.values().copied().collect();
        groups.sort_unstable();
        groups
    }

    /// A queue's partitions, in such an order.
    pub(super) fn partitions_of(&self, queue: QueueKey) -> Vec<PartitionKey> {
        let mut partitions: Vec<_> = self.queues[queue].partitions.values().copied().collect();
        partitions.sort_unstable();
        partitions
    }

    /// Takes a queue's row in. One of that name with another id is another queue: its key comes back to be dropped.
    pub(super) fn put_queue(&mut self, row: &QueueRow) -> (QueueKey, Option<QueueKey>) {
        if let Some(key) = self.queue_by_id(row.id) {
            self.queues[key].row = row.clone();
            return (key, None);
        }
        let name = (row.tenant, Arc::clone(&row.name));
        let other = self.names.get(&name).copied();
        let key = self.queues.insert(Queue {
            row: row.clone(),
            partitions: HashMap::new(),
            complete: false,
            groups: HashMap::new(),
        });
        self.queue_ids.insert(row.id, key);
        self.names.insert(name, key);
        (key, other)
    }

    /// Takes a partition's row in: new, or newer than what is known.
    pub(super) fn put_partition(&mut self, row: &PartitionRow, queue: QueueKey) -> PartitionKey {
        if let Some(key) = self.partition_by_id(row.id) {
            let partition = &mut self.partitions[key];
            partition.log_start = partition.log_start.max(row.log_start);
            if partition.underway.any() || row.next < partition.next {
                // Read before the append that is being, or has been, committed here.
                return key;
            }
            if row.next > partition.next {
                self.advance(key, row.next, row.stamp_us);
            }
            let partition = &mut self.partitions[key];
            partition.ahead_us = row.ahead_us;
            partition.stale = false;
            return key;
        }
        let key = self.partitions.insert(Box::new(Partition::new(row, queue)));
        self.partition_ids.insert(row.id, key);
        self.queues[queue].partitions.insert(Arc::clone(&row.name), key);
        key
    }

    /// Another broker has written up to `next`.
    pub(super) fn advance(&mut self, key: PartitionKey, next: u64, stamp_us: i64) {
        let partition = &mut self.partitions[key];
        // What lies between is not in the index.
        self.indexed_ids -= partition.index.ids();
        partition.index = Index::starting_at(next, stamp_us);
        partition.next = next;
        partition.stamp_us = stamp_us;
    }

    /// Forgets a partition. Nothing of it may be in a commit.
    pub(super) fn drop_partition(&mut self, key: PartitionKey) {
        let partition = self.partitions.remove(key);
        self.partition_ids.remove(&partition.id);
        room::of_map(&mut self.partition_ids);
        if let Some(queue) = self.queues.get_mut(partition.queue)
            && queue.partitions.get(&partition.name) == Some(&key)
        {
            queue.partitions.remove(&partition.name);
            room::of_map(&mut queue.partitions);
        }
        self.segment_count -= partition.segments.len();
        self.segment_bytes -= partition.segments.values().map(|cached| cached.segment.memory_bytes()).sum::<usize>();
        self.indexed_ids -= partition.index.ids();
    }

    /// Takes a queue's name away, so that it is read again.
    pub(super) fn unname_queue(&mut self, key: QueueKey) {
        let row = &self.queues[key].row;
        let name = (row.tenant, Arc::clone(&row.name));
        if self.names.get(&name) == Some(&key) {
            self.names.remove(&name);
        }
    }

    /// Forgets a queue whose partitions are forgotten, so that its name is read again.
    pub(super) fn drop_queue(&mut self, key: QueueKey) {
        let queue = self.queues.remove(key);
        debug_assert!(queue.partitions.is_empty(), "partitions go first");
        self.queue_ids.remove(&queue.row.id);
    }

    /// Keeps a segment in memory.
    pub(super) fn put_segment(&mut self, key: PartitionKey, segment: Arc<Segment>, hashes: Arc<[u64]>) {
        let partition = &mut self.partitions[key];
        let (base, bytes) = (segment.base, segment.memory_bytes());
        if partition.segments.insert(base, Cached { segment, hashes }).is_none() {
            self.segment_count += 1;
            self.segment_bytes += bytes;
            self.segments.push_back((partition.id, base));
        }
    }

    /// Indexes the ids of the segment that was appended.
    pub(super) fn index_appended(&mut self, key: PartitionKey, base: u64, stamp_us: i64, hashes: &[u64]) {
        let partition = &mut self.partitions[key];
        let ids = partition.index.append(base, stamp_us, hashes);
        self.count_indexed(key, ids);
    }

    /// Indexes a segment that stands before those that are indexed.
    pub(super) fn index_loaded(&mut self, key: PartitionKey, base: u64, stamp_us: i64, hashes: &[u64], before_us: i64) {
        let partition = &mut self.partitions[key];
        let ids = partition.index.prepend(base, stamp_us, hashes, before_us);
        self.count_indexed(key, ids);
    }

    fn count_indexed(&mut self, key: PartitionKey, ids: usize) {
        if ids > 0 {
            self.indexed_ids += ids;
            self.indexed.push_back(self.partitions[key].id);
        }
    }

    /// Lets go of the oldest segments and ids beyond the limits.
    pub(super) fn shrink(&mut self, max_bytes: usize) {
        self.tidy();
        while self.segment_bytes > max_bytes
            && let Some((id, base)) = self.segments.pop_front()
        {
            let Some(&key) = self.partition_ids.get(&id) else { continue };
            if let Some(cached) = self.partitions[key].segments.remove(&base) {
                self.segment_count -= 1;
                self.segment_bytes -= cached.segment.memory_bytes();
            }
        }
        while self.indexed_ids * ID_BYTES > max_bytes / 4
            && let Some(id) = self.indexed.pop_front()
        {
            let Some(&key) = self.partition_ids.get(&id) else { continue };
            if let Some(ids) = self.partitions[key].index.forget_oldest() {
                self.indexed_ids -= ids;
            }
        }
    }

    /// Takes entries of what has gone out of the queues of the oldest, when they are too many.
    fn tidy(&mut self) {
        if self.segments.len() > 2 * self.segment_count + PASSED_OVER_MAX {
            let (ids, partitions) = (&self.partition_ids, &self.partitions);
            self.segments
                .retain(|(id, base)| ids.get(id).is_some_and(|&key| partitions[key].segments.contains_key(base)));
            self.segments.shrink_to_fit();
        }
        // Every one of them stands for ids, of which there are at least as many.
        if self.indexed.len() > 2 * self.indexed_ids + PASSED_OVER_MAX {
            let mut left = HashMap::new();
            let (ids, partitions) = (&self.partition_ids, &self.partitions);
            // The newest stay, as many of each partition as its index has segments.
            let mut kept: Vec<_> = std::mem::take(&mut self.indexed).into();
            kept.reverse();
            kept.retain(|id| {
                let Some(&key) = ids.get(id) else { return false };
                let left = left.entry(*id).or_insert_with(|| partitions[key].index.segments());
                let stays = *left > 0;
                *left -= usize::from(stays);
                stays
            });
            kept.reverse();
            kept.shrink_to_fit();
            self.indexed = kept.into();
        }
    }

    /// Whether so many more ids fit without pushing out others.
    pub(super) fn has_room_for_ids(&self, ids: usize, max_bytes: usize) -> bool {
        (self.indexed_ids + ids) * ID_BYTES <= max_bytes / 4
    }

    /// Lets go of ids that are out of their window.
    pub(super) fn forget_ids_before(&mut self, key: PartitionKey, stamp_us: i64) {
        let index = &mut self.partitions[key].index;
        while index.oldest_us().is_some_and(|oldest_us| oldest_us < stamp_us) {
            self.indexed_ids -= index.forget_oldest().unwrap_or_default();
        }
    }

    /// Removes segments that lie below a log start.
    pub(super) fn start_log_at(&mut self, key: PartitionKey, log_start: u64) {
        let partition = &mut self.partitions[key];
        partition.log_start = partition.log_start.max(log_start);
        while let Some(first) = partition.segments.first_entry()
            && first.get().segment.next() <= log_start
        {
            self.segment_count -= 1;
            self.segment_bytes -= first.remove().segment.memory_bytes();
        }
        while partition.index.oldest_ends_by(log_start) {
            self.indexed_ids -= partition.index.forget_oldest().unwrap_or_default();
        }
    }

    /// Bytes of segments, ids of indexes, queues and partitions in memory.
    pub(super) fn usage(&self) -> (usize, usize, usize, usize) {
        (self.segment_bytes, self.indexed_ids, self.queues.len(), self.partitions.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Uuid;

    #[test]
    fn what_has_gone_leaves_nothing_behind() {
        let mut cache = Cache::default();
        let (id, name) = (Uuid([1; 16]), Arc::<str>::from("q"));
        let row = QueueRow {
            id,
            tenant: id,
            name: Arc::clone(&name),
            namespace: Arc::clone(&name),
            task: Arc::clone(&name),
            created_us: 0,
            options: crate::options::QueueOptions::default(),
        };
        let (queue, _) = cache.put_queue(&row);
        let row = PartitionRow { id, number: 1, queue: id, name, log_start: 0, next: 0, stamp_us: 0, ahead_us: 0 };
        let key = cache.put_partition(&row, queue);
        for offset in 0..100_000 {
            let segment = Segment { base: offset, stamp_us: 0, bytes: Arc::new([0; 10]), ends: Arc::new([10]) };
            cache.put_segment(key, Arc::new(segment), Arc::new([7]));
            cache.index_appended(key, offset, offset as i64, &[7]);
            cache.start_log_at(key, offset.saturating_sub(10));
            cache.forget_ids_before(key, offset as i64 - 10);
            cache.shrink(1 << 30);
        }
        assert!(cache.segments.len() <= 2 * PASSED_OVER_MAX, "{}", cache.segments.len());
        assert!(cache.indexed.len() <= 2 * PASSED_OVER_MAX, "{}", cache.indexed.len());
        cache.drop_partition(key);
        assert_eq!((cache.segment_bytes, cache.segment_count, cache.indexed_ids), (0, 0, 0));
    }
}
