//! Owners that die, stand still, or cannot hand over what they hold.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    SECRET,
    cluster::{Seat, free_port, start},
    common::{Broker, Connection, payloads, unique},
    eventually,
    forwarding::{ROOMS, held, three, until_linked},
    handover::drain,
    members,
};

/// Members are missed soon.
const QUICK: [(&str, &str); 2] = [("QUEEN_SYNC_HEARTBEAT_MS", "50"), ("QUEEN_EPHEMERAL_MEMBER_TTL_MS", "1000")];

fn until_members(broker: &Broker, ids: &[&str]) {
    eventually("the members", || (members(broker) == ids).then_some(()));
}

/// Pushes until it is taken; a refusal has to say that nothing was done, or that it is not known: then it is not sent
/// again, and may be there.
fn push_until_taken(client: &mut Connection, queue: &str, room: &str, payload: impl Fn(usize) -> Value) -> Value {
    let mut tries = 0;
    eventually("a push that is taken", || {
        let payload = payload(tries);
        tries += 1;
        let body = json!({ "queue": queue, "partition": room, "messages": [{ "payload": payload }] });
        let answer = client.post("/api/v1/ephemeral/push", body.to_string());
        if answer.status == 201 {
            return Some(payload);
        }
        let (status, code) = answer.failure();
        assert_eq!(status, 503);
        assert!(["owner_moved", "ephemeral_forward_failed"].contains(&&*code), "{code}");
        None
    })
}

/// A room of the queue that a node owns.
fn room_of(broker: &Broker, through: &Broker, queue: &str) -> String {
    let mut client = through.connect();
    (0..100)
        .map(|number| format!("room-{number}"))
        .find(|room| {
            client.push_to(queue, room, json!("placed"));
            held(broker, queue).contains(room)
        })
        .expect("it owns some")
}

#[test]
fn a_node_that_starts_holds_requests_until_it_knows_the_members() {
    let settings = [("QUEEN_SYNC_SECRET", SECRET)];
    let broker = start(&Seat { id: "queen-1", port: free_port(), peers: &[free_port()] }, &settings);
    let queue = unique("early");
    let mut pop = broker.connect();
    pop.send_pop(&format!("queue={queue}&wait=true&timeout=60000&autoAck=true"));
    // Refused by nobody, although its peer never answers.
    broker.connect().push(&queue, json!("early"));
    assert_eq!(payloads(&pop.popped()), [json!("early")]);
}

#[test]
fn a_pop_that_waits_outlives_its_owner() {
    let mut cluster = three(&QUICK);
    let queue = unique("outlives");
    let room = room_of(&cluster.brokers[2], &cluster.brokers[0], &queue);
    drain(&mut cluster.brokers[0].connect(), &queue, &room);
    let mut waiting: Vec<_> = (0..2).map(|at| cluster.brokers[at].connect()).collect();
    for client in &mut waiting {
        client.send_pop(&format!("queue={queue}&partition={room}&wait=true&timeout=60000&autoAck=true"));
    }
    eventually("pops that wait", || (cluster.brokers[2].parked() == 2).then_some(()));
    cluster.brokers[2].kill9();
    let mut client = cluster.brokers[0].connect();
    let mut got = Vec::new();
    for (number, waiting) in waiting.iter_mut().enumerate() {
        let sent = push_until_taken(&mut client, &queue, &room, |_| json!(number));
        assert_eq!(sent, json!(number));
        if number == 1 {
            got.extend(payloads(&waiting.popped()));
        }
    }
    got.extend(payloads(&waiting[0].popped()));
    got.sort_by_key(Value::to_string);
    assert_eq!(got, [json!(0), json!(1)], "one for each");
    for at in [0, 1] {
        until_members(&cluster.brokers[at], &["queen-1", "queen-2"]);
    }
}

#[test]
fn an_owner_that_stands_still_for_a_while_comes_back_with_what_it_held_and_nothing_twice() {
    let cluster = three(&QUICK);
    let queue = unique("frozen");
    let room = room_of(&cluster.brokers[2], &cluster.brokers[0], &queue);
    let mut client = cluster.brokers[0].connect();
    drain(&mut client, &queue, &room);
    client.push_to(&queue, &room, json!("before"));
    cluster.brokers[2].signal(Signal::STOP);
    for at in [0, 1] {
        until_members(&cluster.brokers[at], &["queen-1", "queen-2"]);
    }
    let during = push_until_taken(&mut client, &queue, &room, |tries| json!(format!("during-{tries}")));
    std::thread::sleep(std::time::Duration::from_secs(10));
    cluster.brokers[2].signal(Signal::CONT);
    for broker in &cluster.brokers {
        until_members(broker, &["queen-1", "queen-2", "queen-3"]);
    }
    until_linked(&cluster.brokers);
    eventually("one owner", || {
        let owners = cluster.brokers.iter().filter(|broker| held(broker, &queue).contains(&room)).count();
        (owners == 1).then_some(())
    });
    // Both had it for a while, so that it is served at once, and what the other one had comes when it has come.
    let mut all = Vec::new();
    eventually("what both had", || {
        all.extend(drain(&mut client, &queue, &room));
        [&json!("before"), &during].iter().all(|expected| all.contains(expected)).then_some(())
    });
    let mut once = all.clone();
    once.sort_by_key(Value::to_string);
    once.dedup();
    assert_eq!(once.len(), all.len(), "nothing twice: {all:?}");
    // No pop is stuck.
    for broker in &cluster.brokers {
        let mut waiting = broker.connect();
        waiting.send_pop(&format!("queue={queue}&partition={room}&wait=true&timeout=60000&autoAck=true"));
        push_until_taken(&mut client, &queue, &room, |_| json!("after"));
        assert_eq!(payloads(&waiting.popped()), [json!("after")]);
    }
    assert_eq!(cluster.brokers.iter().map(Broker::parked).sum::<u64>(), 0);
}

#[test]
fn what_nobody_takes_over_is_said_and_meanwhile_peers_are_served_and_clients_are_not() {
    let settings = [("QUEEN_SHUTDOWN_GRACE_MS", "3000"), ("QUEEN_EPHEMERAL_MEMBER_TTL_MS", "60000")];
    let mut cluster = three(&settings);
    let queue = unique("dropped");
    for room in ROOMS {
        cluster.brokers[0].connect().push_to(&queue, room, json!(room));
    }
    let rooms = held(&cluster.brokers[0], &queue);
    for at in [1, 2] {
        cluster.brokers[at].signal(Signal::STOP);
    }
    let address = cluster.brokers[0].address();
    cluster.brokers[0].signal(Signal::TERM);
    // Once it stops, a client is closed without an answer.
    eventually("a client that is refused", || {
        let mut client = Connection::open(address);
        client.send("GET /health HTTP/1.1\r\nHost: h\r\n\r\n");
        client.is_closed_by_peer().then_some(())
    });
    let mut peer = Connection::open(address);
    peer.send("GET /internal/peer HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: queen-peer/1\r\n\r\n");
    assert_eq!(peer.response_head().status, 101);
    assert!(cluster.brokers[0].wait().success());
    for at in [1, 2] {
        cluster.brokers[at].signal(Signal::CONT);
    }
    let log = cluster.brokers[0].log();
    for room in &rooms {
        let names_it =
            |line: &str| line.contains("the partition's contents are dropped") && line.contains(room.as_str());
        assert!(log.lines().any(names_it), "{room} is named: {log}");
    }
    let said = log.lines().find(|line| line.contains("rings handed over")).expect("a line about it");
    assert!(rooms.is_empty() || !said.contains("lost=0"), "{said}");
}
