//! What a node holds goes to the next owners when it stops, and comes back when it does.

use serde_json::{Value, json};

use crate::{
    cluster::Cluster,
    common::{Broker, Connection, Response, SECRET as SIGNING_SECRET, in_s, payloads, token, unique},
    eventually,
    forwarding::{ROOMS, held, three},
    members,
};

/// Messages of each room.
const MESSAGES: u64 = 50;

fn until_members(brokers: &[&Broker], ids: &[&str]) {
    for broker in brokers {
        eventually("the members", || (members(broker) == ids).then_some(()));
    }
}

/// Everything that a room holds, taken through one node, in its order.
fn drain(broker: &Broker, queue: &str, room: &str) -> Vec<Value> {
    let mut client = broker.connect();
    let mut all = Vec::new();
    loop {
        let popped = client.pop(&format!("queue={queue}&partition={room}&batch=1000&autoAck=true"));
        if popped.is_empty() {
            return all;
        }
        all.extend(payloads(&popped));
    }
}

fn fill(cluster: &Cluster, queue: &str) {
    let mut client = cluster.brokers[0].connect();
    for room in ROOMS {
        for n in 0..MESSAGES {
            client.push_to(queue, room, json!(n));
        }
    }
}

#[test]
fn a_node_that_stops_hands_over_what_it_holds_and_gets_its_share_when_it_is_back() {
    let mut cluster = three(&[]);
    let queue = unique("moves");
    fill(&cluster, &queue);
    let moves = held(&cluster.brokers[2], &queue);
    // A lease of one that moves comes back as a redelivery, and an ack of it is too late.
    let leased = moves.first().map(|room| {
        let mut client = cluster.brokers[0].connect();
        let popped = client.pop(&format!("queue={queue}&partition={room}&group=g"));
        (room.clone(), popped[0].id.clone())
    });
    let exit = cluster.brokers[2].sigterm();
    assert!(exit.success(), "{exit}");
    let log = cluster.brokers[2].log();
    let said = log.lines().find(|line| line.contains("rings handed over")).expect("a line about it").to_owned();
    assert!(said.contains("lost=0"), "{said}");
    assert_ne!(moves, [""; 0], "the node that stops held something");
    until_members(&[&cluster.brokers[0], &cluster.brokers[1]], &["queen-1", "queen-2"]);
    if let Some((room, id)) = leased {
        let mut client = cluster.brokers[1].connect();
        let again = client.pop(&format!("queue={queue}&partition={room}&group=g"));
        assert_eq!((again[0].attempts, &again[0].payload), (2, &json!(0)));
        assert_eq!(client.ack(&queue, Some("g"), &[&id], "completed"), ["stale"]);
    }
    let held_by_two: usize = cluster.brokers[..2].iter().map(|broker| held(broker, &queue).len()).sum();
    assert_eq!(held_by_two, ROOMS.len());
    cluster.brokers[2].start_again();
    let all: Vec<_> = cluster.brokers.iter().collect();
    until_members(&all, &["queen-1", "queen-2", "queen-3"]);
    eventually("its share", || (held(&cluster.brokers[2], &queue) == moves).then_some(()));
    let expected: Vec<_> = (0..MESSAGES).map(|n| json!(n)).collect();
    for (number, room) in ROOMS.into_iter().enumerate() {
        assert_eq!(drain(&cluster.brokers[number % 3], &queue, room), expected, "{room}, whole and in order");
    }
}

