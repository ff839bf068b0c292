//! The tenant of a request: taken from `x-queen-tenant` where the operator says that a proxy sets
//! it, the default one otherwise.

mod common;

use common::{Broker, Connection, Response, request};
use serde_json::{Value, json};

const ON: (&str, &str) = ("QUEEN_TENANCY_HEADER", "true");
const NO_GRANTS: (&str, &str) = ("QUEEN_EPHEMERAL_REQUIRE_GRANT", "false");
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
    let broker = Broker::start(&[ON, NO_GRANTS]);
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
    let broker = Broker::start(&[ON, NO_GRANTS]);
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
    let mut broker = Broker::start(&[ON, NO_GRANTS]);
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
    let broker = Broker::start(&[ON, NO_GRANTS]);
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
    let broker = Broker::start(&[ON, NO_GRANTS]);
    let mut client = broker.connect();
    push_as(&mut client, ONE, "one");
    assert_eq!(pop_as(&mut client, &format!("  {}  ", ONE.to_uppercase())), json!(["one"]));
    push_as(&mut client, "", "default");
    assert_eq!(pop_as(&mut client, DEFAULT), json!(["default"]));
}

#[test]
fn what_is_no_uuid_is_refused_on_the_api_and_nowhere_else() {
    let broker = Broker::start(&[ON, NO_GRANTS]);
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

/// A seeded stream of numbers (SplitMix64).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }

    fn of<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[self.below(words.len() as u64) as usize]
    }
}

/// A tenant that uses every route under the same names as every other tenant, and writes down what it is told.
struct Actor {
    tenant: &'static str,
    numbers: Numbers,
    client: Connection,
    waiting: Connection,
    /// Ids that it was given, by where they came from, for its acks.
    ephemeral: Vec<(String, Value, String)>,
    durable: Vec<(String, Value, Value, Value)>,
    /// Ids by the order in which they were first seen: all that two runs may differ in.
    seen: std::collections::HashMap<String, usize>,
    transcript: Vec<String>,
    routes: std::collections::BTreeSet<String>,
}

impl Actor {
    fn new(broker: &Broker, tenant: &'static str, seed: u64) -> Self {
        Self {
            tenant,
            numbers: Numbers(seed),
            client: broker.connect(),
            waiting: broker.connect(),
            ephemeral: Vec::new(),
            durable: Vec::new(),
            seen: std::collections::HashMap::new(),
            transcript: Vec::new(),
            routes: std::collections::BTreeSet::new(),
        }
    }

    fn send(&mut self, method: &str, route: &str, target: &str, body: &Value) -> Value {
        let answer = send_as(&mut self.client, self.tenant, method, target, body);
        self.note(method, route, target, &answer)
    }

    fn note(&mut self, method: &str, route: &str, target: &str, answer: &Response) -> Value {
        let body = if answer.body.is_empty() { Value::Null } else { answer.json() };
        self.routes.insert(format!("{method} {route}"));
        let told = self.plain(&body);
        // A path that names an id differs between two runs as ids do.
        let target = if route.contains(":lease") { route } else { target };
        self.transcript.push(format!("{method} {target}: {} {told}", answer.status));
        body
    }

    /// An answer in which ids and times are told by their order alone.
    fn plain(&mut self, value: &Value) -> Value {
        match value {
            Value::String(text) => {
                // Of an ephemeral message: unique within its queue alone.
                if text.starts_with("e:") {
                    return json!("an ephemeral id");
                }
                let is_id = DASHES.iter().all(|&at| text.as_bytes().get(at) == Some(&b'-'));
                let is_time = text.ends_with('Z') && text.contains('T') && text.contains(':');
                if is_time {
                    return json!("a time");
                }
                // A cursor of the list of changed partitions, and what holds ids.
                let is_cursor = text.len() > 17 && text.as_bytes()[16] == b'-' && text.is_char_boundary(16);
                if is_id || is_cursor {
                    let next = self.seen.len();
                    return json!(format!("id {}", self.seen.entry(text.clone()).or_insert(next)));
                }
                value.clone()
            }
            Value::Array(items) => items.iter().map(|item| self.plain(item)).collect(),
            Value::Object(members) => {
                let plain = |(name, member): (&String, &Value)| match name.as_str() {
                    "lagSeconds" => (name.clone(), json!("a time")),
                    _ => (name.clone(), self.plain(member)),
                };
                members.iter().map(plain).collect()
            }
            _ => value.clone(),
        }
    }

