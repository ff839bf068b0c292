//! Pop: takes what is available for a group, or parks.

use super::{Engine, LEASE_BYTES, SPARE_CLAIMS, StateTimer};
use crate::Millis;
use crate::delivery::{Claim, Delivery, Handed, Run, Sink, Taken};
use crate::queue::Partition;
use crate::slab::NONE;
use crate::types::{Pop, PopError, Popped, QUEUE_MODE, WaiterId};

impl Engine {
    /// Takes up to a batch of messages for a group, or parks until there are some. The queue and
    /// the group are created by their first pop. On an error nothing has changed, save that idle
    /// queues may have been collected to make room.
    ///
    /// A pop that waits on a queue with a window buffer is always answered through its place in
    /// the line, a pop that does not wait takes what is there.
    ///
    /// # Errors
    /// See [`PopError`].
    pub fn pop<S: Sink>(
        &mut self,
        now_ms: Millis,
        request: &Pop<'_>,
        waiter: WaiterId,
        sink: &mut S,
    ) -> Result<Popped, PopError> {
        self.note_time(now_ms);
        let found = self.find(request.tenant, request.queue);
        let group_name = request.group.unwrap_or(QUEUE_MODE);
        let group = found.and_then(|queue| self.queues[queue].find_group(group_name));
        self.check_pop(found, group, request)?;

        let queue = found.unwrap_or_else(|| self.create_queue(request.tenant, request.queue));
        let group = group.unwrap_or_else(|| self.create_group(queue, group_name));
        self.queues[queue].group_mut(group).last_pop_ms = now_ms;
        let place = request.partition.map(|name| self.find_partition(queue, name));
        let windowed = self.limits(queue).window.is_some();

        let popped = if windowed && request.wait_ms > 0 {
            let park = self.park(queue, group, request, waiter);
            self.serve_group(queue, group, sink);
            if self.waiters.find(park).is_some() { Popped::Parked(park) } else { Popped::Delivered }
        } else {
            let scope = match place {
                None => Some(Scope::Any),
                Some(Some(place)) => Some(Scope::One(place)),
                Some(None) => None,
            };
            let batch = request.batch.max(1);
            let claim = scope.and_then(|scope| self.take(queue, group, scope, batch, request.auto_ack));
            match claim {
                Some(claim) => {
                    self.hand_over(queue, waiter, Some(claim), sink);
                    if windowed {
                        self.serve_group(queue, group, sink);
                    }
                    Popped::Delivered
                }
                None if request.wait_ms > 0 => Popped::Parked(self.park(queue, group, request, waiter)),
                None => Popped::Empty,
            }
        };
        self.note_use(queue);
        Ok(popped)
    }

    fn check_pop(&mut self, queue: Option<u32>, group: Option<u16>, request: &Pop<'_>) -> Result<(), PopError> {
        let groups = queue.map_or(0, |queue| self.queues[queue].group_count);
        let most = self.config.max_groups_per_queue.min(u32::from(u16::MAX));
        if group.is_none() && u32::from(groups) >= most {
            return Err(PopError::GroupLimit);
        }
        if let Some(name) = request.partition
            && request.wait_ms > 0
            && queue.is_none_or(|queue| self.find_partition(queue, name).is_none())
        {
            let partitions = queue.and_then(|queue| self.queues[queue].contents.as_ref()).map_or(0, |held| held.count);
            if partitions >= self.config.max_partitions_per_queue {
                return Err(PopError::PartitionLimit);
            }
        }
        if queue.is_none() {
            if !self.make_tenant_room(request.tenant) {
                return Err(PopError::TenantQueues);
            }
            if !self.make_room(0, 1, None) {
                return Err(PopError::QueueLimit);
            }
        }
        Ok(())
    }

    /// Takes up to `batch` messages, oldest first, into the scratch list, and names them in a
    /// claim. `None` if there are none.
    pub(super) fn take(&mut self, queue: u32, group: u16, scope: Scope, batch: u32, auto_ack: bool) -> Option<Claim> {
        self.taken.clear();
        let contents = self.queues[queue].contents.as_mut()?;
        let scope = match (scope, contents.only()) {
            (Scope::Any, Some(place)) => Scope::One(place),
            (scope, _) => scope,
        };
        let mut handed = self.spare_claims.pop().unwrap_or_default();
        handed.queue = queue;
        handed.group = group;
        handed.group_uid = self.queues[queue].group(group).uid;
        handed.leased = !auto_ack;
        handed.runs.clear();
        let batch = batch as usize;
        match scope {
            Scope::One(place) => self.take_from(queue, place, batch, u64::MAX, &mut handed),
            Scope::Any => {
                self.keep_ready(queue, group);
                while self.taken.len() < batch {
                    let ready = self.queues[queue].group(group).ready.as_ref().expect("it was just made");
                    let mut heads = ready.iter();
                    let Some(&(_, place)) = heads.next() else { break };
                    let until = heads.next().map_or(u64::MAX, |&(sequence, _)| sequence);
                    self.take_from(queue, place, batch - self.taken.len(), until, &mut handed);
                }
            }
        }
        if self.taken.is_empty() {
            self.recycle(handed);
            return None;
        }
        self.totals.popped += self.taken.len() as u64;
        Some(Claim(handed))
    }

