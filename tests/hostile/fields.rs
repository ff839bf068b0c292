//! Names, numbers and lists that are well-formed JSON or queries and still no request.

use serde_json::json;

use crate::{BAD_FIELD, PUSH, Scene, assert_fails, push_body};

#[test]
fn a_name_of_512_bytes_is_served_and_one_of_513_is_refused_everywhere() {
    let scene = Scene::set();
    let longest = "é".repeat(256);
    assert_eq!(longest.len(), 512);
    let too_long = format!("{longest}x");
    let escaped = |name: &str| name.bytes().map(|byte| format!("%{byte:02x}")).collect::<String>();

    let mut client = scene.connect();
    client.push_to(&longest, &longest, json!(1));
    let pop = format!("queue={0}&partition={0}&group={0}&autoAck=true", escaped(&longest));
    assert_eq!(client.pop(&pop).len(), 1);

    let message = json!([{ "payload": 1 }]);
    let bodies = [
        ("push", json!({ "queue": too_long, "messages": message })),
        ("push", json!({ "queue": "q", "partition": too_long, "messages": message })),
        ("ack", json!({ "queue": too_long, "acks": [] })),
        ("ack", json!({ "queue": "q", "group": too_long, "acks": [] })),
        ("configure", json!({ "queue": too_long, "options": {} })),
        ("reset", json!({ "queue": too_long })),
    ];
    for (route, body) in bodies {
        scene.rejects("POST", &format!("/api/v1/ephemeral/{route}"), body.to_string(), BAD_FIELD);
    }
    let too_long = escaped(&too_long);
    for query in
        [format!("queue={too_long}"), format!("queue=q&partition={too_long}"), format!("queue=q&group={too_long}")]
    {
        scene.rejects("GET", &format!("/api/v1/ephemeral/pop?{query}"), "", BAD_FIELD);
    }
    scene.rejects("DELETE", &format!("/api/v1/ephemeral/queue/{too_long}"), "", BAD_FIELD);
    scene.rejects("GET", &format!("/api/v1/ephemeral/queues/{too_long}/depth"), "", BAD_FIELD);
    scene.ends_unharmed();
}

#[test]
fn empty_names_and_control_characters_in_names_are_refused() {
    let scene = Scene::set();
    for name in ["", "a\u{0}b", "\n", "tab\t", "\u{7f}"] {
        let message = json!([{ "payload": 1 }]);
        let push = json!({ "queue": name, "messages": message });
        scene.rejects("POST", PUSH, push.to_string(), BAD_FIELD);
        let push = json!({ "queue": "q", "partition": name, "messages": message });
        scene.rejects("POST", PUSH, push.to_string(), BAD_FIELD);
        let escaped: String = name.bytes().map(|byte| format!("%{byte:02x}")).collect();
        scene.rejects("GET", &format!("/api/v1/ephemeral/pop?queue={escaped}"), "", BAD_FIELD);
        scene.rejects("GET", &format!("/api/v1/ephemeral/pop?queue=q&group={escaped}"), "", BAD_FIELD);
    }
    scene.rejects("GET", "/api/v1/ephemeral/pop", "", BAD_FIELD);
    scene.rejects("POST", PUSH, r#"{"queue":"\ud800","messages":[]}"#, BAD_FIELD);
    scene.ends_unharmed();
}

#[test]
fn numbers_out_of_range_in_a_pop_are_refused_by_the_name_of_the_parameter() {
    let scene = Scene::set();
    for (parameter, value) in [
        ("batch", "0"),
        ("batch", "-1"),
        ("batch", "abc"),
        ("batch", "1.5"),
        ("batch", ""),
        ("batch", "1&batch=2"),
        ("timeout", "-1"),
        ("timeout", "abc"),
        ("timeout", ""),
        ("timeout", "18446744073709551616"),
        ("wait", "yes"),
        ("autoAck", "1"),
    ] {
        let target = format!("/api/v1/ephemeral/pop?queue=q&{parameter}={value}");
        let response = scene.connect().get(&target);
        assert_fails(&response, BAD_FIELD);
        let error = response.json()["error"].as_str().expect("a sentence").to_owned();
        assert!(error.contains(parameter), "{parameter} in {error:?}");
    }
    // Above the ceilings is served at the ceilings; zero waiting is no waiting.
    let mut client = scene.connect();
    client.push("q", json!(1));
    assert_eq!(client.pop("queue=q&batch=10001&autoAck=true").len(), 1);
    assert!(client.pop("queue=q&wait=true&timeout=0&unknown=parameter").is_empty());
    scene.ends_unharmed();
}

#[test]
fn options_that_are_no_whole_number_in_range_are_refused_by_their_name() {
    let scene = Scene::set();
    for (option, value) in [
        ("maxLength", "1.5"),
        ("maxLength", "-1"),
        ("maxLength", "\"3\""),
        ("maxBytes", "1e2"),
        ("maxBytes", "18446744073709551616"),
        ("ttlSeconds", "true"),
        ("leaseSeconds", "[]"),
        ("retryLimit", "-0.5"),
        ("policy", "\"drop\""),
        ("windowBuffer", "5"),
        ("ttlSecond", "5"),
    ] {
        let body = format!(r#"{{"queue":"q","options":{{"{option}":{value}}}}}"#);
        let response = scene.connect().post("/api/v1/ephemeral/configure", body);
        assert_fails(&response, BAD_FIELD);
        let error = response.json()["error"].as_str().expect("a sentence").to_owned();
        assert!(error.contains(option), "{option} in {error:?}");
    }
    let unknown = json!({ "queue": "q", "options": { "ttlSecond": 5 } });
    let response = scene.connect().post("/api/v1/ephemeral/configure", unknown.to_string());
    for known in ["maxBytes", "maxLength", "policy", "ttlSeconds", "leaseSeconds", "retryLimit", "windowBuffer"] {
        assert!(response.text().contains(known), "{known} in {}", response.text());
    }
    assert!(scene.broker.row("q").is_none(), "nothing was declared");
    scene.ends_unharmed();
}

#[test]
fn ten_thousand_messages_are_a_push_and_one_more_is_none() {
    let scene = Scene::set();
    let messages = |count: usize| push_body(&format!("[{}]", vec![r#"{"payload":1}"#; count].join(",")));
    scene.rejects("POST", PUSH, messages(10_001), BAD_FIELD);
    let mut client = scene.connect();
    let pushed = client.post(PUSH, messages(10_000));
    assert_eq!((pushed.status, pushed.text()), (201, r#"{"pushed":10000}"#));
    assert_eq!(client.pop("queue=q&batch=10000&autoAck=true").len(), 10_000);
    scene.ends_unharmed();
}

#[test]
fn a_message_without_a_payload_refuses_the_whole_push() {
    let scene = Scene::set();
    for messages in [r#"[{"payload":1},{}]"#, "[1]", "[null]", "7", "null", r#"{"payload":1}"#] {
        scene.rejects("POST", PUSH, push_body(messages), BAD_FIELD);
    }
    scene.rejects("POST", PUSH, r#"{"queue":"q"}"#, BAD_FIELD);
    scene.rejects("POST", PUSH, r#"{"messages":[]}"#, BAD_FIELD);
    scene.rejects("POST", PUSH, r#"{"queue":7,"messages":[]}"#, BAD_FIELD);
    scene.rejects("POST", PUSH, "[]", BAD_FIELD);
    assert!(scene.connect().pop("queue=q").is_empty(), "all or nothing");
    scene.ends_unharmed();
}
