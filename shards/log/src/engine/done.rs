//! What the store has done: the cache follows, and operations are answered or go on.

use std::sync::Arc;

use super::{
    Job, JobId, Log,
    batch::{AppendPlan, CursorPlan, MessagePlan, PartPlan, Plan, PopPlan, RunPlan, Settles},
    cache::{PartitionKey, QueueKey},
    dedup,
    group::{Known, Scan},
    op::{AckState, Kind, OpKey, PartState, Wait},
};
use crate::{
    id::PartitionId,
    request::{Answer, Failure, Popped, Pushed, Run, Slice},
    row::{GroupRow, Lease, PartitionRow, QueueRow, SegmentRow},
    segment::Segment,
    store::{Committed, Created, Done, Load, Loaded, StoreFailure},
};

impl<T: Copy> Log<T> {
    /// Takes the outcome of a piece of work.
    ///
    /// # Panics
    /// When there is no such job, or its outcome is of another kind.
    pub fn done(&mut self, job: JobId, outcome: Result<Done, StoreFailure>, mono_us: u64) {
        self.mono_us = mono_us;
        let number = job;
        self.outcome_of = number;
        let job = self.jobs.remove(&number).expect("a job that was started, once");
        match (job, outcome) {
            (Job::Load(load), Ok(Done::Loaded(loaded))) => self.loaded(&load, loaded),
            (Job::Load(load), Err(failure)) => self.fail_all(&Wait::Load(load), &failure),
            (Job::Create(waits), Ok(Done::Created(created))) => {
                for (wait, created) in waits.iter().zip(created) {
                    self.created(wait, created);
                }
            }
            (Job::Create(waits), Err(failure)) => {
                for wait in &waits {
                    self.fail_all(wait, &failure);
                }
            }
            (Job::Commit(plan), Ok(Done::Committed(committed))) => self.committed(number, *plan, &committed),
            (Job::Commit(plan), Err(failure)) => self.not_committed(number, *plan, &failure),
            (Job::Admin(op), Ok(Done::Admin(done))) => self.admin_done(op, done),
            (Job::Admin(op) | Job::Read(op), Err(failure)) => self.fail(op, &failure),
            (Job::Read(op), Ok(Done::Read(answer))) => self.finish(op, Answer::Read(answer)),
            (Job::Clock, Ok(Done::Loaded(Loaded::Clock(now_us)))) => self.clock.read(now_us, mono_us),
            (Job::Horizon, Ok(Done::Loaded(Loaded::Changed { safe_us, .. }))) => self.horizon_read(safe_us),
            (Job::Horizon | Job::Clock, Err(failure)) => self.store_is_away(&failure),
            (Job::Refresh, Ok(Done::Loaded(loaded))) => self.refreshed(loaded),
            (Job::Refresh, Err(_)) => self.not_refreshed(),
            (Job::Retaining, Ok(Done::Loaded(Loaded::Queues(queues)))) => self.retaining(queues),
            (Job::Retain, Ok(Done::Admin(done))) => self.retained(done),
            (Job::Retaining | Job::Retain, Err(_)) => self.retention_failed(),
            (_, Ok(done)) => panic!("the store answered something else: {done:?}"),
        }
    }

    /// The store is back after it was away: what waits for messages looks again.
    pub fn store_is_back(&mut self, mono_us: u64) {
        self.mono_us = mono_us;
        for key in std::mem::take(&mut self.outage) {
            self.make_ready(key);
        }
    }

    /// The store could not even be asked for its time: it is asked again when it is back, or somebody else asks.
    fn store_is_away(&mut self, failure: &StoreFailure) {
        self.asked_time = false;
        if self.retention.is_due(self.mono_us) {
            self.retention_failed();
        }
        for key in std::mem::take(&mut self.ready) {
            if let Some(op) = self.op_mut(key) {
                op.queued = false;
                self.fail(key, failure);
            }
        }
    }

    fn fail_all(&mut self, wait: &Wait, failure: &StoreFailure) {
        if let Wait::Load(load) = wait {
            self.scan_failed(load, failure);
        }
        for key in self.wake(wait) {
            self.fail(key, failure);
        }
    }

