//! The durable log as a state machine: requests and a time in, work for a store and answers out.
//!
//! ```text
//! submit(request) ──► ready ──► step: what is missing is read or made ──► waits ──► ready again
//!                                │ everything is known: its writes go into the batch that is being gathered
//!                                ▼
//!                     one batch, one commit ──► done: the cache follows, operations are answered or go on
//! ```
//!
//! What a step needs of the store is in the [cache] or is asked for; an operation that waits holds nothing. A
//! batch holds what it writes: an append its partition, a claim or an ack its cursor. Others wait for it. So plans are
//! made against rows that no other batch of this node is changing, and what another broker changes meanwhile the store
//! leaves out: then the row is read again and the operation goes on from there.
//!
//! Requests that arrive while all commits are under way gather and form the next batch. No timer delays one.

mod ack;
mod admin;
mod batch;
mod cache;
mod clock;
mod dedup;
mod done;
mod fetch;
mod forget;
mod group;
mod ids;
mod op;
mod others;
mod pop;
mod push;
mod read;
mod refresh;
mod room;
mod scan;
mod timers;
mod underway;

use std::{
    collections::{BTreeSet, VecDeque},
    mem,
    sync::Arc,
};

use hashbrown::HashMap;
use slab::Slab;

use self::{
    batch::{Commit, Gathering, Plan},
    cache::{Cache, GroupKey, PartitionKey, QueueKey},
    clock::StoreClock,
    group::Group,
    op::{AckOp, FetchOp, Kind, Op, PartState, PopOp, PushOp, Wait},
    timers::Timers,
};
pub use self::{
    op::OpKey,
    others::{Heard, News},
};
use crate::{
    id::{PartitionId, TenantId, Uuid},
    request::{Answer, Failure, Request},
    segment::{Packer, SegmentError},
    store::{Admin, Create, JobId, Load, Work},
};

/// Limits of a [`Log`].
#[derive(Clone, Copy, Debug)]
pub struct LogConfig {
    /// Bytes of segments that stay in memory; a quarter as much goes to the index of transaction ids.
    pub cache_bytes: usize,
    /// Batches that may be in commit at a time.
    pub commits_max: usize,
    /// Operations that may be under way at a time, those that wait for messages included. More are refused.
    pub ops_max: usize,
    /// What does not wait for messages is answered with a failure after this long without a result.
    pub patience_us: u64,
    /// Where other brokers write to the same store: how often, at most and at least, the store is asked for what they
    /// have done while somebody waits. `None` where nobody else does.
    pub recheck_us: Option<(u64, u64)>,
    /// Whether others are to be told of what is written here, see [`Log::take_news`].
    pub tells: bool,
    /// Payload bytes that one pop or one entry of a fetch gives at most; the first message is always given.
    pub answer_bytes_max: usize,
    /// Seed of the numbers that ids and versions are drawn from: another one for every start.
    pub seed: u64,
}

/// The log of one node. `T` tells who is answered.
pub struct Log<T> {
    config: LogConfig,
    clock: StoreClock,
    mono_us: u64,
    random: u64,
    packer: Packer,
    cache: Cache,
    groups: Slab<Group>,
    ops: Slab<Op<T>>,
    serial: u64,
    /// Operations that can go on.
    ready: VecDeque<OpKey>,
    /// Those that have everything but a commit to go into.
    stalled: Vec<OpKey>,
    waits: HashMap<Wait, Vec<OpKey>>,
    gathering: Gathering,
    /// What is gathered to follow a commit under way.
    following: Option<(JobId, Gathering)>,
    creates: Vec<(Wait, Create)>,
    jobs: HashMap<JobId, Job>,
    last_job: JobId,
    /// The job whose outcome is taken in.
    outcome_of: JobId,
    commits: Vec<Commit>,
    /// Messages of the last two batches.
    lately: [usize; 2],
    work: Vec<(JobId, Work)>,
    answers: Vec<(T, Answer)>,
    timers: Timers,
    /// The first time at which a candidate of a group becomes ready, by group.
    group_times: BTreeSet<(i64, GroupKey)>,
    /// Pops and fetches that wait for a queue or a partition that is not there, and discoveries.
    unborn: Vec<OpKey>,
    /// What waits for messages and met a store that is away.
    outage: Vec<OpKey>,
    /// Fetches that wait for messages, by partition.
    fetchers: HashMap<PartitionKey, Vec<OpKey>>,
    /// Segments that could not be read, for whoever logs.
    damaged: Vec<(PartitionId, SegmentError)>,
    /// Partitions of which the store has lost the end.
    lost: Vec<PartitionId>,
    /// The store was asked for its time.
    asked_time: bool,
    /// Queues that are gone, but for what is in a commit.
    zombies: Vec<QueueKey>,
    refresh: refresh::Refresh,
    retention: admin::Retention,
    news: Vec<News>,
    pops_paused: bool,
    counters: Counters,
}

