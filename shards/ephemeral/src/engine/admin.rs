//! Configure, reset and delete.

use super::Engine;
use crate::Millis;
use crate::delivery::Sink;
use crate::partition::List;
use crate::payload::Chunks;
use crate::slab::NONE;
use crate::types::{ConfigureError, Deleted, Limits, Policy, QueueOptions, TenantId};

impl Engine {
    /// Whether a queue can be declared: whether it is there, or there is room for it. Idle queues may be collected.
    ///
    /// # Errors
    /// See [`ConfigureError`].
    pub fn check_configure(&mut self, now_ms: Millis, tenant: TenantId, queue: &str) -> Result<(), ConfigureError> {
        self.note_time(now_ms);
        if self.find(tenant, queue).is_some() {
            return Ok(());
        }
        if !self.make_tenant_room(tenant) {
            return Err(ConfigureError::TenantQueues);
        }
        if !self.make_room(0, 1, None) {
            return Err(ConfigureError::QueueLimit);
        }
        Ok(())
    }

    /// Declares a queue, or replaces its whole declaration. Bounds, TTL, leases and the retry
    /// limit hold at once, for messages and leases that are there too: a `dropOldest` queue is
    /// trimmed now, a lease runs from its delivery for the new time. What TTL or the new lease
    /// time make due is done by the next [`Engine::advance`].
    ///
    /// # Errors
    /// See [`ConfigureError`].
    pub fn configure<S: Sink>(
        &mut self,
        now_ms: Millis,
        tenant: TenantId,
        queue: &str,
        options: QueueOptions,
        sink: &mut S,
    ) -> Result<(), ConfigureError> {
        self.check_configure(now_ms, tenant, queue)?;
        let queue = self.find(tenant, queue).unwrap_or_else(|| self.create_queue(tenant, queue));
        let limits = Limits::in_force(&self.config, &options);
        let record = &mut self.queues[queue];
        self.totals.declared += u64::from(record.declared.is_none());
        record.declared = Some(Box::new(limits));
        if record.group_timer != NONE {
            self.state_timers.cancel(record.group_timer);
            record.group_timer = NONE;
        }
        if limits.policy == Policy::DropOldest {
            self.trim(queue, None, 0, 0);
        }
        self.arm_anew(queue);
        if self.queues[queue].parked > 0 {
            self.serve_queue(queue, sink);
        }
        self.note_change(queue);
        Ok(())
    }

    /// Arms the timers of leases and TTL for the options in force.
    fn arm_anew(&mut self, queue: u32) {
        for place in self.places(queue) {
            let partition = self.queues[queue].contents_mut().partition_mut(place);
            let timer = std::mem::replace(&mut partition.ttl_timer, NONE);
            if timer != NONE {
                self.state_timers.cancel(timer);
            }
            let mut groups = Vec::with_capacity(partition.cursors.len());
            for cursor in &mut partition.cursors {
                groups.push(cursor.group);
                let timer = std::mem::replace(&mut cursor.lease_timer, NONE);
                if timer != NONE {
                    self.state_timers.cancel(timer);
                }
            }
            self.arm_ttl(queue, place);
            for group in groups {
                self.arm_lease(queue, place, group);
            }
        }
    }

    /// Drops every message, voids every lease and rewinds every group; the declaration and parked
    /// pops stay. Returns how many messages were dropped; they count under no cause.
    pub fn reset<S: Sink>(&mut self, now_ms: Millis, tenant: TenantId, queue: &str, sink: &mut S) -> u64 {
        self.note_time(now_ms);
        let Some(queue) = self.find(tenant, queue) else { return 0 };
        let dropped = self.empty(queue);
        if self.queues[queue].parked > 0 {
            self.serve_queue(queue, sink);
        }
        self.note_change(queue);
        dropped
    }

    /// Drops everything, the declaration included. Parked pops stay, and with them the queue, as
    /// an implicit one.
    pub fn delete<S: Sink>(&mut self, now_ms: Millis, tenant: TenantId, queue: &str, sink: &mut S) -> Deleted {
        self.note_time(now_ms);
        let Some(queue) = self.find(tenant, queue) else {
            return Deleted { deleted: false, declared: false };
        };
        self.empty(queue);
        let record = &mut self.queues[queue];
        let declared = record.declared.take().is_some();
        self.totals.declared -= u64::from(declared);
        record.forget_drops();
        if record.parked == 0 {
            self.remove_queue(queue);
            return Deleted { deleted: true, declared };
        }
        let unattended: Vec<u16> = record.group_slots().filter(|&group| record.group(group).parked == 0).collect();
        for group in unattended {
            self.forget_group(queue, group);
        }
        for group in self.queues[queue].groups.iter_mut().flatten() {
            group.skipped = 0;
        }
        self.arm_anew(queue);
        self.arm_groups(queue);
        self.serve_queue(queue, sink);
        self.note_change(queue);
        Deleted { deleted: true, declared }
    }

    fn places(&self, queue: u32) -> Vec<u32> {
        self.queues[queue].contents.iter().flat_map(|contents| contents.places()).collect()
    }

    /// Drops every message and voids every lease. Returns how many messages counted.
    fn empty(&mut self, queue: u32) -> u64 {
        let (dropped, bytes) = self.queues[queue].load();
        self.totals.messages -= dropped;
        self.totals.payload_bytes -= bytes;
        self.tenants.remove_bytes(self.queues[queue].tenant, bytes);
        for place in self.places(queue) {
            let contents = self.queues[queue].contents_mut();
            (contents.depth, contents.bytes) = (0, 0);
            let (partition, chunks) = contents.split(place);
            let held = partition.ring.iter().filter(|slot| !slot.is_dead());
            let memory: u64 = held.map(|slot| super::MESSAGE_BYTES + chunks.held_bytes(slot.span)).sum();
            self.memory -= memory;
            partition.ring = std::collections::VecDeque::new();
            (partition.dead, partition.spent, partition.depth, partition.bytes) = (0, 0, 0, 0);
            for cursor in &mut partition.cursors {
                self.memory -= u64::from(cursor.leased) * super::LEASE_BYTES;
                self.leases.clear(cursor);
                debug_assert!(cursor.leases == List::EMPTY);
                cursor.returned.clear();
            }
        }
        for place in self.places(queue) {
            self.refresh(queue, place);
            if let Some(contents) = self.queues[queue].contents.as_mut() {
                contents.chunks = Chunks::new();
            }
            self.tidy(queue, place);
        }
        dropped
    }
}