    /// Answers an operation with a failure, unless it waits for messages: then it waits on.
    pub(super) fn fail(&mut self, key: OpKey, failure: &StoreFailure) {
        let mono_us = self.mono_us;
        let Some(op) = self.op_mut(key) else { return };
        let answer = match (&mut op.kind, failure) {
            (Kind::Pop(pop), StoreFailure::Unavailable(_)) if pop.request.wait_ms > 0 => {
                if op.due_us > mono_us {
                    op.parked = true;
                    self.outage.push(key);
                    return;
                }
                Answer::Popped(pop.empty())
            }
            (Kind::Ack(ack), StoreFailure::Unavailable(_)) => Answer::Acked(ack.unavailable()),
            (_, StoreFailure::Unavailable(why)) => Answer::Failed(Failure::Unavailable(why.clone())),
            (_, StoreFailure::Refused(why)) => Answer::Failed(Failure::Refused(why.clone())),
        };
        self.finish(key, answer);
    }

    fn loaded(&mut self, load: &Load, loaded: Loaded) {
        let waiters = self.waits.get(&Wait::Load(load.clone())).cloned().unwrap_or_default();
        let mut absent = false;
        match (load, loaded) {
            (Load::Queue { .. }, Loaded::Queue(found)) => match found {
                Some((row, groups)) => drop(self.put_queue(&row, groups)),
                None => absent = true,
            },
            (Load::Discover { .. }, Loaded::Queues(found)) => {
                let ids: Vec<_> = found.iter().map(|(row, _)| row.id).collect();
                for (row, groups) in found {
                    self.put_queue(&row, groups);
                }
                for key in &waiters {
                    if let Some(op) = self.op_mut(*key)
                        && let Kind::Pop(pop) = &mut op.kind
                    {
                        pop.discovered = Some(ids.clone());
                    }
                }
            }
            (Load::Partition { queue, .. }, Loaded::Partition(found)) => match found {
                Some(row) => self.put_partition_of(*queue, &row),
                None => absent = true,
            },
            (Load::PartitionById(id), Loaded::PartitionById(found)) => match found {
                Some((row, queue, groups)) => {
                    let queue = self.put_queue(&queue, groups);
                    self.put_partition(&row, queue);
                }
                None => {
                    absent = true;
                    self.partition_is_gone(*id);
                }
            },
            (Load::Partitions { .. }, Loaded::Partitions(rows)) => self.scanned_partitions(load, &rows),
            (Load::CursorsOf { .. }, Loaded::Cursors(rows)) => self.scanned_cursors(load, &rows),
            (Load::Cursor { partition, group }, Loaded::Cursor(found)) => {
                absent = found.is_none();
                self.cursor_read(*partition, group, found.as_ref());
            }
            (Load::Segments { partition, from, .. }, Loaded::Segments(rows)) => {
                absent = !self.take_segments(*partition, *from, rows);
            }
            (Load::Indexes { .. }, Loaded::Indexes(rows)) => self.take_indexes(load, &rows, &waiters),
            (Load::OffsetAt { partition, .. }, Loaded::Offset(offset)) => {
                for key in &waiters {
                    self.start_found(*key, *partition, offset);
                }
            }
            (load, loaded) => panic!("{load:?} was answered with {loaded:?}"),
        }
        if absent {
            for key in &waiters {
                if let Some(op) = self.op_mut(*key) {
                    op.absent.push(load.clone());
                }
            }
        }
        self.wake(&Wait::Load(load.clone()));
    }

    /// Takes segments in. False where one of them cannot be read.
    fn take_segments(&mut self, id: PartitionId, from: u64, rows: Vec<SegmentRow>) -> bool {
        let Some(key) = self.cache.partition_by_id(id) else { return true };
        let log_start = rows.first().map_or(self.cache.partitions[key].next, |first| first.base);
        if log_start > from {
            // What was asked for has been removed meanwhile.
            self.cache.start_log_at(key, log_start.min(self.cache.partitions[key].next));
        }
        let mut readable = true;
        for row in rows {
            match self.packer.unpack(&row.data, row.base, row.next, row.stamp_us) {
                Ok(segment) => {
                    self.counters.segments_loaded += 1;
                    self.cache.put_segment(key, Arc::new(segment), dedup::unpack(&row.hashes).into());
                }
                Err(error) => {
                    self.damaged.push((id, error));
                    readable = false;
                }
            }
        }
        readable
    }

