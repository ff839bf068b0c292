//! Pop: from a name to its candidates, from a candidate to a claim.
//!
//! A pop looks at as many candidates as it may claim before it claims any, so that all that has to be read is read at
//! once, and the batch is shared out in the order of the candidates.

use std::{collections::VecDeque, sync::Arc};

use super::{
    Log, Resolved, Step,
    batch::{CursorPlan, PopPlan, RunPlan, Settles},
    cache::{GroupKey, PartitionKey, QueueKey},
    group::{Known, Position, Scan, Standing},
    op::{Kind, OpKey, PopOp, Wait},
};
use crate::{
    request::{Answer, Conflation, PopRequest, Popped, Run, Scope, Slice, Start},
    row::{GroupRow, QUEUE_MODE},
    store::{Create, LeaseWrite, Load},
};

/// Bytes of stored segments that are read at a time.
pub(super) const LOAD_BYTES: u32 = 1024 * 1024;

/// A candidate that can be claimed.
struct Claim {
    group: GroupKey,
    partition: PartitionKey,
    position: Option<Position>,
    /// Where the run begins.
    next: u64,
    end: u64,
    slices: Vec<Slice>,
    messages: u64,
    bytes: usize,
}

/// How a pop claims.
#[derive(Clone, Copy)]
struct Terms {
    auto_ack: bool,
    lease_s: Option<i64>,
}

/// What a look at a candidate says.
enum Look {
    Claim(Claim),
    Nothing,
    /// Something is being read.
    Waits,
}

/// What a pop may still take.
struct Room {
    partitions: usize,
    messages: u64,
    bytes: usize,
    waits_for_more: bool,
}

impl Room {
    fn is_left(&self) -> bool {
        self.partitions > 0 && self.messages > 0 && self.bytes > 0
    }
}

/// What is to be read, and up to where.
pub(super) struct Reach {
    pub(super) from: u64,
    pub(super) messages: u64,
    pub(super) bytes: usize,
    /// Messages stamped later are not to be seen yet.
    pub(super) stamped_until_us: i64,
    /// What is not in memory is read, if there are no messages without it; for more messages only where this is set.
    pub(super) waits_for_more: bool,
}

/// Where a pop takes from.
enum Targets {
    /// The groups of queues.
    Groups,
    /// One partition.
    One(GroupKey, PartitionKey),
    /// Nothing of that name is there.
    Unborn,
    /// Something is being read or made.
    Waits,
}

impl PopOp {
    pub(super) fn new(request: PopRequest) -> Self {
        Self {
            request,
            groups: Vec::new(),
            discovered: None,
            came_us: None,
            linger_us: None,
            refreshed: false,
            unborn: false,
            listed: false,
            conflation: Conflation::No,
        }
    }

    /// The answer without messages.
    pub(super) fn empty(&self) -> Popped {
        Popped {
            tenant: self.request.tenant,
            group: Arc::clone(&self.request.group),
            conflation: self.conflation,
            ..Popped::default()
        }
    }
}

impl<T: Copy> Log<T> {
    pub(super) fn step_pop(&mut self, key: OpKey, pop: &mut PopOp) -> Step {
        if self.pops_paused {
            return Step::Answer(Answer::Popped(Popped { paused: true, ..pop.empty() }));
        }
        let now_us = self.now_us();
        pop.came_us.get_or_insert(now_us);
        let one = match self.targets(key, pop) {
            Targets::Waits => return Step::Waits,
            Targets::Unborn => return self.nothing(key, pop, None),
            Targets::One(group, partition) => Some((group, partition)),
            Targets::Groups => None,
        };
        let mut claims = Vec::new();
        // The newest message may be another broker's.
        if self.conflates_any(&pop.groups) && self.looks_at_others(key, &mut pop.refreshed, &[]) {
            return Step::Waits;
        }
        let waits_for_more = self.may_wait_for_more(key);
        let mut room = Room {
            partitions: if waits_for_more { pop.request.partitions as usize } else { 1 },
            messages: u64::from(pop.request.batch),
            bytes: self.config.answer_bytes_max,
            waits_for_more,
        };
        if let Some((group, partition)) = one {
            if let Look::Claim(claim) = self.look(key, group, partition, &room) {
                claims.push(claim);
            }
        } else {
            for index in 0..pop.groups.len() {
                let group = pop.groups[index];
                self.look_at_group(key, group, &mut claims, &mut room);
            }
        }
        if self.ops[key.slot].waits > 0 {
            return Step::Waits;
        }
        if claims.is_empty() {
            return self.nothing(key, pop, one);
        }
        let messages: u64 = claims.iter().map(|claim| claim.messages).sum();
        if messages < u64::from(pop.request.batch) && pop.request.batch > 1 && self.lingers(key, pop, claims[0].group) {
            return self.park(key, pop, one);
        }
        if !self.may_gather() {
            return Step::Stalled;
        }
        let terms = Terms { auto_ack: pop.request.auto_ack, lease_s: pop.request.lease_s };
        self.claim(key, terms, claims);
        Step::Waits
    }

