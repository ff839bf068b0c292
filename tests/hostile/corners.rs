//! The corners of HTTP that must be served right, and large payloads.

use serde_json::{Value, json};

use crate::common::{PATIENCE, eventually, payloads, request};
use crate::{PUSH, Scene, push_body};

#[test]
fn an_unknown_path_is_404_no_such_route() {
    let scene = Scene::set();
    for (method, target) in [
        ("GET", "/"),
        ("GET", "/api/v1/ephemeral"),
        ("GET", "/api/v1/ephemeral/pop/"),
        ("POST", "/api/v1/ephemeral/pushes"),
        ("GET", "/api/v1/ephemeral/queues/"),
        ("GET", "/api/v1/ephemeral/queues/q/depth/x"),
        ("DELETE", "/api/v1/ephemeral/queue/a/b"),
        ("GET", "/health/"),
        ("GET", "/..%2fhealth"),
    ] {
        scene.rejects(method, target, "", (404, "no_such_route"));
    }
    scene.ends_unharmed();
}

#[test]
fn a_wrong_method_is_405_with_allow_and_a_json_body() {
    let scene = Scene::set();
    for (method, target, allowed) in [
        ("GET", PUSH, "POST"),
        ("PUT", PUSH, "POST"),
        ("POST", "/api/v1/ephemeral/pop", "GET"),
        ("DELETE", "/api/v1/ephemeral/pop", "GET"),
        ("GET", "/api/v1/ephemeral/queue/q", "DELETE"),
        ("POST", "/api/v1/ephemeral/queues", "GET"),
        ("POST", "/api/v1/ephemeral/queues/q/depth", "GET"),
        ("POST", "/health", "GET"),
        ("BREW", "/status", "GET"),
    ] {
        let mut client = scene.connect();
        let response = client.request(method, target, b"");
        assert_eq!(response.status, 405, "{method} {target}: {}", response.text());
        let allow = response.header("allow").expect("Allow");
        assert!(allow.split(", ").any(|method| method == allowed), "{allowed} in {allow:?}");
        response.code();
        assert_eq!(client.get("/health").status, 200);
    }
    scene.ends_unharmed();
}

