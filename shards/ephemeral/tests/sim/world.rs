//! One seeded run: draws operations, gives each to the engine and to the model, compares every
//! answer, and checks every invariant after every operation. Name pools and limits are tiny, so
//! that collisions and bounds happen all the time.

use std::collections::VecDeque;
use std::thread::panicking;

use queen_ephemeral::{
    AckOutcome, AckStatus, Claim, ConfigureError, Delivery, Engine, EngineConfig, InboxAddress, InboxId, MessageId,
    ParkId, Policy, Pop, PopError, Popped, PushError, QueueOptions, Sink, Stats, TenantId, TenantLimit, WaiterId,
    Window,
};

use queen_ephemeral::inbox::Minted;

use super::model::{self, Got, Handed, Inbox, Model, PARTITIONS};

pub const QUEUES: [&str; 4] = ["jobs", "inbox", "a:b", "rooms"];
pub const NAMES: [&str; PARTITIONS] = ["Default", "room.1", "b:1"];
pub const GROUPS: [Option<&str>; 4] = [None, Some("g1"), Some("g2"), Some("g3")];
const CHOSEN: [&str; 2] = ["_inbox.mine", "_inbox.of.the.other"];
pub const TENANTS: [TenantId; model::TENANTS] = [TenantId::DEFAULT, TenantId([7; 16]), TenantId([8; 16])];
const EPOCH: u64 = 0x00ab_cdef_0123_4567;
/// Operations shown when a run fails.
const TRACE: usize = 20;

/// A xorshift generator: the same numbers for the same seed, everywhere.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % n
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

#[derive(Clone, Debug)]
enum Operation {
    Push { key: (usize, usize), partition: usize, payloads: Vec<Vec<u8>> },
    Pop { key: (usize, usize), partition: Option<usize>, group: usize, batch: u32, auto_ack: bool, wait_ms: u64 },
    Request { key: (usize, usize), partition: usize, payload: Vec<u8>, name: Option<usize>, wait_ms: u64 },
    Reply { tenant: usize, to: ReplyTo, payloads: Vec<Vec<u8>> },
    Close(InboxId),
    Cancel { park: ParkId, waiter: u64 },
    Settle(usize),
    GiveBack(usize),
    Ack { key: (usize, usize), group: usize, partition: usize, sequence: u64, attempts: u32, status: AckStatus },
    Configure { key: (usize, usize), options: QueueOptions },
    Reset((usize, usize)),
    Delete((usize, usize)),
    Advance(u64),
    MemoryLimit(u64),
    QueueLimit(u64),
    TenantLimit { tenant: usize, limit: Option<TenantLimit> },
    Release,
}

#[derive(Copy, Clone, Debug)]
enum ReplyTo {
    Minted(InboxId),
    Chosen(usize),
}

/// What the engine handed out during one call.
#[derive(Default)]
pub struct Outcome {
    pub popped: Vec<(u64, Vec<Got>, Option<Claim>)>,
    replied: Vec<(u64, Option<Vec<u8>>)>,
}

impl Sink for Outcome {
    fn reply(&mut self, waiter: WaiterId, reply: Option<&[u8]>) {
        self.replied.push((waiter.0, reply.map(<[u8]>::to_vec)));
    }

    fn deliver(&mut self, waiter: WaiterId, mut delivery: Delivery<'_>) {
        assert!(QUEUES.contains(&delivery.queue()));
        let place = |name| NAMES.iter().position(|&known| known == name).expect("a known partition");
        let got: Vec<Got> = delivery
            .messages()
            .map(|m| (place(m.partition), m.sequence, m.attempts, m.payload.to_vec(), m.reply_to.map(str::to_owned)))
            .collect();
        assert_eq!((got.len(), got.is_empty()), (delivery.len(), delivery.is_empty()));
        let claim = delivery.take_claim();
        assert_eq!(claim.is_none(), got.is_empty());
        self.popped.push((waiter.0, got, claim));
    }
}

/// A delivery that somebody may ack, in time or late.
#[derive(Copy, Clone)]
struct Seen {
    key: (usize, usize),
    group: usize,
    partition: usize,
    sequence: u64,
    attempts: u32,
}

