//! A queue: what it always has ([`Queue`], small, because request/reply makes millions of empty
//! ones) and what it has while it holds something ([`Contents`], boxed, gone when it is drained).

use std::collections::BTreeSet;

use hashbrown::HashTable;

use crate::Millis;
use crate::payload::Chunks;
use crate::slab::NONE;
use crate::types::{Drops, Limits, QUEUE_MODE};

pub(crate) use crate::partition::{List, Partition};

/// Up to so many partition places, a name is looked for one by one.
const UNINDEXED_PARTITIONS: usize = 4;

/// In place of a time: an `Option` would cost every queue eight bytes.
const NOT_IDLE: Millis = Millis::MAX;

pub(crate) struct Queue {
    name: Box<str>,
    /// Its tenant's record: [`NONE`] is the default tenant, which has none.
    pub(crate) tenant: u32,
    pub(crate) contents: Option<Box<Contents>>,
    /// The options in force, if the queue is declared.
    pub(crate) declared: Option<Box<Limits>>,
    drops: Option<Box<Drops>>,
    pub(crate) groups: Vec<Option<Group>>,
    pub(crate) group_count: u16,
    /// Pops parked on it.
    pub(crate) parked: u32,
    pub(crate) group_timer: u32,
    /// Since when it has been idle, or [`NOT_IDLE`], and then the links mean nothing.
    idle_since_ms: Millis,
    /// Among all idle queues.
    pub(crate) idle: Links,
    /// Among its tenant's.
    pub(crate) idle_of_tenant: Links,
}

/// The neighbours in a list of queues.
#[derive(Copy, Clone)]
pub(crate) struct Links {
    pub(crate) prev: u32,
    pub(crate) next: u32,
}

impl Links {
    const NOWHERE: Self = Self { prev: NONE, next: NONE };
}

/// A consumer group: one cursor over all partitions, kept per partition.
pub(crate) struct Group {
    /// Empty in queue mode: no allocation.
    name: Box<str>,
    /// Tells it from another group that had this slot before.
    pub(crate) uid: u32,
    pub(crate) last_pop_ms: Millis,
    pub(crate) skipped: u64,
    /// Pops parked on any partition.
    pub(crate) waiters: List,
    /// Pops parked on any partition or one.
    pub(crate) parked: u32,
    /// Partitions with something available, by the sequence of it. Kept from the first pop of any
    /// partition that met two, until the queue is drained.
    #[expect(clippy::box_collection, reason = "two words less in each of millions of idle groups")]
    pub(crate) ready: Option<Box<BTreeSet<(u64, u32)>>>,
}

impl Group {
    pub(crate) fn new(name: &str, uid: u32, now_ms: Millis) -> Self {
        Self {
            name: if name == QUEUE_MODE { Box::default() } else { name.into() },
            uid,
            last_pop_ms: now_ms,
            skipped: 0,
            waiters: List::EMPTY,
            parked: 0,
            ready: None,
        }
    }

    pub(crate) fn name(&self) -> &str {
        if self.name.is_empty() { QUEUE_MODE } else { &self.name }
    }
}

impl Queue {
    pub(crate) fn new(tenant: u32, name: &str) -> Self {
        Self {
            name: name.into(),
            tenant,
            contents: None,
            declared: None,
            drops: None,
            groups: Vec::new(),
            group_count: 0,
            parked: 0,
            group_timer: NONE,
            idle_since_ms: NOT_IDLE,
            idle: Links::NOWHERE,
            idle_of_tenant: Links::NOWHERE,
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Since when it has been idle, if it is.
    pub(crate) fn idle_since_ms(&self) -> Option<Millis> {
        (self.idle_since_ms != NOT_IDLE).then_some(self.idle_since_ms)
    }

    /// Marks it idle since a time, or not idle.
    pub(crate) fn set_idle_since(&mut self, since_ms: Option<Millis>) {
        self.idle_since_ms = since_ms.unwrap_or(NOT_IDLE);
    }

    pub(crate) fn drops(&self) -> Drops {
        self.drops.as_deref().copied().unwrap_or_default()
    }

    pub(crate) fn drops_mut(&mut self) -> &mut Drops {
        self.drops.get_or_insert_default()
    }

    pub(crate) fn forget_drops(&mut self) {
        self.drops = None;
    }

    /// Counted messages and their payload bytes.
    pub(crate) fn load(&self) -> (u64, u64) {
        self.contents.as_ref().map_or((0, 0), |contents| (contents.depth, contents.bytes))
    }

    pub(crate) fn group(&self, group: u16) -> &Group {
        self.groups[usize::from(group)].as_ref().expect("a live group slot")
    }

    pub(crate) fn group_mut(&mut self, group: u16) -> &mut Group {
        self.groups[usize::from(group)].as_mut().expect("a live group slot")
    }

    pub(crate) fn find_group(&self, name: &str) -> Option<u16> {
        let found = self.groups.iter().position(|group| group.as_ref().is_some_and(|g| g.name() == name))?;
        Some(found as u16)
    }

    /// Puts a group into a free slot.
    pub(crate) fn insert_group(&mut self, group: Group) -> u16 {
        self.group_count += 1;
        if let Some(free) = self.groups.iter().position(Option::is_none) {
            self.groups[free] = Some(group);
            return free as u16;
        }
        if self.groups.capacity() == 0 {
            self.groups.reserve_exact(1);
        }
        self.groups.push(Some(group));
        (self.groups.len() - 1) as u16
    }

    /// The slots of the groups there are.
    pub(crate) fn group_slots(&self) -> impl Iterator<Item = u16> + use<'_> {
        self.groups.iter().enumerate().filter(|(_, group)| group.is_some()).map(|(slot, _)| slot as u16)
    }

    pub(crate) fn contents(&self) -> &Contents {
        self.contents.as_ref().expect("a queue that holds something")
    }

    pub(crate) fn contents_mut(&mut self) -> &mut Contents {
        self.contents.as_mut().expect("a queue that holds something")
    }
}

pub(crate) struct Contents {
    partitions: Vec<Option<Partition>>,
    free: Vec<u32>,
    pub(crate) count: u32,
    /// Names of partitions, once there are more places than are looked through one by one.
    index: HashTable<u32>,
    indexed: bool,
    /// A place where a partition was lately: found at once when there is only one.
    lately: u32,
    pub(crate) chunks: Chunks,
    pub(crate) depth: u64,
    pub(crate) bytes: u64,
    /// Groups that keep a ready set.
    pub(crate) ready_groups: u32,
    /// Partitions by their oldest counted message. Kept from the first drop that looked beyond
    /// one partition.
    pub(crate) by_age: Option<BTreeSet<(u64, u32)>>,
}

impl Contents {
    pub(crate) const fn new() -> Self {
        Self {
            partitions: Vec::new(),
            free: Vec::new(),
            count: 0,
            index: HashTable::new(),
            indexed: false,
            lately: 0,
            chunks: Chunks::new(),
            depth: 0,
            bytes: 0,
            ready_groups: 0,
            by_age: None,
        }
    }

