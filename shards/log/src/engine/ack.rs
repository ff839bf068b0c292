//! Ack: what became of messages, and what follows for the cursor.
//!
//! The acks of a call that name the same partition and lease are one decision, in this order: is there such a cursor,
//! does the lease hold, where is each message; then the ladder of [`settle`]. One cursor write carries it all.

use std::sync::Arc;

use super::{
    Log, Step,
    batch::Settles,
    cache::{GroupKey, PartitionKey},
    group::{Known, Position},
    ids::Lookup,
    op::{AckGroup, AckOp, AckState, OpKey, Wait},
};
use crate::{
    id::{LeaseId, PartitionId, TenantId, hash_of_id},
    record::encode,
    request::{Ack, AckRefusal, AckRequest, AckStatus, AckTaken, Acked, Answer},
    row::DeadLetter,
    store::{KEEP_LEASE, LeaseWrite, Load},
};

/// Acks find messages that are this old at least, whatever the queue's window is.
const ACK_INDEX_S: i64 = 900;

/// What a lookup of one ack's message says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// It is in what was handed out.
    Here(u64),
    /// The cursor has passed it.
    Passed,
    Nowhere,
}

/// The cursor that acks are about.
#[derive(Debug, Clone, Copy)]
struct Held {
    group: GroupKey,
    partition: PartitionKey,
    position: Position,
}

/// What the ladder decides.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Settled {
    /// The next offset to deliver.
    pub(super) next: u64,
    pub(super) retries: i64,
    /// The lease's run is over: all of it is done, or the rest is given back.
    pub(super) released: bool,
    /// The message that is given up.
    pub(super) dead: Option<u64>,
}

/// What becomes of a cursor by the statuses of messages in its run, each at or above `next` and below `run_end`.
///
/// The cursor moves to behind the highest completed message below the lowest one that was not; everything on the way is
/// thereby done. One that was not frees the lease, and what lies above the cursor is delivered again. A failure is
/// charged once; beyond `retry_limit`, and for a dead letter at once, the message is given up and the cursor passes it.
pub(super) fn settle(position: &Position, retry_limit: i64, acks: &[(u64, AckStatus)]) -> Settled {
    let rank = |status| match status {
        AckStatus::Completed => 0,
        AckStatus::Retry => 1,
        AckStatus::Failed => 2,
        AckStatus::Dead => 3,
    };
    let open = acks.iter().filter(|(_, status)| *status != AckStatus::Completed);
    let stop = open.min_by_key(|&&(offset, status)| (offset, -rank(status))).copied();
    let below = |offset: u64| stop.is_none_or(|(stop, _)| offset < stop);
    let completed = acks.iter().filter(|&&(offset, status)| status == AckStatus::Completed && below(offset));
    let next = completed.map(|&(offset, _)| offset + 1).max().unwrap_or(position.next);
    let Some((stop, status)) = stop else {
        let released = next >= position.run_end;
        return Settled { next, retries: if released { 0 } else { position.retries }, released, dead: None };
    };
    let charged = position.retries + i64::from(status == AckStatus::Failed);
    let exhausted = status == AckStatus::Failed && charged > retry_limit.max(0);
    if exhausted || status == AckStatus::Dead {
        return Settled { next: stop + 1, retries: 0, released: true, dead: Some(stop) };
    }
    Settled { next, retries: charged, released: true, dead: None }
}

impl AckOp {
    pub(super) fn new(request: AckRequest) -> Self {
        let mut results = vec![None; request.acks.len()];
        let mut groups: Vec<AckGroup> = Vec::new();
        let mut places = hashbrown::HashMap::new();
        for (item, ack) in request.acks.iter().enumerate() {
            let (Some(partition), Some(_)) = (ack.partition, &ack.transaction_id) else {
                results[item] = Some(refused(AckRefusal::Malformed));
                continue;
            };
            let place = *places.entry((partition, ack.lease)).or_insert_with(|| {
                groups.push(AckGroup {
                    partition,
                    lease: ack.lease,
                    items: Vec::new(),
                    state: AckState::Todo,
                    reread: false,
                });
                groups.len() - 1
            });
            groups[place].items.push(item);
        }
        Self { request, groups, results }
    }

