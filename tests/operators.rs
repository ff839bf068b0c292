//! What operators switch and grant: the switch of ephemeral queues, and what each tenant may use of them.

mod common;

use std::time::{Duration, Instant};

use common::{Broker, Connection, Response, eventually, payloads, request};
use serde_json::{Value, json};

const SWITCH: &str = "/api/v1/system/ephemeral";
const TENANTS: (&str, &str) = ("QUEEN_TENANCY_HEADER", "true");
const ONE: &str = "6f2c1f0a-3a5e-4a8c-9d2e-0123456789ab";
const OTHER: &str = "7f2c1f0a-3a5e-4a8c-9d2e-0123456789ab";

fn switch(client: &mut Connection, enabled: bool) {
    let answer = client.post(SWITCH, json!({ "enabled": enabled }).to_string());
    assert_eq!((answer.status, answer.json()), (200, json!({ "enabled": enabled })));
}

/// Waits until every shard refuses, or serves: a connection may be on any.
fn until_all(broker: &Broker, served: bool) {
    for _ in 0..16 {
        let mut client = broker.connect();
        let target = "/api/v1/ephemeral/queues";
        eventually("the switch", || ((client.get(target).status == 200) == served).then_some(()));
    }
}

fn assert_disabled(answer: &Response) {
    assert_eq!(answer.failure(), (503, "ephemeral_disabled".to_owned()));
    assert!(answer.header("retry-after").is_some(), "{answer:?}");
}

#[test]
fn switched_off_nothing_ephemeral_is_served_and_nothing_is_lost() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    assert_eq!(client.get(SWITCH).json(), json!({ "enabled": true }));
    client.configure("declared", &json!({ "maxLength": 7 }));
    client.push_all("q", &[json!(1), json!(2), json!(3)]);
    let leased = client.pop("queue=q");
    switch(&mut client, false);
    until_all(&broker, false);
    assert_eq!(client.get(SWITCH).json(), json!({ "enabled": false }));
    let push = json!({ "queue": "q", "messages": [{ "payload": 4 }] });
    for (method, target, body) in [
        ("POST", "push", push.clone()),
        ("GET", "pop?queue=q", Value::Null),
        ("GET", "pop?queue=q&wait=true&timeout=60000", Value::Null),
        ("POST", "ack", json!({ "queue": "q", "acks": [{ "id": leased[0].id }] })),
        ("POST", "request", json!({ "queue": "q", "payload": 1 })),
        ("POST", "exchange", json!({ "pushes": [push] })),
        ("POST", "configure", json!({ "queue": "q", "options": {} })),
        ("POST", "reset", json!({ "queue": "q" })),
        ("DELETE", "queue/q", Value::Null),
        ("GET", "queues", Value::Null),
        ("GET", "queues/q/depth", Value::Null),
    ] {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        assert_disabled(&client.request(method, &format!("/api/v1/ephemeral/{target}"), body.as_bytes()));
    }
    let durable = client.post("/api/v1/push", json!({ "items": [{ "queue": "d", "payload": 1 }] }).to_string());
    assert_eq!(durable.status, 201, "durable queues go on");
    assert_eq!(broker.counter("queen_ephemeral_enabled"), 0);
    assert!(broker.counter("queen_refused_requests_total{code=\"ephemeral_disabled\"}") >= 11);
    switch(&mut client, true);
    until_all(&broker, true);
    assert_eq!(client.ack("q", None, &[&leased[0].id], "completed"), ["acked"]);
    assert_eq!(payloads(&client.pop("queue=q&batch=10&autoAck=true")), [json!(2), json!(3)]);
    assert_eq!(broker.row("declared").expect("a declaration")["options"]["maxLength"], 7);
}

