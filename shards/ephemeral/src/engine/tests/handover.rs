//! Moving a partition between two engines.

use super::{Bench, EPOCH, Got, POP, TAKE, TENANT, WAIT, bench, config};
use crate::{
    AckOutcome, AckStatus, Engine, MESSAGE_BYTES, Parcel, ParcelBuilder, PartitionPlace, Policy, Pop, PutInError,
    PutInLimits, QUEUE_BYTES, QUEUE_MODE, QueueOptions, TakenOut, TenantId, TenantLimit, UnparkedPop, WaiterId,
};

const UNLIMITED: PutInLimits = PutInLimits { memory_bytes: u64::MAX, queues: u64::MAX };
const ONE: Pop<'static> = Pop { group: Some("one"), ..TAKE };
const TWO: Pop<'static> = Pop { group: Some("two"), ..TAKE };

impl Bench {
    fn take_out(&mut self, partition: &str) -> TakenOut {
        let taken = self.engine.take_out(self.now_ms, TENANT, "q", partition, &mut self.inbox);
        self.engine.check_invariants();
        taken
    }

    fn parcel(&mut self) -> Parcel {
        self.take_out("Default").parcel.expect("it holds messages")
    }

    fn try_put_in(&mut self, parcel: &Parcel, limits: PutInLimits) -> Result<(), PutInError> {
        let put = self.engine.put_in(self.now_ms, parcel, limits, &mut self.inbox);
        self.engine.check_invariants();
        put
    }

    fn put_in(&mut self, parcel: &Parcel) {
        self.try_put_in(parcel, UNLIMITED).expect("room");
    }

    fn partitions(&self) -> Vec<(String, u64, u32)> {
        let mut rows = Vec::new();
        let mut from = Some(PartitionPlace::default());
        while let Some(at) = from {
            from = self.engine.scan_partitions(at, 2, &mut |row| {
                assert_eq!((row.tenant, row.queue), (TENANT, "q"));
                rows.push((row.partition.to_owned(), row.depth, row.parked));
            });
        }
        rows
    }
}

fn attempts(got: &[Got]) -> Vec<(&str, u32)> {
    got.iter().map(|got| (got.payload.as_str(), got.attempts)).collect()
}

fn gathered(queue: &str, payloads: &[&str]) -> Parcel {
    let mut builder = ParcelBuilder::new(TENANT, queue, "Default");
    for payload in payloads {
        builder.message(0, payload.as_bytes(), None);
    }
    builder.build().expect("well-formed")
}

#[test]
fn a_partition_moves_whole_and_in_order() {
    let (mut from, mut to) = (bench(), bench());
    from.push(&["a", "b"]);
    from.try_push("q", "other", &["x"]).expect("room");
    from.push(&["c"]);
    let parcel = from.parcel();
    assert_eq!((parcel.tenant(), parcel.queue(), parcel.partition()), (TENANT, "q", "Default"));
    assert_eq!(from.partitions(), [("other".to_owned(), 1, 0)]);
    to.put_in(&parcel);
    to.push(&["d"]);
    assert_eq!(to.pop(TAKE), ["a", "b", "c", "d"]);
    assert_eq!(from.pop(TAKE), ["x"]);
    assert_eq!((from.engine.stats().dropped, to.engine.stats().pushed), (crate::Drops::default(), 1));
}

#[test]
fn nothing_is_left_of_a_partition_that_was_taken_out() {
    let mut from = bench();
    from.configure(QueueOptions { ttl_ms: Some(500), ..QueueOptions::default() });
    let before = from.engine.stats();
    from.push(&["a", "b", "c"]);
    assert_eq!(from.got(Pop { batch: 2, ..POP }).len(), 2);
    assert_eq!(from.take_out("Default").parcel.expect("messages").messages().len(), 3);
    let after = from.engine.stats();
    assert_eq!((after.messages, after.payload_bytes, after.leases, after.partitions), (0, 0, 0, 0));
    assert_eq!(after.memory_bytes - before.memory_bytes, crate::GROUP_BYTES);
    assert!(from.take_out("Default").parcel.is_none());
    assert!(from.take_out("never").parcel.is_none());
    from.wait(100_000);
    assert_eq!(from.drops(), crate::Drops::default());
}

#[test]
fn a_lease_moves_as_a_redelivery_with_attempts_plus_one_whatever_the_retry_limit() {
    let (mut from, mut to) = (bench(), bench());
    for bench in [&mut from, &mut to] {
        bench.configure(QueueOptions { retry_limit: Some(1), ..QueueOptions::default() });
    }
    from.push(&["a", "b"]);
    let leased = from.got(Pop { batch: 1, ..POP });
    to.put_in(&from.parcel());
    assert_eq!(from.ack(&leased[0].id, AckStatus::Completed), AckOutcome::Unknown);
    let got = to.got(POP);
    assert_eq!(attempts(&got), [("a", 2), ("b", 1)]);
    // From there on the limit holds again.
    assert_eq!(to.ack(&got[0].id, AckStatus::Retry), AckOutcome::Acked);
    assert_eq!((to.drops().retry, to.depth()), (1, 1));
}

