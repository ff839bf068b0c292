//! The mesh's tasks: sockets and a clock around a [`Node`], and lanes to the other roles.
//!
//! One task accepts, one looks at the clock, one serves the lane, one hands on what peers say, and each connection has one.
//! Whatever happens they tell the node, in a plain call, and do what it wants done. What peers say is handed on one thing
//! at a time: while more than a few wait, nothing more is read, so that a peer that floods holds itself up.

mod report;
mod socket;

use std::{
    cell::{Cell, RefCell},
    collections::{HashMap, VecDeque},
    future::{pending, poll_fn},
    io,
    net::{IpAddr, SocketAddr},
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use queen_fabric::{
    ShardId,
    members::Members,
    port::{Incoming, Port, Ticket},
    protocol::mesh::{Alone, MeshAnswer, MeshAsk, MeshProtocol, ROLE_SEATS, store_seat},
    rt::{self, Deadline, Notify, TcpListener, TcpStream, within},
    slice,
};
use queen_wire::mesh::{Message, Nonce, QueueName};

use self::socket::Socket;
use crate::{Action, Config, Connection, Node};

/// From looking a peer's name up to a connection.
const DIAL_PATIENCE: Duration = Duration::from_secs(5);

/// A peer that takes nothing and says nothing is asked whether it is there.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(5);

/// Things that peers have said and that wait to be handed on: with so many, nothing is read.
const HEARD_MAX: usize = 64;

/// Bytes that they hold: with so many, nothing is read either.
const HEARD_BYTES_MAX: usize = 4 << 20;

/// How long a farewell may take to leave.
const FAREWELL_PATIENCE: Duration = Duration::from_millis(200);

/// How often it is looked whether it has.
const FAREWELL_TICK: Duration = Duration::from_millis(1);

/// How long a listener that has no descriptor left pauses.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The same trouble is logged this often at most.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// What the mesh role is told at its start.
#[derive(Clone, Debug)]
pub struct MeshConfig {
    /// Why there is no mesh, if so: then nothing is listened for and nobody is dialled.
    pub alone: Option<Alone>,
    /// The node; without peers where it is alone.
    pub node: Config,
    /// Where peers connect.
    pub listen: SocketAddr,
}

/// Runs the mesh until it is dropped. When `stop` resolves, peers are told that this node leaves; `left` is called once
/// they have been.
///
/// # Errors
///
/// When the listener cannot be had.
pub async fn run(
    config: MeshConfig,
    port: Port<MeshProtocol>,
    stop: impl Future<Output = ()>,
    left: impl FnOnce(),
) -> io::Result<()> {
    let listener = config.alone.is_none().then(|| TcpListener::bind(config.listen)).transpose()?;
    let role = Role::new(config, port);
    // Dropped with this future.
    let _tasks = [
        rt::spawn_local(Rc::clone(&role).serve_lane()),
        rt::spawn_local(Rc::clone(&role).look_at_clock()),
        rt::spawn_local(Rc::clone(&role).hand_on()),
        rt::spawn_local(Rc::clone(&role).accept(listener)),
    ];
    role.act();
    stop.await;
    role.node.borrow_mut().leave(role.now_ms());
    role.act();
    let _said_or_late = within(FAREWELL_PATIENCE, role.farewell()).await;
    left();
    pending().await
}

/// What the tasks share. No borrow of a cell lives across an `.await`, or a call of a waker.
struct Role {
    config: MeshConfig,
    port: Port<MeshProtocol>,
    node: RefCell<Node>,
    started: Instant,
    sockets: RefCell<HashMap<Connection, Rc<Socket>>>,
    last_connection: Cell<Connection>,
    /// Where sockets are read into.
    scratch: RefCell<Box<[u8]>>,
    /// The node may want to be called at another time.
    rearm: Notify,
    members: RefCell<Arc<Members>>,
    /// Those who have these members, and wait for others.
    watchers: RefCell<Vec<Ticket>>,
    /// What peers have said, and to whom.
    heard: RefCell<VecDeque<(ShardId, Message)>>,
    /// Bytes that it holds.
    heard_bytes: Cell<usize>,
    arrived: Notify,
    /// What other roles had no room for.
    unsaid: Cell<u64>,
    /// Of each peer, what was logged last.
    logged: Box<[Cell<Logged>]>,
    /// When each trouble was logged last.
    warned: [Cell<Option<Instant>>; TROUBLES],
}

/// What may go wrong over and over.
#[derive(Clone, Copy)]
enum Trouble {
    TwiceThere,
    OwnId,
    Accepting,
    Serving,
}

/// How many of them there are.
const TROUBLES: usize = Trouble::Serving as usize + 1;

/// What was logged of a peer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Logged {
    Nothing,
    Connected,
    Away,
}

