//! Taking a partition out, for another engine to adopt it: the first half of a hand-over.

use super::Engine;
use crate::Millis;
use crate::delivery::Sink;
use crate::parcel::{Parcel, ParcelBuilder, ParcelGroup, Redelivery};
use crate::partition::Partition;
use crate::queue::Queue;
use crate::slab::NONE;
use crate::types::{TenantId, WaiterId};

/// Where a walk over all partitions goes on. Its default is the start.
#[derive(Copy, Clone, Eq, PartialEq, Debug, Default)]
pub struct PartitionPlace {
    queue: u32,
    partition: u32,
}

/// One partition that there is something to move of.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct PartitionRow<'a> {
    /// Whose queue.
    pub tenant: TenantId,
    /// The queue's name.
    pub queue: &'a str,
    /// The partition's name.
    pub partition: &'a str,
    /// Messages that some group has still to consume, or that no group exists to consume.
    pub depth: u64,
    /// Pops parked on it alone.
    pub parked: u32,
}

/// What [`Engine::take_out`] took.
#[derive(Debug, Default)]
pub struct TakenOut {
    /// The messages and the groups' positions; `None` where the partition held no messages.
    pub parcel: Option<Parcel>,
    /// The pops that were parked on the partition alone, in the order of their arrival.
    pub pops: Vec<UnparkedPop>,
}

/// A pop that was parked and is not any more: ask it again where its partition is now.
#[derive(Clone, Eq, PartialEq, Debug)]
pub struct UnparkedPop {
    /// Who waits. The sink is not called for it.
    pub waiter: WaiterId,
    /// The consumer group; [`QUEUE_MODE`](crate::QUEUE_MODE) for a pop without one.
    pub group: String,
    /// Messages to take at most.
    pub batch: u32,
    /// Consumes at delivery instead of leasing.
    pub auto_ack: bool,
    /// What is left of its time.
    pub wait_ms: u64,
}

