//! The rules of durable queues: no I/O, no clock, no runtime.
//!
//! A queue has partitions, a partition is a log of messages with offsets from 0, and a consumer group has a cursor and
//! at most one lease in each. The [`Log`](engine::Log) takes [requests](request), says which [rows](row) it needs and
//! what it wants [written](store), and answers once that is durable. It keeps what it has seen of the rows and writes
//! against it: each write names the row that it replaces, so a write that another broker was faster with is left out
//! by the store, and the log looks again.

pub mod engine;
pub mod id;
pub mod options;
pub mod read;
pub mod record;
pub mod request;
pub mod row;
pub mod segment;
pub mod store;
