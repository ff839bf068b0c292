//! What becomes of a delivery: written, lost on the way, or acked.

use super::messages::Cause;
use super::{Engine, LEASE_BYTES};
use crate::Millis;
use crate::delivery::{Claim, Run, Sink};
use crate::id::MessageId;
use crate::sequence;
use crate::types::{AckOutcome, AckStatus, QUEUE_MODE, TenantId};

impl Engine {
    /// The answer was written. Frees what autoAck consumed; a leased delivery stays leased.
    pub fn settle(&mut self, claim: Claim) {
        let handed = claim.0;
        if !handed.leased {
            for run in &handed.runs {
                if self.holds(handed.queue, run.partition) {
                    self.unpin(handed.queue, *run);
                    self.tidy(handed.queue, run.partition);
                }
            }
            if self.queues.get(handed.queue).is_some() {
                self.note_change(handed.queue);
            }
        }
        self.recycle(handed);
    }

    /// The answer could not be written: its messages are available again at the same position,
    /// attempts unchanged. What they count for returns even where it exceeds a bound by that; one
    /// whose TTL has passed meanwhile is dropped. A claim on what has been reset, deleted or
    /// forgotten since, or acked before the answer was lost, changes nothing there.
    pub fn give_back<S: Sink>(&mut self, now_ms: Millis, claim: Claim, sink: &mut S) {
        self.note_time(now_ms);
        let handed = &claim.0;
        let (queue, group) = (handed.queue, handed.group);
        let group_lives = self.queues.get(queue).is_some_and(|queue| {
            let group = queue.groups.get(usize::from(group)).and_then(Option::as_ref);
            group.is_some_and(|group| group.uid == handed.group_uid)
        });
        if !group_lives {
            self.settle(claim);
            return;
        }
        for run in &handed.runs {
            if !self.holds(queue, run.partition) {
                continue;
            }
            if handed.leased {
                self.void(queue, group, *run);
            } else {
                self.restore(queue, group, *run);
                self.arm_ttl(queue, run.partition);
            }
            self.refresh(queue, run.partition);
            self.tidy(queue, run.partition);
        }
        for run in &handed.runs {
            self.serve(queue, run.partition, group, sink);
        }
        self.note_change(queue);
        self.recycle(claim.0);
    }

    fn holds(&self, queue: u32, place: u32) -> bool {
        let contents = self.queues.get(queue).and_then(|queue| queue.contents.as_ref());
        contents.is_some_and(|contents| contents.get(place).is_some())
    }

    /// An autoAck run is written.
    fn unpin(&mut self, queue: u32, run: Run) {
        let record = &mut self.queues[queue];
        let groups = record.group_count;
        let (partition, chunks) = record.contents_mut().split(run.partition);
        let from = partition.lower_bound(run.first);
        let (mut killed, mut bytes) = (0, 0);
        for slot in partition.ring.range_mut(from..) {
            if slot.sequence > run.last {
                break;
            }
            if slot.is_dead() {
                continue;
            }
            slot.pins -= 1;
            if slot.pins == 0 && slot.is_spent(groups) {
                bytes += chunks.free(slot.span);
                slot.span.chunk = crate::slab::NONE;
                killed += 1;
            }
        }
        partition.spent -= killed;
        partition.dead += killed;
        self.memory -= u64::from(killed) * super::MESSAGE_BYTES + bytes;
    }

    /// An autoAck run comes back.
    fn restore(&mut self, queue: u32, group: u16, run: Run) {
        let ttl_ms = self.limits(queue).ttl_ms;
        let record = &mut self.queues[queue];
        let groups = record.group_count;
        let partition = record.contents_mut().partition_mut(run.partition);
        let mut at = partition.lower_bound(run.first);
        loop {
            let partition = self.queues[queue].contents_mut().partition_mut(run.partition);
            let Some(slot) = partition.ring.get_mut(at).filter(|slot| slot.sequence <= run.last) else { return };
            if slot.is_dead() {
                at += 1;
                continue;
            }
            slot.pins -= 1;
            let (sequence, spent) = (slot.sequence, slot.is_spent(groups));
            let too_old = ttl_ms.is_some_and(|ttl_ms| slot.born.plus(ttl_ms) <= self.now_ms);
            if spent && too_old {
                if slot.pins == 0 {
                    partition.spent -= 1;
                    self.kill(queue, run.partition, at);
                }
                self.queues[queue].group_mut(group).skipped += 1;
                self.count_drop(queue, Cause::Ttl, 1);
            } else {
                slot.consumed -= 1;
                partition.cursor_or_new(group).returned.insert(sequence, run.attempts - 1);
                if spent {
                    self.revive(queue, run.partition, at);
                }
            }
            at += 1;
        }
    }

