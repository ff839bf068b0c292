//! Reads by offset, and which partitions have changed.

use super::{
    common::{Broker, eventually, request},
    *,
};

fn fetch(client: &mut Connection, body: &Value) -> Vec<Value> {
    let response = client.post("/api/v1/fetch", body.to_string());
    assert_eq!(response.status, 200, "{}", response.text());
    elements(&response.json()["entries"])
}

fn offsets(entry: &Value) -> Vec<u64> {
    elements(&entry["records"]).iter().filter_map(|record| record["offset"].as_u64()).collect()
}

fn bounds(entry: &Value) -> (u64, u64) {
    let bound = |name: &str| entry[name].as_u64().unwrap_or_else(|| panic!("{name} in {entry}"));
    (bound("highWatermark"), bound("logStartOffset"))
}

#[test]
fn entries_are_answered_in_their_order_with_their_bounds() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    push_items(&mut client, &json!([{ "queue": "q", "payload": { "n": 1 }, "transactionId": "t" }]));
    push_to(&mut client, "q", "7", &[json!(1), json!(2), json!(3)]);
    let entries = fetch(
        &mut client,
        &json!({ "entries": [
            { "queue": "q", "partition": 7, "offset": 1 },
            { "queue": "q", "offset": 0 },
            { "queue": "q", "partition": "7", "offset": 3 },
            { "queue": "q", "partition": "7", "offset": 4 },
            { "queue": "q", "partition": "none", "offset": 0 },
            { "queue": "none", "offset": 0 },
        ] }),
    );
    assert_eq!(entries.len(), 6);
    assert_eq!(
        (&entries[0]["partition"], offsets(&entries[0]), bounds(&entries[0])),
        (&json!("7"), vec![1, 2], (3, 0))
    );
    let record = &entries[1]["records"][0];
    assert_eq!((&record["transactionId"], &record["payload"]), (&json!("t"), &json!({ "n": 1 })));
    assert_eq!(record["ts"].as_str().map(str::len), Some(27));
    assert_eq!((offsets(&entries[2]), bounds(&entries[2]), entries[2].get("error")), (vec![], (3, 0), None));
    assert_eq!((&entries[3]["error"], bounds(&entries[3])), (&json!("OFFSET_OUT_OF_RANGE"), (3, 0)));
    for unknown in &entries[4..] {
        assert_eq!((&unknown["error"], bounds(unknown)), (&json!("UNKNOWN_TOPIC_OR_PARTITION"), (0, 0)));
    }
    // Nothing of it touched the queue.
    assert_eq!(read(&mut client, "/api/v1/resources/queues/q")["partitions"].as_array().map(Vec::len), Some(2));
    assert_eq!(data(&pop(&mut client, "q", "partitions=0")).len(), 4);
}

#[test]
fn a_ceiling_leaves_later_entries_empty_with_their_bounds() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    let large = json!("x".repeat(10_000));
    for partition in ["a", "b"] {
        for _ in 0..3 {
            push_to(&mut client, "q", partition, std::slice::from_ref(&large));
        }
    }
    let entry = |partition: &str, offset: u64| json!({ "queue": "q", "partition": partition, "offset": offset });
    let entries = fetch(&mut client, &json!({ "entries": [entry("a", 0), entry("b", 0)], "maxBytes": 1 }));
    assert_eq!(offsets(&entries[0]), [0], "one stored batch is always returned");
    assert_eq!((offsets(&entries[1]), bounds(&entries[1])), (vec![], (3, 0)));
    let mut small = entry("a", 1);
    small["maxBytes"] = json!(1);
    let entries = fetch(&mut client, &json!({ "entries": [small] }));
    assert_eq!(offsets(&entries[0]), [1]);
}

#[test]
fn a_fetch_that_is_caught_up_waits_for_the_next_message() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    push(&mut client, "q", &[json!(1)]);
    let waiting = |min_bytes: u64| {
        json!({ "entries": [{ "queue": "q", "offset": 1 }], "maxWaitMs": 30_000, "minBytes": min_bytes }).to_string()
    };
    let mut fetching = broker.connect();
    fetching.send(request("POST", "/api/v1/fetch", &[], waiting(1).as_bytes()));
    eventually("its parking", || (broker.parked() == 1).then_some(()));
    push(&mut client, "q", &[json!("")]);
    assert_eq!(offsets(&fetching.response().json()["entries"][0]), [1]);

    // Without a byte to wait for, or without time, it never parks.
    for body in [
        waiting(0).replace("\"offset\":1", "\"offset\":2"),
        json!({ "entries": [{ "queue": "q", "offset": 2 }] }).to_string(),
    ] {
        assert_eq!(bounds(&client.post("/api/v1/fetch", body).json()["entries"][0]), (2, 0));
    }
    // An entry with an error ends the wait of all.
    let body =
        json!({ "entries": [{ "queue": "q", "offset": 2 }, { "queue": "none", "offset": 0 }], "maxWaitMs": 30_000 });
    assert_eq!(fetch(&mut client, &body)[1]["error"], "UNKNOWN_TOPIC_OR_PARTITION");
    // One that ends for its time has its bounds all the same, and so has one whose client sends no more.
    let body = json!({ "entries": [{ "queue": "q", "offset": 2 }], "maxWaitMs": 50 });
    assert_eq!(bounds(&fetch(&mut client, &body)[0]), (2, 0));
    let body = json!({ "entries": [{ "queue": "q", "offset": 2 }], "maxWaitMs": 30_000 }).to_string();
    fetching.send(request("POST", "/api/v1/fetch", &[], body.as_bytes()));
    eventually("its parking", || (broker.parked() == 1).then_some(()));
    fetching.finish_sending();
    assert_eq!(bounds(&fetching.response().json()["entries"][0]), (2, 0));
}

