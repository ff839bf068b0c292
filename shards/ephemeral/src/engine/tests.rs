//! A test per rule, named as a statement.

mod handover;
mod tenants;

use crate::{
    AckOutcome, AckStatus, Claim, ConfigureError, Deleted, Delivery, Drops, Engine, EngineConfig, Millis, ParkId,
    Policy, Pop, PopError, Popped, PushError, QueueOptions, Sink, TenantId, WaiterId, Window,
};

const TENANT: TenantId = TenantId::DEFAULT;
const EPOCH: u64 = 0xabc;

#[derive(Debug, PartialEq, Eq)]
struct Got {
    partition: String,
    attempts: u32,
    payload: String,
    id: String,
}

/// Keeps what it gets, in order.
#[derive(Default)]
struct Inbox {
    answers: Vec<(u64, Vec<Got>, Option<Claim>)>,
}

impl Sink for Inbox {
    fn deliver(&mut self, waiter: WaiterId, mut delivery: Delivery<'_>) {
        let got = delivery
            .messages()
            .map(|message| Got {
                partition: message.partition.to_owned(),
                attempts: message.attempts,
                payload: String::from_utf8(message.payload.to_vec()).expect("text"),
                id: crate::MessageId {
                    epoch: EPOCH,
                    partition: message.partition,
                    sequence: message.sequence,
                    attempts: message.attempts,
                }
                .to_string(),
            })
            .collect();
        self.answers.push((waiter.0, got, delivery.take_claim()));
    }
}

/// An engine, its sink, and a queue called `q`.
struct Bench {
    engine: Engine,
    inbox: Inbox,
    now_ms: Millis,
}

impl Drop for Bench {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.engine.check_invariants();
        }
    }
}

fn config() -> EngineConfig {
    EngineConfig {
        boot_epoch: EPOCH,
        queue_max_bytes: 1000,
        queue_max_length: 100,
        lease_ms: 30_000,
        retry_limit: 5,
        implicit_idle_ms: 300_000,
        group_idle_ms: 3_600_000,
        max_partitions_per_queue: 3,
        max_groups_per_queue: 3,
    }
}

fn bench() -> Bench {
    Bench { engine: Engine::new(config()), inbox: Inbox::default(), now_ms: 1000 }
}

const POP: Pop<'static> =
    Pop { tenant: TENANT, queue: "q", partition: None, group: None, batch: 100, auto_ack: false, wait_ms: 0 };

impl Bench {
    fn try_push(&mut self, queue: &str, partition: &str, payloads: &[&str]) -> Result<(), PushError> {
        let payloads = payloads.iter().map(|payload| payload.as_bytes());
        self.engine.push(self.now_ms, TENANT, queue, partition, payloads, &mut self.inbox)
    }

    fn push(&mut self, payloads: &[&str]) {
        self.try_push("q", "Default", payloads).expect("room");
    }

    fn try_pop(&mut self, waiter: u64, pop: Pop<'_>) -> Result<Popped, PopError> {
        self.engine.pop(self.now_ms, &pop, WaiterId(waiter), &mut self.inbox)
    }

    /// A pop that finds something or nothing; its payloads, its claim settled.
    fn pop(&mut self, pop: Pop<'_>) -> Vec<String> {
        self.got(pop).into_iter().map(|got| got.payload).collect()
    }

    fn got(&mut self, pop: Pop<'_>) -> Vec<Got> {
        let (got, claim) = self.claimed(pop);
        if let Some(claim) = claim {
            self.engine.settle(claim);
        }
        got
    }

    fn claimed(&mut self, pop: Pop<'_>) -> (Vec<Got>, Option<Claim>) {
        match self.try_pop(0, pop).expect("allowed") {
            Popped::Delivered => {
                let (_, got, claim) = self.inbox.answers.pop().expect("an answer");
                (got, claim)
            }
            Popped::Empty => (Vec::new(), None),
            Popped::Parked(_) => panic!("it does not wait"),
        }
    }

    fn park(&mut self, waiter: u64, pop: Pop<'_>) -> ParkId {
        match self.try_pop(waiter, pop).expect("allowed") {
            Popped::Parked(park) => park,
            other => panic!("{other:?}"),
        }
    }

