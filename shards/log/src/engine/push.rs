//! Push: finding the partitions, looking for ids that are known, and filling segments.

use hashbrown::HashSet;

use super::{
    Log, Resolved, Step,
    batch::{AppendPlan, Gathering, MessagePlan, PartPlan},
    cache::PartitionKey,
    ids::{Lookup, time_of_id},
    op::{OpKey, PartState, PushOp, Wait},
};
use crate::{
    record::{Records, decode},
    request::{Answer, PushPart, Pushed, PushedPart},
    store::Load,
};

/// What a look at one part of a push says.
enum Part {
    /// Its partition, and which of its messages are stored already.
    Plannable(PartitionKey, Vec<Option<(u64, i64)>>),
    /// Something is being read, made or written.
    Waits,
}

impl<T: Copy> Log<T> {
    pub(super) fn step_push(&mut self, key: OpKey, push: &mut PushOp) -> Step {
        let mut stalled = false;
        for index in 0..push.parts.len() {
            if !matches!(push.parts[index], PartState::Todo) {
                continue;
            }
            let part = &push.request.parts[index];
            match self.look_at_part(key, push.request.tenant, part) {
                Part::Waits => {}
                Part::Plannable(partition, known) => {
                    if known.iter().all(Option::is_some) {
                        // Nothing is written, so nothing would show that another broker has removed the queue.
                        if self.looks_at_others(key, &mut push.refreshed, &[]) {
                            return Step::Waits;
                        }
                        let messages = known.into_iter().flatten();
                        let messages = messages.map(|(offset, stamp_us)| Pushed::Duplicate { offset, stamp_us });
                        self.counters.duplicates += part.records.len() as u64;
                        let number = self.cache.partitions[partition].number;
                        push.parts[index] = PartState::Done { number, messages: messages.collect() };
                        push.left -= 1;
                    } else if self.may_gather() {
                        self.plan_part(key, index, partition, &mut push.request.parts[index].records, known);
                        push.parts[index] = PartState::Committing;
                    } else {
                        stalled = true;
                    }
                }
            }
        }
        if push.left == 0 {
            return Step::Answer(push.answer());
        }
        if stalled && self.ops[key.slot].waits == 0 { Step::Stalled } else { Step::Waits }
    }

    fn look_at_part(&mut self, key: OpKey, tenant: crate::id::TenantId, part: &PushPart) -> Part {
        let Resolved::Here(queue) = self.resolve_queue(key, tenant, &part.queue, true) else { return Part::Waits };
        let Resolved::Here(partition) = self.resolve_partition(key, queue, &part.partition, true) else {
            return Part::Waits;
        };
        let can_join = self.gathered_for(partition).is_some_and(|append| !append.is_full());
        let must_wait = !can_join && self.cache.partitions[partition].underway.any() && !self.can_follow(partition);
        if must_wait || self.may_be_in_commit(partition, &part.records) {
            self.wait(key, Wait::Append(partition));
            return Part::Waits;
        }
        if self.rereads_partition(key, partition) {
            return Part::Waits;
        }
        match self.known_ids(key, partition, &part.records) {
            Some(known) => Part::Plannable(partition, known),
            None => Part::Waits,
        }
    }

    /// Which of the records are stored already, by offset and stamp; `None` while the store is asked.
    fn known_ids(&mut self, key: OpKey, partition: PartitionKey, records: &Records) -> Option<Vec<Option<(u64, i64)>>> {
        let queue = self.cache.partitions[partition].queue;
        let window_us = self.cache.queues[queue].row.options.dedup_window_s * 1_000_000;
        if window_us == 0 || records.hashes.iter().all(|&hash| hash == 0) {
            return Some(vec![None; records.len()]);
        }
        let since_us = self.now_us() - window_us;
        self.cache.forget_ids_before(partition, since_us);
        let mut known = vec![None; records.len()];
        let mut indexes: Option<Load> = None;
        let mut waits = false;
        for (index, known) in known.iter_mut().enumerate() {
            if records.hashes[index] == 0 {
                continue;
            }
            let id = records.get(index).id.expect("a hash is of an id");
            match self.find_id(key, partition, id, since_us) {
                Lookup::At { offset, stamp_us } => *known = Some((offset, stamp_us)),
                Lookup::Nowhere => {}
                Lookup::Need(load @ Load::Indexes { .. }) => {
                    // One read serves all: the one that goes back the furthest.
                    indexes = Some(match indexes {
                        Some(other) if since_of(&other) <= since_of(&load) => other,
                        _ => load,
                    });
                }
                Lookup::Need(load) => {
                    self.need(key, load);
                    waits = true;
                }
            }
        }
        if let Some(load) = indexes {
            self.start_probe(key, partition, records.hashes.iter().copied().collect::<HashSet<_>>());
            self.need(key, load);
            waits = true;
        }
        (!waits).then_some(known)
    }

