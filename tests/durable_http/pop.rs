//! Pops that do not wait: claims, leases, discovery, conflation, what is refused.

use super::{
    common::{Broker, eventually},
    *,
};

#[test]
fn a_message_has_every_member() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    let pushed = push_items(&mut client, &json!([{ "queue": "q", "payload": { "a": 1 }, "transactionId": "t" }]));
    let popped = pop(&mut client, "q", "consumerGroup=g&subscriptionMode=all").expect("a message");
    let message = &popped["messages"][0];
    let expected = json!({
        "id": pushed[0]["message_id"], "transactionId": "t", "traceId": null, "data": { "a": 1 }, "producerSub": null,
        "createdAt": message["createdAt"], "partitionId": popped["partitionId"], "partition": "Default",
        "leaseId": popped["leaseId"], "consumerGroup": "g", "deliveryAttempt": 1, "offset": 0,
    });
    assert_eq!(*message, expected);
    assert_eq!((&popped["queue"], &popped["partition"]), (&json!("q"), &json!("Default")));
    assert_eq!((&popped["consumerGroup"], &popped["partitionsClaimed"]), (&json!("g"), &json!(1)));
}

#[test]
fn a_batch_is_for_the_whole_call_and_one_lease_covers_it() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    for partition in ["a", "b", "c"] {
        push_to(&mut client, "q", partition, &[json!(1), json!(2), json!(3)]);
    }
    let popped = pop(&mut client, "q", "batch=5&partitions=10");
    let claimed = messages(&popped);
    let sizes: Vec<usize> = claimed.chunk_by(|a, b| a["partition"] == b["partition"]).map(<[Value]>::len).collect();
    assert_eq!(sizes, [3, 2]);
    let body = popped.expect("messages");
    assert_eq!(body["partitionsClaimed"], 2);
    assert!(claimed.iter().all(|message| message["leaseId"] == body["leaseId"]));
    let results = ack_all(&mut client, None, &[ack_of(&claimed[2], "completed"), ack_of(&claimed[4], "completed")]);
    results.iter().for_each(taken);
    assert!(results.iter().all(|result| result["leaseReleased"] == true), "{results:?}");
    // What was cut off comes next, then the partition that was not claimed.
    let rest = messages(&pop(&mut client, "q", "partitions=10"));
    assert_eq!(rest.len(), 4);
    let cut: Vec<&Value> = rest.iter().filter(|message| message["partition"] == claimed[4]["partition"]).collect();
    assert_eq!((cut.len(), &cut[0]["data"]), (1, &json!(3)));
}

#[test]
fn one_partition_is_claimed_unless_more_are_asked_for() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    for partition in ["a", "b"] {
        push_to(&mut client, "q", partition, &[json!(1)]);
    }
    assert_eq!(data(&pop(&mut client, "q", "")).len(), 1);
    assert_eq!(data(&pop(&mut client, "q", "")).len(), 1);
    assert_eq!(pop(&mut client, "q", ""), None);
}

#[test]
fn a_leased_partition_is_not_handed_out_again_to_its_group() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    push(&mut client, "q", &[json!(1), json!(2)]);
    assert_eq!(data(&pop(&mut client, "q", "batch=1")), [1]);
    assert_eq!(pop(&mut client, "q", "batch=1"), None, "also not what was not claimed");
    push(&mut client, "q", &[json!(3)]);
    assert_eq!(pop(&mut client, "q", ""), None);
    assert_eq!(pop_at(&mut client, "/api/v1/pop/queue/q/partition/Default"), None);
    let other = pop(&mut client, "q", "consumerGroup=g&subscriptionMode=all");
    assert_eq!(data(&other), [1, 2, 3], "groups do not see each other");
}

#[test]
fn a_push_that_was_answered_can_be_popped_at_once() {
    let broker = Broker::start(&[]);
    let (mut pusher, mut popper) = (broker.connect(), broker.connect());
    for n in 0..100 {
        push_to(&mut pusher, "q", &format!("p{}", n % 7), &[json!(n)]);
        assert_eq!(data(&pop(&mut popper, "q", "autoAck=true&partitions=0")), [n]);
    }
}

#[test]
fn auto_ack_settles_at_delivery() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    push(&mut client, "q", &[json!(1), json!(2)]);
    let popped = pop(&mut client, "q", "autoAck=true&batch=1");
    let message = &messages(&popped)[0];
    assert_eq!((&popped.expect("a message")["leaseId"], &message["leaseId"]), (&json!(""), &json!("")));
    assert_eq!(data(&pop(&mut client, "q", "autoAck=true")), [2]);
    assert_eq!(pop(&mut client, "q", ""), None);
    let result = ack_one(&mut client, None, ack_of(message, "completed"));
    taken(&result);
    assert_eq!(result["noop"], true, "{result}");
}

#[test]
fn a_lapsed_lease_gives_its_messages_back() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    push(&mut client, "q", &[json!(1), json!(2)]);
    assert_eq!(data(&pop(&mut client, "q", "batch=1&leaseSeconds=1")), [1]);
    let again = eventually("the end of the lease", || pop(&mut client, "q", "leaseSeconds=300"));
    assert_eq!(data(&Some(again.clone())), [1, 2]);
    assert_eq!(again["messages"][0]["deliveryAttempt"], 2, "{again}");
    assert_eq!(dead_letters(&mut client, "q"), 0, "a lapsed lease charges nothing");
}