    /// The answers to parked pops since the last look: who, and which payloads.
    fn answers(&mut self) -> Vec<(u64, Vec<String>)> {
        let mut answers = Vec::new();
        for (waiter, got, claim) in std::mem::take(&mut self.inbox.answers) {
            answers.push((waiter, got.into_iter().map(|got| got.payload).collect()));
            if let Some(claim) = claim {
                self.engine.settle(claim);
            }
        }
        answers
    }

    fn ack(&mut self, id: &str, status: AckStatus) -> AckOutcome {
        self.engine.ack(self.now_ms, TENANT, "q", None, id, status, &mut self.inbox)
    }

    fn configure(&mut self, options: QueueOptions) {
        self.engine.configure(self.now_ms, TENANT, "q", options, &mut self.inbox).expect("room");
    }

    fn wait(&mut self, ms: u64) {
        self.now_ms += ms;
        while self.engine.advance(self.now_ms, 3, &mut self.inbox) {}
    }

    fn depth(&self) -> u64 {
        self.engine.depth(TENANT, "q", None).map_or(0, |depth| depth.pending)
    }

    fn drops(&self) -> Drops {
        self.engine.stats().dropped
    }
}

const WAIT: Pop<'static> = Pop { wait_ms: 1000, auto_ack: true, ..POP };
const TAKE: Pop<'static> = Pop { auto_ack: true, ..POP };

#[test]
fn messages_of_a_partition_come_in_the_order_of_their_push() {
    let mut bench = bench();
    bench.push(&["a", "b"]);
    bench.push(&["c"]);
    assert_eq!(bench.pop(Pop { batch: 2, ..TAKE }), ["a", "b"]);
    assert_eq!(bench.pop(TAKE), ["c"]);
    assert!(bench.pop(TAKE).is_empty());
}

#[test]
fn any_partition_means_the_oldest_across_partitions() {
    let mut bench = bench();
    for (partition, payload) in [("x", "1"), ("y", "2"), ("x", "3"), ("z", "4"), ("y", "5")] {
        bench.try_push("q", partition, &[payload]).expect("room");
    }
    assert_eq!(bench.pop(Pop { partition: Some("y"), batch: 1, ..TAKE }), ["2"]);
    assert_eq!(bench.pop(TAKE), ["1", "3", "4", "5"]);
}

#[test]
fn groups_each_see_every_message_and_the_last_frees_it() {
    let mut bench = bench();
    let (one, two) = (Pop { group: Some("one"), ..TAKE }, Pop { group: Some("two"), ..TAKE });
    bench.push(&["a"]);
    assert_eq!(bench.pop(Pop { batch: 1, ..one }), ["a"]);
    bench.push(&["b", "c"]);
    // Born now: what the only group had consumed was freed.
    assert_eq!(bench.pop(two), ["b", "c"]);
    assert_eq!(bench.depth(), 2);
    assert_eq!(bench.pop(one), ["b", "c"]);
    assert_eq!((bench.depth(), bench.engine.stats().partitions), (0, 0));
}

#[test]
fn tenants_do_not_see_each_other() {
    let mut bench = bench();
    bench.push(&["a"]);
    let other = TenantId([9; 16]);
    assert!(bench.pop(Pop { tenant: other, ..TAKE }).is_empty());
    let mut listed = Vec::new();
    assert_eq!(bench.engine.scan(other, 0, 10, &mut |row| listed.push((row.queue.to_owned(), row.depth))), None);
    assert_eq!(listed, [("q".to_owned(), 0)]);
}

#[test]
fn a_retry_returns_with_attempts_plus_one_ahead_of_newer_messages() {
    let mut bench = bench();
    bench.push(&["a", "b"]);
    let first = bench.got(Pop { batch: 1, ..POP });
    assert_eq!((first[0].attempts, first[0].id.as_str()), (1, "e:0000000000000abc:Default:0"));
    assert_eq!(bench.ack(&first[0].id, AckStatus::Retry), AckOutcome::Redelivered);
    let again = bench.got(POP);
    assert_eq!((again[0].payload.as_str(), again[0].attempts), ("a", 2));
    assert_eq!((again[1].payload.as_str(), again[1].attempts), ("b", 1));
    assert_eq!(bench.ack(&first[0].id, AckStatus::Completed), AckOutcome::Unknown, "a late ack of the first delivery");
    assert_eq!(bench.ack(&again[0].id, AckStatus::Completed), AckOutcome::Acked);
    assert_eq!(bench.ack(&again[0].id, AckStatus::Completed), AckOutcome::Unknown, "acked before");
}

