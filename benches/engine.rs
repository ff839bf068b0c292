//! What the ephemeral engine does on one core: pushes of 128-byte payloads, alone and in batches,
//! and autoAck pops in batches of 100 whose payloads are copied out and whose claims are settled.

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use queen_ephemeral::{Claim, Delivery, Engine, EngineConfig, Pop, Popped, Sink, TenantId, WaiterId};

/// The broker's own allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const PAYLOAD: [u8; 128] = [b'x'; 128];
/// Messages per measured round: more than fit the nearest caches.
const MESSAGES: u64 = 100_000;
const BATCH: usize = 100;

/// Copies what it gets into one buffer, as a response does.
#[derive(Default)]
struct Copy {
    out: Vec<u8>,
    claim: Option<Claim>,
}

impl Sink for Copy {
    fn deliver(&mut self, _waiter: WaiterId, mut delivery: Delivery<'_>) {
        self.out.clear();
        for message in delivery.messages() {
            self.out.extend_from_slice(message.payload);
        }
        self.claim = delivery.take_claim();
    }
}

fn engine() -> Engine {
    Engine::new(EngineConfig {
        boot_epoch: 1,
        queue_max_bytes: u64::MAX,
        queue_max_length: u64::MAX,
        lease_ms: 30_000,
        retry_limit: 5,
        implicit_idle_ms: 300_000,
        group_idle_ms: 3_600_000,
        max_partitions_per_queue: 100_000,
        max_groups_per_queue: 1_000,
    })
}

fn push(engine: &mut Engine, messages: usize, sink: &mut Copy) {
    let payloads = std::iter::repeat_n(&PAYLOAD[..], messages);
    engine.push(0, TenantId::DEFAULT, "bench", "Default", payloads, sink).expect("no limit is near");
}

fn drain(engine: &mut Engine, batch: u32, sink: &mut Copy) -> u64 {
    let pop = Pop {
        tenant: TenantId::DEFAULT,
        queue: "bench",
        partition: None,
        group: None,
        batch,
        auto_ack: true,
        wait_ms: 0,
    };
    let mut bytes = 0;
    while engine.pop(0, &pop, WaiterId(1), sink) == Ok(Popped::Delivered) {
        bytes += black_box(&sink.out).len() as u64;
        engine.settle(sink.claim.take().expect("messages come with a claim"));
    }
    bytes
}

fn pushes(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("push");
    group.throughput(Throughput::Elements(MESSAGES));
    for batch in [1, BATCH] {
        group.bench_function(format!("128 bytes, {batch} a call"), |bencher| {
            bencher.iter_batched_ref(
                || (engine(), Copy::default()),
                |(engine, sink)| {
                    for _ in 0..MESSAGES / batch as u64 {
                        push(engine, batch, sink);
                    }
                },
                BatchSize::PerIteration,
            );
        });
    }
}

fn pops(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("pop autoAck, settled");
    group.throughput(Throughput::Elements(MESSAGES));
    for batch in [1, BATCH as u32] {
        group.bench_function(format!("128 bytes, {batch} a call"), |bencher| {
            bencher.iter_batched_ref(
                || {
                    let (mut engine, mut sink) = (engine(), Copy::default());
                    push(&mut engine, MESSAGES as usize, &mut sink);
                    (engine, sink)
                },
                |(engine, sink)| assert_eq!(drain(engine, batch, sink), MESSAGES * PAYLOAD.len() as u64),
                BatchSize::PerIteration,
            );
        });
    }
}

/// A pop parks on an inbox, a push answers it, the claim is settled.
fn inboxes(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("park and answer");
    group.throughput(Throughput::Elements(1));
    group.bench_function("one inbox", |bencher| {
        let (mut engine, mut sink) = (engine(), Copy::default());
        let pop = Pop {
            tenant: TenantId::DEFAULT,
            queue: "bench",
            partition: None,
            group: None,
            batch: 1,
            auto_ack: true,
            wait_ms: 30_000,
        };
        bencher.iter(|| {
            let parked = engine.pop(0, &pop, WaiterId(1), &mut sink);
            assert!(matches!(parked, Ok(Popped::Parked(_))));
            push(&mut engine, 1, &mut sink);
            engine.settle(sink.claim.take().expect("the push answered"));
        });
    });
}

criterion_group!(benches, pushes, pops, inboxes);
criterion_main!(benches);
