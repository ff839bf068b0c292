//! The tenant of a request: taken from `x-queen-tenant` where the operator says that a proxy sets
//! it, the default one otherwise.

mod common;

use common::{Broker, Connection, Response, request};
use serde_json::{Value, json};

const ON: (&str, &str) = ("QUEEN_TENANCY_HEADER", "true");
const ONE: &str = "6f2c1f0a-3a5e-4a8c-9d2e-0123456789ab";
const OTHER: &str = "7f2c1f0a-3a5e-4a8c-9d2e-0123456789ab";
const DEFAULT: &str = "00000000-0000-0000-0000-000000000001";

fn send_as(client: &mut Connection, tenant: &str, method: &str, target: &str, body: &Value) -> Response {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    client.send(request(method, target, &[("X-Queen-Tenant", tenant)], body.as_bytes()));
    client.response()
}

fn push_as(client: &mut Connection, tenant: &str, payload: &str) {
    let body = json!({ "queue": "q", "messages": [{ "payload": payload }] });
    let response = send_as(client, tenant, "POST", "/api/v1/ephemeral/push", &body);
    assert_eq!(response.status, 201, "{}", response.text());
}

fn pop_as(client: &mut Connection, tenant: &str) -> Value {
    let target = "/api/v1/ephemeral/pop?queue=q&batch=10&autoAck=true";
    let response = send_as(client, tenant, "GET", target, &Value::Null);
    assert_eq!(response.status, 200, "{}", response.text());
    response.json()["messages"].as_array().expect("messages").iter().map(|message| message["payload"].clone()).collect()
}

#[test]
fn tenants_see_their_own_queues_alone() {
    let broker = Broker::start(&[ON]);
    let mut client = broker.connect();
    push_as(&mut client, ONE, "one");
    push_as(&mut client, OTHER, "other");
    client.push("q", json!("default"));

    let listing = send_as(&mut client, ONE, "GET", "/api/v1/ephemeral/queues", &Value::Null).json();
    assert_eq!((&listing["count"], &listing["queues"][0]["depth"]), (&json!(1), &json!(1)), "{listing}");
    assert_eq!(pop_as(&mut client, OTHER), json!(["other"]));
    assert_eq!(pop_as(&mut client, ONE), json!(["one"]));
    assert_eq!(pop_as(&mut client, DEFAULT), json!(["default"]));
    assert_eq!(pop_as(&mut client, ONE), json!([]));
}

#[test]
fn a_push_wakes_only_a_waiting_pop_of_its_tenant() {
    let broker = Broker::start(&[ON]);
    let mut waiting = broker.connect();
    let target = "/api/v1/ephemeral/pop?queue=q&wait=true&timeout=300000&autoAck=true";
    waiting.send(request("GET", target, &[("x-queen-tenant", ONE)], b""));
    common::eventually("its parking", || (broker.parked() == 1).then_some(()));
    let mut client = broker.connect();
    push_as(&mut client, OTHER, "other");
    push_as(&mut client, ONE, "one");
    assert_eq!(waiting.popped()[0].payload, "one");
    assert_eq!(pop_as(&mut client, OTHER), json!(["other"]));
}

#[test]
fn declarations_are_each_tenants_own_and_survive_a_restart() {
    let mut broker = Broker::start(&[ON]);
    let mut client = broker.connect();
    for (tenant, length) in [(ONE, 11), (OTHER, 22)] {
        let body = json!({ "queue": "q", "options": { "maxLength": length } });
        assert_eq!(send_as(&mut client, tenant, "POST", "/api/v1/ephemeral/configure", &body).status, 201);
    }
    send_as(&mut client, OTHER, "DELETE", "/api/v1/ephemeral/queue/q", &Value::Null);
    broker.kill9();
    broker.start_again();
    let mut client = broker.connect();
    let listing = send_as(&mut client, ONE, "GET", "/api/v1/ephemeral/queues", &Value::Null).json();
    assert_eq!(listing["queues"][0]["options"]["maxLength"], 11, "{listing}");
    let listing = send_as(&mut client, OTHER, "GET", "/api/v1/ephemeral/queues", &Value::Null).json();
    assert_eq!(listing["count"], 0, "{listing}");
}

#[test]
fn an_id_of_another_tenant_acks_nothing() {
    let broker = Broker::start(&[ON]);
    let mut client = broker.connect();
    push_as(&mut client, ONE, "one");
    let popped = send_as(&mut client, ONE, "GET", "/api/v1/ephemeral/pop?queue=q", &Value::Null).json();
    let acks = json!({ "queue": "q", "acks": [{ "id": popped["messages"][0]["id"] }] });
    let outcome = |response: Response| response.json()["results"][0]["outcome"].clone();
    assert_eq!(outcome(send_as(&mut client, OTHER, "POST", "/api/v1/ephemeral/ack", &acks)), "unknown");
    assert_eq!(outcome(send_as(&mut client, ONE, "POST", "/api/v1/ephemeral/ack", &acks)), "acked");
}

#[test]
fn the_spelling_of_a_tenant_does_not_matter_and_a_blank_one_is_the_default() {
    let broker = Broker::start(&[ON]);
    let mut client = broker.connect();
    push_as(&mut client, ONE, "one");
    assert_eq!(pop_as(&mut client, &format!("  {}  ", ONE.to_uppercase())), json!(["one"]));
    push_as(&mut client, "", "default");
    assert_eq!(pop_as(&mut client, DEFAULT), json!(["default"]));
}

#[test]
fn what_is_no_uuid_is_refused_on_the_api_and_nowhere_else() {
    let broker = Broker::start(&[ON]);
    let mut client = broker.connect();
    for bad in [
        "one",
        "6f2c1f0a3a5e4a8c9d2e0123456789ab",
        "{6f2c1f0a-3a5e-4a8c-9d2e-0123456789ab}",
        "6f2c1f0a-3a5e-4a8c-9d2e-0123456789ag",
    ] {
        for target in ["/api/v1/ephemeral/pop?queue=q", "/api/v1/ephemeral/queues"] {
            let response = send_as(&mut client, bad, "GET", target, &Value::Null);
            assert_eq!(response.failure(), (400, "bad_tenant".to_owned()), "{bad}");
        }
        for target in ["/health", "/status", "/metrics", "/metrics/prometheus"] {
            assert_eq!(send_as(&mut client, bad, "GET", target, &Value::Null).status, 200, "{bad} at {target}");
        }
    }
    assert!(broker.listing().is_empty());
}

#[test]
fn without_the_setting_the_header_is_ignored() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    push_as(&mut client, ONE, "first");
    push_as(&mut client, "no uuid", "second");
    assert_eq!(pop_as(&mut client, OTHER), json!(["first", "second"]));
}