    /// Takes a queue's row in, with its groups. A queue that was made again under its name displaces the old one.
    pub(super) fn put_queue(&mut self, row: &QueueRow, groups: Vec<GroupRow>) -> QueueKey {
        let (key, displaced) = self.cache.put_queue(row);
        if let Some(old) = displaced {
            self.forget_queue(old);
        }
        for row in groups {
            self.put_group(key, row);
        }
        key
    }

    fn put_group(&mut self, queue: QueueKey, row: GroupRow) {
        let group = self.group_of(queue, &row.group);
        self.groups[group].row = Some(row);
    }

    fn put_partition_of(&mut self, queue: crate::id::QueueId, row: &PartitionRow) {
        if let Some(queue) = self.cache.queue_by_id(queue) {
            self.put_partition(row, queue);
        }
    }

    /// Takes a partition's row in; groups that have read their candidates look at it.
    pub(super) fn put_partition(&mut self, row: &PartitionRow, queue: QueueKey) -> PartitionKey {
        if let Some(key) = self.cache.partition_by_id(row.id)
            && self.has_lost(key, row)
        {
            self.lost.push(row.id);
            self.forget_partitions(queue, &[key]);
        }
        let before = self.cache.partition_by_id(row.id).map(|key| self.cache.partitions[key].next);
        let new = before.is_none();
        let key = self.cache.put_partition(row, queue);
        if before != Some(self.cache.partitions[key].next) {
            self.cache.partitions[key].known_by = self.last_job;
        }
        if new {
            self.wake_unborn();
            if row.next > 0 {
                self.cursors_may_be_there(key, queue);
            }
        }
        self.evaluate_groups(key);
        key
    }

    /// Whether the store does not have any more what it said to be committed: it was restored, or another server with less
    /// of it took over. A row tells that if it was asked for after everything that is known of the partition.
    fn has_lost(&self, key: PartitionKey, row: &PartitionRow) -> bool {
        let partition = &self.cache.partitions[key];
        row.next < partition.next && !partition.underway.any() && self.outcome_of > partition.known_by
    }

    /// A partition that is not young came after a group's cursors were read: it may have one.
    fn cursors_may_be_there(&mut self, partition: PartitionKey, queue: QueueKey) {
        for group in self.cache.groups_of(queue) {
            let group = &mut self.groups[group];
            if group.scan == Scan::Done && !group.cursors.contains_key(&partition) {
                group.cursor(partition).known = Known::No;
            }
        }
    }

    fn created(&mut self, wait: &Wait, created: Created) {
        match (wait, created) {
            (Wait::CreateQueue(..), Created::Queue(row, groups)) => {
                self.put_queue(&row, groups);
                self.wake_unborn();
            }
            (Wait::CreatePartition(queue, _), Created::Partition(row)) => self.put_partition_of(*queue, &row),
            (Wait::CreateGroup(queue, _), Created::Group(row)) => {
                // The time of its making is a reading of the store's clock.
                self.clock.read(row.created_us, self.mono_us);
                if let Some(queue) = self.cache.queue_by_id(*queue) {
                    self.put_group(queue, row);
                }
            }
            (Wait::CreatePartition(queue, _) | Wait::CreateGroup(queue, _), Created::Gone) => {
                if let Some(queue) = self.cache.queue_by_id(*queue) {
                    self.forget_queue(queue);
                }
            }
            (wait, created) => panic!("{wait:?} was answered with {created:?}"),
        }
        self.wake(wait);
    }

    fn committed(&mut self, job: JobId, plan: Plan, committed: &Committed) {
        self.clock.read(committed.now_us, self.mono_us);
        self.commit_is_over(job);
        self.counters.batches += 1;
        let mut written = vec![false; plan.cursors.len()];
        for (append, &stamp_us) in plan.appends.into_iter().zip(&committed.stamps) {
            match stamp_us {
                Some(stamp_us) => self.appended(job, append, stamp_us),
                None => self.append_left_out(append),
            }
        }
        for (cursor, &done) in plan.cursors.into_iter().zip(&committed.cursors) {
            written[cursor.tag] = done;
            self.cursor_written(cursor, done.then_some(committed.now_us));
        }
        for pop in plan.pops {
            self.claimed(pop, &written);
        }
    }

