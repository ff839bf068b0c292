//! A partition: its messages in the order of their sequence, and every group's cursor over them.
//!
//! A message is a [`Slot`] of 32 bytes. It is in one of three states:
//!
//! - *counted*: some group has still to consume it, or there is no group. It counts towards
//!   depth and bounds.
//! - *spent*: every group has consumed it, but an answer that holds it is not written yet
//!   ([`Slot::pins`]), so it may come back. It counts no more, its payload stays.
//! - *dead*: its payload is freed. Dead slots leave at the front at once and in the middle when
//!   there are as many as live ones.
//!
//! A group's cursor is the sequence up to which it has been handed messages, plus what came back
//! ([`Cursor::returned`]) and what is out on lease. Everything else below `next` it has consumed.
//! From `max(next, floor)` on, every slot is counted and untouched by the group: drops take the
//! oldest, a message every group consumed was consumed by this one, and a group that is born
//! while spent slots exist gets its cursor made at birth ([`Partition::adopt`]). Messages that
//! are adopted from another engine in front of what is here lie below some groups' `next`: they
//! are put among what came back to those ([`Partition::place_group`]). Only then can a message
//! reach its TTL before one in front of it does, and its dead slot is buried at once.

use std::collections::{BTreeMap, VecDeque};

use crate::Millis;
use crate::parcel::ParcelGroup;
use crate::payload::Span;
use crate::slab::NONE;

/// When a message was pushed first, on the engine's clock: before its start, where another engine handed over a message
/// that is older than that.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Born(i64);

impl Born {
    pub(crate) fn at(now_ms: Millis) -> Self {
        Self(i64::try_from(now_ms).unwrap_or(i64::MAX))
    }

    /// The birth of what is so old now.
    pub(crate) fn ago(now_ms: Millis, age_ms: u64) -> Self {
        Self(Self::at(now_ms).0.saturating_sub_unsigned(age_ms))
    }

    pub(crate) fn age_ms(self, now_ms: Millis) -> u64 {
        u64::try_from(Self::at(now_ms).0.saturating_sub(self.0)).unwrap_or(0)
    }

    /// The moment so long after it; the clock's start, if that was before.
    pub(crate) fn plus(self, ms: u64) -> Millis {
        Millis::try_from(self.0.saturating_add_unsigned(ms)).unwrap_or(0)
    }
}

/// One message.
pub(crate) struct Slot {
    pub(crate) sequence: u64,
    pub(crate) born: Born,
    pub(crate) span: Span,
    /// Groups that have consumed it.
    pub(crate) consumed: u16,
    /// AutoAck deliveries of it whose answers are not written yet.
    pub(crate) pins: u16,
}

impl Slot {
    pub(crate) const fn is_dead(&self) -> bool {
        self.span.chunk == NONE
    }

    /// Every one of `groups` groups has consumed it.
    pub(crate) const fn is_spent(&self, groups: u16) -> bool {
        groups > 0 && self.consumed == groups
    }

    pub(crate) const fn is_counted(&self, groups: u16) -> bool {
        !self.is_dead() && !self.is_spent(groups)
    }
}

/// A doubly linked list over a slab.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(crate) struct List {
    pub(crate) head: u32,
    pub(crate) tail: u32,
}

impl List {
    pub(crate) const EMPTY: Self = Self { head: NONE, tail: NONE };

    #[cfg(any(test, feature = "invariants"))]
    pub(crate) const fn is_empty(self) -> bool {
        self.head == NONE
    }
}

/// Where one group stands in one partition.
pub(crate) struct Cursor {
    pub(crate) group: u16,
    /// Messages below this were handed to the group before.
    pub(crate) next: u64,
    /// Those that came back, with the attempts made so far.
    pub(crate) returned: BTreeMap<u64, u32>,
    /// Leases in the order of their delivery.
    pub(crate) leases: List,
    pub(crate) leased: u32,
    /// The timer of the oldest lease, or of an older one that is settled by now.
    pub(crate) lease_timer: u32,
    /// This partition's key in the group's ready set; `None` while nothing is available.
    pub(crate) ready_key: Option<u64>,
    /// Pops of the group parked on this partition alone.
    pub(crate) waiters: List,
}

impl Cursor {
    pub(crate) const fn new(group: u16) -> Self {
        Self {
            group,
            next: 0,
            returned: BTreeMap::new(),
            leases: List::EMPTY,
            leased: 0,
            lease_timer: NONE,
            ready_key: None,
            waiters: List::EMPTY,
        }
    }
}

pub(crate) struct Partition {
    /// Empty for `Default`, which most partitions are called: no allocation.
    name: Box<str>,
    pub(crate) ring: VecDeque<Slot>,
    pub(crate) dead: u32,
    pub(crate) spent: u32,
    /// Counted messages and their payload bytes.
    pub(crate) depth: u64,
    pub(crate) bytes: u64,
    /// Everything below was dropped at some time, unless it came back since.
    pub(crate) floor: u64,
    /// No slot below this is counted.
    oldest_hint: u64,
    /// Sorted by group.
    pub(crate) cursors: Vec<Cursor>,
    pub(crate) ttl_timer: u32,
    /// This partition's key in the queue's order by age, if it is kept.
    pub(crate) age_key: Option<u64>,
    /// Pops parked on this partition alone.
    pub(crate) waiting: u32,
    /// Messages may stand behind younger ones: two engines held the partition for a while, and one adopted it then.
    bent: bool,
}

