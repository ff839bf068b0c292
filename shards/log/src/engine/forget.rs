//! Queues and partitions that are gone from the store, or were made again.

use super::{
    Log,
    cache::{PartitionKey, QueueKey},
    op::{Kind, Wait},
};
use crate::id::PartitionId;

impl<T: Copy> Log<T> {
    /// Forgets a queue and all that belongs to it, so that its name is read again. What is in a commit is forgotten when
    /// that is done: its queue stays until then, without its name.
    pub(super) fn forget_queue(&mut self, key: QueueKey) {
        if !self.cache.queues.contains(key) {
            return;
        }
        let partitions = self.cache.partitions_of(key);
        self.forget_partitions(key, &partitions);
        let groups = self.cache.groups_of(key);
        let mut waiting = Vec::new();
        let busy = groups.iter().any(|&group| self.groups[group].cursors.values().any(|cursor| cursor.busy));
        for &group in &groups {
            waiting.extend(self.groups[group].parked.drain(..));
        }
        self.cache.unname_queue(key);
        if !busy && self.cache.queues[key].partitions.is_empty() {
            for group in groups {
                self.wake(&Wait::Scan(group));
                if let Some(noted_us) = self.groups[group].noted_us {
                    self.group_times.remove(&(noted_us, group));
                }
                self.groups.remove(group);
            }
            self.cache.drop_queue(key);
            // Another queue may get its key.
            self.zombies.retain(|&zombie| zombie != key);
        } else if !self.zombies.contains(&key) {
            self.zombies.push(key);
        }
        for key in waiting {
            let Some(op) = self.op_mut(key) else { continue };
            if let Kind::Pop(pop) = &mut op.kind {
                // It waits anew, on whatever has the name by then.
                pop.listed = false;
            }
            if op.parked {
                self.make_ready(key);
            }
        }
    }

    /// Forgets partitions of a queue, but for those of which something is in a commit: their rows are read again.
    pub(super) fn forget_partitions(&mut self, queue: QueueKey, partitions: &[PartitionKey]) {
        let groups = self.cache.groups_of(queue);
        let mut waiting = Vec::new();
        for &key in partitions {
            let partition = &mut self.cache.partitions[key];
            if partition.underway.any() || groups.iter().any(|&group| self.groups[group].is_busy(key)) {
                partition.stale = true;
                continue;
            }
            for &group in &groups {
                waiting.extend(self.groups[group].drop_partition(key));
            }
            waiting.extend(self.fetchers.remove(&key).unwrap_or_default());
            self.cache.drop_partition(key);
        }
        for group in groups {
            self.groups[group].sweep();
        }
        for op in waiting {
            if self.op(op).is_some_and(|op| op.parked) {
                self.make_ready(op);
            }
        }
    }

    /// The store says that there is no partition with this id any more: its queue was removed.
    pub(super) fn partition_is_gone(&mut self, id: PartitionId) {
        if let Some(key) = self.cache.partition_by_id(id) {
            let queue = self.cache.partitions[key].queue;
            self.forget_queue(queue);
        }
    }
}
