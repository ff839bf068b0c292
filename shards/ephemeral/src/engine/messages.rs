//! The life of a message inside a queue: counted in and out, consumed, dropped, freed. And the
//! two orders that are kept over partitions: what is ready for a group, and what is oldest.

use std::collections::BTreeSet;

use super::{Engine, MESSAGE_BYTES, StateTimer};
use crate::partition::Partition;
use crate::slab::NONE;

/// Which rule took a message.
#[derive(Copy, Clone)]
pub(super) enum Cause {
    Bounds,
    Ttl,
    Retry,
}

impl Engine {
    pub(super) fn count_drop(&mut self, queue: u32, cause: Cause, messages: u64) {
        if messages == 0 {
            return;
        }
        for drops in [self.queues[queue].drops_mut(), &mut self.totals.dropped] {
            match cause {
                Cause::Bounds => drops.bounds += messages,
                Cause::Ttl => drops.ttl += messages,
                Cause::Retry => drops.retry += messages,
            }
        }
    }

    /// The message is no longer for anybody to consume.
    pub(super) fn count_out(&mut self, queue: u32, place: u32, len: u64) {
        let record = &mut self.queues[queue];
        self.tenants.remove_bytes(record.tenant, len);
        let contents = record.contents_mut();
        contents.depth -= 1;
        contents.bytes -= len;
        let partition = contents.partition_mut(place);
        partition.depth -= 1;
        partition.bytes -= len;
        self.totals.messages -= 1;
        self.totals.payload_bytes -= len;
    }

    /// So many more messages are for somebody to consume.
    pub(super) fn count_in(&mut self, queue: u32, place: u32, messages: u64, bytes: u64) {
        let record = &mut self.queues[queue];
        self.tenants.add_bytes(record.tenant, bytes);
        let contents = record.contents_mut();
        contents.depth += messages;
        contents.bytes += bytes;
        let partition = contents.partition_mut(place);
        partition.depth += messages;
        partition.bytes += bytes;
        self.totals.messages += messages;
        self.totals.payload_bytes += bytes;
    }

    /// A spent message counts again.
    pub(super) fn revive(&mut self, queue: u32, place: u32, at: usize) {
        let partition = self.queues[queue].contents_mut().partition_mut(place);
        let slot = &partition.ring[at];
        let (sequence, len) = (slot.sequence, slot.span.payload_bytes());
        partition.spent -= 1;
        partition.revive(sequence);
        self.count_in(queue, place, 1, len);
    }

    /// Frees the payload. The slot stays as a dead one until the partition is swept.
    pub(super) fn kill(&mut self, queue: u32, place: u32, at: usize) {
        let (partition, chunks) = self.queues[queue].contents_mut().split(place);
        let slot = &mut partition.ring[at];
        let held_bytes = chunks.free(slot.span);
        slot.span.chunk = NONE;
        partition.dead += 1;
        self.memory -= MESSAGE_BYTES + held_bytes;
    }

    /// One more group has consumed the message for good.
    pub(super) fn consume(&mut self, queue: u32, place: u32, at: usize) {
        let record = &mut self.queues[queue];
        let groups = record.group_count;
        let partition = record.contents_mut().partition_mut(place);
        let slot = &mut partition.ring[at];
        slot.consumed += 1;
        if !slot.is_spent(groups) {
            return;
        }
        let (len, pinned) = (slot.span.payload_bytes(), slot.pins > 0);
        if pinned {
            partition.spent += 1;
        }
        self.count_out(queue, place, len);
        if !pinned {
            self.kill(queue, place, at);
        }
    }

    /// As [`Engine::lose_message`], of the first counted message of its partition.
    pub(super) fn drop_message(&mut self, queue: u32, place: u32, at: usize, cause: Cause) {
        let partition = self.queues[queue].contents_mut().partition_mut(place);
        partition.floor = partition.floor.max(partition.ring[at].sequence + 1);
        self.lose_message(queue, place, at, cause);
    }

    /// A counted message that a rule took: every group that has not consumed it loses it, leased
    /// or not. Dead slots must be buried where it may have stood behind another counted message.
    pub(super) fn lose_message(&mut self, queue: u32, place: u32, at: usize, cause: Cause) {
        let record = &mut self.queues[queue];
        let contents = record.contents.as_mut().expect("a queue that holds something");
        let partition = contents.partition_mut(place);
        let sequence = partition.ring[at].sequence;
        let len = partition.ring[at].span.payload_bytes();
        for (group, record) in record.groups.iter_mut().enumerate() {
            let Some(record) = record else { continue };
            let lost = match partition.cursor_mut(group as u16) {
                None => true,
                Some(cursor) if sequence >= cursor.next => true,
                Some(cursor) => {
                    let leased = self.leases.remove(cursor, sequence).is_some();
                    self.memory -= u64::from(leased) * super::LEASE_BYTES;
                    leased || cursor.returned.remove(&sequence).is_some()
                }
            };
            record.skipped += u64::from(lost);
        }
        self.count_out(queue, place, len);
        self.kill(queue, place, at);
        self.count_drop(queue, cause, 1);
    }