#[test]
fn the_retry_that_uses_up_the_last_attempt_drops_and_answers_acked() {
    let mut bench = bench();
    bench.configure(QueueOptions { retry_limit: Some(2), ..QueueOptions::default() });
    bench.push(&["a"]);
    let first = bench.got(POP);
    assert_eq!(bench.ack(&first[0].id, AckStatus::Retry), AckOutcome::Redelivered);
    let second = bench.got(POP);
    assert_eq!(bench.ack(&second[0].id, AckStatus::Retry), AckOutcome::Acked);
    assert_eq!((bench.depth(), bench.drops().retry), (0, 1));
}

#[test]
fn an_id_of_another_epoch_is_stale_and_no_id_is_unknown() {
    let mut bench = bench();
    assert_eq!(bench.ack("e:0000000000000abd:Default:0", AckStatus::Completed), AckOutcome::Stale);
    assert_eq!(bench.ack("e:0000000000000abc:Default:0", AckStatus::Completed), AckOutcome::Unknown);
    assert_eq!(bench.ack("nonsense", AckStatus::Completed), AckOutcome::Unknown);
    assert_eq!(bench.engine.queues(), 0, "an ack creates nothing");
}

#[test]
fn a_lease_that_runs_out_wakes_a_parked_pop_in_that_millisecond() {
    let mut bench = bench();
    bench.push(&["a"]);
    assert_eq!(bench.pop(POP), ["a"]);
    bench.park(7, Pop { wait_ms: 60_000, ..WAIT });
    bench.wait(29_999);
    assert!(bench.answers().is_empty());
    assert!(bench.engine.next_deadline_ms().is_some_and(|at_ms| at_ms <= bench.now_ms + 1));
    bench.wait(1);
    assert_eq!(bench.answers(), [(7, vec!["a".to_owned()])]);
}

#[test]
fn the_smallest_budget_still_makes_progress() {
    let mut bench = bench();
    bench.configure(QueueOptions { ttl_ms: Some(60_000), ..QueueOptions::default() });
    bench.push(&["a", "b", "c"]);
    assert_eq!(bench.pop(POP).len(), 3);
    bench.now_ms += 30_000;
    let mut calls = 1;
    while bench.engine.advance(bench.now_ms, 0, &mut bench.inbox) {
        calls += 1;
        assert!(calls < 100);
    }
    assert_eq!(bench.engine.stats().leases, 0);
    assert_eq!(bench.pop(TAKE), ["a", "b", "c"]);
}

#[test]
fn a_push_hands_its_messages_to_parked_pops_in_the_order_of_their_arrival() {
    let mut bench = bench();
    bench.park(1, Pop { batch: 1, partition: Some("x"), ..WAIT });
    bench.park(2, Pop { batch: 1, ..WAIT });
    bench.park(3, Pop { batch: 5, partition: Some("x"), ..WAIT });
    bench.try_push("q", "y", &["y1"]).expect("room");
    assert_eq!(bench.answers(), [(2, vec!["y1".to_owned()])]);
    bench.try_push("q", "x", &["x1", "x2", "x3"]).expect("room");
    assert_eq!(bench.answers(), [(1, vec!["x1".to_owned()]), (3, vec!["x2".to_owned(), "x3".to_owned()])]);
}

#[test]
fn a_parked_pop_gets_an_empty_answer_at_its_timeout() {
    let mut bench = bench();
    bench.park(1, WAIT);
    bench.wait(999);
    assert!(bench.answers().is_empty());
    bench.wait(1);
    assert_eq!(bench.answers(), [(1, vec![])]);
}

#[test]
fn a_cancelled_pop_is_given_nothing() {
    let mut bench = bench();
    let park = bench.park(1, WAIT);
    bench.park(2, WAIT);
    assert!(bench.engine.cancel(park));
    assert!(!bench.engine.cancel(park));
    bench.push(&["a"]);
    assert_eq!(bench.answers(), [(2, vec!["a".to_owned()])]);
}

