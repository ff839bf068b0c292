//! Push: all or nothing, copied once, handed to parked pops in the same call.

use super::messages::Cause;
use super::{Engine, MESSAGE_BYTES, PARTITION_BYTES, QUEUE_BYTES};
use crate::Millis;
use crate::delivery::Sink;
use crate::partition::{Born, Slot};
use crate::payload::{PAYLOAD_MAX_BYTES, reply_to_bytes};
use crate::slab::NONE;
use crate::types::{Policy, PushError, TenantId};

impl Engine {
    /// Appends payloads to a partition, in order, and serves the pops that wait for them. An
    /// empty call does nothing and creates nothing. On an error nothing has changed, save that
    /// idle queues may have been collected to make room.
    ///
    /// # Errors
    /// See [`PushError`].
    pub fn push<'p, S: Sink>(
        &mut self,
        now_ms: Millis,
        tenant: TenantId,
        queue: &str,
        partition: &str,
        payloads: impl ExactSizeIterator<Item = &'p [u8]> + Clone,
        sink: &mut S,
    ) -> Result<(), PushError> {
        self.append_and_serve(now_ms, tenant, queue, partition, payloads, None, sink)
    }

    /// Pushes one message that names the inbox its reply goes to ([`Message::reply_to`](crate::Message::reply_to)).
    /// The name counts towards the node's memory, not towards the queue's bounds. Opening the inbox is the caller's.
    ///
    /// # Errors
    /// See [`PushError`].
    #[expect(clippy::too_many_arguments, reason = "a request is a push and where its reply goes")]
    pub fn push_request<S: Sink>(
        &mut self,
        now_ms: Millis,
        tenant: TenantId,
        queue: &str,
        partition: &str,
        payload: &[u8],
        reply_to: &str,
        sink: &mut S,
    ) -> Result<(), PushError> {
        self.append_and_serve(now_ms, tenant, queue, partition, [payload].into_iter(), Some(reply_to), sink)
    }

    #[expect(clippy::too_many_arguments, reason = "what push and push_request have between them")]
    fn append_and_serve<'p, S: Sink>(
        &mut self,
        now_ms: Millis,
        tenant: TenantId,
        queue: &str,
        partition: &str,
        payloads: impl ExactSizeIterator<Item = &'p [u8]> + Clone,
        reply_to: Option<&str>,
        sink: &mut S,
    ) -> Result<(), PushError> {
        self.note_time(now_ms);
        if payloads.len() == 0 {
            return Ok(());
        }
        let found = self.find(tenant, queue);
        let place = found.and_then(|queue| self.find_partition(queue, partition));
        let plan = self.plan(tenant, found, place, payloads.clone(), reply_to)?;

        let queue = found.unwrap_or_else(|| self.create_queue(tenant, queue));
        let kept = plan.messages - plan.skipped;
        if plan.trims {
            self.trim(queue, place, kept, plan.bytes);
        }
        self.count_drop(queue, Cause::Bounds, plan.skipped);
        self.totals.pushed += plan.messages;
        if kept > 0 {
            // The trim may have emptied other partitions, not this one: `place` holds.
            let place = place.unwrap_or_else(|| self.create_partition(queue, partition));
            self.append(queue, place, kept, plan.bytes, payloads.skip(plan.skipped as usize), reply_to);
            self.refresh(queue, place);
            self.serve_all(queue, place, sink);
        }
        self.note_use(queue);
        Ok(())
    }

    /// Checks every limit before the first change.
    fn plan<'p>(
        &mut self,
        tenant: TenantId,
        queue: Option<u32>,
        place: Option<u32>,
        payloads: impl ExactSizeIterator<Item = &'p [u8]> + Clone,
        reply_to: Option<&str>,
    ) -> Result<Plan, PushError> {
        let limits = queue.map_or(&self.implicit, |queue| self.limits(queue));
        let (depth, held) = queue.map_or((0, 0), |queue| self.queues[queue].load());
        let messages = payloads.len() as u64;
        let (mut bytes, mut largest) = (0, 0);
        for payload in payloads.clone() {
            bytes += payload.len() as u64;
            largest = largest.max(payload.len() as u64);
        }
        if largest > limits.max_bytes || largest > PAYLOAD_MAX_BYTES {
            return Err(PushError::MessageTooLarge);
        }
        let mut plan = Plan { messages, skipped: 0, bytes, trims: false };
        if depth + messages > limits.max_length || held + bytes > limits.max_bytes {
            match limits.policy {
                Policy::Reject => return Err(PushError::QueueFull),
                Policy::DropOldest => {
                    plan.trims = true;
                    for payload in payloads {
                        let kept = messages - plan.skipped;
                        if kept <= limits.max_length && plan.bytes <= limits.max_bytes {
                            break;
                        }
                        plan.skipped += 1;
                        plan.bytes -= payload.len() as u64;
                    }
                }
            }
        }
        let new_queue = u64::from(queue.is_none());
        let new_partition = u64::from(place.is_none());
        if new_partition == 1 {
            let partitions = queue.and_then(|queue| self.queues[queue].contents.as_ref()).map_or(0, |held| held.count);
            if partitions >= self.config.max_partitions_per_queue {
                return Err(PushError::PartitionLimit);
            }
        }
        let kept = messages - plan.skipped;
        let over = self.bytes_over(tenant, queue, plan.bytes);
        if over > 0 {
            let trimmed = queue.filter(|_| plan.trims);
            let freed = trimmed.map_or(0, |queue| self.trim_frees(queue, place, kept, plan.bytes));
            if freed < over {
                return Err(PushError::TenantBytes);
            }
        }
        if new_queue == 1 && !self.make_tenant_room(tenant) {
            return Err(PushError::TenantQueues);
        }
        if !self.make_room(0, new_queue, queue) {
            return Err(PushError::QueueLimit);
        }
        let needed = plan.bytes
            + kept * (MESSAGE_BYTES + reply_to_bytes(reply_to) as u64)
            + new_queue * QUEUE_BYTES
            + new_partition * PARTITION_BYTES;
        if !self.make_room(needed, 0, queue) {
            return Err(PushError::NodeMemory);
        }
        Ok(plan)
    }

    fn append<'p>(
        &mut self,
        queue: u32,
        place: u32,
        messages: u64,
        bytes: u64,
        payloads: impl Iterator<Item = &'p [u8]>,
        reply_to: Option<&str>,
    ) {
        let born = Born::at(self.now_ms);
        let names_bytes = messages * reply_to_bytes(reply_to) as u64;
        let (partition, chunks) = self.queues[queue].contents_mut().split(place);
        chunks.expect(bytes + names_bytes);
        partition.reserve(messages as usize);
        for (sequence, payload) in (self.sequences.take_above(messages)..).zip(payloads) {
            let span = chunks.insert(payload, reply_to);
            partition.ring.push_back(Slot { sequence, born, span, consumed: 0, pins: 0 });
        }
        let is_armed = partition.ttl_timer != NONE;
        self.count_in(queue, place, messages, bytes);
        self.memory += bytes + names_bytes + messages * MESSAGE_BYTES;
        if !is_armed {
            // Otherwise it is for an older one.
            self.arm_ttl(queue, place);
        }
    }
}

/// What a push comes to under the queue's bounds.
struct Plan {
    messages: u64,
    /// The first so many go at once: the call alone is larger than the bound.
    skipped: u64,
    /// Payload bytes of the others.
    bytes: u64,
    /// Older messages may have to go.
    trims: bool,
}