    /// Finds what a pop takes from, registers its group where that is its first contact, and has candidates read.
    fn targets(&mut self, key: OpKey, pop: &mut PopOp) -> Targets {
        let tenant = pop.request.tenant;
        // Those of an earlier step may be gone.
        pop.groups.clear();
        match pop.request.scope.clone() {
            Scope::Partition(queue, partition) => {
                let queue = match self.resolve_queue(key, tenant, &queue, false) {
                    Resolved::Here(queue) => queue,
                    Resolved::Waits => return Targets::Waits,
                    Resolved::Absent => return Targets::Unborn,
                };
                let partition = match self.resolve_partition(key, queue, &partition, false) {
                    Resolved::Here(partition) => partition,
                    Resolved::Waits => return Targets::Waits,
                    Resolved::Absent => return Targets::Unborn,
                };
                if self.rereads_partition(key, partition) {
                    return Targets::Waits;
                }
                let group = self.group_of(queue, &pop.request.group);
                self.register_queue_mode(group);
                pop.groups = vec![group];
                if !self.seed_pinned(key, pop, group, partition) {
                    return Targets::Waits;
                }
                self.conflation(pop, group);
                Targets::One(group, partition)
            }
            Scope::Queue(queue) => {
                let Resolved::Here(queue) = self.resolve_queue(key, tenant, &queue, true) else {
                    return Targets::Waits;
                };
                if self.contact(key, pop, queue) { Targets::Groups } else { Targets::Waits }
            }
            Scope::Discover { namespace, task } => {
                let Some(queues) = pop.discovered.clone() else {
                    self.need(key, Load::Discover { tenant, namespace, task });
                    return Targets::Waits;
                };
                let mut contacts = true;
                for id in queues {
                    if let Some(queue) = self.cache.queue_by_id(id) {
                        contacts &= self.contact(key, pop, queue);
                    }
                }
                match (contacts, pop.groups.is_empty()) {
                    (false, _) => Targets::Waits,
                    (true, true) => Targets::Unborn,
                    (true, false) => Targets::Groups,
                }
            }
        }
    }

    /// Makes contact with a group on a queue: it is registered and its candidates are known. False while that lasts.
    fn contact(&mut self, key: OpKey, pop: &mut PopOp, queue: QueueKey) -> bool {
        let group = self.group_of(queue, &pop.request.group);
        self.register_queue_mode(group);
        if self.groups[group].row.is_none() {
            let id = self.cache.queues[queue].row.id;
            let name = Arc::clone(&pop.request.group);
            let wait = Wait::CreateGroup(id, Arc::clone(&name));
            if self.wait(key, wait.clone()) {
                let (mode, from_us) = match pop.request.start {
                    Start::All => ("all", Some(0)),
                    // What was answered before it came is stamped at most this; what comes while it is registered is new.
                    Start::New => ("new", pop.came_us.map(|came_us| came_us + 1)),
                    Start::From(from_us) => ("timestamp", Some(from_us)),
                };
                let conflation = pop.request.conflation.unwrap_or(false);
                let create = Create::Group { queue: id, group: name, mode: mode.into(), from_us, conflation };
                self.creates.push((wait, create));
            }
            return false;
        }
        if self.groups[group].scan != Scan::Done {
            self.scan(group);
            self.wait(key, Wait::Scan(group));
            return false;
        }
        self.conflation(pop, group);
        pop.groups.push(group);
        true
    }

    /// Queue mode needs no registration: it starts at the oldest message everywhere.
    fn register_queue_mode(&mut self, group: GroupKey) {
        let group = &mut self.groups[group];
        if &*group.name == QUEUE_MODE && group.row.is_none() {
            let name = Arc::clone(&group.name);
            group.row =
                Some(GroupRow { group: name, mode: "all".into(), from_us: 0, created_us: 0, conflation: false });
        }
    }

