//! A hierarchical timer wheel with a resolution of one millisecond.
//!
//! Six-bit levels, each slot an intrusive doubly linked list over a slab, an occupancy bitmap per
//! level. Inserting and cancelling are O(1), and a cancelled timer leaves nothing behind: a
//! request/reply load that arms and cancels a 30-second timeout a hundred thousand times a second
//! keeps as many nodes as there are timers armed. The engine owns two: one for what changes
//! state (leases, TTL, idle groups), one for the timeouts of parked pops.

use crate::Millis;
use crate::slab::{NONE, Slab};

const LEVEL_BITS: u32 = 6;
const SLOTS: usize = 1 << LEVEL_BITS;
const LEVELS: usize = 7;
/// Deadlines further away than the wheel reaches (139 years) sit in its last slot and come round again.
const REACH_MS: u64 = (1 << (LEVEL_BITS * LEVELS as u32)) - 1;
/// The list of timers that are due, beside the lists of the slots.
const DUE: u16 = (LEVELS * SLOTS) as u16;

struct Node<T> {
    deadline_ms: Millis,
    item: T,
    prev: u32,
    next: u32,
    list: u16,
}

pub(crate) struct Wheel<T> {
    now_ms: Millis,
    nodes: Slab<Node<T>>,
    heads: Box<[u32]>,
    occupied: [u64; LEVELS],
}

impl<T: Copy> Wheel<T> {
    pub(crate) fn new() -> Self {
        Self {
            now_ms: 0,
            nodes: Slab::new(),
            heads: vec![NONE; LEVELS * SLOTS + 1].into_boxed_slice(),
            occupied: [0; LEVELS],
        }
    }

    /// How many timers are armed.
    #[cfg(any(test, feature = "invariants"))]
    pub(crate) fn len(&self) -> u32 {
        self.nodes.len()
    }

    /// Arms a timer and names it. A deadline in the past is due at once.
    pub(crate) fn insert(&mut self, deadline_ms: Millis, item: T) -> u32 {
        let id = self.nodes.insert(Node { deadline_ms, item, prev: NONE, next: NONE, list: DUE });
        self.link(id);
        id
    }

    /// Disarms a timer that has not been handed out by [`Wheel::pop_due`].
    pub(crate) fn cancel(&mut self, id: u32) {
        self.unlink(id);
        self.nodes.remove(id);
    }

    /// The deadline a timer was armed with.
    pub(crate) fn deadline_ms(&self, id: u32) -> Millis {
        self.nodes[id].deadline_ms
    }

    /// The next moment at which [`Wheel::pop_due`] has work: exact for timers within 64 ms, and
    /// never later than the first deadline.
    pub(crate) fn next_deadline_ms(&self) -> Option<Millis> {
        if self.heads[usize::from(DUE)] != NONE {
            return Some(self.now_ms);
        }
        self.next_slot().map(|(at_ms, _, _)| at_ms)
    }

    /// Takes one timer whose deadline is at or before `now_ms`, earlier milliseconds first.
    pub(crate) fn pop_due(&mut self, now_ms: Millis) -> Option<T> {
        loop {
            let head = self.heads[usize::from(DUE)];
            if head != NONE {
                self.unlink(head);
                return Some(self.nodes.remove(head).item);
            }
            match self.next_slot() {
                Some((at_ms, level, slot)) if at_ms <= now_ms => {
                    self.now_ms = self.now_ms.max(at_ms);
                    self.open(level, slot);
                }
                _ => {
                    self.now_ms = self.now_ms.max(now_ms);
                    return None;
                }
            }
        }
    }

    /// Puts the timers of a slot that time has reached where they belong now.
    fn open(&mut self, level: usize, slot: usize) {
        let list = level * SLOTS + slot;
        let mut id = std::mem::replace(&mut self.heads[list], NONE);
        self.occupied[level] &= !(1 << slot);
        while id != NONE {
            let next = self.nodes[id].next;
            self.link(id);
            id = next;
        }
    }

