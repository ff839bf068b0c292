//! Leases: which message is out with which group, at which attempt, since when.
//!
//! One slab and one index for the whole engine. A lease is found by its message's sequence (never
//! reused) and its group's slot; a cursor lists its leases in the order of their delivery, which
//! is the order in which they run out.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

use crate::Millis;
use crate::partition::{Cursor, List};
use crate::slab::{NONE, Slab};

pub(crate) struct Lease {
    pub(crate) sequence: u64,
    pub(crate) delivered_ms: Millis,
    pub(crate) attempts: u32,
    group: u16,
    prev: u32,
    next: u32,
}

pub(crate) struct Leases {
    slab: Slab<Lease>,
    index: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

impl Leases {
    pub(crate) fn new(hasher: DefaultHashBuilder) -> Self {
        Self { slab: Slab::new(), index: HashTable::new(), hasher }
    }

    pub(crate) const fn len(&self) -> u32 {
        self.slab.len()
    }

    /// The cursor's oldest lease.
    pub(crate) fn first(&self, cursor: &Cursor) -> Option<&Lease> {
        self.slab.get(cursor.leases.head)
    }

    /// The attempts of the group's lease of a message.
    pub(crate) fn attempts(&self, group: u16, sequence: u64) -> Option<u32> {
        self.find(group, sequence).map(|index| self.slab[index].attempts)
    }

    pub(crate) fn insert(&mut self, cursor: &mut Cursor, sequence: u64, attempts: u32, delivered_ms: Millis) {
        let group = cursor.group;
        let prev = cursor.leases.tail;
        let index = self.slab.insert(Lease { sequence, delivered_ms, attempts, group, prev, next: NONE });
        if prev == NONE {
            cursor.leases.head = index;
        } else {
            self.slab[prev].next = index;
        }
        cursor.leases.tail = index;
        cursor.leased += 1;
        let (slab, hasher) = (&self.slab, &self.hasher);
        let hash = |index: &u32| hasher.hash_one((slab[*index].sequence, slab[*index].group));
        self.index.insert_unique(hash(&index), index, hash);
    }

    /// Ends the group's lease of a message, if there is one, and returns its attempts.
    pub(crate) fn remove(&mut self, cursor: &mut Cursor, sequence: u64) -> Option<u32> {
        if cursor.leased == 0 {
            return None;
        }
        let index = self.find(cursor.group, sequence)?;
        let hash = self.hasher.hash_one((sequence, cursor.group));
        self.index.find_entry(hash, |&other| other == index).expect("an indexed lease").remove();
        let lease = self.slab.remove(index);
        if lease.prev == NONE {
            cursor.leases.head = lease.next;
        } else {
            self.slab[lease.prev].next = lease.next;
        }
        if lease.next == NONE {
            cursor.leases.tail = lease.prev;
        } else {
            self.slab[lease.next].prev = lease.prev;
        }
        cursor.leased -= 1;
        Some(lease.attempts)
    }

    /// Ends all leases of a cursor.
    pub(crate) fn clear(&mut self, cursor: &mut Cursor) {
        while let Some(lease) = self.slab.get(cursor.leases.head) {
            let sequence = lease.sequence;
            self.remove(cursor, sequence).expect("the listed lease");
        }
        debug_assert!(cursor.leases == List::EMPTY && cursor.leased == 0);
    }

    fn find(&self, group: u16, sequence: u64) -> Option<u32> {
        let hash = self.hasher.hash_one((sequence, group));
        let same = |&index: &u32| self.slab[index].sequence == sequence && self.slab[index].group == group;
        self.index.find(hash, same).copied()
    }
}
