//! The batch that is being gathered, and what has to be known of it when it is committed.

use std::{mem, sync::Arc};

use hashbrown::HashMap;

use super::{
    Job, JobId, Log,
    cache::{GroupKey, PartitionKey},
    dedup,
    group::Position,
    op::OpKey,
    underway::Sent,
};
use crate::{
    id::{LeaseId, PartitionId},
    request::{Acked, Run},
    row::DeadLetter,
    store::{Append, Batch, CursorWrite, LeaseWrite, Work},
};

/// A segment takes in further pushes until it has so many bytes; a single push is never split.
const SEGMENT_BYTES: usize = 1024 * 1024;

/// A batch takes in more until it has so many bytes or rows.
const BATCH_BYTES: usize = 8 * 1024 * 1024;
const BATCH_ROWS: usize = 2000;

/// So many batches are under way whatever is in them, besides those that follow others: one is made durable while the
/// next is written.
const COMMITS_EAGER: usize = 2;

/// A commit that takes longer than this is not counted among those: whatever holds it up, a lock or a connection that has
/// fallen silent, must not hold up the others.
const COMMIT_LONG_US: u64 = 100_000;

/// A batch of so many bytes or rows is worth a further commit beside them. Smaller ones wait for one of the others to end
/// and grow: each commit has a price of its own, and shares of two large ones cost less than eight small ones.
const WORTH_BYTES: usize = 256 * 1024;
const WORTH_ROWS: usize = 256;

/// The batch that is being gathered.
#[derive(Debug, Default)]
pub(super) struct Gathering {
    pub(super) appends: HashMap<PartitionKey, AppendPlan>,
    pub(super) cursors: Vec<CursorPlan>,
    pub(super) pops: Vec<PopPlan>,
    bytes: usize,
    messages: usize,
}

/// A batch in commit: what to do when it is done.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) appends: Vec<AppendPlan>,
    pub(super) cursors: Vec<CursorPlan>,
    pub(super) pops: Vec<PopPlan>,
}

/// A commit under way.
#[derive(Debug)]
pub(super) struct Commit {
    pub(super) job: JobId,
    /// The one that it follows, which may be over.
    pub(super) behind: Option<JobId>,
    started_us: u64,
}

/// A segment that is being put together.
#[derive(Debug)]
pub(super) struct AppendPlan {
    pub(super) partition: PartitionKey,
    pub(super) id: PartitionId,
    pub(super) base: u64,
    pub(super) ahead_us: i64,
    pub(super) mark: i64,
    pub(super) follows: Option<i64>,
    pub(super) bytes: Vec<u8>,
    pub(super) ends: Vec<u32>,
    pub(super) hashes: Vec<u64>,
    /// Where an id of this hash stands among the records, the latest; others are found from there on down.
    pub(super) ids: HashMap<u64, Vec<u32>>,
    pub(super) parts: Vec<PartPlan>,
}

/// One part of a push in a segment.
#[derive(Debug)]
pub(super) struct PartPlan {
    pub(super) op: OpKey,
    pub(super) part: usize,
    pub(super) messages: Vec<MessagePlan>,
}

/// What becomes of a message once the segment is written.
#[derive(Debug, Clone, Copy)]
pub(super) enum MessagePlan {
    New {
        offset: u64,
    },
    /// It repeats one of the same segment.
    Twin {
        offset: u64,
    },
    /// It repeats one that is stored.
    Known {
        offset: u64,
        stamp_us: i64,
    },
}

/// A cursor that is being written.
#[derive(Debug)]
pub(super) struct CursorPlan {
    /// Its place among the batch's cursors as they were planned.
    pub(super) tag: usize,
    pub(super) group: GroupKey,
    pub(super) partition: PartitionKey,
    pub(super) id: PartitionId,
    pub(super) name: Arc<str>,
    pub(super) expect: Option<i64>,
    pub(super) after: Position,
    pub(super) lease: Option<LeaseWrite>,
    /// The append of its partition, in the same batch, has to be written too.
    pub(super) needs_append: bool,
    pub(super) dead: Option<DeadLetter>,
    pub(super) settles: Settles,
}

/// Whose cursor it is.
#[derive(Debug)]
pub(super) enum Settles {
    /// A claim of the pop with this place among the batch's.
    Claim,
    /// Acks: the group of them, and their results if it is written.
    Ack { op: OpKey, group: usize, results: Vec<(usize, Acked)> },
    /// Nobody is told.
    Nobody,
}

/// A pop whose claims are being written.
#[derive(Debug)]
pub(super) struct PopPlan {
    pub(super) op: OpKey,
    pub(super) lease: Option<LeaseId>,
    pub(super) runs: Vec<RunPlan>,
}

/// A claim of a pop.
#[derive(Debug)]
pub(super) struct RunPlan {
    /// Of its cursor.
    pub(super) tag: usize,
    pub(super) partition: PartitionKey,
    pub(super) from: u64,
    pub(super) to: u64,
    /// What is handed out. Its slices are empty where the same batch appends them.
    pub(super) run: Run,
}

impl AppendPlan {
    /// Whether another push may join.
    pub(super) fn is_full(&self) -> bool {
        self.bytes.len() >= SEGMENT_BYTES
    }

    /// How many of its first records fit into an answer; the first always does.
    pub(super) fn fitting(&self, messages: u64, bytes: usize) -> u64 {
        let fitting = self.ends.partition_point(|&end| end as usize <= bytes) as u64;
        fitting.clamp(1, messages.max(1)).min(self.ends.len() as u64)
    }
}

impl Gathering {
    pub(super) fn is_empty(&self) -> bool {
        self.appends.is_empty() && self.cursors.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.bytes >= BATCH_BYTES || self.appends.len() + self.cursors.len() >= BATCH_ROWS
    }