    /// The answer when the store is away: what was not taken is said so.
    pub(super) fn unavailable(&mut self) -> Vec<Acked> {
        let results = std::mem::take(&mut self.results).into_iter();
        results.map(|result| result.unwrap_or_else(|| refused(AckRefusal::Unavailable))).collect()
    }
}

fn refused(refusal: AckRefusal) -> Acked {
    Acked { result: Err(refusal), lease_released: false }
}

impl<T: Copy> Log<T> {
    pub(super) fn step_ack(&mut self, key: OpKey, ack: &mut AckOp) -> Step {
        let mut stalled = false;
        for index in 0..ack.groups.len() {
            if ack.groups[index].state == AckState::Todo {
                stalled |= self.step_ack_group(key, ack, index);
            }
        }
        if ack.groups.iter().all(|group| group.state == AckState::Done) {
            let results = std::mem::take(&mut ack.results).into_iter();
            return Step::Answer(Answer::Acked(results.map(|result| result.expect("every group is done")).collect()));
        }
        if stalled && self.ops[key.slot].waits == 0 { Step::Stalled } else { Step::Waits }
    }

    /// Decides on one group of acks. True if it only lacks a commit to go into.
    fn step_ack_group(&mut self, key: OpKey, ack: &mut AckOp, index: usize) -> bool {
        let (id, lease) = (ack.groups[index].partition, ack.groups[index].lease);
        let held = match self.cursor_of(key, ack.request.tenant, &ack.request.group, id) {
            Ok(Some(held)) => held,
            Ok(None) => return false,
            Err(refusal) => {
                refuse_all(ack, index, refusal);
                return false;
            }
        };
        let Held { group, partition, position } = held;
        let now_us = self.now_us();
        let live = position.lease.filter(|lease| lease.until_us > now_us);
        if let Some(named) = lease
            && (named.is_none() || live.map(|lease| lease.id) != named)
        {
            if !self.rereads(key, ack, index, &held) {
                refuse_all(ack, index, AckRefusal::Lease);
            }
            return false;
        }
        let Some(found) = self.find_acked(key, ack, index, partition, &position) else { return false };
        if found.iter().any(|(_, found)| *found == Found::Nowhere) && self.rereads(key, ack, index, &held) {
            return false;
        }
        let acks: Vec<(u64, AckStatus)> = found
            .iter()
            .filter_map(|(item, found)| match found {
                Found::Here(offset) => Some((*offset, ack.request.acks[*item].status)),
                Found::Passed | Found::Nowhere => None,
            })
            .collect();
        if acks.is_empty() {
            settle_without_change(ack, index, &found);
            return false;
        }
        let queue = &self.cache.queues[self.cache.partitions[partition].queue].row.options;
        let settled = settle(&position, queue.retry_limit, &acks);
        let keeps_dead = queue.keeps_dead_letters();
        let letter = match settled.dead.filter(|_| keeps_dead) {
            None => None,
            Some(offset) => match self.dead_letter(key, ack, &found, held, offset) {
                Some(letter) => Some(letter),
                None => return false,
            },
        };
        if !self.may_gather() {
            return true;
        }
        let results = self.ack_results(ack, &found, held, &settled, live.is_some(), letter.is_some());
        let released = settled.released;
        let kept = position.lease.filter(|_| !released);
        let after = Position {
            version: self.new_version(),
            next: settled.next,
            run_end: position.run_end.max(settled.next),
            lease: None,
            retries: settled.retries,
            consumed: position.consumed + (settled.next - position.next),
        };
        let lease = kept.map(|lease| LeaseWrite { id: lease.id, floor_us: lease.until_us, for_us: KEEP_LEASE });
        let settles = Settles::Ack { op: key, group: index, results };
        self.counters.dead += u64::from(letter.is_some());
        let tag = self.plan_cursor(group, partition, Some(position.version), after, lease, settles);
        self.gathering.cursors[tag].dead = letter;
        ack.groups[index].state = AckState::Committing;
        false
    }

    /// Before it refuses: has the rows read again, once, where another broker may have changed them.
    fn rereads(&mut self, key: OpKey, ack: &mut AckOp, index: usize, held: &Held) -> bool {
        if self.config.recheck_us.is_none() || std::mem::replace(&mut ack.groups[index].reread, true) {
            return false;
        }
        let partition = self.cache.partitions[held.partition].id;
        self.need(key, Load::PartitionById(partition));
        self.need(key, Load::Cursor { partition, group: Arc::clone(&self.groups[held.group].name) });
        true
    }

