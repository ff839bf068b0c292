//! The world of a simulation: brokers, their clients, the work under way, and the clock.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use queen_log::{
    engine::{Log, LogConfig, OpKey},
    id::{PartitionId, Uuid, message_id},
    options::{Change, OptionsPatch},
    record::{Record, Records},
    request::{
        Ack, AckRequest, AckStatus, Acked, Answer, ExtendRequest, FetchEntry, FetchRequest, PopRequest, Popped,
        PushPart, PushRequest, Pushed, PushedPart, Request, Scope, Start,
    },
    row::QUEUE_MODE,
    segment::Packer,
    store::{Done, JobId, StoreFailure, Work},
};

use crate::store::Store;

const TENANT: Uuid = Uuid([1; 16]);
const QUEUES: [&str; 3] = ["orders.eu", "orders.us", "jobs"];
const PARTITIONS: [&str; 3] = ["Default", "p1", "p2"];
const GROUPS: [(&str, Start); 3] = [(QUEUE_MODE, Start::All), ("all", Start::All), ("new", Start::New)];
const WINDOW_S: i64 = 20;

/// A client that waits for an answer.
enum Asked {
    Push(Vec<(Arc<str>, Arc<str>, Vec<Sent>)>),
    /// With what was acknowledged as done when it was asked.
    Pop {
        group: usize,
        auto_ack: bool,
        done: BTreeMap<(PartitionId, usize), u64>,
    },
    Ack {
        group: usize,
        items: Vec<(PartitionId, u64, AckStatus)>,
    },
    Other,
}

#[derive(Clone)]
struct Sent {
    id: Option<String>,
    payload: String,
}

/// A message that a client holds.
#[derive(Clone)]
struct Held {
    partition: PartitionId,
    offset: u64,
    id: String,
    lease: Option<Uuid>,
}

struct Broker {
    log: Log<u64>,
    /// Its monotonic clock is so far from the world's.
    started_us: u64,
    asked: HashMap<u64, (OpKey, Asked, u64)>,
    jobs: Vec<Job>,
}

/// Work that the store has not done yet, or whose outcome is on its way.
struct Job {
    id: JobId,
    work: Work,
    outcome: Option<Result<Done, StoreFailure>>,
}

pub struct World {
    random: u64,
    now_us: u64,
    store: Store,
    away: bool,
    brokers: Vec<Broker>,
    tokens: u64,
    payloads: u64,
    ids: Vec<String>,
    /// What clients hold, by group.
    held: Vec<Vec<Held>>,
    /// What was acknowledged as done, by partition and group: everything below.
    done: BTreeMap<(PartitionId, usize), u64>,
    /// Pushes that were acknowledged: where, and what.
    stored: Vec<(PartitionId, u64, String)>,
    answered: u64,
    met: u64,
}

impl World {
    pub fn new(seed: u64, brokers: usize) -> Self {
        let mut world = Self {
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            now_us: 1_700_000_000_000_000,
            store: Store::default(),
            away: false,
            brokers: Vec::new(),
            tokens: 0,
            payloads: 0,
            ids: Vec::new(),
            held: vec![Vec::new(); GROUPS.len()],
            done: BTreeMap::new(),
            stored: Vec::new(),
            answered: 0,
            met: 0,
        };
        for _ in 0..brokers {
            let broker = world.broker(brokers > 1);
            world.brokers.push(broker);
        }
        world
    }

    fn broker(&mut self, shared: bool) -> Broker {
        let config = LogConfig {
            // Small, so that segments and ids are often not there.
            cache_bytes: 2000 + self.below(20_000) as usize,
            commits_max: 1 + self.below(4) as usize,
            ops_max: 10_000,
            patience_us: 10_000_000,
            recheck_us: shared.then_some((50_000, 1_000_000)),
            tells: false,
            answer_bytes_max: 300,
            seed: self.next(),
        };
        let mut log = Log::new(config);
        log.retain_every(5_000_000, 0);
        Broker { log, started_us: self.now_us, asked: HashMap::new(), jobs: Vec::new() }
    }