#[test]
fn stopping_answers_every_parked_pop_with_nothing() {
    let mut bench = bench();
    bench.park(1, WAIT);
    bench.park(2, Pop { partition: Some("x"), ..WAIT });
    bench.engine.release_waiters(&mut bench.inbox);
    assert_eq!(bench.answers(), [(1, vec![]), (2, vec![])]);
    assert_eq!(bench.engine.stats().parked, 0);
}

#[test]
fn what_is_given_back_returns_to_its_position_with_its_attempts() {
    for auto_ack in [true, false] {
        let mut bench = bench();
        bench.push(&["a", "b", "c"]);
        let (got, claim) = bench.claimed(Pop { batch: 2, auto_ack, ..POP });
        assert_eq!(got.len(), 2);
        assert_eq!(bench.depth(), if auto_ack { 1 } else { 3 });
        bench.engine.give_back(bench.now_ms, claim.expect("a claim"), &mut bench.inbox);
        assert_eq!(bench.depth(), 3);
        let again: Vec<(String, u32)> = bench.got(POP).into_iter().map(|got| (got.payload, got.attempts)).collect();
        assert_eq!(again, [("a".to_owned(), 1), ("b".to_owned(), 1), ("c".to_owned(), 1)]);
    }
}

#[test]
fn a_claim_on_what_was_deleted_and_made_again_changes_nothing() {
    let mut bench = bench();
    bench.push(&["old"]);
    let (_, claim) = bench.claimed(TAKE);
    bench.engine.delete(bench.now_ms, TENANT, "q", &mut bench.inbox);
    bench.push(&["new"]);
    bench.engine.give_back(bench.now_ms, claim.expect("a claim"), &mut bench.inbox);
    assert_eq!(bench.pop(TAKE), ["new"]);
}

#[test]
fn a_given_back_message_past_its_ttl_is_dropped_as_such() {
    let mut bench = bench();
    bench.configure(QueueOptions { ttl_ms: Some(50), ..QueueOptions::default() });
    bench.push(&["a"]);
    let (_, claim) = bench.claimed(TAKE);
    bench.wait(50);
    bench.engine.give_back(bench.now_ms, claim.expect("a claim"), &mut bench.inbox);
    assert_eq!((bench.depth(), bench.drops().ttl), (0, 1));
}

#[test]
fn reject_refuses_the_whole_push_and_counts_leased_messages() {
    let mut bench = bench();
    bench.configure(QueueOptions { max_length: Some(2), ..QueueOptions::default() });
    bench.push(&["a", "b"]);
    assert_eq!(bench.pop(POP).len(), 2);
    assert_eq!(bench.try_push("q", "x", &["c"]), Err(PushError::QueueFull));
    assert_eq!((bench.depth(), bench.engine.stats().pushed), (2, 2));
}

#[test]
fn drop_oldest_takes_the_pushed_partition_first_then_the_oldest_of_the_others() {
    let mut bench = bench();
    let options = QueueOptions { max_length: Some(3), policy: Policy::DropOldest, ..QueueOptions::default() };
    bench.configure(options);
    for (partition, payload) in [("x", "x1"), ("y", "y1"), ("z", "z1")] {
        bench.try_push("q", partition, &[payload]).expect("room");
    }
    bench.try_push("q", "y", &["y2", "y3"]).expect("room is made");
    assert_eq!(bench.pop(TAKE), ["z1", "y2", "y3"]);
    assert_eq!(bench.drops().bounds, 2);
}

#[test]
fn a_call_larger_than_the_bound_keeps_its_newest() {
    let mut bench = bench();
    let options = QueueOptions { max_length: Some(2), policy: Policy::DropOldest, ..QueueOptions::default() };
    bench.configure(options);
    bench.push(&["a", "b", "c", "d", "e"]);
    assert_eq!((bench.drops().bounds, bench.engine.stats().pushed), (3, 5));
    assert_eq!(bench.pop(TAKE), ["d", "e"]);
}

#[test]
fn a_message_larger_than_the_queue_is_refused_under_either_policy() {
    for policy in [Policy::Reject, Policy::DropOldest] {
        let mut bench = bench();
        bench.configure(QueueOptions { max_bytes: Some(3), policy, ..QueueOptions::default() });
        assert_eq!(bench.try_push("q", "Default", &["a", "four"]), Err(PushError::MessageTooLarge));
        assert_eq!(bench.depth(), 0);
    }
}

