//! Acks: what one call does, what is refused and with which words, what changes nothing.

use super::{
    common::{Broker, eventually},
    *,
};

const LONG: &str = "leaseSeconds=600";

/// A queue with so many messages, popped in one run.
fn run_of(client: &mut Connection, queue: &str, count: u64) -> Vec<Value> {
    let payloads: Vec<Value> = (1..=count).map(|n| json!(n)).collect();
    push(client, queue, &payloads);
    let popped = pop(client, queue, LONG);
    assert_eq!(data(&popped), payloads);
    messages(&popped)
}

#[test]
fn every_status_word_has_its_meaning() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    for (status, again, dead) in [
        (json!("completed"), false, false),
        (json!("success"), false, false),
        (json!("acked"), false, false),
        (json!("ok"), false, false),
        (Value::Null, false, false),
        (json!("dlq"), false, true),
        (json!("failed"), true, false),
        (json!("retry"), true, false),
        (json!(""), true, false),
        (json!("COMPLETED"), true, false),
        (json!("whatever"), true, false),
    ] {
        let queue = format!("q{}", status.as_str().unwrap_or("null"));
        let run = run_of(&mut client, &queue, 1);
        let mut ack = ack_of(&run[0], "");
        ack["status"] = status.clone();
        let result = ack_one(&mut client, None, ack);
        taken(&result);
        assert_eq!((&result["dlq"], &result["leaseReleased"]), (&json!(dead), &json!(true)), "{status}: {result}");
        assert_eq!(pop(&mut client, &queue, LONG).is_some(), again, "{status}");
        assert_eq!(dead_letters(&mut client, &queue), u64::from(dead), "{status}");
    }
}

#[test]
fn an_ack_completes_everything_below_it() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    let run = run_of(&mut client, "q", 5);
    let result = ack_one(&mut client, None, ack_of(&run[2], "completed"));
    taken(&result);
    assert_eq!(result["leaseReleased"], false, "the rest of the run is still held: {result}");
    assert_eq!(pop(&mut client, "q", LONG), None);
    let below = ack_one(&mut client, None, ack_of(&run[0], "completed"));
    taken(&below);
    assert_eq!(below["noop"], true);
    let last = ack_one(&mut client, None, ack_of(&run[4], "completed"));
    assert_eq!(last["leaseReleased"], true, "{last}");
    assert_eq!(pop(&mut client, "q", LONG), None);
    assert_eq!(read(&mut client, "/api/v1/resources/queues/q/depth")["pending"], 0);
}

#[test]
fn what_is_completed_above_a_failure_comes_again() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    let run = run_of(&mut client, "q", 3);
    let acks = [ack_of(&run[0], "completed"), ack_of(&run[1], "failed"), ack_of(&run[2], "completed")];
    let results = ack_all(&mut client, None, &acks);
    results.iter().for_each(taken);
    assert!(results.iter().all(|result| result["dlq"] == false), "{results:?}");
    let again = pop(&mut client, "q", LONG);
    assert_eq!(data(&again), [2, 3]);
    assert_eq!(messages(&again)[0]["deliveryAttempt"], 2);
}

#[test]
fn a_failure_moves_nothing_by_itself() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    for status in ["failed", "retry"] {
        let run = run_of(&mut client, status, 3);
        taken(&ack_one(&mut client, None, ack_of(&run[2], status)));
        assert_eq!(data(&pop(&mut client, status, LONG)), [1, 2, 3], "{status} of the third");
    }
}

#[test]
fn a_batch_settles_every_partition_for_itself() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    for partition in ["a", "b"] {
        push_to(&mut client, "q", partition, &[json!(1), json!(2)]);
    }
    let run = messages(&pop(&mut client, "q", "partitions=2&leaseSeconds=600"));
    assert_eq!(run.len(), 4);
    let unknown = json!({ "transactionId": "no", "partitionId": run[0]["partitionId"], "leaseId": run[0]["leaseId"] });
    let acks = [ack_of(&run[1], "completed"), unknown, ack_of(&run[2], "failed")];
    let results = ack_all(&mut client, None, &acks);
    taken(&results[0]);
    refused(&results[1], "unresolv");
    taken(&results[2]);
    let again = messages(&pop(&mut client, "q", "partitions=2"));
    assert_eq!(again.iter().map(|message| &message["partition"]).collect::<Vec<_>>(), [&run[2]["partition"]; 2]);
}

#[test]
fn what_lies_below_the_cursor_is_a_noop_when_completed_and_refused_otherwise() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    let run = run_of(&mut client, "q", 3);
    taken(&ack_one(&mut client, None, ack_of(&run[1], "completed")));
    for status in ["failed", "retry", "dlq"] {
        let result = ack_one(&mut client, None, ack_of(&run[0], status));
        refused(&result, "committed");
        assert_eq!(result["leaseReleased"], false, "{result}");
        refused(&ack_one(&mut client, None, leaseless(&run[1], status)), "committed");
    }
    let result = ack_one(&mut client, None, leaseless(&run[0], "completed"));
    taken(&result);
    assert_eq!(result["noop"], true);
    // The lease is untouched: its last message still ends it.
    assert_eq!(ack_one(&mut client, None, ack_of(&run[2], "completed"))["leaseReleased"], true);
}

