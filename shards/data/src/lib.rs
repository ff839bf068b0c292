//! The shard that runs on every data core: listeners, routes, the ephemeral engine and its parked pops.
//!
//! A data shard owns the connections that the kernel gave it and a hash slice of the queues. A request for a queue
//! of its own slice is served by a plain synchronous call on the engine; one for another slice crosses one lane to
//! its owner and comes back with the answer already rendered. Nothing here blocks, nothing locks, and no `RefCell`
//! borrow lives across an `.await`.
//!
//! The way of one request, by file: [`listener`] accepts, [`connection`] moves bytes, [`routes`] finds the route,
//! [`dispatch`] has [`admission`] look at who it comes from and calls its handler. [`ephemeral`] parses and routes to the owner, [`owner`] calls the engine, [`pump`]
//! does the same for what other shards ask, [`outlet`] turns what the engine hands out into answers. [`durable`]
//! parses, asks the [`store`] role over its lane, and renders what comes back.

mod admission;
mod budget;
mod clock;
mod cluster;
mod config;
mod connection;
mod dispatch;
mod durable;
mod ephemeral;
mod error;
mod grants;
mod handed;
mod listener;
mod mesh;
mod node;
mod observe;
mod outlet;
mod owner;
mod protocol;
mod pump;
mod rate;
mod reply;
mod routes;
mod shard;
mod store;
mod system;
mod timers;
mod tls;
mod waiters;

pub use admission::Auth;
pub use cluster::Cluster;
pub use config::DataConfig;
pub use error::{ApiError, Code};
pub use node::{Doors, Node, RoleLine};
pub use protocol::DataProtocol;
pub use routes::{RouteLine, route_lines};
pub use shard::{ShardSeed, run};
pub use tls::{Tls, TlsError};
