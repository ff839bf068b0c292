//! The birth and the end of consumer groups. Both look at every partition of the queue; nothing
//! else that happens often does.

use super::{Engine, GROUP_BYTES, LEASE_BYTES, StateTimer};
use crate::Millis;
use crate::queue::Group;
use crate::slab::NONE;

impl Engine {
    /// A group is born at its first pop and starts at the oldest message still kept.
    pub(super) fn create_group(&mut self, queue: u32, name: &str) -> u16 {
        self.group_uids = self.group_uids.wrapping_add(1);
        let record = &mut self.queues[queue];
        let group = record.insert_group(Group::new(name, self.group_uids, self.now_ms));
        let groups = record.group_count;
        if let Some(contents) = record.contents.as_mut() {
            for place in 0..contents.place_limit() {
                if contents.get(place).is_some() {
                    contents.partition_mut(place).adopt(group, groups);
                }
            }
        }
        self.totals.groups += 1;
        self.memory += GROUP_BYTES;
        self.arm_groups(queue);
        group
    }

    /// Forgets a group without parked pops: its leases are void, and what it alone had still to
    /// consume is freed.
    pub(super) fn forget_group(&mut self, queue: u32, group: u16) {
        let record = &mut self.queues[queue];
        debug_assert!(record.group(group).parked == 0, "a group in use");
        let had_ready = record.group(group).ready.is_some();
        record.groups[usize::from(group)] = None;
        record.group_count -= 1;
        self.totals.groups -= 1;
        self.memory -= GROUP_BYTES;
        let places: Vec<u32> = match record.contents.as_mut() {
            Some(contents) => {
                contents.ready_groups -= u32::from(had_ready);
                contents.places().collect()
            }
            None => Vec::new(),
        };
        for place in places {
            self.forget_cursor(queue, place, group);
            self.refresh(queue, place);
            self.tidy(queue, place);
        }
    }

    /// Takes a group that is no longer counted out of one partition.
    fn forget_cursor(&mut self, queue: u32, place: u32, group: u16) {
        let record = &mut self.queues[queue];
        let groups = record.group_count;
        let partition = record.contents_mut().partition_mut(place);
        let mut cursor = match partition.cursors.binary_search_by_key(&group, |cursor| cursor.group) {
            Ok(at) => Some(partition.cursors.remove(at)),
            Err(_) => None,
        };
        for at in 0..partition_len(self, queue, place) {
            let partition = self.queues[queue].contents_mut().partition_mut(place);
            let slot = &mut partition.ring[at];
            if slot.is_dead() {
                continue;
            }
            let was_spent = slot.is_spent(groups + 1);
            let consumed = cursor.as_ref().is_some_and(|cursor| {
                slot.sequence < cursor.next
                    && !cursor.returned.contains_key(&slot.sequence)
                    && self.leases.attempts(group, slot.sequence).is_none()
            });
            slot.consumed -= u16::from(consumed);
            let is_spent = slot.is_spent(groups);
            if was_spent && !is_spent {
                // Nobody is left who could give it back.
                partition.spent -= 1;
                self.kill(queue, place, at);
            } else if !was_spent && is_spent {
                // The group was the only one to wait for.
                slot.consumed -= 1;
                self.consume(queue, place, at);
            }
        }
        if let Some(cursor) = cursor.as_mut() {
            self.memory -= u64::from(cursor.leased) * LEASE_BYTES;
            self.leases.clear(cursor);
            if cursor.lease_timer != NONE {
                self.state_timers.cancel(cursor.lease_timer);
            }
        }
    }

    /// Arms the timer that looks for idle groups, where groups can become idle.
    pub(super) fn arm_groups(&mut self, queue: u32) {
        let record = &mut self.queues[queue];
        let idle_ms = self.config.group_idle_ms;
        if idle_ms == 0 || record.declared.is_some() || record.group_timer != NONE {
            return;
        }
        let due = |group: &Group| {
            let since_ms = if group.parked > 0 { self.now_ms } else { group.last_pop_ms };
            since_ms.saturating_add(idle_ms)
        };
        let first_ms: Option<Millis> = record.groups.iter().flatten().map(due).min();
        if let Some(first_ms) = first_ms {
            record.group_timer = self.state_timers.insert(first_ms, StateTimer::Groups { queue });
        }
    }

    /// The group timer fired: forgets what has been idle for long enough. Leases that have run
    /// out by now end as such first.
    pub(super) fn forget_idle_groups(&mut self, queue: u32, left: &mut usize) {
        let record = &mut self.queues[queue];
        record.group_timer = NONE;
        if record.declared.is_some() {
            return;
        }
        let (now_ms, idle_ms) = (self.now_ms, self.config.group_idle_ms);
        let mut idle: Vec<u16> = record
            .group_slots()
            .filter(|&slot| {
                let group = record.group(slot);
                group.parked == 0 && group.last_pop_ms.saturating_add(idle_ms) <= now_ms
            })
            .collect();
        // Which message a group alone held back depends on who goes first: the longest idle does.
        idle.sort_by_key(|&slot| (record.group(slot).last_pop_ms, record.group(slot).uid));
        for group in idle {
            let places: Vec<u32> = self.queues[queue].contents.iter().flat_map(|held| held.places()).collect();
            for place in places {
                self.expire_leases(queue, place, group, left);
            }
            self.forget_group(queue, group);
        }
        self.arm_groups(queue);
        self.note_change(queue);
    }
}

fn partition_len(engine: &Engine, queue: u32, place: u32) -> usize {
    engine.queues[queue].contents().partition(place).ring.len()
}