    fn step(&mut self) {
        let queue = self.numbers.of(&["orders", "a/b c:é", "x.y"]);
        let path: String = queue.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let partition = self.numbers.of(&["Default", "p1", "p2"]);
        let group = self.numbers.of(&["g", "h"]);
        let payload = json!({ "n": self.numbers.below(1000) });
        let seconds = 3600;
        match self.numbers.below(30) {
            0..=3 => {
                let count = self.numbers.below(3) + 1;
                let messages: Vec<_> = (0..count).map(|_| json!({ "payload": payload })).collect();
                let body = json!({ "queue": queue, "partition": partition, "messages": messages });
                self.send("POST", "/api/v1/ephemeral/push", "/api/v1/ephemeral/push", &body);
            }
            4..=6 => {
                let target = format!("/api/v1/ephemeral/pop?queue={path}&partition={partition}&group={group}&batch=2");
                let body = self.send("GET", "/api/v1/ephemeral/pop", &target, &Value::Null);
                for message in body["messages"].as_array().into_iter().flatten() {
                    self.ephemeral.push((queue.to_owned(), message["id"].clone(), group.to_owned()));
                }
            }
            7..=8 => {
                if let Some((queue, id, group)) = self.ephemeral.pop() {
                    let status = self.numbers.of(&["completed", "retry"]);
                    let body = json!({ "queue": queue, "group": group, "acks": [{ "id": id, "status": status }] });
                    self.send("POST", "/api/v1/ephemeral/ack", "/api/v1/ephemeral/ack", &body);
                }
            }
            9 => {
                let body = json!({ "queue": queue, "options": { "maxLength": 5 + self.numbers.below(20) } });
                self.send("POST", "/api/v1/ephemeral/configure", "/api/v1/ephemeral/configure", &body);
            }
            10 => {
                let body = json!({ "queue": queue });
                self.send("POST", "/api/v1/ephemeral/reset", "/api/v1/ephemeral/reset", &body);
            }
            11 => {
                let target = format!("/api/v1/ephemeral/queue/{path}");
                self.send("DELETE", "/api/v1/ephemeral/queue/:queue", &target, &Value::Null);
            }
            12 => {
                self.send("GET", "/api/v1/ephemeral/queues", "/api/v1/ephemeral/queues", &Value::Null);
            }
            13 => {
                let target = format!("/api/v1/ephemeral/queues/{path}/depth?group={group}");
                self.send("GET", "/api/v1/ephemeral/queues/:queue/depth", &target, &Value::Null);
            }
            14 => {
                // A request that nobody answers in time, on a queue that nobody else uses.
                let body = json!({ "queue": "unanswered", "payload": payload, "timeout": 1 });
                self.send("POST", "/api/v1/ephemeral/request", "/api/v1/ephemeral/request", &body);
                self.send(
                    "POST",
                    "/api/v1/ephemeral/reset",
                    "/api/v1/ephemeral/reset",
                    &json!({ "queue": "unanswered" }),
                );
            }
            15 => {
                let pushes = json!([{ "queue": queue, "partition": partition, "messages": [{ "payload": payload }] }]);
                let pop = json!({ "queue": queue, "partition": partition, "group": group, "autoAck": true });
                let body = json!({ "pushes": pushes, "pop": pop });
                self.send("POST", "/api/v1/ephemeral/exchange", "/api/v1/ephemeral/exchange", &body);
            }
            16 => self.wait_for("/api/v1/ephemeral/pop", "/api/v1/ephemeral/pop?queue=wakes&autoAck=true"),
            17 => {
                self.wait_for("/api/v1/pop/queue/:queue", "/api/v1/pop/queue/wakes?autoAck=true&subscriptionMode=all")
            }
            18..=20 => {
                let id = format!("t{}", self.numbers.below(50));
                let item = json!({ "queue": queue, "partition": partition, "payload": payload, "transactionId": id });
                self.send("POST", "/api/v1/push", "/api/v1/push", &json!({ "items": [item] }));
            }
            21..=22 => {
                let (target, route) = match self.numbers.below(2) {
                    0 => (format!("/api/v1/pop/queue/{path}/partition/{partition}"), "/partition/:partition"),
                    _ => (format!("/api/v1/pop/queue/wakes/partition/{partition}"), "/partition/:partition"),
                };
                let query = format!("?batch=2&consumerGroup={group}&subscriptionMode=all&leaseSeconds={seconds}");
                let body =
                    self.send("GET", &format!("/api/v1/pop/queue/:queue{route}"), &(target + &query), &Value::Null);
                for message in body["messages"].as_array().into_iter().flatten() {
                    let place = (message["partitionId"].clone(), message["transactionId"].clone());
                    self.durable.push((group.to_owned(), place.0, place.1, body["leaseId"].clone()));
                }
            }
            23..=24 => {
                if let Some((group, partition, transaction, lease)) = self.durable.pop() {
                    let mut ack = json!({ "partitionId": partition, "transactionId": transaction,
                                          "status": "completed", "consumerGroup": group });
                    if lease.is_string() && self.numbers.below(2) == 0 {
                        ack["leaseId"] = lease.clone();
                        let target = format!("/api/v1/lease/{}/extend", lease.as_str().unwrap_or_default());
                        self.send("POST", "/api/v1/lease/:lease/extend", &target, &json!({ "seconds": seconds }));
                    }
                    if self.numbers.below(2) == 0 {
                        self.send("POST", "/api/v1/ack", "/api/v1/ack", &ack);
                    } else {
                        let body = json!({ "acknowledgments": [ack], "consumerGroup": group });
                        self.send("POST", "/api/v1/ack/batch", "/api/v1/ack/batch", &body);
                    }
                }
            }
            25 => {
                let body =
                    json!({ "queue": queue, "namespace": "ns", "task": "t", "options": { "leaseTime": seconds } });
                self.send("POST", "/api/v1/configure", "/api/v1/configure", &body);
            }
            26 => {
                if self.numbers.below(3) == 0 {
                    let target = format!("/api/v1/resources/queues/{path}");
                    self.send("DELETE", "/api/v1/resources/queues/:queue", &target, &Value::Null);
                }
                let target = "/api/v1/pop?namespace=nowhere&batch=1";
                self.send("GET", "/api/v1/pop", target, &Value::Null);
            }
            27 => {
                let entries = json!([{ "queue": queue, "partition": partition, "offset": 0 }]);
                self.send("POST", "/api/v1/fetch", "/api/v1/fetch", &json!({ "entries": entries }));
                let entries = json!([{ "queue": queue }]);
                self.send(
                    "POST",
                    "/api/v1/partitions/changed",
                    "/api/v1/partitions/changed",
                    &json!({ "entries": entries }),
                );
            }
            28 => {
                for route in ["queues", "namespaces", "tasks", "overview", "partitions"] {
                    let target = format!("/api/v1/resources/{route}");
                    self.send("GET", &target, &target, &Value::Null);
                }
                self.send("GET", "/auth/me", "/auth/me", &Value::Null);
            }
            _ => {
                let target = format!("/api/v1/resources/queues/{path}");
                self.send("GET", "/api/v1/resources/queues/:queue", &target, &Value::Null);
                let target = format!("/api/v1/resources/queues/{path}/depth");
                self.send("GET", "/api/v1/resources/queues/:queue/depth", &target, &Value::Null);
            }
        }
    }