    /// The cursor that a group has in a partition, of a tenant; `None` while it is read or written.
    fn cursor_of(
        &mut self,
        key: OpKey,
        tenant: TenantId,
        group: &Arc<str>,
        id: PartitionId,
    ) -> Result<Option<Held>, AckRefusal> {
        let load = Load::PartitionById(id);
        let usable = |&partition: &PartitionKey| !self.cache.partitions[partition].has_to_be_read();
        let known = self.cache.partition_by_id(id).filter(usable);
        let Some(partition) = known else {
            if self.is_absent(key, &load) {
                return Err(AckRefusal::NoConsumer);
            }
            self.need(key, load);
            return Ok(None);
        };
        let queue = self.cache.partitions[partition].queue;
        if self.cache.queues[queue].row.tenant != tenant {
            // As for a partition that nobody has: a tenant does not learn of another's.
            return Err(AckRefusal::NoConsumer);
        }
        let name = Arc::clone(group);
        let group = self.group_of(queue, group);
        if self.groups[group].is_busy(partition) {
            self.wait(key, Wait::Cursor(group, partition));
            return Ok(None);
        }
        let load = Load::Cursor { partition: id, group: name };
        match self.groups[group].known(partition) {
            Known::Row(position) => Ok(Some(Held { group, partition, position })),
            // Another broker may have made it: absence is believed only where it was read for this call.
            Known::Absent { .. } if self.config.recheck_us.is_none() || self.is_absent(key, &load) => {
                Err(AckRefusal::NoConsumer)
            }
            Known::Absent { .. } | Known::No => {
                self.need(key, load);
                Ok(None)
            }
        }
    }

    /// Finds the messages of one group of acks; `None` while something is read.
    fn find_acked(
        &mut self,
        key: OpKey,
        ack: &AckOp,
        index: usize,
        partition: PartitionKey,
        position: &Position,
    ) -> Option<Vec<(usize, Found)>> {
        let items = &ack.groups[index].items;
        let mut found = Vec::with_capacity(items.len());
        let options = &self.cache.queues[self.cache.partitions[partition].queue].row.options;
        let reach_s = options.dedup_window_s.max(options.completed_retention_s).max(ACK_INDEX_S);
        let since_us = self.now_us() - reach_s * 1_000_000;
        let run = self.ids_of_run(key, partition, position)?;
        let mut waits = false;
        for &item in items {
            let id = ack.request.acks[item].transaction_id.as_deref().expect("checked when they were grouped");
            if let Some(offset) = run.find(self, partition, id.as_bytes()) {
                found.push((item, Found::Here(offset)));
                continue;
            }
            match self.find_id(key, partition, id.as_bytes(), since_us) {
                Lookup::At { offset, .. } if offset < position.next => found.push((item, Found::Passed)),
                Lookup::At { offset, .. } if offset < position.run_end => found.push((item, Found::Here(offset))),
                Lookup::At { .. } | Lookup::Nowhere => found.push((item, Found::Nowhere)),
                Lookup::Need(load) => {
                    if matches!(load, Load::Indexes { .. }) {
                        let ids = items.iter().filter_map(|&item| ack.request.acks[item].transaction_id.as_deref());
                        let hashes = ids.map(|id| hash_of_id(id.as_bytes())).collect();
                        self.start_probe(key, partition, hashes);
                    } else if self.is_absent(key, &load) {
                        found.push((item, Found::Nowhere));
                        continue;
                    }
                    self.need(key, load);
                    waits = true;
                }
            }
        }
        (!waits).then_some(found)
    }

