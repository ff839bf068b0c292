//! The reads: depth, listing, statistics.

use super::Engine;
use crate::queue::{Partition, Queue};
use crate::types::{Depth, GroupDepth, PartitionDepth, QueueRow, Stats, TenantId};

impl Engine {
    /// Whether a queue has a partition here that holds messages or parked pops.
    pub fn has_partitions(&self, tenant: TenantId, queue: &str) -> bool {
        self.find(tenant, queue).is_some_and(|queue| self.queues[queue].contents.is_some())
    }

    /// Whether a partition holds messages that somebody has still to consume.
    pub fn holds_messages(&self, tenant: TenantId, queue: &str, partition: &str) -> bool {
        let Some(queue) = self.find(tenant, queue) else { return false };
        let place = self.find_partition(queue, partition);
        place.is_some_and(|place| self.queues[queue].contents().partition(place).depth > 0)
    }

    /// The depth of one queue, for one group or for all. `None` if there is no such queue. A
    /// group that does not exist has everything pending: it would start at the oldest message.
    /// Costs a look at each cursor, and with a group at each message, for its bytes.
    pub fn depth(&self, tenant: TenantId, queue: &str, group: Option<&str>) -> Option<Depth> {
        let queue = &self.queues[self.find(tenant, queue)?];
        let asked = group.and_then(|name| queue.find_group(name));
        let mut depth = Depth {
            declared: queue.declared.is_some(),
            pending: 0,
            partitions_pending: 0,
            bytes: 0,
            partitions: Vec::new(),
            groups: Vec::with_capacity(usize::from(queue.group_count)),
        };
        for partition in partitions(queue) {
            let (pending, bytes) = match asked {
                Some(group) => (partition.pending(group), self.pending_bytes(queue, partition, group)),
                None => (partition.depth, partition.bytes),
            };
            depth.pending += pending;
            depth.bytes += bytes;
            depth.partitions_pending += u64::from(pending > 0);
            depth.partitions.push(PartitionDepth { partition: partition.name().to_owned(), pending, bytes });
        }
        for slot in queue.group_slots() {
            let group = queue.group(slot);
            depth.groups.push(GroupDepth {
                group: group.name().to_owned(),
                pending: partitions(queue).map(|partition| partition.pending(slot)).sum(),
                skipped: group.skipped,
            });
        }
        Some(depth)
    }

    fn pending_bytes(&self, queue: &Queue, partition: &Partition, group: u16) -> u64 {
        let Some(cursor) = partition.cursor(group) else { return partition.bytes };
        let floor = partition.floor;
        let counted = partition.ring.iter().filter(|slot| slot.is_counted(queue.group_count));
        counted
            .filter(|slot| {
                slot.sequence >= cursor.next.max(floor)
                    || cursor.returned.contains_key(&slot.sequence)
                    || self.leases.attempts(group, slot.sequence).is_some()
            })
            .map(|slot| slot.span.payload_bytes())
            .sum()
    }

    /// Lists a tenant's queues in pieces: looks at up to `max_slots` places from `from` on (0 to
    /// start), calls `each` for every queue found, and returns where to go on, or `None` at the
    /// end. Queues that come or go between two pieces may be in the listing or not.
    pub fn scan(&self, tenant: TenantId, from: u32, max_slots: u32, each: &mut dyn FnMut(QueueRow<'_>)) -> Option<u32> {
        let end = self.queues.slots();
        let to = end.min(from.saturating_add(max_slots));
        for index in from..to {
            let Some(queue) = self.queues.get(index).filter(|queue| self.tenants.id(queue.tenant) == tenant) else {
                continue;
            };
            let (depth, bytes) = queue.load();
            each(QueueRow {
                queue: queue.name(),
                declared: queue.declared.is_some(),
                depth,
                bytes,
                partitions: queue.contents.as_ref().map_or(0, |contents| u64::from(contents.count)),
                groups: u64::from(queue.group_count),
                drops: queue.drops(),
                limits: *self.limits(index),
            });
        }
        (to < end).then_some(to)
    }

    /// Totals and gauges, from counters.
    pub fn stats(&self) -> Stats {
        Stats {
            pushed: self.totals.pushed,
            popped: self.totals.popped,
            acked: self.totals.acked,
            dropped: self.totals.dropped,
            late_replies: self.totals.late_replies,
            messages: self.totals.messages,
            payload_bytes: self.totals.payload_bytes,
            memory_bytes: self.memory,
            queues: self.queues(),
            declared: self.totals.declared,
            partitions: self.totals.partitions,
            groups: self.totals.groups,
            parked: u64::from(self.waiters.len()),
            inboxes: u64::from(self.inboxes.len()),
            leases: u64::from(self.leases.len()),
        }
    }
}

fn partitions(queue: &Queue) -> impl Iterator<Item = &Partition> {
    queue.contents.iter().flat_map(|contents| contents.places().map(|place| contents.partition(place)))
}
