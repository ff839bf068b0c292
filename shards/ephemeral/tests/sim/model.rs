//! The tiny obvious model: plain vectors, every rule written down as the specification says it.
//! It predicts what a call answers and checks what the engine hands to parked pops.

use queen_ephemeral::{
    AckOutcome, AckStatus, ConfigureError, EngineConfig, GROUP_BYTES, INBOX_BYTES, InboxId, LEASE_BYTES, Limits,
    MESSAGE_BYTES, PARKED_BYTES, PARTITION_BYTES, Policy, PopError, PushError, QUEUE_BYTES, QueueOptions, Stats,
    TenantLimit, TenantUsage,
};

/// One message of a delivery: partition, sequence, attempts, payload, the inbox of a request.
pub type Got = (usize, u64, u32, Vec<u8>, Option<String>);

/// What a queue's memory holds beside a name: its length.
const NAME_LENGTH_BYTES: u64 = 2;

#[derive(Clone)]
pub struct Message {
    pub sequence: u64,
    pub partition: usize,
    pub born_ms: i64,
    pub payload: Vec<u8>,
    pub reply_to: Option<String>,
    /// Groups that consumed it.
    pub done: Vec<u64>,
    /// Groups it came back to, with the attempts so far.
    pub back: Vec<(u64, u32)>,
    /// Leases: group, attempts, when.
    pub leases: Vec<(u64, u32, u64)>,
    /// AutoAck deliveries whose answer is not written.
    pub pins: u32,
}

pub struct Group {
    pub name: usize,
    pub uid: u64,
    pub last_pop_ms: u64,
    pub skipped: u64,
}

pub struct Queue {
    pub key: (usize, usize),
    pub declared: Option<Limits>,
    pub groups: Vec<Group>,
    pub messages: Vec<Message>,
    pub idle_since_ms: Option<u64>,
}

pub struct Waiter {
    pub id: u64,
    pub key: (usize, usize),
    pub group: u64,
    pub partition: Option<usize>,
    pub batch: usize,
    pub auto_ack: bool,
    pub deadline_ms: u64,
    pub window_end_ms: Option<u64>,
}

/// A request that waits for its reply.
pub struct Inbox {
    pub id: InboxId,
    pub tenant: usize,
    /// The name, where the requester chose it.
    pub name: Option<String>,
    pub waiter: u64,
    pub deadline_ms: u64,
}

/// What a claim handed out.
pub struct Handed {
    pub key: (usize, usize),
    pub group: u64,
    pub auto_ack: bool,
    pub items: Vec<(u64, u32)>,
}

pub struct Model {
    pub config: EngineConfig,
    pub now_ms: u64,
    pub queues: Vec<Queue>,
    /// In the order of their arrival.
    pub waiters: Vec<Waiter>,
    pub inboxes: Vec<Inbox>,
    pub totals: Stats,
    pub memory_limit: u64,
    pub queue_limit: u64,
    /// By tenant; the first is the default tenant, which has none.
    pub tenant_limits: [Option<TenantLimit>; TENANTS],
    sequence: u64,
    /// The lowest that stands in front of others; they go down from 0, round to the upper end.
    lowest: u64,
    uids: u64,
}

impl Queue {
    pub fn spent(&self, message: &Message) -> bool {
        !self.groups.is_empty() && self.groups.iter().all(|group| message.done.contains(&group.uid))
    }

    pub fn counted(&self) -> impl Iterator<Item = &Message> {
        self.messages.iter().filter(|message| !self.spent(message))
    }

    /// What the group could be handed, oldest first.
    pub fn available(&self, group: u64, partition: Option<usize>) -> Vec<u64> {
        let free = |message: &&Message| {
            partition.is_none_or(|wanted| wanted == message.partition)
                && !message.done.contains(&group)
                && message.leases.iter().all(|lease| lease.0 != group)
        };
        self.counted().filter(free).map(|message| message.sequence).collect()
    }

    fn message(&mut self, sequence: u64) -> Option<&mut Message> {
        self.messages.iter_mut().find(|message| message.sequence == sequence)
    }

    /// Frees what everybody has consumed and no answer holds.
    fn sweep(&mut self) {
        let groups: Vec<u64> = self.groups.iter().map(|group| group.uid).collect();
        self.messages.retain(|message| {
            message.pins > 0 || groups.is_empty() || !groups.iter().all(|uid| message.done.contains(uid))
        });
    }
}

