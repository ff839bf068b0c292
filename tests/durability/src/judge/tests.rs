//! A broker that does nothing wrong is not blamed, and each wrong is called by its name: a history of one is made, and
//! changed in one place.

use super::*;
use crate::history::{AckItem, Lease, Message, Pushed};

const MS: u64 = 1_000_000;
const LEASE_NS: u64 = 2_000 * MS;

fn seen(message: MessageNumber) -> Seen {
    Seen { message: Some(message), message_id: format!("id-{message}"), offset: Some(message as u64) }
}

/// Messages that one producer pushed to one partition, and the log of them.
fn pushed(count: usize) -> (History, Log) {
    let mut history = History::default();
    for message in 0..count {
        let transaction_id = format!("t-{message}");
        history.messages.push(Message { partition: 0, producer: 0, sequence: message as u64, transaction_id });
        history.pushes.push(Pushed {
            message,
            status: PushStatus::Queued,
            message_id: Some(format!("id-{message}")),
            offset: Some(message as u64),
            is_retry: false,
        });
    }
    (history, Log { partitions: vec![(0..count).map(seen).collect()] })
}

/// A pop that took a millisecond.
fn deliver(history: &mut History, lease: &str, at_ms: u64, messages: impl IntoIterator<Item = usize>) {
    history.deliveries.push(Delivery {
        group: Group::Leased(0),
        partition: 0,
        partition_id: "partition".into(),
        lease: Some(Lease { id: lease.into(), lasts_ns: LEASE_NS }),
        sent_ns: at_ms * MS,
        answered_ns: (at_ms + 1) * MS,
        messages: messages.into_iter().map(seen).collect(),
    });
}

/// An ack that took a millisecond and was taken.
fn ack(history: &mut History, lease: &str, at_ms: u64, items: &[(usize, AckWord)]) {
    let item = |&(message, word): &(usize, AckWord)| AckItem { message, word, success: Some(true) };
    history.acks.push(Ack {
        group: Group::Leased(0),
        partition: 0,
        lease_id: lease.into(),
        sent_ns: at_ms * MS,
        answered_ns: Some((at_ms + 1) * MS),
        items: items.iter().map(item).collect(),
    });
}

fn completed(messages: impl IntoIterator<Item = usize>) -> Vec<(usize, AckWord)> {
    messages.into_iter().map(|message| (message, AckWord::Completed)).collect()
}

/// Six messages in two deliveries, each completed.
fn sound() -> (History, Log) {
    let (mut history, log) = pushed(6);
    history.groups.push(Group::Leased(0));
    deliver(&mut history, "a", 10, 0..3);
    ack(&mut history, "a", 20, &completed(0..3));
    deliver(&mut history, "b", 30, 3..6);
    ack(&mut history, "b", 40, &completed(3..6));
    (history, log)
}

/// What is found when a sound history and its log are changed.
fn found(change: impl FnOnce(&mut History, &mut Log)) -> Vec<Broken> {
    let (mut history, mut log) = sound();
    change(&mut history, &mut log);
    let mut found: Vec<_> = judge(&history, &log).violations.iter().map(|violation| violation.broken).collect();
    found.sort();
    found.dedup();
    found
}

#[test]
fn a_sound_history_is_not_blamed() {
    assert_eq!(found(|_, _| {}), []);
}

#[test]
fn an_acknowledged_message_that_is_gone_from_the_log_is_lost() {
    // It was delivered before it went.
    let found = found(|_, log| drop(log.partitions[0].pop()));
    assert_eq!(found, [Broken::Lost]);
}

#[test]
fn a_message_that_never_came_to_a_group_is_lost() {
    let found = found(|history, _| {
        history.deliveries.pop();
        history.acks.pop();
    });
    assert_eq!(found, [Broken::Lost]);
}

#[test]
fn a_group_that_got_nothing_is_not_forgotten() {
    assert_eq!(found(|history, _| history.groups.push(Group::Leased(1))), [Broken::Lost]);
}

#[test]
fn a_message_that_is_in_the_log_twice_is_doubled() {
    let found = found(|_, log| {
        log.partitions[0].push(Seen { message_id: "another".into(), offset: Some(6), ..seen(5) });
    });
    assert_eq!(found, [Broken::Doubled]);
}

#[test]
fn a_message_with_two_ids_is_doubled() {
    let found = found(|history, _| history.pushes[2].message_id = Some("another".into()));
    assert_eq!(found, [Broken::Doubled]);
}

#[test]
fn a_duplicate_at_a_first_push_and_a_second_queued_are_doubled() {
    assert_eq!(found(|history, _| history.pushes[2].status = PushStatus::Duplicate), [Broken::Doubled]);
    let again = |history: &mut History, status| {
        history.pushes.push(Pushed { is_retry: true, status, ..history.pushes[2].clone() });
    };
    assert_eq!(found(|history, _| again(history, PushStatus::Queued)), [Broken::Doubled]);
    assert_eq!(found(|history, _| again(history, PushStatus::Duplicate)), []);
}

