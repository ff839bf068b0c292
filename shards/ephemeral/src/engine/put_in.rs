//! Adopting a partition that another engine took out: the second half of a hand-over.

use super::idle::Ceilings;
use super::{Engine, GROUP_BYTES, PARTITION_BYTES, QUEUE_BYTES};
use crate::Millis;
use crate::delivery::Sink;
use crate::parcel::{Parcel, ParcelGroup};
use crate::partition::{Born, Slot};

/// What an engine may come to by adopting: the shard's shares of the node's budgets, and as much of the quarter as it may
/// have by which adopted messages may exceed those.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct PutInLimits {
    /// What [`Engine::memory_bytes`] may reach.
    pub memory_bytes: u64,
    /// What [`Engine::queues`] may reach.
    pub queues: u64,
}

/// Why a parcel was not adopted. The caller keeps it, and tries again later.
#[derive(Copy, Clone, Eq, PartialEq, Debug, thiserror::Error)]
pub enum PutInError {
    /// The queue would exceed `maxLength` or `maxBytes` by more than a quarter.
    #[error("the queue is full")]
    QueueFull,
    /// The queue would exceed the number of its partitions by more than a quarter.
    #[error("the queue has as many partitions as it may")]
    PartitionLimit,
    /// The queue would exceed the number of its groups by more than a quarter.
    #[error("the queue has as many groups as it may")]
    GroupLimit,
    /// There would be a queue too many.
    #[error("the node holds as many queues as it may")]
    QueueLimit,
    /// There would be too much in memory.
    #[error("the node's memory for ephemeral queues is used up")]
    NodeMemory,
}

impl Engine {
    /// Adopts a partition, whole, and serves the pops that wait for it. The queue (an implicit one), the groups and the
    /// partition are created if they are not there. On an error nothing has changed, save that idle queues may have been
    /// collected to make room.
    ///
    /// The messages keep their order and their age: TTL counts from their birth, and those that reached it on the way
    /// are dropped at once, as such. Their ids are new, of this engine. They stand behind the queue's other partitions,
    /// as if they had been pushed now. Where the partition holds messages itself, because two engines owned it for a
    /// while, they stand in front of those, and with them in front of the queue's other partitions. Ids that were handed
    /// out before go on to name what they named.
    ///
    /// The queue's bounds may be exceeded by a quarter, and nothing is dropped for them; what is pushed next to a queue
    /// above its bounds is refused or takes the oldest, as ever. A tenant's limit is not looked at: its messages are as
    /// many as before. What is adopted does not count as pushed.
    ///
    /// A group that was at the other engine stands here where it stood there: what it consumed it does not get again,
    /// what came back or was leased there comes first, with its attempts, also where those have reached the retry limit.
    /// Where it is new here, it starts in every other partition, and with messages of this one that were here before, as
    /// any new group does: at the oldest message kept. Its idle time starts anew. A group that the other engine did not
    /// know has consumed nothing of what is adopted.
    ///
    /// # Errors
    /// See [`PutInError`].
    pub fn put_in<S: Sink>(
        &mut self,
        now_ms: Millis,
        parcel: &Parcel,
        limits: PutInLimits,
        sink: &mut S,
    ) -> Result<(), PutInError> {
        self.note_time(now_ms);
        let found = self.find(parcel.tenant(), parcel.queue());
        self.check_put_in(found, parcel, limits)?;

        let queue = found.unwrap_or_else(|| self.create_queue(parcel.tenant(), parcel.queue()));
        for group in parcel.groups() {
            if self.queues[queue].find_group(&group.name).is_none() {
                self.create_group(queue, &group.name);
            }
        }
        let place = self.find_partition(queue, parcel.partition());
        let place = place.unwrap_or_else(|| self.create_partition(queue, parcel.partition()));
        self.unpack(queue, place, parcel);

        let mut budget = usize::MAX;
        self.drop_aged(queue, place, &mut budget);
        self.arm_ttl(queue, place);
        self.refresh(queue, place);
        self.tidy(queue, place);
        self.serve_all(queue, place, sink);
        self.note_use(queue);
        Ok(())
    }

