//! One data shard: what it owns, how it starts, and how it stops.

use std::{
    cell::{Cell, RefCell},
    future::Future,
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use queen_auth::Authenticator;
use queen_ephemeral::{Engine, EngineConfig, Millis};
use queen_fabric::{
    ShardId,
    port::{Port, PortSeed},
    protocol::{
        mesh::MeshProtocol,
        store::{Declaration, StoreProtocol},
    },
    rt,
};
use queen_wire::http::Limits;

use crate::{
    admission::Auth,
    budget::{Counted, Share},
    clock::Clock,
    cluster::{Declared, Handover, Holding, Links},
    connection::{Buffers, Out},
    ephemeral::declare::Declarations,
    grants::Grants,
    listener,
    mesh::MeshLane,
    node::Node,
    observe::Metrics,
    outlet::Outlet,
    protocol::DataProtocol,
    pump, store,
    store::StoreLane,
    timers,
};

/// Bytes read from a socket in one system call, into a buffer that all connections of the shard share.
const SCRATCH_BYTES: usize = 64 * 1024;

/// The most bytes of the node's budget for messages that a shard takes at a time.
const MEMORY_CHUNK_MAX_BYTES: u64 = 4 * 1024 * 1024;

/// The most bytes of the node's budget for unfinished requests that a shard takes at a time.
const BUFFERED_CHUNK_MAX_BYTES: u64 = 1024 * 1024;

/// The most queues, waiting pops or connections that a shard takes from the node's budgets at a time.
const COUNT_CHUNK_MAX: u64 = 256;

/// How long a node that stops waits for somebody to hand its messages to, where nobody is there: another may be starting,
/// and is dialled again after a pause of up to five seconds and a quarter more.
const NOBODY_PATIENCE_MS: u64 = 7_000;

/// How often a stopping shard looks whether it is done.
const DRAIN_TICK: Duration = Duration::from_millis(5);

/// Head and header limits of HTTP requests: what nginx and hyper take by default, or more.
const HEAD_BYTES_MAX: usize = 16 * 1024;
const HEADERS_MAX: usize = 100;

/// Everything a data shard is made from; sent to its executor.
pub struct ShardSeed {
    /// What the shards share.
    pub node: Arc<Node>,
    /// The rules' limits and defaults.
    pub engine: EngineConfig,
    /// Lanes to the other data shards.
    pub peers: PortSeed<DataProtocol>,
    /// The lane to the store.
    pub store: PortSeed<StoreProtocol>,
    /// The lane to the mesh.
    pub mesh: PortSeed<MeshProtocol>,
    /// Declarations that the store holds for this shard's slice; `None` when it could not be read yet: then the shard
    /// asks for them, and its queues run on defaults until they come.
    pub declared: Option<Vec<Declaration>>,
}

/// A running data shard. Reached through an `Rc` by its tasks; its cells are borrowed for the length of a
/// synchronous call only.
pub(crate) struct Shard {
    pub(crate) node: Arc<Node>,
    pub(crate) clock: Clock,
    pub(crate) limits: Limits,
    pub(crate) engine: RefCell<Engine>,
    pub(crate) outlet: Outlet,
    pub(crate) peers: Port<DataProtocol>,
    pub(crate) store: StoreLane,
    pub(crate) mesh: MeshLane,
    pub(crate) links: Links,
    pub(crate) handover: Handover,
    pub(crate) holding: Holding,
    /// Connections that are peer links: they stay until the process ends.
    pub(crate) peer_links: Cell<u64>,
    /// Connections that came after the stop and are no peer links yet. They are nobody's to wait for.
    pub(crate) late: Cell<u64>,
    pub(crate) declarations: Declarations,
    /// What is known of declarations, on a node of several.
    pub(crate) declared: Declared,
    pub(crate) grants: Grants,
    /// Judges tokens, where they are asked for.
    pub(crate) authenticator: RefCell<Option<Authenticator>>,
    pub(crate) metrics: Metrics,
    pub(crate) memory: Share,
    pub(crate) queues: Share,
    pub(crate) parked: Counted,
    pub(crate) connections: Counted,
    pub(crate) buffered: Counted,
    pub(crate) timers: timers::Timers,
    /// Where sockets are read into; a connection that waits holds none of it.
    pub(crate) scratch: RefCell<Box<[u8]>>,
    /// Where responses are put together before they leave in one write.
    pub(crate) out: RefCell<Out>,
    /// Where small responses wait for the end of a turn.
    pub(crate) buffers: Buffers,
    /// Payload spans of the push being read; kept for its memory.
    pub(crate) spans: Cell<Vec<queen_wire::body::Span>>,
}

impl Shard {
    fn new(seed: ShardSeed) -> (Rc<Self>, Option<Vec<Declaration>>) {
        let node = seed.node;
        let config = &node.config;
        let peers = seed.peers.open();
        let shards = peers.shards();
        let shard = Self {
            clock: Clock::starting_at(node.boot),
            limits: Limits {
                head_bytes_max: HEAD_BYTES_MAX,
                headers_max: HEADERS_MAX,
                body_bytes_max: config.max_body_bytes,
            },
            engine: RefCell::new(Engine::new(seed.engine)),
            outlet: Outlet::new(node.boot_epoch, peers.clone()),
            store: StoreLane::new(seed.store.open()),
            mesh: MeshLane::new(seed.mesh.open()),
            links: Links::default(),
            handover: Handover::default(),
            holding: Holding::default(),
            peer_links: Cell::new(0),
            late: Cell::new(0),
            declarations: Declarations::new(),
            declared: Declared::default(),
            grants: Grants::new(),
            authenticator: RefCell::new(node.auth.as_ref().map(Auth::authenticator)),
            metrics: Metrics::new(),
            memory: Share::of(config.ephemeral_max_bytes, shards, MEMORY_CHUNK_MAX_BYTES),
            queues: Share::of(config.ephemeral_max_queues, shards, COUNT_CHUNK_MAX),
            parked: Counted::of(config.ephemeral_max_parked, shards, COUNT_CHUNK_MAX),
            connections: Counted::of(config.max_connections, shards, COUNT_CHUNK_MAX),
            buffered: Counted::of(config.max_buffered_bytes, shards, BUFFERED_CHUNK_MAX_BYTES),
            timers: timers::Timers::new(),
            scratch: RefCell::new(vec![0; SCRATCH_BYTES].into_boxed_slice()),
            out: RefCell::default(),
            buffers: Buffers::default(),
            spans: Cell::default(),
            peers,
            node,
        };
        (Rc::new(shard), seed.declared)
    }

    /// This shard's number, which is also its place among the node's data shards.
    pub(crate) fn id(&self) -> ShardId {
        self.peers.id()
    }

    pub(crate) fn now_ms(&self) -> Millis {
        self.clock.now_ms()
    }

    /// The time for the engine.
    pub(crate) fn engine_now_ms(&self) -> Millis {
        self.clock.engine_millis(Instant::now())
    }
}

/// Runs a data shard until `stop` resolves and its connections are served. To be called on the shard's executor.
/// `listening` is called once connections are taken.
///
/// # Errors
///
/// When the listener cannot be opened.
pub async fn run(seed: ShardSeed, stop: impl Future<Output = ()>, listening: impl FnOnce()) -> std::io::Result<()> {
    let (shard, declared) = Shard::new(seed);
    rt::spawn_local(store::run(Rc::clone(&shard))).detach();
    match declared {
        Some(declared) => {
            shard.restore(declared);
            // What was switched off stays so from the first request on.
            shard.learn_control().await;
        }
        None => rt::spawn_local(Rc::clone(&shard).restore_later()).detach(),
    }
    let listener = rt::TcpListener::bind(shard.node.config.listen)?;
    rt::spawn_local(pump::run(Rc::clone(&shard))).detach();
    rt::spawn_local(timers::run_engine(Rc::clone(&shard))).detach();
    rt::spawn_local(timers::run_sweep(Rc::clone(&shard))).detach();
    rt::spawn_local(Rc::clone(&shard).run_declarations()).detach();
    rt::spawn_local(Rc::clone(&shard).follow_control()).detach();
    rt::spawn_local(Rc::clone(&shard).listen_to_mesh()).detach();
    rt::spawn_local(Rc::clone(&shard).follow_members()).detach();
    if shard.node.cluster.is_some() {
        rt::spawn_local(Rc::clone(&shard).hand_over()).detach();
        rt::spawn_local(Rc::clone(&shard).run_own_declarations()).detach();
        rt::spawn_local(Rc::clone(&shard).refresh_declarations()).detach();
    }
    let accepting = rt::spawn_local(listener::run(Rc::clone(&shard), listener));
    listening();
    stop.await;
    shard.node.stop();
    if shard.node.cluster.is_some() {
        // Peers may still dial, to ask what is to come to them.
        shard.drain().await;
        accepting.cancel().await;
    } else {
        accepting.cancel().await;
        shard.drain().await;
    }
    Ok(())
}

impl Shard {
    /// Whether a node that stops has still to hand over what is here, after so long.
    fn still_hands_over(&self, waited_ms: u64) -> bool {
        let members = self.mesh.members();
        let (Some(members), true) = (members.as_ref(), self.node.cluster.is_some()) else { return false };
        let is_anybody_there = members.members.iter().any(|member| !members.is_me(member));
        let has_left = !members.members.iter().any(|member| members.is_me(member));
        if is_anybody_there {
            // Before it is known to have left, everything looks like its own.
            !has_left || !self.handover.is_done()
        } else {
            waited_ms < NOBODY_PATIENCE_MS && self.has_something_to_leave()
        }
    }

    /// Connections of clients.
    fn clients(&self) -> u64 {
        self.connections.used().saturating_sub(self.peer_links.get() + self.late.get())
    }

    /// Answers the parked pops (none parks from here on, see `pop_here`), lets what is in flight finish within the grace,
    /// and stays until no shard needs this one any more.
    async fn drain(&self) {
        let deadline_ms = self.now_ms() + self.node.config.shutdown_grace_ms;
        if self.node.cluster.is_some() {
            // Those of other nodes go on at the partitions' next owners; those of this node's clients are answered.
            self.release_moved();
        }
        self.engine.borrow_mut().release_waiters(&mut &self.outlet);
        self.timers.wake_all_connections();
        let since_ms = self.now_ms();
        while (self.clients() > 0 || self.still_hands_over(self.now_ms() - since_ms)) && self.now_ms() < deadline_ms {
            rt::sleep(DRAIN_TICK).await;
        }
        self.node.shard_is_drained();
        while !self.node.all_drained() && self.now_ms() < deadline_ms {
            rt::sleep(DRAIN_TICK).await;
        }
        if self.node.cluster.is_some() {
            self.wipe_what_is_left();
            // The last one says what became of all.
            if self.node.shard_has_left() {
                self.node.handed.log();
            }
        }
        let left = self.clients();
        if left > 0 {
            tracing::warn!(shard = self.id(), connections = left, "the grace is over: closing what is still open");
        }
    }
}