/// What the log has done, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Batches that were committed.
    pub batches: u64,
    /// Segments that were appended.
    pub appends: u64,
    /// Messages that were stored.
    pub messages_in: u64,
    /// Messages that were known already.
    pub duplicates: u64,
    /// Messages that were handed out.
    pub messages_out: u64,
    /// Claims that shared the commit of their messages.
    pub met: u64,
    /// Appends and cursors that another broker was faster with.
    pub conflicts: u64,
    /// Segments that had to be read from the store.
    pub segments_loaded: u64,
    /// Dead letters.
    pub dead: u64,
    /// Messages that retention removed.
    pub retained: u64,
}

/// What is in memory and under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes of segments.
    pub segment_bytes: usize,
    /// Transaction ids in indexes.
    pub indexed_ids: usize,
    /// Queues.
    pub queues: usize,
    /// Partitions.
    pub partitions: usize,
    /// Operations, those that wait for messages included.
    pub ops: usize,
    /// Batches in commit.
    pub commits: usize,
}

/// Work under way, and what it is for.
enum Job {
    Load(Load),
    Create(Vec<Wait>),
    Commit(Box<Plan>),
    Admin(OpKey),
    Read(OpKey),
    Horizon,
    Clock,
    Refresh,
    Retaining,
    Retain,
}

/// What came of a step.
#[expect(clippy::large_enum_variant, reason = "it lives on the stack, between a step and its caller")]
enum Step {
    /// It waits, is parked, or is in a batch.
    Waits,
    /// It has everything but room in a batch.
    Stalled,
    /// It is over.
    Answer(Answer),
}

impl<T: Copy> Log<T> {
    /// An empty log: everything is read when it is first needed.
    #[must_use]
    pub fn new(config: LogConfig) -> Self {
        Self {
            clock: StoreClock::default(),
            mono_us: 0,
            random: config.seed | 1,
            packer: Packer::default(),
            cache: Cache::default(),
            groups: Slab::new(),
            ops: Slab::new(),
            serial: 0,
            ready: VecDeque::new(),
            stalled: Vec::new(),
            waits: HashMap::new(),
            gathering: Gathering::default(),
            following: None,
            creates: Vec::new(),
            jobs: HashMap::new(),
            last_job: 0,
            outcome_of: 0,
            commits: Vec::new(),
            lately: [0; 2],
            work: Vec::new(),
            answers: Vec::new(),
            timers: Timers::default(),
            group_times: BTreeSet::new(),
            unborn: Vec::new(),
            outage: Vec::new(),
            fetchers: HashMap::new(),
            damaged: Vec::new(),
            lost: Vec::new(),
            asked_time: false,
            zombies: Vec::new(),
            refresh: refresh::Refresh::default(),
            retention: admin::Retention::default(),
            news: Vec::new(),
            pops_paused: false,
            counters: Counters::default(),
            config,
        }
    }

    /// Takes a request. Its answer, tagged with `token`, comes out of [`turn`](Self::turn).
    pub fn submit(&mut self, token: T, request: Request, mono_us: u64) -> OpKey {
        self.mono_us = mono_us;
        let due_us = mono_us + self.config.patience_us;
        let (kind, due_us) = match request {
            Request::Push(request) => {
                let parts: Vec<_> = request.parts.iter().map(|_| PartState::Todo).collect();
                (Kind::Push(PushOp { left: parts.len(), parts, request, refreshed: false }), due_us)
            }
            Request::Pop(request) => {
                let due_us = if request.wait_ms > 0 { mono_us + request.wait_ms * 1000 } else { due_us };
                (Kind::Pop(Box::new(PopOp::new(request))), due_us)
            }
            Request::Ack(request) => (Kind::Ack(AckOp::new(request)), due_us),
            Request::GiveBack { tenant, group, lease, partitions } => {
                (Kind::GiveBack { tenant, group, lease, partitions }, due_us)
            }
            Request::Fetch(request) => {
                let due_us = if request.max_wait_ms > 0 { mono_us + request.max_wait_ms * 1000 } else { due_us };
                (Kind::Fetch(FetchOp { request, refreshed: false, last: Vec::new() }), due_us)
            }
            Request::Extend(request) => (Kind::Extend(request), due_us),
            Request::Configure { tenant, queue, patch } => {
                let id = self.new_id();
                (Kind::Admin(Admin::Configure { id, tenant, name: queue, patch }), due_us)
            }
            Request::Delete { tenant, queue } => (Kind::Admin(Admin::Delete { tenant, name: queue }), due_us),
            Request::Read(read) => (Kind::Read(Some(read)), due_us),
        };
        self.serial += 1;
        let serial = self.serial;
        let slot = self.ops.insert(Op {
            serial,
            token,
            kind,
            waits: 0,
            queued: false,
            parked: false,
            committing: false,
            due_us,
            absent: Vec::new(),
            rounds: 0,
            probes: Vec::new(),
        });
        let key = OpKey { slot, serial };
        if self.ops.len() > self.config.ops_max {
            self.finish(key, Answer::Failed(Failure::Overloaded));
        } else {
            self.timers.set(due_us, key);
            self.make_ready(key);
        }
        key
    }