    fn is_worth_a_commit(&self) -> bool {
        self.bytes >= WORTH_BYTES || self.appends.len() + self.cursors.len() >= WORTH_ROWS
    }

    /// Counts what an append took in.
    pub(super) fn grew(&mut self, bytes: usize, messages: usize) {
        self.bytes += bytes;
        self.messages += messages;
    }

    /// Takes an append out.
    pub(super) fn remove(&mut self, partition: PartitionKey) -> Option<AppendPlan> {
        let append = self.appends.remove(&partition)?;
        self.bytes -= append.bytes.len();
        self.messages -= append.ends.len();
        Some(append)
    }

    /// Takes in what was gathered to follow a commit that is over now.
    pub(super) fn join(&mut self, following: Self) {
        self.appends.extend(following.appends);
        self.bytes += following.bytes;
        self.messages += following.messages;
    }

    /// Messages of all its appends.
    pub(super) fn messages(&self) -> usize {
        self.messages
    }
}

impl<T: Copy> Log<T> {
    /// Whether writes can be planned now. They may have to wait for a commit to end.
    pub(super) fn may_gather(&self) -> bool {
        !self.gathering.is_full()
    }

    /// Plans a cursor's write and holds the cursor. The tag names it within the batch.
    pub(super) fn write_cursor(&mut self, mut plan: CursorPlan) -> usize {
        let tag = self.gathering.cursors.len();
        plan.tag = tag;
        let group = &mut self.groups[plan.group];
        group.take(plan.partition);
        group.cursor(plan.partition).busy = true;
        self.gathering.cursors.push(plan);
        tag
    }

    /// Sends off what is gathered, if there is anything and it is its turn.
    pub(super) fn emit_commit(&mut self) {
        self.emit_following();
        if self.gathering.is_empty() || !self.may_start() {
            return;
        }
        self.meet();
        let gathering = mem::take(&mut self.gathering);
        self.send(gathering, None);
    }

    fn may_start(&self) -> bool {
        let most = self.config.commits_max;
        let lanes = self.lanes().count();
        lanes < most && (self.eager().count() < COMMITS_EAGER || self.gathering.is_worth_a_commit())
    }

    /// Commits that follow none: each has a connection of the store's.
    pub(super) fn lanes(&self) -> impl Iterator<Item = &Commit> {
        self.commits.iter().filter(|commit| commit.behind.is_none_or(|behind| !self.is_in_commit(behind)))
    }

    fn eager(&self) -> impl Iterator<Item = &Commit> {
        self.lanes().filter(|commit| self.mono_us < commit.started_us + COMMIT_LONG_US)
    }

    /// When what is gathered can be sent off at the latest, though no commit ends before.
    pub(super) fn gathered_due_us(&self) -> Option<u64> {
        let waits = !self.gathering.is_empty() && self.lanes().count() < self.config.commits_max;
        let first = self.eager().map(|commit| commit.started_us + COMMIT_LONG_US).min();
        first.filter(|_| waits)
    }

    /// Whether a commit is under way.
    pub(super) fn is_in_commit(&self, job: JobId) -> bool {
        self.commits.iter().any(|commit| commit.job == job)
    }

    /// A commit is over.
    pub(super) fn commit_is_over(&mut self, job: JobId) {
        self.commits.retain(|commit| commit.job != job);
    }

    /// Sends a batch off, behind the commit that it follows.
    pub(super) fn send(&mut self, gathering: Gathering, behind: Option<JobId>) {
        self.lately = [gathering.messages, self.lately[0]];
        let mut plan = Plan {
            appends: gathering.appends.into_values().collect(),
            cursors: gathering.cursors,
            pops: gathering.pops,
        };
        plan.appends.sort_unstable_by_key(|append| append.id);
        plan.cursors.sort_by(|a, b| (a.id, &a.name).cmp(&(b.id, &b.name)));
        let appends = plan.appends.iter().map(|append| {
            let partition = &self.cache.partitions[append.partition];
            Append {
                partition: append.id,
                queue: self.cache.queues[partition.queue].row.id,
                base: append.base,
                next: append.base + append.ends.len() as u64,
                floor_us: partition.stamp_us,
                ahead_us: append.ahead_us,
                mark: append.mark,
                follows: append.follows,
                hashes: dedup::pack(&append.hashes),
                data: self.packer.pack(&append.bytes),
            }
        });
        let appends = appends.collect();
        let appended = &plan.appends;
        let place = |id| appended.binary_search_by_key(&id, |append| append.id).ok();
        let mut dead = Vec::new();
        let cursors = plan.cursors.iter_mut().enumerate().map(|(at, cursor)| {
            dead.extend(cursor.dead.take().map(|letter| (at, letter)));
            CursorWrite {
                partition: cursor.id,
                group: Arc::clone(&cursor.name),
                expect: cursor.expect,
                version: cursor.after.version,
                needs_append: cursor.needs_append.then(|| place(cursor.id).expect("it is in the same batch")),
                next: cursor.after.next,
                run_end: cursor.after.run_end,
                lease: cursor.lease,
                retries: cursor.after.retries,
                consumed: cursor.after.consumed,
            }
        });
        let cursors = cursors.collect();
        let job = self.start(Job::Commit(Box::new(plan)), Work::Commit(Batch { behind, appends, cursors, dead }));
        self.commits.push(Commit { job, behind, started_us: self.mono_us });
        let Job::Commit(plan) = &self.jobs[&job] else { unreachable!("just started") };
        for append in &plan.appends {
            let next = append.base + append.ends.len() as u64;
            let sent = Sent { job, mark: append.mark, next, ahead_us: append.ahead_us };
            self.cache.partitions[append.partition].underway.sent(sent);
        }
    }
}