    /// Drops the oldest counted message of a partition, if there is one.
    pub(super) fn drop_oldest_of(&mut self, queue: u32, place: u32, cause: Cause) -> bool {
        let groups = self.queues[queue].group_count;
        let Some(at) = self.queues[queue].contents_mut().partition_mut(place).oldest(groups) else {
            return false;
        };
        self.drop_message(queue, place, at, cause);
        self.queues[queue].contents_mut().partition_mut(place).sweep();
        true
    }

    /// Makes the queue's order by age, if it has none.
    pub(super) fn keep_ages(&mut self, queue: u32) {
        let record = &mut self.queues[queue];
        let groups = record.group_count;
        let contents = record.contents_mut();
        if contents.by_age.is_some() {
            return;
        }
        let places: Vec<u32> = contents.places().collect();
        let mut by_age = BTreeSet::new();
        for place in places {
            let partition = contents.partition_mut(place);
            partition.age_key = partition.oldest(groups).map(|at| partition.ring[at].sequence);
            by_age.extend(partition.age_key.map(|key| (key, place)));
        }
        contents.by_age = Some(by_age);
    }

    /// Drops the oldest counted message of the queue, which has one.
    pub(super) fn drop_oldest(&mut self, queue: u32) {
        self.keep_ages(queue);
        let by_age = self.queues[queue].contents().by_age.as_ref().expect("it was just made");
        let &(_, place) = by_age.first().expect("a queue over its bounds has a message");
        let dropped = self.drop_oldest_of(queue, place, Cause::Bounds);
        debug_assert!(dropped, "the order by age names a message");
        self.refresh(queue, place);
        self.tidy(queue, place);
    }

    /// Brings both orders up to date with a partition.
    pub(super) fn refresh(&mut self, queue: u32, place: u32) {
        self.refresh_age(queue, place);
        if self.queues[queue].contents().ready_groups > 0 {
            for group in 0..self.queues[queue].groups.len() as u16 {
                self.refresh_ready(queue, place, group);
            }
        }
    }

    pub(super) fn refresh_age(&mut self, queue: u32, place: u32) {
        let record = &mut self.queues[queue];
        let groups = record.group_count;
        let contents = record.contents_mut();
        let Some(mut by_age) = contents.by_age.take() else { return };
        let partition = contents.partition_mut(place);
        let key = partition.oldest(groups).map(|at| partition.ring[at].sequence);
        move_key(&mut by_age, &mut partition.age_key, key, place);
        contents.by_age = Some(by_age);
    }

    pub(super) fn refresh_ready(&mut self, queue: u32, place: u32, group: u16) {
        let record = &mut self.queues[queue];
        let Some(Some(group_record)) = record.groups.get_mut(usize::from(group)) else { return };
        let Some(ready) = group_record.ready.as_mut() else { return };
        let contents = record.contents.as_mut().expect("a ready set goes with the contents");
        let partition = contents.partition_mut(place);
        let key = partition.head(group);
        if key.is_none() && partition.cursor(group).is_none() {
            return;
        }
        move_key(ready, &mut partition.cursor_or_new(group).ready_key, key, place);
    }

    /// Makes the group's ready set, if it has none: it pops any of several partitions.
    pub(super) fn keep_ready(&mut self, queue: u32, group: u16) {
        let record = &mut self.queues[queue];
        if record.group(group).ready.is_some() {
            return;
        }
        record.group_mut(group).ready = Some(Box::default());
        let contents = record.contents_mut();
        contents.ready_groups += 1;
        let places: Vec<u32> = contents.places().collect();
        for place in places {
            self.refresh_ready(queue, place, group);
        }
    }

    /// Arms the partition's TTL timer for its oldest counted message, if it is not armed.
    pub(super) fn arm_ttl(&mut self, queue: u32, place: u32) {
        let Some(ttl_ms) = self.limits(queue).ttl_ms else { return };
        let record = &mut self.queues[queue];
        let groups = record.group_count;
        let partition: &mut Partition = record.contents_mut().partition_mut(place);
        let Some(at) = partition.eldest(groups) else { return };
        let due_ms = partition.ring[at].born.plus(ttl_ms);
        if partition.ttl_timer != NONE {
            // A message that came back can be older than the one the timer was set for.
            if self.state_timers.deadline_ms(partition.ttl_timer) <= due_ms {
                return;
            }
            self.state_timers.cancel(partition.ttl_timer);
        }
        partition.ttl_timer = self.state_timers.insert(due_ms, StateTimer::Ttl { queue, partition: place });
    }
}

fn move_key(order: &mut BTreeSet<(u64, u32)>, current: &mut Option<u64>, key: Option<u64>, place: u32) {
    if *current == key {
        return;
    }
    if let Some(old) = current.take() {
        order.remove(&(old, place));
    }
    if let Some(new) = key {
        order.insert((new, place));
    }
    *current = key;
}