    /// Sets the cursor of a group that is not registered, at its first contact with a partition. False while that lasts.
    fn seed_pinned(&mut self, key: OpKey, pop: &PopOp, group: GroupKey, partition: PartitionKey) -> bool {
        if self.groups[group].is_busy(partition) {
            self.wait(key, Wait::Cursor(group, partition));
            return false;
        }
        let row = &self.cache.partitions[partition];
        let known = self.groups[group].known(partition);
        if matches!(known, Known::No) {
            let name = Arc::clone(&self.groups[group].name);
            self.need(key, Load::Cursor { partition: row.id, group: name });
            return false;
        }
        if !matches!(known, Known::Absent { .. }) || self.groups[group].row.is_some() {
            return true;
        }
        let next = match (pop.request.start, known) {
            (_, Known::Absent { start: Some(start) }) => start,
            (Start::All, _) => row.log_start,
            // It was there first: everything in the partition has come since.
            (Start::New, _) if pop.unborn => row.log_start,
            (Start::New, _) => row.next,
            (Start::From(stamp_us), _) => {
                self.need(key, Load::OffsetAt { partition: row.id, stamp_us });
                return false;
            }
        };
        if !self.may_gather() {
            self.stalled.push(key);
            return false;
        }
        let after = Position { version: self.new_version(), next, run_end: next, lease: None, retries: 0, consumed: 0 };
        self.wait(key, Wait::Cursor(group, partition));
        self.plan_cursor(group, partition, None, after, None, Settles::Nobody);
        false
    }

    fn conflates_any(&self, groups: &[GroupKey]) -> bool {
        groups.iter().any(|&group| self.groups[group].row.as_ref().is_some_and(|row| row.conflation))
    }

    fn conflation(&self, pop: &mut PopOp, group: GroupKey) {
        let conflates = self.groups[group].row.as_ref().is_some_and(|row| row.conflation);
        pop.conflation = match (conflates, pop.request.conflation) {
            (conflates, Some(asked)) if conflates != asked => Conflation::Conflict,
            (true, _) => Conflation::Yes,
            (false, _) => Conflation::No,
        };
    }

    fn look_at_group(&mut self, key: OpKey, group: GroupKey, claims: &mut Vec<Claim>, room: &mut Room) {
        self.groups[group].tidy();
        let mut at = 0;
        while room.is_left() && at < self.groups[group].ready.len() {
            let partition = self.groups[group].ready[at];
            at += 1;
            if !self.groups[group].is_ready(partition) {
                continue;
            }
            match self.look(key, group, partition, room) {
                Look::Claim(claim) => {
                    room.partitions -= 1;
                    room.messages -= claim.messages.min(room.messages);
                    room.bytes = room.bytes.saturating_sub(claim.bytes);
                    claims.push(claim);
                }
                Look::Waits => room.partitions -= 1,
                Look::Nothing => {}
            }
        }
    }

    fn look(&mut self, key: OpKey, group: GroupKey, partition: PartitionKey, room: &Room) -> Look {
        let now_us = self.now_us();
        let row = &self.cache.partitions[partition];
        let queue = &self.cache.queues[row.queue];
        let standing = self.groups[group].standing(partition, row, queue, now_us);
        if standing != Standing::Now {
            self.groups[group].place(partition, standing);
            self.note_group_time(group);
            return Look::Nothing;
        }
        if self.rereads_partition(key, partition) {
            return Look::Waits;
        }
        let row = &self.cache.partitions[partition];
        let queue = &self.cache.queues[row.queue];
        let (id, log_start, end) = (row.id, row.log_start, row.next);
        let (position, next) = match self.groups[group].known(partition) {
            Known::No => {
                let name = Arc::clone(&self.groups[group].name);
                self.need(key, Load::Cursor { partition: id, group: name });
                return Look::Waits;
            }
            Known::Row(position) => (Some(position), position.next),
            Known::Absent { start } => match start.or_else(|| self.groups[group].start(row)) {
                Some(start) => (None, start),
                None => {
                    let stamp_us = self.groups[group].row.as_ref().map_or(0, |row| row.from_us);
                    self.need(key, Load::OffsetAt { partition: id, stamp_us });
                    return Look::Waits;
                }
            },
        };
        let next = next.max(log_start);
        if next >= end {
            self.evaluate_or_drop(group, partition);
            return Look::Nothing;
        }
        let conflates = self.groups[group].row.as_ref().is_some_and(|row| row.conflation);
        // Without a delay all that is stored is to be seen, also what is stamped later than the time as it is known here.
        let delayed_s = queue.row.options.delayed_s;
        let stamped_until_us = if delayed_s == 0 { i64::MAX } else { now_us - delayed_s * 1_000_000 };
        let from = if conflates { end - 1 } else { next };
        let reach = Reach {
            from,
            messages: room.messages,
            bytes: room.bytes,
            stamped_until_us,
            waits_for_more: room.waits_for_more,
        };
        let Some((slices, bytes)) = self.slices(key, partition, &reach) else { return Look::Waits };
        let Some(last) = slices.last() else {
            // It is not to be seen yet, which only the segment could tell; or the segment cannot be read.
            self.evaluate_or_drop(group, partition);
            return Look::Nothing;
        };
        let end = last.to;
        let messages = slices.iter().map(|slice| slice.to - slice.from).sum();
        Look::Claim(Claim { group, partition, position, next, end, slices, messages, bytes })
    }

