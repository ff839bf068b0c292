//! What the log keeps in memory, counted by the allocator: as much as is stored, not as much as once was.

#[expect(dead_code, reason = "the simulation looks into it; here it only has to be there")]
#[path = "simulation/store.rs"]
mod store;

use peak_alloc::PeakAlloc;
use queen_log::{
    engine::{Log, LogConfig},
    id::Uuid,
    options::{Change, OptionsPatch},
    record::{Record, Records},
    request::{Answer, PopRequest, PushPart, PushRequest, Request, Scope, Start},
    row::QUEUE_MODE,
};

use self::store::Store;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

const TENANT: Uuid = Uuid([1; 16]);
const PARTITIONS: u64 = 2000;
/// Pushed to each partition, one at a time.
const MESSAGES: u64 = 10;
/// Every so manieth partition gets one more message, which retention leaves.
const KEPT_EACH: u64 = 100;
const SECOND_US: u64 = 1_000_000;
const RETENTION_S: i64 = 500;

/// A broker with a store that does everything at once, and a clock that stands unless it is moved.
struct Node {
    store: Store,
    log: Log<()>,
    now_us: u64,
}

impl Node {
    fn new() -> Self {
        let now_us = 1_700_000_000 * SECOND_US;
        let mut log = Log::new(LogConfig {
            cache_bytes: 1 << 30,
            commits_max: 4,
            ops_max: 100,
            patience_us: 10 * SECOND_US,
            recheck_us: None,
            tells: false,
            answer_bytes_max: 1 << 30,
            seed: 7,
        });
        log.retain_every(SECOND_US, now_us);
        Self { store: Store::default(), log, now_us }
    }

    /// Does all that there is to do now.
    fn settle(&mut self) -> Vec<Answer> {
        let mut answers = Vec::new();
        loop {
            self.log.turn(self.now_us);
            answers.extend(self.log.take_answers().into_iter().map(|((), answer)| answer));
            let work = self.log.take_work();
            if work.is_empty() {
                return answers;
            }
            for (job, work) in work {
                let done = self.store.work(&work, self.now_us as i64);
                self.log.done(job, Ok(done), self.now_us);
            }
        }
    }

    fn ask(&mut self, request: Request) -> Answer {
        self.log.submit((), request, self.now_us);
        self.settle().pop().expect("answered without time passing")
    }

    /// One message with an id of its own to each of these partitions.
    fn push(&mut self, partitions: impl Iterator<Item = u64>, round: u64) {
        for partition in partitions {
            let id = format!("message {round} of {partition}");
            let mut records = Records::default();
            records.push(&Record { id: Some(id.as_bytes()), payload: &[b'x'; 200], ..Record::default() });
            let parts = vec![PushPart { queue: "q".into(), partition: format!("p{partition}").into(), records }];
            let answer = self.ask(Request::Push(PushRequest { tenant: TENANT, parts }));
            assert!(matches!(answer, Answer::Pushed(_)), "{answer:?}");
        }
    }

    /// Pops and acks everything, so that there is a cursor in every partition.
    fn drain(&mut self) {
        loop {
            let answer = self.ask(Request::Pop(PopRequest {
                tenant: TENANT,
                scope: Scope::Queue("q".into()),
                group: QUEUE_MODE.into(),
                batch: 10_000,
                partitions: 100,
                wait_ms: 0,
                auto_ack: true,
                lease_s: None,
                start: Start::All,
                conflation: None,
            }));
            let Answer::Popped(popped) = answer else { panic!("{answer:?}") };
            if popped.runs.is_empty() {
                return;
            }
        }
    }

    /// Many messages, then, after a while, few.
    fn fill(&mut self) {
        for round in 0..MESSAGES {
            self.push(0..PARTITIONS, round);
        }
        self.drain();
        self.now_us += 2 * RETENTION_S as u64 * SECOND_US;
        self.push((0..PARTITIONS).step_by(KEPT_EACH as usize), MESSAGES);
    }

    /// Has retention remove the many.
    fn retain(&mut self) {
        let patch = OptionsPatch {
            retention_enabled: Change::Set(true),
            retention_s: Change::Set(RETENTION_S),
            ..OptionsPatch::default()
        };
        let patch = Box::new(patch);
        self.ask(Request::Configure { tenant: TENANT, queue: "q".into(), patch });
        self.now_us += 2 * SECOND_US;
        self.settle();
        let removed = self.log.counters().retained;
        assert_eq!(removed, PARTITIONS * MESSAGES);
    }

    /// What the log holds in memory.
    fn held_bytes(self) -> usize {
        let Self { store, log, .. } = self;
        let before = ALLOCATOR.current_usage();
        drop(log);
        let held = before - ALLOCATOR.current_usage();
        drop(store);
        held
    }
}

/// One test, because the allocator counts for the whole process.
#[test]
fn what_retention_removes_is_not_held() {
    let node = |prepare: fn(&mut Node)| {
        let mut node = Node::new();
        prepare(&mut node);
        node.held_bytes()
    };
    let least = node(|node| node.push(0..1, 0));
    let full = node(Node::fill) - least;
    let left = node(|node| {
        node.fill();
        node.retain();
    }) - least;
    println!("{least} bytes with one message, {full} more when full, {left} more of them after retention");
    // One message of a thousand is left, in a partition of a hundred.
    assert!(left <= full / 100, "{left} of {full} bytes are still held");
}