    /// Puts a part's new messages into the segment that is gathered for its partition.
    fn plan_part(
        &mut self,
        op: OpKey,
        part: usize,
        key: PartitionKey,
        records: &mut Records,
        known: Vec<Option<(u64, i64)>>,
    ) {
        let now_us = self.now_us();
        if self.gathered_for(key).is_none() {
            self.begin_append(key);
        }
        let across_pushes = self.cache.queues[self.cache.partitions[key].queue].row.options.dedup_window_s > 0;
        let following = self.following.as_mut().map(|(_, following)| following);
        let mut gathered = [Some(&mut self.gathering), following].into_iter().flatten();
        let gathering = gathered.find(|gathering| gathering.appends.contains_key(&key)).expect("just begun");
        let append = gathering.appends.get_mut(&key).expect("just found");
        let before = (append.bytes.len(), append.ends.len());
        let has_ids = records.hashes.iter().any(|&hash| hash != 0);
        let messages = if !has_ids && append.ends.is_empty() {
            // The common case of one push without ids: its bytes are the segment's.
            append.bytes = std::mem::take(&mut records.bytes);
            append.ends = std::mem::take(&mut records.ends);
            append.hashes = std::mem::take(&mut records.hashes);
            (append.base..).take(append.ends.len()).map(|offset| MessagePlan::New { offset }).collect()
        } else {
            let first = if across_pushes { 0 } else { append.ends.len() as u32 };
            let plans = known.into_iter().enumerate();
            plans.map(|(index, known)| append.take_record(records, index, known, first, now_us)).collect()
        };
        append.parts.push(PartPlan { op, part, messages });
        let grown = (append.bytes.len() - before.0, append.ends.len() - before.1);
        gathering.grew(grown.0, grown.1);
    }

    /// Begins the segment that is gathered for a partition, behind the one in commit if there is one.
    fn begin_append(&mut self, key: PartitionKey) {
        let mark = self.new_version();
        let partition = &mut self.cache.partitions[key];
        let follows = partition.underway.begin();
        let append = AppendPlan {
            partition: key,
            id: partition.id,
            base: follows.map_or(partition.next, |sent| sent.next),
            ahead_us: follows.map_or(partition.ahead_us, |sent| sent.ahead_us),
            mark,
            follows: follows.map(|sent| sent.mark),
            bytes: Vec::new(),
            ends: Vec::new(),
            hashes: Vec::new(),
            ids: hashbrown::HashMap::new(),
            parts: Vec::new(),
        };
        let gathering = match follows {
            None => &mut self.gathering,
            Some(sent) => &mut self.following.get_or_insert_with(|| (sent.job, Gathering::default())).1,
        };
        gathering.appends.insert(key, append);
    }
}

impl AppendPlan {
    /// Takes one record in, unless it is known or repeats one from `first` on.
    fn take_record(
        &mut self,
        records: &Records,
        index: usize,
        known: Option<(u64, i64)>,
        first: u32,
        now_us: i64,
    ) -> MessagePlan {
        if let Some((offset, stamp_us)) = known {
            return MessagePlan::Known { offset, stamp_us };
        }
        let (hash, encoded) = (records.hashes[index], records.encoded(index));
        if hash != 0 {
            let id = records.get(index).id.expect("a hash is of an id");
            let twin =
                self.ids.get(&hash).and_then(|at| at.iter().find(|&&at| at >= first && self.id_at(at) == Some(id)));
            if let Some(&at) = twin {
                return MessagePlan::Twin { offset: self.base + u64::from(at) };
            }
            self.ids.entry(hash).or_default().push(self.ends.len() as u32);
            if let Some(made_us) = time_of_id(id) {
                // The stamp is not before this time, so this is the most that it can be ahead.
                self.ahead_us = self.ahead_us.max(made_us - now_us);
            }
        }
        let offset = self.base + self.ends.len() as u64;
        self.bytes.extend_from_slice(encoded);
        self.ends.push(u32::try_from(self.bytes.len()).expect("a segment is bounded"));
        self.hashes.push(hash);
        MessagePlan::New { offset }
    }

    fn id_at(&self, at: u32) -> Option<&[u8]> {
        let at = at as usize;
        let start = if at == 0 { 0 } else { self.ends[at - 1] as usize };
        decode(&self.bytes[start..self.ends[at] as usize])?.0.id
    }
}

impl PushOp {
    fn answer(&mut self) -> Answer {
        let parts = self.parts.drain(..).map(|part| match part {
            PartState::Done { number, messages } => PushedPart { number, messages },
            PartState::Todo | PartState::Committing => unreachable!("nothing is left to do"),
        });
        Answer::Pushed(parts.collect())
    }
}

fn since_of(load: &Load) -> i64 {
    if let Load::Indexes { since_us, .. } = load { *since_us } else { i64::MAX }
}