    fn appended(&mut self, job: JobId, append: AppendPlan, stamp_us: i64) {
        let key = append.partition;
        let next = append.base + append.ends.len() as u64;
        let partition = &mut self.cache.partitions[key];
        partition.underway.written(job);
        // Another broker may have written behind it since; then that is known already.
        if partition.next == append.base {
            partition.next = next;
            partition.stamp_us = stamp_us;
            partition.known_by = self.last_job;
        }
        partition.ahead_us = partition.ahead_us.max(append.ahead_us);
        let number = partition.number;
        self.counters.appends += 1;
        self.counters.messages_in += append.ends.len() as u64;
        if self.cache.queues[self.cache.partitions[key].queue].row.options.dedup_window_s > 0 {
            self.cache.index_appended(key, append.base, stamp_us, &append.hashes);
        }
        let segment = Segment { base: append.base, stamp_us, bytes: append.bytes.into(), ends: append.ends.into() };
        self.cache.put_segment(key, Arc::new(segment), append.hashes.into());
        for PartPlan { op, part, messages } in append.parts {
            let messages: Vec<_> = messages
                .into_iter()
                .map(|message| match message {
                    MessagePlan::New { offset } => Pushed::Queued { offset, stamp_us },
                    MessagePlan::Twin { offset } => Pushed::Duplicate { offset, stamp_us },
                    MessagePlan::Known { offset, stamp_us } => Pushed::Duplicate { offset, stamp_us },
                })
                .collect();
            let new = messages.iter().filter(|message| matches!(message, Pushed::Queued { .. })).count();
            self.counters.duplicates += (messages.len() - new) as u64;
            self.part_done(op, part, PartState::Done { number, messages });
        }
        self.wake(&Wait::Append(key));
        self.tell_available(key);
        self.evaluate_groups(key);
        self.append_is_over(key);
    }

    fn part_done(&mut self, key: OpKey, part: usize, done: PartState) {
        let Some(op) = self.op_mut(key) else { return };
        let Kind::Push(push) = &mut op.kind else { unreachable!("a push is a push") };
        push.parts[part] = done;
        push.left -= 1;
        let over = push.left == 0;
        if over || op.waits == 0 {
            self.make_ready(key);
        }
    }

    /// Another broker was faster, or the partition is gone: its row is read, and the pushes are planned again.
    fn append_left_out(&mut self, append: AppendPlan) {
        self.counters.conflicts += 1;
        let id = append.id;
        self.append_failed(append);
        // Also if nobody pushes again: those that pop want what the other has written.
        self.read(Load::PartitionById(id));
    }

    /// Gives pushes back what they have put into a segment that was not written.
    pub(super) fn return_parts(&mut self, append: AppendPlan) {
        let AppendPlan { partition, base, bytes, ends, hashes, parts, .. } = append;
        for PartPlan { op, part, messages } in parts {
            let Some(op_here) = self.op_mut(op) else { continue };
            let Kind::Push(push) = &mut op_here.kind else { unreachable!("a push is a push") };
            let records = &mut push.request.parts[part].records;
            if records.ends.is_empty() {
                // Its bytes had become the segment's. They begin it: it was the first.
                let count = messages.len();
                let end = ends[count - 1];
                records.bytes = bytes[..end as usize].to_vec();
                records.ends = ends[..count].to_vec();
                records.hashes = hashes[..count].to_vec();
                debug_assert!(matches!(messages[0], MessagePlan::New { offset } if offset == base));
            }
            push.parts[part] = PartState::Todo;
            if op_here.waits == 0 {
                self.make_ready(op);
            }
        }
        self.wake(&Wait::Append(partition));
    }

    /// The store did nothing of a batch, and is known not to.
    fn not_committed(&mut self, job: JobId, plan: Plan, failure: &StoreFailure) {
        self.commit_is_over(job);
        for append in plan.appends {
            let ops: Vec<_> = append.parts.iter().map(|part| part.op).collect();
            // What another broker has written meanwhile was passed over.
            self.append_failed(append);
            for op in ops {
                self.fail(op, failure);
            }
        }
        for pop in &plan.pops {
            if let Some(op) = self.op_mut(pop.op) {
                op.committing = false;
            }
            self.fail(pop.op, failure);
        }
        for cursor in plan.cursors {
            if let Settles::Ack { op, .. } = cursor.settles {
                self.fail(op, failure);
            }
            self.cursor_freed(cursor.group, cursor.partition);
        }
    }