    /// Takes from one partition, below the sequence at which another one is older.
    fn take_from(&mut self, queue: u32, place: u32, most: usize, until: u64, handed: &mut Handed) {
        let group = handed.group;
        let before = self.taken.len();
        self.take_returned(queue, place, most, until, handed);
        let left = most - (self.taken.len() - before);
        self.take_fresh(queue, place, left, until, handed);
        if handed.leased && self.taken.len() > before {
            self.arm_lease(queue, place, group);
        }
        self.refresh_age(queue, place);
        self.refresh_ready(queue, place, group);
    }

    /// Redeliveries go ahead of newer messages, in the order of their sequence.
    fn take_returned(&mut self, queue: u32, place: u32, most: usize, until: u64, handed: &mut Handed) {
        for _ in 0..most {
            let partition = self.queues[queue].contents_mut().partition_mut(place);
            let Some(cursor) = partition.cursor_mut(handed.group) else { return };
            let Some(first) = cursor.returned.first_entry() else { return };
            let sequence = *first.key();
            if sequence >= until {
                return;
            }
            let attempts = first.remove() + 1;
            let at = partition.find(sequence).expect("a returned message is alive");
            let span = partition.ring[at].span;
            if handed.leased {
                let cursor = partition.cursor_mut(handed.group).expect("it returned a message");
                self.leases.insert(cursor, sequence, attempts, self.now_ms);
                self.memory += LEASE_BYTES;
            } else {
                partition.ring[at].pins += 1;
                self.consume(queue, place, at);
            }
            self.taken.push(Taken { sequence, span, partition: place, attempts });
            handed.runs.push(Run { first: sequence, last: sequence, partition: place, attempts });
        }
    }

    /// The messages that the group was never handed: a row of live slots at the ring's end.
    fn take_fresh(&mut self, queue: u32, place: u32, most: usize, until: u64, handed: &mut Handed) {
        let record = &mut self.queues[queue];
        let (groups, tenant) = (record.group_count, record.tenant);
        let contents = record.contents_mut();
        let partition = contents.partition_mut(place);
        let from = partition.fresh_from(handed.group);
        let to = partition.ring.len().min(from.saturating_add(most));
        if from >= to || partition.ring[from].sequence >= until {
            return;
        }
        let cursor_at = partition.cursor_place(handed.group);
        let Partition { ring, cursors, spent, depth, bytes, .. } = partition;
        let cursor = &mut cursors[cursor_at];
        let first = ring[from].sequence;
        let (mut last, mut gone, mut gone_bytes, mut taken) = (first, 0, 0, 0_u64);
        for slot in ring.range_mut(from..to) {
            if slot.sequence >= until {
                break;
            }
            debug_assert!(!slot.is_dead(), "fresh slots are alive");
            last = slot.sequence;
            if handed.leased {
                self.leases.insert(cursor, last, 1, self.now_ms);
            } else {
                slot.pins += 1;
                slot.consumed += 1;
                if slot.is_spent(groups) {
                    gone += 1;
                    gone_bytes += slot.span.payload_bytes();
                }
            }
            taken += 1;
            self.taken.push(Taken { sequence: last, span: slot.span, partition: place, attempts: 1 });
        }
        cursor.next = last + 1;
        if handed.leased {
            self.memory += taken * LEASE_BYTES;
        }
        *spent += gone as u32;
        *depth -= gone;
        *bytes -= gone_bytes;
        contents.depth -= gone;
        contents.bytes -= gone_bytes;
        self.tenants.remove_bytes(tenant, gone_bytes);
        self.totals.messages -= gone;
        self.totals.payload_bytes -= gone_bytes;
        handed.runs.push(Run { first, last, partition: place, attempts: 1 });
    }

    /// Arms the cursor's lease timer for its oldest lease, if it is not armed.
    pub(super) fn arm_lease(&mut self, queue: u32, place: u32, group: u16) {
        let lease_ms = self.limits(queue).lease_ms;
        let partition = self.queues[queue].contents_mut().partition_mut(place);
        let Some(cursor) = partition.cursor_mut(group) else { return };
        if cursor.lease_timer != NONE {
            return;
        }
        if let Some(oldest) = self.leases.first(cursor) {
            let due_ms = oldest.delivered_ms.saturating_add(lease_ms);
            let timer = StateTimer::Lease { queue, partition: place, group };
            cursor.lease_timer = self.state_timers.insert(due_ms, timer);
        }
    }

    /// Calls the sink with what was taken, or with nothing.
    pub(super) fn hand_over<S: Sink>(&mut self, queue: u32, waiter: WaiterId, claim: Option<Claim>, sink: &mut S) {
        let record = &self.queues[queue];
        let taken = if claim.is_some() { &self.taken[..] } else { &[] };
        let mut claim = claim;
        sink.deliver(
            waiter,
            Delivery { queue: record.name(), contents: record.contents.as_deref(), taken, claim: &mut claim },
        );
        if let Some(untaken) = claim {
            self.settle(untaken);
        }
    }

    /// Keeps a claim's box for the next.
    pub(super) fn recycle(&mut self, handed: Box<Handed>) {
        if self.spare_claims.len() < SPARE_CLAIMS && handed.runs.capacity() <= SPARE_CLAIMS {
            self.spare_claims.push(handed);
        }
    }
}

/// What a pop takes from.
#[derive(Copy, Clone)]
pub(super) enum Scope {
    Any,
    One(u32),
}
