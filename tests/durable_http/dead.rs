//! The retry budget and the dead letters.

use super::{common::Broker, *};

const LONG: &str = "leaseSeconds=600";

/// Fails the first message of the next delivery; the result.
fn fail_next(client: &mut Connection, queue: &str) -> Value {
    let popped = pop(client, queue, LONG);
    let first = messages(&popped).into_iter().next().expect("a delivery");
    let result = ack_one(client, None, ack_of(&first, "failed"));
    taken(&result);
    result
}

#[test]
fn a_retry_limit_of_three_is_four_deliveries() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    push(&mut client, "q", &[json!(1), json!(2)]);
    for attempt in 1..=4 {
        let popped = pop(&mut client, "q", LONG);
        assert_eq!(data(&popped), [1, 2]);
        let first = &messages(&popped)[0];
        assert_eq!(first["deliveryAttempt"], attempt);
        let result = ack_one(&mut client, None, ack_of(first, "failed"));
        taken(&result);
        assert_eq!((&result["dlq"], &result["leaseReleased"]), (&json!(attempt == 4), &json!(true)), "{result}");
    }
    assert_eq!(dead_letters(&mut client, "q"), 1);
    assert_eq!(data(&pop(&mut client, "q", LONG)), [2]);
}

#[test]
fn below_one_the_first_failure_is_the_last() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    for limit in [0, -1] {
        let queue = format!("q{limit}");
        configure(&mut client, &queue, &json!({ "retryLimit": limit }));
        push(&mut client, &queue, &[json!(1)]);
        assert_eq!(fail_next(&mut client, &queue)["dlq"], true);
        assert_eq!(dead_letters(&mut client, &queue), 1);
    }
}

#[test]
fn a_retry_and_a_lapsed_lease_charge_nothing() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    configure(&mut client, "q", &json!({ "retryLimit": 1 }));
    push(&mut client, "q", &[json!(1)]);
    for _ in 0..3 {
        let message = &messages(&pop(&mut client, "q", LONG))[0];
        let result = ack_one(&mut client, None, ack_of(message, "retry"));
        taken(&result);
        assert_eq!(result["dlq"], false);
    }
    assert_eq!(fail_next(&mut client, "q")["dlq"], false);
    assert_eq!(fail_next(&mut client, "q")["dlq"], true);
}

#[test]
fn a_completed_run_starts_the_counter_again_however_it_was_completed() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    configure(&mut client, "q", &json!({ "retryLimit": 2 }));
    for round in 0..3 {
        push(&mut client, "q", &[json!(round), json!("rest")]);
        fail_next(&mut client, "q");
        assert_eq!(fail_next(&mut client, "q")["dlq"], false, "round {round}");
        // Whole, in one call with its lease: the reference forgets the counter there.
        let run = messages(&pop(&mut client, "q", LONG));
        let acks: Vec<Value> = run.iter().map(|message| ack_of(message, "completed")).collect();
        ack_all(&mut client, None, &acks).iter().for_each(taken);
    }
    assert_eq!(dead_letters(&mut client, "q"), 0);
}

#[test]
fn a_dead_letter_takes_what_lies_below_it_and_leaves_what_lies_above() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    push(&mut client, "q", &[json!(1), json!(2), json!(3), json!(4)]);
    let run = messages(&pop(&mut client, "q", LONG));
    let acks = [ack_of(&run[1], "dlq"), ack_of(&run[2], "dlq"), ack_of(&run[3], "completed")];
    let results = ack_all(&mut client, None, &acks);
    results.iter().for_each(taken);
    let dead: Vec<&Value> = results.iter().map(|result| &result["dlq"]).collect();
    assert_eq!(dead, [true, false, false], "one message per call and group");
    assert_eq!(data(&pop(&mut client, "q", LONG)), [3, 4]);
    assert_eq!(dead_letters(&mut client, "q"), 1);
}

#[test]
fn at_one_message_the_gravest_word_counts() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    push(&mut client, "q", &[json!(1)]);
    let message = &messages(&pop(&mut client, "q", LONG))[0];
    let acks = ["retry", "failed", "dlq", "completed"].map(|status| ack_of(message, status));
    ack_all(&mut client, None, &acks).iter().for_each(taken);
    assert_eq!((pop(&mut client, "q", LONG), dead_letters(&mut client, "q")), (None, 1));
}

#[test]
fn one_of_two_switches_keeps_dead_letters_and_without_both_they_are_dropped() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    for (queue, one, other, kept) in [("a", true, false, true), ("b", false, true, true), ("c", false, false, false)] {
        configure(&mut client, queue, &json!({ "retryLimit": 0, "deadLetterQueue": one, "dlqAfterMaxRetries": other }));
        push(&mut client, queue, &[json!(1), json!(2)]);
        let result = fail_next(&mut client, queue);
        assert_eq!(result["dlq"], kept, "{queue}: {result}");
        assert_eq!(dead_letters(&mut client, queue), u64::from(kept), "{queue}");
        assert_eq!(data(&pop(&mut client, queue, LONG)), [2], "the cursor passes it either way");
    }
}

#[test]
fn a_failure_without_a_lease_charges_too() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    configure(&mut client, "q", &json!({ "retryLimit": 1 }));
    push(&mut client, "q", &[json!(1)]);
    for dead in [false, true] {
        let message = &messages(&pop(&mut client, "q", LONG))[0];
        let result = ack_one(&mut client, None, leaseless(message, "failed"));
        taken(&result);
        assert_eq!(result["dlq"], dead);
    }
}