/// The name pops and pushes without a partition mean.
const DEFAULT_NAME: &str = "Default";

impl Partition {
    pub(crate) fn new(name: &str) -> Self {
        Self {
            name: if name == DEFAULT_NAME { Box::default() } else { name.into() },
            ring: VecDeque::new(),
            dead: 0,
            spent: 0,
            depth: 0,
            bytes: 0,
            floor: 0,
            oldest_hint: 0,
            cursors: Vec::new(),
            ttl_timer: NONE,
            age_key: None,
            waiting: 0,
            bent: false,
        }
    }

    pub(crate) fn name(&self) -> &str {
        if self.name.is_empty() { DEFAULT_NAME } else { &self.name }
    }

    /// The place of the first slot at or after a sequence.
    pub(crate) fn lower_bound(&self, sequence: u64) -> usize {
        let Some(front) = self.ring.front() else { return 0 };
        if sequence <= front.sequence {
            return 0;
        }
        // A partition that is pushed to alone has its sequences in a row.
        let guess = (sequence - front.sequence).min(self.ring.len() as u64) as usize;
        let fits = self.ring.get(guess).is_none_or(|slot| slot.sequence >= sequence)
            && self.ring[guess - 1].sequence < sequence;
        if fits { guess } else { self.ring.partition_point(|slot| slot.sequence < sequence) }
    }

    /// The place of a message that is not dead.
    pub(crate) fn find(&self, sequence: u64) -> Option<usize> {
        let at = self.lower_bound(sequence);
        self.ring.get(at).filter(|slot| slot.sequence == sequence && !slot.is_dead()).map(|_| at)
    }

    pub(crate) fn cursor(&self, group: u16) -> Option<&Cursor> {
        let at = self.cursors.binary_search_by_key(&group, |cursor| cursor.group).ok()?;
        Some(&self.cursors[at])
    }

    pub(crate) fn cursor_mut(&mut self, group: u16) -> Option<&mut Cursor> {
        let at = self.cursors.binary_search_by_key(&group, |cursor| cursor.group).ok()?;
        Some(&mut self.cursors[at])
    }

    /// The group's cursor, made if it has none yet.
    pub(crate) fn cursor_or_new(&mut self, group: u16) -> &mut Cursor {
        let at = self.cursor_place(group);
        &mut self.cursors[at]
    }

    /// The place of the group's cursor, made if it has none yet.
    pub(crate) fn cursor_place(&mut self, group: u16) -> usize {
        match self.cursors.binary_search_by_key(&group, |cursor| cursor.group) {
            Ok(at) => at,
            Err(at) => {
                if self.cursors.capacity() == 0 {
                    self.cursors.reserve_exact(1);
                }
                self.cursors.insert(at, Cursor::new(group));
                at
            }
        }
    }

    /// The place of the first message that the group was never handed.
    pub(crate) fn fresh_from(&self, group: u16) -> usize {
        let next = self.cursor(group).map_or(0, |cursor| cursor.next);
        self.lower_bound(next.max(self.floor))
    }

    /// Messages that the group could be handed now.
    pub(crate) fn available(&self, group: u16) -> u64 {
        let returned = self.cursor(group).map_or(0, |cursor| cursor.returned.len());
        (returned + self.ring.len() - self.fresh_from(group)) as u64
    }

    /// The first of them.
    pub(crate) fn head(&self, group: u16) -> Option<u64> {
        if let Some(cursor) = self.cursor(group)
            && let Some((&sequence, _)) = cursor.returned.first_key_value()
        {
            return Some(sequence);
        }
        self.ring.get(self.fresh_from(group)).map(|slot| slot.sequence)
    }

    /// Messages that the group has not consumed, leased ones included.
    pub(crate) fn pending(&self, group: u16) -> u64 {
        self.available(group) + self.cursor(group).map_or(0, |cursor| u64::from(cursor.leased))
    }

    /// The place of the oldest counted message.
    pub(crate) fn oldest(&mut self, groups: u16) -> Option<usize> {
        let from = self.lower_bound(self.oldest_hint);
        let found = (from..self.ring.len()).find(|&at| self.ring[at].is_counted(groups));
        self.oldest_hint = match found {
            Some(at) => self.ring[at].sequence,
            None => self.ring.back().map_or(0, |slot| slot.sequence + 1),
        };
        found
    }

    /// The place of the counted message that was born first.
    pub(crate) fn eldest(&mut self, groups: u16) -> Option<usize> {
        if !self.bent {
            return self.oldest(groups);
        }
        let counted = (0..self.ring.len()).filter(|&at| self.ring[at].is_counted(groups));
        counted.min_by_key(|&at| self.ring[at].born)
    }