#[test]
fn a_fetch_that_is_wrong_is_refused_whole() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    let many = json!({ "entries": vec![json!({ "queue": "q", "offset": 0 }); 1025] }).to_string();
    for body in [
        "",
        "{}",
        r#"{"entries":[]}"#,
        r#"{"entries":[{"queue":"q"}]}"#,
        r#"{"entries":[{"queue":"q","offset":-1}]}"#,
        r#"{"entries":[{"queue":"q","offset":"latest"}]}"#,
        &many,
    ] {
        refusal(&client.post("/api/v1/fetch", body), 400, "bad_request");
    }
}

fn changed(client: &mut Connection, entries: &Value) -> Value {
    let response = client.post("/api/v1/partitions/changed", json!({ "entries": entries }).to_string());
    assert_eq!(response.status, 200, "{}", response.text());
    let answer = response.json();
    assert_eq!(answer["safeTimeDegraded"], false);
    assert_eq!(answer["safeTime"].as_str().map(str::len), Some(27), "{answer}");
    answer
}

#[test]
fn changed_partitions_come_page_by_page_in_the_order_of_their_creation() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    for n in 0..25 {
        push_to(&mut client, "q", &format!("p{n}"), &[json!(1), json!(2)]);
    }
    let (mut names, mut after, mut pages) = (Vec::new(), Value::Null, 0);
    loop {
        let entry = json!([{ "queue": "q", "limit": 10, "after": after }]);
        let page = changed(&mut client, &entry)["entries"][0].clone();
        for row in elements(&page["partitions"]) {
            assert_eq!((&row["lastOffset"], &row["logStart"]), (&json!(1), &json!(0)), "{row}");
            names.push(row["name"].as_str().expect("a name").to_owned());
        }
        pages += 1;
        after = page["next"].clone();
        if after.is_null() {
            break;
        }
    }
    assert_eq!((pages, names), (3, (0..25).map(|n| format!("p{n}")).collect()));
}

#[test]
fn what_was_written_after_a_safe_time_is_listed_from_it_on_and_nothing_older() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    push_to(&mut client, "q", "old", &[json!(1)]);
    let mut since = String::new();
    // Until the safe time has passed the first write.
    eventually("a safe time behind the first write", || {
        let answer = changed(&mut client, &json!([{ "queue": "q" }]));
        since = answer["safeTime"].as_str().expect("a time").to_owned();
        let written = answer["entries"][0]["partitions"][0]["lastWriteAt"].as_str().expect("a time").to_owned();
        (since > written).then_some(())
    });
    for n in 0..10 {
        push_to(&mut client, "q", &format!("p{n}"), &[json!(1)]);
        let answer = changed(&mut client, &json!([{ "queue": "q", "since": since }]));
        let rows = elements(&answer["entries"][0]["partitions"]);
        assert!(rows.iter().any(|row| row["name"] == format!("p{n}")), "p{n} in {answer}");
        assert!(rows.iter().all(|row| row["lastWriteAt"].as_str() >= Some(&since)), "{since}: {answer}");
        since = answer["safeTime"].as_str().expect("a time").to_owned();
    }
}

#[test]
fn an_entry_that_cannot_be_served_says_why() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    push(&mut client, "q", &[json!(1)]);
    push(&mut client, "r", &[json!(1)]);
    let next = changed(&mut client, &json!([{ "queue": "r", "limit": 1 }]))["entries"][0]["next"].clone();
    let answer = changed(
        &mut client,
        &json!([{ "queue": "q", "after": next }, { "queue": "none" }, { "queue": "q", "since": "2020-01-01" }]),
    );
    assert_eq!(answer["entries"][0], json!({ "queue": "q", "error": "BAD_CURSOR" }));
    assert_eq!(answer["entries"][1], json!({ "queue": "none", "error": "UNKNOWN_TOPIC_OR_PARTITION" }));
    assert_eq!(elements(&answer["entries"][2]["partitions"]).len(), 1);
    assert_eq!(changed(&mut client, &json!([]))["entries"], json!([]));
    for body in ["{}", r#"{"entries":[{"queue":"q","since":"yesterday"}]}"#] {
        refusal(&client.post("/api/v1/partitions/changed", body), 400, "bad_request");
    }
}