pub struct World {
    seed: u64,
    step: u64,
    pub random: Random,
    pub engine: Engine,
    pub model: Model,
    claims: Vec<(Claim, Handed)>,
    seen: VecDeque<Seen>,
    pub parks: Vec<(ParkId, u64)>,
    /// Inboxes that were opened, gone or not.
    opened: VecDeque<InboxId>,
    waiters: u64,
    payloads: u64,
    /// Calls that a tenant's limit refused: of bytes, of queues.
    refused: [u64; 2],
    trace: VecDeque<Operation>,
}

impl Drop for World {
    fn drop(&mut self) {
        if panicking() {
            eprintln!("QUEEN_SIM_SEED={} failed at step {}; the last operations:", self.seed, self.step);
            for operation in &self.trace {
                eprintln!("  {operation:?}");
            }
        }
    }
}

impl World {
    pub fn new(seed: u64) -> Self {
        Self::with(seed, Random::new(seed), 0)
    }

    /// One of two that `seed` stands for; no payload is the other's.
    pub fn of_pair(seed: u64, which: u64) -> Self {
        Self::with(seed, Random::new((1 << 40) + 2 * seed + which), which << 32)
    }

    fn with(seed: u64, mut random: Random, payloads: u64) -> Self {
        let config = EngineConfig {
            boot_epoch: EPOCH,
            queue_max_bytes: 60 + random.below(300),
            queue_max_length: 3 + random.below(12),
            lease_ms: 5 + random.below(40),
            retry_limit: 1 + random.below(4) as u32,
            implicit_idle_ms: 1 + random.below(120),
            group_idle_ms: random.pick(&[0, 30, 90]),
            max_partitions_per_queue: 1 + random.below(4) as u32,
            max_groups_per_queue: 1 + random.below(5) as u32,
        };
        Self {
            seed,
            step: 0,
            random,
            engine: Engine::new(config),
            model: Model::new(config),
            claims: Vec::new(),
            seen: VecDeque::new(),
            parks: Vec::new(),
            opened: VecDeque::new(),
            waiters: 0,
            payloads,
            refused: [0; 2],
            trace: VecDeque::new(),
        }
    }

    /// What happened so far.
    pub fn stats(&self) -> Stats {
        self.engine.stats()
    }

    /// Calls that a tenant's limit refused: of bytes, of queues.
    pub fn refused(&self) -> [u64; 2] {
        self.refused
    }

    /// Whether a partition holds anything, be it only what answers hold.
    pub fn holds(&self, key: (usize, usize), partition: usize) -> bool {
        let queue = self.model.find(key).map(|at| &self.model.queues[at]);
        queue.is_some_and(|queue| queue.messages.iter().any(|message| message.partition == partition))
    }

    /// Pops everything for every group, in order.
    pub fn drain(&mut self) {
        let keys: Vec<(usize, usize)> = self.model.queues.iter().map(|queue| queue.key).collect();
        for key in keys {
            for group in 0..GROUPS.len() {
                self.perform(Operation::Pop { key, partition: None, group, batch: 1000, auto_ack: true, wait_ms: 0 });
                self.compare();
            }
        }
    }

    pub fn step(&mut self) {
        self.step += 1;
        let operation = self.draw();
        if self.trace.len() == TRACE {
            self.trace.pop_front();
        }
        self.trace.push_back(operation.clone());
        self.perform(operation);
        self.compare();
    }

    fn key(&mut self) -> (usize, usize) {
        (self.random.pick(&[0, 0, 0, 0, 1, 1, 2]), self.random.below(QUEUES.len() as u64) as usize)
    }

