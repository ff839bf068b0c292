//! The invariants of the engine, for tests: every counter is computed again from what is there.

use super::Engine;
use crate::queue::{Links, List, Queue};
use crate::slab::NONE;
use crate::types::{TenantId, TenantUsage};

impl Engine {
    /// Panics if a counter, an order or an index does not match what is there, or if a pop is
    /// parked although something is available for it and no window holds it. Costs a look at
    /// everything.
    pub fn check_invariants(&self) {
        let (mut messages, mut bytes, mut memory) = (0, 0, 0);
        let (mut partitions, mut groups, mut parked, mut leased, mut declared, mut idle) = (0, 0, 0, 0, 0, 0);
        for index in 0..self.queues.slots() {
            let Some(queue) = self.queues.get(index) else { continue };
            assert_eq!(
                self.find(self.tenants.id(queue.tenant), queue.name()),
                Some(index),
                "the index finds the queue"
            );
            assert_eq!(queue.group_count as usize, queue.group_slots().count());
            assert_eq!(queue.idle_since_ms().is_some(), self.may_idle(index), "idle queues are listed");
            groups += u64::from(queue.group_count);
            declared += u64::from(queue.declared.is_some());
            idle += u64::from(queue.idle_since_ms().is_some());
            let (mut queue_depth, mut queue_bytes, mut alive_bytes, mut waiting) = (0, 0, 0, 0);
            if let Some(contents) = &queue.contents {
                assert_eq!(contents.count as usize, contents.places().count());
                assert!(contents.count > 0, "drained contents are let go");
                for place in contents.places() {
                    let partition = contents.partition(place);
                    partitions += 1;
                    waiting += partition.waiting;
                    assert!(!partition.ring.is_empty() || partition.waiting > 0, "empty partitions are let go");
                    assert!(partition.ring.iter().is_sorted_by(|a, b| a.sequence < b.sequence));
                    let by_birth = partition.ring.iter().is_sorted_by_key(|slot| slot.born);
                    assert!(by_birth || partition.is_bent(), "only adopted messages stand in front of older ones");
                    let dead = partition.ring.iter().filter(|slot| slot.is_dead()).count();
                    assert_eq!(partition.dead as usize, dead);
                    assert!(dead <= partition.ring.len() / 2 + 16, "dead slots are swept");
                    let (mut depth, mut counted_bytes, mut spent) = (0, 0, 0);
                    for slot in partition.ring.iter().filter(|slot| !slot.is_dead()) {
                        let held_bytes = contents.chunks.held_bytes(slot.span);
                        memory += super::MESSAGE_BYTES + held_bytes;
                        alive_bytes += held_bytes;
                        if slot.is_spent(queue.group_count) {
                            assert!(slot.pins > 0, "a spent message is held by an answer");
                            spent += 1;
                        } else {
                            depth += 1;
                            counted_bytes += slot.span.payload_bytes();
                        }
                        let consumed = queue.group_slots().filter(|&group| {
                            partition.cursor(group).is_some_and(|cursor| {
                                slot.sequence < cursor.next
                                    && !cursor.returned.contains_key(&slot.sequence)
                                    && self.leases.attempts(group, slot.sequence).is_none()
                            })
                        });
                        assert_eq!(slot.consumed as usize, consumed.count(), "message {}", slot.sequence);
                    }
                    assert_eq!((partition.depth, partition.bytes, partition.spent), (depth, counted_bytes, spent));
                    queue_depth += depth;
                    queue_bytes += counted_bytes;
                    if let Some(by_age) = &contents.by_age {
                        let oldest = partition.ring.iter().find(|slot| slot.is_counted(queue.group_count));
                        assert_eq!(partition.age_key, oldest.map(|slot| slot.sequence), "the order by age");
                        assert!(partition.age_key.is_none_or(|key| by_age.contains(&(key, place))));
                    }
                    for group in queue.group_slots() {
                        let from = partition.fresh_from(group);
                        assert!(partition.ring.range(from..).all(|slot| slot.is_counted(queue.group_count)));
                        if let Some(ready) = &queue.group(group).ready {
                            let head = partition.head(group);
                            assert_eq!(head.is_some(), ready.iter().any(|&(_, listed)| listed == place));
                            assert!(head.is_none_or(|head| ready.contains(&(head, place))), "the ready set");
                        }
                    }
                    for cursor in &partition.cursors {
                        assert!(queue.groups[usize::from(cursor.group)].is_some(), "cursors go with their group");
                        leased += u64::from(cursor.leased);
                        assert!(cursor.leased == 0 || cursor.lease_timer != NONE, "leases run out");
                        for &sequence in cursor.returned.keys() {
                            let at = partition.find(sequence).expect("a returned message is alive");
                            assert!(partition.ring[at].is_counted(queue.group_count));
                        }
                    }
                    if self.limits(index).ttl_ms.is_some() {
                        assert!(depth == 0 || partition.ttl_timer != NONE, "messages age");
                    }
                }
                assert_eq!(contents.chunks.alive_bytes(), alive_bytes);
                assert!(!contents.chunks.is_sparse(), "sparse chunks are copied together");
                assert!(contents.chunks.allocated_bytes() >= alive_bytes);
            }
            assert_eq!(queue.load(), (queue_depth, queue_bytes));
            let group_parked: u32 = queue.group_slots().map(|group| queue.group(group).parked).sum();
            assert_eq!(queue.parked, group_parked);
            assert!(waiting <= queue.parked);
            parked += u64::from(queue.parked);
            messages += queue_depth;
            bytes += queue_bytes;
            if queue.parked > 0 && self.limits(index).window.is_none() {
                self.check_nobody_waits_in_vain(index);
            }
        }
        memory += partitions * super::PARTITION_BYTES + groups * super::GROUP_BYTES;
        memory += parked * super::PARKED_BYTES + leased * super::LEASE_BYTES;
        memory += self.queues() * super::QUEUE_BYTES + self.check_inboxes();
        let stats = self.stats();
        assert_eq!((stats.messages, stats.payload_bytes, stats.memory_bytes), (messages, bytes, memory));
        assert_eq!((stats.partitions, stats.groups, stats.declared), (partitions, groups, declared));
        assert_eq!((stats.parked, stats.leases), (parked, leased));
        assert_eq!(u64::from(self.wait_timers.len()), parked + stats.inboxes, "every wait has a timeout");
        assert_eq!(self.check_idle(self.idle, |queue| queue.idle), idle);
        self.check_tenants();
    }