    fn next(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// Runs so many steps and then to the end of everything. Says how many claims shared the commit of their messages.
    pub fn run(mut self, steps: u64) -> u64 {
        for _ in 0..steps {
            self.step();
        }
        self.settle();
        self.drain();
        self.check_store();
        assert!(self.answered > steps / 20, "most of it was answered");
        self.met
    }

    fn step(&mut self) {
        match self.below(100) {
            0..40 => {
                let broker = self.below(self.brokers.len() as u64) as usize;
                let (request, asked) = self.request();
                self.submit(broker, request, asked);
            }
            40..85 => self.move_work(),
            85..97 => self.now_us += self.below(400_000),
            97 => self.now_us += self.below(8_000_000),
            98 if self.chance(30) => self.crash(),
            99 if self.chance(20) => self.away = !self.away,
            _ => {}
        }
        if !self.away {
            for at in 0..self.brokers.len() {
                let mono_us = self.now_us - self.brokers[at].started_us;
                self.brokers[at].log.store_is_back(mono_us);
            }
        }
        self.turn_all();
    }

    fn submit(&mut self, broker: usize, request: Request, asked: Asked) {
        self.tokens += 1;
        let token = self.tokens;
        let mono_us = self.now_us - self.brokers[broker].started_us;
        let key = self.brokers[broker].log.submit(token, request, mono_us);
        self.brokers[broker].asked.insert(token, (key, asked, self.now_us));
        if self.chance(3) {
            self.brokers[broker].log.cancel(key, mono_us);
        }
    }

    fn turn_all(&mut self) {
        for at in 0..self.brokers.len() {
            let broker = &mut self.brokers[at];
            let mono_us = self.now_us - broker.started_us;
            broker.log.turn(mono_us);
            broker.jobs.extend(broker.log.take_work().into_iter().map(|(id, work)| Job { id, work, outcome: None }));
            assert!(broker.log.take_damaged().is_empty() && broker.log.take_lost().is_empty());
            for (token, answer) in broker.log.take_answers() {
                let (_, asked, _) = self.brokers[at].asked.remove(&token).expect("answered once");
                self.answered += 1;
                self.check(asked, answer);
            }
        }
    }

    /// Does one piece of work of a random broker, or delivers an outcome.
    fn move_work(&mut self) {
        let at = self.below(self.brokers.len() as u64) as usize;
        if self.brokers[at].jobs.is_empty() {
            return;
        }
        let job = self.below(self.brokers[at].jobs.len() as u64) as usize;
        self.move_job(at, job);
    }

    /// The job that a batch follows, if that is not over.
    fn before(&self, at: usize, job: usize) -> Option<usize> {
        let jobs = &self.brokers[at].jobs;
        let Work::Commit(batch) = &jobs[job].work else { return None };
        let before = batch.behind.and_then(|behind| jobs.iter().position(|job| job.id == behind));
        assert!(before.is_none_or(|before| self.before(at, before).is_none()), "a chain has two links");
        before
    }

    fn move_job(&mut self, at: usize, mut job: usize) {
        if let Some(before) = self.before(at, job) {
            // Its outcome is told after that one's. It may be done before that, but seldom is.
            if self.brokers[at].jobs[job].outcome.is_some() || self.chance(90) {
                job = before;
            }
        }
        let Job { id, work, outcome } = &mut self.brokers[at].jobs[job];
        if outcome.is_none() {
            *outcome = Some(if self.away {
                Err(StoreFailure::Unavailable("away".into()))
            } else {
                Ok(self.store.work(work, self.now_us as i64))
            });
            return;
        }
        let id = *id;
        let outcome = self.brokers[at].jobs.swap_remove(job).outcome;
        let mono_us = self.now_us - self.brokers[at].started_us;
        self.brokers[at].log.done(id, outcome.expect("just seen"), mono_us);
    }

    /// A broker dies: what it has asked of the store is done or not, its clients hear nothing.
    fn crash(&mut self) {
        let at = self.below(self.brokers.len() as u64) as usize;
        for job in 0..self.brokers[at].jobs.len() {
            if self.brokers[at].jobs[job].outcome.is_none() && self.chance(50) && !self.away {
                let work = self.brokers[at].jobs[job].work.clone();
                self.store.work(&work, self.now_us as i64);
            }
        }
        self.met += self.brokers[at].log.counters().met;
        let shared = self.brokers.len() > 1;
        self.brokers[at] = self.broker(shared);
    }

    fn name<const N: usize>(&mut self, names: [&str; N]) -> Arc<str> {
        let at = self.below(N as u64) as usize;
        names[at].into()
    }

    fn request(&mut self) -> (Request, Asked) {
        match self.below(100) {
            0..40 => self.push(),
            40..70 => {
                let wait_ms = if self.chance(40) { 3000 } else { 0 };
                self.pop(wait_ms)
            }
            70..90 => self.ack(),
            90..93 => self.fetch(),
            93..95 => {
                let lease = self.held.iter().flatten().filter_map(|held| held.lease).next_back();
                (Request::Extend(ExtendRequest { tenant: TENANT, lease, seconds: 3 }), Asked::Other)
            }
            95..98 => {
                let patch = OptionsPatch {
                    lease_s: Change::Set(1 + self.below(5) as i64),
                    retry_limit: Change::Set(self.below(3) as i64),
                    dedup_window_s: Change::Set(WINDOW_S),
                    delayed_s: Change::Set(if self.chance(20) { 2 } else { 0 }),
                    window_buffer_s: Change::Set(if self.chance(20) { 1 } else { 0 }),
                    min_pop_wait_ms: Change::Set(if self.chance(20) { 500 } else { 0 }),
                    retention_enabled: Change::Set(true),
                    completed_retention_s: Change::Set(if self.chance(30) { 4 } else { 0 }),
                    ..OptionsPatch::default()
                };
                let queue = self.name(QUEUES);
                (Request::Configure { tenant: TENANT, queue, patch: Box::new(patch) }, Asked::Other)
            }
            _ if self.chance(30) => (Request::Delete { tenant: TENANT, queue: self.name(["jobs"]) }, Asked::Other),
            _ => self.pop(5000),
        }
    }

    fn push(&mut self) -> (Request, Asked) {
        let (mut parts, mut sent): (Vec<PushPart>, Vec<_>) = (Vec::new(), Vec::new());
        for _ in 0..1 + self.below(2) {
            let (queue, partition) = (self.name(QUEUES), self.name(PARTITIONS));
            if parts.iter().any(|part| part.queue == queue && part.partition == partition) {
                continue;
            }
            let mut records = Records::default();
            let mut items = Vec::new();
            for _ in 0..1 + self.below(4) {
                self.payloads += 1;
                let payload = format!("{{\"n\":{}}}", self.payloads);
                let id = self.transaction_id();
                let bytes = id.as_ref().map(|id| id.as_bytes());
                records.push(&Record { id: bytes, payload: payload.as_bytes(), ..Record::default() });
                items.push(Sent { id, payload });
            }
            sent.push((Arc::clone(&queue), Arc::clone(&partition), items));
            parts.push(PushPart { queue, partition, records });
        }
        (Request::Push(PushRequest { tenant: TENANT, parts }), Asked::Push(sent))
    }

    /// None, one that was used, a new one that tells its time, from a clock that may be wrong, or a new one that does not.
    fn transaction_id(&mut self) -> Option<String> {
        match self.below(10) {
            0..3 => return None,
            3..6 if !self.ids.is_empty() => {
                let recent = self.ids.len() - self.below(self.ids.len().min(40) as u64) as usize - 1;
                return Some(self.ids[recent].clone());
            }
            _ => {}
        }
        let id = if self.chance(60) {
            let off_ms = if self.chance(20) { self.below(60_000) as i64 - 30_000 } else { 0 };
            let ms = (self.now_us / 1000).saturating_add_signed(off_ms);
            Uuid::v7(ms, u128::from(self.next())).to_string()
        } else {
            format!("id-{}", self.next())
        };
        self.ids.push(id.clone());
        Some(id)
    }

    fn pop(&mut self, wait_ms: u64) -> (Request, Asked) {
        let group = self.below(GROUPS.len() as u64) as usize;
        let scope = match self.below(10) {
            0..6 => Scope::Queue(self.name(QUEUES)),
            6..9 => Scope::Partition(self.name(QUEUES), self.name(PARTITIONS)),
            _ => Scope::Discover { namespace: Some("orders".into()), task: None },
        };
        let auto_ack = self.chance(25);
        let request = PopRequest {
            tenant: TENANT,
            scope,
            group: GROUPS[group].0.into(),
            batch: 1 + self.below(6) as u32,
            partitions: 1 + self.below(3) as u32,
            wait_ms,
            auto_ack,
            lease_s: self.chance(30).then_some(2),
            start: GROUPS[group].1,
            conflation: None,
        };
        let done = self.done.clone();
        (Request::Pop(request), Asked::Pop { group, auto_ack, done })
    }

    fn ack(&mut self) -> (Request, Asked) {
        let group = self.below(GROUPS.len() as u64) as usize;
        let count = (1 + self.below(5) as usize).min(self.held[group].len());
        let taken = if self.chance(90) {
            self.held[group].drain(..count).collect::<Vec<_>>()
        } else {
            self.held[group][..count].to_vec()
        };
        let mut items = Vec::new();
        let mut acks = Vec::new();
        for held in taken {
            let status = match self.below(20) {
                0..15 => AckStatus::Completed,
                15..17 => AckStatus::Failed,
                17..19 => AckStatus::Retry,
                _ => AckStatus::Dead,
            };
            items.push((held.partition, held.offset, status));
            let lease = if self.chance(85) { held.lease.map(Some) } else { None };
            let transaction_id = Some(held.id.into());
            acks.push(Ack { partition: Some(held.partition), transaction_id, status, lease, error: None });
        }
        let request = AckRequest { tenant: TENANT, group: GROUPS[group].0.into(), acks };
        (Request::Ack(request), Asked::Ack { group, items })
    }

    fn fetch(&mut self) -> (Request, Asked) {
        let entry = FetchEntry {
            queue: self.name(QUEUES),
            partition: self.name(PARTITIONS),
            offset: self.below(5),
            max_bytes: 100,
        };
        let max_wait_ms = if self.chance(50) { 3000 } else { 0 };
        let request =
            FetchRequest { tenant: TENANT, entries: vec![entry], max_bytes: 1000, max_wait_ms, min_bytes: 20 };
        (Request::Fetch(request), Asked::Other)
    }

    fn check(&mut self, asked: Asked, answer: Answer) {
        match (asked, answer) {
            (Asked::Push(sent), Answer::Pushed(parts)) => self.check_push(&sent, &parts),
            (Asked::Pop { group, auto_ack, done }, Answer::Popped(popped)) => {
                self.check_pop(group, auto_ack, &done, &popped);
            }
            (Asked::Ack { group, items }, Answer::Acked(results)) => self.check_acks(group, &items, &results),
            (Asked::Other, _) | (_, Answer::Failed(_)) => {}
            (_, other) => panic!("an answer to something else: {other:?}"),
        }
    }

    fn check_push(&mut self, sent: &[(Arc<str>, Arc<str>, Vec<Sent>)], parts: &[PushedPart]) {
        assert_eq!(sent.len(), parts.len());
        for ((queue, partition, items), part) in sent.iter().zip(parts) {
            assert_eq!(items.len(), part.messages.len());
            // The queue may have been removed since.
            let Some(row) = self.store.partition(TENANT, queue, partition) else { continue };
            if row.number != part.number {
                continue;
            }
            let (id, log_start) = (row.id, row.log_start);
            for (item, pushed) in items.iter().zip(&part.messages) {
                match *pushed {
                    Pushed::Queued { offset, stamp_us } => {
                        if offset >= log_start {
                            let stored = self.stored_at(id, offset);
                            assert_eq!(stored.1, item.payload, "an acknowledged message is at its offset");
                            assert_eq!(stored.2, stamp_us);
                        }
                        self.stored.push((id, offset, item.payload.clone()));
                    }
                    Pushed::Duplicate { offset, .. } => {
                        if offset >= log_start {
                            assert_eq!(self.stored_at(id, offset).0, item.id, "a duplicate has the id of the original");
                        }
                    }
                }
            }
        }
    }

    /// Id, payload and stamp of a stored message.
    fn stored_at(&self, partition: PartitionId, offset: u64) -> (Option<String>, String, i64) {
        let (_, row) =
            self.store.segments.range((partition, 0)..=(partition, offset)).next_back().expect("a segment before it");
        let segment = Packer::default().unpack(&row.data, row.base, row.next, row.stamp_us).expect("readable");
        let record = segment.record(offset);
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
        (record.id.map(text), text(record.payload), row.stamp_us)
    }

    fn check_pop(&mut self, group: usize, auto_ack: bool, done: &BTreeMap<(PartitionId, usize), u64>, popped: &Popped) {
        assert_eq!(popped.lease.is_some(), !auto_ack && !popped.runs.is_empty());
        for run in &popped.runs {
            let done = done.get(&(run.partition_id, group)).copied().unwrap_or(0);
            let mut next = run.slices[0].from;
            assert!(next >= done, "nothing is delivered to who asks after its ack: {next} {done}");
            for slice in &run.slices {
                assert_eq!(slice.from, next, "a run has no holes");
                assert!(slice.to > slice.from);
                for offset in slice.from..slice.to {
                    let record = slice.segment.record(offset);
                    let known = self.store.partitions.get(&run.partition_id).filter(|row| offset >= row.log_start);
                    if known.is_some() {
                        let stored = self.stored_at(run.partition_id, offset);
                        assert_eq!(record.payload, stored.1.as_bytes(), "what is delivered is what is stored");
                    }
                    let own = record.id.map(|id| String::from_utf8(id.to_vec()).expect("text"));
                    let id = own.unwrap_or_else(|| message_id(run.number, offset, slice.segment.stamp_us).to_string());
                    if !auto_ack {
                        let partition = run.partition_id;
                        self.held[group].push(Held { partition, offset, id, lease: popped.lease });
                    }
                }
                next = slice.to;
            }
            if auto_ack {
                let done = self.done.entry((run.partition_id, group)).or_default();
                *done = next.max(*done);
            }
        }
    }

    fn check_acks(&mut self, group: usize, items: &[(PartitionId, u64, AckStatus)], results: &[Acked]) {
        assert_eq!(items.len(), results.len());
        for (&(partition, offset, status), acked) in items.iter().zip(results) {
            let stopped =
                items.iter().any(|&(of, at, status)| of == partition && at <= offset && status != AckStatus::Completed);
            if acked.result.is_ok() && status == AckStatus::Completed && !stopped {
                let done = self.done.entry((partition, group)).or_default();
                *done = (*done).max(offset + 1);
            }
        }
    }

    /// Faults end, and everything that was asked is answered in bounded time.
    fn settle(&mut self) {
        self.away = false;
        let end_us = self.now_us + 40_000_000;
        while self.now_us < end_us {
            for at in 0..self.brokers.len() {
                let mono_us = self.now_us - self.brokers[at].started_us;
                self.brokers[at].log.store_is_back(mono_us);
                while !self.brokers[at].jobs.is_empty() {
                    self.move_job(at, 0);
                }
            }
            self.turn_all();
            self.now_us += 20_000;
        }
        self.met += self.brokers.iter().map(|broker| broker.log.counters().met).sum::<u64>();
        for broker in &self.brokers {
            let waiting: Vec<_> = broker.asked.values().map(|(key, _, since_us)| (key, since_us)).collect();
            assert!(waiting.is_empty(), "unanswered: {waiting:?}, {:?}", broker.log.usage());
            assert_eq!(broker.log.usage().ops, 0);
        }
    }

    /// One consumer of each group takes everything that is left, through any broker.
    fn drain(&mut self) {
        for (group, (name, start)) in GROUPS.into_iter().enumerate() {
            self.held[group].clear();
            for queue in QUEUES {
                let mut empty = 0;
                let mut rounds = 0;
                while empty < 3 {
                    rounds += 1;
                    assert!(rounds < 5000, "draining {queue} does not end");
                    let request = PopRequest {
                        tenant: TENANT,
                        scope: Scope::Queue(queue.into()),
                        group: name.into(),
                        batch: 50,
                        partitions: 5,
                        wait_ms: 0,
                        auto_ack: true,
                        lease_s: None,
                        start,
                        conflation: None,
                    };
                    let before = self.done.clone();
                    let broker = self.below(self.brokers.len() as u64) as usize;
                    self.submit(
                        broker,
                        Request::Pop(request),
                        Asked::Pop { group, auto_ack: true, done: before.clone() },
                    );
                    for _ in 0..20 {
                        self.turn_all();
                        for at in 0..self.brokers.len() {
                            while !self.brokers[at].jobs.is_empty() {
                                self.move_job(at, 0);
                            }
                        }
                    }
                    if self.done == before {
                        empty += 1;
                        // Leases lapse, delays end.
                        self.now_us += 70_000_000;
                        self.turn_all();
                    } else {
                        empty = 0;
                    }
                }
            }
        }
        for ((partition, group), cursor) in &self.store.cursors {
            let row = &self.store.partitions[partition];
            assert_eq!(cursor.next.max(row.log_start), row.next, "{group} has come to the end of {partition}");
        }
    }

    /// What was acknowledged is there, once, in a log without holes.
    fn check_store(&self) {
        for (partition, offset, payload) in &self.stored {
            let Some(row) = self.store.partitions.get(partition) else { continue };
            if *offset >= row.log_start {
                assert_eq!(self.stored_at(*partition, *offset).1, *payload);
            }
        }
        for row in self.store.partitions.values() {
            let mut seen: HashMap<String, i64> = HashMap::new();
            let mut payloads = std::collections::HashSet::new();
            let mut next = None;
            for segment in self.store.segments.range((row.id, 0)..=(row.id, u64::MAX)).map(|(_, row)| row) {
                assert_eq!(segment.base, next.unwrap_or(segment.base), "a log has no holes");
                next = Some(segment.next);
                for offset in segment.base..segment.next {
                    let (id, payload, stamp_us) = self.stored_at(row.id, offset);
                    assert!(payloads.insert(payload), "a message is stored once");
                    if let Some(id) = id {
                        let earlier_us = seen.insert(id.clone(), stamp_us);
                        assert!(
                            earlier_us.is_none_or(|earlier_us| stamp_us - earlier_us > WINDOW_S * 1_000_000),
                            "{id} is stored twice within its window"
                        );
                    }
                }
            }
        }
    }
}