    fn draw(&mut self) -> Operation {
        let key = self.key();
        let partition = self.random.below(PARTITIONS as u64) as usize;
        let group = self.random.pick(&[0, 0, 0, 1, 1, 2, 3]);
        match self.random.below(1000) {
            0..=39 => Operation::Request {
                key,
                partition,
                payload: self.payload(),
                name: self.random.one_in(3).then(|| self.random.below(CHOSEN.len() as u64) as usize),
                wait_ms: 1 + self.random.below(60),
            },
            40..=69 => {
                let to = match self.random.one_in(3) {
                    false if !self.opened.is_empty() => {
                        let at = self.random.below(self.opened.len() as u64) as usize;
                        ReplyTo::Minted(self.opened[at])
                    }
                    _ => ReplyTo::Chosen(self.random.below(CHOSEN.len() as u64) as usize),
                };
                let payloads = (0..self.random.pick(&[1, 1, 1, 0, 3])).map(|_| self.payload()).collect();
                Operation::Reply { tenant: key.0, to, payloads }
            }
            70..=79 if !self.opened.is_empty() => {
                let at = self.random.below(self.opened.len() as u64) as usize;
                Operation::Close(self.opened[at])
            }
            70..=249 => {
                let count = if self.random.one_in(3) { self.random.below(6) } else { 1 };
                let payloads = (0..count).map(|_| self.payload()).collect();
                Operation::Push { key, partition, payloads }
            }
            250..=549 => Operation::Pop {
                key,
                partition: self.random.one_in(2).then_some(partition),
                group,
                batch: 1 + self.random.pick(&[0, 0, 1, 3, 20]),
                auto_ack: self.random.one_in(2),
                wait_ms: self.random.pick(&[0, 0, 1, 10, 60, 200]),
            },
            550..=599 if !self.parks.is_empty() => {
                let at = self.random.below(self.parks.len() as u64) as usize;
                let (park, waiter) = self.parks[at];
                Operation::Cancel { park, waiter }
            }
            550..=699 if !self.claims.is_empty() => {
                let at = self.random.below(self.claims.len() as u64) as usize;
                if self.random.one_in(3) { Operation::GiveBack(at) } else { Operation::Settle(at) }
            }
            550..=849 if !self.seen.is_empty() => {
                let at = self.random.below(self.seen.len() as u64) as usize;
                let mut seen = self.seen[at];
                if self.random.one_in(30) {
                    seen.attempts += 1;
                }
                if self.random.one_in(30) {
                    seen.sequence = seen.sequence.wrapping_add(1);
                }
                if self.random.one_in(30) {
                    (seen.key, seen.group, seen.partition) = (key, group, partition);
                }
                let status = if self.random.one_in(2) { AckStatus::Completed } else { AckStatus::Retry };
                let Seen { key, group, partition, sequence, attempts } = seen;
                Operation::Ack { key, group, partition, sequence, attempts, status }
            }
            850..=874 => Operation::Configure { key, options: self.options() },
            875..=880 => Operation::Reset(key),
            881..=888 => Operation::Delete(key),
            889..=891 => Operation::MemoryLimit(self.random.pick(&[u64::MAX, u64::MAX, 3000, 8000])),
            892..=894 => Operation::QueueLimit(self.random.pick(&[u64::MAX, u64::MAX, 2, 6])),
            895..=899 => Operation::TenantLimit {
                tenant: self.random.below(TENANTS.len() as u64) as usize,
                limit: (!self.random.one_in(4)).then(|| TenantLimit {
                    bytes: self.random.pick(&[0, 40, 100, 250, u64::MAX]),
                    queues: self.random.pick(&[0, 1, 2, 3, u64::MAX]),
                }),
            },
            900 => Operation::Release,
            _ => {
                let reach_ms = self.random.pick(&[2, 2, 8, 8, 40, 150]);
                Operation::Advance(1 + self.random.below(reach_ms))
            }
        }
    }

    fn payload(&mut self) -> Vec<u8> {
        self.payloads += 1;
        let mut payload = self.payloads.to_le_bytes().to_vec();
        let padding = if self.random.one_in(60) { 400 } else { self.random.below(40) };
        payload.resize(8 + padding as usize, self.payloads as u8);
        payload
    }

    fn options(&mut self) -> QueueOptions {
        let mut options = QueueOptions::default();
        if self.random.one_in(2) {
            options.policy = Policy::DropOldest;
        }
        if self.random.one_in(2) {
            options.max_length = Some(self.random.below(8));
        }
        if self.random.one_in(3) {
            options.max_bytes = Some(self.random.below(200));
        }
        if self.random.one_in(2) {
            options.ttl_ms = Some(self.random.below(80));
        }
        if self.random.one_in(3) {
            options.lease_ms = Some(self.random.below(60));
        }
        if self.random.one_in(3) {
            options.retry_limit = Some(self.random.below(4) as u32);
        }
        if self.random.one_in(3) {
            let (ms, count) = (self.random.below(30), self.random.below(5) as u32);
            options.window = Some(Window { ms, count });
        }
        options
    }

