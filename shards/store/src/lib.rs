//! The store role: what must outlive the process, kept by a database.
//!
//! Today that is the declarations of ephemeral queues, in SQLite. Data shards ask over a
//! [`Port`](queen_fabric::port::Port); the [role](run) hands each ask to a writer thread and the answers back. Only
//! that thread blocks on the disk, and it is not pinned: create the store from a thread that is not pinned either,
//! since threads inherit their creator's cores.
//!
//! A database is a `Backend`: a batch of asks in, one commit, their answers out. What gathers batches knows nothing of
//! SQL, so another database stands beside SQLite's file and changes nothing else.

mod backend;
mod database;
mod options_text;
mod outcomes;
mod random;
mod retention;
mod role;
mod sqlite;
mod writer;

pub use database::{Database, DatabaseConfig, DatabaseSeed, Health, Job, JobDone, Opened, Outcome};
pub use role::{Store, run};
pub use sqlite::{DATABASE_FILE, StoreError};