    /// A leased run comes back, where it still is that delivery.
    fn void(&mut self, queue: u32, group: u16, run: Run) {
        let partition = self.queues[queue].contents_mut().partition_mut(run.partition);
        let from = partition.lower_bound(run.first);
        let Ok(cursor_at) = partition.cursors.binary_search_by_key(&group, |cursor| cursor.group) else { return };
        let cursor = &mut partition.cursors[cursor_at];
        for slot in partition.ring.range(from..) {
            if slot.sequence > run.last {
                return;
            }
            if self.leases.attempts(group, slot.sequence) == Some(run.attempts) {
                self.leases.remove(cursor, slot.sequence);
                self.memory -= LEASE_BYTES;
                cursor.returned.insert(slot.sequence, run.attempts - 1);
            }
        }
    }

    /// Settles one delivery by its id.
    #[expect(clippy::too_many_arguments, reason = "one ack is seven facts and nobody keeps them together")]
    pub fn ack<S: Sink>(
        &mut self,
        now_ms: Millis,
        tenant: TenantId,
        queue: &str,
        group: Option<&str>,
        id: &str,
        status: AckStatus,
        sink: &mut S,
    ) -> AckOutcome {
        self.note_time(now_ms);
        let Some(id) = MessageId::parse(id) else { return AckOutcome::Unknown };
        if id.epoch != self.config.boot_epoch {
            return AckOutcome::Stale;
        }
        self.ack_lease(tenant, queue, group.unwrap_or(QUEUE_MODE), &id, status, sink).unwrap_or(AckOutcome::Unknown)
    }

    /// `None` if there is no such lease.
    fn ack_lease<S: Sink>(
        &mut self,
        tenant: TenantId,
        queue: &str,
        group: &str,
        id: &MessageId<'_>,
        status: AckStatus,
        sink: &mut S,
    ) -> Option<AckOutcome> {
        let queue = self.find(tenant, queue)?;
        let place = self.find_partition(queue, id.partition)?;
        let group = self.queues[queue].find_group(group)?;
        let retry_limit = self.limits(queue).retry_limit;
        let partition = self.queues[queue].contents_mut().partition_mut(place);
        // The lease may be of a group with the same slot in another queue: the message decides.
        let sequence = sequence::of_shown(id.sequence);
        let at = partition.find(sequence)?;
        if self.leases.attempts(group, sequence)? != id.attempts {
            return None;
        }
        let cursor = partition.cursor_mut(group)?;
        self.leases.remove(cursor, sequence)?;
        self.memory -= LEASE_BYTES;
        let outcome = match status {
            AckStatus::Completed => {
                self.totals.acked += 1;
                self.consume(queue, place, at);
                AckOutcome::Acked
            }
            AckStatus::Retry if id.attempts >= retry_limit => {
                self.exhaust(queue, place, at, group);
                AckOutcome::Acked
            }
            AckStatus::Retry => {
                cursor.returned.insert(sequence, id.attempts);
                AckOutcome::Redelivered
            }
        };
        self.refresh(queue, place);
        self.tidy(queue, place);
        if outcome == AckOutcome::Redelivered {
            self.serve(queue, place, group, sink);
        }
        self.note_change(queue);
        Some(outcome)
    }

    /// The group has used up its attempts at a message.
    pub(super) fn exhaust(&mut self, queue: u32, place: u32, at: usize, group: u16) {
        self.consume(queue, place, at);
        self.queues[queue].group_mut(group).skipped += 1;
        self.count_drop(queue, Cause::Retry, 1);
    }
}