    fn evaluate_or_drop(&mut self, group: GroupKey, partition: PartitionKey) {
        let now_us = self.now_us();
        let row = &self.cache.partitions[partition];
        let standing = match self.groups[group].standing(partition, row, &self.cache.queues[row.queue], now_us) {
            Standing::Now => Standing::Nothing,
            later => later,
        };
        self.groups[group].place(partition, standing);
        self.note_group_time(group);
    }

    /// Messages of a partition from memory, and their bytes; `None` while segments are being read. At least one message
    /// where there is one, however large.
    pub(super) fn slices(&mut self, key: OpKey, partition: PartitionKey, reach: &Reach) -> Option<(Vec<Slice>, usize)> {
        let row = &self.cache.partitions[partition];
        let (mut offset, mut left, mut bytes) = (reach.from, reach.messages, 0);
        let mut slices = Vec::new();
        while offset < row.next && left > 0 && (bytes < reach.bytes || slices.is_empty()) {
            let Some(cached) = row.segment(offset) else {
                let load = Load::Segments { partition: row.id, from: offset, max_bytes: LOAD_BYTES };
                if self.is_absent(key, &load) || !reach.waits_for_more && !slices.is_empty() {
                    break;
                }
                self.need(key, load);
                return None;
            };
            let segment = &cached.segment;
            if segment.stamp_us > reach.stamped_until_us {
                break;
            }
            let mut to = segment.next().min(offset.saturating_add(left));
            while to > offset + 1 && bytes + segment.bytes_between(offset, to) > reach.bytes {
                to = offset + (to - offset).div_ceil(2);
            }
            let size = segment.bytes_between(offset, to);
            if bytes + size > reach.bytes && !slices.is_empty() {
                break;
            }
            bytes += size;
            left -= to - offset;
            slices.push(Slice { segment: Arc::clone(segment), from: offset, to });
            offset = to;
        }
        Some((slices, bytes))
    }

    fn claim(&mut self, key: OpKey, terms: Terms, claims: Vec<Claim>) {
        let lease_id = (!terms.auto_ack).then(|| self.new_id());
        let mut runs = Vec::with_capacity(claims.len());
        for claim in claims {
            let row = &self.cache.partitions[claim.partition];
            let queue = &self.cache.queues[row.queue].row;
            let lease_s = terms.lease_s.unwrap_or(queue.options.lease_s);
            let lease =
                lease_id.map(|id| LeaseWrite { id, floor_us: i64::MIN, for_us: lease_s.saturating_mul(1_000_000) });
            let before = claim.position;
            let retries = before.map_or(0, |position| position.retries);
            let again = before.is_some_and(|position| claim.next < position.run_end);
            let run = Run {
                queue: Arc::clone(&queue.name),
                partition: Arc::clone(&row.name),
                partition_id: row.id,
                number: row.number,
                attempt: 1 + retries.max(i64::from(again)).unsigned_abs(),
                slices: claim.slices,
            };
            let passed = if terms.auto_ack { claim.end - claim.next } else { 0 };
            let after = Position {
                version: self.new_version(),
                next: claim.next + passed,
                run_end: claim.end,
                lease: None,
                retries,
                consumed: before.map_or(0, |position| position.consumed) + passed,
            };
            let expect = before.map(|position| position.version);
            let tag = self.plan_cursor(claim.group, claim.partition, expect, after, lease, Settles::Claim);
            if run.slices.is_empty() {
                self.gathering.cursors[tag].needs_append = true;
            }
            runs.push(RunPlan { tag, partition: claim.partition, from: claim.next, to: claim.end, run });
        }
        self.ops[key.slot].committing = true;
        self.gathering.pops.push(PopPlan { op: key, lease: lease_id, runs });
    }

