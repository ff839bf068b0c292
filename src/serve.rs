//! Puts the roles on their cores and keeps the process up until it is told to stop.
//!
//! Called by `boot` once everything that had to be right is right. It plans the roles, opens the store, makes the lanes,
//! starts one executor per core, and waits for them.

mod mesh;
mod roles;

use std::{
    cell::RefCell,
    collections::hash_map::RandomState,
    future::poll_fn,
    hash::BuildHasher,
    io,
    net::SocketAddr,
    pin::{Pin, pin},
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::Poll,
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use queen_data::{Auth, DataConfig, Doors, Node, ShardSeed};
use queen_ephemeral::EngineConfig;
use queen_fabric::{
    memory::GiveBack,
    placement::{Available, Home, PlacementError, Roles},
    port::{MeshOptions, PortSeed, mesh as lanes},
    protocol::{
        mesh::{MeshProtocol, ROLE_SEATS},
        store::{Declaration, StoreProtocol},
    },
    rt::{self, Executor, ExecutorError, JoinHandle, ReservedPort},
    slice,
};
use queen_mesh::MeshConfig;
use queen_store::{DatabaseConfig, Store, StoreConfig, StoreError};

use crate::{
    auth::{self, AuthError, Authentication},
    boot::{Exit, Ready},
    checks::{self, CheckError},
    jwks::Fetcher,
    settings::Settings,
    signals::Stop,
};

/// From so many cores on, an executor looks for work a little while before it sleeps; below, spinning takes time from
/// the other threads on the core and made every measured row worse.
const SPIN_FROM_CPUS: usize = 4;
const SPIN_DEFAULT_US: u64 = 50;

/// How long a taken port is tried for, and how often. A ring's requests hold their sockets until the kernel has torn the
/// ring down, which it does after the process is gone.
const PORT_PATIENCE: Duration = Duration::from_secs(2);
const PORT_RETRY: Duration = Duration::from_millis(20);

/// Why the node could not serve, or stopped serving.
#[derive(Debug, thiserror::Error)]
enum ServeError {
    #[error(transparent)]
    Placement(#[from] PlacementError),
    #[error("the CPUs that this process may use cannot be read: {0}")]
    Available(io::Error),
    #[error(transparent)]
    Check(#[from] CheckError),
    #[error(transparent)]
    Cluster(#[from] mesh::ClusterError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Auth(#[from] AuthError),
    #[error(
        "PORT, QUEEN_BIND_ADDR: {address} cannot be listened on: {source}; stop what holds it, or name another that this machine has"
    )]
    Port { address: SocketAddr, source: io::Error },
    #[error(
        "QUEEN_MESH_PORT, QUEEN_MESH_BIND_ADDR: {address} cannot be listened on: {source}; stop what holds it, or name another that this machine has"
    )]
    MeshPort { address: SocketAddr, source: io::Error },
    #[error("the mesh cannot listen: {0}")]
    MeshListen(io::Error),
    #[error(transparent)]
    Executor(#[from] ExecutorError),
    #[error("the thread that gives memory back could not start: {0}")]
    Memory(io::Error),
    #[error("data shard {shard} cannot listen: {source}")]
    Listen { shard: usize, source: io::Error },
}

impl ServeError {
    fn exit(&self) -> Exit {
        match self {
            Self::Placement(_) | Self::Port { .. } | Self::MeshPort { .. } | Self::Cluster(_) => Exit::Configuration,
            // More connections were asked for than the open files carry: the setting is wrong.
            Self::Check(CheckError::OpenFiles { .. }) => Exit::Configuration,
            Self::Store(error) if error.is_configuration() => Exit::Configuration,
            Self::Auth(error) if error.is_configuration() => Exit::Configuration,
            _ => Exit::Failure,
        }
    }
}

/// Serves until the stop flag is set and what is in flight is finished.
pub fn run(ready: Ready) -> Exit {
    match serve(ready) {
        Ok(()) => {
            tracing::info!("stopped");
            Exit::Clean
        }
        Err(error) => {
            tracing::error!("{error}");
            error.exit()
        }
    }
}

fn serve(ready: Ready) -> Result<(), ServeError> {
    let Ready { settings, open_files, data_dir, tls, server_id, stop } = ready;
    let available = Available::of_this_thread().map_err(ServeError::Available)?;
    let cores = &settings.cores;
    let roles = Roles::plan(&available, cores.data.as_ref(), cores.mesh, cores.store)?;
    let shards = roles.data.len();
    let own = |home: &&Home| matches!(home, Home::Own { .. });
    let executors = shards + [roles.mesh, roles.store].iter().filter(own).count();
    let max_connections = checks::max_connections(open_files, executors, settings.http.max_connections)?;
    let reserved = {
        let address = SocketAddr::new(settings.listen.bind_addr, settings.listen.port);
        reserve(address).map_err(|source| ServeError::Port { address, source })?
    };
    let mesh_alone = mesh::alone(&settings);
    let mesh_address = SocketAddr::new(settings.mesh.bind_addr, settings.mesh.port);
    let mesh_reserved = mesh_alone
        .is_none()
        .then(|| reserve(mesh_address).map_err(|source| ServeError::MeshPort { address: mesh_address, source }))
        .transpose()?;
    let spin_us = cores.spin_us.unwrap_or(if available.parallelism() < SPIN_FROM_CPUS { 0 } else { SPIN_DEFAULT_US });

    let boot_epoch = boot_epoch();
    let config = data_config(&settings, reserved.address(), max_connections);
    let lines = roles::lines(&roles, shards);
    let (auth, _fetcher) = auth::authentication(&settings.jwt)?.map(|found| tokens(found, &settings)).unzip();
    let mesh_listen = mesh_reserved.as_ref().map_or(mesh_address, ReservedPort::address);
    let mesh_config = mesh::config(&settings, server_id, boot_epoch, mesh_listen, reserved.address());
    let cluster = mesh::cluster(&settings, &mesh_config)?;
    mesh::log(&settings, &mesh_config, matches!(settings.storage.config(), DatabaseConfig::Postgres(_)));
    let node = Node::new(config, Doors { auth, tls, cluster }, lines, env!("CARGO_PKG_VERSION"), boot_epoch, shards);
    roles::log(&node, &roles);
    let health = {
        let node = Arc::clone(&node);
        Box::new(move |connected| node.set_store_connected(connected))
    };
    let (store, declared) = Store::open(store_config(&settings), data_dir.path(), health)?;
    tracing::info!("connections: at most {max_connections}, of {} open files", open_files);

    let left = Left::default();
    let mut mesh_lanes = lanes::<MeshProtocol>(shards + ROLE_SEATS, MeshOptions::default());
    let mut mesh_seat = Some(MeshSeat {
        config: mesh_config,
        port: mesh_lanes.pop().expect("a lane for every shard and the roles"),
        stop: stop.clone(),
        left: left.clone(),
    });
    let store_peers = mesh_lanes.pop().filter(|_| mesh_alone.is_none());
    let mut store_lanes = lanes::<StoreProtocol>(shards + 1, MeshOptions::default());
    let port = store_lanes.pop().expect("a lane for every shard and the store");
    let mut store_seat = Some(StoreSeat { store, port, peers: store_peers });
    let mut declared = declared.map(|declared| by_owner(declared, shards));
    let engine = engine_config(&settings, boot_epoch);
    let peers = lanes(shards, MeshOptions::default());
    let start = Start {
        stop: stop.clone(),
        left,
        spin: Duration::from_micros(spin_us),
        listening: Arc::new(Listening { missing: AtomicUsize::new(shards), address: reserved.address() }),
    };

    let _memory = GiveBack::start().map_err(ServeError::Memory)?;
    let mut running = Vec::with_capacity(executors);
    if let Home::Own { cpu } = roles.store {
        let seat = store_seat.take().map(|seat| move || seat.run());
        running.extend(seat.map(|seat| start.role("queen-store", cpu, seat)).transpose()?);
    }
    if let Home::Own { cpu } = roles.mesh {
        let seat = mesh_seat.take().map(|seat| move || seat.run());
        running.extend(seat.map(|seat| start.role("queen-mesh", cpu, seat)).transpose()?);
    }
    let lives_in =
        |home: Home, shard: usize| matches!(home, Home::InData { shard: host } if usize::from(host) == shard);
    for (shard, ((peers, store), mesh)) in peers.into_iter().zip(store_lanes).zip(mesh_lanes).enumerate() {
        let declared = declared.as_mut().map(|declared| std::mem::take(&mut declared[shard]));
        let seed = ShardSeed { node: Arc::clone(&node), engine, peers, store, mesh, declared };
        let guests = Guests {
            store: store_seat.take_if(|_| lives_in(roles.store, shard)),
            mesh: mesh_seat.take_if(|_| lives_in(roles.mesh, shard)),
        };
        running.push(start.data(shard, roles.data[shard], seed, guests)?);
    }
    let outcome = join(running);
    // The ports stay ours until the last listener is gone.
    drop((reserved, mesh_reserved));
    outcome
}

/// What shards judge tokens with, and what fetches the keys for that until it is dropped.
fn tokens(found: Authentication, settings: &Settings) -> (Auth, Option<Fetcher>) {
    let Authentication { verifier, keys, fetcher } = found;
    (Auth { verifier, keys, skip_paths: settings.jwt.skip_paths.clone() }, fetcher)
}

/// Waits for all executors; the first error is the reason.
fn join(running: Vec<JoinHandle<Result<(), ServeError>>>) -> Result<(), ServeError> {
    let mut outcome = Ok(());
    for executor in running {
        let ended = executor.join().map_err(ServeError::from).and_then(|result| result);
        outcome = outcome.and(ended);
    }
    outcome
}

/// The store and its ends of the lanes, on their way to an executor.
struct StoreSeat {
    store: Store,
    port: PortSeed<StoreProtocol>,
    peers: Option<PortSeed<MeshProtocol>>,
}

impl StoreSeat {
    async fn run(self) -> Result<(), ServeError> {
        queen_store::run(self.store, self.port.open(), self.peers.map(PortSeed::open)).await;
        Ok(())
    }
}

/// The mesh and its end of the lanes, on their way to an executor.
struct MeshSeat {
    config: MeshConfig,
    port: PortSeed<MeshProtocol>,
    stop: Stop,
    left: Left,
}

/// Peers have been told that this node leaves: no executor ends before.
#[derive(Clone, Default)]
struct Left(Arc<AtomicBool>);

impl Left {
    fn set(&self) {
        self.0.store(true, Ordering::Release);
    }

    async fn wait(&self) {
        while !self.0.load(Ordering::Acquire) {
            rt::sleep(Duration::from_millis(1)).await;
        }
    }
}

impl MeshSeat {
    async fn run(self) -> Result<(), ServeError> {
        let left = self.left;
        let outcome = queen_mesh::run(self.config, self.port.open(), self.stop.wait(), || left.set()).await;
        // Without a mesh there is nobody to tell.
        left.set();
        outcome.map_err(ServeError::MeshListen)
    }
}

/// The roles that live in a data shard's executor.
struct Guests {
    store: Option<StoreSeat>,
    mesh: Option<MeshSeat>,
}

/// What every executor is started with.
struct Start {
    stop: Stop,
    left: Left,
    spin: Duration,
    listening: Arc<Listening>,
}

impl Start {
    fn data(
        &self,
        shard: usize,
        cpu: usize,
        seed: ShardSeed,
        guests: Guests,
    ) -> Result<JoinHandle<Result<(), ServeError>>, ServeError> {
        let end = EndWithOne(self.stop.clone());
        let (stop, stop_all, left) = (self.stop.wait(), self.stop.clone(), self.left.clone());
        let listening = Arc::clone(&self.listening);
        let running = Executor::spawn(&format!("queen-data-{shard}"), Some(cpu), self.spin, move || async move {
            let _end = end;
            let failed = Rc::new(RefCell::new(Ok(())));
            let guest = |role: Pin<Box<dyn Future<Output = Result<(), ServeError>>>>| {
                let (failed, stop_all) = (Rc::clone(&failed), stop_all.clone());
                rt::spawn_local(async move {
                    let ended = role.await;
                    *failed.borrow_mut() = ended;
                    stop_all.set();
                })
            };
            let _store = guests.store.map(|seat| guest(Box::pin(seat.run())));
            let _mesh = guests.mesh.map(|seat| guest(Box::pin(seat.run())));
            let served = queen_data::run(seed, stop, || listening.one_more()).await;
            served.map_err(|source| ServeError::Listen { shard, source })?;
            failed.replace(Ok(()))?;
            left.wait().await;
            Ok(())
        })?;
        Ok(running)
    }

    /// A role on a core of its own: it stays until the last data shard is done with it.
    fn role<F: Future<Output = Result<(), ServeError>> + 'static>(
        &self,
        name: &str,
        cpu: usize,
        run: impl FnOnce() -> F + Send + 'static,
    ) -> Result<JoinHandle<Result<(), ServeError>>, ServeError> {
        let end = EndWithOne(self.stop.clone());
        let stop = self.stop.wait();
        let listening = Arc::downgrade(&self.listening);
        let running = Executor::spawn(name, Some(cpu), self.spin, move || async move {
            let _end = end;
            let mut role = pin!(run());
            let mut over = pin!(async move {
                stop.await;
                // A data shard holds it for as long as it runs, and so does who started them.
                while listening.strong_count() > 1 {
                    rt::sleep(Duration::from_millis(5)).await;
                }
            });
            poll_fn(|cx| match role.as_mut().poll(cx) {
                Poll::Ready(outcome) => Poll::Ready(outcome),
                Poll::Pending => over.as_mut().poll(cx).map(Ok),
            })
            .await
        })?;
        Ok(running)
    }
}

