//! Configuring queues and deleting them.

use super::{common::Broker, *};

#[test]
fn every_option_is_echoed_and_what_is_left_out_stays() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    let options = json!({
        "leaseTime": 5, "retryLimit": 7, "deadLetterQueue": false, "dlqAfterMaxRetries": false,
        "delayedProcessing": 3, "windowBuffer": 2, "minPopWaitTime": 90_000, "dedupWindowSeconds": -5,
        "encryptionEnabled": true, "retentionEnabled": true, "retentionSeconds": 60,
        "completedRetentionSeconds": 30, "maxWaitTimeSeconds": 90, "priority": 5, "ttl": "1200", "maxSize": 100,
        "retryDelay": 50, "retentionSinkHold": true, "retentionSinkHoldMaxSeconds": 9,
    });
    let mut expected = options.clone();
    expected["minPopWaitTime"] = json!(60_000);
    expected["dedupWindowSeconds"] = json!(0);
    expected["ttl"] = json!(1200);
    let first = configure(&mut client, "q", &options);
    assert_eq!(first["options"], expected);
    assert_eq!(
        (&first["configured"], &first["queue"], &first["partitionId"], &first["storage"]),
        (&json!(true), &json!("q"), &Value::Null, &json!("segments"))
    );
    // The log is written by a thread of its own.
    common::eventually("the warning", || broker.log().contains("payloads are not encrypted").then_some(()));

    let merged = configure(&mut client, "q", &json!({ "ttl": null, "namespace": "n" }));
    expected["ttl"] = json!(3600);
    assert_eq!((&merged["options"], &merged["namespace"]), (&expected, &json!("n")));
    assert_eq!(merged["queueId"], first["queueId"]);

    let body = json!({ "queue": "q", "mode": "replace", "leaseTime": 9 });
    let replaced = client.post("/api/v1/configure", body.to_string()).json();
    let options = &replaced["options"];
    assert_eq!((&options["leaseTime"], &options["retryLimit"], &options["ttl"]), (&json!(9), &json!(3), &json!(3600)));
    assert_eq!((&replaced["namespace"], &options["deadLetterQueue"]), (&json!(""), &json!(true)));
}

#[test]
fn what_is_wrong_is_refused_and_changes_nothing() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    let before = configure(&mut client, "q", &json!({ "leaseTime": 5 }));
    for (option, named) in [
        (r#""leaseTime":0"#, "leaseTime"),
        (r#""leaseTime":1.5"#, "leaseTime"),
        (r#""retryLimit":"abc""#, "retryLimit"),
        (r#""windowBuffer":-1"#, "windowBuffer"),
        (r#""deadLetterQueue":"yes""#, "deadLetterQueue"),
        (r#""mode":"patch""#, "mode"),
        (r#""options":7"#, "options"),
    ] {
        let response = client.post("/api/v1/configure", format!(r#"{{"queue":"q","priority":9,{option}}}"#));
        refusal(&response, 400, "bad_request");
        assert!(response.text().contains(named), "{}", response.text());
    }
    for body in ["{}", r#"{"queue":7}"#, r#"{"queue":""}"#, "[]"] {
        refusal(&client.post("/api/v1/configure", body), 400, "bad_request");
    }
    assert_eq!(configure(&mut client, "q", &json!({})), before);
}

#[test]
fn options_act_on_later_pops_and_acks() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    push(&mut client, "q", &[json!(1)]);
    configure(&mut client, "q", &json!({ "leaseTime": 1, "retryLimit": 0 }));
    assert_eq!(data(&pop(&mut client, "q", "")), [1]);
    let again = common::eventually("the end of the shorter lease", || pop(&mut client, "q", "leaseSeconds=600"));
    let result = ack_one(&mut client, None, ack_of(&again["messages"][0], "failed"));
    assert_eq!(result["dlq"], true, "{result}");
}

#[test]
fn a_queue_that_is_made_again_has_nothing_of_the_old_one() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    let item = json!([{ "queue": "q", "payload": "old", "transactionId": "t" }]);
    push_items(&mut client, &item);
    let old = configure(&mut client, "q", &json!({ "leaseTime": 5 }));
    let leased = messages(&pop(&mut client, "q", "leaseSeconds=600"));
    assert_eq!(pop(&mut client, "q", "consumerGroup=g"), None, "registered as new");

    let delete = |client: &mut Connection| client.request("DELETE", "/api/v1/resources/queues/q", b"").json();
    assert_eq!(delete(&mut client), json!({ "deleted": true, "existed": true, "queue": "q" }));
    let missing = delete(&mut client);
    assert_eq!((&missing["deleted"], &missing["existed"]), (&json!(false), &json!(false)));
    assert!(missing["message"].is_string(), "{missing}");
    refusal(&client.get("/api/v1/resources/queues/q"), 404, "queue_not_found");
    refused(&ack_one(&mut client, None, ack_of(&leased[0], "completed")), "consumer not found");

    let pushed = &push_items(&mut client, &json!([{ "queue": "q", "payload": "new", "transactionId": "t" }]))[0];
    assert_eq!((&pushed["status"], &pushed["offset"]), (&json!("queued"), &json!(0)));
    let popped = pop(&mut client, "q", "consumerGroup=g&subscriptionMode=all");
    assert_eq!(data(&popped), ["new"], "the group starts afresh");
    assert_ne!(messages(&popped)[0]["partitionId"], leased[0]["partitionId"]);
    let new = configure(&mut client, "q", &json!({}));
    assert_eq!(new["options"]["leaseTime"], 60);
    assert_ne!(new["queueId"], old["queueId"]);
}
