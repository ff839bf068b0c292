//! Several brokers that are each other's peers, and a PostgreSQL for them.

use std::{
    collections::BTreeSet,
    net::{Ipv4Addr, TcpListener},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{LazyLock, Mutex},
};

use serde_json::Value;

use crate::{
    SECRET,
    common::{Broker, Connection, Response, unique},
    members, until_stats,
};

/// Ports that were given to somebody.
static PORTS: LazyLock<Mutex<BTreeSet<u16>>> = LazyLock::new(Mutex::default);

/// A port that nobody has now, and that this process gives to nobody else.
pub fn free_port() -> u16 {
    loop {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = listener.local_addr().expect("its address").port();
        if PORTS.lock().expect("the ports").insert(port) {
            return port;
        }
    }
}

/// A broker's place in the mesh.
pub struct Seat<'s> {
    /// Its id.
    pub id: &'s str,
    /// Where it listens for peers.
    pub port: u16,
    /// Whom it dials.
    pub peers: &'s [u16],
}

/// The settings of a broker in its place.
pub fn settings_of(seat: &Seat<'_>) -> [(&'static str, String); 4] {
    let peers: Vec<_> = seat.peers.iter().map(|port| format!("127.0.0.1:{port}")).collect();
    [
        ("QUEEN_SERVER_ID", seat.id.to_owned()),
        ("QUEEN_MESH_PORT", seat.port.to_string()),
        ("QUEEN_MESH_PEERS", peers.join(",")),
        ("QUEEN_MESH_BIND_ADDR", "127.0.0.1".to_owned()),
    ]
}

/// Starts a broker in its place, with these settings besides.
pub fn start(seat: &Seat<'_>, settings: &[(&str, &str)]) -> Broker {
    let own = settings_of(seat);
    let own = own.iter().map(|(name, value)| (*name, &**value));
    Broker::start(&own.chain(settings.iter().copied()).collect::<Vec<_>>())
}

/// Brokers `queen-1` and so on, each the peer of all others.
pub struct Cluster {
    /// In the order of their ids.
    pub brokers: Vec<Broker>,
}

impl Cluster {
    /// Starts so many with a secret and these settings, and waits until all know each other.
    pub fn start(count: usize, settings: &[(&str, &str)]) -> Self {
        let cluster = Self::start_apart(count, &[&[("QUEEN_SYNC_SECRET", SECRET)], settings].concat());
        let ids: Vec<_> = (1..=count).map(|number| format!("queen-{number}")).collect();
        for broker in &cluster.brokers {
            crate::eventually("all members", || (members(broker) == ids).then_some(()));
            until_stats(broker, "peers", |stats| {
                let peers = stats["peers"].as_array().expect("peers");
                peers.iter().all(|peer| peer["connected"] == true) && stats["servers_alive"] == count - 1
            });
        }
        cluster
    }

    /// Starts so many with these settings.
    pub fn start_apart(count: usize, settings: &[(&str, &str)]) -> Self {
        let ports: Vec<_> = (0..count).map(|_| free_port()).collect();
        let start = |index: usize| {
            let id = format!("queen-{}", index + 1);
            let peers: Vec<_> = ports.iter().copied().filter(|&port| port != ports[index]).collect();
            self::start(&Seat { id: &id, port: ports[index], peers: &peers }, settings)
        };
        Self { brokers: (0..count).map(start).collect() }
    }
}

/// The PostgreSQL of this test process.
static SERVER: LazyLock<Server> = LazyLock::new(Server::start);

struct Server {
    /// Ends in `/postgres`, the database that is always there.
    url: String,
    /// Stops it when the pipe to it closes: when this process ends, however it does.
    _watcher: Child,
}

impl Server {
    fn start() -> Self {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/postgres");
        let dir: PathBuf = std::env::temp_dir().join(format!("queen-mesh-test-{}", std::process::id()));
        let started =
            Command::new(script).arg("start").arg(&dir).stderr(Stdio::inherit()).output().expect("the script runs");
        assert!(started.status.success(), "tests/postgres start failed");
        let stop = format!("cat >/dev/null; exec {script} stop {}", dir.display());
        let watcher = Command::new("sh").args(["-c", &stop]).stdin(Stdio::piped()).spawn().expect("sh runs");
        Self { url: String::from_utf8(started.stdout).expect("a URL").trim().to_owned(), _watcher: watcher }
    }
}

/// The URL of an empty database.
pub fn database() -> String {
    let name = unique("mesh").replace('-', "_");
    let create = format!("CREATE DATABASE {name}");
    let made = Command::new("psql").args(["-X", "-q", &SERVER.url, "-c", &create]).status().expect("psql runs");
    assert!(made.success(), "no database");
    format!("{}{name}", SERVER.url.strip_suffix("postgres").expect("the database that is always there"))
}

/// The durable verbs, as far as these tests need them.
pub trait Durable {
    fn durable_push(&mut self, queue: &str, payload: Value) -> Response;
    fn send_durable_pop(&mut self, queue: &str, query: &str);
    /// The payloads of a pop's answer; none where it is 204.
    fn durable_popped(&mut self) -> Vec<Value>;
}

impl Durable for Connection {
    fn durable_push(&mut self, queue: &str, payload: Value) -> Response {
        let body = serde_json::json!({ "items": [{ "queue": queue, "payload": payload }] });
        self.post("/api/v1/push", body.to_string())
    }

    fn send_durable_pop(&mut self, queue: &str, query: &str) {
        self.send(crate::common::request("GET", &format!("/api/v1/pop/queue/{queue}?{query}"), &[], b""));
    }

    fn durable_popped(&mut self) -> Vec<Value> {
        let answer = self.response();
        match answer.status {
            204 => Vec::new(),
            200 => {
                let body = answer.json();
                body["messages"].as_array().expect("messages").iter().map(|message| message["data"].clone()).collect()
            }
            _ => panic!("{answer:?}"),
        }
    }
}
