//! Everything has a limit, and reaching one has a stated answer: the limits that the operator sets for
//! queues, memory, rates, waiting pops and connections, each made small and then reached.

mod common;

use common::{Broker, Connection, eventually, request};
use serde_json::json;

#[test]
fn limits_are_refused_by_their_names_and_the_queue_lives_on() {
    let broker = Broker::start(&[
        ("QUEEN_EPHEMERAL_MAX_QUEUES", "4"),
        ("QUEEN_EPHEMERAL_MAX_PARTITIONS_PER_QUEUE", "2"),
        ("QUEEN_EPHEMERAL_MAX_GROUPS_PER_QUEUE", "2"),
        ("QUEEN_EPHEMERAL_QUEUE_MAX_LENGTH", "3"),
    ]);
    let mut client = broker.connect();
    let refused = |code: &str| (429, code.to_owned());

    client.push_all("q", &[json!(1), json!(2), json!(3)]);
    assert_eq!(client.try_push("q", &[json!(4)]).failure(), refused("queue_full"));

    for group in ["a", "b"] {
        assert_eq!(client.pop(&format!("queue=q&group={group}")).len(), 1);
    }
    assert_eq!(client.get("/api/v1/ephemeral/pop?queue=q&group=c").failure(), refused("group_limit"));

    client.push_to("p", "a", json!(1));
    client.push_to("p", "b", json!(1));
    let third = json!({ "queue": "p", "partition": "c", "messages": [{ "payload": 1 }] });
    assert_eq!(client.post("/api/v1/ephemeral/push", third.to_string()).failure(), refused("partition_limit"));

    // The budget of queues spans shards: it is reached somewhere, and what is there stays.
    let refusal =
        (0..100).map(|index| client.try_push(&format!("many-{index}"), &[json!(1)])).find(|r| r.status != 201);
    assert_eq!(refusal.expect("a limit of queues").failure(), refused("queue_limit"));
    assert!(broker.listing().len() <= 4);
    assert_eq!(client.pop("queue=q&batch=10&group=a").len(), 2);
}

#[test]
fn past_the_memory_of_the_node_a_push_is_503_until_there_is_room() {
    let broker =
        Broker::start(&[("QUEEN_EPHEMERAL_MAX_BYTES", "4194304"), ("QUEEN_EPHEMERAL_QUEUE_MAX_BYTES", "4194304")]);
    let mut client = broker.connect();
    let payload = [json!("x".repeat(100_000))];
    // Four queues: none of them comes near its own bound before the node is full.
    let refusal =
        (0..100).map(|n| client.try_push(&format!("q-{}", n % 4), &payload)).find(|response| response.status != 201);
    let refusal = refusal.expect("an end of the memory");
    assert_eq!(refusal.failure(), (503, "ephemeral_unavailable".to_owned()));
    for n in 0..4 {
        assert!(!client.pop(&format!("queue=q-{n}&batch=10000&autoAck=true")).is_empty());
    }
    client.push_all("q-0", &payload);
}

#[test]
fn past_the_number_of_waiting_pops_another_is_429_and_places_come_back() {
    let broker = Broker::start(&[("QUEEN_EPHEMERAL_MAX_PARKED", "20")]);
    let waiting: Vec<Connection> = (0..20)
        .map(|index| {
            let mut connection = broker.connect();
            connection.send_pop(&format!("queue=q-{index}&wait=true&timeout=300000"));
            connection
        })
        .collect();
    eventually("the parking of all", || (broker.parked() == 20).then_some(()));
    let target = "/api/v1/ephemeral/pop?queue=one-more&wait=true&timeout=300000";
    assert_eq!(broker.connect().get(target).failure(), (429, "parked_limit".to_owned()));
    drop(waiting);
    eventually("free places", || (broker.parked() == 0).then_some(()));
    let mut client = broker.connect();
    client.send_pop("queue=one-more&wait=true&timeout=300000&autoAck=true");
    broker.connect().push("one-more", json!(1));
    assert_eq!(client.popped().len(), 1);
}

#[test]
fn past_the_number_of_connections_another_is_told_so_and_closed() {
    let broker = Broker::start(&[("QUEEN_HTTP_MAX_CONNECTIONS", "20")]);
    let mut crowd: Vec<Connection> = Vec::new();
    let refusal = eventually("a full broker", || {
        let mut connection = broker.connect();
        let _ = connection.try_send(request("GET", "/health", &[], b""));
        match connection.try_response() {
            Ok(response) if response.status == 200 => {
                crowd.push(connection);
                None
            }
            refused => Some(refused),
        }
    });
    // A client that had sent its request before it was turned away may see the reset first.
    if let Ok(refusal) = refusal {
        assert_eq!(refusal.failure(), (503, "overloaded".to_owned()));
    }
    assert!(crowd.len() <= 20, "{} connections", crowd.len());
    assert!(crowd.iter_mut().all(|client| client.get("/health").status == 200), "those that are in are served");
    drop(crowd);
    eventually("room for others", || {
        let mut connection = broker.connect();
        connection.try_send(request("GET", "/health", &[], b"")).ok()?;
        connection.try_response().ok().filter(|response| response.status == 200)
    });
}

#[test]
fn past_its_rate_a_tenant_is_429_with_a_time_to_come_back() {
    let broker = Broker::start(&[("QUEEN_EPHEMERAL_RATE", "10"), ("QUEEN_EPHEMERAL_BURST", "20")]);
    let mut client = broker.connect();
    let refusal = (0..1_000).map(|_| client.try_push("q", &[json!(1)])).find(|response| response.status != 201);
    let refusal = refusal.expect("an end of the burst");
    assert_eq!(refusal.failure(), (429, "rate_limited".to_owned()));
    let after: u64 = refusal.header("retry-after").and_then(|s| s.parse().ok()).expect("Retry-After in seconds");
    assert!(after >= 1);
    eventually("service after a while", || (client.try_push("q", &[json!(1)]).status == 201).then_some(()));
}