    #[expect(clippy::too_many_lines, reason = "one arm per operation, read side by side")]
    fn perform(&mut self, operation: Operation) {
        let mut outcome = Outcome::default();
        let now_ms = self.model.now_ms;
        let name = |key: (usize, usize)| (TENANTS[key.0], QUEUES[key.1]);
        let mut used = None;
        if matches!(
            operation,
            Operation::Cancel { .. } | Operation::Close(_) | Operation::Settle(_) | Operation::Release
        ) {
            // These calls take no time: the engine goes by the last it was told.
            self.turn(true);
        }
        match operation {
            Operation::Push { key, partition, payloads } => {
                let (tenant, queue) = name(key);
                let slices = payloads.iter().map(Vec::as_slice);
                let answer = self.engine.push(now_ms, tenant, queue, NAMES[partition], slices, &mut outcome);
                let engine = &self.engine;
                let expected = self.model.push(key, partition, &payloads, None, &|key| exists(engine, key));
                assert_eq!(answer, expected);
                self.refused[0] += u64::from(answer == Err(PushError::TenantBytes));
                self.refused[1] += u64::from(answer == Err(PushError::TenantQueues));
                used = (answer.is_ok() && !payloads.is_empty()).then_some(key);
            }
            Operation::Pop { key, partition, group, batch, auto_ack, wait_ms } => {
                let (tenant, queue) = name(key);
                self.waiters += 1;
                let id = self.waiters;
                let request = Pop {
                    tenant,
                    queue,
                    partition: partition.map(|partition| NAMES[partition]),
                    group: GROUPS[group],
                    batch,
                    auto_ack,
                    wait_ms,
                };
                let answer = self.engine.pop(now_ms, &request, WaiterId(id), &mut outcome);
                let parks_on = partition.filter(|_| wait_ms > 0);
                let engine = &self.engine;
                let group_uid = match self.model.enter(key, group, parks_on, &|key| exists(engine, key)) {
                    Ok(uid) => uid,
                    Err(error) => {
                        assert_eq!(answer, Err(error));
                        self.refused[1] += u64::from(error == PopError::TenantQueues);
                        self.finish(None, outcome);
                        return;
                    }
                };
                used = Some(key);
                let at = self.model.find(key).expect("a popped queue is there");
                let windowed = self.model.limits(at).window.is_some();
                let available = self.model.queues[at].available(group_uid, partition);
                let answer = answer.expect("the model allows it");
                if wait_ms > 0 && (windowed || available.is_empty()) {
                    self.model.waiters.push(super::model::Waiter {
                        id,
                        key,
                        group: group_uid,
                        partition,
                        batch: batch as usize,
                        auto_ack,
                        deadline_ms: now_ms + wait_ms,
                        window_end_ms: None,
                    });
                    match answer {
                        Popped::Parked(park) => {
                            assert!(outcome.popped.iter().all(|(to, _, _)| *to != id));
                            self.parks.push((park, id));
                        }
                        Popped::Delivered => assert!(outcome.popped.iter().any(|(to, _, _)| *to == id)),
                        Popped::Empty => panic!("a waiting pop is parked"),
                    }
                } else if available.is_empty() {
                    assert_eq!(answer, Popped::Empty);
                } else {
                    assert_eq!(answer, Popped::Delivered);
                    let (to, got, claim) = outcome.popped.remove(0);
                    let expected = self.model.take(key, group_uid, partition, batch as usize, auto_ack);
                    assert_eq!((to, &got), (id, &expected));
                    self.remember(key, group_uid, auto_ack, &got, claim);
                }
            }
            Operation::Request { key, partition, payload, name, wait_ms } => {
                used = self.request(key, partition, payload, name, wait_ms, &mut outcome).then_some(key);
            }
            Operation::Reply { tenant, to, payloads } => {
                let slices = payloads.iter().map(Vec::as_slice);
                let address = match to {
                    ReplyTo::Minted(inbox) => InboxAddress::Minted(inbox),
                    ReplyTo::Chosen(name) => InboxAddress::Chosen(CHOSEN[name]),
                };
                self.engine.push_reply(now_ms, TENANTS[tenant], address, slices, &mut outcome);
                let found = self.model.reply(payloads.len() as u64, |open| {
                    open.tenant == tenant
                        && match to {
                            ReplyTo::Minted(id) => open.id == id,
                            ReplyTo::Chosen(name) => open.name.as_deref() == Some(CHOSEN[name]),
                        }
                });
                let expected = found.map(|open| (open.waiter, Some(payloads[0].clone())));
                assert_eq!(std::mem::take(&mut outcome.replied), Vec::from_iter(expected));
            }
            Operation::Close(id) => {
                let at = self.model.inboxes.iter().position(|open| open.id == id);
                let closed = at.map(|at| WaiterId(self.model.inboxes.swap_remove(at).waiter));
                assert_eq!(self.engine.close_inbox(id), closed);
            }
            Operation::Cancel { park, waiter } => {
                let at = self.model.waiters.iter().position(|known| known.id == waiter);
                assert_eq!(self.engine.cancel(park), at.is_some());
                self.parks.retain(|known| known.1 != waiter);
                if let Some(at) = at {
                    self.model.leave(at);
                    self.model.note(None);
                }
                // Whom it held back is served as soon as there is a sink: the caller's next turn.
                self.turn(false);
            }
            Operation::Settle(at) => {
                let (claim, handed) = self.claims.swap_remove(at);
                self.engine.settle(claim);
                self.model.settle(&handed);
            }
            Operation::GiveBack(at) => {
                let (claim, handed) = self.claims.swap_remove(at);
                self.engine.give_back(now_ms, claim, &mut outcome);
                self.model.give_back(&handed);
            }
            Operation::Ack { key, group, partition, sequence, attempts, status } => {
                let (tenant, queue) = name(key);
                let mut id = MessageId { epoch: EPOCH, partition: NAMES[partition], sequence, attempts };
                let group_name = GROUPS[group];
                let answer = self.engine.ack(now_ms, tenant, queue, group_name, &id.to_string(), status, &mut outcome);
                assert_eq!(answer, self.model.ack(key, group, partition, sequence, attempts, status));
                id.epoch += 1;
                let stale = self.engine.ack(now_ms, tenant, queue, group_name, &id.to_string(), status, &mut outcome);
                assert_eq!(stale, AckOutcome::Stale);
            }
            Operation::Configure { key, options } => {
                let (tenant, queue) = name(key);
                let answer = self.engine.configure(now_ms, tenant, queue, options, &mut outcome);
                let engine = &self.engine;
                assert_eq!(answer, self.model.configure(key, &options, &|key| exists(engine, key)));
                self.refused[1] += u64::from(answer == Err(ConfigureError::TenantQueues));
            }
            Operation::Reset(key) => {
                let (tenant, queue) = name(key);
                assert_eq!(self.engine.reset(now_ms, tenant, queue, &mut outcome), self.model.reset(key));
            }
            Operation::Delete(key) => {
                let (tenant, queue) = name(key);
                let answer = self.engine.delete(now_ms, tenant, queue, &mut outcome);
                assert_eq!((answer.deleted, answer.declared), self.model.delete(key));
            }
            Operation::MemoryLimit(bytes) => {
                self.engine.set_memory_limit(bytes);
                self.model.memory_limit = bytes;
            }
            Operation::QueueLimit(queues) => {
                self.engine.set_queue_limit(queues);
                self.model.queue_limit = queues;
            }
            Operation::TenantLimit { tenant, limit } => {
                self.engine.set_tenant_limit(TENANTS[tenant], limit);
                // The default tenant takes none.
                self.model.tenant_limits[tenant] = limit.filter(|_| tenant > 0);
            }
            Operation::Release => {
                self.engine.release_waiters(&mut outcome);
                assert_eq!(outcome.popped.len(), self.model.waiters.len());
                for (waiter, got, _) in std::mem::take(&mut outcome.popped) {
                    assert!(got.is_empty());
                    let at = self.model.waiters.iter().position(|known| known.id == waiter);
                    self.model.leave(at.expect("a released pop was parked"));
                }
                self.parks.clear();
                assert!(outcome.replied.iter().all(|(_, reply)| reply.is_none()));
                let mut told: Vec<u64> = outcome.replied.drain(..).map(|(waiter, _)| waiter).collect();
                told.sort_unstable();
                let mut expected: Vec<u64> = self.model.inboxes.drain(..).map(|open| open.waiter).collect();
                expected.sort_unstable();
                assert_eq!(told, expected);
            }
            Operation::Advance(by_ms) => {
                for _ in 0..by_ms {
                    self.model.now_ms += 1;
                    self.turn(false);
                }
            }
        }
        self.finish(used, outcome);
    }