impl Engine {
    /// Walks the partitions that hold messages or parked pops in pieces: looks at up to `max_places` places from `from`
    /// on, calls `each` for every such partition, and returns where to go on, or `None` at the end. Partitions that come
    /// or go between two pieces may be met or not. Inboxes are no queues and not among them.
    pub fn scan_partitions(
        &self,
        from: PartitionPlace,
        max_places: u32,
        each: &mut dyn FnMut(PartitionRow<'_>),
    ) -> Option<PartitionPlace> {
        let mut at = from;
        for _ in 0..max_places.max(1) {
            if at.queue >= self.queues.slots() {
                return None;
            }
            let queue = self.queues.get(at.queue);
            let contents = queue.and_then(|queue| queue.contents.as_ref());
            let Some(contents) = contents.filter(|contents| at.partition < contents.place_limit()) else {
                at = PartitionPlace { queue: at.queue + 1, partition: 0 };
                continue;
            };
            if let Some(queue) = queue
                && let Some(partition) = contents.get(at.partition)
                && (partition.depth > 0 || partition.waiting > 0)
            {
                each(PartitionRow {
                    tenant: self.tenants.id(queue.tenant),
                    queue: queue.name(),
                    partition: partition.name(),
                    depth: partition.depth,
                    parked: partition.waiting,
                });
            }
            at.partition += 1;
        }
        Some(at)
    }

    /// Takes a partition out: every message that counts, in order, and where every group of the queue stands.
    ///
    /// A leased message becomes one that came back, its attempts counted, be they as many as the retry limit; a late ack
    /// of it is `unknown` from now on, and giving its claim back does nothing. The queue, its declaration and its groups
    /// stay, and so do pops that are parked on any partition. Pops that are parked on this one alone are unparked and
    /// returned. What leaves counts neither as popped nor as dropped.
    ///
    /// Claims of autoAck deliveries whose answers are not yet written still work. Their messages stay here until then,
    /// as consumed by everybody, and count towards [`memory_bytes`](Self::memory_bytes) alone; one that some other group
    /// had still to consume is in the parcel, too, as consumed by the group that it was delivered to. Settled, they go;
    /// given back, they are available here to that group alone: unless a parked pop gets them, the partition is among
    /// [`scan_partitions`](Self::scan_partitions) again and wants to be taken out once more. So nothing is lost with an
    /// answer, and no group that is known here gets anything twice. (A group that is not, because it was born at the
    /// other engine or is born here later, takes what then comes after for messages that it has not seen.)
    pub fn take_out<S: Sink>(
        &mut self,
        now_ms: Millis,
        tenant: TenantId,
        queue: &str,
        partition: &str,
        sink: &mut S,
    ) -> TakenOut {
        self.note_time(now_ms);
        let Some(queue) = self.find(tenant, queue) else { return TakenOut::default() };
        let Some(place) = self.find_partition(queue, partition) else { return TakenOut::default() };
        let pops = self.unpark_all(queue, place);
        let parcel = self.pack(queue, place);
        self.clear_out(queue, place);
        self.refresh(queue, place);
        self.tidy(queue, place);
        if self.queues[queue].parked > 0 {
            // Nobody gets more by this, but windows may have to close.
            self.serve_queue(queue, sink);
        }
        self.note_change(queue);
        TakenOut { parcel, pops }
    }

    /// Unparks the pops that wait for one partition alone.
    fn unpark_all(&mut self, queue: u32, place: u32) -> Vec<UnparkedPop> {
        let mut pops = Vec::new();
        for group in 0..self.queues[queue].groups.len() as u16 {
            loop {
                let cursor = self.queues[queue].contents().partition(place).cursor(group);
                let head = cursor.map_or(NONE, |cursor| cursor.waiters.head);
                if head == NONE {
                    break;
                }
                let waiter = self.unpark(head);
                let pop = UnparkedPop {
                    waiter: waiter.id,
                    group: self.queues[queue].group(group).name().to_owned(),
                    batch: waiter.batch,
                    auto_ack: waiter.auto_ack,
                    wait_ms: waiter.deadline_ms.saturating_sub(self.now_ms),
                };
                pops.push((waiter.ticket, pop));
            }
        }
        pops.sort_unstable_by_key(|&(ticket, _)| ticket);
        pops.into_iter().map(|(_, pop)| pop).collect()
    }

    /// Copies what counts, and the groups' positions. `None` if nothing counts.
    fn pack(&self, queue: u32, place: u32) -> Option<Parcel> {
        let record = &self.queues[queue];
        let contents = record.contents();
        let partition = contents.partition(place);
        if partition.depth == 0 {
            return None;
        }
        let mut builder = ParcelBuilder::new(self.tenants.id(record.tenant), record.name(), partition.name());
        builder.reserve(partition.depth as usize, partition.bytes as usize);
        for slot in partition.ring.iter().filter(|slot| slot.is_counted(record.group_count)) {
            let payload = contents.chunks.get(slot.span);
            builder.message(slot.born.age_ms(self.now_ms), payload, contents.chunks.reply_to(slot.span));
        }
        for group in record.group_slots() {
            builder.group(self.position(record, partition, group));
        }
        Some(builder.trusted())
    }

    /// Where a group stands among the messages that count.
    fn position(&self, record: &Queue, partition: &Partition, group: u16) -> ParcelGroup {
        let handed = partition.ring.range(..partition.fresh_from(group));
        let cursor = partition.cursor(group);
        let (mut fresh_from, mut returned) = (0, Vec::new());
        for slot in handed.filter(|slot| slot.is_counted(record.group_count)) {
            let came_back = cursor.and_then(|cursor| cursor.returned.get(&slot.sequence).copied());
            if let Some(attempts) = came_back.or_else(|| self.leases.attempts(group, slot.sequence)) {
                let attempts = attempts.min(Redelivery::ATTEMPTS_MAX);
                returned.push(Redelivery { message: fresh_from, attempts });
            }
            fresh_from += 1;
        }
        ParcelGroup { name: record.group(group).name().into(), fresh_from, returned }
    }

    /// Lets the messages go that were packed. Those that answers hold stay, as consumed by every group.
    fn clear_out(&mut self, queue: u32, place: u32) {
        let record = &mut self.queues[queue];
        let groups = record.group_count;
        let slots: Vec<u16> = record.group_slots().collect();
        let partition = record.contents_mut().partition_mut(place);
        if partition.ttl_timer != NONE {
            self.state_timers.cancel(partition.ttl_timer);
            partition.ttl_timer = NONE;
        }
        for cursor in &mut partition.cursors {
            self.memory -= u64::from(cursor.leased) * super::LEASE_BYTES;
            self.leases.clear(cursor);
            cursor.returned.clear();
            if cursor.lease_timer != NONE {
                self.state_timers.cancel(cursor.lease_timer);
                cursor.lease_timer = NONE;
            }
        }
        if let Some(back) = partition.ring.back() {
            let next = back.sequence + 1;
            for &group in &slots {
                let cursor = partition.cursor_or_new(group);
                cursor.next = cursor.next.max(next);
            }
        }
        for at in 0..self.queues[queue].contents().partition(place).ring.len() {
            let partition = self.queues[queue].contents_mut().partition_mut(place);
            let slot = &mut partition.ring[at];
            if !slot.is_counted(groups) {
                continue;
            }
            let bytes = slot.span.payload_bytes();
            // Without groups, nobody is left who could give it back.
            let stays = slot.pins > 0 && groups > 0;
            if stays {
                slot.consumed = groups;
                partition.spent += 1;
            }
            self.count_out(queue, place, bytes);
            if !stays {
                self.kill(queue, place, at);
            }
        }
        self.queues[queue].contents_mut().partition_mut(place).bury();
    }
}
