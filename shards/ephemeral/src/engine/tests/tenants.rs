//! What tenants may hold.

use super::{Bench, POP, bench, config};
use crate::{
    ConfigureError, Engine, Millis, Policy, Pop, PopError, Popped, PushError, QueueOptions, TenantId, TenantLimit,
    TenantUsage,
};

const ONE: TenantId = TenantId([7; 16]);
const OTHER: TenantId = TenantId([8; 16]);

const fn holds(bytes: u64, queues: u64) -> TenantUsage {
    TenantUsage { bytes, queues }
}

impl Bench {
    fn limit(&mut self, tenant: TenantId, bytes: u64, queues: u64) {
        self.engine.set_tenant_limit(tenant, Some(TenantLimit { bytes, queues }));
    }

    fn push_as(&mut self, tenant: TenantId, queue: &str, partition: &str, payloads: &[&str]) -> Result<(), PushError> {
        let payloads = payloads.iter().map(|payload| payload.as_bytes());
        self.engine.push(self.now_ms, tenant, queue, partition, payloads, &mut self.inbox)
    }

    fn touch(&mut self, tenant: TenantId, queue: &str) -> Result<Popped, PopError> {
        self.try_pop(0, Pop { tenant, queue, ..POP })
    }

    fn declare(&mut self, tenant: TenantId, queue: &str, options: QueueOptions) -> Result<(), ConfigureError> {
        self.engine.configure(self.now_ms, tenant, queue, options, &mut self.inbox)
    }

    fn has(&self, tenant: TenantId, queue: &str) -> bool {
        self.engine.depth(tenant, queue, None).is_some()
    }
}

fn drop_oldest(max_length: u64) -> QueueOptions {
    QueueOptions { max_length: Some(max_length), policy: Policy::DropOldest, ..QueueOptions::default() }
}

#[test]
fn a_tenant_holds_no_more_bytes_than_it_may_over_all_its_queues() {
    let mut bench = bench();
    bench.limit(ONE, 10, u64::MAX);
    bench.push_as(ONE, "q", "Default", &["abc", "def"]).expect("6 of 10");
    assert_eq!(bench.push_as(ONE, "r", "Default", &["abc", "de"]), Err(PushError::TenantBytes));
    assert!(!bench.has(ONE, "r"), "it changed nothing");
    bench.push_as(ONE, "r", "Default", &["abcd"]).expect("10 of 10");
    bench.push_as(ONE, "r", "Default", &[""]).expect("nothing more");
    assert_eq!(bench.push_as(ONE, "q", "Default", &["a"]), Err(PushError::TenantBytes));
    assert_eq!(bench.engine.tenant_usage(ONE), holds(10, 2));
    // Others are not concerned.
    bench.push_as(OTHER, "q", "Default", &["0123456789"]).expect("no limit");
    bench.push(&["0123456789"]);
    // Leased messages count, consumed ones do not.
    let pop = Pop { tenant: ONE, ..POP };
    let got = bench.got(pop);
    assert_eq!(bench.engine.tenant_usage(ONE), holds(10, 2));
    let ack = crate::AckStatus::Completed;
    bench.engine.ack(bench.now_ms, ONE, "q", None, &got[0].id, ack, &mut bench.inbox);
    assert_eq!(bench.engine.tenant_usage(ONE), holds(7, 2));
    bench.push_as(ONE, "q", "Default", &["abc"]).expect("room again");
}

#[test]
fn bytes_that_come_back_count_again_even_beyond_the_limit() {
    let mut bench = bench();
    bench.limit(ONE, 3, u64::MAX);
    bench.push_as(ONE, "q", "Default", &["abc"]).expect("room");
    let (_, claim) = bench.claimed(Pop { tenant: ONE, auto_ack: true, ..POP });
    assert_eq!(bench.engine.tenant_usage(ONE), holds(0, 1));
    bench.push_as(ONE, "q", "Default", &["def"]).expect("room");
    bench.engine.give_back(bench.now_ms, claim.expect("a claim"), &mut bench.inbox);
    assert_eq!(bench.engine.tenant_usage(ONE), holds(6, 1));
    assert_eq!(bench.push_as(ONE, "q", "Default", &["g"]), Err(PushError::TenantBytes));
}

