//! The durable routes from end to end: the real binary on SQLite, asked over plain sockets. A file per family of
//! routes, a test per rule.

#[path = "../common/mod.rs"]
mod common;

mod ack;
mod configure;
mod dead;
mod fetch;
mod lease;
mod names;
mod pop;
mod push;
mod resources;
mod start;
mod wait;

use common::{Connection, Response};
use serde_json::{Value, json};

/// A pop that waits longer than any test has patience for.
const WAIT: &str = "wait=true&timeout=300000";

/// Pushes one message for each payload to a partition of a queue, in one call; its results.
fn push_to(client: &mut Connection, queue: &str, partition: &str, payloads: &[Value]) -> Vec<Value> {
    let items: Vec<Value> =
        payloads.iter().map(|payload| json!({ "queue": queue, "partition": partition, "payload": payload })).collect();
    push_items(client, &json!(items))
}

/// Pushes to the default partition.
fn push(client: &mut Connection, queue: &str, payloads: &[Value]) -> Vec<Value> {
    push_to(client, queue, "Default", payloads)
}

/// Pushes these items, and insists on 201.
fn push_items(client: &mut Connection, items: &Value) -> Vec<Value> {
    let response = client.post("/api/v1/push", json!({ "items": items }).to_string());
    assert_eq!(response.status, 201, "{}", response.text());
    elements(&response.json())
}

fn elements(array: &Value) -> Vec<Value> {
    array.as_array().unwrap_or_else(|| panic!("an array, not {array}")).clone()
}

/// Pops from any partition of a queue.
fn pop(client: &mut Connection, queue: &str, query: &str) -> Option<Value> {
    pop_at(client, &format!("/api/v1/pop/queue/{queue}?{query}"))
}

/// Pops from a target; `None` for 204.
fn pop_at(client: &mut Connection, target: &str) -> Option<Value> {
    let response = client.get(target);
    popped(&response)
}

/// What a pop answered; `None` for 204, which has neither body nor length.
fn popped(response: &Response) -> Option<Value> {
    if response.status == 204 {
        assert_eq!((response.header("content-length"), response.header("content-type")), (None, None));
        return None;
    }
    assert_eq!(response.status, 200, "{}", response.text());
    let body = response.json();
    assert_eq!(body["success"], true, "{body}");
    Some(body)
}

/// The messages of a pop, none for 204.
fn messages(popped: &Option<Value>) -> Vec<Value> {
    popped.as_ref().map(|body| elements(&body["messages"])).unwrap_or_default()
}

/// The payloads of a pop's messages.
fn data(popped: &Option<Value>) -> Vec<Value> {
    messages(popped).iter().map(|message| message["data"].clone()).collect()
}

/// An ack of a delivered message, with its lease.
fn ack_of(message: &Value, status: &str) -> Value {
    let mut ack = leaseless(message, status);
    ack["leaseId"] = message["leaseId"].clone();
    ack
}

/// An ack that names no lease.
fn leaseless(message: &Value, status: &str) -> Value {
    json!({ "transactionId": message["transactionId"], "partitionId": message["partitionId"], "status": status })
}

/// Acks in one call, for a group; its results.
fn ack_all(client: &mut Connection, group: Option<&str>, acks: &[Value]) -> Vec<Value> {
    let mut body = json!({ "acknowledgments": acks });
    if let Some(group) = group {
        body["consumerGroup"] = json!(group);
    }
    let response = client.post("/api/v1/ack/batch", body.to_string());
    assert_eq!(response.status, 200, "{}", response.text());
    let results = elements(&response.json());
    assert_eq!(results.len(), acks.len());
    for (index, (result, ack)) in results.iter().zip(acks).enumerate() {
        assert_eq!(result["index"], index);
        assert_eq!(result["transactionId"], *ack.get("transactionId").unwrap_or(&json!("")), "{result}");
    }
    results
}

/// One ack on the route for one, for a group; its result.
fn ack_one(client: &mut Connection, group: Option<&str>, mut ack: Value) -> Value {
    if let Some(group) = group {
        ack["consumerGroup"] = json!(group);
    }
    let response = client.post("/api/v1/ack", ack.to_string());
    assert_eq!(response.status, 200, "{}", response.text());
    let results = elements(&response.json());
    assert_eq!(results.len(), 1);
    results[0].clone()
}

/// Insists that an ack was taken.
fn taken(result: &Value) {
    assert_eq!((&result["success"], &result["error"]), (&json!(true), &Value::Null), "{result}");
}

/// Insists that an ack was refused with a text that holds `word`.
fn refused(result: &Value, word: &str) {
    assert_eq!(result["success"], false, "{result}");
    assert!(result["error"].as_str().is_some_and(|error| error.contains(word)), "{word} in {result}");
}

/// Configures a queue, and insists on 200.
fn configure(client: &mut Connection, queue: &str, options: &Value) -> Value {
    let response = client.post("/api/v1/configure", json!({ "queue": queue, "options": options }).to_string());
    assert_eq!(response.status, 200, "{}", response.text());
    response.json()
}

/// GET of a resource that must be there.
fn read(client: &mut Connection, target: &str) -> Value {
    let response = client.get(target);
    assert_eq!(response.status, 200, "{}", response.text());
    response.json()
}

/// Dead letters of a queue, by its details.
fn dead_letters(client: &mut Connection, queue: &str) -> u64 {
    let details = read(client, &format!("/api/v1/resources/queues/{queue}"));
    details["totals"]["deadLetter"].as_u64().unwrap_or_else(|| panic!("deadLetter in {details}"))
}

/// Insists on a refusal with this status and code.
fn refusal(response: &Response, status: u16, code: &str) {
    let body = response.json();
    assert_eq!((response.status, &body["code"]), (status, &json!(code)), "{body}");
    assert!(body["error"].is_string(), "{body}");
}