impl Model {
    pub fn new(config: EngineConfig) -> Self {
        Self {
            config,
            now_ms: 0,
            queues: Vec::new(),
            waiters: Vec::new(),
            inboxes: Vec::new(),
            totals: Stats::default(),
            memory_limit: u64::MAX,
            queue_limit: u64::MAX,
            tenant_limits: [None; TENANTS],
            sequence: 0,
            lowest: 0,
            uids: 0,
        }
    }

    pub fn find(&self, key: (usize, usize)) -> Option<usize> {
        self.queues.iter().position(|queue| queue.key == key)
    }

    pub fn limits(&self, queue: usize) -> Limits {
        self.queues[queue].declared.unwrap_or(Limits::implicit(&self.config))
    }

    fn waits(&self, key: (usize, usize)) -> bool {
        self.waiters.iter().any(|waiter| waiter.key == key)
    }

    /// Partitions that hold messages or parked pops.
    pub fn partitions(&self, queue: usize) -> Vec<usize> {
        let key = self.queues[queue].key;
        let mut names: Vec<usize> = self.queues[queue].messages.iter().map(|message| message.partition).collect();
        names.extend(self.waiters.iter().filter(|waiter| waiter.key == key).filter_map(|waiter| waiter.partition));
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Every statistic, computed from what is there.
    pub fn stats(&self) -> Stats {
        let mut stats = self.totals;
        stats.queues = self.queues.len() as u64;
        stats.parked = self.waiters.len() as u64;
        stats.inboxes = self.inboxes.len() as u64;
        stats.memory_bytes += stats.inboxes * INBOX_BYTES;
        for name in self.inboxes.iter().filter_map(|inbox| inbox.name.as_ref()) {
            stats.memory_bytes += name.len() as u64;
        }
        for (at, queue) in self.queues.iter().enumerate() {
            stats.messages += queue.counted().count() as u64;
            stats.payload_bytes += queue.counted().map(|message| message.payload.len() as u64).sum::<u64>();
            stats.declared += u64::from(queue.declared.is_some());
            stats.partitions += self.partitions(at).len() as u64;
            stats.groups += queue.groups.len() as u64;
            for message in &queue.messages {
                stats.leases += message.leases.len() as u64;
                stats.memory_bytes += MESSAGE_BYTES + message.payload.len() as u64 + named(message.reply_to.as_deref());
            }
        }
        stats.memory_bytes += stats.queues * QUEUE_BYTES
            + stats.parked * PARKED_BYTES
            + stats.partitions * PARTITION_BYTES
            + stats.groups * GROUP_BYTES
            + stats.leases * LEASE_BYTES;
        stats
    }

    /// Collects idle queues until there is room. `exists` asks the engine which of several
    /// queues that have been idle equally long it took: those go together.
    pub fn make_room(
        &mut self,
        bytes: u64,
        queues: u64,
        keep: (usize, usize),
        exists: &dyn Fn((usize, usize)) -> bool,
    ) -> bool {
        loop {
            let stats = self.stats();
            let memory_fits = bytes == 0 || stats.memory_bytes + bytes <= self.memory_limit;
            if memory_fits && (queues == 0 || stats.queues + queues <= self.queue_limit) {
                return true;
            }
            if !self.collect_idle(&|queue| queue.key != keep, exists) {
                return false;
            }
        }
    }

    /// Collects idle queues of a tenant until it may have one more.
    fn make_tenant_room(&mut self, tenant: usize, exists: &dyn Fn((usize, usize)) -> bool) -> bool {
        while self.tenant_limits[tenant].is_some_and(|limit| self.usage(tenant).queues >= limit.queues) {
            if !self.collect_idle(&|queue| queue.key.0 == tenant, exists) {
                return false;
            }
        }
        true
    }

    /// Collects the queues that have been idle longest of those asked for, if there are any.
    fn collect_idle(&mut self, among: &dyn Fn(&Queue) -> bool, exists: &dyn Fn((usize, usize)) -> bool) -> bool {
        let idle = self.queues.iter().filter(|queue| among(queue)).filter_map(|queue| queue.idle_since_ms);
        let Some(since_ms) = idle.min() else { return false };
        let before = self.queues.len();
        self.queues.retain(|queue| !among(queue) || queue.idle_since_ms != Some(since_ms) || exists(queue.key));
        assert!(self.queues.len() < before, "the engine collects the longest idle queue");
        true
    }

    /// What a tenant holds.
    pub fn usage(&self, tenant: usize) -> TenantUsage {
        let own = |queue: &&Queue| queue.key.0 == tenant;
        let counted = self.queues.iter().filter(own).flat_map(Queue::counted);
        TenantUsage {
            bytes: counted.map(|message| message.payload.len() as u64).sum(),
            queues: self.queues.iter().filter(own).count() as u64,
        }
    }

    pub fn create(&mut self, key: (usize, usize)) -> usize {
        self.queues.push(Queue { key, declared: None, groups: Vec::new(), messages: Vec::new(), idle_since_ms: None });
        self.queues.len() - 1
    }

    /// Keeps the idle times right: after every call, `used` for pushes and pops.
    pub fn note(&mut self, used: Option<(usize, usize)>) {
        for at in 0..self.queues.len() {
            let key = self.queues[at].key;
            let waits = self.waits(key);
            let now_ms = self.now_ms;
            let queue = &mut self.queues[at];
            let idle = queue.declared.is_none() && queue.messages.is_empty() && !waits;
            if !idle {
                queue.idle_since_ms = None;
            } else if queue.idle_since_ms.is_none() || used == Some(key) {
                queue.idle_since_ms = Some(now_ms);
            }
        }
    }

    /// Drops counted messages, for every group.
    fn drop_message(&mut self, queue: usize, sequence: u64) {
        let queue = &mut self.queues[queue];
        let at = queue.messages.iter().position(|message| message.sequence == sequence).expect("it is there");
        let message = queue.messages.remove(at);
        for group in &mut queue.groups {
            group.skipped += u64::from(!message.done.contains(&group.uid));
        }
    }

    pub fn load(&self, queue: usize) -> (u64, u64) {
        let queue = &self.queues[queue];
        (queue.counted().count() as u64, queue.counted().map(|message| message.payload.len() as u64).sum())
    }

    /// What a trim for so much more drops, sequences and payload bytes: of the partition first, oldest first.
    fn excess(&self, queue: usize, partition: Option<usize>, more: u64, bytes: u64) -> Vec<(u64, u64)> {
        let limits = self.limits(queue);
        let (mut depth, mut held) = self.load(queue);
        let mut excess = Vec::new();
        for own in [true, false] {
            for message in self.queues[queue].counted().filter(|m| (Some(m.partition) == partition) == own) {
                if depth + more <= limits.max_length && held + bytes <= limits.max_bytes {
                    return excess;
                }
                let len = message.payload.len() as u64;
                excess.push((message.sequence, len));
                (depth, held) = (depth - 1, held - len);
            }
        }
        excess
    }

    fn trim(&mut self, queue: usize, partition: Option<usize>, more: u64, bytes: u64) {
        for (sequence, _) in self.excess(queue, partition, more, bytes) {
            self.drop_message(queue, sequence);
            self.totals.dropped.bounds += 1;
        }
    }

    pub fn push(
        &mut self,
        key: (usize, usize),
        partition: usize,
        payloads: &[Vec<u8>],
        reply_to: Option<&str>,
        exists: &dyn Fn((usize, usize)) -> bool,
    ) -> Result<(), PushError> {
        if payloads.is_empty() {
            return Ok(());
        }
        let found = self.find(key);
        let limits = found.map_or(Limits::implicit(&self.config), |queue| self.limits(queue));
        if payloads.iter().any(|payload| payload.len() as u64 > limits.max_bytes) {
            return Err(PushError::MessageTooLarge);
        }
        let (depth, held) = found.map_or((0, 0), |queue| self.load(queue));
        let size = |payloads: &[Vec<u8>]| payloads.iter().map(|payload| payload.len() as u64).sum::<u64>();
        let mut kept = payloads;
        if limits.policy == Policy::DropOldest {
            while kept.len() as u64 > limits.max_length || size(kept) > limits.max_bytes {
                kept = &kept[1..];
            }
        } else if depth + kept.len() as u64 > limits.max_length || held + size(kept) > limits.max_bytes {
            return Err(PushError::QueueFull);
        }
        let partitions = found.map_or(Vec::new(), |queue| self.partitions(queue));
        let is_new = !partitions.contains(&partition);
        if is_new && partitions.len() as u32 >= self.config.max_partitions_per_queue {
            return Err(PushError::PartitionLimit);
        }
        if let Some(limit) = self.tenant_limits[key.0] {
            let trims = found.filter(|_| limits.policy == Policy::DropOldest);
            let excess = trims.map_or(Vec::new(), |at| self.excess(at, Some(partition), kept.len() as u64, size(kept)));
            let freed: u64 = excess.iter().map(|dropped| dropped.1).sum();
            if self.usage(key.0).bytes - freed + size(kept) > limit.bytes {
                return Err(PushError::TenantBytes);
            }
        }
        if found.is_none() && !self.make_tenant_room(key.0, exists) {
            return Err(PushError::TenantQueues);
        }
        if !self.make_room(0, u64::from(found.is_none()), key, exists) {
            return Err(PushError::QueueLimit);
        }
        let needed = size(kept)
            + kept.len() as u64 * (MESSAGE_BYTES + named(reply_to))
            + u64::from(found.is_none()) * QUEUE_BYTES
            + u64::from(is_new) * PARTITION_BYTES;
        if !self.make_room(needed, 0, key, exists) {
            return Err(PushError::NodeMemory);
        }
        let queue = self.find(key).unwrap_or_else(|| self.create(key));
        if limits.policy == Policy::DropOldest {
            self.trim(queue, Some(partition), kept.len() as u64, size(kept));
        }
        self.totals.dropped.bounds += (payloads.len() - kept.len()) as u64;
        self.totals.pushed += payloads.len() as u64;
        for payload in kept {
            let message = Message {
                sequence: self.sequences(1, false),
                partition,
                born_ms: self.now_ms as i64,
                payload: payload.clone(),
                reply_to: reply_to.map(str::to_owned),
                done: Vec::new(),
                back: Vec::new(),
                leases: Vec::new(),
                pins: 0,
            };
            self.queues[queue].messages.push(message);
        }
        Ok(())
    }

    /// The first of so many sequences in a row.
    pub fn sequences(&mut self, count: u64, in_front: bool) -> u64 {
        if in_front {
            self.lowest = self.lowest.wrapping_sub(count);
            return self.lowest;
        }
        self.sequence += count;
        self.sequence - count
    }

    /// The first of `payloads` is the reply of the inbox that is found; the others are late.
    pub fn reply(&mut self, payloads: u64, found: impl Fn(&Inbox) -> bool) -> Option<Inbox> {
        self.totals.pushed += payloads;
        let at = self.inboxes.iter().position(found).filter(|_| payloads > 0);
        let late = payloads - u64::from(at.is_some());
        self.totals.late_replies += late;
        self.totals.popped += u64::from(at.is_some());
        at.map(|at| self.inboxes.swap_remove(at))
    }

    /// The part of a pop before it takes or waits: checks, and makes what is not there. Returns
    /// the group.
    pub fn enter(
        &mut self,
        key: (usize, usize),
        group: usize,
        parks_on: Option<usize>,
        exists: &dyn Fn((usize, usize)) -> bool,
    ) -> Result<u64, PopError> {
        let found = self.find(key);
        let known = found.and_then(|queue| self.queues[queue].groups.iter().find(|known| known.name == group));
        let uid = known.map(|group| group.uid);
        let groups = found.map_or(0, |queue| self.queues[queue].groups.len());
        if uid.is_none() && groups as u32 >= self.config.max_groups_per_queue {
            return Err(PopError::GroupLimit);
        }
        if let Some(partition) = parks_on {
            let partitions = found.map_or(Vec::new(), |queue| self.partitions(queue));
            if !partitions.contains(&partition) && partitions.len() as u32 >= self.config.max_partitions_per_queue {
                return Err(PopError::PartitionLimit);
            }
        }
        if found.is_none() && !self.make_tenant_room(key.0, exists) {
            return Err(PopError::TenantQueues);
        }
        if found.is_none() && !self.make_room(0, 1, key, exists) {
            return Err(PopError::QueueLimit);
        }
        let queue = self.find(key).unwrap_or_else(|| self.create(key));
        let now_ms = self.now_ms;
        let uid = uid.unwrap_or_else(|| self.create_group(queue, group));
        let group = self.queues[queue].groups.iter_mut().find(|group| group.uid == uid).expect("it was just found");
        group.last_pop_ms = now_ms;
        Ok(uid)
    }

    pub fn create_group(&mut self, queue: usize, name: usize) -> u64 {
        self.uids += 1;
        let uid = self.uids;
        let record = &mut self.queues[queue];
        // A group starts at the oldest message still kept: spent ones are not.
        let spent: Vec<u64> =
            record.messages.iter().filter(|message| record.spent(message)).map(|message| message.sequence).collect();
        record.groups.push(Group { name, uid, last_pop_ms: self.now_ms, skipped: 0 });
        for message in record.messages.iter_mut().filter(|message| spent.contains(&message.sequence)) {
            message.done.push(uid);
        }
        uid
    }

    /// Takes a batch for a group, oldest first.
    pub fn take(
        &mut self,
        key: (usize, usize),
        group: u64,
        partition: Option<usize>,
        batch: usize,
        auto_ack: bool,
    ) -> Vec<Got> {
        let now_ms = self.now_ms;
        let at = self.find(key).expect("the queue is there");
        let queue = &mut self.queues[at];
        let sequences = queue.available(group, partition);
        let mut got = Vec::new();
        for sequence in sequences.into_iter().take(batch) {
            let message = queue.message(sequence).expect("it is available");
            let back = message.back.iter().position(|back| back.0 == group);
            let attempts = back.map_or(0, |at| message.back.swap_remove(at).1) + 1;
            if auto_ack {
                message.done.push(group);
                message.pins += 1;
            } else {
                message.leases.push((group, attempts, now_ms));
            }
            got.push((message.partition, sequence, attempts, message.payload.clone(), message.reply_to.clone()));
        }
        self.totals.popped += got.len() as u64;
        got
    }

    /// The waiters of a group that stand before nobody else for some partition with something.
    pub fn may_go(&self, waiter: usize) -> bool {
        let this = &self.waiters[waiter];
        let Some(queue) = self.find(this.key) else { return false };
        (0..PARTITIONS).any(|partition| {
            let first = self.waiters.iter().position(|other| {
                other.key == this.key
                    && other.group == this.group
                    && other.partition.is_none_or(|wanted| wanted == partition)
            });
            first == Some(waiter) && !self.queues[queue].available(this.group, Some(partition)).is_empty()
        })
    }

    pub fn available_for(&self, waiter: usize) -> usize {
        let waiter = &self.waiters[waiter];
        self.find(waiter.key).map_or(0, |queue| self.queues[queue].available(waiter.group, waiter.partition).len())
    }

    /// How many messages end the waiter's wait.
    pub fn enough_for(&self, waiter: usize) -> usize {
        let waiter = &self.waiters[waiter];
        let queue = self.find(waiter.key).expect("a waiter's queue is there");
        self.limits(queue).window.map_or(1, |window| waiter.batch.min(window.count as usize))
    }

    /// Takes a waiter out of the line.
    pub fn leave(&mut self, waiter: usize) -> Waiter {
        let waiter = self.waiters.remove(waiter);
        let queue = self.find(waiter.key).expect("a waiter's queue is there");
        let now_ms = self.now_ms;
        let group = self.queues[queue].groups.iter_mut().find(|group| group.uid == waiter.group);
        group.expect("a waiter's group is there").last_pop_ms = now_ms;
        waiter
    }

    /// After everything a call does: nobody is left waiting who should not be, and windows are
    /// open where they should be.
    pub fn rest(&mut self) {
        let mut opened = Vec::new();
        for at in 0..self.waiters.len() {
            let available = self.available_for(at);
            let queue = self.find(self.waiters[at].key).expect("a waiter's queue is there");
            if available == 0 {
                opened.push(None);
                continue;
            }
            let may_go = self.may_go(at);
            assert!(!may_go || available < self.enough_for(at), "waiter {} is left waiting", self.waiters[at].id);
            let waiter = &self.waiters[at];
            let window = self.limits(queue).window;
            opened.push(match (waiter.window_end_ms, window) {
                (None, Some(window)) if may_go => Some((self.now_ms + window.ms).min(waiter.deadline_ms)),
                (end_ms, _) => end_ms,
            });
        }
        for (waiter, end_ms) in self.waiters.iter_mut().zip(opened) {
            waiter.window_end_ms = end_ms;
        }
    }

    pub fn settle(&mut self, handed: &Handed) {
        if !handed.auto_ack {
            return;
        }
        let Some(queue) = self.find(handed.key) else { return };
        for &(sequence, _) in &handed.items {
            if let Some(message) = self.queues[queue].message(sequence) {
                message.pins -= 1;
            }
        }
        self.queues[queue].sweep();
    }

    pub fn give_back(&mut self, handed: &Handed) {
        let lives = self
            .find(handed.key)
            .filter(|&queue| self.queues[queue].groups.iter().any(|group| group.uid == handed.group));
        let Some(at) = lives else { return self.settle(handed) };
        let ttl_ms = self.limits(at).ttl_ms;
        let now_ms = self.now_ms;
        for &(sequence, attempts) in &handed.items {
            let queue = &mut self.queues[at];
            let Some(place) = queue.messages.iter().position(|message| message.sequence == sequence) else { continue };
            let spent = queue.spent(&queue.messages[place]);
            let message = &mut queue.messages[place];
            if handed.auto_ack {
                message.pins -= 1;
                if spent && ttl_ms.is_some_and(|ttl_ms| message.born_ms + ttl_ms as i64 <= now_ms as i64) {
                    self.totals.dropped.ttl += 1;
                    let group = queue.groups.iter_mut().find(|group| group.uid == handed.group);
                    group.expect("it lives").skipped += 1;
                } else {
                    message.done.retain(|&uid| uid != handed.group);
                    message.back.push((handed.group, attempts - 1));
                }
            } else if let Some(lease) = message.leases.iter().position(|l| l.0 == handed.group && l.1 == attempts) {
                message.leases.remove(lease);
                message.back.push((handed.group, attempts - 1));
            }
        }
        self.queues[at].sweep();
    }

    fn exhaust(&mut self, queue: usize, sequence: u64, group: u64) {
        self.totals.dropped.retry += 1;
        let queue = &mut self.queues[queue];
        queue.message(sequence).expect("it is leased").done.push(group);
        queue.groups.iter_mut().find(|known| known.uid == group).expect("it leased").skipped += 1;
        queue.sweep();
    }

    pub fn ack(
        &mut self,
        key: (usize, usize),
        group: usize,
        partition: usize,
        sequence: u64,
        attempts: u32,
        status: AckStatus,
    ) -> AckOutcome {
        let Some(at) = self.find(key) else { return AckOutcome::Unknown };
        let retry_limit = self.limits(at).retry_limit;
        let queue = &mut self.queues[at];
        let Some(uid) = queue.groups.iter().find(|known| known.name == group).map(|known| known.uid) else {
            return AckOutcome::Unknown;
        };
        let Some(message) = queue.message(sequence).filter(|message| message.partition == partition) else {
            return AckOutcome::Unknown;
        };
        let Some(lease) = message.leases.iter().position(|lease| lease.0 == uid && lease.1 == attempts) else {
            return AckOutcome::Unknown;
        };
        message.leases.remove(lease);
        if status == AckStatus::Completed {
            message.done.push(uid);
            queue.sweep();
            self.totals.acked += 1;
            return AckOutcome::Acked;
        }
        if attempts >= retry_limit {
            self.exhaust(at, sequence, uid);
            return AckOutcome::Acked;
        }
        message.back.push((uid, attempts));
        AckOutcome::Redelivered
    }

    pub fn configure(
        &mut self,
        key: (usize, usize),
        options: &QueueOptions,
        exists: &dyn Fn((usize, usize)) -> bool,
    ) -> Result<(), ConfigureError> {
        if self.find(key).is_none() && !self.make_tenant_room(key.0, exists) {
            return Err(ConfigureError::TenantQueues);
        }
        if self.find(key).is_none() && !self.make_room(0, 1, key, exists) {
            return Err(ConfigureError::QueueLimit);
        }
        let queue = self.find(key).unwrap_or_else(|| self.create(key));
        let limits = Limits::in_force(&self.config, options);
        self.queues[queue].declared = Some(limits);
        if limits.policy == Policy::DropOldest {
            self.trim(queue, None, 0, 0);
        }
        Ok(())
    }

    pub fn reset(&mut self, key: (usize, usize)) -> u64 {
        let Some(queue) = self.find(key) else { return 0 };
        let dropped = self.queues[queue].counted().count();
        self.queues[queue].messages.clear();
        dropped as u64
    }

    pub fn delete(&mut self, key: (usize, usize)) -> (bool, bool) {
        let Some(at) = self.find(key) else { return (false, false) };
        let waited: Vec<u64> = self.waiters.iter().filter(|w| w.key == key).map(|w| w.group).collect();
        let queue = &mut self.queues[at];
        queue.messages.clear();
        let declared = queue.declared.take().is_some();
        queue.groups.retain(|group| waited.contains(&group.uid));
        for group in &mut queue.groups {
            group.skipped = 0;
        }
        if waited.is_empty() {
            self.queues.remove(at);
        }
        (true, declared)
    }

    /// What changes state in one millisecond, before anybody is served: TTL, then leases, then
    /// idle groups.
    pub fn tick(&mut self) {
        let now_ms = self.now_ms;
        for at in 0..self.queues.len() {
            let limits = self.limits(at);
            self.drop_aged(at, None);
            let mut due = Vec::new();
            for message in &mut self.queues[at].messages {
                due.extend(
                    message.leases.extract_if(.., |l| l.2 + limits.lease_ms <= now_ms).map(|l| (message.sequence, l)),
                );
            }
            for (sequence, (group, attempts, _)) in due {
                if attempts >= limits.retry_limit {
                    self.exhaust(at, sequence, group);
                } else {
                    self.queues[at].message(sequence).expect("it was leased").back.push((group, attempts));
                }
            }
            let idle_ms = self.config.group_idle_ms;
            if idle_ms > 0 && self.queues[at].declared.is_none() {
                let waited: Vec<u64> = self.waiters.iter().map(|waiter| waiter.group).collect();
                let idle = |group: &Group| group.last_pop_ms + idle_ms <= now_ms && !waited.contains(&group.uid);
                let mut gone: Vec<(u64, u64)> = Vec::new();
                for group in self.queues[at].groups.iter().filter(|group| idle(group)) {
                    gone.push((group.last_pop_ms, group.uid));
                }
                gone.sort_unstable();
                for (_, uid) in gone {
                    self.forget(at, uid);
                }
            }
        }
    }

    /// Drops what has reached its TTL, of one partition or all.
    pub fn drop_aged(&mut self, queue: usize, partition: Option<usize>) {
        let Some(ttl_ms) = self.limits(queue).ttl_ms else { return };
        let now_ms = self.now_ms as i64;
        let due = self.queues[queue].counted().filter(|message| {
            message.born_ms + ttl_ms as i64 <= now_ms && partition.is_none_or(|wanted| wanted == message.partition)
        });
        for sequence in due.map(|message| message.sequence).collect::<Vec<_>>() {
            self.drop_message(queue, sequence);
            self.totals.dropped.ttl += 1;
        }
    }

    fn forget(&mut self, queue: usize, uid: u64) {
        let queue = &mut self.queues[queue];
        let spent: Vec<u64> =
            queue.messages.iter().filter(|message| queue.spent(message)).map(|message| message.sequence).collect();
        queue.groups.retain(|group| group.uid != uid);
        if queue.groups.is_empty() {
            queue.messages.retain(|message| !spent.contains(&message.sequence));
        }
        for message in &mut queue.messages {
            message.done.retain(|&done| done != uid);
            message.back.retain(|back| back.0 != uid);
            message.leases.retain(|lease| lease.0 != uid);
        }
        queue.sweep();
    }

    /// Collects the queues that have been idle for long enough.
    pub fn collect(&mut self) {
        let (now_ms, idle_ms) = (self.now_ms, self.config.implicit_idle_ms);
        self.queues.retain(|queue| queue.idle_since_ms.is_none_or(|since_ms| since_ms + idle_ms > now_ms));
    }
}

/// What the inbox that a message names takes of the memory.
pub fn named(reply_to: Option<&str>) -> u64 {
    reply_to.map_or(0, |name| NAME_LENGTH_BYTES + name.len() as u64)
}

/// The partitions there are names for.
pub const PARTITIONS: usize = 3;

/// The tenants there are.
pub const TENANTS: usize = 3;