    /// Opens an outcome and pushes what asks for its reply. Whether that was pushed.
    fn request(
        &mut self,
        key: (usize, usize),
        partition: usize,
        payload: Vec<u8>,
        name: Option<usize>,
        wait_ms: u64,
        outcome: &mut Outcome,
    ) -> bool {
        let now_ms = self.model.now_ms;
        let (tenant, queue) = (TENANTS[key.0], QUEUES[key.1]);
        let name = name.map(|name| CHOSEN[name]);
        self.waiters += 1;
        let waiter = self.waiters;
        let opened = self.engine.open_inbox(now_ms, tenant, name, wait_ms, WaiterId(waiter));
        let taken = |open: &Inbox| name.is_some() && open.tenant == key.0 && open.name.as_deref() == name;
        assert_eq!(opened.is_err(), self.model.inboxes.iter().any(taken));
        let Ok(id) = opened else { return false };
        assert!(!self.opened.contains(&id), "an id is never used again");
        let minted = Minted { epoch: EPOCH, shard: 0, inbox: id }.to_string();
        let reply_to = name.unwrap_or(&minted);
        let name = name.map(str::to_owned);
        self.model.inboxes.push(Inbox { id, tenant: key.0, name, waiter, deadline_ms: now_ms + wait_ms });
        let answer = self.engine.push_request(now_ms, tenant, queue, NAMES[partition], &payload, reply_to, outcome);
        let engine = &self.engine;
        let exists = |key| exists(engine, key);
        assert_eq!(answer, self.model.push(key, partition, &[payload], Some(reply_to), &exists));
        if answer.is_err() {
            assert_eq!(self.engine.close_inbox(id), Some(WaiterId(waiter)));
            self.model.inboxes.pop();
            return false;
        }
        self.opened.push_back(id);
        if self.opened.len() > 12 {
            self.opened.pop_front();
        }
        true
    }