#[test]
fn who_waits_when_it_is_switched_off_is_told_at_once() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    let mut waiting: Vec<_> = (0..20).map(|_| broker.connect()).collect();
    for (n, one) in waiting.iter_mut().enumerate() {
        // Queues of both shards, from connections of both.
        if n % 4 == 0 {
            let body = json!({ "queue": format!("q{n}"), "payload": n, "timeout": 250_000 }).to_string();
            one.send(request("POST", "/api/v1/ephemeral/request", &[], body.as_bytes()));
        } else {
            one.send_pop(&format!("queue=q{n}-waits&wait=true&timeout=250000"));
        }
    }
    eventually("their waiting", || (broker.parked() == 15 && broker.open_requests() == 5).then_some(()));
    switch(&mut client, false);
    for one in &mut waiting {
        assert_disabled(&one.response());
    }
    eventually("nobody waits", || (broker.parked() == 0 && broker.open_requests() == 0).then_some(()));
    switch(&mut client, true);
    until_all(&broker, true);
    client.push("q1-waits", json!("later"));
    assert_eq!(payloads(&waiting[1].pop("queue=q1-waits&wait=true&timeout=60000")), [json!("later")]);
}

#[test]
fn time_stands_still_for_what_is_held_while_it_is_switched_off() {
    let settings = [("QUEEN_EPHEMERAL_GROUP_IDLE_S", "1"), ("QUEEN_EPHEMERAL_RETRY_LIMIT", "1")];
    let broker = Broker::start(&settings);
    let mut client = broker.connect();
    client.configure("leased", &json!({ "leaseSeconds": 1 }));
    client.configure("old", &json!({ "ttlSeconds": 1 }));
    for group in ["g1", "g2"] {
        assert!(client.pop(&format!("queue=q&group={group}")).is_empty());
    }
    client.push_all("q", &[json!(1), json!(2)]);
    assert_eq!(client.pop("queue=q&group=g1&batch=10&autoAck=true").len(), 2);
    client.push("leased", json!("on its last attempt"));
    let leased = client.pop("queue=leased");
    client.push("old", json!("young"));
    switch(&mut client, false);
    until_all(&broker, false);
    std::thread::sleep(Duration::from_millis(2_500));
    switch(&mut client, true);
    until_all(&broker, true);
    assert_eq!(client.ack("leased", None, &[&leased[0].id], "completed"), ["acked"]);
    assert_eq!(payloads(&client.pop("queue=old&autoAck=true")), [json!("young")]);
    assert_eq!(payloads(&client.pop("queue=q&group=g2&batch=10&autoAck=true")), [json!(1), json!(2)]);
}

#[test]
fn the_switch_survives_a_restart() {
    let mut broker = Broker::start(&[]);
    switch(&mut broker.connect(), false);
    broker.kill9();
    broker.start_again();
    // From the first request on, on every shard.
    for _ in 0..16 {
        assert_disabled(&broker.connect().get("/api/v1/ephemeral/queues"));
    }
    switch(&mut broker.connect(), true);
    until_all(&broker, true);
}

#[test]
fn a_switch_that_is_no_boolean_is_refused() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    for body in ["", "{}", "[]", r#"{"enabled":"false"}"#, r#"{"enabled":null}"#, r#"{"enabled":0}"#] {
        let answer = client.post(SWITCH, body);
        assert_eq!(answer.failure(), (400, "bad_request".to_owned()), "{body}");
    }
    assert_eq!(client.get(SWITCH).json(), json!({ "enabled": true }));
    assert_eq!(client.request("DELETE", SWITCH, b"").header("allow"), Some("GET, HEAD, POST"));
}

fn quota(tenant: &str) -> String {
    format!("{SWITCH}/quota/{tenant}")
}

fn grant(client: &mut Connection, tenant: &str, grant: &Value) {
    let answer = client.request("PUT", &quota(tenant), grant.to_string().as_bytes());
    assert_eq!(answer.status, 200, "{}", answer.text());
}

