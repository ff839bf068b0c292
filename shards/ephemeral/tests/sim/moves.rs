//! Moving a partition: what the model does, and one half of a move on an engine and its model.

use std::collections::BTreeMap;

use queen_ephemeral::{
    GROUP_BYTES, Limits, MESSAGE_BYTES, PARTITION_BYTES, Parcel, ParcelBuilder, PartitionPlace, PutInError,
    PutInLimits, QUEUE_BYTES, QUEUE_MODE,
};

use super::model::{Message, Model, Waiter, named};
use super::world::{GROUPS, NAMES, Outcome, QUEUES, TENANTS, World, exists};

/// A partition on its way, as the model sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shipment {
    pub key: (usize, usize),
    pub partition: usize,
    messages: Vec<Shipped>,
    /// By name. They are created in this order, and of groups that have been idle equally long the first created is the
    /// first forgotten.
    groups: Vec<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Shipped {
    age_ms: u64,
    payload: Vec<u8>,
    reply_to: Option<String>,
    /// The attempts of the groups, by name, that have still to consume it.
    wanted: BTreeMap<usize, u32>,
}

impl Shipment {
    pub fn grow_older(&mut self, by_ms: u64) {
        for message in &mut self.messages {
            message.age_ms += by_ms;
        }
    }

    /// Takes over the order of the groups, which is the engine's choice.
    fn ordered_as(&mut self, other: &Self) {
        self.groups.sort_by_key(|name| other.groups.iter().position(|other| other == name));
    }

    /// A parcel as it is read, piece by piece.
    fn of(parcel: &Parcel) -> Self {
        let place = |names: &[&str], name: &str| names.iter().position(|&known| known == name).expect("a known name");
        let group_names = GROUPS.map(|name| name.unwrap_or(QUEUE_MODE));
        let mut messages: Vec<Shipped> = parcel
            .messages()
            .map(|message| Shipped {
                age_ms: message.age_ms,
                payload: message.payload.to_vec(),
                reply_to: message.reply_to.map(str::to_owned),
                wanted: BTreeMap::new(),
            })
            .collect();
        let mut groups = Vec::new();
        for group in parcel.groups() {
            let name = place(&group_names, &group.name);
            groups.push(name);
            for message in &mut messages[group.fresh_from as usize..] {
                message.wanted.insert(name, 0);
            }
            for back in &group.returned {
                messages[back.message as usize].wanted.insert(name, back.attempts);
            }
        }
        let tenant = TENANTS.iter().position(|&known| known == parcel.tenant()).expect("a known tenant");
        let key = (tenant, place(&QUEUES, parcel.queue()));
        Self { key, partition: place(&NAMES, parcel.partition()), messages, groups }
    }
}

/// A parcel made of what another one says, as a decoder makes it.
pub fn rebuilt(parcel: &Parcel) -> Parcel {
    let mut builder = ParcelBuilder::new(parcel.tenant(), parcel.queue(), parcel.partition());
    for group in parcel.groups() {
        builder.group(group.clone());
    }
    for message in parcel.messages() {
        builder.message(message.age_ms, message.payload, message.reply_to);
    }
    builder.build().expect("a parcel is well-formed")
}

impl Model {
    /// The messages that count, and the pops parked on the partition alone. What answers hold stays, for nobody.
    fn take_out(&mut self, key: (usize, usize), partition: usize) -> (Option<Shipment>, Vec<Waiter>) {
        let mut pops = Vec::new();
        while let Some(at) = self.waiters.iter().position(|w| w.key == key && w.partition == Some(partition)) {
            pops.push(self.leave(at));
        }
        let now_ms = self.now_ms as i64;
        let Some(at) = self.find(key) else { return (None, pops) };
        let queue = &mut self.queues[at];
        let everybody: Vec<u64> = queue.groups.iter().map(|group| group.uid).collect();
        let groups = queue.groups.iter().map(|group| group.name).collect();
        let counted: Vec<u64> = queue.counted().map(|message| message.sequence).collect();
        let mut messages = Vec::new();
        for message in &mut queue.messages {
            if message.partition != partition || !counted.contains(&message.sequence) {
                continue;
            }
            let open = queue.groups.iter().filter(|group| !message.done.contains(&group.uid));
            let attempts = |uid: u64| {
                let back = message.back.iter().find(|back| back.0 == uid).map(|back| back.1);
                let lease = message.leases.iter().find(|lease| lease.0 == uid).map(|lease| lease.1);
                back.or(lease).unwrap_or(0)
            };
            messages.push(Shipped {
                age_ms: (now_ms - message.born_ms) as u64,
                payload: message.payload.clone(),
                reply_to: message.reply_to.clone(),
                wanted: open.map(|group| (group.name, attempts(group.uid))).collect(),
            });
            message.done.clone_from(&everybody);
            message.back.clear();
            message.leases.clear();
        }
        let gone = |message: &Message| message.partition == partition && (message.pins == 0 || everybody.is_empty());
        queue.messages.retain(|message| !gone(message));
        let shipment = (!messages.is_empty()).then_some(Shipment { key, partition, messages, groups });
        (shipment, pops)
    }

