//! Three to five nodes in virtual time, on a network that delays, stalls, cuts and parts, with crashes and restarts: after
//! every run that ends in calm, all nodes agree on who is a member and on every owner.
//!
//! A run is its seed: what fails prints it, and `QUEEN_MESH_SEED` runs that one alone.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    net::{IpAddr, Ipv4Addr},
};

use queen_mesh::{Action, Config, Connection, Node, Peer};
use queen_wire::mesh::{Identity, Message, Place, Secret};

const REMOTE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

const SEEDS: u64 = 300;

/// How long faults go on.
const STORM_MS: u64 = 60_000;

/// After so long without faults all nodes have to agree: the longest pause between two dials, a handshake that is stuck,
/// and some time; less than a node that left is left out.
const CALM_MS: u64 = 20_000;

/// SplitMix64.
#[derive(Clone)]
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// What happens at a time, after what was planned for the same time before.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A dial has come to its end.
    Dialled { from: usize, incarnation: u64, peer: usize },
    /// The first bytes on their way to this end of a connection have arrived.
    Arrived { connection: Connection, to_listener: bool },
    /// This end of a connection hears of its end.
    Closed { connection: Connection, at_listener: bool },
    /// A node looks at the clock.
    Advance { node: usize, incarnation: u64 },
    /// Something goes wrong, or well again.
    Fault,
}

struct Wire {
    /// The dialer and the listener, each with its incarnation.
    ends: [(usize, u64); 2],
    /// Bytes on their way to the dialer and to the listener.
    flying: [VecDeque<(u64, Vec<u8>)>; 2],
    /// Ends that have not heard of the connection's end.
    open: [bool; 2],
}