impl Role {
    fn new(config: MeshConfig, port: Port<MeshProtocol>) -> Rc<Self> {
        let started = Instant::now();
        let node = Node::new(config.node.clone(), Box::new(nonce), 0);
        let members = RefCell::new(Arc::new(node.members().clone()));
        Rc::new(Self {
            logged: config.node.peers.iter().map(|_| Cell::new(Logged::Nothing)).collect(),
            config,
            port,
            node: RefCell::new(node),
            started,
            sockets: RefCell::default(),
            last_connection: Cell::new(0),
            scratch: RefCell::new(vec![0; socket::SCRATCH_BYTES].into_boxed_slice()),
            rearm: Notify::new(),
            members,
            watchers: RefCell::default(),
            heard: RefCell::default(),
            heard_bytes: Cell::new(0),
            arrived: Notify::new(),
            unsaid: Cell::new(0),
            warned: Default::default(),
        })
    }

    /// Waits until sockets have taken what peers have to know first.
    async fn farewell(&self) {
        while !self.node.borrow().has_said_first() || !self.sockets.borrow().values().all(|socket| socket.is_idle()) {
            rt::sleep(FAREWELL_TICK).await;
        }
    }

    fn now_ms(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    /// Does what the node wants done, and lets every connection look for something to send.
    fn act(self: &Rc<Self>) {
        loop {
            let action = self.node.borrow_mut().take_action();
            let Some(action) = action else { break };
            match action {
                Action::Dial(peer) => rt::spawn_local(Rc::clone(self).dial(peer)).detach(),
                Action::Close(connection) => {
                    if let Some(socket) = self.sockets.borrow_mut().remove(&connection) {
                        socket.close();
                    }
                }
                Action::Deliver(delivered) => self.deliver(delivered.message),
                Action::Members(members) => self.members_are(members),
                Action::OwnId { peer, connection, is_self } => self.own_id(peer, connection, is_self),
                Action::TwiceThere(id) => self.warn(Trouble::TwiceThere, || {
                    tracing::error!(
                        server_id = &*id,
                        "two brokers have this id: the one that came second is refused; give each its own QUEEN_SERVER_ID"
                    );
                }),
            }
        }
        self.log_connections();
        self.rearm.notify();
        for socket in self.sockets.borrow().values() {
            socket.look();
        }
    }

    /// Hands a message on to the role that it is for.
    fn deliver(&self, message: Message) {
        let to = match &message {
            // A verb that destroys is not for every tenant that happens to have such a queue.
            Message::EphemeralAdmin(_, QueueName { tenant: None, .. }) => return,
            Message::EphemeralAdmin(_, QueueName { tenant: Some(tenant), queue }) => {
                slice::owner(slice::slice(tenant, queue), self.port.shards() - ROLE_SEATS)
            }
            _ => store_seat(self.port.shards()),
        };
        self.heard_bytes.set(self.heard_bytes.get() + message.held_bytes());
        self.heard.borrow_mut().push_back((to, message));
        self.arrived.notify();
    }

    /// Whether so much waits to be handed on that nothing is to be read.
    fn is_behind(&self) -> bool {
        self.heard.borrow().len() >= HEARD_MAX || self.heard_bytes.get() >= HEARD_BYTES_MAX
    }

    async fn hand_on(self: Rc<Self>) {
        loop {
            let was_behind = self.is_behind();
            let next = self.heard.borrow_mut().pop_front();
            let Some((to, message)) = next else {
                self.arrived.wait().await;
                continue;
            };
            self.heard_bytes.set(self.heard_bytes.get() - message.held_bytes());
            match self.port.ask(to, MeshAsk::Heard(Box::new(message))) {
                Ok(asked) => drop(asked.await),
                Err(_) => unreachable!("one question at a time has its credit"),
            }
            if was_behind && !self.is_behind() {
                self.sockets.borrow().values().for_each(|socket| socket.look());
            }
        }
    }

    fn members_are(&self, members: Members) {
        let ids: Vec<_> = members.members.iter().map(|member| &*member.id).collect();
        tracing::info!(starting = members.is_starting, "members: {}", ids.join(", "));
        let members = Arc::new(members);
        self.members.replace(Arc::clone(&members));
        for watcher in self.watchers.take() {
            self.port.answer(watcher, MeshAnswer::Members(Arc::clone(&members)));
        }
    }

    fn own_id(&self, peer: Option<usize>, connection: Connection, is_self: bool) {
        let sockets = self.sockets.borrow();
        let Some(socket) = sockets.get(&connection) else { return };
        // By the time that its answer comes, the other end of a connection to itself may be gone.
        let is_here =
            |peer: usize| socket.is_to_own_host() && self.config.node.peers[peer].port == self.config.listen.port();
        let is_self = is_self || peer.is_some_and(is_here);
        let id = &*self.config.node.me.server_id;
        if is_self {
            tracing::debug!("this broker is among its own peers");
        } else {
            let remote = socket.remote();
            self.warn(Trouble::OwnId, || {
                tracing::error!(
                    server_id = id,
                    "the broker at {remote} has this broker's id and is refused: give each its own QUEEN_SERVER_ID"
                );
            });
        }
    }

    /// Logs, but not the same over and over.
    fn warn(&self, trouble: Trouble, log: impl FnOnce()) {
        let warned = &self.warned[trouble as usize];
        if warned.get().is_none_or(|at| at.elapsed() >= WARN_EVERY) {
            warned.set(Some(Instant::now()));
            log();
        }
    }

    /// Says which peers can be reached now, where that has changed.
    fn log_connections(&self) {
        let node = self.node.borrow();
        for (index, (peer, logged)) in self.config.node.peers.iter().zip(&self.logged).enumerate() {
            match (node.is_connected(index), logged.get()) {
                (true, Logged::Nothing | Logged::Away) => {
                    logged.set(Logged::Connected);
                    tracing::info!("peer {peer} is connected");
                }
                (false, Logged::Connected) => {
                    logged.set(Logged::Away);
                    tracing::warn!("peer {peer} is not connected any more; it is dialled again until it is");
                }
                _ => {}
            }
        }
    }

    async fn dial(self: Rc<Self>, peer: usize) {
        let to = &self.config.node.peers[peer];
        let outcome = match within(DIAL_PATIENCE, TcpStream::connect_to(&to.host, to.port)).await {
            Some(outcome) => outcome.and_then(|stream| self.adopt(stream)).map_err(|error| error.to_string()),
            None => Err(format!("no answer within {} s", DIAL_PATIENCE.as_secs())),
        };
        match outcome {
            Ok(connection) => self.node.borrow_mut().dialled(peer, connection, self.now_ms()),
            Err(error) => {
                if self.logged[peer].replace(Logged::Away) == Logged::Nothing {
                    tracing::warn!("peer {to} cannot be reached: {error}; it is dialled again until it can");
                }
                self.node.borrow_mut().dial_failed(peer, self.now_ms());
            }
        }
        self.act();
    }

    async fn accept(self: Rc<Self>, listener: Option<TcpListener>) {
        let Some(listener) = listener else { return };
        loop {
            let stream = match listener.accept().await {
                Ok(stream) => stream,
                Err(error) => {
                    self.warn(Trouble::Accepting, || {
                        tracing::warn!("a connection to the mesh could not be accepted: {error}")
                    });
                    rt::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            // One that was reset meanwhile has no address, and must not make the next one wait.
            let Ok(remote) = stream.peer_addr() else {
                self.node.borrow_mut().accepted_too_late();
                continue;
            };
            match self.adopt(stream) {
                Ok(connection) => {
                    self.node.borrow_mut().accepted(connection, remote.ip(), self.now_ms());
                    self.act();
                }
                Err(error) => self
                    .warn(Trouble::Serving, || tracing::warn!("a connection to the mesh could not be served: {error}")),
            }
        }
    }

    /// Takes a connection in; a task of its own serves it from the next turn on.
    fn adopt(self: &Rc<Self>, stream: TcpStream) -> io::Result<Connection> {
        stream.set_keepalive(KEEPALIVE_IDLE)?;
        let socket = Rc::new(Socket::new(&stream)?);
        let connection = self.last_connection.get() + 1;
        self.last_connection.set(connection);
        self.sockets.borrow_mut().insert(connection, Rc::clone(&socket));
        rt::spawn_local(socket::serve(Rc::clone(self), connection, stream, socket)).detach();
        Ok(connection)
    }

    async fn look_at_clock(self: Rc<Self>) {
        let mut deadline = Deadline::new();
        loop {
            let next_ms = self.node.borrow().next_ms(self.now_ms());
            deadline.set(next_ms.map(|at_ms| self.started + Duration::from_millis(at_ms)));
            let is_due = poll_fn(|cx| match deadline.poll(cx) {
                std::task::Poll::Ready(()) => std::task::Poll::Ready(true),
                std::task::Poll::Pending => self.rearm.poll_wait(cx).map(|()| false),
            });
            if is_due.await {
                self.node.borrow_mut().advance(self.now_ms());
                self.act();
            }
        }
    }

    async fn serve_lane(self: Rc<Self>) {
        loop {
            match poll_fn(|cx| self.port.poll_incoming(cx)).await {
                Incoming::Ask { ticket, ask } => self.serve_ask(ticket, ask),
                Incoming::Cancel { ticket } => {
                    let mut watchers = self.watchers.borrow_mut();
                    if let Some(at) = watchers.iter().position(|&watcher| watcher == ticket) {
                        watchers.swap_remove(at);
                        self.port.answer(ticket, MeshAnswer::Members(Arc::clone(&self.members.borrow())));
                    }
                }
                Incoming::Tell { tell, .. } => match tell {},
                Incoming::Orphan { .. } => {}
            }
        }
    }

    fn serve_ask(self: &Rc<Self>, ticket: Ticket, ask: MeshAsk) {
        let answer = match ask {
            MeshAsk::Say { message, unsaid } => {
                self.unsaid.set(self.unsaid.get() + unsaid);
                self.node.borrow_mut().send(*message);
                self.act();
                MeshAnswer::Done
            }
            MeshAsk::Switches { push, pop, tell_push, tell_pop } => {
                self.node.borrow_mut().set_switches((push, tell_push), (pop, tell_pop));
                self.act();
                MeshAnswer::Done
            }
            MeshAsk::WatchMembers { seen } => {
                let members = Arc::clone(&self.members.borrow());
                if members.version == seen {
                    self.watchers.borrow_mut().push(ticket);
                    return;
                }
                MeshAnswer::Members(members)
            }
            MeshAsk::Report => MeshAnswer::Report(Box::new(self.report())),
            // Only this role says what was heard.
            MeshAsk::Heard(_) => MeshAnswer::Done,
        };
        self.port.answer(ticket, answer);
    }

    /// Where the connection to a peer leads, while there is one.
    fn remote_of(&self, peer: usize) -> Option<IpAddr> {
        let node = self.node.borrow();
        let sockets = self.sockets.borrow();
        sockets
            .iter()
            .find(|&(&connection, _)| node.peer_of(connection) == Some(peer))
            .map(|(_, socket)| socket.remote())
    }
}

/// Random bytes that nobody can guess.
fn nonce() -> Nonce {
    let mut nonce = Nonce::default();
    aws_lc_rs::rand::fill(&mut nonce).expect("the system has random numbers");
    nonce
}
