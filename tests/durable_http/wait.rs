//! Pops that wait: what answers them, what ends them, and what holds messages back.

use std::time::{Duration, Instant};

use super::{
    common::{Broker, eventually, request},
    *,
};

/// Sends a pop that waits, from a connection of its own, and waits until it is parked.
fn parked(broker: &Broker, target: &str) -> Connection {
    let before = broker.parked();
    let mut client = broker.connect();
    client.send(request("GET", target, &[], b""));
    eventually("its parking", || (broker.parked() == before + 1).then_some(()));
    client
}

fn unparked(broker: &Broker) {
    eventually("the end of every wait", || (broker.parked() == 0).then_some(()));
}

#[test]
fn a_push_answers_a_pop_that_waits_wherever_it_waits() {
    let broker = Broker::start(&[]);
    let mut pusher = broker.connect();
    // Connections are spread over the shards by the kernel: of several, some wait on another shard than the pusher.
    for round in 0..12 {
        let queue = format!("ns.task.q{round}");
        push(&mut pusher, &queue, &[json!("old")]);
        assert_eq!(data(&pop(&mut pusher, &queue, "autoAck=true")), ["old"]);
        let mut waiting = parked(&broker, &format!("/api/v1/pop/queue/{queue}?{WAIT}"));
        push(&mut pusher, &queue, &[json!(round)]);
        assert_eq!(data(&popped(&waiting.response())), [round]);
        let mut waiting = parked(&broker, &format!("/api/v1/pop/queue/{queue}/partition/p?{WAIT}"));
        push_to(&mut pusher, &queue, "p", &[json!(round)]);
        assert_eq!(data(&popped(&waiting.response())), [round], "the partition was not there when it parked");
        // The group starts at what comes after its registration, so that comes first.
        let discovery = format!("/api/v1/pop?namespace=ns&consumerGroup=g{round}");
        assert_eq!(pop_at(&mut pusher, &discovery), None);
        let mut waiting = parked(&broker, &format!("{discovery}&{WAIT}"));
        push_to(&mut pusher, &queue, "p", &[json!("found")]);
        assert_eq!(data(&popped(&waiting.response())), ["found"]);
    }
    unparked(&broker);
}

#[test]
fn a_message_answers_one_of_several_that_wait() {
    let broker = Broker::start(&[]);
    let mut pusher = broker.connect();
    let mut waiting: Vec<Connection> =
        (0..4).map(|_| parked(&broker, &format!("/api/v1/pop/queue/q?autoAck=true&batch=1&{WAIT}"))).collect();
    for left in (0..4).rev() {
        push(&mut pusher, "q", &[json!(left)]);
        eventually("one answer", || (broker.parked() == left).then_some(()));
    }
    let mut got: Vec<u64> = waiting
        .iter_mut()
        .flat_map(|client| data(&popped(&client.response())))
        .filter_map(|payload| payload.as_u64())
        .collect();
    got.sort_unstable();
    assert_eq!(got, [0, 1, 2, 3]);
}

#[test]
fn a_quiet_wait_ends_with_nothing_when_its_time_is_over() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    let begin = Instant::now();
    assert_eq!(pop(&mut client, "q", "wait=true&timeout=300"), None);
    assert!(begin.elapsed() >= Duration::from_millis(300), "{:?}", begin.elapsed());
    assert_eq!(pop(&mut client, "q", "wait=true&timeout=0"), None, "0 does not wait");
    let conflating = pop(&mut client, "q", "wait=true&timeout=10&consumerGroup=g&conflation=true");
    assert_eq!(conflating.expect("a body")["messages"], json!([]));
    unparked(&broker);
}

#[test]
fn a_client_that_sends_no_more_gets_its_empty_answer_at_once() {
    let broker = Broker::start(&[]);
    let mut waiting = parked(&broker, &format!("/api/v1/pop/queue/q?{WAIT}"));
    waiting.finish_sending();
    assert_eq!(popped(&waiting.response()), None);
    assert!(waiting.is_closed_by_peer());
    let mut conflating = parked(&broker, &format!("/api/v1/pop/queue/q?consumerGroup=g&conflation=true&{WAIT}"));
    conflating.finish_sending();
    assert_eq!(popped(&conflating.response()).expect("a body")["conflation"], true);
    unparked(&broker);
    push(&mut broker.connect(), "q", &[json!(1)]);
    // The store's role may hear of the push before it hears of the end of the wait: then the message comes back first.
    assert_eq!(data(&pop(&mut broker.connect(), "q", WAIT)), [1], "nothing was lost to them");
}

#[test]
fn a_message_is_not_lost_to_a_client_that_went() {
    let broker = Broker::start(&[]);
    let mut pusher = broker.connect();
    for round in 0..20 {
        let waiting = parked(&broker, &format!("/api/v1/pop/queue/q?leaseSeconds=600&{WAIT}"));
        if round % 2 == 0 {
            waiting.reset();
        } else {
            drop(waiting);
        }
        // In half of the rounds the push may meet the pop before the broker has seen its client go.
        if round % 4 < 2 {
            unparked(&broker);
        }
        push(&mut pusher, "q", &[json!(round)]);
        let next = pop(&mut pusher, "q", "wait=true&timeout=60000");
        assert_eq!(data(&next), [round]);
        taken(&ack_one(&mut pusher, None, ack_of(&messages(&next)[0], "completed")));
        unparked(&broker);
    }
}

