//! Trimming a `dropOldest` queue: which messages go, and, before anything is changed, what they would free.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::Engine;
use super::messages::Cause;
use crate::partition::Slot;

impl Engine {
    /// Makes room in a `dropOldest` queue: first from the pushed partition, then from the others,
    /// oldest first.
    pub(super) fn trim(&mut self, queue: u32, place: Option<u32>, messages: u64, bytes: u64) {
        if let Some(place) = place {
            while self.excess(queue, messages, bytes).remains() && self.drop_oldest_of(queue, place, Cause::Bounds) {}
            self.refresh(queue, place);
        }
        while self.excess(queue, messages, bytes).remains() {
            self.drop_oldest(queue);
        }
    }

    /// Payload bytes that [`Engine::trim`] would drop. Looks at the messages that it would drop, in the same order, and
    /// at no other.
    pub(super) fn trim_frees(&mut self, queue: u32, place: Option<u32>, messages: u64, bytes: u64) -> u64 {
        let mut excess = self.excess(queue, messages, bytes);
        let groups = self.queues[queue].group_count;
        if let Some(place) = place {
            let partition = self.queues[queue].contents_mut().partition_mut(place);
            let from = partition.oldest(groups).unwrap_or(partition.ring.len());
            let counted = partition.ring.range(from..).filter(|slot| slot.is_counted(groups));
            for slot in counted {
                if !excess.remains() {
                    break;
                }
                excess.drop(slot);
            }
        }
        if !excess.remains() {
            return excess.freed_bytes;
        }
        // A merge of the other partitions, of which only those are opened that come to their turn.
        self.keep_ages(queue);
        let contents = self.queues[queue].contents();
        let ages = contents.by_age.iter().flatten().copied();
        let mut unopened = ages.filter(|&(_, other)| Some(other) != place).peekable();
        let mut opened: BinaryHeap<Reverse<(u64, u32, usize)>> = BinaryHeap::new();
        while excess.remains() {
            let first = opened.peek().map(|&Reverse((sequence, ..))| sequence);
            if let Some((sequence, other)) =
                unopened.next_if(|&(sequence, _)| first.is_none_or(|first| sequence < first))
            {
                let at = contents.partition(other).find(sequence).expect("the order by age names a message");
                opened.push(Reverse((sequence, other, at)));
            }
            let Reverse((_, other, at)) = opened.pop().expect("a queue over its bounds has a message");
            let ring = &contents.partition(other).ring;
            excess.drop(&ring[at]);
            if let Some(next) = (at + 1..ring.len()).find(|&next| ring[next].is_counted(groups)) {
                opened.push(Reverse((ring[next].sequence, other, next)));
            }
        }
        excess.freed_bytes
    }

    /// How far a queue is over its bounds with so much more.
    fn excess(&self, queue: u32, messages: u64, bytes: u64) -> Excess {
        let limits = self.limits(queue);
        let (depth, held) = self.queues[queue].load();
        Excess {
            messages: (depth + messages).saturating_sub(limits.max_length),
            bytes: (held + bytes).saturating_sub(limits.max_bytes),
            freed_bytes: 0,
        }
    }
}

/// What a queue holds beyond its bounds.
struct Excess {
    messages: u64,
    bytes: u64,
    /// Payload bytes of what was dropped meanwhile.
    freed_bytes: u64,
}

impl Excess {
    const fn remains(&self) -> bool {
        self.messages > 0 || self.bytes > 0
    }

    fn drop(&mut self, slot: &Slot) {
        let bytes = slot.span.payload_bytes();
        self.messages = self.messages.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
        self.freed_bytes += bytes;
    }
}
