//! An owner that is told to stop under load, in each way in which a cluster is run.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{
    SECRET,
    cluster::{Seat, free_port, settings_of},
    common::{self, Broker, Certificates, Connection, Response, eventually, in_s, request, token, unique},
};

/// So many that hardly ever a broker owns none of them.
const ROOMS: [&str; 12] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];

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
        self.open(broker.address()).expect("the broker accepts connections")
    }

    fn open(&self, address: SocketAddr) -> io::Result<Client> {
        let connection = match &self.certificates {
            Some(certificates) => Connection::open_tls(address, certificates.client())?,
            None => Connection::try_open(address)?,
        };
        let headers = self.headers.iter().map(|(name, value)| (*name, value.clone())).collect();
        Ok(Client { connection, headers })
    }
}

/// A connection whose requests carry what the way asks for.
struct Client {
    connection: Connection,
    headers: Vec<(&'static str, String)>,
}

impl Client {
    fn ask(&mut self, method: &str, target: &str, body: &Value) -> Response {
        self.try_ask(method, target, body).expect("an answer")
    }

    fn try_ask(&mut self, method: &str, target: &str, body: &Value) -> io::Result<Response> {
        let headers: Vec<_> = self.headers.iter().map(|(name, value)| (*name, &**value)).collect();
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.connection.try_send(request(method, target, &headers, body.as_bytes()))?;
        self.connection.try_response()
    }

    fn push(&mut self, queue: &str, room: &str, numbers: &[u64]) -> Response {
        self.try_push(queue, room, numbers).expect("an answer")
    }