#[test]
fn a_leased_message_falls_to_its_ttl_and_its_ack_is_unknown() {
    let mut bench = bench();
    bench.configure(QueueOptions { ttl_ms: Some(50), ..QueueOptions::default() });
    bench.push(&["a"]);
    let got = bench.got(POP);
    bench.wait(50);
    assert_eq!((bench.depth(), bench.drops().ttl), (0, 1));
    assert_eq!(bench.ack(&got[0].id, AckStatus::Completed), AckOutcome::Unknown);
}

#[test]
fn a_window_gathers_until_it_has_enough_or_ends() {
    let mut bench = bench();
    bench.configure(QueueOptions { window: Some(Window { ms: 100, count: 3 }), ..QueueOptions::default() });
    bench.park(1, WAIT);
    bench.push(&["a"]);
    bench.wait(60);
    bench.push(&["b"]);
    assert!(bench.answers().is_empty());
    bench.wait(40);
    assert_eq!(bench.answers(), [(1, vec!["a".to_owned(), "b".to_owned()])]);
    bench.park(2, WAIT);
    bench.push(&["c", "d", "e", "f"]);
    assert_eq!(bench.answers(), [(2, ["c", "d", "e", "f"].map(str::to_owned).to_vec())]);
    bench.push(&["g"]);
    assert_eq!(bench.pop(TAKE), ["g"], "a pop that does not wait ignores the window");
}

#[test]
fn a_window_never_outlasts_the_pop() {
    let mut bench = bench();
    bench.configure(QueueOptions { window: Some(Window { ms: 5000, count: 3 }), ..QueueOptions::default() });
    bench.park(1, Pop { wait_ms: 50, ..WAIT });
    bench.push(&["a"]);
    bench.wait(50);
    assert_eq!(bench.answers(), [(1, vec!["a".to_owned()])]);
}

#[test]
fn whoever_a_cancelled_window_held_back_is_served_next() {
    let mut bench = bench();
    bench.configure(QueueOptions { window: Some(Window { ms: 500, count: 3 }), ..QueueOptions::default() });
    let first = bench.park(1, WAIT);
    bench.park(2, Pop { batch: 1, ..WAIT });
    bench.push(&["a"]);
    assert!(bench.engine.cancel(first));
    bench.wait(0);
    assert_eq!(bench.answers(), [(2, vec!["a".to_owned()])]);
}

#[test]
fn an_idle_implicit_queue_is_collected_and_a_declared_one_is_not() {
    let mut bench = bench();
    bench.configure(QueueOptions::default());
    assert!(bench.pop(Pop { queue: "inbox", ..TAKE }).is_empty());
    bench.wait(299_999);
    assert_eq!(bench.engine.queues(), 2);
    bench.wait(1);
    assert_eq!(bench.engine.queues(), 1);
    assert!(bench.engine.depth(TENANT, "q", None).expect("it is there").declared);
}

#[test]
fn idle_queues_make_room_before_a_limit_refuses() {
    let mut bench = bench();
    bench.engine.set_queue_limit(2);
    for queue in ["old", "new"] {
        assert!(bench.pop(Pop { queue, ..TAKE }).is_empty());
        bench.wait(1);
    }
    bench.push(&["a"]);
    assert!(bench.engine.depth(TENANT, "old", None).is_none());
    bench.try_push("new", "Default", &["b"]).expect("it is there");
    assert_eq!(bench.try_push("more", "Default", &["c"]), Err(PushError::QueueLimit));
    assert_eq!(bench.try_pop(0, Pop { queue: "more", ..TAKE }), Err(PopError::QueueLimit));
    let refused = bench.engine.configure(bench.now_ms, TENANT, "more", QueueOptions::default(), &mut bench.inbox);
    assert_eq!(refused, Err(ConfigureError::QueueLimit));
}

#[test]
fn past_the_memory_limit_a_push_changes_nothing() {
    let mut bench = bench();
    bench.push(&["a"]);
    bench.engine.set_memory_limit(bench.engine.memory_bytes() + crate::MESSAGE_BYTES + 1);
    assert_eq!(bench.try_push("q", "Default", &["bb"]), Err(PushError::NodeMemory));
    bench.push(&["b"]);
    assert_eq!(bench.pop(TAKE), ["a", "b"]);
}

