//! The store role: what must outlive the process, kept by a database.
//!
//! Durable queues, the declarations of ephemeral ones, and what operators have switched and granted. Data shards ask over
//! a [`Port`](queen_fabric::port::Port); the [role](run) drives the pure [log](queen_log::engine::Log) with what they ask,
//! and hands what the log wants done to a [`Database`]: SQLite on threads of its own, or PostgreSQL. Nothing in the role
//! blocks. Open the store from a thread that is not pinned, since threads inherit their creator's cores.

mod database;
mod error;
mod limit;
mod options_text;
mod outcomes;
mod postgres;
mod random;
mod retention;
mod role;
mod sqlite;

pub use database::{Database, DatabaseConfig, DatabaseSeed, Health, Job, JobDone, Opened, Outcome};
pub use error::StoreError;
pub use postgres::{
    PostgresConfig, PostgresConfigError, PostgresOptions, PostgresServer, SslMode, TlsError, UnknownSslMode,
};
pub use role::{OnHealth, Store, StoreConfig, run};
pub use sqlite::DATABASE_FILE;