    fn try_push(&mut self, queue: &str, room: &str, numbers: &[u64]) -> io::Result<Response> {
        let messages: Vec<_> = numbers.iter().map(|number| json!({ "payload": number })).collect();
        let body = json!({ "queue": queue, "partition": room, "messages": messages });
        self.try_ask("POST", "/api/v1/ephemeral/push", &body)
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

/// Brokers, each of which can ask every other.
fn cluster(way: &Way, count: usize) -> Vec<Broker> {
    let ports: Vec<_> = (0..count).map(|_| free_port()).collect();
    let start = |index: usize| {
        let id = format!("queen-{}", index + 1);
        let peers: Vec<_> = ports.iter().copied().filter(|&port| port != ports[index]).collect();
        way.start(&Seat { id: &id, port: ports[index], peers: &peers })
    };
    let brokers: Vec<_> = (0..count).map(start).collect();
    until_ready(way, &brokers);
    brokers
}

fn until_members(way: &Way, brokers: &[Broker]) {
    let ids: Vec<_> = (1..=brokers.len()).map(|number| format!("queen-{number}")).collect();
    for broker in brokers {
        let mut client = way.client(broker);
        eventually("all members", || (client.members() == ids).then_some(()));
    }
}

fn until_ready(way: &Way, brokers: &[Broker]) {
    until_members(way, brokers);
    for broker in brokers {
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

fn an_owner_stops_under_load(way: &Way) {
    for _ in 0..rounds() {
        stop_an_owner(way);
    }
}

/// Stops the owner of some rooms under load, with messages leased, and looks for every message and its place.
fn stop_an_owner(way: &Way) {
    let mut brokers = cluster(way, 3);
    let queue = unique("stops");
    let stop = Arc::new(AtomicBool::new(false));
    let producer = {
        let (client, queue, stop) = (way.client(&brokers[0]), queue.clone(), Arc::clone(&stop));
        thread::spawn(move || produce(client, queue, stop))
    };
    thread::sleep(BEFORE);
    // One that nobody here talks to, and that owns something.
    let held = [1, 2].map(|at| way.client(&brokers[at]).held(&queue));
    let (stopping, moving) = if held[0] > held[1] { (1, held[0]) } else { (2, held[1]) };
    let mut worker = way.client(&brokers[3 - stopping]);
    let leased: Vec<_> = ROOMS.iter().map(|room| worker.pop(&queue, room, &format!("group={GROUP}&batch=1"))).collect();
    let exit = brokers[stopping].sigterm();
    assert!(exit.success(), "{exit}");
    let said = handed_over(&brokers[stopping]);
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
    assert_eq!(redelivered.count(), moving, "leases that come back");
    assert_all_there(&mut worker, &queue, &sent);
}

/// That a queue holds what was sent to each room, each message once and in order.
fn assert_all_there(client: &mut Client, queue: &str, sent: &[u64]) {
    for (room, &sent) in ROOMS.iter().zip(sent) {
        let mut found = Vec::new();
        loop {
            let popped = client.pop(queue, room, "batch=1000&autoAck=true");
            if popped.is_empty() {
                break;
            }
            found.extend(popped.into_iter().map(|message| message["payload"].clone()));
        }
        let expected: Vec<_> = (0..sent).map(|number| json!(number)).collect();
        assert_eq!(found, expected, "{room}: nothing lost, nothing twice, in order");
    }
}

fn handed_over(broker: &Broker) -> String {
    let log = broker.log();
    log.lines().rfind(|line| line.contains("rings handed over")).expect("a line about it").to_owned()
}

/// Where brokers listen now; a client that is turned away goes to the next.
type Addresses = Arc<Mutex<Vec<SocketAddr>>>;

/// Pushes to whichever broker takes it until told to stop, and gives what each room was sent.
fn produce_anywhere(way: &Way, addresses: &Addresses, queue: &str, stop: &AtomicBool) -> [u64; ROOMS.len()] {
    let mut sent = [0; ROOMS.len()];
    let mut client: Option<Client> = None;
    let mut at = 0;
    while !stop.load(Ordering::Relaxed) {
        for (room, sent) in ROOMS.iter().zip(&mut sent) {
            let Some(open) = client.as_mut() else {
                let address = addresses.lock().expect("the addresses")[at];
                client = way.open(address).ok();
                thread::sleep(Duration::from_millis(5));
                break;
            };
            // A connection that ends without an answer has not had its request served: a broker that stops answers
            // whatever it has read.
            match open.try_push(queue, room, &[*sent]) {
                Ok(answer) if answer.status == 201 => *sent += 1,
                Ok(answer) if answer.status == 503 => {
                    assert!(!answer.text().contains("may have been done"), "{}", answer.text());
                }
                Ok(answer) => panic!("{answer:?}"),
                Err(_) => {
                    client = None;
                    at = (at + 1) % addresses.lock().expect("the addresses").len();
                    break;
                }
            }
        }
        thread::sleep(Duration::from_millis(5));
    }
    sent
}

/// Every broker is stopped and started in turn, under load.
fn all_restart_in_turn(way: &Way) {
    let mut brokers = cluster(way, 3);
    let queue = unique("rolls");
    let addresses = Addresses::new(Mutex::new(brokers.iter().map(Broker::address).collect()));
    let stop = AtomicBool::new(false);
    let sent = thread::scope(|scope| {
        let producer = scope.spawn(|| produce_anywhere(way, &addresses, &queue, &stop));
        thread::sleep(BEFORE);
        for index in 0..brokers.len() {
            let exit = brokers[index].sigterm();
            assert!(exit.success(), "{exit}");
            let said = handed_over(&brokers[index]);
            assert!(said.contains("lost=0"), "{said}");
            brokers[index].start_again();
            addresses.lock().expect("the addresses")[index] = brokers[index].address();
            until_members(way, &brokers);
            thread::sleep(BEFORE / 4);
        }
        stop.store(true, Ordering::Relaxed);
        producer.join().expect("the producer")
    });
    assert!(sent.iter().all(|&sent| sent > 0), "{sent:?}");
    assert_all_there(&mut way.client(&brokers[0]), &queue, &sent);
}

#[test]
fn all_of_them_in_turn() {
    for _ in 0..rounds() {
        all_restart_in_turn(&Way::default());
    }
}

#[test]
fn while_the_only_other_one_is_starting() {
    for _ in 0..rounds() {
        let way = Way::default();
        let mut brokers = cluster(&way, 2);
        let queue = unique("starting");
        assert!(brokers[1].sigterm().success());
        let mut client = way.client(&brokers[0]);
        for room in ROOMS {
            let numbers: Vec<_> = (0..500).collect();
            eventually("a push", || (client.push(&queue, room, &numbers).status == 201).then_some(()));
        }
        brokers[1].start_again();
        assert!(brokers[0].sigterm().success());
        let said = handed_over(&brokers[0]);
        assert!(said.contains("lost=0"), "{said}");
        assert_all_there(&mut way.client(&brokers[1]), &queue, &[500; ROOMS.len()]);
    }
}

/// How often each is done: more often in the long form.
fn rounds() -> u32 {
    std::env::var("QUEEN_STOPS_ROUNDS").map_or(1, |rounds| rounds.parse().expect("QUEEN_STOPS_ROUNDS is a number"))
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
