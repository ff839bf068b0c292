//! Brokers that find each other, end to end: real processes on the loopback device, hand-made peers that do what they
//! should not, and a proxy between brokers that loses, changes and repeats bytes.

#[path = "../common/mod.rs"]
mod common;

mod administration;
mod cluster;
mod declarations;
#[cfg(feature = "engine-peer")]
mod engine;
mod example;
mod failover;
mod forwarding;
mod handover;
mod handshakes;
mod loss;
mod peer;
mod proxy;
mod slow;
mod status;
mod stops;
mod switches;
mod wakes;

use common::{Broker, eventually, unique};
use serde_json::{Value, json};

const SECRET: &str = "what all of them know";

/// A pop that waits longer than any test has patience for.
const WAIT: &str = "wait=true&timeout=300000&autoAck=true";

/// How the mesh stands, as a broker sees it.
fn stats(broker: &Broker) -> Value {
    broker.connect().get("/internal/api/shared-state/stats").json()
}

/// Waits until a broker's statistics are such, and gives them.
fn until_stats(broker: &Broker, what: &str, mut holds: impl FnMut(&Value) -> bool) -> Value {
    eventually(what, || Some(stats(broker)).filter(|stats| holds(stats)))
}

/// Waits until so many handshakes have failed for this reason, or more.
fn until_failures(broker: &Broker, reason: &str, least: u64) {
    until_stats(broker, reason, |stats| stats["handshake_failures_by_reason"][reason].as_u64() >= Some(least));
}

/// Waits until a fault of this kind was counted.
fn until_fault(broker: &Broker, reason: &str) {
    until_stats(broker, reason, |stats| stats["faults_by_reason"][reason].as_u64() >= Some(1));
}

/// The ids of the members that a broker goes by, on every shard.
fn members(broker: &Broker) -> Vec<String> {
    let status = broker.connect().get("/status").json();
    let version = &status["mesh"]["membersVersion"];
    let shards = status["shards"].as_array().expect("shards").iter().filter(|shard| shard["role"] == "data");
    if !shards.into_iter().all(|shard| shard["membersVersion"] == *version) {
        return Vec::new();
    }
    let members = status["mesh"]["members"].as_array().expect("members");
    members.iter().map(|member| member["id"].as_str().expect("an id").to_owned()).collect()
}

/// A broker serves its clients, on every shard, as if there were no peers.
fn assert_unbothered(broker: &mut Broker) {
    for _ in 0..4 {
        let mut client = broker.connect();
        let queue = unique("bystander");
        client.push(&queue, json!(1));
        assert_eq!(client.pop(&format!("queue={queue}&autoAck=true"))[0].payload, 1);
    }
    broker.assert_alive();
}
