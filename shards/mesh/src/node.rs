//! One broker of the mesh, as a state machine.

use std::{
    collections::{BTreeMap, VecDeque},
    net::IpAddr,
    sync::Arc,
};

use queen_fabric::members::Members;
use queen_wire::mesh::{HandshakeError, Identity, Listener, Message, Nonce, Secret};

use crate::inbound::{Heard, Inbound, Over, SPEAKS_HEARTBEATS};
use crate::membership::Membership;
use crate::outbound::{Answered, Fault, Outbound, Queued};
use crate::peers::Peer;
use crate::stats::{FrameKind, Stats};

/// What tells a mesh connection's handshake from a peer link's.
pub(crate) const LABEL: &str = "queen-mesh/1";

/// How long a handshake may take.
pub const HANDSHAKE_MS: u64 = 5_000;

/// Accepted connections whose peers have not proved themselves, at most: more are closed at once.
pub const UNPROVEN_MAX: usize = 64;

/// Ids that are kept in mind, at most. Beyond, those of peers that are dead are forgotten, and others are turned away.
pub const IDS_MAX: usize = 256;

/// Bytes of frames that are not whole, of all connections together, at most: the one that brings more is closed.
pub const INPUT_BYTES_MAX: usize = 64 << 20;

/// A connection, by a number that the shell chose and never uses again.
pub type Connection = u64;

/// What a node of the mesh is told at its start.
#[derive(Clone, Debug)]
pub struct Config {
    /// Who it is.
    pub me: Identity,
    /// Whom it dials.
    pub peers: Vec<Peer>,
    /// What all of them know. Without it nobody proves anything, and the node is its only member.
    pub secret: Option<Secret>,
    /// Whether the old handshake is spoken and taken. Without a secret it always is.
    pub legacy: bool,
    /// How long a connection may be without a frame before a heartbeat is sent, in milliseconds.
    pub heartbeat_ms: u64,
    /// After so long without a frame a peer is reported dead, in milliseconds.
    pub dead_ms: u64,
    /// After so long without a frame a peer is no member, in milliseconds.
    pub member_ttl_ms: u64,
}

/// Something that a peer has said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// Who.
    pub from: Arc<str>,
    /// What.
    pub message: Message,
}

/// What is to be done outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Resolve and dial this peer, by its place in the setting; then say how it went.
    Dial(usize),
    /// Close this connection; nothing more is to be said about it.
    Close(Connection),
    /// A peer has said this.
    Deliver(Delivered),
    /// The members are these from now on.
    Members(Members),
    /// The other end of a connection has this node's own id: a second node has it, or this node is among its own peers.
    OwnId {
        /// The peer's place in the setting; none where it was the other that dialled.
        peer: Option<usize>,
        /// The connection, which is closed next.
        connection: Connection,
        /// Whether this node itself has dialled it.
        is_self: bool,
    },
    /// Two nodes have this id at the same time: the one that came second is refused.
    TwiceThere(Arc<str>),
}

/// The node.
pub struct Node {
    config: Config,
    nonces: Box<dyn FnMut() -> Nonce + Send>,
    outbound: Vec<Outbound>,
    inbound: BTreeMap<Connection, Inbound>,
    membership: Membership,
    /// When each id was last heard, also of those that are no members.
    heard_ms: BTreeMap<Arc<str>, u64>,
    stats: Stats,
    actions: VecDeque<Action>,
    /// The maintenance switches, for pushes and pops: what a peer is told first, so that it need not wait for a change.
    /// None while they are not known, or are no peer's business.
    switches: Option<(bool, bool)>,
    is_leaving: bool,
}