    /// Lets pops that wait for what the gathered batch appends claim it in the same commit: then a message is on its way
    /// after one commit, not two. Only where a pop would get it for sure once it is there: it is next for the group,
    /// nobody holds the partition, and nothing delays it.
    pub(super) fn meet(&mut self) {
        let mut appended: Vec<_> = self.gathering.appends.keys().copied().collect();
        appended.sort_unstable();
        for partition in appended {
            let queue = self.cache.partitions[partition].queue;
            let options = &self.cache.queues[queue].row.options;
            if options.delayed_s > 0 || options.window_buffer_s > 0 || options.min_pop_wait_ms > 0 {
                continue;
            }
            for group in self.cache.groups_of(queue) {
                if let Some(position) = self.would_claim(group, partition)
                    && let Some(key) = self.first_waiting(group, partition)
                {
                    self.claim_appended(key, group, partition, position);
                }
            }
        }
    }

    /// The cursor of a group that has come to where the gathered append of a partition begins; the inner `None` is one
    /// that is not there yet.
    fn would_claim(&self, key: GroupKey, partition: PartitionKey) -> Option<Option<Position>> {
        let group = &self.groups[key];
        let row = &self.cache.partitions[partition];
        if group.is_busy(partition) || group.row.as_ref().is_some_and(|row| row.conflation) {
            return None;
        }
        match group.known(partition) {
            Known::No => None,
            Known::Absent { start } => (start.or_else(|| group.start(row)) == Some(row.next)).then_some(None),
            Known::Row(position) => {
                let is_free = position.lease.is_none_or(|lease| lease.until_us <= self.now_us());
                (is_free && position.next.max(row.log_start) == row.next).then_some(Some(position))
            }
        }
    }

    /// The first pop that waits for this partition or for any of the group's, taken off the list.
    fn first_waiting(&mut self, group: GroupKey, partition: PartitionKey) -> Option<OpKey> {
        let pinned = self.groups[group].pinned.get_mut(&partition).map(std::mem::take).unwrap_or_default();
        let (first, pinned) = self.take_first(pinned);
        if pinned.is_empty() {
            self.groups[group].pinned.remove(&partition);
        } else {
            self.groups[group].pinned.insert(partition, pinned);
        }
        first.or_else(|| {
            let parked = std::mem::take(&mut self.groups[group].parked);
            let (first, parked) = self.take_first(parked);
            self.groups[group].parked = parked;
            first
        })
    }

    fn take_first(&mut self, mut waiting: VecDeque<OpKey>) -> (Option<OpKey>, VecDeque<OpKey>) {
        while let Some(key) = waiting.pop_front() {
            let Some(op) = self.op_mut(key) else { continue };
            if let Kind::Pop(pop) = &mut op.kind {
                pop.listed = false;
            }
            if op.parked {
                return (Some(key), waiting);
            }
        }
        (None, waiting)
    }

    fn claim_appended(&mut self, key: OpKey, group: GroupKey, partition: PartitionKey, position: Option<Position>) {
        self.counters.met += 1;
        let op = &mut self.ops[key.slot];
        op.parked = false;
        let Kind::Pop(pop) = &op.kind else { unreachable!("only pops wait in a group") };
        let terms = Terms { auto_ack: pop.request.auto_ack, lease_s: pop.request.lease_s };
        let append = &self.gathering.appends[&partition];
        let messages = append.fitting(u64::from(pop.request.batch), self.config.answer_bytes_max);
        let claim = Claim {
            group,
            partition,
            position,
            next: append.base,
            end: append.base + messages,
            slices: Vec::new(),
            messages,
            bytes: 0,
        };
        self.claim(key, terms, vec![claim]);
    }

    /// Plans a cursor's write.
    pub(super) fn plan_cursor(
        &mut self,
        group: GroupKey,
        partition: PartitionKey,
        expect: Option<i64>,
        after: Position,
        lease: Option<LeaseWrite>,
        settles: Settles,
    ) -> usize {
        let id = self.cache.partitions[partition].id;
        let name = Arc::clone(&self.groups[group].name);
        self.write_cursor(CursorPlan {
            tag: 0,
            group,
            partition,
            id,
            name,
            expect,
            after,
            lease,
            needs_append: false,
            dead: None,
            settles,
        })
    }