#[test]
fn a_producers_messages_out_of_order_are_reordered() {
    let found = found(|history, _| {
        history.messages[1].sequence = 2;
        history.messages[2].sequence = 1;
    });
    assert_eq!(found, [Broken::Reordered]);
}

#[test]
fn offsets_with_a_hole_are_reordered() {
    let found = found(|history, log| {
        log.partitions[0][5].offset = Some(6);
        history.pushes[5].offset = None;
    });
    assert_eq!(found, [Broken::Reordered]);
}

#[test]
fn a_delivery_out_of_order_is_reordered_and_one_with_a_hole_skips() {
    assert!(found(|history, _| history.deliveries[1].messages.swap(0, 1)).contains(&Broken::Reordered));
    assert!(found(|history, _| drop(history.deliveries[0].messages.remove(1))).contains(&Broken::Skipped));
}

#[test]
fn a_delivery_beyond_what_anybody_completed_skips() {
    assert_eq!(found(|history, _| drop(history.acks.remove(0))), [Broken::Skipped, Broken::TwoHolders]);
    // It may have been carried out all the same.
    let unanswered = |history: &mut History| {
        history.acks[0].answered_ns = None;
        history.acks[0].items.iter_mut().for_each(|item| item.success = None);
    };
    assert_eq!(found(|history, _| unanswered(history)), []);
}

#[test]
fn what_comes_after_its_ack_came_again() {
    let again = |history: &mut History, at_ms, first| deliver(history, "c", at_ms, first..6);
    assert_eq!(found(|history, _| again(history, 50, 5)), [Broken::CameAgain]);
    // Also what was completed by an ack of a later message.
    assert_eq!(found(|history, _| again(history, 50, 1)), [Broken::CameAgain]);
}

#[test]
fn what_failed_may_come_again_with_all_behind_it() {
    let found = found(|history, _| {
        history.acks[1].items[1].word = AckWord::Failed;
        deliver(history, "c", 50, 4..6);
    });
    assert_eq!(found, []);
}

#[test]
fn what_stands_before_the_one_that_failed_may_not() {
    let found = found(|history, _| {
        history.acks[1].items[1].word = AckWord::Failed;
        deliver(history, "c", 50, 3..6);
    });
    assert_eq!(found, [Broken::CameAgain]);
}

#[test]
fn a_lapsed_lease_lets_others_have_the_partition_and_a_live_one_does_not() {
    let redelivered = |history: &mut History, at_ms| {
        history.acks.pop();
        deliver(history, "c", at_ms, 3..6);
    };
    assert_eq!(found(|history, _| redelivered(history, 1_000)), [Broken::TwoHolders]);
    assert_eq!(found(|history, _| redelivered(history, 2_500)), []);
}

#[test]
fn an_ack_of_a_part_keeps_the_lease() {
    let found = found(|history, _| {
        history.acks.pop();
        ack(history, "b", 40, &completed([3]));
        deliver(history, "c", 50, 4..6);
    });
    assert_eq!(found, [Broken::TwoHolders]);
}

#[test]
fn other_bytes_are_corrupted() {
    assert!(found(|history, _| history.deliveries[0].messages[0].message = None).contains(&Broken::Corrupted));
    assert!(found(|_, log| log.partitions[0][0].message = None).contains(&Broken::Corrupted));
    assert_eq!(found(|history, _| history.deliveries[1].partition_id = "another".into()), [Broken::Corrupted]);
}

#[test]
fn a_refusal_is_told() {
    assert_eq!(found(|history, _| history.refusals.push("pop: 400".into())), [Broken::Refused]);
}

/// A sound history in which one consumer takes all at once.
fn auto_ack(change: impl FnOnce(&mut History)) -> Vec<Broken> {
    found(|history, _| {
        history.acks.clear();
        history.groups = vec![Group::AutoAck];
        for delivery in &mut history.deliveries {
            delivery.group = Group::AutoAck;
            delivery.lease = None;
        }
        change(history);
    })
}

#[test]
fn what_is_taken_by_popping_comes_once() {
    assert_eq!(auto_ack(|_| {}), []);
    let again = |history: &mut History| {
        let last = history.deliveries[1].clone();
        history.deliveries.push(Delivery { sent_ns: 60 * MS, answered_ns: 61 * MS, ..last });
    };
    assert_eq!(auto_ack(again), [Broken::CameAgain]);
}

#[test]
fn what_a_pop_without_an_answer_took_is_excused_and_no_more() {
    let without_the_first = |history: &mut History, batch| {
        history.deliveries.remove(0);
        history.lost_pops.push(batch);
    };
    assert_eq!(auto_ack(|history| without_the_first(history, 3)), []);
    assert_eq!(auto_ack(|history| without_the_first(history, 2)), [Broken::Lost]);
}