    fn put_in(
        &mut self,
        shipment: &Shipment,
        limits: PutInLimits,
        exists: &dyn Fn((usize, usize)) -> bool,
    ) -> Result<(), PutInError> {
        let Shipment { key, partition, ref messages, ref groups } = *shipment;
        let stretched = |bound: u64| bound + bound / 4;
        let found = self.find(key);
        let bounds = found.map_or(Limits::implicit(&self.config), |queue| self.limits(queue));
        let (depth, held) = found.map_or((0, 0), |queue| self.load(queue));
        let bytes: u64 = messages.iter().map(|message| message.payload.len() as u64).sum();
        let count = messages.len() as u64;
        if depth + count > stretched(bounds.max_length) || held + bytes > stretched(bounds.max_bytes) {
            return Err(PutInError::QueueFull);
        }
        let partitions = found.map_or(Vec::new(), |queue| self.partitions(queue));
        let is_new = !partitions.contains(&partition);
        if is_new && partitions.len() as u64 >= stretched(self.config.max_partitions_per_queue.into()) {
            return Err(PutInError::PartitionLimit);
        }
        let known = found.map_or(Vec::new(), |at| self.queues[at].groups.iter().map(|group| group.name).collect());
        let new_groups: Vec<usize> = groups.iter().copied().filter(|name| !known.contains(name)).collect();
        let groups_max = stretched(self.config.max_groups_per_queue.into());
        if !new_groups.is_empty() && (known.len() + new_groups.len()) as u64 > groups_max {
            return Err(PutInError::GroupLimit);
        }
        let names: u64 = messages.iter().map(|message| named(message.reply_to.as_deref())).sum();
        let needed = bytes
            + names
            + count * MESSAGE_BYTES
            + new_groups.len() as u64 * GROUP_BYTES
            + u64::from(found.is_none()) * QUEUE_BYTES
            + u64::from(is_new) * PARTITION_BYTES;
        let own = (self.memory_limit, self.queue_limit);
        (self.memory_limit, self.queue_limit) = (limits.memory_bytes, limits.queues);
        let has_queue = self.make_room(0, u64::from(found.is_none()), key, exists);
        let has_memory = has_queue && self.make_room(needed, 0, key, exists);
        (self.memory_limit, self.queue_limit) = own;
        if !has_memory {
            return Err(if has_queue { PutInError::NodeMemory } else { PutInError::QueueLimit });
        }

        let at = self.find(key).unwrap_or_else(|| self.create(key));
        for name in new_groups {
            self.create_group(at, name);
        }
        let in_front = self.queues[at].messages.iter().any(|message| message.partition == partition);
        let first = self.sequences(count, in_front);
        let now_ms = self.now_ms as i64;
        let queue = &mut self.queues[at];
        let uid = |name: usize| queue.groups.iter().find(|group| group.name == name).expect("it was made").uid;
        let adopted: Vec<Message> = (0..count)
            .map(|nth| first.wrapping_add(nth))
            .zip(messages)
            .map(|(sequence, message)| Message {
                sequence,
                partition,
                born_ms: now_ms - message.age_ms as i64,
                payload: message.payload.clone(),
                reply_to: message.reply_to.clone(),
                done: groups.iter().filter(|name| !message.wanted.contains_key(name)).map(|&name| uid(name)).collect(),
                back: message.wanted.iter().map(|(&name, &attempts)| (uid(name), attempts)).collect(),
                leases: Vec::new(),
                pins: 0,
            })
            .collect();
        let place = if in_front { 0 } else { queue.messages.len() };
        queue.messages.splice(place..place, adopted);
        self.drop_aged(at, Some(partition));
        Ok(())
    }
}