    /// Walks a list of idle queues. Returns how many it has.
    fn check_idle(&self, list: List, links: impl Fn(&Queue) -> Links) -> u64 {
        let (mut at, mut last) = (list.head, NONE);
        let (mut since_ms, mut count) = (0, 0);
        while at != NONE {
            let queue = &self.queues[at];
            let idle_ms = queue.idle_since_ms().expect("a listed queue is idle");
            assert!(idle_ms >= since_ms, "longest idle first");
            assert_eq!(links(queue).prev, last);
            since_ms = idle_ms;
            count += 1;
            (last, at) = (at, links(queue).next);
        }
        assert_eq!(list.tail, last);
        count
    }

    fn check_tenants(&self) {
        let queues = || (0..self.queues.slots()).filter_map(|index| self.queues.get(index));
        let mut owned = queues().filter(|queue| queue.tenant == NONE).count() as u64;
        for (id, record) in self.tenants.iter() {
            assert_ne!(id, TenantId::DEFAULT);
            assert!(record.usage.queues > 0 || record.limit.is_some(), "a tenant without anything is forgotten");
            let tenant = self.tenants.find(id).expect("the index finds the tenant");
            let own = || queues().filter(|queue| queue.tenant == tenant);
            let bytes = own().map(|queue| queue.load().1).sum();
            assert_eq!(record.usage, TenantUsage { bytes, queues: own().count() as u64 }, "what {id} holds");
            let idle = own().filter(|queue| queue.idle_since_ms().is_some()).count() as u64;
            assert_eq!(self.check_idle(record.idle, |queue| queue.idle_of_tenant), idle);
            owned += record.usage.queues;
        }
        assert_eq!(owned, self.queues(), "every queue has an owner");
    }

    fn check_nobody_waits_in_vain(&self, queue: u32) {
        let record = &self.queues[queue];
        for place in record.contents.iter().flat_map(|contents| contents.places()) {
            let partition = record.contents().partition(place);
            for group in record.group_slots() {
                let waits = !record.group(group).waiters.is_empty()
                    || partition.cursor(group).is_some_and(|cursor| !cursor.waiters.is_empty());
                assert!(!waits || partition.available(group) == 0, "a pop waits although something is there");
            }
        }
    }
}