    /// Nobody waits for the answer any more: what waits for messages is answered with nothing, now or once its commit is
    /// done; anything else as it comes.
    pub fn cancel(&mut self, key: OpKey, mono_us: u64) {
        self.mono_us = mono_us;
        let Some(op) = self.op_mut(key) else { return };
        match &mut op.kind {
            // It may come out of the commit without messages: then it must not wait for others.
            Kind::Pop(pop) if op.committing => pop.request.wait_ms = 0,
            Kind::Pop(pop) if pop.request.wait_ms > 0 => self.give_up(key),
            Kind::Fetch(fetch) if fetch.request.max_wait_ms > 0 => self.give_up(key),
            _ => {}
        }
    }

    /// Does what can be done now. New work and answers are in [`take_work`](Self::take_work) and
    /// [`take_answers`](Self::take_answers) afterwards.
    pub fn turn(&mut self, mono_us: u64) {
        self.mono_us = mono_us;
        self.fire_timers();
        if !self.clock.is_known() {
            // Nothing can be said about leases before the store has told its time.
            let is_wanted = !self.ready.is_empty() || self.retention.is_due(mono_us);
            if is_wanted && !mem::replace(&mut self.asked_time, true) {
                // The horizon first: what is read from here on was read after it.
                self.start(Job::Horizon, Work::Load(Load::Changed { since_us: i64::MAX }));
            }
            return;
        }
        for queue in mem::take(&mut self.zombies) {
            self.forget_queue(queue);
        }
        if self.may_gather() {
            for key in mem::take(&mut self.stalled) {
                self.make_ready(key);
            }
        }
        while let Some(key) = self.ready.pop_front() {
            let Some(op) = self.op_mut(key) else { continue };
            op.queued = false;
            if op.waits > 0 || op.committing {
                continue;
            }
            match self.step(key) {
                Step::Waits => {}
                Step::Stalled => self.stalled.push(key),
                Step::Answer(answer) => self.finish(key, answer),
            }
        }
        self.emit_creates();
        self.emit_commit();
        self.start_refresh();
        self.start_retention();
        self.cache.shrink(self.config.cache_bytes);
    }

    /// Work for the store that came up.
    pub fn take_work(&mut self) -> Vec<(JobId, Work)> {
        mem::take(&mut self.work)
    }

    /// Answers that came up.
    pub fn take_answers(&mut self) -> Vec<(T, Answer)> {
        mem::take(&mut self.answers)
    }

    /// Segments that could not be read since the last call, each with its partition. They are passed over.
    pub fn take_damaged(&mut self) -> Vec<(PartitionId, SegmentError)> {
        mem::take(&mut self.damaged)
    }

    /// Partitions of which the store has less, since the last call, than it had said to be committed. They go on from where
    /// they end now.
    pub fn take_lost(&mut self) -> Vec<PartitionId> {
        mem::take(&mut self.lost)
    }

    /// When [`turn`](Self::turn) has to be called at the latest, on the monotonic clock in microseconds.
    #[must_use]
    pub fn next_time_us(&self) -> Option<u64> {
        if !self.clock.is_known() {
            // Until the store has told its time, nothing but timers fires, and it is asked once.
            let retention = self.retention.due_us().filter(|_| !self.asked_time);
            return [self.timers.next_us(), retention].into_iter().flatten().min();
        }
        let group = self.group_times.first().map(|&(at_us, _)| self.clock.mono_of(at_us, self.mono_us));
        let due =
            [self.timers.next_us(), group, self.refresh.due_us(), self.retention.due_us(), self.gathered_due_us()];
        due.into_iter().flatten().min()
    }