/// Counts the shards that do not listen yet; the last one says where the node can be reached.
struct Listening {
    missing: AtomicUsize,
    address: SocketAddr,
}

impl Listening {
    fn one_more(&self) {
        if self.missing.fetch_sub(1, Ordering::AcqRel) == 1 {
            tracing::info!("listening on {}", self.address);
        }
    }
}

/// Ends the others when one executor ends, whatever the reason: a node serves whole or not at all.
struct EndWithOne(Stop);

impl Drop for EndWithOne {
    fn drop(&mut self) {
        self.0.set();
    }
}

/// Makes sure that a port is ours. One that is taken is tried for again for a little while: it may be the last
/// process's, whose sockets the kernel closes a moment after it was killed.
fn reserve(address: SocketAddr) -> io::Result<ReservedPort> {
    let give_up = Instant::now() + PORT_PATIENCE;
    loop {
        match rt::reserve_port(address) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < give_up => {
                thread::sleep(PORT_RETRY);
            }
            outcome => return outcome,
        }
    }
}

/// Sorts the declarations by the shard that owns the queue.
fn by_owner(declared: Vec<Declaration>, shards: usize) -> Vec<Vec<Declaration>> {
    let mut owned: Vec<Vec<Declaration>> = (0..shards).map(|_| Vec::new()).collect();
    for declaration in declared {
        let owner = slice::owner(slice::slice(&declaration.tenant, &declaration.queue), shards);
        owned[usize::from(owner)].push(declaration);
    }
    owned
}

