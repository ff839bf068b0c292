//! A lane: a bounded single-producer single-consumer ring between two shards, and the doorbell beside it.
//!
//! [`ring`] moves values, [`wake`] tells a sleeping receiver that something moved. Neither knows a runtime: a
//! receiver is anything with a [`Waker`](std::task::Waker). The ports of [`port`](crate::port) put the two together.

pub mod ring;
pub mod wake;

/// Values that fit one lane before its sender keeps the rest in an outbox of its own.
pub const LANE_DEPTH: usize = 128;