#[test]
fn a_pop_of_a_queue_that_is_not_there_makes_it_and_a_pinned_one_makes_nothing() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    assert_eq!(pop_at(&mut client, "/api/v1/pop/queue/none/partition/p"), None);
    assert_eq!(read(&mut client, "/api/v1/resources/queues")["queues"], json!([]));
    assert_eq!(pop(&mut client, "a.b.c", ""), None);
    let row = read(&mut client, "/api/v1/resources/queues/a.b.c");
    assert_eq!((&row["namespace"], &row["task"], &row["partitions"]), (&json!("a"), &json!("b"), &json!([])));
}

#[test]
fn discovery_takes_from_every_queue_of_a_namespace_and_a_task() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    for queue in ["n.t.1", "n.t.2", "n.other.3", "m.t.4"] {
        push(&mut client, queue, &[json!(queue)]);
    }
    let mut found = |query: &str| {
        let popped = pop_at(&mut client, &format!("/api/v1/pop?{query}&partitions=0&subscriptionMode=all"));
        let mut found = data(&popped);
        found.sort_by_key(Value::to_string);
        if let Some(body) = popped {
            assert_eq!(body["queue"], "");
        }
        found
    };
    assert_eq!(found("namespace=n&task=t&consumerGroup=a"), ["n.t.1", "n.t.2"]);
    assert_eq!(found("namespace=n&consumerGroup=b"), ["n.other.3", "n.t.1", "n.t.2"]);
    assert_eq!(found("task=t&consumerGroup=c"), ["m.t.4", "n.t.1", "n.t.2"]);
    assert_eq!(found("namespace=none&consumerGroup=d"), Vec::<Value>::new());
    let response = client.get("/api/v1/pop?batch=1");
    assert_eq!(response.status, 400);
    let body = response.json();
    assert_eq!((&body["success"], &body["messages"]), (&json!(false), &json!([])));
    assert_eq!(body["error"], "namespace or task is required");
}

#[test]
fn a_parameter_that_cannot_be_read_is_refused_in_a_pops_own_form() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    push(&mut client, "q", &[json!(1)]);
    for query in [
        "wait=1",
        "autoAck=yes",
        "batch=",
        "batch=99999999999999999999",
        "timeout=-1",
        "batch=1&batch=2",
        "consumerGroup=%00",
        "conflation=true",
        "conflation=true&consumerGroup=g&autoAck=true",
    ] {
        let response = client.get(&format!("/api/v1/pop/queue/q?{query}"));
        let body = response.json();
        assert_eq!((response.status, &body["success"]), (400, &json!(false)), "{query}: {body}");
        assert_eq!(body["messages"], json!([]));
    }
    // Meaningless numbers are not wrong ones, and what is unknown is ignored.
    assert_eq!(data(&pop(&mut client, "q", "batch=-7&partitions=-1&leaseSeconds=0&frames=true&x=%41")), [1]);
}

#[test]
fn autopilot_is_told_what_was_chosen() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    push(&mut client, "q", &[json!(1)]);
    let popped = pop(&mut client, "q", "autopilot=true&batch=7&leaseSeconds=1").expect("a message");
    assert_eq!((&popped["autopilot"]["batch"], &popped["autopilot"]["partitions"]), (&json!(7), &json!(8)));
    push_to(&mut client, "q", "p", &[json!(2)]);
    let pinned = pop_at(&mut client, "/api/v1/pop/queue/q/partition/p?autopilot=true").expect("a message");
    assert_eq!(pinned.get("autopilot"), None);
}

#[test]
fn a_conflating_group_gets_the_newest_of_each_partition() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    let query = "consumerGroup=g&conflation=true&subscriptionMode=all&partitions=10";
    let empty = pop(&mut client, "q", query).expect("200 though there is nothing");
    assert_eq!((&empty["messages"], &empty["partitionsClaimed"]), (&json!([]), &json!(0)));
    assert_eq!(
        (&empty["partition"], &empty["partitionId"], &empty["conflation"]),
        (&json!(""), &json!(""), &json!(true))
    );
    assert_eq!(empty["leaseId"].as_str().map(str::len), Some(36));

    push(&mut client, "q", &[json!(1), json!(2), json!(3)]);
    push_to(&mut client, "q", "p", &[json!(4)]);
    let popped = pop(&mut client, "q", query);
    let mut found = messages(&popped);
    found.sort_by_key(|message| message["data"].as_u64());
    assert_eq!(found.iter().map(|message| message["data"].clone()).collect::<Vec<_>>(), [3, 4]);
    assert_eq!(popped.expect("messages")["conflation"], true);

    // Given back, and two newer ones: the newest then.
    let result = ack_one(&mut client, Some("g"), ack_of(&found[0], "retry"));
    taken(&result);
    assert_eq!(result.get("conflated"), None);
    push(&mut client, "q", &[json!(5), json!(6)]);
    let popped = pop(&mut client, "q", "consumerGroup=g");
    assert_eq!((data(&popped), &popped.as_ref().expect("a message")["conflation"]), (vec![json!(6)], &json!(true)));
    let result = ack_one(&mut client, Some("g"), ack_of(&messages(&popped)[0], "completed"));
    taken(&result);
    assert_eq!(result["conflated"], 4, "0, 1, 2 and 3 of it were skipped: {result}");
    let result = ack_one(&mut client, Some("g"), ack_of(&found[1], "completed"));
    assert_eq!(result["conflated"], 0, "{result}");

    let other = pop(&mut client, "q", "consumerGroup=g&conflation=false").expect("a conflating group");
    assert_eq!((&other["conflation"], &other["conflationConflict"]), (&json!(true), &json!(true)), "{other}");
    let depth = read(&mut client, "/api/v1/resources/queues/q/depth?group=g");
    assert_eq!((&depth["conflation"], &depth["pending"]), (&json!(true), &json!(0)), "{depth}");
}
