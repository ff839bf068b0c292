//! Lanes between cores, wake-ups, the slice hash, placement, and the one door to the runtime.
//!
//! What stands here is what the shards of one process share, and nothing that they own:
//!
//! - [`lane`]: the bounded ring between two shards and the doorbell beside it. No runtime, driven by loom.
//! - [`port`]: questions and answers over lanes, with credits, cancels and give-backs.
//! - [`rt`]: executors, tasks, timers and sockets. No other crate names the runtime.
//! - [`slice`](mod@slice): which data shard owns a queue.
//! - [`placement`]: which role runs on which core.
//! - [`budget`]: node-wide limits, taken by the shards in chunks.
//! - [`members`]: the nodes of a cluster, and which of them owns a partition.
//! - [`memory`]: what is free goes back to the operating system.
//! - [`protocol`]: the messages that two roles which do not know each other meet in.

pub mod lane;
mod sync;

#[cfg(not(loom))]
pub mod budget;
#[cfg(not(loom))]
pub mod members;
#[cfg(not(loom))]
pub mod memory;
#[cfg(not(loom))]
pub mod placement;
#[cfg(not(loom))]
pub mod port;
#[cfg(not(loom))]
pub mod protocol;
#[cfg(not(loom))]
pub mod rt;
#[cfg(not(loom))]
pub mod slice;

/// The number of a shard among its peers in one mesh: 0 up to the number of shards, exclusive.
pub type ShardId = u16;