#[test]
fn every_group_goes_on_where_it_stood() {
    let (mut from, mut to) = (bench(), bench());
    let (one, two) = (Pop { group: Some("one"), ..POP }, Pop { group: Some("two"), ..POP });
    assert!(from.pop(one).is_empty() && from.pop(two).is_empty(), "both are there from the start");
    from.push(&["a", "b", "c", "d"]);
    assert_eq!(from.pop(Pop { batch: 1, ..TWO }), ["a"]);
    let got = from.got(Pop { batch: 3, ..one });
    let ack = |bench: &mut Bench, id: &str, group, status| {
        bench.engine.ack(bench.now_ms, TENANT, "q", Some(group), id, status, &mut bench.inbox)
    };
    assert_eq!(ack(&mut from, &got[1].id, "one", AckStatus::Completed), AckOutcome::Acked);
    assert_eq!(ack(&mut from, &got[2].id, "one", AckStatus::Retry), AckOutcome::Redelivered);
    to.put_in(&from.parcel());
    assert_eq!(attempts(&to.got(one)), [("a", 2), ("c", 2), ("d", 1)]);
    assert_eq!(attempts(&to.got(two)), [("b", 1), ("c", 1), ("d", 1)]);
}

#[test]
fn a_group_that_one_engine_did_not_know_starts_there_as_a_new_group_does() {
    let (mut from, mut to) = (bench(), bench());
    from.push(&["a", "b"]);
    assert_eq!(from.pop(Pop { batch: 1, ..ONE }), ["a"]);
    from.push(&["c"]);
    to.try_push("q", "x", &["x1"]).expect("room");
    assert_eq!(to.pop(Pop { partition: Some("x"), ..TWO }), ["x1"]);
    to.try_push("q", "x", &["x2"]).expect("room");
    to.put_in(&from.parcel());
    // "a" was consumed by the only group there was.
    assert_eq!(to.pop(ONE), ["x2", "b", "c"]);
    assert_eq!(to.pop(TWO), ["x2", "b", "c"]);
}

#[test]
fn ttl_counts_from_the_birth_also_where_the_clock_began_later() {
    let (mut from, mut to) = (bench(), bench());
    to.now_ms = 3;
    for bench in [&mut from, &mut to] {
        bench.configure(QueueOptions { ttl_ms: Some(800), ..QueueOptions::default() });
    }
    from.push(&["a"]);
    from.wait(500);
    from.push(&["b"]);
    from.wait(200);
    let mut parcel = from.parcel();
    parcel.grow_older(50);
    to.put_in(&parcel);
    to.wait(49);
    assert_eq!(to.depth(), 2);
    to.wait(1);
    assert_eq!((to.depth(), to.drops().ttl), (1, 1));
    to.wait(500);
    assert_eq!(to.depth(), 0);
}

#[test]
fn what_grew_too_old_on_the_way_is_served_to_nobody() {
    let (mut from, mut to) = (bench(), bench());
    to.configure(QueueOptions { ttl_ms: Some(100), ..QueueOptions::default() });
    from.push(&["a"]);
    from.wait(100);
    from.push(&["b"]);
    to.park(7, Pop { wait_ms: 60_000, ..WAIT });
    to.put_in(&from.parcel());
    assert_eq!(to.answers(), [(7, vec!["b".to_owned()])]);
    assert_eq!(to.drops().ttl, 1);
}

#[test]
fn messages_of_a_healed_split_go_in_front_and_ids_stay_what_they_were() {
    let (mut from, mut to) = (bench(), bench());
    from.push(&["a1", "a2"]);
    from.got(Pop { batch: 1, ..POP });
    to.push(&["b1", "b2", "b3"]);
    let before = to.got(Pop { batch: 2, ..POP });
    to.put_in(&from.parcel());
    assert_eq!(to.ack(&before[1].id, AckStatus::Retry), AckOutcome::Redelivered);
    assert_eq!(to.ack(&before[0].id, AckStatus::Completed), AckOutcome::Acked);
    let got = to.got(POP);
    assert_eq!(attempts(&got), [("a1", 2), ("a2", 1), ("b2", 2), ("b3", 1)]);
    assert_eq!(got[0].id, format!("e:{EPOCH:016x}:Default:{}.2", u64::MAX - 1));
    for got in got {
        assert_eq!(to.ack(&got.id, AckStatus::Completed), AckOutcome::Acked);
    }
    assert_eq!(to.depth(), 0);
}