impl Node {
    /// A node that starts now. `nonces` gives random numbers that nobody can guess.
    #[must_use]
    pub fn new(config: Config, nonces: Box<dyn FnMut() -> Nonce + Send>, now_ms: u64) -> Self {
        let outbound: Vec<_> = config.peers.iter().map(|peer| Outbound::new(peer.clone(), now_ms)).collect();
        let provable = if config.secret.is_some() { outbound.len() } else { 0 };
        let membership = Membership::new(config.me.clone(), provable, config.member_ttl_ms, now_ms);
        let actions = VecDeque::from([Action::Members(membership.snapshot().clone())]);
        let mut node = Self {
            config,
            nonces,
            outbound,
            inbound: BTreeMap::new(),
            membership,
            heard_ms: BTreeMap::new(),
            stats: Stats::default(),
            actions,
            switches: None,
            is_leaving: false,
        };
        node.advance(now_ms);
        node
    }

    /// What is to be done, the first of it.
    pub fn take_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Bytes to be sent on a connection, once the last ones are with the socket. To be asked after every other call.
    pub fn take_output(&mut self, connection: Connection, now_ms: u64) -> Option<Vec<u8>> {
        if let Some(inbound) = self.inbound.get_mut(&connection) {
            return inbound.take_output();
        }
        let heartbeat_ms = self.config.heartbeat_ms;
        let outbound = self.outbound.iter_mut().find(|outbound| outbound.connection() == Some(connection));
        outbound.and_then(|outbound| outbound.take_output(heartbeat_ms, now_ms))
    }

    /// When [`advance`](Self::advance) is due.
    #[must_use]
    pub fn next_ms(&self, now_ms: u64) -> Option<u64> {
        let outbound = self.outbound.iter().filter_map(|outbound| outbound.next_ms(now_ms));
        let inbound = self.inbound.values().map(|inbound| self.over(inbound).0);
        outbound.chain(inbound).chain(self.membership.next_ms(now_ms)).min()
    }

    /// Does what is due: dials, gives up handshakes, counts out members that are silent.
    pub fn advance(&mut self, now_ms: u64) {
        for peer in 0..self.outbound.len() {
            if self.outbound[peer].is_late(now_ms) {
                self.stats.failed("timeout");
                self.close_outbound(peer, false, now_ms);
            }
            if self.outbound[peer].is_due(now_ms) {
                self.actions.push_back(Action::Dial(peer));
            }
        }
        let late = |(&connection, inbound): (&Connection, &Inbound)| {
            let (at_ms, over) = self.over(inbound);
            (at_ms <= now_ms).then_some((connection, over))
        };
        for (connection, over) in self.inbound.iter().filter_map(late).collect::<Vec<_>>() {
            match over {
                Over::Unproven => self.stats.failed("timeout"),
                Over::Silent => self.stats.fault("silent"),
                Over::Replaced => {}
            }
            self.close_inbound(connection);
        }
        self.look_at_members(now_ms);
    }

    fn over(&self, inbound: &Inbound) -> (u64, Over) {
        inbound.over(self.config.heartbeat_ms, self.config.dead_ms)
    }

    /// A peer was dialled.
    pub fn dialled(&mut self, peer: usize, connection: Connection, now_ms: u64) {
        let nonce = (self.nonces)();
        let Config { me, secret, heartbeat_ms, .. } = &self.config;
        self.outbound[peer].dialled(connection, secret.as_ref(), me, &nonce, *heartbeat_ms, now_ms);
        if self.config.secret.is_none() {
            self.greet(peer);
        }
    }

    /// A peer could not be dialled.
    pub fn dial_failed(&mut self, peer: usize, now_ms: u64) {
        let jitter = self.jitter();
        self.outbound[peer].ended(false, self.config.legacy, jitter, now_ms);
    }

    /// A connection was accepted that comes from there.
    pub fn accepted(&mut self, connection: Connection, remote: IpAddr, now_ms: u64) {
        let unproven = self.inbound.values().filter(|inbound| inbound.is_unproven()).count();
        if unproven >= UNPROVEN_MAX {
            self.stats.failed("too_many");
            self.actions.push_back(Action::Close(connection));
            return;
        }
        let nonce = (self.nonces)();
        let Config { me, secret, legacy, .. } = &self.config;
        let listener = Listener::new(secret.clone(), LABEL, &me.server_id, *legacy, nonce);
        self.inbound.insert(connection, Inbound::new(remote, listener, now_ms + HANDSHAKE_MS));
    }