    /// Whether a pop that has less than its batch waits for more.
    fn lingers(&mut self, key: OpKey, pop: &mut PopOp, group: GroupKey) -> bool {
        let queue = self.groups[group].queue;
        let wait_us = self.cache.queues[queue].row.options.min_pop_wait_ms.unsigned_abs() * 1000;
        if wait_us == 0 || pop.request.wait_ms == 0 {
            return false;
        }
        let until_us = *pop.linger_us.get_or_insert_with(|| {
            let due_us = self.ops[key.slot].due_us;
            // Answered before its own time is over: with what there is, not with nothing.
            (self.mono_us + wait_us).min(due_us.saturating_sub(1000))
        });
        if self.mono_us >= until_us {
            return false;
        }
        self.timers.again_at(until_us, key);
        true
    }

    /// A pop has found nothing: it is answered so, or waits.
    fn nothing(&mut self, key: OpKey, pop: &mut PopOp, one: Option<(GroupKey, PartitionKey)>) -> Step {
        if self.looks_at_others(key, &mut pop.refreshed, &pop.groups) {
            return Step::Waits;
        }
        if pop.request.wait_ms == 0 {
            return Step::Answer(Answer::Popped(pop.empty()));
        }
        self.park(key, pop, one)
    }

    fn park(&mut self, key: OpKey, pop: &mut PopOp, one: Option<(GroupKey, PartitionKey)>) -> Step {
        let op = &mut self.ops[key.slot];
        if op.due_us <= self.mono_us {
            return Step::Answer(Answer::Popped(pop.empty()));
        }
        op.parked = true;
        // Next time it asks afresh what is there.
        op.absent.clear();
        self.refresh.somebody_waits(self.config.recheck_us, self.mono_us);
        if pop.groups.is_empty() || matches!(pop.request.scope, Scope::Discover { .. }) {
            pop.unborn = true;
            pop.discovered = None;
            if !self.unborn.contains(&key) {
                self.unborn.push(key);
            }
        }
        if let Some((group, partition)) = one {
            let waiting = self.groups[group].pinned.entry(partition).or_default();
            if !waiting.contains(&key) {
                waiting.push_back(key);
            }
        } else if pop.groups.len() == 1 {
            if !std::mem::replace(&mut pop.listed, true) {
                self.groups[pop.groups[0]].parked.push_back(key);
            }
        } else {
            for &group in &pop.groups {
                if !self.groups[group].parked.contains(&key) {
                    self.groups[group].parked.push_back(key);
                }
            }
        }
        Step::Waits
    }

    /// A partition has something for a group: one pop that waits for it looks.
    pub(super) fn wake_parked(&mut self, group: GroupKey, partition: PartitionKey) {
        if let Some(key) = self.first_waiting(group, partition) {
            self.make_ready(key);
        }
    }

    /// Candidates are left although a pop that was woken for one has gone: another looks.
    pub(super) fn kick(&mut self, groups: &[GroupKey]) {
        for &key in groups {
            let Some(group) = self.groups.get_mut(key) else { continue };
            group.tidy();
            if let Some(&partition) = group.ready.front() {
                self.wake_parked(key, partition);
            }
        }
    }

    /// Something was made that some may wait for.
    pub(super) fn wake_unborn(&mut self) {
        for key in std::mem::take(&mut self.unborn) {
            self.make_ready(key);
        }
    }

    /// Where a group starts in a partition was read.
    pub(super) fn start_found(&mut self, key: OpKey, partition: crate::id::PartitionId, offset: u64) {
        let Some(partition) = self.cache.partition_by_id(partition) else { return };
        let Some(Kind::Pop(pop)) = self.op(key).map(|op| &op.kind) else { return };
        for group in pop.groups.clone() {
            let Some(group) = self.groups.get_mut(group) else { continue };
            if group.queue == self.cache.partitions[partition].queue
                && let Known::Absent { start } = &mut group.cursor(partition).known
            {
                *start = Some(offset);
            }
        }
    }

    pub(super) fn cursor_read(
        &mut self,
        partition: crate::id::PartitionId,
        group: &Arc<str>,
        found: Option<&crate::row::CursorRow>,
    ) {
        let Some(partition) = self.cache.partition_by_id(partition) else { return };
        let queue = self.cache.partitions[partition].queue;
        let group = self.group_of(queue, group);
        let cursor = self.groups[group].cursor(partition);
        if cursor.busy {
            return;
        }
        cursor.known = found.map_or(Known::Absent { start: None }, |row| Known::Row(row.into()));
        self.evaluate(group, partition);
    }
}