    fn cursor_written(&mut self, plan: CursorPlan, now_us: Option<i64>) {
        let cursor = self.groups[plan.group].cursor(plan.partition);
        match now_us {
            Some(now_us) => {
                let lease = plan.lease.map(|lease| Lease {
                    id: lease.id,
                    until_us: lease.floor_us.max(now_us.saturating_add(lease.for_us)),
                });
                cursor.known = Known::Row(super::group::Position { lease, ..plan.after });
            }
            None => {
                cursor.known = Known::No;
                self.counters.conflicts += 1;
                // Perhaps the partition is gone; reading its row tells.
                self.cache.partitions[plan.partition].stale = true;
            }
        }
        let claims = matches!(plan.settles, Settles::Claim);
        if let Settles::Ack { op, group, results } = plan.settles {
            self.acks_written(op, group, results, now_us.is_some());
        }
        self.cursor_freed(plan.group, plan.partition);
        if !claims && now_us.is_some() && self.groups[plan.group].is_ready(plan.partition) {
            // Set free, and not empty: those who wait elsewhere may have it.
            self.tell_available(plan.partition);
        }
    }

    fn acks_written(&mut self, key: OpKey, group: usize, results: Vec<(usize, crate::request::Acked)>, done: bool) {
        let Some(op) = self.op_mut(key) else { return };
        let Kind::Ack(ack) = &mut op.kind else { unreachable!("acks are acks") };
        ack.groups[group].state = if done { AckState::Done } else { AckState::Todo };
        if done {
            for (item, result) in results {
                ack.results[item] = Some(result);
            }
        }
        if op.waits == 0 {
            self.make_ready(key);
        }
    }

    /// A cursor is in no commit any more.
    pub(super) fn cursor_freed(&mut self, group: usize, partition: PartitionKey) {
        self.groups[group].cursor(partition).busy = false;
        self.wake(&Wait::Cursor(group, partition));
        self.evaluate(group, partition);
    }

    fn claimed(&mut self, pop: PopPlan, written: &[bool]) {
        let written = pop.runs.into_iter().filter(|plan| written[plan.tag]);
        let runs: Vec<_> = written.map(|plan| self.handed_out(plan)).collect();
        let Some(op) = self.op_mut(pop.op) else { return };
        op.committing = false;
        let Kind::Pop(asked) = &op.kind else { unreachable!("a pop is a pop") };
        if runs.is_empty() {
            // Others were faster with all of it.
            self.make_ready(pop.op);
            return;
        }
        let popped = Popped { lease: pop.lease, runs, ..asked.empty() };
        let slices = popped.runs.iter().flat_map(|run| &run.slices);
        self.counters.messages_out += slices.map(|slice| slice.to - slice.from).sum::<u64>();
        self.finish(pop.op, Answer::Popped(popped));
    }

    /// A claim that was written, with its messages.
    fn handed_out(&self, plan: RunPlan) -> Run {
        let RunPlan { partition, from, to, mut run, .. } = plan;
        if run.slices.is_empty() {
            let cached = self.cache.partitions[partition].segment(from).expect("the same batch has appended it");
            run.slices.push(Slice { segment: Arc::clone(&cached.segment), from, to });
        }
        run
    }

    /// Puts a partition where it stands for a group, and wakes who waits for it.
    pub(super) fn evaluate(&mut self, group: usize, partition: PartitionKey) {
        let now_us = self.now_us();
        let Some(row) = self.cache.partitions.get(partition) else { return };
        let queue = &self.cache.queues[row.queue];
        let group_row = &mut self.groups[group];
        let standing = group_row.standing(partition, row, queue, now_us);
        let ready = group_row.place(partition, standing);
        self.note_group_time(group);
        if ready {
            self.wake_parked(group, partition);
        }
    }

    /// All groups of a partition's queue look at it.
    pub(super) fn evaluate_groups(&mut self, partition: PartitionKey) {
        let queue = self.cache.partitions[partition].queue;
        for group in self.cache.groups_of(queue) {
            let reads_all = self.groups[group].scan == Scan::Done;
            if reads_all || self.groups[group].cursors.contains_key(&partition) {
                self.evaluate(group, partition);
            }
        }
        self.wake_fetches(partition);
    }
}