#[test]
fn an_id_that_was_not_handed_out_is_unresolvable() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    push(&mut client, "q", &[json!(1), json!(2)]);
    let run = messages(&pop(&mut client, "q", "batch=1&leaseSeconds=600"));
    let pushed = push_items(&mut client, &json!([{ "queue": "q", "payload": 3, "transactionId": "later" }]));
    for id in ["never", "later", pushed[0]["message_id"].as_str().expect("an id")] {
        for status in ["completed", "failed", "dlq"] {
            let mut ack = ack_of(&run[0], status);
            ack["transactionId"] = json!(id);
            let result = ack_one(&mut client, None, ack);
            refused(&result, "unresolv");
            assert_eq!(result["leaseReleased"], false);
        }
    }
    assert_eq!(pop(&mut client, "q", ""), None, "the lease is untouched");
    taken(&ack_one(&mut client, None, ack_of(&run[0], "completed")));
    assert_eq!(data(&pop(&mut client, "q", "")), [2, 3]);
}

#[test]
fn a_lease_that_is_not_the_one_is_refused_before_anything_else_is_looked_at() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    let run = run_of(&mut client, "q", 2);
    for lease in ["018f3a5b-7c00-7abc-8def-0123456789ab", "garbage"] {
        let mut ack = ack_of(&run[0], "completed");
        ack["leaseId"] = json!(lease);
        refused(&ack_one(&mut client, None, ack), "lease");
    }
    taken(&ack_one(&mut client, None, ack_of(&run[1], "completed")));
    // It was the lease; now it hides that the message is done.
    refused(&ack_one(&mut client, None, ack_of(&run[0], "completed")), "invalid or expired lease");
    assert_eq!(ack_one(&mut client, None, leaseless(&run[0], "completed"))["noop"], true);
}

#[test]
fn a_lapsed_lease_is_refused_though_nobody_has_claimed_since_and_no_lease_at_all_is_taken() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    push(&mut client, "q", &[json!(1), json!(2)]);
    let run = messages(&pop(&mut client, "q", "leaseSeconds=1"));
    let extend = format!("/api/v1/lease/{}/extend", run[0]["leaseId"].as_str().expect("a lease"));
    // Not by popping, which would claim; and an extension that renewed would make it live on: by an ack below.
    eventually("the end of the lease", || {
        let mut ack = ack_of(&run[0], "completed");
        ack["transactionId"] = json!("unknown");
        let result = ack_one(&mut client, None, ack);
        let error = result["error"].as_str().expect("a refusal").to_owned();
        error.contains("lease").then_some(())
    });
    refused(&ack_one(&mut client, None, ack_of(&run[0], "completed")), "lease");
    assert_eq!(client.post(&extend, "").json()["renewed"], 0);
    taken(&ack_one(&mut client, None, leaseless(&run[0], "completed")));
    assert_eq!(data(&pop(&mut client, "q", LONG)), [2]);
}

#[test]
fn what_names_no_consumer_says_so() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    let run = run_of(&mut client, "q", 1);
    refused(&ack_one(&mut client, Some("other"), leaseless(&run[0], "completed")), "consumer not found");
    let mut ack = leaseless(&run[0], "completed");
    ack["partitionId"] = json!("018f3a5b-7c00-7abc-8def-0123456789ab");
    refused(&ack_one(&mut client, None, ack.clone()), "consumer not found");
    ack["partitionId"] = json!("no-uuid");
    refused(&ack_one(&mut client, None, ack), "db error");
    refused(&ack_one(&mut client, None, json!({ "transactionId": "t" })), "db error");
    refused(&ack_one(&mut client, None, json!({ "partitionId": run[0]["partitionId"] })), "db error");
    refused(&ack_all(&mut client, None, &[json!({})])[0], "db error");
}

#[test]
fn a_batch_has_one_group_and_ignores_those_of_its_acks() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    push(&mut client, "q", &[json!(1)]);
    let query = "consumerGroup=g&subscriptionMode=all&leaseSeconds=600";
    let run = messages(&pop(&mut client, "q", query));
    let mut ack = leaseless(&run[0], "completed");
    ack["consumerGroup"] = json!("other");
    taken(&ack_all(&mut client, Some("g"), &[ack])[0]);
    assert_eq!(pop(&mut client, "q", query), None);
}

#[test]
fn only_a_body_of_another_form_is_400() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    for (target, bodies) in [
        ("/api/v1/ack", &["", "[]", "7", "{", r#"{"transactionId":7}"#, r#"{"status":false}"#][..]),
        ("/api/v1/ack/batch", &["", "[]", r#"{"acknowledgments":{}}"#, r#"{"acknowledgments":[7]}"#]),
    ] {
        for body in bodies {
            refusal(&client.post(target, body), 400, "bad_request");
        }
    }
    for body in ["{}", r#"{"acknowledgements":[{}]}"#, r#"{"acknowledgments":null}"#] {
        let response = client.post("/api/v1/ack/batch", body);
        assert_eq!((response.status, response.text()), (200, "[]"), "{body}");
    }
}

#[test]
fn a_message_goes_by_its_message_id_where_it_was_given_none() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    let pushed = push_items(
        &mut client,
        &json!([{ "queue": "q", "payload": 1 }, { "queue": "q", "payload": 2, "transactionId": "" }]),
    );
    let run = messages(&pop(&mut client, "q", LONG));
    assert_eq!(run[0]["transactionId"], pushed[0]["message_id"]);
    assert_eq!(run[1]["transactionId"], "", "the empty id is an id");
    taken(&ack_one(&mut client, None, ack_of(&run[0], "completed")));
    taken(&ack_one(&mut client, None, ack_of(&run[1], "completed")));
    assert_eq!(read(&mut client, "/api/v1/resources/queues/q/depth")["pending"], 0);
}