    pub(crate) fn partition(&self, place: u32) -> &Partition {
        self.partitions[place as usize].as_ref().expect("a live partition place")
    }

    pub(crate) fn partition_mut(&mut self, place: u32) -> &mut Partition {
        self.partitions[place as usize].as_mut().expect("a live partition place")
    }

    pub(crate) fn get(&self, place: u32) -> Option<&Partition> {
        self.partitions.get(place as usize)?.as_ref()
    }

    /// A partition and the chunks its payloads are in.
    pub(crate) fn split(&mut self, place: u32) -> (&mut Partition, &mut Chunks) {
        let partition = self.partitions[place as usize].as_mut().expect("a live partition place");
        (partition, &mut self.chunks)
    }

    /// The places of the partitions there are.
    pub(crate) fn places(&self) -> impl Iterator<Item = u32> + use<'_> {
        self.partitions.iter().enumerate().filter(|(_, partition)| partition.is_some()).map(|(place, _)| place as u32)
    }

    pub(crate) const fn place_limit(&self) -> u32 {
        self.partitions.len() as u32
    }

    /// The only partition, when there is only one.
    pub(crate) fn only(&mut self) -> Option<u32> {
        if self.count != 1 {
            return None;
        }
        if self.get(self.lately).is_none() {
            let place = self.places().next().expect("there is one");
            self.lately = place;
        }
        Some(self.lately)
    }

    pub(crate) fn find(&self, hash: impl Fn(&str) -> u64, name: &str) -> Option<u32> {
        if self.indexed {
            return self.index.find(hash(name), |&place| self.partition(place).name() == name).copied();
        }
        self.places().find(|&place| self.partition(place).name() == name)
    }

    pub(crate) fn insert(&mut self, hash: impl Fn(&str) -> u64, partition: Partition) -> u32 {
        self.count += 1;
        let place = match self.free.pop() {
            Some(place) => {
                self.partitions[place as usize] = Some(partition);
                place
            }
            None => {
                if self.partitions.capacity() == 0 {
                    self.partitions.reserve_exact(1);
                }
                self.partitions.push(Some(partition));
                (self.partitions.len() - 1) as u32
            }
        };
        self.lately = place;
        if self.indexed {
            self.enter(&hash, place);
        } else if self.partitions.len() > UNINDEXED_PARTITIONS {
            self.indexed = true;
            for place in 0..self.place_limit() {
                if self.get(place).is_some() {
                    self.enter(&hash, place);
                }
            }
        }
        place
    }

    fn enter(&mut self, hash: &impl Fn(&str) -> u64, place: u32) {
        let partitions = &self.partitions;
        let of = |place: &u32| hash(partitions[*place as usize].as_ref().expect("an indexed partition").name());
        self.index.insert_unique(of(&place), place, of);
    }

    pub(crate) fn remove(&mut self, hash: impl Fn(&str) -> u64, place: u32) -> Partition {
        if self.indexed {
            let hash = hash(self.partition(place).name());
            self.index.find_entry(hash, |&other| other == place).expect("an indexed partition").remove();
        }
        self.count -= 1;
        self.free.push(place);
        self.partitions[place as usize].take().expect("a live partition place")
    }

    /// Copies every live payload together into fresh chunks.
    pub(crate) fn compact(&mut self) {
        let mut fresh = Chunks::new();
        fresh.expect(self.chunks.alive_bytes());
        for partition in self.partitions.iter_mut().flatten() {
            for slot in partition.ring.iter_mut().filter(|slot| !slot.is_dead()) {
                slot.span = fresh.insert(self.chunks.get(slot.span), self.chunks.reply_to(slot.span));
            }
        }
        self.chunks = fresh;
    }
}
