//! An owner that is told to stop under load, in each way in which a cluster is run.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{
    SECRET,
    cluster::{Seat, free_port, settings_of},
    common::{self, Broker, Certificates, Connection, Response, eventually, in_s, token, unique},
    forwarding::ROOMS,
};

/// Messages a second, of all rooms together.
const RATE: u64 = 1_000;

/// So long is pushed before the owner is told to stop, and after it has.
const BEFORE: Duration = Duration::from_millis(700);

const GROUP: &str = "workers";

/// How a cluster is run, and how its clients are let in.
#[derive(Default)]
struct Way {
    settings: Vec<(&'static str, String)>,
    headers: Vec<(&'static str, String)>,
    certificates: Option<Arc<Certificates>>,
}

impl Way {
    fn start(&self, seat: &Seat<'_>) -> Broker {
        let own = settings_of(seat);
        let own = own.iter().map(|(name, value)| (*name, &**value)).chain([("QUEEN_SYNC_SECRET", SECRET)]);
        let settings: Vec<_> = own.chain(self.settings.iter().map(|(name, value)| (*name, &**value))).collect();
        match &self.certificates {
            Some(certificates) => Broker::start_tls_with(certificates, &settings),
            None => Broker::start(&settings),
        }
    }

    fn client(&self, broker: &Broker) -> Client {
        let headers = self.headers.iter().map(|(name, value)| (*name, value.clone())).collect();
        Client { connection: broker.connect(), headers }
    }
}

/// A connection whose requests carry what the way asks for.
struct Client {
    connection: Connection,
    headers: Vec<(&'static str, String)>,
}

impl Client {
    fn ask(&mut self, method: &str, target: &str, body: &Value) -> Response {
        let headers: Vec<_> = self.headers.iter().map(|(name, value)| (*name, &**value)).collect();
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.connection.request_with(method, target, &headers, body.as_bytes())
    }

    fn push(&mut self, queue: &str, room: &str, numbers: &[u64]) -> Response {
        let messages: Vec<_> = numbers.iter().map(|number| json!({ "payload": number })).collect();
        let body = json!({ "queue": queue, "partition": room, "messages": messages });
        self.ask("POST", "/api/v1/ephemeral/push", &body)
    }

    /// Messages of a room, until its owner answers: a request that meets a move is told so.
    fn pop(&mut self, queue: &str, room: &str, rest: &str) -> Vec<Value> {
        let target = format!("/api/v1/ephemeral/pop?queue={queue}&partition={room}&{rest}");
        eventually("an answer", || {
            let answer = self.ask("GET", &target, &Value::Null);
            match answer.status {
                200 => Some(answer.json()["messages"].as_array().expect("messages").clone()),
                204 => Some(Vec::new()),
                503 => None,
                _ => panic!("{answer:?}"),
            }
        })
    }

    fn members(&mut self) -> Vec<Value> {
        let status = self.ask("GET", "/status", &Value::Null).json();
        let members = status["mesh"]["members"].as_array().expect("members").iter();
        members.map(|member| member["id"].clone()).collect()
    }

    /// Rooms of a queue that the node itself has.
    fn held(&mut self, queue: &str) -> usize {
        let depth = self.ask("GET", &format!("/api/v1/ephemeral/queues/{queue}/depth"), &Value::Null);
        if depth.status == 404 { 0 } else { depth.json()["partitions"].as_array().expect("partitions").len() }
    }
}

/// Three brokers, each of which can ask every other.
fn three(way: &Way) -> Vec<Broker> {
    let ports: Vec<_> = (0..3).map(|_| free_port()).collect();
    let start = |index: usize| {
        let id = format!("queen-{}", index + 1);
        let peers: Vec<_> = ports.iter().copied().filter(|&port| port != ports[index]).collect();
        way.start(&Seat { id: &id, port: ports[index], peers: &peers })
    };
    let brokers: Vec<_> = (0..3).map(start).collect();
    until_ready(way, &brokers);
    brokers
}

fn until_ready(way: &Way, brokers: &[Broker]) {
    for broker in brokers {
        let mut client = way.client(broker);
        eventually("all members", || (client.members() == ["queen-1", "queen-2", "queen-3"]).then_some(()));
        for _ in 0..8 {
            let mut client = way.client(broker);
            for room in ROOMS {
                eventually("links", || (client.push("warm-up", room, &[0]).status == 201).then_some(()));
            }
        }
    }
}

/// Pushes through a broker at a steady rate until told to stop, and gives what each room was sent.
fn produce(mut client: Client, queue: String, stop: Arc<AtomicBool>) -> [u64; ROOMS.len()] {
    const BATCH: u64 = 2;
    let mut sent = [0; ROOMS.len()];
    let pause = Duration::from_micros(1_000_000 * BATCH * ROOMS.len() as u64 / RATE);
    let mut due = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        for (room, sent) in ROOMS.iter().zip(&mut sent) {
            let numbers: Vec<_> = (*sent..*sent + BATCH).collect();
            let answer = client.push(&queue, room, &numbers);
            match answer.status {
                201 => *sent += BATCH,
                // Nothing was done, so that it can be sent again.
                503 => assert!(!answer.text().contains("may have been done"), "{}", answer.text()),
                _ => panic!("{answer:?}"),
            }
        }
        due += pause;
        thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    sent
}

/// Stops the owner of some rooms under load, with messages leased, and looks for every message and its place.
fn an_owner_stops_under_load(way: &Way) {
    let mut brokers = three(way);
    let queue = unique("stops");
    let stop = Arc::new(AtomicBool::new(false));
    let producer = {
        let (client, queue, stop) = (way.client(&brokers[0]), queue.clone(), Arc::clone(&stop));
        thread::spawn(move || produce(client, queue, stop))
    };
    thread::sleep(BEFORE);
    let moving = way.client(&brokers[2]).held(&queue);
    let mut worker = way.client(&brokers[1]);
    let leased: Vec<_> = ROOMS.iter().map(|room| worker.pop(&queue, room, &format!("group={GROUP}&batch=1"))).collect();
    let exit = brokers[2].sigterm();
    assert!(exit.success(), "{exit}");
    let log = brokers[2].log();
    let said = log.lines().find(|line| line.contains("rings handed over")).expect("a line about it");
    assert!(said.contains("lost=0"), "{said}");
    thread::sleep(BEFORE);
    stop.store(true, Ordering::Relaxed);
    let sent = producer.join().expect("the producer");
    assert!(moving > 0 && sent.iter().all(|&sent| sent > 0), "{moving} rooms move, {sent:?}");
    let redelivered = ROOMS.iter().zip(&leased).filter(|(room, leased)| {
        let again = worker.pop(&queue, room, &format!("group={GROUP}&batch=1"));
        // Those of owners that stay are leased still, and the next one is handed out.
        again[0]["payload"] == leased[0]["payload"] && again[0]["attempts"] == 2
    });
    // Not fewer than moved; `warm-up` has rooms too, which hold as much.
    assert_eq!(redelivered.count(), moving, "leases that come back");
    for (room, sent) in ROOMS.iter().zip(sent) {
        let mut found = Vec::new();
        loop {
            let popped = worker.pop(&queue, room, "batch=1000&autoAck=true");
            if popped.is_empty() {
                break;
            }
            found.extend(popped.into_iter().map(|message| message["payload"].clone()));
        }
        let expected: Vec<_> = (0..sent).map(|number| json!(number)).collect();
        assert_eq!(found, expected, "{room}: nothing lost, nothing twice, in order");
    }
    brokers[2].start_again();
    until_ready(way, &brokers);
}

#[test]
fn with_nothing_else() {
    an_owner_stops_under_load(&Way::default());
}

#[test]
fn with_tokens() {
    let token = token(&json!({ "sub": "somebody", "role": "admin", "exp": in_s(600) }));
    let settings = [("JWT_ENABLED", "true"), ("JWT_SECRET", common::SECRET)];
    an_owner_stops_under_load(&Way {
        settings: settings.map(|(name, value)| (name, value.to_owned())).into(),
        headers: vec![("authorization", format!("Bearer {token}"))],
        ..Way::default()
    });
}

#[test]
fn with_tenants() {
    let settings = [("QUEEN_TENANCY_HEADER", "true"), ("QUEEN_EPHEMERAL_REQUIRE_GRANT", "false")];
    an_owner_stops_under_load(&Way {
        settings: settings.map(|(name, value)| (name, value.to_owned())).into(),
        headers: vec![("x-queen-tenant", "6f2c1f0a-3a5e-4a8c-9d2e-0123456789ab".to_owned())],
        ..Way::default()
    });
}

#[test]
fn with_tls() {
    let certificates = Arc::new(Certificates::new());
    let authority = certificates.authority_file().display().to_string();
    an_owner_stops_under_load(&Way {
        settings: vec![("QUEEN_PEER_TLS_CA", authority)],
        certificates: Some(certificates),
        ..Way::default()
    });
}
