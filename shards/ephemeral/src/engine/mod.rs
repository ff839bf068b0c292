//! The engine: every queue of one shard, and the records that span queues.
//!
//! A file per kind of call: [`push`] (with [`trim`]), [`pop`] (with the serving of parked pops),
//! [`claims`] (settle, give back, ack), [`inboxes`] (one-time inboxes of requests), [`admin`]
//! (configure, reset, delete), [`take_out`] and [`put_in`] (a partition moves to another engine),
//! [`tenants`] (what each may hold), [`time`] (what happens by itself), [`read`] (depth, listing,
//! statistics). This file makes and unmakes the records they share and keeps the totals right;
//! [`idle`] keeps the lists of idle queues.

mod admin;
#[cfg(any(test, feature = "invariants"))]
mod check;
mod claims;
mod groups;
mod idle;
mod inboxes;
mod messages;
mod pop;
mod push;
mod put_in;
mod read;
mod serve;
mod take_out;
mod tenants;
mod time;
mod trim;

#[cfg(test)]
mod tests;

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

use self::inboxes::Inboxes;
pub use self::put_in::{PutInError, PutInLimits};
pub use self::take_out::{PartitionPlace, PartitionRow, TakenOut, UnparkedPop};
use crate::Millis;
use crate::delivery::{Handed, Taken};
use crate::leases::Leases;
use crate::partition::{List, Partition};
use crate::queue::{Contents, Queue};
use crate::sequence::Sequences;
use crate::slab::{NONE, Slab};
use crate::tenants::Tenants;
use crate::types::{Drops, EngineConfig, Limits, TenantId};
use crate::waiters::Waiters;
use crate::wheel::Wheel;

/// What a message adds to [`Engine::memory_bytes`] beside its payload.
pub const MESSAGE_BYTES: u64 = 48;
/// What a queue adds.
pub const QUEUE_BYTES: u64 = 256;
/// What a partition that holds messages or parked pops adds.
pub const PARTITION_BYTES: u64 = 256;
/// What a consumer group adds.
pub const GROUP_BYTES: u64 = 128;
/// What a leased message adds.
pub const LEASE_BYTES: u64 = 64;
/// What a parked pop adds.
pub const PARKED_BYTES: u64 = 128;
/// What an open inbox adds beside its name, where the requester chose that.
pub const INBOX_BYTES: u64 = 128;

/// Claims kept for reuse: more are in flight only while as many answers are being written.
const SPARE_CLAIMS: usize = 1024;

/// What a timer of the state wheel is about. Timers of records that go are cancelled with them.
#[derive(Copy, Clone)]
enum StateTimer {
    /// The oldest lease of a cursor runs out.
    Lease { queue: u32, partition: u32, group: u16 },
    /// The oldest message of a partition reaches its TTL.
    Ttl { queue: u32, partition: u32 },
    /// A group of the queue may have gone unpolled for too long.
    Groups { queue: u32 },
    /// A parked pop that held others back went without a sink at hand.
    Serve { queue: u32 },
}

/// What a timer of the wait wheel is about, by its index.
#[derive(Copy, Clone)]
enum WaitTimer {
    /// A parked pop's window or time ends.
    Pop(u32),
    /// An inbox's time ends.
    Inbox(u32),
}

/// The queues of one shard. See the crate's page.
pub struct Engine {
    config: EngineConfig,
    implicit: Limits,
    hasher: DefaultHashBuilder,
    names: HashTable<u32>,
    queues: Slab<Queue>,
    tenants: Tenants,
    leases: Leases,
    waiters: Waiters,
    inboxes: Inboxes,
    state_timers: Wheel<StateTimer>,
    wait_timers: Wheel<WaitTimer>,
    /// Drained implicit queues that nobody waits on, longest idle first.
    idle: List,
    now_ms: Millis,
    sequences: Sequences,
    group_uids: u32,
    memory_limit: u64,
    queue_limit: u64,
    memory: u64,
    totals: Totals,
    /// Scratch of the delivery being made.
    taken: Vec<Taken>,
    #[expect(clippy::vec_box, reason = "claims are boxed so that they cross a lane as one word")]
    spare_claims: Vec<Box<Handed>>,
}

/// Counters of [`Stats`](crate::Stats) that are kept, not computed.
#[derive(Default)]
struct Totals {
    pushed: u64,
    popped: u64,
    acked: u64,
    dropped: Drops,
    late_replies: u64,
    messages: u64,
    payload_bytes: u64,
    declared: u64,
    partitions: u64,
    groups: u64,
}

impl Engine {
    /// An engine without queues, memory and queues unlimited.
    pub fn new(config: EngineConfig) -> Self {
        let hasher = DefaultHashBuilder::default();
        Self {
            config,
            implicit: Limits::implicit(&config),
            names: HashTable::new(),
            queues: Slab::new(),
            tenants: Tenants::new(hasher.clone()),
            leases: Leases::new(hasher.clone()),
            hasher,
            waiters: Waiters::new(),
            inboxes: Inboxes::new(),
            state_timers: Wheel::new(),
            wait_timers: Wheel::new(),
            idle: List::EMPTY,
            now_ms: 0,
            sequences: Sequences::new(),
            group_uids: 0,
            memory_limit: u64::MAX,
            queue_limit: u64::MAX,
            memory: 0,
            totals: Totals::default(),
            taken: Vec::new(),
            spare_claims: Vec::new(),
        }
    }

    /// Sets what [`Engine::memory_bytes`] may reach by pushes: the shard's share of the node's
    /// budget, which the shard raises in chunks.
    pub const fn set_memory_limit(&mut self, bytes: u64) {
        self.memory_limit = bytes;
    }