    /// The ids of what is handed out and not done; `None` while its segments are read.
    fn ids_of_run(&mut self, key: OpKey, partition: PartitionKey, position: &Position) -> Option<RunIds> {
        let row = &self.cache.partitions[partition];
        let mut ids = hashbrown::HashMap::new();
        let (from, to) = (position.next.max(row.log_start), position.run_end.min(row.next));
        let mut offset = from;
        while offset < to {
            let Some(cached) = row.segment(offset) else {
                let load = Load::Segments { partition: row.id, from: offset, max_bytes: super::pop::LOAD_BYTES };
                if self.is_absent(key, &load) {
                    break;
                }
                self.need(key, load);
                return None;
            };
            let end = cached.segment.next().min(to);
            if !cached.hashes.is_empty() {
                for offset in offset..end {
                    let hash = cached.hashes[(offset - cached.segment.base) as usize];
                    if hash != 0 {
                        ids.insert(hash, offset);
                    }
                }
            }
            offset = end;
        }
        Some(RunIds { from, to, ids })
    }

    fn dead_letter(
        &mut self,
        key: OpKey,
        ack: &AckOp,
        found: &[(usize, Found)],
        held: Held,
        offset: u64,
    ) -> Option<DeadLetter> {
        let row = &self.cache.partitions[held.partition];
        let Some(cached) = row.segment(offset) else {
            let load = Load::Segments { partition: row.id, from: offset, max_bytes: 1 };
            self.need(key, load);
            return None;
        };
        let (id, stamp_us) = (row.id, cached.segment.stamp_us);
        let stored = cached.segment.record(offset);
        let mut record = Vec::with_capacity(stored.payload.len() + 64);
        encode(&mut record, &stored);
        let transaction_id = match stored.id {
            Some(own) => String::from_utf8_lossy(own).into_owned(),
            None => crate::id::message_id(row.number, offset, stamp_us).to_string(),
        };
        let error = |ack: &Ack| ack.error.as_deref().filter(|error| !error.is_empty()).map(str::to_owned);
        let own = found.iter().filter(|(_, found)| *found == Found::Here(offset));
        let own = own.map(|(item, _)| &ack.request.acks[*item]).find_map(error);
        let error = own.or_else(|| found.iter().map(|(item, _)| &ack.request.acks[*item]).find_map(error));
        Some(DeadLetter {
            id: self.new_id(),
            partition: id,
            offset,
            group: Arc::clone(&self.groups[held.group].name),
            transaction_id,
            error: error.unwrap_or_else(|| "Retries exhausted".to_owned()),
            retries: held.position.retries,
            record,
        })
    }

    fn ack_results(
        &self,
        ack: &AckOp,
        found: &[(usize, Found)],
        held: Held,
        settled: &Settled,
        was_live: bool,
        kept_letter: bool,
    ) -> Vec<(usize, Acked)> {
        let conflates = self.groups[held.group].row.as_ref().is_some_and(|row| row.conflation);
        let results = found.iter().map(|&(item, found)| {
            let status = ack.request.acks[item].status;
            let result = match found {
                Found::Here(offset) => Acked {
                    result: Ok(AckTaken {
                        noop: false,
                        dead: kept_letter && settled.dead == Some(offset),
                        conflated: (conflates && status == AckStatus::Completed).then(|| offset - held.position.next),
                    }),
                    lease_released: was_live && settled.released,
                },
                Found::Passed | Found::Nowhere => without_change(status, found),
            };
            (item, result)
        });
        results.collect()
    }

    /// What was popped did not reach the client: the lease ends, if it is still there and known here.
    pub(super) fn step_give_back(
        &mut self,
        key: OpKey,
        tenant: TenantId,
        group: &Arc<str>,
        lease: LeaseId,
        partitions: &mut Vec<PartitionId>,
    ) -> Step {
        let mut later = Vec::new();
        for id in std::mem::take(partitions) {
            match self.cursor_of(key, tenant, group, id) {
                Err(_) => {}
                Ok(None) => later.push(id),
                Ok(Some(held)) if held.position.lease.map(|lease| lease.id) != Some(lease) => {}
                Ok(Some(_)) if !self.may_gather() => later.push(id),
                Ok(Some(Held { group, partition, position })) => {
                    let after = Position { version: self.new_version(), lease: None, ..position };
                    self.plan_cursor(group, partition, Some(position.version), after, None, Settles::Nobody);
                }
            }
        }
        *partitions = later;
        match (partitions.is_empty(), self.ops[key.slot].waits) {
            (true, _) => Step::Answer(Answer::Acked(Vec::new())),
            (false, 0) => Step::Stalled,
            (false, _) => Step::Waits,
        }
    }
}