    /// A pop that waits in vain or until the actor's own push, whichever the numbers say.
    fn wait_for(&mut self, route: &str, target: &str) {
        let in_vain = self.numbers.below(2) == 0;
        let timeout_ms = if in_vain { 40 } else { 60_000 };
        let target = format!("{target}&wait=true&timeout={timeout_ms}");
        let started = std::time::Instant::now();
        self.waiting.send(request("GET", &target, &[("x-queen-tenant", self.tenant)], b""));
        if !in_vain {
            let push = json!({ "queue": "wakes", "messages": [{ "payload": "wakes" }] });
            let durable = json!({ "items": [{ "queue": "wakes", "payload": "wakes" }] });
            if route.contains("ephemeral") {
                self.send("POST", "/api/v1/ephemeral/push", "/api/v1/ephemeral/push", &push);
            } else {
                self.send("POST", "/api/v1/push", "/api/v1/push", &durable);
            }
        }
        let answer = self.waiting.response();
        // The broker's clock ticks in milliseconds.
        let waited = started.elapsed() >= std::time::Duration::from_millis(timeout_ms.min(40) - 1);
        let told = self.note("GET", route, &target, &answer);
        // What an earlier wait has left comes at once.
        if in_vain && told["messages"].as_array().is_none_or(Vec::is_empty) {
            self.transcript.push(format!("waited to the end: {waited}"));
        }
    }
}

/// Where a UUID has its dashes.
const DASHES: [usize; 4] = [8, 13, 18, 23];

/// What one tenant is told in `steps` steps, alone or with another one at the same names in between.
fn told(seed: u64, steps: usize, tenants: &[&'static str]) -> Vec<Actor> {
    let broker = Broker::start(&[ON, NO_GRANTS]);
    let mut actors: Vec<_> = tenants.iter().map(|&tenant| Actor::new(&broker, tenant, seed)).collect();
    let mut turns = Numbers(!seed);
    let mut left: Vec<usize> = actors.iter().map(|_| steps).collect();
    while left.iter().any(|&steps| steps > 0) {
        let turn = turns.below(actors.len() as u64) as usize;
        if left[turn] > 0 {
            left[turn] -= 1;
            actors[turn].step();
        }
    }
    actors
}

#[test]
fn no_tenant_can_tell_that_another_exists() {
    const STEPS: usize = 600;
    for seed in [1, 2, 3] {
        let alone = told(seed, STEPS, &[ONE]);
        let together = told(seed, STEPS, &[OTHER, ONE, DEFAULT]);
        for actor in &together {
            let differs = alone[0].transcript.iter().zip(&actor.transcript).position(|(alone, with)| alone != with);
            if let Some(at) = differs {
                panic!(
                    "seed {seed}, {}, line {at}:\n{}\n{}",
                    actor.tenant, alone[0].transcript[at], actor.transcript[at]
                );
            }
            assert_eq!(alone[0].transcript.len(), actor.transcript.len());
        }
        let all =
            queen_data::route_lines().filter(|line| !line.path.contains("/system/") && line.path.contains("/v1/"));
        for line in all {
            let route = format!("{} {}", line.method, line.path);
            assert!(alone[0].routes.contains(&route), "seed {seed} never took {route}");
        }
    }
}