    /// What the engine holds: payload bytes (autoAck messages whose answer is not written yet
    /// included) and the constants of this crate for messages, queues, partitions, groups, leases,
    /// parked pops and inboxes.
    pub const fn memory_bytes(&self) -> u64 {
        self.memory
    }

    /// Sets how many queues there may be.
    pub const fn set_queue_limit(&mut self, queues: u64) {
        self.queue_limit = queues;
    }

    /// How many queues there are.
    pub const fn queues(&self) -> u64 {
        self.queues.len() as u64
    }

    fn note_time(&mut self, now_ms: Millis) {
        debug_assert!(now_ms >= self.now_ms, "the caller's clock went back");
        self.now_ms = self.now_ms.max(now_ms);
    }

    fn limits(&self, queue: u32) -> &Limits {
        self.queues[queue].declared.as_deref().unwrap_or(&self.implicit)
    }

    // Names.

    fn queue_hash(&self, tenant: TenantId, name: &str) -> u64 {
        self.hasher.hash_one((tenant.0, name))
    }

    /// A hash of partition names that borrows nothing.
    fn partition_hash(&self) -> impl Fn(&str) -> u64 + use<> {
        let hasher = self.hasher.clone();
        move |name| hasher.hash_one(name)
    }

    fn find(&self, tenant: TenantId, name: &str) -> Option<u32> {
        let hash = self.queue_hash(tenant, name);
        let same = |&index: &u32| {
            let queue = &self.queues[index];
            queue.name() == name && self.tenants.id(queue.tenant) == tenant
        };
        self.names.find(hash, same).copied()
    }

    fn find_partition(&self, queue: u32, name: &str) -> Option<u32> {
        self.queues[queue].contents.as_ref()?.find(self.partition_hash(), name)
    }

    // Queues.

    fn create_queue(&mut self, tenant: TenantId, name: &str) -> u32 {
        let index = self.queues.insert(Queue::new(self.tenants.add_queue(tenant), name));
        let (queues, tenants, hasher) = (&self.queues, &self.tenants, &self.hasher);
        let hash = |index: &u32| hash_of(hasher, tenants, &queues[*index]);
        self.names.insert_unique(hash(&index), index, hash);
        self.memory += QUEUE_BYTES;
        index
    }

    /// Unmakes a queue that holds nothing and that nobody waits on.
    fn remove_queue(&mut self, queue: u32) {
        self.leave_idle(queue);
        let record = &self.queues[queue];
        debug_assert!(record.contents.is_none() && record.parked == 0, "a queue in use");
        let hash = hash_of(&self.hasher, &self.tenants, record);
        self.names.find_entry(hash, |&other| other == queue).expect("an indexed queue").remove();
        let record = self.queues.remove(queue);
        self.tenants.remove_queue(record.tenant);
        if record.group_timer != NONE {
            self.state_timers.cancel(record.group_timer);
        }
        let groups = u64::from(record.group_count);
        self.totals.groups -= groups;
        self.totals.declared -= u64::from(record.declared.is_some());
        self.memory -= QUEUE_BYTES + groups * GROUP_BYTES;
        // A burst of queues must not leave its index behind.
        if self.names.capacity() > 1024 && self.names.len() < self.names.capacity() / 8 {
            let (queues, tenants, hasher) = (&self.queues, &self.tenants, &self.hasher);
            let to = self.names.len() * 2;
            self.names.shrink_to(to, |index| hash_of(hasher, tenants, &queues[*index]));
        }
    }

    // Partitions.

    fn create_partition(&mut self, queue: u32, name: &str) -> u32 {
        let hash = self.partition_hash();
        self.totals.partitions += 1;
        self.memory += PARTITION_BYTES;
        let contents = self.queues[queue].contents.get_or_insert_with(|| Box::new(Contents::new()));
        contents.insert(hash, Partition::new(name))
    }

    /// Lets go what a partition needs no more, and the partition itself when it holds neither
    /// messages nor parked pops.
    fn tidy(&mut self, queue: u32, place: u32) {
        let record = &mut self.queues[queue];
        let Some(contents) = record.contents.as_mut() else { return };
        if contents.get(place).is_none() {
            return;
        }
        let partition = contents.partition_mut(place);
        partition.sweep();
        if !partition.ring.is_empty() || partition.waiting > 0 {
            if contents.chunks.is_sparse() {
                contents.compact();
            }
            return;
        }
        let hash = self.partition_hash();
        let record = &mut self.queues[queue];
        let contents = record.contents_mut();
        let partition = contents.remove(hash, place);
        if let (Some(key), Some(by_age)) = (partition.age_key, contents.by_age.as_mut()) {
            by_age.remove(&(key, place));
        }
        let drained = contents.count == 0;
        if contents.chunks.is_sparse() {
            contents.compact();
        }
        for cursor in &partition.cursors {
            debug_assert!(cursor.leased == 0 && cursor.returned.is_empty());
            if cursor.lease_timer != NONE {
                self.state_timers.cancel(cursor.lease_timer);
            }
            if let Some(key) = cursor.ready_key
                && let Some(ready) = record.group_mut(cursor.group).ready.as_mut()
            {
                ready.remove(&(key, place));
            }
        }
        if drained {
            record.contents = None;
            for group in record.groups.iter_mut().flatten() {
                group.ready = None;
            }
        }
        if partition.ttl_timer != NONE {
            self.state_timers.cancel(partition.ttl_timer);
        }
        self.totals.partitions -= 1;
        self.memory -= PARTITION_BYTES;
    }
}

/// As [`Engine::queue_hash`], of a queue that is there.
fn hash_of(hasher: &DefaultHashBuilder, tenants: &Tenants, queue: &Queue) -> u64 {
    hasher.hash_one((tenants.id(queue.tenant).0, queue.name()))
}