#[test]
fn a_client_that_expects_a_go_ahead_gets_it_once() {
    let scene = Scene::set();
    let mut client = scene.connect();
    let body = push_body(r#"[{"payload":1}]"#);
    let head =
        format!("POST {PUSH} HTTP/1.1\r\nhost: b\r\nexpect: 100-continue\r\ncontent-length: {}\r\n\r\n", body.len());
    client.send(&head);
    assert_eq!(client.response_head().status, 100);
    client.send(&body);
    assert_eq!(client.response().status, 201);
    assert_eq!(client.get("/health").status, 200, "nothing else was sent");

    let too_large = head.replace(&format!("content-length: {}", body.len()), "content-length: 1000000000");
    scene.refuses(too_large, (413, "payload_too_large"));
    scene.ends_unharmed();
}

#[test]
fn an_expectation_that_is_not_known_is_417() {
    let scene = Scene::set();
    scene.refuses(
        format!("POST {PUSH} HTTP/1.1\r\nhost: b\r\nexpect: 200-ok\r\ncontent-length: 2\r\n\r\n{{}}"),
        (417, "expectation_failed"),
    );
    scene.ends_unharmed();
}

#[test]
fn http_1_0_closes_unless_it_asks_to_be_kept() {
    let scene = Scene::set();
    let mut client = scene.connect();
    client.send("GET /health HTTP/1.0\r\n\r\n");
    assert_eq!(client.response().status, 200);
    assert!(client.is_closed_by_peer());

    let mut client = scene.connect();
    for _ in 0..2 {
        client.send("GET /health HTTP/1.0\r\nconnection: keep-alive\r\n\r\n");
        let response = client.response();
        assert_eq!(response.status, 200);
        assert_eq!(response.header("connection"), Some("keep-alive"));
    }
    scene.ends_unharmed();
}

#[test]
fn connection_close_is_honoured() {
    let scene = Scene::set();
    let mut client = scene.connect();
    client.send(request("GET", "/health", &[("connection", "close")], b""));
    let response = client.response();
    assert_eq!((response.status, response.header("connection")), (200, Some("close")));
    assert!(client.is_closed_by_peer());
    scene.ends_unharmed();
}

#[test]
fn head_is_answered_as_get_without_the_body() {
    let scene = Scene::set();
    let mut client = scene.connect();
    let got = client.get("/health");
    client.send(request("HEAD", "/health", &[], b""));
    let head = client.response_head();
    assert_eq!(head.status, 200);
    assert_eq!(head.header("content-length"), got.header("content-length"));
    assert_eq!(client.get("/health").status, 200, "no body was in the way");
    scene.ends_unharmed();
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let scene = Scene::set();
    let mut client = scene.connect();
    let queues: Vec<String> = (0..50).map(|index| format!("pipelined-{index}")).collect();
    let mut bytes = Vec::new();
    for queue in &queues {
        let body = json!({ "queue": queue, "messages": [{ "payload": queue }] });
        bytes.extend(request("POST", PUSH, &[], body.to_string().as_bytes()));
        bytes.extend(request(
            "GET",
            &format!("/api/v1/ephemeral/pop?queue={queue}&autoAck=true&wait=true&timeout=60000"),
            &[],
            b"",
        ));
    }
    client.send(bytes);
    for queue in &queues {
        assert_eq!(client.response().status, 201);
        assert_eq!(payloads(&client.popped()), [json!(queue)]);
    }
    scene.ends_unharmed();
}

#[test]
fn a_request_behind_a_waiting_pop_waits_for_it() {
    let scene = Scene::set();
    let mut client = scene.connect();
    client.send_pop("queue=first&wait=true&timeout=300000&autoAck=true");
    client.send(request("POST", PUSH, &[], push_body(r#"[{"payload":1}]"#).as_bytes()));
    eventually("its parking", || (scene.broker.parked() == 2).then_some(()));
    scene.connect().push("first", json!("go"));
    assert_eq!(payloads(&client.popped()), [json!("go")]);
    assert_eq!(client.response().status, 201);
    scene.ends_unharmed();
}

#[test]
fn percent_encoded_names_are_the_names_of_the_bodies() {
    let scene = Scene::set();
    let mut client = scene.connect();
    for (name, in_query, in_path) in [
        ("a b/c:é", "a+b%2Fc%3a%C3%A9", "a%20b%2Fc:%c3%a9"),
        ("100%", "100%25", "100%25"),
        ("a+b", "a%2Bb", "a+b"),
        ("q?x=1&y#z", "q%3Fx%3D1%26y%23z", "q%3fx=1&y%23z"),
        ("😀", "%F0%9F%98%80", "%f0%9f%98%80"),
    ] {
        client.push_to(name, name, json!(name));
        let popped = client.pop(&format!("queue={in_query}&partition={in_query}&group={in_query}"));
        assert_eq!(payloads(&popped), [json!(name)], "{name}");
        assert_eq!(popped[0].partition, name);
        assert_eq!(client.depth(in_path)["queue"], name);
        assert_eq!(client.ack(name, Some(name), &[&popped[0].id], "completed"), ["acked"]);
        let deleted = client.request("DELETE", &format!("/api/v1/ephemeral/queue/{in_path}"), b"");
        assert_eq!(deleted.json(), json!({ "queue": name, "deleted": true, "declared": false }));
    }
    scene.ends_unharmed();
}

#[test]
fn a_payload_of_megabytes_goes_through_whole() {
    let scene = Scene::set();
    let payload = json!("x".repeat(8 << 20));
    let mut client = scene.connect();
    client.push("big", payload.clone());
    let popped: Vec<Value> = payloads(&client.pop("queue=big&autoAck=true"));
    assert!(popped == [payload], "the payload came back changed");
    scene.ends_unharmed();
}

#[test]
fn a_reader_that_does_not_read_blocks_only_itself() {
    let scene = Scene::set_with(&[("QUEEN_EPHEMERAL_QUEUE_MAX_BYTES", "67108864")]);
    let mut pusher = scene.connect();
    for _ in 0..4 {
        pusher.push("big", json!("x".repeat(8 << 20)));
    }
    let mut slow = scene.connect();
    slow.send_pop("queue=big&batch=4&autoAck=true");
    // More than any socket buffer holds is on its way to a client that does not read.
    eventually("the delivery", || (pusher.depth("big")["pending"] == 0).then_some(()));
    for index in 0..200 {
        pusher.push("q", json!(index));
        assert_eq!(pusher.pop("queue=q&autoAck=true").len(), 1);
    }
    assert_eq!(slow.popped().len(), 4, "it gets everything when it reads, within {PATIENCE:?}");
    scene.ends_unharmed();
}