    /// A connection was accepted whose other end has reset it already.
    pub fn accepted_too_late(&mut self) {
        self.stats.failed("closed");
    }

    /// Bytes came on a connection.
    pub fn received(&mut self, connection: Connection, bytes: &[u8], now_ms: u64) {
        match self.peer_of(connection) {
            Some(peer) => self.received_outbound(peer, bytes, now_ms),
            None => self.received_inbound(connection, bytes, now_ms),
        }
        self.look_at_members(now_ms);
    }

    fn received_outbound(&mut self, peer: usize, bytes: &[u8], now_ms: u64) {
        match self.outbound[peer].received(bytes, self.config.heartbeat_ms, now_ms) {
            Ok(Answered::Nothing) => {}
            Ok(Answered::Proven(listener)) => {
                self.membership.listener_proved(peer, &listener.server_id.as_str().into());
                self.greet(peer);
            }
            Err(fault) => {
                let is_own = self.count(&fault);
                if is_own {
                    let is_from = |inbound: &Inbound| inbound.is_from(self.outbound[peer].nonce());
                    let is_self = self.inbound.values().any(is_from);
                    let own = |connection| Action::OwnId { peer: Some(peer), connection, is_self };
                    self.actions.extend(self.outbound[peer].connection().map(own));
                }
                self.close_outbound(peer, is_own, now_ms);
            }
        }
    }

    /// What a peer is told before anything else.
    fn greet(&mut self, peer: usize) {
        let outbound = &mut self.outbound[peer];
        if let Some((push, pop)) = self.switches {
            outbound.send_first(Message::Maintenance(push));
            outbound.send_first(Message::PopMaintenance(pop));
        }
        if self.is_leaving {
            outbound.send_first(Message::Leaving);
        }
    }

    fn received_inbound(&mut self, connection: Connection, bytes: &[u8], now_ms: u64) {
        let Some(inbound) = self.inbound.get_mut(&connection) else { return };
        let mut heard = Vec::new();
        let outcome = inbound.received(bytes, now_ms, |what| heard.push(what));
        for what in heard {
            if !self.hear(connection, what, now_ms) {
                return self.close_inbound(connection);
            }
        }
        if let Err(fault) = outcome {
            if self.count(&fault) {
                let is_from = |outbound: &Outbound| self.inbound[&connection].is_from(outbound.nonce());
                let is_self = self.outbound.iter().any(is_from);
                self.actions.push_back(Action::OwnId { peer: None, connection, is_self });
            }
            self.close_inbound(connection);
        } else if self.inbound.values().map(Inbound::input_bytes).sum::<usize>() > INPUT_BYTES_MAX {
            self.stats.fault("no_room");
            self.close_inbound(connection);
        }
    }

    /// Whether the connection may go on.
    fn hear(&mut self, connection: Connection, what: Heard, now_ms: u64) -> bool {
        if let Heard::Peer { peer, is_proven } = &what {
            let id: Arc<str> = peer.server_id.as_str().into();
            if !self.replace_older(connection, &id, peer.epoch, now_ms) {
                self.stats.failed("same_id");
                self.actions.push_back(Action::TwiceThere(id));
                return false;
            }
            if !self.makes_room_for(&id, now_ms) {
                self.stats.failed("too_many");
                return false;
            }
            if *is_proven {
                let remote = self.inbound[&connection].remote();
                self.membership.dialer_proved(peer, remote, now_ms);
            }
        }
        let heartbeat_ms = self.config.heartbeat_ms;
        let Some(inbound) = self.inbound.get_mut(&connection) else { return false };
        let Some(id) = inbound.id().cloned() else { return true };
        let is_proven = inbound.is_proven();
        if inbound.settle(heartbeat_ms, now_ms) {
            self.refuse_newer(connection, &id);
        }
        self.heard_ms.insert(Arc::clone(&id), now_ms);
        if is_proven {
            self.membership.heard(&id, now_ms);
        }
        let kind = match &what {
            Heard::Peer { .. } => return true,
            Heard::Message(message) => FrameKind::of(message),
            Heard::Unknown => FrameKind::Unknown,
            Heard::Malformed => {
                self.stats.fault("malformed");
                return true;
            }
        };
        *self.stats.received.entry((Arc::clone(&id), kind)).or_default() += 1;
        match what {
            Heard::Message(Message::Heartbeat) | Heard::Unknown | Heard::Malformed | Heard::Peer { .. } => {}
            Heard::Message(Message::Leaving) => {
                if is_proven {
                    self.membership.leaves(&id, now_ms);
                }
            }
            Heard::Message(message) => self.actions.push_back(Action::Deliver(Delivered { from: id, message })),
        }
        true
    }

