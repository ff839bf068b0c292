//! What spans the shards of a node: its identity, the budgets they draw on, and the way to a stop.
//!
//! Everything here is read-only or a lock-free counter, and none of it is touched for every request: shards take
//! credit from the budgets in chunks.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Instant,
};

use queen_fabric::budget::Pool;

use crate::{
    admission::Auth,
    cluster::{Cluster, Handed},
    config::DataConfig,
    grants::TenantPools,
    rate::Rates,
    tls::Tls,
};

/// One shard as `/status` and the boot log show it.
#[derive(Debug, Clone)]
pub struct RoleLine {
    /// `data`, `mesh` or `store`.
    pub role: &'static str,
    /// The core it is pinned to.
    pub cpu: Option<usize>,
    /// What it owns, in words.
    pub owns: String,
}

/// How a node lets others in.
#[derive(Debug, Default)]
pub struct Doors {
    /// How tokens are judged, if they are asked for.
    pub auth: Option<Auth>,
    /// The certificate of the HTTP port, if it speaks TLS.
    pub tls: Option<Arc<Tls>>,
    /// What it needs to be one of several nodes, if it may be.
    pub cluster: Option<Cluster>,
}

/// A node: shared by its data shards behind an `Arc`.
#[derive(Debug)]
pub struct Node {
    /// The settings.
    pub config: DataConfig,
    /// How tokens are judged, if they are asked for.
    pub auth: Option<Auth>,
    /// The certificate of the HTTP port, if it speaks TLS.
    pub tls: Option<Arc<Tls>>,
    /// What it needs to be one of several nodes, if it may be.
    pub cluster: Option<Cluster>,
    /// Roles and cores, as planned at boot; the data shards first, in the order of their ids.
    pub roles: Vec<RoleLine>,
    /// The broker's version.
    pub version: &'static str,
    /// Names this incarnation of the node in every message id.
    pub boot_epoch: u64,
    /// When the node started, for its uptime and as the origin of the engine's clock.
    pub boot: Instant,
    pub(crate) memory: Pool,
    pub(crate) queues: Pool,
    pub(crate) parked: Pool,
    pub(crate) connections: Pool,
    pub(crate) buffered: Pool,
    pub(crate) rates: Rates,
    pub(crate) tenants: TenantPools,
    /// What was handed over to other nodes.
    pub(crate) handed: Handed,
    stopping: AtomicBool,
    store_connected: AtomicBool,
    /// Data shards that still have connections to serve, counted down at a stop.
    busy_shards: AtomicUsize,
    /// Data shards that may still hand something over, counted down at a stop.
    staying_shards: AtomicUsize,
}

impl Node {
    /// A node of `data_shards` shards that has not started to serve.
    pub fn new(
        config: DataConfig,
        doors: Doors,
        roles: Vec<RoleLine>,
        version: &'static str,
        boot_epoch: u64,
        data_shards: usize,
    ) -> Arc<Self> {
        Arc::new(Self {
            memory: Pool::new(config.ephemeral_max_bytes),
            queues: Pool::new(config.ephemeral_max_queues),
            parked: Pool::new(config.ephemeral_max_parked),
            connections: Pool::new(config.max_connections),
            buffered: Pool::new(config.max_buffered_bytes),
            rates: Rates::default(),
            tenants: TenantPools::default(),
            handed: Handed::default(),
            config,
            auth: doors.auth,
            tls: doors.tls,
            cluster: doors.cluster,
            roles,
            version,
            boot_epoch,
            boot: Instant::now(),
            stopping: AtomicBool::new(false),
            store_connected: AtomicBool::new(true),
            busy_shards: AtomicUsize::new(data_shards),
            staying_shards: AtomicUsize::new(data_shards),
        })
    }

    /// Notes whether the store of the durable queues can be reached: `/health` shows it. It counts as reached until
    /// the store role says otherwise.
    pub fn set_store_connected(&self, connected: bool) {
        self.store_connected.store(connected, Ordering::Relaxed);
    }

    /// Whether the store of the durable queues can be reached.
    pub(crate) fn is_store_connected(&self) -> bool {
        self.store_connected.load(Ordering::Relaxed)
    }

    /// From here on no pop waits and no connection is kept.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    /// Whether a stop was asked for.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// A shard has served its last connection.
    pub(crate) fn shard_is_drained(&self) {
        self.busy_shards.fetch_sub(1, Ordering::AcqRel);
    }

    /// A shard has handed over what it could. Whether it is the last one.
    pub(crate) fn shard_has_left(&self) -> bool {
        self.staying_shards.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Whether every shard has served its last connection, so that none is asked for anything any more.
    pub(crate) fn all_drained(&self) -> bool {
        self.busy_shards.load(Ordering::Acquire) == 0
    }
}
