//! Parked pops: values in a slab, first come first served in two kinds of lists, one per group
//! for pops of any partition and one per cursor for pops of its partition.

use crate::Millis;
use crate::partition::List;
use crate::slab::{NONE, Slab};
use crate::types::{ParkId, WaiterId};

pub(crate) struct Waiter {
    pub(crate) id: WaiterId,
    /// The order of arrival over both kinds.
    pub(crate) ticket: u64,
    pub(crate) deadline_ms: Millis,
    /// The end of its window, once its first message is there.
    pub(crate) window_end_ms: Option<Millis>,
    pub(crate) queue: u32,
    /// One partition; [`NONE`] is any.
    pub(crate) partition: u32,
    pub(crate) batch: u32,
    pub(crate) generation: u32,
    pub(crate) timer: u32,
    pub(crate) group: u16,
    pub(crate) auto_ack: bool,
    prev: u32,
    next: u32,
}

pub(crate) struct Waiters {
    slab: Slab<Waiter>,
    tickets: u64,
    generations: u32,
}

/// What parks: a waiter before it has a place.
pub(crate) struct Parking {
    pub(crate) id: WaiterId,
    pub(crate) deadline_ms: Millis,
    pub(crate) queue: u32,
    pub(crate) group: u16,
    pub(crate) partition: u32,
    pub(crate) batch: u32,
    pub(crate) auto_ack: bool,
}

impl Waiters {
    pub(crate) const fn new() -> Self {
        Self { slab: Slab::new(), tickets: 0, generations: 0 }
    }

    pub(crate) const fn len(&self) -> u32 {
        self.slab.len()
    }

    pub(crate) fn get(&self, index: u32) -> &Waiter {
        &self.slab[index]
    }

    pub(crate) fn get_mut(&mut self, index: u32) -> &mut Waiter {
        &mut self.slab[index]
    }

    /// The waiter a park id still names.
    pub(crate) fn find(&self, park: ParkId) -> Option<&Waiter> {
        self.slab.get(park.index).filter(|waiter| waiter.generation == park.generation)
    }

    /// Parks at the end of a list.
    pub(crate) fn push(&mut self, list: &mut List, parking: Parking) -> ParkId {
        self.tickets += 1;
        self.generations = self.generations.wrapping_add(1);
        let generation = self.generations;
        let index = self.slab.insert(Waiter {
            id: parking.id,
            ticket: self.tickets,
            deadline_ms: parking.deadline_ms,
            window_end_ms: None,
            queue: parking.queue,
            partition: parking.partition,
            batch: parking.batch,
            generation,
            timer: NONE,
            group: parking.group,
            auto_ack: parking.auto_ack,
            prev: list.tail,
            next: NONE,
        });
        if list.tail == NONE {
            list.head = index;
        } else {
            self.slab[list.tail].next = index;
        }
        list.tail = index;
        ParkId { index, generation }
    }

    /// Takes a waiter out of its list.
    pub(crate) fn remove(&mut self, list: &mut List, index: u32) -> Waiter {
        let waiter = self.slab.remove(index);
        if waiter.prev == NONE {
            list.head = waiter.next;
        } else {
            self.slab[waiter.prev].next = waiter.next;
        }
        if waiter.next == NONE {
            list.tail = waiter.prev;
        } else {
            self.slab[waiter.next].prev = waiter.prev;
        }
        waiter
    }

    /// Every parked pop's index, for shutdown.
    pub(crate) fn indexes(&self) -> Vec<u32> {
        (0..self.slab.slots()).filter(|&index| self.slab.get(index).is_some()).collect()
    }
}