    /// The first occupied slot in time: when it opens, its level and its place.
    fn next_slot(&self) -> Option<(Millis, usize, usize)> {
        let mut first: Option<(Millis, usize, usize)> = None;
        for level in 0..LEVELS {
            if self.occupied[level] == 0 {
                continue;
            }
            let shift = LEVEL_BITS * level as u32;
            let position = (self.now_ms >> shift) as usize & (SLOTS - 1);
            let turned = self.occupied[level].rotate_right(position as u32);
            let ahead = turned.trailing_zeros() as usize;
            let slot = (position + ahead) & (SLOTS - 1);
            let at_ms = ((self.now_ms >> shift) + ahead as u64) << shift;
            let at_ms = at_ms.max(self.now_ms);
            // On a tie the higher level goes first: it may hold timers of the same millisecond.
            if first.is_none_or(|(best_ms, _, _)| at_ms <= best_ms) {
                first = Some((at_ms, level, slot));
            }
        }
        first
    }

    fn link(&mut self, id: u32) {
        let deadline_ms = self.nodes[id].deadline_ms;
        let list = if deadline_ms <= self.now_ms {
            DUE
        } else {
            let at_ms = deadline_ms.min(self.now_ms.saturating_add(REACH_MS));
            // The level is that of the highest digit in which the deadline differs from now.
            let differs = (self.now_ms ^ at_ms) | 1;
            let level = ((63 - differs.leading_zeros()) / LEVEL_BITS) as usize;
            let level = level.min(LEVELS - 1);
            let slot = (at_ms >> (LEVEL_BITS * level as u32)) as usize & (SLOTS - 1);
            self.occupied[level] |= 1 << slot;
            (level * SLOTS + slot) as u16
        };
        let head = std::mem::replace(&mut self.heads[usize::from(list)], id);
        if head != NONE {
            self.nodes[head].prev = id;
        }
        let node = &mut self.nodes[id];
        (node.prev, node.next, node.list) = (NONE, head, list);
    }

    fn unlink(&mut self, id: u32) {
        let (prev, next, list) = {
            let node = &self.nodes[id];
            (node.prev, node.next, node.list)
        };
        if prev == NONE {
            self.heads[usize::from(list)] = next;
            if next == NONE && list != DUE {
                self.occupied[usize::from(list) / SLOTS] &= !(1 << (usize::from(list) % SLOTS));
            }
        } else {
            self.nodes[prev].next = next;
        }
        if next != NONE {
            self.nodes[next].prev = prev;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn next_random(state: &mut u64) -> u64 {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        *state
    }

    #[test]
    fn timers_come_due_at_their_millisecond_and_never_before() {
        let mut state = 0x9e37_79b9_7f4a_7c15;
        for round in 0..40 {
            let mut wheel = Wheel::new();
            let mut model: BTreeMap<u64, (u64, u32)> = BTreeMap::new();
            let mut now_ms = round * 4093;
            assert!(wheel.pop_due(now_ms).is_none());
            for name in 0..2000_u64 {
                match next_random(&mut state) % 4 {
                    0 | 1 => {
                        let reach = 1 << (next_random(&mut state) % 24);
                        let deadline_ms = now_ms + next_random(&mut state) % reach;
                        let id = wheel.insert(deadline_ms, name);
                        model.insert(name, (deadline_ms, id));
                    }
                    2 => {
                        if let Some((&victim, &(_, id))) = model.iter().next() {
                            wheel.cancel(id);
                            model.remove(&victim);
                        }
                    }
                    _ => {
                        if let Some(next_ms) = wheel.next_deadline_ms() {
                            let first_ms = model.values().map(|&(at_ms, _)| at_ms).min();
                            assert!(next_ms <= first_ms.expect("a timer is armed").max(now_ms));
                        }
                        now_ms += next_random(&mut state) % (1 << (next_random(&mut state) % 14));
                        let mut last_ms = 0;
                        while let Some(due) = wheel.pop_due(now_ms) {
                            let (deadline_ms, _) = model.remove(&due).expect("armed, once");
                            assert!(deadline_ms <= now_ms && deadline_ms >= last_ms);
                            last_ms = deadline_ms;
                        }
                        assert!(model.values().all(|&(at_ms, _)| at_ms > now_ms));
                    }
                }
                assert_eq!(wheel.len() as usize, model.len());
            }
        }
    }

    #[test]
    fn a_cancelled_timer_leaves_no_node() {
        let mut wheel = Wheel::new();
        for n in 0..100_000_u64 {
            let id = wheel.insert(n + 30_000, n);
            wheel.cancel(id);
        }
        assert_eq!((wheel.len(), wheel.next_deadline_ms()), (0, None));
    }
}
