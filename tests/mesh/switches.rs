//! What operators switch and configure at one broker follows at the others.

use queen_wire::mesh::Message;
use serde_json::{Value, json};

use crate::{
    WAIT,
    cluster::{Cluster, Durable as _, Seat, database, free_port, start},
    common::{Broker, unique},
    eventually,
    peer::Peer,
};

const PUSHES: &str = "/api/v1/system/maintenance";
const POPS: &str = "/api/v1/system/maintenance/pop";

fn put(broker: &Broker, switch: &str, on: bool) -> Value {
    let answer = broker.connect().post(switch, json!({ "enabled": on }).to_string());
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

/// Waits until every shard takes durable pushes, or refuses them.
fn until_pushes(broker: &Broker, status: u16) {
    for _ in 0..8 {
        let mut client = broker.connect();
        eventually("the switch", || (client.durable_push("switched", json!(1)).status == status).then_some(()));
    }
}

#[test]
fn maintenance_follows_at_every_broker_and_ends_everywhere() {
    let cluster = Cluster::start(3, &[("DATABASE_URL", &database())]);
    let [one, other, third] = &cluster.brokers[..] else { unreachable!("three") };
    assert_eq!(put(one, PUSHES, true)["maintenanceMode"], true);
    for broker in [one, other, third] {
        until_pushes(broker, 503);
        let refused = broker.connect().durable_push("switched", json!(1));
        assert_eq!(refused.failure(), (503, "maintenance".to_owned()));
        assert!(refused.header("retry-after").is_some());
        let state = broker.connect().get(PUSHES).json();
        assert_eq!((&state["maintenanceMode"], &state["popMaintenanceMode"]), (&json!(true), &json!(false)));
        assert_eq!(broker.counter("queen_maintenance_mode_enabled"), 1);
        assert_eq!(crate::stats(broker)["maintenance_mode"], true);
        broker.connect().push("ephemeral-goes-on", json!(1));
    }
    // Put back at another one.
    assert_eq!(put(third, PUSHES, false)["maintenanceMode"], false);
    for broker in [one, other, third] {
        until_pushes(broker, 201);
    }
}

#[test]
fn opposite_switches_at_two_brokers_come_to_rest_at_what_the_store_has() {
    let cluster = Cluster::start(3, &[("DATABASE_URL", &database())]);
    let [one, other, third] = &cluster.brokers[..] else { unreachable!("three") };
    for round in 0..10 {
        std::thread::scope(|scope| {
            scope.spawn(|| put(one, PUSHES, round % 2 == 0));
            scope.spawn(|| put(other, PUSHES, round % 2 == 1));
        });
    }
    let everywhere = || [one, other, third].map(|broker| crate::stats(broker)["maintenance_mode"] == true);
    eventually("the same everywhere", || (everywhere() == [everywhere()[0]; 3]).then_some(()));
    // Where it stays: nobody goes on telling others what they do not know to be over.
    let heard = || [one, other, third].map(|broker| broker.log().matches("push maintenance: durable").count());
    eventually("an end of it", || {
        let before = heard();
        std::thread::sleep(std::time::Duration::from_millis(200));
        (heard() == before).then_some(())
    });
    let last = everywhere()[0];
    assert_eq!(everywhere(), [last; 3]);
    assert_eq!(put(third, PUSHES, !last)["maintenanceMode"], !last);
    eventually("the last word everywhere", || (everywhere() == [!last; 3]).then_some(()));
}

#[test]
fn pop_maintenance_answers_who_waits_at_every_broker_and_loses_nothing() {
    let cluster = Cluster::start(2, &[("DATABASE_URL", &database())]);
    let [one, other] = &cluster.brokers[..] else { unreachable!("two") };
    let queue = unique("paused");
    let mut waiting: Vec<_> = [one, other].iter().map(|broker| broker.connect()).collect();
    waiting.iter_mut().for_each(|client| client.send_durable_pop(&queue, WAIT));
    for broker in [one, other] {
        eventually("one that waits", || (broker.parked() == 1).then_some(()));
    }
    assert_eq!(put(one, POPS, true)["popMaintenanceMode"], true);
    for client in &mut waiting {
        assert_eq!(client.response().status, 204, "who waits is told at once");
    }
    assert_eq!(one.connect().durable_push(&queue, json!("kept")).status, 201, "pushes go on");
    for broker in [one, other] {
        let mut client = broker.connect();
        for query in ["", WAIT] {
            assert_eq!(client.get(&format!("/api/v1/pop/queue/{queue}?{query}")).status, 204);
        }
        let conflating = client.get(&format!("/api/v1/pop/queue/{queue}?conflation=true&consumerGroup=g"));
        let paused = json!({ "messages": [], "paused": true, "conflation": true });
        assert_eq!((conflating.status, conflating.json()), (200, paused));
        assert_eq!(client.get(&format!("/api/v1/pop/queue/{queue}?batch=x")).status, 400, "first of all");
        broker.connect().push("ephemeral-goes-on", json!(1));
        assert_eq!(broker.connect().pop("queue=ephemeral-goes-on&autoAck=true").len(), 1, "durable ones alone");
    }
    put(other, POPS, false);
    let mut client = one.connect();
    client.send_durable_pop(&queue, WAIT);
    let popped = eventually("the message", || match client.durable_popped() {
        popped if popped.is_empty() => {
            client.send_durable_pop(&queue, WAIT);
            None
        }
        popped => Some(popped),
    });
    assert_eq!(popped, [json!("kept")]);
}

#[test]
fn a_queue_that_is_configured_at_one_broker_is_so_at_the_others() {
    let cluster = Cluster::start(2, &[("DATABASE_URL", &database())]);
    let [one, other] = &cluster.brokers[..] else { unreachable!("two") };
    let queue = unique("configured");
    let mut client = other.connect();
    // The other one knows the queue and its options: a message can be popped as soon as it is pushed.
    let mut push_and_pop = || {
        assert_eq!(client.durable_push(&queue, json!(1)).status, 201);
        client.get(&format!("/api/v1/pop/queue/{queue}?autoAck=true")).status
    };
    assert_eq!((push_and_pop(), push_and_pop()), (200, 200));
    let configure = json!({ "queue": queue, "options": { "delayedProcessing": 3600 } }).to_string();
    assert_eq!(one.connect().post("/api/v1/configure", configure).status, 200);
    // A pop that finds something has no reason to look at the store.
    eventually("the delay", || (push_and_pop() == 204).then_some(()));
    let frames = "queen_mesh_frames_received_total{server_id=\"queen-1\",type=\"config\"}";
    assert_eq!(other.counter(frames), 1);
    assert_eq!(one.connect().request("DELETE", &format!("/api/v1/resources/queues/{queue}"), b"").status, 200);
    eventually("the next of that name", || (push_and_pop() == 200).then_some(()));
}

#[test]
fn what_nobody_was_told_of_is_found_when_the_store_is_read_again() {
    let database = database();
    let settings =
        [("DATABASE_URL", &*database), ("QUEEN_SYNC_ENABLED", "0"), ("QUEEN_CACHE_REFRESH_INTERVAL_MS", "200")];
    let cluster = Cluster::start_apart(2, &settings);
    let [one, other] = &cluster.brokers[..] else { unreachable!("two") };
    put(one, PUSHES, true);
    until_pushes(other, 503);
    put(one, PUSHES, false);
    until_pushes(other, 201);
}

#[test]
fn a_switch_survives_a_restart_and_a_body_that_is_none_is_refused() {
    let mut broker = Broker::start(&[]);
    for (switch, path) in [("maintenanceMode", PUSHES), ("popMaintenanceMode", POPS)] {
        assert_eq!(broker.connect().get(path).json()[switch], false);
        assert_eq!(put(&broker, path, true)[switch], true);
        for body in ["", "{}", r#"{"enabled":"yes"}"#, r#"{"enabled":null}"#, "[]"] {
            let answer = broker.connect().post(path, body);
            assert_eq!(answer.failure(), (400, "bad_request".to_owned()), "{body}");
            assert!(!body.starts_with('{') || answer.text().contains("enabled"), "{}", answer.text());
        }
    }
    broker.kill9();
    broker.start_again();
    assert_eq!(broker.connect().durable_push("q", json!(1)).failure(), (503, "maintenance".to_owned()));
    assert_eq!(broker.connect().get("/api/v1/pop/queue/q").status, 204);
    let state = broker.connect().get("/api/v1/system/shared-state").json();
    let expected = json!({
        "enabled": false, "reason": "single_node_segments_broker",
        "maintenance_mode": true, "pop_maintenance_mode": true,
    });
    assert_eq!(state, expected);
}

#[test]
fn a_peer_that_says_what_the_store_does_not_is_not_believed_for_long() {
    let (database, port) = (database(), free_port());
    let broker = start(&Seat { id: "told", port, peers: &[free_port()] }, &[("DATABASE_URL", &database)]);
    let mut peer = Peer::open(port, "by-hand");
    peer.say(&Message::Maintenance(true));
    peer.say(&Message::PopMaintenance(true));
    eventually("the word of it", || broker.log().contains("pop maintenance").then_some(()));
    // It has the store asked, which has the last word.
    until_pushes(&broker, 201);
    let state = broker.connect().get(PUSHES).json();
    assert_eq!((&state["maintenanceMode"], &state["popMaintenanceMode"]), (&json!(false), &json!(false)));
}