    /// Checks every limit before the first change.
    fn check_put_in(&mut self, queue: Option<u32>, parcel: &Parcel, limits: PutInLimits) -> Result<(), PutInError> {
        let bounds = *queue.map_or(&self.implicit, |queue| self.limits(queue));
        let (depth, held) = queue.map_or((0, 0), |queue| self.queues[queue].load());
        let messages = parcel.messages().len() as u64;
        if depth + messages > stretched(bounds.max_length)
            || held + parcel.payload_bytes() > stretched(bounds.max_bytes)
        {
            return Err(PutInError::QueueFull);
        }
        let place = queue.and_then(|queue| self.find_partition(queue, parcel.partition()));
        let record = queue.map(|queue| &self.queues[queue]);
        let partitions = record.and_then(|record| record.contents.as_ref()).map_or(0, |contents| contents.count);
        let partitions_max = stretched(u64::from(self.config.max_partitions_per_queue));
        if place.is_none() && u64::from(partitions) >= partitions_max {
            return Err(PutInError::PartitionLimit);
        }
        let is_new = |group: &&ParcelGroup| record.is_none_or(|record| record.find_group(&group.name).is_none());
        let new_groups = parcel.groups().iter().filter(is_new).count() as u64;
        let groups = record.map_or(0, |record| u64::from(record.group_count));
        let groups_max = stretched(u64::from(self.config.max_groups_per_queue)).min(u64::from(u16::MAX));
        if new_groups > 0 && groups + new_groups > groups_max {
            return Err(PutInError::GroupLimit);
        }
        let ceilings = Ceilings { memory_bytes: limits.memory_bytes, queues: limits.queues };
        let new_queues = u64::from(queue.is_none());
        if !self.make_room_under(ceilings, 0, new_queues, queue) {
            return Err(PutInError::QueueLimit);
        }
        let needed = parcel.message_bytes()
            + new_groups * GROUP_BYTES
            + new_queues * QUEUE_BYTES
            + u64::from(place.is_none()) * PARTITION_BYTES;
        if !self.make_room_under(ceilings, needed, 0, queue) {
            return Err(PutInError::NodeMemory);
        }
        Ok(())
    }

    /// Puts the messages in, and the groups where they stood.
    fn unpack(&mut self, queue: u32, place: u32, parcel: &Parcel) {
        let now_ms = self.now_ms;
        let messages = parcel.messages().len() as u64;
        let record = &mut self.queues[queue];
        let positions: Vec<(u16, Option<&ParcelGroup>)> = record
            .group_slots()
            .map(|slot| (slot, parcel.groups().iter().find(|group| *group.name == *record.group(slot).name())))
            .collect();
        let (partition, chunks) = record.contents_mut().split(place);
        let in_front = !partition.ring.is_empty();
        let first = if in_front { self.sequences.take_below(messages) } else { self.sequences.take_above(messages) };
        chunks.expect(parcel.message_bytes());
        partition.reserve(messages as usize);
        let slots = (first..first + messages).zip(parcel.messages()).zip(consumed(parcel));
        let slots = slots.map(|((sequence, message), consumed)| {
            let born = Born::ago(now_ms, message.age_ms);
            Slot { sequence, born, span: chunks.insert(message.payload, message.reply_to), consumed, pins: 0 }
        });
        if in_front {
            // Behind the others and round to the front: what is in a ring need not move for it.
            partition.ring.extend(slots);
            partition.ring.rotate_right(messages as usize);
        } else {
            partition.ring.extend(slots);
        }
        partition.revive(first);
        partition.look_at_births();
        for (group, position) in positions {
            partition.place_group(group, first, messages, position);
        }
        self.count_in(queue, place, messages, parcel.payload_bytes());
        self.memory += parcel.message_bytes();
    }
}

/// How many groups have consumed each message.
fn consumed(parcel: &Parcel) -> Vec<u16> {
    let mut consumed = vec![0; parcel.messages().len()];
    for group in parcel.groups() {
        for count in &mut consumed[..group.fresh_from as usize] {
            *count += 1;
        }
        for redelivery in &group.returned {
            consumed[redelivery.message as usize] -= 1;
        }
    }
    consumed
}

/// A bound that adopted messages may reach.
const fn stretched(bound: u64) -> u64 {
    bound.saturating_add(bound / 4)
}