fn push_as(client: &mut Connection, tenant: &str, queue: &str, payloads: &[String]) -> Response {
    let messages: Vec<_> = payloads.iter().map(|payload| json!({ "payload": payload })).collect();
    let body = json!({ "queue": queue, "messages": messages }).to_string();
    client.request_with("POST", "/api/v1/ephemeral/push", &[("x-queen-tenant", tenant)], body.as_bytes())
}

/// Waits until a push of the tenant is answered so on every shard.
fn until_push(broker: &Broker, tenant: &str, status: u16) {
    for _ in 0..16 {
        let mut client = broker.connect();
        eventually("the grant", || (push_as(&mut client, tenant, "probe", &[]).status == status).then_some(()));
    }
}

#[test]
fn a_tenant_needs_a_grant_and_the_default_one_does_not() {
    let mut broker = Broker::start(&[TENANTS]);
    let mut client = broker.connect();
    client.push("q", json!("default"));
    let refused = push_as(&mut client, ONE, "q", &[]);
    assert_eq!(refused.failure(), (403, "feature_gated".to_owned()));
    assert_eq!(client.get(&quota(ONE)).failure(), (404, "quota_not_found".to_owned()));
    grant(&mut client, ONE, &json!({}));
    let all = json!({ "tenant": ONE, "enabled": true, "maxBytes": null, "maxQueues": null, "maxMsgsPerSec": null });
    assert_eq!(client.get(&quota(ONE)).json(), all);
    until_push(&broker, ONE, 201);
    assert_eq!(push_as(&mut client, OTHER, "q", &[]).status, 403);
    grant(&mut client, ONE, &json!({ "enabled": false, "maxBytes": 5 }));
    until_push(&broker, ONE, 403);
    broker.kill9();
    broker.start_again();
    let mut client = broker.connect();
    assert_eq!(client.get(&quota(&ONE.to_uppercase())).json()["maxBytes"], 5);
    grant(&mut client, ONE, &json!({}));
    until_push(&broker, ONE, 201);
    let listed = client.get("/api/v1/system/ephemeral/quota").json();
    assert_eq!(listed, json!({ "grants": [all], "count": 1 }));
    let deleted = client.request("DELETE", &quota(ONE), b"").json();
    assert_eq!(deleted, json!({ "tenant": ONE, "deleted": true }));
    assert_eq!(client.request("DELETE", &quota(ONE), b"").json()["deleted"], false);
    until_push(&broker, ONE, 403);
}

#[test]
fn who_waits_for_a_tenant_whose_grant_goes_is_told() {
    let broker = Broker::start(&[TENANTS]);
    let mut client = broker.connect();
    for tenant in [ONE, OTHER] {
        grant(&mut client, tenant, &json!({}));
        until_push(&broker, tenant, 201);
    }
    let mut waiting: Vec<_> = (0..8).map(|_| broker.connect()).collect();
    for (n, one) in waiting.iter_mut().enumerate() {
        let tenant = if n == 0 { OTHER } else { ONE };
        let target = format!("/api/v1/ephemeral/pop?queue=q{n}&wait=true&timeout=250000&autoAck=true");
        one.send(request("GET", &target, &[("x-queen-tenant", tenant)], b""));
    }
    eventually("their waiting", || (broker.parked() == 8).then_some(()));
    client.request("DELETE", &quota(ONE), b"");
    for one in &mut waiting[1..] {
        assert_eq!(one.response().failure(), (403, "feature_gated".to_owned()));
    }
    assert_eq!(push_as(&mut client, OTHER, "q0", &["x".into()]).status, 201);
    assert_eq!(payloads(&waiting[0].popped()), [json!("x")], "another tenant's goes on");
}