#[test]
fn in_front_of_older_messages_each_still_goes_at_its_own_age() {
    let (mut from, mut to) = (bench(), bench());
    to.configure(QueueOptions { ttl_ms: Some(100), ..QueueOptions::default() });
    to.push(&["old"]);
    to.wait(60);
    from.push(&["young"]);
    to.put_in(&from.parcel());
    assert_eq!(to.pop(Pop { batch: 1, ..ONE }), ["young"]);
    to.wait(40);
    assert_eq!((to.drops().ttl, to.depth()), (1, 0));
    to.push(&["new"]);
    assert_eq!(to.pop(TWO), ["new"]);
    assert_eq!(to.pop(ONE), ["new"]);
}

#[test]
fn pops_that_wait_for_the_partition_alone_come_back_to_the_caller() {
    let (mut from, mut to) = (bench(), bench());
    from.park(3, Pop { partition: Some("x"), group: Some("g"), batch: 4, auto_ack: false, ..WAIT });
    from.park(4, WAIT);
    from.wait(100);
    let park = from.park(5, Pop { partition: Some("x"), ..WAIT });
    from.park(6, Pop { partition: Some("y"), ..WAIT });
    assert_eq!(from.partitions(), [("x".to_owned(), 0, 2), ("y".to_owned(), 0, 1)]);
    let taken = from.take_out("x");
    assert!(taken.parcel.is_none());
    let pop = |waiter, group: &str, batch, auto_ack, wait_ms| UnparkedPop {
        waiter: WaiterId(waiter),
        group: group.to_owned(),
        batch,
        auto_ack,
        wait_ms,
    };
    assert_eq!(taken.pops, [pop(3, "g", 4, false, 900), pop(5, QUEUE_MODE, 100, true, 1000)]);
    assert!(!from.engine.cancel(park));
    assert!(from.answers().is_empty());
    // There they are served by what is adopted, and so is who waits for any partition.
    from.try_push("q", "x", &["a"]).expect("room");
    assert_eq!(from.answers(), [(4, vec!["a".to_owned()])]);
    from.try_push("q", "x", &["b", "c"]).expect("room");
    to.park(5, Pop { partition: Some("x"), batch: 1, ..WAIT });
    to.park(8, WAIT);
    let parcel = from.take_out("x").parcel.expect("messages");
    to.put_in(&parcel);
    assert_eq!(to.answers(), [(5, vec!["b".to_owned()]), (8, vec!["c".to_owned()])]);
}

#[test]
fn what_an_answer_holds_is_settled_as_if_nothing_had_moved() {
    let mut from = bench();
    from.push(&["a"]);
    let (_, claim) = from.claimed(TAKE);
    assert!(from.take_out("Default").parcel.is_none());
    assert!(from.partitions().is_empty());
    assert_eq!((from.depth(), from.engine.stats().partitions), (0, 1), "its bytes are still being written");
    from.engine.settle(claim.expect("a claim"));
    assert_eq!(from.engine.stats().partitions, 0);
}

#[test]
fn what_an_answer_held_and_lost_moves_after_the_others_and_to_its_group_alone() {
    let (mut from, mut to) = (bench(), bench());
    from.push(&["a", "b"]);
    assert!(from.pop(Pop { partition: Some("none"), ..TWO }).is_empty(), "there are two groups");
    let (got, claim) = from.claimed(Pop { batch: 1, ..ONE });
    assert_eq!(attempts(&got), [("a", 1)]);
    to.put_in(&from.parcel());
    from.engine.give_back(from.now_ms, claim.expect("a claim"), &mut from.inbox);
    assert_eq!(from.partitions(), [("Default".to_owned(), 1, 0)]);
    to.put_in(&from.parcel());
    assert_eq!(attempts(&to.got(ONE)), [("a", 1), ("b", 1)]);
    assert_eq!(attempts(&to.got(TWO)), [("a", 1), ("b", 1)]);
    assert_eq!((to.depth(), from.depth(), from.engine.stats().partitions), (0, 0, 0));
}

#[test]
fn a_leased_claim_that_is_given_back_after_the_move_changes_nothing() {
    let mut from = bench();
    from.push(&["a"]);
    let (_, claim) = from.claimed(POP);
    assert_eq!(from.parcel().groups()[0].returned[0].attempts, 1);
    from.engine.give_back(from.now_ms, claim.expect("a claim"), &mut from.inbox);
    assert_eq!((from.depth(), from.engine.stats().partitions), (0, 0));
}