#[test]
fn a_given_back_message_answers_a_pop_that_waits() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    push(&mut client, "q", &[json!(1)]);
    for status in ["failed", "retry"] {
        let first = pop(&mut client, "q", "leaseSeconds=600");
        let mut waiting = parked(&broker, &format!("/api/v1/pop/queue/q?leaseSeconds=600&{WAIT}"));
        taken(&ack_one(&mut client, None, ack_of(&messages(&first)[0], status)));
        let again = popped(&waiting.response());
        assert_eq!(data(&again), [1], "{status}");
        taken(&ack_one(&mut client, None, ack_of(&messages(&again)[0], "retry")));
    }
}

#[test]
fn a_lapsed_lease_answers_a_pop_that_waits() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    push(&mut client, "q", &[json!(1)]);
    assert_eq!(data(&pop(&mut client, "q", "leaseSeconds=1")), [1]);
    let mut waiting = parked(&broker, &format!("/api/v1/pop/queue/q?{WAIT}"));
    assert_eq!(data(&popped(&waiting.response())), [1]);
}

#[test]
fn a_delayed_message_cannot_be_popped_before_its_time() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    configure(&mut client, "q", &json!({ "delayedProcessing": 1 }));
    let mut waiting = parked(&broker, &format!("/api/v1/pop/queue/q?autoAck=true&{WAIT}"));
    let begin = Instant::now();
    push(&mut client, "q", &[json!(1)]);
    assert_eq!(data(&popped(&waiting.response())), [1]);
    assert!(begin.elapsed() >= Duration::from_millis(990), "{:?}", begin.elapsed());

    push(&mut client, "q", &[json!(2)]);
    assert_eq!(pop(&mut client, "q", ""), None);
    assert_eq!(pop_at(&mut client, "/api/v1/pop/queue/q/partition/Default"), None);
    let late = eventually("its time", || pop(&mut client, "q", "autoAck=true"));
    assert_eq!(data(&Some(late)), [2]);
}

#[test]
fn a_window_gathers_a_burst_until_its_oldest_message_is_old_enough() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    configure(&mut client, "q", &json!({ "windowBuffer": 1 }));
    let begin = Instant::now();
    push(&mut client, "q", &[json!(0)]);
    let mut waiting = parked(&broker, &format!("/api/v1/pop/queue/q?autoAck=true&{WAIT}"));
    push(&mut client, "q", &[json!(1)]);
    push(&mut client, "q", &[json!(2)]);
    assert_eq!(data(&popped(&waiting.response())), [0, 1, 2]);
    assert!(begin.elapsed() >= Duration::from_millis(990), "{:?}", begin.elapsed());

    // A hundred of them end it.
    let burst: Vec<Value> = (0..100).map(|n| json!(n)).collect();
    configure(&mut client, "full", &json!({ "windowBuffer": 3600 }));
    push(&mut client, "full", &burst[..99]);
    assert_eq!(pop(&mut client, "full", ""), None);
    push(&mut client, "full", &burst[99..]);
    assert_eq!(data(&pop(&mut client, "full", "")), burst);
}

#[test]
fn a_pop_that_waits_may_linger_for_a_fuller_batch() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    configure(&mut client, "q", &json!({ "minPopWaitTime": 60_000 }));
    push(&mut client, "q", &[json!(1)]);
    let mut waiting = parked(&broker, &format!("/api/v1/pop/queue/q?batch=3&autoAck=true&{WAIT}"));
    push(&mut client, "q", &[json!(2)]);
    push(&mut client, "q", &[json!(3)]);
    assert_eq!(data(&popped(&waiting.response())), [1, 2, 3], "full, it does not linger on");
    push(&mut client, "q", &[json!(4)]);
    assert_eq!(data(&pop(&mut client, "q", &format!("batch=1&autoAck=true&{WAIT}"))), [4], "nor for one");
    push(&mut client, "q", &[json!(5)]);
    assert_eq!(data(&pop(&mut client, "q", "batch=3&autoAck=true")), [5], "nor without a wait");
}

#[test]
fn a_stop_ends_every_wait_in_order() {
    let mut broker = Broker::start(&[]);
    let mut waiting: Vec<Connection> =
        (0..8).map(|n| parked(&broker, &format!("/api/v1/pop/queue/q{n}?{WAIT}"))).collect();
    push(&mut broker.connect(), "f", &[json!(1)]);
    let mut fetching = broker.connect();
    let body = br#"{"entries":[{"queue":"f","offset":1}],"maxWaitMs":30000}"#;
    fetching.send(request("POST", "/api/v1/fetch", &[], body));
    eventually("its parking", || (broker.parked() == 9).then_some(()));
    assert!(broker.sigterm().success());
    for client in &mut waiting {
        assert_eq!(popped(&client.response()), None);
    }
    assert_eq!(fetching.response().json()["entries"][0]["highWatermark"], 1);
}

#[test]
fn waits_are_bounded_as_those_of_ephemeral_pops_are() {
    let broker = Broker::start(&[("QUEEN_EPHEMERAL_MAX_PARKED", "2")]);
    let _one = parked(&broker, &format!("/api/v1/pop/queue/q?{WAIT}"));
    let two = parked(&broker, &format!("/api/v1/ephemeral/pop?queue=q&{WAIT}"));
    refusal(&broker.connect().get(&format!("/api/v1/pop/queue/q?{WAIT}")), 429, "parked_limit");
    drop(two);
    eventually("room", || (broker.parked() == 1).then_some(()));
    let _three = parked(&broker, &format!("/api/v1/pop/queue/q?{WAIT}"));
}