#[test]
fn a_declaration_that_is_refused_is_not_kept() {
    let mut broker = Broker::start(&[TENANTS]);
    let mut client = broker.connect();
    grant(&mut client, ONE, &json!({ "maxQueues": 1 }));
    until_push(&broker, ONE, 201);
    let declare = |client: &mut Connection, queue: &str| {
        let body = json!({ "queue": queue, "options": {} }).to_string();
        client.request_with("POST", "/api/v1/ephemeral/configure", &[("x-queen-tenant", ONE)], body.as_bytes()).status
    };
    let taken = (0..20).filter(|n| declare(&mut client, &format!("q{n}")) == 201).count();
    assert_eq!(taken, 1);
    broker.kill9();
    broker.start_again();
    let mut client = broker.connect();
    let listing = client.request_with("GET", "/api/v1/ephemeral/queues", &[("x-queen-tenant", ONE)], b"").json();
    assert_eq!(listing["count"], 1, "{listing}");
}

#[test]
fn a_limit_counts_what_was_there_before_it() {
    let broker = Broker::start(&[TENANTS]);
    let mut client = broker.connect();
    grant(&mut client, ONE, &json!({}));
    until_push(&broker, ONE, 201);
    let large = "x".repeat(99_998);
    for n in 0..8 {
        assert_eq!(push_as(&mut client, ONE, &format!("q{n}"), std::slice::from_ref(&large)).status, 201);
    }
    // Gated in between, on both shards, wherever the queues are: so that no push is taken by a shard that has yet to
    // hear of the limit.
    let more = |n: usize| format!("more{n}");
    grant(&mut client, ONE, &json!({ "enabled": false }));
    for n in 0..16 {
        eventually("the gate", || (push_as(&mut client, ONE, &more(n), &["x".into()]).status == 403).then_some(()));
    }
    grant(&mut client, ONE, &json!({ "maxBytes": 850_000 }));
    for n in 0..16 {
        eventually("the limit", || {
            let (status, code) = push_as(&mut client, ONE, &more(n), std::slice::from_ref(&large)).failure();
            assert_eq!(status, 403, "800,000 of 850,000 bytes are there");
            (code == "ephemeral_quota_exceeded").then_some(())
        });
    }
}

#[test]
fn without_the_requirement_a_tenant_without_a_grant_has_no_limit() {
    let broker = Broker::start(&[TENANTS, ("QUEEN_EPHEMERAL_REQUIRE_GRANT", "false")]);
    let mut client = broker.connect();
    assert_eq!(push_as(&mut client, ONE, "q", &["x".into()]).status, 201);
    grant(&mut client, ONE, &json!({ "enabled": false }));
    until_push(&broker, ONE, 403);
}

#[test]
fn a_grant_that_makes_no_sense_is_refused() {
    let broker = Broker::start(&[TENANTS]);
    let mut client = broker.connect();
    for body in ["", "[]", r#"{"maxBytes":-1}"#, r#"{"maxQueues":0}"#, r#"{"maxMsgsPerSec":1.5}"#, r#"{"bytes":1}"#] {
        let answer = client.request("PUT", &quota(ONE), body.as_bytes());
        assert_eq!(answer.failure(), (400, "bad_request".to_owned()), "{body}");
    }
    for tenant in ["one", "%zz", "6f2c1f0a3a5e4a8c9d2e0123456789ab"] {
        assert_eq!(client.get(&quota(tenant)).failure(), (400, "bad_tenant".to_owned()), "{tenant}");
    }
    let default = client.request("PUT", &quota("00000000-0000-0000-0000-000000000001"), b"{}");
    assert_eq!(default.failure(), (400, "bad_request".to_owned()));
}