#[test]
fn a_request_keeps_the_inbox_of_its_reply() {
    let (mut from, mut to) = (bench(), bench());
    let (engine, inbox) = (&mut from.engine, &mut from.inbox);
    engine.push_request(1000, TENANT, "q", "Default", b"ask", "_inbox.mine", inbox).expect("room");
    let parcel = from.parcel();
    assert_eq!(parcel.messages().next().expect("one").reply_to, Some("_inbox.mine"));
    to.put_in(&parcel);
    let held = to.engine.memory_bytes();
    assert_eq!(held, QUEUE_BYTES + crate::PARTITION_BYTES + MESSAGE_BYTES + 3 + 2 + 11);
    assert_eq!(held, parcel.memory_bytes());
}

#[test]
fn bounds_may_be_exceeded_by_a_quarter_and_no_more() {
    for policy in [Policy::Reject, Policy::DropOldest] {
        let mut to = bench();
        to.configure(QueueOptions { policy, max_length: Some(8), max_bytes: Some(40), ..QueueOptions::default() });
        to.push(&["1", "2", "3", "4", "5", "6", "7"]);
        let four = gathered("q", &["a", "b", "c", "d"]);
        let before = to.engine.stats();
        assert_eq!(to.try_put_in(&four, UNLIMITED), Err(PutInError::QueueFull));
        assert_eq!(to.try_put_in(&gathered("q", &["long".repeat(11).as_str()]), UNLIMITED), Err(PutInError::QueueFull));
        assert_eq!(to.engine.stats(), before);
        to.put_in(&gathered("q", &["a", "b", "c"]));
        assert_eq!((to.depth(), to.drops().bounds), (10, 0));
        assert_eq!(to.pop(TAKE), ["a", "b", "c", "1", "2", "3", "4", "5", "6", "7"]);
        to.put_in(&four);
    }
}

#[test]
fn the_node_s_limits_refuse_whole_and_a_later_try_may_succeed() {
    let mut to = bench();
    let parcel = gathered("q", &["a", "b"]);
    let needed = parcel.memory_bytes();
    let under = |memory_bytes, queues| PutInLimits { memory_bytes, queues };
    assert_eq!(to.try_put_in(&parcel, under(needed - 1, 1)), Err(PutInError::NodeMemory));
    assert_eq!(to.try_put_in(&parcel, under(needed, 0)), Err(PutInError::QueueLimit));
    assert_eq!((to.engine.memory_bytes(), to.engine.queues()), (0, 0));
    assert_eq!(to.try_put_in(&parcel, under(needed, 1)), Ok(()));
    assert_eq!(to.engine.memory_bytes(), needed);
}

#[test]
fn partitions_and_groups_are_limited_too_and_a_tenant_is_not() {
    let mut to = bench();
    for partition in ["x", "y", "z"] {
        to.try_push("q", partition, &["m"]).expect("room");
    }
    assert_eq!(to.try_put_in(&gathered("q", &["a"]), UNLIMITED), Err(PutInError::PartitionLimit));
    for group in ["1", "2", "3"] {
        to.try_pop(0, Pop { queue: "other", group: Some(group), ..TAKE }).expect("room");
    }
    let mut from = bench();
    from.try_push("other", "Default", &["a"]).expect("room");
    from.try_pop(0, Pop { queue: "other", group: Some("4"), ..POP }).expect("room");
    let parcel = from.engine.take_out(from.now_ms, TENANT, "other", "Default", &mut from.inbox).parcel;
    assert_eq!(to.try_put_in(&parcel.expect("a message"), UNLIMITED), Err(PutInError::GroupLimit));

    let tenant = TenantId([7; 16]);
    let mut builder = ParcelBuilder::new(tenant, "q", "Default");
    builder.message(0, b"four", None);
    let mut to = Engine::new(config());
    to.set_tenant_limit(tenant, Some(TenantLimit { bytes: 0, queues: 0 }));
    let parcel = builder.build().expect("well-formed");
    to.put_in(0, &parcel, UNLIMITED, &mut super::Inbox::default()).expect("a tenant's limit is not looked at");
    assert_eq!((to.tenant_usage(tenant).bytes, to.tenant_usage(tenant).queues), (4, 1));
    assert_eq!(to.take_out(0, tenant, "q", "Default", &mut super::Inbox::default()).parcel, Some(parcel));
    assert_eq!(to.tenant_usage(tenant).bytes, 0);
    to.check_invariants();
}

#[test]
fn a_window_closes_when_its_messages_move_away() {
    let mut from = bench();
    let window = Some(crate::Window { ms: 50, count: 3 });
    from.configure(QueueOptions { window, ..QueueOptions::default() });
    from.push(&["a"]);
    from.park(1, WAIT);
    from.wait(40);
    let parcel = from.parcel();
    from.wait(40);
    assert!(from.answers().is_empty());
    // It opens anew with the message that comes back.
    from.put_in(&parcel);
    from.wait(49);
    assert!(from.answers().is_empty());
    from.wait(1);
    assert_eq!(from.answers(), [(1, vec!["a".to_owned()])]);
}
