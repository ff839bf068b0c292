//! Who waits at one broker is served when another is pushed to.

use std::time::{Duration, Instant};

use queen_wire::mesh::{Candidate, Message, Place};
use serde_json::json;

use crate::{
    SECRET, WAIT,
    cluster::{Cluster, Durable as _, Seat, database, free_port, start},
    common::{Broker, unique},
    eventually,
    peer::Peer,
    until_stats,
};

/// A pop that was parked a while ago is looked for again only after a while.
const PARKED_FOR: Duration = Duration::from_millis(1_200);

/// From a push's answer at one broker to the answer of a pop that waits at another.
fn delay(pushed_to: &Broker, waits_at: &Broker) -> Duration {
    let queue = unique("woken");
    let (mut producer, mut consumer) = (pushed_to.connect(), waits_at.connect());
    assert_eq!(producer.durable_push(&queue, json!("first")).status, 201);
    consumer.send_durable_pop(&queue, WAIT);
    assert_eq!(consumer.durable_popped(), [json!("first")]);
    consumer.send_durable_pop(&queue, WAIT);
    eventually("a pop that waits", || (waits_at.parked() == 1).then_some(()));
    std::thread::sleep(PARKED_FOR);
    assert_eq!(producer.durable_push(&queue, json!("second")).status, 201);
    let pushed = Instant::now();
    assert_eq!(consumer.durable_popped(), [json!("second")]);
    pushed.elapsed()
}

#[test]
fn a_pop_that_waits_at_one_broker_is_served_at_once_when_another_is_pushed_to() {
    let cluster = Cluster::start(3, &[("DATABASE_URL", &database()), ("POP_WAIT_MAX_INTERVAL_MS", "60000")]);
    let [one, other, _] = &cluster.brokers[..] else { unreachable!("three") };
    let mut delays: Vec<_> = (0..5).map(|_| delay(one, other)).collect();
    delays.sort_unstable();
    // Without the mesh the next look is some hundred milliseconds away. 5 ms are wanted: perf/mesh measures that.
    assert!(delays[2] < Duration::from_millis(50), "{delays:?}");
}

#[test]
fn without_the_mesh_it_is_served_when_the_store_is_looked_at_again() {
    let database = database();
    let settings = [("DATABASE_URL", &*database), ("QUEEN_SYNC_ENABLED", "0"), ("POP_WAIT_MAX_INTERVAL_MS", "2000")];
    let cluster = Cluster::start_apart(2, &settings);
    delay(&cluster.brokers[0], &cluster.brokers[1]);
    let stats = crate::stats(&cluster.brokers[0]);
    assert_eq!((&stats["enabled"], &stats["reason"]), (&json!(false), &json!("sync_disabled")));
}

#[test]
fn what_is_set_free_at_one_broker_is_given_to_who_waits_at_another() {
    let cluster = Cluster::start(2, &[("DATABASE_URL", &database()), ("POP_WAIT_MAX_INTERVAL_MS", "60000")]);
    let [one, other] = &cluster.brokers[..] else { unreachable!("two") };
    let queue = unique("freed");
    let mut holder = one.connect();
    assert_eq!(holder.durable_push(&queue, json!("held")).status, 201);
    let popped = holder.get(&format!("/api/v1/pop/queue/{queue}")).json();
    let mut waiter = other.connect();
    waiter.send_durable_pop(&queue, WAIT);
    eventually("a pop that waits", || (other.parked() == 1).then_some(()));
    std::thread::sleep(PARKED_FOR);
    let message = &popped["messages"][0];
    let ack = json!({
        "transactionId": message["transactionId"], "partitionId": message["partitionId"],
        "leaseId": popped["leaseId"], "status": "retry",
    });
    assert_eq!(holder.post("/api/v1/ack", ack.to_string()).status, 200);
    assert_eq!(waiter.durable_popped(), [json!("held")]);
    let frames = "queen_mesh_frames_received_total{server_id=\"queen-1\",type=\"available\"}";
    assert!(other.counter(frames) >= 2, "the push and the ack were told");
}