/// A number that no other start of this node has had: the time in milliseconds, and 20 random bits.
fn boot_epoch() -> u64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let random = RandomState::new().hash_one(std::process::id());
    (since_1970.as_millis() as u64) << 20 | random & 0xf_ffff
}

fn data_config(settings: &Settings, listen: SocketAddr, max_connections: u64) -> DataConfig {
    let (http, ephemeral) = (&settings.http, &settings.ephemeral);
    DataConfig {
        listen,
        max_body_bytes: http.max_body_bytes,
        max_buffered_bytes: http.max_buffered_bytes,
        max_connections,
        header_timeout_ms: http.header_timeout_ms,
        idle_timeout_ms: http.idle_timeout_ms,
        json_depth_max: saturated(http.json_depth_max),
        tenancy_header: http.tenancy_header,
        ephemeral_require_grant: settings.requires_grant(),
        ephemeral_max_bytes: ephemeral.max_bytes,
        ephemeral_max_queues: ephemeral.max_queues,
        ephemeral_max_parked: ephemeral.max_parked,
        ephemeral_rate: ephemeral.rate,
        ephemeral_burst: ephemeral.burst(),
        shutdown_grace_ms: settings.process.shutdown_grace_ms,
    }
}

fn engine_config(settings: &Settings, boot_epoch: u64) -> EngineConfig {
    let ephemeral = &settings.ephemeral;
    EngineConfig {
        boot_epoch,
        queue_max_bytes: ephemeral.queue_max_bytes,
        queue_max_length: ephemeral.queue_max_length,
        lease_ms: ephemeral.lease_s.saturating_mul(1000),
        retry_limit: saturated(ephemeral.retry_limit),
        implicit_idle_ms: ephemeral.implicit_idle_s.saturating_mul(1000),
        group_idle_ms: ephemeral.group_idle_s.saturating_mul(1000),
        max_partitions_per_queue: saturated(ephemeral.max_partitions_per_queue),
        max_groups_per_queue: saturated(ephemeral.max_groups_per_queue),
    }
}

