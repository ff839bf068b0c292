//! Names that are awkward, tenants, and paths that are none.

use super::{
    common::{Broker, request},
    *,
};

/// A name as a path segment.
fn encoded(name: &str) -> String {
    name.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

#[test]
fn awkward_names_go_through_every_route() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    let long = "é".repeat(255);
    for queue in ["a b/c:é", "'; DROP TABLE \"queue\"; --", "%41%", "100% \\ _", "depth", "\u{7f}", &long] {
        let partition = format!("{} 'p'/\"%\\", "x".repeat(200));
        push_to(&mut client, queue, &partition, &[json!(1)]);
        push_to(&mut client, queue, "", &[json!(2)]);
        let target = format!("/api/v1/pop/queue/{}/partition/{}?leaseSeconds=600", encoded(queue), encoded(&partition));
        let pinned = pop_at(&mut client, &target);
        assert_eq!(data(&pinned), [1], "{queue}");
        let body = pinned.expect("a message");
        assert_eq!((&body["queue"], &body["partition"]), (&json!(queue), &json!(partition)));
        // The empty name is a partition of its own; no path can name it, any partition can be it.
        let any = pop(&mut client, &encoded(queue), "");
        assert_eq!((data(&any), &messages(&any)[0]["partition"]), (vec![json!(2)], &json!("")));
        let fetched = json!({ "entries": [{ "queue": queue, "partition": partition, "offset": 0 }] });
        let fetched = client.post("/api/v1/fetch", fetched.to_string()).json();
        assert_eq!(fetched["entries"][0]["records"][0]["payload"], 1, "{fetched}");
        assert_eq!(read(&mut client, &format!("/api/v1/resources/queues/{}", encoded(queue)))["name"], queue);
        let deleted = client.request("DELETE", &format!("/api/v1/resources/queues/{}", encoded(queue)), b"").json();
        assert_eq!(deleted, json!({ "deleted": true, "existed": true, "queue": queue }));
    }
}

#[test]
fn groups_may_have_any_name_too() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    push(&mut client, "q", &[json!(1)]);
    for group in ["", "g g", "a/b", "'\"%_\\", "__QUEUE_MODE__ "] {
        let query = format!("consumerGroup={}&subscriptionMode=all", encoded(group));
        let popped = pop(&mut client, "q", &query);
        assert_eq!(data(&popped), [1], "{group:?}");
        assert_eq!(popped.expect("a message")["consumerGroup"], group);
    }
    assert_eq!(client.get("/api/v1/pop/queue/q?consumerGroup=%00").status, 400);
}

#[test]
fn a_queue_that_a_push_makes_derives_its_namespace_and_one_that_is_configured_does_not() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    for (queue, namespace, task) in [("a.b.c", "a", "b"), ("orders", "orders", "")] {
        push(&mut client, queue, &[json!(1)]);
        let row = read(&mut client, &format!("/api/v1/resources/queues/{queue}"));
        assert_eq!((&row["namespace"], &row["task"]), (&json!(namespace), &json!(task)), "{row}");
        assert_eq!(configure(&mut client, queue, &json!({}))["options"]["leaseTime"], 60);
    }
    let configured = configure(&mut client, "x.y", &json!({}));
    assert_eq!((&configured["namespace"], &configured["options"]["leaseTime"]), (&json!(""), &json!(300)));
    push(&mut client, "x.y", &[json!(1)]);
    assert_eq!(read(&mut client, "/api/v1/resources/queues/x.y")["namespace"], "", "a later push changes nothing");
}

#[test]
fn tenants_have_queues_partitions_and_leases_of_their_own() {
    const ONE: &str = "6f2c1f0a-3a5e-4a8c-9d2e-0123456789ab";
    const OTHER: &str = "7F2C1F0A-3A5E-4A8C-9D2E-0123456789AB";
    let broker = Broker::start(&[("QUEEN_TENANCY_HEADER", "true")]);
    let mut client = broker.connect();
    let mut ask = |tenant: &str, method: &str, target: &str, body: &str| {
        client.send(request(method, target, &[("x-queen-tenant", tenant)], body.as_bytes()));
        client.response()
    };
    for (tenant, payload) in [(ONE, 1), (OTHER, 2), ("", 3)] {
        let body = json!({ "items": [{ "queue": "q", "payload": payload, "transactionId": "t" }] }).to_string();
        let response = ask(tenant, "POST", "/api/v1/push", &body);
        assert_eq!(response.json()[0]["status"], "queued", "{}", response.text());
    }
    let popped = popped(&ask(ONE, "GET", "/api/v1/pop/queue/q", ""));
    assert_eq!(data(&popped), [1]);
    let message = &messages(&popped)[0];
    let ack = ack_of(message, "completed").to_string();
    refused(&ask(OTHER, "POST", "/api/v1/ack", &ack).json()[0], "consumer not found");
    let extend = format!("/api/v1/lease/{}/extend", message["leaseId"].as_str().expect("a lease"));
    assert_eq!(ask(OTHER, "POST", &extend, "").json()["renewed"], 0);
    assert_eq!(ask(ONE, "POST", &extend, "").json()["renewed"], 1);
    taken(&ask(ONE, "POST", "/api/v1/ack", &ack).json()[0]);
    let queues = ask(OTHER, "GET", "/api/v1/resources/queues", "").json();
    assert_eq!((elements(&queues["queues"]).len(), &queues["queues"][0]["messages"]["total"]), (1, &json!(1)));
    let changed = r#"{"entries":[{"queue":"q"}]}"#;
    assert_eq!(
        ask("8f2c1f0a-3a5e-4a8c-9d2e-0123456789ab", "POST", "/api/v1/partitions/changed", changed).json()["entries"],
        json!([{ "queue": "q", "error": "UNKNOWN_TOPIC_OR_PARTITION" }])
    );
    refusal(&ask("no-uuid", "GET", "/api/v1/pop/queue/q", ""), 400, "bad_tenant");
    assert_eq!(ask("no-uuid", "GET", "/health", "").status, 200, "probes live");
}

#[test]
fn paths_are_exact_and_methods_are_named() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    for target in ["/api/v1/push/", "/api/v1/pop/queue/", "/api/v1/nothing", "/api/v1/pop/queue/q/partition/"] {
        refusal(&client.get(target), 404, "no_such_route");
    }
    for (method, target, allow) in [
        ("GET", "/api/v1/push", "POST"),
        ("POST", "/api/v1/pop/queue/q", "GET"),
        ("DELETE", "/api/v1/ack/batch", "POST"),
        ("POST", "/api/v1/resources/queues/q", "GET, HEAD, DELETE"),
        ("DELETE", "/api/v1/resources/queues", "GET, HEAD"),
    ] {
        let response = client.request(method, target, b"");
        refusal(&response, 405, "method_not_allowed");
        assert_eq!(response.header("allow"), Some(allow));
    }
    refusal(&client.get("/api/v1/resources/queues/%ff"), 400, "bad_request");
}