struct World {
    seed: u64,
    numbers: Numbers,
    now_ms: u64,
    events: BTreeMap<(u64, u64), Event>,
    planned: u64,
    nodes: Vec<Option<Node>>,
    incarnations: Vec<u64>,
    wires: BTreeMap<Connection, Wire>,
    next_connection: Connection,
    /// Pairs between which nothing passes, in this direction.
    parted: BTreeSet<(usize, usize)>,
    is_calm: bool,
    has_left: BTreeSet<usize>,
    /// When each node looks at the clock next, as far as it is planned.
    advances_ms: Vec<u64>,
    heard: BTreeMap<(usize, String), u64>,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut numbers = Numbers(seed);
        let count = 3 + numbers.below(3) as usize;
        let mut world = Self {
            seed,
            numbers,
            now_ms: 0,
            events: BTreeMap::new(),
            planned: 0,
            nodes: (0..count).map(|_| None).collect(),
            incarnations: vec![0; count],
            wires: BTreeMap::new(),
            next_connection: 1,
            parted: BTreeSet::new(),
            is_calm: false,
            has_left: BTreeSet::new(),
            advances_ms: vec![0; count],
            heard: BTreeMap::new(),
        };
        for node in 0..count {
            world.start(node);
        }
        world.plan(100, Event::Fault);
        world
    }

    fn plan(&mut self, after_ms: u64, event: Event) {
        self.planned += 1;
        self.events.insert((self.now_ms + after_ms, self.planned), event);
    }

    fn start(&mut self, node: usize) {
        self.incarnations[node] += 1;
        self.advances_ms[node] = 0;
        self.has_left.remove(&node);
        // Another incarnation has another address: a peer is dialled by its name.
        let me = Identity {
            server_id: format!("node-{node}"),
            http_addr: format!("http://10.0.{node}.{}:6632", self.incarnations[node]),
            epoch: self.incarnations[node] << 8 | node as u64,
        };
        let others = (0..self.nodes.len()).filter(|&other| other != node);
        let peers = others.map(|other| Peer { host: format!("node-{other}"), port: 6633 }).collect();
        let config = Config {
            me,
            peers,
            secret: Secret::new("known to all"),
            legacy: false,
            heartbeat_ms: 1_000,
            dead_ms: 5_000,
            member_ttl_ms: 4_000,
        };
        let mut nonces = Numbers(self.seed ^ self.incarnations[node] << 32 ^ node as u64);
        let nonces = Box::new(move || {
            let (one, other) = (nonces.next().to_le_bytes(), nonces.next().to_le_bytes());
            let mut nonce = [0; 16];
            nonce[..8].copy_from_slice(&one);
            nonce[8..].copy_from_slice(&other);
            nonce
        });
        self.nodes[node] = Some(Node::new(config, nonces, self.now_ms));
        self.settle(node);
    }

    /// The process is gone: its connections end for the other side, sooner or later.
    fn crash(&mut self, node: usize) {
        self.nodes[node] = None;
        let here = self.incarnations[node];
        let ended: Vec<_> =
            self.wires.iter().filter(|(_, wire)| wire.ends.contains(&(node, here))).map(|(&id, _)| id).collect();
        for connection in ended {
            let at_listener = self.wires[&connection].ends[1] != (node, here);
            let delay_ms = self.delay();
            self.plan(delay_ms, Event::Closed { connection, at_listener });
        }
    }

    fn delay(&mut self) -> u64 {
        if self.is_calm {
            return 1;
        }
        match self.numbers.below(20) {
            0 => self.numbers.below(3_000),
            _ => 1 + self.numbers.below(30),
        }
    }

    /// The place in a node's setting of another node, and back.
    fn named(node: usize, peer: usize) -> usize {
        if peer < node { peer } else { peer + 1 }
    }

    /// Does what a node wants done, and sends what it has to send.
    fn settle(&mut self, node: usize) {
        let incarnation = self.incarnations[node];
        let Some(state) = &mut self.nodes[node] else { return };
        let mut actions = Vec::new();
        while let Some(action) = state.take_action() {
            actions.push(action);
        }
        for action in actions {
            match action {
                Action::Dial(peer) => {
                    let delay_ms = self.delay();
                    self.plan(delay_ms, Event::Dialled { from: node, incarnation, peer });
                }
                Action::Close(connection) => self.close(connection, node),
                Action::Deliver(delivered) => {
                    *self.heard.entry((node, delivered.from.to_string())).or_default() += 1;
                }
                Action::Members(_) | Action::TwiceThere(_) => {}
                Action::OwnId { .. } => panic!("seed {}: nobody dials itself", self.seed),
            }
        }
        let mine: Vec<_> =
            self.wires.iter().filter(|(_, wire)| wire.ends.contains(&(node, incarnation))).map(|(&id, _)| id).collect();
        for connection in mine {
            let Some(bytes) = self.nodes[node].as_mut().and_then(|state| state.take_output(connection, self.now_ms))
            else {
                continue;
            };
            let to_listener = self.wires[&connection].ends[0] == (node, incarnation);
            let [dialer, listener] = self.wires[&connection].ends;
            let way = if to_listener { (dialer.0, listener.0) } else { (listener.0, dialer.0) };
            if self.parted.contains(&way) {
                // It will never arrive; neither end is told.
                continue;
            }
            let delay_ms = self.delay();
            let wire = self.wires.get_mut(&connection).expect("just seen");
            let queue = &mut wire.flying[usize::from(to_listener)];
            // In order within a connection, whatever the delays are.
            let at_ms = queue.back().map_or(0, |&(at_ms, _)| at_ms).max(self.now_ms + delay_ms);
            // Cut into pieces where the numbers say so: frames begin and end anywhere.
            let cut = self.numbers.below(bytes.len() as u64 + 1) as usize;
            for piece in [&bytes[..cut], &bytes[cut..]] {
                if !piece.is_empty() {
                    queue.push_back((at_ms, piece.to_vec()));
                    self.planned += 1;
                    self.events.insert((at_ms, self.planned), Event::Arrived { connection, to_listener });
                }
            }
        }
        let Some(next_ms) = self.nodes[node].as_ref().and_then(|state| state.next_ms(self.now_ms)) else { return };
        let (at_ms, planned_ms) = (next_ms.max(self.now_ms + 1), self.advances_ms[node]);
        if planned_ms <= self.now_ms || at_ms < planned_ms {
            self.advances_ms[node] = at_ms;
            self.plan(at_ms - self.now_ms, Event::Advance { node, incarnation });
        }
    }

    /// A node closes its end.
    fn close(&mut self, connection: Connection, node: usize) {
        let Some(wire) = self.wires.get_mut(&connection) else { return };
        let at_listener = wire.ends[0] != (node, self.incarnations[node]);
        wire.open[usize::from(at_listener)] = false;
        let delay_ms = self.delay();
        self.plan(delay_ms, Event::Closed { connection, at_listener: !at_listener });
    }

    fn is_here(&self, (node, incarnation): (usize, u64)) -> bool {
        self.nodes[node].is_some() && self.incarnations[node] == incarnation
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Advance { node, incarnation } => {
                if self.is_here((node, incarnation)) {
                    let now_ms = self.now_ms;
                    self.nodes[node].as_mut().expect("here").advance(now_ms);
                    self.settle(node);
                }
            }
            Event::Dialled { from, incarnation, peer } => self.dialled(from, incarnation, peer),
            Event::Arrived { connection, to_listener } => {
                let Some(wire) = self.wires.get_mut(&connection) else { return };
                let Some((_, bytes)) = wire.flying[usize::from(to_listener)].pop_front() else { return };
                let end = wire.ends[usize::from(to_listener)];
                if wire.open[usize::from(to_listener)] && self.is_here(end) {
                    let now_ms = self.now_ms;
                    self.nodes[end.0].as_mut().expect("here").received(connection, &bytes, now_ms);
                    self.settle(end.0);
                }
            }
            Event::Closed { connection, at_listener } => {
                let Some(wire) = self.wires.get_mut(&connection) else { return };
                let end = wire.ends[usize::from(at_listener)];
                let was_open = std::mem::replace(&mut wire.open[usize::from(at_listener)], false);
                if wire.open == [false; 2] {
                    self.wires.remove(&connection);
                }
                if was_open && self.is_here(end) {
                    let now_ms = self.now_ms;
                    self.nodes[end.0].as_mut().expect("here").closed(connection, now_ms);
                    self.settle(end.0);
                }
            }
            Event::Fault => self.fault(),
        }
    }

    fn dialled(&mut self, from: usize, incarnation: u64, peer: usize) {
        if !self.is_here((from, incarnation)) {
            return;
        }
        let to = Self::named(from, peer);
        let now_ms = self.now_ms;
        let reaches =
            self.nodes[to].is_some() && !self.parted.contains(&(from, to)) && !self.parted.contains(&(to, from));
        if !reaches {
            self.nodes[from].as_mut().expect("here").dial_failed(peer, now_ms);
            return self.settle(from);
        }
        let connection = self.next_connection;
        self.next_connection += 1;
        let ends = [(from, incarnation), (to, self.incarnations[to])];
        self.wires.insert(connection, Wire { ends, flying: [VecDeque::new(), VecDeque::new()], open: [true; 2] });
        self.nodes[to].as_mut().expect("here").accepted(connection, REMOTE, now_ms);
        self.nodes[from].as_mut().expect("here").dialled(peer, connection, now_ms);
        self.settle(to);
        self.settle(from);
    }

    fn fault(&mut self) {
        if self.now_ms >= STORM_MS {
            return;
        }
        let count = self.nodes.len() as u64;
        let (one, other) = (self.numbers.below(count) as usize, self.numbers.below(count) as usize);
        match self.numbers.below(10) {
            0 => self.crash(one),
            1..=2 => {
                if self.nodes[one].is_none() {
                    self.start(one);
                }
            }
            3 => {
                self.crash(one);
                self.start(one);
            }
            4 if one != other => {
                // One way alone, or both.
                self.parted.insert((one, other));
                if self.numbers.below(2) == 0 {
                    self.parted.insert((other, one));
                }
            }
            5..=6 => self.parted.clear(),
            7 => {
                let now_ms = self.now_ms;
                if let Some(node) = &mut self.nodes[one] {
                    node.leave(now_ms);
                    self.has_left.insert(one);
                    self.settle(one);
                }
            }
            _ => {
                if let Some(node) = &mut self.nodes[one] {
                    node.send(Message::Available(vec![Place { queue: "q".into(), partition: None, tenant: None }]));
                    self.settle(one);
                }
            }
        }
        let pause_ms = 50 + self.numbers.below(2_000);
        self.plan(pause_ms, Event::Fault);
    }

    fn run_until(&mut self, end_ms: u64) {
        while let Some((&(at_ms, number), _)) = self.events.first_key_value()
            && at_ms <= end_ms
        {
            let event = self.events.remove(&(at_ms, number)).expect("just seen");
            self.now_ms = self.now_ms.max(at_ms);
            self.happen(event);
        }
        self.now_ms = end_ms;
    }

    /// Everything is well from here on. Those that have left or crashed start again, the others just go on.
    fn calm(&mut self) {
        self.is_calm = true;
        self.parted.clear();
        for node in 0..self.nodes.len() {
            if self.has_left.contains(&node) {
                self.crash(node);
            }
            if self.nodes[node].is_none() {
                self.start(node);
            }
        }
        self.run_until(STORM_MS + CALM_MS);
        self.check();
        // One is gone for a while.
        let gone = self.numbers.below(self.nodes.len() as u64) as usize;
        self.crash(gone);
        self.run_until(STORM_MS + 2 * CALM_MS);
        self.check();
        self.start(gone);
        self.run_until(STORM_MS + 3 * CALM_MS);
        self.check();
    }

    /// All that are there agree that they are the members.
    fn check(&self) {
        let seed = self.seed;
        let here: Vec<_> = (0..self.nodes.len()).filter(|&node| self.nodes[node].is_some()).collect();
        let expected: Vec<_> = here.iter().map(|node| format!("node-{node}")).collect();
        for &index in &here {
            let members = self.nodes[index].as_ref().expect("it is there").members();
            let ids: Vec<_> = members.members.iter().map(|member| member.id.to_string()).collect();
            assert_eq!(ids, expected, "seed {seed}: what node {index} knows");
            assert!(!members.is_starting, "seed {seed}: node {index} has started");
            for (member, &node) in members.members.iter().zip(&here) {
                let incarnation = self.incarnations[node];
                assert_eq!(member.epoch >> 8, incarnation, "seed {seed}: node {index} knows the last incarnation");
                assert!(member.http_addr.ends_with(&format!(".{incarnation}:6632")), "seed {seed}: and its address");
            }
        }
        let first = self.nodes[here[0]].as_ref().expect("it is there").members();
        for partition in (0..50).map(|n| n.to_string()) {
            let owner = |members: &queen_fabric::members::Members| {
                members.owner(&[1; 16], "queue", &partition).map(|member| member.id.clone())
            };
            for node in self.nodes.iter().flatten() {
                assert_eq!(owner(node.members()), owner(first), "seed {seed}: the owner of {partition}");
            }
        }
    }
}

#[test]
fn after_a_storm_all_nodes_agree_on_members_and_owners() {
    let one = std::env::var("QUEEN_MESH_SEED").ok().and_then(|seed| seed.parse().ok());
    let seeds = one.map_or(1..SEEDS + 1, |seed| seed..seed + 1);
    let mut heard = 0;
    for seed in seeds {
        let mut world = World::new(seed);
        world.run_until(STORM_MS);
        heard += world.heard.values().sum::<u64>();
        world.calm();
    }
    assert!(heard > 0, "hints come through a storm too");
}