fn store_config(settings: &Settings) -> StoreConfig {
    let storage = &settings.storage;
    StoreConfig {
        database: storage.config(),
        cache_bytes: usize::try_from(storage.cache_bytes).unwrap_or(usize::MAX),
        requests_max: STORE_REQUESTS_MAX + usize::try_from(settings.ephemeral.max_parked).unwrap_or(usize::MAX),
        patience: STORE_PATIENCE,
        answer_bytes_max: DURABLE_ANSWER_BYTES_MAX,
        recheck_max: Duration::from_millis(storage.pop_wait_max_interval_ms),
        retention_interval: Duration::from_millis(storage.retention_interval_ms),
        reconcile_interval: Duration::from_millis(storage.cache_refresh_interval_ms),
        has_tenants: settings.http.tenancy_header,
        seed: RandomState::new().hash_one("store"),
    }
}

/// Durable requests under way besides those that wait for messages: what all lanes to the store have credits for.
const STORE_REQUESTS_MAX: usize = 65_536;

/// How long a durable request may go without an answer from the database: below what clients wait for.
const STORE_PATIENCE: Duration = Duration::from_secs(10);

/// Payload bytes of one durable answer: what a connection may have to keep for a client that reads slowly.
const DURABLE_ANSWER_BYTES_MAX: usize = 16 << 20;

/// Settings are 64 bits wide in the environment; their ranges are checked there.
fn saturated(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}