#[test]
fn limits_on_partitions_and_groups_are_refused_by_name() {
    let mut bench = bench();
    for partition in ["1", "2", "3"] {
        bench.try_push("q", partition, &["a"]).expect("room");
    }
    assert_eq!(bench.try_push("q", "4", &["a"]), Err(PushError::PartitionLimit));
    assert_eq!(bench.try_pop(0, Pop { partition: Some("4"), ..WAIT }), Err(PopError::PartitionLimit));
    assert_eq!(bench.try_pop(0, Pop { partition: Some("4"), ..TAKE }), Ok(Popped::Empty));
    for group in ["1", "2"] {
        bench.got(Pop { group: Some(group), ..TAKE });
    }
    assert_eq!(bench.try_pop(0, Pop { group: Some("3"), ..TAKE }), Err(PopError::GroupLimit));
}

#[test]
fn an_idle_group_is_forgotten_and_what_it_held_back_is_freed() {
    let mut bench = bench();
    bench.push(&["a"]);
    assert_eq!(bench.pop(Pop { group: Some("gone"), ..POP }), ["a"]);
    bench.wait(3_599_999);
    assert_eq!(bench.pop(TAKE), ["a"]);
    assert_eq!(bench.depth(), 1);
    bench.wait(1);
    assert_eq!((bench.depth(), bench.engine.stats().groups), (0, 1));
}

#[test]
fn reset_keeps_the_declaration_and_the_parked_pops() {
    let mut bench = bench();
    bench.configure(QueueOptions { max_length: Some(9), ..QueueOptions::default() });
    bench.push(&["a", "b"]);
    let got = bench.got(Pop { batch: 1, ..POP });
    bench.park(1, Pop { partition: Some("x"), ..WAIT });
    assert_eq!(bench.engine.reset(bench.now_ms, TENANT, "q", &mut bench.inbox), 2);
    assert_eq!(bench.ack(&got[0].id, AckStatus::Completed), AckOutcome::Unknown);
    assert!(bench.engine.depth(TENANT, "q", None).expect("it is there").declared);
    bench.try_push("q", "x", &["c"]).expect("room");
    assert_eq!(bench.answers(), [(1, vec!["c".to_owned()])]);
}

#[test]
fn delete_leaves_parked_pops_an_implicit_queue() {
    let mut bench = bench();
    bench.configure(QueueOptions::default());
    bench.park(1, WAIT);
    let deleted = bench.engine.delete(bench.now_ms, TENANT, "q", &mut bench.inbox);
    assert_eq!(deleted, Deleted { deleted: true, declared: true });
    assert!(!bench.engine.depth(TENANT, "q", None).expect("it is waited on").declared);
    bench.push(&["a"]);
    assert_eq!(bench.answers(), [(1, vec!["a".to_owned()])]);
    assert!(bench.engine.delete(bench.now_ms, TENANT, "q", &mut bench.inbox).deleted);
    let nothing = bench.engine.delete(bench.now_ms, TENANT, "q", &mut bench.inbox);
    assert_eq!(nothing, Deleted { deleted: false, declared: false });
}

#[test]
fn a_pinned_chunk_does_not_hold_the_queue_s_memory() {
    let mut bench = Bench {
        engine: Engine::new(EngineConfig { queue_max_bytes: 1 << 30, queue_max_length: 1 << 20, ..config() }),
        inbox: Inbox::default(),
        now_ms: 0,
    };
    let payload = "x".repeat(1000);
    for _ in 0..2000 {
        bench.push(&[&payload]);
    }
    // Every hundredth message stays out on a lease, the others are acked.
    let got = bench.got(Pop { batch: 2000, ..POP });
    for (n, got) in got.iter().enumerate().filter(|(n, _)| n % 100 != 0) {
        assert_eq!(bench.ack(&got.id, AckStatus::Completed), AckOutcome::Acked, "{n}");
    }
    // The invariants say that chunks are at most four times what is alive, and slack.
    bench.engine.check_invariants();
    assert_eq!(bench.depth(), 20);
    bench.wait(30_000);
    assert!(bench.pop(TAKE).iter().all(|survivor| *survivor == payload));
}
