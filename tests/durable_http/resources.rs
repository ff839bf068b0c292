//! The reading routes, health and metrics.

use super::{common::Broker, *};

#[test]
fn a_queue_is_counted_in_its_row_and_in_its_details() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    push_to(&mut client, "n.t.q", "a", &[json!(1), json!(2), json!(3)]);
    push_to(&mut client, "n.t.q", "b", &[json!(4)]);
    let first = messages(&pop_at(&mut client, "/api/v1/pop/queue/n.t.q/partition/a?batch=2&leaseSeconds=600"));
    taken(&ack_one(&mut client, None, ack_of(&first[0], "completed")));

    let listing = read(&mut client, "/api/v1/resources/queues");
    let row = &listing["queues"][0];
    assert_eq!(row["messages"], json!({ "total": 4, "pending": 3, "processing": 1 }));
    assert_eq!((&row["partitions"], &row["segments"]["messages"]), (&json!(2), &json!(4)));
    assert!(row["retainedBytes"].as_u64() > Some(0), "{row}");
    for name in ["kvRows", "kvBytes", "timerRows", "timerBytes"] {
        assert_eq!(listing[name], 0);
    }
    let cached = read(&mut client, "/api/v1/resources/queues?stats=cached");
    assert_eq!(cached["queues"][0].get("segments"), None);

    let details = read(&mut client, "/api/v1/resources/queues/n.t.q");
    assert_eq!(
        details["totals"],
        json!({ "total": 4, "pending": 3, "processing": 1, "completed": 1, "failed": null, "deadLetter": 0 })
    );
    let partitions = elements(&details["partitions"]);
    let a = partitions.iter().find(|partition| partition["name"] == "a").expect("partition a");
    assert_eq!((&a["stats"]["total"], &a["stats"]["pending"]), (&json!(3), &json!(2)), "{a}");
    assert_eq!((&a["createdAt"].as_str().map(str::len), &a["id"]), (&Some(24), &first[0]["partitionId"]));
    assert!(a["oldestMessage"].is_string() && a["newestMessage"].is_string(), "{a}");
    refusal(&client.get("/api/v1/resources/queues/none"), 404, "queue_not_found");
    client.send(common::request("HEAD", "/api/v1/resources/queues/none", &[], b""));
    assert_eq!(client.response_head().status, 404);
}

#[test]
fn newer_queues_are_listed_first() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    for queue in ["one", "two", "three"] {
        configure(&mut client, queue, &json!({}));
    }
    let names: Vec<Value> = elements(&read(&mut client, "/api/v1/resources/queues")["queues"])
        .iter()
        .map(|row| row["name"].clone())
        .collect();
    assert_eq!(names, ["three", "two", "one"]);
}

#[test]
fn a_depth_is_what_a_group_has_before_it() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    push(&mut client, "q", &[json!(1), json!(2), json!(3)]);
    let mut depth = |query: &str| read(&mut client, &format!("/api/v1/resources/queues/q/depth{query}"));
    let expected = json!({
        "queue": "q", "group": null, "pending": 3, "partitionsPending": 1, "conflation": false,
        "effectivePending": 3, "partitions": [{ "partition": "Default", "pending": 3 }],
    });
    assert_eq!(depth(""), expected);
    assert_eq!(depth("?group=never")["pending"], 3, "a group that never popped has everything before it");
    let mut client = broker.connect();
    pop(&mut client, "q", "consumerGroup=g&subscriptionMode=all&batch=2&autoAck=true");
    let after = read(&mut client, "/api/v1/resources/queues/q/depth?group=g");
    assert_eq!((&after["group"], &after["pending"]), (&json!("g"), &json!(1)));
    refusal(&client.get("/api/v1/resources/queues/none/depth"), 404, "queue_not_found");
}

#[test]
fn namespaces_tasks_and_the_overview_sum_the_queues() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    for queue in ["n.t.1", "n.t.2", "n.u.3", "m"] {
        push(&mut client, queue, &[json!(1), json!(2)]);
    }
    let rows = |listing: Value, list: &str, item: &str| -> Vec<(String, u64, u64)> {
        elements(&listing[list])
            .iter()
            .map(|row| {
                let text = row[item].as_str().expect("a name").to_owned();
                (text, row["queues"].as_u64().expect("queues"), row["messages"]["total"].as_u64().expect("total"))
            })
            .collect()
    };
    let namespaces = read(&mut client, "/api/v1/resources/namespaces");
    assert_eq!(rows(namespaces, "namespaces", "namespace"), [("m".to_owned(), 1, 2), ("n".to_owned(), 3, 6)]);
    let tasks = read(&mut client, "/api/v1/resources/tasks");
    assert_eq!(rows(tasks, "tasks", "task"), [("t".to_owned(), 2, 4), ("u".to_owned(), 1, 2)]);
    let overview = read(&mut client, "/api/v1/resources/overview");
    for (name, count) in [("queues", 4), ("partitions", 4), ("namespaces", 2), ("tasks", 2)] {
        assert_eq!(overview[name], count, "{name} in {overview}");
    }
    assert_eq!((&overview["messages"]["total"], &overview["messages"]["pending"]), (&json!(8), &json!(8)));
}

#[test]
fn partitions_are_ranked_by_what_is_pending() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    push_to(&mut client, "q", "quiet", &[json!(1)]);
    push_to(&mut client, "q", "busy", &[json!(1), json!(2), json!(3)]);
    push_to(&mut client, "other", "p", &[json!(1), json!(2)]);
    let rows = |listing: &Value| -> Vec<(Value, Value)> {
        elements(&listing["partitions"]).iter().map(|row| (row["partition"].clone(), row["pending"].clone())).collect()
    };
    let listing = read(&mut client, "/api/v1/resources/partitions?queue=q&limit=none");
    assert_eq!(rows(&listing), [(json!("busy"), json!(3)), (json!("quiet"), json!(1))]);
    assert!(listing["partitions"][0]["lagSeconds"].is_u64(), "{listing}");
    let listing = read(&mut client, "/api/v1/resources/partitions?limit=2");
    assert_eq!(rows(&listing), [(json!("busy"), json!(3)), (json!("p"), json!(2))]);
}

#[test]
fn health_and_metrics_know_of_the_durable_queues() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    push(&mut client, "q", &[json!(1), json!(2)]);
    let popped = messages(&pop(&mut client, "q", ""));
    taken(&ack_one(&mut client, None, ack_of(&popped[1], "completed")));
    let health = client.get("/health");
    assert_eq!((health.status, &health.json()["database"]), (200, &json!("connected")));
    for (name, value) in [
        ("queen_process_push_requests_total", 1),
        ("queen_process_push_messages_total", 2),
        ("queen_process_pop_requests_total", 1),
        ("queen_process_pop_messages_total", 2),
        ("queen_process_ack_requests_total", 1),
        ("queen_process_ack_messages_total", 1),
        ("queen_store_connected", 1),
        ("queen_parked_long_polls", 0),
    ] {
        assert_eq!(broker.counter(name), value, "{name}");
    }
    let metrics = read(&mut client, "/metrics");
    assert_eq!((&metrics["messages"]["total"], &metrics["database"]["waitingRequests"]), (&json!(4), &json!(0)));
}