    /// What it has done.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// What it holds.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let (segment_bytes, indexed_ids, queues, partitions) = self.cache.usage();
        Usage { segment_bytes, indexed_ids, queues, partitions, ops: self.ops.len(), commits: self.commits.len() }
    }

    fn step(&mut self, key: OpKey) -> Step {
        // Taken out while it is worked on; what a step learns of its operation goes through `self.ops` all the same.
        let mut kind = mem::replace(&mut self.ops[key.slot].kind, Kind::Read(None));
        let step = match &mut kind {
            Kind::Push(push) => self.step_push(key, push),
            Kind::Pop(pop) => self.step_pop(key, pop),
            Kind::Ack(ack) => self.step_ack(key, ack),
            Kind::GiveBack { tenant, group, lease, partitions } => {
                self.step_give_back(key, *tenant, group, *lease, partitions)
            }
            Kind::Fetch(fetch) => self.step_fetch(key, fetch),
            Kind::Admin(admin) => self.start_admin(key, admin.clone()),
            Kind::Extend(extend) => self.step_extend(key, *extend),
            Kind::Read(read) => self.start_read(key, read.take()),
        };
        self.ops[key.slot].kind = kind;
        step
    }

    fn op(&self, key: OpKey) -> Option<&Op<T>> {
        self.ops.get(key.slot).filter(|op| op.serial == key.serial)
    }

    fn op_mut(&mut self, key: OpKey) -> Option<&mut Op<T>> {
        self.ops.get_mut(key.slot).filter(|op| op.serial == key.serial)
    }

    /// Lets an operation go on.
    fn make_ready(&mut self, key: OpKey) {
        if let Some(op) = self.op_mut(key)
            && !mem::replace(&mut op.queued, true)
        {
            op.parked = false;
            self.ready.push_back(key);
        }
    }

    /// Answers an operation, and forgets it.
    fn finish(&mut self, key: OpKey, answer: Answer) {
        if self.op(key).is_some() {
            let op = self.ops.remove(key.slot);
            self.timers.clear(op.due_us, key);
            self.answers.push((op.token, answer));
            if let Kind::Pop(pop) = op.kind {
                self.kick(&pop.groups);
            }
        }
    }

    /// Answers an operation whose time is over: what waits for messages with what there is, the rest with a failure.
    fn give_up(&mut self, key: OpKey) {
        let Some(op) = self.op_mut(key).filter(|op| !op.committing) else { return };
        let answer = match &mut op.kind {
            Kind::Ack(ack) => Answer::Acked(ack.unavailable()),
            Kind::Pop(pop) if pop.request.wait_ms > 0 => Answer::Popped(pop.empty()),
            Kind::Fetch(fetch) if fetch.request.max_wait_ms > 0 && !fetch.last.is_empty() => {
                Answer::Fetched(mem::take(&mut fetch.last))
            }
            _ => Answer::Failed(Failure::Unavailable("it did not answer in time".into())),
        };
        self.finish(key, answer);
    }

    /// Makes an operation wait for something. True if it is the first to do so.
    fn wait(&mut self, key: OpKey, wait: Wait) -> bool {
        let waiters = self.waits.entry(wait).or_default();
        let first = waiters.is_empty();
        if !waiters.contains(&key) {
            waiters.push(key);
            self.ops[key.slot].waits += 1;
        }
        first
    }

    /// What was waited for has come.
    fn wake(&mut self, wait: &Wait) -> Vec<OpKey> {
        let waiters = self.waits.remove(wait).unwrap_or_default();
        for &key in &waiters {
            let Some(op) = self.op_mut(key) else { continue };
            op.waits -= 1;
            if op.waits == 0 {
                self.make_ready(key);
            }
        }
        waiters
    }

    /// Reads something for an operation.
    fn need(&mut self, key: OpKey, load: Load) {
        self.read(load.clone());
        self.wait(key, Wait::Load(load));
    }

    /// Reads something, unless that is under way. Whoever comes meanwhile waits for the same answer.
    fn read(&mut self, load: Load) {
        let wait = Wait::Load(load.clone());
        if !self.waits.contains_key(&wait) {
            self.waits.insert(wait, Vec::new());
            self.start(Job::Load(load.clone()), Work::Load(load));
        }
    }

    /// Has a partition's row read again for an operation, if it is too old. While it is written to it cannot be taken in.
    fn rereads_partition(&mut self, key: OpKey, partition: PartitionKey) -> bool {
        let row = &self.cache.partitions[partition];
        let too_old = row.has_to_be_read();
        if too_old {
            let load = Load::PartitionById(row.id);
            self.need(key, load);
        }
        too_old
    }

    fn start(&mut self, job: Job, work: Work) -> JobId {
        self.last_job += 1;
        self.jobs.insert(self.last_job, job);
        self.work.push((self.last_job, work));
        self.last_job
    }

    /// Whether an operation that has found something may wait for more to be read.
    fn may_wait_for_more(&mut self, key: OpKey) -> bool {
        let op = &mut self.ops[key.slot];
        op.rounds += 1;
        op.rounds <= ROUNDS_MAX
    }

    /// Whether the store has said to an operation that something is not there.
    fn is_absent(&self, key: OpKey, load: &Load) -> bool {
        self.ops[key.slot].absent.contains(load)
    }

    fn now_us(&self) -> i64 {
        self.clock.now_us(self.mono_us)
    }

    /// A number that is not drawn twice: xorshift64*.
    fn draw(&mut self) -> u64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        self.random.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn new_id(&mut self) -> Uuid {
        let bits = u128::from(self.draw()) << 64 | u128::from(self.draw());
        Uuid::v7(self.now_us().max(0) as u64 / 1000, bits)
    }

    fn new_version(&mut self) -> i64 {
        (self.draw() >> 1) as i64
    }

    /// The queue of this name in the cache, or what has to happen first: `make` makes one that is not there.
    fn resolve_queue(&mut self, key: OpKey, tenant: TenantId, name: &Arc<str>, make: bool) -> Resolved {
        if let Some(queue) = self.cache.queue(tenant, name) {
            return Resolved::Here(queue);
        }
        let load = Load::Queue { tenant, name: Arc::clone(name) };
        if !self.is_absent(key, &load) {
            self.need(key, load);
            return Resolved::Waits;
        }
        if !make {
            return Resolved::Absent;
        }
        let wait = Wait::CreateQueue(tenant, Arc::clone(name));
        if self.wait(key, wait.clone()) {
            let (namespace, task) = crate::options::derived(name);
            let (namespace, task) = (namespace.into(), task.into());
            let (id, name) = (self.new_id(), Arc::clone(name));
            let options = crate::options::QueueOptions::implicit();
            self.creates.push((wait, Create::Queue { id, tenant, name, namespace, task, options }));
        }
        Resolved::Waits
    }

    /// The partition of this name in the cache, or what has to happen first: `make` makes one that is not there.
    fn resolve_partition(&mut self, key: OpKey, queue: usize, name: &Arc<str>, make: bool) -> Resolved {
        if let Some(partition) = self.cache.partition(queue, name) {
            return Resolved::Here(partition);
        }
        let (id, complete) = (self.cache.queues[queue].row.id, self.cache.queues[queue].complete);
        let load = Load::Partition { queue: id, name: Arc::clone(name) };
        // Another broker may have made it since the queue was read; making it finds that out.
        let absent = self.is_absent(key, &load) || make && complete;
        if !absent {
            self.need(key, load);
            return Resolved::Waits;
        }
        if !make {
            return Resolved::Absent;
        }
        let wait = Wait::CreatePartition(id, Arc::clone(name));
        if self.wait(key, wait.clone()) {
            let create = Create::Partition { id: self.new_id(), queue: id, name: Arc::clone(name) };
            self.creates.push((wait, create));
        }
        Resolved::Waits
    }

    /// The group of this name on a queue, made in the cache if need be; its registration may be missing.
    fn group_of(&mut self, queue: usize, name: &Arc<str>) -> GroupKey {
        if let Some(&group) = self.cache.queues[queue].groups.get(name) {
            return group;
        }
        let group = self.groups.insert(Group::new(queue, Arc::clone(name), None));
        self.cache.queues[queue].groups.insert(Arc::clone(name), group);
        group
    }

    fn emit_creates(&mut self) {
        let mut creates = mem::take(&mut self.creates);
        // Queues, partitions and groups that were asked for in one turn are made in one piece of work.
        while !creates.is_empty() {
            let rest = creates.split_off(creates.len().min(CREATES_MAX));
            let (waits, work) = creates.into_iter().unzip();
            self.start(Job::Create(waits), Work::Create(work));
            creates = rest;
        }
    }
}

/// So often a pop or a fetch waits for all that it could take; then it takes what there is.
const ROUNDS_MAX: u32 = 4;

/// Rows that one piece of work makes.
const CREATES_MAX: usize = 1000;

/// What a name leads to.
enum Resolved {
    Here(usize),
    /// It is being read, or made.
    Waits,
    Absent,
}

impl<T> std::fmt::Debug for Log<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Log")
            .field("ops", &self.ops.len())
            .field("commits", &self.commits.len())
            .finish_non_exhaustive()
    }
}
