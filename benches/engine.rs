//! What the ephemeral engine does on one core: pushes of 128-byte payloads, alone and in batches,
//! autoAck pops in batches of 100 whose payloads are copied out and whose claims are settled, and
//! round trips by way of an inbox.

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use queen_ephemeral::{
    Claim, Delivery, Engine, EngineConfig, InboxAddress, Pop, Popped, Sink, TenantId, WaiterId, inbox::Minted,
};

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
    has_reply: bool,
}

impl Sink for Copy {
    fn deliver(&mut self, _waiter: WaiterId, mut delivery: Delivery<'_>) {
        self.out.clear();
        for message in delivery.messages() {
            self.out.extend_from_slice(message.payload);
        }
        self.claim = delivery.take_claim();
    }

    fn reply(&mut self, _waiter: WaiterId, reply: Option<&[u8]>) {
        self.out.clear();
        self.out.extend_from_slice(reply.expect("no time passes"));
        self.has_reply = true;
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

/// A worker's pop parks, a request opens an inbox and is pushed to it, the reply is pushed to the inbox.
fn requests(criterion: &mut Criterion) {
    const WORKER: WaiterId = WaiterId(1);
    const REQUESTER: WaiterId = WaiterId(2);
    let mut group = criterion.benchmark_group("request and reply");
    group.throughput(Throughput::Elements(1));
    group.bench_function("one inbox each", |bencher| {
        let (mut engine, mut sink) = (engine(), Copy::default());
        let mut reply_to = Vec::new();
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
            let parked = engine.pop(0, &pop, WORKER, &mut sink);
            assert!(matches!(parked, Ok(Popped::Parked(_))));
            let inbox = engine.open_inbox(0, TenantId::DEFAULT, None, 30_000, REQUESTER).expect("it has no name");
            reply_to.clear();
            Minted { epoch: 1, shard: 0, inbox }.append_to(&mut reply_to);
            let name = str::from_utf8(&reply_to).expect("a name is ASCII");
            let pushed = engine.push_request(0, TenantId::DEFAULT, "bench", "Default", &PAYLOAD, name, &mut sink);
            pushed.expect("no limit is near");
            engine.settle(sink.claim.take().expect("the request woke the worker"));
            let to = InboxAddress::Minted(Minted::parse(name).expect("it was minted").inbox);
            engine.push_reply(0, TenantId::DEFAULT, to, [&PAYLOAD[..]].into_iter(), &mut sink);
            assert!(std::mem::take(&mut sink.has_reply));
        });
    });
}

criterion_group!(benches, pushes, pops, inboxes, requests);
criterion_main!(benches);