#[test]
fn a_push_that_drops_the_oldest_counts_what_that_frees() {
    let mut bench = bench();
    bench.declare(ONE, "q", drop_oldest(3)).expect("room");
    bench.push_as(ONE, "q", "a", &["55555"]).expect("room");
    bench.push_as(ONE, "q", "b", &["1", "22"]).expect("room");
    bench.limit(ONE, 8, u64::MAX);
    // From its own partition first: the byte of `1` goes, eight stay.
    assert_eq!(bench.push_as(ONE, "q", "b", &["33"]), Err(PushError::TenantBytes));
    bench.push_as(ONE, "q", "b", &["3"]).expect("one for one");
    assert_eq!(bench.engine.tenant_usage(ONE), holds(8, 1));
    // Then from the others, oldest first: five bytes of `a`.
    assert_eq!(bench.push_as(ONE, "q", "c", &["666666"]), Err(PushError::TenantBytes));
    bench.push_as(ONE, "q", "c", &["55555"]).expect("five for five");
    assert_eq!(bench.pop(Pop { tenant: ONE, ..POP }), ["22", "3", "55555"]);
}

#[test]
fn what_a_trim_frees_is_known_before_it_over_many_partitions() {
    let mut bench = bench();
    bench.engine = Engine::new(crate::EngineConfig { max_partitions_per_queue: 100, ..config() });
    bench.declare(ONE, "q", drop_oldest(60)).expect("room");
    for at in 0..60 {
        // Partitions are born all along, and not pushed to in turn.
        bench.push_as(ONE, "q", &format!("p{}", at % (1 + at / 6)), &[&"x".repeat(at % 11)]).expect("room");
    }
    // To a new partition: the oldest of all others go.
    let held = bench.engine.tenant_usage(ONE).bytes;
    for pushed in 1..=40 {
        let freed: u64 = (0..pushed).map(|at| at as u64 % 11).sum();
        bench.limit(ONE, held - freed, u64::MAX);
        let mut payloads = vec![""; pushed];
        payloads[0] = "1";
        assert_eq!(bench.push_as(ONE, "q", "new", &payloads), Err(PushError::TenantBytes), "{pushed} messages");
    }
    bench.limit(ONE, held - (0..40).map(|at| at % 11).sum::<u64>(), u64::MAX);
    bench.push_as(ONE, "q", "new", &[""; 40]).expect("exactly what is freed");
}

#[test]
fn a_tenant_has_no_more_queues_than_it_may_by_whatever_call() {
    let mut bench = bench();
    bench.limit(ONE, u64::MAX, 2);
    bench.push_as(ONE, "q", "Default", &["a"]).expect("the first");
    bench.declare(ONE, "r", QueueOptions::default()).expect("the second");
    assert_eq!(bench.push_as(ONE, "s", "Default", &["a"]), Err(PushError::TenantQueues));
    assert_eq!(bench.touch(ONE, "s"), Err(PopError::TenantQueues));
    assert_eq!(bench.declare(ONE, "s", QueueOptions::default()), Err(ConfigureError::TenantQueues));
    let request = bench.engine.push_request(bench.now_ms, ONE, "s", "Default", b"a", "inbox", &mut bench.inbox);
    assert_eq!(request, Err(PushError::TenantQueues));
    assert!(!bench.has(ONE, "s"));
    // What is there is served as before.
    bench.push_as(ONE, "r", "Default", &["b"]).expect("it is there");
    bench.declare(ONE, "q", QueueOptions::default()).expect("it is there");
    bench.touch(OTHER, "s").expect("another tenant");
    bench.touch(TenantId::DEFAULT, "s").expect("another tenant");
    // A deleted one makes room.
    bench.engine.delete(bench.now_ms, ONE, "r", &mut bench.inbox);
    bench.touch(ONE, "s").expect("room again");
    assert_eq!(bench.engine.tenant_usage(ONE), holds(1, 2));
}

#[test]
fn at_its_limit_a_tenants_own_queues_are_collected_longest_idle_first() {
    let mut bench = bench();
    for (tenant, queue) in [(OTHER, "older"), (ONE, "a"), (TenantId::DEFAULT, "older"), (ONE, "b"), (ONE, "c")] {
        bench.now_ms += 1;
        bench.touch(tenant, queue).expect("no limit");
    }
    bench.push_as(ONE, "full", "Default", &["x"]).expect("no limit");
    bench.limit(ONE, u64::MAX, 4);
    bench.now_ms += 1;
    bench.touch(ONE, "a").expect("it is there, and used now");
    bench.touch(ONE, "d").expect("b makes room");
    assert_eq!(["a", "b", "c", "d", "full"].map(|queue| bench.has(ONE, queue)), [true, false, true, true, true]);
    assert!(bench.has(OTHER, "older") && bench.has(TenantId::DEFAULT, "older"), "not at others' cost");
    // A lower limit collects as many as it takes.
    bench.limit(ONE, u64::MAX, 2);
    bench.touch(ONE, "e").expect("a, c and d make room");
    assert_eq!(["a", "c", "d", "e", "full"].map(|queue| bench.has(ONE, queue)), [false, false, false, true, true]);
}