#[test]
fn a_pop_that_waits_is_asked_again_where_its_partition_goes() {
    let mut cluster = three(&[]);
    let queue = unique("follows");
    for with_partition in [true, false] {
        let pop = |room: &str| {
            let partition = if with_partition { format!("&partition={room}") } else { String::new() };
            format!("queue={queue}-{room}{partition}&wait=true&timeout=60000&autoAck=true")
        };
        // Through the two nodes that stay.
        let mut waiting: Vec<_> = (0..ROOMS.len()).map(|number| cluster.brokers[number % 2].connect()).collect();
        for (client, room) in waiting.iter_mut().zip(ROOMS) {
            client.send_pop(&pop(room));
        }
        let parked = |cluster: &Cluster, of: &[usize]| of.iter().map(|&at| cluster.brokers[at].parked()).sum::<u64>();
        eventually("pops that wait", || (parked(&cluster, &[0, 1, 2]) == ROOMS.len() as u64).then_some(()));
        assert!(cluster.brokers[2].sigterm().success());
        eventually("pops that wait elsewhere", || (parked(&cluster, &[0, 1]) == ROOMS.len() as u64).then_some(()));
        cluster.brokers[2].start_again();
        let all: Vec<_> = cluster.brokers.iter().collect();
        until_members(&all, &["queen-1", "queen-2", "queen-3"]);
        crate::forwarding::until_linked(&cluster.brokers);
        let mut client = cluster.brokers[2].connect();
        for room in ROOMS {
            let partition = if with_partition { room } else { "Default" };
            client.push_to(&format!("{queue}-{room}"), partition, json!(room));
        }
        for (client, room) in waiting.iter_mut().zip(ROOMS) {
            assert_eq!(payloads(&client.popped()), [json!(room)]);
        }
    }
}

#[test]
fn a_rolling_restart_under_load_loses_nothing() {
    let mut cluster = three(&[]);
    let queue = unique("rolls");
    let address = cluster.brokers[0].address();
    // Through a node that stays up; the others go one after the other, and come back.
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let producer = {
        let (queue, stop) = (queue.clone(), std::sync::Arc::clone(&stop));
        std::thread::spawn(move || {
            let mut client = crate::common::Connection::open(address);
            let mut sent = [0_u64; ROOMS.len()];
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                for (room, sent) in ROOMS.iter().zip(&mut sent) {
                    let body = json!({ "queue": queue, "partition": room, "messages": [{ "payload": *sent }] });
                    let answer = client.post("/api/v1/ephemeral/push", body.to_string());
                    match answer.status {
                        201 => *sent += 1,
                        // Nothing was done, or it is not known: only the former may be sent again unchanged.
                        503 => {
                            let code = answer.code();
                            let nothing_done =
                                ["owner_moved", "ephemeral_forward_failed", "ephemeral_unavailable", "overloaded"];
                            assert!(nothing_done.contains(&&*code), "{}", answer.text());
                            assert!(!answer.text().contains("may have been done"), "{}", answer.text());
                        }
                        _ => panic!("{answer:?}"),
                    }
                }
            }
            sent
        })
    };
    for index in [1, 2] {
        let exit = cluster.brokers[index].sigterm();
        assert!(exit.success(), "{exit}");
        cluster.brokers[index].start_again();
        let all: Vec<_> = cluster.brokers.iter().collect();
        until_members(&all, &["queen-1", "queen-2", "queen-3"]);
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    let sent = producer.join().expect("the producer");
    assert!(sent.iter().all(|&sent| sent > 0), "{sent:?}");
    eventually("the end of hand-overs", || {
        let rooms: usize = cluster.brokers.iter().map(|broker| held(broker, &queue).len()).sum();
        (rooms == ROOMS.len()).then_some(())
    });
    for (number, (room, sent)) in ROOMS.into_iter().zip(sent).enumerate() {
        let expected: Vec<_> = (0..sent).map(|n| json!(n)).collect();
        let found = drain(&cluster.brokers[number % 3], &queue, room);
        assert_eq!(found, expected, "{room}: nothing lost, nothing twice, in order");
    }
}

/// Rooms of the owner that stops under load: enough that it has some.
const LOADED_ROOMS: usize = 12;

/// A client that says who it is with every request.
struct Caller {
    connection: Connection,
    headers: Vec<(&'static str, String)>,
}

impl Caller {
    fn ask(&mut self, method: &str, target: &str, body: &str) -> Response {
        let headers: Vec<_> = self.headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        self.connection.request_with(method, target, &headers, body.as_bytes())
    }

    /// Pushes its next number to each room; counts those that were taken.
    fn push_to_all(&mut self, queue: &str, sent: &mut [u64; LOADED_ROOMS]) {
        for (room, sent) in sent.iter_mut().enumerate() {
            let room = format!("room-{room}");
            let body = json!({ "queue": queue, "partition": room, "messages": [{ "payload": *sent }] });
            let answer = self.ask("POST", "/api/v1/ephemeral/push", &body.to_string());
            match answer.status {
                201 => *sent += 1,
                503 => assert!(!answer.text().contains("may have been done"), "{}", answer.text()),
                _ => panic!("{answer:?}"),
            }
        }
    }