/// A broker with tenants that has no peers but one made by hand, and another on the same store that tells nobody.
fn told_by_hand(settings: &[(&str, &str)]) -> (Broker, Broker, Peer) {
    let database = database();
    let port = free_port();
    let store = [("DATABASE_URL", &*database), ("POP_WAIT_MAX_INTERVAL_MS", "60000"), ("QUEEN_TENANCY_HEADER", "1")];
    let told = start(&Seat { id: "told", port, peers: &[free_port()] }, &[&store[..], settings].concat());
    let silent = Broker::start(&store);
    let peer = Peer::open(port, "by-hand");
    until_stats(&told, "the peer", |stats| stats["servers_alive"] == 1);
    (told, silent, peer)
}

#[test]
fn a_wake_without_a_tenant_is_for_every_tenant_that_has_such_a_queue() {
    let (told, silent, mut peer) = told_by_hand(&[]);
    let tenants = ["6f2c1f0a-3a5e-4a8c-9d2e-0123456789ab", "7f2c1f0a-3a5e-4a8c-9d2e-0123456789ab"];
    let queue = unique("of-several");
    let push = |tenant: &str, payload: &str| {
        let body = json!({ "items": [{ "queue": queue, "payload": payload }] }).to_string();
        let answer =
            silent.connect().request_with("POST", "/api/v1/push", &[("x-queen-tenant", tenant)], body.as_bytes());
        assert_eq!(answer.status, 201);
    };
    let mut waiting: Vec<_> = tenants.iter().map(|_| told.connect()).collect();
    for (client, tenant) in waiting.iter_mut().zip(tenants) {
        push(tenant, "first");
        let target = format!("/api/v1/pop/queue/{queue}?{WAIT}");
        for _ in 0..2 {
            client.send(crate::common::request("GET", &target, &[("x-queen-tenant", tenant)], b""));
        }
        assert_eq!(client.durable_popped(), [json!("first")]);
    }
    eventually("two that wait", || (told.parked() == 2).then_some(()));
    std::thread::sleep(PARKED_FOR);
    tenants.iter().for_each(|tenant| push(tenant, "second"));
    let place = Place { queue: queue.clone(), partition: Some("Default".to_owned()), tenant: None };
    // One frame does for both.
    peer.say(&Message::Available(vec![place]));
    for client in &mut waiting {
        assert_eq!(client.durable_popped(), [json!("second")]);
    }
}

#[test]
fn a_batch_and_a_hint_with_a_group_are_understood_and_what_is_not_known_is_passed_over() {
    let (told, silent, mut peer) = told_by_hand(&[]);
    let queue = unique("hinted");
    assert_eq!(silent.connect().durable_push(&queue, json!("first")).status, 201);
    let mut client = told.connect();
    client.send_durable_pop(&queue, WAIT);
    assert_eq!(client.durable_popped(), [json!("first")]);
    client.send_durable_pop(&queue, WAIT);
    eventually("one that waits", || (told.parked() == 1).then_some(()));
    std::thread::sleep(PARKED_FOR);
    assert_eq!(silent.connect().durable_push(&queue, json!("second")).status, 201);
    peer.frame(&(99, b"of a newer broker".to_vec()));
    peer.frame(&(1, b"no JSON at all".to_vec()));
    let place = |queue: &str| Place { queue: queue.to_owned(), partition: None, tenant: None };
    peer.say(&Message::Dirty(vec![Candidate { place: place("another"), group: Some("g".to_owned()) }]));
    peer.say(&Message::Available(vec![place("another"), place(&queue)]));
    assert_eq!(client.durable_popped(), [json!("second")]);
    let received = |kind: &str| {
        told.counter(&format!("queen_mesh_frames_received_total{{server_id=\"by-hand\",type=\"{kind}\"}}"))
    };
    assert_eq!((received("unknown"), received("dirty"), received("available")), (1, 1, 1));
    crate::until_fault(&told, "malformed");
}

#[test]
fn a_broker_whose_store_is_its_own_takes_hints_for_what_they_are() {
    let port = free_port();
    let mut broker = start(&Seat { id: "alone", port, peers: &[free_port()] }, &[("QUEEN_SYNC_SECRET", SECRET)]);
    let mut peer = Peer::proved(port, SECRET, "by-hand", 1);
    let place = Place { queue: "q".to_owned(), partition: None, tenant: None };
    peer.say(&Message::Available(vec![place.clone(); 3]));
    peer.say(&Message::Maintenance(true));
    until_stats(&broker, "the frames", |stats| stats["messages_received"] == 2);
    let mut client = broker.connect();
    assert_eq!(client.durable_push("q", json!(1)).status, 201, "its switches are its own");
    crate::assert_unbothered(&mut broker);
}