    /// Messages may stand behind younger ones.
    pub(crate) const fn is_bent(&self) -> bool {
        self.bent
    }

    /// Looks whether messages stand behind younger ones.
    pub(crate) fn look_at_births(&mut self) {
        self.bent = !self.ring.iter().is_sorted_by_key(|slot| slot.born);
    }

    /// A message counts that stands in front of what did, or that was spent.
    pub(crate) fn revive(&mut self, sequence: u64) {
        self.oldest_hint = self.oldest_hint.min(sequence);
    }

    /// Makes room for `more` slots, growing by a quarter: the spare room is part of what a
    /// message costs.
    pub(crate) fn reserve(&mut self, more: usize) {
        let (len, capacity) = (self.ring.len(), self.ring.capacity());
        if len + more > capacity {
            let target = if capacity == 0 { more } else { (len + more).max(capacity + capacity / 4 + 4) };
            self.ring.reserve_exact(target - len);
        }
    }

    /// Lets dead slots go: at the front at once, in the middle once they outnumber the live.
    pub(crate) fn sweep(&mut self) {
        while self.dead > 0 && self.ring.front().is_some_and(Slot::is_dead) {
            self.ring.pop_front();
            self.dead -= 1;
        }
        if self.dead as usize > self.ring.len() / 2 + 16 {
            self.bury();
        }
        if self.ring.capacity() > 256 && self.ring.len() < self.ring.capacity() / 8 {
            self.ring.shrink_to(self.ring.len() * 2);
        }
    }

    /// Lets all dead slots go. Wanted at once where they are not known to lie below every group's fresh messages.
    pub(crate) fn bury(&mut self) {
        self.ring.retain(|slot| !slot.is_dead());
        self.dead = 0;
    }

    /// Puts a group where it stood among messages that were just adopted, `count` in a row from the sequence `first` on.
    /// Without a position it has consumed none of them.
    pub(crate) fn place_group(&mut self, group: u16, first: u64, count: u64, position: Option<&ParcelGroup>) {
        let (fresh_from, returned) =
            position.map_or((0, &[][..]), |position| (u64::from(position.fresh_from), &position.returned[..]));
        let next = self.cursor(group).map_or(0, |cursor| cursor.next);
        // From its first fresh message on, everything is fresh: so is what stands behind the adopted ones, if these are.
        let is_first_here = next.max(self.floor) <= first;
        if is_first_here && fresh_from == 0 {
            return;
        }
        let cursor = self.cursor_or_new(group);
        if is_first_here {
            cursor.next = first + fresh_from;
        } else {
            cursor.next = cursor.next.max(first + count);
            cursor.returned.extend((first + fresh_from..first + count).map(|sequence| (sequence, 0)));
        }
        let came_back = returned.iter().map(|back| (first + u64::from(back.message), back.attempts));
        cursor.returned.extend(came_back);
    }

    /// Gives a newborn group its cursor where the usual one (everything from the floor on) would
    /// be wrong: spent and dead slots are not its, and ones that came back lie below the floor.
    /// `groups` counts the newborn.
    pub(crate) fn adopt(&mut self, group: u16, groups: u16) {
        let earlier = groups - 1;
        let restored = self.oldest(earlier).is_some_and(|at| self.ring[at].sequence < self.floor);
        if self.spent == 0 && self.dead == 0 && !restored {
            return;
        }
        let next = self.ring.back().map_or(0, |slot| slot.sequence + 1);
        let mut returned = BTreeMap::new();
        for slot in self.ring.iter_mut().filter(|slot| !slot.is_dead()) {
            if slot.is_spent(earlier) {
                slot.consumed += 1;
            } else {
                returned.insert(slot.sequence, 0);
            }
        }
        let cursor = self.cursor_or_new(group);
        (cursor.next, cursor.returned) = (next, returned);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_32_bytes() {
        assert_eq!(size_of::<Slot>(), 32);
    }

    #[test]
    fn a_message_may_be_older_than_the_clock() {
        let born = Born::ago(5, 600);
        assert_eq!((born.age_ms(5), born.age_ms(6)), (600, 601));
        assert_eq!((born.plus(601), born.plus(600), born.plus(10)), (6, 5, 0));
        assert_eq!(Born::ago(7, 0), Born::at(7));
        assert_eq!(
            (Born::ago(0, u64::MAX).age_ms(0), Born::at(u64::MAX).plus(u64::MAX)),
            (i64::MAX as u64, i64::MAX as u64)
        );
    }

    #[test]
    fn a_message_is_found_whether_sequences_are_in_a_row_or_not() {
        for step in [1, 3, 7] {
            let mut partition = Partition::new("p");
            for n in 0..50 {
                partition.ring.push_back(Slot {
                    sequence: 10 + n * step,
                    born: Born::at(0),
                    span: Span::EMPTY,
                    consumed: 0,
                    pins: 0,
                });
            }
            for sequence in 0..500 {
                let expected = partition.ring.iter().position(|slot| slot.sequence >= sequence).unwrap_or(50);
                assert_eq!(partition.lower_bound(sequence), expected);
            }
        }
    }
}
