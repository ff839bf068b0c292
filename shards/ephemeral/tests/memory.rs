//! What the engine keeps beside payloads, counted by the allocator.

use peak_alloc::PeakAlloc;
use queen_ephemeral::{Claim, Delivery, Engine, EngineConfig, Pop, Popped, Sink, TenantId, WaiterId};

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// The most a message that is not leased may cost beside its payload.
const MESSAGE_MOST_BYTES: usize = 48;
/// The most an empty queue with a name of 48 characters may cost, its place in the index included.
const QUEUE_MOST_BYTES: usize = 256;

struct Keep(Option<Claim>);

impl Sink for Keep {
    fn deliver(&mut self, _waiter: WaiterId, mut delivery: Delivery<'_>) {
        self.0 = delivery.take_claim();
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

fn pop<'a>(queue: &'a str, batch: u32) -> Pop<'a> {
    Pop { tenant: TenantId::DEFAULT, queue, partition: None, group: None, batch, auto_ack: true, wait_ms: 0 }
}

/// One test, because the allocator counts for the whole process.
#[test]
fn messages_and_empty_queues_cost_what_is_allowed() {
    for (messages, size) in [(1_000_000, 16), (300_000, 128), (777_777, 33), (20_000, 1_000)] {
        let mut engine = engine();
        let mut sink = Keep(None);
        let payload = vec![b'x'; size];
        let before = ALLOCATOR.current_usage();
        for _ in 0..messages {
            let payloads = [&payload[..]].into_iter();
            engine.push(0, TenantId::DEFAULT, "queue", "Default", payloads, &mut sink).expect("no limit is near");
        }
        let each = (ALLOCATOR.current_usage() - before) as f64 / messages as f64 - size as f64;
        println!("{messages} messages of {size} bytes: {each:.1} bytes each beside the payload");
        assert!(each <= MESSAGE_MOST_BYTES as f64, "{each} bytes a message");
    }

    let another = TenantId([7; 16]);
    for (queues, tenant) in
        [(100_000_usize, TenantId::DEFAULT), (131_072, another), (917_505, TenantId::DEFAULT), (917_505, another)]
    {
        let names: Vec<String> = (0..queues).map(|n| format!("rpc-inbox-{n:038}")).collect();
        assert_eq!(names[0].len(), 48);
        let mut engine = engine();
        let mut sink = Keep(None);
        let before = ALLOCATOR.current_usage();
        for name in &names {
            let payloads = [&b"reply"[..]].into_iter();
            engine.push(0, tenant, name, "Default", payloads, &mut sink).expect("no limit is near");
            let pop = Pop { tenant, ..pop(name, 1) };
            assert_eq!(engine.pop(0, &pop, WaiterId(1), &mut sink), Ok(Popped::Delivered));
            engine.settle(sink.0.take().expect("messages come with a claim"));
        }
        let each = (ALLOCATOR.current_usage() - before) as f64 / queues as f64;
        println!("{queues} drained queues: {each:.1} bytes each");
        assert!(each <= QUEUE_MOST_BYTES as f64, "{each} bytes a queue");
        // They leave nothing behind.
        while engine.advance(300_000, usize::MAX, &mut sink) {}
        assert_eq!((engine.queues(), engine.memory_bytes()), (0, 0));
    }
}