#[test]
fn a_push_that_is_refused_for_its_bytes_collects_nothing() {
    let mut bench = bench();
    bench.touch(ONE, "idle").expect("room");
    bench.limit(ONE, 2, 1);
    assert_eq!(bench.push_as(ONE, "q", "Default", &["abc"]), Err(PushError::TenantBytes));
    assert!(bench.has(ONE, "idle"));
    bench.push_as(ONE, "q", "Default", &["ab"]).expect("the idle one makes room");
    assert!(!bench.has(ONE, "idle"));
}

#[test]
fn a_tenants_limit_is_looked_at_before_the_nodes() {
    let mut bench = bench();
    bench.engine.set_memory_limit(0);
    bench.engine.set_queue_limit(0);
    bench.limit(ONE, 0, 1);
    assert_eq!(bench.push_as(ONE, "q", "Default", &["a"]), Err(PushError::TenantBytes));
    bench.limit(ONE, 1, 0);
    assert_eq!(bench.push_as(ONE, "q", "Default", &["a"]), Err(PushError::TenantQueues));
    bench.limit(ONE, 1, 1);
    assert_eq!(bench.push_as(ONE, "q", "Default", &["a"]), Err(PushError::QueueLimit));
}

#[test]
fn a_limit_holds_from_when_it_is_set_until_it_is_taken_away() {
    let mut bench = bench();
    let limited = |bench: &Bench| bench.engine.limited_tenants().collect::<Vec<_>>();
    bench.push_as(ONE, "q", "Default", &["abcd"]).expect("no limit");
    assert_eq!(limited(&bench), []);
    bench.limit(ONE, 2, 1);
    assert_eq!(limited(&bench), [(ONE, holds(4, 1))]);
    assert_eq!(bench.engine.stats().messages, 1, "nothing is taken away");
    assert_eq!(bench.push_as(ONE, "q", "Default", &["a"]), Err(PushError::TenantBytes));
    bench.engine.set_tenant_limit(ONE, None);
    assert_eq!(limited(&bench), []);
    bench.push_as(ONE, "q", "Default", &["a"]).expect("no limit");
    bench.push_as(ONE, "r", "Default", &["a"]).expect("no limit");
    // A limit is kept where there is no queue.
    bench.limit(OTHER, 7, 0);
    assert_eq!(limited(&bench), [(OTHER, holds(0, 0))]);
    assert_eq!(bench.touch(OTHER, "q"), Err(PopError::TenantQueues));
}

#[test]
fn the_default_tenant_takes_no_limit_and_is_not_counted() {
    let mut bench = bench();
    bench.limit(TenantId::DEFAULT, 0, 0);
    bench.push(&["abc"]);
    assert_eq!(bench.engine.tenant_usage(TenantId::DEFAULT), holds(0, 0));
    assert_eq!(bench.engine.limited_tenants().count(), 0);
}

#[test]
fn what_goes_by_itself_is_not_held_any_more() {
    const SOON_MS: Millis = 10;
    let mut bench = bench();
    let options = QueueOptions { ttl_ms: Some(SOON_MS), ..QueueOptions::default() };
    bench.declare(ONE, "old", options).expect("room");
    bench.push_as(ONE, "old", "Default", &["abc"]).expect("room");
    bench.push_as(ONE, "reset", "Default", &["defg"]).expect("room");
    bench.push_as(ONE, "deleted", "Default", &["hijkl"]).expect("room");
    assert_eq!(bench.engine.tenant_usage(ONE), holds(12, 3));
    bench.engine.reset(bench.now_ms, ONE, "reset", &mut bench.inbox);
    assert_eq!(bench.engine.tenant_usage(ONE), holds(8, 3));
    bench.engine.delete(bench.now_ms, ONE, "deleted", &mut bench.inbox);
    assert_eq!(bench.engine.tenant_usage(ONE), holds(3, 2));
    bench.now_ms += SOON_MS;
    bench.engine.advance(bench.now_ms, usize::MAX, &mut bench.inbox);
    assert_eq!(bench.engine.tenant_usage(ONE), holds(0, 2));
    bench.now_ms += config().implicit_idle_ms;
    bench.engine.advance(bench.now_ms, usize::MAX, &mut bench.inbox);
    assert_eq!(bench.engine.tenant_usage(ONE), holds(0, 1), "the reset one was implicit");
    bench.engine.delete(bench.now_ms, ONE, "old", &mut bench.inbox);
    assert_eq!(bench.engine.tenant_usage(ONE), holds(0, 0));
}
