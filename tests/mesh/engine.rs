//! A published queen-engine as a peer: each takes what the other says. `./test --full engine` installs one and names it by
//! QUEEN_ENGINE.

use std::{
    net::{Ipv4Addr, SocketAddr},
    process::{Child, Command, Stdio},
};

use serde_json::{Value, json};

use crate::{
    SECRET, WAIT,
    cluster::{Durable as _, Seat, database, free_port, start},
    common::{Broker, Connection, unique},
    eventually, members, stats, until_stats,
};

/// A running queen-engine.
struct Engine {
    child: Child,
    address: SocketAddr,
    _buffers: tempfile::TempDir,
}

impl Engine {
    /// Starts one that listens for peers there and dials that one, on a database of its own.
    fn start(mesh_port: u16, peer: u16, secret: &str) -> Self {
        let program =
            std::env::var_os("QUEEN_ENGINE").expect("QUEEN_ENGINE names the program: see ./test --full engine");
        let url = database();
        // postgres://user:password@host:port/database
        let parts: Vec<_> = url["postgres://".len()..].split([':', '@', '/']).collect();
        let [user, password, host, port, name] = parts[..] else { panic!("the parts of {url}") };
        let buffers = tempfile::tempdir().expect("a directory");
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let child = Command::new(program)
            .env_clear()
            .envs([("PG_HOST", host), ("PG_PORT", port), ("PG_USER", user), ("PG_PASSWORD", password)])
            .envs([("PG_DB", name), ("PG_DATABASE", name), ("QUEEN_APPLY_SCHEMA", "true")])
            .envs([("PORT", address.port().to_string()), ("QUEEN_BIND_ADDR", "127.0.0.1".to_owned())])
            .envs([("QUEEN_MESH_PORT", mesh_port.to_string()), ("QUEEN_MESH_PEERS", format!("127.0.0.1:{peer}"))])
            .env("QUEEN_SYNC_SECRET", secret)
            .env("HOSTNAME", "engine")
            .env("FILE_BUFFER_DIR", buffers.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the engine starts");
        let engine = Self { child, address, _buffers: buffers };
        eventually("a healthy engine", || {
            let mut client = Connection::try_open(engine.address).ok()?;
            (client.get("/health").status == 200).then_some(())
        });
        engine
    }

    fn connect(&self) -> Connection {
        Connection::open(self.address)
    }

    fn stats(&self) -> Value {
        self.connect().get("/internal/api/shared-state/stats").json()
    }

    fn until_stats(&self, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        eventually(what, || Some(self.stats()).filter(|stats| holds(stats)))
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let _gone = (self.child.kill(), self.child.wait());
        if std::thread::panicking() {
            eprintln!("the engine was at {}", self.address);
        }
    }
}

const LEGACY: (&str, &str) = ("QUEEN_MESH_LEGACY_HELLO", "true");

#[test]
fn with_one_secret_each_lists_the_other_alive() {
    let ports = [free_port(), free_port()];
    let ours =
        start(&Seat { id: "ours", port: ports[0], peers: &[ports[1]] }, &[("QUEEN_SYNC_SECRET", SECRET), LEGACY]);
    let theirs = Engine::start(ports[1], ports[0], SECRET);
    let alive = |stats: &Value| stats["servers_alive"] == 1 && stats["peers"][0]["connected"] == true;
    let seen = until_stats(&ours, "the engine, alive", alive);
    assert_eq!(seen["eph_members"], 1, "it gets hints, and is no member");
    assert_eq!(members(&ours), ["ours"]);
    theirs.until_stats("the broker, alive", alive);
    // Their dialer has the same secret; ours was turned away once, with a challenge that it does not know.
    assert_eq!(stats(&ours)["handshake_failures_by_reason"]["mac"], json!(null));
}

#[test]
fn with_other_secrets_both_count_handshakes_that_fail() {
    let ports = [free_port(), free_port()];
    let ours =
        start(&Seat { id: "ours", port: ports[0], peers: &[ports[1]] }, &[("QUEEN_SYNC_SECRET", SECRET), LEGACY]);
    let theirs = Engine::start(ports[1], ports[0], "another");
    crate::until_failures(&ours, "mac", 1);
    theirs.until_stats("failures", |stats| stats["handshake_failures"].as_u64() >= Some(1));
    assert_eq!(stats(&ours)["servers_alive"], 0);
    assert_eq!(theirs.stats()["servers_alive"], 0);
}

#[test]
fn their_wake_is_ours_and_our_wakes_and_switches_are_theirs() {
    let (ports, store) = ([free_port(), free_port()], database());
    let store = [("DATABASE_URL", &*store), ("POP_WAIT_MAX_INTERVAL_MS", "60000")];
    let settings = [&store[..], &[("QUEEN_SYNC_SECRET", SECRET), LEGACY]].concat();
    let ours = start(&Seat { id: "ours", port: ports[0], peers: &[ports[1]] }, &settings);
    // On our store, and no peer of anybody.
    let silent = Broker::start(&store);
    let theirs = Engine::start(ports[1], ports[0], SECRET);
    until_stats(&ours, "the engine", |stats| stats["servers_alive"] == 1);
    theirs.until_stats("the broker", |stats| stats["servers_alive"] == 1 && stats["peers"][0]["connected"] == true);
    let queue = unique("of-both");
    let mut waiter = ours.connect();
    assert_eq!(silent.connect().durable_push(&queue, json!("first")).status, 201);
    waiter.send_durable_pop(&queue, WAIT);
    assert_eq!(waiter.durable_popped(), [json!("first")]);
    waiter.send_durable_pop(&queue, WAIT);
    eventually("a pop that waits", || (ours.parked() == 1).then_some(()));
    std::thread::sleep(std::time::Duration::from_secs(3));
    assert_eq!(silent.connect().durable_push(&queue, json!("second")).status, 201);
    let item = |partition: &str| json!({ "queue": queue, "partition": partition, "payload": 1 });
    let push = json!({ "items": [item("one"), item("another")] }).to_string();
    assert_eq!(theirs.connect().post("/api/v1/push", push).status, 201);
    assert_eq!(waiter.durable_popped(), [json!("second")], "their push has woken it");
    let before = theirs.stats()["messages_received"].as_u64();
    assert_eq!(ours.connect().durable_push(&queue, json!("third")).status, 201);
    theirs.until_stats("our wake", |stats| stats["messages_received"].as_u64() > before);
    let switch = |on: bool| json!({ "enabled": on }).to_string();
    assert_eq!(ours.connect().post("/api/v1/system/maintenance", switch(true)).status, 200);
    theirs.until_stats("our switch", |stats| stats["maintenance_mode"] == true);
    assert_eq!(ours.connect().post("/api/v1/system/maintenance", switch(false)).status, 200);
}