    /// Whether an id can be kept in mind.
    fn makes_room_for(&mut self, id: &Arc<str>, now_ms: u64) -> bool {
        if self.heard_ms.contains_key(id) || self.heard_ms.len() < IDS_MAX {
            return true;
        }
        let oldest = self.heard_ms.iter().min_by_key(|&(_, &at_ms)| at_ms);
        let (oldest, &at_ms) = oldest.expect("there are many");
        if now_ms < at_ms + self.config.dead_ms {
            return false;
        }
        let oldest = Arc::clone(oldest);
        self.heard_ms.remove(&oldest);
        self.stats.received.retain(|(of, _), _| *of != oldest);
        self.membership.forget(&oldest);
        for connection in self.connections_of(&oldest) {
            self.close_inbound(connection);
        }
        true
    }

    /// The accepted connections of an id, the oldest first.
    fn connections_of(&self, id: &Arc<str>) -> Vec<Connection> {
        let of = |(&connection, inbound): (&Connection, &Inbound)| (inbound.id() == Some(id)).then_some(connection);
        let mut connections: Vec<_> = self.inbound.iter().filter_map(of).collect();
        connections.sort_by_key(|connection| (self.inbound[connection].since_ms(), *connection));
        connections
    }

    /// Closes older connections of an id: they are its last incarnation's, or were cut without our noticing. Not where
    /// another incarnation still speaks on one: then two nodes have the same id, and the newcomer has to go.
    ///
    /// The old form does not say of which incarnation it is: there the oldest connection stays beside the newcomer until it
    /// shows by being used that there are two nodes, or by not being used that it was left.
    fn replace_older(&mut self, connection: Connection, id: &Arc<str>, epoch: Option<u64>, now_ms: u64) -> bool {
        let mut older = self.connections_of(id);
        older.retain(|&other| other != connection);
        let speaks_ms = SPEAKS_HEARTBEATS * self.config.heartbeat_ms;
        let speaks = self.heard_ms.get(id).is_some_and(|&at_ms| now_ms < at_ms + speaks_ms);
        match epoch {
            Some(_) if speaks && older.iter().any(|other| self.inbound[other].epoch() != epoch) => return false,
            Some(_) => {}
            None if older.is_empty() => {}
            None => {
                let oldest = older.remove(0);
                self.inbound.get_mut(&oldest).expect("just found").doubt(now_ms);
            }
        }
        for other in older {
            self.close_inbound(other);
        }
        true
    }

    /// Two nodes use an id at the same time, the first of them on this connection: the other one's are closed.
    fn refuse_newer(&mut self, connection: Connection, id: &Arc<str>) {
        for other in self.connections_of(id) {
            if other != connection {
                self.stats.failed("same_id");
                self.close_inbound(other);
                self.actions.push_back(Action::TwiceThere(Arc::clone(id)));
            }
        }
    }

    /// A connection takes nothing of what is to be sent on it, and for too long: it is to be closed.
    pub fn stalled(&mut self, connection: Connection, now_ms: u64) {
        self.stats.fault("stalled");
        match self.peer_of(connection) {
            Some(peer) => self.close_outbound(peer, false, now_ms),
            None => self.close_inbound(connection),
        }
        self.look_at_members(now_ms);
    }