/// Ids of a run by hash.
struct RunIds {
    from: u64,
    to: u64,
    ids: hashbrown::HashMap<u64, u64>,
}

impl RunIds {
    fn find<T: Copy>(&self, log: &Log<T>, partition: PartitionKey, id: &[u8]) -> Option<u64> {
        let row = &log.cache.partitions[partition];
        let minted = std::str::from_utf8(id).ok().and_then(|id| crate::id::offset_of_message_id(id, row.number));
        let minted = minted.filter(|offset| (self.from..self.to).contains(offset));
        let own = self.ids.get(&hash_of_id(id)).copied();
        let is =
            |offset: &u64| row.segment(*offset).is_some_and(|cached| cached.segment.id_is(*offset, id, row.number));
        own.filter(is).or_else(|| minted.filter(is))
    }
}

fn refuse_all(ack: &mut AckOp, index: usize, refusal: AckRefusal) {
    for &item in &ack.groups[index].items {
        ack.results[item] = Some(refused(refusal));
    }
    ack.groups[index].state = AckState::Done;
}

fn settle_without_change(ack: &mut AckOp, index: usize, found: &[(usize, Found)]) {
    for &(item, found) in found {
        ack.results[item] = Some(without_change(ack.request.acks[item].status, found));
    }
    ack.groups[index].state = AckState::Done;
}

/// The result of an ack that takes no part.
fn without_change(status: AckStatus, found: Found) -> Acked {
    match (found, status) {
        (Found::Passed, AckStatus::Completed) => {
            Acked { result: Ok(AckTaken { noop: true, ..AckTaken::default() }), lease_released: false }
        }
        (Found::Passed, _) => refused(AckRefusal::Committed),
        (Found::Here(_) | Found::Nowhere, _) => refused(AckRefusal::Unresolvable),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use AckStatus::{Completed, Dead, Failed, Retry};

    fn at(next: u64, run_end: u64, retries: i64) -> Position {
        Position { version: 0, next, run_end, lease: None, retries, consumed: 0 }
    }

    fn settled(next: u64, retries: i64, released: bool, dead: Option<u64>) -> Settled {
        Settled { next, retries, released, dead }
    }

    #[test]
    fn acking_a_message_completes_what_lies_below() {
        assert_eq!(settle(&at(0, 5, 1), 3, &[(2, Completed)]), settled(3, 1, false, None));
        assert_eq!(settle(&at(0, 5, 1), 3, &[(4, Completed), (0, Completed)]), settled(5, 0, true, None));
    }

    #[test]
    fn the_lowest_that_failed_stops_the_cursor_below_it() {
        let acks = [(0, Completed), (1, Failed), (2, Completed)];
        assert_eq!(settle(&at(0, 3, 0), 3, &acks), settled(1, 1, true, None));
        assert_eq!(settle(&at(0, 3, 0), 3, &[(2, Failed)]), settled(0, 1, true, None));
        assert_eq!(settle(&at(0, 3, 2), 3, &[(2, Retry)]), settled(0, 2, true, None));
    }

    #[test]
    fn a_failure_beyond_the_limit_gives_the_message_up_and_passes_it() {
        assert_eq!(settle(&at(0, 3, 2), 3, &[(1, Failed)]), settled(0, 3, true, None));
        assert_eq!(settle(&at(0, 3, 3), 3, &[(1, Failed)]), settled(2, 0, true, Some(1)));
        assert_eq!(settle(&at(0, 3, 0), -1, &[(0, Failed)]), settled(1, 0, true, Some(0)));
    }

    #[test]
    fn a_dead_letter_completes_what_lies_below_it() {
        assert_eq!(settle(&at(0, 3, 1), 3, &[(2, Dead)]), settled(3, 0, true, Some(2)));
        assert_eq!(settle(&at(0, 3, 0), 3, &[(1, Dead), (2, Dead)]), settled(2, 0, true, Some(1)));
    }

    #[test]
    fn at_one_offset_the_gravest_word_counts() {
        assert_eq!(settle(&at(0, 3, 0), 3, &[(1, Retry), (1, Dead), (1, Failed)]), settled(2, 0, true, Some(1)));
        assert_eq!(settle(&at(0, 3, 0), 3, &[(1, Retry), (1, Failed)]), settled(0, 1, true, None));
    }
}
