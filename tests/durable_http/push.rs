//! Pushes: results, order, deduplication, what is refused.

use std::{sync::Barrier, thread};

use serde_json::json;

use super::{common::Broker, *};

#[test]
fn results_come_in_the_order_of_the_items_whatever_their_partitions() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    let results = push_items(
        &mut client,
        &json!([
            { "queue": "a", "payload": 1 },
            { "queue": "b", "payload": 2, "transactionId": "given" },
            { "queue": "a", "partition": "p", "payload": 3 },
            { "queue": "a", "payload": 4, "traceId": "ignored" },
        ]),
    );
    for (index, (result, (queue, offset))) in results.iter().zip([("a", 0), ("b", 0), ("a", 0), ("a", 1)]).enumerate() {
        assert_eq!(result["index"], index);
        assert_eq!((&result["queueName"], &result["offset"]), (&json!(queue), &json!(offset)), "{result}");
        assert_eq!(result["status"], "queued");
    }
    assert_eq!(results[1]["transaction_id"], "given");
    assert_eq!(results[0]["transaction_id"], results[0]["message_id"], "without an id it goes by its message id");
    assert_eq!(push_items(&mut client, &json!([])), Vec::<Value>::new());
}

#[test]
fn payloads_come_back_byte_for_byte() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    let large = format!("\"{}\"", "x".repeat(1_000_000));
    let deep = "[".repeat(100) + &"]".repeat(100);
    let spelled = [
        "null",
        "true",
        "0",
        "1.50",
        "1e999",
        "\"\"",
        r#""\u0041\ud800\u0000""#,
        "[ 1 ,\t2 ]",
        r#"{"b" : 1,"a":{ }, "b":2}"#,
        &large,
        &deep,
    ];
    let items: Vec<String> =
        spelled.iter().map(|payload| format!(r#"{{"queue":"q","payload": {payload} }}"#)).collect();
    let response = client.post("/api/v1/push", format!(r#"{{"items":[{}]}}"#, items.join(",")));
    assert_eq!(response.status, 201, "{}", response.text());

    let response = client.get("/api/v1/pop/queue/q?batch=100");
    let mut text = response.text();
    for payload in spelled {
        let rest = text.split_once("\"data\":").expect("another message").1;
        text = rest.strip_prefix(payload).unwrap_or_else(|| panic!("{payload} in {}", &rest[..40]));
        assert!(text.starts_with(",\"producerSub\":null"), "{}", &text[..40]);
    }
    let response = client.post("/api/v1/fetch", r#"{"entries":[{"queue":"q","offset":0}]}"#);
    let mut text = response.text();
    for payload in spelled {
        let rest = text.split_once("\"payload\":").expect("another message").1;
        text = rest.strip_prefix(payload).unwrap_or_else(|| panic!("{payload} in {}", &rest[..40]));
    }
}

#[test]
fn a_known_transaction_id_is_a_duplicate_of_the_original_in_its_partition_alone() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    let item = |partition: &str| json!([{ "queue": "q", "partition": partition, "payload": 1, "transactionId": "t" }]);
    push(&mut client, "q", &[json!(0)]);
    let first = &push_items(&mut client, &item("Default"))[0];
    let again = &push_items(&mut client, &item("Default"))[0];
    assert_eq!((&first["status"], &again["status"]), (&json!("queued"), &json!("duplicate")));
    assert_eq!((&again["message_id"], &again["offset"]), (&first["message_id"], &first["offset"]));
    let elsewhere = &push_items(&mut client, &item("other"))[0];
    assert_eq!(elsewhere["status"], "queued");
    assert_eq!(data(&pop(&mut client, "q", "partitions=0")).len(), 3);
}

#[test]
fn without_a_window_only_repeats_inside_one_request_collapse() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    configure(&mut client, "q", &json!({ "dedupWindowSeconds": 0 }));
    let item = json!({ "queue": "q", "payload": 1, "transactionId": "t" });
    let results = push_items(&mut client, &json!([item, item, item]));
    let statuses: Vec<&Value> = results.iter().map(|result| &result["status"]).collect();
    assert_eq!(statuses, ["queued", "duplicate", "duplicate"]);
    assert_eq!(results[2]["message_id"], results[0]["message_id"]);
    assert_eq!(push_items(&mut client, &json!([item]))[0]["status"], "queued");
}

#[test]
fn of_many_pushes_of_one_id_at_once_exactly_one_is_queued() {
    const PUSHERS: usize = 8;
    let broker = Broker::start(&[]);
    let together = Barrier::new(PUSHERS);
    for round in 0..5 {
        let item = json!([{ "queue": "q", "payload": 1, "transactionId": format!("t-{round}") }]);
        let statuses: Vec<Value> = thread::scope(|scope| {
            let pushers: Vec<_> = (0..PUSHERS)
                .map(|_| {
                    scope.spawn(|| {
                        let mut client = broker.connect();
                        together.wait();
                        push_items(&mut client, &item)[0]["status"].clone()
                    })
                })
                .collect();
            pushers.into_iter().map(|pusher| pusher.join().expect("an answer")).collect()
        });
        assert_eq!(statuses.iter().filter(|status| **status == "queued").count(), 1, "{statuses:?}");
    }
    assert_eq!(data(&pop(&mut broker.connect(), "q", "")).len(), 5);
}

#[test]
fn the_messages_of_one_push_share_their_time_and_keep_their_order() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    let payloads: Vec<Value> = (0..500).map(|n| json!(n)).collect();
    push(&mut client, "q", &payloads);
    let popped = pop(&mut client, "q", "batch=500");
    assert_eq!(data(&popped), payloads);
    let messages = messages(&popped);
    assert!(messages.iter().all(|message| message["createdAt"] == messages[0]["createdAt"]));
    let created = messages[0]["createdAt"].as_str().expect("a time");
    assert_eq!((created.len(), created.as_bytes()[26]), (27, b'Z'), "{created}");
}

#[test]
fn a_push_that_is_refused_stores_nothing() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    let good = r#"{"queue":"q","payload":1}"#;
    for bad in [
        r#"{"queue":"q"}"#,
        r#"{"queue":"q","data":1}"#,
        r#"{"payload":1}"#,
        r#"{"queue":7,"payload":1}"#,
        r#"{"queue":"","payload":1}"#,
        r#"{"queue":"q\u0000","payload":1}"#,
        r#"{"queue":"q","partition":"\n","payload":1}"#,
        r#"{"queue":"q","transactionId":"\u0001","payload":1}"#,
        "5",
    ] {
        let response = client.post("/api/v1/push", format!(r#"{{"items":[{good},{bad}]}}"#));
        refusal(&response, 400, "bad_request");
        assert!(response.text().contains("items[1]"), "{}", response.text());
    }
    for body in ["", "{}", "[]", r#"{"items":7}"#, r#"{"items":[}"#, "QPB1\u{1}"] {
        refusal(&client.post("/api/v1/push", body), 400, "bad_request");
    }
    let long = format!(r#"{{"items":[{good},{{"queue":"{}","payload":1}}]}}"#, "é".repeat(256));
    refusal(&client.post("/api/v1/push", long), 400, "bad_request");
    assert_eq!(read(&mut client, "/api/v1/resources/queues")["queues"], json!([]), "not even a queue");
}

#[test]
fn a_push_of_20_000_messages_is_taken_whole() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    let items: Vec<Value> =
        (0..20_000).map(|n| json!({ "queue": "q", "partition": format!("p{}", n % 100), "payload": n })).collect();
    let results = push_items(&mut client, &json!(items));
    assert_eq!(results.len(), 20_000);
    assert_eq!((&results[19_999]["offset"], &results[19_999]["index"]), (&json!(199), &json!(19_999)));
    let popped = pop(&mut client, "q", "batch=20000&partitions=0");
    assert_eq!(popped.as_ref().map(|body| &body["partitionsClaimed"]), Some(&json!(100)));
    let mut data: Vec<u64> = data(&popped).iter().filter_map(Value::as_u64).collect();
    data.sort_unstable();
    assert!(data.into_iter().eq(0..20_000));
    let mut items = items;
    items.push(items[0].clone());
    let response = client.post("/api/v1/push", json!({ "items": items }).to_string());
    refusal(&response, 400, "bad_request");
    assert!(response.text().contains("20000"), "the limit is named: {}", response.text());
}

#[test]
fn what_was_answered_is_there_after_a_kill() {
    let mut broker = Broker::start(&[]);
    push(&mut broker.connect(), "q", &[json!(1), json!(2)]);
    broker.kill9();
    broker.start_again();
    let mut client = broker.connect();
    assert_eq!(data(&pop(&mut client, "q", "")), [1, 2]);
    assert_eq!(push(&mut client, "q", &[json!(3)])[0]["offset"], 2);
}