    /// What the caller does when the clock reaches the engine's next deadline.
    fn turn(&mut self, force: bool) {
        let now_ms = self.model.now_ms;
        let mut outcome = Outcome::default();
        if force || self.engine.next_deadline_ms().is_some_and(|at_ms| at_ms <= now_ms) {
            assert!(!self.engine.advance(now_ms, usize::MAX, &mut outcome));
        }
        self.model.tick();
        self.model.note(None);
        for (waiter, reply) in outcome.replied.drain(..) {
            assert_eq!(reply, None);
            let at = self.model.inboxes.iter().position(|open| open.waiter == waiter).expect("it was open");
            assert!(self.model.inboxes.swap_remove(at).deadline_ms <= now_ms, "sent away before its time");
        }
        self.finish(None, outcome);
        self.model.collect();
        let late = self.model.waiters.iter().find(|waiter| waiter.deadline_ms <= now_ms);
        assert!(late.is_none(), "a pop waits past its timeout");
        assert!(self.model.inboxes.iter().all(|open| open.deadline_ms > now_ms), "a request waits past its timeout");
        assert_eq!(self.engine.stats(), self.model.stats(), "at {now_ms} ms");
    }

    /// Checks what the engine handed to parked pops, in the order in which it did.
    pub fn finish(&mut self, used: Option<(usize, usize)>, outcome: Outcome) {
        assert!(outcome.replied.is_empty(), "a reply that nobody pushed");
        for (id, got, claim) in outcome.popped {
            self.parks.retain(|known| known.1 != id);
            let at = self.model.waiters.iter().position(|waiter| waiter.id == id).expect("it was parked");
            let available = self.model.available_for(at);
            let may_go = self.model.may_go(at);
            let now_ms = self.model.now_ms;
            // A window that opens in the millisecond of the timeout ends there.
            let waiter = &self.model.waiters[at];
            let end_ms = waiter.window_end_ms.unwrap_or(waiter.deadline_ms);
            let window_ended = end_ms <= now_ms;
            if got.is_empty() {
                assert!(self.model.waiters[at].deadline_ms <= now_ms, "sent away before its time");
                assert!(available == 0 || !may_go, "sent away although something was there");
                self.model.leave(at);
                continue;
            }
            assert!(may_go || window_ended, "waiter {id} was served out of turn");
            assert!(available >= self.model.enough_for(at) || window_ended, "its window was cut short");
            let waiter = self.model.leave(at);
            let expected = self.model.take(waiter.key, waiter.group, waiter.partition, waiter.batch, waiter.auto_ack);
            assert_eq!(got, expected);
            self.remember(waiter.key, waiter.group, waiter.auto_ack, &got, claim);
        }
        self.model.rest();
        self.model.note(used);
    }