#[test]
fn a_tenants_queues_and_bytes_have_a_limit_over_all_shards() {
    let broker = Broker::start(&[TENANTS]);
    let mut client = broker.connect();
    grant(&mut client, ONE, &json!({ "maxQueues": 10, "maxBytes": 100_000 }));
    grant(&mut client, OTHER, &json!({}));
    until_push(&broker, ONE, 201);
    until_push(&broker, OTHER, 201);
    // A payload is its quotes too.
    let large = "x".repeat(9_998);
    let mut taken = 0;
    let refusal = loop {
        let answer = push_as(&mut client, ONE, &format!("q{taken}"), std::slice::from_ref(&large));
        match answer.status {
            201 => taken += 1,
            _ => break answer.failure(),
        }
    };
    assert_eq!(refusal, (403, "ephemeral_quota_exceeded".to_owned()));
    // Each of two shards may hold a chunk that it does not use.
    assert!((6..=10).contains(&taken), "{taken} of 10");
    assert_eq!(
        push_as(&mut client, OTHER, "q", std::slice::from_ref(&large)).status,
        201,
        "another tenant has its own"
    );
    // What is consumed can be used again.
    let pop = |client: &mut Connection, queue: &str| {
        let target = format!("/api/v1/ephemeral/pop?queue={queue}&batch=10&autoAck=true");
        client.request_with("GET", &target, &[("x-queen-tenant", ONE)], b"").json()["messages"].as_array().map(Vec::len)
    };
    for n in 0..taken {
        assert_eq!(pop(&mut client, &format!("q{n}")), Some(1));
    }
    eventually("room", || {
        (push_as(&mut client, ONE, "again", std::slice::from_ref(&large)).status == 201).then_some(())
    });

    grant(&mut client, ONE, &json!({ "maxQueues": 3 }));
    until_push(&broker, ONE, 201);
    let refusals = eventually("the limit of queues", || {
        let answers: Vec<_> = (0..8).map(|n| push_as(&mut client, ONE, &format!("more{n}"), &["x".into()])).collect();
        let refusals = answers.iter().filter(|answer| answer.status == 403).count();
        (refusals > 0).then_some(refusals)
    });
    assert!(refusals >= 5, "{refusals} of 8");
}

#[test]
fn a_tenants_rate_holds_over_all_shards() {
    let broker = Broker::start(&[TENANTS]);
    let mut clients: Vec<_> = (0..8).map(|_| broker.connect()).collect();
    grant(&mut clients[0], ONE, &json!({ "maxMsgsPerSec": 100 }));
    grant(&mut clients[0], OTHER, &json!({}));
    until_push(&broker, ONE, 201);
    until_push(&broker, OTHER, 201);
    let started = Instant::now();
    let mut taken = 0;
    let mut refusals = 0;
    for n in 0..1_000 {
        let answer = push_as(&mut clients[n % 8], ONE, &format!("q{}", n % 16), &["x".into()]);
        match answer.status {
            201 => taken += 1,
            _ => {
                assert_eq!(answer.failure(), (429, "rate_limited".to_owned()));
                assert!(answer.header("retry-after").is_some());
                refusals += 1;
            }
        }
    }
    let allowed = 200 + 100 * (started.elapsed() + Duration::from_secs(1)).as_secs();
    assert!(taken >= 200 && taken <= allowed, "{taken} messages, {allowed} allowed");
    assert!(refusals > 0, "a thousand pushes in {:?}", started.elapsed());
    // A call larger than the burst passes when nothing is owed, is paid for, and forgotten when the rate is another one.
    grant(&mut clients[0], ONE, &json!({ "maxMsgsPerSec": 1 }));
    until_push(&broker, ONE, 201);
    let many = vec!["x".to_owned(); 500];
    eventually("the new rate", || (push_as(&mut clients[0], ONE, "q", &many).status == 201).then_some(()));
    let owed = eventually("the debt", || {
        let answer = push_as(&mut clients[0], ONE, "q", &["x".into()]);
        (answer.status == 429).then(|| answer.header("retry-after").and_then(|after| after.parse::<u64>().ok()))
    });
    assert!(owed.is_some_and(|seconds| seconds > 60), "{owed:?}");
    grant(&mut clients[0], ONE, &json!({ "maxMsgsPerSec": 1000 }));
    eventually("another rate", || (push_as(&mut clients[0], ONE, "q", &["x".into()]).status == 201).then_some(()));
    assert_eq!(push_as(&mut clients[0], OTHER, "q", &["x".into()]).status, 201, "another tenant has its own");
}