    /// A connection ended by itself.
    pub fn closed(&mut self, connection: Connection, now_ms: u64) {
        if self.inbound.remove(&connection).is_some_and(|inbound| inbound.is_unproven()) {
            self.stats.failed("closed");
        }
        if let Some(peer) = self.peer_of(connection) {
            let jitter = self.jitter();
            self.outbound[peer].ended(false, self.config.legacy, jitter, now_ms);
        }
        self.look_at_members(now_ms);
    }

    /// Says something to every peer: a hint, which may be lost.
    pub fn send(&mut self, message: Message) {
        let queued = Queued::new(message);
        for outbound in &mut self.outbound {
            outbound.send(&queued);
        }
    }

    /// The maintenance switches, for pushes and pops, are these: peers that come later are told so first of all, those that
    /// are there if `tell_push` and `tell_pop` say so.
    pub fn set_switches(&mut self, (push, tell_push): (bool, bool), (pop, tell_pop): (bool, bool)) {
        self.switches = Some((push, pop));
        for outbound in &mut self.outbound {
            if tell_push {
                outbound.send_first(Message::Maintenance(push));
            }
            if tell_pop {
                outbound.send_first(Message::PopMaintenance(pop));
            }
        }
    }

    /// This node owns nothing from here on, and says so.
    pub fn leave(&mut self, now_ms: u64) {
        self.is_leaving = true;
        self.membership.leave();
        for outbound in &mut self.outbound {
            outbound.send_first(Message::Leaving);
        }
        self.look_at_members(now_ms);
    }

    /// Whether every peer that can be reached has been handed what it has to know first: switches, or a farewell.
    #[must_use]
    pub fn has_said_first(&self) -> bool {
        self.outbound.iter().all(Outbound::has_said_first)
    }

    /// The members now.
    #[must_use]
    pub fn members(&self) -> &Members {
        self.membership.snapshot()
    }

    /// Ids that were heard, and whether they count as alive now.
    pub fn alive(&self, now_ms: u64) -> impl Iterator<Item = (&Arc<str>, bool)> {
        self.heard_ms.iter().map(move |(id, &at_ms)| (id, now_ms < at_ms + self.config.dead_ms))
    }

    /// Which peer a connection was dialled to, by its place in the setting, while it is there.
    #[must_use]
    pub fn peer_of(&self, connection: Connection) -> Option<usize> {
        self.outbound.iter().position(|outbound| outbound.connection() == Some(connection))
    }

    /// Whether frames can be sent to a peer now.
    #[must_use]
    pub fn is_connected(&self, peer: usize) -> bool {
        self.outbound[peer].is_up()
    }

    /// What was counted.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats { peers: self.outbound.iter().map(Outbound::stats).collect(), ..self.stats.clone() }
    }

    /// Counts why a connection is closed; whether it was this node's own id.
    fn count(&mut self, fault: &Fault) -> bool {
        match fault {
            Fault::Frame(error) => self.stats.fault(error.reason()),
            Fault::Handshake(error) => self.stats.handshake_failed(*error),
        }
        matches!(fault, Fault::Handshake(HandshakeError::SameId))
    }

    fn close_outbound(&mut self, peer: usize, is_own: bool, now_ms: u64) {
        let jitter = self.jitter();
        let outbound = &mut self.outbound[peer];
        self.actions.extend(outbound.connection().map(Action::Close));
        outbound.ended(is_own, self.config.legacy, jitter, now_ms);
    }

    fn close_inbound(&mut self, connection: Connection) {
        if self.inbound.remove(&connection).is_some() {
            self.actions.push_back(Action::Close(connection));
        }
    }

    fn look_at_members(&mut self, now_ms: u64) {
        self.actions.extend(self.membership.advance(now_ms).map(Action::Members));
    }

    fn jitter(&mut self) -> u64 {
        let nonce = (self.nonces)();
        u64::from_le_bytes(*nonce.first_chunk().expect("a nonce is longer"))
    }
}