    fn remember(&mut self, key: (usize, usize), group: u64, auto_ack: bool, got: &[Got], claim: Option<Claim>) {
        let queue = self.model.find(key).expect("a delivery's queue is there");
        let known = self.model.queues[queue].groups.iter().find(|known| known.uid == group);
        let name = known.expect("a delivery's group is there").name;
        for &(partition, sequence, attempts, ..) in got {
            self.seen.push_back(Seen { key, group: name, partition, sequence, attempts });
        }
        while self.seen.len() > 30 {
            self.seen.pop_front();
        }
        let items = got.iter().map(|&(_, sequence, attempts, ..)| (sequence, attempts)).collect();
        let claim = claim.expect("a delivery with messages has a claim");
        self.claims.push((claim, Handed { key, group, auto_ack, items }));
    }

    fn compare_tenants(&self) {
        let mut limited: Vec<_> = self.engine.limited_tenants().collect();
        limited.sort_unstable_by_key(|&(tenant, _)| tenant);
        let mut expected = Vec::new();
        for (at, &tenant) in TENANTS.iter().enumerate().skip(1) {
            let usage = self.model.usage(at);
            assert_eq!(self.engine.tenant_usage(tenant), usage);
            expected.extend(self.model.tenant_limits[at].map(|_| (tenant, usage)));
        }
        assert_eq!(limited, expected);
    }

    /// Compares everything that can be read.
    pub fn compare(&mut self) {
        self.engine.check_invariants();
        assert_eq!(self.engine.stats(), self.model.stats());
        self.compare_tenants();
        let key = self.key();
        let asked = self.random.below(GROUPS.len() as u64) as usize;
        let group_name = |group: usize| GROUPS[group].unwrap_or(queen_ephemeral::QUEUE_MODE);
        let by_group = self.random.one_in(2);
        let depth = self.engine.depth(TENANTS[key.0], QUEUES[key.1], by_group.then(|| group_name(asked)));
        let Some(at) = self.model.find(key) else {
            assert_eq!(depth, None);
            return;
        };
        let mut depth = depth.expect("the model has the queue");
        let queue = &self.model.queues[at];
        assert_eq!(depth.declared, queue.declared.is_some());
        let pending_for = |uid: Option<u64>, partition: usize| {
            let here = queue.counted().filter(|message| message.partition == partition);
            let open = here.filter(|message| uid.is_none_or(|uid| !message.done.contains(&uid)));
            open.fold((0, 0), |(n, bytes), message| (n + 1, bytes + message.payload.len() as u64))
        };
        let uid = queue.groups.iter().find(|group| by_group && group.name == asked).map(|group| group.uid);
        depth.partitions.sort_by_key(|row| NAMES.iter().position(|&name| name == row.partition));
        let partitions = self.model.partitions(at);
        assert_eq!(depth.partitions.len(), partitions.len());
        let (mut pending, mut bytes, mut filled) = (0, 0, 0);
        for (row, partition) in depth.partitions.iter().zip(partitions) {
            let expected = pending_for(uid, partition);
            assert_eq!((row.partition.as_str(), (row.pending, row.bytes)), (NAMES[partition], expected));
            pending += expected.0;
            bytes += expected.1;
            filled += u64::from(expected.0 > 0);
        }
        assert_eq!((depth.pending, depth.bytes, depth.partitions_pending), (pending, bytes, filled));
        let mut rows: Vec<_> = depth.groups.iter().map(|row| (row.group.as_str(), row.pending, row.skipped)).collect();
        rows.sort_unstable();
        let mut expected: Vec<_> = queue
            .groups
            .iter()
            .map(|group| {
                let pending: u64 = (0..PARTITIONS).map(|partition| pending_for(Some(group.uid), partition).0).sum();
                (group_name(group.name), pending, group.skipped)
            })
            .collect();
        expected.sort_unstable();
        assert_eq!(rows, expected);
    }
}

pub fn exists(engine: &Engine, key: (usize, usize)) -> bool {
    engine.depth(TENANTS[key.0], QUEUES[key.1], None).is_some()
}