    /// What a pop in the group `g` gets: payload and attempts of each message.
    fn pop(&mut self, queue: &str, room: usize, more: &str) -> Vec<(Value, u64)> {
        let target = format!("/api/v1/ephemeral/pop?queue={queue}&partition=room-{room}&group=g{more}");
        let popped = eventually("a pop that is served", || {
            let answer = self.ask("GET", &target, "");
            (answer.status == 200).then(|| answer.json())
        });
        let of = |message: &Value| (message["payload"].clone(), message["attempts"].as_u64().expect("attempts"));
        popped["messages"].as_array().expect("messages").iter().map(of).collect()
    }
}

/// An owner stops while messages are pushed to what it owns and some are leased.
fn an_owner_stops_under_load(settings: &[(&str, &str)], headers: &[(&'static str, String)]) {
    let mut cluster = Cluster::start(3, settings);
    let queue = unique("loaded");
    let call = |at: usize| Caller { connection: cluster.brokers[at].connect(), headers: headers.to_vec() };
    let (mut leaser, mut drainer, mut producer) = (call(1), call(1), call(0));
    let mut sent = [0; LOADED_ROOMS];
    while sent.contains(&0) {
        producer.push_to_all(&queue, &mut sent);
    }
    for room in 0..LOADED_ROOMS {
        assert_eq!(leaser.pop(&queue, room, "&batch=1"), [(json!(0), 1)]);
    }
    let is_over = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let load = {
        let (queue, is_over) = (queue.clone(), std::sync::Arc::clone(&is_over));
        std::thread::spawn(move || {
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                producer.push_to_all(&queue, &mut sent);
            }
            sent
        })
    };
    let exit = cluster.brokers[2].sigterm();
    assert!(exit.success(), "{exit}");
    is_over.store(true, std::sync::atomic::Ordering::Relaxed);
    let sent = load.join().expect("the load");
    let log = cluster.brokers[2].log();
    let said = log.lines().find(|line| line.contains("rings handed over")).expect("a line about it");
    assert!(said.contains("lost=0") && !said.contains("rings=0 "), "{said}");
    let mut moved = 0;
    for (room, sent) in sent.into_iter().enumerate() {
        let mut all = Vec::new();
        loop {
            let popped = drainer.pop(&queue, room, "&batch=1000&autoAck=true");
            if popped.is_empty() {
                break;
            }
            all.extend(popped);
        }
        // Where nothing moved, the first is leased still.
        let first = u64::from(all.first().is_some_and(|(payload, _)| *payload != json!(0)));
        let expected: Vec<_> = (first..sent).map(|n| (json!(n), 1 + u64::from(n == 0))).collect();
        moved += usize::from(first == 0);
        assert_eq!(
            all, expected,
            "room-{room}: nothing lost, nothing twice, in order, and what was leased comes again"
        );
    }
    assert!(moved > 0, "something has moved");
}

#[test]
fn an_owner_that_stops_under_load_loses_nothing() {
    an_owner_stops_under_load(&[], &[]);
}

#[test]
fn an_owner_that_stops_under_load_loses_nothing_of_a_tenant() {
    let settings = [("QUEEN_TENANCY_HEADER", "true"), ("QUEEN_EPHEMERAL_REQUIRE_GRANT", "false")];
    let tenant = "6f2c1f0a-3a5e-4a8c-9d2e-0123456789ab".to_owned();
    an_owner_stops_under_load(&settings, &[("x-queen-tenant", tenant)]);
}

#[test]
fn an_owner_that_stops_under_load_loses_nothing_where_tokens_are_asked_for() {
    let settings = [
        ("JWT_ENABLED", "true"),
        ("JWT_SECRET", SIGNING_SECRET),
        ("JWT_SKIP_PATHS", "/health,/status,/internal/api/shared-state/stats"),
    ];
    let claims = json!({ "sub": "load", "role": "admin", "exp": in_s(3600) });
    let bearer = format!("Bearer {}", token(&claims));
    an_owner_stops_under_load(&settings, &[("authorization", bearer)]);
}
