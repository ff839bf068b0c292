//! What crossing a lane costs: the ring alone, a hop to a sleeping shard and back, and batches.
//!
//! `cargo bench --bench lane`. The hops run on two executors, each pinned to a core where there are two.

use std::{
    future::poll_fn,
    hint::black_box,
    sync::mpsc,
    task::Poll,
    time::{Duration, Instant},
};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use queen_fabric::{
    lane::{LANE_DEPTH, ring::ring},
    placement::Available,
    port::{Asked, Incoming, MeshOptions, Port, Protocol, mesh},
    rt::{Executor, spawn_local},
};

struct Echo;

impl Protocol for Echo {
    type Ask = u64;
    type Tell = ();
    type Answer = u64;
}

/// Questions per batch, as a busy shard sends them.
const BATCH: u64 = 64;

fn ring_alone(c: &mut Criterion) {
    let mut group = c.benchmark_group("ring");
    group.throughput(Throughput::Elements(BATCH));
    let (mut producer, mut consumer) = ring::<[u64; 7]>(LANE_DEPTH);
    group.bench_function("push and pop 64, one publish", |b| {
        b.iter(|| {
            for n in 0..BATCH {
                assert!(producer.stage([n; 7]).is_ok());
            }
            producer.publish();
            while let Some(value) = consumer.pop() {
                black_box(value);
            }
        });
    });
    group.finish();
}

/// Pumps a port for ever, answering what it is asked.
async fn pump(port: Port<Echo>) {
    poll_fn(|cx| {
        while let Poll::Ready(incoming) = port.poll_incoming(cx) {
            if let Incoming::Ask { ticket, ask } = incoming {
                port.answer(ticket, ask);
            }
        }
        Poll::<()>::Pending
    })
    .await;
}

/// Two shards on two executors. Measures rounds of a batch of questions and all their answers.
struct Pair {
    rounds: mpsc::SyncSender<(u64, u64)>,
    took: mpsc::Receiver<Duration>,
}

impl Pair {
    fn start() -> Self {
        let available = Available::of_this_thread().expect("the affinity can be read");
        let mut cpus = available.cpus.iter();
        let (asks_on, answers_on) = (cpus.next(), cpus.next());
        let mut seeds = mesh::<Echo>(2, MeshOptions::default()).into_iter();
        let (asker, answerer) = (seeds.next().expect("two seeds"), seeds.next().expect("two seeds"));
        let (rounds, next_rounds) = mpsc::sync_channel::<(u64, u64)>(1);
        let (report, took) = mpsc::channel();
        let answers = Executor::spawn("answers", answers_on, Duration::ZERO, move || pump(answerer.open()));
        let asks = Executor::spawn("asks", asks_on, Duration::ZERO, move || async move {
            let port = asker.open();
            spawn_local(pump(port.clone())).detach();
            // Blocks this executor between measurements: it has nothing else to do.
            while let Ok((rounds, batch)) = next_rounds.recv() {
                let started = Instant::now();
                for _ in 0..rounds {
                    let asked: Vec<Asked<Echo>> = (0..batch).map(|n| port.ask_parked(1, n)).collect();
                    for asked in asked {
                        black_box(asked.await.answer);
                    }
                }
                if report.send(started.elapsed()).is_err() {
                    break;
                }
            }
        });
        // Both run until the process ends.
        drop((answers.expect("an executor starts"), asks.expect("an executor starts")));
        Self { rounds, took }
    }

    fn measure(&self, rounds: u64, batch: u64) -> Duration {
        self.rounds.send((rounds, batch)).expect("the asker runs");
        self.took.recv().expect("the asker reports")
    }
}

fn hops(c: &mut Criterion) {
    let pair = Pair::start();
    let mut group = c.benchmark_group("hop");
    group.bench_function("one question there and back, both asleep", |b| {
        b.iter_custom(|rounds| pair.measure(rounds, 1));
    });
    group.throughput(Throughput::Elements(BATCH));
    group.bench_function("64 questions there and back in one batch", |b| {
        b.iter_custom(|rounds| pair.measure(rounds, BATCH));
    });
    group.finish();
}

criterion_group!(benches, ring_alone, hops);
criterion_main!(benches);