impl World {
    /// Takes a partition out of the engine and the model.
    pub fn take_out(&mut self, key: (usize, usize), partition: usize) -> Option<(Parcel, Shipment)> {
        let mut outcome = Outcome::default();
        let now_ms = self.model.now_ms;
        let (tenant, queue) = (TENANTS[key.0], QUEUES[key.1]);
        let taken = self.engine.take_out(now_ms, tenant, queue, NAMES[partition], &mut outcome);
        assert!(outcome.popped.is_empty(), "taking out serves nobody");
        let (mut shipment, pops) = self.model.take_out(key, partition);
        let read = taken.parcel.as_ref().map(Shipment::of);
        if let (Some(shipment), Some(read)) = (&mut shipment, &read) {
            shipment.ordered_as(read);
        }
        assert_eq!(read, shipment);
        assert_eq!(taken.pops.len(), pops.len());
        for (unparked, pop) in taken.pops.iter().zip(pops) {
            self.parks.retain(|known| known.1 != pop.id);
            assert_eq!((unparked.waiter.0, unparked.batch as usize), (pop.id, pop.batch));
            assert_eq!((unparked.auto_ack, unparked.wait_ms), (pop.auto_ack, pop.deadline_ms - now_ms));
            let at = self.model.find(key).expect("a queue with a parked pop is there");
            let group = self.model.queues[at].groups.iter().find(|group| group.uid == pop.group);
            let group = GROUPS[group.expect("a group with a parked pop is there").name];
            assert_eq!(unparked.group, group.unwrap_or(QUEUE_MODE));
        }
        self.finish(None, outcome);
        self.compare();
        let rows = self.partitions();
        assert!(!rows.iter().any(|row| (row.0, row.1) == (key, partition)), "nothing is left to move");
        taken.parcel.zip(shipment)
    }

    /// Puts a partition into the engine and the model.
    pub fn put_in(&mut self, parcel: &Parcel, shipment: &Shipment, limits: PutInLimits) -> Result<(), PutInError> {
        let mut outcome = Outcome::default();
        let before = self.engine.stats();
        let answer = self.engine.put_in(self.model.now_ms, parcel, limits, &mut outcome);
        let engine = &self.engine;
        assert_eq!(answer, self.model.put_in(shipment, limits, &|key| exists(engine, key)));
        let grown = self.engine.memory_bytes().saturating_sub(before.memory_bytes);
        let leases = self.engine.stats().leases.saturating_sub(before.leases);
        assert!(grown <= parcel.memory_bytes() + leases * queen_ephemeral::LEASE_BYTES, "it takes what it says");
        self.finish(answer.is_ok().then_some(shipment.key), outcome);
        self.compare();
        answer
    }

    /// The partitions there is something to move of, walked in random pieces: key, partition, depth, parked pops.
    pub fn partitions(&mut self) -> Vec<((usize, usize), usize, u64, u32)> {
        let mut rows = Vec::new();
        let mut from = PartitionPlace::default();
        loop {
            let piece = 1 + self.random.below(5) as u32;
            let next = self.engine.scan_partitions(from, piece, &mut |row| {
                let tenant = TENANTS.iter().position(|&known| known == row.tenant).expect("a known tenant");
                let queue = QUEUES.iter().position(|&known| known == row.queue).expect("a known queue");
                let partition = NAMES.iter().position(|&known| known == row.partition).expect("a known partition");
                rows.push(((tenant, queue), partition, row.depth, row.parked));
            });
            let Some(next) = next else { break };
            from = next;
        }
        rows.sort_unstable();
        let mut expected = Vec::new();
        for (at, queue) in self.model.queues.iter().enumerate() {
            for partition in self.model.partitions(at) {
                let depth = queue.counted().filter(|message| message.partition == partition).count() as u64;
                let here = |waiter: &&Waiter| waiter.key == queue.key && waiter.partition == Some(partition);
                let parked = self.model.waiters.iter().filter(here).count() as u32;
                if depth > 0 || parked > 0 {
                    expected.push((queue.key, partition, depth, parked));
                }
            }
        }
        expected.sort_unstable();
        assert_eq!(rows, expected);
        rows
    }
}
